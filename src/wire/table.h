/* table.h - what clients read and write in a broker's memory.
 *
 * The table has a word for the state of every session, and one that changes
 * when it has something to ask for; everyone READs it. The renewal is a
 * session's own, and it alone WRITEs it.
 *
 * Thread: any. */
#ifndef REEF_WIRE_TABLE_H
#define REEF_WIRE_TABLE_H

#include "wire/counters.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_TABLE_MAGIC UINT64_C(0x31656c6261546652) /* "RfTable1" */
#define REEF_TABLE_SLOTS 65536u

/* Each word by itself is of one moment (F2). */
struct reef_table_header {
	uint64_t magic;
	uint64_t broker_epoch, pool_epoch;
	/* R8: what was freed while reclaim_epoch was e may be reused once
	 * safe_epoch > e. */
	uint64_t reclaim_epoch, safe_epoch;
	/* Not 0: memory is short, so renew at least this often. */
	uint64_t hurry_ns;
	/* How often memory was asked for that was not there, 32 (low); how
	 * often some came back to a node or a quota, 32 (high). */
	uint64_t shorts;
	/* Memory that will come back: sessions that have ended and are not
	 * recovered yet, janitors that have some of it to give away, and
	 * extents that nodes are dropping. */
	uint64_t coming;
	/* Changes all the time: the memory of a broker that stands still can be
	 * read, too. */
	uint64_t beat;
	/* safe_epoch 32 (lower bits) | pool epoch 32 (lower bits): safe_epoch
	 * is that because sessions are FENCED, for whom nodes that were gone in
	 * this pool epoch did not confirm. Who has no view of it does not
	 * believe safe_epoch, nor if the two words are not of one moment. */
	uint64_t safe_view;
};
static_assert(sizeof(struct reef_table_header) == 80, "layout");

struct reef_table_slot {
	uint64_t state;	 /* generation 16 | state 8 | 0 8 | pool epoch 32, from
			  * the lowest bit on */
	uint64_t notice; /* broker epoch 32 (high) | counter 32 */
};
static_assert(sizeof(struct reef_table_slot) == 16, "layout");

static inline uint64_t reef_table_offset(uint32_t session)
{
	return sizeof(struct reef_table_header) +
	       (session >> 16) * sizeof(struct reef_table_slot);
}

static inline uint64_t reef_table_safe_view(uint64_t safe_epoch,
					    uint64_t pool_epoch)
{
	return (uint32_t)safe_epoch | pool_epoch << 32;
}

static inline uint64_t reef_table_state(uint16_t generation, uint8_t state,
					uint32_t pool_epoch)
{
	return generation | (uint64_t)state << 16 | (uint64_t)pool_epoch << 32;
}

#define REEF_TABLE_SIZE                                                        \
	(sizeof(struct reef_table_header) +                                    \
	 REEF_TABLE_SLOTS * sizeof(struct reef_table_slot))

/* The renewal word of a session: hurry 1 (high) | counter 31 | oldest epoch in
 * use 32. hurry: it waits for memory that was freed. */
#define REEF_RENEWAL_HURRY (UINT64_C(1) << 63)
static inline uint64_t reef_renewal_word(uint32_t counter, uint32_t oldest)
{
	return (uint64_t)(counter & (UINT32_MAX >> 1)) << 32 | oldest;
}

/* What a session WRITEs with each renewal. Each word by itself is of one moment
 * (F2). */
struct reef_renewal {
	uint64_t word;
	/* lacks 1 (high) | gives 1 | bytes 62: what it has freed and cannot use
	 * again yet. lacks: it has no other memory, and waits for that. gives:
	 * it is a janitor, and is about to give memory away. */
	uint64_t waiting;
	/* The pool epoch up to which it has let go of whatever changed: it
	 * has, and makes, no link to a node that was gone by then, and has
	 * nothing mapped of one (keeper/acknowledge.c). */
	uint64_t acknowledged;
	uint64_t reserved; /* 0 */
	/* Not with every renewal: after a pause, and when it closes. */
	struct reef_counters counters;
};
static_assert(offsetof(struct reef_renewal, counters) == 32, "layout");
static_assert(sizeof(struct reef_renewal) == 32 + 8 * REEF_COUNTERS, "layout");
#define REEF_RENEWAL_LACKS (UINT64_C(1) << 63)
#define REEF_RENEWAL_GIVES (UINT64_C(1) << 62)
#define REEF_RENEWAL_BYTES (REEF_RENEWAL_GIVES - 1)

#endif
