/* test_map_size.c - maps in simulation: limits of size, what is evicted, what
 * sweeps do by the way. */
#include "base/mutant.h"
#include "fixture/pool_world.h"
#include "kv/internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int open_sized(struct member *member, uint64_t size_max,
		      enum reef_map_eviction eviction,
		      struct reef_space **space, struct reef_map **map)
{
	const struct reef_map_options options = {
		.size_max = size_max,
		.eviction = eviction,
	};

	TRY(member_space(member, space));
	TRY(reef_map_open(*space, "m", &options, map));
	return 0;
}

static int put_number(struct reef_map *map, uint32_t key, uint64_t expires_ms)
{
	char value[60] = {0};

	return reef_map_put(map, &key, 4, value, sizeof(value), expires_ms,
			    NULL);
}
#define ENTRY_BYTES (40 + 4 + 60 + 8)

static int get_number(struct reef_map *map, uint32_t key)
{
	struct reef_map_value value = {0};
	int rc = reef_map_get(map, &key, 4, &value);

	reef_map_value_free(&value);
	return rc;
}

/* --- KEEP --- */

static int keep(struct member *member)
{
	struct reef_map_stats stats;
	struct reef_space *space;
	struct reef_map *map, *other;
	uint32_t i, j;
	int rc = 0;

	TRY(open_sized(member, 100 * ENTRY_BYTES, REEF_MAP_KEEP, &space, &map));
	for (i = 0; i < 200 && !rc; i++)
		rc = put_number(map, i, 0);
	WANT(rc == -ENOSPC && i == 101);
	TRY(reef_map_stats(map, &stats));
	WANT(stats.keys == 100 && stats.entry_bytes == 100 * ENTRY_BYTES &&
	     stats.size_max == 100 * ENTRY_BYTES);
	/* What does not grow is done; and what was deleted makes room. */
	TRY(put_number(map, 5, 0));
	TRY(reef_map_append(map, &(uint32_t){5}, 4, "", 0, NULL));
	WANT_RC(reef_map_append(map, &(uint32_t){5}, 4, "x", 1, NULL), -ENOSPC);
	TRY(reef_map_delete(map, &(uint32_t){7}, 4, 0));
	TRY(put_number(map, 1000, 0));
	WANT_RC(put_number(map, 1001, 0), -ENOSPC);
	/* Another hears of what we freed before it gives up. */
	TRY(reef_map_open(space, "m", NULL, &other));
	for (i = 0, rc = 0; i < 15 && !rc; i++)
		rc = put_number(other, 3000 + i, 0);
	WANT(rc == -ENOSPC);
	for (j = 10; j < 40; j++)
		TRY(reef_map_delete(map, &j, 4, 0));
	TRY(put_number(other, 2000, 0));
	reef_map_close(other);
	reef_map_close(map);
	return 0;
}

static void map_size_that_is_reached_keeps_what_is_there(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, keep);
	pool_finish(&pool);
}

/* --- the ends of extents --- */

/* Entries with such a value lie in blocks of 4,608 bytes, and are read with a
 * hint of 6,136: more than there is behind the last block of an extent. */
#define END_BYTES 4550u
#define END_KEYS 1500u

static int count_entry(void *context, const struct reef_map_entry *entry)
{
	++*(uint32_t *)context;
	return entry->value_size == END_BYTES ? 0 : -EBADMSG;
}

static int fill_extents(struct member *member)
{
	struct reef_map_value found = {0};
	struct reef_space *space;
	struct reef_map *map;
	uint32_t key, met = 0;
	uint64_t cursor = 0;
	char value[END_BYTES];

	memset(value, 'v', sizeof(value));
	TRY(open_sized(member, 0, REEF_MAP_KEEP, &space, &map));
	for (key = 0; key < END_KEYS; key++)
		TRY(reef_map_put(map, &key, 4, value, sizeof(value), 0, NULL));
	for (key = 0; key < END_KEYS; key++) {
		TRY(reef_map_get(map, &key, 4, &found));
		WANT(found.size == sizeof(value) &&
		     !memcmp(found.bytes, value, sizeof(value)));
	}
	do
		TRY(reef_map_scan(map, &cursor, 16, count_entry, &met));
	while (cursor);
	WANT(met >= END_KEYS);
	for (key = 0; key < END_KEYS; key++)
		TRY(reef_map_delete(map, &key, 4, 0));
	reef_map_value_free(&found);
	reef_map_close(map);
	return 0;
}

static void map_entries_at_the_ends_of_extents_are_there(void **state)
{
	struct pool pool = {.extent_size = 2 * MIB, .capacity = 64 * MIB};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, fill_extents);
	pool_finish(&pool);
}

/* --- eviction --- */

static int add_bytes(void *context, const struct reef_map_entry *entry)
{
	*(uint64_t *)context +=
		map_bytes_of(entry->key_size, entry->value_size);
	return 0;
}

static int real_bytes(struct reef_map *map, uint64_t *bytes)
{
	uint64_t cursor = 0;
	int rc;

	*bytes = 0;
	do
		rc = reef_map_scan(map, &cursor, 100, add_bytes, bytes);
	while (!rc && cursor);
	return rc;
}

#define SOME_MAX (UINT64_C(300) * ENTRY_BYTES)

static int fill(struct member *member)
{
	static const char large[SOME_MAX + 1];
	struct reef_map_stats stats;
	struct reef_space *space;
	struct reef_map *map;
	uint64_t bytes;
	uint32_t i;

	TRY(open_sized(member, SOME_MAX, REEF_MAP_LRU, &space, &map));
	for (i = 0; i < 2000; i++)
		TRY(put_number(map, member->number * 10000 + i, 0));
	/* A scan beside puts meets keys that were not there together. */
	for (member->pool->note[0]++; member->pool->note[0] % 2;)
		TRY(reef_sleep(MILLISECOND));
	TRY(real_bytes(map, &bytes));
	TRY(reef_map_stats(map, &stats));
	WANT(stats.evicted > 500);
	/* In so small a map the parts that handles keep to themselves, and what
	 * a sweep counts while others change it, are a tenth. */
	WANT(bytes <= SOME_MAX + SOME_MAX / 6);
	WANT(bytes >= SOME_MAX / 2);
	WANT(stats.entry_bytes <= SOME_MAX + SOME_MAX / 10);
	/* What cannot fit at all evicts nothing. */
	WANT_RC(reef_map_put(map, "x", 1, large, sizeof(large), 0, NULL),
		-ENOSPC);
	WANT_RC(reef_map_append(map, "x", 1, large, sizeof(large), NULL),
		-ENOSPC);
	TRY(real_bytes(map, &bytes));
	WANT(bytes >= SOME_MAX / 2);
	reef_map_close(map);
	return 0;
}

static void map_size_is_kept_by_eviction(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 2);
	pool_add(&pool, fill);
	pool_add(&pool, fill);
	pool_finish(&pool);
}

#define KEYS 1000u
#define REQUESTS 6000u

/* Requests of some keys far more often than of others; a miss is put. */
static double weights[KEYS];

static void weigh(void)
{
	double sum = 0;

	for (uint32_t i = 0; i < KEYS; i++)
		sum += 1 / pow(i + 1, 0.99);
	for (uint32_t i = 0; i < KEYS; i++)
		weights[i] =
			(i ? weights[i - 1] : 0) + 1 / pow(i + 1, 0.99) / sum;
}

static uint32_t choose(struct reef_random *random)
{
	double chance = reef_random_unit(random);
	uint32_t low = 0, high = KEYS - 1, middle;

	while (low < high) {
		middle = (low + high) / 2;
		if (weights[middle] < chance)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static enum reef_map_eviction way;
static uint32_t hits;

static int cache(struct member *member)
{
	struct reef_random random;
	struct reef_space *space;
	struct reef_map *map;
	uint32_t i, key;
	int rc;

	reef_random_init(&random, 1);
	hits = 0;
	TRY(open_sized(member, UINT64_C(100) * ENTRY_BYTES, way, &space, &map));
	for (i = 0; i < REQUESTS; i++) {
		/* LRU tells seconds apart, LFU forgets by the minute. */
		if (i % 4 == 0)
			TRY(reef_sleep(100 * MILLISECOND));
		key = choose(&random);
		rc = get_number(map, key);
		if (rc == -ENOENT)
			TRY(put_number(map, key, 0));
		else
			TRY(rc);
		/* Half of it is for warming up. */
		hits += !rc && i >= REQUESTS / 2;
	}
	reef_map_close(map);
	return 0;
}

static double hit_ratio(enum reef_map_eviction eviction,
			enum reef_mutant mutant)
{
	struct pool pool = {.ttl_ns = 60 * SECOND, .node_ttl_ns = 60 * SECOND};

	way = eviction;
	reef_mutate(mutant);
	pool_start(&pool, 3);
	pool_add(&pool, cache);
	assert_int_equal(pool_end(&pool), 0);
	reef_mutate(REEF_MUTANT_NONE);
	return 2.0 * hits / REQUESTS;
}

static void map_eviction_keeps_what_is_used(void **state)
{
	double chance, lru, lfu;

	(void)state;
	weigh();
	chance = hit_ratio(REEF_MAP_LRU, REEF_MUTANT_MAP_RANDOM);
	lru = hit_ratio(REEF_MAP_LRU, REEF_MUTANT_NONE);
	lfu = hit_ratio(REEF_MAP_LFU, REEF_MUTANT_NONE);
	print_message("hits of a tenth of the keys: random %.3f, LRU %.3f, LFU "
		      "%.3f; the best that can be %.3f\n",
		      chance, lru, lfu, weights[99]);
	assert_true(lru > 1.04 * chance);
	assert_true(lfu > 1.08 * chance);
}

/* The pool has no room for all of it: what is not used goes, if it may. */
static int overfill(struct member *member)
{
	static const char value[30000];
	struct reef_map_stats stats;
	struct reef_space *space;
	struct reef_map *map;
	uint32_t i;
	int rc = 0;

	TRY(open_sized(member, 0, way, &space, &map));
	for (i = 0; i < 400 && !rc; i++)
		rc = reef_map_put(map, &i, 4, value, sizeof(value), 0, NULL);
	TRY(reef_map_stats(map, &stats));
	if (way == REEF_MAP_KEEP)
		WANT(rc == -ENOSPC && stats.keys == i - 1);
	else
		WANT(!rc && stats.evicted && stats.keys + stats.evicted == 400);
	/* The last one is there, all else goes on. */
	i -= way == REEF_MAP_KEEP ? 2 : 1;
	TRY(get_number(map, i));
	TRY(reef_map_delete(map, &i, 4, 0));
	reef_map_close(map);
	return 0;
}

static void map_in_a_full_pool_evicts_if_it_may(void **state)
{
	static const enum reef_map_eviction ways[] = {REEF_MAP_KEEP,
						      REEF_MAP_LRU};

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		struct pool pool = {.capacity = 4 * MIB,
				    .extent_size = 4 * MIB};

		way = ways[i];
		pool_start(&pool, 7);
		pool_add(&pool, overfill);
		pool_finish(&pool);
	}
}

/* --- use --- */

static int use(struct member *member)
{
	struct reef_map_value value = {0};
	struct reef_space *space;
	struct reef_map *map;
	uint32_t i;

	TRY(open_sized(member, 0, REEF_MAP_LRU, &space, &map));
	TRY(put_number(map, 1, 0));
	TRY(reef_sleep(20 * SECOND));
	TRY(reef_map_peek(map, &(uint32_t){1}, 4, &value));
	WANT(value.idle_ms >= 19000 && value.idle_ms <= 21000);
	TRY(reef_map_peek(map, &(uint32_t){1}, 4, &value));
	WANT(value.idle_ms >= 19000);
	TRY(reef_map_get(map, &(uint32_t){1}, 4, &value));
	TRY(reef_map_peek(map, &(uint32_t){1}, 4, &value));
	WANT(value.idle_ms <= 1000);
	reef_map_close(map);
	TRY(reef_map_drop(space, "m"));
	TRY(open_sized(member, 0, REEF_MAP_LFU, &space, &map));
	TRY(put_number(map, 1, 0));
	TRY(reef_map_peek(map, &(uint32_t){1}, 4, &value));
	WANT(value.frequency == 5);
	for (i = 0; i < 1000; i++)
		TRY(reef_map_get(map, &(uint32_t){1}, 4, &value));
	TRY(reef_map_peek(map, &(uint32_t){1}, 4, &value));
	WANT(value.frequency > 12 && value.frequency < 30);
	i = value.frequency;
	/* A new value goes on with it. */
	TRY(put_number(map, 1, 0));
	TRY(reef_map_peek(map, &(uint32_t){1}, 4, &value));
	WANT(value.frequency == i || value.frequency == i + 1);
	i = value.frequency;
	TRY(reef_sleep(150 * SECOND));
	TRY(reef_map_peek(map, &(uint32_t){1}, 4, &value));
	WANT(value.frequency < i && value.frequency >= i - 3);
	reef_map_value_free(&value);
	reef_map_close(map);
	return 0;
}

static void map_uses_are_noted_but_not_looks(void **state)
{
	struct pool pool = {.ttl_ns = 60 * SECOND, .node_ttl_ns = 60 * SECOND};

	(void)state;
	pool_start(&pool, 4);
	pool_add(&pool, use);
	pool_finish(&pool);
}

/* --- sweeps --- */

#define EXPIRING 600u

static int sweep(struct member *member)
{
	struct reef_map_stats stats;
	struct reef_space *space;
	struct reef_map *map;
	uint64_t now, count;
	uint32_t i;

	TRY(open_sized(member, 0, REEF_MAP_KEEP, &space, &map));
	if (member->number == 1) {
		TRY(reef_map_now(map, &now));
		for (i = 0; i < EXPIRING; i++)
			TRY(put_number(map, i, now + 2000));
		TRY(put_number(map, EXPIRING, 0));
		reef_map_close(map);
		member->pool->note[0] = 1;
		return 0;
	}
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(3 * SECOND));
	/* One who changes something else does it by the way. */
	for (i = 0; i < 1000; i++) {
		TRY(put_number(map, EXPIRING, 0));
		TRY(reef_sleep(11 * MILLISECOND));
	}
	TRY(reef_map_count(map, &count));
	WANT(count == 1);
	TRY(reef_map_stats(map, &stats));
	WANT(stats.expired == EXPIRING);
	reef_map_close(map);
	return 0;
}

static void map_sweep_by_others_removes_what_nobody_touches(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 5);
	pool_add(&pool, sweep);
	pool_add(&pool, sweep);
	pool_finish(&pool);
}

/* A handle that died left its part of the size untold. */
static int recount(struct member *member)
{
	struct reef_map_stats stats;
	struct reef_space *space;
	struct reef_map *map;
	uint64_t bytes, word;
	uint32_t i;

	TRY(open_sized(member, 1000 * ENTRY_BYTES, REEF_MAP_LRU, &space, &map));
	for (i = 0; i < 500; i++)
		TRY(put_number(map, i, 0));
	map_account_flush(map);
	TRY(reef_faa(member->reef, MAP_WORD(map, entry_bytes),
		     (uint64_t)-100 * ENTRY_BYTES, &word));
	for (i = 0; i < 50; i++)
		WANT(reef_map_sweep(map, 10) == 0);
	TRY(real_bytes(map, &bytes));
	TRY(reef_map_stats(map, &stats));
	WANT(stats.entry_bytes == bytes);
	reef_map_close(map);
	return 0;
}

static void map_size_is_counted_anew_by_a_sweep(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 6);
	pool_add(&pool, recount);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_size_that_is_reached_keeps_what_is_there),
		cmocka_unit_test(map_entries_at_the_ends_of_extents_are_there),
		cmocka_unit_test(map_size_is_kept_by_eviction),
		cmocka_unit_test(map_eviction_keeps_what_is_used),
		cmocka_unit_test(map_in_a_full_pool_evicts_if_it_may),
		cmocka_unit_test(map_uses_are_noted_but_not_looks),
		cmocka_unit_test(
			map_sweep_by_others_removes_what_nobody_touches),
		cmocka_unit_test(map_size_is_counted_anew_by_a_sweep),
	};

	/* So that a seed means the same again. */
	map_tables.seed = 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
