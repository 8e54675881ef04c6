/* cursor.h - writing and checked reading of little-endian fields in a row.
 *
 * A failure sticks: look once, at the end. Reading past the end gives zeros.
 *
 * Thread: owner. */
#ifndef REEF_WIRE_CURSOR_H
#define REEF_WIRE_CURSOR_H

#include "wire/bytes.h"

#include <stdlib.h>

/* A text without a terminating zero. */
struct reef_text {
	const char *bytes;
	uint16_t size;
};

/* The text of a terminated one, which is shorter than 64 KiB. */
static inline struct reef_text reef_text_of(const char *text)
{
	return (struct reef_text){text, (uint16_t)strlen(text)};
}

static inline bool reef_text_is(struct reef_text text, const char *other)
{
	return text.size == strlen(other) &&
	       memcmp(text.bytes, other, text.size) == 0;
}

/* Grows on the heap; whoever made it frees bytes. */
struct reef_cursor_out {
	uint8_t *bytes;
	size_t size, room;
	bool failed; /* no memory */
};

struct reef_cursor_in {
	const uint8_t *bytes;
	size_t left;
	bool failed; /* too short */
};

static inline void reef_cursor_bytes(struct reef_cursor_out *out,
				     const void *bytes, size_t size)
{
	size_t room = out->room ? out->room : 256;
	uint8_t *grown;

	while (room < out->size + size)
		room *= 2;
	if (room != out->room && !out->failed) {
		grown = realloc(out->bytes, room);
		if (grown) {
			out->bytes = grown;
			out->room = room;
		} else {
			out->failed = true;
		}
	}
	if (out->failed || size == 0)
		return;
	memcpy(out->bytes + out->size, bytes, size);
	out->size += size;
}

/* Append the low `width` bytes of value. */
static inline void reef_cursor_put(struct reef_cursor_out *out, unsigned width,
				   uint64_t value)
{
	uint8_t bytes[8];

	reef_put64(bytes, value);
	reef_cursor_bytes(out, bytes, width);
}

/* The next `size` bytes, borrowed from the input. NULL and failed: it is too
 * short. */
static inline const uint8_t *reef_cursor_take(struct reef_cursor_in *in,
					      size_t size)
{
	const uint8_t *bytes = in->bytes;

	if (in->failed || size > in->left) {
		in->failed = true;
		return NULL;
	}
	in->bytes += size;
	in->left -= size;
	return bytes;
}

/* The next number of `width` bytes; 0 past the end. */
static inline uint64_t reef_cursor_get(struct reef_cursor_in *in,
				       unsigned width)
{
	const uint8_t *from = reef_cursor_take(in, width);
	uint8_t bytes[8] = {0};

	if (from)
		memcpy(bytes, from, width);
	return reef_get64(bytes);
}

#endif
