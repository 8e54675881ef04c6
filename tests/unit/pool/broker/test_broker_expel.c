/* test_broker_expel.c - users who are shut out, and what they know: keys of
 * memory that another could use for them are void. With stub nodes, behind
 * whose keys one can look. */
#include "fixture/seeds.h"
#include "fixture/stub_world.h"
#include "pool/broker/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MINE                                                                   \
	12 /* extents of the guest's own, one in each of so many spaces        \
	    */

/* What the guest was told. */
struct known {
	uint64_t mine[MINE], shared, read;
	uint64_t other; /* of a space that is none of the guest's business */
	uint32_t shared_space;
};

static void run(int (*script)(struct stub_pool *pool))
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 2); seed++) {
		struct stub_pool pool = {0};

		stub_pool_start(&pool, seed, script);
		stub_pool_add(&pool, 128 * MIB);
		assert_int_equal(stub_pool_finish(&pool), 0);
	}
}

static int add_space(struct driver *driver, const char *name, uint32_t *space,
		     uint64_t *key)
{
	struct reef_row_extent row;

	TRY(driver_open(driver, name, REEF_POOL_CREATE, 0, 0, space));
	TRY(driver_add(driver, *space, MIB, &row));
	*key = row.keys[0];
	return 0;
}

/* Let the guest look into a space of the owner, and leave it again. */
static int look_into(struct stub_pool *pool, uint32_t space, uint8_t rights,
		     uint64_t *key)
{
	struct reef_body token = {
		.ask.space_token = {.space = space, .rights = rights},
	};
	struct reef_body open = {
		.ask.space_open = {.space = space, .rights = rights},
	};
	struct reef_body close = {.ask.space_close.space = space};
	struct reef_answer answer = {0};
	struct reef_row_extent row;
	uint32_t found;

	TRY(driver_ask(&pool->owner, REEF_POOL_SPACE_TOKEN, &token, &answer));
	open.ask.space_open.era = answer.body.reply.space_token.era;
	memcpy(open.ask.space_open.secret, answer.body.reply.space_token.secret,
	       32);
	reef_answer_free(&answer);
	TRY(driver_do(&pool->guest, REEF_POOL_SPACE_OPEN, &open, NULL));
	TRY(driver_extents(&pool->guest, space, &row, 1, &found));
	*key = row.keys[0];
	return driver_do(&pool->guest, REEF_POOL_SPACE_CLOSE, &close, NULL);
}

static int learn(struct stub_pool *pool, struct known *known)
{
	char name[16];
	uint64_t ignored;
	uint32_t space;

	TRY(stub_pool_ready(pool, 1));
	TRY(stub_pool_add_guest(pool));
	for (uint32_t i = 0; i < MINE; i++) {
		snprintf(name, sizeof(name), "mine-%u", i);
		TRY(add_space(&pool->guest, name, &space, &known->mine[i]));
	}
	TRY(add_space(&pool->owner, "other", &space, &known->other));
	TRY(add_space(&pool->owner, "read", &space, &ignored));
	TRY(look_into(pool, space, REEF_RIGHT_READ, &known->read));
	TRY(add_space(&pool->owner, "shared", &known->shared_space, &ignored));
	TRY(look_into(pool, known->shared_space,
		      REEF_RIGHT_READ | REEF_RIGHT_WRITE, &known->shared));
	WANT(stub_pool_behind(pool, known->mine[MINE - 1]));
	WANT(stub_pool_behind(pool, known->read));
	WANT(stub_pool_behind(pool, known->shared));
	return 0;
}

/* Nothing opens that the guest knew; what the guest did not know still does. */
static int check_void(struct stub_pool *pool, const struct known *known)
{
	struct reef_row_extent row;
	uint32_t found;

	for (uint32_t i = 0; i < MINE; i++)
		WANT(!stub_pool_behind(pool, known->mine[i]));
	WANT(!stub_pool_behind(pool, known->shared));
	WANT(!stub_pool_behind(pool, known->read));
	WANT(stub_pool_behind(pool, known->other));
	/* Who may is told the new key. */
	TRY(driver_extents(&pool->owner, known->shared_space, &row, 1, &found));
	WANT(found == 1 && stub_pool_behind(pool, row.keys[0]));
	return 0;
}

/* It takes longer than the driver's patience where keys are held. */
static int remove_guest(struct stub_pool *pool)
{
	struct reef_body body = {
		.ask.user_remove = {.user = pool->guest.user,
				    .flags = REEF_POOL_FORCE},
	};

	return reef_rpc_call(pool->owner.peer, REEF_POOL_USER_REMOVE,
			     ++pool->owner.sequence, &body, NULL, 10 * SECOND);
}

static int removed(struct stub_pool *pool)
{
	struct known known = {0};

	TRY(learn(pool, &known));
	TRY(remove_guest(pool));
	return check_void(pool, &known);
}

static void expel_removed_user_knows_no_key(void **state)
{
	(void)state;
	run(removed);
}

static int rotated(struct stub_pool *pool)
{
	struct reef_body body = {0};
	struct known known = {0};

	TRY(learn(pool, &known));
	body.ask.user_rotate.user = pool->guest.user;
	/* In time: it may be a matter of course, and changes no key. */
	body.ask.user_rotate.after_ns = 60 * SECOND;
	TRY(driver_do(&pool->owner, REEF_POOL_USER_ROTATE, &body, NULL));
	TRY(reef_sleep(SECOND));
	WANT(stub_pool_behind(pool, known.shared));
	/* At once: it has leaked. */
	body.ask.user_rotate.after_ns = 0;
	TRY(driver_do(&pool->owner, REEF_POOL_USER_ROTATE, &body, NULL));
	TRY(reef_sleep(SECOND));
	return check_void(pool, &known);
}

static void expel_leaked_credential_knows_no_key(void **state)
{
	(void)state;
	run(rotated);
}

/* A friend holds the first of the extents; that saves none of the others. */
static int held_by_a_friend(struct stub_pool *pool)
{
	struct known known = {0};
	struct stub_extent *first;
	struct stub *stub = &pool->stubs[0];

	TRY(learn(pool, &known));
	first = stub_pool_behind(pool, known.mine[0]);
	stub->held_from = first->number;
	stub->held_to = first->number + 5; /* more than there are fibers */
	TRY(remove_guest(pool));
	for (uint32_t i = 6; i < MINE; i++)
		WANT(!stub_pool_behind(pool, known.mine[i]));
	stub->held_from = stub->held_to = 0;
	TRY(reef_sleep(2 * SECOND));
	return check_void(pool, &known);
}

static void expel_holder_delays_only_its_own(void **state)
{
	(void)state;
	run(held_by_a_friend);
}

/* The broker dies while keys are being changed: the removal is asked for again,
 * and is whole then. */
static int dies(struct stub_pool *pool)
{
	struct reef_body body = {
		.ask.user_remove.flags = REEF_POOL_FORCE,
	};
	struct known known = {0};

	TRY(learn(pool, &known));
	body.ask.user_remove.user = pool->guest.user;
	pool->stubs[0].holds = true;
	WANT(reef_rpc_call(pool->owner.peer, REEF_POOL_USER_REMOVE,
			   ++pool->owner.sequence, &body, NULL,
			   SECOND) == -ETIMEDOUT);
	TRY(stub_pool_broker_restart(pool));
	pool->stubs[0].holds = false;
	TRY(driver_call(&pool->owner, REEF_POOL_USER_REMOVE,
			pool->owner.sequence, &body, NULL));
	for (uint32_t i = 0; i < MINE; i++)
		WANT(!stub_pool_behind(pool, known.mine[i]));
	return 0;
}

static void expel_broker_dies_and_it_is_whole(void **state)
{
	(void)state;
	run(dies);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(expel_removed_user_knows_no_key),
		cmocka_unit_test(expel_leaked_credential_knows_no_key),
		cmocka_unit_test(expel_holder_delays_only_its_own),
		cmocka_unit_test(expel_broker_dies_and_it_is_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
