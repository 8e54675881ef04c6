/* node_world.h - nodes, a broker that does what a test tells it, and clients;
 * in simulation, or for real within one process.
 *
 * A script runs in the broker's host, in a fiber. It asserts nothing: it
 * returns 0, or the line of what did not hold. */
#ifndef REEF_TESTS_NODE_WORLD_H
#define REEF_TESTS_NODE_WORLD_H

#include "fabric/sim/sim.h"
#include "pool/keys.h"
#include "pool/node/node.h"
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
#include <unistd.h>

#define MILLISECOND UINT64_C(1000000)
#define SECOND (1000 * MILLISECOND)
#define NODES_MAX 2
#define ROWS_TOLD_MAX 1024
#define EXTENT_SIZE 8192u
#define SESSION(slot) (((uint32_t)(slot) << 16) | 1u)

#define CHECK(condition)                                                       \
	do {                                                                   \
		if (!(condition))                                              \
			return __LINE__;                                       \
	} while (0)

struct world;

/* What the broker knows of a node. */
struct told {
	struct reef_peer *peer;
	uint64_t incarnation, capacity, domain;
	uint32_t registers, readies, pulses;
	char addresses[1024];
	struct reef_row rows[ROWS_TOLD_MAX];
	uint32_t rows_count;
	struct reef_body pulse;
};

struct stub {
	struct world *world;
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_rpc *rpc;
	uint64_t epoch, ttl_ns;
	char address[512];
	struct told nodes[NODES_MAX];
	uint64_t dead;	 /* this incarnation is taken for dead */
	bool all_dead;	 /* whoever registers is */
	uint32_t fenced; /* told by REGISTER */
	int when_ready;	 /* what that session met when it connected then */
	bool look_ready;
};

struct client {
	struct world *world;
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_queue *queue;
	struct reef_link *link;
	uint32_t door;
	struct reef_remote *remote;
	struct client *copy; /* in world->clients */
};

#define CLIENTS_MAX 8

struct machine {
	struct world *world;
	uint32_t index;
	struct reef_sim_host *host;
	struct reef_mesh *mesh;
	struct reef_node *node;
	struct reef_node_options options;
	bool stopped, stop;
	struct reef_fiber *fiber; /* for real */
};

struct world {
	bool real, remote; /* in this process; the nodes elsewhere */
	int (*script)(struct world *world);
	int result;
	bool over;
	struct reef_key key;
	struct reef_sim *sim;
	struct reef_sched *sched;
	struct stub stub;
	struct reef_sim_host *broker_host;
	struct machine machines[NODES_MAX];
	uint32_t machines_count;
	/* Somebody who holds an extent, on a host of his own. */
	struct reef_sim_host *holder_host;
	uint64_t holder_key;
	int holder_result; /* 1: not yet */
	uint64_t available;
	uint32_t lose_link_ppm;
	/* Copies of what scripts have open, for those that end early. */
	struct client clients[CLIENTS_MAX];
	char directory[64];
	uint64_t note[4]; /* the test's own */
};

static inline const char *world_kinds(const struct world *world)
{
	return world->real ? "shm tcp" : "sim";
}

static inline int world_mesh(struct world *world, struct reef_mesh **out)
{
	struct reef_mesh_options options = {.kinds = world_kinds(world)};

	return reef_mesh_open(&options, out);
}

/* --- the broker --- */

static inline struct told *told_of(struct stub *stub,
				   const struct reef_peer *peer)
{
	for (uint32_t i = 0; i < NODES_MAX; i++)
		if (stub->nodes[i].peer == peer)
			return &stub->nodes[i];
	return NULL;
}

static inline int stub_register(struct stub *stub,
				const struct reef_request *request,
				struct reef_body *answer,
				struct reef_cursor_out *room)
{
	const struct reef_body *body = &request->body;
	struct told *told = &stub->nodes[body->name.bytes[0] - 'a'];
	struct reef_row row = {
		.row = REEF_ROW_SESSION,
		.session = stub->fenced,
	};

	told->registers++;
	if (told->peer)
		reef_peer_unref(told->peer);
	told->peer = request->peer;
	reef_peer_ref(told->peer);
	told->incarnation = body->incarnation;
	told->capacity = body->size;
	told->domain = body->domain;
	told->rows_count = 0;
	memcpy(told->addresses, body->addresses.bytes, body->addresses.size);
	told->addresses[body->addresses.size] = '\0';
	if (stub->all_dead || body->incarnation == stub->dead)
		return -ESTALE;
	answer->node = body->name.bytes[0];
	answer->ttl_ns = stub->ttl_ns;
	answer->version = stub->epoch;
	if (stub->fenced) {
		reef_row_encode(&row, room);
		answer->rows = room->bytes;
		answer->rows_size = room->size;
	}
	return 0;
}

static inline int client_try(struct world *world, uint32_t session);

static inline int stub_handle(void *context, const struct reef_request *request,
			      struct reef_body *answer,
			      struct reef_cursor_out *room)
{
	const struct reef_body *body = &request->body;
	struct stub *stub = context;
	struct told *told = told_of(stub, request->peer);
	struct reef_cursor_in in = {body->rows, body->rows_size, false};

	if (request->header.kind == REEF_POOL_NODE_REGISTER)
		return stub_register(stub, request, answer, room);
	if (!told)
		return -ENOENT;
	switch (request->header.kind) {
	case REEF_POOL_NODE_EXTENTS:
		while (told->rows_count < ROWS_TOLD_MAX &&
		       reef_row_decode(&in, &told->rows[told->rows_count]) > 0)
			told->rows_count++;
		return 0;
	case REEF_POOL_NODE_READY:
		if (stub->look_ready)
			stub->when_ready =
				client_try(stub->world, stub->fenced);
		told->readies++;
		return 0;
	case REEF_POOL_NODE_PULSE:
		told->pulses++;
		told->pulse = *body;
		return stub->all_dead || body->incarnation == stub->dead
			       ? -ESTALE
			       : 0;
	default:
		return -ENOSYS;
	}
}

static inline int stub_credential(void *context, const char *identity,
				  uint32_t session, uint8_t key[REEF_KEY_SIZE])
{
	struct stub *stub = context;
	struct reef_key derived;

	if (strcmp(identity, "node") != 0 || session >> 16 < 0x8000)
		return -REEF_EAUTH;
	if (reef_key_derive_node(&stub->world->key, &derived))
		return -ENOMEM;
	memcpy(key, derived.bytes, REEF_KEY_SIZE);
	return 0;
}

static inline void world_address(const struct world *world, const char *name,
				 char *out, size_t size)
{
	if (world->real)
		snprintf(out, size, "shm:%s/%s tcp:127.0.0.1:0",
			 world->directory, name);
	else
		snprintf(out, size, "sim:%s/1", name);
}

static inline int stub_start(struct world *world, uint64_t epoch)
{
	struct stub *stub = &world->stub;
	struct reef_rpc_options options = {
		.handle = stub_handle,
		.credential = stub_credential,
		.context = stub,
		.epoch = epoch,
	};
	char where[512];
	int rc;

	stub->world = world;
	stub->epoch = epoch;
	if (stub->address[0])
		memcpy(where, stub->address, sizeof(where));
	else
		world_address(world, "broker", where, sizeof(where));
	rc = stub->mesh ? 0 : world_mesh(world, &stub->mesh);
	if (!rc)
		rc = reef_port_open(stub->mesh, NULL, &stub->port);
	if (!rc)
		rc = reef_rpc_create(stub->port, &options, &stub->rpc);
	if (!rc)
		rc = reef_rpc_listen(stub->rpc, where, stub->address,
				     sizeof(stub->address));
	return rc;
}

static inline void stub_stop(struct stub *stub)
{
	for (uint32_t i = 0; i < NODES_MAX; i++) {
		if (stub->nodes[i].peer)
			reef_peer_unref(stub->nodes[i].peer);
		stub->nodes[i].peer = NULL;
	}
	reef_rpc_destroy(stub->rpc);
	stub->rpc = NULL;
	reef_port_close(stub->port);
	stub->port = NULL;
}

/* Ask a node; keys may be NULL. */
static inline int ask_for(struct world *world, uint32_t node, uint16_t kind,
			  const struct reef_body *body, uint64_t *keys,
			  uint64_t timeout_ns)
{
	struct reef_peer *peer = world->stub.nodes[node].peer;
	struct reef_answer answer = {0};
	int rc;

	if (!peer)
		return -REEF_ENOLINK;
	rc = reef_rpc_call(peer, kind, 0, body, &answer, timeout_ns);
	if (!rc && keys)
		memcpy(keys, answer.body.keys, sizeof(answer.body.keys));
	reef_answer_free(&answer);
	return rc;
}

static inline int ask(struct world *world, uint32_t node, uint16_t kind,
		      const struct reef_body *body, uint64_t *keys)
{
	return ask_for(world, node, kind, body, keys, 10 * SECOND);
}

static inline int ask_create(struct world *world, uint32_t node,
			     uint32_t extent, uint64_t size, uint64_t *keys)
{
	struct reef_body body = {
		.extent = extent,
		.space = 1,
		.era = 1,
		.size = size,
	};

	return ask(world, node, REEF_POOL_EXTENT_CREATE, &body, keys);
}

static inline int ask_extent(struct world *world, uint32_t node, uint16_t kind,
			     uint32_t extent, uint64_t *keys)
{
	struct reef_body body = {.extent = extent, .era = 1};

	if (kind != REEF_POOL_EXTENT_REOPEN)
		body.era = 0;
	return ask(world, node, kind, &body, keys);
}

static inline int ask_pull(struct world *world, uint32_t to, uint32_t from,
			   uint32_t extent, uint64_t size, const uint64_t *keys,
			   uint64_t *out)
{
	const struct told *source = &world->stub.nodes[from];
	struct reef_body body = {
		.extent = extent,
		.space = 1,
		.era = 2,
		.size = size,
		.domain = source->domain,
		.addresses = {source->addresses,
			      (uint16_t)strlen(source->addresses)},
	};

	memcpy(body.keys, keys, sizeof(body.keys));
	return ask(world, to, REEF_POOL_EXTENT_PULL, &body, out);
}

static inline int ask_fence(struct world *world, uint32_t node,
			    uint32_t session)
{
	struct reef_body body = {.session = session};

	return ask(world, node, REEF_POOL_FENCE, &body, NULL);
}

/* --- clients --- */

static inline int client_prove(struct world *world, uint32_t node,
			       const char *identity, uint32_t session,
			       const struct reef_key *key, const char *only,
			       struct client *client)
{
	struct client *copy = world->clients;
	struct reef_connect_options options = {
		.session = session,
		.identity = identity,
	};
	char addresses[1024];
	int rc;

	while (copy->world)
		copy++;
	*client = (struct client){.world = world, .copy = copy};
	memcpy(options.key, key->bytes, sizeof(options.key));
	rc = world_mesh(world, &client->mesh);
	*copy = *client;
	if (rc)
		return rc;
	rc = reef_port_open(client->mesh, NULL, &client->port);
	*copy = *client;
	if (rc)
		return rc;
	snprintf(addresses, sizeof(addresses), "%s",
		 world->stub.nodes[node].addresses);
	if (only && strstr(addresses, only) &&
	    strstr(addresses, only) != addresses)
		memset(addresses, ' ',
		       (size_t)(strstr(addresses, only) - addresses));
	rc = reef_port_connect(client->port, addresses, 0, &options,
			       &client->link, &client->door);
	*copy = *client;
	if (rc)
		return rc;
	if (only && addresses[0] == ' ')
		client->door = 1;
	client->queue = reef_port_queue_of(client->port, client->link);
	return 0;
}

/* Over the best fabric, or over the one that the address begins with. */
static inline int client_open_over(struct world *world, uint32_t node,
				   uint32_t session, const char *only,
				   struct client *client)
{
	struct reef_key key;

	if (reef_key_derive_session(&world->key, session, &key))
		return -ENOMEM;
	return client_prove(world, node, "session", session, &key, only,
			    client);
}

static inline int client_open(struct world *world, uint32_t node,
			      uint32_t session, struct client *client)
{
	return client_open_over(world, node, session, NULL, client);
}

static inline int client_attach(struct client *client, const uint64_t *keys)
{
	return reef_attach(client->queue, client->link, keys[client->door],
			   &client->remote);
}

static inline void client_close(struct client *client)
{
	reef_link_close(client->link);
	reef_port_close(client->port);
	reef_mesh_close(client->mesh);
	if (client->copy)
		memset(client->copy, 0, sizeof(*client));
	memset(client, 0, sizeof(*client));
}

static inline int client_try(struct world *world, uint32_t session)
{
	struct client client;
	int rc = client_open(world, 0, session, &client);

	client_close(&client);
	return rc;
}

static inline int client_op(struct client *client, int kind, uint64_t offset,
			    void *bytes, uint32_t length)
{
	struct reef_op op = {
		.kind = (uint8_t)kind,
		.remote = client->remote,
		.offset = offset,
		.local = bytes,
		.length = length,
	};
	struct reef_batch batch = {
		.link = client->link,
		.ops = &op,
		.count = 1,
	};

	return reef_run(client->queue, &batch);
}

static inline int client_put(struct client *client, uint64_t offset,
			     uint64_t value)
{
	return client_op(client, REEF_WRITE, offset, &value, 8);
}

static inline int client_get(struct client *client, uint64_t offset,
			     uint64_t *value)
{
	return client_op(client, REEF_READ, offset, value, 8);
}

/* --- nodes --- */

static inline uint64_t world_available(void *context)
{
	return ((struct world *)context)->available;
}

static inline int machine_start(struct machine *machine)
{
	struct reef_node_options *options = &machine->options;
	struct world *world = machine->world;
	char where[512], name[2] = {(char)('a' + machine->index), '\0'};
	int rc;

	machine->mesh = NULL;
	machine->node = NULL;
	rc = world_mesh(world, &machine->mesh);
	if (rc)
		return rc;
	world_address(world, name, where, sizeof(where));
	options->mesh = machine->mesh;
	options->key = &world->key;
	options->broker =
		world->stub.address[0] ? world->stub.address : "sim:broker/1";
	options->listen = where;
	options->name = name;
	options->simulated = !world->real;
	options->available = world_available;
	options->context = world;
	return reef_node_start(options, &machine->node);
}

static inline int machine_serve(void *arg)
{
	struct machine *machine = arg;
	struct world *world = machine->world;
	int rc = machine_start(machine);

	while (!rc && !world->over && !machine->stop)
		rc = reef_sleep(MILLISECOND);
	reef_node_stop(machine->node);
	machine->node = NULL;
	reef_mesh_close(machine->mesh);
	machine->mesh = NULL;
	machine->stopped = true;
	return rc;
}

static inline int machine_main(struct reef_sim_host *host, void *arg)
{
	return machine_serve(arg);
}

static inline struct reef_node_status status_of(struct world *world,
						uint32_t node)
{
	struct reef_node_status status = {0};

	if (world->machines[node].node)
		reef_node_status(world->machines[node].node, &status);
	return status;
}

/* Wait until something holds, at most a minute. */
#define AWAIT(condition)                                                       \
	do {                                                                   \
		for (int tries_ = 0; !(condition); tries_++) {                 \
			CHECK(tries_ < 60000);                                 \
			CHECK(!reef_sleep(MILLISECOND));                       \
		}                                                              \
	} while (0)

/* --- somebody who holds an extent of node a --- */

#define HOLDER SESSION(77)

static inline int holder_main(struct reef_sim_host *host, void *arg)
{
	struct world *world = arg;
	struct client client = {0};
	uint64_t keys[REEF_DOORS_MAX] = {0};
	int rc = 0;

	while (!rc && !world->holder_key && !world->over)
		rc = reef_sleep(MILLISECOND);
	if (!rc && world->holder_key) {
		keys[0] = world->holder_key;
		rc = client_open(world, 0, HOLDER, &client);
		memset(client.copy, 0, sizeof(client)); /* not the script's */
		client.copy = NULL;
		if (!rc)
			rc = client_attach(&client, keys);
		world->holder_result = rc;
	}
	while (!rc && !world->over)
		rc = reef_sleep(MILLISECOND);
	client_close(&client);
	return 0;
}

/* Let it attach, then stand still: it will not let go. */
static inline int hold_on(struct world *world, uint64_t key)
{
	world->holder_key = key;
	while (world->holder_result == 1)
		if (reef_sleep(MILLISECOND))
			return -REEF_EHOSTDEAD;
	reef_sim_host_pause(world->holder_host);
	return world->holder_result;
}

/* --- running a script --- */

static inline int world_script(struct world *world)
{
	uint32_t i;
	int rc = stub_start(world, 5);

	CHECK(!rc);
	for (i = 0; world->real && !world->remote && i < world->machines_count;
	     i++)
		CHECK(!reef_fiber_spawn(world->sched, machine_serve,
					&world->machines[i],
					&world->machines[i].fiber));
	for (i = 0; i < world->machines_count; i++)
		AWAIT(world->stub.nodes[i].readies == 1);
	return world->script(world);
}

static inline int world_main(void *arg)
{
	struct world *world = arg;

	world->result = world_script(world);
	if (world->holder_host)
		reef_sim_host_resume(world->holder_host);
	world->over = true;
	for (uint32_t i = 0; i < world->machines_count; i++)
		if (world->machines[i].fiber)
			reef_fiber_join(world->machines[i].fiber, NULL);
	for (uint32_t i = 0; i < CLIENTS_MAX; i++)
		if (world->clients[i].world)
			client_close(&world->clients[i]);
	stub_stop(&world->stub);
	reef_mesh_close(world->stub.mesh);
	return 0;
}

static inline int world_host_main(struct reef_sim_host *host, void *arg)
{
	return world_main(arg);
}

static inline void world_init(struct world *world, uint32_t nodes,
			      int (*script)(struct world *world))
{
	memset(world, 0, sizeof(*world));
	memset(&world->key, 9, sizeof(world->key));
	world->script = script;
	world->result = -1;
	world->holder_result = 1;
	world->available = UINT64_MAX;
	world->machines_count = nodes;
	world->stub.ttl_ns = SECOND;
	for (uint32_t i = 0; i < nodes; i++)
		world->machines[i] = (struct machine){
			.world = world,
			.index = i,
			.options =
				{
					.capacity = 1 << 20,
					.seed = 100 + i,
				},
		};
}

static inline int world_run_sim(struct world *world, uint64_t seed)
{
	struct reef_sim_options options = {
		.seed = seed,
		.lose_link_ppm = world->lose_link_ppm,
	};
	static const char *const names[NODES_MAX] = {"a", "b"};

	assert_int_equal(reef_sim_create(&options, &world->sim), 0);
	assert_int_equal(reef_sim_host_add(world->sim, "broker",
					   world_host_main, world,
					   &world->broker_host),
			 0);
	for (uint32_t i = 0; i < world->machines_count; i++)
		assert_int_equal(reef_sim_host_add(world->sim, names[i],
						   machine_main,
						   &world->machines[i],
						   &world->machines[i].host),
				 0);
	assert_int_equal(reef_sim_host_add(world->sim, "holder", holder_main,
					   world, &world->holder_host),
			 0);
	assert_int_equal(reef_sim_run(world->sim, 10000 * SECOND), 0);
	reef_sim_destroy(world->sim);
	if (world->result && !world->machines[0].options.mutant)
		print_message("seed %u: line %d\n", (unsigned)seed,
			      world->result);
	return world->result;
}

static inline void world_clean(struct world *world)
{
	char path[128];

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", world->directory,
			 (const char *[]){"broker", "a", "b"}[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(world->directory), 0);
}

static inline int world_run_real(struct world *world)
{
	int rc;

	world->real = true;
	snprintf(world->directory, sizeof(world->directory),
		 "/tmp/reef-node-XXXXXX");
	assert_non_null(mkdtemp(world->directory));
	assert_int_equal(reef_sched_create(NULL, &world->sched), 0);
	assert_int_equal(
		reef_fiber_spawn(world->sched, world_main, world, NULL), 0);
	rc = reef_sched_run(world->sched);
	assert_int_equal(rc, 0);
	reef_sched_destroy(world->sched);
	world_clean(world);
	return world->result;
}

/* --- for tests --- */

#define SEEDS 20

static inline int run_with(int (*script)(struct world *world), uint32_t nodes,
			   enum reef_node_mutant mutant)
{
	struct world *world = malloc(sizeof(*world));
	int rc = 0;

	assert_non_null(world);
	for (uint64_t seed = 1; !rc && seed <= SEEDS; seed++) {
		world_init(world, nodes, script);
		world->machines[0].options.mutant = mutant;
		rc = world_run_sim(world, seed);
	}
	free(world);
	return rc;
}

static inline void run(int (*script)(struct world *world), uint32_t nodes)
{
	assert_int_equal(run_with(script, nodes, REEF_NODE_MUTANT_NONE), 0);
}

static inline void run_real(int (*script)(struct world *world), uint32_t nodes)
{
	struct world *world = malloc(sizeof(*world));

	assert_non_null(world);
	world_init(world, nodes, script);
	assert_int_equal(world_run_real(world), 0);
	free(world);
}

/* Ask until it is done, in a fiber. */
struct request {
	struct world *world;
	uint16_t kind;
	uint32_t extent;
	int result;
	uint64_t keys[REEF_DOORS_MAX];
};

static inline int request_fiber(void *arg)
{
	struct request *request = arg;

	do
		request->result = ask_extent(request->world, 0, request->kind,
					     request->extent, request->keys);
	while (request->result == -ETIMEDOUT);
	return 0;
}

#endif
