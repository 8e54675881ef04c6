/* adopt.c - a dead session's chunks become ours, or those that are ABANDONED.
 *
 * A *chain* is a longest row of chunks linked by runs that cross their borders;
 * mostly it is one chunk. Its runs stay whole only if all of it goes to one
 * session, though each chunk is a CAS of its own:
 *
 *   (a) The first chunk of a chain is adopted first, the others after that, by
 *       whoever has the first, from any session that is FENCED. Its word says
 *       ADOPTING until all are adopted.
 *   (b) Nothing in it changes until all are adopted.
 *
 * So of two who try, one gets the chain; if that one dies halfway, its own
 * recovery finds the first chunk, and by (b) the same chain, and goes on. Who
 * finds chunks of a session in a chain whose first chunk is another's leaves
 * them to that one: -EBUSY.
 *
 *   look: words    READ descriptors   READ headers   CAS first   CAS others
 *        +---------------+------------------+------------+-----------+---> ours
 *
 * A chain that is ABANDONED is adopted in the same way, if all its words say
 * so: they were given away before its first chunk was (relinquish.c). A chunk
 * that is ABANDONED in a chain whose first one a dead session has was given
 * away by that one, which did not get further: it goes with the first, too.
 *
 * Headers are read before the chunks are ours: a dead session's change only by
 * others' frees, which the counters tell, as they were read with the words. If
 * a recoverer had them meanwhile, the CAS fails. So no READ can fail once
 * chunks are ours.
 *
 * A CAS in doubt whose word cannot be read, either, may have happened, or will
 * yet, until the epoch is over in which that was (client.h). Only this heap
 * writes that word, so the next look at the tables tells: where it is there,
 * the chunk is ours, and the adoption goes on from it (settle_doubts). Until
 * then the heap has something to do (reef_heap_is_judging). Where it is not,
 * and the epoch is over, the chunk is still whose it was.
 *
 * Whatever is read may be nonsense. A head that does not fit is a unit that is
 * never used; a header that makes no sense is a block that is never used. A
 * chunk that cannot be part of its chain by (a), as somebody else has it who
 * adopts nothing there, or as its word says nothing at all, is a *wall*: heads
 * whose runs lead into it or out of it do not fit. Else a dead session's chunks
 * would wait for it for ever. Words are not read all at once, so walls count
 * only if a second READ finds every word as it was: whoever adopts a chain has
 * its first chunk before it has others. */
#include "pool/client/heap/adopt.h"

#include "base/mutant.h"

#define DOUBT_MAX 16u

/* --- runs and headers --- */

static void drop_runs(struct adoption *a)
{
	for (uint32_t i = 0; i < a->runs_count; i++) {
		if (!a->runs[i])
			continue;
		heap_run_fini(a->runs[i]);
		free(a->runs[i]);
	}
	a->runs_count = 0;
}

static int make_run(struct adoption *a, uint32_t unit, uint32_t units)
{
	uint64_t head = a->descriptors[unit];
	bool slab = heap_descriptor_kind(head) == HEAP_UNIT_SLAB;
	struct run *run = calloc(1, sizeof(*run));
	int rc;

	if (!run)
		return -ENOMEM;
	run->extent = a->extent;
	run->first = unit;
	run->units = units;
	rc = heap_run_init(a->heap, run, slab ? RUN_SLAB : RUN_LARGE,
			   heap_descriptor_class(head));
	if (rc) {
		free(run);
		return rc;
	}
	a->runs[a->runs_count++] = run;
	return 0;
}

/* Make the runs of a chain. Heads that make no sense are no run's. */
static int make_runs(struct adoption *a, const struct chain *chain)
{
	const struct heap_shape *shape = &a->extent->shape;
	uint32_t end = heap_chunk_end(shape, chain->last), units;
	int rc = 0;

	for (uint32_t unit = heap_chunk_first(shape, chain->first);
	     unit < end && !rc; unit += units) {
		units = heap_head_units(a, unit);
		if (units)
			rc = make_run(a, unit, units);
		else
			units = 1;
	}
	return rc;
}

/* True if the blocks of a run were judged: its chunk is ABANDONED, or was when
 * we adopted it. */
static bool is_judged(const struct adoption *a, const struct run *run)
{
	uint32_t index = run->first / HEAP_UNITS_PER_CHUNK;
	const struct chunk *chunk = &a->extent->chunks[index];

	return chunk->partly ? !chunk->from
			     : heap_chunk_is_abandoned(a->words[index]);
}

/* Note what the header of a block says. */
static void apply_header(void *context, struct run *run, uint32_t index,
			 uint64_t header)
{
	struct adoption *a = context;
	uint32_t *block = &run->blocks[index];
	uint32_t unjudged = is_judged(a, run) ? 0 : BLOCK_UNJUDGED;

	if (!heap_header_is_sane(header)) {
		heap_blame_chain(a, run->first / HEAP_UNITS_PER_CHUNK,
				 -REEF_ECORRUPT);
		*block |= BLOCK_OUT; /* never used again */
		return;
	}
	if (!header)
		return;
	*block = ((uint32_t)heap_header_generation(header) << 16) |
		 ((uint32_t)heap_header_kind(header) << 8);
	switch (heap_header_state(header)) {
	case HEAP_BLOCK_LIVE:
		*block |= BLOCK_OUT | BLOCK_ADOPTED | unjudged;
		break;
	case HEAP_BLOCK_RETIRED:
		*block |= BLOCK_OUT | BLOCK_LIMBO | unjudged;
		break;
	case HEAP_BLOCK_KEPT:
		*block |= BLOCK_OUT | BLOCK_ADOPTED | BLOCK_SHARED;
		if (REEF_MUTATED(HEAP_FREE_KEPT))
			*block |= unjudged;
		break;
	default:
		break;
	}
}

/* --- adopting --- */

/* 1: the chunk names a session of the list, another that is FENCED, or nobody.
 * 0: it does not.  -errno. */
static int may_adopt(struct adoption *a, uint32_t index)
{
	const struct reef_heap_ops *ops = a->heap->options.ops;
	uint32_t owner = heap_chunk_owner(a->words[index]);

	if (heap_dead_owner(a, index) ||
	    heap_chunk_is_abandoned(a->words[index]))
		return 1;
	if (!heap_chunk_is_owned(a->words[index], owner) || !owner ||
	    owner == a->heap->session)
		return 0;
	return ops->is_fenced(a->heap->options.context, owner);
}

/* What became of the CAS of an adoption, which is repeated when in doubt: if
 * the word is then what we wanted to write, it was ours. 1: adopted.  0:
 * another was first.  -errno: *doubt says whether it may have happened, or will
 * yet. */
static int adopt_settle(struct adoption *a, struct reef_access *cas,
			bool *doubt)
{
	*doubt = false;
	for (uint32_t i = 0; cas->status == -REEF_EINDOUBT && i < DOUBT_MAX;
	     i++) {
		*doubt = true;
		heap_execute(a->heap, cas, 1);
	}
	*doubt |= cas->status == -ETIMEDOUT;
	if (cas->status == -REEF_ENOTDONE && !*doubt)
		return 0;
	if (cas->status)
		return cas->status;
	return cas->result == cas->compare ||
	       (*doubt && cas->result == cas->operand);
}

static void note_doubt(struct adoption *a, uint32_t index, uint64_t word)
{
	const struct reef_heap_ops *ops = a->heap->options.ops;
	struct chunk *chunk = &a->extent->chunks[index];

	/* Without a number it might be another heap's of this session. */
	if (!a->heap->options.number)
		return;
	a->heap->adopt_doubts += !chunk->adopt_word;
	chunk->adopt_word = word;
	chunk->adopt_epoch = ops->reclaim_epoch(a->heap->options.context);
	chunk->from = heap_chunk_owner(a->words[index]);
}

static void note_adopted(struct adoption *a, uint32_t index, uint64_t word)
{
	struct chunk *chunk = &a->extent->chunks[index];

	/* An earlier attempt in doubt would not find the word that it needs. */
	a->heap->adopt_doubts -= chunk->adopt_word != 0;
	chunk->adopt_word = 0;
	chunk->word = word;
	chunk->mine = chunk->partly = true;
	chunk->from = heap_chunk_owner(a->words[index]);
	chunk->free_map = 0;
	chunk->found = chunk->counter;
	a->adopted++;
	a->extent->mine++;
	a->heap->chunks++;
}

/* Another was first. */
static void note_missed(struct adoption *a, uint32_t index,
			const struct reef_access *cas)
{
	heap_blame_chain(a, index, -EBUSY);
	if (!cas->status)
		a->extent->chunks[index].word = cas->result;
}

static uint64_t adopted_word(const struct adoption *a, uint32_t index)
{
	const struct chain *chain = heap_chain_of(a, index);
	bool more = index == chain->first && index != chain->last;
	uint16_t generation = heap_chunk_generation(a->words[index]);

	return heap_chunk_word(a->heap->session,
			       heap_generation_after(generation),
			       a->heap->options.number,
			       more ? HEAP_CHUNK_ADOPTING : HEAP_CHUNK_OWNED);
}

/* Adopt the chunks of these numbers, at most HEAP_BATCH. */
static int adopt_chunks(struct adoption *a, const uint32_t *chunks,
			uint32_t count)
{
	bool doubt;
	int rc = 0, one;

	for (uint32_t i = 0; i < count; i++) {
		a->accesses[i] = heap_cas(heap_word_at(a->extent, chunks[i]),
					  a->words[chunks[i]],
					  adopted_word(a, chunks[i]));
	}
	if (count)
		heap_execute(a->heap, a->accesses, count);
	for (uint32_t i = 0; i < count; i++) {
		one = adopt_settle(a, &a->accesses[i], &doubt);
		if (one < 0 && doubt && !a->extent->dead)
			note_doubt(a, chunks[i], a->accesses[i].operand);
		if (one == 1 && !a->extent->dead)
			note_adopted(a, chunks[i], a->accesses[i].operand);
		else if (one == 0)
			note_missed(a, chunks[i], &a->accesses[i]);
		else if (one < 0)
			rc = rc ? rc : one;
	}
	return rc;
}

/* Adopt the first chunks of the chains; or all others of chains whose first
 * chunk is ours. */
static int adopt_round(struct adoption *a, bool first)
{
	uint32_t chunks[HEAP_BATCH], count = 0;
	int rc = 0, may;

	for (uint32_t i = 0; i < a->chains_count && !rc; i++) {
		struct chain *chain = &a->chains[i];
		uint32_t from = first ? chain->first : chain->first + 1;
		uint32_t to = first ? chain->first : chain->last;

		if (!chain->wanted ||
		    (!first && !a->extent->chunks[chain->first].mine))
			continue;
		for (uint32_t c = from; c <= to && !rc; c++) {
			if (a->extent->chunks[c].mine)
				continue;
			may = may_adopt(a, c);
			if (may == 0)
				heap_blame_chunks(a, chain->first, chain->last,
						  -EBUSY);
			rc = may < 0 ? may : 0;
			if (may <= 0)
				continue;
			chunks[count++] = c;
			if (count == HEAP_BATCH) {
				rc = adopt_chunks(a, chunks, count);
				count = 0;
			}
		}
	}
	return rc ? rc : adopt_chunks(a, chunks, count);
}

/* The first chunks of chains that are all ours are ADOPTING no longer. */
static int adopt_finish(struct adoption *a)
{
	int rc = 0, one;
	bool doubt;

	for (uint32_t i = 0; i < a->chains_count && !rc; i++) {
		struct chunk *first = &a->extent->chunks[a->chains[i].first];
		uint64_t word = first->word;
		struct reef_access cas;

		if (!heap_chunk_is_adopting(word) ||
		    !heap_chain_is_whole(a, &a->chains[i]))
			continue;
		cas = heap_cas(heap_word_at(a->extent, a->chains[i].first),
			       word, (word & ~UINT64_C(15)) | HEAP_CHUNK_OWNED);
		heap_execute(a->heap, &cas, 1);
		one = adopt_settle(a, &cas, &doubt);
		if (a->extent->dead)
			return -REEF_ELOST;
		/* It may be there since an attempt that was in doubt. */
		if (one == 1 || (one == 0 && cas.result == cas.operand))
			first->word = cas.operand;
		rc = one < 0 ? one : 0;
	}
	return rc;
}

/* --- one extent --- */

/* True if something in the extent is to be adopted. */
static bool is_wanted(const struct adoption *a)
{
	for (uint32_t i = 0; i < a->extent->shape.chunks; i++)
		if (a->extent->chunks[i].partly ||
		    (!a->extent->chunks[i].mine && heap_dead_owner(a, i)))
			return true;
	return false;
}

static int read_descriptors(struct adoption *a)
{
	uint32_t first = a->extent->shape.first;
	struct reef_access access = heap_read(
		heap_descriptor_at(a->extent, first), a->descriptors + first,
		(a->extent->shape.units - first) * 8);

	return heap_execute(a->heap, &access, 1);
}

static int adopt_chains(struct adoption *a)
{
	int rc = heap_extent_own(a->extent);

	if (!rc)
		rc = read_descriptors(a);
	if (rc)
		return rc;
	rc = heap_chains_settle(a);
	if (rc)
		return rc;
	heap_chains_choose(a);
	for (uint32_t i = 0; i < a->chains_count && !rc; i++)
		if (a->chains[i].wanted)
			rc = make_runs(a, &a->chains[i]);
	if (!rc)
		rc = heap_read_headers(a->heap, a->runs, a->runs_count,
				       apply_header, a);
	if (!rc)
		rc = adopt_round(a, true);
	if (!rc)
		rc = adopt_round(a, false);
	if (!rc && !a->extent->dead)
		rc = adopt_finish(a);
	if (a->extent->dead)
		return -REEF_ELOST;
	/* Whole chains are taken over, even if others could not be had. */
	if (a->chains_count && !rc)
		rc = heap_install_chains(a);
	return rc;
}

static int adopt_extent(struct adoption *a)
{
	uint32_t chunks = a->extent->shape.chunks;
	uint32_t units = a->extent->shape.units;
	int rc = -ENOMEM;

	a->descriptors = calloc(units, sizeof(*a->descriptors));
	a->chains = malloc(chunks * sizeof(*a->chains));
	a->runs = calloc(units, sizeof(struct run *));
	a->runs_count = 0;
	a->walls = calloc(chunks, sizeof(*a->walls));
	if (a->descriptors && a->chains && a->runs && a->walls)
		rc = adopt_chains(a);
	drop_runs(a);
	free(a->walls);
	free(a->descriptors);
	free(a->chains);
	free(a->runs);
	return rc;
}

/* The words were read: chunks that an adoption in doubt has made ours after all
 * are as those of one that did not get the rest of its chain. */
static int settle_doubts(struct reef_heap *heap, struct extent *extent)
{
	uint64_t safe = heap->options.ops->safe_epoch(heap->options.context);
	int rc = 0;

	for (uint32_t i = 0; i < extent->shape.chunks && !rc; i++) {
		struct chunk *chunk = &extent->chunks[i];
		bool is_ours = chunk->word == chunk->adopt_word;

		if (!chunk->adopt_word ||
		    (!is_ours && chunk->adopt_epoch >= safe))
			continue;
		rc = is_ours ? heap_extent_own(extent) : 0;
		if (rc)
			break;
		chunk->adopt_word = 0;
		heap->adopt_doubts--;
		if (!is_ours || chunk->mine)
			continue;
		chunk->mine = chunk->partly = true;
		chunk->free_map = 0;
		chunk->found = chunk->counter;
		extent->mine++;
		heap->chunks++;
	}
	return rc;
}

static struct adoption *adoption_make(struct reef_heap *heap,
				      struct extent *extent)
{
	struct adoption *a = calloc(1, sizeof(*a));
	uint32_t chunks = extent->shape.chunks;

	if (a && heap->adopt_doubts && settle_doubts(heap, extent)) {
		free(a);
		return NULL;
	}
	if (!a)
		return NULL;
	a->heap = heap;
	a->extent = extent;
	a->words = calloc(chunks + 1, sizeof(*a->words));
	if (!a->words) {
		free(a);
		return NULL;
	}
	for (uint32_t i = 0; i < chunks; i++)
		a->words[i] = extent->chunks[i].word;
	return a;
}

static void adoption_free(struct adoption *a)
{
	free(a->words);
	free(a);
}

static int adopt_in_extent(struct reef_heap *heap, struct extent *extent,
			   struct reef_heap_recovery *list, uint32_t count)
{
	struct adoption *a = adoption_make(heap, extent);
	uint32_t chunks = extent->shape.chunks;
	int rc = 0;

	if (!a)
		return -ENOMEM;
	a->list = list;
	a->list_count = count;
	if (is_wanted(a))
		rc = adopt_extent(a);
	if (heap_is_lost(rc)) {
		reef_heap_forget(heap, extent->number);
		rc = 0;
	}
	if (rc && chunks)
		heap_blame_chunks(a, 0, chunks - 1, rc);
	adoption_free(a);
	return 0;
}

/* --- all extents --- */

#define AWAY_MAX 64u

/* Read the tables of extents that could not be read with the others, but for
 * those of nodes that were out of reach already: each may take as long as a
 * call has patience. The first error; then some are not known. */
static int read_tables_left(struct reef_heap *heap)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	uint32_t away[AWAY_MAX], count = 0, node, i;
	int rc = 0, one;

	for (struct extent *e = heap->extents; e && count < AWAY_MAX;
	     e = e->next) {
		if (e->known || e->dead || !e->shape.chunks)
			continue;
		node = ops->node ? ops->node(heap->options.context, e->number)
				 : 0;
		for (i = 0; i < count && (!node || away[i] != node); i++)
			;
		if (i < count)
			continue;
		one = heap_read_table(heap, e);
		if (one)
			away[count++] = node;
		rc = rc ? rc : one;
	}
	return rc;
}

/* Read every table that can be read; those of other extents are not known. */
static int read_known_tables(struct reef_heap *heap)
{
	int rc;

	for (struct extent *e = heap->extents; e; e = e->next)
		e->known = false;
	rc = heap_read_tables(heap);
	return rc ? read_tables_left(heap) : 0;
}

void heap_adopt(struct reef_heap *heap, struct reef_heap_recovery *list,
		uint32_t count)
{
	int rc = read_known_tables(heap), one;

	for (struct extent *e = heap->extents; e; e = e->next) {
		if (e->dead || !e->known)
			continue;
		one = adopt_in_extent(heap, e, list, count);
		rc = rc ? rc : one;
	}
	for (uint32_t i = 0; i < count && rc; i++)
		if (list[i].dead)
			heap_note_status(&list[i], rc);
}

/* --- chunks that are nobody's --- */

/* True if a chunk is ABANDONED; freed: and others have freed blocks in it since
 * this heap looked. */
static bool is_adoptable(const struct chunk *chunk, bool freed)
{
	return !chunk->mine && heap_chunk_is_abandoned(chunk->word) &&
	       (!freed || chunk->counter != chunk->found);
}

static uint32_t count_abandoned(const struct extent *extent, bool freed)
{
	uint32_t count = 0;

	if (!extent->known || extent->dead || extent->wrong)
		return 0;
	for (uint32_t i = 0; i < extent->shape.chunks; i++)
		count += is_adoptable(&extent->chunks[i], freed);
	return count;
}

/* Pick one at random, so that many who look at the same words do not all want
 * the same one. NULL: there is none. */
static struct extent *pick_abandoned(struct reef_heap *heap, bool freed,
				     uint32_t *chunk)
{
	struct extent *extent;
	uint64_t total = 0, skip;
	uint32_t at = 0;

	for (struct extent *e = heap->extents; e; e = e->next)
		total += count_abandoned(e, freed);
	if (!total)
		return NULL;
	skip = reef_random_below(&heap->random, total);
	for (extent = heap->extents; extent; extent = extent->next) {
		if (skip < count_abandoned(extent, freed))
			break;
		skip -= count_abandoned(extent, freed);
	}
	reef_assert(extent != NULL); /* skip is below their number */
	while (!is_adoptable(&extent->chunks[at], freed) || skip--)
		at++;
	*chunk = at;
	return extent;
}

/* An extent with chunks that are ours since an attempt that did not get all it
 * wanted, as far as that is known by now. NULL: there is none. */
static struct extent *find_partly(struct reef_heap *heap)
{
	for (struct extent *e = heap->extents; e; e = e->next) {
		if (!e->known || e->dead || e->wrong ||
		    (heap->adopt_doubts && settle_doubts(heap, e)))
			continue;
		for (uint32_t i = 0; e->mine && i < e->shape.chunks; i++)
			if (e->chunks[i].partly)
				return e;
	}
	return NULL;
}

int heap_adopt_abandoned(struct reef_heap *heap, uint32_t max, bool freed)
{
	struct extent *extent = find_partly(heap);
	struct adoption *a;
	uint32_t chunk = 0;
	int rc;

	if (!extent)
		extent = pick_abandoned(heap, freed, &chunk);
	if (!extent)
		return 0;
	a = adoption_make(heap, extent);
	if (!a)
		return -ENOMEM;
	a->abandoned = true;
	a->from = chunk;
	a->max = max;
	rc = adopt_extent(a);
	if (heap_is_lost(rc)) {
		reef_heap_forget(heap, extent->number);
		rc = 0;
	}
	rc = rc ? rc : (int)a->adopted;
	adoption_free(a);
	return rc;
}

int reef_heap_adopt(struct reef_heap *heap, uint32_t max)
{
	int rc = heap_lock(heap), total = 0;

	if (rc)
		return rc;
	rc = heap_read_tables(heap);
	while (!rc && (uint32_t)total < max) {
		rc = heap_adopt_abandoned(heap, max - (uint32_t)total, false);
		if (rc <= 0)
			break;
		total += rc;
		rc = 0;
	}
	heap_unlock(heap);
	return rc ? rc : total;
}

int reef_heap_tidy(struct reef_heap *heap, uint32_t max)
{
	int rc = heap_lock(heap), total = 0, one;

	if (rc)
		return rc;
	rc = heap_read_tables(heap);
	for (uint32_t i = 0; !rc && i < max; i++) {
		one = heap_adopt_abandoned(heap, 1, true);
		if (one <= 0) {
			rc = one;
			break;
		}
		total += one;
	}
	heap_unlock(heap);
	return rc ? rc : total;
}
