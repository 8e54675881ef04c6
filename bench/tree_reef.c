/* tree_reef.c - the cases over Reef, as a program would: the public interface,
 * on a pool in another process (what `reef up` runs), options as they come but
 * for the cache, which has room for what the handle needs.
 *
 * Over shm the client's thread does it all; over tcp the fibers of one handle.
 *
 * Thread: owner. */
#include "bench/units.h"
#include "pool.h"
#include "tree_bench.h"
#include "tree_work.h"

#include <reef/fiber.h>
#include <reef/tree.h>

#define EXTENT (64 * MIB)
/* Bytes that the node lends: what keys take, what waits to be reused, and some
 * to spare. */
#define CAPACITY(keys) (600 * (keys) + 2048 * MIB)
#define LOAD 64u /* keys at once */
#define TCP_KEYS 100000u
#define CACHE(keys) (64 * (keys) + 64 * MIB)

/* What one thread or fiber works with. */
struct hand {
	struct reef_tree *tree;
	struct reef_map_value value;
};

struct ours {
	struct reef *reef;
	struct reef_space *space;
	struct hand hand;
	struct tree_state state;
	struct reef_sched *sched; /* tcp; else NULL */
	const char *fabric;
	uint64_t keys;
	uint32_t fibers;
	double bytes; /* of memory, of a key */
	uint64_t cache;
	/* The round that the fibers run. */
	const struct tree_work *work;
	double until;
	uint64_t done;
	int rc;
};

static struct ours ours;

/* --- operations --- */

static int ours_get(void *context, const char *key, uint64_t *value)
{
	struct hand *hand = context;
	int rc = reef_tree_get(hand->tree, key, ours.state.kind->key,
			       &hand->value);

	if (rc)
		return rc;
	if (hand->value.size != ours.state.kind->value)
		return -EILSEQ;
	memcpy(value, hand->value.bytes, ours.state.kind->value);
	return 0;
}

static int ours_put(void *context, const char *key, const uint64_t *value)
{
	struct hand *hand = context;

	return reef_tree_put(hand->tree, key, ours.state.kind->key, value,
			     ours.state.kind->value, 0, NULL);
}

static int see_entry(void *context, const struct reef_map_entry *entry)
{
	if (entry->key_size != ours.state.kind->key ||
	    entry->value_size != ours.state.kind->value)
		return -EILSEQ;
	tree_see(context, entry->key, entry->value);
	return 0;
}

static int ours_scan(void *context, const char *key, uint32_t limit,
		     struct tree_seen *seen)
{
	struct hand *hand = context;
	const struct reef_range range = {
		.from = key,
		.from_size = ours.state.kind->key,
		.limit = limit,
	};

	return reef_tree_scan(hand->tree, &range, see_entry, seen);
}

static const struct tree_ops ours_ops = {
	.get = ours_get,
	.put = ours_put,
	.scan = ours_scan,
	.clock = CLOCK_THREAD_CPUTIME_ID,
};

/* --- opening --- */

static int open_tree(void)
{
	const struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	const struct reef_options reef_options = {.fabrics = ours.fabric};
	const struct reef_tree_options options = {
		.cache_bytes = CACHE(ours.keys),
	};
	int rc = reef_open("local", &reef_options, &ours.reef);

	rc = rc ? rc : reef_space_open(ours.reef, "bench", &make, &ours.space);
	return rc ? rc
		  : reef_tree_open(ours.space, "tree", &options,
				   &ours.hand.tree);
}

static int load_keys(void)
{
	struct reef_map_item items[LOAD];
	uint64_t values[LOAD][TREE_VALUE_MAX / 8], at;
	const struct tree_kind *kind = ours.state.kind;
	char texts[LOAD][TREE_KEY_MAX];
	uint32_t count, i;
	int rc = 0;

	for (at = 0; !rc && at < ours.keys; at += count) {
		count = ours.keys - at < LOAD ? (uint32_t)(ours.keys - at)
					      : LOAD;
		for (i = 0; i < count; i++) {
			tree_key(kind, at + i, texts[i]);
			tree_value(kind, texts[i], at + i, values[i]);
			items[i] = (struct reef_map_item){
				.key = texts[i],
				.key_size = kind->key,
				.value.bytes = values[i],
				.value.size = kind->value,
			};
		}
		rc = reef_tree_put_many(ours.hand.tree, items, count);
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

static int prepare_tree(void *arg)
{
	struct reef_tree_stats stats = {0};
	uint64_t used = 0;
	int rc = open_tree();

	(void)arg;
	rc = rc ? rc : load_keys();
	rc = rc ? rc : reef_space_list(ours.reef, add_used, &used);
	rc = rc ? rc : reef_tree_stats(ours.hand.tree, &stats);
	ours.bytes = (double)used / (double)ours.keys;
	ours.cache = stats.cache_bytes;
	ours.rc = rc;
	if (ours.sched)
		reef_sched_stop(ours.sched);
	return 0;
}

static int open_pool(struct driver_pair *pair, uint32_t fibers)
{
	bool tcp = strcmp(pair->options.fabric, "tcp") == 0;
	int rc;

	ours.keys = tree_keys(pair->options.size);
	/* More keys would take minutes to load, and be no slower to read. */
	if (tcp && ours.keys > TCP_KEYS)
		ours.keys = TCP_KEYS;
	ours.fabric = tcp ? "tcp" : "shm";
	ours.fibers = fibers;
	rc = bench_pool_start(pair, ours.fabric, CAPACITY(ours.keys), EXTENT,
			      false);
	rc = rc ? rc : tree_state_init(&ours.state, &pair->options, ours.keys);
	if (!rc && tcp)
		rc = reef_sched_create(NULL, &ours.sched);
	if (rc)
		return rc;
	if (tcp) {
		rc = reef_fiber_spawn(ours.sched, prepare_tree, NULL, NULL);
		rc = rc ? rc : reef_sched_run(ours.sched);
	} else {
		prepare_tree(NULL);
	}
	rc = rc ? rc : ours.rc;
	if (rc)
		return driver_fail(pair, rc, "%s", reef_error_text(rc));
	pair->target_rests = true;
	snprintf(pair->description, sizeof(pair->description),
		 "tree.h over %s, %llu keys; %.0f bytes of memory a key, %.1f "
		 "of cache, %u%% in huge pages",
		 ours.fabric, (unsigned long long)ours.keys, ours.bytes,
		 (double)ours.cache / (double)ours.keys, driver_huge_percent());
	return 0;
}

static int tree_reef_open(struct driver_pair *pair)
{
	return open_pool(pair, MAP_FIBERS);
}

static int tree_onefiber_open(struct driver_pair *pair)
{
	return open_pool(pair, 1);
}

/* --- rounds --- */

static int fiber_main(void *arg)
{
	struct hand hand = {.tree = ours.hand.tree};
	struct tree_state state = ours.state;
	int rc = 0;

	(void)arg;
	ours.state.map.random += UINT64_C(0x9e3779b97f4a7c15);
	while (rc >= 0 && workload_seconds(CLOCK_MONOTONIC) < ours.until) {
		rc = tree_do(&ours_ops, &hand, ours.work, &state);
		ours.done += rc > 0;
	}
	reef_map_value_free(&hand.value);
	ours.rc = ours.rc ? ours.rc : rc < 0 ? rc : 0;
	return 0;
}

static int run_fibers(const struct tree_work *work, double seconds,
		      double *rate)
{
	double begin = workload_seconds(CLOCK_MONOTONIC);
	int rc = 0;

	ours.work = work;
	ours.done = 0;
	ours.rc = 0;
	ours.until = begin + seconds;
	for (uint32_t i = 0; !rc && i < ours.fibers; i++)
		rc = reef_fiber_spawn(ours.sched, fiber_main, NULL, NULL);
	rc = rc ? rc : reef_sched_run(ours.sched);
	rc = rc ? rc : ours.rc;
	*rate = (double)ours.done / (workload_seconds(CLOCK_MONOTONIC) - begin);
	return rc;
}

static int run_work(const char *name, double seconds, double *rate)
{
	const struct tree_work *work = tree_work_find(name);

	if (ours.sched)
		return work ? run_fibers(work, seconds, rate) : -ENOSYS;
	return tree_run(&ours_ops, &ours.hand, &ours.state, ours.bytes, name,
			seconds, rate);
}

static int tree_reef_run(struct driver_pair *pair, const char *name,
			 double seconds, double *rate)
{
	int rc = run_work(name, seconds, rate);

	return rc && rc != -ENOSYS && rc != -EILSEQ
		       ? driver_fail(pair, rc, "%s", reef_error_text(rc))
		       : rc;
}

static void tree_reef_close(struct driver_pair *pair)
{
	(void)pair;
	if (!ours.sched) {
		reef_map_value_free(&ours.hand.value);
		reef_tree_close(ours.hand.tree);
		reef_space_close(ours.space);
		reef_close(ours.reef);
	}
	free(ours.state.map.ranks);
	reef_sched_destroy(ours.sched);
}

const struct driver tree_reef_driver = {
	.name = "reef",
	.open = tree_reef_open,
	.run = tree_reef_run,
	.close = tree_reef_close,
};

const struct driver tree_onefiber_driver = {
	.name = "onefiber",
	.open = tree_onefiber_open,
	.run = tree_reef_run,
	.close = tree_reef_close,
};
