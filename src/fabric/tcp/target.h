/* target.h - execute the batches of one link: bytes in, bytes out.
 *
 * (1) Everything in a BATCH frame is checked: what no good peer could have sent
 *     is -REEF_EPROTO and nothing of that batch happens; a key or a range that
 *     is wrong here and now is that operation's status and ends the batch.
 * (2) Operations take effect strictly in order, so REEF_ORDERED costs nothing.
 * (3) Aligned words of the memory are moved whole (F2), however the bytes were
 *     cut into pieces on their way: a piece that ends inside a word waits for
 *     the rest of it. Therefore nothing is sent from, or received into, exposed
 *     memory directly: the kernel cuts at segments and at pages' ends, whose
 *     bytes follow no word (measured: sending memory that a thread kept
 *     rewriting tore 12 of 52 million words).
 * (4) A batch that wrote ends with a full barrier before its answer exists, and
 *     has one between a WRITE and a later READ (F4).
 * (5) Memory is bounded by the limits, not by what a peer asks for: a long READ
 *     is answered in parts, and nothing is done whose answer has to wait behind
 *     answers_max others.
 * (6) A batch whose bytes do not come keeps no memory: what is withdrawn is let
 *     go of at any time (tcp_target_let_go), but for a READ whose answer has
 *     begun.
 *
 * It knows neither sockets nor links, so that it can be tested, and fuzzed,
 * with bytes alone.
 *
 * Thread: locked by the link's receive lock. */
#ifndef REEF_FABRIC_TCP_TARGET_H
#define REEF_FABRIC_TCP_TARGET_H

#include "fabric/fifo.h"
#include "fabric/tcp/regions.h"
#include "wire/batch.h"

struct tcp_target {
	/* Set by the owner, and constant: */
	struct tcp_regions *regions;
	struct reef_wire_batch_limits limits;
	/* Deliver a message.  -ENOSPC: not now. */
	int (*message)(void *context, const uint8_t *bytes, uint32_t length);
	void *context;
	/* Set by the owner, at any time: more bytes of answers than that wait
	 * for the socket first. */
	size_t answers_max;

	/* Answers, whole frames; the owner takes them from here. */
	struct reef_fifo reply;

	/* The target's: */
	bool active, decoded;
	bool wrote; /* since the last barrier */
	uint64_t tag;
	uint32_t left;	       /* of the frame's bytes, not yet consumed */
	uint32_t count, index; /* operations; the current one */
	uint32_t moved;	       /* bytes of the current one */
	int status;	       /* of operation `index`, once it failed */
	size_t part; /* where in reply its present frame begins, from start */
	bool part_open;
	struct tcp_region *region; /* taken: that of the last operation */
	struct reef_wire_op *ops;
	uint32_t ops_size;
};

void tcp_target_fini(struct tcp_target *target);

/* A BATCH frame begins, of `length` bytes after its header. The one before it
 * must have ended.  -REEF_EPROTO. */
int tcp_target_begin(struct tcp_target *target, uint64_t tag, uint32_t length);

/* Go on, with the bytes of that frame that are there. *used: how many of them
 * are done with; the others must be given again, in front of what follows.
 * 0: executed, its answer is complete in reply.
 * -EAGAIN: more bytes are needed (more than the message or the table of ops
 *  that is the longest never are).
 * -ENOBUFS: reply has to be sent first.
 * -ENOSPC: an inbox is full.
 * -REEF_EPROTO, -ENOMEM: the link has to end. */
int tcp_target_feed(struct tcp_target *target, const uint8_t *bytes,
		    size_t size, size_t *used);

/* Let go of a region that is withdrawn, if the batch under way has it: a WRITE
 * that has begun ends with -REEF_EKEY. False: a READ whose answer has begun
 * keeps it. */
bool tcp_target_let_go(struct tcp_target *target,
		       const struct tcp_region *region);

#endif
