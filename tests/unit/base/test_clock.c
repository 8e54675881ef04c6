/* test_clock.c - drift, rounding and the end of time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <reef/fiber.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

static void clock_real_never_goes_back(void **state)
{
	uint64_t last = reef_local_clock_now_ns(&reef_local_clock_real);

	for (int i = 0; i < 100000; i++) {
		uint64_t now = reef_local_clock_now_ns(&reef_local_clock_real);

		assert_true(now >= last);
		last = now;
	}
}

/* A child whose time since boot is a thousand seconds ahead, as on a machine
 * that was suspended for so long; its other clocks are as they were. */
static pid_t fork_after_suspend(void)
{
	int fd;

	/* Somebody who is not root may do so in a user namespace. */
	if (unshare(CLONE_NEWTIME) && unshare(CLONE_NEWUSER | CLONE_NEWTIME))
		return -errno;
	fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || dprintf(fd, "boottime 1000 0\n") < 0)
		return -errno;
	close(fd);
	return fork();
}

static void clock_real_goes_on_during_suspend(void **state)
{
	uint64_t before = reef_local_clock_now_ns(&reef_local_clock_real);
	pid_t outer = fork(), inner;
	int status;

	assert_true(outer >= 0);
	if (!outer) {
		inner = fork_after_suspend();
		if (inner < 0)
			_exit(inner == -EPERM ? 77 : 1);
		if (!inner)
			_exit(reef_local_clock_now_ns(&reef_local_clock_real) -
				      before <
			      UINT64_C(1000000000000));
		_exit(waitpid(inner, &status, 0) != inner || status);
	}
	assert_int_equal(waitpid(outer, &status, 0), outer);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip(); /* the kernel lets nobody have a time of its own */
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void clock_virtual_shows_its_source(void **state)
{
	uint64_t source = 5;
	struct reef_local_clock clock = {.virtual_ns = &source,
					 .offset_ns = 100};

	assert_int_equal(reef_local_clock_now_ns(&clock), 105);
	source = 1000;
	assert_int_equal(reef_local_clock_now_ns(&clock), 1100);
	assert_int_equal(reef_local_clock_wait_ns(&clock, 77), 77);
}

static void clock_drift_gains_and_loses(void **state)
{
	uint64_t source = 1000000000;
	struct reef_local_clock fast = {.virtual_ns = &source,
					.drift_ppm = 200};
	struct reef_local_clock slow = {.virtual_ns = &source,
					.drift_ppm = -200};

	assert_int_equal(reef_local_clock_now_ns(&fast), 1000200000);
	assert_int_equal(reef_local_clock_now_ns(&slow), 999800000);
	/* A fast clock's second is over early, a slow one's late. */
	assert_true(reef_local_clock_wait_ns(&fast, 1000000000) < 1000000000);
	assert_true(reef_local_clock_wait_ns(&slow, 1000000000) > 1000000000);
}

static void clock_drift_never_goes_back(void **state)
{
	uint64_t source = 0, last = 0, now;
	struct reef_local_clock clock = {.virtual_ns = &source,
					 .drift_ppm = -999999};

	for (source = 0; source < 5000000; source += 997) {
		now = reef_local_clock_now_ns(&clock);
		assert_true(now >= last);
		last = now;
	}
}

/* Whoever waits wait_ns(d) sees at least d pass, and not much more. */
static void clock_wait_covers_the_duration(void **state)
{
	struct reef_random random;
	uint64_t source, before, passed, duration;
	struct reef_local_clock clock = {.virtual_ns = &source};

	reef_random_init(&random, 1);
	for (int i = 0; i < 100000; i++) {
		clock.drift_ppm =
			(int32_t)reef_random_below(&random, 100000) - 50000;
		source = reef_random_below(&random, UINT64_C(1) << 50);
		duration = reef_random_below(&random, UINT64_C(1) << 40);
		before = reef_local_clock_now_ns(&clock);
		source += reef_local_clock_wait_ns(&clock, duration);
		passed = reef_local_clock_now_ns(&clock) - before;
		assert_true(passed >= duration && passed <= duration + 2);
	}
}

static void clock_wait_forever_stays_forever(void **state)
{
	uint64_t source = 0;
	struct reef_local_clock clock = {.virtual_ns = &source,
					 .drift_ppm = 500};

	assert_true(reef_local_clock_wait_ns(&clock, REEF_FOREVER) ==
		    REEF_FOREVER);
	clock.drift_ppm = -500;
	assert_true(reef_local_clock_wait_ns(&clock, REEF_FOREVER) ==
		    REEF_FOREVER);
	/* What does not fit saturates instead of wrapping. */
	assert_true(reef_local_clock_wait_ns(&clock, REEF_FOREVER - 1) ==
		    REEF_FOREVER);
}

static void clock_wall_is_since_1970(void **state)
{
	uint64_t source = 7;
	struct reef_local_clock clock = {
		.virtual_ns = &source,
		.offset_ns = 100,
		.wall_ns = 5000,
	};

	assert_int_equal(reef_local_clock_wall_ns(&clock), 5107);
	/* After 2020, before 2100. */
	assert_true(reef_wall_ns() > 1577836800000000000);
	assert_true(reef_wall_ns() < 4102444800000000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clock_real_never_goes_back),
		cmocka_unit_test(clock_real_goes_on_during_suspend),
		cmocka_unit_test(clock_virtual_shows_its_source),
		cmocka_unit_test(clock_drift_gains_and_loses),
		cmocka_unit_test(clock_drift_never_goes_back),
		cmocka_unit_test(clock_wait_covers_the_duration),
		cmocka_unit_test(clock_wait_forever_stays_forever),
		cmocka_unit_test(clock_wall_is_since_1970),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
