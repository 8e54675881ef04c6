/* tree.c - `reef bench tree`: the ordered map beside a tree in the same
 * process, beside the libraries that people use for the same, and beside our
 * own hash map.
 *
 * The required ratios are the project's promises; cases without one are there
 * to be seen side by side. */
#include "bench.h"
#include "map_bench.h"
#include "tree_bench.h"
#include "tree_work.h"

#define KEYS UINT64_C(10000000)
#define KEYS_OTHER UINT64_C(1000000) /* of u64 and url */
#define KEYS_QUICK UINT64_C(50000)
#define KEYS_TCP UINT64_C(100000)
#define KEYS_TCP_QUICK UINT64_C(10000)

#define REEF                                                                   \
	{                                                                      \
		.name = "reef", .driver = &tree_reef_driver                    \
	}
#define GTREE                                                                  \
	{                                                                      \
		.name = "gtree", .program = "peer_gtree",                      \
		.absent = BENCH_GTREE_ABSENT                                   \
	}
#define LMDB                                                                   \
	{                                                                      \
		.name = "lmdb", .program = "peer_lmdb_tree",                   \
		.absent = BENCH_LMDB_TREE_ABSENT                               \
	}
#define ROCKSDB                                                                \
	{                                                                      \
		.name = "rocksdb", .program = "peer_rocksdb",                  \
		.absent = BENCH_ROCKSDB_ABSENT                                 \
	}
#define SQLITE                                                                 \
	{                                                                      \
		.name = "sqlite", .program = "peer_sqlite",                    \
		.absent = BENCH_SQLITE_ABSENT                                  \
	}

static const struct bench_competitor letters_competitors[] = {
	REEF,	 GTREE,	 LMDB,
	ROCKSDB, SQLITE, {.name = "map", .driver = &map_reef_driver},
	{0},
};

static const struct bench_competitor other_competitors[] = {
	REEF, GTREE, LMDB, ROCKSDB, SQLITE, {0},
};

static const struct bench_competitor tcp_competitors[] = {
	REEF,
	{.name = "onefiber", .driver = &tree_onefiber_driver},
	{0},
};

#define PEERS(gtree, lmdb, rocksdb, sqlite)                                    \
	{"gtree", gtree}, {"lmdb", lmdb}, {"rocksdb", rocksdb},                \
	{                                                                      \
		"sqlite", sqlite                                               \
	}

static const struct bench_case letters_cases[] = {
	{.name = "get-uniform",
	 .about = "read keys, all as likely",
	 .peers = {PEERS(1.5, 2, 4, 4), {"map", 0.5}}},
	{.name = "get-zipf",
	 .about = "read keys, by Zipf 0.99",
	 .peers = {PEERS(1.5, 2, 4, 4), {"map", 0.5}}},
	{.name = "scan-100",
	 .about = "read 100 entries in order, from any key on",
	 .peers = {PEERS(0, 0.8, 3, 0)}},
	{.name = "scan-all",
	 .about = "read all entries in order; entries a second",
	 .peers = {PEERS(0, 1, 0, 0)}},
	{.name = "put-uniform",
	 .about = "write keys that are there, all as likely",
	 .peers = {PEERS(0, 3, 0, 0), {"map", 0}}},
	{.name = "ycsb-e",
	 .about = "scans of up to 100 by Zipf, one new key in twenty",
	 .peers = {PEERS(0, 0, 0, 0)}},
	{.name = "insert-random",
	 .about = "write new keys, anywhere",
	 .peers = {PEERS(0, 0, 0, 0)}},
	{.name = "insert-ascending",
	 .about = "write new keys, each behind all others",
	 .peers = {PEERS(0, 0, 0, 0)}},
	{.name = MAP_BYTES,
	 .about = "bytes of memory that a key takes, once loaded",
	 .peers = {PEERS(0, 0, 0, 0), {"map", 0}}},
	{0},
};

#define OTHER_CASES(kind, what)                                                \
	{                                                                      \
		{.name = kind "-get-uniform",                                  \
		 .about = "read " what,                                        \
		 .peers = {PEERS(0, 0, 0, 0)}},                                \
			{.name = kind "-scan-100",                             \
			 .about = "read 100 of them in order",                 \
			 .peers = {PEERS(0, 0, 0, 0)}},                        \
			{.name = kind "-insert-random",                        \
			 .about = "write new ones, anywhere",                  \
			 .peers = {PEERS(0, 0, 0, 0)}},                        \
			{.name = kind "-" MAP_BYTES,                           \
			 .about = "bytes of memory that one takes",            \
			 .peers = {PEERS(0, 0, 0, 0)}},                        \
		{                                                              \
			0                                                      \
		}                                                              \
	}

static const struct bench_case u64_cases[] =
	OTHER_CASES("u64", "numbers of 8 bytes, with values of 8");
static const struct bench_case url_cases[] =
	OTHER_CASES("url", "URLs of 40 bytes with common prefixes");

static const struct bench_unit units[] = {
	{.name = MAP_BYTES, .unit = "bytes", .less_is_better = true},
	{.name = "u64-" MAP_BYTES, .unit = "bytes", .less_is_better = true},
	{.name = "url-" MAP_BYTES, .unit = "bytes", .less_is_better = true},
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
	 .competitors = letters_competitors,
	 .cases = letters_cases,
	 .units = units},
	{.fabric = "u64",
	 .size = KEYS_OTHER * MAP_ENTRY,
	 .size_quick = KEYS_QUICK * MAP_ENTRY,
	 .competitors = other_competitors,
	 .cases = u64_cases,
	 .units = units},
	{.fabric = "url",
	 .size = KEYS_OTHER * MAP_ENTRY,
	 .size_quick = KEYS_QUICK * MAP_ENTRY,
	 .competitors = other_competitors,
	 .cases = url_cases,
	 .units = units},
	{.fabric = "tcp",
	 .size = KEYS_TCP * MAP_ENTRY,
	 .size_quick = KEYS_TCP_QUICK * MAP_ENTRY,
	 .competitors = tcp_competitors,
	 .cases = tcp_cases},
	{0},
};

const struct bench tree_bench = {
	.name = "tree",
	.about = "the ordered map, beside GTree, LMDB, RocksDB, SQLite and the "
		 "hash map",
	.unit = "ops/s",
	.note = "Keys of 16 bytes, values of 64, but for u64 (8 and 8) and url "
		"(40 and 64). Gets are a plain\nloop, one after the other; "
		"else a barrier of the processor lies between two. All go by "
		"their\nthread's time on the processor (what RocksDB's own "
		"threads do is not counted), tcp by the\nclock on the wall.",
	.groups = groups,
};
