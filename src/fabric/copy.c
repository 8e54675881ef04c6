/* copy.c - the copies of copy.h that are not worth inlining. */
#include "fabric/copy.h"

#include <string.h>

/* Bytes of a word that is only partly in the range. */
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

/* From here on the string instruction wins, where it may be used: with either
 * side unaligned the processor is free to cut words in two. */
#define STRING_MIN 4096

static void string_move(void *to, const void *from, size_t size)
{
	size_t words = size / 8;

	__asm__ volatile("rep movsq"
			 : "+D"(to), "+S"(from), "+c"(words)
			 :
			 : "memory");
}

typedef long long wide __attribute__((vector_size(32), aligned(8), may_alias));
typedef long long private_wide
	__attribute__((vector_size(32), aligned(1), may_alias));

__attribute__((target("avx2"))) static void wide_from(uint8_t *private,
						      const uint8_t *shared,
						      size_t size)
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
	for (; size >= 32; size -= 32, shared += 32, private += 32)
		*(private_wide *)private = *(const volatile wide *)shared;
	reef_copy_words_from(private, shared, size);
}

__attribute__((target("avx2"))) static void wide_to(uint8_t *shared,
						    const uint8_t *private,
						    size_t size)
{
	for (; size >= 128; size -= 128, shared += 128, private += 128) {
		const private_wide *from = (const void *)private;
		volatile wide *to = (void *)shared;
		wide a = from[0], b = from[1], c = from[2], d = from[3];

		to[0] = a;
		to[1] = b;
		to[2] = c;
		to[3] = d;
	}
	for (; size >= 32; size -= 32, shared += 32, private += 32)
		*(volatile wide *)shared = *(const private_wide *)private;
	reef_copy_words_to(shared, private, size);
}

static void words_from(uint8_t *private, const uint8_t *shared, size_t size)
{
	if (size >= STRING_MIN && !((uintptr_t) private & 7))
		string_move(private, shared, size);
	else if (__builtin_cpu_supports("avx2"))
		wide_from(private, shared, size);
	else
		reef_copy_words_from(private, shared, size);
}

static void words_to(uint8_t *shared, const uint8_t *private, size_t size)
{
	if (size >= STRING_MIN && !((uintptr_t) private & 7))
		string_move(shared, private, size);
	else if (__builtin_cpu_supports("avx2"))
		wide_to(shared, private, size);
	else
		reef_copy_words_to(shared, private, size);
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
