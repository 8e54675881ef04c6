/* test_copies_sim.c - what the cost model says of a second copy. */
#include "bench/copies_sim.h"

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct copies_result run(enum copies_line line, uint32_t clients)
{
	struct copies_result result = {0};

	assert_int_equal(copies_line_run(line, clients, 1, &result), 0);
	return result;
}

static void copies_sim_gets_cost_what_they_did(void **state)
{
	struct copies_result one = run(COPIES_GET_ONE, 8);
	struct copies_result two = run(COPIES_GET_TWO, 8);

	(void)state;
	assert_true(two.calls_per_s > 0.99 * one.calls_per_s);
	assert_true(two.round_trips < 1.01 * one.round_trips);
}

/* Two round trips more for the CAS and what is before it. */
static void copies_sim_puts_keep_half_of_their_rate(void **state)
{
	(void)state;
	for (uint32_t clients = 1; clients <= 64; clients *= 8) {
		double one = run(COPIES_PUT_ONE, clients).calls_per_s;
		double two = run(COPIES_PUT_TWO, clients).calls_per_s;

		assert_true(two > 0.48 * one && two < 0.7 * one);
	}
}

static void copies_sim_tells_the_same_again(void **state)
{
	(void)state;
	assert_true(run(COPIES_PUT_TWO, 8).p99_ns ==
		    run(COPIES_PUT_TWO, 8).p99_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_sim_gets_cost_what_they_did),
		cmocka_unit_test(copies_sim_puts_keep_half_of_their_rate),
		cmocka_unit_test(copies_sim_tells_the_same_again),
	};

	/* Hosts are killed when all is measured, and log that. */
	reef_log_set(NULL, NULL, REEF_LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
