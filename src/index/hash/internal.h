/* internal.h - the parts of a table, to each other.
 *
 *   table.c      make, open, close
 *   directory.c  which subtable a key is in
 *   place.h      where in a subtable, inlined
 *   find.c       looking up, many keys at once
 *   change.c     put, update, delete
 *   near.c       the plain case of that, in memory that is mapped; near.h
 *   insert.c     the first slot of a key: (1) of table.h
 *   hold.c       keys that a transaction has, to it; hold.h
 *   intent.c     slots that transactions have: (7) of table.h
 *   many.c       put many keys in shared batches
 *   split.c      (3) of table.h
 *   walk.c       all entries, in an order that splits do not change; counts
 *   drop.c       the end of all of it
 *   recover.c    what a dead session left
 *
 * Thread: as table.h. */
#ifndef REEF_INDEX_HASH_INTERNAL_H
#define REEF_INDEX_HASH_INTERNAL_H

#include "base/log.h"
#include "index/entry/entry.h"
#include "index/entry/word.h"
#include "index/hash/layout.h"
#include "index/hash/table.h"

#include <errno.h>
#include <stddef.h>

struct hash_leaf {	   /* what a handle knows of a suffix */
	uint64_t subtable; /* 0: nothing */
	uint64_t epoch;	   /* in which that was so */
	uint32_t depth;
	uintptr_t at; /* where near.h last saw it; nothing but a hint */
};

/* Where a key was last found. */
struct hash_memo {
	uint64_t hash;	  /* all of it */
	uint64_t version; /* 0: nothing is remembered here */
	uint64_t entry_at;
	uint64_t slot_at, slot;
	uint64_t epoch; /* in which slot_at is good for a CAS */
	uint32_t depth;
};

struct many; /* many.c */

struct hash_table {
	struct reef_space *space;
	struct reef *reef;
	struct entry_home home; /* of its entries */
	uint64_t root;
	uint32_t groups;
	bool is_copied; /* its space has two copies */
	uint64_t seed, id, owner;
	uint64_t levels[HASH_DEPTH_MAX + 1]; /* outer ones; 0: not known */
	struct hash_leaf *leaves;	     /* 2^depth of them, by suffix */
	struct hash_memo *memos;	     /* by hash; 2^n of them */
	uint32_t memos_mask;
	uint32_t depth;
	struct many *many; /* for the next call of hash_put_many; or NULL */
	struct hash_hold *holds; /* for the next transactions (hold.c) */
	uint32_t holds_count;
};

/* --- recover.c --- */

void hash_kinds_register(void);

/* --- table.c --- */

/* READ the head of a root.  -REEF_ECORRUPT: it is none. */
int hash_root_read(struct reef_space *space, uint64_t at,
		   struct hash_root_head *head);

/* --- directory.c --- */

/* Where the root keeps the address of a level. */
static inline uint64_t hash_level_at(const struct hash_table *table,
				     uint32_t depth)
{
	return table->root + offsetof(struct hash_root, levels) +
	       8 * (uint64_t)depth;
}
/* Where the root says whether it is one. */
static inline uint64_t hash_alive_at(const struct hash_table *table)
{
	return table->root + offsetof(struct hash_root_head, alive);
}
/* Where the word of (depth, suffix) is.  -EAGAIN: that level is not there.
 * -REEF_EDROPPED: and never will be.  -REEF_ECORRUPT: what is there is none. */
int hash_word_at(struct hash_table *table, uint32_t depth, uint32_t suffix,
		 uint64_t *at);
/* Make a level, if it is not there. */
int hash_level_make(struct hash_table *table, uint32_t depth);
/* READ from the directory which subtable a hash is in, and remember it.
 * -REEF_EDROPPED.  -REEF_ECORRUPT: the directory names none. */
int hash_leaf_discover(struct hash_table *table, uint64_t hash);
/* READ the header of a subtable, before many of its words are changed.
 * -REEF_ECORRUPT: it is not the one of (depth, suffix). */
int hash_subtable_check(struct hash_table *table, uint64_t subtable,
			uint32_t depth, uint32_t suffix);
/* 1: that is still the subtable of the hash.  0: it is not. */
int hash_leaf_is_current(struct hash_table *table, uint64_t hash,
			 uint32_t depth, uint64_t subtable);

static inline uint32_t hash_suffix(uint64_t hash, uint32_t depth)
{
	return (uint32_t)(hash & ((UINT64_C(1) << depth) - 1));
}

/* What this handle remembers of the subtable of that hash; NULL: nothing. */
static inline struct hash_leaf *hash_leaf_known(struct hash_table *table,
						uint64_t hash)
{
	struct hash_leaf *leaf =
		&table->leaves[hash_suffix(hash, table->depth)];

	return leaf->subtable ? leaf : NULL;
}

/* Reverse the bits of a suffix: so the suffixes of a leaf are next to each
 * other.
 */
static inline uint32_t hash_reverse(uint32_t bits)
{
	uint32_t result = 0;

	for (uint32_t i = 0; i < HASH_DEPTH_MAX; i++)
		result |= (bits >> i & 1) << (HASH_DEPTH_MAX - 1 - i);
	return result;
}

static inline uint64_t hash_subtable_size(const struct hash_table *table)
{
	return HASH_SUBTABLE_HEADER + (uint64_t)table->groups * HASH_GROUP_SIZE;
}

/* --- find.c --- */

/* The address of slot i of a key's two places, which count through. */
static inline uint64_t hash_slot_address(const struct hash_reading *reading,
					 uint64_t i)
{
	return reading->leaf + reading->place[i / HASH_PLACE_SLOTS] +
	       8 * (i % HASH_PLACE_SLOTS);
}

/* Keys in one batch. */
#define HASH_TOGETHER 64u

/* Look up keys, inside reef_enter, until each has a status. Places and slots
 * are left in the readings, for changes. */
int hash_find(struct hash_table *table, struct hash_reading *readings,
	      uint32_t count);
/* The same of one key whose places are set (hash_place). */
int hash_find_placed(struct hash_table *table, struct hash_reading *reading);
/* Look up at most HASH_TOGETHER keys, with an entry each (at 0: none) that is
 * written in the first batch, if it was not and is not too long. */
int hash_find_along(struct hash_table *table, struct hash_reading *readings,
		    struct entry_fresh *fresh, uint32_t count);
/* entry_read_size, by a slot. */
static inline uint32_t hash_entry_read_size(const struct hash_table *table,
					    uint64_t slot, uint64_t at)
{
	return entry_read_size(table->reef, hash_slot_hint(slot), at);
}
/* entry_complete and entry_read, with the reading's room and wants. */
static inline uint32_t hash_reading_most(const struct hash_reading *reading)
{
	if (reading->blind)
		return 0;
	return reading->value_most ? reading->value_most : UINT32_MAX;
}
static inline int hash_entry_complete(struct hash_table *table,
				      struct hash_reading *reading, uint64_t at,
				      size_t got)
{
	return entry_complete(&table->home, &reading->room, reading->key_size,
			      hash_reading_most(reading), at, got);
}
static inline int hash_read_entry(struct hash_table *table,
				  struct hash_reading *reading, uint64_t slot,
				  uint64_t *at)
{
	return entry_read(&table->home, &reading->room, reading->key_size,
			  hash_reading_most(reading), hash_slot_block(slot),
			  hash_slot_hint(slot), at);
}
/* What a slot of the reading's key has to be to name a fresh entry. */
static inline uint64_t hash_fresh_content(const struct hash_reading *reading,
					  const struct entry_fresh *fresh)
{
	return hash_slot_make(fresh->block, fresh->hint, reading->print);
}
static inline struct hash_memo *hash_memo_of(const struct hash_table *table,
					     uint64_t hash)
{
	return &table->memos[(hash >> 20) & table->memos_mask];
}
/* Find in place the keys whose case is plain: at most HASH_TOGETHER readings,
 * with hash, print and place set. Returns how many were not found so; they are
 * as they were. */
uint32_t hash_find_near(struct hash_table *table, struct hash_reading *readings,
			uint32_t count);
/* True if nothing can be found in place because the subtable was last asked for
 * in another epoch; a lookup by its places asks. */
bool hash_near_is_stale(struct hash_table *table,
			const struct hash_reading *reading);
/* Remember where a key is now; slot_at 0: that it is gone. */
void hash_remember(struct hash_table *table, const struct hash_reading *reading,
		   uint64_t slot_at, uint64_t slot, uint64_t entry_at,
		   uint64_t version);

/* --- intent.c --- */

/* READ what a slot that is an intent means.  -REEF_ECORRUPT. */
int hash_intent_read(struct hash_table *table, uint64_t slot,
		     struct intent *intent);
/* What the slot of an intent names, as its status says: a slot's content. One
 * that is empty: the key is not there. */
static inline uint64_t hash_intent_content(const struct intent *intent)
{
	return intent->status == INTENT_COMMITTED
		       ? intent->line.next & HASH_CONTENT
		       : intent->line.old & HASH_CONTENT;
}
/* Set a slot to what its intent, which is decided, says; with `flags`.  1: we
 * did, and freed what it does not name any more.  0: another was quicker, or it
 * is in doubt. */
int hash_intent_resolve(struct hash_table *table, uint64_t at, uint64_t slot,
			const struct intent *intent, uint64_t flags);
/* Come past the intent in a slot, to change its key: inside reef_enter.
 * -EAGAIN: it is gone, find the key again.  -EINPROGRESS: wait first
 * (intent_pause), not inside. */
int hash_intent_pass(struct hash_table *table, uint64_t at, uint64_t slot,
		     struct intent *intent, struct intent_wait *wait);
/* Resolve the slot that names the line with that short address, if one does.
 * -EAGAIN: the directory changed; once more. */
int hash_intent_resolve_line(struct hash_table *table,
			     const struct intent *intent, uint64_t block);
void hash_intents_register(void);

/* --- insert.c, split.c, change.c --- */

struct hash_insertion {
	struct hash_table *table;
	struct hash_reading *reading; /* of the key; its slots are re-read */
	struct hash_reading *other;   /* room for others' entries */
	uint64_t at, before, word;    /* our slot, as it was, and ours */
	uint32_t unsound;	      /* READs of others that were no entries */
};
/* Choose an empty slot, of one of the reading's places; none of those whose
 * addresses are in `not`. False: all are taken or frozen. */
bool hash_insertion_choose(struct hash_insertion *insertion, uint64_t content,
			   const uint64_t * not, uint32_t not_count);
/* Check whether our slot is the only one of its key, by the places as they were
 * read after it was taken.  1: it is.  0: read them again.  -EAGAIN: it is not,
 * and was withdrawn. */
int hash_insertion_check_rivals(struct hash_insertion *insertion);
/* Check for rivals as often as it takes, and confirm the slot.  -EAGAIN: it was
 * withdrawn. */
int hash_insertion_settle(struct hash_insertion *insertion);
/* READ the places again, then as hash_insertion_settle. */
int hash_insertion_retry(struct hash_insertion *insertion);
/* An insert that failed with rc takes its provisional slot away again. */
void hash_insertion_end(struct hash_insertion *insertion,
			struct entry_fresh *fresh, int rc);
/* The word of the slot when it is confirmed. */
static inline uint64_t
hash_insertion_confirmed(const struct hash_insertion *insertion)
{
	return hash_slot_after(insertion->word,
			       insertion->word & (HASH_PROVISIONAL - 1));
}
/* Free what hash_put_many keeps from call to call. NULL is fine. */
void hash_many_free(struct many *many);

/* The word of a slot that was `before` with new content: its tag counts up. */
uint64_t hash_tagged(uint64_t before, uint64_t content);
/* The word of a slot that was `before` when it is emptied. */
uint64_t hash_emptied(uint64_t before);
/* Find out about a CAS in doubt of a key's slot from reading->slot to `slot`.
 * 1: it happened.  0: it did not, and never will.  -REEF_EINDOUBT: nobody can
 * tell.
 */
int hash_swap_settle(struct hash_table *table,
		     const struct hash_reading *reading, uint64_t slot,
		     uint64_t *before);

/* Take a slot for an entry whose key hash_find did not find. 0: confirmed.
 * -EAGAIN: another was quicker, or the subtable was split: find again. */
int hash_insert(struct hash_table *table, struct hash_reading *reading,
		struct entry_fresh *fresh, uint64_t *slot_at, uint64_t *slot);
/* Split the subtable of that hash, of that depth, or finish its split.
 * -REEF_EDROPPED: its leaf is, or has become DROPPED in place of the split. */
int hash_split(struct hash_table *table, uint64_t hash, uint32_t depth);
/* Set HASH_FROZEN in every slot of a subtable; image: all of them, as they are
 * from then on.  -EAGAIN: others changed some in every round. */
int hash_freeze(struct hash_table *table, uint64_t subtable, uint64_t *image);
/* Drop the leaf of that hash, in a table whose drop was begun, maybe by one who
 * died; inside reef_enter.  -EAGAIN: others changed it; once more. */
int hash_leaf_drop(struct hash_table *table, uint64_t hash);
/* True if a slot names the entry of a key. */
static inline bool hash_slot_is_occupied(uint64_t slot)
{
	return hash_slot_block(slot) &&
	       !(slot & (HASH_PROVISIONAL | HASH_INTENT));
}

#endif
