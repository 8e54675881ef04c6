/* pool.h - a pool for a competitor, in its target: what `reef up` runs.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_POOL_H
#define REEF_BENCH_POOL_H

#include "driver.h"

/* Fork the target: a broker and a node that lends `capacity` bytes, over that
 * fabric alone, until the client is gone. Then reef_open("local") finds it,
 * also in processes that are forked from this one. huge: ask for huge pages.
 * Whether tcp is encrypted says $REEF_TLS, as for who opens it. */
int bench_pool_start(struct driver_pair *pair, const char *fabric,
		     uint64_t capacity, uint64_t extent_size, bool huge);

#endif
