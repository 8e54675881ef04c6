/* test_map_scribble.c - R10: a map whose memory anybody may have written to.
 *
 * One word of a map at a time gets a bad value; then everything is done with
 * the map that can be, in place and over tcp, and recovery judges its blocks.
 * Errors are fine. Nothing may crash or overflow, and every call returns. */
#include "fixture/local_pool.h"
#include "fixture/seeds.h"

#include "base/random.h"
#include "index/hash/layout.h"
#include "kv/internal.h"
#include "pool/client/handle/recover.h"

#include <reef/map.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS 110u
#define LONG_KEY 300u
#define REGIONS 400u
#define TRIALS 48u /* with one pool: what they leak fits */
#define STUCK 100  /* seconds, for one word */

struct region {
	uint64_t address;
	uint32_t words;
	uint8_t kind;
};

struct scene {
	struct server server;
	struct reef *near, *far;
	struct reef_space *near_space, *far_space;
	struct region regions[REGIONS];
	uint32_t regions_count, words_count;
	struct reef_random random;
};

enum bad {
	BAD_ZERO,
	BAD_ONES,
	BAD_RANDOM,
	BAD_MISALIGNED, /* what it was, and eight */
	BAD_SHIFTED,	/* what it was, and one */
	BAD_OTHER,	/* the address of another block */
	BAD_BORROWED,	/* another word of the map */
	BAD_BIT,
	BADS,
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

/* --- its words --- */

static uint64_t word_at(struct scene *scene, uint64_t address)
{
	uint64_t word;

	assert_int_equal(reef_read(scene->near, address, &word, 8), 0);
	return word;
}

static void add_region(struct scene *scene, uint8_t kind, uint64_t address,
		       size_t size)
{
	assert_true(scene->regions_count < REGIONS);
	scene->regions[scene->regions_count++] = (struct region){
		.address = address,
		.words = (uint32_t)(size / 8),
		.kind = kind,
	};
	scene->words_count += (uint32_t)(size / 8);
}

static void add_subtable(struct scene *scene, uint64_t at, uint32_t groups)
{
	uint32_t slots = groups * HASH_GROUP_SLOTS;
	uint64_t slot, entry;

	/* With the blocks' own headers. */
	add_region(scene, REEF_BLOCK_HASH_SUBTABLE, at - 8,
		   8 + HASH_SUBTABLE_HEADER + 8 * slots);
	for (uint32_t i = 0; i < slots; i++) {
		slot = word_at(scene, at + HASH_SUBTABLE_HEADER + 8 * i);
		if (!hash_slot_block(slot))
			continue;
		assert_int_equal(reef_long_address(scene->near_space,
						   hash_slot_block(slot),
						   &entry),
				 0);
		add_region(scene, REEF_BLOCK_HASH_ENTRY, entry - 8, 64);
	}
}

/* Note all blocks of the map. Of the root's own levels those that are in use
 * count, and some more. */
static void find_words(struct scene *scene)
{
	uint64_t block, root, word, at;
	uint32_t groups;

	scene->regions_count = scene->words_count = 0;
	assert_int_equal(reef_name_lookup(scene->near_space, "m", &block, NULL),
			 0);
	add_region(scene, REEF_BLOCK_OBJECT, block - 8,
		   8 + OBJECT_BODY + sizeof(struct map_body));
	root = word_at(scene, block + OBJECT_BODY);
	groups = (uint32_t)word_at(
		scene, root + offsetof(struct hash_root_head, groups));
	add_region(scene, REEF_BLOCK_HASH_ROOT, root - 8,
		   8 + offsetof(struct hash_root, inner) + 8 * 32);
	for (uint32_t i = 1; i < 1u << HASH_INNER_LEVELS; i++) {
		at = root + offsetof(struct hash_root, inner) + 8 * i;
		word = word_at(scene, at);
		if (hash_word_state(word) != HASH_LEAF)
			continue;
		/* Once more, as they are few among the root's. */
		add_region(scene, 0, at, 8);
		add_subtable(scene, hash_word_address(word), groups);
	}
	assert_true(scene->regions_count > KEYS + 5);
}

static uint64_t nth_word(const struct scene *scene, uint32_t n)
{
	const struct region *region = scene->regions;

	for (n %= scene->words_count; n >= region->words; region++)
		n -= region->words;
	return region->address + 8 * (uint64_t)n;
}

/* A word of any block: there are so many entries that otherwise hardly any
 * other would be met. */
static uint64_t random_word(struct scene *scene)
{
	const struct region *region;
	uint32_t at;

	do
		at = (uint32_t)reef_random_below(&scene->random,
						 scene->regions_count);
	while (scene->regions[at].kind == REEF_BLOCK_HASH_ENTRY &&
	       reef_random_below(&scene->random, 8));
	region = &scene->regions[at];
	return region->address +
	       8 * reef_random_below(&scene->random, region->words);
}

static uint64_t bad_value(struct scene *scene, enum bad bad, uint64_t was)
{
	uint32_t other = (uint32_t)reef_random_below(&scene->random,
						     scene->regions_count);

	switch (bad) {
	case BAD_ZERO:
		return 0;
	case BAD_ONES:
		return UINT64_MAX;
	case BAD_RANDOM:
		return reef_random_next(&scene->random);
	case BAD_MISALIGNED:
		return was + 8;
	case BAD_SHIFTED:
		return was + 1;
	case BAD_OTHER:
		return (scene->regions[other].address + 8) | (was & 7);
	case BAD_BORROWED:
		return word_at(scene, random_word(scene));
	default:
		return was ^ UINT64_C(1)
				     << reef_random_below(&scene->random, 64);
	}
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

static void judge_all(struct scene *scene)
{
	for (uint32_t i = 0; i < scene->regions_count; i++)
		client_kind_is_live(scene->near_space, scene->regions[i].kind,
				    scene->regions[i].address + 8);
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
	struct reef_map *map, *far;
	enum bad bad = (enum bad)(n % BADS);
	uint64_t at, was, value;

	reef_random_init(&scene->random, n + 1);
	make_map(scene, &map);
	assert_int_equal(reef_map_open(scene->far_space, "m", NULL, &far), 0);
	get_all(far, 16);
	find_words(scene);
	at = all ? nth_word(scene, (uint32_t)(n / BADS)) : random_word(scene);
	was = word_at(scene, at);
	value = bad_value(scene, bad, was);
	if (getenv("REEF_SEED"))
		print_message("%llu: %llx was %llx is %llx\n",
			      (unsigned long long)n, (unsigned long long)at,
			      (unsigned long long)was,
			      (unsigned long long)value);
	assert_int_equal(reef_write(scene->near, at, &value, 8), 0);
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
	find_words(scene);
	reef_map_close(map);
	drop_map(scene);
	return scene->words_count;
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
		count = (uint64_t)count_words(&scene) * BADS;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(map_scribbled_words_are_errors,
						scratch_make, scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
