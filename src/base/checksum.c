/* checksum.c - CRC32C on whatever the processor has, and XXH3.
 *
 * The hardware instruction takes a word a cycle but answers three cycles later,
 * so a long input is cut into three streams that run side by side. Their
 * results are joined by shifting the earlier one over the length of the later
 * one: a multiplication by x^(8*length) modulo the polynomial, which for a
 * fixed length is four table look-ups.
 *
 * Processors that multiply polynomials in vectors of 64 bytes take long input
 * at twice the speed (57 GB/s beside 26, from the cache). Four vectors go
 * through it, each 256 bytes at a time: what is in them is multiplied by
 * x^2048, so that it counts where the next 256 bytes are, and added to those.
 * In the end the vectors are 256 bytes with the same remainder as all that was
 * before.
 *
 * Tables and the choice are made once, when the library is loaded. */
#include "base/checksum.h"

#include <string.h>
#include <xxhash.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* Castagnoli, bits reversed: bit 31 is x^0. */
#define POLYNOMIAL 0x82f63b78u

typedef uint32_t crc32c_fn(uint32_t crc, const uint8_t *bytes, size_t size);

/* slices[k][b]: the remainder of byte b followed by k zero bytes. */
static uint32_t slices[8][256];
static crc32c_fn *chosen, *narrow; /* narrow: that which needs no vectors */
bool reef_crc32c_is_quick;

static uint32_t update_table(uint32_t crc, const uint8_t *bytes, size_t size)
{
	uint64_t word;

	for (; size >= 8; bytes += 8, size -= 8) {
		memcpy(&word, bytes, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		word = __builtin_bswap64(word);
#endif
		word ^= crc;
		crc = slices[7][word & 0xff] ^ slices[6][word >> 8 & 0xff] ^
		      slices[5][word >> 16 & 0xff] ^
		      slices[4][word >> 24 & 0xff] ^
		      slices[3][word >> 32 & 0xff] ^
		      slices[2][word >> 40 & 0xff] ^
		      slices[1][word >> 48 & 0xff] ^ slices[0][word >> 56];
	}
	for (; size > 0; bytes++, size--)
		crc = slices[0][(crc ^ *bytes) & 0xff] ^ crc >> 8;
	return crc;
}

static void make_slices(void)
{
	uint32_t crc;
	int byte, bit, k;

	for (byte = 0; byte < 256; byte++) {
		crc = (uint32_t)byte;
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		slices[0][byte] = crc;
	}
	for (byte = 0; byte < 256; byte++)
		for (k = 1; k < 8; k++)
			slices[k][byte] =
				slices[0][slices[k - 1][byte] & 0xff] ^
				slices[k - 1][byte] >> 8;
}

/* The product of two polynomials modulo ours, both with bits reversed. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;
	int bit;

	for (bit = 31; bit >= 0; bit--) {
		if (a >> bit & 1)
			product ^= b;
		b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
	}
	return product;
}

/* x^(8*size) modulo our polynomial. */
static uint32_t power_of(uint64_t size)
{
	uint32_t power = 0x80000000u;  /* x^0 */
	uint32_t square = 0x00800000u; /* x^8 */

	for (; size > 0; size >>= 1) {
		if (size & 1)
			power = multiply(power, square);
		square = multiply(square, square);
	}
	return power;
}

#if defined(__x86_64__) || defined(__aarch64__)

#if defined(__x86_64__)
#define HARDWARE __attribute__((target("sse4.2")))
#define crc_word(crc, word) ((uint32_t)_mm_crc32_u64(crc, word))
#define crc_byte(crc, byte) _mm_crc32_u8(crc, byte)
#else
#define HARDWARE __attribute__((target("+crc")))
#define crc_word(crc, word) __crc32cd(crc, word)
#define crc_byte(crc, byte) __crc32cb(crc, byte)
#endif

/* Bytes per stream. The long one hides the joining, the short one lets blocks
 * of a few KiB profit too. */
#define STREAM_LONG 2048
#define STREAM_SHORT 256

static uint32_t shift_long[4][256], shift_short[4][256];

static void make_shift(uint32_t table[4][256], size_t size)
{
	const uint32_t power = power_of(size);
	uint32_t byte, k;

	for (k = 0; k < 4; k++)
		for (byte = 0; byte < 256; byte++)
			table[k][byte] = multiply(byte << 8 * k, power);
}

static uint32_t shift(const uint32_t table[4][256], uint32_t crc)
{
	return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^
	       table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24];
}

static inline uint64_t load_word(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, 8);
	return word;
}

/* The checksum of three streams of `size` bytes, one after the other. */
HARDWARE static inline uint32_t update_three(uint32_t crc, const uint8_t *bytes,
					     size_t size,
					     const uint32_t table[4][256])
{
	uint32_t second = 0, third = 0;
	size_t at;

	for (at = 0; at < size; at += 8) {
		crc = crc_word(crc, load_word(bytes + at));
		second = crc_word(second, load_word(bytes + size + at));
		third = crc_word(third, load_word(bytes + 2 * size + at));
	}
	crc = shift(table, crc) ^ second;
	return shift(table, crc) ^ third;
}

HARDWARE static uint32_t update_hardware(uint32_t crc, const uint8_t *bytes,
					 size_t size)
{
	for (; size >= (size_t)3 * STREAM_LONG;
	     bytes += 3 * STREAM_LONG, size -= (size_t)3 * STREAM_LONG)
		crc = update_three(crc, bytes, STREAM_LONG, shift_long);
	for (; size >= (size_t)3 * STREAM_SHORT;
	     bytes += 3 * STREAM_SHORT, size -= (size_t)3 * STREAM_SHORT)
		crc = update_three(crc, bytes, STREAM_SHORT, shift_short);
	for (; size >= 8; bytes += 8, size -= 8)
		crc = crc_word(crc, load_word(bytes));
	for (; size > 0; bytes++, size--)
		crc = crc_byte(crc, *bytes);
	return crc;
}

#if defined(__x86_64__)

#define FOLD 256      /* bytes in the vectors */
#define FOLD_MIN 2048 /* less is not worth the joining */
#define WIDE __attribute__((target("avx512f,vpclmulqdq,sse4.2")))

/* The factors of the first and the second half of 16 bytes. A product of two
 * numbers with bits reversed is short of one place, and 32 bits stand at one
 * end of 64: hence the shift, and 32 bits more or less than the distance. */
static uint64_t fold_first, fold_second;

WIDE static inline __m512i fold(__m512i vector, __m512i by, const uint8_t *next)
{
	__m512i first = _mm512_clmulepi64_epi128(vector, by, 0x00);
	__m512i second = _mm512_clmulepi64_epi128(vector, by, 0x11);

	return _mm512_xor_si512(_mm512_xor_si512(first, second),
				_mm512_loadu_si512(next));
}

WIDE static uint32_t update_wide(uint32_t crc, const uint8_t *bytes,
				 size_t size)
{
	uint8_t last[FOLD];
	__m512i by, vectors[4];
	int i;

	if (size < FOLD_MIN)
		return update_hardware(crc, bytes, size);
	by = _mm512_broadcast_i32x4(
		_mm_set_epi64x((long long)fold_second, (long long)fold_first));
	for (i = 0; i < 4; i++)
		vectors[i] = _mm512_loadu_si512(bytes + (size_t)64 * i);
	vectors[0] = _mm512_xor_si512(
		vectors[0],
		_mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
	for (; size >= (size_t)2 * FOLD; size -= FOLD) {
		bytes += FOLD;
		vectors[0] = fold(vectors[0], by, bytes);
		vectors[1] = fold(vectors[1], by, bytes + 64);
		vectors[2] = fold(vectors[2], by, bytes + 128);
		vectors[3] = fold(vectors[3], by, bytes + 192);
	}
	for (i = 0; i < 4; i++)
		_mm512_storeu_si512(last + (size_t)64 * i, vectors[i]);
	crc = update_hardware(0, last, FOLD);
	return update_hardware(crc, bytes + FOLD, size - FOLD);
}

static bool can_fold(void)
{
	fold_first = (uint64_t)power_of(FOLD + 4) << 1;
	fold_second = (uint64_t)power_of(FOLD - 4) << 1;
	return __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("vpclmulqdq");
}

#else

static bool can_fold(void)
{
	return false;
}
#define update_wide update_hardware

#endif

static crc32c_fn *find_hardware(void)
{
#if defined(__x86_64__)
	/* libgcc asks the processor in a constructor of its own, which may come
	 * later than ours. */
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("sse4.2"))
		return NULL;
#else
	if (!(getauxval(AT_HWCAP) & HWCAP_CRC32))
		return NULL;
#endif
	make_shift(shift_long, STREAM_LONG);
	make_shift(shift_short, STREAM_SHORT);
	narrow = update_hardware;
	return can_fold() ? update_wide : update_hardware;
}

#else

static crc32c_fn *find_hardware(void)
{
	return NULL;
}

#endif

/* This runs before the program's constructors, which may want a checksum. */
__attribute__((constructor(101))) static void choose(void)
{
	make_slices();
	chosen = find_hardware();
	if (!chosen)
		chosen = update_table;
	if (!narrow)
		narrow = chosen;
#ifdef __x86_64__
	reef_crc32c_is_quick = chosen != update_table;
#endif
}

uint32_t reef_crc32c(uint32_t crc, const void *bytes, size_t size)
{
	return ~chosen(~crc, bytes, size);
}

uint32_t reef_crc32c_join(uint32_t first, uint32_t second, uint64_t second_size)
{
	return multiply(first, power_of(second_size)) ^ second;
}

uint32_t reef_crc32c_software(uint32_t crc, const void *bytes, size_t size)
{
	return ~update_table(~crc, bytes, size);
}

uint32_t reef_crc32c_narrow(uint32_t crc, const void *bytes, size_t size)
{
	return ~narrow(~crc, bytes, size);
}

bool reef_crc32c_is_hardware(void)
{
	return chosen != update_table;
}

uint64_t reef_hash(const void *bytes, size_t size, uint64_t seed)
{
	return XXH3_64bits_withSeed(bytes, size, seed);
}
