/* map.c - `reef bench map`: the hash map beside a table in the same process,
 * beside LMDB, and beside the servers that people use for the same.
 *
 * The required ratios are the project's promises; cases without one are there
 * to be seen side by side. */
#include "bench.h"
#include "map_bench.h"
#include "map_work.h"

#define KEYS UINT64_C(10000000)
#define KEYS_QUICK UINT64_C(100000)
#define KEYS_TCP UINT64_C(100000)
#define KEYS_TCP_QUICK UINT64_C(10000)

static const struct bench_competitor shm_competitors[] = {
	{.name = "reef", .driver = &map_reef_driver},
	{.name = "inprocess",
	 .program = "peer_glib",
	 .absent = BENCH_GLIB_ABSENT},
	{.name = "lmdb", .program = "peer_lmdb", .absent = BENCH_LMDB_ABSENT},
	{.name = "redis",
	 .program = "peer_redis_map",
	 .absent = BENCH_REDIS_MAP_ABSENT},
	{.name = "memcached",
	 .program = "peer_memcached",
	 .absent = BENCH_MEMCACHED_ABSENT},
	{0},
};

static const struct bench_competitor tcp_competitors[] = {
	{.name = "reef", .driver = &map_reef_driver},
	{.name = "onefiber", .driver = &map_onefiber_driver},
	{0},
};

static const struct bench_case shm_cases[] = {
	{.name = "get-uniform",
	 .about = "read keys, all as likely",
	 .peers = {{"inprocess", 0.33},
		   {"lmdb", 1},
		   {"redis", 100},
		   {"memcached", 100}}},
	{.name = "get-zipf",
	 .about = "read keys, by Zipf 0.99",
	 .peers = {{"inprocess", 0.33},
		   {"lmdb", 1},
		   {"redis", 100},
		   {"memcached", 100}}},
	{.name = "get-uniform-barrier",
	 .about = "the same as get-uniform, with a barrier between two",
	 .peers = {{"inprocess", 0},
		   {"lmdb", 0},
		   {"redis", 0},
		   {"memcached", 0}}},
	{.name = "put-uniform",
	 .about = "write keys that are there, all as likely",
	 .peers = {{"inprocess", 0},
		   {"lmdb", 5},
		   {"redis", 0},
		   {"memcached", 0}}},
	{.name = "put-zipf",
	 .about = "write keys that are there, by Zipf 0.99",
	 .peers = {{"inprocess", 0},
		   {"lmdb", 5},
		   {"redis", 0},
		   {"memcached", 0}}},
	{.name = "ycsb-a",
	 .about = "half reads, half writes, Zipf",
	 .peers = {{"inprocess", 0},
		   {"lmdb", 0},
		   {"redis", 0},
		   {"memcached", 0}}},
	{.name = "ycsb-b",
	 .about = "one write in twenty, Zipf",
	 .peers = {{"inprocess", 0},
		   {"lmdb", 0},
		   {"redis", 0},
		   {"memcached", 0}}},
	{.name = "ycsb-c",
	 .about = "reads only, Zipf",
	 .peers = {{"inprocess", 0},
		   {"lmdb", 0},
		   {"redis", 0},
		   {"memcached", 0}}},
	{.name = "ycsb-d",
	 .about = "reads of the latest, one new key in twenty",
	 .peers = {{"inprocess", 0},
		   {"lmdb", 0},
		   {"redis", 0},
		   {"memcached", 0}}},
	{.name = "ycsb-f",
	 .about = "half reads, half read-modify-write, Zipf",
	 .peers = {{"inprocess", 0},
		   {"lmdb", 0},
		   {"redis", 0},
		   {"memcached", 0}}},
	{.name = "get-uniform-2",
	 .about = "two threads: how many times one's rate",
	 .peers = {{"inprocess", 1}}},
	{.name = MAP_BYTES,
	 .about = "bytes of memory that a key takes",
	 .peers = {{"inprocess", 0},
		   {"lmdb", 0},
		   {"redis", 0},
		   {"memcached", 0}}},
	{0},
};

static const struct bench_unit shm_units[] = {
	{.name = "get-uniform-2", .unit = "times"},
	{.name = MAP_BYTES, .unit = "bytes", .less_is_better = true},
	{0},
};

static const struct bench_case tcp_cases[] = {
	{.name = "get-uniform-tcp16",
	 .about = "read keys over tcp, 16 fibers",
	 .peers = {{"onefiber", 5}}},
	{0},
};

static const struct bench_group groups[] = {
	{.fabric = "shm",
	 .size = KEYS * MAP_ENTRY,
	 .size_quick = KEYS_QUICK * MAP_ENTRY,
	 .competitors = shm_competitors,
	 .cases = shm_cases,
	 .units = shm_units},
	{.fabric = "tcp",
	 .size = KEYS_TCP * MAP_ENTRY,
	 .size_quick = KEYS_TCP_QUICK * MAP_ENTRY,
	 .competitors = tcp_competitors,
	 .cases = tcp_cases},
	{0},
};

const struct bench map_bench = {
	.name = "map",
	.about = "the hash map, beside a table in the process, LMDB, Redis, "
		 "memcached",
	.unit = "ops/s",
	.note = "Keys of 16 bytes, values of 64. Gets are a plain loop, one "
		"after the other; in -barrier, and\nwhere something is "
		"written, a barrier of the processor lies between two. Reef, "
		"the table in\nthe process and LMDB go by their thread's time "
		"on the processor, Redis and memcached (one\nsynchronous "
		"client on a unix socket) and tcp by the clock on the wall.",
	.groups = groups,
};
