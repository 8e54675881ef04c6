/* collect.c - taking back what others freed, and limbo (R8).
 *
 * Others change a header by CAS and add 1 to the chunk's counter, in one batch
 * but in no order (F3c). So a counter that has moved says where to look, and
 * not that everything is there yet: a chunk is scanned until as many blocks
 * were found, at most TRIES times. What a freer that died did not count is
 * found when memory runs short and every block is looked at.
 *
 * Limbo is short when epochs are: where much is in it, the keeper is asked to
 * hurry, once per epoch. */
#include "pool/client/heap/internal.h"

#include "base/mutant.h"

#include <stdatomic.h>

#define BULK_MAX 512u /* block size up to which whole units are read */
#define BULK_BATCH 16u
#define AHEAD 8u      /* blocks that are fetched before their turn */
#define SPARE_PART 4u /* chunks in use for each empty one that is kept */
#define HURRY_MIN (UINT64_C(1) << 20) /* bytes in limbo */
#define HURRY_MAX (UINT64_C(16) << 20)
#define HURRY_PART 64u /* of the memory that we own */
#define TELL_STEP (UINT64_C(64) << 10)

/* --- limbo --- */

static int limbo_grow(struct reef_heap *heap)
{
	uint32_t capacity =
		heap->limbo_capacity ? heap->limbo_capacity * 2 : 64;
	struct limbo_entry *ring = malloc(capacity * sizeof(*ring));

	if (!ring)
		return -ENOMEM;
	reef_assert(heap->limbo_count <= heap->limbo_capacity);
	for (uint32_t i = 0; i < heap->limbo_count; i++)
		ring[i] = heap->limbo[(heap->limbo_first + i) %
				      heap->limbo_capacity];
	free(heap->limbo);
	heap->limbo = ring;
	heap->limbo_first = 0;
	heap->limbo_capacity = capacity;
	return 0;
}

/* True if so much waits in limbo that epochs should pass quickly. */
static bool is_limbo_large(const struct reef_heap *heap)
{
	uint64_t part = heap->chunks * REEF_CHUNK_SIZE / HURRY_PART;

	part = part > HURRY_MIN ? part : HURRY_MIN;
	return heap->limbo_bytes > (part < HURRY_MAX ? part : HURRY_MAX);
}

/* Let epochs pass quickly until blocks freed in `epoch` may be reused. */
static void hurry_limbo(struct reef_heap *heap, uint64_t epoch)
{
	const struct reef_heap_ops *ops = heap->options.ops;

	heap->limbo_hurried = epoch;
	heap->limbo_due = true;
	if (ops->hurry)
		ops->hurry(heap->options.context, epoch + 1);
}

/* Tell how much waits in limbo, not with every block: others count it, too. */
static void tell_limbo(struct reef_heap *heap)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	uint64_t bytes = heap->limbo_bytes, told = heap->limbo_told;
	uint64_t change = bytes > told ? bytes - told : told - bytes;

	if (!change || !ops->waiting || (bytes && change < TELL_STEP))
		return;
	heap->limbo_told = bytes;
	ops->waiting(heap->options.context,
		     bytes > told ? (int64_t)change : -(int64_t)change);
}

void heap_limbo_add(struct reef_heap *heap, struct run *run, uint32_t index)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	uint64_t epoch;

	if (REEF_MUTATED(HEAP_EARLY_REUSE)) {
		heap_block_give(heap, run, index);
		return;
	}
	run->blocks[index] |= BLOCK_LIMBO;
	run->blocks[index] &= ~(uint32_t)BLOCK_UNJUDGED;
	if (heap->limbo_count == heap->limbo_capacity && limbo_grow(heap))
		return;
	epoch = ops->reclaim_epoch(heap->options.context);
	heap->limbo[(heap->limbo_first + heap->limbo_count++) %
		    heap->limbo_capacity] = (struct limbo_entry){
		.address = heap_block_address(run, index),
		.epoch = epoch,
	};
	heap->limbo_bytes += run->block_size;
	tell_limbo(heap);
	if (heap->limbo_hurried != epoch && is_limbo_large(heap))
		hurry_limbo(heap, epoch);
}

void heap_limbo_forget(struct reef_heap *heap, uint32_t number)
{
	struct run *run;
	uint64_t address;

	for (uint32_t i = 0; i < heap->limbo_count; i++) {
		address = heap->limbo[(heap->limbo_first + i) %
				      heap->limbo_capacity]
				  .address;
		if (address >> 32 == number &&
		    heap_block_at(heap, address, &run))
			heap->limbo_bytes -= run->block_size;
	}
	tell_limbo(heap);
}

bool heap_limbo_drain(struct reef_heap *heap)
{
	uint64_t safe;
	bool any = false;

	if (!heap->limbo_count)
		return false;
	safe = heap->options.ops->safe_epoch(heap->options.context);
	while (heap->limbo_count &&
	       heap->limbo[heap->limbo_first].epoch < safe) {
		/* Blocks lie far apart: begin to fetch a later one's state. */
		if (heap->limbo_count > AHEAD)
			reef_heap_free_hint(
				heap, heap->limbo[(heap->limbo_first + AHEAD) %
						  heap->limbo_capacity]
					      .address);
		uint64_t address = heap->limbo[heap->limbo_first].address;
		struct run *run;
		uint32_t *block = heap_block_at(heap, address, &run);

		heap->limbo_first =
			(heap->limbo_first + 1) % heap->limbo_capacity;
		heap->limbo_count--;
		if (!block || !(*block & BLOCK_LIMBO))
			continue; /* its extent is gone */
		heap->limbo_bytes -= run->block_size;
		heap_block_give(heap, run, (uint32_t)(block - run->blocks));
		any = true;
	}
	tell_limbo(heap);
	return any;
}

bool reef_heap_is_waiting(const struct reef_heap *heap, uint64_t *epoch)
{
	if (!heap->limbo_count)
		return false;
	*epoch = heap->limbo[heap->limbo_first].epoch;
	return true;
}

/* --- others' frees --- */

struct scan {
	struct reef_heap *heap;
	struct reef_access accesses[HEAP_BATCH];
	uint64_t words[HEAP_BATCH];
	uint8_t *bulk; /* BULK_BATCH units */
	uint32_t count, bulk_count;
};

/* The header of a block of ours was read: take the block back if it says that
 * another freed it. The block is found by its address, as this fiber has parked
 * since. */
static void take_back_block(struct reef_heap *heap, uint64_t address,
			    uint64_t header)
{
	struct run *run;
	uint32_t *block = heap_block_at(heap, address, &run);
	struct chunk *chunk;
	uint32_t index;

	if (!block ||
	    (*block & (BLOCK_OUT | BLOCK_LIMBO | BLOCK_PENDING)) != BLOCK_OUT)
		return;
	if (*block >> 16 != heap_header_generation(header) ||
	    (!(*block & BLOCK_ADOPTED) && header >> 32 != heap->session))
		return; /* the header is of another life */
	chunk = &run->extent->chunks[(uint32_t)address >> 20];
	index = (uint32_t)(block - run->blocks);
	switch (heap_header_state(header)) {
	case HEAP_BLOCK_FREE:
		chunk->found++;
		heap_block_give(heap, run, index);
		break;
	case HEAP_BLOCK_RETIRED:
		chunk->found++;
		heap_limbo_add(heap, run, index);
		break;
	case HEAP_BLOCK_KEPT:
		chunk->found += !(*block & BLOCK_SHARED);
		*block |= BLOCK_SHARED;
		break;
	default:
		break;
	}
}

/* The same for each block that begins in a unit whose bytes were read. */
static void take_back_unit(struct reef_heap *heap, uint64_t start,
			   const uint8_t *bytes)
{
	struct run *run = heap_run_at(heap, start);
	uint64_t address, header;

	for (uint32_t i = 0; run && i < run->count; i++) {
		address = heap_block_address(run, i);
		if (address < start || address > start + REEF_UNIT_SIZE)
			continue;
		memcpy(&header, bytes + (address - HEAP_HEADER - start), 8);
		take_back_block(heap, address, header);
		/* The run goes with its last block. */
		run = heap_run_at(heap, start);
	}
}

static int scan_execute(struct scan *scan)
{
	struct reef_heap *heap = scan->heap;
	int rc = 0;

	if (!scan->count)
		return 0;
	heap_execute_reads(heap, scan->accesses, scan->count);
	for (uint32_t i = 0; i < scan->count; i++) {
		struct reef_access *access = &scan->accesses[i];

		if (heap_is_lost(access->status))
			reef_heap_forget(heap,
					 (uint32_t)(access->address >> 32));
		else if (access->status == -REEF_ENOTDONE)
			continue;
		else if (access->status)
			rc = rc ? rc : access->status;
		else if (access->length == 8)
			take_back_block(heap, access->address + HEAP_HEADER,
					scan->words[i]);
		else
			take_back_unit(heap, access->address, access->local);
	}
	scan->count = scan->bulk_count = 0;
	return rc;
}

static int scan_add(struct scan *scan, uint64_t address, bool bulk)
{
	if (bulk)
		scan->accesses[scan->count] = heap_read(
			address,
			scan->bulk + scan->bulk_count++ * REEF_UNIT_SIZE,
			REEF_UNIT_SIZE);
	else
		scan->accesses[scan->count] =
			heap_read(address, &scan->words[scan->count], 8);
	scan->count++;
	if (scan->count == HEAP_BATCH || scan->bulk_count == BULK_BATCH)
		return scan_execute(scan);
	return 0;
}

/* Read the headers of the blocks that begin in a unit. */
static int scan_unit(struct scan *scan, struct extent *extent, uint32_t unit)
{
	uint64_t start =
		heap_address(extent->number, (uint64_t)unit << HEAP_UNIT_SHIFT);
	struct run *run = extent->runs[unit];
	uint64_t address;
	int rc;

	if (!run || !heap_run_used(run))
		return 0;
	if (run->block_size <= BULK_MAX)
		return scan_add(scan, start, true);
	for (uint32_t i = 0;; i++) {
		run = extent->runs[unit]; /* may be gone, or another */
		if (!run || extent->dead || i >= run->count)
			return 0;
		address = heap_block_address(run, i);
		if (address < start || address > start + REEF_UNIT_SIZE ||
		    (run->blocks[i] &
		     (BLOCK_OUT | BLOCK_LIMBO | BLOCK_PENDING)) != BLOCK_OUT)
			continue;
		rc = scan_add(scan, address - HEAP_HEADER, false);
		if (rc)
			return rc;
	}
}

static int scan_chunk(struct scan *scan, struct extent *extent, uint32_t index)
{
	uint32_t end = heap_chunk_end(&extent->shape, index);
	int rc = 0;

	for (uint32_t unit = heap_chunk_first(&extent->shape, index);
	     unit < end && !rc && !extent->dead; unit++)
		rc = scan_unit(scan, extent, unit);
	return rc;
}

static bool is_scan_due(const struct chunk *chunk, bool everywhere)
{
	return chunk->mine &&
	       (everywhere || (chunk->counter != chunk->found && chunk->tries));
}

/* A chunk was scanned. Frees that were counted and not found are looked for
 * again a few times; those found before they were counted even out. */
static void scan_settle(struct chunk *chunk)
{
	if (chunk->tries)
		chunk->tries--;
	if (!chunk->tries || chunk->found > chunk->counter)
		chunk->found = chunk->counter;
}

int heap_scan(struct reef_heap *heap, bool everywhere)
{
	struct scan *scan = malloc(sizeof(*scan));
	int rc = 0;

	if (!scan)
		return -ENOMEM;
	scan->heap = heap;
	scan->count = scan->bulk_count = 0;
	scan->bulk = malloc(BULK_BATCH * REEF_UNIT_SIZE);
	if (!scan->bulk)
		rc = -ENOMEM;
	for (struct extent *e = heap->extents; e && !rc; e = e->next)
		for (uint32_t i = 0; e->mine && i < e->shape.chunks && !rc; i++)
			if (!e->dead && is_scan_due(&e->chunks[i], everywhere))
				rc = scan_chunk(scan, e, i);
	if (!rc)
		rc = scan_execute(scan);
	for (struct extent *e = heap->extents; e && !rc; e = e->next)
		for (uint32_t i = 0; e->mine && i < e->shape.chunks; i++)
			if (!e->dead && is_scan_due(&e->chunks[i], everywhere))
				scan_settle(&e->chunks[i]);
	free(scan->bulk);
	free(scan);
	return rc;
}

/* How many empty chunks to keep: fewer where little is in use. */
static uint32_t spares_of(const struct reef_heap *heap)
{
	uint32_t some = (heap->chunks - heap->empty) / SPARE_PART;

	return some < heap->options.spare_max ? some : heap->options.spare_max;
}

void reef_heap_tend(struct reef_heap *heap)
{
	uint32_t beat;

	if (!heap->options.beats || heap->locked)
		return;
	beat = atomic_load_explicit(heap->options.beats, memory_order_relaxed);
	if (beat == heap->beat)
		return;
	heap->beat = beat;
	reef_heap_collect(heap, false);
}

int reef_heap_collect(struct reef_heap *heap, bool all)
{
	int rc = heap_lock(heap);

	if (rc)
		return rc;
	heap_notify_owners(heap);
	rc = heap_read_tables(heap);
	if (!rc)
		rc = heap_scan(heap, all);
	heap_limbo_drain(heap);
	heap_vacant_drop(heap, true);
	if (!rc)
		rc = heap_release(heap, all ? 0 : spares_of(heap));
	heap_unlock(heap);
	return rc;
}

/* Limbo is drained first, as that takes no operation. */
int reef_heap_reclaim(struct reef_heap *heap, uint64_t *given, uint64_t *epoch)
{
	uint64_t before = *given ? *given : heap->given;
	int rc = heap_lock(heap);

	if (rc)
		return rc;
	heap_limbo_drain(heap);
	if (heap->given == before) {
		heap_notify_owners(heap);
		rc = heap_read_tables(heap);
		if (!rc)
			rc = heap_scan(heap, false);
		heap_limbo_drain(heap);
	}
	heap_unlock(heap);
	if (rc)
		return rc;
	*given = heap->given;
	if (heap->given != before)
		return 1;
	return reef_heap_is_waiting(heap, epoch) ? 0 : -ENOSPC;
}
