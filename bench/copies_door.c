/* copies_door.c - SETs that are on two servers when they are answered: the door
 * with two copies, and a redis-server that waits for its replica.
 *
 * Thread: owner. */
#include "cluster.h"
#include "copies_bench.h"
#include "redis_server.h"

#include <stdio.h>

#define MIB (UINT64_C(1) << 20)
#define LEND (512 * MIB)
#define EXTENT (64 * MIB)
#define CLIENTS 50
#define KEYS 100000u
#define VALUE "xxx"
#define WAIT "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$3\r\n100\r\n"

/* A process has one of the two. */
static struct theirs {
	struct cluster cluster;
	struct redis_server server, replica;
	struct redis_sets sets;
} theirs;

static int sets_run(struct driver_pair *pair, const char *name, double seconds,
		    double *rate)
{
	if (strcmp(name, COPIES_DOOR) != 0)
		return -ENOSYS;
	return redis_server_sets(pair, &theirs.server, &theirs.sets, seconds,
				 rate);
}

static void sets_close(struct driver_pair *pair)
{
	redis_server_end(&theirs.replica);
	redis_server_end(&theirs.server);
	bench_cluster_end(&theirs.cluster);
}

static int opened(struct driver_pair *pair, int rc)
{
	pair->target_rests = true;
	if (rc)
		sets_close(pair);
	return rc;
}

/* --- the door --- */

static int start_door(struct driver_pair *pair)
{
	struct redis_server *server = &theirs.server;
	char listen[32], door[80];
	const char *arguments[] = {theirs.cluster.program,
				   "redis",
				   "--run",
				   theirs.cluster.run,
				   "--redis-copies",
				   "2",
				   "--redis-listen",
				   listen,
				   "--redis-unix",
				   door,
				   NULL};
	int rc = redis_server_prepare(pair, server);

	if (rc)
		return rc;
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", server->port);
	snprintf(door, sizeof(door), "%s/door.sock", server->directory);
	return redis_server_start(pair, server, arguments);
}

static int copies_door_open(struct driver_pair *pair)
{
	const struct cluster_options options = {
		.nodes = 2,
		.lend = LEND,
		.extent_size = EXTENT,
	};
	int rc = bench_cluster_start(pair, &theirs.cluster, &options);

	theirs.sets = (struct redis_sets){
		.clients = CLIENTS,
		.keys = KEYS,
		.value = VALUE,
		.after = "",
		.answers = "+",
	};
	driver_unpin();
	snprintf(pair->description, sizeof(pair->description),
		 "the door with two copies in a pool of two nodes; %u clients "
		 "on a loopback port",
		 CLIENTS);
	return opened(pair, rc ? rc : start_door(pair));
}

/* --- Redis --- */

static int start_redis(struct driver_pair *pair, struct redis_server *server,
		       const char *of)
{
	char port[8];
	const char *arguments[] = {"redis-server",
				   "--port",
				   port,
				   "--bind",
				   "127.0.0.1",
				   "--dir",
				   server->directory,
				   "--save",
				   "",
				   "--appendonly",
				   "no",
				   "--daemonize",
				   "no",
				   "--loglevel",
				   "warning",
				   "--repl-diskless-sync-delay",
				   "0",
				   of ? "--replicaof" : NULL,
				   of,
				   NULL};
	int rc = redis_server_prepare(pair, server);

	if (rc)
		return rc;
	snprintf(port, sizeof(port), "%u", server->port);
	return redis_server_start(pair, server, arguments);
}

static int copies_redis_open(struct driver_pair *pair)
{
	char of[32];
	int rc = start_redis(pair, &theirs.server, NULL);

	snprintf(of, sizeof(of), "127.0.0.1 %u", theirs.server.port);
	rc = rc ? rc : start_redis(pair, &theirs.replica, of);
	rc = rc ? rc : redis_server_wait_replica(pair, &theirs.server);
	theirs.sets = (struct redis_sets){
		.clients = CLIENTS,
		.keys = KEYS,
		.value = VALUE,
		.after = WAIT,
		.answers = "+:",
	};
	snprintf(pair->description, sizeof(pair->description),
		 "redis-server with one replica, WAIT 1 100 after each SET; "
		 "%u clients on a loopback port",
		 CLIENTS);
	return opened(pair, rc);
}

const struct driver copies_door_driver = {
	.name = "reef",
	.open = copies_door_open,
	.run = sets_run,
	.close = sets_close,
};

const struct driver copies_redis_driver = {
	.name = "redis",
	.open = copies_redis_open,
	.run = sets_run,
	.close = sets_close,
};
