/* internal.h - the parts of a tree, to each other.
 *
 *   tree.c     make, open, close
 *   image.c    a block's bytes, taken apart and put together
 *   node.c     what a handle remembers of nodes; reading them
 *   search.c   from the root to a node
 *   look.c     a key in its node
 *   get.c      look up
 *   merge.c    what is in a node, records and slots together
 *   change.c   put, update, delete; separators
 *   reshape.c  a full block becomes another one, or several; a new root
 *   join.c     leaves with few keys become one
 *   scan.c     ranges
 *   count.c    counts
 *   walk.c     all of it, in steps, for sweeps
 *   drop.c     the end of all of it
 *   recover.c  what a dead session left
 *   place.c    where a leaf is, for who looks at damage
 *
 * Thread: as tree.h. */
#ifndef REEF_INDEX_TREE_INTERNAL_H
#define REEF_INDEX_TREE_INTERNAL_H

#include "base/log.h"
#include "index/entry/entry.h"
#include "index/entry/word.h"
#include "index/tree/image.h"
#include "index/tree/tree.h"

#include <errno.h>
#include <stddef.h>

/* --- node.c --- */

/* What is remembered of a node. It does not change, and is counted: fibers
 * share it. A newer one takes its place. */
struct tree_node {
	struct tree_node *next; /* in its bucket */
	uint32_t refs;
	uint32_t size;	      /* bytes, of all of it */
	bool is_used;	      /* since the hand of the clock passed */
	bool is_known;	      /* it is in the table */
	bool is_proved;	      /* as its image; then it is never in the table */
	uint64_t head, right; /* addresses; right 0: none */
	uint64_t word, at, id;
	uint64_t epoch; /* in which it was read */
	uint32_t level, count;
	const uint8_t *low, *high; /* high NULL: none */
	uint32_t low_size, high_size, prefix_size;
	/* count of them and one more, for where the last one ends: of a leaf
	 * intervals, of an inner node children */
	struct tree_part {
		const uint8_t *key; /* from here on */
		uint32_t key_size;
		uint32_t at;	/* interval: where it is in the block */
		uint32_t first; /* interval: its first record */
		struct tree_child child;
	} * parts;
	const uint8_t *prints; /* of a leaf's records, a byte each */
};

void tree_node_unref(struct tree_node *node); /* NULL is fine */
/* Forget what is remembered of that node. */
void tree_node_forget(struct tree *tree, struct tree_node *node);
/* What is remembered by that head; NULL: nothing. It is good until something is
 * read. */
struct tree_node *tree_node_known(struct tree *tree, uint64_t head);
/* Forget what is remembered by that head, if anything is. */
void tree_node_drop(struct tree *tree, uint64_t head);
/* Remember a node as an image shows it, of an inner one with what its slots
 * name; *node (may be NULL) is the caller's to unref. */
int tree_node_remember(struct tree *tree, const struct tree_image *image,
		       struct tree_node **node);
/* What h0 of a head was when it was last seen; or `otherwise`. */
uint64_t tree_node_hint(struct tree *tree, uint64_t head, uint64_t otherwise);
/* The node of a head, remembered or read. */
int tree_node_get(struct tree *tree, const struct tree_child *child,
		  struct tree_node **node);
/* The same; if it was read, *fresh (may be NULL; else an image, or zero) is
 * what was read, the caller's to free. */
int tree_node_get_fresh(struct tree *tree, const struct tree_child *child,
			struct tree_image *fresh, struct tree_node **node);
/* READ the node of a head, as it is now. The image is the caller's to free.
 * is_proved: the one on its left was seen in this call to name it: (8) of
 * layout.h. -ESTALE: there is no node of this tree (any more), or only the one
 * on its left could tell.  -REEF_EDROPPED.  -REEF_ECORRUPT. */
int tree_image_read(struct tree *tree, const struct tree_child *child,
		    bool is_proved, struct tree_image *image);
/* READ a node that was found as it is now. */
static inline int tree_node_read(struct tree *tree,
				 const struct tree_node *node,
				 struct tree_image *image)
{
	const struct tree_child child = {node->head, node->word};

	return tree_image_read(tree, &child, node->is_proved, image);
}
/* True if all slots are frozen. */
bool tree_slots_are_frozen(const uint64_t *slots);
/* The part of a node that a key is in, or -1. before: that what is below it is
 * in. */
int tree_node_part(const struct tree_node *node, const void *key,
		   uint32_t key_size, bool before);

#define TREE_BUCKETS 4096u
#define TREE_RESERVE 3u

struct tree {
	struct reef_space *space;
	struct reef *reef;
	struct entry_home home;
	uint64_t root, id, seed, owner;
	uint32_t inline_max, leaf_bytes;
	uint64_t epoch; /* the last in which the tree was seen alive */
	uint64_t top;	/* the root word; 0: not known */
	uint32_t ids;	/* of blocks that were given; counts */
	/* Blocks of tree_reserve_size bytes, for reshapes of whoever deletes
	 * when there is no room: several, as what a delete gives back may be
	 * too small for the next. */
	uint64_t reserve[TREE_RESERVE];
	uint32_t reserve_count;
	uint64_t reserve_epoch; /* of the last attempt to take one, plus 1 */
	uint64_t cache_used, cache_max;
	uint32_t hand; /* of the clock, in buckets */
	struct tree_node *buckets[TREE_BUCKETS];
};

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

/* --- change.c, reshape.c --- */

/* Make the next block, or several, of a node whose slots are used up or frozen;
 * inside reef_enter. deletes: where there is no room, the reserve may be used.
 * 0: done by somebody. Separators are added to *missing. */
int tree_reshape(struct tree *tree, struct tree_node *node, bool deletes,
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
/* 1: the head can be reached from the first of its level, dropped or not, in a
 * tree that is alive; inside reef_enter. */
int tree_is_linked(struct tree *tree, uint32_t level, uint64_t address);
/* WRITEs that zero the id and every `alive` of a block. */
int tree_zero(const struct tree_image *image, struct index_batch *batch);

#endif
