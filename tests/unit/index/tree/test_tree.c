/* The ordered tree in the simulator: what it answers. Histories of many
 * clients, and mutants, are tests/sim/trees. */
#include "fixture/plain_tree.h"

#include "base/random.h"
#include "index/tree/layout.h"

#include <stdlib.h>

static const struct tree_options small = {.leaf_bytes = 512, .seed = 7};

struct met {
	uint64_t keys[4096];
	uint64_t values[4096];
	uint32_t count;
	int end_after; /* 0: never */
};

static int note_met(void *context, const struct entry *entry)
{
	struct met *met = context;

	if (met->count == 4096 || entry->key_size != 8)
		return -EXDEV;
	reef_key_read_u64(entry->key, 8, &met->keys[met->count]);
	if (entry->value)
		memcpy(&met->values[met->count], entry->value, 8);
	met->count++;
	return met->end_after && met->count == (uint32_t)met->end_after ? 77
									: 0;
}

/* --- many keys --- */

static int check_all(struct tree *tree, uint64_t count)
{
	struct met *met = calloc(1, sizeof(*met));
	struct tree_range range = {0};
	uint64_t i, value, next = 0;

	WANT(met);
	for (i = 0; i < count; i++) {
		if (i % 3 == 0) {
			WANT_RC(plain_tree_get(tree, i, &value), -ENOENT);
			continue;
		}
		TRY(plain_tree_get(tree, i, &value));
		WANT(value == (i % 2 ? i * 3 : i + 1));
	}
	TRY(tree_scan(tree, &range, note_met, met));
	for (i = 0; i < count; i++) {
		if (i % 3 == 0)
			continue;
		WANT(next < met->count && met->keys[next] == i);
		WANT(met->values[next] == (i % 2 ? i * 3 : i + 1));
		next++;
	}
	WANT(next == met->count);
	met->count = 0;
	range.flags = TREE_RANGE_BACKWARD;
	TRY(tree_scan(tree, &range, note_met, met));
	WANT(next == met->count);
	for (i = 0; i < count; i++)
		if (i % 3)
			WANT(met->keys[--next] == i);
	free(met);
	return 0;
}

static int fill_with(struct member *member, const struct tree_options *options,
		     uint64_t step)
{
	const uint64_t count = 2000;
	struct reef_space *space;
	struct tree_count size;
	struct tree *tree;
	uint64_t i, key, value, root;

	TRY(plain_tree_begin(member, options, &space, &tree));
	WANT_RC(plain_tree_get(tree, 1, &value), -ENOENT);
	WANT_RC(plain_tree_delete(tree, 1), -ENOENT);
	for (i = 0; i < count; i++) {
		key = i * step % count;
		TRY(plain_tree_put(tree, key, key * 3));
		TRY(plain_tree_get(tree, key, &value));
		WANT(value == key * 3);
	}
	for (i = 0; i < count; i++) {
		TRY(plain_tree_get(tree, i, &value));
		WANT(value == i * 3);
	}
	WANT_RC(plain_tree_get(tree, count, &value), -ENOENT);
	for (i = 0; i < count; i += 2)
		TRY(plain_tree_put(tree, i, i + 1));
	for (i = 0; i < count; i += 3)
		TRY(plain_tree_delete(tree, i));
	WANT_RC(plain_tree_delete(tree, 0), -ENOENT);
	TRY(check_all(tree, count));
	TRY(tree_count(tree, &size));
	WANT(size.keys == count - (count + 2) / 3);
	WANT(size.nodes > 30 && size.height > 1);
	root = tree_root(tree);
	tree_close(tree);
	TRY(tree_open(space, root, 8192, &tree));
	TRY(check_all(tree, count));
	tree_close(tree);
	return 0;
}

static int fill(struct member *member, uint64_t step)
{
	return fill_with(member, &small, step);
}

/* Every value lies outside; what names the children of a node must not. */
static int fill_outside(struct member *member)
{
	struct tree_options options = small;

	options.inline_max = 4;
	return fill_with(member, &options, 1237);
}

static int fill_ascending(struct member *member)
{
	return fill(member, 1);
}

static int fill_mixed(struct member *member)
{
	return fill(member, 1237);
}

static int fill_descending(struct member *member)
{
	return fill(member, 1999);
}

static void run_one(int (*script)(struct member *member))
{
	struct pool pool = {0};

	pool_start(&pool, 1);
	pool_add(&pool, script);
	pool_finish(&pool);
}

static void tree_ascending_keys_are_found_in_order(void **state)
{
	(void)state;
	run_one(fill_ascending);
}

static void tree_mixed_keys_are_found_in_order(void **state)
{
	(void)state;
	run_one(fill_mixed);
}

static void tree_keys_of_values_outside_are_found_in_order(void **state)
{
	(void)state;
	run_one(fill_outside);
}

static void tree_descending_keys_are_found_in_order(void **state)
{
	(void)state;
	run_one(fill_descending);
}

/* --- sizes --- */

#define LONGEST 1500100u /* each begins a byte later */

static int put_sized(void *context, const struct entry *now, struct entry *put)
{
	(void)now;
	*put = *(struct entry *)context;
	return ENTRY_PUT;
}

static int check_sized(struct tree *tree, const uint8_t *key, uint32_t key_size,
		       const struct entry *entry)
{
	struct tree_reading reading = {.key = key, .key_size = key_size};
	int rc = tree_get(tree, &reading);

	if (!rc &&
	    (reading.entry.value_size != entry->value_size ||
	     reading.entry.stamp != entry->stamp ||
	     memcmp(reading.entry.value, entry->value, entry->value_size) != 0))
		rc = -EXDEV;
	tree_reading_free(&reading);
	return rc;
}

static const uint32_t sizes[] = {0,   1,    15,	  16,	 17,	80,	300,
				 999, 4000, 9000, 16384, 65536, 1500000};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static struct entry sized(const uint8_t *bytes, uint32_t i)
{
	return (struct entry){
		.value = bytes + i,
		.value_size = sizes[i] ? sizes[i] - 1 : 0,
		.stamp = i,
	};
}

static uint32_t key_size_of(uint32_t i)
{
	return sizes[i] > 16384 ? 3 : sizes[i];
}

/* Keys and values of any size, in slots and then in records. */
static int any_size(struct member *member)
{
	struct reef_space *space;
	struct tree *tree;
	uint8_t *bytes = malloc(LONGEST);
	uint64_t key;
	uint32_t i;

	WANT(bytes);
	for (i = 0; i < LONGEST; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
	TRY(plain_tree_begin(member, NULL, &space, &tree));
	for (i = 0; i < SIZES; i++) {
		struct entry entry = sized(bytes, i);
		struct entry_change change = {
			.key = bytes + i,
			.key_size = key_size_of(i),
			.decide = put_sized,
			.context = &entry,
		};

		TRY(tree_apply(tree, &change));
		TRY(check_sized(tree, bytes + i, key_size_of(i), &entry));
	}
	for (key = 0; key < 300; key++)
		TRY(plain_tree_put(tree, key << 40, key));
	for (i = 0; i < SIZES; i++) {
		struct entry entry = sized(bytes, i);

		TRY(check_sized(tree, bytes + i, key_size_of(i), &entry));
	}
	free(bytes);
	tree_close(tree);
	return 0;
}

static void tree_keys_and_values_of_any_size_come_back(void **state)
{
	(void)state;
	run_one(any_size);
}

static int bad_input(struct member *member)
{
	static uint8_t key[TREE_KEY_MAX + 1];
	struct plain plain = {.verdict = ENTRY_PUT};
	struct entry_change change = {
		.key = key,
		.key_size = sizeof(key),
		.decide = table_decide,
		.context = &plain,
	};
	struct tree_reading reading = {.key = key, .key_size = sizeof(key)};
	struct tree_options options = {.inline_max = 1024};
	struct reef_space *space;
	struct tree *tree, *other;
	uint64_t root;

	TRY(plain_tree_begin(member, &small, &space, &tree));
	WANT_RC(tree_apply(tree, &change), -EINVAL);
	WANT_RC(tree_get(tree, &reading), -EINVAL);
	WANT_RC(tree_create(space, &options, 0, &root), -EINVAL);
	options = (struct tree_options){.leaf_bytes = 65537};
	WANT_RC(tree_create(space, &options, 0, &root), -EINVAL);
	TRY(reef_alloc(space, 65528, &root));
	WANT_RC(tree_open(space, root, 0, &other), -REEF_ECORRUPT);
	WANT_RC(tree_open(space, tree_root(tree) + 8, 0, &other),
		-REEF_ECORRUPT);
	/* An empty key is a key. */
	change.key_size = 0;
	plain.value = 5;
	TRY(tree_apply(tree, &change));
	reading.key_size = 0;
	TRY(tree_get(tree, &reading));
	WANT(reading.entry.value_size == 8 &&
	     !memcmp(reading.entry.value, &plain.value, 8));
	tree_reading_free(&reading);
	tree_close(tree);
	return 0;
}

static void tree_bad_input_is_refused(void **state)
{
	(void)state;
	run_one(bad_input);
}

/* --- ranges --- */

#define RANGE_KEYS 700u

/* What of the even numbers below 2 * RANGE_KEYS is in a range? */
static bool is_wanted(uint64_t key, uint64_t from, uint64_t to,
		      const struct tree_range *range)
{
	bool backward = range->flags & TREE_RANGE_BACKWARD;

	if (range->from && (backward ? key > from : key < from))
		return false;
	if (range->from && range->flags & TREE_RANGE_AFTER && key == from)
		return false;
	return !range->to || (backward ? key > to : key < to);
}

static int check_range(struct tree *tree, struct reef_random *random,
		       struct met *met)
{
	uint8_t from_bytes[8], to_bytes[8];
	uint64_t from = reef_random_below(random, 2 * RANGE_KEYS + 9), key, i;
	uint64_t to = reef_random_below(random, 2 * RANGE_KEYS + 9);
	struct tree_range range = {
		.from = reef_random_below(random, 4) ? from_bytes : NULL,
		.to = reef_random_below(random, 4) ? to_bytes : NULL,
		.from_size = 8,
		.to_size = 8,
		.flags = (uint32_t)reef_random_below(random, 8),
		.limit = reef_random_below(random, 2)
				 ? 0
				 : 1 + reef_random_below(random, 300),
	};
	uint32_t next = 0;

	reef_key_u64(from_bytes, from);
	reef_key_u64(to_bytes, to);
	met->count = 0;
	TRY(tree_scan(tree, &range, note_met, met));
	for (i = 0; i < RANGE_KEYS; i++) {
		key = 2 * (range.flags & TREE_RANGE_BACKWARD
				   ? RANGE_KEYS - 1 - i
				   : i);
		if (!is_wanted(key, from, to, &range) ||
		    (range.limit && next == range.limit))
			continue;
		WANT(next < met->count && met->keys[next] == key);
		next++;
	}
	WANT(next == met->count);
	return 0;
}

static int ranges(struct member *member)
{
	struct met *met = calloc(1, sizeof(*met));
	struct tree_range all = {0};
	struct reef_random random;
	struct reef_space *space;
	struct tree *tree;
	uint64_t i;

	WANT(met);
	reef_random_init(&random, 5);
	TRY(plain_tree_begin(member, &small, &space, &tree));
	TRY(tree_scan(tree, &all, note_met, met));
	WANT(!met->count);
	for (i = 0; i < RANGE_KEYS; i++)
		TRY(plain_tree_put(tree, 2 * (i * 11 % RANGE_KEYS), i));
	for (i = 0; i < 150; i++)
		TRY(check_range(tree, &random, met));
	met->count = 0;
	met->end_after = 9;
	WANT_RC(tree_scan(tree, &all, note_met, met), 77);
	WANT(met->count == 9);
	free(met);
	tree_close(tree);
	return 0;
}

static void tree_ranges_are_told_in_order(void **state)
{
	(void)state;
	run_one(ranges);
}

/* --- the end --- */

static int drop(struct member *member)
{
	struct reef_block_stats before, after;
	struct tree *tree, *again, *other, *gone;
	struct reef_space *space;
	struct met *met = calloc(1, sizeof(*met));
	struct tree_range all = {0};
	uint64_t i, value, root;

	WANT(met);
	TRY(plain_tree_begin(member, &small, &space, &tree));
	TRY(reef_block_stats(space, &before));
	TRY(tree_create(space, &small, 0, &root));
	TRY(tree_open(space, root, 0, &other));
	TRY(tree_open(space, root, 0, &again));
	for (i = 0; i < 500; i++)
		TRY(plain_tree_put(other, i, i));
	TRY(plain_tree_get(again, 7, &value));
	TRY(tree_drop(other));
	WANT_RC(plain_tree_get(again, 7, &value), -REEF_EDROPPED);
	WANT_RC(plain_tree_put(again, 8, 1), -REEF_EDROPPED);
	WANT_RC(tree_scan(again, &all, note_met, met), -REEF_EDROPPED);
	TRY(tree_drop(again));
	WANT_RC(tree_open(space, root, 0, &gone), -REEF_EDROPPED);
	TRY(reef_free(space, root, REEF_FREE_LATER));
	TRY(reef_block_stats(space, &after));
	WANT(after.bytes_live == before.bytes_live);
	free(met);
	tree_close(other);
	tree_close(again);
	tree_close(tree);
	return 0;
}

static void tree_that_is_dropped_gives_all_memory_back(void **state)
{
	(void)state;
	run_one(drop);
}

/* --- what it costs --- */

#define COST_KEYS 3000u
#define VALUE 64u

/* Keys of 16 letters. With so few of them a leaf's keys have one or two in
 * common; two more make it what it is with ten millions. */
static void cost_key(uint64_t i, uint8_t key[16])
{
	uint64_t mixed = i;

	for (uint32_t j = 0; j < 16; j++) {
		mixed = (mixed ^ mixed >> 29) * UINT64_C(0xbf58476d1ce4e5b9) +
			1;
		key[j] = (uint8_t)('a' + (j < 2 ? 0 : (mixed >> 33) % 26));
	}
}

static int cost_put(struct tree *tree, uint64_t i)
{
	uint8_t key[16], value[VALUE] = {0};
	struct entry entry = {.value = value, .value_size = VALUE};
	struct entry_change change = {
		.key = key,
		.key_size = 16,
		.decide = put_sized,
		.context = &entry,
		.ahead = &entry,
	};

	cost_key(i, key);
	memcpy(value, &i, 8);
	return tree_apply(tree, &change);
}

static int cost_get(struct tree *tree, uint64_t i)
{
	uint8_t key[16];
	struct tree_reading reading = {.key = key, .key_size = 16};
	int rc;

	cost_key(i, key);
	rc = tree_get(tree, &reading);
	tree_reading_free(&reading);
	return rc;
}

/* Renewals fall into what is measured: a few READs and round trips. */
static int measure(struct member *member, struct tree *tree,
		   int (*act)(struct tree *tree, uint64_t i), uint64_t first,
		   uint32_t count, int want, struct reef_counts *most,
		   uint32_t *within)
{
	struct reef_counts before, cost;

	*within = 0;
	for (uint64_t i = first; i < first + count; i++) {
		before = reef_count_read(&member->count);
		WANT_RC(act(tree, i), want);
		cost = reef_count_read(&member->count);
		cost = reef_counts_between(&before, &cost);
		*within += cost.round_trips <= most->round_trips &&
			   cost.memory_operations <= most->memory_operations &&
			   cost.bytes_in <= most->bytes_in;
	}
	return 0;
}

static int count_each(void *context, const struct entry *entry)
{
	(void)entry;
	++*(uint32_t *)context;
	return 0;
}

static int scan_cost(struct member *member, struct tree *tree,
		     uint32_t bytes_most)
{
	struct tree_range range = {.limit = 1000};
	struct reef_counts before, cost;
	uint32_t met = 0;

	before = reef_count_read(&member->count);
	TRY(tree_scan(tree, &range, count_each, &met));
	cost = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &cost);
	print_message("scan of %u keys: %llu round trips, %llu bytes\n", met,
		      (unsigned long long)cost.round_trips,
		      (unsigned long long)cost.bytes_in);
	WANT(met == 1000);
	/* 2 + leaves / 3, of leaves with 55 keys. */
	WANT(cost.round_trips <= 2 + 1000 / 55 / 3);
	WANT(cost.bytes_in <= bytes_most);
	return 0;
}

static int cost_of_get(struct member *member, struct tree *tree, uint64_t i,
		       uint64_t *round_trips)
{
	struct reef_counts before = reef_count_read(&member->count), cost;

	TRY(cost_get(tree, i));
	cost = reef_count_read(&member->count);
	*round_trips = reef_counts_between(&before, &cost).round_trips;
	return 0;
}

/* A handle that remembers nothing reads one node a level more than one that
 * knows all of them; and one more where a separator is too new to be among
 * its node's records. */
static int cold_cost(struct member *member, struct reef_space *space,
		     struct tree *tree)
{
	uint64_t warm, cold, all = 0, all_warm = 0, worst = 0, within = 0, i;
	struct tree_count count;
	struct tree *other;
	uint32_t levels;

	TRY(tree_count(tree, &count));
	levels = count.height + 1;
	for (i = 0; i < 50; i++) {
		TRY(cost_of_get(member, tree, i * 59, &warm));
		TRY(tree_open(space, tree_root(tree), 0, &other));
		TRY(cost_of_get(member, other, i * 59, &cold));
		tree_close(other);
		all += cold;
		all_warm += warm;
		worst = cold - warm > worst ? cold - warm : worst;
		within += cold <= warm + levels;
	}
	print_message("50 gets: %llu round trips warm, %llu cold; %llu more "
		      "at most, %llu by at most one a level; %u levels\n",
		      (unsigned long long)all_warm, (unsigned long long)all,
		      (unsigned long long)worst, (unsigned long long)within,
		      levels);
	WANT(within >= 45);
	WANT(worst <= levels + 1);
	return 0;
}

/* Count what several calls cost; so many of them must keep to `most`. */
static int want_within(struct member *member, struct tree *tree,
		       const char *what,
		       int (*act)(struct tree *tree, uint64_t i),
		       uint64_t first, uint32_t count, int rc,
		       struct reef_counts most, uint32_t least)
{
	uint32_t within;

	TRY(measure(member, tree, act, first, count, rc, &most, &within));
	print_message("%s: %u of %u in %llu round trips, %llu operations, "
		      "%llu bytes\n",
		      what, within, count, (unsigned long long)most.round_trips,
		      (unsigned long long)most.memory_operations,
		      (unsigned long long)most.bytes_in);
	WANT(within >= least);
	return 0;
}

static int count_cost(struct member *member, struct tree *tree, uint64_t keys)
{
	struct reef_counts before, cost;
	struct tree_count count;

	TRY(tree_count(tree, &count));
	before = reef_count_read(&member->count);
	TRY(tree_count(tree, &count));
	cost = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &cost);
	print_message("count: %llu bytes for %llu keys\n",
		      (unsigned long long)cost.bytes_in,
		      (unsigned long long)count.keys);
	WANT(count.keys == keys);
	WANT(cost.bytes_in <= 4 * count.keys);
	return 0;
}

static int costs(struct member *member)
{
	/* Prints are the same in each run: two keys of a leaf that have one
	 * cost a READ more. */
	const struct tree_options options = {.seed = 7};
	const struct reef_counts one = {
		.round_trips = 1, .memory_operations = 1, .bytes_in = 192};
	/* WRITE of the entry with its header, READ of the slots; CAS. */
	const struct reef_counts insert = {
		.round_trips = 2, .memory_operations = 3, .bytes_in = 176 + 8};
	/* Beside that the READ of the record, and the WRITE of its mark. */
	const struct reef_counts update = {
		.round_trips = 2, .memory_operations = 5, .bytes_in = 376};
	struct reef_block_stats stats;
	struct reef_space *space;
	struct tree *tree;
	uint64_t i;

	TRY(plain_tree_begin(member, &options, &space, &tree));
	for (i = 0; i < COST_KEYS; i++)
		TRY(cost_put(tree, i));
	TRY(reef_block_stats(space, &stats));
	print_message("%llu bytes a key\n",
		      (unsigned long long)(stats.bytes_live - 65536) /
			      COST_KEYS);
	WANT((stats.bytes_live - 65536) / COST_KEYS <= 130);
	for (i = 0; i < COST_KEYS; i++)
		TRY(cost_get(tree, i));
	/* The others are in slots: up to 20 of 64 keys. */
	TRY(want_within(member, tree, "get", cost_get, 0, COST_KEYS, 0, one,
			COST_KEYS * 4 / 5));
	TRY(want_within(member, tree, "miss", cost_get, COST_KEYS, 500, -ENOENT,
			one, 480));
	/* 1.3 of their bytes, 91 with version and length. */
	TRY(scan_cost(member, tree, 1000 * 91 * 13 / 10));
	TRY(want_within(member, tree, "insert", cost_put, COST_KEYS, 500, 0,
			insert, 450));
	TRY(want_within(member, tree, "update", cost_put, 0, 500, 0, update,
			450));
	TRY(count_cost(member, tree, COST_KEYS + 500));
	/* One key in seven is in a record and in a slot. */
	TRY(scan_cost(member, tree, 1000 * 91 * 13 / 10));
	TRY(cold_cost(member, space, tree));
	tree_close(tree);
	return 0;
}

/* --- memory comes back --- */

/* Bytes of the space that are in use, when what waits has come back. */
static int live_bytes(struct reef_space *space, uint64_t *out)
{
	struct reef_block_stats stats;
	uint32_t tries = 0;

	do {
		TRY(reef_sleep(200 * MILLISECOND));
		TRY(reef_block_stats(space, &stats));
	} while (stats.bytes_waiting && tries++ < 100);
	*out = stats.bytes_live;
	return 0;
}

/* A queue: what comes is put behind all, what goes is the first. */
static int queue(struct member *member)
{
	const uint64_t live = 2000;
	uint64_t i, value, before = 0, full = 0, most = 0, now = 0;
	struct reef_space *space;
	struct tree_count count;
	struct tree *tree;

	TRY(plain_tree_begin(member, NULL, &space, &tree));
	TRY(live_bytes(space, &before));
	for (i = 0; i < 100 * live; i++) {
		TRY(plain_tree_put(tree, i, i));
		if (i >= live)
			TRY(plain_tree_delete(tree, i - live));
		if (i + 1 == live)
			TRY(live_bytes(space, &full));
		if (i >= live && i % (10 * live) == 0) {
			TRY(live_bytes(space, &now));
			most = now > most ? now : most;
		}
	}
	TRY(live_bytes(space, &now));
	most = now > most ? now : most;
	TRY(tree_count(tree, &count));
	print_message("queue: %llu bytes at first, %llu at most; "
		      "%llu nodes for %llu keys\n",
		      (unsigned long long)(full - before),
		      (unsigned long long)(most - before),
		      (unsigned long long)count.nodes,
		      (unsigned long long)count.keys);
	WANT(count.keys == live);
	WANT(most - before <= 2 * (full - before));
	TRY(plain_tree_get(tree, 100 * live - 1, &value));
	tree_close(tree);
	return 0;
}

static void tree_queue_keeps_to_twice_its_memory(void **state)
{
	struct pool pool = {.calm = true, .ttl_ns = 10 * SECOND};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, queue);
	pool_finish(&pool);
}

/* Of a hundred keys one stays, by chance. */
static int emptied(struct member *member)
{
	const uint64_t keys = 20000;
	struct tree_count full, left;
	struct reef_space *space;
	struct tree *tree;
	uint64_t i, value, before = 0, bytes = 0, after = 0;

	TRY(plain_tree_begin(member, NULL, &space, &tree));
	TRY(live_bytes(space, &before));
	for (i = 0; i < keys; i++)
		TRY(plain_tree_put(tree, i * 7919 % keys, i));
	TRY(tree_count(tree, &full));
	TRY(live_bytes(space, &bytes));
	for (i = 0; i < keys; i++)
		if (i * 104729 % keys % 100)
			TRY(plain_tree_delete(tree, i * 104729 % keys));
	TRY(tree_count(tree, &left));
	TRY(live_bytes(space, &after));
	print_message(
		"emptied: %llu nodes for %llu keys, %llu for %llu; "
		"%llu bytes, %llu\n",
		(unsigned long long)full.nodes, (unsigned long long)full.keys,
		(unsigned long long)left.nodes, (unsigned long long)left.keys,
		(unsigned long long)(bytes - before),
		(unsigned long long)(after - before));
	WANT(left.keys == keys / 100);
	WANT(left.nodes * 5 < full.nodes);
	WANT((after - before) * 10 < bytes - before);
	for (i = 0; i < keys; i++)
		WANT_RC(plain_tree_get(tree, i, &value), i % 100 ? -ENOENT : 0);
	for (i = 0; i < keys; i++)
		TRY(plain_tree_put(tree, i, i));
	TRY(tree_count(tree, &full));
	WANT(full.keys == keys);
	tree_close(tree);
	return 0;
}

static void tree_emptied_gives_its_nodes_back(void **state)
{
	struct pool pool = {.calm = true, .ttl_ns = 10 * SECOND};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, emptied);
	pool_finish(&pool);
}

static void tree_calls_keep_to_their_budgets(void **state)
{
	struct pool pool = {.calm = true, .ttl_ns = 100 * SECOND};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, costs);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_ascending_keys_are_found_in_order),
		cmocka_unit_test(tree_mixed_keys_are_found_in_order),
		cmocka_unit_test(
			tree_keys_of_values_outside_are_found_in_order),
		cmocka_unit_test(tree_descending_keys_are_found_in_order),
		cmocka_unit_test(tree_keys_and_values_of_any_size_come_back),
		cmocka_unit_test(tree_bad_input_is_refused),
		cmocka_unit_test(tree_ranges_are_told_in_order),
		cmocka_unit_test(tree_that_is_dropped_gives_all_memory_back),
		cmocka_unit_test(tree_queue_keeps_to_twice_its_memory),
		cmocka_unit_test(tree_emptied_gives_its_nodes_back),
		cmocka_unit_test(tree_calls_keep_to_their_budgets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
