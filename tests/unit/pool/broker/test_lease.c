/* test_lease.c - how sessions end: samples, fences; and when memory may be used
 * again. In simulation, each over several seeds, and with the
 * mutant that it is there to find. */
#include "base/mutant.h"
#include "fixture/broker_world.h"
#include "pool/broker/lending.h"

#include <errno.h>
#include <string.h>

/* --- samples --- */

/* Late now and then, as threads are. */
static int stays(struct actor *actor)
{
	struct reef_random *random = reef_sim_host_random(actor->host);
	int i;

	TRY(actor_join(actor));
	for (i = 0; i < 100; i++) {
		TRY(reef_sleep(reef_random_between(random, TTL / 8, TTL / 2)));
		WANT(actor_renew(actor) == 0);
	}
	WANT(actor_state(actor, actor->session) == REEF_SESSION_ALIVE);
	return 0;
}

static int stays_with_broker_restarts(struct actor *actor)
{
	struct broker_world *world = actor->world;
	int i, rc;

	TRY(actor_join(actor));
	for (i = 0; i < 10; i++) {
		TRY(actor_stay(actor, TTL));
		TRY(broker_world_restart(world, i % 2));
		/* It takes its time to come back. */
		actor_hang_up(actor);
		TRY(reef_sleep(TTL * 3 / 4));
		rc = actor_return(actor);
		WANT(rc != -REEF_EFENCED);
		TRY(rc);
		WANT(actor->header.broker_epoch >= (uint64_t)i + 2);
	}
	WANT(actor_state(actor, actor->session) == REEF_SESSION_ALIVE);
	return 0;
}

static void cast_stay(struct broker_world *world)
{
	broker_world_add(world, stays);
	broker_world_add(world, stays);
	broker_world_add(world, stays);
}

static void cast_restarts(struct broker_world *world)
{
	broker_world_add(world, stays_with_broker_restarts);
}

static void lease_that_is_renewed_lasts(void **state)
{
	broker_world_run(cast_stay, 0);
	broker_world_find(cast_stay, REEF_MUTANT_BROKER_ONE_SAMPLE);
}

static void lease_outlasts_restarts(void **state)
{
	broker_world_run(cast_restarts, 0);
	broker_world_find(cast_restarts, REEF_MUTANT_BROKER_NO_GRACE);
	broker_world_find(cast_restarts, REEF_MUTANT_BROKER_OLD_EPOCH);
}

/* Says nothing any more after a while; then finds out. */
static int falls_silent(struct actor *actor)
{
	uint32_t before;

	TRY(actor_join(actor));
	TRY(actor_stay(actor, TTL));
	before = actor->session;
	actor->world->note[0] = before;
	TRY(reef_sleep(4 * TTL));
	WANT(actor_renew(actor) == 0 || actor->renewal);
	WANT(actor_call(actor, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL) ==
	     -REEF_EFENCED);
	WANT(actor_resume(actor) == -REEF_EFENCED);
	TRY(actor_session(actor));
	WANT(actor->session != before);
	return actor_stay(actor, TTL);
}

static int watches_silence(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint64_t begun;
	uint32_t id;

	TRY(actor_join(actor));
	while (world->note[0] == 0)
		TRY(actor_stay(actor, MILLISECOND));
	id = (uint32_t)world->note[0];
	begun = reef_now_ns();
	TRY(actor_await(actor, id, REEF_SESSION_EXPIRED, 3 * TTL));
	/* By the clocks of two hosts. */
	WANT(reef_now_ns() - begun > TTL * 3 / 4 - TTL / 20);
	TRY(actor_await(actor, id, REEF_SESSION_RECOVERED, TTL));
	WANT(actor_state(actor, actor->session) == REEF_SESSION_ALIVE);
	return 0;
}

static void cast_silence(struct broker_world *world)
{
	broker_world_add(world, falls_silent);
	broker_world_add(world, watches_silence);
}

static void lease_of_a_silent_session_ends(void **state)
{
	broker_world_run(cast_silence, 0);
}

/* Client and broker stand still; the broker goes on first. */
static int stands_still(struct actor *actor)
{
	int rc;

	TRY(actor_join(actor));
	actor->world->note[0] = 1;
	while (actor->world->note[0] < 4) {
		rc = actor_stay(actor, MILLISECOND);
		WANT(rc != -REEF_EFENCED);
		TRY(rc);
	}
	WANT(actor_state(actor, actor->session) == REEF_SESSION_ALIVE);
	return 0;
}

static int stops_them(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct reef_sim_host *other = world->actors[0].host;

	while (world->note[0] == 0)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(TTL));
	reef_sim_host_pause(other);
	TRY(reef_sleep(TTL * 7 / 10));
	reef_sim_host_pause(world->host);
	TRY(reef_sleep(5 * TTL));
	reef_sim_host_resume(world->host);
	TRY(reef_sleep(TTL * 7 / 10));
	reef_sim_host_resume(other);
	TRY(reef_sleep(2 * TTL));
	world->note[0] = 4;
	return 0;
}

static void cast_stand_still(struct broker_world *world)
{
	broker_world_add(world, stands_still);
	broker_world_add(world, stops_them);
}

static void lease_does_not_count_the_brokers_absence(void **state)
{
	broker_world_run(cast_stand_still, 0);
}

/* --- fences --- */

static int dies(struct actor *actor)
{
	struct broker_world *world = actor->world;

	TRY(actor_join(actor));
	TRY(actor_touch_nodes(actor));
	TRY(actor_stay(actor, TTL));
	world->note[0] = actor->session;
	reef_sim_host_kill(actor->host);
	return 0;
}

static int watches_fence(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint32_t id;

	TRY(actor_join(actor));
	TRY(actor_await_victim(actor, &id));
	TRY(actor_await(actor, id, REEF_SESSION_FENCED, 10 * TTL));
	WANT(world->actors[2].fences > 0 && world->actors[3].fences > 0);
	return actor_await(actor, id, REEF_SESSION_RECOVERED, TTL);
}

static void cast_fence(struct broker_world *world)
{
	broker_world_add(world, dies);
	broker_world_add(world, watches_fence);
	broker_world_add(world, actor_node_script)->delay_ns = TTL / 3;
	broker_world_add(world, actor_node_script);
}

static void lease_fenced_is_after_every_node_confirmed(void **state)
{
	broker_world_run(cast_fence, 0);
	broker_world_find(cast_fence, REEF_MUTANT_BROKER_EARLY_FENCED);
}

/* --- one in many goes to all nodes --- */

#define FENCE_ALL_EVERY 8192u

/* Its own slot and one more: all others come and go in that. They are a user's,
 * for whom there are no others. */
static int limits_slots(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct reef_body body = {
		.ask.setting = {.name = actor_text_of("sessions_max"),
				.value = 2},
	};
	struct reef_body user = {.ask.user_add.name = actor_text_of("ada")};

	TRY(actor_join(actor));
	TRY(actor_ask(actor, REEF_POOL_SETTING, &body, NULL));
	TRY(actor_ask(actor, REEF_POOL_USER_ADD, &user, NULL));
	world->note[2] = 1;
	while (!world->note[3])
		TRY(actor_stay(actor, TTL / 4));
	return 0;
}

/* Sessions that never heard of any node: the last one is fenced there. */
static int comes_and_goes(struct actor *actor)
{
	struct broker_world *world = actor->world;
	const struct actor *node = &world->actors[2];
	uint32_t i, last = 0;

	while (!world->note[2])
		TRY(reef_sleep(MILLISECOND));
	actor->credential = (struct reef_credential){.user = 1};
	TRY(reef_key_derive_user(&world->key, 1, 0, &actor->credential.key));
	for (i = 0; i <= FENCE_ALL_EVERY; i++) {
		WANT(node->fences == 0);
		actor->session = 0;
		TRY(actor_join(actor));
		WANT((uint16_t)actor->session > last);
		last = (uint16_t)actor->session;
		if (last == FENCE_ALL_EVERY)
			break;
		TRY(actor_call(actor, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL));
	}
	WANT(last == FENCE_ALL_EVERY);
	TRY(actor_call(actor, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL));
	for (i = 0; i < 100 && !node->fences; i++)
		TRY(reef_sleep(TTL / 4));
	WANT(node->fences == 1);
	world->note[3] = 1;
	return 0;
}

static void lease_fence_of_one_in_many_goes_to_all_nodes(void **state)
{
	struct broker_world world = {0};

	broker_world_start(&world, 1);
	broker_world_add(&world, limits_slots);
	broker_world_add(&world, comes_and_goes);
	broker_world_add(&world, actor_node_script);
	assert_int_equal(broker_world_finish(&world), 0);
}

static int watches_fence_of_dead_node(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct actor *node = &world->actors[2];
	uint32_t id;

	TRY(actor_join(actor));
	TRY(actor_await_victim(actor, &id));
	TRY(actor_await(actor, id, REEF_SESSION_EXPIRED, 10 * TTL));
	WANT(node->fences == 0);
	reef_sim_host_kill(node->host);
	TRY(actor_await(actor, id, REEF_SESSION_FENCED, 20 * TTL));
	/* Published with the epoch in which the node is dead. */
	WANT(actor->slot.state >> 32 >= 2 && actor->header.pool_epoch >= 2);
	return 0;
}

static void cast_dead_node(struct broker_world *world)
{
	broker_world_add(world, dies);
	broker_world_add(world, watches_fence_of_dead_node);
	/* It would confirm, but far too late. */
	broker_world_add(world, actor_node_script)->delay_ns = 100 * TTL;
	/* The last one could not be declared dead (confirm.c, 4). */
	broker_world_add(world, actor_node_script);
}

static void lease_dead_node_counts_as_fenced(void **state)
{
	broker_world_run(cast_dead_node, 0);
}

/* --- acknowledged views --- */

static uint32_t epoch_waited; /* how often broker_epoch_wait has returned 0 */

static void wait_for_views(struct reef_broker *broker, uint32_t number)
{
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	epoch_waited +=
		broker_epoch_wait(broker, summary.pool_epoch, number) == 0;
}

/* Renews all the time, and never says that it has let go. */
static int lets_nothing_go(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint64_t begun;

	TRY(actor_join(actor));
	actor->lags = true;
	world->note[0] = actor->session;
	while (world->note[1] == 0)
		TRY(actor_stay(actor, MILLISECOND));
	begun = reef_now_ns();
	do {
		WANT(reef_now_ns() - begun < 2 * TTL);
		TRY(reef_sleep(TTL / 8));
	} while (actor_renew(actor) == 0 &&
		 (uint8_t)(actor->slot.state >> 16) == REEF_SESSION_ALIVE);
	/* By the clocks of two hosts. */
	WANT(reef_now_ns() - begun > TTL - TTL / 20);
	return 0;
}

static int waits_for_views(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint32_t id;

	epoch_waited = 0;
	TRY(actor_join(actor));
	TRY(actor_touch_nodes(actor));
	TRY(actor_await_victim(actor, &id));
	reef_sim_host_kill(world->actors[2].host);
	while (actor->header.pool_epoch < 2)
		TRY(actor_stay(actor, MILLISECOND));
	/* Nobody waits: it may lag for as long as it likes. */
	TRY(actor_stay(actor, 3 * TTL));
	WANT(actor_state(actor, id) == REEF_SESSION_ALIVE);
	/* No session has this space open. */
	TRY(broker_spawn(world->broker, wait_for_views, 77));
	TRY(actor_stay(actor, TTL / 4));
	WANT(epoch_waited == 1);
	TRY(broker_spawn(world->broker, wait_for_views, 0));
	world->note[1] = 1;
	while (epoch_waited < 2) {
		WANT(actor_state(actor, id) < REEF_SESSION_RECOVERED);
		TRY(actor_stay(actor, MILLISECOND));
	}
	WANT(actor_state(actor, id) >= REEF_SESSION_FENCED);
	WANT(actor_state(actor, actor->session) == REEF_SESSION_ALIVE);
	return 0;
}

/* Lets go of one epoch after the other, and never of all that is awaited. */
static int lets_go_in_bits(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint64_t begun;

	TRY(actor_join(actor));
	actor->lags = true;
	actor->lags_at = actor->header.pool_epoch;
	world->note[0] = actor->session;
	while (world->note[1] == 0)
		TRY(actor_stay(actor, MILLISECOND));
	WANT(actor->header.pool_epoch >= actor->lags_at + 2);
	begun = reef_now_ns();
	do {
		WANT(reef_now_ns() - begun < 2 * TTL);
		TRY(reef_sleep(TTL / 8));
		if (reef_now_ns() - begun > TTL)
			actor->lags_at = actor->header.pool_epoch - 1;
	} while (actor_renew(actor) == 0 &&
		 (uint8_t)(actor->slot.state >> 16) == REEF_SESSION_ALIVE);
	return 0;
}

static int waits_for_two_epochs(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint32_t id, i;

	epoch_waited = 0;
	TRY(actor_join(actor));
	TRY(actor_touch_nodes(actor));
	TRY(actor_await_victim(actor, &id));
	for (i = 2; i < 4; i++) {
		reef_sim_host_kill(world->actors[i].host);
		while (actor->header.pool_epoch < i)
			TRY(actor_stay(actor, MILLISECOND));
	}
	TRY(broker_spawn(world->broker, wait_for_views, 0));
	world->note[1] = 1;
	while (epoch_waited < 1)
		TRY(actor_stay(actor, MILLISECOND));
	WANT(actor_state(actor, id) >= REEF_SESSION_FENCED);
	return 0;
}

static void cast_bits(struct broker_world *world)
{
	broker_world_add(world, lets_go_in_bits);
	broker_world_add(world, waits_for_two_epochs);
	broker_world_add(world, actor_node_script);
	broker_world_add(world, actor_node_script);
	broker_world_add(world, actor_node_script);
	broker_world_add(world, actor_node_script);
}

static void lease_of_who_lets_go_in_bits_ends(void **state)
{
	broker_world_run(cast_bits, 0);
	broker_world_find(cast_bits, REEF_MUTANT_BROKER_ACK_IN_BITS);
}

/* A node comes and goes, and is never gone for long enough to be dead: who may
 * wait for it is excused, but not for ever. */
static int waits_beside_a_node_that_comes_and_goes(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct reef_sim_host *node = world->actors[2].host;
	uint64_t begun;
	uint32_t id;

	epoch_waited = 0;
	TRY(actor_join(actor));
	TRY(actor_await_victim(actor, &id));
	reef_sim_host_kill(world->actors[3].host);
	while (actor->header.pool_epoch < 2)
		TRY(actor_stay(actor, MILLISECOND));
	TRY(broker_spawn(world->broker, wait_for_views, 0));
	world->note[1] = 1;
	begun = reef_now_ns();
	while (epoch_waited < 1) {
		WANT(reef_now_ns() - begun < 16 * TTL);
		reef_sim_host_pause(node);
		TRY(actor_stay(actor, TTL * 3 / 4));
		reef_sim_host_resume(node);
		TRY(actor_stay(actor, TTL / 2));
	}
	/* It had more than one ttl: that node was no fault of its own. */
	WANT(reef_now_ns() - begun > 3 * TTL);
	WANT(actor->header.pool_epoch == 2);
	WANT(actor_state(actor, id) >= REEF_SESSION_FENCED);
	return 0;
}

static int touches_and_lets_nothing_go(struct actor *actor)
{
	struct broker_world *world = actor->world;

	TRY(actor_join(actor));
	TRY(actor_touch_nodes(actor));
	actor->lags = true;
	world->note[0] = actor->session;
	do
		TRY(reef_sleep(TTL / 8));
	while (actor_renew(actor) == 0 &&
	       (uint8_t)(actor->slot.state >> 16) == REEF_SESSION_ALIVE);
	return 0;
}

static void cast_excuses(struct broker_world *world)
{
	broker_world_add(world, touches_and_lets_nothing_go);
	broker_world_add(world, waits_beside_a_node_that_comes_and_goes);
	broker_world_add(world, actor_node_script);
	broker_world_add(world, actor_node_script);
	broker_world_add(world, actor_node_script);
}

static void lease_of_who_may_wait_for_a_node_ends_in_the_end(void **state)
{
	broker_world_run(cast_excuses, 0);
	broker_world_find(cast_excuses, REEF_MUTANT_BROKER_EXCUSES);
}

static void cast_views(struct broker_world *world)
{
	broker_world_add(world, lets_nothing_go);
	broker_world_add(world, waits_for_views);
	broker_world_add(world, actor_node_script);
	broker_world_add(world, actor_node_script);
	broker_world_add(world, actor_node_script);
}

static void lease_of_who_does_not_let_go_ends_when_awaited(void **state)
{
	broker_world_run(cast_views, 0);
}

/* --- R8 --- */

static int holds_on(struct actor *actor)
{
	struct broker_world *world = actor->world;

	TRY(actor_join(actor));
	TRY(actor_touch_nodes(actor));
	TRY(actor_look(actor, actor->session));
	actor->announces = true;
	actor->announce = (uint32_t)actor->header.reclaim_epoch;
	TRY(actor_renew(actor));
	world->note[0] = actor->header.reclaim_epoch;
	while (world->note[1] == 0)
		TRY(actor_stay(actor, MILLISECOND));
	actor->announces = false; /* now it lets go */
	while (world->note[1] == 1)
		TRY(actor_stay(actor, MILLISECOND));
	actor->announces = true;
	actor->announce = (uint32_t)actor->header.reclaim_epoch;
	TRY(actor_renew(actor));
	world->note[2] = actor->header.reclaim_epoch;
	reef_sim_host_kill(actor->host);
	return 0;
}

static int watches_epochs(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint64_t begun, last, held;
	uint32_t id;

	TRY(actor_join(actor));
	while (world->note[0] == 0)
		TRY(actor_stay(actor, MILLISECOND));
	held = world->note[0];
	for (begun = reef_now_ns(); reef_now_ns() - begun < 10 * TTL;) {
		TRY(actor_stay(actor, MILLISECOND));
		WANT(actor->header.safe_epoch <= held);
		WANT(actor->header.reclaim_epoch <= held + 1);
	}
	world->note[1] = 1;
	TRY(actor_stay(actor, 10 * TTL));
	WANT(actor->header.safe_epoch > held + 2);
	WANT(actor->header.reclaim_epoch <= actor->header.safe_epoch + 1);
	world->note[1] = 2;
	while (world->note[2] == 0)
		TRY(actor_stay(actor, MILLISECOND));
	/* It dies with what it holds, which counts until it is FENCED. */
	held = world->note[2];
	id = world->actors[0].session;
	while (actor_state(actor, id) < REEF_SESSION_FENCED) {
		WANT(actor->header.safe_epoch <= held);
		TRY(actor_stay(actor, MILLISECOND));
	}
	TRY(actor_stay(actor, 10 * TTL));
	WANT(actor->header.safe_epoch > held + 2);
	/* A start goes on above all that was before it. */
	last = actor->header.reclaim_epoch;
	TRY(broker_world_restart(world, true));
	TRY(actor_return(actor));
	WANT(actor->header.reclaim_epoch > last);
	WANT(actor->header.safe_epoch < last);
	TRY(actor_stay(actor, 10 * TTL));
	WANT(actor->header.safe_epoch > last);
	return 0;
}

static void cast_epochs(struct broker_world *world)
{
	broker_world_add(world, holds_on);
	broker_world_add(world, watches_epochs);
	/* So that it is EXPIRED for a while. */
	broker_world_add(world, actor_node_script)->delay_ns = TTL / 2;
}

static void lease_memory_waits_for_who_announced_less(void **state)
{
	broker_world_run(cast_epochs, 0);
	broker_world_find(cast_epochs, REEF_MUTANT_BROKER_EARLY_SAFE);
	/* Nobody lacks room: who holds on stays. */
	broker_world_find(cast_epochs, REEF_MUTANT_BROKER_PIN_UNMISSED);
}

/* --- hurry --- */

/* Renew as often as the table says. */
static int hurry_for(struct actor *actor, uint64_t duration_ns)
{
	uint64_t begun = reef_now_ns(), pause_ns;
	int rc;

	while (reef_now_ns() - begun < duration_ns && !actor->world->over) {
		pause_ns = actor->header.hurry_ns;
		TRY(reef_sleep(pause_ns ? pause_ns : TTL / 4));
		rc = actor_renew(actor);
		if (!rc && actor->hurries && !actor->header.hurry_ns)
			rc = reef_rpc_note(actor->peer, REEF_POOL_HURRY, NULL);
		if (rc == -REEF_EHOSTDEAD)
			return rc;
		if (rc)
			TRY(actor_return(actor));
	}
	return 0;
}

/* --- who holds memory back --- */

/* Announces the epoch that it met, for ever: until it is ended. */
static int pins(struct actor *actor)
{
	struct broker_world *world = actor->world;

	TRY(actor_join(actor));
	TRY(actor_look(actor, actor->session));
	actor->announces = true;
	actor->announce = (uint32_t)actor->header.reclaim_epoch;
	TRY(actor_renew(actor));
	world->note[0] = actor->session;
	while (!world->over && !world->note[1])
		TRY(hurry_for(actor, MILLISECOND));
	return 0;
}

/* Lacks room, says so, and is given it. */
static int lacks_room(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint64_t begun, held;
	uint32_t id;

	TRY(actor_join(actor));
	TRY(actor_await_victim(actor, &id));
	held = actor->header.reclaim_epoch;
	actor->hurries = actor->lacks = true;
	begun = reef_now_ns();
	while (actor_state(actor, id) == REEF_SESSION_ALIVE) {
		WANT(reef_now_ns() - begun < 3 * TTL);
		TRY(hurry_for(actor, MILLISECOND));
	}
	/* By the clocks of two hosts. */
	WANT(reef_now_ns() - begun > TTL - TTL / 20);
	TRY(actor_await(actor, id, REEF_SESSION_RECOVERED, TTL));
	TRY(hurry_for(actor, TTL));
	WANT(actor->header.safe_epoch > held + 2);
	WANT(actor_state(actor, actor->session) == REEF_SESSION_ALIVE);
	world->note[1] = 1;
	return 0;
}

/* The same while a node is dead, and not yet taken for it: who holds back may
 * be waiting for that one. */
static int lacks_room_and_a_node(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint64_t begun;

	TRY(actor_join(actor));
	while (world->note[0] == 0 || !world->actors[2].incarnation)
		TRY(actor_stay(actor, MILLISECOND));
	TRY(actor_stay(actor, TTL));
	reef_sim_host_kill(world->actors[2].host);
	actor->hurries = actor->lacks = true;
	begun = reef_now_ns();
	while (actor->header.pool_epoch < 2) {
		WANT(actor_state(actor, (uint32_t)world->note[0]) ==
		     REEF_SESSION_ALIVE);
		WANT(reef_now_ns() - begun < 10 * TTL);
		TRY(hurry_for(actor, MILLISECOND));
	}
	WANT(reef_now_ns() - begun > 3 * TTL);
	TRY(actor_await(actor, (uint32_t)world->note[0], REEF_SESSION_EXPIRED,
			2 * TTL));
	world->note[1] = 1;
	return 0;
}

static void cast_pins_and_dead_node(struct broker_world *world)
{
	broker_world_add(world, pins)->background = true;
	broker_world_add(world, lacks_room_and_a_node);
	broker_world_add(world, actor_node_script);
	/* Two witness that the first has died. */
	broker_world_add(world, actor_node_script);
	broker_world_add(world, actor_node_script);
}

static void cast_pins(struct broker_world *world)
{
	broker_world_add(world, pins)->background = true;
	broker_world_add(world, lacks_room);
}

static void lease_of_who_holds_memory_back_ends(void **state)
{
	broker_world_run(cast_pins, 0);
}

static void lease_of_who_may_wait_for_a_dead_node_lasts(void **state)
{
	broker_world_run(cast_pins_and_dead_node, 5 * TTL);
}

/* The same while a failover is under way that others hold up: who holds back
 * may be waiting for it. */
static int lacks_room_and_a_copy(struct actor *actor)
{
	struct broker_care care = {.is_passing = true}; /* in any space */
	struct reef_broker *broker;
	uint32_t id;
	uint64_t begun;
	bool is_ended = false;
	int rc = 0;

	TRY(actor_join(actor));
	TRY(actor_await_victim(actor, &id));
	actor->hurries = actor->lacks = true;
	broker = actor->world->broker;
	broker->cares = &care;
	begun = reef_now_ns();
	while (!rc && !is_ended && reef_now_ns() - begun < 4 * TTL) {
		is_ended = actor_state(actor, id) != REEF_SESSION_ALIVE;
		rc = hurry_for(actor, MILLISECOND);
	}
	broker->cares = NULL;
	TRY(rc);
	WANT(!is_ended);
	TRY(actor_await(actor, id, REEF_SESSION_EXPIRED, 3 * TTL));
	actor->world->note[1] = 1;
	return 0;
}

static void cast_pins_and_failover(struct broker_world *world)
{
	broker_world_add(world, pins)->background = true;
	broker_world_add(world, lacks_room_and_a_copy);
}

static void lease_of_who_may_wait_for_a_failover_lasts(void **state)
{
	broker_world_run(cast_pins_and_failover, 0);
	broker_world_find(cast_pins_and_failover,
			  REEF_MUTANT_BROKER_BLAME_FAILOVER);
}

/* Two that hold back and lack room: each waits for itself. A third one does
 * neither. */
static int pins_and_lacks(struct actor *actor)
{
	actor->hurries = actor->lacks = true;
	return pins(actor);
}

static int watches_them(struct actor *actor)
{
	TRY(actor_join(actor));
	TRY(hurry_for(actor, 5 * TTL));
	WANT(actor_state(actor, actor->world->actors[0].session) ==
	     REEF_SESSION_ALIVE);
	WANT(actor_state(actor, actor->world->actors[1].session) ==
	     REEF_SESSION_ALIVE);
	actor->world->note[1] = 1;
	return 0;
}

static void cast_two_pins(struct broker_world *world)
{
	broker_world_add(world, pins_and_lacks)->background = true;
	broker_world_add(world, pins_and_lacks)->background = true;
	broker_world_add(world, watches_them);
}

static void lease_of_who_waits_for_its_own_pin_lasts(void **state)
{
	broker_world_run(cast_two_pins, 0);
}

/* Somebody always lacks room, and somebody holds back: for half a lease, then
 * the broker is away or starts anew, and for half a lease again. */
static int pins_around_an_absence(struct actor *actor)
{
	int rc, i;

	TRY(actor_join(actor));
	for (i = 0; i < 3; i++) {
		TRY(hurry_for(actor, TTL));
		actor->announces = true;
		actor->announce = (uint32_t)actor->header.reclaim_epoch;
		TRY(hurry_for(actor, TTL / 2));
		if (actor->note[0]) {
			TRY(broker_world_restart(actor->world, i % 2));
			actor_hang_up(actor);
			actor_hang_up(&actor->world->actors[1]);
			TRY(actor_return(actor));
		} else {
			reef_sim_host_pause(actor->world->host);
			TRY(reef_sleep(3 * TTL));
			reef_sim_host_resume(actor->world->host);
		}
		TRY(hurry_for(actor, TTL / 2));
		rc = actor_state(actor, actor->session);
		WANT(rc == REEF_SESSION_ALIVE || rc < 0);
		actor->announces = false;
	}
	TRY(hurry_for(actor, TTL));
	WANT(actor_state(actor, actor->session) == REEF_SESSION_ALIVE);
	return 0;
}

static int always_lacks(struct actor *actor)
{
	TRY(actor_join(actor));
	actor->hurries = actor->lacks = true;
	while (!actor->world->over)
		TRY(hurry_for(actor, TTL));
	return 0;
}

static void cast_absence(struct broker_world *world)
{
	broker_world_add(world, pins_around_an_absence);
	broker_world_add(world, always_lacks)->background = true;
}

static void cast_starts(struct broker_world *world)
{
	broker_world_add(world, pins_around_an_absence)->note[0] = 1;
	broker_world_add(world, always_lacks)->background = true;
}

static void lease_holding_back_does_not_count_absence(void **state)
{
	broker_world_run(cast_absence, 0);
	broker_world_run(cast_starts, 0);
}

/* In the background of others. */
static int always_hurries(struct actor *actor)
{
	TRY(actor_join(actor));
	actor->hurries = true;
	while (!actor->world->over)
		TRY(hurry_for(actor, TTL));
	return 0;
}

static void add_hurry(struct broker_world *world)
{
	broker_world_add(world, always_hurries)->background = true;
}

static void cast_stay_hurry(struct broker_world *world)
{
	cast_stay(world);
	add_hurry(world);
}

static void cast_silence_hurry(struct broker_world *world)
{
	cast_silence(world);
	add_hurry(world);
}

static void lease_is_not_judged_sooner_in_a_hurry(void **state)
{
	broker_world_run(cast_stay_hurry, 0);
	broker_world_run(cast_silence_hurry, 0);
	broker_world_find(cast_stay_hurry, REEF_MUTANT_BROKER_HASTY_LEASE);
}

static void cast_epochs_hurry(struct broker_world *world)
{
	cast_epochs(world);
	add_hurry(world);
}

static void lease_memory_waits_for_them_in_a_hurry_too(void **state)
{
	broker_world_run(cast_epochs_hurry, 0);
	broker_world_find(cast_epochs_hurry, REEF_MUTANT_BROKER_EARLY_SAFE);
}

/* Epochs pass quickly while somebody says so, and no longer. */
static int hurries_for_a_while(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint64_t before;

	TRY(actor_join(actor));
	while (world->note[0] == 0)
		TRY(actor_stay(actor, MILLISECOND));
	before = actor->header.reclaim_epoch;
	actor->hurries = true;
	TRY(actor_renew(actor));
	TRY(reef_rpc_note(actor->peer, REEF_POOL_HURRY, NULL));
	TRY(reef_sleep(5 * MILLISECOND));
	TRY(actor_renew(actor));
	WANT(actor->header.hurry_ns);
	TRY(hurry_for(actor, TTL));
	WANT(actor->header.safe_epoch > before + 10);
	WANT(actor->header.hurry_ns);
	actor->hurries = false;
	TRY(actor_renew(actor));
	TRY(hurry_for(actor, TTL));
	WANT(!actor->header.hurry_ns);
	/* It says so for the last time, and lives on. */
	actor->hurries = true;
	TRY(actor_renew(actor));
	TRY(reef_rpc_note(actor->peer, REEF_POOL_HURRY, NULL));
	TRY(reef_sleep(10 * MILLISECOND));
	TRY(actor_look(actor, actor->session));
	WANT(actor->header.hurry_ns);
	TRY(reef_sleep(TTL / 2));
	TRY(actor_look(actor, actor->session));
	WANT(!actor->header.hurry_ns);
	world->note[0] = 2;
	return 0;
}

static int joins_in(struct actor *actor)
{
	TRY(actor_join(actor));
	actor->world->note[0] = 1;
	while (actor->world->note[0] == 1)
		TRY(hurry_for(actor, MILLISECOND));
	return 0;
}

static void cast_hurry(struct broker_world *world)
{
	broker_world_add(world, hurries_for_a_while);
	broker_world_add(world, joins_in);
}

static void lease_hurry_lasts_while_somebody_says_so(void **state)
{
	broker_world_run(cast_hurry, 0);
}

/* Whoever lacks room here says all that the word can say: also that memory will
 * come of it, which is true of janitors only. */
static int says_that_memory_comes(struct actor *actor)
{
	TRY(actor_join(actor));
	actor->lacks = true;
	TRY(actor_stay(actor, TTL));
	WANT(!actor->header.coming);
	TRY(actor_ask(actor, REEF_POOL_JANITOR, NULL, NULL));
	TRY(actor_stay(actor, TTL));
	WANT(actor->header.coming == 1);
	actor->lacks = false;
	TRY(actor_stay(actor, TTL));
	WANT(!actor->header.coming);
	return 0;
}

static void cast_giver(struct broker_world *world)
{
	broker_world_add(world, says_that_memory_comes);
}

static void lease_of_a_janitor_tells_what_comes(void **state)
{
	broker_world_run(cast_giver, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lease_that_is_renewed_lasts),
		cmocka_unit_test(lease_outlasts_restarts),
		cmocka_unit_test(lease_of_who_lets_go_in_bits_ends),
		cmocka_unit_test(
			lease_of_who_may_wait_for_a_node_ends_in_the_end),
		cmocka_unit_test(lease_of_a_silent_session_ends),
		cmocka_unit_test(lease_does_not_count_the_brokers_absence),
		cmocka_unit_test(lease_fenced_is_after_every_node_confirmed),
		cmocka_unit_test(
			lease_of_who_does_not_let_go_ends_when_awaited),
		cmocka_unit_test(lease_dead_node_counts_as_fenced),
		cmocka_unit_test(lease_fence_of_one_in_many_goes_to_all_nodes),
		cmocka_unit_test(lease_memory_waits_for_who_announced_less),
		cmocka_unit_test(lease_is_not_judged_sooner_in_a_hurry),
		cmocka_unit_test(lease_memory_waits_for_them_in_a_hurry_too),
		cmocka_unit_test(lease_hurry_lasts_while_somebody_says_so),
		cmocka_unit_test(lease_of_who_holds_memory_back_ends),
		cmocka_unit_test(lease_of_who_may_wait_for_a_dead_node_lasts),
		cmocka_unit_test(lease_of_who_may_wait_for_a_failover_lasts),
		cmocka_unit_test(lease_of_who_waits_for_its_own_pin_lasts),
		cmocka_unit_test(lease_holding_back_does_not_count_absence),
		cmocka_unit_test(lease_of_a_janitor_tells_what_comes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
