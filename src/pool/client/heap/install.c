/* install.c - what was adopted becomes part of the heap: its runs, the free
 * units between them, and blocks that wait. See adopt.c. */
#include "pool/client/heap/adopt.h"

static int judge_later(struct reef_heap *heap, uint64_t address,
		       uint32_t session)
{
	if (heap->unjudged_count == heap->unjudged_capacity) {
		uint32_t capacity = heap->unjudged_capacity
					    ? heap->unjudged_capacity * 2
					    : 256;
		struct unjudged *more =
			realloc(heap->unjudged, capacity * sizeof(*more));

		if (!more)
			return -ENOMEM;
		heap->unjudged = more;
		heap->unjudged_capacity = capacity;
	}
	heap->unjudged[heap->unjudged_count++] =
		(struct unjudged){address, session};
	return 0;
}

/* Make a run ours, with what was read of its blocks. */
static int install_run(struct adoption *a, struct run *run)
{
	struct reef_heap *heap = a->heap;
	uint32_t chunk = run->first / HEAP_UNITS_PER_CHUNK;
	int rc = 0;

	heap_run_map(run);
	run->bump = run->count;
	for (uint32_t i = run->count; i-- > 0;) {
		if (run->blocks[i] & BLOCK_OUT) {
			if (run->blocks[i] & BLOCK_UNJUDGED && !rc)
				rc = judge_later(heap,
						 heap_block_address(run, i),
						 a->extent->chunks[chunk].from);
		} else if (run->kind == RUN_SLAB) {
			run->stack[run->top++] =
				(uint32_t)heap_block_address(run, i);
		} else {
			run->bump = 0;
		}
	}
	if (!heap_run_used(run))
		heap_run_drop(heap, run);
	else if (heap_run_has_room(run))
		heap_list_add(&heap->partial[run->class], run);
	return rc;
}

/* Put the blocks of a run that others freed for later, since they were judged,
 * into limbo. Its blocks are found by their addresses, as a run may go with its
 * last block. */
static void install_limbo(struct adoption *a, struct run *run)
{
	uint64_t address = run->address, step = run->block_size;
	uint32_t count = run->count, *block;

	for (uint32_t i = 0; i < count; i++, address += step) {
		block = heap_block_at(a->heap, address, &run);
		if (block &&
		    (*block & (BLOCK_LIMBO | BLOCK_UNJUDGED)) == BLOCK_LIMBO)
			heap_limbo_add(a->heap, run,
				       (uint32_t)(block - run->blocks));
	}
}

/* Make units that are in no run free, but for heads that made no sense. */
static int install_free(struct adoption *a, uint32_t first, uint32_t end)
{
	uint32_t from = first;
	int rc = 0;

	for (uint32_t unit = first; unit < end && !rc; unit++) {
		if (!heap_descriptor_is_head(a->descriptors[unit]))
			continue;
		heap_blame_chain(a, unit / HEAP_UNITS_PER_CHUNK,
				 -REEF_ECORRUPT);
		if (unit > from)
			rc = heap_units_add(a->heap, a->extent, from, unit);
		from = unit + 1;
	}
	if (!rc && end > from)
		rc = heap_units_add(a->heap, a->extent, from, end);
	return rc;
}

static int install_chain(struct adoption *a, const struct chain *chain,
			 uint32_t *next)
{
	const struct heap_shape *shape = &a->extent->shape;
	uint32_t unit = heap_chunk_first(shape, chain->first);
	uint32_t end = heap_chunk_end(shape, chain->last);
	int rc = 0, one;

	memcpy(&a->extent->shadow[unit], &a->descriptors[unit],
	       (end - unit) * 8);
	for (uint32_t c = chain->first; c <= chain->last; c++)
		a->extent->chunks[c].partly = false;
	while (*next < a->runs_count && a->runs[*next]->first < end) {
		struct run *run = a->runs[*next];

		one = install_free(a, unit, run->first);
		rc = rc ? rc : one;
		unit = run->first + run->units;
		a->runs[(*next)++] = NULL;
		one = install_run(a, run);
		rc = rc ? rc : one;
		install_limbo(a, run);
	}
	one = install_free(a, unit, end);
	return rc ? rc : one;
}

int heap_install_chains(struct adoption *a)
{
	uint32_t next = 0;
	int rc = 0, one;

	for (uint32_t i = 0; i < a->chains_count; i++) {
		const struct chain *chain = &a->chains[i];
		uint32_t end = heap_chunk_end(&a->extent->shape, chain->last);

		if (chain->wanted && heap_chain_is_whole(a, chain)) {
			one = install_chain(a, chain, &next);
			rc = rc ? rc : one;
		}
		while (next < a->runs_count && a->runs[next]->first < end)
			next++;
	}
	return rc;
}
