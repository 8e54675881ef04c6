/* pool.c - a pool in a competitor's target.
 *
 *   client (of the driver): forks
 *     target: a broker and a node, until the client is gone */
#include "pool.h"

#include "base/fiber/sched.h"
#include "bench/units.h"
#include "pool/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_NS (10 * SECOND)
/* How often a pool looks whether its client is there. */
#define LOOK_NS (SECOND / 20)

struct wish {
	char directory[64];
	const char *fabric;
	uint64_t capacity, extent_size;
	bool huge;
};

/* This is static because the target is forked from what has it. */
static struct wish wish;

struct server {
	struct driver_pair *pair;
	struct reef_sched *sched;
	int rc;
};

/* True if the client's end of the channel, which is silent, is closed. */
static bool client_ended(const struct driver_pair *pair)
{
	char byte;

	return recv(pair->channel, &byte, 1, MSG_DONTWAIT) >= 0;
}

static int server_main(void *arg)
{
	struct server *server = arg;
	bool tcp = strcmp(wish.fabric, "tcp") == 0;
	const char *listen = tcp ? "tcp:127.0.0.1:0" : NULL;
	struct reef_host_options options = {
		.with_broker = true,
		.with_node = true,
		.run = wish.directory,
		.mesh = {.kinds = wish.fabric},
		.broker = {.listen = listen, .extent_size = wish.extent_size},
		.node_name = "bench",
		.node = {.listen = listen,
			 .capacity = wish.capacity,
			 .huge_pages = wish.huge},
	};
	struct reef_host *host = NULL;
	uint8_t byte = 0;
	int rc = reef_tls_use_parse(getenv("REEF_TLS"),
				    &options.mesh.fabric.tls);

	rc = rc ? rc : reef_host_start(&options, &host, NULL);
	rc = rc ? rc : reef_node_wait(reef_host_node(host), START_NS);
	rc = rc ? rc : driver_send(server->pair, &byte, 1);
	while (!rc && !client_ended(server->pair))
		reef_fiber_park(LOOK_NS);
	reef_host_stop(host);
	rmdir(wish.directory);
	server->rc = rc;
	reef_sched_stop(server->sched);
	return 0;
}

static int pool_target(struct driver_pair *pair)
{
	struct server server = {.pair = pair};
	int rc = reef_sched_create(NULL, &server.sched);

	rc = rc ? rc
		: reef_fiber_spawn(server.sched, server_main, &server, NULL);
	rc = rc ? rc : reef_sched_run(server.sched);
	rc = rc ? rc : server.rc;
	return rc ? driver_fail(pair, rc, "the pool: %s", reef_error_text(rc))
		  : 0;
}

int bench_pool_start(struct driver_pair *pair, const char *fabric,
		     uint64_t capacity, uint64_t extent_size, bool huge)
{
	const char *base = getenv("TMPDIR");
	uint8_t byte;
	int rc;

	wish.fabric = fabric;
	wish.capacity = capacity;
	wish.extent_size = extent_size;
	wish.huge = huge;
	snprintf(wish.directory, sizeof(wish.directory), "%.40s/%s",
		 base && base[0] ? base : "/tmp", "reef-bench-XXXXXX");
	if (!mkdtemp(wish.directory))
		return driver_fail(pair, -errno, "a directory: %s",
				   strerror(errno));
	setenv("REEF_RUN", wish.directory, 1);
	rc = driver_fork(pair, pool_target);
	rc = rc ? rc : driver_receive(pair, &byte, 1);
	if (rc)
		rmdir(wish.directory);
	return rc;
}
