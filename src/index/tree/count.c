/* count.c - how many keys, without reading them.
 *
 * Leaves: the heads that the parent knows are READ in one batch, the fronts of
 * their blocks in the next. A front has the shape, the slots and the right of
 * its block, and with that its keys; its id says that it was the leaf then, as
 * the head named it inside the same reef_enter (4). The leaf to the right must
 * be the one that the parent has next: where it is not, somebody was split and
 * its separator is not there yet, and the leaf is read whole. The leaves at the
 * ends of a range are scanned. */
#include "index/tree/internal.h"

#include <stdlib.h>
#include <string.h>

#define TOGETHER 32u
#define LEAVES_MAX (UINT64_C(1) << 38)

/* What is read of a block. */
struct front {
	uint64_t id, shape, slots[TREE_SLOTS], right;
};
static_assert(sizeof(struct front) == offsetof(struct tree_block, same_id),
	      "layout");

struct counting {
	struct tree *tree;
	const uint8_t *to; /* NULL: to the end */
	uint32_t to_size;
	struct tree_count *out;
	/* Where it goes on: the next leaf, and its low fence as the parent has
	 * it. head 0: the one that the key is in. */
	uint64_t head;
	uint8_t *key;
	uint32_t key_size;
	bool is_done;
	/* of a step */
	uint64_t heads[TOGETHER + 1], words[TOGETHER];
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

/* Keys of a node: by its shape, and what its slots say of it. */
static uint64_t count_keys(uint64_t shape, const uint64_t *slots)
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

/* Scan what is left of the range; the tree is left for that. */
static int scan_rest(struct counting *counting, const void *from,
		     uint32_t from_size)
{
	const struct tree_range range = {
		.from = from,
		.from_size = from_size,
		.to = counting->to,
		.to_size = counting->to_size,
		.flags = TREE_RANGE_KEYS,
	};

	counting->is_done = true;
	return tree_scan(counting->tree, &range, add_one, &counting->out->keys);
}

static bool ends_behind(const struct counting *counting, const uint8_t *high,
			uint32_t size)
{
	return counting->to && (!high || tree_compare(high, size, counting->to,
						      counting->to_size) > 0);
}

/* Find the head of the leaf that the key is in, if it is not known. */
static int find_leaf(struct counting *counting, uint64_t *head, uint64_t *hint)
{
	struct tree_node *node;
	int rc;

	*head = counting->head;
	*hint = 0;
	if (*head)
		return 0;
	rc = tree_search(counting->tree, counting->key, counting->key_size, 0,
			 false, NULL, &node);
	if (rc)
		return rc;
	*head = node->head;
	*hint = node->word;
	tree_node_unref(node);
	return 0;
}

static int count_one(struct counting *counting)
{
	struct tree *tree = counting->tree;
	struct tree_child child;
	struct tree_image image;
	uint64_t shape, right = 0;
	int rc = find_leaf(counting, &child.head, &child.hint);

	if (!rc)
		rc = tree_image_read(tree, &child, &image);
	if (rc)
		return rc;
	if (ends_behind(counting, image.high, image.high_size)) {
		rc = scan_rest(counting, image.low, image.low_size);
		tree_image_free(&image);
		return rc;
	}
	memcpy(&shape, image.bytes + 8, 8);
	add_node(counting->out, image.word, count_keys(shape, image.slots));
	counting->is_done = !image.right || !image.high;
	if (!counting->is_done)
		rc = reef_long_address(tree->space, image.right, &right);
	if (!counting->is_done && !rc)
		rc = move_to(counting, right, image.high, image.high_size);
	tree_image_free(&image);
	return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
}

/* --- several --- */

/* READ the words of heads, then the fronts that they name. Returns how many
 * could be: from the first on. */
static int read_fronts(struct counting *counting, uint32_t count)
{
	struct tree *tree = counting->tree;
	struct reef_access accesses[TOGETHER];
	uint64_t at;
	uint32_t i;
	int rc;

	for (i = 0; i < count; i++)
		accesses[i] = (struct reef_access){
			.kind = REEF_READ,
			.address = counting->heads[i],
			.local = &counting->words[i],
			.length = 8,
		};
	rc = reef_execute(tree->reef, accesses, count);
	for (i = 0; i < count && !rc; i++) {
		uint64_t word = counting->words[i];

		if (word & TREE_DROPPED ||
		    reef_long_address(tree->space, word & TREE_SHORT_MASK, &at))
			break;
		accesses[i] = (struct reef_access){
			.kind = REEF_READ,
			.address = at,
			.local = &counting->fronts[i],
			.length = sizeof(struct front),
		};
	}
	if (!rc && i)
		rc = reef_execute(tree->reef, accesses, i);
	/* One by itself tells whose memory it is. */
	if (rc == -REEF_ELOST || index_is_nonsense(rc))
		return 0;
	return rc ? rc : (int)i;
}

/* True if front i is that of its head's block, and what the parent has behind
 * it is what is there. */
static bool is_good(const struct counting *counting, uint32_t i, bool is_last)
{
	const struct front *front = &counting->fronts[i];
	uint64_t right = 0;

	if (!front->id || front->shape >> 24 & 255)
		return false;
	if (is_last)
		return true;
	return !reef_long_address(counting->tree->space, front->right,
				  &right) &&
	       right == counting->heads[i + 1];
}

/* Count the leaves of a parent from a part on, `count` of them. Returns how
 * many that went for. */
static int count_parts(struct counting *counting,
		       const struct tree_node *parent, uint32_t part,
		       uint32_t count)
{
	const struct tree_part *next;
	uint64_t right = 0;
	uint32_t i;
	int rc = read_fronts(counting, count), good;

	for (good = 0; good < rc; good++) {
		i = (uint32_t)good;
		if (!is_good(counting, i, part + i + 1 == parent->count))
			break;
		add_node(counting->out, counting->words[i],
			 count_keys(counting->fronts[i].shape,
				    counting->fronts[i].slots));
	}
	if (rc < 0 || !good)
		return rc < 0 ? rc : 0;
	i = (uint32_t)good - 1;
	if (!counting->fronts[i].right) {
		counting->is_done = true;
		return good;
	}
	rc = reef_long_address(counting->tree->space, counting->fronts[i].right,
			       &right);
	next = &parent->parts[part + i + 1];
	if (rc)
		return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
	if (part + i + 1 < parent->count)
		rc = move_to(counting, right, next->key, next->key_size);
	else
		rc = move_to(counting, right, parent->high, parent->high_size);
	return rc ? rc : good;
}

/* Count the next leaves that a parent knows, and that are all in the range. 0:
 * there are none. */
static int count_several(struct counting *counting)
{
	struct tree_node *parent;
	uint32_t count = 0, first;
	int part, rc = tree_search(counting->tree, counting->key,
				   counting->key_size, 1, false, NULL, &parent);

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
		counting->heads[count] = at->child.head;
		counting->heads[count + 1] = is_last ? 0 : at[1].child.head;
	}
	/* The leaf that is next must be what the parent has there. The first of
	 * all is always the same. */
	if (count && !counting->head && !counting->key_size)
		counting->head = counting->heads[0];
	if (count && counting->head == counting->heads[0])
		rc = count_parts(counting, parent, first, count);
	tree_node_unref(parent);
	return rc;
}

static int count_leaves(struct counting *counting)
{
	struct reef *reef = counting->tree->reef;
	int rc = 0;

	for (uint64_t i = 0; !rc && !counting->is_done; i++) {
		reef_enter(reef);
		rc = count_several(counting);
		if (!rc && !counting->is_done)
			rc = i < LEAVES_MAX ? count_one(counting) : -EBUSY;
		reef_leave(reef);
		rc = rc > 0 ? 0 : rc;
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
	uint64_t right = 0;
	uint32_t size = 0;
	int rc;

	reef_enter(counting->tree->reef);
	rc = tree_search(counting->tree, range->from, range->from_size, 0,
			 false, NULL, &node);
	if (!rc) {
		size = node->high_size;
		right = node->right;
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
		rc = move_to(counting, right, high, size);
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
