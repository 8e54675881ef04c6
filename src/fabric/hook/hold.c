/* hold.c - see hold.h, which has the state diagram. */
#include "fabric/hook/hold.h"

#include <stdlib.h>
#include <string.h>

#define HELD_MAX 65536
#define RETRY_NS                                                               \
	1000 /* until a post that was refused with -EAGAIN is tried            \
	      */

/* What stands between a listener and its user, to hear of accepted links that
 * end: the provider frees them, and nobody else tells the layers. */
struct hold_listener {
	struct reef_hold *hold;
	struct reef_listen_options options; /* the user's */
	struct reef_listener *listener;
	struct hold_listener *next;
};

void reef_hold_init(struct reef_hold *hold, size_t held_size, uint32_t held_max)
{
	pthread_mutexattr_t attributes;

	reef_assert(held_size >= sizeof(struct reef_held));
	hold->held_size = held_size;
	hold->held_max = held_max ? held_max : HELD_MAX;
	/* Recursive: a post further down, made under the lock, may find an
	 * accepted link dead and call `closed`, which takes it again. */
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&hold->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

void reef_hold_fini(struct reef_hold *hold)
{
	struct hold_listener *listener;
	struct reef_held *held;

	reef_assert(!hold->held);
	while ((held = hold->free)) {
		hold->free = held->next;
		free(held);
	}
	while ((listener = hold->listeners)) {
		hold->listeners = listener->next;
		free(listener);
	}
	pthread_mutex_destroy(&hold->lock);
}

/* --- a held batch's life --- */

struct reef_held *reef_held_take(struct reef_hold *hold,
				 struct reef_queue *queue,
				 struct reef_batch *outer)
{
	struct reef_held *held = NULL;

	pthread_mutex_lock(&hold->lock);
	if (hold->count == hold->held_max)
		goto out;
	held = hold->free;
	if (held)
		hold->free = held->next;
	else
		held = malloc(hold->held_size);
	if (!held)
		goto out;
	memset(held, 0, hold->held_size);
	held->hold = hold;
	held->queue = queue;
	held->outer = outer;
	held->link = outer->link;
	held->next = hold->held;
	held->at = &hold->held;
	if (held->next)
		held->next->at = &held->next;
	hold->held = held;
	hold->count++;
out:
	pthread_mutex_unlock(&hold->lock);
	return held;
}

/* Take a batch off the list and free what holds it. Locked. */
static void free_held(struct reef_hold *hold, struct reef_held *held)
{
	*held->at = held->next;
	if (held->next)
		held->next->at = held->at;
	held->next = hold->free;
	hold->free = held;
	hold->count--;
}

void reef_held_end(struct reef_held *held)
{
	struct reef_hold *hold = held->hold;
	struct reef_queue *queue = held->queue;
	struct reef_batch *outer = held->outer;

	reef_assert(!held->waiting && !held->below);
	if (hold->ending)
		hold->ending(held);
	pthread_mutex_lock(&hold->lock);
	free_held(hold, held);
	pthread_mutex_unlock(&hold->lock);
	reef_batch_ended(queue, outer);
}

static void end_on_lost_link(struct reef_held *held, int status)
{
	reef_batch_fail_all(held->outer, status);
	reef_held_end(held);
}

uint64_t reef_hold_now_ns(const struct reef_queue *queue)
{
	return queue->sched ? reef_sched_now_ns(queue->sched) : reef_now_ns();
}

static void run_step(struct reef_held *held)
{
	held->waiting = false;
	if (atomic_load(&held->lost))
		end_on_lost_link(held, -REEF_EINDOUBT);
	else
		held->step(held);
}

static void step_by_timer(struct reef_timer *timer)
{
	struct reef_held *held = reef_container(timer, struct reef_held, timer);
	struct reef_layer *next = held->hold->layer.next;
	struct reef_queue *queue = held->queue;

	/* A killed host's batches go no further. The batch may be gone with its
	 * fibers; if not, the poll of its waiter will end it. */
	if (queue->group && queue->group->dead)
		return;
	run_step(held);
	/* Nobody polls a queue without a descriptor (sim) unless asked to. */
	if (queue->fd < 0)
		next->ops.arm(next, queue);
}

void reef_held_at(struct reef_held *held, uint64_t at_ns,
		  void (*step)(struct reef_held *held))
{
	reef_assert(!held->waiting && !held->below);
	held->step = step;
	held->waiting = true;
	if (!held->queue->sched) {
		held->deadline_ns = at_ns;
		atomic_fetch_add(&held->hold->unscheduled, 1);
		return;
	}
	held->timer.fire = step_by_timer;
	/* Without memory for a timer the step comes early: the costs are wrong
	 * then, the outcome is not. */
	if (reef_timer_set(held->queue->sched, &held->timer, at_ns))
		run_step(held);
}

/* --- the inner batch --- */

static void end_inner(struct reef_batch *inner)
{
	struct reef_held *held = inner->user;

	held->below = false;
	held->done(held);
}

/* End a batch of which the layer below took nothing. */
static void end_refused(struct reef_held *held, int error)
{
	if (error == -REEF_ENOLINK) {
		/* To the caller the link was lost under a posted batch. */
		end_on_lost_link(held, -REEF_EINDOUBT);
		return;
	}
	reef_batch_fail(held->outer, held->first, error);
	reef_held_end(held);
}

static void post_inner(struct reef_held *held)
{
	struct reef_hold *hold = held->hold;
	struct reef_layer *next = hold->layer.next;
	int rc;

	held->inner = (struct reef_batch){
		.link = held->link,
		.ops = held->outer->ops + held->first,
		.count = held->count,
		.on_done = end_inner,
		.user = held,
		.queue = held->queue,
	};
	held->below = true;
	/* The lock keeps the link from being closed meanwhile. */
	pthread_mutex_lock(&hold->lock);
	rc = atomic_load(&held->lost)
		     ? -REEF_ENOLINK
		     : next->ops.post(next, held->queue, &held->inner);
	pthread_mutex_unlock(&hold->lock);
	if (rc == 0)
		return;
	held->below = false;
	if (rc == 1)
		held->done(held);
	else if (rc == -EAGAIN)
		reef_held_at(held, reef_hold_now_ns(held->queue) + RETRY_NS,
			     post_inner);
	else
		end_refused(held, rc);
}

void reef_held_post(struct reef_held *held, uint32_t first, uint32_t count,
		    void (*done)(struct reef_held *held))
{
	reef_assert(!held->waiting && !held->below);
	reef_assert(count && first + count <= held->outer->count);
	held->first = first;
	held->count = count;
	held->done = done;
	post_inner(held);
}

/* --- queues without a scheduler, and hosts that died --- */

/* Find one batch of this queue whose step is due, and take it off the wait. */
static struct reef_held *find_due(struct reef_hold *hold,
				  struct reef_queue *queue, bool dead)
{
	uint64_t now_ns = reef_hold_now_ns(queue);
	struct reef_held *held;

	pthread_mutex_lock(&hold->lock);
	/* Of another thread's batch only `queue` is read, which never
	 * changes. */
	for (held = hold->held; held; held = held->next)
		if (held->queue == queue && held->waiting &&
		    (dead || held->deadline_ns <= now_ns))
			break;
	pthread_mutex_unlock(&hold->lock);
	if (!held)
		return NULL;
	if (queue->sched)
		reef_timer_cancel(queue->sched, &held->timer);
	else
		atomic_fetch_sub(&hold->unscheduled, 1);
	return held;
}

int reef_hold_poll(struct reef_layer *layer, struct reef_queue *queue)
{
	struct reef_hold *hold = (struct reef_hold *)layer;
	struct reef_held *held;
	int count = 0, rc;

	/* A killed host's fibers return, and their batches go with them. */
	if (__builtin_expect(queue->group && queue->group->dead, 0)) {
		while ((held = find_due(hold, queue, true))) {
			held->waiting = false;
			end_on_lost_link(held, -REEF_EHOSTDEAD);
			count++;
		}
	} else if (!queue->sched &&
		   atomic_load_explicit(&hold->unscheduled,
					memory_order_relaxed)) {
		while ((held = find_due(hold, queue, false))) {
			run_step(held);
			count++;
		}
	}
	rc = layer->next->ops.poll(layer->next, queue);
	return rc < 0 ? rc : rc + count;
}

int reef_hold_arm(struct reef_layer *layer, struct reef_queue *queue)
{
	struct reef_hold *hold = (struct reef_hold *)layer;

	/* No timer would wake it: keep it polling. */
	if (!queue->sched && atomic_load(&hold->unscheduled))
		reef_queue_wake(queue);
	return layer->next->ops.arm(layer->next, queue);
}

void reef_hold_queue_close(struct reef_layer *layer, struct reef_queue *queue)
{
	struct reef_hold *hold = (struct reef_hold *)layer;
	struct reef_sched *sched = queue->sched;
	struct reef_held *held, *next;

	/* The layer below still knows the inner ones until it has closed. */
	layer->next->ops.queue_close(layer->next, queue);
	pthread_mutex_lock(&hold->lock);
	for (held = hold->held; held; held = next) {
		next = held->next;
		if (held->queue != queue)
			continue;
		reef_assert(sched);
		if (held->waiting)
			reef_timer_cancel(sched, &held->timer);
		if (hold->ending)
			hold->ending(held);
		free_held(hold, held);
	}
	pthread_mutex_unlock(&hold->lock);
}

/* --- links that go --- */

static void forget_link(struct reef_hold *hold, const struct reef_link *link)
{
	struct reef_held *held;

	pthread_mutex_lock(&hold->lock);
	for (held = hold->held; held; held = held->next)
		if (held->link == link)
			atomic_store(&held->lost, true);
	pthread_mutex_unlock(&hold->lock);
	if (hold->forget)
		hold->forget(hold, link);
}

void reef_hold_disconnect(struct reef_layer *layer, struct reef_link *link)
{
	forget_link((struct reef_hold *)layer, link);
	layer->next->ops.disconnect(layer->next, link);
}

static int listener_credential(void *context, const char *identity,
			       uint32_t session, uint8_t key[REEF_KEY_SIZE])
{
	struct hold_listener *listener = context;

	return listener->options.credential(listener->options.context, identity,
					    session, key);
}

static int listener_admit(void *context, const char *identity)
{
	struct hold_listener *listener = context;

	return listener->options.admit
		       ? listener->options.admit(listener->options.context,
						 identity)
		       : 0;
}

static void listener_opened(void *context, struct reef_link *link)
{
	struct hold_listener *listener = context;

	if (listener->options.opened)
		listener->options.opened(listener->options.context, link);
}

static void listener_closed(void *context, struct reef_link *link, int reason)
{
	struct hold_listener *listener = context;

	forget_link(listener->hold, link);
	if (listener->options.closed)
		listener->options.closed(listener->options.context, link,
					 reason);
}

int reef_hold_listen(struct reef_layer *layer, struct reef_queue *queue,
		     const char *address,
		     const struct reef_listen_options *options,
		     struct reef_listener **out)
{
	struct reef_hold *hold = (struct reef_hold *)layer;
	struct reef_listen_options own = {
		.credential = listener_credential,
		.admit = listener_admit,
		.opened = listener_opened,
		.closed = listener_closed,
	};
	struct hold_listener *listener;
	int rc;

	listener = malloc(sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->hold = hold;
	listener->options = *options;
	own.context = listener;
	rc = layer->next->ops.listen(layer->next, queue, address, &own, out);
	if (rc) {
		free(listener);
		return rc;
	}
	listener->listener = *out;
	pthread_mutex_lock(&hold->lock);
	listener->next = hold->listeners;
	hold->listeners = listener;
	pthread_mutex_unlock(&hold->lock);
	return 0;
}

void reef_hold_unlisten(struct reef_layer *layer,
			struct reef_listener *listener)
{
	struct reef_hold *hold = (struct reef_hold *)layer;
	struct hold_listener **at, *own = NULL;
	struct reef_held *held;

	pthread_mutex_lock(&hold->lock);
	/* A listener's links end with it, and `closed` is not called for
	 * them. */
	for (held = hold->held; held; held = held->next)
		if (!atomic_load(&held->lost) &&
		    held->link->listener == listener)
			atomic_store(&held->lost, true);
	for (at = &hold->listeners; *at; at = &(*at)->next)
		if ((*at)->listener == listener)
			break;
	if (*at) {
		own = *at;
		*at = own->next;
	}
	pthread_mutex_unlock(&hold->lock);
	layer->next->ops.unlisten(layer->next, listener);
	free(own);
}
