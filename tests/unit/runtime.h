/* runtime.h - what the tests of the scheduler share. */
#ifndef TEST_RUNTIME_H
#define TEST_RUNTIME_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sched.h"

static inline struct reef_sched *sched_make(bool virtual_time,
					    struct reef_random *shuffle)
{
	struct reef_sched_setup setup = {.virtual_time = virtual_time,
					 .shuffle = shuffle};
	struct reef_sched *sched;

	assert_int_equal(reef_sched_create_setup(&setup, &sched), 0);
	return sched;
}

static inline void spawn(struct reef_sched *sched, int (*fn)(void *arg),
			 void *arg)
{
	assert_int_equal(reef_fiber_spawn(sched, fn, arg, NULL), 0);
}

static inline void run(struct reef_sched *sched)
{
	assert_int_equal(reef_sched_run(sched), 0);
}

static inline int count_up(void *arg)
{
	(*(int *)arg)++;
	return 0;
}

static inline int park_forever(void *arg)
{
	*(int *)arg = reef_fiber_park(REEF_FOREVER);
	return 0;
}

static inline int tick(void *arg)
{
	for (int i = 0; i < 10; i++)
		reef_sleep(1);
	return 0;
}

#endif
