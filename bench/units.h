/* units.h - spans of time in nanoseconds and sizes in bytes, for all benches.
 *
 * Thread: any. */
#ifndef REEF_BENCH_UNITS_H
#define REEF_BENCH_UNITS_H

#include <stdint.h>

#define SECOND UINT64_C(1000000000)
#define MIB (UINT64_C(1) << 20)

#endif
