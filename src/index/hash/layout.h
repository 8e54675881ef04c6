/* layout.h - the words of a hash table, as they lie in the pool.
 *
 *   root      64 KiB: what the table is; pointers to the levels of its
 *             directory. Levels 0 to 11 lie in the root itself.
 *   directory an implicit binary tree: entry (depth d, suffix s) is word s of
 *             level d. A leaf is the subtable of all keys whose hash ends in
 *             the d bits of s.
 *
 *       0 --CAS--> PENDING --CAS--> LEAF --CAS--> SPLIT (its children are LEAF)
 *       \-----------\---------------\--CAS--> DROPPED
 *
 *   subtable  header of 56 bytes, then groups of three buckets of 8 slots:
 *             [main 0][overflow][main 1]. A key has two candidate places, each
 *             a main bucket with the overflow beside it: 128 bytes.
 *   slot      63  55 54     53     52          51      42 41  38 37        0
 *            | tag  |frozen|intent|provisional| finger-  | size | block,    |
 *            |      |      |      |           | print    | hint | short     |
 *             0: never used, and its subtable is not in use yet. No block, or
 *             provisional with hint 14: empty; it keeps its tag, and the
 *             block that it named last as a mere number. Intent: a transaction
 *             has it, and the block is its line (index/entry/intent.h).
 *   entry     a block that a slot names: index/entry/layout.h.
 *
 * (1) All words but an entry's `live` and `touched` and what is written before
 *     a block is shared are changed by CAS only (F6).
 * (2) Every change of a slot counts its tag up (R3).
 * (3) A slot's word does not return to what it was, within an epoch (R9). Tags
 *     are few, and come round; but the block that a slot named is not reused
 *     in that time, and an emptied slot still tells which it was. (An insert
 *     that is withdrawn goes on with another block now and then: change.c.)
 *
 * (4) A slot is never intent and frozen, nor intent and provisional; while it
 * is intent it has the fingerprint of its key.
 *
 * (R10) Whatever is read from shared memory is checked by whoever uses it:
 *     bounds, alignment, kind, sizes. A word that anybody scribbled over costs
 *     an error, never a crash or a hang. Blocks named by an address begin where
 *     hash_is_block says; subtables and levels say of which table they are.
 *
 * Thread: any. */
#ifndef REEF_INDEX_HASH_LAYOUT_H
#define REEF_INDEX_HASH_LAYOUT_H

#include "index/entry/layout.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* --- slots --- */

#define HASH_BLOCK_MASK ((UINT64_C(1) << 38) - 1)
#define HASH_PROVISIONAL (UINT64_C(1) << 52)
#define HASH_INTENT (UINT64_C(1) << 53)
#define HASH_FROZEN (UINT64_C(1) << 54)
#define HASH_TAG_ONE (UINT64_C(1) << 55)
/* All that says what a slot names; the rest says how it may be changed. */
#define HASH_CONTENT (HASH_INTENT - 1)
#define HASH_PRINT_BITS 10

static inline uint64_t hash_slot_block(uint64_t slot)
{
	return slot & HASH_BLOCK_MASK;
}

static inline uint32_t hash_slot_hint(uint64_t slot)
{
	return (uint32_t)(slot >> 38) & 15;
}

static inline uint32_t hash_slot_print(uint64_t slot)
{
	return (uint32_t)(slot >> 42) & ((1u << HASH_PRINT_BITS) - 1);
}

static inline uint64_t hash_slot_make(uint64_t block, uint32_t hint,
				      uint32_t print)
{
	return block | (uint64_t)hint << 38 | (uint64_t)print << 42;
}

/* The tag of `before` plus one; never the all-zero word. */
static inline uint64_t hash_slot_after(uint64_t before, uint64_t content)
{
	uint64_t tag = (before & ~(HASH_TAG_ONE - 1)) + HASH_TAG_ONE;

	if (!tag && !hash_slot_block(content))
		tag = HASH_TAG_ONE;
	return tag | content;
}

#define HASH_DEAD_HINT 14u /* no entry has it: entry_hint_of */
static_assert(HASH_DEAD_HINT < ENTRY_HINTS - 1, "the last is in use");

/* True for a slot that an insert may take. */
static inline bool hash_slot_is_empty(uint64_t slot)
{
	return !hash_slot_block(slot) ||
	       (slot & HASH_PROVISIONAL &&
		hash_slot_hint(slot) == HASH_DEAD_HINT);
}

/* The content of a slot that is emptied (3). */
static inline uint64_t hash_slot_dead(uint64_t slot)
{
	return hash_slot_make(hash_slot_block(slot), HASH_DEAD_HINT, 0) |
	       HASH_PROVISIONAL;
}

/* --- places --- */

#define HASH_BUCKET_SLOTS 8u
#define HASH_PLACE_SLOTS 16u /* a main bucket and its overflow */
#define HASH_PLACE_SIZE (8 * HASH_PLACE_SLOTS)
#define HASH_GROUP_SLOTS 24u
#define HASH_GROUP_SIZE (8 * HASH_GROUP_SLOTS)
#define HASH_GROUPS_MIN 2u
#define HASH_GROUPS_MAX 4096u

struct hash_subtable { /* header; the groups follow */
	uint64_t magic;
	uint64_t root; /* address */
	uint32_t depth, suffix;
	uint64_t reserved[4];
};
/* With the block's own header 64: so places begin on lines of the cache. */
#define HASH_SUBTABLE_HEADER 56
static_assert(sizeof(struct hash_subtable) == HASH_SUBTABLE_HEADER, "layout");

/* --- directory --- */

#define HASH_DEPTH_MAX 28u
#define HASH_INNER_LEVELS 12u /* inside the root */

enum hash_state {
	HASH_NONE,
	HASH_PENDING,
	HASH_LEAF,
	HASH_SPLIT,
	HASH_DROPPED, /* for good; a level, too */
};
#define HASH_STATE_MASK UINT64_C(7)

static inline enum hash_state hash_word_state(uint64_t word)
{
	return (enum hash_state)(word & HASH_STATE_MASK);
}

static inline uint64_t hash_word_address(uint64_t word)
{
	return word & ~HASH_STATE_MASK;
}

/* True if a block may begin at the address: its own header is on a line of the
 * cache. Places are read by vectors, which need that. */
static inline bool hash_is_block(uint64_t address)
{
	return address >> 32 && (address & 63) == 8;
}

#define HASH_ROOT_MAGIC UINT64_C(0x31746f6f52684652)	 /* "RFhRoot1" */
#define HASH_SUBTABLE_MAGIC UINT64_C(0x3174627553684652) /* "RFhSubt1" */

#define HASH_LEVEL_MAGIC UINT64_C(0x316c76654c684652) /* "RFhLevl1" */

struct hash_root_head {
	uint64_t magic;
	uint64_t seed;
	uint64_t owner;	 /* address of the word that names this root; 0: none */
	uint64_t id;	 /* no other root at this address has it */
	uint32_t groups; /* of a subtable */
	uint32_t crc;	 /* of what is before it */
	uint64_t alive;	 /* == id; 0: dropped. Whoever comes back to this
			  * address in another epoch looks here */
	uint64_t reserved[2];
};

struct hash_root {
	struct hash_root_head head;
	uint64_t levels[HASH_DEPTH_MAX + 1];	 /* addresses of outer levels */
	uint64_t inner[1u << HASH_INNER_LEVELS]; /* entry at (1 << d) + s */
};

struct hash_level { /* header of an outer level; its words follow */
	uint64_t magic;
	uint64_t root; /* address */
	uint64_t depth;
	uint64_t reserved[5];
};
#define HASH_LEVEL_HEADER 64
static_assert(sizeof(struct hash_level) == HASH_LEVEL_HEADER, "layout");

#endif
