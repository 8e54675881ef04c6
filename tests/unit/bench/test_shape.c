/* The cost model has the shape of published measurements. The figures are of
 * virtual time and exact; the margins are wide because only the shape is
 * promised. */
#include "bench/study.h"
#include "fixture/units.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Million operations per second. */
static double rate(const char *name, uint32_t line, uint64_t point)
{
	const struct study *study = study_find(name);
	struct shape_result result;

	assert_non_null(study);
	assert_int_equal(study_run(study, line, point, 1, &result), 0);
	return result.ops_per_s / 1e6;
}

static void assert_between(double low, double value, double high)
{
	if (!(value >= low && value <= high))
		fail_msg("%g is not between %g and %g", value, low, high);
}

static void shape_connections_outgrow_the_cache(void **state)
{
	double few = rate("connections", 0, 256);

	(void)state;
	assert_between(90, few, 130);
	assert_between(0.95 * few, rate("connections", 0, 2048), 1.05 * few);
	/* About half is left at 5,000 connections, a quarter at 16,000. */
	assert_between(0.35 * few, rate("connections", 0, 5120), 0.75 * few);
	assert_between(0.1 * few, rate("connections", 0, 16384), 0.4 * few);
}

static void shape_datagrams_do_not(void **state)
{
	double few = rate("connections", 1, 256);

	(void)state;
	assert_between(50, few, 110);
	assert_between(0.98 * few, rate("connections", 1, 16384), 1.02 * few);
}

static void shape_atomics_on_one_word_queue_up(void **state)
{
	(void)state;
	assert_between(2, rate("atomics", 2, 16), 5);
	assert_between(2, rate("atomics", 2, 512), 5);
	/* On different words they do not. */
	assert_between(30, rate("atomics", 1, 512), 110);
}

static void shape_reads_of_one_word_do_not(void **state)
{
	(void)state;
	assert_between(80, rate("atomics", 0, 512), 130);
	/* One at a time is a round trip each, whatever it is. */
	assert_between(0.4, rate("atomics", 0, 1), 0.51);
	assert_between(0.4, rate("atomics", 2, 1), 0.51);
}

static void shape_small_pages_cost_and_huge_ones_do_not(void **state)
{
	double small = rate("pages", 0, 64 * MIB);
	double huge = rate("pages", 1, 64 * MIB);

	(void)state;
	assert_between(90, small, 130);
	assert_between(0.98 * small, huge, 1.02 * small);
	assert_between(0.15 * small, rate("pages", 0, 2048 * MIB), 0.5 * small);
	assert_between(0.98 * huge, rate("pages", 1, 2048 * MIB), 1.02 * huge);
}

static void shape_shared_queue_costs_several_times_a_queue_each(void **state)
{
	double alone = rate("threads", 0, 1), each = rate("threads", 0, 16);
	double shared = rate("threads", 1, 16);

	(void)state;
	assert_between(80, each, 130);
	assert_between(4 * shared, each, 40 * shared);
	/* Less than one thread has for itself, and falling. */
	assert_true(shared < alone);
	assert_true(rate("threads", 1, 64) < shared);
	assert_between(0.99 * alone, rate("threads", 1, 1), 1.01 * alone);
}

static void shape_same_load_gives_the_same_figure(void **state)
{
	struct shape_load load = {.threads = 4, .connections = 64};
	struct shape_result a, b;

	(void)state;
	load.ops = 5000;
	load.seed = 3;
	assert_int_equal(shape_run(&load, &a), 0);
	assert_int_equal(shape_run(&load, &b), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	/* Unloaded, an operation takes a round trip of 2 us. */
	load.threads = load.connections = load.depth = 1;
	assert_int_equal(shape_run(&load, &a), 0);
	assert_between(2000, a.mean_ns, 2200);
	load.connections = 0;
	load.threads = 100000;
	assert_int_equal(shape_run(&load, &a), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shape_connections_outgrow_the_cache),
		cmocka_unit_test(shape_datagrams_do_not),
		cmocka_unit_test(shape_atomics_on_one_word_queue_up),
		cmocka_unit_test(shape_reads_of_one_word_do_not),
		cmocka_unit_test(shape_small_pages_cost_and_huge_ones_do_not),
		cmocka_unit_test(
			shape_shared_queue_costs_several_times_a_queue_each),
		cmocka_unit_test(shape_same_load_gives_the_same_figure),
	};

	return cmocka_run_group_tests_name("shape", tests, NULL, NULL);
}
