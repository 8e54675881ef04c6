/* copy.h - copies that keep the words of shared memory whole (F2).
 *
 * (1) Every aligned 8-byte word that lies wholly inside the shared range is
 *     loaded, or stored, once and by one instruction. The other side of the
 *     copy is private and may have any alignment.
 * (2) Not a byte outside the range is touched.
 * (3) The order among words is free. No barrier: that is the caller's (F4).
 * (4) As fast as memcpy: vector moves, which the processor does by whole
 *     aligned words. memcpy itself will not do: it overlaps its moves, which
 *     stores words twice, and shifts them against the words' alignment.
 *
 * Under the thread sanitizer, and on processors other than x86-64, a loop over
 * relaxed atomic words.
 *
 * Thread: any. */
#ifndef REEF_FABRIC_COPY_H
#define REEF_FABRIC_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define REEF_COPY_LOOP 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define REEF_COPY_LOOP 1
#endif
#endif
#ifndef __x86_64__
#define REEF_COPY_LOOP 1
#endif

/* Copy any size, at any alignment. */
void reef_copy_from_shared_any(void *private, const void *shared, size_t size);
void reef_copy_to_shared_any(void *shared, const void *private, size_t size);

/* The longest copy that is inlined, in bytes. */
#define REEF_COPY_INLINE 128

/* True if a copy of so many bytes at this address is inlined. */
static inline bool reef_copy_is_short(const void *shared, size_t size)
{
	return !(((uintptr_t)shared | size) & 7) && size <= REEF_COPY_INLINE;
}

#ifndef REEF_COPY_LOOP

/* The shared side is accessed as volatile, so that the compiler does not merge,
 * split or repeat loads and stores. */
typedef long long reef_copy_vector
	__attribute__((vector_size(16), aligned(8), may_alias));
typedef long long reef_copy_private_vector
	__attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t reef_copy_word __attribute__((may_alias));
typedef uint64_t reef_copy_private_word __attribute__((aligned(1), may_alias));

/* Copy whole words: size is a multiple of 8, and shared is aligned to 8. */
static inline void reef_copy_words_from(uint8_t *private, const uint8_t *shared,
					size_t size)
{
	for (; size >= 64; size -= 64, shared += 64, private += 64) {
		const volatile reef_copy_vector *from = (const void *)shared;
		reef_copy_private_vector *to = (void *)private;
		reef_copy_vector a = from[0], b = from[1], c = from[2],
				 d = from[3];

		to[0] = a;
		to[1] = b;
		to[2] = c;
		to[3] = d;
	}
	for (; size >= 16; size -= 16, shared += 16, private += 16)
		*(reef_copy_private_vector *)private =
			*(const volatile reef_copy_vector *)shared;
	if (size)
		*(reef_copy_private_word *)private =
			*(const volatile reef_copy_word *)shared;
}

static inline void reef_copy_words_to(uint8_t *shared, const uint8_t *private,
				      size_t size)
{
	for (; size >= 64; size -= 64, shared += 64, private += 64) {
		const reef_copy_private_vector *from = (const void *)private;
		volatile reef_copy_vector *to = (void *)shared;
		reef_copy_vector a = from[0], b = from[1], c = from[2],
				 d = from[3];

		to[0] = a;
		to[1] = b;
		to[2] = c;
		to[3] = d;
	}
	for (; size >= 16; size -= 16, shared += 16, private += 16)
		*(volatile reef_copy_vector *)shared =
			*(const reef_copy_private_vector *)private;
	if (size)
		*(volatile reef_copy_word *)shared =
			*(const reef_copy_private_word *)private;
}

static inline void reef_copy_from_shared(void *private, const void *shared,
					 size_t size)
{
	if (reef_copy_is_short(shared, size))
		reef_copy_words_from(private, shared, size);
	else
		reef_copy_from_shared_any(private, shared, size);
}

static inline void reef_copy_to_shared(void *shared, const void *private,
				       size_t size)
{
	if (reef_copy_is_short(shared, size))
		reef_copy_words_to(shared, private, size);
	else
		reef_copy_to_shared_any(shared, private, size);
}

#else

static inline void reef_copy_words_from(uint8_t *private, const uint8_t *shared,
					size_t size)
{
	reef_copy_from_shared_any(private, shared, size);
}

static inline void reef_copy_words_to(uint8_t *shared, const uint8_t *private,
				      size_t size)
{
	reef_copy_to_shared_any(shared, private, size);
}

static inline void reef_copy_from_shared(void *private, const void *shared,
					 size_t size)
{
	reef_copy_from_shared_any(private, shared, size);
}

static inline void reef_copy_to_shared(void *shared, const void *private,
				       size_t size)
{
	reef_copy_to_shared_any(shared, private, size);
}

#endif
#endif
