/* block.c - the blocks of a space: a handle's heap, and what it needs of the
 * handle and the keeper. */
#include "pool/client/handle/space.h"

#include "base/mutant.h"
#include "pool/client/handle/call.h"
#include "pool/client/handle/recover.h"
#include "pool/client/keeper/renew.h"
#include "pool/client/keeper/space_job.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>

/* --- what a heap needs --- */

static int space_execute(void *context, struct reef_access *accesses,
			 uint32_t count)
{
	struct reef_space *space = context;
	int rc = client_handle_check(space->reef);

	return rc ? rc : client_execute(space->reef, accesses, count);
}

/* True for an extent that is there for the heap. One that is closed for now,
 * because it moves, fails over or is copied, is: who recovers a session must
 * look there, too, and waits until it can. */
static bool is_there(const struct client_extent *extent)
{
	return (extent->state == REEF_EXTENT_LIVE ||
		(extent->state == REEF_EXTENT_MOVING &&
		 !REEF_MUTATED(CLIENT_SKIP_CLOSED))) &&
	       !extent->is_twin;
}

static uint32_t space_extents(void *context, uint32_t *numbers, uint64_t *sizes,
			      uint32_t max)
{
	struct reef_space *space = context;
	struct reef_client *client = space->reef->client;
	const struct client_extent *extent;
	uint32_t count = 0, i;

	pthread_mutex_lock(&client->lock);
	for (i = 0; i < client->extents_room; i++) {
		extent = client->extents[i];
		if (!extent || extent->space != space->space ||
		    !is_there(extent))
			continue;
		if (count < max) {
			numbers[count] = extent->extent;
			sizes[count] = extent->size;
		}
		count++;
	}
	pthread_mutex_unlock(&client->lock);
	return count;
}

static uint32_t space_node(void *context, uint32_t number)
{
	struct reef_space *space = context;
	struct reef_client *client = space->reef->client;
	const struct client_extent *extent;
	uint32_t node;

	pthread_mutex_lock(&client->lock);
	extent = client_extent_find(client, number);
	node = extent ? extent->node : 0;
	pthread_mutex_unlock(&client->lock);
	return node;
}

static int space_grow(void *context, uint64_t size, uint32_t *number,
		      uint64_t *real_size)
{
	struct reef_space *space = context;
	struct client_grow_job *job;
	int rc;

	if (space->reef->client->janitor)
		return -ENOSPC;
	job = client_job_create(&client_grow_ops);
	if (!job)
		return -ENOMEM;
	job->space = space->space;
	job->size = size;
	/* What comes back from here on may have come too late for this. */
	space->returns = atomic_load(&space->reef->client->returns);
	rc = client_job_run(space->reef->client, &space->reef->member,
			    &job->job);
	if (!rc) {
		*number = job->extent;
		*real_size = job->size;
	}
	client_job_unref(&job->job);
	return rc;
}

static int space_shrink(void *context, uint32_t number)
{
	struct reef_space *space = context;
	struct client_shrink_job *job = client_job_create(&client_shrink_ops);
	int rc;

	if (!job)
		return -ENOMEM;
	job->space = space->space;
	job->extent = number;
	rc = client_job_run(space->reef->client, &space->reef->member,
			    &job->job);
	client_job_unref(&job->job);
	return rc;
}

static int space_is_fenced(void *context, uint32_t session)
{
	struct reef_space *space = context;
	enum reef_session_view view;
	int rc;

	rc = reef_session_check(space->reef, session, &view);
	return rc ? rc : view == REEF_VIEW_ENDED;
}

static uint64_t space_reclaim_epoch(void *context)
{
	struct reef_space *space = context;

	/* It may be one more by now: see note_epochs in keeper/renew.c. */
	return atomic_load(&space->reef->client->reclaim_epoch) + 1;
}

static uint64_t space_safe_epoch(void *context)
{
	struct reef_space *space = context;

	return atomic_load(&space->reef->client->safe_epoch);
}

static void space_hurry(void *context, uint64_t epoch)
{
	struct reef_space *space = context;

	client_hurry(space->reef->client, epoch);
}

static void space_waiting(void *context, int64_t bytes)
{
	struct reef_space *space = context;

	/* Unsigned numbers wrap, so that the sum is right in any order. */
	atomic_fetch_add_explicit(&space->space->waiting, (uint64_t)bytes,
				  memory_order_relaxed);
}

static bool space_is_inside(void *context)
{
	struct reef_space *space = context;

	return client_is_inside(space->reef);
}

static int space_is_live(void *context, uint8_t kind, uint64_t address)
{
	return client_kind_is_live(context, kind, address);
}

/* The place of a staged block in its space's list; staged_count: it is not
 * there. Locked. */
static uint32_t find_staged(const struct client_space *space, uint64_t address)
{
	uint32_t i = 0;

	while (i < space->staged_count && space->staged[i] != address)
		i++;
	return i;
}

bool reef_header_take(struct reef_space *space, uint64_t address,
		      uint64_t *header)
{
	struct reef *reef = space->reef;

	if (!reef->pending || !space->heap ||
	    !reef_heap_fold(space->heap->heap, address, header))
		return false;
	for (space = reef->spaces; space; space = space->next)
		if (space->heap && reef_heap_has_pending(space->heap->heap))
			return true;
	reef->pending = false;
	return true;
}

void reef_header_give(struct reef_space *space, uint64_t address)
{
	reef_heap_unfold(space->heap->heap, address);
	space->reef->pending = true;
}

int reef_block_stage(struct reef_space *space, uint64_t address, bool staged)
{
	struct reef_client *client = space->reef->client;
	struct client_space *known = space->space;
	uint32_t room = known->staged_room ? 2 * known->staged_room : 16, i;
	uint64_t *grown;
	int rc = 0;

	pthread_mutex_lock(&client->lock);
	i = find_staged(known, address);
	if (!staged && i < known->staged_count)
		known->staged[i] = known->staged[--known->staged_count];
	if (staged && known->staged_count == known->staged_room) {
		grown = realloc(known->staged, room * sizeof(*grown));
		if (grown) {
			known->staged = grown;
			known->staged_room = room;
		} else {
			rc = -ENOMEM;
		}
	}
	if (staged && !rc)
		known->staged[known->staged_count++] = address;
	pthread_mutex_unlock(&client->lock);
	return rc;
}

static bool space_is_asked(void *context, uint8_t kind, uint64_t address)
{
	struct reef_space *space = context;
	struct reef_client *client = space->reef->client;
	bool is_staged;

	if (!client_kind_is_quick(kind))
		return false;
	pthread_mutex_lock(&client->lock);
	is_staged =
		find_staged(space->space, address) < space->space->staged_count;
	pthread_mutex_unlock(&client->lock);
	return !is_staged || REEF_MUTATED(HEAP_SCAN_STAGED);
}

const struct reef_heap_ops client_heap_ops = {
	.execute = space_execute,
	.extents = space_extents,
	.node = space_node,
	.grow = space_grow,
	.shrink = space_shrink,
	.is_fenced = space_is_fenced,
	.reclaim_epoch = space_reclaim_epoch,
	.safe_epoch = space_safe_epoch,
	.hurry = space_hurry,
	.waiting = space_waiting,
	.is_inside = space_is_inside,
	.is_live = space_is_live,
	.is_asked = space_is_asked,
};

int client_heap_make(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	struct reef_heap_options options = {
		.ops = &client_heap_ops,
		.context = space,
		.session = client->session,
		.seed = client->options.seed,
		.beats = &client->beats,
		.has_copies = reef_space_copies(space) > 1,
	};
	struct client_heap *heap = calloc(1, sizeof(*heap));
	uint64_t made = atomic_fetch_add(&client->heaps_made, 1);
	int rc = 0;

	if (!heap)
		return -ENOMEM;
	if (made < REEF_HEAP_NUMBER_MAX)
		options.number = (uint16_t)(made + 1);
	if (!options.seed)
		rc = reef_random_secret(&options.seed, sizeof(options.seed));
	else
		options.seed += made;
	if (!rc)
		rc = reef_heap_create(&options, &heap->heap);
	if (rc) {
		free(heap);
		return rc;
	}
	pthread_mutex_lock(&client->lock);
	heap->lost_seen = space->space->lost_count;
	pthread_mutex_unlock(&client->lock);
	space->heap = heap;
	return 0;
}

/* Take a heap that no handle has; NULL: there is none. One in which blocks wait
 * to be judged is for the keeper, which goes on with them. */
static struct client_heap *take_idle_heap(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	bool is_keeper = space->reef == client->inner;
	struct client_heap **at, *heap;

	pthread_mutex_lock(&client->lock);
	space->space->is_used = true;
	for (at = &space->space->heaps; (heap = *at); at = &heap->next)
		if (is_keeper || !reef_heap_is_judging(heap->heap, 0))
			break;
	if (heap)
		*at = heap->next;
	pthread_mutex_unlock(&client->lock);
	return heap;
}

int client_heap_get(struct reef_space *space)
{
	struct client_heap *heap;

	if (likely(space->heap != NULL))
		return 0;
	heap = take_idle_heap(space);
	if (!heap)
		return client_heap_make(space);
	heap->next = NULL;
	space->heap = heap;
	reef_heap_move(heap->heap, &client_heap_ops, space);
	/* It has to forget extents that were lost while no handle had it. */
	client_handle_refresh(space->reef);
	return 0;
}

/* Give back what the heap of a handle does not need. */
static void clean_heap(struct reef_space *space, bool all)
{
	struct client_heap *heap = space->heap;
	struct reef_client *client = space->reef->client;

	if (!heap || client_over(client))
		return;
	reef_heap_flush(heap->heap);
	reef_heap_collect(heap->heap, all);
	/* What it has was read when it was adopted: this keeps nothing, and
	 * need not look at every block again for that. */
	if (client->janitor)
		reef_heap_relinquish(heap->heap);
}

/* Let go of the heap of a handle: another may have it from here on. */
static void detach_heap(struct reef_space *space)
{
	struct client_heap *heap = space->heap, **at;
	struct reef_client *client = space->reef->client;

	if (!heap)
		return;
	space->heap = NULL;
	space->ready = 0;
	heap->next = NULL;
	pthread_mutex_lock(&client->lock);
	for (at = &space->space->heaps; *at; at = &(*at)->next)
		;
	*at = heap;
	pthread_mutex_unlock(&client->lock);
}

void client_heap_put(struct reef_space *space, bool all)
{
	clean_heap(space, all);
	detach_heap(space);
}

static uint32_t count_idle_heaps(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	const struct client_heap *heap;
	uint32_t count = 0;

	pthread_mutex_lock(&client->lock);
	for (heap = space->space->heaps; heap; heap = heap->next)
		count++;
	pthread_mutex_unlock(&client->lock);
	return count;
}

void client_heap_give_back(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	uint32_t left = count_idle_heaps(space);
	bool last;

	pthread_mutex_lock(&client->lock);
	last = space->space->refs == 1 && !client->janitor;
	pthread_mutex_unlock(&client->lock);
	client_heap_put(space, last);
	while (last && left-- && !client_heap_get(space))
		client_heap_put(space, true);
}

/* --- blocks --- */

/* See to it that the space may be changed and has a heap. Whatever makes that
 * untrue moves the version of the view, so it is found out once per version. */
static __attribute__((noinline)) int prepare_slowly(struct reef_space *space)
{
	struct reef *reef = space->reef;
	int rc;

	space->ready = 0;
	rc = client_handle_check(reef);
	if (rc)
		return rc;
	if (unlikely(space->space->gone))
		return -REEF_ELOST;
	if (unlikely(!(space->space->rights & REEF_RIGHT_WRITE)))
		return -EACCES;
	rc = client_heap_get(space);
	if (!rc && unlikely(!client_is_current(reef)))
		client_handle_refresh(reef);
	if (!rc)
		space->ready = reef->seen;
	return rc;
}

static inline int prepare(struct reef_space *space)
{
	if (likely(space->ready ==
			   atomic_load_explicit(&space->reef->client->version,
						memory_order_relaxed) &&
		   !client_is_forked(space->reef)))
		return 0;
	return prepare_slowly(space);
}

/* This handle's heap is full, and the space has no more memory: perhaps there
 * is room in a heap that no handle has, such as what was recovered. */
static int alloc_elsewhere(struct reef_space *space, uint8_t kind,
			   uint64_t size, uint64_t *address, int rc)
{
	uint32_t left = count_idle_heaps(space);

	while (left-- && (rc == -ENOSPC || rc == -EDQUOT)) {
		clean_heap(space, true);
		/* Another fiber of this handle is inside: it must not find
		 * itself in a heap that is another thread's. */
		if (space->heap && reef_heap_is_busy(space->heap->heap))
			break;
		detach_heap(space);
		rc = prepare_slowly(space);
		if (!rc)
			rc = reef_heap_alloc(space->heap->heap, kind, size,
					     address);
	}
	return rc;
}

/* --- memory that waits (R8) --- */

#define OTHERS_NS (100 * CLIENT_MILLISECOND)
#define OTHERS_LOOK_NS (20 * CLIENT_MILLISECOND)
#define OTHERS_PAUSE_NS (2 * CLIENT_SECOND)
#define AWAIT_NS CLIENT_SECOND

/* True if blocks wait in heaps that no handle has; *epoch: the oldest epoch for
 * which they do. */
static bool is_waiting_elsewhere(struct reef_space *space, uint64_t *epoch)
{
	struct reef_client *client = space->reef->client;
	const struct client_heap *heap;
	bool is_waiting = false;
	uint64_t one;

	pthread_mutex_lock(&client->lock);
	for (heap = space->space->heaps; heap; heap = heap->next)
		if (reef_heap_is_waiting(heap->heap, &one) &&
		    (!is_waiting || one < *epoch)) {
			*epoch = one;
			is_waiting = true;
		}
	pthread_mutex_unlock(&client->lock);
	return is_waiting;
}

/* Waiting for others' memory. */
struct others {
	uint64_t epoch;	   /* after which all is back that is freed by now */
	uint64_t until_ns; /* handles may take that long to give up what they
			    * do not need */
	uint64_t vain_ns;  /* when all that seemed to be over; 0: not yet */
};

static void begin_others(struct reef_space *space, struct others *others)
{
	uint64_t now_ns = reef_now_ns();

	/* One more epoch, in which others hear that it is over. */
	others->epoch = space_reclaim_epoch(space) + 1;
	others->until_ns = now_ns + OTHERS_NS;
	others->vain_ns = 0;
	/* Where that was in vain a moment ago, it would be again. */
	if (now_ns < space->vain_until_ns)
		others->until_ns = now_ns;
}

/* True if something came back to the space, the pool or its quota since this
 * was asked last, or an allocation found no room. */
static bool has_more_come(struct reef_space *space)
{
	uint32_t returns = atomic_load(&space->reef->client->returns);
	bool more = reef_heap_has_more(space->heap->heap) ||
		    space->returns != returns;

	space->returns = returns;
	return more;
}

/* True if nothing will come, by a look at the table that was begun after that
 * seemed to be so. looked_ns: when the last one was, before anything else was
 * asked. */
static bool is_in_vain(struct reef_space *space, struct others *others,
		       uint64_t looked_ns)
{
	struct reef_client *client = space->reef->client;
	uint64_t now_ns = reef_now_ns();

	/* What the dead left waits for an epoch after they are recovered. */
	if (!others->epoch || atomic_load(&client->coming))
		begin_others(space, others);
	if (atomic_load(&client->safe_epoch) <= others->epoch ||
	    now_ns < others->until_ns)
		return false;
	if (!others->vain_ns)
		others->vain_ns = now_ns;
	return looked_ns > others->vain_ns;
}

/* Nothing waits here. But what others freed until now may come back, or what
 * they keep and do not need; and the broker may say that memory is coming. 1:
 * something came back to the space, the pool or its quota.  0: look again.
 * -ENOSPC: nothing will. */
static int wait_for_others(struct reef_space *space, struct others *others,
			   uint64_t timeout_ns)
{
	struct reef_client *client = space->reef->client;
	uint64_t looked_ns = atomic_load(&client->looked_ns);
	uint64_t safe = atomic_load(&client->safe_epoch);
	int rc;

	if (has_more_come(space))
		return 1;
	if (is_in_vain(space, others, looked_ns)) {
		space->vain_until_ns = reef_now_ns() + OTHERS_PAUSE_NS;
		return -ENOSPC;
	}
	if (timeout_ns > OTHERS_LOOK_NS)
		timeout_ns = OTHERS_LOOK_NS;
	rc = client_epoch_wait(client, &space->reef->member, safe, timeout_ns);
	return rc == -ETIMEDOUT ? 0 : rc;
}

int reef_reclaim(struct reef_space *space, uint64_t timeout_ns)
{
	uint64_t until_ns = reef_deadline_ns(timeout_ns), now_ns;
	uint64_t given = 0, epoch = 0;
	struct others others = {0};
	bool is_elsewhere;
	int rc;

	if (client_may_be_inside(space->reef))
		return -EDEADLK;
	for (;;) {
		rc = prepare(space);
		reef_assert(rc || space->heap);
		if (!rc)
			rc = reef_heap_reclaim(space->heap->heap, &given,
					       &epoch);
		if (rc == 1) {
			has_more_come(space); /* it is told with this */
			return 0;
		}
		is_elsewhere =
			rc == -ENOSPC && is_waiting_elsewhere(space, &epoch);
		if (rc && rc != -ENOSPC)
			return rc;
		now_ns = reef_now_ns();
		if (now_ns >= until_ns)
			return -ETIMEDOUT;
		if (rc && reef_heap_ask(space->heap->heap))
			continue; /* that waits now */
		if (rc && !is_elsewhere) {
			rc = wait_for_others(space, &others, until_ns - now_ns);
			if (rc)
				return rc == 1 ? 0 : rc;
			continue;
		}
		rc = client_epoch_wait(space->reef->client,
				       &space->reef->member, epoch,
				       until_ns - now_ns);
		/* Whoever allocates next finds what came back in that heap. */
		if (rc || is_elsewhere)
			return rc;
	}
}

int reef_epoch_end(struct reef *reef)
{
	uint64_t timeout_ns = 3 * reef_session_ttl(reef) + 2 * CLIENT_SECOND;

	if (client_is_inside(reef))
		return -EDEADLK;
	/* As what is freed now waits: see space_reclaim_epoch. */
	return client_epoch_wait(reef->client, &reef->member,
				 atomic_load(&reef->client->reclaim_epoch) + 1,
				 timeout_ns);
}

void reef_tend(struct reef_space *space)
{
	if (space->heap && !prepare(space))
		reef_heap_tend(space->heap->heap);
}

/* Count the time since the last call. What is much more than a wait takes is
 * our own absence. */
static void spend_patience(struct reef_patience *patience)
{
	uint64_t now_ns = reef_now_ns(), passed_ns;

	passed_ns = patience->seen_ns ? now_ns - patience->seen_ns : 0;
	patience->spent_ns +=
		passed_ns < 2 * AWAIT_NS ? passed_ns : 2 * AWAIT_NS;
	patience->seen_ns = now_ns;
}

int reef_await_memory(struct reef_space *space, struct reef_patience *patience)
{
	uint64_t most_ns = 3 * space->reef->client->ttl_ns + 2 * CLIENT_SECOND;
	uint64_t left_ns;
	int rc;

	spend_patience(patience);
	if (patience->spent_ns >= most_ns)
		return -ENOSPC;
	left_ns = most_ns - patience->spent_ns;
	rc = reef_reclaim(space, left_ns < AWAIT_NS ? left_ns : AWAIT_NS);
	if (rc == -ETIMEDOUT)
		return 0;
	/* Who is inside would wait for themselves. */
	return rc == -EDEADLK ? -ENOSPC : rc;
}

/* The space has no more memory: wait until blocks that were freed may be used
 * again. */
static int alloc_waiting(struct reef_space *space, uint8_t kind, uint64_t size,
			 uint64_t *address, int rc)
{
	struct reef_patience patience = {0};
	int waited;

	while (rc == -ENOSPC || rc == -EDQUOT) {
		waited = reef_await_memory(space, &patience);
		if (!waited)
			waited = prepare(space);
		if (waited)
			return waited == -ENOSPC ? rc : waited;
		rc = reef_heap_alloc(space->heap->heap, kind, size, address);
		if (rc == -ENOSPC || rc == -EDQUOT)
			rc = alloc_elsewhere(space, kind, size, address, rc);
	}
	return rc;
}

/* rc: what the handle's own heap said. */
static __attribute__((noinline)) int alloc_slowly(struct reef_space *space,
						  uint8_t kind, uint64_t size,
						  uint64_t *address, int rc)
{
	if (rc == -ENOSPC || rc == -EDQUOT)
		rc = alloc_elsewhere(space, kind, size, address, rc);
	if ((rc == -ENOSPC || rc == -EDQUOT) &&
	    !client_may_be_inside(space->reef))
		rc = alloc_waiting(space, kind, size, address, rc);
	return rc;
}

int reef_alloc_kind(struct reef_space *space, uint8_t kind, uint64_t size,
		    uint64_t *address)
{
	int rc = prepare(space);

	if (unlikely(rc))
		return rc;
	rc = reef_heap_alloc(space->heap->heap, kind, size, address);
	if (unlikely(rc))
		rc = alloc_slowly(space, kind, size, address, rc);
	if (likely(!rc))
		space->reef->pending = true;
	return rc;
}

int reef_alloc(struct reef_space *space, uint64_t size, uint64_t *address)
{
	return reef_alloc_kind(space, REEF_BLOCK_RAW, size, address);
}

int reef_free(struct reef_space *space, uint64_t address, uint32_t flags)
{
	int rc = prepare(space);

	if (rc)
		return rc;
	if (unlikely(flags & ~(uint32_t)REEF_FREE_LATER))
		return -EINVAL;
	/* A WRITE of ours that is not settled may be one to this block. */
	if (unlikely(atomic_load_explicit(&space->reef->client->unsettled,
					  memory_order_relaxed)))
		flags |= REEF_FREE_LATER;
	return reef_heap_free(space->heap->heap, address, flags);
}

int reef_keep(struct reef_space *space, uint64_t address)
{
	int rc = prepare(space);

	return rc ? rc : reef_heap_keep(space->heap->heap, address);
}

int reef_block_size(struct reef_space *space, uint64_t address, uint64_t *size)
{
	int rc = client_handle_check(space->reef);

	if (!rc)
		rc = client_heap_get(space);
	return rc ? rc : reef_heap_block_size(space->heap->heap, address, size);
}

int reef_block_stats(struct reef_space *space, struct reef_block_stats *out)
{
	struct reef_heap_stats stats;
	int rc = client_handle_check(space->reef);

	if (!rc)
		rc = client_heap_get(space);
	if (rc)
		return rc;
	reef_heap_stats(space->heap->heap, &stats);
	memset(out, 0, sizeof(*out));
	out->bytes_taken = stats.chunks * REEF_CHUNK_SIZE;
	out->bytes_live = stats.bytes_live;
	out->bytes_waiting = stats.bytes_limbo;
	out->classes = stats.classes;
	for (uint32_t i = 0; i < stats.classes; i++) {
		out->by_class[i].size = stats.by_class[i].block_size;
		out->by_class[i].blocks = stats.by_class[i].blocks;
		out->by_class[i].live = stats.by_class[i].live;
		out->by_class[i].waiting = stats.by_class[i].limbo;
	}
	return 0;
}

uint64_t reef_block_footprint(uint64_t size)
{
	return reef_heap_footprint(size);
}
