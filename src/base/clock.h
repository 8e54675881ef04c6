/* clock.h - where time comes from.
 *
 * (1) A clock never goes back.
 * (2) Nothing outside src/base asks the kernel for the time: code that runs in
 *     simulation sees only the clock it was given.
 * (3) A clock may drift against the scheduler's own time. Durations that code
 *     hands over are in *its* clock; reef_clock_wait_ns converts.
 *
 * Thread: any (a clock is read-only after its making; the virtual one is
 * advanced by its scheduler's thread alone). */
#ifndef REEF_BASE_CLOCK_H
#define REEF_BASE_CLOCK_H

#include <stdint.h>

struct reef_clock {
	/* Source time; NULL: CLOCK_MONOTONIC. */
	const uint64_t *virtual_ns;
	uint64_t offset_ns; /* added to the source */
	int32_t drift_ppm;  /* parts per million faster (+) or slower (-) */
};

/* The machine's monotonic clock. */
extern const struct reef_clock reef_clock_real;

uint64_t reef_clock_now_ns(const struct reef_clock *clock);

/* How long the source must run until `local_ns` have passed on this clock;
 * REEF_FOREVER stays what it is. */
uint64_t reef_clock_wait_ns(const struct reef_clock *clock, uint64_t local_ns);

#endif
