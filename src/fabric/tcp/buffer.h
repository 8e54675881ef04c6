/* buffer.h - bytes on their way in or out of a socket: [start, end) of them.
 *
 * Thread: owner. */
#ifndef REEF_FABRIC_TCP_BUFFER_H
#define REEF_FABRIC_TCP_BUFFER_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct tcp_buffer {
	uint8_t *bytes;
	size_t size, start, end;
};

#define TCP_BUFFER_FIRST 4096

static inline size_t tcp_buffer_used(const struct tcp_buffer *buffer)
{
	return buffer->end - buffer->start;
}

static inline void tcp_buffer_swap(struct tcp_buffer *a, struct tcp_buffer *b)
{
	struct tcp_buffer c = *a;

	*a = *b;
	*b = c;
}

static inline void tcp_buffer_take(struct tcp_buffer *buffer, size_t size)
{
	buffer->start += size;
	if (buffer->start == buffer->end)
		buffer->start = buffer->end = 0;
}

/* Make room for `more` bytes after end. max: what may be in it altogether.
 * -ENOBUFS: more than that.  -ENOMEM. */
static inline int tcp_buffer_reserve(struct tcp_buffer *buffer, size_t more,
				     size_t max)
{
	size_t used = tcp_buffer_used(buffer), size = buffer->size;
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
		size = TCP_BUFFER_FIRST;
	while (size - used < more)
		size *= 2;
	bytes = realloc(buffer->bytes, size);
	if (!bytes)
		return -ENOMEM;
	buffer->bytes = bytes;
	buffer->size = size;
	return 0;
}

/* Give memory back once a burst is over. */
static inline void tcp_buffer_trim(struct tcp_buffer *buffer, size_t keep)
{
	if (buffer->start == buffer->end && buffer->size > keep) {
		free(buffer->bytes);
		*buffer = (struct tcp_buffer){0};
	}
}

#endif
