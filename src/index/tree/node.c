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
#define BUCKETS_FIRST 64u

/* --- the table --- */

/* Nobody has a node at hand any more. */
static void unlink_node(struct tree_node *node)
{
	if (node->from)
		*node->from = NULL;
	node->from = NULL;
}

void tree_node_unref(struct tree_node *node)
{
	if (!node || --node->refs)
		return;
	for (uint32_t i = 0; node->level && i < node->count; i++)
		if (tree_node_kids(node)[i])
			tree_node_kids(node)[i]->from = NULL;
	tree_slab_give(node);
}

void tree_node_forget(struct tree *tree, struct tree_node *node)
{
	struct tree_node **at;

	if (!node->is_known)
		return;
	at = &tree->buckets[tree_bucket(tree, node->head)];
	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	unlink_node(node);
	node->is_known = false;
	tree->cache_used -= node->size;
	tree->nodes_count--;
	tree_node_unref(node);
}

uint64_t tree_node_hint(struct tree *tree, uint64_t head, uint64_t otherwise)
{
	const struct tree_node *node = tree_node_known(tree, head);

	return node ? node->word : otherwise;
}

void tree_node_drop(struct tree *tree, uint64_t head)
{
	struct tree_node *node = tree_node_known(tree, head);

	if (node)
		tree_node_forget(tree, node);
}

static void make_room(struct tree *tree)
{
	struct tree_node *node, *next;
	uint32_t i;

	for (i = 0;
	     tree->cache_used > tree->cache_max && i < 2 * tree->buckets_count;
	     i++) {
		tree->hand = (tree->hand + 1) & (tree->buckets_count - 1);
		for (node = tree->buckets[tree->hand]; node; node = next) {
			next = node->next;
			if (!node->is_used)
				tree_node_forget(tree, node);
			else
				node->is_used = false;
		}
	}
}

/* Have a bucket for each node. False: there is none at all. */
static bool grow_table(struct tree *tree)
{
	uint32_t count = tree->buckets_count, i;
	struct tree_node **old = tree->buckets, **now, *node;

	if (tree->nodes_count < count)
		return true;
	now = calloc(count ? 2 * count : BUCKETS_FIRST,
		     sizeof(struct tree_node *));
	if (!now)
		return count;
	tree->buckets = now;
	tree->buckets_count = count ? 2 * count : BUCKETS_FIRST;
	for (i = 0; i < count; i++)
		while ((node = old[i])) {
			uint32_t to = tree_bucket(tree, node->head);

			old[i] = node->next;
			node->next = now[to];
			now[to] = node;
		}
	free(old);
	return true;
}

static void add_known(struct tree *tree, struct tree_node *node)
{
	struct tree_node *before = tree_node_known(tree, node->head), **at;

	if (before)
		tree_node_forget(tree, before);
	make_room(tree);
	if (!grow_table(tree))
		return;
	at = &tree->buckets[tree_bucket(tree, node->head)];
	node->next = *at;
	*at = node;
	node->refs++;
	node->is_used = node->is_known = true;
	tree->cache_used += node->size;
	tree->nodes_count++;
}

/* --- from an image --- */

/* The parts of a node, before it is made. */
struct parts {
	const struct tree_image *image;
	struct tree_part *all;
	struct tree_child *children; /* of an inner node */
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
	for (uint32_t i = 0; i < parts->count; i++) {
		const struct tree_record *first =
			&image->records[image->firsts[i]];
		struct tree_part *part = &parts->all[i];

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
		parts->children =
			calloc(merged.count + 1u, sizeof(*parts->children));
		rc = parts->all && parts->children ? 0 : -ENOMEM;
	}
	for (uint32_t i = 0; i < merged.count && !rc; i++) {
		const struct tree_record *record = &merged.records[i];
		struct tree_child *child = &parts->children[parts->count];
		struct tree_part *part = &parts->all[parts->count++];

		part->key = record->key;
		part->key_size = record->key_size;
		parts->bytes += part->key_size;
		if (record->value_size != sizeof(*child) || !record->value)
			rc = -REEF_ECORRUPT;
		else
			memcpy(child, record->value, sizeof(*child));
		if (!rc && !is_child(child))
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

/* Where the arrays of a node are, behind it; returns its size. */
static size_t place_arrays(const struct parts *parts, struct tree_node *node)
{
	const struct tree_image *image = parts->image;
	size_t size = offsetof(struct tree_node, digests), parts_at,
	       children_at;

	size += (parts->count ? parts->count - 1 : 0) * sizeof(uint32_t);
	if (!image->level)
		size += (parts->count + (size_t)1) * sizeof(struct tree_span) +
			image->records_count;
	size = (size + 7) & ~(size_t)7;
	if (image->level)
		size += parts->count * sizeof(struct tree_node *);
	parts_at = size;
	size += parts->count * sizeof(*parts->all);
	children_at = size;
	if (image->level)
		size += parts->count * sizeof(*parts->children);
	if (node) {
		char *bytes = (char *)node;

		node->parts = (void *)(bytes + parts_at);
		node->children = (void *)(bytes + children_at);
		node->low = (void *)(bytes + size);
	}
	return size + parts->bytes + image->low_size + image->high_size;
}

static void fill_digests(struct tree_node *node)
{
	const struct tree_part *second, *last;

	node->low_word = tree_digest(node->low, node->low_size, 0);
	node->low_digest =
		tree_digest(node->low, node->low_size, node->prefix_size);
	node->high_digest = node->high
				    ? tree_digest(node->high, node->high_size,
						  node->prefix_size)
				    : UINT64_MAX;
	if (node->count < 2)
		return;
	second = &node->parts[1];
	last = &node->parts[node->count - 1];
	node->part_word = tree_digest(second->key, second->key_size, 0);
	node->skip = (uint16_t)tree_common(second->key, second->key_size,
					   last->key, last->key_size);
	for (uint32_t i = 1; i < node->count; i++)
		node->digests[i - 1] =
			(uint32_t)(tree_digest(node->parts[i].key,
					       node->parts[i].key_size,
					       node->skip) >>
				   32);
}

static void fill_node(struct tree *tree, struct tree_node *node,
		      const struct parts *parts)
{
	const struct tree_image *image = parts->image;
	struct tree_span *spans =
		(struct tree_span *)(uintptr_t)tree_node_spans(node);
	uint8_t *prints = (uint8_t *)(uintptr_t)tree_node_prints(node);
	uint8_t *bytes = (uint8_t *)(uintptr_t)node->low;
	uint32_t i;

	memcpy(node->parts, parts->all, parts->count * sizeof(*parts->all));
	if (image->level) {
		memcpy((void *)(uintptr_t)node->children, parts->children,
		       parts->count * sizeof(*parts->children));
		memset(tree_node_kids(node), 0,
		       parts->count * sizeof(struct tree_node *));
	}
	node->low = copy_bytes(&bytes, image->low, image->low_size);
	if (image->high)
		node->high = copy_bytes(&bytes, image->high, image->high_size);
	for (i = 0; i < parts->count; i++)
		node->parts[i].key = copy_bytes(&bytes, parts->all[i].key,
						parts->all[i].key_size);
	for (i = 0; !image->level && i <= parts->count; i++)
		spans[i] = (struct tree_span){
			.words = (uint16_t)(image->intervals[i] / 8),
			.first = (uint16_t)image->firsts[i],
		};
	for (i = 0; !image->level && i < image->records_count; i++)
		prints[i] = tree_byte(tree_hash(tree, image->records[i].key,
						image->records[i].key_size));
	fill_digests(node);
}

static int make_node(struct tree *tree, const struct parts *parts,
		     struct tree_node **out)
{
	const struct tree_image *image = parts->image;
	struct tree_node *node;
	size_t size = place_arrays(parts, NULL);
	uint64_t right = 0;
	bool is_piece;
	int rc = image->right
			 ? reef_long_address(tree->space, image->right, &right)
			 : 0;

	if (rc)
		return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
	node = tree_slab_take(tree, size);
	if (!node)
		return -ENOMEM;
	is_piece = node->is_piece;
	*node = (struct tree_node){
		.is_piece = is_piece,
		.refs = 1,
		.size = (uint32_t)size,
		.head = image->head,
		.right = right,
		.word = image->word,
		.at = image->at,
		.id = image->id,
		.epoch = reef_epoch(tree->reef),
		.level = (uint8_t)image->level,
		.count = (uint16_t)parts->count,
		.low_size = image->low_size,
		.high_size = image->high_size,
		.prefix_size = (uint16_t)image->prefix_size,
		.is_proved = image->is_proved,
	};
	place_arrays(parts, node);
	fill_node(tree, node, parts);
	*out = node;
	return 0;
}

/* Where the block is that a hint names. False: it names none. */
static bool find_hinted(struct tree *tree, const struct tree_child *child,
			uint64_t *at, uint32_t *size)
{
	*size = tree_word_size(child->hint);
	return child->hint && !(child->hint & TREE_DROPPED) &&
	       child->hint >> 38 & 4095 &&
	       !reef_long_address(tree->space, child->hint & TREE_SHORT_MASK,
				  at);
}

void tree_ahead_drop(struct tree_ahead *ahead)
{
	free(ahead->bytes);
	ahead->bytes = NULL;
	ahead->child.head = 0;
}

/* The child of a key by the records of an inner node alone. False: none. */
static bool find_child(const struct tree_image *image,
		       const struct tree_ahead *ahead, struct tree_child *child)
{
	uint32_t low = 0, high = image->records_count, middle;
	const struct tree_record *record;
	int order;

	while (low < high && ahead->key) {
		middle = (low + high) / 2;
		record = &image->records[middle];
		order = tree_compare(record->key, record->key_size, ahead->key,
				     ahead->key_size);
		if (order < 0 || (!order && !ahead->before))
			low = middle + 1;
		else
			high = middle;
	}
	if (!high)
		return false;
	record = &image->records[high - 1];
	if (!record->value || record->value_size != sizeof(*child))
		return false;
	memcpy(child, record->value, sizeof(*child));
	return is_child(child);
}

/* Add the READs of the child that one will go down to, unless it is known, or
 * nothing says where its block is. */
static void add_ahead(struct tree *tree, const struct tree_image *image,
		      struct tree_ahead *ahead, struct reef_access *accesses,
		      uint32_t *count)
{
	tree_ahead_drop(ahead);
	if (image->level <= ahead->level ||
	    !find_child(image, ahead, &ahead->child) ||
	    tree_node_known(tree, ahead->child.head) ||
	    !find_hinted(tree, &ahead->child, &ahead->at, &ahead->size))
		return;
	ahead->bytes = malloc(ahead->size);
	if (!ahead->bytes)
		return;
	accesses[(*count)++] = (struct reef_access){
		.kind = REEF_READ,
		.address = ahead->child.head,
		.local = &ahead->head,
		.length = sizeof(ahead->head),
	};
	accesses[(*count)++] = (struct reef_access){
		.kind = REEF_READ,
		.address = ahead->at,
		.local = ahead->bytes,
		.length = ahead->size,
	};
}

/* READ the entries of an inner node's slots; and, if there are any, the child
 * ahead. */
static int read_separators(struct tree *tree, const struct tree_image *image,
			   struct tree_ahead *ahead,
			   struct tree_entries *entries)
{
	struct reef_access accesses[TREE_SLOTS + 2];
	uint32_t count = 0, all;
	int rc = tree_entries_begin(tree, image->slots, entries, accesses,
				    &count);

	if (rc || !count)
		return rc;
	all = count;
	if (ahead)
		add_ahead(tree, image, ahead, accesses, &all);
	rc = reef_execute(tree->reef, accesses, all);
	if (rc && all > count) {
		/* The hint may be of memory that is gone. */
		tree_ahead_drop(ahead);
		rc = reef_execute(tree->reef, accesses, count);
	}
	if (rc)
		return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
	return tree_entries_end(tree, image->slots, UINT32_MAX, entries);
}

static int remember(struct tree *tree, const struct tree_image *image,
		    struct tree_ahead *ahead, struct tree_node **out)
{
	struct tree_entries entries = {0};
	struct parts parts = {.image = image};
	struct tree_node *node;
	int rc = 0;

	if (image->level)
		rc = read_separators(tree, image, ahead, &entries);
	if (!rc)
		rc = image->level ? part_inner(&parts, &entries)
				  : part_leaf(&parts);
	if (!rc)
		rc = make_node(tree, &parts, &node);
	free(parts.all);
	free(parts.children);
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

int tree_node_remember(struct tree *tree, const struct tree_image *image,
		       struct tree_node **out)
{
	return remember(tree, image, NULL, out);
}

/* The first part behind a key, of those from `low` to `high`, by whole keys.
 */
static uint32_t part_by_keys(const struct tree_node *node, const void *key,
			     uint32_t key_size, bool before, uint32_t low,
			     uint32_t high)
{
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		int order = tree_compare(node->parts[middle].key,
					 node->parts[middle].key_size, key,
					 key_size);

		if (order < 0 || (!order && !before))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int tree_node_part(const struct tree_node *node, const void *key,
		   uint32_t key_size, bool before)
{
	uint32_t high = node->count;
	uint64_t first;
	int part;

	if (!key)
		return (int)node->count - 1;
	first = tree_digest(key, key_size, 0);
	part = tree_node_quick_part(node, key, key_size, first);
	if (part > 0)
		return part;
	/* Either it is before the second part, or numbers do not tell. */
	if (!part)
		high = 1;
	return (int)part_by_keys(node, key, key_size, before, 0, high) - 1;
}

int tree_node_side(const struct tree_node *node, const void *key,
		   uint32_t key_size)
{
	if (tree_compare(key, key_size, node->low, node->low_size) < 0)
		return -1;
	return node->high &&
	       tree_compare(key, key_size, node->high, node->high_size) >= 0;
}

/* --- reading --- */

bool tree_slots_are_frozen(const uint64_t *slots)
{
	for (uint32_t i = 0; i < TREE_SLOTS; i++)
		if (!(slots[i] & TREE_FROZEN))
			return false;
	return true;
}

/* Take over what was read ahead of a child. False: it is not there. */
static bool take_ahead(struct tree_ahead *ahead, const struct tree_child *child,
		       struct tree_head *head, struct tree_image *image)
{
	if (!ahead || !ahead->bytes || ahead->child.head != child->head ||
	    ahead->child.hint != child->hint)
		return false;
	*head = ahead->head;
	image->at = ahead->at;
	image->size = ahead->size;
	image->bytes = ahead->bytes;
	ahead->bytes = NULL;
	return true;
}

/* READ the head, and the block that a hint names, if there is one. */
static int read_head(struct tree *tree, const struct tree_child *child,
		     struct tree_ahead *ahead, struct tree_head *head,
		     struct tree_image *image)
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

	if (take_ahead(ahead, child, head, image))
		return 0;
	if (find_hinted(tree, child, &at, &image->size)) {
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
	/* Unless the left said so the block may be reused, whatever it says. */
	image->is_proved = word & TREE_JOINING;
	if (image->is_proved && !is_proved && !REEF_MUTATED(TREE_JOIN_UNPROVED))
		return -ESTALE;
	/* The id goes after the slots are frozen: this is nobody's doing. */
	if (id || !tree_slots_are_frozen(image->slots))
		return -EBADMSG;
	return 0;
}

static int read_once(struct tree *tree, const struct tree_child *child,
		     bool is_proved, struct tree_ahead *ahead,
		     struct tree_image *image)
{
	struct tree_head head;
	uint64_t id;
	int rc = read_head(tree, child, ahead, &head, image);

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

/* tree_image_read, with what was read ahead of it. */
static int read_image(struct tree *tree, const struct tree_child *from,
		      bool is_proved, struct tree_ahead *ahead,
		      struct tree_image *image)
{
	struct tree_child child = *from;
	uint32_t attempt, unsound = 0;
	int rc;

	for (attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
		*image = (struct tree_image){0};
		rc = read_once(tree, &child, is_proved, ahead, image);
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

int tree_image_read(struct tree *tree, const struct tree_child *from,
		    bool is_proved, struct tree_image *image)
{
	return read_image(tree, from, is_proved, NULL, image);
}

int tree_node_get(struct tree *tree, const struct tree_child *child,
		  struct tree_node **out)
{
	return tree_node_get_fresh(tree, child, NULL, NULL, out);
}

int tree_node_get_fresh(struct tree *tree, const struct tree_child *child,
			struct tree_ahead *ahead, struct tree_image *fresh,
			struct tree_node **out)
{
	struct tree_node *node = tree_node_known(tree, child->head);
	struct tree_image image;
	int rc;

	if (node) {
		node->refs++;
		node->is_used = true;
		*out = node;
		return 0;
	}
	rc = read_image(tree, child, false, ahead, &image);
	if (rc)
		return rc;
	rc = remember(tree, &image, ahead, out);
	if (!rc && fresh) {
		tree_image_free(fresh);
		*fresh = image;
	} else {
		tree_image_free(&image);
	}
	return rc;
}
