/* heap.c - allocating and freeing without operations, and what holds a heap
 * together.
 *
 * A block of ours:
 *
 *           reef_heap_alloc                reef_heap_free
 *   free ----------------------> OUT --------------------------> free
 *                                 |    FREE_LATER                 ^
 *                                 +------------> OUT, LIMBO ------+
 *                                      (or others' RETIRED)  drain
 *
 * Where time went (perf, alloc+free of 64 bytes in turn): in waiting for what
 * was stored a moment ago. So a block's state, kind and generation are one
 * word, read once and written once; the stack of free blocks has addresses, not
 * indexes, so that the next address does not wait for two multiplications; how
 * many are out is a difference. The slab of an address is guessed to be that
 * of the one before: to find it takes four loads, each with the address of the
 * next, and a store whose place is known so late holds up what comes after.
 * runs[] is by unit, and the table of extents, whose numbers follow each other,
 * has the extent in its first slot nearly always. */
#include "pool/client/heap/internal.h"

#define TABLE_SLOTS 16u
#define SPARE_MAX 4u
#define DOUBT_MAX 16u

/* Rare paths are out of line, so that the common ones save no registers. */
#define rare __attribute__((noinline, cold))

/* --- making and ending --- */

int reef_heap_create(const struct reef_heap_options *options,
		     struct reef_heap **out)
{
	struct reef_heap *heap = calloc(1, sizeof(*heap));

	reef_assert(options->session != 0);
	if (!heap)
		return -ENOMEM;
	heap->options = *options;
	if (!heap->options.spare_max)
		heap->options.spare_max = SPARE_MAX;
	heap->session = options->session;
	heap->table_mask = TABLE_SLOTS - 1;
	heap->table = calloc(TABLE_SLOTS, sizeof(struct extent *));
	heap->pending_list =
		malloc((HEAP_PENDING_MAX + HEAP_BATCH) * sizeof(uint64_t));
	if (!heap->table || !heap->pending_list) {
		reef_heap_destroy(heap);
		return -ENOMEM;
	}
	heap_classes_init(&heap->classes);
	reef_random_init(&heap->random, options->seed);
	heap->generation = (uint16_t)reef_random_next(&heap->random);
	heap->waiters_end = &heap->waiters;
	heap->recent = &heap->none;
	heap->given = 1;
	*out = heap;
	return 0;
}

void reef_heap_destroy(struct reef_heap *heap)
{
	struct extent *extent;

	if (!heap)
		return;
	reef_assert(!heap->locked);
	while ((extent = heap->extents)) {
		heap->extents = extent->next;
		heap_extent_free(extent);
	}
	free(heap->unjudged);
	free(heap->limbo);
	free(heap->pending_list);
	free(heap->table);
	free(heap);
}

void reef_heap_move(struct reef_heap *heap, const struct reef_heap_ops *ops,
		    void *context)
{
	reef_assert(!heap->locked);
	heap->options.ops = ops;
	heap->options.context = context;
}

/* --- the lock: fibers of one thread take turns --- */

bool reef_heap_is_busy(const struct reef_heap *heap)
{
	return heap->locked;
}

int heap_lock(struct reef_heap *heap)
{
	struct waiter me = {.fiber = reef_fiber_self()}, **at;
	int rc;

	if (!heap->locked) {
		heap->locked = true;
		return 0;
	}
	/* Outside fibers there is nobody else who could have it. */
	reef_assert(me.fiber != NULL);
	*heap->waiters_end = &me;
	heap->waiters_end = &me.next;
	while (!me.go) {
		rc = reef_fiber_park(REEF_FOREVER);
		if (rc && !me.go) {
			at = &heap->waiters;
			while (*at != &me)
				at = &(*at)->next;
			*at = me.next;
			if (!*at)
				heap->waiters_end = at;
			return rc;
		}
	}
	return 0;
}

static void free_dead_extents(struct reef_heap *heap)
{
	struct extent **at = &heap->extents, *extent;

	while ((extent = *at)) {
		if (extent->dead) {
			*at = extent->next;
			heap_extent_free(extent);
		} else {
			at = &extent->next;
		}
	}
	heap->dead = 0;
}

void heap_unlock(struct reef_heap *heap)
{
	struct waiter *next = heap->waiters;

	if (heap->dead)
		free_dead_extents(heap);
	if (!next) {
		heap->locked = false;
		return;
	}
	/* The lock is handed to the first waiter, or newcomers would pass it.
	 */
	heap->waiters = next->next;
	if (!heap->waiters)
		heap->waiters_end = &heap->waiters;
	next->go = true;
	reef_fiber_unpark(next->fiber);
}

/* --- accesses --- */

int heap_execute(struct reef_heap *heap, struct reef_access *accesses,
		 uint32_t count)
{
	bool told = false;
	int rc;

	reef_assert(count > 0 && count <= HEAP_BATCH);
	for (uint32_t i = 0; i < count; i++)
		accesses[i].status = -REEF_ENOTDONE;
	rc = heap->options.ops->execute(heap->options.context, accesses, count);
	if (!rc)
		return 0;
	/* What refuses the whole call may leave every status as it is. */
	for (uint32_t i = 0; i < count; i++)
		told |= accesses[i].status == rc;
	if (!told)
		accesses[0].status = rc;
	return rc;
}

void heap_execute_reads(struct reef_heap *heap, struct reef_access *accesses,
			uint32_t count)
{
	if (!heap_execute(heap, accesses, count))
		return;
	for (uint32_t i = 0; i < count; i++)
		if (accesses[i].status && !heap_is_lost(accesses[i].status) &&
		    accesses[i].status != -REEF_ENOTDONE)
			return;
	for (uint32_t i = 0; i < count; i++) {
		if (accesses[i].status != -REEF_ENOTDONE)
			continue;
		heap_execute(heap, &accesses[i], 1);
		if (accesses[i].status && !heap_is_lost(accesses[i].status))
			return;
	}
}

int heap_execute_writes(struct reef_heap *heap, struct reef_access *accesses,
			uint32_t count)
{
	int rc = -REEF_EINDOUBT;
	uint32_t i;

	for (i = 0; rc == -REEF_EINDOUBT && i < DOUBT_MAX; i++)
		rc = heap_execute(heap, accesses, count);
	/* That nothing happened is said of the last attempt alone. */
	if (i > 1 && accesses[0].status == -REEF_ENOLINK)
		accesses[0].status = -REEF_EINDOUBT;
	return rc;
}

/* --- allocating --- */

/* Make a slab of the class with room current: the fullest of some, so that
 * those with few blocks have a chance to empty. False: there is none. */
static bool choose_slab(struct reef_heap *heap, uint32_t class)
{
	struct run *best = NULL, *run = heap->partial[class];

	for (uint32_t i = 0; run && i < 8; i++, run = run->next)
		if (!best || heap_run_used(run) > heap_run_used(best))
			best = run;
	if (best)
		heap_list_remove(&heap->partial[class], best);
	else
		best = heap->vacant[class];
	if (!best)
		return false;
	if (heap->vacant[class] == best)
		heap->vacant[class] = NULL;
	heap->current[class] = best;
	return true;
}

static int refill_class(struct reef_heap *heap, uint32_t class)
{
	int rc;

	if (choose_slab(heap, class))
		return 0;
	rc = heap_lock(heap);
	if (rc)
		return rc;
	/* Other fibers may have been here while this one waited. */
	if (!heap_run_has_room(heap->current[class]) &&
	    !choose_slab(heap, class)) {
		heap_limbo_drain(heap);
		if (!heap_run_has_room(heap->current[class]) &&
		    !choose_slab(heap, class))
			rc = heap_slab_make(heap, class);
	}
	heap_unlock(heap);
	return rc;
}

static int alloc_large(struct reef_heap *heap, uint8_t kind, uint64_t size,
		       uint64_t *address)
{
	int rc = heap_lock(heap);

	if (rc)
		return rc;
	heap_limbo_drain(heap);
	rc = heap_large_make(heap, kind, size, address);
	heap_unlock(heap);
	return rc;
}

/* See to it that the class's slab has room, and the list of headers, too. */
static rare int make_room(struct reef_heap *heap, uint32_t class)
{
	int rc = 0;

	while (!rc) {
		if (heap->listed >= HEAP_PENDING_MAX)
			rc = heap_pending_room(heap);
		else if (!heap_run_has_room(heap->current[class]))
			rc = refill_class(heap, class);
		else
			break;
	}
	return rc;
}

/* Take a block of a slab that has room; its header goes into pending_list,
 * where there is room. */
static inline uint64_t take_block(struct reef_heap *heap, struct run *run,
				  uint8_t kind)
{
	uint32_t index, word;
	uint64_t address;

	if (__builtin_expect(run->top != 0, 1)) {
		address = (run->address & ~UINT64_C(0xffffffff)) |
			  run->stack[--run->top];
		index = (uint32_t)(((address - run->address) * run->inverse) >>
				   40);
	} else {
		index = run->bump++;
		address = heap_block_address(run, index);
	}
	word = run->blocks[index];
	run->blocks[index] = ((word + (UINT32_C(1) << 16)) & BLOCK_GENERATION) |
			     ((uint32_t)kind << 8) | BLOCK_OUT | BLOCK_PENDING |
			     BLOCK_LISTED |
			     (kind == REEF_BLOCK_PAGE ? BLOCK_SHARED : 0);
	heap->pending++;
	heap->recent = run;
	if (!(word & BLOCK_LISTED))
		heap->pending_list[heap->listed++] = address;
	return address;
}

static rare int alloc_rare(struct reef_heap *heap, uint8_t kind, uint64_t size,
			   uint32_t class, uint64_t *address)
{
	int rc;

	if (size - 1 >= UINT32_MAX) /* 0 too */
		return -EINVAL;
	reef_heap_tend(heap);
	if (class == HEAP_CLASS_LARGE)
		return alloc_large(heap, kind, size, address);
	rc = make_room(heap, class);
	if (!rc)
		*address = take_block(heap, heap->current[class], kind);
	return rc;
}

int reef_heap_alloc(struct reef_heap *heap, uint8_t kind, uint64_t size,
		    uint64_t *address)
{
	uint32_t class = HEAP_CLASS_LARGE;
	struct run *run;

	if (__builtin_expect(size - 1 < UINT32_MAX, 1))
		class = heap_class_of(&heap->classes, size + HEAP_HEADER);
	run = heap->current[class];
	if (__builtin_expect(!heap_run_has_room(run) ||
				     heap->listed >= HEAP_PENDING_MAX,
			     0))
		return alloc_rare(heap, kind, size, class, address);
	*address = take_block(heap, run, kind);
	return 0;
}

/* --- freeing --- */

uint32_t *heap_block_at(const struct reef_heap *heap, uint64_t address,
			struct run **run)
{
	uint32_t index;

	*run = heap_run_at(heap, address);
	if (!*run)
		return NULL;
	index = heap_index_at(*run, address);
	return index == UINT32_MAX ? NULL : &(*run)->blocks[index];
}

/* Free a block of ours whose header others read. That takes a CAS: a header
 * that says KEPT would let the block outlive us. */
static int free_shared(struct reef_heap *heap, uint64_t address, uint32_t flags)
{
	struct run *run;
	uint32_t *block, was;
	uint64_t header = 0;
	int rc;

	was = *heap_block_at(heap, address, &run);
	if (was & BLOCK_PENDING) {
		rc = reef_heap_flush(heap);
		if (rc)
			return rc;
	}
	if (!(was & BLOCK_ADOPTED))
		header = heap_block_header(
			heap, was,
			was & BLOCK_SHARED &&
					(uint8_t)(was >> 8) != REEF_BLOCK_PAGE
				? HEAP_BLOCK_KEPT
				: HEAP_BLOCK_LIVE);
	rc = heap_other_free(heap, address, flags, header, true);
	if (rc)
		return rc;
	block = heap_block_at(heap, address, &run);
	/* A scan in another fiber may have taken the block back meanwhile. */
	if (block && (*block & BLOCK_OUT) && !(*block & BLOCK_LIMBO) &&
	    (*block & BLOCK_GENERATION) == (was & BLOCK_GENERATION)) {
		uint32_t index = (uint32_t)(block - run->blocks);

		if (flags & REEF_FREE_LATER)
			heap_limbo_add(heap, run, index);
		else
			heap_block_give(heap, run, index);
	}
	return 0;
}

/* Free what is not in a run of ours in use. */
static rare int free_foreign(struct reef_heap *heap, uint64_t address,
			     uint32_t flags)
{
	struct extent *extent = heap_extent(heap, (uint32_t)(address >> 32));
	uint32_t chunk = (uint32_t)address >> 20;

	if ((address & 31) != HEAP_HEADER)
		return -EINVAL;
	if (extent && chunk < extent->shape.chunks &&
	    extent->chunks[chunk].mine)
		return -EALREADY; /* its slab is free, too */
	return heap_other_free(heap, address, flags, 0, false);
}

static rare int free_rare(struct reef_heap *heap, struct run *run,
			  uint32_t *block, uint64_t address, uint32_t flags)
{
	uint32_t index = (uint32_t)(block - run->blocks);

	if (!(*block & BLOCK_OUT) || *block & BLOCK_LIMBO)
		return -EALREADY;
	if (*block & BLOCK_FLYING) {
		/* The header being written must not overtake the next one:
		 * wait until it is there. */
		int rc = heap_lock(heap);

		if (rc)
			return rc;
		heap_unlock(heap);
		return reef_heap_free(heap, address, flags);
	}
	if (*block & (BLOCK_SHARED | BLOCK_ADOPTED))
		return free_shared(heap, address, flags);
	/* Its header was never written: nobody knows of it. But a WRITE of ours
	 * may have failed that can still come, so it waits all the same. */
	if (*block & BLOCK_PENDING) {
		*block &= ~(uint32_t)BLOCK_PENDING;
		heap->pending--;
	}
	if (flags & REEF_FREE_LATER)
		heap_limbo_add(heap, run, index);
	else
		heap_block_give(heap, run, index);
	/* A handle that only frees would never drain limbo otherwise. */
	if (heap->limbo_due && !heap->locked) {
		heap->limbo_due = false;
		heap_limbo_drain(heap);
	}
	/* Empty chunks that we do not need go back, a batch at a time. */
	if (heap->empty > 2 * heap->options.spare_max + 16 && !heap->locked)
		heap_trim(heap);
	reef_heap_tend(heap);
	return 0;
}

int reef_heap_free(struct reef_heap *heap, uint64_t address, uint32_t flags)
{
	struct run *run = heap->recent;
	uint32_t index, word;

	if (__builtin_expect(address - run->address >= run->span, 0)) {
		run = heap_run_at(heap, address);
		if (__builtin_expect(!run, 0))
			return free_foreign(heap, address, flags);
		if (run->kind == RUN_SLAB)
			heap->recent = run;
	}
	index = heap_index_at(run, address);
	if (__builtin_expect(index == UINT32_MAX, 0))
		return -EINVAL;
	word = run->blocks[index];
	/* A slab that was full, or becomes empty, changes lists: not here. */
	if (__builtin_expect((word & (BLOCK_OUT | BLOCK_RARE)) != BLOCK_OUT ||
				     flags ||
				     (heap->current[run->class] != run &&
				      (!heap_run_has_room(run) ||
				       heap_run_used(run) == 1)),
			     0))
		return free_rare(heap, run, &run->blocks[index], address,
				 flags);
	run->blocks[index] = word & (BLOCK_GENERATION | BLOCK_LISTED);
	run->stack[run->top++] = (uint32_t)address;
	heap->pending -= (word / BLOCK_PENDING) & 1;
	return 0;
}

void reef_heap_free_hint(const struct reef_heap *heap, uint64_t address)
{
	const struct run *run = heap_run_at(heap, address);

	/* Of a wrong address something useless is prefetched, no more. */
	if (run)
		__builtin_prefetch(run->blocks + (((address - run->address) *
						   run->inverse) >>
						  40),
				   1);
}

/* --- extents that go --- */

static void forget_run(struct reef_heap *heap, struct run *run)
{
	if (run->kind == RUN_FREE) {
		/* In no bin, so its units are never taken again. */
		heap_units_forget(heap, run);
		return;
	}
	for (uint32_t i = 0; i < run->count; i++)
		heap->pending -= (run->blocks[i] & BLOCK_PENDING) != 0;
	if (run->kind == RUN_BROKEN)
		heap_list_remove(&heap->broken, run);
	if (run->kind != RUN_SLAB)
		return;
	if (run->is_listed)
		heap_list_remove(&heap->partial[run->class], run);
	if (heap->recent == run)
		heap->recent = &heap->none;
	if (heap->current[run->class] == run)
		heap->current[run->class] = NULL;
	if (heap->vacant[run->class] == run)
		heap->vacant[run->class] = NULL;
}

void reef_heap_forget(struct reef_heap *heap, uint32_t number)
{
	struct extent *extent = heap_extent(heap, number);
	struct run *run, *last = NULL;

	if (!extent)
		return;
	heap_limbo_forget(heap, number);
	for (uint32_t i = 0; extent->runs && i < extent->shape.units; i++) {
		run = extent->runs[i];
		if (!run || run == last)
			continue;
		last = run;
		i = run->first + run->units - 1;
		forget_run(heap, run);
	}
	for (uint32_t i = 0; i < extent->shape.chunks; i++) {
		heap->chunks -= extent->chunks[i].mine;
		heap->empty -= heap_chunk_is_empty(extent, i);
	}
	for (uint32_t i = 0; i < HEAP_GUESSES; i++)
		if (heap->guesses[i].unit >> 16 == number)
			heap->guesses[i].unit = 0;
	extent->dead = true;
	heap->dead++;
	heap_table_remove(heap, extent);
	if (!heap->locked)
		free_dead_extents(heap);
}

/* --- sizes and counts --- */

int reef_heap_block_size(struct reef_heap *heap, uint64_t address,
			 uint64_t *size)
{
	struct run *run = heap_run_at(heap, address);
	uint32_t index;

	if (!run)
		return heap_other_size(heap, address, size);
	index = heap_index_at(run, address);
	if (index == UINT32_MAX || !(run->blocks[index] & BLOCK_OUT) ||
	    run->blocks[index] & BLOCK_LIMBO)
		return -EINVAL;
	*size = run->block_size - HEAP_HEADER;
	return 0;
}

static void stats_run(const struct run *run, struct reef_heap_stats *out)
{
	struct reef_heap_class_stats dummy = {0}, *class = &dummy;
	uint64_t live = 0, limbo = 0;

	for (uint32_t i = 0; i < run->count; i++) {
		limbo += (run->blocks[i] & BLOCK_LIMBO) != 0;
		live += (run->blocks[i] & (BLOCK_OUT | BLOCK_LIMBO)) ==
			BLOCK_OUT;
	}
	if (run->kind == RUN_SLAB)
		class = &out->by_class[run->class];
	class->blocks += run->count;
	class->live += live;
	class->limbo += limbo;
	out->units_used += run->units;
	out->bytes_live += live * run->block_size;
	out->bytes_limbo += limbo * run->block_size;
}

void reef_heap_stats(const struct reef_heap *heap, struct reef_heap_stats *out)
{
	const struct run *last = NULL;

	memset(out, 0, sizeof(*out));
	out->classes = heap->classes.count;
	out->chunks = heap->chunks;
	for (uint32_t i = 0; i < heap->classes.count; i++)
		out->by_class[i].block_size = heap->classes.all[i].block_size;
	for (struct extent *e = heap->extents; e; e = e->next)
		for (uint32_t i = 0; e->runs && i < e->shape.units; i++) {
			const struct run *run = e->runs[i];

			if (run && run != last && run->kind != RUN_FREE)
				stats_run(run, out);
			last = run;
		}
}
