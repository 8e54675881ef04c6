/* test_tree_examine.c - what is said of a tree with damaged nodes
 * (kv/examine.h), in simulation. */
#include "fixture/pool_world.h"
#include "index/tree/internal.h"
#include "kv/examine.h"
#include "kv/tree.h"

#include <errno.h>
#include <reef/key.h>
#include <stdio.h>
#include <string.h>

#define KEYS 600u
#define FAULTS 8u

struct seen {
	uint32_t count;
	struct {
		bool has_after, has_before;
		uint8_t after[64], before[64];
		size_t after_size, before_size;
		int error;
	} faults[FAULTS];
};

static void see_fault(void *context, const struct tree_fault *fault)
{
	struct seen *seen = context;

	if (seen->count < FAULTS) {
		seen->faults[seen->count].error = fault->error;
		seen->faults[seen->count].has_after = fault->after;
		seen->faults[seen->count].has_before = fault->before;
		seen->faults[seen->count].after_size = fault->after_size;
		seen->faults[seen->count].before_size = fault->before_size;
		if (fault->after)
			memcpy(seen->faults[seen->count].after, fault->after,
			       fault->after_size);
		if (fault->before)
			memcpy(seen->faults[seen->count].before, fault->before,
			       fault->before_size);
	}
	seen->count++;
}

static void make_key(uint32_t number, char key[16])
{
	snprintf(key, 16, "key-%06u", number);
}

static int fill(struct reef_space *space, struct reef_tree **tree)
{
	const struct reef_tree_options options = {.leaf_bytes = 512};
	char key[16];

	TRY(reef_tree_open(space, "t", &options, tree));
	for (uint32_t i = 0; i < KEYS; i++) {
		make_key(i, key);
		TRY(reef_tree_put(*tree, key, strlen(key), key, strlen(key), 0,
				  NULL));
	}
	return 0;
}

/* Scribble over the leaf of a key, but for the words in front. */
static int damage(struct reef_tree *tree, const char *key)
{
	struct tree *index = tree->map.table;
	struct tree_node *node;
	uint8_t noise[128];
	int rc;

	memset(noise, 0xa5, sizeof(noise));
	reef_enter(index->reef);
	rc = tree_search(index, key, (uint32_t)strlen(key), 0, false, NULL,
			 &node);
	if (!rc) {
		rc = reef_write(index->reef,
				node->at + offsetof(struct tree_block, right),
				noise, sizeof(noise));
		tree_node_unref(node);
	}
	reef_leave(index->reef);
	return rc;
}

/* Look at it with a handle that remembers nothing. */
static int examine(struct reef_space *space, struct seen *seen, uint64_t *keys)
{
	const struct reef_tree_options options = {.flags = REEF_TREE_EXISTING};
	struct reef_tree *tree;
	int rc;

	*seen = (struct seen){0};
	TRY(reef_tree_open(space, "t", &options, &tree));
	rc = tree_examine(tree, see_fault, seen, keys);
	reef_tree_close(tree);
	return rc;
}

/* True if that key is in a fault's range. */
static bool covers(const struct seen *seen, uint32_t fault, const char *key)
{
	size_t size = strlen(key);

	return (!seen->faults[fault].has_after ||
		tree_compare(seen->faults[fault].after,
			     (uint32_t)seen->faults[fault].after_size, key,
			     (uint32_t)size) < 0) &&
	       (!seen->faults[fault].has_before ||
		tree_compare(seen->faults[fault].before,
			     (uint32_t)seen->faults[fault].before_size, key,
			     (uint32_t)size) > 0);
}

static void run(uint64_t seed, int (*work)(struct member *member))
{
	struct pool pool = {0};

	pool_start(&pool, seed);
	pool_add(&pool, work);
	pool_finish(&pool);
}

/* Damage the leaves of some keys, and see that each is told, with the error,
 * and that every key is either met or in the range of a fault. */
static int damage_and_look(struct member *member, const uint32_t *numbers,
			   uint32_t count)
{
	struct reef_space *space;
	struct reef_tree *tree;
	struct seen seen;
	uint64_t keys;
	uint32_t covered = 0;
	char key[16];

	TRY(member_space(member, &space));
	TRY(fill(space, &tree));
	WANT(!examine(space, &seen, &keys) && !seen.count && keys == KEYS);
	for (uint32_t i = 0; i < count; i++) {
		make_key(numbers[i], key);
		TRY(damage(tree, key));
	}
	TRY(examine(space, &seen, &keys));
	WANT(seen.count == count);
	for (uint32_t i = 0; i < count; i++) {
		make_key(numbers[i], key);
		WANT(seen.faults[i].error == -REEF_ECORRUPT);
		WANT(covers(&seen, i, key));
	}
	for (uint32_t k = 0; k < KEYS; k++) {
		make_key(k, key);
		for (uint32_t i = 0; i < count; i++)
			covered += covers(&seen, i, key);
	}
	/* Of the keys in a fault's range none was met, and no other is. */
	WANT(covered > 0 && covered < KEYS / 2);
	WANT(keys + covered == KEYS);
	reef_tree_close(tree);
	return 0;
}

static int one_in_the_middle(struct member *member)
{
	return damage_and_look(member, (const uint32_t[]){KEYS / 2}, 1);
}

static int first_and_last(struct member *member)
{
	return damage_and_look(member, (const uint32_t[]){0, KEYS - 1}, 2);
}

static int several(struct member *member)
{
	return damage_and_look(member,
			       (const uint32_t[]){100, 250, 400, KEYS - 1}, 4);
}

static int empty(struct member *member)
{
	struct reef_space *space;
	struct reef_tree *tree;
	struct seen seen;
	uint64_t keys;

	TRY(member_space(member, &space));
	TRY(reef_tree_open(space, "t", NULL, &tree));
	WANT(!examine(space, &seen, &keys) && !seen.count && !keys);
	TRY(damage(tree, "any"));
	WANT(!examine(space, &seen, &keys) && seen.count == 1 && !keys);
	WANT(!seen.faults[0].has_after && !seen.faults[0].has_before);
	reef_tree_close(tree);
	return 0;
}

static void tree_examine_damaged_leaf_is_named(void **state)
{
	run(1, one_in_the_middle);
}

static void tree_examine_leaves_at_the_ends_are_named(void **state)
{
	run(2, first_and_last);
}

static void tree_examine_all_that_are_damaged_are_named(void **state)
{
	run(3, several);
}

static void tree_examine_empty_tree_is_sound_or_damaged(void **state)
{
	run(4, empty);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_examine_damaged_leaf_is_named),
		cmocka_unit_test(tree_examine_leaves_at_the_ends_are_named),
		cmocka_unit_test(tree_examine_all_that_are_damaged_are_named),
		cmocka_unit_test(tree_examine_empty_tree_is_sound_or_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
