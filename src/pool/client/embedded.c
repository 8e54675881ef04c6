/* embedded.c - a pool inside this process: a broker and a node in a hidden
 * thread, over shm with names that nobody else knows, and a journal in memory.
 *
 *   start --> thread: mesh, broker, node --ready--> serving
 *   stop  --> the scheduler stops; unpark, run again: node, broker, mesh end
 *
 * Thread: start and stop: any; what is in between is the hidden one's. */
#include "pool/client/embedded.h"

#include "base/system/secret.h"
#include "pool/client/keeper/keeper.h"
#include "pool/host.h"

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
	int state; /* locked; 1: starting; 0: serving; -errno: it failed */
	struct reef_sched *sched;
	struct reef_fiber *fiber;
	bool stopping; /* the thread's */
	uint64_t size;
	/* Written before state becomes 0: */
	struct reef_credential *owner; /* a secret */
	char broker[128];
};

static void set_state(struct embedded *embedded, int state)
{
	pthread_mutex_lock(&embedded->lock);
	embedded->state = state;
	pthread_cond_signal(&embedded->changed);
	pthread_mutex_unlock(&embedded->lock);
}

/* Small enough for several extents, so that several spaces find room. */
static uint64_t extent_size(uint64_t size)
{
	uint64_t extent = EXTENT_MAX;

	while (extent > size / 4)
		extent /= 2;
	return extent;
}

static int server_main(void *arg)
{
	struct embedded *embedded = arg;
	const struct reef_host_options options = {
		.with_broker = true,
		.with_node = true,
		.mesh = {.kinds = "shm"},
		.broker = {.extent_size = extent_size(embedded->size)},
		.node_name = "embedded",
		.node = {.capacity = embedded->size},
	};
	struct reef_host *host;
	int rc;

	rc = reef_host_start(&options, &host, NULL);
	if (rc)
		goto out;
	rc = reef_node_wait(reef_host_node(host), START_NS);
	if (!rc) {
		snprintf(embedded->broker, sizeof(embedded->broker), "%s",
			 reef_broker_addresses(reef_host_broker(host)));
		*embedded->owner = *reef_host_owner(host);
		set_state(embedded, 0);
	}
	while (!rc && !embedded->stopping)
		reef_fiber_park(REEF_FOREVER);
	reef_host_stop(host);
out:
	if (rc)
		set_state(embedded, rc);
	return rc;
}

static void *thread_main(void *arg)
{
	struct embedded *embedded = arg;

	/* This returns on reef_sched_stop, or when starting has failed. */
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

static void free_embedded(struct embedded *embedded)
{
	reef_sched_destroy(embedded->sched);
	pthread_mutex_destroy(&embedded->lock);
	pthread_cond_destroy(&embedded->changed);
	reef_secret_destroy(embedded->owner);
	free(embedded);
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
	embedded->owner = reef_secret_create(sizeof(*embedded->owner));
	pthread_mutex_init(&embedded->lock, NULL);
	pthread_cond_init(&embedded->changed, NULL);
	rc = embedded->owner ? start_thread(embedded) : -ENOMEM;
	if (rc) {
		free_embedded(embedded);
		return rc;
	}
	rc = wait_until_started(embedded);
	if (rc) {
		embedded_stop(embedded);
		return rc;
	}
	snprintf(broker, broker_max, "%s", embedded->broker);
	*owner = *embedded->owner;
	*out = embedded;
	return 0;
}

void embedded_stop(struct embedded *embedded)
{
	if (!embedded)
		return;
	reef_sched_stop(embedded->sched);
	pthread_join(embedded->thread, NULL);
	free_embedded(embedded);
}
