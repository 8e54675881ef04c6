/* test_election.c - never two leaders as seen through the fence, and a new one
 * within two TTLs of the death of the old one.
 *
 * Leaders change data that nothing else protects: eight words, one after the
 * other, each to the next number, with pauses; and read each before. So what
 * a leader finds is either whole or cut off at one place (its predecessor died
 * there), and while it leads nothing changes but by itself. */
#include "base/mutant.h"
#include "fixture/lease_world.h"
#include "fixture/seeds.h"

#include <errno.h>
#include <string.h>

#define WORDS 8

static void run(int (*first)(struct member *member),
		int (*second)(struct member *member))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, first);
		if (second)
			pool_add(&pool, second);
		pool_finish(&pool);
	}
}

/* --- plain ways --- */

static int stands(struct member *member)
{
	struct reef_election *election, *other;
	struct reef_lease_info info, now;
	struct reef_space *space;
	char text[65];
	uint64_t first, second;

	TRY(member_space(member, &space));
	memset(text, 'x', 64);
	text[64] = 0;
	WANT_RC(reef_election_open(space, "e", 0, text, &election), -EINVAL);
	WANT_RC(reef_election_open(space, "e", REEF_SYNC_EXISTING, NULL,
				   &election),
		-ENOENT);
	text[63] = 0;
	TRY(reef_election_open(space, "e", 0, text, &election));
	TRY(reef_election_open(space, "e", 0, NULL, &other));
	WANT_RC(reef_election_check(election), -EPERM);
	WANT_RC(reef_election_resign(election), -EPERM);
	TRY(reef_election_look(other, &info));
	WANT(!info.session && !info.holder[0]);
	TRY(reef_election_win(election, 0, &first));
	TRY(reef_election_check(election));
	WANT_RC(reef_election_check(other), -EPERM);
	WANT_RC(reef_election_win(election, 0, NULL), -EDEADLK);
	WANT_RC(reef_election_win(other, 0, NULL), -EBUSY);
	WANT_RC(reef_election_win(other, 10 * MILLISECOND, NULL), -ETIMEDOUT);
	WANT_RC(reef_election_drop(space, "e"), -EBUSY);
	TRY(reef_election_watch(other, &info, 0, &now));
	WANT(now.session == reef_session(member->reef));
	WANT(!strcmp(now.holder, text) && now.token == first);
	WANT_RC(reef_election_watch(other, &now, 10 * MILLISECOND, &info),
		-ETIMEDOUT);
	reef_election_cancel(other);
	WANT_RC(reef_election_watch(other, &now, REEF_FOREVER, &info),
		-ECANCELED);
	TRY(reef_election_resign(election));
	WANT_RC(reef_election_check(election), -EPERM);
	TRY(reef_election_watch(other, &now, 0, &info));
	WANT(!info.session);
	TRY(reef_election_win(other, 0, &second));
	WANT(second > first);
	reef_election_close(other);
	reef_election_close(election);
	TRY(reef_election_drop(space, "e"));
	WANT_RC(reef_election_open(space, "e", REEF_SYNC_EXISTING, NULL,
				   &election),
		-ENOENT);
	return 0;
}

static void election_won_and_resigned(void **state)
{
	run(stands, NULL);
}

/* Leads again and again; another watches. */
static int lead_until_killed(struct member *member,
			     struct reef_election *election)
{
	uint32_t i;

	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	for (i = 0; i < 5; i++) {
		TRY(reef_election_win(election, REEF_FOREVER,
				      &member->pool->note[1]));
		TRY(reef_sleep(20 * MILLISECOND));
		TRY(reef_election_resign(election));
		member->pool->note[2] = pool_now(member->pool);
		TRY(reef_sleep(20 * MILLISECOND));
	}
	TRY(reef_election_win(election, REEF_FOREVER, NULL));
	member->pool->note[3] = 1;
	return reef_sleep(REEF_FOREVER); /* is killed */
}

static int leads_in_turn(struct member *member)
{
	struct reef_election *election;
	struct reef_space *space;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_election_open(space, "e", 0, "somebody", &election));
	rc = lead_until_killed(member, election);
	reef_election_close(election);
	return rc;
}

static int watches(struct member *member)
{
	struct reef_lease_info info = {0}, now;
	struct reef_election *election;
	struct reef_space *space;
	uint32_t i;

	TRY(member_space(member, &space));
	TRY(reef_election_open(space, "e", 0, NULL, &election));
	member->pool->note[0] = 1;
	for (i = 0; i < 5; i++) {
		TRY(reef_election_watch(election, &info, REEF_FOREVER, &now));
		WANT(now.session && !strcmp(now.holder, "somebody"));
		WANT(now.token > info.token);
		info = now;
		TRY(reef_election_watch(election, &info, REEF_FOREVER, &now));
		WANT(!now.session && now.token == info.token);
		/* Told, not found. */
		WANT(pool_now(member->pool) - member->pool->note[2] <
		     3 * MILLISECOND);
		info = now;
	}
	TRY(reef_election_watch(election, &info, REEF_FOREVER, &now));
	while (!member->pool->note[3])
		TRY(reef_sleep(MILLISECOND));
	reef_sim_host_kill(member->pool->members[0].host);
	info = now;
	TRY(reef_election_watch(election, &info, 2 * TTL, &now));
	WANT(!now.session);
	TRY(reef_election_look(election, &info));
	WANT(!info.session);
	WANT_RC(reef_election_watch(election, &now, TTL, &info), -ETIMEDOUT);
	/* A dead one's can be dropped. */
	TRY(reef_election_drop(space, "e"));
	WANT_RC(reef_election_look(election, &info), -ENOENT);
	reef_election_close(election);
	return 0;
}

static void election_watched_is_told_of_each_leader(void **state)
{
	run(leads_in_turn, watches);
}

/* --- a leader that stood still --- */

static int stands_still(struct member *member)
{
	struct reef_election *election;
	uint64_t address, value = 1;
	struct reef_space *space;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 64, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	TRY(reef_keep(space, address));
	TRY(reef_election_open(space, "e", 0, "old", &election));
	TRY(reef_election_win(election, 0, NULL));
	member->pool->note[1] = address;
	member->pool->note[0] = 1;
	/* Here it is stopped for three TTLs. */
	while (!member->pool->note[2])
		TRY(reef_sleep(100000));
	value = 666;
	/* The first may have been posted before it knew. */
	rc = reef_write(member->reef, address, &value, 8);
	WANT(rc == -REEF_EFENCED || rc == -REEF_EINDOUBT);
	WANT_RC(reef_write(member->reef, address, &value, 8), -REEF_EFENCED);
	WANT_RC(reef_cas(member->reef, address, 2, 666, NULL), -REEF_EFENCED);
	WANT_RC(reef_election_check(election), -EPERM);
	WANT_RC(reef_election_resign(election), -REEF_EFENCED);
	WANT_RC(reef_election_win(election, 0, NULL), -REEF_EFENCED);
	reef_election_close(election);
	member->pool->note[0] = 2;
	return 0;
}

static int takes_over(struct member *member)
{
	struct reef_sim_host *old = member->pool->members[0].host;
	struct reef_election *election;
	struct reef_lease_info info;
	struct reef_space *space;
	uint64_t value, began_ns;

	TRY(member_space(member, &space));
	TRY(reef_election_open(space, "e", 0, "new", &election));
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	reef_sim_host_pause(old);
	began_ns = pool_now(member->pool);
	TRY(reef_election_win(election, REEF_FOREVER, NULL));
	WANT(pool_now(member->pool) - began_ns <= 2 * TTL);
	value = 2;
	TRY(reef_write(member->reef, member->pool->note[1], &value, 8));
	TRY(reef_sleep(TTL));
	member->pool->note[2] = 1;
	reef_sim_host_resume(old);
	while (member->pool->note[0] == 1)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_read(member->reef, member->pool->note[1], &value, 8));
	WANT(value == 2);
	TRY(reef_election_look(election, &info));
	WANT(!strcmp(info.holder, "new"));
	TRY(reef_election_check(election));
	reef_election_close(election);
	return 0;
}

static void election_stopped_leader_changes_nothing(void **state)
{
	run(stands_still, takes_over);
}

/* --- its node dies --- */

static struct reef_election *old_election; /* of the first leader */

static int both_nodes_die(struct pool *pool)
{
	uint32_t i;

	for (i = 0; i < NODES; i++) {
		reef_sim_host_kill(pool->lenders[i].host);
		TRY(reef_sim_host_restart(pool->lenders[i].host, pool_node_main,
					  &pool->lenders[i]));
	}
	return 0;
}

/* The broker holds the nodes for dead, and members still reach them. */
static int both_nodes_cut_off(struct pool *pool)
{
	uint32_t i;

	for (i = 0; i < NODES; i++)
		reef_sim_partition(pool->host, pool->lenders[i].host, true);
	TRY(reef_sleep(SECOND));
	for (i = 0; i < NODES; i++)
		reef_sim_partition(pool->host, pool->lenders[i].host, false);
	return 0;
}

/* Leads, and does nothing but to ask whether it still does. */
static int leads_a_lost_one(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_election *election;
	struct reef_space *space;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_election_open(space, "e", 0, "old", &election));
	TRY(reef_election_win(election, 0, &pool->note[1]));
	old_election = election;
	pool->note[0] = 1;
	while (pool->note[0] < 2)
		TRY(reef_sleep(MILLISECOND));
	rc = reef_election_check(election);
	old_election = NULL;
	reef_election_close(election);
	WANT_RC(rc, -REEF_ELOST);
	return 0;
}

/* The leader hears from the broker again, after a while. */
static int hears_late(struct member *member)
{
	struct pool *pool = member->pool;

	while (!pool->note[3])
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(4 * TTL));
	reef_sim_partition(pool->host, pool->members[0].host, false);
	return 0;
}

/* note[2]: whether the nodes die, or are cut off. */
static int leads_anew(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_election *election;
	struct reef_space *space;
	uint64_t first, term;
	uint32_t i;
	int rc;

	TRY(member_space(member, &space));
	while (!pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	first = pool->note[1];
	TRY(reef_election_check(old_election));
	reef_sim_partition(pool->host, pool->members[0].host, true);
	pool->note[3] = 1;
	TRY(pool->note[2] ? both_nodes_cut_off(pool) : both_nodes_die(pool));
	/* -EBUSY: nobody knows yet that it is lost. */
	while ((rc = reef_election_drop(space, "e")) == -EBUSY)
		TRY(reef_sleep(MILLISECOND));
	TRY(rc);
	for (i = 0; i < 3; i++) {
		while ((rc = reef_election_open(space, "e", 0, "new",
						&election)) == -ENOSPC)
			TRY(reef_sleep(MILLISECOND));
		TRY(rc);
		TRY(reef_election_win(election, 0, &term));
		WANT_RC(reef_election_check(old_election), -REEF_ELOST);
		TRY(reef_election_check(election));
		WANT(term > first);
		first = term;
		reef_election_close(election);
		TRY(reef_election_drop(space, "e"));
	}
	pool->note[0] = 2;
	return 0;
}

static int run_lost(uint64_t seed)
{
	/* The leader's session outlasts the time in which it hears nothing. */
	struct pool pool = {
		.node_ttl_ns = TTL,
		.ttl_ns = 8 * TTL,
		.witnesses = WITNESSES_MAX,
	};

	pool.note[2] = seed % 2;
	pool_start(&pool, seed);
	pool_add(&pool, leads_a_lost_one);
	pool_add(&pool, leads_anew);
	pool_add(&pool, hears_late);
	return pool_end(&pool);
}

static void election_lost_has_one_leader_and_terms_that_grow(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++)
		assert_int_equal(run_lost(seed), 0);
}

/* --- a leader that dies at any moment --- */

static int dies(struct member *member)
{
	struct reef_election *election;
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(reef_election_open(space, "e", 0, "dies", &election));
	member->pool->note[0] = 1;
	for (;;) {
		int rc = reef_election_win(election, REEF_FOREVER, NULL);

		if (!rc)
			rc = reef_election_resign(election);
		if (rc) {
			reef_election_close(election);
			return rc;
		}
	}
}

/* note[4]: how many nanoseconds after its beginning. */
static int kills(struct member *member)
{
	uint64_t token, killed_ns, last = 0;
	struct reef_election *election;
	struct reef_space *space;
	int i;

	TRY(member_space(member, &space));
	TRY(reef_election_open(space, "e", 0, "lives", &election));
	while (!member->pool->note[0])
		TRY(reef_sleep(1000));
	TRY(reef_sleep(member->pool->note[4]));
	reef_sim_host_kill(member->pool->members[0].host);
	killed_ns = pool_now(member->pool);
	for (i = 0; i < 3; i++) {
		TRY(reef_election_win(election, REEF_FOREVER, &token));
		WANT(token > last);
		last = token;
		TRY(reef_election_check(election));
		TRY(reef_election_resign(election));
	}
	WANT(pool_now(member->pool) - killed_ns <= 2 * TTL);
	reef_election_close(election);
	return 0;
}

static void election_leader_dies_at_any_moment(void **state)
{
	uint32_t step, steps;

	steps = (uint32_t)seeds_of(400, 4000);
	for (step = 0; step < steps; step++) {
		struct pool pool = {0};

		/* A term takes 200 to 300 us. */
		pool.note[4] = step * (UINT64_C(1600000) / steps);
		pool_start(&pool, 1 + step % 7);
		pool_add(&pool, dies);
		pool_add(&pool, kills);
		pool_finish(&pool);
	}
}

/* --- everything at once --- */

static int put(struct claimant *actor, uint32_t i, uint64_t value)
{
	int rc;

	/* We lead: nobody else's can be between, so once more does no harm. */
	do {
		actor->is_busy = true;
		rc = reef_write(actor->member->reef, lease_truth.data + i * 8,
				&value, 8);
		actor->is_busy = false;
	} while (rc == -REEF_EINDOUBT);
	return rc;
}

static int get(struct claimant *actor, uint32_t i, uint64_t *value)
{
	return reef_read(actor->member->reef, lease_truth.data + i * 8, value,
			 8);
}

/* What the one before left; then all is `*value`. */
static int inherit(struct claimant *actor, uint64_t *value)
{
	uint64_t words[WORDS];
	uint32_t i;
	int rc = 0;

	for (i = 0; i < WORDS && !rc; i++)
		rc = get(actor, i, &words[i]);
	if (rc)
		return rc;
	for (i = 1; i < WORDS; i++)
		if (words[i] != words[i - 1] &&
		    !(words[i] + 1 == words[0] && words[i - 1] == words[0]))
			WRONG("found %llu after %llu",
			      (unsigned long long)words[i],
			      (unsigned long long)words[i - 1]);
	*value = words[0];
	for (i = 0; i < WORDS && !rc; i++)
		if (words[i] != *value)
			rc = put(actor, i, *value);
	return rc;
}

static int lead(struct claimant *actor)
{
	uint64_t value, word;
	uint32_t i, rounds = (uint32_t)claimant_below(actor, 10);
	int rc = inherit(actor, &value);

	for (; !rc && rounds; rounds--, value++)
		for (i = 0; !rc && i < WORDS; i++) {
			rc = get(actor, i, &word);
			if (rc)
				break;
			if (word != value)
				WRONG("%u leads, and another wrote %llu, not "
				      "%llu",
				      actor->member->number,
				      (unsigned long long)word,
				      (unsigned long long)value);
			rc = put(actor, i, value + 1);
			if (!rc && claimant_below(actor, 4) == 0)
				rc = reef_sleep(claimant_below(
					actor,
					actor->member->pool->ttl_ns / 32));
		}
	return rc;
}

static int make_data(struct claimant *actor)
{
	uint64_t zeroes[WORDS] = {0}, address;
	int rc;

	if (actor->member->number != 1) {
		while (!lease_truth.data && claimant_goes_on(actor))
			TRY(reef_sleep(MILLISECOND));
		return 0;
	}
	while ((rc = reef_alloc(actor->space, sizeof(zeroes), &address)) ==
	       -ENOSPC)
		TRY(reef_sleep(MILLISECOND));
	TRY(rc);
	do
		rc = reef_write(actor->member->reef, address, zeroes,
				sizeof(zeroes));
	while (rc == -REEF_EINDOUBT);
	TRY(rc);
	do
		rc = reef_keep(actor->space, address);
	while (rc == -REEF_EINDOUBT);
	if (rc != -EALREADY)
		TRY(rc);
	lease_truth.data = address;
	return 0;
}

static int term(struct claimant *actor)
{
	struct pool *pool = actor->member->pool;
	uint64_t token;
	int rc;

	rc = reef_election_win(actor->election,
			       claimant_below(actor, 4 * pool->ttl_ns), &token);
	if (rc)
		return rc;
	rc = claimant_took(actor, token);
	if (!rc && lease_truth.died_ns &&
	    pool_now(pool) - lease_truth.died_ns > 2 * TTL)
		WRONG("%llu ns after the death of the last",
		      (unsigned long long)(pool_now(pool) -
					   lease_truth.died_ns));
	lease_truth.died_ns = 0;
	if (!rc)
		rc = lead(actor);
	if (rc == -EXDEV)
		return rc;
	actor->holds = false;
	if (!rc && claimant_below(actor, 4)) {
		actor->is_busy = true;
		rc = reef_election_resign(actor->election);
		actor->is_busy = false;
		if (rc == -EPERM)
			WRONG("%u did not lead when it resigned",
			      actor->member->number);
	}
	return rc;
}

static int campaigns(struct member *member)
{
	struct claimant *actor = claimant_of(member);
	int rc = claimant_begin(actor);

	if (!rc)
		rc = make_data(actor);
	while (!rc && claimant_goes_on(actor)) {
		rc = term(actor);
		if (rc == -EDEADLK) {
			claimant_believes(actor);
			rc = lead(actor);
		}
		if (rc == -REEF_EFENCED)
			rc = claimant_rejoin(actor);
		else if (rc == -ETIMEDOUT || rc == -EBUSY ||
			 rc == -REEF_ENOLINK || rc == -REEF_EINDOUBT)
			rc = reef_sleep(claimant_below(actor, TTL / 8));
	}
	if (rc != -EXDEV && rc != -REEF_EHOSTDEAD && !claimant_goes_on(actor))
		rc = 0;
	claimant_close(actor);
	return rc;
}

/* Whom it sees is one that stood, with a whole text, and terms only grow. */
static int looks_on(struct member *member)
{
	struct claimant *actor = claimant_of(member);
	struct reef_lease_info info;
	char text[LEASE_TEXT];
	uint64_t token = 0;
	int rc = claimant_begin(actor);

	while (!rc && claimant_goes_on(actor)) {
		rc = reef_election_look(actor->election, &info);
		if (!rc && info.token < token)
			WRONG("term %llu seen after %llu",
			      (unsigned long long)info.token,
			      (unsigned long long)token);
		if (!rc && info.holder[0]) {
			token = info.token;
			claimant_text(info.session, text);
			if (strcmp(text, info.holder))
				WRONG("a torn text: %s", info.holder);
		}
		if (!rc)
			rc = reef_sleep(claimant_below(
				actor,
				lease_truth.fates ? MILLISECOND : 10000));
		if (rc == -REEF_EFENCED)
			rc = claimant_rejoin(actor);
		else if (rc == -REEF_ENOLINK || rc == -EBUSY)
			rc = 0;
	}
	if (rc != -EXDEV && rc != -REEF_EHOSTDEAD && !claimant_goes_on(actor))
		rc = 0;
	claimant_close(actor);
	return rc;
}

static const struct lease_world_run calm = {
	.members = 4,
	.lasts_ns = SECOND,
	.script = campaigns,
};

static struct lease_world_run chaos(enum fate fates)
{
	struct lease_world_run run = calm;

	run.fates = fates;
	return run;
}

#define ALL (FATE_PAUSE | FATE_KILL | FATE_CUT | FATE_BROKER | FATE_FENCE)

static struct lease_world_run storm(void)
{
	struct lease_world_run run = chaos(ALL);

	run.lose_link_ppm = 1000;
	run.other = looks_on;
	return run;
}

static void election_leaders_die_and_others_follow(void **state)
{
	lease_world_seeds(chaos(FATE_KILL), 200, 5000);
}

static void election_in_chaos_has_one_leader(void **state)
{
	lease_world_seeds(storm(), 150, 20000);
}

#if !SANITIZED
static void find_in_lost(enum reef_mutant mutant)
{
	bool found = false;
	uint64_t seed;

	try_quiet = true;
	reef_mutate(mutant);
	for (seed = 1; seed <= 4 && !found; seed++)
		found = run_lost(seed) != 0;
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	assert_true(found);
}

static void election_mutants_of_loss_are_found(void **state)
{
	find_in_lost(REEF_MUTANT_LEASE_LOST_IS_HELD);
	find_in_lost(REEF_MUTANT_LEASE_LOST_AT_ONCE);
	find_in_lost(REEF_MUTANT_LEASE_TERMS_ANEW);
}

static void election_mutants_are_found(void **state)
{
	struct lease_world_run run = calm;

	lease_world_find(chaos(FATE_FENCE), REEF_MUTANT_LEASE_EXPIRED, 300);
	lease_world_find(calm, REEF_MUTANT_LEASE_SAME_TERM, 50);
	lease_world_find(storm(), REEF_MUTANT_LEASE_DOUBT_IS_DONE, 3000);
	run.other = looks_on;
	lease_world_find(run, REEF_MUTANT_LEASE_NO_CHECKSUM, 1000);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(election_won_and_resigned),
		cmocka_unit_test(election_watched_is_told_of_each_leader),
		cmocka_unit_test(election_stopped_leader_changes_nothing),
		cmocka_unit_test(
			election_lost_has_one_leader_and_terms_that_grow),
		cmocka_unit_test(election_leader_dies_at_any_moment),
		cmocka_unit_test(election_leaders_die_and_others_follow),
		cmocka_unit_test(election_in_chaos_has_one_leader),
#if !SANITIZED
		cmocka_unit_test(election_mutants_of_loss_are_found),
		cmocka_unit_test(election_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
