/* release.c - giving empty chunks back.
 *
 * Before its word says FREE, a chunk has no head in it and none below reaches
 * into it: what was freed without an operation is made good here. So the next
 * owner finds nothing but units that are never used or SPARE. */
#include "pool/client/heap/internal.h"

#define RELEASE_BATCH 40u /* chunks; three accesses each */
#define DOUBT_MAX 16u

uint32_t heap_cut_cover(struct extent *extent, uint32_t first,
			struct reef_access *accesses, uint32_t count)
{
	uint32_t unit = first;

	if (heap_descriptor_kind(extent->shadow[first]) != HEAP_UNIT_INNER)
		return count;
	while (unit-- > extent->shape.first) {
		uint32_t chunk = unit / HEAP_UNITS_PER_CHUNK;
		uint32_t bit = unit % HEAP_UNITS_PER_CHUNK;

		if (!(extent->chunks[chunk].free_map & (1u << bit)))
			return count;
		if (heap_descriptor_kind(extent->shadow[unit]) ==
		    HEAP_UNIT_INNER)
			continue;
		if (heap_descriptor_is_head(extent->shadow[unit])) {
			extent->shadow[unit] =
				heap_descriptor(HEAP_UNIT_SPARE, 0, 0);
			accesses[count++] =
				heap_write(heap_descriptor_at(extent, unit),
					   &extent->shadow[unit], 8);
		}
		return count;
	}
	return count;
}

/* Add the accesses that release a chunk; they take effect in order (F3a). */
static uint32_t release_prepare(struct extent *extent, uint32_t index,
				struct reef_access *accesses, uint32_t count)
{
	const struct chunk *chunk = &extent->chunks[index];
	uint32_t first = heap_chunk_first(&extent->shape, index);
	uint32_t end = heap_chunk_end(&extent->shape, index);
	bool used = false;

	count = heap_cut_cover(extent, first, accesses, count);
	for (uint32_t i = first; i < end; i++) {
		if (!extent->shadow[i])
			continue;
		used = true;
		extent->shadow[i] = heap_descriptor(HEAP_UNIT_SPARE, 0, 0);
	}
	if (used)
		accesses[count++] =
			heap_write(heap_descriptor_at(extent, first),
				   &extent->shadow[first], (end - first) * 8);
	accesses[count++] =
		heap_cas(heap_word_at(extent, index), chunk->word,
			 heap_chunk_word(0, heap_chunk_generation(chunk->word),
					 0, HEAP_CHUNK_FREE));
	return count;
}

struct release {
	struct extent *extent;
	uint32_t chunk, cas;
};

/* The CAS of a release was in doubt, or not done. If the word says that the
 * chunk is ours still, its units become free again, and it is released another
 * time. */
static int release_undo(struct reef_heap *heap, struct extent *extent,
			uint32_t index, bool *ours)
{
	struct chunk *chunk = &extent->chunks[index];
	uint64_t word;
	struct reef_access access =
		heap_read(heap_word_at(extent, index), &word, 8);
	int rc = heap_execute(heap, &access, 1);

	*ours = !rc && !extent->dead && word == chunk->word;
	if (!*ours)
		return rc;
	return heap_units_add(heap, extent,
			      heap_chunk_first(&extent->shape, index),
			      heap_chunk_end(&extent->shape, index));
}

/* Take in what became of a release. A chunk whose word cannot even be read may
 * name us still: claim.c finds out. */
static int release_settle(struct reef_heap *heap, const struct release *release,
			  const struct reef_access *accesses)
{
	const struct reef_access *cas = &accesses[release->cas];
	struct extent *extent = release->extent;
	struct chunk *chunk = &extent->chunks[release->chunk];
	int rc = cas->status;
	bool ours = false;

	if (extent->dead)
		return 0;
	if (heap_is_lost(rc)) {
		reef_heap_forget(heap, extent->number);
		return 0;
	}
	if (rc == -REEF_EINDOUBT || rc == -REEF_ENOTDONE)
		rc = release_undo(heap, extent, release->chunk, &ours);
	if (ours)
		return rc ? rc : -REEF_EINDOUBT;
	if (extent->dead)
		return 0;
	chunk->mine = false;
	if (rc)
		heap_note_doubt(heap, chunk);
	if (cas->status == 0 && cas->result == cas->compare)
		chunk->word = cas->operand;
	extent->mine--;
	heap->chunks--;
	return rc;
}

struct release_batch {
	struct reef_access accesses[HEAP_BATCH];
	struct release releases[RELEASE_BATCH];
	uint32_t count, n;
};

/* True if all that keeps an extent from being vacant are empty chunks of ours.
 */
static bool is_nearly_vacant(const struct extent *extent)
{
	for (uint32_t i = 0; i < extent->shape.chunks; i++)
		if (!heap_chunk_is_empty(extent, i) &&
		    !heap_chunk_is_free(extent->chunks[i].word))
			return false;
	return true;
}

/* R9: a chunk's word must not come back to a generation that somebody may still
 * compare with. True if this one may be given back once more. */
static bool may_return(struct reef_heap *heap, struct chunk *chunk)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	void *context = heap->options.context;

	if (!heap->options.has_copies)
		return true;
	if (ops->safe_epoch(context) > chunk->returns_epoch) {
		chunk->returns_epoch = ops->reclaim_epoch(context);
		chunk->returns = 0;
	}
	return chunk->returns < HEAP_RETURNS_MAX;
}

static void release_in(struct reef_heap *heap, struct extent *extent,
		       uint32_t keep, struct release_batch *batch)
{
	for (uint32_t i = 0; i < extent->shape.chunks &&
			     batch->n < RELEASE_BATCH && heap->empty > keep;
	     i++) {
		if (!heap_chunk_is_empty(extent, i) ||
		    !may_return(heap, &extent->chunks[i]) ||
		    heap_units_remove(heap, extent, i))
			continue;
		extent->chunks[i].returns++;
		batch->count = release_prepare(extent, i, batch->accesses,
					       batch->count);
		batch->releases[batch->n++] =
			(struct release){extent, i, batch->count - 1};
	}
}

/* Release a batch of empty chunks: returns how many, or an error. Those go
 * first without which their extent would be vacant, so that it can go, too
 * (shrink.c); of these the youngest extents'. */
static int release_some(struct reef_heap *heap, uint32_t keep)
{
	struct release_batch batch = {.count = 0};
	int rc = 0, one;

	for (uint32_t pass = 0; pass < 2; pass++)
		for (struct extent *e = heap->extents; e; e = e->next)
			if (e->mine && !e->dead &&
			    (pass || is_nearly_vacant(e)))
				release_in(heap, e, keep, &batch);
	if (batch.n)
		heap_execute(heap, batch.accesses, batch.count);
	for (uint32_t i = 0; i < batch.n; i++) {
		one = release_settle(heap, &batch.releases[i], batch.accesses);
		rc = rc ? rc : one;
	}
	return rc ? rc : (int)batch.n;
}

int heap_release(struct reef_heap *heap, uint32_t keep)
{
	uint32_t doubts = 0;
	int rc;

	do
		rc = release_some(heap, keep);
	while (rc > 0 || (rc == -REEF_EINDOUBT && doubts++ < DOUBT_MAX));
	return rc;
}

void heap_trim(struct reef_heap *heap)
{
	if (heap_lock(heap))
		return;
	heap_release(heap, heap->options.spare_max);
	heap_unlock(heap);
}
