/* map.c - open a map, close it, drop it.
 *
 * A map is a named object (sync/object.h); the word `root` in its body says
 * where its table is, and whether it is being dropped:
 *
 *      0 --CAS: make_table()--> root --CAS: drop()--> root | DROPPING
 *      \------------------------CAS: drop()---------> DROPPING
 *
 * (1) A name is unbound only when its map is DROPPING and its table is gone.
 *     Whoever opens or drops one that is DROPPING does that first, so a dropper
 *     may die anywhere.
 * (2) Of two that make the table one wins the CAS, and the other's goes. */
#include "kv/internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT 1
/* Each further attempt needs another client that made or dropped it. */
#define ATTEMPTS 64

#define GROUPS 64 /* of a subtable of its table */

enum limit { KEY_MAX, VALUE_MAX, SIZE_LOW, SIZE_HIGH, EVICTION, IN_SUBTABLE };

static int check_options(struct reef_map_options *options)
{
	if (!options->key_max)
		options->key_max = MAP_KEY_MAX;
	if (!options->value_max)
		options->value_max = MAP_VALUE_MAX;
	if (options->flags & ~REEF_MAP_EXISTING ||
	    options->key_max > MAP_KEY_MAX ||
	    options->value_max > MAP_VALUE_MAX ||
	    (unsigned)options->eviction >= REEF_MAP_EVICTIONS)
		return -EINVAL;
	return 0;
}

static int open_object(struct reef_space *space, const char *name,
		       const struct reef_map_options *options,
		       struct sync_object *object)
{
	const struct sync_shape shape = {
		.kind = SYNC_MAP,
		.format = FORMAT,
		.limits =
			{
				[KEY_MAX] = options->key_max,
				[VALUE_MAX] = options->value_max,
				[SIZE_LOW] = (uint32_t)options->size_max,
				[SIZE_HIGH] =
					(uint32_t)(options->size_max >> 32),
				[EVICTION] = (uint32_t)options->eviction,
				[IN_SUBTABLE] = GROUPS,
			},
		.body_size = sizeof(struct map_body),
	};

	static_assert(REEF_MAP_EXISTING == REEF_SYNC_EXISTING, "one flag");
	return sync_object_open(space, name, &shape, options->flags, object);
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

/* (2). *word: what `root` is then. */
static int make_table(struct sync_object *object, uint64_t *word)
{
	const struct hash_options options = {
		.groups = object->limits[IN_SUBTABLE],
	};
	uint64_t owner = object->body + offsetof(struct map_body, root), root;
	int rc = hash_create(object->space, &options, owner, &root);

	if (rc)
		return rc;
	do
		rc = map_cas(object->reef, owner, 0, root, word);
	while (!rc && !*word);
	if (!rc && *word != root && *word != (root | MAP_DROPPING))
		reef_free(object->space, root, 0);
	return rc;
}

static int look_at_root(const struct sync_object *object, uint64_t *word)
{
	return reef_read(object->reef,
			 object->body + offsetof(struct map_body, root), word,
			 8);
}

/* (1): of one that is DROPPING. */
static int finish_drop(const struct sync_object *object, const char *name,
		       uint64_t word)
{
	struct reef_map map = {.object = *object, .reef = object->reef};
	int rc = 0;

	if (word != MAP_DROPPING) {
		rc = hash_open(object->space, word & ~MAP_DROPPING, 1,
			       &map.table);
		if (!rc)
			rc = reef_map_clear(&map);
		hash_close(map.table);
		free(map.readings);
	}
	if (rc)
		return rc;
	rc = reef_name_unbind(object->space, name, object->generation);
	return rc == -ESTALE || rc == -ENOENT ? 0 : rc;
}

/* The object of that name that is not being dropped, with its table. */
static int find_or_make(struct reef_space *space, const char *name,
			const struct reef_map_options *options,
			struct sync_object *object, uint64_t *root)
{
	int rc, attempt;

	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		rc = open_object(space, name, options, object);
		if (!rc)
			rc = look_at_root(object, root);
		if (!rc && !*root)
			rc = make_table(object, root);
		if (rc || !(*root & MAP_DROPPING))
			return rc;
		rc = finish_drop(object, name, *root);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

int reef_map_open(struct reef_space *space, const char *name,
		  const struct reef_map_options *given, struct reef_map **out)
{
	struct reef_map_options options =
		given ? *given : (struct reef_map_options){0};
	struct reef_map *map;
	uint64_t root;
	int rc = check_options(&options);

	if (rc)
		return rc;
	map = calloc(1, sizeof(*map));
	if (!map)
		return -ENOMEM;
	rc = find_or_make(space, name, &options, &map->object, &root);
	if (!rc)
		rc = hash_open(space, root, options.remember, &map->table);
	if (rc) {
		free(map);
		return rc;
	}
	map->reef = map->object.reef;
	map->key_max = map->object.limits[KEY_MAX];
	map->value_max = map->object.limits[VALUE_MAX];
	map->size_max = map->object.limits[SIZE_LOW] |
			(uint64_t)map->object.limits[SIZE_HIGH] << 32;
	map->eviction = (enum reef_map_eviction)map->object.limits[EVICTION];
	map->groups = map->object.limits[IN_SUBTABLE];
	/* Which keys are looked at to be evicted: others look elsewhere. */
	reef_random_init(&map->random, reef_now_ns() ^
					       (uint64_t)reef_session(map->reef)
						       << 32 ^
					       map->object.block);
	*out = map;
	return 0;
}

void reef_map_close(struct reef_map *map)
{
	if (!map)
		return;
	if (map->size_max)
		map_account_flush(map);
	map_candidates_free(map);
	map_clock_close(map);
	hash_close(map->table);
	free(map->readings);
	free(map);
}

/* Say that it is being dropped; *word: what `root` is then. */
static int begin_drop(const struct sync_object *object, uint64_t *word)
{
	int rc = look_at_root(object, word);
	uint64_t before;

	while (!rc && !(*word & MAP_DROPPING)) {
		before = *word;
		rc = map_cas(object->reef,
			     object->body + offsetof(struct map_body, root),
			     before, before | MAP_DROPPING, word);
	}
	return rc;
}

int reef_map_drop(struct reef_space *space, const char *name)
{
	const struct reef_map_options options = {.flags = REEF_MAP_EXISTING};
	struct sync_object object;
	uint64_t word;
	int rc = open_object(space, name, &options, &object);

	/* What is lost can only be forgotten. */
	if (rc == -REEF_ELOST)
		return sync_object_drop(space, name, SYNC_MAP, NULL);
	if (!rc)
		rc = begin_drop(&object, &word);
	return rc ? rc : finish_drop(&object, name, word);
}
