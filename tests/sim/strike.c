/* strike.c - what goes wrong at a client's k-th operation.
 *
 * A hook in the client's mesh counts batches (the keeper's and its handles')
 * from when the workload says so. The k-th is struck: so each point of a run
 * has its turn, seed by seed. A batch is where a client's work can be cut: what
 * the parts of one do is up to the network, which reorders and loses them by
 * itself. */
#include "cluster.h"

#include "fabric/provider.h"

#include <stdlib.h>

struct strike_layer {
	struct reef_layer layer;
	struct seat *seat;
};

void strike_choose(struct cluster *cluster)
{
	struct cluster_options *options = &cluster->options;
	uint64_t index = options->seed - 1;

	cluster->strike_at = 1 + index % options->strikes;
	options->seed = 1 + index / options->strikes;
	cluster->struck = (uint32_t)(options->seed % options->clients);
}

static bool is_due(struct seat *seat)
{
	struct cluster *cluster = seat->cluster;

	if (cluster->has_struck || !seat->counting ||
	    seat->index != cluster->struck)
		return false;
	/* With a node goes what has no second copy yet. */
	if (cluster->options.strike == STRIKE_NODE &&
	    !cluster_is_whole(cluster))
		return false;
	cluster->has_struck = ++seat->posts == cluster->strike_at;
	return cluster->has_struck;
}

static int strike_post(struct reef_layer *layer, struct reef_queue *queue,
		       struct reef_batch *batch)
{
	struct reef_layer *next = layer->next;
	struct seat *seat = ((struct strike_layer *)layer)->seat;
	struct cluster *cluster = seat->cluster;
	struct reef_link *link = batch->link;
	bool before = cluster->options.seed / 4 % 2;
	int rc;

	if (!is_due(seat))
		return next->ops.post(next, queue, batch);
	if (cluster->options.strike == STRIKE_KILL && before)
		chaos_strike_kill(seat);
	rc = next->ops.post(next, queue, batch);
	switch (cluster->options.strike) {
	case STRIKE_KILL:
		if (!before)
			chaos_strike_kill(seat);
		break;
	case STRIKE_STOP:
		chaos_strike_stop(seat);
		break;
	case STRIKE_CUT:
		chaos_strike_cut(seat);
		break;
	case STRIKE_NODE:
		chaos_strike_node(cluster);
		break;
	case STRIKE_LOSE:
		cluster_trace(cluster, "client %u loses a link", seat->index);
		reef_sim_lose_link(link);
		break;
	default:
		break;
	}
	return rc;
}

static void strike_close(struct reef_layer *layer)
{
	struct reef_layer *next = layer->next;

	free(layer);
	next->ops.close(next);
}

static const struct reef_fabric_ops strike_ops = {
	.name = "strike",
	.close = strike_close,
	.post = strike_post,
};

int strike_opened(void *seat, struct reef_fabric *fabric)
{
	struct strike_layer *self = calloc(1, sizeof(*self));

	if (!self)
		return -ENOMEM;
	self->seat = seat;
	self->layer.ops = strike_ops;
	reef_fabric_push(fabric, &self->layer);
	return 0;
}
