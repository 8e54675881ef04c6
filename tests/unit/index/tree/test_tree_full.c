/* A tree in a pool that is full: what can be done is done, and nothing else
 * happens. */
#include "fixture/plain_tree.h"

#include <stdlib.h>

#define KEYS_MAX 100000u

/* Whatever is left is taken, so that nothing at all can be allocated. */
static int take_rest(struct reef_space *space, uint64_t *blocks,
		     uint32_t *count)
{
	static const uint32_t sizes[] = {65528, 16376, 4088, 1016,
					 504,	248,   120,  56};
	uint64_t at;

	*count = 0;
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		while (*count < KEYS_MAX && !reef_alloc(space, sizes[i], &at))
			blocks[(*count)++] = at;
	return 0;
}

static int full(struct member *member)
{
	uint64_t *blocks = calloc(KEYS_MAX, sizeof(*blocks));
	struct reef_space *space;
	struct tree_count count;
	struct tree *tree;
	uint64_t i, value, keys = 3000;
	uint32_t taken;

	WANT(blocks);
	TRY(plain_tree_begin(member, NULL, &space, &tree));
	for (i = 0; i < keys; i++)
		TRY(plain_tree_put(tree, i, i));
	TRY(take_rest(space, blocks, &taken));
	/* A put that needs memory is refused, and nothing has happened. */
	WANT_RC(plain_tree_put(tree, keys + 1, 1), -ENOSPC);
	WANT_RC(plain_tree_get(tree, keys + 1, &value), -ENOENT);
	for (i = 0; i < keys; i++)
		TRY(plain_tree_get(tree, i, &value));
	/* Deletes go on. */
	for (i = 0; i < keys; i++)
		TRY(plain_tree_delete(tree, i));
	TRY(tree_count(tree, &count));
	WANT(!count.keys);
	/* With room again, all is as before. */
	while (taken)
		reef_free(space, blocks[--taken], 0);
	for (i = 0; i < keys; i++)
		TRY(plain_tree_put(tree, i, i));
	TRY(tree_count(tree, &count));
	WANT(count.keys == keys);
	tree_close(tree);
	free(blocks);
	return 0;
}

static void tree_deletes_go_on_when_the_pool_is_full(void **state)
{
	struct pool pool = {.calm = true, .ttl_ns = SECOND};

	(void)state;
	pool.capacity = 4 << 20;
	pool.extent_size = 2 << 20;
	pool_start(&pool, 1);
	pool_add(&pool, full);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_deletes_go_on_when_the_pool_is_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
