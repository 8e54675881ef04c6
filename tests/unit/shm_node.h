/* shm_node.h - a node of shm in a thread, and clients of it, for the tests of
 * that fabric.
 *
 * Thread: the test's, but for what the node's thread calls. */
#ifndef REEF_TESTS_SHM_NODE_H
#define REEF_TESTS_SHM_NODE_H

#include "fabric/memory.h"
#include "fabric/provider.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MILLISECOND 1000000ull
#define SECOND (1000 * MILLISECOND)
#define SIZE (1u << 20)
#define SESSION(slot) (((uint32_t)(slot) << 16) | 1u)

/* --- the node --- */

struct node {
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_listener *listener;
	struct reef_memory *memory;
	struct reef_region *region;
	char address[64];
	uint64_t key;
	pthread_t thread;
	_Atomic bool stop;
	/* One call at a time, on the node's thread. */
	int (*_Atomic call)(struct node *node);
	_Atomic bool returned;
	int result;
	uint32_t session;
	uint64_t timeout_ns;
	_Atomic int opened, closed, reason, received;
	_Atomic bool takes_nothing;
	struct reef_link *last;
};

static inline int credential(void *context, const char *identity,
			     uint32_t session, uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)session;
	if (strcmp(identity, "test"))
		return -REEF_EAUTH;
	memset(key, 7, REEF_KEY_SIZE);
	return 0;
}

static inline void on_opened(void *context, struct reef_link *link)
{
	struct node *node = context;

	node->last = link;
	atomic_fetch_add(&node->opened, 1);
}

static inline void on_closed(void *context, struct reef_link *link, int reason)
{
	struct node *node = context;

	(void)link;
	atomic_store(&node->reason, reason);
	atomic_fetch_add(&node->closed, 1);
}

static inline void *node_thread(void *arg)
{
	struct node *node = arg;
	struct reef_message *message;
	int (*call)(struct node * node);

	while (!atomic_load(&node->stop)) {
		reef_queue_wait(node->queue, MILLISECOND);
		call = atomic_exchange(&node->call, NULL);
		if (call) {
			node->result = call(node);
			atomic_store(&node->returned, true);
		}
		while (!atomic_load(&node->takes_nothing) &&
		       !reef_receive(node->queue, 0, &message)) {
			atomic_fetch_add(&node->received, 1);
			reef_message_free(message);
		}
	}
	return NULL;
}

static inline int node_call(struct node *node, int (*call)(struct node *node))
{
	atomic_store(&node->returned, false);
	atomic_store(&node->call, call);
	while (!atomic_load(&node->returned))
		sched_yield();
	return node->result;
}

static inline void node_open_options(struct node *node,
				     const struct reef_memory_options *memory,
				     const struct reef_fabric_options *fabric)
{
	struct reef_listen_options options = {
		.credential = credential,
		.opened = on_opened,
		.closed = on_closed,
		.context = node,
	};
	static int count;

	memset(node, 0, sizeof(*node));
	snprintf(node->address, sizeof(node->address), "shm:@reef-test-%d-%d",
		 (int)getpid(), count++);
	assert_int_equal(reef_fabric_open("shm", fabric, &node->fabric), 0);
	assert_int_equal(reef_queue_open(node->fabric, NULL, &node->queue), 0);
	assert_int_equal(reef_memory_create(memory, &node->memory), 0);
	assert_int_equal(reef_expose(node->fabric, node->memory, &node->region),
			 0);
	node->key = reef_region_key(node->region);
	assert_int_equal(reef_listen(node->queue, node->address, &options,
				     &node->listener),
			 0);
}

static inline void node_open(struct node *node)
{
	struct reef_memory_options memory = {.size = SIZE};

	node_open_options(node, &memory, NULL);
}

static inline void node_start(struct node *node)
{
	node_open(node);
	assert_int_equal(pthread_create(&node->thread, NULL, node_thread, node),
			 0);
}

static inline void node_close(struct node *node)
{
	reef_listener_close(node->listener);
	reef_queue_close(node->queue);
	reef_fabric_close(node->fabric);
	reef_memory_destroy(node->memory);
}

static inline void node_stop(struct node *node)
{
	atomic_store(&node->stop, true);
	pthread_join(node->thread, NULL);
	node_close(node);
}

static inline void await(_Atomic int *word, int value)
{
	uint64_t start_ns = reef_now_ns();

	while (atomic_load(word) < value) {
		assert_true(reef_now_ns() - start_ns < 20 * SECOND);
		sched_yield();
	}
}

static inline int call_withdraw(struct node *node)
{
	return reef_withdraw(node->queue, node->region, node->timeout_ns);
}

static inline int call_fence(struct node *node)
{
	return reef_fence(node->queue, node->session, node->timeout_ns);
}

/* --- clients --- */

struct client {
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_remote *remote;
};

static inline int client_connect(struct client *client, const char *address,
				 uint32_t session, struct reef_link **out)
{
	struct reef_connect_options options = {
		.session = session,
		.identity = "test",
		.timeout_ns = 20 * SECOND,
	};

	memset(options.key, 7, REEF_KEY_SIZE);
	return reef_connect(client->queue, address, &options, out);
}

static inline int client_open(struct client *client)
{
	int rc;

	memset(client, 0, sizeof(*client));
	rc = reef_fabric_open("shm", NULL, &client->fabric);
	return rc ? rc : reef_queue_open(client->fabric, NULL, &client->queue);
}

/* Everything up to an attached region; works in children too. */
static inline int client_join(struct client *client, const char *address,
			      uint64_t key, uint32_t session)
{
	int rc = client_open(client);

	rc = rc ? rc : client_connect(client, address, session, &client->link);
	return rc ? rc
		  : reef_attach(client->queue, client->link, key,
				&client->remote);
}

static inline void client_start(struct client *client, struct node *node,
				int slot)
{
	assert_int_equal(
		client_join(client, node->address, node->key, SESSION(slot)),
		0);
}

static inline void client_close(struct client *client)
{
	reef_link_close(client->link);
	reef_queue_close(client->queue);
	reef_fabric_close(client->fabric);
}

static inline int run_one(struct client *client, struct reef_op *op)
{
	struct reef_batch batch = {
		.link = client->link,
		.ops = op,
		.count = 1,
	};

	return reef_run(client->queue, &batch);
}

static inline int put(struct client *client, uint64_t offset, uint64_t value)
{
	struct reef_op op = {
		.kind = REEF_WRITE,
		.remote = client->remote,
		.offset = offset,
		.local = &value,
		.length = 8,
	};

	return run_one(client, &op);
}

static inline int get(struct client *client, uint64_t offset, uint64_t *value)
{
	struct reef_op op = {
		.kind = REEF_READ,
		.remote = client->remote,
		.offset = offset,
		.local = value,
		.length = 8,
	};

	return run_one(client, &op);
}

#endif
