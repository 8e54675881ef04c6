/* fabric.c - `reef bench fabric`: what the fabrics cost, and a fiber's switch.
 * Reef is measured by the calls that a program makes: reef_read, reef_write,
 * reef_cas, reef_faa, reef_execute (fabric_reef.c).
 *
 * The required ratios are the project's promises (docs/BENCHMARKS.md); cases
 * without one are there to be seen side by side. */
#include "bench.h"
#include "bench/units.h"
#include "fabric_bench.h"

static const struct bench_competitor fabric_competitors[] = {
	{.name = "reef", .driver = &fabric_reef_driver},
	{.name = "raw", .driver = &fabric_raw_driver},
	{.name = "ucx", .program = "peer_ucx", .absent = BENCH_UCX_ABSENT},
	{.name = "libfabric",
	 .program = "peer_libfabric",
	 .absent = BENCH_LIBFABRIC_ABSENT},
	{0},
};

static const struct bench_case shm_cases[] = {
	{"shm-read-64",
	 "READ 64 B at random, address from the last value",
	 {{"raw", 0.85}, {"ucx", 1.0}, {"libfabric", 1.0}}},
	{"shm-read-64-batch32",
	 "READ 64 B at random, 32 in a batch",
	 {{"raw", 0.75}, {"ucx", 1.0}, {"libfabric", 1.0}}},
	{"shm-write-64",
	 "WRITE 64 B at random, seen by all when done",
	 {{"raw", 0.85}, {"ucx", 0}, {"libfabric", 0}}},
	{"shm-cas",
	 "CAS on random words",
	 {{"raw", 0.8}, {"ucx", 1.0}, {"libfabric", 1.0}}},
	{"shm-faa",
	 "FAA on random words",
	 {{"raw", 0.8}, {"ucx", 1.0}, {"libfabric", 1.0}}},
	{"shm-write-64-free",
	 "WRITE 64 B, all addresses known beforehand",
	 {{"raw", 0}, {"ucx", 0}}},
	{"shm-cas-free",
	 "CAS, all addresses known beforehand",
	 {{"raw", 0}, {"ucx", 0}}},
	{"shm-faa-free",
	 "FAA, all addresses known beforehand",
	 {{"raw", 0}, {"ucx", 0}}},
	{"shm-cas-hot",
	 "CAS on one word",
	 {{"raw", 0}, {"ucx", 0}, {"libfabric", 0}}},
	{"shm-faa-hot",
	 "FAA on one word",
	 {{"raw", 0}, {"ucx", 0}, {"libfabric", 0}}},
	{"shm-read-8k",
	 "READ 8 KiB at random",
	 {{"raw", 0.95}, {"ucx", 1.0}, {"libfabric", 1.0}}},
	{"shm-read-64-spin", "READ 64 B at random, spinning", {{"raw", 0}}},
	{"shm-read-64-sleep",
	 "the same, sleeping (shm never has to)",
	 {{"raw", 0}}},
	{"shm-read-64-fibers16", "the same from 16 fibers taking turns", {{0}}},
	{0},
};

static const struct bench_case tcp_cases[] = {
	{"tcp-read-64",
	 "READ 64 B at random",
	 {{"raw", 0.85}, {"ucx", 1.0}, {"libfabric", 1.0}}},
	{"tcp-read-64-batch32",
	 "READ 64 B at random, 32 in a batch",
	 {{"raw", 0}, {"ucx", 1.5}, {"libfabric", 1.5}}},
	{"tcp-read-8k",
	 "READ 8 KiB at random",
	 {{"raw", 0.8}, {"ucx", 1.0}, {"libfabric", 1.0}}},
	{"tcp-read-64-spin", "READ 64 B at random, spinning", {{"raw", 0}}},
	{"tcp-read-64-sleep", "the same, sleeping in poll(2)", {{"raw", 0}}},
	{"tcp-read-64-fibers16", "the same from 16 fibers", {{0}}},
	{0},
};

/* The peers have nothing of the kind, so it is beside plain text. */
static const struct bench_competitor tls_competitors[] = {
	{.name = "reef", .driver = &fabric_tls_driver},
	{.name = "plain", .driver = &fabric_reef_driver},
	{0},
};

static const struct bench_case tls_cases[] = {
	{"tcp-read-64-tls", "READ 64 B at random, encrypted", {{"plain", 0}}},
	{"tcp-read-8k-tls", "READ 8 KiB at random, encrypted", {{"plain", 0}}},
	{0},
};

static const struct bench_competitor fiber_competitors[] = {
	{.name = "reef", .driver = &fiber_reef_driver},
	{.name = "swapcontext", .driver = &fiber_swapcontext_driver},
	{0},
};

static const struct bench_case fiber_cases[] = {
	{"fiber-switch", "from one fiber to another", {{"swapcontext", 10}}},
	{0},
};

static const struct bench_group groups[] = {
	{.fabric = "shm",
	 .size = 1024 * MIB,
	 .size_quick = 256 * MIB,
	 .competitors = fabric_competitors,
	 .cases = shm_cases},
	{.fabric = "tcp",
	 .size = 64 * MIB,
	 .size_quick = 64 * MIB,
	 .competitors = fabric_competitors,
	 .cases = tcp_cases},
	{.fabric = "tcp",
	 .size = 64 * MIB,
	 .size_quick = 64 * MIB,
	 .competitors = tls_competitors,
	 .cases = tls_cases},
	{.fabric = "fiber",
	 .competitors = fiber_competitors,
	 .cases = fiber_cases},
	{0},
};

static const struct bench fabric = {
	.name = "fabric",
	.about = "the public calls and fibers, beside the raw limit, UCX and "
		 "libfabric",
	.unit = "ops/s",
	.note = "shm and fiber cases go by the client's time on the processor, "
		"tcp and sleeping\nones by the clock on the wall; on an idle "
		"machine that is the same.",
	.groups = groups,
};

const struct bench *const bench_all[] = {
	&fabric,       &alloc_bench,	&sync_bench, &map_bench,
	&tree_bench,   &txn_bench,	&log_bench,  &redis_bench,
	&copies_bench, &database_bench, NULL};
