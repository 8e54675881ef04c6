/* scan.c - ranges, in order.
 *
 * Forward: the heads of the next leaves that the parent knows are READ in one
 * batch, their blocks in the next, the entries of their slots in a third. A
 * leaf that has its id is the leaf at that moment (4); the scan goes on at the
 * high fence that it read, so ranges neither overlap nor leave gaps, whatever
 * is split meanwhile. What does not fit is read by itself. Backward: one leaf
 * after the other, each by a search for what is below the low fence. */
#include "index/tree/internal.h"

#include <stdlib.h>
#include <string.h>

#define TOGETHER 16u /* leaves */
#define PER_LEAF 48u /* keys that one is expected to have */
#define ATTEMPTS_MAX 100000u

struct leaf {
	struct tree_image image;
	struct tree_entries entries;
};

struct scan {
	struct tree *tree;
	const struct tree_range *range;
	int (*each)(void *context, const struct entry *entry);
	void *context;
	int said;
	uint64_t left; /* keys */
	/* Where it goes on: at or behind this key (backward: at or before); no
	 * key: backward, from the end. */
	uint8_t *key;
	uint32_t key_size;
	bool is_after, is_done;
	struct leaf leaves[TOGETHER];
	uint32_t count;
	struct reef_access accesses[TOGETHER * TREE_SLOTS];
	struct entry_room room; /* of values that lie outside */
};

static void free_leaves(struct scan *scan)
{
	for (uint32_t i = 0; i < TOGETHER; i++) {
		tree_image_free(&scan->leaves[i].image);
		tree_entries_free(&scan->leaves[i].entries);
		scan->leaves[i].entries = (struct tree_entries){0};
	}
	scan->count = 0;
}

static int move_to(struct scan *scan, const void *key, uint32_t size,
		   bool is_after)
{
	uint8_t *copy = malloc(size + 1u);

	if (!copy)
		return -ENOMEM;
	if (size)
		memcpy(copy, key, size);
	free(scan->key);
	scan->key = copy;
	scan->key_size = size;
	scan->is_after = is_after;
	return 0;
}

/* --- reading leaves --- */

/* True if the next key is not in a leaf, which was split since it was last
 * seen, or whose head is another's by now. */
static bool is_passed(const struct scan *scan, const struct tree_image *image,
		      bool before)
{
	int order;

	if (image->level)
		return true;
	order = scan->key ? tree_compare(image->low, image->low_size, scan->key,
					 scan->key_size)
			  : -1;
	if (before ? order >= 0 && image->low_size : order > 0)
		return true;
	if (!image->high)
		return false;
	if (!scan->key)
		return true;
	order = tree_compare(scan->key, scan->key_size, image->high,
			     image->high_size);
	return before ? order > 0 : order >= 0;
}

/* READ the leaf of the next key by itself. */
static int read_one(struct scan *scan)
{
	bool before = scan->range->flags & TREE_RANGE_BACKWARD &&
		      (!scan->key || scan->is_after);
	struct tree_image *image = &scan->leaves[0].image;
	struct tree_node *node;
	int rc;

	for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
		rc = tree_search(scan->tree, scan->key, scan->key_size, 0,
				 before, NULL, &node);
		if (rc)
			return rc;
		rc = tree_node_read(scan->tree, node, image);
		if (rc == -ESTALE)
			tree_node_forget(scan->tree, node);
		tree_node_unref(node);
		if (rc && rc != -ESTALE)
			return rc;
		scan->count = !rc;
		if (!rc && !is_passed(scan, image, before))
			return 0;
		if (!rc)
			rc = tree_node_remember(scan->tree, image, NULL);
		free_leaves(scan);
		if (!rc || rc == -ESTALE)
			rc = index_pause(attempt);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

/* READ words of heads and, where they may be, their blocks. */
static int read_blocks(struct scan *scan, const uint64_t *heads,
		       const uint64_t *words, uint32_t count)
{
	struct tree *tree = scan->tree;
	uint32_t i;
	int rc = 0;

	for (i = 0; i < count; i++) {
		struct tree_image *image = &scan->leaves[i].image;

		*image =
			(struct tree_image){.word = words[i], .head = heads[i]};
		if (words[i] & TREE_DROPPED || !(words[i] >> 38 & 4095) ||
		    reef_long_address(tree->space, words[i] & TREE_SHORT_MASK,
				      &image->at))
			break;
		image->size = tree_word_size(words[i]);
		image->bytes = malloc(image->size);
		if (!image->bytes)
			return -ENOMEM;
		scan->accesses[i] = (struct reef_access){
			.kind = REEF_READ,
			.address = image->at,
			.local = image->bytes,
			.length = image->size,
		};
	}
	if (i)
		rc = reef_execute(tree->reef, scan->accesses, i);
	for (count = 0; count < i && !rc; count++) {
		struct tree_image *image = &scan->leaves[count].image;
		uint64_t id, head = image->head;

		if (tree_image_parse(image, tree->home.number))
			break;
		memcpy(&id, image->bytes, 8);
		if (id != image->id || image->head != head || image->level)
			break;
	}
	scan->count = count;
	return rc;
}

/* READ the next leaves, as the parent knows them. 0 of them: it does not. */
static int read_several(struct scan *scan, uint32_t most)
{
	struct tree *tree = scan->tree;
	uint64_t words[TOGETHER], heads[TOGETHER];
	struct tree_node *parent;
	uint32_t count = 0;
	int rc = tree_search(tree, scan->key, scan->key_size, 1, false, NULL,
			     &parent),
	    part;

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	part = tree_node_part(parent, scan->key, scan->key_size, false);
	for (; part >= 0 && (uint32_t)part < parent->count && count < most;
	     part++, count++) {
		heads[count] = parent->parts[part].child.head;
		scan->accesses[count] = (struct reef_access){
			.kind = REEF_READ,
			.address = heads[count],
			.local = &words[count],
			.length = 8,
		};
	}
	tree_node_unref(parent);
	if (!count)
		return 0;
	rc = reef_execute(tree->reef, scan->accesses, count);
	if (!rc)
		rc = read_blocks(scan, heads, words, count);
	/* One by itself tells whose memory it is. */
	if (rc == -REEF_ELOST || index_is_nonsense(rc)) {
		free_leaves(scan);
		rc = 0;
	}
	return rc;
}

/* Keep those leaves that follow each other from the key on. */
static void keep_chain(struct scan *scan)
{
	const struct tree_image *image, *before;
	uint32_t i;

	for (i = 0; i < scan->count; i++) {
		image = &scan->leaves[i].image;
		if (!i && (tree_compare(image->low, image->low_size, scan->key,
					scan->key_size) > 0 ||
			   (image->high &&
			    tree_compare(scan->key, scan->key_size, image->high,
					 image->high_size) >= 0)))
			break;
		if (!i)
			continue;
		before = &scan->leaves[i - 1].image;
		if (!before->high ||
		    tree_compare(before->high, before->high_size, image->low,
				 image->low_size) != 0)
			break;
	}
	scan->count = i;
}

/* READ the entries of all leaves' slots in one batch. */
static int read_entries(struct scan *scan)
{
	uint32_t most = scan->range->flags & TREE_RANGE_KEYS ? 0 : UINT32_MAX;
	uint32_t count = 0, i;
	int rc = 0;

	for (i = 0; i < scan->count && !rc; i++)
		rc = tree_entries_begin(scan->tree, scan->leaves[i].image.slots,
					&scan->leaves[i].entries,
					scan->accesses, &count);
	if (!rc && count)
		rc = reef_execute(scan->tree->reef, scan->accesses, count);
	for (i = 0; i < scan->count && !rc; i++)
		rc = tree_entries_end(scan->tree, scan->leaves[i].image.slots,
				      most, &scan->leaves[i].entries);
	return rc;
}

/* --- telling --- */

static bool is_in_range(const struct scan *scan,
			const struct tree_record *record)
{
	const struct tree_range *range = scan->range;
	bool backward = range->flags & TREE_RANGE_BACKWARD;
	int order;

	if (scan->key) {
		order = tree_compare(record->key, record->key_size, scan->key,
				     scan->key_size);
		order = backward ? -order : order;
		if (order < 0 || (!order && scan->is_after))
			return false;
	}
	return true;
}

static bool is_behind_range(const struct scan *scan, const void *key,
			    uint32_t size)
{
	const struct tree_range *range = scan->range;
	int order;

	if (!range->to)
		return false;
	order = tree_compare(key, size, range->to, range->to_size);
	return range->flags & TREE_RANGE_BACKWARD ? order <= 0 : order >= 0;
}

static int tell(struct scan *scan, const struct tree_record *record)
{
	struct entry entry = {
		.key = record->key,
		.key_size = record->key_size,
		.value = record->value,
		.value_size = record->value_size,
		.version = record->version,
		.stamp = record->stamp,
	};
	uint64_t at;
	int rc;

	if (record->outside) {
		rc = tree_entry_read(
			scan->tree, record->outside,
			scan->range->flags & TREE_RANGE_KEYS ? 0 : UINT32_MAX,
			&scan->room, &at);
		if (rc != 1)
			return rc && !index_is_nonsense(rc) ? rc
							    : -REEF_ECORRUPT;
		entry = entry_view(scan->room.bytes);
		entry.key = record->key;
	}
	if (scan->range->flags & TREE_RANGE_KEYS)
		entry.value = NULL;
	rc = scan->each(scan->context, &entry);
	if (rc == TREE_PASS)
		return 0;
	scan->said = rc;
	if (rc || !--scan->left)
		scan->is_done = true;
	return 0;
}

static int tell_leaf(struct scan *scan, struct leaf *leaf)
{
	bool backward = scan->range->flags & TREE_RANGE_BACKWARD;
	const struct tree_image *image = &leaf->image;
	struct tree_merged merged;
	int rc = tree_merge(image, image->slots, &leaf->entries, UINT32_MAX,
			    &merged);

	for (uint32_t i = 0; i < merged.count && !rc && !scan->is_done; i++) {
		const struct tree_record *record =
			&merged.records[backward ? merged.count - 1 - i : i];

		if (!is_in_range(scan, record))
			continue;
		if (is_behind_range(scan, record->key, record->key_size))
			scan->is_done = true;
		else
			rc = tell(scan, record);
	}
	tree_merged_free(&merged);
	if (rc || scan->is_done)
		return rc;
	if (backward ? !image->low_size : !image->high)
		scan->is_done = true;
	else if (backward)
		rc = move_to(scan, image->low, image->low_size, true);
	else
		rc = move_to(scan, image->high, image->high_size, false);
	if (!rc && !scan->is_done &&
	    is_behind_range(scan, scan->key, scan->key_size))
		scan->is_done = true;
	return rc;
}

static int step(struct scan *scan)
{
	bool backward = scan->range->flags & TREE_RANGE_BACKWARD;
	uint64_t most = 1 + scan->left / PER_LEAF;
	int rc = 0;

	if (!backward && most > 1)
		rc = read_several(scan,
				  most < TOGETHER ? (uint32_t)most : TOGETHER);
	if (!rc)
		keep_chain(scan);
	if (!rc && !scan->count) {
		/* None of those that the parent knows will do. */
		free_leaves(scan);
		rc = read_one(scan);
	}
	if (!rc)
		rc = read_entries(scan);
	for (uint32_t i = 0; i < scan->count && !rc && !scan->is_done; i++)
		rc = tell_leaf(scan, &scan->leaves[i]);
	free_leaves(scan);
	return rc;
}

int tree_scan(struct tree *tree, const struct tree_range *range,
	      int (*each)(void *context, const struct entry *entry),
	      void *context)
{
	struct scan *scan;
	int rc = 0;

	if (range->from_size > TREE_KEY_MAX || range->to_size > TREE_KEY_MAX)
		return -EINVAL;
	scan = calloc(1, sizeof(*scan));
	if (!scan)
		return -ENOMEM;
	scan->tree = tree;
	scan->range = range;
	scan->each = each;
	scan->context = context;
	scan->left = range->limit ? range->limit : UINT64_MAX;
	if (range->from)
		rc = move_to(scan, range->from, range->from_size,
			     range->flags & TREE_RANGE_AFTER);
	else if (!(range->flags & TREE_RANGE_BACKWARD))
		rc = move_to(scan, "", 0, false);
	if (scan->key && is_behind_range(scan, scan->key, scan->key_size))
		scan->is_done = true;
	while (!rc && !scan->is_done) {
		reef_enter(tree->reef);
		rc = step(scan);
		reef_leave(tree->reef);
	}
	rc = rc ? rc : scan->said;
	entry_room_free(&scan->room);
	free(scan->key);
	free(scan);
	return rc;
}
