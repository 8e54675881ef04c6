/* hold.c - what a map does for transactions: see hold.h. */
#include "kv/hold.h"

#include "kv/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reef_map *map_hold_of_tree(struct reef_tree *tree)
{
	return &tree->map;
}

void *map_hold_structure(struct reef_map *map)
{
	return map->table;
}

const struct hold_index *map_hold_index(const struct reef_map *map)
{
	return map->index->holds;
}

struct reef_space *map_hold_space(const struct reef_map *map)
{
	return map->object.space;
}

int map_hold_check(const struct reef_map *map, size_t key_size,
		   size_t value_size)
{
	return key_size > map->key_max || value_size > map->value_max ? -EINVAL
								      : 0;
}

int map_hold_now(struct reef_map *map, uint64_t *ms)
{
	return map_now(map, ms);
}

int map_hold_is_there(struct reef_map *map, const struct entry *entry)
{
	uint64_t now_ms;
	int rc;

	if (!entry->stamp)
		return 1;
	if (entry->stamp == ENTRY_GHOST)
		return 0;
	rc = map_now(map, &now_ms);
	return rc ? rc : !map_has_expired(entry->stamp, now_ms);
}

int map_hold_remove(struct reef_map *map, const void *key, size_t key_size,
		    uint64_t version, bool gently)
{
	const struct map_removal removal = {
		.key = key,
		.key_size = key_size,
		.version = version,
		.gently = gently,
	};

	return map_remove(map, &removal);
}

/* --- ghosts --- */

static int decide_ghost(void *context, const struct entry *now,
			struct entry *put)
{
	(void)context;
	put->stamp = ENTRY_GHOST;
	return now ? ENTRY_KEEP : ENTRY_PUT;
}

int map_hold_ghost(struct reef_map *map, const void *key, size_t key_size,
		   uint64_t *version)
{
	const struct entry ghost = {.stamp = ENTRY_GHOST};
	struct entry_change change = {
		.key = key,
		.key_size = (uint32_t)key_size,
		.decide = decide_ghost,
		.ahead = &ghost,
		.blind = true,
		.gently = true,
	};
	int rc = map->index->apply(map->table, &change);

	*version = rc ? 0 : change.version;
	return rc;
}

/* --- size --- */

int map_hold_make_room(struct reef_map *map, size_t key_size, size_t value_size)
{
	map_refresh_tick(map);
	return map_make_room(map, map_bytes_of(key_size, value_size));
}

bool map_hold_is_limited(const struct reef_map *map)
{
	return map->size_max && map->eviction == REEF_MAP_KEEP;
}

int map_hold_fits(const struct reef_map *map, int64_t more)
{
	if (!map_hold_is_limited(map) || more <= 0)
		return 0;
	return map_size(map) + (uint64_t)more > map->size_max ? -ENOSPC : 0;
}

int64_t map_hold_bytes(size_t key_size, size_t value_size)
{
	return (int64_t)map_bytes_of(key_size, value_size);
}

uint16_t map_hold_touched(struct reef_map *map, const struct entry *before)
{
	if (!map->index->notes_uses)
		return 0;
	return map_use_first(map, before ? &before->touched : NULL);
}

void map_hold_changed(struct reef_map *map, int64_t bytes, bool expires)
{
	map->changes++;
	map->decisions++;
	map_account(map, bytes);
	if (expires && !map->expiring)
		map_note_expiring(map);
}

void map_hold_care(struct reef_map *map)
{
	map_care(map);
}

/* --- the spare block --- */

void map_spare_keep(struct reef_map *map)
{
	uint64_t at;
	int rc;

	if (map->spare)
		return;
	reef_enter(map->reef); /* so that it does not wait for room */
	rc = reef_alloc_kind(map->object.space, REEF_BLOCK_TXN, INTENT_FIRST,
			     &at);
	reef_leave(map->reef);
	if (rc)
		return;
	if (map->spare) /* another fiber's */
		reef_free(map->object.space, at, 0);
	else
		map->spare = at;
}

void map_spare_free(struct reef_map *map)
{
	if (map->spare)
		reef_free(map->object.space, map->spare, 0);
	map->spare = 0;
}

uint64_t map_hold_take_spare(struct reef_map *map)
{
	uint64_t spare = map->spare;

	map->spare = 0;
	return spare;
}

/* --- telling --- */

int map_hold_tell(struct reef_map *map, const struct entry *entry,
		  struct reef_map_value *out)
{
	void *room = out->room;

	if (out->room_size <= entry->value_size) {
		room = realloc(room, entry->value_size + (size_t)1);
		if (!room)
			return -ENOMEM;
		out->room = room;
		out->room_size = entry->value_size + (size_t)1;
	}
	if (entry->value_size)
		memcpy(room, entry->value, entry->value_size);
	out->bytes = room;
	out->size = entry->value_size;
	out->version = entry->version;
	out->expires_ms = entry->stamp;
	out->idle_ms = 0;
	out->frequency = 0;
	map_use_describe(map, entry->touched, out);
	return 0;
}
