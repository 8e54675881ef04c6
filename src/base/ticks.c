/* ticks.c - see ticks.h. */
#include "base/ticks.h"

#include <fcntl.h>
#include <reef/fiber.h>
#include <string.h>
#include <unistd.h>

#define CLOCKS "/sys/devices/system/clocksource/clocksource0/"
#define STRETCH_NS 1000000 /* the shortest that tells a speed */

__extension__ typedef unsigned __int128 wide;

/* True if the kernel offers the counter as a clock: (2). */
static bool kernel_offers_ticks(void)
{
#ifdef __x86_64__
	char names[128];
	ssize_t size;
	int fd = open(CLOCKS "available_clocksource", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	size = read(fd, names, sizeof(names) - 1);
	close(fd);
	if (size <= 0)
		return false;
	names[size] = 0;
	return strncmp(names, "tsc ", 4) == 0 || strstr(names, " tsc ");
#else
	return false;
#endif
}

uint64_t reef_tick_of(struct reef_tick_speed *speed, uint64_t moment_ns)
{
	uint64_t begin_ns = reef_now_ns(), ticks = reef_ticks();
	uint64_t end_ns = reef_now_ns();
	wide ahead;

	if (!speed->is_known) {
		*speed = (struct reef_tick_speed){
			.is_known = true,
			.has_ticks = kernel_offers_ticks(),
			.ns = begin_ns,
			.ticks = ticks,
		};
		return 0;
	}
	if (!speed->has_ticks || ticks <= speed->ticks ||
	    end_ns - speed->ns < STRETCH_NS || moment_ns <= end_ns)
		return 0;
	/* (1): the ticks since the first question came within these
	 * nanoseconds, and the tick that we count from before end_ns. */
	ahead = (wide)(moment_ns - end_ns) * (ticks - speed->ticks) /
		(end_ns - speed->ns);
	return ticks + (ahead < REEF_TICKS_AHEAD ? (uint64_t)ahead
						 : REEF_TICKS_AHEAD - 1);
}
