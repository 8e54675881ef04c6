/* cost.c - see cost.h. What stands on the way of a batch there are steps here;
 * each runs when the batch has got that far (nic.h, (2)):
 *
 *   post -> out -> [left] -> in -> effect -> answer -> back -> done
 *            ^                                                   |
 *            +----------------- the next segment ----------------+
 */
#include "fabric/hook/cost.h"

#include "fabric/hook/count.h"
#include "fabric/hook/hold.h"
#include "fabric/hook/nic.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096
#define NAME_MAX_SIZE 64

struct nic_entry {
	struct reef_nic nic;
	char name[NAME_MAX_SIZE];
	struct nic_entry *next;
};

/* What is known of a link; the two ends of one have one each. */
struct link_state {
	const struct reef_link *link;
	struct link_state *chain;
	struct reef_nic *target; /* NULL: a host without a NIC here */
	uint64_t connection;
	uint32_t session;
	uint32_t depth; /* batches under way */
};

/* Who opened a connection to whom, for the end that accepted it. */
struct route {
	uint32_t session;
	struct reef_nic *from, *to;
	uint64_t connection;
	struct route *chain;
};

struct queue_state {
	const struct reef_queue *queue;
	struct queue_state *chain;
	uint64_t free_ps;
	uint32_t threads;
};

struct listener_state {
	const struct reef_listener *listener;
	struct reef_nic *nic;
	struct listener_state *next;
};

struct reef_cost_model {
	struct reef_cost_options options;
	struct nic_entry *nics;
	struct listener_state *listeners;
	struct link_state *links[BUCKETS];
	struct queue_state *queues[BUCKETS];
	struct route *routes[BUCKETS];
	uint64_t connections;
};

struct cost_layer {
	struct reef_hold hold;
	struct reef_cost_model *model;
	struct reef_nic *nic;
};

struct cost_held {
	struct reef_held held;
	struct link_state *link;
	uint64_t connection;
	struct reef_nic *nic, *target;
	uint32_t first, count; /* the segment */
};

/* --- the model --- */

#define DEFAULT(field, value)                                                  \
	do {                                                                   \
		if (!options->field)                                           \
			options->field = (value);                              \
	} while (0)

static void fill_defaults(struct reef_cost_options *options)
{
	DEFAULT(round_trip_ns, 2000);
	DEFAULT(out_ps, 9000);
	DEFAULT(in_ps, 3000);
	DEFAULT(byte_ps, 80);
	DEFAULT(header_size, 60);
	DEFAULT(atomic_ps, 300000);
	DEFAULT(atomic_in_ps, 12000);
	DEFAULT(atomic_units, 4096);
	DEFAULT(cache_size, 2u << 20);
	DEFAULT(context_size, 512);
	DEFAULT(translation_size, 32);
	DEFAULT(page_size, 4096);
	DEFAULT(fetch_ns, 600);
	DEFAULT(fetch_ps, 40000);
	DEFAULT(doorbell_ps, 50000);
	DEFAULT(lock_ps, 30000);
	DEFAULT(waiter_ps, 2000);
}

static bool is_power_of_two(uint32_t value)
{
	return value && !(value & (value - 1));
}

int reef_cost_model_create(const struct reef_cost_options *options,
			   struct reef_cost_model **out)
{
	struct reef_cost_model *model = calloc(1, sizeof(*model));

	if (!model)
		return -ENOMEM;
	if (options)
		model->options = *options;
	fill_defaults(&model->options);
	if (!is_power_of_two(model->options.page_size) ||
	    !is_power_of_two(model->options.atomic_units) ||
	    model->options.cache_size < model->options.context_size ||
	    model->options.cache_size < model->options.translation_size) {
		free(model);
		return -EINVAL;
	}
	*out = model;
	return 0;
}

#define FREE_CHAIN(head, link)                                                 \
	do {                                                                   \
		while (head) {                                                 \
			void *gone = (head);                                   \
			(head) = (head)->link;                                 \
			free(gone);                                            \
		}                                                              \
	} while (0)

void reef_cost_model_destroy(struct reef_cost_model *model)
{
	struct nic_entry *entry;

	if (!model)
		return;
	for (uint32_t i = 0; i < BUCKETS; i++) {
		FREE_CHAIN(model->links[i], chain);
		FREE_CHAIN(model->queues[i], chain);
		FREE_CHAIN(model->routes[i], chain);
	}
	FREE_CHAIN(model->listeners, next);
	while ((entry = model->nics)) {
		model->nics = entry->next;
		reef_nic_fini(&entry->nic);
		free(entry);
	}
	free(model);
}

const struct reef_cost_options *
reef_cost_model_options(const struct reef_cost_model *model)
{
	return &model->options;
}

static struct nic_entry *find_nic(const struct reef_cost_model *model,
				  const char *name)
{
	struct nic_entry *entry;

	for (entry = model->nics; entry; entry = entry->next)
		if (!strcmp(entry->name, name))
			return entry;
	return NULL;
}

int reef_cost_stats(const struct reef_cost_model *model, const char *name,
		    struct reef_cost_stats *out)
{
	struct nic_entry *entry = find_nic(model, name);

	if (!entry)
		return -ENOENT;
	*out = entry->nic.stats;
	out->busy_ns /= 1000;
	return 0;
}

/* --- what is known of links and queues --- */

static uint32_t bucket_of(uint64_t key)
{
	return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 52) % BUCKETS;
}

static uint32_t bucket_of_pointer(const void *pointer)
{
	return bucket_of((uint64_t)(uintptr_t)pointer >> 4);
}

static struct queue_state *queue_state_of(struct reef_cost_model *model,
					  const struct reef_queue *queue)
{
	struct queue_state **bucket = &model->queues[bucket_of_pointer(queue)];
	struct queue_state *state;

	for (state = *bucket; state; state = state->chain)
		if (state->queue == queue)
			return state;
	state = calloc(1, sizeof(*state));
	if (!state)
		return NULL;
	state->queue = queue;
	state->threads = 1;
	state->chain = *bucket;
	*bucket = state;
	return state;
}

static void forget_queue(struct reef_cost_model *model,
			 const struct reef_queue *queue)
{
	struct queue_state **at = &model->queues[bucket_of_pointer(queue)];
	struct queue_state *state;

	for (; (state = *at); at = &state->chain)
		if (state->queue == queue) {
			*at = state->chain;
			free(state);
			return;
		}
}

void reef_cost_queue_share(struct reef_cost_model *model,
			   const struct reef_queue *queue, uint32_t threads)
{
	struct queue_state *state = queue_state_of(model, queue);

	if (state)
		state->threads = threads ? threads : 1;
}

static void forget_route(struct reef_cost_model *model, uint32_t session,
			 uint64_t connection)
{
	struct route **at = &model->routes[bucket_of(session)], *route;

	for (; (route = *at); at = &route->chain)
		if (route->connection == connection) {
			*at = route->chain;
			free(route);
			return;
		}
}

static void forget_link(struct reef_cost_model *model,
			const struct reef_link *link)
{
	struct link_state **at = &model->links[bucket_of_pointer(link)];
	struct link_state *state;

	for (; (state = *at); at = &state->chain)
		if (state->link == link) {
			*at = state->chain;
			forget_route(model, state->session, state->connection);
			free(state);
			return;
		}
}

static struct link_state *add_link(struct reef_cost_model *model,
				   const struct reef_link *link,
				   struct reef_nic *target, uint64_t connection)
{
	struct link_state **bucket, *state = calloc(1, sizeof(*state));

	if (!state)
		return NULL;
	state->link = link;
	state->session = link->session;
	state->target = target;
	state->connection = connection;
	bucket = &model->links[bucket_of_pointer(link)];
	state->chain = *bucket;
	*bucket = state;
	return state;
}

/* An accepted link is met here when something is first posted through it. */
static struct link_state *add_accepted(struct reef_cost_model *model,
				       const struct reef_link *link,
				       const struct reef_nic *nic)
{
	struct route *route = model->routes[bucket_of(link->session)];

	for (; route; route = route->chain)
		if (route->session == link->session && route->to == nic)
			return add_link(model, link, route->from,
					route->connection);
	return add_link(model, link, NULL, ++model->connections);
}

static struct link_state *link_state_of(struct cost_layer *self,
					const struct reef_link *link)
{
	struct reef_cost_model *model = self->model;
	struct link_state *state = model->links[bucket_of_pointer(link)];

	for (; state; state = state->chain)
		if (state->link == link)
			break;
	if (state && state->session == link->session)
		return state;
	/* A listener's links end with it and without a word: their memory may
	 * have come back as another link. */
	if (state)
		forget_link(model, link);
	return add_accepted(model, link, self->nic);
}

/* --- the way of a batch --- */

static uint64_t now_ps(const struct cost_held *self)
{
	return reef_hold_now_ns(self->held.queue) * 1000;
}

static const struct reef_op *segment(const struct cost_held *self)
{
	return self->held.outer->ops + self->first;
}

static uint64_t half_ps(const struct cost_held *self)
{
	return self->nic->options->round_trip_ns * 500;
}

/* Go on with step at that time; at once, if it has come already. */
static void go_on(struct cost_held *self, uint64_t at_ps,
		  void (*step)(struct reef_held *held))
{
	if (at_ps <= now_ps(self))
		step(&self->held);
	else
		reef_held_at(&self->held, (at_ps + 999) / 1000, step);
}

static void step_out(struct reef_held *held);

static void step_done(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;
	uint32_t next = self->first + self->count;
	int status = held->inner.status;

	if (!status && next < held->outer->count) {
		self->first = next;
		step_out(held);
		return;
	}
	held->outer->status = status;
	for (uint32_t i = next; i < held->outer->count; i++)
		held->outer->ops[i].status = -REEF_ENOTDONE;
	reef_held_end(held);
}

static void step_back(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;

	go_on(self,
	      reef_nic_answered(self->nic, segment(self), self->count,
				now_ps(self)),
	      step_done);
}

static void step_answer(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;
	uint64_t left_ps = now_ps(self);

	if (held->inner.status == -REEF_EINDOUBT ||
	    held->inner.status == -REEF_EHOSTDEAD) {
		/* Nothing comes back over a lost connection. */
		reef_batch_fail_all(held->outer, held->inner.status);
		reef_held_end(held);
		return;
	}
	if (self->target)
		left_ps = reef_nic_answer(self->target, segment(self),
					  self->count, left_ps);
	go_on(self, left_ps + half_ps(self), step_back);
}

static void step_effect(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;

	reef_held_post(held, self->first, self->count, step_answer);
}

static void step_in(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;
	uint64_t effect_ps = now_ps(self);

	if (self->target)
		effect_ps =
			reef_nic_receive(self->target, self->connection,
					 segment(self), self->count, effect_ps);
	go_on(self, effect_ps, step_effect);
}

static void step_out(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;
	uint64_t left_ps;

	self->count = reef_segment_count(segment(self),
					 held->outer->count - self->first);
	left_ps = reef_nic_send(self->nic, self->connection, segment(self),
				self->count, now_ps(self));
	go_on(self, left_ps + half_ps(self), step_in);
}

/* Ring the doorbell: when is it this batch's turn? */
static uint64_t ring(const struct reef_cost_options *options,
		     struct queue_state *queue, uint64_t at_ps)
{
	uint64_t cost_ps = options->doorbell_ps, waiting;
	uint64_t begin_ps = at_ps > queue->free_ps ? at_ps : queue->free_ps;

	if (queue->threads > 1) {
		/* Its lock and its doorbell come from another core's cache, and
		 * whoever waits for the lock pulls at the same line. */
		cost_ps += options->lock_ps;
		waiting = (begin_ps - at_ps) / cost_ps;
		if (waiting > queue->threads - 1)
			waiting = queue->threads - 1;
		cost_ps += waiting * options->waiter_ps;
	}
	queue->free_ps = begin_ps + cost_ps;
	return begin_ps;
}

static int cost_post(struct reef_layer *layer, struct reef_queue *queue,
		     struct reef_batch *batch)
{
	struct cost_layer *self = (struct cost_layer *)layer;
	struct queue_state *state;
	struct link_state *link;
	struct cost_held *held;
	int rc = reef_batch_check(queue, batch);

	if (rc)
		return rc;
	reef_assert(queue->sched);
	link = link_state_of(self, batch->link);
	state = queue_state_of(self->model, queue);
	if (!link || !state || link->depth >= layer->fabric->options.depth_max)
		return -EAGAIN;
	held = (struct cost_held *)reef_held_take(&self->hold, queue, batch);
	if (!held)
		return -EAGAIN;
	link->depth++;
	held->link = link;
	held->nic = self->nic;
	held->target = link->target;
	held->connection = link->connection;
	go_on(held, ring(&self->model->options, state, now_ps(held)), step_out);
	return 0;
}

static void cost_ending(struct reef_held *held)
{
	/* Once the link is lost its state is gone. */
	if (!atomic_load(&held->lost))
		((struct cost_held *)held)->link->depth--;
}

/* --- the rest of the layer --- */

static int cost_listen(struct reef_layer *layer, struct reef_queue *queue,
		       const char *address,
		       const struct reef_listen_options *options,
		       struct reef_listener **out)
{
	struct cost_layer *self = (struct cost_layer *)layer;
	struct listener_state *state = calloc(1, sizeof(*state));
	int rc;

	if (!state)
		return -ENOMEM;
	rc = reef_hold_listen(layer, queue, address, options, out);
	if (rc) {
		free(state);
		return rc;
	}
	state->listener = *out;
	state->nic = self->nic;
	state->next = self->model->listeners;
	self->model->listeners = state;
	return 0;
}

static void cost_unlisten(struct reef_layer *layer,
			  struct reef_listener *listener)
{
	struct cost_layer *self = (struct cost_layer *)layer;
	struct listener_state **at = &self->model->listeners, *state;

	for (; (state = *at); at = &state->next)
		if (state->listener == listener) {
			*at = state->next;
			free(state);
			break;
		}
	reef_hold_unlisten(layer, listener);
}

static struct reef_nic *nic_at(const struct reef_cost_model *model,
			       const char *address)
{
	struct listener_state *state;

	for (state = model->listeners; state; state = state->next)
		if (!strcmp(state->listener->address, address))
			return state->nic;
	return NULL;
}

static int cost_connect(struct reef_layer *layer, struct reef_queue *queue,
			const char *address,
			const struct reef_connect_options *options,
			struct reef_link **out)
{
	struct cost_layer *self = (struct cost_layer *)layer;
	struct reef_cost_model *model = self->model;
	struct route *route = calloc(1, sizeof(*route)), **bucket;
	int rc;

	if (!route)
		return -ENOMEM;
	rc = layer->next->ops.connect(layer->next, queue, address, options,
				      out);
	if (rc)
		goto err_route;
	forget_link(model, *out); /* another that was there before */
	*route = (struct route){
		.session = options->session,
		.from = self->nic,
		.to = nic_at(model, address),
		.connection = ++model->connections,
	};
	if (!add_link(model, *out, route->to, route->connection)) {
		layer->next->ops.disconnect(layer->next, *out);
		rc = -ENOMEM;
		goto err_route;
	}
	bucket = &model->routes[bucket_of(route->session)];
	route->chain = *bucket;
	*bucket = route;
	return 0;
err_route:
	free(route);
	return rc;
}

static void cost_forget(struct reef_hold *hold, const struct reef_link *link)
{
	forget_link(((struct cost_layer *)hold)->model, link);
}

static void cost_queue_close(struct reef_layer *layer, struct reef_queue *queue)
{
	forget_queue(((struct cost_layer *)layer)->model, queue);
	reef_hold_queue_close(layer, queue);
}

static void cost_close(struct reef_layer *layer)
{
	struct cost_layer *self = (struct cost_layer *)layer;
	struct reef_layer *next = layer->next;
	struct listener_state **at = &self->model->listeners, *state;

	/* Listeners that are still open go with the fabric. */
	while ((state = *at)) {
		if (state->listener->fabric == layer->fabric) {
			*at = state->next;
			free(state);
		} else {
			at = &state->next;
		}
	}
	reef_hold_fini(&self->hold);
	free(self);
	next->ops.close(next);
}

static const struct reef_fabric_ops cost_ops = {
	.name = "cost",
	.close = cost_close,
	.queue_close = cost_queue_close,
	.post = cost_post,
	.poll = reef_hold_poll,
	.arm = reef_hold_arm,
	.listen = cost_listen,
	.unlisten = cost_unlisten,
	.connect = cost_connect,
	.disconnect = reef_hold_disconnect,
};

static struct reef_nic *get_nic(struct reef_cost_model *model, const char *name)
{
	struct nic_entry *entry = find_nic(model, name);

	if (entry)
		return &entry->nic;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return NULL;
	if (reef_nic_init(&entry->nic, &model->options)) {
		free(entry);
		return NULL;
	}
	strncpy(entry->name, name, sizeof(entry->name) - 1);
	entry->next = model->nics;
	model->nics = entry;
	return &entry->nic;
}

int reef_cost_push(struct reef_fabric *fabric, struct reef_cost_model *model,
		   const char *name)
{
	struct cost_layer *self = calloc(1, sizeof(*self));

	if (!self)
		return -ENOMEM;
	self->model = model;
	self->nic = get_nic(model, name);
	if (!self->nic) {
		free(self);
		return -ENOMEM;
	}
	reef_hold_init(&self->hold, sizeof(struct cost_held), 0);
	self->hold.forget = cost_forget;
	self->hold.ending = cost_ending;
	self->hold.layer.ops = cost_ops;
	reef_fabric_push(fabric, &self->hold.layer);
	return 0;
}
