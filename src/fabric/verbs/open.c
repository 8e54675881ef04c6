/* open.c - how links open: listening, connecting, the hello, and its time. The
 * phases are in channel.c. */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CONTROL_MAX 4096u /* bytes of a frame's payload */
#define ACCEPT_AT_ONCE 64
#define OPENING_MAX 1024u /* hellos at once; the rest wait in the kernel */

static const char scheme[] = "verbs:";

/* --- the hello --- */

static int start_hello(struct verbs_link *link)
{
	struct reef_hello_local local =
		reef_hello_local("verbs", &link->link.fabric->options);
	int rc;

	reef_socket_keep_alive(link->fd, link->link.fabric->options.silence_ns);
	rc = reef_stream_create(link->fd, CONTROL_MAX, &link->stream);
	if (rc)
		return rc;
	link->phase = VERBS_HELLO;
	if (link->link.listener)
		return reef_hello_accept(link->stream, &local,
					 &link->link.listener->options,
					 verbs_admit, link, &link->hello);
	rc = reef_hello_connect(link->stream, &local, &link->connect,
				&link->hello);
	explicit_bzero(link->connect.key, sizeof(link->connect.key));
	return rc;
}

/* Go on with the hello; the last step lets the link pair. Returns how much
 * happened. */
static int step_hello(struct verbs_link *link)
{
	struct reef_hello_peer peer;
	int rc;

	rc = reef_hello_step(link->hello, &peer);
	verbs_link_interest(link);
	if (rc == -EAGAIN)
		return 0;
	if (rc) {
		link->is_silent = true; /* the hello has said it */
		verbs_link_end(link, rc);
		return 1;
	}
	reef_hello_destroy(link->hello);
	link->hello = NULL;
	link->is_private = false;
	pthread_mutex_lock(&link->hub->lock);
	if (!link->broken) { /* a broken one waits to be reaped */
		link->message_max = peer.message_max;
		link->phase = VERBS_PAIRING;
		rc = link->link.listener ? 0 : verbs_link_pair(link);
		if (rc)
			verbs_link_break(link, rc);
		else
			verbs_link_read(link, link->owner);
		verbs_hub_settle(link->hub, link->owner);
	}
	rc = link->phase == VERBS_LOST;
	pthread_mutex_unlock(&link->hub->lock);
	if (rc)
		verbs_link_opened(link);
	return 1;
}

static int finish_connecting(struct verbs_link *link)
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
	verbs_link_end(link, rc);
	return 1;
}

int verbs_link_event(struct verbs_link *link)
{
	bool lost;
	int count = 0;

	if (link->is_private && link->phase == VERBS_CONNECTING)
		return finish_connecting(link);
	if (link->is_private)
		return link->hello ? step_hello(link) : 0;
	pthread_mutex_lock(&link->hub->lock);
	if (link->phase > VERBS_HELLO && link->stream) {
		count = verbs_link_read(link, link->owner);
		verbs_hub_settle(link->hub, link->owner);
	}
	lost = link->phase == VERBS_LOST;
	pthread_mutex_unlock(&link->hub->lock);
	if (lost)
		verbs_link_opened(link);
	return count;
}

void verbs_link_tick(struct verbs_link *link, uint64_t now_ns)
{
	uint64_t silence_ns = link->link.fabric->options.silence_ns;
	struct verbs_remote *remote;
	bool is_silent = false;

	if (link->is_opening && now_ns >= link->deadline_ns) {
		verbs_link_end(link, -ETIMEDOUT);
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
		verbs_link_end(link, -REEF_ENOLINK);
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
	link = verbs_link_create(
		queue, NULL, fd,
		options->timeout_ns ? options->timeout_ns
				    : queue->fabric->fabric.options.silence_ns);
	if (!link) {
		close(fd);
		return -ENOMEM;
	}
	reef_link_set_owner(&link->link, options->session, options->number,
			    options->identity);
	link->connect = *options;
	link->connect.identity = link->link.identity;
	rc = verbs_hub_join(queue, link);
	if (!rc)
		rc = verbs_queue_watch(queue, fd, &link->source,
				       EPOLLIN | EPOLLOUT, true);
	if (rc) {
		verbs_link_drop(link);
		return rc;
	}
	*out = &link->link;
	return 0;
}

void verbs_disconnect(struct reef_layer *layer, struct reef_link *link)
{
	verbs_link_drop(verbs_link(link));
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
		link = verbs_link_create(
			queue, listener, fd,
			queue->fabric->fabric.options.silence_ns);
		if (!link) {
			close(fd);
			continue;
		}
		rc = verbs_queue_watch(queue, fd, &link->source, EPOLLIN, true);
		if (!rc)
			rc = start_hello(link);
		if (rc)
			verbs_link_drop(link);
	}
	/* Out of descriptors or places, connections wait in the kernel until
	 * the timer has the listener looked at again. */
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
			verbs_link_drop(link);
	}
	while (*at != listener)
		at = &(*at)->next;
	*at = listener->next;
	queue->resting -= listener->is_resting;
	verbs_queue_unwatch(queue, listener->fd);
	reef_socket_unlisten(listener->fd);
	free(listener);
}

void verbs_links_close(struct verbs_queue *queue)
{
	struct verbs_listener *listener, *next_listener;
	struct verbs_link *link, *next;

	for (listener = queue->listeners; listener; listener = next_listener) {
		next_listener = listener->next;
		verbs_unlisten(NULL, &listener->listener);
	}
	for (link = queue->links; link; link = next) {
		next = link->next;
		verbs_link_orphan(link);
	}
}
