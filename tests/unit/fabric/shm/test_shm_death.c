/* test_shm_death.c - fences, and deaths of clients and nodes of the shm fabric:
 * who is let in, who is killed, who notices.
 *
 * The node runs in a thread of this process, or in a child; clients are in
 * this thread or in children. */
#include "fixture/shm_node.h"

#include "fabric/shm/shm.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

/* --- fencing --- */

static void shm_fence_in_one_process_refuses_posts(void **state)
{
	struct shm_client client, other;
	struct shm_node node;
	uint64_t value;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	shm_client_start(&other, &node, 2);
	assert_int_equal(shm_client_put(&client, 0, 1), 0);
	node.session = SESSION(1);
	node.timeout_ns = 20 * SECOND;
	assert_int_equal(shm_node_call(&node, shm_node_fence), 0);
	assert_int_equal(shm_client_put(&client, 0, 2), -REEF_EFENCED);
	assert_int_equal(*(uint64_t *)node.memory->base, 1);
	assert_int_equal(shm_client_get(&client, 0, &value), -REEF_EFENCED);
	assert_int_equal(reef_link_status(client.link), -REEF_EFENCED);
	shm_await(&node.closed, 1);
	assert_int_equal(atomic_load(&node.reason), -REEF_EFENCED);
	/* Not let in again; the next generation of the slot is. */
	reef_link_close(client.link);
	assert_int_equal(shm_client_connect(&client, node.address, SESSION(1),
					    &client.link),
			 -REEF_EFENCED);
	assert_int_equal(shm_client_connect(&client, node.address,
					    SESSION(1) + 1, &client.link),
			 0);
	assert_int_equal(shm_client_put(&other, 0, 3), 0);
	shm_client_close(&other);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* A thread that posts one batch: WRITE of a word, SEND, WRITE of the next. It
 * is held up at the end of the SEND, outside of any turn. */
struct poster {
	struct shm_client *client;
	struct reef_op ops[3];
	uint64_t one;
	int result;
	pthread_t thread;
};

static _Thread_local bool is_poster;
static _Atomic int poster_is_at_gate, gate_is_open;

/* In place of the C library's. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t rc = syscall(SYS_sendmsg, fd, message, flags);

	if (is_poster) {
		atomic_store(&poster_is_at_gate, 1);
		shm_await(&gate_is_open, 1);
	}
	return rc;
}

static void *poster_main(void *arg)
{
	struct poster *poster = arg;
	struct reef_batch batch = {
		.link = poster->client->link,
		.ops = poster->ops,
		.count = 3,
	};

	is_poster = true;
	poster->result = reef_run(poster->client->queue, &batch);
	return NULL;
}

static void poster_start(struct poster *poster, struct shm_client *client)
{
	*poster = (struct poster){.client = client, .one = 1};
	for (int i = 0; i < 3; i++)
		poster->ops[i] = (struct reef_op){
			.kind = i == 1 ? REEF_SEND : REEF_WRITE,
			.remote = i == 1 ? NULL : client->remote,
			.offset = i == 2 ? 8 : 0,
			.local = &poster->one,
			.length = 8,
		};
	atomic_store(&poster_is_at_gate, 0);
	atomic_store(&gate_is_open, 0);
	assert_int_equal(
		pthread_create(&poster->thread, NULL, poster_main, poster), 0);
	shm_await(&poster_is_at_gate, 1);
}

/* As shm_client_start as session 1, with a link that has number 1. */
static void start_numbered(struct shm_client *client, struct shm_node *node)
{
	struct reef_connect_options options = {
		.session = SESSION(1),
		.number = 1,
		.identity = "test",
		.timeout_ns = 20 * SECOND,
	};

	memset(options.key, 7, REEF_KEY_SIZE);
	assert_int_equal(shm_client_open(client), 0);
	assert_int_equal(reef_connect(client->queue, node->address, &options,
				      &client->link),
			 0);
	assert_int_equal(reef_attach(client->queue, client->link, node->key,
				     &client->remote),
			 0);
}

/* `end` ends the link of a poster that is in the middle of its batch. */
static void try_end_within_batch(int (*end)(struct shm_node *node),
				 int expected)
{
	struct shm_client client;
	struct poster poster;
	struct shm_node node;
	uint64_t *words;

	shm_node_start(&node);
	start_numbered(&client, &node);
	poster_start(&poster, &client);
	assert_int_equal(end(&node), 0);
	atomic_store(&gate_is_open, 1);
	assert_int_equal(pthread_join(poster.thread, NULL), 0);
	words = node.memory->base;
	assert_int_equal(words[0], 1);
	assert_int_equal(words[1], 0);
	assert_int_equal(poster.result, expected);
	assert_int_equal(poster.ops[1].status, 0);
	assert_int_equal(poster.ops[2].status, expected);
	shm_client_close(&client);
	shm_node_stop(&node);
}

static int end_by_fence(struct shm_node *node)
{
	node->session = SESSION(1);
	node->timeout_ns = 20 * SECOND;
	return shm_node_call(node, shm_node_fence);
}

static void shm_fence_within_a_batch_stops_the_rest(void **state)
{
	(void)state;
	try_end_within_batch(end_by_fence, -REEF_EFENCED);
}

/* The fenced link is gone, and another has its control word. */
static int end_by_fence_and_reuse(struct shm_node *node)
{
	struct shm_client next;
	int rc = end_by_fence(node);

	if (rc)
		return rc;
	shm_await(&node->closed, 1);
	shm_client_start(&next, node, 2);
	shm_client_close(&next);
	return 0;
}

static void shm_fence_whose_word_is_reused_stops_the_rest(void **state)
{
	(void)state;
	try_end_within_batch(end_by_fence_and_reuse, -REEF_ENOLINK);
}

/* Another fabric of this process takes the session over (F5). */
static int end_by_new_link(struct shm_node *node)
{
	struct shm_client next;
	int rc;

	rc = shm_client_open(&next);
	rc = rc ? rc
		: shm_client_connect(&next, node->address, SESSION(1),
				     &next.link);
	if (!rc)
		reef_link_close(next.link);
	reef_queue_close(next.queue);
	reef_fabric_close(next.fabric);
	return rc;
}

static void shm_new_link_within_a_batch_stops_the_rest(void **state)
{
	(void)state;
	try_end_within_batch(end_by_new_link, -REEF_ENOLINK);
}

/* What an operation of the old link is just doing comes before the new link. */
static void shm_new_link_waits_for_an_operation_under_way(void **state)
{
	struct shm_client client;
	struct shm_node node;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	reef_turn_enter(&client.queue->turn);
	assert_int_equal(end_by_new_link(&node), -EBUSY);
	reef_turn_leave(&client.queue->turn);
	assert_int_equal(end_by_new_link(&node), 0);
	assert_int_equal(shm_client_put(&client, 0, 1), -REEF_ENOLINK);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* Ended by its number (F10). */
static int end_first_link(struct shm_node *node)
{
	return reef_end_links(node->queue, SESSION(1), 1, node->timeout_ns);
}

static int end_by_number(struct shm_node *node)
{
	node->timeout_ns = 20 * SECOND;
	return shm_node_call(node, end_first_link);
}

static void shm_end_within_a_batch_stops_the_rest(void **state)
{
	(void)state;
	try_end_within_batch(end_by_number, -REEF_ENOLINK);
}

/* What an operation of the link is just doing comes before its end. */
static void shm_end_waits_for_an_operation_under_way(void **state)
{
	struct shm_client client;
	struct shm_node node;

	(void)state;
	shm_node_start(&node);
	start_numbered(&client, &node);
	node.timeout_ns = SECOND / 50;
	reef_turn_enter(&client.queue->turn);
	assert_int_equal(shm_node_call(&node, end_first_link), -ETIMEDOUT);
	reef_turn_leave(&client.queue->turn);
	assert_int_equal(end_by_number(&node), 0);
	assert_int_equal(shm_client_put(&client, 0, 1), -REEF_ENOLINK);
	shm_await(&node.closed, 1);
	assert_int_equal(atomic_load(&node.reason), -REEF_ENOLINK);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* A child that joins, tells that it has, and goes on as `then` says. */
struct child {
	const char *address;
	pid_t pid, grandchild;
	int ends[2];
};

static void child_tell(struct child *child, pid_t what)
{
	if (write(child->ends[1], &what, sizeof(what)) != sizeof(what))
		_exit(9);
}

/* A sanitizer's allocator does not go through a fork: while there is one the
 * node's thread is here, and not inside it. */
static atomic_bool is_held, may_go;

static int hold_node(struct shm_node *node)
{
	(void)node;
	atomic_store(&is_held, true);
	while (!atomic_load(&may_go))
		sched_yield();
	return 0;
}

static pid_t fork_beside(struct shm_node *node)
{
	pid_t pid;

	atomic_store(&is_held, false);
	atomic_store(&may_go, false);
	atomic_store(&node->returned, false);
	atomic_store(&node->call, hold_node);
	while (!atomic_load(&is_held))
		sched_yield();
	pid = fork();
	atomic_store(&may_go, true);
	while (pid > 0 && !atomic_load(&node->returned))
		sched_yield();
	return pid;
}

static void child_start(struct child *child, struct shm_node *node,
			void (*then)(struct child *child,
				     struct shm_client *client))
{
	struct shm_client client;

	child->address = node->address;
	assert_int_equal(pipe(child->ends), 0);
	child->pid = fork_beside(node);
	assert_true(child->pid >= 0);
	if (!child->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (shm_client_join(&client, node->address, node->key,
				    SESSION(5)))
			_exit(8);
		then(child, &client);
		_exit(0);
	}
	assert_int_equal(read(child->ends[0], &child->grandchild,
			      sizeof(child->grandchild)),
			 sizeof(child->grandchild));
}

static void child_end(struct child *child, int *status)
{
	if (child->grandchild)
		kill(child->grandchild, SIGKILL);
	assert_int_equal(waitpid(child->pid, status, 0), child->pid);
	close(child->ends[0]);
	close(child->ends[1]);
}

/* The grandchild keeps a copy of every descriptor open. */
static void have_grandchild(struct child *child)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, 0);
		for (;;)
			pause();
	}
	child_tell(child, pid);
}

static void write_for_ever(struct child *child, struct shm_client *client)
{
	uint64_t i;

	have_grandchild(child);
	for (i = 1;; i++)
		if (shm_client_put(client, 0, i))
			_exit(7);
}

static int go[2]; /* a byte in it: the child goes on */

static void leave_and_live_on(struct child *child, struct shm_client *client)
{
	char byte;

	child_tell(child, 0);
	if (read(go[0], &byte, 1) != 1)
		_exit(1);
	reef_link_close(client->link);
	child_tell(child, 0);
	_exit(read(go[0], &byte, 1) != 1);
}

/* The node has not even read yet that its link has ended. */
static void shm_fence_after_a_clean_close_kills_nobody(void **state)
{
	struct child child;
	struct shm_node node;
	pid_t none;
	int status;

	(void)state;
	shm_node_start(&node);
	assert_int_equal(pipe(go), 0);
	child_start(&child, &node, leave_and_live_on);
	atomic_store(&node.stop, true);
	pthread_join(node.thread, NULL);
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(read(child.ends[0], &none, sizeof(none)),
			 sizeof(none));
	assert_int_equal(reef_fence(node.queue, SESSION(5), 0), 0);
	assert_int_equal(write(go[1], "x", 1), 1);
	child_end(&child, &status);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	reef_poll(node.queue);
	assert_int_equal(atomic_load(&node.closed), 1);
	assert_int_equal(atomic_load(&node.reason), -REEF_EFENCED);
	close(go[0]);
	close(go[1]);
	shm_node_close(&node);
}

static void shm_fence_kills_a_child_whose_child_has_the_socket(void **state)
{
	struct child child;
	struct shm_node node;
	uint64_t before;
	int status, i;

	(void)state;
	shm_node_start(&node);
	child_start(&child, &node, write_for_ever);
	node.session = SESSION(5);
	node.timeout_ns = 20 * SECOND;
	assert_int_equal(shm_node_call(&node, shm_node_fence), 0);
	before = atomic_load((_Atomic uint64_t *)node.memory->base);
	for (i = 0; i < 1000; i++)
		assert_int_equal(
			atomic_load((_Atomic uint64_t *)node.memory->base),
			before);
	shm_await(&node.closed, 1);
	assert_int_equal(atomic_load(&node.reason), -REEF_EFENCED);
	assert_int_equal(kill(child.grandchild, 0), 0);
	child_end(&child, &status);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	shm_node_stop(&node);
}

static void leave_a_grandchild(struct child *child, struct shm_client *client)
{
	(void)client;
	have_grandchild(child);
}

static void shm_death_is_noticed_though_a_child_has_the_socket(void **state)
{
	struct child child;
	struct shm_node node;
	int status;

	(void)state;
	shm_node_start(&node);
	child_start(&child, &node, leave_a_grandchild);
	shm_await(&node.closed, 1);
	assert_int_equal(atomic_load(&node.reason), -REEF_ENOLINK);
	/* What it held came back. */
	node.timeout_ns = 20 * SECOND;
	assert_int_equal(shm_node_call(&node, shm_node_withdraw), 0);
	child_end(&child, &status);
	shm_node_stop(&node);
}

static void join_again_and_leave_a_grandchild(struct child *child,
					      struct shm_client *client)
{
	struct reef_link *second;

	if (shm_client_connect(client, child->address, SESSION(6), &second))
		_exit(6);
	have_grandchild(child);
}

/* Whoever finds it dead first, all its links end. */
static void shm_death_found_by_withdraw_ends_all_links(void **state)
{
	struct child child;
	struct shm_node node;
	siginfo_t info;
	int status;

	(void)state;
	shm_node_start(&node);
	child_start(&child, &node, join_again_and_leave_a_grandchild);
	shm_await(&node.opened, 2);
	/* From here on nobody polls the node but this thread. */
	atomic_store(&node.stop, true);
	pthread_join(node.thread, NULL);
	assert_int_equal(
		waitid(P_PID, (id_t)child.pid, &info, WEXITED | WNOWAIT), 0);
	if (!atomic_load(&node.closed))
		assert_int_equal(reef_withdraw(node.queue, node.region, 0), 0);
	/* One that is just being read ends with the poll after. */
	reef_poll(node.queue);
	reef_poll(node.queue);
	assert_int_equal(atomic_load(&node.closed), 2);
	child_end(&child, &status);
	assert_int_equal(status, 0);
	shm_node_close(&node);
}

static void tell_and_pause(struct child *child, struct shm_client *client)
{
	(void)client;
	child_tell(child, 0);
	for (;;)
		pause();
}

/* Another process with the same session: the first has memory mapped and might
 * be writing, so the second waits until it is gone. */
static void
shm_session_in_another_process_is_refused_until_it_left(void **state)
{
	struct shm_client client;
	struct child child;
	struct shm_node node;
	int status, rc;

	(void)state;
	shm_node_start(&node);
	child_start(&child, &node, tell_and_pause);
	assert_int_equal(shm_client_open(&client), 0);
	rc = shm_client_connect(&client, node.address, SESSION(5),
				&client.link);
	assert_int_equal(rc, -EBUSY);
	shm_await(&node.closed, 1); /* but the first was ended */
	kill(child.pid, SIGKILL);
	child_end(&child, &status);
	assert_int_equal(shm_client_connect(&client, node.address, SESSION(5),
					    &client.link),
			 0);
	shm_client_close(&client);
	shm_node_stop(&node);
}

static void shm_new_link_of_a_session_ends_the_old(void **state)
{
	struct reef_remote *remote;
	struct shm_client client;
	struct reef_link *old;
	struct shm_node node;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	old = client.link;
	assert_int_equal(shm_client_put(&client, 0, 1), 0);
	assert_int_equal(shm_client_connect(&client, node.address, SESSION(1),
					    &client.link),
			 0);
	assert_int_equal(
		reef_attach(client.queue, client.link, node.key, &remote), 0);
	/* With polling or without, the old one is down. */
	client.link = old;
	assert_int_equal(shm_client_put(&client, 0, 2), -REEF_ENOLINK);
	assert_int_equal(reef_link_status(old), -REEF_ENOLINK);
	client.link = remote->link;
	client.remote = remote;
	assert_int_equal(shm_client_put(&client, 0, 3), 0);
	reef_link_close(old);
	shm_await(&node.closed, 1);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* --- the end of a node --- */

/* A node in a process of its own; ends[0] brings its address and key. */
struct far_node {
	pid_t pid;
	char address[64];
	uint64_t key;
};

/* joins: a node that it first connects to itself, or NULL. */
static void far_node_start(struct far_node *far, uid_t user,
			   const struct shm_node *joins)
{
	struct shm_client client;
	struct shm_node node;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	far->pid = fork();
	assert_true(far->pid >= 0);
	if (!far->pid) {
		if (user && (setgid(user) || setuid(user)))
			_exit(9);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		shm_node_open(&node);
		client = (struct shm_client){.queue = node.queue};
		if (joins && shm_client_connect(&client, joins->address,
						SESSION(9), &client.link))
			_exit(7);
		if (write(ends[1], node.address, sizeof(node.address)) < 0 ||
		    write(ends[1], &node.key, sizeof(node.key)) < 0)
			_exit(8);
		shm_node_main(&node);
		_exit(0);
	}
	assert_int_equal(read(ends[0], far->address, sizeof(far->address)),
			 sizeof(far->address));
	assert_int_equal(read(ends[0], &far->key, sizeof(far->key)),
			 sizeof(far->key));
	close(ends[0]);
	close(ends[1]);
}

static void far_node_kill(struct far_node *far)
{
	int status;

	kill(far->pid, SIGKILL);
	assert_int_equal(waitpid(far->pid, &status, 0), far->pid);
}

static void shm_dead_node_is_noticed_by_posts_alone(void **state)
{
	struct far_node far;
	struct shm_client client;
	uint64_t value;
	int i, rc = 0;

	(void)state;
	far_node_start(&far, 0, NULL);
	assert_int_equal(
		shm_client_join(&client, far.address, far.key, SESSION(1)), 0);
	for (i = 0; i < 10000; i++)
		assert_int_equal(shm_client_put(&client, 0, 1), 0);
	far_node_kill(&far);
	for (i = 0; !rc && i < 10000; i++)
		rc = shm_client_get(&client, 0, &value);
	assert_int_equal(rc, -REEF_ENOLINK);
	shm_client_close(&client);
}

static void shm_dead_node_is_noticed_by_polling(void **state)
{
	struct far_node far;
	struct shm_client client;
	uint64_t value, start_ns = reef_now_ns();

	(void)state;
	far_node_start(&far, 0, NULL);
	assert_int_equal(
		shm_client_join(&client, far.address, far.key, SESSION(1)), 0);
	far_node_kill(&far);
	while (!reef_link_status(client.link)) {
		assert_true(reef_now_ns() - start_ns < 20 * SECOND);
		reef_queue_wait(client.queue, SECOND);
	}
	assert_int_equal(shm_client_get(&client, 0, &value), -REEF_ENOLINK);
	shm_client_close(&client);
}

static void shm_peer_that_cannot_be_killed_is_refused(void **state)
{
	struct far_node far;
	struct shm_client client;

	(void)state;
	if (geteuid() != 0)
		skip();
	/* A node of nobody's cannot fence a process of root's. */
	far_node_start(&far, NOBODY, NULL);
	assert_int_equal(shm_client_open(&client), 0);
	assert_int_equal(shm_client_connect(&client, far.address, SESSION(1),
					    &client.link),
			 -EPERM);
	reef_queue_close(client.queue);
	reef_fabric_close(client.fabric);
	far_node_kill(&far);
}

/* That it connected to us, who could kill it, says nothing of the other way. */
static void shm_known_peer_that_cannot_be_killed_is_refused(void **state)
{
	struct shm_client client;
	struct shm_node node;
	struct far_node far;

	(void)state;
	if (geteuid() != 0)
		skip();
	shm_node_start(&node);
	far_node_start(&far, NOBODY, &node);
	assert_int_equal(shm_client_open(&client), 0);
	assert_int_equal(shm_client_connect(&client, far.address, SESSION(1),
					    &client.link),
			 -EPERM);
	reef_queue_close(client.queue);
	reef_fabric_close(client.fabric);
	far_node_kill(&far);
	shm_node_stop(&node);
}

static void shm_forked_child_is_told(void **state)
{
	struct shm_client client;
	struct shm_node node;
	uint64_t value;
	int status;
	pid_t pid;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	assert_int_equal(shm_client_put(&client, 0, 1), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (shm_client_get(&client, 0, &value) != -REEF_EFORKED)
			_exit(1);
		shm_client_close(&client); /* does nothing */
		/* and can have its own */
		_exit(shm_client_join(&client, node.address, node.key,
				      SESSION(2)) ||
		      shm_client_put(&client, 8, 2));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(((uint64_t *)node.memory->base)[1], 2);
	assert_int_equal(shm_client_get(&client, 0, &value), 0);
	shm_client_close(&client);
	shm_node_stop(&node);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shm_fence_after_a_clean_close_kills_nobody),
		cmocka_unit_test(shm_fence_in_one_process_refuses_posts),
		cmocka_unit_test(shm_fence_within_a_batch_stops_the_rest),
		cmocka_unit_test(shm_fence_whose_word_is_reused_stops_the_rest),
		cmocka_unit_test(shm_new_link_within_a_batch_stops_the_rest),
		cmocka_unit_test(shm_new_link_waits_for_an_operation_under_way),
		cmocka_unit_test(shm_end_within_a_batch_stops_the_rest),
		cmocka_unit_test(shm_end_waits_for_an_operation_under_way),
		cmocka_unit_test(
			shm_fence_kills_a_child_whose_child_has_the_socket),
		cmocka_unit_test(
			shm_death_is_noticed_though_a_child_has_the_socket),
		cmocka_unit_test(shm_death_found_by_withdraw_ends_all_links),
		cmocka_unit_test(
			shm_session_in_another_process_is_refused_until_it_left),
		cmocka_unit_test(shm_new_link_of_a_session_ends_the_old),
		cmocka_unit_test(shm_dead_node_is_noticed_by_posts_alone),
		cmocka_unit_test(shm_dead_node_is_noticed_by_polling),
		cmocka_unit_test(shm_peer_that_cannot_be_killed_is_refused),
		cmocka_unit_test(
			shm_known_peer_that_cannot_be_killed_is_refused),
		cmocka_unit_test(shm_forked_child_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
