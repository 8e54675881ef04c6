/* node.c - what a handle remembers of nodes, and how it reads them.
 *
 * Nothing of it has to be true: who goes by it reads words that tell (4), (5)
 * of layout.h. When there is too much of it, what was not used since the hand
 * of the clock passed last goes. */
#include "index/tree/internal.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

#define ATTEMPTS_MAX 100000u
#define UNSOUND_MAX 16u

/* --- the table --- */

static struct tree_node **bucket_of(struct tree *tree, uint64_t head)
{
	uint64_t mixed = head * UINT64_C(0x9e3779b97f4a7c15);

	return &tree->buckets[mixed >> 32 & (TREE_BUCKETS - 1)];
}

void tree_node_unref(struct tree_node *node)
{
	if (node && !--node->refs)
		free(node);
}

void tree_node_forget(struct tree *tree, struct tree_node *node)
{
	struct tree_node **at = bucket_of(tree, node->head);

	if (!node->is_known)
		return;
	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	node->is_known = false;
	tree->cache_used -= node->size;
	tree_node_unref(node);
}

static struct tree_node *find_known(struct tree *tree, uint64_t head)
{
	struct tree_node *node = *bucket_of(tree, head);

	while (node && node->head != head)
		node = node->next;
	return node;
}

uint64_t tree_node_hint(struct tree *tree, uint64_t head, uint64_t otherwise)
{
	const struct tree_node *node = find_known(tree, head);

	return node ? node->word : otherwise;
}

struct tree_node *tree_node_known(struct tree *tree, uint64_t head)
{
	return find_known(tree, head);
}

void tree_node_drop(struct tree *tree, uint64_t head)
{
	struct tree_node *node = find_known(tree, head);

	if (node)
		tree_node_forget(tree, node);
}

static void make_room(struct tree *tree)
{
	struct tree_node *node, *next;
	uint32_t i;

	for (i = 0; tree->cache_used > tree->cache_max && i < 2 * TREE_BUCKETS;
	     i++) {
		tree->hand = (tree->hand + 1) % TREE_BUCKETS;
		for (node = tree->buckets[tree->hand]; node; node = next) {
			next = node->next;
			if (!node->is_used)
				tree_node_forget(tree, node);
			else
				node->is_used = false;
		}
	}
}

static void add_known(struct tree *tree, struct tree_node *node)
{
	struct tree_node *before = find_known(tree, node->head), **at;

	if (before)
		tree_node_forget(tree, before);
	make_room(tree);
	at = bucket_of(tree, node->head);
	node->next = *at;
	*at = node;
	node->refs++;
	node->is_used = node->is_known = true;
	tree->cache_used += node->size;
}

/* --- from an image --- */

/* The parts of a node, before it is made. */
struct parts {
	const struct tree_image *image;
	struct tree_part *all;
	uint32_t count;
	size_t bytes; /* of keys */
};

/* An interval's part begins with the shortest key that is behind all of the one
 * before it. */
static int part_leaf(struct parts *parts)
{
	const struct tree_image *image = parts->image;

	parts->all = calloc(image->intervals_count + 1u, sizeof(*parts->all));
	if (!parts->all)
		return -ENOMEM;
	parts->count = image->intervals_count;
	for (uint32_t i = 0; i <= parts->count; i++) {
		struct tree_part *part = &parts->all[i];
		const struct tree_record *first;

		part->at = image->intervals[i];
		part->first = image->firsts[i];
		if (i == parts->count)
			break;
		first = &image->records[part->first];
		part->key = first->key;
		part->key_size = first->key_size;
		if (i)
			part->key_size =
				tree_common(first[-1].key, first[-1].key_size,
					    first->key, first->key_size) +
				1;
		parts->bytes += part->key_size;
	}
	return 0;
}

static bool is_child(const struct tree_child *child)
{
	return child->head >> 32 && (child->head & 63) == 8;
}

/* Children are in records and in slots. */
static int part_inner(struct parts *parts, const struct tree_entries *entries)
{
	const struct tree_image *image = parts->image;
	struct tree_merged merged;
	int rc = tree_merge(image, image->slots, entries, UINT32_MAX, &merged);

	if (!rc) {
		parts->all = calloc(merged.count + 1u, sizeof(*parts->all));
		rc = parts->all ? 0 : -ENOMEM;
	}
	for (uint32_t i = 0; i < merged.count && !rc; i++) {
		const struct tree_record *record = &merged.records[i];
		struct tree_part *part = &parts->all[parts->count++];

		part->key = record->key;
		part->key_size = record->key_size;
		parts->bytes += part->key_size;
		if (record->value_size != sizeof(part->child) || !record->value)
			rc = -REEF_ECORRUPT;
		else
			memcpy(&part->child, record->value,
			       sizeof(part->child));
		if (!rc && !is_child(&part->child))
			rc = -REEF_ECORRUPT;
	}
	tree_merged_free(&merged);
	if (rc)
		return rc;
	return parts->count ? 0 : -REEF_ECORRUPT;
}

static const uint8_t *copy_bytes(uint8_t **to, const void *from, size_t size)
{
	uint8_t *at = *to;

	if (size)
		memcpy(at, from, size);
	*to += size;
	return at;
}

static void fill_node(struct tree *tree, struct tree_node *node,
		      const struct parts *parts)
{
	const struct tree_image *image = parts->image;
	uint8_t *bytes;
	uint32_t i;

	node->parts = (struct tree_part *)(void *)(node + 1);
	memcpy(node->parts, parts->all,
	       (parts->count + (size_t)1) * sizeof(*parts->all));
	bytes = (uint8_t *)&node->parts[parts->count + 1];
	for (i = 0; i < parts->count; i++)
		node->parts[i].key = copy_bytes(&bytes, parts->all[i].key,
						parts->all[i].key_size);
	node->low = copy_bytes(&bytes, image->low, image->low_size);
	if (image->high)
		node->high = copy_bytes(&bytes, image->high, image->high_size);
	node->prints = bytes;
	for (i = 0; !image->level && i < image->records_count; i++)
		*bytes++ = tree_byte(tree_hash(tree, image->records[i].key,
					       image->records[i].key_size));
}

static int make_node(struct tree *tree, const struct parts *parts,
		     struct tree_node **out)
{
	const struct tree_image *image = parts->image;
	struct tree_node *node;
	size_t size = sizeof(*node) +
		      (parts->count + (size_t)1) * sizeof(*parts->all) +
		      parts->bytes + image->low_size + image->high_size +
		      image->records_count;
	uint64_t right = 0;
	int rc = image->right
			 ? reef_long_address(tree->space, image->right, &right)
			 : 0;

	if (rc)
		return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
	node = malloc(size);
	if (!node)
		return -ENOMEM;
	*node = (struct tree_node){
		.refs = 1,
		.size = (uint32_t)size,
		.head = image->head,
		.right = right,
		.word = image->word,
		.at = image->at,
		.id = image->id,
		.epoch = reef_epoch(tree->reef),
		.level = image->level,
		.count = parts->count,
		.low_size = image->low_size,
		.high_size = image->high_size,
		.prefix_size = image->prefix_size,
		.is_proved = image->is_proved,
	};
	fill_node(tree, node, parts);
	*out = node;
	return 0;
}

int tree_node_remember(struct tree *tree, const struct tree_image *image,
		       struct tree_node **out)
{
	struct tree_entries entries = {0};
	struct parts parts = {.image = image};
	struct tree_node *node;
	int rc = 0;

	if (image->level)
		rc = tree_entries_read(tree, image->slots, UINT32_MAX,
				       &entries);
	if (!rc)
		rc = image->level ? part_inner(&parts, &entries)
				  : part_leaf(&parts);
	if (!rc)
		rc = make_node(tree, &parts, &node);
	free(parts.all);
	tree_entries_free(&entries);
	if (rc)
		return rc;
	if (!node->is_proved)
		add_known(tree, node);
	if (out)
		*out = node;
	else
		tree_node_unref(node);
	return 0;
}

int tree_node_part(const struct tree_node *node, const void *key,
		   uint32_t key_size, bool before)
{
	uint32_t low = 0, high = node->count, middle;

	if (!key)
		return (int)node->count - 1;
	while (low < high) {
		int order;

		middle = (low + high) / 2;
		order = tree_compare(node->parts[middle].key,
				     node->parts[middle].key_size, key,
				     key_size);
		if (order < 0 || (!order && !before))
			low = middle + 1;
		else
			high = middle;
	}
	return (int)low - 1;
}

/* --- reading --- */

bool tree_slots_are_frozen(const uint64_t *slots)
{
	for (uint32_t i = 0; i < TREE_SLOTS; i++)
		if (!(slots[i] & TREE_FROZEN))
			return false;
	return true;
}

/* READ the head, and the block that a hint names, if there is one. */
static int read_head(struct tree *tree, const struct tree_child *child,
		     struct tree_head *head, struct tree_image *image)
{
	struct reef_access accesses[2] = {
		{
			.kind = REEF_READ,
			.address = child->head,
			.local = head,
			.length = sizeof(*head),
		},
	};
	uint64_t at;
	int rc;

	if (child->hint && !(child->hint & TREE_DROPPED) &&
	    child->hint >> 38 & 4095 &&
	    !reef_long_address(tree->space, child->hint & TREE_SHORT_MASK,
			       &at)) {
		image->size = tree_word_size(child->hint);
		image->bytes = malloc(image->size);
		if (!image->bytes)
			return -ENOMEM;
		image->at = at;
		accesses[1] = (struct reef_access){
			.kind = REEF_READ,
			.address = at,
			.local = image->bytes,
			.length = image->size,
		};
		rc = reef_execute(tree->reef, accesses, 2);
		if (!rc)
			return 0;
		/* The hint may be of memory that is gone. */
		free(image->bytes);
		image->bytes = NULL;
	}
	return reef_execute(tree->reef, accesses, 1);
}

static int read_block(struct tree *tree, uint64_t word,
		      struct tree_image *image)
{
	int rc = reef_long_address(tree->space, word & TREE_SHORT_MASK,
				   &image->at);

	if (rc || !(word >> 38 & 4095))
		return rc ? rc : -EFAULT;
	free(image->bytes);
	image->size = tree_word_size(word);
	image->bytes = malloc(image->size);
	if (!image->bytes)
		return -ENOMEM;
	return reef_read(tree->reef, image->at, image->bytes, image->size);
}

/* A block whose id is zero is the node's while its head names it: its slots are
 * all frozen by then. Of one that is JOINING the left tells: (8).  -EAGAIN: it
 * is not.  -ESTALE: the node may be gone. */
static int confirm_frozen(struct tree *tree, uint64_t id, bool is_proved,
			  struct tree_image *image)
{
	uint64_t word = 0;
	struct reef_access accesses[2] = {
		{
			.kind = REEF_READ,
			.address = image->at + TREE_SLOTS_AT,
			.local = image->slots,
			.length = sizeof(image->slots),
		},
		{
			.kind = REEF_READ,
			.address = image->head,
			.local = &word,
			.length = 8,
		},
	};
	int rc = reef_execute(tree->reef, accesses, 2);

	if (rc)
		return rc;
	if (word != image->word)
		return -EAGAIN;
	/* The id goes after the slots are frozen: this is nobody's doing. */
	if (id || !tree_slots_are_frozen(image->slots))
		return -EBADMSG;
	image->is_proved = word & TREE_JOINING;
	if (image->is_proved && !is_proved && !REEF_MUTATED(TREE_JOIN_UNPROVED))
		return -ESTALE;
	return 0;
}

static int read_once(struct tree *tree, const struct tree_child *child,
		     bool is_proved, struct tree_image *image)
{
	struct tree_head head;
	uint64_t id;
	int rc = read_head(tree, child, &head, image);

	if (rc)
		return rc;
	/* (5) A hint may lead to memory that is something else by now. */
	if (head.about >> 48 != TREE_HEAD_MAGIC ||
	    (uint32_t)head.about != tree->home.number || head.tree != tree->id)
		return -ESTALE;
	if (head.word & TREE_DROPPED)
		return -REEF_EDROPPED;
	if (!image->bytes || head.word != child->hint)
		rc = read_block(tree, head.word, image);
	if (rc && head.word & TREE_JOINING && index_is_nonsense(rc))
		rc = -ESTALE;
	if (rc)
		return rc;
	image->word = head.word;
	rc = tree_image_parse(image, tree->home.number);
	if (!rc && (image->head != child->head ||
		    image->level != tree_about_level(head.about)))
		rc = -EBADMSG;
	/* The block of a node that has joined another may be reused. */
	if (rc == -EBADMSG && head.word & TREE_JOINING)
		rc = -ESTALE;
	if (rc)
		return rc;
	memcpy(&id, image->bytes, 8);
	if (id == image->id)
		return 0;
	return confirm_frozen(tree, id, is_proved, image);
}

int tree_image_read(struct tree *tree, const struct tree_child *from,
		    bool is_proved, struct tree_image *image)
{
	struct tree_child child = *from;
	uint32_t attempt, unsound = 0;
	int rc;

	for (attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
		*image = (struct tree_image){0};
		rc = read_once(tree, &child, is_proved, image);
		if (!rc)
			return 0;
		tree_image_free(image);
		child.hint = 0;
		/* Nonsense that stays is nobody's doing but a scribbler's. */
		if (rc == -EBADMSG || index_is_nonsense(rc))
			rc = unsound++ < UNSOUND_MAX ? -EAGAIN : -REEF_ECORRUPT;
		if (rc == -EAGAIN)
			rc = index_pause(attempt);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

int tree_node_get(struct tree *tree, const struct tree_child *child,
		  struct tree_node **out)
{
	return tree_node_get_fresh(tree, child, NULL, out);
}

int tree_node_get_fresh(struct tree *tree, const struct tree_child *child,
			struct tree_image *fresh, struct tree_node **out)
{
	struct tree_node *node = find_known(tree, child->head);
	struct tree_image image;
	int rc;

	if (node) {
		node->refs++;
		node->is_used = true;
		*out = node;
		return 0;
	}
	rc = tree_image_read(tree, child, false, &image);
	if (rc)
		return rc;
	rc = tree_node_remember(tree, &image, out);
	if (!rc && fresh) {
		tree_image_free(fresh);
		*fresh = image;
	} else {
		tree_image_free(&image);
	}
	return rc;
}
