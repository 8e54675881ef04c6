/* likely.h - which way a condition usually goes, for the compiler.
 *
 * Thread: any. */
#ifndef REEF_BASE_LIKELY_H
#define REEF_BASE_LIKELY_H

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

#endif
