/* scan.c - ranges, in order.
 *
 * Forward: the heads of the next leaves that the parent knows are READ in one
 * batch, their blocks in the next, the entries of their slots in a third. A
 * leaf that has its id is the leaf at that moment (4); the scan goes on at the
 * high fence that it read, so ranges neither overlap nor leave gaps, whatever
 * is split meanwhile. What does not fit is read by itself. Backward: one leaf
 * after the other, each by a search for what is below the low fence. Leaves
 * that are remembered, or whose memory is mapped: copy.c. */
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

/* Leaves that are read together. */
struct together {
	struct leaf leaves[TOGETHER];
	uint32_t count;
	struct reef_access accesses[TOGETHER * TREE_SLOTS];
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
	bool is_begun; /* a key was told, so all that follow are behind `key` */
	struct entry_room keys[2];  /* `key` is in one of them */
	struct together *together;  /* NULL: not needed yet */
	struct tree_fetch *fetches; /* TREE_FETCHED; NULL: not needed yet */
	uint64_t fetched, told; /* records of those, and keys that were told */
	struct tree_copy *copy;
	struct entry_room room; /* of values that lie outside */
};

static void free_leaves(struct scan *scan)
{
	for (uint32_t i = 0; i < TOGETHER; i++) {
		tree_image_free(&scan->together->leaves[i].image);
		tree_entries_free(&scan->together->leaves[i].entries);
		scan->together->leaves[i].entries = (struct tree_entries){0};
	}
	scan->together->count = 0;
}

static int move_to(struct scan *scan, const void *key, uint32_t size,
		   bool is_after)
{
	struct entry_room *room = &scan->keys[scan->key == scan->keys[0].bytes];
	int rc = entry_room_need(room, size + 1u);

	if (rc)
		return rc;
	if (size)
		memcpy(room->bytes, key, size);
	scan->key = room->bytes;
	scan->key_size = size;
	scan->is_after = is_after;
	scan->is_begun = false;
	return 0;
}

/* True if the next key is right below `key`, or the last of all. */
static bool goes_before(const struct scan *scan)
{
	return scan->range->flags & TREE_RANGE_BACKWARD &&
	       (!scan->key || scan->is_after);
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
	bool before = goes_before(scan);
	struct tree_image *image = &scan->together->leaves[0].image;
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
		scan->together->count = !rc;
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
		struct tree_image *image = &scan->together->leaves[i].image;

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
		scan->together->accesses[i] = (struct reef_access){
			.kind = REEF_READ,
			.address = image->at,
			.local = image->bytes,
			.length = image->size,
		};
	}
	if (i)
		rc = reef_execute(tree->reef, scan->together->accesses, i);
	for (count = 0; count < i && !rc; count++) {
		struct tree_image *image = &scan->together->leaves[count].image;
		uint64_t id, head = image->head;

		if (tree_image_parse(image, tree->home.number))
			break;
		memcpy(&id, image->bytes, 8);
		if (id != image->id || image->head != head || image->level)
			break;
	}
	scan->together->count = count;
	return rc;
}

/* True if there is no parent; or what the tree's root was, when it was last
 * seen, is dropped: that does not say that the next leaf is. */
static bool is_leaf_to_tell(int rc)
{
	return rc == -ENOENT || rc == -REEF_EDROPPED;
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
		return is_leaf_to_tell(rc) ? 0 : rc;
	part = tree_node_part(parent, scan->key, scan->key_size, false);
	for (; part >= 0 && (uint32_t)part < parent->count && count < most;
	     part++, count++) {
		heads[count] = parent->children[part].head;
		scan->together->accesses[count] = (struct reef_access){
			.kind = REEF_READ,
			.address = heads[count],
			.local = &words[count],
			.length = 8,
		};
	}
	tree_node_unref(parent);
	if (!count)
		return 0;
	rc = reef_execute(tree->reef, scan->together->accesses, count);
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

	for (i = 0; i < scan->together->count; i++) {
		image = &scan->together->leaves[i].image;
		if (!i && (tree_compare(image->low, image->low_size, scan->key,
					scan->key_size) > 0 ||
			   (image->high &&
			    tree_compare(scan->key, scan->key_size, image->high,
					 image->high_size) >= 0)))
			break;
		if (!i)
			continue;
		before = &scan->together->leaves[i - 1].image;
		if (!before->high ||
		    tree_compare(before->high, before->high_size, image->low,
				 image->low_size) != 0)
			break;
	}
	scan->together->count = i;
}

/* READ the entries of all leaves' slots in one batch. */
static int read_entries(struct scan *scan)
{
	uint32_t most = scan->range->flags & TREE_RANGE_KEYS ? 0 : UINT32_MAX;
	uint32_t count = 0, i;
	int rc = 0;

	for (i = 0; i < scan->together->count && !rc; i++)
		rc = tree_settle(scan->tree,
				 scan->together->leaves[i].image.slots, NULL);
	for (i = 0; i < scan->together->count && !rc; i++)
		rc = tree_entries_begin(scan->tree,
					scan->together->leaves[i].image.slots,
					&scan->together->leaves[i].entries,
					scan->together->accesses, &count);
	if (!rc && count)
		rc = reef_execute(scan->tree->reef, scan->together->accesses,
				  count);
	for (i = 0; i < scan->together->count && !rc; i++)
		rc = tree_entries_end(scan->tree,
				      scan->together->leaves[i].image.slots,
				      most, &scan->together->leaves[i].entries);
	return rc;
}

/* --- telling --- */

static inline bool is_in_range(struct scan *scan,
			       const struct tree_record *record)
{
	const struct tree_range *range = scan->range;
	bool backward = range->flags & TREE_RANGE_BACKWARD;
	int order;

	if (scan->key && !scan->is_begun) {
		order = tree_compare(record->key, record->key_size, scan->key,
				     scan->key_size);
		order = backward ? -order : order;
		if (order < 0 || (!order && scan->is_after))
			return false;
		scan->is_begun = true;
	}
	return true;
}

static inline bool is_behind_range(const struct scan *scan, const void *key,
				   uint32_t size)
{
	const struct tree_range *range = scan->range;
	int order;

	if (!range->to)
		return false;
	order = tree_compare(key, size, range->to, range->to_size);
	return range->flags & TREE_RANGE_BACKWARD ? order <= 0 : order >= 0;
}

static inline int tell(struct scan *scan, const struct tree_record *record)
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

	if (unlikely(record->outside)) {
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

/* Tell of a record, if it is in the range. 1: that was all. */
static int tell_next(void *context, const struct tree_record *record)
{
	struct scan *scan = context;
	int rc = 0;

	if (!is_in_range(scan, record))
		return 0;
	if (is_behind_range(scan, record->key, record->key_size))
		scan->is_done = true;
	else
		rc = tell(scan, record);
	return rc ? rc : scan->is_done;
}

/* Go on where a leaf ends; NULL: it was the last. */
static int go_on(struct scan *scan, const uint8_t *key, uint32_t size)
{
	int rc = 0;

	if (scan->is_done)
		return 0;
	if (!key)
		scan->is_done = true;
	else
		rc = move_to(scan, key, size,
			     scan->range->flags & TREE_RANGE_BACKWARD);
	if (!rc && !scan->is_done &&
	    is_behind_range(scan, scan->key, scan->key_size))
		scan->is_done = true;
	return rc;
}

static int tell_leaf(struct scan *scan, struct leaf *leaf)
{
	bool backward = scan->range->flags & TREE_RANGE_BACKWARD;
	const struct tree_image *image = &leaf->image;
	struct tree_merged merged;
	int rc = tree_merge(image, image->slots, &leaf->entries, UINT32_MAX,
			    &merged);

	if (!rc && scan->range->moment)
		rc = tree_moment_note(scan->range->moment, scan->tree, image);
	for (uint32_t i = 0; i < merged.count && !rc; i++)
		rc = tell_next(
			scan,
			&merged.records[backward ? merged.count - 1 - i : i]);
	tree_merged_free(&merged);
	if (rc)
		return rc == 1 ? 0 : rc;
	if (backward)
		return go_on(scan, image->low_size ? image->low : NULL,
			     image->low_size);
	return go_on(scan, image->high, image->high_size);
}

/* Tell of a copy. 1: done. */
static int tell_copy(struct scan *scan, struct tree_copy *copy)
{
	bool backward = scan->range->flags & TREE_RANGE_BACKWARD;
	const uint8_t *key;
	uint32_t size;
	int rc = tree_copy_tell(copy, backward, tell_next, scan);

	if (rc < 0)
		return rc;
	tree_copy_border(copy, backward, &key, &size);
	rc = go_on(scan, key, size);
	return rc ? rc : 1;
}

/* Tell of the next leaf in place. 1: done.  0: it is not plain. */
static int step_near(struct scan *scan)
{
	if (!tree_copy_take(scan->tree, scan->copy, scan->key, scan->key_size,
			    goes_before(scan),
			    scan->range->flags & TREE_RANGE_BACKWARD,
			    scan->left))
		return 0;
	return tell_copy(scan, scan->copy);
}

/* --- leaves that are remembered --- */

/* The leaf that is remembered by a head, if it begins where the last one ends,
 * or has the next key if there is none. */
static struct tree_node *known_leaf(const struct scan *scan, uint64_t head,
				    const struct tree_node *last)
{
	struct tree_node *node = tree_node_known(scan->tree, head);

	if (!node || node->level)
		return NULL;
	if (!last)
		return tree_node_side(node, scan->key, scan->key_size) ? NULL
								       : node;
	return last->high && !tree_compare(last->high, last->high_size,
					   node->low, node->low_size)
		       ? node
		       : NULL;
}

/* How many records are to be read for the keys that are left: fewer, as slots
 * have keys, too; so many as those that were told were among. */
static uint64_t count_wanted(const struct scan *scan)
{
	if (!scan->told || scan->left > TREE_KEYS_MAX)
		return scan->left;
	return scan->left * scan->fetched / scan->told + 1;
}

/* Choose the next leaves, as far as they are remembered, and the range goes.
 * Returns how many. */
static uint32_t choose_known(struct scan *scan, const struct tree_node *parent)
{
	int part = tree_node_part(parent, scan->key, scan->key_size, false);
	uint64_t left = count_wanted(scan);
	const struct tree_node *last = NULL;
	uint32_t count = 0, records;

	for (; part >= 0 && (uint32_t)part < parent->count &&
	       count < TREE_FETCHED && left;
	     part++) {
		struct tree_fetch *fetch = &scan->fetches[count];
		struct tree_node *node =
			known_leaf(scan, parent->children[part].head, last);

		if (!node ||
		    (count && is_behind_range(scan, node->low, node->low_size)))
			break;
		tree_fetch_begin(fetch, node, count ? node->low : scan->key,
				 count ? node->low_size : scan->key_size, false,
				 left);
		records = tree_fetch_records(fetch);
		left -= records < left ? records : left;
		last = node;
		count++;
	}
	return count;
}

/* Tell of the next leaves, which are remembered, by READs. 1: done.  0: they
 * are not, or are something else by now. */
static int step_known(struct scan *scan)
{
	uint32_t most = scan->range->flags & TREE_RANGE_KEYS ? 0 : UINT32_MAX;
	struct tree *tree = scan->tree;
	struct tree_node *parent;
	uint64_t before;
	uint32_t count;
	int rc, good;

	if (scan->range->flags & TREE_RANGE_BACKWARD)
		return 0;
	if (!scan->fetches)
		scan->fetches = calloc(TREE_FETCHED, sizeof(*scan->fetches));
	if (!scan->fetches)
		return -ENOMEM;
	rc = tree_search(tree, scan->key, scan->key_size, 1, false, NULL,
			 &parent);
	if (rc)
		return is_leaf_to_tell(rc) ? 0 : rc;
	count = choose_known(scan, parent);
	tree_node_unref(parent);
	good = count ? tree_fetch_read(tree, scan->fetches, count, most) : 0;
	if (count && !good)
		tree_node_forget(tree, scan->fetches[0].copy.node);
	rc = good ? 1 : 0;
	before = scan->left;
	for (int i = 0; i < good && rc == 1 && !scan->is_done; i++) {
		scan->fetched += tree_fetch_records(&scan->fetches[i]);
		rc = tell_copy(scan, &scan->fetches[i].copy);
	}
	scan->told += before - scan->left;
	return good < 0 ? good : rc;
}

static void free_fetches(struct scan *scan)
{
	for (uint32_t i = 0; scan->fetches && i < TREE_FETCHED; i++)
		tree_fetch_fini(&scan->fetches[i]);
	free(scan->fetches);
}

/* Tell of the next leaves, by READs. */
static int step_far(struct scan *scan)
{
	bool backward = scan->range->flags & TREE_RANGE_BACKWARD;
	uint64_t most = 1 + scan->left / PER_LEAF;
	int rc = 0;

	if (!scan->together)
		scan->together = calloc(1, sizeof(*scan->together));
	if (!scan->together)
		return -ENOMEM;
	if (!backward && most > 1)
		rc = read_several(scan,
				  most < TOGETHER ? (uint32_t)most : TOGETHER);
	if (!rc)
		keep_chain(scan);
	if (!rc && !scan->together->count) {
		/* None of those that the parent knows will do. */
		free_leaves(scan);
		rc = read_one(scan);
	}
	if (!rc)
		rc = read_entries(scan);
	for (uint32_t i = 0; i < scan->together->count && !rc && !scan->is_done;
	     i++)
		rc = tell_leaf(scan, &scan->together->leaves[i]);
	free_leaves(scan);
	return rc;
}

static int step(struct scan *scan)
{
	int rc = 0;

	/* Who looks again needs all of a leaf. */
	if (!scan->range->moment)
		rc = step_near(scan);
	if (!rc && !scan->range->moment)
		rc = step_known(scan);
	return rc ? (rc == 1 ? 0 : rc) : step_far(scan);
}

/* Take the copy that the tree has, or make one: another fiber has its own. */
static struct tree_copy *take_copy(struct tree *tree)
{
	struct tree_copy *copy = tree->copy;

	tree->copy = NULL;
	return copy ? copy : calloc(1, sizeof(*copy));
}

static void give_copy(struct tree *tree, struct tree_copy *copy)
{
	tree_node_unref(copy->node);
	copy->node = NULL;
	if (!tree->copy) {
		tree->copy = copy;
		return;
	}
	tree_copy_fini(copy);
	free(copy);
}

static int begin(struct scan *scan)
{
	const struct tree_range *range = scan->range;
	int rc = 0;

	if (range->from)
		rc = move_to(scan, range->from, range->from_size,
			     range->flags & TREE_RANGE_AFTER);
	else if (!(range->flags & TREE_RANGE_BACKWARD))
		rc = move_to(scan, "", 0, false);
	if (rc)
		return rc;
	if (scan->key && is_behind_range(scan, scan->key, scan->key_size))
		scan->is_done = true;
	/* No key is before the empty one, nor has a node a place for it. */
	if (range->from && !range->from_size && scan->is_after &&
	    range->flags & TREE_RANGE_BACKWARD)
		scan->is_done = true;
	return 0;
}

int tree_scan(struct tree *tree, const struct tree_range *range,
	      int (*each)(void *context, const struct entry *entry),
	      void *context)
{
	struct scan scan = {
		.tree = tree,
		.range = range,
		.each = each,
		.context = context,
		.left = range->limit ? range->limit : UINT64_MAX,
	};
	int rc;

	if (range->from_size > TREE_KEY_MAX || range->to_size > TREE_KEY_MAX)
		return -EINVAL;
	scan.copy = take_copy(tree);
	if (!scan.copy)
		return -ENOMEM;
	rc = begin(&scan);
	while (!rc && !scan.is_done) {
		reef_enter(tree->reef);
		rc = step(&scan);
		reef_leave(tree->reef);
	}
	give_copy(tree, scan.copy);
	entry_room_free(&scan.room);
	entry_room_free(&scan.keys[0]);
	entry_room_free(&scan.keys[1]);
	free(scan.together);
	free_fetches(&scan);
	return rc ? rc : scan.said;
}
