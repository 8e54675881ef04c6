/* cost.c - see cost.h. What stands on the way of a batch there are steps here;
 * each runs when the batch has got that far (nic.h, (2)):
 *
 *   post -> out -> [left] -> in -> effect -> answer -> back -> done
 *            ^                                                   |
 *            +----------------- the next segment ----------------+
 */
#include "fabric/hook/cost.h"

#include "fabric/hook/count.h"
#include "fabric/hook/hold.h"
#include "fabric/hook/model.h"

#include <stdlib.h>

struct cost_layer {
	struct reef_hold hold;
	struct reef_cost_model *model;
	struct reef_nic *nic;
};

struct cost_held {
	struct reef_held held;
	struct cost_link *link;
	uint64_t connection;
	struct reef_nic *nic, *target;
	uint32_t first, count; /* the segment */
};

/* --- the way of a batch --- */

static uint64_t now_ps(const struct cost_held *self)
{
	return reef_hold_now_ns(self->held.queue) * 1000;
}

static const struct reef_op *segment_of(const struct cost_held *self)
{
	return self->held.outer->ops + self->first;
}

static uint64_t half_trip_ps(const struct cost_held *self)
{
	return self->nic->options->round_trip_ns * 500;
}

/* Run the batch's next step at that time; at once, if it has come already. */
static void run_step_at(struct cost_held *self, uint64_t at_ps,
			void (*step)(struct reef_held *held))
{
	if (at_ps <= now_ps(self))
		step(&self->held);
	else
		reef_held_at(&self->held, (at_ps + 999) / 1000, step);
}

static void step_out(struct reef_held *held);

static void step_done(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;
	uint32_t next = self->first + self->count;
	int status = held->inner.status;

	if (!status && next < held->outer->count) {
		self->first = next;
		step_out(held);
		return;
	}
	held->outer->status = status;
	for (uint32_t i = next; i < held->outer->count; i++)
		held->outer->ops[i].status = -REEF_ENOTDONE;
	reef_held_end(held);
}

static void step_back(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;

	run_step_at(self,
		    reef_nic_answered(self->nic, segment_of(self), self->count,
				      now_ps(self)),
		    step_done);
}

static void step_answer(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;
	uint64_t left_ps = now_ps(self);

	if (held->inner.status == -REEF_EINDOUBT ||
	    held->inner.status == -REEF_EHOSTDEAD) {
		/* No answer comes back over a lost connection. */
		reef_batch_fail_all(held->outer, held->inner.status);
		reef_held_end(held);
		return;
	}
	if (self->target)
		left_ps = reef_nic_answer(self->target, segment_of(self),
					  self->count, left_ps);
	run_step_at(self, left_ps + half_trip_ps(self), step_back);
}

static void step_effect(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;

	reef_held_post(held, self->first, self->count, step_answer);
}

static void step_in(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;
	uint64_t effect_ps = now_ps(self);

	if (self->target)
		effect_ps = reef_nic_receive(self->target, self->connection,
					     segment_of(self), self->count,
					     effect_ps);
	run_step_at(self, effect_ps, step_effect);
}

static void step_out(struct reef_held *held)
{
	struct cost_held *self = (struct cost_held *)held;
	uint64_t left_ps;

	self->count = reef_segment_count(segment_of(self),
					 held->outer->count - self->first);
	left_ps = reef_nic_send(self->nic, self->connection, segment_of(self),
				self->count, now_ps(self));
	run_step_at(self, left_ps + half_trip_ps(self), step_in);
}

/* Ring the doorbell for a batch. Returns when it is its turn. */
static uint64_t ring_doorbell(const struct reef_cost_options *options,
			      struct cost_queue *queue, uint64_t at_ps)
{
	uint64_t cost_ps = options->doorbell_ps, waiting;
	uint64_t begin_ps = at_ps > queue->free_ps ? at_ps : queue->free_ps;

	if (queue->threads > 1) {
		/* The queue's lock and doorbell come from another core's cache,
		 * and every waiter for the lock pulls at the same line. */
		cost_ps += options->lock_ps;
		waiting = (begin_ps - at_ps) / cost_ps;
		if (waiting > queue->threads - 1)
			waiting = queue->threads - 1;
		cost_ps += waiting * options->waiter_ps;
	}
	queue->free_ps = begin_ps + cost_ps;
	return begin_ps;
}

static int cost_post(struct reef_layer *layer, struct reef_queue *queue,
		     struct reef_batch *batch)
{
	struct cost_layer *self = (struct cost_layer *)layer;
	struct cost_queue *state;
	struct cost_link *link;
	struct cost_held *held;
	int rc = reef_batch_check(queue, batch);

	if (rc)
		return rc;
	reef_assert(queue->sched);
	link = cost_model_link(self->model, batch->link, self->nic);
	state = cost_model_queue(self->model, queue);
	if (!link || !state || link->depth >= layer->fabric->options.depth_max)
		return -EAGAIN;
	held = (struct cost_held *)reef_held_take(&self->hold, queue, batch);
	if (!held)
		return -EAGAIN;
	link->depth++;
	held->link = link;
	held->nic = self->nic;
	held->target = link->target;
	held->connection = link->connection;
	run_step_at(held,
		    ring_doorbell(self->nic->options, state, now_ps(held)),
		    step_out);
	return 0;
}

static void cost_ending(struct reef_held *held)
{
	/* A lost link has no state any more. */
	if (!atomic_load(&held->lost))
		((struct cost_held *)held)->link->depth--;
}

/* --- the rest of the layer --- */

static int cost_listen(struct reef_layer *layer, struct reef_queue *queue,
		       const char *address,
		       const struct reef_listen_options *options,
		       struct reef_listener **out)
{
	struct cost_layer *self = (struct cost_layer *)layer;
	struct reef_listener *listener;
	int rc;

	rc = reef_hold_listen(layer, queue, address, options, &listener);
	if (rc)
		return rc;
	rc = cost_model_listen(self->model, listener, self->nic);
	if (rc) {
		reef_hold_unlisten(layer, listener);
		return rc;
	}
	*out = listener;
	return 0;
}

static void cost_unlisten(struct reef_layer *layer,
			  struct reef_listener *listener)
{
	cost_model_unlisten(((struct cost_layer *)layer)->model, listener);
	reef_hold_unlisten(layer, listener);
}

static int cost_connect(struct reef_layer *layer, struct reef_queue *queue,
			const char *address,
			const struct reef_connect_options *options,
			struct reef_link **out)
{
	struct cost_layer *self = (struct cost_layer *)layer;
	struct reef_link *link;
	int rc;

	rc = layer->next->ops.connect(layer->next, queue, address, options,
				      &link);
	if (rc)
		return rc;
	rc = cost_model_connect(self->model, link, self->nic, address);
	if (rc) {
		layer->next->ops.disconnect(layer->next, link);
		return rc;
	}
	*out = link;
	return 0;
}

static void cost_forget(struct reef_hold *hold, const struct reef_link *link)
{
	cost_model_forget_link(((struct cost_layer *)hold)->model, link);
}

static void cost_queue_close(struct reef_layer *layer, struct reef_queue *queue)
{
	cost_model_forget_queue(((struct cost_layer *)layer)->model, queue);
	reef_hold_queue_close(layer, queue);
}

static void cost_close(struct reef_layer *layer)
{
	struct cost_layer *self = (struct cost_layer *)layer;
	struct reef_layer *next = layer->next;

	cost_model_close(self->model, layer->fabric);
	reef_hold_fini(&self->hold);
	free(self);
	next->ops.close(next);
}

static const struct reef_fabric_ops cost_ops = {
	.name = "cost",
	.close = cost_close,
	.queue_close = cost_queue_close,
	.post = cost_post,
	.poll = reef_hold_poll,
	.arm = reef_hold_arm,
	.listen = cost_listen,
	.unlisten = cost_unlisten,
	.connect = cost_connect,
	.disconnect = reef_hold_disconnect,
};

int reef_cost_push(struct reef_fabric *fabric, struct reef_cost_model *model,
		   const char *name)
{
	struct cost_layer *self = calloc(1, sizeof(*self));

	if (!self)
		return -ENOMEM;
	self->model = model;
	self->nic = cost_model_nic(model, name);
	if (!self->nic) {
		free(self);
		return -ENOMEM;
	}
	reef_hold_init(&self->hold, sizeof(struct cost_held), 0);
	self->hold.forget = cost_forget;
	self->hold.ending = cost_ending;
	self->hold.layer.ops = cost_ops;
	reef_fabric_push(fabric, &self->hold.layer);
	return 0;
}
