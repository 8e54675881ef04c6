/* use.c - `touched` of an entry: when it was last used, or how often lately.
 *
 *   LRU, KEEP  16 bits of the pool's time, in units of one second or four: so
 *              18 hours or three days, then it begins anew.
 *   LFU        8 bits of its minutes, and 8 of a counter that grows the slower
 *              the higher it is, and loses one for each minute since.
 *
 * Uses are noted by one WRITE, seldom: when the last note is older than 15
 * units (a minute, without eviction), or, since this handle evicted something,
 * than a 16th of the age at which that went; LFU: when the counter grows, by
 * chance. A note may be lost. */
#include "kv/internal.h"

#include "base/mutant.h"

#define TICK_MAX_MS 4000 /* so that the pool's time is asked for, too */
#define SECOND_NS UINT64_C(1000000000)
#define UNITS 15 /* a note that is older is always made anew */
#define AGE_SHARE 16
#define FIRST 5u   /* counter of a key that was put: not to go at once */
#define FACTOR 10u /* 1 in FACTOR * (counter - FIRST) + 1 counts */

uint32_t map_use_unit_ms(enum reef_map_eviction eviction)
{
	if (eviction == REEF_MAP_LFU)
		return 60000;
	return eviction == REEF_MAP_LRU ? 1000 : 4000;
}

static enum map_plain plain_of(const struct reef_map *map)
{
	if (map->eviction == REEF_MAP_LFU)
		return MAP_PLAIN_NONE;
	return reef_space_copies(map->object.space) > 1 ? MAP_PLAIN_COPIED
							: MAP_PLAIN_ONE;
}

void map_tick(struct reef_map *map)
{
	uint64_t ms, left_ms, now_ns = reef_now_coarse_ns();

	/* Set first, so that two fibers do not ask at once, and a failure is
	 * not repeated at every call. */
	map->tick_until_ns = now_ns + SECOND_NS;
	if (!map->use_units) {
		map->use_units = UNITS;
		map->plain = plain_of(map);
	}
	if (map_now(map, &ms))
		return;
	map->tick = (uint16_t)(ms / map->unit_ms);
	left_ms = map->unit_ms - ms % map->unit_ms;
	if (left_ms > TICK_MAX_MS)
		left_ms = TICK_MAX_MS;
	map->tick_until_ns = now_ns + left_ms * 1000000;
}

static uint8_t minutes_since(const struct reef_map *map, uint16_t touched)
{
	uint8_t minutes = (uint8_t)(map->tick - (touched >> 8));

	return minutes > UINT8_MAX - MAP_AHEAD ? 0 : minutes;
}

static uint32_t counter_of(const struct reef_map *map, uint16_t touched)
{
	uint32_t counter = touched & 255, lost = minutes_since(map, touched);

	return counter > lost ? counter - lost : 0;
}

static uint16_t with_counter(const struct reef_map *map, uint32_t counter)
{
	return (uint16_t)((map->tick & 255u) << 8 | counter);
}

/* True if the counter grows by this use, which is by chance. */
static bool grows(struct reef_map *map, uint32_t counter)
{
	if (counter >= 255)
		return false;
	if (counter <= FIRST)
		return true;
	return reef_random_chance(&map->random, 1,
				  (counter - FIRST) * FACTOR + 1);
}

bool map_use(struct reef_map *map, uint16_t touched, uint16_t *next)
{
	uint32_t counter;

	if (map->eviction != REEF_MAP_LFU) {
		*next = map->tick;
		return map_since(map, touched) >= map->use_units;
	}
	counter = counter_of(map, touched);
	if (!grows(map, counter))
		return false;
	*next = with_counter(map, counter + 1);
	return true;
}

void map_use_learn(struct reef_map *map, uint32_t score)
{
	uint32_t units = score / AGE_SHARE;

	if (map->eviction != REEF_MAP_LRU)
		return;
	units = units > UNITS ? UNITS : units;
	map->use_units = (uint16_t)(units ? units : 1);
}

uint16_t map_use_first(struct reef_map *map, const uint16_t *before)
{
	uint32_t counter = FIRST;

	if (map->eviction != REEF_MAP_LFU)
		return map->tick;
	if (before) {
		counter = counter_of(map, *before);
		counter += grows(map, counter);
	}
	return with_counter(map, counter);
}

uint32_t map_use_score(const struct reef_map *map, uint16_t touched)
{
	if (REEF_MUTATED(MAP_RANDOM))
		return 0;
	if (map->eviction == REEF_MAP_LFU)
		return (255 - counter_of(map, touched)) << 8 |
		       minutes_since(map, touched);
	return map_since(map, touched);
}

void map_use_describe(struct reef_map *map, uint16_t touched,
		      struct reef_map_value *value)
{
	bool counts = map->eviction == REEF_MAP_LFU;

	value->frequency = counts ? counter_of(map, touched) : 0;
	value->idle_ms =
		counts ? minutes_since(map, touched) * UINT64_C(60000)
		       : (uint64_t)map_since(map, touched) * map->unit_ms;
}
