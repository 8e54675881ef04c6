/* connect.c - the connecting side up to WELCOME, and the memory of others.
 *
 *   connect --socket is writable--> hello --WELCOME--> link (life.c)
 *      +----------- any error ----------+--> reef_link_ended
 */
#include "fabric/tcp/tcp.h"

#include "wire/control.h"

#include <openssl/crypto.h>
#include <unistd.h>

/* --- links --- */

static void list_opening(struct tcp_link *link)
{
	struct tcp_queue *queue = (struct tcp_queue *)link->base.queue;

	link->next_opening = queue->openings;
	queue->openings = link;
}

void tcp_opening_end(struct tcp_link *link)
{
	struct tcp_queue *queue = (struct tcp_queue *)link->base.queue;
	struct tcp_link **at;

	if (!link->stream)
		return;
	for (at = &queue->openings; *at != link; at = &(*at)->next_opening)
		;
	*at = link->next_opening;
	/* A socket that became the link's has been taken from the stream. */
	if (reef_stream_fd(link->stream) >= 0)
		tcp_queue_remove(queue, reef_stream_fd(link->stream));
	tcp_queue_forget(queue, &link->opening);
	reef_hello_destroy(link->hello);
	reef_stream_destroy(link->stream);
	OPENSSL_cleanse(link->options.key, sizeof(link->options.key));
	link->hello = NULL;
	link->stream = NULL;
}

void tcp_opening_fail(struct tcp_link *link, int reason)
{
	tcp_opening_end(link);
	atomic_store(&link->broken, reason);
	reef_link_ended(link->base.queue, &link->base, reason);
}

static int begin_hello(struct tcp_link *link)
{
	struct reef_hello_local local =
		reef_hello_local("tcp", &link->fabric->base.options);
	struct tcp_queue *queue = (struct tcp_queue *)link->base.queue;
	struct epoll_event event = {.events = EPOLLIN,
				    .data.ptr = &link->opening};
	int fd = reef_stream_fd(link->stream);
	int rc = reef_socket_connected(fd);

	if (rc < 0)
		return rc;
	if (epoll_ctl(queue->base.fd, EPOLL_CTL_MOD, fd, &event) < 0)
		return -errno;
	link->connected = true;
	reef_socket_host(fd, link->base.host, sizeof(link->base.host));
	local.tls = tcp_wants_tls(link->fabric, reef_socket_is_loopback(fd));
	return reef_hello_connect(link->stream, &local, &link->options,
				  &link->hello);
}

int tcp_opening_step(struct tcp_link *link)
{
	struct tcp_queue *queue = (struct tcp_queue *)link->base.queue;
	struct reef_hello_peer peer;
	int rc = link->connected ? 0 : begin_hello(link);

	if (rc == 0)
		rc = reef_hello_step(link->hello, &peer);
	if (rc == -EAGAIN)
		return 0;
	if (rc == 0) {
		tcp_queue_remove(queue, reef_stream_fd(link->stream));
		rc = tcp_link_begin(link, link->stream, &peer);
	}
	if (rc < 0) {
		tcp_opening_fail(link, rc);
		return 1;
	}
	tcp_opening_end(link);
	reef_link_opened(link->base.queue, &link->base);
	tcp_receive_rest(link);
	return 1;
}

static int start_connecting(struct tcp_link *link,
			    const struct reef_address *address)
{
	struct tcp_queue *queue = (struct tcp_queue *)link->base.queue;
	int fd = reef_socket_connect(address), rc;

	if (fd < 0)
		return fd;
	rc = reef_stream_create(fd, REEF_HELLO_FRAME_MAX, &link->stream);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	rc = tcp_queue_add(queue, fd, EPOLLOUT, &link->opening);
	if (rc < 0) {
		reef_stream_destroy(link->stream);
		link->stream = NULL;
		return rc;
	}
	list_opening(link);
	return 0;
}

int tcp_connect(struct reef_layer *layer, struct reef_queue *queue,
		const char *address, const struct reef_connect_options *options,
		struct reef_link **out)
{
	struct tcp_fabric *fabric = tcp_fabric_of(layer);
	struct reef_address parsed;
	struct tcp_link *link;
	int rc;

	if (strncmp(address, "tcp:", 4) != 0)
		return -EINVAL;
	rc = reef_address_parse_inet(address + 4, &parsed);
	if (rc < 0)
		return rc;
	rc = tcp_link_create(fabric, queue, options->session, options->number,
			     options->identity, &link);
	if (rc < 0)
		return rc;
	link->options = *options;
	link->options.identity = link->base.identity;
	rc = start_connecting(link, &parsed);
	if (rc < 0) {
		tcp_link_unref(link);
		return rc;
	}
	pthread_mutex_lock(&fabric->lock);
	tcp_link_list(link);
	pthread_mutex_unlock(&fabric->lock);
	*out = &link->base;
	return 0;
}

/* --- remotes --- */

static void unlist_remote(struct tcp_link *link, struct tcp_remote *remote)
{
	struct tcp_remote **at;

	for (at = &link->remotes; *at != remote; at = &(*at)->next)
		;
	*at = remote->next;
}

/* End an attach with this state. With link->lock. */
static void end_attach(struct tcp_link *link, struct reef_queue *polling,
		       struct tcp_remote *remote, int state)
{
	atomic_fetch_sub(&remote->watch->under_way, 1);
	atomic_fetch_sub(&link->attaching, 1);
	remote->watch = NULL;
	reef_attach_ended(polling, &remote->base, state);
}

void tcp_attaches_fail(struct tcp_link *link, struct reef_queue *polling)
{
	pthread_mutex_lock(&link->lock);
	for (struct tcp_remote *remote = link->remotes; remote;
	     remote = remote->next)
		if (remote->watch)
			end_attach(link, polling, remote, -REEF_ENOLINK);
	pthread_mutex_unlock(&link->lock);
}

/* Put a remote into the link's list. This comes before the ATTACH goes out: the
 * answer may be read by another thread. */
static void list_attach(struct tcp_link *link, struct tcp_remote *remote)
{
	if (!tcp_link_waits(link))
		tcp_link_stir(link);
	atomic_fetch_add(&remote->watch->under_way, 1);
	atomic_fetch_add(&link->attaching, 1);
	pthread_mutex_lock(&link->lock);
	remote->tag = ++link->attach_tag;
	remote->next = link->remotes;
	link->remotes = remote;
	pthread_mutex_unlock(&link->lock);
}

static void unlist_attach(struct tcp_link *link, struct tcp_remote *remote)
{
	pthread_mutex_lock(&link->lock);
	unlist_remote(link, remote);
	if (remote->watch) {
		atomic_fetch_sub(&remote->watch->under_way, 1);
		atomic_fetch_sub(&link->attaching, 1);
	}
	pthread_mutex_unlock(&link->lock);
}

/* Ask the peer for a key. With tx_lock, so that the link does not break
 * meanwhile. */
static int start_attach(struct tcp_link *link, struct tcp_queue *queue,
			struct tcp_remote *remote)
{
	uint8_t payload[REEF_WIRE_KEY_SIZE];
	int rc;

	if (atomic_load(&link->broken) || link->fd < 0)
		return -REEF_ENOLINK;
	remote->watch = tcp_watch_get(queue, link);
	if (!remote->watch)
		return -ENOMEM;
	tcp_watch_activate(remote->watch);
	list_attach(link, remote);
	reef_wire_key_encode(remote->base.key, payload);
	rc = tcp_control_locked(link, REEF_FRAME_ATTACH, remote->tag, payload,
				sizeof(payload));
	if (rc < 0)
		unlist_attach(link, remote);
	return rc == -ENOBUFS ? -ENOMEM : rc;
}

int tcp_attach(struct reef_layer *layer, struct reef_queue *queue,
	       struct reef_link *base, uint64_t key, struct reef_remote **out)
{
	struct tcp_link *link = (struct tcp_link *)base;
	struct tcp_remote *remote;
	int rc;

	(void)layer;
	if (key == 0)
		return -REEF_EKEY;
	remote = calloc(1, sizeof(*remote));
	if (!remote)
		return -ENOMEM;
	remote->base.link = base;
	remote->base.key = key;
	remote->base.state = 1;
	pthread_mutex_lock(&link->tx_lock);
	rc = start_attach(link, (struct tcp_queue *)queue, remote);
	pthread_mutex_unlock(&link->tx_lock);
	if (rc < 0) {
		free(remote);
		return rc;
	}
	*out = &remote->base;
	return 0;
}

void tcp_detach(struct reef_layer *layer, struct reef_queue *queue,
		struct reef_remote *base)
{
	struct tcp_remote *remote = (struct tcp_remote *)base;
	struct tcp_link *link = (struct tcp_link *)base->link;
	int state = atomic_load(&base->state);
	uint8_t payload[REEF_WIRE_KEY_SIZE];

	(void)layer;
	(void)queue;
	unlist_attach(link, remote);
	/* A remote that is not attached, or was withdrawn, is not counted by
	 * the peer, so it need not be told. */
	if (state >= 0 && !atomic_load(&link->broken)) {
		reef_wire_key_encode(base->key, payload);
		tcp_control(link, REEF_FRAME_DETACH, 0, payload,
			    sizeof(payload));
	}
	free(remote);
}

static struct tcp_remote *find_attaching(struct tcp_link *link, uint64_t tag)
{
	struct tcp_remote *remote = link->remotes;

	while (remote && (remote->tag != tag || !remote->watch))
		remote = remote->next;
	return remote;
}

int tcp_on_attached(struct tcp_link *link, const uint8_t *payload)
{
	struct reef_wire_attached attached;
	struct tcp_remote *remote;
	int rc = reef_wire_attached_decode(payload, REEF_WIRE_ATTACHED_SIZE,
					   &attached);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&link->lock);
	remote = find_attaching(link, link->header.tag);
	/* No remote has this tag if it was detached while the answer was on
	 * its way. */
	if (remote && remote->base.key != attached.key) {
		rc = -REEF_EPROTO;
	} else if (remote) {
		remote->base.size = attached.size;
		reef_remote_take_flags(&remote->base, attached.flags);
		end_attach(link, link->polling, remote, attached.status);
		link->happened++;
	}
	pthread_mutex_unlock(&link->lock);
	return rc;
}

int tcp_on_withdraw(struct tcp_link *link, const uint8_t *payload)
{
	uint64_t key;
	int rc = reef_wire_key_decode(payload, REEF_WIRE_KEY_SIZE, &key);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&link->lock);
	for (struct tcp_remote *remote = link->remotes; remote;
	     remote = remote->next)
		if (remote->base.key == key && !remote->watch)
			atomic_store(&remote->base.state, -REEF_EKEY);
	pthread_mutex_unlock(&link->lock);
	link->happened++;
	return tcp_control(link, REEF_FRAME_DETACH, 0, payload,
			   REEF_WIRE_KEY_SIZE);
}
