/* fifo.h - bytes on their way in or out of a socket: [start, end) of them.
 *
 * Thread: owner. */
#ifndef REEF_FABRIC_FIFO_H
#define REEF_FABRIC_FIFO_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct reef_fifo {
	uint8_t *bytes;
	size_t size, start, end;
};

#define REEF_FIFO_FIRST 4096

static inline size_t reef_fifo_used(const struct reef_fifo *buffer)
{
	return buffer->end - buffer->start;
}

/* The first of its bytes; NULL: it never had any. */
static inline uint8_t *reef_fifo_head(const struct reef_fifo *buffer)
{
	return buffer->bytes ? buffer->bytes + buffer->start : NULL;
}

static inline void reef_fifo_swap(struct reef_fifo *a, struct reef_fifo *b)
{
	struct reef_fifo c = *a;

	*a = *b;
	*b = c;
}

static inline void reef_fifo_take(struct reef_fifo *buffer, size_t size)
{
	buffer->start += size;
	if (buffer->start == buffer->end)
		buffer->start = buffer->end = 0;
}

/* Make room for `more` bytes after end. max: what may be in it altogether, and
 * how large it grows. -ENOBUFS: more than that.  -ENOMEM. */
static inline int reef_fifo_reserve(struct reef_fifo *buffer, size_t more,
				    size_t max)
{
	size_t used = reef_fifo_used(buffer), size = buffer->size;
	uint8_t *bytes;

	if (buffer->size - buffer->end >= more && used + more <= max)
		return 0;
	if (more > max || used > max - more)
		return -ENOBUFS;
	if (buffer->start) {
		memmove(buffer->bytes, buffer->bytes + buffer->start, used);
		buffer->start = 0;
		buffer->end = used;
	}
	if (size - used >= more)
		return 0;
	if (!size)
		size = REEF_FIFO_FIRST;
	while (size - used < more)
		size *= 2;
	if (size > max)
		size = max;
	bytes = realloc(buffer->bytes, size);
	if (!bytes)
		return -ENOMEM;
	buffer->bytes = bytes;
	buffer->size = size;
	return 0;
}

/* Give memory back once a burst is over. */
static inline void reef_fifo_trim(struct reef_fifo *buffer, size_t keep)
{
	if (buffer->start == buffer->end && buffer->size > keep) {
		free(buffer->bytes);
		*buffer = (struct reef_fifo){0};
	}
}

#endif
