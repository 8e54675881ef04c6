/* loopback.h - a fabric within one process and one thread, for the tests of the
 * hooks: a link leads back to the fabric that opened it, operations take effect
 * in order when posted. With `late`, batches end in the next poll instead of at
 * once.
 *
 * Thread: owner. */
#ifndef REEF_TESTS_LOOPBACK_H
#define REEF_TESTS_LOOPBACK_H

#include "fabric/internal.h"
#include "fabric/provider.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct loopback {
	struct reef_fabric fabric;
	bool late;
	uint32_t again;	  /* so many posts are refused with -EAGAIN */
	uint32_t fail_at; /* op index + 1 that fails with -REEF_EKEY */
	uint32_t posts;	  /* accepted */
	struct reef_batch *pending, **pending_tail;
	struct reef_memory *memory; /* exposed last */
};

static inline struct loopback *loopback_of(struct reef_layer *layer)
{
	return reef_container(layer, struct loopback, fabric.provider);
}

static inline void loopback_close(struct reef_layer *layer)
{
	free(loopback_of(layer));
}

static inline int loopback_queue_open(struct reef_layer *layer,
				      struct reef_queue **out)
{
	struct reef_queue *queue = calloc(1, sizeof(*queue));

	assert_non_null(queue);
	assert_int_equal(reef_queue_init(queue, layer->fabric, true), 0);
	queue->fd = queue->wake_fd;
	*out = queue;
	return 0;
}

static inline void loopback_queue_close(struct reef_layer *layer,
					struct reef_queue *queue)
{
	(void)layer;
	reef_queue_fini(queue);
	free(queue);
}

static inline void loopback_op(struct loopback *self, struct reef_link *link,
			       struct reef_queue *queue, struct reef_op *op)
{
	uint8_t *at = op->kind == REEF_SEND
			      ? NULL
			      : (uint8_t *)self->memory->base + op->offset;

	op->status = 0;
	switch (op->kind) {
	case REEF_READ:
		memcpy(op->local, at, op->length);
		break;
	case REEF_WRITE:
		memcpy(at, op->local, op->length);
		break;
	case REEF_CAS:
		memcpy(&op->result, at, 8);
		if (op->result == op->compare)
			memcpy(at, &op->operand, 8);
		break;
	case REEF_FAA:
		memcpy(&op->result, at, 8);
		memcpy(at, &(uint64_t){op->result + op->operand}, 8);
		break;
	case REEF_SEND:
		op->status = reef_message_arrived(queue, link, op->local,
						  op->length);
		break;
	default:
		break;
	}
}

static inline int loopback_post(struct reef_layer *layer,
				struct reef_queue *queue,
				struct reef_batch *batch)
{
	struct loopback *self = loopback_of(layer);
	int rc = reef_batch_check(queue, batch);

	if (rc)
		return rc;
	if (self->again) {
		self->again--;
		return -EAGAIN;
	}
	self->posts++;
	batch->status = 0;
	for (uint32_t i = 0; i < batch->count; i++) {
		if (self->fail_at == i + 1) {
			reef_batch_fail(batch, i, -REEF_EKEY);
			break;
		}
		loopback_op(self, batch->link, queue, &batch->ops[i]);
	}
	if (!self->late) {
		batch->done = true;
		return 1;
	}
	batch->next = NULL;
	*self->pending_tail = batch;
	self->pending_tail = &batch->next;
	return 0;
}

static inline int loopback_poll(struct reef_layer *layer,
				struct reef_queue *queue)
{
	struct loopback *self = loopback_of(layer);
	struct reef_batch *batch;
	int count = 0;

	while ((batch = self->pending)) {
		self->pending = batch->next;
		reef_batch_ended(queue, batch);
		count++;
	}
	self->pending_tail = &self->pending;
	return count;
}

static inline int loopback_listen(struct reef_layer *layer,
				  struct reef_queue *queue, const char *address,
				  const struct reef_listen_options *options,
				  struct reef_listener **out)
{
	struct reef_listener *listener = calloc(1, sizeof(*listener));

	assert_non_null(listener);
	listener->fabric = layer->fabric;
	listener->queue = queue;
	listener->options = *options;
	snprintf(listener->address, sizeof(listener->address), "%s", address);
	*out = listener;
	return 0;
}

static inline void loopback_unlisten(struct reef_layer *layer,
				     struct reef_listener *listener)
{
	(void)layer;
	free(listener);
}

static inline int loopback_connect(struct reef_layer *layer,
				   struct reef_queue *queue,
				   const char *address,
				   const struct reef_connect_options *options,
				   struct reef_link **out)
{
	struct reef_link *link = calloc(1, sizeof(*link));

	(void)address;
	assert_non_null(link);
	link->fabric = layer->fabric;
	link->queue = queue;
	link->session = options->session;
	reef_link_opened(queue, link);
	*out = link;
	return 0;
}

static inline void loopback_disconnect(struct reef_layer *layer,
				       struct reef_link *link)
{
	struct loopback *self = loopback_of(layer);

	for (struct reef_batch *batch = self->pending; batch;
	     batch = batch->next)
		if (batch->link == link)
			reef_batch_fail_all(batch, -REEF_EINDOUBT);
	free(link);
}

static inline int loopback_expose(struct reef_layer *layer,
				  struct reef_memory *memory,
				  struct reef_region **out)
{
	struct reef_region *region = calloc(1, sizeof(*region));

	assert_non_null(region);
	region->fabric = layer->fabric;
	region->memory = memory;
	region->key = 1;
	loopback_of(layer)->memory = memory;
	*out = region;
	return 0;
}

static inline int loopback_withdraw(struct reef_layer *layer,
				    struct reef_queue *queue,
				    struct reef_region *region)
{
	(void)layer;
	(void)queue;
	free(region);
	return 0;
}

static inline int loopback_attach(struct reef_layer *layer,
				  struct reef_queue *queue,
				  struct reef_link *link, uint64_t key,
				  struct reef_remote **out)
{
	struct loopback *self = loopback_of(layer);
	struct reef_remote *remote = calloc(1, sizeof(*remote));

	assert_non_null(remote);
	remote->link = link;
	remote->size = self->memory->size;
	remote->key = key;
	reef_attach_ended(queue, remote, 0);
	*out = remote;
	return 0;
}

static inline void loopback_detach(struct reef_layer *layer,
				   struct reef_queue *queue,
				   struct reef_remote *remote)
{
	(void)layer;
	(void)queue;
	free(remote);
}

static inline int loopback_fence(struct reef_layer *layer,
				 struct reef_queue *queue, uint32_t session)
{
	(void)layer;
	(void)queue;
	(void)session;
	return 0;
}

static const struct reef_fabric_ops loopback_ops = {
	.name = "loopback",
	.close = loopback_close,
	.queue_open = loopback_queue_open,
	.queue_close = loopback_queue_close,
	.post = loopback_post,
	.poll = loopback_poll,
	.listen = loopback_listen,
	.unlisten = loopback_unlisten,
	.connect = loopback_connect,
	.disconnect = loopback_disconnect,
	.expose = loopback_expose,
	.withdraw = loopback_withdraw,
	.attach = loopback_attach,
	.detach = loopback_detach,
	.fence = loopback_fence,
};

static inline struct loopback *loopback_open(void)
{
	struct loopback *self = calloc(1, sizeof(*self));

	assert_non_null(self);
	self->pending_tail = &self->pending;
	self->fabric.provider.ops = loopback_ops;
	self->fabric.provider.fabric = &self->fabric;
	self->fabric.top = &self->fabric.provider;
	reef_layer_fill(&self->fabric.provider);
	self->fabric.options = (struct reef_fabric_options){
		.ops_max = 256,
		.length_max = 1u << 20,
		.message_max = 1u << 16,
		.depth_max = 128,
		.inbox_max = 64,
		.links_max = 64,
		.spin_ns = 1000,
		.silence_ns = 1000000000,
	};
	self->fabric.kind = "loopback";
	self->fabric.fork_generation = reef_fork_generation();
	return self;
}

/* A fabric with everything a test of a hook needs: push between open and
 * start. */
struct loopback_end {
	struct loopback *loopback;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_region *region;
	struct reef_remote *remote;
	struct reef_memory memory;
	const char *address; /* to connect to; NULL: "loopback:" */
	uint64_t words[512];
};

static inline void loopback_end_open(struct loopback_end *end)
{
	memset(end, 0, sizeof(*end));
	end->loopback = loopback_open();
	end->fabric = &end->loopback->fabric;
	end->memory.base = end->words;
	end->memory.size = sizeof(end->words);
	end->memory.fd = -1;
}

static inline int loopback_end_connect(struct loopback_end *end)
{
	struct reef_connect_options options = {.session = 0x10001,
					       .identity = "test"};

	return reef_connect(end->queue,
			    end->address ? end->address : "loopback:", &options,
			    &end->link);
}

static inline void loopback_end_start(struct loopback_end *end)
{
	assert_int_equal(reef_queue_open(end->fabric, NULL, &end->queue), 0);
	assert_int_equal(reef_expose(end->fabric, &end->memory, &end->region),
			 0);
	assert_int_equal(loopback_end_connect(end), 0);
	assert_int_equal(reef_attach(end->queue, end->link, 1, &end->remote),
			 0);
}

static inline void loopback_end_close(struct loopback_end *end)
{
	reef_detach(end->queue, end->remote);
	reef_link_close(end->link);
	assert_int_equal(reef_withdraw(end->queue, end->region, 0), 0);
	reef_queue_close(end->queue);
	reef_fabric_close(end->fabric);
}

static inline struct reef_op loopback_faa(struct loopback_end *end,
					  uint64_t offset, uint64_t operand)
{
	return (struct reef_op){
		.kind = REEF_FAA,
		.remote = end->remote,
		.offset = offset,
		.operand = operand,
	};
}

#endif
