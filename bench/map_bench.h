/* map_bench.h - the competitors of `reef bench map` that live in the program
 * itself.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_MAP_BENCH_H
#define REEF_BENCH_MAP_BENCH_H

#include "driver.h"

extern const struct driver map_reef_driver;
extern const struct driver map_onefiber_driver;
/* In a pool of two nodes: two copies of all, and one. */
extern const struct driver map_copies_driver;
extern const struct driver map_onecopy_driver;

#endif
