/* test_shm_ring.c - short messages of shm that go through memory. */
#include "base/random.h"
#include "fabric/shm/shm.h"
#include "fixture/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 100000
#define BATCHES 8
#define LENGTH_MAX 300

/* A receiver and a sender, both polled by the test. */
struct scene {
	struct reef_fabric *fabrics[2];
	struct reef_queue *queues[2];
	struct reef_listener *listener;
	struct reef_link *link;
	char address[64];
	int closed;
	struct reef_batch batches[BATCHES];
	struct reef_op ops[BATCHES];
	uint8_t bytes[BATCHES][LENGTH_MAX];
	bool is_busy[BATCHES];
	uint64_t sent, received;
	struct reef_random lengths[2];
	uint32_t length_max;
};

static int shm_credential(void *context, const char *identity, uint32_t session,
			  uint8_t key[REEF_KEY_SIZE])
{
	memset(key, 7, REEF_KEY_SIZE);
	return 0;
}

static void closed(void *context, struct reef_link *link, int reason)
{
	struct scene *scene = context;

	scene->closed++;
}

static void listen_at(struct scene *scene, uint32_t inbox_max)
{
	struct reef_fabric_options options = {
		.inbox_max = inbox_max,
		.depth_max = BATCHES,
	};
	struct reef_listen_options listen_options = {
		.credential = shm_credential,
		.closed = closed,
		.context = scene,
	};

	snprintf(scene->address, sizeof(scene->address), "shm:@reef-ring-%d",
		 (int)getpid());
	assert_int_equal(reef_fabric_open("shm", &options, &scene->fabrics[0]),
			 0);
	assert_int_equal(
		reef_queue_open(scene->fabrics[0], NULL, &scene->queues[0]), 0);
	assert_int_equal(reef_listen(scene->queues[0], scene->address,
				     &listen_options, &scene->listener),
			 0);
}

static int connect_to(struct scene *scene)
{
	struct reef_connect_options options = {
		.session = 0x10001,
		.identity = "test",
		.short_messages = true,
	};

	memset(options.key, 7, sizeof(options.key));
	return reef_connect_start(scene->queues[1], scene->address, &options,
				  &scene->link);
}

static bool is_in_use(const struct scene *scene)
{
	return ((const struct shm_link *)scene->link)->ring_is_usable;
}

static void scene_open(struct scene *scene, uint32_t inbox_max,
		       uint32_t length_max)
{
	struct reef_fabric_options options = {.depth_max = BATCHES};
	int i;

	memset(scene, 0, sizeof(*scene));
	scene->length_max = length_max;
	reef_random_init(&scene->lengths[0], 5);
	scene->lengths[1] = scene->lengths[0];
	listen_at(scene, inbox_max);
	assert_int_equal(reef_fabric_open("shm", &options, &scene->fabrics[1]),
			 0);
	assert_int_equal(
		reef_queue_open(scene->fabrics[1], NULL, &scene->queues[1]), 0);
	assert_int_equal(connect_to(scene), 0);
	for (i = 0; i < STEPS && !is_in_use(scene); i++) {
		reef_poll(scene->queues[0]);
		reef_poll(scene->queues[1]);
	}
	assert_true(is_in_use(scene));
}

static void scene_close(struct scene *scene)
{
	int i;

	reef_link_close(scene->link);
	reef_listener_close(scene->listener);
	for (i = 0; i < 2; i++) {
		reef_queue_close(scene->queues[i]);
		reef_fabric_close(scene->fabrics[i]);
	}
}

static uint32_t length_of(struct scene *scene, int side)
{
	return (uint32_t)reef_random_between(&scene->lengths[side], 8,
					     scene->length_max);
}

static void on_done(struct reef_batch *batch)
{
	*(bool *)batch->user = false;
}

/* False: it must be polled first. */
static bool send_next(struct scene *scene)
{
	struct reef_random before = scene->lengths[1];
	uint32_t i = 0, length;
	int rc;

	while (i < BATCHES && scene->is_busy[i])
		i++;
	if (i == BATCHES)
		return false;
	length = length_of(scene, 1);
	memset(scene->bytes[i], (int)scene->sent, length);
	memcpy(scene->bytes[i], &scene->sent, 8);
	scene->ops[i] = (struct reef_op){
		.kind = REEF_SEND,
		.local = scene->bytes[i],
		.length = length,
	};
	scene->batches[i] = (struct reef_batch){
		.link = scene->link,
		.ops = &scene->ops[i],
		.count = 1,
		.on_done = on_done,
		.user = &scene->is_busy[i],
	};
	rc = reef_post(scene->queues[1], &scene->batches[i]);
	if (rc == -EAGAIN) {
		scene->lengths[1] = before;
		return false;
	}
	assert_true(rc == 0 || rc == 1);
	scene->is_busy[i] = !rc;
	scene->sent++;
	return true;
}

static void receive_all(struct scene *scene)
{
	struct reef_message *message;
	uint64_t number;

	while (!reef_receive(scene->queues[0], 0, &message)) {
		memcpy(&number, message->bytes, 8);
		assert_int_equal(number, scene->received);
		assert_int_equal(message->length, length_of(scene, 0));
		if (message->length > 8)
			assert_int_equal(message->bytes[message->length - 1],
					 (uint8_t)number);
		scene->received++;
		reef_message_free(message);
	}
}

/* Some now, some later, in turns that chance picks. */
static void run(struct scene *scene, uint64_t count)
{
	struct reef_random random;
	uint64_t i, burst;

	reef_random_init(&random, 9);
	for (i = 0; i < STEPS && scene->received < count; i++) {
		burst = reef_random_below(&random, 100);
		while (burst-- && scene->sent < count && send_next(scene))
			;
		if (reef_random_chance(&random, 1, 2))
			reef_poll(scene->queues[1]);
		if (reef_random_chance(&random, 1, 2))
			reef_poll(scene->queues[0]);
		if (reef_random_chance(&random, 1, 2))
			receive_all(scene);
	}
	assert_int_equal(scene->received, count);
}

static void shm_ring_and_socket_keep_one_order(void **state)
{
	static struct scene scene;

	scene_open(&scene, 16, LENGTH_MAX);
	run(&scene, 5000);
	scene_close(&scene);
}

static void shm_ring_that_is_full_goes_on_in_the_socket(void **state)
{
	static struct scene scene;

	scene_open(&scene, 4096, 64);
	while (scene.sent < 1000)
		assert_true(send_next(&scene));
	run(&scene, 3000);
	scene_close(&scene);
}

static void shm_ring_of_one_who_left_is_read_first(void **state)
{
	static struct scene scene;
	uint64_t i;

	scene_open(&scene, 4, 64);
	while (scene.sent < 30)
		assert_true(send_next(&scene));
	reef_link_close(scene.link);
	scene.link = NULL;
	for (i = 0; i < STEPS && scene.received < 30; i++) {
		reef_poll(scene.queues[0]);
		assert_int_equal(scene.closed, 0);
		receive_all(&scene);
	}
	assert_int_equal(scene.received, 30);
	for (i = 0; i < STEPS && !scene.closed; i++)
		reef_poll(scene.queues[0]);
	assert_int_equal(scene.closed, 1);
	scene_close(&scene);
}

/* The fabric of the child is its own. */
static void send_and_die(struct scene *scene)
{
	uint32_t i;

	if (reef_fabric_open("shm", NULL, &scene->fabrics[1]) ||
	    reef_queue_open(scene->fabrics[1], NULL, &scene->queues[1]) ||
	    connect_to(scene))
		_exit(1);
	for (i = 0; !is_in_use(scene); i++)
		if (reef_queue_wait(scene->queues[1], SECOND) &&
		    i > 100) /* of nothing */
			_exit(2);
	while (scene->sent < 30)
		if (!send_next(scene))
			_exit(3);
	_exit(0);
}

static void shm_ring_of_the_dead_is_read(void **state)
{
	static struct scene scene;
	int status;
	uint64_t i;
	pid_t child;

	memset(&scene, 0, sizeof(scene));
	scene.length_max = 64;
	reef_random_init(&scene.lengths[0], 5);
	scene.lengths[1] = scene.lengths[0];
	snprintf(scene.address, sizeof(scene.address), "shm:@reef-ring-%d",
		 (int)getpid());
	listen_at(&scene, 16);
	child = fork();
	if (!child)
		send_and_die(&scene);
	for (i = 0; i < 30 && scene.received < 30; i++) {
		reef_queue_wait(scene.queues[0], SECOND);
		receive_all(&scene);
		i = scene.closed ? i : 0;
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(scene.received, 30);
	reef_listener_close(scene.listener);
	reef_queue_close(scene.queues[0]);
	reef_fabric_close(scene.fabrics[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shm_ring_and_socket_keep_one_order),
		cmocka_unit_test(shm_ring_that_is_full_goes_on_in_the_socket),
		cmocka_unit_test(shm_ring_of_one_who_left_is_read_first),
		cmocka_unit_test(shm_ring_of_the_dead_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
