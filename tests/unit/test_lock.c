/* test_lock.c - locks in a simulated pool. */
#include "lock_world.h"

static const char *const kinds[] = {"shift", "spin", "mcs", "rw"};

static void compete(enum reef_lock_kind kind, uint32_t readers,
		    uint32_t lose_link_ppm, uint64_t timeout_ns)
{
	uint64_t seed, longest_ns = 0, taken = 0, timeouts = 0;

	for (seed = pool_first_seed(); seed <= pool_last_seed(); seed++) {
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lock_writers_compete_and_exclude_each_other),
		cmocka_unit_test(lock_readers_and_writers_exclude_each_other),
		cmocka_unit_test(lock_lost_links_change_nothing),
		cmocka_unit_test(lock_timeouts_race_with_grants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
