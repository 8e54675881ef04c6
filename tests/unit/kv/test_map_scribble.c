/* test_map_scribble.c - R10: a map whose memory anybody may have written to.
 *
 * One word of a map at a time gets a bad value; then everything is done with
 * the map that can be, in place and over tcp, and recovery judges its blocks.
 * Errors are fine. Nothing may crash or overflow, and every call returns. */
#include "fixture/local_pool.h"
#include "fixture/map_words.h"
#include "fixture/seeds.h"

#include "index/hash/layout.h"
#include "kv/internal.h"
#include "pool/client/handle/recover.h"

#include <errno.h>
#include <reef/map.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS 110u
#define LONG_KEY 300u
#define TRIALS 48u /* with one pool: what they leak fits */
#define STUCK 100  /* seconds, for one word */

struct scene {
	struct server server;
	struct reef *near, *far;
	struct reef_space *near_space, *far_space;
	struct map_words words;
};

/* --- the map --- */

static uint32_t key_of(uint32_t i, char *key)
{
	int size = sprintf(key, "key %u", i);

	if (i % 16 != 5)
		return (uint32_t)size;
	memset(key + size, 'k', LONG_KEY);
	return LONG_KEY;
}

static uint32_t value_size(uint32_t i)
{
	if (i == 7)
		return 70000;
	if (i == 8)
		return 20000;
	return i % 8 ? 20 : 700;
}

static int put(struct reef_map *map, uint32_t i)
{
	static const char bytes[70000];
	char key[2 * LONG_KEY];
	uint32_t size = key_of(i, key);

	return reef_map_put(map, key, size, bytes, value_size(i), 0, NULL);
}

static void make_map(struct scene *scene, struct reef_map **map)
{
	const struct reef_map_options options = {.size_max = 16 << 20};

	assert_int_equal(reef_map_open(scene->near_space, "m", &options, map),
			 0);
	for (uint32_t i = 0; i < KEYS; i++)
		assert_int_equal(put(*map, i), 0);
}

/* --- what is done with it --- */

static int see(void *context, const struct reef_map_entry *entry)
{
	uint32_t *sum = context;

	/* All bytes are looked at, so that a sanitizer does, too. */
	for (size_t i = 0; i < entry->key_size; i++)
		*sum += ((const uint8_t *)entry->key)[i];
	for (size_t i = 0; entry->value && i < entry->value_size; i++)
		*sum += ((const uint8_t *)entry->value)[i];
	return 0;
}

static void scan_all(struct reef_map *map)
{
	uint64_t cursor = 0, count;
	uint32_t sum = 0, rounds = 0;
	int rc;

	do
		rc = reef_map_scan(map, &cursor, 100, see, &sum);
	while (!rc && cursor && ++rounds < 1000);
	reef_map_count(map, &count);
}

static void get_all(struct reef_map *map, uint32_t step)
{
	char keys[64][2 * LONG_KEY];
	struct reef_map_item items[64] = {0};
	struct reef_map_value value = {0};
	uint32_t i;

	for (i = 0; i < KEYS; i += step)
		reef_map_get(map, keys[0], key_of(i, keys[0]), &value);
	reef_map_value_free(&value);
	for (i = 0; i < 64; i++) {
		items[i].key = keys[i];
		items[i].key_size = key_of(i, keys[i]);
	}
	reef_map_get_many(map, items, 64);
	for (i = 0; i < 64; i++)
		reef_map_value_free(&items[i].value);
}

static void read_all(struct reef_map *map, bool is_near)
{
	get_all(map, is_near ? 1 : 16);
	scan_all(map);
}

static void put_several(struct reef_map *map)
{
	char keys[40][2 * LONG_KEY];
	struct reef_map_item items[40] = {0};

	for (uint32_t i = 0; i < 40; i++) {
		items[i].key = keys[i];
		/* Keys that are there, and new ones. */
		items[i].key_size = key_of(3 * i + 20, keys[i]);
		items[i].value.bytes = "value";
		items[i].value.size = 5;
	}
	reef_map_put_many(map, items, 40);
}

static void change_all(struct reef_map *map, bool is_near)
{
	uint32_t step = is_near ? 3 : 17, i;
	char key[2 * LONG_KEY];
	int64_t sum;

	put_several(map);
	for (i = 0; i < 2 * KEYS; i += step)
		put(map, i);
	for (i = 1; i < KEYS; i += step)
		reef_map_delete(map, key, key_of(i, key), 0);
	reef_map_add(map, "sum", 3, 1, &sum);
}

/* Recovery waits for errors that may pass: here none does, so there must be
 * none. */
static void judge_one(struct scene *scene, uint8_t kind, uint64_t address)
{
	int rc = client_kind_is_live(scene->near_space, kind, address);

	assert_true(rc != -EBUSY && rc != -EAGAIN && rc != -ETIMEDOUT &&
		    rc != -REEF_ENOLINK && rc != -REEF_EINDOUBT);
}

static void judge_all(struct scene *scene)
{
	static const uint8_t kinds[] = {
		REEF_BLOCK_OBJECT,     REEF_BLOCK_HASH_ROOT,
		REEF_BLOCK_HASH_LEVEL, REEF_BLOCK_HASH_SUBTABLE,
		REEF_BLOCK_HASH_ENTRY,
	};
	const struct map_region *regions = scene->words.regions;
	uint64_t any;

	for (uint32_t i = 0; i < scene->words.regions_count; i++) {
		judge_one(scene, regions[i].kind, regions[i].address + 8);
		/* As a block whose header says that it is something else. */
		any = reef_random_below(&scene->words.random, sizeof(kinds));
		judge_one(scene, kinds[any], regions[i].address + 8);
	}
}

static void open_and_read(struct reef_space *space, bool is_near)
{
	const struct reef_map_options existing = {.flags = REEF_MAP_EXISTING};
	struct reef_map *map;

	if (reef_map_open(space, "m", &existing, &map))
		return;
	read_all(map, is_near);
	reef_map_close(map);
}

/* Once with handles that know the map from before, once with new ones. */
static void use_all(struct scene *scene, struct reef_map *map,
		    struct reef_map *far)
{
	struct reef_map *again;

	read_all(map, true);
	read_all(far, false);
	open_and_read(scene->near_space, true);
	open_and_read(scene->far_space, false);
	judge_all(scene);
	change_all(map, true);
	change_all(far, false);
	if (!reef_map_open(scene->near_space, "m", NULL, &again)) {
		change_all(again, true);
		judge_all(scene);
		reef_map_clear(again);
		reef_map_close(again);
	}
}

static void drop_map(struct scene *scene)
{
	if (!reef_map_drop(scene->near_space, "m"))
		return;
	reef_name_unbind(scene->near_space, "m", 0);
}

/* One word with one bad value. all: n counts words and values; else they are
 * chosen by chance. */
static void try_one(struct scene *scene, bool all, uint64_t n)
{
	struct map_words *words = &scene->words;
	struct reef_map *map, *far;
	uint64_t at;

	reef_random_init(&words->random, n + 1);
	make_map(scene, &map);
	assert_int_equal(reef_map_open(scene->far_space, "m", NULL, &far), 0);
	get_all(far, 16);
	map_words_find(words, "m");
	assert_true(words->regions_count > KEYS + 5);
	at = all ? map_words_nth(words, (uint32_t)(n / MAP_BADS))
		 : map_words_random(words);
	map_words_scribble(words, at, (enum map_bad)(n % MAP_BADS), n);
	alarm(STUCK);
	use_all(scene, map, far);
	reef_map_close(far);
	reef_map_close(map);
	drop_map(scene);
	alarm(0);
}

static void open_scene(struct scene *scene)
{
	const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	const struct reef_options near = {.fabrics = "shm"};
	const struct reef_options far = {.fabrics = "tcp"};

	server_start(&scene->server);
	assert_int_equal(reef_open("local", &near, &scene->near), 0);
	assert_int_equal(reef_open("local", &far, &scene->far), 0);
	assert_int_equal(
		reef_space_open(scene->near, "s", &create, &scene->near_space),
		0);
	assert_int_equal(
		reef_space_open(scene->far, "s", NULL, &scene->far_space), 0);
	scene->words.reef = scene->near;
	scene->words.space = scene->near_space;
}

static void close_scene(struct scene *scene)
{
	reef_close(scene->far);
	reef_close(scene->near);
	server_stop(&scene->server);
}

static uint32_t count_words(struct scene *scene)
{
	struct reef_map *map;

	make_map(scene, &map);
	map_words_find(&scene->words, "m");
	reef_map_close(map);
	drop_map(scene);
	return scene->words.words_count;
}

static void map_scribbled_words_are_errors(void **state)
{
	static struct scene scene;
	bool all = seeds_of(0, 1);
	uint64_t count = seeds_of(96, 1), n, trials = TRIALS;

	(void)state;
	map_tables = (struct hash_options){.groups = 2, .seed = 1};
	open_scene(&scene);
	if (all)
		count = (uint64_t)count_words(&scene) * MAP_BADS;
	for (n = seeds_first(); seeds_has(n, count); n++) {
		if (!--trials) {
			close_scene(&scene);
			open_scene(&scene);
			trials = TRIALS;
		}
		try_one(&scene, all, n);
	}
	close_scene(&scene);
	map_tables = (struct hash_options){0};
}

/* --- a slot that names another map's entry --- */

/* Where the first slot is, from a word on, that names an entry. */
static uint64_t first_slot(struct map_words *words)
{
	const struct map_region *region = words->regions;

	while (region->kind != REEF_BLOCK_HASH_SUBTABLE)
		region++;
	for (uint32_t i = 1 + HASH_SUBTABLE_HEADER / 8; i < region->words; i++)
		if (!hash_slot_is_empty(map_words_read(
			    words, region->address + 8 * (uint64_t)i)))
			return region->address + 8 * (uint64_t)i;
	fail();
	return 0;
}

static void map_drop_spares_entries_of_others(void **state)
{
	const struct reef_map_options options = {.size_max = 16 << 20};
	static struct scene scene;
	struct map_words *words = &scene.words;
	struct reef_map_value value = {0};
	struct reef_map *map, *other;
	uint64_t at, slot, others, entry, before[2];

	(void)state;
	map_tables = (struct hash_options){.groups = 2, .seed = 1};
	open_scene(&scene);
	make_map(&scene, &map);
	assert_int_equal(
		reef_map_open(scene.near_space, "other", &options, &other), 0);
	assert_int_equal(reef_map_put(other, "key", 3, "value", 5, 0, NULL), 0);
	map_words_find(words, "other");
	others = map_words_read(words, first_slot(words));
	assert_int_equal(reef_long_address(scene.near_space,
					   hash_slot_block(others), &entry),
			 0);
	/* Its block's header, and `live`. */
	assert_int_equal(reef_read(scene.near, entry - 8, before, 16), 0);
	map_words_find(words, "m");
	at = first_slot(words);
	slot = map_words_read(words, at);
	slot ^= hash_slot_block(slot) ^ hash_slot_block(others);
	assert_int_equal(reef_write(scene.near, at, &slot, 8), 0);
	reef_map_close(map);
	assert_int_equal(reef_map_drop(scene.near_space, "m"), 0);
	assert_int_equal(reef_map_get(other, "key", 3, &value), 0);
	reef_map_value_free(&value);
	assert_int_equal(map_words_read(words, entry - 8), before[0]);
	assert_int_equal(map_words_read(words, entry), before[1]);
	reef_map_close(other);
	close_scene(&scene);
	map_tables = (struct hash_options){0};
}

/* An entry whose key has become longer: a lookup that does not want its value
 * takes it for another key's, an insert that reads all of it for no entry. */
static void map_put_beside_a_longer_key_ends(void **state)
{
	static struct scene scene;
	struct map_words *words = &scene.words;
	const struct map_region *region = words->regions;
	struct reef_map *map;
	uint64_t at, sizes;

	(void)state;
	map_tables = (struct hash_options){.groups = 2, .seed = 1};
	open_scene(&scene);
	make_map(&scene, &map);
	map_words_find(words, "m");
	while (region->kind != REEF_BLOCK_HASH_ENTRY)
		region++;
	at = region->address + 8 + offsetof(struct entry_head, sizes);
	sizes = map_words_read(words, at) ^ 1u << 11;
	assert_int_equal(reef_write(scene.near, at, &sizes, 8), 0);
	alarm(STUCK / 5);
	for (uint32_t i = 0; i < KEYS; i++)
		put(map, i);
	alarm(0);
	reef_map_close(map);
	close_scene(&scene);
	map_tables = (struct hash_options){0};
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(map_scribbled_words_are_errors,
						scratch_make, scratch_remove),
		cmocka_unit_test_setup_teardown(
			map_drop_spares_entries_of_others, scratch_make,
			scratch_remove),
		cmocka_unit_test_setup_teardown(
			map_put_beside_a_longer_key_ends, scratch_make,
			scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
