/* later.c - requests that wait, and the fiber that answers them.
 *
 * (1) No request waits in its handler, whatever it asks for: how long a holder
 *     keeps memory or a link is up to a tenant, who so occupies neither a
 *     handler nor a stack. One fiber, the attendant, looks at all that waits,
 *     and at jobs that wait for holders (extent.c); it is there while there is
 *     anything.
 * (2) A request is answered when what it asks for has ended, when this life
 *     ends, or with -ETIMEDOUT: after NODE_ANSWER_NS, or if the job that it
 *     waits for has waited for holders as long as that already, so that a
 *     broker that asks again is not kept either. A DROP, an END, and a CLOSE
 *     after a revocation, are told after BRIEF_NS: keys are void by then, and
 * the broker has other extents to ask for, of others. Making an extent ends by
 *     itself, however long it takes.
 * (3) At most NODE_LATERS_MAX wait. What no holder delays finds room among them
 *     also when all holders together delay as much as they may.
 * (4) A request whose link is gone is let go of: nobody would hear. */
#include "pool/node/internal.h"

#include <stdlib.h>

#define BRIEF_NS UINT64_C(2000000)

struct node_later {
	const struct reef_request *request;
	uint64_t since_ns;
	/* The extent whose job it waits for, a reference, and how many of them
	 * had ended then. NULL: a fence or an END, looked at by time. */
	struct node_extent *extent;
	uint64_t jobs;
	uint64_t look_ns, pause_ns;
	struct node_later *next;
};

/* Look at a request. REEF_LATER: it waits, for later->extent or some time. */
static int look_at_request(struct reef_node *node, struct node_later *later,
			   struct reef_body *answer)
{
	const struct reef_request *request = later->request;
	const union reef_ask *ask = &request->body.ask;
	struct node_extent *before = later->extent;
	int rc;

	switch (request->header.kind) {
	case REEF_POOL_FENCE:
		rc = node_fence(node, ask->fence.session);
		break;
	case REEF_POOL_END:
		rc = node_end_links(node, ask->end.session, ask->end.number);
		break;
	default:
		later->extent = NULL;
		rc = node_extent_look(node, request,
				      before ? &before->ended : NULL,
				      &answer->reply.extent, &later->extent);
		if (rc == REEF_LATER) {
			node_extent_ref(later->extent);
			later->jobs = later->extent->jobs;
		} else {
			later->extent = NULL;
		}
		if (before)
			node_extent_unref(before);
		return rc;
	}
	return rc == -ETIMEDOUT ? REEF_LATER : rc;
}

/* True for what no holder delays, and for a fence, which ends holders. */
static bool is_urgent(const struct node_later *later)
{
	const struct node_extent *extent = later->extent;

	return extent ? extent->job == NODE_CREATE || extent->job == NODE_PULL
		      : later->request->header.kind == REEF_POOL_FENCE;
}

/* True for what a broker asks of many extents, or sessions, in turn. */
static bool is_brief(const struct reef_request *request)
{
	return request->header.kind == REEF_POOL_EXTENT_DROP ||
	       request->header.kind == REEF_POOL_END ||
	       (request->header.kind == REEF_POOL_EXTENT_CLOSE &&
		request->body.ask.extent_close.flags & REEF_POOL_FRESH);
}

/* When the request is told -ETIMEDOUT: (2). */
static uint64_t deadline_ns(const struct node_later *later)
{
	const struct node_extent *extent = later->extent;
	uint64_t since_ns = later->since_ns;

	if (extent && is_urgent(later))
		return REEF_FOREVER;
	if (extent && extent->held_ns && extent->held_ns < since_ns)
		since_ns = extent->held_ns;
	return since_ns +
	       (is_brief(later->request) && (!extent || extent->held_ns)
			? BRIEF_NS
			: NODE_ANSWER_NS);
}

/* True if it is time to look at the request again. */
static bool is_due(const struct node_later *later, uint64_t now_ns)
{
	return later->extent ? later->extent->jobs != later->jobs
			     : later->look_ns <= now_ns;
}

/* Answer a request if that is possible by now. REEF_LATER: it is not. */
static int try_to_answer(struct reef_node *node, struct node_later *later,
			 uint64_t now_ns, bool give_up)
{
	struct reef_body answer = {0};
	int rc = REEF_LATER;

	if (give_up || !later->request->peer->link)
		rc = -ECANCELED;
	else if (is_due(later, now_ns))
		rc = look_at_request(node, later, &answer);
	if (later->pause_ns < NODE_LOOK_MAX_NS)
		later->pause_ns *= 2;
	later->look_ns = now_ns + later->pause_ns;
	if (rc == REEF_LATER && now_ns >= deadline_ns(later))
		rc = -ETIMEDOUT;
	if (rc != REEF_LATER)
		reef_request_answer(later->request, rc, &answer);
	return rc;
}

static void free_later(struct reef_node *node, struct node_later *later)
{
	if (later->extent)
		node_extent_unref(later->extent);
	free(later);
	node->laters_count--;
}

/* Look at all requests that wait. Returns when to look again. */
static uint64_t look_at_laters(struct reef_node *node, uint64_t now_ns,
			       bool give_up)
{
	struct node_later **at = &node->laters, *later;
	uint64_t next_ns = REEF_FOREVER, then_ns;

	while ((later = *at)) {
		if (try_to_answer(node, later, now_ns, give_up) != REEF_LATER) {
			*at = later->next;
			free_later(node, later);
			continue;
		}
		then_ns = deadline_ns(later);
		if (!later->extent && later->look_ns < then_ns)
			then_ns = later->look_ns;
		if (then_ns < next_ns)
			next_ns = then_ns;
		at = &later->next;
	}
	return next_ns;
}

/* The attendant. Nothing that it does lets other fibers run, but where it waits
 * for the gate: so it misses no end of a job. */
static int attend(void *arg)
{
	struct reef_node *node = arg;
	uint64_t now_ns, held_ns, next_ns;
	bool give_up = false;

	for (;;) {
		now_ns = reef_now_ns();
		give_up |= node->ending;
		held_ns = node_held_look(node, now_ns, give_up);
		next_ns = look_at_laters(node, now_ns, give_up);
		/* A look may have begun another job. */
		if (node->held && held_ns == REEF_FOREVER)
			held_ns = now_ns + NODE_LOOK_MIN_NS;
		next_ns = held_ns < next_ns ? held_ns : next_ns;
		if (!node->laters && !node->held)
			break;
		if (node_gate_wait(&node->gate, next_ns == REEF_FOREVER
							? REEF_FOREVER
							: next_ns - now_ns) ==
		    -REEF_EHOSTDEAD)
			give_up = true;
	}
	node->attended = false;
	node_gate_open(&node->gate);
	return 0;
}

int node_attend(struct reef_node *node)
{
	int rc = 0;

	if (!node->attended)
		rc = reef_fiber_spawn(node->sched, attend, node, NULL);
	if (!rc)
		node->attended = true;
	return rc;
}

int node_request_begin(struct reef_node *node,
		       const struct reef_request *request,
		       struct reef_body *answer)
{
	struct node_later first = {
		.request = request,
		.since_ns = reef_now_ns(),
		.pause_ns = NODE_LOOK_MIN_NS,
	};
	struct node_later *later;
	int rc = look_at_request(node, &first, answer);

	if (rc != REEF_LATER)
		return rc;
	first.look_ns = first.since_ns + first.pause_ns;
	later = malloc(sizeof(*later));
	if (node->laters_count >=
	    (is_urgent(&first) ? NODE_LATERS_MAX : NODE_HELD_LATERS_MAX))
		rc = -ETIMEDOUT;
	else
		rc = later ? node_attend(node) : -ENOMEM;
	if (rc) {
		if (first.extent)
			node_extent_unref(first.extent);
		free(later);
		return rc;
	}
	*later = first;
	later->next = node->laters;
	node->laters = later;
	node->laters_count++;
	node_gate_open(&node->gate);
	return REEF_LATER;
}
