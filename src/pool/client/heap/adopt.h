/* adopt.h - chunks of one extent on their way to us; between adopt.c, chains.c
 * and install.c.
 *
 * Thread: owner. */
#ifndef REEF_POOL_CLIENT_HEAP_ADOPT_H
#define REEF_POOL_CLIENT_HEAP_ADOPT_H

#include "pool/client/heap/internal.h"

struct chain {
	uint32_t first, last; /* chunks */
	bool wanted;
};

struct adoption {
	struct reef_heap *heap;
	struct extent *extent;
	struct reef_heap_recovery *list; /* whose chunks are wanted */
	uint32_t list_count;
	uint64_t *words; /* of all chunks, as they were read */
	uint64_t *descriptors;
	struct chain *chains;
	uint32_t chains_count;
	bool *walls;	   /* chunks that no run may lead into or out of */
	struct run **runs; /* of the chains, by unit; NULL: taken over */
	uint32_t runs_count;
	struct reef_access accesses[HEAP_BATCH];
	/* ABANDONED ones are wanted: the chunk to begin at, how many, and how
	 * many there were. */
	bool abandoned;
	uint32_t from, max, adopted;
};

/* --- chains.c --- */

/* The session of the list that a chunk is of, or was when we adopted it from
 * it; NULL: it is no session's of the list. */
struct reef_heap_recovery *heap_dead_owner(const struct adoption *a,
					   uint32_t index);
/* What is done and left something behind counts less than what is not done. */
void heap_note_status(struct reef_heap_recovery *recovery, int status);
/* Tell every session of the list that has a chunk among these; or in the chain
 * of that one. */
void heap_blame_chunks(const struct adoption *a, uint32_t first, uint32_t last,
		       int status);
void heap_blame_chain(const struct adoption *a, uint32_t chunk, int status);
const struct chain *heap_chain_of(const struct adoption *a, uint32_t index);
/* How many units the run of a head has; 0: it is no head, or makes no sense. */
uint32_t heap_head_units(const struct adoption *a, uint32_t unit);
/* Find the chains, once more with each set of walls: none is found twice.
 * -EBUSY: words changed meanwhile. */
int heap_chains_settle(struct adoption *a);
/* Mark the chains to adopt: those whose first chunk is a dead session's, or is
 * ours since an attempt that did not get the rest; or some that are nobody's.
 */
void heap_chains_choose(struct adoption *a);
/* True if every chunk of a chain was adopted, and is not taken over yet. */
bool heap_chain_is_whole(const struct adoption *a, const struct chain *chain);

/* --- install.c --- */

/* Chains all of whose chunks are ours are taken over; the runs of others stay
 * in the list.  -ENOMEM. */
int heap_install_chains(struct adoption *a);

#endif
