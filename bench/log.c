/* log.c - `reef bench log`: the shared log beside Redis' streams, JetStream and
 * LMDB.
 *
 * The required ratios are the project's promises; cases without one are there
 * to be seen side by side. */
#include "bench.h"
#include "log_bench.h"

static const struct bench_competitor competitors[] = {
	{.name = "reef", .driver = &log_reef_driver},
	{.name = "one", .driver = &driver_one},
	{.name = "redis",
	 .program = "peer_redis_log",
	 .absent = BENCH_REDIS_LOG_ABSENT},
	{.name = "redis-p16",
	 .program = "peer_redis_log_p16",
	 .absent = BENCH_REDIS_LOG_P16_ABSENT},
	{.name = "nats",
	 .program = "peer_nats_log",
	 .absent = BENCH_NATS_LOG_ABSENT},
	{.name = "lmdb",
	 .program = "peer_lmdb_log",
	 .absent = BENCH_LMDB_LOG_ABSENT},
	{0},
};

static const struct bench_case cases[] = {
	{.name = "append-100",
	 .about = "one appender, 100 bytes, one after the other",
	 .peers = {{"redis", 100}, {"nats", 50}, {"lmdb", 8}}},
	{.name = "append-100-batch64",
	 .about = "the same, 64 in a call",
	 .peers = {{"redis-p16", 10}, {"lmdb", 0}}},
	{.name = "append-4k",
	 .about = "one appender, 4 KiB, one after the other",
	 .peers = {{"redis", 0}, {"nats", 0}, {"lmdb", 0}}},
	{.name = "append-2",
	 .about = "two processes, one log: how many times one's rate",
	 .peers = {{"one", 0}}},
	{.name = "append-sharded-2",
	 .about = "the same, order by cuts, early",
	 .peers = {{"one", 1.8}}},
	{.name = "read-all",
	 .about = "read a log of 100,000 entries",
	 .peers = {{"redis", 20}, {"lmdb", 0}}},
	{.name = "tail",
	 .about = "from the append to the reader that slept",
	 .peers = {{"redis", 1}}},
	{0},
};

static const struct bench_unit units[] = {
	{.name = "append-2", .unit = "times"},
	{.name = "append-sharded-2", .unit = "times"},
	{.name = "tail", .unit = "us", .less_is_better = true},
	{0},
};

static const struct bench_group groups[] = {
	{.fabric = "shm",
	 .competitors = competitors,
	 .cases = cases,
	 .units = units},
	{0},
};

const struct bench log_bench = {
	.name = "log",
	.about = "the shared log, beside streams of Redis, JetStream, LMDB",
	.unit = "ops/s",
	.note = "Entries a second. Reef and LMDB go by their thread's time on "
		"the processor, Redis and NATS (one\nsynchronous client; "
		"redis-p16: 16 commands at once) by the clock on the wall.",
	.groups = groups,
};
