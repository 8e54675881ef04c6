/* test_txns_sim.c - what the cost model says of transactions. */
#include "bench/txns_sim.h"

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct txns_result run(enum txns_line line, bool is_hot,
			      uint32_t coordinators)
{
	struct txns_result result = {0};

	assert_int_equal(txns_line_run(line, is_hot, coordinators, 1, &result),
			 0);
	return result;
}

/* What the models do alone is what their papers say. */
static void txns_sim_models_cost_what_is_written(void **state)
{
	static const double round_trips[TXNS_LINES] = {
		[TXNS_FARM] = 4,
		[TXNS_FASST] = 3,
		[TXNS_DRTM] = 7,
		[TXNS_FORD] = 3,
	};

	(void)state;
	for (enum txns_line line = TXNS_FARM; line < TXNS_LINES; line++) {
		struct txns_result one = run(line, false, 1);

		assert_true(one.round_trips > round_trips[line] - 0.01);
		assert_true(one.round_trips < round_trips[line] + 0.01);
		assert_true(one.aborts < 0.001);
	}
}

/* Three round trips where all places are known, and those of the heap. */
static void txns_sim_reef_alone_takes_few_round_trips(void **state)
{
	struct txns_result one = run(TXNS_REEF, true, 1);

	(void)state;
	assert_true(one.round_trips >= 3 && one.round_trips < 4.5);
	assert_true(one.aborts < 0.001);
}

static void txns_sim_more_coordinators_do_more(void **state)
{
	(void)state;
	for (enum txns_line line = TXNS_REEF; line < TXNS_LINES; line++)
		assert_true(run(line, false, 8).txns_per_s >
			    3 * run(line, false, 1).txns_per_s);
}

/* Locks and versions of the models really conflict. */
static void txns_sim_hot_keys_make_models_abort(void **state)
{
	(void)state;
	for (enum txns_line line = TXNS_FARM; line < TXNS_LINES; line++) {
		struct txns_result hot = run(line, true, 32);

		assert_true(hot.aborts > 0.1);
		assert_true(hot.aborts > 5 * run(line, false, 32).aborts);
	}
}

static void txns_sim_tells_nearly_the_same_again(void **state)
{
	double one = run(TXNS_REEF, false, 4).txns_per_s;
	double again = run(TXNS_REEF, false, 4).txns_per_s;

	(void)state;
	assert_true(one > 0.9 * again && again > 0.9 * one);
}

/* Who waits for a key that another has lets go of those in hand: so nobody
 * waits for one that waits. */
static void txns_sim_hot_keys_make_no_convoy(void **state)
{
	const struct txns_result few = run(TXNS_REEF, true, 16),
				 many = run(TXNS_REEF, true, 64);

	(void)state;
	assert_true(many.txns_per_s > few.txns_per_s);
	assert_true(2 * many.txns_per_s > run(TXNS_FORD, true, 64).txns_per_s);
	assert_true(many.round_trips < 2 * few.round_trips);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(txns_sim_models_cost_what_is_written),
		cmocka_unit_test(txns_sim_reef_alone_takes_few_round_trips),
		cmocka_unit_test(txns_sim_more_coordinators_do_more),
		cmocka_unit_test(txns_sim_hot_keys_make_models_abort),
		cmocka_unit_test(txns_sim_hot_keys_make_no_convoy),
		cmocka_unit_test(txns_sim_tells_nearly_the_same_again),
	};

	/* Hosts are killed when all is measured, and log that. */
	reef_log_set(NULL, NULL, REEF_LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
