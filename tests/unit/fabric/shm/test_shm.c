/* test_shm.c - the shm fabric's own promises: how memory is reached and comes
 * back. How it all ends is in test_shm_death.c; what every fabric promises is
 * in tests/conform.
 *
 * The node runs in a thread of this process, clients in this thread or others.
 */
#include "fixture/shm_node.h"

#include "fabric/shm/shm.h"
#include "fixture/pagemap.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- operations --- */

static void shm_operations_in_one_process_reach_the_memory(void **state)
{
	struct shm_client client;
	struct shm_node node;
	struct reef_op op;
	uint64_t value = 0, *words;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	words = node.memory->base;
	assert_int_equal(reef_remote_size(client.remote), SIZE);
	assert_int_equal(shm_client_put(&client, SIZE - 8, 77), 0);
	assert_int_equal(words[SIZE / 8 - 1], 77);
	assert_int_equal(shm_client_get(&client, SIZE - 8, &value), 0);
	assert_int_equal(value, 77);
	op = (struct reef_op){
		.kind = REEF_CAS,
		.remote = client.remote,
		.compare = 0,
		.operand = 5,
	};
	assert_int_equal(shm_client_run(&client, &op), 0);
	assert_int_equal(op.result, 0);
	op.kind = REEF_FAA;
	assert_int_equal(shm_client_run(&client, &op), 0);
	assert_int_equal(op.result, 5);
	assert_int_equal(words[0], 10);
	shm_client_close(&client);
	shm_node_stop(&node);
}

static void shm_attached_memory_needs_no_faults(void **state)
{
	struct shm_client client;
	struct shm_node node;

	(void)state;
	if (!pagemap_works())
		skip();
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	assert_int_equal(pagemap_count(client.remote->base, SIZE), SIZE / 4096);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* run has a path of its own for one operation and one for several short ones:
 * both must refuse exactly what post refuses. */
static void shm_run_and_post_refuse_the_same(void **state)
{
	uint64_t local[1] = {0};
	struct reef_op bad[] = {
		{.kind = REEF_READ, .offset = SIZE - 8, .length = 16},
		{.kind = REEF_READ, .offset = SIZE + 8, .length = 8},
		{.kind = REEF_READ, .offset = UINT64_MAX - 7, .length = 16},
		{.kind = REEF_READ, .offset = SIZE, .length = 1},
		{.kind = REEF_WRITE, .offset = SIZE - 7, .length = 8},
		{.kind = REEF_WRITE, .length = 1u << 31},
		{.kind = REEF_CAS, .offset = 4},
		{.kind = REEF_FAA, .offset = SIZE},
		{.kind = REEF_FAA, .offset = UINT64_MAX - 7},
		{.kind = REEF_READ, .length = 8, .flags = 2},
		{.kind = REEF_READ, .length = 8, .reserved = 1},
		{.kind = 0, .length = 8},
		{.kind = REEF_OP_KINDS, .length = 8},
		{.kind = REEF_FLUSH, .length = 8},
	};
	struct reef_op ops[3];
	struct reef_batch batch = {.ops = ops};
	struct shm_client client;
	struct shm_node node;
	size_t i, at;
	int rc;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	batch.link = client.link;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (at = 0; at < 3; at++) {
			ops[0] = ops[1] = ops[2] = (struct reef_op){
				.kind = REEF_WRITE,
				.remote = client.remote,
				.local = local,
				.length = 8,
			};
			local[0] = 1;
			ops[at] = bad[i];
			ops[at].remote = client.remote;
			ops[at].local = local;
			batch.count = at ? 3 : 1;
			rc = reef_post(client.queue, &batch);
			assert_true(rc < 0);
			assert_int_equal(reef_run(client.queue, &batch), rc);
			/* and nothing of it happened */
			assert_int_equal(*(uint64_t *)node.memory->base, 0);
		}
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* A local place outside its buffer, or nowhere. */
static void shm_run_refuses_places_outside_their_buffer(void **state)
{
	uint64_t room[66] = {0}, *local = room + 1; /* 64 of them */
	struct reef_op ops[2];
	struct reef_batch batch = {.ops = ops};
	struct reef_buffer *buffer;
	struct shm_client client;
	struct shm_node node;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	assert_int_equal(
		reef_buffer_register(client.fabric, local, 64 * 8, &buffer), 0);
	batch.link = client.link;
	ops[0] = (struct reef_op){
		.kind = REEF_READ,
		.remote = client.remote,
		.local = local + 64,
		.buffer = buffer,
		.length = 8,
	};
	ops[1] = ops[0];
	for (batch.count = 1; batch.count < 3; batch.count++) {
		ops[0].local = ops[1].local = local + 64;
		assert_int_equal(reef_run(client.queue, &batch), -EINVAL);
		ops[0].local = ops[1].local = local - 1;
		assert_int_equal(reef_run(client.queue, &batch), -EINVAL);
		ops[0].local = ops[1].local = NULL;
		assert_int_equal(reef_run(client.queue, &batch), -EINVAL);
		ops[0].local = ops[1].local = local + 63;
		assert_int_equal(reef_run(client.queue, &batch), 0);
	}
	reef_buffer_unregister(buffer);
	shm_client_close(&client);
	shm_node_stop(&node);
}

static void shm_batches_of_any_size_and_alignment_copy(void **state)
{
	static const uint32_t lengths[] = {0,	1,   7,	  8,   16,  64,
					   100, 128, 136, 500, 4096};
	uint8_t out[4096 + 16], in[4096 + 16], *base;
	struct shm_client client;
	struct shm_node node;
	struct reef_op ops[2];
	struct reef_batch batch = {.ops = ops, .count = 2};
	size_t i, offset;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	base = node.memory->base;
	batch.link = client.link;
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (offset = 0; offset < 16; offset++) {
			memset(out, (int)(i * 16 + offset + 1), sizeof(out));
			memset(in, 0, sizeof(in));
			memset(base, 0, 8192);
			ops[0] = (struct reef_op){
				.kind = REEF_WRITE,
				.remote = client.remote,
				.offset = offset,
				.local = out + offset / 2,
				.length = lengths[i],
			};
			ops[1] = ops[0];
			ops[1].kind = REEF_READ;
			ops[1].local = in;
			assert_int_equal(reef_run(client.queue, &batch), 0);
			assert_memory_equal(in, out, lengths[i]);
			assert_memory_equal(base + offset, out, lengths[i]);
			assert_int_equal(base[offset + lengths[i]], 0);
			assert_int_equal(in[lengths[i]], 0);
		}
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* F4, as close as it gets: two threads each write a word of their own and read
 * the other's, in one batch or in two runs. One of them must see the other. */
#define CROSSINGS 100000

struct crossing {
	struct shm_client client;
	int me;
	_Atomic uint64_t *arrived; /* both threads, all rounds */
	uint64_t seen[CROSSINGS];
};

static void meet(_Atomic uint64_t *arrived, uint64_t count)
{
	int spins = 0;

	atomic_fetch_add(arrived, 1);
	while (atomic_load(arrived) < count)
		if (++spins > 1000)
			sched_yield();
}

static void *crossing_main(void *arg)
{
	struct crossing *crossing = arg;
	uint64_t mine, other, round, delay;
	struct reef_op ops[2] = {
		{.kind = REEF_WRITE, .local = &mine, .length = 8},
		{.kind = REEF_READ, .local = &other, .length = 8},
	};
	struct reef_batch batch = {
		.link = crossing->client.link,
		.ops = ops,
		.count = 2,
	};
	cpu_set_t cpus;

	/* On one processor they would never cross. */
	CPU_ZERO(&cpus);
	CPU_SET(crossing->me, &cpus);
	pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	ops[0].remote = ops[1].remote = crossing->client.remote;
	ops[0].offset = crossing->me ? 64 : 0;
	ops[1].offset = crossing->me ? 0 : 64;
	for (round = 0; round < CROSSINGS; round++) {
		mine = round + 1;
		meet(crossing->arrived, 4 * round + 2);
		/* Who comes last goes on first, by some tens of nanoseconds:
		 * try all sorts of delays on both sides. */
		delay = crossing->me ? round / 2 % 128 : round / 256 % 128;
		while (delay--)
			atomic_signal_fence(memory_order_seq_cst);
		if (round & 1) {
			shm_client_run(&crossing->client, &ops[0]);
			shm_client_run(&crossing->client, &ops[1]);
		} else {
			reef_run(crossing->client.queue, &batch);
		}
		crossing->seen[round] = other;
		meet(crossing->arrived, 4 * round + 4);
	}
	return NULL;
}

static void shm_crossing_writes_do_not_both_miss(void **state)
{
	static struct crossing crossings[2];
	_Atomic uint64_t arrived = 0;
	pthread_t threads[2];
	struct shm_node node;
	uint64_t round;
	int i;

	(void)state;
	shm_node_start(&node);
	for (i = 0; i < 2; i++) {
		crossings[i].me = i;
		crossings[i].arrived = &arrived;
		shm_client_start(&crossings[i].client, &node, 1 + i);
	}
	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
						crossing_main, &crossings[i]),
				 0);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (round = 0; round < CROSSINGS; round++)
		assert_true(crossings[0].seen[round] == round + 1 ||
			    crossings[1].seen[round] == round + 1);
	for (i = 0; i < 2; i++)
		shm_client_close(&crossings[i].client);
	shm_node_stop(&node);
}

static void shm_file_region_can_be_flushed(void **state)
{
	char path[] = "/tmp/reef-test-shm-XXXXXX";
	struct reef_memory_options memory = {
		.size = SIZE,
		.backing = REEF_BACKING_FILE,
		.path = path,
	};
	struct reef_op ops[2];
	struct reef_batch batch = {.ops = ops, .count = 2};
	uint64_t value = 99;
	struct shm_client client;
	struct shm_node node;

	(void)state;
	close(mkstemp(path));
	shm_node_open_options(&node, &memory, NULL);
	assert_int_equal(
		pthread_create(&node.thread, NULL, shm_node_main, &node), 0);
	shm_client_start(&client, &node, 1);
	ops[0] = (struct reef_op){
		.kind = REEF_WRITE,
		.remote = client.remote,
		.offset = 4100,
		.local = &value,
		.length = 8,
	};
	ops[1] = ops[0];
	ops[1].kind = REEF_FLUSH;
	batch.link = client.link;
	assert_int_equal(reef_run(client.queue, &batch), 0);
	assert_int_equal(ops[1].status, 0);
	shm_client_close(&client);
	shm_node_stop(&node);
	assert_int_equal(unlink(path), 0);
}

/* --- messages --- */

/* Far more than sockets hold, to a node that does not read: some wait, none is
 * lost, and they end when the node reads. */
static void shm_sends_without_a_reader_wait_and_arrive(void **state)
{
	enum { COUNT = 3000 };
	static struct reef_batch batches[COUNT];
	static struct reef_op ops[COUNT];
	struct reef_fabric_options options = {.depth_max = 8, .inbox_max = 16};
	struct reef_memory_options memory = {.size = SIZE};
	static uint8_t bytes[1000];
	struct shm_client client;
	struct shm_node node;
	int i, posted, waiting = 0, rc = 0;

	(void)state;
	shm_node_open_options(&node, &memory, &options);
	atomic_store(&node.takes_nothing, true);
	assert_int_equal(
		pthread_create(&node.thread, NULL, shm_node_main, &node), 0);
	memset(&client, 0, sizeof(client));
	assert_int_equal(reef_fabric_open("shm", &options, &client.fabric), 0);
	assert_int_equal(reef_queue_open(client.fabric, NULL, &client.queue),
			 0);
	assert_int_equal(shm_client_connect(&client, node.address, SESSION(1),
					    &client.link),
			 0);
	for (posted = 0; posted < COUNT; posted++) {
		ops[posted] = (struct reef_op){
			.kind = REEF_SEND,
			.local = bytes,
			.length = sizeof(bytes),
		};
		batches[posted] = (struct reef_batch){
			.link = client.link,
			.ops = &ops[posted],
			.count = 1,
		};
		rc = reef_post(client.queue, &batches[posted]);
		if (rc == -EAGAIN)
			break;
		assert_true(rc == 0 || rc == 1);
		waiting += !rc;
	}
	/* Some waited, and then there was no room even for waiting. */
	assert_int_equal(rc, -EAGAIN);
	assert_true(waiting > 0);
	atomic_store(&node.takes_nothing, false);
	for (; posted < COUNT; posted++) {
		ops[posted] = ops[0];
		batches[posted] = batches[0];
		batches[posted].ops = &ops[posted];
		assert_int_equal(reef_run(client.queue, &batches[posted]), 0);
	}
	for (i = 0; i < COUNT; i++)
		if (!batches[i].done)
			assert_int_equal(reef_wait(client.queue, &batches[i]),
					 0);
	shm_await(&node.received, COUNT);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* --- withdrawing --- */

static void shm_withdraw_waits_for_the_holder(void **state)
{
	struct reef_remote *again = NULL;
	struct shm_client client;
	struct shm_node node;
	uint64_t value;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	/* Twice the same region: two holds. */
	assert_int_equal(
		reef_attach(client.queue, client.link, node.key, &again), 0);
	assert_int_equal(shm_client_put(&client, 0, 1), 0);
	node.timeout_ns = 20 * MILLISECOND;
	assert_int_equal(shm_node_call(&node, shm_node_withdraw), -ETIMEDOUT);
	/* The next operation of the holder finds out, and acknowledges. */
	assert_int_equal(shm_client_get(&client, 0, &value), -REEF_EKEY);
	assert_int_equal(shm_client_put(&client, 0, 2), -REEF_EKEY);
	node.timeout_ns = 20 * SECOND;
	assert_int_equal(shm_node_call(&node, shm_node_withdraw), 0);
	assert_int_equal(*(uint64_t *)node.memory->base, 1);
	assert_int_equal(reef_link_status(client.link), 0);
	reef_detach(client.queue, client.remote);
	assert_int_equal(reef_attach(client.queue, client.link, node.key,
				     &client.remote),
			 -REEF_EKEY);
	shm_client_close(&client);
	shm_node_stop(&node);
}

static void shm_withdraw_after_detach_or_close_is_immediate(void **state)
{
	struct shm_client detached, closed;
	struct shm_node node;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&detached, &node, 1);
	shm_client_start(&closed, &node, 2);
	reef_detach(detached.queue, detached.remote);
	shm_client_close(&closed);
	node.timeout_ns = 20 * SECOND;
	assert_int_equal(shm_node_call(&node, shm_node_withdraw), 0);
	shm_client_close(&detached);
	shm_node_stop(&node);
}

/* Two threads read through one link while its regions come and go: no reader
 * may touch what is unmapped. */
struct reader {
	struct shm_client client; /* another queue, the same link */
	_Atomic(struct reef_remote *) *remote;
	_Atomic bool *stop;
	_Atomic int *inside;
	uint64_t count;
};

static void *reader_main(void *arg)
{
	struct reader *reader = arg;
	struct shm_client *client = &reader->client;
	uint64_t bytes[512];
	int rc;

	while (!atomic_load(reader->stop)) {
		atomic_fetch_add(reader->inside, 1);
		client->remote = atomic_load(reader->remote);
		if (client->remote) {
			struct reef_op op = {
				.kind = REEF_READ,
				.remote = client->remote,
				.local = bytes,
				.length = sizeof(bytes),
				.offset = 8 * (reader->count % 64),
			};

			rc = shm_client_run(client, &op);
			if (rc && rc != -REEF_EKEY)
				abort();
			reader->count += !rc;
		}
		atomic_fetch_sub(reader->inside, 1);
	}
	return NULL;
}

static int call_expose(struct shm_node *node)
{
	int rc = reef_expose(node->fabric, node->memory, &node->region);

	node->key = rc ? 0 : reef_region_key(node->region);
	return rc;
}

static void shm_withdraw_under_reading_threads_is_safe(void **state)
{
	_Atomic(struct reef_remote *) remote = NULL;
	_Atomic bool stop = false;
	_Atomic int inside = 0;
	struct reader readers[2];
	struct reef_remote *old;
	pthread_t threads[2];
	struct shm_client client;
	struct shm_node node;
	int i, round;

	(void)state;
	shm_node_start(&node);
	shm_client_start(&client, &node, 1);
	for (i = 0; i < 2; i++) {
		readers[i] = (struct reader){
			.client = client,
			.remote = &remote,
			.stop = &stop,
			.inside = &inside,
		};
		assert_int_equal(reef_queue_open(client.fabric, NULL,
						 &readers[i].client.queue),
				 0);
		assert_int_equal(pthread_create(&threads[i], NULL, reader_main,
						&readers[i]),
				 0);
	}
	for (round = 0; round < 100; round++) {
		atomic_store(&remote, client.remote);
		node.timeout_ns = 0;
		while (shm_node_call(&node, shm_node_withdraw)) {
			reef_poll(client.queue);
			sched_yield();
		}
		/* Detach asks that nothing names it any more. */
		old = atomic_exchange(&remote, NULL);
		while (atomic_load(&inside))
			sched_yield();
		reef_detach(client.queue, old);
		assert_int_equal(shm_node_call(&node, call_expose), 0);
		assert_int_equal(reef_attach(client.queue, client.link,
					     node.key, &client.remote),
				 0);
	}
	atomic_store(&stop, true);
	for (i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		reef_queue_close(readers[i].client.queue);
	}
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* A thread that keeps links: it sleeps until something is there for it. */
struct keeper {
	struct reef_queue *queue;
	_Atomic bool stop;
	int result;
	pthread_t thread;
};

static bool keeper_is_to_stop(const void *what)
{
	return atomic_load(&((const struct keeper *)what)->stop);
}

static void *keeper_main(void *arg)
{
	struct keeper *keeper = arg;

	keeper->result = reef_queue_wait_until(keeper->queue, keeper_is_to_stop,
					       keeper, REEF_FOREVER);
	return NULL;
}

static void keeper_start(struct keeper *keeper, struct reef_queue *queue)
{
	*keeper = (struct keeper){.queue = queue, .result = -1};
	assert_int_equal(
		pthread_create(&keeper->thread, NULL, keeper_main, keeper), 0);
}

static void keeper_stop(struct keeper *keeper)
{
	atomic_store(&keeper->stop, true);
	reef_queue_wake(keeper->queue);
	assert_int_equal(pthread_join(keeper->thread, NULL), 0);
	assert_int_equal(keeper->result, 0);
}

/* Another thread is in the middle of an operation when the withdrawal comes;
 * when it is through it does nothing more. The keeper, which went to sleep
 * meanwhile for as long as it likes, answers all the same. */
static void shm_withdraw_is_answered_once_the_last_post_has_ended(void **state)
{
	struct reef_fabric_options options = {.silence_ns = 4000 * SECOND};
	struct reef_queue *handle;
	struct keeper keeper;
	struct shm_client client;
	struct shm_node node;

	(void)state;
	shm_node_start(&node);
	memset(&client, 0, sizeof(client));
	assert_int_equal(reef_fabric_open("shm", &options, &client.fabric), 0);
	assert_int_equal(reef_queue_open(client.fabric, NULL, &client.queue),
			 0);
	assert_int_equal(reef_queue_open(client.fabric, NULL, &handle), 0);
	assert_int_equal(shm_client_connect(&client, node.address, SESSION(1),
					    &client.link),
			 0);
	assert_int_equal(reef_attach(client.queue, client.link, node.key,
				     &client.remote),
			 0);
	keeper_start(&keeper, client.queue);
	reef_turn_enter(&handle->turn);
	node.timeout_ns = 50 * MILLISECOND;
	assert_int_equal(shm_node_call(&node, shm_node_withdraw), -ETIMEDOUT);
	reef_turn_leave(&handle->turn);
	node.timeout_ns = 20 * SECOND;
	assert_int_equal(shm_node_call(&node, shm_node_withdraw), 0);
	keeper_stop(&keeper);
	reef_queue_close(handle);
	shm_client_close(&client);
	shm_node_stop(&node);
}

/* --- both ends in one fabric: a pool inside a program --- */

static int run_faa(struct shm_client *client, struct reef_queue *queue)
{
	struct reef_op op = {
		.kind = REEF_FAA,
		.remote = client->remote,
		.operand = 1,
	};
	struct reef_batch batch = {
		.link = client->link, .ops = &op, .count = 1};

	return reef_run(queue, &batch);
}

static void shm_both_ends_may_be_in_one_fabric(void **state)
{
	struct reef_queue *handle;
	struct keeper keeper;
	struct shm_client client;
	struct shm_node node;
	struct reef_op op;
	int i, round;

	(void)state;
	shm_node_start(&node);
	memset(&client, 0, sizeof(client));
	client.fabric = node.fabric;
	assert_int_equal(reef_queue_open(node.fabric, NULL, &client.queue), 0);
	assert_int_equal(reef_queue_open(node.fabric, NULL, &handle), 0);
	for (round = 1; round <= 3; round++) {
		assert_int_equal(shm_client_connect(&client, node.address,
						    SESSION(round),
						    &client.link),
				 0);
		assert_int_equal(reef_attach(client.queue, client.link,
					     node.key, &client.remote),
				 0);
		keeper_start(&keeper, client.queue);
		for (i = 0; i < 100; i++)
			assert_int_equal(run_faa(&client, handle), 0);
		op = (struct reef_op){
			.kind = REEF_SEND, .local = &i, .length = sizeof(i)};
		assert_int_equal(
			reef_run(handle,
				 &(struct reef_batch){.link = client.link,
						      .ops = &op,
						      .count = 1}),
			0);
		shm_await(&node.received, round);
		if (round == 2) {
			node.timeout_ns = 20 * SECOND;
			assert_int_equal(
				shm_node_call(&node, shm_node_withdraw), 0);
			assert_int_equal(run_faa(&client, handle), -REEF_EKEY);
			assert_int_equal(shm_node_call(&node, call_expose), 0);
		} else if (round == 3) {
			node.session = SESSION(3);
			assert_int_equal(shm_node_call(&node, shm_node_fence),
					 0);
			assert_int_equal(run_faa(&client, handle),
					 -REEF_EFENCED);
		}
		keeper_stop(&keeper);
		reef_link_close(client.link);
		shm_await(&node.closed, round);
		assert_int_equal(*(uint64_t *)node.memory->base, 100 * round);
	}
	reef_queue_close(handle);
	reef_queue_close(client.queue);
	shm_node_stop(&node);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			shm_operations_in_one_process_reach_the_memory),
		cmocka_unit_test(shm_attached_memory_needs_no_faults),
		cmocka_unit_test(shm_run_and_post_refuse_the_same),
		cmocka_unit_test(shm_run_refuses_places_outside_their_buffer),
		cmocka_unit_test(shm_batches_of_any_size_and_alignment_copy),
		cmocka_unit_test(shm_crossing_writes_do_not_both_miss),
		cmocka_unit_test(shm_file_region_can_be_flushed),
		cmocka_unit_test(shm_sends_without_a_reader_wait_and_arrive),
		cmocka_unit_test(shm_withdraw_waits_for_the_holder),
		cmocka_unit_test(
			shm_withdraw_after_detach_or_close_is_immediate),
		cmocka_unit_test(shm_withdraw_under_reading_threads_is_safe),
		cmocka_unit_test(
			shm_withdraw_is_answered_once_the_last_post_has_ended),
		cmocka_unit_test(shm_both_ends_may_be_in_one_fabric),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
