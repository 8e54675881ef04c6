/* recover.c - what becomes of a dead session's blocks (rule 8).
 *
 *   adopted block    header 0, FREE       free at once (adopt.c)
 *                    RETIRED              limbo
 *                    KEPT                 stays
 *                    LIVE  page           given to the caller, then freed
 *                          raw            limbo
 *                          another kind   is_live: stays, or limbo
 *
 * All pages are handed over before any LIVE block is freed. What was adopted
 * and not judged yet, because of an error that may pass, is judged by the next
 * call for that session, and holds up no other's; if we die instead, our chunks
 * hold it, and our own recovery finds it LIVE. */
#include "pool/client/heap/internal.h"

#include "base/mutant.h"
#include "wire/states.h"

/* A block whose node is away may take as long as a call has patience: after so
 * many, the others wait for the next call, too. */
#define ERRORS_MAX 4u

static bool is_page(uint32_t block)
{
	return (uint8_t)(block >> 8) == REEF_BLOCK_PAGE &&
	       !(block & BLOCK_LIMBO);
}

static uint32_t *unjudged_at(struct reef_heap *heap, uint32_t index,
			     struct run **run)
{
	uint32_t *block =
		heap_block_at(heap, heap->unjudged[index].address, run);

	return block && *block & BLOCK_UNJUDGED ? block : NULL;
}

/* A page's intents are settled: its header must not say LIVE any more, or they
 * would be settled once more when we die. */
static int retire_page(struct reef_heap *heap, uint64_t address)
{
	struct run *run;
	uint32_t *block;
	int rc = heap_other_free(heap, address, REEF_FREE_LATER, 0, true);

	if (rc && reef_recovery_may_pass(rc))
		return rc;
	block = heap_block_at(heap, address, &run);
	if (block && *block & BLOCK_UNJUDGED)
		heap_limbo_add(heap, run, (uint32_t)(block - run->blocks));
	return 0;
}

/* Who is given pages. */
struct receiver {
	int (*page)(void *context, uint32_t session, uint64_t address,
		    uint64_t size);
	void *context;
};

static int hand_over_pages(struct reef_heap *heap, uint32_t session,
			   const struct receiver *receiver)
{
	int rc = 0;

	for (uint32_t i = 0; i < heap->unjudged_count && !rc; i++) {
		uint64_t address = heap->unjudged[i].address;
		struct run *run;
		uint32_t *block = unjudged_at(heap, i, &run);

		if (!block || !is_page(*block) ||
		    heap->unjudged[i].session != session)
			continue;
		if (receiver->page)
			rc = receiver->page(receiver->context, session, address,
					    run->block_size - HEAP_HEADER);
		if (!reef_recovery_may_pass(rc))
			rc = retire_page(heap, address);
	}
	return rc;
}

/* 1: an adopted block stays.  0: it is to be freed.  -errno. */
static int must_stay(struct reef_heap *heap, uint32_t block, uint64_t address)
{
	const struct reef_heap_ops *ops = heap->options.ops;
	uint8_t kind = (uint8_t)(block >> 8);

	if (block & BLOCK_LIMBO || kind == REEF_BLOCK_RAW)
		return 0;
	if (!ops->is_live)
		return 1;
	return ops->is_live(heap->options.context, kind, address);
}

/* Judge the block of that index, and take it off the list.  -errno: not now. */
static int judge_block(struct reef_heap *heap, uint32_t index)
{
	uint64_t address = heap->unjudged[index].address;
	struct run *run;
	uint32_t *block = unjudged_at(heap, index, &run);
	int stays = block ? must_stay(heap, *block, address) : 0;

	if (reef_recovery_may_pass(stays))
		return stays;
	if (stays < 0)
		reef_log(REEF_LOG_WARNING, "heap",
			 "block %016llx of session %08x stays: %s",
			 (unsigned long long)address,
			 heap->unjudged[index].session, reef_error_text(stays));
	/* This fiber may have parked: find the block anew. */
	block = unjudged_at(heap, index, &run);
	if (block && stays)
		*block &= ~(uint32_t)BLOCK_UNJUDGED;
	else if (block)
		heap_limbo_add(heap, run, (uint32_t)(block - run->blocks));
	heap->unjudged[index] = heap->unjudged[--heap->unjudged_count];
	return 0;
}

static int judge_blocks(struct reef_heap *heap, uint32_t session)
{
	uint32_t errors = 0;
	int rc = 0, one;

	/* From the end, as what takes the place of a judged one was met. */
	for (uint32_t i = heap->unjudged_count; i-- > 0;) {
		if (heap->unjudged[i].session != session)
			continue;
		one = judge_block(heap, i);
		rc = rc ? rc : one;
		errors += one != 0;
		if (errors >= ERRORS_MAX)
			break;
	}
	return rc;
}

/* Judge what waits of a session: its pages first. */
static int judge_session(struct reef_heap *heap, uint32_t session,
			 const struct receiver *receiver)
{
	int rc = hand_over_pages(heap, session, receiver);

	return rc ? rc : judge_blocks(heap, session);
}

/* The lowest session after that one of which blocks wait; 0: there is none. */
static uint32_t next_unjudged(const struct reef_heap *heap, uint32_t after)
{
	uint32_t next = 0, session;

	for (uint32_t i = 0; i < heap->unjudged_count; i++) {
		session = heap->unjudged[i].session;
		if (session > after && (!next || session < next))
			next = session;
	}
	return next;
}

static bool is_listed(const struct reef_heap_recovery *list, uint32_t count,
		      uint32_t session)
{
	for (uint32_t i = 0; i < count; i++)
		if (list[i].session == session)
			return true;
	return false;
}

/* Judge what waits of sessions that are not in the list: another heap may have
 * ended their recovery, so nobody may ask again. Up to the first error, which
 * is not the caller's. */
static void judge_leftovers(struct reef_heap *heap,
			    const struct reef_heap_recovery *list,
			    uint32_t count, const struct receiver *receiver)
{
	uint32_t session = 0;
	int rc = 0;

	while (!rc && (session = next_unjudged(heap, session)))
		if (!is_listed(list, count, session))
			rc = judge_session(heap, session, receiver);
}

/* True if a chunk of that session, or any (0), may be ours, and is not known to
 * be. */
static bool is_adopting(const struct reef_heap *heap, uint32_t session)
{
	for (const struct extent *e = heap->extents; e; e = e->next)
		for (uint32_t i = 0; !e->dead && i < e->shape.chunks; i++)
			if (e->chunks[i].adopt_word &&
			    (!session || e->chunks[i].from == session))
				return true;
	return false;
}

bool reef_heap_is_judging(const struct reef_heap *heap, uint32_t session)
{
	for (uint32_t i = 0; i < heap->unjudged_count; i++)
		if (!session || heap->unjudged[i].session == session)
			return true;
	return heap->adopt_doubts && is_adopting(heap, session);
}

/* 0: the session may be recovered.  -EBUSY: it is not FENCED. */
static int check_dead(const struct reef_heap *heap, uint32_t session)
{
	int rc;

	if (!session || session == heap->session)
		return -EINVAL;
	if (REEF_MUTATED(HEAP_ADOPT_ALIVE))
		return 0;
	rc = heap->options.ops->is_fenced(heap->options.context, session);
	return rc < 0 ? rc : rc ? 0 : -EBUSY;
}

/* Judge what was adopted of the sessions of the list. */
static void judge_list(struct reef_heap *heap, struct reef_heap_recovery *list,
		       uint32_t count, const struct receiver *receiver)
{
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		if (!list[i].dead)
			continue;
		rc = judge_session(heap, list[i].session, receiver);
		if (!rc && reef_heap_is_judging(heap, list[i].session))
			rc = -EAGAIN;
		if (rc && !REEF_MUTATED(HEAP_END_EARLY))
			list[i].status = rc;
	}
}

/* Adopt and judge; the heap's lock is not held. */
static int recover_list(struct reef_heap *heap, struct reef_heap_recovery *list,
			uint32_t count, const struct receiver *receiver)
{
	bool any = false;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		list[i].status = check_dead(heap, list[i].session);
		list[i].dead = !list[i].status;
		any |= list[i].dead;
	}
	rc = heap_lock(heap);
	if (rc)
		return rc;
	if (any || heap->adopt_doubts)
		heap_adopt(heap, list, count);
	heap_unlock(heap);
	/* Without the lock, as whoever is called may use the heap. */
	judge_list(heap, list, count, receiver);
	judge_leftovers(heap, list, count, receiver);
	return 0;
}

int reef_heap_recover(struct reef_heap *heap, struct reef_heap_recovery *list,
		      uint32_t count,
		      int (*page)(void *context, uint32_t session,
				  uint64_t address, uint64_t size),
		      void *context)
{
	const struct receiver receiver = {page, context};
	int rc = -EBUSY, first = 0;

	if (!heap->recovering) {
		heap->recovering = true;
		rc = recover_list(heap, list, count, &receiver);
		heap->recovering = false;
	}
	for (uint32_t i = 0; i < count; i++) {
		if (rc)
			list[i].status = rc;
		first = first ? first : list[i].status;
	}
	return rc ? rc : first;
}
