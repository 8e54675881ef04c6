/* table_tree.c - the ordered tree, for the simulation. */
#include "table_index.h"

#include "base/log.h"
#include "index/tree/tree.h"

#include <errno.h>
#include <string.h>

#define PART 5u	     /* keys of a scan, a step */
#define MANY_MAX 64u /* keys of one get_many */

/* Small nodes, so that a few keys make a tree of several levels; in every
 * second run all values lie outside. */
static int tree_op_create(struct reef_space *space, uint64_t seed,
			  uint64_t owner, uint64_t *root)
{
	const struct tree_options options = {
		.inline_max = seed / 16 % 2 ? 4 : 0,
		.leaf_bytes = 256,
		.seed = 7,
	};

	return tree_create(space, &options, owner, root);
}

static int tree_op_open(struct reef_space *space, uint64_t root, void **out)
{
	struct tree *tree;
	/* Some have so little that most of it is forgotten again. */
	uint32_t session = reef_session(reef_space_handle(space));
	int rc = tree_open(space, root, session >> 16 & 1 ? 4096 : 0, &tree);

	if (!rc)
		*out = tree;
	return rc;
}

static void tree_op_close(void *index)
{
	tree_close(index);
}

static uint64_t tree_op_id(const void *index)
{
	return tree_id(index);
}

static uint64_t tree_op_root(const void *index)
{
	return tree_root(index);
}

static int tree_op_drop(void *index)
{
	return tree_drop(index);
}

static int tree_op_apply(void *index, struct entry_change *change)
{
	return tree_apply(index, change);
}

/* What was read; it is put with its value as its stamp. */
static int take_value(const struct tree_reading *reading, uint64_t *value)
{
	if (reading->status)
		return reading->status;
	memcpy(value, reading->entry.value, 8);
	return reading->entry.stamp == *value ? 0 : -EXDEV;
}

static int tree_op_get(void *index, uint64_t key, bool notes, uint64_t *value,
		       uint64_t *version)
{
	struct tree_reading reading = {.key = &key, .key_size = 8};
	int rc = tree_get(index, &reading);

	(void)notes;
	if (!rc) {
		rc = take_value(&reading, value);
		*version = reading.entry.version;
	}
	tree_reading_free(&reading);
	return rc;
}

static int tree_op_get_many(void *index, const uint64_t *keys, uint32_t count,
			    uint64_t *values, int *statuses)
{
	struct tree_reading readings[MANY_MAX] = {0};
	uint32_t i;
	int rc;

	reef_assert(count <= MANY_MAX);
	for (i = 0; i < count; i++) {
		readings[i].key = &keys[i];
		readings[i].key_size = 8;
	}
	rc = tree_get_many(index, readings, count);
	for (i = 0; i < count; i++) {
		statuses[i] = rc ? rc : take_value(&readings[i], &values[i]);
		tree_reading_free(&readings[i]);
	}
	return rc;
}

static int put_ahead(void *context, const struct entry *now, struct entry *put)
{
	(void)now;
	*put = *(const struct entry *)context;
	return ENTRY_PUT;
}

static int tree_op_put_many(void *index, struct entry_change *changes,
			    uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct entry_change change = changes[i];

		if (!change.decide) {
			change.decide = put_ahead;
			change.context = (void *)(uintptr_t)change.ahead;
		}
		changes[i].status = tree_apply(index, &change);
	}
	return 0;
}

struct part {
	struct index_cursor *cursor;
	int (*each)(void *context, const struct entry *entry);
	void *context;
	uint64_t count;
};

/* Keys come in strict order. */
static int tree_op_each(void *context, const struct entry *entry)
{
	struct part *part = context;

	if (entry->key_size != 8 ||
	    memcmp(entry->value, &entry->stamp, 8) != 0 ||
	    (part->cursor->is_begun &&
	     memcmp(&part->cursor->last, entry->key, 8) >= 0))
		return -EXDEV;
	memcpy(&part->cursor->last, entry->key, 8);
	part->cursor->is_begun = true;
	part->count++;
	return part->each(part->context, entry);
}

static int tree_op_scan(void *index, struct index_cursor *cursor,
			uint32_t steps,
			int (*each)(void *context, const struct entry *entry),
			void *context)
{
	struct part part = {
		.cursor = cursor,
		.each = each,
		.context = context,
	};
	uint64_t from = cursor->last;
	struct tree_range range = {
		.from = cursor->is_begun ? &from : NULL,
		.from_size = 8,
		.flags = TREE_RANGE_AFTER,
		.limit = (uint64_t)steps * PART * (1 + from % 8),
	};
	int rc = tree_scan(index, &range, tree_op_each, &part);

	cursor->is_done = part.count < range.limit;
	return rc;
}

static int tree_op_count(void *index, uint64_t *keys)
{
	struct tree_count count;
	int rc = tree_count(index, &count);

	if (!rc)
		*keys = count.keys;
	return rc;
}

const struct index_ops index_ops = {
	.shrinks = true,
	.create = tree_op_create,
	.open = tree_op_open,
	.close = tree_op_close,
	.id = tree_op_id,
	.root = tree_op_root,
	.drop = tree_op_drop,
	.apply = tree_op_apply,
	.get = tree_op_get,
	.get_many = tree_op_get_many,
	.put_many = tree_op_put_many,
	.scan = tree_op_scan,
	.count = tree_op_count,
};
