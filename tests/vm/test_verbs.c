/* test_verbs.c - what the conformance suite cannot ask of verbs: devices by
 * name, a forged device key, pieces and fragments, two queues in one thread,
 * and how long it takes to notice that the other end is dead, or its host cut
 * off.
 *
 *   test_verbs                with REEF_VM_HOSTS=2: host 1 serves, host 2 tests
 *
 * The server does what messages of a session of its own tell it, so that it may
 * be on another machine. Times are printed, never judged. */
#include "check.h"
#include "fabric/verbs/verbs.h"
#include "fixture/units.h"
#include "verbs_server.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SESSION(slot) (((uint32_t)(slot) << 16) | 1u)
#define SIZE (4u << 20)

static void log_sink(void *context, enum reef_log_level level, const char *area,
		     const char *text)
{
	(void)context;
	(void)level;
	printf("       %s: %s\n", area, text);
	fflush(stdout);
}

/* --- the client's means --- */

struct client {
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_queue *boss_queue;
	struct reef_link *boss;
	char address[64];
};

static int connect_session(struct client *client, struct reef_queue *queue,
			   uint32_t session, struct reef_link **out)
{
	struct reef_connect_options connect = {.session = session,
					       .identity = "test",
					       .timeout_ns = 20 * SECOND};
	int rc, tries;

	memcpy(connect.key, server_key, REEF_KEY_SIZE);
	for (tries = 0; tries < 600; tries++) {
		rc = reef_connect(queue, client->address, &connect, out);
		if (rc != -ECONNREFUSED && rc != -EHOSTUNREACH)
			break;
		reef_sleep(50 * MILLISECOND); /* it has not begun to listen */
	}
	return rc;
}

static int64_t give_order(struct client *client, uint64_t what, uint64_t a,
			  uint64_t b, uint64_t *value)
{
	struct order order = {what, a, b};
	struct reef_message *message;
	struct answer answer;

	send_bytes(client->boss_queue, client->boss, &order, sizeof(order));
	if (what == DIE || what == QUIT)
		return 0;
	CHECK_EQ(reef_receive(client->boss_queue, 60 * SECOND, &message), 0);
	CHECK_EQ(message->length, sizeof(answer));
	memcpy(&answer, message->bytes, sizeof(answer));
	reef_message_free(message);
	if (value)
		*value = answer.value;
	return answer.result;
}

static struct reef_remote *borrow(struct client *client, struct reef_link *link,
				  uint64_t size, uint64_t *key)
{
	struct reef_remote *remote;

	CHECK_EQ(give_order(client, EXPOSE, size, 0, key), 0);
	CHECK_EQ(reef_attach(client->queue, link, *key, &remote), 0);
	CHECK_EQ(reef_remote_size(remote), size);
	return remote;
}

static int run_ops(struct client *client, struct reef_link *link,
		   struct reef_op *ops, uint32_t count)
{
	struct reef_batch batch = {.link = link, .ops = ops, .count = count};

	return reef_run(client->queue, &batch);
}

/* --- tests --- */

static void devices_are_found_by_name(struct client *client)
{
	static const struct {
		const char *name;
		int result;
	} cases[] = {
		{NULL, 0},
		{"rxe0", 0},
		{"rxe0:1", 0},
		{"rxe0:1:0", 0},
		{"rxe0:1:1", 0},
		{"rxe0:2", -ENODEV},
		{"rxe0:1:77", -ENODEV},
		{"none", -ENODEV},
		{"rxe0:", -EINVAL},
		{"rxe0:x", -EINVAL},
		{"rxe0:1:", -EINVAL},
		{":1", -EINVAL},
		{"rxe0:1:1:1", -EINVAL},
		{"rxe0:0", -EINVAL},
	};
	struct reef_fabric *fabric;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct reef_fabric_options device = {.device = cases[i].name};

		rc = reef_fabric_open("verbs", &device, &fabric);
		CHECK_EQ(rc, cases[i].result);
		if (rc)
			continue;
		CHECK_EQ(reef_fabric_domain(fabric),
			 reef_fabric_domain(client->fabric));
		CHECK(reef_fabric_domain(fabric) != reef_domain_cpu());
		if (i == 3)
			CHECK(strstr(reef_fabric_description(fabric), "gid 0"));
		reef_fabric_close(fabric);
	}
	CHECK(strstr(reef_fabric_description(client->fabric), "10.77.0."));
}

/* Lengths around every border between ways to stage and cut. */
static void pieces_come_together(struct client *client)
{
	static const uint32_t lengths[] = {
		1,     7,     8,      127,	128,	 129,  1023,
		1024,  1025,  4096,   8191,	8192,	 8193, 65535,
		65536, 65537, 300001, 1u << 20, 3u << 20};
	uint8_t *out = malloc(SIZE), *in = malloc(SIZE);
	struct reef_buffer *buffers[2], *buffer;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t key;
	uint32_t i, j, way;

	CHECK_EQ(reef_buffer_register(client->fabric, out, SIZE, &buffers[0]),
		 0);
	CHECK_EQ(reef_buffer_register(client->fabric, in, SIZE, &buffers[1]),
		 0);
	CHECK_EQ(connect_session(client, client->queue, SESSION(1), &link), 0);
	remote = borrow(client, link, SIZE, &key);
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (way = 0; way < 4; way++) {
			uint32_t length = lengths[i];
			struct reef_op ops[2] = {{.kind = REEF_WRITE,
						  .remote = remote,
						  .offset = i,
						  .local = out,
						  .length = length},
						 {.kind = REEF_READ,
						  .remote = remote,
						  .offset = i,
						  .local = in,
						  .length = length}};

			for (j = 0; j < length; j++)
				out[j] = (uint8_t)(j * 31 + i * 7 + way + 1);
			memset(in, 0, length + 1);
			buffer = way & 1 ? buffers[0] : NULL;
			ops[0].buffer = buffer;
			ops[1].buffer = way & 2 ? buffers[1] : NULL;
			CHECK_EQ(run_ops(client, link, ops, 2), 0);
			CHECK(!memcmp(in, out, length));
			CHECK_EQ(in[length], 0);
		}
	}
	reef_link_close(link);
	reef_buffer_unregister(buffers[0]);
	reef_buffer_unregister(buffers[1]);
	free(out);
	free(in);
}

static void long_messages_come_back(struct client *client)
{
	static const uint32_t lengths[] = {0,	 1,	4095,  4096, 4097,
					   8192, 40000, 65535, 65536};
	uint8_t *bytes = malloc(65536);
	struct reef_message *message;
	struct reef_link *link;
	uint32_t i, j;

	CHECK_EQ(connect_session(client, client->queue, SESSION(1), &link), 0);
	for (i = 0; i < 5 * sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint32_t length =
			lengths[i % (sizeof(lengths) / sizeof(lengths[0]))];

		for (j = 0; j < length; j++)
			bytes[j] = (uint8_t)(j * 13 + i);
		send_bytes(client->queue, link, bytes, length);
		CHECK_EQ(reef_receive(client->queue, 60 * SECOND, &message), 0);
		CHECK_EQ(message->length, length);
		CHECK(!memcmp(message->bytes, bytes, length));
		CHECK(message->link == link);
		reef_message_free(message);
	}
	/* With several under way credits run out in the middle. */
	for (i = 0; i < 20; i++) {
		memset(bytes, (int)i, 65536);
		send_bytes(client->queue, link, bytes, 30000 + i);
	}
	for (i = 0; i < 20; i++) {
		CHECK_EQ(reef_receive(client->queue, 60 * SECOND, &message), 0);
		CHECK_EQ(message->length, 30000 + i);
		CHECK_EQ(message->bytes[29999], i);
		reef_message_free(message);
	}
	reef_link_close(link);
	free(bytes);
}

/* Wait until the client's device has heard that a request was refused, without
 * a poll: when the queue pair is in the error state, the completion that says
 * so is in the completion queue. */
static void await_refusal(struct reef_link *link)
{
	struct ibv_qp *pair = verbs_link(link)->pair;
	uint64_t start_ns = reef_now_ns();
	struct ibv_qp_init_attr made;
	struct ibv_qp_attr attributes;

	do {
		CHECK(reef_now_ns() - start_ns < 60 * SECOND);
		reef_sleep(MILLISECOND);
		CHECK_EQ(ibv_query_qp(pair, &attributes, IBV_QP_STATE, &made),
			 0);
	} while (attributes.qp_state != IBV_QPS_ERR);
}

/* Wait until the server has ended every link that holds the key. */
static void await_release(struct client *client, uint64_t key)
{
	uint64_t start_ns = reef_now_ns();

	while (give_order(client, WITHDRAW, key, 0, NULL))
		CHECK(reef_now_ns() - start_ns < 60 * SECOND);
}

/* A device key that was never given out: the other device refuses it, and the
 * connection is the price. The server notices that its queue pair is broken and
 * closes the channel, so the link's end may be heard of before the refusal is.
 * Here the client looks when it has both, and must tell of the refusal. */
static void forged_keys_end_the_link(struct client *client)
{
	struct reef_remote *remote, *forged;
	struct reef_batch first, second;
	struct reef_op ops[3], other;
	struct reef_link *link;
	uint64_t word = 7, key, value;

	CHECK_EQ(connect_session(client, client->queue, SESSION(1), &link), 0);
	remote = borrow(client, link, 4096, &key);
	CHECK_EQ(reef_attach(client->queue, link, key, &forged), 0);
	reef_container(forged, struct verbs_remote, remote)->rkey ^= 0x5a5a00;
	ops[0] = (struct reef_op){
		.kind = REEF_FAA, .remote = remote, .operand = 1};
	ops[1] = (struct reef_op){.kind = REEF_WRITE,
				  .remote = forged,
				  .local = &word,
				  .length = 8};
	ops[2] = (struct reef_op){
		.kind = REEF_FAA, .remote = remote, .offset = 8, .operand = 1};
	other = ops[2];
	first = (struct reef_batch){.link = link, .ops = ops, .count = 3};
	second = (struct reef_batch){.link = link, .ops = &other, .count = 1};
	CHECK_EQ(reef_post(client->queue, &first), 0);
	CHECK_EQ(reef_post(client->queue, &second), 0);
	await_refusal(link);
	CHECK_EQ(give_order(client, LOAD, key, 0, &value), 0);
	CHECK_EQ(value, 1);
	CHECK_EQ(give_order(client, LOAD, key, 8, &value), 0);
	CHECK_EQ(value, 0);
	await_release(client, key);
	CHECK_EQ(reef_wait(client->queue, &first), -REEF_EKEY);
	CHECK_EQ(ops[0].status, 0);
	CHECK_EQ(ops[1].status, -REEF_EKEY);
	CHECK_EQ(ops[2].status, -REEF_ENOTDONE);
	CHECK_EQ(reef_wait(client->queue, &second), -REEF_EINDOUBT);
	CHECK_EQ(other.status, -REEF_EINDOUBT);
	CHECK_EQ(reef_link_status(link), -REEF_ENOLINK);
	CHECK_EQ(run_ops(client, link, ops, 1), -REEF_ENOLINK);
	CHECK_EQ(reef_attach(client->queue, link, key, &forged), -REEF_ENOLINK);
	reef_link_close(link);
}

/* A device key that another link was given, and which is good there. */
static void keys_of_other_links_end_the_link(struct client *client)
{
	struct reef_link *one, *other;
	struct reef_remote *remote, *forged;
	struct reef_op op = {.kind = REEF_READ, .length = 8};
	uint64_t word = 7, key, other_key, value, kind;

	CHECK_EQ(connect_session(client, client->queue, SESSION(1), &one), 0);
	remote = borrow(client, one, 4096, &key);
	for (kind = 0; kind < 3; kind++) {
		CHECK_EQ(connect_session(client, client->queue, SESSION(2),
					 &other),
			 0);
		forged = borrow(client, other, 4096, &other_key);
		reef_container(forged, struct verbs_remote, remote)->rkey =
			reef_container(remote, struct verbs_remote, remote)
				->rkey;
		op = (struct reef_op){
			.kind = kind == 0   ? REEF_READ
				: kind == 1 ? REEF_WRITE
					    : REEF_FAA,
			.remote = forged,
			.local = &word,
			.length = kind < 2 ? 8 : 0,
			.operand = 1,
		};
		CHECK_EQ(run_ops(client, other, &op, 1), -REEF_EKEY);
		CHECK_EQ(word, 7);
		reef_link_close(other);
		await_release(client, other_key);
	}
	op = (struct reef_op){.kind = REEF_FAA, .remote = remote, .operand = 1};
	CHECK_EQ(run_ops(client, one, &op, 1), 0);
	CHECK_EQ(give_order(client, LOAD, key, 0, &value), 0);
	CHECK_EQ(value, 1);
	reef_link_close(one);
	await_release(client, key);
}

/* A key goes back when the batches that may use it have ended. */
static void withdrawn_keys_wait_for_batches(struct client *client)
{
	enum { BATCHES = 20 };
	struct reef_batch batches[BATCHES];
	struct reef_op ops[BATCHES];
	struct reef_remote *remote;
	struct reef_link *link;
	uint8_t *bytes = calloc(1, 1u << 20);
	uint64_t key;
	int64_t rc;
	int i, tries;

	CHECK_EQ(connect_session(client, client->queue, SESSION(1), &link), 0);
	remote = borrow(client, link, 1u << 20, &key);
	for (i = 0; i < BATCHES; i++) {
		ops[i] = (struct reef_op){.kind = REEF_WRITE,
					  .remote = remote,
					  .local = bytes,
					  .length = 1u << 20};
		batches[i] = (struct reef_batch){
			.link = link, .ops = &ops[i], .count = 1};
		CHECK_EQ(reef_post(client->queue, &batches[i]), 0);
	}
	rc = give_order(client, WITHDRAW, key, 0, NULL);
	CHECK(rc == 0 || rc == -ETIMEDOUT);
	for (i = 0; i < BATCHES; i++)
		CHECK_EQ(reef_wait(client->queue, &batches[i]), 0);
	for (tries = 0; rc && tries < 100; tries++) {
		reef_poll(client->queue);
		rc = give_order(client, WITHDRAW, key, 0, NULL);
	}
	CHECK_EQ(rc, 0);
	reef_poll(client->queue);
	CHECK_EQ(run_ops(client, link, ops, 1), -REEF_EKEY);
	reef_detach(client->queue, remote);
	CHECK_EQ(reef_attach(client->queue, link, key, &remote), -REEF_EKEY);
	CHECK_EQ(reef_link_status(link), 0);
	reef_link_close(link);
	free(bytes);
}

/* A queue posts to, and attaches through, a link that another one opened and
 * that nobody polls meanwhile. */
static void queues_share_a_link(struct client *client)
{
	struct reef_queue *second;
	struct reef_remote *remote;
	struct reef_link *link;
	struct reef_batch batch;
	struct reef_op op;
	uint64_t key;
	int i;

	CHECK_EQ(reef_queue_open(client->fabric, NULL, &second), 0);
	CHECK_EQ(connect_session(client, client->queue, SESSION(1), &link), 0);
	CHECK_EQ(give_order(client, EXPOSE, 4096, 0, &key), 0);
	CHECK_EQ(reef_attach(second, link, key, &remote), 0);
	for (i = 0; i < 100; i++) {
		op = (struct reef_op){
			.kind = REEF_FAA, .remote = remote, .operand = 1};
		batch = (struct reef_batch){
			.link = link, .ops = &op, .count = 1};
		CHECK_EQ(reef_run(i % 3 ? second : client->queue, &batch), 0);
		CHECK_EQ(op.result, i);
	}
	/* The owner closes the link with the other queue's batch under way. */
	CHECK_EQ(reef_post(second, &batch), 0);
	reef_link_close(link);
	i = reef_wait(second, &batch);
	CHECK(i == 0 || i == -REEF_EINDOUBT);
	reef_queue_close(second);
}

static void fences_end_what_is_under_way(struct client *client)
{
	enum { BATCHES = 30 };
	struct reef_batch batches[BATCHES];
	struct reef_op ops[BATCHES];
	struct reef_remote *remote;
	struct reef_link *link, *again;
	uint64_t key, value, later, start_ns;
	int i, rc, done = 0;

	CHECK_EQ(connect_session(client, client->queue, SESSION(77), &link), 0);
	remote = borrow(client, link, 4096, &key);
	for (i = 0; i < BATCHES; i++) {
		ops[i] = (struct reef_op){
			.kind = REEF_FAA, .remote = remote, .operand = 1};
		batches[i] = (struct reef_batch){
			.link = link, .ops = &ops[i], .count = 1};
		CHECK_EQ(reef_post(client->queue, &batches[i]), 0);
	}
	start_ns = reef_now_ns();
	CHECK_EQ(give_order(client, FENCE, SESSION(77), 0, NULL), 0);
	printf("       fenced after %llu us\n",
	       (unsigned long long)(reef_now_ns() - start_ns) / 1000);
	CHECK_EQ(give_order(client, LOAD, key, 0, &value), 0);
	for (i = 0; i < BATCHES; i++) {
		rc = reef_wait(client->queue, &batches[i]);
		CHECK(rc == 0 || rc == -REEF_EINDOUBT);
		done += rc == 0;
	}
	CHECK((uint64_t)done <= value);
	/* Batches end in doubt until the library knows of the fence. */
	for (i = 0; i < 1000; i++) {
		rc = run_ops(client, link, ops, 1);
		if (rc == -REEF_EFENCED)
			break;
		CHECK_EQ(rc, -REEF_EINDOUBT);
		reef_sleep(MILLISECOND);
	}
	CHECK_EQ(rc, -REEF_EFENCED);
	CHECK_EQ(connect_session(client, client->queue, SESSION(77), &again),
		 -REEF_EFENCED);
	CHECK_EQ(give_order(client, LOAD, key, 0, &later), 0);
	CHECK_EQ(later, value);
	reef_link_close(link);
	/* The next generation of the slot may come. */
	CHECK_EQ(connect_session(client, client->queue, SESSION(77) + 1, &link),
		 0);
	reef_link_close(link);
}

#define ROWERS 3

struct rower {
	struct client *client;
	struct reef_link *link;
	struct reef_remote *remote;
	uint64_t index;
	_Atomic uint64_t strokes;
	int result;
};

static void *row(void *arg)
{
	struct rower *rower = arg;
	uint64_t words[64] = {0}, faa = 0;
	struct reef_queue *queue;
	int rc = 0;

	CHECK_EQ(reef_queue_open(rower->client->fabric, NULL, &queue), 0);
	while (!rc) {
		struct reef_op ops[4] = {
			{.kind = REEF_WRITE,
			 .remote = rower->remote,
			 .offset = 1024 * rower->index,
			 .local = words,
			 .length = sizeof(words)},
			{.kind = REEF_FAA,
			 .remote = rower->remote,
			 .offset = 8192 + 8 * rower->index,
			 .operand = 1},
			{.kind = REEF_READ,
			 .remote = rower->remote,
			 .offset = 1024 * rower->index,
			 .local = words,
			 .length = sizeof(words)},
			{.kind = REEF_SEND,
			 .flags = REEF_ORDERED,
			 .local = words,
			 .length = sizeof(words)},
		};
		struct reef_batch batch = {
			.link = rower->link, .ops = ops, .count = 4};

		rc = reef_run(queue, &batch);
		if (!rc)
			CHECK_EQ(ops[1].result, faa++);
		atomic_fetch_add(&rower->strokes, 1);
	}
	rower->result = rc;
	reef_queue_close(queue);
	return NULL;
}

/* Threads share a link while its owner takes in the echoes; then it is fenced
 * under them. */
static void threads_meet_a_fence(struct client *client)
{
	struct rower rowers[ROWERS];
	struct reef_message *message;
	struct reef_remote *remote;
	pthread_t threads[ROWERS];
	struct reef_link *link;
	uint64_t key, least, start_ns = reef_now_ns();
	int i;

	CHECK_EQ(connect_session(client, client->queue, SESSION(88), &link), 0);
	remote = borrow(client, link, 16384, &key);
	for (i = 0; i < ROWERS; i++) {
		rowers[i] = (struct rower){.client = client,
					   .link = link,
					   .remote = remote,
					   .index = (uint64_t)i};
		CHECK_EQ(pthread_create(&threads[i], NULL, row, &rowers[i]), 0);
	}
	do {
		if (!reef_receive(client->queue, MILLISECOND, &message)) {
			CHECK_EQ(message->length, 512);
			reef_message_free(message);
		}
		for (least = UINT64_MAX, i = 0; i < ROWERS; i++)
			if (atomic_load(&rowers[i].strokes) < least)
				least = atomic_load(&rowers[i].strokes);
	} while (least < 100 && reef_now_ns() - start_ns < 60 * SECOND);
	CHECK(least >= 100);
	CHECK_EQ(give_order(client, FENCE, SESSION(88), 0, NULL), 0);
	for (i = 0; i < ROWERS; i++) {
		/* The owner of the link may have to read why it ended. */
		while (!reef_link_status(link))
			reef_poll(client->queue);
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
		CHECK(rowers[i].result == -REEF_EINDOUBT ||
		      rowers[i].result == -REEF_EFENCED);
	}
	CHECK_EQ(reef_link_status(link), -REEF_EFENCED);
	reef_link_close(link);
	while (!reef_receive(client->queue, 0, &message)) {
		CHECK(!message->link);
		reef_message_free(message);
	}
}

static void stream_until_lost(struct client *client, struct reef_link *link,
			      struct reef_remote *remote, const char *what)
{
	uint64_t start_ns = reef_now_ns(), last_ns = start_ns;
	struct reef_op op;
	uint8_t bytes[512];
	int rc;

	do {
		op = (struct reef_op){.kind = REEF_READ,
				      .remote = remote,
				      .local = bytes,
				      .length = sizeof(bytes)};
		rc = run_ops(client, link, &op, 1);
		if (!rc)
			last_ns = reef_now_ns();
	} while (!rc && reef_now_ns() - start_ns < 60 * SECOND);
	printf("       %s: noticed %llu ms after the last answer\n", what,
	       (unsigned long long)(reef_now_ns() - last_ns) / MILLISECOND);
	/* The kernel takes a killed process's regions apart before its queue
	 * pairs, so the last request may find its key gone. */
	CHECK(rc == -REEF_EINDOUBT || rc == -REEF_ENOLINK || rc == -REEF_EKEY);
	CHECK_EQ(reef_link_status(link), -REEF_ENOLINK);
}

/* The server ends without a BYE: its interface is down (two hosts), or it is
 * killed. */
static void dead_peers_are_noticed(struct client *client)
{
	bool cut = !strcmp(server_variable("REEF_VM_HOSTS", "1"), "2");
	struct reef_fabric_options quick = {0}; /* the default: a second */
	struct client other = *client;
	struct reef_remote *remote;
	struct reef_link *link;
	struct order order = {cut ? CUT : DIE, 0, 0};
	uint64_t key;

	CHECK_EQ(reef_fabric_open("verbs", &quick, &other.fabric), 0);
	CHECK_EQ(reef_queue_open(other.fabric, NULL, &other.queue), 0);
	CHECK_EQ(connect_session(&other, other.queue, SESSION(1), &link), 0);
	remote = borrow(&other, link, 4096, &key);
	send_bytes(client->boss_queue, client->boss, &order, sizeof(order));
	stream_until_lost(&other, link, remote,
			  cut ? "a host cut off" : "a killed process");
	reef_link_close(link);
	reef_queue_close(other.queue);
	reef_fabric_close(other.fabric);
}

/* Messages that have arrived are received though the link's end is heard first,
 * also where a device drops what a queue pair leaves (the server's does). */
static void arrived_messages_outlive_their_queue_pair(struct client *client)
{
	enum { MESSAGES = 7 };
	struct reef_link *link;
	uint64_t count = 0;
	int i = 1;

	CHECK_EQ(connect_session(client, client->queue, SESSION(78), &link), 0);
	CHECK_EQ(give_order(client, NAP, SECOND, SESSION(78), NULL), 0);
	/* The first is announced, as the server had asked for one. The others
	 * come when it is asleep. */
	send_bytes(client->queue, link, &i, sizeof(i));
	reef_sleep(200 * MILLISECOND);
	for (; i < MESSAGES; i++)
		send_bytes(client->queue, link, &i, sizeof(i));
	reef_link_close(link);
	CHECK_EQ(give_order(client, COUNT, 0, 0, &count), 0);
	CHECK_EQ(count, MESSAGES);
}

/* A child that has all descriptors, until it is killed. */
static pid_t fork_keeper(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

/* The end of a link is heard, and what was closed is not watched any more,
 * though a child has all of it open. */
static void forked_child_keeps_nothing_open(struct client *client)
{
	struct pollfd pollfd = {.events = POLLIN};
	uint64_t before, after = 0;
	struct reef_queue *queue;
	struct reef_link *link;
	int i, status;
	pid_t pid;

	CHECK_EQ(reef_queue_open(client->fabric, NULL, &queue), 0);
	CHECK_EQ(connect_session(client, queue, SESSION(79), &link), 0);
	CHECK_EQ(give_order(client, CLOSED, 0, 0, &before), 0);
	pid = fork_keeper();
	reef_link_close(link);
	pollfd.fd = reef_queue_fd(queue);
	for (i = 0; i < 20; i++) {
		CHECK(reef_queue_arm(queue) >= 0);
		CHECK(reef_poll(queue) >= 0);
		CHECK_EQ(poll(&pollfd, 1, 20), 0);
	}
	CHECK_EQ(give_order(client, CLOSED, 0, 0, &after), 0);
	CHECK_EQ(after, before + 1);
	kill(pid, SIGKILL);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	reef_queue_close(queue);
}

static const struct {
	const char *name;
	void (*run)(struct client *client);
} tests[] = {
	{"verbs_devices_are_found_by_name", devices_are_found_by_name},
	{"verbs_pieces_come_together", pieces_come_together},
	{"verbs_long_messages_come_back", long_messages_come_back},
	{"verbs_forged_keys_end_the_link", forged_keys_end_the_link},
	{"verbs_keys_of_other_links_end_the_link",
	 keys_of_other_links_end_the_link},
	{"verbs_withdrawn_keys_wait_for_batches",
	 withdrawn_keys_wait_for_batches},
	{"verbs_queues_share_a_link", queues_share_a_link},
	{"verbs_fences_end_what_is_under_way", fences_end_what_is_under_way},
	{"verbs_threads_meet_a_fence", threads_meet_a_fence},
	{"verbs_arrived_messages_outlive_their_queue_pair",
	 arrived_messages_outlive_their_queue_pair},
	{"verbs_forked_child_keeps_nothing_open",
	 forked_child_keeps_nothing_open},
	{"verbs_dead_peers_are_noticed", dead_peers_are_noticed}, /* last */
};

static int test(const char *server)
{
	struct client client = {0};
	size_t i, count = sizeof(tests) / sizeof(tests[0]);

	reef_log_set(log_sink, NULL, REEF_LOG_INFO);
	snprintf(client.address, sizeof(client.address), "verbs:%s:%d", server,
		 PORT);
	CHECK_EQ(reef_fabric_open("verbs", &server_options, &client.fabric), 0);
	CHECK_EQ(reef_queue_open(client.fabric, NULL, &client.queue), 0);
	CHECK_EQ(reef_queue_open(client.fabric, NULL, &client.boss_queue), 0);
	CHECK_EQ(
		connect_session(&client, client.boss_queue, BOSS, &client.boss),
		0);
	for (i = 0; i < count; i++) {
		tests[i].run(&client);
		printf("ok     %s\n", tests[i].name);
		fflush(stdout);
	}
	reef_link_close(client.boss);
	reef_queue_close(client.boss_queue);
	reef_queue_close(client.queue);
	reef_fabric_close(client.fabric);
	printf("%zu passed, 0 failed, 0 skipped\n", count);
	fflush(stdout);
	return 0;
}

int main(void)
{
	const char *hosts = server_variable("REEF_VM_HOSTS", "1");
	int pid, status, result;

	if (!strcmp(hosts, "2") &&
	    !strcmp(server_variable("REEF_VM_HOST", ""), "2"))
		return test(server_variable("REEF_VM_PEER", ""));
	fflush(NULL);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(server_main());
	}
	if (!strcmp(hosts, "2")) { /* the test cuts this host off in the end */
		waitpid(pid, &status, 0);
		return status != 0;
	}
	result = test(server_variable("REEF_VM_ADDRESS", "127.0.0.1"));
	waitpid(pid, &status, 0);
	return result || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
}
