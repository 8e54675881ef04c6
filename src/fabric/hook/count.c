/* count.c - see count.h. */
#include "fabric/hook/count.h"

#include "fabric/provider.h"

#include <stdlib.h>

struct count_layer {
	struct reef_layer layer;
	struct reef_count *count;
};

/* True if an ORDERED operation after this one must wait for its result. */
static bool is_waited_for(const struct reef_op *op)
{
	return op->kind == REEF_READ || op->kind == REEF_CAS ||
	       op->kind == REEF_FAA;
}

/* True if the operation, were it not ORDERED, could overtake those before it.
 * READ and FLUSH never do (F3b). */
static bool may_overtake(const struct reef_op *op)
{
	return op->kind != REEF_READ && op->kind != REEF_FLUSH;
}

uint32_t reef_segment_count(const struct reef_op *ops, uint32_t count)
{
	bool outstanding = is_waited_for(&ops[0]);
	uint32_t i;

	for (i = 1; i < count; i++) {
		if (outstanding && (ops[i].flags & REEF_ORDERED) &&
		    may_overtake(&ops[i]))
			break;
		outstanding |= is_waited_for(&ops[i]);
	}
	return i;
}

uint32_t reef_round_trips(const struct reef_op *ops, uint32_t count)
{
	uint32_t first = 0, segments = 0;

	for (; first < count; segments++)
		first += reef_segment_count(ops + first, count - first);
	return segments;
}

static void count_op(const struct reef_op *op, struct reef_counts *sum)
{
	switch (op->kind) {
	case REEF_READ:
		sum->reads++;
		sum->bytes_in += op->length;
		break;
	case REEF_WRITE:
		sum->writes++;
		sum->bytes_out += op->length;
		break;
	case REEF_CAS:
		sum->cas++;
		sum->bytes_in += 8;
		sum->bytes_out += 16;
		break;
	case REEF_FAA:
		sum->faa++;
		sum->bytes_in += 8;
		sum->bytes_out += 8;
		break;
	case REEF_FLUSH:
		sum->flushes++;
		break;
	case REEF_SEND:
		sum->sends++;
		sum->bytes_out += op->length;
		break;
	default:
		break; /* the lowest layer refuses it */
	}
	if (op->kind != REEF_SEND)
		sum->memory_operations++;
}

/* The order is relaxed: counters order nothing. */
static void add_to(_Atomic uint64_t *counter, uint64_t value)
{
	if (value)
		atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static void add_counts(struct reef_count *count, const struct reef_counts *sum)
{
#define X(name) add_to(&count->name, sum->name);
	REEF_COUNT_FIELDS(X)
#undef X
}

static int count_post(struct reef_layer *layer, struct reef_queue *queue,
		      struct reef_batch *batch)
{
	struct reef_count *count = ((struct count_layer *)layer)->count;
	struct reef_counts sum = {.batches = 1};
	int rc;

	/* The ops are the caller's again if post completes at once or refuses,
	 * and may be gone after a poll; so first sum, then post. A malformed
	 * batch may have no ops. */
	if (batch->ops && batch->count) {
		for (uint32_t i = 0; i < batch->count; i++)
			count_op(&batch->ops[i], &sum);
		sum.round_trips = reef_round_trips(batch->ops, batch->count);
	}
	rc = layer->next->ops.post(layer->next, queue, batch);
	if (rc < 0)
		add_to(&count->refused, 1);
	else
		add_counts(count, &sum);
	return rc;
}

static int count_connect(struct reef_layer *layer, struct reef_queue *queue,
			 const char *address,
			 const struct reef_connect_options *options,
			 struct reef_link **out)
{
	struct reef_count *count = ((struct count_layer *)layer)->count;
	int rc = layer->next->ops.connect(layer->next, queue, address, options,
					  out);

	if (!rc)
		add_to(&count->control_round_trips, 1);
	return rc;
}

static int count_attach(struct reef_layer *layer, struct reef_queue *queue,
			struct reef_link *link, uint64_t key,
			struct reef_remote **out)
{
	struct reef_count *count = ((struct count_layer *)layer)->count;
	int rc = layer->next->ops.attach(layer->next, queue, link, key, out);

	if (!rc)
		add_to(&count->control_round_trips, 1);
	return rc;
}

static void count_close(struct reef_layer *layer)
{
	struct reef_layer *next = layer->next;

	free(layer);
	next->ops.close(next);
}

struct reef_counts reef_count_read(const struct reef_count *count)
{
	struct reef_counts counts;

#define X(name)                                                                \
	counts.name = atomic_load_explicit(&count->name, memory_order_relaxed);
	REEF_COUNT_FIELDS(X)
#undef X
	return counts;
}

struct reef_counts reef_counts_between(const struct reef_counts *before,
				       const struct reef_counts *after)
{
	struct reef_counts counts;

#define X(name) counts.name = after->name - before->name;
	REEF_COUNT_FIELDS(X)
#undef X
	return counts;
}

static const struct reef_fabric_ops count_ops = {
	.name = "count",
	.close = count_close,
	.post = count_post,
	.connect = count_connect,
	.attach = count_attach,
};

int reef_count_push(struct reef_fabric *fabric, struct reef_count *count)
{
	struct count_layer *self = calloc(1, sizeof(*self));

	if (!self)
		return -ENOMEM;
	self->layer.ops = count_ops;
	self->count = count;
	reef_fabric_push(fabric, &self->layer);
	return 0;
}
