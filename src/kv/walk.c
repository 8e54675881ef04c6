/* walk.c - all keys of a map: scan, count, clear, sweep.
 *
 * A cursor is the table's (walk.c there): group above, reversed suffix in the
 * lower 28 bits. Whoever brings one may have made it up: any number is some
 * place, or the end. */
#include "kv/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX_BITS 28
#define STEPS 64u /* of one round of those that go through all */

/* --- scan --- */

struct scan {
	struct reef_map *map;
	int (*each)(void *context, const struct reef_map_entry *entry);
	void *context;
	uint64_t now_ms; /* 0: nobody asked yet */
};

static int scan_entry(void *context, const struct hash_entry *entry)
{
	struct scan *scan = context;
	const struct reef_map_entry told = {
		.key = entry->key,
		.key_size = entry->key_size,
		.value = entry->value,
		.value_size = entry->value_size,
		.version = entry->version,
		.expires_ms = entry->stamp,
	};
	int rc = 0;

	if (entry->stamp && !scan->now_ms)
		rc = map_now(scan->map, &scan->now_ms);
	if (rc || map_has_expired(entry->stamp, scan->now_ms))
		return rc;
	return scan->each(scan->context, &told);
}

static int walk(struct reef_map *map, uint64_t *cursor, uint32_t steps,
		int (*each)(void *context, const struct hash_entry *entry),
		void *context)
{
	struct hash_cursor place = {
		.group = *cursor >> SUFFIX_BITS > UINT32_MAX
				 ? UINT32_MAX
				 : (uint32_t)(*cursor >> SUFFIX_BITS),
		.suffix = (uint32_t)*cursor & ((1u << SUFFIX_BITS) - 1),
	};
	int rc = hash_walk(map->table, &place, steps, each, context);

	*cursor = rc == 1 ? 0
			  : (uint64_t)place.group << SUFFIX_BITS | place.suffix;
	return rc;
}

int reef_map_scan(struct reef_map *map, uint64_t *cursor, uint32_t steps,
		  int (*each)(void *context,
			      const struct reef_map_entry *entry),
		  void *context)
{
	struct scan scan = {.map = map, .each = each, .context = context};

	return walk(map, cursor, steps, scan_entry, &scan);
}

static int count_entry(void *context, const struct hash_entry *entry)
{
	uint64_t *count = context;

	(void)entry;
	++*count;
	return 0;
}

int reef_map_count(struct reef_map *map, uint64_t *out)
{
	uint64_t cursor = 0, count = 0;
	int rc;

	do
		rc = walk(map, &cursor, STEPS, count_entry, &count);
	while (!rc);
	if (rc != 1)
		return rc;
	*out = count;
	return 0;
}

/* --- keys that are to go --- */

struct doomed {
	struct reef_map *map;
	bool all; /* else: only what has expired */
	uint64_t now_ms;
	char *bytes; /* of each: version, size, key */
	size_t used, room;
};

static int note_doomed(void *context, const struct hash_entry *entry)
{
	struct doomed *doomed = context;
	uint64_t head[2] = {entry->version, entry->key_size};
	size_t size = sizeof(head) + entry->key_size;
	char *bytes;

	if (!doomed->all && !map_has_expired(entry->stamp, doomed->now_ms))
		return 0;
	if (doomed->used + size > doomed->room) {
		bytes = realloc(doomed->bytes, 2 * (doomed->used + size));
		if (!bytes)
			return -ENOMEM;
		doomed->bytes = bytes;
		doomed->room = 2 * (doomed->used + size);
	}
	memcpy(doomed->bytes + doomed->used, head, sizeof(head));
	if (entry->key_size)
		memcpy(doomed->bytes + doomed->used + sizeof(head), entry->key,
		       entry->key_size);
	doomed->used += size;
	return 0;
}

/* Delete what was noted; how many that were. */
static int remove_doomed(struct doomed *doomed)
{
	uint64_t head[2];
	size_t at;
	int rc, removed = 0;

	for (at = 0; at < doomed->used; at += sizeof(head) + head[1]) {
		memcpy(head, doomed->bytes + at, sizeof(head));
		rc = map_remove(doomed->map, doomed->bytes + at + sizeof(head),
				head[1], doomed->all ? 0 : head[0]);
		if (rc < 0)
			return rc;
		removed += rc;
	}
	doomed->used = 0;
	return removed;
}

int reef_map_clear(struct reef_map *map)
{
	struct doomed doomed = {.map = map, .all = true};
	uint64_t cursor = 0;
	int rc, removed = 0;

	do {
		rc = walk(map, &cursor, STEPS, note_doomed, &doomed);
		if (rc >= 0)
			removed = remove_doomed(&doomed);
	} while (!rc && removed >= 0);
	free(doomed.bytes);
	if (rc < 0)
		return rc;
	return removed < 0 ? removed : 0;
}

int reef_map_sweep(struct reef_map *map, uint32_t steps)
{
	struct doomed doomed = {.map = map};
	int rc = map_now(map, &doomed.now_ms);

	if (!rc)
		rc = walk(map, &map->sweep_cursor, steps, note_doomed, &doomed);
	if (rc >= 0)
		rc = remove_doomed(&doomed);
	if (rc > 0)
		map->expired += (uint32_t)rc;
	free(doomed.bytes);
	return rc;
}

/* --- statistics --- */

int reef_map_stats(struct reef_map *map, struct reef_map_stats *out)
{
	struct reef_map_stats stats = {
		.size_max = map->size_max,
		.eviction = map->eviction,
		.key_max = map->key_max,
		.value_max = map->value_max,
		.gets = map->gets,
		.hits = map->hits,
		.changes = map->changes,
		.retries = map->decisions > map->changes
				   ? map->decisions - map->changes
				   : 0,
		.expired = map->expired,
	};
	int rc = reef_map_count(map, &stats.keys);

	if (!rc)
		*out = stats;
	return rc;
}
