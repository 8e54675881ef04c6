/* target.c - execute batches.
 *
 *             begin            table decoded            last op, or one failed
 *   idle ------------> active -----------------> ops ---------------------+
 *    ^                                           | ^ READ: -ENOBUFS        |
 *    |                                           +-+ WRITE: -EAGAIN        |
 *    |                                               SEND: -ENOSPC         v
 *    +---------- answer complete <---------- skip what later ops sent <----+
 *
 * An answer is a BATCH_DONE. When its results grow past REEF_WIRE_PART_MAX what
 * is there becomes a BATCH_PART, and another frame is begun.
 */
#include "fabric/tcp/target.h"

#include "fabric/copy.h"
#include "wire/bytes.h"

void tcp_target_fini(struct tcp_target *target)
{
	tcp_regions_give(target->region);
	target->region = NULL;
	free(target->reply.bytes);
	free(target->ops);
	target->reply = (struct reef_fifo){0};
	target->ops = NULL;
}

int tcp_target_begin(struct tcp_target *target, uint64_t tag, uint32_t length)
{
	reef_assert(!target->active);
	if (length < REEF_WIRE_BATCH_SIZE + REEF_WIRE_OP_SIZE ||
	    length > REEF_WIRE_BATCH_MAX)
		return -REEF_EPROTO;
	target->active = true;
	target->decoded = false;
	target->wrote = false;
	target->tag = tag;
	target->left = length;
	target->index = 0;
	target->moved = 0;
	target->status = 0;
	target->part_open = false;
	return 0;
}

/* --- the answer --- */

static int reply_reserve(struct tcp_target *target, size_t size)
{
	return reef_fifo_reserve(&target->reply, size, SIZE_MAX / 2);
}

/* True if so many answers wait that an operation waits for them (5). */
static bool is_full(const struct tcp_target *target)
{
	return reef_fifo_used(&target->reply) >= target->answers_max;
}

static size_t part_size(const struct tcp_target *target)
{
	return reef_fifo_used(&target->reply) - target->part -
	       REEF_FRAME_HEADER_SIZE;
}

static void part_end(struct tcp_target *target, uint8_t type)
{
	struct reef_fifo *reply = &target->reply;

	reef_frame_header_encode(
		&(struct reef_frame_header){
			.type = type,
			.tag = target->tag,
			.length = (uint32_t)part_size(target),
		},
		reply->bytes + reply->start + target->part);
	target->part_open = false;
}

/* Open a frame that takes `size` bytes and the tail, unless one is. */
static int part_begin(struct tcp_target *target, size_t size)
{
	int rc;

	if (target->part_open &&
	    part_size(target) + size > REEF_WIRE_PART_MAX - REEF_WIRE_DONE_SIZE)
		part_end(target, REEF_FRAME_BATCH_PART);
	if (target->part_open)
		return 0;
	rc = reply_reserve(target, REEF_FRAME_HEADER_SIZE);
	if (rc < 0)
		return rc;
	target->part = reef_fifo_used(&target->reply);
	target->reply.end += REEF_FRAME_HEADER_SIZE;
	target->part_open = true;
	return 0;
}

/* Leave nothing but whole frames to the owner. */
static void part_close(struct tcp_target *target)
{
	if (!target->part_open)
		return;
	if (part_size(target)) {
		part_end(target, REEF_FRAME_BATCH_PART);
	} else {
		target->reply.end -= REEF_FRAME_HEADER_SIZE;
		target->part_open = false;
	}
}

static int answer_value(struct tcp_target *target, uint64_t value)
{
	int rc = part_begin(target, 8);

	if (rc == 0)
		rc = reply_reserve(target, 8);
	if (rc < 0)
		return rc;
	reef_put64(target->reply.bytes + target->reply.end, value);
	target->reply.end += 8;
	return 0;
}

static int answer_done(struct tcp_target *target)
{
	struct reef_wire_done done = {target->index, target->status};
	int rc = part_begin(target, 0);

	if (rc == 0)
		rc = reply_reserve(target, REEF_WIRE_DONE_SIZE);
	if (rc < 0)
		return rc;
	reef_wire_done_encode(&done, target->reply.bytes + target->reply.end);
	target->reply.end += REEF_WIRE_DONE_SIZE;
	part_end(target, REEF_FRAME_BATCH_DONE);
	tcp_regions_give(target->region);
	target->region = NULL;
	target->active = false;
	return 0;
}

/* --- operations --- */

static void order_writes(struct tcp_target *target)
{
	if (target->wrote)
		atomic_thread_fence(memory_order_seq_cst);
	target->wrote = false;
}

/* Take the region of an operation, before its first byte is moved. Returns the
 * status of the operation. */
static int locate_region(struct tcp_target *target,
			 const struct reef_wire_op *op)
{
	const struct reef_memory *memory;

	if (!target->region ||
	    !reef_region_has_key(&target->region->base, op->key)) {
		tcp_regions_give(target->region);
		target->region = tcp_regions_take(target->regions, op->key);
	}
	if (!target->region || atomic_load(&target->region->withdrawn))
		return -REEF_EKEY;
	memory = target->region->base.memory;
	if (op->offset > memory->size || op->length > memory->size - op->offset)
		return -ERANGE;
	if (op->kind == REEF_READ)
		return 0;
	return reef_region_only_reads(&target->region->base, op->key) ? -EACCES
								      : 0;
}

static uint8_t *address_of(const struct tcp_target *target,
			   const struct reef_wire_op *op)
{
	return (uint8_t *)target->region->base.memory->base + op->offset;
}

/* How many of the `size` bytes at `at` can be moved without ending inside a
 * word; all, if that is the end of the operation. */
static uint32_t whole_words(const uint8_t *at, size_t size, uint32_t wanted)
{
	size_t over;

	if (size >= wanted)
		return wanted;
	over = ((uintptr_t)at + size) & 7;
	return size > over ? (uint32_t)(size - over) : 0;
}

/* The operations return 0: done; or what feed returns. *used grows by what they
 * took of the input. */

static int run_read(struct tcp_target *target, const struct reef_wire_op *op)
{
	struct reef_fifo *reply = &target->reply;
	uint8_t *from = address_of(target, op);
	uint32_t size;
	size_t room;
	int rc;

	order_writes(target);
	while (target->moved < op->length) {
		if (is_full(target))
			return -ENOBUFS;
		rc = part_begin(target, 0);
		if (rc < 0)
			return rc;
		room = REEF_WIRE_PART_MAX - REEF_WIRE_DONE_SIZE -
		       part_size(target);
		size = whole_words(from + target->moved, room,
				   op->length - target->moved);
		if (size == 0) {
			part_end(target, REEF_FRAME_BATCH_PART);
			continue;
		}
		rc = reply_reserve(target, size);
		if (rc < 0)
			return rc;
		reef_copy_from_shared(reply->bytes + reply->end,
				      from + target->moved, size);
		reply->end += size;
		target->moved += size;
	}
	return 0;
}

static int run_write(struct tcp_target *target, const struct reef_wire_op *op,
		     const uint8_t *bytes, size_t size, size_t *used)
{
	uint8_t *to = address_of(target, op) + target->moved;
	uint32_t wanted = op->length - target->moved;
	uint32_t now = whole_words(to, size, wanted);

	if (now == 0 && wanted)
		return -EAGAIN;
	reef_copy_to_shared(to, bytes, now);
	target->wrote = true;
	target->moved += now;
	*used += now;
	return now < wanted ? -EAGAIN : 0;
}

static int run_atomic(struct tcp_target *target, const struct reef_wire_op *op,
		      const uint8_t *bytes, size_t size, size_t *used)
{
	_Atomic uint64_t *word = (_Atomic uint64_t *)address_of(target, op);
	uint32_t wanted = reef_wire_op_sends(op);
	uint64_t before;
	int rc;

	if (size < wanted)
		return -EAGAIN;
	/* There must be room for the answer first: the operation must not be
	 * done again. */
	rc = part_begin(target, 8);
	if (rc == 0)
		rc = reply_reserve(target, 8);
	if (rc < 0)
		return rc;
	if (op->kind == REEF_CAS) {
		before = reef_get64(bytes + 8);
		atomic_compare_exchange_strong(word, &before,
					       reef_get64(bytes));
	} else {
		before = atomic_fetch_add(word, reef_get64(bytes));
	}
	*used += wanted;
	return answer_value(target, before);
}

static int run_send(struct tcp_target *target, const struct reef_wire_op *op,
		    const uint8_t *bytes, size_t size, size_t *used)
{
	int rc;

	if (size < op->length)
		return -EAGAIN;
	/* The receiver of the message may read what the batch wrote. */
	order_writes(target);
	rc = target->message(target->context, bytes, op->length);
	if (rc == 0)
		*used += op->length;
	return rc;
}

/* Blocks for as long as the disk takes, and every other link of this queue with
 * it: who lends durable memory to many should give it a queue of its own. */
static int run_flush(struct tcp_target *target, const struct reef_wire_op *op)
{
	order_writes(target);
	return reef_memory_flush(target->region->base.memory, op->offset,
				 op->length);
}

static int run_op(struct tcp_target *target, const uint8_t *bytes, size_t size,
		  size_t *used)
{
	const struct reef_wire_op *op = &target->ops[target->index];

	/* Also a batch that is refused has an answer. */
	if (target->moved == 0 && is_full(target))
		return -ENOBUFS;
	if (op->kind != REEF_SEND && target->moved == 0)
		target->status = locate_region(target, op);
	if (target->status)
		return 0;
	switch (op->kind) {
	case REEF_READ:
		return run_read(target, op);
	case REEF_WRITE:
		return run_write(target, op, bytes, size, used);
	case REEF_CAS:
	case REEF_FAA:
		return run_atomic(target, op, bytes, size, used);
	case REEF_FLUSH:
		target->status = run_flush(target, op);
		return 0;
	default:
		return run_send(target, op, bytes, size, used);
	}
}

/* --- a batch --- */

static int decode_table(struct tcp_target *target, const uint8_t *bytes,
			size_t size, size_t *used)
{
	struct reef_wire_op *ops;
	uint32_t head;
	int rc;

	rc = reef_wire_batch_head(bytes, size, target->left, &target->limits,
				  &target->count, &head);
	if (rc < 0)
		return rc;
	if (target->ops_size < target->count) {
		ops = realloc(target->ops, target->count * sizeof(*ops));
		if (!ops)
			return -ENOMEM;
		target->ops = ops;
		target->ops_size = target->count;
	}
	rc = reef_wire_ops_decode(bytes, target->count, target->left,
				  &target->limits, target->ops);
	if (rc < 0)
		return rc;
	target->decoded = true;
	*used = head;
	return 0;
}

/* Run the operations that are left, with the input from *used on. */
static int run_ops(struct tcp_target *target, const uint8_t *bytes, size_t size,
		   size_t *used)
{
	int rc;

	while (target->index < target->count && !target->status) {
		rc = run_op(target, bytes + *used, size - *used, used);
		if (rc < 0)
			return rc;
		if (target->status)
			break;
		target->index++;
		target->moved = 0;
	}
	order_writes(target);
	return 0;
}

int tcp_target_feed(struct tcp_target *target, const uint8_t *bytes,
		    size_t size, size_t *used)
{
	int rc = 0;

	reef_assert(target->active);
	*used = 0;
	if (size > target->left)
		size = target->left;
	if (!target->decoded)
		rc = decode_table(target, bytes, size, used);
	if (rc == 0)
		rc = run_ops(target, bytes, size, used);
	/* What is left belongs to operations that are not done any more. */
	if (rc == 0)
		*used = size;
	target->left -= (uint32_t)*used;
	if (rc == 0 && target->left)
		rc = -EAGAIN;
	if (rc == 0)
		rc = answer_done(target);
	part_close(target);
	return rc;
}

bool tcp_target_let_go(struct tcp_target *target,
		       const struct tcp_region *region)
{
	if (target->region != region)
		return true;
	if (target->moved) {
		if (target->ops[target->index].kind == REEF_READ)
			return false;
		target->status = -REEF_EKEY;
	}
	tcp_regions_give(target->region);
	target->region = NULL;
	return true;
}
