/* local_pool.h - a pool beside, in a thread of its own, over shm and tcp: what
 * `reef up` is. "local" finds it while it runs. */
#ifndef REEF_TESTS_LOCAL_POOL_H
#define REEF_TESTS_LOCAL_POOL_H

#include "pool/host.h"
#include "scratch.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

struct server {
	struct reef_sched *sched;
	struct reef_fiber *fiber;
	pthread_t thread;
	_Atomic int state; /* 1: starting */
	bool stopping;
	const char *run;
};

static inline int server_fiber(void *arg)
{
	struct server *server = arg;
	struct reef_host_options options = {
		.with_broker = true,
		.with_node = true,
		.run = server->run,
		.mesh = {.kinds = "shm tcp"},
		.broker = {.listen = "tcp:127.0.0.1:0", .extent_size = 4 << 20},
		.node = {.listen = "tcp:127.0.0.1:0",
			 .name = "here",
			 .capacity = 32 << 20},
	};
	struct reef_host *host = NULL;
	enum reef_host_step step = REEF_HOST_MEMORY;
	int rc;

	rc = reef_host_start(&options, &host, &step);
	if (!rc)
		rc = reef_node_wait(reef_host_node(host), 10000000000ull);
	if (rc)
		print_message("step %d: %s\n", (int)step, reef_error_name(rc));
	server->state = rc;
	while (!rc && !server->stopping)
		reef_fiber_park(REEF_FOREVER);
	reef_host_stop(host);
	return rc;
}

static inline void *server_main(void *arg)
{
	struct server *server = arg;

	reef_sched_run(server->sched);
	server->stopping = true;
	reef_fiber_unpark(server->fiber);
	reef_sched_run(server->sched);
	reef_fiber_join(server->fiber, NULL);
	return NULL;
}

static inline void server_start(struct server *server)
{
	*server = (struct server){.state = 1, .run = scratch_path("run")};
	assert_int_equal(reef_sched_create(NULL, &server->sched), 0);
	assert_int_equal(reef_fiber_spawn(server->sched, server_fiber, server,
					  &server->fiber),
			 0);
	assert_int_equal(
		pthread_create(&server->thread, NULL, server_main, server), 0);
	while (server->state == 1)
		sched_yield();
	assert_int_equal(server->state, 0);
	setenv("REEF_RUN", server->run, 1);
}

static inline void server_stop(struct server *server)
{
	reef_sched_stop(server->sched);
	pthread_join(server->thread, NULL);
	reef_sched_destroy(server->sched);
	unsetenv("REEF_RUN");
}

#endif
