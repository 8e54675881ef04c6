/* link.c - the control channel of a link: from connecting to its end.
 *
 *   connector:  CONNECTING --connected--> HELLO --welcomed, QUEUE_PAIR sent-->
 *               PAIRING --QUEUE_PAIR came, CREDIT 0 sent--> UP
 *   acceptor:   HELLO --admitted, welcomed--> PAIRING --QUEUE_PAIR came, own
 * one sent--> READYING --CREDIT came--> UP either:     any --break, settle or
 * reap--> LOST
 *
 * (1) Up to HELLO a link is its queue's alone; others, who may find it once it
 *     is admitted, only mark it (break). From PAIRING on its hub's lock covers
 *     it.
 * (2) Only a link's queue reads its channel; anyone may write, locked.
 * (3) An acceptor is UP only when the connector is ready to receive: what it
 *     sends at once would otherwise be lost, and retried much later. */
#include "fabric/internal.h"
#include "fabric/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CONTROL_MAX 4096u /* bytes of a frame's payload */
#define ACCEPT_AT_ONCE 64
#define OPENING_MAX 1024u     /* hellos at once; the rest wait in the kernel */
#define ACCEPTED_SEND_MAX 64u /* who accepts only sends messages */
#define LAST_WORDS_MAX 64

static const char scheme[] = "verbs:";

/* --- making and freeing --- */

static struct verbs_link *link_create(struct verbs_queue *queue,
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

/* It is, or will be, open no more. */
static void end_opening(struct verbs_link *link)
{
	if (!link->is_opening)
		return;
	link->is_opening = false;
	link->owner->opening--;
}

static void unlink_from_queue(struct verbs_link *link)
{
	struct verbs_link **at = &link->owner->links;
	struct reef_link **opened = &link->link.queue->opened;

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	while (*opened && *opened != &link->link)
		opened = &(*opened)->next_opened;
	if (*opened)
		*opened = link->link.next_opened;
}

static void link_free(struct verbs_link *link)
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
	link->next_broken = link->hub->broken;
	link->hub->broken = link;
}

/* A peer that ends a link says why, but its queue pair may be missed before the
 * channel was read. */
static int last_words(struct verbs_link *link)
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

void verbs_link_finish(struct verbs_link *link, struct verbs_queue *polling)
{
	if (link->stream && link->broken == -REEF_ENOLINK)
		link->broken = last_words(link);
	else if (link->stream && !link->is_silent)
		reef_stream_bye(link->stream, link->broken);
	reef_hello_destroy(link->hello);
	link->hello = NULL;
	if (link->stream)
		reef_stream_destroy(link->stream);
	else
		close(link->fd);
	link->stream = NULL;
	link->phase = VERBS_LOST;
	verbs_target_release(link);
	verbs_remote_lost(link, polling);
	if (!link->link.listener) {
		reef_link_ended(&polling->queue, &link->link, link->broken);
		return;
	}
	atomic_fetch_add(&link->owner->lost, 1);
	if (link->owner != polling)
		reef_queue_wake(&link->owner->queue);
}

/* End it now, whatever its phase. Thread: its queue's, no lock. */
static void link_end(struct verbs_link *link, int reason)
{
	struct verbs_hub *hub = link->hub;

	if (hub)
		pthread_mutex_lock(&hub->lock);
	if (link->phase != VERBS_LOST) {
		verbs_link_break(link, reason);
		if (link->phase <= VERBS_HELLO)
			verbs_link_finish(link, link->owner);
		else
			verbs_hub_settle(hub, link->owner);
	}
	if (hub)
		pthread_mutex_unlock(&hub->lock);
	end_opening(link);
}

/* As if the process had died: without a word, without `closed`. */
static void link_drop(struct verbs_link *link)
{
	link->is_silent = true;
	link_end(link, -REEF_ENOLINK);
	verbs_session_forget(link);
	unlink_from_queue(link);
	reef_forget_link(link->link.queue, &link->link);
	link_free(link);
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

static struct verbs_link *find_lost(struct verbs_queue *queue)
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
	/* From the start each time: `closed` may close the listener. */
	while ((link = find_lost(queue))) {
		link_end(link, -REEF_ENOLINK);
		verbs_session_forget(link);
		reef_link_ended(&queue->queue, &link->link, link->broken);
		unlink_from_queue(link);
		link_free(link);
		count++;
	}
	return count;
}

/* --- the channel --- */

static void update_interest(struct verbs_link *link)
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
		update_interest(link);
}

/* Thread: its queue's. */
static void set_up(struct verbs_link *link)
{
	link->phase = VERBS_UP;
	end_opening(link);
	reef_link_opened(&link->owner->queue, &link->link);
	verbs_receive_deliver(link, link->owner);
}

static int make_pair(struct verbs_link *link)
{
	uint8_t payload[REEF_WIRE_QUEUE_PAIR_SIZE];
	struct reef_address local = {.size = sizeof(local.storage)};
	struct reef_wire_queue_pair own;
	int rc;

	if (getsockname(reef_stream_fd(link->stream),
			(struct sockaddr *)&local.storage, &local.size) < 0)
		return -errno;
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

static int take_pair(struct verbs_link *link, const struct reef_frame *frame)
{
	struct reef_wire_queue_pair peer;
	int rc;

	if (link->phase != VERBS_PAIRING)
		return -REEF_EPROTO;
	rc = reef_wire_queue_pair_decode(frame->payload, frame->length, &peer);
	if (!rc && link->link.listener)
		rc = make_pair(link);
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
		set_up(link);
	return 0;
}

static int take_credit(struct verbs_link *link, const struct reef_frame *frame)
{
	uint32_t count;
	int rc;

	rc = reef_wire_credit_decode(frame->payload, frame->length, &count);
	if (!rc)
		rc = verbs_credits_add(link, count);
	if (!rc && link->phase == VERBS_READYING)
		set_up(link);
	return rc;
}

static int take_frame(struct verbs_link *link, struct verbs_queue *polling,
		      const struct reef_frame *frame)
{
	if (frame->type == REEF_FRAME_BYE)
		return reef_frame_bye_reason(frame);
	if (frame->type == REEF_FRAME_QUEUE_PAIR)
		return take_pair(link, frame);
	if (link->phase == VERBS_PAIRING)
		return -REEF_EPROTO;
	switch (frame->type) {
	case REEF_FRAME_CREDIT:
		return take_credit(link, frame);
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

/* Read what there is. Returns how many frames. Locked. */
static int read_frames(struct verbs_link *link, struct verbs_queue *polling)
{
	struct reef_frame frame;
	int count = 0, rc = 0;

	if (link->wants_write) {
		reef_stream_flush(link->stream);
		update_interest(link);
	}
	while (!link->broken) {
		rc = reef_stream_receive(link->stream, &frame);
		if (rc)
			break;
		count++;
		rc = take_frame(link, polling, &frame);
		if (rc) {
			/* A BYE is an answer to us; it needs none. */
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

/* --- the hello --- */

static void fill_local(const struct verbs_queue *queue,
		       struct reef_hello_local *local)
{
	const struct reef_fabric_options *options =
		&queue->fabric->fabric.options;

	*local = (struct reef_hello_local){
		.fabric = "verbs",
		.domain = reef_domain_cpu(),
		.ops_max = options->ops_max,
		.length_max = options->length_max,
		.message_max = options->message_max,
	};
}

static int start_hello(struct verbs_link *link)
{
	struct reef_hello_local local;
	int rc;

	reef_socket_keep_alive(link->fd, link->link.fabric->options.silence_ns);
	rc = reef_stream_create(link->fd, CONTROL_MAX, &link->stream);
	if (rc)
		return rc;
	link->phase = VERBS_HELLO;
	fill_local(link->owner, &local);
	if (link->link.listener)
		return reef_hello_accept(link->stream, &local,
					 &link->link.listener->options,
					 verbs_admit, link, &link->hello);
	return reef_hello_connect(link->stream, &local, &link->connect,
				  &link->hello);
}

/* Returns how much happened. */
static int step_hello(struct verbs_link *link)
{
	struct reef_hello_peer peer;
	int rc;

	rc = reef_hello_step(link->hello, &peer);
	update_interest(link);
	if (rc == -EAGAIN)
		return 0;
	if (rc) {
		link->is_silent = true; /* the hello has said it */
		link_end(link, rc);
		return 1;
	}
	reef_hello_destroy(link->hello);
	link->hello = NULL;
	link->is_private = false;
	pthread_mutex_lock(&link->hub->lock);
	if (!link->broken) { /* else it waits to be reaped */
		link->message_max = peer.message_max;
		link->phase = VERBS_PAIRING;
		rc = link->link.listener ? 0 : make_pair(link);
		if (rc)
			verbs_link_break(link, rc);
		else
			read_frames(link, link->owner);
		verbs_hub_settle(link->hub, link->owner);
	}
	rc = link->phase == VERBS_LOST;
	pthread_mutex_unlock(&link->hub->lock);
	if (rc)
		end_opening(link);
	return 1;
}

static int connected(struct verbs_link *link)
{
	int rc;

	rc = reef_socket_connected(link->fd);
	if (rc == -EAGAIN)
		return 0;
	if (!rc)
		rc = start_hello(link);
	if (!rc) {
		verbs_queue_watch(link->owner, link->fd, &link->source, EPOLLIN,
				  false);
		return 1 + step_hello(link);
	}
	link_end(link, rc);
	return 1;
}

int verbs_link_event(struct verbs_link *link)
{
	bool lost;
	int count = 0;

	if (link->is_private && link->phase == VERBS_CONNECTING)
		return connected(link);
	if (link->is_private)
		return link->hello ? step_hello(link) : 0;
	pthread_mutex_lock(&link->hub->lock);
	if (link->phase > VERBS_HELLO && link->phase != VERBS_LOST) {
		count = read_frames(link, link->owner);
		verbs_hub_settle(link->hub, link->owner);
	}
	lost = link->phase == VERBS_LOST;
	pthread_mutex_unlock(&link->hub->lock);
	if (lost)
		end_opening(link);
	return count;
}

int verbs_link_read_others(struct verbs_hub *hub, struct verbs_queue *polling)
{
	struct verbs_link *link;
	int count = 0;

	pthread_mutex_lock(&hub->lock);
	for (link = hub->links; link; link = link->next_hub)
		if (link->attaching && link->phase == VERBS_UP)
			count += read_frames(link, polling);
	verbs_hub_settle(hub, polling);
	pthread_mutex_unlock(&hub->lock);
	return count;
}

void verbs_link_tick(struct verbs_link *link, uint64_t now_ns)
{
	uint64_t silence_ns = link->link.fabric->options.silence_ns;
	struct verbs_remote *remote;
	bool is_silent = false;

	if (link->is_opening && now_ns >= link->deadline_ns) {
		link_end(link, -ETIMEDOUT);
		return;
	}
	if (link->is_opening || !link->hub)
		return;
	pthread_mutex_lock(&link->hub->lock);
	if (link->phase == VERBS_UP) {
		uint64_t heard_ns = reef_stream_heard_ns(link->stream);

		for (remote = link->remotes; remote; remote = remote->next)
			is_silent |= atomic_load(&remote->remote.state) == 1 &&
				     now_ns > remote->asked_ns + silence_ns &&
				     now_ns > heard_ns + silence_ns;
	}
	pthread_mutex_unlock(&link->hub->lock);
	if (is_silent)
		link_end(link, -REEF_ENOLINK);
}

/* --- from the layer above --- */

static int parse_address(const char *text, struct reef_address *out)
{
	if (strncmp(text, scheme, sizeof(scheme) - 1) != 0)
		return -EINVAL;
	return reef_address_parse_inet(text + sizeof(scheme) - 1, out);
}

int verbs_connect(struct reef_layer *layer, struct reef_queue *base,
		  const char *text, const struct reef_connect_options *options,
		  struct reef_link **out)
{
	struct verbs_queue *queue = verbs_queue(base);
	struct reef_address address;
	struct verbs_link *link;
	int fd, rc;

	rc = parse_address(text, &address);
	if (rc)
		return rc;
	fd = reef_socket_connect(&address);
	if (fd < 0)
		return fd;
	link = link_create(queue, NULL, fd,
			   options->timeout_ns
				   ? options->timeout_ns
				   : queue->fabric->fabric.options.silence_ns);
	if (!link) {
		close(fd);
		return -ENOMEM;
	}
	link->link.session = options->session;
	link->connect = *options;
	strcpy(link->identity, options->identity); /* the core checked it */
	link->connect.identity = link->identity;
	rc = verbs_hub_join(queue, link);
	if (!rc)
		rc = verbs_queue_watch(queue, fd, &link->source,
				       EPOLLIN | EPOLLOUT, true);
	if (rc) {
		link_drop(link);
		return rc;
	}
	*out = &link->link;
	return 0;
}

void verbs_disconnect(struct reef_layer *layer, struct reef_link *link)
{
	link_drop(verbs_link(link));
}

int verbs_listener_event(struct verbs_listener *listener)
{
	struct verbs_queue *queue = listener->owner;
	struct verbs_link *link;
	int fd = 0, count = 0, rc;

	while (count < ACCEPT_AT_ONCE && queue->opening < OPENING_MAX) {
		fd = reef_socket_accept(listener->fd);
		if (fd < 0)
			break;
		count++;
		link = link_create(queue, listener, fd,
				   queue->fabric->fabric.options.silence_ns);
		if (!link) {
			close(fd);
			continue;
		}
		rc = verbs_queue_watch(queue, fd, &link->source, EPOLLIN, true);
		if (!rc)
			rc = start_hello(link);
		if (rc)
			link_drop(link);
	}
	/* Out of something: leave them in the kernel until the timer says. */
	if ((fd < 0 && fd != -EAGAIN) || queue->opening >= OPENING_MAX) {
		listener->is_resting = true;
		queue->resting++;
		verbs_queue_watch(queue, listener->fd, &listener->source, 0,
				  false);
		verbs_queue_timer(queue);
	}
	return count;
}

int verbs_listen(struct reef_layer *layer, struct reef_queue *base,
		 const char *text, const struct reef_listen_options *options,
		 struct reef_listener **out)
{
	struct verbs_queue *queue = verbs_queue(base);
	struct verbs_listener *listener;
	struct reef_address address;
	int rc;

	rc = parse_address(text, &address);
	if (rc)
		return rc;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->listener.fabric = layer->fabric;
	listener->listener.queue = base;
	listener->listener.options = *options;
	listener->source.kind = VERBS_SOURCE_LISTENER;
	listener->owner = queue;
	listener->fd = rc = reef_socket_listen(&address, &address);
	if (rc < 0)
		goto err_free;
	memcpy(listener->listener.address, scheme, sizeof(scheme));
	rc = reef_address_format(
		&address, listener->listener.address + sizeof(scheme) - 1,
		sizeof(listener->listener.address) - sizeof(scheme) + 1);
	if (!rc)
		rc = verbs_queue_watch(queue, listener->fd, &listener->source,
				       EPOLLIN, true);
	if (rc)
		goto err_close;
	listener->next = queue->listeners;
	queue->listeners = listener;
	*out = &listener->listener;
	return 0;
err_close:
	reef_socket_unlisten(listener->fd);
err_free:
	free(listener);
	return rc;
}

void verbs_unlisten(struct reef_layer *layer, struct reef_listener *base)
{
	struct verbs_listener *listener =
		reef_container(base, struct verbs_listener, listener);
	struct verbs_queue *queue = listener->owner;
	struct verbs_listener **at = &queue->listeners;
	struct verbs_link *link, *next;

	for (link = queue->links; link; link = next) {
		next = link->next;
		if (link->link.listener == base)
			link_drop(link);
	}
	while (*at != listener)
		at = &(*at)->next;
	*at = listener->next;
	queue->resting -= listener->is_resting;
	reef_socket_unlisten(listener->fd);
	free(listener);
}

void verbs_links_close(struct verbs_queue *queue)
{
	while (queue->listeners)
		verbs_unlisten(NULL, &queue->listeners->listener);
	while (queue->links)
		link_drop(queue->links);
}
