/* test_sync_lease.c - leases: one holder at a time, by everybody's own clock;
 * tokens that grow; what is given, what lapses, what is in doubt. */
#include "base/mutant.h"
#include "fixture/lease_world.h"
#include "fixture/seeds.h"

#include <errno.h>
#include <pthread.h>

#define DURATION (20 * MILLISECOND)

/* --- plain ways --- */

static void run(int (*first)(struct member *member),
		int (*second)(struct member *member))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 2 * SECOND};

		pool_start(&pool, seed);
		pool_add(&pool, first);
		if (second)
			pool_add(&pool, second);
		pool_finish(&pool);
	}
}

static int uses(struct member *member)
{
	struct reef_lease_options options = {.duration_ns = DURATION};
	struct reef_lease_options existing = {.flags = REEF_SYNC_EXISTING};
	struct reef_lease *lease, *other;
	struct reef_lease_info info;
	struct reef_space *space;
	uint64_t first, second;

	TRY(member_space(member, &space));
	WANT_RC(reef_lease_open(space, "x", &existing, &lease), -ENOENT);
	WANT_RC(reef_lease_drop(space, "x"), -ENOENT);
	TRY(reef_lease_open(space, "x", &options, &lease));
	TRY(reef_lease_open(space, "x", &existing, &other));
	WANT_RC(reef_election_drop(space, "x"), -EEXIST);
	WANT_RC(reef_lease_renew(lease), -EPERM);
	WANT_RC(reef_lease_give(lease), -EPERM);
	WANT(reef_lease_left(lease) == 0);
	TRY(reef_lease_take(lease, 0, &first));
	WANT(reef_lease_left(lease) > 0 && reef_lease_left(lease) <= DURATION);
	WANT_RC(reef_lease_take(lease, 0, NULL), -EDEADLK);
	WANT_RC(reef_lease_take(other, 0, NULL), -EBUSY);
	WANT_RC(reef_lease_renew(other), -EPERM);
	WANT_RC(reef_lease_give(other), -EPERM);
	WANT_RC(reef_lease_drop(space, "x"), -EBUSY);
	TRY(reef_lease_look(other, &info));
	WANT(info.session == reef_session(member->reef));
	WANT(info.token == first);
	second = info.renewals;
	TRY(reef_lease_renew(lease));
	TRY(reef_lease_look(other, &info));
	WANT(info.renewals != second);
	TRY(reef_lease_give(lease));
	TRY(reef_lease_look(other, &info));
	WANT(!info.session && info.token == first);
	TRY(reef_lease_take(other, 0, &second));
	WANT(second > first);
	/* Closing gives it. */
	reef_lease_close(other);
	TRY(reef_lease_take(lease, 0, &first));
	WANT(first > second);
	TRY(reef_lease_give(lease));
	TRY(reef_lease_drop(space, "x"));
	WANT_RC(reef_lease_take(lease, 0, NULL), -ENOENT);
	WANT_RC(reef_lease_look(lease, &info), -ENOENT);
	TRY(reef_lease_open(space, "x", NULL, &other));
	TRY(reef_lease_take(other, 0, &first));
	WANT(reef_lease_left(other) == UINT64_MAX);
	reef_lease_close(other);
	reef_lease_close(lease);
	return 0;
}

static void lease_taken_renewed_given(void **state)
{
	run(uses, NULL);
}

static int lapses(struct member *member)
{
	struct reef_lease_options options = {.duration_ns = DURATION};
	struct reef_lease *lease, *other;
	uint64_t first, second, began_ns;
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(reef_lease_open(space, "x", &options, &lease));
	TRY(reef_lease_open(space, "x", &options, &other));
	began_ns = reef_now_ns();
	TRY(reef_lease_take(lease, 0, &first));
	WANT_RC(reef_lease_take(other, DURATION / 2, NULL), -ETIMEDOUT);
	TRY(reef_lease_renew(lease));
	WANT_RC(reef_lease_take(other, DURATION, NULL), -ETIMEDOUT);
	WANT(!reef_lease_left(lease));
	WANT_RC(reef_lease_renew(lease), -ETIMEDOUT);
	WANT_RC(reef_lease_renew(lease), -EPERM);
	TRY(reef_lease_take(other, DURATION, &second));
	WANT(reef_now_ns() - began_ns > 3 * DURATION / 2 + DURATION / 8);
	WANT(second > first);
	WANT_RC(reef_lease_give(lease), -EPERM);
	WANT(reef_lease_left(other));
	/* Nobody noticed: it is taken anew, with another token. */
	TRY(reef_sleep(2 * DURATION));
	WANT_RC(reef_lease_renew(other), -ETIMEDOUT);
	TRY(reef_lease_take(other, 0, &first));
	WANT(first > second);
	reef_lease_close(other);
	reef_lease_close(lease);
	return 0;
}

static void lease_not_renewed_lapses(void **state)
{
	run(lapses, NULL);
}

/* Somebody dropped it, and died before its name was unbound. */
static int is_dropped_halfway(struct member *member)
{
	struct reef_lease_options existing = {.flags = REEF_SYNC_EXISTING};
	uint64_t dropped = (uint64_t)LEASE_DROPPED << 32, token;
	struct reef_lease *lease, *other;
	struct reef_space *space;
	uint64_t block;

	TRY(member_space(member, &space));
	TRY(reef_lease_open(space, "x", NULL, &lease));
	block = lease->object.block;
	TRY(reef_cas(member->reef, lease->object.body + 8, 0, dropped, NULL));
	WANT_RC(reef_lease_take(lease, REEF_FOREVER, NULL), -ENOENT);
	reef_lease_close(lease);
	WANT_RC(reef_lease_open(space, "x", &existing, &other), -ENOENT);
	TRY(reef_lease_open(space, "x", NULL, &other));
	WANT(other->object.block != block);
	TRY(reef_lease_take(other, 0, &token));
	/* And once more, by dropping what is dropped. */
	TRY(reef_lease_give(other));
	token &= LEASE_TERMS - 1;
	dropped |= token;
	TRY(reef_cas(member->reef, other->object.body + 8, token, dropped,
		     NULL));
	TRY(reef_lease_drop(space, "x"));
	WANT_RC(reef_lease_drop(space, "x"), -ENOENT);
	reef_lease_close(other);
	return 0;
}

static void lease_dropped_halfway_is_made_anew(void **state)
{
	run(is_dropped_halfway, NULL);
}

/* Its node dies: the holder learns it, and the next token is higher. */
static int loses_it(struct member *member)
{
	struct reef_lease_options options = {.duration_ns = REEF_FOREVER >> 4};
	struct pool *pool = member->pool;
	uint64_t first, second, began_ns;
	struct reef_lease *lease, *other;
	struct reef_space *space;
	uint32_t i;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_lease_open(space, "x", &options, &lease));
	TRY(reef_lease_take(lease, 0, &first));
	for (i = 0; i < NODES; i++) {
		reef_sim_host_kill(pool->lenders[i].host);
		TRY(reef_sim_host_restart(pool->lenders[i].host, pool_node_main,
					  &pool->lenders[i]));
	}
	/* It learns so without an operation of its own. */
	for (i = 0; i < 2000 && reef_lease_left(lease); i++)
		TRY(reef_sleep(MILLISECOND));
	WANT(!reef_lease_left(lease));
	WANT_RC(reef_lease_renew(lease), -REEF_ELOST);
	WANT_RC(reef_lease_renew(lease), -EPERM);
	WANT_RC(reef_lease_take(lease, 0, NULL), -REEF_ELOST);
	WANT_RC(reef_lease_open(space, "x", NULL, &other), -REEF_ELOST);
	began_ns = reef_now_ns();
	TRY(reef_lease_drop(space, "x"));
	WANT(reef_now_ns() - began_ns >= 6 * SECOND);
	while ((rc = reef_lease_open(space, "x", NULL, &other)) == -ENOSPC)
		TRY(reef_sleep(MILLISECOND));
	TRY(rc);
	TRY(reef_lease_take(other, 0, &second));
	WANT(second > first);
	reef_lease_close(other);
	reef_lease_close(lease);
	return 0;
}

static void lease_lost_is_not_held(void **state)
{
	run(loses_it, NULL);
}

/* --- waking --- */

#define ROUNDS 20

/* Take turns; each is told at once, long before it would look. */
static int turns(struct member *member)
{
	uint64_t *note = member->pool->note, pool_ns;
	struct reef_random random;
	struct reef_lease *lease;
	struct reef_space *space;
	uint32_t i;

	reef_random_init(&random, member->pool->seed * 2 + member->number);
	TRY(member_space(member, &space));
	TRY(reef_lease_open(space, "x", NULL, &lease));
	for (i = 0; i < ROUNDS; i++) {
		bool waits;

		TRY(reef_sleep(reef_random_below(&random, 300000)));
		waits = note[0] && note[1] == 0;
		TRY(reef_lease_take(lease, REEF_FOREVER, NULL));
		pool_ns = pool_now(member->pool);
		/* note[1]: when it was given to nobody in particular. */
		if (waits && note[1] && i > 1)
			WANT(pool_ns - note[1] < 10 * MILLISECOND);
		note[0]++;
		note[1] = 0;
		TRY(reef_sleep(reef_random_below(&random, 300000)));
		note[1] = pool_now(member->pool);
		TRY(reef_lease_give(lease));
	}
	reef_lease_close(lease);
	return 0;
}

static int run_turns(uint64_t seed, enum reef_mutant mutant)
{
	struct pool pool = {.ttl_ns = 4 * SECOND};
	int rc;

	reef_mutate(mutant);
	pool_start(&pool, seed);
	pool_add(&pool, turns);
	pool_add(&pool, turns);
	rc = pool_end(&pool);
	reef_mutate(REEF_MUTANT_NONE);
	return rc;
}

static void lease_given_wakes_who_waits(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, seeds_of(50, 2000)); seed++)
		assert_int_equal(run_turns(seed, REEF_MUTANT_NONE), 0);
}

#define CROWD (LEASE_PLACES + 20)

struct one {
	struct member *member;
	struct reef_space *space;
	struct reef_fiber *fiber;
};

static int one_takes(void *arg)
{
	struct one *one = arg;
	struct reef_lease *lease;

	TRY(reef_lease_open(one->space, "x", NULL, &lease));
	TRY(reef_lease_take(lease, REEF_FOREVER, NULL));
	WANT(++one->member->pool->note[0] == 1);
	TRY(reef_sleep(10000));
	one->member->pool->note[0]--;
	TRY(reef_lease_give(lease));
	reef_lease_close(lease);
	return 0;
}

/* Some of them have no place, and look for themselves. */
static int crowd(struct member *member)
{
	static struct one ones[CROWD];
	uint32_t i, left = 0;
	struct reef_lease *lease;
	struct lease_place places[LEASE_PLACES];
	struct reef_space *space;
	int rc = 0, result;

	TRY(member_space(member, &space));
	for (i = 0; i < CROWD; i++) {
		ones[i] = (struct one){.member = member, .space = space};
		TRY(reef_fiber_spawn(reef_fiber_sched(), one_takes, &ones[i],
				     &ones[i].fiber));
	}
	for (i = 0; i < CROWD; i++) {
		reef_fiber_join(ones[i].fiber, &result);
		rc = rc ? rc : result;
	}
	TRY(rc);
	TRY(reef_lease_open(space, "x", NULL, &lease));
	TRY(reef_read(member->reef,
		      lease_at(lease, offsetof(struct lease_body, places)),
		      places, sizeof(places)));
	for (i = 0; i < LEASE_PLACES; i++)
		left += places[i].word >> LEASE_TERM_BITS != 0;
	WANT(left == 0);
	reef_lease_close(lease);
	return 0;
}

static void lease_more_wait_than_have_places(void **state)
{
	run(crowd, NULL);
}

static struct reef_lease *waits_to_be_canceled;

static int cancels(struct member *member)
{
	struct reef_lease *lease;
	struct reef_space *space;

	waits_to_be_canceled = NULL;
	TRY(member_space(member, &space));
	TRY(reef_lease_open(space, "x", NULL, &lease));
	TRY(reef_lease_take(lease, 0, NULL));
	member->pool->note[0] = 1;
	while (!waits_to_be_canceled)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(50 * MILLISECOND));
	/* In a process it would be another thread of the same one. */
	reef_lease_cancel(waits_to_be_canceled);
	while (waits_to_be_canceled)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_lease_give(lease));
	reef_lease_close(lease);
	return 0;
}

static int is_canceled(struct member *member)
{
	struct reef_lease *lease;
	struct reef_space *space;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_lease_open(space, "x", NULL, &lease));
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	waits_to_be_canceled = lease;
	WANT_RC(reef_lease_take(lease, REEF_FOREVER, NULL), -ECANCELED);
	/* Asked for before: the next one that would wait. */
	reef_lease_cancel(lease);
	WANT_RC(reef_lease_take(lease, REEF_FOREVER, NULL), -ECANCELED);
	waits_to_be_canceled = NULL;
	rc = reef_lease_take(lease, REEF_FOREVER, NULL);
	reef_lease_close(lease);
	return rc;
}

static void lease_canceled_does_not_wait(void **state)
{
	run(cancels, is_canceled);
}

/* --- the floor --- */

/* Terms go on where their lower bits begin anew. */
static int wraps(struct member *member)
{
	uint64_t floor = 5 * LEASE_TERMS + LEASE_TERMS / 2 + 9;
	uint64_t holder = LEASE_TERMS - 3, token, last;
	struct reef_lease *lease;
	struct reef_space *space;
	int i;

	TRY(member_space(member, &space));
	TRY(reef_lease_open(space, "x", NULL, &lease));
	TRY(reef_write(member->reef, lease->object.body, &floor, 8));
	TRY(reef_write(member->reef, lease->object.body + 8, &holder, 8));
	last = (lease->object.generation << 32) + 6 * LEASE_TERMS - 3;
	for (i = 0; i < 6; i++) {
		TRY(reef_lease_take(lease, 0, &token));
		WANT(token == last + 1);
		last = token;
		TRY(reef_lease_give(lease));
		/* As if many had led, of whom none lived to raise it. */
		if (i == 2 || i == 4) {
			last += LEASE_TERMS / 4 + 16;
			holder = last & (LEASE_TERMS - 1);
			TRY(reef_write(member->reef, lease->object.body + 8,
				       &holder, 8));
		}
	}
	reef_lease_close(lease);
	return 0;
}

static void lease_terms_go_on_beyond_their_bits(void **state)
{
	run(wraps, NULL);
}

/* --- what it costs --- */

static int counts(struct member *member)
{
	struct reef_lease_options options = {.duration_ns = SECOND};
	struct reef_counts before, after, cost;
	struct reef_lease_info info;
	struct reef_lease *lease;
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(reef_lease_open(space, "x", &options, &lease));
	TRY(reef_lease_take(lease, 0, NULL));
	before = reef_count_read(&member->count);
	TRY(reef_lease_renew(lease));
	after = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &after);
	WANT(cost.writes == 1 && cost.reads == 1 && cost.round_trips == 1);
	WANT(cost.cas == 0 && cost.faa == 0);
	before = after;
	TRY(reef_lease_look(lease, &info));
	after = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &after);
	WANT(cost.reads == 4 && cost.round_trips == 1 && cost.writes == 0);
	before = after;
	WANT(reef_lease_left(lease));
	after = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &after);
	WANT(cost.round_trips == 0);
	before = after;
	TRY(reef_lease_give(lease));
	after = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &after);
	WANT(cost.cas == 1 && cost.round_trips == 1);
	reef_lease_close(lease);
	return 0;
}

static void lease_costs_what_it_says(void **state)
{
	struct pool pool = {.ttl_ns = 200 * SECOND};

	pool_start(&pool, 1);
	pool_add(&pool, counts);
	pool_finish(&pool);
}

/* --- threads of a process, outside fibers --- */

#define POOL "embedded:32M"
#define THREADS 4

static struct {
	uint64_t word; /* that only the lease protects */
	struct reef_lease *canceled;
} shared;

static int thread_adds(struct reef *reef, struct reef_lease *lease)
{
	uint64_t value;

	TRY(reef_lease_take(lease, REEF_FOREVER, NULL));
	TRY(reef_read(reef, shared.word, &value, 8));
	value++;
	TRY(reef_write(reef, shared.word, &value, 8));
	return reef_lease_give(lease);
}

static void *thread_main(void *failure)
{
	struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct reef_lease *lease = NULL;
	struct reef_space *space;
	struct reef *reef = NULL;
	int i, rc = reef_open(POOL, NULL, &reef);

	if (!rc)
		rc = reef_space_open(reef, "space", &options, &space);
	if (!rc)
		rc = reef_lease_open(space, "x", NULL, &lease);
	for (i = 0; i < ROUNDS && !rc; i++)
		rc = thread_adds(reef, lease);
	reef_lease_close(lease);
	reef_close(reef);
	*(int *)failure = rc;
	return NULL;
}

static void *thread_cancels(void *arg)
{
	/* It is canceled as soon as it waits, whenever that is. */
	reef_lease_cancel(shared.canceled);
	return NULL;
}

static void lease_threads_take_turns(void **state)
{
	struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct reef_space *space;
	struct reef_lease *lease;
	struct reef *reef;
	pthread_t threads[THREADS], other;
	int i, failures[THREADS];
	uint64_t value = 0;

	assert_int_equal(reef_open(POOL, NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "space", &options, &space), 0);
	assert_int_equal(reef_alloc(space, 8, &shared.word), 0);
	assert_int_equal(reef_write(reef, shared.word, &value, 8), 0);
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, thread_main, &failures[i]);
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(failures[i], 0);
	}
	assert_int_equal(reef_read(reef, shared.word, &value, 8), 0);
	assert_int_equal(value, THREADS * ROUNDS);
	assert_int_equal(reef_lease_open(space, "x", NULL, &lease), 0);
	assert_int_equal(reef_lease_open(space, "x", NULL, &shared.canceled),
			 0);
	assert_int_equal(reef_lease_take(lease, 0, NULL), 0);
	pthread_create(&other, NULL, thread_cancels, NULL);
	assert_int_equal(reef_lease_take(shared.canceled, REEF_FOREVER, NULL),
			 -ECANCELED);
	pthread_join(other, NULL);
	reef_lease_close(shared.canceled);
	reef_lease_close(lease);
	reef_close(reef);
}

/* --- everything at once --- */

static int hold(struct claimant *actor)
{
	uint32_t i, steps;
	int rc = 0;

	steps = (uint32_t)claimant_below(actor,
					 claimant_below(actor, 2) ? 3 : 20);
	for (i = 0; i < steps; i++) {
		TRY(reef_sleep(claimant_below(actor, DURATION / 2)));
		actor->is_busy = true;
		rc = reef_lease_renew(actor->lease);
		actor->is_busy = false;
		if (rc)
			break;
		claimant_believes(actor);
		TRY(claimant_alone(actor, "renewal"));
	}
	if (rc == -EPERM || rc == -ETIMEDOUT) {
		actor->holds = false;
		rc = 0;
	}
	if (!rc && claimant_below(actor, 2)) {
		actor->holds = false;
		actor->is_busy = true;
		rc = reef_lease_give(actor->lease);
		actor->is_busy = false;
		rc = rc == -EPERM ? 0 : rc;
	}
	return rc;
}

static int contends(struct member *member)
{
	struct claimant *actor = claimant_of(member);
	uint64_t token;
	int rc;

	rc = claimant_begin(actor);
	while (!rc && claimant_goes_on(actor)) {
		uint64_t timeout_ns =
			claimant_below(actor, 2)
				? claimant_below(actor, 10 * DURATION)
				: 0;

		actor->is_busy = !timeout_ns || claimant_below(actor, 4) == 0;
		rc = reef_lease_take(actor->lease, timeout_ns, &token);
		actor->is_busy = false;
		if (!rc) {
			rc = claimant_took(actor, token);
			if (!rc && actor->holds)
				rc = hold(actor);
		}
		if (rc == -EXDEV || rc == -REEF_EHOSTDEAD)
			break;
		if (rc == -REEF_EFENCED)
			rc = claimant_rejoin(actor);
		else if (rc == -ETIMEDOUT || rc == -EBUSY || rc == -EDEADLK ||
			 rc == -REEF_ENOLINK || rc == -REEF_EINDOUBT)
			rc = reef_sleep(claimant_below(actor, DURATION / 4));
	}
	/* Past the end whatever failed for lack of a pool is all right. */
	if (rc != -EXDEV && rc != -REEF_EHOSTDEAD && !claimant_goes_on(actor))
		rc = 0;
	claimant_close(actor);
	return rc;
}

static const struct lease_world_run calm = {
	.members = 3,
	.duration_ns = DURATION,
	.lasts_ns = SECOND,
	.drift_max_ppm = 50000,
	.script = contends,
};

static struct lease_world_run chaos(void)
{
	struct lease_world_run run = calm;

	run.fates = FATE_PAUSE | FATE_KILL | FATE_CUT | FATE_BROKER;
	run.members = 4;
	run.lose_link_ppm = 1000;
	return run;
}

static void lease_of_drifting_clocks_has_one_holder(void **state)
{
	lease_world_seeds(calm, 200, 5000);
}

static void lease_in_chaos_has_one_holder(void **state)
{
	lease_world_seeds(chaos(), 150, 20000);
}

#if !SANITIZED
static void lease_mutants_are_found(void **state)
{
	struct lease_world_run run = chaos();
	uint64_t seed;
	bool found = false;

	/* The rarest is found by one seed in a thousand or so, and which one
	 * that is changes with every step that the library takes. */
	lease_world_find(run, REEF_MUTANT_LEASE_SAME_TERM, 50);
	lease_world_find(run, REEF_MUTANT_LEASE_DOUBT_IS_DONE, 10000);
	lease_world_find(run, REEF_MUTANT_LEASE_NO_MARGIN, 10000);
	run.fates = FATE_PAUSE;
	lease_world_find(run, REEF_MUTANT_LEASE_LATE_RENEWAL, 10000);
	lease_world_find(run, REEF_MUTANT_LEASE_LATE_COUNT, 10000);
	lease_world_find(run, REEF_MUTANT_LEASE_OLD_SIGHT, 10000);
	try_quiet = true;
	for (seed = seeds_first(); seeds_has(seed, 50) && !found; seed++)
		found = run_turns(seed, REEF_MUTANT_LEASE_ENLIST_LATE) != 0;
	assert_true(found);
	{
		struct pool pool = {.ttl_ns = 2 * SECOND};

		reef_mutate(REEF_MUTANT_LEASE_NO_FLOOR);
		pool_start(&pool, 1);
		pool_add(&pool, wraps);
		assert_int_not_equal(pool_end(&pool), 0);
		reef_mutate(REEF_MUTANT_NONE);
	}
	try_quiet = false;
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lease_taken_renewed_given),
		cmocka_unit_test(lease_not_renewed_lapses),
		cmocka_unit_test(lease_dropped_halfway_is_made_anew),
		cmocka_unit_test(lease_lost_is_not_held),
		cmocka_unit_test(lease_given_wakes_who_waits),
		cmocka_unit_test(lease_more_wait_than_have_places),
		cmocka_unit_test(lease_canceled_does_not_wait),
		cmocka_unit_test(lease_terms_go_on_beyond_their_bits),
		cmocka_unit_test(lease_costs_what_it_says),
		cmocka_unit_test(lease_threads_take_turns),
		cmocka_unit_test(lease_of_drifting_clocks_has_one_holder),
		cmocka_unit_test(lease_in_chaos_has_one_holder),
#if !SANITIZED
		cmocka_unit_test(lease_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
