/* near.h - the memory of extents in place (fabric/near.h), as a handle sees it:
 * for access.c, and for what is made of many small READs (index/hash).
 *
 * Between enter and leave, or begin and end, which must be short, nothing else
 * is done with the handle. Whatever cannot be had this way, for any reason, can
 * be had by reef_execute.
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_NEAR_H
#define REEF_POOL_CLIENT_HANDLE_NEAR_H

#include "fabric/near.h"
#include "pool/client/handle/space.h"

/* *phase: for leave. */
static inline bool client_near_enter(struct reef *reef, uint32_t *phase)
{
	if (!reef->near)
		return false;
	*phase = client_enter(reef);
	if (likely(client_is_current(reef)) &&
	    likely(reef_near_enter(reef->near)))
		return true;
	client_leave(reef, *phase);
	return false;
}

static inline void client_near_leave(struct reef *reef, uint32_t phase)
{
	reef_near_leave(reef->near);
	client_leave(reef, phase);
}

/* A beat of the keeper's: while it is the same, the time is, within some
 * seconds. */
static inline uint32_t client_beat(const struct reef *reef)
{
	return atomic_load_explicit(&reef->client->beats, memory_order_relaxed);
}

/* For one look: reef_enter and client_near_enter in one, in a few instructions,
 * as nobody of this handle comes in between. If the young cohort is empty its
 * pin is free, whoever else is inside: handle.c (2). */
struct client_near {
	uint64_t epoch; /* as reef_epoch */
	uint32_t phase, cohort;
};

static inline void client_near_end(struct reef *reef,
				   const struct client_near *near)
{
	client_near_leave(reef, near->phase);
	/* Release: as in reef_leave. */
	atomic_store_explicit(&reef->pins[near->cohort], UINT64_MAX,
			      memory_order_release);
}

static inline bool client_near_begin(struct reef *reef,
				     struct client_near *near)
{
	struct reef_client *client = reef->client;
	struct reef_queue *queue = reef->quick;
	uint32_t cohort = reef->young, count;
	uint64_t turn;

	if (unlikely(!queue || reef->entered[cohort]))
		return false;
	turn = atomic_load_explicit(&queue->turn, memory_order_relaxed);
	/* In a forked child it is near no more. */
	if (unlikely(!queue->is_near || !(turn & queue->look_mask)))
		return false;
	near->cohort = cohort;
	near->phase =
		atomic_load_explicit(&client->phase, memory_order_relaxed) & 1;
	near->epoch = atomic_load_explicit(&client->reclaim_epoch,
					   memory_order_acquire);
	count = atomic_load_explicit(&reef->inside[near->phase],
				     memory_order_relaxed);
	/* Stored, then looked at, with the others' barrier for both: one of the
	 * compiler does for client_enter, for the turn and for the pin. */
	atomic_store_explicit(&reef->pins[cohort], near->epoch,
			      memory_order_relaxed);
	atomic_store_explicit(&reef->inside[near->phase], count + 1,
			      memory_order_relaxed);
	atomic_store_explicit(&queue->turn, turn + 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (likely(client_is_current(reef)) &&
	    likely(atomic_load_explicit(&client->reclaim_epoch,
					memory_order_acquire) == near->epoch))
		return true;
	client_near_end(reef, near);
	return false;
}

/* Where an address is, inside. NULL: not this way. */
static inline uint8_t *client_near_at(struct reef *reef, uint64_t address,
				      uint64_t length, bool writes)
{
	uint32_t number = (uint32_t)(address >> 32);
	const struct client_entry *entry = &reef->cache[number % CLIENT_CACHE];
	uint8_t need = writes ? REEF_RIGHT_WRITE : REEF_RIGHT_READ;

	if (unlikely(entry->extent != number || !(entry->near_rights & need)))
		return NULL;
	return reef_near_at(entry->remote, (uint32_t)address, length, writes);
}

/* It is about to be written; not inside. */
static inline void client_near_hint(struct reef *reef, uint64_t address,
				    uint64_t length)
{
	uint32_t phase;
	uint8_t *at;

	if (!client_near_enter(reef, &phase))
		return;
	at = client_near_at(reef, address, length, true);
	if (at)
		reef_near_prefetch(at, length, true);
	client_near_leave(reef, phase);
}

/* A block is about to be freed: what its heap has to look at is fetched. */
static inline void client_free_hint(const struct reef_space *space,
				    uint64_t address)
{
	if (space->heap)
		reef_heap_free_hint(space->heap->heap, address);
}

/* As reef_long_address, if it is known without asking. */
static inline bool client_near_long(const struct reef_space *space,
				    uint64_t short_address, uint64_t *out)
{
	uint32_t ordinal = (uint32_t)(short_address >> CLIENT_SHORT_BITS);

	if (unlikely(ordinal >= space->bases_count || !space->bases[ordinal]))
		return false;
	*out = client_short_join(space->bases[ordinal], short_address);
	return true;
}

#endif
