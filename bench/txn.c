/* txn.c - `reef bench txn`: transactions beside SQLite and LMDB, in the same
 * process, and beside the servers that people use for the same.
 *
 * The required ratios are the project's promises; cases without one are there
 * to be seen side by side. */
#include "bench.h"
#include "txn_bench.h"
#include "txn_work.h"

#define UNITS UINT64_C(1000000)
#define UNITS_QUICK UINT64_C(5000)
#define UNITS_TCP UINT64_C(100000)
#define UNITS_TCP_QUICK UINT64_C(2000)

static const struct bench_competitor shm_competitors[] = {
	{.name = "reef", .driver = &txn_reef_driver},
	{.name = "one", .driver = &driver_one},
	{.name = "sqlite",
	 .program = "peer_sqlite_txn",
	 .absent = BENCH_SQLITE_TXN_ABSENT},
	{.name = "lmdb",
	 .program = "peer_lmdb_txn",
	 .absent = BENCH_LMDB_TXN_ABSENT},
	{.name = "redis",
	 .program = "peer_redis_txn",
	 .absent = BENCH_REDIS_TXN_ABSENT},
	{.name = "postgres",
	 .program = "peer_postgres_txn",
	 .absent = BENCH_POSTGRES_TXN_ABSENT},
	{0},
};

static const struct bench_competitor tcp_competitors[] = {
	{.name = "reef", .driver = &txn_reef_driver},
	{.name = "onefiber", .driver = &txn_onefiber_driver},
	{0},
};

#define ALL_PEERS                                                              \
	{                                                                      \
		{"sqlite", 0}, {"lmdb", 0}, {"redis", 0},                      \
		{                                                              \
			"postgres", 0                                          \
		}                                                              \
	}

static const struct bench_case shm_cases[] = {
	{.name = "smallbank",
	 .about = "banking, 4 of 100 customers hot",
	 .peers = {{"sqlite", 4},
		   {"lmdb", 1.5},
		   {"redis", 20},
		   {"postgres", 20}}},
	{.name = "smallbank-p99",
	 .about = "the time that 1 of 100 takes longer than",
	 .peers = ALL_PEERS},
	{.name = "smallbank-2",
	 .about = "two processes: how many times one's rate",
	 .peers = {{"one", 1.7}}},
	{.name = "smallbank-2-commits",
	 .about = "two processes: of 100 attempts, those that did not lose"},
	{.name = "tatp",
	 .about = "a phone network, 80 of 100 only read",
	 .peers = ALL_PEERS},
	{.name = "tatp-p99",
	 .about = "the time that 1 of 100 takes longer than",
	 .peers = ALL_PEERS},
	{.name = "tatp-2",
	 .about = "two processes: how many times one's rate",
	 .peers = {{"one", 0}}},
	{.name = "tpcc-1",
	 .about = "new-order and payment, 1 warehouse",
	 .peers = ALL_PEERS},
	{.name = "tpcc-4",
	 .about = "new-order and payment, 4 warehouses",
	 .peers = ALL_PEERS},
	{.name = "tpcc-4-p99",
	 .about = "the time that 1 of 100 takes longer than",
	 .peers = ALL_PEERS},
	{.name = "tpcc-1-2",
	 .about = "two processes: how many times one's rate",
	 .peers = {{"one", 0}}},
	{.name = "tpcc-1-2-commits",
	 .about = "two processes: of 100 attempts, those that did not lose"},
	{0},
};

static const struct bench_unit shm_units[] = {
	{.name = "smallbank-p99", .unit = "us", .less_is_better = true},
	{.name = "tatp-p99", .unit = "us", .less_is_better = true},
	{.name = "tpcc-4-p99", .unit = "us", .less_is_better = true},
	{.name = "smallbank-2", .unit = "times"},
	{.name = "tatp-2", .unit = "times"},
	{.name = "tpcc-1-2", .unit = "times"},
	{.name = "smallbank-2-commits", .unit = "%"},
	{.name = "tpcc-1-2-commits", .unit = "%"},
	{0},
};

static const struct bench_case tcp_cases[] = {
	{.name = "smallbank-tcp16",
	 .about = "banking over tcp, 16 fibers",
	 .peers = {{"onefiber", 5}}},
	{.name = "tatp-tcp16",
	 .about = "a phone network over tcp, 16 fibers",
	 .peers = {{"onefiber", 0}}},
	{.name = "tpcc-4-tcp16",
	 .about = "4 warehouses over tcp, 16 fibers",
	 .peers = {{"onefiber", 0}}},
	{0},
};

static const struct bench_group groups[] = {
	{.fabric = "shm",
	 .size = UNITS * TXN_UNIT,
	 .size_quick = UNITS_QUICK * TXN_UNIT,
	 .competitors = shm_competitors,
	 .cases = shm_cases,
	 .units = shm_units},
	{.fabric = "tcp",
	 .size = UNITS_TCP * TXN_UNIT,
	 .size_quick = UNITS_TCP_QUICK * TXN_UNIT,
	 .competitors = tcp_competitors,
	 .cases = tcp_cases},
	{0},
};

const struct bench txn_bench = {
	.name = "txn",
	.about = "transactions, beside SQLite, LMDB, Redis, PostgreSQL",
	.unit = "txn/s",
	.note = "Rows are numbers, or 16 to 64 bytes, with keys of 8. Reef, "
		"SQLite (WAL, not synchronous, in\nmemory) and LMDB (NOSYNC) "
		"go by their thread's time on the processor; Redis (EVALSHA) "
		"and\nPostgreSQL (a function, fsync off), each with one "
		"synchronous client on a unix socket, two\nprocesses and tcp "
		"by the clock on the wall.",
	.groups = groups,
};
