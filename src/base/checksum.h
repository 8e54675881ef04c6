/* checksum.h - CRC32C and hashing.
 *
 * (1) CRC32C (Castagnoli) detects torn and damaged bytes; hardware and software
 *     give the same number.
 * (2) reef_hash (XXH3, 64 bits) spreads keys; it is no defence against anyone
 *     who chooses them without knowing the seed.
 *
 * Thread: any. */
#ifndef REEF_BASE_CHECKSUM_H
#define REEF_BASE_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* crc: 0 to start, the last result to go on. */
uint32_t reef_crc32c(uint32_t crc, const void *bytes, size_t size);

/* The checksum of two inputs one after the other, from the checksum of each; it
 * takes about as long as a few KiB. */
uint32_t reef_crc32c_join(uint32_t first, uint32_t second,
			  uint64_t second_size);

/* The table version, whatever the processor has; and the one without vectors.
 * For tests. */
uint32_t reef_crc32c_software(uint32_t crc, const void *bytes, size_t size);
uint32_t reef_crc32c_narrow(uint32_t crc, const void *bytes, size_t size);

/* True if the processor has an instruction for it. */
bool reef_crc32c_is_hardware(void);
extern bool reef_crc32c_is_quick; /* and is it one that quick.h is for? */

uint64_t reef_hash(const void *bytes, size_t size, uint64_t seed);

#endif
