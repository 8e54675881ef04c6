/* channel.c - the control channel of a link, and its end. How it opens: open.c.
 *
 *   connector:
 *     CONNECTING --connected--> HELLO --welcomed, QUEUE_PAIR sent--> PAIRING
 *     PAIRING --QUEUE_PAIR came, CREDIT 0 sent--> UP
 *   acceptor:
 *     HELLO --admitted, welcomed--> PAIRING
 *     PAIRING --QUEUE_PAIR came, own one sent--> READYING --CREDIT came--> UP
 *     UP --break, settle--> DRAINING --all it sent is in the inbox--> LOST
 *   both, else:
 *     any --break, settle or reap--> LOST
 *
 * (1) Up to HELLO a link is its queue's alone; others, who may find it once it
 *     is admitted, only mark it (break). From PAIRING on its hub's lock covers
 *     it.
 * (2) A link's queue reads its channel, or, locked and once it is UP, whoever
 *     waits for an answer there; anyone may write, locked.
 * (3) An acceptor is UP only when the connector is ready to receive: what it
 *     sends at once would otherwise be lost, and retried much later. */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTED_SEND_MAX 64u /* who accepts only sends messages */
#define LAST_WORDS_MAX 64

/* --- making and freeing --- */

struct verbs_link *verbs_link_create(struct verbs_queue *queue,
				     struct verbs_listener *listener, int fd,
				     uint64_t timeout_ns)
{
	struct verbs_link *link;

	link = calloc(1, sizeof(*link));
	if (!link)
		return NULL;
	link->link.fabric = &queue->fabric->fabric;
	link->link.queue = &queue->queue;
	link->link.listener = listener ? &listener->listener : NULL;
	atomic_init(&link->link.state, REEF_LINK_OPENING);
	link->source.kind = VERBS_SOURCE_LINK;
	link->owner = queue;
	link->fd = fd;
	link->deadline_ns = reef_now_ns() + timeout_ns;
	link->newest = &link->oldest;
	link->send_max = listener ? ACCEPTED_SEND_MAX : queue->fabric->send_max;
	link->is_opening = link->is_private = true;
	link->next = queue->links;
	queue->links = link;
	queue->opening++;
	verbs_queue_timer(queue);
	return link;
}

void verbs_link_opened(struct verbs_link *link)
{
	if (!link->is_opening)
		return;
	link->is_opening = false;
	link->owner->opening--;
}

static void unlink_from_queue(struct verbs_link *link)
{
	struct verbs_link **at = &link->owner->links;

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
}

static void free_link(struct verbs_link *link)
{
	reef_assert(link->phase == VERBS_LOST);
	verbs_pair_free(link);
	verbs_remote_free(link);
	verbs_hub_leave(link);
	free(link->message);
	free(link);
}

/* --- ending --- */

void verbs_link_break(struct verbs_link *link, int reason)
{
	if (link->broken)
		return;
	link->broken = reason;
	if (link->phase <= VERBS_HELLO) {
		atomic_fetch_add(&link->owner->lost, 1);
		reef_queue_wake(&link->owner->queue);
		return;
	}
	reef_assert(link->hub);
	link->next_broken = link->hub->broken;
	link->hub->broken = link;
}

/* Why the link ends, as far as is known. A peer that ends a link says so on the
 * channel, but that its queue pair is gone may be noticed before. */
static int read_last_words(struct verbs_link *link)
{
	struct reef_frame frame;
	int i;

	for (i = 0; i < LAST_WORDS_MAX; i++) {
		if (reef_stream_receive(link->stream, &frame))
			break;
		if (frame.type == REEF_FRAME_BYE)
			return reef_frame_bye_reason(&frame);
	}
	return link->broken;
}

/* Closing is not enough: a forked child may have the socket open. Then the peer
 * would not hear of it, and the queue of a link that was freed. */
static void close_channel(struct verbs_link *link)
{
	int fd = link->stream ? reef_stream_fd(link->stream) : link->fd;

	verbs_queue_unwatch(link->owner, fd);
	shutdown(fd, SHUT_RDWR);
	if (link->stream)
		reef_stream_destroy(link->stream);
	else
		close(fd);
	link->stream = NULL;
}

void verbs_link_finish(struct verbs_link *link, struct verbs_queue *polling)
{
	if (link->stream && link->broken == -REEF_ENOLINK)
		link->broken = read_last_words(link);
	else if (link->stream && !link->is_silent)
		reef_stream_bye(link->stream, link->broken);
	reef_hello_destroy(link->hello);
	link->hello = NULL;
	close_channel(link);
	verbs_target_release(link);
	verbs_remote_lost(link, polling);
	if (!link->link.listener) {
		link->phase = VERBS_LOST;
		reef_link_ended(&polling->queue, &link->link, link->broken);
		return;
	}
	if (link->phase != VERBS_UP || link->is_expelled)
		link->arrived_count = 0;
	link->phase = VERBS_DRAINING;
	verbs_receive_deliver(link, polling);
}

void verbs_link_drained(struct verbs_link *link, struct verbs_queue *polling)
{
	verbs_hub_unlist(link);
	link->phase = VERBS_LOST;
	atomic_fetch_add(&link->owner->lost, 1);
	if (link->owner != polling)
		reef_queue_wake(&link->owner->queue);
}

void verbs_link_expel(struct verbs_link *link, struct verbs_queue *polling,
		      int reason)
{
	link->is_expelled = true;
	if (link->phase == VERBS_DRAINING) {
		link->arrived_count = 0;
		verbs_receive_deliver(link, polling);
	} else if (link->phase != VERBS_LOST) {
		verbs_link_break(link, reason);
		verbs_hub_settle(link->hub, polling);
	}
}

/* End a link, whatever its phase. drop: as if this process had died, without a
 * BYE, and without hearing what has arrived. */
static void end_link(struct verbs_link *link, int reason, bool drop)
{
	struct verbs_hub *hub = link->hub;

	if (hub)
		pthread_mutex_lock(&hub->lock);
	link->is_silent |= drop;
	if (link->phase <= VERBS_HELLO) {
		verbs_link_break(link, reason);
		verbs_link_finish(link, link->owner);
	} else if (drop) {
		verbs_link_expel(link, link->owner, reason);
	} else if (link->phase < VERBS_DRAINING) {
		verbs_link_break(link, reason);
		verbs_hub_settle(hub, link->owner);
	}
	if (hub)
		pthread_mutex_unlock(&hub->lock);
	verbs_link_opened(link);
}

void verbs_link_end(struct verbs_link *link, int reason)
{
	end_link(link, reason, false);
}

/* Free a link whose queue is gone: it has ended already. */
static void drop_orphan(struct verbs_link *link)
{
	struct verbs_fabric *fabric = verbs_link_fabric(link);
	struct verbs_link **at = &fabric->orphans;

	pthread_mutex_lock(&fabric->lock);
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	pthread_mutex_unlock(&fabric->lock);
	free_link(link);
}

void verbs_link_drop(struct verbs_link *link)
{
	if (!link->owner) {
		drop_orphan(link);
		return;
	}
	end_link(link, -REEF_ENOLINK, true);
	verbs_session_forget(link);
	unlink_from_queue(link);
	reef_forget_link(link->link.queue, &link->link);
	free_link(link);
}

void verbs_link_orphan(struct verbs_link *link)
{
	struct verbs_fabric *fabric = verbs_link_fabric(link);

	end_link(link, -REEF_ENOLINK, true);
	unlink_from_queue(link);
	link->owner = NULL;
	pthread_mutex_lock(&fabric->lock);
	link->next = fabric->orphans;
	fabric->orphans = link;
	pthread_mutex_unlock(&fabric->lock);
}

static bool is_lost(const struct verbs_link *link)
{
	bool lost;

	if (link->hub)
		pthread_mutex_lock(&link->hub->lock);
	lost = link->phase == VERBS_LOST ||
	       (link->broken && link->phase <= VERBS_HELLO);
	if (link->hub)
		pthread_mutex_unlock(&link->hub->lock);
	return lost;
}

static struct verbs_link *find_lost_link(struct verbs_queue *queue)
{
	struct verbs_link *link = queue->links;

	while (link && !(link->link.listener && is_lost(link)))
		link = link->next;
	return link;
}

int verbs_queue_reap(struct verbs_queue *queue)
{
	struct verbs_link *link;
	int count = 0;

	if (!atomic_load_explicit(&queue->lost, memory_order_relaxed))
		return 0;
	atomic_store(&queue->lost, 0);
	/* The search begins anew each time: `closed` may close the listener. */
	while ((link = find_lost_link(queue))) {
		verbs_link_end(link, -REEF_ENOLINK);
		verbs_session_forget(link);
		reef_link_ended(&queue->queue, &link->link, link->broken);
		unlink_from_queue(link);
		free_link(link);
		count++;
	}
	return count;
}

/* --- the channel --- */

void verbs_link_interest(struct verbs_link *link)
{
	bool wants = reef_stream_wants_write(link->stream);

	if (wants == link->wants_write)
		return;
	link->wants_write = wants;
	verbs_queue_watch(link->owner, reef_stream_fd(link->stream),
			  &link->source, EPOLLIN | (wants ? EPOLLOUT : 0),
			  false);
}

void verbs_link_send(struct verbs_link *link, uint8_t type, uint64_t tag,
		     const void *payload, size_t size)
{
	struct iovec part = {.iov_base = (void *)payload, .iov_len = size};
	int rc;

	if (link->broken)
		return;
	rc = reef_stream_send(link->stream, type, tag, &part, 1, -1);
	if (rc)
		verbs_link_break(link, -REEF_ENOLINK);
	else
		verbs_link_interest(link);
}

/* Let an open link carry batches. Thread: its queue's. */
static void mark_up(struct verbs_link *link)
{
	link->phase = VERBS_UP;
	verbs_link_opened(link);
	reef_link_opened(&link->owner->queue, &link->link);
	verbs_receive_deliver(link, link->owner);
}

int verbs_link_pair(struct verbs_link *link)
{
	uint8_t payload[REEF_WIRE_QUEUE_PAIR_SIZE];
	struct reef_address local = {.size = sizeof(local.storage)};
	struct reef_wire_queue_pair own;
	int rc;

	if (getsockname(reef_stream_fd(link->stream),
			(struct sockaddr *)&local.storage, &local.size) < 0)
		return -errno;
	reef_socket_host(reef_stream_fd(link->stream), link->link.host,
			 sizeof(link->link.host));
	rc = verbs_pair_create(link, &local, &own);
	if (rc) {
		reef_log(REEF_LOG_ERROR, "verbs", "making a queue pair: %s",
			 reef_error_text(rc));
		return rc;
	}
	reef_wire_queue_pair_encode(&own, payload);
	verbs_link_send(link, REEF_FRAME_QUEUE_PAIR, 0, payload,
			sizeof(payload));
	return 0;
}

static int handle_pair(struct verbs_link *link, const struct reef_frame *frame)
{
	struct reef_wire_queue_pair peer;
	int rc;

	if (link->phase != VERBS_PAIRING)
		return -REEF_EPROTO;
	rc = reef_wire_queue_pair_decode(frame->payload, frame->length, &peer);
	if (!rc && link->link.listener)
		rc = verbs_link_pair(link);
	if (!rc)
		rc = verbs_pair_connect(link, &peer);
	if (rc)
		return rc;
	if (link->link.listener) {
		link->phase = VERBS_READYING;
		return 0;
	}
	verbs_receive_credit(link);
	if (!link->broken)
		mark_up(link);
	return 0;
}

static int handle_credit(struct verbs_link *link,
			 const struct reef_frame *frame)
{
	uint32_t count;
	int rc;

	rc = reef_wire_credit_decode(frame->payload, frame->length, &count);
	if (!rc)
		rc = verbs_credits_add(link, count);
	if (rc)
		return rc;
	if (link->phase == VERBS_READYING)
		mark_up(link);
	else if (!count)
		verbs_receive_asked(link);
	return 0;
}

static int handle_frame(struct verbs_link *link, struct verbs_queue *polling,
			const struct reef_frame *frame)
{
	if (frame->type == REEF_FRAME_BYE)
		return reef_frame_bye_reason(frame);
	if (frame->type == REEF_FRAME_QUEUE_PAIR)
		return handle_pair(link, frame);
	if (link->phase == VERBS_PAIRING)
		return -REEF_EPROTO;
	switch (frame->type) {
	case REEF_FRAME_CREDIT:
		return handle_credit(link, frame);
	case REEF_FRAME_PING:
		verbs_link_send(link, REEF_FRAME_PONG, frame->tag, NULL, 0);
		return 0;
	case REEF_FRAME_PONG:
		return 0;
	case REEF_FRAME_ATTACH:
		return verbs_target_attach(link, frame);
	case REEF_FRAME_DETACH:
		return verbs_target_detach(link, frame);
	case REEF_FRAME_ATTACHED:
		return verbs_remote_attached(link, polling, frame);
	case REEF_FRAME_WITHDRAW:
		return verbs_remote_withdrawn(link, frame);
	default:
		return -REEF_EPROTO;
	}
}

int verbs_link_read(struct verbs_link *link, struct verbs_queue *polling)
{
	struct reef_frame frame;
	int count = 0, rc = 0;

	if (link->wants_write) {
		reef_stream_flush(link->stream);
		verbs_link_interest(link);
	}
	while (!link->broken) {
		rc = reef_stream_receive(link->stream, &frame);
		if (rc)
			break;
		count++;
		rc = handle_frame(link, polling, &frame);
		if (rc) {
			/* A BYE is not answered with another. */
			link->is_silent = frame.type == REEF_FRAME_BYE;
			break;
		}
	}
	if (rc && rc != -EAGAIN) {
		verbs_link_break(link, rc);
		count++;
	}
	if (link->unposted && !link->broken)
		verbs_send_pump(link);
	return count;
}

int verbs_link_read_others(struct verbs_hub *hub, struct verbs_queue *polling)
{
	struct verbs_link *link;
	int count = 0;

	pthread_mutex_lock(&hub->lock);
	for (link = hub->links; link; link = link->next_hub)
		if (link->attaching && link->phase == VERBS_UP)
			count += verbs_link_read(link, polling);
	verbs_hub_settle(hub, polling);
	pthread_mutex_unlock(&hub->lock);
	return count;
}
