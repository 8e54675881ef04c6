/* internal.h - the parts of a table, to each other.
 *
 *   table.c      make, open, close
 *   directory.c  which subtable a key is in
 *   entry.h      keys and entries, inlined; entry.c: entries that are made
 *   find.c       looking up, many keys at once
 *   change.c     put, update, delete
 *   near.c       the plain case of that, in memory that is mapped; near.h
 *   insert.c     the first slot of a key: (1) of table.h
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

/* An entry that is about to be put. */
struct hash_fresh {
	struct hash_entry_head *bytes; /* as it is, or will be, written */
	size_t size;
	/* Of one longer than HASH_ALONG: where its value is, the caller's;
	 * bytes has what is before it. */
	const void *value;
	struct hash_staged *staged; /* its value is written, and so its block is
				     * another's until it is put */
	uint64_t at;		    /* its block; 0: none */
	uint64_t content;	    /* of a slot: block, hint, fingerprint */
	bool written;
	bool is_named; /* perhaps a slot has it that should not, so its block
			* is not freed; is_live tells, when we end */
};

#define HASH_SPARE 512u
#define HASH_SPARES 4u

struct many; /* many.c */

struct hash_table {
	struct reef_space *space;
	struct reef *reef;
	uint64_t root;
	uint32_t root_number;
	uint32_t groups;
	uint64_t seed, id, owner;
	uint64_t levels[HASH_DEPTH_MAX + 1]; /* outer ones; 0: not known */
	struct hash_leaf *leaves;	     /* 2^depth of them, by suffix */
	struct hash_memo *memos;	     /* by hash; 2^n of them */
	uint32_t memos_mask;
	uint32_t depth;
	/* Bytes of HASH_SPARE for short entries, to save malloc. */
	void *spares[HASH_SPARES];
	uint32_t spares_count;
	struct many *many; /* for the next call of hash_put_many; or NULL */
	uint64_t versions; /* the last; 0: none yet */
	uint64_t version_base;
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

/* --- entry.c --- */

/* Take bytes for an entry, and give them back with the size that was asked for.
 */
void *hash_spare_take(struct hash_table *table, size_t size);
void hash_spare_give(struct hash_table *table, void *bytes, size_t size);
/* Take a block and put an entry together; it is not written yet. */
int hash_fresh_make(struct hash_table *table, uint64_t hash, const void *key,
		    uint32_t key_size, const struct hash_entry *put,
		    struct hash_fresh *fresh);
/* The WRITE of a fresh entry, for a batch: only of one of at most HASH_ALONG
 * bytes. */
#define HASH_ALONG 65536u
struct reef_access hash_fresh_access(const struct hash_fresh *fresh);
/* WRITE a fresh entry, if that was not done.  -EAGAIN: it is in doubt, do it
 * again. */
int hash_fresh_write(struct hash_table *table, struct hash_fresh *fresh);
/* Forget a fresh entry; its block is freed if `block`, and no slot may name it.
 */
void hash_fresh_drop(struct hash_table *table, struct hash_fresh *fresh,
		     bool block);
static inline size_t hash_entry_size(const struct hash_entry_head *head)
{
	return HASH_ENTRY_HEAD + (size_t)hash_key_size(head) +
	       hash_value_size(head);
}
/* Free memory that others may still read, or change. */
void hash_free_later(struct hash_table *table, uint64_t at);
/* Free an entry that no slot names (any more). */
void hash_entry_free(struct hash_table *table, uint64_t at);

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
/* Look up at most HASH_TOGETHER keys, with an entry each (at 0: none) that is
 * written in the first batch, if it was not and is not too long. */
int hash_find_along(struct hash_table *table, struct hash_reading *readings,
		    struct hash_fresh *fresh, uint32_t count);
/* How much of an entry to READ at once: what its slot's hint says, but not past
 * the end of its extent. The block there may be smaller than the hint. */
uint32_t hash_entry_read_size(const struct hash_table *table, uint64_t slot,
			      uint64_t at);
/* READ the rest of an entry whose first `got` bytes are in the room; returns as
 * hash_read_entry. */
int hash_entry_complete(struct hash_table *table, struct hash_reading *reading,
			uint64_t at, size_t got);
/* READ an entry into the reading's room. 1: whole and sound.  0: neither.
 * Negative: error. */
int hash_read_entry(struct hash_table *table, struct hash_reading *reading,
		    uint64_t slot, uint64_t *at);
/* Find in place the keys whose case is plain: at most HASH_TOGETHER readings,
 * with hash, print and place set. Returns how many were not found so; they are
 * as they were. */
uint32_t hash_find_near(struct hash_table *table, struct hash_reading *readings,
			uint32_t count);
/* True if nothing can be found in place because the subtable was last asked for
 * in another epoch; a lookup by its places asks. */
bool hash_near_is_stale(struct hash_table *table,
			const struct hash_reading *reading);
int hash_reading_grow(struct hash_reading *reading, size_t size);
static inline int hash_reading_room(struct hash_reading *reading, size_t size)
{
	return size <= reading->room_size ? 0
					  : hash_reading_grow(reading, size);
}

/* Remember where a key is now; slot_at 0: that it is gone. */
void hash_remember(struct hash_table *table, const struct hash_reading *reading,
		   uint64_t slot_at, uint64_t slot, uint64_t entry_at,
		   uint64_t version);

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
			struct hash_fresh *fresh, int rc);
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
		struct hash_fresh *fresh, uint64_t *slot_at, uint64_t *slot);
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
	return hash_slot_block(slot) && !(slot & HASH_PROVISIONAL);
}

/* READs of an entry that is not whole, while its slot does not change: nobody
 * but a scribbler makes that so. */
#define HASH_UNSOUND_MAX 16u

/* True if an error says that what a slot names is no entry. */
static inline bool hash_is_nonsense(int rc)
{
	return rc == -REEF_ECORRUPT || rc == -EFAULT || rc == -EINVAL;
}

/* So many bytes of an entry hold any head, and most keys. */
#define HASH_HEAD_PART 184u

/* Operations that go together, in any order. A CAS in doubt makes it -EAGAIN:
 * whoever reads the words again sees what it did. */
#define HASH_BATCH 128u
struct hash_batch {
	struct reef *reef;
	uint32_t count;
	struct reef_access accesses[HASH_BATCH];
};
int hash_batch_add(struct hash_batch *batch, struct reef_access access);
int hash_batch_flush(struct hash_batch *batch);

/* Pause for a time that grows with the attempts, up to a millisecond. */
int hash_pause(uint32_t attempt);
/* CAS a word, and settle what is in doubt.  1: it was set.  0: it was not,
 * *before is what is there.  -REEF_EINDOUBT: the word is neither of the two, so
 * nobody can tell. */
int hash_cas(struct hash_table *table, uint64_t at, uint64_t compare,
	     uint64_t value, uint64_t *before);
/* Go on with a CAS that was in doubt; as hash_cas. */
int hash_cas_again(struct hash_table *table, uint64_t at, uint64_t compare,
		   uint64_t value, uint64_t *before);

#endif
