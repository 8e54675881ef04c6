/* send.c - from batches to work requests, and back.
 *
 * A link's batches stand in one list, oldest first:
 *
 *   oldest ... (all posted) ... unposted ... (nothing posted yet) ... newest
 *
 * pump turns what it can of the unposted part into one chain of work requests:
 * as far as slots, staging memory and the peer's credits reach. What is left
 * goes when completions have freed some. A piece of an operation is one work
 * request and takes one slot; slots complete in order, and a completion stands
 * for all slots before it, so only the last of a batch or of a chain, and one
 * now and then, is signalled.
 *
 * (1) An operation of length 0 makes no work request; one that does not begin
 *     and end at a word, or is long, makes several.
 * (2) ORDERED is a fence: the device holds the request back until every READ
 *     and atomic before it is done (F3c). RC does the rest of F3 by itself.
 * (3) When a request fails, those before it are done, and the queue pair is
 *     broken. If the peer's device refused it, its batch says so; all else that
 *     was under way is in doubt. */
#include "fabric/verbs/verbs.h"

#include <arpa/inet.h>
#include <string.h>

#define DIRECT_MAX (1u << 20) /* a piece that is not staged */

static_assert(sizeof(struct verbs_flight) <=
		      sizeof(((struct reef_batch *)0)->scratch),
	      "a flight fits in its batch");

static struct verbs_flight *flight_of(struct reef_batch *batch)
{
	return (struct verbs_flight *)batch->scratch;
}

static uint8_t *landing_of(struct verbs_link *link, uint64_t sequence)
{
	return link->arena + (size_t)VERBS_RECEIVES * VERBS_FRAGMENT +
	       (size_t)(sequence % link->send_max) * VERBS_LANDING;
}

static bool is_empty(const struct reef_op *op)
{
	return op->length == 0 &&
	       (op->kind == REEF_READ || op->kind == REEF_WRITE);
}

/* The first operation at or after `index` that needs a work request. */
static uint32_t skip_empty(const struct reef_batch *batch, uint32_t index)
{
	while (index < batch->count && is_empty(&batch->ops[index]))
		index++;
	return index;
}

/* Messages (fragments) that a batch sends. */
static uint32_t fragments_of(const struct verbs_link *link,
			     const struct reef_batch *batch)
{
	uint32_t count = 0, i;

	for (i = 0; i < batch->count; i++) {
		const struct reef_op *op = &batch->ops[i];

		if (op->kind != REEF_SEND)
			continue;
		count += op->length ? (op->length - 1) / link->fragment + 1 : 1;
	}
	return count;
}

/* --- one piece --- */

struct piece {
	uint32_t length;
	uint8_t *bytes;
	uint32_t key;
	bool is_inline;
};

/* Give up to `length` bytes of the op a place that the device can reach.
 * -EAGAIN: staging memory has run out. */
static int place_piece(struct verbs_link *link, struct reef_op *op,
		       struct verbs_slot *slot, uint32_t length,
		       struct piece *out)
{
	struct verbs_device *device = &link->owner->fabric->device;
	uint8_t *local = (uint8_t *)op->local + slot->offset;
	struct verbs_buffer *buffer;
	uint32_t most;

	if (op->kind != REEF_READ && length <= link->inline_max) {
		*out = (struct piece){length, local, 0, true};
		return 0;
	}
	if (op->buffer) {
		buffer =
			reef_container(op->buffer, struct verbs_buffer, buffer);
		most = device->message_max < DIRECT_MAX ? device->message_max
							: DIRECT_MAX;
		*out = (struct piece){length < most ? length : most, local,
				      buffer->registration->lkey, false};
		return 0;
	}
	slot->staged = true;
	*out = (struct piece){length, landing_of(link, slot->sequence),
			      link->registration->lkey, false};
	if (length > VERBS_LANDING) {
		slot->chunk = verbs_pool_take(&link->hub->pool, length);
		/* With nothing under way nothing will free a chunk for us: the
		 * landing will do, if in many pieces. */
		if (!slot->chunk && link->head != link->tail)
			return -EAGAIN;
		out->length = VERBS_LANDING;
		if (slot->chunk) {
			out->length = slot->chunk->size;
			out->bytes = slot->chunk->bytes;
			out->key = slot->chunk->key;
		}
		if (out->length > length)
			out->length = length;
	}
	if (op->kind != REEF_READ)
		memcpy(out->bytes, local, out->length);
	return 0;
}

/* How much of `left` bytes may go in one request so that every aligned word of
 * the remote is whole (F2). A transfer is cut into packets, and soft-RoCE
 * copies them with moves that start at its first byte and overlap at its last:
 * both keep words whole only if it begins and ends at one. So ragged ends go by
 * themselves. */
static uint32_t keep_words(const struct reef_op *op, uint32_t offset,
			   uint32_t left)
{
	const struct verbs_remote *remote =
		reef_container(op->remote, struct verbs_remote, remote);
	uint32_t head = -(uint32_t)(remote->address + op->offset + offset) & 7;

	if (left < head + 8)
		return left; /* no whole word in it */
	return head ? head : left & ~7u;
}

static void aim_transfer(struct ibv_send_wr *request, const struct reef_op *op,
			 uint32_t offset)
{
	const struct verbs_remote *remote =
		reef_container(op->remote, struct verbs_remote, remote);

	request->wr.rdma.remote_addr = remote->address + op->offset + offset;
	request->wr.rdma.rkey = remote->rkey;
}

static void aim_atomic(struct ibv_send_wr *request, const struct reef_op *op)
{
	const struct verbs_remote *remote =
		reef_container(op->remote, struct verbs_remote, remote);
	bool is_cas = op->kind == REEF_CAS;

	request->opcode = is_cas ? IBV_WR_ATOMIC_CMP_AND_SWP
				 : IBV_WR_ATOMIC_FETCH_AND_ADD;
	request->wr.atomic.remote_addr = remote->address + op->offset;
	request->wr.atomic.rkey = remote->rkey;
	request->wr.atomic.compare_add = is_cas ? op->compare : op->operand;
	request->wr.atomic.swap = is_cas ? op->operand : 0;
}

/* The immediate of a message: whether more pieces follow, and credits, which
 * cost nothing here. */
static uint32_t immediate_of(struct verbs_link *link, bool more)
{
	uint32_t credits = link->untold;

	if (credits > REEF_WIRE_CREDITS_MASK)
		credits = REEF_WIRE_CREDITS_MASK;
	link->untold -= credits;
	return htonl(credits | (more ? REEF_WIRE_MORE : 0));
}

/* Make the next piece of a batch the next request of the chain. Returns whether
 * it could. */
static bool add_piece(struct verbs_link *link, struct reef_batch *batch,
		      uint32_t index)
{
	struct verbs_flight *flight = flight_of(batch);
	struct reef_op *op = &batch->ops[flight->op];
	struct verbs_slot *slot = &link->slots[link->head % link->send_max];
	struct ibv_send_wr *request = &link->hub->chain[index];
	struct ibv_sge *sge = &link->hub->pieces[index];
	uint32_t left = op->length - flight->offset;
	struct piece piece = {0};

	if (link->head - link->tail == link->send_max ||
	    (op->kind == REEF_SEND && !link->credits))
		return false;
	*slot = (struct verbs_slot){
		.work = {.link = link},
		.batch = batch,
		.op = flight->op,
		.offset = flight->offset,
		.sequence = link->head,
	};
	if (op->kind == REEF_CAS || op->kind == REEF_FAA) {
		piece = (struct piece){8, landing_of(link, link->head),
				       link->registration->lkey, false};
	} else {
		if (op->kind != REEF_SEND)
			left = keep_words(op, flight->offset, left);
		else if (left > link->fragment)
			left = link->fragment;
		if (left && place_piece(link, op, slot, left, &piece))
			return false;
	}
	slot->length = piece.length;
	*sge = (struct ibv_sge){(uintptr_t)piece.bytes, piece.length,
				piece.key};
	*request = (struct ibv_send_wr){
		.wr_id = (uintptr_t)&slot->work,
		.sg_list = sge,
		.num_sge = piece.length ? 1 : 0,
		.send_flags = piece.is_inline ? IBV_SEND_INLINE : 0,
	};
	/* The later pieces of an op come after its first anyway. */
	if (op->flags & REEF_ORDERED && !flight->offset)
		request->send_flags |= IBV_SEND_FENCE;
	left = op->length - flight->offset - piece.length;
	switch (op->kind) {
	case REEF_READ:
	case REEF_WRITE:
		request->opcode = op->kind == REEF_READ ? IBV_WR_RDMA_READ
							: IBV_WR_RDMA_WRITE;
		aim_transfer(request, op, flight->offset);
		break;
	case REEF_SEND:
		request->opcode = IBV_WR_SEND_WITH_IMM;
		request->imm_data = immediate_of(link, left > 0);
		link->credits--;
		/* Short of staging memory a SEND takes more credits than were
		 * promised to it. */
		if (link->promised)
			link->promised--;
		break;
	default:
		aim_atomic(request, op);
		left = 0;
	}
	link->head++;
	flight->offset += piece.length;
	if (!left) {
		flight->op = skip_empty(batch, flight->op + 1);
		flight->offset = 0;
	}
	return true;
}

/* --- chains --- */

static void signal_last(struct verbs_link *link, uint32_t count)
{
	link->hub->chain[count - 1].send_flags |= IBV_SEND_SIGNALED;
	link->signalled = link->head;
}

/* Build as long a chain as there is room for. Returns its length. */
static uint32_t build_chain(struct verbs_link *link)
{
	struct reef_batch *batch;
	uint32_t count = 0;

	while ((batch = link->unposted) && count < VERBS_CHAIN_MAX) {
		if (!add_piece(link, batch, count))
			break;
		count++;
		if (flight_of(batch)->op == batch->count) {
			link->slots[(link->head - 1) % link->send_max]
				.ends_batch = true;
			link->unposted = batch->next;
			signal_last(link, count);
		} else if (link->head - link->signalled >= link->send_max / 4) {
			signal_last(link, count);
		}
	}
	return count;
}

void verbs_send_pump(struct verbs_link *link)
{
	struct verbs_hub *hub = link->hub;
	struct ibv_send_wr *bad;
	uint32_t count, i;
	int rc;

	if (link->phase != VERBS_UP)
		return;
	while (!link->broken && (count = build_chain(link))) {
		signal_last(link, count);
		for (i = 0; i + 1 < count; i++)
			hub->chain[i].next = &hub->chain[i + 1];
		rc = ibv_post_send(link->pair, hub->chain, &bad);
		if (rc) {
			reef_log(REEF_LOG_ERROR, "verbs",
				 "posting to session %u: %s",
				 link->link.session, strerror(rc));
			verbs_link_break(link, -REEF_ENOLINK);
		}
	}
}

void verbs_send_hungry(struct verbs_link *link)
{
	if (link->is_hungry || !link->unposted)
		return;
	link->is_hungry = true;
	link->next_hungry = link->hub->hungry;
	link->hub->hungry = link;
}

/* --- posting --- */

/* Ask the peer for credits that it has not told of: it tells of few only when
 * it is asked (receive.c, 2). */
static void ask_for_credits(struct verbs_link *link)
{
	uint8_t payload[REEF_WIRE_CREDIT_SIZE];

	if (link->has_asked)
		return;
	link->has_asked = true;
	reef_wire_credit_encode(0, payload);
	verbs_link_send(link, REEF_FRAME_CREDIT, 0, payload, sizeof(payload));
}

/* Whether this batch may join those under way, and if so promise it credits.
 * -EAGAIN: not now. Locked. */
static int check_batch(struct verbs_link *link, struct reef_batch *batch)
{
	uint32_t fragments, i;
	int rc;

	rc = reef_batch_check(batch->queue, batch);
	if (rc)
		return rc;
	if (link->broken)
		return -REEF_ENOLINK;
	if (link->under_way >= link->link.fabric->options.depth_max)
		return -EAGAIN;
	for (i = 0; i < batch->count; i++)
		if (batch->ops[i].kind == REEF_SEND &&
		    batch->ops[i].length > link->message_max)
			return -EMSGSIZE;
	/* A batch that waited for credits would hold up those after it. If it
	 * needs more than there can ever be it has to. */
	fragments = fragments_of(link, batch);
	i = fragments < link->credits_max ? fragments : link->credits_max;
	if (fragments && (link->credits < link->promised ||
			  link->credits - link->promised < i)) {
		ask_for_credits(link);
		return -EAGAIN;
	}
	link->promised += fragments;
	return 0;
}

static int take_batch(struct verbs_link *link, struct verbs_queue *queue,
		      struct verbs_watch *watch, struct reef_batch *batch)
{
	uint32_t first, i;
	int rc;

	rc = check_batch(link, batch);
	if (rc)
		return rc;
	first = skip_empty(batch, 0);
	for (i = 0; i < batch->count; i++)
		batch->ops[i].status = 0;
	if (first == batch->count) {
		batch->done = true;
		return 1;
	}
	*flight_of(batch) = (struct verbs_flight){.watch = watch, .op = first};
	batch->next = NULL;
	*link->newest = batch;
	link->newest = &batch->next;
	if (!link->oldest)
		link->oldest = batch;
	if (!link->unposted)
		link->unposted = batch;
	link->under_way++;
	link->taken++;
	if (watch)
		atomic_fetch_add_explicit(&watch->under_way, 1,
					  memory_order_relaxed);
	verbs_send_pump(link);
	if (link->hub->broken)
		verbs_hub_settle(link->hub, queue);
	return 0;
}

int verbs_post(struct reef_layer *layer, struct reef_queue *base,
	       struct reef_batch *batch)
{
	struct verbs_queue *queue = verbs_queue(base);
	struct verbs_watch *watch;
	struct verbs_link *link;
	int rc;

	rc = reef_batch_check_link(base, batch);
	if (rc)
		return rc;
	link = verbs_link(batch->link);
	rc = verbs_queue_watch_hub(queue, link, &watch);
	if (rc)
		return rc;
	pthread_mutex_lock(&link->hub->lock);
	rc = take_batch(link, queue, watch, batch);
	pthread_mutex_unlock(&link->hub->lock);
	return rc;
}

/* --- completions --- */

static void end_batch(struct verbs_link *link, struct verbs_queue *polling,
		      struct reef_batch *batch)
{
	struct verbs_watch *watch = flight_of(batch)->watch;

	reef_assert(link->oldest == batch);
	link->oldest = batch->next;
	if (!link->oldest)
		link->newest = &link->oldest;
	link->under_way--;
	link->ended++;
	/* The watch comes first: once the batch has ended its queue may go, and
	 * the watch with it. */
	if (watch)
		atomic_fetch_sub_explicit(&watch->under_way, 1,
					  memory_order_relaxed);
	reef_batch_ended(&polling->queue, batch);
	if (link->withdrawals)
		verbs_remote_ended(link);
}

static void release_chunk(struct verbs_link *link, struct verbs_slot *slot)
{
	if (slot->chunk)
		verbs_pool_give(&link->hub->pool, slot->chunk);
	slot->chunk = NULL;
}

/* Free the oldest slot, whose request is done. */
static void retire_slot(struct verbs_link *link, struct verbs_queue *polling)
{
	struct verbs_slot *slot = &link->slots[link->tail % link->send_max];
	struct reef_op *op = &slot->batch->ops[slot->op];
	const uint8_t *bytes =
		slot->chunk ? slot->chunk->bytes : landing_of(link, link->tail);

	reef_assert(slot->sequence == link->tail);
	if (op->kind == REEF_CAS || op->kind == REEF_FAA)
		memcpy(&op->result, bytes, sizeof(op->result));
	else if (op->kind == REEF_READ && slot->staged)
		memcpy((uint8_t *)op->local + slot->offset, bytes,
		       slot->length);
	release_chunk(link, slot);
	link->tail++;
	if (slot->ends_batch) {
		slot->batch->status = 0;
		end_batch(link, polling, slot->batch);
	}
}

/* The status of an operation whose own completion says that it failed.  0: the
 * completion does not tell whether it happened. */
static int refusal_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		return -REEF_EKEY;
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
		return -EFAULT;
	default:
		return 0;
	}
}

void verbs_send_completed(struct verbs_queue *polling, struct verbs_slot *slot,
			  enum ibv_wc_status status)
{
	struct verbs_link *link = slot->work.link;
	int refusal = refusal_of(status);

	/* A request that was refused is the first that failed, so it is told
	 * of even if the channel has brought the link's end before. */
	if (link->failed ||
	    (link->broken && status != IBV_WC_SUCCESS && !refusal))
		return;
	while (link->tail < slot->sequence)
		retire_slot(link, polling);
	if (status == IBV_WC_SUCCESS) {
		retire_slot(link, polling);
		verbs_send_hungry(link);
		return;
	}
	reef_log(REEF_LOG_INFO, "verbs", "session %u: %s", link->link.session,
		 ibv_wc_status_str(status));
	if (refusal) {
		link->failed = slot->batch;
		link->failed_op = slot->op;
		link->failed_status = refusal;
	}
	verbs_link_break(link, -REEF_ENOLINK);
}

void verbs_send_fail(struct verbs_link *link, struct verbs_queue *polling)
{
	struct reef_batch *batch;
	uint64_t sequence;

	for (sequence = link->tail; sequence < link->head; sequence++)
		release_chunk(link, &link->slots[sequence % link->send_max]);
	link->tail = link->head;
	link->unposted = NULL;
	while ((batch = link->oldest)) {
		if (batch == link->failed)
			reef_batch_fail(batch, link->failed_op,
					link->failed_status);
		else
			reef_batch_fail_all(batch, -REEF_EINDOUBT);
		end_batch(link, polling, batch);
	}
}
