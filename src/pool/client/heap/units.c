/* units.c - extents, and the free units of our chunks.
 *
 * Free units next to each other are one free run, also across the border of two
 * chunks of ours. Runs stand in bins by their length; the shortest that is long
 * enough is taken, from its low end (see (B) in internal.h). */
#include "pool/client/heap/internal.h"

/* --- extents --- */

static void table_put(struct reef_heap *heap, struct extent *extent)
{
	uint32_t slot = extent->number & heap->table_mask;

	while (heap->table[slot])
		slot = (slot + 1) & heap->table_mask;
	heap->table[slot] = extent;
}

static int table_grow(struct reef_heap *heap)
{
	uint32_t slots = (heap->table_mask + 1) * 2;
	struct extent **old = heap->table;
	struct extent **table = calloc(slots, sizeof(struct extent *));

	if (!table)
		return -ENOMEM;
	heap->table = table;
	heap->table_mask = slots - 1;
	for (struct extent *e = heap->extents; e; e = e->next)
		if (!e->dead)
			table_put(heap, e);
	free(old);
	return 0;
}

void heap_table_remove(struct reef_heap *heap, struct extent *extent)
{
	/* Open addressing: those behind it may have to move up. */
	memset(heap->table, 0,
	       (heap->table_mask + 1) * sizeof(struct extent *));
	for (struct extent *e = heap->extents; e; e = e->next)
		if (!e->dead && e != extent)
			table_put(heap, e);
	heap->table_count--;
}

struct extent *heap_extent_add(struct reef_heap *heap, uint32_t number,
			       uint64_t size)
{
	struct extent *extent = heap_extent(heap, number);

	if (extent)
		return extent;
	if (heap->table_count * 2 > heap->table_mask && table_grow(heap))
		return NULL;
	extent = calloc(1, sizeof(*extent));
	if (!extent)
		return NULL;
	extent->number = number;
	extent->shape = heap_shape_of(size);
	extent->chunks =
		calloc(extent->shape.chunks + 1, sizeof(*extent->chunks));
	if (!extent->chunks) {
		free(extent);
		return NULL;
	}
	extent->next = heap->extents;
	heap->extents = extent;
	heap->table_count++;
	table_put(heap, extent);
	return extent;
}

int heap_extent_own(struct extent *extent)
{
	uint32_t units = extent->shape.units;

	if (!extent->runs)
		extent->runs = calloc(units, sizeof(struct run *));
	if (!extent->shadow)
		extent->shadow = calloc(units, sizeof(*extent->shadow));
	return extent->runs && extent->shadow ? 0 : -ENOMEM;
}

void heap_extent_free(struct extent *extent)
{
	struct run *run, *last = NULL;

	for (uint32_t i = 0; extent->runs && i < extent->shape.units; i++) {
		run = extent->runs[i];
		if (!run || run == last)
			continue;
		/* A free run is named at both ends: free it once. */
		last = run;
		i = run->first + run->units - 1;
		if (run->kind == RUN_SLAB)
			free(run->blocks);
		free(run);
	}
	free(extent->runs);
	free(extent->shadow);
	free(extent->chunks);
	free(extent);
}

/* --- lists --- */

void heap_list_add(struct run **list, struct run *run)
{
	run->prev = NULL;
	run->next = *list;
	if (run->next)
		run->next->prev = run;
	*list = run;
	run->is_listed = true;
}

void heap_list_remove(struct run **list, struct run *run)
{
	if (run->prev)
		run->prev->next = run->next;
	else
		*list = run->next;
	if (run->next)
		run->next->prev = run->prev;
	run->is_listed = false;
}

static uint32_t bin_of(uint32_t units)
{
	return units < HEAP_BINS - 1 ? units : HEAP_BINS - 1;
}

/* Bit 0 stands for the last bin: no run has 0 units. */
static uint64_t bin_bit(uint32_t bin)
{
	return UINT64_C(1) << (bin & 63);
}

static void bin_add(struct reef_heap *heap, struct run *run)
{
	uint32_t bin = bin_of(run->units);

	run->kind = RUN_FREE;
	run->count = 0;
	heap_list_add(&heap->bins[bin], run);
	heap->bins_used |= bin_bit(bin);
	run->extent->runs[run->first] = run;
	run->extent->runs[run->first + run->units - 1] = run;
}

static void bin_remove(struct reef_heap *heap, struct run *run)
{
	uint32_t bin = bin_of(run->units);

	heap_list_remove(&heap->bins[bin], run);
	if (!heap->bins[bin])
		heap->bins_used &= ~bin_bit(bin);
	run->extent->runs[run->first] = NULL;
	run->extent->runs[run->first + run->units - 1] = NULL;
}

/* The shortest run of a bin that is long enough; NULL: none. */
static struct run *bin_best(const struct reef_heap *heap, uint32_t bin,
			    uint32_t units)
{
	struct run *best = NULL;

	for (struct run *run = heap->bins[bin]; run; run = run->next)
		if (run->units >= units && (!best || run->units < best->units))
			best = run;
	return best;
}

/* --- units --- */

/* Note in the maps of their chunks that units are free, or are not. */
static void mark_units(struct reef_heap *heap, struct extent *extent,
		       uint32_t first, uint32_t end, bool free)
{
	for (uint32_t unit = first; unit < end;) {
		uint32_t index = unit / HEAP_UNITS_PER_CHUNK;
		uint32_t start = index * HEAP_UNITS_PER_CHUNK;
		uint32_t stop = heap_chunk_end(&extent->shape, index);
		struct chunk *chunk = &extent->chunks[index];
		uint16_t map;

		stop = stop < end ? stop : end;
		map = (uint16_t)(((1u << (stop - start)) - 1) &
				 ~((1u << (unit - start)) - 1));
		reef_assert((chunk->free_map & map) == (free ? 0 : map));
		heap->empty -= heap_chunk_is_empty(extent, index);
		chunk->free_map ^= map;
		heap->empty += heap_chunk_is_empty(extent, index);
		unit = stop;
	}
}

static struct run *best_fit(const struct reef_heap *heap, uint32_t units)
{
	uint64_t fits = 0;

	if (units < HEAP_BINS - 1)
		fits = heap->bins_used & ~(bin_bit(units) - 1) & ~UINT64_C(1);
	return fits ? heap->bins[__builtin_ctzll(fits)]
		    : bin_best(heap, HEAP_BINS - 1, units);
}

bool heap_units_has(const struct reef_heap *heap, uint32_t units)
{
	return best_fit(heap, units) != NULL;
}

struct run *heap_units_take(struct reef_heap *heap, uint32_t units)
{
	struct run *best = best_fit(heap, units), *run;

	if (!best)
		return NULL;
	if (best->units == units) {
		bin_remove(heap, best);
		run = best;
	} else {
		run = calloc(1, sizeof(*run));
		if (!run)
			return NULL;
		bin_remove(heap, best);
		run->extent = best->extent;
		run->first = best->first;
		run->units = units;
		best->first += units;
		best->units -= units;
		bin_add(heap, best);
	}
	mark_units(heap, run->extent, run->first, run->first + units, false);
	return run;
}

void heap_units_give(struct reef_heap *heap, struct run *run)
{
	struct extent *extent = run->extent;
	uint32_t end = run->first + run->units;
	struct run *near;

	memset(&extent->runs[run->first], 0, run->units * sizeof(struct run *));
	mark_units(heap, extent, run->first, end, true);
	near = run->first ? extent->runs[run->first - 1] : NULL;
	if (near && near->kind == RUN_FREE) {
		bin_remove(heap, near);
		run->first = near->first;
		run->units += near->units;
		free(near);
	}
	near = end < extent->shape.units ? extent->runs[end] : NULL;
	if (near && near->kind == RUN_FREE) {
		bin_remove(heap, near);
		run->units += near->units;
		free(near);
	}
	bin_add(heap, run);
}

int heap_units_add(struct reef_heap *heap, struct extent *extent,
		   uint32_t first, uint32_t end)
{
	struct run *run = calloc(1, sizeof(*run));

	if (!run)
		return -ENOMEM;
	run->extent = extent;
	run->first = first;
	run->units = end - first;
	heap_units_give(heap, run);
	return 0;
}

/* The free run that a unit is in, found by going down to one that names it. */
static struct run *free_run_of(const struct extent *extent, uint32_t unit)
{
	uint32_t at = unit;

	while (!extent->runs[at])
		reef_assert(at-- > 0);
	reef_assert(extent->runs[at]->kind == RUN_FREE);
	reef_assert(unit < extent->runs[at]->first + extent->runs[at]->units);
	return extent->runs[at];
}

/* Take units that are all of one free run out of it. */
static int cut_run(struct reef_heap *heap, struct run *run, uint32_t first,
		   uint32_t end)
{
	struct extent *extent = run->extent;
	uint32_t run_end = run->first + run->units;
	struct run *rest = NULL;

	reef_assert(run->first <= first && run_end >= end);
	if (run_end > end && run->first < first) {
		rest = calloc(1, sizeof(*rest));
		if (!rest)
			return -ENOMEM;
	}
	bin_remove(heap, run);
	mark_units(heap, extent, first, end, false);
	if (run->first < first) {
		run->units = first - run->first;
		bin_add(heap, run);
		run = rest;
	}
	if (run_end > end) {
		run->extent = extent;
		run->first = end;
		run->units = run_end - end;
		bin_add(heap, run);
	} else {
		free(run); /* NULL: the lower part goes on as that run */
	}
	return 0;
}

int heap_units_remove(struct reef_heap *heap, struct extent *extent,
		      uint32_t chunk)
{
	uint32_t first = heap_chunk_first(&extent->shape, chunk);

	return cut_run(heap, free_run_of(extent, first), first,
		       heap_chunk_end(&extent->shape, chunk));
}

static bool is_unit_free(const struct extent *extent, uint32_t unit)
{
	return extent->chunks[unit / HEAP_UNITS_PER_CHUNK].free_map &
	       1u << unit % HEAP_UNITS_PER_CHUNK;
}

int heap_units_cut(struct reef_heap *heap, struct extent *extent,
		   uint32_t first, uint32_t end)
{
	uint32_t unit = first, to;
	int rc = 0;

	while (unit < end && !rc) {
		if (!is_unit_free(extent, unit)) {
			unit++;
			continue;
		}
		for (to = unit; to < end && is_unit_free(extent, to); to++)
			;
		rc = cut_run(heap, free_run_of(extent, unit), unit, to);
		unit = to;
	}
	return rc;
}

void heap_units_forget(struct reef_heap *heap, struct run *run)
{
	uint32_t bin = bin_of(run->units);

	/* runs[] keeps naming it, so that heap_extent_free finds it. */
	heap_list_remove(&heap->bins[bin], run);
	if (!heap->bins[bin])
		heap->bins_used &= ~bin_bit(bin);
}
