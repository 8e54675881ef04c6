/* test_shm_rules.c - peers of shm that break the rules: only they suffer, and
 * nobody maps what could be taken away. */
#include "base/mutant.h"
#include "fabric/socket.h"
#include "fabric/stream.h"
#include "fixture/seeds.h"
#include "fixture/shm_node.h"
#include "wire/bytes.h"
#include "wire/control.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int raw_socket(const char *address)
{
	struct reef_address parsed;

	assert_int_equal(reef_address_parse_unix(address + 4, &parsed), 0);
	return reef_socket_connect(&parsed);
}

/* The next frame, within 20 seconds; negative once the other side is gone. */
static int raw_receive(struct reef_stream *stream, struct reef_frame *frame)
{
	struct pollfd pollfd = {
		.fd = reef_stream_fd(stream),
		.events = POLLIN,
	};
	int rc;

	while ((rc = reef_stream_receive(stream, frame)) == -EAGAIN)
		if (poll(&pollfd, 1, 20000) != 1)
			return -ETIMEDOUT;
	return rc;
}

static const struct reef_hello_local raw_local = {
	.fabric = "shm",
	.domain = 1,
	.ops_max = 1,
	.length_max = 1,
	.message_max = 1024,
};

/* Connect and say hello; what the node says to that. */
static int raw_hello(const struct shm_node *node, uint32_t session,
		     struct reef_stream **out)
{
	struct reef_connect_options options = {
		.session = session,
		.identity = "test",
	};
	struct reef_hello_peer peer;
	struct reef_hello *hello;
	int rc;

	memset(options.key, 7, REEF_KEY_SIZE);
	assert_int_equal(
		reef_stream_create(raw_socket(node->address), 4096, out), 0);
	assert_int_equal(reef_hello_connect(*out, &raw_local, &options, &hello),
			 0);
	while ((rc = reef_hello_step(hello, &peer)) == -EAGAIN)
		sched_yield();
	reef_hello_destroy(hello);
	return rc;
}

/* Come in, as far as the control word. */
static struct reef_stream *raw_connect(const struct shm_node *node,
				       uint32_t session)
{
	struct reef_stream *stream;
	struct reef_frame frame;

	assert_int_equal(raw_hello(node, session, &stream), 0);
	assert_int_equal(raw_receive(stream, &frame), 0);
	assert_int_equal(frame.type, REEF_FRAME_CONTROL);
	/* It cannot be written, by whatever way. */
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
			      frame.fd, 0),
			 MAP_FAILED);
	close(frame.fd);
	return stream;
}

static int raw_attach(struct reef_stream *stream, uint64_t key)
{
	uint8_t bytes[REEF_WIRE_KEY_SIZE];
	struct iovec part = {bytes, sizeof(bytes)};
	struct reef_frame frame;

	reef_wire_key_encode(key, bytes);
	assert_int_equal(
		reef_stream_send(stream, REEF_FRAME_ATTACH, 1, &part, 1, -1),
		0);
	assert_int_equal(raw_receive(stream, &frame), 0);
	assert_int_equal(frame.type, REEF_FRAME_ATTACHED);
	assert_true(frame.fd >= 0);
	return frame.fd;
}

static void shm_client_cannot_truncate_what_it_was_given(void **state)
{
	struct reef_stream *stream;
	struct shm_client client;
	struct shm_node node;
	int fd;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	stream = raw_connect(&node, SESSION(2));
	fd = raw_attach(stream, node.key);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(ftruncate(fd, 2 * SIZE), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
	assert_int_equal(shm_client_put(&client, SIZE - 8, 1), 0);
	close(fd);
	reef_stream_destroy(stream);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* Whatever it sends, only that peer suffers; and if it may have memory mapped
 * it counts as a holder until it is gone. */
static void shm_garbage_after_attaching_keeps_the_hold(void **state)
{
	struct reef_stream *stream;
	struct shm_client client;
	struct shm_node node;
	int fd;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	stream = raw_connect(&node, SESSION(2));
	fd = raw_attach(stream, node.key);
	assert_int_equal(
		reef_stream_send(stream, REEF_FRAME_ATTACHED, 0, NULL, 0, -1),
		0);
	shm_await(&node.closed, 1);
	assert_int_equal(atomic_load(&node.reason), -REEF_EPROTO);
	assert_int_equal(shm_client_put(&client, 0, 1), 0);
	reef_detach(client.queue, client.remote);
	node.timeout_ns = 20 * MILLISECOND;
	assert_int_equal(shm_node_call(&node, shm_node_withdraw), -ETIMEDOUT);
	close(fd);
	reef_stream_destroy(stream);
	node.timeout_ns = 20 * SECOND;
	assert_int_equal(shm_node_call(&node, shm_node_withdraw), 0);
	shm_client_close(&client);
	shm_node_stop(&node);
}

static void shm_wrong_frames_end_only_their_link(void **state)
{
	static const uint8_t types[] = {
		REEF_FRAME_HELLO,   REEF_FRAME_WELCOME,	   REEF_FRAME_ATTACH,
		REEF_FRAME_DETACH,  REEF_FRAME_WITHDRAW,   REEF_FRAME_BATCH,
		REEF_FRAME_CONTROL, REEF_FRAME_QUEUE_PAIR,
	};
	struct reef_stream *stream;
	struct reef_frame frame;
	struct shm_client client;
	struct shm_node node;
	size_t i;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	for (i = 0; i < sizeof(types); i++) {
		stream = raw_connect(&node, SESSION(2));
		assert_int_equal(
			reef_stream_send(stream, types[i], 0, NULL, 0, -1), 0);
		assert_int_equal(raw_receive(stream, &frame), 0);
		assert_int_equal(reef_frame_bye_reason(&frame), -REEF_EPROTO);
		reef_stream_destroy(stream);
		shm_await(&node.closed, (int)i + 1);
	}
	assert_int_equal(shm_client_put(&client, 0, 1), 0);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* Connections that never finish their hello, some with a few bytes of it: the
 * next honest one gets in all the same. */
static void shm_half_open_flood_harms_nobody(void **state)
{
	enum { FLOOD = 300 };
	struct shm_client client;
	struct shm_node node;
	int fds[FLOOD], i;

	(void)state;
	shm_node_start(&node);
	for (i = 0; i < FLOOD; i++) {
		fds[i] = raw_socket(node.address);
		if (fds[i] >= 0 && i % 3 == 0 &&
		    write(fds[i], "REEFREEFREEFREEFREEF", 1 + i % 20) < 0)
			fail();
	}
	shm_client_start(&client, &node, 1);
	assert_int_equal(shm_client_put(&client, 0, 1), 0);
	for (i = 0; i < FLOOD; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* Links that are opened one after the other, and never left. */
static void shm_links_that_are_not_left_are_few(void **state)
{
	struct reef_stream *streams[3];
	struct shm_client client;
	struct shm_node node;
	int fds[2], i;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	for (i = 0; i < 2; i++) {
		streams[i] = raw_connect(&node, SESSION(2));
		fds[i] = raw_attach(streams[i], node.key);
	}
	assert_int_equal(raw_hello(&node, SESSION(2), &streams[2]), -EBUSY);
	reef_stream_destroy(streams[2]);
	assert_int_equal(shm_client_put(&client, 0, 1), 0);
	/* Who leaves comes in again. */
	for (i = 0; i < 2; i++) {
		reef_stream_destroy(streams[i]);
		close(fds[i]);
	}
	reef_stream_destroy(raw_connect(&node, SESSION(2)));
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* A server that passes whatever it likes. */
struct evil {
	char address[64];
	int listener;
	int control_fd, memory_fd;
	uint64_t claimed;
	pthread_t thread;
};

static int make_memfd(uint64_t size, int seals)
{
	int fd = memfd_create("evil", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* What a node answers to a RING with this memory. */
static int try_ring(int memory_fd)
{
	struct reef_stream *stream;
	struct reef_frame frame;
	struct shm_node node;
	int rc;

	shm_node_start(&node);
	stream = raw_connect(&node, SESSION(1));
	assert_int_equal(reef_stream_send(stream, REEF_FRAME_RING, 0, NULL, 0,
					  memory_fd),
			 0);
	assert_int_equal(raw_receive(stream, &frame), 0);
	/* Nothing is shared but the memory. */
	assert_int_equal(frame.fd, -1);
	rc = frame.type == REEF_FRAME_BELL ? 0 : reef_frame_bye_reason(&frame);
	reef_stream_destroy(stream);
	shm_node_stop(&node);
	close(memory_fd);
	return rc;
}

static void shm_ring_is_a_sealed_memfd_and_nothing_else(void **state)
{
	char name[] = "/dev/shm/reef-test-XXXXXX";
	int fd = mkostemp(name, O_CLOEXEC);

	(void)state;
	assert_int_equal(try_ring(make_memfd(8192, F_SEAL_SHRINK)), 0);
	assert_int_equal(try_ring(make_memfd(8192, 0)), -REEF_EPROTO);
	assert_int_equal(try_ring(make_memfd(8191, F_SEAL_SHRINK)),
			 -REEF_EPROTO);
	assert_int_equal(try_ring(open("/dev/zero", O_RDWR)), -REEF_EPROTO);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 8192), 0);
	assert_int_equal(try_ring(fd), -REEF_EPROTO);
	assert_int_equal(unlink(name), 0);
	fd = memfd_create("huge",
			  MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (fd >= 0 && !ftruncate(fd, 2 << 20) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		assert_int_equal(try_ring(fd), -REEF_EPROTO);
}

static int evil_serve(struct evil *evil, struct reef_stream *stream)
{
	struct reef_listen_options options = {.credential = shm_credential};
	struct reef_wire_attached attached = {
		.size = evil->claimed,
		.domain = reef_domain_cpu(),
	};
	uint8_t bytes[REEF_WIRE_ATTACHED_SIZE] = {0};
	struct iovec part = {bytes, 8};
	struct reef_hello_peer peer;
	struct reef_hello *hello;
	struct reef_frame frame;
	int rc;

	rc = reef_hello_accept(stream, &raw_local, &options, NULL, NULL,
			       &hello);
	while (!rc && (rc = reef_hello_step(hello, &peer)) == -EAGAIN) {
		sched_yield();
		rc = 0;
	}
	reef_hello_destroy(hello);
	rc = rc ? rc
		: reef_stream_send(stream, REEF_FRAME_CONTROL, 0, &part, 1,
				   evil->control_fd);
	rc = rc ? rc : raw_receive(stream, &frame);
	if (rc || frame.type != REEF_FRAME_ATTACH)
		return rc ? rc : -1;
	attached.key = reef_get64(frame.payload);
	reef_wire_attached_encode(&attached, bytes);
	part.iov_len = sizeof(bytes);
	rc = reef_stream_send(stream, REEF_FRAME_ATTACHED, frame.tag, &part, 1,
			      evil->memory_fd);
	/* until the client goes */
	while (!rc)
		rc = raw_receive(stream, &frame);
	return rc;
}

static void *evil_thread(void *arg)
{
	struct evil *evil = arg;
	struct pollfd pollfd = {.fd = evil->listener, .events = POLLIN};
	struct reef_stream *stream;
	int fd;

	if (poll(&pollfd, 1, 20000) != 1)
		return NULL;
	fd = reef_socket_accept(evil->listener);
	if (fd >= 0 && !reef_stream_create(fd, 4096, &stream)) {
		evil_serve(evil, stream);
		reef_stream_destroy(stream);
	}
	return NULL;
}

static void evil_start(struct evil *evil, int control_fd, int memory_fd,
		       uint64_t claimed)
{
	struct reef_address parsed;

	snprintf(evil->address, sizeof(evil->address), "shm:@reef-evil-%d",
		 (int)getpid());
	assert_int_equal(reef_address_parse_unix(evil->address + 4, &parsed),
			 0);
	evil->listener = reef_socket_listen(&parsed, NULL);
	assert_true(evil->listener >= 0);
	evil->control_fd = control_fd;
	evil->memory_fd = memory_fd;
	evil->claimed = claimed;
	assert_int_equal(pthread_create(&evil->thread, NULL, evil_thread, evil),
			 0);
}

static void evil_stop(struct evil *evil)
{
	pthread_join(evil->thread, NULL);
	reef_socket_unlisten(evil->listener);
	close(evil->control_fd);
	close(evil->memory_fd);
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static void try_evil_memory(int memory_fd, uint64_t claimed, int expected)
{
	struct shm_client client;
	struct evil evil;

	evil_start(&evil, make_memfd(4096, SEALS), memory_fd, claimed);
	assert_int_equal(shm_client_open(&client), 0);
	assert_int_equal(shm_client_connect(&client, evil.address, SESSION(1),
					    &client.link),
			 0);
	assert_int_equal(
		reef_attach(client.queue, client.link, 5, &client.remote),
		expected);
	assert_int_equal(reef_link_status(client.link),
			 expected ? -REEF_ENOLINK : 0);
	shm_client_close(&client);
	evil_stop(&evil);
}

static void shm_memory_that_could_shrink_is_not_mapped(void **state)
{
	(void)state;
	try_evil_memory(make_memfd(SIZE, 0), SIZE, -REEF_EPROTO);
	try_evil_memory(make_memfd(SIZE, F_SEAL_GROW), SIZE, -REEF_EPROTO);
	/* The same server with honest memory, to see that this is the reason.*/
	try_evil_memory(make_memfd(SIZE, SEALS), SIZE, 0);
}

static void shm_memory_shorter_than_said_is_not_mapped(void **state)
{
	(void)state;
	try_evil_memory(make_memfd(SIZE, SEALS), SIZE + 1, -REEF_EPROTO);
	try_evil_memory(make_memfd(SIZE, SEALS), UINT64_MAX, -REEF_EPROTO);
	try_evil_memory(make_memfd(0, SEALS), 4096, -REEF_EPROTO);
}

static void shm_memory_that_is_no_memory_is_not_mapped(void **state)
{
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	try_evil_memory(ends[0], 4096, -REEF_EPROTO);
	close(ends[1]);
	try_evil_memory(open("/dev/zero", O_RDWR | O_CLOEXEC), 4096,
			-REEF_EPROTO);
}

static void shm_control_page_that_could_shrink_is_refused(void **state)
{
	struct shm_client client;
	struct evil evil;

	(void)state;
	evil_start(&evil, make_memfd(4096, 0), make_memfd(SIZE, SEALS), SIZE);
	assert_int_equal(shm_client_open(&client), 0);
	assert_int_equal(shm_client_connect(&client, evil.address, SESSION(1),
					    &client.link),
			 -REEF_EPROTO);
	reef_queue_close(client.queue);
	reef_fabric_close(client.fabric);
	evil_stop(&evil);
}

/* --- who is let in --- */

static int refuse(void *watcher, uint32_t session, uint32_t number, int pidfd)
{
	atomic_fetch_add((_Atomic uint32_t *)watcher, 1);
	return -EIO;
}

static void ignore(void *watcher, uint32_t session, uint32_t number)
{
}

/* Whether a process gets memory from a node whose watcher (a holder) does not
 * take it in. */
static bool gets_in_unwatched(void)
{
	const struct reef_memory_options memory = {
		.backing = REEF_BACKING_MEMFD, .size = SIZE};
	_Atomic uint32_t asked = 0;
	const struct reef_fabric_options options = {
		.let_in = refuse, .let_go = ignore, .watcher = &asked};
	struct shm_client client;
	struct shm_node node;
	int ends[2], status;
	pid_t child;
	char byte;

	assert_int_equal(pipe(ends), 0);
	shm_node_open_options(&node, &memory, &options);
	child = fork(); /* before the thread */
	if (child == 0) {
		if (read(ends[0], &byte, 1) != 1)
			_exit(2);
		_exit(shm_client_join(&client, node.address, node.key,
				      SESSION(1)) != 0);
	}
	assert_int_equal(
		pthread_create(&node.thread, NULL, shm_node_main, &node), 0);
	assert_int_equal(write(ends[1], "x", 1), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
	assert_true(atomic_load(&asked) > 0);
	shm_node_stop(&node);
	close(ends[0]);
	close(ends[1]);
	return WEXITSTATUS(status) == 0;
}

static void shm_process_that_nobody_could_end_is_not_let_in(void **state)
{
	assert_false(gets_in_unwatched());
#if !SANITIZED
	reef_mutate(REEF_MUTANT_SHM_PIDFD_LATE);
	assert_true(gets_in_unwatched());
	reef_mutate(REEF_MUTANT_NONE);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shm_client_cannot_truncate_what_it_was_given),
		cmocka_unit_test(
			shm_process_that_nobody_could_end_is_not_let_in),
		cmocka_unit_test(shm_garbage_after_attaching_keeps_the_hold),
		cmocka_unit_test(shm_wrong_frames_end_only_their_link),
		cmocka_unit_test(shm_half_open_flood_harms_nobody),
		cmocka_unit_test(shm_links_that_are_not_left_are_few),
		cmocka_unit_test(shm_ring_is_a_sealed_memfd_and_nothing_else),
		cmocka_unit_test(shm_memory_that_could_shrink_is_not_mapped),
		cmocka_unit_test(shm_memory_shorter_than_said_is_not_mapped),
		cmocka_unit_test(shm_memory_that_is_no_memory_is_not_mapped),
		cmocka_unit_test(shm_control_page_that_could_shrink_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
