/* fast.h - what post.c and run.c share: the operations themselves, inline.
 *
 * Thread: the queue's owner, between shm_enter and shm_leave. */
#ifndef REEF_FABRIC_SHM_FAST_H
#define REEF_FABRIC_SHM_FAST_H

#include "fabric/near.h"
#include "fabric/shm/shm.h"

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

static inline void shm_prefetch(const struct reef_op *op)
{
	reef_near_prefetch(op->remote->base + op->offset,
			   op->kind <= REEF_WRITE ? op->length : 8,
			   op->kind != REEF_READ);
}

static inline void shm_do_cas(struct reef_op *op)
{
	_Atomic uint64_t *word = (void *)(op->remote->base + op->offset);
	uint64_t expected = op->compare;

	atomic_compare_exchange_strong(word, &expected, op->operand);
	op->result = expected;
}

static inline void shm_do_faa(struct reef_op *op)
{
	_Atomic uint64_t *word = (void *)(op->remote->base + op->offset);

	op->result = atomic_fetch_add(word, op->operand);
}

/* Is there something to look at, or is it time to? */
static inline bool shm_must_look(const struct shm_queue *queue,
				 const struct shm_link *link, uint64_t turn)
{
	/* Acquire: the partners are in shm_control_change and look. */
	return atomic_load_explicit(link->link.control, memory_order_acquire) !=
		       atomic_load_explicit(&link->link.control_seen,
					    memory_order_acquire) ||
	       !(turn & queue->queue.look_mask);
}

#endif
