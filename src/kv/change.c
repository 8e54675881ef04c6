/* change.c - changing keys: every change is one `decide` over the table's.
 *
 * decide() stands between the caller's and the table's: an entry that has
 * expired is not there for the caller, and does not outlive the call: what the
 * caller leaves alone is deleted then (get.c says why). */
#include "kv/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct work {
	struct reef_map *map;
	struct reef_map_change *change;
	struct reef_map_entry put;
	bool met_expired; /* the last time */
	bool too_late;	  /* what is put has expired already */
	int rc;		  /* of the caller's decide */
};

static struct reef_map_entry view(const struct hash_entry *entry)
{
	return (struct reef_map_entry){
		.key = entry->key,
		.key_size = entry->key_size,
		.value = entry->value,
		.value_size = entry->value_size,
		.version = entry->version,
		.expires_ms = entry->stamp,
	};
}

/* What has expired before it is put is not put. */
static int decide_put(struct work *work, struct hash_entry *put)
{
	uint64_t now_ms;
	int rc;

	put->value = work->put.value;
	put->value_size = (uint32_t)work->put.value_size;
	put->stamp = work->put.expires_ms;
	if (!put->stamp)
		return HASH_PUT;
	rc = map_now(work->map, &now_ms);
	if (rc)
		return rc;
	work->too_late = map_has_expired(put->stamp, now_ms);
	return work->too_late ? HASH_DELETE : HASH_PUT;
}

static int decide(void *context, const struct hash_entry *now,
		  struct hash_entry *put)
{
	struct work *work = context;
	struct reef_map_change *change = work->change;
	struct reef_map_entry entry;
	uint64_t now_ms = 0;
	int rc = 0;

	if (now && now->stamp)
		rc = map_now(work->map, &now_ms);
	if (rc)
		return rc;
	work->too_late = false;
	work->met_expired = now && map_has_expired(now->stamp, now_ms);
	work->put = (struct reef_map_entry){0};
	work->map->decisions++;
	if (now)
		entry = view(now);
	rc = change->decide(change->context,
			    now && !work->met_expired ? &entry : NULL,
			    &work->put);
	if (rc == REEF_MAP_PUT && work->put.value_size > work->map->value_max)
		rc = -EINVAL;
	work->rc = rc < 0 ? rc : 0;
	if (rc >= 0)
		change->verdict = (enum reef_map_verdict)rc;
	if (rc == REEF_MAP_PUT)
		return decide_put(work, put);
	if (rc == REEF_MAP_DELETE || work->met_expired)
		return HASH_DELETE;
	return rc < 0 ? rc : HASH_KEEP;
}

int reef_map_apply(struct reef_map *map, struct reef_map_change *change)
{
	struct work work = {.map = map, .change = change};
	struct hash_entry ahead;
	struct hash_change below = {
		.key = change->key,
		.key_size = (uint32_t)change->key_size,
		.decide = decide,
		.context = &work,
	};
	int rc;

	if (change->key_size > map->key_max ||
	    (change->ahead && change->ahead->value_size > map->value_max))
		return -EINVAL;
	if (change->ahead) {
		ahead = (struct hash_entry){
			.value = change->ahead->value,
			.value_size = (uint32_t)change->ahead->value_size,
			.stamp = change->ahead->expires_ms,
		};
		below.ahead = &ahead;
	}
	map->changes++;
	rc = hash_apply(map->table, &below);
	if (!rc && work.met_expired)
		map->expired++;
	if (!rc && change->verdict == REEF_MAP_PUT)
		change->version = work.too_late ? 0 : below.version;
	return rc ? rc : work.rc;
}

/* --- removing, by the map itself --- */

struct removal {
	uint64_t version; /* 0: any */
	bool done;
};

static int decide_removal(void *context, const struct hash_entry *now,
			  struct hash_entry *put)
{
	struct removal *removal = context;

	(void)put;
	removal->done =
		now && (!removal->version || now->version == removal->version);
	return removal->done ? HASH_DELETE : HASH_KEEP;
}

int map_remove(struct reef_map *map, const void *key, size_t key_size,
	       uint64_t version)
{
	struct removal removal = {.version = version};
	struct hash_change change = {
		.key = key,
		.key_size = (uint32_t)key_size,
		.decide = decide_removal,
		.context = &removal,
	};
	int rc = hash_apply(map->table, &change);

	return rc ? rc : removal.done;
}

/* --- the plain ones --- */

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

int reef_map_put_many(struct reef_map *map, struct reef_map_item *items,
		      uint32_t count)
{
	struct reef_map_value *value;

	for (uint32_t i = 0; i < count; i++) {
		value = &items[i].value;
		items[i].status = reef_map_put(
			map, items[i].key, items[i].key_size, value->bytes,
			value->size, value->expires_ms, &value->version);
	}
	return 0;
}
