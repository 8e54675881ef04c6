/* test_lock.c - locks in a simulated pool. */
#include "fixture/lock_world.h"
#include "fixture/seeds.h"

static const char *const kinds[] = {"shift", "spin", "mcs", "rw"};

static void compete(enum reef_lock_kind kind, uint32_t readers,
		    uint32_t lose_link_ppm, uint64_t timeout_ns)
{
	uint64_t seed, longest_ns = 0, taken = 0, timeouts = 0;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct contest contest = {
			.options = {.kind = kind,
				    .waiters_max = seed % 3 ? 0 : 2},
			.rivals = 4,
			.rounds = 20,
			.readers = readers,
			.timeout_ns = timeout_ns,
		};

		assert_int_equal(contest_run(&contest, seed, 3, lose_link_ppm),
				 0);
		taken += contest.taken;
		timeouts += contest.timeouts;
		if (contest.longest_ns > longest_ns)
			longest_ns = contest.longest_ns;
		assert_int_equal(contest.inherited, 0);
		if (!readers && !timeout_ns)
			assert_int_equal(contest.taken, 240);
	}
	print_message("%s: %llu taken, %llu timeouts, longest wait %llu us\n",
		      kinds[kind], (unsigned long long)taken,
		      (unsigned long long)timeouts,
		      (unsigned long long)longest_ns / 1000);
}

static void lock_writers_compete_and_exclude_each_other(void **state)
{
	compete(REEF_LOCK_SPIN, 0, 0, 0);
	compete(REEF_LOCK_MCS, 0, 0, 0);
	compete(REEF_LOCK_RW, 0, 0, 0);
	compete(REEF_LOCK_SHIFT, 0, 0, 0);
}

static void lock_readers_and_writers_exclude_each_other(void **state)
{
	compete(REEF_LOCK_RW, 70, 0, 0);
	compete(REEF_LOCK_SHIFT, 70, 0, 0);
}

static void lock_lost_links_change_nothing(void **state)
{
	compete(REEF_LOCK_SPIN, 0, 2000, 0);
	compete(REEF_LOCK_MCS, 0, 2000, 0);
	compete(REEF_LOCK_RW, 50, 2000, 0);
	compete(REEF_LOCK_SHIFT, 50, 2000, 0);
}

static void lock_timeouts_race_with_grants(void **state)
{
	compete(REEF_LOCK_SPIN, 0, 0, 500000);
	compete(REEF_LOCK_MCS, 0, 0, 500000);
	compete(REEF_LOCK_RW, 50, 0, 500000);
	compete(REEF_LOCK_SHIFT, 50, 0, 500000);
}

/* --- deaths --- */

static bool is_end(int rc)
{
	return rc == -REEF_EHOSTDEAD || rc == -REEF_EFENCED;
}

static int mortal_script(struct member *member)
{
	int rc = contest_script(member);

	return is_end(rc) ? 0 : rc;
}

/* What befalls members 1 and 2: kills, pauses past the TTL, partitions. */
static int fate_script(struct member *member)
{
	struct pool *pool = member->pool;
	const struct contest *contest =
		(struct contest *)(uintptr_t)pool->note[0];
	struct reef_random random;
	uint32_t i, round;

	reef_random_init(&random, pool->seed);
	for (round = 0; round < 2; round++) {
		uint64_t when =
			contest->taken + 1 + reef_random_below(&random, 30);

		while (contest->taken < when && pool->members[2].result == 1)
			TRY(reef_sleep(20000));
		for (i = 0; i < 2; i++) {
			struct reef_sim_host *host = pool->members[i].host;
			uint64_t length_ns =
				reef_random_below(&random, 2 * TTL);

			switch (reef_random_below(&random, 4)) {
			case 0:
				reef_sim_host_kill(host);
				break;
			case 1:
				reef_sim_host_pause(host);
				TRY(reef_sleep(length_ns));
				reef_sim_host_resume(host);
				break;
			case 2:
				reef_sim_partition(host, pool->lenders[0].host,
						   true);
				reef_sim_partition(host, pool->lenders[1].host,
						   true);
				reef_sim_partition(host, pool->host, true);
				TRY(reef_sleep(length_ns));
				reef_sim_partition(host, pool->lenders[0].host,
						   false);
				reef_sim_partition(host, pool->lenders[1].host,
						   false);
				reef_sim_partition(host, pool->host, false);
				break;
			default:
				reef_sim_partition(host, pool->members[2].host,
						   true);
				TRY(reef_sleep(length_ns));
				reef_sim_partition(host, pool->members[2].host,
						   false);
			}
		}
	}
	return 0;
}

static void die(enum reef_lock_kind kind, uint32_t readers, uint64_t timeout_ns)
{
	uint64_t seed, longest_ns = 0, inherited = 0, taken = 0;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct contest contest = {
			.options = {.kind = kind,
				    .waiters_max = seed % 3 ? 0 : 2},
			.rivals = 4,
			.rounds = 20,
			.readers = readers,
			.timeout_ns = timeout_ns,
			.deaths = 1,
		};
		struct pool pool = {.note = {(uintptr_t)&contest}};

		pool_start(&pool, seed);
		pool_add(&pool, mortal_script);
		pool_add(&pool, mortal_script);
		pool_add(&pool, contest_script);
		pool_add(&pool, fate_script);
		pool_finish(&pool);
		taken += contest.taken;
		inherited += contest.inherited;
		if (contest.longest_ns > longest_ns)
			longest_ns = contest.longest_ns;
	}
	print_message("%s: %llu taken, %llu inherited, longest wait %llu us\n",
		      kinds[kind], (unsigned long long)taken,
		      (unsigned long long)inherited,
		      (unsigned long long)longest_ns / 1000);
}

static void lock_dead_holders_are_inherited_from(void **state)
{
	die(REEF_LOCK_SPIN, 0, 0);
	die(REEF_LOCK_MCS, 0, 0);
	die(REEF_LOCK_RW, 0, 0);
	die(REEF_LOCK_SHIFT, 0, 0);
}

static void lock_dead_readers_are_not_waited_for(void **state)
{
	die(REEF_LOCK_RW, 50, 0);
	die(REEF_LOCK_SHIFT, 50, 0);
}

static void lock_deaths_among_timeouts(void **state)
{
	die(REEF_LOCK_MCS, 0, 500000);
	die(REEF_LOCK_SHIFT, 30, 500000);
}

/* --- its node dies --- */

/* Who holds it is told so, and it is not dropped before everybody could know.
 */
static int loses_it(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_lock_info info;
	struct reef_space *space;
	struct reef_lock *lock;
	uint64_t began_ns;
	uint32_t i;

	TRY(member_space(member, &space));
	TRY(reef_lock_open(space, "x", NULL, &lock));
	TRY(reef_lock_take(lock, REEF_LOCK_EXCLUSIVE, 0));
	for (i = 0; i < NODES; i++) {
		reef_sim_host_kill(pool->lenders[i].host);
		TRY(reef_sim_host_restart(pool->lenders[i].host, pool_node_main,
					  &pool->lenders[i]));
	}
	WANT_RC(reef_lock_look(lock, &info), -REEF_ELOST);
	began_ns = reef_now_ns();
	TRY(reef_lock_drop(space, "x"));
	WANT(reef_now_ns() - began_ns >= 6 * SECOND);
	WANT_RC(reef_lock_give(lock), -REEF_ELOST);
	reef_lock_close(lock);
	return 0;
}

static void lock_lost_is_dropped_after_a_wait(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, loses_it);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lock_writers_compete_and_exclude_each_other),
		cmocka_unit_test(lock_readers_and_writers_exclude_each_other),
		cmocka_unit_test(lock_lost_links_change_nothing),
		cmocka_unit_test(lock_lost_is_dropped_after_a_wait),
		cmocka_unit_test(lock_timeouts_race_with_grants),
		cmocka_unit_test(lock_dead_holders_are_inherited_from),
		cmocka_unit_test(lock_dead_readers_are_not_waited_for),
		cmocka_unit_test(lock_deaths_among_timeouts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
