/* shm.c - the shm fabric: opening, queues, and polling. */
#include "fabric/shm/shm.h"

#include "fabric/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Of polls that found something in a ring, one in so many calls epoll. */
#define EPOLL_EVERY 16
#define EVENTS_PER_POLL 64
/* How often a sleeper wakes up to see whether a grace is over. */
#define GRACE_LOOK_NS 1000000

/* --- what descriptors are --- */

static int grow_sources(struct shm_fabric *shm, int fd)
{
	uint32_t count = shm->sources_count ? shm->sources_count : 64;
	struct shm_source *sources;

	if ((uint32_t)fd < shm->sources_count)
		return 0;
	while (count <= (uint32_t)fd)
		count *= 2;
	sources = realloc(shm->sources, count * sizeof(*sources));
	if (!sources)
		return -ENOMEM;
	memset(sources + shm->sources_count, 0,
	       (count - shm->sources_count) * sizeof(*sources));
	shm->sources = sources;
	shm->sources_count = count;
	return 0;
}

int shm_source_add(struct shm_queue *queue, int fd, uint32_t events,
		   enum shm_source_kind kind, void *object)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);
	struct epoll_event event = {.events = events, .data.fd = fd};
	int rc;

	rc = grow_sources(shm, fd);
	if (rc)
		return rc;
	/* A peer is added again for every link. */
	if (epoll_ctl(queue->queue.fd, EPOLL_CTL_ADD, fd, &event) &&
	    errno != EEXIST)
		return -errno;
	shm->sources[fd] = (struct shm_source){kind, object};
	return 0;
}

void shm_source_remove(struct shm_fabric *shm, int fd)
{
	struct shm_queue *queue;

	if ((uint32_t)fd < shm->sources_count)
		shm->sources[fd] = (struct shm_source){0};
	/* Closing the descriptor would not do: a forked child may have a copy,
	 * which keeps it in the epoll. */
	for (queue = shm->queues; queue; queue = queue->next)
		epoll_ctl(queue->queue.fd, EPOLL_CTL_DEL, fd, NULL);
}

/* --- polling --- */

static int end_links_of_peer(struct shm_queue *queue, struct shm_peer *peer)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);
	struct shm_link *link, *next;
	int count = 0;

	/* A dead process's pidfd stays readable, and is reported only once. */
	epoll_ctl(queue->queue.fd, EPOLL_CTL_DEL, peer->pidfd, NULL);
	/* The peer must outlive the last of its links in this loop. */
	peer->refs++;
	for (link = shm->links; link; link = next) {
		next = link->next;
		if (link->peer != peer)
			continue;
		shm_link_died(queue, link);
		count++;
	}
	shm_peer_give(shm, peer);
	return count;
}

static int on_event(struct shm_queue *queue, int fd)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);
	struct shm_source source = {0};
	struct shm_listener *listener;
	struct shm_link *link;
	uint64_t times;

	if ((uint32_t)fd < shm->sources_count)
		source = shm->sources[fd];
	switch (source.kind) {
	case SHM_LISTENER:
		listener = source.object;
		if (listener->listener.queue == &queue->queue)
			shm_accept(queue, listener);
		return 0;
	case SHM_LINK:
		link = source.object;
		return link->link.queue == &queue->queue
			       ? shm_link_serve(queue, link)
			       : 0;
	case SHM_PEER:
		return shm_peer_is_dead(source.object)
			       ? end_links_of_peer(queue, source.object)
			       : 0;
	case SHM_TIMER: /* shm_links_tend was called before, by shm_poll */
		queue->timer_set = read(fd, &times, sizeof(times)) < 0;
		return 0;
	case SHM_NOTHING: /* wake_fd, or closed meanwhile */
		break;
	}
	return 0;
}

static int shm_poll(struct reef_layer *layer, struct reef_queue *base)
{
	struct shm_queue *queue = (struct shm_queue *)base;
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct epoll_event events[EVENTS_PER_POLL];
	int count = 0, i, progress = 0;

	if (shm_rings_have_any(queue)) {
		pthread_mutex_lock(&shm->lock);
		progress = shm_rings_poll(queue);
		pthread_mutex_unlock(&shm->lock);
	}
	/* A poll right after arm leaves out epoll: the queue's fd is readable
	 * as long as one of the descriptors is, and whoever sleeps on it sees
	 * that. */
	if (!queue->is_armed &&
	    (!progress || ++queue->ring_polls % EPOLL_EVERY == 0))
		count = epoll_wait(base->fd, events, EVENTS_PER_POLL, 0);
	queue->is_armed = false;
	if (count <= 0 &&
	    !atomic_load_explicit(&queue->attention, memory_order_relaxed) &&
	    !atomic_load_explicit(&shm->restless, memory_order_relaxed))
		return progress;
	pthread_mutex_lock(&shm->lock);
	/* Links are tended before the events: what those leave over is for the
	 * next poll. */
	if (atomic_load(&shm->restless))
		progress += shm_links_tend(queue);
	for (i = 0; i < count; i++)
		progress += on_event(queue, events[i].data.fd);
	pthread_mutex_unlock(&shm->lock);
	if (atomic_exchange(&queue->attention, false))
		progress += shm_links_report(queue);
	return progress;
}

/* A grace may wait for a post of another thread, which tells nobody when it
 * leaves: that would cost every post. So a timer wakes the sleeper. */
static int shm_arm(struct reef_layer *layer, struct reef_queue *base)
{
	static const struct itimerspec soon = {
		.it_value.tv_nsec = GRACE_LOOK_NS,
	};
	struct shm_queue *queue = (struct shm_queue *)base;
	struct shm_fabric *shm = shm_of(layer->fabric);
	bool waits;

	queue->is_armed = true;
	shm_rings_arm(queue);
	if (!atomic_load(&shm->restless))
		return 0;
	pthread_mutex_lock(&shm->lock);
	waits = shm_links_await_grace(shm);
	pthread_mutex_unlock(&shm->lock);
	if (waits && !queue->timer_set)
		queue->timer_set =
			!timerfd_settime(queue->timer_fd, 0, &soon, NULL);
	return 0;
}

/* --- queues --- */

static int shm_queue_open(struct reef_layer *layer, struct reef_queue **out)
{
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct epoll_event event = {.events = EPOLLIN};
	struct shm_queue *queue;
	int rc;

	if (posix_memalign((void **)&queue, _Alignof(struct shm_queue),
			   sizeof(*queue)))
		return -ENOMEM;
	memset(queue, 0, sizeof(*queue));
	rc = reef_queue_init(&queue->queue, &shm->fabric, true);
	if (rc)
		goto err_free;
	pthread_mutex_init(&queue->ring_lock, NULL);
	queue->queue.fd = epoll_create1(EPOLL_CLOEXEC);
	if (queue->queue.fd < 0) {
		rc = -errno;
		goto err_fini;
	}
	event.data.fd = queue->queue.wake_fd;
	if (epoll_ctl(queue->queue.fd, EPOLL_CTL_ADD, queue->queue.wake_fd,
		      &event)) {
		rc = -errno;
		goto err_close;
	}
	queue->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (queue->timer_fd < 0) {
		rc = -errno;
		goto err_close;
	}
	pthread_mutex_lock(&shm->lock);
	rc = shm_source_add(queue, queue->timer_fd, EPOLLIN, SHM_TIMER, queue);
	if (!rc) {
		queue->next = shm->queues;
		shm->queues = queue;
	}
	pthread_mutex_unlock(&shm->lock);
	if (rc)
		goto err_timer;
	reef_turn_add(&queue->queue.turn, SHM_LOOK_SELDOM);
	*out = &queue->queue;
	return 0;
err_timer:
	close(queue->timer_fd);
err_close:
	close(queue->queue.fd);
err_fini:
	reef_queue_fini(&queue->queue);
err_free:
	free(queue);
	return rc;
}

/* Listeners and links of a queue end with it; connected links stay, down, for
 * whoever still has a pointer. */
static void drop_links_of_queue(struct shm_queue *queue)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);
	struct shm_link *link, *next;

	for (link = shm->links; link; link = next) {
		next = link->next;
		if (link->link.queue != &queue->queue)
			continue;
		if (!link->is_accepted) {
			shm_link_end(queue, link, -REEF_ENOLINK, true);
			shm_link_leave(link);
		}
		link->interest = 0;
		shm_ring_leave(link);
		link->link.queue = NULL;
	}
}

static struct shm_listener *find_listener(struct shm_queue *queue)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);
	struct shm_listener *listener;

	pthread_mutex_lock(&shm->lock);
	for (listener = shm->listeners; listener; listener = listener->next)
		if (listener->listener.queue == &queue->queue)
			break;
	pthread_mutex_unlock(&shm->lock);
	return listener;
}

static void shm_queue_close(struct reef_layer *layer, struct reef_queue *base)
{
	struct shm_queue *queue = (struct shm_queue *)base, **at;
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct shm_listener *listener;

	while ((listener = find_listener(queue)))
		shm_unlisten(layer, &listener->listener);
	pthread_mutex_lock(&shm->lock);
	drop_links_of_queue(queue);
	shm_source_remove(shm, queue->timer_fd);
	for (at = &shm->queues; *at != queue; at = &(*at)->next)
		reef_assert(*at);
	*at = queue->next;
	pthread_mutex_unlock(&shm->lock);
	reef_turn_remove(&base->turn);
	close(queue->timer_fd);
	pthread_mutex_destroy(&queue->ring_lock);
	close(base->fd);
	reef_queue_fini(base);
	free(queue);
}

/* --- the fabric --- */

static void shm_close(struct reef_layer *layer)
{
	struct shm_fabric *shm = shm_of(layer->fabric);
	struct shm_region *region;

	reef_assert(!shm->queues);
	while (shm->links)
		shm_link_free(shm->links);
	while ((region = shm->regions)) {
		shm->regions = region->next;
		free(region);
	}
	shm_control_close(shm);
	reef_fences_fini(&shm->fences);
	reef_numbers_fini(&shm->numbers);
	free(shm->sources);
	pthread_mutex_destroy(&shm->lock);
	free(shm);
}

static const struct reef_fabric_ops shm_ops = {
	.name = "shm",
	.close = shm_close,
	.queue_open = shm_queue_open,
	.queue_close = shm_queue_close,
	.post = shm_post,
	.poll = shm_poll,
	.arm = shm_arm,
	.listen = shm_listen,
	.unlisten = shm_unlisten,
	.connect = shm_connect,
	.disconnect = shm_disconnect,
	.expose = shm_expose,
	.withdraw = shm_withdraw,
	.attach = shm_attach,
	.detach = shm_detach,
	.fence = shm_fence,
	.end_links = shm_end_links,
};

int reef_shm_open(const struct reef_fabric_options *options,
		  struct reef_fabric **out)
{
	struct shm_fabric *shm = calloc(1, sizeof(*shm));

	if (!shm)
		return -ENOMEM;
	if (reef_fences_init(&shm->fences)) {
		free(shm);
		return -ENOMEM;
	}
	reef_grace_init();
	pthread_mutex_init(&shm->lock, NULL);
	shm->fabric.provider.ops = shm_ops;
	shm->fabric.options = *options;
	shm->fabric.domain = reef_domain_cpu();
	shm->fabric.capabilities = REEF_CAP_FLUSH;
	/* Where every enter takes a full barrier, memory in place would gain
	 * nothing. */
	if (!reef_grace_is_strong)
		shm->fabric.capabilities |= REEF_CAP_NEAR;
	shm->control_fd = -1;
	*out = &shm->fabric;
	return 0;
}
