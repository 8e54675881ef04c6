/* shape.c - see shape.h. */
#include "bench/shape.h"

#include "base/random.h"
#include "fabric/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LIMIT_NS 60000000000ull /* of virtual time */
#define CONNECTIONS_MAX 65535
#define SERVERS_MAX 64

struct shape;

/* A batch, posted again whenever it ends. */
struct slot {
	struct shape *shape;
	struct reef_queue *queue;
	uint32_t first, count; /* connections to choose from */
	uint64_t posted_ns, word;
	struct reef_op op;
	struct reef_batch batch;
};

struct server {
	struct shape *shape;
	struct reef_memory memory;
	struct reef_fiber *fiber;
	uint64_t key;
	char name[16], address[32];
};

struct shape {
	struct shape_load load;
	struct reef_sim *sim;
	struct reef_cost_model *model;
	struct reef_random random;
	struct server servers[SERVERS_MAX];
	struct reef_fabric *fabric;
	struct reef_queue **queues; /* one per thread, or the same */
	struct reef_link **links;
	struct reef_remote **remotes;
	struct slot *slots;
	struct reef_fiber *client;
	uint64_t done, begin_ns, end_ns, waited_ns;
	uint64_t misses; /* before it began */
	uint32_t under_way;
	int error;
};

/* --- the load --- */

static uint64_t misses_of(const struct shape *shape)
{
	struct reef_cost_stats stats;
	uint64_t misses = 0;

	if (!reef_cost_stats(shape->model, "client", &stats))
		misses += stats.misses;
	for (uint32_t i = 0; i < shape->load.servers; i++)
		if (!reef_cost_stats(shape->model, shape->servers[i].name,
				     &stats))
			misses += stats.misses;
	return misses;
}

static int post_slot(struct slot *slot)
{
	struct shape *shape = slot->shape;
	uint32_t connection =
		slot->first +
		(uint32_t)reef_random_below(&shape->random, slot->count);
	uint64_t words = shape->load.size / 8;

	slot->op = (struct reef_op){
		.kind = shape->load.kind,
		.length = 8,
		.remote = shape->remotes[connection],
		.offset = shape->load.hot ? 0
					  : 8 * reef_random_below(
							&shape->random, words),
		.local = &slot->word,
		.operand = 1,
	};
	slot->batch.link = shape->links[connection];
	slot->posted_ns = reef_sched_now_ns(reef_sim_sched(shape->sim));
	return reef_post(slot->queue, &slot->batch);
}

static void slot_done(struct reef_batch *batch)
{
	struct slot *slot = batch->user;
	struct shape *shape = slot->shape;
	uint64_t now_ns = reef_sched_now_ns(reef_sim_sched(shape->sim));
	uint64_t last = (uint64_t)shape->load.warm + shape->load.ops;

	if (batch->status && !shape->error)
		shape->error = batch->status;
	shape->done++;
	if (shape->done == shape->load.warm) {
		shape->begin_ns = now_ns;
		shape->misses = misses_of(shape);
	} else if (shape->done > shape->load.warm && shape->done <= last) {
		shape->waited_ns += now_ns - slot->posted_ns;
	}
	if (shape->done == last) {
		shape->end_ns = now_ns;
		shape->misses = misses_of(shape) - shape->misses;
	}
	if (shape->done < last && !shape->error) {
		int rc = post_slot(slot);

		if (!rc)
			return;
		shape->error = rc < 0 ? rc : -EPROTO;
	}
	if (--shape->under_way == 0)
		reef_fiber_unpark(shape->client);
}

static int run_load(struct shape *shape)
{
	const struct shape_load *load = &shape->load;
	uint32_t share = load->connections / load->threads;

	shape->client = reef_fiber_self();
	for (uint32_t i = 0; i < load->threads * load->depth; i++) {
		struct slot *slot = &shape->slots[i];
		uint32_t thread = i % load->threads;
		int rc;

		*slot = (struct slot){
			.shape = shape,
			.queue = shape->queues[thread],
			.first = thread * share,
			.count = share,
			.batch = {.ops = &slot->op,
				  .count = 1,
				  .on_done = slot_done,
				  .user = slot},
		};
		shape->under_way++;
		rc = post_slot(slot);
		if (rc) {
			shape->under_way--;
			shape->error = rc < 0 ? rc : -EPROTO;
			break;
		}
	}
	while (shape->under_way) {
		int rc = reef_fiber_park(REEF_FOREVER);

		if (rc)
			return rc;
	}
	return shape->error;
}

/* --- the hosts --- */

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)identity;
	(void)session;
	for (int i = 0; i < REEF_KEY_SIZE; i++)
		key[i] = 0;
	return 0;
}

static struct reef_fabric_options fabric_options(const struct shape *shape,
						 struct reef_sim_host *host)
{
	return (struct reef_fabric_options){
		.sim_host = host,
		.links_max = shape->load.connections,
		.depth_max = shape->load.threads * shape->load.depth,
	};
}

static int server_main(struct reef_sim_host *host, void *arg)
{
	struct server *server = arg;
	struct shape *shape = server->shape;
	struct reef_fabric_options options = fabric_options(shape, host);
	struct reef_listen_options listen = {.credential = credential};
	struct reef_listener *listener;
	struct reef_region *region;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	int rc;

	rc = reef_fabric_open("sim", &options, &fabric);
	if (rc)
		return rc;
	rc = reef_cost_push(fabric, shape->model, server->name);
	if (rc)
		goto err_fabric;
	rc = reef_queue_open(fabric, NULL, &queue);
	if (rc)
		goto err_fabric;
	server->memory.domain = reef_fabric_domain(fabric);
	rc = reef_expose(fabric, &server->memory, &region);
	if (!rc)
		rc = reef_listen(queue, server->address, &listen, &listener);
	if (!rc) {
		server->key = reef_region_key(region);
		server->fiber = reef_fiber_self();
		reef_fiber_park(REEF_FOREVER); /* until the client is done */
		reef_listener_close(listener);
	}
	reef_queue_close(queue);
err_fabric:
	reef_fabric_close(fabric);
	return rc;
}

static int connect_all(struct shape *shape)
{
	const struct shape_load *load = &shape->load;
	uint32_t share = load->connections / load->threads;

	for (uint32_t i = 0; i < load->threads * share; i++) {
		struct server *server = &shape->servers[i % load->servers];
		struct reef_queue *queue = shape->queues[i / share];
		struct reef_connect_options options = {
			.session = (i + 1) << 16 | 1,
			.identity = "shape",
		};
		int rc = reef_connect(queue, server->address, &options,
				      &shape->links[i]);

		if (!rc)
			rc = reef_attach(queue, shape->links[i], server->key,
					 &shape->remotes[i]);
		if (rc)
			return rc;
	}
	return 0;
}

static int open_queues(struct shape *shape)
{
	const struct shape_load *load = &shape->load;

	for (uint32_t i = 0; i < load->threads; i++) {
		int rc;

		if (i && load->shared) {
			shape->queues[i] = shape->queues[0];
			continue;
		}
		rc = reef_queue_open(shape->fabric, NULL, &shape->queues[i]);
		if (rc)
			return rc;
		if (load->shared)
			reef_cost_queue_share(shape->model, shape->queues[i],
					      load->threads);
	}
	return 0;
}

static int client_main(struct reef_sim_host *host, void *arg)
{
	struct shape *shape = arg;
	const struct shape_load *load = &shape->load;
	struct reef_fabric_options options = fabric_options(shape, host);
	int rc;

	reef_sleep(1000000); /* until the servers listen */
	rc = reef_fabric_open("sim", &options, &shape->fabric);
	if (rc)
		return rc;
	rc = reef_cost_push(shape->fabric, shape->model, "client");
	if (!rc)
		rc = open_queues(shape);
	if (!rc)
		rc = connect_all(shape);
	if (!rc)
		rc = run_load(shape);
	for (uint32_t i = 0; i < load->connections; i++)
		reef_link_close(shape->links[i]);
	for (uint32_t i = 0; i < (load->shared ? 1 : load->threads); i++)
		reef_queue_close(shape->queues[i]);
	reef_fabric_close(shape->fabric);
	for (uint32_t i = 0; i < load->servers; i++)
		if (shape->servers[i].fiber)
			reef_fiber_unpark(shape->servers[i].fiber);
	return rc;
}

/* --- around it --- */

static int fill_defaults(struct shape_load *load)
{
	if (!load->servers)
		load->servers = 1;
	if (!load->threads)
		load->threads = 1;
	if (!load->connections)
		load->connections = load->threads;
	if (!load->depth)
		load->depth = 16;
	if (!load->kind)
		load->kind = REEF_READ;
	if (!load->size)
		load->size = 1 << 20;
	if (!load->warm)
		load->warm = 10000;
	if (!load->ops)
		load->ops = 50000;
	return load->connections < load->threads ||
			       load->connections > CONNECTIONS_MAX ||
			       load->servers > SERVERS_MAX || load->size < 8
		       ? -EINVAL
		       : 0;
}

/* Map a server's memory. Pages are touched only where an operation goes, so a
 * large region costs little. */
static int map_memory(struct server *server, uint64_t size)
{
	void *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return -errno;
	server->memory = (struct reef_memory){
		.base = base,
		.size = size,
		.fd = -1,
		.backing = REEF_BACKING_SIMULATED,
	};
	return 0;
}

static int add_hosts(struct shape *shape)
{
	struct reef_sim_host *host;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < shape->load.servers; i++) {
		struct server *server = &shape->servers[i];

		server->shape = shape;
		snprintf(server->name, sizeof(server->name), "server%u", i);
		snprintf(server->address, sizeof(server->address), "sim:%s/1",
			 server->name);
		rc = map_memory(server, shape->load.size);
		if (!rc)
			rc = reef_sim_host_add(shape->sim, server->name,
					       server_main, server, &host);
	}
	if (!rc)
		rc = reef_sim_host_add(shape->sim, "client", client_main, shape,
				       &host);
	if (!rc)
		rc = reef_sim_run(shape->sim, LIMIT_NS);
	if (!rc && reef_sim_host_result(host, &rc))
		rc = -EDEADLK;
	return rc;
}

static int run_sim(struct shape *shape)
{
	struct reef_sim_options options = {.seed = shape->load.seed,
					   .calm = true};
	int rc;

	rc = reef_cost_model_create(&shape->load.cost, &shape->model);
	if (rc)
		return rc;
	rc = reef_sim_create(&options, &shape->sim);
	if (!rc) {
		rc = add_hosts(shape);
		reef_sim_destroy(shape->sim);
	}
	reef_cost_model_destroy(shape->model);
	for (uint32_t i = 0; i < shape->load.servers; i++)
		if (shape->servers[i].memory.base)
			munmap(shape->servers[i].memory.base, shape->load.size);
	return rc;
}

int shape_run(const struct shape_load *load, struct shape_result *out)
{
	struct shape *shape = calloc(1, sizeof(*shape));
	int rc = -ENOMEM;

	if (!shape)
		return -ENOMEM;
	shape->load = *load;
	rc = fill_defaults(&shape->load);
	if (rc)
		goto out;
	load = &shape->load;
	reef_random_init(&shape->random, load->seed);
	shape->queues = calloc(load->threads, sizeof(*shape->queues));
	shape->links = calloc(load->connections, sizeof(*shape->links));
	shape->remotes = calloc(load->connections, sizeof(*shape->remotes));
	shape->slots = calloc((size_t)load->threads * load->depth,
			      sizeof(*shape->slots));
	rc = -ENOMEM;
	if (shape->queues && shape->links && shape->remotes && shape->slots)
		rc = run_sim(shape);
	if (!rc)
		*out = (struct shape_result){
			.ops_per_s = load->ops * 1e9 /
				     (double)(shape->end_ns - shape->begin_ns),
			.mean_ns = (double)shape->waited_ns / load->ops,
			.misses = (double)shape->misses / load->ops,
		};
	free(shape->slots);
	free(shape->remotes);
	free(shape->links);
	free(shape->queues);
out:
	free(shape);
	return rc;
}
