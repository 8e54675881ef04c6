/* intent.h - intents: how a word of an index says that a transaction has it.
 *
 *   block   of a transaction: a head, then lines of 64 bytes
 *   head    status: PENDING --CAS, once--> COMMITTED or ABORTED
 *           Only that of the first block counts (main); it names the others.
 *   line    of one word that the transaction has: the word before, where to
 *           look for it, the status's address; and what it becomes, or 0 while
 *           that is not known
 *   word    with its intent bit, the line's short address in place of a block
 *
 * (1) A line is WRITTEN before a word names it, and does not change from then
 *     on, but for `next`: WRITTEN once, before the status is COMMITTED.
 * (2) While a word is an intent, its key's value is what `old` says unless the
 *     status is COMMITTED, and what `next` says then; whatever `live` of the
 *     entries is. So all words of a transaction change at one CAS.
 * (3) Nobody changes a word that is an intent but to what its status says, once
 *     that is decided. Whoever wants to change the key decides it: by ABORTED,
 *     if nobody was quicker. A reader goes on.
 * (4) Blocks are freed LATER, by the transaction, when no word names a line of
 *     theirs and none can any more: so a line that was named since the caller
 *     entered stays what it is until it leaves. If the session has ended,
 *     recovery aborts what is PENDING and looks for each word.
 * (5) `live` of an entry that is to go is 0 before the status is COMMITTED: so
 *     nobody reads a remembered entry past it. After ABORTED such an entry is
 *     current, and slow to read: a copy takes its place.
 *
 * (R10) Whatever is read is checked: a line by its crc and its structure's
 *     number, the words in it by the index, a status by its space before it is
 *     changed.
 *
 * Thread: owner of the handle. */
#ifndef REEF_INDEX_ENTRY_INTENT_H
#define REEF_INDEX_ENTRY_INTENT_H

#include "pool/client/client.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum intent_status { INTENT_PENDING, INTENT_COMMITTED, INTENT_ABORTED };

enum intent_index { INTENT_HASH = 1, INTENT_TREE, INTENT_INDEXES };

struct intent_line {
	uint64_t main;	   /* address of the status */
	uint64_t old;	   /* the word before */
	uint64_t hash;	   /* of the key, by which the word is found; of a
			    * tree: address of the leaf's head */
	uint64_t priority; /* the lower, the older */
	uint32_t number;   /* of the structure, as entries have it */
	uint32_t session;
	uint16_t attempts; /* that its transaction made before this one */
	uint8_t index;	   /* enum intent_index */
	uint8_t slot;	   /* of a tree: which of the leaf's */
	uint32_t crc;	   /* of what is before it */
	uint64_t reserved;
	uint64_t next; /* what it names then; 0: not known yet */
};
#define INTENT_LINE 64u
static_assert(sizeof(struct intent_line) == INTENT_LINE, "layout");

#define INTENT_BLOCKS 5u
struct intent_head {
	uint64_t status;
	uint64_t magic;
	uint32_t session, lines;
	uint64_t blocks[INTENT_BLOCKS]; /* main: further ones. Those: main */
};
static_assert(sizeof(struct intent_head) == INTENT_LINE, "layout");

#define INTENT_MAIN_MAGIC UINT64_C(0x316e69614d744652) /* "RFtMain1" */
#define INTENT_MORE_MAGIC UINT64_C(0x3165726f4d744652) /* "RFtMore1" */

/* Lines, and bytes, of the first block of every transaction. */
#define INTENT_FIRST_LINES 15u
#define INTENT_FIRST (INTENT_LINE * (1 + INTENT_FIRST_LINES))

/* The address of a line of a block. */
static inline uint64_t intent_line_at(uint64_t block, uint32_t line)
{
	return block + INTENT_LINE * (1 + (uint64_t)line);
}

/* Set the crc of a line. */
void intent_line_seal(struct intent_line *line);

/* A line that a word names, as it was read, and then its status. */
struct intent {
	uint64_t at; /* the line's address */
	struct intent_line line;
	uint64_t status;
};

/* READ lines with these short addresses; and their statuses, with `extra`
 * accesses in the same batch. Inside the reef_enter in which words named them.
 * Each is what held when its status was read.  -REEF_ECORRUPT: one is none of
 * that structure. */
#define INTENT_TOGETHER 20u
#define INTENT_EXTRA 2u
int intent_read_lines(struct reef_space *space, uint32_t number,
		      const uint64_t *blocks, struct intent *out,
		      uint32_t count);
int intent_read_statuses(struct reef *reef, struct intent *intents,
			 uint32_t count, const struct reef_access *extra,
			 uint32_t extra_count);
/* Both, of one. */
int intent_read(struct reef_space *space, uint32_t number, uint64_t block,
		struct intent *out);
/* Decide a PENDING intent: ABORTED, unless another was quicker. Its status is
 * known then. Errors of access: it is not. */
int intent_abort(struct reef_space *space, struct intent *intent);

/* How long somebody has waited for a word. Zero it, and set what it may. */
struct intent_wait {
	uint64_t priority;    /* a transaction's own; 0: always younger */
	uint64_t main;	      /* its status's address: of two of the same age,
			       * begun at one tick of a clock, one is older */
	uint64_t patience_ns; /* 0: 1 ms */
	uint64_t word, since_ns;
	uint32_t looks; /* the caller's: how often it has looked at the word */
};
/* Who is older looks so often before it aborts another: one that holds keys is
 * a round trip or two from its end, and what it did is lost with it. */
#define INTENT_LOOKS 16u
/* True if an intent that is PENDING in that word may be aborted: by who is
 * older, or has waited for long enough, as it tries again and again. */
bool intent_is_due(struct intent_wait *wait, uint64_t word,
		   const struct intent *intent);
/* Wait a little, not inside reef_enter, before the word is looked at again. */
int intent_pause(const struct intent_wait *wait);

/* What an index does for recovery: look for the word that names a line whose
 * status is decided, and resolve it. 0 also: there is none, or no structure. */
typedef int intent_resolve(struct reef_space *space,
			   const struct intent *intent, uint64_t block);
void intent_resolver_register(enum intent_index index, intent_resolve *resolve);

#endif
