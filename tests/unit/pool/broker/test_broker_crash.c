/* test_broker_crash.c - a broker that is killed at any moment, with its power,
 * and starts again: what was answered is there, what was asked once is done
 * once, and what was published stays true. */
#include "base/mutant.h"
#include "fixture/broker_world.h"
#include "fixture/seeds.h"

#include <errno.h>
#include <stdio.h>

#define OPS 60

/* --- a client that keeps account --- */

struct account {
	struct {
		uint64_t value, generation; /* generation 0: not bound */
	} names[8];
	uint64_t last_generation;
	uint32_t users, space;
};

static struct reef_body named(struct account *account, uint16_t kind,
			      uint32_t i, uint64_t value, char *text)
{
	snprintf(text, 16, "name%u", i);
	return actor_name_body(kind, account->space, text, value,
			       account->names[i].generation);
}

static int take_generation(struct account *account, uint32_t i, uint64_t value,
			   uint64_t generation)
{
	/* None is given twice, and each is later than the one before. */
	WANT(generation > account->last_generation);
	account->last_generation = generation;
	account->names[i].generation = generation;
	account->names[i].value = value;
	return 0;
}

static int change_name(struct actor *actor, struct account *account, uint32_t i,
		       uint64_t value)
{
	uint16_t kind = account->names[i].generation == 0 ? REEF_POOL_NAME_BIND
			: value % 3 ? REEF_POOL_NAME_REPLACE
				    : REEF_POOL_NAME_UNBIND;
	struct reef_body body, answer;
	char text[16];
	int rc;

	body = named(account, kind, i, value, text);
	rc = actor_ask(actor, kind, &body, &answer);
	if (kind == REEF_POOL_NAME_BIND)
		WANT(rc != -EEXIST);
	else
		WANT(rc != -ESTALE && rc != -ENOENT);
	TRY(rc);
	if (kind == REEF_POOL_NAME_UNBIND) {
		account->names[i].generation = 0;
		return 0;
	}
	return take_generation(account, i, value,
			       answer.reply.name_bind.generation);
}

static int check_name(struct actor *actor, struct account *account, uint32_t i)
{
	struct reef_body body, answer;
	char text[16];
	int rc;

	body = named(account, REEF_POOL_NAME_LOOKUP, i, 0, text);
	rc = actor_ask(actor, REEF_POOL_NAME_LOOKUP, &body, &answer);
	actor->sequence--; /* not a mutation */
	if (account->names[i].generation == 0) {
		WANT(rc == -ENOENT);
		return 0;
	}
	WANT(rc != -ENOENT);
	TRY(rc);
	WANT(answer.reply.name_lookup.value == account->names[i].value);
	WANT(answer.reply.name_lookup.generation ==
	     account->names[i].generation);
	return 0;
}

static int add_user(struct actor *actor, struct account *account)
{
	struct reef_body body, answer;
	char name[16];
	int rc;

	snprintf(name, sizeof(name), "user%u", account->users);
	body = (struct reef_body){.ask.user_add.name = actor_text_of(name)};
	rc = actor_ask(actor, REEF_POOL_USER_ADD, &body, &answer);
	WANT(rc != -EEXIST);
	TRY(rc);
	WANT(answer.reply.user_add.user == ++account->users);
	return 0;
}

static int keeps_account(struct actor *actor)
{
	struct reef_random *random = reef_sim_host_random(actor->host);
	struct account account = {0};
	uint64_t i;

	TRY(actor_join(actor));
	TRY(actor_space(actor, "space", &account.space));
	for (i = 1; i <= OPS; i++) {
		uint32_t which = (uint32_t)reef_random_below(random, 8);

		if (actor_renew(actor) == -REEF_EHOSTDEAD)
			return -REEF_EHOSTDEAD;
		if (reef_random_chance(random, 1, 10))
			TRY(add_user(actor, &account));
		TRY(change_name(actor, &account, which, i));
		TRY(check_name(actor, &account,
			       (uint32_t)reef_random_below(random, 8)));
	}
	for (i = 0; i < 8; i++)
		TRY(check_name(actor, &account, (uint32_t)i));
	return 0;
}

/* --- and one who kills the broker --- */

static int kills(struct actor *actor)
{
	struct reef_random *random = reef_sim_host_random(actor->host);
	struct broker_world *world = actor->world;

	while (!world->over) {
		TRY(reef_sleep(
			reef_random_between(random, 100000, 20 * MILLISECOND)));
		if (world->over)
			return 0;
		TRY(broker_world_restart(world,
					 reef_random_chance(random, 3, 4)));
	}
	return 0;
}

static int run_killed(uint64_t seed)
{
	struct broker_world world = {0};
	int rc;

	if (seed % 2)
		world.options.snapshot_bytes = 1000;
	broker_world_start(&world, seed);
	broker_world_add(&world, keeps_account);
	broker_world_add(&world, kills)->background = true;
	rc = broker_world_finish(&world);
	return rc;
}

static void find(int (*one)(uint64_t seed), enum reef_mutant mutant,
		 uint64_t seeds)
{
	bool found = false;
	uint64_t seed;

	try_quiet = true;
	reef_mutate(mutant);
	for (seed = seeds_first(); seeds_has(seed, seeds) && !found; seed++)
		found = one(seed) == -EXDEV;
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	assert_true(found);
}

static void hold_to(int (*one)(uint64_t seed), uint64_t seeds)
{
	uint64_t seed;
	int rc;

	for (seed = seeds_first(); seeds_has(seed, seeds); seed++) {
		rc = one(seed);
		if (rc)
			print_error("seed %lu: %s\n", (unsigned long)seed,
				    reef_error_text(rc));
		assert_int_equal(rc, 0);
	}
}

static void crash_keeps_what_was_answered_once(void **state)
{
	hold_to(run_killed, seeds_of(40, 300));
	find(run_killed, REEF_MUTANT_BROKER_EARLY_ANSWER, 100);
	find(run_killed, REEF_MUTANT_BROKER_FORGET_REQUEST, 100);
}

/* --- one crash, at every moment of a short life --- */

static int few_requests(struct actor *actor)
{
	struct account account = {0};

	TRY(actor_join(actor));
	TRY(actor_space(actor, "space", &account.space));
	TRY(change_name(actor, &account, 0, 1));
	TRY(change_name(actor, &account, 0, 2));
	TRY(add_user(actor, &account));
	TRY(change_name(actor, &account, 0, 3));
	TRY(change_name(actor, &account, 1, 4));
	TRY(actor_call(actor, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL) ==
			    -REEF_EHOSTDEAD
		    ? -REEF_EHOSTDEAD
		    : 0);
	TRY(actor_join(actor));
	TRY(check_name(actor, &account, 0));
	return check_name(actor, &account, 1);
}

static int kills_once(struct actor *actor)
{
	TRY(reef_sleep(actor->note[0]));
	return actor->world->over ? 0
				  : broker_world_restart(actor->world, true);
}

static int run_crash_at(uint64_t step)
{
	struct broker_world world = {0};

	if (step % 2)
		world.options.snapshot_bytes = 300;
	broker_world_start(&world, 1 + step % 7);
	broker_world_add(&world, few_requests);
	/* It lives for about 17 ms; a sync takes up to one, a write 20 us. */
	broker_world_add(&world, kills_once)->note[0] =
		(step * 35000 + step * 7919 % 35000) % (18 * MILLISECOND);
	world.actors[1].background = true;
	return broker_world_finish(&world);
}

static void crash_at_any_moment_loses_nothing(void **state)
{
	hold_to(run_crash_at, seeds_of(500, 3000));
}

/* --- what another sees --- */

static int binds(struct actor *actor)
{
	struct reef_body body = {.ask.name_bind.name = actor_text_of("seen")};
	uint32_t space;

	TRY(actor_join(actor));
	TRY(actor_space(actor, "space", &space));
	actor->world->note[0] = space;
	body.ask.name_bind.space = space;
	/* While the other one looks. */
	TRY(reef_sleep(5 * MILLISECOND));
	return actor_ask(actor, REEF_POOL_NAME_BIND, &body, NULL);
}

/* What it is told of, or that it is told of, is still there after a crash. */
static int sees(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint16_t kind =
		actor->note[0] ? REEF_POOL_NAME_LOOKUP : REEF_POOL_NAME_REPLACE;
	struct reef_body body, lookup;
	int rc;

	TRY(actor_join(actor));
	while (world->note[0] == 0)
		TRY(reef_sleep(100000));
	body = actor_name_body(kind, (uint32_t)world->note[0], "seen", 0, 0);
	lookup = actor_name_body(REEF_POOL_NAME_LOOKUP,
				 (uint32_t)world->note[0], "seen", 0, 0);
	do {
		/* A refusal tells, too. */
		rc = actor_call(actor, kind, actor->note[0] ? 0 : 1, &body,
				NULL);
	} while (rc == -ENOENT);
	WANT(rc == 0 || rc == -ESTALE);
	TRY(broker_world_restart(world, true));
	/* The one who binds must not do so again first. */
	reef_sim_host_pause(world->actors[0].host);
	actor_hang_up(actor);
	TRY(actor_return(actor));
	rc = actor_call(actor, REEF_POOL_NAME_LOOKUP, 0, &lookup, NULL);
	reef_sim_host_resume(world->actors[0].host);
	WANT(rc != -ENOENT);
	return rc;
}

static int run_seen(uint64_t seed)
{
	struct broker_world world = {0};

	broker_world_start(&world, seed);
	broker_world_add(&world, binds);
	broker_world_add(&world, sees)->note[0] = seed % 2;
	return broker_world_finish(&world);
}

static void crash_does_not_take_back_what_others_were_told(void **state)
{
	hold_to(run_seen, 40);
	find(run_seen, REEF_MUTANT_BROKER_EARLY_ANSWER, 40);
}

/* --- the table --- */

static int dies(struct actor *actor)
{
	struct broker_world *world = actor->world;

	TRY(actor_join(actor));
	TRY(actor_stay(actor, TTL));
	world->note[0] = actor->session;
	reef_sim_host_kill(actor->host);
	return 0;
}

/* What it sees in the table is still so after a crash. */
static int sees_fenced(struct actor *actor)
{
	struct broker_world *world = actor->world;
	uint64_t renewed = reef_now_ns();
	uint32_t id;
	int rc;

	TRY(actor_join(actor));
	while (world->note[0] == 0)
		TRY(actor_stay(actor, MILLISECOND));
	id = (uint32_t)world->note[0];
	while ((rc = actor_state(actor, id)) < REEF_SESSION_FENCED) {
		TRY(rc < 0 ? rc : 0);
		if (reef_now_ns() - renewed > TTL / 4) {
			renewed = reef_now_ns();
			TRY(actor_renew(actor));
		}
	}
	TRY(broker_world_restart(world, true));
	actor_hang_up(actor);
	TRY(actor_return(actor));
	WANT(actor_state(actor, id) >= REEF_SESSION_FENCED);
	return 0;
}

static int run_published(uint64_t seed)
{
	struct broker_world world = {0};

	broker_world_start(&world, seed);
	broker_world_add(&world, dies);
	broker_world_add(&world, sees_fenced);
	/* So that FENCED does not come by again at once. */
	broker_world_add(&world, actor_node_script)->delay_ns = TTL / 3;
	return broker_world_finish(&world);
}

static void crash_does_not_take_back_what_was_published(void **state)
{
	hold_to(run_published, 20);
	find(run_published, REEF_MUTANT_BROKER_EARLY_PUBLISH, 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crash_keeps_what_was_answered_once),
		cmocka_unit_test(crash_at_any_moment_loses_nothing),
		cmocka_unit_test(
			crash_does_not_take_back_what_others_were_told),
		cmocka_unit_test(crash_does_not_take_back_what_was_published),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
