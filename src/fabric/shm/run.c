/* run.c - reef_run on shm, cut to the bone.
 *
 * Where a program issues operations that do not depend on each other, the
 * processor overlaps their misses as far as its reorder buffer and its store
 * queue reach. So what counts is instructions, and stores most of all: hence
 * each check once, no calls, and no store of what is there already. One
 * operation costs about five nanoseconds more than the access itself.
 *
 * Whatever is not the plain case (another kind of operation, a long or
 * unaligned copy, something to look at, anything wrong) goes to
 * reef_run_general, which checks it all again and says what is wrong. In a
 * forked child there is no shm_run: grace.c sees to that. */
#include "fabric/shm/fast.h"

/* Short operations of a batch, all prefetched at once. */
#define MANY_MAX 64

/* What is written already is not written again. */
#define SET(place, value)                                                      \
	do {                                                                   \
		if (unlikely((place) != (value)))                              \
			(place) = (value);                                     \
	} while (0)

#define LOAD(place) atomic_load_explicit(&(place), memory_order_relaxed)

/* READ and WRITE: is all in order, and short enough to copy inline? One of no
 * bytes must begin inside, too: a limit of 0 lets nothing by. */
static inline bool is_short_copy(const struct reef_queue *queue,
				 const struct reef_op *op, uint64_t limit)
{
	const struct reef_buffer *buffer = op->buffer;
	uint64_t length = op->length;

	return !((op->offset | length) & 7) && length <= REEF_COPY_INLINE &&
	       length <= queue->fabric->options.length_max &&
	       op->offset < limit && length <= limit - op->offset &&
	       op->local &&
	       (!buffer ||
		((uint8_t *)op->local >= buffer->base &&
		 length <= buffer->size &&
		 (uint8_t *)op->local <= buffer->base + buffer->size - length));
}

/* Every operation that is a short copy: checked, and on its way into the cache.
 */
static inline bool are_short_copies(const struct shm_queue *queue,
				    const struct reef_batch *batch)
{
	const struct reef_op *op = batch->ops, *end = op + batch->count;
	const struct reef_remote *remote = NULL;
	const struct reef_buffer *buffer = NULL;
	uint64_t limit = 0, size = 0, length, length_max;
	const uint8_t *base = NULL, *at;
	uint8_t kind_max = 0;
	uintptr_t begin = 1;

	length_max = queue->queue.fabric->options.length_max;
	if (length_max > REEF_COPY_INLINE)
		length_max = REEF_COPY_INLINE;
	for (; op < end; op++) {
		/* Most batches stay in one remote and one buffer. */
		if (unlikely(op->remote != remote)) {
			remote = op->remote;
			if (!remote || remote->link != batch->link)
				return false;
			base = remote->base;
			kind_max = remote->read_only ? REEF_READ : REEF_WRITE;
			limit = LOAD(remote->limit);
		}
		if (unlikely(op->buffer != buffer)) {
			buffer = op->buffer;
			begin = buffer ? (uintptr_t)buffer->base : 1;
			size = buffer ? buffer->size : 0;
		}
		length = op->length;
		if (unlikely(op->kind > kind_max || !op->kind ||
			     op->flags > REEF_ORDERED || op->reserved ||
			     (op->offset | length) & 7 || length > length_max ||
			     op->offset >= limit ||
			     length > limit - op->offset))
			return false;
		/* Without a buffer: anything but NULL. */
		if (unlikely((uintptr_t)op->local < begin ||
			     (buffer &&
			      (length > size ||
			       (uintptr_t)op->local - begin > size - length))))
			return false;
		at = base + op->offset;
		if (op->kind == REEF_WRITE)
			reef_near_prefetch_write(at);
		else
			__builtin_prefetch(at);
		if (unlikely(((uintptr_t)at & (REEF_NEAR_LINE - 1)) + length >
			     REEF_NEAR_LINE))
			shm_prefetch(op);
	}
	return true;
}

static inline void run_short_copies(struct reef_batch *batch)
{
	struct reef_op *op = batch->ops, *end = op + batch->count;
	bool dirty = false;
	uint8_t *at;

	for (; op < end; op++) {
		at = op->remote->base + op->offset;
		if (op->kind == REEF_WRITE) {
			reef_copy_words_to(at, op->local, op->length);
			dirty = true;
		} else {
			if (unlikely(dirty))
				reef_near_barrier();
			dirty = false;
			reef_copy_words_from(op->local, at, op->length);
		}
		atomic_thread_fence(memory_order_acq_rel);
		SET(op->status, 0);
	}
	if (dirty)
		reef_near_barrier();
}

/* Several operations. */
static __attribute__((noinline)) int run_many(struct shm_queue *queue,
					      struct reef_batch *batch)
{
	struct shm_link *link = (struct shm_link *)batch->link;
	uint64_t turn;

	if (unlikely(!batch->count || !batch->ops || batch->count > MANY_MAX ||
		     batch->count > queue->queue.fabric->options.ops_max))
		return reef_run_general(&queue->queue, batch);
	turn = shm_enter(queue);
	if (unlikely(shm_must_look(queue, link, turn) ||
		     !are_short_copies(queue, batch))) {
		/* The same turn again, so that post finds that it must look. */
		atomic_store_explicit(&queue->queue.turn, turn,
				      memory_order_release);
		return reef_run_general(&queue->queue, batch);
	}
	run_short_copies(batch);
	shm_leave(queue, turn);
	batch->status = 0;
	batch->done = true;
	return 0;
}

int shm_run(struct reef_queue *base, struct reef_batch *batch)
{
	struct shm_queue *queue = (struct shm_queue *)base;
	struct shm_link *link = (struct shm_link *)batch->link;
	struct reef_op *op = batch->ops;
	struct shm_remote *remote;
	uint64_t turn;

	/* Acquire: the partner is opened() in frames.c. */
	if (unlikely(!link ||
		     atomic_load_explicit(&link->gate, memory_order_acquire) !=
			     base->fabric))
		return reef_run_general(base, batch);
	if (batch->count != 1)
		return run_many(queue, batch);
	if (unlikely(!op || !op->remote || op->remote->link != batch->link ||
		     op->flags > REEF_ORDERED || op->reserved))
		return reef_run_general(base, batch);
	remote = (struct shm_remote *)op->remote;
	turn = atomic_load_explicit(&queue->queue.turn, memory_order_relaxed);
	atomic_store_explicit(&queue->queue.turn, turn + 1,
			      memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(shm_must_look(queue, link, turn)))
		goto general;
	switch (op->kind) {
	case REEF_READ:
		if (unlikely(!is_short_copy(base, op,
					    LOAD(remote->remote.limit))))
			goto general;
		reef_copy_words_from(op->local,
				     remote->remote.base + op->offset,
				     op->length);
		break;
	case REEF_WRITE:
		if (unlikely(!is_short_copy(base, op,
					    LOAD(remote->remote.write_limit))))
			goto general;
		reef_copy_words_to(remote->remote.base + op->offset, op->local,
				   op->length);
		reef_near_barrier();
		break;
	case REEF_CAS:
		/* The limit is in words: one that begins inside ends there. */
		if (unlikely(op->offset & 7 ||
			     op->offset >= LOAD(remote->remote.write_limit)))
			goto general;
		shm_do_cas(op);
		break;
	case REEF_FAA:
		if (unlikely(op->offset & 7 ||
			     op->offset >= LOAD(remote->remote.write_limit)))
			goto general;
		shm_do_faa(op);
		break;
	default:
		goto general;
	}
	shm_leave(queue, turn);
	SET(op->status, 0);
	SET(batch->status, 0);
	SET(batch->done, true);
	return 0;
general:
	/* The same turn again, so that post finds that it must look. */
	atomic_store_explicit(&queue->queue.turn, turn, memory_order_release);
	return reef_run_general(base, batch);
}

/* --- one word --- */

/* The word at that offset, inside; NULL: not this way, and not inside. The gate
 * need not be looked at: there is a remote, so the link was up; and one that
 * goes down has seen SHM_CONTROL_NEVER, besides closing the limit. */
static inline _Atomic uint64_t *word_enter(struct shm_queue *queue,
					   struct reef_remote *base,
					   uint64_t offset, uint64_t *turn)
{
	struct shm_remote *remote = (struct shm_remote *)base;
	struct shm_link *link = (struct shm_link *)base->link;

	*turn = LOAD(queue->queue.turn);
	atomic_store_explicit(&queue->queue.turn, *turn + 1,
			      memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	/* The limit is in words: one that begins inside ends there. */
	if (likely(!shm_must_look(queue, link, *turn) && !(offset & 7) &&
		   offset < LOAD(remote->remote.write_limit)))
		return (void *)(base->base + offset);
	/* The same turn again, so that post finds that it must look. */
	atomic_store_explicit(&queue->queue.turn, *turn, memory_order_release);
	return NULL;
}

int shm_run_cas(struct reef_queue *queue, struct reef_remote *remote,
		uint64_t offset, uint64_t compare, uint64_t value,
		uint64_t *before)
{
	_Atomic uint64_t *word;
	uint64_t turn;

	word = word_enter((struct shm_queue *)queue, remote, offset, &turn);
	if (unlikely(!word))
		return reef_run_cas_general(queue, remote, offset, compare,
					    value, before);
	atomic_compare_exchange_strong(word, &compare, value);
	shm_leave((struct shm_queue *)queue, turn);
	*before = compare;
	return 0;
}

int shm_run_faa(struct reef_queue *queue, struct reef_remote *remote,
		uint64_t offset, uint64_t add, uint64_t *before)
{
	_Atomic uint64_t *word;
	uint64_t turn, value;

	word = word_enter((struct shm_queue *)queue, remote, offset, &turn);
	if (unlikely(!word))
		return reef_run_faa_general(queue, remote, offset, add, before);
	value = atomic_fetch_add(word, add);
	shm_leave((struct shm_queue *)queue, turn);
	*before = value;
	return 0;
}
