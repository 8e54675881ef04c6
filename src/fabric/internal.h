/* internal.h - between fabric.c, queue.c and layer.c; providers do not need it.
 *
 * Thread: owner of the queue. */
#ifndef REEF_FABRIC_INTERNAL_H
#define REEF_FABRIC_INTERNAL_H

#include "fabric/provider.h"

/* Fill in the members of a layer's ops that are absent. */
void reef_layer_fill(struct reef_layer *layer);

/* True in a forked child of the process that opened the fabric. */
static inline bool reef_is_forked(const struct reef_fabric *fabric)
{
	return fabric->fork_generation != reef_fork_generation();
}

/* Wait until something happened, but a millisecond at most, for what a provider
 * cannot announce.  -ETIMEDOUT: until_ns has passed. */
int reef_wait_a_little(struct reef_queue *queue, uint64_t until_ns);

/* A caller that goes on with a link after a poll, which may have ended it. */
struct reef_user {
	struct reef_link *link; /* NULL: gone */
	struct reef_user *next;
};
void reef_user_begin(struct reef_queue *queue, struct reef_user *user,
		     struct reef_link *link);
void reef_user_end(struct reef_queue *queue, struct reef_user *user);

#endif
