/* internal.h - the parts of a transaction, to each other.
 *
 *   txn.c     begin, close, the calls of txn.h, run
 *   item.c    the keys that it has to do with, and its blocks
 *   take.c    holding keys
 *   commit.c  the end of it
 *   look.c    READ_ONLY ones
 *
 * Protocol: index/entry/intent.h has the words, hold.h what an index does to
 * them.
 *
 *   take    {WRITE lines; CAS slots to intents; READ entries}     1 round trip
 *   commit  {WRITE entries, lines, live 0; CAS status}            1
 *   let go  {CAS slots to what the lines say}                     1
 *
 * (1) All keys are held from their take to the CAS of the status, and nobody
 *     changes one that is held but by deciding the status. So all that was read
 *     is current, and all that is put appears, at that moment.
 * (2) Between two calls it is not inside reef_enter. In another epoch than that
 *     of its takes, addresses and entries that it remembers are good only once
 *     the status was read, PENDING, in the same enter (hold.h, 1).
 * (3) A block is freed when no slot names a line of it, and every CAS that
 *     would make one do so is settled. Else it stays: recovery frees it.
 * (4) A line whose slot was let go while it was PENDING has no `next`; others
 *     may have met it. So its status is never COMMITTED.
 *
 * Thread: as txn.h. */
#ifndef REEF_TXN_INTERNAL_H
#define REEF_TXN_INTERNAL_H

#include "base/log.h"
#include "index/tree/tree.h"
#include "kv/hold.h"

#include <errno.h>
#include <reef/txn.h>
#include <stdlib.h>

#define TXN_KEYS_MAX 65536u
#define TXN_BYTES_MAX (UINT64_C(256) << 20)
#define TXN_READ_MAX (UINT64_C(1) << 30)
#define TXN_BLOCKS 6u
#define TXN_FEW 8u    /* keys that need no memory of their own */
#define TXN_SHORT 64u /* bytes of a value that needs none */

enum txn_verdict { TXN_LEAVE, TXN_PUT, TXN_DELETE };

struct item {
	struct reef_map *map;
	struct hold *hold;
	struct intent_wait wait;
	uint32_t number; /* of what has the key */
	uint32_t line;	 /* + 1; 0: none yet */
	bool is_known;	 /* it was read; held, unless READ_ONLY */
	bool is_there;	 /* as it was read */
	bool is_ready;	 /* this round takes it */
	bool is_blocked; /* another has it: `met` is looked at */
	uint64_t met;	 /* what its slot was seen to be; 0: not known */
	bool was_seen;	 /* READ_ONLY: looked at again (a mutant's) */
	bool is_left;	 /* READ_ONLY: frozen; its version is compared */
	uint64_t ghost;	 /* version of one that we made; 0: none */
	struct reef_access *cas, *read;
	enum txn_verdict verdict;
	void *value;
	size_t value_size;
	uint64_t expires_ms;
	bool is_counted; /* with its map's growth */
	/* What follows is not zeroed. */
	char short_value[TXN_SHORT];
};

struct txn_block {
	uint64_t at;
	uint32_t first, lines; /* of the transaction's lines */
};

enum txn_state { TXN_OPEN, TXN_DONE, TXN_LOST };

struct reef_txn {
	struct reef_space *space;
	struct reef *reef;
	uint32_t flags, attempts;
	uint64_t patience_ns, priority; /* 0: not known yet */
	enum txn_state state;
	bool is_busy;
	bool keeps_ghosts; /* they are wanted again soon */
	/* It may lose to an older one rather than wait with keys in hand, and
	 * has; how long it has waited for that one. */
	bool may_yield, has_yielded;
	struct intent_wait yielded_to;
	bool in_doubt;	 /* (3) */
	bool is_settled; /* it was given up, and its status is known */
	struct item **items;
	uint32_t items_count, items_room;
	uint32_t *places; /* of many items by their keys, + 1; NULL: few */
	uint32_t places_mask;
	uint64_t bytes;	     /* of keys, and of values to put */
	uint64_t read_bytes; /* of values that were read */
	struct txn_block blocks[TXN_BLOCKS];
	uint32_t blocks_count, lines_used;
	bool is_written; /* the head of the first block */
	uint64_t header; /* of that block, on its way */
	bool has_header;
	struct tree_moment *moment; /* READ_ONLY: what was scanned */
	bool has_scanned;
	bool only_reads; /* asked for as READ_ONLY, though it may hold keys */
	/* What follows is not zeroed. Most have so few keys that these do: the
	 * accesses of a call, and the lines or looks that go with them. */
	struct reef_txn *next; /* of the handle's, that are free */
	struct item *few_items[TXN_FEW];
	struct item few[TXN_FEW];
	struct reef_access few_accesses[(3 + HOLD_AHEAD) * TXN_FEW + 2];
	union {
		struct intent_line few_lines[TXN_FEW + 1];
		struct hold_look few_looks[TXN_FEW];
	};
};

/* Room for a call of the transaction: what it has for few, or memory. NULL:
 * there is none. */
static inline void *txn_room(void *few, size_t few_size, size_t size)
{
	return size <= few_size ? few : malloc(size);
}

static inline void txn_room_free(void *room, const void *few)
{
	if (room != few)
		free(room);
}

static inline struct entry_home *txn_home(const struct item *item)
{
	return item->hold->index->home(item->hold->structure);
}

static inline bool txn_is_read_only(const struct reef_txn *txn)
{
	return txn->flags & REEF_TXN_READ_ONLY;
}

/* --- item.c --- */

/* -EXDEV: the map is of another space, or another handle's. */
int txn_check_space(const struct reef_txn *txn, const struct reef_map *map);
/* Find the item of a key, or make it.  -EXDEV, -EINVAL, -E2BIG, -ENOMEM. */
int txn_item(struct reef_txn *txn, struct reef_map *map, const void *key,
	     size_t key_size, struct item **out);
void txn_items_free(struct reef_txn *txn);
/* Set what an item is to put; a copy.  -E2BIG, -ENOMEM. */
int txn_item_put(struct reef_txn *txn, struct item *item, const void *value,
		 size_t value_size, uint64_t expires_ms);
/* Give items lines, and take blocks for them; not inside reef_enter, where that
 * would wait for memory for ever. */
int txn_lines(struct reef_txn *txn, struct item **items, uint32_t count);
uint64_t txn_line_at(const struct reef_txn *txn, const struct item *item);
/* The address of the status. */
static inline uint64_t txn_status_at(const struct reef_txn *txn)
{
	return txn->blocks[0].at;
}
/* The head of the first block, as it is written. */
struct intent_head txn_head(const struct reef_txn *txn);
/* Free the blocks: (3). */
void txn_blocks_free(struct reef_txn *txn, bool all_resolved);
/* READ the status.  -ECANCELED: it is not PENDING. */
int txn_check_status(struct reef_txn *txn);

/* --- take.c, look.c --- */

/* Hold keys, and read them unless their readings are blind. */
int txn_take(struct reef_txn *txn, struct item **items, uint32_t count);
/* Read keys without holding them. */
int txn_look(struct reef_txn *txn, struct item **items, uint32_t count);
/* Compare all keys with what was read.  -ECANCELED. */
int txn_look_again(struct reef_txn *txn);

/* --- commit.c --- */

int txn_commit(struct reef_txn *txn);
/* Let everything go, and mark it as lost; it can be called at any time. */
void txn_give_up(struct reef_txn *txn);
/* The same because of an error; only who has lost may want its ghosts again. */
static inline void txn_fail(struct reef_txn *txn, int rc)
{
	txn->keeps_ghosts &= rc == -ECANCELED;
	txn_give_up(txn);
}

#endif
