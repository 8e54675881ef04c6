/* walk.c - all keys of a map: scan, count, clear; statistics.
 *
 * A cursor is the table's (walk.c there): group above, reversed suffix in the
 * lower 28 bits. Whoever brings one may have made it up: any number is some
 * place, or the end. */
#include "kv/internal.h"
#include "kv/pieces.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX_BITS 28
#define ATTEMPTS 16 /* of a deletion whose connection is lost */
#define STEPS 64u   /* of one round of those that go through all */

/* --- scan --- */

struct scan {
	struct reef_map *map;
	int (*each)(void *context, const struct reef_map_entry *entry);
	void *context;
	uint64_t now_ms; /* 0: not asked for yet */
};

static int scan_entry(void *context, const struct entry *entry)
{
	struct scan *scan = context;
	const struct reef_map_entry told = map_entry_of(entry);
	int rc = 0;

	if (entry->stamp && !scan->now_ms)
		rc = map_time(scan->map, &scan->now_ms);
	if (rc || map_has_expired(entry->stamp, scan->now_ms))
		return rc;
	return scan->each(scan->context, &told);
}

int map_walk(struct reef_map *map, uint64_t *cursor, uint32_t steps,
	     uint32_t flags,
	     int (*each)(void *context, const struct entry *entry),
	     void *context)
{
	struct hash_cursor place = {
		.group = *cursor >> SUFFIX_BITS > UINT32_MAX
				 ? UINT32_MAX
				 : (uint32_t)(*cursor >> SUFFIX_BITS),
		.suffix = (uint32_t)*cursor & ((1u << SUFFIX_BITS) - 1),
	};
	int rc = hash_walk(map->table, &place, steps, flags, each, context);

	*cursor = (uint64_t)place.group << SUFFIX_BITS | place.suffix;
	return rc;
}

int map_walk_hash(struct reef_map *map, uint64_t *cursor, uint32_t steps,
		  int (*each)(void *context, const struct entry *entry),
		  void *context)
{
	return map_walk(map, cursor, steps, HASH_WALK_HEADS | HASH_WALK_REST,
			each, context);
}

uint64_t map_cursor_random(struct reef_map *map)
{
	return reef_random_below(&map->random, map->of_index) << SUFFIX_BITS |
	       reef_random_below(&map->random, 1u << SUFFIX_BITS);
}

static int scan_map(struct reef_map *map, uint64_t *cursor, uint32_t steps,
		    uint32_t flags,
		    int (*each)(void *context,
				const struct reef_map_entry *entry),
		    void *context)
{
	struct scan scan = {.map = map, .each = each, .context = context};

	if (!steps)
		return -EINVAL;
	/* A tick that fails is met again by whoever needs the time. */
	map_refresh_tick(map);
	return map_walk(map, cursor, steps, flags, scan_entry, &scan);
}

int reef_map_scan(struct reef_map *map, uint64_t *cursor, uint32_t steps,
		  int (*each)(void *context,
			      const struct reef_map_entry *entry),
		  void *context)
{
	return scan_map(map, cursor, steps, 0, each, context);
}

int reef_map_scan_keys(struct reef_map *map, uint64_t *cursor, uint32_t steps,
		       int (*each)(void *context,
				   const struct reef_map_entry *entry),
		       void *context)
{
	return scan_map(map, cursor, steps, HASH_WALK_HEADS, each, context);
}

int reef_map_count(struct reef_map *map, uint64_t *out)
{
	struct hash_count count;
	int rc = hash_count(map->table, &count);

	if (!rc)
		*out = count.keys;
	return rc;
}

/* --- keys that are to go --- */

/* Of each key these bytes are kept: version, size, key. */
int map_doomed_note(struct map_doomed *doomed, const struct entry *entry)
{
	uint64_t head[2] = {entry->version, entry->key_size};
	size_t size = sizeof(head) + entry->key_size;
	char *bytes;

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

int map_doomed_remove(struct reef_map *map, struct map_doomed *doomed, bool any,
		      uint64_t *removed)
{
	uint64_t head[2];
	size_t at;
	int rc, attempt;

	for (at = 0; at < doomed->used; at += sizeof(head) + head[1]) {
		memcpy(head, doomed->bytes + at, sizeof(head));
		attempt = 0;
		do
			rc = map_remove(map,
					&(struct map_removal){
						.key = doomed->bytes + at +
						       sizeof(head),
						.key_size = head[1],
						.version = any ? 0 : head[0],
						.gently = !any,
					});
		while (rc == -REEF_EINDOUBT && attempt++ < ATTEMPTS);
		if (rc < 0)
			return rc;
		if (removed)
			*removed += (uint32_t)rc;
	}
	doomed->used = 0;
	return 0;
}

void map_doomed_free(struct map_doomed *doomed)
{
	free(doomed->bytes);
}

static int note_any(void *context, const struct entry *entry)
{
	return map_doomed_note(context, entry);
}

int map_clear_some(struct reef_map *map, uint64_t *cursor)
{
	struct map_doomed doomed = {0};
	uint64_t next = *cursor;
	int rc =
		map_walk(map, &next, STEPS, HASH_WALK_HEADS, note_any, &doomed);

	if (!rc)
		rc = map_doomed_remove(map, &doomed, true, NULL);
	map_doomed_free(&doomed);
	map_account_flush(map);
	if (rc)
		return rc;
	*cursor = next;
	return 0;
}

int reef_map_clear(struct reef_map *map)
{
	uint64_t cursor = 0;
	int rc;

	do
		rc = map_clear_some(map, &cursor);
	while (!rc && cursor);
	return rc;
}

/* --- statistics --- */

int reef_map_stats(struct reef_map *map, struct reef_map_stats *out)
{
	struct hash_count count;
	uint64_t bytes;
	int rc = hash_count(map->table, &count);

	if (!rc)
		rc = reef_read(map->reef, MAP_WORD(map, entry_bytes), &bytes,
			       8);
	if (rc)
		return rc;
	map->size_known = bytes;
	*out = (struct reef_map_stats){
		.keys = count.keys,
		.slots = count.slots,
		.table_bytes = count.bytes,
		.subtables = count.subtables,
		.depth = count.depth,
		.entry_bytes = map->size_max ? map_size(map) : 0,
		.size_max = map->size_max,
		.eviction = map->eviction,
		.key_max = map->key_max,
		.value_max = map->value_max,
		.gets = map->hits + map->misses,
		.hits = map->hits,
		.changes = map->changes,
		.retries = map->decisions > map->changes
				   ? map->decisions - map->changes
				   : 0,
		.expired = map->expired,
		.evicted = map->evicted,
	};
	return 0;
}
