/* rpc_send.c - messages that go out.
 *
 *             no room            room                       done
 *   rpc_send ---------> waiting ------> under way (a batch) ----> freed
 *       |  room            |                  ^
 *       +------------------|------------------+
 *                          +-- link gone, or its caller gave up --> freed
 *
 * (1) Nobody waits for a SEND: it is on the heap, and ends in on_done. So a
 *     receiver never blocks, and takes every message that comes; so an inbox
 *     does not stay full; so SENDs complete. Two sides that send each other
 *     more than fits therefore never wait for each other.
 * (2) What a peer that takes nothing can make us keep is bounded: peer_max
 *     answers of handlers (a request counts until its answer has left), and
 *     rpc_queued_max others: calls and notes are then refused, answers of
 *     -EBUSY dropped. What all peers of an account, and of a room, can make us
 *     keep is bounded in bytes (rpc.h, 4): every message counts until it has
 *     left.
 * (3) A peer's messages are posted in the order in which they were sent. Where
 *     the link has no room (-EAGAIN) the rest waits: for a sending of the same
 *     peer to end, or, as other threads fill the link too, for a receiver,
 *     which tries again every RETRY_NS (rpc.c). */
#include "base/log.h"
#include "fabric/provider.h"
#include "pool/rpc_internal.h"

#include <errno.h>
#include <stdlib.h>

struct rpc_sending {
	struct reef_batch batch;
	struct reef_op op;
	struct reef_rpc *rpc;
	struct rpc_peer *peer; /* a reference */
	struct rpc_call *call; /* NULL: none, or it does not wait any more */
	bool for_handler, is_answer, is_posted;
	size_t size;		  /* of bytes */
	struct rpc_sending *next; /* in peer->waiting */
	uint8_t *bytes;
};

#define STATUS_OFFSET offsetof(struct reef_pool_header, status)

uint32_t rpc_queued_max(const struct reef_rpc *rpc)
{
	return 64 + 2 * rpc->options.peer_max;
}

static void count_unread(struct rpc_account *account, uint64_t bytes)
{
	if (!account)
		return;
	account->unread += bytes;
	account->room->unread += bytes;
}

static void finish_sending(struct rpc_sending *sending, int status)
{
	struct reef_rpc *rpc = sending->rpc;
	struct rpc_peer *peer = sending->peer;
	struct rpc_call *call = sending->call;

	count_unread(peer->account, -(uint64_t)sending->size);
	if (sending->for_handler)
		peer->handling--;
	else
		peer->queued--;
	if (call) {
		call->sending = NULL;
		if (status)
			rpc_call_end(call, status);
	}
	free(sending->bytes);
	free(sending);
	rpc_peer_unref(peer);
	rpc->sendings--;
	rpc_wake_destroyer(rpc);
}

static int post_sending(struct rpc_sending *sending)
{
	struct rpc_peer *peer = sending->peer;
	int rc;

	sending->batch.link = peer->peer.link;
	rc = reef_post(peer->queue, &sending->batch);
	if (rc == -EMSGSIZE && sending->is_answer &&
	    sending->op.length > REEF_POOL_HEADER_SIZE) {
		/* The request was done: its sender learns that the answer is
		 * too long, instead of waiting. */
		reef_put32(sending->bytes + STATUS_OFFSET, (uint32_t)-EMSGSIZE);
		sending->op.length = REEF_POOL_HEADER_SIZE;
		rc = reef_post(peer->queue, &sending->batch);
	}
	return rc;
}

static void mark_stuck(struct rpc_peer *peer)
{
	struct reef_rpc *rpc = peer->peer.rpc;

	if (peer->is_stuck)
		return;
	peer->is_stuck = true;
	rpc_peer_ref(peer);
	peer->stuck_next = rpc->stuck;
	/* Wake the receiver, which tries again soon, unless it is at it. */
	if (!rpc->stuck && !rpc->is_retrying)
		reef_queue_wake(peer->queue);
	rpc->stuck = peer;
}

/* Post the peer's waiting messages, as far as there is room. */
static void post_waiting(struct rpc_peer *peer)
{
	struct rpc_sending *sending;
	int rc;

	while ((sending = peer->waiting) && peer->peer.link) {
		rc = post_sending(sending);
		if (rc == -EAGAIN) {
			mark_stuck(peer);
			return;
		}
		peer->waiting = sending->next;
		if (!peer->waiting)
			peer->waiting_tail = &peer->waiting;
		sending->is_posted = true;
		if (rc)
			finish_sending(sending,
				       rc < 0 ? rc : sending->batch.status);
	}
}

static void on_done(struct reef_batch *batch)
{
	struct rpc_sending *sending = batch->user;
	struct rpc_peer *peer = sending->peer;

	rpc_peer_ref(peer);
	finish_sending(sending, batch->status);
	post_waiting(peer);
	rpc_peer_unref(peer);
}

static int create_sending(struct rpc_peer *peer,
			  const struct reef_pool_header *header,
			  const struct reef_body *body,
			  struct rpc_sending **out)
{
	struct rpc_sending *sending = calloc(1, sizeof(*sending));
	struct reef_cursor_out encoded = {0};

	if (!sending)
		return -ENOMEM;
	reef_pool_encode(header, body, &encoded);
	if (encoded.failed || encoded.size > UINT32_MAX) {
		free(encoded.bytes);
		free(sending);
		return encoded.failed ? -ENOMEM : -EMSGSIZE;
	}
	sending->bytes = encoded.bytes;
	sending->size = encoded.size;
	sending->op = (struct reef_op){
		.kind = REEF_SEND,
		.length = (uint32_t)encoded.size,
		.local = encoded.bytes,
	};
	sending->batch = (struct reef_batch){
		.ops = &sending->op,
		.count = 1,
		.on_done = on_done,
		.user = sending,
	};
	sending->is_answer = header->type == REEF_POOL_ANSWER;
	sending->rpc = peer->peer.rpc;
	sending->peer = peer;
	*out = sending;
	return 0;
}

int rpc_send(struct rpc_peer *peer, const struct reef_pool_header *header,
	     const struct reef_body *body, struct rpc_call *call,
	     bool for_handler)
{
	struct rpc_sending *sending = NULL;
	int rc;

	rc = rpc_peer_status(peer);
	if (!rc && !for_handler &&
	    peer->queued >= rpc_queued_max(peer->peer.rpc))
		rc = -EBUSY;
	if (!rc)
		rc = create_sending(peer, header, body, &sending);
	if (rc) {
		if (for_handler)
			peer->handling--;
		return rc;
	}
	sending->for_handler = for_handler;
	sending->call = call;
	if (call)
		call->sending = sending;
	if (!for_handler)
		peer->queued++;
	count_unread(peer->account, sending->size);
	rpc_peer_ref(peer);
	peer->peer.rpc->sendings++;
	*peer->waiting_tail = sending;
	peer->waiting_tail = &sending->next;
	if (peer->waiting == sending)
		post_waiting(peer);
	return 0;
}

void rpc_send_forget(struct rpc_call *call)
{
	struct rpc_sending *sending = call->sending;
	struct rpc_sending **at;
	struct rpc_peer *peer;

	if (!sending)
		return;
	sending->call = NULL;
	call->sending = NULL;
	if (sending->is_posted)
		return;
	peer = sending->peer;
	for (at = &peer->waiting; *at != sending; at = &(*at)->next)
		;
	*at = sending->next;
	if (!*at)
		peer->waiting_tail = at;
	finish_sending(sending, 0);
}

void rpc_send_stuck(struct reef_rpc *rpc)
{
	struct rpc_peer *peer, *rest = rpc->stuck;

	rpc->stuck = NULL;
	rpc->is_retrying = true;
	while ((peer = rest)) {
		rest = peer->stuck_next;
		peer->is_stuck = false;
		post_waiting(peer);
		rpc_peer_unref(peer);
	}
	rpc->is_retrying = false;
}

void rpc_send_drop(struct rpc_peer *peer)
{
	struct rpc_sending *sending;

	while ((sending = peer->waiting)) {
		peer->waiting = sending->next;
		finish_sending(sending, -REEF_ENOLINK);
	}
	peer->waiting_tail = &peer->waiting;
}
