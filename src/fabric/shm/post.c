/* post.c - the data path of shm: a check and a copy, inline.
 *
 * A batch runs in order, to its end, on the caller's processor, so that F3
 * holds by itself. What costs a barrier is F4: a WRITE leaves its bytes in the
 * store buffer, where others do not see them, and a later load does not wait
 * for it.
 *
 *   between a WRITE and a later READ of a batch, and at the end of a batch that
 *   wrote: a full barrier. CAS and FAA are one themselves.
 *   between any two operations: acquire and release, which is nothing on x86.
 *
 * post checks a whole batch before it does anything (F8), and prefetches while
 * it checks, so that the misses of a batch overlap. Only SEND, FLUSH and a
 * changed control word leave the fast path. */
#include "base/likely.h"
#include "fabric/near.h"
#include "fabric/shm/shm.h"

#include <sys/mman.h>
#include <unistd.h>

/* Operations prefetched ahead of the one under way. */
#define PREFETCH_OPS 32
/* A post whose link's control word changes more often than this: -EAGAIN. */
#define SERVES_MAX 16
/* How far the turn grows, instead of by 2, when a post serves its link: shm.h.
 */
#define TURNS_PER_SERVE 6

#define KIND(kind) (1u << (kind))
#define NOT_FAST (KIND(REEF_SEND) | KIND(REEF_FLUSH))

/* Do a READ, WRITE, CAS or FAA that was checked. Between enter and leave. */
static inline void run_op(struct reef_op *op, bool *dirty)
{
	reef_near_do(op->kind, op->remote->base + op->offset, op->local,
		     op->length, op->compare, op->operand, &op->result, dirty);
	op->status = 0;
}

static inline void prefetch_op(const struct reef_op *op)
{
	reef_near_prefetch(op->remote->base + op->offset,
			   op->kind <= REEF_WRITE ? op->length : 8,
			   op->kind != REEF_READ);
}

/* --- SEND and FLUSH --- */

/* Make the bytes of a FLUSH durable. Between enter and leave. */
static int run_flush(struct reef_op *op)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = op->offset / page * page;

	if (!op->length)
		return 0;
	/* The file's pages are shared by all its mappings, so this covers what
	 * anyone has completed. It blocks: durability has no other meaning. */
	if (msync(op->remote->base + start, op->offset + op->length - start,
		  MS_SYNC))
		return -errno;
	return 0;
}

/* Locked: send a message. 0: the kernel or the ring has it.  1: the stream has
 * it, but not yet the kernel.  -EAGAIN: there is no room for it. */
static int run_send(struct shm_link *link, struct reef_op *op)
{
	struct iovec part = {op->local, op->length};
	int rc;

	if (!link->stream || link->ending ||
	    atomic_load(&link->link.state) != REEF_LINK_UP)
		return -REEF_ENOLINK;
	if (shm_ring_send(link, op->local, op->length))
		return 0;
	rc = reef_stream_send(link->stream, REEF_FRAME_MESSAGE,
			      link->is_accepted ? 0 : link->ringed_count, &part,
			      op->length ? 1 : 0, -1);
	if (rc)
		return rc;
	if (!link->is_accepted)
		link->streamed_count++;
	return reef_stream_wants_write(link->stream);
}

static void add_pending(struct shm_link *link, struct reef_batch *batch,
			uint32_t index, bool taken)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);

	batch->scratch[0] = index;
	batch->scratch[1] = taken;
	batch->next = NULL;
	if (!link->pending)
		link->moved_ns = reef_now_ns();
	*link->pending_tail = batch;
	link->pending_tail = &batch->next;
	link->pending_count++;
	atomic_store(&shm->restless, true);
}

static int run_send_unlocked(struct shm_link *link, struct reef_batch *batch,
			     uint32_t index)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);
	int rc = -EAGAIN;

	pthread_mutex_lock(&shm->lock);
	/* A SEND goes behind those that wait already, and only when the stream
	 * keeps nothing: one that is done must not depend on its sender polling
	 * again. */
	if (!link->pending &&
	    (!link->stream || !reef_stream_flush(link->stream)))
		rc = run_send(link, &batch->ops[index]);
	if (rc == 1 || (rc == -EAGAIN && index > 0)) {
		add_pending(link, batch, index, rc == 1);
		rc = 1;
	}
	shm_link_interest(link);
	pthread_mutex_unlock(&shm->lock);
	return rc;
}

static int run_send_locked(struct shm_link *link, struct reef_batch *batch,
			   uint32_t index)
{
	int rc = run_send(link, &batch->ops[index]);

	if (rc != 1 && rc != -EAGAIN)
		return rc;
	batch->scratch[0] = index;
	batch->scratch[1] = rc == 1;
	return 1;
}

/* Inside: 0, or why an operation that was checked long ago is not to be done. A
 * fence, and a new link of the session, wait for who is inside and for nobody
 * else (F7, F5), so whoever comes in again in the middle of a batch looks. */
static int recheck_op(const struct shm_link *link, const struct reef_op *op)
{
	int state =
		atomic_load_explicit(&op->remote->state, memory_order_relaxed);
	uint64_t word;

	if (state)
		return state < 0 ? state : -EINVAL;
	/* Acquire: as in must_serve. */
	word = atomic_load_explicit(link->link.control, memory_order_acquire);
	if (word == atomic_load_explicit(&link->link.control_seen,
					 memory_order_acquire))
		return 0;
	if (word & SHM_CONTROL_FENCED)
		return -REEF_EFENCED;
	/* After its end the word may be another link's, without the bits; the
	 * owner has closed the socket before. The remote was open, so ours is
	 * not closed before we leave. */
	if ((word & SHM_CONTROL_ENDED) || shm_link_has_hung_up(link))
		return -REEF_ENOLINK;
	return 0;
}

int shm_run_ops(struct shm_queue *queue, struct reef_batch *batch,
		uint32_t index, bool locked)
{
	struct shm_link *link = (struct shm_link *)batch->link;
	bool dirty = false;
	struct reef_op *op;
	int rc = 0;

	for (; index < batch->count; index++) {
		op = &batch->ops[index];
		if (op->kind == REEF_SEND || op->kind == REEF_FLUSH) {
			reef_near_end(dirty);
			dirty = false;
		}
		if (op->kind == REEF_SEND) {
			rc = locked ? run_send_locked(link, batch, index)
				    : run_send_unlocked(link, batch, index);
			if (rc == 1 || rc == -EAGAIN)
				return rc;
		} else {
			reef_turn_enter(&queue->queue.turn);
			rc = recheck_op(link, op);
			if (!rc && op->kind == REEF_FLUSH)
				rc = run_flush(op);
			else if (!rc)
				run_op(op, &dirty);
			reef_turn_leave(&queue->queue.turn);
		}
		if (rc) {
			reef_batch_fail(batch, index, rc);
			break;
		}
		op->status = 0;
	}
	reef_near_end(dirty);
	return 0;
}

static int check_sends(struct shm_link *link, const struct reef_batch *batch)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);
	uint32_t i, max, pending;

	pthread_mutex_lock(&shm->lock);
	max = link->peer_message_max;
	pending = link->pending_count;
	pthread_mutex_unlock(&shm->lock);
	for (i = 0; i < batch->count; i++)
		if (batch->ops[i].kind == REEF_SEND &&
		    batch->ops[i].length > max)
			return -EMSGSIZE;
	return pending >= shm->fabric.options.depth_max ? -EAGAIN : 0;
}

/* Post a batch that was checked and has a SEND or a FLUSH in it. */
static int post_general(struct shm_queue *queue, struct reef_batch *batch,
			uint32_t kinds)
{
	struct shm_link *link = (struct shm_link *)batch->link;
	int rc;

	if (kinds & KIND(REEF_SEND)) {
		rc = check_sends(link, batch);
		if (rc)
			return rc;
	}
	rc = shm_run_ops(queue, batch, 0, false);
	if (rc)
		return rc == 1 ? 0 : rc;
	/* A first operation that was refused is a refused batch. */
	if (batch->ops[0].kind == REEF_SEND && batch->ops[0].status)
		return batch->ops[0].status;
	batch->done = true;
	return 1;
}

/* --- when something has changed --- */

/* Do what the link's control word and socket ask for. */
static void serve_changes(struct shm_queue *queue, struct shm_link *link)
{
	struct shm_fabric *shm = shm_of(link->link.fabric);
	uint64_t word;

	pthread_mutex_lock(&shm->lock);
	if (atomic_load(&link->link.state) != REEF_LINK_UP)
		goto out;
	/* An accepted link belongs to its queue's thread. */
	if (link->is_accepted && link->link.queue != &queue->queue)
		goto out;
	word = atomic_load_explicit(link->link.control, memory_order_acquire);
	if (shm_peer_is_dead(link->peer)) {
		shm_link_died(queue, link);
		goto out;
	}
	if (word & SHM_CONTROL_FENCED) {
		shm_link_end(queue, link, -REEF_EFENCED, false);
		goto out;
	}
	shm_link_serve(queue, link);
	if (link->unsettled)
		shm_remotes_settle(link);
	if (atomic_load(&link->link.state) != REEF_LINK_UP)
		goto out;
	if (word & SHM_CONTROL_ENDED)
		shm_link_end(queue, link, -REEF_ENOLINK, false);
	else
		/* Release: what serve has closed. The partners are
		 * must_serve, and reef_near_at. */
		atomic_store_explicit(&link->link.control_seen, word,
				      memory_order_release);
out:
	if (atomic_load(&shm->restless))
		shm_links_tend(queue);
	/* What waits for another thread's post is looked at again soon. */
	queue->queue.turn.mask =
		atomic_load(&shm->restless) ? SHM_LOOK_OFTEN : SHM_LOOK_SELDOM;
	pthread_mutex_unlock(&shm->lock);
}

/* True if the link's control word has changed, or if it is time to read its
 * socket. */
static inline bool must_serve(const struct shm_queue *queue,
			      const struct shm_link *link, uint64_t turn)
{
	/* Acquire: the partners are shm_control_change and serve_changes. */
	return atomic_load_explicit(link->link.control, memory_order_acquire) !=
		       atomic_load_explicit(&link->link.control_seen,
					    memory_order_acquire) ||
	       !(turn & queue->queue.turn.mask);
}

/* After a post that found its link lost: a caller that never polls still lets
 * go of the memory of such links. */
static void tend_lost_links(struct shm_queue *queue, int rc)
{
	struct shm_fabric *shm = shm_of(queue->queue.fabric);

	if (rc != -REEF_ENOLINK && rc != -REEF_EFENCED)
		return;
	if (!atomic_load_explicit(&shm->restless, memory_order_relaxed))
		return;
	pthread_mutex_lock(&shm->lock);
	shm_links_tend(queue);
	pthread_mutex_unlock(&shm->lock);
}

/* Check all operations before the first is done, so that a batch that is
 * refused has done nothing; inside. *kinds: a bit for each kind among them. */
static inline int check_ops(const struct shm_queue *queue,
			    const struct reef_batch *batch, uint32_t *kinds)
{
	const struct reef_op *op = batch->ops, *end = op + batch->count;
	const struct reef_op *ahead = op + PREFETCH_OPS;
	int rc;

	for (; op < end; op++) {
		rc = reef_op_check(queue->queue.fabric, batch->link, op);
		if (unlikely(rc))
			return rc;
		*kinds |= KIND(op->kind);
		if (op < ahead && op->kind != REEF_SEND)
			prefetch_op(op);
	}
	return 0;
}

static inline void run_checked_ops(struct reef_batch *batch)
{
	struct reef_op *op = batch->ops, *end = op + batch->count;
	bool dirty = false;

	for (; op < end; op++) {
		if (end - op > PREFETCH_OPS)
			prefetch_op(op + PREFETCH_OPS);
		run_op(op, &dirty);
	}
	reef_near_end(dirty);
}

int shm_post(struct reef_layer *layer, struct reef_queue *base,
	     struct reef_batch *batch)
{
	struct shm_queue *queue = (struct shm_queue *)base;
	uint32_t kinds = 0, serves = 0;
	struct shm_link *link;
	uint64_t turn;
	int rc;

	(void)layer;
again:
	rc = reef_batch_check_link(base, batch);
	if (unlikely(rc)) {
		tend_lost_links(queue, rc);
		return rc;
	}
	link = (struct shm_link *)batch->link;
	turn = reef_turn_enter(&base->turn);
	if (unlikely(must_serve(queue, link, turn))) {
		/* Past turns that the mask refuses. Release: as in
		 * reef_turn_leave. */
		atomic_store_explicit(&base->turn.turn, turn + TURNS_PER_SERVE,
				      memory_order_release);
		if (++serves > SERVES_MAX)
			return -EAGAIN;
		serve_changes(queue, link);
		goto again;
	}
	rc = check_ops(queue, batch, &kinds);
	if (likely(!rc && !(kinds & NOT_FAST))) {
		run_checked_ops(batch);
		batch->done = true;
		rc = 1;
	}
	reef_turn_leave(&base->turn);
	return rc ? rc : post_general(queue, batch, kinds);
}
