/* batch.h - operations over tcp.
 *
 *   BATCH       head, count ops, then what they send, in their order:
 *               WRITE, SEND: `length` bytes; CAS: new value, compare; FAA: what
 *               to add; READ, FLUSH: nothing
 *   BATCH_PART  some of what they bring, in their order: READ: `length` bytes;
 *               CAS, FAA: the value before; the others: nothing
 *   BATCH_DONE  the rest of what they bring, then the done tail: a target can
 *               send results before it knows how the batch will end
 *
 * (1) The length of a BATCH is exactly what its ops say.
 * (2) What is brought, over all PARTs and the DONE, is exactly that of the
 *     first `done` ops; so failure needs no padding, and a long READ no buffer.
 * (3) Answers come in the order of the BATCHes.
 *
 * Only the connecting side sends BATCHes. In the other direction a SEND is a
 * MESSAGE frame, and has no answer.
 *
 * Thread: any. */
#ifndef REEF_WIRE_BATCH_H
#define REEF_WIRE_BATCH_H

#include "wire/frame.h"

struct reef_wire_batch {
	uint32_t count;	   /* not 0 */
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct reef_wire_batch) == 8, "wire layout");

struct reef_wire_op {
	uint8_t kind;	   /* enum reef_op_kind */
	uint8_t flags;	   /* REEF_ORDERED; the target keeps order anyway */
	uint16_t reserved; /* 0 */
	uint32_t length;   /* CAS, FAA: 8 */
	uint64_t key;	   /* SEND: 0 */
	uint64_t offset;   /* CAS, FAA: of 8; SEND: 0 */
};
static_assert(sizeof(struct reef_wire_op) == 24, "wire layout");

struct reef_wire_done {
	uint32_t done;	/* operations that succeeded */
	int32_t status; /* 0: all; else of operation number `done` */
};
static_assert(sizeof(struct reef_wire_done) == 8, "wire layout");

#define REEF_WIRE_BATCH_SIZE 8
#define REEF_WIRE_OP_SIZE 24
#define REEF_WIRE_DONE_SIZE 8

/* What a BATCH may not exceed, header apart: a bound for mistakes. */
#define REEF_WIRE_BATCH_MAX (1u << 30)
/* The payload of a BATCH_PART or a BATCH_DONE. */
#define REEF_WIRE_PART_MAX (128u << 10)

/* The limits that one side sets the other. */
struct reef_wire_batch_limits {
	uint32_t ops_max, length_max, message_max;
};

void reef_wire_batch_encode(uint32_t count,
			    uint8_t bytes[REEF_WIRE_BATCH_SIZE]);
void reef_wire_op_encode(const struct reef_wire_op *op,
			 uint8_t bytes[REEF_WIRE_OP_SIZE]);
void reef_wire_done_encode(const struct reef_wire_done *done,
			   uint8_t bytes[REEF_WIRE_DONE_SIZE]);

/* How many bytes an op sends after the table. */
uint32_t reef_wire_op_sends(const struct reef_wire_op *op);

/* How many bytes of a BATCH come before what its ops send; available: those
 * that are there already, `length` of the frame's header.
 * -EAGAIN: more bytes are needed to say.  -REEF_EPROTO. */
int reef_wire_batch_head(const uint8_t *bytes, size_t available,
			 uint32_t length,
			 const struct reef_wire_batch_limits *limits,
			 uint32_t *count, uint32_t *head_size);

/* Decode the table of `count` ops, whose frame has `length` bytes after its
 * header. -REEF_EPROTO: anything of it is wrong; out may be half written. */
int reef_wire_ops_decode(const uint8_t *bytes, uint32_t count, uint32_t length,
			 const struct reef_wire_batch_limits *limits,
			 struct reef_wire_op *out);

/* -REEF_EPROTO: does not fit a batch of `count`. */
int reef_wire_done_decode(const uint8_t bytes[REEF_WIRE_DONE_SIZE],
			  uint32_t count, struct reef_wire_done *out);

#endif
