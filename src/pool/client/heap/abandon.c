/* abandon.c - a session that ends well takes its raw blocks along.
 *
 * Recovery would free them, too, but what it frees must wait (R8), and with
 * sessions that are shorter than that wait it would never end. Here each block
 * is freed as by its user: CAS LIVE to FREE, so that one which another session
 * keeps just now stays (rule 5). Blocks of other kinds, kept ones, and those
 * that wait already are left to recovery. */
#include "pool/client/heap/internal.h"

struct abandon {
	uint32_t count;
	uint32_t index[HEAP_BATCH];
	struct reef_access accesses[HEAP_BATCH];
};

static bool is_abandoned(uint32_t block)
{
	return (block & BLOCK_OUT) &&
	       !(block & (BLOCK_RARE | BLOCK_UNJUDGED)) &&
	       (uint8_t)(block >> 8) == REEF_BLOCK_RAW;
}

/* Free the blocks of a run that are in the batch. The run goes with its last
 * block, so nothing of it is read after that. */
static int abandon_execute(struct reef_heap *heap, struct run *run,
			   struct abandon *abandon)
{
	struct extent *extent = run->extent;
	uint32_t count = abandon->count;
	int rc;

	abandon->count = 0;
	if (!count)
		return 0;
	rc = heap_execute(heap, abandon->accesses, count);
	for (uint32_t i = 0; i < count && !extent->dead; i++)
		if (abandon->accesses[i].status == 0 &&
		    abandon->accesses[i].result == abandon->accesses[i].compare)
			heap_block_give(heap, run, abandon->index[i]);
	return rc;
}

static int abandon_run(struct reef_heap *heap, struct run *run,
		       struct abandon *abandon)
{
	uint32_t blocks = run->count, left = heap_run_used(run);
	int rc = 0;

	/* The run may be gone once `left`, its blocks that were out, is 0. */
	for (uint32_t i = 0; i < blocks && left && !rc; i++) {
		uint32_t block = run->blocks[i];
		uint64_t address;

		if (!(block & BLOCK_OUT))
			continue;
		left--;
		if (!is_abandoned(block))
			continue;
		address = heap_block_address(run, i) - HEAP_HEADER;
		abandon->accesses[abandon->count] = heap_cas(
			address,
			heap_block_header(heap, block, HEAP_BLOCK_LIVE),
			heap_block_header(heap, block, HEAP_BLOCK_FREE));
		abandon->index[abandon->count++] = i;
		if (abandon->count == HEAP_BATCH)
			rc = abandon_execute(heap, run, abandon);
	}
	return rc ? rc : abandon_execute(heap, run, abandon);
}

static int abandon_extent(struct reef_heap *heap, struct extent *extent,
			  struct abandon *abandon)
{
	uint32_t unit = 0, next;
	struct run *run;
	int rc = 0;

	while (!rc && !extent->dead && extent->runs &&
	       unit < extent->shape.units) {
		run = extent->runs[unit];
		next = run ? run->first + run->units : unit + 1;
		if (run && (run->kind == RUN_SLAB || run->kind == RUN_LARGE))
			rc = abandon_run(heap, run, abandon);
		unit = next;
	}
	return rc;
}

int reef_heap_abandon(struct reef_heap *heap)
{
	struct abandon *abandon = calloc(1, sizeof(*abandon));
	int rc;

	if (!abandon)
		return -ENOMEM;
	rc = reef_heap_flush(heap);
	if (!rc)
		rc = heap_lock(heap);
	if (rc) {
		free(abandon);
		return rc;
	}
	for (struct extent *e = heap->extents; e && !rc; e = e->next)
		if (e->mine && !e->dead)
			rc = abandon_extent(heap, e, abandon);
	heap_unlock(heap);
	free(abandon);
	return rc;
}
