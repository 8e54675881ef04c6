/* workload.h - what Reef and everyone it is compared with do, word for word.
 *
 * The loops below are inlined into each competitor with its own operations, so
 * that all draw the same addresses, depend on the same values and count the
 * same way, and none pays for a call that another does not make.
 *
 * (1) The memory is lines of 64 bytes. Word i holds workload_fill(i), and stays
 *     so wherever a loop relies on it: CAS swaps even words of even lines for
 *     what they already hold (and so always succeeds), FAA adds to odd words of
 *     even lines, WRITE goes to odd lines. No case needs the memory refilled.
 * (2) The last two lines are left out of that; the hot word lies there.
 * (3) In a chain the next address depends on the value read last *and* on a
 *     running state: by the value alone a random function falls into a cycle
 *     short enough for the cache after some thousands of steps.
 * (4) Every operation is complete, as its library means it, before the next
 *     begins; a batch before the next batch. A processor runs ahead of a short
 *     loop: its window holds a dozen rounds of a plain loop, and it fetches the
 *     lines of all of them at once, so that such a loop measures batches and
 *     not operations. So the next address depends on the last result, or,
 *     where there is none (WRITE), an instruction barrier lies between the two.
 *     The FREE kinds leave that out; BATCH is what a user has for it.
 * (5) Where a case is the client's own work alone (shm, but for the one that
 *     sleeps), time is its time on the processor: what the machine gave to
 *     others is nobody's. On an idle machine that is the same. All competitors
 *     of a case go by the same clock.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_WORKLOAD_H
#define REEF_BENCH_WORKLOAD_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define WORKLOAD_LINE 64
#define WORKLOAD_BATCH_MAX 32
#define WORKLOAD_LENGTH_MAX 8192

enum workload_kind {
	WORKLOAD_CHAIN, /* READs, each address from the last value */
	WORKLOAD_READ,	/* READs at random */
	WORKLOAD_BATCH, /* READs at random, 32 posted at once */
	WORKLOAD_WRITE, /* one after the other */
	WORKLOAD_CAS,	/* each address from the last result */
	WORKLOAD_FAA,
	WORKLOAD_WRITE_FREE, /* the same, all addresses known beforehand */
	WORKLOAD_CAS_FREE,
	WORKLOAD_FAA_FREE,
	WORKLOAD_CAS_HOT, /* all on one word */
	WORKLOAD_FAA_HOT,
};

/* How a side waits for the other. */
enum workload_mode {
	WORKLOAD_SPIN,	/* it polls; a pool does so for some microseconds */
	WORKLOAD_SLEEP, /* it sleeps in the kernel */
	WORKLOAD_FIBERS /* it polls; 16 fibers on the client's thread */
};

struct workload {
	const char *name;
	enum workload_kind kind;
	enum workload_mode mode;
	uint32_t length; /* bytes of an operation */
	uint32_t chunk;	 /* operations between two looks at the clock */
	clockid_t clock; /* see (5) */
};

/* NULL: no such case. */
const struct workload *workload_find(const char *name);

/* What a competitor can do. 0, or -errno. The loops are inlined with a constant
 * table, so these become direct code. */
struct workload_ops {
	int (*read)(void *context, uint64_t offset, void *to, uint32_t length);
	/* Line i to to + 64 * i; WORKLOAD_BATCH_MAX of them. */
	int (*read_batch)(void *context, const uint64_t *offsets, void *to);
	int (*write)(void *context, uint64_t offset, const void *from,
		     uint32_t length);
	int (*cas)(void *context, uint64_t offset, uint64_t compare,
		   uint64_t swap, uint64_t *before);
	int (*faa)(void *context, uint64_t offset, uint64_t add,
		   uint64_t *before);
};

struct workload_state {
	uint64_t lines; /* that addresses are drawn from */
	uint64_t random;
	uint64_t hot;	/* what the hot word should hold */
	uint8_t *local; /* WORKLOAD_LENGTH_MAX bytes, aligned to a page */
};

#define workload_inline static inline __attribute__((always_inline))

workload_inline uint64_t workload_fill(uint64_t index)
{
	uint64_t x = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
	return x ^ (x >> 32);
}

/* The next random line; mix: what it is to depend on. */
workload_inline uint64_t workload_line(struct workload_state *state,
				       uint64_t mix)
{
	state->random = state->random * UINT64_C(6364136223846793005) +
			UINT64_C(1442695040888963407) + mix;
	return ((state->random >> 32) * state->lines) >> 32;
}

workload_inline uint64_t workload_hot_offset(const struct workload_state *state)
{
	return state->lines * WORKLOAD_LINE;
}

/* Nothing after this starts before everything in front of it has finished. */
workload_inline void workload_serialize(void)
{
#if defined(__x86_64__)
	__asm__ volatile("lfence" : : : "memory");
#elif defined(__aarch64__)
	__asm__ volatile("isb" : : : "memory");
#endif
}

/* A word that may be swapped (odd 0) or added to (odd 1). */
workload_inline uint64_t workload_word(struct workload_state *state,
				       uint64_t mix, uint32_t odd)
{
	uint64_t line = workload_line(state, mix) & ~UINT64_C(1);

	return line * 8 + ((state->random >> 8) & 6) + odd;
}

workload_inline int workload_chain(const struct workload_ops *ops,
				   void *context, struct workload_state *state,
				   uint32_t count)
{
	uint64_t value = 0;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t line = workload_line(state, value);

		rc = ops->read(context, line * WORKLOAD_LINE, state->local,
			       WORKLOAD_LINE);
		if (__builtin_expect(rc != 0, 0))
			return rc;
		/* It is read from memory: the copy is part of the work. */
		value = *(volatile uint64_t *)state->local;
	}
	return 0;
}

workload_inline int workload_read(const struct workload_ops *ops, void *context,
				  struct workload_state *state, uint32_t length,
				  uint32_t count)
{
	uint64_t lines_each = length / WORKLOAD_LINE;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t line =
			workload_line(state, 0) / lines_each * lines_each;

		/* The last two lines are no block's own. */
		if (__builtin_expect(line + lines_each > state->lines, 0))
			line = 0;
		rc = ops->read(context, line * WORKLOAD_LINE, state->local,
			       length);
		if (__builtin_expect(rc != 0, 0))
			return rc;
	}
	return 0;
}

workload_inline int workload_batch(const struct workload_ops *ops,
				   void *context, struct workload_state *state,
				   uint32_t count)
{
	uint64_t offsets[WORKLOAD_BATCH_MAX];
	int rc;

	for (uint32_t i = 0; i < count; i += WORKLOAD_BATCH_MAX) {
		for (uint32_t j = 0; j < WORKLOAD_BATCH_MAX; j++)
			offsets[j] = workload_line(state, 0) * WORKLOAD_LINE;
		rc = ops->read_batch(context, offsets, state->local);
		if (__builtin_expect(rc != 0, 0))
			return rc;
	}
	return 0;
}

workload_inline int workload_write(const struct workload_ops *ops,
				   void *context, struct workload_state *state,
				   bool serial, uint32_t count)
{
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t line = workload_line(state, 0) | 1;

		rc = ops->write(context, line * WORKLOAD_LINE, state->local,
				WORKLOAD_LINE);
		if (__builtin_expect(rc != 0, 0))
			return rc;
		if (serial)
			workload_serialize();
	}
	return 0;
}

workload_inline int workload_cas(const struct workload_ops *ops, void *context,
				 struct workload_state *state, bool chain,
				 uint32_t count)
{
	uint64_t differences = 0, before = 0;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t index = workload_word(state, chain ? before : 0, 0);
		uint64_t value = workload_fill(index);

		rc = ops->cas(context, index * 8, value, value, &before);
		if (__builtin_expect(rc != 0, 0))
			return rc;
		differences |= before ^ value;
	}
	return differences ? -EILSEQ : 0;
}

workload_inline int workload_faa(const struct workload_ops *ops, void *context,
				 struct workload_state *state, bool chain,
				 uint32_t count)
{
	uint64_t before = 0;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t index = workload_word(state, chain ? before : 0, 1);

		rc = ops->faa(context, index * 8, 1, &before);
		if (__builtin_expect(rc != 0, 0))
			return rc;
		__asm__ volatile("" : : "r"(before));
	}
	return 0;
}

workload_inline int workload_hot(const struct workload_ops *ops, void *context,
				 struct workload_state *state, bool cas,
				 uint32_t count)
{
	uint64_t offset = workload_hot_offset(state), before;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		if (cas)
			rc = ops->cas(context, offset, state->hot,
				      state->hot + 1, &before);
		else
			rc = ops->faa(context, offset, 1, &before);
		if (__builtin_expect(rc != 0, 0))
			return rc;
		if (__builtin_expect(before != state->hot, 0))
			return -EILSEQ;
		state->hot++;
	}
	return 0;
}

workload_inline int workload_chunk(const struct workload *workload,
				   const struct workload_ops *ops,
				   void *context, struct workload_state *state)
{
	uint32_t count = workload->chunk;

	switch (workload->kind) {
	case WORKLOAD_CHAIN:
		return workload_chain(ops, context, state, count);
	case WORKLOAD_READ:
		return workload_read(ops, context, state, workload->length,
				     count);
	case WORKLOAD_BATCH:
		return workload_batch(ops, context, state, count);
	case WORKLOAD_WRITE:
		return workload_write(ops, context, state, true, count);
	case WORKLOAD_CAS:
		return workload_cas(ops, context, state, true, count);
	case WORKLOAD_FAA:
		return workload_faa(ops, context, state, true, count);
	case WORKLOAD_WRITE_FREE:
		return workload_write(ops, context, state, false, count);
	case WORKLOAD_CAS_FREE:
		return workload_cas(ops, context, state, false, count);
	case WORKLOAD_FAA_FREE:
		return workload_faa(ops, context, state, false, count);
	case WORKLOAD_CAS_HOT:
		return workload_hot(ops, context, state, true, count);
	case WORKLOAD_FAA_HOT:
		return workload_hot(ops, context, state, false, count);
	}
	return -EINVAL;
}

static inline double workload_seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Do the operations once with a known outcome, outside any measurement: a
 * competitor that is quick because it does nothing is found here.
 * -EILSEQ: memory did not hold what it should. */
workload_inline int workload_check(const struct workload_ops *ops,
				   void *context, struct workload_state *state,
				   const struct workload *workload)
{
	uint64_t *words = (uint64_t *)state->local, before, again, line;
	int rc;

	line = workload_line(state, 0) & ~UINT64_C(1);
	memset(words, 0, WORKLOAD_LINE);
	rc = ops->read(context, line * WORKLOAD_LINE, words, WORKLOAD_LINE);
	for (uint32_t i = 0; !rc && i < 8; i += 2)
		if (words[i] != workload_fill(line * 8 + i))
			return -EILSEQ;
	if (!rc && workload->kind == WORKLOAD_WRITE) {
		for (uint32_t i = 0; i < 8; i++)
			words[i] = state->random + i;
		rc = ops->write(context, (line | 1) * WORKLOAD_LINE, words,
				WORKLOAD_LINE);
		memset(words, 0, WORKLOAD_LINE);
		rc = rc ? rc
			: ops->read(context, (line | 1) * WORKLOAD_LINE, words,
				    WORKLOAD_LINE);
		if (!rc && words[7] != state->random + 7)
			return -EILSEQ;
	}
	if (!rc && workload->kind == WORKLOAD_FAA) {
		rc = ops->faa(context, line * WORKLOAD_LINE + 8, 1, &before);
		rc = rc ? rc
			: ops->faa(context, line * WORKLOAD_LINE + 8, 1,
				   &again);
		if (!rc && again != before + 1)
			return -EILSEQ;
	}
	return rc;
}

/* Read and write every page once, so that no round pays for filling page
 * tables or for a page's first write. */
workload_inline int workload_sweep(const struct workload_ops *ops,
				   void *context, struct workload_state *state)
{
	uint64_t before;
	int rc = 0;

	for (uint64_t line = 0; !rc && line < state->lines; line += 64) {
		rc = ops->read(context, line * WORKLOAD_LINE, state->local,
			       WORKLOAD_LINE);
		rc = rc ? rc
			: ops->faa(context, line * WORKLOAD_LINE + 8, 0,
				   &before);
	}
	return rc;
}

/* The value of the hot word now. */
workload_inline int workload_hot_load(const struct workload_ops *ops,
				      void *context,
				      struct workload_state *state)
{
	int rc = ops->read(context, workload_hot_offset(state), state->local,
			   WORKLOAD_LINE);

	state->hot = *(uint64_t *)state->local;
	return rc;
}

/* Run chunks for that long and tell the operations per second. A tenth of the
 * time goes by beforehand unmeasured: the competitor before has emptied the
 * caches. */
workload_inline int workload_run(const struct workload *workload,
				 const struct workload_ops *ops, void *context,
				 struct workload_state *from, double seconds,
				 double *rate)
{
	/* The loop has a state of its own, which can live in registers. */
	struct workload_state state = *from;
	double begin, now, warm;
	uint64_t done = 0;
	int rc;

	rc = workload_check(ops, context, &state, workload);
	if (!rc)
		rc = workload_hot_load(ops, context, &state);
	if (rc)
		return rc;
	warm = workload_seconds(workload->clock) + seconds / 10;
	do {
		rc = workload_chunk(workload, ops, context, &state);
	} while (!rc && workload_seconds(workload->clock) < warm);
	begin = now = workload_seconds(workload->clock);
	while (!rc && now < begin + seconds) {
		rc = workload_chunk(workload, ops, context, &state);
		done += workload->chunk;
		now = workload_seconds(workload->clock);
	}
	if (!rc)
		rc = workload_check(ops, context, &state, workload);
	*from = state;
	if (!rc)
		*rate = (double)done / (now - begin);
	return rc;
}

#endif
