/* send.c - what goes out on a link.
 *
 * Three things want to go out: batches posted here, answers to the peer's
 * batches, and control frames. One buffer, out, is being sent; each of the
 * others joins it only between two frames:
 *
 *   ring of batches --encode-->  out --> socket
 *   control --------swap------->  |
 *   target.reply ---swap (receive.c)
 *
 * A batch is copied into out, except for pieces of BORROW_MIN and more, which
 * are sent from the caller's memory: it stays the fabric's until the batch has
 * ended.
 *
 * A batch on an accepted link has only SENDs, goes out as MESSAGE frames, and
 * has ended when the socket has taken them: a server does not wait for its
 * clients to look into their inboxes.
 */
#include "fabric/tcp/tcp.h"

#include "wire/bytes.h"

#include <sys/socket.h>

#define BORROW_MIN (16u << 10)
#define OUT_ENOUGH (64u << 10) /* encode no further; send first */
#define OUT_MAX (64u << 20)    /* ops_max sets what is really needed */
#define CONTROL_MAX (1u << 20)
#define WAITING_MAX 32u	  /* batches that wait for other fibers' */
#define WAITING_IDLE 6u	  /* while the peer has nothing of ours to do */
#define KEEP (256u << 10) /* an idle buffer above this is given back */

static struct reef_batch *batch_at(const struct tcp_link *link, uint64_t number)
{
	return link->ring[number & (link->ring_size - 1)];
}

/* --- encoding --- */

static struct reef_wire_op wire_op(const struct reef_op *op)
{
	struct reef_wire_op wire = {
		.kind = op->kind, .flags = op->flags, .length = op->length};

	if (op->kind == REEF_CAS || op->kind == REEF_FAA)
		wire.length = 8;
	if (op->kind != REEF_SEND) {
		wire.key = op->remote->key;
		wire.offset = op->offset;
	}
	return wire;
}

/* Bytes of a batch's frame after its header.  -EMSGSIZE: the peer would not
 * take it. */
static int64_t request_size(const struct tcp_link *link,
			    const struct reef_batch *batch)
{
	int64_t size = REEF_WIRE_BATCH_SIZE;
	struct reef_wire_op wire;
	uint32_t max;

	if (batch->count > link->ops_max)
		return -EMSGSIZE;
	for (uint32_t i = 0; i < batch->count; i++) {
		wire = wire_op(&batch->ops[i]);
		max = wire.kind == REEF_SEND ? link->message_max
					     : link->length_max;
		if (wire.length > max && wire.length != 8)
			return -EMSGSIZE;
		size += REEF_WIRE_OP_SIZE + reef_wire_op_sends(&wire);
	}
	return size <= REEF_WIRE_BATCH_MAX ? size : -EMSGSIZE;
}

static int encode_head(struct tcp_link *link, const struct reef_batch *batch,
		       uint64_t number)
{
	size_t size = REEF_FRAME_HEADER_SIZE + REEF_WIRE_BATCH_SIZE +
		      (size_t)batch->count * REEF_WIRE_OP_SIZE;
	struct reef_wire_op wire;
	uint32_t sends = 0;
	uint8_t *at, *first;
	int rc;

	link->batch_begun = true;
	link->batch_op = 0;
	if (link->base.listener)
		return 0;
	rc = reef_fifo_reserve(&link->out, size, OUT_MAX);
	if (rc < 0)
		return rc;
	first = link->out.bytes + link->out.end;
	at = first + REEF_FRAME_HEADER_SIZE;
	reef_wire_batch_encode(batch->count, at);
	at += REEF_WIRE_BATCH_SIZE;
	for (uint32_t i = 0; i < batch->count; i++) {
		wire = wire_op(&batch->ops[i]);
		reef_wire_op_encode(&wire, at);
		at += REEF_WIRE_OP_SIZE;
		sends += reef_wire_op_sends(&wire);
	}
	reef_frame_header_encode(
		&(struct reef_frame_header){
			.type = REEF_FRAME_BATCH,
			.tag = number,
			.length =
				(uint32_t)size - REEF_FRAME_HEADER_SIZE + sends,
		},
		first);
	link->out.end += size;
	return 0;
}

static int encode_bytes(struct tcp_link *link, const void *bytes, size_t size)
{
	int rc = reef_fifo_reserve(&link->out, size, OUT_MAX);

	if (rc < 0)
		return rc;
	if (size)
		memcpy(link->out.bytes + link->out.end, bytes, size);
	link->out.end += size;
	return 0;
}

static int encode_message_head(struct tcp_link *link, uint32_t length)
{
	uint8_t header[REEF_FRAME_HEADER_SIZE];

	reef_frame_header_encode(
		&(struct reef_frame_header){.type = REEF_FRAME_MESSAGE,
					    .length = length},
		header);
	return encode_bytes(link, header, sizeof(header));
}

static int encode_op(struct tcp_link *link, const struct reef_op *op)
{
	uint8_t words[16];
	int rc;

	switch (op->kind) {
	case REEF_WRITE:
	case REEF_SEND:
		if (link->base.listener) {
			rc = encode_message_head(link, op->length);
			if (rc < 0)
				return rc;
		}
		if (op->length < BORROW_MIN)
			return encode_bytes(link, op->local, op->length);
		link->borrowed = (struct iovec){op->local, op->length};
		return 0;
	case REEF_CAS:
		reef_put64(words, op->operand);
		reef_put64(words + 8, op->compare);
		return encode_bytes(link, words, 16);
	case REEF_FAA:
		reef_put64(words, op->operand);
		return encode_bytes(link, words, 8);
	default:
		return 0;
	}
}

/* Encode more of the next batch: until all of it is in out, or out is full
 * enough, or memory is borrowed, which has to go out first. */
static int encode_more(struct tcp_link *link)
{
	uint64_t number =
		atomic_load_explicit(&link->sent, memory_order_relaxed);
	const struct reef_batch *batch = batch_at(link, number);
	int rc = 0;

	if (!link->batch_begun)
		rc = encode_head(link, batch, number);
	while (rc == 0 && link->batch_op < batch->count) {
		if (reef_fifo_used(&link->out) >= OUT_ENOUGH ||
		    link->borrowed.iov_len)
			return 0;
		rc = encode_op(link, &batch->ops[link->batch_op++]);
	}
	if (rc < 0 || link->borrowed.iov_len)
		return rc;
	link->batch_begun = false;
	/* Release: from here on its memory is not read any more; the partner is
	 * the load in receive.c that lets an answer end it. */
	atomic_store_explicit(&link->sent, number + 1, memory_order_release);
	return 0;
}

/* --- sending --- */

static bool has_output(const struct tcp_link *link)
{
	return reef_fifo_used(&link->out) || link->borrowed.iov_len ||
	       (link->tls && reef_tls_unsent(link->tls));
}

/* Put the control frames into out, if it is between two frames. */
static void refill_control(struct tcp_link *link)
{
	if (!link->batch_begun && !has_output(link) &&
	    reef_fifo_used(&link->control))
		reef_fifo_swap(&link->out, &link->control);
}

/* Put into out what comes next. */
static int refill_out(struct tcp_link *link)
{
	int rc = 0;

	reef_fifo_trim(&link->out, KEEP);
	refill_control(link);
	while (rc == 0 && reef_fifo_used(&link->out) < OUT_ENOUGH &&
	       !link->borrowed.iov_len &&
	       atomic_load_explicit(&link->sent, memory_order_relaxed) !=
		       atomic_load_explicit(&link->posted,
					    memory_order_relaxed))
		rc = encode_more(link);
	/* A batch whose borrowed memory was sent ends only here. */
	refill_control(link);
	return rc;
}

/* Returns how much was taken.  -EAGAIN: the socket is full.  Else: it is lost.
 */
static ssize_t write_socket(struct tcp_link *link)
{
	struct iovec parts[2] = {
		{reef_fifo_head(&link->out), reef_fifo_used(&link->out)},
		link->borrowed,
	};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t n;

	if (link->tls)
		return reef_tls_send(link->tls, parts, 2);
	do {
		if (link->borrowed.iov_len)
			n = sendmsg(link->fd, &message,
				    MSG_DONTWAIT | MSG_NOSIGNAL);
		else
			n = send(link->fd, parts[0].iov_base, parts[0].iov_len,
				 MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS
		       ? -EAGAIN
		       : -REEF_ENOLINK;
}

static void drop_sent(struct tcp_link *link, size_t n)
{
	size_t used = reef_fifo_used(&link->out);
	size_t from_out = n < used ? n : used;

	reef_fifo_take(&link->out, from_out);
	n -= from_out;
	if (n == 0) /* nothing may be borrowed at all */
		return;
	link->borrowed.iov_base = (uint8_t *)link->borrowed.iov_base + n;
	link->borrowed.iov_len -= n;
}

static int doom_link(struct tcp_link *link, int reason)
{
	int none = 0;

	atomic_compare_exchange_strong(&link->doomed, &none, reason);
	return -REEF_ENOLINK;
}

static void set_blocked(struct tcp_link *link, bool blocked)
{
	if (link->blocked == blocked)
		return;
	/* If a full socket takes more, the peer is reading. */
	if (!blocked)
		tcp_link_stir(link);
	atomic_store(&link->blocked, blocked);
	tcp_watch_events(link);
}

/* End the batches that the socket has taken, on an accepted link. */
static void end_sent_batches(struct tcp_link *link)
{
	uint64_t sent = atomic_load_explicit(&link->sent, memory_order_relaxed);
	uint64_t ended =
		atomic_load_explicit(&link->ended, memory_order_relaxed);

	if (!link->base.listener || ended == sent)
		return;
	for (; ended != sent; ended++) {
		struct reef_batch *batch = batch_at(link, ended);
		struct tcp_watch *watch = (struct tcp_watch *)batch->scratch[0];

		for (uint32_t i = 0; i < batch->count; i++)
			batch->ops[i].status = 0;
		batch->status = 0;
		atomic_fetch_sub(&watch->under_way, 1);
		if (batch == link->posting) {
			batch->done = true;
			link->posting = NULL;
		} else {
			reef_batch_ended(NULL, batch);
		}
	}
	atomic_store(&link->ended, ended);
}

int tcp_flush(struct tcp_link *link)
{
	ssize_t n;
	int rc;

	/* A link that is broken, and lingers, still has its socket (7). */
	if (link->fd < 0 || atomic_load(&link->doomed) ||
	    atomic_load(&link->broken))
		return -REEF_ENOLINK;
	for (;;) {
		if (!has_output(link)) {
			end_sent_batches(link);
			rc = refill_out(link);
			if (rc < 0)
				return doom_link(link, rc);
			if (!has_output(link)) {
				/* What was borrowed is found sent only by
				 * refill_out. */
				end_sent_batches(link);
				return 0;
			}
		}
		n = write_socket(link);
		if (n < 0) {
			if (n != -EAGAIN)
				return doom_link(link, -REEF_ENOLINK);
			set_blocked(link, true);
			return -EAGAIN;
		}
		set_blocked(link, false);
		drop_sent(link, (size_t)n);
	}
}

int tcp_control_locked(struct tcp_link *link, uint8_t type, uint64_t tag,
		       const void *payload, uint32_t length)
{
	int rc = reef_fifo_reserve(
		&link->control, REEF_FRAME_HEADER_SIZE + length, CONTROL_MAX);

	if (rc < 0)
		return rc;
	reef_frame_header_encode(&(struct reef_frame_header){.type = type,
							     .tag = tag,
							     .length = length},
				 link->control.bytes + link->control.end);
	link->control.end += REEF_FRAME_HEADER_SIZE;
	if (length)
		memcpy(link->control.bytes + link->control.end, payload,
		       length);
	link->control.end += length;
	if (!link->blocked)
		tcp_flush(link);
	return 0;
}

int tcp_control(struct tcp_link *link, uint8_t type, uint64_t tag,
		const void *payload, uint32_t length)
{
	int rc;

	pthread_mutex_lock(&link->tx_lock);
	rc = tcp_control_locked(link, type, tag, payload, length);
	pthread_mutex_unlock(&link->tx_lock);
	return rc;
}

/* --- posting --- */

static int reason_down(const struct tcp_link *link)
{
	return atomic_load(&link->broken) == -REEF_EFENCED ? -REEF_EFENCED
							   : -REEF_ENOLINK;
}

/* Take the batch that was posted last back, if nothing of it has gone out.
 * Returns why it cannot be posted.  0: some of it has gone out, and it stays.
 */
static int unpost_batch(struct tcp_link *link, struct tcp_watch *watch,
			uint64_t number)
{
	if (atomic_load_explicit(&link->sent, memory_order_relaxed) != number ||
	    link->batch_begun)
		return 0;
	atomic_store_explicit(&link->posted, number, memory_order_relaxed);
	atomic_fetch_sub(&watch->under_way, 1);
	return reason_down(link);
}

static bool has_send(const struct reef_batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->ops[i].kind == REEF_SEND)
			return true;
	return false;
}

/* Fibers that were woken together post one after the other before their thread
 * polls again: all of it can go in one system call, by whoever comes last or by
 * that poll. A peer that has done all that it was sent gets the first few
 * sooner, so that it works while the others here do: if all 16 of them waited
 * for each other, one side stood still while the other worked, and transactions
 * over loopback were half as quick. Of 4, 6, 8 and 12 six was the best. */
static bool may_send_later(const struct tcp_link *link,
			   const struct tcp_queue *queue,
			   const struct reef_batch *batch)
{
	uint64_t sent = atomic_load_explicit(&link->sent, memory_order_relaxed);
	bool is_idle = sent ==
		       atomic_load_explicit(&link->ended, memory_order_relaxed);

	return reef_fiber_self() && reef_fiber_sched() == queue->base.sched &&
	       reef_sched_has_ready(queue->base.sched) &&
	       !link->base.listener && !has_send(batch) &&
	       atomic_load_explicit(&link->posted, memory_order_relaxed) -
			       sent <
		       (is_idle ? WAITING_IDLE : WAITING_MAX);
}

static int post_locked(struct tcp_link *link, struct tcp_queue *queue,
		       struct reef_batch *batch)
{
	uint64_t number =
		atomic_load_explicit(&link->posted, memory_order_relaxed);
	/* Acquire: the slot that is about to be used was read for the last
	 * time; the partner is the release in receive.c. */
	uint64_t ended =
		atomic_load_explicit(&link->ended, memory_order_acquire);
	struct tcp_watch *watch;
	int rc;

	if (atomic_load(&link->broken) || link->fd < 0)
		return reason_down(link);
	if (number - ended >= link->fabric->base.options.depth_max)
		return -EAGAIN;
	watch = tcp_watch_get(queue, link);
	if (!watch)
		return -ENOMEM;
	if (number == ended)
		tcp_link_stir(link);
	atomic_fetch_add(&watch->under_way, 1);
	batch->scratch[0] = (uintptr_t)watch;
	link->ring[number & (link->ring_size - 1)] = batch;
	/* Release: the slot; the partner is the load in receive.c. */
	atomic_store_explicit(&link->posted, number + 1, memory_order_release);
	tcp_watch_activate(watch);
	if (link->blocked)
		return 0;
	if (may_send_later(link, queue, batch)) {
		queue->unsent += !watch->unsent;
		watch->unsent = true;
		return 0;
	}
	link->posting = batch;
	rc = tcp_flush(link);
	if (!link->posting)
		return 1;
	link->posting = NULL; /* it ends later, in a poll */
	return rc == -REEF_ENOLINK ? unpost_batch(link, watch, number) : 0;
}

int tcp_post(struct reef_layer *layer, struct reef_queue *queue,
	     struct reef_batch *batch)
{
	struct tcp_link *link = (struct tcp_link *)batch->link;
	int64_t size;
	int rc = reef_batch_check(queue, batch);

	(void)layer;
	if (rc < 0)
		return rc;
	size = request_size(link, batch);
	if (size < 0)
		return (int)size;
	pthread_mutex_lock(&link->tx_lock);
	rc = post_locked(link, (struct tcp_queue *)queue, batch);
	pthread_mutex_unlock(&link->tx_lock);
	return rc;
}
