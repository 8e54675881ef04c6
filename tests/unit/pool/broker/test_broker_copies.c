/* test_broker_copies.c - what a node that registers has, and what the state has
 * there: nothing that anybody may have written is made anew or dropped. */
#include "base/mutant.h"
#include "fixture/seeds.h"
#include "fixture/stub_world.h"
#include "pool/broker/internal.h"

#include <reef/error.h>
#include <string.h>

static int run_seed(int (*script)(struct stub_pool *), enum reef_mutant mutant,
		    uint64_t seed)
{
	static struct stub_pool pool;
	int rc;

	pool = (struct stub_pool){0};
	reef_mutate(mutant);
	stub_pool_start(&pool, seed, script);
	stub_pool_add(&pool, 64 * MIB);
	rc = stub_pool_finish(&pool);
	reef_mutate(REEF_MUTANT_NONE);
	return rc;
}

static void run(int (*script)(struct stub_pool *))
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 3); seed++)
		assert_int_equal(run_seed(script, REEF_MUTANT_NONE, seed), 0);
}

/* Wait until the only extent of a space is in that state, or has a key. */
static int await_state(struct stub_pool *pool, uint32_t space, uint8_t state)
{
	struct reef_row_extent rows[8];
	uint32_t found;

	for (uint32_t tries = 0; tries < 4000; tries++) {
		TRY(driver_extents(&pool->owner, space, rows, 8, &found));
		if (found == 1 && rows[0].state == state &&
		    (state == REEF_EXTENT_LOST || rows[0].keys[0]))
			return 0;
		TRY(reef_sleep(MILLISECOND));
	}
	return -ETIMEDOUT;
}

static int begin(struct stub_pool *pool, uint32_t *space)
{
	TRY(stub_pool_ready(pool, 1));
	return driver_open(&pool->owner, "a", REEF_POOL_CREATE, 0, 0, space);
}

/* --- what is missing --- */

static int misses_made(struct stub_pool *pool)
{
	struct stub *stub = &pool->stubs[0];
	struct reef_row_extent row = {0};
	uint32_t space;

	TRY(begin(pool, &space));
	TRY(driver_add(&pool->owner, space, MIB, &row));
	WANT(row.epoch == 1 && row.copy == 1 && row.keys[0]);
	stub_drop(stub->life, row.number);
	TRY(stub_pool_broker_restart(pool));
	TRY(await_state(pool, space, REEF_EXTENT_LOST));
	WANT(stub->life->creates == 1 && stub->life->count == 0);
	return 0;
}

static void broker_copies_missing_extent_is_lost_not_made_anew(void **state)
{
	run(misses_made);
	assert_int_not_equal(run_seed(misses_made, REEF_MUTANT_BROKER_ZEROS, 1),
			     0);
}

/* The broker dies while its node is asked, which has not done it yet: nobody
 * was told, so it is made when the node is there again. */
static int misses_unmade(struct stub_pool *pool)
{
	struct stub *stub = &pool->stubs[0];
	struct reef_row_extent row = {0};
	uint32_t space;

	TRY(begin(pool, &space));
	stub->ends_creator = true;
	TRY(driver_add(&pool->owner, space, MIB, &row));
	WANT(row.state == REEF_EXTENT_LIVE && row.copy == 1 && row.keys[0]);
	WANT(stub->life->creates == 2 && stub->life->count == 1);
	WANT(reef_state_extent(pool->broker->state, row.number)->made);
	return 0;
}

static void broker_copies_extent_that_was_never_told_of_is_made(void **state)
{
	run(misses_unmade);
}

/* --- what the state does not have --- */

static int has_given_up(struct stub_pool *pool)
{
	struct stub *stub = &pool->stubs[0];
	struct reef_ask_extent_create old = {
		.extent = 1, .epoch = 1, .size = MIB, .copy = 1};
	struct reef_body remove = {.ask.extent_remove = {.extent = 1}};
	struct reef_row_extent row = {0};
	uint32_t space;

	TRY(begin(pool, &space));
	remove.ask.extent_remove.space = space;
	TRY(driver_add(&pool->owner, space, MIB, &row));
	TRY(driver_do(&pool->owner, REEF_POOL_EXTENT_REMOVE, &remove, NULL));
	while (stub_find(stub->life, 1))
		TRY(reef_sleep(MILLISECOND));
	stub_insert(stub->life, &old); /* its drop was never done */
	TRY(stub_pool_broker_restart(pool));
	while (stub_find(stub->life, 1))
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void broker_copies_copy_that_was_given_up_is_dropped(void **state)
{
	run(has_given_up);
}

/* Two extents of one number: the one that the state has is another copy. */
static int has_another(struct stub_pool *pool)
{
	struct stub *stub = &pool->stubs[0];
	struct reef_row_extent row = {0};
	uint32_t space;

	TRY(begin(pool, &space));
	TRY(driver_add(&pool->owner, space, MIB, &row));
	TRY(driver_add(&pool->owner, space, MIB, NULL));
	stub_drop(stub->life, 2);
	stub_find(stub->life, 1)->copy = 2;
	TRY(stub_pool_broker_restart(pool));
	while (stub->life->count)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void broker_copies_another_copy_of_an_extent_is_dropped(void **state)
{
	run(has_another);
}

static int has_later(struct stub_pool *pool)
{
	struct stub *stub = &pool->stubs[0];
	struct reef_ask_extent_create later = {
		.extent = 7, .epoch = 1, .size = MIB, .copy = 2};
	struct reef_row_extent row = {0};
	uint32_t space;

	TRY(begin(pool, &space));
	TRY(driver_add(&pool->owner, space, MIB, &row));
	stub_insert(stub->life, &later);
	stub->life->ready = false;
	stub->untold = 0;
	TRY(stub_pool_broker_restart(pool));
	for (uint32_t i = 0; i < 400 && !stub->life->ready; i++)
		TRY(reef_sleep(MILLISECOND));
	WANT(stub->untold == -REEF_EOLDER && !stub->life->ready);
	WANT(stub->life->count == 2 && stub->life->drops == 0);
	return 0;
}

static void broker_copies_copy_of_later_than_the_journal_is_refused(void **s)
{
	run(has_later);
	assert_int_not_equal(
		run_seed(has_later, REEF_MUTANT_BROKER_FOREIGN_DROP, 1), 0);
}

static int is_foreign(struct stub_pool *pool)
{
	struct stub *stub = &pool->stubs[0];
	struct reef_ask_extent_create other = {
		.extent = 7, .epoch = 1, .size = MIB, .copy = 1};
	struct reef_row_extent row = {0};
	struct reef_state_summary summary;
	uint32_t space;

	TRY(begin(pool, &space));
	TRY(driver_add(&pool->owner, space, MIB, &row));
	reef_state_summary(pool->broker->state, &summary);
	stub->memory_of = summary.pool + 1;
	stub_insert(stub->life, &other);
	stub->life->ready = false;
	TRY(stub_pool_broker_restart(pool));
	for (uint32_t i = 0; i < 400 && !stub->life->ready; i++)
		TRY(reef_sleep(MILLISECOND));
	WANT(stub->refused == -REEF_EFOREIGN && stub->life->count == 2);
	stub->memory_of = summary.pool;
	while (!stub->life->ready)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void broker_copies_memory_of_another_pool_is_refused(void **state)
{
	run(is_foreign);
	assert_int_not_equal(
		run_seed(is_foreign, REEF_MUTANT_BROKER_FOREIGN_DROP, 1), 0);
}

/* --- nodes that keep their memory --- */

static int await_node(struct stub_pool *pool, uint32_t id, uint8_t state)
{
	struct reef_row row;

	for (uint32_t tries = 0; tries < 4000; tries++) {
		TRY(driver_look(&pool->owner, REEF_ROW_NODE, id, &row));
		if (row.node.state == state)
			return 0;
		TRY(reef_sleep(MILLISECOND));
	}
	return -ETIMEDOUT;
}

/* A pool of three, so that two can say that one is away. */
static int begin_kept(struct stub_pool *pool, uint32_t *space,
		      struct stub **stub, struct reef_row_extent *row)
{
	stub_pool_add(pool, 64 * MIB);
	stub_pool_add(pool, 64 * MIB);
	for (uint32_t i = 0; i < 3; i++)
		pool->stubs[i].keeps = true;
	TRY(stub_pool_ready(pool, 3));
	TRY(driver_open(&pool->owner, "a", REEF_POOL_CREATE, 0, 0, space));
	TRY(driver_add(&pool->owner, *space, MIB, row));
	*stub = stub_pool_stub(pool, row->node);
	(*stub)->life->extents[0].value = 42;
	return 0;
}

static int goes_and_returns(struct stub_pool *pool)
{
	struct reef_row_extent row = {0}, rows[8];
	uint32_t space, found;
	struct stub *stub;

	TRY(begin_kept(pool, &space, &stub, &row));
	stub_kill(stub);
	TRY(await_node(pool, row.node, REEF_NODE_AWAY));
	TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	WANT(found == 1 && rows[0].state == REEF_EXTENT_LIVE &&
	     rows[0].node == row.node && !rows[0].keys[0]);
	/* It is AWAY for the next broker, too. */
	TRY(stub_pool_broker_restart(pool));
	TRY(await_node(pool, row.node, REEF_NODE_AWAY));
	TRY(stub_restart(stub));
	TRY(await_state(pool, space, REEF_EXTENT_LIVE));
	TRY(await_node(pool, row.node, REEF_NODE_OK));
	TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	WANT(rows[0].keys[0] != row.keys[0] && rows[0].epoch == row.epoch &&
	     stub_pool_behind(pool, rows[0].keys[0])->value == 42);
	return 0;
}

static void broker_copies_extents_wait_for_a_node_that_is_away(void **state)
{
	run(goes_and_returns);
}

/* It comes back within its ttl, as another life. */
static int returns_at_once(struct stub_pool *pool)
{
	struct reef_row_extent row = {0}, rows[8];
	uint32_t space, found;
	struct stub *stub;

	TRY(begin_kept(pool, &space, &stub, &row));
	stub_kill(stub);
	TRY(stub_restart(stub));
	TRY(reef_sleep(NODE_TTL));
	TRY(await_state(pool, space, REEF_EXTENT_LIVE));
	TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	WANT(rows[0].keys[0] != row.keys[0] &&
	     stub_pool_behind(pool, rows[0].keys[0])->value == 42);
	return 0;
}

static void broker_copies_new_life_has_what_was_kept(void **state)
{
	run(returns_at_once);
}

/* Its next life has the same memory, which whoever has not heard of that life
 * may have mapped: it is opened to nobody meanwhile. */
static int returns_before_all_let_go(struct stub_pool *pool)
{
	struct reef_row_extent row = {0}, rows[8];
	uint32_t space, found;
	struct stub *stub;

	TRY(begin_kept(pool, &space, &stub, &row));
	pool->lags = true;
	stub_kill(stub);
	TRY(await_node(pool, row.node, REEF_NODE_AWAY));
	TRY(stub_restart(stub));
	for (uint32_t tries = 0; tries < 4000 && !stub->life->ready; tries++)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(NODE_TTL));
	TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	WANT(found == 1 && !reef_extent_is_lost(rows[0].state) &&
	     !rows[0].keys[0]);
	pool->lags = false;
	TRY(await_state(pool, space, REEF_EXTENT_LIVE));
	TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	WANT(stub_pool_behind(pool, rows[0].keys[0])->value == 42);
	return 0;
}

static void broker_copies_new_life_waits_for_clients_of_the_old(void **state)
{
	run(returns_before_all_let_go);
	assert_int_not_equal(run_seed(returns_before_all_let_go,
				      REEF_MUTANT_BROKER_LIFE_EARLY, 1),
			     0);
}

static int is_removed(struct stub_pool *pool)
{
	struct reef_body body = {0};
	struct reef_row_extent row = {0};
	struct stub *stub;
	uint32_t space;

	TRY(begin_kept(pool, &space, &stub, &row));
	stub_kill(stub);
	TRY(await_node(pool, row.node, REEF_NODE_AWAY));
	body.ask.node_remove.node = row.node;
	TRY(driver_do(&pool->owner, REEF_POOL_NODE_REMOVE, &body, NULL));
	return await_state(pool, space, REEF_EXTENT_LOST);
}

static void broker_copies_removed_node_loses_what_it_kept(void **state)
{
	run(is_removed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			broker_copies_missing_extent_is_lost_not_made_anew),
		cmocka_unit_test(
			broker_copies_extent_that_was_never_told_of_is_made),
		cmocka_unit_test(
			broker_copies_copy_that_was_given_up_is_dropped),
		cmocka_unit_test(
			broker_copies_another_copy_of_an_extent_is_dropped),
		cmocka_unit_test(
			broker_copies_copy_of_later_than_the_journal_is_refused),
		cmocka_unit_test(
			broker_copies_memory_of_another_pool_is_refused),
		cmocka_unit_test(
			broker_copies_extents_wait_for_a_node_that_is_away),
		cmocka_unit_test(broker_copies_new_life_has_what_was_kept),
		cmocka_unit_test(
			broker_copies_new_life_waits_for_clients_of_the_old),
		cmocka_unit_test(broker_copies_removed_node_loses_what_it_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
