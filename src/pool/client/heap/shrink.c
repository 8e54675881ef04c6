/* shrink.c - extents that nothing is in go back to their node.
 *
 *                           CAS: first chunk, then the others     shrink
 *   VACANT, for long enough ---------------------------> LEAVING --------> gone
 *      ^                                                    |
 *      +---- another got a chunk first: release the rest ---+
 *
 * (a) VACANT: every chunk is FREE. A word says so only once all that was in the
 *     chunk might be used anew (rule 7), so nobody who is inside reef_enter
 *     knows an address there.
 * (b) Who removes an extent owns all its chunks, by their words: so nobody else
 *     has anything there, and a claim by what another has cached fails. Of two
 *     who want the same extent, the one that gets its first chunk goes on.
 * (c) The broker removes an extent in one step with the check that the session
 *     that asks is ALIVE. So once a session is FENCED, its removal has happened
 *     or never will, and whoever then asks for the space's extents before it
 *     adopts that session's chunks finds none in an extent that is gone. Who
 *     dies before that leaves chunks without blocks to recovery.
 * (d) After a removal in doubt the extent stays LEAVING: its units are not free
 *     units, so nothing comes there until a later call knows.
 * (e) Extents do not go back and forth: one has to be VACANT for a while, and
 *     an eighth of what is in use, or of an extent, stays free elsewhere. */
#include "pool/client/heap/internal.h"

#include "base/mutant.h"

#define SLACK_PART 8u
#define REMOVALS_MAX 16u /* of one call: each is a question to the broker */

/* Chunks of the space, as this heap knows them. */
struct balance {
	uint64_t used, spare;
};

static bool is_vacant(const struct extent *extent)
{
	if (extent->dead || extent->wrong || !extent->known || extent->mine ||
	    !extent->shape.chunks)
		return false;
	for (uint32_t i = 0; i < extent->shape.chunks; i++)
		if (!heap_chunk_is_free(extent->chunks[i].word) &&
		    !REEF_MUTATED(HEAP_SHRINK_BLIND))
			return false;
	return true;
}

/* Note since when extents are vacant. A claim changes a generation, so an
 * extent that was used meanwhile has another sum. */
static void note_vacant(struct reef_heap *heap, uint64_t now_ns)
{
	for (struct extent *e = heap->extents; e; e = e->next) {
		uint64_t sum = 0;

		if (is_vacant(e)) {
			sum = 1;
			for (uint32_t i = 0; i < e->shape.chunks; i++)
				sum += e->chunks[i].word;
		}
		if (!sum || sum != e->vacant_sum)
			e->vacant_since_ns = now_ns;
		e->vacant_sum = sum;
	}
}

static struct balance count_chunks(const struct reef_heap *heap)
{
	struct balance balance = {0};

	for (const struct extent *e = heap->extents; e; e = e->next)
		for (uint32_t i = 0; !e->dead && i < e->shape.chunks; i++)
			if (heap_chunk_is_empty(e, i) ||
			    heap_chunk_is_free(e->chunks[i].word))
				balance.spare++;
			else
				balance.used++;
	return balance;
}

/* True if enough is free without the extent: (e). */
static bool is_dispensable(const struct balance *balance,
			   const struct extent *extent)
{
	uint64_t chunks = extent->shape.chunks;

	return balance->spare >= chunks + balance->used / SLACK_PART +
					 (chunks + SLACK_PART - 1) / SLACK_PART;
}

/* Claim all chunks of an extent. False: some are another's. */
static bool claim_all(struct reef_heap *heap, struct extent *extent)
{
	uint32_t last = extent->shape.chunks - 1;

	if (REEF_MUTATED(HEAP_SHRINK_BLIND))
		return true;
	if (heap_claim_chunks(heap, extent, 0, 0) || extent->dead ||
	    !extent->chunks[0].mine)
		return false;
	if (heap_claim_chunks(heap, extent, 0, last) || extent->dead)
		return false;
	for (uint32_t i = 0; i <= last; i++)
		if (!heap_chunk_is_empty(extent, i))
			return false;
	return true;
}

/* Take the units of an extent that is all ours out of the free runs. */
static bool withhold_units(struct reef_heap *heap, struct extent *extent)
{
	for (uint32_t i = 0; i < extent->shape.chunks; i++)
		if (heap_chunk_is_empty(extent, i) &&
		    heap_units_remove(heap, extent, i))
			return false;
	extent->leaving = true;
	return true;
}

/* The extent stays: its units are free units again. */
static int readmit_units(struct reef_heap *heap, struct extent *extent)
{
	int rc = heap_units_add(heap, extent, extent->shape.first,
				extent->shape.units);

	extent->leaving = rc != 0;
	return rc;
}

/* Ask for the removal of an extent that is LEAVING. 1: it is gone.  0: it is
 * not, or nobody can tell yet. */
static int remove_extent(struct reef_heap *heap, struct extent *extent)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	int rc = ops->shrink(heap->options.context, extent->number);

	if (extent->dead)
		return rc == 0;
	if (rc == 0)
		reef_heap_forget(heap, extent->number);
	else if (rc == -EACCES)
		readmit_units(heap, extent);
	return rc == 0;
}

static int shrink_extent(struct reef_heap *heap, struct extent *extent)
{
	uint32_t keep = heap->empty;

	if (!extent->leaving &&
	    (!claim_all(heap, extent) || !withhold_units(heap, extent))) {
		int rc = heap_release(heap, keep);

		return rc < 0 ? rc : 0;
	}
	return remove_extent(heap, extent);
}

int reef_heap_shrink(struct reef_heap *heap, uint64_t vacant_ns, bool all)
{
	struct balance balance;
	uint64_t now_ns;
	int rc, count = 0;

	if (!heap->options.ops->shrink)
		return 0;
	rc = heap_lock(heap);
	if (rc)
		return rc;
	rc = heap_read_tables(heap);
	now_ns = reef_now_ns();
	if (!rc)
		note_vacant(heap, now_ns);
	balance = count_chunks(heap);
	for (struct extent *e = heap->extents;
	     e && rc >= 0 && count < (int)REMOVALS_MAX; e = e->next) {
		if (e->dead || (!e->leaving && !e->vacant_sum))
			continue;
		if (!e->leaving && (now_ns - e->vacant_since_ns < vacant_ns ||
				    (!all && !is_dispensable(&balance, e))))
			continue;
		if (!e->leaving)
			balance.spare -= e->shape.chunks;
		rc = shrink_extent(heap, e);
		count += rc > 0;
	}
	heap_unlock(heap);
	return rc < 0 ? rc : count;
}
