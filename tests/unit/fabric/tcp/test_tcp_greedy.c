/* test_tcp_greedy.c - a node of tcp, and clients that keep what is not theirs:
 * memory, by batches that they send halfway, and room for answers that they do
 * not read. */
#include "fabric/tcp/tcp.h"
#include "fixture/tcp_node.h"
#include "fixture/units.h"
#include "wire/batch.h"
#include "wire/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- strangers --- */

/* Connects to the node from another address of this machine. */
static int connect_from(const char *from)
{
	const char *to = reef_listener_address(tcp_node.listener) + 4;
	struct reef_address here, there;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(reef_address_parse_inet(from, &here), 0);
	assert_int_equal(reef_address_parse_inet(to, &there), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&here.storage, here.size),
			 0);
	assert_int_equal(
		connect(fd, (struct sockaddr *)&there.storage, there.size), 0);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return fd;
}

/* A host that connects over and over does not push out the guest of another,
 * which is slow to say who it is. */
static void tcp_strangers_of_one_host_keep_no_other_out(void **state)
{
	enum { MANY = 1100 };
	static int fds[MANY];
	struct reef_fabric_options options = {.silence_ns = 20 * SECOND};
	struct rlimit files;
	int slow;

	(void)state;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	assert_true(files.rlim_cur >= 3 * MANY);
	tcp_node_start(&options);
	slow = connect_from("127.0.0.2:0");
	for (int i = 0; i < MANY; i++)
		fds[i] = raw_connect(reef_listener_address(tcp_node.listener));
	tcp_check_served();
	raw_greet(slow, SESSION, 0);
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
	close(slow);
	tcp_node_stop();
}

/* --- half-sent frames --- */

static void check_half_is_lost(uint8_t type, uint32_t length,
			       const void *payload, uint32_t sent)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 4};
	int fd;

	tcp_node_start(&options);
	fd = raw_join(SESSION);
	raw_put_header(fd, type, 0, length);
	raw_put(fd, payload, sent);
	tcp_await(&tcp_node.closed, 1);
	assert_int_equal(atomic_load(&tcp_node.reason), -ETIMEDOUT);
	tcp_check_served();
	close(fd);
	tcp_node_stop();
}

static void tcp_half_a_frame_that_stalls_is_lost(void **state)
{
	uint8_t data[64] = {0};

	(void)state;
	tcp_node_start(NULL);
	raw_one_op((struct reef_wire_op){.kind = REEF_WRITE, .length = 64},
		   data, 64);
	tcp_node_stop();
	check_half_is_lost(REEF_FRAME_BATCH, raw_request_size, raw_request, 0);
	check_half_is_lost(REEF_FRAME_BATCH, raw_request_size, raw_request, 20);
	raw_one_op((struct reef_wire_op){.kind = REEF_SEND, .length = 64}, data,
		   64);
	check_half_is_lost(REEF_FRAME_BATCH, raw_request_size, raw_request, 80);
	check_half_is_lost(REEF_FRAME_ATTACH, REEF_WIRE_KEY_SIZE, data, 3);
}

/* A WRITE of which the first words are there already. */
static void put_half_a_write(int fd)
{
	uint8_t data[64];

	memset(data, 0xff, sizeof(data));
	raw_one_op((struct reef_wire_op){.kind = REEF_WRITE, .length = 64},
		   data, 64);
	raw_put_header(fd, REEF_FRAME_BATCH, 0, raw_request_size);
	raw_put(fd, raw_request, 32 + 20);
	while (tcp_node_word(8) != UINT64_MAX)
		sched_yield();
}

static void tcp_half_a_write_that_stalls_is_lost(void **state)
{
	struct reef_fabric_options options = {.silence_ns = SECOND / 4};
	int fd;

	(void)state;
	tcp_node_start(&options);
	fd = raw_join(SESSION);
	put_half_a_write(fd);
	tcp_await(&tcp_node.closed, 1);
	assert_int_equal(atomic_load(&tcp_node.reason), -ETIMEDOUT);
	assert_int_equal(tcp_node_word(16), 0);
	tcp_check_served();
	close(fd);
	tcp_node_stop();
}

/* --- memory that is withdrawn meanwhile --- */

/* Nobody is waited for, and nothing is in doubt: the WRITE is refused, and its
 * link goes on. */
static void tcp_withdraw_refuses_half_a_write(void **state)
{
	uint64_t one = 1;
	int fd;

	(void)state;
	tcp_node_start(NULL);
	fd = raw_join(SESSION);
	put_half_a_write(fd);
	tcp_node_pause();
	assert_int_equal(reef_withdraw(tcp_node.queue, tcp_node.region, 0), 0);
	memset(tcp_node.memory->base, 0, 64);
	raw_put(fd, raw_request + 52, raw_request_size - 52);
	tcp_node_resume();
	raw_check_done(fd, 0, 0, -REEF_EKEY, 0);
	assert_int_equal(tcp_node_word(0), 0);
	assert_int_equal(tcp_node_word(16), 0);
	tcp_node_pause();
	assert_int_equal(
		reef_expose(tcp_node.fabric, tcp_node.memory, &tcp_node.region),
		0);
	tcp_node_resume();
	raw_one_op((struct reef_wire_op){.kind = REEF_FAA, .length = 8}, &one,
		   8);
	raw_put_batch(fd, 1);
	raw_check_done(fd, 1, 1, 0, 8);
	close(fd);
	tcp_node_stop();
}

/* A message that comes halfway holds no memory of the WRITE before it. */
static void tcp_withdraw_does_not_wait_for_a_message(void **state)
{
	struct reef_wire_op write = {.kind = REEF_WRITE, .length = 8};
	struct reef_wire_op send = {.kind = REEF_SEND, .length = 8};
	struct reef_frame_header header = {0};
	struct reef_wire_done done;
	uint8_t frame[128];
	int fd;

	(void)state;
	tcp_node_start(NULL);
	fd = raw_join(SESSION);
	write.key = reef_region_key(tcp_node.region);
	reef_wire_batch_encode(2, frame);
	reef_wire_op_encode(&write, frame + 8);
	reef_wire_op_encode(&send, frame + 32);
	memset(frame + 56, 0xff, 16);
	raw_put_header(fd, REEF_FRAME_BATCH, 0, 72);
	raw_put(fd, frame, 56 + 12);
	while (tcp_node_word(0) != UINT64_MAX)
		sched_yield();
	tcp_node_pause();
	assert_int_equal(reef_withdraw(tcp_node.queue, tcp_node.region, 0), 0);
	tcp_node.region = NULL;
	raw_put(fd, frame + 68, 4);
	tcp_node_resume();
	assert_true(raw_get_frame(fd, &header, frame, sizeof(frame)));
	assert_int_equal(reef_wire_done_decode(frame, 2, &done), 0);
	assert_int_equal(done.done, 2);
	assert_int_equal(done.status, 0);
	close(fd);
	tcp_node_stop();
}

static void ask_for_much(int fd)
{
	for (uint64_t tag = 0; tag < 64; tag++) {
		raw_one_op((struct reef_wire_op){.kind = REEF_READ,
						 .length = SIZE},
			   NULL, 0);
		raw_put_batch(fd, tag);
	}
}

/* Whoever takes an answer drop by drop is not silent, but keeps nothing that is
 * withdrawn. */
static void tcp_withdraw_ends_who_takes_answers_slowly(void **state)
{
	struct reef_fabric_options options = {.silence_ns = 4 * SECOND};
	uint8_t drop[256];
	int fd, rc = -ETIMEDOUT;

	(void)state;
	tcp_node_start(&options);
	fd = raw_join(SESSION);
	ask_for_much(fd);
	tcp_node_pause();
	for (int i = 0; i < 1000; i++)
		reef_poll(tcp_node.queue);
	for (int i = 0; i < 1500 && rc == -ETIMEDOUT; i++) {
		recv(fd, drop, sizeof(drop), MSG_DONTWAIT);
		rc = reef_withdraw(tcp_node.queue, tcp_node.region, 1000000);
	}
	assert_int_equal(rc, 0);
	tcp_node.region = NULL;
	tcp_node_resume();
	tcp_await(&tcp_node.closed, 1);
	assert_int_equal(atomic_load(&tcp_node.reason), -ETIMEDOUT);
	close(fd);
	tcp_node_stop();
}

/* --- answers that nobody reads --- */

static uint64_t answers_waiting(void)
{
	return atomic_load(&((struct tcp_fabric *)tcp_node.fabric)->answers);
}

/* Put FAAs, with the region's key or another, until the node takes no more of
 * them. Returns how many. */
static uint64_t put_until_full(int fd, uint64_t key)
{
	uint8_t frame[REEF_FRAME_HEADER_SIZE + 40];
	uint32_t idle = 0, at = 0;
	uint64_t count = 0, one = 1;
	ssize_t n;

	raw_one_op((struct reef_wire_op){.kind = REEF_FAA,
					 .length = 8,
					 .key = key},
		   &one, 8);
	memcpy(frame + REEF_FRAME_HEADER_SIZE, raw_request, 40);
	while (idle < 2000 && count < 4000000) {
		reef_frame_header_encode(
			&(struct reef_frame_header){.type = REEF_FRAME_BATCH,
						    .tag = count,
						    .length = 40},
			frame);
		n = send(fd, frame + at, sizeof(frame) - at,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN)
			break;
		at += n > 0 ? (uint32_t)n : 0;
		idle = n > 0 ? 0 : idle + 1;
		if (at == sizeof(frame)) {
			at = 0;
			count++;
		}
		if (idle || count % 64 == 0)
			reef_poll(tcp_node.queue);
	}
	/* The rest of a frame is not left out. */
	for (int i = 0; at && i < 1000000; i++) {
		n = send(fd, frame + at, sizeof(frame) - at,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		at += n > 0 ? (uint32_t)n : 0;
		if (at == sizeof(frame))
			return count + 1;
		if (n < 0 && errno != EAGAIN)
			break;
	}
	return count;
}

/* Who asks, and does not read, is not asked to go on; and when it reads after
 * all, it finds every answer. */
static void check_unread_press_back(uint64_t key)
{
	struct reef_fabric_options options = {.silence_ns = 20 * SECOND};
	struct reef_frame_header header = {0};
	uint8_t payload[64];
	uint64_t count, got;
	int fd;

	tcp_node_start(&options);
	fd = raw_join(SESSION);
	tcp_node_pause();
	count = put_until_full(fd, key);
	assert_true(answers_waiting() > 0);
	assert_true(answers_waiting() < 3 * TCP_ANSWERS_MAX);
	assert_int_equal(atomic_load(&tcp_node.closed), 0);
	assert_true(tcp_node_word(0) < count);
	tcp_node_resume();
	/* The last frame may not be whole. */
	for (got = 0; got + 1 < count; got++) {
		assert_true(
			raw_get_frame(fd, &header, payload, sizeof(payload)));
		assert_int_equal(header.tag, got);
	}
	close(fd);
	tcp_await(&tcp_node.closed, 1);
	assert_int_equal(answers_waiting(), 0);
	tcp_node_stop();
}

static void tcp_unread_answers_press_back(void **state)
{
	(void)state;
	check_unread_press_back(0);
	check_unread_press_back(1); /* a key that there is not */
}

/* Beyond the room that all have together each has little, and who reads is
 * served all the same. */
static void tcp_unread_answers_of_all_are_bounded(void **state)
{
	struct reef_fabric_options options = {
		.silence_ns = 20 * SECOND,
		.answers_max = TCP_ANSWERS_MAX,
	};
	int fds[8];

	(void)state;
	tcp_node_start(&options);
	for (uint32_t i = 0; i < 8; i++) {
		fds[i] = raw_join(SESSION + (i + 1) * 0x10000);
		ask_for_much(fds[i]);
		tcp_check_served();
	}
	tcp_node_pause();
	for (int i = 0; i < 1000; i++)
		reef_poll(tcp_node.queue);
	assert_true(answers_waiting() > TCP_ANSWERS_MAX);
	/* One that came before the room was used up, and those after it, each
	 * with what is sent and what waits, a part over. */
	assert_true(answers_waiting() <
		    2 * (TCP_ANSWERS_MAX + (64u << 10)) +
			    8 * 2 * (TCP_ANSWERS_LEAST + (64u << 10)));
	tcp_node_resume();
	tcp_check_served();
	for (int i = 0; i < 8; i++)
		close(fds[i]);
	tcp_await(&tcp_node.closed, 8 + 9); /* and those that were served */
	assert_int_equal(answers_waiting(), 0);
	tcp_node_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tcp_strangers_of_one_host_keep_no_other_out),
		cmocka_unit_test(tcp_half_a_frame_that_stalls_is_lost),
		cmocka_unit_test(tcp_half_a_write_that_stalls_is_lost),
		cmocka_unit_test(tcp_withdraw_refuses_half_a_write),
		cmocka_unit_test(tcp_withdraw_does_not_wait_for_a_message),
		cmocka_unit_test(tcp_withdraw_ends_who_takes_answers_slowly),
		cmocka_unit_test(tcp_unread_answers_press_back),
		cmocka_unit_test(tcp_unread_answers_of_all_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
