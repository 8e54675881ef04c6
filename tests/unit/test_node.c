/* test_node.c - a node: what it lends, to whom, and for how long.
 *
 * Most run in simulation, some of them also for real; those that a mutant is
 * to break are run with it, too. */
#include "node_world.h"

#include "pool/node/internal.h"
#include "scratch.h"

#include <pthread.h>

#define SEEDS 20

static int run_with(int (*script)(struct world *world), uint32_t nodes,
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

static void run(int (*script)(struct world *world), uint32_t nodes)
{
	assert_int_equal(run_with(script, nodes, REEF_NODE_MUTANT_NONE), 0);
}

static void run_real(int (*script)(struct world *world), uint32_t nodes)
{
	struct world *world = malloc(sizeof(*world));

	assert_non_null(world);
	world_init(world, nodes, script);
	assert_int_equal(world_run_real(world), 0);
	free(world);
}

/* --- starting, registering --- */

static int script_bad_options(struct world *world)
{
	struct reef_node_options good = world->machines[0].options, bad;
	struct reef_node *node;

	bad = good;
	bad.name = "";
	bad.listen = "sim:broker/2";
	CHECK(reef_node_start(&bad, &node) == -EINVAL);
	bad.name = "x";
	bad.capacity = 4095;
	CHECK(reef_node_start(&bad, &node) == -EINVAL);
	bad.capacity = 4096;
	bad.pressure_low = 2;
	bad.pressure_high = 1;
	CHECK(reef_node_start(&bad, &node) == -EINVAL);
	bad.pressure_low = 0;
	bad.mesh = world->stub.mesh;
	bad.listen = "sim:nobody/1";
	CHECK(reef_node_start(&bad, &node) < 0);
	return 0;
}

static void node_bad_options_refused(void **state)
{
	run(script_bad_options, 1);
}

static int script_registers(struct world *world)
{
	const struct told *told = &world->stub.nodes[0];
	struct reef_node_status status;
	uint32_t pulses;
	uint64_t start_ns;

	AWAIT(status_of(world, 0).link == 0);
	status = status_of(world, 0);
	CHECK(status.id == 'a');
	CHECK(status.broker_epoch == 5);
	CHECK(status.incarnation == told->incarnation && told->incarnation);
	CHECK(told->capacity == status.capacity);
	CHECK(told->rows_count == 0);
	CHECK(!strcmp(told->addresses, "sim:a/1"));
	/* Four pulses in a ttl, and no second registration. */
	AWAIT(told->pulses > 0);
	pulses = told->pulses;
	start_ns = reef_now_ns();
	AWAIT(told->pulses == pulses + 8);
	CHECK(reef_now_ns() - start_ns > 19 * SECOND / 10);
	CHECK(reef_now_ns() - start_ns < 22 * SECOND / 10);
	CHECK(told->registers == 1);
	CHECK(told->pulse.incarnation == told->incarnation);
	return 0;
}

static void node_register_then_pulses(void **state)
{
	run(script_registers, 1);
}

/* The broker is away when the node starts, and goes away again. */
static int script_link_lost(struct world *world)
{
	const struct told *told = &world->stub.nodes[0];
	uint64_t keys[REEF_DOORS_MAX], incarnation = told->incarnation;

	CHECK(!ask_create(world, 0, 3, EXTENT_SIZE, keys));
	CHECK(!ask_create(world, 0, 9, EXTENT_SIZE, NULL));
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 9, NULL));
	stub_stop(&world->stub);
	AWAIT(status_of(world, 0).link != 0);
	CHECK(!reef_sleep(3 * SECOND));
	CHECK(!stub_start(world, 6));
	AWAIT(told->readies == 2);
	CHECK(told->incarnation == incarnation);
	CHECK(told->rows_count == 2);
	CHECK(told->rows[0].extent == 3 && told->rows[0].state == 1);
	CHECK(told->rows[0].space == 1 && told->rows[0].era == 1);
	CHECK(told->rows[0].size == EXTENT_SIZE);
	CHECK(!memcmp(told->rows[0].keys, keys, sizeof(keys)));
	CHECK(told->rows[1].extent == 9 && told->rows[1].state == 2);
	CHECK(status_of(world, 0).broker_epoch == 6);
	/* And when only the connection is lost. */
	reef_sim_lose_link(told->peer->link);
	AWAIT(told->readies == 3);
	CHECK(told->incarnation == incarnation && told->rows_count == 2);
	return 0;
}

static void node_link_lost_registers_again(void **state)
{
	run(script_link_lost, 1);
}

static int script_many_extents(struct world *world)
{
	const struct told *told = &world->stub.nodes[0];

	for (uint32_t i = 300; i > 0; i--)
		CHECK(!ask_create(world, 0, i, 4096, NULL));
	reef_sim_lose_link(told->peer->link);
	AWAIT(told->readies == 2);
	CHECK(told->rows_count == 300);
	for (uint32_t i = 0; i < 300; i++)
		CHECK(told->rows[i].extent == i + 1);
	return 0;
}

static void node_many_extents_all_told(void **state)
{
	struct world *world = malloc(sizeof(*world));

	assert_non_null(world);
	world_init(world, 1, script_many_extents);
	world->machines[0].options.capacity = 300 * 4096;
	assert_int_equal(world_run_sim(world, 1), 0);
	free(world);
}

/* --- who may come in --- */

static int script_credentials(struct world *world)
{
	uint64_t keys[REEF_DOORS_MAX], value = 1;
	struct client client;
	struct reef_key key, other;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	CHECK(!client_open(world, 0, SESSION(1), &client));
	AWAIT(status_of(world, 0).links == 1);
	CHECK(!client_attach(&client, keys));
	CHECK(reef_remote_size(client.remote) == EXTENT_SIZE);
	CHECK(!client_get(&client, 0, &value) && value == 0);
	CHECK(!client_put(&client, 8, 42));
	CHECK(!client_get(&client, 8, &value) && value == 42);
	client_close(&client);
	AWAIT(status_of(world, 0).links == 0);

	/* Another session's key, the nodes', the pool's; other identities. */
	CHECK(!reef_key_derive_session(&world->key, SESSION(1), &key));
	CHECK(client_prove(world, 0, "session", SESSION(2), &key, NULL,
			   &client) == -REEF_EAUTH);
	client_close(&client);
	CHECK(client_prove(world, 0, "node", 0x80000001, &key, NULL, &client) ==
	      -REEF_EAUTH);
	client_close(&client);
	CHECK(client_prove(world, 0, "session", SESSION(1), &world->key, NULL,
			   &client) == -REEF_EAUTH);
	client_close(&client);
	CHECK(!reef_key_derive_user(&world->key, 0, 0, &other));
	CHECK(client_prove(world, 0, "user:0:0", SESSION(1), &other, NULL,
			   &client) == -REEF_EAUTH);
	client_close(&client);
	CHECK(!reef_key_derive_node(&world->key, &other));
	CHECK(client_prove(world, 0, "node", SESSION(1), &other, NULL,
			   &client) == -REEF_EAUTH);
	client_close(&client);
	CHECK(!client_prove(world, 0, "node", 0x80000001, &other, NULL,
			    &client));
	client_close(&client);
	return 0;
}

static void node_credentials_others_refused(void **state)
{
	run(script_credentials, 1);
	run_real(script_credentials, 1);
}

/* A client may not do the broker's work. */
static int script_orders(struct world *world)
{
	struct reef_rpc_options options = {.handle = stub_handle,
					   .context = &world->stub};
	struct reef_connect_options connect = {
		.session = SESSION(1),
		.identity = "session",
	};
	struct reef_body body = {.extent = 1, .session = SESSION(1)};
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_peer *peer;
	struct reef_key key;
	int rc;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, NULL));
	CHECK(!reef_key_derive_session(&world->key, SESSION(1), &key));
	memcpy(connect.key, key.bytes, sizeof(connect.key));
	CHECK(!world_mesh(world, &mesh));
	CHECK(!reef_port_open(mesh, NULL, &port));
	options.epoch = 99;
	CHECK(!reef_rpc_create(port, &options, &rpc));
	CHECK(!reef_rpc_connect(rpc, world->stub.nodes[0].addresses, 0,
				&connect, &peer, NULL));
	rc = reef_rpc_call(peer, REEF_POOL_EXTENT_DROP, 0, &body, NULL, SECOND);
	CHECK(rc == -EPERM);
	rc = reef_rpc_call(peer, REEF_POOL_FENCE, 0, &body, NULL, SECOND);
	CHECK(rc == -EPERM);
	reef_peer_close(peer);
	reef_rpc_destroy(rpc);
	reef_port_close(port);
	reef_mesh_close(mesh);
	CHECK(status_of(world, 0).extents == 1);
	CHECK(status_of(world, 0).broker_epoch == 5);
	return 0;
}

static void node_orders_of_clients_refused(void **state)
{
	run(script_orders, 1);
}

/* --- extents --- */

static int script_create(struct world *world)
{
	uint64_t keys[REEF_DOORS_MAX], again[REEF_DOORS_MAX];
	struct reef_body other = {
		.extent = 1, .space = 2, .era = 1, .size = EXTENT_SIZE};

	CHECK(ask_create(world, 0, 1, 0, NULL) == -EINVAL);
	CHECK(status_of(world, 0).extents == 0);
	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, again));
	CHECK(!memcmp(keys, again, sizeof(keys)) && keys[0]);
	CHECK(ask_create(world, 0, 1, 2 * EXTENT_SIZE, NULL) == -EEXIST);
	CHECK(ask(world, 0, REEF_POOL_EXTENT_CREATE, &other, NULL) == -EEXIST);
	CHECK(status_of(world, 0).lent == EXTENT_SIZE);
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	CHECK(status_of(world, 0).lent == 0);
	CHECK(ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, NULL) == -ENOENT);
	CHECK(ask_extent(world, 0, REEF_POOL_EXTENT_REOPEN, 1, NULL) ==
	      -ENOENT);
	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, again));
	CHECK(keys[0] != again[0]);
	CHECK(!world->real || (keys[0] != again[1] && keys[1] && again[1]));
	return 0;
}

static void node_create_repeated_same_keys(void **state)
{
	run(script_create, 1);
	run_real(script_create, 1);
}

static int script_capacity(struct world *world)
{
	uint64_t capacity = status_of(world, 0).capacity;
	uint32_t number = 1;

	CHECK(ask_create(world, 0, 500, capacity + 1, NULL) == -ENOSPC);
	CHECK(ask_create(world, 0, 500, UINT64_MAX, NULL) == -ENOSPC);
	CHECK(ask_create(world, 0, 500, UINT64_MAX - 4000, NULL) == -ENOSPC);
	/* Odd sizes take whole pages. */
	while (!ask_create(world, 0, number, 5000, NULL))
		number++;
	CHECK(number == capacity / EXTENT_SIZE + 1);
	CHECK(status_of(world, 0).lent == capacity);
	CHECK(ask_create(world, 0, 500, 1, NULL) == -ENOSPC);
	CHECK(status_of(world, 0).extents == number - 1);
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 7, NULL));
	CHECK(!ask_create(world, 0, 500, EXTENT_SIZE, NULL));
	CHECK(status_of(world, 0).lent == capacity);
	return 0;
}

static void node_capacity_never_exceeded(void **state)
{
	run(script_capacity, 1);
	run_real(script_capacity, 1);
}

static int script_fresh(struct world *world)
{
	uint64_t keys[REEF_DOORS_MAX], value;
	struct client client;

	CHECK(!client_open(world, 0, SESSION(1), &client));
	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	CHECK(!client_attach(&client, keys));
	CHECK(!client_put(&client, 8, 42));
	reef_detach(client.queue, client.remote);
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	CHECK(!ask_create(world, 0, 2, EXTENT_SIZE, keys));
	CHECK(!client_attach(&client, keys));
	value = 1;
	CHECK(!client_get(&client, 8, &value));
	client_close(&client);
	CHECK(value == 0);
	return 0;
}

static void node_dropped_memory_fresh_again(void **state)
{
	run(script_fresh, 1);
	run_real(script_fresh, 1);
	assert_int_not_equal(run_with(script_fresh, 1, REEF_NODE_MUTANT_DIRTY),
			     0);
}

/* --- holders --- */

static int script_holder(struct world *world)
{
	uint64_t capacity = status_of(world, 0).capacity, start_ns;
	uint64_t keys[REEF_DOORS_MAX];

	CHECK(!ask_create(world, 0, 1, capacity, keys));
	CHECK(!hold_on(world, keys[0]));
	/* It is told, and does not answer; neither does the DROP. */
	start_ns = reef_now_ns();
	CHECK(ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL) ==
	      -ETIMEDOUT);
	CHECK(reef_now_ns() - start_ns < 5 * SECOND);
	CHECK(status_of(world, 0).lent == capacity);
	CHECK(ask_create(world, 0, 2, 4096, NULL) == -ENOSPC);
	/* Nobody else gets in meanwhile. */
	{
		struct client late;

		CHECK(!client_open(world, 0, SESSION(3), &late));
		CHECK(client_attach(&late, keys) == -REEF_EKEY);
		client_close(&late);
	}
	CHECK(ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL) ==
	      -ETIMEDOUT);
	CHECK(status_of(world, 0).lent == capacity);
	/* The fence ends it, and with it the drop. */
	CHECK(!ask_fence(world, 0, HOLDER));
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	CHECK(status_of(world, 0).lent == 0);
	CHECK(!ask_create(world, 0, 2, capacity, NULL));
	return 0;
}

static void node_drop_waits_for_holder(void **state)
{
	run(script_holder, 1);
}

struct request {
	struct world *world;
	uint16_t kind;
	uint32_t extent;
	int result;
	uint64_t keys[REEF_DOORS_MAX];
};

static int request_fiber(void *arg)
{
	struct request *request = arg;

	do
		request->result = ask_extent(request->world, 0, request->kind,
					     request->extent, request->keys);
	while (request->result == -ETIMEDOUT);
	return 0;
}

/* Several ask for the same; then for something else. All wait for one holder,
 * and get one outcome. */
static int script_joined(struct world *world)
{
	struct reef_fiber *fibers[4];
	struct request requests[4];
	uint64_t keys[REEF_DOORS_MAX];
	int i;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	CHECK(!hold_on(world, keys[0]));
	for (i = 0; i < 4; i++) {
		requests[i] = (struct request){.world = world,
					       .kind = REEF_POOL_EXTENT_CLOSE,
					       .extent = 1,
					       .result = 1};
		CHECK(!reef_fiber_spawn(reef_fiber_sched(), request_fiber,
					&requests[i], &fibers[i]));
	}
	CHECK(!reef_sleep(SECOND));
	for (i = 0; i < 4; i++)
		CHECK(requests[i].result == 1);
	CHECK(!ask_fence(world, 0, HOLDER));
	for (i = 0; i < 4; i++) {
		reef_fiber_join(fibers[i], NULL);
		CHECK(requests[i].result == 0);
		CHECK(!memcmp(requests[i].keys, requests[0].keys,
			      sizeof(keys)));
		CHECK(requests[i].keys[0] != keys[0]);
	}
	return 0;
}

static void node_close_repeated_joins(void **state)
{
	run(script_joined, 1);
}

/* Hundreds of drops wait for a holder; a fence still gets through. */
static int script_crowd(struct world *world)
{
	struct reef_body body = {.extent = 1};
	uint64_t keys[REEF_DOORS_MAX];
	struct request drop = {
		.world = world, .extent = 1, .kind = REEF_POOL_EXTENT_DROP};
	struct reef_fiber *fibers[300];
	int i;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	CHECK(!hold_on(world, keys[0]));
	for (i = 0; i < 300; i++)
		CHECK(!reef_fiber_spawn(reef_fiber_sched(), request_fiber,
					&drop, &fibers[i]));
	CHECK(!reef_sleep(100 * MILLISECOND));
	CHECK(!ask_fence(world, 0, HOLDER));
	for (i = 0; i < 300; i++)
		reef_fiber_join(fibers[i], NULL);
	CHECK(!ask(world, 0, REEF_POOL_EXTENT_DROP, &body, NULL));
	CHECK(status_of(world, 0).extents == 0);
	return 0;
}

static void node_crowd_of_drops_leaves_room_for_fence(void **state)
{
	struct world *world = malloc(sizeof(*world));

	assert_non_null(world);
	world_init(world, 1, script_crowd);
	assert_int_equal(world_run_sim(world, 1), 0);
	free(world);
}

/* A holder that is quick lets go of it by itself. */
static int script_polite(struct world *world)
{
	uint64_t keys[REEF_DOORS_MAX], value;
	struct client client;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	CHECK(!client_open(world, 0, SESSION(1), &client));
	CHECK(!client_attach(&client, keys));
	CHECK(!client_put(&client, 0, 1));
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	CHECK(client_put(&client, 0, 2) == -REEF_EKEY);
	CHECK(client_get(&client, 0, &value) == -REEF_EKEY);
	CHECK(status_of(world, 0).lent == 0);
	client_close(&client);
	return 0;
}

static void node_drop_while_held_refuses_holder(void **state)
{
	run(script_polite, 1);
	run_real(script_polite, 1);
}

/* --- fences --- */

static int script_fence(struct world *world)
{
	static const char *const fabrics[] = {"shm", "tcp"};
	uint64_t keys[REEF_DOORS_MAX], value = 0;
	struct client client, witness;
	int rc;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	CHECK(!client_open(world, 0, SESSION(9), &witness));
	CHECK(!client_attach(&witness, keys));
	for (uint32_t i = 0; i < (world->real ? 2 : 1); i++) {
		CHECK(!client_open_over(world, 0, SESSION(1 + i),
					world->real ? fabrics[i] : NULL,
					&client));
		CHECK(!client_attach(&client, keys));
		CHECK(!client_put(&client, 0, 1));
		CHECK(!ask_fence(world, 0, SESSION(1 + i)));
		rc = client_put(&client, 0, 2);
		client_close(&client);
		CHECK(!client_get(&witness, 0, &value));
		CHECK(rc < 0 && value == 1);
		CHECK(!ask_fence(world, 0, SESSION(1 + i)));
		CHECK(client_try(world, SESSION(1 + i)) == -REEF_EFENCED);
	}
	CHECK(ask_fence(world, 0, 0) == -EINVAL);
	CHECK(!client_put(&witness, 0, 3));
	client_close(&witness);
	return 0;
}

static void node_fence_nothing_more_happens(void **state)
{
	run(script_fence, 1);
	run_real(script_fence, 1);
	assert_int_not_equal(
		run_with(script_fence, 1, REEF_NODE_MUTANT_NO_FENCE), 0);
}

/* What REGISTER's answer tells is fenced when READY comes. */
static int script_fenced_before(struct world *world)
{
	struct told *told = &world->stub.nodes[0];
	struct client client;
	uint64_t keys[REEF_DOORS_MAX];
	int rc;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	CHECK(!client_open(world, 0, SESSION(4), &client));
	CHECK(!client_attach(&client, keys));
	world->stub.fenced = SESSION(4);
	world->stub.look_ready = true;
	reef_sim_lose_link(told->peer->link);
	AWAIT(told->readies == 2);
	rc = client_put(&client, 0, 1);
	client_close(&client);
	CHECK(world->stub.when_ready == -REEF_EFENCED);
	CHECK(rc < 0);
	return 0;
}

static void node_fences_told_done_before_ready(void **state)
{
	run(script_fenced_before, 1);
	assert_int_not_equal(
		run_with(script_fenced_before, 1, REEF_NODE_MUTANT_NO_FENCE),
		0);
}

/* --- moving --- */

#define MOVED_SIZE (5u << 20)

static void fill(uint8_t *bytes, uint32_t size)
{
	struct reef_random random;

	reef_random_init(&random, 17);
	reef_random_fill(&random, bytes, size);
}

static int compare_with(struct world *world, uint32_t node,
			const uint64_t *keys, const uint8_t *bytes,
			uint32_t size)
{
	struct client client;
	uint8_t *read = malloc(size);
	int rc;

	CHECK(read);
	rc = client_open(world, node, SESSION(2), &client);
	if (!rc)
		rc = client_attach(&client, keys);
	if (!rc)
		rc = client_op(&client, REEF_READ, 0, read, size);
	if (!rc)
		rc = memcmp(read, bytes, size);
	client_close(&client);
	free(read);
	return rc;
}

static int move(struct world *world, uint8_t *bytes, uint32_t size)
{
	uint64_t keys[REEF_DOORS_MAX], offer[REEF_DOORS_MAX];
	uint64_t again[REEF_DOORS_MAX], moved[REEF_DOORS_MAX];
	struct client client;

	CHECK(!ask_create(world, 0, 1, size, keys));
	CHECK(!client_open(world, 0, SESSION(1), &client));
	CHECK(!client_attach(&client, keys));
	CHECK(!client_op(&client, REEF_WRITE, 0, bytes, size));
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, offer));
	CHECK(offer[0] != keys[0]);
	CHECK(client_put(&client, 0, 7) == -REEF_EKEY);
	CHECK(client_attach(&client, keys) == -REEF_EKEY);
	client_close(&client);
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, again));
	CHECK(!memcmp(offer, again, sizeof(offer)));
	CHECK(ask_create(world, 0, 1, size, NULL) == -EBUSY);
	CHECK(!ask_pull(world, 1, 0, 1, size, offer, moved));
	CHECK(!ask_pull(world, 1, 0, 1, size, offer, again));
	CHECK(!memcmp(moved, again, sizeof(moved)));
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	CHECK(status_of(world, 0).lent == 0);
	CHECK(status_of(world, 1).extents == 1);
	CHECK(!compare_with(world, 1, moved, bytes, size));
	/* And back: under the next epoch, so the first pull's is another. */
	CHECK(!ask_extent(world, 1, REEF_POOL_EXTENT_CLOSE, 1, offer));
	CHECK(!ask_pull(world, 0, 1, 1, size, offer, moved));
	CHECK(!compare_with(world, 0, moved, bytes, size));
	/* The source changes its mind: the offer is void. */
	CHECK(!ask_extent(world, 1, REEF_POOL_EXTENT_REOPEN, 1, keys));
	CHECK(!ask_extent(world, 1, REEF_POOL_EXTENT_REOPEN, 1, again));
	CHECK(!memcmp(keys, again, sizeof(keys)));
	CHECK(keys[0] != offer[0]);
	CHECK(!compare_with(world, 1, keys, bytes, size));
	CHECK(compare_with(world, 1, offer, bytes, size) == -REEF_EKEY);
	return 0;
}

static int script_move(struct world *world)
{
	uint32_t size = world->real ? MOVED_SIZE : 40000;
	uint8_t *bytes = malloc(size);
	int rc;

	CHECK(bytes);
	fill(bytes, size);
	rc = move(world, bytes, size);
	free(bytes);
	return rc;
}

static void node_move_brings_every_byte(void **state)
{
	struct world *world = malloc(sizeof(*world));

	run(script_move, 2);
	assert_non_null(world);
	world_init(world, 2, script_move);
	world->machines[0].options.capacity = MOVED_SIZE;
	world->machines[1].options.capacity = MOVED_SIZE;
	assert_int_equal(world_run_real(world), 0);
	free(world);
}

static int script_bad_pulls(struct world *world)
{
	uint64_t keys[REEF_DOORS_MAX], wrong[REEF_DOORS_MAX] = {1, 2, 3, 4};

	CHECK(!ask_create(world, 0, 1, 40000, NULL));
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, keys));
	CHECK(ask_pull(world, 1, 0, 1, 40000, wrong, NULL) == -REEF_EKEY);
	CHECK(status_of(world, 1).lent == 0);
	CHECK(status_of(world, 1).extents == 0);
	/* More than the source has. */
	CHECK(ask_pull(world, 1, 0, 1, 50000, keys, NULL) == -ERANGE);
	CHECK(ask_pull(world, 1, 0, 1, 2 << 20, keys, NULL) == -ENOSPC);
	CHECK(status_of(world, 1).lent == 0);
	CHECK(status_of(world, 1).extents == 0);
	/* Its own number is taken by something else. */
	CHECK(!ask_create(world, 1, 1, 40000, NULL));
	CHECK(ask_pull(world, 1, 0, 1, 40000, keys, NULL) == -EEXIST);
	CHECK(!ask_extent(world, 1, REEF_POOL_EXTENT_DROP, 1, NULL));
	CHECK(!ask_pull(world, 1, 0, 1, 40000, keys, NULL));
	return 0;
}

static void node_failed_pull_leaves_nothing(void **state)
{
	run(script_bad_pulls, 2);
}

struct pull {
	struct world *world;
	uint64_t size;
	uint64_t keys[REEF_DOORS_MAX];
	int result;
};

static int pull_fiber(void *arg)
{
	struct pull *pull = arg;

	pull->result =
		ask_pull(pull->world, 1, 0, 1, pull->size, pull->keys, NULL);
	return 0;
}

/* The source dies, or the target is told to drop it, while it pulls. */
static int script_pull_cut(struct world *world)
{
	uint64_t size = 16u << 20;
	struct pull pulls[2];
	struct reef_fiber *fibers[2];
	int i;

	CHECK(!ask_create(world, 0, 1, size, NULL));
	memset(pulls, 0, sizeof(pulls));
	pulls[0].world = world;
	pulls[0].size = size;
	pulls[0].result = 1;
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, pulls[0].keys));
	pulls[1] = pulls[0];
	for (i = 0; i < 2; i++)
		CHECK(!reef_fiber_spawn(reef_fiber_sched(), pull_fiber,
					&pulls[i], &fibers[i]));
	for (i = 0; i < 1000 && status_of(world, 1).lent == 0; i++)
		CHECK(!reef_sleep(MILLISECOND / 100));
	CHECK(status_of(world, 1).lent == size);
	CHECK(pulls[0].result == 1);
	if (world->note[0] == 0)
		reef_sim_host_kill(world->machines[0].host);
	else
		CHECK(!ask_extent(world, 1, REEF_POOL_EXTENT_DROP, 1, NULL));
	for (i = 0; i < 2; i++) {
		reef_fiber_join(fibers[i], NULL);
		/* The drop may have come when it was done. */
		CHECK(pulls[i].result < 0 || world->note[0]);
	}
	/* A dead source is noticed when it has been silent for a while. */
	AWAIT(status_of(world, 1).lent == 0);
	CHECK(status_of(world, 1).extents == 0);
	return 0;
}

static void node_pull_cut_short_leaves_nothing(void **state)
{
	struct world *world = malloc(sizeof(*world));

	assert_non_null(world);
	for (uint64_t i = 0; i < 8; i++) {
		world_init(world, 2, script_pull_cut);
		world->note[0] = i % 2;
		world->machines[0].options.capacity = 64 << 20;
		world->machines[1].options.capacity = 64 << 20;
		assert_int_equal(world_run_sim(world, i), 0);
	}
	free(world);
}

/* --- epochs --- */

static int script_stale(struct world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint64_t incarnation = told->incarnation;
	uint32_t readies;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, NULL));
	/* An order under a lower epoch is refused, and its link dropped. */
	reef_rpc_set_epoch(world->stub.rpc, 4);
	CHECK(ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL) == -ESTALE);
	CHECK(status_of(world, 0).extents == 1);
	/* So is its registration, and that it was taken for dead. */
	readies = told->readies;
	world->stub.all_dead = true;
	AWAIT(told->registers >= 4);
	world->stub.all_dead = false;
	AWAIT(told->registers >= 8);
	CHECK(told->readies == readies);
	CHECK(told->incarnation == incarnation);
	CHECK(status_of(world, 0).link != 0);
	CHECK(status_of(world, 0).extents == 1);
	reef_rpc_set_epoch(world->stub.rpc, 7);
	AWAIT(status_of(world, 0).link == 0);
	CHECK(told->incarnation == incarnation);
	CHECK(status_of(world, 0).broker_epoch == 7);
	reef_rpc_set_epoch(world->stub.rpc, 6);
	CHECK(ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, NULL) == -ESTALE);
	reef_rpc_set_epoch(world->stub.rpc, 7);
	AWAIT(status_of(world, 0).link == 0);
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	return 0;
}

static void node_stale_broker_refused(void **state)
{
	run(script_stale, 1);
	assert_int_not_equal(
		run_with(script_stale, 1, REEF_NODE_MUTANT_STALE_EPOCH), 0);
}

/* --- lives --- */

static int script_new_life(struct world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint64_t keys[REEF_DOORS_MAX], fresh[REEF_DOORS_MAX], value = 1;
	uint64_t old = told->incarnation;
	struct client client, other;
	int rc;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	CHECK(!client_open(world, 0, SESSION(1), &client));
	CHECK(!client_attach(&client, keys));
	CHECK(!client_put(&client, 0, 42));
	world->stub.dead = old;
	AWAIT(told->readies == 2);
	CHECK(told->incarnation != old);
	CHECK(told->rows_count == 0);
	CHECK(status_of(world, 0).extents == 0);
	AWAIT(status_of(world, 0).lent == 0);
	CHECK(client_put(&client, 0, 43) < 0);
	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, fresh));
	CHECK(!client_open(world, 0, SESSION(2), &other));
	CHECK(client_attach(&other, keys) == -REEF_EKEY);
	CHECK(!client_attach(&other, fresh));
	CHECK(client_put(&client, 0, 44) < 0);
	rc = client_get(&other, 0, &value);
	client_close(&client);
	client_close(&other);
	CHECK(!rc && value == 0);
	CHECK(fresh[0] != keys[0]);
	return 0;
}

static void node_taken_for_dead_drops_all(void **state)
{
	run(script_new_life, 1);
	run_real(script_new_life, 1);
	assert_int_not_equal(
		run_with(script_new_life, 1, REEF_NODE_MUTANT_SAME_LIFE), 0);
}

/* A life ends while a DROP waits for a holder that stands still. */
static int script_new_life_held(struct world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint64_t capacity = status_of(world, 0).capacity;
	uint64_t keys[REEF_DOORS_MAX];

	CHECK(!ask_create(world, 0, 1, capacity, keys));
	CHECK(!hold_on(world, keys[0]));
	CHECK(ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL) ==
	      -ETIMEDOUT);
	world->stub.dead = told->incarnation;
	AWAIT(told->readies == 2);
	CHECK(told->rows_count == 0);
	/* Its link has ended, so the memory could go. */
	AWAIT(status_of(world, 0).lent == 0);
	CHECK(!ask_create(world, 0, 1, capacity, keys));
	return 0;
}

static void node_taken_for_dead_while_held_comes_back(void **state)
{
	run(script_new_life_held, 1);
}

/* --- killed hosts --- */

static int script_killed(struct world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint64_t keys[REEF_DOORS_MAX], incarnation = told->incarnation;
	struct request request = {
		.world = world, .extent = 1, .kind = REEF_POOL_EXTENT_DROP};
	struct reef_fiber *fiber;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	CHECK(!ask_create(world, 0, 2, EXTENT_SIZE, NULL));
	CHECK(!hold_on(world, keys[0]));
	CHECK(!reef_fiber_spawn(reef_fiber_sched(), request_fiber, &request,
				&fiber));
	CHECK(!reef_sleep(world->note[0] * MILLISECOND));
	reef_sim_host_kill(world->machines[0].host);
	AWAIT(world->machines[0].stopped);
	reef_fiber_join(fiber, NULL);
	CHECK(request.result < 0);
	CHECK(!reef_sim_host_restart(world->machines[0].host, machine_main,
				     &world->machines[0]));
	AWAIT(told->readies == 2);
	CHECK(told->incarnation != incarnation || told->rows_count == 0);
	return 0;
}

static void node_host_killed_unwinds(void **state)
{
	struct world *world = malloc(sizeof(*world));

	assert_non_null(world);
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		world_init(world, 1, script_killed);
		world->note[0] = seed * 13 % 40;
		assert_int_equal(world_run_sim(world, seed), 0);
	}
	free(world);
}

/* --- pressure --- */

static int script_pressure(struct world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint32_t pulses;

	for (uint32_t i = 1; i <= 10; i++)
		CHECK(!ask_create(world, 0, i, EXTENT_SIZE, NULL));
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	CHECK(told->pulse.generation == 0);
	CHECK(told->pulse.size == 10 * EXTENT_SIZE);
	world->available = 19000;
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	CHECK(told->pulse.generation == 40000 - 19000);
	CHECK(told->pulse.value == 19000);
	/* Between the two marks it goes on asking... */
	world->available = 30000;
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	CHECK(told->pulse.generation == 10000);
	world->available = 40000;
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	CHECK(told->pulse.generation == 0);
	/* ... but does not begin. */
	world->available = 30000;
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	CHECK(told->pulse.generation == 0);
	/* Never more than it has lent. */
	for (uint32_t i = 2; i <= 10; i++)
		CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, i, NULL));
	world->available = 0;
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	CHECK(told->pulse.generation == EXTENT_SIZE);
	return 0;
}

static void node_pressure_asks_between_marks(void **state)
{
	struct world *world = malloc(sizeof(*world));

	assert_non_null(world);
	world_init(world, 1, script_pressure);
	world->machines[0].options.pressure_low = 20000;
	world->machines[0].options.pressure_high = 40000;
	assert_int_equal(world_run_sim(world, 1), 0);
	free(world);
}

static void put_file(const char *path, const char *text)
{
	scratch_write(path, text, strlen(text), 0600);
}

static void node_available_least_of_machine_and_cgroups(void **state)
{
	const char *root = scratch;

	assert_true(node_available(root) == UINT64_MAX);
	put_file("proc/meminfo", "MemTotal:  100 kB\nMemAvailable:   90 kB\n");
	assert_int_equal(node_available(root), 90 << 10);
	put_file("proc/self/cgroup", "0::/one/two\n");
	put_file("sys/fs/cgroup/one/two/memory.max", "max\n");
	put_file("sys/fs/cgroup/one/two/memory.current", "5000\n");
	assert_int_equal(node_available(root), 90 << 10);
	/* The one above has a limit. */
	put_file("sys/fs/cgroup/one/memory.max", "50000\n");
	put_file("sys/fs/cgroup/one/memory.current", "20000\n");
	assert_int_equal(node_available(root), 30000);
	put_file("sys/fs/cgroup/one/memory.stat",
		 "anon 1\ninactive_file 4000\nactive_file 2\n");
	assert_int_equal(node_available(root), 34000);
	put_file("sys/fs/cgroup/one/memory.current", "60000\n");
	assert_int_equal(node_available(root), 0);
	/* The older version. */
	put_file("proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/y\n");
	put_file("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "8000\n");
	put_file("sys/fs/cgroup/memory/y/memory.usage_in_bytes", "3000\n");
	put_file("sys/fs/cgroup/memory/y/memory.stat",
		 "total_inactive_file 500\n");
	assert_int_equal(node_available(root), 5500);
	/* And what this machine says. */
	assert_true(node_available("") > 0);
}

/* --- for real: shm costs the node nothing --- */

struct rider {
	struct world *world;
	uint64_t keys[REEF_DOORS_MAX];
	int result;
};

/* Outside any fiber, on a thread of its own, while the node's stands still. */
static void *ride(void *arg)
{
	struct rider *rider = arg;
	struct client client;
	struct reef_key key;
	uint64_t value;
	int rc;

	rc = reef_key_derive_session(&rider->world->key, SESSION(5), &key);
	(void)rc;
	rc = client_open_over(rider->world, 0, SESSION(5), "shm", &client);
	if (!rc)
		rc = client_attach(&client, rider->keys);
	rider->world->note[0] = 1;
	while (!__atomic_load_n(&rider->world->note[1], __ATOMIC_ACQUIRE))
		reef_sleep(MILLISECOND / 10);
	for (uint64_t i = 0; !rc && i < 20000; i++) {
		rc = client_put(&client, 8 * (i % 100), i);
		if (!rc)
			rc = client_get(&client, 8 * (i % 100), &value);
		if (!rc && value != i)
			rc = -EIO;
	}
	__atomic_store_n(&rider->result, rc, __ATOMIC_RELEASE);
	__atomic_store_n(&rider->world->note[2], 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&rider->world->note[3], __ATOMIC_ACQUIRE))
		reef_sleep(MILLISECOND / 10);
	client_close(&client);
	return NULL;
}

static int script_no_cpu(struct world *world)
{
	struct reef_rpc_counts before, after;
	struct reef_node *node = world->machines[0].node;
	struct rider rider = {.world = world, .result = 1};
	pthread_t thread;
	uint32_t i;

	CHECK(!ask_create(world, 0, 1, EXTENT_SIZE, rider.keys));
	CHECK(!pthread_create(&thread, NULL, ride, &rider));
	AWAIT(__atomic_load_n(&world->note[0], __ATOMIC_ACQUIRE));
	reef_rpc_counts(node->rpc, &before);
	__atomic_store_n(&world->note[1], 1, __ATOMIC_RELEASE);
	/* No fiber of this thread runs until the rider is done. */
	while (!__atomic_load_n(&world->note[2], __ATOMIC_ACQUIRE))
		;
	reef_rpc_counts(node->rpc, &after);
	for (i = 0; i < 2; i++) /* and nothing waits to be looked at */
		reef_port_poll(node->port);
	__atomic_store_n(&world->note[3], 1, __ATOMIC_RELEASE);
	AWAIT(status_of(world, 0).links == 0);
	pthread_join(thread, NULL);
	CHECK(rider.result == 0);
	CHECK(before.handled == after.handled);
	return 0;
}

static void node_shm_traffic_costs_node_nothing(void **state)
{
	run_real(script_no_cpu, 1);
}

static int script_huge(struct world *world)
{
	struct reef_node_status status;
	int rc = ask_create(world, 0, 1, 4 << 20, NULL);

	CHECK(!rc);
	CHECK(!ask_create(world, 0, 2, 4096, NULL));
	status = status_of(world, 0);
	CHECK(status.lent == (4 << 20) + 4096);
	/* Only where there are any, and never for the odd one. */
	CHECK(status.huge == 0 || status.huge == 4 << 20);
	CHECK(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	CHECK(status_of(world, 0).huge == 0);
	CHECK(status_of(world, 0).lent == 4096);
	return 0;
}

static void node_huge_pages_counted_truly(void **state)
{
	struct world *world = malloc(sizeof(*world));

	assert_non_null(world);
	world_init(world, 1, script_huge);
	world->machines[0].options.capacity = (4 << 20) + 4096;
	world->machines[0].options.huge_pages = true;
	assert_int_equal(world_run_real(world), 0);
	free(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_bad_options_refused),
		cmocka_unit_test(node_register_then_pulses),
		cmocka_unit_test(node_link_lost_registers_again),
		cmocka_unit_test(node_many_extents_all_told),
		cmocka_unit_test(node_credentials_others_refused),
		cmocka_unit_test(node_orders_of_clients_refused),
		cmocka_unit_test(node_create_repeated_same_keys),
		cmocka_unit_test(node_capacity_never_exceeded),
		cmocka_unit_test(node_dropped_memory_fresh_again),
		cmocka_unit_test(node_drop_waits_for_holder),
		cmocka_unit_test(node_close_repeated_joins),
		cmocka_unit_test(node_crowd_of_drops_leaves_room_for_fence),
		cmocka_unit_test(node_drop_while_held_refuses_holder),
		cmocka_unit_test(node_fence_nothing_more_happens),
		cmocka_unit_test(node_fences_told_done_before_ready),
		cmocka_unit_test(node_move_brings_every_byte),
		cmocka_unit_test(node_failed_pull_leaves_nothing),
		cmocka_unit_test(node_pull_cut_short_leaves_nothing),
		cmocka_unit_test(node_stale_broker_refused),
		cmocka_unit_test(node_taken_for_dead_drops_all),
		cmocka_unit_test(node_taken_for_dead_while_held_comes_back),
		cmocka_unit_test(node_host_killed_unwinds),
		cmocka_unit_test(node_pressure_asks_between_marks),
		cmocka_unit_test_setup_teardown(
			node_available_least_of_machine_and_cgroups,
			scratch_make, scratch_remove),
		cmocka_unit_test(node_shm_traffic_costs_node_nothing),
		cmocka_unit_test(node_huge_pages_counted_truly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
