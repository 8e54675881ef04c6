/* extent.c - the extents, and the jobs that change them.
 *
 * (1) A request makes sure that a job does what it asks for, and is answered
 *     when that has ended (later.c). A job has a fiber of its own, but not
 *     while it waits for holders, who may take as long as they like: it is in
 *     `held` then, and looked at now and then.
 * (2) An extent has at most one job. A request that finds one waits for its end
 *     and looks again; if it was what it asks for itself, its outcome is the
 *     answer. So a repeated request joins.
 * (3) An extent is in the table from its first job to the end of its DROP. A
 *     CREATE or PULL that fails leaves nothing.
 * (4) A key is withdrawn, and all its holders are gone, before memory is
 *     offered, opened again or given back. Every exposure has fresh keys.
 * (5) A CLOSE that asks for fresh memory ends when no other process can have
 *     what the extent then lies in (memory.h, 7): if one could, all is copied,
 *     after the keys were withdrawn, and before there are others. So nobody
 *     changes it meanwhile, and whoever kept a mapping of the old memory reads
 *     and writes what is nobody's. A death asks for no such thing: shm.h (2).
 * (6) A CREATE that a DROP has overtaken makes nothing: its broker has given
 * the extent up, and would not come back to it. Numbers are given once, so no
 *     other CREATE has that one.
 * (7) A PULL that finds its extent made is done only if a PULL made it: what a
 *     CREATE made is all zeros, and no copy of anything.
 *
 *   state     job                      on success     on failure
 *   MAKING    CREATE, PULL             OPEN           GONE
 *   OPEN      CLOSE                    CLOSED         OPEN or CLOSED, no keys
 *   CLOSED    CLOSE (keys are gone)    CLOSED         CLOSED, no keys
 *   CLOSED    REOPEN                   OPEN           CLOSED, no keys
 *   any       DROP                     GONE           as it was, no keys
 *
 * CLOSE begins by taking the state to CLOSED: from then on nobody may reach
 * it, and what failed goes on when it is asked for again.
 *
 *   begin_job: CREATE, PULL ----------------------------> a fiber --> ended
 *              others: keys withdrawn, nobody holds it -----^
 *                      else held --node_held_look: all let go-^ */
#include "pool/node/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(1000000000)

struct node_job {
	struct reef_node *node;
	struct node_extent *extent;
	struct node_source *source; /* PULL; the job's */
	uint32_t epoch;		    /* REOPEN */
	bool fresh;		    /* CLOSE */
	/* While it is held. */
	bool told; /* the log says so */
	uint64_t look_ns, pause_ns;
	struct node_job *next; /* in node->held */
};

/* --- the table --- */

/* The index at which an extent of that number is, or would be inserted. */
static uint32_t index_of(const struct reef_node *node, uint32_t number)
{
	uint32_t low = 0, high = node->extents_count, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (node->extents[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct node_extent *find_extent(const struct reef_node *node,
				       uint32_t number)
{
	uint32_t at = index_of(node, number);

	if (at == node->extents_count || node->extents[at]->number != number)
		return NULL;
	return node->extents[at];
}

struct node_extent *node_extent_after(const struct reef_node *node,
				      uint32_t number)
{
	uint32_t at = number == UINT32_MAX ? node->extents_count
					   : index_of(node, number + 1);

	return at < node->extents_count ? node->extents[at] : NULL;
}

static int add_extent(struct reef_node *node,
		      const struct reef_ask_extent_create *ask,
		      struct node_extent **out)
{
	uint32_t room = node->extents_room ? 2 * node->extents_room : 64;
	uint32_t at = index_of(node, ask->extent);
	struct node_extent *extent, **more;

	if (node->extents_count == node->extents_room) {
		more = realloc(node->extents,
			       room * sizeof(struct node_extent *));
		if (!more)
			return -ENOMEM;
		node->extents = more;
		node->extents_room = room;
	}
	extent = calloc(1, sizeof(*extent));
	if (!extent)
		return -ENOMEM;
	extent->refs = 1; /* the table's, or that of what leaves */
	extent->number = ask->extent;
	extent->space = ask->space;
	extent->epoch = ask->epoch;
	extent->size = ask->size;
	extent->copy = ask->copy;
	memmove(&node->extents[at + 1], &node->extents[at],
		(node->extents_count - at) * sizeof(struct node_extent *));
	node->extents[at] = extent;
	node->extents_count++;
	*out = extent;
	return 0;
}

void node_extent_unref(struct node_extent *extent)
{
	if (--extent->refs == 0)
		free(extent);
}

static void set_going(struct reef_node *node, struct node_extent *extent,
		      bool going)
{
	if (extent->going == going || !extent->memory)
		return;
	extent->going = going;
	if (going)
		node->going += extent->memory->size;
	else
		node->going -= extent->memory->size;
}

/* Give the memory of an extent that nobody can reach back, and take the extent
 * out of its table or list. */
static void forget_extent(struct reef_node *node, struct node_extent *extent)
{
	struct node_extent **leaving = &node->leaving;
	uint32_t at;

	/* Giving memory back may let other fibers run; they still find the
	 * extent, with its job. */
	set_going(node, extent, false);
	node_memory_give(node, extent);
	extent->state = NODE_GONE;
	while (*leaving && *leaving != extent)
		leaving = &(*leaving)->next;
	if (*leaving) {
		*leaving = extent->next;
		node_extent_unref(extent);
		return;
	}
	at = index_of(node, extent->number);
	reef_assert(node->extents[at] == extent);
	node->extents_count--;
	memmove(&node->extents[at], &node->extents[at + 1],
		(node->extents_count - at) * sizeof(struct node_extent *));
	node_extent_unref(extent);
}

/* --- jobs --- */

static void note_number(struct node_numbers *numbers, uint32_t number)
{
	numbers->last[numbers->next++ % NODE_NUMBERS] = number;
}

static int make_extent(struct reef_node *node, struct node_extent *extent,
		       const struct node_source *source)
{
	int rc = node_memory_take(node, extent), withdrawn;

	if (!rc && source)
		rc = node_pull(node, extent, source);
	extent->pulled = !rc && source;
	/* Kept before the broker hears of it (keep.h, 2). */
	if (!rc)
		rc = node_kept_add(node, extent);
	/* Exposed only now that it is complete: nobody sees half of it. */
	if (!rc)
		rc = node->ending ? -ECANCELED : node_expose(node, extent);
	if (!rc) {
		extent->state = NODE_OPEN;
		return 0;
	}
	/* Its keys were told to nobody, so nothing holds it for long. */
	while ((withdrawn = node_withdraw(node, extent)) == -ETIMEDOUT &&
	       !node->ending && !reef_sleep(NODE_LOOK_MIN_NS))
		;
	if (!withdrawn)
		forget_extent(node, extent);
	return rc;
}

/* True if another process may have the extent's memory mapped, though it was
 * told to let go of it. */
static bool may_be_kept(const struct node_extent *extent)
{
	return extent->memory && atomic_load(&extent->memory->passed);
}

static int close_extent(struct reef_node *node, struct node_extent *extent,
			bool fresh)
{
	int rc = 0;

	if (fresh && may_be_kept(extent))
		rc = node_memory_renew(node, extent);
	return rc ? rc : node_expose(node, extent);
}

/* Take over a later epoch of the extent, and have that kept. */
static int raise_epoch(struct reef_node *node, struct node_extent *extent,
		       uint32_t epoch)
{
	if (epoch <= extent->epoch)
		return 0;
	extent->epoch = epoch;
	return node_kept_add(node, extent);
}

static int reopen_extent(struct reef_node *node, struct node_extent *extent,
			 uint32_t epoch)
{
	int rc = raise_epoch(node, extent, epoch);

	if (!rc)
		rc = node_expose(node, extent);
	if (rc)
		return rc;
	extent->state = NODE_OPEN;
	return 0;
}

/* Do what is left of a job once nobody holds its extent. */
static int run_job(struct node_job *job)
{
	struct reef_node *node = job->node;
	struct node_extent *extent = job->extent;

	switch (extent->job) {
	case NODE_CREATE:
	case NODE_PULL:
		return make_extent(node, extent, job->source);
	case NODE_CLOSE:
		return close_extent(node, extent, job->fresh);
	case NODE_REOPEN:
		return reopen_extent(node, extent, job->epoch);
	case NODE_DROP:
		node_kept_forget(node, extent);
		note_number(&node->dropped, extent->number);
		forget_extent(node, extent);
		return 0;
	case NODE_IDLE:
		break;
	}
	reef_assert(!"a job");
	return -EINVAL;
}

static void free_source(struct node_source *source)
{
	if (source)
		reef_key_wipe(&source->proof);
	free(source);
}

/* Forget a job that has ended, or could not begin. */
static void forget_job(struct node_job *job)
{
	struct reef_node *node = job->node;

	job->extent->job = NODE_IDLE;
	node_extent_unref(job->extent);
	free_source(job->source);
	free(job);
	node->jobs--;
}

static void end_job(struct node_job *job, int rc)
{
	struct node_extent *extent = job->extent;
	struct reef_node *node = job->node;

	extent->ended = (struct node_outcome){extent->job, rc};
	extent->jobs++;
	forget_job(job);
	node_gate_open(&node->gate);
}

static int job_main(void *arg)
{
	struct node_job *job = arg;

	end_job(job, run_job(job));
	return 0;
}

static int spawn_job(struct node_job *job)
{
	return reef_fiber_spawn(job->node->sched, job_main, job, NULL);
}

/* Have the job looked at until nobody holds its extent. */
static int hold_job(struct node_job *job)
{
	struct reef_node *node = job->node;
	int rc = node_attend(node);

	if (rc)
		return rc;
	job->extent->held_ns = reef_now_ns();
	job->pause_ns = NODE_LOOK_MIN_NS;
	job->look_ns = job->extent->held_ns + job->pause_ns;
	job->next = node->held;
	node->held = job;
	node_gate_open(&node->gate);
	return 0;
}

/* Withdraw the keys for a job that needs an extent which nobody holds. */
static int begin_job(struct node_job *job)
{
	struct node_extent *extent = job->extent;
	int rc;

	if (extent->job == NODE_CREATE || extent->job == NODE_PULL)
		return spawn_job(job);
	if (extent->job == NODE_CLOSE)
		extent->state = NODE_CLOSED;
	if (extent->job == NODE_DROP)
		set_going(job->node, extent, true);
	rc = node_withdraw(job->node, extent);
	if (rc == -ETIMEDOUT)
		return hold_job(job);
	return rc ? rc : spawn_job(job);
}

/* What a job needs to know, of which it owns the source from now on, whatever
 * this returns. */
static int start_job(struct reef_node *node, struct node_extent *extent,
		     enum node_job_kind kind, struct node_job what)
{
	struct node_job *job = malloc(sizeof(*job));
	int rc;

	reef_assert(extent->job == NODE_IDLE);
	if (!job) {
		free_source(what.source);
		return -ENOMEM;
	}
	*job = what;
	job->node = node;
	job->extent = extent;
	extent->job = kind;
	node_extent_ref(extent);
	node->jobs++;
	rc = begin_job(job);
	if (rc)
		forget_job(job);
	return rc;
}

/* Look whether anybody holds the extent of a job still. False: it waits on;
 * else it runs, or has ended. */
static bool look_at_job(struct node_job *job, uint64_t now_ns, bool give_up)
{
	struct node_extent *extent = job->extent;
	int rc;

	extent->asked = false;
	rc = give_up ? -ECANCELED : node_withdraw(job->node, extent);

	if (rc == -ETIMEDOUT && !job->told &&
	    now_ns - extent->held_ns >= PATIENCE_NS) {
		job->told = true;
		reef_log(REEF_LOG_WARNING, "node",
			 "extent %u: a holder does not let go", extent->number);
	}
	if (job->pause_ns < NODE_LOOK_MAX_NS)
		job->pause_ns *= 2;
	job->look_ns = now_ns + job->pause_ns;
	if (rc == -ETIMEDOUT)
		return false;
	if (rc) {
		extent->held_ns = 0;
		end_job(job, rc);
		return true;
	}
	if (spawn_job(job))
		return false; /* without a fiber it is tried again */
	extent->held_ns = 0;
	return true;
}

uint64_t node_held_look(struct reef_node *node, uint64_t now_ns, bool give_up)
{
	struct node_job **at = &node->held, *job, *next;
	uint64_t next_ns = REEF_FOREVER;

	while ((job = *at)) {
		next = job->next;
		if ((give_up || job->extent->asked || job->look_ns <= now_ns) &&
		    look_at_job(job, now_ns, give_up)) {
			*at = next;
			continue;
		}
		if (job->look_ns < next_ns)
			next_ns = job->look_ns;
		at = &job->next;
	}
	return next_ns;
}

/* Add an extent and start the job that makes it, which owns `source`. */
static int start_making(struct reef_node *node,
			const struct reef_ask_extent_create *ask,
			struct node_source *source, struct node_extent **out)
{
	struct node_extent *extent;
	int rc = add_extent(node, ask, &extent);

	if (rc) {
		free_source(source);
		return rc;
	}
	rc = start_job(node, extent, source ? NODE_PULL : NODE_CREATE,
		       (struct node_job){.source = source});
	if (rc) {
		forget_extent(node, extent);
		return rc;
	}
	*out = extent;
	return 0;
}

/* --- requests --- */

/* What the extent is answered with: while it is closed, nobody is told how to
 * write it. */
static int copy_keys(const struct node_extent *extent,
		     struct reef_extent_keys *keys)
{
	*keys = extent->keys;
	if (extent->state != NODE_CLOSED)
		return 0;
	memcpy(keys->keys, keys->read_keys, sizeof(keys->keys));
	memset(keys->read_keys, 0, sizeof(keys->read_keys));
	return 0;
}

static int copy_source(const struct reef_ask_extent_pull *pull,
		       struct node_source **out)
{
	size_t size = pull->addresses.size;
	struct node_source *source = calloc(1, sizeof(*source) + size + 1);

	if (!source)
		return -ENOMEM;
	source->domain = pull->domain;
	source->extent = pull->source ? pull->source : pull->copy.extent;
	source->epoch = pull->source ? pull->source_epoch : pull->copy.epoch;
	memcpy(source->keys, pull->keys, sizeof(source->keys));
	memcpy(source->proof.bytes, pull->secret, sizeof(pull->secret));
	if (size)
		memcpy(source->addresses, pull->addresses.bytes, size);
	*out = source;
	return 0;
}

/* 0: the extent that is here is the one asked for, and open.  -EEXIST: it is
 * another one; a different epoch belongs to another move, or to a later CREATE
 * after one.  -EBUSY: not open. */
static int check_same(const struct node_extent *extent,
		      const struct reef_ask_extent_create *ask)
{
	if (extent->space != ask->space || extent->size != ask->size ||
	    extent->epoch != ask->epoch || extent->copy != ask->copy)
		return -EEXIST;
	return extent->state == NODE_OPEN && extent->exposed ? 0 : -EBUSY;
}

static bool has_number(const struct node_numbers *numbers, uint32_t number)
{
	for (uint32_t i = 0; i < NODE_NUMBERS; i++)
		if (numbers->last[i] == number)
			return true;
	return false;
}

/* Make an extent or find it made, and return its keys. pull NULL: CREATE. */
static int look_at_making(struct reef_node *node,
			  const struct reef_ask_extent_create *ask,
			  const struct reef_ask_extent_pull *pull,
			  struct reef_extent_keys *keys,
			  struct node_extent **awaited)
{
	struct node_extent *extent = find_extent(node, ask->extent);
	struct node_source *source = NULL;
	int rc = 0;

	if (extent && extent->job == NODE_IDLE) {
		rc = pull && !extent->pulled ? -EEXIST
					     : check_same(extent, ask);
		return rc ? rc : copy_keys(extent, keys);
	}
	/* (6); but what is restored, in a later epoch than the first, has a
	 * number that was dropped before. */
	if (!extent && !pull && ask->epoch == 1 &&
	    has_number(&node->undropped, ask->extent))
		return -ENOENT;
	if (!extent && pull)
		rc = copy_source(pull, &source);
	if (!extent && !rc)
		rc = start_making(node, ask, source, &extent);
	*awaited = extent;
	return rc ? rc : REEF_LATER;
}

static int look_at_close(struct reef_node *node, uint32_t number, bool fresh,
			 struct reef_extent_keys *keys,
			 struct node_extent **awaited)
{
	struct node_extent *extent = find_extent(node, number);
	int rc = 0;

	if (!extent)
		return -ENOENT;
	if (extent->job == NODE_IDLE && extent->state == NODE_CLOSED &&
	    extent->exposed && !(fresh && may_be_kept(extent)))
		return copy_keys(extent, keys);
	if (extent->job == NODE_IDLE)
		rc = start_job(node, extent, NODE_CLOSE,
			       (struct node_job){.fresh = fresh});
	*awaited = extent;
	return rc ? rc : REEF_LATER;
}

static int look_at_reopen(struct reef_node *node, uint32_t number,
			  uint32_t epoch, struct reef_extent_keys *keys,
			  struct node_extent **awaited)
{
	struct node_extent *extent = find_extent(node, number);
	int rc = 0;

	if (!extent)
		return -ENOENT;
	if (extent->job == NODE_IDLE && extent->state == NODE_OPEN &&
	    extent->exposed) {
		rc = raise_epoch(node, extent, epoch);
		return rc ? rc : copy_keys(extent, keys);
	}
	if (extent->job == NODE_IDLE)
		rc = node_kept_lend(node);
	if (!rc && extent->job == NODE_IDLE)
		rc = start_job(node, extent, NODE_REOPEN,
			       (struct node_job){.epoch = epoch});
	*awaited = extent;
	return rc ? rc : REEF_LATER;
}

static int look_at_drop(struct reef_node *node, uint32_t number,
			struct node_extent **awaited)
{
	struct node_extent *extent = find_extent(node, number);
	int rc = 0;

	if (!extent) {
		/* Once more for what was here is no news. */
		if (!has_number(&node->dropped, number))
			note_number(&node->undropped, number);
		return 0;
	}
	extent->doomed = true;
	if (extent->job == NODE_IDLE)
		rc = start_job(node, extent, NODE_DROP, (struct node_job){0});
	*awaited = extent;
	return rc ? rc : REEF_LATER;
}

int node_extent_look(struct reef_node *node, const struct reef_request *request,
		     const struct node_outcome *ended,
		     struct reef_extent_keys *keys,
		     struct node_extent **awaited)
{
	static const enum node_job_kind jobs[REEF_POOL_KINDS] = {
		[REEF_POOL_EXTENT_CREATE] = NODE_CREATE,
		[REEF_POOL_EXTENT_PULL] = NODE_PULL,
		[REEF_POOL_EXTENT_CLOSE] = NODE_CLOSE,
		[REEF_POOL_EXTENT_REOPEN] = NODE_REOPEN,
		[REEF_POOL_EXTENT_DROP] = NODE_DROP,
	};
	const union reef_ask *ask = &request->body.ask;
	uint16_t kind = request->header.kind;
	int rc;

	if (ended && ended->kind == jobs[kind] && ended->result)
		return ended->result;
	/* What was made for it, and dropped before it looked, is not made
	 * again (6). */
	if (ended && jobs[kind] == NODE_CREATE &&
	    !find_extent(node, ask->extent_create.extent))
		return -ENOENT;
	switch (jobs[kind]) {
	case NODE_CREATE:
		rc = look_at_making(node, &ask->extent_create, NULL, keys,
				    awaited);
		break;
	case NODE_PULL:
		rc = look_at_making(node, &ask->extent_pull.copy,
				    &ask->extent_pull, keys, awaited);
		break;
	case NODE_CLOSE:
		rc = look_at_close(node, ask->extent_close.extent,
				   ask->extent_close.flags & REEF_POOL_FRESH,
				   keys, awaited);
		break;
	case NODE_REOPEN:
		rc = look_at_reopen(node, ask->extent_reopen.extent,
				    ask->extent_reopen.epoch, keys, awaited);
		break;
	case NODE_DROP:
		rc = look_at_drop(node, ask->extent_drop.extent, awaited);
		break;
	default:
		rc = -ENOSYS;
	}
	/* Holders may have let go since they were looked at. */
	if (rc == REEF_LATER)
		(*awaited)->asked = true;
	return rc;
}

/* --- the end of a life --- */

int node_extent_adopt(struct reef_node *node, const struct reef_keep_line *line,
		      struct reef_memory *memory)
{
	const struct reef_ask_extent_create ask = {
		.extent = line->extent,
		.space = line->space,
		.epoch = line->epoch,
		.size = line->size,
		.copy = line->copy,
	};
	struct node_extent *extent;
	int rc = find_extent(node, line->extent) ? -EEXIST : 0;

	if (!rc)
		rc = add_extent(node, &ask, &extent);
	if (rc)
		return rc;
	extent->state = NODE_CLOSED;
	extent->memory = memory;
	node->lent += memory->size;
	if (memory->huge)
		node->huge += memory->size;
	return 0;
}

/* True if an extent is here in the next life, too: the broker knows it. */
static bool outlasts_life(const struct reef_node *node,
			  const struct node_extent *extent)
{
	return node_keeps(node) && !node->stopping &&
	       extent->state != NODE_MAKING;
}

void node_extents_end_life(struct reef_node *node)
{
	struct node_extent *extent;
	uint32_t i, kept = 0;

	reef_assert(node->jobs == 0);
	for (i = 0; i < node->extents_count; i++) {
		extent = node->extents[i];
		if (outlasts_life(node, extent)) {
			extent->state = NODE_CLOSED;
			extent->exposed = extent->doomed = false;
			set_going(node, extent, false);
			node->extents[kept++] = extent;
			continue;
		}
		set_going(node, extent, true);
		extent->next = node->leaving;
		node->leaving = extent;
	}
	node->extents_count = kept;
}

void node_extents_withdraw(struct reef_node *node)
{
	for (uint32_t i = 0; i < node->extents_count; i++)
		if (node->extents[i]->state == NODE_CLOSED)
			node_withdraw(node, node->extents[i]);
}

void node_withdraw_leaving(struct reef_node *node)
{
	struct node_extent *extent;

	for (extent = node->leaving; extent; extent = extent->next) {
		if (extent->job != NODE_IDLE)
			continue;
		/* Its keys are withdrawn at once, so that whoever is let in
		 * next finds none of an earlier life. */
		if (start_job(node, extent, NODE_DROP, (struct node_job){0}))
			break; /* the next pulse tries again */
	}
}

void node_extents_free(struct reef_node *node)
{
	while (node->leaving)
		forget_extent(node, node->leaving);
	free(node->extents);
	reef_memory_destroy(node->spare);
}
