/* cost.h - what a NIC costs, in virtual time.
 *
 * Over sim in calm mode, which takes no time at all, this hook makes every
 * batch take as long as NICs would, so that scale is seen without hardware: the
 * shapes are those of published measurements, the numbers are set by options.
 * Each fabric it is pushed on is a host's NIC; a model holds all of them.
 *
 * A batch, from post to completion:
 *
 *   doorbell of its queue      one at a time per queue; slower if threads
 *        |                     share the queue and its lock goes around
 *   initiator's engine         a message each `out`; context of the connection
 *        |  + port             must be in the NIC's cache; bytes at line rate
 *        |  half a round trip
 *   target's port + engine     a message each `in`; context; translations of
 *        |                     the pages touched; atomics on one word queue up
 *      EFFECT                  the batch is posted to the layer below, which
 *        |                     does it at once
 *   target's port              what READs bring back (datagrams: an answer)
 *        |  half a round trip
 *   initiator's port, done
 *
 * (1) Each resource serves one at a time, in the order of arrival, in virtual
 *     time; whatever waits for it waits its turn.
 * (2) A segment (up to the next operation that has to wait, see count.h) takes
 *     effect at one instant: when its last operation reached the memory. Each
 *     further segment goes through all this again, but for the doorbell.
 * (3) What the NIC does is untouched: results, failures, order within a batch
 *     are those of the layer below.
 * (4) The model has no randomness: the same posts give the same times.
 *
 * Not modelled: the translation of local buffers, registration, acknowledgments
 * as messages, switches.
 *
 * Thread: owner, the simulation's. */
#ifndef REEF_FABRIC_HOOK_COST_H
#define REEF_FABRIC_HOOK_COST_H

#include "fabric/fabric.h"

struct reef_cost_model;

enum reef_cost_transport {
	/* A context at both ends for every link. */
	REEF_COST_CONNECTED,
	/* There are no contexts; but every request is answered by another
	 * message, which costs the target an `out` and the initiator an `in`.
	 */
	REEF_COST_DATAGRAM,
};

/* Zero means the default. Times in picoseconds where nanoseconds are too
 * coarse. */
struct reef_cost_options {
	enum reef_cost_transport transport;
	uint64_t round_trip_ns;	   /* unloaded, of a small message; 2,000 */
	uint64_t out_ps;	   /* engine, per message sent; 9,000 */
	uint64_t in_ps;		   /* engine, per message received; 3,000 */
	uint64_t byte_ps;	   /* port, each way; 80: 100 Gbit/s */
	uint32_t header_size;	   /* bytes on the wire per message; 60 */
	uint64_t atomic_ps;	   /* until the same word is free; 300,000 */
	uint64_t atomic_in_ps;	   /* engine, on top of in_ps; 12,000 */
	uint32_t atomic_units;	   /* words share these by hash; 4,096 */
	uint32_t cache_size;	   /* bytes in the NIC; 2 MiB */
	uint32_t context_size;	   /* of a connection in it; 512 */
	uint32_t translation_size; /* of a page in it; 32 */
	uint32_t page_size;	   /* of lent memory; 4,096. Huge: 2 MiB */
	uint64_t fetch_ns;	   /* a miss, in latency; 600 */
	uint64_t fetch_ps;	   /* a miss, on the engine; 40,000 */
	uint64_t doorbell_ps;	   /* per batch and queue; 50,000 */
	uint64_t lock_ps;   /* per batch, of a queue others post in; 30,000 */
	uint64_t waiter_ps; /* per batch and thread waiting for it; 2,000 */
};

/* Make a model without NICs; options may be NULL. It must outlive the fabrics
 * it is pushed on. Caller owns *out.  -EINVAL: page_size or atomic_units is not
 * a power of two, or the cache holds nothing.  -ENOMEM. */
int reef_cost_model_create(const struct reef_cost_options *options,
			   struct reef_cost_model **out);
void reef_cost_model_destroy(struct reef_cost_model *model); /* NULL is fine */

/* The options in force. */
const struct reef_cost_options *
reef_cost_model_options(const struct reef_cost_model *model);

/* Put a NIC of this model under a fabric; before its first queue. The queues
 * must have a scheduler. name: of the NIC, copied; the same name is the same
 * NIC.  -ENOMEM. */
int reef_cost_push(struct reef_fabric *fabric, struct reef_cost_model *model,
		   const char *name);

/* From now on, `threads` threads post in this queue and take turns (1: its
 * owner alone, the default). The caller simulates them by fibers. */
void reef_cost_queue_share(struct reef_cost_model *model,
			   const struct reef_queue *queue, uint32_t threads);

struct reef_cost_stats {
	uint64_t sent, received; /* messages */
	uint64_t bytes_out, bytes_in;
	uint64_t hits, misses; /* of the cache */
	uint64_t busy_ns;      /* the engine */
};

/* What a NIC did so far.  -ENOENT: no such NIC. */
int reef_cost_stats(const struct reef_cost_model *model, const char *name,
		    struct reef_cost_stats *out);

#endif
