/* tree.c - maps whose keys are in a tree: open, close, drop, and the calls on
 * keys, which are the map's own with another index below. */
#include "kv/tree.h"

#include "base/likely.h"
#include "kv/seed.h"
#include "pool/client/handle/near.h"

#include <errno.h>
#include <stdlib.h>

#define FORMAT 1
#define KEY_DEFAULT 1024u
#define KEY_MOST 16384u
#define INLINE_DEFAULT 256u
#define INLINE_MOST 1023u
#define LEAF_DEFAULT 6144u
#define LEAF_LEAST 256u
#define LEAF_MOST 65536u
#define LEAF_BITS 20 /* of map_making's of_index; above them inline_max */

uint64_t tree_seed;

void map_set_seed(uint64_t seed)
{
	map_tables.seed = tree_seed = seed;
}

/* --- the tree as an index of a map --- */

static uint32_t leaf_bytes_of(uint32_t of_index)
{
	return of_index & ((1u << LEAF_BITS) - 1);
}

static uint32_t inline_max_of(uint32_t of_index)
{
	return of_index >> LEAF_BITS;
}

static int create_tree(struct reef_space *space, uint32_t of_index,
		       uint64_t owner, uint64_t *root)
{
	const struct tree_options options = {
		.inline_max = inline_max_of(of_index),
		.leaf_bytes = leaf_bytes_of(of_index),
		.seed = tree_seed,
	};
	int rc = tree_create(space, &options, owner, root);

	/* (R10) The limits are what another client wrote. */
	return rc == -EINVAL ? -REEF_ECORRUPT : rc;
}

static int open_tree(struct reef_space *space, uint64_t root, uint64_t remember,
		     void **out)
{
	struct tree *tree;
	int rc = tree_open(space, root, remember, &tree);

	if (!rc)
		*out = tree;
	return rc;
}

static void close_tree(void *index)
{
	tree_close(index);
}

static uint64_t owner_of_tree(const void *index)
{
	return tree_owner(index);
}

static int drop_tree(void *index)
{
	return tree_drop(index);
}

static int get_from_tree(struct reef_map *map, const void *key, size_t key_size,
			 enum map_purpose purpose, struct entry_room *room,
			 struct entry *entry)
{
	struct tree_reading reading = {
		.key = key,
		.key_size = (uint32_t)key_size,
		.room = *room,
		.blind = purpose == MAP_LOOK,
	};
	int rc = tree_get(map->table, &reading);

	*room = reading.room;
	*entry = reading.entry;
	return rc;
}

static int apply_to_tree(void *index, struct entry_change *change)
{
	return tree_apply(index, change);
}

static int put_many_to_tree(void *index, struct entry_change *changes,
			    uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		changes[i].status = tree_apply(index, &changes[i]);
	return 0;
}

#define PASS_BITS 16

/* The lower bits of the cursor count the passes: its word is changed by CAS,
 * and must not soon be again what it was (R9). So it is never 0 again, either.
 */
static int walk_tree(struct reef_map *map, uint64_t *cursor, uint32_t steps,
		     int (*each)(void *context, const struct entry *entry),
		     void *context)
{
	const uint64_t passes = (UINT64_C(1) << PASS_BITS) - 1;
	uint64_t place = *cursor & ~passes;
	int rc = tree_walk(map->table, &place, steps, each, context);

	if (rc)
		return rc;
	/* Rounded up, so that it moves on. */
	place = place > UINT64_MAX - passes ? 0 : (place + passes) & ~passes;
	*cursor = place | ((*cursor + !place) & passes);
	return 0;
}

static const struct map_index tree_index = {
	.kind = OBJECT_TREE,
	.format = FORMAT,
	.holds = &tree_holds,
	.create = create_tree,
	.open = open_tree,
	.close = close_tree,
	.owner = owner_of_tree,
	.drop = drop_tree,
	.get = get_from_tree,
	.apply = apply_to_tree,
	.put_many = put_many_to_tree,
	.walk = walk_tree,
};

/* --- open, close, drop --- */

static int check_options(struct reef_tree_options *options)
{
	if (!options->key_max)
		options->key_max = KEY_DEFAULT;
	if (!options->value_max)
		options->value_max = MAP_VALUE_MAX;
	if (!options->inline_max)
		options->inline_max = INLINE_DEFAULT;
	if (!options->leaf_bytes)
		options->leaf_bytes = LEAF_DEFAULT;
	if (options->flags & ~(REEF_TREE_EXISTING | REEF_TREE_RENEW) ||
	    options->key_max > KEY_MOST || options->value_max > MAP_VALUE_MAX ||
	    options->inline_max > INLINE_MOST ||
	    options->leaf_bytes > LEAF_MOST || options->leaf_bytes < LEAF_LEAST)
		return -EINVAL;
	return 0;
}

int reef_tree_open(struct reef_space *space, const char *name,
		   const struct reef_tree_options *given,
		   struct reef_tree **out)
{
	struct reef_tree_options options = {0};
	struct map_making making = {.index = &tree_index};
	struct reef_tree *tree;
	int rc;

	static_assert(REEF_TREE_EXISTING == REEF_MAP_EXISTING &&
			      REEF_TREE_RENEW == REEF_MAP_RENEW,
		      "the same flags");
	if (given)
		options = *given;
	rc = check_options(&options);
	if (rc)
		return rc;
	making.options = (struct reef_map_options){
		.flags = options.flags,
		.key_max = options.key_max,
		.value_max = options.value_max,
	};
	making.of_index = options.leaf_bytes | options.inline_max << LEAF_BITS;
	making.remember = options.cache_bytes;
	tree = calloc(1, sizeof(*tree));
	if (!tree)
		return -ENOMEM;
	rc = map_init(space, name, &making, &tree->map);
	/* (R10) Nor may a tree's keys be longer than a tree's, or evicted. */
	if (!rc && (tree->map.key_max > KEY_MOST || tree->map.size_max ||
		    tree->map.eviction != REEF_MAP_KEEP)) {
		map_fini(&tree->map);
		rc = -REEF_ECORRUPT;
	}
	if (rc)
		free(tree);
	else
		*out = tree;
	return rc;
}

void reef_tree_close(struct reef_tree *tree)
{
	if (!tree)
		return;
	map_fini(&tree->map);
	free(tree);
}

int reef_tree_drop(struct reef_space *space, const char *name)
{
	return map_drop(space, name, &tree_index);
}

void reef_tree_limits(const struct reef_tree *tree,
		      struct reef_tree_options *out)
{
	*out = (struct reef_tree_options){
		.key_max = tree->map.key_max,
		.value_max = tree->map.value_max,
		.inline_max = inline_max_of(tree->map.of_index),
		.leaf_bytes = leaf_bytes_of(tree->map.of_index),
		.cache_bytes = tree_cache_max(tree->map.table),
	};
}

int reef_tree_now(struct reef_tree *tree, uint64_t *ms)
{
	return map_now(&tree->map, ms);
}

/* --- one key --- */

/* Get a key in place, if its case is plain and it does not expire.  -EAGAIN: it
 * is not. */
static int get_plain(struct reef_map *map, const void *key, size_t key_size,
		     struct reef_map_value *out)
{
	struct entry_room room = {out->room, out->room_size};
	struct entry entry;
	int rc;

	if (unlikely(key_size > map->key_max))
		return -EAGAIN;
	rc = tree_get_near(map->table, key, (uint32_t)key_size, false, &room,
			   &entry);
	out->room = room.bytes;
	out->room_size = room.size;
	if (unlikely(rc))
		return rc;
	if (unlikely(entry.stamp))
		return -EAGAIN;
	out->bytes = entry.value;
	out->size = entry.value_size;
	out->version = entry.version;
	out->expires_ms = out->idle_ms = 0;
	out->frequency = 0;
	client_count_lookup(map->reef, entry.value_size);
	return 0;
}

static int get_key(struct reef_map *map, const void *key, size_t key_size,
		   struct reef_map_value *out)
{
	int rc;

	if (unlikely(map_is_sampled(map)))
		return map_get_timed(map, key, key_size, out, get_key);
	rc = get_plain(map, key, key_size, out);
	if (likely(!rc)) {
		map->hits++;
		return 0;
	}
	if (rc == -EAGAIN)
		rc = map_get(map, key, key_size, MAP_USE, out);
	map_note_found(map, rc);
	return rc;
}

int reef_tree_get(struct reef_tree *tree, const void *key, size_t key_size,
		  struct reef_map_value *out)
{
	return get_key(&tree->map, key, key_size, out);
}

int reef_tree_peek(struct reef_tree *tree, const void *key, size_t key_size,
		   struct reef_map_value *out)
{
	return map_get(&tree->map, key, key_size, MAP_PEEK, out);
}

int reef_tree_look(struct reef_tree *tree, const void *key, size_t key_size,
		   struct reef_map_value *out)
{
	return map_get(&tree->map, key, key_size, MAP_LOOK, out);
}

int reef_tree_put(struct reef_tree *tree, const void *key, size_t key_size,
		  const void *value, size_t value_size, uint64_t expires_ms,
		  uint64_t *version)
{
	return reef_map_put(&tree->map, key, key_size, value, value_size,
			    expires_ms, version);
}

int reef_tree_insert(struct reef_tree *tree, const void *key, size_t key_size,
		     const void *value, size_t value_size, uint64_t expires_ms,
		     uint64_t *version)
{
	return reef_map_insert(&tree->map, key, key_size, value, value_size,
			       expires_ms, version);
}

int reef_tree_update(struct reef_tree *tree, const void *key, size_t key_size,
		     const void *value, size_t value_size, uint64_t expires_ms,
		     uint64_t *version)
{
	return reef_map_update(&tree->map, key, key_size, value, value_size,
			       expires_ms, version);
}

int reef_tree_replace(struct reef_tree *tree, const void *key, size_t key_size,
		      uint64_t expected, const void *value, size_t value_size,
		      uint64_t expires_ms, uint64_t *version)
{
	return reef_map_replace(&tree->map, key, key_size, expected, value,
				value_size, expires_ms, version);
}

int reef_tree_delete(struct reef_tree *tree, const void *key, size_t key_size,
		     uint64_t expected)
{
	return reef_map_delete(&tree->map, key, key_size, expected);
}

int reef_tree_add(struct reef_tree *tree, const void *key, size_t key_size,
		  int64_t add, int64_t *after)
{
	return reef_map_add(&tree->map, key, key_size, add, after);
}

int reef_tree_append(struct reef_tree *tree, const void *key, size_t key_size,
		     const void *bytes, size_t count, size_t *size)
{
	return reef_map_append(&tree->map, key, key_size, bytes, count, size);
}

int reef_tree_expire(struct reef_tree *tree, const void *key, size_t key_size,
		     uint64_t expires_ms)
{
	return reef_map_expire(&tree->map, key, key_size, expires_ms);
}

int reef_tree_apply(struct reef_tree *tree, struct reef_map_change *change)
{
	return reef_map_apply(&tree->map, change);
}

/* --- many --- */

static int get_together(struct reef_map *map, struct reef_map_item *items,
			uint32_t count)
{
	struct tree_reading readings[MAP_TOGETHER] = {0};
	uint32_t i;
	int rc;

	for (i = 0; i < count; i++) {
		readings[i].key = items[i].key;
		readings[i].key_size = items[i].key_size > map->key_max
					       ? UINT32_MAX
					       : (uint32_t)items[i].key_size;
		readings[i].room.bytes = items[i].value.room;
		readings[i].room.size = items[i].value.room_size;
	}
	map_refresh_tick(map);
	rc = tree_get_many(map->table, readings, count);
	for (i = 0; i < count; i++)
		map_end_item(map, rc ? rc : readings[i].status,
			     &readings[i].entry, &readings[i].room, 0,
			     &items[i]);
	return rc;
}

int reef_tree_get_many(struct reef_tree *tree, struct reef_map_item *items,
		       uint32_t count)
{
	uint32_t some;
	int rc = 0;

	for (; count && !rc; count -= some, items += some) {
		some = count < MAP_TOGETHER ? count : MAP_TOGETHER;
		rc = get_together(&tree->map, items, some);
	}
	for (; count; count--, items++)
		items->status = rc;
	return rc;
}

int reef_tree_put_many(struct reef_tree *tree, struct reef_map_item *items,
		       uint32_t count)
{
	return reef_map_put_many(&tree->map, items, count);
}

/* --- about it --- */

int reef_tree_stats(struct reef_tree *tree, struct reef_tree_stats *out)
{
	const struct reef_map *map = &tree->map;
	struct tree_count count;
	int rc = tree_count(map->table, &count);

	if (rc)
		return rc;
	*out = (struct reef_tree_stats){
		.keys = count.keys,
		.nodes = count.nodes,
		.node_bytes = count.bytes,
		.height = count.height,
		.key_max = map->key_max,
		.value_max = map->value_max,
		.cache_bytes = tree_cache_used(map->table),
		.gets = map->hits + map->misses,
		.hits = map->hits,
		.changes = map->changes,
		.retries = map->decisions > map->changes
				   ? map->decisions - map->changes
				   : 0,
		.expired = map->expired,
	};
	return 0;
}
