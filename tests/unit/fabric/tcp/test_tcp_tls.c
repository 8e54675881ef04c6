/* test_tcp_tls.c - tcp inside TLS, and a wire between two sides that listens,
 * remembers and forges. */
#include "fabric/tls_kernel.h"
#include "fixture/tcp_node.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct reef_fabric_options with_tls = {.tls = REEF_TLS_YES};
static const struct reef_fabric_options plain = {.tls = REEF_TLS_NO};
static const char marker[] = "this is what nobody on the way may read";

/* --- the wire --- */

#define TAPE_SIZE (256u << 10)

/* Carries one connection to the node, and keeps what crossed. */
static struct wire {
	struct reef_address to;
	char address[64];
	int listener;
	pthread_t thread;
	size_t forge_at; /* byte of the client's to change; 0: none */
	size_t size[2];	 /* from the client, from the node */
	uint8_t tape[2][TAPE_SIZE];
} wire;

/* Carry what has come from one side to the other. False: it has closed. */
static bool carry(int from, int to, int side)
{
	uint8_t *at = wire.tape[side] + wire.size[side];
	ssize_t n = recv(from, at, TAPE_SIZE - wire.size[side], MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return true;
	if (n <= 0)
		return false;
	if (side == 0 && wire.forge_at >= wire.size[0] &&
	    wire.forge_at < wire.size[0] + (size_t)n && wire.forge_at)
		at[wire.forge_at - wire.size[0]] ^= 1;
	wire.size[side] += (size_t)n;
	while (n) {
		ssize_t sent = send(to, at, (size_t)n, MSG_NOSIGNAL);

		if (sent < 0 && errno != EAGAIN)
			return false;
		if (sent > 0) {
			at += sent;
			n -= sent;
		}
	}
	return true;
}

static void *wire_run(void *arg)
{
	struct pollfd side[2] = {{.fd = wire.listener, .events = POLLIN}};

	(void)arg;
	poll(side, 1, 20000);
	side[0].fd = accept(wire.listener, NULL, NULL);
	side[1] = (struct pollfd){.fd = reef_socket_connect(&wire.to),
				  .events = POLLIN};
	while (poll(side, 2, 20000) > 0)
		if (!carry(side[0].fd, side[1].fd, 0) ||
		    !carry(side[1].fd, side[0].fd, 1))
			break;
	close(side[0].fd);
	close(side[1].fd);
	return NULL;
}

static void wire_open(size_t forge_at)
{
	struct reef_address any, bound;

	memset(&wire, 0, sizeof(wire));
	wire.forge_at = forge_at;
	assert_int_equal(
		reef_address_parse_inet(
			reef_listener_address(tcp_node.listener) + 4, &wire.to),
		0);
	assert_int_equal(reef_address_parse_inet("127.0.0.1:0", &any), 0);
	wire.listener = reef_socket_listen(&any, &bound);
	assert_true(wire.listener >= 0);
	memcpy(wire.address, "tcp:", 4);
	assert_int_equal(reef_address_format(&bound, wire.address + 4,
					     sizeof(wire.address) - 4),
			 0);
	assert_int_equal(pthread_create(&wire.thread, NULL, wire_run, NULL), 0);
}

static void wire_close(void)
{
	pthread_join(wire.thread, NULL);
	close(wire.listener);
}

static bool wire_has_seen(const void *bytes, size_t size)
{
	return memmem(wire.tape[0], wire.size[0], bytes, size) ||
	       memmem(wire.tape[1], wire.size[1], bytes, size);
}

/* --- clients --- */

static int try_to_connect(const struct reef_fabric_options *options,
			  const char *address, const char *identity,
			  uint8_t key)
{
	struct reef_connect_options as = tcp_as_session(SESSION);
	struct tcp_client client;
	int rc;

	as.identity = identity;
	memset(as.key, key, sizeof(as.key));
	tcp_client_open(&client, options);
	rc = reef_connect(client.queue, address, &as, &client.link);
	tcp_client_close(&client);
	return rc;
}

static const char *node_address(void)
{
	return reef_listener_address(tcp_node.listener);
}

static int run_op(struct tcp_client *client, struct reef_op op)
{
	struct reef_batch batch = {
		.link = client->link, .ops = &op, .count = 1};

	return reef_run(client->queue, &batch);
}

/* A client that joins through the wire, writes the marker, reads it back and
 * sends it. Returns what was not 0 first. */
static int work_over_wire(const struct reef_fabric_options *options)
{
	struct reef_connect_options as = tcp_as_session(SESSION);
	struct tcp_client client;
	char text[sizeof(marker)];
	int rc;

	tcp_client_open(&client, options);
	rc = reef_connect(client.queue, wire.address, &as, &client.link);
	if (!rc)
		rc = reef_attach(client.queue, client.link,
				 reef_region_key(tcp_node.region),
				 &client.remote);
	memcpy(text, marker, sizeof(text));
	if (!rc)
		rc = run_op(&client, (struct reef_op){.kind = REEF_WRITE,
						      .remote = client.remote,
						      .local = text,
						      .length = sizeof(text)});
	if (!rc)
		rc = run_op(&client, (struct reef_op){.kind = REEF_READ,
						      .remote = client.remote,
						      .local = text,
						      .length = sizeof(text)});
	if (!rc)
		rc = run_op(&client, (struct reef_op){.kind = REEF_SEND,
						      .local = text,
						      .length = sizeof(text)});
	if (!rc)
		rc = tcp_client_faa(&client, 128);
	tcp_client_close(&client);
	wire_close();
	return rc;
}

/* --- the end of a process --- */

static _Atomic int connected;

/* The last thing that the process does: OpenSSL has cleaned up before, if it
 * was used first after this was registered, and if it cleans up at all. */
static void go_on_a_little(void)
{
	tcp_await(&connected, atomic_load(&connected) + 20);
}

static void *connect_for_ever(void *arg)
{
	(void)arg;
	for (;;) {
		if (try_to_connect(&with_tls, node_address(), "test", 7))
			_exit(1);
		atomic_fetch_add(&connected, 1);
	}
	return NULL;
}

/* A program may end while our threads run, without a word to us. It is the
 * first test, as OpenSSL must not be in use before. */
static void tls_exit_beside_our_threads_is_clean(void **state)
{
	pthread_t thread;
	int status, pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		atexit(go_on_a_little);
		tcp_node_start(&with_tls);
		pthread_create(&thread, NULL, connect_for_ever, NULL);
		tcp_await(&connected, 1);
		exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* --- what crosses --- */

static void tls_nothing_readable_crosses(void **state)
{
	uint64_t key;

	tcp_node_start(&with_tls);
	key = reef_region_key(tcp_node.region);
	wire_open(0);
	assert_int_equal(work_over_wire(&with_tls), 0);
	assert_memory_equal(tcp_node.memory->base, marker, sizeof(marker));
	assert_true(wire.size[0] > 500 && wire.size[1] > 300);
	assert_false(wire_has_seen(marker, 8));
	assert_false(wire_has_seen(&key, sizeof(key)));
	tcp_node_stop();

	/* In plain text the wire sees both, so it does look. */
	tcp_node_start(&plain);
	key = reef_region_key(tcp_node.region);
	wire_open(0);
	assert_int_equal(work_over_wire(&plain), 0);
	assert_true(wire_has_seen(marker, sizeof(marker)));
	assert_true(wire_has_seen(&key, sizeof(key)));
	tcp_node_stop();
}

static void tls_loopback_is_plain_unless_asked(void **state)
{
	struct reef_fabric_options automatic = {.tls = REEF_TLS_AUTO};

	tcp_node_start(&automatic);
	wire_open(0);
	assert_int_equal(work_over_wire(&automatic), 0);
	assert_true(wire_has_seen(marker, sizeof(marker)));
	tcp_node_stop();
}

static void tls_recorded_stream_replayed_does_nothing(void **state)
{
	uint64_t word;
	uint8_t byte;
	int fd, opened;

	tcp_node_start(&with_tls);
	wire_open(0);
	assert_int_equal(work_over_wire(&with_tls), 0);
	word = tcp_node_word(128);
	opened = atomic_load(&tcp_node.opened);
	fd = raw_connect(node_address());
	raw_put(fd, wire.tape[0], wire.size[0]);
	while (raw_get(fd, &byte, 1))
		;
	close(fd);
	assert_int_equal(tcp_node_word(128), word);
	assert_int_equal(atomic_load(&tcp_node.opened), opened);
	tcp_node_stop();
}

/* Whatever byte of the client's is changed, its link is lost, and nothing that
 * came from there on happens: the addition is the last thing. */
static void tls_forged_byte_ends_the_link(void **state)
{
	size_t size;
	int rc;

	tcp_node_start(&with_tls);
	wire_open(0);
	assert_int_equal(work_over_wire(&with_tls), 0);
	size = wire.size[0];
	assert_int_equal(tcp_node_word(128), 1);
	for (size_t at = 1; at < size; at += 7) {
		wire_open(at);
		rc = work_over_wire(&with_tls);
		assert_true(rc < 0);
		assert_int_equal(tcp_node_word(128), 1);
	}
	tcp_node_stop();
}

/* How many directions of sockets the kernel has taken over so far; 0: it has no
 * TLS. */
static int count_in_kernel(void)
{
	FILE *file = fopen("/proc/net/tls_stat", "re");
	char name[64];
	int count, total = 0;

	while (file && fscanf(file, "%63s %d", name, &count) == 2)
		if (!strcmp(name, "TlsTxSw") || !strcmp(name, "TlsRxSw"))
			total += count;
	if (file)
		fclose(file);
	return total;
}

static void tls_kernel_takes_over_where_it_can(void **state)
{
	int before = count_in_kernel();

	/* The test machine (tests/vm) has it. */
	assert_true(tls_kernel_is_there() || !getenv("REEF_VM_HOST"));
	tcp_node_start(&with_tls);
	wire_open(0);
	assert_int_equal(work_over_wire(&with_tls), 0);
	tcp_node_stop();
	assert_int_equal(count_in_kernel() - before,
			 tls_kernel_is_there() ? 4 : 0);
}

/* --- who comes in --- */

static void tls_wrong_key_refused(void **state)
{
	tcp_node_start(&with_tls);
	assert_int_equal(try_to_connect(&with_tls, node_address(), "test", 8),
			 -REEF_EAUTH);
	assert_int_equal(try_to_connect(&with_tls, node_address(), "test", 7),
			 0);
	tcp_node_stop();
}

static void tls_stranger_looks_like_a_wrong_key(void **state)
{
	uint8_t answer[64];
	size_t size;

	tcp_node_start(&with_tls);
	wire_open(0);
	assert_int_equal(try_to_connect(&with_tls, wire.address, "test", 8),
			 -REEF_EAUTH);
	wire_close();
	size = wire.size[1];
	assert_true(size > 0 && size <= sizeof(answer));
	memcpy(answer, wire.tape[1], size);
	wire_open(0);
	assert_int_equal(try_to_connect(&with_tls, wire.address, "stranger", 7),
			 -REEF_EAUTH);
	wire_close();
	assert_int_equal(wire.size[1], size);
	assert_memory_equal(wire.tape[1], answer, size);
	tcp_node_stop();
}

/* Come through TLS as SESSION, and then say hello as `session`, without what
 * binds the hello to this TLS. */
static int hello_unbound(uint32_t session)
{
	struct reef_connect_options as = tcp_as_session(SESSION);
	int fd = raw_connect(node_address()), rc;
	struct pollfd there = {.fd = fd, .events = POLLIN};
	struct reef_stream *stream;
	struct reef_hello *hello;
	struct reef_tls *tls;

	assert_int_equal(reef_tls_connect(fd, &as, &tls), 0);
	while ((rc = reef_tls_step(tls)) == -EAGAIN)
		assert_int_equal(poll(&there, 1, 20000), 1);
	assert_int_equal(rc, 0);
	assert_int_equal(reef_stream_create(fd, 1024, &stream), 0);
	reef_stream_set_tls(stream, tls);
	as = tcp_as_session(session);
	assert_int_equal(reef_hello_connect(stream, &raw_local, &as, &hello),
			 0);
	rc = raw_hello_run(hello, fd);
	reef_stream_destroy(stream);
	return rc;
}

static void tls_hello_of_another_connection_refused(void **state)
{
	tcp_node_start(&with_tls);
	assert_int_equal(hello_unbound(SESSION), -REEF_EAUTH);
	assert_int_equal(hello_unbound(SESSION + 1), -REEF_EPROTO);
	assert_int_equal(atomic_load(&tcp_node.opened), 0);
	tcp_node_stop();
}

static void tls_only_one_side_wants_it_refused(void **state)
{
	tcp_node_start(&with_tls);
	for (int i = 0; i < 20; i++)
		assert_int_equal(
			try_to_connect(&plain, node_address(), "test", 7),
			-REEF_ETLS);
	tcp_node_stop();
	tcp_node_start(&plain);
	for (int i = 0; i < 20; i++)
		assert_int_equal(
			try_to_connect(&with_tls, node_address(), "test", 7),
			-REEF_ETLS);
	tcp_check_served();
	tcp_node_stop();
}

/* A wire that answers in the node's place, in plain text or with nonsense, does
 * not get a client that wants TLS to go on without. */
static void tls_is_not_talked_out_of(void **state)
{
	static const uint8_t welcome[REEF_FRAME_HEADER_SIZE] = {
		56, 0, 0, 0, REEF_FRAME_WELCOME};
	struct reef_connect_options as = tcp_as_session(SESSION);
	struct pollfd there;
	struct tcp_client client;
	uint8_t heard[2048];
	ssize_t n;
	int fd;

	tcp_node_start(&with_tls);
	wire_open(0);
	/* The wire's thread ends when its first connection does. */
	assert_int_equal(try_to_connect(&with_tls, wire.address, "test", 7), 0);
	pthread_join(wire.thread, NULL);
	tcp_client_open(&client, &with_tls);
	assert_int_equal(reef_connect_start(client.queue, wire.address, &as,
					    &client.link),
			 0);
	there = (struct pollfd){.fd = wire.listener, .events = POLLIN};
	assert_int_equal(poll(&there, 1, 20000), 1);
	fd = accept(wire.listener, NULL, NULL);
	there.fd = fd;
	for (int i = 0; i < 1000 && poll(&there, 1, 1) == 0; i++)
		reef_poll(client.queue);
	n = recv(fd, heard, sizeof(heard), MSG_DONTWAIT);
	assert_true(n > 0);
	raw_put(fd, welcome, sizeof(welcome));
	while (reef_link_status(client.link) == 0)
		reef_poll(client.queue);
	for (int i = 0; i < 100; i++)
		reef_poll(client.queue);
	/* All that it says is that it leaves, and why. */
	raw_check_bye(fd, -REEF_ETLS);
	tcp_client_close(&client);
	close(wire.listener);
	tcp_node_stop();
}

/* --- strangers --- */

/* The tape of the client's side, cut after every byte of its handshake. */
static void tls_truncated_handshake_harms_nobody(void **state)
{
	struct tcp_client client;
	int fd;

	tcp_node_start(&with_tls);
	wire_open(0);
	assert_int_equal(work_over_wire(&with_tls), 0);
	for (size_t size = 0; size < 600 && size < wire.size[0]; size++) {
		fd = raw_connect(node_address());
		raw_put(fd, wire.tape[0], size);
		close(fd);
	}
	tcp_client_meet(&client, &with_tls, 0x70001);
	assert_int_equal(tcp_client_faa(&client, 0), 0);
	tcp_client_close(&client);
	tcp_node_stop();
}

static void tls_garbage_harms_nobody(void **state)
{
	struct tcp_client client;
	uint8_t bytes[4096];
	unsigned int seed = 3;
	int fd;

	tcp_node_start(&with_tls);
	for (unsigned int round = 0; round < 200; round++) {
		fd = raw_connect(node_address());
		for (size_t i = 0; i < sizeof(bytes); i++) {
			seed = seed * 1103515245 + 12345;
			bytes[i] = (uint8_t)(seed >> 16);
		}
		/* A record with nonsense in it; one that is too long. */
		if (round % 4) {
			bytes[0] = (uint8_t)(20 + round % 4);
			bytes[1] = 3;
			bytes[3] &= round % 8 < 4 ? 0x07 : 0xff;
		}
		/* The head of a ClientHello. */
		if (round % 4 == 2) {
			bytes[5] = 1;
			bytes[6] = 0;
		}
		send(fd, bytes, round * 20, MSG_NOSIGNAL);
		close(fd);
	}
	tcp_client_meet(&client, &with_tls, 0x70001);
	assert_int_equal(tcp_client_faa(&client, 0), 0);
	tcp_client_close(&client);
	tcp_node_stop();
}

static void tls_half_a_handshake_is_given_up(void **state)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 5,
					      .tls = REEF_TLS_YES};
	static const uint8_t begun[] = {22, 3, 1, 0, 200, 1, 0};
	uint8_t byte;
	int fd;

	tcp_node_start(&options);
	fd = raw_connect(node_address());
	raw_put(fd, begun, sizeof(begun));
	assert_false(raw_get(fd, &byte, 1));
	close(fd);
	tcp_node_stop();
}

/* --- links --- */

static void tls_long_operations_arrive_whole(void **state)
{
	enum { LENGTH = SIZE - 4096 };
	static uint8_t out[LENGTH], in[LENGTH];
	struct tcp_client client;

	tcp_node_start(&with_tls);
	tcp_client_meet(&client, &with_tls, SESSION);
	for (uint32_t round = 1; round <= 8; round++) {
		for (size_t i = 0; i < LENGTH; i++)
			out[i] = (uint8_t)(i * 31 + i / 251 + round);
		memset(in, 0, sizeof(in));
		assert_int_equal(
			run_op(&client,
			       (struct reef_op){.kind = REEF_WRITE,
						.remote = client.remote,
						.offset = round,
						.local = out,
						.length = LENGTH / round}),
			0);
		assert_int_equal(
			run_op(&client,
			       (struct reef_op){.kind = REEF_READ,
						.remote = client.remote,
						.offset = round,
						.local = in,
						.length = LENGTH / round}),
			0);
		assert_memory_equal(in, out, LENGTH / round);
	}
	tcp_client_close(&client);
	tcp_node_stop();
}

static void tls_fenced_is_told_and_kept_out(void **state)
{
	struct tcp_client client;

	tcp_node_start(&with_tls);
	tcp_client_meet(&client, &with_tls, SESSION);
	assert_int_equal(tcp_client_faa(&client, 64), 0);
	tcp_node_pause();
	assert_int_equal(reef_fence(tcp_node.queue, SESSION, 10 * SECOND), 0);
	tcp_node_resume();
	assert_true(tcp_client_faa(&client, 64) < 0);
	assert_int_equal(reef_link_status(client.link), -REEF_EFENCED);
	tcp_client_close(&client);
	assert_int_equal(try_to_connect(&with_tls, node_address(), "test", 7),
			 -REEF_EFENCED);
	assert_int_equal(tcp_node_word(64), 1);
	tcp_node_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tls_exit_beside_our_threads_is_clean),
		cmocka_unit_test(tls_nothing_readable_crosses),
		cmocka_unit_test(tls_loopback_is_plain_unless_asked),
		cmocka_unit_test(tls_recorded_stream_replayed_does_nothing),
		cmocka_unit_test(tls_forged_byte_ends_the_link),
		cmocka_unit_test(tls_kernel_takes_over_where_it_can),
		cmocka_unit_test(tls_wrong_key_refused),
		cmocka_unit_test(tls_stranger_looks_like_a_wrong_key),
		cmocka_unit_test(tls_hello_of_another_connection_refused),
		cmocka_unit_test(tls_only_one_side_wants_it_refused),
		cmocka_unit_test(tls_is_not_talked_out_of),
		cmocka_unit_test(tls_truncated_handshake_harms_nobody),
		cmocka_unit_test(tls_garbage_harms_nobody),
		cmocka_unit_test(tls_half_a_handshake_is_given_up),
		cmocka_unit_test(tls_long_operations_arrive_whole),
		cmocka_unit_test(tls_fenced_is_told_and_kept_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
