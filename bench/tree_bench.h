/* tree_bench.h - the competitors of `reef bench tree` that live in the program
 * itself.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_TREE_BENCH_H
#define REEF_BENCH_TREE_BENCH_H

#include "driver.h"

extern const struct driver tree_reef_driver;
extern const struct driver tree_onefiber_driver;

#endif
