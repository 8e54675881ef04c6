/* redis_server.h - a server of Redis's protocol that a bench starts, asks by
 * redis-benchmark, and ends.
 *
 * (1) It listens on a loopback port and on nothing that lasts: its files are in
 *     a directory of its own, which goes with it.
 * (2) It ends with the process that started it, whatever becomes of that.
 * (3) Neither it nor redis-benchmark is bound to a processor.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_REDIS_SERVER_H
#define REEF_BENCH_REDIS_SERVER_H

#include "driver.h"

#define REDIS_SERVER_ARGUMENTS 24

struct redis_server {
	pid_t pid;
	uint16_t port;
	char directory[64];
};

/* What redis-benchmark is to do. */
struct redis_load {
	const char *name;
	const char *test; /* its -t: "get" or "set" */
	uint32_t clients, pipeline;
	uint32_t keys, value_size;
};

/* Make a directory, and find a free port.  -errno; pair->error says why. */
int redis_server_prepare(struct driver_pair *pair, struct redis_server *server);

/* Start a server, and wait until it answers. arguments: to NULL; its
 * environment is ours, with all that names a home in its directory. */
int redis_server_start(struct driver_pair *pair, struct redis_server *server,
		       const char *const *arguments);

/* End a server; nothing is left. One that was not started is fine. */
void redis_server_end(struct redis_server *server);

/* Set every key of the load.  -errno; pair->error says why. */
int redis_server_fill(struct driver_pair *pair,
		      const struct redis_server *server,
		      const struct redis_load *load);

/* Run so many requests by redis-benchmark. *rate: in a second, as it says. */
int redis_server_ask(struct driver_pair *pair,
		     const struct redis_server *server,
		     const struct redis_load *load, uint64_t requests,
		     double *rate);

/* SETs of random keys by clients of our own, one under way each; `after` is
 * sent with each of them. multi: MULTI, two INCRs of random keys and EXEC in
 * place of a SET. */
struct redis_sets {
	uint32_t clients, keys;
	bool multi;
	const char *value;
	const char *after;   /* commands, as on the wire; may be empty */
	const char *answers; /* how the answers begin, of one line each: "+" */
	/* A WAIT that no replica has answered in time is no answer. */
	bool needs_replica;
};

/* How a transaction is answered. */
#define REDIS_MULTI_ANSWERS "+++*::"
#define REDIS_SETS_CLIENTS_MAX 256

/* Send them for so long. *rate: of SETs whose answers came, in a second.
 * -EPROTO: another answer. */
int redis_server_sets(struct driver_pair *pair,
		      const struct redis_server *server,
		      const struct redis_sets *sets, double seconds,
		      double *rate);
/* Wait until one replica has all that the server has.  -ETIMEDOUT. */
int redis_server_wait_replica(struct driver_pair *pair,
			      const struct redis_server *server);

#endif
