/* log_bench.h - the competitors of `reef bench log` that live in the program
 * itself.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_LOG_BENCH_H
#define REEF_BENCH_LOG_BENCH_H

#include "driver.h"

extern const struct driver log_reef_driver;

#endif
