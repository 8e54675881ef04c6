/* pull.c - an extent's bytes from another node.
 *
 * (1) Only READs, of pieces that a few of are under way at once, straight into
 *     the extent's memory.
 * (2) What cannot be read whole fails: a source that is too small, a key that
 *     was withdrawn, a link that is lost. Nothing is tried twice: the broker
 *     knows whether the source still is one.
 * (3) A batch belongs to the fabric until it is done, so an error waits for
 *     those under way. */
#include "pool/node/internal.h"

#include <string.h>

#define PIECE_SIZE (1u << 20)
#define WINDOW 4

struct piece {
	struct reef_batch batch;
	struct reef_op op;
	bool under_way;
};

struct reading {
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_remote *remote;
	struct reef_buffer *buffer;
	uint8_t *base;
	uint64_t size;
	uint32_t piece_size;
	struct piece pieces[WINDOW];
};

static int read_piece(struct reading *reading, struct piece *piece,
		      uint64_t offset)
{
	uint64_t left = reading->size - offset;
	int rc;

	piece->op = (struct reef_op){
		.kind = REEF_READ,
		.remote = reading->remote,
		.offset = offset,
		.local = reading->base + offset,
		.length = left < reading->piece_size ? (uint32_t)left
						     : reading->piece_size,
		.buffer = reading->buffer,
	};
	piece->batch = (struct reef_batch){
		.link = reading->link,
		.ops = &piece->op,
		.count = 1,
	};
	rc = reef_post(reading->queue, &piece->batch);
	if (rc == -EAGAIN)
		return reef_run(reading->queue, &piece->batch);
	if (rc == 1) {
		/* The READ was a copy by this thread: let others run. */
		reef_fiber_yield();
		return piece->batch.status;
	}
	piece->under_way = !rc;
	return rc;
}

static int read_all(const struct reef_node *node,
		    const struct node_extent *extent, struct reading *reading)
{
	uint64_t count =
		(reading->size + reading->piece_size - 1) / reading->piece_size;
	struct piece *piece;
	int rc = 0, status;

	for (uint64_t i = 0; i < count + WINDOW; i++) {
		piece = &reading->pieces[i % WINDOW];
		if (piece->under_way) {
			status = reef_wait(reading->queue, &piece->batch);
			piece->under_way = false;
			rc = rc ? rc : status;
		}
		if (!rc && (extent->doomed || node->ending))
			rc = -ECANCELED;
		if (!rc && i < count)
			rc = read_piece(reading, piece,
					i * reading->piece_size);
		if (rc && count > i) /* post no more, wait for the rest */
			count = i + 1;
	}
	return rc;
}

/* Read the whole extent through a link that is up. */
static int pull_through(struct reef_node *node, struct node_extent *extent,
			struct reef_link *link, uint64_t key)
{
	struct reef_fabric *fabric = reef_link_fabric(link);
	uint32_t length_max = reef_fabric_limits(fabric)->length_max;
	struct reading reading = {
		.queue = reef_port_queue_of(node->port, link),
		.link = link,
		.base = extent->memory->base,
		.size = extent->size,
		.piece_size = length_max < PIECE_SIZE ? length_max : PIECE_SIZE,
	};
	int rc;

	rc = reef_attach(reading.queue, link, key, &reading.remote);
	if (rc)
		return rc;
	if (reef_remote_size(reading.remote) < extent->size) {
		rc = -ERANGE;
		goto out_detach;
	}
	rc = reef_buffer_register(fabric, extent->memory->base,
				  extent->memory->size, &reading.buffer);
	if (rc)
		goto out_detach;
	rc = read_all(node, extent, &reading);
	reef_buffer_unregister(reading.buffer);
out_detach:
	reef_detach(reading.queue, reading.remote);
	return rc;
}

int node_pull(struct reef_node *node, struct node_extent *extent,
	      const struct node_source *source)
{
	char identity[REEF_IDENTITY_MAX + 1];
	struct reef_connect_options options = {
		.session = node_provisional(node),
		.identity = identity,
	};
	struct reef_link *link;
	uint32_t door;
	int rc;

	node_pull_identity(source->extent, source->epoch, identity);
	memcpy(options.key, source->proof.bytes, sizeof(options.key));
	rc = reef_port_connect(node->port, source->addresses, source->domain,
			       &options, &link, &door);
	explicit_bzero(options.key, sizeof(options.key));
	if (!rc) {
		rc = door < REEF_DOORS_MAX ? pull_through(node, extent, link,
							  source->keys[door])
					   : -EINVAL;
		reef_link_close(link);
	}
	if (rc)
		reef_log(REEF_LOG_WARNING, "node",
			 "extent %u could not be pulled: %s", extent->number,
			 reef_error_name(rc));
	return rc;
}
