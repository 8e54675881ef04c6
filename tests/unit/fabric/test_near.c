/* test_near.c - operations in place: batches of an embedded pool, and a map's
 * keys read by one thread while others change it and it grows. */
#include "fixture/seeds.h"
#include "kv/internal.h"
#include "pool/client/handle/handle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <reef/map.h>
#include <reef/reef.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define POOL "embedded:256M"

static const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};

static void open_space(struct reef **reef, struct reef_space **space)
{
	assert_int_equal(reef_open(POOL, NULL, reef), 0);
	assert_int_equal(reef_space_open(*reef, "near", &create, space), 0);
}

/* --- batches --- */

static void near_batch_takes_effect_in_turn(void **state)
{
	struct reef_access accesses[6];
	struct reef_space *space;
	struct reef *reef;
	uint64_t at, first[4] = {1, 2, 3, 4}, seen[4] = {0}, after[4] = {0};

	(void)state;
	open_space(&reef, &space);
	assert_int_equal(reef_alloc(space, 256, &at), 0);
	accesses[0] = (struct reef_access){.kind = REEF_WRITE,
					   .address = at,
					   .local = first,
					   .length = 32};
	accesses[1] = (struct reef_access){
		.kind = REEF_READ, .address = at, .local = seen, .length = 32};
	accesses[2] = (struct reef_access){
		.kind = REEF_CAS, .address = at, .compare = 1, .operand = 10};
	accesses[3] = (struct reef_access){
		.kind = REEF_CAS, .address = at, .compare = 1, .operand = 11};
	accesses[4] = (struct reef_access){
		.kind = REEF_FAA, .address = at + 8, .operand = 5};
	accesses[5] = (struct reef_access){
		.kind = REEF_READ, .address = at, .local = after, .length = 32};
	/* The second time nothing is new to the handle. */
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(reef_execute(reef, accesses, 6), 0);
		assert_memory_equal(seen, first, 32);
		assert_int_equal(accesses[2].result, 1);
		assert_int_equal(accesses[3].result, 10);
		assert_int_equal(accesses[4].result, 2);
		assert_int_equal(after[0], 10);
		assert_int_equal(after[1], 7);
	}
	reef_close(reef);
}

static void near_batch_with_one_malformed_does_nothing(void **state)
{
	uint64_t at, ours = 1, theirs = 2, seen = 0;
	struct reef_access accesses[2] = {
		{.kind = REEF_WRITE, .local = &theirs, .length = 8},
		{.kind = REEF_CAS, .compare = 2, .operand = 3},
	};
	struct reef_space *space;
	struct reef *reef;

	(void)state;
	open_space(&reef, &space);
	assert_int_equal(reef_alloc(space, 64, &at), 0);
	assert_int_equal(reef_write(reef, at, &ours, 8), 0);
	accesses[0].address = at;
	accesses[1].address = at + 4;
	assert_int_equal(reef_execute(reef, accesses, 2), -EINVAL);
	assert_int_equal(reef_read(reef, at, &seen, 8), 0);
	assert_int_equal(seen, 1);
	/* One that is outside of the memory ends the batch, too. */
	accesses[1].address = UINT64_MAX & ~UINT64_C(7);
	assert_int_equal(reef_execute(reef, accesses, 2), -EFAULT);
	reef_close(reef);
}

/* Any length and any place inside a block, in place or not. */
static void near_bytes_are_what_was_written(void **state)
{
	static char bytes[100000], seen[100000];
	const uint32_t sizes[] = {1, 7, 8, 63, 64, 129, 4096, 65535, 65543};
	struct reef_space *space;
	struct reef *reef;
	uint64_t at;

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 31 + i / 251);
	open_space(&reef, &space);
	assert_int_equal(reef_alloc(space, sizeof(bytes), &at), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint32_t shift = 0; shift < 9; shift++) {
			memset(seen, 0, sizes[i]);
			assert_int_equal(reef_write(reef, at + shift, bytes + i,
						    sizes[i]),
					 0);
			assert_int_equal(
				reef_read(reef, at + shift, seen, sizes[i]), 0);
			assert_memory_equal(seen, bytes + i, sizes[i]);
		}
	reef_close(reef);
}

/* --- a map --- */

struct shared {
	_Atomic uint64_t inserted; /* keys below it are there, or were */
	_Atomic bool stopping;
	uint64_t keys;
	_Atomic int rc;
};

/* A value is its key, eight times, and a number. */
static int put(struct reef_map *map, uint64_t key, uint64_t number)
{
	uint64_t value[9];

	for (uint32_t i = 0; i < 8; i++)
		value[i] = key;
	value[8] = number;
	return reef_map_put(map, &key, 8, value, sizeof(value), 0, NULL);
}

/* limit: write_some was there at least. */
static int check(uint64_t key, uint64_t limit,
		 const struct reef_map_value *value)
{
	uint64_t last = (key - 1) / 4 * 8 + 7; /* that changed it, if 4n+1 */
	const uint64_t *words = value->bytes;

	if (value->size != 72)
		return -EXDEV;
	for (uint32_t i = 0; i < 8; i++)
		if (words[i] != key)
			return -EXDEV;
	return key % 4 == 1 && last < limit && words[8] != last ? -ESTALE : 0;
}

/* Key 4n is deleted as soon as 4n+3 is there; the others stay. */
static int write_some(struct reef_map *map, struct shared *shared)
{
	uint64_t key;
	int rc = 0;

	for (key = 0; !rc && key < shared->keys; key++) {
		rc = put(map, key, 0);
		if (!rc && key % 4 == 3) {
			uint64_t gone = key - 3;

			rc = reef_map_delete(map, &gone, 8, 0);
			rc = rc ? rc : put(map, key / 8 * 4 + 1, key);
		}
		if (key % 4 == 3)
			atomic_store(&shared->inserted, key + 1);
	}
	return rc;
}

static int read_some(struct reef_map *map, struct shared *shared)
{
	struct reef_map_item items[16] = {0};
	struct reef_map_value value = {0};
	uint64_t keys[16], seed = 1, key, limit;
	int rc = 0;

	while (!rc && !atomic_load(&shared->stopping)) {
		limit = atomic_load(&shared->inserted);
		if (!limit)
			continue;
		for (uint32_t i = 0; i < 16; i++) {
			seed = seed * UINT64_C(6364136223846793005) + 1;
			keys[i] = (seed >> 33) % limit;
			items[i].key = &keys[i];
			items[i].key_size = 8;
		}
		key = keys[0];
		rc = reef_map_get(map, &key, 8, &value);
		if (key % 4 == 0)
			rc = rc == -ENOENT ? 0 : rc ? rc : -ENOTUNIQ;
		else
			rc = rc ? rc : check(key, limit, &value);
		rc = rc ? rc : reef_map_get_many(map, items, 16);
		for (uint32_t i = 0; !rc && i < 16; i++) {
			rc = items[i].status;
			if (keys[i] % 4 == 0)
				rc = rc == -ENOENT ? 0 : rc ? rc : -ENOTUNIQ;
			else
				rc = rc ? rc
					: check(keys[i], limit,
						&items[i].value);
		}
	}
	for (uint32_t i = 0; i < 16; i++)
		reef_map_value_free(&items[i].value);
	reef_map_value_free(&value);
	return rc;
}

static int with_map(struct shared *shared,
		    int (*work)(struct reef_map *map, struct shared *shared))
{
	struct reef_space *space;
	struct reef_map *map;
	struct reef *reef;
	int rc;

	rc = reef_open(POOL, NULL, &reef);
	if (rc)
		return rc;
	rc = reef_space_open(reef, "near", &create, &space);
	rc = rc ? rc : reef_map_open(space, "map", NULL, &map);
	if (!rc) {
		rc = work(map, shared);
		reef_map_close(map);
	}
	reef_close(reef);
	return rc;
}

static void *reader_main(void *arg)
{
	struct shared *shared = arg;
	int rc = with_map(shared, read_some);

	if (rc)
		atomic_store(&shared->rc, rc);
	return NULL;
}

static void near_keys_stay_found_while_the_map_grows(void **state)
{
	struct shared shared = {.keys = seeds_of(40000, 1000000)};
	struct reef *reef;
	pthread_t reader;
	int rc;

	(void)state;
	/* So that the pool outlives both. */
	assert_int_equal(reef_open(POOL, NULL, &reef), 0);
	assert_int_equal(pthread_create(&reader, NULL, reader_main, &shared),
			 0);
	rc = with_map(&shared, write_some);
	atomic_store(&shared.stopping, true);
	pthread_join(reader, NULL);
	reef_close(reef);
	assert_int_equal(rc, 0);
	assert_int_equal(atomic_load(&shared.rc), 0);
}

/* What get notes of a use, where it is: only of one that is old. */
static void near_get_notes_that_a_key_was_used(void **state)
{
	struct reef_map_value value = {0};
	struct reef_space *space;
	struct reef_map *map;
	struct reef *reef;

	(void)state;
	open_space(&reef, &space);
	assert_int_equal(reef_map_open(space, "uses", NULL, &map), 0);
	assert_int_equal(reef_map_put(map, "key", 3, "value", 5, 0, NULL), 0);
	/* One that does not remember where it put the key. */
	reef_map_close(map);
	assert_int_equal(reef_map_open(space, "uses", NULL, &map), 0);
	assert_int_equal(reef_map_get(map, "key", 3, &value), 0);
	/* Nobody looks at the clock from now on. */
	map->tick_until_ns = UINT64_MAX;
	map->tick += map->use_units - 1u;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(reef_map_get(map, "key", 3, &value), 0);
		assert_int_equal(value.idle_ms,
				 (map->use_units - 1u) * map->unit_ms);
	}
	map->tick++;
	assert_int_equal(reef_map_get(map, "key", 3, &value), 0);
	assert_int_equal(value.idle_ms, map->use_units * map->unit_ms);
	assert_int_equal(reef_map_get(map, "key", 3, &value), 0);
	assert_int_equal(value.idle_ms, 0);
	reef_map_value_free(&value);
	reef_map_close(map);
	reef_close(reef);
}

/* Numbers that an empty place of the handle's cache could be taken for. */
static void near_address_of_no_extent_is_refused(void **state)
{
	static const uint64_t numbers[] = {0, 1, 256, 257};
	uint64_t at, word = 7;
	struct reef_space *space;
	struct reef *reef;

	(void)state;
	open_space(&reef, &space);
	assert_int_equal(reef_alloc(space, 256, &at), 0);
	for (uint32_t i = 0; i < 8; i++) {
		uint64_t address = numbers[i % 4] << 32;

		/* The second time the cache has the extent that there is. */
		if (i == 4)
			assert_int_equal(reef_write(reef, at, &word, 8), 0);
		if (address >> 32 == at >> 32)
			continue;
		assert_false(reef_is_near(reef, address));
		assert_int_equal(reef_read(reef, address, &word, 8), -EFAULT);
		assert_int_equal(reef_write(reef, address, &word, 8), -EFAULT);
		assert_int_equal(reef_cas(reef, address, 0, 1, &word), -EFAULT);
		assert_int_equal(reef_faa(reef, address, 1, NULL), -EFAULT);
	}
	reef_close(reef);
}

/* What is done in place is timed by a sample, which stands for the rest. */
static void near_changes_and_gets_are_timed_by_a_sample(void **state)
{
	struct reef_map_value value = {0};
	struct reef_counters before = {0}, *counted;
	uint64_t told = 0;
	struct reef_space *space;
	struct reef_map *map;
	struct reef *reef;

	(void)state;
	open_space(&reef, &space);
	assert_int_equal(reef_map_open(space, "timed", NULL, &map), 0);
	counted = &reef->member.counters;
	for (uint32_t i = 0; i < 2 * MAP_SAMPLE; i++) {
		if (i % MAP_SAMPLE == 0)
			before = *counted;
		assert_int_equal(reef_map_put(map, "k", 1, "v", 1, 0, NULL), 0);
	}
	for (uint32_t i = 0; i < REEF_LATENCIES; i++)
		told += counted->latencies[i] - before.latencies[i];
	assert_true(told >= MAP_SAMPLE);
	assert_true(counted->latency_ns > before.latency_ns);
	before = *counted;
	for (uint32_t i = 0; i < MAP_SAMPLE; i++)
		assert_int_equal(reef_map_get(map, "k", 1, &value), 0);
	told = 0;
	for (uint32_t i = 0; i < REEF_LATENCIES; i++)
		told += counted->latencies[i] - before.latencies[i];
	assert_true(told >= MAP_SAMPLE);
	reef_map_value_free(&value);
	reef_map_close(map);
	reef_close(reef);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(near_batch_takes_effect_in_turn),
		cmocka_unit_test(near_batch_with_one_malformed_does_nothing),
		cmocka_unit_test(near_bytes_are_what_was_written),
		cmocka_unit_test(near_keys_stay_found_while_the_map_grows),
		cmocka_unit_test(near_get_notes_that_a_key_was_used),
		cmocka_unit_test(near_address_of_no_extent_is_refused),
		cmocka_unit_test(near_changes_and_gets_are_timed_by_a_sample),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
