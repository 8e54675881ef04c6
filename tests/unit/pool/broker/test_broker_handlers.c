/* test_broker_handlers.c - a user who asks for all that a broker has, and what
 * others notice of it: nothing. With stub nodes. */
#include "base/fiber/sched.h"
#include "fixture/seeds.h"
#include "fixture/stub_world.h"
#include "pool/broker/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODES 3 /* so that the broker can do without any of them */
#define LINKS 17
#define REQUESTS 64 /* of a link */

static void run(int (*script)(struct stub_pool *pool), uint64_t seeds)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds); seed++) {
		struct stub_pool pool = {0};

		stub_pool_start(&pool, seed, script);
		for (uint32_t i = 0; i < NODES; i++)
			stub_pool_add(&pool, 64 * MIB);
		assert_int_equal(stub_pool_finish(&pool), 0);
	}
}

/* A request that waits. */
struct revoke {
	struct reef_peer *peer;
	uint32_t space, sequence;
	int rc; /* 1: not answered */
	struct reef_fiber *fiber;
};

static int call_revoke(void *arg)
{
	struct revoke *revoke = arg;
	struct reef_body body = {.ask.space_revoke.space = revoke->space};

	revoke->rc = reef_rpc_call(revoke->peer, REEF_POOL_SPACE_REVOKE,
				   revoke->sequence, &body, NULL, 50 * SECOND);
	return 0;
}

/* The same one over and over: each of them waits for what the first does. */
static int begin_revokes(struct driver *driver, uint32_t space,
			 struct revoke revokes[REQUESTS])
{
	driver->sequence++;
	for (uint32_t i = 0; i < REQUESTS; i++) {
		revokes[i] = (struct revoke){
			.peer = driver->peer,
			.space = space,
			.sequence = driver->sequence,
			.rc = 1,
		};
		TRY(reef_fiber_spawn(reef_fiber_sched(), call_revoke,
				     &revokes[i], &revokes[i].fiber));
	}
	return 0;
}

/* Join them all. *done: how many were done; the others were refused. */
static int end_revokes(struct revoke *revokes, uint32_t *done)
{
	for (uint32_t i = 0; i < REQUESTS; i++) {
		TRY(reef_fiber_join(revokes[i].fiber, NULL));
		*done += revokes[i].rc == 0;
		WANT(revokes[i].rc == 0 || revokes[i].rc == -EBUSY ||
		     revokes[i].rc == -EALREADY);
	}
	return 0;
}

static void set_holds(struct stub_pool *pool, bool holds)
{
	for (uint32_t i = 0; i < NODES; i++)
		pool->stubs[i].holds = holds;
}

/* All are served while the guest's requests wait, and the node lives. */
static int check_served(struct stub_pool *pool, uint32_t space)
{
	struct driver guest = pool->guest;
	struct reef_row row = {0};
	uint64_t incarnation = pool->stubs[0].life->incarnation;
	struct reef_answer answer = {0};
	uint32_t id = pool->stubs[0].life->id;

	guest.provisional += 0x00ff0000;
	guest.peer = NULL;
	guest.session = 0;
	TRY(driver_connect(&guest));
	for (uint32_t i = 0; i < 30; i++) {
		TRY(driver_look(&pool->owner, REEF_ROW_NODE, id, &row));
		WANT(row.node.state == REEF_NODE_OK);
		TRY(driver_add(&pool->owner, space, MIB, NULL));
		/* Of the same user, too. */
		TRY(reef_rpc_call(guest.peer, REEF_POOL_STATUS, 0, NULL,
				  &answer, SECOND / 2));
		reef_answer_free(&answer);
		TRY(reef_sleep(NODE_TTL / 8));
	}
	WANT(pool->stubs[0].life->incarnation == incarnation);
	reef_peer_close(guest.peer);
	return 0;
}

/* What a holder keeps from ending is asked for over and over. */
static int revoke_all_over(struct stub_pool *pool)
{
	struct revoke(*revokes)[REQUESTS] = calloc(LINKS, sizeof(*revokes));
	struct driver drivers[LINKS];
	uint32_t pinned, space, done = 0;

	WANT(revokes);
	TRY(stub_pool_ready(pool, NODES));
	TRY(stub_pool_add_guest(pool));
	TRY(driver_open(&pool->owner, "own", REEF_POOL_CREATE, 0, 0, &space));
	TRY(driver_open(&pool->guest, "pinned", REEF_POOL_CREATE, 0, 0,
			&pinned));
	TRY(driver_add(&pool->guest, pinned, MIB, NULL));
	set_holds(pool, true);
	for (uint32_t i = 0; i < LINKS; i++) {
		drivers[i] = pool->guest;
		drivers[i].provisional += (i + 1) << 16;
		drivers[i].peer = NULL;
		drivers[i].session = drivers[i].sequence = 0;
		TRY(driver_connect(&drivers[i]));
	}
	for (uint32_t i = 0; i < LINKS; i++)
		TRY(begin_revokes(&drivers[i], pinned, revokes[i]));
	TRY(reef_sleep(50 * MILLISECOND));
	TRY(check_served(pool, space));
	set_holds(pool, false);
	for (uint32_t i = 0; i < LINKS; i++) {
		TRY(end_revokes(revokes[i], &done));
		reef_peer_close(drivers[i].peer);
	}
	WANT(done > 0);
	free(revokes);
	return 0;
}

static void broker_handlers_waiting_revokes_disturb_nobody(void **state)
{
	(void)state;
	run(revoke_all_over, 3);
}

/* A revoke that waits is answered when the broker stops, or another asks. */
static int revoke_and_restart(struct stub_pool *pool)
{
	struct reef_body body = {0};
	uint32_t pinned;

	TRY(stub_pool_ready(pool, NODES));
	TRY(driver_open(&pool->owner, "pinned", REEF_POOL_CREATE, 0, 0,
			&pinned));
	TRY(driver_add(&pool->owner, pinned, MIB, NULL));
	set_holds(pool, true);
	body.ask.space_revoke.space = pinned;
	pool->owner.sequence++;
	WANT(reef_rpc_call(pool->owner.peer, REEF_POOL_SPACE_REVOKE,
			   pool->owner.sequence, &body, NULL,
			   NODE_TTL) == -ETIMEDOUT);
	TRY(stub_pool_broker_restart(pool));
	set_holds(pool, false);
	return driver_call(&pool->owner, REEF_POOL_SPACE_REVOKE,
			   pool->owner.sequence, &body, NULL);
}

static void broker_handlers_revoke_survives_a_restart(void **state)
{
	(void)state;
	run(revoke_and_restart, 5);
}

/* --- what is held at a node --- */

#define HELD 6 /* more than are worked on at once (BROKER_MOVES_MAX) */

/* The guest's extents, which a holder will not let go of; *own is another's. */
static int make_held(struct stub_pool *pool, uint32_t count, uint32_t *held,
		     struct reef_row_extent *own)
{
	struct reef_row_extent row;
	uint32_t space;

	TRY(stub_pool_ready(pool, 1));
	TRY(stub_pool_add_guest(pool));
	TRY(driver_open(&pool->guest, "pinned", REEF_POOL_CREATE, 0, 0, held));
	TRY(driver_open(&pool->owner, "own", REEF_POOL_CREATE, 0, 0, &space));
	for (uint32_t i = 0; i < count; i++) {
		TRY(driver_add(&pool->guest, *held, MIB, &row));
		if (!pool->stubs[0].held_from)
			pool->stubs[0].held_from = row.number;
		pool->stubs[0].held_to = row.number;
	}
	return driver_add(&pool->owner, space, MIB, own);
}

/* Wait until the stub has that extent open, or not at all. */
static int await_extent(struct stub_pool *pool, uint32_t number, bool there)
{
	struct stub_extent *extent;
	uint32_t tries = 0;

	do {
		TRY(reef_sleep(MILLISECOND));
		extent = stub_find(pool->stubs[0].life, number);
		WANT(tries++ < 1000);
	} while (there ? !extent || extent->closed : extent != NULL);
	return 0;
}

/* A broker starts while a guest's holders keep a node from opening extents: the
 * node is READY all the same, and what nobody holds is opened. */
static int ready_beside_holders(struct stub_pool *pool)
{
	struct reef_body body = {0};
	struct reef_row_extent own;
	struct stub_extent *extent;
	uint32_t held;

	TRY(make_held(pool, HELD, &held, &own));
	body.ask.space_revoke.space = held;
	WANT(reef_rpc_call(pool->guest.peer, REEF_POOL_SPACE_REVOKE,
			   ++pool->guest.sequence, &body, NULL,
			   NODE_TTL) == -ETIMEDOUT);
	for (uint32_t i = pool->stubs[0].held_from; i <= own.number; i++) {
		extent = stub_find(pool->stubs[0].life, i);
		WANT(extent);
		extent->closed = true;
	}
	TRY(stub_pool_broker_restart(pool));
	TRY(await_extent(pool, own.number, true));
	TRY(driver_add(&pool->owner, own.space, MIB, NULL));
	/* Theirs is opened when they let go. */
	pool->stubs[0].held_from = pool->stubs[0].held_to = 0;
	return await_extent(pool, own.number - 1, true);
}

/* What a guest's holders keep is dropped later; what others drop, now. */
static int drop_beside_holders(struct stub_pool *pool)
{
	struct reef_body body = {0};
	struct reef_row_extent own;
	uint32_t held;

	TRY(make_held(pool, 50, &held, &own));
	body.ask.space_drop.space = held;
	TRY(driver_do(&pool->guest, REEF_POOL_SPACE_DROP, &body, NULL));
	body.ask.space_drop.space = own.space;
	TRY(driver_do(&pool->owner, REEF_POOL_SPACE_DROP, &body, NULL));
	TRY(await_extent(pool, own.number, false));
	TRY(reef_sleep(10 * SECOND));
	pool->stubs[0].held_from = pool->stubs[0].held_to = 0;
	for (uint32_t i = 1; i < own.number; i++)
		TRY(reef_sleep(100 * MILLISECOND));
	WANT(pool->stubs[0].life->count == 0);
	return 0;
}

#define ASKING 200

/* An EXTENT_ADD that waits. */
struct add {
	struct reef_peer *peer;
	uint32_t space;
	int rc;
	struct reef_fiber *fiber;
};

static int call_add(void *arg)
{
	struct add *add = arg;
	struct reef_body body = {
		.ask.extent_add = {.space = add->space, .size = MIB},
	};

	add->rc = reef_rpc_call(add->peer, REEF_POOL_EXTENT_ADD, 100, &body,
				NULL, 50 * SECOND);
	return 0;
}

/* A pool is full of what a guest's holders keep from being dropped, and the
 * guest asks for more: nothing of the broker's is occupied by that, and the
 * first to come is given what comes back. */
static int add_beside_holders(struct stub_pool *pool)
{
	struct add adds[ASKING];
	struct driver drivers[ASKING / 50];
	struct reef_body body = {0};
	struct reef_row_extent own;
	uint32_t held, space, before, done = 0, i;

	TRY(make_held(pool, 127, &held, &own));
	TRY(driver_open(&pool->guest, "more", REEF_POOL_CREATE, 0, 0, &space));
	body.ask.space_drop.space = held;
	TRY(driver_do(&pool->guest, REEF_POOL_SPACE_DROP, &body, NULL));
	for (i = 0; i < ASKING / 50; i++) {
		drivers[i] = pool->guest;
		drivers[i].provisional += (i + 1) << 16;
		drivers[i].peer = NULL;
		drivers[i].session = drivers[i].sequence = 0;
		TRY(driver_connect(&drivers[i]));
		TRY(driver_open(&drivers[i], "more", 0, 0, 0, &space));
	}
	before = reef_sched_fibers(reef_fiber_sched());
	for (i = 0; i < ASKING; i++) {
		adds[i] = (struct add){
			.peer = drivers[i / 50].peer,
			.space = space,
		};
		TRY(reef_fiber_spawn(reef_fiber_sched(), call_add, &adds[i],
				     &adds[i].fiber));
	}
	TRY(reef_sleep(NODE_TTL / 8));
	WANT(reef_sched_fibers(reef_fiber_sched()) - before < ASKING + 32);
	pool->stubs[0].held_to = pool->stubs[0].held_from;
	for (i = 0; i < ASKING; i++) {
		TRY(reef_fiber_join(adds[i].fiber, NULL));
		done += adds[i].rc == 0;
		WANT(adds[i].rc == 0 || adds[i].rc == -ENOSPC ||
		     adds[i].rc == -EBUSY);
	}
	/* All tries of one request are one. */
	WANT(done >= 50);
	for (i = 0; i < ASKING / 50; i++)
		reef_peer_close(drivers[i].peer);
	return 0;
}

static void run_one_node(int (*script)(struct stub_pool *pool))
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 3); seed++) {
		struct stub_pool pool = {0};

		stub_pool_start(&pool, seed, script);
		stub_pool_add(&pool, 128 * MIB);
		assert_int_equal(stub_pool_finish(&pool), 0);
	}
}

static void broker_handlers_node_is_ready_beside_holders(void **state)
{
	(void)state;
	run_one_node(ready_beside_holders);
}

static void broker_handlers_holders_delay_only_their_own_drops(void **state)
{
	(void)state;
	run_one_node(drop_beside_holders);
}

static void broker_handlers_who_waits_for_room_occupies_none(void **state)
{
	(void)state;
	run_one_node(add_beside_holders);
}

/* --- a node's life --- */

static int murmur(struct stub_pool *pool)
{
	uint64_t incarnation;
	struct reef_row row = {0};
	uint32_t id;

	TRY(stub_pool_ready(pool, NODES));
	id = pool->stubs[0].life->id;
	incarnation = pool->stubs[0].life->incarnation;
	pool->stubs[0].mute = true;
	pool->stubs[0].murmurs = true;
	for (uint32_t i = 0; i < 100; i++) {
		TRY(reef_sleep(NODE_TTL / 8));
		TRY(driver_look(&pool->owner, REEF_ROW_NODE, id, &row));
		WANT(row.node.state == REEF_NODE_OK);
	}
	WANT(pool->stubs[0].life->incarnation == incarnation);
	pool->stubs[0].mute = false;
	return 0;
}

static void broker_handlers_whatever_a_node_says_it_lives(void **state)
{
	(void)state;
	run(murmur, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			broker_handlers_waiting_revokes_disturb_nobody),
		cmocka_unit_test(broker_handlers_revoke_survives_a_restart),
		cmocka_unit_test(broker_handlers_node_is_ready_beside_holders),
		cmocka_unit_test(
			broker_handlers_holders_delay_only_their_own_drops),
		cmocka_unit_test(
			broker_handlers_who_waits_for_room_occupies_none),
		cmocka_unit_test(broker_handlers_whatever_a_node_says_it_lives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
