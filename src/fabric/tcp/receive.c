/* receive.c - what comes in on a link.
 *
 *            BATCH            executed
 *   HEADER --------> BATCH ------------> HEADER      the target's part
 *          --------> MESSAGE ----------> HEADER
 *          --------> RESULTS -> TAIL --> HEADER      PART has no tail
 *          --------> CONTROL ----------> HEADER
 *
 * Bytes are read into `in`, except for long results of READs, which the kernel
 * (or TLS) puts where they belong. Input stays in the buffer while answers do
 * not go out (stalled) or an inbox is full (paused).
 */
#include "fabric/tcp/tcp.h"

#include "wire/bytes.h"
#include "wire/control.h"

#include <sys/socket.h>

#define IN_FIRST (64u << 10)
#define DIRECT_MIN (8u << 10) /* results that are read in place */
#define DIRECT_PARTS 16
#define BEHIND 512
#define ROUNDS 16 /* of reading, before others get their turn */
#define KEEP (256u << 10)

/* --- results of our own batches --- */

static struct reef_batch *head_batch(const struct tcp_link *link)
{
	uint64_t ended =
		atomic_load_explicit(&link->ended, memory_order_relaxed);

	/* Acquire: the slot; the partner is the release in tcp_post. */
	if (ended == atomic_load_explicit(&link->posted, memory_order_acquire))
		return NULL;
	return link->ring[ended & (link->ring_size - 1)];
}

static uint32_t result_size(const struct reef_op *op)
{
	if (op->kind == REEF_READ)
		return op->length;
	return op->kind == REEF_CAS || op->kind == REEF_FAA ? 8 : 0;
}

static uint32_t results_left(const struct tcp_link *link)
{
	return link->header.type == REEF_FRAME_BATCH_DONE
		       ? link->header_left - REEF_WIRE_DONE_SIZE
		       : link->header_left;
}

/* The operation that the next result belongs to.  NULL: no operation expects
 * one. */
static struct reef_op *next_result_op(struct tcp_link *link,
				      struct reef_batch *batch)
{
	while (link->result_op < batch->count) {
		struct reef_op *op = &batch->ops[link->result_op];

		if (link->result_moved < result_size(op))
			return op;
		link->result_op++;
		link->result_moved = 0;
	}
	return NULL;
}

static int begin_results(struct tcp_link *link)
{
	uint32_t least = link->header.type == REEF_FRAME_BATCH_DONE
				 ? REEF_WIRE_DONE_SIZE
				 : 1;

	if (link->header.length < least ||
	    link->header.length > REEF_WIRE_PART_MAX)
		return -REEF_EPROTO;
	if (link->base.listener || !head_batch(link) ||
	    link->header.tag !=
		    atomic_load_explicit(&link->ended, memory_order_relaxed))
		return -REEF_EPROTO;
	link->input = TCP_RESULTS;
	return 0;
}

static void take_input(struct tcp_link *link, size_t size)
{
	reef_fifo_take(&link->in, size);
	link->header_left -= (uint32_t)size;
}

static int digest_results(struct tcp_link *link)
{
	struct reef_batch *batch = head_batch(link);
	const uint8_t *bytes = link->in.bytes + link->in.start;
	uint32_t left = results_left(link), size;
	size_t there = reef_fifo_used(&link->in);
	struct reef_op *op;

	if (left == 0) {
		link->input = link->header_left ? TCP_TAIL : TCP_HEADER;
		return 0;
	}
	op = next_result_op(link, batch);
	if (!op)
		return -REEF_EPROTO;
	if (op->kind != REEF_READ) {
		if (left < 8)
			return -REEF_EPROTO;
		if (there < 8)
			return -EAGAIN;
		op->result = reef_get64(bytes);
		size = 8;
	} else {
		size = op->length - link->result_moved;
		if (size > left)
			size = left;
		if (size > there)
			size = (uint32_t)there;
		if (size == 0)
			return -EAGAIN;
		memcpy((uint8_t *)op->local + link->result_moved, bytes, size);
	}
	link->result_moved += size;
	take_input(link, size);
	return 0;
}

/* True if the results that came are exactly those of the first `done`
 * operations. */
static bool results_fit(struct tcp_link *link, struct reef_batch *batch,
			uint32_t done)
{
	next_result_op(link, batch);
	if (link->result_op < done || link->result_moved)
		return false;
	for (uint32_t i = done; i < link->result_op; i++)
		if (result_size(&batch->ops[i]))
			return false;
	return true;
}

/* True if all of the batch has been sent. The answer may come before the thread
 * that sent the last bytes has noted so; but that thread has the lock. */
static bool is_sent(struct tcp_link *link, uint64_t number)
{
	/* Acquire: no byte of it is being sent; the partner is the release in
	 * send.c. */
	if (atomic_load_explicit(&link->sent, memory_order_acquire) > number)
		return true;
	pthread_mutex_lock(&link->tx_lock);
	pthread_mutex_unlock(&link->tx_lock);
	return atomic_load_explicit(&link->sent, memory_order_acquire) > number;
}

static int digest_tail(struct tcp_link *link)
{
	struct reef_batch *batch = head_batch(link);
	uint64_t number =
		atomic_load_explicit(&link->ended, memory_order_relaxed);
	struct tcp_watch *watch = (struct tcp_watch *)batch->scratch[0];
	struct reef_wire_done done;

	if (reef_fifo_used(&link->in) < REEF_WIRE_DONE_SIZE)
		return -EAGAIN;
	if (reef_wire_done_decode(link->in.bytes + link->in.start, batch->count,
				  &done) < 0 ||
	    !results_fit(link, batch, done.done))
		return -REEF_EPROTO;
	if (!is_sent(link, number))
		return -REEF_EPROTO;
	take_input(link, REEF_WIRE_DONE_SIZE);
	for (uint32_t i = 0; i < done.done; i++)
		batch->ops[i].status = 0;
	batch->status = 0;
	if (done.status)
		reef_batch_fail(batch, done.done, done.status);
	link->result_op = 0;
	link->result_moved = 0;
	link->input = TCP_HEADER;
	/* Release: the slot is free; the partner is the acquire in tcp_post. */
	atomic_store_explicit(&link->ended, number + 1, memory_order_release);
	atomic_fetch_sub(&watch->under_way, 1);
	link->passed_on |= batch->queue != link->polling;
	reef_batch_ended(link->polling, batch);
	link->happened++;
	return 0;
}

/* --- control --- */

static const struct {
	bool known;
	bool from_connector, from_acceptor;
	uint32_t length;
} controls[REEF_FRAME_TYPES] = {
	[REEF_FRAME_BYE] = {true, true, true, REEF_WIRE_BYE_SIZE},
	[REEF_FRAME_PING] = {true, true, true, 0},
	[REEF_FRAME_PONG] = {true, true, true, 0},
	[REEF_FRAME_ATTACH] = {true, true, false, REEF_WIRE_KEY_SIZE},
	[REEF_FRAME_ATTACHED] = {true, false, true, REEF_WIRE_ATTACHED_SIZE},
	[REEF_FRAME_WITHDRAW] = {true, false, true, REEF_WIRE_KEY_SIZE},
	[REEF_FRAME_DETACH] = {true, true, false, REEF_WIRE_KEY_SIZE},
};

static int begin_control(struct tcp_link *link)
{
	uint8_t type = link->header.type;

	if (!controls[type].known ||
	    link->header.length != controls[type].length ||
	    !(link->base.listener ? controls[type].from_connector
				  : controls[type].from_acceptor))
		return -REEF_EPROTO;
	link->input = TCP_CONTROL;
	return 0;
}

static int decode_bye(struct tcp_link *link, const uint8_t *payload)
{
	int reason;

	(void)link;
	if (reef_wire_bye_decode(payload, REEF_WIRE_BYE_SIZE, &reason) < 0)
		return -REEF_EPROTO;
	return reason;
}

static int digest_control(struct tcp_link *link)
{
	const uint8_t *payload = link->in.bytes + link->in.start;
	int rc = 0;

	if (reef_fifo_used(&link->in) < link->header.length)
		return -EAGAIN;
	switch (link->header.type) {
	case REEF_FRAME_BYE:
		rc = decode_bye(link, payload);
		break;
	case REEF_FRAME_PING:
		rc = tcp_control(link, REEF_FRAME_PONG, link->header.tag, NULL,
				 0);
		break;
	case REEF_FRAME_ATTACH:
		rc = tcp_on_attach(link, payload);
		break;
	case REEF_FRAME_ATTACHED:
		rc = tcp_on_attached(link, payload);
		break;
	case REEF_FRAME_WITHDRAW:
		rc = tcp_on_withdraw(link, payload);
		break;
	case REEF_FRAME_DETACH:
		rc = tcp_on_detach(link, payload);
		break;
	}
	take_input(link, link->header.length);
	link->input = TCP_HEADER;
	/* A peer that asks for so much and reads nothing plays foul. */
	return rc == -ENOBUFS ? -REEF_EPROTO : rc;
}

/* --- frames --- */

static int begin_message(struct tcp_link *link)
{
	if (link->base.listener || link->header.tag ||
	    link->header.length > link->fabric->base.options.message_max)
		return -REEF_EPROTO;
	link->input = TCP_MESSAGE;
	return 0;
}

static int digest_message(struct tcp_link *link)
{
	int rc;

	if (reef_fifo_used(&link->in) < link->header.length)
		return -EAGAIN;
	rc = link->target.message(link, link->in.bytes + link->in.start,
				  link->header.length);
	if (rc < 0)
		return rc;
	take_input(link, link->header.length);
	link->input = TCP_HEADER;
	return 0;
}

static int begin_batch(struct tcp_link *link)
{
	if (!link->base.listener)
		return -REEF_EPROTO;
	/* Whether it is fenced or ended is asked on every frame (F7, F10). */
	if (reef_fences_cover(&link->fabric->fences, link->base.session))
		return -REEF_EFENCED;
	if (atomic_load_explicit(&link->is_over, memory_order_relaxed))
		return -REEF_ENOLINK;
	link->input = TCP_BATCH;
	return tcp_target_begin(&link->target, link->header.tag,
				link->header.length);
}

static int digest_header(struct tcp_link *link)
{
	int rc;

	if (reef_fifo_used(&link->in) < REEF_FRAME_HEADER_SIZE)
		return -EAGAIN;
	rc = reef_frame_header_decode(link->in.bytes + link->in.start,
				      &link->header);
	if (rc < 0 || link->header.flags)
		return -REEF_EPROTO;
	reef_fifo_take(&link->in, REEF_FRAME_HEADER_SIZE);
	link->header_left = link->header.length;
	switch (link->header.type) {
	case REEF_FRAME_BATCH:
		return begin_batch(link);
	case REEF_FRAME_MESSAGE:
		return begin_message(link);
	case REEF_FRAME_BATCH_PART:
	case REEF_FRAME_BATCH_DONE:
		return begin_results(link);
	default:
		return begin_control(link);
	}
}

static int digest_batch(struct tcp_link *link)
{
	size_t used;
	int rc = tcp_target_feed(&link->target, link->in.bytes + link->in.start,
				 reef_fifo_used(&link->in), &used);

	take_input(link, used);
	if (rc == 0) {
		link->input = TCP_HEADER;
		link->happened++;
	}
	return rc;
}

/* Act on what is in the buffer, as far as it goes. Returns why it goes no
 * further: -EAGAIN: more bytes are needed; or what the target returns; or why
 * the link has to end. */
static int digest_input(struct tcp_link *link)
{
	int rc;

	do {
		switch (link->input) {
		case TCP_HEADER:
			rc = digest_header(link);
			break;
		case TCP_CONTROL:
			rc = digest_control(link);
			break;
		case TCP_BATCH:
			rc = digest_batch(link);
			break;
		case TCP_MESSAGE:
			rc = digest_message(link);
			break;
		case TCP_RESULTS:
			rc = digest_results(link);
			break;
		default:
			rc = digest_tail(link);
		}
	} while (rc == 0);
	return rc;
}

/* --- reading --- */

/* List the memory that the next results belong to, as far as they are those of
 * long READs. Returns how many places. */
static int list_places(struct tcp_link *link, struct iovec *parts)
{
	struct reef_batch *batch;
	uint32_t left, size, op, moved;
	int count = 0;

	if (link->input != TCP_RESULTS || reef_fifo_used(&link->in) ||
	    results_left(link) < DIRECT_MIN)
		return 0;
	batch = head_batch(link);
	left = results_left(link);
	op = link->result_op;
	moved = link->result_moved;
	for (; left && op < batch->count && count < DIRECT_PARTS; op++) {
		size = result_size(&batch->ops[op]) - moved;
		if (size && batch->ops[op].kind != REEF_READ)
			break;
		if (size > left)
			size = left;
		if (size)
			parts[count++] = (struct iovec){
				(uint8_t *)batch->ops[op].local + moved, size};
		left -= size;
		moved = 0;
	}
	return count;
}

/* Note that `n` bytes were read into the listed places. *n: what was read
 * behind them. */
static void note_placed(struct tcp_link *link, const struct iovec *parts,
			int count, size_t *n)
{
	for (int i = 0; i < count && *n; i++) {
		size_t size = *n < parts[i].iov_len ? *n : parts[i].iov_len;

		next_result_op(link, head_batch(link));
		link->result_moved += (uint32_t)size;
		link->header_left -= (uint32_t)size;
		*n -= size;
	}
}

static int make_room(struct tcp_link *link)
{
	struct reef_fifo *in = &link->in;

	if (in->start == in->end)
		reef_fifo_trim(in, KEEP);
	if (in->size - in->end >= IN_FIRST / 4)
		return 0;
	/* Bounded by the longest message or table of operations, after which
	 * the target does not ask for more. */
	return reef_fifo_reserve(in,
				 in->size < IN_FIRST ? IN_FIRST : in->size / 2,
				 SIZE_MAX / 2);
}

/* Read from the socket into the parts. *drained: there was no more than that.
 * -EAGAIN: there was nothing.  Else: it is lost. */
static ssize_t read_socket(struct tcp_link *link, struct iovec *parts,
			   int count, bool *drained)
{
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
	size_t most = 0;
	ssize_t n;

	do {
		if (count > 1)
			n = recvmsg(link->fd, &message, MSG_DONTWAIT);
		else
			n = recv(link->fd, parts[0].iov_base, parts[0].iov_len,
				 MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	for (int i = 0; i < count; i++)
		most += parts[i].iov_len;
	*drained = n < 0 ? errno == EAGAIN || errno == EWOULDBLOCK
			 : (size_t)n < most;
	if (n <= 0)
		return n < 0 && *drained ? -EAGAIN : -REEF_ENOLINK;
	return n;
}

/* Read once. Without from_socket only what TLS has read from it already, which
 * epoll does not tell of. *drained as above. */
static int read_once(struct tcp_link *link, bool from_socket, bool *drained)
{
	struct iovec parts[DIRECT_PARTS + 1];
	int count = list_places(link, parts);
	size_t got;
	ssize_t n;
	int rc = make_room(link);

	if (rc < 0)
		return rc;
	parts[count] = (struct iovec){link->in.bytes + link->in.end,
				      link->in.size - link->in.end};
	/* Long results are followed, if by anything, by the head of more. */
	if (count)
		parts[count].iov_len = BEHIND;
	if (link->tls)
		n = reef_tls_receive(link->tls, parts, count + 1, from_socket,
				     drained);
	else
		n = read_socket(link, parts, count + 1, drained);
	if (n < 0)
		return (int)n;
	got = (size_t)n;
	note_placed(link, parts, count, &got);
	link->in.end += got;
	return 0;
}

/* --- answers --- */

/* Send the answers that wait. They join what is being sent between two frames.
 * Returns how many bytes wait now. */
static size_t send_replies(struct tcp_link *link)
{
	struct reef_fifo *reply = &link->target.reply;
	size_t waiting;

	if (!reef_fifo_used(reply) && !link->blocked)
		return 0;
	pthread_mutex_lock(&link->tx_lock);
	while (tcp_flush(link) == 0 && reef_fifo_used(reply)) {
		reef_fifo_trim(&link->out, KEEP);
		reef_fifo_swap(&link->out, reply);
	}
	waiting = reef_fifo_used(&link->out) + reef_fifo_used(reply) +
		  (link->tls ? reef_tls_unsent(link->tls) : 0);
	pthread_mutex_unlock(&link->tx_lock);
	return waiting;
}

/* Count the answers that wait, and say how many may (8). */
static void count_answers(struct tcp_link *link, size_t waiting)
{
	struct tcp_fabric *fabric = link->fabric;
	uint64_t all;

	if (waiting != link->answers)
		atomic_fetch_add_explicit(&fabric->answers,
					  waiting - link->answers,
					  memory_order_relaxed);
	link->answers = waiting;
	all = atomic_load_explicit(&fabric->answers, memory_order_relaxed);
	link->target.answers_max = all < fabric->base.options.answers_max
					   ? TCP_ANSWERS_MAX
					   : TCP_ANSWERS_LEAST;
}

static void set_stalled_paused(struct tcp_link *link, bool stalled, bool paused)
{
	struct tcp_queue *owner = (struct tcp_queue *)link->base.queue;

	if (link->stalled == stalled && link->paused == paused)
		return;
	pthread_mutex_lock(&link->tx_lock);
	if (paused && !link->paused)
		atomic_fetch_add(&owner->paused, 1);
	if (!paused && link->paused)
		atomic_fetch_sub(&owner->paused, 1);
	atomic_store(&link->stalled, stalled);
	atomic_store(&link->paused, paused);
	tcp_watch_events(link);
	pthread_mutex_unlock(&link->tx_lock);
}

/* Act on what was read, and answer.  -EAGAIN: more can be read.  0: not now.
 * Otherwise why the link has to end. */
static int digest_and_answer(struct tcp_link *link)
{
	int rc, rounds = 0;

	/* A link also stalls when its peer takes answers as fast as they come
	 * and has had its turn. Then the socket is writable, and the link goes
	 * on with the next poll. */
	do {
		rc = digest_input(link);
		count_answers(link, send_replies(link));
	} while (rc == -ENOBUFS && ++rounds < ROUNDS &&
		 reef_fifo_used(&link->target.reply) <
			 link->target.answers_max);
	set_stalled_paused(link, rc == -ENOBUFS, rc == -ENOSPC);
	link->happened += rounds;
	if (rc == -ENOBUFS)
		return atomic_load(&link->doomed);
	return rc == -ENOSPC ? 0 : rc;
}

/* Read from the link and act on it. Returns 0, or why the link has to end. */
static int read_and_act(struct tcp_link *link)
{
	bool drained = false;
	int rc = digest_and_answer(link), i;

	for (i = 0; rc == -EAGAIN && !drained && (i < ROUNDS || link->tls);
	     i++) {
		rc = read_once(link, i < ROUNDS, &drained);
		if (rc < 0)
			break;
		tcp_link_stir(link);
		link->happened++;
		rc = digest_and_answer(link);
	}
	if (rc != -EAGAIN)
		return rc;
	/* All that the peer said before it went has been read. */
	return drained && (i < ROUNDS || !link->tls)
		       ? atomic_load(&link->doomed)
		       : 0;
}

/* Note whether a frame has come halfway, and it is the peer who does not go on.
 */
static void note_halfway(struct tcp_link *link)
{
	bool is_halfway =
		(link->input != TCP_HEADER || reef_fifo_used(&link->in)) &&
		!link->stalled && !link->paused;

	if (is_halfway !=
	    atomic_load_explicit(&link->is_halfway, memory_order_relaxed))
		atomic_store_explicit(&link->is_halfway, is_halfway,
				      memory_order_relaxed);
}

/* How much happened, as the queue that has just read is to count it. An owner
 * that waits for nothing itself is not kept awake by the answers of others
 * (what else came for it the core knows). */
static int count_happened(struct tcp_link *link)
{
	bool is_owners = link->polling == link->base.queue;
	uint32_t others;

	if (!link->happened ||
	    (is_owners &&
	     (!link->passed_on || atomic_load(&link->watch->under_way))))
		return link->happened;
	others = atomic_load_explicit(&link->others, memory_order_relaxed);
	atomic_store_explicit(&link->others, others + 1, memory_order_relaxed);
	return is_owners ? 0 : link->happened;
}

int tcp_receive(struct tcp_link *link, struct reef_queue *polling)
{
	int rc, happened;

	if (pthread_mutex_trylock(&link->rx_lock))
		return 0;
	if (atomic_load(&link->broken)) {
		pthread_mutex_unlock(&link->rx_lock);
		return 0;
	}
	link->polling = polling;
	link->happened = 0;
	link->passed_on = false;
	rc = read_and_act(link);
	note_halfway(link);
	if (rc < 0) {
		pthread_mutex_lock(&link->tx_lock);
		tcp_link_break_locked(link, polling, rc,
				      rc == -REEF_EPROTO ||
					      rc == -REEF_EFENCED ||
					      rc == -ENOMEM);
		pthread_mutex_unlock(&link->tx_lock);
		link->happened++;
	}
	happened = count_happened(link);
	pthread_mutex_unlock(&link->rx_lock);
	return happened;
}

void tcp_receive_rest(struct tcp_link *link)
{
	bool has_rest;

	/* Another thread may be fencing it. */
	pthread_mutex_lock(&link->rx_lock);
	has_rest = reef_fifo_used(&link->in) ||
		   (link->tls && reef_tls_has_more(link->tls));
	pthread_mutex_unlock(&link->rx_lock);
	if (has_rest)
		tcp_receive(link, link->base.queue);
}
