/* test_recovery.c - what dead sessions left is put in order: who is asked, and
 * when that is over. In simulation, each over several seeds. */
#include "base/mutant.h"
#include "fixture/broker_world.h"

#include <errno.h>
#include <string.h>

static int dies_with_space(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct reef_body scratch = {
		.ask.space_open = {.flags = REEF_POOL_CREATE,
				   .name = actor_text_of("scratch"),
				   .kind = REEF_SPACE_SCRATCH,
				   .keeping = REEF_KEEPING_KEPT},
	};
	uint32_t space;

	TRY(actor_join(actor));
	TRY(actor_space(actor, "shared", &space));
	TRY(actor_ask(actor, REEF_POOL_SPACE_OPEN, &scratch, NULL));
	world->note[1] = space;
	TRY(actor_stay(actor, TTL));
	world->note[0] = actor->session;
	reef_sim_host_kill(actor->host);
	return 0;
}

static int joins_space(struct actor *actor, uint32_t *space)
{
	TRY(actor_join(actor));
	return actor_space(actor, "shared", space);
}

static int helps(struct actor *actor)
{
	struct reef_body scratch = {.ask.space_open.name =
					    actor_text_of("scratch")};
	uint32_t id, space;

	TRY(joins_space(actor, &space));
	TRY(actor_await_victim(actor, &id));
	TRY(actor_await(actor, id, REEF_SESSION_RECOVERED, 60 * SECOND));
	WANT(space == actor->world->note[1]);
	if (actor->recover_rc == 0)
		WANT(actor->recovers == 1 && actor->recover_session == id &&
		     actor->recover_space == space);
	/* What was its own is gone. */
	WANT(actor_ask(actor, REEF_POOL_SPACE_OPEN, &scratch, NULL) == -ENOENT);
	return 0;
}

static int helps_late(struct actor *actor)
{
	TRY(reef_sleep(10 * MILLISECOND));
	return helps(actor);
}

static void cast_helper(struct broker_world *world)
{
	broker_world_add(world, dies_with_space);
	broker_world_add(world, helps_late);
}

static void recovery_is_asked_of_one_who_has_the_space(void **state)
{
	broker_world_run(cast_helper, 0);
}

static void cast_bad_helper(struct broker_world *world)
{
	broker_world_add(world, dies_with_space);
	broker_world_add(world, helps)->recover_rc = -EIO;
	broker_world_add(world, helps_late);
}

static void recovery_goes_on_to_the_next(void **state)
{
	broker_world_run(cast_bad_helper, 0);
}

/* It is asked, and dies of it. */
static int dies_helping(struct actor *actor)
{
	uint32_t space;
	int rc;

	TRY(joins_space(actor, &space));
	actor->delay_ns = 1000 * SECOND;
	for (;;) {
		rc = actor_stay(actor, MILLISECOND);
		if (rc)
			return rc;
	}
}

static int kills_helper(struct actor *actor)
{
	uint32_t id, space;

	TRY(reef_sleep(10 * MILLISECOND));
	TRY(joins_space(actor, &space));
	TRY(actor_await_victim(actor, &id));
	TRY(actor_await(actor, id, REEF_SESSION_FENCED, 10 * TTL));
	TRY(actor_stay(actor, TTL));
	reef_sim_host_kill(actor->world->actors[1].host);
	return actor_await(actor, id, REEF_SESSION_RECOVERED, 60 * SECOND);
}

static void cast_dying_helper(struct broker_world *world)
{
	broker_world_add(world, dies_with_space);
	broker_world_add(world, dies_helping)->background = true;
	broker_world_add(world, kills_helper);
}

static void recovery_outlives_its_helper(void **state)
{
	broker_world_run(cast_dying_helper, 0);
}

/* Nobody has the space open. Somebody opens it later: in this start, or after a
 * restart. */
static int opens_later(struct actor *actor)
{
	uint32_t id, space;

	TRY(actor_join(actor));
	TRY(actor_await_victim(actor, &id));
	TRY(actor_await(actor, id, REEF_SESSION_FENCED, 10 * TTL));
	TRY(actor_stay(actor, 10 * TTL));
	WANT(actor_state(actor, id) == REEF_SESSION_FENCED);
	if (actor->note[0]) {
		TRY(broker_world_restart(actor->world, true));
		TRY(actor_return(actor));
		TRY(actor_stay(actor, 10 * TTL));
		WANT(actor_state(actor, id) == REEF_SESSION_FENCED);
	}
	WANT(actor->recovers == 0);
	TRY(actor_space(actor, "shared", &space));
	TRY(actor_await(actor, id, REEF_SESSION_RECOVERED, TTL));
	WANT(actor->recovers == 1);
	return 0;
}

static void cast_later(struct broker_world *world)
{
	broker_world_add(world, dies_with_space);
	broker_world_add(world, opens_later);
}

static void cast_later_restart(struct broker_world *world)
{
	broker_world_add(world, dies_with_space);
	broker_world_add(world, opens_later)->note[0] = 1;
}

/* Several die; whoever opens the space is asked about all of them at once. */
static int opens_after_all(struct actor *actor)
{
	struct actor *dead = actor->world->actors;
	uint32_t i, space;

	TRY(actor_join(actor));
	for (i = 0; i < 3; i++) {
		while (!dead[i].note[1])
			TRY(actor_stay(actor, MILLISECOND));
		TRY(actor_await(actor, dead[i].session, REEF_SESSION_FENCED,
				10 * TTL));
	}
	TRY(actor_space(actor, "shared", &space));
	for (i = 0; i < 3; i++)
		TRY(actor_await(actor, dead[i].session, REEF_SESSION_RECOVERED,
				TTL));
	WANT(actor->recovers == 1 && actor->recover_count == 3);
	return 0;
}

static int dies_with_others(struct actor *actor)
{
	uint32_t space;

	TRY(joins_space(actor, &space));
	TRY(actor_stay(actor, TTL));
	actor->note[1] = 1;
	reef_sim_host_kill(actor->host);
	return 0;
}

static void cast_many_die(struct broker_world *world)
{
	for (int i = 0; i < 3; i++)
		broker_world_add(world, dies_with_others);
	broker_world_add(world, opens_after_all);
}

static void recovery_asks_about_many_at_once(void **state)
{
	broker_world_run(cast_many_die, 0);
}

/* It could not do it yet, says so twice, and is asked again, soon: the other
 * one, who would find nothing, is not. */
static int helps_at_last(struct actor *actor)
{
	uint32_t id, space;

	TRY(joins_space(actor, &space));
	actor->world->note[2] = 1;
	TRY(actor_await_victim(actor, &id));
	TRY(actor_await(actor, id, REEF_SESSION_RECOVERED, 5 * TTL));
	WANT(actor->recovers == 3 && actor->recover_errors == 0);
	WANT(actor->world->actors[2].recovers == 0);
	return 0;
}

static int stands_by(struct actor *actor)
{
	uint32_t id, space;

	while (!actor->world->note[2])
		TRY(reef_sleep(MILLISECOND));
	TRY(joins_space(actor, &space));
	TRY(actor_await_victim(actor, &id));
	return actor_await(actor, id, REEF_SESSION_RECOVERED, 5 * TTL);
}

static void cast_slow_helper(struct broker_world *world)
{
	broker_world_add(world, dies_with_space);
	broker_world_add(world, helps_at_last)->recover_errors = 2;
	broker_world_add(world, stands_by);
}

static void recovery_waits_for_who_has_begun_it(void **state)
{
	broker_world_run(cast_slow_helper, 0);
}

/* It has not opened the space, and is asked before those who have. */
static int helps_everywhere(struct actor *actor)
{
	uint32_t id;

	TRY(actor_join(actor));
	TRY(actor_ask(actor, REEF_POOL_JANITOR, NULL, NULL));
	actor->world->note[2] = 1;
	TRY(actor_await_victim(actor, &id));
	TRY(actor_await(actor, id, REEF_SESSION_RECOVERED, 5 * TTL));
	WANT(actor->recovers == 1 && actor->recover_session == id);
	WANT(actor->world->actors[2].recovers == 0);
	return 0;
}

static void cast_janitor(struct broker_world *world)
{
	broker_world_add(world, dies_with_space);
	broker_world_add(world, helps_everywhere);
	broker_world_add(world, stands_by);
}

static void recovery_is_asked_of_the_janitor_first(void **state)
{
	broker_world_run(cast_janitor, 0);
}

static int is_no_owner(struct actor *actor)
{
	struct reef_body answer,
		body = {
			.ask.user_add.name = actor_text_of("somebody"),
		};

	TRY(actor_join(actor));
	TRY(actor_ask(actor, REEF_POOL_USER_ADD, &body, &answer));
	actor_hang_up(actor);
	actor->credential.user = answer.reply.user_add.user;
	actor->credential.era = answer.reply.user_add.era;
	memcpy(actor->credential.key.bytes, answer.reply.user_add.secret,
	       sizeof(actor->credential.key.bytes));
	actor->session = 0;
	TRY(actor_join(actor));
	WANT(actor_ask(actor, REEF_POOL_JANITOR, NULL, NULL) == -EPERM);
	return 0;
}

static void cast_no_owner(struct broker_world *world)
{
	broker_world_add(world, is_no_owner);
}

static void janitor_is_the_owners(void **state)
{
	broker_world_run(cast_no_owner, 0);
}

/* It says three times that nobody can do it, and is not asked a fourth time;
 * the session's slot is free all the same. */
static int cannot_help(struct actor *actor)
{
	struct reef_body answer;
	uint32_t id, space;

	TRY(joins_space(actor, &space));
	TRY(actor_await_victim(actor, &id));
	TRY(actor_await(actor, id, REEF_SESSION_RECOVERED, 5 * TTL));
	WANT(actor->recovers == 3);
	TRY(actor_stay(actor, 5 * TTL));
	WANT(actor->recovers == 3);
	TRY(actor_ask(actor, REEF_POOL_STATUS, NULL, &answer));
	WANT(answer.reply.status.stuck == 1);
	TRY(broker_world_restart(actor->world, true));
	TRY(actor_return(actor));
	TRY(actor_ask(actor, REEF_POOL_STATUS, NULL, &answer));
	WANT(answer.reply.status.stuck == 1 && actor->recovers == 3);
	return 0;
}

static void cast_stuck(struct broker_world *world)
{
	struct actor *helper;

	broker_world_add(world, dies_with_space);
	helper = broker_world_add(world, cannot_help);
	helper->recover_errors = 100;
	helper->recover_error = EIO;
}

static void recovery_that_fails_for_good_is_stuck(void **state)
{
	broker_world_run(cast_stuck, 0);
}

/* --- what is stuck, when a node comes back --- */

#define STUCK_MANY (REEF_RECOVER_MAX + 8u)

static uint64_t count_stuck(struct actor *actor)
{
	struct reef_body answer;

	return actor_ask(actor, REEF_POOL_STATUS, NULL, &answer)
		       ? UINT64_MAX
		       : answer.reply.status.stuck;
}

/* One session after the other, which all used the space, and end. */
static int leaves_sessions(struct actor *actor)
{
	uint32_t i, space;

	while (!actor->world->note[2])
		TRY(reef_sleep(MILLISECOND));
	for (i = 0; i < actor->world->note[3]; i++) {
		actor->session = 0;
		TRY(joins_space(actor, &space));
	}
	actor_hang_up(actor);
	return 0;
}

static int await_stuck(struct actor *actor, uint64_t count)
{
	for (uint32_t i = 0; i < 1000 && count_stuck(actor) != count; i++)
		TRY(actor_stay(actor, TTL / 4));
	WANT(count_stuck(actor) == count);
	return 0;
}

/* Take extents until one is on that node. */
static int take_extents(struct actor *actor, uint32_t space,
			const struct actor *node)
{
	struct reef_body add = {
		.ask.extent_add = {.space = space, .size = REEF_EXTENT_ALIGN}};
	int rc;

	for (uint32_t i = 0; i < 1000 && !node->creates; i++) {
		rc = actor_ask(actor, REEF_POOL_EXTENT_ADD, &add, NULL);
		if (rc && rc != -EAGAIN) /* no node has come yet */
			return rc;
		TRY(actor_stay(actor, MILLISECOND));
	}
	return node->creates ? 0 : -ETIMEDOUT;
}

/* Cannot help until the node is back; each return is one more attempt for
 * everything. The first time it is in vain. */
static int helps_when_back(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct actor *node = &world->actors[2];
	uint32_t space, asked;

	TRY(joins_space(actor, &space));
	TRY(take_extents(actor, space, node));
	world->note[2] = 1;
	TRY(await_stuck(actor, world->note[3]));
	TRY(actor_stay(actor, 2 * TTL));
	asked = actor->recovers;
	node->comes_back = true;
	TRY(actor_stay(actor, 5 * TTL));
	WANT(actor->recovers ==
	     asked + (world->note[3] > REEF_RECOVER_MAX ? 2 : 1));
	TRY(await_stuck(actor, world->note[3]));
	actor->recover_errors = 0;
	node->incarnation += actor->note[0];
	node->comes_back = true;
	return await_stuck(actor, 0);
}

static void cast_return(struct broker_world *world, uint64_t sessions,
			uint64_t is_new_life)
{
	struct actor *helper;

	world->note[3] = sessions;
	broker_world_add(world, leaves_sessions);
	helper = broker_world_add(world, helps_when_back);
	helper->recover_errors = UINT32_MAX;
	helper->recover_error = EIO;
	helper->note[0] = is_new_life;
	/* With the last two of three the broker goes on. */
	for (int i = 0; i < 3; i++)
		broker_world_add(world, actor_node_script);
}

static void cast_same_life(struct broker_world *world)
{
	cast_return(world, 1, 0);
}

static void cast_new_life(struct broker_world *world)
{
	cast_return(world, 1, 1);
}

static void cast_many_stuck(struct broker_world *world)
{
	cast_return(world, STUCK_MANY, 0);
}

static void recovery_that_is_stuck_is_tried_when_a_node_returns(void **state)
{
	broker_world_run(cast_same_life, 0);
	broker_world_run(cast_new_life, 0);
}

static void recovery_of_all_that_is_stuck_is_tried(void **state)
{
	broker_world_run(cast_many_stuck, 0);
}

static void recovery_waits_for_who_opens_the_space(void **state)
{
	broker_world_run(cast_later, 0);
	broker_world_run(cast_later_restart, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(recovery_is_asked_of_one_who_has_the_space),
		cmocka_unit_test(recovery_goes_on_to_the_next),
		cmocka_unit_test(recovery_outlives_its_helper),
		cmocka_unit_test(recovery_asks_about_many_at_once),
		cmocka_unit_test(recovery_waits_for_who_has_begun_it),
		cmocka_unit_test(recovery_is_asked_of_the_janitor_first),
		cmocka_unit_test(janitor_is_the_owners),
		cmocka_unit_test(recovery_that_fails_for_good_is_stuck),
		cmocka_unit_test(
			recovery_that_is_stuck_is_tried_when_a_node_returns),
		cmocka_unit_test(recovery_of_all_that_is_stuck_is_tried),
		cmocka_unit_test(recovery_waits_for_who_opens_the_space),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
