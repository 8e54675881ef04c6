/* seeds.h - how many seeds, or rounds, a test of chance takes.
 *
 * Thread: any. */
#ifndef REEF_TESTS_SEEDS_H
#define REEF_TESTS_SEEDS_H

#include <stdint.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
/* Mutants judge the seeds, not the memory: they are not for a sanitizer, whose
 * compiler draws other numbers from the same seed. */
#define SANITIZED 0
#endif

/* few: in `make test`; a sanitizer, which needs ten times as long and finds in
 * the first seeds what it is there for, takes an eighth of them. soak: in `make
 * soak`. */
static inline uint64_t seeds_of(uint64_t few, uint64_t soak)
{
	if (getenv("REEF_SOAK"))
		return soak;
	return SANITIZED ? (few + 7) / 8 : few;
}

#endif
