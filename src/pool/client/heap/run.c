/* run.c - runs of units in use: slabs, and large blocks.
 *
 *   free run --take--> (in hand) --write_run--> in use --drop--> free run
 *                          |
 *                          +-- written in part: BROKEN, until the session ends
 *
 * write_run is one batch of WRITEs, which take effect in order (F3a):
 *   1. the descriptors of all its units become INNER, the head's SPARE
 *   2. the header words of its blocks become zero, where units were used before
 *   3. the head's descriptor
 * Whoever recovers us and finds a head finds blocks whose headers are ours or
 * zero; without one it finds units that nobody uses. */
#include "pool/client/heap/internal.h"

/* With more headers than this, whole units are cleared instead. */
#define HEADERS_MAX 100u
/* How far the starting generations of runs are apart: so far that a late free
 * of an earlier life does not fit a block of a later one; odd, to meet them
 * all. */
#define GENERATION_STEP 4099u
#define LOST_MAX 16u /* extents that may turn out lost while a run is made */

static const uint8_t zeros[REEF_UNIT_SIZE];

int heap_run_init(struct reef_heap *heap, struct run *run, uint8_t kind,
		  uint32_t class)
{
	const struct heap_class *c;

	run->kind = kind;
	run->address = heap_address(run->extent->number,
				    ((uint64_t)run->first << HEAP_UNIT_SHIFT) +
					    HEAP_HEADER);
	run->span = ((uint64_t)run->units << HEAP_UNIT_SHIFT) - HEAP_HEADER;
	run->bump = run->top = 0;
	heap->generation = (uint16_t)(heap->generation + GENERATION_STEP);
	if (kind == RUN_LARGE) {
		run->class = HEAP_CLASS_LARGE;
		run->block_size = (uint64_t)run->units << HEAP_UNIT_SHIFT;
		run->inverse = 0;
		run->single = (uint32_t)heap->generation << 16;
		run->blocks = &run->single;
		run->stack = NULL;
		run->count = 1;
		return 0;
	}
	c = &heap->classes.all[class];
	run->blocks = malloc(c->blocks * 2 * sizeof(uint32_t));
	if (!run->blocks)
		return -ENOMEM;
	run->stack = run->blocks + c->blocks;
	run->class = (uint8_t) class;
	run->block_size = c->block_size;
	run->inverse = c->inverse;
	run->count = c->blocks;
	for (uint32_t i = 0; i < c->blocks; i++)
		run->blocks[i] = (uint32_t)heap->generation << 16;
	return 0;
}

void heap_run_fini(struct run *run)
{
	if (run->kind == RUN_SLAB)
		free(run->blocks);
	run->blocks = NULL;
	run->stack = NULL;
	run->count = 0;
}

void heap_run_map(struct run *run)
{
	for (uint32_t i = 0; i < run->units; i++)
		run->extent->runs[run->first + i] = run;
}

static uint64_t head_of(const struct run *run)
{
	if (run->kind == RUN_LARGE)
		return heap_descriptor(HEAP_UNIT_LARGE, 0, run->units);
	return heap_descriptor(HEAP_UNIT_SLAB, run->class, run->units);
}

/* Add the WRITEs that make the headers of a run zero. In units that were never
 * used they are. */
static uint32_t clear_headers(const struct run *run, struct reef_access *to)
{
	const struct extent *extent = run->extent;
	uint32_t count = 0;

	if (run->count > HEADERS_MAX) {
		for (uint32_t i = run->first; i < run->first + run->units; i++)
			if (extent->shadow[i])
				to[count++] = heap_write(
					heap_address(
						extent->number,
						(uint64_t)i << HEAP_UNIT_SHIFT),
					zeros, REEF_UNIT_SIZE);
		return count;
	}
	for (uint32_t i = 0; i < run->count; i++) {
		uint64_t at = heap_block_address(run, i) - HEAP_HEADER;

		if (extent->shadow[(uint32_t)at >> HEAP_UNIT_SHIFT])
			to[count++] = heap_write(at, zeros, 8);
	}
	return count;
}

/* True if not even the first WRITE of a batch happened, or will. */
static bool nothing_happened(const struct reef_access *first)
{
	return first->status && first->status != -REEF_EINDOUBT &&
	       first->status != -ETIMEDOUT;
}

static int write_run(struct reef_heap *heap, struct run *run)
{
	struct extent *extent = run->extent;
	struct reef_access accesses[HEADERS_MAX + 2];
	uint64_t few[HEAP_SLAB_UNITS_MAX], *words = few, head = head_of(run);
	uint32_t count = 0;
	int rc;

	/* Where a large block of that size was, the descriptors stay. */
	if (run->kind == RUN_LARGE && extent->shadow[run->first] == head)
		return 0;
	if (run->units > HEAP_SLAB_UNITS_MAX)
		words = malloc(run->units * sizeof(*words));
	if (!words)
		return -ENOMEM;
	for (uint32_t i = 0; i < run->units; i++)
		words[i] = heap_descriptor(HEAP_UNIT_INNER, 0, 0);
	words[0] = heap_descriptor(HEAP_UNIT_SPARE, 0, 0);
	if (run->units > 1)
		accesses[count++] =
			heap_write(heap_descriptor_at(extent, run->first),
				   words, run->units * 8);
	count += clear_headers(run, accesses + count);
	accesses[count++] =
		heap_write(heap_descriptor_at(extent, run->first), &head, 8);
	rc = heap_execute_writes(heap, accesses, count);
	if (!rc) {
		words[0] = head;
		memcpy(&extent->shadow[run->first], words, run->units * 8);
	} else if (!nothing_happened(&accesses[0])) {
		heap_run_fini(run);
		run->kind = RUN_BROKEN;
	}
	if (words != few)
		free(words);
	return rc;
}

static void add_broken(struct reef_heap *heap, struct run *run)
{
	run->kind = RUN_BROKEN;
	heap_run_map(run);
	heap_list_add(&heap->broken, run);
}

/* WRITE that the units of a run are free. */
static int write_spare(struct reef_heap *heap, const struct run *run)
{
	struct extent *extent = run->extent;
	uint64_t *words = malloc(run->units * sizeof(*words));
	struct reef_access access = heap_write(
		heap_descriptor_at(extent, run->first), words, run->units * 8);
	int rc;

	if (!words)
		return -ENOMEM;
	for (uint32_t i = 0; i < run->units; i++)
		words[i] = heap_descriptor(HEAP_UNIT_SPARE, 0, 0);
	rc = heap_execute_writes(heap, &access, 1);
	if (!rc && !extent->dead)
		memcpy(&extent->shadow[run->first], words, run->units * 8);
	free(words);
	return rc;
}

/* Make units free whose descriptors could not be written: a WRITE that reaches
 * them comes after whatever was still to come (F5). */
static void mend_broken(struct reef_heap *heap)
{
	struct run *run;
	int rc = 0;

	while (!rc && (run = heap->broken)) {
		heap_list_remove(&heap->broken, run);
		memset(&run->extent->runs[run->first], 0,
		       run->units * sizeof(struct run *));
		rc = write_spare(heap, run);
		if (heap_is_lost(rc)) {
			reef_heap_forget(heap, run->extent->number);
			rc = 0; /* the others may be elsewhere */
		}
		if (run->extent->dead)
			free(run);
		else if (rc)
			add_broken(heap, run);
		else
			heap_units_give(heap, run);
	}
}

/* Take units and write their descriptors; the run is not in runs[] yet. 1: a
 * slab of the class has room now. */
static int run_try(struct reef_heap *heap, uint8_t kind, uint32_t class,
		   uint32_t units, struct run **out)
{
	struct run *run = heap_units_take(heap, units);
	int rc;

	if (!run) {
		heap_vacant_drop(heap, false);
		run = heap_units_take(heap, units);
	}
	if (!run) {
		rc = heap_claim(heap, units, class);
		/* Not before: their node may be out of reach still. */
		if (rc == -ENOSPC || rc == -EDQUOT)
			mend_broken(heap);
		else if (rc)
			return rc;
		run = heap_units_take(heap, units);
		if (!run)
			return rc ? rc : -ENOMEM;
	}
	rc = heap_run_init(heap, run, kind, class);
	if (!rc)
		rc = write_run(heap, run);
	if (!rc && !run->extent->dead) {
		*out = run;
		return 0;
	}
	if (heap_is_lost(rc) && !run->extent->dead)
		reef_heap_forget(heap, run->extent->number);
	if (run->extent->dead) {
		heap_run_fini(run);
		free(run);
		return -REEF_ELOST;
	}
	if (run->kind == RUN_BROKEN) {
		add_broken(heap, run);
		return rc;
	}
	heap_run_fini(run);
	heap_units_give(heap, run);
	return rc;
}

/* As run_try, which is done again with other memory when an extent turns out
 * lost. */
static int run_make(struct reef_heap *heap, uint8_t kind, uint32_t class,
		    uint32_t units, struct run **out)
{
	int rc = -REEF_ELOST;

	for (uint32_t i = 0; rc == -REEF_ELOST && i < LOST_MAX; i++)
		rc = run_try(heap, kind, class, units, out);
	return rc;
}

int heap_slab_make(struct reef_heap *heap, uint32_t class)
{
	struct run *run;
	int rc = run_make(heap, RUN_SLAB, class, heap->classes.all[class].units,
			  &run);

	if (rc)
		return rc > 0 ? 0 : rc;
	heap_run_map(run);
	/* Blocks may have come back to the old slab meanwhile. */
	if (heap_run_has_room(heap->current[class]))
		heap_list_add(&heap->partial[class], heap->current[class]);
	heap->current[class] = run;
	return 0;
}

int heap_large_make(struct reef_heap *heap, uint8_t kind, uint64_t size,
		    uint64_t *address)
{
	uint64_t units =
		(size + HEAP_HEADER + REEF_UNIT_SIZE - 1) >> HEAP_UNIT_SHIFT;
	struct run *run;
	int rc;

	if (units > HEAP_UNITS_MAX)
		return -EINVAL;
	rc = run_make(heap, RUN_LARGE, HEAP_CLASS_LARGE, (uint32_t)units, &run);
	if (rc)
		return rc;
	heap_run_map(run);
	run->bump = 1;
	if (heap->listed >= HEAP_PENDING_MAX)
		rc = heap_pending_write(heap);
	if (rc) {
		run->bump = 0;
		heap_run_drop(heap, run);
		return rc;
	}
	run->single = (run->single & BLOCK_GENERATION) | ((uint32_t)kind << 8) |
		      BLOCK_OUT | (kind == REEF_BLOCK_PAGE ? BLOCK_SHARED : 0);
	*address = heap_block_address(run, 0);
	heap_pending_add(heap, &run->single, *address);
	return 0;
}

/* Take a run in use from wherever blocks are looked for. */
static void unlist_run(struct reef_heap *heap, struct run *run)
{
	if (run->is_listed)
		heap_list_remove(&heap->partial[run->class], run);
	if (heap->recent == run)
		heap->recent = &heap->none;
	if (run->kind == RUN_SLAB && heap->current[run->class] == run)
		heap->current[run->class] = NULL;
	if (run->kind == RUN_SLAB && heap->vacant[run->class] == run)
		heap->vacant[run->class] = NULL;
}

void heap_run_drop(struct reef_heap *heap, struct run *run)
{
	reef_assert(heap_run_used(run) == 0);
	unlist_run(heap, run);
	heap_run_fini(run);
	heap_units_give(heap, run);
}

void heap_run_forget(struct reef_heap *heap, struct run *run)
{
	unlist_run(heap, run);
	memset(&run->extent->runs[run->first], 0,
	       run->units * sizeof(struct run *));
	heap_run_fini(run);
	free(run);
}

void heap_block_give(struct reef_heap *heap, struct run *run, uint32_t index)
{
	bool was_full = !heap_run_has_room(run);

	heap->given++;
	run->blocks[index] &= BLOCK_GENERATION | BLOCK_LISTED;
	if (run->kind == RUN_LARGE) {
		run->bump = 0;
		heap_run_drop(heap, run);
		return;
	}
	run->stack[run->top++] = (uint32_t)heap_block_address(run, index);
	if (heap->current[run->class] == run)
		return;
	if (heap_run_used(run) == 0 && heap->vacant[run->class]) {
		heap_run_drop(heap, run);
	} else if (heap_run_used(run) == 0) {
		/* One empty slab is kept: whoever allocates and frees a few
		 * blocks more than fit into a slab would pay for a new one
		 * each time. */
		if (run->is_listed)
			heap_list_remove(&heap->partial[run->class], run);
		heap->vacant[run->class] = run;
	} else if (was_full) {
		heap_list_add(&heap->partial[run->class], run);
	}
}

void heap_vacant_drop(struct reef_heap *heap, bool current)
{
	for (uint32_t i = 0; i < heap->classes.count; i++) {
		struct run *run = heap->vacant[i];

		if (run)
			heap_run_drop(heap, run);
		run = current ? heap->current[i] : NULL;
		if (run && !heap_run_used(run))
			heap_run_drop(heap, run);
	}
}
