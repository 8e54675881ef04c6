/* clock.c - the pool's time, as a map's expiry has it: the broker's.
 *
 * A handle asks for it every ten seconds, and counts on by the machine's own
 * monotonic clock in between: so hardly any call has to ask, and handles agree
 * within what their machines' clocks drift apart in that time, and half of what
 * the question takes. Not a clock of sync.h: that one never goes back, and pays
 * for it by running ahead after its node died, when keys would expire early.
 * Here it is enough that a key which somebody found expired is gone (get.c).
 *
 * While the broker is away it is counted on: after an hour, two machines whose
 * clocks run 100 ppm apart differ by 0.4 s. Only the first question has to be
 * answered. */
#include "kv/internal.h"

#include <errno.h>

#define PERIOD_NS UINT64_C(10000000000)
#define AGAIN_NS (PERIOD_NS / 10) /* while the time is not known at all */
#define WAIT_NS UINT64_C(100000)  /* for another fiber's first question */

static int ask_broker(struct reef_map *map)
{
	struct map_clock *clock = &map->clock;
	uint64_t began_ns = reef_now_ns(), ended_ns, time_ns;
	int rc = reef_pool_time(map->reef, &time_ns);

	ended_ns = reef_now_ns();
	clock->next_ns =
		ended_ns + (rc && !clock->at_ns ? AGAIN_NS : PERIOD_NS);
	if (!rc) {
		clock->time_ns = time_ns;
		/* The broker read its clock at some moment in between. */
		clock->at_ns = began_ns + (ended_ns - began_ns) / 2;
	}
	return rc;
}

/* Ask the broker, unless it is known to be away: then the time is counted on.
 */
static int refresh(struct reef_map *map)
{
	struct map_clock *clock = &map->clock;
	int rc;

	if (clock->at_ns && reef_health(map->reef) == -REEF_ENOLINK) {
		clock->next_ns = reef_now_ns() + PERIOD_NS;
		return 0;
	}
	clock->busy = true;
	rc = ask_broker(map);
	clock->busy = false;
	return clock->at_ns ? 0 : rc;
}

/* The pool's time in milliseconds, at a moment of the machine's clock. */
static uint64_t count_on(struct map_clock *clock, uint64_t now_ns)
{
	uint64_t now = clock->time_ns + (now_ns - clock->at_ns);

	/* An operator may have set the broker's clock back. */
	if (now > clock->told_ns)
		clock->told_ns = now;
	return clock->told_ns / 1000000;
}

int map_now(struct reef_map *map, uint64_t *ms)
{
	struct map_clock *clock = &map->clock;
	uint64_t now_ns;
	int rc = 0;

	while (!clock->at_ns && clock->busy && !rc)
		rc = reef_sleep(WAIT_NS);
	now_ns = reef_now_ns();
	if (!rc && !clock->busy && now_ns >= clock->next_ns) {
		rc = refresh(map);
		now_ns = reef_now_ns();
	}
	/* The broker has not answered any question yet. */
	if (!rc && !clock->at_ns)
		rc = -REEF_ENOLINK;
	if (!rc)
		*ms = count_on(clock, now_ns);
	return rc;
}

int map_time(struct reef_map *map, uint64_t *ms)
{
	if (!map->clock.at_ns)
		return map_now(map, ms);
	*ms = count_on(&map->clock, reef_now_ns());
	return 0;
}

int reef_map_now(struct reef_map *map, uint64_t *ms)
{
	return map_now(map, ms);
}
