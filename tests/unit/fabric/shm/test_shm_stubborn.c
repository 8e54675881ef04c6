/* test_shm_stubborn.c - processes that do not let go of memory, and what their
 * heirs send: nobody is waited for without end (shm.h, 9). */
#include "fixture/shm_node.h"

#include "fabric/shm/shm.h"
#include "wire/frame.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAMES 300 /* more than a poll reads of one link */

/* A node whose patience is short. */
static void start_node(struct shm_node *node)
{
	struct reef_memory_options memory = {.size = SIZE};
	struct reef_fabric_options fabric = {.silence_ns = 100 * MILLISECOND};

	shm_node_open_options(node, &memory, &fabric);
	assert_int_equal(
		pthread_create(&node->thread, NULL, shm_node_main, node), 0);
}

static void end_all(pid_t child, int expected)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status)
					     : WEXITSTATUS(status),
			 expected);
}

/* A child that has memory of the node, says so by a message, and goes on as
 * `then` says. */
static pid_t start_holder(struct shm_node *node,
			  void (*then)(struct shm_client *client))
{
	struct reef_op message = {.kind = REEF_SEND};
	struct shm_client client;
	pid_t child = fork();

	assert_true(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (shm_client_join(&client, node->address, node->key,
				    SESSION(5)) ||
		    shm_client_run(&client, &message))
			_exit(8);
		then(&client);
		_exit(7);
	}
	shm_await(&node->received, 1);
	return child;
}

static void stand_still(struct shm_client *client)
{
	(void)client;
	for (;;)
		pause();
}

/* It asks all the time, and answers nothing. */
static void ask_for_ever(struct shm_client *client)
{
	const struct shm_link *link = (struct shm_link *)client->link;
	uint8_t ping[REEF_FRAME_HEADER_SIZE];

	reef_frame_header_encode(
		&(struct reef_frame_header){.type = REEF_FRAME_PING}, ping);
	for (;;)
		send(reef_stream_fd(link->stream), ping, sizeof(ping),
		     MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void try_withdraw_from(void (*then)(struct shm_client *client))
{
	struct shm_node node;
	pid_t child;

	start_node(&node);
	child = start_holder(&node, then);
	node.timeout_ns = 20 * SECOND;
	assert_int_equal(shm_node_call(&node, shm_node_withdraw), 0);
	end_all(child, SIGKILL);
	shm_node_stop(&node);
}

static void shm_holder_that_stands_still_is_killed(void **state)
{
	try_withdraw_from(stand_still);
}

static void shm_holder_that_only_asks_is_killed(void **state)
{
	try_withdraw_from(ask_for_ever);
}

/* Its link is ended by another process's; nobody withdraws anything. */
static void shm_process_that_keeps_an_ended_link_is_killed(void **state)
{
	uint64_t start_ns = reef_now_ns();
	struct shm_client client;
	struct shm_node node;
	pid_t child;
	int rc;

	start_node(&node);
	child = start_holder(&node, stand_still);
	assert_int_equal(shm_client_open(&client), 0);
	do {
		rc = shm_client_connect(&client, node.address, SESSION(5),
					&client.link);
		assert_true(rc == 0 || rc == -EBUSY);
	} while (rc && reef_now_ns() - start_ns < 20 * SECOND);
	assert_int_equal(rc, 0);
	end_all(child, SIGKILL);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* A node that stood still itself counts little of that, and so reads what has
 * come meanwhile; as little, while it has no room for what comes. */
static void shm_time_that_is_not_the_holders_counts_little(void **state)
{
	struct reef_fabric fabric = {.options.silence_ns = 8 * SECOND};
	struct shm_peer peer = {.pid = 1, .pidfd = -1};
	struct shm_link link = {.link.fabric = &fabric, .peer = &peer};
	struct shm_patience patience = {0};
	uint64_t now_ns = SECOND;
	int ends[2], i;

	assert_int_equal(pipe(ends), 0);
	peer.pidfd = ends[0]; /* no process: nobody is killed by a mistake */
	shm_peer_hurry(&link, &patience, now_ns);
	assert_int_equal(patience.waited_ns, 0);
	for (i = 1; i <= 8; i++) {
		now_ns += 100 * SECOND;
		shm_peer_hurry(&link, &patience, now_ns);
		assert_int_equal(patience.waited_ns, i * SECOND);
		assert_false(peer.killed);
	}
	link.has_held = true;
	link.held.type = REEF_FRAME_MESSAGE;
	patience.waited_ns = 0;
	for (i = 1; i <= 64; i++) {
		now_ns += SECOND;
		shm_peer_hurry(&link, &patience, now_ns);
		assert_int_equal(patience.waited_ns, i * SECOND / 8);
		assert_false(peer.killed);
	}
	shm_peer_hurry(&link, &patience, now_ns + SECOND);
	assert_true(peer.killed);
	close(ends[0]);
	close(ends[1]);
}

/* In a child: join, pass the link's socket on, and die. */
static void leave_socket(struct shm_node *node, struct reef_stream *heir)
{
	struct shm_client client;
	struct shm_link *link;

	if (shm_client_join(&client, node->address, node->key, SESSION(5)))
		_exit(8);
	link = (struct shm_link *)client.link;
	_exit(reef_stream_send(heir, REEF_FRAME_PING, 0, NULL, 0,
			       reef_stream_fd(link->stream)));
}

/* The heir of a dead process's socket, which is this thread, sends more before
 * each poll than one reads. */
static void shm_heir_that_sends_on_does_not_keep_the_link(void **state)
{
	static uint8_t frames[FRAMES][REEF_FRAME_HEADER_SIZE];
	struct reef_stream *streams[2];
	struct reef_frame frame;
	struct shm_node node;
	int ends[2], i, rc;
	pid_t child;

	for (i = 0; i < FRAMES; i++)
		reef_frame_header_encode(
			&(struct reef_frame_header){.type = REEF_FRAME_PONG},
			frames[i]);
	shm_node_open(&node);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(reef_stream_create(ends[i], 4096, &streams[i]),
				 0);
	child = fork();
	if (!child)
		leave_socket(&node, streams[1]);
	while ((rc = reef_stream_receive(streams[0], &frame)) == -EAGAIN)
		reef_poll(node.queue);
	assert_int_equal(rc, 0);
	assert_true(frame.fd >= 0);
	end_all(child, 0);
	for (i = 0; i < 5000 && !atomic_load(&node.closed); i++) {
		send(frame.fd, frames, sizeof(frames), MSG_DONTWAIT);
		reef_poll(node.queue);
	}
	assert_int_equal(atomic_load(&node.closed), 1);
	assert_int_equal(atomic_load(&node.reason), -REEF_ENOLINK);
	assert_true(i > 100); /* there was room for what had been sent */
	close(frame.fd);
	reef_stream_destroy(streams[0]);
	reef_stream_destroy(streams[1]);
	shm_node_close(&node);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shm_holder_that_stands_still_is_killed),
		cmocka_unit_test(shm_holder_that_only_asks_is_killed),
		cmocka_unit_test(
			shm_process_that_keeps_an_ended_link_is_killed),
		cmocka_unit_test(
			shm_time_that_is_not_the_holders_counts_little),
		cmocka_unit_test(shm_heir_that_sends_on_does_not_keep_the_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
