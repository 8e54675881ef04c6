/* recover.c - what becomes of a dead session's blocks (rule 8).
 *
 *   adopted block    header 0, FREE       free at once (adopt.c)
 *                    RETIRED              limbo
 *                    KEPT                 stays
 *                    LIVE  page           given to the caller, then freed
 *                          raw            limbo
 *                          another kind   is_live: stays, or limbo
 *
 * All pages are handed over before any LIVE block is freed. What was adopted
 * and not judged yet, because a call failed, is judged by the next one; if we
 * die instead, our chunks hold it, and our own recovery finds it LIVE. */
#include "pool/client/heap/internal.h"

#include "base/mutant.h"

static bool is_page(uint32_t block)
{
	return (uint8_t)(block >> 8) == REEF_BLOCK_PAGE &&
	       !(block & BLOCK_LIMBO);
}

static uint32_t *unjudged_at(struct reef_heap *heap, uint32_t index,
			     struct run **run)
{
	uint32_t *block = heap_block_at(heap, heap->unjudged[index], run);

	return block && *block & BLOCK_UNJUDGED ? block : NULL;
}

/* A page's intents are settled: its header must not say LIVE any more, or they
 * would be settled once more when we die. */
static int retire_page(struct reef_heap *heap, uint64_t address)
{
	struct run *run;
	uint32_t *block;
	int rc = heap_other_free(heap, address, REEF_FREE_LATER, 0, true);

	if (rc && rc != -EALREADY)
		return rc;
	block = heap_block_at(heap, address, &run);
	if (block && *block & BLOCK_UNJUDGED)
		heap_limbo_add(heap, run, (uint32_t)(block - run->blocks));
	return 0;
}

static int hand_over_pages(struct reef_heap *heap,
			   int (*page)(void *context, uint64_t address,
				       uint64_t size),
			   void *context)
{
	int rc = 0;

	for (uint32_t i = 0; i < heap->unjudged_count && !rc; i++) {
		uint64_t address = heap->unjudged[i];
		struct run *run;
		uint32_t *block = unjudged_at(heap, i, &run);

		if (!block || !is_page(*block))
			continue;
		if (page)
			rc = page(context, address,
				  run->block_size - HEAP_HEADER);
		if (!rc)
			rc = retire_page(heap, address);
	}
	return rc;
}

/* 1: an adopted block stays.  0: it is to be freed.  -errno. */
static int must_stay(struct reef_heap *heap, uint32_t block, uint64_t address)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	uint8_t kind = (uint8_t)(block >> 8);

	if (block & BLOCK_LIMBO || kind == REEF_BLOCK_RAW)
		return 0;
	if (!ops->is_live)
		return 1;
	return ops->is_live(heap->options.context, kind, address);
}

static int judge_blocks(struct reef_heap *heap)
{
	while (heap->unjudged_count) {
		uint32_t last = heap->unjudged_count - 1;
		uint64_t address = heap->unjudged[last];
		struct run *run;
		uint32_t *block = unjudged_at(heap, last, &run);
		int stays = block ? must_stay(heap, *block, address) : 0;

		if (stays < 0)
			return stays;
		/* This fiber may have parked: find the block anew. */
		block = unjudged_at(heap, last, &run);
		if (block && stays)
			*block &= ~(uint32_t)BLOCK_UNJUDGED;
		else if (block)
			heap_limbo_add(heap, run,
				       (uint32_t)(block - run->blocks));
		heap->unjudged_count = last;
	}
	return 0;
}

int reef_heap_recover(struct reef_heap *heap, uint32_t session,
		      int (*page)(void *context, uint64_t address,
				  uint64_t size),
		      void *context)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	int rc, adopted;

	if (!session || session == heap->session)
		return -EINVAL;
	if (heap->recovering)
		return -EBUSY;
	if (!REEF_MUTATED(HEAP_ADOPT_ALIVE)) {
		rc = ops->is_fenced(heap->options.context, session);
		if (rc <= 0)
			return rc ? rc : -EBUSY;
	}
	rc = heap_lock(heap);
	if (rc)
		return rc;
	heap->recovering = true;
	adopted = heap_adopt(heap, session);
	heap_unlock(heap);
	/* Without the lock, as whoever is called may use the heap. */
	rc = hand_over_pages(heap, page, context);
	if (!rc)
		rc = judge_blocks(heap);
	heap->recovering = false;
	return rc ? rc : adopted;
}
