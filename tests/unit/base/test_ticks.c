/* test_ticks.c - moments as ticks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/ticks.h"

#include <reef/fiber.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)
#define ROUNDS 1000u

static void pause_for_ns(long ns)
{
	const struct timespec pause = {.tv_nsec = ns};

	nanosleep(&pause, NULL);
}

/* The tick of a moment, once its speed is known; 0: there are none. */
static uint64_t tick_of(struct reef_tick_speed *speed, uint64_t moment_ns)
{
	uint64_t tick = reef_tick_of(speed, moment_ns);

	for (uint32_t i = 0; !tick && speed->has_ticks && i < ROUNDS; i++) {
		pause_for_ns(2000000);
		tick = reef_tick_of(speed, moment_ns);
	}
	return tick;
}

static void ticks_come_before_their_moment(void **state)
{
	struct reef_tick_speed speed = {0};
	uint64_t moment_ns, tick;

	(void)state;
	if (!tick_of(&speed, reef_now_ns() + 3600 * SECOND))
		return;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		moment_ns = reef_now_ns() + 100000;
		tick = reef_tick_of(&speed, moment_ns);
		while (reef_now_ns() < moment_ns)
			;
		assert_false(reef_is_before_tick(tick));
	}
}

static void ticks_of_other_times_are_past(void **state)
{
	struct reef_tick_speed speed = {0};
	uint64_t tick = tick_of(&speed, reef_now_ns() + 3600 * SECOND);

	(void)state;
	assert_false(reef_is_before_tick(0));
	assert_int_equal(reef_tick_of(&speed, reef_now_ns() - 1), 0);
	if (!tick)
		return;
	assert_true(reef_is_before_tick(reef_ticks() + (UINT64_C(1) << 36)));
	assert_false(reef_is_before_tick(reef_ticks()));
	/* As if the counter had begun anew. */
	assert_false(reef_is_before_tick(reef_ticks() + 2 * REEF_TICKS_AHEAD));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ticks_come_before_their_moment),
		cmocka_unit_test(ticks_of_other_times_are_past),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
