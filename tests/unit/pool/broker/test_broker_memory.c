/* test_broker_memory.c - the broker's nodes, spaces and extents: one situation
 * each. test_broker_move.c has moves, and the seeds. */
#include "fixture/seeds.h"
#include "fixture/stub_world.h"
#include "wire/bytes.h"

#include <errno.h>

static void run(struct stub_pool *pool, int (*script)(struct stub_pool *pool),
		uint32_t nodes, uint64_t capacity, uint64_t seed)
{
	stub_pool_start(pool, seed, script);
	for (uint32_t i = 0; i < nodes; i++)
		stub_pool_add(pool, capacity);
	assert_int_equal(stub_pool_finish(pool), 0);
}

/* --- extents --- */

static int makes_extents(struct stub_pool *pool)
{
	struct reef_row_extent row = {0}, rows[8];
	struct stub_extent *extent;
	uint32_t space, again, found;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open(&pool->owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	TRY(driver_open(&pool->owner, "a", REEF_POOL_CREATE, 0, 0, &again));
	WANT(space == again);
	WANT(driver_open(&pool->owner, "a",
			 REEF_POOL_CREATE | REEF_POOL_EXCLUSIVE, 0, 0,
			 &again) == -EEXIST);
	WANT(driver_open(&pool->owner, "b", 0, 0, 0, &again) == -ENOENT);
	TRY(driver_add(&pool->owner, space, 0, &row));
	WANT(row.size == MIB && row.state == REEF_EXTENT_LIVE &&
	     row.space == space && row.epoch == 1 && row.keys[0]);
	extent = stub_pool_behind(pool, row.keys[0]);
	WANT(extent && extent->number == row.number);
	TRY(driver_add(&pool->owner, space, 2 * MIB, &row));
	TRY(driver_extents(&pool->owner, space, rows, 8, &found));
	WANT(found == 2 && rows[0].ordinal == 0 && rows[1].ordinal == 1);
	return 0;
}

static void broker_memory_extent_is_there_when_answered(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 20); seed++) {
		struct stub_pool pool = {0};

		run(&pool, makes_extents, 2, 64 * MIB, seed);
	}
}

static int refuses_sizes(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct reef_body quota = {0};
	struct reef_row_extent row = {0};
	uint32_t space;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 3 * MIB, &space));
	WANT(driver_add(owner, space, (1ull << 32) + 4096, &row) == -EINVAL);
	WANT(driver_add(owner, space, 1000, &row) == -EINVAL);
	WANT(driver_add(owner, space, 4 * MIB, &row) == -EDQUOT);
	TRY(driver_add(owner, space, 2 * MIB, &row));
	WANT(driver_add(owner, space, 2 * MIB, &row) == -EDQUOT);
	/* Less than it has, then none, then larger than any node. */
	quota.ask.space_quota.space = space;
	quota.ask.space_quota.quota = MIB;
	WANT(driver_do(owner, REEF_POOL_SPACE_QUOTA, &quota, NULL) == -EDQUOT);
	quota.ask.space_quota.quota = 0;
	TRY(driver_do(owner, REEF_POOL_SPACE_QUOTA, &quota, NULL));
	WANT(driver_add(owner, space, 9 * MIB, &row) == -ENOSPC);
	TRY(driver_add(owner, space, 8 * MIB, &row));
	WANT(driver_add(owner, space, 8 * MIB, &row) == -ENOSPC);
	WANT(driver_add(owner, space + 1, MIB, &row) == -ENOENT);
	return 0;
}

static void broker_memory_size_that_cannot_be_is_refused(void **state)
{
	struct stub_pool pool = {0};

	run(&pool, refuses_sizes, 2, 8 * MIB, 1);
}

/* One that refuses is left out, and nothing stays there. */
static int goes_elsewhere(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct reef_row_extent row = {0};
	struct reef_row look;
	uint32_t space;

	TRY(stub_pool_ready(pool, 2));
	pool->stubs[0].refuses_create = -ENOMEM;
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	for (int i = 0; i < 8; i++) {
		TRY(driver_add(owner, space, MIB, &row));
		WANT(row.node == pool->stubs[1].life->id);
	}
	WANT(pool->stubs[0].life->creates > 0 &&
	     pool->stubs[0].life->count == 0);
	TRY(driver_look(owner, REEF_ROW_NODE, pool->stubs[0].life->id, &look));
	WANT(look.node.used == 0 && look.node.extents == 0);
	pool->stubs[1].refuses_create = -ENOSPC;
	WANT(driver_add(owner, space, MIB, &row) == -ENOSPC);
	TRY(driver_look(owner, REEF_ROW_NODE, pool->stubs[1].life->id, &look));
	WANT(look.node.used == 8 * MIB && look.node.extents == 8);
	return 0;
}

static void broker_memory_node_that_refuses_another_is_asked(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 5); seed++) {
		struct stub_pool pool = {0};

		run(&pool, goes_elsewhere, 2, 64 * MIB, seed);
	}
}

/* Who did not know of an extent gets it, and not another. */
static int gives_what_is_new(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct reef_row_extent first, again, next, large;
	uint32_t space;
	struct reef_row look;

	TRY(stub_pool_ready(pool, 1));
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	TRY(driver_add_since(owner, space, MIB, 1, &first));
	TRY(driver_add_since(owner, space, MIB, 1, &again));
	WANT(again.number == first.number);
	TRY(driver_add_since(owner, space, MIB, first.number + 1, &next));
	WANT(next.number > first.number);
	TRY(driver_add_since(owner, space, MIB, first.number, &again));
	WANT(again.number == next.number);
	/* What is too small does not do. */
	TRY(driver_add_since(owner, space, 2 * MIB, 1, &large));
	WANT(large.number > next.number);
	TRY(driver_look(owner, REEF_ROW_SPACE, space, &look));
	WANT(look.space.used == 4 * MIB && look.space.extents == 3);
	/* Nothing is known: a new one is wanted. */
	TRY(driver_add_since(owner, space, MIB, 0, &next));
	WANT(next.number > large.number);
	return 0;
}

static void broker_memory_who_did_not_know_gets_what_is_new(void **state)
{
	struct stub_pool pool = {0};

	run(&pool, gives_what_is_new, 1, 64 * MIB, 1);
}

/* The answer was lost, and then the extent with its node. */
static int repeats_what_was_lost(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct reef_row_extent row = {0};
	struct reef_row lost, look;
	struct reef_answer answer = {0};
	struct reef_body body = {.ask.extent_add.size = MIB};
	uint32_t *space = &body.ask.extent_add.space;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, space));
	TRY(driver_add(owner, *space, MIB, &row));
	TRY(stub_kill(stub_pool_stub(pool, row.node)));
	do {
		TRY(reef_sleep(NODE_TTL / 8));
		TRY(driver_look(owner, REEF_ROW_EXTENT, row.number, &lost));
	} while (lost.extent.state != REEF_EXTENT_LOST);
	TRY(reef_rpc_call(owner->peer, REEF_POOL_EXTENT_ADD, owner->sequence,
			  &body, &answer, 20 * NODE_TTL));
	reef_answer_free(&answer);
	TRY(driver_look(owner, REEF_ROW_EXTENT, row.number + 1, &look));
	WANT(look.extent.state == REEF_EXTENT_LIVE &&
	     look.extent.node != lost.extent.node);
	return 0;
}

static void broker_memory_repetition_of_what_was_lost_is_another(void **state)
{
	struct stub_pool pool = {0};

	run(&pool, repeats_what_was_lost, 2, 8 * MIB, 1);
}

struct twin {
	struct stub_pool *pool;
	struct reef_body body;
	struct reef_row row; /* the last of its answer */
	int rc;
};

static int twin_main(void *arg)
{
	struct twin *twin = arg;
	struct driver *owner = &twin->pool->owner;
	struct reef_answer answer = {0};
	struct reef_cursor_in in;

	twin->rc = reef_rpc_call(owner->peer, REEF_POOL_EXTENT_ADD,
				 owner->sequence, &twin->body, &answer, SECOND);
	if (twin->rc)
		return 0;
	in = (struct reef_cursor_in){answer.body.rows, answer.body.rows_size,
				     false};
	while (reef_row_decode(&in, &twin->row) > 0)
		;
	reef_answer_free(&answer);
	return 0;
}

/* Two tries of one request wait for room, and one of them comes first. */
static int asks_twice(struct stub_pool *pool)
{
	struct twin twins[2] = {{.pool = pool}, {.pool = pool}};
	struct driver *owner = &pool->owner;
	struct reef_fiber *fibers[2];
	struct reef_row_extent rows[4];
	uint32_t space, found;

	TRY(stub_pool_ready(pool, 1));
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	pool->stubs[0].leave = true;
	while (pool->stubs[0].life->ready)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(NODE_TTL / 8));
	owner->sequence++;
	for (int i = 0; i < 2; i++) {
		twins[i].body =
			(struct reef_body){.ask.extent_add = {space, MIB, 0}};
		TRY(reef_fiber_spawn(reef_fiber_sched(), twin_main, &twins[i],
				     &fibers[i]));
	}
	TRY(reef_sleep(NODE_TTL / 8));
	pool->stubs[0].leave = false;
	for (int i = 0; i < 2; i++)
		TRY(reef_fiber_join(fibers[i], NULL));
	WANT(twins[0].rc == 0 && twins[1].rc == 0);
	WANT(twins[0].row.row == REEF_ROW_EXTENT &&
	     twins[0].row.extent.number == twins[1].row.extent.number);
	TRY(driver_extents(owner, space, rows, 4, &found));
	WANT(found == 1);
	return 0;
}

static void broker_memory_two_tries_of_a_request_are_one(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 10); seed++) {
		struct stub_pool pool = {0};

		run(&pool, asks_twice, 1, 8 * MIB, seed);
	}
}

/* What a session asked for is not the next one's on its link. */
static int another_session(struct stub_pool *pool)
{
	struct twin twin = {.pool = pool};
	struct driver *owner = &pool->owner;
	struct reef_body body = {.ask.session_open.program = {"next", 4}};
	struct reef_fiber *fiber;
	uint32_t space;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	pool->stubs[0].leave = true;
	while (pool->stubs[0].life->ready)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(NODE_TTL / 8));
	owner->sequence += 7;
	twin.body = (struct reef_body){.ask.extent_add = {space, MIB, 0}};
	TRY(reef_fiber_spawn(reef_fiber_sched(), twin_main, &twin, &fiber));
	TRY(reef_sleep(NODE_TTL / 16));
	TRY(reef_rpc_call(owner->peer, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL,
			  SECOND));
	WANT(reef_rpc_call(owner->peer, REEF_POOL_SESSION_OPEN, 0, &body, NULL,
			   SECOND) == -EBUSY);
	pool->stubs[0].leave = false;
	TRY(reef_fiber_join(fiber, NULL));
	WANT(twin.rc == -REEF_EFENCED);
	TRY(reef_rpc_call(owner->peer, REEF_POOL_SESSION_OPEN, 0, &body, NULL,
			  SECOND));
	owner->sequence = 0;
	return driver_open(owner, "b", REEF_POOL_CREATE, 0, 0, &space);
}

static void broker_memory_request_stays_its_sessions(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 10); seed++) {
		struct stub_pool pool = {0};

		stub_pool_start(&pool, seed, another_session);
		stub_pool_add(&pool, 8 * MIB);
		stub_pool_add(&pool, 4096); /* confirms, and has no room */
		assert_int_equal(stub_pool_finish(&pool), 0);
	}
}

/* Full; and what is given back makes room at once. */
static int fills(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct reef_body remove, drop, extents;
	struct reef_row_extent row = {0};
	uint32_t space;
	int rc;

	TRY(stub_pool_ready(pool, 3));
	for (uint32_t i = 0; i < 3; i++)
		pool->stubs[i].slow_drop_ns = 20 * MILLISECOND;
	for (int round = 0; round < 3; round++) {
		uint32_t count = 0;

		TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &space));
		while ((rc = driver_add(owner, space, MIB, &row)) == 0)
			count++;
		WANT(rc == -ENOSPC && count == 12);
		remove = (struct reef_body){
			.ask.extent_remove = {space + 1, row.number}};
		WANT(driver_do(owner, REEF_POOL_EXTENT_REMOVE, &remove, NULL) ==
		     -ENOENT);
		remove.ask.extent_remove.space = space;
		TRY(driver_do(owner, REEF_POOL_EXTENT_REMOVE, &remove, NULL));
		WANT(driver_do(owner, REEF_POOL_EXTENT_REMOVE, &remove, NULL) ==
		     -ENOENT);
		TRY(driver_add(owner, space, MIB, &row));
		drop = (struct reef_body){.ask.space_drop.space = space};
		extents = (struct reef_body){.ask.space_extents.space = space};
		TRY(driver_do(owner, REEF_POOL_SPACE_DROP, &drop, NULL));
		WANT(driver_do(owner, REEF_POOL_SPACE_DROP, &drop, NULL) ==
		     -ENOENT);
		WANT(driver_ask(owner, REEF_POOL_SPACE_EXTENTS, &extents,
				NULL) == -ENOENT);
	}
	for (uint32_t i = 0; i < 3; i++)
		while (pool->stubs[i].life->count)
			TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void broker_memory_full_pool_has_room_after_a_drop(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 5); seed++) {
		struct stub_pool pool = {0};

		run(&pool, fills, 3, 4 * MIB, seed);
	}
}

/* --- placement --- */

/* Nine that are more than half full, and a fresh one. */
static int spreads(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	uint32_t space, fresh = 0, most = 0;
	struct stub *empty;
	struct reef_row_extent row = {0};

	TRY(stub_pool_ready(pool, 9));
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	for (int i = 0; i < 9 * 60; i++)
		TRY(driver_add(owner, space, MIB, &row));
	for (uint32_t i = 0; i < 9; i++)
		if (pool->stubs[i].life->count > most)
			most = pool->stubs[i].life->count;
	WANT(most <= 66); /* 60 on average: evenly */
	empty = stub_pool_add(pool, 400 * MIB);
	TRY(stub_pool_ready(pool, 10));
	for (int i = 0; i < 200; i++) {
		TRY(driver_add(owner, space, MIB, &row));
		fresh += row.node == empty->life->id;
	}
	/* 2/10 of them, and not a third. */
	WANT(fresh >= 20 && fresh < 66);
	return 0;
}

static void broker_memory_fresh_node_is_not_stampeded(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 3); seed++) {
		struct stub_pool pool = {0};

		run(&pool, spreads, 9, 400 * MIB, seed);
	}
}

/* --- registration --- */

/* What is there is taken over; what is not there any more is LOST, whatever its
 * epoch; what is not known is dropped. */
static int reconciles(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct stub *stub = &pool->stubs[0];
	struct reef_ask_extent_create stray = {
		.extent = 999, .epoch = 1, .size = MIB};
	struct reef_row_extent row = {0}, rows[8];
	uint32_t space, found;
	uint64_t key;

	TRY(stub_pool_ready(pool, 1));
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	TRY(driver_add(owner, space, MIB, &row));
	key = row.keys[0];
	TRY(driver_add(owner, space, MIB, &row));
	TRY(reef_sleep(50 * MILLISECOND));
	/* While the broker is away: a stray one comes, one goes. */
	reef_sim_host_kill(pool->broker_host);
	pool->broker = NULL;
	stub_insert(stub->life, &stray);
	stub_drop(stub->life, row.number);
	TRY(reef_sim_host_restart(pool->broker_host, stub_pool_broker_main,
				  pool));
	do {
		TRY(reef_sleep(MILLISECOND));
		TRY(driver_extents(owner, space, rows, 8, &found));
		/* Without a key until the node has told it, and never lost. */
		WANT(found == 2 && rows[0].state == REEF_EXTENT_LIVE);
	} while (!rows[0].keys[0] || rows[1].state != REEF_EXTENT_LOST);
	WANT(rows[0].keys[0] == key && !stub_find(stub->life, row.number));
	while (stub_find(stub->life, 999))
		TRY(reef_sleep(MILLISECOND));
	WANT(stub->life->count == 1 && !stub->killed);
	return 0;
}

static void broker_memory_node_that_returns_is_reconciled(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 10); seed++) {
		struct stub_pool pool = {0};

		run(&pool, reconciles, 1, 64 * MIB, seed);
	}
}

static int refuses_twin(struct stub_pool *pool)
{
	struct stub *twin;
	struct reef_row row = {0};

	TRY(stub_pool_ready(pool, 1));
	twin = stub_pool_add_twin(pool, &pool->stubs[0]);
	while (twin->refused != -EEXIST)
		TRY(reef_sleep(MILLISECOND));
	WANT(pool->stubs[0].life->ready);
	/* The first goes: now the second is that node, in another life. */
	pool->stubs[0].leave = true;
	while (!twin->life->ready)
		TRY(reef_sleep(MILLISECOND));
	WANT(twin->life->id == pool->stubs[0].life->id);
	TRY(driver_look(&pool->owner, REEF_ROW_NODE, twin->life->id, &row));
	WANT(row.node.incarnation == twin->life->incarnation &&
	     row.node.state == REEF_NODE_OK);
	/* Whoever lists nodes is told nothing to prove to them. */
	WANT(reef_all_zero(row.node.secret, sizeof(row.node.secret)));
	return 0;
}

static void broker_memory_two_nodes_with_one_key_are_refused(void **state)
{
	struct stub_pool pool = {0};

	run(&pool, refuses_twin, 1, 64 * MIB, 1);
}

/* --- death --- */

static int epoch_of(struct stub_pool *pool, uint64_t *epoch)
{
	struct reef_answer answer = {0};
	int rc = driver_ask(&pool->owner, REEF_POOL_STATUS, NULL, &answer);

	*epoch = answer.body.reply.status.pool_epoch;
	reef_answer_free(&answer);
	return rc;
}

static int dies(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct stub *stub = &pool->stubs[0];
	uint64_t before, after, killed_ns;
	struct reef_row_extent row = {0}, rows[64];
	struct reef_row look;
	uint32_t space, found, lost = 0, live = 0, id;

	TRY(stub_pool_ready(pool, 2));
	id = stub->life->id;
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	for (int i = 0; i < 12; i++)
		TRY(driver_add(owner, space, MIB, &row));
	TRY(epoch_of(pool, &before));
	killed_ns = reef_now_ns();
	stub_kill(stub);
	do {
		TRY(reef_sleep(MILLISECOND));
		TRY(driver_look(owner, REEF_ROW_NODE, id, &look));
	} while (look.node.state != REEF_NODE_DEAD);
	WANT(reef_now_ns() - killed_ns > NODE_TTL / 2 &&
	     reef_now_ns() - killed_ns < 2 * NODE_TTL);
	TRY(epoch_of(pool, &after));
	WANT(after == before + 1);
	TRY(driver_extents(owner, space, rows, 64, &found));
	for (uint32_t i = 0; i < found; i++) {
		lost += rows[i].state == REEF_EXTENT_LOST && !rows[i].node &&
			rows[i].epoch == 2 && !rows[i].keys[0];
		live += rows[i].state == REEF_EXTENT_LIVE &&
			rows[i].node == pool->stubs[1].life->id;
	}
	WANT(found == 12 && lost > 0 && live > 0 && lost + live == 12);
	/* What comes now goes to the other one; and back it comes, empty. */
	TRY(driver_add(owner, space, MIB, &row));
	WANT(row.node == pool->stubs[1].life->id);
	TRY(stub_restart(stub));
	TRY(stub_pool_ready(pool, 2));
	WANT(stub->life->id == id && stub->life->count == 0);
	TRY(driver_look(owner, REEF_ROW_NODE, id, &look));
	WANT(look.node.state == REEF_NODE_OK && look.node.used == 0);
	return 0;
}

static void broker_memory_dead_node_loses_its_extents(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 10); seed++) {
		struct stub_pool pool = {0};

		run(&pool, dies, 2, 64 * MIB, seed);
	}
}

/* A link, but no pulse; it learns that it was taken for dead. */
static int falls_silent(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct stub *stub = &pool->stubs[0];
	uint64_t incarnation;
	struct reef_row row = {0};
	uint32_t space, id;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	TRY(driver_add(owner, space, MIB, NULL));
	incarnation = stub->life->incarnation;
	id = stub->life->id;
	stub->mute = true;
	do {
		TRY(reef_sleep(MILLISECOND));
		TRY(driver_look(owner, REEF_ROW_NODE, id, &row));
	} while (row.node.state != REEF_NODE_DEAD);
	stub->mute = false;
	while (row.node.state != REEF_NODE_OK || !stub->life->ready) {
		TRY(reef_sleep(MILLISECOND));
		TRY(driver_look(owner, REEF_ROW_NODE, id, &row));
	}
	WANT(stub->life->incarnation != incarnation && stub->life->count == 0);
	return 0;
}

static void broker_memory_silent_node_is_dead(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 5); seed++) {
		struct stub_pool pool = {0};

		run(&pool, falls_silent, 2, 64 * MIB, seed);
	}
}

/* Away for less than node_ttl, over and over, broker restarts included, and a
 * broker that stands still: nobody dies of it. */
static int comes_and_goes(struct stub_pool *pool)
{
	struct driver *owner = &pool->owner;
	struct reef_row_extent row = {0}, rows[8];
	uint32_t space, found;

	TRY(stub_pool_ready(pool, 2));
	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &space));
	TRY(driver_add(owner, space, MIB, &row));
	for (int i = 0; i < 6; i++) {
		pool->stubs[i % 2].leave = true;
		TRY(reef_sleep(NODE_TTL / 4));
		pool->stubs[i % 2].leave = false;
		TRY(stub_pool_ready(pool, 2));
		TRY(stub_pool_broker_restart(pool));
		TRY(stub_pool_ready(pool, 2));
		reef_sim_host_pause(pool->broker_host);
		TRY(reef_sleep(3 * NODE_TTL));
		reef_sim_host_resume(pool->broker_host);
		TRY(reef_sleep(NODE_TTL));
		TRY(stub_pool_ready(pool, 2));
	}
	TRY(driver_extents(owner, space, rows, 8, &found));
	WANT(found == 1 && rows[0].state == REEF_EXTENT_LIVE &&
	     rows[0].epoch == 1);
	return 0;
}

static void broker_memory_absence_below_ttl_is_forgiven(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 5); seed++) {
		struct stub_pool pool = {0};

		run(&pool, comes_and_goes, 2, 64 * MIB, seed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broker_memory_extent_is_there_when_answered),
		cmocka_unit_test(broker_memory_size_that_cannot_be_is_refused),
		cmocka_unit_test(
			broker_memory_node_that_refuses_another_is_asked),
		cmocka_unit_test(
			broker_memory_who_did_not_know_gets_what_is_new),
		cmocka_unit_test(broker_memory_two_tries_of_a_request_are_one),
		cmocka_unit_test(broker_memory_request_stays_its_sessions),
		cmocka_unit_test(
			broker_memory_repetition_of_what_was_lost_is_another),
		cmocka_unit_test(broker_memory_full_pool_has_room_after_a_drop),
		cmocka_unit_test(broker_memory_fresh_node_is_not_stampeded),
		cmocka_unit_test(broker_memory_node_that_returns_is_reconciled),
		cmocka_unit_test(
			broker_memory_two_nodes_with_one_key_are_refused),
		cmocka_unit_test(broker_memory_dead_node_loses_its_extents),
		cmocka_unit_test(broker_memory_silent_node_is_dead),
		cmocka_unit_test(broker_memory_absence_below_ttl_is_forgiven),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
