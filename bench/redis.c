/* redis.c - `reef bench redis`: the door beside a redis-server, both asked by
 * redis-benchmark.
 *
 * Each server has a driver of its own, which starts it with the first case and
 * fills it with the keys that are read; then redis-benchmark runs against the
 * two in turn. It takes a number of requests, not a time: how many, the round
 * before told.
 *
 * Thread: owner. */
#include "bench.h"
#include "process.h"
#include "redis_server.h"

#include <stdio.h>

#define PROBE_REQUESTS 2000
#define PROBE_BYTES (64u << 20)
#define BIG (4u << 20)

static const struct redis_load loads[] = {
	{"get-c50", "get", 50, 1, 100000, 3},
	{"set-c50", "set", 50, 1, 100000, 3},
	{"get-c50-p16", "get", 50, 16, 100000, 3},
	{"set-c50-p16", "set", 50, 16, 100000, 3},
	{"get-4m-c8", "get", 8, 1, 16, BIG},
	{"set-4m-c8", "set", 8, 1, 16, BIG},
};

/* redis-benchmark has no such test. */
#define MULTI "multi-c50"
static const struct redis_sets multi = {
	.clients = 50,
	.keys = 100000,
	.multi = true,
	.answers = REDIS_MULTI_ANSWERS,
};

/* Requests of a round at least, so that its beginning and end do not matter. */
#define LEAST(load) ((uint64_t)(load)->clients * (load)->pipeline * 8)

#define LOADS (sizeof(loads) / sizeof(loads[0]))

struct theirs {
	struct redis_server server;
	double rates[LOADS]; /* of the round before; 0: none yet */
	uint32_t filled;     /* size of the values that are there now */
};

/* A process has one server. */
static struct theirs theirs;

/* --- rounds --- */

static int server_run(struct driver_pair *pair, const char *name,
		      double seconds, double *rate)
{
	uint32_t i = 0;
	uint64_t requests;
	int rc;

	if (!strcmp(name, MULTI))
		return redis_server_sets(pair, &theirs.server, &multi, seconds,
					 rate);
	while (i < LOADS && strcmp(loads[i].name, name) != 0)
		i++;
	if (i == LOADS)
		return -ENOSYS;
	if (theirs.filled != loads[i].value_size) {
		rc = redis_server_fill(pair, &theirs.server, &loads[i]);
		if (rc)
			return rc;
		theirs.filled = loads[i].value_size;
	}
	if (!theirs.rates[i]) {
		requests = PROBE_REQUESTS;
		if (requests * loads[i].value_size > PROBE_BYTES)
			requests = PROBE_BYTES / loads[i].value_size;
		rc = redis_server_ask(pair, &theirs.server, &loads[i], requests,
				      &theirs.rates[i]);
		if (rc)
			return rc;
	}
	requests = (uint64_t)(theirs.rates[i] * seconds);
	if (requests < LEAST(&loads[i]))
		requests = LEAST(&loads[i]);
	rc = redis_server_ask(pair, &theirs.server, &loads[i], requests, rate);
	if (!rc)
		theirs.rates[i] = *rate;
	return rc;
}

static void server_close(struct driver_pair *pair)
{
	redis_server_end(&theirs.server);
}

/* --- the two --- */

static int server_open(struct driver_pair *pair, const char *const *arguments)
{
	int rc = redis_server_start(pair, &theirs.server, arguments);

	/* A server sleeps unless it is asked something. */
	pair->target_rests = true;
	if (rc)
		redis_server_end(&theirs.server);
	return rc;
}

static int reef_server_open(struct driver_pair *pair)
{
	char self[PATH_MAX], listen[32], size[24], door[128];
	const char *arguments[] = {self,
				   "up",
				   "--lend",
				   size,
				   "--listen",
				   "tcp:127.0.0.1:0",
				   "--node-listen",
				   "tcp:127.0.0.1:0",
				   "--redis-listen",
				   listen,
				   "--redis-unix",
				   door,
				   NULL};
	int rc = redis_server_prepare(pair, &theirs.server);

	rc = rc ? rc : process_self(pair, self);
	if (rc)
		return rc;
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", theirs.server.port);
	snprintf(size, sizeof(size), "%llu",
		 (unsigned long long)pair->options.size);
	snprintf(door, sizeof(door), "%s/door.sock", theirs.server.directory);
	snprintf(pair->description, sizeof(pair->description),
		 "the door of a `reef up` on a loopback port");
	return server_open(pair, arguments);
}

static int redis_server_open(struct driver_pair *pair)
{
	char port[8];
	const char *arguments[] = {"redis-server",
				   "--port",
				   port,
				   "--bind",
				   "127.0.0.1",
				   "--dir",
				   theirs.server.directory,
				   "--save",
				   "",
				   "--appendonly",
				   "no",
				   "--daemonize",
				   "no",
				   "--loglevel",
				   "warning",
				   NULL};
	int rc = redis_server_prepare(pair, &theirs.server);

	if (rc)
		return rc;
	snprintf(port, sizeof(port), "%u", theirs.server.port);
	snprintf(pair->description, sizeof(pair->description),
		 "redis-server on a loopback port; both asked by "
		 "redis-benchmark");
	return server_open(pair, arguments);
}

static const struct driver reef_server_driver = {
	.name = "reef",
	.open = reef_server_open,
	.run = server_run,
	.close = server_close,
};

static const struct driver redis_server_driver = {
	.name = "redis",
	.open = redis_server_open,
	.run = server_run,
	.close = server_close,
};

/* --- the bench --- */

static const struct bench_competitor competitors[] = {
	{.name = "reef", .driver = &reef_server_driver},
	{.name = "redis", .driver = &redis_server_driver},
	{0},
};

static const struct bench_case cases[] = {
	{"get-c50", "GET, 50 clients", {{"redis", 1}}},
	{"set-c50", "SET, 50 clients", {{"redis", 1}}},
	{"get-c50-p16", "GET, 50 clients, 16 at a time", {{"redis", 1}}},
	{"set-c50-p16", "SET, 50 clients, 16 at a time", {{"redis", 1}}},
	{MULTI, "MULTI, two INCRs, EXEC, 50 clients", {{"redis", 0}}},
	{"get-4m-c8", "GET of 4 MiB, 8 clients", {{"redis", 1}}},
	{"set-4m-c8", "SET of 4 MiB, 8 clients", {{"redis", 1}}},
	{0},
};

static const struct bench_group groups[] = {
	{.fabric = "shm",
	 .size = UINT64_C(1) << 30,
	 .size_quick = UINT64_C(512) << 20,
	 .competitors = competitors,
	 .cases = cases},
	{0},
};

const struct bench redis_bench = {
	.name = "redis",
	.about = "the door for Redis clients, beside a redis-server",
	.unit = "ops/s",
	.note = "Both are asked by one redis-benchmark with one thread, on "
		"the same machine: 100,000 keys\nwith values of 3 bytes, or 16 "
		"keys of 4 MiB. Nothing is kept on disk.",
	.groups = groups,
};
