/* test_broker_twins.c - spaces with two copies: where the second comes to, and
 * who is told of it. */
#include "base/mutant.h"
#include "fixture/seeds.h"
#include "fixture/stub_world.h"
#include "pool/broker/internal.h"

#include <reef/error.h>
#include <string.h>

static uint32_t stubs_wanted;
static bool first_has_nic;

static int run_seed(int (*script)(struct stub_pool *), enum reef_mutant mutant,
		    uint64_t seed)
{
	static struct stub_pool pool;
	int rc;

	pool = (struct stub_pool){0};
	reef_mutate(mutant);
	stub_pool_start(&pool, seed, script);
	/* Two nodes of one machine, and the others of another. */
	for (uint32_t i = 0; i < stubs_wanted; i++)
		stub_pool_add(&pool, 64 * MIB)->machine = i < 2 ? 7 : 8;
	pool.stubs[0].nic = first_has_nic;
	rc = stub_pool_finish(&pool);
	reef_mutate(REEF_MUTANT_NONE);
	return rc;
}

static void run(uint32_t stubs, int (*script)(struct stub_pool *))
{
	stubs_wanted = stubs;
	for (uint64_t seed = seeds_first(); seeds_has(seed, 8); seed++)
		assert_int_equal(run_seed(script, REEF_MUTANT_NONE, seed), 0);
}

/* The rows of the only extent of a space, and of its twin: number 0: none. */
static int find_pair(struct stub_pool *pool, uint32_t space,
		     struct reef_row_extent *primary,
		     struct reef_row_extent *twin)
{
	struct reef_row_extent rows[8];
	uint32_t found;

	*primary = *twin = (struct reef_row_extent){0};
	TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	for (uint32_t i = 0; i < found; i++) {
		/* Whoever reads the rows in order knows the twin first. */
		WANT(!rows[i].is_twin || primary->number == 0);
		*(rows[i].is_twin ? twin : primary) = rows[i];
	}
	WANT(primary->number && primary->twin == twin->number);
	WANT(!twin->number || twin->twin == primary->number);
	return 0;
}

static uint32_t count_creates(const struct stub_pool *pool)
{
	uint32_t creates = 0;

	for (uint32_t i = 0; i < pool->stubs_count; i++)
		creates += pool->stubs[i].life->count;
	return creates;
}

static int has_two_nodes(struct stub_pool *pool)
{
	struct reef_row_extent row, primary, twin;
	struct reef_row look;
	uint32_t space;

	TRY(stub_pool_ready(pool, 3));
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2, &space));
	TRY(driver_add(&pool->owner, space, MIB, &row));
	TRY(find_pair(pool, space, &primary, &twin));
	WANT(row.number == primary.number && row.twin == twin.number);
	WANT(primary.ordinal == 0 && twin.ordinal == REEF_ORDINALS_MAX);
	WANT(primary.keys[0] && twin.keys[0] && twin.node != primary.node);
	WANT(twin.copy != primary.copy && twin.size == primary.size);
	WANT(count_creates(pool) == 2);
	TRY(driver_look(&pool->owner, REEF_ROW_SPACE, space, &look));
	WANT(look.space.copies == 2 && look.space.degraded == 0 &&
	     look.space.extents == 2 && look.space.used == 2 * MIB);
	return 0;
}

static void broker_twins_are_on_two_nodes(void **state)
{
	run(3, has_two_nodes);
}

static int prefers_another_machine(struct stub_pool *pool)
{
	struct reef_row_extent primary, twin;
	uint32_t space;

	TRY(stub_pool_ready(pool, 3));
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2, &space));
	TRY(driver_add(&pool->owner, space, MIB, NULL));
	TRY(find_pair(pool, space, &primary, &twin));
	WANT(twin.number);
	WANT(stub_pool_stub(pool, primary.node)->machine !=
	     stub_pool_stub(pool, twin.node)->machine);
	return 0;
}

static void broker_twins_are_on_two_machines_if_there_are(void **state)
{
	run(3, prefers_another_machine);
}

static int has_one_kind_each(struct stub_pool *pool)
{
	struct reef_row_extent primary, twin;
	struct reef_row look;
	uint32_t space;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2, &space));
	TRY(driver_add(&pool->owner, space, MIB, NULL));
	TRY(find_pair(pool, space, &primary, &twin));
	WANT(!twin.number);
	TRY(driver_look(&pool->owner, REEF_ROW_SPACE, space, &look));
	WANT(look.space.copies == 2 && look.space.degraded == 1);
	return 0;
}

static void broker_twins_have_atomics_of_one_kind(void **state)
{
	first_has_nic = true;
	run(2, has_one_kind_each);
	first_has_nic = false;
}

/* One node: made with one copy, or not at all. */
static int has_one_node(struct stub_pool *pool)
{
	struct reef_row_extent primary, twin;
	uint32_t space;

	TRY(stub_pool_ready(pool, 1));
	WANT(driver_open_copies(&pool->owner, "strict",
				REEF_POOL_CREATE | REEF_POOL_STRICT, 2,
				&space) == -ENOSPC);
	WANT(driver_open_copies(&pool->owner, "b", REEF_POOL_CREATE, 3,
				&space) == -EINVAL);
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2, &space));
	TRY(driver_add(&pool->owner, space, MIB, NULL));
	TRY(find_pair(pool, space, &primary, &twin));
	WANT(!twin.number && primary.keys[0]);
	return 0;
}

static void broker_twins_without_a_second_node_are_none(void **state)
{
	run(1, has_one_node);
}

/* A strict space does not grow where one copy has no room, and nothing of the
 * other stays. */
static int is_strict(struct stub_pool *pool)
{
	struct reef_row_extent rows[8];
	uint32_t space, found;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open_copies(&pool->owner, "a",
			       REEF_POOL_CREATE | REEF_POOL_STRICT, 2, &space));
	TRY(driver_add(&pool->owner, space, MIB, NULL));
	pool->stubs[1].refuses_create = -ENOMEM;
	WANT(driver_add(&pool->owner, space, MIB, NULL) == -ENOSPC);
	TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	WANT(found == 2);
	for (uint32_t i = 0; i < 4000 && count_creates(pool) != 2; i++)
		TRY(reef_sleep(MILLISECOND));
	WANT(count_creates(pool) == 2);
	return 0;
}

static void broker_twins_strict_space_has_two_or_none(void **state)
{
	run(2, is_strict);
}

static int refuses_twin(struct stub_pool *pool)
{
	struct reef_row_extent primary, twin;
	uint32_t space;

	TRY(stub_pool_ready(pool, 3));
	pool->stubs[1].refuses_create = -ENOMEM;
	TRY(driver_open_copies(&pool->owner, "a",
			       REEF_POOL_CREATE | REEF_POOL_STRICT, 2, &space));
	TRY(driver_add(&pool->owner, space, MIB, NULL));
	TRY(find_pair(pool, space, &primary, &twin));
	WANT(twin.number && pool->stubs[1].life->count == 0);
	return 0;
}

static void broker_twins_are_made_where_they_can_be(void **state)
{
	run(3, refuses_twin);
}

/* The broker dies while a node makes one of the two, whichever: whatever is
 * told of then has both, or says that it has one. */
static int dies_while_making(struct stub_pool *pool)
{
	struct reef_row_extent primary, twin;
	uint32_t space, kept;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2, &space));
	pool->stubs[pool->seed / 1000 % 2].ends_creator = true;
	TRY(driver_add(&pool->owner, space, MIB, NULL));
	TRY(find_pair(pool, space, &primary, &twin));
	WANT(primary.keys[0]);
	kept = twin.number ? 2 : 1;
	for (uint32_t i = 0; i < 4000 && count_creates(pool) != kept; i++)
		TRY(reef_sleep(MILLISECOND));
	WANT(count_creates(pool) == kept);
	return 0;
}

static void broker_twins_broker_that_dies_while_making_leaves_none(void **state)
{
	run(2, dies_while_making);
}

/* A twin that is in the state, and no extent names yet. */
static bool has_bare_twin(const struct stub_pool *pool)
{
	const struct reef_state_extent *extents;
	size_t count;

	extents = reef_state_extents(pool->broker->state, &count);
	for (size_t i = 0; i < count; i++)
		if (extents[i].is_twin && !extents[i].twin)
			return true;
	return false;
}

/* The node of a second copy comes to the broker anew before that is made. It is
 * not made for it, all zeros. */
static int is_filled(struct stub_pool *pool)
{
	struct stub *first = &pool->stubs[0], *second = &pool->stubs[1];
	struct reef_row_extent primary, twin;
	uint32_t space;

	TRY(stub_pool_ready(pool, 2));
	second->refuses_create = second->refuses_pull = -ENOMEM;
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2, &space));
	TRY(driver_add(&pool->owner, space, MIB, &primary));
	WANT(primary.node == first->life->id && !primary.twin);
	stub_find(first->life, primary.number)->value = 7;
	first->holds = true;
	second->refuses_create = second->refuses_pull = 0;
	while (!has_bare_twin(pool))
		TRY(reef_sleep(MILLISECOND / 10));
	second->rests = 1;
	second->life->ready = false;
	while (!second->life->ready)
		TRY(reef_sleep(MILLISECOND / 10));
	first->holds = false;
	do {
		TRY(reef_sleep(MILLISECOND));
		TRY(find_pair(pool, space, &primary, &twin));
	} while (!twin.number);
	WANT(twin.node == second->life->id);
	WANT(stub_find(second->life, twin.number)->value == 7);
	return 0;
}

static void broker_twins_are_filled_before_they_count(void **state)
{
	run(2, is_filled);
}

#if !SANITIZED
static void broker_twins_that_are_zeros_are_found(void **state)
{
	bool found = false;

	stubs_wanted = 2;
	try_quiet = true;
	for (uint64_t seed = 1; seed <= 40 && !found; seed++)
		found = run_seed(is_filled, REEF_MUTANT_BROKER_TWIN_ZEROS,
				 seed) != 0;
	try_quiet = false;
	assert_true(found);
}
#endif

static int await_empty(struct stub_pool *pool)
{
	for (uint32_t i = 0; i < 4000 && count_creates(pool); i++)
		TRY(reef_sleep(MILLISECOND));
	WANT(count_creates(pool) == 0);
	return 0;
}

static int goes_with_its_primary(struct stub_pool *pool)
{
	struct reef_body body = {0};
	struct reef_row_extent row, rows[8];
	uint32_t space, found;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2, &space));
	TRY(driver_add(&pool->owner, space, MIB, &row));
	body.ask.extent_remove.space = space;
	body.ask.extent_remove.extent = row.twin;
	WANT(driver_do(&pool->owner, REEF_POOL_EXTENT_REMOVE, &body, NULL) ==
	     -ENOENT);
	body.ask.extent_remove.extent = row.number;
	TRY(driver_do(&pool->owner, REEF_POOL_EXTENT_REMOVE, &body, NULL));
	TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	WANT(found == 0);
	TRY(await_empty(pool));
	TRY(driver_add(&pool->owner, space, MIB, &row));
	body = (struct reef_body){.ask.space_drop.space = space};
	TRY(driver_do(&pool->owner, REEF_POOL_SPACE_DROP, &body, NULL));
	return await_empty(pool);
}

static void broker_twins_go_with_extent_and_space(void **state)
{
	run(2, goes_with_its_primary);
}

static int counts_both(struct stub_pool *pool)
{
	struct reef_body body = {0};
	uint32_t space;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2, &space));
	body.ask.space_quota.space = space;
	body.ask.space_quota.quota = 3 * MIB;
	TRY(driver_do(&pool->owner, REEF_POOL_SPACE_QUOTA, &body, NULL));
	TRY(driver_add(&pool->owner, space, MIB, NULL));
	WANT(driver_add(&pool->owner, space, MIB, NULL) == -EDQUOT);
	WANT(count_creates(pool) == 2);
	return 0;
}

static void broker_twins_count_against_the_quota(void **state)
{
	run(2, counts_both);
}

/* A revocation gives both copies new keys before it is answered. */
static int is_rekeyed(struct stub_pool *pool)
{
	struct reef_row_extent before[2], after[2];
	struct reef_body body = {0};
	uint32_t space;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2, &space));
	TRY(driver_add(&pool->owner, space, MIB, NULL));
	TRY(find_pair(pool, space, &before[0], &before[1]));
	body.ask.space_revoke.space = space;
	TRY(driver_do(&pool->owner, REEF_POOL_SPACE_REVOKE, &body, NULL));
	TRY(find_pair(pool, space, &after[0], &after[1]));
	for (uint32_t i = 0; i < 2; i++)
		WANT(after[i].keys[0] && before[i].keys[0] &&
		     after[i].keys[0] != before[i].keys[0]);
	return 0;
}

static void broker_twins_get_new_keys_with_their_primaries(void **state)
{
	run(2, is_rekeyed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broker_twins_are_on_two_nodes),
		cmocka_unit_test(broker_twins_are_on_two_machines_if_there_are),
		cmocka_unit_test(broker_twins_have_atomics_of_one_kind),
		cmocka_unit_test(broker_twins_without_a_second_node_are_none),
		cmocka_unit_test(broker_twins_strict_space_has_two_or_none),
		cmocka_unit_test(broker_twins_are_made_where_they_can_be),
		cmocka_unit_test(
			broker_twins_broker_that_dies_while_making_leaves_none),
		cmocka_unit_test(broker_twins_are_filled_before_they_count),
#if !SANITIZED
		cmocka_unit_test(broker_twins_that_are_zeros_are_found),
#endif
		cmocka_unit_test(broker_twins_go_with_extent_and_space),
		cmocka_unit_test(broker_twins_count_against_the_quota),
		cmocka_unit_test(
			broker_twins_get_new_keys_with_their_primaries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
