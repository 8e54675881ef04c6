/* adopt.c - a dead session's chunks become ours.
 *
 * A *chain* is a longest row of chunks linked by runs that cross their borders;
 * mostly it is one chunk. Its runs stay whole only if all of it goes to one
 * session, though each chunk is a CAS of its own:
 *
 *   (a) The first chunk of a chain is adopted first, the others after that, by
 *       whoever has the first, from any session that is FENCED.
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
 * Headers are read before the chunks are ours: a dead session's change only by
 * others' frees, which the counters tell, as they were read with the words. If
 * a recoverer had them meanwhile, the CAS fails. So no READ can fail once
 * chunks are ours.
 *
 * Whatever is read may be nonsense. A head that does not fit is a unit that is
 * never used; a header that makes no sense is a block that is never used. */
#include "pool/client/heap/internal.h"

#define BULK_MAX 512u
#define BULK_BATCH 16u
#define DOUBT_MAX 16u

struct chain {
	uint32_t first, last; /* chunks */
	bool wanted, ours;
};

struct adoption {
	struct reef_heap *heap;
	struct extent *extent;
	struct reef_heap_recovery *list; /* whose chunks are wanted */
	uint32_t list_count;
	uint64_t *words; /* of all chunks, as they were read */
	uint64_t *descriptors;
	struct chain *chains;
	uint32_t chains_count;
	struct run **runs; /* of the chains, by unit; NULL: taken over */
	uint32_t runs_count;
	uint8_t *bulk;
	struct reef_access accesses[HEAP_BATCH];
	struct {
		struct run *run;
		uint32_t index; /* of a block; UINT32_MAX: a whole unit */
		uint64_t header;
	} reads[HEAP_BATCH];
	uint32_t count, bulk_count;
};

/* --- whose they are --- */

/* The session of the list that a chunk is of, or was when we adopted it from
 * it; NULL: it is no session's of the list. */
static struct reef_heap_recovery *dead_owner(const struct adoption *a,
					     uint32_t index)
{
	const struct chunk *chunk = &a->extent->chunks[index];
	uint32_t owner = heap_chunk_owner(a->words[index]);

	if (chunk->partly)
		owner = chunk->from;
	else if (!heap_chunk_is_owned(a->words[index], owner))
		return NULL;
	for (uint32_t i = 0; i < a->list_count; i++)
		if (a->list[i].dead && a->list[i].session == owner)
			return &a->list[i];
	return NULL;
}

/* What is done and left something behind counts less than what is not done. */
static void note_status(struct reef_heap_recovery *recovery, int status)
{
	if (!recovery->status || recovery->status == -REEF_ECORRUPT)
		recovery->status = status;
}

/* Tell every session of the list that has a chunk among these. */
static void blame(const struct adoption *a, uint32_t first, uint32_t last,
		  int status)
{
	struct reef_heap_recovery *dead;

	for (uint32_t i = first; i <= last; i++) {
		dead = dead_owner(a, i);
		if (dead)
			note_status(dead, status);
	}
}

static const struct chain *chain_of(const struct adoption *a, uint32_t index)
{
	const struct chain *chain = a->chains;

	while (chain->last < index)
		chain++;
	return chain;
}

/* The same for the chain that a chunk is in. */
static void blame_chain(const struct adoption *a, uint32_t index, int status)
{
	const struct chain *chain = chain_of(a, index);

	blame(a, chain->first, chain->last, status);
}

/* --- chains --- */

/* How many units the run of a head has; 0: it is no head, or makes no sense. */
static uint32_t head_units(const struct adoption *a, uint32_t unit)
{
	uint64_t head = a->descriptors[unit];
	uint32_t units = heap_descriptor_units(head);
	uint32_t class = heap_descriptor_class(head);

	if (!heap_descriptor_is_head(head) || !units ||
	    units > a->extent->shape.units - unit)
		return 0;
	if (heap_descriptor_kind(head) == HEAP_UNIT_LARGE)
		return units;
	return class < a->heap->classes.count &&
			       a->heap->classes.all[class].units == units
		       ? units
		       : 0;
}

/* Find the chains: rows of chunks whose borders runs cross. */
static void chains_find(struct adoption *a)
{
	const struct heap_shape *shape = &a->extent->shape;
	uint32_t reach = 0;

	for (uint32_t i = 0; i < shape->chunks; i++) {
		struct chain *chain = &a->chains[a->chains_count];
		uint32_t first = heap_chunk_first(shape, i);
		uint32_t end = heap_chunk_end(shape, i);

		if (reach > first)
			(chain - 1)->last = i;
		else
			a->chains[a->chains_count++] =
				(struct chain){.first = i, .last = i};
		/* A chunk that is nobody's has no heads. */
		for (uint32_t unit = first;
		     !heap_chunk_is_free(a->words[i]) && unit < end; unit++)
			if (unit >= reach && head_units(a, unit))
				reach = unit + head_units(a, unit);
	}
}

/* Mark the chains to adopt: those whose first chunk is a dead session's, or is
 * ours since an attempt that did not get the rest. */
static void chains_choose(struct adoption *a)
{
	for (uint32_t i = 0; i < a->chains_count; i++) {
		struct chain *chain = &a->chains[i];
		const struct chunk *first = &a->extent->chunks[chain->first];

		chain->wanted = first->partly ||
				(!first->mine && dead_owner(a, chain->first));
		if (!chain->wanted)
			blame(a, chain->first, chain->last, -EBUSY);
	}
}

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
		units = head_units(a, unit);
		if (units)
			rc = make_run(a, unit, units);
		else
			units = 1;
	}
	return rc;
}

/* Note what the header of a block says. */
static void apply_header(struct adoption *a, struct run *run, uint32_t index,
			 uint64_t header)
{
	uint32_t *block = &run->blocks[index];

	if (!heap_header_is_sane(header)) {
		blame_chain(a, run->first / HEAP_UNITS_PER_CHUNK,
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
		*block |= BLOCK_OUT | BLOCK_ADOPTED | BLOCK_UNJUDGED;
		break;
	case HEAP_BLOCK_RETIRED:
		*block |= BLOCK_OUT | BLOCK_LIMBO | BLOCK_UNJUDGED;
		break;
	case HEAP_BLOCK_KEPT:
		*block |= BLOCK_OUT | BLOCK_ADOPTED | BLOCK_SHARED;
		break;
	default:
		break;
	}
}

static int read_batch(struct adoption *a)
{
	int rc = a->count ? heap_execute(a->heap, a->accesses, a->count) : 0;

	for (uint32_t i = 0; i < a->count && !rc; i++) {
		struct run *run = a->reads[i].run;
		uint64_t start = a->accesses[i].address, header;

		if (a->reads[i].index != UINT32_MAX) {
			apply_header(a, run, a->reads[i].index,
				     a->reads[i].header);
			continue;
		}
		for (uint32_t b = 0; b < run->count; b++) {
			uint64_t at = heap_block_address(run, b) - HEAP_HEADER;

			if (at < start || at >= start + REEF_UNIT_SIZE)
				continue;
			memcpy(&header,
			       (uint8_t *)a->accesses[i].local + (at - start),
			       8);
			apply_header(a, run, b, header);
		}
	}
	a->count = a->bulk_count = 0;
	return rc;
}

static int read_later(struct adoption *a, struct run *run, uint32_t index,
		      uint64_t address)
{
	a->reads[a->count].run = run;
	a->reads[a->count].index = index;
	if (index == UINT32_MAX)
		a->accesses[a->count] = heap_read(
			address, a->bulk + a->bulk_count++ * REEF_UNIT_SIZE,
			REEF_UNIT_SIZE);
	else
		a->accesses[a->count] =
			heap_read(address, &a->reads[a->count].header, 8);
	a->count++;
	if (a->count == HEAP_BATCH || a->bulk_count == BULK_BATCH)
		return read_batch(a);
	return 0;
}

static int read_headers(struct adoption *a)
{
	int rc = 0;

	for (uint32_t i = 0; i < a->runs_count && !rc; i++) {
		struct run *run = a->runs[i];

		if (run->block_size > BULK_MAX) {
			for (uint32_t b = 0; b < run->count && !rc; b++)
				rc = read_later(a, run, b,
						heap_block_address(run, b) -
							HEAP_HEADER);
			continue;
		}
		for (uint32_t u = 0; u < run->units && !rc; u++)
			rc = read_later(a, run, UINT32_MAX,
					run->address - HEAP_HEADER +
						u * REEF_UNIT_SIZE);
	}
	return rc ? rc : read_batch(a);
}

/* --- adopting --- */

/* 1: the chunk names a session of the list, or another that is FENCED.  0: it
 * does not.  -errno. */
static int may_adopt(struct adoption *a, uint32_t index)
{
	const struct reef_heap_ops *ops = a->heap->options.ops;
	uint32_t owner = heap_chunk_owner(a->words[index]);

	if (dead_owner(a, index))
		return 1;
	if (!heap_chunk_is_owned(a->words[index], owner) || !owner ||
	    owner == a->heap->session)
		return 0;
	return ops->is_fenced(a->heap->options.context, owner);
}

/* What became of the CAS of an adoption, which is repeated when in doubt: if
 * the word is then what we wanted to write, it was ours. 1: adopted.  0:
 * another was first. */
static int adopt_settle(struct adoption *a, struct reef_access *cas)
{
	bool doubt = false;

	for (uint32_t i = 0; cas->status == -REEF_EINDOUBT && i < DOUBT_MAX;
	     i++) {
		doubt = true;
		heap_execute(a->heap, cas, 1);
	}
	if (cas->status == -REEF_ENOTDONE)
		return 0;
	if (cas->status)
		return cas->status;
	return cas->result == cas->compare ||
	       (doubt && cas->result == cas->operand);
}

static void note_adopted(struct adoption *a, uint32_t index, uint64_t word)
{
	struct chunk *chunk = &a->extent->chunks[index];

	chunk->word = word;
	chunk->mine = chunk->partly = true;
	chunk->from = heap_chunk_owner(a->words[index]);
	chunk->free_map = 0;
	chunk->found = chunk->counter;
	a->extent->mine++;
	a->heap->chunks++;
}

/* Adopt the chunks of these numbers, at most HEAP_BATCH. */
static int adopt_chunks(struct adoption *a, const uint32_t *chunks,
			uint32_t count)
{
	int rc = 0, one;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t word = a->words[chunks[i]];

		a->accesses[i] = heap_cas(
			heap_word_at(a->extent, chunks[i]), word,
			heap_chunk_word(a->heap->session,
					heap_generation_after(
						heap_chunk_generation(word)),
					a->heap->options.number,
					HEAP_CHUNK_OWNED));
	}
	if (count)
		heap_execute(a->heap, a->accesses, count);
	for (uint32_t i = 0; i < count; i++) {
		one = adopt_settle(a, &a->accesses[i]);
		if (one == 1 && !a->extent->dead)
			note_adopted(a, chunks[i], a->accesses[i].operand);
		else if (one == 0)
			blame_chain(a, chunks[i], -EBUSY);
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
				blame(a, chain->first, chain->last, -EBUSY);
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

/* --- taking over --- */

static int judge_later(struct reef_heap *heap, uint64_t address,
		       uint32_t session)
{
	if (heap->unjudged_count == heap->unjudged_capacity) {
		uint32_t capacity = heap->unjudged_capacity
					    ? heap->unjudged_capacity * 2
					    : 256;
		struct unjudged *more =
			realloc(heap->unjudged, capacity * sizeof(*more));

		if (!more)
			return -ENOMEM;
		heap->unjudged = more;
		heap->unjudged_capacity = capacity;
	}
	heap->unjudged[heap->unjudged_count++] =
		(struct unjudged){address, session};
	return 0;
}

/* Make a run ours, with what was read of its blocks. */
static int install_run(struct adoption *a, struct run *run)
{
	struct reef_heap *heap = a->heap;
	uint32_t chunk = run->first / HEAP_UNITS_PER_CHUNK;
	int rc = 0;

	heap_run_map(run);
	run->bump = run->count;
	for (uint32_t i = run->count; i-- > 0;) {
		if (run->blocks[i] & BLOCK_OUT) {
			if (run->blocks[i] & BLOCK_UNJUDGED && !rc)
				rc = judge_later(heap,
						 heap_block_address(run, i),
						 a->extent->chunks[chunk].from);
		} else if (run->kind == RUN_SLAB) {
			run->stack[run->top++] =
				(uint32_t)heap_block_address(run, i);
		} else {
			run->bump = 0;
		}
	}
	if (!heap_run_used(run))
		heap_run_drop(heap, run);
	else if (heap_run_has_room(run))
		heap_list_add(&heap->partial[run->class], run);
	return rc;
}

/* Make units that are in no run free, but for heads that made no sense. */
static int install_free(struct adoption *a, uint32_t first, uint32_t end)
{
	uint32_t from = first;
	int rc = 0;

	for (uint32_t unit = first; unit < end && !rc; unit++) {
		if (!heap_descriptor_is_head(a->descriptors[unit]))
			continue;
		blame_chain(a, unit / HEAP_UNITS_PER_CHUNK, -REEF_ECORRUPT);
		if (unit > from)
			rc = heap_units_add(a->heap, a->extent, from, unit);
		from = unit + 1;
	}
	if (!rc && end > from)
		rc = heap_units_add(a->heap, a->extent, from, end);
	return rc;
}

static int install_chain(struct adoption *a, const struct chain *chain,
			 uint32_t *next)
{
	const struct heap_shape *shape = &a->extent->shape;
	uint32_t unit = heap_chunk_first(shape, chain->first);
	uint32_t end = heap_chunk_end(shape, chain->last);
	int rc = 0, one;

	memcpy(&a->extent->shadow[unit], &a->descriptors[unit],
	       (end - unit) * 8);
	for (uint32_t c = chain->first; c <= chain->last; c++)
		a->extent->chunks[c].partly = false;
	while (*next < a->runs_count && a->runs[*next]->first < end) {
		struct run *run = a->runs[*next];

		one = install_free(a, unit, run->first);
		rc = rc ? rc : one;
		unit = run->first + run->units;
		a->runs[(*next)++] = NULL;
		one = install_run(a, run);
		rc = rc ? rc : one;
	}
	one = install_free(a, unit, end);
	return rc ? rc : one;
}

/* Chains all of whose chunks are ours are taken over; of others the runs are
 * dropped. */
static int install_all(struct adoption *a)
{
	uint32_t next = 0;
	int rc = 0, one;

	for (uint32_t i = 0; i < a->chains_count; i++) {
		struct chain *chain = &a->chains[i];
		uint32_t end = heap_chunk_end(&a->extent->shape, chain->last);

		chain->ours = chain->wanted;
		for (uint32_t c = chain->first; c <= chain->last; c++)
			chain->ours &= a->extent->chunks[c].partly;
		if (chain->ours) {
			one = install_chain(a, chain, &next);
			rc = rc ? rc : one;
		}
		while (next < a->runs_count && a->runs[next]->first < end) {
			heap_run_fini(a->runs[next]);
			free(a->runs[next]);
			a->runs[next++] = NULL;
		}
	}
	return rc;
}

/* --- one extent --- */

/* True if something in the extent is to be adopted. */
static bool is_wanted(const struct adoption *a)
{
	for (uint32_t i = 0; i < a->extent->shape.chunks; i++)
		if (a->extent->chunks[i].partly ||
		    (!a->extent->chunks[i].mine && dead_owner(a, i)))
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
	chains_find(a);
	chains_choose(a);
	for (uint32_t i = 0; i < a->chains_count && !rc; i++)
		if (a->chains[i].wanted)
			rc = make_runs(a, &a->chains[i]);
	if (!rc)
		rc = read_headers(a);
	if (!rc)
		rc = adopt_round(a, true);
	if (!rc)
		rc = adopt_round(a, false);
	if (a->extent->dead)
		return -REEF_ELOST;
	/* Whole chains are taken over, even if others could not be had. */
	if (a->chains_count && !rc)
		rc = install_all(a);
	return rc;
}

static int adopt_extent(struct adoption *a)
{
	uint32_t chunks = a->extent->shape.chunks;
	uint32_t units = a->extent->shape.units;
	int rc = -ENOMEM;

	a->descriptors = calloc(units, sizeof(*a->descriptors));
	a->chains = malloc(chunks * sizeof(*a->chains));
	a->runs = malloc(units * sizeof(struct run *));
	a->bulk = malloc(BULK_BATCH * REEF_UNIT_SIZE);
	if (a->descriptors && a->chains && a->runs && a->bulk)
		rc = adopt_chains(a);
	drop_runs(a);
	free(a->descriptors);
	free(a->chains);
	free(a->runs);
	free(a->bulk);
	return rc;
}

static int adopt_in_extent(struct reef_heap *heap, struct extent *extent,
			   struct reef_heap_recovery *list, uint32_t count)
{
	struct adoption *a = calloc(1, sizeof(*a));
	uint32_t chunks = extent->shape.chunks;
	int rc = 0;

	if (!a)
		return -ENOMEM;
	a->heap = heap;
	a->extent = extent;
	a->list = list;
	a->list_count = count;
	a->words = calloc(chunks + 1, sizeof(*a->words));
	if (!a->words) {
		free(a);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < chunks; i++)
		a->words[i] = extent->chunks[i].word;
	if (is_wanted(a))
		rc = adopt_extent(a);
	if (heap_is_lost(rc)) {
		reef_heap_forget(heap, extent->number);
		rc = 0;
	}
	if (rc && chunks)
		blame(a, 0, chunks - 1, rc);
	free(a->words);
	free(a);
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
		for (i = 0; i < count && away[i] != node; i++)
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
			note_status(&list[i], rc);
}
