/* test_locks.c - what locks do when many want them, by the cost model
 * (bench/locks.h). The figures are of virtual time and exact; the margins are
 * wide because only the shape is promised. */
#include "bench/locks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* A few takes are enough for the shape. */
static struct locks_result run(enum reef_lock_kind kind, uint32_t clients,
			       uint32_t readers_percent)
{
	const struct locks_load load = {
		.kind = kind,
		.clients = clients,
		.readers_percent = readers_percent,
		.seed = 1,
	};
	struct locks_result result = {0};

	assert_int_equal(locks_run(&load, &result), 0);
	return result;
}

static struct locks_result run_bare(uint32_t clients)
{
	const struct locks_load load = {
		.bare = true,
		.clients = clients,
		.seed = 1,
	};
	struct locks_result result = {0};

	assert_int_equal(locks_run(&load, &result), 0);
	return result;
}

static void assert_between(double low, double value, double high)
{
	if (!(value >= low && value <= high))
		fail_msg("%g is not between %g and %g", value, low, high);
}

/* Two round trips and the write between them: three times 2 us. */
static void locks_alone_cost_one_atomic_each_way(void **state)
{
	static const enum reef_lock_kind kinds[] = {
		REEF_LOCK_SPIN, REEF_LOCK_MCS, REEF_LOCK_RW, REEF_LOCK_SHIFT};

	for (int i = 0; i < 4; i++) {
		struct locks_result result = run(kinds[i], 1, 0);

		assert_between(1.99, result.atomics, 2.01);
		assert_between(0, result.messages, 0.01);
		assert_between(150e3, result.takes_per_s, 170e3);
	}
}

static void locks_bare_spinning_collapses(void **state)
{
	double few = run_bare(8).takes_per_s;

	assert_between(0, run_bare(64).takes_per_s, 0.4 * few);
}

static void locks_spin_with_pauses_does_not_but_is_unfair(void **state)
{
	struct locks_result few = run(REEF_LOCK_SPIN, 8, 0);
	struct locks_result many = run(REEF_LOCK_SPIN, 64, 0);

	assert_between(0.8 * few.takes_per_s, many.takes_per_s,
		       2 * few.takes_per_s);
	assert_true(many.p99_ns > 4 * run(REEF_LOCK_MCS, 64, 0).p99_ns);
}

/* The memory node does as much for each take, however many wait; and each waits
 * for its turn, no more. */
static void locks_queue_does_not_collapse(void **state)
{
	struct locks_result few = run(REEF_LOCK_MCS, 8, 0);
	struct locks_result many = run(REEF_LOCK_MCS, 64, 0);

	assert_between(0.9 * few.takes_per_s, many.takes_per_s,
		       1.1 * few.takes_per_s);
	assert_between(0.9 * few.atomics, many.atomics, 1.1 * few.atomics);
	assert_between(0.9, many.messages, 1.1);
	assert_between(0.9 * many.mean_ns, many.p99_ns, 1.1 * many.mean_ns);
}

static void locks_shift_does_not_collapse(void **state)
{
	struct locks_result few = run(REEF_LOCK_SHIFT, 8, 0);
	struct locks_result many = run(REEF_LOCK_SHIFT, 64, 0);

	assert_between(0.8 * few.takes_per_s, many.takes_per_s,
		       1.2 * few.takes_per_s);
	assert_between(0, many.atomics, 1.3 * few.atomics);
}

static void locks_readers_share(void **state)
{
	double writers = run(REEF_LOCK_RW, 16, 0).takes_per_s;

	assert_true(run(REEF_LOCK_RW, 16, 90).takes_per_s > 2 * writers);
}

static void locks_popular_ones_decide(void **state)
{
	struct locks_load load = {
		.kind = REEF_LOCK_MCS,
		.clients = 32,
		.locks = 100,
		.seed = 1,
	};
	struct locks_result even, uneven;

	assert_int_equal(locks_run(&load, &even), 0);
	load.skew = 0.99;
	assert_int_equal(locks_run(&load, &uneven), 0);
	assert_true(even.takes_per_s > 1.5 * uneven.takes_per_s);
	assert_true(uneven.takes_per_s >
		    2 * run(REEF_LOCK_MCS, 32, 0).takes_per_s);
}

static void locks_same_load_gives_the_same(void **state)
{
	struct locks_result one = run(REEF_LOCK_SHIFT, 8, 50);
	struct locks_result other = run(REEF_LOCK_SHIFT, 8, 50);

	assert_memory_equal(&one, &other, sizeof(one));
}

static void locks_too_many_clients_are_refused(void **state)
{
	const struct locks_load load = {.clients = 100000};
	struct locks_result result;

	assert_int_equal(locks_run(&load, &result), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(locks_alone_cost_one_atomic_each_way),
		cmocka_unit_test(locks_bare_spinning_collapses),
		cmocka_unit_test(locks_spin_with_pauses_does_not_but_is_unfair),
		cmocka_unit_test(locks_queue_does_not_collapse),
		cmocka_unit_test(locks_shift_does_not_collapse),
		cmocka_unit_test(locks_readers_share),
		cmocka_unit_test(locks_popular_ones_decide),
		cmocka_unit_test(locks_same_load_gives_the_same),
		cmocka_unit_test(locks_too_many_clients_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
