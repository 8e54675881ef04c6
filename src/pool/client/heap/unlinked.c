/* unlinked.c - blocks of structures that nothing names any more.
 *
 * A client that dies between the CAS that unlinks a block and the free leaves a
 * block that stays out. Where memory is short, its owner asks its kind about
 * it, in two steps:
 *
 *   note    address and life of some blocks that are out, in epoch e
 *   ask     once safe_epoch is past e: is_live, of those that are out still in
 *           that life; what is not goes to limbo, as others may know of it (R8)
 *
 * (a) Who allocates a block of a kind that is asked publishes it inside the
 *     same reef_enter, or frees it. So once all who were inside when a block
 *     was noted have left, it was published, or never will be. Where a CAS may
 *     still happen, its session has not announced a later epoch.
 * (b) A block that is prepared for longer is STAGED: whoever prepares it says
 *     so (`is_asked`), and it is neither noted nor asked about.
 * (c) Each call asks about a few, and calls take a part of the time only: where
 *     all is live, there are many, and nothing comes of it. */
#include "pool/client/heap/internal.h"

#include "base/mutant.h"

#define ASK_PART 8u /* a pause is that many times as long as the asking was */

static bool may_ask(const struct reef_heap *heap, uint32_t block,
		    uint64_t address)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	const uint32_t others = BLOCK_LIMBO | BLOCK_PENDING | BLOCK_FLYING |
				BLOCK_SHARED | BLOCK_UNJUDGED;

	return (block & (BLOCK_OUT | others)) == BLOCK_OUT &&
	       ops->is_asked(heap->options.context, (uint8_t)(block >> 8),
			     address);
}

/* Note the blocks of a run from `from` on that may be asked about. */
static void note_run(struct reef_heap *heap, const struct run *run,
		     uint64_t from)
{
	for (uint32_t i = 0; i < run->count; i++) {
		uint64_t address = heap_block_address(run, i);

		if (heap->asks_count == HEAP_ASKS)
			return;
		heap->ask_next = address + 1;
		if (address >= from && may_ask(heap, run->blocks[i], address))
			heap->asks[heap->asks_count++] = (struct ask){
				.address = address,
				.block = run->blocks[i],
			};
	}
}

static void note_extent(struct reef_heap *heap, const struct extent *extent,
			uint64_t from)
{
	uint32_t unit = 0, next;
	const struct run *run;

	for (; extent->runs && unit < extent->shape.units &&
	       heap->asks_count < HEAP_ASKS;
	     unit = next) {
		run = extent->runs[unit];
		next = run ? run->first + run->units : unit + 1;
		if (run && run->count && run->address + run->span >= from)
			note_run(heap, run, from);
	}
}

/* Whoever asked, or found nothing to ask about, pauses. */
static void begin_pause(struct reef_heap *heap, uint64_t begun_ns)
{
	uint64_t now_ns = reef_now_ns();

	heap->ask_next_ns = now_ns + (now_ns - begun_ns) * ASK_PART;
}

/* Note the next blocks, in the order of addresses, round and round. */
static void note_some(struct reef_heap *heap)
{
	uint64_t from = heap->ask_next;
	const struct extent *best;

	heap->ask_epoch =
		heap->options.ops->reclaim_epoch(heap->options.context);
	do {
		best = NULL;
		for (const struct extent *e = heap->extents; e; e = e->next)
			if (!e->dead && e->mine && e->number >= from >> 32 &&
			    (!best || e->number < best->number))
				best = e;
		if (!best)
			break;
		note_extent(heap, best, from);
		from = ((uint64_t)best->number + 1) << 32;
	} while (heap->asks_count < HEAP_ASKS);
	if (heap->asks_count < HEAP_ASKS)
		heap->ask_next = 0;
}

/* Ask about one; true if it went to limbo. */
static bool ask_about(struct reef_heap *heap, const struct ask *ask)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	struct run *run;
	uint32_t *block = heap_block_at(heap, ask->address, &run);

	if (!block || *block != ask->block ||
	    !may_ask(heap, *block, ask->address) ||
	    ops->is_live(heap->options.context, (uint8_t)(*block >> 8),
			 ask->address) != 0)
		return false;
	/* This fiber may have parked: find the block anew. */
	block = heap_block_at(heap, ask->address, &run);
	if (!block || *block != ask->block)
		return false;
	heap_limbo_add(heap, run, (uint32_t)(block - run->blocks));
	return true;
}

uint32_t reef_heap_ask(struct reef_heap *heap)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	uint64_t begun_ns = reef_now_ns();
	uint32_t count = 0;

	if (!ops->is_asked || !ops->is_live || heap->asking)
		return 0;
	if (!heap->asks_count) {
		if (begun_ns >= heap->ask_next_ns)
			note_some(heap);
		if (!heap->asks_count && begun_ns >= heap->ask_next_ns)
			begin_pause(heap, begun_ns);
		return 0;
	}
	if (ops->safe_epoch(heap->options.context) <= heap->ask_epoch)
		return 0;
	/* Without the lock, as whoever is asked may use the heap. */
	heap->asking = true;
	for (uint32_t i = 0; i < heap->asks_count; i++)
		count += ask_about(heap, &heap->asks[i]);
	heap->asks_count = 0;
	heap->asking = false;
	begin_pause(heap, begun_ns);
	return count;
}
