/* call.c - a list of accesses, from one state to the next.
 *
 *            +---------------------- another window -----------------------+
 *            v                                                             |
 *   begin -> BUILD --posted--> POSTED --all batches ended--> (collect) ----+
 *              ^  |               (no room: ROOM, BUILD)     |  |  |
 *              |  |                       ASKED <-- DOUBT <--+  |  +-> ENDED
 *              |  +--extent unknown------> ASKED <---refused----+
 *              +------the keeper's answer----+
 *
 * (1) Accesses are done in windows of at most OPS operations. A window is cut
 *     into parts, one for each link, each posted as one batch; the next window
 *     begins when the parts of this one have ended.
 * (2) An access that is still to be done has status PENDING. What a node
 *     refused without doing it stays PENDING; from then on only neighbours in
 *     the list that are on one link are posted together, so that the order of
 *     the list is kept even if its memory moved apart.
 * (3) What is in doubt is settled before it is reported. All links that a
 *     window lost with something under way are told to the keeper at once, who
 *     settles them (keeper/settle.c). What it could not settle with all its
 *     patience is -ETIMEDOUT: it may still happen, and the keeper goes on with
 *     it. A call does not return before the keeper knows, even if memory for
 *     the question is short (DOUBT). READs, and the headers of blocks that
 *     nobody knows of yet, are repeated.
 * (4) While a call waits for the keeper it is outside (grace.c).
 * (5) A call that comes upon a change of memory with two copies, while it fills
 *     a window, leaves everything from that window's first access on to
 *     copies.c (COPIES), which has calls of its own do the parts.
 * (6) A READ of memory with copies counts only if, when it is done, the
 *     session's lease still runs: else the copy may have been given up without
 *     us, at a node that is cut off together with us. It is repeated when the
 *     keeper has renewed the lease. */
#include "pool/client/handle/call.h"

#include "base/mutant.h"
#include "pool/client/handle/copies.h"
#include "pool/client/handle/space.h"
#include "pool/client/handle/window.h"
#include "pool/client/keeper/renew.h"

#include <stdlib.h>
#include <string.h>

/* --- storage --- */

static struct client_call *call_create(uint32_t room)
{
	uint32_t parts = room < PARTS ? room : PARTS;
	struct client_call *call;
	size_t size = sizeof(*call);

	size += parts * sizeof(struct part) + room * sizeof(struct piece);
	size += room * (2 * sizeof(struct reef_op) + sizeof(uint16_t));
	call = malloc(size);
	if (!call)
		return NULL;
	call->room = room;
	call->parts_max = parts;
	/* The arrays follow each other by falling alignment. */
	call->parts = (struct part *)(call + 1);
	call->built = (struct reef_op *)(call->parts + parts);
	call->ops = call->built + room;
	call->pieces = (struct piece *)(call->ops + room);
	call->piece_of = (uint16_t *)(call->pieces + room);
	return call;
}

struct client_call *client_call_take(struct reef *reef, uint32_t count)
{
	bool many = count > OPS_FEW / 2;
	struct client_call *call = reef->calls_free[many];

	if (call)
		reef->calls_free[many] = call->next;
	else
		call = call_create(many ? OPS : OPS_FEW);
	return call;
}

void client_call_give(struct reef *reef, struct client_call *call)
{
	bool many = call->room == OPS;

	call->next = reef->calls_free[many];
	reef->calls_free[many] = call;
}

void client_call_free(struct client_call *calls)
{
	struct client_call *next;

	for (; calls; calls = next) {
		next = calls->next;
		free(calls);
	}
}

struct client_call **client_call_next(struct client_call *call)
{
	return &call->next;
}

struct reef_task **client_call_task(struct client_call *call)
{
	return &call->task;
}

int client_call_status(const struct client_call *call)
{
	return call->status;
}

/* --- beginning --- */

static int check_access(const struct reef_access *access)
{
	if (access->flags & ~CLIENT_FLAGS || access->reserved)
		return -EINVAL;
	switch (access->kind) {
	case REEF_READ:
	case REEF_WRITE:
		return access->length && !access->local ? -EINVAL : 0;
	case REEF_CAS:
	case REEF_FAA:
		return access->address & 7 ? -EINVAL : 0;
	case REEF_FLUSH:
		return 0;
	default:
		return -EINVAL;
	}
}

void client_call_begin(struct client_call *call, struct reef *reef,
		       struct reef_access *accesses, uint32_t count)
{
	uint32_t i;
	int rc = 0;

	memset(call, 0, offsetof(struct client_call, room));
	call->reef = reef;
	call->accesses = accesses;
	call->count = count;
	call->begun_ns = reef_now_ns();
	call->window_max = call->room;
	call->piece_max = UINT32_MAX;
	for (i = 0; i < count; i++) {
		accesses[i].status = PENDING;
		if (!rc) {
			rc = check_access(&accesses[i]);
			if (rc)
				accesses[i].status = rc;
		}
	}
	if (!rc)
		return;
	/* If one access is malformed, none is done. */
	for (i = 0; i < count; i++)
		if (accesses[i].status == PENDING)
			accesses[i].status = -REEF_ENOTDONE;
	call->status = rc;
	call->state = ENDED;
}

void client_call_begin_parts(struct client_call *call, struct reef *reef,
			     struct reef_access *accesses, uint32_t count,
			     uint64_t version)
{
	client_call_begin(call, reef, accesses, count);
	call->is_part = true;
	call->version = version;
}

/* True if no access but the first may change something. */
static bool only_reads_follow(const struct client_call *call)
{
	for (uint32_t i = 1; i < call->count; i++)
		if (call->accesses[i].kind != REEF_READ)
			return false;
	return true;
}

/* Let the waiting header of a fresh block travel in front of its first data;
 * true if the heap has no other. Only if the call changes nothing else: parts
 * are posted side by side, so another part might tell of the block before its
 * header is there. */
static bool fold_header(struct client_call *call, struct reef_heap *heap)
{
	struct header *header = &call->header;

	if (call->has_header || call->accesses[0].kind != REEF_WRITE ||
	    !only_reads_follow(call) ||
	    !reef_heap_fold(heap, call->accesses[0].address, &header->word))
		return false;
	header->heap = heap;
	call->has_header = true;
	return !reef_heap_has_pending(heap);
}

int client_call_headers(struct client_call *call)
{
	struct reef *reef = call->reef;
	struct reef_space *space;
	int rc;

	if (call->state == ENDED)
		return 0;
	for (space = reef->spaces; space; space = space->next) {
		if (!space->heap || !reef_heap_has_pending(space->heap->heap))
			continue;
		if (fold_header(call, space->heap->heap))
			continue;
		rc = reef_heap_flush(space->heap->heap);
		if (rc)
			return rc;
	}
	reef->pending = false;
	return 0;
}

/* --- ending --- */

/* The header that went with an access that failed waits again. It may have been
 * written: that does no harm, as nobody knows of the block. */
static void unfold_header(struct client_call *call)
{
	if (!call->has_header || !call->accesses[0].status)
		return;
	reef_heap_unfold(call->header.heap, call->accesses[0].address);
	call->reef->pending = true;
	call->has_header = false;
}

static void end_call(struct client_call *call)
{
	struct reef_access *access = call->accesses;
	uint32_t i;

	unfold_header(call);
	client_count_latency(&call->reef->member.counters,
			     reef_now_ns() - call->begun_ns, 1);
	call->state = ENDED;
	call->status = 0;
	for (i = 0; i < call->count; i++, access++) {
		if (access->status == PENDING)
			access->status = -REEF_ENOTDONE;
		/* The call's status is that of the first access that failed by
		 * itself, not because of another. */
		if (access->status &&
		    (!call->status || call->status == -REEF_ENOTDONE))
			call->status = access->status;
	}
}

/* Let an access fail; those after it that are PENDING are not done. */
static void mark_failed(struct client_call *call, uint32_t index, int rc)
{
	uint32_t i;

	call->failed = true;
	call->accesses[index].status = rc;
	for (i = index + 1; i < call->count; i++)
		if (call->accesses[i].status == PENDING)
			call->accesses[i].status = -REEF_ENOTDONE;
}

static bool has_pending(const struct client_call *call, uint32_t from,
			uint32_t to)
{
	uint32_t i;

	for (i = from; i < to && i < call->count; i++)
		if (call->accesses[i].status == PENDING)
			return true;
	return false;
}

/* As mark_failed; the call goes on with what is still to be done before the
 * access, or ends. */
static void fail_access(struct client_call *call, uint32_t index, int rc)
{
	mark_failed(call, index, rc);
	if (!has_pending(call, 0, index))
		end_call(call);
}

void client_call_fail(struct client_call *call, int rc)
{
	uint32_t i = 0;

	while (i < call->count && call->accesses[i].status != PENDING)
		i++;
	if (i < call->count)
		fail_access(call, i, rc);
	else
		end_call(call);
}

/* --- a window --- */

static void touch(struct client_call *call, struct part *part, uint32_t extent);

/* Leave what is to be done to copies.c: (5). */
static void begin_copies(struct client_call *call)
{
	call->inner = 0;
	call->copies = client_copies_begin(
		call->reef, call->accesses + call->from,
		call->count - call->from, PENDING,
		call->has_header && !call->from ? &call->header.word : NULL);
	if (call->copies)
		call->state = COPIES;
	else
		client_call_fail(call, -ENOMEM);
}

/* Fill the window with operations, from the access `from` on. False: the call
 * waits for the keeper, or has ended. */
static bool fill_window(struct client_call *call)
{
	uint32_t i, last = call->failed ? call->to : call->count;
	struct client_entry *entry;
	int part, rc;

	call->ops_count = call->parts_count = 0;
	call->inner_to = 0;
	for (i = call->from; i < last && i < call->count; i++) {
		if (call->accesses[i].status != PENDING)
			continue;
		if (call->ops_count + 2 > call->window_max && call->ops_count)
			break;
		rc = call_resolve_access(call, &call->accesses[i], &entry);
		if (rc == -EAGAIN) {
			call->to = i;
			touch(call, NULL, call_extent_of(&call->accesses[i]));
			return false;
		}
		if (unlikely(rc == -EXDEV)) {
			begin_copies(call);
			return false;
		}
		if (rc) {
			fail_access(call, i, rc);
			if (call->state == ENDED)
				return false;
			break;
		}
		part = call_part_of(call, entry);
		if (part < 0)
			break;
		if (!call_add_access(call, i, entry, part))
			break;
	}
	call->to = i;
	return true;
}

/* Ask the keeper what has to be asked next: all lost links at once, then each
 * extent. False: there is nothing. */
static bool ask_next(struct client_call *call)
{
	struct part *part = call->parts, *last = part + call->parts_count;

	for (; part < last; part++)
		if (part->is_lost) {
			call->state = DOUBT;
			return true;
		}
	for (part = call->parts; part < last && !part->why; part++)
		;
	if (part == last)
		return false;
	touch(call, part, call_extent_of(call_access_of(call, part->why_op)));
	return true;
}

/* Collect the results of a window whose parts have all ended, and choose the
 * call's next state. */
static void collect_window(struct client_call *call)
{
	uint32_t i;
	bool again = false, room = false;

	for (i = 0; i < call->parts_count; i++) {
		call_collect_part(call, &call->parts[i]);
		again |= !call->parts[i].posted ||
			 call->parts[i].batch.status != 0;
		room |= !call->parts[i].posted &&
			call->parts[i].batch.status == -EAGAIN;
	}
	client_leave(call->reef, call->phase);
	call->state = BUILD;
	if (ask_next(call)) {
		call->serial = true;
		return;
	}
	if (again) {
		client_count(&call->reef->member.counters.retries, 1);
		/* Accesses of this window that are PENDING are done again, from
		 * their first byte. */
		call->inner = 0;
		if (room)
			call->state = ROOM;
		if (has_pending(call, call->from, call->to))
			return;
		if (call->failed) {
			end_call(call);
			return;
		}
		if (call->inner_to)
			return;
	}
	call->from = call->to;
	call->inner = call->inner_to;
	if (call->failed || call->from == call->count)
		end_call(call);
}

/* --- asking the keeper --- */

static void start_job(struct client_call *call, struct client_job *job)
{
	call->job = job;
	call->state = ASKED;
	call->inner = 0;
	client_job_start(call->reef->client, &call->reef->member, job);
}

static void touch(struct client_call *call, struct part *part, uint32_t extent)
{
	struct client_touch_job *job = client_job_create(&client_touch_ops);

	if (!job) {
		client_call_fail(call, -ENOMEM);
		return;
	}
	job->extent = extent;
	if (part) {
		job->why = part->why;
		job->node = part->node;
		job->number = call->pieces[call->piece_of[part->why_op]].number;
		job->link_number = part->link_number;
		part->why = 0;
	}
	call->is_settling = false;
	start_job(call, &job->job);
}

void client_call_begin_touch(struct client_call *call, struct reef *reef,
			     uint32_t extent, uint32_t node,
			     uint32_t link_number, uint64_t number)
{
	struct client_touch_job *job = client_job_create(&client_touch_ops);

	client_call_begin(call, reef, NULL, 0);
	call->is_part = true;
	if (!job) {
		call->touched = -ENOMEM;
		call->state = ENDED;
		return;
	}
	job->extent = extent;
	job->node = node;
	job->link_number = link_number;
	job->number = number;
	job->why = number ? -REEF_EKEY : 0;
	start_job(call, &job->job);
}

int client_call_touched(const struct client_call *call)
{
	return call->touched;
}

/* Have the keeper settle all links that the window lost. False: there is no
 * memory for the question now. */
static bool settle(struct client_call *call)
{
	struct client_settle_job *job = client_job_create(&client_settle_ops);
	const struct part *part = call->parts;

	if (!job)
		return false;
	for (; part < call->parts + call->parts_count; part++)
		if (part->is_lost)
			job->links[job->count++] = (struct client_lost_link){
				.node = part->node,
				.number = part->link_number,
			};
	call->is_settling = true;
	start_job(call, &job->job);
	return true;
}

/* The keeper has settled a part's link: what was in doubt happened or never
 * will, and where its memory is lost that is said instead. */
static void mark_settled(struct client_call *call, const struct part *part)
{
	uint32_t end_op = part->first + part->batch.count, op;
	struct reef_access *access;

	for (op = part->first; op < end_op; op++) {
		access = call_access_of(call, op);
		if (access->status == -REEF_EINDOUBT &&
		    reef_is_lost(call->reef, access->address))
			access->status = -REEF_ELOST;
	}
}

/* What was in doubt on a link that could not be settled may still happen, and
 * what was to be repeated there is not done. A session that is over has no link
 * to settle it by, and says so with its next call: until it is FENCED its
 * operations are in doubt, and none happens after that. */
static void mark_unsettled(struct client_call *call, struct part *part, int rc)
{
	uint32_t end_op = part->first + part->batch.count, op;
	int doubt = rc == -REEF_EHOSTDEAD ? rc : -ETIMEDOUT;
	struct reef_access *access;

	for (op = part->first; op < end_op; op++) {
		access = call_access_of(call, op);
		if (access->status == -REEF_EINDOUBT && rc != -REEF_EFENCED)
			access->status = doubt;
		else if (access->status == PENDING)
			mark_failed(call, (uint32_t)(access - call->accesses),
				    rc == -ETIMEDOUT ? -REEF_ENOLINK : rc);
	}
	part->why = 0;
}

/* Take in which links the keeper has settled. */
static void note_settled(struct client_call *call,
			 const struct client_settle_job *job)
{
	struct part *part = call->parts;
	uint32_t i = 0;

	for (; part < call->parts + call->parts_count; part++) {
		if (!part->is_lost)
			continue;
		part->is_lost = false;
		if (job->links[i++].is_settled)
			mark_settled(call, part);
		else
			mark_unsettled(call, part, job->job.status);
	}
}

/* Let the first PENDING access to an extent fail that the keeper could not make
 * usable. */
static void mark_unusable(struct client_call *call, uint32_t extent, int rc)
{
	uint32_t i;

	call->failed = true;
	for (i = 0; i < call->count; i++)
		if (call_extent_of(&call->accesses[i]) == extent &&
		    call->accesses[i].status == PENDING) {
			mark_failed(call, i, rc);
			return;
		}
}

/* --- READs of memory with copies: (6) --- */

/* The keeper has renewed the lease, or could not. */
static void repeat_reads(struct client_call *call, int rc)
{
	struct reef_access *access = call->accesses;

	call->is_confirming = call->has_read_copied = call->failed = false;
	call->from = call->to = 0;
	call->parts_count = 0;
	for (; access < call->accesses + call->count; access++)
		if (access->kind == REEF_READ && !access->status)
			access->status = rc ? rc : PENDING;
	if (rc)
		end_call(call);
}

/* True if what was read counts. Else the keeper is asked to renew the lease. */
static bool is_confirmed(struct client_call *call)
{
	struct client_job *job;

	if (client_lease_runs(call->reef->client) ||
	    REEF_MUTATED(COPIES_READ_EXPIRED) ||
	    call->status == -REEF_EHOSTDEAD || call->status == -REEF_EFENCED)
		return true;
	job = client_job_create(&client_lease_ops);
	if (!job) {
		repeat_reads(call, -ENOMEM);
		return true;
	}
	call->is_confirming = true;
	call->is_settling = false;
	start_job(call, job);
	return false;
}

/* Handle the keeper's answer. When there is nothing more to ask, the call goes
 * on with what is still to be done in its window, or ends. */
static void handle_answer(struct client_call *call)
{
	struct client_job *job = call->job;

	call->job = NULL;
	call->state = BUILD;
	call->touched = job->status;
	if (call->is_confirming)
		repeat_reads(call, job->status);
	else if (call->is_settling && job->status == -ENOMEM)
		call->state = DOUBT; /* the keeper has not heard of it */
	else if (call->is_settling)
		note_settled(call, (struct client_settle_job *)job);
	else if (job->status)
		mark_unusable(call, ((struct client_touch_job *)job)->extent,
			      job->status);
	client_job_unref(job);
	if (call->state != BUILD || ask_next(call))
		return;
	/* What the parts are of may have changed: copies.h (6). */
	if (call->is_part ||
	    (call->failed && !has_pending(call, call->from, call->to)))
		end_call(call);
}

/* --- the engine --- */

static bool is_answered(const void *what)
{
	const struct client_call *call = what;

	/* Acquire: the partner is job_end. */
	return atomic_load_explicit(&call->job->done, memory_order_acquire);
}

bool client_call_step(struct client_call *call)
{
	bool tried = false;
	uint32_t i;

	for (;;) {
		switch (call->state) {
		case BUILD:
			call->phase = client_enter(call->reef);
			if (!fill_window(call)) {
				client_leave(call->reef, call->phase);
				break;
			}
			if (!call->ops_count) { /* no access is left */
				client_leave(call->reef, call->phase);
				end_call(call);
				break;
			}
			call_arrange_ops(call);
			call->state = POSTED;
			for (i = 0; i < call->parts_count; i++)
				call_post_part(call, &call->parts[i]);
			tried = true;
			break;
		case POSTED:
			if (call->under_way)
				return false;
			collect_window(call);
			break;
		case ROOM:
			if (tried)
				return false;
			call->state = BUILD;
			break;
		case DOUBT:
			if (!settle(call))
				return false;
			break;
		case ASKED:
			if (!is_answered(call))
				return false;
			handle_answer(call);
			break;
		case COPIES:
			if (!client_copies_step(call->copies))
				return false;
			client_copies_end(call->copies);
			call->copies = NULL;
			for (i = 0; i < call->count; i++)
				call->has_read_copied |=
					call->accesses[i].kind == REEF_READ;
			end_call(call);
			break;
		case ENDED:
			if (likely(!call->has_read_copied) ||
			    is_confirmed(call))
				return true;
			break;
		}
	}
}

bool client_call_is_ready(const struct client_call *call)
{
	if (call->state == ASKED)
		return is_answered(call);
	if (call->state == COPIES)
		return client_copies_is_ready(call->copies);
	return call->state != POSTED || !call->under_way;
}

int client_call_wait(struct client_call *call)
{
	uint32_t i;
	int rc;

	if (call->state == COPIES)
		return client_copies_wait(call->copies);
	if (call->state == ASKED) {
		rc = reef_queue_wait_until(call->reef->member.queue,
					   is_answered, call, REEF_FOREVER);
		if (!rc)
			return 0;
		/* This host was killed (in sim): the keeper keeps the job. */
		for (i = 0; i < call->count; i++)
			if (call->accesses[i].status == PENDING)
				call->accesses[i].status = rc;
		client_job_unref(call->job);
		call->job = NULL;
		call->touched = rc;
		call->has_read_copied = false;
		end_call(call);
		return 0;
	}
	if (call->state == ROOM || call->state == DOUBT) {
		rc = reef_queue_wait(call->parts[0].queue, CLIENT_MILLISECOND);
		if (rc != -REEF_EHOSTDEAD)
			return 0;
	}
	for (i = 0; i < call->parts_count; i++)
		if (call->parts[i].posted && !call->parts[i].batch.done)
			reef_wait(call->parts[i].queue, &call->parts[i].batch);
	return 0;
}
