/* trace.c - see trace.h.
 *
 * A slot of the ring belongs to whoever holds its sequence number odd:
 *
 *   2t+2: record t is whole  --claim-->  2t+3: being written  --publish--> ...
 *
 * claim_slot takes a slot from an older record (or record t back, to add its
 * end); it does not wait: who comes too late leaves the record out. All words
 * are atomics, so that a reader may look at any time; a copy counts if the
 * sequence number was even and the same before and after.
 */
#include "fabric/hook/trace.h"

#include "fabric/provider.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS_MAX 4096
#define BATCHES_MAX 1024
#define LIMIT (1u << 24)
#define UNDER_WAY UINT64_MAX
#define FLIGHT_TRIES 8

enum control_kind {
	CONTROL_CONNECT = REEF_OP_KINDS,
	CONTROL_DISCONNECT,
	CONTROL_ATTACH,
	CONTROL_DETACH,
	CONTROL_LISTEN,
	CONTROL_EXPOSE,
	CONTROL_WITHDRAW,
	CONTROL_FENCE,
	CONTROL_END_LINKS,
	KINDS
};

static const char *const kind_names[KINDS] = {
	[REEF_READ] = "READ",
	[REEF_WRITE] = "WRITE",
	[REEF_CAS] = "CAS",
	[REEF_FAA] = "FAA",
	[REEF_FLUSH] = "FLUSH",
	[REEF_SEND] = "SEND",
	[CONTROL_CONNECT] = "connect",
	[CONTROL_DISCONNECT] = "disconnect",
	[CONTROL_ATTACH] = "attach",
	[CONTROL_DETACH] = "detach",
	[CONTROL_LISTEN] = "listen",
	[CONTROL_EXPOSE] = "expose",
	[CONTROL_WITHDRAW] = "withdraw",
	[CONTROL_FENCE] = "fence",
	[CONTROL_END_LINKS] = "end_links",
};

/* A record has words only, so that it can be copied as such. */
struct record {
	uint64_t start_ns;
	uint64_t took_ns; /* UNDER_WAY */
	uint64_t shape;	  /* kind 8, flags 8, index in its batch 16, length */
	uint64_t who;	  /* session, status */
	uint64_t key, offset, operand, compare, result;
};
#define WORDS (sizeof(struct record) / sizeof(uint64_t))

struct slot {
	_Atomic uint64_t sequence;
	_Atomic uint64_t words[WORDS];
};

/* A batch under way, with what its end needs. */
struct flight {
	_Atomic bool used;
	void (*on_done)(struct reef_batch *batch); /* the caller's */
	void *user;				   /* the caller's */
	struct reef_trace *trace;
	uint64_t start_ns, ticket;
};

struct reef_trace {
	struct reef_layer layer;
	struct reef_trace_options options;
	_Atomic uint64_t head;	 /* the next ticket */
	_Atomic uint32_t flight; /* where to look for a free one */
	struct slot *slots;
	struct flight *flights;
};

/* --- the ring --- */

static struct slot *slot_of(const struct reef_trace *trace, uint64_t ticket)
{
	return &trace->slots[ticket & (trace->options.records_max - 1)];
}

/* Claim the slot of a record. Returns whether it was free. from_own: the record
 * is there already, only its end is added. */
static bool claim_slot(struct slot *slot, uint64_t ticket, bool from_own)
{
	uint64_t seen =
		atomic_load_explicit(&slot->sequence, memory_order_relaxed);

	if (from_own ? seen != 2 * ticket + 2
		     : (seen & 1) || seen > 2 * ticket + 1)
		return false;
	/* Acquire; the partner is the last writer's publish_slot. */
	return atomic_compare_exchange_strong_explicit(
		&slot->sequence, &seen, 2 * ticket + 3, memory_order_acquire,
		memory_order_relaxed);
}

static void publish_slot(struct slot *slot, uint64_t ticket,
			 const struct record *record)
{
	uint64_t words[WORDS];

	memcpy(words, record, sizeof(words));
	/* Release: a reader that sees a new word also sees the odd sequence
	 * number, which was stored before it. */
	for (size_t i = 0; i < WORDS; i++)
		atomic_store_explicit(&slot->words[i], words[i],
				      memory_order_release);
	atomic_store_explicit(&slot->sequence, 2 * ticket + 2,
			      memory_order_release);
}

static bool copy_record(struct slot *slot, uint64_t ticket, struct record *out)
{
	uint64_t words[WORDS];

	/* Acquire, each; the partners are the stores in publish_slot. */
	if (atomic_load_explicit(&slot->sequence, memory_order_acquire) !=
	    2 * ticket + 2)
		return false;
	for (size_t i = 0; i < WORDS; i++)
		words[i] = atomic_load_explicit(&slot->words[i],
						memory_order_acquire);
	memcpy(out, words, sizeof(words));
	return atomic_load_explicit(&slot->sequence, memory_order_relaxed) ==
	       2 * ticket + 2;
}

static void write_record(struct reef_trace *trace, uint64_t ticket,
			 const struct record *record)
{
	struct slot *slot = slot_of(trace, ticket);

	if (claim_slot(slot, ticket, false))
		publish_slot(slot, ticket, record);
}

/* --- lines --- */

static int status_of(const struct record *record)
{
	return (int)(int32_t)(uint32_t)record->who;
}

static size_t format_what(const struct record *record, char *text, size_t size)
{
	uint32_t kind = record->shape & 0xff;
	uint32_t length = (uint32_t)(record->shape >> 32);
	int n;

	switch (kind) {
	case REEF_READ:
	case REEF_WRITE:
	case REEF_FLUSH:
		n = snprintf(text, size,
			     " key %" PRIx64 " +0x%" PRIx64 " %u bytes",
			     record->key, record->offset, length);
		break;
	case REEF_CAS:
		n = snprintf(text, size,
			     " key %" PRIx64 " +0x%" PRIx64 " %" PRIx64
			     " -> %" PRIx64 " was %" PRIx64,
			     record->key, record->offset, record->compare,
			     record->operand, record->result);
		break;
	case REEF_FAA:
		n = snprintf(text, size,
			     " key %" PRIx64 " +0x%" PRIx64 " + %" PRIx64
			     " was %" PRIx64,
			     record->key, record->offset, record->operand,
			     record->result);
		break;
	case REEF_SEND:
		n = snprintf(text, size, " %u bytes", length);
		break;
	default:
		if (!record->key)
			return 0;
		n = snprintf(text, size, " key %" PRIx64, record->key);
		break;
	}
	return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

static void format_line(uint64_t ticket, const struct record *record,
			char line[REEF_TRACE_LINE_MAX])
{
	const size_t size = REEF_TRACE_LINE_MAX;
	uint32_t kind = record->shape & 0xff, flags = record->shape >> 8 & 0xff;
	uint32_t index = record->shape >> 16 & 0xffff;
	bool under_way = record->took_ns == UNDER_WAY;
	double took_us = under_way ? 0 : (double)record->took_ns / 1e3;
	size_t length;
	int n;

	n = snprintf(line, size, "#%" PRIu64 ".%u %11.3f us  +%.3f us  s%08x  ",
		     ticket - index, index, (double)record->start_ns / 1e3,
		     took_us, (uint32_t)(record->who >> 32));
	length = (size_t)n;
	n = snprintf(line + length, size - length, "%s%s",
		     kind < KINDS && kind_names[kind] ? kind_names[kind] : "?",
		     flags & REEF_ORDERED ? " ordered" : "");
	length += (size_t)n;
	length += format_what(record, line + length, size - length);
	snprintf(line + length, size - length, "  %s",
		 under_way		 ? "under way"
		 : status_of(record) < 0 ? reef_error_name(status_of(record))
					 : "0");
}

static void emit_line(struct reef_trace *trace, uint64_t ticket,
		      const struct record *record)
{
	char line[REEF_TRACE_LINE_MAX];

	format_line(ticket, record, line);
	trace->options.sink(trace->options.context, line);
}

/* --- operations --- */

static struct record record_of(const struct reef_op *op, uint32_t index,
			       uint32_t session)
{
	return (struct record){
		.shape = op->kind | (uint64_t)op->flags << 8 |
			 (uint64_t)(index & 0xffff) << 16 |
			 (uint64_t)op->length << 32,
		.who = (uint64_t)session << 32,
		.key = op->kind != REEF_SEND && op->remote ? op->remote->key
							   : 0,
		.offset = op->offset,
		.operand = op->operand,
		.compare = op->compare,
	};
}

/* Write a batch's records. This comes before the post: afterwards another
 * thread may have closed the link, and its remotes with it. */
static uint64_t begin_batch(struct reef_trace *trace,
			    const struct reef_batch *batch, uint64_t start_ns)
{
	uint32_t count = batch->ops ? batch->count : 0;
	uint32_t session = batch->link ? batch->link->session : 0;
	uint64_t ticket = atomic_fetch_add_explicit(&trace->head, count,
						    memory_order_relaxed);

	for (uint32_t i = 0; i < count; i++) {
		struct record record = record_of(&batch->ops[i], i, session);

		record.start_ns = start_ns;
		record.took_ns = UNDER_WAY;
		write_record(trace, ticket + i, &record);
	}
	return ticket;
}

/* Add to a batch's records how it ended. refused: post's code, or 0. */
static void end_batch(struct reef_trace *trace, const struct reef_batch *batch,
		      uint64_t ticket, uint64_t took_ns, int refused)
{
	uint32_t count = batch->ops ? batch->count : 0;
	struct record record;

	for (uint32_t i = 0; i < count; i++) {
		const struct reef_op *op = &batch->ops[i];
		struct slot *slot = slot_of(trace, ticket + i);
		int status = refused ? refused : op->status;

		if (!copy_record(slot, ticket + i, &record) ||
		    !claim_slot(slot, ticket + i, true))
			continue; /* overtaken */
		record.took_ns = took_ns;
		record.who |= (uint32_t)status;
		record.result = refused ? 0 : op->result;
		publish_slot(slot, ticket + i, &record);
		if (trace->options.sink)
			emit_line(trace, ticket + i, &record);
	}
}

static void trace_done(struct reef_batch *batch)
{
	struct flight *flight = batch->user;
	struct reef_trace *trace = flight->trace;

	batch->on_done = flight->on_done;
	batch->user = flight->user;
	end_batch(trace, batch, flight->ticket,
		  reef_now_ns() - flight->start_ns, 0);
	/* Release: what it held has been read; the next owner's exchange is the
	 * partner. */
	atomic_store_explicit(&flight->used, false, memory_order_release);
	if (batch->on_done)
		batch->on_done(batch);
}

static struct flight *take_flight(struct reef_trace *trace)
{
	uint32_t at = atomic_fetch_add_explicit(&trace->flight, 1,
						memory_order_relaxed);

	/* If none is found after a few tries, nearly all are in use, and the
	 * end of this batch will not be recorded. */
	for (uint32_t i = 0; i < FLIGHT_TRIES; i++) {
		struct flight *flight =
			&trace->flights[(at + i) % trace->options.batches_max];

		if (!atomic_exchange_explicit(&flight->used, true,
					      memory_order_acquire))
			return flight;
	}
	return NULL;
}

static int trace_post(struct reef_layer *layer, struct reef_queue *queue,
		      struct reef_batch *batch)
{
	struct reef_trace *trace = (struct reef_trace *)layer;
	uint64_t start_ns = reef_now_ns();
	uint64_t ticket = begin_batch(trace, batch, start_ns);
	struct flight *flight = take_flight(trace);
	int rc;

	if (flight) {
		flight->on_done = batch->on_done;
		flight->user = batch->user;
		flight->trace = trace;
		flight->start_ns = start_ns;
		flight->ticket = ticket;
		batch->on_done = trace_done;
		batch->user = flight;
	}
	rc = layer->next->ops.post(layer->next, queue, batch);
	if (!rc)
		return 0;
	if (flight) {
		batch->on_done = flight->on_done;
		batch->user = flight->user;
		atomic_store_explicit(&flight->used, false,
				      memory_order_release);
	}
	end_batch(trace, batch, ticket, reef_now_ns() - start_ns,
		  rc < 0 ? rc : 0);
	return rc;
}

/* --- control --- */

/* Record what a control call returned; connect and attach go on after that. */
static void record_call(struct reef_layer *layer, enum control_kind kind,
			uint32_t session, uint64_t key, uint64_t start_ns,
			int status)
{
	struct reef_trace *trace = (struct reef_trace *)layer;
	uint64_t ticket = atomic_fetch_add_explicit(&trace->head, 1,
						    memory_order_relaxed);
	struct record record = {
		.start_ns = start_ns,
		.took_ns = reef_now_ns() - start_ns,
		.shape = kind,
		.who = (uint64_t)session << 32 | (uint32_t)status,
		.key = key,
	};

	write_record(trace, ticket, &record);
	if (trace->options.sink)
		emit_line(trace, ticket, &record);
}

static int trace_connect(struct reef_layer *layer, struct reef_queue *queue,
			 const char *address,
			 const struct reef_connect_options *options,
			 struct reef_link **out)
{
	uint64_t start_ns = reef_now_ns();
	int rc = layer->next->ops.connect(layer->next, queue, address, options,
					  out);

	record_call(layer, CONTROL_CONNECT, options->session, 0, start_ns, rc);
	return rc;
}

static void trace_disconnect(struct reef_layer *layer, struct reef_link *link)
{
	uint64_t start_ns = reef_now_ns();
	uint32_t session = link->session;

	layer->next->ops.disconnect(layer->next, link);
	record_call(layer, CONTROL_DISCONNECT, session, 0, start_ns, 0);
}

static int trace_attach(struct reef_layer *layer, struct reef_queue *queue,
			struct reef_link *link, uint64_t key,
			struct reef_remote **out)
{
	uint64_t start_ns = reef_now_ns();
	int rc = layer->next->ops.attach(layer->next, queue, link, key, out);

	record_call(layer, CONTROL_ATTACH, link->session, key, start_ns, rc);
	return rc;
}

static void trace_detach(struct reef_layer *layer, struct reef_queue *queue,
			 struct reef_remote *remote)
{
	uint64_t start_ns = reef_now_ns(), key = remote->key;

	layer->next->ops.detach(layer->next, queue, remote);
	record_call(layer, CONTROL_DETACH, 0, key, start_ns, 0);
}

static int trace_listen(struct reef_layer *layer, struct reef_queue *queue,
			const char *address,
			const struct reef_listen_options *options,
			struct reef_listener **out)
{
	uint64_t start_ns = reef_now_ns();
	int rc = layer->next->ops.listen(layer->next, queue, address, options,
					 out);

	record_call(layer, CONTROL_LISTEN, 0, 0, start_ns, rc);
	return rc;
}

static int trace_expose(struct reef_layer *layer, struct reef_memory *memory,
			struct reef_region **out)
{
	uint64_t start_ns = reef_now_ns();
	int rc = layer->next->ops.expose(layer->next, memory, out);

	record_call(layer, CONTROL_EXPOSE, 0, rc ? 0 : (*out)->key, start_ns,
		    rc);
	return rc;
}

static int trace_withdraw(struct reef_layer *layer, struct reef_queue *queue,
			  struct reef_region *region)
{
	uint64_t start_ns = reef_now_ns(), key = region->key;
	int rc = layer->next->ops.withdraw(layer->next, queue, region);

	record_call(layer, CONTROL_WITHDRAW, 0, key, start_ns, rc);
	return rc;
}

static int trace_fence(struct reef_layer *layer, struct reef_queue *queue,
		       uint32_t session)
{
	uint64_t start_ns = reef_now_ns();
	int rc = layer->next->ops.fence(layer->next, queue, session);

	record_call(layer, CONTROL_FENCE, session, 0, start_ns, rc);
	return rc;
}

static int trace_end_links(struct reef_layer *layer, struct reef_queue *queue,
			   uint32_t session, uint32_t number)
{
	uint64_t start_ns = reef_now_ns();
	int rc =
		layer->next->ops.end_links(layer->next, queue, session, number);

	record_call(layer, CONTROL_END_LINKS, session, number, start_ns, rc);
	return rc;
}

static void trace_close(struct reef_layer *layer)
{
	struct reef_trace *trace = (struct reef_trace *)layer;
	struct reef_layer *next = layer->next;

	free(trace->slots);
	free(trace->flights);
	free(trace);
	next->ops.close(next);
}

/* --- reading it --- */

uint64_t reef_trace_count(const struct reef_trace *trace)
{
	return atomic_load_explicit(&trace->head, memory_order_relaxed);
}

uint32_t reef_trace_dump(const struct reef_trace *trace, uint32_t count,
			 void (*emit)(void *context, const char *line),
			 void *context)
{
	uint64_t head = reef_trace_count(trace), ticket;
	char line[REEF_TRACE_LINE_MAX];
	struct record record;
	uint32_t emitted = 0;

	if (!count || count > trace->options.records_max)
		count = trace->options.records_max;
	for (ticket = head > count ? head - count : 0; ticket < head;
	     ticket++) {
		if (!copy_record(slot_of(trace, ticket), ticket, &record))
			continue;
		format_line(ticket, &record, line);
		emit(context, line);
		emitted++;
	}
	return emitted;
}

static const struct reef_fabric_ops trace_ops = {
	.name = "trace",
	.close = trace_close,
	.post = trace_post,
	.listen = trace_listen,
	.connect = trace_connect,
	.disconnect = trace_disconnect,
	.expose = trace_expose,
	.withdraw = trace_withdraw,
	.attach = trace_attach,
	.detach = trace_detach,
	.fence = trace_fence,
	.end_links = trace_end_links,
};

static uint32_t power_of_two(uint32_t value)
{
	uint32_t power = 1;

	while (power < value)
		power *= 2;
	return power;
}

int reef_trace_push(struct reef_fabric *fabric,
		    const struct reef_trace_options *options,
		    struct reef_trace **out)
{
	struct reef_trace *trace;

	if (options &&
	    (options->records_max > LIMIT || options->batches_max > LIMIT))
		return -EINVAL;
	trace = calloc(1, sizeof(*trace));
	if (!trace)
		return -ENOMEM;
	if (options)
		trace->options = *options;
	if (!trace->options.records_max)
		trace->options.records_max = RECORDS_MAX;
	if (!trace->options.batches_max)
		trace->options.batches_max = BATCHES_MAX;
	trace->options.records_max = power_of_two(trace->options.records_max);
	trace->slots = calloc(trace->options.records_max, sizeof(struct slot));
	trace->flights =
		calloc(trace->options.batches_max, sizeof(struct flight));
	if (!trace->slots || !trace->flights) {
		free(trace->slots);
		free(trace->flights);
		free(trace);
		return -ENOMEM;
	}
	trace->layer.ops = trace_ops;
	reef_fabric_push(fabric, &trace->layer);
	*out = trace;
	return 0;
}
