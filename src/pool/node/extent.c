/* extent.c - the extents, and the jobs that change them.
 *
 * (1) A request makes sure that a job does what it asks for, and waits for it.
 *     Jobs run in fibers of their own: a handler that has waited long enough
 *     answers -ETIMEDOUT, and the job goes on.
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
 *
 *   state     job                      on success     on failure
 *   MAKING    CREATE, PULL             OPEN           GONE
 *   OPEN      CLOSE                    CLOSED         OPEN or CLOSED, no keys
 *   CLOSED    CLOSE (keys are gone)    CLOSED         CLOSED, no keys
 *   CLOSED    REOPEN                   OPEN           CLOSED, no keys
 *   any       DROP                     GONE           as it was, no keys
 *
 * CLOSE begins by taking the state to CLOSED: from then on nobody may reach
 * it, and what failed goes on when it is asked for again. */
#include "pool/node/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct job {
	struct reef_node *node;
	struct node_extent *extent;
	struct node_source *source; /* PULL; the job's */
	uint32_t epoch;		    /* REOPEN */
	bool fresh;		    /* CLOSE */
};

/* How a job ended. */
struct outcome {
	enum node_job_kind kind;
	int result;
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
	memmove(&node->extents[at + 1], &node->extents[at],
		(node->extents_count - at) * sizeof(struct node_extent *));
	node->extents[at] = extent;
	node->extents_count++;
	*out = extent;
	return 0;
}

static void unref_extent(struct node_extent *extent)
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
		unref_extent(extent);
		return;
	}
	at = index_of(node, extent->number);
	reef_assert(node->extents[at] == extent);
	node->extents_count--;
	memmove(&node->extents[at], &node->extents[at + 1],
		(node->extents_count - at) * sizeof(struct node_extent *));
	unref_extent(extent);
}

/* --- jobs --- */

static int make_extent(struct reef_node *node, struct node_extent *extent,
		       const struct node_source *source)
{
	int rc = node_memory_take(node, extent);

	if (!rc && source)
		rc = node_pull(node, extent, source);
	/* Exposed only now that it is complete: nobody sees half of it. */
	if (!rc)
		rc = node->ending ? -ECANCELED : node_expose(node, extent);
	if (!rc) {
		extent->state = NODE_OPEN;
		return 0;
	}
	/* Its keys were told to nobody, so nothing holds it for long. */
	if (!node_withdraw(node, extent, REEF_FOREVER))
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
	int rc;

	extent->state = NODE_CLOSED;
	rc = node_withdraw(node, extent, REEF_FOREVER);
	if (!rc && fresh && may_be_kept(extent))
		rc = node_memory_renew(node, extent);
	return rc ? rc : node_expose(node, extent);
}

static int reopen_extent(struct reef_node *node, struct node_extent *extent,
			 uint32_t epoch)
{
	int rc = node_withdraw(node, extent, REEF_FOREVER);

	if (!rc)
		rc = node_expose(node, extent);
	if (rc)
		return rc;
	extent->state = NODE_OPEN;
	if (epoch > extent->epoch)
		extent->epoch = epoch;
	return 0;
}

static int drop_extent(struct reef_node *node, struct node_extent *extent)
{
	int rc;

	set_going(node, extent, true);
	rc = node_withdraw(node, extent, REEF_FOREVER);
	if (!rc)
		forget_extent(node, extent);
	return rc;
}

static int run_job(struct job *job)
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
		return drop_extent(node, extent);
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

static int job_main(void *arg)
{
	struct job *job = arg;
	struct reef_node *node = job->node;
	struct node_extent *extent = job->extent;

	extent->result = run_job(job);
	extent->ended = extent->job;
	extent->job = NODE_IDLE;
	extent->jobs++;
	unref_extent(extent);
	free_source(job->source);
	free(job);
	node->jobs--;
	node_gate_open(&node->gate);
	return 0;
}

/* What a job needs to know, of which it owns the source from now on, whatever
 * this returns. */
static int start_job(struct reef_node *node, struct node_extent *extent,
		     enum node_job_kind kind, struct job what)
{
	struct node_source *source = what.source;
	struct job *job = malloc(sizeof(*job));
	int rc;

	reef_assert(extent->job == NODE_IDLE);
	if (!job) {
		free_source(source);
		return -ENOMEM;
	}
	*job = what;
	job->node = node;
	job->extent = extent;
	rc = reef_fiber_spawn(node->sched, job_main, job, NULL);
	if (rc) {
		free_source(source);
		free(job);
		return rc;
	}
	extent->job = kind;
	extent->refs++;
	node->jobs++;
	return 0;
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
		       (struct job){.source = source});
	if (rc) {
		forget_extent(node, extent);
		return rc;
	}
	*out = extent;
	return 0;
}

/* --- requests --- */

/* True if the extent's job is one that no holder delays. */
static bool is_making(const struct node_extent *extent)
{
	return extent->job == NODE_CREATE || extent->job == NODE_PULL;
}

/* Wait for the end of the extent's job. */
static int await_job(struct reef_node *node, struct node_extent *extent,
		     uint64_t until_ns, struct outcome *out)
{
	uint64_t jobs = extent->jobs, now_ns;
	int rc = 0;

	if (node->waiting >=
	    (is_making(extent) ? NODE_WAITING_MAX : NODE_HOLDERS_MAX))
		return -ETIMEDOUT;
	node->waiting++;
	extent->refs++;
	while (!rc && extent->jobs == jobs) {
		now_ns = reef_now_ns();
		if (node->ending)
			rc = -ECANCELED;
		else if (now_ns >= until_ns)
			rc = -ETIMEDOUT;
		else
			rc = node_gate_wait(&node->gate,
					    until_ns == REEF_FOREVER
						    ? REEF_FOREVER
						    : until_ns - now_ns);
		if (rc == -ETIMEDOUT && now_ns < until_ns)
			rc = 0; /* the loop checks the time itself */
	}
	if (extent->jobs != jobs) {
		*out = (struct outcome){extent->ended, extent->result};
		rc = 0;
	}
	unref_extent(extent);
	node->waiting--;
	return rc;
}

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
	    extent->epoch != ask->epoch)
		return -EEXIST;
	return extent->state == NODE_OPEN && extent->exposed ? 0 : -EBUSY;
}

/* Make an extent or find it made, and return its keys. pull NULL: CREATE. */
static int create_or_pull(struct reef_node *node,
			  const struct reef_ask_extent_create *ask,
			  const struct reef_ask_extent_pull *pull,
			  struct reef_extent_keys *keys)
{
	enum node_job_kind kind = pull ? NODE_PULL : NODE_CREATE;
	uint64_t until_ns = reef_now_ns() + NODE_ANSWER_NS;
	struct node_source *source;
	struct node_extent *extent;
	struct outcome outcome;
	int rc;

	reef_assert(ask);
	for (;;) {
		extent = find_extent(node, ask->extent);
		if (extent && extent->job == NODE_IDLE) {
			rc = check_same(extent, ask);
			return rc ? rc : copy_keys(extent, keys);
		}
		source = NULL;
		rc = 0;
		if (!extent && pull)
			rc = copy_source(pull, &source);
		if (!extent && !rc)
			rc = start_making(node, ask, source, &extent);
		/* CREATE and PULL end by themselves, however long they take. */
		if (!rc)
			rc = await_job(node, extent,
				       extent->job == kind ? REEF_FOREVER
							   : until_ns,
				       &outcome);
		if (!rc && outcome.kind == kind)
			rc = outcome.result;
		if (rc)
			return rc;
	}
}

int node_extent_create(struct reef_node *node,
		       const struct reef_ask_extent_create *ask,
		       struct reef_extent_keys *keys)
{
	return create_or_pull(node, ask, NULL, keys);
}

int node_extent_pull(struct reef_node *node,
		     const struct reef_ask_extent_pull *ask,
		     struct reef_extent_keys *keys)
{
	return create_or_pull(node, &ask->copy, ask, keys);
}

int node_extent_close(struct reef_node *node, uint32_t number, bool fresh,
		      struct reef_extent_keys *keys)
{
	uint64_t until_ns = reef_now_ns() + NODE_ANSWER_NS;
	struct node_extent *extent;
	struct outcome outcome;
	int rc = 0;

	while (!rc) {
		extent = find_extent(node, number);
		if (!extent)
			return -ENOENT;
		if (extent->job == NODE_IDLE && extent->state == NODE_CLOSED &&
		    extent->exposed && !(fresh && may_be_kept(extent)))
			return copy_keys(extent, keys);
		if (extent->job == NODE_IDLE)
			rc = start_job(node, extent, NODE_CLOSE,
				       (struct job){.fresh = fresh});
		if (!rc)
			rc = await_job(node, extent, until_ns, &outcome);
		if (!rc && outcome.kind == NODE_CLOSE)
			rc = outcome.result;
	}
	return rc;
}

int node_extent_reopen(struct reef_node *node, uint32_t number, uint32_t epoch,
		       struct reef_extent_keys *keys)
{
	uint64_t until_ns = reef_now_ns() + NODE_ANSWER_NS;
	struct node_extent *extent;
	struct outcome outcome;
	int rc = 0;

	while (!rc) {
		extent = find_extent(node, number);
		if (!extent)
			return -ENOENT;
		if (extent->job == NODE_IDLE && extent->state == NODE_OPEN &&
		    extent->exposed) {
			if (epoch > extent->epoch)
				extent->epoch = epoch;
			return copy_keys(extent, keys);
		}
		if (extent->job == NODE_IDLE)
			rc = start_job(node, extent, NODE_REOPEN,
				       (struct job){.epoch = epoch});
		if (!rc)
			rc = await_job(node, extent, until_ns, &outcome);
		if (!rc && outcome.kind == NODE_REOPEN)
			rc = outcome.result;
	}
	return rc;
}

int node_extent_drop(struct reef_node *node, uint32_t number)
{
	uint64_t until_ns = reef_now_ns() + NODE_ANSWER_NS;
	struct node_extent *extent;
	struct outcome outcome;
	int rc = 0;

	while (!rc) {
		extent = find_extent(node, number);
		if (!extent)
			return 0;
		extent->doomed = true;
		if (extent->job == NODE_IDLE)
			rc = start_job(node, extent, NODE_DROP,
				       (struct job){0});
		if (!rc)
			rc = await_job(node, extent, until_ns, &outcome);
		if (!rc && outcome.kind == NODE_DROP)
			rc = outcome.result;
	}
	return rc;
}

/* --- the end of a life --- */

void node_extents_make_leaving(struct reef_node *node)
{
	struct node_extent *extent;

	reef_assert(node->jobs == 0);
	while (node->extents_count > 0) {
		extent = node->extents[--node->extents_count];
		set_going(node, extent, true);
		extent->next = node->leaving;
		node->leaving = extent;
	}
}

void node_withdraw_leaving(struct reef_node *node)
{
	struct node_extent *extent;

	for (extent = node->leaving; extent; extent = extent->next) {
		if (extent->job != NODE_IDLE)
			continue;
		/* Keys are withdrawn here, not when the job has its turn, so
		 * that whoever is let in next finds none of an earlier life. */
		node_withdraw(node, extent, 0);
		if (start_job(node, extent, NODE_DROP, (struct job){0}))
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
