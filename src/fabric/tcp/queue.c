/* queue.c - which sockets to look at, and when.
 *
 * Asking epoll before each recv would double the system calls of a round trip,
 * so a poll tries links that were busy lately directly (the active ones), as
 * long as they are few, and asks epoll about all the others every so often, and
 * whenever its thread is about to sleep. Level-triggered: what one poll leaves,
 * or another thread's poll was busy with, is found by the next.
 *
 * Being in an epoll set costs a socket some hundred nanoseconds for each packet
 * that comes (a twentieth of a round trip on loopback). So a link that is tried
 * directly, with success, again and again leaves the set, and is put back
 * before its thread sleeps.
 *
 * A link that other queues post on, and read, would wake its owner for each of
 * their answers, which costs them a quarter and the processor two thirds more.
 * So an owner that sleeps beside such traffic leaves the link to them, and
 * looks after it every millisecond. What they read for the owner wakes it; what
 * comes when they have just stopped reading waits for that millisecond. */
#include "fabric/tcp/tcp.h"

#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define DIRECT_MAX 4	/* active links that are tried directly */
#define EPOLL_EVERY 16	/* polls, when some are active */
#define APART_AFTER 256 /* polls with success, none of them after a sleep */
#define SWEEP_EVERY 256
#define ASIDE_NS 1000000
#define IDLE_MAX 512 /* fruitless polls until a link is active no more */
#define EVENTS_MAX                                                             \
	((int)(sizeof(((struct tcp_queue *)0)->events) /                       \
	       sizeof(struct epoll_event)))

/* --- epoll --- */

int tcp_queue_add(struct tcp_queue *queue, int fd, uint32_t events,
		  struct tcp_source *source)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	if (epoll_ctl(queue->base.fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;
	return 0;
}

void tcp_queue_remove(struct tcp_queue *queue, int fd)
{
	struct epoll_event event = {0};

	/* Closing is not enough: a forked child may keep the socket open. */
	epoll_ctl(queue->base.fd, EPOLL_CTL_DEL, fd, &event);
}

void tcp_queue_forget(struct tcp_queue *queue, struct tcp_source *source)
{
	for (int i = 0; i < queue->event_count; i++)
		if (queue->events[i].data.ptr == source)
			queue->events[i].data.ptr = NULL;
}

/* --- watches --- */

static uint32_t events_of(const struct tcp_link *link)
{
	return (link->stalled || link->paused ? 0 : EPOLLIN) |
	       (link->stalled || link->blocked ? EPOLLOUT : 0);
}

void tcp_watch_events(struct tcp_link *link)
{
	struct epoll_event event = {.events = events_of(link)};

	if (link->fd < 0 || event.events == link->events)
		return;
	link->events = event.events;
	for (struct tcp_watch *watch = link->watches; watch;
	     watch = watch->next_of_link) {
		event.data.ptr = &watch->source;
		if (watch->in_epoll)
			epoll_ctl(watch->queue->base.fd, EPOLL_CTL_MOD,
				  link->fd, &event);
	}
}

static struct tcp_watch *watch_create(struct tcp_queue *queue,
				      struct tcp_link *link)
{
	struct tcp_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return NULL;
	link->events = events_of(link);
	watch->source.kind = TCP_WATCH;
	if (tcp_queue_add(queue, link->fd, link->events, &watch->source) < 0) {
		free(watch);
		return NULL;
	}
	watch->in_epoll = true;
	watch->queue = queue;
	watch->link = link;
	tcp_link_ref(link);
	watch->next_of_link = link->watches;
	link->watches = watch;
	watch->next = queue->watches;
	watch->at = &queue->watches;
	if (watch->next)
		watch->next->at = &watch->next;
	queue->watches = watch;
	return watch;
}

struct tcp_watch *tcp_watch_get(struct tcp_queue *queue, struct tcp_link *link)
{
	struct tcp_watch *watch;

	for (watch = link->watches; watch; watch = watch->next_of_link)
		if (watch->queue == queue)
			return watch;
	return watch_create(queue, link);
}

void tcp_watch_activate(struct tcp_watch *watch)
{
	struct tcp_queue *queue = watch->queue;

	watch->idle = 0;
	if (watch->active_at)
		return;
	watch->next_active = queue->active;
	watch->active_at = &queue->active;
	if (watch->next_active)
		watch->next_active->active_at = &watch->next_active;
	queue->active = watch;
	queue->active_count++;
}

static void leave_epoll(struct tcp_watch *watch)
{
	struct tcp_link *link = watch->link;

	watch->busy = 0;
	pthread_mutex_lock(&link->tx_lock);
	if (watch->in_epoll && link->events == EPOLLIN) {
		tcp_queue_remove(watch->queue, link->fd);
		watch->in_epoll = false;
		watch->apart = true;
		watch->queue->apart_count++;
	}
	pthread_mutex_unlock(&link->tx_lock);
}

static int join_epoll(struct tcp_watch *watch)
{
	struct tcp_link *link = watch->link;
	int rc = 0;

	watch->busy = 0;
	if (!watch->apart)
		return 0;
	pthread_mutex_lock(&link->tx_lock);
	if (link->fd >= 0 && !atomic_load(&link->broken)) {
		rc = tcp_queue_add(watch->queue, link->fd, link->events,
				   &watch->source);
		watch->in_epoll = rc == 0;
	}
	pthread_mutex_unlock(&link->tx_lock);
	if (rc == 0) {
		watch->apart = false;
		watch->queue->apart_count--;
	}
	return rc;
}

static int all_join_epoll(struct tcp_queue *queue)
{
	struct tcp_watch *watch;
	int rc = 0;

	for (watch = queue->active; watch && rc == 0;
	     watch = watch->next_active)
		rc = join_epoll(watch);
	return rc;
}

/* True if other queues have read the link's answers often, and until now. */
static bool is_read_by_others(struct tcp_watch *watch, uint64_t now_ns)
{
	uint32_t others = atomic_load_explicit(&watch->link->others,
					       memory_order_relaxed);

	if (others != watch->others) {
		watch->is_aside = now_ns - watch->others_ns < 2 * ASIDE_NS;
		watch->others = others;
		watch->others_ns = now_ns;
	}
	return watch->is_aside && now_ns - watch->others_ns < 2 * ASIDE_NS;
}

/* Before the queue sleeps, take links that other queues read out of its epoll
 * set. Returns whether there was one. */
static bool step_aside(struct tcp_queue *queue)
{
	uint64_t now_ns = reef_now_ns();
	struct tcp_watch *watch;
	bool aside = false;

	for (watch = queue->watches; watch; watch = watch->next) {
		if (!watch->is_owner || watch->link->base.listener ||
		    !is_read_by_others(watch, now_ns))
			continue;
		tcp_watch_activate(watch);
		leave_epoll(watch);
		aside |= watch->apart;
	}
	return aside;
}

static void deactivate_watch(struct tcp_watch *watch)
{
	if (!watch->active_at)
		return;
	/* A watch that cannot be put into epoll stays active, and is polled. */
	if (join_epoll(watch) < 0)
		return;
	*watch->active_at = watch->next_active;
	if (watch->next_active)
		watch->next_active->active_at = watch->active_at;
	watch->active_at = NULL;
	watch->queue->active_count--;
}

void tcp_watch_drop(struct tcp_watch *watch)
{
	struct tcp_link *link = watch->link;
	struct tcp_watch **at;

	pthread_mutex_lock(&link->tx_lock);
	for (at = &link->watches; *at != watch; at = &(*at)->next_of_link)
		;
	*at = watch->next_of_link;
	if (watch->in_epoll)
		tcp_queue_remove(watch->queue, link->fd);
	pthread_mutex_unlock(&link->tx_lock);
	reef_assert(atomic_load(&watch->under_way) == 0);
	if (watch->apart)
		watch->queue->apart_count--;
	watch->apart = false;
	deactivate_watch(watch);
	*watch->at = watch->next;
	if (watch->next)
		watch->next->at = watch->at;
	watch->queue->unsent -= watch->unsent;
	tcp_queue_forget(watch->queue, &watch->source);
	free(watch);
	tcp_link_unref(link);
}

/* True if the link is another queue's, and none of our batches is on it. */
static bool is_disused(const struct tcp_watch *watch)
{
	return !watch->is_owner && atomic_load(&watch->under_way) == 0;
}

/* --- polling --- */

static int poll_watch(struct tcp_watch *watch)
{
	int happened = tcp_receive(watch->link, &watch->queue->base);

	if (happened) {
		watch->idle = 0;
		watch->busy++;
	}
	return happened;
}

static int poll_active(struct tcp_queue *queue)
{
	struct tcp_watch *watch, *next;
	int happened = 0;

	for (watch = queue->active; watch; watch = next) {
		next = watch->next_active;
		happened += poll_watch(watch);
		if (watch->busy >= APART_AFTER && !watch->apart)
			leave_epoll(watch);
		if (++watch->idle < IDLE_MAX)
			continue;
		if (!atomic_load(&watch->under_way) ||
		    atomic_load(&watch->link->broken))
			deactivate_watch(watch);
	}
	return happened;
}

/* Deactivate watches that epoll did not report for a while, when too many are
 * active to be tried one by one. */
static void sweep_active(struct tcp_queue *queue)
{
	struct tcp_watch *watch, *next;

	for (watch = queue->active; watch; watch = next) {
		next = watch->next_active;
		if (watch->idle++ && !atomic_load(&watch->under_way))
			deactivate_watch(watch);
	}
}

static int drain_linger(struct tcp_linger *linger, struct tcp_queue *queue,
			bool too_late)
{
	struct tcp_linger **at = &queue->lingers;
	char bytes[4096];
	ssize_t n = -1;

	for (int i = 0; i < 64 && !too_late; i++) {
		n = recv(linger->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n <= 0)
			break;
	}
	if (!too_late && (n > 0 || (n < 0 && errno == EAGAIN)))
		return 0;
	tcp_queue_remove(queue, linger->fd);
	tcp_queue_forget(queue, &linger->source);
	close(linger->fd);
	while (*at != linger)
		at = &(*at)->next;
	*at = linger->next;
	free(linger);
	return 0;
}

static int poll_reported_watch(struct tcp_watch *watch, uint32_t events)
{
	struct tcp_link *link = watch->link;

	tcp_watch_activate(watch);
	/* While the link is stalled or paused nobody reads it, so nobody else
	 * would find out that it is lost. */
	if (events & (EPOLLHUP | EPOLLERR) && !(events_of(link) & EPOLLIN)) {
		tcp_link_break(link, &watch->queue->base, -REEF_ENOLINK, false);
		return 1;
	}
	return poll_watch(watch);
}

static int dispatch_event(struct tcp_queue *queue, struct tcp_source *source,
			  uint32_t events)
{
	uint64_t count;

	switch (source->kind) {
	case TCP_WAKE: /* the core drains it */
		return 0;
	case TCP_TIMER:
		queue->timer_set =
			read(queue->timer_fd, &count, sizeof(count)) < 0;
		/* The timer may have run out between arm and the poll before
		 * sleep. Nothing else would end a sleep beside links that are
		 * left to others, so this counts as something that happened. */
		return queue->apart_count != 0;
	case TCP_WATCH:
		return poll_reported_watch(
			reef_container(source, struct tcp_watch, source),
			events);
	case TCP_LISTENER:
		return tcp_listener_accept(
			reef_container(source, struct tcp_listener, source),
			reef_now_ns());
	case TCP_GUEST:
		return tcp_guest_step(
			reef_container(source, struct tcp_guest, source));
	case TCP_OPENING:
		return tcp_opening_step(
			reef_container(source, struct tcp_link, opening));
	default:
		return drain_linger(
			reef_container(source, struct tcp_linger, source),
			queue, false);
	}
}

static int poll_events(struct tcp_queue *queue)
{
	int happened = 0;
	int count = epoll_wait(queue->base.fd, queue->events, EVENTS_MAX, 0);

	queue->event_count = count > 0 ? count : 0;
	for (int i = 0; i < queue->event_count; i++)
		if (queue->events[i].data.ptr)
			happened +=
				dispatch_event(queue, queue->events[i].data.ptr,
					       queue->events[i].events);
	queue->event_count = 0;
	return happened;
}

/* --- time --- */

static void tick_watches(struct tcp_queue *queue, uint64_t now_ns,
			 bool was_away)
{
	struct tcp_watch *watch, *next;

	for (watch = queue->watches; watch; watch = next) {
		next = watch->next;
		tcp_link_tick(watch->link, &queue->base, now_ns, was_away);
		if (is_disused(watch))
			tcp_watch_drop(watch);
	}
}

static void tick_queue(struct tcp_queue *queue)
{
	uint64_t silence_ns = tcp_silence_ns(queue->fabric);
	uint64_t now_ns = reef_now_ns(), passed_ns = now_ns - queue->tick_ns;
	bool was_away = passed_ns > silence_ns / 2;
	struct tcp_guest *guest, *next_guest;
	struct tcp_linger *linger, *next_linger;

	if (passed_ns < silence_ns / 8)
		return;
	queue->tick_ns = now_ns;
	tick_watches(queue, now_ns, was_away);
	for (guest = queue->guests; guest; guest = next_guest) {
		next_guest = guest->next;
		if (was_away)
			guest->until_ns = now_ns + silence_ns;
		else if (now_ns >= guest->until_ns)
			tcp_guest_end(guest);
	}
	for (linger = queue->lingers; linger; linger = next_linger) {
		next_linger = linger->next;
		drain_linger(linger, queue, now_ns >= linger->until_ns);
	}
	for (struct tcp_listener *listener = queue->listeners; listener;
	     listener = listener->next_of_queue)
		tcp_listener_tick(listener, now_ns);
}

/* --- the queue --- */

/* Settle the queue's own links that broke. The user's `closed` may do anything,
 * so the search begins anew after each. */
static int settle_broken(struct tcp_queue *queue)
{
	struct tcp_watch *watch = queue->watches;
	int happened = 0;

	while (watch && atomic_load(&queue->broken)) {
		struct tcp_link *link = watch->link;

		if (watch->is_owner && atomic_load(&link->broken)) {
			tcp_link_settle(link);
			happened++;
			watch = queue->watches;
		} else {
			watch = watch->next;
		}
	}
	return happened;
}

/* Read on from links that wait for the inbox, if it has room again. */
static void resume_paused(struct tcp_queue *queue)
{
	if (atomic_load(&queue->base.inbox_count) >=
	    queue->fabric->base.options.inbox_max)
		return;
	for (struct tcp_watch *watch = queue->watches; watch;
	     watch = watch->next)
		if (watch->is_owner && watch->link->paused)
			poll_watch(watch);
}

/* Send what fibers posted since the last poll, and left to it. */
static void send_waiting(struct tcp_queue *queue)
{
	for (struct tcp_watch *watch = queue->watches; watch && queue->unsent;
	     watch = watch->next) {
		if (!watch->unsent)
			continue;
		watch->unsent = false;
		queue->unsent--;
		pthread_mutex_lock(&watch->link->tx_lock);
		if (!watch->link->blocked)
			tcp_flush(watch->link);
		pthread_mutex_unlock(&watch->link->tx_lock);
	}
}

int tcp_poll(struct reef_layer *layer, struct reef_queue *base)
{
	struct tcp_queue *queue = (struct tcp_queue *)base;
	bool look = queue->attentive || queue->active_count == 0 ||
		    queue->active_count > DIRECT_MAX ||
		    ++queue->round % EPOLL_EVERY == 0;
	int happened = 0;

	(void)layer;
	if (queue->unsent)
		send_waiting(queue);
	/* Right after arm all is left to epoll, which the sleeper looks at. */
	if (queue->is_armed && queue->active_count == 0) {
		queue->is_armed = look = false;
		if (queue->attentive)
			queue->attentive--;
	}
	queue->is_armed = false;
	if (queue->active_count <= DIRECT_MAX)
		happened = poll_active(queue);
	else if (queue->apart_count && !queue->attentive)
		all_join_epoll(queue); /* attentive: left to others for now */
	else if (++queue->round % SWEEP_EVERY == 0)
		sweep_active(queue);
	if (atomic_load_explicit(&queue->paused, memory_order_relaxed))
		resume_paused(queue);
	if (look) {
		happened += poll_events(queue);
		tick_queue(queue);
		if (queue->attentive)
			queue->attentive--;
	}
	if (atomic_load_explicit(&queue->broken, memory_order_relaxed))
		happened += settle_broken(queue);
	return happened;
}

/* True if something has a deadline that could pass while the thread sleeps. */
static bool needs_timer(const struct tcp_queue *queue)
{
	if (queue->guests || queue->lingers)
		return true;
	for (const struct tcp_listener *listener = queue->listeners; listener;
	     listener = listener->next_of_queue)
		if (listener->resume_ns)
			return true;
	for (const struct tcp_watch *watch = queue->watches; watch;
	     watch = watch->next)
		if (atomic_load(&watch->under_way) || watch->link->blocked ||
		    watch->link->paused || watch->link->is_halfway)
			return true;
	return false;
}

int tcp_arm(struct reef_layer *layer, struct reef_queue *base)
{
	struct tcp_queue *queue = (struct tcp_queue *)base;
	uint64_t ns = tcp_silence_ns(queue->fabric) / 4;
	struct tcp_watch *watch, *next;
	struct itimerspec timer = {0};
	bool aside;

	(void)layer;
	/* Two polls look at everything: the one that follows, and the one after
	 * the sleep. */
	queue->attentive = 2;
	queue->is_armed = true;
	for (watch = queue->active; watch; watch = watch->next_active)
		watch->busy = 0;
	if (queue->apart_count && all_join_epoll(queue) < 0)
		return -ENOMEM;
	for (watch = queue->watches; watch; watch = next) {
		next = watch->next;
		if (is_disused(watch))
			tcp_watch_drop(watch);
	}
	aside = step_aside(queue);
	if (aside && ns > ASIDE_NS)
		ns = ASIDE_NS;
	timer.it_value.tv_sec = (time_t)(ns / 1000000000);
	timer.it_value.tv_nsec = (long)(ns % 1000000000);
	if (aside || (!queue->timer_set && needs_timer(queue)))
		queue->timer_set =
			timerfd_settime(queue->timer_fd, 0, &timer, NULL) == 0;
	return 0;
}

int tcp_queue_open(struct reef_layer *layer, struct reef_queue **out)
{
	struct tcp_queue *queue = calloc(1, sizeof(*queue));
	int rc;

	if (!queue)
		return -ENOMEM;
	rc = reef_queue_init(&queue->base, layer->fabric, true);
	if (rc < 0)
		goto err_free;
	queue->fabric = tcp_fabric_of(layer);
	queue->wake.kind = TCP_WAKE;
	queue->timer.kind = TCP_TIMER;
	queue->tick_ns = reef_now_ns();
	rc = -EMFILE;
	queue->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (queue->timer_fd < 0)
		goto err_fini;
	queue->base.fd = epoll_create1(EPOLL_CLOEXEC);
	if (queue->base.fd < 0)
		goto err_timer;
	rc = tcp_queue_add(queue, queue->base.wake_fd, EPOLLIN, &queue->wake);
	if (rc == 0)
		rc = tcp_queue_add(queue, queue->timer_fd, EPOLLIN,
				   &queue->timer);
	if (rc < 0)
		goto err_epoll;
	*out = &queue->base;
	return 0;
err_epoll:
	close(queue->base.fd);
err_timer:
	close(queue->timer_fd);
err_fini:
	reef_queue_fini(&queue->base);
err_free:
	free(queue);
	return rc;
}

/* Links that are still open are broken, and stay until they are closed or their
 * fabric is. */
void tcp_queue_close(struct reef_layer *layer, struct reef_queue *base)
{
	struct tcp_queue *queue = (struct tcp_queue *)base;
	struct tcp_watch *watch;

	while (queue->openings)
		tcp_opening_fail(queue->openings, -REEF_ENOLINK);
	while (queue->listeners)
		tcp_listener_stop(queue->listeners);
	while (queue->guests)
		tcp_guest_end(queue->guests);
	while ((watch = queue->watches)) {
		/* Dropping moves the head on, through its `at`, which the
		 * checker does not see. NOLINTNEXTLINE */
		if (!watch->is_owner) {
			tcp_watch_drop(watch);
			continue;
		}
		tcp_link_break(watch->link, base, -REEF_ENOLINK, false);
		tcp_link_settle(watch->link);
	}
	while (queue->lingers)
		drain_linger(queue->lingers, queue, true);
	close(queue->base.fd);
	close(queue->timer_fd);
	reef_queue_fini(&queue->base);
	free(queue);
	(void)layer;
}
