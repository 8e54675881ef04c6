/* A ring of 10,000 fibers hands a token around; waiting costs nanoseconds. */
#include <inttypes.h>
#include <reef/fiber.h>
#include <stdio.h>
#include <stdlib.h>

#define FIBERS 10000
#define LAPS 100

static struct reef_fiber *ring[FIBERS];
static uint64_t hops;

static int pass(void *arg)
{
	struct reef_fiber **self = arg;
	struct reef_fiber **next = &ring[(self - ring + 1) % FIBERS];

	for (int lap = 0; lap < LAPS; lap++) {
		reef_fiber_park(REEF_FOREVER);
		hops++;
		reef_fiber_unpark(*next);
	}
	return 0;
}

static int start(void *arg)
{
	uint64_t before_ns = reef_now_ns(), passed_ns;

	reef_fiber_unpark(ring[0]);
	/* The last one first: it unparks ring[0] once more. */
	for (size_t i = FIBERS; i-- > 0;)
		reef_fiber_join(ring[i], NULL);
	passed_ns = reef_now_ns() - before_ns;
	printf("%" PRIu64 " hops over %d fibers, %.1f ns each\n", hops, FIBERS,
	       (double)passed_ns / (double)hops);
	return hops == (uint64_t)FIBERS * LAPS ? 0 : -1;
}

int main(void)
{
	struct reef_fiber *starter;
	struct reef_sched *sched;
	int error, result = -1;

	error = reef_sched_create(NULL, &sched);
	for (size_t i = 0; i < FIBERS && !error; i++)
		error = reef_fiber_spawn(sched, pass, &ring[i], &ring[i]);
	if (!error)
		error = reef_fiber_spawn(sched, start, NULL, &starter);
	if (!error)
		error = reef_sched_run(sched);
	if (error) {
		fprintf(stderr, "fibers: %s\n", reef_error_text(error));
		return EXIT_FAILURE;
	}
	reef_fiber_join(starter, &result);
	reef_sched_destroy(sched);
	return result ? EXIT_FAILURE : EXIT_SUCCESS;
}
