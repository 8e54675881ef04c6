/* fiber.c - what a switch between two fibers costs, beside libc's own.
 *
 * One switch is one yield (or one swapcontext): from a fiber that runs to
 * another that runs after it, whatever the scheduler does in between. Time is
 * the thread's on the processor.
 *
 * Thread: owner. */
#include "fabric_bench.h"

#include <reef/fiber.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define SWITCHES_PER_LOOK 1024
#define STACK_SIZE (64 << 10)

struct meter {
	double begin, until, finish;
	uint64_t switches;
};

static void meter_start(struct meter *meter, double seconds)
{
	meter->begin = meter->finish =
		workload_seconds(CLOCK_THREAD_CPUTIME_ID);
	meter->until = meter->begin + seconds;
	meter->switches = 0;
}

/* --- Reef --- */

static int fiber_open(struct driver_pair *pair)
{
	struct reef_sched *sched;
	int rc = reef_sched_create(NULL, &sched);

	if (rc)
		return driver_fail(pair, rc, "%s", reef_error_text(rc));
	pair->context = sched;
	strcpy(pair->description, "reef_fiber_yield between two fibers");
	return 0;
}

static int fiber_loop(void *argument)
{
	struct meter *meter = argument;

	while (meter->finish < meter->until) {
		for (uint32_t i = 0; i < SWITCHES_PER_LOOK; i++)
			reef_fiber_yield();
		meter->switches += SWITCHES_PER_LOOK;
		meter->finish = workload_seconds(CLOCK_THREAD_CPUTIME_ID);
	}
	return 0;
}

static int fiber_run(struct driver_pair *pair, const char *name, double seconds,
		     double *rate)
{
	struct reef_sched *sched = pair->context;
	struct meter meter;
	int rc;

	meter_start(&meter, seconds);
	rc = reef_fiber_spawn(sched, fiber_loop, &meter, NULL);
	rc = rc ? rc : reef_fiber_spawn(sched, fiber_loop, &meter, NULL);
	rc = rc ? rc : reef_sched_run(sched);
	if (rc)
		return driver_fail(pair, rc, "%s", reef_error_text(rc));
	*rate = (double)meter.switches / (meter.finish - meter.begin);
	return 0;
}

static void fiber_close(struct driver_pair *pair)
{
	reef_sched_destroy(pair->context);
}

/* --- swapcontext --- */

struct swapper {
	ucontext_t here, there;
	char *stack;
};

/* makecontext passes only int; so the one that runs is told here. */
static struct swapper *swapper_running;

static void swapper_loop(void)
{
	struct swapper *swapper = swapper_running;

	for (;;)
		swapcontext(&swapper->there, &swapper->here);
}

static int swapcontext_open(struct driver_pair *pair)
{
	struct swapper *swapper = calloc(1, sizeof(*swapper));

	if (!swapper)
		return -ENOMEM;
	swapper->stack = malloc(STACK_SIZE);
	if (!swapper->stack || getcontext(&swapper->there)) {
		free(swapper->stack);
		free(swapper);
		return -ENOMEM;
	}
	swapper->there.uc_stack.ss_sp = swapper->stack;
	swapper->there.uc_stack.ss_size = STACK_SIZE;
	makecontext(&swapper->there, swapper_loop, 0);
	pair->context = swapper;
	strcpy(pair->description, "swapcontext between two contexts");
	return 0;
}

static int swapcontext_run(struct driver_pair *pair, const char *name,
			   double seconds, double *rate)
{
	struct swapper *swapper = pair->context;
	struct meter meter;

	swapper_running = swapper;
	meter_start(&meter, seconds);
	while (meter.finish < meter.until) {
		/* There and back: two switches. */
		for (uint32_t i = 0; i < SWITCHES_PER_LOOK; i += 2)
			swapcontext(&swapper->here, &swapper->there);
		meter.switches += SWITCHES_PER_LOOK;
		meter.finish = workload_seconds(CLOCK_THREAD_CPUTIME_ID);
	}
	*rate = (double)meter.switches / (meter.finish - meter.begin);
	return 0;
}

static void swapcontext_close(struct driver_pair *pair)
{
	struct swapper *swapper = pair->context;

	free(swapper->stack);
	free(swapper);
}

const struct driver fiber_reef_driver = {
	.name = "reef",
	.open = fiber_open,
	.run = fiber_run,
	.close = fiber_close,
};

const struct driver fiber_swapcontext_driver = {
	.name = "swapcontext",
	.open = swapcontext_open,
	.run = swapcontext_run,
	.close = swapcontext_close,
};
