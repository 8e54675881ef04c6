/* test_tcp.c - a node of tcp, and clients who do not play by the rules. */
#include "fabric/fabric.h"
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
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- strangers --- */

static void tcp_garbage_before_hello_harms_nobody(void **state)
{
	uint8_t bytes[2000];
	unsigned int seed = 1;
	int fd;

	tcp_node_start(NULL);
	for (unsigned int round = 0; round < 100; round++) {
		fd = raw_connect(reef_listener_address(tcp_node.listener));
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
	tcp_check_served();
	tcp_node_stop();
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
	tcp_node_start(NULL);
	for (int i = 0; i < MANY; i++)
		fds[i] = raw_connect(reef_listener_address(tcp_node.listener));
	tcp_check_served();
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
	tcp_node_stop();
}

static void tcp_half_a_hello_is_given_up(void **state)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 5};
	uint8_t byte;
	int fd;

	tcp_node_start(&options);
	fd = raw_connect(reef_listener_address(tcp_node.listener));
	raw_put_header(fd, REEF_FRAME_HELLO, 0, 144);
	assert_false(raw_get(fd, &byte, 1));
	close(fd);
	tcp_node_stop();
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

	tcp_node_start(NULL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int fd = raw_join(SESSION);

		raw_put_header(fd, bad[i].type, 0, bad[i].length);
		raw_check_bye(fd, -REEF_EPROTO);
	}
	tcp_await(&tcp_node.closed, (int)(sizeof(bad) / sizeof(bad[0])));
	assert_int_equal(atomic_load(&tcp_node.reason), -REEF_EPROTO);
	tcp_check_served();
	tcp_node_stop();
}

static void tcp_descriptor_flag_refused(void **state)
{
	uint8_t bytes[REEF_FRAME_HEADER_SIZE] = {0};
	int fd;

	tcp_node_start(NULL);
	fd = raw_join(SESSION);
	bytes[4] = REEF_FRAME_PING;
	bytes[5] = REEF_FRAME_CARRIES_FD;
	raw_put(fd, bytes, sizeof(bytes));
	raw_check_bye(fd, -REEF_EPROTO);
	tcp_node_stop();
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

	tcp_node_start(NULL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int fd = raw_join(SESSION);

		raw_one_op(bad[i], NULL, 0);
		raw_put_batch(fd, 0);
		raw_check_bye(fd, -REEF_EPROTO);
	}
	/* More operations than allowed; more than the frame holds. */
	for (uint32_t count = 256; count < 258; count++) {
		int fd = raw_join(SESSION);

		reef_wire_batch_encode(count, raw_request);
		raw_put_header(fd, REEF_FRAME_BATCH, 0, 100000);
		raw_put(fd, raw_request, 32);
		if (count > 256)
			raw_check_bye(fd, -REEF_EPROTO);
		else
			close(fd);
	}
	tcp_check_served();
	tcp_node_stop();
}

static void tcp_bad_key_or_range_is_only_a_status(void **state)
{
	uint8_t eight[8] = {1};
	int fd;

	tcp_node_start(NULL);
	fd = raw_join(SESSION);
	raw_one_op(
		(struct reef_wire_op){.kind = REEF_READ, .length = 8, .key = 9},
		NULL, 0);
	raw_put_batch(fd, 0);
	raw_check_done(fd, 0, 0, -REEF_EKEY, 0);
	raw_one_op((struct reef_wire_op){.kind = REEF_WRITE,
					 .length = 8,
					 .offset = SIZE - 7},
		   eight, 8);
	raw_put_batch(fd, 1);
	raw_check_done(fd, 1, 0, -ERANGE, 0);
	raw_one_op((struct reef_wire_op){.kind = REEF_FAA, .length = 8}, eight,
		   8);
	raw_put_batch(fd, 2);
	raw_check_done(fd, 2, 1, 0, 8);
	assert_int_equal(tcp_node_word(0), 1);
	close(fd);
	tcp_node_stop();
}

static void tcp_batch_byte_by_byte_executed(void **state)
{
	uint8_t data[24];
	int fd;

	tcp_node_start(NULL);
	fd = raw_join(SESSION);
	memset(data, 0x5a, sizeof(data));
	raw_one_op((struct reef_wire_op){.kind = REEF_WRITE, .length = 24},
		   data, 24);
	raw_put_header(fd, REEF_FRAME_BATCH, 5, raw_request_size);
	for (uint32_t i = 0; i < raw_request_size; i++)
		raw_put(fd, raw_request + i, 1);
	raw_check_done(fd, 5, 1, 0, 0);
	assert_memory_equal(tcp_node.memory->base, data, 24);
	close(fd);
	tcp_node_stop();
}

static void tcp_truncated_batch_leaves_whole_words(void **state)
{
	uint8_t data[64];
	int fd;

	tcp_node_start(NULL);
	fd = raw_join(SESSION);
	memset(data, 0xff, sizeof(data));
	raw_one_op((struct reef_wire_op){.kind = REEF_WRITE, .length = 64},
		   data, 64);
	raw_put_header(fd, REEF_FRAME_BATCH, 0, raw_request_size);
	raw_put(fd, raw_request, 32 + 21);
	shutdown(fd, SHUT_WR);
	tcp_await(&tcp_node.closed, 1);
	assert_true(tcp_node_word(0) == 0 || tcp_node_word(0) == UINT64_MAX);
	assert_true(tcp_node_word(8) == 0 || tcp_node_word(8) == UINT64_MAX);
	assert_int_equal(tcp_node_word(16), 0);
	close(fd);
	tcp_check_served();
	tcp_node_stop();
}

/* --- whose turn is over --- */

/* F5: half a batch on the old link; once the new one is welcomed, the rest of
 * it changes nothing. */
static void tcp_new_link_ends_the_old_one(void **state)
{
	uint8_t one[8] = {1}, byte;
	int old, next;

	tcp_node_start(NULL);
	old = raw_join(SESSION);
	raw_one_op((struct reef_wire_op){.kind = REEF_FAA, .length = 8}, one,
		   8);
	raw_put_header(old, REEF_FRAME_BATCH, 0, raw_request_size);
	raw_put(old, raw_request, raw_request_size - 1);
	next = raw_join(SESSION);
	send(old, raw_request + raw_request_size - 1, 1, MSG_NOSIGNAL);
	assert_false(raw_get(old, &byte, 1));
	raw_put_batch(next, 0);
	raw_check_done(next, 0, 1, 0, 8);
	assert_int_equal(tcp_node_word(0), 1);
	assert_int_equal(atomic_load(&tcp_node.closed), 1);
	close(old);
	close(next);
	tcp_node_stop();
}

/* F10: half a batch, and its link is ended by number; the rest of it changes
 * nothing, and the next link is not disturbed. */
static void tcp_ended_link_is_told_and_goes_no_further(void **state)
{
	uint8_t one[8] = {1};
	int old, next;

	tcp_node_start(NULL);
	old = raw_join_numbered(SESSION, 1);
	raw_one_op((struct reef_wire_op){.kind = REEF_FAA, .length = 8}, one,
		   8);
	raw_put_header(old, REEF_FRAME_BATCH, 0, raw_request_size);
	raw_put(old, raw_request, raw_request_size - 1);
	tcp_node_pause();
	assert_int_equal(reef_end_links(tcp_node.queue, SESSION, 1, 0), 0);
	send(old, raw_request + raw_request_size - 1, 1, MSG_NOSIGNAL);
	tcp_node_resume();
	raw_check_bye(old, -REEF_ENOLINK);
	tcp_await(&tcp_node.closed, 1);
	assert_int_equal(tcp_node_word(0), 0);
	next = raw_join_numbered(SESSION, 2);
	raw_put_batch(next, 0);
	raw_check_done(next, 0, 1, 0, 8);
	assert_int_equal(tcp_node_word(0), 1);
	close(old);
	close(next);
	tcp_node_stop();
}

static void tcp_fenced_is_told_and_kept_out(void **state)
{
	struct reef_connect_options options = tcp_as_session(SESSION);
	struct tcp_client client;
	int fd;

	tcp_node_start(NULL);
	fd = raw_join(SESSION);
	tcp_client_open(&client, NULL);
	tcp_client_join(&client, reef_listener_address(tcp_node.listener),
			SESSION - 1);
	tcp_node_pause();
	assert_int_equal(reef_fence(tcp_node.queue, SESSION, 0), 0);
	tcp_node_resume();
	raw_check_bye(fd, -REEF_EFENCED);
	while (reef_link_status(client.link) == 0)
		assert_int_equal(reef_queue_wait(client.queue, 20 * SECOND), 0);
	assert_int_equal(reef_link_status(client.link), -REEF_EFENCED);
	reef_link_close(client.link);
	client.link = NULL;
	assert_int_equal(reef_connect(client.queue,
				      reef_listener_address(tcp_node.listener),
				      &options, &client.link),
			 -REEF_EFENCED);
	tcp_await(&tcp_node.closed, 2);
	assert_int_equal(atomic_load(&tcp_node.reason), -REEF_EFENCED);
	tcp_client_close(&client);
	tcp_check_served();
	tcp_node_stop();
}

/* Who asks for much and takes nothing keeps the memory only as long as
 * silence_ns allows. */
static void tcp_reader_that_does_not_read_is_lost(void **state)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 2};
	int fd;

	tcp_node_start(&options);
	fd = raw_join(SESSION);
	for (uint64_t tag = 0; tag < 64; tag++) {
		raw_one_op((struct reef_wire_op){.kind = REEF_READ,
						 .length = SIZE},
			   NULL, 0);
		raw_put_batch(fd, tag);
	}
	tcp_await(&tcp_node.closed, 1);
	assert_int_equal(atomic_load(&tcp_node.reason), -ETIMEDOUT);
	tcp_check_served();
	close(fd);
	tcp_node_stop();
}

static void tcp_withdraw_waits_for_answers_under_way(void **state)
{
	int fd;

	tcp_node_start(NULL);
	fd = raw_join(SESSION);
	for (uint64_t tag = 0; tag < 64; tag++) {
		raw_one_op((struct reef_wire_op){.kind = REEF_READ,
						 .length = SIZE},
			   NULL, 0);
		raw_put_batch(fd, tag);
	}
	tcp_node_pause();
	/* All in one thread now: poll until the socket is full. */
	for (int i = 0; i < 1000; i++)
		reef_poll(tcp_node.queue);
	assert_int_equal(
		reef_withdraw(tcp_node.queue, tcp_node.region, 1000000),
		-ETIMEDOUT);
	close(fd);
	assert_int_equal(
		reef_withdraw(tcp_node.queue, tcp_node.region, 20 * SECOND), 0);
	tcp_node.region = NULL;
	tcp_node_resume();
	tcp_node_stop();
}

static void tcp_parts_bounded(void **state)
{
	static uint8_t payload[REEF_WIRE_PART_MAX];
	struct reef_frame_header header = {0};
	uint64_t total = 0;
	int fd;

	tcp_node_start(NULL);
	memset(tcp_node.memory->base, 0x77, SIZE);
	fd = raw_join(SESSION);
	raw_one_op((struct reef_wire_op){.kind = REEF_READ, .length = SIZE},
		   NULL, 0);
	raw_put_batch(fd, 3);
	do {
		assert_true(
			raw_get_frame(fd, &header, payload, sizeof(payload)));
		assert_int_equal(header.tag, 3);
		assert_int_equal(payload[0], 0x77);
		total += header.length;
	} while (header.type == REEF_FRAME_BATCH_PART);
	assert_int_equal(header.type, REEF_FRAME_BATCH_DONE);
	assert_int_equal(total, SIZE + 8);
	close(fd);
	tcp_node_stop();
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
		cmocka_unit_test(tcp_ended_link_is_told_and_goes_no_further),
		cmocka_unit_test(tcp_fenced_is_told_and_kept_out),
		cmocka_unit_test(tcp_reader_that_does_not_read_is_lost),
		cmocka_unit_test(tcp_withdraw_waits_for_answers_under_way),
		cmocka_unit_test(tcp_parts_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
