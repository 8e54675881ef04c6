/* frames.c - what comes and goes over a link's socket.
 *
 * connected:  hello -> CONTROL awaited -> up: ATTACHED, WITHDRAW, MESSAGE, BELL
 * accepted:   hello -> up: ATTACH, DETACH, MESSAGE, RING, BELL
 *                   -> departing: DETACH
 * both:       PING, PONG, BYE
 *
 * A frame that cannot be handled yet (no room for its message, or for its
 * answer) is held, and nothing after it is read: the peer's socket fills up,
 * and only that peer waits. */
#include "fabric/shm/shm.h"
#include "wire/control.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Frames of one link that one poll handles, so that others get their turn. */
#define FRAMES_PER_SERVE 256

int shm_send_key(struct shm_link *link, uint8_t type, uint64_t tag,
		 uint64_t key)
{
	uint8_t bytes[REEF_WIRE_KEY_SIZE];
	struct iovec part = {bytes, sizeof(bytes)};

	reef_wire_key_encode(key, bytes);
	return reef_stream_send(link->stream, type, tag, &part, 1, -1);
}

void shm_link_interest(struct shm_link *link)
{
	struct shm_queue *queue = (struct shm_queue *)link->link.queue;
	struct epoll_event event = {0};
	int fd, operation;

	if (!link->stream || !queue)
		return;
	fd = reef_stream_fd(link->stream);
	event.data.fd = fd;
	if (link->is_deaf)
		event.events = EPOLLRDHUP;
	else if (!link->has_held)
		event.events = EPOLLIN;
	if (link->pending || reef_stream_wants_write(link->stream))
		event.events |= EPOLLOUT;
	if (event.events == link->interest)
		return;
	/* Interest in nothing would still report a hang-up, again and again. */
	operation = !event.events    ? EPOLL_CTL_DEL
		    : link->interest ? EPOLL_CTL_MOD
				     : EPOLL_CTL_ADD;
	if (!epoll_ctl(queue->queue.fd, operation, fd, &event))
		link->interest = event.events;
	if (link->has_held)
		atomic_store(&shm_of(link->link.fabric)->restless, true);
}

/* --- opening --- */

static void note_opened(struct shm_queue *polling, struct shm_link *link)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);

	if (link->is_accepted) {
		shm->half_open--;
		link->peer->half_open--;
	}
	reef_link_opened(&polling->queue, &link->link);
	if (link->wants_ring)
		shm_ring_ask(link);
}

/* Take the next step of a link's hello. 0: the link is up, or waits for
 * CONTROL. -EAGAIN: the peer has to answer first. */
static int step_hello(struct shm_queue *polling, struct shm_link *link)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);
	struct reef_hello_peer peer;
	int rc;

	rc = reef_hello_step(link->hello, &peer);
	if (rc)
		return rc;
	reef_hello_destroy(link->hello);
	link->hello = NULL;
	link->peer_message_max = peer.message_max;
	if (!link->is_accepted)
		return 0;
	link->link.control = &link->quiet;
	rc = shm_control_send(shm, link);
	if (rc)
		return rc == -EAGAIN ? -REEF_ENOLINK : rc;
	note_opened(polling, link);
	return 0;
}

/* --- frames --- */

static int on_message(struct shm_queue *polling, struct shm_link *link,
		      const struct reef_frame *frame)
{
	int rc;

	if (frame->length > link->link.fabric->options.message_max)
		return -REEF_EPROTO;
	rc = shm_ring_take_before(polling, link, frame->tag);
	if (rc)
		return rc;
	rc = reef_message_arrived(&polling->queue, &link->link, frame->payload,
				  frame->length);
	/* In a connected link the count is of messages sent. */
	if (!rc && link->is_accepted)
		link->streamed_count++;
	return rc == -ENOSPC ? -EAGAIN : rc;
}

/* Handle a frame that either side may send. */
static int on_frame_both(struct shm_link *link, const struct reef_frame *frame)
{
	struct iovec part = {(void *)frame->payload, frame->length};

	switch (frame->type) {
	case REEF_FRAME_PING:
		if (frame->length > REEF_HELLO_FRAME_MAX)
			return -REEF_EPROTO;
		return reef_stream_send(link->stream, REEF_FRAME_PONG,
					frame->tag, &part,
					frame->length ? 1 : 0, -1);
	case REEF_FRAME_PONG:
		return 0;
	case REEF_FRAME_BYE:
		return reef_frame_bye_reason(frame);
	default:
		return -REEF_EPROTO;
	}
}

static int on_frame_connected(struct shm_queue *polling, struct shm_link *link,
			      const struct reef_frame *frame)
{
	int rc;

	if (atomic_load(&link->link.state) == REEF_LINK_OPENING) {
		rc = frame->type == REEF_FRAME_BYE
			     ? reef_frame_bye_reason(frame)
			     : shm_control_receive(link, frame);
		if (!rc)
			note_opened(polling, link);
		return rc;
	}
	if (frame->type == REEF_FRAME_ATTACHED)
		return shm_on_attached(polling, link, frame);
	if (frame->fd >= 0)
		return -REEF_EPROTO;
	if (frame->type == REEF_FRAME_BELL)
		return shm_ring_on_bell(link, frame);
	if (frame->type == REEF_FRAME_WITHDRAW)
		return shm_on_withdraw(link, frame);
	if (frame->type == REEF_FRAME_MESSAGE)
		return on_message(polling, link, frame);
	return on_frame_both(link, frame);
}

static int on_frame_accepted(struct shm_queue *polling, struct shm_link *link,
			     const struct reef_frame *frame)
{
	if (frame->fd >= 0 && frame->type != REEF_FRAME_RING)
		return -REEF_EPROTO;
	if (frame->type == REEF_FRAME_DETACH)
		return shm_on_detach(link, frame);
	/* What a link had sent before it ended or was fenced has no effect when
	 * it is read after that (F5, F7). */
	if (link->ending || link->fenced)
		return 0;
	if (frame->type == REEF_FRAME_ATTACH)
		return shm_on_attach(link, frame);
	if (frame->type == REEF_FRAME_RING)
		return shm_ring_on_ask(polling, link, frame);
	if (frame->type == REEF_FRAME_BELL)
		return shm_ring_on_bell(link, frame);
	if (frame->type == REEF_FRAME_MESSAGE)
		return on_message(polling, link, frame);
	return on_frame_both(link, frame);
}

/* Handle the held frame, or the next one.  1: that was done.  0: there is none
 * that can be handled now.  Negative: the link must end. */
static int handle_frame(struct shm_queue *polling, struct shm_link *link)
{
	struct reef_frame *frame = &link->held;
	int rc;

	if (!link->has_held) {
		rc = reef_stream_receive(link->stream, frame);
		if (rc == -REEF_ENOLINK)
			link->at_end = true;
		if (rc)
			return rc == -EAGAIN ? 0 : rc;
	}
	if (link->is_accepted)
		rc = on_frame_accepted(polling, link, frame);
	else
		rc = on_frame_connected(polling, link, frame);
	link->has_held = rc == -EAGAIN;
	if (link->has_held)
		return 0;
	if (frame->fd >= 0)
		close(frame->fd);
	return rc ? rc : 1;
}

/* --- output --- */

/* Go on with the batches of a link that wait at a SEND, as far as the socket
 * has room. */
static int resume_pending(struct shm_queue *polling, struct shm_link *link)
{
	struct reef_batch *batch;
	int count = 0;

	while ((batch = link->pending)) {
		if (reef_stream_flush(link->stream))
			break;
		if (batch->scratch[1])
			batch->ops[batch->scratch[0]].status = 0;
		if (shm_run_ops(
			    polling, batch,
			    (uint32_t)(batch->scratch[0] + batch->scratch[1]),
			    true))
			break;
		link->pending = batch->next;
		if (!link->pending)
			link->pending_tail = &link->pending;
		link->pending_count--;
		link->moved_ns = reef_now_ns();
		reef_batch_ended(&polling->queue, batch);
		count++;
	}
	return count;
}

/* Handle the frames that the socket has. *freed: the link was departing, its
 * peer has left, and the link is freed. */
static int handle_input(struct shm_queue *polling, struct shm_link *link,
			bool *freed)
{
	int rc = 0, count = 0;

	link->has_more = false;
	while (link->stream && count < FRAMES_PER_SERVE) {
		rc = handle_frame(polling, link);
		if (rc <= 0)
			break;
		count++;
		/* A later frame is an event of its own. But a dead peer's
		 * socket may never be read again, and the frame may have been
		 * held since the last read: there the socket is read to its
		 * end. */
		if (link->stream && !link->peer->dead &&
		    reef_stream_is_drained(link->stream)) {
			rc = 0;
			break;
		}
	}
	if (!link->stream)
		return count;
	if (rc < 0 && rc != -REEF_EPROTO &&
	    shm_ring_delays_end(polling, link, &count))
		rc = 1; /* the end is handled in a later poll */
	if (rc < 0) {
		/* A peer that sent nonsense may still have memory mapped: only
		 * the end of its socket says that it has not. */
		link->is_deaf = true;
		*freed = link->departing && link->at_end;
		shm_link_end(polling, link, rc, link->at_end);
		return count + 1;
	}
	if (rc > 0) {
		link->has_more = true;
		atomic_store(&shm_of(link->link.fabric)->restless, true);
	}
	return count;
}

bool shm_link_has_hung_up(const struct shm_link *link)
{
	struct pollfd pollfd = {
		.fd = reef_stream_fd(link->stream),
		.events = POLLRDHUP,
	};

	return poll(&pollfd, 1, 0) == 1;
}

int shm_link_serve(struct shm_queue *polling, struct shm_link *link)
{
	bool freed = false;
	int rc, count = 0;

	if (!link->stream)
		return 0;
	if (link->is_deaf) {
		if (shm_link_has_hung_up(link))
			shm_link_end(polling, link, -REEF_ENOLINK, true);
		return 0;
	}
	if (link->hello) {
		rc = step_hello(polling, link);
		if (rc && rc != -EAGAIN) {
			shm_link_end(polling, link, rc, true);
			return 1;
		}
		shm_link_interest(link);
		if (rc)
			return 0;
		/* Further frames of the link are for the next poll: its user is
		 * told that it opened before anything else, even if the peer
		 * has gone again. */
		if (link->is_accepted) {
			link->has_more = true;
			atomic_store(&shm_of(link->link.fabric)->restless,
				     true);
			return 1;
		}
		count++;
	}
	rc = reef_stream_flush(link->stream);
	if (!rc && !link->ending)
		count += resume_pending(polling, link);
	/* Input is read even after a failed flush: it may have a BYE. */
	count += handle_input(polling, link, &freed);
	if (freed)
		return count;
	if (link->unsettled)
		shm_remotes_settle(link);
	shm_link_interest(link);
	return count;
}
