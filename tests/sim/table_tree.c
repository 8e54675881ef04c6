/* table_tree.c - the ordered tree, for the simulation. */
#include "table_index.h"

#include "base/log.h"
#include "index/tree/image.h"
#include "index/tree/tree.h"

#include <errno.h>
#include <string.h>

#define PART 5u	     /* keys of a scan, a step */
#define MANY_MAX 64u /* keys of one get_many */

/* What keys and values look like, from the seed of the run. */
enum { KEYS_PLAIN, KEYS_NESTED, KEYS_ENDS, KEYS_LONG, KEYS_KINDS };
static uint32_t keys_kind;
static bool values_differ;

struct key {
	uint32_t size;
	uint8_t bytes[TREE_KEY_MAX];
};
#define NUMBERS_MAX 128u
static struct key made[NUMBERS_MAX];
static const uint8_t value_bytes[8192];

/* The bytes of a key. NESTED: each is the beginning of the next, the first is
 * empty. ENDS: alike in their first bytes, then zeros and 0xff, of any number.
 * LONG: up to the limit. */
static void make_key(uint64_t number, struct key *key)
{
	uint64_t bits = number + 1;

	key->size = 8;
	memcpy(key->bytes, &number, 8);
	if (keys_kind == KEYS_NESTED) {
		key->size = (uint32_t)number;
		memset(key->bytes, 0, key->size);
	} else if (keys_kind == KEYS_ENDS) {
		memset(key->bytes, 'x', 8);
		for (; bits > 1; bits >>= 1)
			key->bytes[key->size++] = bits & 1 ? 0xff : 0;
	} else if (keys_kind == KEYS_LONG) {
		key->size = number < 4 ? TREE_KEY_MAX : 300 + (uint32_t)number;
		memset(key->bytes, 'y', key->size);
		key->bytes[key->size - 1 - number % 5] = (uint8_t)number;
		key->bytes[key->size / 2] = (uint8_t)(number / 3);
	}
}

static void make_keys(uint64_t seed)
{
	keys_kind = (uint32_t)(seed / 8 % (2 * KEYS_KINDS));
	if (keys_kind >= KEYS_KINDS)
		keys_kind = KEYS_PLAIN;
	values_differ = seed / 64 % 2;
	for (uint64_t i = 0; i < NUMBERS_MAX; i++)
		make_key(i, &made[i]);
}

static uint64_t number_of(const void *key, uint32_t size)
{
	for (uint64_t i = 0; i < NUMBERS_MAX; i++)
		if (made[i].size == size && !memcmp(made[i].bytes, key, size))
			return i;
	return UINT64_MAX;
}

/* How long the value is that stands for a number; its bytes do not matter, its
 * stamp is the number. */
static uint32_t size_of_value(uint64_t number)
{
	static const uint32_t sizes[] = {0, 1, 8, 255, 256, 257, 1100, 5000};

	return values_differ ? sizes[(number >> 3 ^ number) % 8] : 8;
}

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

	make_keys(seed);
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

/* A change by numbers becomes one of keys and values. */
struct worded {
	struct entry_change *given;
	struct entry_change change;
	struct entry ahead;
};

static void word_value(struct entry *put)
{
	put->value = value_bytes;
	put->value_size = size_of_value(put->stamp);
}

static int decide_worded(void *context, const struct entry *now,
			 struct entry *put)
{
	struct worded *worded = context;
	struct entry told;
	int rc;

	if (now) {
		if (now->value_size != size_of_value(now->stamp))
			return -EXDEV;
		told = *now;
		told.value = &now->stamp;
		told.value_size = 8;
	}
	if (!worded->given->decide) {
		*put = worded->ahead;
		return ENTRY_PUT;
	}
	rc = worded->given->decide(worded->given->context, now ? &told : NULL,
				   put);
	if (rc == ENTRY_PUT)
		word_value(put);
	return rc;
}

static int tree_op_apply(void *index, struct entry_change *given)
{
	struct worded worded = {.given = given, .change = *given};
	uint64_t number;
	int rc;

	memcpy(&number, given->key, 8);
	worded.change.key = made[number].bytes;
	worded.change.key_size = made[number].size;
	worded.change.decide = decide_worded;
	worded.change.context = &worded;
	if (given->ahead) {
		worded.ahead = *given->ahead;
		word_value(&worded.ahead);
		worded.change.ahead = &worded.ahead;
	}
	rc = tree_apply(index, &worded.change);
	given->version = worded.change.version;
	return rc;
}

/* What was read; it is put with its number as its stamp. */
static int take_value(const struct tree_reading *reading, uint64_t *value)
{
	if (reading->status)
		return reading->status;
	*value = reading->entry.stamp;
	return reading->entry.value_size == size_of_value(*value) ? 0 : -EXDEV;
}

static int tree_op_get(void *index, uint64_t key, bool notes, uint64_t *value,
		       uint64_t *version)
{
	struct tree_reading reading = {.key = made[key].bytes,
				       .key_size = made[key].size};
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
		readings[i].key = made[keys[i]].bytes;
		readings[i].key_size = made[keys[i]].size;
	}
	rc = tree_get_many(index, readings, count);
	for (i = 0; i < count; i++) {
		statuses[i] = rc ? rc : take_value(&readings[i], &values[i]);
		tree_reading_free(&readings[i]);
	}
	return rc;
}

static int tree_op_put_many(void *index, struct entry_change *changes,
			    uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		changes[i].status = tree_op_apply(index, &changes[i]);
	return 0;
}

/* --- ranges --- */

static int tree_op_compare(uint64_t a, uint64_t b)
{
	return tree_compare(made[a].bytes, made[a].size, made[b].bytes,
			    made[b].size);
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
	uint64_t number = number_of(entry->key, entry->key_size);
	struct entry told = {
		.key = &number,
		.key_size = 8,
		.value = &entry->stamp,
		.value_size = 8,
		.stamp = entry->stamp,
	};
	int order;

	if (number == UINT64_MAX ||
	    entry->value_size != size_of_value(entry->stamp))
		return -EXDEV;
	order = part->cursor->is_begun
			? tree_op_compare(part->cursor->last, number)
			: 0;
	if (part->cursor->is_begun &&
	    (part->cursor->is_backward ? order <= 0 : order >= 0))
		return -EXDEV;
	part->cursor->last = number;
	part->cursor->is_begun = true;
	part->count++;
	return part->each(part->context, &told);
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
		.from = cursor->is_begun ? made[from].bytes : NULL,
		.from_size = cursor->is_begun ? made[from].size : 0,
		.flags = TREE_RANGE_AFTER |
			 (cursor->is_backward ? TREE_RANGE_BACKWARD : 0),
		.limit = (uint64_t)steps * PART * (1 + from % 8),
	};
	int rc = tree_scan(index, &range, tree_op_each, &part);

	cursor->is_done = part.count < range.limit;
	return rc;
}

static int tree_op_count_range(void *index, uint64_t from, uint64_t to,
			       bool backward, uint64_t *keys)
{
	const struct tree_range range = {
		.from = made[from].bytes,
		.from_size = made[from].size,
		.to = from == to ? NULL : made[to].bytes,
		.to_size = from == to ? 0 : made[to].size,
		.flags = backward ? TREE_RANGE_BACKWARD : 0,
	};

	return tree_count_range(index, &range, keys);
}

struct first {
	uint64_t number, value;
	bool is_found;
};

static int note_first(void *context, const struct entry *entry)
{
	struct first *first = context;

	first->number = number_of(entry->key, entry->key_size);
	first->value = entry->stamp;
	first->is_found = true;
	return first->number == UINT64_MAX ? -EXDEV : 0;
}

static int tree_op_first(void *index, uint64_t from, bool backward,
			 uint64_t *key, uint64_t *value)
{
	struct first first = {0};
	const struct tree_range range = {
		.from = made[from].bytes,
		.from_size = made[from].size,
		.flags = backward ? TREE_RANGE_BACKWARD : 0,
		.limit = 1,
	};
	int rc = tree_scan(index, &range, note_first, &first);

	*key = first.number;
	*value = first.value;
	return rc ? rc : first.is_found ? 0 : -ENOENT;
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
	.compare = tree_op_compare,
	.count_range = tree_op_count_range,
	.first = tree_op_first,
};
