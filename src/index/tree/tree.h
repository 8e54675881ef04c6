/* tree.h - an ordered tree in the memory of a pool, worked on by its clients
 * with one-sided operations alone. layout.h has its words and their rules.
 *
 * Invariants, with layout.h:
 * (1) Every call on one key is linearizable: a change at its CAS on a slot, a
 *     read when it read an interval that was alive and whose record had no
 *     mark, or the slots.
 * (2) A scan meets every key that is there from its beginning to its end
 *     exactly once, in strict order, and each key as it was at some moment of
 *     the call.
 * (3) Every call is inside reef_enter: an address found in a call stays what it
 *     was to its end. What a handle remembers of nodes is disproved by what it
 *     reads by it.
 * (4) A client may die anywhere: a block that is being superseded is finished
 *     by the next who wants to change it, and read meanwhile; entries, blocks
 *     and heads that nobody can reach are freed by recovery (is_live).
 * (5) What is DROPPED stays so. All leaves are before any other node is, and
 *     before the root says so; a call says -REEF_EDROPPED of a key only when
 *     its leaf is.
 *
 * Thread: owner of the handle; its fibers may share a tree. */
#ifndef REEF_INDEX_TREE_TREE_H
#define REEF_INDEX_TREE_TREE_H

#include "index/entry/entry.h"

#include <limits.h>

struct tree;

/* Zero means the default. */
struct tree_options {
	uint32_t inline_max; /* bytes; longer values lie outside their node;
			      * 256, at most 1,023 */
	uint32_t leaf_bytes; /* of records in a node; 6 KiB, at most 64 KiB */
	uint64_t seed;	     /* of its fingerprints; random */
};

/* Make a tree. owner: as hash_create has it.  Errors as alloc and access.
 * -EINVAL: an option is too large, or leaf_bytes below 256. */
int tree_create(struct reef_space *space, const struct tree_options *options,
		uint64_t owner, uint64_t *root);
/* cache_bytes: of what this handle remembers of nodes; 0: 64 MiB.
 * -REEF_ECORRUPT: there is no tree.  -REEF_EDROPPED: not any more. */
int tree_open(struct reef_space *space, uint64_t root, uint64_t cache_bytes,
	      struct tree **out);
void tree_close(struct tree *tree); /* NULL is fine */
/* The owner that it was created with; its root; a number that no other tree
 * has. */
uint64_t tree_owner(const struct tree *tree);
uint64_t tree_root(const struct tree *tree);
uint64_t tree_id(const struct tree *tree);

/* Drop a tree with all that is in it, as hash_drop drops a table: it may be
 * called again, and by several at once; the root stays, for who takes it out of
 * its owner's word. Not inside reef_enter. */
int tree_drop(struct tree *tree);

/* Errors of all that follows: -REEF_EDROPPED: the tree was dropped.
 * -REEF_ECORRUPT: a node is damaged; keys of others are not concerned.
 * -EINVAL: a key or value is too long. */

/* One key being looked up, with room for what is found. Zero it first, give
 * key and key_size; free the room at the end. */
struct tree_reading {
	const void *key;
	uint32_t key_size;
	int status;		/* out: 0: found.  -ENOENT.  else: error */
	struct entry entry;	/* out; points into the room */
	struct entry_room room; /* the tree's */
	bool blind; /* its value is not wanted: entry.value may be NULL */
};
void tree_reading_free(struct tree_reading *reading);

/* Look up a key. One READ of at most 192 bytes where the leaf is remembered and
 * the key is in a record, or is not there. Returns its status. */
int tree_get(struct tree *tree, struct tree_reading *reading);
/* The same in place, if nothing has to be waited for: not inside reef_enter.
 * blind: its value is not wanted. The room, which stays the caller's, grows as
 * it must.  0: found.  -ENOENT.  -EAGAIN: tree_get tells. */
int tree_get_near(struct tree *tree, const void *key, uint32_t key_size,
		  bool blind, struct entry_room *room, struct entry *out);
/* Look up several keys, as many as there is room for in shared batches; each
 * has its status. Returns 0, or an error that hit all. */
int tree_get_many(struct tree *tree, struct tree_reading *readings,
		  uint32_t count);

/* Change a key; returns as hash_apply. */
int tree_apply(struct tree *tree, struct entry_change *change);

#define TREE_RANGE_BACKWARD 1u
#define TREE_RANGE_KEYS 2u  /* without values: entry.value may be NULL */
#define TREE_RANGE_AFTER 4u /* the first key itself is not in it */

/* from <= key < to, or without end; backward: from >= key > to. */
struct tree_range {
	const void *from, *to; /* from NULL: from the beginning; to NULL: to the
				* end */
	uint32_t from_size, to_size;
	uint32_t flags;
	uint64_t limit;		     /* how many; 0: all */
	struct tree_moment **moment; /* NULL: it is not looked at again */
};

/* What was scanned, in any number of ranges and trees of a handle, to be looked
 * at again: in *moment of a range, which is NULL at first. */
struct tree_moment;
#define TREE_MOMENT_LEAVES 65536u
/* Look at it again, inside reef_enter. 0: all keys of all ranges, and no
 * others, were there when this was called.  -ECANCELED: perhaps not. */
int tree_moment_look(const struct tree_moment *moment);
void tree_moment_free(struct tree_moment *moment); /* NULL is fine */

/* Of `each`: this key does not count for the limit. */
#define TREE_PASS INT_MIN

/* Call `each` for the keys of a range, in order; nonzero, but for TREE_PASS,
 * ends the call, and is returned. `each` must not call into the tree. */
int tree_scan(struct tree *tree, const struct tree_range *range,
	      int (*each)(void *context, const struct entry *entry),
	      void *context);

/* Go through the whole tree in steps, of one leaf each, without values, in no
 * order that matters: a key that is there throughout is met, unless nodes are
 * split or merged meanwhile. *cursor is 0 at the beginning, and at the end. A
 * leaf that is lost or damaged is passed over. */
int tree_walk(struct tree *tree, uint64_t *cursor, uint32_t steps,
	      int (*each)(void *context, const struct entry *entry),
	      void *context);

struct tree_count {
	uint64_t keys, nodes;
	uint64_t bytes; /* of its nodes, without entries */
	uint32_t height;
};
/* Count by reading the front of all nodes. While others change it: roughly. */
int tree_count(struct tree *tree, struct tree_count *out);
/* Count the keys of a range, whatever its limit: the leaves at its ends are
 * read, of those between only the front. */
int tree_count_range(struct tree *tree, const struct tree_range *range,
		     uint64_t *keys);

/* How much this handle may remember of nodes, and how much it does, in bytes.
 */
uint64_t tree_cache_max(const struct tree *tree);
uint64_t tree_cache_used(const struct tree *tree);

/* Where a leaf is. Zero it first; entry_room_free its room at the end. */
struct tree_place {
	uint64_t head;	 /* its address */
	const void *end; /* where the next one begins; NULL: it is the last */
	uint32_t end_size;
	struct entry_room room;
};
/* Find the leaf of a key without reading it, as its parent knows it: while
 * others change the tree, roughly.  -REEF_ECORRUPT: a node above it is damaged.
 */
int tree_place_find(struct tree *tree, const void *key, uint32_t key_size,
		    struct tree_place *place);

#endif
