/* orders.c - what an operator asks of the broker.
 *
 * A client like any other, on fate's host, which nothing befalls. */
#include "cluster.h"

#include "pool/rpc.h"

#define LIVES_MAX 16u /* sessions that an order may cost */

static int need_operator(struct cluster *cluster)
{
	struct reef_client_options options = {
		.sched = reef_sim_sched(cluster->sim),
		.broker = cluster_places(cluster),
		.credential = &cluster->owner,
		.name = "operator",
		.seed = cluster->options.seed | 1,
	};
	int rc = 0;

	if (cluster->orders)
		return 0;
	if (!cluster->mesh)
		rc = cluster_mesh(cluster, cluster->fate, &cluster->mesh);
	options.mesh = cluster->mesh;
	while (!rc && !cluster->operator) {
		rc = reef_client_create(&options, &cluster->operator);
		if (rc == -ECONNREFUSED || rc == -ETIMEDOUT ||
		    rc == -REEF_ENOLINK)
			rc = reef_sleep(5 * MILLISECOND);
	}
	if (!rc)
		rc = reef_client_handle(cluster->operator, & cluster->orders);
	return rc;
}

static void dismiss_operator(struct cluster *cluster)
{
	reef_close(cluster->orders);
	reef_client_unref(cluster->operator);
	cluster->orders = NULL;
	cluster->operator= NULL;
}

static int give(struct cluster *cluster, uint16_t kind, bool mutating,
		const struct reef_body *body)
{
	uint32_t lives = 0;
	int rc = 0;

	/* One handle: one order at a time. */
	while (!rc && cluster->ordering)
		rc = reef_sleep(MILLISECOND);
	if (rc)
		return rc;
	cluster->ordering = true;
	do {
		rc = need_operator(cluster);
		if (!rc)
			rc = reef_client_ask(cluster->orders, kind, mutating,
					     body, NULL);
		/* Where leases are so short that clients lose theirs when the
		 * broker is slow to come back, an operator does, too. An order
		 * may be given twice. */
		if (rc != -REEF_EFENCED || !cluster->options.hasty)
			break;
		dismiss_operator(cluster);
	} while (++lives < LIVES_MAX);
	cluster->ordering = false;
	return rc;
}

static uint32_t node_number(struct cluster *cluster, uint32_t index)
{
	struct reef_node_status status = {0};

	if (cluster->running[index])
		reef_node_status(cluster->running[index], &status);
	return status.id;
}

int orders_drain(struct cluster *cluster, uint32_t index, bool stop)
{
	const struct reef_body body = {
		.ask.node_drain = {node_number(cluster, index), stop},
	};

	return give(cluster, REEF_POOL_NODE_DRAIN, true, &body);
}

int orders_end(struct cluster *cluster, uint32_t session)
{
	const struct reef_body body = {.ask.session_end.session = session};

	return give(cluster, REEF_POOL_SESSION_END, false, &body);
}

int orders_reclaim(struct cluster *cluster, uint32_t index, uint64_t size)
{
	const struct reef_body body = {
		.ask.node_reclaim = {node_number(cluster, index), size},
	};

	return give(cluster, REEF_POOL_NODE_RECLAIM, false, &body);
}

void orders_close(struct cluster *cluster)
{
	dismiss_operator(cluster);
	reef_mesh_close(cluster->mesh);
	cluster->mesh = NULL;
}
