/* test_tcp_clients.c - hard cases of tcp between sides that behave: long
 * messages, many threads, limits, and ends in any order. */
#include "fabric/fabric.h"
#include "fabric/tcp/tcp.h"
#include "fixture/runtime.h"
#include "fixture/tcp_node.h"
#include "fixture/units.h"

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
#include <sys/socket.h>

/* --- good clients, hard cases --- */

/* A client that does not poll does not keep a server from sending, until
 * everything between them is full; and gets all of it when it looks. */
static void tcp_server_sends_without_waiting(void **state)
{
	enum { COUNT = 2000 };
	struct tcp_client client;
	struct reef_op op = {.kind = REEF_SEND};
	struct reef_batch batch = {.ops = &op, .count = 1};
	struct reef_message *message;
	uint32_t number;

	tcp_node_start(NULL);
	tcp_client_open(&client, NULL);
	tcp_client_join(&client, reef_listener_address(tcp_node.listener),
			SESSION);
	tcp_await(&tcp_node.opened, 1);
	tcp_node_pause();
	batch.link = atomic_load(&tcp_node.link);
	op.local = &number;
	op.length = sizeof(number);
	for (number = 0; number < COUNT; number++)
		assert_int_equal(reef_run(tcp_node.queue, &batch), 0);
	tcp_node_resume();
	for (uint32_t i = 0; i < COUNT; i++) {
		assert_int_equal(
			reef_receive(client.queue, 20 * SECOND, &message), 0);
		assert_int_equal(message->length, sizeof(number));
		memcpy(&number, message->bytes, sizeof(number));
		assert_int_equal(number, i);
		reef_message_free(message);
	}
	tcp_client_close(&client);
	tcp_node_stop();
}

/* Long enough to be sent from the caller's memory. */
static void tcp_long_message_of_the_server_ends(void **state)
{
	static uint8_t text[40000];
	struct reef_op op = {
		.kind = REEF_SEND, .local = text, .length = sizeof(text)};
	struct reef_batch batch = {.ops = &op, .count = 1};
	struct reef_message *message;
	struct tcp_client client;

	(void)state;
	tcp_node_start(NULL);
	tcp_client_open(&client, NULL);
	tcp_client_join(&client, reef_listener_address(tcp_node.listener),
			SESSION);
	tcp_await(&tcp_node.opened, 1);
	tcp_node_pause();
	batch.link = atomic_load(&tcp_node.link);
	for (int i = 0; i < 3; i++) {
		/* Each by itself: nothing comes after it to flush it out. */
		assert_int_equal(reef_run(tcp_node.queue, &batch), 0);
		assert_int_equal(
			reef_receive(client.queue, 20 * SECOND, &message), 0);
		assert_int_equal(message->length, sizeof(text));
		reef_message_free(message);
	}
	tcp_client_close(&client);
	tcp_node_resume();
	tcp_node_stop();
}

static void tcp_long_operations_arrive_whole(void **state)
{
	struct tcp_client client;
	uint8_t *out = malloc(SIZE), *in = malloc(SIZE);
	struct reef_op ops[3];
	struct reef_batch batch = {.ops = ops, .count = 3};

	tcp_node_start(NULL);
	tcp_client_meet(&client, NULL, SESSION);
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
	tcp_client_close(&client);
	tcp_node_stop();
	free(out);
	free(in);
}

/* --- threads --- */

#define THREADS 4
#define ROUNDS 150

static void *attach_and_add(void *arg)
{
	struct tcp_client client = *(struct tcp_client *)arg;

	assert_int_equal(reef_queue_open(client.fabric, NULL, &client.queue),
			 0);
	for (int i = 0; i < ROUNDS; i++) {
		assert_int_equal(reef_attach(client.queue, client.link,
					     reef_region_key(tcp_node.region),
					     &client.remote),
				 0);
		assert_int_equal(tcp_client_faa(&client, 64), 0);
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
		.link = atomic_load(&tcp_node.link), .ops = &op, .count = 1};
	struct reef_queue *queue;

	assert_int_equal(reef_queue_open(tcp_node.fabric, NULL, &queue), 0);
	for (int i = 0; i < ROUNDS; i++, number++)
		assert_int_equal(reef_run(queue, &batch), 0);
	reef_queue_close(queue);
	return NULL;
}

static void receive_all(struct tcp_client *client)
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
	struct tcp_client client;

	tcp_node_start(NULL);
	tcp_client_open(&client, NULL);
	tcp_client_join(&client, reef_listener_address(tcp_node.listener),
			SESSION);
	tcp_await(&tcp_node.opened, 1);
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
	assert_int_equal(tcp_node_word(64), THREADS / 2 * ROUNDS);
	tcp_client_close(&client);
	tcp_node_stop();
}

/* Until the owner of the link leaves it to another queue when it sleeps: then a
 * timer wakes it soon, though nothing came. False: this machine is too slow. */
static bool left_to_others(struct tcp_client *client, struct tcp_client *other)
{
	struct pollfd pollfd = {reef_queue_fd(client->queue), POLLIN, 0};

	for (int i = 0; i < 200; i++) {
		for (int j = 0; j < 2; j++) {
			assert_int_equal(tcp_client_faa(other, 64), 0);
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
	struct tcp_client client, other;
	struct pollfd pollfd;
	pthread_t thread;

	tcp_node_start(NULL);
	tcp_client_meet(&client, &options, SESSION);
	tcp_await(&tcp_node.opened, 1);
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
	tcp_client_close(&client);
	tcp_node_stop();
}

/* Long WRITEs of one thread, whose answers another reads as soon as they come.
 */
static void *write_often(void *arg)
{
	struct tcp_client client = *(struct tcp_client *)arg;
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
	atomic_store(&tcp_node.reason, 1);
	return (void *)rc;
}

static void tcp_answer_overtakes_the_writers_thread(void **state)
{
	struct tcp_client client;
	pthread_t thread;
	void *result;

	tcp_node_start(NULL);
	tcp_client_meet(&client, NULL, SESSION);
	assert_int_equal(pthread_create(&thread, NULL, write_often, &client),
			 0);
	while (!atomic_load(&tcp_node.reason))
		reef_poll(client.queue);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 0);
	tcp_client_close(&client);
	tcp_node_stop();
}

/* A link breaks while other threads have batches on it: all of them end. */
static void *add_until_lost(void *arg)
{
	struct tcp_client client = *(struct tcp_client *)arg;
	intptr_t rc;

	assert_int_equal(reef_queue_open(client.fabric, NULL, &client.queue),
			 0);
	while ((rc = tcp_client_faa(&client, 64)) == 0)
		;
	reef_queue_close(client.queue);
	return (void *)rc;
}

static void tcp_fence_ends_batches_of_all_threads(void **state)
{
	pthread_t threads[THREADS];
	struct tcp_client client;
	uint64_t before;
	void *result;

	tcp_node_start(NULL);
	tcp_client_meet(&client, NULL, SESSION);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
						add_until_lost, &client),
				 0);
	while (tcp_node_word(64) < 100)
		reef_poll(client.queue);
	/* From a thread and a queue of its own, while the node goes on. */
	{
		struct reef_queue *queue;

		assert_int_equal(reef_queue_open(tcp_node.fabric, NULL, &queue),
				 0);
		assert_int_equal(reef_fence(queue, SESSION, 20 * SECOND), 0);
		before = tcp_node_word(64);
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
	assert_int_equal(tcp_node_word(64), before);
	tcp_client_close(&client);
	tcp_node_stop();
}

/* A second door of the node, with a thread of its own. */
struct door {
	struct reef_queue *queue;
	struct reef_listener *listener;
	_Atomic int is_open, stop;
	pthread_t thread;
};

static void *door_main(void *arg)
{
	struct reef_listen_options options = {.credential = tcp_credential};
	struct door *door = arg;

	assert_int_equal(reef_queue_open(tcp_node.fabric, NULL, &door->queue),
			 0);
	assert_int_equal(reef_listen(door->queue, "tcp:127.0.0.1:0", &options,
				     &door->listener),
			 0);
	atomic_store(&door->is_open, 1);
	while (!atomic_load(&door->stop))
		reef_queue_wait(door->queue, SECOND / 1000);
	reef_listener_close(door->listener);
	reef_queue_close(door->queue);
	return NULL;
}

static struct reef_link *start_joining(struct tcp_client *client,
				       const struct reef_listener *listener)
{
	struct reef_connect_options options = tcp_as_session(SESSION);
	struct reef_link *link;

	assert_int_equal(reef_connect_start(client->queue,
					    reef_listener_address(listener),
					    &options, &link),
			 0);
	return link;
}

/* F5: two hellos of a session at two doors, while somebody still executes what
 * the session's first link sent. Neither is welcomed before that has ended. */
static void tcp_second_guest_waits_for_the_first_link_too(void **state)
{
	struct reef_link *second, *third;
	struct tcp_client client;
	struct door door = {0};
	struct tcp_link *first;

	tcp_node_start(NULL);
	assert_int_equal(pthread_create(&door.thread, NULL, door_main, &door),
			 0);
	tcp_await(&door.is_open, 1);
	tcp_client_meet(&client, NULL, SESSION);
	tcp_await(&tcp_node.opened, 1);
	first = (struct tcp_link *)atomic_load(&tcp_node.link);
	tcp_link_ref(first);
	pthread_mutex_lock(&first->rx_lock);
	second = start_joining(&client, tcp_node.listener);
	while (atomic_load(&first->fabric->accepted) < 2)
		reef_queue_wait(client.queue, SECOND / 1000);
	third = start_joining(&client, door.listener);
	for (int i = 0; i < 100; i++)
		reef_queue_wait(client.queue, SECOND / 1000);
	assert_int_equal(reef_link_status(second), -REEF_ENOLINK);
	assert_int_equal(reef_link_status(third), -REEF_ENOLINK);
	pthread_mutex_unlock(&first->rx_lock);
	while (reef_link_status(third))
		assert_int_equal(reef_queue_wait(client.queue, 20 * SECOND), 0);
	assert_int_equal(atomic_load(&first->broken), -REEF_ENOLINK);
	tcp_link_unref(first);
	reef_link_close(second);
	reef_link_close(third);
	tcp_client_close(&client);
	atomic_store(&door.stop, 1);
	assert_int_equal(pthread_join(door.thread, NULL), 0);
	tcp_node_stop();
}

static void tcp_limits_of_the_peer_kept(void **state)
{
	struct reef_fabric_options small = {
		.ops_max = 2, .length_max = 1000, .message_max = 100};
	struct tcp_client client;
	uint8_t bytes[1001] = {0};
	struct reef_op ops[3];
	struct reef_batch batch = {.ops = ops, .count = 1};

	tcp_node_start(&small);
	tcp_client_meet(&client, NULL, SESSION);
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
	tcp_client_close(&client);
	tcp_node_stop();
}

static void tcp_too_much_under_way_says_so(void **state)
{
	struct reef_fabric_options options = {.depth_max = 3};
	struct reef_op op = {.kind = REEF_FAA, .operand = 1};
	struct reef_batch batches[4];
	struct tcp_client client;

	tcp_node_start(NULL);
	tcp_client_meet(&client, &options, SESSION);
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
	assert_int_equal(tcp_node_word(0), 4);
	tcp_client_close(&client);
	tcp_node_stop();
}

static void tcp_closing_in_any_order_is_fine(void **state)
{
	struct tcp_client client;

	tcp_node_start(NULL);
	tcp_client_open(&client, NULL);
	tcp_client_join(&client, reef_listener_address(tcp_node.listener),
			SESSION);
	tcp_await(&tcp_node.opened, 1);
	tcp_node_pause();
	reef_queue_close(tcp_node.queue);
	reef_fabric_close(tcp_node.fabric);
	reef_memory_destroy(tcp_node.memory);
	while (reef_link_status(client.link) == 0)
		assert_int_equal(reef_queue_wait(client.queue, 20 * SECOND), 0);
	reef_queue_close(client.queue);
	reef_fabric_close(client.fabric);
}

static void tcp_bad_addresses_and_options_refused(void **state)
{
	struct reef_fabric_options options = {.length_max = UINT32_MAX};
	struct reef_connect_options connect = tcp_as_session(SESSION);
	struct reef_listen_options listen = {.credential = tcp_credential};
	struct reef_listener *listener;
	struct reef_fabric *fabric;
	struct tcp_client client;

	assert_int_equal(reef_fabric_open("tcp", &options, &fabric), -EINVAL);
	tcp_client_open(&client, NULL);
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
	tcp_client_close(&client);
}

/* --- fibers of one thread --- */

#define CROWD 16u

struct crowd {
	struct tcp_client client;
	uint64_t before, sent[CROWD]; /* batches, when each came */
	uint32_t count;
};

static int crowd_join(void *arg)
{
	struct crowd *crowd = arg;

	tcp_client_join(&crowd->client,
			reef_listener_address(tcp_node.listener), SESSION);
	return reef_attach(crowd->client.queue, crowd->client.link,
			   reef_region_key(tcp_node.region),
			   &crowd->client.remote);
}

static uint64_t crowd_sent(const struct crowd *crowd)
{
	return atomic_load(&((struct tcp_link *)crowd->client.link)->sent);
}

static int crowd_member(void *arg)
{
	struct crowd *crowd = arg;

	crowd->sent[crowd->count++] = crowd_sent(crowd) - crowd->before;
	return tcp_client_faa(&crowd->client, 0);
}

/* Of fibers that post one after the other the first few go to a peer that has
 * nothing to do, and the rest together, when the last has come. */
static void tcp_idle_peer_is_sent_the_first_of_many(void **state)
{
	struct reef_sched *sched = sched_make(false, NULL);
	struct crowd crowd = {0};

	(void)state;
	tcp_node_start(NULL);
	assert_int_equal(reef_fabric_open("tcp", NULL, &crowd.client.fabric),
			 0);
	assert_int_equal(reef_queue_open(crowd.client.fabric, sched,
					 &crowd.client.queue),
			 0);
	spawn(sched, crowd_join, &crowd);
	run(sched);
	crowd.before = crowd_sent(&crowd);
	for (uint32_t i = 0; i < CROWD; i++)
		spawn(sched, crowd_member, &crowd);
	run(sched);
	assert_int_equal(crowd.count, CROWD);
	assert_int_equal(crowd.sent[5], 0);
	assert_int_equal(crowd.sent[6], 6);
	assert_int_equal(crowd.sent[CROWD - 1], 6);
	assert_int_equal(tcp_node_word(0), CROWD);
	tcp_client_close(&crowd.client);
	reef_sched_destroy(sched);
	tcp_node_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tcp_server_sends_without_waiting),
		cmocka_unit_test(tcp_long_message_of_the_server_ends),
		cmocka_unit_test(tcp_long_operations_arrive_whole),
		cmocka_unit_test(tcp_many_threads_share_a_link),
		cmocka_unit_test(
			tcp_time_that_ran_out_before_sleep_is_no_sleep),
		cmocka_unit_test(tcp_answer_overtakes_the_writers_thread),
		cmocka_unit_test(tcp_fence_ends_batches_of_all_threads),
		cmocka_unit_test(tcp_second_guest_waits_for_the_first_link_too),
		cmocka_unit_test(tcp_limits_of_the_peer_kept),
		cmocka_unit_test(tcp_too_much_under_way_says_so),
		cmocka_unit_test(tcp_idle_peer_is_sent_the_first_of_many),
		cmocka_unit_test(tcp_closing_in_any_order_is_fine),
		cmocka_unit_test(tcp_bad_addresses_and_options_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
