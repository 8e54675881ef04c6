/* hub.c - a completion queue, and the links whose queue pairs report to it.
 *
 * Several links share one, so that who serves many looks at few places; how
 * many is limited by how many completions a device lets a queue have. A queue's
 * first hub has room for one link, and each further one for twice as many.
 *
 * How a link ends (break marks it, settle does it, under the lock):
 *   1. its queue pair is stopped: nothing happens through it any more;
 *   2. the completion queue is emptied: what had completed counts as done, or
 *      has arrived. Some devices drop the completions of a queue pair that is
 *      destroyed, so this comes first;
 *   3. the queue pair is destroyed and the queue emptied again, so that no
 *      completion is left that names the link;
 *   4. the batches that are left end, in doubt, but for one that the peer's
 *      device refused;
 *   5. its channel is closed; messages that wait for the inbox keep an accepted
 *      link until they are in it (F1).
 *
 * How a sleeper is woken. Before a queue sleeps, verbs_hub_arm asks for a
 * notice of the next completion. Whoever takes a notice polls the hub, and asks
 * anew if others may be asleep: a notice taken by one is never missed by
 * another. */
#include "fabric/verbs/verbs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define POLL_AT_ONCE 32
#define POLL_MAX 512 /* completions in one poll, to be fair to the rest */
#define LINKS_MAX 1024u

/* Every slot and receive may complete at once, when a queue pair breaks. */
static uint32_t completions_of(const struct verbs_link *link)
{
	return link->send_max + VERBS_RECEIVES +
	       (link->link.listener ? VERBS_BINDS : 0);
}

static int hub_create(struct verbs_queue *queue, uint32_t capacity,
		      struct verbs_hub **out)
{
	struct verbs_device *device = &queue->fabric->device;
	struct verbs_hub *hub;
	int rc = -ENOMEM;

	hub = calloc(1, sizeof(*hub));
	if (!hub)
		return -ENOMEM;
	hub->source.kind = VERBS_SOURCE_HUB;
	hub->fabric = queue->fabric;
	hub->capacity = capacity;
	hub->pool.domain = device->domain;
	atomic_init(&hub->references, 1);
	hub->channel = ibv_create_comp_channel(device->context);
	if (!hub->channel)
		goto err_free;
	if (fcntl(hub->channel->fd, F_SETFL, O_NONBLOCK) < 0) {
		rc = -errno;
		goto err_channel;
	}
	hub->completions = ibv_create_cq(device->context, (int)capacity, hub,
					 hub->channel, 0);
	if (!hub->completions)
		goto err_channel;
	rc = verbs_queue_watch(queue, hub->channel->fd, &hub->source, EPOLLIN,
			       true);
	if (rc)
		goto err_completions;
	pthread_mutex_init(&hub->lock, NULL);
	hub->next = queue->hubs;
	queue->hubs = hub;
	*out = hub;
	return 0;
err_completions:
	ibv_destroy_cq(hub->completions);
err_channel:
	ibv_destroy_comp_channel(hub->channel);
err_free:
	free(hub);
	return rc;
}

void verbs_hub_unref(struct verbs_hub *hub)
{
	/* Release what we did with it; the last one acquires it all. */
	if (atomic_fetch_sub_explicit(&hub->references, 1,
				      memory_order_acq_rel) > 1)
		return;
	ibv_destroy_cq(hub->completions);
	ibv_destroy_comp_channel(hub->channel);
	verbs_pool_fini(&hub->pool);
	pthread_mutex_destroy(&hub->lock);
	free(hub);
}

int verbs_hub_join(struct verbs_queue *queue, struct verbs_link *link)
{
	uint32_t need = completions_of(link), capacity, links = 1;
	uint32_t most = (uint32_t)queue->fabric->device.limits.max_cqe;
	struct verbs_hub *hub;
	int rc;

	for (hub = queue->hubs; hub; hub = hub->next) {
		if (hub->capacity - hub->reserved >= need)
			break;
		links = links < LINKS_MAX ? links * 2 : links;
	}
	if (!hub) {
		capacity = links <= most / need ? links * need
						: most / need * need;
		if (!capacity)
			return -ENOSPC;
		rc = hub_create(queue, capacity, &hub);
		if (rc)
			return rc;
		reef_assert(hub);
	}
	hub->reserved += need;
	atomic_fetch_add_explicit(&hub->references, 1, memory_order_relaxed);
	pthread_mutex_lock(&hub->lock);
	link->hub = hub;
	link->at_hub = &hub->links;
	link->next_hub = hub->links;
	if (link->next_hub)
		link->next_hub->at_hub = &link->next_hub;
	hub->links = link;
	pthread_mutex_unlock(&hub->lock);
	return 0;
}

void verbs_hub_leave(struct verbs_link *link)
{
	struct verbs_hub *hub = link->hub;

	if (!hub)
		return;
	pthread_mutex_lock(&hub->lock);
	*link->at_hub = link->next_hub;
	if (link->next_hub)
		link->next_hub->at_hub = link->at_hub;
	pthread_mutex_unlock(&hub->lock);
	if (link->owner)
		hub->reserved -= completions_of(link);
	link->hub = NULL;
	verbs_hub_unref(hub);
}

/* --- completions --- */

/* Handle up to POLL_AT_ONCE completions. Returns how many there were. */
static int handle_some(struct verbs_hub *hub, struct verbs_queue *polling)
{
	struct ibv_wc completions[POLL_AT_ONCE];
	struct verbs_work *work;
	int count, i;

	count = ibv_poll_cq(hub->completions, POLL_AT_ONCE, completions);
	for (i = 0; i < count; i++) {
		work = (struct verbs_work *)(uintptr_t)completions[i].wr_id;
		switch (work->kind) {
		case VERBS_WORK_RECEIVE:
			verbs_receive_completed(
				polling,
				reef_container(work, struct verbs_receive,
					       work),
				&completions[i]);
			break;
		case VERBS_WORK_BIND:
			verbs_window_completed(
				reef_container(work, struct verbs_bind, work),
				completions[i].status);
			break;
		case VERBS_WORK_SEND:
			verbs_send_completed(
				polling,
				reef_container(work, struct verbs_slot, work),
				completions[i].status);
			break;
		}
	}
	/* A completion queue that cannot be read is a broken device. */
	reef_assert(count >= 0);
	return count;
}

static void feed_hungry(struct verbs_hub *hub)
{
	struct verbs_link *link;

	while ((link = hub->hungry)) {
		hub->hungry = link->next_hungry;
		link->is_hungry = false;
		verbs_send_pump(link);
	}
}

static int retry_stalled(struct verbs_hub *hub, struct verbs_queue *polling)
{
	struct verbs_link *link = hub->stalled, *next;
	int count = 0;

	hub->stalled = NULL;
	for (; link; link = next) {
		next = link->next_stalled;
		link->is_stalled = false;
		count += verbs_receive_deliver(link, polling);
	}
	return count;
}

/* Handle all that has completed by now. The queue may fill again meanwhile; but
 * it never held more than its capacity, and it is in order. */
static void drain_completions(struct verbs_hub *hub,
			      struct verbs_queue *polling)
{
	uint32_t total = 0;
	int count;

	do {
		count = handle_some(hub, polling);
		total += (uint32_t)count;
	} while (count && total < hub->capacity);
}

void verbs_hub_unlist(struct verbs_link *link)
{
	struct verbs_link **at;

	if (link->is_stalled) {
		for (at = &link->hub->stalled; *at && *at != link;)
			at = &(*at)->next_stalled;
		if (*at)
			*at = link->next_stalled;
	}
	if (link->is_hungry) {
		for (at = &link->hub->hungry; *at && *at != link;)
			at = &(*at)->next_hungry;
		if (*at)
			*at = link->next_hungry;
	}
	link->is_stalled = link->is_hungry = false;
}

void verbs_hub_settle(struct verbs_hub *hub, struct verbs_queue *polling)
{
	struct verbs_link *link;

	while ((link = hub->broken)) {
		hub->broken = link->next_broken;
		verbs_pair_stop(link);
		drain_completions(hub, polling);
		verbs_pair_destroy(link);
		drain_completions(hub, polling);
		verbs_hub_unlist(link);
		verbs_send_fail(link, polling);
		verbs_link_finish(link, polling);
	}
}

static int poll_locked(struct verbs_hub *hub, struct verbs_queue *polling)
{
	int total = 0, count;

	if (hub->stalled)
		total += retry_stalled(hub, polling);
	do {
		count = handle_some(hub, polling);
		total += count;
		if (hub->hungry)
			feed_hungry(hub);
		if (hub->broken)
			verbs_hub_settle(hub, polling);
	} while (count == POLL_AT_ONCE && total < POLL_MAX);
	return total;
}

int verbs_hub_poll(struct verbs_hub *hub, struct verbs_queue *polling,
		   bool must)
{
	int count;

	if (must)
		pthread_mutex_lock(&hub->lock);
	else if (pthread_mutex_trylock(&hub->lock))
		return 0;
	count = poll_locked(hub, polling);
	pthread_mutex_unlock(&hub->lock);
	return count;
}

int verbs_hub_notice(struct verbs_hub *hub, struct verbs_queue *polling)
{
	struct ibv_cq *completions;
	void *context;
	int count = 0;

	pthread_mutex_lock(&hub->lock);
	while (!ibv_get_cq_event(hub->channel, &completions, &context)) {
		ibv_ack_cq_events(completions, 1);
		hub->armed = false;
		count++;
	}
	if (count &&
	    atomic_load_explicit(&hub->watches, memory_order_relaxed)) {
		ibv_req_notify_cq(hub->completions, 0);
		hub->armed = true;
	}
	count += poll_locked(hub, polling);
	pthread_mutex_unlock(&hub->lock);
	return count;
}

int verbs_hub_arm(struct verbs_hub *hub)
{
	int rc = 0;

	pthread_mutex_lock(&hub->lock);
	if (!hub->armed) {
		rc = -ibv_req_notify_cq(hub->completions, 0);
		hub->armed = !rc;
	}
	pthread_mutex_unlock(&hub->lock);
	return rc;
}
