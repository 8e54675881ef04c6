/* table.h - a hash table in the memory of a pool, worked on by its clients with
 * one-sided operations alone.
 *
 * Invariants, with layout.h:
 * (1) A key has at most one slot that is neither provisional nor empty: an
 *     insert takes a provisional slot, looks whether there is another of the
 *     key, and confirms by CAS. Of two provisional ones the lower place
 *     wins and takes the other's slot away; both do so by CAS on that slot, so
 *     that confirming and taking away cannot both happen.
 * (2) An entry that a slot named, and that says live == version, is its key's
 *     current value at the moment it is read: live is zeroed before its slot is
 *     changed. Who remembers an entry from before checks its version, too. One
 *     that is not live (somebody was about to change its slot, and died or lost
 *     to a split) is current if its slot has the same word afterwards.
 * (3) A subtable is split by freezing every slot (CAS), copying each to one of
 *     two children at the same position (CAS from 0), then SPLIT in the
 *     directory. What is frozen never changes, so anybody can finish a split,
 *     and a late helper changes nothing. Frozen slots are true until SPLIT.
 * (4) Memory that was unlinked is freed with REEF_FREE_LATER, and every call
 *     is inside reef_enter: an address found in a call stays what it was to its
 *     end. What a handle remembers of the directory it believes within one
 *     epoch, and asks again along with the next READ in another.
 * (5) A client may die anywhere: provisional slots of the dead are taken away
 *     by whoever they are in the way of; entries that no slot names are freed
 *     by recovery (is_live) when the session that has their memory ends; splits
 *     are finished by the next writer.
 * (6) What is DROPPED stays so. A leaf becomes it when its slots are frozen and
 *     its entries are not live, so that nobody finds a key in it, and nobody
 *     puts one; the root's `alive` is zeroed when all of them are. A call says
 *     -REEF_EDROPPED of a key only when its leaf is: where a level that it
 *     needs is DROPPED, it drops the leaf first.
 * (7) A slot may be a transaction's intent (index/entry/intent.h): over the
 * slot of a key that is there. Readers go by its status; whoever changes the
 *     key, freezes the slot or drops the table decides that first, and sets the
 *     slot to what it says.
 *
 * Linearization: an insert at its confirming CAS, an update or delete at its
 * CAS on the slot; a read when it read live == version, or at its second look,
 * or when it read an intent's status; a transaction at its status.
 *
 * Thread: owner of the handle; its fibers may share a table. */
#ifndef REEF_INDEX_HASH_TABLE_H
#define REEF_INDEX_HASH_TABLE_H

#include "index/entry/entry.h"
#include "index/entry/intent.h"

struct hash_table;

struct hash_options {
	uint32_t groups; /* of a subtable; 0: 64 */
	uint64_t seed;	 /* of its hash; 0: random */
};

/* Make a table. owner: the address of a word that the caller sets to *root, by
 * CAS, when it makes the table part of something; the root belongs to the
 * session until then, and to whoever has that word while it names it (its three
 * lower bits are free for other use). 0: there is none, the root is kept.
 * Errors as alloc and access.  -EINVAL: groups. */
int hash_create(struct reef_space *space, const struct hash_options *options,
		uint64_t owner, uint64_t *root);
/* remember: how many keys this handle remembers the place of, so that each can
 * be read by one READ; 0: 4,096. -REEF_ECORRUPT: there is no table.
 * -REEF_EDROPPED: not any more. */
int hash_open(struct reef_space *space, uint64_t root, uint32_t remember,
	      struct hash_table **out);
void hash_close(struct hash_table *table); /* NULL is fine */
/* The owner that it was created with. */
uint64_t hash_owner(const struct hash_table *table);

/* Drop a table with all that is in it; whoever has it open gets -REEF_EDROPPED,
 * key by key while it lasts, for good afterwards. What its caller leaves undone
 * when it dies the next call does; so it may be called again, and by several at
 * once: 0. Its root stays: it is freed by who takes it out of its owner's word,
 * with REEF_FREE_LATER; handles that have it open do not mind. (Read that word
 * and open the table inside one reef_enter: then it is still that table.) Not
 * itself inside reef_enter: that would keep all its memory. */
int hash_drop(struct hash_table *table);

/* One key being looked up, with room for what is found. Zero it first, give
 * key and key_size; free the room at the end. */
struct hash_reading {
	const void *key;
	uint32_t key_size;
	/* out: 0: found.  -ENOENT.  -EALREADY: to_change, and a transaction
	 * has its slot.  Else: error */
	int status;
	struct entry entry; /* out */
	/* the table's */
	struct entry_room room;
	uint64_t hash, place[2], slots[2][16];
	uint64_t leaf; /* address of the subtable */
	uint32_t depth, print, attempts;
	uint32_t losses;	/* inserts that another kept away */
	uint64_t slot_at, slot; /* where it was found, and the word there */
	uint64_t entry_at, version;
	uint8_t phase;
	bool to_change;
	bool blind;   /* its value is not wanted: entry.value may be NULL */
	bool is_held; /* its slot is an intent, and entry is what counts */
	/* A longer value is not wanted, either; 0: any is. */
	uint32_t value_most;
	uint64_t content; /* what names the entry: the slot, or its line */
	struct intent intent;
};
/* What must be set of a reading; room: from malloc, or NULL. */
static inline void hash_reading_begin(struct hash_reading *reading,
				      const void *key, uint32_t key_size,
				      void *room, size_t room_size)
{
	reading->key = key;
	reading->key_size = key_size;
	reading->room.bytes = room;
	reading->room.size = room_size;
	reading->losses = 0;
	reading->to_change = false;
	reading->blind = false;
	reading->value_most = 0;
}
/* True if a value of that size need not be read. */
static inline bool hash_reading_skips(const struct hash_reading *reading,
				      size_t value_size)
{
	return reading->blind ||
	       (reading->value_most && value_size > reading->value_most);
}
void hash_reading_free(struct hash_reading *reading);

/* Look up several keys at once; each has its status. Round trips: 1 if all are
 * remembered, else 2; more only for those that change meanwhile. Returns 0, or
 * an error that hit all. */
int hash_get(struct hash_table *table, struct hash_reading *readings,
	     uint32_t count);

/* Set `touched` of an entry that was found, by one WRITE that nothing waits for
 * or compares with: the last one wins, and a new value of the key has what it
 * was put with. For notes that may be lost. Inside the reef_enter that was
 * around its hash_get, so that its block is still what it was.  -EINVAL: it was
 * not found. */
int hash_touch(struct hash_table *table, const struct hash_reading *reading,
	       uint16_t touched);
/* The WRITE that does it, of one that was found, for a batch. */
struct reef_access hash_touch_access(const struct hash_reading *reading,
				     const uint16_t *touched);

/* Errors of all that follows and of hash_get: -REEF_EDROPPED: the table was
 * dropped. */

/* 0: done as decided last, also ENTRY_KEEP.  -REEF_EINDOUBT: a change whose
 * connection was lost, and which others have covered since: it happened, or
 * not; -ETIMEDOUT: or it still will.  -EINVAL: too large.  -ENOSPC, -EDQUOT,
 * and errors of access: nothing happened. */
int hash_apply(struct hash_table *table, struct entry_change *change);

/* As entry_staged_take, for a table's entry. */
static inline int hash_staged_take(struct reef_space *space, uint32_t key_size,
				   uint32_t value_size, uint32_t spare,
				   struct entry_staged *out)
{
	return entry_staged_take(space, REEF_BLOCK_HASH_ENTRY, key_size,
				 value_size, spare, out);
}

/* Put many keys, each by itself, in shared batches: each needs `ahead`; with
 * `decide` it must decide for that, or for something else than ENTRY_PUT. Each
 * has its status, as hash_apply returns. 64 keys on one node: 4 round trips, of
 * which one is for the headers of their blocks; those in each other's way, or
 * behind others with their fingerprint, take longer. A key that is there twice
 * gets one of the two. Returns 0, or an error that hit all. */
int hash_put_many(struct hash_table *table, struct entry_change *changes,
		  uint32_t count);

struct hash_cursor { /* zero: from the beginning */
	uint32_t group;
	uint32_t suffix; /* reversed, 28 bits */
};

#define HASH_WALK_HEADS 1u /* without their values: value is NULL */
/* Entries whose memory is lost, or that are none, are passed over. */
#define HASH_WALK_REST 2u

/* True before the first step, and after the last. */
static inline bool hash_cursor_is_zero(const struct hash_cursor *cursor)
{
	return !cursor->group && !cursor->suffix;
}

/* Call `each` for the entries of the next `steps` (not 0) groups of slots,
 * about 15 each, in 2 round trips on one node. 0: the cursor is behind them; it
 * is zero if that was all. Nonzero from `each` ends the call, and is returned;
 * the cursor stays at that group. An entry that is there from the first call to
 * the last is met at least once, whatever is split or changed meanwhile. `each`
 * must not call into the table.  -EBUSY: others changed or split that group at
 * each of 1,000 attempts; the cursor stays at it. */
int hash_walk(struct hash_table *table, struct hash_cursor *cursor,
	      uint32_t steps, uint32_t flags,
	      int (*each)(void *context, const struct entry *entry),
	      void *context);

struct hash_count {
	uint64_t keys, slots;
	uint64_t bytes; /* of the table, without its entries */
	uint32_t subtables, depth;
};

/* Count by reading every subtable, some 12 bytes a key; no entries are read.
 * While others change it: roughly. */
int hash_count(struct hash_table *table, struct hash_count *out);

#endif
