/* test_tls.c - two sides of TLS over a pair of sockets, in one thread. */
#include "fabric/tls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
	int fd[2];
	struct reef_tls *tls[2]; /* connector, acceptor */
};

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	if (strcmp(identity, "someone") != 0 || session != 77)
		return -ENOENT;
	memset(key, 5, REEF_KEY_SIZE);
	return 0;
}

static void pair_open(struct pair *pair, const char *identity, uint8_t key)
{
	struct reef_connect_options connect = {.session = 77,
					       .identity = identity};
	struct reef_listen_options listen = {.credential = credential};

	memset(connect.key, key, sizeof(connect.key));
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->fd),
		0);
	assert_int_equal(reef_tls_connect(pair->fd[0], &connect, &pair->tls[0]),
			 0);
	assert_int_equal(reef_tls_accept(pair->fd[1], &listen, &pair->tls[1]),
			 0);
}

static void pair_close(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		reef_tls_destroy(pair->tls[i]);
		close(pair->fd[i]);
	}
}

/* Step both sides until neither waits any more. */
static void pair_shake(struct pair *pair, int *connector, int *acceptor)
{
	*connector = *acceptor = -EAGAIN;
	for (int i = 0; i < 10; i++) {
		if (*connector == -EAGAIN)
			*connector = reef_tls_step(pair->tls[0]);
		if (*acceptor == -EAGAIN)
			*acceptor = reef_tls_step(pair->tls[1]);
	}
}

static void pair_open_up(struct pair *pair)
{
	int connector, acceptor;

	pair_open(pair, "someone", 5);
	pair_shake(pair, &connector, &acceptor);
	assert_int_equal(connector, 0);
	assert_int_equal(acceptor, 0);
}

static ssize_t put(struct pair *pair, int side, void *bytes, size_t size)
{
	struct iovec part = {bytes, size};

	return reef_tls_send(pair->tls[side], &part, 1);
}

static ssize_t get(struct pair *pair, int side, void *bytes, size_t size)
{
	struct iovec part = {bytes, size};
	bool drained;

	return reef_tls_receive(pair->tls[side], &part, 1, true, &drained);
}

/* --- the handshake --- */

static void tls_right_key_says_who_and_binds_both(void **state)
{
	uint8_t binding[2][REEF_TLS_BINDING_SIZE], other[REEF_TLS_BINDING_SIZE];
	char identity[REEF_IDENTITY_MAX + 1];
	struct pair pair, again;
	uint32_t session;

	pair_open_up(&pair);
	reef_tls_peer(pair.tls[1], &session, identity);
	assert_int_equal(session, 77);
	assert_string_equal(identity, "someone");
	reef_tls_binding(pair.tls[0], binding[0]);
	reef_tls_binding(pair.tls[1], binding[1]);
	assert_memory_equal(binding[0], binding[1], sizeof(other));
	pair_open_up(&again);
	reef_tls_binding(again.tls[0], other);
	assert_memory_not_equal(binding[0], other, sizeof(other));
	pair_close(&again);
	pair_close(&pair);
}

static void tls_wrong_key_or_name_refused_alike(void **state)
{
	struct pair pair;
	int connector, acceptor;

	pair_open(&pair, "someone", 6);
	pair_shake(&pair, &connector, &acceptor);
	assert_int_equal(connector, -REEF_EAUTH);
	assert_int_equal(acceptor, -REEF_EAUTH);
	pair_close(&pair);
	pair_open(&pair, "nobody", 5);
	pair_shake(&pair, &connector, &acceptor);
	assert_int_equal(connector, -REEF_EAUTH);
	assert_int_equal(acceptor, -REEF_EAUTH);
	pair_close(&pair);
}

/* A wire that passes on one byte at a time. */
static void tls_byte_by_byte_shakes_hands(void **state)
{
	int rc[2] = {-EAGAIN, -EAGAIN}, mine[2], theirs[2];
	struct pair pair, far;
	uint8_t byte;

	pair_open(&pair, "someone", 5);
	/* Two pairs of sockets, and the wire in the middle. */
	far = pair;
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, mine), 0);
	reef_tls_destroy(pair.tls[1]);
	assert_int_equal(reef_tls_accept(mine[1],
					 &(struct reef_listen_options){
						 .credential = credential},
					 &far.tls[1]),
			 0);
	theirs[0] = pair.fd[1];
	theirs[1] = mine[0];
	for (int i = 0; i < 5000 && (rc[0] || rc[1]); i++) {
		for (int side = 0; side < 2; side++) {
			if (rc[side] == -EAGAIN)
				rc[side] = reef_tls_step(far.tls[side]);
			if (recv(theirs[side], &byte, 1, MSG_DONTWAIT) == 1)
				send(theirs[1 - side], &byte, 1, 0);
		}
	}
	assert_int_equal(rc[0], 0);
	assert_int_equal(rc[1], 0);
	reef_tls_destroy(far.tls[0]);
	reef_tls_destroy(far.tls[1]);
	close(pair.fd[0]);
	close(pair.fd[1]);
	close(mine[0]);
	close(mine[1]);
}

static void tls_long_or_endless_handshake_refused(void **state)
{
	static const uint8_t long_one[] = {22, 3, 1, 0x40, 0};
	static const uint8_t change[] = {20, 3, 3, 0, 1, 1};
	struct pair pair;
	int rc = -EAGAIN;

	pair_open(&pair, "someone", 5);
	send(pair.fd[0], long_one, sizeof(long_one), 0);
	assert_int_equal(reef_tls_step(pair.tls[1]), -REEF_EPROTO);
	pair_close(&pair);
	pair_open(&pair, "someone", 5);
	assert_int_equal(reef_tls_step(pair.tls[0]), -EAGAIN);
	for (int i = 0; i < 100 && rc == -EAGAIN; i++) {
		send(pair.fd[1], change, sizeof(change), 0);
		rc = reef_tls_step(pair.tls[0]);
	}
	assert_int_equal(rc, -REEF_EPROTO);
	pair_close(&pair);
}

static void tls_plain_text_refused(void **state)
{
	static const uint8_t frame[160] = {144, 0, 0, 0, 1};
	struct pair pair;

	pair_open(&pair, "someone", 5);
	send(pair.fd[0], frame, sizeof(frame), 0);
	send(pair.fd[1], frame, sizeof(frame), 0);
	assert_int_equal(reef_tls_step(pair.tls[0]), -REEF_ETLS);
	assert_int_equal(reef_tls_step(pair.tls[1]), -REEF_ETLS);
	pair_close(&pair);
}

/* --- bytes --- */

/* Each side changes its key hundreds of times meanwhile. */
static void tls_key_changes_are_not_noticed(void **state)
{
	enum { TOTAL = 1 << 20 };
	static uint8_t out[TOTAL], in[TOTAL];
	size_t sent = 0, got = 0;
	struct pair pair;
	ssize_t n;

	pair_open_up(&pair);
	for (size_t i = 0; i < TOTAL; i++)
		out[i] = (uint8_t)(i * 7 + i / 253);
	for (int side = 0; side < 2; side++) {
		reef_tls_set_rekey(pair.tls[side], 5000);
		sent = got = 0;
		while (got < TOTAL) {
			n = put(&pair, side, out + sent, TOTAL - sent);
			assert_true(n >= 0 || n == -EAGAIN);
			sent += n > 0 ? (size_t)n : 0;
			n = get(&pair, 1 - side, in + got, TOTAL - got);
			assert_true(n > 0 || n == -EAGAIN);
			got += n > 0 ? (size_t)n : 0;
		}
		assert_memory_equal(in, out, TOTAL);
	}
	pair_close(&pair);
}

static void tls_full_socket_takes_nothing_and_keeps_little(void **state)
{
	static uint8_t bytes[64 << 10], back[64 << 10];
	struct pair pair;
	size_t sent = 0, got = 0;
	ssize_t n;

	pair_open_up(&pair);
	memset(bytes, 9, sizeof(bytes));
	while ((n = put(&pair, 0, bytes, sizeof(bytes))) > 0)
		sent += (size_t)n;
	assert_int_equal(n, -EAGAIN);
	assert_in_range(reef_tls_unsent(pair.tls[0]), 1, 128 << 10);
	while (got < sent) {
		n = get(&pair, 1, back, sizeof(back));
		if (n == -EAGAIN) /* what was kept goes on with nothing new */
			assert_true(put(&pair, 0, bytes, 0) >= -EAGAIN);
		else
			assert_true(n > 0);
		got += n > 0 ? (size_t)n : 0;
	}
	assert_int_equal(got, sent);
	assert_int_equal(reef_tls_unsent(pair.tls[0]), 0);
	pair_close(&pair);
}

/* What one read of the socket brought is there without another. */
static void tls_what_was_read_is_not_forgotten(void **state)
{
	uint8_t bytes[100], one;
	struct iovec part = {&one, 1};
	struct pair pair;
	bool drained;
	int more = 0;

	pair_open_up(&pair);
	for (int i = 0; i < 3; i++)
		assert_int_equal(put(&pair, 0, bytes, sizeof(bytes)),
				 (ssize_t)sizeof(bytes));
	assert_int_equal(
		reef_tls_receive(pair.tls[1], &part, 1, false, &drained),
		-EAGAIN);
	assert_int_equal(
		reef_tls_receive(pair.tls[1], &part, 1, true, &drained), 1);
	assert_false(drained);
	assert_true(reef_tls_has_more(pair.tls[1]));
	while (reef_tls_receive(pair.tls[1], &part, 1, false, &drained) == 1)
		more++;
	assert_int_equal(more, 299);
	assert_true(drained);
	assert_false(reef_tls_has_more(pair.tls[1]));
	pair_close(&pair);
}

static void tls_forged_record_and_end_told_apart(void **state)
{
	uint8_t bytes[100] = {0}, record[256];
	struct pair pair;
	ssize_t n;

	pair_open_up(&pair);
	put(&pair, 0, bytes, sizeof(bytes));
	n = recv(pair.fd[1], record, sizeof(record), 0);
	record[n - 1] ^= 1;
	send(pair.fd[0], record, (size_t)n, 0);
	assert_int_equal(get(&pair, 1, bytes, sizeof(bytes)), -REEF_EPROTO);
	assert_int_equal(get(&pair, 1, bytes, sizeof(bytes)), -REEF_EPROTO);
	pair_close(&pair);
	pair_open_up(&pair);
	put(&pair, 0, bytes, sizeof(bytes));
	shutdown(pair.fd[0], SHUT_WR);
	assert_int_equal(get(&pair, 1, bytes, sizeof(bytes)), 100);
	assert_int_equal(get(&pair, 1, bytes, sizeof(bytes)), -REEF_ENOLINK);
	pair_close(&pair);
}

/* The other end is gone: an error, and no signal. */
static void tls_send_to_nobody_is_an_error(void **state)
{
	uint8_t bytes[100] = {0};
	struct pair pair;

	pair_open_up(&pair);
	shutdown(pair.fd[1], SHUT_RDWR);
	assert_int_equal(put(&pair, 0, bytes, sizeof(bytes)), -REEF_ENOLINK);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tls_right_key_says_who_and_binds_both),
		cmocka_unit_test(tls_wrong_key_or_name_refused_alike),
		cmocka_unit_test(tls_byte_by_byte_shakes_hands),
		cmocka_unit_test(tls_long_or_endless_handshake_refused),
		cmocka_unit_test(tls_plain_text_refused),
		cmocka_unit_test(tls_key_changes_are_not_noticed),
		cmocka_unit_test(
			tls_full_socket_takes_nothing_and_keeps_little),
		cmocka_unit_test(tls_what_was_read_is_not_forgotten),
		cmocka_unit_test(tls_forged_record_and_end_told_apart),
		cmocka_unit_test(tls_send_to_nobody_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
