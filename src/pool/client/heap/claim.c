/* claim.c - chunks: read their tables, claim, grow.
 *
 *           claim_some: CAS                        heap_release: CAS
 *   FREE g --------------------> OWNED by us, g+1 ------------------> FREE g+1
 *
 * A FREE word of generation 0 says that nobody ever had the chunk, so that its
 * descriptors and all its memory are zero. Of any other, the descriptors are
 * read behind the CAS, in the same batch.
 *
 * A claim or release whose word cannot even be read leaves a chunk that may
 * name this heap, which does not have it. What may still happen has happened,
 * or never will, once the epoch is over in which that was (client.h): the
 * session announces no later one before. Then the next who reads the tables
 * claims the chunk from its word, with the next generation; nothing was in it.
 *
 * Where to claim: beside what is ours, so that runs grow together; else at
 * random, so that many who look at the same words do not all want the same
 * chunk. Words are read anew when a part of what we own was claimed since, and
 * before we ask for more memory; a CAS that fails brings the word, too. */
#include "pool/client/heap/internal.h"

#include "base/mutant.h"

#include <stdatomic.h>

#define ROUNDS_MAX 64u	      /* of claiming; each finds out something */
#define CLAIM_BATCH 60u	      /* chunks in one batch */
#define LOOK_BYTES (1u << 20) /* of tables in one batch */
#define TRIES 3u	      /* scans for blocks that a counter tells of */
#define SCAN_PART 32u	      /* a pause is that many times a full scan */
#define ADOPTS_MAX 8u	      /* before the space grows; each some chunks */
#define ADOPT_FEW 4u
#define ADOPT_MANY 32u
#define GROW_USUAL 256u /* units up to which a usual extent will do */

bool heap_is_lost(int status)
{
	return status == -REEF_ELOST || status == -EFAULT;
}

/* --- reading tables --- */

int heap_learn_extents(struct reef_heap *heap)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	uint32_t max = ops->extents(heap->options.context, NULL, NULL, 0);
	uint32_t *numbers, count;
	uint64_t *sizes;
	int rc = 0;

	if (!max)
		return 0;
	numbers = malloc(max * sizeof(*numbers));
	sizes = malloc(max * sizeof(*sizes));
	if (!numbers || !sizes) {
		rc = -ENOMEM;
		goto out;
	}
	count = ops->extents(heap->options.context, numbers, sizes, max);
	for (uint32_t i = 0; i < count && i < max && !rc; i++)
		if (!heap_extent_add(heap, numbers[i], sizes[i]))
			rc = -ENOMEM;
out:
	free(numbers);
	free(sizes);
	return rc;
}

static void note_table(struct extent *extent, const uint64_t *words)
{
	if (words[0] == HEAP_EXTENT_WORD)
		extent->checked = true;
	else
		extent->wrong = words[0] != 0;
	extent->known = true;
	words += HEAP_TABLE_AT / 8;
	for (uint32_t i = 0; i < extent->shape.chunks; i++) {
		struct chunk *chunk = &extent->chunks[i];

		if (!chunk->mine)
			chunk->word = words[2 * i];
		if (chunk->counter != words[2 * i + 1])
			chunk->tries = TRIES;
		chunk->counter = words[2 * i + 1];
	}
}

static uint32_t table_bytes(const struct extent *extent)
{
	return HEAP_TABLE_AT + extent->shape.chunks * HEAP_TABLE_STEP;
}

/* Read the tables from `extent` on, as many as go into one batch; *extent
 * becomes the next one to read. */
static int read_some_tables(struct reef_heap *heap, struct extent **extent,
			    uint64_t *buffer)
{
	struct reef_access accesses[HEAP_BATCH];
	struct extent *of[HEAP_BATCH], *at = *extent;
	uint32_t count = 0, bytes = 0;
	int rc = 0;

	for (; at && count < HEAP_BATCH; at = at->next) {
		if (at->dead || !at->shape.chunks)
			continue;
		if (bytes + table_bytes(at) > LOOK_BYTES)
			break;
		of[count] = at;
		accesses[count++] =
			heap_read(heap_address(at->number, 0),
				  buffer + bytes / 8, table_bytes(at));
		bytes += table_bytes(at);
	}
	*extent = at;
	if (!count)
		return 0;
	heap_execute_reads(heap, accesses, count);
	for (uint32_t i = 0; i < count; i++) {
		if (of[i]->dead || accesses[i].status == -REEF_ENOTDONE)
			continue; /* another access has the error */
		if (accesses[i].status == 0)
			note_table(of[i], accesses[i].local);
		else if (heap_is_lost(accesses[i].status))
			reef_heap_forget(heap, of[i]->number);
		else
			rc = rc ? rc : accesses[i].status;
	}
	return rc;
}

int heap_read_table(struct reef_heap *heap, struct extent *extent)
{
	uint64_t *buffer = malloc(table_bytes(extent));
	struct reef_access access;
	int rc;

	if (!buffer)
		return -ENOMEM;
	access = heap_read(heap_address(extent->number, 0), buffer,
			   table_bytes(extent));
	rc = heap_execute(heap, &access, 1);
	if (!rc && !extent->dead)
		note_table(extent, buffer);
	else if (heap_is_lost(rc))
		reef_heap_forget(heap, extent->number);
	free(buffer);
	return heap_is_lost(rc) ? 0 : rc;
}

static void settle_doubts(struct reef_heap *heap);

int heap_read_tables(struct reef_heap *heap)
{
	struct extent *next;
	uint64_t *buffer;
	int rc = heap_learn_extents(heap);

	if (rc)
		return rc;
	buffer = malloc(LOOK_BYTES);
	if (!buffer)
		return -ENOMEM;
	heap->claims = 0;
	for (next = heap->extents; next && !rc;)
		rc = read_some_tables(heap, &next, buffer);
	free(buffer);
	if (!rc && heap->doubts)
		settle_doubts(heap);
	return rc;
}

/* --- choosing --- */

struct stretch {
	struct extent *extent;
	uint32_t first, last; /* chunks */
	uint32_t claims;      /* of them that are not ours yet */
};

/* The units of a chunk that are free and ours, or would be after a claim. */
static uint16_t usable_units(const struct extent *extent, uint32_t index)
{
	const struct chunk *chunk = &extent->chunks[index];

	if (chunk->mine)
		return chunk->free_map;
	return heap_chunk_is_free(chunk->word)
		       ? heap_chunk_map(&extent->shape, index)
		       : 0;
}

/* How many units are free in a row, from unit `from` of the chunk on. */
static uint32_t low_units(uint16_t map, uint32_t from)
{
	return (uint32_t)__builtin_ctz(~((uint32_t)map >> from));
}

/* How many units are free in a row at the high end of the chunk. */
static uint32_t high_units(uint16_t map)
{
	return (uint32_t)__builtin_clz(~((uint32_t)map << 16));
}

/* The stretch of chunks in `extent`, starting at `start` or later, that has the
 * units in a row with the fewest claims; false: none. */
static bool stretch_find(struct extent *extent, uint32_t start, uint32_t units,
			 struct stretch *best)
{
	uint32_t row = 0, first = start, claims = 0;

	best->claims = UINT32_MAX;
	for (uint32_t i = start; i < extent->shape.chunks; i++) {
		uint32_t from = heap_chunk_first(&extent->shape, i) -
				i * HEAP_UNITS_PER_CHUNK;
		uint16_t map = usable_units(extent, i);
		bool whole = map == heap_chunk_map(&extent->shape, i);

		if (row == 0)
			first = i;
		claims += !extent->chunks[i].mine && map;
		row += low_units(map, from);
		if (row >= units && claims && claims < best->claims)
			*best = (struct stretch){extent, first, i, claims};
		if (whole && row < units)
			continue;
		/* Begin anew with what is free at this chunk's end. */
		row = high_units(map);
		first = i;
		claims = !extent->chunks[i].mine && row;
		if (row >= units && claims && claims < best->claims)
			*best = (struct stretch){extent, first, i, claims};
	}
	return best->claims != UINT32_MAX;
}

static bool can_claim(const struct extent *extent)
{
	return extent->known && !extent->dead && !extent->wrong;
}

/* Choose a stretch in an extent where we own something. */
static bool choose_beside_own(struct reef_heap *heap, uint32_t units,
			      struct stretch *best)
{
	struct stretch one;

	best->claims = UINT32_MAX;
	for (struct extent *e = heap->extents; e; e = e->next)
		if (e->mine && can_claim(e) &&
		    stretch_find(e, 0, units, &one) &&
		    one.claims < best->claims)
			*best = one;
	return best->claims != UINT32_MAX;
}

static uint32_t count_free(const struct extent *extent)
{
	uint32_t count = 0;

	if (!can_claim(extent))
		return 0;
	for (uint32_t i = 0; i < extent->shape.chunks; i++)
		count += !extent->chunks[i].mine &&
			 heap_chunk_is_free(extent->chunks[i].word);
	return count;
}

/* Choose a stretch that begins at a random free chunk. */
static bool choose_at_random(struct reef_heap *heap, uint32_t units,
			     struct stretch *out)
{
	struct extent *extent;
	uint64_t total = 0, skip;
	uint32_t at = 0;

	for (struct extent *e = heap->extents; e; e = e->next)
		total += count_free(e);
	if (!total)
		return false;
	skip = reef_random_below(&heap->random, total);
	for (extent = heap->extents; extent; extent = extent->next) {
		if (skip < count_free(extent))
			break;
		skip -= count_free(extent);
	}
	reef_assert(extent != NULL); /* skip is below their number */
	while (extent->chunks[at].mine ||
	       !heap_chunk_is_free(extent->chunks[at].word) || skip--)
		at++;
	/* Nearly always one chunk is enough, and then it is this one. */
	if (units <=
	    (uint32_t)__builtin_popcount(heap_chunk_map(&extent->shape, at))) {
		*out = (struct stretch){extent, at, at, 1};
		return true;
	}
	for (struct extent *e = extent; e; e = e->next)
		if (can_claim(e) &&
		    stretch_find(e, e == extent ? at : 0, units, out))
			return true;
	for (struct extent *e = heap->extents; e; e = e->next)
		if (can_claim(e) && stretch_find(e, 0, units, out))
			return true;
	return false;
}

/* --- claiming --- */

struct claim {
	uint32_t chunk;
	uint32_t cas; /* index of its CAS among the accesses */
	bool reads;   /* the access behind that reads the descriptors */
	uint64_t descriptors[HEAP_UNITS_PER_CHUNK];
};

static uint64_t claimed_word(const struct reef_heap *heap, uint64_t word)
{
	uint16_t generation = heap_chunk_generation(word);

	if (!REEF_MUTATED(HEAP_CLAIM_GENERATION))
		generation = heap_generation_after(generation);
	return heap_chunk_word(heap->session, generation, heap->options.number,
			       HEAP_CHUNK_OWNED);
}

/* A chunk that was released properly has no heads. If there are some, they
 * become SPARE, or whoever recovers us would believe them. */
static int sweep_heads(struct reef_heap *heap, struct extent *extent,
		       uint32_t first, uint32_t end)
{
	struct reef_access access;
	bool heads = false;

	for (uint32_t i = first; i < end; i++) {
		heads |= heap_descriptor_is_head(extent->shadow[i]);
		if (extent->shadow[i])
			extent->shadow[i] =
				heap_descriptor(HEAP_UNIT_SPARE, 0, 0);
	}
	if (!heads)
		return 0;
	access = heap_write(heap_descriptor_at(extent, first),
			    &extent->shadow[first], (end - first) * 8);
	return heap_execute_writes(heap, &access, 1);
}

/* The CAS has made a chunk ours: its units become free units of the heap. */
static int claim_settle(struct reef_heap *heap, struct extent *extent,
			const struct claim *claim, uint64_t word,
			bool descriptors_read)
{
	struct chunk *chunk = &extent->chunks[claim->chunk];
	uint32_t first = heap_chunk_first(&extent->shape, claim->chunk);
	uint32_t end = heap_chunk_end(&extent->shape, claim->chunk);
	uint32_t start = claim->chunk * HEAP_UNITS_PER_CHUNK;
	int rc = 0;

	chunk->word = word;
	chunk->mine = true;
	chunk->free_map = 0;
	chunk->found = chunk->counter;
	extent->mine++;
	heap->chunks++;
	heap->claims++;
	for (uint32_t i = first; i < end; i++) {
		extent->shadow[i] = 0;
		if (claim->reads && descriptors_read)
			extent->shadow[i] = claim->descriptors[i - start];
		else if (claim->reads)
			extent->shadow[i] =
				heap_descriptor(HEAP_UNIT_SPARE, 0, 0);
	}
	if (claim->reads)
		rc = sweep_heads(heap, extent, first, end);
	if (!rc && !extent->dead)
		rc = heap_units_add(heap, extent, first, end);
	return rc;
}

static _Atomic uint64_t doubts;

uint64_t reef_heap_doubts(void)
{
	return atomic_load(&doubts);
}

static struct reef_access claim_read(const struct extent *extent,
				     struct claim *claim)
{
	uint32_t start = claim->chunk * HEAP_UNITS_PER_CHUNK;

	return heap_read(
		heap_descriptor_at(extent, start), claim->descriptors,
		(heap_chunk_end(&extent->shape, claim->chunk) - start) * 8);
}

static uint32_t claim_prepare(struct reef_heap *heap, struct extent *extent,
			      struct claim *claim, uint32_t chunk,
			      struct reef_access *accesses, uint32_t count)
{
	uint64_t word = extent->chunks[chunk].word;

	claim->chunk = chunk;
	claim->cas = count;
	claim->reads = heap_chunk_generation(word) != 0;
	accesses[count++] = heap_cas(heap_word_at(extent, chunk), word,
				     claimed_word(heap, word));
	if (claim->reads)
		accesses[count++] = claim_read(extent, claim);
	return count;
}

/* A CAS in doubt either happened or never will (F5), and only this heap writes
 * that word: so the word tells which. If it cannot be read, a later look at the
 * tables tells. If it might be another heap's of this session, the chunk is
 * nobody's until the session ends. */
static int claim_doubt(struct reef_heap *heap, struct extent *extent,
		       struct claim *claim, uint64_t wanted)
{
	struct chunk *chunk = &extent->chunks[claim->chunk];
	uint64_t word;
	struct reef_access accesses[2] = {
		heap_read(heap_word_at(extent, claim->chunk), &word, 8),
		claim_read(extent, claim),
	};
	int rc = heap_execute(heap, accesses, claim->reads ? 2 : 1);

	if (extent->dead)
		return 0;
	if (!accesses[0].status && (word != wanted || heap->options.number)) {
		chunk->word = word;
		return word == wanted ? claim_settle(heap, extent, claim,
						     wanted, rc == 0)
				      : 0;
	}
	if (heap->options.number)
		heap_note_doubt(heap, chunk);
	else
		atomic_fetch_add(&doubts, 1);
	chunk->word = wanted;
	return 0;
}

/* Take in what became of the CAS of a claim. That another was first is no
 * error: the CAS has brought the new word. */
static int claim_result(struct reef_heap *heap, struct extent *extent,
			struct claim *claim, const struct reef_access *accesses)
{
	const struct reef_access *cas = &accesses[claim->cas];
	struct chunk *chunk = &extent->chunks[claim->chunk];

	if (extent->dead)
		return 0;
	if (cas->status == -REEF_EINDOUBT)
		return claim_doubt(heap, extent, claim, cas->operand);
	if (cas->status == -ETIMEDOUT)
		heap_note_doubt(heap, chunk);
	if (cas->status)
		return cas->status;
	chunk->word = cas->result;
	if (cas->result != cas->compare)
		return 0;
	return claim_settle(heap, extent, claim, cas->operand,
			    claim->reads && cas[1].status == 0);
}

/* True if an attempt in doubt has left a chunk that names this heap, and cannot
 * happen any more. */
static bool is_mislaid(const struct reef_heap *heap, const struct chunk *chunk)
{
	const struct reef_heap_ops *ops = heap->options.ops;

	return chunk->doubt_epoch && !chunk->mine && heap->options.number &&
	       heap_chunk_is_owned(chunk->word, heap->session) &&
	       heap_chunk_heap(chunk->word) == heap->options.number &&
	       chunk->doubt_epoch < ops->safe_epoch(heap->options.context);
}

/* Claim the free ones of chunks first to last, at most CLAIM_BATCH of them. 1:
 * there may be more. */
static int claim_some(struct reef_heap *heap, struct extent *extent,
		      uint32_t first, uint32_t last)
{
	struct reef_access accesses[HEAP_BATCH];
	struct claim *claims = malloc(CLAIM_BATCH * sizeof(*claims));
	const uint64_t header[] = {HEAP_EXTENT_WORD,
				   extent->shape.units * REEF_UNIT_SIZE};
	uint32_t count = 0, claims_count = 0;
	int rc = 0, one;

	if (!claims)
		return -ENOMEM;
	/* The extent's header is not written yet. Whoever comes first writes
	 * it, and all write the same. */
	if (!extent->checked)
		accesses[count++] = heap_write(heap_address(extent->number, 0),
					       header, sizeof(header));
	for (uint32_t i = first; i <= last && claims_count < CLAIM_BATCH; i++) {
		if (extent->chunks[i].mine ||
		    (!heap_chunk_is_free(extent->chunks[i].word) &&
		     !is_mislaid(heap, &extent->chunks[i])))
			continue;
		count = claim_prepare(heap, extent, &claims[claims_count++], i,
				      accesses, count);
	}
	if (claims_count)
		heap_execute(heap, accesses, count);
	for (uint32_t i = 0; i < claims_count; i++) {
		one = claim_result(heap, extent, &claims[i], accesses);
		if (one && one != -REEF_ENOTDONE)
			rc = rc ? rc : one;
	}
	extent->checked |= claims_count && accesses[0].status == 0;
	free(claims);
	if (!rc && claims_count == CLAIM_BATCH)
		rc = 1;
	return rc;
}

int heap_claim_chunks(struct reef_heap *heap, struct extent *extent,
		      uint32_t first, uint32_t last)
{
	int rc = heap_extent_own(extent);

	/* Those that another claimed first are no longer free to us, so that
	 * this ends. */
	for (uint32_t i = 0; !rc || rc == 1; i++) {
		if (i > extent->shape.chunks || extent->dead)
			return 0;
		rc = claim_some(heap, extent, first, last);
		if (!rc)
			return 0;
	}
	if (heap_is_lost(rc)) {
		reef_heap_forget(heap, extent->number);
		return 0;
	}
	return rc;
}

/* --- doubts --- */

void heap_note_doubt(struct reef_heap *heap, struct chunk *chunk)
{
	const struct reef_heap_ops *ops = heap->options.ops;

	heap->doubts += !chunk->doubt_epoch;
	chunk->doubt_epoch = ops->reclaim_epoch(heap->options.context);
}

/* The words were read: chunks that name this heap since an attempt in doubt
 * become its own. Those that do not, once that cannot happen any more, are like
 * any other. */
static void settle_doubts(struct reef_heap *heap)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	uint64_t safe = ops->safe_epoch(heap->options.context);

	heap->doubts = 0;
	for (struct extent *e = heap->extents; e; e = e->next)
		for (uint32_t i = 0; !e->dead && i < e->shape.chunks; i++) {
			struct chunk *chunk = &e->chunks[i];

			if (is_mislaid(heap, chunk))
				heap_claim_chunks(heap, e, i, i);
			if (e->dead)
				break;
			if (chunk->mine || (chunk->doubt_epoch < safe &&
					    !is_mislaid(heap, chunk)))
				chunk->doubt_epoch = 0;
			heap->doubts += chunk->doubt_epoch != 0;
		}
}

/* --- growing --- */

static int grow_space(struct reef_heap *heap, uint32_t units)
{
	/* The extent's tables take at most a chunk. */
	uint64_t need = (units + HEAP_UNITS_PER_CHUNK) * REEF_UNIT_SIZE;
	uint64_t ask = units <= GROW_USUAL ? 0 : need, size;
	struct heap_shape shape;
	struct extent *extent;
	uint32_t number;
	int rc;

	need = (need + REEF_CHUNK_SIZE - 1) & ~(REEF_CHUNK_SIZE - 1);
	if (need > UINT64_C(1) << 32)
		return -EINVAL;
	for (;;) {
		rc = heap->options.ops->grow(heap->options.context, ask,
					     &number, &size);
		if (rc)
			return rc;
		extent = heap_extent_add(heap, number, size);
		if (!extent)
			return -ENOMEM;
		extent->known = true;
		shape = heap_shape_of(size);
		if (shape.units - shape.first >= units)
			return 0;
		if (ask == need)
			return -ENOSPC;
		ask = need;
	}
}

static bool class_has_room(const struct reef_heap *heap, uint32_t class)
{
	const struct run *run = heap->current[class];

	return class != HEAP_CLASS_LARGE &&
	       (heap->partial[class] || heap->vacant[class] ||
		heap_run_has_room(run));
}

static bool has_enough(const struct reef_heap *heap, uint32_t units,
		       uint32_t class)
{
	return class_has_room(heap, class) || heap_units_has(heap, units);
}

/* Read all tables, and take back what others freed. */
static int take_back_freed(struct reef_heap *heap, bool everywhere)
{
	int rc;

	heap_notify_owners(heap);
	rc = heap_read_tables(heap);
	if (!rc)
		rc = heap_scan(heap, everywhere);
	if (!rc)
		heap_limbo_drain(heap);
	return rc;
}

/* Adopt chunks that are ABANDONED; they may have room. Where the space can
 * grow, not for long. False: there are no more, or growing is better. */
static bool adopt_some(struct reef_heap *heap, bool may_grow, uint32_t *adopts)
{
	if (may_grow && *adopts >= ADOPTS_MAX)
		return false;
	++*adopts;
	return heap_adopt_abandoned(heap, may_grow ? ADOPT_FEW : ADOPT_MANY,
				    false) > 0;
}

/* Make units free by claiming chunks, or, if it may, by growing the space. */
static int claim_or_grow(struct reef_heap *heap, uint32_t units, uint32_t class,
			 bool may_grow)
{
	bool looked = false;
	struct stretch stretch;
	uint32_t adopts = 0;
	int rc = 0;

	for (uint32_t i = 0; i < ROUNDS_MAX && !rc; i++) {
		if (has_enough(heap, units, class))
			return 0;
		if (!looked && heap->claims * 8 >= heap->chunks) {
			rc = take_back_freed(heap, false);
			looked = true;
		} else if (choose_beside_own(heap, units, &stretch) ||
			   choose_at_random(heap, units, &stretch)) {
			rc = heap_claim_chunks(heap, stretch.extent,
					       stretch.first, stretch.last);
		} else if (!looked) {
			rc = take_back_freed(heap, false);
			looked = true;
		} else if (!adopt_some(heap, may_grow, &adopts)) {
			rc = may_grow ? grow_space(heap, units) : -ENOSPC;
		}
	}
	if (!rc && !has_enough(heap, units, class))
		rc = -ENOSPC;
	return rc;
}

/* Memory has run short: take back also the blocks whose freer died before it
 * counted them, by scanning all. That takes long where blocks are many and
 * small, and whoever finds no room tends to try again: so full scans may take a
 * part of the time only. */
static int take_back_all(struct reef_heap *heap)
{
	uint64_t begun_ns = reef_now_ns(), now_ns;
	int rc;

	if (begun_ns < heap->scan_next_ns)
		return take_back_freed(heap, false);
	rc = take_back_freed(heap, true);
	now_ns = reef_now_ns();
	heap->scan_next_ns = now_ns + (now_ns - begun_ns) * SCAN_PART;
	return rc;
}

/* How many chunks of the space are nobody's, FREE or ABANDONED. */
static uint64_t count_ownerless(const struct reef_heap *heap)
{
	uint64_t count = 0;

	for (const struct extent *e = heap->extents; e; e = e->next)
		for (uint32_t i = 0; can_claim(e) && i < e->shape.chunks; i++)
			count += !e->chunks[i].mine &&
				 !heap_chunk_owner(e->chunks[i].word);
	return count;
}

bool reef_heap_has_more(struct reef_heap *heap)
{
	uint64_t before = heap->short_free;

	heap->short_free = count_ownerless(heap);
	return heap->short_free > before;
}

int heap_claim(struct reef_heap *heap, uint32_t units, uint32_t class)
{
	int rc = claim_or_grow(heap, units, class, true);

	/* Others may have grown the space to its limit meanwhile. */
	if (rc == -ENOSPC || rc == -EDQUOT) {
		int again = take_back_all(heap);

		/* And no class keeps an empty slab. */
		heap_vacant_drop(heap, true);
		if (!again)
			again = claim_or_grow(heap, units, class, false);
		if (again != -ENOSPC)
			rc = again;
		heap->short_free = count_ownerless(heap);
	}
	if (rc)
		return rc;
	return class_has_room(heap, class) ? 1 : 0;
}
