/* get.c - reading keys.
 *
 * An entry that has expired is "not there", but handles know the time only
 * within some milliseconds: so it is deleted before anybody says so, and who
 * comes later finds the same, whatever its clock says. The deletion, if the
 * version is still that, is the moment at which the key expired. */
#include "base/mutant.h"
#include "index/hash/near.h"
#include "kv/internal.h"
#include "kv/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPTS 1000u /* in each of which another put an expired value */

void reef_map_value_free(struct reef_map_value *value)
{
	free(value->room);
	*value = (struct reef_map_value){0};
}

static void begin_reading(struct hash_reading *reading, const void *key,
			  size_t size, const struct reef_map_value *value)
{
	hash_reading_begin(reading, key, (uint32_t)size, value->room,
			   value->room_size);
}

/* Give the room back to the caller, whatever happened. */
static void return_room(const struct entry_room *room,
			struct reef_map_value *value)
{
	value->room = room->bytes;
	value->room_size = room->size;
}

static void fill_value(struct reef_map *map, const struct entry *entry,
		       struct reef_map_value *value)
{
	value->bytes = entry->value;
	value->size = entry->value_size;
	value->version = entry->version;
	value->expires_ms = entry->stamp;
	value->idle_ms = 0;
	value->frequency = 0;
	if (map->index->notes_uses)
		map_use_describe(map, entry->touched, value);
}

/* Delete the value that was read, if it has expired.  0: it has not.  -ENOENT:
 * it had, and is gone.  -EAGAIN: it had, and the key has another value by now.
 */
static int check_expiry(struct reef_map *map, const void *key, size_t key_size,
			const struct entry *entry)
{
	const struct map_removal removal = {
		.key = key,
		.key_size = key_size,
		.version = entry->version,
	};
	uint64_t now_ms;
	int rc;

	/* A ghost is nothing, and never was: nobody has to remove it. */
	if (entry->stamp == ENTRY_GHOST && !REEF_MUTATED(TXN_GHOST_REMOVED))
		return -ENOENT;
	rc = map_now(map, &now_ms);
	if (rc || !map_has_expired(entry->stamp, now_ms))
		return rc;
	if (REEF_MUTATED(MAP_NO_REMOVE))
		return -ENOENT;
	rc = map_remove(map, &removal);
	if (rc == 1)
		map->expired++;
	/* A client that may only read goes by its own clock. */
	if (rc == 1 || rc == -EACCES)
		return -ENOENT;
	/* After a doubt, reading the key again tells. */
	return rc && rc != -REEF_EINDOUBT ? rc : -EAGAIN;
}

/* Write into the entry that it was used, inside the reef_enter of its lookup.
 * Nobody waits for this note, and it may be lost. */
static void note_use(struct reef_map *map, const struct hash_reading *reading)
{
	uint16_t next;

	if (map_use(map, reading->entry.touched, &next))
		hash_touch(map->table, reading, next);
}

static inline bool is_old_use(const void *context, uint16_t touched,
			      uint16_t *next)
{
	const struct reef_map *map = context;

	*next = map->tick;
	return map_since(map, touched) >= map->use_units;
}

/* Read a key in place, if its case is plain (near.c). Nearly every get ends
 * here, so every instruction counts. It does without the clock, as long as the
 * keeper's beat says that it would be the same; no get is plain until the clock
 * was first asked. */
static inline __attribute__((always_inline)) bool
get_plain(struct reef_map *map, const void *key, size_t key_size,
	  enum map_plain plain, struct reef_map_value *out)
{
	struct entry entry;
	uint64_t now_ms;

	if (plain == MAP_PLAIN_NONE || client_beat(map->reef) != map->beat ||
	    !hash_get_near(map->table, key, (uint32_t)key_size, out->room,
			   out->room_size, is_old_use, map,
			   plain == MAP_PLAIN_COPIED, &entry))
		return false;
	if (entry.stamp &&
	    (map_now(map, &now_ms) || map_has_expired(entry.stamp, now_ms)))
		return false;
	out->bytes = entry.value;
	out->size = entry.value_size;
	out->version = entry.version;
	out->expires_ms = entry.stamp;
	out->frequency = 0;
	out->idle_ms = (uint64_t)map_since(map, entry.touched) * map->unit_ms;
	client_count_lookup(map->reef, entry.value_size);
	return true;
}

int map_get_hash(struct reef_map *map, const void *key, size_t key_size,
		 enum map_purpose purpose, struct entry_room *room,
		 struct entry *entry)
{
	struct hash_reading reading;
	int rc;

	hash_reading_begin(&reading, key, (uint32_t)key_size, room->bytes,
			   room->size);
	reading.blind = purpose == MAP_LOOK;
	reef_enter(map->reef);
	rc = hash_get(map->table, &reading, 1);
	if (!rc)
		rc = reading.status;
	if (!rc && purpose == MAP_USE)
		note_use(map, &reading);
	reef_leave(map->reef);
	*room = reading.room;
	*entry = reading.entry;
	return rc;
}

__attribute__((noinline)) int map_get(struct reef_map *map, const void *key,
				      size_t key_size, enum map_purpose purpose,
				      struct reef_map_value *out)
{
	struct entry_room room = {out->room, out->room_size};
	struct entry entry;
	uint32_t attempt = 0;
	int rc;

	if (key_size > map->key_max)
		return -EINVAL;
	map->beat = client_beat(map->reef);
	map_refresh_tick(map);
	do {
		rc = map->index->get(map, key, key_size, purpose, &room,
				     &entry);
		if (!rc && entry.stamp)
			rc = check_expiry(map, key, key_size, &entry);
	} while (rc == -EAGAIN && ++attempt < ATTEMPTS);
	return_room(&room, out);
	if (!rc)
		fill_value(map, &entry, out);
	if (!rc && purpose == MAP_LOOK)
		out->bytes = NULL;
	return rc == -EAGAIN ? -EBUSY : rc;
}

void map_note_found(struct reef_map *map, int rc)
{
	map->hits += !rc;
	map->misses += rc != 0;
	client_count_get(map->reef, rc);
}

/* A get that is timed, if it finds the key in place; others time themselves,
 * while they wait for the fabric. It stands for those that are not timed, as
 * the clock takes a good part of what they do. */
__attribute__((noinline)) int
map_get_timed(struct reef_map *map, const void *key, size_t key_size,
	      struct reef_map_value *out,
	      int (*get)(struct reef_map *map, const void *key, size_t key_size,
			 struct reef_map_value *out))
{
	const uint64_t told_ns = client_counted_ns(map->reef);
	const uint64_t begun_ns = reef_now_ns();
	int rc;

	/* One hit more, while it is done: it is a get like any other. */
	map->hits++;
	rc = get(map, key, key_size, out);
	map->hits--;
	if (!rc && client_counted_ns(map->reef) == told_ns)
		client_count_time(map->reef, reef_now_ns() - begun_ns,
				  MAP_SAMPLE);
	return rc;
}

/* plain: the map's, known to the compiler. */
static inline __attribute__((always_inline)) int
get_any(struct reef_map *map, const void *key, size_t key_size,
	enum map_plain plain, struct reef_map_value *out)
{
	int rc;

	if (unlikely(map_is_sampled(map)))
		return map_get_timed(map, key, key_size, out, reef_map_get);
	if (likely(key_size <= map->key_max &&
		   get_plain(map, key, key_size, plain, out))) {
		map->hits++;
		return 0;
	}
	rc = map_get(map, key, key_size, MAP_USE, out);
	map_note_found(map, rc);
	return rc;
}

/* Functions of their own, as all in one would cost each. */
static __attribute__((noinline, flatten)) int
get_one(struct reef_map *map, const void *key, size_t key_size,
	struct reef_map_value *out)
{
	return get_any(map, key, key_size, MAP_PLAIN_ONE, out);
}

static __attribute__((noinline, flatten)) int
get_copied(struct reef_map *map, const void *key, size_t key_size,
	   struct reef_map_value *out)
{
	return get_any(map, key, key_size, MAP_PLAIN_COPIED, out);
}

static __attribute__((noinline)) int get_other(struct reef_map *map,
					       const void *key, size_t key_size,
					       struct reef_map_value *out)
{
	return get_any(map, key, key_size, MAP_PLAIN_NONE, out);
}

int reef_map_get(struct reef_map *map, const void *key, size_t key_size,
		 struct reef_map_value *out)
{
	if (likely(map->plain == MAP_PLAIN_ONE))
		return get_one(map, key, key_size, out);
	if (likely(map->plain == MAP_PLAIN_COPIED))
		return get_copied(map, key, key_size, out);
	return get_other(map, key, key_size, out);
}

int reef_map_peek(struct reef_map *map, const void *key, size_t key_size,
		  struct reef_map_value *out)
{
	return map_get(map, key, key_size, MAP_PEEK, out);
}

int reef_map_look(struct reef_map *map, const void *key, size_t key_size,
		  struct reef_map_value *out)
{
	return map_get(map, key, key_size, MAP_LOOK, out);
}

/* --- many --- */

void map_end_item(struct reef_map *map, int status, const struct entry *entry,
		  const struct entry_room *room, uint32_t most,
		  struct reef_map_item *item)
{
	int rc = status;

	if (!rc && entry->stamp)
		rc = check_expiry(map, item->key, item->key_size, entry);
	return_room(room, &item->value);
	if (!rc)
		fill_value(map, entry, &item->value);
	if (rc == -EAGAIN)
		rc = map_get(map, item->key, item->key_size,
			     most ? MAP_LOOK : MAP_USE, &item->value);
	else if (!rc && most && item->value.size > most)
		item->value.bytes = NULL;
	item->status = rc;
	map_note_found(map, rc);
}

/* Write into entries that they were used, in one batch, inside the reef_enter
 * of their lookup. */
static void note_uses(struct reef_map *map, const struct hash_reading *readings,
		      uint32_t count)
{
	struct reef_access accesses[MAP_TOGETHER];
	uint16_t next[MAP_TOGETHER];
	uint32_t notes = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (readings[i].status ||
		    !map_use(map, readings[i].entry.touched, &next[notes]))
			continue;
		accesses[notes] = hash_touch_access(&readings[i], &next[notes]);
		notes++;
	}
	if (notes)
		reef_execute(map->reef, accesses, notes);
}

static int get_together(struct reef_map *map, struct hash_reading *readings,
			struct reef_map_item *items, uint32_t count,
			uint32_t most)
{
	uint32_t i;
	int rc;

	for (i = 0; i < count; i++) {
		begin_reading(&readings[i], items[i].key, items[i].key_size,
			      &items[i].value);
		readings[i].value_most = most;
	}
	map_refresh_tick(map);
	reef_enter(map->reef);
	rc = hash_get(map->table, readings, count);
	if (!rc)
		note_uses(map, readings, count);
	reef_leave(map->reef);
	for (i = 0; i < count; i++) {
		if (!rc) {
			map_end_item(map, readings[i].status,
				     &readings[i].entry, &readings[i].room,
				     most, &items[i]);
			continue;
		}
		return_room(&readings[i].room, &items[i].value);
		items[i].status = rc;
	}
	return rc;
}

/* How many items, from the first on, have keys that are not too long, and so
 * can be looked up together. */
static uint32_t count_together(struct reef_map *map,
			       struct reef_map_item *items, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count && i < MAP_TOGETHER; i++)
		if (items[i].key_size > map->key_max)
			break;
	return i;
}

/* most: longer values are not read; 0: all are. */
static int get_many(struct reef_map *map, struct reef_map_item *items,
		    uint32_t count, uint32_t most)
{
	struct hash_reading *readings = map->readings;
	uint32_t some;
	int rc = 0;

	map->readings = NULL; /* another fiber makes its own */
	if (!readings)
		readings = malloc(MAP_TOGETHER * sizeof(*readings));
	if (!readings)
		return -ENOMEM;
	for (; count && !rc; count -= some, items += some) {
		some = count_together(map, items, count);
		if (some) {
			rc = get_together(map, readings, items, some, most);
			continue;
		}
		items->status = -EINVAL;
		some = 1;
	}
	for (; count; count--, items++)
		items->status = rc;
	if (map->readings)
		free(readings);
	else
		map->readings = readings;
	return rc;
}

int reef_map_get_many(struct reef_map *map, struct reef_map_item *items,
		      uint32_t count)
{
	return get_many(map, items, count, 0);
}

int map_get_many_short(struct reef_map *map, struct reef_map_item *items,
		       uint32_t count, uint32_t most)
{
	return get_many(map, items, count, most);
}
