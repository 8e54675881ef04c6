/* clock.c - the machine's time, or a simulated one that drifts. */
#include "base/clock.h"

#include "base/log.h"

#include <reef/fiber.h>
#include <time.h>

#define MILLION 1000000

__extension__ typedef unsigned __int128 wide;

const struct reef_local_clock reef_local_clock_real;

static uint64_t kernel_ns(clockid_t which)
{
	struct timespec now;

	clock_gettime(which, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t local_ns_of(const struct reef_local_clock *clock,
			    uint64_t source_ns)
{
	if (clock->drift_ppm == 0)
		return clock->offset_ns + source_ns;
	reef_assert(clock->drift_ppm > -MILLION);
	/* Rounding down keeps the clock monotonic. */
	return clock->offset_ns +
	       (uint64_t)((wide)source_ns *
			  (uint64_t)(MILLION + (int64_t)clock->drift_ppm) /
			  MILLION);
}

uint64_t reef_local_clock_now_ns(const struct reef_local_clock *clock)
{
	return local_ns_of(clock, clock->virtual_ns
					  ? *clock->virtual_ns
					  : kernel_ns(CLOCK_BOOTTIME));
}

uint64_t reef_local_clock_coarse_ns(const struct reef_local_clock *clock)
{
	return local_ns_of(clock, clock->virtual_ns
					  ? *clock->virtual_ns
					  : kernel_ns(CLOCK_MONOTONIC_COARSE));
}

uint64_t reef_local_clock_wall_ns(const struct reef_local_clock *clock)
{
	if (clock->virtual_ns)
		return clock->wall_ns + reef_local_clock_now_ns(clock);
	return kernel_ns(CLOCK_REALTIME);
}

uint64_t reef_local_clock_wait_ns(const struct reef_local_clock *clock,
				  uint64_t local_ns)
{
	uint64_t rate;
	wide source_ns;

	if (clock->drift_ppm == 0 || local_ns == REEF_FOREVER)
		return local_ns;
	reef_assert(clock->drift_ppm > -MILLION);
	rate = (uint64_t)(MILLION + (int64_t)clock->drift_ppm);
	/* Rounded up: whoever waits that long has seen local_ns pass. */
	source_ns = ((wide)local_ns * MILLION + rate - 1) / rate;
	return source_ns >= REEF_FOREVER ? REEF_FOREVER : (uint64_t)source_ns;
}
