/* near.h - a remote's memory in place, where an operation ends as it is posted:
 * for whoever does a few of them at once, and so little besides that describing
 * them to the fabric would cost more than doing them.
 *
 * (1) Between reef_near_enter and reef_near_leave, which are a few
 * instructions, nothing is posted to the queue, polled or waited for: whoever
 * takes the memory away waits for the end of it. (2) What reef_near_at gave is
 * good until reef_near_leave. (3) What is done there are the fabric's
 * operations, and their order is F3's: in turn, with a full barrier between a
 * WRITE and a later READ, and at the end if something was written (F4). (4)
 * Hooks are never passed by: under them there is no such queue.
 *
 * Thread: owner of the queue. */
#ifndef REEF_FABRIC_NEAR_H
#define REEF_FABRIC_NEAR_H

#include "fabric/copy.h"
#include "fabric/provider.h"

/* False: not here, or not now; an operation does it, and what is due. */
static inline bool reef_near_enter(struct reef_queue *queue)
{
	uint64_t turn =
		atomic_load_explicit(&queue->turn, memory_order_relaxed);

	if (__builtin_expect(!queue->is_near || !(turn & queue->look_mask), 0))
		return false;
	/* A compiler barrier will do: shm/grace.c. */
	atomic_store_explicit(&queue->turn, turn + 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	return true;
}

/* Release: what was done inside, for shm/grace.c. */
static inline void reef_near_leave(struct reef_queue *queue)
{
	atomic_store_explicit(
		&queue->turn,
		atomic_load_explicit(&queue->turn, memory_order_relaxed) + 1,
		memory_order_release);
}

/* The memory of a remote of this queue's fabric; checked as for a READ, or a
 * WRITE (F8). NULL: an operation tells why not. */
static inline uint8_t *reef_near_at(const struct reef_remote *remote,
				    uint64_t offset, uint64_t length,
				    bool writes)
{
	const struct reef_link *link = remote->link;
	uint64_t limit = atomic_load_explicit(writes ? &remote->write_limit
						     : &remote->limit,
					      memory_order_relaxed);

	if (__builtin_expect(offset >= limit || length > limit - offset, 0))
		return NULL;
	/* Acquire: as in shm_must_look. */
	if (__builtin_expect(
		    atomic_load_explicit(link->control, memory_order_acquire) !=
			    atomic_load_explicit(&link->control_seen,
						 memory_order_acquire),
		    0))
		return NULL;
	return remote->base + offset;
}

#define REEF_NEAR_LINE 64
#define REEF_NEAR_PREFETCH 256 /* bytes of one operation */

static inline void reef_near_prefetch_write(const void *at)
{
#ifdef __x86_64__
	/* The compiler would not use it without a flag, as processors before
	 * 2014 ignore it. */
	__asm__ volatile("prefetchw %0" : : "m"(*(const uint8_t *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

static inline void reef_near_prefetch(const uint8_t *at, uint64_t length,
				      bool writes)
{
	const uint8_t *end =
		at +
		(length < REEF_NEAR_PREFETCH ? length : REEF_NEAR_PREFETCH);

	at = (const uint8_t *)((uintptr_t)at &
			       ~(uintptr_t)(REEF_NEAR_LINE - 1));
	for (; at < end; at += REEF_NEAR_LINE) {
		if (writes)
			reef_near_prefetch_write(at);
		else
			__builtin_prefetch(at);
	}
}

static inline void reef_near_barrier(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

#endif
