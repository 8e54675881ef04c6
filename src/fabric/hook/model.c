/* model.c - see model.h. */
#include "fabric/hook/model.h"

#include "fabric/provider.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096
#define NAME_MAX_SIZE 64

struct nic_entry {
	struct reef_nic nic;
	char name[NAME_MAX_SIZE];
	struct nic_entry *next;
};

struct listener {
	const struct reef_listener *listener;
	struct reef_nic *nic;
	struct listener *next;
};

/* An open connection: where it comes from, for the end that accepts it. */
struct route {
	uint32_t session;
	struct reef_nic *from, *to;
	uint64_t connection;
	struct route *chain;
};

struct reef_cost_model {
	struct reef_cost_options options;
	struct nic_entry *nics;
	struct listener *listeners;
	struct cost_link *links[BUCKETS];
	struct cost_queue *queues[BUCKETS];
	struct route *routes[BUCKETS];
	uint64_t connections;
};

/* --- the model and its NICs --- */

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

struct reef_nic *cost_model_nic(struct reef_cost_model *model, const char *name)
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

/* --- listeners --- */

int cost_model_listen(struct reef_cost_model *model,
		      const struct reef_listener *listener,
		      struct reef_nic *nic)
{
	struct listener *own = malloc(sizeof(*own));

	if (!own)
		return -ENOMEM;
	*own = (struct listener){
		.listener = listener, .nic = nic, .next = model->listeners};
	model->listeners = own;
	return 0;
}

/* Remove one listener, or all listeners of a fabric. */
static void remove_listeners(struct reef_cost_model *model,
			     const struct reef_listener *listener,
			     const struct reef_fabric *fabric)
{
	struct listener **at = &model->listeners, *own;

	while ((own = *at)) {
		if (own->listener == listener ||
		    own->listener->fabric == fabric) {
			*at = own->next;
			free(own);
		} else {
			at = &own->next;
		}
	}
}

void cost_model_unlisten(struct reef_cost_model *model,
			 const struct reef_listener *listener)
{
	remove_listeners(model, listener, NULL);
}

void cost_model_close(struct reef_cost_model *model,
		      const struct reef_fabric *fabric)
{
	remove_listeners(model, NULL, fabric);
}

static struct reef_nic *nic_at(const struct reef_cost_model *model,
			       const char *address)
{
	struct listener *own;

	for (own = model->listeners; own; own = own->next)
		if (!strcmp(own->listener->address, address))
			return own->nic;
	return NULL;
}

/* --- queues --- */

static uint32_t bucket_of(uint64_t key)
{
	return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 52) % BUCKETS;
}

static uint32_t bucket_of_pointer(const void *pointer)
{
	return bucket_of((uint64_t)(uintptr_t)pointer >> 4);
}

struct cost_queue *cost_model_queue(struct reef_cost_model *model,
				    const struct reef_queue *queue)
{
	struct cost_queue **bucket = &model->queues[bucket_of_pointer(queue)];
	struct cost_queue *state;

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

void cost_model_forget_queue(struct reef_cost_model *model,
			     const struct reef_queue *queue)
{
	struct cost_queue **at = &model->queues[bucket_of_pointer(queue)];
	struct cost_queue *state;

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
	struct cost_queue *state = cost_model_queue(model, queue);

	if (state)
		state->threads = threads ? threads : 1;
}

/* --- links --- */

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

void cost_model_forget_link(struct reef_cost_model *model,
			    const struct reef_link *link)
{
	struct cost_link **at = &model->links[bucket_of_pointer(link)];
	struct cost_link *state;

	for (; (state = *at); at = &state->chain)
		if (state->link == link) {
			*at = state->chain;
			forget_route(model, state->session, state->connection);
			free(state);
			return;
		}
}

static struct cost_link *add_link(struct reef_cost_model *model,
				  const struct reef_link *link,
				  struct reef_nic *target, uint64_t connection)
{
	struct cost_link **bucket, *state = calloc(1, sizeof(*state));

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
static struct cost_link *add_accepted(struct reef_cost_model *model,
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

struct cost_link *cost_model_link(struct reef_cost_model *model,
				  const struct reef_link *link,
				  const struct reef_nic *nic)
{
	struct cost_link *state = model->links[bucket_of_pointer(link)];

	for (; state; state = state->chain)
		if (state->link == link)
			break;
	if (state && state->session == link->session)
		return state;
	if (state)
		cost_model_forget_link(model, link);
	return add_accepted(model, link, nic);
}

int cost_model_connect(struct reef_cost_model *model,
		       const struct reef_link *link, struct reef_nic *from,
		       const char *address)
{
	struct route *route = malloc(sizeof(*route)), **bucket;

	if (!route)
		return -ENOMEM;
	cost_model_forget_link(model, link); /* one that was there before */
	bucket = &model->routes[bucket_of(link->session)];
	*route = (struct route){
		.session = link->session,
		.from = from,
		.to = nic_at(model, address),
		.connection = ++model->connections,
		.chain = *bucket,
	};
	if (!add_link(model, link, route->to, route->connection)) {
		free(route);
		return -ENOMEM;
	}
	*bucket = route;
	return 0;
}
