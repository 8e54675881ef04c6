/* key.h - keys whose bytes are in the order of what they stand for.
 *
 * Keys are byte strings, compared byte by byte (memcmp; of two that are alike
 * as far as the shorter goes, the shorter comes first). These functions write
 * numbers and byte strings so that this order is theirs.
 *
 * (1) a < b exactly if key(a) comes before key(b); a == b exactly if the bytes
 *     are the same.
 * (2) No key of a kind is the beginning of another of that kind. So keys that
 *     are written one after the other are in the order of tuples: by the first
 *     part, then by the second, and so on, if the parts are of the same kinds
 *     in the same order. Nothing tells the kinds: whoever reads a key knows
 *     them.
 * (3) What is read was written by this library, or it is refused: reading and
 *     writing again gives the same bytes.
 *
 * Each function returns how many bytes of the key it has written or read.
 * Where `to` is NULL nothing is written, and the number is the same.
 *
 *	char key[REEF_KEY_BYTES_MAX(sizeof(name)) + REEF_KEY_U64];
 *	size_t size = reef_key_bytes(key, name, name_size);
 *
 *	size += reef_key_u64(key + size, number);
 *
 * Thread: any. */
#ifndef REEF_KEY_H
#define REEF_KEY_H

#include <reef/error.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REEF_KEY_U64 8u /* bytes of a key of that kind */
#define REEF_KEY_I64 8u
#define REEF_KEY_DOUBLE 8u
/* The most that a string of `size` bytes takes: each zero takes two. */
#define REEF_KEY_BYTES_MAX(size) (2 * (size_t)(size) + 2)

REEF_API size_t reef_key_u64(void *to, uint64_t value);
REEF_API size_t reef_key_i64(void *to, int64_t value);
/* In the order of numbers, from -infinity to infinity; -0.0 is 0.0, which it
 * equals. Every NaN is the same key, after infinity. */
REEF_API size_t reef_key_double(void *to, double value);
/* Any bytes, zeros too; size 0: `bytes` may be NULL. */
REEF_API size_t reef_key_bytes(void *to, const void *bytes, size_t size);

/* Read what is at the beginning of `size` bytes of a key. *out is the caller's.
 * -EINVAL: it is not there: too few bytes, or not as they are written. */
REEF_API ssize_t reef_key_read_u64(const void *key, size_t size, uint64_t *out);
REEF_API ssize_t reef_key_read_i64(const void *key, size_t size, int64_t *out);
REEF_API ssize_t reef_key_read_double(const void *key, size_t size,
				      double *out);
/* Read bytes into `to`, which has `room` bytes, and tell in *length how many
 * they are; never more than `size`. to NULL: only tell.
 * -EINVAL: as above.  -ERANGE: they are more than `room`; what is in `to` then
 * is not said. */
REEF_API ssize_t reef_key_read_bytes(const void *key, size_t size, void *to,
				     size_t room, size_t *length);

#ifdef __cplusplus
}
#endif
#endif
