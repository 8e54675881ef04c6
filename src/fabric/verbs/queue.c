/* queue.c - where a thread posts, polls and sleeps.
 *
 * A poll looks at the completion queues every time, which costs no system call,
 * and at the descriptors (control channels, listeners, the timer, completion
 * channels) when it is time: always after arming, else every CONTROL_NS, or
 * less often while completions keep coming. */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define CONTROL_NS 20000u
#define CONTROL_BUSY_NS 200000u
#define EVENTS_MAX 64
#define SECOND_NS 1000000000u

int verbs_queue_watch(struct verbs_queue *queue, int fd,
		      struct verbs_source *source, uint32_t events, bool add)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	if (epoll_ctl(queue->queue.fd, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd,
		      &event) < 0)
		return -errno;
	return 0;
}

void verbs_queue_unwatch(struct verbs_queue *queue, int fd)
{
	epoll_ctl(queue->queue.fd, EPOLL_CTL_DEL, fd, NULL);
}

/* --- opening and closing --- */

int verbs_queue_open(struct reef_layer *layer, struct reef_queue **out)
{
	struct verbs_queue *queue;
	int rc;

	queue = calloc(1, sizeof(*queue));
	if (!queue)
		return -ENOMEM;
	rc = reef_queue_init(&queue->queue, layer->fabric, true);
	if (rc)
		goto err_free;
	queue->fabric = verbs_fabric(layer);
	queue->wake_source.kind = VERBS_SOURCE_WAKE;
	queue->timer_source.kind = VERBS_SOURCE_TIMER;
	queue->queue.fd = epoll_create1(EPOLL_CLOEXEC);
	if (queue->queue.fd < 0) {
		rc = -errno;
		goto err_fini;
	}
	queue->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (queue->timer_fd < 0) {
		rc = -errno;
		goto err_epoll;
	}
	rc = verbs_queue_watch(queue, queue->timer_fd, &queue->timer_source,
			       EPOLLIN, true);
	if (!rc)
		rc = verbs_queue_watch(queue, queue->queue.wake_fd,
				       &queue->wake_source, EPOLLIN, true);
	if (rc)
		goto err_timer;
	*out = &queue->queue;
	return 0;
err_timer:
	close(queue->timer_fd);
err_epoll:
	close(queue->queue.fd);
err_fini:
	reef_queue_fini(&queue->queue);
err_free:
	free(queue);
	return rc;
}

static void drop_watch(struct verbs_queue *queue, struct verbs_watch **at)
{
	struct verbs_watch *watch = *at;

	*at = watch->next;
	verbs_queue_unwatch(queue, watch->hub->channel->fd);
	atomic_fetch_sub_explicit(&watch->hub->watches, 1,
				  memory_order_relaxed);
	verbs_hub_unref(watch->hub);
	free(watch);
}

void verbs_queue_close(struct reef_layer *layer, struct reef_queue *base)
{
	struct verbs_queue *queue = verbs_queue(base);
	struct verbs_hub *hub;

	verbs_links_close(queue);
	while (queue->watches)
		drop_watch(queue, &queue->watches);
	while ((hub = queue->hubs)) {
		queue->hubs = hub->next;
		atomic_store(&hub->is_closed, true);
		verbs_hub_unref(hub);
	}
	close(queue->timer_fd);
	close(queue->queue.fd);
	reef_queue_fini(&queue->queue);
	free(queue);
}

int verbs_queue_watch_hub(struct verbs_queue *queue, struct verbs_link *link,
			  struct verbs_watch **out)
{
	struct verbs_hub *hub = link->hub;
	struct verbs_watch *watch;
	int rc;

	*out = NULL;
	if (link->owner == queue)
		return 0;
	for (watch = queue->watches; watch; watch = watch->next) {
		if (watch->hub == hub) {
			*out = watch;
			return 0;
		}
	}
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return -ENOMEM;
	watch->hub = hub;
	rc = verbs_queue_watch(queue, hub->channel->fd, &hub->source, EPOLLIN,
			       true);
	if (rc) {
		free(watch);
		return rc;
	}
	atomic_fetch_add_explicit(&hub->references, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&hub->watches, 1, memory_order_relaxed);
	watch->next = queue->watches;
	queue->watches = watch;
	*out = watch;
	return 0;
}

/* --- the timer --- */

void verbs_queue_timer(struct verbs_queue *queue)
{
	uint64_t tick_ns = queue->fabric->fabric.options.silence_ns / 8;
	bool is_needed =
		queue->opening || queue->resting ||
		atomic_load_explicit(&queue->attaching, memory_order_relaxed);
	struct timespec tick = {.tv_sec = (time_t)(tick_ns / SECOND_NS),
				.tv_nsec = (long)(tick_ns % SECOND_NS)};
	struct itimerspec timer = {0};

	if (is_needed == queue->timer_set)
		return;
	if (is_needed)
		timer = (struct itimerspec){tick, tick};
	timerfd_settime(queue->timer_fd, 0, &timer, NULL);
	queue->timer_set = is_needed;
}

static int tick_queue(struct verbs_queue *queue)
{
	struct verbs_listener *listener;
	struct verbs_link *link, *next;
	uint64_t now_ns = reef_now_ns(), expirations;

	if (read(queue->timer_fd, &expirations, sizeof(expirations)) < 0)
		return 0;
	for (link = queue->links; link; link = next) {
		next = link->next;
		verbs_link_tick(link, now_ns);
	}
	for (listener = queue->listeners; listener; listener = listener->next) {
		if (!listener->is_resting)
			continue;
		listener->is_resting = false;
		queue->resting--;
		verbs_queue_watch(queue, listener->fd, &listener->source,
				  EPOLLIN, false);
	}
	return 0;
}

/* --- polling --- */

static int dispatch_event(struct verbs_queue *queue,
			  struct verbs_source *source)
{
	switch (source->kind) {
	case VERBS_SOURCE_LINK:
		return verbs_link_event(
			reef_container(source, struct verbs_link, source));
	case VERBS_SOURCE_LISTENER:
		return verbs_listener_event(
			reef_container(source, struct verbs_listener, source));
	case VERBS_SOURCE_HUB:
		return verbs_hub_notice(
			reef_container(source, struct verbs_hub, source),
			queue);
	case VERBS_SOURCE_TIMER:
		return tick_queue(queue);
	default:
		return 0; /* the core's */
	}
}

static int poll_descriptors(struct verbs_queue *queue)
{
	struct epoll_event events[EVENTS_MAX];
	struct verbs_watch *watch;
	int count, ready, i, total = 0;

	do {
		ready = epoll_wait(queue->queue.fd, events, EVENTS_MAX, 0);
		for (i = 0, count = 0; i < ready; i++)
			count += dispatch_event(queue, events[i].data.ptr);
		total += count;
	} while (ready == EVENTS_MAX && count && total < 4 * EVENTS_MAX);
	for (watch = queue->watches; watch; watch = watch->next)
		if (atomic_load_explicit(&watch->attaching,
					 memory_order_relaxed))
			total += verbs_link_read_others(watch->hub, queue);
	verbs_queue_timer(queue);
	return total;
}

static int poll_watches(struct verbs_queue *queue, bool must)
{
	struct verbs_watch **at = &queue->watches, *watch;
	int count = 0;

	while ((watch = *at)) {
		if (atomic_load_explicit(&watch->under_way,
					 memory_order_relaxed)) {
			count += verbs_hub_poll(watch->hub, queue, must);
		} else if (atomic_load_explicit(&watch->hub->is_closed,
						memory_order_relaxed)) {
			drop_watch(queue, at);
			continue;
		}
		at = &watch->next;
	}
	return count;
}

int verbs_poll(struct reef_layer *layer, struct reef_queue *base)
{
	struct verbs_queue *queue = verbs_queue(base);
	bool must = queue->sleepy;
	uint64_t now_ns = reef_now_ns();
	struct verbs_hub *hub;
	int count = 0;

	queue->sleepy = false;
	if (must || now_ns - queue->control_ns >=
			    (queue->busy ? CONTROL_BUSY_NS : CONTROL_NS)) {
		count = poll_descriptors(queue);
		queue->control_ns = now_ns;
	}
	for (hub = queue->hubs; hub; hub = hub->next)
		count += verbs_hub_poll(hub, queue, must);
	if (queue->watches)
		count += poll_watches(queue, must);
	count += verbs_queue_reap(queue);
	queue->busy = count > 0;
	return count;
}

int verbs_arm(struct reef_layer *layer, struct reef_queue *base)
{
	struct verbs_queue *queue = verbs_queue(base);
	struct verbs_watch *watch;
	struct verbs_hub *hub;
	int rc = 0;

	queue->sleepy = true;
	for (hub = queue->hubs; !rc && hub; hub = hub->next)
		rc = verbs_hub_arm(hub);
	for (watch = queue->watches; !rc && watch; watch = watch->next)
		if (atomic_load_explicit(&watch->under_way,
					 memory_order_relaxed))
			rc = verbs_hub_arm(watch->hub);
	return rc;
}
