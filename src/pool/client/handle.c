/* handle.c - handles: what a thread has of a client.
 *
 * A handle's cache has what it needs of an extent to use it without a lock. It
 * is of one `version` of the view; whenever that has moved, which each call
 * looks at once it is inside, the whole cache is dropped.
 *
 * (1) What is in the cache of the current version is not closed while the
 *     handle is inside (grace.c).
 * (2) R8: reef_enter stores the epoch it saw, then looks whether it is still
 *     the newest; the keeper loads the newest, then looks at the pins. Both are
 *     sequentially consistent, so either the keeper sees the pin, or the handle
 *     sees an epoch that is no older than the one announced. */
#include "pool/broker/state.h"
#include "pool/client/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_joined(const void *what)
{
	const struct reef_client *client = what;

	return atomic_load(&client->joined) != 1;
}

int client_handle_open(struct reef_client *client, struct reef_sched *sched,
		       struct reef **out)
{
	struct reef *reef = calloc(1, sizeof(*reef));
	int rc;

	if (!reef)
		return -ENOMEM;
	reef->client = client;
	reef->forks = reef_fork_generation();
	reef->sched = sched ? sched : reef_fiber_sched();
	reef->epoll_fd = -1;
	atomic_init(&reef->pin, UINT64_MAX);
	rc = reef_port_open(client->options.mesh, reef->sched, &reef->port);
	if (rc) {
		free(reef);
		return rc;
	}
	reef->queue = reef_port_queue(reef->port, 0);
	for (uint32_t i = 0; i < reef_mesh_count(client->options.mesh); i++)
		if (reef_port_queue(reef->port, i)->run != reef_run_general)
			reef->near = reef_port_queue(reef->port, i);
	pthread_mutex_lock(&client->lock);
	reef->next = client->handles;
	client->handles = reef;
	pthread_mutex_unlock(&client->lock);
	*out = reef;
	return 0;
}

void client_handle_close(struct reef *reef)
{
	struct reef **at;

	if (!reef)
		return;
	while (reef->tasks)
		reef_task_wait(reef, *client_call_task(reef->tasks));
	client_inbox_close(reef);
	while (reef->spaces)
		reef_space_close(reef->spaces);
	/* Whoever wakes this queue does so under the lock. */
	pthread_mutex_lock(&reef->client->lock);
	for (at = &reef->client->handles; *at != reef; at = &(*at)->next)
		;
	*at = reef->next;
	pthread_mutex_unlock(&reef->client->lock);
	client_call_free(reef->calls_free[0]);
	client_call_free(reef->calls_free[1]);
	if (reef->epoll_fd >= 0)
		close(reef->epoll_fd);
	reef_port_close(reef->port);
	client_inbox_free(reef);
	free(reef);
}

int reef_client_handle(struct reef_client *client, struct reef **out)
{
	struct reef *reef;
	int rc;

	if (client->forks != reef_fork_generation())
		return -REEF_EFORKED;
	rc = client_handle_open(client, NULL, &reef);
	if (rc)
		return rc;
	reef_client_ref(client);
	rc = reef_queue_wait_until(reef->queue, is_joined, client,
				   REEF_FOREVER);
	if (!rc)
		rc = atomic_load(&client->joined);
	if (rc) {
		reef_close(reef);
		return rc;
	}
	*out = reef;
	return 0;
}

void reef_close(struct reef *reef)
{
	struct reef_client *client;
	struct open_pool *pool;

	if (!reef || client_is_forked(reef))
		return;
	client = reef->client;
	pool = reef->pool;
	client_handle_close(reef);
	reef_client_unref(client);
	if (pool)
		client_pool_release(pool);
}

uint32_t reef_session(const struct reef *reef)
{
	return reef->client->session;
}

uint64_t reef_session_ttl(const struct reef *reef)
{
	return reef->client->ttl_ns;
}

int reef_health(const struct reef *reef)
{
	int rc;

	if (client_is_forked(reef))
		return -REEF_EFORKED;
	rc = client_over(reef->client);
	if (rc)
		return rc;
	return atomic_load(&reef->client->present) ? 0 : -REEF_ENOLINK;
}

int client_handle_check(struct reef *reef)
{
	if (client_is_forked(reef))
		return -REEF_EFORKED;
	/* Its queues can wake fibers of one scheduler only. */
	if (reef_fiber_self() && reef_fiber_sched() != reef->sched)
		return -EINVAL;
	return client_over(reef->client);
}

/* --- the view --- */

static void forget_lost(struct reef_client *client, struct reef_space *space)
{
	struct client_heap *heap = space->heap;
	uint32_t number;

	while (heap) {
		pthread_mutex_lock(&client->lock);
		number = heap->lost_seen < space->space->lost_count
				 ? space->space->lost[heap->lost_seen++]
				 : 0;
		pthread_mutex_unlock(&client->lock);
		if (!number)
			break;
		reef_heap_forget(heap->heap, number);
	}
}

void client_handle_look(struct reef *reef)
{
	struct reef_client *client = reef->client;
	struct reef_space *space;

	reef->seen = atomic_load(&client->version);
	memset(reef->cache, 0, sizeof(reef->cache));
	for (space = reef->spaces; space; space = space->next)
		forget_lost(client, space);
}

int client_handle_find(struct reef *reef, uint32_t number,
		       struct client_entry **out)
{
	struct client_entry *entry = &reef->cache[number % CLIENT_CACHE];
	struct reef_client *client = reef->client;
	struct client_extent *extent;
	int rc = 0;

	if (unlikely(!client_is_current(reef)) &&
	    client->options.mutant != REEF_CLIENT_MUTANT_STALE_EXTENT)
		client_handle_look(reef);
	if (likely(entry->extent == number && number)) {
		*out = entry;
		return 0;
	}
	if (!number)
		return -EFAULT;
	pthread_mutex_lock(&client->lock);
	extent = client_extent_find(client, number);
	if (!extent || !extent->remote) {
		rc = extent && extent->state == REEF_EXTENT_LOST ? -REEF_ELOST
								 : -EAGAIN;
	} else {
		*entry = (struct client_entry){
			.extent = number,
			.node = extent->node,
			.rights = extent->space->rights,
			.size = extent->size,
			.number = extent->number,
			.link_number = extent->link_number,
			.queue = reef_port_queue_of(reef->port, extent->link),
			.link = extent->link,
			.remote = extent->remote,
		};
		entry->is_inline = entry->queue->run != reef_run_general;
		entry->has_words = entry->is_inline && !client_strong &&
				   entry->rights & REEF_RIGHT_WRITE;
		*out = entry;
	}
	pthread_mutex_unlock(&client->lock);
	return rc;
}

/* --- R8 --- */

void reef_enter(struct reef *reef)
{
	_Atomic uint64_t *newest = &reef->client->reclaim_epoch;
	uint64_t epoch;

	if (reef->entered++)
		return;
	do { /* (2) */
		epoch = atomic_load(newest);
		atomic_store(&reef->pin, epoch);
	} while (atomic_load(newest) != epoch);
}

void reef_leave(struct reef *reef)
{
	reef_assert(reef->entered);
	if (!--reef->entered)
		/* Release: what was read before is not looked at any more; the
		 * partner is the keeper's load of the pin. */
		atomic_store_explicit(&reef->pin, UINT64_MAX,
				      memory_order_release);
}

uint64_t reef_epoch(const struct reef *reef)
{
	reef_assert(reef->entered);
	return atomic_load_explicit(&reef->pin, memory_order_relaxed);
}
