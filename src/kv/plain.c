/* plain.c - the calls on one key that are a decide of their own, and put_many.
 */
#include "kv/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- put and delete --- */

enum condition { ALWAYS, IF_ABSENT, IF_THERE, IF_VERSION };

struct plain {
	struct reef_map_entry put;
	enum condition condition;
	uint64_t expected;
	enum reef_map_verdict verdict;
};

static int decide_plain(void *context, const struct reef_map_entry *now,
			struct reef_map_entry *put)
{
	const struct plain *plain = context;

	if (plain->condition == IF_ABSENT && now)
		return -EEXIST;
	if (plain->condition >= IF_THERE && !now)
		return -ENOENT;
	if (plain->condition == IF_VERSION && now->version != plain->expected)
		return -ESTALE;
	*put = plain->put;
	return (int)plain->verdict;
}

static int apply_plain(struct reef_map *map, const void *key, size_t key_size,
		       struct plain *plain, uint64_t *version)
{
	struct reef_map_change change = {
		.key = key,
		.key_size = key_size,
		.decide = decide_plain,
		.context = plain,
		.ahead = plain->verdict == REEF_MAP_PUT ? &plain->put : NULL,
		.blind = true,
	};
	int rc = reef_map_apply(map, &change);

	if (!rc && version)
		*version = change.version;
	return rc;
}

static int put_if(struct reef_map *map, const void *key, size_t key_size,
		  const void *value, size_t value_size, uint64_t expires_ms,
		  enum condition condition, uint64_t expected,
		  uint64_t *version)
{
	struct plain plain = {
		.put =
			{
				.value = value,
				.value_size = value_size,
				.expires_ms = expires_ms,
			},
		.condition = condition,
		.expected = expected,
		.verdict = REEF_MAP_PUT,
	};

	return apply_plain(map, key, key_size, &plain, version);
}

int reef_map_put(struct reef_map *map, const void *key, size_t key_size,
		 const void *value, size_t value_size, uint64_t expires_ms,
		 uint64_t *version)
{
	return put_if(map, key, key_size, value, value_size, expires_ms, ALWAYS,
		      0, version);
}

int reef_map_insert(struct reef_map *map, const void *key, size_t key_size,
		    const void *value, size_t value_size, uint64_t expires_ms,
		    uint64_t *version)
{
	return put_if(map, key, key_size, value, value_size, expires_ms,
		      IF_ABSENT, 0, version);
}

int reef_map_update(struct reef_map *map, const void *key, size_t key_size,
		    const void *value, size_t value_size, uint64_t expires_ms,
		    uint64_t *version)
{
	return put_if(map, key, key_size, value, value_size, expires_ms,
		      IF_THERE, 0, version);
}

int reef_map_replace(struct reef_map *map, const void *key, size_t key_size,
		     uint64_t expected, const void *value, size_t value_size,
		     uint64_t expires_ms, uint64_t *version)
{
	return put_if(map, key, key_size, value, value_size, expires_ms,
		      IF_VERSION, expected, version);
}

int reef_map_delete(struct reef_map *map, const void *key, size_t key_size,
		    uint64_t expected)
{
	struct plain plain = {
		.condition = expected ? IF_VERSION : IF_THERE,
		.expected = expected,
		.verdict = REEF_MAP_DELETE,
	};

	return apply_plain(map, key, key_size, &plain, NULL);
}

/* --- counters --- */

#define DIGITS_MAX 20 /* of 64 bits, with a sign */

struct addition {
	int64_t add, sum;
	char text[DIGITS_MAX + 2];
};

/* A number is written in one way only: no blanks, no plus, no zeroes before. */
static bool read_number(const char *text, size_t size, int64_t *out)
{
	char again[DIGITS_MAX + 2] = {0};
	int64_t number;
	int length;

	if (!size || size > DIGITS_MAX)
		return false;
	memcpy(again, text, size);
	errno = 0;
	number = strtoll(again, NULL, 10);
	if (errno)
		return false;
	length = snprintf(again, sizeof(again), "%lld", (long long)number);
	*out = number;
	return (size_t)length == size && !memcmp(again, text, size);
}

static int decide_addition(void *context, const struct reef_map_entry *now,
			   struct reef_map_entry *put)
{
	struct addition *addition = context;
	int64_t number = 0;

	if (now && !read_number(now->value, now->value_size, &number))
		return -EDOM;
	if (__builtin_add_overflow(number, addition->add, &addition->sum))
		return -ERANGE;
	put->value_size =
		(size_t)snprintf(addition->text, sizeof(addition->text), "%lld",
				 (long long)addition->sum);
	put->value = addition->text;
	put->expires_ms = now ? now->expires_ms : 0;
	return REEF_MAP_PUT;
}

int reef_map_add(struct reef_map *map, const void *key, size_t key_size,
		 int64_t add, int64_t *after)
{
	struct addition addition = {.add = add};
	struct reef_map_change change = {
		.key = key,
		.key_size = key_size,
		.decide = decide_addition,
		.context = &addition,
	};
	int rc = reef_map_apply(map, &change);

	if (!rc && after)
		*after = addition.sum;
	return rc;
}

/* --- append --- */

struct addendum {
	const void *bytes;
	size_t count, size, max;
	char *all;
};

static int decide_addendum(void *context, const struct reef_map_entry *now,
			   struct reef_map_entry *put)
{
	struct addendum *addendum = context;
	size_t before = now ? now->value_size : 0;
	char *all;

	if (addendum->count > addendum->max - before)
		return -EINVAL;
	addendum->size = before + addendum->count;
	if (now && !addendum->count)
		return REEF_MAP_LEAVE;
	all = realloc(addendum->all, addendum->size + 1);
	if (!all)
		return -ENOMEM;
	addendum->all = all;
	if (before)
		memcpy(all, now->value, before);
	if (addendum->count)
		memcpy(all + before, addendum->bytes, addendum->count);
	put->value = all;
	put->value_size = addendum->size;
	put->expires_ms = now ? now->expires_ms : 0;
	return REEF_MAP_PUT;
}

int reef_map_append(struct reef_map *map, const void *key, size_t key_size,
		    const void *bytes, size_t count, size_t *size)
{
	struct addendum addendum = {
		.bytes = bytes,
		.count = count,
		.max = map->value_max,
	};
	struct reef_map_change change = {
		.key = key,
		.key_size = key_size,
		.decide = decide_addendum,
		.context = &addendum,
	};
	int rc = reef_map_apply(map, &change);

	if (!rc && size)
		*size = addendum.size;
	free(addendum.all);
	return rc;
}

/* --- expiry --- */

static int decide_expiry(void *context, const struct reef_map_entry *now,
			 struct reef_map_entry *put)
{
	const uint64_t *expires_ms = context;

	if (!now)
		return -ENOENT;
	if (now->expires_ms == *expires_ms)
		return REEF_MAP_LEAVE;
	put->value = now->value;
	put->value_size = now->value_size;
	put->expires_ms = *expires_ms;
	return REEF_MAP_PUT;
}

int reef_map_expire(struct reef_map *map, const void *key, size_t key_size,
		    uint64_t expires_ms)
{
	struct reef_map_change change = {
		.key = key,
		.key_size = key_size,
		.decide = decide_expiry,
		.context = &expires_ms,
	};
	uint64_t now_ms = 0;
	int rc = expires_ms ? map_now(map, &now_ms) : 0;

	if (rc)
		return rc;
	if (map_has_expired(expires_ms, now_ms))
		return reef_map_delete(map, key, key_size, 0);
	return reef_map_apply(map, &change);
}

/* --- many --- */

struct putting {
	struct plain plain;
	struct reef_map_change change;
	struct map_work work;
};

static void begin_item(struct reef_map *map, const struct reef_map_item *item,
		       struct putting *putting)
{
	putting->plain = (struct plain){
		.put =
			{
				.value = item->value.bytes,
				.value_size = item->value.size,
				.expires_ms = item->value.expires_ms,
			},
		.verdict = REEF_MAP_PUT,
	};
	putting->change = (struct reef_map_change){
		.key = item->key,
		.key_size = item->key_size,
		.decide = decide_plain,
		.context = &putting->plain,
		.ahead = &putting->plain.put,
		.blind = true,
	};
	map_work_begin(&putting->work, map, &putting->change, NULL);
}

/* End one put of many. One for which the table had no room is put once more, by
 * itself. */
static void end_item(struct reef_map *map, struct reef_map_item *item,
		     struct putting *putting, int status)
{
	if (status == -ENOSPC || status == -EDQUOT)
		status = reef_map_put(map, item->key, item->key_size,
				      item->value.bytes, item->value.size,
				      item->value.expires_ms,
				      &putting->change.version);
	else if (!status)
		status = map_work_end(&putting->work);
	item->status = status;
	if (!status)
		item->value.version = putting->change.version;
}

static int put_together(struct reef_map *map, struct putting *puttings,
			struct reef_map_item *items, uint32_t count)
{
	struct entry_change changes[MAP_TOGETHER];
	uint32_t i;
	int rc;

	map_refresh_tick(map);
	for (i = 0; i < count; i++) {
		begin_item(map, &items[i], &puttings[i]);
		changes[i] = puttings[i].work.below;
	}
	map->changes += count;
	rc = map->index->put_many(map->table, changes, count);
	for (i = 0; i < count; i++) {
		puttings[i].work.below.version = changes[i].version;
		end_item(map, &items[i], &puttings[i],
			 rc ? rc : changes[i].status);
	}
	map_care(map);
	return rc == -ENOSPC || rc == -EDQUOT ? 0 : rc;
}

/* How many items, from the first on, may be put together: each must be within
 * the limits, and there must be room for all of them. */
static uint32_t count_together(struct reef_map *map,
			       const struct reef_map_item *items,
			       uint32_t count)
{
	uint64_t bytes = 0;
	uint32_t i;

	if (map->eviction == REEF_MAP_LFU)
		return 0;
	for (i = 0; i < count && i < MAP_TOGETHER; i++) {
		bytes += map_bytes_of(items[i].key_size, items[i].value.size);
		if (items[i].key_size > map->key_max ||
		    items[i].value.size > map->value_max ||
		    (map->size_max && bytes > map->size_max / 8))
			break;
	}
	return i > 1 && !map_make_room(map, bytes) ? i : 0;
}

int reef_map_put_many(struct reef_map *map, struct reef_map_item *items,
		      uint32_t count)
{
	struct putting *puttings;
	uint32_t some;
	int rc = 0;

	puttings = malloc(MAP_TOGETHER * sizeof(*puttings));
	if (!puttings)
		return -ENOMEM;
	for (; count && !rc; count -= some, items += some) {
		some = count_together(map, items, count);
		if (some) {
			rc = put_together(map, puttings, items, some);
			continue;
		}
		some = 1;
		items->status = reef_map_put(
			map, items->key, items->key_size, items->value.bytes,
			items->value.size, items->value.expires_ms,
			&items->value.version);
	}
	for (; count; count--, items++)
		items->status = rc;
	free(puttings);
	return rc;
}
