/* A handle that makes few calls, while another changes the tree and its memory
 * is reused: whatever it remembers, it answers as if it remembered nothing. */
#include "fixture/plain_tree.h"

#include "base/mutant.h"
#include "base/random.h"
#include "fixture/seeds.h"

#include <stdlib.h>

#define KEYS 1500u
#define ROUNDS 12u
#define LOOKS 40u

static const struct tree_options small = {.leaf_bytes = 384, .seed = 7};

struct story {
	struct reef_random random;
	uint64_t values[KEYS]; /* 0: not there */
	uint64_t serial;
};

/* Delete or put keys that follow each other. */
static int change_some(struct story *story, struct tree *busy)
{
	bool deletes = reef_random_below(&story->random, 2);
	uint64_t key = reef_random_below(&story->random, KEYS);
	uint64_t count = 1 + reef_random_below(&story->random, KEYS / 3);

	for (; count && key < KEYS; count--, key++) {
		if (!deletes) {
			story->values[key] = ++story->serial;
			TRY(plain_tree_put(busy, key, story->values[key]));
		} else if (story->values[key]) {
			story->values[key] = 0;
			TRY(plain_tree_delete(busy, key));
		}
	}
	return 0;
}

static int check_key(struct story *story, struct tree *idle, uint64_t key)
{
	uint64_t value = 0;
	int rc = plain_tree_get(idle, key, &value);

	if (rc && rc != -ENOENT)
		TRY(rc);
	WANT(value == story->values[key]);
	return 0;
}

struct range_check {
	struct story *story;
	uint64_t next; /* key that may come at the earliest */
};

static int check_met(void *context, const struct entry *entry)
{
	struct range_check *check = context;
	uint64_t key, value;

	if (reef_key_read_u64(entry->key, entry->key_size, &key) != 8 ||
	    key >= KEYS || key < check->next)
		return -EXDEV;
	for (; check->next < key; check->next++)
		if (check->story->values[check->next])
			return -EXDEV;
	check->next++;
	memcpy(&value, entry->value, 8);
	return value == check->story->values[key] ? 0 : -EXDEV;
}

/* The count comes first, because a scan refreshes what is remembered. However
 * much of that is old, to count takes fewer READs than to get every key. */
static int check_all(struct member *member, struct story *story,
		     struct tree *idle)
{
	const struct tree_range all = {0};
	struct range_check check = {.story = story};
	struct reef_counts before, cost;
	struct tree_count count;
	uint64_t keys = 0;

	before = reef_count_read(&member->count);
	TRY(tree_count(idle, &count));
	cost = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &cost);
	WANT(cost.memory_operations <= 2 * KEYS);
	TRY(tree_scan(idle, &all, check_met, &check));
	for (uint64_t key = 0; key < KEYS; key++) {
		keys += story->values[key] != 0;
		WANT(key < check.next || !story->values[key]);
	}
	WANT(count.keys == keys);
	return 0;
}

static int meet(void *context, const struct entry *entry)
{
	(void)context;
	(void)entry;
	return 0;
}

/* A walk by a handle of its own: it remembers inner nodes, and has not met all
 * leaves that they name, some of which are gone. */
static int walk_some(struct story *story, struct tree *walker)
{
	uint64_t cursor = reef_random_next(&story->random);

	return tree_walk(walker, &cursor, 3, meet, NULL);
}

static int tell_story(struct member *member)
{
	struct story *story = calloc(1, sizeof(*story));
	struct reef_space *space;
	struct tree *busy, *idle, *walker;
	uint32_t round, i;

	WANT(story);
	reef_random_init(&story->random, member->pool->seed);
	TRY(plain_tree_begin(member, &small, &space, &busy));
	TRY(tree_open(space, tree_root(busy), 0, &idle));
	TRY(tree_open(space, tree_root(busy), 0, &walker));
	for (round = 0; round < ROUNDS; round++) {
		for (i = reef_random_below(&story->random, 4); i < 4; i++)
			TRY(change_some(story, busy));
		if (!reef_random_below(&story->random, 4))
			TRY(check_all(member, story, idle));
		/* What was freed is reused in what follows. */
		TRY(reef_sleep(3 * SECOND));
		for (i = 0; i < 4; i++)
			TRY(walk_some(story, walker));
		for (i = 0; i < LOOKS; i++)
			TRY(check_key(story, idle,
				      reef_random_below(&story->random, KEYS)));
		if (!reef_random_below(&story->random, 4))
			TRY(check_all(member, story, idle));
	}
	tree_close(walker);
	tree_close(idle);
	tree_close(busy);
	free(story);
	return 0;
}

static int run(uint64_t seed)
{
	struct pool pool = {.calm = true, .ttl_ns = SECOND};

	pool_start(&pool, seed);
	pool_add(&pool, tell_story);
	return pool_end(&pool);
}

static void tree_idle_handle_answers_as_a_new_one(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = seeds_first(); seeds_has(seed, seeds_of(150, 1000)); seed++)
		assert_int_equal(run(seed), 0);
}

#if !SANITIZED
static void tree_stale_mutants_are_found(void **state)
{
	static const enum reef_mutant mutants[] = {
		REEF_MUTANTS_OF_STALE_TREE(REEF_MUTANT_NUMBER)};

	(void)state;
	for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
		bool found = false;

		try_quiet = true;
		reef_mutate(mutants[i]);
		for (uint64_t seed = 1; seed <= 100 && !found; seed++)
			found = run(seed) != 0;
		reef_mutate(REEF_MUTANT_NONE);
		try_quiet = false;
		if (!found)
			fail_msg("mutant %s was not found",
				 reef_mutant_name(mutants[i]));
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_idle_handle_answers_as_a_new_one),
#if !SANITIZED
		cmocka_unit_test(tree_stale_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
