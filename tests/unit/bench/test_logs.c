/* test_logs.c - what the cost model says of appends to a shared log. */
#include "bench/logs.h"

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MANY 64u
#define CROWD 256u

static double rate(enum logs_line line, uint32_t clients)
{
	struct logs_result result = {0};

	assert_int_equal(logs_line_run(line, clients, 1, &result), 0);
	return result.appends_per_s;
}

/* A word takes an atomic in 300 ns, a server a request in 500. */
static void logs_end_at_what_gives_numbers(void **state)
{
	double one = rate(LOGS_ONE, MANY), server = rate(LOGS_SERVER, MANY);

	assert_true(one < 1e9 / 300 * 1.01 && one > 1e9 / 300 * 0.8);
	assert_true(server < 1e9 / 500 * 1.01 && server > 1e9 / 500 * 0.8);
	assert_true(rate(LOGS_EACH, MANY) > 5 * one);
}

/* Two round trips of 2 us, and one of a single writer. */
static void logs_alone_take_their_round_trips(void **state)
{
	double one = rate(LOGS_ONE, 1), each = rate(LOGS_EACH, 1);

	assert_true(one < 1e9 / 4000 && one > 1e9 / 4400);
	assert_true(each < 1e9 / 2000 && each > 1e9 / 2400);
}

/* Cuts have no word that all want: they go on where numbers have ended. */
static void logs_by_cuts_go_on(void **state)
{
	double one = rate(LOGS_ONE, MANY);

	assert_true(rate(LOGS_EARLY, MANY) > 2 * one);
	assert_true(rate(LOGS_EARLY, 1) > 1e9 / 2400);
}

/* One cuts for all, and all read their own part: a crowd does not stand in its
 * own way, shards that fill included. */
static void logs_by_cuts_bear_a_crowd(void **state)
{
	double some = rate(LOGS_CUTS, 16), many = rate(LOGS_CUTS, MANY);
	double crowd = rate(LOGS_CUTS, CROWD);

	assert_true(many > 2.5 * some && crowd > 1.5 * many);
	assert_true(crowd > 1e9 / 300 * 1.3);
	assert_true(rate(LOGS_EARLY, CROWD) > 1e9 / 300 * 5);
}

static void logs_tell_the_same_again(void **state)
{
	assert_true(rate(LOGS_ONE, 8) == rate(LOGS_ONE, 8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logs_end_at_what_gives_numbers),
		cmocka_unit_test(logs_alone_take_their_round_trips),
		cmocka_unit_test(logs_by_cuts_go_on),
		cmocka_unit_test(logs_by_cuts_bear_a_crowd),
		cmocka_unit_test(logs_tell_the_same_again),
	};

	/* Hosts are killed when all is measured, and log that. */
	reef_log_set(NULL, NULL, REEF_LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
