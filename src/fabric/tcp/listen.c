/* listen.c - the accepting side up to WELCOME; who may not come in; who holds
 * which memory.
 *
 *   accept --> guest --HELLO, PROOF--> admitted --WELCOME--> link (life.c)
 *                +----- any error, or too slow -----> gone
 *
 * (1) Guests are few and have silence_ns. When there are too many the oldest
 *     goes, so that whoever only connects keeps nobody out for long; of one
 *     host with half of them, the oldest of that host goes, so that it keeps
 *     no other host out at all.
 * (2) A guest is admitted under the fabric's lock: not fenced, its number not
 *     used up, not one too many; and it is in the list of links before anybody
 *     else can look, so a fence, or an end of its number, either refuses it or
 *     finds it.
 * (3) The session's old links are broken before WELCOME (F5): under their
 *     locks, so nothing of them takes effect any more.
 */
#include "fabric/tcp/tcp.h"

#include "wire/control.h"

#include <unistd.h>

#define GUESTS_MAX 1024
#define GUESTS_HOST_MAX (GUESTS_MAX / 2)
#define ACCEPTS_MAX 64	 /* in one poll */
#define REST_NS 50000000 /* after running out of descriptors */

/* --- fencing, and ending links --- */

/* Break an accepted link from any thread. False: not yet, as another thread is
 * executing what it reads from it. */
static bool expel_link(struct tcp_link *link, struct reef_queue *queue,
		       int reason)
{
	if (pthread_mutex_trylock(&link->rx_lock))
		return false;
	pthread_mutex_lock(&link->tx_lock);
	tcp_link_break_locked(link, queue, reason, true);
	pthread_mutex_unlock(&link->tx_lock);
	pthread_mutex_unlock(&link->rx_lock);
	return true;
}

int tcp_fence(struct reef_layer *layer, struct reef_queue *queue,
	      uint32_t session)
{
	struct tcp_fabric *fabric = tcp_fabric_of(layer);
	int rc = 0;

	pthread_mutex_lock(&fabric->lock);
	reef_fences_add(&fabric->fences, session);
	reef_numbers_fence(&fabric->numbers, session);
	for (struct tcp_link *link = fabric->links; link; link = link->next) {
		if (!link->base.listener || atomic_load(&link->broken) ||
		    !reef_session_covers(session, link->base.session))
			continue;
		if (!expel_link(link, queue, -REEF_EFENCED))
			rc = -EAGAIN;
	}
	pthread_mutex_unlock(&fabric->lock);
	return rc;
}

int tcp_end_links(struct reef_layer *layer, struct reef_queue *queue,
		  uint32_t session, uint32_t number)
{
	struct tcp_fabric *fabric = tcp_fabric_of(layer);
	struct tcp_link *link;
	int rc;

	pthread_mutex_lock(&fabric->lock);
	rc = reef_numbers_use(&fabric->numbers, session, number);
	for (link = fabric->links; !(rc && rc != -EAGAIN) && link;
	     link = link->next) {
		if (!link->base.listener || atomic_load(&link->broken) ||
		    !reef_numbers_end_covers(session, number,
					     link->base.session,
					     link->base.number))
			continue;
		atomic_store(&link->is_over, true);
		if (!expel_link(link, queue, -REEF_ENOLINK))
			rc = -EAGAIN;
	}
	pthread_mutex_unlock(&fabric->lock);
	return rc;
}

/* --- guests --- */

/* The first accepted link of a session in a part of the fabric's list. */
static struct tcp_link *link_of_session(struct tcp_link *link, uint32_t session)
{
	while (link && (!link->base.listener || link->base.session != session ||
			atomic_load(&link->broken)))
		link = link->next;
	return link;
}

/* Enter a guest's new link in the fabric's list (2). */
static int admit_link(struct tcp_fabric *fabric, struct tcp_link *link)
{
	uint32_t accepted = atomic_load(&fabric->accepted);
	int rc;

	if (reef_fences_cover(&fabric->fences, link->base.session))
		return -REEF_EFENCED;
	rc = reef_numbers_check(&fabric->numbers, link->base.session,
				link->base.number);
	if (rc)
		return rc;
	if (link_of_session(fabric->links, link->base.session))
		accepted--; /* it makes room */
	if (accepted >= fabric->base.options.links_max)
		return -EBUSY;
	rc = reef_numbers_use(&fabric->numbers, link->base.session,
			      link->base.number);
	if (rc)
		return rc;
	atomic_fetch_add(&fabric->accepted, 1);
	tcp_link_list(link);
	return 0;
}

/* Break the links that the session had before this one (3): those behind it in
 * the list, also if the guest that followed one of them is not done with it. */
static void break_older(struct tcp_link *link)
{
	struct tcp_link *old;

	for (;;) {
		pthread_mutex_lock(&link->fabric->lock);
		old = link_of_session(link->next, link->base.session);
		if (old)
			tcp_link_ref(old);
		pthread_mutex_unlock(&link->fabric->lock);
		if (!old)
			return;
		tcp_link_break(old, link->base.queue, -REEF_ENOLINK, false);
		tcp_link_unref(old);
	}
}

static int admit(void *context, struct reef_hello_peer *peer)
{
	struct tcp_guest *guest = context;
	struct tcp_fabric *fabric = guest->queue->fabric;
	struct tcp_link *link;
	int rc;

	rc = tcp_link_create(fabric, &guest->queue->base, peer->session,
			     peer->number, peer->identity, &link);
	if (rc < 0)
		return rc;
	link->base.listener = &guest->listener->base;
	pthread_mutex_lock(&fabric->lock);
	rc = admit_link(fabric, link);
	pthread_mutex_unlock(&fabric->lock);
	if (rc < 0) {
		tcp_link_unref(link);
		return rc;
	}
	guest->link = link;
	break_older(link);
	return 0;
}

/* End the link of a guest that was admitted but not welcomed. */
static void dismiss_link(struct tcp_link *link)
{
	tcp_link_break(link, link->base.queue, -REEF_ENOLINK, false);
	tcp_link_unlist(link);
	tcp_link_unref(link);
}

void tcp_guest_end(struct tcp_guest *guest)
{
	struct tcp_queue *queue = guest->queue;
	struct tcp_guest **at = &queue->guests;

	if (guest->link)
		dismiss_link(guest->link);
	if (reef_stream_fd(guest->stream) >= 0)
		tcp_queue_remove(queue, reef_stream_fd(guest->stream));
	tcp_queue_forget(queue, &guest->source);
	while (*at != guest)
		at = &(*at)->next;
	*at = guest->next;
	queue->guest_count--;
	reef_hello_destroy(guest->hello);
	reef_stream_destroy(guest->stream);
	free(guest);
}

int tcp_guest_step(struct tcp_guest *guest)
{
	struct tcp_link *link;
	struct reef_hello_peer peer;
	int rc = reef_hello_step(guest->hello, &peer);

	if (rc == -EAGAIN)
		return 0;
	link = guest->link;
	if (rc == 0) {
		tcp_queue_remove(guest->queue, reef_stream_fd(guest->stream));
		rc = tcp_link_begin(link, guest->stream, &peer);
	}
	if (rc == 0) {
		guest->link = NULL;
		reef_link_opened(link->base.queue, &link->base);
	}
	tcp_guest_end(guest);
	if (rc == 0)
		tcp_receive_rest(link);
	return 1;
}

/* Let a guest go if there is no room for one more of this host (1). */
static void make_room_for_guest(struct tcp_queue *queue, uint64_t host)
{
	struct tcp_guest *guest, *oldest = NULL, *oldest_of_host = NULL;
	uint32_t count = 0;

	if (queue->guest_count < GUESTS_HOST_MAX)
		return;
	for (guest = queue->guests; guest; guest = guest->next) {
		oldest = guest;
		if (guest->host != host)
			continue;
		oldest_of_host = guest;
		count++;
	}
	if (count >= GUESTS_HOST_MAX)
		tcp_guest_end(oldest_of_host);
	else if (queue->guest_count >= GUESTS_MAX)
		tcp_guest_end(oldest);
}

static int welcome_guest(struct tcp_listener *listener, int fd, uint64_t now_ns)
{
	struct tcp_queue *queue = (struct tcp_queue *)listener->base.queue;
	struct reef_hello_local local =
		reef_hello_local("tcp", &queue->fabric->base.options);
	struct tcp_guest *guest = calloc(1, sizeof(*guest));
	int rc = -ENOMEM;

	local.tls = tcp_wants_tls(queue->fabric, reef_socket_is_loopback(fd));
	if (!guest ||
	    reef_stream_create(fd, REEF_HELLO_FRAME_MAX, &guest->stream) < 0) {
		close(fd);
		goto err_free;
	}
	guest->source.kind = TCP_GUEST;
	guest->listener = listener;
	guest->queue = queue;
	guest->until_ns = now_ns + tcp_silence_ns(queue->fabric);
	guest->host = reef_socket_peer_host(fd);
	rc = reef_hello_accept(guest->stream, &local, &listener->base.options,
			       admit, guest, &guest->hello);
	if (rc < 0)
		goto err_stream;
	rc = tcp_queue_add(queue, fd, EPOLLIN, &guest->source);
	if (rc < 0)
		goto err_hello;
	make_room_for_guest(queue, guest->host);
	guest->next = queue->guests;
	queue->guests = guest;
	queue->guest_count++;
	return 0;
err_hello:
	reef_hello_destroy(guest->hello);
err_stream:
	reef_stream_destroy(guest->stream);
err_free:
	free(guest);
	return rc;
}

/* --- listeners --- */

int tcp_listener_accept(struct tcp_listener *listener, uint64_t now_ns)
{
	struct tcp_queue *queue = (struct tcp_queue *)listener->base.queue;
	int fd;

	for (int i = 0; i < ACCEPTS_MAX; i++) {
		fd = reef_socket_accept(listener->fd);
		if (fd == -EAGAIN)
			return i;
		if (fd < 0) {
			/* Out of descriptors, epoll would report the listener
			 * for ever: it rests. */
			reef_log(REEF_LOG_WARNING, "tcp", "%s: accept: %s",
				 listener->base.address, reef_error_text(fd));
			tcp_queue_remove(queue, listener->fd);
			listener->resume_ns = now_ns + REST_NS;
			return i;
		}
		welcome_guest(listener, fd, now_ns);
	}
	return ACCEPTS_MAX;
}

void tcp_listener_tick(struct tcp_listener *listener, uint64_t now_ns)
{
	struct tcp_queue *queue = (struct tcp_queue *)listener->base.queue;

	if (!listener->resume_ns || now_ns < listener->resume_ns)
		return;
	if (tcp_queue_add(queue, listener->fd, EPOLLIN, &listener->source) == 0)
		listener->resume_ns = 0;
}

static int format_address(struct tcp_listener *listener,
			  const struct reef_address *bound)
{
	memcpy(listener->base.address, "tcp:", 4);
	return reef_address_format(bound, listener->base.address + 4,
				   sizeof(listener->base.address) - 4);
}

static void list_listener(struct tcp_listener *listener,
			  struct tcp_queue *queue)
{
	struct tcp_fabric *fabric = queue->fabric;

	listener->next_of_queue = queue->listeners;
	queue->listeners = listener;
	pthread_mutex_lock(&fabric->lock);
	listener->next = fabric->listeners;
	listener->at = &fabric->listeners;
	if (listener->next)
		listener->next->at = &listener->next;
	fabric->listeners = listener;
	pthread_mutex_unlock(&fabric->lock);
}

int tcp_listen(struct reef_layer *layer, struct reef_queue *base,
	       const char *address, const struct reef_listen_options *options,
	       struct reef_listener **out)
{
	struct tcp_queue *queue = (struct tcp_queue *)base;
	struct reef_address parsed, bound;
	struct tcp_listener *listener;
	int rc;

	if (strncmp(address, "tcp:", 4) != 0)
		return -EINVAL;
	rc = reef_address_parse_inet(address + 4, &parsed);
	if (rc < 0)
		return rc;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	rc = reef_socket_listen(&parsed, &bound);
	if (rc < 0)
		goto err_free;
	listener->fd = rc;
	listener->source.kind = TCP_LISTENER;
	listener->base.fabric = layer->fabric;
	listener->base.queue = base;
	listener->base.options = *options;
	rc = format_address(listener, &bound);
	if (rc == 0)
		rc = tcp_queue_add(queue, listener->fd, EPOLLIN,
				   &listener->source);
	if (rc < 0)
		goto err_close;
	list_listener(listener, queue);
	*out = &listener->base;
	return 0;
err_close:
	close(listener->fd);
err_free:
	free(listener);
	return rc;
}

static void end_links_of(struct tcp_listener *listener, struct tcp_queue *queue)
{
	struct tcp_watch *watch = queue->watches;
	struct tcp_guest *guest, *next;

	for (guest = queue->guests; guest; guest = next) {
		next = guest->next;
		if (guest->listener == listener)
			tcp_guest_end(guest);
	}
	while (watch) {
		struct tcp_link *link = watch->link;

		if (!watch->is_owner ||
		    link->base.listener != &listener->base) {
			watch = watch->next;
			continue;
		}
		tcp_link_break(link, &queue->base, -REEF_ENOLINK, false);
		tcp_link_settle(link);
		watch = queue->watches;
	}
}

void tcp_listener_stop(struct tcp_listener *listener)
{
	struct tcp_queue *queue = (struct tcp_queue *)listener->base.queue;
	struct tcp_listener **at;

	if (listener->fd < 0)
		return;
	for (at = &queue->listeners; *at != listener;
	     at = &(*at)->next_of_queue)
		;
	*at = listener->next_of_queue;
	/* The user is not told of the links that end with their listener. */
	listener->base.options.closed = NULL;
	end_links_of(listener, queue);
	if (!listener->resume_ns)
		tcp_queue_remove(queue, listener->fd);
	tcp_queue_forget(queue, &listener->source);
	reef_socket_unlisten(listener->fd);
	listener->fd = -1;
}

void tcp_unlisten(struct reef_layer *layer, struct reef_listener *base)
{
	struct tcp_listener *listener = (struct tcp_listener *)base;
	struct tcp_fabric *fabric = tcp_fabric_of(layer);

	tcp_listener_stop(listener);
	pthread_mutex_lock(&fabric->lock);
	*listener->at = listener->next;
	if (listener->next)
		listener->next->at = listener->at;
	pthread_mutex_unlock(&fabric->lock);
	free(listener);
}

/* --- who holds which memory --- */

/* With link->lock. */
static struct tcp_holding *find_holding(struct tcp_link *link, uint64_t key)
{
	for (uint32_t i = 0; i < link->holding_count; i++)
		if (link->holdings[i].key == key)
			return &link->holdings[i];
	return NULL;
}

/* Count an attach of the peer's under this key. With link->lock. */
static int add_holding(struct tcp_link *link, uint64_t key)
{
	struct tcp_holding *holding = find_holding(link, key), *more;
	uint32_t size = link->holding_size ? link->holding_size * 2 : 4;

	if (holding) {
		holding->count++;
		return 0;
	}
	if (link->holding_count == link->holding_size) {
		more = realloc(link->holdings, size * sizeof(*more));
		if (!more)
			return -ENOMEM;
		link->holdings = more;
		link->holding_size = size;
	}
	link->holdings[link->holding_count++] =
		(struct tcp_holding){.key = key, .count = 1};
	return 0;
}

int tcp_on_attach(struct tcp_link *link, const uint8_t *payload)
{
	struct reef_wire_attached attached = {.status = -REEF_EKEY};
	uint8_t answer[REEF_WIRE_ATTACHED_SIZE];
	struct tcp_region *region;
	int rc = reef_wire_key_decode(payload, REEF_WIRE_KEY_SIZE,
				      &attached.key);

	if (rc < 0)
		return rc;
	region = tcp_regions_take(&link->fabric->regions, attached.key);
	if (region) {
		const struct reef_memory *memory = region->base.memory;

		attached.status = 0;
		attached.flags =
			reef_region_wire_flags(&region->base, attached.key);
		attached.size = memory->size;
		attached.domain = memory->domain;
		/* The holder is listed before the region is given back, so
		 * that a withdrawal which comes now finds it. */
		pthread_mutex_lock(&link->lock);
		rc = add_holding(link, attached.key);
		pthread_mutex_unlock(&link->lock);
		tcp_regions_give(region);
	}
	if (rc < 0)
		return rc;
	reef_wire_attached_encode(&attached, answer);
	return tcp_control(link, REEF_FRAME_ATTACHED, link->header.tag, answer,
			   sizeof(answer));
}

int tcp_on_detach(struct tcp_link *link, const uint8_t *payload)
{
	struct tcp_holding *holding;
	uint64_t key;
	int rc = reef_wire_key_decode(payload, REEF_WIRE_KEY_SIZE, &key);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&link->lock);
	holding = find_holding(link, key);
	/* There is none if the peer answers a WITHDRAW and had detached
	 * meanwhile. */
	if (holding && --holding->count == 0)
		*holding = link->holdings[--link->holding_count];
	pthread_mutex_unlock(&link->lock);
	return 0;
}
