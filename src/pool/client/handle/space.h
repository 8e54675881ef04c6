/* space.h - a space that a handle has open, its heap, and short addresses in
 * it.
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_SPACE_H
#define REEF_POOL_CLIENT_HANDLE_SPACE_H

#include "pool/client/handle/handle.h"
#include "pool/client/keeper/view.h"

#define CLIENT_SHORTS 64 /* extents whose ordinal is at hand */
/* The bits of a short address that say where the block's header is, in units of
 * 64 bytes. */
#define CLIENT_SHORT_BITS 20
#define CLIENT_BLOCK_HEADER 8u

/* The address of a short one. base: the address where its ordinal begins. */
static inline uint64_t client_short_join(uint64_t base, uint64_t short_address)
{
	uint64_t offset = (short_address & ((1u << CLIENT_SHORT_BITS) - 1))
			  << 6;

	return (base | offset) + CLIENT_BLOCK_HEADER;
}

/* An extent, and the ordinal that it begins with. */
struct client_short {
	uint32_t extent, ordinal;
};

struct reef_space {
	struct reef *reef;
	struct client_space *space;
	struct client_heap *heap; /* NULL: none yet */
	uint64_t ready; /* the view's version for which prepare() found all well
			 */
	uint32_t returns; /* the client's, when it was asked for more last */
	uint64_t vain_until_ns; /* until when waiting for others is in vain */
	struct client_short shorts[CLIENT_SHORTS];
	uint64_t *bases; /* by ordinal: the address where it begins; 0: not
			    known */
	uint32_t bases_count;
	uint32_t lost_seen; /* how many of the space's lost are in neither */
	struct reef_space *next;
};

/* Open a space that the keeper knows of; takes over a reference to it. */
int client_space_attach(struct reef *reef, struct client_space *space,
			struct reef_space **out);

/* --- block.c --- */

/* What a heap calls; its context is a struct reef_space. */
extern const struct reef_heap_ops client_heap_ops;
/* Give the space, which has none, a heap of its own. */
int client_heap_make(struct reef_space *space);
/* Give the space a heap, if it has none: one that a handle of this session has
 * left, or a new one. */
int client_heap_get(struct reef_space *space);
/* Leave its heap to the next handle. What others freed is taken back first, and
 * empty chunks are released: all of them, or but for a few. */
void client_heap_put(struct reef_space *space, bool all);
/* Leave its heap, and give back the memory that nothing is in. The last one to
 * close a space in this process does so for all heaps: what it left would be in
 * the way until somebody recovers this session, and reusable only a while after
 * that. */
void client_heap_give_back(struct reef_space *space);

/* --- short.c --- */

/* Forget the ordinals of extents that are lost since the last call. */
void client_short_forget(struct reef_space *space);

#endif
