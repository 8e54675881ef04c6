/* map_reef.c - the cases over Reef, as a program would: the public interface,
 * on a pool in another process (what `reef up` runs), options as they come.
 *
 * Over shm the client's thread does it all; over tcp the fibers of one handle.
 *
 * Thread: owner. */
#include "bench/units.h"
#include "cluster.h"
#include "map_bench.h"
#include "map_work.h"
#include "pool.h"

#include <reef/fiber.h>
#include <reef/map.h>

#define EXTENT (64 * MIB)
/* Bytes that the node lends: what keys take, what waits to be reused, and some
 * to spare. */
#define CAPACITY(keys) (400 * (keys) + 2048 * MIB)
#define LOAD 64u /* keys at once */
#define TCP_KEYS 100000u

struct hand {
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *map;
	struct reef_map_value value; /* of the thread */
};

struct ours {
	struct hand hand, second; /* second: of the other thread */
	struct map_state state;
	struct reef_sched *sched; /* tcp; else NULL */
	const char *fabric;
	uint32_t fibers;
	struct cluster cluster;
	uint8_t copies; /* in that cluster; 0: in a pool with one node */
	double bytes;	/* of memory, of a key */
	/* The round that the fibers run. */
	const struct map_work *work;
	double begin, until, seconds;
	uint64_t done;
	int rc;
};

static struct ours ours;

/* --- operations --- */

workload_inline int ours_get(void *context, const char *key, uint64_t *value)
{
	struct hand *hand = context;
	int rc = reef_map_get(hand->map, key, MAP_KEY, &hand->value);

	if (rc)
		return rc;
	if (hand->value.size != MAP_VALUE)
		return -EILSEQ;
	memcpy(value, hand->value.bytes, MAP_VALUE);
	return 0;
}

workload_inline int ours_put(void *context, const char *key,
			     const uint64_t *value)
{
	struct hand *hand = context;

	return reef_map_put(hand->map, key, MAP_KEY, value, MAP_VALUE, 0, NULL);
}

static int decide(void *context, const struct reef_map_entry *now,
		  struct reef_map_entry *put)
{
	uint64_t *value = context;

	if (!now || now->value_size != MAP_VALUE)
		return -EILSEQ;
	memcpy(value, now->value, MAP_VALUE);
	value[MAP_VALUE / 8 - 1]++;
	put->value = value;
	put->value_size = MAP_VALUE;
	return REEF_MAP_PUT;
}

workload_inline int ours_change(void *context, const char *key, uint64_t *value)
{
	struct hand *hand = context;
	struct reef_map_change change = {
		.key = key,
		.key_size = MAP_KEY,
		.decide = decide,
		.context = value,
	};

	return reef_map_apply(hand->map, &change);
}

static const struct map_ops ours_ops = {
	.get = ours_get,
	.put = ours_put,
	.change = ours_change,
	.clock = CLOCK_THREAD_CPUTIME_ID,
};

/* --- opening --- */

static int hand_open(struct hand *hand)
{
	struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.copies = ours.copies,
	};
	struct reef_options reef_options = {.fabrics = ours.fabric};
	int rc = reef_open("local", &reef_options, &hand->reef);

	rc = rc ? rc
		: reef_space_open(hand->reef, "bench", &options, &hand->space);
	return rc ? rc : reef_map_open(hand->space, "map", NULL, &hand->map);
}

static void hand_close(struct hand *hand)
{
	reef_map_value_free(&hand->value);
	reef_map_close(hand->map);
	reef_space_close(hand->space);
	reef_close(hand->reef);
	*hand = (struct hand){0};
}

static int load_keys(struct hand *hand, uint64_t keys)
{
	struct reef_map_item items[LOAD];
	uint64_t values[LOAD][MAP_VALUE / 8], at;
	char texts[LOAD][MAP_KEY];
	uint32_t count, i;
	int rc = 0;

	for (at = 0; !rc && at < keys; at += count) {
		count = keys - at < LOAD ? (uint32_t)(keys - at) : LOAD;
		for (i = 0; i < count; i++) {
			map_key(at + i, texts[i]);
			map_value(texts[i], at + i, values[i]);
			items[i] = (struct reef_map_item){
				.key = texts[i],
				.key_size = MAP_KEY,
				.value.bytes = values[i],
				.value.size = MAP_VALUE,
			};
		}
		rc = reef_map_put_many(hand->map, items, count);
		for (i = 0; !rc && i < count; i++)
			rc = items[i].status;
	}
	return rc;
}

static int add_used(void *context, const struct reef_space_info *info)
{
	*(uint64_t *)context += info->used;
	return 0;
}

static int prepare_table(void *arg)
{
	uint64_t keys = *(const uint64_t *)arg, used = 0;
	int rc = hand_open(&ours.hand);

	rc = rc ? rc : load_keys(&ours.hand, keys);
	rc = rc ? rc : reef_space_list(ours.hand.reef, add_used, &used);
	ours.bytes = (double)used / (double)keys;
	ours.rc = rc;
	if (ours.sched)
		reef_sched_stop(ours.sched);
	return 0;
}

static int start_pool(struct driver_pair *pair, uint64_t keys)
{
	const struct cluster_options options = {
		.nodes = 2,
		.lend = CAPACITY(keys),
		.extent_size = EXTENT,
	};

	return ours.copies ? bench_cluster_start(pair, &ours.cluster, &options)
			   : bench_pool_start(pair, ours.fabric, CAPACITY(keys),
					      EXTENT, false);
}

static void describe(struct driver_pair *pair, uint64_t keys)
{
	char copies[32] = "";

	if (ours.copies)
		snprintf(copies, sizeof(copies), " of two nodes, %u cop%s",
			 ours.copies, ours.copies > 1 ? "ies" : "y");
	if (ours.sched)
		snprintf(pair->description, sizeof(pair->description),
			 "map.h over tcp, on a pool%s in another process, %u "
			 "fiber%s, %llu keys",
			 copies, ours.fibers, ours.fibers == 1 ? "" : "s",
			 (unsigned long long)keys);
	else
		snprintf(pair->description, sizeof(pair->description),
			 "map.h over shm, on a pool%s in another process; %.0f "
			 "bytes of memory a key, %llu keys, %u%% in huge pages",
			 copies, ours.bytes, (unsigned long long)keys,
			 driver_huge_percent());
}

static int open_pool(struct driver_pair *pair, uint32_t fibers)
{
	uint64_t keys = pair->options.size / MAP_ENTRY;
	bool tcp = strcmp(pair->options.fabric, "tcp") == 0;
	int rc;

	/* More keys would take minutes to load, and be no slower to read. */
	if (tcp && keys > TCP_KEYS)
		keys = TCP_KEYS;
	ours.fabric = pair->options.fabric;
	ours.fibers = fibers;
	rc = start_pool(pair, keys);
	rc = rc ? rc : map_state_init(&ours.state, keys);
	if (!rc && tcp)
		rc = reef_sched_create(NULL, &ours.sched);
	if (rc)
		return rc;
	if (tcp) {
		rc = reef_fiber_spawn(ours.sched, prepare_table, &keys, NULL);
		rc = rc ? rc : reef_sched_run(ours.sched);
	} else {
		prepare_table(&keys);
	}
	rc = rc ? rc : ours.rc;
	if (rc)
		return driver_fail(pair, rc, "%s", reef_error_text(rc));
	pair->target_rests = true;
	describe(pair, keys);
	return 0;
}

static int map_reef_open(struct driver_pair *pair)
{
	return open_pool(pair, MAP_FIBERS);
}

static int map_onefiber_open(struct driver_pair *pair)
{
	return open_pool(pair, 1);
}

static int open_copies(struct driver_pair *pair, uint8_t copies)
{
	int rc;

	ours.copies = copies;
	rc = open_pool(pair, MAP_FIBERS);
	if (rc)
		bench_cluster_end(&ours.cluster);
	return rc;
}

static int map_copies_open(struct driver_pair *pair)
{
	return open_copies(pair, 2);
}

static int map_onecopy_open(struct driver_pair *pair)
{
	return open_copies(pair, 1);
}

/* --- rounds --- */

static int fiber_main(void *arg)
{
	struct map_ops ops = ours_ops;
	struct hand hand = {.map = ours.hand.map};
	struct map_state state = ours.state;
	int rc = 0;

	(void)arg;
	ours.state.random += UINT64_C(0x9e3779b97f4a7c15);
	while (!rc && workload_seconds(CLOCK_MONOTONIC) < ours.until) {
		rc = map_do(&ops, &hand, ours.work, &state);
		ours.done += !rc;
	}
	reef_map_value_free(&hand.value);
	ours.rc = ours.rc ? ours.rc : rc;
	return 0;
}

static int run_fibers(const struct map_work *work, double seconds, double *rate)
{
	int rc = 0;

	ours.work = work;
	ours.done = 0;
	ours.rc = 0;
	ours.begin = workload_seconds(CLOCK_MONOTONIC);
	ours.until = ours.begin + seconds;
	for (uint32_t i = 0; !rc && i < ours.fibers; i++)
		rc = reef_fiber_spawn(ours.sched, fiber_main, NULL, NULL);
	rc = rc ? rc : reef_sched_run(ours.sched);
	rc = rc ? rc : ours.rc;
	*rate = (double)ours.done /
		(workload_seconds(CLOCK_MONOTONIC) - ours.begin);
	return rc;
}

static int thread_run(struct map_thread *thread)
{
	return map_loop(&ours_ops, thread->context,
			map_work_find("get-uniform-2"), &thread->state,
			thread->seconds, &thread->rate);
}

/* Both handles stay from round to round, as both know the table then; they are
 * used by one thread at a time. */
static int run_threads(double seconds, double *times)
{
	struct hand *hands[MAP_THREADS] = {&ours.hand, &ours.second};
	struct map_thread threads[MAP_THREADS] = {{0}};
	double unused;
	int rc = 0;

	if (!ours.second.map) {
		rc = hand_open(&ours.second);
		rc = rc ? rc
			: map_loop(&ours_ops, &ours.second,
				   map_work_find("get-uniform-2"), &ours.state,
				   seconds, &unused);
	}
	for (uint32_t i = 0; i < MAP_THREADS; i++) {
		threads[i].context = hands[i];
		threads[i].run = thread_run;
		threads[i].state = ours.state;
	}
	return rc ? rc : map_threads(threads, MAP_THREADS, seconds, times);
}

static int run_work(const char *name, double seconds, double *rate)
{
	const struct map_work *work = map_work_find(name);

	if (ours.sched)
		return work ? run_fibers(work, seconds, rate) : -ENOSYS;
	if (work && work->threads)
		return run_threads(seconds, rate);
	return map_run(&ours_ops, &ours.hand, &ours.state, ours.bytes, name,
		       seconds, rate);
}

static int map_reef_run(struct driver_pair *pair, const char *name,
			double seconds, double *rate)
{
	int rc = run_work(name, seconds, rate);

	return rc && rc != -ENOSYS && rc != -EILSEQ
		       ? driver_fail(pair, rc, "%s", reef_error_text(rc))
		       : rc;
}

static void map_reef_close(struct driver_pair *pair)
{
	(void)pair;
	if (!ours.sched) {
		hand_close(&ours.second);
		hand_close(&ours.hand);
	}
	free(ours.state.ranks);
	reef_sched_destroy(ours.sched);
	bench_cluster_end(&ours.cluster);
}

const struct driver map_reef_driver = {
	.name = "reef",
	.open = map_reef_open,
	.run = map_reef_run,
	.close = map_reef_close,
};

const struct driver map_onefiber_driver = {
	.name = "onefiber",
	.open = map_onefiber_open,
	.run = map_reef_run,
	.close = map_reef_close,
};

const struct driver map_copies_driver = {
	.name = "reef",
	.open = map_copies_open,
	.run = map_reef_run,
	.close = map_reef_close,
};

const struct driver map_onecopy_driver = {
	.name = "one",
	.open = map_onecopy_open,
	.run = map_reef_run,
	.close = map_reef_close,
};
