/* A drop that stopped on its way: (5) of tree.h. Whatever a handle remembers,
 * it says that a key is dropped if, and only if, the leaf of that key is. */
#include "fixture/plain_tree.h"

#include "index/tree/internal.h"

#include <stdlib.h>

#define KEYS 600u
#define HANDLES 6u
#define LEAVES_MAX 256u

static const struct tree_options small = {.leaf_bytes = 256, .seed = 7};

struct scene {
	struct member *member;
	struct reef_space *space;
	struct tree *busy;
	struct tree *idle[HANDLES]; /* each remembers another time */
	uint64_t leaves[LEAVES_MAX];
	uint64_t begins[LEAVES_MAX]; /* the first key that may be there */
	uint32_t count;
};

/* Fill a tree; handles look at it in between, and not again. */
static int fill(struct scene *scene, struct member *member)
{
	static const uint32_t looks_after[HANDLES] = {1,   12,	40,
						      150, 400, KEYS};
	uint64_t i, j, value;
	uint32_t handle = 0;

	scene->member = member;
	TRY(plain_tree_begin(member, &small, &scene->space, &scene->busy));
	for (i = 0; i < KEYS; i++) {
		TRY(plain_tree_put(scene->busy, i * 241 % KEYS, i));
		if (i + 1 != looks_after[handle])
			continue;
		TRY(tree_open(scene->space, tree_root(scene->busy), 0,
			      &scene->idle[handle]));
		for (j = 0; j <= i; j++)
			TRY(plain_tree_get(scene->idle[handle], j * 241 % KEYS,
					   &value));
		handle++;
	}
	return 0;
}

static int find_leaves(struct scene *scene)
{
	struct tree *tree = scene->busy;
	struct tree_node *node, *next;
	uint8_t low[8];
	int rc;

	reef_enter(tree->reef);
	rc = tree_search(tree, "", 0, 0, false, NULL, &node);
	while (!rc && node) {
		struct tree_child child = {.head = node->right};

		WANT(scene->count < LEAVES_MAX && node->low_size <= 8);
		memset(low, 0, sizeof(low));
		memcpy(low, node->low, node->low_size);
		scene->leaves[scene->count] = node->head;
		reef_key_read_u64(low, 8, &scene->begins[scene->count++]);
		next = NULL;
		if (child.head)
			rc = tree_node_get(tree, &child, &next);
		tree_node_unref(node);
		node = next;
	}
	reef_leave(tree->reef);
	return rc;
}

static int begin(struct scene *scene, struct member *member)
{
	uint64_t top, at;

	TRY(fill(scene, member));
	TRY(find_leaves(scene));
	WANT(scene->count > 20);
	at = tree_top_at(scene->busy);
	TRY(reef_read(member->reef, at, &top, 8));
	top |= TREE_DROPPING;
	return reef_write(member->reef, at, &top, 8);
}

static int drop_leaves(struct scene *scene, uint32_t from, uint32_t to)
{
	int rc = 0;

	reef_enter(scene->member->reef);
	for (; from < to && !rc; from++)
		rc = tree_drop_head(scene->busy, scene->leaves[from]);
	reef_leave(scene->member->reef);
	return rc;
}

/* Let a leaf join the one on its left, by somebody who does not go on. */
static int let_join(struct scene *scene, uint32_t leaf)
{
	struct tree_child child = {.head = scene->leaves[leaf]};
	struct tree *tree = scene->busy;
	struct tree_image image;
	uint64_t before;

	reef_enter(tree->reef);
	TRY(tree_image_read(tree, &child, true, &image));
	TRY(tree_freeze(tree, &image));
	TRY(reef_cas(tree->reef, child.head, image.word,
		     image.word | TREE_JOINING, &before));
	WANT(before == image.word);
	tree_image_free(&image);
	reef_leave(tree->reef);
	return 0;
}

static int end(struct scene *scene)
{
	TRY(tree_drop(scene->busy));
	for (uint32_t i = 0; i < HANDLES; i++)
		tree_close(scene->idle[i]);
	tree_close(scene->busy);
	free(scene);
	return 0;
}

static int end_at_once(void *context, const struct entry *entry)
{
	(void)context;
	(void)entry;
	return 77;
}

static int ask(struct tree *tree, uint64_t key, uint32_t how)
{
	struct tree_range range = {.from_size = 8, .limit = 1};
	uint8_t bytes[8];
	uint64_t value;
	int rc;

	if (how % 3 == 0)
		return plain_tree_get(tree, key, &value);
	if (how % 3 == 1)
		return plain_tree_put(tree, key, key);
	reef_key_u64(bytes, key);
	range.from = bytes;
	/* Leaves of a long one are read together. */
	if (how % 2)
		range.limit = KEYS;
	rc = tree_scan(tree, &range, end_at_once, NULL);
	return rc == 77 ? 0 : rc;
}

/* Drop so many leaves in a hundred. */
static int drop_some(struct member *member, uint32_t share)
{
	struct scene *scene = calloc(1, sizeof(*scene));
	uint32_t dropped, handle, how = 0;
	uint64_t key;

	WANT(scene);
	TRY(begin(scene, member));
	dropped = 1 + (scene->count - 2) * share / 100;
	TRY(drop_leaves(scene, 0, dropped));
	for (handle = 0; handle < HANDLES; handle++)
		for (key = 0; key < KEYS; key++, how++)
			WANT_RC(ask(scene->idle[handle], key, how + handle),
				key < scene->begins[dropped] ? -REEF_EDROPPED
							     : 0);
	return end(scene);
}

static int drop_one(struct member *member)
{
	return drop_some(member, 0);
}

static int drop_half(struct member *member)
{
	return drop_some(member, 50);
}

static int drop_most(struct member *member)
{
	return drop_some(member, 100);
}

/* Two leaves that are JOINING, behind one that is dropped: none can join any
 * more. They are read; who wants to change the second drops both. */
static int drop_before_joining(struct member *member)
{
	struct scene *scene = calloc(1, sizeof(*scene));
	uint64_t first, second, value;

	WANT(scene);
	TRY(begin(scene, member));
	first = scene->begins[8];
	second = scene->begins[9];
	WANT(second > first && scene->begins[10] > second);
	TRY(let_join(scene, 8));
	TRY(let_join(scene, 9));
	TRY(drop_leaves(scene, 0, 8));
	TRY(plain_tree_get(scene->idle[5], second, &value));
	TRY(plain_tree_get(scene->idle[1], first, &value));
	WANT_RC(plain_tree_put(scene->idle[4], second, 1), -REEF_EDROPPED);
	for (uint32_t i = 0; i < HANDLES; i++) {
		WANT_RC(plain_tree_get(scene->idle[i], first, &value),
			-REEF_EDROPPED);
		WANT_RC(plain_tree_get(scene->idle[i], second, &value),
			-REEF_EDROPPED);
		TRY(plain_tree_get(scene->idle[i], scene->begins[10], &value));
	}
	return end(scene);
}

static int run(int (*script)(struct member *member))
{
	struct pool pool = {.calm = true, .ttl_ns = SECOND};

	pool_start(&pool, 1);
	pool_add(&pool, script);
	return pool_end(&pool);
}

static void tree_key_is_dropped_when_its_leaf_is(void **state)
{
	(void)state;
	assert_int_equal(run(drop_one), 0);
	assert_int_equal(run(drop_half), 0);
	assert_int_equal(run(drop_most), 0);
}

static void tree_leaves_that_cannot_join_any_more_are_dropped(void **state)
{
	(void)state;
	assert_int_equal(run(drop_before_joining), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_key_is_dropped_when_its_leaf_is),
		cmocka_unit_test(
			tree_leaves_that_cannot_join_any_more_are_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
