/* Fibers that share an open tree: what one learns is no damage to the others.
 */
#include "fixture/plain_tree.h"

#include "index/tree/internal.h"

#define KEYS 300u

static const struct tree_options small = {.leaf_bytes = 256, .seed = 7};

static int look(void *context)
{
	uint64_t value;

	return plain_tree_get(context, 7, &value);
}

/* A fiber begins with the root as it was when it was a leaf, and reads that;
 * a while later another sees that the tree has grown. */
static int see_growth(struct tree *idle, uint64_t first, uint64_t now,
		      uint64_t after_ns)
{
	struct reef_fiber *fiber;
	int rc;

	reef_enter(idle->reef);
	idle->top = first;
	idle->epoch = reef_epoch(idle->reef);
	TRY(reef_fiber_spawn(reef_fiber_sched(), look, idle, &fiber));
	TRY(reef_sleep(after_ns));
	idle->top = now;
	idle->top_head = 0;
	TRY(reef_fiber_join(fiber, &rc));
	TRY(rc);
	WANT(!idle->top_head || tree_node_known(idle, idle->top_head)->level);
	reef_leave(idle->reef);
	return 0;
}

static int see_root_grow(struct member *member)
{
	struct tree *tree, *idle;
	struct reef_space *space;
	uint64_t first = 0;

	TRY(plain_tree_begin(member, &small, &space, &tree));
	for (uint64_t i = 0; i < KEYS; i++) {
		TRY(plain_tree_put(tree, i, i));
		if (!first)
			first = tree->top;
	}
	WANT(!tree_top_height(first) && tree_top_height(tree->top));
	for (uint64_t us = 0; us < 100; us++) {
		TRY(tree_open(space, tree_root(tree), 0, &idle));
		TRY(see_growth(idle, first, tree->top, 1 + us * MICROSECOND));
		tree_close(idle);
	}
	tree_close(tree);
	return 0;
}

static void tree_root_may_grow_while_it_is_read(void **state)
{
	struct pool pool = {.ttl_ns = SECOND};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, see_root_grow);
	assert_int_equal(pool_end(&pool), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_root_may_grow_while_it_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
