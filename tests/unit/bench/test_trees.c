/* test_trees.c - what ordered indexes cost, by the cost model (bench/trees.h).
 * The figures are of virtual time and exact; the margins are wide because only
 * the shape is promised. */
#include "bench/trees.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define KEYS 3000

static void assert_between(double low, double value, double high)
{
	if (!(value >= low && value <= high))
		fail_msg("%g is not between %g and %g", value, low, high);
}

static void run(enum trees_index index, enum trees_work work, double cache,
		const uint64_t *clients, struct trees_result *results)
{
	const struct trees_load load = {
		.seed = 1,
		.index = index,
		.work = work,
		.hosts = 4,
		.keys = KEYS,
		.cache = cache,
		.clients = clients,
	};

	assert_int_equal(trees_run(&load, results), 0);
}

/* Ours: one READ of a part of a leaf, but for keys that are still in slots. */
static void trees_lookup_of_ours_is_one_small_read(void **state)
{
	const uint64_t clients[] = {1, 16, 0};
	struct trees_result results[2];

	run(TREES_REEF, TREES_LOOKUP, 64, clients, results);
	for (int i = 0; i < 2; i++) {
		assert_between(1, results[i].round_trips, 1.5);
		assert_between(100, results[i].bytes_in, 300);
		assert_between(0, results[i].bytes_out, 1);
	}
	assert_between(12, results[1].ops_per_s / results[0].ops_per_s, 20);
}

/* With almost no memory to remember leaves in, they are read. */
static void trees_lookup_of_ours_without_cache_reads_more(void **state)
{
	const uint64_t clients[] = {1, 0};
	struct trees_result plenty, tight;

	run(TREES_REEF, TREES_LOOKUP, 64, clients, &plenty);
	run(TREES_REEF, TREES_LOOKUP, 1, clients, &tight);
	assert_true(tight.bytes_in > 2 * plenty.bytes_in);
	assert_true(tight.cache < plenty.cache);
}

static void trees_insert_of_ours_writes(void **state)
{
	const uint64_t clients[] = {1, 0};
	struct trees_result result;

	run(TREES_REEF, TREES_INSERT, 64, clients, &result);
	assert_between(1.5, result.round_trips, 3.5);
	assert_true(result.bytes_out > 50);
	assert_true(result.p99_ns > result.p50_ns);
}

static void trees_models_do_what_is_described(void **state)
{
	static const struct {
		enum trees_index index;
		double bytes, insert_trips, update_trips;
	} models[] = {
		{TREES_SHERMAN, 1024, 3, 3},
		{TREES_CHIME, 165, 3, 3},
		{TREES_DMTREE, 24, 4, 5},
	};
	const uint64_t clients[] = {1, 0};
	struct trees_result result;

	for (int i = 0; i < 3; i++) {
		run(models[i].index, TREES_LOOKUP, 16, clients, &result);
		assert_between(0.99, result.round_trips, 1.01);
		assert_between(0.97 * models[i].bytes, result.bytes_in,
			       1.03 * models[i].bytes);
		/* Some inserts split. */
		run(models[i].index, TREES_INSERT, 16, clients, &result);
		assert_between(models[i].insert_trips, result.round_trips,
			       models[i].insert_trips + 0.5);
		run(models[i].index, TREES_UPDATE, 16, clients, &result);
		assert_between(models[i].update_trips - 0.01,
			       result.round_trips,
			       models[i].update_trips + 0.1);
	}
}

/* Whole pages fill the wire long before parts of them do. */
static void trees_pages_saturate_the_wire(void **state)
{
	const uint64_t clients[] = {64, 256, 0};
	struct trees_result pages[2], parts[2];

	run(TREES_SHERMAN, TREES_LOOKUP, 16, clients, pages);
	run(TREES_CHIME, TREES_LOOKUP, 16, clients, parts);
	assert_between(0.95, pages[1].ops_per_s / pages[0].ops_per_s, 1.05);
	assert_true(parts[1].ops_per_s > 3 * pages[1].ops_per_s);
}

static void trees_small_cache_costs_a_model_reads(void **state)
{
	const uint64_t clients[] = {1, 0};
	struct trees_result result;

	run(TREES_DMTREE, TREES_LOOKUP, 1, clients, &result);
	assert_between(1.5, result.round_trips, 3);
	assert_between(0.99, result.cache, 1.01);
	run(TREES_SHERMAN, TREES_LOOKUP, 0.2, clients, &result);
	assert_between(1.4, result.round_trips, 1.7);
}

static void trees_same_seed_same_figures(void **state)
{
	const uint64_t clients[] = {8, 0};
	struct trees_result one, two;

	for (int i = TREES_REEF; i <= TREES_DMTREE; i++) {
		run((enum trees_index)i, TREES_INSERT, 16, clients, &one);
		run((enum trees_index)i, TREES_INSERT, 16, clients, &two);
		assert_memory_equal(&one, &two, sizeof(one));
	}
}

static void trees_bad_load_is_refused(void **state)
{
	const uint64_t clients[] = {1, 0}, many[] = {100000, 0};
	struct trees_load load = {.value_size = 100000, .clients = clients};
	struct trees_result result;

	assert_int_equal(trees_run(&load, &result), -EINVAL);
	load.value_size = 8;
	load.clients = many;
	assert_int_equal(trees_run(&load, &result), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trees_lookup_of_ours_is_one_small_read),
		cmocka_unit_test(trees_lookup_of_ours_without_cache_reads_more),
		cmocka_unit_test(trees_insert_of_ours_writes),
		cmocka_unit_test(trees_models_do_what_is_described),
		cmocka_unit_test(trees_pages_saturate_the_wire),
		cmocka_unit_test(trees_small_cache_costs_a_model_reads),
		cmocka_unit_test(trees_same_seed_same_figures),
		cmocka_unit_test(trees_bad_load_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
