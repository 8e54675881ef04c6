/* internal.h - the parts of a tree, to each other.
 *
 *   tree.c     make, open, close
 *   image.c    a block's bytes, taken apart and put together
 *   node.c     what a handle remembers of nodes; reading them
 *   slab.c     memory for that
 *   search.c   from the root to a node
 *   look.c     a key in its node
 *   near.c     the same in place, where it is plain
 *   get.c      look up
 *   merge.c    what is in a node, records and slots together
 *   change.c   put, update, delete; separators
 *   intent.c   slots that transactions have
 *   hold.c     keys that a transaction has
 *   moment.c   a range at one moment, for transactions
 *   reshape.c  a full block becomes another one, or several; a new root
 *   join.c     leaves with few keys become one
 *   scan.c     ranges
 *   copy.c     leaves of a range that are remembered
 *   count.c    counts
 *   walk.c     all of it, in steps, for sweeps
 *   drop.c     the end of all of it
 *   recover.c  what a dead session left
 *   place.c    where a leaf is, for who looks at damage
 *
 * Thread: as tree.h. */
#ifndef REEF_INDEX_TREE_INTERNAL_H
#define REEF_INDEX_TREE_INTERNAL_H

#include "base/likely.h"
#include "base/log.h"
#include "index/entry/hold.h"
#include "index/entry/word.h"
#include "index/tree/image.h"
#include "index/tree/tree.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* --- node.c --- */

/* What is remembered of a node. It does not change, and is counted: fibers
 * share it. A newer one takes its place. What a lookup needs lies together: the
 * members from `id` on and the arrays behind them, in this order. */
struct tree_node {
	/* count of them: of a leaf intervals, of an inner node children */
	struct tree_part {
		const uint8_t *key; /* from here on */
		uint32_t key_size;
	} * parts;
	const struct tree_child *children; /* of an inner node's parts */
	/* Where a parent, or the tree, has this one, which then is in the
	 * table; NULL: nowhere. */
	struct tree_node **from;
	const uint8_t *low, *high; /* high NULL: none */
	uint32_t low_size, high_size;
	uint64_t right; /* address; 0: none */
	uint64_t word;
	uint64_t epoch; /* in which it was read */
	uint32_t refs;
	uint32_t size;	/* bytes, of all of it */
	bool is_known;	/* it is in the table */
	bool is_proved; /* as its image; then it is never in the table */
	bool is_piece;	/* of a slab; slab.c's */
	struct tree_node *next; /* in its bucket */
	uint64_t head;		/* address */
	uint64_t unused[3];

	/* A line of the cache begins here, where it can. */
	uint64_t id, at;
	/* The first bytes of its fences behind the prefix: tree_digest. */
	uint64_t low_digest, high_digest;
	/* The first bytes of its low fence, and of its second part. */
	uint64_t low_word, part_word;
	uint16_t prefix_size; /* bytes that all keys between its fences have */
	uint16_t skip;	      /* bytes that all parts but the first have */
	uint16_t count;
	uint8_t level;
	bool is_used; /* since the hand of the clock passed */
	/* Of all parts but the first, count - 1 of them: the first bytes of
	 * their keys behind `skip`, as a number. */
	uint32_t digests[];
	/* Of a leaf: count + 1 of struct tree_span, a byte a record. Of an
	 * inner node, from the next multiple of 8 bytes on: what is remembered
	 * of its parts, count pointers, or NULL. */
};

static_assert(offsetof(struct tree_node, id) % 64 == 0, "layout");

/* Where an interval is; one more: where the last one ends. */
struct tree_span {
	uint16_t words; /* from the beginning of the block on */
	uint16_t first; /* its first record */
};

static inline const struct tree_span *
tree_node_spans(const struct tree_node *node)
{
	return (const void *)(node->digests +
			      (node->count ? node->count - 1 : 0));
}
/* The prints of a leaf's records. */
static inline const uint8_t *tree_node_prints(const struct tree_node *node)
{
	return (const void *)(tree_node_spans(node) + node->count + 1);
}
/* What an inner node knows of its children. */
static inline struct tree_node **tree_node_kids(const struct tree_node *node)
{
	return (void *)(((uintptr_t)(node->digests + node->count - 1) + 7) &
			~(uintptr_t)7);
}
/* Let a parent, or the tree, have a node of the table at hand. */
static inline void tree_node_link(struct tree_node **from,
				  struct tree_node *node)
{
	if (node->from)
		*node->from = NULL;
	if (*from)
		(*from)->from = NULL;
	node->from = from;
	*from = node;
}
static inline uint32_t tree_span_at(const struct tree_span *span)
{
	return span->words * 8u;
}
static inline uint32_t tree_span_size(const struct tree_span *span)
{
	return (uint32_t)(span[1].words - span->words) * 8;
}

/* The first bytes of a key behind so many, as a number in whose order keys are
 * that differ in them: a key that ends earlier counts as if zeroes followed, so
 * of two keys with the same number nothing is known. */
static inline uint64_t tree_digest(const void *key, uint32_t key_size,
				   uint32_t skip)
{
	const uint8_t *bytes = key;
	uint32_t left = key_size - skip;
	uint8_t few[8] = {0};
	uint64_t word;

	if (skip >= key_size)
		return 0;
	if (likely(left >= 8)) {
		memcpy(&word, bytes + skip, 8);
		return be64toh(word);
	}
	if (likely(key_size >= 8)) {
		memcpy(&word, bytes + key_size - 8, 8);
		return be64toh(word) << 8 * (8 - left);
	}
	memcpy(few, bytes + skip, left);
	memcpy(&word, few, 8);
	return be64toh(word);
}

/* True if a key begins with the first `size` bytes of another; first, word:
 * tree_digest of both. */
static inline bool tree_key_begins(const void *key, uint32_t key_size,
				   uint64_t first, const void *with,
				   uint64_t word, uint32_t size)
{
	if (unlikely(key_size < size))
		return false;
	if (likely(size <= 8))
		return !size || !((first ^ word) >> (64 - 8 * size));
	return !memcmp(key, with, size);
}

/* How many of `count` numbers, which are in order, are below one. */
static inline uint32_t tree_count_below(const uint32_t *numbers, size_t count,
					uint32_t number)
{
	const uint32_t *at = numbers;

	/* Without a branch that depends on what is compared. */
	while (count > 1) {
		size_t half = count / 2;

		at += half & -(size_t)(at[half - 1] < number);
		count -= half;
	}
	return (uint32_t)(at - numbers) + (count && *at < number);
}

/* True if a key is between the fences of a node, as far as the first bytes
 * tell. */
static inline bool tree_node_has(const struct tree_node *node, const void *key,
				 uint32_t key_size, uint64_t first)
{
	uint64_t digest = tree_digest(key, key_size, node->prefix_size);

	return tree_key_begins(key, key_size, first, node->low, node->low_word,
			       node->prefix_size) &&
	       digest > node->low_digest && digest < node->high_digest;
}

/* tree_node_part of a key that is behind the beginning of the first part, as
 * far as the first bytes tell, or -1. */
static inline int tree_node_quick_part(const struct tree_node *node,
				       const void *key, uint32_t key_size,
				       uint64_t first)
{
	uint32_t number, low, count = node->count - 1;

	if (unlikely(node->count < 2 ||
		     !tree_key_begins(key, key_size, first, node->parts[1].key,
				      node->part_word, node->skip)))
		return -1;
	number = (uint32_t)(tree_digest(key, key_size, node->skip) >> 32);
	low = tree_count_below(node->digests, count, number);
	if (unlikely(low < count && node->digests[low] == number))
		return -1;
	return (int)low;
}

void tree_node_unref(struct tree_node *node); /* NULL is fine */
/* Forget what is remembered of that node. */
void tree_node_forget(struct tree *tree, struct tree_node *node);
/* Forget what is remembered by that head, if anything is. */
void tree_node_drop(struct tree *tree, uint64_t head);
/* Remember a node as an image shows it, of an inner one with what its slots
 * name; *node (may be NULL) is the caller's to unref. */
int tree_node_remember(struct tree *tree, const struct tree_image *image,
		       struct tree_node **node);
/* What h0 of a head was when it was last seen; or `otherwise`. */
uint64_t tree_node_hint(struct tree *tree, uint64_t head, uint64_t otherwise);
/* A child that is READ along with the entries of its parent's slots, by whoever
 * goes down to a key, and so costs no round trip of its own. Zero it, and give
 * the key and the level. */
struct tree_ahead {
	const void *key;
	uint32_t key_size, level;
	bool before;
	struct tree_child child; /* head 0: none */
	struct tree_head head;	 /* as it was read */
	uint8_t *bytes; /* of the block that the hint names; malloc's */
	uint32_t size;
	uint64_t at;
};
void tree_ahead_drop(struct tree_ahead *ahead);
/* The node of a head, remembered or read. */
int tree_node_get(struct tree *tree, const struct tree_child *child,
		  struct tree_node **node);
/* The same; if it was read, *fresh (may be NULL; else an image, or zero) is
 * what was read, the caller's to free. ahead (may be NULL): what was read of it
 * with its parent; then what is read of its child. */
int tree_node_get_fresh(struct tree *tree, const struct tree_child *child,
			struct tree_ahead *ahead, struct tree_image *fresh,
			struct tree_node **node);
/* READ the node of a head, as it is now. The image is the caller's to free.
 * is_proved: the one on its left was seen in this call to name it: (8) of
 * layout.h. -ESTALE: there is no node of this tree (any more), or only the one
 * on its left could tell.  -REEF_EDROPPED.  -REEF_ECORRUPT. */
int tree_image_read(struct tree *tree, const struct tree_child *child,
		    bool is_proved, struct tree_image *image);
/* READ a node that was found as it is now. Whether its keys are dropped, if it
 * is, a search tells: -ESTALE. */
static inline int tree_node_read(struct tree *tree,
				 const struct tree_node *node,
				 struct tree_image *image)
{
	const struct tree_child child = {node->head, node->word};
	int rc = tree_image_read(tree, &child, node->is_proved, image);

	return rc == -REEF_EDROPPED ? -ESTALE : rc;
}
/* True if all slots are frozen. */
bool tree_slots_are_frozen(const uint64_t *slots);
/* The part of a node that a key is in, or -1. before: that what is below it is
 * in. */
int tree_node_part(const struct tree_node *node, const void *key,
		   uint32_t key_size, bool before);
/* Where a key is: 0: between the fences of a node.  Negative: before it.
 * Positive: behind it. */
int tree_node_side(const struct tree_node *node, const void *key,
		   uint32_t key_size);

/* --- slab.c --- */

#define TREE_SLAB_SIZES 32u
struct tree_slabs {
	struct tree_slab *open[TREE_SLAB_SIZES]; /* with room */
	struct tree_slab *spare;		 /* empty */
	uint32_t spare_count;
	uint64_t bytes, most;
};
/* Memory for a node of so many bytes, of which is_piece is set; NULL: none.
 * And give it back. */
struct tree_node *tree_slab_take(struct tree *tree, size_t size);
void tree_slab_give(struct tree_node *node);
/* When all nodes were given back. */
void tree_slabs_fini(struct tree_slabs *slabs);

#define TREE_RESERVE 3u

struct tree {
	struct reef_space *space;
	struct reef *reef;
	struct entry_home home;
	uint64_t root, id, seed, owner;
	uint32_t inline_max, leaf_bytes;
	bool is_copied;	   /* its memory has two copies */
	uint64_t epoch;	   /* the last in which the tree was seen alive */
	uint64_t top;	   /* the root word; 0: not known */
	uint64_t top_head; /* the address of the head that it names; 0: not
			      known */
	uint64_t top_hint; /* h0 of that, once; 0: not known */
	struct tree_node *top_node; /* what was remembered of it, or of another;
				       NULL: nothing */
	uint32_t ids;		    /* of blocks that were given; counts */
	/* Blocks of tree_reserve_size bytes, for reshapes of whoever deletes
	 * when there is no room: several, as what a delete gives back may be
	 * too small for the next. */
	uint64_t reserve[TREE_RESERVE];
	uint32_t reserve_count;
	uint64_t reserve_epoch; /* of the last attempt to take one, plus 1 */
	/* Head of a leaf that is dropped, as all before it are; 0: none is
	 * known. While the tree is alive it leads to the next. */
	uint64_t dropped;
	uint64_t cache_used, cache_max;
	uint32_t hand; /* of the clock, in buckets */
	/* What is remembered, by head: a power of 2 of buckets, or none yet. */
	struct tree_node **buckets;
	uint32_t buckets_count, nodes_count;
	struct tree_copy *copy; /* for the next scan; may be NULL */
	struct tree_old *old;	/* of a mutant; NULL */
	struct tree_slabs slabs;
	uint32_t careful; /* so many looks are not lazy: one was wrong */
};

static inline uint32_t tree_bucket(const struct tree *tree, uint64_t head)
{
	return (uint32_t)(head * UINT64_C(0x9e3779b97f4a7c15) >> 32) &
	       (tree->buckets_count - 1);
}
/* What is remembered by that head; NULL: nothing. It is good until something is
 * read. */
static inline struct tree_node *tree_node_known(const struct tree *tree,
						uint64_t head)
{
	struct tree_node *node;

	if (unlikely(!tree->buckets_count))
		return NULL;
	node = tree->buckets[tree_bucket(tree, head)];
	while (node && node->head != head)
		node = node->next;
	return node;
}

/* --- tree.c --- */

void tree_kinds_register(void);
int tree_root_read(struct reef_space *space, uint64_t at,
		   struct tree_root *root);
static inline uint64_t tree_alive_at(const struct tree *tree)
{
	return tree->root + offsetof(struct tree_root, alive);
}
static inline uint64_t tree_top_at(const struct tree *tree)
{
	return tree->root + offsetof(struct tree_root, top);
}
static inline uint64_t tree_hint_at(const struct tree *tree)
{
	return tree->root + offsetof(struct tree_root, hint);
}
/* See to it that the tree was alive in this epoch (5); inside reef_enter. */
int tree_prove(struct tree *tree);
/* An id for a block at that address, which no other block has. */
uint64_t tree_next_id(struct tree *tree, uint64_t at);

/* --- search.c --- */

static inline uint64_t tree_hash(const struct tree *tree, const void *key,
				 uint32_t size)
{
	return reef_hash_quick(key, size, tree->seed);
}
static inline uint32_t tree_print(uint64_t hash)
{
	return (uint32_t)hash & ((1u << TREE_PRINT_BITS) - 1);
}
static inline uint8_t tree_byte(uint64_t hash)
{
	return (uint8_t)(hash >> 32);
}

/* A separator that is to be put into its parent, or, if it leads to `bad`, that
 * is to be removed: the first of its node gets this child instead. */
struct tree_separator {
	struct tree_separator *next;
	struct tree_child child;
	uint64_t bad;	/* address of a head; 0: it is to be put */
	bool is_first;	/* of its node; change.c's */
	uint32_t level; /* of the parent */
	uint32_t key_size;
	uint8_t key[];
};
/* Note one; without memory it is left to others. */
void tree_separator_add(struct tree_separator **list, uint32_t level,
			const void *key, uint32_t key_size,
			const struct tree_child *child, uint64_t bad);

/* Find the node of a level that a key is in; NULL: behind all keys. before: the
 * one that keys right below it are in. missing (may be NULL): separators that
 * were not in parents. -ENOENT: the tree is not that high. */
int tree_search(struct tree *tree, const void *key, uint32_t key_size,
		uint32_t level, bool before, struct tree_separator **missing,
		struct tree_node **out);
/* The same; *fresh: as tree_node_get_fresh has it, of the node that was found,
 * or of another. */
int tree_search_fresh(struct tree *tree, const void *key, uint32_t key_size,
		      uint32_t level, bool before,
		      struct tree_separator **missing, struct tree_image *fresh,
		      struct tree_node **out);
/* READ the root word again. */
int tree_top_read(struct tree *tree);

/* --- look.c --- */

/* A key in its node. */
struct tree_spot {
	const void *key;
	uint32_t key_size, level;
	bool to_change; /* the slots are wanted, whatever is in the records */
	bool blind;
	uint64_t hash;
	struct tree_node *node;
	uint64_t slots[TREE_SLOTS];
	bool is_frozen;	   /* all slots are */
	int slot;	   /* the key's; -1: none */
	int record;	   /* the index of its record; -1: none */
	uint32_t mark_at;  /* of that */
	uint64_t outside;  /* of that */
	uint64_t entry_at; /* of its slot's entry; 0: none */
	bool is_there;
	bool is_held; /* a transaction has its slot: intent tells which */
	bool is_lazy; /* a slot that alone has its print is taken for its, and
		       * the entry not read; if it was so before the look */
	bool is_guessed; /* that was done */
	struct intent intent;
	struct entry entry;
	struct entry_room room;	 /* of its entry */
	struct entry_room bytes; /* of its record */
	struct tree_separator *missing;
	/* of look.c */
	int part; /* the interval that is read; -1: none */
	bool wants_slots;
	uint64_t front[TREE_FRONT / 8];
};
void tree_spot_fini(struct tree_spot *spot);
/* Find out about a key; inside reef_enter. fresh (may be NULL): an entry that
 * is written along with the first READ, if it was not. 0: is_there says it. */
int tree_look(struct tree *tree, struct tree_spot *spot,
	      struct entry_fresh *fresh);
#define TREE_LOOKED 64u
/* Find out about at most TREE_LOOKED keys of leaves in shared batches, by what
 * is remembered; inside reef_enter. told: 1: as tree_look would.  0: tree_look
 * has to be asked.  Negative: an error. */
void tree_look_together(struct tree *tree, struct tree_spot *spots,
			uint32_t count, int *told);
/* READ the entry that a slot names, as far as its key and, unless it is dead or
 * its value is longer than value_most, that. 1: sound.  0: not. */
int tree_entry_read(struct tree *tree, uint64_t slot, uint32_t value_most,
		    struct entry_room *room, uint64_t *at);
/* The same, when as much as its hint says is in the room already. */
int tree_entry_end(struct tree *tree, uint64_t slot, uint32_t value_most,
		   struct entry_room *room, uint64_t *at);

/* The entries of a block's slots. Zero it first. */
struct tree_entries {
	struct entry_room rooms[TREE_SLOTS];
	uint64_t at[TREE_SLOTS]; /* 0: the slot has none */
	uint32_t sizes[TREE_SLOTS];
};
/* The READs of them, for a batch: count of them; and what is to be done when
 * they are. Together: tree_entries_read.  -REEF_ECORRUPT: one is none. */
int tree_entries_begin(struct tree *tree, const uint64_t *slots,
		       struct tree_entries *entries,
		       struct reef_access *accesses, uint32_t *count);
int tree_entries_end(struct tree *tree, const uint64_t *slots,
		     uint32_t value_most, struct tree_entries *entries);
int tree_entries_read(struct tree *tree, const uint64_t *slots,
		      uint32_t value_most, struct tree_entries *entries);
void tree_entries_free(struct tree_entries *entries);

/* --- near.c --- */

#define TREE_DEAD_HINT                                                         \
	2u /* how much of a dead entry is read: its key, mostly                \
	    */
/* Look at a leaf's key, as tree_look does, if it is plain; inside reef_enter.
 * False: nothing happened. */
bool tree_look_near(struct tree *tree, struct tree_spot *spot);

/* What a parent has at hand behind a leaf. */
struct tree_after {
	struct tree_node *const *kids;
	uint32_t count;
};
/* For scans, between client_near_enter and leave: the leaf of a key, as it is
 * remembered; its block; the slots of that; and the entry that a slot names,
 * which points into the pool. NULL, or 0: not plain. What was read is true if
 * the block is that id's afterwards. */
struct tree_node *tree_near_node(struct tree *tree, const void *key,
				 uint32_t key_size, bool before, uint64_t epoch,
				 struct tree_after *after);
/* Fetch what a scan comes to next: the block of the next leaf, and what is
 * remembered of the one behind it. */
void tree_near_fetch(struct tree *tree, const struct tree_after *after);
const uint8_t *tree_near_block(struct tree *tree, const struct tree_node *node);
void tree_near_slots(const uint8_t *block, uint64_t *slots);
int tree_near_entry(struct tree *tree, uint64_t slot, uint64_t *at,
		    struct entry *entry);
bool tree_near_is(const uint8_t *at, uint64_t id);
/* After leave: true if what was read counts. */
bool tree_near_counts(const struct tree *tree);

/* --- copy.c --- */

/* What a slot says, sorted by its key. */
struct tree_change {
	struct entry entry; /* of a copy */
	uint64_t digest;    /* of its key, behind the node's prefix */
	bool is_dead;
};

/* A leaf, or some intervals of it, as it was at one moment. Zero it first. */
struct tree_copy {
	struct tree_node *node;	   /* counted */
	uint32_t first, end;	   /* intervals that were copied */
	struct entry_room bytes;   /* of them */
	struct entry_room entries; /* keys and values of slots */
	struct tree_change changes[TREE_SLOTS];
	uint8_t order[TREE_SLOTS]; /* in that of their keys */
	uint32_t count;
	uint32_t dead[TREE_SLOTS], dead_count; /* records that were deleted */
	/* of the interval whose turn it is */
	struct tree_record records[TREE_INTERVAL_RECORDS];
	uint32_t records_count;
	struct entry_room keys;
};
#define TREE_KEYS_MAX 4096u /* of a leaf; more than any has */
/* Copy the leaf that a key is in, from the key on (backward: up to it), if it
 * is plain; inside reef_enter. before: as tree_search. left: so many keys are
 * wanted, about. */
bool tree_copy_take(struct tree *tree, struct tree_copy *copy, const void *key,
		    uint32_t key_size, bool before, bool backward,
		    uint64_t left);
/* Tell of its keys in order; not only of those behind the key. What is told is
 * good until tell returns; of mark_at nothing is said. Nonzero ends it, and is
 * returned.  -REEF_ECORRUPT. */
int tree_copy_tell(struct tree_copy *copy, bool backward,
		   int (*tell)(void *context, const struct tree_record *record),
		   void *context);
/* Where it ends, for who goes on there; NULL: no key is behind it. */
void tree_copy_border(const struct tree_copy *copy, bool backward,
		      const uint8_t **key, uint32_t *size);
void tree_copy_fini(struct tree_copy *copy);

/* The same by READs, of several leaves that are remembered. Zero it first. */
struct tree_fetch {
	struct tree_copy copy;
	struct tree_entries entries;
	uint64_t front[TREE_FRONT / 8];
};
#define TREE_FETCHED 16u
/* Choose a leaf, and of it what is from a key on (backward: up to it), with
 * `left` records, about; and tell how many that are. */
void tree_fetch_begin(struct tree_fetch *fetch, struct tree_node *node,
		      const void *key, uint32_t key_size, bool backward,
		      uint64_t left);
uint32_t tree_fetch_records(const struct tree_fetch *fetch);
/* READ what was chosen of at most TREE_FETCHED leaves; inside reef_enter.
 * Returns how many are what is remembered, from the first on: their copies are
 * good. */
int tree_fetch_read(struct tree *tree, struct tree_fetch *fetches,
		    uint32_t count, uint32_t value_most);
void tree_fetch_fini(struct tree_fetch *fetch);

/* --- merge.c --- */

/* What is in a node, records and slots together, in order. It points into the
 * image and the entries. */
struct tree_merged {
	struct tree_record *records; /* malloc's */
	uint32_t count;
	uint64_t frees[TREE_SLOTS]; /* entries that are not needed beside it */
	uint32_t frees_count;
	bool is_ascending; /* all slots are behind all records */
};
/* Entries with longer values than inline_max stay where they are: outside.
 * -REEF_ECORRUPT.  -ENOMEM. */
int tree_merge(const struct tree_image *image, const uint64_t *slots,
	       const struct tree_entries *entries, uint32_t inline_max,
	       struct tree_merged *merged);
void tree_merged_free(struct tree_merged *merged);

/* --- intent.c --- */

/* What the slot of an intent, as it was read, says of its key. */
uint64_t tree_intent_content(const struct intent *intent);
/* Put what counts into the places of slots that transactions have, as those are
 * then; inside the reef_enter in which they were read. intents (may be NULL):
 * of TREE_SLOTS; status and line of each. */
int tree_settle(struct tree *tree, uint64_t *slots, struct intent *intents);
static inline bool tree_has_intents(const uint64_t *slots)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < TREE_SLOTS; i++)
		all |= slots[i];
	return all & TREE_INTENT;
}
/* Look at slot i of a spot, which a transaction has. 1: it is the key's.  0: it
 * is another's. */
int tree_look_held(struct tree *tree, struct tree_spot *spot, int i);
/* Let a slot go as its status, which is decided, says. flags: TREE_FROZEN.  1:
 * done.  0: another was quicker. */
int tree_intent_resolve(struct tree *tree, uint64_t at, uint64_t slot,
			const struct intent *intent, uint64_t flags);
/* The same of the slot that names a line, if one does. */
int tree_intent_resolve_line(struct tree *tree, const struct intent *intent,
			     uint64_t block);
/* Come past a transaction that has a slot.  -EINPROGRESS: it is waited for,
 * outside.  -EAGAIN: done, look again. */
int tree_intent_pass(struct tree *tree, uint64_t at, uint64_t slot,
		     struct intent *intent, struct intent_wait *wait);
/* See whether the slots of a block at that address may be frozen: then those
 * who have them lose. `own` (count of them): the caller's words do not count.
 * 0.  -EINPROGRESS: they are waited for, outside. */
int tree_intents_wait(struct tree *tree, uint64_t block, const uint64_t *slots,
		      const uint64_t *own, uint32_t count,
		      struct intent_wait *wait);
/* Decide the transaction that has a slot, and freeze it as that says, in one
 * CAS: so nobody takes it again in between. */
int tree_intent_freeze(struct tree *tree, uint64_t at, uint64_t slot);

/* --- moment.c --- */

/* Note a leaf that is told of, as its image shows it, with what counts in its
 * slots. *moment is made if it is NULL.  -E2BIG: they are too many. */
int tree_moment_note(struct tree_moment **moment, struct tree *tree,
		     const struct tree_image *image);

/* --- change.c, reshape.c --- */

/* Make the next block, or several, of a node whose slots are used up or frozen;
 * inside reef_enter. deletes: where there is no room, the reserve may be used.
 * 0: done by somebody. Separators are added to *missing. */
int tree_reshape(struct tree *tree, struct tree_node *node, bool deletes,
		 struct tree_separator **missing);
/* The same, so that `count` keys of the node, in order, can be changed in it,
 * or, where they are too many, in several that it is cut into. */
struct tree_key {
	const void *key;
	uint32_t key_size;
};
int tree_reshape_for(struct tree *tree, struct tree_node *node,
		     const struct tree_key *keys, uint32_t count,
		     struct tree_separator **missing);
void tree_reserve_free(struct tree *tree);
void tree_reserve_give(struct tree *tree, uint64_t at);
/* Bytes of the reserve: of most blocks that are folded and not cut. */
static inline uint32_t tree_reserve_size(const struct tree *tree)
{
	return (tree->leaf_bytes * 5 / 4 + 1024 + 63) / 64 * 64 - 8;
}
/* Let a leaf with few keys join the one on its left, if both fit into one;
 * inside reef_enter. Nothing is told: where it does not work it stays. */
void tree_join(struct tree *tree, const struct tree_node *node,
	       struct tree_separator **missing);
/* Finish what was begun with a node that is JOINING. 0: done by somebody. */
int tree_join_finish(struct tree *tree, const struct tree_image *image,
		     struct tree_separator **missing);
/* Fold `right` and the node on its left, `left`, into one: the images are as
 * they were read, and stay the caller's. */
int tree_reshape_both(struct tree *tree, const struct tree_image *left,
		      const struct tree_image *right,
		      struct tree_separator **missing);
/* Keys of a leaf. */
uint64_t tree_count_keys(uint64_t shape, const uint64_t *slots);
/* Put separators into their parents, as far as that goes, and free the list. */
void tree_mend(struct tree *tree, struct tree_separator **list);
/* Put a new root above the old one, with a separator for the level below it.
 * -EAGAIN: another was quicker. */
int tree_grow(struct tree *tree, const struct tree_separator *separator);
/* Set FROZEN in every slot of an image's block; its slots are as they are from
 * then on. */
int tree_freeze(struct tree *tree, struct tree_image *image);
/* Drop a node, in a tree that is being dropped; inside reef_enter. 0: it is.
 */
int tree_drop_head(struct tree *tree, uint64_t head);
/* READ the first leaf that is not dropped; inside reef_enter. The image is the
 * caller's to free.  -REEF_EDROPPED: all are, or it cannot be read. */
int tree_read_undropped(struct tree *tree, struct tree_image *image);
/* 1: the head can be reached from the first of its level, dropped or not, in a
 * tree that is alive; inside reef_enter. */
int tree_is_linked(struct tree *tree, uint32_t level, uint64_t address);
/* WRITEs that zero the id and every `alive` of a block. */
int tree_zero(const struct tree_image *image, struct index_batch *batch);

#endif
