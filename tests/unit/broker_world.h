/* broker_world.h - a simulated broker, and others who speak to it in raw calls:
 * clients and nodes without any library of theirs.
 *
 * Nothing is asserted inside a fiber: a script returns an error, with WANT
 * -EXDEV and a line on what was not so, and the test looks at it when the run
 * is over. */
#ifndef REEF_TESTS_BROKER_WORLD_H
#define REEF_TESTS_BROKER_WORLD_H

#include "base/store.h"
#include "fabric/sim/sim.h"
#include "pool/broker/broker.h"
#include "pool/broker/state/state.h"
#include "pool/keys.h"
#include "pool/rpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
#define MILLISECOND 1000000ull
#define TTL (200 * MILLISECOND)
#define ACTORS_MAX 6
#define BROKER "sim:broker/1"

#define TRY(call)                                                              \
	do {                                                                   \
		int try_rc = (call);                                           \
		if (try_rc)                                                    \
			return try_rc;                                         \
	} while (0)

/* -EXDEV: not what was wanted. */
#define WANT(condition)                                                        \
	do {                                                                   \
		if (!(condition)) {                                            \
			if (!world_quiet)                                      \
				print_message("%s:%d: %s\n", __FILE__,         \
					      __LINE__, #condition);           \
			return -EXDEV;                                         \
		}                                                              \
	} while (0)

static bool world_quiet; /* a mutant is about: it is to be found */

struct world;

/* A client or a node. */
struct actor {
	struct world *world;
	uint32_t number; /* from 1 */
	struct reef_sim_host *host;
	int (*script)(struct actor *actor);
	bool background; /* the world does not wait for it */
	int result;	 /* of the script; 1: it has not ended */
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_peer *peer;
	uint32_t links; /* it has made */
	/* who it is; a node if `node` */
	bool node;
	struct reef_credential credential;
	/* its session */
	uint32_t session, sequence, counter, announce;
	bool announces; /* `announce`, not what it read */
	bool hurries;	/* says that it waits for memory */
	struct reef_body opened;
	struct reef_remote *renewal, *table;
	struct reef_table_header header; /* as it was read last */
	struct reef_table_slot slot;
	/* what it is asked */
	uint32_t recovers, recover_session, recover_space;
	int recover_rc;
	uint64_t delay_ns; /* before it answers */
	uint32_t fences;
	uint64_t incarnation;
	uint64_t note[4];
};

struct world {
	struct reef_sim *sim;
	struct reef_key key;
	struct reef_broker_options options;
	struct reef_sim_host *host;
	struct reef_broker *broker; /* NULL: not serving */
	uint32_t starts;
	int start_rc;
	bool over;
	int failed; /* the first script that did; then the others end, too */
	struct actor actors[ACTORS_MAX];
	uint32_t count;
	uint64_t note[4];
};

/* --- the broker's host --- */

static inline int world_mesh(struct reef_mesh **mesh)
{
	struct reef_mesh_options options = {.kinds = "sim"};

	return reef_mesh_open(&options, mesh);
}

static inline int broker_main(struct reef_sim_host *host, void *arg)
{
	struct world *world = arg;
	struct reef_broker_options options = world->options;
	struct reef_broker *broker = NULL;
	int rc;

	options.store = reef_sim_host_store(host);
	options.key = &world->key;
	options.listen = BROKER;
	options.sync_inline = true;
	options.seed = 1 + reef_random_below(reef_sim_host_random(host), 9999);
	rc = world_mesh(&options.mesh);
	if (rc)
		return rc;
	rc = reef_broker_start(&options, &broker);
	world->start_rc = rc;
	if (rc == 0) {
		world->broker = broker;
		world->starts++;
	}
	while (rc == 0 && !world->over)
		rc = reef_sleep(MILLISECOND);
	if (world->broker == broker)
		world->broker = NULL;
	reef_broker_stop(broker);
	reef_mesh_close(options.mesh);
	return rc;
}

/* As by SIGKILL, or with the power; and at once a new one. */
static inline int broker_again(struct world *world, bool power)
{
	if (power)
		reef_sim_host_power_off(world->host);
	else
		reef_sim_host_kill(world->host);
	world->broker = NULL;
	return reef_sim_host_restart(world->host, broker_main, world);
}

/* --- the others --- */

static inline int actor_handle(void *context,
			       const struct reef_request *request,
			       struct reef_body *answer,
			       struct reef_cursor_out *room)
{
	struct actor *actor = context;

	if (actor->delay_ns)
		TRY(reef_sleep(actor->delay_ns));
	if (request->header.kind == REEF_POOL_FENCE) {
		actor->fences++;
		return 0;
	}
	if (request->header.kind != REEF_POOL_RECOVER)
		return -ENOSYS;
	actor->recovers++;
	actor->recover_session = request->body.session;
	actor->recover_space = request->body.space;
	return actor->recover_rc;
}

static inline int actor_open(struct actor *actor)
{
	struct reef_rpc_options options = {
		.handle = actor_handle,
		.context = actor,
	};

	TRY(world_mesh(&actor->mesh));
	TRY(reef_port_open(actor->mesh, NULL, &actor->port));
	return reef_rpc_create(actor->port, &options, &actor->rpc);
}

static inline void actor_close(struct actor *actor)
{
	reef_rpc_destroy(actor->rpc);
	reef_port_close(actor->port);
	reef_mesh_close(actor->mesh);
	actor->rpc = NULL;
	actor->port = NULL;
	actor->mesh = NULL;
	actor->peer = NULL;
}

static inline int actor_main(struct reef_sim_host *host, void *arg)
{
	struct actor *actor = arg;
	struct world *world = actor->world;
	bool over = true;
	uint32_t i;
	int rc;

	rc = actor_open(actor);
	if (rc == 0)
		rc = actor->script(actor);
	actor->result = rc;
	if (!actor->background && !world->failed)
		world->failed = rc;
	world->over |= world->failed != 0;
	actor_close(actor);
	for (i = 0; i < world->count; i++)
		over &= world->actors[i].background ||
			world->actors[i].result != 1;
	world->over |= over;
	return rc;
}

static inline int identity_of(struct actor *actor, char *identity, size_t size,
			      struct reef_key *key)
{
	if (actor->node) {
		snprintf(identity, size, "node");
		return reef_key_derive_node(&actor->world->key, key);
	}
	snprintf(identity, size, "user:%u:%u", actor->credential.user,
		 actor->credential.era);
	*key = actor->credential.key;
	return 0;
}

static inline void actor_hang_up(struct actor *actor)
{
	reef_peer_close(actor->peer);
	actor->peer = NULL;
	actor->renewal = actor->table = NULL;
}

/* Until the broker is there. */
static inline int actor_connect(struct actor *actor)
{
	struct reef_connect_options options = {.timeout_ns = TTL};
	char identity[REEF_IDENTITY_MAX + 1];
	struct reef_key key;
	int rc;

	TRY(identity_of(actor, identity, sizeof(identity), &key));
	options.identity = identity;
	memcpy(options.key, key.bytes, sizeof(key.bytes));
	actor_hang_up(actor);
	do {
		options.session = (0x8000u + actor->number) << 16 |
				  (++actor->links & 0xffff);
		rc = reef_rpc_connect(actor->rpc, BROKER, 0, &options,
				      &actor->peer, NULL);
		if (rc == 0 || rc == -REEF_EAUTH || rc == -REEF_EHOSTDEAD)
			return rc;
		rc = reef_sleep(MILLISECOND);
	} while (rc == 0 && !actor->world->over);
	return rc ? rc : -ECANCELED;
}

static inline int actor_call(struct actor *actor, uint16_t kind,
			     uint32_t sequence, const struct reef_body *body,
			     struct reef_body *answer)
{
	struct reef_answer got = {0};
	int rc;

	if (!actor->peer)
		return -REEF_ENOLINK;
	rc = reef_rpc_call(actor->peer, kind, sequence, body, &got, TTL / 4);
	if (rc == 0 && answer) {
		*answer = got.body;
		answer->rows = NULL; /* they go with the message */
	}
	if (rc == 0)
		reef_answer_free(&got);
	return rc;
}

static inline struct reef_queue *actor_queue(const struct actor *actor)
{
	return reef_port_queue(actor->port, 0);
}

static inline int actor_attach(struct actor *actor)
{
	TRY(reef_attach(actor_queue(actor), actor->peer->link,
			actor->opened.value, &actor->renewal));
	return reef_attach(actor_queue(actor), actor->peer->link,
			   actor->opened.version, &actor->table);
}

static inline int actor_session(struct actor *actor)
{
	struct reef_body body = {.name = {"actor", 5}, .pid = actor->number};

	TRY(actor_call(actor, REEF_POOL_SESSION_OPEN, 0, &body,
		       &actor->opened));
	actor->session = actor->opened.session;
	actor->sequence = actor->counter = 0;
	return actor_attach(actor);
}

static inline int actor_resume(struct actor *actor)
{
	struct reef_body body = {.session = actor->session};

	memcpy(body.secret, actor->opened.secret, sizeof(body.secret));
	TRY(actor_call(actor, REEF_POOL_SESSION_RESUME, 0, &body,
		       &actor->opened));
	return actor_attach(actor);
}

/* The broker went away: it may have been done or not. */
static inline bool is_gone(int rc)
{
	return rc == -REEF_ENOLINK || rc == -REEF_EINDOUBT ||
	       rc == -ETIMEDOUT || rc == -ECANCELED;
}

static inline int actor_join(struct actor *actor)
{
	int rc;

	do {
		TRY(actor_connect(actor));
		rc = actor_session(actor);
	} while (is_gone(rc) && !actor->world->failed);
	return rc;
}

/* READ the header, and the slot of a session. */
static inline int actor_look(struct actor *actor, uint32_t session)
{
	struct reef_op ops[2] = {
		{
			.kind = REEF_READ,
			.remote = actor->table,
			.local = &actor->header,
			.length = sizeof(actor->header),
		},
		{
			.kind = REEF_READ,
			.remote = actor->table,
			.offset = reef_table_offset(session),
			.local = &actor->slot,
			.length = sizeof(actor->slot),
		},
	};
	struct reef_batch batch = {.ops = ops, .count = 2};

	if (!actor->peer || !actor->peer->link || !actor->table)
		return -REEF_ENOLINK;
	batch.link = actor->peer->link;
	return reef_run(actor_queue(actor), &batch);
}

/* What the table says of a session; -REEF_ENOLINK and such. */
static inline int actor_state(struct actor *actor, uint32_t session)
{
	int rc = actor_look(actor, session);

	if (rc)
		return rc;
	if ((uint16_t)actor->slot.state != (uint16_t)session)
		return 0;
	return (uint8_t)(actor->slot.state >> 16);
}

static inline int actor_renew(struct actor *actor)
{
	uint64_t word = reef_renewal_word(
		++actor->counter,
		actor->announces ? actor->announce
				 : (uint32_t)actor->header.reclaim_epoch);
	struct reef_op op = {
		.kind = REEF_WRITE,
		.remote = actor->renewal,
		.local = &word,
		.length = sizeof(word),
	};
	struct reef_batch batch = {.ops = &op, .count = 1};

	if (actor->hurries)
		word |= REEF_RENEWAL_HURRY;
	if (!actor->peer || !actor->peer->link || !actor->renewal)
		return -REEF_ENOLINK;
	batch.link = actor->peer->link;
	TRY(reef_run(actor_queue(actor), &batch));
	return actor_look(actor, actor->session);
}

/* Connect and take the session up again, until it works. */
static inline int actor_return(struct actor *actor)
{
	int rc;

	do {
		rc = actor_connect(actor);
		if (rc)
			return rc;
		rc = actor_resume(actor);
	} while (is_gone(rc) && !actor->world->failed);
	return rc				       ? rc
	       : actor_renew(actor) == -REEF_EHOSTDEAD ? -REEF_EHOSTDEAD
						       : 0;
}

/* Let time pass, and renew, as a keeper would. */
static inline int actor_stay(struct actor *actor, uint64_t duration_ns)
{
	uint64_t begun = reef_now_ns();
	int rc;

	while (reef_now_ns() - begun < duration_ns) {
		if (actor->world->failed)
			return -ECANCELED;
		TRY(reef_sleep(TTL / 4));
		rc = actor_renew(actor);
		if (rc == -REEF_EHOSTDEAD)
			return rc;
		if (rc)
			TRY(actor_return(actor));
	}
	return 0;
}

/* Ask until there is an answer, with the same number. */
static inline int actor_ask(struct actor *actor, uint16_t kind,
			    const struct reef_body *body,
			    struct reef_body *answer)
{
	uint32_t sequence = ++actor->sequence;
	int rc;

	for (;;) {
		rc = actor_call(actor, kind, sequence, body, answer);
		if (!is_gone(rc) || actor->world->failed)
			return rc;
		TRY(actor_return(actor));
	}
}

static inline struct reef_text text_of(const char *text)
{
	return (struct reef_text){text, (uint16_t)strlen(text)};
}

static inline int actor_space(struct actor *actor, const char *name,
			      uint32_t *space)
{
	struct reef_body body = {
		.name = text_of(name),
		.flags = REEF_POOL_CREATE,
		.kind = REEF_SPACE_SHARED,
		.keeping = REEF_KEEPING_KEPT,
	};
	struct reef_body answer;

	TRY(actor_ask(actor, REEF_POOL_SPACE_OPEN, &body, &answer));
	*space = answer.space;
	return 0;
}

/* Wait until the table says that of a session, and renew meanwhile. */
static inline int actor_await(struct actor *actor, uint32_t session, int state,
			      uint64_t timeout_ns)
{
	uint64_t begun = reef_now_ns(), renewed = begun;
	int rc;

	for (;;) {
		rc = actor_state(actor, session);
		if (rc >= state)
			return 0;
		if (rc == -REEF_EHOSTDEAD)
			return rc;
		if (rc < 0)
			TRY(actor_return(actor));
		if (reef_now_ns() - begun > timeout_ns)
			return -ETIMEDOUT;
		TRY(reef_sleep(MILLISECOND));
		if (reef_now_ns() - renewed < TTL / 4)
			continue;
		renewed = reef_now_ns();
		if (actor_renew(actor) == -REEF_EHOSTDEAD)
			return -REEF_EHOSTDEAD;
	}
}

/* A node that lends nothing: registers, and has a pulse until all is over. */
static inline int node_register(struct actor *actor)
{
	char name[16];
	struct reef_body body = {
		.incarnation = actor->incarnation,
		.size = 1 << 20,
		.addresses = text_of("sim:nowhere/1"),
	};

	snprintf(name, sizeof(name), "node%u", actor->number);
	body.name = text_of(name);
	TRY(actor_connect(actor));
	TRY(actor_call(actor, REEF_POOL_NODE_REGISTER, 0, &body, NULL));
	return actor_call(actor, REEF_POOL_NODE_READY, 0, NULL, NULL);
}

static inline int node_script(struct actor *actor)
{
	struct reef_body body = {0};
	int rc = 0;

	actor->incarnation =
		1 + reef_random_below(reef_sim_host_random(actor->host), 1e9);
	body.incarnation = actor->incarnation;
	while (!actor->world->over && rc != -REEF_EHOSTDEAD) {
		rc = actor_call(actor, REEF_POOL_NODE_PULSE, 0, &body, NULL);
		if (rc && rc != -REEF_EHOSTDEAD)
			rc = node_register(actor);
		if (rc != -REEF_EHOSTDEAD)
			rc = reef_sleep(TTL / 4);
	}
	return rc;
}

/* --- the whole --- */

static inline void world_start(struct world *world, uint64_t seed)
{
	struct reef_sim_options options = {.seed = seed};

	memset(world->key.bytes, 5, sizeof(world->key.bytes));
	if (!world->options.ttl_ns)
		world->options.ttl_ns = TTL;
	if (!world->options.node_ttl_ns)
		world->options.node_ttl_ns = TTL;
	assert_int_equal(reef_sim_create(&options, &world->sim), 0);
	assert_int_equal(reef_sim_host_add(world->sim, "broker", broker_main,
					   world, &world->host),
			 0);
}

static inline struct actor *world_add(struct world *world,
				      int (*script)(struct actor *actor))
{
	struct actor *actor = &world->actors[world->count++];
	char name[16];

	*actor = (struct actor){
		.world = world,
		.number = world->count,
		.script = script,
		.result = 1,
	};
	assert_int_equal(
		reef_key_derive_user(&world->key, 0, 0, &actor->credential.key),
		0);
	if (script == node_script)
		actor->node = actor->background = true;
	snprintf(name, sizeof(name), "actor%u", actor->number);
	assert_int_equal(reef_sim_host_add(world->sim, name, actor_main, actor,
					   &actor->host),
			 0);
	return actor;
}

/* Run it to its end. What the first script that failed returned. */
static inline int world_finish(struct world *world)
{
	int rc = reef_sim_run(world->sim, 1000 * SECOND);

	reef_sim_destroy(world->sim);
	return world->failed ? world->failed : rc;
}

#endif
