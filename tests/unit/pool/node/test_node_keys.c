/* test_node_keys.c - who may come to a node, and with which key. */
#include "fixture/node_world.h"

#include <errno.h>
#include <string.h>

static int script_credentials(struct node_world *world)
{
	uint64_t keys[REEF_DOORS_MAX], value = 1;
	const struct reef_node_key *own = &world->machines[0].key;
	struct borrower client;
	struct reef_key key, other;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!borrower_open(world, 0, SESSION(1), &client));
	AWAIT(machine_status(world, 0).links == 1);
	WANT(!borrower_attach(&client, keys));
	WANT(reef_remote_size(client.remote) == EXTENT_SIZE);
	WANT(!borrower_get(&client, 0, &value) && value == 0);
	WANT(!borrower_put(&client, 8, 42));
	WANT(!borrower_get(&client, 8, &value) && value == 42);
	borrower_close(&client);
	AWAIT(machine_status(world, 0).links == 0);

	/* Another session's key, or the same session's for another node, or for
	 * the broker; the pool's, the node's own; other identities. */
	WANT(!reef_key_derive_link(&own->key, SESSION(1), &key));
	WANT(borrower_prove(world, 0, "session", SESSION(2), &key, NULL,
			    &client) == -REEF_EAUTH);
	borrower_close(&client);
	WANT(!reef_key_derive_node(&world->key, NODE_NUMBER(1), &other));
	WANT(!reef_key_derive_link(&other, SESSION(1), &key));
	WANT(borrower_prove(world, 0, "session", SESSION(1), &key, NULL,
			    &client) == -REEF_EAUTH);
	borrower_close(&client);
	WANT(!reef_key_derive_session(&world->key, SESSION(1), &key));
	WANT(borrower_prove(world, 0, "session", SESSION(1), &key, NULL,
			    &client) == -REEF_EAUTH);
	borrower_close(&client);
	WANT(borrower_prove(world, 0, "session", SESSION(1), &own->key, NULL,
			    &client) == -REEF_EAUTH);
	borrower_close(&client);
	WANT(borrower_prove(world, 0, "session", SESSION(1), &world->key, NULL,
			    &client) == -REEF_EAUTH);
	borrower_close(&client);
	WANT(!reef_key_derive_user(&world->key, 0, 0, &other));
	WANT(borrower_prove(world, 0, "user:0:0", SESSION(1), &other, NULL,
			    &client) == -REEF_EAUTH);
	borrower_close(&client);
	WANT(!reef_key_derive_broker(&own->key, &other));
	WANT(borrower_prove(world, 0, "node:97", 0x80000001, &other, NULL,
			    &client) == -REEF_EAUTH);
	borrower_close(&client);
	return 0;
}

static void node_credentials_others_refused(void **state)
{
	node_script_run(script_credentials, 1);
	node_script_run_real(script_credentials, 1);
}

/* Who copies an extent is let in for that copy, while the extent is here. */
static int script_pull_credentials(struct node_world *world)
{
	const struct reef_key *own = &world->machines[0].key.key;
	static const struct {
		const char *identity;
		uint32_t extent, epoch, session;
		int rc;
	} knocks[] = {
		{"pull:1:2", 1, 2, 0x80000001, 0},
		{"pull:1:2", 1, 2, SESSION(1), -REEF_EAUTH},
		{"pull:1:2", 1, 3, 0x80000001, -REEF_EAUTH},
		{"pull:1:3", 1, 3, 0x80000001, -REEF_EAUTH},
		{"pull:1:1", 1, 1, 0x80000001, -REEF_EAUTH},
		{"pull:2:2", 2, 2, 0x80000001, -REEF_EAUTH},
		{"pull:0:2", 0, 2, 0x80000001, -REEF_EAUTH},
		{"pull:01:2", 1, 2, 0x80000001, -REEF_EAUTH},
	};
	struct borrower client;
	struct reef_key key;
	int rc;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, NULL));
	for (size_t i = 0; i < sizeof(knocks) / sizeof(knocks[0]); i++) {
		WANT(!reef_key_derive_pull(own, knocks[i].extent,
					   knocks[i].epoch, &key));
		rc = borrower_prove(world, 0, knocks[i].identity,
				    knocks[i].session, &key, NULL, &client);
		borrower_close(&client);
		WANT(rc == knocks[i].rc);
	}
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(!reef_key_derive_pull(own, 1, 2, &key));
	WANT(borrower_prove(world, 0, "pull:1:2", 0x80000001, &key, NULL,
			    &client) == -REEF_EAUTH);
	borrower_close(&client);
	return 0;
}

static void node_pull_of_what_is_not_there_refused(void **state)
{
	node_script_run(script_pull_credentials, 1);
}

/* A client may not do the broker's work. */
static int script_orders(struct node_world *world)
{
	struct reef_rpc_options options = {.handle = stub_broker_handle,
					   .context = &world->stub};
	struct reef_connect_options connect = {
		.session = SESSION(1),
		.identity = "session",
	};
	struct reef_body drop = {.ask.extent_drop.extent = 1};
	struct reef_body fence = {.ask.fence.session = SESSION(1)};
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_peer *peer;
	struct reef_key key;
	int rc;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, NULL));
	WANT(!reef_key_derive_link(&world->machines[0].key.key, SESSION(1),
				   &key));
	memcpy(connect.key, key.bytes, sizeof(connect.key));
	WANT(!node_world_mesh(world, &mesh));
	WANT(!reef_port_open(mesh, NULL, &port));
	options.epoch = 99;
	WANT(!reef_rpc_create(port, &options, &rpc));
	WANT(!reef_rpc_connect(rpc, world->stub.nodes[0].addresses, 0, &connect,
			       &peer, NULL));
	rc = reef_rpc_call(peer, REEF_POOL_EXTENT_DROP, 0, &drop, NULL, SECOND);
	WANT(rc == -EPERM);
	rc = reef_rpc_call(peer, REEF_POOL_FENCE, 0, &fence, NULL, SECOND);
	WANT(rc == -EPERM);
	reef_peer_close(peer);
	reef_rpc_destroy(rpc);
	reef_port_close(port);
	reef_mesh_close(mesh);
	WANT(machine_status(world, 0).extents == 1);
	WANT(machine_status(world, 0).broker_epoch == 5);
	return 0;
}

static void node_orders_of_clients_refused(void **state)
{
	node_script_run(script_orders, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_credentials_others_refused),
		cmocka_unit_test(node_pull_of_what_is_not_there_refused),
		cmocka_unit_test(node_orders_of_clients_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
