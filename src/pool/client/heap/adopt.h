/* adopt.h - chunks of one extent on their way to us; between adopt.c and
 * install.c.
 *
 * Thread: owner. */
#ifndef REEF_POOL_CLIENT_HEAP_ADOPT_H
#define REEF_POOL_CLIENT_HEAP_ADOPT_H

#include "pool/client/heap/internal.h"

struct chain {
	uint32_t first, last; /* chunks */
	bool wanted, ours;
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

/* Tell every session of the list that has a chunk in the chain of that one. */
void heap_blame_chain(const struct adoption *a, uint32_t chunk, int status);
/* Chains all of whose chunks are ours are taken over; of others the runs are
 * dropped.  -ENOMEM. */
int heap_install_chains(struct adoption *a);

#endif
