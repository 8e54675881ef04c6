/* near.h - a remote's memory in place: the one engine for memory that is
 * mapped, and its only face. Who has it does READ, WRITE, CAS and FAA by
 * itself, in a few instructions; describing them to the fabric would cost more.
 *
 *   enter --> at, then READ, WRITE, CAS, FAA there, any number --> leave
 *
 * (1) Only on queues of a fabric with REEF_CAP_NEAR. Hooks take that away, as
 *     nothing passes them by; so does a kernel without membarrier(2).
 * (2) enter refuses now and then, when the queue has something else to do
 *     first, and always in a forked child. at refuses what is outside, closed,
 *     not to be written, or on a link whose owner wants to be heard. Who was
 *     refused posts an operation: that does what is due, or tells what is
 *     wrong. Trying again here is of no use before that.
 * (3) What at gave is good until leave. Whoever takes the memory away closes
 *     it, so that at refuses, and waits for a grace (base/grace.h) of the
 *     queue's turn: so a withdraw, a fence and an unmap last as long as the
 *     longest stay between enter and leave, of any thread of the process.
 * (4) So a stay is bounded by what it copies. It may contain: operations of
 *     this file; reading mapped memory where it lies, and computing on that;
 *     copies of up to 8 MiB (the largest value that a map gives out so, about a
 *     millisecond), memory of the process allocated for one of them; a system
 *     call that moves at most 64 KiB and is told not to wait. Nothing in it is
 *     posted, polled, locked or waited for, no fiber is switched, and nobody
 *     enters a second time.
 * (5) Order is F3's: operations take effect in turn, with a full barrier
 *     between a WRITE and a later READ, and at the end if something was written
 *     (F4); reef_near_do and reef_near_end see to it. CAS and FAA are full
 *     barriers themselves.
 *
 * Thread: owner of the queue. */
#ifndef REEF_FABRIC_NEAR_H
#define REEF_FABRIC_NEAR_H

#include "fabric/copy.h"
#include "fabric/provider.h"

static inline bool reef_queue_is_near(const struct reef_queue *queue)
{
	return queue->fabric->capabilities & REEF_CAP_NEAR;
}

/* Begin a stay in the memory of the queue's remotes. False: refused, (2). */
static inline bool reef_near_enter(struct reef_queue *queue)
{
	return reef_turn_enter_quick(&queue->turn);
}

static inline void reef_near_leave(struct reef_queue *queue)
{
	reef_turn_leave(&queue->turn);
}

/* The memory of a remote of this queue's fabric; checked as for a READ, or a
 * WRITE (F8). NULL: (2). */
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
	/* Acquire: the partners are shm_control_change, and serve_changes in
	 * shm/post.c. */
	if (__builtin_expect(
		    atomic_load_explicit(link->control, memory_order_acquire) !=
			    atomic_load_explicit(&link->control_seen,
						 memory_order_acquire),
		    0))
		return NULL;
	if (!remote->base)
		__builtin_unreachable(); /* memory that is mapped, always */
	return remote->base + offset;
}

/* As reef_near_at for several places in one remote: the remote and its link are
 * checked once, and the answer is good until leave. */
struct reef_near_map {
	uint8_t *base;
	uint64_t limit, write_limit; /* 0: refused */
};

static inline void reef_near_map(const struct reef_remote *remote,
				 struct reef_near_map *out)
{
	const struct reef_link *link = remote->link;

	out->base = remote->base;
	out->limit = atomic_load_explicit(&remote->limit, memory_order_relaxed);
	out->write_limit = atomic_load_explicit(&remote->write_limit,
						memory_order_relaxed);
	/* Acquire: as in reef_near_at. */
	if (atomic_load_explicit(link->control, memory_order_acquire) !=
	    atomic_load_explicit(&link->control_seen, memory_order_acquire))
		out->limit = out->write_limit = 0;
}

static inline uint8_t *reef_near_map_at(const struct reef_near_map *map,
					uint64_t offset, uint64_t length,
					bool writes)
{
	uint64_t limit = writes ? map->write_limit : map->limit;

	if (__builtin_expect(offset >= limit || length > limit - offset, 0))
		return NULL;
	return map->base + offset;
}

/* --- operations, between enter and leave --- */

static inline void reef_near_barrier(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

/* True if reading or writing so many bytes is inlined, without a call. */
static inline bool reef_near_is_short(const uint8_t *at, size_t length)
{
	return reef_copy_is_short(at, length);
}

static inline void reef_near_read(const uint8_t *at, void *to, size_t length)
{
	reef_copy_from_shared(to, at, length);
}

/* What is written is seen by all only after a reef_near_barrier. */
static inline void reef_near_write(uint8_t *at, const void *from, size_t length)
{
	reef_copy_to_shared(at, from, length);
}

/* CAS and FAA return what the word held before. */
static inline uint64_t reef_near_cas(uint8_t *at, uint64_t compare,
				     uint64_t value)
{
	atomic_compare_exchange_strong((_Atomic uint64_t *)(void *)at, &compare,
				       value);
	return compare;
}

static inline uint64_t reef_near_faa(uint8_t *at, uint64_t add)
{
	return atomic_fetch_add((_Atomic uint64_t *)(void *)at, add);
}

/* Do one of several operations, in turn: (5). local and length are of READ and
 * WRITE, result of CAS and FAA. *dirty, false at first: others may not see yet
 * what was written. */
static inline void reef_near_do(uint8_t kind, uint8_t *at, void *local,
				uint32_t length, uint64_t compare,
				uint64_t operand, uint64_t *result, bool *dirty)
{
	switch (kind) {
	case REEF_READ:
		if (__builtin_expect(*dirty, 0))
			reef_near_barrier();
		*dirty = false;
		reef_near_read(at, local, length);
		break;
	case REEF_WRITE:
		reef_near_write(at, local, length);
		*dirty = true;
		break;
	case REEF_CAS:
		*result = reef_near_cas(at, compare, operand);
		break;
	default:
		*result = reef_near_faa(at, operand);
	}
#ifdef __x86_64__
	if (kind == REEF_CAS || kind == REEF_FAA)
		*dirty = false; /* a locked instruction empties the buffer */
#endif
	/* No access moves across the end of an operation: free on x86. */
	atomic_thread_fence(memory_order_acq_rel);
}

/* End a row of reef_near_do. */
static inline void reef_near_end(bool dirty)
{
	if (dirty)
		reef_near_barrier();
}

/* --- prefetching, of what at gave --- */

#define REEF_NEAR_LINE 64
#define REEF_NEAR_PREFETCH 256 /* bytes of one operation */

static inline void reef_near_prefetch_write(const void *at)
{
#ifdef __x86_64__
	/* Without a flag the compiler does not use this instruction, as
	 * processors before 2014 ignore it. */
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

	/* Most operations are within one cache line. */
	if (__builtin_expect(((uintptr_t)at & (REEF_NEAR_LINE - 1)) + length <=
				     REEF_NEAR_LINE,
			     1)) {
		if (writes)
			reef_near_prefetch_write(at);
		else
			__builtin_prefetch(at);
		return;
	}
	at = (const uint8_t *)((uintptr_t)at &
			       ~(uintptr_t)(REEF_NEAR_LINE - 1));
	for (; at < end; at += REEF_NEAR_LINE) {
		if (writes)
			reef_near_prefetch_write(at);
		else
			__builtin_prefetch(at);
	}
}

#endif
