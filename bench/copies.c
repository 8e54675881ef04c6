/* copies.c - `reef bench copies`: what a second copy of all memory costs, and
 * what it saves.
 *
 * Thread: owner. */
#include "bench.h"
#include "copies_bench.h"
#include "map_bench.h"
#include "map_work.h"

#define KEYS UINT64_C(200000)
#define KEYS_QUICK UINT64_C(10000)
/* Nodes, client and whoever else there is share the processors, and a case goes
 * by the clock on the wall: so more rounds. */
#define OFTEN 5

static const struct bench_competitor map_competitors[] = {
	{.name = "reef", .driver = &map_copies_driver},
	{.name = "one", .driver = &map_onecopy_driver},
	{0},
};

static const struct bench_case tcp_cases[] = {
	{.name = "put-tcp",
	 .about = "write keys that are there, over tcp, 16 fibers",
	 .peers = {{"one", 0.5}}},
	{.name = "get-tcp",
	 .about = "read keys over tcp, 16 fibers",
	 .peers = {{"one", 0.95}}},
	{0},
};

static const struct bench_case shm_cases[] = {
	{.name = "put-shm",
	 .about = "write keys that are there, over shm",
	 .peers = {{"one", 0.5}}},
	{.name = "get-shm",
	 .about = "read keys over shm",
	 .peers = {{"one", 0.95}}},
	{0},
};

static const struct bench_competitor door_competitors[] = {
	{.name = "reef", .driver = &copies_door_driver},
	{.name = "redis", .driver = &copies_redis_driver},
	{0},
};

static const struct bench_case door_cases[] = {
	{.name = COPIES_DOOR,
	 .about = "SET that is on two servers when it is answered, 50 clients",
	 .peers = {{"redis", 3}}},
	{0},
};

static const struct bench_competitor failover_competitors[] = {
	{.name = "reef", .driver = &copies_failover_driver},
	{0},
};

static const struct bench_case failover_cases[] = {
	{.name = COPIES_FAILOVER,
	 .about = "a node is killed: the longest that a client's call takes"},
	{0},
};

static const struct bench_group groups[] = {
	{.fabric = "tcp",
	 .size = KEYS * MAP_ENTRY,
	 .size_quick = KEYS_QUICK * MAP_ENTRY,
	 .competitors = map_competitors,
	 .cases = tcp_cases,
	 .often = OFTEN},
	{.fabric = "shm",
	 .size = KEYS * MAP_ENTRY,
	 .size_quick = KEYS_QUICK * MAP_ENTRY,
	 .competitors = map_competitors,
	 .cases = shm_cases},
	{.fabric = "shm",
	 .competitors = door_competitors,
	 .cases = door_cases,
	 .often = OFTEN},
	{.fabric = "tcp",
	 .competitors = failover_competitors,
	 .cases = failover_cases,
	 .unit = "ms",
	 .less_is_better = true},
	{0},
};

const struct bench copies_bench = {
	.name = "copies",
	.about = "two copies of all memory, beside one, and beside a Redis "
		 "with a replica",
	.unit = "ops/s",
	.note = "Both pools have two nodes, which share a processor; the "
		"client "
		"has another. Keys of 16 bytes,\nvalues of 64, in a hash map. "
		"shm goes by the client's time on the processor, the rest by "
		"the\nclock on the wall. Redis is asked SET and WAIT 1 100 in "
		"one message, the door SET.",
	.groups = groups,
};
