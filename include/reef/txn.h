/* txn.h - transactions: several keys, of any maps and trees of a space, change
 * together or not at all.
 *
 * (1) Transactions are strictly serializable, with each other and with every
 *     call of map.h and tree.h on one key, which is a transaction of its own:
 *     each happens at one moment between its begin and the return of its
 *     commit.
 * (2) A transaction holds every key that it has read or is to change, from then
 *     to its end. Others read a key that is held as if nothing were about to
 *     happen; they never wait. Who wants to change it waits a little, and then
 *     the transaction has lost: commit says -ECANCELED, and nothing happened.
 *     So nobody waits for one that is slow, has stopped or is dead for longer
 *     than its patience.
 * (3) Of two transactions that want the same key the older one goes first, if
 *     the other does not end within a few round trips; one that runs again
 *     (reef_txn_run) keeps its age, so nobody starves. Keys that one call takes
 *     (reef_txn_take_many, puts that were not read before) are let go while it
 *     waits for one of them: so to take all at once is what is quick on keys
 *     that many want.
 * (4) A READ_ONLY transaction holds nothing and is in nobody's way; what it
 *     reads may not belong together until commit says 0.
 * (5) Its coordinator may die at any moment: what it did is there as a whole or
 *     not at all, at once for readers, after patience for who changes its keys.
 *     With one copy of the memory, the death of a memory node may cut a commit
 *     in half, and the keys of a transaction that it decided are -REEF_ELOST
 *     for everybody, at once: until its coordinator has committed or closed
 *     it, which lets them go as they were; for good, if that is dead, too.
 * (6) Values and keys are copied; nothing of the caller's is kept.
 *
 * Errors that every call on a transaction may return, besides those of map.h:
 *   -ECANCELED      it has lost; nothing of it happened. Close it, begin anew
 *   -EINVAL         also: it was committed or aborted before; or it is
 *                   READ_ONLY, and the call would change something
 *   -EBUSY          also: another fiber is inside a call on it
 *   -EXDEV          the map or tree is of another space, or another handle's
 *   -E2BIG          more than 65,536 keys, or 256 MiB of keys and values to
 *                   put, or 1 GiB of values that were read. It is given up:
 *                   nothing is held
 * After any other error than -ENOENT, -EEXIST, -EINVAL, -EBUSY and -EXDEV
 * nothing is held, and it can only be closed.
 *
 * Thread: owner of the handle; one fiber at a time. */
#ifndef REEF_TXN_H
#define REEF_TXN_H

#include <reef/map.h>
#include <reef/tree.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reef_txn;

#define REEF_TXN_READ_ONLY 1u

/* Zero means the default. */
struct reef_txn_options {
	uint32_t flags;
	uint32_t attempts;    /* of reef_txn_run; 64 */
	uint64_t patience_ns; /* with others that hold its keys; 1 ms, and twice
			       * as much for each time that they have lost, but
			       * at most 1 s */
};

/* Begin a transaction; options may be NULL. It costs no operation. *out is the
 * caller's, to close before the space and what it used of it.  -EINVAL: an
 * unknown flag.  -ENOMEM. */
REEF_API int reef_txn_begin(struct reef_space *space,
			    const struct reef_txn_options *options,
			    struct reef_txn **out);
/* Close a transaction, while no fiber is inside a call on it; one that was not
 * committed is aborted. NULL is fine. */
REEF_API void reef_txn_close(struct reef_txn *txn);

/* Read a key, with what the transaction itself has put or deleted.  -ENOENT: it
 * is not there, and will not be until the end. */
REEF_API int reef_txn_get(struct reef_txn *txn, struct reef_map *map,
			  const void *key, size_t key_size,
			  struct reef_map_value *out);
/* Read a key that is to be changed: as reef_txn_get, which holds it, too; not
 * of a READ_ONLY one. */
REEF_API int reef_txn_take(struct reef_txn *txn, struct reef_map *map,
			   const void *key, size_t key_size,
			   struct reef_map_value *out);

/* One of many; zero what is not named. */
struct reef_txn_item {
	struct reef_map *map; /* NULL: the key is of a tree */
	const void *key;
	size_t key_size;
	struct reef_map_value value; /* out */
	int status;		     /* out: 0 or -ENOENT */
	struct reef_tree *tree;
};
/* Read many keys at once: one round trip for all whose places are remembered.
 * Returns 0, or an error that hit all. */
REEF_API int reef_txn_take_many(struct reef_txn *txn,
				struct reef_txn_item *items, uint32_t count);

/* Set a key, whatever it was; as reef_map_put. It is held from the commit on,
 * if it was not read before. */
REEF_API int reef_txn_put(struct reef_txn *txn, struct reef_map *map,
			  const void *key, size_t key_size, const void *value,
			  size_t value_size, uint64_t expires_ms);
/* Set a key that is not there.  -EEXIST: it is there. */
REEF_API int reef_txn_insert(struct reef_txn *txn, struct reef_map *map,
			     const void *key, size_t key_size,
			     const void *value, size_t value_size,
			     uint64_t expires_ms);
/* Delete a key.  -ENOENT: it is not there. */
REEF_API int reef_txn_delete(struct reef_txn *txn, struct reef_map *map,
			     const void *key, size_t key_size);

/* The same of trees. A leaf of a tree has room for some 20 keys of transactions
 * at a time: where one needs more, leaves are cut for it, and it may lose, once
 * or more often, before there is room for all (reef_txn_run). */
REEF_API int reef_txn_tree_get(struct reef_txn *txn, struct reef_tree *tree,
			       const void *key, size_t key_size,
			       struct reef_map_value *out);
REEF_API int reef_txn_tree_take(struct reef_txn *txn, struct reef_tree *tree,
				const void *key, size_t key_size,
				struct reef_map_value *out);
REEF_API int reef_txn_tree_put(struct reef_txn *txn, struct reef_tree *tree,
			       const void *key, size_t key_size,
			       const void *value, size_t value_size,
			       uint64_t expires_ms);
REEF_API int reef_txn_tree_insert(struct reef_txn *txn, struct reef_tree *tree,
				  const void *key, size_t key_size,
				  const void *value, size_t value_size,
				  uint64_t expires_ms);
REEF_API int reef_txn_tree_delete(struct reef_txn *txn, struct reef_tree *tree,
				  const void *key, size_t key_size);

/* Scan a range of a tree, as reef_tree_scan does, in a READ_ONLY transaction:
 * when commit says 0, the keys that were told, and no others, were in the range
 * at the moment of the transaction. `each` must not call into the handle. It
 * loses (-ECANCELED) when another changes a leaf of the range meanwhile, or
 * when memory that was freed since it began is used again: so it is for ranges,
 * and not for whole trees of many keys. reef_txn_run does not hold the keys of
 * one that scans, however often it loses. There is no such scan of a map:
 * reef_map_scan is of no one moment, in a transaction or outside; keys that are
 * to be told by one scan belong into a tree.  -EINVAL: also: it is not
 * READ_ONLY.  -E2BIG: more than 65,536 leaves. */
REEF_API int reef_txn_scan(struct reef_txn *txn, struct reef_tree *tree,
			   const struct reef_range *range,
			   int (*each)(void *context,
				       const struct reef_map_entry *entry),
			   void *context);

/* Ask whether it can still be committed: one READ. 0: it could at that moment.
 * -ECANCELED: it has lost. */
REEF_API int reef_txn_check(struct reef_txn *txn);

/* Commit: all that it put and deleted happens at once. 0: it happened.
 * -ECANCELED: it has lost, nothing happened.  -ENOSPC, -EDQUOT: there is no
 * room, and none comes back; nothing happened. One that deletes up to 15 keys,
 * all of which are there, finds room through a handle that changed one of the
 * maps before the pool was full, as that keeps a block aside.  -REEF_EINDOUBT:
 * the connection to what decides it was lost, and nobody can tell: all of it
 * happened, or nothing ever will.  -ETIMEDOUT: likewise, or it still will.
 * -REEF_ELOST: memory of its keys is lost, and nothing happened; or that of
 * what decides it: see (5). */
REEF_API int reef_txn_commit(struct reef_txn *txn);
/* Give it up: nothing happened, and no key is held. While another fiber is
 * inside a call on it nothing is done. */
REEF_API void reef_txn_abort(struct reef_txn *txn);

/* Run a body in transactions until one commits. One that would have to wait for
 * an older one with keys in hand gives them up and runs the body again, which
 * does not count as an attempt (where more than one is allowed). The body
 * returns 0 to commit, -ECANCELED (as the calls in it do) to be run again, or
 * anything else, which ends it and is returned: nothing happened then. It
 * neither commits nor closes it, and has no effect but through the transaction,
 * as it is run several times.  -ECANCELED: it has lost at every attempt.  Else
 * as reef_txn_begin and reef_txn_commit. */
REEF_API int reef_txn_run(struct reef_space *space,
			  int (*body)(struct reef_txn *txn, void *context),
			  void *context,
			  const struct reef_txn_options *options);

#ifdef __cplusplus
}
#endif
#endif
