/* glob.h - the patterns of KEYS, SCAN, CONFIG GET and COMMAND LIST.
 *
 * (1) `*` any bytes, `?` one byte, `[abc]`, `[^a-z]` one byte of a set, `\x`
 *     the byte x itself; everything else stands for itself.
 * (2) Odd patterns mean what they mean to Redis: a set that nobody closes ends
 *     with the pattern, a range may stand backwards, its bounds are compared as
 *     signed bytes, and an empty text is matched by the empty pattern alone.
 * (3) No pattern takes longer than its length times the text's. That may be
 *     long; so a pace can be given, which is called every GLOB_PACE steps.
 *
 * Thread: any. */
#ifndef REEF_GATEWAY_REDIS_PROTOCOL_GLOB_H
#define REEF_GATEWAY_REDIS_PROTOCOL_GLOB_H

#include <stdbool.h>
#include <stddef.h>

#define GLOB_PACE 16384u

/* Whether the pattern matches the whole text. either_case: letters match
 * whether they are small or capital. */
bool redis_glob(const char *pattern, size_t pattern_size, const char *text,
		size_t text_size, bool either_case);

/* The same at a pace; false, too, when it says false. The pattern and the text
 * are to stay where they are. */
bool redis_glob_at_pace(const char *pattern, size_t pattern_size,
			const char *text, size_t text_size,
			bool (*pace)(void *context), void *context);

/* Whether it matches every text, the empty one too (that is, it is `*`). */
bool redis_glob_is_all(const char *pattern, size_t pattern_size);

#endif
