/* copies_bench.h - the competitors of `reef bench copies` that live in the
 * program itself, beside those of map_bench.h.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_COPIES_BENCH_H
#define REEF_BENCH_COPIES_BENCH_H

#include "driver.h"

/* The door in a pool of two nodes, with two copies of all. */
extern const struct driver copies_door_driver;
/* A redis-server with one replica. */
extern const struct driver copies_redis_driver;
/* A client of a pool whose nodes are killed. */
extern const struct driver copies_failover_driver;

#define COPIES_DOOR "set-replicated"
#define COPIES_FAILOVER "failover"

#endif
