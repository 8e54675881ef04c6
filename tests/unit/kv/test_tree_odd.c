/* test_tree_odd.c - ordered maps with keys of all kinds, beside a list that is
 * sorted: empty, the beginning of each other, zeros and 0xff, as long as can
 * be. Ranges are asked for from every one of them, in both directions; and what
 * callbacks say, and what a call tells that did not come to its end. */
#include "fixture/pool_world.h"
#include "index/tree/layout.h"
#include "kv/tree.h"

#include "base/random.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MOST 16384u
#define KEYS 60u

struct odd_key {
	size_t size;
	uint8_t bytes[KEY_MOST];
	bool is_there;
	uint32_t value_size; /* its bytes are the last of this */
};

struct odd_keys {
	struct odd_key all[KEYS]; /* in order */
};

static int compare_keys(const void *a, const void *b)
{
	const struct odd_key *one = a, *other = b;
	size_t most = one->size < other->size ? one->size : other->size;
	int order = memcmp(one->bytes, other->bytes, most);

	if (order)
		return order;
	return (one->size > other->size) - (one->size < other->size);
}

/* All are different. */
static void make_keys(struct odd_keys *keys)
{
	for (uint32_t i = 0; i < KEYS; i++) {
		struct odd_key *key = &keys->all[i];

		switch (i % 4) {
		case 0: /* each begins the next, and the first is empty */
			key->size = i / 4;
			memset(key->bytes, 0, key->size);
			break;
		case 1:
			key->size = 9 + i / 8;
			memset(key->bytes, 0xff, key->size);
			key->bytes[8] = i % 8 == 1 ? 0 : 0xfe;
			break;
		case 2: /* alike in their first eight bytes */
			key->size = 10;
			memcpy(key->bytes, "samesame", 8);
			key->bytes[8] = (uint8_t)(i / 8 ? 0xff - i / 8 : 0);
			key->bytes[9] = (uint8_t)i;
			break;
		default:
			key->size = i < 32 ? KEY_MOST : 100 * i;
			memset(key->bytes, 'l', key->size);
			key->bytes[key->size - 1] = (uint8_t)i;
		}
	}
	qsort(keys->all, KEYS, sizeof(keys->all[0]), compare_keys);
}

/* --- a range, as it has to be --- */

struct wanted {
	const struct odd_keys *keys;
	int from, to; /* indices; -1: open */
	uint32_t flags;
};

static bool is_in(const struct wanted *wanted, int i)
{
	int from = wanted->from, to = wanted->to;

	if (!wanted->keys->all[i].is_there)
		return false;
	if (from >= 0 && i == from && wanted->flags & REEF_RANGE_AFTER)
		return false;
	if (wanted->flags & REEF_RANGE_BACKWARD)
		return (from < 0 || i <= from) && (to < 0 || i > to);
	return (from < 0 || i >= from) && (to < 0 || i < to);
}

static uint64_t count_wanted(const struct wanted *wanted)
{
	uint64_t count = 0;

	for (int i = 0; i < (int)KEYS; i++)
		count += is_in(wanted, i);
	return count;
}

static const struct odd_key *first_of(const struct wanted *wanted)
{
	bool backward = wanted->flags & REEF_RANGE_BACKWARD;
	int i = backward ? KEYS - 1 : 0;

	while (!is_in(wanted, i))
		i += backward ? -1 : 1;
	return &wanted->keys->all[i];
}

static struct reef_range range_of(const struct wanted *wanted)
{
	struct reef_range range = {.flags = wanted->flags};

	if (wanted->from >= 0) {
		range.from = wanted->keys->all[wanted->from].bytes;
		range.from_size = wanted->keys->all[wanted->from].size;
	}
	if (wanted->to >= 0) {
		range.to = wanted->keys->all[wanted->to].bytes;
		range.to_size = wanted->keys->all[wanted->to].size;
	}
	return range;
}

struct meeting {
	const struct wanted *wanted;
	int next; /* index of the next that is to be met, if it is in */
	uint64_t count;
	int says; /* after the first */
};

static int meet(void *context, const struct reef_map_entry *entry)
{
	struct meeting *meeting = context;
	const struct wanted *wanted = meeting->wanted;
	int step = wanted->flags & REEF_RANGE_BACKWARD ? -1 : 1;
	const struct odd_key *key;

	while (meeting->next >= 0 && meeting->next < (int)KEYS &&
	       !is_in(wanted, meeting->next))
		meeting->next += step;
	if (meeting->next < 0 || meeting->next >= (int)KEYS)
		return -EXDEV;
	key = &wanted->keys->all[meeting->next];
	meeting->next += step;
	meeting->count++;
	if (entry->key_size != key->size ||
	    memcmp(entry->key, key->bytes, key->size) ||
	    entry->value_size != key->value_size ||
	    !entry->value != !!(wanted->flags & REEF_RANGE_KEYS))
		return -EXDEV;
	return meeting->says;
}

static struct meeting meeting_of(const struct wanted *wanted)
{
	return (struct meeting){
		.wanted = wanted,
		.next = wanted->flags & REEF_RANGE_BACKWARD ? KEYS - 1 : 0,
	};
}

static int ask(struct reef_tree *tree, const struct wanted *wanted)
{
	struct reef_range range = range_of(wanted);
	struct meeting meeting = meeting_of(wanted);
	struct reef_map_value key = {0};
	uint64_t want = count_wanted(wanted), count = 0;
	int rc;

	TRY(reef_tree_scan(tree, &range, meet, &meeting));
	WANT(meeting.count == want);
	TRY(reef_tree_count(tree, &range, &count));
	WANT(count == want);
	rc = reef_tree_first(tree, &range, &key, NULL);
	WANT(rc == (want ? 0 : -ENOENT));
	if (want) {
		const struct odd_key *first = first_of(wanted);

		WANT(key.size == first->size &&
		     !memcmp(key.bytes, first->bytes, key.size));
	}
	reef_map_value_free(&key);
	range.limit = 3;
	meeting = meeting_of(wanted);
	TRY(reef_tree_scan(tree, &range, meet, &meeting));
	WANT(meeting.count == (want < 3 ? want : 3));
	return 0;
}

static int ask_all(struct reef_tree *tree, const struct odd_keys *keys,
		   struct reef_random *random)
{
	for (uint32_t flags = 0; flags < 8; flags++)
		for (int from = -1; from < (int)KEYS;
		     from += from < 4 ? 1 : 3) {
			struct wanted wanted = {keys, from, -1, flags};

			TRY(ask(tree, &wanted));
			wanted.to = (int)reef_random_below(random, KEYS);
			TRY(ask(tree, &wanted));
			wanted.to = from;
			TRY(ask(tree, &wanted));
		}
	return 0;
}

/* --- changing --- */

static int change_one(struct reef_tree *tree, struct odd_key *key,
		      struct reef_random *random)
{
	static const uint32_t sizes[] = {0, 1, 8, 255, 256, 257, 1023, 70000};
	static const uint8_t bytes[70000];
	int rc;

	if (!reef_random_below(random, 3)) {
		rc = reef_tree_delete(tree, key->bytes, key->size, 0);
		WANT(rc == (key->is_there ? 0 : -ENOENT));
		key->is_there = false;
		return 0;
	}
	if (!reef_random_below(random, 4)) {
		rc = reef_tree_insert(tree, key->bytes, key->size, NULL, 0, 0,
				      NULL);
		WANT(rc == (key->is_there ? -EEXIST : 0));
		key->value_size = rc ? key->value_size : 0;
		key->is_there = true;
		return 0;
	}
	key->value_size = sizes[reef_random_below(random, 8)];
	TRY(reef_tree_put(tree, key->bytes, key->size, bytes, key->value_size,
			  0, NULL));
	key->is_there = true;
	return 0;
}

static int delete_some(struct reef_tree *tree, struct odd_keys *keys,
		       struct reef_random *random)
{
	const struct wanted wanted = {
		.keys = keys,
		.from = (int)reef_random_below(random, KEYS + 1) - 1,
		.to = (int)reef_random_below(random, KEYS + 1) - 1,
		.flags = (uint32_t)reef_random_below(random, 8),
	};
	struct reef_range range = range_of(&wanted);
	bool backward = wanted.flags & REEF_RANGE_BACKWARD;
	uint64_t want = count_wanted(&wanted), deleted = 0;
	bool gone[KEYS] = {0};

	range.limit = reef_random_below(random, 6);
	if (range.limit && range.limit < want)
		want = range.limit;
	for (int i = 0; i < (int)KEYS; i++) {
		int at = backward ? (int)KEYS - 1 - i : i;

		gone[at] = is_in(&wanted, at) && deleted < want;
		deleted += gone[at];
	}
	TRY(reef_tree_delete_range(tree, &range, &deleted));
	WANT(deleted == want);
	for (uint32_t i = 0; i < KEYS; i++)
		keys->all[i].is_there = keys->all[i].is_there && !gone[i];
	return 0;
}

static int odd_keys(struct member *member)
{
	struct reef_tree_options options = {
		.key_max = KEY_MOST,
		.leaf_bytes = member->pool->seed % 2 ? 256 : 65536,
		.cache_bytes = member->pool->seed % 3 ? 0 : 1,
	};
	struct odd_keys *keys = calloc(1, sizeof(*keys));
	struct reef_tree *tree, *other;
	struct reef_random random;
	struct reef_space *space;

	WANT(keys);
	make_keys(keys);
	for (uint32_t i = 1; i < KEYS; i++)
		WANT(compare_keys(&keys->all[i - 1], &keys->all[i]) < 0);
	reef_random_init(&random, member->pool->seed);
	TRY(member_space(member, &space));
	TRY(reef_tree_open(space, "t", &options, &tree));
	TRY(reef_tree_open(space, "t", &options, &other));
	for (uint32_t round = 0; round < 4; round++) {
		for (uint32_t i = 0; i < 150; i++)
			TRY(change_one(
				reef_random_below(&random, 2) ? tree : other,
				&keys->all[reef_random_below(&random, KEYS)],
				&random));
		if (round)
			TRY(delete_some(tree, keys, &random));
		TRY(ask_all(round % 2 ? tree : other, keys, &random));
	}
	reef_tree_close(other);
	reef_tree_close(tree);
	TRY(reef_tree_drop(space, "t"));
	free(keys);
	return 0;
}

static void tree_odd_keys_are_in_order_in_every_range(void **state)
{
	(void)state;
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(6, 100));
	     seed++) {
		struct pool pool = {.calm = true, .ttl_ns = 100 * SECOND};

		pool_start(&pool, seed);
		pool_add(&pool, odd_keys);
		pool_finish(&pool);
	}
}

/* --- callbacks --- */

static int says(struct member *member)
{
	static const int all[] = {1,	   -1,	    INT_MIN, INT_MAX,
				  -EAGAIN, -ESTALE, -ENOENT, -REEF_EDROPPED,
				  -ENOSPC};
	struct odd_keys *keys = calloc(1, sizeof(*keys));
	const struct wanted wanted = {.keys = keys, .from = -1, .to = -1};
	struct reef_space *space;
	struct reef_tree *tree;

	WANT(keys);
	TRY(member_space(member, &space));
	TRY(reef_tree_open(space, "t", NULL, &tree));
	for (uint32_t i = 0; i < KEYS; i++) {
		keys->all[i].size = 1;
		keys->all[i].bytes[0] = (uint8_t)i;
		keys->all[i].is_there = true;
		TRY(reef_tree_put(tree, keys->all[i].bytes, 1, NULL, 0, 0,
				  NULL));
	}
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct meeting meeting = meeting_of(&wanted);

		meeting.says = all[i];
		WANT_RC(reef_tree_scan(tree, NULL, meet, &meeting), all[i]);
		WANT(meeting.count == 1);
	}
	reef_tree_close(tree);
	free(keys);
	return 0;
}

static void tree_scan_returns_what_its_callback_says(void **state)
{
	struct pool pool = {.calm = true, .ttl_ns = 100 * SECOND};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, says);
	pool_finish(&pool);
}

/* --- expired keys in ranges --- */

static int expired(struct member *member)
{
	struct reef_range range = {.limit = 2};
	struct reef_space *space;
	struct reef_tree *tree;
	uint64_t now_ms, deleted;
	uint8_t i;

	TRY(member_space(member, &space));
	TRY(reef_tree_open(space, "t", NULL, &tree));
	TRY(reef_tree_now(tree, &now_ms));
	for (i = 0; i < 10; i++)
		TRY(reef_tree_put(tree, &i, 1, NULL, 0, i < 5 ? now_ms + 50 : 0,
				  NULL));
	TRY(reef_sleep(60 * MILLISECOND));
	/* Nobody can see 0 to 4 any more: the first two are 5 and 6. */
	TRY(reef_tree_delete_range(tree, &range, &deleted));
	WANT(deleted == 2);
	i = 6;
	WANT_RC(reef_tree_delete(tree, &i, 1, 0), -ENOENT);
	i = 7;
	TRY(reef_tree_delete(tree, &i, 1, 0));
	range.limit = 0;
	TRY(reef_tree_delete_range(tree, &range, &deleted));
	WANT(deleted == 2);
	reef_tree_close(tree);
	return 0;
}

static void tree_delete_range_counts_what_was_there(void **state)
{
	struct pool pool = {.calm = true, .ttl_ns = 100 * SECOND};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, expired);
	pool_finish(&pool);
}

/* --- a call that does not come to its end --- */

#define DAMAGED_AT 40u /* batches of who deletes */
#define MANY 250u      /* noted together */

static void count_batches(struct member *member, bool is_posted)
{
	uint64_t *note = member->pool->note;

	if (member->number == 1 && is_posted && note[1])
		note[1]++;
}

static int open_small(struct member *member, struct reef_tree **tree)
{
	const struct reef_tree_options options = {.leaf_bytes = 256};
	struct reef_space *space;

	TRY(member_space(member, &space));
	return reef_tree_open(space, "t", &options, tree);
}

struct two_bytes {
	uint8_t bytes[2];
};

static struct two_bytes key_of(uint32_t number)
{
	return (struct two_bytes){{(uint8_t)(number >> 8), (uint8_t)number}};
}

static int deletes_half(struct member *member)
{
	uint64_t *note = member->pool->note, deleted = 0, there = 0;
	struct reef_map_value value = {0};
	struct reef_tree *tree;
	int rc;

	TRY(open_small(member, &tree));
	for (uint32_t i = 0; i < MANY; i++)
		TRY(reef_tree_put(tree, key_of(i).bytes, 2, NULL, 0, 0, NULL));
	note[0] = 1;
	while (note[0] < 2)
		TRY(reef_sleep(1000));
	note[1] = 1;
	rc = reef_tree_delete_range(tree, NULL, &deleted);
	WANT(rc == -REEF_ECORRUPT);
	WANT(deleted > 0 && deleted < MANY);
	/* All before the first that is there, or cannot be read, are not. */
	for (uint32_t i = 0; i < MANY && !there; i++) {
		rc = reef_tree_get(tree, key_of(i).bytes, 2, &value);
		there = rc == -ENOENT ? 0 : i;
	}
	WANT(there == deleted);
	reef_map_value_free(&value);
	reef_tree_close(tree);
	return 0;
}

static int damages_the_middle(struct member *member)
{
	const struct two_bytes middle = key_of(MANY / 2);
	uint8_t nonsense[176 + 2048];
	struct tree_place place = {0};
	struct reef_tree *tree;
	uint64_t word, at;

	while (!member->pool->note[0])
		TRY(reef_sleep(1000));
	TRY(open_small(member, &tree));
	TRY(tree_place_find(tree->map.table, middle.bytes, 2, &place));
	TRY(reef_read(member->reef, place.head, &word, 8));
	TRY(reef_long_address(tree->map.object.space, word & TREE_SHORT_MASK,
			      &at));
	member->pool->note[0] = 2;
	while (member->pool->note[1] < DAMAGED_AT)
		TRY(reef_sleep(1000));
	/* The id goes, and all that follows. */
	memset(nonsense, 0xee, sizeof(nonsense));
	TRY(reef_write(member->reef, at, nonsense,
		       tree_word_size(word) < sizeof(nonsense)
			       ? tree_word_size(word)
			       : sizeof(nonsense)));
	entry_room_free(&place.room);
	reef_tree_close(tree);
	return 0;
}

static void tree_delete_range_tells_how_far_it_came(void **state)
{
	struct pool pool = {
		.ttl_ns = 100 * SECOND,
		.posts = count_batches,
	};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, deletes_half);
	pool_add(&pool, damages_the_middle);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_odd_keys_are_in_order_in_every_range),
		cmocka_unit_test(tree_scan_returns_what_its_callback_says),
		cmocka_unit_test(tree_delete_range_counts_what_was_there),
		cmocka_unit_test(tree_delete_range_tells_how_far_it_came),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
