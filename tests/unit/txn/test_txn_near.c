/* test_txn_near.c - transactions on memory that is mapped, where their first
 * block is a small one. */
#include "fixture/try.h"

#include <errno.h>
#include <reef/map.h>
#include <reef/reef.h>
#include <reef/txn.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* After what it uses. */
#include <cmocka.h>

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
	assert_int_equal(reef_open("embedded:64M", NULL, &world.reef), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(txn_near_full_pool_deletes_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
