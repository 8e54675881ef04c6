/* test_broker.c - sessions, users, settings and names of a broker: one
 * situation each, in simulation, over several seeds. test_lease.c has how
 * sessions end, test_broker_crash.c what restarts and mutants do. */
#include "fixture/broker_world.h"

#include "fixture/seeds.h"
#include "pool/broker/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 5

static void run_one(int (*script)(struct actor *actor))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct broker_world world = {0};

		broker_world_start(&world, seed);
		broker_world_add(&world, script);
		assert_int_equal(broker_world_finish(&world), 0);
	}
}

static void run_two(int (*first)(struct actor *actor),
		    int (*second)(struct actor *actor))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct broker_world world = {0};

		broker_world_start(&world, seed);
		broker_world_add(&world, first);
		broker_world_add(&world, second);
		assert_int_equal(broker_world_finish(&world), 0);
	}
}

/* --- sessions --- */

static int open_and_close(struct actor *actor)
{
	uint32_t first;

	TRY(actor_connect(actor));
	WANT(actor_call(actor, REEF_POOL_NAME_LOOKUP, 0, NULL, NULL) ==
	     -REEF_EFENCED);
	TRY(actor_session(actor));
	first = actor->session;
	WANT(first != 0 && actor->opened.ttl_ns == TTL);
	WANT(actor->opened.pool == reef_broker_pool(actor->world->broker));
	WANT(actor->opened.pool_epoch == 1 &&
	     actor->opened.extent_size == 64 << 20);
	WANT(actor_state(actor, first) == REEF_SESSION_ALIVE);
	WANT(actor->header.magic == REEF_TABLE_MAGIC);
	WANT(actor->header.broker_epoch == 1 && actor->header.pool_epoch == 1);
	WANT(actor->slot.notice >> 32 <= 1);
	WANT(actor_session(actor) == -EBUSY);
	TRY(actor_call(actor, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL));
	WANT(actor_call(actor, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL) ==
	     -REEF_EFENCED);
	while (actor_state(actor, first) == REEF_SESSION_ALIVE ||
	       actor_state(actor, first) == REEF_SESSION_EXPIRED)
		TRY(reef_sleep(MILLISECOND));
	/* The link is as good as ever. */
	TRY(actor_session(actor));
	WANT(actor->session != first);
	return 0;
}

static void broker_session_opens_and_closes(void **state)
{
	run_one(open_and_close);
}

static int resume(struct actor *actor)
{
	struct reef_body body = {0};
	struct reef_ask_session_resume *ask = &body.ask.session_resume;
	struct reef_peer *old;
	uint32_t before;
	uint64_t key;

	TRY(actor_join(actor));
	before = actor->session;
	key = actor->opened.renewal_key;
	/* Not with another's proof, nor as one that there is not. */
	ask->session = before;
	WANT(actor_call(actor, REEF_POOL_SESSION_RESUME, 0, &body, NULL) ==
	     -REEF_EAUTH);
	memcpy(ask->secret, actor->opened.secret, sizeof(ask->secret));
	ask->session = before + 1;
	WANT(actor_call(actor, REEF_POOL_SESSION_RESUME, 0, &body, NULL) ==
	     -REEF_EAUTH);
	/* A link is lost, and another made. */
	reef_sim_lose_link(actor->peer->link);
	while (actor->peer->link)
		TRY(reef_sleep(MILLISECOND));
	TRY(actor_return(actor));
	WANT(actor->session == before && actor->opened.session == before);
	WANT(actor->opened.renewal_key == key);
	/* Another, while the one before is up: that one speaks for nobody. */
	old = actor->peer;
	actor->peer = NULL;
	TRY(actor_return(actor));
	WANT(reef_rpc_call(old, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL,
			   SECOND) == -REEF_EFENCED);
	TRY(actor_call(actor, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL));
	memcpy(ask->secret, actor->opened.secret, sizeof(ask->secret));
	ask->session = before;
	WANT(actor_call(actor, REEF_POOL_SESSION_RESUME, 0, &body, NULL) ==
	     -REEF_EFENCED);
	return 0;
}

static void broker_session_resumes_with_its_key_only(void **state)
{
	run_one(resume);
}

/* --- users and settings --- */

static int add_user(struct actor *actor, const char *name, uint32_t sequence,
		    struct reef_body *answer)
{
	struct reef_body body = {.ask.user_add.name = actor_text_of(name)};

	return actor_call(actor, REEF_POOL_USER_ADD, sequence, &body, answer);
}

static int users(struct actor *actor)
{
	struct reef_body first = {0}, again = {0}, setting = {0}, remove = {0};

	TRY(actor_join(actor));
	WANT(add_user(actor, "ada", 0, NULL) == -EINVAL);
	TRY(add_user(actor, "ada", 1, &first));
	WANT(first.reply.user_add.user == 1 && first.reply.user_add.era == 0);
	/* A repetition, however it is worded; then a new one. */
	TRY(add_user(actor, "ada", 1, &again));
	WANT(again.reply.user_add.user == 1 && again.reply.user_add.era == 0);
	WANT(again.rows_size == first.rows_size);
	WANT(memcmp(first.reply.user_add.secret, again.reply.user_add.secret,
		    REEF_SECRET_SIZE) == 0);
	WANT(add_user(actor, "ada", 2, NULL) == -EEXIST);
	TRY(add_user(actor, "bob", 2, &again));
	WANT(again.reply.user_add.user == 2);
	WANT(memcmp(first.reply.user_add.secret, again.reply.user_add.secret,
		    32) != 0);
	WANT(add_user(actor, "eve", 1, NULL) == -ESTALE);
	WANT(actor_call(actor, REEF_POOL_SETTING, 2, &setting, NULL) ==
	     -ENOENT);
	setting.ask.setting.name = actor_text_of("names_max");
	WANT(actor_call(actor, REEF_POOL_SETTING, 2, &setting, NULL) ==
	     -EINVAL);
	/* The new user comes, may not what its owner may, and stays while it
	 * has a session. */
	actor->world->note[0] = 1;
	while (actor->world->note[0] == 1)
		TRY(actor_stay(actor, MILLISECOND));
	remove.ask.user_remove.user = 1;
	WANT(actor_call(actor, REEF_POOL_USER_REMOVE, 3, &remove, NULL) ==
	     -EBUSY);
	remove.ask.user_remove.user = 0;
	WANT(actor_call(actor, REEF_POOL_USER_REMOVE, 3, &remove, NULL) ==
	     -ENOENT);
	remove.ask.user_remove.user = 2;
	TRY(actor_call(actor, REEF_POOL_USER_REMOVE, 3, &remove, NULL));
	TRY(actor_call(actor, REEF_POOL_USER_REMOVE, 3, &remove, NULL));
	actor->world->note[0] = 3;
	return 0;
}

static int user(struct actor *actor)
{
	struct reef_body user = {.ask.user_add.name = actor_text_of("x")};
	struct reef_body setting = {.ask.setting.name = actor_text_of("x")};
	struct reef_body end = {.ask.session_end.session = 0x10001};
	struct reef_body resume = {0};
	struct reef_key key;

	while (actor->world->note[0] == 0)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_key_derive_user(&actor->world->key, 1, 0, &key));
	actor->credential = (struct reef_credential){.user = 1, .key = key};
	TRY(actor_join(actor));
	WANT(actor_call(actor, REEF_POOL_USER_ADD, 1, &user, NULL) == -EPERM);
	WANT(actor_call(actor, REEF_POOL_SETTING, 1, &setting, NULL) == -EPERM);
	WANT(actor_call(actor, REEF_POOL_SESSION_END, 0, &end, NULL) == -EPERM);
	WANT(actor_call(actor, REEF_POOL_NODE_PULSE, 0, NULL, NULL) == -EPERM);
	WANT(actor_call(actor, REEF_POOL_FENCE, 0, NULL, NULL) == -ENOSYS);
	/* Another user's session, even with its proof. */
	resume.ask.session_resume.session = actor->world->actors[0].session;
	memcpy(resume.ask.session_resume.secret,
	       actor->world->actors[0].opened.secret, 32);
	WANT(actor_call(actor, REEF_POOL_SESSION_RESUME, 0, &resume, NULL) ==
	     -REEF_EAUTH);
	actor->world->note[0] = 2;
	while (actor->world->note[0] == 2)
		TRY(actor_stay(actor, MILLISECOND));
	return 0;
}

static void broker_users_come_and_go(void **state)
{
	run_two(users, user);
}

static int settings(struct actor *actor)
{
	struct reef_body body = {
		.ask.setting = {.name = actor_text_of("names_max"), .value = 5},
	};
	struct reef_body answer;

	TRY(actor_join(actor));
	TRY(actor_call(actor, REEF_POOL_SETTING, 1, &body, &answer));
	WANT(answer.reply.setting.value == 5);
	body.ask.setting.value = 6; /* a repetition changes nothing */
	TRY(actor_call(actor, REEF_POOL_SETTING, 1, &body, &answer));
	WANT(answer.reply.setting.value == 5);
	body.ask.setting.flags = REEF_POOL_SETTING_READ;
	TRY(actor_call(actor, REEF_POOL_SETTING, 0, &body, &answer));
	WANT(answer.reply.setting.value == 5);
	body.ask.setting.name = actor_text_of("no_such");
	WANT(actor_call(actor, REEF_POOL_SETTING, 0, &body, &answer) ==
	     -ENOENT);
	return 0;
}

static void broker_settings_are_kept(void **state)
{
	run_one(settings);
}

static int node_asks(struct actor *actor)
{
	actor->node = true;
	TRY(actor_connect(actor));
	WANT(actor_call(actor, REEF_POOL_SESSION_OPEN, 0, NULL, NULL) ==
	     -EPERM);
	WANT(actor_call(actor, REEF_POOL_NAME_LOOKUP, 0, NULL, NULL) == -EPERM);
	WANT(actor_call(actor, REEF_POOL_USER_ADD, 1, NULL, NULL) == -EPERM);
	return 0;
}

static void broker_node_asks_only_what_nodes_may(void **state)
{
	run_one(node_asks);
}

/* --- names --- */

static int name_call(struct actor *actor, uint16_t kind, uint32_t sequence,
		     const char *name, uint64_t value, uint64_t generation,
		     struct reef_body *answer)
{
	struct reef_body body = actor_name_body(kind, (uint32_t)actor->note[0],
						name, value, generation);

	return actor_call(actor, kind, sequence, &body, answer);
}

static int names(struct actor *actor)
{
	struct reef_body answer, again;
	uint32_t space, at;
	uint64_t first;

	TRY(actor_join(actor));
	TRY(actor_space(actor, "s", &space));
	actor->note[0] = space;
	at = actor->sequence;
	TRY(name_call(actor, REEF_POOL_NAME_BIND, ++at, "n", 5, 0, &answer));
	first = answer.reply.name_bind.generation;
	TRY(name_call(actor, REEF_POOL_NAME_BIND, at, "n", 5, 0, &again));
	WANT(again.reply.name_bind.generation == first);
	/* A number that settled something else. */
	WANT(name_call(actor, REEF_POOL_NAME_UNBIND, at, "n", 0, 0, NULL) ==
	     -EINVAL);
	WANT(name_call(actor, REEF_POOL_NAME_BIND, at + 1, "n", 6, 0, NULL) ==
	     -EEXIST);
	TRY(name_call(actor, REEF_POOL_NAME_LOOKUP, 0, "n", 0, 0, &answer));
	WANT(answer.reply.name_lookup.value == 5 &&
	     answer.reply.name_lookup.generation == first);
	WANT(name_call(actor, REEF_POOL_NAME_REPLACE, at + 1, "n", 7, first + 1,
		       NULL) == -ESTALE);
	TRY(name_call(actor, REEF_POOL_NAME_REPLACE, ++at, "n", 7, first,
		      &answer));
	WANT(answer.reply.name_bind.generation > first);
	TRY(name_call(actor, REEF_POOL_NAME_REPLACE, at, "n", 7, first,
		      &again));
	WANT(again.reply.name_bind.generation ==
	     answer.reply.name_bind.generation);
	WANT(name_call(actor, REEF_POOL_NAME_UNBIND, at + 1, "n", 0, first,
		       NULL) == -ESTALE);
	TRY(name_call(actor, REEF_POOL_NAME_UNBIND, ++at, "n", 0, 0, NULL));
	TRY(name_call(actor, REEF_POOL_NAME_UNBIND, at, "n", 0, 0, NULL));
	WANT(name_call(actor, REEF_POOL_NAME_LOOKUP, 0, "n", 0, 0, NULL) ==
	     -ENOENT);
	WANT(name_call(actor, REEF_POOL_NAME_BIND, at + 1, "", 1, 0, NULL) ==
	     -EINVAL);
	WANT(name_call(actor, REEF_POOL_NAME_BIND, at + 1, "a\nb", 1, 0,
		       NULL) == -EINVAL);
	actor->note[0] = space + 1; /* there is none */
	WANT(name_call(actor, REEF_POOL_NAME_BIND, at + 1, "n", 1, 0, NULL) ==
	     -EACCES);
	WANT(name_call(actor, REEF_POOL_NAME_LOOKUP, 0, "n", 0, 0, NULL) ==
	     -EACCES);
	return 0;
}

static void broker_names_change_as_asked_and_once(void **state)
{
	run_one(names);
}

static int long_names(struct actor *actor)
{
	char *name = malloc(60001);
	uint32_t space, at;
	int rc;

	WANT(name);
	memset(name, 'x', 60000);
	name[60000] = 0;
	rc = actor_join(actor);
	if (rc == 0)
		rc = actor_space(actor, "s", &space);
	if (rc) {
		free(name);
		return rc;
	}
	actor->note[0] = space;
	at = actor->sequence + 1;
	rc = name_call(actor, REEF_POOL_NAME_BIND, at, name, 1, 0, NULL);
	if (rc == -ENAMETOOLONG) {
		name[256] = 0;
		rc = name_call(actor, REEF_POOL_NAME_BIND, at, name, 1, 0,
			       NULL);
	}
	if (rc == -ENAMETOOLONG) {
		name[255] = 0;
		rc = name_call(actor, REEF_POOL_NAME_BIND, at, name, 1, 0,
			       NULL);
	}
	free(name);
	return rc;
}

static void broker_name_over_the_limit_is_refused(void **state)
{
	run_one(long_names);
}

/* All names with a prefix, page by page. */
static int list(struct actor *actor, const char *prefix, uint32_t *count,
		uint32_t *pages)
{
	struct reef_body body = {
		.ask.name_list = {.space = (uint32_t)actor->note[0],
				  .prefix = actor_text_of(prefix)},
	};
	struct reef_answer answer;
	struct reef_cursor_in in;
	struct reef_row row = {0};
	char after[32] = "";
	bool more;

	*count = *pages = 0;
	do {
		body.ask.name_list.after = actor_text_of(after);
		TRY(reef_rpc_call(actor->peer, REEF_POOL_NAME_LIST, 0, &body,
				  &answer, SECOND));
		more = answer.body.reply.name_list.flags & REEF_POOL_MORE;
		++*pages;
		in = (struct reef_cursor_in){answer.body.rows,
					     answer.body.rows_size, false};
		while (reef_row_decode(&in, &row) == 1) {
			++*count;
			snprintf(after, sizeof(after), "%.*s",
				 row.name.name.size, row.name.name.bytes);
		}
		reef_answer_free(&answer);
	} while (more);
	return 0;
}

static int many_names(struct actor *actor)
{
	uint32_t space, count, pages, i;
	char name[32];

	TRY(actor_join(actor));
	TRY(actor_space(actor, "s", &space));
	actor->note[0] = space;
	for (i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "%c/%08u", 'a' + i % 3, i);
		TRY(name_call(actor, REEF_POOL_NAME_BIND, ++actor->sequence,
			      name, i, 0, NULL));
		if (i % 16 == 0)
			TRY(actor_renew(actor));
	}
	TRY(list(actor, "", &count, &pages));
	WANT(count == 2000 && pages > 1);
	TRY(list(actor, "b/", &count, &pages));
	WANT(count == 667);
	TRY(list(actor, "d", &count, &pages));
	WANT(count == 0 && pages == 1);
	return 0;
}

static void broker_names_are_listed_in_pages(void **state)
{
	struct broker_world world = {0};

	broker_world_start(&world, 1);
	broker_world_add(&world, many_names);
	assert_int_equal(broker_world_finish(&world), 0);
}

/* Another user: nothing, then what its token allows. */
static int guest(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct reef_body open = {
		.ask.space_open = {.name = actor_text_of("s"),
				   .flags = REEF_POOL_CREATE},
	};
	struct reef_ask_space_open *ask = &open.ask.space_open;
	struct reef_key key;

	while (world->note[0] == 0)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_key_derive_user(&world->key, 1, 0, &key));
	actor->credential = (struct reef_credential){.user = 1, .key = key};
	TRY(actor_join(actor));
	actor->note[0] = world->note[0];
	WANT(name_call(actor, REEF_POOL_NAME_LOOKUP, 0, "n", 0, 0, NULL) ==
	     -EACCES);
	WANT(actor_call(actor, REEF_POOL_SPACE_OPEN, 1, &open, NULL) ==
	     -EACCES);
	ask->space = (uint32_t)world->note[0];
	ask->rights = REEF_RIGHT_READ;
	TRY(reef_key_derive_space(&world->key, ask->space, ask->rights, 0,
				  &key));
	memcpy(ask->secret, key.bytes, 32);
	ask->rights = REEF_RIGHT_ALL; /* more than it was made for */
	WANT(actor_call(actor, REEF_POOL_SPACE_OPEN, 1, &open, NULL) ==
	     -EACCES);
	ask->rights = REEF_RIGHT_READ;
	TRY(actor_call(actor, REEF_POOL_SPACE_OPEN, 1, &open, NULL));
	TRY(name_call(actor, REEF_POOL_NAME_LOOKUP, 0, "n", 0, 0, NULL));
	WANT(name_call(actor, REEF_POOL_NAME_BIND, 2, "m", 0, 0, NULL) ==
	     -EACCES);
	WANT(name_call(actor, REEF_POOL_NAME_UNBIND, 2, "n", 0, 0, NULL) ==
	     -EACCES);
	world->note[1] = 1;
	return 0;
}

static int host(struct actor *actor)
{
	struct reef_body user = {.ask.user_add.name = actor_text_of("guest")};
	uint32_t space;

	TRY(actor_join(actor));
	TRY(actor_space(actor, "s", &space));
	TRY(actor_ask(actor, REEF_POOL_USER_ADD, &user, NULL));
	actor->note[0] = space;
	TRY(name_call(actor, REEF_POOL_NAME_BIND, ++actor->sequence, "n", 1, 0,
		      NULL));
	actor->world->note[0] = space;
	while (actor->world->note[1] == 0)
		TRY(actor_stay(actor, MILLISECOND));
	return 0;
}

static void broker_names_are_for_who_may(void **state)
{
	run_two(host, guest);
}

/* --- one journal, one broker --- */

static int second_broker(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct reef_broker_options options = world->options;
	struct reef_broker *broker;
	int rc;

	TRY(actor_join(actor));
	options.store = reef_sim_host_disk(world->host);
	options.key = &world->key;
	options.listen = "sim:actor1/9";
	options.sync_inline = true;
	options.seed = 3;
	TRY(sim_mesh(0, &options.mesh));
	rc = reef_broker_start(&options, &broker);
	reef_mesh_close(options.mesh);
	WANT(rc == -EBUSY);
	WANT(reef_broker_health(world->broker) == 0);
	return add_user(actor, "x", 1, NULL);
}

static void broker_journal_in_use_is_busy(void **state)
{
	run_one(second_broker);
}

/* Whatever fails of a start, it fails whole, and the next one is fine. */
static int failed_starts(struct actor *actor)
{
	struct reef_store *disk = reef_sim_host_disk(actor->host);
	struct reef_broker_options options = actor->world->options;
	struct reef_broker *broker;
	uint64_t epoch = 0;
	uint32_t n;
	int rc;

	options.store = reef_sim_host_store(actor->host);
	options.key = &actor->world->key;
	options.sync_inline = true;
	options.seed = 3;
	TRY(sim_mesh(0, &options.mesh));
	options.listen = "tcp:127.0.0.1:0"; /* a fabric that it has not */
	rc = reef_broker_start(&options, &broker);
	options.listen = "sim:actor1/9";
	for (n = 1; rc && n < 100; n++) {
		reef_store_fail_after(disk, n);
		rc = reef_broker_start(&options, &broker);
		reef_store_fail_after(disk, 0);
		if (rc && rc != -EIO)
			break;
		if (rc)
			continue;
		epoch = reef_broker_epoch(broker);
		reef_broker_stop(broker);
	}
	if (rc == 0) {
		rc = reef_broker_start(&options, &broker);
		if (rc == 0 && reef_broker_epoch(broker) <= epoch)
			rc = -EXDEV;
		reef_broker_stop(rc == 0 ? broker : NULL);
	}
	reef_mesh_close(options.mesh);
	return rc;
}

static void broker_start_fails_whole(void **state)
{
	run_one(failed_starts);
}

static int broken_disk(struct actor *actor)
{
	struct broker_world *world = actor->world;
	struct reef_body body = {
		.ask.setting = {.name = actor_text_of("names_max"),
				.flags = REEF_POOL_SETTING_READ},
	};
	int rc;

	TRY(actor_join(actor));
	reef_store_fail_after(reef_sim_host_disk(world->host),
			      1 + (uint32_t)actor->note[0]);
	rc = add_user(actor, "x", 1, NULL);
	if (rc == 0)
		rc = add_user(actor, "y", 2, NULL);
	WANT(rc == -REEF_EINDOUBT);
	WANT(reef_broker_health(world->broker) == -EIO);
	WANT(add_user(actor, "x", 1, NULL) == -REEF_EINDOUBT);
	WANT(add_user(actor, "z", 3, NULL) == -REEF_EINDOUBT);
	WANT(actor_call(actor, REEF_POOL_SETTING, 0, &body, NULL) ==
	     -REEF_EINDOUBT);
	WANT(reef_broker_wait(world->broker, SECOND) == -EIO);
	/* Another start finds a disk that works. */
	reef_store_fail_after(reef_sim_host_disk(world->host), 0);
	TRY(broker_world_restart(world, true));
	actor->sequence = 9;
	TRY(actor_return(actor));
	return actor_ask(
		actor, REEF_POOL_USER_ADD,
		&(struct reef_body){.ask.user_add.name = actor_text_of("z")},
		NULL);
}

static void broker_broken_journal_leaves_everyone_in_doubt(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct broker_world world = {0};

		broker_world_start(&world, seed);
		broker_world_add(&world, broken_disk)->note[0] = seed % 2;
		assert_int_equal(broker_world_finish(&world), 0);
	}
}

/* --- nodes that are gone before they are in --- */

static int register_main(void *arg)
{
	struct actor *actor = arg;
	struct reef_body body = {
		.ask.node_register =
			{
				.incarnation = actor->incarnation,
				.capacity = 1 << 20,
				.addresses = actor_text_of("sim:nowhere/1"),
			},
	};

	reef_rpc_call(actor->peer, REEF_POOL_NODE_REGISTER, 0, &body, NULL,
		      SECOND);
	return 0;
}

/* Each time a new life, so that each is journaled, which takes time. */
static int leaves_early(struct actor *actor)
{
	struct reef_random *random = reef_sim_host_random(actor->host);
	struct reef_fiber *fiber;

	for (int i = 0; i < 40; i++) {
		actor->incarnation = 1 + (uint64_t)i;
		TRY(actor_connect(actor));
		TRY(reef_fiber_spawn(reef_fiber_sched(), register_main, actor,
				     &fiber));
		TRY(reef_sleep(reef_random_below(random, MILLISECOND)));
		actor_hang_up(actor);
		TRY(reef_fiber_join(fiber, NULL));
	}
	return reef_broker_health(actor->world->broker);
}

static void
broker_node_that_leaves_while_it_registers_harms_nobody(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct broker_world world = {0};

		broker_world_start(&world, seed);
		broker_world_add(&world, leaves_early)->node = true;
		assert_int_equal(broker_world_finish(&world), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broker_session_opens_and_closes),
		cmocka_unit_test(broker_session_resumes_with_its_key_only),
		cmocka_unit_test(broker_users_come_and_go),
		cmocka_unit_test(broker_settings_are_kept),
		cmocka_unit_test(broker_node_asks_only_what_nodes_may),
		cmocka_unit_test(
			broker_node_that_leaves_while_it_registers_harms_nobody),
		cmocka_unit_test(broker_names_change_as_asked_and_once),
		cmocka_unit_test(broker_name_over_the_limit_is_refused),
		cmocka_unit_test(broker_names_are_listed_in_pages),
		cmocka_unit_test(broker_names_are_for_who_may),
		cmocka_unit_test(broker_journal_in_use_is_busy),
		cmocka_unit_test(
			broker_broken_journal_leaves_everyone_in_doubt),
		cmocka_unit_test(broker_start_fails_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
