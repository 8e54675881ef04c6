/* spare.h - buffers that a thread keeps for its clients.
 *
 * Nearly every request is read, answered and forgotten in one go: for those
 * there is one buffer to read into and one to answer from, lent to whichever
 * client is at work. Only what remains of a request or an answer afterwards
 * costs its client a buffer of its own. Large ones are kept for the next who
 * needs one, since fresh pages cost as much as the copy into them.
 *
 * (1) Buffers are malloc's: whoever takes one may free() it instead.
 * (2) No more than `kept_max` bytes are kept.
 *
 * Thread: owner. */
#ifndef REEF_GATEWAY_REDIS_PROTOCOL_SPARE_H
#define REEF_GATEWAY_REDIS_PROTOCOL_SPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REDIS_LENT_SIZE 65536u
#define REDIS_SPARES 16

struct redis_spare {
	char *in, *out; /* to be lent, REDIS_LENT_SIZE each */
	bool is_in_lent, is_out_lent;
	uint32_t count;
	size_t kept, kept_max; /* bytes */
	size_t freed;	       /* bytes, ever since the owner set it to 0 */
	struct {
		void *bytes;
		size_t size;
	} buffers[REDIS_SPARES]; /* the oldest first */
};

/* -ENOMEM. */
int redis_spare_init(struct redis_spare *spare, size_t kept_max);
void redis_spare_fini(struct redis_spare *spare);

/* Take a buffer of at least `size` bytes, a kept one or else from malloc (spare
 * may be NULL); *room: how large it is. NULL: no memory. */
void *redis_spare_take(struct redis_spare *spare, size_t size, size_t *room);
/* As take, but never from malloc; NULL: no kept buffer fits. */
void *redis_spare_reuse(struct redis_spare *spare, size_t size, size_t *room);
/* Give a buffer of that size back, to be kept or freed. NULL is fine. */
void redis_spare_give(struct redis_spare *spare, void *bytes, size_t room);

#endif
