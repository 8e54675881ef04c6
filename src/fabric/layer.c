/* layer.c - a fabric as a stack of layers: what a layer leaves out goes
 * straight down to the next, and what a provider leaves out does what
 * provider.h says. */
#include "fabric/provider.h"

#include "fabric/internal.h"

#include <stdlib.h>

static void pass_close(struct reef_layer *layer)
{
	layer->next->ops.close(layer->next);
}

static int pass_queue_open(struct reef_layer *layer, struct reef_queue **out)
{
	return layer->next->ops.queue_open(layer->next, out);
}

static void pass_queue_close(struct reef_layer *layer, struct reef_queue *queue)
{
	layer->next->ops.queue_close(layer->next, queue);
}

static int pass_post(struct reef_layer *layer, struct reef_queue *queue,
		     struct reef_batch *batch)
{
	return layer->next->ops.post(layer->next, queue, batch);
}

static int pass_poll(struct reef_layer *layer, struct reef_queue *queue)
{
	return layer->next->ops.poll(layer->next, queue);
}

static int pass_arm(struct reef_layer *layer, struct reef_queue *queue)
{
	return layer->next ? layer->next->ops.arm(layer->next, queue) : 0;
}

static int pass_listen(struct reef_layer *layer, struct reef_queue *queue,
		       const char *address,
		       const struct reef_listen_options *options,
		       struct reef_listener **out)
{
	return layer->next->ops.listen(layer->next, queue, address, options,
				       out);
}

static void pass_unlisten(struct reef_layer *layer,
			  struct reef_listener *listener)
{
	layer->next->ops.unlisten(layer->next, listener);
}

static int pass_connect(struct reef_layer *layer, struct reef_queue *queue,
			const char *address,
			const struct reef_connect_options *options,
			struct reef_link **out)
{
	return layer->next->ops.connect(layer->next, queue, address, options,
					out);
}

static void pass_disconnect(struct reef_layer *layer, struct reef_link *link)
{
	layer->next->ops.disconnect(layer->next, link);
}

static void pass_sever(struct reef_layer *layer, struct reef_link *link)
{
	if (layer->next)
		layer->next->ops.sever(layer->next, link);
}

static int pass_expose(struct reef_layer *layer, struct reef_memory *memory,
		       struct reef_region **out)
{
	return layer->next->ops.expose(layer->next, memory, out);
}

static int pass_withdraw(struct reef_layer *layer, struct reef_queue *queue,
			 struct reef_region *region)
{
	return layer->next->ops.withdraw(layer->next, queue, region);
}

static int pass_attach(struct reef_layer *layer, struct reef_queue *queue,
		       struct reef_link *link, uint64_t key,
		       struct reef_remote **out)
{
	return layer->next->ops.attach(layer->next, queue, link, key, out);
}

static void pass_detach(struct reef_layer *layer, struct reef_queue *queue,
			struct reef_remote *remote)
{
	layer->next->ops.detach(layer->next, queue, remote);
}

static int pass_buffer_register(struct reef_layer *layer, void *base,
				size_t size, struct reef_buffer **out)
{
	struct reef_buffer *buffer;

	if (layer->next)
		return layer->next->ops.buffer_register(layer->next, base, size,
							out);
	buffer = malloc(sizeof(*buffer));
	if (!buffer)
		return -ENOMEM;
	*buffer = (struct reef_buffer){
		.fabric = layer->fabric,
		.base = base,
		.size = size,
	};
	*out = buffer;
	return 0;
}

static void pass_buffer_unregister(struct reef_layer *layer,
				   struct reef_buffer *buffer)
{
	if (layer->next)
		layer->next->ops.buffer_unregister(layer->next, buffer);
	else
		free(buffer);
}

static int pass_fence(struct reef_layer *layer, struct reef_queue *queue,
		      uint32_t session)
{
	return layer->next->ops.fence(layer->next, queue, session);
}

static int pass_end_links(struct reef_layer *layer, struct reef_queue *queue,
			  uint32_t session, uint32_t number)
{
	return layer->next->ops.end_links(layer->next, queue, session, number);
}

/* True if the ops have all that a provider must have: no layer is below it to
 * do what it leaves out. */
static bool is_complete(const struct reef_fabric_ops *ops)
{
	return ops->close && ops->queue_open && ops->queue_close && ops->post &&
	       ops->poll && ops->listen && ops->unlisten && ops->connect &&
	       ops->disconnect && ops->expose && ops->withdraw && ops->attach &&
	       ops->detach && ops->fence && ops->end_links &&
	       !ops->buffer_register == !ops->buffer_unregister;
}

void reef_layer_fill(struct reef_layer *layer)
{
	reef_assert(layer->next || is_complete(&layer->ops));
#define FILL(member)                                                           \
	do {                                                                   \
		if (!layer->ops.member)                                        \
			layer->ops.member = pass_##member;                     \
	} while (0)
	FILL(close);
	FILL(queue_open);
	FILL(queue_close);
	FILL(post);
	FILL(poll);
	FILL(arm);
	FILL(listen);
	FILL(unlisten);
	FILL(connect);
	FILL(disconnect);
	FILL(sever);
	FILL(expose);
	FILL(withdraw);
	FILL(attach);
	FILL(detach);
	FILL(buffer_register);
	FILL(buffer_unregister);
	FILL(fence);
	FILL(end_links);
#undef FILL
}

void reef_fabric_push(struct reef_fabric *fabric, struct reef_layer *layer)
{
	/* Who uses memory in place passes every layer by. */
	fabric->capabilities &= ~(uint32_t)REEF_CAP_NEAR;
	layer->fabric = fabric;
	layer->next = fabric->top;
	reef_layer_fill(layer);
	fabric->top = layer;
}
