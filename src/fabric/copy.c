/* copy.c - the copies of copy.h that are not worth inlining. */
#include "fabric/copy.h"

#include <string.h>
#ifndef REEF_COPY_LOOP
#include <immintrin.h>
#endif

/* Copy bytes of words that are only partly in the range, one by one. */
static void bytes_from(uint8_t *private, const uint8_t *shared, size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
	private[i] = atomic_load_explicit((const _Atomic uint8_t *)shared + i,
					  memory_order_relaxed);
}

static void bytes_to(uint8_t *shared, const uint8_t *private, size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
		atomic_store_explicit((_Atomic uint8_t *)shared + i, private[i],
				      memory_order_relaxed);
}

#ifdef REEF_COPY_LOOP

static void words_from(uint8_t *private, const uint8_t *shared, size_t size)
{
	uint64_t word;

	for (; size; size -= 8, shared += 8, private += 8) {
		word = atomic_load_explicit((const _Atomic uint64_t *)shared,
					    memory_order_relaxed);
		memcpy(private, &word, 8);
	}
}

static void words_to(uint8_t *shared, const uint8_t *private, size_t size)
{
	uint64_t word;

	for (; size; size -= 8, shared += 8, private += 8) {
		memcpy(&word, private, 8);
		atomic_store_explicit((_Atomic uint64_t *)shared, word,
				      memory_order_relaxed);
	}
}

#else

/* Long copies run in two streams, a page apart: what a random page costs is the
 * walk to it, and two walks at once take as long as one. Measured on 8 KiB from
 * all over 1 GiB, memcpy is 1.3 times slower; `rep movsq`, which also keeps
 * words whole where both sides are aligned, is like memcpy. */
#define STREAM 4096

typedef long long wide __attribute__((vector_size(32), aligned(8), may_alias));
typedef long long private_wide
	__attribute__((vector_size(32), aligned(1), may_alias));

#define WIDE __attribute__((target("avx2"))) static inline

/* Copy 64 bytes at each of two places, which are `apart` bytes apart. */
WIDE void wide_from_two(uint8_t *private, const uint8_t *shared, size_t apart)
{
	const volatile wide *from = (const void *)shared;
	const volatile wide *from_far = (const void *)(shared + apart);
	private_wide *to = (void *)private;
	private_wide *to_far = (void *)(private + apart);
	wide a = from[0], b = from[1], c = from_far[0], d = from_far[1];

	to[0] = a;
	to[1] = b;
	to_far[0] = c;
	to_far[1] = d;
}

WIDE void wide_to_two(uint8_t *shared, const uint8_t *private, size_t apart)
{
	const private_wide *from = (const void *)private;
	const private_wide *from_far = (const void *)(private + apart);
	volatile wide *to = (void *)shared;
	volatile wide *to_far = (void *)(shared + apart);
	wide a = from[0], b = from[1], c = from_far[0], d = from_far[1];

	to[0] = a;
	to[1] = b;
	to_far[0] = c;
	to_far[1] = d;
}

WIDE void wide_from(uint8_t *private, const uint8_t *shared, size_t size)
{
	size_t i;

	for (; size >= 2 * STREAM; size -= 2 * STREAM) {
		for (i = 0; i < STREAM; i += 64)
			wide_from_two(private + i, shared + i, STREAM);
		private += 2 * STREAM;
		shared += 2 * STREAM;
	}
	for (; size >= 128; size -= 128, shared += 128, private += 128)
		wide_from_two(private, shared, 64);
	for (; size >= 32; size -= 32, shared += 32, private += 32)
		*(private_wide *)private = *(const volatile wide *)shared;
	reef_copy_words_from(private, shared, size);
}

WIDE void wide_to(uint8_t *shared, const uint8_t *private, size_t size)
{
	size_t i;

	for (; size >= 2 * STREAM; size -= 2 * STREAM) {
		for (i = 0; i < STREAM; i += 64)
			wide_to_two(shared + i, private + i, STREAM);
		private += 2 * STREAM;
		shared += 2 * STREAM;
	}
	for (; size >= 128; size -= 128, shared += 128, private += 128)
		wide_to_two(shared, private, 64);
	for (; size >= 32; size -= 32, shared += 32, private += 32)
		*(volatile wide *)shared = *(const private_wide *)private;
	reef_copy_words_to(shared, private, size);
}

/* Of so many bytes the walks are a small part, and one stream is what the
 * processor fetches ahead best: 4 MiB take 270 us, in two streams 380. */
#define LONG 131072

WIDE void long_from(uint8_t *private, const uint8_t *shared, size_t size)
{
	for (; size >= 128; size -= 128, shared += 128, private += 128) {
		const volatile wide *from = (const void *)shared;
		private_wide *to = (void *)private;
		wide a = from[0], b = from[1], c = from[2], d = from[3];

		to[0] = a;
		to[1] = b;
		to[2] = c;
		to[3] = d;
	}
	wide_from(private, shared, size);
}

/* Long copies are stored past the caches, so that what is written over is not
 * fetched first: 4 MiB take 150 us instead of 290. Such stores are not in order
 * with others, so the fence. */
WIDE void long_to(uint8_t *shared, const uint8_t *private, size_t size)
{
	size_t head = -(uintptr_t)shared & 31;

	reef_copy_words_to(shared, private, head);
	shared += head;
	private += head;
	size -= head;
	for (; size >= 128; size -= 128, shared += 128, private += 128) {
		const private_wide *from = (const void *)private;
		__m256i *to = (void *)shared;

		_mm256_stream_si256(to, (__m256i)from[0]);
		_mm256_stream_si256(to + 1, (__m256i)from[1]);
		_mm256_stream_si256(to + 2, (__m256i)from[2]);
		_mm256_stream_si256(to + 3, (__m256i)from[3]);
	}
	_mm_sfence();
	wide_to(shared, private, size);
}

static void words_from(uint8_t *private, const uint8_t *shared, size_t size)
{
	if (!__builtin_cpu_supports("avx2"))
		reef_copy_words_from(private, shared, size);
	else if (size >= LONG)
		long_from(private, shared, size);
	else
		wide_from(private, shared, size);
}

static void words_to(uint8_t *shared, const uint8_t *private, size_t size)
{
	if (!__builtin_cpu_supports("avx2"))
		reef_copy_words_to(shared, private, size);
	else if (size >= LONG)
		long_to(shared, private, size);
	else
		wide_to(shared, private, size);
}

#endif

static size_t head_of(const void *shared, size_t size)
{
	size_t head = -(uintptr_t)shared & 7;

	return head < size ? head : size;
}

void reef_copy_from_shared_any(void *private, const void *shared, size_t size)
{
	size_t head = head_of(shared, size), whole = (size - head) & ~7ull;
	const uint8_t *from = shared;
	uint8_t *to = private;

	bytes_from(to, from, head);
	words_from(to + head, from + head, whole);
	bytes_from(to + head + whole, from + head + whole, size - head - whole);
}

void reef_copy_to_shared_any(void *shared, const void *private, size_t size)
{
	size_t head = head_of(shared, size), whole = (size - head) & ~7ull;
	const uint8_t *from = private;
	uint8_t *to = shared;

	bytes_to(to, from, head);
	words_to(to + head, from + head, whole);
	bytes_to(to + head + whole, from + head + whole, size - head - whole);
}
