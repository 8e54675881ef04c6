/* test_barrier_sim.c - barriers while members come and go, links fall, the
 * broker restarts, and one host is killed or stopped at any batch of its own;
 * all of it again with two copies of the memory, of which one goes silent.
 *
 * What must hold: nobody passes a round before all came who take part in it and
 * are not dead; all who live get to the end; who is told of a death is told of
 * the one that happened, and once. The mutants break it, and are found. */
#include "base/mutant.h"
#include "fixture/barrier_world.h"
#include "fixture/seeds.h"
#include "pool/broker/internal.h"
#include "wire/states.h"

#include <errno.h>
#include <stdlib.h>

#define SEEDS 150
#define COPIES_SEEDS 150
#define DEATHS 200
#define SEEDS_SOAK 20000
#define MUTANT_SEEDS 1500 /* at most, until it is found */

static struct reef_random *chance(struct guest *guest)
{
	return reef_sim_host_random(guest->member->host);
}

/* --- what guests do --- */

static int guest_pause(struct guest *guest)
{
	static const uint64_t most[] = {1, 20000, 500000, 3000000};

	return reef_sleep(reef_random_below(
		chance(guest), most[reef_random_below(chance(guest), 4)]));
}

/* Leave, and come back. */
static int go_and_come(struct guest *guest)
{
	int rc;

	guest->came = guest->last = guest->passed + 1;
	do
		rc = reef_barrier_leave(guest->barrier,
					reef_random_chance(chance(guest), 1, 2)
						? REEF_FOREVER
						: MILLISECOND);
	while (rc == -ETIMEDOUT || rc == -REEF_EMEMBER);
	if (rc)
		return rc;
	WANT_RC(reef_barrier_wait(guest->barrier, 0, NULL), -EPERM);
	guest->first = 0;
	reef_barrier_close(guest->barrier);
	guest->barrier = NULL;
	rc = guest_pause(guest);
	return rc ? rc : guest_open(guest);
}

static int goes_on(struct guest *guest)
{
	struct party *party = guest->party;
	static const uint64_t timeouts[] = {REEF_FOREVER, REEF_FOREVER, 0,
					    MILLISECOND};
	int rc = 0;

	while (!rc && guest->passed < party->target && !party->wrong[0]) {
		rc = guest_pause(guest);
		if (!rc)
			rc = guest_meet(
				guest,
				timeouts[reef_random_below(chance(guest), 4)]);
		if (!rc && party->target > guest->passed + 2 &&
		    reef_random_chance(chance(guest), 1, 6))
			rc = go_and_come(guest);
	}
	/* Its place is taken off the list when it is closed. */
	guest->last = guest->passed;
	return rc;
}

static bool is_over(const struct party *party)
{
	uint32_t i;

	for (i = 0; i < party->count; i++)
		if (party->guests[i].result == 1 && !party->guests[i].excused)
			return false;
	return true;
}

/* True if there is memory, and all of it has two copies. */
static bool is_whole(const struct pool *pool)
{
	const struct reef_state_extent *extents;
	size_t count;

	if (!pool->broker)
		return false;
	extents = reef_state_extents(pool->broker->state, &count);
	for (size_t i = 0; i < count; i++)
		if (extents[i].state != REEF_EXTENT_LIVE || !extents[i].twin ||
		    !extents[i].made)
			return false;
	return count > 0;
}

/* A node loses its power: it answers nobody, and resets no connection. */
static void silence_node(struct pool *pool)
{
	struct reef_sim_host *host = pool->lenders[pool->seed % NODES].host;

	reef_sim_partition(pool->host, host, true);
	for (uint32_t i = 0; i < pool->count; i++)
		reef_sim_partition(pool->members[i].host, host, true);
}

/* Resumes who was stopped, once it is fenced, and restarts the broker. */
static int fate(struct member *member)
{
	struct party *party = (struct party *)member->pool;
	struct reef_random *random = reef_sim_host_random(member->host);
	bool restarts = party->pool.seed % 4 == 3;
	bool silences = party->pool.copies > 1;

	while (!is_over(party) && !party->wrong[0]) {
		TRY(reef_sleep(5 * MILLISECOND));
		if (silences && is_whole(&party->pool) &&
		    reef_random_chance(random, 1, 4)) {
			silences = false;
			silence_node(&party->pool);
		}
		if (restarts && reef_random_chance(random, 1, 8)) {
			restarts = false;
			reef_sim_host_kill(party->pool.host);
			party->pool.broker = NULL;
			TRY(reef_sleep(
				reef_random_below(random, 30 * MILLISECOND)));
			TRY(reef_sim_host_restart(party->pool.host,
						  pool_broker_main,
						  &party->pool));
		}
		if (party->struck && party->strike_pauses && !party->resumed) {
			TRY(reef_sleep(
				party->stopped_ns +
				reef_random_below(random,
						  4 * party->pool.ttl_ns)));
			party->resumed = true;
			reef_sim_host_resume(
				party->pool.members[party->hosts - 1].host);
		}
	}
	if (party->struck && party->strike_pauses && !party->resumed)
		reef_sim_host_resume(
			party->pool.members[party->hosts - 1].host);
	party->resumed = true;
	return 0;
}

static void check_told(struct party *party)
{
	uint32_t i, j;

	for (i = 0; i < party->count; i++) {
		const struct guest *guest = &party->guests[i];

		if (guest->excused)
			continue;
		for (j = 0; j < guest->told; j++)
			if (!party->struck ||
			    guest->told_sessions[j] != party->struck_session)
				party_wrong(party, "guest %u: %08x is not dead",
					    i, guest->told_sessions[j]);
		if (guest->told > party->count / party->hosts)
			party_wrong(party, "guest %u was told %u times", i,
				    guest->told);
	}
}

static void tell(const struct party *party, int rc)
{
	uint32_t i;

	print_message("%s; target %llu, strike %llu%s%s: %d\n",
		      reef_error_name(rc), (unsigned long long)party->target,
		      (unsigned long long)party->strike_at,
		      party->strike_pauses ? " pauses" : "",
		      party->strike_before ? " before" : "", party->struck);
	for (i = 0; i < party->count; i++)
		print_message("guest %u: came %llu passed %llu last %lld "
			      "told %u result %d%s\n",
			      i, (unsigned long long)party->guests[i].came,
			      (unsigned long long)party->guests[i].passed,
			      (long long)party->guests[i].last,
			      party->guests[i].told, party->guests[i].result,
			      party->guests[i].excused ? " excused" : "");
}

static int one_seed(uint64_t seed, enum reef_mutant mutant, uint8_t copies)
{
	struct party *party = calloc(1, sizeof(*party));
	struct reef_random random;
	int rc;

	reef_random_init(&random, seed);
	party->count = party->hosts =
		(uint32_t)reef_random_between(&random, 1, 5);
	/* Some have two each, of one session. */
	if (seed % 5 == 0)
		party->count *= 2;
	party->needed = seed % 3 ? party->count : 0;
	party->members_max = 16;
	party->target = 5 + reef_random_below(&random, 10);
	party->pool.ttl_ns = 60 * MILLISECOND;
	party->pool.node_ttl_ns = 2 * SECOND;
	if (copies > 1) {
		party->pool.copies = copies;
		party->pool.witnesses = 3;
		party->pool.node_ttl_ns = 200 * MILLISECOND;
	}
	if (seed % 3 == 1) {
		party->pool.lose_link_ppm = 8000;
		/* A link that falls as the broker comes back takes a second to
		 * be made anew: nobody is to be fenced for that. */
		if (seed % 4 == 3)
			party->pool.ttl_ns = 5 * SECOND;
	}
	if (seed % 2 && party->count > 1) {
		party->strike_at = 1 + reef_random_below(&random, 250);
		party->strike_pauses = reef_random_chance(&random, 1, 3);
		party->strike_before = reef_random_chance(&random, 1, 2);
		/* It may die before it joins. */
		if (party->needed)
			party->needed -= party->count / party->hosts;
	}
	reef_mutate(mutant);
	party->script = goes_on;
	party->fate = fate;
	rc = party_run(party, seed);
	reef_mutate(REEF_MUTANT_NONE);
	if (rc && !try_quiet)
		tell(party, rc);
	check_told(party);
	if (party->wrong[0] && !rc) {
		if (!try_quiet)
			print_message("seed %llu: %s\n",
				      (unsigned long long)seed, party->wrong);
		rc = -EXDEV;
	}
	free(party);
	return rc;
}

static void barrier_whatever_happens_rounds_hold(void **state)
{
	uint64_t seed, count = seeds_of(SEEDS, SEEDS_SOAK);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		if (one_seed(seed, REEF_MUTANT_NONE, 1)) {
			print_message("seed %llu\n", (unsigned long long)seed);
			fail();
		}
}

static void barrier_with_copies_outlives_a_silent_node(void **state)
{
	uint64_t seed, count = seeds_of(COPIES_SEEDS, SEEDS_SOAK / 4);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		if (one_seed(seed, REEF_MUTANT_NONE, 2)) {
			print_message("seed %llu\n", (unsigned long long)seed);
			fail();
		}
}

/* --- a death is told of --- */

/* Rounds until everybody knows, and two more. */
static int is_told(struct guest *guest)
{
	struct party *party = guest->party;
	uint32_t knowing = 0, i;
	int rc = 0;

	while (!rc && guest->passed < party->target && !party->wrong[0]) {
		rc = guest_pause(guest);
		if (!rc)
			rc = guest_meet(guest, REEF_FOREVER);
		for (knowing = i = 0; i < party->count; i++)
			knowing += party->guests[i].told != 0;
		if (knowing == party->count - 1 && party->target == UINT64_MAX)
			party->target = guest->passed + 3;
	}
	return rc;
}

static void death(uint64_t seed, bool pauses)
{
	struct party *party = calloc(1, sizeof(*party));
	uint32_t i;

	party->count = party->hosts = 2 + (uint32_t)(seed % 4);
	party->needed = party->count;
	party->members_max = 8;
	party->target = UINT64_MAX;
	party->pool.ttl_ns = 60 * MILLISECOND;
	party->strike_at = 100 + seed % 200;
	party->strike_pauses = pauses;
	party->stopped_ns = 10 * party->pool.ttl_ns;
	party->strike_before = seed % 2;
	party->script = is_told;
	party->fate = fate;
	assert_int_equal(party_run(party, seed), 0);
	assert_true(party->struck);
	for (i = 0; i < party->count; i++) {
		if (party->guests[i].excused)
			continue;
		assert_int_equal(party->guests[i].told, 1);
		assert_int_equal(party->guests[i].told_sessions[0],
				 party->struck_session);
	}
	free(party);
}

static void barrier_member_killed_others_are_told_once(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, seeds_of(DEATHS, 4000));
	     seed++)
		death(seed, false);
}

static void barrier_member_stopped_others_are_told_once(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, seeds_of(DEATHS, 4000));
	     seed++)
		death(seed, true);
}

/* --- mutants --- */

#if !SANITIZED
static void find(enum reef_mutant mutant, uint8_t copies)
{
	uint64_t seed;
	bool found = false;

	try_quiet = true;
	for (seed = seeds_first(); seeds_has(seed, MUTANT_SEEDS) && !found;
	     seed++)
		found = one_seed(seed, mutant, copies) != 0;
	try_quiet = false;
	print_message("mutant %s: %s, seed %llu\n", reef_mutant_name(mutant),
		      found ? "found" : "NOT FOUND",
		      (unsigned long long)seed - 1);
	assert_true(found);
}

#define MUTANT(name, number)                                                   \
	static void barrier_mutant_##name##_is_found(void **state)             \
	{                                                                      \
		find(number, 1);                                               \
	}

MUTANT(no_last_step, REEF_MUTANT_BARRIER_NO_LAST_STEP)
MUTANT(old_round, REEF_MUTANT_BARRIER_OLD_ROUND)
MUTANT(any_group, REEF_MUTANT_BARRIER_ANY_GROUP)
MUTANT(expired, REEF_MUTANT_BARRIER_EXPIRED)
MUTANT(joiner_begins, REEF_MUTANT_BARRIER_JOINER_BEGINS)
MUTANT(blind_begin, REEF_MUTANT_BARRIER_BLIND_BEGIN)
MUTANT(no_help, REEF_MUTANT_BARRIER_NO_HELP)
MUTANT(no_mark, REEF_MUTANT_BARRIER_NO_MARK)

static void barrier_mutant_gone_untold_is_found(void **state)
{
	find(REEF_MUTANT_BROKER_GONE_UNTOLD, 2);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(barrier_member_killed_others_are_told_once),
		cmocka_unit_test(barrier_member_stopped_others_are_told_once),
#if !SANITIZED
		cmocka_unit_test(barrier_mutant_no_last_step_is_found),
		cmocka_unit_test(barrier_mutant_old_round_is_found),
		cmocka_unit_test(barrier_mutant_any_group_is_found),
		cmocka_unit_test(barrier_mutant_expired_is_found),
		cmocka_unit_test(barrier_mutant_joiner_begins_is_found),
		cmocka_unit_test(barrier_mutant_blind_begin_is_found),
		cmocka_unit_test(barrier_mutant_no_help_is_found),
		cmocka_unit_test(barrier_mutant_no_mark_is_found),
		cmocka_unit_test(barrier_mutant_gone_untold_is_found),
#endif
		cmocka_unit_test(barrier_whatever_happens_rounds_hold),
		cmocka_unit_test(barrier_with_copies_outlives_a_silent_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
