/* fast.h - what post.c and run.c share: the operations themselves, inline.
 *
 * Thread: the queue's owner, between shm_enter and shm_leave. */
#ifndef REEF_FABRIC_SHM_FAST_H
#define REEF_FABRIC_SHM_FAST_H

#include "fabric/copy.h"
#include "fabric/shm/shm.h"

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

#define SHM_LINE 64
/* Of one operation. */
#define SHM_PREFETCH_BYTES 256

static inline void shm_prefetch_write(const void *at)
{
#ifdef __x86_64__
	/* The compiler would not use it without a flag, as processors before
	 * 2014 ignore it. */
	__asm__ volatile("prefetchw %0" : : "m"(*(const uint8_t *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

static inline void shm_prefetch(const struct reef_op *op)
{
	const uint8_t *at = op->remote->base + op->offset;
	const uint8_t *end = at + 8;

	if (op->kind <= REEF_WRITE)
		end = at + (op->length < SHM_PREFETCH_BYTES
				    ? op->length
				    : SHM_PREFETCH_BYTES);
	at = (const uint8_t *)((uintptr_t)at & ~(uintptr_t)(SHM_LINE - 1));
	for (; at < end; at += SHM_LINE) {
		if (op->kind == REEF_READ)
			__builtin_prefetch(at);
		else
			shm_prefetch_write(at);
	}
}

static inline void shm_full_barrier(void)
{
	atomic_thread_fence(memory_order_seq_cst);
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
	return atomic_load_explicit(link->control, memory_order_acquire) !=
		       atomic_load_explicit(&link->control_seen,
					    memory_order_acquire) ||
	       !(turn & queue->look_mask);
}

#endif
