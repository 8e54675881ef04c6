/* test_tree_outside.c - ordered maps as their header promises them, by whoever
 * knows nothing else of them: several clients, in simulation.
 *
 *   still    keys that stay are met exactly once, in order, by readers that
 *            stand still between two keys for several epochs, while all around
 *            them keys come and go, and leaves with them
 *   sums     what was inserted is there, or was deleted by a range: once
 *   stale    a handle of a tree that was dropped never tells of the next one
 *   long     keys and values of any size, beside each other */
#include "fixture/pool_world.h"

#include "base/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <reef/key.h>
#include <reef/tree.h>

#define MEMBERS 3u

/* What the members of a run share. */
static struct {
	uint32_t ready, done;
	uint64_t inserted, deleted;
	bool is_dropped;
} shared;

static int open_tree(struct member *member, const char *name,
		     const struct reef_tree_options *options,
		     struct reef_space **space, struct reef_tree **tree)
{
	TRY(member_space(member, space));
	return reef_tree_open(*space, name, options, tree);
}

static struct reef_random random_of(const struct member *member)
{
	struct reef_random random;

	reef_random_init(&random, member->pool->seed * 64 + member->number);
	return random;
}

/* Wait until so many have come to a point; others may run meanwhile. */
static int await(const uint32_t *counter, uint32_t count)
{
	for (uint32_t i = 0; *counter < count; i++) {
		WANT(i < 100000);
		TRY(reef_sleep(10 * MILLISECOND));
	}
	return 0;
}

static int run(uint64_t seed, bool calm, int (*first)(struct member *member),
	       int (*others)(struct member *member))
{
	struct pool pool = {.calm = calm,
			    .ttl_ns = 2 * SECOND,
			    .lose_link_ppm = calm ? 0 : 300,
			    .patience_ns = 100 * SECOND};

	memset(&shared, 0, sizeof(shared));
	pool_start(&pool, seed);
	pool_add(&pool, first);
	for (uint32_t i = 1; others && i < MEMBERS; i++)
		pool_add(&pool, others);
	return pool_end(&pool);
}

/* --- still --- */

#define STILL_KEYS 1200u
#define STILL_EVERY 30u /* one of so many stays */
static const struct reef_tree_options still_options = {.leaf_bytes = 512};

static size_t still_key(uint64_t number, uint8_t *key)
{
	/* Of two lengths, so that some are the beginning of others. */
	size_t size = reef_key_u64(key, number / 2);

	if (number % 2)
		key[size++] = 'x';
	return size;
}

static uint64_t still_number(const void *key, size_t size)
{
	uint64_t number = 0;

	reef_key_read_u64(key, 8, &number);
	return 2 * number + (size == 9);
}

struct reader {
	struct reef_random *random;
	uint64_t next; /* the next that stays */
	uint64_t last; /* number, plus 1; 0: none */
	uint64_t met;
	bool backward, is_wrong;
};

static int meet_key(void *context, const struct reef_map_entry *entry)
{
	struct reader *reader = context;
	uint64_t number = still_number(entry->key, entry->key_size), value = 0;

	if (reader->last && (reader->backward ? number + 1 >= reader->last
					      : number + 1 <= reader->last))
		reader->is_wrong = true;
	reader->last = number + 1;
	reader->met++;
	if (entry->value_size == 8)
		memcpy(&value, entry->value, 8);
	if (value != number)
		reader->is_wrong = true;
	if (number % STILL_EVERY == 0) {
		reader->is_wrong |= number != reader->next;
		reader->next = reader->backward ? number - STILL_EVERY
						: number + STILL_EVERY;
	}
	if (!reef_random_below(reader->random, 60))
		return reef_sleep(reef_random_below(reader->random, 3) *
				  SECOND);
	return 0;
}

/* Read all of it, in pages. */
static int read_still(struct reef_tree *tree, struct reef_random *random)
{
	bool backward = reef_random_below(random, 2);
	struct reader reader = {
		.random = random,
		.backward = backward,
		.next = backward ? STILL_KEYS - STILL_EVERY : 0,
	};
	uint64_t page = reef_random_below(random, 3)
				? 1 + reef_random_below(random, 300)
				: 0,
		 before;
	struct reef_range range = {
		.flags = backward ? REEF_RANGE_BACKWARD : 0,
		.limit = page,
	};
	uint8_t key[16];
	int rc;

	do {
		before = reader.met;
		rc = reef_tree_scan(tree, &range, meet_key, &reader);
		if (rc)
			return rc;
		WANT(!reader.is_wrong);
		if (reader.last)
			range.from_size = still_key(reader.last - 1, key);
		range.from = key;
		range.flags |= REEF_RANGE_AFTER;
		if (!reef_random_below(random, 3))
			TRY(reef_sleep(5 * SECOND));
	} while (page && reader.met - before == page);
	WANT(reader.next ==
	     (backward ? 0 - (uint64_t)STILL_EVERY : (uint64_t)STILL_KEYS));
	return 0;
}

static int still_reader(struct member *member)
{
	struct reef_random random = random_of(member);
	struct reef_space *space;
	struct reef_tree *tree;
	uint8_t key[16];
	uint64_t i;

	TRY(open_tree(member, "t", &still_options, &space, &tree));
	for (i = 0; i < STILL_KEYS; i += STILL_EVERY)
		TRY(reef_tree_put(tree, key, still_key(i, key), &i, 8, 0,
				  NULL));
	shared.ready = 1;
	for (i = 0; i < 6; i++)
		TRY(read_still(tree, &random));
	shared.done = 1;
	reef_tree_close(tree);
	return 0;
}

/* Put many keys, and delete them again, but for those that stay. */
static int still_churn(struct member *member)
{
	struct reef_random random = random_of(member);
	struct reef_space *space;
	struct reef_tree *tree;
	uint8_t key[16];

	TRY(await(&shared.ready, 1));
	TRY(open_tree(member, "t", &still_options, &space, &tree));
	while (!shared.done) {
		uint64_t from = reef_random_below(&random, STILL_KEYS);
		uint64_t count = reef_random_below(&random, 400);
		bool deletes = reef_random_below(&random, 2);

		for (; count && from < STILL_KEYS; from++, count--) {
			if (from % STILL_EVERY == 0)
				continue;
			if (deletes)
				reef_tree_delete(tree, key,
						 still_key(from, key), 0);
			else
				reef_tree_put(tree, key, still_key(from, key),
					      &from, 8, 0, NULL);
		}
		TRY(reef_sleep(reef_random_below(&random, 2000) * MILLISECOND));
	}
	reef_tree_close(tree);
	return 0;
}

/* --- sums --- */

#define SUM_KEYS 900u

static int sums_delete(struct member *member)
{
	struct reef_random random = random_of(member);
	struct reef_space *space;
	struct reef_tree *tree;
	uint64_t deleted, left;
	uint8_t from[8], to[8];

	TRY(open_tree(member, "t", &still_options, &space, &tree));
	shared.ready = 1;
	while (shared.done < MEMBERS - 1) {
		struct reef_range range = {
			.from = from,
			.to = to,
			.from_size = 8,
			.to_size = 8,
			.limit = reef_random_below(&random, 2)
					 ? reef_random_below(&random, 90)
					 : 0,
		};
		uint64_t at = reef_random_below(&random, SUM_KEYS);

		reef_key_u64(from, at);
		reef_key_u64(to, at + reef_random_below(&random, 300));
		if (reef_random_below(&random, 2)) {
			range.from = to;
			range.to = from;
			range.flags = REEF_RANGE_BACKWARD;
		}
		TRY(reef_tree_delete_range(tree, &range, &deleted));
		WANT(!range.limit || deleted <= range.limit);
		shared.deleted += deleted;
		TRY(reef_sleep(reef_random_below(&random, 500) * MILLISECOND));
	}
	TRY(reef_tree_count(tree, NULL, &left));
	WANT(left + shared.deleted == shared.inserted);
	TRY(reef_tree_delete_range(tree, NULL, &deleted));
	WANT(deleted == left);
	TRY(reef_tree_count(tree, NULL, &left));
	WANT(!left);
	reef_tree_close(tree);
	return 0;
}

/* Insert each key of one's own, again and again: it is there at most once. */
static int sums_insert(struct member *member)
{
	struct reef_random random = random_of(member);
	struct reef_space *space;
	struct reef_tree *tree;
	uint8_t key[8];
	int rc;

	TRY(await(&shared.ready, 1));
	TRY(open_tree(member, "t", &still_options, &space, &tree));
	for (uint32_t i = 0; i < 3 * SUM_KEYS; i++) {
		uint64_t number = reef_random_below(&random, SUM_KEYS);

		reef_key_u64(key, number);
		rc = reef_tree_insert(tree, key, 8, &number, 8, 0, NULL);
		if (rc && rc != -EEXIST)
			return rc;
		shared.inserted += !rc;
		if (!reef_random_below(&random, 100))
			TRY(reef_sleep(3 * SECOND));
	}
	shared.done++;
	reef_tree_close(tree);
	return 0;
}

/* --- stale --- */

static int count_entries(void *context, const struct reef_map_entry *entry)
{
	(void)entry;
	++*(uint64_t *)context;
	return 0;
}

/* Every call of a handle whose tree is gone. */
static int ask_stale(struct reef_tree *tree, uint64_t number)
{
	struct reef_map_value value = {0};
	uint64_t count = 0;
	uint8_t key[8];

	reef_key_u64(key, number);
	WANT_RC(reef_tree_get(tree, key, 8, &value), -REEF_EDROPPED);
	WANT_RC(reef_tree_put(tree, key, 8, "x", 1, 0, NULL), -REEF_EDROPPED);
	WANT_RC(reef_tree_delete(tree, key, 8, 0), -REEF_EDROPPED);
	WANT_RC(reef_tree_scan(tree, NULL, count_entries, &count),
		-REEF_EDROPPED);
	WANT(!count);
	WANT_RC(reef_tree_count(tree, NULL, &count), -REEF_EDROPPED);
	WANT_RC(reef_tree_first(tree, NULL, NULL, &value), -REEF_EDROPPED);
	WANT_RC(reef_tree_delete_range(tree, NULL, NULL), -REEF_EDROPPED);
	reef_map_value_free(&value);
	return 0;
}

static int stale_story(struct member *member)
{
	struct reef_random random = random_of(member);
	struct reef_tree *handles[6];
	struct reef_space *space;
	uint64_t number, count;
	uint8_t key[8];
	int life, i;

	for (life = 0; life < 6; life++) {
		uint64_t keys = reef_random_below(&random, 400);

		TRY(open_tree(member, "t", &still_options, &space,
			      &handles[life]));
		for (number = 0; number < keys; number++) {
			uint64_t value = (uint64_t)life << 32 | number;

			reef_key_u64(key, number * 7919 % 1000);
			TRY(reef_tree_put(handles[life], key, 8, &value, 8, 0,
					  NULL));
		}
		TRY(reef_tree_count(handles[life], NULL, &count));
		WANT(count == keys);
		for (i = 0; i < life; i++)
			TRY(ask_stale(handles[i],
				      reef_random_below(&random, 1000)));
		TRY(reef_tree_drop(space, "t"));
		if (reef_random_below(&random, 2))
			TRY(reef_sleep(reef_random_below(&random, 9) * SECOND));
		TRY(ask_stale(handles[life], 0));
	}
	for (i = 0; i < life; i++)
		reef_tree_close(handles[i]);
	return 0;
}

/* --- long --- */

#define LONG_KEYS 40u
#define LONG_VALUE 300000u

static uint8_t *long_bytes;

/* Keys of up to the limit, alike but for their last byte, or the first. */
static size_t long_key(uint64_t number, uint8_t *key)
{
	size_t size = number % 4 == 3 ? 16384 : 16384 - number * 37;

	memset(key, 'k', size);
	key[number % 2 ? 0 : size - 1] = (uint8_t)number;
	return size;
}

static int check_long(struct reef_tree *tree, const uint32_t *sizes,
		      uint8_t *key)
{
	struct reef_map_value value = {0};
	uint64_t there = 0, count = 0;

	for (uint64_t i = 0; i < LONG_KEYS; i++) {
		int rc = reef_tree_get(tree, key, long_key(i, key), &value);

		WANT_RC(rc, sizes[i] ? 0 : -ENOENT);
		if (rc)
			continue;
		there++;
		WANT(value.size == sizes[i] - 1 &&
		     !memcmp(value.bytes, long_bytes + i, value.size));
	}
	TRY(reef_tree_scan(tree, NULL, count_entries, &count));
	WANT(count == there);
	TRY(reef_tree_count(tree, NULL, &count));
	WANT(count == there);
	reef_map_value_free(&value);
	return 0;
}

static int long_story(struct member *member)
{
	const struct reef_tree_options options = {.key_max = 16384};
	struct reef_random random = random_of(member);
	uint32_t sizes[LONG_KEYS] = {0}; /* of values, plus 1; 0: not there */
	struct reef_tree *tree, *other;
	struct reef_space *space;
	uint8_t *key = malloc(16384);

	long_bytes = malloc(LONG_VALUE + LONG_KEYS);
	WANT(key && long_bytes);
	reef_random_fill(&random, long_bytes, LONG_VALUE + LONG_KEYS);
	TRY(open_tree(member, "t", &options, &space, &tree));
	TRY(reef_tree_open(space, "t", NULL, &other));
	for (uint32_t i = 0; i < 200; i++) {
		uint64_t number = reef_random_below(&random, LONG_KEYS);
		struct reef_tree *which =
			reef_random_below(&random, 2) ? tree : other;
		uint32_t size = (uint32_t)reef_random_below(
			&random,
			reef_random_below(&random, 8) ? 2000 : LONG_VALUE);
		size_t key_size = long_key(number, key);

		if (reef_random_below(&random, 3)) {
			TRY(reef_tree_put(which, key, key_size,
					  long_bytes + number, size, 0, NULL));
			sizes[number] = size + 1;
		} else {
			WANT_RC(reef_tree_delete(which, key, key_size, 0),
				sizes[number] ? 0 : -ENOENT);
			sizes[number] = 0;
		}
		if (i % 50 == 49)
			TRY(check_long(which, sizes, key));
		if (!reef_random_below(&random, 30))
			TRY(reef_sleep(5 * SECOND));
	}
	WANT_RC(reef_tree_put(tree, key, 16385, "", 0, 0, NULL), -EINVAL);
	TRY(check_long(tree, sizes, key));
	reef_tree_close(other);
	reef_tree_close(tree);
	free(long_bytes);
	free(key);
	return 0;
}

/* --- all of them --- */

static void for_seeds(bool calm, int (*first)(struct member *member),
		      int (*others)(struct member *member), uint64_t few)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(few, 500));
	     seed++)
		assert_int_equal(run(seed, calm, first, others), 0);
}

static void tree_outside_keys_that_stay_are_met_once(void **state)
{
	(void)state;
	/* The block of a leaf that had joined another was reused, as far as its
	 * slots, while its head still named it: that is no damage. */
	assert_int_equal(run(59, true, still_reader, still_churn), 0);
	for_seeds(true, still_reader, still_churn, 6);
}

static void tree_outside_inserts_and_deletes_add_up(void **state)
{
	(void)state;
	for_seeds(true, sums_delete, sums_insert, 6);
}

static void tree_outside_stale_handles_say_dropped(void **state)
{
	(void)state;
	for_seeds(true, stale_story, NULL, 6);
}

static void tree_outside_long_keys_and_values_come_back(void **state)
{
	(void)state;
	/* The head of a leaf had become the root's: that is no damage. */
	assert_int_equal(run(13, true, long_story, NULL), 0);
	for_seeds(true, long_story, NULL, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_outside_keys_that_stay_are_met_once),
		cmocka_unit_test(tree_outside_inserts_and_deletes_add_up),
		cmocka_unit_test(tree_outside_stale_handles_say_dropped),
		cmocka_unit_test(tree_outside_long_keys_and_values_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
