/* txn_bench.h - the competitors of `reef bench txn` that live in the program
 * itself.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_TXN_BENCH_H
#define REEF_BENCH_TXN_BENCH_H

#include "driver.h"

extern const struct driver txn_reef_driver;
extern const struct driver txn_onefiber_driver;

#endif
