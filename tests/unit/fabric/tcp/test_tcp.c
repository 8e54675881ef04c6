/* test_tcp.c - a tcp fabric and somebody who does not play by the rules.
 *
 * The node polls in a thread of its own. A *raw* client is a socket that has
 * been welcomed, and then says whatever the test wants; a *fake* node the same
 * on the other side. */
#include "fabric/fabric.h"
#include "fabric/socket.h"
#include "fabric/stream.h"
#include "fixture/units.h"
#include "wire/batch.h"
#include "wire/bytes.h"
#include "wire/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SIZE (1u << 20)
#define SESSION 0x10001u

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)identity;
	(void)session;
	memset(key, 7, REEF_KEY_SIZE);
	return 0;
}

static struct reef_connect_options as_session(uint32_t session)
{
	struct reef_connect_options options = {.session = session,
					       .identity = "test",
					       .timeout_ns = 20 * SECOND};

	memset(options.key, 7, sizeof(options.key));
	return options;
}

/* --- the node --- */

static struct node {
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_listener *listener;
	struct reef_memory *memory;
	struct reef_region *region;
	pthread_t thread;
	_Atomic int stop, opened, closed, reason;
	_Atomic(struct reef_link *) link; /* opened last */
} node;

static void on_opened(void *context, struct reef_link *link)
{
	(void)context;
	atomic_store(&node.link, link);
	atomic_fetch_add(&node.opened, 1);
}

static void on_closed(void *context, struct reef_link *link, int reason)
{
	(void)context;
	(void)link;
	atomic_store(&node.reason, reason);
	atomic_fetch_add(&node.closed, 1);
}

static void *node_run(void *arg)
{
	(void)arg;
	while (!atomic_load(&node.stop))
		reef_queue_wait(node.queue, 1000000);
	return NULL;
}

static void node_start(const struct reef_fabric_options *options)
{
	struct reef_listen_options listen = {.credential = credential,
					     .opened = on_opened,
					     .closed = on_closed};
	struct reef_memory_options memory = {.size = SIZE};

	memset(&node, 0, sizeof(node));
	assert_int_equal(reef_fabric_open("tcp", options, &node.fabric), 0);
	assert_int_equal(reef_queue_open(node.fabric, NULL, &node.queue), 0);
	assert_int_equal(reef_listen(node.queue, "tcp:127.0.0.1:0", &listen,
				     &node.listener),
			 0);
	assert_int_equal(reef_memory_create(&memory, &node.memory), 0);
	assert_int_equal(reef_expose(node.fabric, node.memory, &node.region),
			 0);
	assert_int_equal(pthread_create(&node.thread, NULL, node_run, NULL), 0);
}

static void node_pause(void)
{
	atomic_store(&node.stop, 1);
	pthread_join(node.thread, NULL);
	atomic_store(&node.stop, 0);
}

static void node_resume(void)
{
	assert_int_equal(pthread_create(&node.thread, NULL, node_run, NULL), 0);
}

static void node_stop(void)
{
	node_pause();
	reef_listener_close(node.listener);
	if (node.region)
		assert_int_equal(reef_withdraw(node.queue, node.region, SECOND),
				 0);
	reef_queue_close(node.queue);
	reef_fabric_close(node.fabric);
	reef_memory_destroy(node.memory);
}

static void await(_Atomic int *value, int least)
{
	uint64_t start_ns = reef_now_ns();

	while (atomic_load(value) < least) {
		assert_true(reef_now_ns() - start_ns < 20 * SECOND);
		sched_yield();
	}
}

static uint64_t word(uint64_t offset)
{
	uint8_t *at = (uint8_t *)node.memory->base + offset;

	return atomic_load((_Atomic uint64_t *)at);
}

/* --- a good client --- */

struct client {
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_remote *remote;
};

static void client_open(struct client *client,
			const struct reef_fabric_options *options)
{
	memset(client, 0, sizeof(*client));
	assert_int_equal(reef_fabric_open("tcp", options, &client->fabric), 0);
	assert_int_equal(reef_queue_open(client->fabric, NULL, &client->queue),
			 0);
}

static void client_join(struct client *client, const char *address,
			uint32_t session)
{
	struct reef_connect_options options = as_session(session);

	assert_int_equal(
		reef_connect(client->queue, address, &options, &client->link),
		0);
}

/* Open one, and attach it to the node's memory. */
static void client_meet(struct client *client,
			const struct reef_fabric_options *options,
			uint32_t session)
{
	client_open(client, options);
	client_join(client, reef_listener_address(node.listener), session);
	assert_int_equal(reef_attach(client->queue, client->link,
				     reef_region_key(node.region),
				     &client->remote),
			 0);
}

static void client_close(struct client *client)
{
	reef_link_close(client->link);
	reef_queue_close(client->queue);
	reef_fabric_close(client->fabric);
}

static int client_faa(struct client *client, uint64_t offset)
{
	struct reef_op op = {.kind = REEF_FAA,
			     .remote = client->remote,
			     .offset = offset,
			     .operand = 1};
	struct reef_batch batch = {
		.link = client->link, .ops = &op, .count = 1};

	return reef_run(client->queue, &batch);
}

/* The node is alive and well: somebody else is served. */
static void check_served(void)
{
	struct client client;
	uint64_t before = word(SIZE - 8);

	client_meet(&client, NULL, 0x70001);
	assert_int_equal(client_faa(&client, SIZE - 8), 0);
	client_close(&client);
	assert_int_equal(word(SIZE - 8), before + 1);
}

/* --- raw sockets --- */

static int raw_connect(const char *address)
{
	struct pollfd pollfd = {.events = POLLOUT};
	struct reef_address parsed;

	assert_int_equal(reef_address_parse_inet(address + 4, &parsed), 0);
	pollfd.fd = reef_socket_connect(&parsed);
	assert_true(pollfd.fd >= 0);
	poll(&pollfd, 1, 20000);
	assert_int_equal(reef_socket_connected(pollfd.fd), 0);
	return pollfd.fd;
}

static const struct reef_hello_local local = {.fabric = "tcp",
					      .domain = 1,
					      .ops_max = 256,
					      .length_max = 1u << 24,
					      .message_max = 1u << 16};

static int hello_run(struct reef_hello *hello, int fd)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	struct reef_hello_peer peer;
	int rc;

	while ((rc = reef_hello_step(hello, &peer)) == -EAGAIN)
		assert_int_equal(poll(&pollfd, 1, 20000), 1);
	reef_hello_destroy(hello);
	return rc;
}

/* A socket that has been welcomed as a session. */
static int raw_join(uint32_t session)
{
	struct reef_connect_options options = as_session(session);
	int fd = raw_connect(reef_listener_address(node.listener));
	struct reef_stream *stream;
	struct reef_hello *hello;
	const uint8_t *rest;
	size_t rest_size;

	assert_int_equal(reef_stream_create(fd, 1024, &stream), 0);
	assert_int_equal(reef_hello_connect(stream, &local, &options, &hello),
			 0);
	assert_int_equal(hello_run(hello, fd), 0);
	assert_int_equal(reef_stream_release(stream, &rest, &rest_size), fd);
	assert_int_equal(rest_size, 0);
	reef_stream_destroy(stream);
	return fd;
}

static void put(int fd, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	struct pollfd pollfd = {.fd = fd, .events = POLLOUT};
	ssize_t n;

	while (size) {
		n = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0) {
			assert_int_equal(errno, EAGAIN);
			assert_int_equal(poll(&pollfd, 1, 20000), 1);
			continue;
		}
		at += n;
		size -= (size_t)n;
	}
}

/* Exactly `size` bytes; false: the other side closed. */
static bool get(int fd, void *bytes, size_t size)
{
	uint8_t *at = bytes;
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	ssize_t n;

	while (size) {
		n = recv(fd, at, size, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return false;
		if (n < 0) {
			assert_int_equal(errno, EAGAIN);
			assert_int_equal(poll(&pollfd, 1, 20000), 1);
			continue;
		}
		at += n;
		size -= (size_t)n;
	}
	return true;
}

static void put_header(int fd, uint8_t type, uint64_t tag, uint32_t length)
{
	uint8_t bytes[REEF_FRAME_HEADER_SIZE];

	reef_frame_header_encode(&(struct reef_frame_header){.type = type,
							     .tag = tag,
							     .length = length},
				 bytes);
	put(fd, bytes, sizeof(bytes));
}

static bool get_frame(int fd, struct reef_frame_header *header,
		      uint8_t *payload, size_t size)
{
	uint8_t bytes[REEF_FRAME_HEADER_SIZE];

	if (!get(fd, bytes, sizeof(bytes)))
		return false;
	assert_int_equal(reef_frame_header_decode(bytes, header), 0);
	assert_true(header->length <= size);
	return get(fd, payload, header->length);
}

/* The node says BYE with this code, and closes. */
static void check_bye(int fd, int code)
{
	struct reef_frame_header header = {0};
	uint8_t payload[256];
	int reason;

	assert_true(get_frame(fd, &header, payload, sizeof(payload)));
	assert_int_equal(header.type, REEF_FRAME_BYE);
	assert_int_equal(reef_wire_bye_decode(payload, header.length, &reason),
			 0);
	assert_int_equal(reason, code);
	assert_false(get(fd, payload, 1));
	close(fd);
}

/* --- batches of a raw client --- */

static uint8_t request[4096];
static uint32_t request_size;

static void one_op(struct reef_wire_op op, const void *data, uint32_t size)
{
	if (!op.key && op.kind != REEF_SEND)
		op.key = reef_region_key(node.region);
	reef_wire_batch_encode(1, request);
	reef_wire_op_encode(&op, request + 8);
	if (size)
		memcpy(request + 32, data, size);
	request_size = 32 + size;
}

static void put_batch(int fd, uint64_t tag)
{
	put_header(fd, REEF_FRAME_BATCH, tag, request_size);
	put(fd, request, request_size);
}

static void check_done(int fd, uint64_t tag, uint32_t done_count, int status,
		       uint32_t length)
{
	struct reef_frame_header header = {0};
	struct reef_wire_done done;
	uint8_t payload[4096];

	assert_true(get_frame(fd, &header, payload, sizeof(payload)));
	assert_int_equal(header.type, REEF_FRAME_BATCH_DONE);
	assert_int_equal(header.tag, tag);
	assert_int_equal(header.length, length + 8);
	assert_int_equal(reef_wire_done_decode(payload + length, 1, &done), 0);
	assert_int_equal(done.done, done_count);
	assert_int_equal(done.status, status);
}

/* --- strangers --- */

static void tcp_garbage_before_hello_harms_nobody(void **state)
{
	uint8_t bytes[2000];
	unsigned int seed = 1;
	int fd;

	node_start(NULL);
	for (unsigned int round = 0; round < 100; round++) {
		fd = raw_connect(reef_listener_address(node.listener));
		for (size_t i = 0; i < sizeof(bytes); i++) {
			seed = seed * 1103515245 + 12345;
			bytes[i] = (uint8_t)(seed >> 16);
		}
		if (round % 2) {
			memset(bytes, 0, 16);
			bytes[0] = (uint8_t)(round * 3);
			bytes[4] = (uint8_t)(1 + round % 17);
		}
		send(fd, bytes, round * 20, MSG_NOSIGNAL);
		close(fd);
	}
	check_served();
	node_stop();
}

static void tcp_idle_strangers_keep_nobody_out(void **state)
{
	enum { MANY = 1100 };
	static int fds[MANY];
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur < 3 * MANY)
		skip();
	node_start(NULL);
	for (int i = 0; i < MANY; i++)
		fds[i] = raw_connect(reef_listener_address(node.listener));
	check_served();
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
	node_stop();
}

static void tcp_half_a_hello_is_given_up(void **state)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 5};
	uint8_t byte;
	int fd;

	node_start(&options);
	fd = raw_connect(reef_listener_address(node.listener));
	put_header(fd, REEF_FRAME_HELLO, 0, 144);
	assert_false(get(fd, &byte, 1));
	close(fd);
	node_stop();
}

/* --- welcomed, and malicious --- */

static void tcp_malformed_frame_ends_the_link(void **state)
{
	static const struct {
		uint8_t type;
		uint32_t length;
	} bad[] = {
		{REEF_FRAME_HELLO, 144},    {REEF_FRAME_CHALLENGE, 0},
		{REEF_FRAME_PROOF, 32},	    {REEF_FRAME_WELCOME, 56},
		{REEF_FRAME_PING, 1},	    {REEF_FRAME_ATTACH, 7},
		{REEF_FRAME_ATTACHED, 48},  {REEF_FRAME_WITHDRAW, 8},
		{REEF_FRAME_BATCH, 31},	    {REEF_FRAME_BATCH, UINT32_MAX},
		{REEF_FRAME_BATCH_DONE, 8}, {REEF_FRAME_BATCH_PART, 8},
		{REEF_FRAME_MESSAGE, 0},    {REEF_FRAME_QUEUE_PAIR, 0},
	};

	node_start(NULL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int fd = raw_join(SESSION);

		put_header(fd, bad[i].type, 0, bad[i].length);
		check_bye(fd, -REEF_EPROTO);
	}
	await(&node.closed, (int)(sizeof(bad) / sizeof(bad[0])));
	assert_int_equal(atomic_load(&node.reason), -REEF_EPROTO);
	check_served();
	node_stop();
}

static void tcp_descriptor_flag_refused(void **state)
{
	uint8_t bytes[REEF_FRAME_HEADER_SIZE] = {0};
	int fd;

	node_start(NULL);
	fd = raw_join(SESSION);
	bytes[4] = REEF_FRAME_PING;
	bytes[5] = REEF_FRAME_CARRIES_FD;
	put(fd, bytes, sizeof(bytes));
	check_bye(fd, -REEF_EPROTO);
	node_stop();
}

static void tcp_forged_operation_ends_the_link(void **state)
{
	static const struct reef_wire_op bad[] = {
		{.kind = 0, .length = 8},
		{.kind = 99, .length = 8},
		{.kind = REEF_READ, .flags = 2},
		{.kind = REEF_READ, .length = (16u << 20) + 1},
		{.kind = REEF_CAS, .length = 8, .offset = 4},
		{.kind = REEF_FAA, .length = 16},
		{.kind = REEF_SEND, .length = (64u << 10) + 1},
		{.kind = REEF_SEND, .key = 5},
	};

	node_start(NULL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int fd = raw_join(SESSION);

		one_op(bad[i], NULL, 0);
		put_batch(fd, 0);
		check_bye(fd, -REEF_EPROTO);
	}
	/* More operations than allowed; more than the frame holds. */
	for (uint32_t count = 256; count < 258; count++) {
		int fd = raw_join(SESSION);

		reef_wire_batch_encode(count, request);
		put_header(fd, REEF_FRAME_BATCH, 0, 100000);
		put(fd, request, 32);
		if (count > 256)
			check_bye(fd, -REEF_EPROTO);
		else
			close(fd);
	}
	check_served();
	node_stop();
}

static void tcp_bad_key_or_range_is_only_a_status(void **state)
{
	uint8_t eight[8] = {1};
	int fd;

	node_start(NULL);
	fd = raw_join(SESSION);
	one_op((struct reef_wire_op){.kind = REEF_READ, .length = 8, .key = 9},
	       NULL, 0);
	put_batch(fd, 0);
	check_done(fd, 0, 0, -REEF_EKEY, 0);
	one_op((struct reef_wire_op){.kind = REEF_WRITE,
				     .length = 8,
				     .offset = SIZE - 7},
	       eight, 8);
	put_batch(fd, 1);
	check_done(fd, 1, 0, -ERANGE, 0);
	one_op((struct reef_wire_op){.kind = REEF_FAA, .length = 8}, eight, 8);
	put_batch(fd, 2);
	check_done(fd, 2, 1, 0, 8);
	assert_int_equal(word(0), 1);
	close(fd);
	node_stop();
}

static void tcp_batch_byte_by_byte_executed(void **state)
{
	uint8_t data[24];
	int fd;

	node_start(NULL);
	fd = raw_join(SESSION);
	memset(data, 0x5a, sizeof(data));
	one_op((struct reef_wire_op){.kind = REEF_WRITE, .length = 24}, data,
	       24);
	put_header(fd, REEF_FRAME_BATCH, 5, request_size);
	for (uint32_t i = 0; i < request_size; i++)
		put(fd, request + i, 1);
	check_done(fd, 5, 1, 0, 0);
	assert_memory_equal(node.memory->base, data, 24);
	close(fd);
	node_stop();
}

static void tcp_truncated_batch_leaves_whole_words(void **state)
{
	uint8_t data[64];
	int fd;

	node_start(NULL);
	fd = raw_join(SESSION);
	memset(data, 0xff, sizeof(data));
	one_op((struct reef_wire_op){.kind = REEF_WRITE, .length = 64}, data,
	       64);
	put_header(fd, REEF_FRAME_BATCH, 0, request_size);
	put(fd, request, 32 + 21);
	shutdown(fd, SHUT_WR);
	await(&node.closed, 1);
	assert_true(word(0) == 0 || word(0) == UINT64_MAX);
	assert_true(word(8) == 0 || word(8) == UINT64_MAX);
	assert_int_equal(word(16), 0);
	close(fd);
	check_served();
	node_stop();
}

/* --- whose turn is over --- */

/* F5: half a batch on the old link; once the new one is welcomed, the rest of
 * it changes nothing. */
static void tcp_new_link_ends_the_old_one(void **state)
{
	uint8_t one[8] = {1}, byte;
	int old, next;

	node_start(NULL);
	old = raw_join(SESSION);
	one_op((struct reef_wire_op){.kind = REEF_FAA, .length = 8}, one, 8);
	put_header(old, REEF_FRAME_BATCH, 0, request_size);
	put(old, request, request_size - 1);
	next = raw_join(SESSION);
	send(old, request + request_size - 1, 1, MSG_NOSIGNAL);
	assert_false(get(old, &byte, 1));
	put_batch(next, 0);
	check_done(next, 0, 1, 0, 8);
	assert_int_equal(word(0), 1);
	assert_int_equal(atomic_load(&node.closed), 1);
	close(old);
	close(next);
	node_stop();
}

static void tcp_fenced_is_told_and_kept_out(void **state)
{
	struct reef_connect_options options = as_session(SESSION);
	struct client client;
	int fd;

	node_start(NULL);
	fd = raw_join(SESSION);
	client_open(&client, NULL);
	client_join(&client, reef_listener_address(node.listener), SESSION - 1);
	node_pause();
	assert_int_equal(reef_fence(node.queue, SESSION, 0), 0);
	node_resume();
	check_bye(fd, -REEF_EFENCED);
	while (reef_link_status(client.link) == 0)
		assert_int_equal(reef_queue_wait(client.queue, 20 * SECOND), 0);
	assert_int_equal(reef_link_status(client.link), -REEF_EFENCED);
	reef_link_close(client.link);
	client.link = NULL;
	assert_int_equal(reef_connect(client.queue,
				      reef_listener_address(node.listener),
				      &options, &client.link),
			 -REEF_EFENCED);
	await(&node.closed, 2);
	assert_int_equal(atomic_load(&node.reason), -REEF_EFENCED);
	client_close(&client);
	check_served();
	node_stop();
}

/* Who asks for much and takes nothing keeps the memory only as long as
 * silence_ns allows. */
static void tcp_reader_that_does_not_read_is_lost(void **state)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 2};
	int fd;

	node_start(&options);
	fd = raw_join(SESSION);
	for (uint64_t tag = 0; tag < 64; tag++) {
		one_op((struct reef_wire_op){.kind = REEF_READ, .length = SIZE},
		       NULL, 0);
		put_batch(fd, tag);
	}
	await(&node.closed, 1);
	assert_int_equal(atomic_load(&node.reason), -ETIMEDOUT);
	check_served();
	close(fd);
	node_stop();
}

static void tcp_withdraw_waits_for_answers_under_way(void **state)
{
	int fd;

	node_start(NULL);
	fd = raw_join(SESSION);
	for (uint64_t tag = 0; tag < 64; tag++) {
		one_op((struct reef_wire_op){.kind = REEF_READ, .length = SIZE},
		       NULL, 0);
		put_batch(fd, tag);
	}
	node_pause();
	/* All in one thread now: poll until the socket is full. */
	for (int i = 0; i < 1000; i++)
		reef_poll(node.queue);
	assert_int_equal(reef_withdraw(node.queue, node.region, 1000000),
			 -ETIMEDOUT);
	close(fd);
	assert_int_equal(reef_withdraw(node.queue, node.region, 20 * SECOND),
			 0);
	node.region = NULL;
	node_resume();
	node_stop();
}

static void tcp_parts_bounded(void **state)
{
	static uint8_t payload[REEF_WIRE_PART_MAX];
	struct reef_frame_header header = {0};
	uint64_t total = 0;
	int fd;

	node_start(NULL);
	memset(node.memory->base, 0x77, SIZE);
	fd = raw_join(SESSION);
	one_op((struct reef_wire_op){.kind = REEF_READ, .length = SIZE}, NULL,
	       0);
	put_batch(fd, 3);
	do {
		assert_true(get_frame(fd, &header, payload, sizeof(payload)));
		assert_int_equal(header.tag, 3);
		assert_int_equal(payload[0], 0x77);
		total += header.length;
	} while (header.type == REEF_FRAME_BATCH_PART);
	assert_int_equal(header.type, REEF_FRAME_BATCH_DONE);
	assert_int_equal(total, SIZE + 8);
	close(fd);
	node_stop();
}

/* --- a node that lies --- */

static struct fake {
	int listener, fd;
	char address[64];
	pthread_t thread;
	void (*run)(struct fake *fake);
	_Atomic int over;
} fake;

static void *fake_run(void *arg)
{
	struct reef_listen_options options = {.credential = credential};
	struct pollfd pollfd = {.fd = fake.listener, .events = POLLIN};
	struct reef_stream *stream;
	struct reef_hello *hello;
	const uint8_t *rest;
	size_t rest_size;

	(void)arg;
	poll(&pollfd, 1, 20000);
	fake.fd = reef_socket_accept(fake.listener);
	reef_stream_create(fake.fd, 1024, &stream);
	reef_hello_accept(stream, &local, &options, NULL, NULL, &hello);
	hello_run(hello, fake.fd);
	reef_stream_release(stream, &rest, &rest_size);
	reef_stream_destroy(stream);
	fake.run(&fake);
	return NULL;
}

static void fake_start(void (*run)(struct fake *fake))
{
	struct reef_address address, bound;

	strcpy(fake.address, "tcp:");
	fake.run = run;
	atomic_store(&fake.over, 0);
	assert_int_equal(reef_address_parse_inet("127.0.0.1:0", &address), 0);
	fake.listener = reef_socket_listen(&address, &bound);
	assert_true(fake.listener >= 0);
	reef_address_format(&bound, fake.address + 4, 60);
	assert_int_equal(pthread_create(&fake.thread, NULL, fake_run, NULL), 0);
}

static void fake_stop(void)
{
	atomic_store(&fake.over, 1);
	pthread_join(fake.thread, NULL);
	close(fake.fd);
	close(fake.listener);
}

/* Answer an ATTACH, and take one batch. */
static void fake_attach(struct fake *it)
{
	struct reef_frame_header header = {0};
	struct reef_wire_attached attached = {.size = 65536, .domain = 1};
	uint8_t payload[256], answer[REEF_WIRE_ATTACHED_SIZE];

	if (!get_frame(it->fd, &header, payload, sizeof(payload)))
		return;
	reef_wire_key_decode(payload, header.length, &attached.key);
	reef_wire_attached_encode(&attached, answer);
	put_header(it->fd, REEF_FRAME_ATTACHED, header.tag, sizeof(answer));
	put(it->fd, answer, sizeof(answer));
	get_frame(it->fd, &header, payload, sizeof(payload));
}

static struct {
	uint8_t type;
	uint64_t tag;
	uint32_t length;
	struct reef_wire_done done;
	bool has_tail;
} lie;

static void fake_lie(struct fake *it)
{
	uint8_t payload[256] = {0};

	fake_attach(it);
	if (lie.has_tail)
		reef_wire_done_encode(&lie.done, payload + lie.length - 8);
	put_header(it->fd, lie.type, lie.tag, lie.length);
	put(it->fd, payload, lie.length < 256 ? lie.length : 256);
	/* Until the client has gone. */
	while (get(it->fd, payload, 1))
		;
}

/* A READ of 8 and an FAA: 16 bytes of results. */
static int lied_to(struct client *client)
{
	uint64_t value;
	struct reef_op ops[2];
	struct reef_batch batch = {.ops = ops, .count = 2};
	int rc;

	fake_start(fake_lie);
	client_join(client, fake.address, SESSION);
	assert_int_equal(
		reef_attach(client->queue, client->link, 1, &client->remote),
		0);
	ops[0] = (struct reef_op){.kind = REEF_READ,
				  .remote = client->remote,
				  .local = &value,
				  .length = 8};
	ops[1] = (struct reef_op){.kind = REEF_FAA, .remote = client->remote};
	batch.link = client->link;
	rc = reef_run(client->queue, &batch);
	reef_link_close(client->link);
	client->link = NULL;
	fake_stop();
	return rc;
}

static void tcp_lying_node_loses_the_link(void **state)
{
	struct client client;

	client_open(&client, NULL);
	/* The truth, to begin with. */
#define LIE(...) (lie = (typeof(lie)){__VA_ARGS__}, lied_to(&client))
	assert_int_equal(LIE(REEF_FRAME_BATCH_DONE, 0, 24, {2, 0}, true), 0);
	assert_int_equal(LIE(REEF_FRAME_BATCH_DONE, 0, 16, {1, -EIO}, true),
			 -EIO);
	assert_int_equal(LIE(REEF_FRAME_BATCH_DONE, 1, 24, {2, 0}, true),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_BATCH_DONE, 0, 16, {2, 0}, true),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_BATCH_DONE, 0, 32, {2, 0}, true),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_BATCH_DONE, 0, 24, {1, -EIO}, true),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_BATCH_DONE, 0, 24, {3, 0}, true),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_BATCH_DONE, 0, 24, {1, 5}, true),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_BATCH_DONE, 0, 7, {0, 0}, false),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_BATCH_PART, 0, 17, {0, 0}, false),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_BATCH_PART, 0, 12, {0, 0}, false),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_BATCH_PART, 0, 0, {0, 0}, false),
			 -REEF_EINDOUBT);
	assert_int_equal(
		LIE(REEF_FRAME_BATCH_PART, 0, UINT32_MAX, {0, 0}, false),
		-REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_BATCH, 0, 32, {0, 0}, false),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_MESSAGE, 0, 65537, {0, 0}, false),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_MESSAGE, 1, 5, {0, 0}, false),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_ATTACH, 0, 8, {0, 0}, false),
			 -REEF_EINDOUBT);
	assert_int_equal(LIE(REEF_FRAME_ATTACHED, 0, 48, {0, 0}, false),
			 -REEF_EINDOUBT);
	client_close(&client);
}

/* An answer to a batch of which not all has been sent: the socket still reads
 * the caller's memory, so it must not be given back as done. */
static void fake_hasty(struct fake *it)
{
	struct reef_frame_header header = {0};
	struct reef_wire_attached attached = {.size = 1u << 30, .domain = 1};
	uint8_t payload[256], answer[REEF_WIRE_ATTACHED_SIZE];

	get_frame(it->fd, &header, payload, sizeof(payload));
	reef_wire_key_decode(payload, header.length, &attached.key);
	reef_wire_attached_encode(&attached, answer);
	put_header(it->fd, REEF_FRAME_ATTACHED, header.tag, sizeof(answer));
	put(it->fd, answer, sizeof(answer));
	/* The head of the batch, and no more. */
	get(it->fd, payload, 48);
	reef_wire_done_encode(&(struct reef_wire_done){1, 0}, payload);
	put_header(it->fd, REEF_FRAME_BATCH_DONE, 0, 8);
	put(it->fd, payload, 8);
	/* Without reading on. */
	await(&it->over, 1);
}

static void tcp_answer_before_the_question_ends_refused(void **state)
{
	struct reef_fabric_options options = {.length_max = 64u << 20};
	struct client client;
	struct reef_op op = {.kind = REEF_WRITE, .length = 16u << 20};
	struct reef_batch batch = {.ops = &op, .count = 1};

	client_open(&client, &options);
	fake_start(fake_hasty);
	client_join(&client, fake.address, SESSION);
	assert_int_equal(
		reef_attach(client.queue, client.link, 1, &client.remote), 0);
	/* Longer than what a socket takes. */
	op.local = calloc(1, op.length);
	op.remote = client.remote;
	batch.link = client.link;
	assert_int_equal(reef_run(client.queue, &batch), -REEF_EINDOUBT);
	client_close(&client);
	fake_stop();
	free(op.local);
}

static void fake_silent(struct fake *it)
{
	uint8_t byte;

	fake_attach(it);
	while (get(it->fd, &byte, 1))
		;
}

static void tcp_silent_node_is_lost(void **state)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 5};
	struct client client;

	client_open(&client, &options);
	fake_start(fake_silent);
	client_join(&client, fake.address, SESSION);
	assert_int_equal(
		reef_attach(client.queue, client.link, 1, &client.remote), 0);
	assert_int_equal(client_faa(&client, 0), -REEF_EINDOUBT);
	assert_int_equal(client_faa(&client, 0), -REEF_ENOLINK);
	client_close(&client);
	fake_stop();
}

static void fake_pong(struct fake *it)
{
	struct reef_frame_header header = {0};
	uint8_t payload[256] = {0};
	int pings = 0;

	fake_attach(it);
	/* Slower than silence_ns, but not silent. */
	while (pings < 8 &&
	       get_frame(it->fd, &header, payload, sizeof(payload))) {
		if (header.type != REEF_FRAME_PING)
			continue;
		put_header(it->fd, REEF_FRAME_PONG, header.tag, 0);
		pings++;
	}
	memset(payload, 0, sizeof(payload));
	reef_wire_done_encode(&(struct reef_wire_done){1, 0}, payload + 8);
	put_header(it->fd, REEF_FRAME_BATCH_DONE, 0, 16);
	put(it->fd, payload, 16);
	while (get(it->fd, payload, 1))
		;
}

static void tcp_slow_node_that_answers_pings_is_waited_for(void **state)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 5};
	struct client client;

	client_open(&client, &options);
	fake_start(fake_pong);
	client_join(&client, fake.address, SESSION);
	assert_int_equal(
		reef_attach(client.queue, client.link, 1, &client.remote), 0);
	assert_int_equal(client_faa(&client, 0), 0);
	client_close(&client);
	fake_stop();
}

/* --- good clients, hard cases --- */

/* A client that does not poll does not keep a server from sending, until
 * everything between them is full; and gets all of it when it looks. */
static void tcp_server_sends_without_waiting(void **state)
{
	enum { COUNT = 2000 };
	struct client client;
	struct reef_op op = {.kind = REEF_SEND};
	struct reef_batch batch = {.ops = &op, .count = 1};
	struct reef_message *message;
	uint32_t number;

	node_start(NULL);
	client_open(&client, NULL);
	client_join(&client, reef_listener_address(node.listener), SESSION);
	await(&node.opened, 1);
	node_pause();
	batch.link = atomic_load(&node.link);
	op.local = &number;
	op.length = sizeof(number);
	for (number = 0; number < COUNT; number++)
		assert_int_equal(reef_run(node.queue, &batch), 0);
	node_resume();
	for (uint32_t i = 0; i < COUNT; i++) {
		assert_int_equal(
			reef_receive(client.queue, 20 * SECOND, &message), 0);
		assert_int_equal(message->length, sizeof(number));
		memcpy(&number, message->bytes, sizeof(number));
		assert_int_equal(number, i);
		reef_message_free(message);
	}
	client_close(&client);
	node_stop();
}

/* Long enough to be sent from the caller's memory. */
static void tcp_long_message_of_the_server_ends(void **state)
{
	static uint8_t text[40000];
	struct reef_op op = {
		.kind = REEF_SEND, .local = text, .length = sizeof(text)};
	struct reef_batch batch = {.ops = &op, .count = 1};
	struct reef_message *message;
	struct client client;

	(void)state;
	node_start(NULL);
	client_open(&client, NULL);
	client_join(&client, reef_listener_address(node.listener), SESSION);
	await(&node.opened, 1);
	node_pause();
	batch.link = atomic_load(&node.link);
	for (int i = 0; i < 3; i++) {
		/* Each by itself: nothing comes after it to flush it out. */
		assert_int_equal(reef_run(node.queue, &batch), 0);
		assert_int_equal(
			reef_receive(client.queue, 20 * SECOND, &message), 0);
		assert_int_equal(message->length, sizeof(text));
		reef_message_free(message);
	}
	client_close(&client);
	node_resume();
	node_stop();
}

static void tcp_long_operations_arrive_whole(void **state)
{
	struct client client;
	uint8_t *out = malloc(SIZE), *in = malloc(SIZE);
	struct reef_op ops[3];
	struct reef_batch batch = {.ops = ops, .count = 3};

	node_start(NULL);
	client_meet(&client, NULL, SESSION);
	batch.link = client.link;
	for (uint32_t round = 0; round < 20; round++) {
		uint32_t from = round * 977, length = SIZE - 2 * from;

		for (uint32_t i = 0; i < length; i++)
			out[i] = (uint8_t)(i * 31 + (i >> 8) + round);
		memset(in, 0, length);
		ops[0] = (struct reef_op){.kind = REEF_WRITE,
					  .remote = client.remote,
					  .offset = from,
					  .local = out,
					  .length = length};
		ops[1] = ops[0];
		ops[1].kind = REEF_READ;
		ops[1].local = in;
		ops[2] = (struct reef_op){.kind = REEF_READ,
					  .remote = client.remote,
					  .local = out,
					  .length = 0};
		assert_int_equal(reef_run(client.queue, &batch), 0);
		assert_memory_equal(in, out, length);
	}
	client_close(&client);
	node_stop();
	free(out);
	free(in);
}

/* --- threads --- */

#define THREADS 4
#define ROUNDS 150

static void *attach_and_add(void *arg)
{
	struct client client = *(struct client *)arg;

	assert_int_equal(reef_queue_open(client.fabric, NULL, &client.queue),
			 0);
	for (int i = 0; i < ROUNDS; i++) {
		assert_int_equal(reef_attach(client.queue, client.link,
					     reef_region_key(node.region),
					     &client.remote),
				 0);
		assert_int_equal(client_faa(&client, 64), 0);
		reef_detach(client.queue, client.remote);
	}
	reef_queue_close(client.queue);
	return NULL;
}

/* Sends through a link that another queue of the node accepted. */
static void *send_to_client(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg << 32;
	struct reef_op op = {
		.kind = REEF_SEND, .local = &number, .length = sizeof(number)};
	struct reef_batch batch = {
		.link = atomic_load(&node.link), .ops = &op, .count = 1};
	struct reef_queue *queue;

	assert_int_equal(reef_queue_open(node.fabric, NULL, &queue), 0);
	for (int i = 0; i < ROUNDS; i++, number++)
		assert_int_equal(reef_run(queue, &batch), 0);
	reef_queue_close(queue);
	return NULL;
}

static void receive_all(struct client *client)
{
	uint64_t next[THREADS] = {0}, number;
	struct reef_message *message;

	for (int i = 0; i < THREADS / 2 * ROUNDS; i++) {
		assert_int_equal(
			reef_receive(client->queue, 20 * SECOND, &message), 0);
		memcpy(&number, message->bytes, sizeof(number));
		assert_int_equal(next[number >> 32]++, (uint32_t)number);
		reef_message_free(message);
	}
}

static void tcp_many_threads_share_a_link(void **state)
{
	pthread_t threads[THREADS];
	struct client client;

	node_start(NULL);
	client_open(&client, NULL);
	client_join(&client, reef_listener_address(node.listener), SESSION);
	await(&node.opened, 1);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(
			i % 2 ? pthread_create(&threads[i], NULL,
					       send_to_client, (void *)i)
			      : pthread_create(&threads[i], NULL,
					       attach_and_add, &client),
			0);
	receive_all(&client);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(word(64), THREADS / 2 * ROUNDS);
	client_close(&client);
	node_stop();
}

/* Until the owner of the link leaves it to another queue when it sleeps: then a
 * timer wakes it soon, though nothing came. False: this machine is too slow. */
static bool left_to_others(struct client *client, struct client *other)
{
	struct pollfd pollfd = {reef_queue_fd(client->queue), POLLIN, 0};

	for (int i = 0; i < 200; i++) {
		for (int j = 0; j < 2; j++) {
			assert_int_equal(client_faa(other, 64), 0);
			assert_int_equal(reef_queue_arm(client->queue), 0);
		}
		if (poll(&pollfd, 1, 10) > 0)
			return true;
		reef_poll(client->queue);
	}
	return false;
}

static void tcp_time_that_ran_out_before_sleep_is_no_sleep(void **state)
{
	const struct reef_fabric_options options = {.silence_ns = 400 * SECOND};
	struct client client, other;
	struct pollfd pollfd;
	pthread_t thread;

	node_start(NULL);
	client_meet(&client, &options, SESSION);
	await(&node.opened, 1);
	other = client;
	assert_int_equal(reef_queue_open(client.fabric, NULL, &other.queue), 0);
	/* As in arm, poll, sleep, if the thread stood still after arm. */
	if (left_to_others(&client, &other) && !reef_poll(client.queue)) {
		assert_int_equal(
			pthread_create(&thread, NULL, send_to_client, NULL), 0);
		pollfd =
			(struct pollfd){reef_queue_fd(client.queue), POLLIN, 0};
		assert_int_equal(poll(&pollfd, 1, 5000), 1);
		pthread_join(thread, NULL);
	}
	reef_queue_close(other.queue);
	client_close(&client);
	node_stop();
}

/* Long WRITEs of one thread, whose answers another reads as soon as they come.
 */
static void *write_often(void *arg)
{
	struct client client = *(struct client *)arg;
	struct reef_op op = {.kind = REEF_WRITE, .length = SIZE};
	struct reef_batch batch = {.link = client.link, .ops = &op, .count = 1};
	intptr_t rc = 0;

	assert_int_equal(reef_queue_open(client.fabric, NULL, &client.queue),
			 0);
	op.local = calloc(1, SIZE);
	op.remote = client.remote;
	for (int i = 0; i < 4 * ROUNDS && !rc; i++)
		rc = reef_run(client.queue, &batch);
	free(op.local);
	reef_queue_close(client.queue);
	atomic_store(&node.reason, 1);
	return (void *)rc;
}

static void tcp_answer_overtakes_the_writers_thread(void **state)
{
	struct client client;
	pthread_t thread;
	void *result;

	node_start(NULL);
	client_meet(&client, NULL, SESSION);
	assert_int_equal(pthread_create(&thread, NULL, write_often, &client),
			 0);
	while (!atomic_load(&node.reason))
		reef_poll(client.queue);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 0);
	client_close(&client);
	node_stop();
}

/* A link breaks while other threads have batches on it: all of them end. */
static void *add_until_lost(void *arg)
{
	struct client client = *(struct client *)arg;
	intptr_t rc;

	assert_int_equal(reef_queue_open(client.fabric, NULL, &client.queue),
			 0);
	while ((rc = client_faa(&client, 64)) == 0)
		;
	reef_queue_close(client.queue);
	return (void *)rc;
}

static void tcp_fence_ends_batches_of_all_threads(void **state)
{
	pthread_t threads[THREADS];
	struct client client;
	uint64_t before;
	void *result;

	node_start(NULL);
	client_meet(&client, NULL, SESSION);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
						add_until_lost, &client),
				 0);
	while (word(64) < 100)
		reef_poll(client.queue);
	/* From a thread and a queue of its own, while the node goes on. */
	{
		struct reef_queue *queue;

		assert_int_equal(reef_queue_open(node.fabric, NULL, &queue), 0);
		assert_int_equal(reef_fence(queue, SESSION, 20 * SECOND), 0);
		before = word(64);
		reef_queue_close(queue);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &result);
		assert_true((intptr_t)result == -REEF_EINDOUBT ||
			    (intptr_t)result == -REEF_ENOLINK ||
			    (intptr_t)result == -REEF_EFENCED);
	}
	while (reef_link_status(client.link) == 0)
		assert_int_equal(reef_queue_wait(client.queue, 20 * SECOND), 0);
	assert_int_equal(word(64), before);
	client_close(&client);
	node_stop();
}

static void tcp_limits_of_the_peer_kept(void **state)
{
	struct reef_fabric_options small = {
		.ops_max = 2, .length_max = 1000, .message_max = 100};
	struct client client;
	uint8_t bytes[1001] = {0};
	struct reef_op ops[3];
	struct reef_batch batch = {.ops = ops, .count = 1};

	node_start(&small);
	client_meet(&client, NULL, SESSION);
	batch.link = client.link;
	for (int i = 0; i < 3; i++)
		ops[i] = (struct reef_op){.kind = REEF_WRITE,
					  .remote = client.remote,
					  .local = bytes,
					  .length = 1000};
	assert_int_equal(reef_run(client.queue, &batch), 0);
	batch.count = 3;
	assert_int_equal(reef_run(client.queue, &batch), -EMSGSIZE);
	batch.count = 1;
	ops[0].length = 1001;
	assert_int_equal(reef_run(client.queue, &batch), -EMSGSIZE);
	ops[0] = (struct reef_op){
		.kind = REEF_SEND, .local = bytes, .length = 101};
	assert_int_equal(reef_run(client.queue, &batch), -EMSGSIZE);
	ops[0].length = 100;
	assert_int_equal(reef_run(client.queue, &batch), 0);
	client_close(&client);
	node_stop();
}

static void tcp_too_much_under_way_says_so(void **state)
{
	struct reef_fabric_options options = {.depth_max = 3};
	struct reef_op op = {.kind = REEF_FAA, .operand = 1};
	struct reef_batch batches[4];
	struct client client;

	node_start(NULL);
	client_meet(&client, &options, SESSION);
	op.remote = client.remote;
	for (int i = 0; i < 4; i++) {
		batches[i] = (struct reef_batch){
			.link = client.link, .ops = &op, .count = 1};
		assert_int_equal(reef_post(client.queue, &batches[i]),
				 i < 3 ? 0 : -EAGAIN);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(reef_wait(client.queue, &batches[i]), 0);
	assert_int_equal(reef_run(client.queue, &batches[3]), 0);
	assert_int_equal(word(0), 4);
	client_close(&client);
	node_stop();
}

static void tcp_closing_in_any_order_is_fine(void **state)
{
	struct client client;

	node_start(NULL);
	client_open(&client, NULL);
	client_join(&client, reef_listener_address(node.listener), SESSION);
	await(&node.opened, 1);
	node_pause();
	reef_queue_close(node.queue);
	reef_fabric_close(node.fabric);
	reef_memory_destroy(node.memory);
	while (reef_link_status(client.link) == 0)
		assert_int_equal(reef_queue_wait(client.queue, 20 * SECOND), 0);
	reef_queue_close(client.queue);
	reef_fabric_close(client.fabric);
}

static void tcp_bad_addresses_and_options_refused(void **state)
{
	struct reef_fabric_options options = {.length_max = UINT32_MAX};
	struct reef_connect_options connect = as_session(SESSION);
	struct reef_listen_options listen = {.credential = credential};
	struct reef_listener *listener;
	struct reef_fabric *fabric;
	struct client client;

	assert_int_equal(reef_fabric_open("tcp", &options, &fabric), -EINVAL);
	client_open(&client, NULL);
	assert_int_equal(
		reef_connect(client.queue, "shm:/x", &connect, &client.link),
		-EINVAL);
	assert_int_equal(reef_connect(client.queue, "tcp:127.0.0.1", &connect,
				      &client.link),
			 -EINVAL);
	assert_int_equal(reef_connect(client.queue, "tcp:127.0.0.1:1", &connect,
				      &client.link),
			 -ECONNREFUSED);
	assert_int_equal(reef_listen(client.queue, "tcp:300.0.0.1:x", &listen,
				     &listener),
			 -EINVAL);
	client.link = NULL;
	client_close(&client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tcp_garbage_before_hello_harms_nobody),
		cmocka_unit_test(tcp_idle_strangers_keep_nobody_out),
		cmocka_unit_test(tcp_half_a_hello_is_given_up),
		cmocka_unit_test(tcp_malformed_frame_ends_the_link),
		cmocka_unit_test(tcp_descriptor_flag_refused),
		cmocka_unit_test(tcp_forged_operation_ends_the_link),
		cmocka_unit_test(tcp_bad_key_or_range_is_only_a_status),
		cmocka_unit_test(tcp_batch_byte_by_byte_executed),
		cmocka_unit_test(tcp_truncated_batch_leaves_whole_words),
		cmocka_unit_test(tcp_new_link_ends_the_old_one),
		cmocka_unit_test(tcp_fenced_is_told_and_kept_out),
		cmocka_unit_test(tcp_reader_that_does_not_read_is_lost),
		cmocka_unit_test(tcp_withdraw_waits_for_answers_under_way),
		cmocka_unit_test(tcp_parts_bounded),
		cmocka_unit_test(tcp_lying_node_loses_the_link),
		cmocka_unit_test(tcp_answer_before_the_question_ends_refused),
		cmocka_unit_test(tcp_silent_node_is_lost),
		cmocka_unit_test(
			tcp_slow_node_that_answers_pings_is_waited_for),
		cmocka_unit_test(tcp_server_sends_without_waiting),
		cmocka_unit_test(tcp_long_message_of_the_server_ends),
		cmocka_unit_test(tcp_long_operations_arrive_whole),
		cmocka_unit_test(tcp_many_threads_share_a_link),
		cmocka_unit_test(
			tcp_time_that_ran_out_before_sleep_is_no_sleep),
		cmocka_unit_test(tcp_answer_overtakes_the_writers_thread),
		cmocka_unit_test(tcp_fence_ends_batches_of_all_threads),
		cmocka_unit_test(tcp_limits_of_the_peer_kept),
		cmocka_unit_test(tcp_too_much_under_way_says_so),
		cmocka_unit_test(tcp_closing_in_any_order_is_fine),
		cmocka_unit_test(tcp_bad_addresses_and_options_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
