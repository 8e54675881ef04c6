/* near.c - the plain case of looking up, in place.
 *
 * Plain is: the nodes on the way are remembered, the tree was alive in this
 * epoch, the key is between the fences of a leaf, whose memory is mapped, and
 * its record, or the entry that its slot names, is short. Everything else is
 * look.c's, from the beginning, without a trace.
 *
 *   root --> leaf, by what is remembered
 *        --> its interval, where a record may be the key's --no mark--> alive?
 *        --> its slots, and an entry --> the block's id?
 *
 * Why it is right: what was read of a block is true if `alive`, or the id, is
 * there afterwards, within the same epoch: then the block was the node's all
 * the while, as the id was known before, and so its records and the entries
 * that its slots named were what they were (4). The moment at which the call
 * took effect is when it read the mark, or the first slot that was not used.
 * Until that is known no byte outside of what the remembered node, or a slot,
 * says is read; sizes are read once.
 *
 * Memory with two copies is read at its primary, as READs do: what was read
 * counts if the lease ran afterwards (pool/client/handle/near.h (4)).
 *
 * Where time goes: with millions of keys a get misses the cache at the leaf's
 * memory, and at what is remembered of the leaf: so what is compared there are
 * numbers that lie together. */
#include "index/tree/internal.h"

#include "base/mutant.h"
#include "pool/client/handle/near.h"

#include <string.h>

#define RIGHT_MAX 64u	    /* nodes that one goes right in a level */
#define VALUE_MAX 8192u	    /* bytes of a value that is copied in place */
#define FETCHED 320u	    /* bytes of what is remembered of a leaf */
#define BLOCK_FETCHED 1024u /* of a block: what follows comes by itself */

/* What is found of a key. */
struct near {
	const uint8_t *key;
	uint32_t key_size;
	int record; /* as tree_spot's */
	uint64_t hash;
	uint64_t first; /* tree_digest of the key */
	struct tree_node *node;
	const uint8_t *block; /* the node's, in place */
	const uint8_t *proof; /* a word that has to be the id afterwards */
	uint32_t mark_at;
	int slot;
	bool mark;
	bool is_there;
	uint64_t entry_at;
	struct entry entry; /* in place */
	uint64_t slots[TREE_SLOTS];
};

/* --- the leaf --- */

static void fetch_node(const struct tree_node *node)
{
	for (uint32_t i = 0; i < FETCHED; i += REEF_NEAR_LINE)
		__builtin_prefetch((const char *)&node->id + i);
}

/* tree_node_side of what is right below a key, or of the end. */
static int side_before(const struct tree_node *node, const void *key,
		       uint32_t key_size)
{
	if (!key)
		return node->high != NULL;
	if (node->low_size &&
	    tree_compare(key, key_size, node->low, node->low_size) <= 0)
		return -1;
	return node->high &&
	       tree_compare(key, key_size, node->high, node->high_size) > 0;
}

static inline int side_of(const struct tree_node *node, const void *key,
			  uint32_t key_size, uint64_t first, bool before)
{
	if (REEF_MUTATED(TREE_NEAR_FENCE))
		return 0;
	if (unlikely(before))
		return side_before(node, key, key_size);
	if (likely(tree_node_has(node, key, key_size, first)))
		return 0;
	return tree_node_side(node, key, key_size);
}

/* Go right from a leaf until the key fits. A parent from another epoch may know
 * better. */
static struct tree_node *go_right(struct tree *tree, struct tree_node *node,
				  const struct tree_node *parent,
				  const void *key, uint32_t key_size,
				  bool before, uint64_t epoch)
{
	const uint64_t first = key ? tree_digest(key, key_size, 0) : 0;

	if (parent && parent->epoch != epoch)
		return NULL;
	for (uint32_t steps = 0; steps < RIGHT_MAX; steps++) {
		int side = side_of(node, key, key_size, first, before);

		if (!side)
			return node;
		if (side < 0)
			return NULL;
		node = tree_node_known(tree, node->right);
		if (!node || node->level)
			return NULL;
	}
	return NULL;
}

/* The node of the root; NULL: not remembered. */
static inline struct tree_node *find_top(struct tree *tree)
{
	struct tree_node *node = tree->top_node;

	if (likely(node && node->head == tree->top_head))
		return node;
	node = tree_node_known(tree, tree->top_head);
	if (node)
		tree_node_link(&tree->top_node, node);
	return node;
}

/* A child that the parent does not have at hand. */
static __attribute__((noinline)) struct tree_node *
find_child(struct tree *tree, const struct tree_node *parent, int part)
{
	struct tree_node *node =
		tree_node_known(tree, parent->children[part].head);

	if (node && node->level + 1 != parent->level)
		return NULL;
	if (node)
		tree_node_link(&tree_node_kids(parent)[part], node);
	return node;
}

/* Only the leaf's fences are looked at: those of inner nodes are hints as what
 * they name is. */
static inline struct tree_node *find_leaf(struct tree *tree, const void *key,
					  uint32_t key_size, uint64_t first,
					  bool before, uint64_t epoch,
					  struct tree_after *after)
{
	const struct tree_node *parent = NULL;
	struct tree_node *node;
	int part;

	if (unlikely(tree->epoch != epoch || !tree->top_head))
		return NULL;
	node = find_top(tree);
	while (likely(node && node->level)) {
		if (!node->is_used)
			node->is_used = true;
		part = before ? -1
			      : tree_node_quick_part(node, key, key_size,
						     first);
		if (unlikely(part < 0))
			part = tree_node_part(node, key, key_size, before);
		if (unlikely(part < 0))
			return NULL;
		parent = node;
		node = tree_node_kids(parent)[part];
		if (unlikely(!node))
			node = find_child(tree, parent, part);
		if (likely(node))
			fetch_node(node);
		if (after)
			*after = (struct tree_after){
				.kids = tree_node_kids(parent) + part + 1,
				.count = parent->count - (uint32_t)part - 1,
			};
	}
	if (unlikely(!node))
		return NULL;
	if (!node->is_used)
		node->is_used = true;
	if (likely(!side_of(node, key, key_size, first, before)))
		return node;
	return go_right(tree, node, parent, key, key_size, before, epoch);
}

struct tree_node *tree_near_node(struct tree *tree, const void *key,
				 uint32_t key_size, bool before, uint64_t epoch,
				 struct tree_after *after)
{
	*after = (struct tree_after){0};
	return find_leaf(tree, key, key_size,
			 key ? tree_digest(key, key_size, 0) : 0, before, epoch,
			 after);
}

/* Where the block of a node is. NULL: not in place. */
static inline const uint8_t *block_of(struct tree *tree,
				      const struct tree_node *node)
{
	uint32_t size = tree_span_at(&tree_node_spans(node)[node->count]);

	return client_near_see(tree->reef, node->at,
			       size < TREE_FRONT ? TREE_FRONT : size);
}

const uint8_t *tree_near_block(struct tree *tree, const struct tree_node *node)
{
	return block_of(tree, node);
}

void tree_near_fetch(struct tree *tree, const struct tree_after *after)
{
	const uint8_t *block = NULL;

	if (after->count && after->kids[0] && !after->kids[0]->level)
		block = block_of(tree, after->kids[0]);
	for (uint32_t i = 0; block && i < BLOCK_FETCHED; i += REEF_NEAR_LINE)
		__builtin_prefetch(block + i);
	if (after->count > 1 && after->kids[1])
		fetch_node(after->kids[1]);
}

static inline bool is_id(const uint8_t *at, uint64_t id)
{
	/* Acquire: what was read before was read before this word. */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit((const _Atomic uint64_t *)(const void *)at,
				    memory_order_relaxed) == id ||
	       REEF_MUTATED(TREE_NEAR_UNPROVED);
}

bool tree_near_is(const uint8_t *at, uint64_t id)
{
	return is_id(at, id);
}

bool tree_near_counts(const struct tree *tree)
{
	return likely(!tree->is_copied) || client_near_counts(tree->reef);
}

/* --- records --- */

/* Find the key's record. False: it is not plain. */
static inline bool find_record(struct near *near)
{
	const struct tree_node *node = near->node;
	int part = tree_node_quick_part(node, near->key, near->key_size,
					near->first);
	const uint8_t *prints = tree_node_prints(node);
	const struct tree_span *at;
	uint32_t matched = node->prefix_size, size, i;
	uint8_t print = tree_byte(near->hash);
	const uint8_t *interval;
	struct tree_walk walk;
	int rc;

	if (unlikely(part < 0))
		part = tree_node_part(node, near->key, near->key_size, false);
	if (part < 0 || !node->count)
		return true;
	at = &tree_node_spans(node)[part];
	size = tree_span_size(at);
	interval = near->block + tree_span_at(at);
	__builtin_prefetch(interval);
	__builtin_prefetch(interval + 64);
	__builtin_prefetch(interval + 128);
	for (i = at->first; i < at[1].first && prints[i] != print; i++)
		;
	if (i == at[1].first)
		return true;
	if (unlikely(!tree_interval_walk(&walk, interval, size)))
		return false;
	near->proof = interval;
	while ((rc = tree_interval_next(&walk)) == 1) {
		if (!tree_walk_is_at(&walk, node->prefix_size, near->key,
				     near->key_size, &matched))
			continue;
		if (unlikely(walk.outside))
			return false;
		near->record = (int)(at->first + walk.index);
		near->mark_at = tree_span_at(at) + TREE_MARKS_AT + walk.index;
		near->mark = atomic_load_explicit(
			(const _Atomic uint8_t *)&walk.marks[walk.index],
			memory_order_relaxed);
		if (REEF_MUTATED(TREE_NEAR_MARK))
			near->mark = false;
		near->is_there = true;
		near->entry = (struct entry){
			.key = near->key,
			.key_size = near->key_size,
			.value = walk.value,
			.value_size = walk.value_size,
			.version = walk.version,
			.stamp = walk.stamp,
		};
		return true;
	}
	return !rc;
}

/* --- slots --- */

int tree_near_entry(struct tree *tree, uint64_t slot, uint64_t *at,
		    struct entry *entry)
{
	uint32_t hint =
		tree_slot_is_dead(slot) ? TREE_DEAD_HINT : tree_slot_hint(slot);
	const struct entry_head *head;
	uint64_t sizes;
	size_t size;

	if (!client_near_long(tree->space, tree_slot_block(slot), at))
		return 0;
	head = (const void *)client_near_see(tree->reef, *at,
					     entry_hint_size(hint));
	if (unlikely(!head))
		return 0;
	sizes = atomic_load_explicit((const _Atomic uint64_t *)&head->sizes,
				     memory_order_acquire);
	size = ENTRY_HEAD + (size_t)(sizes & ENTRY_KEY_BITS) +
	       entry_sizes_value(sizes);
	if (unlikely(sizes >> 44 != (tree->home.number & 0xfffff) ||
		     head->number_high != tree->home.number >> 20 ||
		     size > entry_hint_size(hint)))
		return 0;
	*entry = (struct entry){
		.key = head + 1,
		.key_size = (uint32_t)(sizes & ENTRY_KEY_BITS),
		.version = head->version,
		.stamp = head->stamp,
		.touched = head->touched,
		.value_size = entry_sizes_value(sizes),
	};
	entry->value = (const char *)entry->key + entry->key_size;
	return 1;
}

void tree_near_slots(const uint8_t *block, uint64_t *slots)
{
	const _Atomic uint64_t *at = (const void *)(block + TREE_SLOTS_AT);

	/* Acquire: in order, and each with the CAS that put it there. */
	for (uint32_t i = 0; i < TREE_SLOTS; i++)
		slots[i] = atomic_load_explicit(&at[i], memory_order_acquire);
}

/* Find the key's slot, and what it says. False: it is not plain. */
static bool find_slot(struct tree *tree, struct near *near)
{
	uint32_t print = tree_print(near->hash);
	struct entry entry;
	uint64_t at;

	near->proof = near->block;
	tree_near_slots(near->block, near->slots);
	for (int i = 0; i < (int)TREE_SLOTS; i++) {
		uint64_t slot = near->slots[i];

		if (tree_slot_print(slot) != print)
			continue;
		if (unlikely(!tree_slot_is_plain(slot))) {
			if (tree_slot_is_used(slot))
				return false; /* a transaction has it */
			continue;
		}
		if (!tree_slot_has_entry(slot)) {
			if (near->record != (int)tree_slot_block(slot))
				continue;
			near->slot = i;
			near->is_there = !tree_slot_is_dead(slot);
			return true;
		}
		if (!tree_near_entry(tree, slot, &at, &entry))
			return false;
		if (entry.key_size != near->key_size ||
		    memcmp(entry.key, near->key, near->key_size))
			continue;
		near->slot = i;
		near->entry_at = at;
		near->is_there = !tree_slot_is_dead(slot) ||
				 REEF_MUTATED(TREE_NEAR_DEAD);
		near->entry = entry;
		return true;
	}
	return true;
}

/* --- all of it --- */

static inline bool find(struct tree *tree, struct near *near, uint64_t epoch,
			bool to_change)
{
	near->first = tree_digest(near->key, near->key_size, 0);
	near->node = find_leaf(tree, near->key, near->key_size, near->first,
			       false, epoch, NULL);
	if (unlikely(!near->node))
		return false;
	near->hash = tree_hash(tree, near->key, near->key_size);
	near->block = block_of(tree, near->node);
	if (unlikely(!near->block))
		return false;
	near->record = near->slot = -1;
	near->is_there = near->mark = false;
	near->entry_at = 0;
	near->proof = NULL;
	if (to_change)
		__builtin_prefetch(near->block);
	if (unlikely(!find_record(near)))
		return false;
	if (!near->is_there || near->mark || to_change)
		return find_slot(tree, near);
	return true;
}

/* Copy the value that was found into a room; then see whether all was so. */
static inline bool take_value(struct near *near, bool blind,
			      struct entry_room *room)
{
	uint32_t size = near->entry.value_size;

	if (near->is_there && !blind) {
		/* One byte more, so that there is a room even for an empty
		 * value. */
		if (unlikely(size > VALUE_MAX ||
			     entry_room_need(room, size + 1u)))
			return false;
		memcpy(room->bytes, near->entry.value, size);
		near->entry.value = room->bytes;
	} else {
		near->entry.value = NULL;
	}
	return is_id(near->proof, near->node->id);
}

int tree_get_near(struct tree *tree, const void *key, uint32_t key_size,
		  bool blind, struct entry_room *room, struct entry *out)
{
	struct client_near stay;
	struct near near;
	bool is_told;

	near.key = key;
	near.key_size = key_size;
	if (unlikely(!client_near_begin(tree->reef, &stay)))
		return -EAGAIN;
	is_told = find(tree, &near, stay.epoch, false) &&
		  take_value(&near, blind, room);
	client_near_end(tree->reef, &stay);
	if (unlikely(!is_told || !tree_near_counts(tree)))
		return -EAGAIN;
	if (!near.is_there)
		return -ENOENT;
	near.entry.key = key;
	*out = near.entry;
	return 0;
}

bool tree_look_near(struct tree *tree, struct tree_spot *spot)
{
	uint64_t epoch = reef_epoch(tree->reef);
	struct near near;
	bool is_told;

	if (spot->level)
		return false;
	near.key = spot->key;
	near.key_size = spot->key_size;
	if (!client_near_enter(tree->reef))
		return false;
	is_told = find(tree, &near, epoch, true) &&
		  take_value(&near, spot->blind, &spot->room);
	client_near_leave(tree->reef);
	if (!is_told || !tree_near_counts(tree))
		return false;
	near.node->refs++;
	spot->node = near.node;
	spot->hash = near.hash;
	memcpy(spot->slots, near.slots, sizeof(spot->slots));
	spot->is_frozen = tree_slots_are_frozen(spot->slots);
	spot->slot = near.slot;
	spot->is_held = spot->is_guessed = false;
	spot->record = near.record;
	spot->mark_at = near.mark_at;
	spot->outside = 0;
	spot->entry_at = near.entry_at;
	spot->is_there = near.is_there;
	spot->entry = near.entry;
	spot->entry.key = spot->key;
	return true;
}
