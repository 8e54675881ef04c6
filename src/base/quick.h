/* quick.h - the checksum and the hash of checksum.h, inlined: for input so
 * short that a call would cost more than the work.
 *
 * Thread: any. */
#ifndef REEF_BASE_QUICK_H
#define REEF_BASE_QUICK_H

#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <string.h>
#include <xxhash.h>

/* The longest that is not better cut into streams. */
#define REEF_QUICK_MAX 512

/* As reef_crc32c. */
static inline uint32_t reef_crc32c_quick(uint32_t crc, const void *bytes,
					 size_t size)
{
#ifdef __x86_64__
	/* This is assembly, because the compiler would not inline what is meant
	 * for another processor than the caller. */
	const uint8_t *at = bytes;
	uint64_t sum = ~crc;

	if (__builtin_expect(size > REEF_QUICK_MAX || !reef_crc32c_is_quick, 0))
		return reef_crc32c(crc, bytes, size);
#pragma GCC unroll 4
	for (; size >= 8; size -= 8, at += 8)
		__asm__("crc32q %1, %0"
			: "+r"(sum)
			: "m"(*(const char(*)[8])at));
	for (; size; size--, at++)
		__asm__("crc32b %1, %k0" : "+r"(sum) : "m"(*at));
	return ~(uint32_t)sum;
#else
	return reef_crc32c(crc, bytes, size);
#endif
}

/* As reef_hash. */
static inline uint64_t reef_hash_quick(const void *bytes, size_t size,
				       uint64_t seed)
{
	return XXH3_64bits_withSeed(bytes, size, seed);
}

#endif
