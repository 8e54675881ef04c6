/* clock.h - where time comes from.
 *
 * (1) A clock never goes back, and goes on while the machine is suspended: a
 *     lease that others saw end must not go on here when the machine wakes.
 * (2) Nothing outside src/base asks the kernel for the time: code that runs in
 *     simulation sees only the clock it was given.
 * (3) A clock may drift against the scheduler's own time. Durations that code
 *     hands over are in *its* clock; reef_local_clock_wait_ns converts.
 *
 * Thread: any (a clock is read-only after its making; the virtual one is
 * advanced by its scheduler's thread alone). */
#ifndef REEF_BASE_CLOCK_H
#define REEF_BASE_CLOCK_H

#include <stdint.h>

struct reef_local_clock {
	/* Source time; NULL: CLOCK_BOOTTIME. */
	const uint64_t *virtual_ns;
	uint64_t offset_ns; /* added to the source */
	int32_t drift_ppm;  /* parts per million faster (+) or slower (-) */
	uint64_t wall_ns;   /* virtual: what its 0 is, since 1970 */
};

/* The machine's monotonic clock. */
extern const struct reef_local_clock reef_local_clock_real;

uint64_t reef_local_clock_now_ns(const struct reef_local_clock *clock);
uint64_t reef_local_clock_coarse_ns(const struct reef_local_clock *clock);

/* Time by the kernel's tick, for a fifth of what reef_now_ns costs: up to some
 * milliseconds late, and it stands still while the machine is suspended. So it
 * is compared with itself only, and says when to look at something again; no
 * lease goes by it. In simulation it is reef_now_ns. */
uint64_t reef_now_coarse_ns(void);

/* Nanoseconds since 1970. Unlike the other it can be wrong, jump, and go back:
 * people set it. */
uint64_t reef_local_clock_wall_ns(const struct reef_local_clock *clock);
/* The wall clock of the running fiber, or of the thread outside a fiber. */
uint64_t reef_wall_ns(void);

/* How long the source must run until `local_ns` have passed on this clock;
 * REEF_FOREVER stays what it is. */
uint64_t reef_local_clock_wait_ns(const struct reef_local_clock *clock,
				  uint64_t local_ns);

#endif
