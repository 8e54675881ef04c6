/* pending.c - headers that wait to be written (rule 4).
 *
 * A block that is allocated and freed again without a word to anyone costs
 * nothing here: its flag goes, and its place in the list stays for its next
 * life. So a block is in the list once, however often it lives. */
#include "pool/client/heap/internal.h"

#include "base/mutant.h"

bool reef_heap_has_pending(const struct reef_heap *heap)
{
	return heap->pending != 0 && !REEF_MUTATED(HEAP_LATE_HEADER);
}

bool reef_heap_fold(struct reef_heap *heap, uint64_t address, uint64_t *header)
{
	struct run *run;
	uint32_t *block;

	if (!reef_heap_has_pending(heap))
		return false;
	block = heap_block_at(heap, address, &run);
	if (!block ||
	    (*block & (BLOCK_PENDING | BLOCK_FLYING)) != BLOCK_PENDING)
		return false;
	*block &= ~(uint32_t)BLOCK_PENDING;
	heap->pending--;
	*header = heap_block_header(heap, *block, HEAP_BLOCK_LIVE);
	return true;
}

void reef_heap_unfold(struct reef_heap *heap, uint64_t address)
{
	struct run *run;
	uint32_t *block = heap_block_at(heap, address, &run);

	if (!block || !(*block & BLOCK_OUT) || *block & BLOCK_PENDING)
		return;
	/* Without room in the list the header is never written: the block ends
	 * with the session as if it had been freed. */
	if (*block & BLOCK_LISTED || heap->listed < HEAP_PENDING_MAX)
		heap_pending_add(heap, block, address);
}

/* Remove addresses from the list whose headers do not wait any more. */
static void compact_list(struct reef_heap *heap)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < heap->listed; i++) {
		uint64_t address = heap->pending_list[i];
		struct run *run;
		uint32_t *block = heap_block_at(heap, address, &run);

		if (!block || !(*block & BLOCK_LISTED))
			continue;
		if (*block & BLOCK_PENDING)
			heap->pending_list[kept++] = address;
		else
			*block &= ~(uint32_t)BLOCK_LISTED;
	}
	heap->listed = kept;
}

/* Take up to HEAP_BATCH headers that wait off the list, and make WRITEs. */
static uint32_t take_headers(struct reef_heap *heap,
			     struct reef_access *accesses, uint64_t *headers)
{
	uint32_t count = 0;

	while (heap->listed && count < HEAP_BATCH) {
		uint64_t address = heap->pending_list[--heap->listed];
		struct run *run;
		uint32_t *block = heap_block_at(heap, address, &run);

		if (!block || !(*block & BLOCK_LISTED))
			continue;
		*block &= ~(uint32_t)BLOCK_LISTED;
		if (!(*block & BLOCK_PENDING))
			continue;
		*block |= BLOCK_FLYING;
		headers[count] =
			heap_block_header(heap, *block, HEAP_BLOCK_LIVE);
		accesses[count] =
			heap_write(address - HEAP_HEADER, &headers[count], 8);
		count++;
	}
	return count;
}

/* Take in whether a header was written; one that was not waits again. */
static int settle_header(struct reef_heap *heap,
			 const struct reef_access *access)
{
	uint64_t address = access->address + HEAP_HEADER;
	struct run *run;
	uint32_t *block = heap_block_at(heap, address, &run);

	if (heap_is_lost(access->status))
		reef_heap_forget(heap, (uint32_t)(address >> 32));
	else if (block && *block & BLOCK_FLYING) {
		*block &= ~(uint32_t)BLOCK_FLYING;
		if (access->status == 0) {
			*block &= ~(uint32_t)BLOCK_PENDING;
			heap->pending--;
			return 0;
		}
		heap->pending_list[heap->listed++] = address;
		*block |= BLOCK_LISTED;
	}
	/* What was not done stood behind a lost one: it comes next time. */
	return heap_is_lost(access->status) || access->status == -REEF_ENOTDONE
		       ? 0
		       : access->status;
}

int heap_pending_write(struct reef_heap *heap)
{
	struct reef_access accesses[HEAP_BATCH];
	uint64_t headers[HEAP_BATCH];
	uint32_t count;
	int rc = 0, one;

	while (!rc && (count = take_headers(heap, accesses, headers))) {
		heap_execute_writes(heap, accesses, count);
		for (uint32_t i = 0; i < count; i++) {
			one = settle_header(heap, &accesses[i]);
			rc = rc ? rc : one;
		}
	}
	return rc;
}

int heap_pending_room(struct reef_heap *heap)
{
	int rc;

	compact_list(heap);
	if (heap->listed < HEAP_PENDING_MAX / 2)
		return 0;
	rc = heap_lock(heap);
	if (rc)
		return rc;
	rc = heap_pending_write(heap);
	heap_unlock(heap);
	return rc;
}

int reef_heap_flush(struct reef_heap *heap)
{
	int rc = heap_lock(heap);

	if (rc)
		return rc;
	rc = heap_pending_write(heap);
	heap_unlock(heap);
	return rc;
}
