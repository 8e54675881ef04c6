/* test_txn_near.c - transactions on memory that is mapped, where their first
 * block is a small one, and plain calls look keys up in place. */
#include "fixture/try.h"
#include "pool/client/handle/handle.h"

#include <errno.h>
#include <pthread.h>
#include <reef/map.h>
#include <reef/reef.h>
#include <reef/txn.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* After what it uses. */
#include <cmocka.h>

#define POOL "embedded:64M"
#define VALUE 4000u
#define KEYS 15u /* of a transaction that finds room to delete: txn.h */
#define ROUNDS 10u

struct world {
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *map;
	uint64_t count; /* keys 0 to count - 1 are there */
};

/* Fill the pool with values of that size. */
static void fill(struct world *world, size_t size)
{
	static const char value[VALUE];
	int rc = 0;

	while (!rc) {
		rc = reef_map_put(world->map, &world->count,
				  sizeof(world->count), value, size, 0, NULL);
		world->count += !rc;
	}
	assert_int_equal(rc, -ENOSPC);
}

static void delete_some(struct world *world)
{
	struct reef_txn *txn;

	assert_int_equal(reef_txn_begin(world->space, NULL, &txn), 0);
	for (uint32_t i = 0; i < KEYS; i++) {
		world->count--;
		assert_int_equal(reef_txn_delete(txn, world->map, &world->count,
						 sizeof(world->count)),
				 0);
	}
	assert_int_equal(reef_txn_commit(txn), 0);
	reef_txn_close(txn);
}

/* What a transaction used comes back later, and may be another size's by then:
 * so the next one must find room in another way. */
static void txn_near_full_pool_deletes_again(void **state)
{
	struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct world world = {0};

	(void)state;
	assert_int_equal(reef_open(POOL, NULL, &world.reef), 0);
	assert_int_equal(
		reef_space_open(world.reef, "mine", &make, &world.space), 0);
	assert_int_equal(reef_map_open(world.space, "map", NULL, &world.map),
			 0);
	fill(&world, VALUE);
	fill(&world, 8);
	for (uint32_t round = 0; round < ROUNDS; round++)
		delete_some(&world);
	reef_map_close(world.map);
	reef_close(world.reef);
}

/* --- plain calls that come past a transaction --- */

#define ADDS 300u
#define ADDERS 3u

struct scene {
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *map;
	struct reef_tree *tree;
};

static int open_scene(struct scene *scene)
{
	struct reef_space_options make = {.flags = REEF_SPACE_CREATE};

	TRY(reef_open(POOL, NULL, &scene->reef));
	TRY(reef_space_open(scene->reef, "mine", &make, &scene->space));
	TRY(reef_map_open(scene->space, "map", NULL, &scene->map));
	return reef_tree_open(scene->space, "tree", NULL, &scene->tree);
}

static void close_scene(struct scene *scene)
{
	reef_tree_close(scene->tree);
	reef_map_close(scene->map);
	reef_close(scene->reef);
}

static uint64_t count_cas(const struct scene *scene)
{
	return scene->reef->member.counters
		.operations[REEF_COUNTED_SHM][REEF_COUNTED_CAS];
}

/* Whoever comes past a transaction has its slot then: one CAS decides that, one
 * lets the slot go, one sets it. */
static void txn_near_is_passed_once(void **state)
{
	struct reef_map_value value = {0};
	struct scene scene;
	struct reef_txn *txn;
	uint64_t before;

	(void)state;
	assert_int_equal(open_scene(&scene), 0);
	for (uint32_t i = 0; i < 3; i++) {
		/* It has no slot, or one; or is deleted. */
		assert_int_equal(
			reef_tree_put(scene.tree, "a", 1, "1", 1, 0, NULL), 0);
		assert_int_equal(
			reef_map_put(scene.map, "a", 1, "1", 1, 0, NULL), 0);
		assert_int_equal(reef_txn_begin(scene.space, NULL, &txn), 0);
		assert_int_equal(
			reef_txn_tree_take(txn, scene.tree, "a", 1, &value), 0);
		assert_int_equal(reef_txn_take(txn, scene.map, "a", 1, &value),
				 0);
		before = count_cas(&scene);
		assert_int_equal(
			i == 2 ? reef_tree_delete(scene.tree, "a", 1, 0)
			       : reef_tree_put(scene.tree, "a", 1, "2", 1, 0,
					       NULL),
			0);
		assert_int_equal(count_cas(&scene) - before, 3);
		before = count_cas(&scene);
		assert_int_equal(
			reef_map_put(scene.map, "a", 1, "2", 1, 0, NULL), 0);
		assert_in_range(count_cas(&scene) - before, 2, 3);
		assert_int_equal(reef_txn_commit(txn), -ECANCELED);
		reef_txn_close(txn);
	}
	reef_map_value_free(&value);
	close_scene(&scene);
}

static _Atomic uint32_t adders;

static int add_often(void)
{
	struct scene scene;

	TRY(open_scene(&scene));
	for (uint32_t i = 0; i < ADDS; i++) {
		TRY(reef_tree_add(scene.tree, "a", 1, 1, NULL));
		TRY(reef_map_add(scene.map, "a", 1, 1, NULL));
	}
	close_scene(&scene);
	return 0;
}

static int take_often(void)
{
	struct reef_map_value value = {0};
	struct scene scene;
	struct reef_txn *txn;
	int rc;

	TRY(open_scene(&scene));
	while (adders) {
		TRY(reef_txn_begin(scene.space, NULL, &txn));
		rc = reef_txn_tree_take(txn, scene.tree, "a", 1, &value);
		if (!rc || rc == -ENOENT)
			rc = reef_txn_take(txn, scene.map, "a", 1, &value);
		if (rc != -ENOENT && rc != -ECANCELED)
			TRY(rc);
		sched_yield(); /* others come past it */
		reef_txn_close(txn);
	}
	reef_map_value_free(&value);
	close_scene(&scene);
	return 0;
}

static void *adder_main(void *rc)
{
	*(int *)rc = add_often();
	adders--;
	return NULL;
}

static void *taker_main(void *rc)
{
	*(int *)rc = take_often();
	return NULL;
}

static void txn_near_loses_no_adds_of_others(void **state)
{
	pthread_t threads[ADDERS + 1];
	int rcs[ADDERS + 1];
	struct scene scene;
	int64_t sum;

	(void)state;
	assert_int_equal(open_scene(&scene), 0);
	adders = ADDERS;
	for (uint32_t i = 0; i <= ADDERS; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL,
				       i < ADDERS ? adder_main : taker_main,
				       &rcs[i]),
			0);
	for (uint32_t i = 0; i <= ADDERS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(rcs[i], 0);
	}
	assert_int_equal(reef_map_add(scene.map, "a", 1, 0, &sum), 0);
	assert_int_equal(sum, ADDERS * ADDS);
	assert_int_equal(reef_tree_add(scene.tree, "a", 1, 0, &sum), 0);
	assert_int_equal(sum, ADDERS * ADDS);
	close_scene(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(txn_near_full_pool_deletes_again),
		cmocka_unit_test(txn_near_is_passed_once),
		cmocka_unit_test(txn_near_loses_no_adds_of_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
