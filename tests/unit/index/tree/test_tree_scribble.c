/* R10: a tree whose memory anybody may have written to. One word at a time gets
 * a bad value; then everything is done with the tree that can be. Errors are
 * fine. Nothing may crash or overflow, every call returns, and while only one
 * leaf's block is damaged, keys of other leaves are as they were. */
#include "fixture/plain_tree.h"

#include "base/random.h"
#include "fixture/seeds.h"
#include "index/tree/internal.h"

#include <stdlib.h>

#define KEYS 120u
#define NODES_MAX 256u

static const struct tree_options small = {
	.leaf_bytes = 384, .inline_max = 16, .seed = 7};

struct place {
	uint64_t at;
	uint32_t size;
	bool is_leaf_block;
	uint64_t low, high; /* keys of the leaf; high 0: to the end */
};

struct places {
	struct place all[NODES_MAX];
	uint32_t count;
};

static uint64_t key_number(const uint8_t *key, uint32_t size)
{
	uint8_t bytes[8] = {0};
	uint64_t number = 0;

	memcpy(bytes, key, size < 8 ? size : 8);
	reef_key_read_u64(bytes, 8, &number);
	return number;
}

/* Find heads and blocks of all nodes, level by level; and the root. */
static int find_places(struct tree *tree, struct places *places)
{
	struct tree_node *node, *next;
	struct tree_child child = {0};
	uint32_t level = 0;
	int rc = 0;

	places->all[places->count++] = (struct place){
		.at = tree_root(tree),
		.size = 64,
	};
	reef_enter(tree->reef);
	while (!rc &&
	       !(rc = tree_search(tree, "", 0, level, false, NULL, &node))) {
		while (node && places->count + 2 < NODES_MAX) {
			places->all[places->count++] =
				(struct place){.at = node->head, .size = 56};
			places->all[places->count++] = (struct place){
				.at = node->at,
				.size = tree_word_size(node->word),
				.is_leaf_block = !level,
				.low = key_number(node->low, node->low_size),
				.high = node->high ? key_number(node->high,
								node->high_size)
						   : 0,
			};
			next = NULL;
			child.head = node->right;
			if (child.head)
				rc = tree_node_get(tree, &child, &next);
			tree_node_unref(node);
			node = next;
		}
		tree_node_unref(node);
		level++;
	}
	reef_leave(tree->reef);
	return rc == -ENOENT ? 0 : rc;
}

static int see(void *context, const struct entry *entry)
{
	uint32_t *sum = context;

	/* All bytes are looked at, so that a sanitizer does, too. */
	for (size_t i = 0; i < entry->key_size; i++)
		*sum += ((const uint8_t *)entry->key)[i];
	for (size_t i = 0; entry->value && i < entry->value_size; i++)
		*sum += ((const uint8_t *)entry->value)[i];
	return 0;
}

/* Everything that reads. */
static int read_all(struct tree *tree, const struct place *place)
{
	struct tree_range range = {0};
	struct tree_count count;
	uint64_t key, value, cursor = 0;
	uint32_t sum = 0;
	int rc;

	for (key = 0; key < 2 * KEYS; key++) {
		bool is_other = place->is_leaf_block &&
				(key < place->low ||
				 (place->high && key >= place->high));

		rc = plain_tree_get(tree, key, &value);
		if (is_other)
			WANT(rc == (key % 2 ? -ENOENT : 0));
	}
	(void)tree_scan(tree, &range, see, &sum);
	range.flags = TREE_RANGE_BACKWARD;
	(void)tree_scan(tree, &range, see, &sum);
	(void)tree_count(tree, &count);
	(void)tree_walk(tree, &cursor, 1000, see, &sum);
	return 0;
}

/* A word, and what was not there before. */
static uint64_t bad_word(struct reef_random *random, uint64_t word)
{
	switch (reef_random_below(random, 6)) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return word ^ UINT64_C(1) << reef_random_below(random, 64);
	case 3:
		return word + (UINT64_C(1) << reef_random_below(random, 64));
	case 4:
		return word | TREE_DROPPED;
	default:
		return reef_random_next(random);
	}
}

static int scribble(struct member *member)
{
	struct places *places = calloc(1, sizeof(*places));
	const struct place *place;
	struct reef_random random;
	struct reef_space *space;
	struct tree *tree, *other;
	uint64_t i, at, word;

	WANT(places);
	reef_random_init(&random, member->pool->seed);
	TRY(plain_tree_begin(member, &small, &space, &tree));
	for (i = 0; i < KEYS; i++)
		TRY(plain_tree_put(tree, 2 * (i * 37 % KEYS), i));
	TRY(find_places(tree, places));
	place = &places->all[reef_random_below(&random, places->count)];
	at = place->at + 8 * reef_random_below(&random, place->size / 8);
	TRY(reef_read(member->reef, at, &word, 8));
	word = bad_word(&random, word);
	TRY(reef_write(member->reef, at, &word, 8));
	/* One that remembers, and one that does not. */
	TRY(read_all(tree, place));
	if (!tree_open(space, tree_root(tree), 0, &other)) {
		TRY(read_all(other, place));
		for (i = 0; i < 2 * KEYS; i += 3)
			(void)plain_tree_put(other, i, i);
		for (i = 0; i < 2 * KEYS; i++)
			(void)plain_tree_delete(other, i);
		(void)tree_drop(other);
		tree_close(other);
	}
	(void)tree_drop(tree);
	tree_close(tree);
	free(places);
	return 0;
}

static void tree_scribbled_words_do_no_harm(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = seeds_first(); seeds_has(seed, seeds_of(150, 5000));
	     seed++) {
		struct pool pool = {.calm = true, .ttl_ns = 100 * SECOND};

		pool_start(&pool, seed);
		pool_add(&pool, scribble);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_scribbled_words_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
