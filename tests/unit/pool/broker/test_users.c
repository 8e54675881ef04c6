/* test_users.c - what ordinary users can take from a broker, and what they
 * cannot: raw calls with a user's key, beside an owner who must not notice. */
#include "fixture/broker_world.h"

#include "fixture/seeds.h"
#include "pool/broker/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SEEDS 3
#define USERS 2

/* Steps of a script, in world->note[0]. */
enum { BEGIN, USERS_ARE_THERE, TAKEN, SEEN };

static int await_step(struct actor *actor, uint64_t step)
{
	while (actor->world->note[0] < step) {
		if (actor->world->failed)
			return -ECANCELED;
		TRY(actor->session ? actor_stay(actor, MILLISECOND)
				   : reef_sleep(MILLISECOND));
	}
	return 0;
}

static void run_cast(int (*owner)(struct actor *actor),
		     int (*user)(struct actor *actor))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct broker_world world = {0};

		world.options.reserved = " other door ";
		broker_world_start(&world, seed);
		broker_world_add(&world, owner);
		broker_world_add(&world, user);
		assert_int_equal(broker_world_finish(&world), 0);
	}
}

/* --- the owner's part --- */

static int set_setting(struct actor *owner, const char *name, uint64_t value)
{
	struct reef_body body = {
		.ask.setting = {.name = actor_text_of(name), .value = value},
	};

	return actor_ask(owner, REEF_POOL_SETTING, &body, NULL);
}

/* Join as the pool's owner, and make users 1 and 2. */
static int begin_as_owner(struct actor *owner)
{
	static const char *const names[USERS] = {"ada", "bob"};
	struct reef_body body = {0};

	TRY(actor_join(owner));
	for (int i = 0; i < USERS; i++) {
		body.ask.user_add.name = actor_text_of(names[i]);
		TRY(actor_ask(owner, REEF_POOL_USER_ADD, &body, NULL));
	}
	return 0;
}

/* --- a user's part --- */

static int become_user(struct actor *actor, uint32_t user, uint32_t era)
{
	actor->credential = (struct reef_credential){.user = user, .era = era};
	return reef_key_derive_user(&actor->world->key, user, era,
				    &actor->credential.key);
}

static int begin_as_user(struct actor *actor)
{
	TRY(await_step(actor, USERS_ARE_THERE));
	TRY(become_user(actor, 1, 0));
	return actor_join(actor);
}

/* --- sessions --- */

#define SLOTS 8

/* Open sessions, each over a link of its own that stays, until the broker
 * refuses one. */
static int open_until_refused(struct actor *actor, uint32_t *count)
{
	int rc;

	for (*count = 0;; ++*count) {
		WANT(*count < SLOTS + 2 * REEF_OWNER_SLOTS);
		actor->peer = NULL; /* the one before stays */
		actor->renewal = actor->table = NULL;
		TRY(actor_connect(actor));
		rc = actor_session(actor);
		if (rc)
			return rc;
	}
}

static int owner_beside_a_full_table(struct actor *owner)
{
	TRY(begin_as_owner(owner));
	TRY(set_setting(owner, "sessions_max", SLOTS));
	owner->world->note[0] = USERS_ARE_THERE;
	TRY(await_step(owner, TAKEN));
	/* A second session of the owner. */
	actor_hang_up(owner);
	owner->session = 0;
	TRY(actor_join(owner));
	/* And a broker that starts with a full table. */
	TRY(broker_world_restart(owner->world, true));
	owner->session = 0;
	TRY(actor_join(owner));
	owner->world->note[0] = SEEN;
	return 0;
}

static int fill_table(struct actor *actor)
{
	uint32_t count;
	int rc;

	TRY(await_step(actor, USERS_ARE_THERE));
	TRY(become_user(actor, 1, 0));
	rc = open_until_refused(actor, &count);
	WANT(rc == -ENOSPC && count == SLOTS - 1);
	actor->world->note[0] = TAKEN;
	while (actor->world->note[0] < SEEN && !actor->world->failed)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void users_full_table_leaves_the_owner_in(void **state)
{
	run_cast(owner_beside_a_full_table, fill_table);
}

/* Programs of the owner that take all the slots that they may leave some to the
 * pool's own: a janitor, or nobody's work is ever recovered. */
static int owner_of_many_programs(struct actor *owner)
{
	struct reef_body body = {
		.ask.session_open = {.program = actor_text_of("janitor")},
	};
	uint32_t count;

	TRY(begin_as_owner(owner));
	TRY(set_setting(owner, "sessions_max", SLOTS));
	WANT(open_until_refused(owner, &count) == -ENOSPC);
	WANT(count == SLOTS - 1 + REEF_OWNER_SLOTS - REEF_SERVANT_SLOTS);
	body.ask.session_open.flags = REEF_POOL_SERVANT;
	TRY(actor_call(owner, REEF_POOL_SESSION_OPEN, 0, &body, NULL));
	owner->world->note[0] = USERS_ARE_THERE;
	return 0;
}

/* It says of itself that it is one of the pool's own. */
static int no_servant(struct actor *actor)
{
	struct reef_body body = {
		.ask.session_open = {.program = actor_text_of("janitor"),
				     .flags = REEF_POOL_SERVANT},
	};

	TRY(await_step(actor, USERS_ARE_THERE));
	TRY(become_user(actor, 1, 0));
	TRY(actor_connect(actor));
	WANT(actor_call(actor, REEF_POOL_SESSION_OPEN, 0, &body, NULL) ==
	     -ENOSPC);
	return 0;
}

static void users_full_table_leaves_the_janitor_in(void **state)
{
	run_cast(owner_of_many_programs, no_servant);
}

/* --- names --- */

static int bind_name(struct actor *actor, uint32_t space, uint32_t number)
{
	struct reef_body body;
	char text[16];

	snprintf(text, sizeof(text), "n%u", number);
	body = actor_name_body(REEF_POOL_NAME_BIND, space, text, number, 0);
	return actor_ask(actor, REEF_POOL_NAME_BIND, &body, NULL);
}

static int owner_beside_many_names(struct actor *owner)
{
	uint32_t space;

	TRY(begin_as_owner(owner));
	TRY(set_setting(owner, "names_max", 32));
	TRY(actor_space(owner, "owner's", &space));
	owner->world->note[0] = USERS_ARE_THERE;
	TRY(await_step(owner, TAKEN));
	TRY(bind_name(owner, space, 1));
	owner->world->note[0] = SEEN;
	return 0;
}

static int take_names(struct actor *actor)
{
	uint32_t space, count;
	int rc = 0;

	TRY(begin_as_user(actor));
	TRY(actor_space(actor, "mine", &space));
	for (count = 0; !rc && count < 64; count++)
		rc = bind_name(actor, space, count);
	WANT(rc == -ENOSPC || rc == -EDQUOT);
	actor->world->note[0] = TAKEN;
	return await_step(actor, SEEN);
}

static void users_many_names_leave_the_owner_some(void **state)
{
	run_cast(owner_beside_many_names, take_names);
}

/* --- names of spaces --- */

static int owner_of_reserved_names(struct actor *owner)
{
	uint32_t space;

	TRY(begin_as_owner(owner));
	owner->world->note[0] = USERS_ARE_THERE;
	TRY(await_step(owner, TAKEN));
	TRY(actor_space(owner, "redis", &space));
	TRY(actor_space(owner, "sync", &space));
	return 0;
}

static int make_space(struct actor *actor, const char *name)
{
	struct reef_body body = {
		.ask.space_open = {.name = actor_text_of(name),
				   .flags = REEF_POOL_CREATE},
	};

	return actor_ask(actor, REEF_POOL_SPACE_OPEN, &body, NULL);
}

static int come_first(struct actor *actor)
{
	TRY(begin_as_user(actor));
	WANT(make_space(actor, "redis") == -EPERM);
	WANT(make_space(actor, "sync") == -EPERM);
	WANT(make_space(actor, "door") == -EPERM); /* of the options */
	TRY(make_space(actor, "sync2"));
	actor->world->note[0] = TAKEN;
	return 0;
}

static void users_do_not_own_the_names_of_doors(void **state)
{
	run_cast(owner_of_reserved_names, come_first);
}

/* --- limits --- */

static int set_limit(struct actor *owner, enum reef_limit limit, uint64_t value)
{
	struct reef_body body = {
		.ask.user_limit = {.user = 1,
				   .limit = (uint8_t)limit,
				   .value = value},
	};

	return actor_ask(owner, REEF_POOL_USER_LIMIT, &body, NULL);
}

static int owner_who_limits(struct actor *owner)
{
	TRY(begin_as_owner(owner));
	TRY(set_limit(owner, REEF_LIMIT_SESSIONS, 2));
	TRY(set_limit(owner, REEF_LIMIT_SPACES, 1));
	TRY(set_limit(owner, REEF_LIMIT_LINKS, 4));
	owner->world->note[0] = USERS_ARE_THERE;
	return await_step(owner, SEEN);
}

static int meet_limits(struct actor *actor)
{
	struct reef_body body = {
		.ask.user_limit = {.user = 1, .value = REEF_NO_LIMIT},
	};
	uint32_t count;

	TRY(await_step(actor, USERS_ARE_THERE));
	TRY(become_user(actor, 1, 0));
	WANT(open_until_refused(actor, &count) == -EDQUOT && count == 2);
	/* Another user is another matter. */
	actor->peer = NULL;
	TRY(become_user(actor, 2, 0));
	TRY(actor_join(actor));
	TRY(make_space(actor, "one"));
	TRY(make_space(actor, "two"));
	WANT(actor_ask(actor, REEF_POOL_USER_LIMIT, &body, NULL) == -EPERM);
	actor->world->note[0] = SEEN;
	return 0;
}

static void users_limit_binds_one_user(void **state)
{
	run_cast(owner_who_limits, meet_limits);
}

static int knock(struct actor *actor, struct reef_peer **peer)
{
	struct reef_connect_options options = {.timeout_ns = TTL};
	char identity[REEF_IDENTITY_MAX + 1];

	snprintf(identity, sizeof(identity), "user:%u:%u",
		 actor->credential.user, actor->credential.era);
	options.identity = identity;
	options.session =
		(0x8000u + actor->number) << 16 | (++actor->links & 0xffff);
	memcpy(options.key, actor->credential.key.bytes, sizeof(options.key));
	return reef_rpc_connect(actor->rpc, BROKER, 0, &options, peer, NULL);
}

/* Connect until it works or is refused for good: links get lost here. */
static int knock_until_answered(struct actor *actor, struct reef_peer **peer)
{
	int rc, tries = 0;

	do {
		rc = knock(actor, peer);
	} while ((rc == -REEF_ENOLINK || rc == -ETIMEDOUT) && tries++ < 100);
	return rc;
}

#define CROWD 8

struct comer {
	struct actor *actor;
	struct reef_peer *peer;
	int rc;
};

static int come(void *arg)
{
	struct comer *comer = arg;

	comer->rc = knock_until_answered(comer->actor, &comer->peer);
	return 0;
}

/* All at once: those who are let in are counted before they are up. */
static int come_together(struct actor *actor)
{
	struct reef_fiber *fibers[CROWD];
	struct comer comers[CROWD];
	int in = 0, i;

	for (i = 0; i < CROWD; i++) {
		comers[i] = (struct comer){.actor = actor};
		TRY(reef_fiber_spawn(reef_fiber_sched(), come, &comers[i],
				     &fibers[i]));
	}
	for (i = 0; i < CROWD; i++) {
		reef_fiber_join(fibers[i], NULL);
		WANT(comers[i].rc == 0 || comers[i].rc == -EDQUOT);
		in += comers[i].rc == 0;
	}
	WANT(in <= 4);
	for (i = 0; i < CROWD; i++)
		if (comers[i].rc == 0)
			reef_peer_close(comers[i].peer);
	return 0;
}

static int meet_limit_of_links(struct actor *actor)
{
	struct reef_peer *peers[8];
	int count = 0, rc;

	TRY(await_step(actor, USERS_ARE_THERE));
	TRY(become_user(actor, 1, 0));
	while ((rc = knock_until_answered(actor, &peers[count])) == 0)
		WANT(++count < 8);
	WANT(rc == -EDQUOT && count == 4);
	/* What goes makes room. */
	reef_peer_close(peers[0]);
	while ((rc = knock_until_answered(actor, &peers[0])) == -EDQUOT)
		TRY(reef_sleep(MILLISECOND));
	TRY(rc);
	while (count)
		reef_peer_close(peers[--count]);
	TRY(reef_sleep(6 *
		       SECOND)); /* those that were in doubt count no more */
	TRY(come_together(actor));
	TRY(become_user(actor, 2, 0));
	TRY(actor_connect(actor));
	actor->world->note[0] = SEEN;
	return 0;
}

static void users_links_are_limited_by_user(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct broker_world world = {0};

		broker_world_start(&world, seed);
		broker_world_add(&world, owner_who_limits);
		broker_world_add(&world, meet_limit_of_links);
		assert_int_equal(broker_world_finish(&world), 0);
	}
}

/* --- new credentials --- */

static int rotate(struct actor *owner, uint32_t user, uint64_t after_ns,
		  struct reef_credential *out)
{
	struct reef_body body = {
		.ask.user_rotate = {.user = user, .after_ns = after_ns},
	};
	struct reef_body answer;

	TRY(actor_ask(owner, REEF_POOL_USER_ROTATE, &body, &answer));
	out->user = answer.reply.user_add.user;
	out->era = answer.reply.user_add.era;
	memcpy(out->key.bytes, answer.reply.user_add.secret,
	       sizeof(out->key.bytes));
	return 0;
}

static int owner_who_rotates(struct actor *owner)
{
	struct actor *user = &owner->world->actors[1];
	struct reef_credential fresh;

	TRY(begin_as_owner(owner));
	owner->world->note[0] = USERS_ARE_THERE;
	TRY(await_step(owner, TAKEN));
	TRY(rotate(owner, 1, owner->world->note[1], &fresh));
	WANT(fresh.user == 1 && fresh.era == 1);
	WANT(!reef_key_equal(&fresh.key, &user->credential.key));
	if (owner->world->note[2])
		TRY(broker_world_restart(owner->world, true));
	owner->world->note[0] = SEEN;
	/* Their sessions end, and whoever has the new one comes. */
	TRY(actor_await(owner, user->session, REEF_SESSION_EXPIRED, 100 * TTL));
	owner->credential = fresh;
	owner->session = 0;
	return actor_join(owner);
}

static int user_whose_key_leaked(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct reef_peer *stranger;

	TRY(begin_as_user(actor));
	TRY(knock_until_answered(actor, &stranger));
	world->note[0] = TAKEN;
	while (world->note[0] < SEEN && !world->failed) {
		TRY(reef_sleep(MILLISECOND));
		(void)actor_renew(actor);
	}
	/* Nobody comes with it any more, by an old link or a new one. */
	WANT(knock_until_answered(actor, &actor->peer) == -REEF_EAUTH);
	if (!world->note[2])
		WANT(reef_rpc_call(stranger, REEF_POOL_STATUS, 0, NULL, NULL,
				   SECOND) == -REEF_EAUTH);
	return 0;
}

static void run_rotation(uint64_t after_ns, bool restart)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct broker_world world = {.note = {0, after_ns, restart}};

		/* No lease runs out. */
		world.options.ttl_ns = 3600 * SECOND;
		broker_world_start(&world, seed);
		broker_world_add(&world, owner_who_rotates);
		broker_world_add(&world, user_whose_key_leaked);
		assert_int_equal(broker_world_finish(&world), 0);
	}
}

static void users_old_credential_is_void(void **state)
{
	run_rotation(0, false);
}

static void users_start_ends_sessions_of_old_credentials(void **state)
{
	run_rotation(1000 * TTL, true);
}

static int owner_who_gives_time(struct actor *owner)
{
	struct actor *user = &owner->world->actors[1];
	struct reef_credential fresh;

	TRY(begin_as_owner(owner));
	owner->world->note[0] = USERS_ARE_THERE;
	TRY(await_step(owner, TAKEN));
	TRY(rotate(owner, 1, 1000 * TTL, &fresh));
	owner->world->note[0] = SEEN;
	TRY(await_step(owner, SEEN + 1));
	/* A second time takes some of it away. */
	TRY(rotate(owner, 1, 2 * TTL, &fresh));
	WANT(fresh.era == 2);
	TRY(actor_await(owner, user->session, REEF_SESSION_EXPIRED, 10 * TTL));
	owner->world->note[0] = SEEN + 2;
	return 0;
}

static int user_who_is_given_time(struct actor *actor)
{
	TRY(begin_as_user(actor));
	TRY(make_space(actor, "mine"));
	actor->world->note[0] = TAKEN;
	TRY(await_step(actor, SEEN));
	/* The session goes on meanwhile. */
	for (int i = 0; i < 32; i++) {
		TRY(reef_sleep(TTL / 8));
		(void)actor_renew(actor);
	}
	TRY(make_space(actor, "more"));
	actor->world->note[0] = SEEN + 1;
	while (actor->world->note[0] < SEEN + 2 && !actor->world->failed) {
		TRY(reef_sleep(TTL / 8));
		(void)actor_renew(actor);
	}
	return 0;
}

static void users_sessions_end_when_their_time_is_over(void **state)
{
	run_cast(owner_who_gives_time, user_who_is_given_time);
}

/* The owner's own key leaked. */
static int owner_whose_key_leaked(struct actor *owner)
{
	struct reef_credential before = owner->credential, fresh;
	uint32_t session;

	TRY(begin_as_owner(owner));
	session = owner->session;
	TRY(rotate(owner, 0, 0, &fresh));
	WANT(fresh.user == 0 && fresh.era == 1);
	/* It gives no orders any more. */
	WANT(set_setting(owner, "names_max", 5) == -REEF_EAUTH);
	owner->world->note[0] = USERS_ARE_THERE;
	WANT(actor_connect(owner) == -REEF_EAUTH);
	owner->credential = fresh;
	TRY(actor_join(owner));
	TRY(set_setting(owner, "names_max", 5));
	TRY(broker_world_restart(owner->world, true));
	owner->session = 0;
	TRY(actor_join(owner));
	TRY(actor_await(owner, session, REEF_SESSION_EXPIRED, 100 * TTL));
	owner->credential = before;
	WANT(actor_connect(owner) == -REEF_EAUTH);
	return 0;
}

static int do_nothing(struct actor *actor)
{
	return 0;
}

static void users_owner_gets_a_new_credential(void **state)
{
	run_cast(owner_whose_key_leaked, do_nothing);
}

/* --- removal by force --- */

static int owner_who_removes(struct actor *owner)
{
	struct actor *user = &owner->world->actors[1];
	struct reef_body body = {.ask.user_remove = {.user = 1}}, answer;
	uint32_t space;

	TRY(begin_as_owner(owner));
	owner->world->note[0] = USERS_ARE_THERE;
	TRY(await_step(owner, TAKEN));
	WANT(actor_ask(owner, REEF_POOL_USER_REMOVE, &body, NULL) == -EBUSY);
	body.ask.user_remove.flags = REEF_POOL_FORCE;
	body.ask.user_remove.user = 0;
	WANT(actor_ask(owner, REEF_POOL_USER_REMOVE, &body, NULL) == -ENOENT);
	body.ask.user_remove.user = 1;
	TRY(actor_ask(owner, REEF_POOL_USER_REMOVE, &body, &answer));
	WANT(answer.reply.user_remove.sessions == 0);
	WANT(answer.reply.user_remove.spaces == 1);
	WANT(actor_state(owner, user->session) >= REEF_SESSION_FENCED);
	/* What they had is the owner's, also after a restart. */
	TRY(broker_world_restart(owner->world, true));
	TRY(actor_return(owner));
	TRY(actor_space(owner, "mine", &space));
	TRY(bind_name(owner, space, 1));
	WANT(actor_ask(owner, REEF_POOL_USER_REMOVE, &body, NULL) == -ENOENT);
	owner->world->note[0] = SEEN;
	return 0;
}

static int user_who_is_removed(struct actor *actor)
{
	struct reef_peer *peer;

	TRY(begin_as_user(actor));
	TRY(make_space(actor, "mine"));
	actor->world->note[0] = TAKEN;
	while (actor->world->note[0] < SEEN && !actor->world->failed) {
		TRY(reef_sleep(MILLISECOND));
		(void)actor_renew(actor);
	}
	WANT(knock_until_answered(actor, &peer) == -REEF_EAUTH);
	return 0;
}

static void users_removed_by_force_leave_their_spaces(void **state)
{
	run_cast(owner_who_removes, user_who_is_removed);
}

/* --- who holds memory back (users.c, 5) --- */

#define LEASES 64
#define LOOKS 4 /* of a lease */

/* Lacks room all the time, and counts how often the epoch has moved. */
static int owner_who_lacks_room(struct actor *owner)
{
	uint64_t before = 0, pause_ns, begun;
	uint32_t moved = 0, i;

	TRY(begin_as_owner(owner));
	owner->hurries = owner->lacks = true;
	owner->world->note[0] = USERS_ARE_THERE;
	for (i = 0; i < LEASES * LOOKS; i++) {
		begun = reef_now_ns();
		while (reef_now_ns() - begun < TTL / LOOKS) {
			pause_ns = owner->header.hurry_ns;
			TRY(reef_sleep(pause_ns ? pause_ns : TTL / 16));
			TRY(actor_renew(owner));
			if (!owner->header.hurry_ns)
				TRY(reef_rpc_note(owner->peer, REEF_POOL_HURRY,
						  NULL));
		}
		moved += owner->header.safe_epoch > before + 2;
		before = owner->header.safe_epoch;
	}
	WANT(moved > LEASES * LOOKS * 2 / 3);
	owner->world->note[0] = SEEN;
	return 0;
}

/* Come back at once, whenever a session has ended. */
static int join_again(struct actor *actor)
{
	int rc;

	do {
		TRY(reef_sleep(MILLISECOND));
		actor_hang_up(actor);
		actor->session = 0;
		rc = actor_join(actor);
		WANT(rc == 0 || rc == -EBUSY);
	} while (rc && !actor->world->failed && actor->world->note[0] < SEEN);
	return 0;
}

/* Announces the epoch that it met until it is ended. Resumes: its counting is
 * not to begin anew by that. */
static int pin_until_ended(struct actor *actor)
{
	TRY(actor_look(actor, actor->session));
	actor->announces = true;
	actor->announce = (uint32_t)actor->header.reclaim_epoch;
	while (actor->world->note[0] < SEEN && !actor->world->failed) {
		TRY(reef_sleep(TTL / 8));
		if (actor_renew(actor) ||
		    actor_resume(actor) == -REEF_EFENCED ||
		    actor_state(actor, actor->session) != REEF_SESSION_ALIVE)
			break;
	}
	return 0;
}

static int user_who_pins(struct actor *actor)
{
	TRY(await_step(actor, USERS_ARE_THERE));
	TRY(become_user(actor, 1, 0));
	while (actor->world->note[0] < SEEN && !actor->world->failed) {
		TRY(join_again(actor));
		if (actor->session)
			TRY(pin_until_ended(actor));
	}
	return 0;
}

/* The same, but says nothing at all: its lease runs out. */
static int user_who_is_silent(struct actor *actor)
{
	TRY(await_step(actor, USERS_ARE_THERE));
	TRY(become_user(actor, 1, 0));
	while (actor->world->note[0] < SEEN && !actor->world->failed) {
		TRY(join_again(actor));
		TRY(reef_sleep(TTL));
	}
	return 0;
}

static void users_who_hold_memory_back_wait_longer_and_longer(void **state)
{
	run_cast(owner_who_lacks_room, user_who_pins);
	run_cast(owner_who_lacks_room, user_who_is_silent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(users_full_table_leaves_the_owner_in),
		cmocka_unit_test(users_full_table_leaves_the_janitor_in),
		cmocka_unit_test(users_many_names_leave_the_owner_some),
		cmocka_unit_test(users_do_not_own_the_names_of_doors),
		cmocka_unit_test(users_limit_binds_one_user),
		cmocka_unit_test(users_links_are_limited_by_user),
		cmocka_unit_test(users_old_credential_is_void),
		cmocka_unit_test(users_start_ends_sessions_of_old_credentials),
		cmocka_unit_test(users_sessions_end_when_their_time_is_over),
		cmocka_unit_test(users_owner_gets_a_new_credential),
		cmocka_unit_test(users_removed_by_force_leave_their_spaces),
		cmocka_unit_test(
			users_who_hold_memory_back_wait_longer_and_longer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
