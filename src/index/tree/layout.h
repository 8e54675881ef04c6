/* layout.h - the words of an ordered tree, as they lie in the pool.
 *
 *   root      what the tree is; a word that names the head of its topmost node
 *   head      a node's word: which block the node is at the moment. Heads stay
 *             where they are until the tree is dropped, or the node joins the
 *             one on its left
 *   block     a node at one time: records in order that never change, and slots
 *             for what has changed since, used one after the other
 *   entry     what a slot names: index/entry/layout.h
 *
 *       head --h0--> block --slots full: all frozen, all folded--> next block
 *                      \--too much for one: cut; a new head for each part but
 *                      |  the first, which names the next as its right
 *                      \--too little: frozen; JOINING in h0; then it and the
 *                         block of the node on its left, frozen, too, are
 *                         folded into one, by the CAS on that one's head
 *
 * Leaves (level 0) and inner nodes are the same; of an inner node a record's
 * key is a child's low fence, its value the child's head, and h0 of that as it
 * once was.
 *
 *   root word 63       62  46 45    38 37      0
 *            |dropping| count| height | head    |
 *   h0        63      62      61        50 49      38 37      0
 *            |dropped|joining| generation | size/64  | block    |
 *             dropped: the block is the head to the right, or 0
 *             joining: for good; its keys go to the node on its left
 *   slot      63 55 54     53     52      51   42 41  38 37           0
 *            | tag |frozen|intent|in base| print | hint | block, short  |
 *             0 (or frozen alone): not used yet. in base: the key is in a
 *             record, too. hint 14, DEAD: the key is not there; the slot keeps
 *             its entry, so that its key stays known; or, in base, with a block
 *             below 1,024, it is the key of the record of that index, and is
 *             there as in the record unless it is DEAD. intent: a transaction
 *             has it, and the block is its line (index/entry/intent.h)
 *   block     id (0: superseded), shape, slots; about: right, id, head, fences,
 *             where the intervals are, their checksum; then the intervals
 *   interval  alive (the id; 0: superseded), crc, count, marks, records
 *   mark      a byte of a record; 1: look at the slots first
 *   record    kind 2, shared 6, rest 6, value 10 (bits), version, [stamp,] rest
 *             of the key, value. shared: bytes of the key, behind the prefix of
 *             the node, that the record before it in the interval has, too.
 *             kind 0: the value is here. 1: it has a stamp. 2: it is the word
 *             (block, hint) of an entry. 3: the sizes follow: kind 8, shared
 *             16, rest 16, value 16
 *
 * (1) The slots of a block are used in order. A slot's key never changes while
 *     the block lives, a used slot is never unused again, and a frozen one
 *     never changes. So whoever wins slot i by CAS from 0 has seen every key
 *     of the slots below it, and a key has at most one slot in a block.
 * (2) A key's state is that of its slot; if it has none, its record's; if it
 *     has neither, it is not there.
 * (3) The mark of a record is set (WRITE) before a slot with its key is taken.
 *     A mark alone means nothing.
 * (4) A block is superseded in this order: all slots are frozen (CAS); the id
 *     and every `alive` are zeroed (WRITE); h0 is changed (CAS). So who sees
 *     the id inside reef_enter knows that the block was its node at that
 *     moment, and that its memory stays what it is until it leaves; `alive`
 *     says the same of an interval. Both, and the marks, change one way only:
 *     if one READ has seen them good at two moments, both were good at the
 *     earlier one, so torn READs do no harm. Of the slots each stands for
 *     itself: one that is not frozen shows that the block was the node's then.
 * (5) A head's low fence and level never change while it is one; inner heads
 *     are not freed before the tree is dropped, nor is the first of the
 *     leaves. What a client knows of inner nodes, and a separator, is a hint:
 *     the node that it names is believed if it is a node of the tree, of that
 *     level, that does not begin behind the key; else the one before it is
 *     asked. From there one goes right at the high fence until the key fits.
 *     What a block that is the node's says of its right is no hint, but true.
 *     Whoever comes back to a head in another epoch asks the root whether the
 *     tree is still alive.
 * (6) A separator is put into the parent after its node is reachable from the
 *     left, by anybody who had to go right, if it is not there. One whose node
 *     has joined another is removed by who met it; the first of its node gets
 *     another child instead. The root word changes to a head one level higher
 *     only.
 * (7) A slot's entry is freed by whoever takes it out of the slot, or, if it
 *     is still there when the block is superseded and is not needed any more,
 *     by whoever changed h0. A record's entry (kind 2) by whoever takes the
 *     slot that supersedes the record. Blocks by whoever changed h0, and so
 *     block and head of a node that has joined another.
 * (8) A node is JOINING when all its slots are frozen, and stays so: it has no
 *     other block any more. It is the node while the one on its left ends
 *     where it begins and names it as its right; id and alive of both are
 *     zeroed before that one's h0 is changed. So a block of a JOINING node
 *     without its id is believed by who comes to it from the left, from a
 *     block that was read in the same call; whoever else finds it comes from
 *     there. Only leaves join.
 * (9) A slot is never intent and frozen: whoever freezes decides the
 *     transaction first. While it is intent it has the print of its key, which
 *     its line's old word tells; a transaction takes the next slot for a key
 *     that has none, as anybody does: (1), (3). Only leaves have intents.
 *
 * (R10) Whatever is read from shared memory is checked by whoever uses it.
 *
 * Thread: any. */
#ifndef REEF_INDEX_TREE_LAYOUT_H
#define REEF_INDEX_TREE_LAYOUT_H

#include "index/entry/layout.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define TREE_KEY_MAX 16384u
#define TREE_SHORT_MASK ((UINT64_C(1) << 38) - 1)

/* --- slots --- */

#define TREE_SLOTS 20u
#define TREE_IN_BASE (UINT64_C(1) << 52)
#define TREE_INTENT (UINT64_C(1) << 53)
#define TREE_FROZEN (UINT64_C(1) << 54)
#define TREE_TAG_ONE (UINT64_C(1) << 55)
#define TREE_PRINT_BITS 10
#define TREE_DEAD 14u
#define TREE_INDEX_END 1024u /* no block has a short address below it */

static inline uint64_t tree_slot_block(uint64_t slot)
{
	return slot & TREE_SHORT_MASK;
}

static inline uint32_t tree_slot_hint(uint64_t slot)
{
	return (uint32_t)(slot >> 38) & 15;
}

static inline uint32_t tree_slot_print(uint64_t slot)
{
	return (uint32_t)(slot >> 42) & ((1u << TREE_PRINT_BITS) - 1);
}

static inline uint64_t tree_slot_make(uint64_t block, uint32_t hint,
				      uint32_t print)
{
	return block | (uint64_t)hint << 38 | (uint64_t)print << 42;
}

static inline bool tree_slot_is_used(uint64_t slot)
{
	return slot & ~TREE_FROZEN;
}

/* What a slot says, without its tag. */
#define TREE_CONTENT (TREE_INTENT - 1)

/* True if it is used, and no transaction has it: one comparison. */
static inline bool tree_slot_is_plain(uint64_t slot)
{
	static_assert(TREE_INTENT << 10 == UINT64_C(1) << 63, "the sign");
	return (int64_t)(slot << 10) > 0;
}

static inline bool tree_slot_is_dead(uint64_t slot)
{
	return tree_slot_hint(slot) == TREE_DEAD;
}

/* True if the slot names an entry, of a key that is there or of a dead one. */
static inline bool tree_slot_has_entry(uint64_t slot)
{
	return tree_slot_block(slot) >= TREE_INDEX_END;
}

/* The tag of `before` plus one, with new content. */
static inline uint64_t tree_slot_after(uint64_t before, uint64_t content)
{
	return ((before & ~(TREE_TAG_ONE - 1)) + TREE_TAG_ONE) | content;
}

/* --- the root --- */

#define TREE_ROOT_MAGIC UINT64_C(0x31746f6f52744652) /* "RFtRoot1" */
#define TREE_DROPPING (UINT64_C(1) << 63)
#define TREE_HEIGHT_MAX 32u

struct tree_root {
	uint64_t magic;
	uint64_t owner; /* address of the word that names this root; 0: none */
	uint64_t id;	/* no other root at this address has it */
	uint64_t seed;	/* of the prints */
	uint32_t inline_max, leaf_bytes;
	uint32_t reserved, crc; /* crc: of what is before it */
	uint64_t alive;		/* == id; 0: dropped */
	uint64_t top;		/* the root word */
	uint64_t hint;		/* h0 of the head that it names, once: WRITE */
};

static inline uint32_t tree_top_height(uint64_t top)
{
	return (uint32_t)(top >> 38) & 255;
}

static inline uint64_t tree_top_make(uint64_t before, uint64_t head,
				     uint32_t height)
{
	uint64_t count = ((before >> 46) + 1) & 0x1ffff;

	return head | (uint64_t)height << 38 | count << 46;
}

/* --- heads --- */

#define TREE_HEAD_MAGIC UINT64_C(0x6854) /* "Th" */
#define TREE_DROPPED (UINT64_C(1) << 63)
#define TREE_JOINING (UINT64_C(1) << 62)

struct tree_head {
	uint64_t word;	/* h0 */
	uint64_t about; /* magic 16, level 8, format 8, number of the tree 32 */
	uint64_t below; /* of the leftmost head of a level, one level down */
	uint64_t tree;	/* its id: another may have the same number later */
	uint64_t reserved[3];
};
static_assert(sizeof(struct tree_head) == 56, "layout");

static inline uint64_t tree_about_make(uint32_t level, uint32_t number)
{
	return TREE_HEAD_MAGIC << 48 | (uint64_t)level << 40 |
	       UINT64_C(1) << 32 | number;
}

static inline uint32_t tree_about_level(uint64_t about)
{
	return (uint32_t)(about >> 40) & 255;
}

/* Bytes of a block that h0 names, from its address on. */
static inline uint32_t tree_word_size(uint64_t word)
{
	return ((uint32_t)(word >> 38) & 4095) * 64 - 8;
}

static inline uint64_t tree_word_make(uint64_t before, uint64_t block,
				      uint32_t size)
{
	uint64_t generation = ((before >> 50) + 1) & 4095;

	return block | (uint64_t)((size + 8) / 64) << 38 | generation << 50;
}

/* --- blocks --- */

struct tree_block {
	uint64_t id;
	uint64_t shape; /* records 12, intervals 12, level 8, about's end 32 */
	uint64_t slots[TREE_SLOTS];
	/* about */
	uint64_t right; /* short address of a head; 0: it is the last */
	uint64_t same_id;
	uint64_t head; /* address */
	uint32_t number;
	uint32_t crc; /* of the shape and of about, without this */
	uint16_t low_size, high_size, prefix_size, reserved;
	/* low fence, high fence, and for each interval where it is, 16 bits, in
	 * words */
};
#define TREE_SLOTS_AT 16u
#define TREE_FRONT (8u * (2 + TREE_SLOTS)) /* id, shape and slots */
static_assert(TREE_FRONT == 176, "layout");
#define TREE_ABOUT_AT sizeof(struct tree_block)
static_assert(sizeof(struct tree_block) == 216, "layout");
#define TREE_BLOCK_MAX (4095u * 64 - 8)

static inline uint64_t tree_shape_make(uint32_t records, uint32_t intervals,
				       uint32_t level, uint32_t end)
{
	return records | (uint64_t)intervals << 12 | (uint64_t)level << 24 |
	       end * (UINT64_C(1) << 32);
}

/* --- intervals --- */

#define TREE_INTERVAL_MAX 192u /* bytes, unless it is one record */
#define TREE_INTERVAL_RECORDS 11u
#define TREE_MARKS_AT 13u
#define TREE_FEW 3u /* records whose marks need no second word */

struct tree_interval {
	uint64_t alive;
	uint32_t crc; /* seeded with the id; of count and records */
	uint8_t count;
	uint8_t marks[TREE_FEW];
};

/* Where the records begin. */
static inline uint32_t tree_records_at(uint32_t count)
{
	return count > TREE_FEW ? 24 : 16;
}

enum tree_kind { TREE_PLAIN, TREE_STAMPED, TREE_OUTSIDE, TREE_LONG };
#define TREE_RECORD_HEAD 3u
#define TREE_LONG_HEAD 7u

/* The value of an inner node's record. */
struct tree_child {
	uint64_t head; /* address */
	uint64_t hint; /* its h0, once */
};

#endif
