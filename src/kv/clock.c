/* clock.c - the pool's time, as a map's expiry has it.
 *
 * All maps of a space go by one clock (sync.h) of that space. A handle draws
 * from it once a second, and counts on by the machine's own monotonic clock
 * in between: so no call has to ask, and all handles agree within what the
 * machines' clocks drift apart in a second, and the time a draw takes.
 *
 * A clock that cannot be reached, because the broker is away or its node died,
 * is counted on from: for an hour without it, two machines whose clocks run 100
 * ppm apart differ by 0.4 s. Only the first draw has to succeed. */
#include "kv/internal.h"
#include "pool/rpc.h"

#include <errno.h>

#define NAME "reef.map.clock"
#define PERIOD_NS UINT64_C(1000000000)
#define AWAY_NS (10 * PERIOD_NS) /* before it is tried again */
#define WAIT_NS UINT64_C(100000) /* for another fiber's first draw */

/* Who may only read cannot draw: it asks the broker, whose time the clock
 * follows. */
static int ask(struct reef_map *map, uint64_t *ns)
{
	struct reef_answer answer = {0};
	struct reef_body body = {0};
	int rc = reef_client_ask(map->reef, REEF_POOL_TIME, false, &body,
				 &answer);

	if (!rc)
		*ns = answer.body.value;
	reef_answer_free(&answer);
	return rc;
}

static int draw_once(struct reef_map *map, uint64_t *ns)
{
	struct map_clock *clock = &map->clock;
	int rc = 0;

	if (!clock->clock)
		rc = reef_clock_open(map->object.space, NAME, 0, &clock->clock);
	if (!rc)
		rc = reef_clock_next(clock->clock, 1, ns);
	/* Somebody dropped it: the next call makes it anew. */
	if (rc == -ENOENT) {
		reef_clock_close(clock->clock);
		clock->clock = NULL;
	}
	return rc == -EACCES ? ask(map, ns) : rc;
}

static int draw(struct reef_map *map)
{
	struct map_clock *clock = &map->clock;
	bool first = !clock->at_ns;
	uint64_t ns;
	int rc;

	if (!first && reef_health(map->reef) == -REEF_ENOLINK) {
		clock->next_ns = reef_now_ns() + PERIOD_NS;
		return 0;
	}
	clock->busy = true;
	rc = draw_once(map, &ns);
	if (rc == -ENOENT)
		rc = draw_once(map, &ns);
	clock->busy = false;
	clock->next_ns = reef_now_ns() + (rc ? AWAY_NS : PERIOD_NS);
	if (!rc) {
		clock->drawn_ns = ns;
		clock->at_ns = reef_now_ns();
	}
	return first ? rc : 0;
}

int map_now(struct reef_map *map, uint64_t *ms)
{
	struct map_clock *clock = &map->clock;
	uint64_t now;
	int rc = 0;

	while (!clock->at_ns && clock->busy && !rc)
		rc = reef_sleep(WAIT_NS);
	if (!rc && !clock->busy && reef_now_ns() >= clock->next_ns)
		rc = draw(map);
	if (rc)
		return rc;
	now = clock->drawn_ns + (reef_now_ns() - clock->at_ns);
	if (now > clock->told_ns)
		clock->told_ns = now;
	*ms = clock->told_ns / 1000000;
	return 0;
}

int reef_map_now(struct reef_map *map, uint64_t *ms)
{
	return map_now(map, ms);
}

void map_clock_close(struct reef_map *map)
{
	reef_clock_close(map->clock.clock);
}
