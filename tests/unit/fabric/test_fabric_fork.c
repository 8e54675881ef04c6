/* test_fabric_fork.c - a forked child is refused all that its parent opened,
 * and may open its own. */
#include "fixture/fake.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOTHING ((void *)0x5eed)

struct family {
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_listener *listener;
	struct reef_memory *memory;
	struct reef_region *region;
	struct reef_link *link;
	struct reef_remote *remote;
	struct reef_buffer *buffer;
	struct reef_batch batch;
	struct reef_op op;
	uint8_t bytes[64];
	char address[64];
};

static void family_open(struct family *family, const char *kind,
			struct reef_layer *hook)
{
	struct reef_listen_options listen = {.credential = fake_credential};
	struct reef_connect_options connect = {.session = 1, .identity = "x"};
	struct reef_memory_options memory = {.size = 4096};

	memset(family, 0, sizeof(*family));
	if (!strcmp(kind, "shm"))
		snprintf(family->address, sizeof(family->address),
			 "shm:@reef-test-fabric-%d", (int)getpid());
	else
		snprintf(family->address, sizeof(family->address),
			 "tcp:127.0.0.1:0");
	assert_int_equal(reef_fabric_open(kind, NULL, &family->fabric), 0);
	if (hook)
		reef_fabric_push(family->fabric, hook);
	assert_int_equal(reef_queue_open(family->fabric, NULL, &family->queue),
			 0);
	assert_int_equal(reef_listen(family->queue, family->address, &listen,
				     &family->listener),
			 0);
	assert_int_equal(reef_memory_create(&memory, &family->memory), 0);
	assert_int_equal(
		reef_expose(family->fabric, family->memory, &family->region),
		0);
	/* Both ends in one queue: who waits polls for both. */
	assert_int_equal(reef_connect(family->queue,
				      reef_listener_address(family->listener),
				      &connect, &family->link),
			 0);
	assert_int_equal(reef_attach(family->queue, family->link,
				     reef_region_key(family->region),
				     &family->remote),
			 0);
	assert_int_equal(reef_buffer_register(family->fabric, family->bytes,
					      sizeof(family->bytes),
					      &family->buffer),
			 0);
	family->op = (struct reef_op){
		.kind = REEF_FAA, .remote = family->remote, .operand = 1};
	family->batch = (struct reef_batch){
		.link = family->link, .ops = &family->op, .count = 1};
	assert_int_equal(reef_run(family->queue, &family->batch), 0);
}

static void family_close(struct family *family)
{
	reef_buffer_unregister(family->buffer);
	reef_detach(family->queue, family->remote);
	reef_link_close(family->link);
	reef_listener_close(family->listener);
	assert_int_equal(
		reef_withdraw(family->queue, family->region, 20000000000ull),
		0);
	reef_queue_close(family->queue);
	reef_fabric_close(family->fabric);
	reef_memory_destroy(family->memory);
}

/* 0, or the number of the call that went wrong. */
static int try_everything(struct family *family)
{
	struct reef_listen_options listen = {.credential = fake_credential};
	struct reef_connect_options connect = {.session = 2, .identity = "x"};
	struct reef_queue *queue = family->queue;
	struct reef_batch batch = family->batch;
	void *out = NOTHING;
	const int results[] = {
		reef_post(queue, &batch),
		reef_run(queue, &batch),
		reef_wait(queue, &batch),
		reef_poll(queue),
		reef_queue_fd(queue),
		reef_queue_arm(queue),
		reef_queue_wait(queue, 0),
		reef_queue_wait(queue, REEF_FOREVER),
		reef_receive(queue, 0, (struct reef_message **)&out),
		reef_receive(queue, REEF_FOREVER, (struct reef_message **)&out),
		reef_queue_open(family->fabric, NULL,
				(struct reef_queue **)&out),
		reef_listen(queue, "shm:@reef-test-child", &listen,
			    (struct reef_listener **)&out),
		reef_connect(queue, family->address, &connect,
			     (struct reef_link **)&out),
		reef_link_status(family->link),
		reef_expose(family->fabric, family->memory,
			    (struct reef_region **)&out),
		reef_withdraw(queue, family->region, REEF_FOREVER),
		reef_attach(queue, family->link, 1,
			    (struct reef_remote **)&out),
		reef_buffer_register(family->fabric, family->bytes, 8,
				     (struct reef_buffer **)&out),
		reef_fence(queue, 1, REEF_FOREVER),
		reef_end_links(queue, 1, 1, REEF_FOREVER),
	};

	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (results[i] != -REEF_EFORKED)
			return (int)i + 1;
	reef_detach(queue, family->remote);
	reef_buffer_unregister(family->buffer);
	reef_link_close(family->link);
	reef_listener_close(family->listener);
	reef_queue_close(queue);
	reef_fabric_close(family->fabric);
	return out == NOTHING ? 0 : 99;
}

/* A hook that does something before it asks below. */
static bool eager;

static int eager_post(struct reef_layer *layer, struct reef_queue *queue,
		      struct reef_batch *batch)
{
	return eager ? 1 : layer->next->ops.post(layer->next, queue, batch);
}

static int in_child(struct family *family)
{
	int pid = fork(), status;

	assert_true(pid >= 0);
	if (!pid)
		_exit(try_everything(family));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void fabric_forked_child_is_refused_everywhere(void **state)
{
	const char *const kinds[] = {"shm", "tcp"};
	struct reef_message *message;
	struct family family;
	struct reef_layer hook;

	(void)state;
	for (int i = 0; i < 2; i++) {
		hook = (struct reef_layer){
			.ops = {.name = "eager", .post = eager_post}};
		family_open(&family, kinds[i], &hook);
		family.op.kind = REEF_SEND;
		family.op.local = family.bytes;
		family.op.length = 8;
		assert_int_equal(reef_run(family.queue, &family.batch), 0);
		family.op.kind = REEF_FAA;
		eager = true;
		assert_int_equal(in_child(&family), 0);
		/* None of it disturbed the parent. */
		eager = false;
		assert_int_equal(reef_run(family.queue, &family.batch), 0);
		assert_int_equal(family.op.result, 1);
		assert_int_equal(reef_link_status(family.link), 0);
		assert_int_equal(
			reef_receive(family.queue, 20000000000ull, &message),
			0);
		reef_message_free(message);
		family_close(&family);
	}
}

/* A child may open its own. */
static void fabric_forked_child_opens_its_own(void **state)
{
	struct family family, own;
	int pid, status;

	(void)state;
	family_open(&family, "shm", NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		family_open(&own, "shm", NULL);
		family_close(&own);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	family_close(&family);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fabric_forked_child_is_refused_everywhere),
		cmocka_unit_test(fabric_forked_child_opens_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
