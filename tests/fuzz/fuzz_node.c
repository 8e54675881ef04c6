/* fuzz_node.c - a whole node, and what a broker, sessions and other nodes may
 * say to it.
 *
 * Input: messages (messages.h) of 0: the broker it registered with, 1: a
 * session, 2: another node; 3: the session reaches for an extent that is there
 * now, and reads and writes it; 4: time passes; 5: not a message, but what the
 * next registration is answered with (its status, then the body of an answer);
 * 6: the broker's link is lost; 7: somebody with a wrong key wants in.
 *
 * Whatever they say: it never lends more than it has, what it counts as lent is
 * what it holds, and a broker that it has to believe has everything dropped. */
#include "messages.h"

#include "fabric/sim/sim.h"
#include "fixture/units.h"
#include "pool/node/internal.h"

#define TTL (50 * MILLISECOND)
#define CAPACITY (1u << 20)
#define SESSION 0x10001u
#define REMOTES 8

enum { BROKER, CLIENT, OTHER, TOUCH, TIME, ANSWER, CUT, STRANGER, WHO };

struct play {
	struct reef_sim *sim;
	struct reef_node_key key;
	struct fuzz_input input;
	bool listens, over;
	struct reef_node *node;
	struct reef_mesh *mesh;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_peer *broker; /* the node's link to us; NULL: none */
	struct reef_peer *peers[WHO];
	uint32_t links, readies, number;
	/* The answer to the next registration; none: as it should be. */
	struct fuzz_message answer;
	struct reef_remote *remotes[REMOTES];
	struct reef_link *reached; /* what those are of */
	uint32_t reaches;
};

/* --- the node --- */

static uint64_t held_by(const struct node_extent *extent)
{
	return extent->memory ? extent->memory->size : 0;
}

static void check_node(const struct reef_node *node)
{
	const struct node_extent *extent;
	uint64_t held = 0;

	FUZZ_CHECK(node->lent <= CAPACITY);
	if (node->jobs > 0)
		return; /* they count before they hold */
	for (uint32_t i = 0; i < node->extents_count; i++) {
		held += held_by(node->extents[i]);
		FUZZ_CHECK(i == 0 || node->extents[i - 1]->number <
					     node->extents[i]->number);
	}
	for (extent = node->leaving; extent; extent = extent->next)
		held += held_by(extent);
	FUZZ_CHECK(held == node->lent);
}

static int node_main(struct reef_sim_host *host, void *arg)
{
	struct play *play = arg;
	struct reef_mesh_options kinds = {.kinds = "sim"};
	struct reef_node_options options = {
		.key = &play->key,
		.broker = "sim:others/1",
		.listen = "sim:node/1",
		.capacity = CAPACITY,
		.simulated = true,
		.seed = 7,
	};

	while (!play->listens)
		reef_sleep(MILLISECOND);
	FUZZ_CHECK(reef_mesh_open(&kinds, &options.mesh) == 0);
	FUZZ_CHECK(reef_node_start(&options, &play->node) == 0);
	while (!play->over)
		reef_sleep(MILLISECOND);
	reef_node_stop(play->node);
	reef_mesh_close(options.mesh);
	return 0;
}

/* --- its broker --- */

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	struct play *play = context;
	struct reef_key derived;

	if (strcmp(identity, "node:1") != 0)
		return -REEF_EAUTH;
	FUZZ_CHECK(reef_key_derive_broker(&play->key.key, &derived) == 0);
	memcpy(key, derived.bytes, REEF_KEY_SIZE);
	return 0;
}

/* The input's answer: a status, then what answers a registration. */
static int answer_wildly(struct play *play, struct reef_body *answer,
			 struct reef_cursor_out *room)
{
	struct reef_cursor_in in = {play->answer.bytes, play->answer.length,
				    false};
	uint8_t status = (uint8_t)reef_cursor_get(&in, 1);

	play->answer.length = 0;
	answer->reply.node_register.node = (uint32_t)reef_cursor_get(&in, 4);
	answer->reply.node_register.ttl_ns = reef_cursor_get(&in, 8);
	answer->reply.node_register.broker_epoch = reef_cursor_get(&in, 8);
	reef_cursor_bytes(room, in.bytes, in.left);
	return status < 140 ? -(int)status : 0;
}

static int handle(void *context, const struct reef_request *request,
		  struct reef_body *answer, struct reef_cursor_out *room)
{
	struct play *play = context;

	if (!request->peer->accepted)
		return -EPERM; /* not a broker's link */
	switch (request->header.kind) {
	case REEF_POOL_NODE_REGISTER:
		if (play->answer.length > 0)
			return answer_wildly(play, answer, room);
		answer->reply.node_register.node = 1;
		answer->reply.node_register.ttl_ns = TTL;
		return 0;
	case REEF_POOL_NODE_READY:
		play->readies++;
		return 0;
	default:
		return 0;
	}
}

static void opened(void *context, struct reef_peer *peer)
{
	struct play *play = context;

	play->broker = peer;
}

static void closed(void *context, struct reef_peer *peer, int reason)
{
	struct play *play = context;

	if (play->broker == peer)
		play->broker = NULL;
}

/* --- the others --- */

static void connect_as(struct play *play, uint32_t who)
{
	struct reef_connect_options options = {
		.identity = who == CLIENT ? "session" : "pull:1:2",
		.session = who == CLIENT ? SESSION : 0x80000000 + ++play->links,
	};
	struct reef_key key;

	if (who == CLIENT)
		FUZZ_CHECK(reef_key_derive_link(&play->key.key, SESSION,
						&key) == 0);
	else
		FUZZ_CHECK(reef_key_derive_pull(&play->key.key, 1, 2, &key) ==
			   0);
	if (who == STRANGER)
		key.bytes[0] ^= 1;
	memcpy(options.key, key.bytes, sizeof(options.key));
	reef_peer_close(play->peers[who]);
	play->peers[who] = NULL;
	(void)reef_rpc_connect(play->rpc, "sim:node/1", 0, &options,
			       &play->peers[who], NULL);
	FUZZ_CHECK(who != STRANGER || !play->peers[who]);
}

static struct reef_link *link_of(struct play *play, uint32_t who)
{
	if (who == BROKER)
		return play->broker ? play->broker->link : NULL;
	if (!play->peers[who] || !play->peers[who]->link)
		connect_as(play, who);
	return play->peers[who] ? play->peers[who]->link : NULL;
}

static void send_message(struct play *play, uint32_t who,
			 const struct fuzz_message *message)
{
	struct reef_op op = {.kind = REEF_SEND, .length = message->length};
	struct reef_batch batch = {.ops = &op, .count = 1};

	batch.link = link_of(play, who);
	if (!batch.link || !message->length)
		return;
	op.local = fuzz_message_copy(message, &play->number);
	(void)reef_run(reef_port_queue(play->port, 0), &batch);
	free(op.local);
}

/* Attach one of the extents, and read and write it. */
static void use_extent(struct play *play, const struct fuzz_message *message)
{
	struct reef_queue *queue = reef_port_queue(play->port, 0);
	struct reef_link *link = link_of(play, CLIENT);
	uint32_t which = message->length, count = play->node->extents_count;
	struct reef_remote **remote = &play->remotes[which % REMOTES];
	uint64_t word = which;
	struct reef_op op = {.local = &word, .length = 8};
	struct reef_batch batch = {.link = link, .ops = &op, .count = 1};

	if (link != play->reached) { /* they went with it */
		memset(play->remotes, 0, sizeof(play->remotes));
		play->reached = link;
	}
	if (!link || !count)
		return;
	if (!*remote)
		(void)reef_attach(
			queue, link,
			play->node->extents[which % count]->keys.keys[0],
			remote);
	op.remote = *remote;
	op.kind = which & 1 ? REEF_READ : REEF_WRITE;
	if (op.remote && !reef_run(queue, &batch))
		play->reaches++;
}

static void send_messages(struct play *play)
{
	struct fuzz_message message;
	uint32_t who, said = 0;

	while (said++ < FUZZ_MESSAGES_MAX &&
	       fuzz_next_message(&play->input, &message)) {
		who = message.who % WHO;
		if (who <= OTHER)
			send_message(play, who, &message);
		else if (who == TOUCH)
			use_extent(play, &message);
		else if (who == TIME)
			reef_sleep((uint64_t)message.length * TTL / 64);
		else if (who == ANSWER)
			play->answer = message;
		else if (who == STRANGER)
			connect_as(play, who);
		else if (link_of(play, BROKER))
			reef_sim_lose_link(link_of(play, BROKER));
		check_node(play->node);
	}
}

/* Call as the newest broker there can be, until it is done. */
static void call_until_done(struct play *play, uint16_t kind,
			    struct reef_body *body)
{
	uint32_t tries = 0;
	int rc = -1;

	while (rc) {
		FUZZ_CHECK(tries++ < 1000);
		if (play->broker)
			rc = reef_rpc_call(play->broker, kind, 0, body, NULL,
					   10 * TTL);
		if (rc)
			reef_sleep(TTL);
	}
}

static void end_play(struct play *play)
{
	struct reef_body fence = {.ask.fence.session = SESSION};
	struct reef_body drop = {0};

	play->answer.length = 0;
	reef_rpc_set_epoch(play->rpc, UINT64_MAX);
	call_until_done(play, REEF_POOL_FENCE, &fence);
	while (play->node->extents_count > 0) {
		drop.ask.extent_drop.extent = play->node->extents[0]->number;
		call_until_done(play, REEF_POOL_EXTENT_DROP, &drop);
		check_node(play->node);
	}
	for (uint32_t i = 0; play->node->lent > 0; i++) {
		FUZZ_CHECK(i < 1000);
		reef_sleep(TTL);
	}
	check_node(play->node);
}

static int others_main(struct reef_sim_host *host, void *arg)
{
	struct play *play = arg;
	struct reef_mesh_options kinds = {.kinds = "sim"};
	struct reef_rpc_options options = {
		.handle = handle,
		.opened = opened,
		.closed = closed,
		.credential = credential,
		.context = play,
		.epoch = 1,
	};

	FUZZ_CHECK(reef_mesh_open(&kinds, &play->mesh) == 0);
	FUZZ_CHECK(reef_port_open(play->mesh, NULL, &play->port) == 0);
	FUZZ_CHECK(reef_rpc_create(play->port, &options, &play->rpc) == 0);
	FUZZ_CHECK(reef_rpc_listen(play->rpc, "sim:others/1", NULL, 0) == 0);
	play->listens = true;
	while (!play->readies)
		reef_sleep(MILLISECOND);
	send_messages(play);
	end_play(play);
	play->over = true;
	reef_rpc_destroy(play->rpc);
	reef_port_close(play->port);
	reef_mesh_close(play->mesh);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct reef_sim_options options = {.seed = 3, .calm = true};
	struct play play = {.input = {bytes, size}};

	play.key.node = 1;
	memset(play.key.key.bytes, FUZZ_KEY_BYTE, sizeof(play.key.key.bytes));
	FUZZ_CHECK(reef_sim_create(&options, &play.sim) == 0);
	FUZZ_CHECK(reef_sim_host_add(play.sim, "others", others_main, &play,
				     NULL) == 0);
	FUZZ_CHECK(reef_sim_host_add(play.sim, "node", node_main, &play,
				     NULL) == 0);
	FUZZ_CHECK(reef_sim_run(play.sim, 1000000 * MILLISECOND) == 0);
	FUZZ_CHECK(play.over);
	reef_sim_destroy(play.sim);
	return 0;
}
