/* map.c - open a map, close it, drop it; whichever index has its keys.
 *
 * A map is a named object (object/object.h); the word `root` in its body says
 * where its table is, or its tree, and whether it is being dropped:
 *
 *      0 --make_table()--> root --begin_drop()--> root | DROPPING
 *      |                                               | drop_table()
 *      +-------------------begin_drop()-----------> DROPPING --> unbound
 *
 * (1) A name is unbound only when its map is DROPPING and its table is gone.
 *     Whoever opens or drops one that is DROPPING does that first, so a dropper
 *     may die anywhere.
 * (2) Of two that make the table one wins the CAS, and the other's goes.
 *     In the place of one that is lost comes another, if REEF_MAP_RENEW asks
 *     for that; the word does not go back to 0 (R9).
 * (3) Who takes the root out of the word frees it. Whoever has the table open
 *     is told by the table: -REEF_EDROPPED. */
#include "index/hash/hold.h"
#include "kv/internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT 2 /* 1: slots had no bit for intents */
/* Each further attempt needs another client that made or dropped the map. */
#define ATTEMPTS 64

#define GROUPS 64 /* of a subtable of its table */

enum limit { KEY_MAX, VALUE_MAX, SIZE_LOW, SIZE_HIGH, EVICTION, OF_INDEX };

struct hash_options map_tables;

/* --- the table as an index of a map --- */

static int create_hash(struct reef_space *space, uint32_t of_index,
		       uint64_t owner, uint64_t *root)
{
	const struct hash_options options = {
		.groups = of_index,
		.seed = map_tables.seed,
	};

	return hash_create(space, &options, owner, root);
}

static int open_hash(struct reef_space *space, uint64_t root, uint64_t remember,
		     void **out)
{
	struct hash_table *table;
	int rc = hash_open(space, root, (uint32_t)remember, &table);

	if (!rc)
		*out = table;
	return rc;
}

static void close_hash(void *index)
{
	hash_close(index);
}

static uint64_t owner_of_hash(const void *index)
{
	return hash_owner(index);
}

static int drop_hash(void *index)
{
	return hash_drop(index);
}

static int apply_hash(void *index, struct entry_change *change)
{
	return hash_apply(index, change);
}

static int put_many_hash(void *index, struct entry_change *changes,
			 uint32_t count)
{
	return hash_put_many(index, changes, count);
}

static const struct map_index hash_index = {
	.kind = OBJECT_MAP,
	.format = FORMAT,
	.notes_uses = true,
	.holds = &hash_holds,
	.create = create_hash,
	.open = open_hash,
	.close = close_hash,
	.owner = owner_of_hash,
	.drop = drop_hash,
	.get = map_get_hash,
	.apply = apply_hash,
	.put_many = put_many_hash,
	.walk = map_walk_hash,
};

/* --- options --- */

static int check_options(struct reef_map_options *options)
{
	if (!options->key_max)
		options->key_max = MAP_KEY_MAX;
	if (!options->value_max)
		options->value_max = MAP_VALUE_MAX;
	if (options->flags & ~(REEF_MAP_EXISTING | REEF_MAP_RENEW) ||
	    options->key_max > MAP_KEY_MAX ||
	    options->value_max > MAP_VALUE_MAX ||
	    (unsigned)options->eviction >= REEF_MAP_EVICTIONS)
		return -EINVAL;
	return 0;
}

static struct object_shape shape_of(const struct map_making *making)
{
	const struct reef_map_options *options = &making->options;

	return (struct object_shape){
		.kind = making->index->kind,
		.format = making->index->format,
		.limits =
			{
				[KEY_MAX] = options->key_max,
				[VALUE_MAX] = options->value_max,
				[SIZE_LOW] = (uint32_t)options->size_max,
				[SIZE_HIGH] =
					(uint32_t)(options->size_max >> 32),
				[EVICTION] = (uint32_t)options->eviction,
				[OF_INDEX] = making->of_index,
			},
		.body_size = sizeof(struct map_body),
	};
}

static int open_object(struct reef_space *space, const char *name,
		       const struct map_making *making, struct object *object)
{
	const struct object_shape shape = shape_of(making);

	static_assert(REEF_MAP_EXISTING == OBJECT_EXISTING, "one flag");
	return object_open(space, name, &shape,
			   making->options.flags & REEF_MAP_EXISTING, object);
}

int map_cas(struct reef *reef, uint64_t at, uint64_t compare, uint64_t value,
	    uint64_t *now)
{
	uint64_t there;
	int rc = reef_cas(reef, at, compare, value, &there);

	if (!rc && there == compare)
		there = value;
	if (rc == -REEF_EINDOUBT)
		rc = reef_read(reef, at, &there, 8);
	if (!rc && now)
		*now = there;
	return rc;
}

static uint64_t root_at(const struct object *object)
{
	return object->body + offsetof(struct map_body, root);
}

/* Open the table that `root` names. *word: what `root` is.  1: it names
 * nothing, or the map is DROPPING and is not opened to_drop. */
static int open_table(const struct object *object,
		      const struct map_making *making, bool to_drop,
		      uint64_t *word, void **out)
{
	uint64_t root;
	int rc;

	/* Inside, so that it is still that table when it is opened. */
	reef_enter(object->reef);
	rc = reef_read(object->reef, root_at(object), word, 8);
	root = *word & ~MAP_DROPPING;
	if (!rc && (!root || (*word & MAP_DROPPING && !to_drop)))
		rc = 1;
	if (!rc)
		rc = making->index->open(object->space, root, making->remember,
					 out);
	reef_leave(object->reef);
	/* (R10) Another map's table is none of ours. */
	if (!rc && making->index->owner(*out) != root_at(object)) {
		making->index->close(*out);
		*out = NULL;
		rc = -REEF_ECORRUPT;
	}
	return rc;
}

/* Drop a table that `root` does not name, and free its root: (3). */
static int drop_unnamed_table(const struct object *object,
			      const struct map_index *index, void *table,
			      uint64_t root)
{
	int rc = index->drop(table);

	index->close(table);
	return rc ? rc : reef_free(object->space, root, REEF_FREE_LATER);
}

/* Make a table and put it into `root` in the place of `old`, if that is still
 * there: (2). */
static int make_table(const struct object *object,
		      const struct map_index *index, uint64_t old)
{
	uint64_t root, now;
	void *table;
	int rc = index->create(object->space, object->limits[OF_INDEX],
			       root_at(object), &root);

	if (rc)
		return rc;
	do
		rc = map_cas(object->reef, root_at(object), old, root, &now);
	while (!rc && now == old);
	if (rc || (now & ~MAP_DROPPING) == root)
		return rc;
	rc = index->open(object->space, root, 1, &table);
	return rc ? rc : drop_unnamed_table(object, index, table, root);
}

/* Drop the table of a map that is DROPPING: (1), (3). */
static int drop_table(const struct object *object,
		      const struct map_index *index)
{
	const struct map_making making = {.index = index, .remember = 1};
	void *table = NULL;
	uint64_t word, before;
	int rc = open_table(object, &making, true, &word, &table);

	if (rc == 1)
		return 0;
	if (!rc)
		rc = index->drop(table);
	index->close(table);
	/* A table that is lost or damaged can only be forgotten. */
	if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT)
		return 0;
	if (rc && rc != -REEF_EDROPPED)
		return rc;
	rc = reef_cas(object->reef, root_at(object), word, MAP_DROPPING,
		      &before);
	/* After a doubt it may be another that took the root out and frees it.
	 */
	if (rc)
		return rc == -REEF_EINDOUBT ? 0 : rc;
	if (before == word)
		reef_free(object->space, word & ~MAP_DROPPING, REEF_FREE_LATER);
	return 0;
}

static int finish_drop(const struct object *object, const char *name,
		       const struct map_index *index)
{
	int rc = drop_table(object, index);

	if (rc)
		return rc;
	rc = object_unbind(object, name);
	return rc == -ENOENT ? 0 : rc;
}

/* Put a new table in the place of one that is lost. `root` does not go back to
 * 0 in between (R9). */
static int renew_table(const struct object *object,
		       const struct map_index *index, uint64_t word)
{
	uint64_t bytes_at =
		object->body + offsetof(struct map_body, entry_bytes);
	uint64_t bytes;
	int rc = make_table(object, index, word);

	if (!rc)
		rc = reef_read(object->reef, bytes_at, &bytes, 8);
	return rc ? rc : map_cas(object->reef, bytes_at, bytes, 0, NULL);
}

/* Try once to open the object and its table.  1: something was done that this
 * needs, or another changed it; try again. */
static int try_open(struct reef_space *space, const char *name,
		    const struct map_making *making, struct object *object,
		    void **table)
{
	const struct object_shape shape = shape_of(making);
	const struct map_index *index = making->index;
	bool renew = making->options.flags & REEF_MAP_RENEW;
	uint64_t word;
	int rc = open_object(space, name, making, object);

	if (rc == -REEF_ELOST && renew)
		rc = object_renew(space, name, &shape, object);
	if (rc)
		return rc == -EAGAIN ? 1 : rc;
	rc = open_table(object, making, false, &word, table);
	if (rc == 1)
		rc = word ? finish_drop(object, name, index)
			  : make_table(object, index, 0);
	else if (rc == -REEF_ELOST && renew)
		rc = renew_table(object, index, word);
	else if (rc != -REEF_EDROPPED)
		return rc;
	return rc && rc != -REEF_EDROPPED ? rc : 1;
}

/* Open, or make, the object of that name that is not being dropped, and its
 * table.
 */
static int find_or_make(struct reef_space *space, const char *name,
			const struct map_making *making, struct object *object,
			void **table)
{
	int rc = 1, attempt;

	/* After a doubt, which is settled when the call returns, trying again
	 * finds out. */
	for (attempt = 0;
	     (rc == 1 || rc == -REEF_EINDOUBT) && attempt < ATTEMPTS; attempt++)
		rc = try_open(space, name, making, object, table);
	return rc == 1 ? -EBUSY : rc;
}

/* True if limits, which another client wrote, are within ours. */
static bool are_limits(const uint32_t *limits)
{
	return limits[KEY_MAX] <= MAP_KEY_MAX &&
	       limits[VALUE_MAX] <= MAP_VALUE_MAX &&
	       limits[EVICTION] < REEF_MAP_EVICTIONS && limits[OF_INDEX];
}

static void take_limits(struct reef_map *map)
{
	const uint32_t *limits = map->object.limits;

	map->key_max = limits[KEY_MAX];
	map->value_max = limits[VALUE_MAX];
	map->size_max = limits[SIZE_LOW] | (uint64_t)limits[SIZE_HIGH] << 32;
	map->eviction = (enum reef_map_eviction)limits[EVICTION];
	map->unit_ms = map_use_unit_ms(map->eviction);
	map->of_index = limits[OF_INDEX];
}

int map_init(struct reef_space *space, const char *name,
	     const struct map_making *making, struct reef_map *map)
{
	void *table;
	int rc = find_or_make(space, name, making, &map->object, &table);

	if (!rc && !are_limits(map->object.limits)) {
		making->index->close(table);
		rc = -REEF_ECORRUPT;
	}
	if (rc)
		return rc;
	map->index = making->index;
	map->table = table;
	map->reef = map->object.reef;
	take_limits(map);
	if (map->size_max)
		rc = reef_read(map->reef, MAP_WORD(map, entry_bytes),
			       &map->size_known, 8);
	if (rc) {
		map_fini(map);
		return rc;
	}
	map->size_known = map_bytes_told(map->size_known);
	/* For the samples of eviction, which other handles take elsewhere. */
	reef_random_init(&map->random, reef_now_ns() ^
					       (uint64_t)reef_session(map->reef)
						       << 32 ^
					       map->object.block);
	return 0;
}

int reef_map_open(struct reef_space *space, const char *name,
		  const struct reef_map_options *given, struct reef_map **out)
{
	struct map_making making = {
		.index = &hash_index,
		.of_index = map_tables.groups ? map_tables.groups : GROUPS,
	};
	struct reef_map *map;
	int rc;

	if (given)
		making.options = *given;
	making.remember = making.options.remember;
	rc = check_options(&making.options);
	if (rc)
		return rc;
	map = calloc(1, sizeof(*map));
	if (!map)
		return -ENOMEM;
	rc = map_init(space, name, &making, map);
	if (rc)
		free(map);
	else
		*out = map;
	return rc;
}

void reef_map_limits(const struct reef_map *map, struct reef_map_options *out)
{
	*out = (struct reef_map_options){
		.key_max = map->key_max,
		.value_max = map->value_max,
		.size_max = map->size_max,
		.eviction = map->eviction,
	};
}

void map_fini(struct reef_map *map)
{
	if (map->size_max)
		map_account_flush(map);
	map_candidates_free(map);
	map_spare_free(map);
	map->index->close(map->table);
	free(map->readings);
}

void reef_map_close(struct reef_map *map)
{
	if (!map)
		return;
	map_fini(map);
	free(map);
}

/* Mark a map as DROPPING. */
static int begin_drop(const struct object *object)
{
	uint64_t before, word;
	int rc = reef_read(object->reef, root_at(object), &word, 8);

	while (!rc && !(word & MAP_DROPPING)) {
		before = word;
		rc = map_cas(object->reef, root_at(object), before,
			     before | MAP_DROPPING, &word);
	}
	return rc;
}

static int try_drop(struct reef_space *space, const char *name,
		    const struct map_index *index)
{
	const struct map_making making = {
		.index = index,
		.options = {.flags = REEF_MAP_EXISTING},
	};
	struct object object;
	int rc = open_object(space, name, &making, &object);

	/* A lost map can only be forgotten. */
	if (rc == -REEF_ELOST)
		return object_forget(space, name, 0, NULL);
	if (!rc)
		rc = begin_drop(&object);
	return rc ? rc : finish_drop(&object, name, index);
}

int map_drop(struct reef_space *space, const char *name,
	     const struct map_index *index)
{
	int rc = try_drop(space, name, index), attempt = 0;

	/* -EAGAIN: another dropped a lost one, and made a new one. */
	if (rc != -REEF_EINDOUBT && rc != -EAGAIN)
		return rc;
	while ((rc == -REEF_EINDOUBT || rc == -EAGAIN) && attempt++ < ATTEMPTS)
		rc = try_drop(space, name, index);
	/* The unbind that was in doubt happened. */
	return rc == -ENOENT ? 0 : rc;
}

int reef_map_drop(struct reef_space *space, const char *name)
{
	return map_drop(space, name, &hash_index);
}
