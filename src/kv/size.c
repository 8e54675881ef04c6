/* size.c - what a map's entries take, and eviction.
 *
 * `entry_bytes` in the body is the sum of what everybody told. A handle adds up
 * its own changes and tells them by one FAA when they come to a 256th of
 * size_max: so each may be off by that, and a handle that dies leaves its part
 * untold until the next pass of the sweep counts anew (sweep.c).
 *
 * Eviction samples: some groups at a random place, whose entries are compared
 * with the best candidates of samples before. The best goes, if it is still as
 * it was when it was met: not put anew, not used since. */
#include "kv/internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define DELTA_SHARE 256 /* of size_max; a handle may keep to itself */
#define DELTA_MIN 1024
#define DELTA_MAX (INT64_C(1) << 20)
#define SAMPLE 8u	  /* entries at least, or */
#define SAMPLE_GROUPS 32u /* so many groups */
#define EVICTIONS_MAX 64u /* by one put */
#define OVER_SHARE 16	  /* of size_max: over that is -ENOSPC */

/* --- how much --- */

static int64_t delta_max(const struct reef_map *map)
{
	int64_t bytes = (int64_t)(map->size_max / DELTA_SHARE);

	if (bytes < DELTA_MIN)
		return DELTA_MIN;
	return bytes > DELTA_MAX ? DELTA_MAX : bytes;
}

int map_add_hint(struct reef_map *map, uint64_t at, uint64_t add, uint8_t flags,
		 uint64_t *before)
{
	struct reef_access access = {.kind = REEF_FAA,
				     .flags = flags,
				     .address = at,
				     .operand = add};
	int rc = reef_execute(map->reef, &access, 1);

	if (!rc && before)
		*before = access.result;
	return rc;
}

void map_account_flush(struct reef_map *map)
{
	int64_t delta = map->size_delta;
	uint64_t before;
	int rc;

	if (!delta)
		return;
	/* Set first, as other fibers go on counting during the FAA. */
	map->size_delta = 0;
	map->size_known += (uint64_t)delta;
	rc = map_add_hint(map, MAP_WORD(map, entry_bytes), (uint64_t)delta,
			  REEF_BLIND, &before);
	/* A doubt is made good by the sweep's next pass, which counts anew. */
	if (!rc)
		map->size_known = map_bytes_told(before + (uint64_t)delta);
}

void map_account(struct reef_map *map, int64_t bytes)
{
	if (!map->size_max)
		return;
	map->size_delta += bytes;
	if (map->size_delta >= delta_max(map) ||
	    map->size_delta <= -delta_max(map))
		map_account_flush(map);
}

/* --- candidates --- */

static void remove_candidate(struct reef_map *map, uint32_t index)
{
	struct map_candidate *candidates = map->candidates;

	map->candidates_count--;
	memmove(candidates + index, candidates + index + 1,
		(map->candidates_count - index) * sizeof(*candidates));
}

void map_candidates_free(struct reef_map *map)
{
	while (map->candidates_count)
		free(map->candidates[--map->candidates_count].key);
}

/* Add a candidate, unless it is there or all are better. They are in the order
 * of their scores, the highest last. */
static int add_candidate(struct reef_map *map, struct map_candidate *candidate,
			 const void *key)
{
	struct map_candidate *candidates = map->candidates;
	uint32_t i, count = map->candidates_count;

	for (i = 0; i < count; i++)
		if (candidates[i].version == candidate->version)
			return 0;
	if (count == MAP_CANDIDATES && candidates[0].score >= candidate->score)
		return 0;
	candidate->key = malloc(candidate->key_size + (size_t)1);
	if (!candidate->key)
		return -ENOMEM;
	if (candidate->key_size)
		memcpy(candidate->key, key, candidate->key_size);
	if (count == MAP_CANDIDATES) {
		free(candidates[0].key);
		remove_candidate(map, 0);
		count--;
	}
	for (i = 0; i < count && candidates[i].score <= candidate->score;)
		i++;
	memmove(candidates + i + 1, candidates + i,
		(count - i) * sizeof(*candidates));
	candidates[i] = *candidate;
	map->candidates_count = count + 1;
	return 0;
}

struct sample {
	struct reef_map *map;
	uint64_t now_ms;
	uint32_t met;
};

static int note_candidate(void *context, const struct entry *entry)
{
	struct sample *sample = context;
	struct map_candidate candidate = {
		.version = entry->version,
		.key_size = entry->key_size,
		.touched = entry->touched,
		.score = map_use_score(sample->map, entry->touched),
		.expired = map_has_expired(entry->stamp, sample->now_ms),
	};

	sample->met++;
	if (entry->stamp == REEF_MAP_PINNED)
		return 0;
	if (candidate.expired)
		candidate.score = UINT32_MAX;
	return add_candidate(sample->map, &candidate, entry->key);
}

static int take_sample(struct reef_map *map)
{
	struct sample sample = {.map = map};
	uint64_t cursor = map_cursor_random(map);
	uint32_t groups;
	int rc;

	map_refresh_tick(map);
	rc = map_now(map, &sample.now_ms);
	for (groups = 0; !rc && sample.met < SAMPLE && groups < SAMPLE_GROUPS;
	     groups++)
		rc = map_walk_hash(map, &cursor, 1, note_candidate, &sample);
	/* A part of the map that is lost has no candidates. */
	return rc != -REEF_ELOST ? rc : 0;
}

/* --- evicting --- */

int map_evict(struct reef_map *map)
{
	struct map_candidate candidate;
	struct map_removal removal;
	int rc = take_sample(map);

	while (!rc && map->candidates_count) {
		candidate = map->candidates[--map->candidates_count];
		removal = (struct map_removal){
			.key = candidate.key,
			.key_size = candidate.key_size,
			.version = candidate.version,
			.touched = &candidate.touched,
			.gently = true,
		};
		rc = map_remove(map, &removal);
		free(candidate.key);
		/* After a doubt it may be evicted; the size tells later. */
		if (rc == -REEF_EINDOUBT)
			return 1;
		if (rc == -REEF_ELOST)
			rc = 0;
		if (rc == 1 && !candidate.expired)
			map_use_learn(map, candidate.score);
		if (rc == 1 && candidate.expired)
			map->expired++;
		else if (rc == 1)
			map->evicted++;
	}
	return rc;
}

int map_make_room(struct reef_map *map, uint64_t bytes)
{
	uint32_t evictions = 0;
	int rc = 1;

	if (!map->size_max)
		return 0;
	if (bytes > map->size_max)
		return -ENOSPC;
	if (map->eviction == REEF_MAP_KEEP)
		return 0; /* decide() finds out by how much it grows */
	while (rc == 1 && map_size(map) + bytes > map->size_max &&
	       evictions++ < EVICTIONS_MAX)
		rc = map_evict(map);
	if (rc < 0)
		return rc;
	if (map_size(map) > map->size_max + map->size_max / OVER_SHARE + bytes)
		return -ENOSPC;
	return 0;
}
