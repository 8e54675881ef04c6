/* fabric_bench.h - the competitors of `reef bench fabric` that live in the
 * program itself.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_FABRIC_BENCH_H
#define REEF_BENCH_FABRIC_BENCH_H

#include "driver.h"

extern const struct driver fabric_reef_driver;
extern const struct driver fabric_tls_driver; /* the same, encrypted */
extern const struct driver fabric_raw_driver;
extern const struct driver fiber_reef_driver;
extern const struct driver fiber_swapcontext_driver;

#endif
