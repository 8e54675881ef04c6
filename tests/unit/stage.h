/* stage.h - a fabric that does nothing by itself: the test decides what
 * happens, and when. For the tests of what lies above providers.
 *
 * Thread: what has no lock, the queue's that polls. */
#ifndef REEF_TESTS_STAGE_H
#define REEF_TESTS_STAGE_H

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

struct stage {
	struct reef_fabric fabric;
	/* What the test decides. */
	bool late;		   /* batches end in a poll */
	struct reef_queue *worker; /* in whose; NULL: their own's */
	uint32_t again;		   /* posts refused with -EAGAIN */
	bool stay_opening;	   /* connects do not end */
	int refusal;		   /* connects end so, in a poll */
	bool stay_attaching;	   /* attaches do not end */
	uint32_t not_yet;	   /* withdraws and fences that say -EAGAIN */
	int arm_result;		   /* and so many times */
	uint32_t arms_left;
	int (*on_poll)(struct stage *stage, struct reef_queue *queue);
	void *user;
	/* What is there, and what was called. */
	pthread_mutex_t lock;
	struct reef_batch *pending, **pending_tail; /* locked */
	struct reef_link *opening;
	uint32_t links, remotes, queues;
	uint32_t disconnects, detaches, posts;
	_Atomic uint32_t arms; /* by whichever thread waits */
	uint64_t word;	       /* under every FAA */
};

static inline struct stage *stage_of(struct reef_layer *layer)
{
	return reef_container(layer->fabric, struct stage, fabric);
}

static inline void stage_close(struct reef_layer *layer)
{
	struct stage *self = stage_of(layer);

	pthread_mutex_destroy(&self->lock);
	free(self);
}

static inline int stage_queue_open(struct reef_layer *layer,
				   struct reef_queue **out)
{
	struct reef_queue *queue = calloc(1, sizeof(*queue));
	int rc;

	if (!queue)
		return -ENOMEM;
	rc = reef_queue_init(queue, layer->fabric, true);
	if (rc) {
		free(queue);
		return rc;
	}
	queue->fd = queue->wake_fd;
	stage_of(layer)->queues++;
	*out = queue;
	return 0;
}

static inline void stage_queue_close(struct reef_layer *layer,
				     struct reef_queue *queue)
{
	stage_of(layer)->queues--;
	reef_queue_fini(queue);
	free(queue);
}

static inline int stage_post(struct reef_layer *layer, struct reef_queue *queue,
			     struct reef_batch *batch)
{
	struct stage *self = stage_of(layer);
	int rc = reef_batch_check(queue, batch);

	if (rc)
		return rc;
	if (self->again) {
		self->again--;
		return -EAGAIN;
	}
	pthread_mutex_lock(&self->lock);
	self->posts++;
	for (uint32_t i = 0; i < batch->count; i++) {
		batch->ops[i].status = 0;
		if (batch->ops[i].kind != REEF_FAA)
			continue;
		batch->ops[i].result = self->word;
		self->word += batch->ops[i].operand;
	}
	rc = !self->late;
	batch->next = NULL;
	if (self->late) {
		*self->pending_tail = batch;
		self->pending_tail = &batch->next;
	}
	pthread_mutex_unlock(&self->lock);
	if (rc)
		batch->done = true;
	return rc;
}

/* Take a batch that this queue's poll ends. */
static inline struct reef_batch *stage_take(struct stage *self,
					    const struct reef_queue *queue)
{
	struct reef_batch *batch, **at;

	pthread_mutex_lock(&self->lock);
	for (at = &self->pending; (batch = *at); at = &batch->next)
		if ((self->worker ? self->worker : batch->queue) == queue)
			break;
	if (batch) {
		*at = batch->next;
		if (!*at)
			self->pending_tail = at;
	}
	pthread_mutex_unlock(&self->lock);
	return batch;
}

static inline int stage_poll(struct reef_layer *layer, struct reef_queue *queue)
{
	struct stage *self = stage_of(layer);
	struct reef_batch *batch;
	struct reef_link *link;
	int count = self->on_poll ? self->on_poll(self, queue) : 0;

	while ((batch = stage_take(self, queue))) {
		reef_batch_ended(queue, batch);
		count++;
	}
	if (self->refusal && self->opening && self->opening->queue == queue) {
		link = self->opening;
		self->opening = NULL;
		reef_link_ended(queue, link, self->refusal);
		count++;
	}
	return count;
}

static inline int stage_arm(struct reef_layer *layer, struct reef_queue *queue)
{
	struct stage *self = stage_of(layer);

	(void)queue;
	self->arms++;
	if (!self->arms_left)
		return 0;
	self->arms_left--;
	return self->arm_result;
}

static inline int stage_listen(struct reef_layer *layer,
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

static inline void stage_unlisten(struct reef_layer *layer,
				  struct reef_listener *listener)
{
	(void)layer;
	free(listener);
}

static inline struct reef_link *stage_link(struct stage *self,
					   struct reef_queue *queue,
					   struct reef_listener *listener,
					   uint32_t session)
{
	struct reef_link *link = calloc(1, sizeof(*link));

	assert_non_null(link);
	link->fabric = &self->fabric;
	link->queue = queue;
	link->listener = listener;
	link->session = session;
	self->links++;
	return link;
}

/* Somebody connects to a listener of this queue; from a poll. */
static inline struct reef_link *stage_accept(struct stage *self,
					     struct reef_listener *listener,
					     uint32_t session)
{
	struct reef_link *link =
		stage_link(self, listener->queue, listener, session);

	reef_link_opened(listener->queue, link);
	return link;
}

/* And is gone; from a poll. */
static inline void stage_lose(struct stage *self, struct reef_link *link,
			      int reason)
{
	reef_link_ended(link->queue, link, reason);
	self->links--;
	free(link);
}

static inline int stage_connect(struct reef_layer *layer,
				struct reef_queue *queue, const char *address,
				const struct reef_connect_options *options,
				struct reef_link **out)
{
	struct stage *self = stage_of(layer);
	struct reef_link *link =
		stage_link(self, queue, NULL, options->session);

	(void)address;
	if (self->stay_opening || self->refusal)
		self->opening = link;
	else
		reef_link_opened(queue, link);
	*out = link;
	return 0;
}

static inline void stage_disconnect(struct reef_layer *layer,
				    struct reef_link *link)
{
	struct stage *self = stage_of(layer);
	struct reef_batch *batch;

	if (self->opening == link)
		self->opening = NULL;
	pthread_mutex_lock(&self->lock);
	for (batch = self->pending; batch; batch = batch->next)
		if (batch->link == link)
			reef_batch_fail_all(batch, -REEF_EINDOUBT);
	pthread_mutex_unlock(&self->lock);
	self->links--;
	self->disconnects++;
	free(link);
}

static inline int stage_expose(struct reef_layer *layer,
			       struct reef_memory *memory,
			       struct reef_region **out)
{
	struct reef_region *region = calloc(1, sizeof(*region));

	assert_non_null(region);
	region->fabric = layer->fabric;
	region->memory = memory;
	region->key = 1;
	*out = region;
	return 0;
}

static inline int stage_withdraw(struct reef_layer *layer,
				 struct reef_queue *queue,
				 struct reef_region *region)
{
	struct stage *self = stage_of(layer);

	(void)queue;
	if (self->not_yet) {
		self->not_yet--;
		return -EAGAIN;
	}
	free(region);
	return 0;
}

static inline int stage_attach(struct reef_layer *layer,
			       struct reef_queue *queue, struct reef_link *link,
			       uint64_t key, struct reef_remote **out)
{
	struct stage *self = stage_of(layer);
	struct reef_remote *remote = calloc(1, sizeof(*remote));

	assert_non_null(remote);
	remote->link = link;
	remote->size = 4096;
	remote->key = key;
	self->remotes++;
	atomic_store(&remote->state, 1);
	if (!self->stay_attaching)
		reef_attach_ended(queue, remote, key ? 0 : -REEF_EKEY);
	*out = remote;
	return 0;
}

static inline void stage_detach(struct reef_layer *layer,
				struct reef_queue *queue,
				struct reef_remote *remote)
{
	struct stage *self = stage_of(layer);

	(void)queue;
	self->remotes--;
	self->detaches++;
	free(remote);
}

static inline int stage_fence(struct reef_layer *layer,
			      struct reef_queue *queue, uint32_t session)
{
	struct stage *self = stage_of(layer);

	(void)queue;
	(void)session;
	if (self->not_yet) {
		self->not_yet--;
		return -EAGAIN;
	}
	return 0;
}

static const struct reef_fabric_ops stage_ops = {
	.name = "stage",
	.close = stage_close,
	.queue_open = stage_queue_open,
	.queue_close = stage_queue_close,
	.post = stage_post,
	.poll = stage_poll,
	.arm = stage_arm,
	.listen = stage_listen,
	.unlisten = stage_unlisten,
	.connect = stage_connect,
	.disconnect = stage_disconnect,
	.expose = stage_expose,
	.withdraw = stage_withdraw,
	.attach = stage_attach,
	.detach = stage_detach,
	.fence = stage_fence,
};

static inline struct stage *stage_open(void)
{
	struct stage *self = calloc(1, sizeof(*self));

	assert_non_null(self);
	pthread_mutex_init(&self->lock, NULL);
	self->pending_tail = &self->pending;
	self->fabric.provider.ops = stage_ops;
	self->fabric.provider.fabric = &self->fabric;
	self->fabric.top = &self->fabric.provider;
	reef_layer_fill(&self->fabric.provider);
	self->fabric.options = (struct reef_fabric_options){
		.ops_max = 16,
		.length_max = 1u << 12,
		.message_max = 64,
		.depth_max = 8,
		.inbox_max = 4,
		.links_max = 8,
		.spin_ns = 1, /* so that every wait is a sleep, */
		/* and one that nobody wakes is seen as a hang. */
		.silence_ns = 4000000000000ull,
	};
	self->fabric.kind = "stage";
	self->fabric.fork_generation = reef_fork_generation();
	return self;
}

static inline struct reef_queue *stage_queue(struct stage *self)
{
	struct reef_queue *queue;

	assert_int_equal(reef_queue_open(&self->fabric, NULL, &queue), 0);
	return queue;
}

static inline int stage_join(struct reef_queue *queue, struct reef_link **out)
{
	struct reef_connect_options options = {
		.session = 0x10001,
		.identity = "test",
		.timeout_ns = 1000000,
	};

	return reef_connect(queue, "stage:", &options, out);
}

static inline int stage_credential(void *context, const char *identity,
				   uint32_t session, uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)identity;
	(void)session;
	memset(key, 0, REEF_KEY_SIZE);
	return 0;
}

static inline struct reef_listener *stage_listener(
	struct reef_queue *queue,
	void (*opened)(void *context, struct reef_link *link),
	void (*closed)(void *context, struct reef_link *link, int reason),
	void *context)
{
	struct reef_listen_options options = {
		.credential = stage_credential,
		.opened = opened,
		.closed = closed,
		.context = context,
	};
	struct reef_listener *listener;

	assert_int_equal(reef_listen(queue, "stage:", &options, &listener), 0);
	return listener;
}

/* --- a queue and a link, as most tests need --- */

static inline struct reef_op stage_message(void)
{
	return (struct reef_op){.kind = REEF_SEND};
}

struct scene {
	struct stage *stage;
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_op op;
	struct reef_batch batch;
};

static inline void scene_open(struct scene *scene)
{
	memset(scene, 0, sizeof(*scene));
	scene->stage = stage_open();
	scene->queue = stage_queue(scene->stage);
	assert_int_equal(stage_join(scene->queue, &scene->link), 0);
	scene->op = stage_message();
	scene->batch = (struct reef_batch){
		.link = scene->link, .ops = &scene->op, .count = 1};
	/* What the connecting told. */
	while (reef_poll(scene->queue))
		;
}

static inline void scene_close(struct scene *scene)
{
	reef_link_close(scene->link);
	reef_queue_close(scene->queue);
	assert_int_equal(scene->stage->links, 0);
	assert_int_equal(scene->stage->queues, 0);
	reef_fabric_close(&scene->stage->fabric);
}

#endif
