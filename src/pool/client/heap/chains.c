/* chains.c - which chunks of an extent go together, and whose they are; see
 * adopt.c for what a chain and a wall is. */
#include "pool/client/heap/adopt.h"

/* --- whose they are --- */

struct reef_heap_recovery *heap_dead_owner(const struct adoption *a,
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

void heap_note_status(struct reef_heap_recovery *recovery, int status)
{
	if (!recovery->status || recovery->status == -REEF_ECORRUPT)
		recovery->status = status;
}

void heap_blame_chunks(const struct adoption *a, uint32_t first, uint32_t last,
		       int status)
{
	struct reef_heap_recovery *dead;

	for (uint32_t i = first; i <= last; i++) {
		dead = heap_dead_owner(a, i);
		if (dead)
			heap_note_status(dead, status);
	}
}

const struct chain *heap_chain_of(const struct adoption *a, uint32_t index)
{
	const struct chain *chain = a->chains;

	while (chain->last < index)
		chain++;
	return chain;
}

void heap_blame_chain(const struct adoption *a, uint32_t index, int status)
{
	const struct chain *chain = heap_chain_of(a, index);

	heap_blame_chunks(a, chain->first, chain->last, status);
}

/* --- chains --- */

/* True if a run has units in several chunks, of which one is a wall. */
static bool meets_wall(const struct adoption *a, uint32_t unit, uint32_t units)
{
	uint32_t first = unit / HEAP_UNITS_PER_CHUNK;
	uint32_t last = (unit + units - 1) / HEAP_UNITS_PER_CHUNK;

	for (uint32_t c = first; c <= last && first != last; c++)
		if (a->walls[c])
			return true;
	return false;
}

uint32_t heap_head_units(const struct adoption *a, uint32_t unit)
{
	uint64_t head = a->descriptors[unit];
	uint32_t units = heap_descriptor_units(head);
	uint32_t class = heap_descriptor_class(head);

	if (!heap_descriptor_is_head(head) || !units ||
	    units > a->extent->shape.units - unit || meets_wall(a, unit, units))
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

	a->chains_count = 0;
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
			if (unit >= reach && heap_head_units(a, unit))
				reach = unit + heap_head_units(a, unit);
	}
}

/* 1: a chunk cannot be part of this chain, one that a dead session has chunks
 * of.  0: it can.  -errno. */
static int is_foreign(const struct adoption *a, const struct chain *chain,
		      uint32_t index)
{
	const struct reef_heap_ops *ops = a->heap->options.ops;
	uint64_t word = a->words[index], first = a->words[chain->first];
	uint32_t owner = heap_chunk_owner(word);
	int rc;

	if (a->extent->chunks[index].mine)
		return !a->extent->chunks[index].partly;
	if (heap_chunk_is_abandoned(word))
		return index == chain->first;
	if (!heap_chunk_is_owned(word, owner))
		return 1;
	if (heap_dead_owner(a, index) ||
	    (heap_chunk_is_adopting(first) && heap_chunk_owner(first) == owner))
		return 0;
	rc = owner == a->heap->session
		     ? 0
		     : ops->is_fenced(a->heap->options.context, owner);
	return rc < 0 ? rc : !rc;
}

/* True if a session of the list has a chunk in a chain of several. */
static bool is_dead_tied(const struct adoption *a, const struct chain *chain)
{
	for (uint32_t c = chain->first; c <= chain->last; c++)
		if (heap_dead_owner(a, c))
			return chain->first != chain->last;
	return false;
}

/* Make walls of the chunks that cannot be part of their chains. Returns how
 * many, or an error. */
static int walls_find(struct adoption *a)
{
	int count = 0, rc;

	for (uint32_t i = 0; i < a->chains_count; i++) {
		const struct chain *chain = &a->chains[i];

		if (!is_dead_tied(a, chain))
			continue;
		for (uint32_t c = chain->first; c <= chain->last; c++) {
			if (a->walls[c])
				continue;
			rc = is_foreign(a, chain, c);
			if (rc < 0)
				return rc;
			a->walls[c] = rc;
			count += rc;
		}
	}
	return count;
}

/* READ all words again.  -EBUSY: one has changed. */
static int check_words(struct adoption *a)
{
	uint32_t chunks = a->extent->shape.chunks;
	uint64_t *table = malloc(chunks * (size_t)HEAP_TABLE_STEP);
	struct reef_access access = heap_read(heap_word_at(a->extent, 0), table,
					      chunks * HEAP_TABLE_STEP);
	int rc;

	if (!table)
		return -ENOMEM;
	rc = heap_execute(a->heap, &access, 1);
	for (uint32_t c = 0; c < chunks && !rc; c++)
		if (!a->extent->chunks[c].mine && table[2 * c] != a->words[c])
			rc = -EBUSY;
	free(table);
	return rc;
}

int heap_chains_settle(struct adoption *a)
{
	bool any = false;
	int rc;

	do {
		chains_find(a);
		rc = walls_find(a);
		any |= rc > 0;
	} while (rc > 0);
	return rc || !any ? rc : check_words(a);
}

static bool is_chain_abandoned(const struct adoption *a,
			       const struct chain *chain)
{
	for (uint32_t c = chain->first; c <= chain->last; c++)
		if (!heap_chunk_is_abandoned(a->words[c]))
			return false;
	return true;
}

/* Mark some chains to adopt that are nobody's. */
static void chains_choose_abandoned(struct adoption *a)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < a->chains_count && count < a->max; i++) {
		struct chain *chain = &a->chains[i];

		chain->wanted = a->extent->chunks[chain->first].partly ||
				(chain->last >= a->from &&
				 is_chain_abandoned(a, chain));
		if (chain->wanted)
			count += chain->last - chain->first + 1;
	}
}

/* True if a dead session's chunks are in a chain whose first one has an owner
 * that is FENCED, too. Its own recovery would take them along, unless there is
 * no such session and never was. */
static bool is_left_behind(const struct adoption *a, const struct chain *chain)
{
	const struct reef_heap_ops *ops = a->heap->options.ops;
	uint32_t owner = heap_chunk_owner(a->words[chain->first]);

	return is_dead_tied(a, chain) &&
	       heap_chunk_is_owned(a->words[chain->first], owner) &&
	       owner != a->heap->session &&
	       ops->is_fenced(a->heap->options.context, owner) == 1;
}

void heap_chains_choose(struct adoption *a)
{
	if (a->abandoned) {
		chains_choose_abandoned(a);
		return;
	}
	for (uint32_t i = 0; i < a->chains_count; i++) {
		struct chain *chain = &a->chains[i];
		const struct chunk *first = &a->extent->chunks[chain->first];

		chain->wanted =
			first->partly ||
			(!first->mine && (heap_dead_owner(a, chain->first) ||
					  is_left_behind(a, chain)));
		if (!chain->wanted)
			heap_blame_chunks(a, chain->first, chain->last, -EBUSY);
	}
}

bool heap_chain_is_whole(const struct adoption *a, const struct chain *chain)
{
	for (uint32_t c = chain->first; c <= chain->last; c++)
		if (!a->extent->chunks[c].partly)
			return false;
	return true;
}
