/* test_tree_map.c - ordered maps, in simulation: what each call of tree.h
 * answers. The calls that are the map's own are asked once each: what they do
 * is tested with maps. */
#include "fixture/pool_world.h"
#include "kv/tree.h"

#include "base/random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <reef/key.h>

static int open_tree(struct member *member,
		     const struct reef_tree_options *options,
		     struct reef_space **space, struct reef_tree **tree)
{
	TRY(member_space(member, space));
	TRY(reef_tree_open(*space, "t", options, tree));
	return 0;
}

/* One member does it, in a pool of its own. */
static void run(uint64_t seed, int (*work)(struct member *member))
{
	struct pool pool = {0};

	pool_start(&pool, seed);
	pool_add(&pool, work);
	pool_finish(&pool);
}

static int put_text(struct reef_tree *tree, const char *key, const char *value)
{
	return reef_tree_put(tree, key, strlen(key), value, strlen(value), 0,
			     NULL);
}

/* 1: it has that value.  0: it is not there. */
static int has(struct reef_tree *tree, const char *key, const char *value)
{
	struct reef_map_value found = {0};
	int rc = reef_tree_get(tree, key, strlen(key), &found);

	if (!rc)
		rc = found.size == strlen(value) &&
				     !memcmp(found.bytes, value, found.size)
			     ? 1
			     : -EXDEV;
	reef_map_value_free(&found);
	return rc == -ENOENT ? 0 : rc;
}

/* --- every call on a key --- */

static int decide_twice(void *context, const struct reef_map_entry *now,
			struct reef_map_entry *put)
{
	(void)context;
	put->value = "again";
	put->value_size = now ? 5 : 2;
	return REEF_MAP_PUT;
}

static int plain_calls(struct member *member)
{
	struct reef_map_change change = {
		.key = "a", .key_size = 1, .decide = decide_twice};
	struct reef_map_value value = {0};
	struct reef_space *space;
	struct reef_tree *tree;
	uint64_t version, other;
	int64_t sum;
	size_t size;

	TRY(open_tree(member, NULL, &space, &tree));
	WANT_RC(has(tree, "k", ""), 0);
	TRY(reef_tree_put(tree, "k", 1, "one", 3, 0, &version));
	WANT(version);
	TRY(reef_tree_get(tree, "k", 1, &value));
	WANT(value.version == version && !value.expires_ms && value.size == 3);
	WANT(!value.idle_ms && !value.frequency);
	TRY(reef_tree_peek(tree, "k", 1, &value));
	WANT(!memcmp(value.bytes, "one", 3));
	TRY(reef_tree_look(tree, "k", 1, &value));
	WANT(value.version == version && value.size == 3 && !value.bytes);
	WANT_RC(reef_tree_insert(tree, "k", 1, "x", 1, 0, NULL), -EEXIST);
	WANT_RC(reef_tree_update(tree, "n", 1, "x", 1, 0, NULL), -ENOENT);
	TRY(reef_tree_insert(tree, "n", 1, "", 0, 0, &other));
	TRY(reef_tree_update(tree, "n", 1, "two", 3, 0, NULL));
	WANT_RC(reef_tree_replace(tree, "n", 1, other, "x", 1, 0, NULL),
		-ESTALE);
	TRY(reef_tree_replace(tree, "k", 1, version, "three", 5, 0, &other));
	WANT_RC(has(tree, "k", "three"), 1);
	WANT_RC(reef_tree_delete(tree, "k", 1, version), -ESTALE);
	TRY(reef_tree_delete(tree, "k", 1, other));
	WANT_RC(reef_tree_delete(tree, "k", 1, 0), -ENOENT);
	TRY(reef_tree_add(tree, "c", 1, 41, NULL));
	TRY(reef_tree_add(tree, "c", 1, 1, &sum));
	WANT(sum == 42);
	TRY(reef_tree_append(tree, "n", 1, "!", 1, &size));
	WANT(size == 4);
	WANT_RC(has(tree, "n", "two!"), 1);
	TRY(reef_tree_apply(tree, &change));
	WANT_RC(has(tree, "a", "ag"), 1);
	TRY(reef_tree_apply(tree, &change));
	WANT_RC(has(tree, "a", "again"), 1);
	/* The empty key is a key. */
	TRY(put_text(tree, "", "nothing"));
	WANT_RC(has(tree, "", "nothing"), 1);
	reef_map_value_free(&value);
	reef_tree_close(tree);
	return 0;
}

static void tree_map_plain_calls_answer_as_told(void **state)
{
	(void)state;
	run(1, plain_calls);
}

static int bad_input(struct member *member)
{
	const struct reef_tree_options bad[] = {
		{.flags = 4},
		{.key_max = 16385},
		{.value_max = (64u << 20) + 1},
		{.inline_max = 1024},
		{.leaf_bytes = 255},
		{.leaf_bytes = 65537},
	};
	struct reef_tree_options options = {.key_max = 5, .value_max = 9};
	struct reef_range range = {.flags = 8};
	struct reef_map_value value = {0};
	struct reef_space *space;
	struct reef_tree *tree;
	struct reef_map *map;
	uint64_t count;

	TRY(member_space(member, &space));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		WANT_RC(reef_tree_open(space, "t", &bad[i], &tree), -EINVAL);
	options.flags = REEF_TREE_EXISTING;
	WANT_RC(reef_tree_open(space, "t", &options, &tree), -ENOENT);
	options.flags = 0;
	TRY(reef_tree_open(space, "t", &options, &tree));
	WANT_RC(reef_map_open(space, "t", NULL, &map), -EEXIST);
	WANT_RC(reef_map_drop(space, "t"), -EEXIST);
	reef_tree_limits(tree, &options);
	WANT(options.key_max == 5 && options.value_max == 9 &&
	     options.inline_max == 256 && options.leaf_bytes == 6144 &&
	     options.cache_bytes == 64u << 20);
	WANT_RC(put_text(tree, "123456", ""), -EINVAL);
	WANT_RC(put_text(tree, "1", "1234567890"), -EINVAL);
	TRY(put_text(tree, "12345", "123456789"));
	WANT_RC(reef_tree_append(tree, "12345", 5, "x", 1, NULL), -EINVAL);
	WANT_RC(reef_tree_get(tree, "123456", 6, &value), -EINVAL);
	WANT_RC(reef_tree_count(tree, &range, &count), -EINVAL);
	range = (struct reef_range){.from = "123456", .from_size = 6};
	WANT_RC(reef_tree_count(tree, &range, &count), -EINVAL);
	WANT_RC(reef_tree_delete_range(tree, &range, &count), -EINVAL);
	WANT_RC(reef_tree_first(tree, &range, NULL, &value), -EINVAL);
	reef_tree_close(tree);
	TRY(reef_tree_drop(space, "t"));
	WANT_RC(reef_tree_drop(space, "t"), -ENOENT);
	reef_map_value_free(&value);
	return 0;
}

static void tree_map_bad_input_is_refused(void **state)
{
	(void)state;
	run(2, bad_input);
}

/* --- ranges --- */

#define KEYS 700u /* every third number */

static uint64_t number_of(uint32_t i)
{
	return 3 * (uint64_t)i + 1;
}

static int put_number(struct reef_tree *tree, uint64_t number)
{
	char key[REEF_KEY_U64];

	reef_key_u64(key, number);
	return reef_tree_put(tree, key, sizeof(key), &number, 8, 0, NULL);
}

struct met {
	uint64_t last;
	uint32_t count, most;
	bool backward;
};

static int note_met(void *context, const struct reef_map_entry *entry)
{
	struct met *met = context;
	uint64_t number, value;

	if (entry->key_size != 8 ||
	    reef_key_read_u64(entry->key, 8, &number) != 8)
		return -EXDEV;
	if (entry->value) {
		memcpy(&value, entry->value, 8);
		if (value != number)
			return -EXDEV;
	}
	if (met->count &&
	    (met->backward ? number >= met->last : number <= met->last))
		return -EXDEV;
	met->last = number;
	met->count++;
	return met->most && met->count == met->most ? 77 : 0;
}

/* How many of the keys are in a range, by counting on fingers. */
static uint32_t expected(const uint64_t *from, const uint64_t *to, bool after,
			 bool backward)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < KEYS; i++) {
		uint64_t number = number_of(i);
		bool in = true;

		if (from)
			in = backward ? number <= *from : number >= *from;
		if (from && after)
			in = in && number != *from;
		if (to)
			in = in && (backward ? number > *to : number < *to);
		count += in;
	}
	return count;
}

/* Ask for a range in every way; the numbers are NULL for an open end. */
static int ask_range(struct reef_tree *tree, const uint64_t *from,
		     const uint64_t *to, uint32_t flags)
{
	bool backward = flags & REEF_RANGE_BACKWARD;
	uint32_t want = expected(from, to, flags & REEF_RANGE_AFTER, backward);
	char keys[2][REEF_KEY_U64];
	struct reef_range range = {.flags = flags};
	struct met met = {.backward = backward};
	struct reef_map_value first = {0};
	uint64_t count = 0, number;
	int rc;

	if (from) {
		range.from = keys[0];
		range.from_size = reef_key_u64(keys[0], *from);
	}
	if (to) {
		range.to = keys[1];
		range.to_size = reef_key_u64(keys[1], *to);
	}
	TRY(reef_tree_scan(tree, &range, note_met, &met));
	WANT(met.count == want);
	TRY(reef_tree_count(tree, &range, &count));
	WANT(count == want);
	rc = reef_tree_first(tree, &range, &first, NULL);
	WANT(rc == (want ? 0 : -ENOENT));
	if (want) {
		/* What is first is met first. */
		met = (struct met){.backward = backward, .most = 1};
		WANT_RC(reef_tree_scan(tree, &range, note_met, &met), 77);
		reef_key_read_u64(first.bytes, first.size, &number);
		WANT(number == met.last);
	}
	reef_map_value_free(&first);
	range.limit = 5;
	met = (struct met){.backward = backward};
	TRY(reef_tree_scan(tree, &range, note_met, &met));
	WANT(met.count == (want < 5 ? want : 5));
	return 0;
}

static int ranges(struct member *member)
{
	const struct reef_tree_options options = {.leaf_bytes = 1024};
	const uint64_t top = number_of(KEYS - 1);
	struct reef_random random;
	struct reef_space *space;
	struct reef_tree *tree;
	uint64_t from, to;
	uint32_t i, flags;

	reef_random_init(&random, 5);
	TRY(open_tree(member, &options, &space, &tree));
	for (flags = 0; flags < 8; flags++)
		WANT_RC(reef_tree_scan(tree, NULL, note_met, &(struct met){0}),
			0);
	WANT_RC(reef_tree_first(tree, NULL, NULL, NULL), -ENOENT);
	for (i = 0; i < KEYS; i++)
		TRY(put_number(tree, number_of((i * 331) % KEYS)));
	for (flags = 0; flags < 8; flags++) {
		TRY(ask_range(tree, NULL, NULL, flags));
		for (i = 0; i < 25; i++) {
			from = reef_random_below(&random, top + 9);
			to = reef_random_below(&random, top + 9);
			TRY(ask_range(tree, &from, &to, flags));
			TRY(ask_range(tree, &from, NULL, flags));
			TRY(ask_range(tree, NULL, &to, flags));
			TRY(ask_range(tree, &from, &from, flags));
		}
	}
	reef_tree_close(tree);
	return 0;
}

static void tree_map_ranges_are_told_in_order(void **state)
{
	(void)state;
	run(3, ranges);
}

/* Ten at a time, each ten by a handle of its own. */
static int resumed(struct member *member)
{
	char key[REEF_KEY_U64];
	struct reef_range range = {.limit = 10};
	struct reef_space *space;
	struct reef_tree *tree, *other;
	struct met met;
	uint32_t all = 0;

	TRY(open_tree(member, NULL, &space, &tree));
	for (uint32_t i = 0; i < KEYS; i++)
		TRY(put_number(tree, number_of(i)));
	do {
		met = (struct met){0};
		TRY(reef_tree_open(space, "t", NULL, &other));
		TRY(reef_tree_scan(other, &range, note_met, &met));
		reef_tree_close(other);
		all += met.count;
		range.from = key;
		range.from_size = reef_key_u64(key, met.last);
		range.flags = REEF_RANGE_AFTER;
	} while (met.count);
	WANT(all == KEYS);
	reef_tree_close(tree);
	return 0;
}

static void tree_map_scan_goes_on_with_another_handle(void **state)
{
	(void)state;
	run(4, resumed);
}

static int deleted_range(struct member *member)
{
	const struct reef_tree_options options = {.leaf_bytes = 1024};
	char keys[2][REEF_KEY_U64];
	struct reef_range range = {
		.from = keys[0],
		.from_size = reef_key_u64(keys[0], number_of(100)),
		.to = keys[1],
		.to_size = reef_key_u64(keys[1], number_of(600)),
	};
	struct reef_tree_stats stats;
	struct reef_space *space;
	struct reef_tree *tree;
	uint64_t deleted, count;

	TRY(open_tree(member, &options, &space, &tree));
	for (uint32_t i = 0; i < KEYS; i++)
		TRY(put_number(tree, number_of(i)));
	range.limit = 30;
	TRY(reef_tree_delete_range(tree, &range, &deleted));
	WANT(deleted == 30);
	range.limit = 0;
	TRY(reef_tree_delete_range(tree, &range, &deleted));
	WANT(deleted == 470);
	TRY(reef_tree_count(tree, NULL, &count));
	WANT(count == 200);
	TRY(reef_tree_delete_range(tree, &range, NULL));
	TRY(reef_tree_delete_range(tree, NULL, &deleted));
	WANT(deleted == 200);
	TRY(reef_tree_stats(tree, &stats));
	WANT(!stats.keys && stats.nodes && stats.node_bytes && stats.changes);
	reef_tree_close(tree);
	return 0;
}

static void tree_map_range_is_deleted(void **state)
{
	(void)state;
	run(5, deleted_range);
}

/* --- many keys --- */

static int many(struct member *member)
{
	const struct reef_tree_options options = {.leaf_bytes = 1024};
	struct reef_map_item *items = calloc(KEYS + 1, sizeof(*items));
	char(*keys)[REEF_KEY_U64] = calloc(KEYS + 1, sizeof(*keys));
	uint64_t *values = calloc(KEYS + 1, sizeof(*values));
	struct reef_space *space;
	struct reef_tree *tree;
	uint32_t i;

	WANT(items && keys && values);
	TRY(open_tree(member, &options, &space, &tree));
	for (i = 0; i < KEYS; i++) {
		values[i] = number_of(i);
		reef_key_u64(keys[i], values[i]);
		items[i].key = keys[i];
		items[i].key_size = sizeof(keys[i]);
		items[i].value.bytes = &values[i];
		items[i].value.size = 8;
	}
	/* Nobody can put this one. */
	items[KEYS].key = keys;
	items[KEYS].key_size = 1025;
	TRY(reef_tree_put_many(tree, items, KEYS + 1));
	for (i = 0; i < KEYS; i++)
		WANT(!items[i].status && items[i].value.version);
	WANT(items[KEYS].status == -EINVAL);
	for (i = 0; i < KEYS; i++)
		items[i].value = (struct reef_map_value){0};
	reef_key_u64(keys[7], 0);
	TRY(reef_tree_get_many(tree, items, KEYS + 1));
	for (i = 0; i < KEYS; i++) {
		WANT(items[i].status == (i == 7 ? -ENOENT : 0));
		WANT(i == 7 || !memcmp(items[i].value.bytes, &values[i], 8));
		reef_map_value_free(&items[i].value);
	}
	WANT(items[KEYS].status == -EINVAL);
	reef_tree_close(tree);
	free(items);
	free(keys);
	free(values);
	return 0;
}

static void tree_map_many_keys_are_put_and_read(void **state)
{
	(void)state;
	run(6, many);
}

/* --- expiry --- */

static int expiry(struct member *member)
{
	const struct reef_tree_options options = {.leaf_bytes = 512};
	struct reef_range range = {.limit = 3};
	struct reef_map_value value = {0};
	struct met met = {0};
	struct reef_space *space;
	struct reef_tree *tree;
	uint64_t now_ms, count, round;
	char key[REEF_KEY_U64];

	TRY(open_tree(member, &options, &space, &tree));
	TRY(reef_tree_now(tree, &now_ms));
	for (uint64_t i = 0; i < 300; i++) {
		reef_key_u64(key, i);
		TRY(reef_tree_put(tree, key, 8, &i, 8,
				  i % 2 ? now_ms + 2000 : 0, NULL));
	}
	reef_key_u64(key, 1);
	TRY(reef_tree_look(tree, key, 8, &value));
	WANT(value.expires_ms == now_ms + 2000);
	TRY(reef_tree_expire(tree, key, 8, 0));
	TRY(reef_sleep(3000 * UINT64_C(1000000)));
	/* A limit does not count those that have expired: 0, 1, 2. */
	TRY(reef_tree_scan(tree, &range, note_met, &met));
	WANT(met.count == 3 && met.last == 2);
	reef_key_u64(key, 3);
	WANT_RC(reef_tree_get(tree, key, 8, &value), -ENOENT);
	/* Sweeps, which changes do by the way, remove what nobody touches. */
	reef_key_u64(key, 0);
	for (round = 0; round < 1000; round++) {
		TRY(reef_tree_put(tree, key, 8, &(uint64_t){0}, 8, 0, NULL));
		TRY(reef_sleep(10 * UINT64_C(1000000)));
		TRY(reef_tree_count(tree, NULL, &count));
		if (count == 151)
			break;
	}
	print_message("swept after %u rounds\n", (unsigned)round);
	WANT(count == 151);
	reef_map_value_free(&value);
	reef_tree_close(tree);
	return 0;
}

static void tree_map_keys_expire(void **state)
{
	(void)state;
	run(7, expiry);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_map_plain_calls_answer_as_told),
		cmocka_unit_test(tree_map_bad_input_is_refused),
		cmocka_unit_test(tree_map_ranges_are_told_in_order),
		cmocka_unit_test(tree_map_scan_goes_on_with_another_handle),
		cmocka_unit_test(tree_map_range_is_deleted),
		cmocka_unit_test(tree_map_many_keys_are_put_and_read),
		cmocka_unit_test(tree_map_keys_expire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
