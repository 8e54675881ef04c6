/* life.c - a link from WELCOME to its end.
 *
 *   created --begin--> up --break--> broken --settle--> down
 *      |                               ^                 |  accepted: freed
 *      +---------break (fenced)--------+                 |  connected: freed by
 *                                                        v  disconnect
 */
#include "fabric/tcp/tcp.h"

#include "wire/control.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGERS_MAX 256

/* --- making and freeing --- */

static uint32_t power_of_two(uint32_t least)
{
	uint32_t size = 1;

	while (size < least && size < 1u << 31)
		size *= 2;
	return size;
}

static int deliver_message(void *context, const uint8_t *bytes, uint32_t length)
{
	struct tcp_link *link = context;
	int rc =
		reef_message_arrived(link->polling, &link->base, bytes, length);

	if (rc == 0)
		link->happened++;
	return rc;
}

static void init_target(struct tcp_link *link)
{
	const struct reef_fabric_options *options = &link->fabric->base.options;

	link->target.regions = &link->fabric->regions;
	link->target.message = deliver_message;
	link->target.context = link;
	link->target.answers_max = TCP_ANSWERS_LEAST;
	link->target.limits = (struct reef_wire_batch_limits){
		.ops_max = options->ops_max,
		.length_max = options->length_max,
		.message_max = options->message_max,
	};
}

int tcp_link_create(struct tcp_fabric *fabric, struct reef_queue *queue,
		    uint32_t session, uint32_t number, const char *identity,
		    struct tcp_link **out)
{
	struct tcp_link *link = calloc(1, sizeof(*link));

	if (!link)
		return -ENOMEM;
	link->ring_size = power_of_two(fabric->base.options.depth_max);
	link->ring = calloc(link->ring_size, sizeof(struct reef_batch *));
	if (!link->ring) {
		free(link);
		return -ENOMEM;
	}
	link->fabric = fabric;
	link->base.fabric = &fabric->base;
	link->base.queue = queue;
	reef_link_set_owner(&link->base, session, number, identity);
	link->base.state = REEF_LINK_OPENING;
	link->refs = 1;
	link->fd = -1;
	link->opening.kind = TCP_OPENING;
	pthread_mutex_init(&link->tx_lock, NULL);
	pthread_mutex_init(&link->rx_lock, NULL);
	pthread_mutex_init(&link->lock, NULL);
	init_target(link);
	*out = link;
	return 0;
}

void tcp_link_ref(struct tcp_link *link)
{
	atomic_fetch_add_explicit(&link->refs, 1, memory_order_relaxed);
}

void tcp_link_unref(struct tcp_link *link)
{
	/* Release what this thread did with the link; the last one acquires
	 * what all others did. */
	if (atomic_fetch_sub_explicit(&link->refs, 1, memory_order_acq_rel) !=
	    1)
		return;
	reef_assert(!link->watches && !link->remotes);
	reef_tls_destroy(link->tls);
	if (link->fd >= 0)
		close(link->fd);
	tcp_target_fini(&link->target);
	free(link->in.bytes);
	free(link->out.bytes);
	free(link->control.bytes);
	free(link->holdings);
	free(link->ring);
	pthread_mutex_destroy(&link->tx_lock);
	pthread_mutex_destroy(&link->rx_lock);
	pthread_mutex_destroy(&link->lock);
	free(link);
}

/* --- beginning --- */

static int keep_rest(struct tcp_link *link, const uint8_t *rest, size_t size)
{
	int rc = reef_fifo_reserve(&link->in, size + 1, SIZE_MAX / 2);

	if (rc < 0)
		return rc;
	if (size)
		memcpy(link->in.bytes, rest, size);
	link->in.end = size;
	return 0;
}

int tcp_link_begin(struct tcp_link *link, struct reef_stream *stream,
		   const struct reef_hello_peer *peer)
{
	struct tcp_queue *queue = (struct tcp_queue *)link->base.queue;
	const uint8_t *rest;
	size_t rest_size;
	int rc = -ENOMEM;

	link->ops_max = peer->ops_max;
	link->length_max = peer->length_max;
	link->message_max = peer->message_max;
	pthread_mutex_lock(&link->rx_lock);
	pthread_mutex_lock(&link->tx_lock);
	if (atomic_load(&link->broken)) {
		rc = atomic_load(&link->broken);
		goto out;
	}
	atomic_store(&link->quiet_ns, reef_now_ns());
	link->tls = reef_stream_release_tls(stream);
	link->fd = reef_stream_release(stream, &rest, &rest_size);
	reef_socket_keep_alive(link->fd, tcp_silence_ns(link->fabric));
	rc = keep_rest(link, rest, rest_size);
	if (rc < 0)
		goto out;
	link->watch = tcp_watch_get(queue, link);
	if (link->watch)
		link->watch->is_owner = true;
	else
		rc = -ENOMEM;
out:
	pthread_mutex_unlock(&link->tx_lock);
	pthread_mutex_unlock(&link->rx_lock);
	if (rc == 0)
		tcp_watch_activate(link->watch);
	return rc;
}

/* --- breaking --- */

static void fail_batches(struct tcp_link *link, struct reef_queue *polling)
{
	uint64_t ended = atomic_load(&link->ended);
	uint64_t posted = atomic_load(&link->posted);

	for (; ended != posted; ended++) {
		struct reef_batch *batch =
			link->ring[ended & (link->ring_size - 1)];
		struct tcp_watch *watch = (struct tcp_watch *)batch->scratch[0];

		reef_batch_fail_all(batch, -REEF_EINDOUBT);
		atomic_fetch_sub(&watch->under_way, 1);
		reef_batch_ended(polling, batch);
	}
	atomic_store(&link->sent, posted);
	atomic_store(&link->ended, posted);
	link->borrowed.iov_len = 0;
	link->batch_begun = false;
}

/* Tell the peer why the link ends, if it is between two frames. Returns whether
 * the BYE is in the socket. */
static bool say_bye(struct tcp_link *link, int reason)
{
	uint8_t payload[REEF_WIRE_BYE_SIZE];

	if (link->blocked || reef_fifo_used(&link->out) ||
	    link->borrowed.iov_len || link->batch_begun)
		return false;
	reef_wire_bye_encode(reason, payload);
	link->control.start = link->control.end = 0;
	return tcp_control_locked(link, REEF_FRAME_BYE, 0, payload,
				  sizeof(payload)) == 0 &&
	       !link->blocked && shutdown(link->fd, SHUT_WR) == 0;
}

static void stop_watching(struct tcp_link *link, struct reef_queue *polling)
{
	for (struct tcp_watch *watch = link->watches; watch;
	     watch = watch->next_of_link) {
		if (watch->in_epoll)
			tcp_queue_remove(watch->queue, link->fd);
		watch->in_epoll = false;
		if (&watch->queue->base != polling)
			reef_queue_wake(&watch->queue->base);
	}
}

void tcp_link_break_locked(struct tcp_link *link, struct reef_queue *polling,
			   int reason, bool bye)
{
	struct tcp_queue *owner = (struct tcp_queue *)link->base.queue;

	reef_assert(reason < 0);
	if (atomic_load(&link->broken))
		return;
	/* Batches first: nothing more of them is to be sent. */
	fail_batches(link, polling);
	if (bye && link->fd >= 0)
		link->linger = say_bye(link, reason);
	reef_tls_destroy(link->tls);
	link->tls = NULL;
	atomic_store(&link->broken, reason);
	stop_watching(link, polling);
	if (link->fd >= 0 && !link->linger) {
		/* Closing is not enough: a forked child may have it open. */
		shutdown(link->fd, SHUT_RDWR);
		close(link->fd);
		link->fd = -1;
	}
	tcp_regions_give(link->target.region);
	link->target.region = NULL;
	link->in.start = link->in.end = 0;
	link->target.reply.start = link->target.reply.end = 0;
	atomic_fetch_sub(&link->fabric->answers, link->answers);
	link->answers = 0;
	tcp_attaches_fail(link, polling);
	if (link->paused)
		atomic_fetch_sub(&owner->paused, 1);
	atomic_store(&link->paused, false);
	if (link->base.listener)
		atomic_fetch_sub(&link->fabric->accepted, 1);
	if (link->watch) {
		atomic_fetch_add(&owner->broken, 1);
		if (&owner->base != polling)
			reef_queue_wake(&owner->base);
	}
}

void tcp_link_break(struct tcp_link *link, struct reef_queue *polling,
		    int reason, bool bye)
{
	pthread_mutex_lock(&link->rx_lock);
	pthread_mutex_lock(&link->tx_lock);
	tcp_link_break_locked(link, polling, reason, bye);
	pthread_mutex_unlock(&link->tx_lock);
	pthread_mutex_unlock(&link->rx_lock);
}

/* --- settling --- */

/* Keep the socket of an ended link open until the peer has read our BYE: while
 * it is still sending, a close would be a reset, and its kernel would throw the
 * BYE away. */
static void keep_lingering(struct tcp_queue *queue, int fd)
{
	struct tcp_linger *linger = calloc(1, sizeof(*linger));
	uint32_t count = 0;

	for (struct tcp_linger *other = queue->lingers; other;
	     other = other->next)
		count++;
	if (!linger || count >= LINGERS_MAX ||
	    tcp_queue_add(queue, fd, EPOLLIN, &linger->source) < 0) {
		free(linger);
		close(fd);
		return;
	}
	linger->source.kind = TCP_LINGER;
	linger->fd = fd;
	linger->until_ns = reef_now_ns() + tcp_silence_ns(queue->fabric);
	linger->next = queue->lingers;
	queue->lingers = linger;
}

void tcp_link_list(struct tcp_link *link)
{
	struct tcp_fabric *fabric = link->fabric;

	link->next = fabric->links;
	link->at = &fabric->links;
	if (link->next)
		link->next->at = &link->next;
	fabric->links = link;
}

void tcp_link_unlist(struct tcp_link *link)
{
	pthread_mutex_lock(&link->fabric->lock);
	if (link->at) {
		*link->at = link->next;
		if (link->next)
			link->next->at = link->at;
		link->at = NULL;
	}
	pthread_mutex_unlock(&link->fabric->lock);
}

void tcp_link_settle(struct tcp_link *link)
{
	struct tcp_queue *queue = (struct tcp_queue *)link->base.queue;
	struct tcp_watch *watch = link->watch;
	int fd;

	reef_assert(atomic_load(&link->broken) && watch);
	atomic_fetch_sub(&queue->broken, 1);
	pthread_mutex_lock(&link->rx_lock);
	pthread_mutex_lock(&link->tx_lock);
	fd = link->fd;
	link->fd = -1;
	link->watch = NULL;
	pthread_mutex_unlock(&link->tx_lock);
	pthread_mutex_unlock(&link->rx_lock);
	if (fd >= 0)
		keep_lingering(queue, fd);
	/* The link stays: the owner's reference is still there. */
	tcp_watch_drop(watch);
	reef_link_ended(&queue->base, &link->base, atomic_load(&link->broken));
	if (link->base.listener) {
		tcp_link_unlist(link);
		tcp_link_unref(link);
	}
}

static void free_remotes(struct tcp_link *link)
{
	struct tcp_remote *remote;

	while ((remote = link->remotes)) {
		link->remotes = remote->next;
		free(remote);
	}
}

void tcp_disconnect(struct reef_layer *layer, struct reef_link *base)
{
	struct tcp_link *link = (struct tcp_link *)base;

	(void)layer;
	tcp_opening_end(link);
	tcp_link_break(link, base->queue, -REEF_ENOLINK, false);
	if (link->watch)
		tcp_link_settle(link);
	/* The owner's reference is still there; the checker counts none. */
	tcp_link_unlist(link); /* NOLINT(clang-analyzer-unix.Malloc) */
	free_remotes(link);
	tcp_link_unref(link);
}

void tcp_sever(struct reef_layer *layer, struct reef_link *base)
{
	(void)layer;
	tcp_link_break((struct tcp_link *)base, base->queue, -REEF_ENOLINK,
		       false);
}

/* --- silence --- */

/* For how long nothing has been heard from the peer, in time in which this side
 * was polling. */
static uint64_t silence_of_ns(struct tcp_link *link, uint64_t now_ns)
{
	uint64_t quiet_ns;

	if (atomic_exchange(&link->stirred, false))
		atomic_store(&link->quiet_ns, now_ns);
	quiet_ns = atomic_load(&link->quiet_ns);
	return now_ns > quiet_ns ? now_ns - quiet_ns : 0;
}

/* True if the kernel has had output for silence_ns that the peer's kernel does
 * not acknowledge. Asked on the accepting side, where nothing else would
 * notice: keep-alive waits until all is acknowledged. */
static bool has_stale_output(struct tcp_link *link, uint64_t now_ns)
{
	uint64_t silence_ns = tcp_silence_ns(link->fabric);
	int bytes = 0;

	pthread_mutex_lock(&link->tx_lock);
	if (link->fd < 0 || ioctl(link->fd, SIOCOUTQ, &bytes) < 0)
		bytes = 0;
	if (!bytes)
		link->unsent_ns = 0;
	else if (!link->unsent_ns)
		link->unsent_ns = now_ns;
	bytes = bytes && now_ns - link->unsent_ns >= silence_ns;
	pthread_mutex_unlock(&link->tx_lock);
	return bytes;
}

static void send_ping(struct tcp_link *link, uint64_t now_ns)
{
	pthread_mutex_lock(&link->tx_lock);
	if (link->fd >= 0 &&
	    now_ns - link->pinged_ns >= tcp_silence_ns(link->fabric) / 4) {
		link->pinged_ns = now_ns;
		tcp_control_locked(link, REEF_FRAME_PING, 0, NULL, 0);
	}
	pthread_mutex_unlock(&link->tx_lock);
}

static bool is_awaited(const struct tcp_link *link)
{
	return tcp_link_waits(link) || link->blocked || link->is_halfway;
}

/* Break a link that has been silent for too long, unless something was heard at
 * the last moment. */
static void break_if_silent(struct tcp_link *link, struct reef_queue *polling)
{
	pthread_mutex_lock(&link->rx_lock);
	pthread_mutex_lock(&link->tx_lock);
	if (is_awaited(link) && !atomic_load(&link->stirred))
		tcp_link_break_locked(link, polling, -ETIMEDOUT, false);
	pthread_mutex_unlock(&link->tx_lock);
	pthread_mutex_unlock(&link->rx_lock);
}

void tcp_link_tick(struct tcp_link *link, struct reef_queue *polling,
		   uint64_t now_ns, bool was_away)
{
	uint64_t silence_ns = tcp_silence_ns(link->fabric), silent_ns;

	if (atomic_load(&link->broken))
		return;
	if (was_away)
		tcp_link_stir(link);
	silent_ns = silence_of_ns(link, now_ns);
	if (is_awaited(link) && silent_ns >= silence_ns) {
		/* What the peer said may only not have been read yet. */
		tcp_receive(link, polling);
		break_if_silent(link, polling);
	} else if (link->paused ||
		   (is_awaited(link) && silent_ns >= silence_ns / 4)) {
		/* A paused link does not read, but its peer is to hear us. */
		send_ping(link, now_ns);
	} else if (link->base.listener && silent_ns >= silence_ns / 4 &&
		   has_stale_output(link, now_ns)) {
		tcp_link_break(link, polling, -ETIMEDOUT, false);
	}
}
