/* sync_bench.h - the competitors of `reef bench sync` that live in the program
 * itself.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_SYNC_BENCH_H
#define REEF_BENCH_SYNC_BENCH_H

#include "driver.h"

extern const struct driver sync_reef_driver;
extern const struct driver sync_pthread_driver;

#endif
