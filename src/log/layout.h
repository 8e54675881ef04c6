/* layout.h - the words of a log, as they lie in the pool, and its rules.
 *
 *   body       of the named object: tail, first, what is fixed, and a ring of
 *              words that name segments, the directory. Never freed.
 *   tail word  63    54 53   52 51        38 37           0
 *             |   0    | state | generation | tail's block  |          CAS
 *   tail block magic, body; draw: generation 14 | position 50          FAA
 *              bound: how long a reader waits before it makes a hole   WRITE
 *   directory  63 62 61   52 51        38 37           0
 *   word      |state|  lap  | generation | segment      |              CAS
 *              segment i is named by word i mod n, in lap i / n:
 *              0, or TRIMMED in the lap before --> MADE --> TRIMMED
 *                                              \-> SEALED
 *   segment    head, places of waiters (CAS), a word for each position, a cell
 *              for each position
 *   word       63 62 61 57 56    47 46 45            32 31         0
 *             |state| 0    | back   |0 | size            | crc         |  short
 *             |state| 0    | back   |1 | step 8 | block 38             |  long
 *              0 --> PRESENT, HOLE or MEMBER: CAS from 0, once
 *   long entry a block: body, a position that it does not stand before, size,
 *              crc, bytes
 *
 * (1) A word is changed once, by CAS from 0: what readers saw stays so. Only
 *     the appender that drew a position writes its cell, and only before its
 *     CAS (F3a): a word that is PRESENT has its bytes. A HOLE's cell counts for
 *     nothing.
 * (2) A MEMBER counts as its head does, `back` positions before it in the same
 *     segment. The head's word is set last, so a row is there as a whole.
 * (3) A number is drawn by FAA from the tail's block, with the generation of
 *     that tail. It counts only in a segment of its own generation.
 * (4) Segment i + 1 of a generation is made only if segment i is of that
 *     generation, and after every 0 in segment i - 1 was filled with HOLE. So
 *     only the last two segments of a generation can have zeros.
 * (5) A new tail may replace the old one at any time, by (a) a segment of the
 *     next generation in the first free word of the directory, (b) HOLE for
 *     every 0 in the last two segments of the old generation, (c) CAS of the
 *     tail word. Who finds (a) done goes on with (b). From (c) on no number of
 *     the old tail can succeed, whoever still reaches it: they are HOLE, or
 *     (3). So no position is given out twice, and nothing completes below what
 *     was appended later. A log is sealed by SEALED in place of the segment.
 * (6) Who begins an append after another has returned draws a higher number,
 *     of the same generation or a later one, whose positions are higher.
 * (7) A reader that sees 0 at a position looks at the tail of the generation
 *     that it knows: while the word is 0, (b) has not come there, so that tail
 *     is the one that numbers are drawn from. What was below it then, and is 0
 *     when the bound is over, becomes a HOLE. A late appender finds HOLE,
 *     doubles the bound, and draws again.
 * (8) A waiter puts its inbox into a place of the last segment, and then looks:
 *     at the word, and, if numbers are drawn, at the tail. An appender reads
 *     the places after its CAS, in its batch. Who makes a
 *     segment, a hole or a seal tells those in the segment before.
 * (9) What a directory word or the tail word named is freed LATER by whoever
 *     changed that word. A log that is open looks at the tail word anew in
 *     every epoch, and at the directory's: nothing that it remembers is older.
 *     A number that was drawn in this epoch is in a segment that was not
 *     trimmed before, because no trim goes beyond the tail.
 * (10) The last segment is not trimmed: the next one is made from it.
 * (11) SINGLE: the writer is who did (c) of the last generation, and counts by
 *     itself. Nobody draws; a 0 is the end of the log, and nobody but the
 *     writer fills it.
 * (12) SHARDED: the words name cuts, and index them; entries are elsewhere:
 *     shard.h.
 *
 * (R10) Whatever is read from shared memory is checked by whoever uses it.
 *
 * Thread: any. */
#ifndef REEF_LOG_LAYOUT_H
#define REEF_LOG_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* --- bounds --- */

#define LOG_ENTRY_MAX (UINT32_C(1) << 20)
#define LOG_CELL_MAX 4096u
#define LOG_SEGMENT_MIN 8u
#define LOG_SEGMENT_MAX 65536u
#define LOG_SEGMENTS_MIN 8u
#define LOG_SEGMENTS_MAX 65536u
#define LOG_ROW_MAX 256u
#define LOG_BOUND_MAX UINT64_C(1000000000)

#define LOG_BLOCK_MASK ((UINT64_C(1) << 38) - 1)
#define LOG_GENERATIONS 16384u

/* Generations count 1, 2, ..., and after a long time 1 again; 0: no tail yet.
 */
static inline uint32_t log_next_generation(uint32_t generation)
{
	return generation % (LOG_GENERATIONS - 1) + 1;
}

/* --- the body --- */

enum log_state { LOG_OPEN, LOG_SEALED, LOG_DROPPED };

struct log_body { /* the directory follows */
	uint64_t tail;
	uint64_t first; /* CAS, upward */
	uint64_t keep_entries, keep_bytes, hole_ns;
	uint64_t magic;
	uint32_t segment, segments; /* as the options have them */
	uint64_t high; /* SHARDED: no position is beyond it; CAS, upward */
};
#define LOG_BODY_MAGIC UINT64_C(0x3179646f42674c52) /* "RLgBody1" */
static_assert(sizeof(struct log_body) == 64, "layout");

static inline uint64_t log_tail_make(uint64_t block, uint32_t generation,
				     enum log_state state)
{
	return block | (uint64_t)generation << 38 | (uint64_t)state << 52;
}

static inline uint32_t log_tail_generation(uint64_t word)
{
	return (uint32_t)(word >> 38) & (LOG_GENERATIONS - 1);
}

static inline enum log_state log_tail_state(uint64_t word)
{
	return (enum log_state)(word >> 52 & 3);
}

#define LOG_TAIL_MAGIC UINT64_C(0x316c696154674c52) /* "RLgTail1" */

struct log_tail {
	uint64_t magic;
	uint64_t body; /* address */
	uint64_t draw;
	uint64_t bound; /* nanoseconds */
	uint64_t reserved[4];
};
static_assert(sizeof(struct log_tail) == 64, "layout");

#define LOG_POSITION_BITS 50
#define LOG_POSITIONS (UINT64_C(1) << LOG_POSITION_BITS)

static inline uint64_t log_draw_make(uint32_t generation, uint64_t position)
{
	return (uint64_t)generation << LOG_POSITION_BITS | position;
}

static inline uint64_t log_draw_position(uint64_t draw)
{
	return draw & (LOG_POSITIONS - 1);
}

static inline uint32_t log_draw_generation(uint64_t draw)
{
	return (uint32_t)(draw >> LOG_POSITION_BITS);
}

/* --- the directory --- */

enum log_slot_state {
	LOG_SLOT_NONE,
	LOG_SLOT_MADE,
	LOG_SLOT_TRIMMED,
	LOG_SLOT_SEALED,
};
#define LOG_LAPS 1024u

static inline uint64_t log_slot_make(enum log_slot_state state, uint64_t lap,
				     uint32_t generation, uint64_t block)
{
	return (uint64_t)state << 62 | (lap % LOG_LAPS) << 52 |
	       (uint64_t)generation << 38 | block;
}

static inline enum log_slot_state log_slot_state(uint64_t word)
{
	return (enum log_slot_state)(word >> 62);
}

static inline uint64_t log_slot_lap(uint64_t word)
{
	return word >> 52 & (LOG_LAPS - 1);
}

static inline uint32_t log_slot_generation(uint64_t word)
{
	return (uint32_t)(word >> 38) & (LOG_GENERATIONS - 1);
}

/* --- segments --- */

#define LOG_SEGMENT_MAGIC UINT64_C(0x31746e6d67534c52) /* "RLSgmnt1" */
#define LOG_PLACES 9u

struct log_segment { /* the words follow, then the cells */
	uint64_t magic;
	uint64_t body; /* address */
	uint64_t index;
	uint64_t slot;	/* address of the directory's word */
	uint64_t count; /* of positions */
	/* All that an appender looks at comes last: */
	uint64_t next;	 /* 1: the next segment is there */
	uint64_t closed; /* bytes of entries and 1, once no word is 0 */
	uint64_t places[LOG_PLACES];
};
static_assert(sizeof(struct log_segment) == 128, "layout");

/* A place: count 25 | taken 1 | inbox 38. Every change counts, so that it does
 * not return to what it was (R9). */
#define LOG_PLACE_TAKEN (UINT64_C(1) << 38)

static inline uint64_t log_place_after(uint64_t before, uint64_t inbox)
{
	return ((before >> 39) + 1) << 39 | (inbox ? LOG_PLACE_TAKEN : 0) |
	       inbox;
}

static inline uint64_t log_word_offset(uint64_t slot)
{
	return sizeof(struct log_segment) + 8 * slot;
}

/* --- words --- */

enum log_word_state {
	LOG_WORD_NONE,
	LOG_WORD_PRESENT,
	LOG_WORD_HOLE,
	LOG_WORD_MEMBER,
};
#define LOG_HOLE ((uint64_t)LOG_WORD_HOLE << 62)

static inline enum log_word_state log_word_state(uint64_t word)
{
	return (enum log_word_state)(word >> 62);
}

static inline uint64_t log_word_make(uint32_t back)
{
	return (uint64_t)(back ? LOG_WORD_MEMBER : LOG_WORD_PRESENT) << 62 |
	       (uint64_t)back << 47;
}

static inline uint64_t log_word_short(uint32_t back, uint32_t size,
				      uint32_t crc)
{
	return log_word_make(back) | (uint64_t)size << 32 | crc;
}

/* step: how much of the block to READ. */
static inline uint64_t log_word_long(uint32_t back, uint32_t step,
				     uint64_t block)
{
	return log_word_make(back) | UINT64_C(1) << 46 |
	       (uint64_t)(step & 255) << 38 | block;
}

static inline uint32_t log_word_back(uint64_t word)
{
	return (uint32_t)(word >> 47) & 1023;
}

static inline bool log_word_is_long(uint64_t word)
{
	return word >> 46 & 1;
}

static inline uint32_t log_word_size(uint64_t word)
{
	return (uint32_t)(word >> 32) & 16383;
}

static inline uint32_t log_word_step(uint64_t word)
{
	return (uint32_t)(word >> 38) & 255;
}

/* --- long entries --- */

struct log_entry {	   /* the bytes follow */
	uint64_t body;	   /* address */
	uint64_t position; /* it stands there, or behind; SHARDED: shard.h */
	uint32_t size, crc;
};
static_assert(sizeof(struct log_entry) == 24, "layout");

/* How much memory a long entry is given, and READ as: 8 bits tell, in steps of
 * 64 bytes up to 8 KiB, then of 8 KiB. A block has a header of 8 bytes of its
 * own. */
#define LOG_FINE_STEPS 128u
#define LOG_STEPS 256u

static inline uint32_t log_step_size(uint32_t step)
{
	return step < LOG_FINE_STEPS ? (step + 1) * 64 - 8
				     : (step - LOG_FINE_STEPS + 2) * 8192 - 8;
}

static inline uint32_t log_entry_step(uint32_t size)
{
	uint32_t whole = (uint32_t)sizeof(struct log_entry) + size + 8;

	return whole <= LOG_FINE_STEPS * 64
		       ? (whole + 63) / 64 - 1
		       : LOG_FINE_STEPS + (whole + 8191) / 8192 - 2;
}

#endif
