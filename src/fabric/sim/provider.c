/* provider.c - the simulator as a fabric: opening and closing, posting,
 * polling.
 *
 * (1) A fabric belongs to one life of a host. When that ends, every call on it
 *     returns -REEF_EHOSTDEAD, except those that free.
 * (2) A queue has no descriptor: whatever happens for it kicks it, which is a
 *     timer that calls reef_poll. A paused host's queues are kicked when it
 *     resumes. */
#include "fabric/sim/world.h"

#include "base/mutant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOMAIN 0x5245454653494d00ull /* and the host's number */
#define RETRY_MAX_NS 1000000ull

static struct sim_fabric *to_fabric(struct reef_layer *layer)
{
	return reef_container(layer->fabric, struct sim_fabric, base);
}

static struct sim_queue *to_queue(struct reef_queue *queue)
{
	return reef_container(queue, struct sim_queue, base);
}

/* --- kicks --- */

void sim_kick_at(struct sim_queue *queue, uint64_t at_ns)
{
	if (fabric_is_dead(queue->fabric) ||
	    (queue->kick.heap_index && queue->kick.at_ns <= at_ns))
		return;
	sim_timer(queue->fabric->sim, &queue->kick, at_ns);
}

void sim_kick(struct sim_queue *queue)
{
	sim_kick_at(queue, sim_now(queue->fabric->sim));
}

static void kick_fire(struct reef_timer *timer)
{
	struct sim_queue *queue = reef_container(timer, struct sim_queue, kick);
	struct reef_group *group = &queue->fabric->life->group;

	if (group->dead)
		return;
	if (group->paused) {
		queue->kick_held = true;
		return;
	}
	reef_group_enter(group);
	reef_poll(&queue->base);
	reef_group_leave(group);
}

void sim_fabric_happened(struct sim_fabric *fabric)
{
	struct sim_queue *queue;

	for (queue = fabric->queues; queue; queue = queue->next) {
		queue->happened++;
		sim_kick(queue);
	}
}

/* --- queues --- */

static int sim_queue_open(struct reef_layer *layer, struct reef_queue **out)
{
	struct sim_fabric *fabric = to_fabric(layer);
	struct sim_queue *queue;
	int rc;

	if (fabric_is_dead(fabric))
		return -REEF_EHOSTDEAD;
	queue = calloc(1, sizeof(*queue));
	if (!queue)
		return -ENOMEM;
	rc = reef_queue_init(&queue->base, &fabric->base, false);
	if (rc) {
		free(queue);
		return rc;
	}
	queue->fabric = fabric;
	queue->kick.fire = kick_fire;
	queue->mail_tail = &queue->mail;
	queue->next = fabric->queues;
	fabric->queues = queue;
	*out = &queue->base;
	return 0;
}

/* Links and listeners should be closed before; those that are not end here. */
static void orphan_links(struct sim_fabric *fabric, struct reef_queue *queue)
{
	struct sim_listener *listener;
	struct sim_link *link;

	for (listener = fabric->listeners; listener; listener = listener->next)
		if (listener->base.queue == queue)
			listener->base.queue = NULL;
	for (link = fabric->links; link; link = link->next) {
		if (link->base.queue != queue)
			continue;
		sim_link_detach(link);
		atomic_store(&link->base.reason, -REEF_ENOLINK);
		atomic_store(&link->base.state, REEF_LINK_DOWN);
	}
}

static void sim_queue_close(struct reef_layer *layer, struct reef_queue *base)
{
	struct sim_fabric *fabric = to_fabric(layer);
	struct sim_queue *queue = to_queue(base);
	struct sim_queue **at = &fabric->queues;
	struct sim_link *link;

	for (link = fabric->links; link; link = link->next)
		if (link->conn)
			sim_flights_forget(link->conn, base);
	orphan_links(fabric, base);
	sim_mail_drop_queue(queue);
	reef_timer_cancel(fabric->sim->sched, &queue->kick);
	while (*at != queue)
		at = &(*at)->next;
	*at = queue->next;
	reef_queue_fini(base);
	free(queue);
}

/* Check a batch before anything of it happens (F8). The mutant lets one byte
 * too much pass. */
static int check_batch(struct sim_fabric *fabric, struct reef_queue *queue,
		       struct reef_batch *batch)
{
	int rc = reef_batch_check(queue, batch);
	uint32_t i;

	if (rc != -ERANGE || !REEF_MUTATED(SIM_F8_BOUNDS))
		return rc;
	for (i = 0; i < batch->count; i++)
		if (batch->ops[i].kind != REEF_SEND)
			batch->ops[i].remote->size++;
	rc = reef_batch_check(queue, batch);
	for (i = 0; i < batch->count; i++)
		if (batch->ops[i].kind != REEF_SEND)
			batch->ops[i].remote->size--;
	return rc;
}

static int sim_post(struct reef_layer *layer, struct reef_queue *queue,
		    struct reef_batch *batch)
{
	struct sim_fabric *fabric = to_fabric(layer);
	struct sim_link *link;
	int rc;

	if (fabric_is_dead(fabric))
		return -REEF_EHOSTDEAD;
	rc = check_batch(fabric, queue, batch);
	if (rc)
		return rc;
	link = reef_container(batch->link, struct sim_link, base);
	if (fabric->sim->options.calm)
		return sim_batch_calm(link, batch);
	if (link->depth >= fabric->base.options.depth_max)
		return -EAGAIN;
	return sim_flight_start(link, batch);
}

static int read_pipes(struct sim_queue *queue)
{
	struct sim_link *link, *next;
	int count = 0;

	for (link = queue->readable; link; link = next) {
		next = link->readable_next;
		if (atomic_load(&link->base.state) == REEF_LINK_UP)
			count += sim_pipe_drain(link);
	}
	if (count || !queue->readable) {
		queue->retry_ns = 0;
		return count;
	}
	/* If the inbox is full, nobody tells when it has room again: the queue
	 * kicks itself. */
	queue->retry_ns = 2 * queue->retry_ns + 1000;
	if (queue->retry_ns > RETRY_MAX_NS)
		queue->retry_ns = RETRY_MAX_NS;
	sim_kick_at(queue, sim_now(queue->fabric->sim) + queue->retry_ns);
	return 0;
}

static int sim_poll(struct reef_layer *layer, struct reef_queue *base)
{
	struct sim_queue *queue = to_queue(base);
	int count = (int)queue->happened;

	if (fabric_is_dead(queue->fabric))
		return -REEF_EHOSTDEAD;
	queue->happened = 0;
	count += sim_mail_read(queue);
	return count + read_pipes(queue);
}

/* Kick the queue, for hooks, which end batches without an event of the
 * simulator's. */
static int sim_arm(struct reef_layer *layer, struct reef_queue *base)
{
	(void)layer;
	sim_kick(to_queue(base));
	return 0;
}

/* --- the end of a fabric --- */

static void cut_off_side(struct conn *conn, int side, int reason)
{
	struct side *other = &conn->sides[1 - side];
	uint64_t notice_ns = sim_silence(conn, 1 - side);

	/* A process that ended alone may be missed sooner than a host. */
	if (reason != -REEF_EHOSTDEAD && other->fabric &&
	    reef_random_chance(&conn->sim->net, 1, 2))
		notice_ns = sim_soon(conn->sim);
	conn->sides[side].fabric = NULL;
	sim_conn_lose(conn, side == 0 ? NEVER : notice_ns,
		      side == 1 ? NEVER : notice_ns, -REEF_ENOLINK);
	sim_flights_cancel(conn, 1 - side);
	sim_flights_end(conn, side, reason);
	if (side == 1)
		sim_grants_drop(conn);
}

void sim_fabric_cut_off(struct sim_fabric *fabric, int reason)
{
	struct conn *conn, *next;
	struct sim_link *link;
	int side;

	for (conn = fabric->sim->conns; conn; conn = next) {
		sim_conn_ref(conn);
		for (side = 0; side < 2; side++)
			if (conn->sides[side].fabric == fabric)
				cut_off_side(conn, side, reason);
		next = conn->next;
		sim_conn_unref(conn);
	}
	for (link = fabric->links; link; link = link->next) {
		atomic_store(&link->base.reason, reason);
		atomic_store(&link->base.state, REEF_LINK_DOWN);
	}
}

void sim_fabric_free(struct sim_fabric *fabric)
{
	struct sim_fabric **at = &fabric->life->fabrics;
	struct sim_listener *listener;
	struct fence *fence;
	int i;

	while (fabric->links)
		sim_link_free(fabric->links);
	while ((listener = fabric->listeners)) {
		fabric->listeners = listener->next;
		free(listener);
	}
	for (i = 0; i < REGION_BUCKETS; i++)
		while (fabric->regions[i])
			sim_region_free(fabric->regions[i]);
	while ((fence = fabric->fences)) {
		fabric->fences = fence->next;
		reef_timer_cancel(fabric->sim->sched, &fence->timer);
		free(fence);
	}
	reef_numbers_fini(&fabric->numbers);
	while (*at != fabric)
		at = &(*at)->next;
	*at = fabric->next;
	free(fabric);
}

static void sim_close(struct reef_layer *layer)
{
	struct sim_fabric *fabric = to_fabric(layer);

	sim_fabric_cut_off(fabric, -REEF_EINDOUBT);
	sim_fabric_free(fabric);
}

/* --- opening --- */

static const struct reef_fabric_ops sim_ops = {
	.name = "sim",
	.close = sim_close,
	.queue_open = sim_queue_open,
	.queue_close = sim_queue_close,
	.post = sim_post,
	.poll = sim_poll,
	.arm = sim_arm,
	.listen = sim_listen,
	.unlisten = sim_unlisten,
	.connect = sim_connect,
	.disconnect = sim_disconnect,
	.sever = sim_sever,
	.expose = sim_expose,
	.withdraw = sim_withdraw,
	.attach = sim_attach,
	.detach = sim_detach,
	.fence = sim_fence,
	.end_links = sim_end_links,
};

int reef_sim_open(const struct reef_fabric_options *options,
		  struct reef_fabric **out)
{
	struct reef_group *group = reef_fiber_group();
	struct reef_sim_host *host = options->sim_host;
	struct sim_fabric *fabric;
	struct life *life;

	if (!host && group)
		host = group->owner;
	if (!host || options->ops_max > UINT16_MAX)
		return -EINVAL;
	life = host->life;
	if (life->group.dead || (group && group->dead))
		return -REEF_EHOSTDEAD;
	fabric = calloc(1, sizeof(*fabric));
	if (!fabric)
		return -ENOMEM;
	fabric->base.provider.ops = sim_ops;
	fabric->base.options = *options;
	fabric->base.domain = DOMAIN + host->index;
	fabric->base.capabilities = REEF_CAP_FLUSH;
	snprintf(fabric->base.description, sizeof(fabric->base.description),
		 "sim host %s", host->name);
	fabric->sim = host->sim;
	fabric->life = life;
	fabric->next = life->fabrics;
	life->fabrics = fabric;
	*out = &fabric->base;
	return 0;
}
