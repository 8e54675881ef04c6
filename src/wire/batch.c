/* batch.c - the operations of tcp, to bytes and back. */
#include "wire/batch.h"
#include "wire/bytes.h"
#include "wire/control.h"

#include <errno.h>
#include <reef/error.h>

/* The values of enum reef_op_kind, which src/wire may not see; tests compare
 * the two. */
enum { READ = 1, WRITE, CAS, FAA, FLUSH, SEND };
#define ORDERED 1u

void reef_wire_batch_encode(uint32_t count, uint8_t bytes[REEF_WIRE_BATCH_SIZE])
{
	reef_put32(bytes, count);
	reef_put32(bytes + 4, 0);
}

void reef_wire_op_encode(const struct reef_wire_op *op,
			 uint8_t bytes[REEF_WIRE_OP_SIZE])
{
	bytes[0] = op->kind;
	bytes[1] = op->flags;
	reef_put16(bytes + 2, 0);
	reef_put32(bytes + 4, op->length);
	reef_put64(bytes + 8, op->key);
	reef_put64(bytes + 16, op->offset);
}

void reef_wire_done_encode(const struct reef_wire_done *done,
			   uint8_t bytes[REEF_WIRE_DONE_SIZE])
{
	reef_put32(bytes, done->done);
	reef_put32(bytes + 4, (uint32_t)done->status);
}

uint32_t reef_wire_op_sends(const struct reef_wire_op *op)
{
	switch (op->kind) {
	case WRITE:
	case SEND:
		return op->length;
	case CAS:
		return 16;
	case FAA:
		return 8;
	default:
		return 0;
	}
}

int reef_wire_batch_head(const uint8_t *bytes, size_t available,
			 uint32_t length,
			 const struct reef_wire_batch_limits *limits,
			 uint32_t *count, uint32_t *head_size)
{
	uint32_t ops, size;

	if (length < REEF_WIRE_BATCH_SIZE + REEF_WIRE_OP_SIZE ||
	    length > REEF_WIRE_BATCH_MAX)
		return -REEF_EPROTO;
	if (available < REEF_WIRE_BATCH_SIZE)
		return -EAGAIN;
	ops = reef_get32(bytes);
	if (ops == 0 || ops > limits->ops_max || reef_get32(bytes + 4) != 0 ||
	    ops > (length - REEF_WIRE_BATCH_SIZE) / REEF_WIRE_OP_SIZE)
		return -REEF_EPROTO;
	size = REEF_WIRE_BATCH_SIZE + ops * REEF_WIRE_OP_SIZE;
	if (available < size)
		return -EAGAIN;
	*count = ops;
	*head_size = size;
	return 0;
}

static bool is_op_valid(const struct reef_wire_op *op,
			const struct reef_wire_batch_limits *limits)
{
	if (op->flags & ~ORDERED)
		return false;
	if (op->kind == SEND)
		return op->key == 0 && op->offset == 0 &&
		       op->length <= limits->message_max;
	if (op->key == 0)
		return false;
	switch (op->kind) {
	case READ:
	case WRITE:
	case FLUSH:
		return op->length <= limits->length_max;
	case CAS:
	case FAA:
		return op->length == 8 && op->offset % 8 == 0;
	default:
		return false;
	}
}

int reef_wire_ops_decode(const uint8_t *bytes, uint32_t count, uint32_t length,
			 const struct reef_wire_batch_limits *limits,
			 struct reef_wire_op *out)
{
	uint64_t left = length;

	left -= REEF_WIRE_BATCH_SIZE + (uint64_t)count * REEF_WIRE_OP_SIZE;
	bytes += REEF_WIRE_BATCH_SIZE;
	for (uint32_t i = 0; i < count; i++, bytes += REEF_WIRE_OP_SIZE) {
		out[i] = (struct reef_wire_op){
			.kind = bytes[0],
			.flags = bytes[1],
			.reserved = reef_get16(bytes + 2),
			.length = reef_get32(bytes + 4),
			.key = reef_get64(bytes + 8),
			.offset = reef_get64(bytes + 16),
		};
		if (out[i].reserved != 0 || !is_op_valid(&out[i], limits) ||
		    reef_wire_op_sends(&out[i]) > left)
			return -REEF_EPROTO;
		left -= reef_wire_op_sends(&out[i]);
	}
	return left == 0 ? 0 : -REEF_EPROTO;
}

int reef_wire_done_decode(const uint8_t bytes[REEF_WIRE_DONE_SIZE],
			  uint32_t count, struct reef_wire_done *out)
{
	struct reef_wire_done done;

	done.done = reef_get32(bytes);
	done.status = (int32_t)reef_get32(bytes + 4);
	if (done.status == 0
		    ? done.done != count
		    : done.done >= count || !reef_wire_status_fits(done.status))
		return -REEF_EPROTO;
	*out = done;
	return 0;
}
