/* sim_pool.c - see sim_pool.h.
 *
 *   broker --> nodes registered --> clients join and run --> the run ends,
 *   everything is killed */
#include "bench/sim_pool.h"

#include "base/log.h"
#include "bench/units.h"
#include "fabric/sim/sim.h"
#include "kv/seed.h"
#include "pool/broker/broker.h"
#include "pool/client/client.h"
#include "pool/keys.h"
#include "pool/mesh.h"
#include "pool/node/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_NS (600 * SECOND) /* of virtual time, with all preparations */
#define BROKER "sim:broker/1"
#define CLIENTS_MAX 4096
#define NODES_MAX 2
#define TTL_NS (10 * SECOND)

struct lender {
	struct sim_pool *pool;
	uint32_t number; /* from 1 */
	struct reef_node *node;
};

struct host {
	struct sim_pool_client client; /* what is told of it */
	struct reef_mesh *mesh;
	struct reef_client *joined;
};

struct sim_pool {
	struct sim_pool_options options;
	struct reef_sim *sim;
	struct reef_cost_model *model;
	struct reef_key key;
	struct reef_credential owner;
	struct lender lenders[NODES_MAX];
	struct host *hosts;
	struct reef_count count; /* of all clients */
	bool ended;
	int error;
};

uint64_t sim_pool_now_ns(const struct sim_pool *pool)
{
	return reef_sched_now_ns(reef_sim_sched(pool->sim));
}

struct reef_counts sim_pool_counts(const struct sim_pool *pool)
{
	return reef_count_read(&pool->count);
}

bool sim_pool_end(struct sim_pool *pool, int error)
{
	/* What fails later does so because everything is killed. */
	if (pool->ended)
		return false;
	pool->ended = true;
	pool->error = error;
	reef_sched_stop(reef_sim_sched(pool->sim));
	return true;
}

int sim_pool_meet(uint32_t *arrived, uint32_t all)
{
	int rc = 0;

	++*arrived;
	while (!rc && *arrived < all)
		rc = reef_sleep(SECOND / 1000);
	return rc;
}

/* --- hosts --- */

struct end_of_cable {
	struct sim_pool *pool;
	const char *name;
	bool counted;
};

static int push_cost(void *context, struct reef_fabric *fabric)
{
	struct end_of_cable *cable = context;
	int rc = reef_cost_push(fabric, cable->pool->model, cable->name);

	if (!rc && cable->counted)
		rc = reef_count_push(fabric, &cable->pool->count);
	return rc;
}

static int open_mesh(struct sim_pool *pool, struct reef_sim_host *host,
		     bool counted, struct reef_mesh **out)
{
	struct end_of_cable cable = {
		.pool = pool,
		.name = reef_sim_host_name(host),
		.counted = counted,
	};
	const struct reef_mesh_options options = {
		.kinds = "sim",
		.fabric = {.sim_host = host,
			   .links_max = 2 * CLIENTS_MAX,
			   .silence_ns = TTL_NS},
		.opened = push_cost,
		.context = &cable,
	};

	return reef_mesh_open(&options, out);
}

static void name_node(uint32_t number, char name[static 16])
{
	snprintf(name, 16, number > 1 ? "node%u" : "node", number);
}

static int broker_main(struct reef_sim_host *host, void *arg)
{
	struct sim_pool *pool = arg;
	struct reef_broker_options options = {
		.store = reef_sim_host_store(host),
		.key = &pool->key,
		.listen = BROKER,
		.sync_inline = true,
		.ttl_ns = TTL_NS,
		.node_ttl_ns = TTL_NS,
		.extent_size = 64 * MIB,
		.seed = 1,
	};
	struct reef_broker *broker = NULL;
	struct reef_node_key added;
	char name[16];
	int rc = open_mesh(pool, host, false, &options.mesh);

	if (!rc)
		rc = reef_broker_start(&options, &broker);
	for (uint32_t i = 0; !rc && i < pool->options.nodes; i++) {
		name_node(i + 1, name);
		rc = reef_broker_node_key(broker, name, &added);
	}
	if (rc)
		sim_pool_end(pool, rc);
	while (!rc)
		rc = reef_sleep(SECOND);
	reef_broker_stop(broker);
	reef_mesh_close(options.mesh);
	return rc;
}

static int node_main(struct reef_sim_host *host, void *arg)
{
	struct lender *lender = arg;
	struct sim_pool *pool = lender->pool;
	struct reef_node_key key = {.node = lender->number};
	char listen[32];
	struct reef_node_options options = {
		.key = &key,
		.broker = BROKER,
		.listen = listen,
		.capacity = 2048 * MIB,
		.simulated = true,
		.seed = lender->number,
	};
	struct reef_node *node = NULL;
	int rc = open_mesh(pool, host, false, &options.mesh);

	snprintf(listen, sizeof(listen), "sim:%s/1", reef_sim_host_name(host));

	if (!rc)
		rc = reef_key_derive_node(&pool->key, key.node, &key.key);
	if (!rc)
		rc = reef_node_start(&options, &node);
	if (rc)
		sim_pool_end(pool, rc);
	else
		lender->node = node;
	while (!rc)
		rc = reef_sleep(SECOND);
	lender->node = NULL;
	reef_node_stop(node);
	reef_mesh_close(options.mesh);
	return rc;
}

static int watch_main(struct reef_sim_host *host, void *arg)
{
	struct sim_pool *pool = arg;
	int rc = 0;

	(void)host;
	while (!rc) {
		rc = reef_sleep(SECOND / 1000);
		if (pool->options.watch)
			pool->options.watch(pool, pool->options.context);
	}
	return rc;
}

static bool all_lend(const struct sim_pool *pool)
{
	struct reef_node_status status;

	for (uint32_t i = 0; i < pool->options.nodes; i++) {
		if (!pool->lenders[i].node)
			return false;
		reef_node_status(pool->lenders[i].node, &status);
		if (!status.id || status.link)
			return false;
	}
	return true;
}

static int join_pool(struct host *self, struct reef_sim_host *host)
{
	struct sim_pool *pool = self->client.pool;
	struct reef_client_options options = {
		.sched = reef_fiber_sched(),
		.broker = BROKER,
		.credential = &pool->owner,
		.name = "crowd",
		.timeout_ns = LIMIT_NS,
		.seed = 1 + self->client.number,
	};
	const struct reef_space_options space = {
		.flags = REEF_SPACE_CREATE,
		.copies = pool->options.copies,
	};
	int rc = 0;

	while (!rc && !all_lend(pool))
		rc = reef_sleep(SECOND / 1000);
	if (!rc)
		rc = open_mesh(pool, host, true, &self->mesh);
	options.mesh = self->mesh;
	if (!rc)
		rc = reef_client_create(&options, &self->joined);
	if (!rc)
		rc = reef_client_handle(self->joined, &self->client.reef);
	if (!rc)
		rc = reef_space_open(self->client.reef, "crowd", &space,
				     &self->client.space);
	return rc;
}

static int client_main(struct reef_sim_host *host, void *arg)
{
	struct host *self = arg;
	int rc = join_pool(self, host);

	if (!rc)
		rc = self->client.pool->options.run(&self->client);
	if (rc != -REEF_EHOSTDEAD)
		sim_pool_end(self->client.pool, rc);
	reef_close(self->client.reef);
	reef_client_unref(self->joined);
	reef_mesh_close(self->mesh);
	return rc;
}

/* --- around it --- */

static int add_hosts(struct sim_pool *pool)
{
	struct reef_random random;
	char name[24];
	int rc;

	reef_random_init(&random, pool->options.seed);
	rc = reef_sim_host_add(pool->sim, "broker", broker_main, pool, NULL);
	for (uint32_t i = 0; !rc && i < pool->options.nodes; i++) {
		pool->lenders[i] = (struct lender){
			.pool = pool,
			.number = i + 1,
		};
		name_node(i + 1, name);
		rc = reef_sim_host_add(pool->sim, name, node_main,
				       &pool->lenders[i], NULL);
	}
	if (!rc)
		rc = reef_sim_host_add(pool->sim, "watch", watch_main, pool,
				       NULL);
	for (uint32_t i = 0; !rc && i < pool->options.clients; i++) {
		pool->hosts[i].client = (struct sim_pool_client){
			.pool = pool,
			.number = i,
			.random = reef_random_split(&random, i),
			.context = pool->options.context,
		};
		snprintf(name, sizeof(name), "client%u", i);
		rc = reef_sim_host_add(pool->sim, name, client_main,
				       &pool->hosts[i], NULL);
	}
	return rc;
}

static int run_sim(struct sim_pool *pool)
{
	struct reef_sim_options options = {
		.seed = pool->options.seed,
		.calm = true,
	};
	int rc;

	rc = reef_cost_model_create(&pool->options.cost, &pool->model);
	if (rc)
		return rc;
	map_set_seed(pool->options.seed + 1); /* the same again is the same */
	rc = reef_sim_create(&options, &pool->sim);
	if (!rc) {
		rc = add_hosts(pool);
		if (!rc)
			rc = reef_sim_run(pool->sim, LIMIT_NS);
		reef_sim_destroy(pool->sim);
	}
	map_set_seed(0);
	reef_cost_model_destroy(pool->model);
	return pool->ended ? pool->error : rc;
}

int sim_pool_run(const struct sim_pool_options *options)
{
	struct sim_pool *pool = calloc(1, sizeof(*pool));
	int rc = -ENOMEM;

	if (!pool)
		return -ENOMEM;
	pool->options = *options;
	if (!pool->options.clients)
		pool->options.clients = 1;
	if (!pool->options.nodes)
		pool->options.nodes = 1;
	reef_assert(pool->options.nodes <= NODES_MAX);
	memset(pool->key.bytes, 42, sizeof(pool->key.bytes));
	pool->hosts = calloc(pool->options.clients, sizeof(pool->hosts[0]));
	if (pool->hosts)
		rc = reef_key_derive_user(&pool->key, 0, 0, &pool->owner.key);
	if (!rc)
		rc = run_sim(pool);
	free(pool->hosts);
	free(pool);
	return rc;
}
