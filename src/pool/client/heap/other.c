/* other.c - blocks that are another's: free, keep, how large.
 *
 *          LIVE --keep--> KEPT
 *            |             |
 *            +-------------+--> FREE, or RETIRED      all by CAS
 *
 * An address is somebody's word that a block begins there. The descriptors of
 * its unit are read to see whether one does, with the header; then comes the
 * CAS. Blocks of one slab are often freed one after the other, and their
 * headers differ little, so what was seen of a unit last is kept: if the CAS
 * with that header succeeds, one round trip was enough. If not, it brought the
 * right one.
 *
 * In a space with two copies nothing is guessed: a value that only the arbiter
 * has must not be compared with (handle/copies.h, 2).
 *
 * The owner looks at its chunk's counter to learn of it. For small blocks one
 * FAA tells of several; if we die before it, the owner finds them when memory
 * runs short.
 *
 * Where time goes (perf, another thread's 64 bytes on shm, 90 to 100 ns): 60 to
 * 70 in the CAS, for the cache line that the owner wrote; 36 in all when nobody
 * else had it. mimalloc's free from another thread only stores into the block
 * and does not wait for it (6 to 14 ns). Frees that wait to be done together
 * would come near it, but could not say -EALREADY, and would be lost with their
 * session. */
#include "pool/client/heap/internal.h"

#include "base/mutant.h"

#include <assert.h>

/* Of small blocks, one FAA counts up to UNTOLD_MAX frees. */
#define UNTOLD_MAX 32u
#define UNTOLD_SIZE 4608u
#define TRIES_MAX 8u /* of a CAS; each time somebody else was first */
#define LOOK_BACK 16u
static_assert(LOOK_BACK >= HEAP_SLAB_UNITS_MAX, "a slab's head is in reach");

/* Decode the run that the last unit of `descriptors` is in.  -EINVAL: no run
 * ever was there.  -EALREADY: a run that is free. */
static int decode_run(const struct reef_heap *heap, const uint64_t *descriptors,
		      uint32_t count, uint32_t unit, struct guess *guess)
{
	uint32_t at = count - 1, back;
	uint64_t head;
	const struct heap_class *class;

	while (at && heap_descriptor_kind(descriptors[at]) == HEAP_UNIT_INNER)
		at--;
	head = descriptors[at];
	back = count - 1 - at;
	if (!heap_descriptor_is_head(head) ||
	    heap_descriptor_units(head) <= back)
		return heap_descriptor_kind(descriptors[count - 1]) ==
				       HEAP_UNIT_NEVER
			       ? -EINVAL
			       : -EALREADY;
	guess->base = (uint64_t)(unit - back) << HEAP_UNIT_SHIFT;
	if (heap_descriptor_kind(head) == HEAP_UNIT_LARGE) {
		guess->block_size = (uint64_t)heap_descriptor_units(head)
				    << HEAP_UNIT_SHIFT;
		guess->inverse = 0;
		guess->end = guess->base + guess->block_size;
		return 0;
	}
	if (heap_descriptor_class(head) >= heap->classes.count)
		return -REEF_ECORRUPT;
	class = &heap->classes.all[heap_descriptor_class(head)];
	if (class->units != heap_descriptor_units(head))
		return -REEF_ECORRUPT;
	guess->block_size = class->block_size;
	guess->inverse = class->inverse;
	guess->end = guess->base + (uint64_t) class->blocks * class->block_size;
	return 0;
}

/* True if a block of that run has its data at the address. */
static bool begins_block(const struct guess *guess, uint64_t address)
{
	uint64_t from = (uint32_t)address - (uint64_t)HEAP_HEADER - guess->base;
	uint64_t index = (from * guess->inverse) >> 40;

	/* An address below the base wraps, and is beyond the end. */
	return from < guess->end - guess->base &&
	       index * guess->block_size == from;
}

static struct guess *guess_of(struct reef_heap *heap, uint64_t address)
{
	uint64_t unit = address >> HEAP_UNIT_SHIFT;

	return &heap->guesses[(unit ^ (unit >> 16)) % HEAP_GUESSES];
}

/* Find an extent that the heap does not know. Another session may have grown
 * the space just now, or the extent was lost: a READ of it tells. */
static int learn_extent(struct reef_heap *heap, uint32_t number,
			struct extent **out)
{
	uint64_t word;
	struct reef_access access =
		heap_read(heap_address(number, 0), &word, sizeof(word));
	int rc = heap_learn_extents(heap);

	*out = heap_extent(heap, number);
	if (rc || *out)
		return rc;
	rc = heap_execute(heap, &access, 1);
	if (!rc)
		rc = heap_learn_extents(heap);
	*out = heap_extent(heap, number);
	return rc == -EFAULT || (!rc && !*out) ? -EINVAL : rc;
}

/* Read which block is at an address, and its header. */
static int read_block(struct reef_heap *heap, uint64_t address,
		      struct guess *out)
{
	struct extent *extent = heap_extent(heap, (uint32_t)(address >> 32));
	uint32_t unit = (uint32_t)address >> HEAP_UNIT_SHIFT, count;
	uint64_t descriptors[LOOK_BACK];
	struct reef_access accesses[2];
	int rc;

	if (!extent) {
		rc = learn_extent(heap, (uint32_t)(address >> 32), &extent);
		if (rc)
			return rc;
	}
	if (address % 8 || unit >= extent->shape.units ||
	    unit < extent->shape.first ||
	    (uint32_t)address % REEF_UNIT_SIZE < HEAP_HEADER)
		return -EINVAL;
	count = unit - extent->shape.first + 1;
	count = count < LOOK_BACK ? count : LOOK_BACK;
	accesses[0] = heap_read(heap_descriptor_at(extent, unit - count + 1),
				descriptors, count * 8);
	accesses[1] = heap_read(address - HEAP_HEADER, &out->header, 8);
	rc = heap_execute(heap, accesses, 2);
	if (rc)
		return rc;
	rc = decode_run(heap, descriptors, count, unit, out);
	if (rc)
		return rc;
	if (!begins_block(out, address))
		return -EINVAL;
	if (!heap_header_is_sane(out->header))
		return -REEF_ECORRUPT;
	out->unit = address >> HEAP_UNIT_SHIFT;
	return 0;
}

static uint64_t counter_of(uint64_t address)
{
	uint64_t chunk = (uint32_t)address >> 20;

	return heap_address((uint32_t)(address >> 32),
			    HEAP_TABLE_AT + 8 + chunk * HEAP_TABLE_STEP);
}

/* Count one more free in a chunk. Returns how many accesses that takes now: 1
 * if *access, an FAA, is due, because there are many, or another chunk's have
 * to go first, or `now` says so; else 0. */
static uint32_t count_free(struct reef_heap *heap, uint64_t counter, bool now,
			   struct reef_access *access)
{
	struct untold *untold = &heap->untold;
	uint64_t count = untold->count + 1;

	if (__builtin_expect(untold->counter == counter, 1)) {
		untold->count = count;
		if (count < UNTOLD_MAX && !now)
			return 0;
		*access = heap_faa(heap, counter, count);
		*untold = (struct untold){0};
		return 1;
	}
	if (now) {
		*access = heap_faa(heap, counter, 1);
		return 1;
	}
	*access = heap_faa(heap, untold->counter, untold->count);
	count = untold->counter != 0;
	*untold = (struct untold){counter, 1};
	return (uint32_t)count;
}

void heap_notify_owners(struct reef_heap *heap)
{
	struct reef_access access =
		heap_faa(heap, heap->untold.counter, heap->untold.count);

	if (!heap->untold.counter)
		return;
	heap->untold = (struct untold){0};
	heap_execute(heap, &access, 1);
}

/* CAS the header from what it is thought to be; *header becomes what it was.
 * The free is counted, unless the chunk is ours; that need not be at once, as
 * the counter only says where to look. */
static int try_change(struct reef_heap *heap, uint64_t address,
		      uint64_t *header, uint8_t state, bool ours, bool now)
{
	uint64_t at = address - HEAP_HEADER;
	uint64_t value = heap_header_with(*header, state);
	struct reef_access accesses[2];
	uint32_t count = 1;

	accesses[0] = heap_cas(at, *header, value);
	if (REEF_MUTATED(HEAP_FREE_WRITE))
		accesses[0] = heap_write(at, &value, 8);
	if (!ours)
		count += count_free(heap, counter_of(address), now,
				    &accesses[1]);
	heap_execute(heap, accesses, count);
	/* The FAA may have gone first (F3c), and failed as its extent is lost.
	 */
	if (accesses[0].status == -REEF_ENOTDONE)
		heap_execute(heap, accesses, 1);
	if (accesses[0].status)
		return accesses[0].status;
	if (accesses[0].kind == REEF_CAS)
		*header = accesses[0].result;
	return 0;
}

/* 0: the header may be changed to that state.  -EALREADY: it is too late. */
static int check_change(uint64_t header, uint8_t state)
{
	if (header == 0 || !heap_header_is_out(header))
		return -EALREADY;
	if (state == HEAP_BLOCK_KEPT &&
	    heap_header_state(header) == HEAP_BLOCK_KEPT)
		return -EALREADY;
	return 0;
}

/* What is to be said of a change when a CAS failed with rc after one that was
 * in doubt. That nothing happened is said of the last one alone, and a session
 * that has ended cannot tell either. */
static int in_doubt_still(int rc)
{
	return rc == -REEF_ENOLINK || rc == -REEF_EFENCED ? -REEF_EINDOUBT : rc;
}

/* A CAS from `was` was in doubt, and the next one found `header`. 1: the block
 * was changed, by us or another.  0: it was not, as `was` was a wrong guess.
 * -REEF_EINDOUBT: nobody can tell, as the block may be in a later life. */
static int judge_doubt(const struct reef_heap *heap, uint64_t was,
		       uint64_t header, uint8_t state, bool sure)
{
	const struct reef_heap_ops *ops = heap->options.ops;

	if (header == heap_header_with(was, state))
		return 1;
	if (state == HEAP_BLOCK_KEPT)
		return -REEF_EINDOUBT;
	if (heap_header_with(header, 0) == heap_header_with(was, 0))
		return heap_header_is_out(header) ? -REEF_EINDOUBT : 1;
	if (sure)
		return 1;
	/* What is RETIRED while we are inside has no later life yet. */
	return state == HEAP_BLOCK_RETIRED && ops->is_inside &&
			       ops->is_inside(heap->options.context)
		       ? 0
		       : -REEF_EINDOUBT;
}

static int change_header(struct reef_heap *heap, uint64_t address,
			 uint64_t expect, uint8_t state, bool ours)
{
	struct guess *guess = guess_of(heap, address), seen;
	bool may_guess =
		!heap->options.has_copies || REEF_MUTATED(COPIES_GUESS_COMPARE);
	uint64_t header = may_guess ? expect : 0, was;
	bool sure = header != 0, doubted = false;
	int rc;

	if (!header && may_guess && guess->unit == address >> HEAP_UNIT_SHIFT &&
	    begins_block(guess, address) &&
	    check_change(guess->header, state) == 0)
		header = guess->header;
	for (uint32_t i = 0; i < TRIES_MAX; i++) {
		if (!header) {
			rc = read_block(heap, address, &seen);
			if (rc)
				return rc;
			*guess = seen;
			header = seen.header;
			sure = true;
		}
		rc = sure ? check_change(header, state) : 0;
		if (rc)
			return rc;
		was = header;
		rc = try_change(heap, address, &header, state, ours,
				guess->unit != address >> HEAP_UNIT_SHIFT ||
					guess->block_size > UNTOLD_SIZE ||
					state == HEAP_BLOCK_KEPT);
		if (rc == -REEF_EINDOUBT && i + 1 < TRIES_MAX) {
			/* From now on it cannot happen any more (F5): repeat.
			 */
			doubted = true;
			continue;
		}
		if (rc)
			return doubted ? in_doubt_still(rc) : rc;
		if (doubted && header != was) {
			rc = judge_doubt(heap, was, header, state, sure);
			if (rc)
				return rc == 1 ? 0 : rc;
			doubted = false;
		}
		if (header == was) {
			if (guess->unit == address >> HEAP_UNIT_SHIFT)
				guess->header = was;
			return 0;
		}
		/* The CAS has brought the header. If it is of the same owner,
		 * and makes sense, the block need not be read. */
		if (!sure &&
		    (!heap_header_is_sane(header) || (header ^ was) >> 32))
			header = 0;
		sure = header != 0;
	}
	return -EAGAIN;
}

int heap_other_free(struct reef_heap *heap, uint64_t address, uint32_t flags,
		    uint64_t expect, bool ours)
{
	bool later =
		flags & REEF_FREE_LATER || (heap->options.has_copies && !ours);

	return change_header(heap, address, expect,
			     later ? HEAP_BLOCK_RETIRED : HEAP_BLOCK_FREE,
			     ours);
}

/* Why a block cannot be kept.  -EALREADY: it is kept.  -EINVAL: it is free. */
static int explain_keep(struct reef_heap *heap, uint64_t address)
{
	struct guess seen;
	int rc = read_block(heap, address, &seen);

	if (rc == -EALREADY || (!rc && !heap_header_is_out(seen.header)))
		return -EINVAL;
	return rc ? rc : -EALREADY;
}

int reef_heap_keep(struct reef_heap *heap, uint64_t address)
{
	struct run *run;
	uint32_t *block = heap_block_at(heap, address, &run), was;
	int rc;

	if (!heap_run_at(heap, address)) {
		rc = change_header(heap, address, 0, HEAP_BLOCK_KEPT, false);
		return rc == -EALREADY ? explain_keep(heap, address) : rc;
	}
	if (!block || !(*block & BLOCK_OUT) || *block & BLOCK_LIMBO)
		return -EINVAL;
	was = *block;
	if (was & BLOCK_PENDING) {
		rc = reef_heap_flush(heap);
		if (rc)
			return rc;
	}
	rc = change_header(
		heap, address,
		was & BLOCK_ADOPTED
			? 0
			: heap_block_header(heap, was, HEAP_BLOCK_LIVE),
		HEAP_BLOCK_KEPT, true);
	if (rc)
		return rc == -EALREADY ? explain_keep(heap, address) : rc;
	block = heap_block_at(heap, address, &run);
	if (block && (*block & BLOCK_GENERATION) == (was & BLOCK_GENERATION))
		*block |= BLOCK_SHARED;
	return 0;
}

int heap_other_size(struct reef_heap *heap, uint64_t address, uint64_t *size)
{
	struct guess seen;
	int rc = read_block(heap, address, &seen);

	if (rc == -EALREADY || (!rc && !heap_header_is_out(seen.header)))
		return -EINVAL;
	if (rc)
		return rc;
	*size = seen.block_size - HEAP_HEADER;
	return 0;
}
