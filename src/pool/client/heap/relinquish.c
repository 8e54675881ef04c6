/* relinquish.c - giving away chunks with blocks in them.
 *
 *                      headers, descriptors: WRITE     word: CAS
 *   OWNED by us, g ------------------------------> ----------------> ABANDONED
 *                       (nothing changes: a retry        |           g + 1
 *                        begins anew)              LEAVING: no longer ours
 *
 * A chunk that is ABANDONED is nobody's, and its words say all there is to
 * know: each block was judged, those that are out are LIVE or KEPT (or others
 * have freed them since), the rest are FREE or never were; no unit that is free
 * has a head. Whoever adopts it (adopt.c) reads that and judges nothing again.
 *
 *   (a) Chunks that a run ties together, a *chain*, go together: the first one
 *       last, when all others are ABANDONED. So whoever sees the first chunk
 *       ABANDONED may have all of them; and if we die halfway, it names us, and
 *       our own recovery finds the same chain (adopt.c).
 *   (b) A chain in which a block waits, in limbo or to be judged, stays ours.
 *       Chunks without a block are released as FREE, not here.
 *   (c) A CAS that could not be done is done by the next call: until then the
 *       chunk is LEAVING, and nothing in it is used. */
#include "pool/client/heap/internal.h"

#include "base/mutant.h"

#define DOUBT_MAX 16u

struct relinquish {
	struct reef_heap *heap;
	struct extent *extent;
	uint32_t first, last; /* chunks of the chain */
	struct run **runs;    /* in use, of the chain */
	uint32_t runs_count, runs_room;
	struct reef_access *writes;
	uint64_t *headers; /* what they write */
	uint32_t count, room;
	int rc;
};

/* --- chains --- */

/* The last chunk of the chain that begins with that one. */
static uint32_t chain_end(const struct extent *extent, uint32_t first)
{
	uint32_t last = first, border;
	const struct run *run;

	while (last + 1 < extent->shape.chunks) {
		border = heap_chunk_end(&extent->shape, last);
		run = extent->runs[border - 1];
		/* A free run may cross the border, and ties nothing. */
		if (!run || run->kind == RUN_FREE ||
		    extent->runs[border] != run)
			break;
		last++;
	}
	return last;
}

/* True if nothing in a run keeps it with us. */
static bool is_quiet(const struct run *run)
{
	const uint32_t waits = REEF_MUTATED(HEAP_ABANDON_UNJUDGED)
				       ? 0
				       : BLOCK_LIMBO | BLOCK_UNJUDGED |
						 BLOCK_PENDING | BLOCK_FLYING;

	if (run->kind != RUN_SLAB && run->kind != RUN_LARGE)
		return false;
	for (uint32_t i = 0; i < run->count; i++)
		if (run->blocks[i] & waits)
			return false;
	return true;
}

/* Gather the runs of the chain. 1: it may go.  0: it stays.  -ENOMEM. */
static int chain_gather(struct relinquish *r)
{
	const struct heap_shape *shape = &r->extent->shape;
	uint32_t end = heap_chunk_end(shape, r->last), unit;
	struct run *run, **more;

	r->runs_count = 0;
	for (uint32_t c = r->first; c <= r->last; c++)
		if (!r->extent->chunks[c].mine || r->extent->chunks[c].partly)
			return 0;
	for (unit = heap_chunk_first(shape, r->first); unit < end; unit++) {
		run = r->extent->runs[unit];
		if (!run || run->kind == RUN_FREE)
			continue;
		if (!is_quiet(run))
			return 0;
		if (r->runs_count == r->runs_room) {
			r->runs_room = r->runs_room ? 2 * r->runs_room : 64;
			more = realloc(r->runs,
				       r->runs_room * sizeof(struct run *));
			if (!more)
				return -ENOMEM;
			r->runs = more;
		}
		r->runs[r->runs_count++] = run;
		unit = run->first + run->units - 1;
	}
	return r->runs_count > 0;
}

/* --- what is written before --- */

static int write_headers(struct relinquish *r)
{
	int rc = r->count ? heap_execute_writes(r->heap, r->writes, r->count)
			  : 0;

	r->count = 0;
	return rc;
}

/* A header that does not say that its block is free is made to. */
static void settle_header(void *context, struct run *run, uint32_t index,
			  uint64_t header)
{
	struct relinquish *r = context;

	if (run->blocks[index] & BLOCK_OUT || !header ||
	    heap_header_state(header) == HEAP_BLOCK_FREE || r->rc)
		return;
	r->headers[r->count] = heap_header_with(header, HEAP_BLOCK_FREE);
	r->writes[r->count] =
		heap_write(heap_block_address(run, index) - HEAP_HEADER,
			   &r->headers[r->count], 8);
	if (++r->count == HEAP_BATCH)
		r->rc = write_headers(r);
}

static int settle_headers(struct relinquish *r)
{
	int rc;

	r->count = 0;
	r->rc = 0;
	rc = heap_read_headers(r->heap, r->runs, r->runs_count, settle_header,
			       r);
	if (!rc)
		rc = r->rc;
	return rc ? rc : write_headers(r);
}

/* Free units lose the heads of what was there once. */
static int settle_descriptors(struct relinquish *r)
{
	struct extent *extent = r->extent;
	uint32_t first = heap_chunk_first(&extent->shape, r->first);
	uint32_t end = heap_chunk_end(&extent->shape, r->last), count;
	struct reef_access accesses[2];
	struct chunk *chunk;

	count = heap_cut_cover(extent, first, accesses, 0);
	for (uint32_t unit = first; unit < end; unit++) {
		chunk = &extent->chunks[unit / HEAP_UNITS_PER_CHUNK];
		if (extent->shadow[unit] &&
		    chunk->free_map & 1u << unit % HEAP_UNITS_PER_CHUNK)
			extent->shadow[unit] =
				heap_descriptor(HEAP_UNIT_SPARE, 0, 0);
	}
	accesses[count++] =
		heap_write(heap_descriptor_at(extent, first),
			   &extent->shadow[first], (end - first) * 8);
	return heap_execute_writes(r->heap, accesses, count);
}

/* --- leaving --- */

static void chain_detach(struct relinquish *r)
{
	const struct heap_shape *shape = &r->extent->shape;

	for (uint32_t i = 0; i < r->runs_count; i++)
		heap_run_forget(r->heap, r->runs[i]);
	/* Beside runs in use no free run spans the chain: nothing can fail. */
	reef_assert(!heap_units_cut(r->heap, r->extent,
				    heap_chunk_first(shape, r->first),
				    heap_chunk_end(shape, r->last)));
	for (uint32_t c = r->first; c <= r->last; c++) {
		r->extent->chunks[c].mine = false;
		r->extent->chunks[c].leaving =
			c == r->first ? LEAVING_FIRST : LEAVING_OTHER;
		r->extent->mine--;
		r->heap->chunks--;
	}
}

static int relinquish_chain(struct relinquish *r)
{
	int rc = chain_gather(r);

	if (rc <= 0)
		return rc;
	rc = settle_headers(r);
	if (!rc && !r->extent->dead)
		rc = settle_descriptors(r);
	if (!rc && !r->extent->dead)
		chain_detach(r);
	return rc;
}

/* True if this chunk's CAS may be done now (a). */
static bool may_leave(const struct extent *extent, uint32_t chunk, bool first)
{
	uint32_t next = chunk + 1;

	if (!first)
		return extent->chunks[chunk].leaving == LEAVING_OTHER;
	return extent->chunks[chunk].leaving == LEAVING_FIRST &&
	       (next >= extent->shape.chunks ||
		extent->chunks[next].leaving != LEAVING_OTHER);
}

static uint64_t abandoned_word(uint64_t word)
{
	return heap_chunk_word(
		0, heap_generation_after(heap_chunk_generation(word)), 0,
		HEAP_CHUNK_ABANDONED);
}

/* Do the CAS of some chunks. Whatever their words were, when it was done they
 * do not name us. */
static int leave_chunks(struct reef_heap *heap, struct extent *extent,
			struct reef_access *accesses, const uint32_t *chunks,
			uint32_t count)
{
	int rc = 0, status;

	if (count)
		heap_execute(heap, accesses, count);
	for (uint32_t i = 0; i < count && !extent->dead; i++) {
		for (uint32_t n = 0;
		     accesses[i].status == -REEF_EINDOUBT && n < DOUBT_MAX; n++)
			heap_execute(heap, &accesses[i], 1);
		status = accesses[i].status;
		if (heap_is_lost(status))
			reef_heap_forget(heap, extent->number);
		else if (status)
			rc = rc ? rc : status;
		else {
			extent->chunks[chunks[i]].leaving = LEAVING_NONE;
			extent->chunks[chunks[i]].word =
				accesses[i].result == accesses[i].compare
					? accesses[i].operand
					: accesses[i].result;
		}
	}
	return rc;
}

static int leave_round(struct reef_heap *heap, struct extent *extent,
		       bool first)
{
	struct reef_access accesses[HEAP_BATCH];
	uint32_t chunks[HEAP_BATCH], count = 0;
	int rc = 0;

	for (uint32_t i = 0; i < extent->shape.chunks && !rc; i++) {
		if (extent->dead || !may_leave(extent, i, first))
			continue;
		chunks[count] = i;
		accesses[count++] = heap_cas(
			heap_word_at(extent, i), extent->chunks[i].word,
			abandoned_word(extent->chunks[i].word));
		if (count == HEAP_BATCH) {
			rc = leave_chunks(heap, extent, accesses, chunks,
					  count);
			count = 0;
		}
	}
	return rc ? rc : leave_chunks(heap, extent, accesses, chunks, count);
}

/* A chunk that is LEAVING and does not name us any more has left: the CAS was
 * done, though we were not told. */
static void forget_left(const struct reef_heap *heap, struct extent *extent)
{
	struct chunk *chunk = extent->chunks;

	for (uint32_t i = 0; i < extent->shape.chunks; i++, chunk++)
		if (!heap_chunk_is_owned(chunk->word, heap->session))
			chunk->leaving = LEAVING_NONE;
}

static int relinquish_extent(struct relinquish *r)
{
	struct extent *extent = r->extent;
	int rc = 0, one;

	forget_left(r->heap, extent);
	for (uint32_t i = 0;
	     extent->mine && i < extent->shape.chunks && !rc && !extent->dead;
	     i = r->last + 1) {
		r->first = i;
		r->last = extent->chunks[i].mine ? chain_end(extent, i) : i;
		rc = relinquish_chain(r);
	}
	one = leave_round(r->heap, extent, false);
	if (!one)
		one = leave_round(r->heap, extent, true);
	return rc ? rc : one;
}

int reef_heap_relinquish(struct reef_heap *heap)
{
	struct relinquish r = {.heap = heap};
	int rc = heap_lock(heap), one;

	if (rc)
		return rc;
	heap_vacant_drop(heap, true);
	rc = heap_release(heap, 0);
	r.writes = malloc(HEAP_BATCH * sizeof(*r.writes));
	r.headers = malloc(HEAP_BATCH * sizeof(*r.headers));
	if (!r.writes || !r.headers)
		rc = -ENOMEM;
	for (struct extent *e = heap->extents; e && rc != -ENOMEM;
	     e = e->next) {
		r.extent = e;
		one = e->dead || !e->runs ? 0 : relinquish_extent(&r);
		if (heap_is_lost(one)) {
			reef_heap_forget(heap, e->number);
			one = 0;
		}
		rc = rc ? rc : one;
	}
	heap_unlock(heap);
	free(r.writes);
	free(r.headers);
	free(r.runs);
	return rc;
}
