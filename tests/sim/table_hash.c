/* table_hash.c - the hash table, for the simulation. */
#include "table_index.h"

#include "index/hash/internal.h"

#include <string.h>

#define MANY_MAX 8u

static int hash_op_create(struct reef_space *space, uint64_t seed,
			  uint64_t owner, uint64_t *root)
{
	const struct hash_options options = {.groups = HASH_GROUPS_MIN,
					     .seed = 7};

	(void)seed;
	return hash_create(space, &options, owner, root);
}

static int hash_op_open(struct reef_space *space, uint64_t root, void **out)
{
	struct hash_table *table;
	int rc = hash_open(space, root, 16, &table);

	if (!rc)
		*out = table;
	return rc;
}

static void hash_op_close(void *index)
{
	hash_close(index);
}

static uint64_t hash_op_id(const void *index)
{
	return ((const struct hash_table *)index)->id;
}

static uint64_t hash_op_root(const void *index)
{
	return ((const struct hash_table *)index)->root;
}

static int hash_op_drop(void *index)
{
	return hash_drop(index);
}

static int hash_op_apply(void *index, struct entry_change *change)
{
	return hash_apply(index, change);
}

static int hash_op_get(void *index, uint64_t key, bool notes, uint64_t *value,
		       uint64_t *version)
{
	struct hash_table *table = index;
	struct hash_reading reading = {.key = &key, .key_size = 8};
	int rc;

	reef_enter(table->reef);
	rc = hash_get(table, &reading, 1);
	if (!rc)
		rc = reading.status;
	if (!rc && notes)
		rc = hash_touch(table, &reading, (uint16_t)key);
	reef_leave(table->reef);
	if (!rc) {
		memcpy(value, reading.entry.value, 8);
		*version = reading.entry.version;
	}
	hash_reading_free(&reading);
	return rc;
}

static int hash_op_get_many(void *index, const uint64_t *keys, uint32_t count,
			    uint64_t *values, int *statuses)
{
	struct hash_reading readings[MANY_MAX] = {0};
	uint32_t i;
	int rc;

	reef_assert(count <= MANY_MAX);
	for (i = 0; i < count; i++) {
		readings[i].key = &keys[i];
		readings[i].key_size = 8;
	}
	rc = hash_get(index, readings, count);
	for (i = 0; i < count; i++) {
		statuses[i] = rc ? rc : readings[i].status;
		if (!statuses[i])
			memcpy(&values[i], readings[i].entry.value, 8);
		hash_reading_free(&readings[i]);
	}
	return rc;
}

static int hash_op_put_many(void *index, struct entry_change *changes,
			    uint32_t count)
{
	return hash_put_many(index, changes, count);
}

static int hash_op_scan(void *index, struct index_cursor *cursor,
			uint32_t steps,
			int (*each)(void *context, const struct entry *entry),
			void *context)
{
	int rc = hash_walk(index, &cursor->hash, steps, 0, each, context);

	cursor->is_done = hash_cursor_is_zero(&cursor->hash);
	return rc;
}

static int hash_op_count(void *index, uint64_t *keys)
{
	struct hash_count count;
	int rc = hash_count(index, &count);

	if (!rc)
		*keys = count.keys;
	return rc;
}

const struct index_ops index_ops = {
	.create = hash_op_create,
	.open = hash_op_open,
	.close = hash_op_close,
	.id = hash_op_id,
	.root = hash_op_root,
	.drop = hash_op_drop,
	.apply = hash_op_apply,
	.get = hash_op_get,
	.get_many = hash_op_get_many,
	.put_many = hash_op_put_many,
	.scan = hash_op_scan,
	.count = hash_op_count,
};
