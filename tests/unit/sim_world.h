/* sim_world.h - a small simulated cluster for tests: one node that lends a
 * region, and clients that do what a test tells them.
 *
 * Nothing is asserted inside a fiber: scripts note what they see, and the test
 * looks at it when the run is over. */
#ifndef REEF_TESTS_SIM_WORLD_H
#define REEF_TESTS_SIM_WORLD_H

#include "fabric/fabric.h"
#include "fabric/provider.h"
#include "fabric/sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
#define MILLISECOND 1000000ull
#define CLIENTS_MAX 4
#define SESSION(number) (((uint32_t)(number) << 16) | 1u)

struct cluster;

/* One client, as its script sees it. */
struct client {
	struct cluster *cluster;
	uint32_t number; /* from 1 */
	struct reef_sim_host *host;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_remote *remote;
	int (*script)(struct client *client);
	int result; /* of the script; 1: it has not ended */
};

struct cluster {
	struct reef_sim *sim;
	struct reef_fabric_options options; /* of every fabric */
	bool durable;
	/* The node. */
	struct reef_sim_host *node;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_listener *listener;
	struct reef_memory *memory;
	struct reef_region *region;
	uint64_t key;
	bool ready, over;
	bool stay; /* over is the test's to set */
	uint32_t opened, closed;
	int closed_reason;
	/* What the node does beside lending; optional. */
	void (*tick)(struct cluster *cluster);
	uint64_t tick_ns; /* 1 ms */
	struct client clients[CLIENTS_MAX];
	uint32_t clients_count;
	uint64_t note[8]; /* the test's own */
	uint64_t hash, events;
};

static inline int world_credential(void *context, const char *identity,
				   uint32_t session, uint8_t key[REEF_KEY_SIZE])
{
	memset(key, 7, REEF_KEY_SIZE);
	return strcmp(identity, "test") ? -REEF_EAUTH : 0;
}

static inline void world_opened(void *context, struct reef_link *link)
{
	((struct cluster *)context)->opened++;
}

static inline void world_closed(void *context, struct reef_link *link,
				int reason)
{
	((struct cluster *)context)->closed++;
	((struct cluster *)context)->closed_reason = reason;
}

static inline int node_open(struct cluster *cluster)
{
	struct reef_fabric_options options = cluster->options;
	struct reef_listen_options listen = {
		.credential = world_credential,
		.opened = world_opened,
		.closed = world_closed,
		.context = cluster,
	};
	struct reef_memory_options memory = {
		.size = 4096,
		.backing = REEF_BACKING_SIMULATED,
		.durable = cluster->durable,
	};
	int rc;

	rc = reef_fabric_open("sim", &options, &cluster->fabric);
	if (rc)
		return rc;
	memory.domain = reef_fabric_domain(cluster->fabric);
	if (!cluster->memory)
		rc = reef_memory_create(&memory, &cluster->memory);
	if (!rc)
		rc = reef_queue_open(cluster->fabric, NULL, &cluster->queue);
	if (!rc)
		rc = reef_expose(cluster->fabric, cluster->memory,
				 &cluster->region);
	if (!rc)
		rc = reef_listen(cluster->queue, "sim:node/1", &listen,
				 &cluster->listener);
	if (!rc)
		cluster->key = reef_region_key(cluster->region);
	return rc;
}

/* Lends until all clients are done. */
static inline int node_main(struct reef_sim_host *host, void *arg)
{
	struct cluster *cluster = arg;
	int rc = node_open(cluster);

	cluster->ready = !rc;
	while (!rc && !cluster->over) {
		if (cluster->tick)
			cluster->tick(cluster);
		rc = reef_sleep(cluster->tick_ns ? cluster->tick_ns
						 : MILLISECOND);
	}
	reef_listener_close(cluster->listener);
	reef_queue_close(cluster->queue);
	reef_fabric_close(cluster->fabric);
	return rc;
}

static inline int client_connect(struct client *client, struct reef_link **link)
{
	struct reef_connect_options options = {
		.session = SESSION(client->number),
		.identity = "test",
	};

	memset(options.key, 7, sizeof(options.key));
	return reef_connect(client->queue, "sim:node/1", &options, link);
}

static inline int client_join(struct client *client)
{
	int rc = client_connect(client, &client->link);

	if (rc)
		return rc;
	return reef_attach(client->queue, client->link, client->cluster->key,
			   &client->remote);
}

static inline int client_open(struct client *client)
{
	struct reef_fabric_options options = client->cluster->options;
	int rc;

	while (!client->cluster->ready)
		if (reef_sleep(1000))
			return -REEF_EHOSTDEAD;
	rc = reef_fabric_open("sim", &options, &client->fabric);
	if (!rc)
		rc = reef_queue_open(client->fabric, NULL, &client->queue);
	return rc ? rc : client_join(client);
}

static inline int client_main(struct reef_sim_host *host, void *arg)
{
	struct client *client = arg;
	struct cluster *cluster = client->cluster;
	uint32_t i;
	bool over = true;
	int rc;

	client->link = NULL;
	rc = client_open(client);
	if (!rc)
		rc = client->script(client);
	client->result = rc;
	reef_link_close(client->link);
	reef_queue_close(client->queue);
	reef_fabric_close(client->fabric);
	for (i = 0; i < cluster->clients_count; i++)
		over &= cluster->clients[i].result != 1;
	cluster->over |= over && !cluster->stay;
	return client->result;
}

static inline void cluster_start(struct cluster *cluster,
				 const struct reef_sim_options *options)
{
	assert_int_equal(reef_sim_create(options, &cluster->sim), 0);
	assert_int_equal(reef_sim_host_add(cluster->sim, "node", node_main,
					   cluster, &cluster->node),
			 0);
}

static inline struct client *cluster_add(struct cluster *cluster,
					 int (*script)(struct client *client))
{
	struct client *client = &cluster->clients[cluster->clients_count++];
	char name[16];

	*client = (struct client){
		.cluster = cluster,
		.number = cluster->clients_count,
		.script = script,
		.result = 1,
	};
	snprintf(name, sizeof(name), "client%u", client->number);
	assert_int_equal(reef_sim_host_add(cluster->sim, name, client_main,
					   client, &client->host),
			 0);
	return client;
}

/* Run and end it; returns what reef_sim_run did. */
static inline int cluster_finish(struct cluster *cluster)
{
	int rc = reef_sim_run(cluster->sim, 1000 * SECOND);

	cluster->hash = reef_sim_trace_hash(cluster->sim);
	cluster->events = reef_sim_events(cluster->sim);
	reef_sim_destroy(cluster->sim);
	reef_memory_destroy(cluster->memory);
	return rc;
}

/* A node and one client, from a seed; all must go well. */
static inline void cluster_run(struct cluster *cluster, uint64_t seed,
			       int (*script)(struct client *client))
{
	cluster_start(cluster, &(struct reef_sim_options){.seed = seed});
	cluster_add(cluster, script);
	assert_int_equal(cluster_finish(cluster), 0);
	assert_int_equal(cluster->clients[0].result, 0);
}

/* --- operations --- */

static inline struct reef_op op_read(struct client *client, uint64_t offset,
				     void *to, uint32_t length)
{
	return (struct reef_op){
		.kind = REEF_READ,
		.remote = client->remote,
		.offset = offset,
		.local = to,
		.length = length,
	};
}

static inline struct reef_op op_write(struct client *client, uint64_t offset,
				      const void *from, uint32_t length)
{
	return (struct reef_op){
		.kind = REEF_WRITE,
		.remote = client->remote,
		.offset = offset,
		.local = (void *)from,
		.length = length,
	};
}

static inline struct reef_op op_faa(struct client *client, uint64_t offset,
				    uint64_t add)
{
	return (struct reef_op){
		.kind = REEF_FAA,
		.remote = client->remote,
		.offset = offset,
		.operand = add,
	};
}

static inline int run_ops(struct client *client, struct reef_op *ops,
			  uint32_t count)
{
	struct reef_batch batch = {
		.link = client->link,
		.ops = ops,
		.count = count,
	};

	return reef_run(client->queue, &batch);
}

static inline int run_op(struct client *client, struct reef_op op)
{
	return run_ops(client, &op, 1);
}

static inline uint64_t node_word(const struct cluster *cluster, uint64_t offset)
{
	uint64_t value;

	memcpy(&value, (uint8_t *)cluster->memory->base + offset, 8);
	return value;
}

#endif
