/* map_work.h - what is done with a map, word for word the same for all.
 *
 *   get, put     one key after the other, all of them there, drawn evenly
 *                (uniform) or by Zipf's law with 0.99, the popular ones all
 *                over the keys (zipf)
 *   ycsb-a b c   of the Yahoo! Cloud Serving Benchmark: half, one in twenty,
 *                none of the operations puts, the others gets, by Zipf
 *   ycsb-d       one in twenty is a key that was not there; gets go by Zipf to
 *                the latest
 *   ycsb-f       half gets, half read a value and write it changed
 *   ...-barrier  with a barrier between two operations, see (2)
 *   ...-2        two threads; the figure is how many times one thread's rate
 *   ...-tcp16    16 fibers
 *   ...-shm      get and put as above, for copies beside one copy
 *   ...-tcp      the same by 16 fibers
 *
 * (1) Keys are 16 bytes of text (memcached takes no others), values 64 bytes
 *     that begin with their key's first half: what is read is the caller's own
 *     copy, and looked at (-EILSEQ).
 * (2) Gets are a plain loop, as a program has it: the result of each is in the
 *     caller's hands, and looked at, before the next is called. A processor
 *     runs ahead of such a loop as far as its window reaches, and has the
 *     misses of neighbours overlap if what is called is short; that is worth as
 *     much to a program as to the loop. So keys are drawn some dozens at a
 *     time, lest drawing them fill the window. What an operation takes by
 *     itself the case with a barrier of the processor between two tells; the
 *     other cases, which write, have it, too.
 * (3) Which keys are popular is drawn beforehand: a million ranks.
 * (4) Time is the thread's on the processor where an operation is its own work
 *     alone, and the clock on the wall where a server answers.
 *
 * Loops are inlined with each competitor's own operations, which are a constant
 * table.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_MAP_WORK_H
#define REEF_BENCH_MAP_WORK_H

#include "driver.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MAP_KEY 16
#define MAP_VALUE 64
#define MAP_ENTRY (MAP_KEY + MAP_VALUE) /* driver_options.size in these */
#define MAP_THETA 0.99
#define MAP_RANKS (1u << 20)
#define MAP_CHUNK 64u /* operations between two looks at the clock */
#define MAP_THREADS 2
#define MAP_TURNS 5 /* odd */
#define MAP_FIBERS 16

enum map_drawn { MAP_UNIFORM, MAP_ZIPF, MAP_LATEST };

struct map_work {
	const char *name;
	enum map_drawn drawn;
	/* How many of 100 operations; the others are gets. */
	uint32_t puts, inserts, changes;
	uint32_t threads; /* 0: one */
	uint32_t fibers;  /* 0: none */
	bool barrier;	  /* of gets alone; others have it anyway */
};

static const struct map_work map_works[] = {
	{.name = "get-uniform"},
	{.name = "get-zipf", .drawn = MAP_ZIPF},
	{.name = "get-uniform-barrier", .barrier = true},
	{.name = "put-uniform", .puts = 100},
	{.name = "put-zipf", .drawn = MAP_ZIPF, .puts = 100},
	{.name = "ycsb-a", .drawn = MAP_ZIPF, .puts = 50},
	{.name = "ycsb-b", .drawn = MAP_ZIPF, .puts = 5},
	{.name = "ycsb-c", .drawn = MAP_ZIPF},
	{.name = "ycsb-d", .drawn = MAP_LATEST, .inserts = 5},
	{.name = "ycsb-f", .drawn = MAP_ZIPF, .changes = 50},
	{.name = "get-uniform-2", .threads = MAP_THREADS},
	{.name = "get-uniform-tcp16", .fibers = MAP_FIBERS},
	{.name = "get-shm"},
	{.name = "put-shm", .puts = 100},
	{.name = "get-tcp", .fibers = MAP_FIBERS},
	{.name = "put-tcp", .puts = 100, .fibers = MAP_FIBERS},
};

#define MAP_BYTES "bytes-per-key" /* a case of its own: no work */

static inline const struct map_work *map_work_find(const char *name)
{
	for (size_t i = 0; i < sizeof(map_works) / sizeof(map_works[0]); i++)
		if (strcmp(map_works[i].name, name) == 0)
			return &map_works[i];
	return NULL;
}

/* What a competitor can do. 0, or -errno. */
struct map_ops {
	int (*get)(void *context, const char *key, uint64_t *value);
	int (*put)(void *context, const char *key, const uint64_t *value);
	/* Read, add one to the last word, write; NULL: by the two above. */
	int (*change)(void *context, const char *key, uint64_t *value);
	clockid_t clock;
};

struct map_state {
	uint64_t keys;	 /* that are there: 0 to keys - 1 */
	uint64_t loaded; /* of these, at first; ranks are of so many */
	uint64_t random;
	uint32_t *ranks, next_rank;
};

/* --- keys and values --- */

/* Write 32 bits as eight letters. */
workload_inline uint64_t map_letters(uint64_t bits)
{
	bits = (bits | bits << 16) & UINT64_C(0x0000ffff0000ffff);
	bits = (bits | bits << 8) & UINT64_C(0x00ff00ff00ff00ff);
	bits = (bits | bits << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	return bits + UINT64_C(0x6161616161616161);
}

/* Make the key of a number. Each has another: workload_fill is one to one. */
workload_inline void map_key(uint64_t number, char key[MAP_KEY])
{
	uint64_t spread = workload_fill(number), half;

	half = map_letters(spread & UINT32_MAX);
	memcpy(key, &half, 8);
	half = map_letters(spread >> 32);
	memcpy(key + 8, &half, 8);
}

workload_inline void map_value(const char *key, uint64_t mark, uint64_t *value)
{
	memcpy(value, key, 8);
	for (uint32_t i = 1; i < MAP_VALUE / 8; i++)
		value[i] = mark;
}

workload_inline int map_check(const char *key, const uint64_t *value)
{
	return memcmp(key, value, 8) ? -EILSEQ : 0;
}

/* --- which one --- */

/* Ranks by Zipf's law, drawn as J. Gray and others do ("Quickly generating
 * billion-record synthetic databases"). */
static inline int map_state_init(struct map_state *state, uint64_t keys)
{
	double zeta = 0, two = 1 + pow(0.5, MAP_THETA), eta, alpha, u;

	*state = (struct map_state){
		.keys = keys,
		.loaded = keys,
		.random = 1,
		.ranks = malloc(MAP_RANKS * sizeof(*state->ranks)),
	};
	if (!state->ranks)
		return -ENOMEM;
	for (uint64_t i = 1; i <= keys; i++)
		zeta += pow((double)i, -MAP_THETA);
	alpha = 1 / (1 - MAP_THETA);
	eta = (1 - pow(2.0 / (double)keys, 1 - MAP_THETA)) / (1 - two / zeta);
	for (uint32_t i = 0; i < MAP_RANKS; i++) {
		u = (double)(workload_fill(i) >> 11) / (double)(1ull << 53);
		if (u * zeta < 1)
			state->ranks[i] = 0;
		else if (u * zeta < two)
			state->ranks[i] = 1;
		else
			state->ranks[i] =
				(uint32_t)((double)(keys - 1) *
					   pow(eta * u - eta + 1, alpha));
	}
	return 0;
}

workload_inline uint64_t map_random(struct map_state *state)
{
	state->random = state->random * UINT64_C(6364136223846793005) +
			UINT64_C(1442695040888963407);
	return state->random >> 32;
}

workload_inline uint64_t map_draw(struct map_state *state, enum map_drawn drawn)
{
	uint64_t rank;

	if (drawn == MAP_UNIFORM)
		return (map_random(state) * state->loaded) >> 32;
	rank = state->ranks[state->next_rank++ % MAP_RANKS];
	if (drawn == MAP_LATEST)
		return state->keys - 1 - rank;
	return ((workload_fill(rank + state->loaded) >> 32) * state->loaded) >>
	       32;
}

/* --- the loop --- */

workload_inline int map_change(const struct map_ops *ops, void *context,
			       const char *key, uint64_t *value)
{
	int rc;

	if (ops->change)
		return ops->change(context, key, value);
	rc = ops->get(context, key, value);
	if (rc)
		return rc;
	value[MAP_VALUE / 8 - 1]++;
	return ops->put(context, key, value);
}

workload_inline int map_do(const struct map_ops *ops, void *context,
			   const struct map_work *work, struct map_state *state)
{
	uint64_t value[MAP_VALUE / 8];
	uint32_t dice = 100;
	char key[MAP_KEY];
	int rc;

	if (work->puts % 100 || work->inserts || work->changes)
		dice = (uint32_t)((map_random(state) * 100) >> 32);
	else if (work->puts)
		dice = 0;
	if (dice < work->inserts) {
		map_key(state->keys, key);
		map_value(key, state->random, value);
		rc = ops->put(context, key, value);
		state->keys += !rc;
		return rc;
	}
	map_key(map_draw(state, work->drawn), key);
	if (dice < work->puts) {
		map_value(key, state->random, value);
		return ops->put(context, key, value);
	}
	rc = dice < work->changes ? map_change(ops, context, key, value)
				  : ops->get(context, key, value);
	return rc ? rc : map_check(key, value);
}

static inline bool map_only_gets(const struct map_work *work)
{
	return !work->puts && !work->inserts && !work->changes;
}

workload_inline int map_gets(const struct map_ops *ops, void *context,
			     const struct map_work *work,
			     struct map_state *state)
{
	uint64_t value[MAP_VALUE / 8];
	char keys[MAP_CHUNK][MAP_KEY];
	uint32_t i;
	int rc;

	for (i = 0; i < MAP_CHUNK; i++)
		map_key(map_draw(state, work->drawn), keys[i]);
	for (i = 0; i < MAP_CHUNK; i++) {
		rc = ops->get(context, keys[i], value);
		rc = rc ? rc : map_check(keys[i], value);
		if (__builtin_expect(rc != 0, 0))
			return rc;
		if (work->barrier)
			workload_serialize();
	}
	return 0;
}

workload_inline int map_mixed(const struct map_ops *ops, void *context,
			      const struct map_work *work,
			      struct map_state *state)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < MAP_CHUNK; i++) {
		rc = map_do(ops, context, work, state);
		workload_serialize();
	}
	return rc;
}

/* Run the loop for about so many seconds. *rate: operations a second. */
workload_inline int map_loop(const struct map_ops *ops, void *context,
			     const struct map_work *work,
			     struct map_state *state, double seconds,
			     double *rate)
{
	double begin = workload_seconds(ops->clock), now = begin;
	uint64_t done = 0;
	int rc;

	while (now - begin < seconds) {
		rc = map_only_gets(work) ? map_gets(ops, context, work, state)
					 : map_mixed(ops, context, work, state);
		if (rc)
			return rc;
		done += MAP_CHUNK;
		now = workload_seconds(ops->clock);
	}
	*rate = (double)done / (now - begin);
	return 0;
}

/* A driver's run, of one thread. bytes: of memory, of a key. */
workload_inline int map_run(const struct map_ops *ops, void *context,
			    struct map_state *state, double bytes,
			    const char *name, double seconds, double *rate)
{
	const struct map_work *work = map_work_find(name);

	if (strcmp(name, MAP_BYTES) == 0) {
		*rate = bytes;
		return 0;
	}
	if (!work || work->threads || work->fibers)
		return -ENOSYS;
	return map_loop(ops, context, work, state, seconds, rate);
}

/* --- two threads --- */

/* A thread of a case with several. run: as map_loop, with what is its own. */
struct map_thread {
	pthread_t thread;
	uint32_t index;
	struct map_state state;
	void *context;
	double seconds, rate;
	int (*run)(struct map_thread *thread);
	pthread_barrier_t *begin;
	int rc;
};

static inline void *map_thread_main(void *argument)
{
	struct map_thread *thread = argument;

	driver_pin(thread->index);
	pthread_barrier_wait(thread->begin);
	thread->rc = thread->run(thread);
	return NULL;
}

/* Run some threads at once, each on its processor. *rate: all together. */
static inline int map_threads_run(struct map_thread *threads, uint32_t count,
				  double *rate)
{
	pthread_barrier_t begin;
	int rc = 0;

	pthread_barrier_init(&begin, NULL, count);
	for (uint32_t i = 0; i < count; i++) {
		threads[i].begin = &begin;
		if (pthread_create(&threads[i].thread, NULL, map_thread_main,
				   &threads[i]))
			abort(); /* the others wait for it */
	}
	*rate = 0;
	for (uint32_t i = 0; i < count; i++) {
		pthread_join(threads[i].thread, NULL);
		rc = rc ? rc : threads[i].rc;
		*rate += threads[i].rate;
	}
	pthread_barrier_destroy(&begin);
	return rc;
}

static inline int map_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Run each thread alone, then all at once. *times: how many times the rate of
 * one they reach together. By turns, MAP_TURNS times, because what else the
 * machine does comes and goes, and processors are not all the same; the median
 * of these. */
static inline int map_threads(struct map_thread *threads, uint32_t count,
			      double seconds, double *times)
{
	double ratios[MAP_TURNS], alone, together, one;
	int rc = 0;

	for (uint32_t i = 0; i < count; i++) {
		threads[i].index = i;
		threads[i].seconds = seconds / (MAP_TURNS * (count + 1));
		threads[i].state.random += i;
	}
	for (uint32_t turn = 0; turn < MAP_TURNS; turn++) {
		alone = 0;
		for (uint32_t i = 0; !rc && i < count; i++) {
			rc = map_threads_run(&threads[i], 1, &one);
			alone += one / count;
		}
		rc = rc ? rc : map_threads_run(threads, count, &together);
		if (rc)
			return rc;
		ratios[turn] = together / alone;
	}
	qsort(ratios, MAP_TURNS, sizeof(ratios[0]), map_by_value);
	*times = ratios[MAP_TURNS / 2];
	return 0;
}

/* --- loading --- */

/* Load keys 0 to keys - 1, by the competitor's own quickest way. */
workload_inline int map_load(uint64_t keys, void *context,
			     int (*add)(void *context, const char *key,
					const uint64_t *value))
{
	uint64_t value[MAP_VALUE / 8];
	char key[MAP_KEY];
	int rc = 0;

	for (uint64_t i = 0; !rc && i < keys; i++) {
		map_key(i, key);
		map_value(key, i, value);
		rc = add(context, key, value);
	}
	return rc;
}

#endif
