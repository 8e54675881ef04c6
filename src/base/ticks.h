/* ticks.h - the processor's counter, for whoever has to know very often whether
 * a moment has come: it costs a fifth of what reef_now_ns does.
 *
 * (1) A moment is translated into a tick when it is known. That tick is never
 *     after the moment, whoever stood still meanwhile: how fast ticks come is
 *     the ticks of a stretch divided by the nanoseconds of one that contains
 *     it.
 * (2) Ticks are used where the kernel offers the counter as a clock: then it
 *     has one speed, for ever, and is the same on all processors. Elsewhere,
 *     and in simulation, no moment has a tick.
 * (3) Nobody waits for what was loaded before: the counter may be read some
 *     microseconds before a load that stands in front of it, as far as the
 *     processor looks ahead, but no more, as an interrupt begins anew with what
 *     is not done. Whoever needs an order has a margin that is longer.
 * (4) A counter that begins anew while the machine sleeps is before no moment
 *     that was told before: such are at most REEF_TICKS_AHEAD away.
 *
 * Thread: reef_ticks, reef_is_before_tick: any; else the owner. */
#ifndef REEF_BASE_TICKS_H
#define REEF_BASE_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#define REEF_TICKS_AHEAD (UINT64_C(1) << 38) /* a minute at 4 GHz */

static inline uint64_t reef_ticks(void)
{
#ifdef __x86_64__
	/* The compiler moves no access across it. */
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
#else
	return 0;
#endif
}

/* True if it is before that tick; 0: never. */
static inline bool reef_is_before_tick(uint64_t tick)
{
	return tick - reef_ticks() - 1 < REEF_TICKS_AHEAD;
}

/* How fast ticks come. */
struct reef_tick_speed {
	bool is_known, has_ticks; /* (2); zeros at first */
	uint64_t ns, ticks;	  /* when it was first asked */
};

/* The tick of a moment of reef_now_ns, or one before it. 0: there is none, or
 * it is not known yet. */
uint64_t reef_tick_of(struct reef_tick_speed *speed, uint64_t moment_ns);

#endif
