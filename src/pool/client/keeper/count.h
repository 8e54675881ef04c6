/* count.h - counting the data path: two adds for each operation, and nothing
 * else.
 *
 * (1) A handle's counters are words that its owner alone adds to, and that the
 *     keeper reads whenever it renews: what it reads may be a moment old, and
 *     the words are of different moments.
 * (2) They are plain words: an atomic load and store, even relaxed, cost the
 *     shortest operations three instructions instead of one. An aligned word of
 *     eight bytes is not torn by any processor that we run on, and it does not
 *     matter how long the compiler keeps it in a register. The thread sanitizer
 *     is given atomics.
 *
 * Thread: owner of the handle adds; any reads. */
#ifndef REEF_POOL_CLIENT_KEEPER_COUNT_H
#define REEF_POOL_CLIENT_KEEPER_COUNT_H

#include "wire/counters.h"

#if defined(__SANITIZE_THREAD__)
#define CLIENT_COUNTS_ATOMICALLY 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CLIENT_COUNTS_ATOMICALLY 1
#endif
#endif

static inline void client_count(uint64_t *at, uint64_t add)
{
#ifdef CLIENT_COUNTS_ATOMICALLY
	__atomic_store_n(at, __atomic_load_n(at, __ATOMIC_RELAXED) + add,
			 __ATOMIC_RELAXED);
#else
	*at += add;
#endif
}

/* An operation in place. kind: enum reef_kind. */
static inline void client_count_near(struct reef_counters *counters,
				     uint8_t kind, uint64_t length)
{
	client_count(&counters->operations[REEF_COUNTED_SHM][kind - 1], 1);
	client_count(&counters->bytes[kind - 1], length);
}

/* Note how long something took that stands for `weight` of its kind. */
static inline void client_count_latency(struct reef_counters *counters,
					uint64_t ns, uint64_t weight)
{
	client_count(&counters->latencies[reef_latency_bucket(ns)], weight);
	client_count(&counters->latency_ns, ns * weight);
}

/* Add all of one to another. */
static inline void client_counters_sum(struct reef_counters *sum,
				       const struct reef_counters *one)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)one;

	for (size_t i = 0; i < REEF_COUNTERS; i++)
		to[i] += __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

#endif
