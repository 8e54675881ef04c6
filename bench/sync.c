/* sync.c - `reef bench sync`: locks, barriers and numbers, beside what the C
 * library has for processes that share memory, and beside a lock in Redis.
 *
 * The required ratios are the project's promises; cases without one are there
 * to be seen side by side. */
#include "bench.h"
#include "sync_bench.h"

static const struct bench_competitor competitors[] = {
	{.name = "reef", .driver = &sync_reef_driver},
	{.name = "pthread", .driver = &sync_pthread_driver},
	{.name = "redis",
	 .program = "peer_redis",
	 .absent = BENCH_REDIS_ABSENT},
	{0},
};

static const struct bench_case shm_cases[] = {
	{"lock-alone",
	 "take and give a lock, nobody else",
	 {{"pthread", 0.5}, {"redis", 500}}},
	{"lock-2", "2 processes on one lock", {{"pthread", 0.5}}},
	{"lock-8", "8 processes on one lock", {{"pthread", 0}}},
	{"barrier-4", "4 processes meet", {{"pthread", 0.5}}},
	{"barrier-2", "2 processes meet", {{"pthread", 0}}},
	{"read-alone", "the lock, shared; nobody else", {{"pthread", 0}}},
	{"read-2", "the lock, shared; 2 processes", {{"pthread", 0}}},
	{"spin-alone", "a spin lock, nobody else", {{"pthread", 0}}},
	{"spin-2", "2 processes on one", {{"pthread", 0}}},
	{"spin-8", "8 processes on one", {{"pthread", 0}}},
	{"mcs-alone", "a strict queue, nobody else", {{"pthread", 0}}},
	{"mcs-2", "2 processes on one", {{"pthread", 0}}},
	{"mcs-8", "8 processes on one", {{"pthread", 0}}},
	{"sequencer", "a number from a sequencer", {{0}}},
	{"clock", "a time from a clock", {{0}}},
	{0},
};

static const struct bench_case tcp_cases[] = {
	{"lock-alone-tcp",
	 "take and give a lock over tcp, nobody else",
	 {{"redis", 3}}},
	{"lock-2-tcp", "2 processes on one lock, over tcp", {{0}}},
	{"barrier-4-tcp", "4 processes meet, over tcp", {{0}}},
	{"sequencer-tcp", "a number from a sequencer over tcp", {{0}}},
	{0},
};

static const struct bench_group groups[] = {
	{.fabric = "shm", .competitors = competitors, .cases = shm_cases},
	{.fabric = "tcp", .competitors = competitors, .cases = tcp_cases},
	{0},
};

const struct bench sync_bench = {
	.name = "sync",
	.about = "locks, barriers and numbers, beside pthread and Redis",
	.unit = "ops/s",
	.note = "Time is the clock on the wall. A lock's figure is how often "
		"it was taken and given,\nby all processes together; a "
		"barrier's, how often all met. Redis is on a unix socket\nin "
		"both groups.",
	.groups = groups,
};
