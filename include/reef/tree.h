/* tree.h - ordered maps in the memory of a pool, shared by all its clients.
 *
 * A tree is a map (map.h) whose keys are in order: compared byte by byte
 * (memcmp; of two that are alike as far as the shorter goes, the shorter comes
 * first; key.h writes numbers and tuples so). Besides what a map can do it has
 * ranges: scanned in either direction, counted, deleted. It is a named object
 * in a space, and belongs to the handle that opened the space; the fibers of
 * that handle may share it.
 *
 * (1) Every call on one key is linearizable, as map.h (1) and (2) have it:
 *     whichever clients make it, and whoever dies, stops or is cut off
 *     meanwhile.
 * (2) A call on a range meets every key that is there from its beginning to its
 *     end exactly once, in strict order, each as it was at some moment of the
 *     call. A key that comes or goes meanwhile is met, or not.
 * (3) Values have versions and expire as in a map: map.h (3) and (4).
 * (4) A tree grows while it is used. Deleted keys give their memory back.
 *
 * Errors are those of map.h: of every call, of every call on a key, of every
 * call that changes one. Besides:
 *   -REEF_ECORRUPT  a node is damaged: keys of others are not concerned. A call
 *                   on a range ends with it where it comes to that node
 *
 * Thread: owner of the handle. */
#ifndef REEF_TREE_H
#define REEF_TREE_H

#include <reef/map.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reef_tree;

#define REEF_TREE_EXISTING 1u /* open flags: do not make it */
#define REEF_TREE_RENEW 2u    /* if its memory is lost, make it anew, empty */

/* Zero means the default. */
struct reef_tree_options {
	uint32_t flags;
	/* Fixed when the tree is made; whoever opens it later has these: */
	uint32_t key_max;    /* bytes; 1,024, at most 16,384 */
	uint32_t value_max;  /* bytes; 64 MiB, at most that */
	uint32_t inline_max; /* bytes; longer values lie outside their node;
			      * 256, at most 1,023 */
	uint32_t leaf_bytes; /* of keys and values in a node, roughly; 6 KiB,
			      * 256 to 65,536 */
	/* This handle's: */
	uint64_t cache_bytes; /* of what it remembers of nodes; 64 MiB */
};

/* Open a tree, or make it; options may be NULL. *out is the caller's, and must
 * be closed before its space.
 * -ENOENT: there is none, with REEF_TREE_EXISTING.  -EEXIST: the name is
 * something else's.  -EINVAL: no name, a limit that is not possible, or an
 * unknown flag.  -ENAMETOOLONG: the name has more than 255 bytes.  -EACCES:
 * only reading is granted, and there is none.  -ENOSPC, -EDQUOT: no room to
 * make it.  -REEF_EVERSION: it was made by a version with another layout. */
REEF_API int reef_tree_open(struct reef_space *space, const char *name,
			    const struct reef_tree_options *options,
			    struct reef_tree **out);
/* Close a tree, and free what the handle has of it. NULL is fine. */
REEF_API void reef_tree_close(struct reef_tree *tree);

/* Drop a tree with all that is in it; everybody else gets -REEF_EDROPPED from
 * then on. If its caller dies meanwhile, or gets an error, the next to drop or
 * open that name goes on with it.
 * -ENOENT: there is none.  -EEXIST: the name is not a tree's.  -EINVAL,
 * -ENAMETOOLONG, -REEF_EVERSION: as reef_tree_open.  -EACCES. */
REEF_API int reef_tree_drop(struct reef_space *space, const char *name);

/* --- one key: each as the call of map.h that has its name --- */

/* idle_ms and frequency of what is found are 0: a tree does not note uses. One
 * READ of at most 192 bytes, where the handle remembers the leaf, and the value
 * is short and was not changed lately. */
REEF_API int reef_tree_get(struct reef_tree *tree, const void *key,
			   size_t key_size, struct reef_map_value *out);
REEF_API int reef_tree_peek(struct reef_tree *tree, const void *key,
			    size_t key_size, struct reef_map_value *out);
REEF_API int reef_tree_look(struct reef_tree *tree, const void *key,
			    size_t key_size, struct reef_map_value *out);
REEF_API int reef_tree_put(struct reef_tree *tree, const void *key,
			   size_t key_size, const void *value,
			   size_t value_size, uint64_t expires_ms,
			   uint64_t *version);
REEF_API int reef_tree_insert(struct reef_tree *tree, const void *key,
			      size_t key_size, const void *value,
			      size_t value_size, uint64_t expires_ms,
			      uint64_t *version);
REEF_API int reef_tree_update(struct reef_tree *tree, const void *key,
			      size_t key_size, const void *value,
			      size_t value_size, uint64_t expires_ms,
			      uint64_t *version);
REEF_API int reef_tree_replace(struct reef_tree *tree, const void *key,
			       size_t key_size, uint64_t expected,
			       const void *value, size_t value_size,
			       uint64_t expires_ms, uint64_t *version);
REEF_API int reef_tree_delete(struct reef_tree *tree, const void *key,
			      size_t key_size, uint64_t expected);
REEF_API int reef_tree_add(struct reef_tree *tree, const void *key,
			   size_t key_size, int64_t add, int64_t *after);
REEF_API int reef_tree_append(struct reef_tree *tree, const void *key,
			      size_t key_size, const void *bytes, size_t count,
			      size_t *size);
REEF_API int reef_tree_expire(struct reef_tree *tree, const void *key,
			      size_t key_size, uint64_t expires_ms);
REEF_API int reef_tree_apply(struct reef_tree *tree,
			     struct reef_map_change *change);

/* --- many keys --- */

/* Read many keys, those in leaves that the handle remembers in shared batches:
 * else as reef_map_get_many. */
REEF_API int reef_tree_get_many(struct reef_tree *tree,
				struct reef_map_item *items, uint32_t count);
/* Put many keys, as reef_map_put_many. */
REEF_API int reef_tree_put_many(struct reef_tree *tree,
				struct reef_map_item *items, uint32_t count);

/* --- ranges --- */

#define REEF_RANGE_BACKWARD 1u /* from the greatest key to the least */
#define REEF_RANGE_KEYS 2u     /* without values: value is NULL */
#define REEF_RANGE_AFTER 4u    /* the key `from` itself is not in it */

/* The keys from <= key < to; backward: from >= key > to. So a range goes from
 * where it begins, in its direction; one whose end is before its beginning is
 * empty. Zero it first. */
struct reef_range {
	const void *from; /* NULL: from the first key; backward: the last */
	const void *to;	  /* NULL: to the end in that direction */
	size_t from_size, to_size;
	uint32_t flags;
	uint64_t limit; /* keys at most; 0: no limit */
};

/* Call `each` for the keys of a range, in order; range NULL: for all. Any
 * nonzero value from `each`, which must not call into the handle, ends the call
 * and is returned as it is. Whoever wants to go on later, on any handle, takes
 * the last key as `from` with REEF_RANGE_AFTER.
 * -EINVAL: an unknown flag, or a key longer than the limit. */
REEF_API int reef_tree_scan(struct reef_tree *tree,
			    const struct reef_range *range,
			    int (*each)(void *context,
					const struct reef_map_entry *entry),
			    void *context);

/* Find the first key of a range (range NULL: of the tree), with its value. The
 * last key, or the greatest that is not above some key (its floor), is the
 * first of a range that goes backward; the least that is not below (its
 * ceiling) that of one that begins there. *key has the key's bytes and size;
 * both are as reef_map_get has them, and either may be NULL.
 * -ENOENT: there is none.  -EINVAL: as reef_tree_scan. */
REEF_API int reef_tree_first(struct reef_tree *tree,
			     const struct reef_range *range,
			     struct reef_map_value *key,
			     struct reef_map_value *out);

/* Count the keys of a range (range NULL: of the tree; limit and the direction
 * do not matter), expired ones that nobody met yet among them, by reading at
 * most 4 bytes a key and the leaves at its ends. While others change it:
 * roughly.  -EINVAL: as reef_tree_scan. */
REEF_API int reef_tree_count(struct reef_tree *tree,
			     const struct reef_range *range, uint64_t *count);

/* Delete every key of a range (range NULL: of the tree) that is there from the
 * beginning of the call to its end; with a limit, so many from its beginning.
 * *deleted (may be NULL): how many, also after an error; call again for the
 * others.  -EACCES.  -EINVAL: as reef_tree_scan. */
REEF_API int reef_tree_delete_range(struct reef_tree *tree,
				    const struct reef_range *range,
				    uint64_t *deleted);

/* --- about it --- */

/* Tell a tree's limits, as whoever made it set them: key_max, value_max,
 * inline_max and leaf_bytes of *out; cache_bytes is this handle's. Costs
 * nothing. */
REEF_API void reef_tree_limits(const struct reef_tree *tree,
			       struct reef_tree_options *out);

struct reef_tree_stats {
	/* Of the tree, as reef_tree_count finds them: */
	uint64_t keys, nodes;
	uint64_t node_bytes; /* of nodes, with the values in them; without what
			      * lies outside, as changes since a node was last
			      * written do */
	uint32_t height;     /* levels above the leaves */
	uint32_t key_max, value_max;
	/* Of this handle, now, and since it was opened: */
	uint64_t cache_bytes;	   /* of what it remembers */
	uint64_t gets, hits;	   /* hits: that found the key */
	uint64_t changes, retries; /* retries: another was quicker */
	uint64_t expired;	   /* keys that it removed */
};
/* Tell of a tree's size and of what this handle did; costs what reef_tree_count
 * does. */
REEF_API int reef_tree_stats(struct reef_tree *tree,
			     struct reef_tree_stats *out);

/* Tell the pool's time, as reef_map_now. */
REEF_API int reef_tree_now(struct reef_tree *tree, uint64_t *ms);

#ifdef __cplusplus
}
#endif
#endif
