/* test_tcp_liar.c - a client of tcp, and a node that does not play by the
 * rules: a *fake* node is a socket that welcomes, and then says whatever the
 * test wants. */
#include "fabric/fabric.h"
#include "fabric/socket.h"
#include "fabric/stream.h"
#include "fixture/tcp_node.h"
#include "fixture/units.h"
#include "wire/batch.h"
#include "wire/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	struct reef_listen_options options = {.credential = tcp_credential};
	struct pollfd pollfd = {.fd = fake.listener, .events = POLLIN};
	struct reef_stream *stream;
	struct reef_hello *hello;
	const uint8_t *rest;
	size_t rest_size;

	(void)arg;
	poll(&pollfd, 1, 20000);
	fake.fd = reef_socket_accept(fake.listener);
	reef_stream_create(fake.fd, 1024, &stream);
	reef_hello_accept(stream, &raw_local, &options, NULL, NULL, &hello);
	raw_hello_run(hello, fake.fd);
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

	if (!raw_get_frame(it->fd, &header, payload, sizeof(payload)))
		return;
	reef_wire_key_decode(payload, header.length, &attached.key);
	reef_wire_attached_encode(&attached, answer);
	raw_put_header(it->fd, REEF_FRAME_ATTACHED, header.tag, sizeof(answer));
	raw_put(it->fd, answer, sizeof(answer));
	raw_get_frame(it->fd, &header, payload, sizeof(payload));
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
	raw_put_header(it->fd, lie.type, lie.tag, lie.length);
	raw_put(it->fd, payload, lie.length < 256 ? lie.length : 256);
	/* Until the client has gone. */
	while (raw_get(it->fd, payload, 1))
		;
}

/* A READ of 8 and an FAA: 16 bytes of results. */
static int lied_to(struct tcp_client *client)
{
	uint64_t value;
	struct reef_op ops[2];
	struct reef_batch batch = {.ops = ops, .count = 2};
	int rc;

	fake_start(fake_lie);
	tcp_client_join(client, fake.address, SESSION);
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
	struct tcp_client client;

	tcp_client_open(&client, NULL);
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
	tcp_client_close(&client);
}

/* An answer to a batch of which not all has been sent: the socket still reads
 * the caller's memory, so it must not be given back as done. */
static void fake_hasty(struct fake *it)
{
	struct reef_frame_header header = {0};
	struct reef_wire_attached attached = {.size = 1u << 30, .domain = 1};
	uint8_t payload[256], answer[REEF_WIRE_ATTACHED_SIZE];

	raw_get_frame(it->fd, &header, payload, sizeof(payload));
	reef_wire_key_decode(payload, header.length, &attached.key);
	reef_wire_attached_encode(&attached, answer);
	raw_put_header(it->fd, REEF_FRAME_ATTACHED, header.tag, sizeof(answer));
	raw_put(it->fd, answer, sizeof(answer));
	/* The head of the batch, and no more. */
	raw_get(it->fd, payload, 48);
	reef_wire_done_encode(&(struct reef_wire_done){1, 0}, payload);
	raw_put_header(it->fd, REEF_FRAME_BATCH_DONE, 0, 8);
	raw_put(it->fd, payload, 8);
	/* Without reading on. */
	tcp_await(&it->over, 1);
}

static void tcp_answer_before_the_question_ends_refused(void **state)
{
	struct reef_fabric_options options = {.length_max = 64u << 20};
	struct tcp_client client;
	struct reef_op op = {.kind = REEF_WRITE, .length = 16u << 20};
	struct reef_batch batch = {.ops = &op, .count = 1};

	tcp_client_open(&client, &options);
	fake_start(fake_hasty);
	tcp_client_join(&client, fake.address, SESSION);
	assert_int_equal(
		reef_attach(client.queue, client.link, 1, &client.remote), 0);
	/* Longer than what a socket takes. */
	op.local = calloc(1, op.length);
	op.remote = client.remote;
	batch.link = client.link;
	assert_int_equal(reef_run(client.queue, &batch), -REEF_EINDOUBT);
	tcp_client_close(&client);
	fake_stop();
	free(op.local);
}

static void fake_silent(struct fake *it)
{
	uint8_t byte;

	fake_attach(it);
	while (raw_get(it->fd, &byte, 1))
		;
}

static void tcp_silent_node_is_lost(void **state)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 5};
	struct tcp_client client;

	tcp_client_open(&client, &options);
	fake_start(fake_silent);
	tcp_client_join(&client, fake.address, SESSION);
	assert_int_equal(
		reef_attach(client.queue, client.link, 1, &client.remote), 0);
	assert_int_equal(tcp_client_faa(&client, 0), -REEF_EINDOUBT);
	assert_int_equal(tcp_client_faa(&client, 0), -REEF_ENOLINK);
	tcp_client_close(&client);
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
	       raw_get_frame(it->fd, &header, payload, sizeof(payload))) {
		if (header.type != REEF_FRAME_PING)
			continue;
		raw_put_header(it->fd, REEF_FRAME_PONG, header.tag, 0);
		pings++;
	}
	memset(payload, 0, sizeof(payload));
	reef_wire_done_encode(&(struct reef_wire_done){1, 0}, payload + 8);
	raw_put_header(it->fd, REEF_FRAME_BATCH_DONE, 0, 16);
	raw_put(it->fd, payload, 16);
	while (raw_get(it->fd, payload, 1))
		;
}

static void tcp_slow_node_that_answers_pings_is_waited_for(void **state)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 5};
	struct tcp_client client;

	tcp_client_open(&client, &options);
	fake_start(fake_pong);
	tcp_client_join(&client, fake.address, SESSION);
	assert_int_equal(
		reef_attach(client.queue, client.link, 1, &client.remote), 0);
	assert_int_equal(tcp_client_faa(&client, 0), 0);
	tcp_client_close(&client);
	fake_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tcp_lying_node_loses_the_link),
		cmocka_unit_test(tcp_answer_before_the_question_ends_refused),
		cmocka_unit_test(tcp_silent_node_is_lost),
		cmocka_unit_test(
			tcp_slow_node_that_answers_pings_is_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
