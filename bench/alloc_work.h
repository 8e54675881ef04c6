/* alloc_work.h - what allocators do, word for word the same for all.
 *
 *   own-N          a block of N bytes is allocated and freed, again and again
 *   remote-free    one thread allocates blocks of 64 bytes, writes into each
 *                  and hands them over, another frees them. Only freeing is
 *                  timed, by that thread's time on the processor; the two take
 *                  turns.
 *   fragmentation  blocks of 16 bytes to 1 MiB, log-uniform, come and go at
 *                  random while as much as the memory's size is live; the
 *                  figure is the memory in use over the bytes asked for. The
 *                  rounds go on with the same blocks.
 *
 * Time is the thread's on the processor. Loops are inlined with each
 * competitor's own operations, which are a constant table.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_ALLOC_WORK_H
#define REEF_BENCH_ALLOC_WORK_H

#include "driver.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ALLOC_PAIRS 1024   /* between two looks at the clock */
#define ALLOC_HANDED 32768 /* blocks that change hands at once */
#define ALLOC_STEPS 25000  /* blocks that come in a round */
#define ALLOC_STEPS_WARM 4 /* rounds' worth before the first figure */

struct alloc_ops {
	int (*alloc)(void *context, uint64_t size, uint64_t *block);
	int (*free)(void *context, uint64_t block);
	/* Write a word at the beginning of a block. */
	int (*write)(void *context, uint64_t block, uint64_t word);
	/* See that all of a block is really there, where that is in doubt. */
	void (*touch)(void *context, uint64_t block, uint64_t size);
	/* Bytes in use, however the competitor counts them. */
	int (*used)(void *context, uint64_t *bytes);
	/* The second thread's own context. */
	int (*second_open)(void *context, void **second);
	void (*second_close)(void *second);
};

/* --- own-N --- */

workload_inline int alloc_own(const struct alloc_ops *ops, void *context,
			      uint64_t size, double seconds, double *rate)
{
	double begin, now, warm;
	uint64_t done = 0, block;
	int rc = 0;

	warm = workload_seconds(CLOCK_THREAD_CPUTIME_ID) + seconds / 10;
	begin = now = 0;
	while (!rc && (!begin || now < begin + seconds)) {
		for (uint32_t i = 0; i < ALLOC_PAIRS && !rc; i++) {
			rc = ops->alloc(context, size, &block);
			__asm__ volatile("" : : "r"(block) : "memory");
			rc = rc ? rc : ops->free(context, block);
		}
		now = workload_seconds(CLOCK_THREAD_CPUTIME_ID);
		if (begin)
			done += ALLOC_PAIRS;
		else if (now >= warm)
			begin = now;
	}
	*rate = (double)done / (now - begin);
	return rc;
}

/* --- remote-free --- */

struct alloc_hands {
	const struct alloc_ops *ops;
	void *context;	      /* the first thread's */
	_Atomic int turn;     /* whose: 0 the first, 1 the second, 2 the end */
	_Atomic int rc;	      /* of the second */
	_Atomic bool is_open; /* the second is ready */
	double spent;
	uint64_t freed;
	uint64_t blocks[ALLOC_HANDED];
};

static inline void alloc_await(struct alloc_hands *hands, int turn)
{
	int now;

	while ((now = atomic_load_explicit(&hands->turn,
					   memory_order_acquire)) != turn &&
	       now != 2)
		sched_yield();
}

workload_inline void alloc_second(struct alloc_hands *hands)
{
	void *second = NULL;
	double begin;
	int rc;

	driver_pin(1);
	rc = hands->ops->second_open(hands->context, &second);
	atomic_store(&hands->rc, rc);
	atomic_store(&hands->is_open, true);
	while (!rc) {
		alloc_await(hands, 1);
		if (atomic_load(&hands->turn) == 2)
			break;
		begin = workload_seconds(CLOCK_THREAD_CPUTIME_ID);
		for (uint32_t i = 0; i < ALLOC_HANDED && !rc; i++)
			rc = hands->ops->free(second, hands->blocks[i]);
		hands->spent +=
			workload_seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
		hands->freed += ALLOC_HANDED;
		atomic_store(&hands->rc, rc);
		atomic_store_explicit(&hands->turn, 0, memory_order_release);
	}
	if (second)
		hands->ops->second_close(second);
}

/* The first thread's part; the second runs alloc_second by `start`. */
workload_inline int alloc_remote(const struct alloc_ops *ops, void *context,
				 void *(*start)(void *hands), double seconds,
				 double *rate)
{
	struct alloc_hands *hands = calloc(1, sizeof(*hands));
	pthread_t thread;
	int rc;

	if (!hands)
		return -ENOMEM;
	hands->ops = ops;
	hands->context = context;
	rc = -pthread_create(&thread, NULL, start, hands);
	if (rc) {
		free(hands);
		return rc;
	}
	while (!atomic_load(&hands->is_open))
		sched_yield();
	rc = atomic_load(&hands->rc);
	/* The first turn only warms up. */
	for (uint64_t turn = 0; !rc && hands->spent < seconds; turn++) {
		for (uint32_t i = 0; i < ALLOC_HANDED && !rc; i++) {
			rc = ops->alloc(context, 64, &hands->blocks[i]);
			rc = rc ? rc
				: ops->write(context, hands->blocks[i], i + 1);
		}
		if (rc)
			break;
		atomic_store_explicit(&hands->turn, 1, memory_order_release);
		alloc_await(hands, 0);
		rc = atomic_load(&hands->rc);
		if (turn == 0)
			hands->spent = (double)(hands->freed = 0);
	}
	atomic_store(&hands->turn, 2);
	pthread_join(thread, NULL);
	*rate = (double)hands->freed / hands->spent;
	free(hands);
	return rc;
}

/* --- fragmentation --- */

struct alloc_blocks {
	struct {
		uint64_t block, size;
	} * all;
	uint64_t count, room, asked, random;
	bool warm;
};

workload_inline uint64_t alloc_random(struct alloc_blocks *blocks)
{
	blocks->random = blocks->random * UINT64_C(6364136223846793005) +
			 UINT64_C(1442695040888963407);
	return workload_fill(blocks->random);
}

/* 16 bytes to 1 MiB; their logarithm is uniform. */
static inline uint64_t alloc_size(struct alloc_blocks *blocks)
{
	return (uint64_t)exp2(4.0 +
			      16.0 * ((double)(alloc_random(blocks) >> 11) /
				      9007199254740992.0));
}

workload_inline int alloc_step(const struct alloc_ops *ops, void *context,
			       struct alloc_blocks *blocks, uint64_t live)
{
	uint64_t size = alloc_size(blocks), block;
	int rc = 0;

	while (!rc && blocks->asked + size > live && blocks->count) {
		uint64_t i = alloc_random(blocks) % blocks->count;

		rc = ops->free(context, blocks->all[i].block);
		blocks->asked -= blocks->all[i].size;
		blocks->all[i] = blocks->all[--blocks->count];
	}
	if (!rc && blocks->count == blocks->room) {
		uint64_t room = blocks->room ? blocks->room * 2 : 4096;
		void *more = realloc(blocks->all, room * sizeof(*blocks->all));

		if (!more)
			return -ENOMEM;
		blocks->all = more;
		blocks->room = room;
	}
	rc = rc ? rc : ops->alloc(context, size, &block);
	if (rc)
		return rc;
	ops->touch(context, block, size);
	blocks->all[blocks->count].block = block;
	blocks->all[blocks->count++].size = size;
	blocks->asked += size;
	return 0;
}

/* Run one round; *rate becomes bytes used over bytes asked for. */
workload_inline int alloc_fragment(const struct alloc_ops *ops, void *context,
				   struct alloc_blocks *blocks, uint64_t live,
				   double *rate)
{
	uint64_t steps = ALLOC_STEPS, used;
	int rc = 0;

	if (!blocks->warm)
		steps *= ALLOC_STEPS_WARM;
	for (uint64_t i = 0; i < steps && !rc; i++)
		rc = alloc_step(ops, context, blocks, live);
	blocks->warm = true;
	rc = rc ? rc : ops->used(context, &used);
	if (!rc)
		*rate = (double)used / (double)blocks->asked;
	return rc;
}

/* --- the cases --- */

workload_inline int alloc_run(const struct alloc_ops *ops, void *context,
			      void *(*start)(void *hands),
			      struct alloc_blocks *blocks, uint64_t live,
			      const char *name, double seconds, double *rate)
{
	if (strcmp(name, "own-64") == 0)
		return alloc_own(ops, context, 64, seconds, rate);
	if (strcmp(name, "own-4k") == 0)
		return alloc_own(ops, context, 4096, seconds, rate);
	if (strcmp(name, "own-32k") == 0)
		return alloc_own(ops, context, 32768, seconds, rate);
	if (strcmp(name, "remote-free") == 0)
		return alloc_remote(ops, context, start, seconds, rate);
	if (strcmp(name, "fragmentation") == 0)
		return alloc_fragment(ops, context, blocks, live, rate);
	return -ENOSYS;
}

/* The bytes that may be live: what was asked for, or what the machine has room
 * for; says so where it is less. */
static inline uint64_t alloc_live(struct driver_pair *pair)
{
	uint64_t room = (uint64_t)sysconf(_SC_AVPHYS_PAGES) *
			(uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t live = pair->options.size, most = room / 4;
	size_t used = strlen(pair->description);

	if (live <= most)
		return live;
	snprintf(pair->description + used, sizeof(pair->description) - used,
		 "; %llu MiB live, as there is no room for %llu",
		 (unsigned long long)(most >> 20),
		 (unsigned long long)(live >> 20));
	return most;
}

#endif
