/* embedded.c - a pool inside this process: a broker and a node in a hidden
 * thread, over shm with names that nobody else knows, and a journal in memory.
 *
 *   start --> thread: mesh, broker, node --ready--> serving
 *   stop  --> the scheduler stops; unpark, run again: node, broker, mesh end
 *
 * Thread: start and stop: any; what is in between is the hidden one's. */
#include "base/store.h"
#include "pool/broker/broker.h"
#include "pool/client/internal.h"
#include "pool/node/node.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZE_MIN (UINT64_C(4) << 20)
#define EXTENT_MAX (UINT64_C(64) << 20)
#define START_NS (10 * CLIENT_SECOND)

struct embedded {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int state; /* locked; 1: starting */
	struct reef_sched *sched;
	struct reef_fiber *fiber;
	bool stopping; /* the thread's */
	uint64_t size;
	struct reef_key key;
	char broker[64], node[64];
};

static void set_state(struct embedded *embedded, int state)
{
	pthread_mutex_lock(&embedded->lock);
	embedded->state = state;
	pthread_cond_signal(&embedded->changed);
	pthread_mutex_unlock(&embedded->lock);
}

/* Several extents, so that spaces do not have to share one. */
static uint64_t extent_size(uint64_t size)
{
	uint64_t extent = EXTENT_MAX;

	while (extent > size / 4)
		extent /= 2;
	return extent;
}

static int serve(struct embedded *embedded, struct reef_mesh *mesh,
		 struct reef_store *store)
{
	struct reef_broker_options options = {
		.mesh = mesh,
		.store = store,
		.key = &embedded->key,
		.listen = embedded->broker,
		.extent_size = extent_size(embedded->size),
		.sync_inline = true,
	};
	struct reef_node_options node_options = {
		.mesh = mesh,
		.key = &embedded->key,
		.broker = embedded->broker,
		.listen = embedded->node,
		.name = "embedded",
		.capacity = embedded->size,
	};
	struct reef_broker *broker;
	struct reef_node *node;
	int rc;

	rc = reef_broker_start(&options, &broker);
	if (rc)
		return rc;
	rc = reef_node_start(&node_options, &node);
	if (rc)
		goto out_broker;
	rc = reef_node_wait(node, START_NS);
	if (!rc)
		set_state(embedded, 0);
	while (!rc && !embedded->stopping)
		reef_fiber_park(REEF_FOREVER);
	reef_node_stop(node);
out_broker:
	reef_broker_stop(broker);
	return rc;
}

static int server_main(void *arg)
{
	struct reef_mesh_options options = {.kinds = "shm"};
	struct embedded *embedded = arg;
	struct reef_store *store;
	struct reef_random random;
	struct reef_mesh *mesh;
	int rc;

	reef_random_init(&random, 1); /* for crashes, which do not come */
	rc = reef_store_open_memory(&random, &store);
	if (rc)
		goto out;
	rc = reef_mesh_open(&options, &mesh);
	if (rc)
		goto out_store;
	rc = serve(embedded, mesh, store);
	reef_mesh_close(mesh);
out_store:
	reef_store_destroy(store);
out:
	if (rc)
		set_state(embedded, rc);
	return rc;
}

static void *thread_main(void *arg)
{
	struct embedded *embedded = arg;

	/* Returns when it is told to stop, or when starting failed. */
	reef_sched_run(embedded->sched);
	embedded->stopping = true;
	reef_fiber_unpark(embedded->fiber);
	reef_sched_run(embedded->sched);
	reef_fiber_join(embedded->fiber, NULL);
	return NULL;
}

static int start_thread(struct embedded *embedded)
{
	sigset_t all, before;
	int rc;

	rc = reef_sched_create(NULL, &embedded->sched);
	if (rc)
		return rc;
	rc = reef_fiber_spawn(embedded->sched, server_main, embedded,
			      &embedded->fiber);
	if (rc)
		return rc;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = -pthread_create(&embedded->thread, NULL, thread_main, embedded);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static int wait_until_started(struct embedded *embedded)
{
	int rc;

	pthread_mutex_lock(&embedded->lock);
	while (embedded->state == 1)
		pthread_cond_wait(&embedded->changed, &embedded->lock);
	rc = embedded->state;
	pthread_mutex_unlock(&embedded->lock);
	return rc;
}

static void destroy(struct embedded *embedded)
{
	reef_sched_destroy(embedded->sched);
	pthread_mutex_destroy(&embedded->lock);
	pthread_cond_destroy(&embedded->changed);
	reef_key_wipe(&embedded->key);
	free(embedded);
}

static int prepare(struct embedded *embedded, struct reef_credential *owner)
{
	uint64_t name;
	int rc;

	rc = reef_random_secret(&name, sizeof(name));
	if (!rc)
		rc = reef_key_create(&embedded->key);
	if (!rc)
		rc = reef_key_derive_user(&embedded->key, 0, 0, &owner->key);
	owner->user = owner->era = 0;
	snprintf(embedded->broker, sizeof(embedded->broker),
		 "shm:@reef-%016llx-broker", (unsigned long long)name);
	snprintf(embedded->node, sizeof(embedded->node),
		 "shm:@reef-%016llx-node", (unsigned long long)name);
	return rc;
}

int embedded_start(uint64_t size, char *broker, size_t broker_max,
		   struct reef_credential *owner, struct embedded **out)
{
	struct embedded *embedded;
	int rc;

	if (size < SIZE_MIN)
		return -EINVAL;
	embedded = calloc(1, sizeof(*embedded));
	if (!embedded)
		return -ENOMEM;
	embedded->size = size;
	embedded->state = 1;
	pthread_mutex_init(&embedded->lock, NULL);
	pthread_cond_init(&embedded->changed, NULL);
	rc = prepare(embedded, owner);
	if (!rc)
		rc = start_thread(embedded);
	if (rc) {
		destroy(embedded);
		return rc;
	}
	rc = wait_until_started(embedded);
	if (rc) {
		embedded_stop(embedded);
		return rc;
	}
	snprintf(broker, broker_max, "%s", embedded->broker);
	*out = embedded;
	return 0;
}

void embedded_stop(struct embedded *embedded)
{
	if (!embedded)
		return;
	reef_sched_stop(embedded->sched);
	pthread_join(embedded->thread, NULL);
	destroy(embedded);
}
