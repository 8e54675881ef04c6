/* test_client_doors.c - a client whose link to a node is lost, and that cannot
 * come in through the same door any more, goes on through another one, once the
 * broker has had the node end the old link (mesh.h (2), F10): from shm to tcp,
 * and back, in a pool of real servers. And to the broker itself, where there is
 * nothing to settle. */
#include "fixture/local_pool.h"
#include "fixture/sockets.h"

#include "fabric/hook/fault.h"
#include "fabric/provider.h"
#include "pool/client/client.h"
#include "pool/target.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define SWITCHES 6

enum { SHM, TCP };

/* A way to the broker, or to the node. */
struct way {
	_Atomic bool is_shut;
	_Atomic bool loses; /* its link, with the next batch */
	_Atomic(struct reef_link *) link;
	_Atomic uint32_t links; /* that were made */
};

/* A fabric of the client's. */
struct door {
	struct reef_layer layer;
	struct reef_fault *fault;
	struct way broker, node;
};

static struct {
	char broker[REEF_TARGET_MAX];
	struct door doors[2]; /* shm, tcp */
	uint32_t count;
	pthread_mutex_t lock;
} house = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int connect_unless_shut(struct reef_layer *layer,
			       struct reef_queue *queue, const char *address,
			       const struct reef_connect_options *options,
			       struct reef_link **out)
{
	struct door *door = (struct door *)layer;
	struct way *way =
		strstr(house.broker, address) ? &door->broker : &door->node;
	int rc;

	if (way->is_shut)
		return -ECONNREFUSED;
	rc = layer->next->ops.connect(layer->next, queue, address, options,
				      out);
	if (!rc) {
		way->link = *out;
		way->links++;
	}
	return rc;
}

static int lose_when_told(struct reef_layer *layer, struct reef_queue *queue,
			  struct reef_batch *batch)
{
	const struct reef_fault_rule lose = {
		.call = REEF_CALL_POST,
		.kind = REEF_FAULT_UNDONE,
		.nth = 1,
	};
	struct door *door = (struct door *)layer;
	int rc = 0;

	/* Locked, so that no other batch is met by the rule. */
	pthread_mutex_lock(&house.lock);
	if (door->node.loses && batch->link == door->node.link) {
		door->node.loses = false;
		rc = reef_fault_add(door->fault, &lose);
	}
	if (!rc)
		rc = layer->next->ops.post(layer->next, queue, batch);
	pthread_mutex_unlock(&house.lock);
	return rc;
}

static int push_door(void *context, struct reef_fabric *fabric)
{
	struct door *door = &house.doors[house.count++];
	int rc = reef_fault_push(fabric, NULL, &door->fault);

	(void)context;
	if (rc)
		return rc;
	door->layer.ops = (struct reef_fabric_ops){
		.name = "door",
		.connect = connect_unless_shut,
		.post = lose_when_told,
	};
	reef_fabric_push(fabric, &door->layer);
	return 0;
}

/* One way is open, and the link that took the other one is lost with the next
 * batch. */
static void switch_ways(struct way *to, struct way *from)
{
	to->is_shut = false;
	from->is_shut = true;
	from->loses = true;
}

static void switch_to_node(struct reef *reef, uint64_t address, uint32_t first)
{
	struct way *to, *from;
	uint64_t value, round;
	uint32_t links;
	int rc;

	for (round = 1; round <= SWITCHES; round++) {
		to = &house.doors[(first + round) % 2].node;
		from = &house.doors[(first + round + 1) % 2].node;
		links = to->links;
		switch_ways(to, from);
		/* The batch that is lost is a WRITE, in doubt, or a READ. */
		value = 2 * round + 1;
		rc = round % 3 ? reef_write(reef, address, &value, 8)
			       : reef_read(reef, address, &value, 8);
		assert_int_equal(rc, round % 3 ? -REEF_EINDOUBT : 0);
		assert_false(from->loses);
		value = 2 * round;
		assert_int_equal(reef_write(reef, address, &value, 8), 0);
		value = 0;
		assert_int_equal(reef_read(reef, address, &value, 8), 0);
		assert_int_equal(value, 2 * round);
		assert_int_equal(to->links, links + 1);
	}
}

/* Not from shm: there the end of the link is that of the process. */
static void switch_to_broker(struct reef *reef)
{
	uint32_t session = reef_session(reef);
	uint64_t now_ns;

	assert_int_equal(house.doors[TCP].broker.links, 1);
	assert_int_equal(house.doors[SHM].broker.links, 0);
	house.doors[SHM].broker.is_shut = false;
	house.doors[TCP].broker.is_shut = true;
	assert_true(sockets_cut(strstr(house.broker, "tcp:")) > 0);
	while (!house.doors[SHM].broker.links)
		assert_int_equal(reef_pool_time(reef, &now_ns), 0);
	assert_int_equal(reef_pool_time(reef, &now_ns), 0);
	assert_int_equal(house.doors[SHM].broker.links, 1);
	assert_int_equal(reef_health(reef), 0);
	assert_int_equal(reef_session(reef), session);
}

/* Begin with one door, to the node and to the broker. */
static void run_from(uint32_t first)
{
	struct reef_mesh_options mesh_options = {
		.kinds = "shm tcp",
		.opened = push_door,
	};
	const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	struct reef_client_options options = {0};
	struct reef_credential credential;
	struct reef_client *client;
	struct reef_space *space;
	struct reef_mesh *mesh;
	struct server server;
	struct reef *reef;
	uint64_t address, value = 0;

	memset(house.doors, 0, sizeof(house.doors));
	house.count = 0;
	server_start(&server);
	assert_int_equal(reef_target_broker("local", NULL, house.broker), 0);
	assert_int_equal(reef_target_credential(NULL, NULL, &credential), 0);
	assert_int_equal(reef_mesh_open(&mesh_options, &mesh), 0);
	house.doors[!first].node.is_shut = true;
	house.doors[!first].broker.is_shut = true;
	options.mesh = mesh;
	options.broker = house.broker;
	options.credential = &credential;
	assert_int_equal(reef_client_create(&options, &client), 0);
	assert_int_equal(reef_client_handle(client, &reef), 0);
	assert_int_equal(reef_space_open(reef, "space", &create, &space), 0);
	assert_int_equal(reef_alloc(space, 64, &address), 0);
	assert_int_equal(reef_write(reef, address, &value, 8), 0);
	assert_int_equal(house.doors[first].node.links, 1);
	assert_int_equal(house.doors[!first].node.links, 0);
	switch_to_node(reef, address, first);
	if (first == TCP)
		switch_to_broker(reef);
	reef_close(reef);
	reef_client_unref(client);
	reef_mesh_close(mesh);
	server_stop(&server);
}

static void client_doors_from_shm_to_tcp_and_back(void **state)
{
	run_from(SHM);
}

static void client_doors_from_tcp_to_shm_and_back(void **state)
{
	run_from(TCP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			client_doors_from_shm_to_tcp_and_back, scratch_make,
			scratch_remove),
		cmocka_unit_test_setup_teardown(
			client_doors_from_tcp_to_shm_and_back, scratch_make,
			scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
