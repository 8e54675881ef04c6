/* queue_pair.h - the payloads of the frames that only verbs sends.
 *
 *   connector                      acceptor
 *     QUEUE_PAIR             -->     makes its queue pair, ready to receive
 *            <--  QUEUE_PAIR
 *     CREDIT 0               -->     knows that the connector is ready too
 *     ... CREDIT n ...       <->     n more messages may be sent
 *
 * Thread: any. */
#ifndef REEF_WIRE_QUEUE_PAIR_H
#define REEF_WIRE_QUEUE_PAIR_H

#include "wire/frame.h"

struct reef_wire_queue_pair {
	uint32_t number; /* 24 bits, not 0 */
	uint32_t packet; /* first packet's sequence number, 24 bits */
	uint8_t gid[16];
	uint16_t lid;
	uint8_t mtu;	    /* as in verbs: 1 (256 bytes) to 5 (4,096) */
	uint8_t ethernet;   /* 1: reached by gid; 0: InfiniBand, by lid */
	uint16_t initiates; /* READs and atomics under way at once; not 0 */
	uint16_t serves;    /* and served at once; not 0 */
	uint32_t receives;  /* receives posted: the first credits; not 0 */
	uint32_t fragment;  /* bytes that fit in each; not 0 */
};
static_assert(sizeof(struct reef_wire_queue_pair) == 40, "wire layout");
static_assert(offsetof(struct reef_wire_queue_pair, fragment) == 36,
	      "wire layout");

struct reef_wire_credit {
	uint32_t count;
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct reef_wire_credit) == 8, "wire layout");

#define REEF_WIRE_QUEUE_PAIR_SIZE 40
#define REEF_WIRE_CREDIT_SIZE 8

void reef_wire_queue_pair_encode(const struct reef_wire_queue_pair *pair,
				 uint8_t bytes[REEF_WIRE_QUEUE_PAIR_SIZE]);
void reef_wire_credit_encode(uint32_t count,
			     uint8_t bytes[REEF_WIRE_CREDIT_SIZE]);

/* Both: -REEF_EPROTO if anything in it is not as said above. */
int reef_wire_queue_pair_decode(const uint8_t *bytes, size_t size,
				struct reef_wire_queue_pair *out);
int reef_wire_credit_decode(const uint8_t *bytes, size_t size, uint32_t *count);

/* What a SEND carries as immediate data, in host order: whether the message
 * goes on in the next one, and credits, so that who answers needs no CREDIT. */
#define REEF_WIRE_MORE (1u << 31)
#define REEF_WIRE_CREDITS_MASK 0xffffu

#endif
