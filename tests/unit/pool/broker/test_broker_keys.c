/* test_broker_keys.c - who may come to a broker, and with which key. */
#include "fixture/broker_world.h"

#include "pool/broker/internal.h"

#include <errno.h>
#include <string.h>

/* --- impostors --- */

static int knock(struct actor *actor, const char *identity, uint32_t session,
		 const struct reef_key *key)
{
	struct reef_connect_options options = {
		.session = session,
		.identity = identity,
	};
	struct reef_peer *peer;
	int rc;

	memcpy(options.key, key->bytes, sizeof(key->bytes));
	rc = reef_rpc_connect(actor->rpc, BROKER, 0, &options, &peer, NULL);
	if (rc == 0)
		reef_peer_close(peer);
	return rc;
}

static int impostor(struct actor *actor)
{
	struct reef_key key = actor->credential.key, node, other;
	char name[REEF_IDENTITY_MAX + 1];
	struct reef_connect_options proof = {0};
	struct reef_node_key held;
	uint32_t id = 0x90000001;

	TRY(actor_join(actor));
	actor->world->nodes = 2;
	while (!reef_state_node(actor->world->broker->state, 2))
		TRY(reef_sleep(MILLISECOND));
	TRY(sim_node_identity(&actor->world->key, 1, name, &proof));
	memcpy(node.bytes, proof.key, sizeof(node.bytes));
	TRY(sim_node_key(&actor->world->key, 1, &held));
	WANT(knock(actor, "user:0:0", id, &node) == -REEF_EAUTH);
	WANT(knock(actor, "node:1", id, &key) == -REEF_EAUTH);
	/* A node's key is that node's alone, and not what it proves. */
	WANT(knock(actor, "node:2", id, &node) == -REEF_EAUTH);
	WANT(knock(actor, "node:01", id, &node) == -REEF_EAUTH);
	WANT(knock(actor, "node", id, &node) == -REEF_EAUTH);
	WANT(knock(actor, "node:1", id, &held.key) == -REEF_EAUTH);
	WANT(knock(actor, "user:0:0", id, &held.key) == -REEF_EAUTH);
	/* Rightly derived, but nobody was added as that. */
	TRY(sim_node_identity(&actor->world->key, 3, name, &proof));
	memcpy(other.bytes, proof.key, sizeof(other.bytes));
	WANT(knock(actor, "node:3", id, &other) == -REEF_EAUTH);
	TRY(reef_key_derive_user(&actor->world->key, 7, 0, &other));
	WANT(knock(actor, "user:0:1", id, &key) == -REEF_EAUTH);
	WANT(knock(actor, "user:00:0", id, &key) == -REEF_EAUTH);
	WANT(knock(actor, "user:0:0x", id, &key) == -REEF_EAUTH);
	WANT(knock(actor, "user:4294967296:0", id, &key) == -REEF_EAUTH);
	WANT(knock(actor, "user:-0:0", id, &key) == -REEF_EAUTH);
	WANT(knock(actor, "", id, &key) != 0);
	/* Rightly derived, but nobody's. */
	WANT(knock(actor, "user:7:0", id, &other) == -REEF_EAUTH);
	/* Nobody comes to a broker as a session. */
	WANT(knock(actor, "user:0:0", actor->session, &key) == -REEF_EAUTH);
	TRY(knock(actor, "user:0:0", id, &key));
	TRY(knock(actor, "node:1", id, &node));
	return 0;
}

static void cast_impostor(struct broker_world *world)
{
	broker_world_add(world, impostor);
}

static void broker_impostor_is_not_let_in(void **state)
{
	broker_world_run(cast_impostor, 0);
}

/* --- nodes --- */

static int add_node(struct actor *actor, const char *name, uint32_t sequence,
		    struct reef_body *answer)
{
	struct reef_body body = {.ask.node_add.name = actor_text_of(name)};

	return actor_call(actor, REEF_POOL_NODE_ADD, sequence, &body, answer);
}

/* Connect as that node, and keep the link. */
static int connect_as_node(struct actor *actor, uint32_t number,
			   struct reef_peer **out)
{
	struct reef_connect_options options = {.session = 0x90000001};
	char identity[REEF_IDENTITY_MAX + 1];

	TRY(sim_node_identity(&actor->world->key, number, identity, &options));
	return reef_rpc_connect(actor->rpc, BROKER, 0, &options, out, NULL);
}

static int added_nodes(struct actor *actor)
{
	struct reef_body first = {0}, again = {0}, remove = {0}, user = {0};
	struct reef_body body = {
		.ask.node_register = {.incarnation = 9,
				      .capacity = 1 << 20,
				      .addresses = actor_text_of("sim:no/1")},
	};
	struct reef_body ada = {.ask.user_add.name = actor_text_of("ada")};
	struct reef_node_key key;
	struct reef_peer *node;

	TRY(actor_join(actor));
	WANT(connect_as_node(actor, 1, &node) == -REEF_EAUTH);
	WANT(add_node(actor, "a", 0, NULL) == -EINVAL);
	TRY(add_node(actor, "a", 1, &first));
	TRY(add_node(actor, "a", 1, &again));
	WANT(!memcmp(&first.reply.node_add, &again.reply.node_add,
		     sizeof(first.reply.node_add)));
	TRY(sim_node_key(&actor->world->key, 1, &key));
	WANT(first.reply.node_add.node == 1 &&
	     !memcmp(first.reply.node_add.secret, key.key.bytes,
		     REEF_SECRET_SIZE));
	WANT(add_node(actor, "a", 2, NULL) == -EEXIST);
	WANT(add_node(actor, "", 2, NULL) == -EINVAL);
	/* It has a link, and is removed: that link is nobody's. */
	TRY(connect_as_node(actor, 1, &node));
	remove.ask.node_remove.node = 1;
	TRY(actor_call(actor, REEF_POOL_NODE_REMOVE, 2, &remove, NULL));
	WANT(reef_rpc_call(node, REEF_POOL_NODE_REGISTER, 0, &body, NULL,
			   SECOND) == -REEF_EAUTH);
	reef_peer_close(node);
	WANT(connect_as_node(actor, 1, &node) == -REEF_EAUTH);
	/* Another one of that name has another number, and another key. */
	TRY(add_node(actor, "a", 3, &again));
	WANT(again.reply.node_add.node == 2);
	WANT(connect_as_node(actor, 1, &node) == -REEF_EAUTH);
	TRY(connect_as_node(actor, 2, &node));
	/* Nodes add no nodes, and users neither. */
	WANT(reef_rpc_call(node, REEF_POOL_NODE_ADD, 1, NULL, NULL, SECOND) ==
	     -EPERM);
	reef_peer_close(node);
	TRY(actor_call(actor, REEF_POOL_USER_ADD, 4, &ada, &user));
	actor->credential.user = user.reply.user_add.user;
	memcpy(actor->credential.key.bytes, user.reply.user_add.secret,
	       REEF_SECRET_SIZE);
	TRY(actor_connect(actor));
	WANT(add_node(actor, "b", 1, NULL) == -EPERM);
	return 0;
}

static void cast_added_nodes(struct broker_world *world)
{
	broker_world_add(world, added_nodes);
}

static void broker_nodes_are_added_and_removed(void **state)
{
	broker_world_run(cast_added_nodes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broker_impostor_is_not_let_in),
		cmocka_unit_test(broker_nodes_are_added_and_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
