/* nic.c - see nic.h. */
#include "fabric/hook/nic.h"

#include "fabric/provider.h"

#include <stdlib.h>
#include <string.h>

enum tag_kind { TAG_CONTEXT = 1, TAG_TRANSLATION = 2 };

static uint64_t mix(uint64_t value)
{
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93ull;
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93ull;
	return value ^ value >> 32;
}

int reef_nic_init(struct reef_nic *nic, const struct reef_cost_options *options)
{
	uint32_t entry_min = options->context_size < options->translation_size
				     ? options->context_size
				     : options->translation_size;
	int rc;

	memset(nic, 0, sizeof(*nic));
	nic->options = options;
	nic->atomic_ps = calloc(options->atomic_units, sizeof(uint64_t));
	if (!nic->atomic_ps)
		return -ENOMEM;
	rc = reef_cache_create(options->cache_size, entry_min, &nic->cache);
	if (rc)
		free(nic->atomic_ps);
	return rc;
}

void reef_nic_fini(struct reef_nic *nic)
{
	reef_cache_destroy(nic->cache);
	free(nic->atomic_ps);
}

/* Keep a resource busy for cost_ps, from the time when it is free and the
 * message there. Returns when that began. */
static uint64_t serve_one(uint64_t *free_ps, uint64_t now_ps, uint64_t cost_ps)
{
	uint64_t begin_ps = now_ps > *free_ps ? now_ps : *free_ps;

	*free_ps = begin_ps + cost_ps;
	return begin_ps;
}

static uint64_t serve_by_engine(struct reef_nic *nic, uint64_t now_ps,
				uint64_t cost_ps)
{
	nic->stats.busy_ns += cost_ps;
	return serve_one(&nic->engine_ps, now_ps, cost_ps);
}

static uint64_t later_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Use an entry of the cache, and count a hit or a miss. Returns whether it has
 * to be fetched. */
static bool must_fetch(struct reef_nic *nic, enum tag_kind kind, uint64_t a,
		       uint64_t b, uint32_t size)
{
	bool hit = reef_cache_touch(nic->cache, mix(mix(a + kind) ^ b), size);

	if (hit)
		nic->stats.hits++;
	else
		nic->stats.misses++;
	return !hit;
}

static uint32_t miss_context(struct reef_nic *nic, uint64_t connection)
{
	if (nic->options->transport == REEF_COST_DATAGRAM)
		return 0;
	return must_fetch(nic, TAG_CONTEXT, connection, 0,
			  nic->options->context_size);
}

/* How many translations of the pages that an op touches have to be fetched. */
static uint32_t miss_pages(struct reef_nic *nic, const struct reef_op *op)
{
	uint64_t length =
		op->kind == REEF_CAS || op->kind == REEF_FAA ? 8 : op->length;
	uint64_t page, last;
	uint32_t misses = 0;

	if (op->kind == REEF_SEND || !length)
		return 0;
	last = (op->offset + length - 1) / nic->options->page_size;
	for (page = op->offset / nic->options->page_size; page <= last; page++)
		misses += must_fetch(nic, TAG_TRANSLATION, op->remote->key,
				     page, nic->options->translation_size);
	return misses;
}

static uint64_t bytes_there(const struct reef_op *op)
{
	switch (op->kind) {
	case REEF_WRITE:
	case REEF_SEND:
		return op->length;
	case REEF_CAS:
		return 16;
	case REEF_FAA:
		return 8;
	default:
		return 0;
	}
}

static uint64_t bytes_back(const struct reef_op *op)
{
	switch (op->kind) {
	case REEF_READ:
		return op->length;
	case REEF_CAS:
	case REEF_FAA:
		return 8;
	default:
		return 0;
	}
}

/* True if an op has an answer that takes room on the wire; acknowledgments do
 * not count. */
static bool has_answer(const struct reef_nic *nic, const struct reef_op *op)
{
	return bytes_back(op) || nic->options->transport == REEF_COST_DATAGRAM;
}

uint64_t reef_nic_send(struct reef_nic *nic, uint64_t connection,
		       const struct reef_op *ops, uint32_t count,
		       uint64_t now_ps)
{
	const struct reef_cost_options *options = nic->options;
	uint64_t at_ps = now_ps, left_ps = now_ps;
	/* The ops of a segment come one after the other: one context serves
	 * them all. */
	uint32_t misses = miss_context(nic, connection);

	for (uint32_t i = 0; i < count; i++) {
		uint64_t bytes = options->header_size + bytes_there(&ops[i]);
		uint64_t cost_ps = options->out_ps;

		if (i == 0)
			cost_ps += misses * options->fetch_ps;
		at_ps = serve_by_engine(nic, now_ps, cost_ps) + cost_ps;
		left_ps = serve_one(&nic->port_out_ps, at_ps,
				    bytes * options->byte_ps) +
			  bytes * options->byte_ps;
		nic->stats.bytes_out += bytes;
	}
	nic->stats.sent += count;
	return left_ps + (misses ? options->fetch_ns * 1000 : 0);
}

/* Take the unit that serves an atomic's word. Returns when that
 * begins. */
static uint64_t take_atomic_unit(struct reef_nic *nic, const struct reef_op *op,
				 uint64_t now_ps)
{
	uint64_t unit = mix(mix(op->remote->key) ^ op->offset) &
			(nic->options->atomic_units - 1);

	return serve_one(&nic->atomic_ps[unit], now_ps,
			 nic->options->atomic_ps);
}

uint64_t reef_nic_receive(struct reef_nic *nic, uint64_t connection,
			  const struct reef_op *ops, uint32_t count,
			  uint64_t now_ps)
{
	const struct reef_cost_options *options = nic->options;
	uint64_t effect_ps = now_ps;
	uint32_t misses = miss_context(nic, connection), all = misses;

	for (uint32_t i = 0; i < count; i++) {
		bool atomic =
			ops[i].kind == REEF_CAS || ops[i].kind == REEF_FAA;
		uint64_t bytes = options->header_size + bytes_there(&ops[i]);
		uint64_t at_ps;

		/* Bytes come in while they leave the other port: what counts
		 * here is only whether this port is busy with others'. */
		at_ps = serve_one(&nic->port_in_ps, now_ps,
				  bytes * options->byte_ps);
		misses += miss_pages(nic, &ops[i]);
		/* What the engine takes for a message that comes alone is part
		 * of the round trip; those behind it wait. */
		at_ps = serve_by_engine(
			nic, at_ps,
			options->in_ps + (atomic ? options->atomic_in_ps : 0) +
				misses * options->fetch_ps);
		if (atomic)
			at_ps = take_atomic_unit(nic, &ops[i], at_ps);
		effect_ps = later_of(effect_ps, at_ps);
		nic->stats.bytes_in += bytes;
		all += misses;
		misses = 0;
	}
	nic->stats.received += count;
	/* The fetches of one segment overlap. */
	return effect_ps + (all ? options->fetch_ns * 1000 : 0);
}

uint64_t reef_nic_answer(struct reef_nic *nic, const struct reef_op *ops,
			 uint32_t count, uint64_t now_ps)
{
	const struct reef_cost_options *options = nic->options;
	uint64_t left_ps = now_ps;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t bytes = options->header_size + bytes_back(&ops[i]);
		uint64_t at_ps = now_ps;

		if (!has_answer(nic, &ops[i]))
			continue;
		if (options->transport == REEF_COST_DATAGRAM) {
			at_ps = serve_by_engine(nic, now_ps, options->out_ps) +
				options->out_ps;
			nic->stats.sent++;
		}
		left_ps = serve_one(&nic->port_out_ps, at_ps,
				    bytes * options->byte_ps) +
			  bytes * options->byte_ps;
		nic->stats.bytes_out += bytes;
	}
	return left_ps;
}

uint64_t reef_nic_answered(struct reef_nic *nic, const struct reef_op *ops,
			   uint32_t count, uint64_t now_ps)
{
	const struct reef_cost_options *options = nic->options;
	uint64_t there_ps = now_ps;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t bytes = options->header_size + bytes_back(&ops[i]);
		uint64_t at_ps;

		if (!has_answer(nic, &ops[i]))
			continue;
		at_ps = serve_one(&nic->port_in_ps, now_ps,
				  bytes * options->byte_ps);
		if (options->transport == REEF_COST_DATAGRAM) {
			at_ps = serve_by_engine(nic, at_ps, options->in_ps);
			nic->stats.received++;
		}
		there_ps = later_of(there_ps, at_ps);
		nic->stats.bytes_in += bytes;
	}
	return there_ps;
}
