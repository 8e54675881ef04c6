/* fuzz_broker.c - a whole broker, and what clients and nodes may say to it.
 *
 * Input: messages (messages.h) of 0: a session of the pool's owner, 1: a
 * session of another user, 2: a node that has registered, 3: somebody who has
 * no session, 4: nobody, time passes, 5: another node; 6: not a message, but a
 * byte for each of the next requests to nodes: what they answer. Whatever they
 * say: the broker serves, its state holds to its rules, and the next start
 * finds the same. */
#include "messages.h"

#include "base/store/store.h"
#include "fabric/sim/sim.h"
#include "fixture/units.h"
#include "pool/broker/broker.h"
#include "pool/broker/internal.h"
#include "pool/rpc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TTL (50 * MILLISECOND)
#define ADDRESS "sim:broker/1"

enum { OWNER, USER, NODE, STRANGER, TIME, OTHER_NODE, STATUSES, WHO };

struct play {
	struct reef_sim *sim;
	struct reef_sim_host *broker_host;
	struct reef_key key;
	struct fuzz_input input, statuses;
	struct reef_broker *broker;
	bool serves, over, again;
	int health;
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_peer *peers[WHO];
	uint32_t numbers[WHO]; /* of their last numbered requests */
	uint32_t links;
};

/* --- the broker --- */

/* Check that the broker's state can be written and read again. */
static void check_state(const struct reef_broker *broker)
{
	struct reef_state *again;
	uint8_t *bytes, *second;
	size_t size, second_size;

	FUZZ_CHECK(reef_state_encode(broker->state, &bytes, &size) == 0);
	FUZZ_CHECK(reef_state_decode(bytes, size, &again) == 0);
	FUZZ_CHECK(reef_state_encode(again, &second, &second_size) == 0);
	FUZZ_CHECK(size == second_size && memcmp(bytes, second, size) == 0);
	reef_state_destroy(again);
	free(bytes);
	free(second);
}

static int broker_main(struct reef_sim_host *host, void *arg)
{
	struct play *play = arg;
	struct reef_mesh_options kinds = {.kinds = "sim"};
	struct reef_broker_options options = {
		.store = reef_sim_host_store(host),
		.key = &play->key,
		.listen = ADDRESS,
		.ttl_ns = TTL,
		.node_ttl_ns = TTL,
		.snapshot_bytes = 2000,
		.sync_inline = true,
		.seed = 7,
	};
	struct reef_broker *broker;
	struct reef_node_key added;

	FUZZ_CHECK(reef_mesh_open(&kinds, &options.mesh) == 0);
	FUZZ_CHECK(reef_broker_start(&options, &broker) == 0);
	FUZZ_CHECK(reef_broker_node_key(broker, "one", &added) == 0);
	FUZZ_CHECK(reef_broker_node_key(broker, "two", &added) == 0);
	play->broker = broker;
	play->serves = true;
	while (!play->over)
		reef_sleep(MILLISECOND);
	check_state(broker);
	play->health = reef_broker_health(broker);
	reef_broker_stop(broker);
	reef_mesh_close(options.mesh);
	return 0;
}

/* --- the others, all in one place --- */

static int handle(void *context, const struct reef_request *request,
		  struct reef_body *answer, struct reef_cursor_out *room)
{
	struct play *play = context;

	if (request->header.kind == REEF_POOL_CONFIRM)
		return 0; /* else nothing would be answered */
	if (play->statuses.size > 0)
		return -(int)fuzz_take(&play->statuses);
	answer->reply.extent.keys[0] = 1;
	return 0;
}

static void connect_as(struct play *play, uint32_t which)
{
	/* What was rotated is told to the owner, and to nobody else. */
	uint32_t era = which == USER ? 0 : reef_broker_owner_era(play->broker);
	char identity[32];
	struct reef_connect_options options = {.identity = identity};
	struct reef_key key, node;

	if (which == NODE || which == OTHER_NODE) {
		options.identity = which == NODE ? "node:1" : "node:2";
		FUZZ_CHECK(reef_key_derive_node(&play->key,
						which == NODE ? 1 : 2,
						&node) == 0);
		FUZZ_CHECK(reef_key_derive_broker(&node, &key) == 0);
	} else {
		snprintf(identity, sizeof(identity), "user:%u:%u",
			 which == USER, era);
		FUZZ_CHECK(reef_key_derive_user(&play->key, which == USER, era,
						&key) == 0);
	}
	memcpy(options.key, key.bytes, sizeof(key.bytes));
	options.session = 0x80000000 + ++play->links;
	reef_peer_close(play->peers[which]);
	play->peers[which] = NULL;
	(void)reef_rpc_connect(play->rpc, ADDRESS, 0, &options,
			       &play->peers[which], NULL);
}

static int call_broker(struct play *play, uint32_t which, uint16_t kind,
		       uint32_t sequence, const struct reef_body *body)
{
	struct reef_answer answer = {0};
	int rc;

	if (!play->peers[which])
		return -REEF_ENOLINK;
	rc = reef_rpc_call(play->peers[which], kind, sequence, body, &answer,
			   TTL);
	reef_answer_free(&answer);
	return rc;
}

static struct reef_text text(const char *bytes)
{
	return (struct reef_text){bytes, (uint16_t)strlen(bytes)};
}

static void register_node(struct play *play, uint32_t which)
{
	struct reef_body node = {
		.ask.node_register = {.addresses = text("sim:nowhere/1"),
				      .incarnation = 1,
				      .capacity = 1 << 30},
	};

	connect_as(play, which);
	FUZZ_CHECK(call_broker(play, which, REEF_POOL_NODE_REGISTER, 0,
			       &node) == 0);
	FUZZ_CHECK(call_broker(play, which, REEF_POOL_NODE_READY, 0, NULL) ==
		   0);
}

/* Make what the fuzzed messages need: nodes, sessions, a space. */
static void set_up_pool(struct play *play)
{
	struct reef_body space = {
		.ask.space_open = {.name = text("s"),
				   .flags = REEF_POOL_CREATE,
				   .kind = REEF_SPACE_SHARED,
				   .keeping = REEF_KEEPING_REVOCABLE},
	};
	struct reef_body name = {.ask.user_add.name = text("user")};

	connect_as(play, OWNER);
	connect_as(play, STRANGER);
	register_node(play, NODE);
	register_node(play, OTHER_NODE);
	FUZZ_CHECK(call_broker(play, OWNER, REEF_POOL_SESSION_OPEN, 0, NULL) ==
		   0);
	FUZZ_CHECK(call_broker(play, OWNER, REEF_POOL_SPACE_OPEN, 1, &space) ==
		   0);
	FUZZ_CHECK(call_broker(play, OWNER, REEF_POOL_USER_ADD, 2, &name) == 0);
	play->numbers[OWNER] = 2;
	connect_as(play, USER);
	FUZZ_CHECK(call_broker(play, USER, REEF_POOL_SESSION_OPEN, 0, NULL) ==
		   0);
}

static void send_message(struct play *play, uint32_t which,
			 const uint8_t *bytes, uint32_t length)
{
	struct reef_op op = {
		.kind = REEF_SEND,
		.local = (void *)bytes,
		.length = length,
	};
	struct reef_batch batch = {.ops = &op, .count = 1};

	if (!play->peers[which] || !play->peers[which]->link)
		connect_as(play, which);
	if (!play->peers[which] || !play->peers[which]->link)
		return;
	batch.link = play->peers[which]->link;
	(void)reef_run(reef_port_queue(play->port, 0), &batch);
}

static void send_messages(struct play *play)
{
	struct fuzz_message message;
	uint32_t who, said = 0;
	uint8_t *bytes;

	while (said++ < FUZZ_MESSAGES_MAX &&
	       fuzz_next_message(&play->input, &message)) {
		who = message.who % WHO;
		if (who == TIME) {
			reef_sleep((uint64_t)message.length * TTL / 256);
		} else if (who == STATUSES) {
			play->statuses = (struct fuzz_input){message.bytes,
							     message.length};
		} else if (message.length > 0) {
			bytes = fuzz_message_copy(&message,
						  &play->numbers[who]);
			send_message(play, who, bytes, message.length);
			free(bytes);
		}
	}
	play->statuses.size = 0;
	reef_sleep(TTL);
}

static int others_main(struct reef_sim_host *host, void *arg)
{
	struct play *play = arg;
	struct reef_mesh_options kinds = {.kinds = "sim"};
	struct reef_rpc_options options = {.handle = handle, .context = play};
	int rc;

	while (!play->serves)
		reef_sleep(MILLISECOND);
	FUZZ_CHECK(reef_mesh_open(&kinds, &play->mesh) == 0);
	FUZZ_CHECK(reef_port_open(play->mesh, NULL, &play->port) == 0);
	FUZZ_CHECK(reef_rpc_create(play->port, &options, &play->rpc) == 0);
	if (!play->again) {
		set_up_pool(play);
		send_messages(play);
	}
	/* Whatever came before, a new session is served, unless there is no
	 * room, or nodes follow a newer broker, or too few this one. */
	connect_as(play, STRANGER);
	rc = call_broker(play, STRANGER, REEF_POOL_SESSION_OPEN, 0, NULL);
	FUZZ_CHECK(rc == 0 || rc == -ENOSPC || rc == -ETIMEDOUT ||
		   rc == -REEF_EINDOUBT ||
		   reef_broker_health(play->broker) == -ESTALE);
	play->over = true;
	reef_rpc_destroy(play->rpc);
	reef_port_close(play->port);
	reef_mesh_close(play->mesh);
	memset(play->peers, 0, sizeof(play->peers));
	return 0;
}

static void run_play(struct play *play)
{
	FUZZ_CHECK(reef_sim_run(play->sim, 1000000 * MILLISECOND) == 0);
	FUZZ_CHECK(play->over);
	FUZZ_CHECK(play->health == 0 || play->health == -ESTALE);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct reef_sim_options options = {.seed = 3, .calm = true};
	struct play play = {.input = {bytes, size}};
	struct reef_sim_host *host;

	memset(play.key.bytes, FUZZ_KEY_BYTE, sizeof(play.key.bytes));
	FUZZ_CHECK(reef_sim_create(&options, &play.sim) == 0);
	FUZZ_CHECK(reef_sim_host_add(play.sim, "broker", broker_main, &play,
				     &play.broker_host) == 0);
	FUZZ_CHECK(reef_sim_host_add(play.sim, "others", others_main, &play,
				     &host) == 0);
	run_play(&play);
	/* The next start finds the same state. */
	play.serves = play.over = false;
	play.again = true;
	reef_sim_host_kill(play.broker_host);
	reef_sim_host_kill(host);
	FUZZ_CHECK(reef_sim_host_restart(play.broker_host, broker_main,
					 &play) == 0);
	FUZZ_CHECK(reef_sim_host_restart(host, others_main, &play) == 0);
	run_play(&play);
	reef_sim_destroy(play.sim);
	return 0;
}
