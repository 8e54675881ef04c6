/* redis_server.h - a redis-server that keeps nothing, and hiredis' client of
 * it.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_PEERS_REDIS_SERVER_H
#define REEF_BENCH_PEERS_REDIS_SERVER_H

#include "server.h"

#include <hiredis/hiredis.h>

/* NULL until it is connected; the caller's to free. */
static redisContext *redis_client;

static bool redis_connect(void)
{
	redis_client = redisConnectUnix(server.socket);
	if (redis_client && !redis_client->err)
		return true;
	redisFree(redis_client);
	redis_client = NULL;
	return false;
}

/* connect: as server_connect has it. */
static inline int redis_start_with(struct driver_pair *pair,
				   bool (*connect)(void))
{
	int rc = server_prepare(pair, "redis-server");

	if (rc)
		return rc;
	server_arguments((const char *const[]){
		"redis-server", "--port", "0", "--unixsocket", server.socket,
		"--dir", server.directory, "--save", "", "--appendonly", "no",
		"--daemonize", "no", "--loglevel", "warning", NULL});
	return server_start(pair, connect);
}

static inline int redis_start(struct driver_pair *pair)
{
	return redis_start_with(pair, redis_connect);
}

#endif
