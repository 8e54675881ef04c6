/* count.c - how many keys, without reading them.
 *
 * Leaves: the heads that the parent knows are READ in one batch, the fronts of
 * their blocks in the next; of those that are remembered only the front. A
 * front has the shape and the slots of its block, and with that its keys; its
 * id says that it was the leaf then (4). The leaf to the right must be the one
 * that the parent has next: where it is not, somebody was split or has joined
 * another, and the parent does not say so yet: then the leaf is read whole. The
 * leaves at the ends of a range are scanned. */
#include "index/tree/internal.h"

#include <stdlib.h>
#include <string.h>

#define TOGETHER 32u
#define BATCHES 8u /* within one reef_enter */
#define LEAVES_MAX (UINT64_C(1) << 38)
#define ATTEMPTS_MAX 1000u

/* What is read of a block: of one that is remembered up to its slots. */
struct front {
	uint64_t id, shape, slots[TREE_SLOTS], right, same_id, head;
};
static_assert(sizeof(struct front) == offsetof(struct tree_block, number),
	      "layout");

struct counting {
	struct tree *tree;
	const uint8_t *to; /* NULL: to the end */
	uint32_t to_size;
	struct tree_count *out;
	/* Where it goes on: at this key, which the next leaf begins with, if
	 * its head is known (not 0): that is good until reef_leave. */
	uint64_t head;
	uint8_t *key;
	uint32_t key_size;
	bool is_done;
	/* of a step */
	uint64_t heads[TOGETHER + 1], words[TOGETHER];
	struct {
		uint64_t id, right;
		bool is_last; /* it ends where the parent does */
	} known[TOGETHER];    /* of leaves that are remembered; id 0: not */
	struct front fronts[TOGETHER];
};

static int move_to(struct counting *counting, uint64_t head, const void *key,
		   uint32_t size)
{
	uint8_t *copy = malloc(size + 1u);

	if (!copy)
		return -ENOMEM;
	if (size)
		memcpy(copy, key, size);
	free(counting->key);
	counting->key = copy;
	counting->key_size = size;
	counting->head = head;
	return 0;
}

/* By its shape, and what its slots say of it. */
uint64_t tree_count_keys(uint64_t shape, const uint64_t *slots)
{
	uint64_t keys = shape & 4095;

	for (uint32_t i = 0; i < TREE_SLOTS; i++) {
		if (!tree_slot_is_used(slots[i]))
			continue;
		if (!(slots[i] & TREE_IN_BASE) && !tree_slot_is_dead(slots[i]))
			keys++;
		if (slots[i] & TREE_IN_BASE && tree_slot_is_dead(slots[i]))
			keys--;
	}
	return keys;
}

static void add_node(struct tree_count *out, uint64_t word, uint64_t keys)
{
	out->nodes++;
	out->bytes += tree_word_size(word) + 8 + 64;
	out->keys += keys;
}

/* --- one leaf by itself --- */

static int add_one(void *context, const struct entry *entry)
{
	uint64_t *keys = context;

	(void)entry;
	++*keys;
	return 0;
}

static bool ends_behind(const struct counting *counting, const uint8_t *high,
			uint32_t size)
{
	return counting->to && (!high || tree_compare(high, size, counting->to,
						      counting->to_size) > 0);
}

/* Scan from where it goes on to the end of a leaf, or of the range. */
static int scan_part(struct counting *counting, const uint8_t *high,
		     uint32_t high_size)
{
	struct tree_range range = {
		.from = counting->key,
		.from_size = counting->key_size,
		.to = high,
		.to_size = high_size,
		.flags = TREE_RANGE_KEYS,
	};

	if (ends_behind(counting, high, high_size)) {
		range.to = counting->to;
		range.to_size = counting->to_size;
		counting->is_done = true;
	}
	return tree_scan(counting->tree, &range, add_one, &counting->out->keys);
}

/* True if the count goes on in a leaf as an image shows it. */
static bool is_in(const struct counting *counting,
		  const struct tree_image *image)
{
	return !image->level &&
	       tree_compare(image->low, image->low_size, counting->key,
			    counting->key_size) <= 0 &&
	       (!image->high ||
		tree_compare(counting->key, counting->key_size, image->high,
			     image->high_size) < 0);
}

/* READ the leaf that the key is in. One that was remembered may have been split
 * since, or its head may be another's. */
static int read_leaf(struct counting *counting, struct tree_image *image)
{
	struct tree *tree = counting->tree;
	struct tree_node *node;
	int rc;

	for (uint32_t i = 0; i < ATTEMPTS_MAX; i++) {
		rc = tree_search(tree, counting->key, counting->key_size, 0,
				 false, NULL, &node);
		if (rc)
			return rc;
		rc = tree_node_read(tree, node, image);
		if (rc == -ESTALE)
			tree_node_forget(tree, node);
		tree_node_unref(node);
		if (rc && rc != -ESTALE)
			return rc;
		if (!rc && is_in(counting, image))
			return 0;
		if (!rc) {
			rc = tree_node_remember(tree, image, NULL);
			tree_image_free(image);
		}
		if (!rc || rc == -ESTALE)
			rc = index_pause(i);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

static int count_one(struct counting *counting)
{
	struct tree_image image;
	uint64_t shape, right = 0;
	int rc = read_leaf(counting, &image);

	if (rc)
		return rc;
	if (ends_behind(counting, image.high, image.high_size) ||
	    tree_compare(image.low, image.low_size, counting->key,
			 counting->key_size)) {
		rc = scan_part(counting, image.high, image.high_size);
	} else {
		memcpy(&shape, image.bytes + 8, 8);
		rc = tree_settle(counting->tree, image.slots, NULL);
		add_node(counting->out, image.word,
			 tree_count_keys(shape, image.slots));
	}
	if (!image.right || !image.high)
		counting->is_done = true;
	if (!counting->is_done && !rc)
		rc = reef_long_address(counting->tree->space, image.right,
				       &right);
	if (!counting->is_done && !rc)
		rc = move_to(counting, right, image.high, image.high_size);
	tree_image_free(&image);
	return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
}

/* --- several --- */

/* READ the words of the heads whose leaves are not remembered. */
static int read_words(struct counting *counting, const struct tree_node *parent,
		      uint32_t count)
{
	struct reef_access accesses[TOGETHER];
	uint32_t reads = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct tree_node *node =
			tree_node_known(counting->tree, counting->heads[i]);

		counting->known[i].id = node && !node->level ? node->id : 0;
		if (counting->known[i].id) {
			counting->known[i].right = node->right;
			counting->known[i].is_last =
				node->high && parent->high
					? !tree_compare(node->high,
							node->high_size,
							parent->high,
							parent->high_size)
					: !node->high && !parent->high;
			counting->words[i] = node->word;
			continue;
		}
		accesses[reads++] = (struct reef_access){
			.kind = REEF_READ,
			.address = counting->heads[i],
			.local = &counting->words[i],
			.length = 8,
		};
	}
	return reads ? reef_execute(counting->tree->reef, accesses, reads) : 0;
}

/* READ the fronts of leaves. Returns how many could be: from the first on. */
static int read_fronts(struct counting *counting,
		       const struct tree_node *parent, uint32_t count)
{
	struct tree *tree = counting->tree;
	struct reef_access accesses[TOGETHER];
	uint64_t at;
	uint32_t i;
	int rc = read_words(counting, parent, count);

	for (i = 0; i < count && !rc; i++) {
		uint64_t word = counting->words[i];
		bool is_known = counting->known[i].id;

		if (word & TREE_DROPPED ||
		    reef_long_address(tree->space, word & TREE_SHORT_MASK, &at))
			break;
		accesses[i] = (struct reef_access){
			.kind = REEF_READ,
			.address = at,
			.local = &counting->fronts[i],
			.length = is_known ? TREE_FRONT : sizeof(struct front),
		};
	}
	if (!rc && i)
		rc = reef_execute(tree->reef, accesses, i);
	/* One by itself tells whose memory it is. */
	if (rc == -REEF_ELOST || index_is_nonsense(rc))
		return 0;
	return rc ? rc : (int)i;
}

/* True if front i is that of its head's block; *right: the head on its right,
 * or 0. */
static bool is_good(const struct counting *counting, uint32_t i,
		    uint64_t *right)
{
	const struct front *front = &counting->fronts[i];

	*right = 0;
	if (counting->known[i].id) {
		*right = counting->known[i].right;
		return front->id == counting->known[i].id;
	}
	if (!front->id || front->id != front->same_id ||
	    front->head != counting->heads[i] || front->shape >> 24 & 255)
		return false;
	return !front->right ||
	       !reef_long_address(counting->tree->space, front->right, right);
}

/* Count the leaves of a parent from a part on, `count` of them. Returns how
 * many that went for. */
static int count_parts(struct counting *counting,
		       const struct tree_node *parent, uint32_t part,
		       uint32_t count)
{
	int rc = read_fronts(counting, parent, count), good = 0, settled;
	uint64_t right = 0, next = 0;
	const struct tree_part *at;

	while (good < rc && is_good(counting, (uint32_t)good, &right)) {
		bool is_last = part + (uint32_t)good + 1 == parent->count;

		/* Where one ends that is the last only it knows. */
		if (is_last ? !counting->known[good].id ||
				      !counting->known[good].is_last
			    : right != counting->heads[good + 1])
			break;
		settled = tree_settle(counting->tree,
				      counting->fronts[good].slots, NULL);
		if (settled)
			return settled;
		add_node(counting->out, counting->words[good],
			 tree_count_keys(counting->fronts[good].shape,
					 counting->fronts[good].slots));
		next = right;
		good++;
	}
	if (rc < 0 || !good)
		return rc < 0 ? rc : 0;
	if (!next) {
		counting->is_done = true;
		return good;
	}
	at = &parent->parts[part + (uint32_t)good];
	if (part + (uint32_t)good < parent->count)
		rc = move_to(counting, next, at->key, at->key_size);
	else if (parent->high)
		rc = move_to(counting, next, parent->high, parent->high_size);
	else
		counting->is_done = true;
	return rc ? rc : good;
}

/* True if a leaf is known to begin where the count goes on. The first of all is
 * always the same. */
static bool is_next(const struct counting *counting, uint64_t head)
{
	const struct tree_node *node = tree_node_known(counting->tree, head);

	if (counting->head)
		return counting->head == head;
	return !counting->key_size ||
	       (node && !node->level &&
		!tree_compare(node->low, node->low_size, counting->key,
			      counting->key_size));
}

/* Find the parent of the next leaf, as it is in this epoch: so its children
 * begin where it says, whatever became of them. */
static int find_parent(struct counting *counting, struct tree_node **parent)
{
	struct tree *tree = counting->tree;
	int rc;

	for (uint32_t i = 0; i < ATTEMPTS_MAX; i++) {
		rc = tree_search(tree, counting->key, counting->key_size, 1,
				 false, NULL, parent);
		if (rc || (*parent)->epoch == reef_epoch(tree->reef))
			return rc;
		tree_node_forget(tree, *parent);
		tree_node_unref(*parent);
	}
	return -EBUSY;
}

/* Count the next leaves that a parent knows, and that are all in the range. 0:
 * there are none. */
static int count_several(struct counting *counting)
{
	struct tree_node *parent;
	uint32_t count = 0, first;
	int part, rc = find_parent(counting, &parent);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	part = tree_node_part(parent, counting->key, counting->key_size, false);
	first = part < 0 ? parent->count : (uint32_t)part;
	for (; first + count < parent->count && count < TOGETHER; count++) {
		const struct tree_part *at = &parent->parts[first + count];
		bool is_last = first + count + 1 == parent->count;

		if (is_last ? ends_behind(counting, parent->high,
					  parent->high_size)
			    : ends_behind(counting, at[1].key, at[1].key_size))
			break;
		counting->heads[count] = parent->children[first + count].head;
		counting->heads[count + 1] =
			is_last ? 0 : parent->children[first + count + 1].head;
	}
	/* The leaf that is next must be what the parent has there. */
	if (count && is_next(counting, counting->heads[0]))
		rc = count_parts(counting, parent, first, count);
	tree_node_unref(parent);
	return rc;
}

/* Count some leaves; inside reef_enter. */
static int count_some(struct counting *counting)
{
	int rc = 0;

	counting->head = 0;
	for (uint32_t i = 0; i < BATCHES && !rc && !counting->is_done; i++) {
		rc = count_several(counting);
		if (!rc && !counting->is_done)
			rc = count_one(counting);
		rc = rc > 0 ? 0 : rc;
	}
	return rc;
}

static int count_leaves(struct counting *counting)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && !counting->is_done; i++) {
		reef_enter(counting->tree->reef);
		rc = i < LEAVES_MAX ? count_some(counting) : -EBUSY;
		reef_leave(counting->tree->reef);
	}
	return rc;
}

/* --- ranges --- */

/* Count from the beginning of a range to the first leaf that begins in it. */
static int count_begin(struct counting *counting,
		       const struct tree_range *range)
{
	struct tree_range begin = *range;
	struct tree_node *node;
	uint8_t *high = NULL;
	uint32_t size = 0;
	int rc;

	reef_enter(counting->tree->reef);
	rc = tree_search(counting->tree, range->from, range->from_size, 0,
			 false, NULL, &node);
	if (!rc) {
		size = node->high_size;
		if (node->high) {
			high = malloc(size + 1u);
			rc = high ? 0 : -ENOMEM;
		}
		if (!rc && high)
			memcpy(high, node->high, size);
		tree_node_unref(node);
	}
	reef_leave(counting->tree->reef);
	if (rc)
		return rc;
	if (!high || ends_behind(counting, high, size)) {
		counting->is_done = true;
	} else {
		begin.to = high;
		begin.to_size = size;
		rc = move_to(counting, 0, high, size);
	}
	begin.flags = (range->flags & TREE_RANGE_AFTER) | TREE_RANGE_KEYS;
	begin.limit = 0;
	if (!rc)
		rc = tree_scan(counting->tree, &begin, add_one,
			       &counting->out->keys);
	free(high);
	return rc;
}

static int count_range(struct tree *tree, const struct tree_range *range,
		       struct tree_count *out)
{
	struct counting *counting = calloc(1, sizeof(*counting));
	int rc;

	if (!counting)
		return -ENOMEM;
	counting->tree = tree;
	counting->to = range->to;
	counting->to_size = range->to_size;
	counting->out = out;
	rc = range->from ? count_begin(counting, range)
			 : move_to(counting, 0, "", 0);
	if (!rc)
		rc = count_leaves(counting);
	free(counting->key);
	free(counting);
	return rc;
}

/* A range that goes backward has the same keys as one that goes forward, but
 * for those at its ends. */
static int count_backward(struct tree *tree, const struct tree_range *range,
			  struct tree_count *out)
{
	struct tree_range forward = {
		.from = range->to,
		.from_size = range->to_size,
		.to = range->from,
		.to_size = range->from_size,
		.flags = range->to ? TREE_RANGE_AFTER : 0,
	};
	int rc = 0;

	if (range->from && range->to &&
	    tree_compare(range->from, range->from_size, range->to,
			 range->to_size) <= 0)
		return 0;
	if (range->from && !(range->flags & TREE_RANGE_AFTER)) {
		struct tree_reading reading = {
			.key = range->from,
			.key_size = range->from_size,
			.blind = true,
		};

		rc = tree_get(tree, &reading);
		out->keys += !rc;
		tree_reading_free(&reading);
	}
	rc = rc == -ENOENT ? 0 : rc;
	return rc ? rc : count_range(tree, &forward, out);
}

int tree_count_range(struct tree *tree, const struct tree_range *range,
		     uint64_t *keys)
{
	struct tree_count count = {0};
	int rc = 0;

	if (range->from_size > TREE_KEY_MAX || range->to_size > TREE_KEY_MAX)
		return -EINVAL;
	if (range->flags & TREE_RANGE_BACKWARD)
		rc = count_backward(tree, range, &count);
	else if (!range->from || !range->to ||
		 tree_compare(range->from, range->from_size, range->to,
			      range->to_size) < 0)
		rc = count_range(tree, range, &count);
	if (!rc)
		*keys = count.keys;
	return rc;
}

/* --- all of it --- */

/* Count the nodes of a level above the leaves, which are remembered. */
static int count_level(struct tree *tree, uint32_t level,
		       struct tree_count *out)
{
	struct tree_node *node = NULL, *next;
	struct tree_child child = {0};
	int rc = tree_search(tree, "", 0, level, false, NULL, &node);

	while (!rc && node) {
		add_node(out, node->word, 0);
		child.head = node->right;
		next = NULL;
		if (child.head)
			rc = tree_node_get(tree, &child, &next);
		/* (R10) Whoever goes on to the right comes to an end. */
		if (next && (next->level != level ||
			     tree_compare(next->low, next->low_size, node->low,
					  node->low_size) <= 0)) {
			tree_node_unref(next);
			next = NULL;
			rc = -REEF_ECORRUPT;
		}
		tree_node_unref(node);
		node = next;
	}
	return rc;
}

int tree_count(struct tree *tree, struct tree_count *out)
{
	const struct tree_range all = {0};
	struct tree_count count = {0};
	uint32_t level = 1;
	int rc = count_range(tree, &all, &count);

	for (; !rc; level++) {
		reef_enter(tree->reef);
		rc = count_level(tree, level, &count);
		reef_leave(tree->reef);
	}
	if (rc == -ENOENT)
		rc = 0;
	/* The level that was not there is one above the root's. */
	count.height = level - 2;
	if (!rc)
		*out = count;
	return rc;
}
