/* failover.c - what had two copies goes on with the one that is left.
 *
 * (1) The record by which a node is gone gives up its copies (state/copies.c):
 *     there is no moment at which it is gone and an extent counts it still.
 *     From then on the extent is FAILING, and nobody is told keys of it.
 * (2) The copy that is left is closed: whoever had it open has let go, or is
 *     fenced, and the keys of before are void.
 * (3) Everybody who has the space open has acknowledged the pool epoch in which
 *     that node is gone, or is FENCED (acknowledge.c). So nobody reads, or
 *     waits to change, the copy that was given up, which may still answer.
 * (4) Only then it is opened, under new keys, LIVE, durable, and told. What was
 *     acknowledged was on both copies, so it is on this one.
 * (5) Whoever takes over, at whatever point the broker died, begins again at
 *     (2): FAILING is durable, and what a node has open is not told of before
 *     it is LIVE. Nobody else opens what is FAILING (move.c, register.c).
 * (6) Each space has a fiber of its own, so that a client that stands still
 *     delays only spaces that it has open. When nothing is FAILING, the same
 *     fiber makes second copies again (recopy.c).
 *
 *   LIVE --NODE_STATE--> FAILING --close_item--> --broker_epoch_wait-->
 *     --open_item: REOPEN, EXTENT_OPEN--> LIVE
 *
 * A copy that was given up is dropped when its node is back: register.c. */
#include "pool/broker/lending.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>

#define FIBERS_MAX 16u /* that ask nodes for one space */
#define PAUSE_MIN_NS UINT64_C(1000000)
#define PAUSE_MAX_NS UINT64_C(250000000)
#define MS UINT64_C(1000000)

/* --- the table of what nodes told --- */

/* The primary goes on with what its twin's node told. */
static void rename_told(struct reef_broker *broker, uint32_t twin,
			uint32_t primary)
{
	struct broker_extent *told, was;

	broker_extent_forget(broker, primary);
	told = broker_extent_find(broker, twin);
	if (!told)
		return;
	was = *told;
	broker_extent_forget(broker, twin);
	was.number = primary;
	broker_extent_put(broker, &was);
}

void broker_copy_given_up(struct reef_broker *broker,
			  const struct broker_given_up *what)
{
	const struct reef_state_extent *copy = &what->copy;
	const struct reef_state_extent *other = &what->other;
	uint32_t primary = copy->is_twin ? other->number : copy->number;
	struct broker_extent *told;

	if (copy->is_twin)
		broker_extent_forget(broker, copy->number);
	else
		rename_told(broker, other->number, primary);
	told = broker_extent_find(broker, primary);
	if (told) { /* whoever had closed it begins anew */
		told->rekeying = 0;
		told->revoking = false;
		told->saver = 0;
		told->save = 0;
		told->retry_ns = told->pause_ns = 0;
	}
	if (copy->target)
		broker_drop_later(broker, copy->target, copy->label,
				  copy->size);
	if (other->target)
		broker_drop_later(broker, other->target, other->label,
				  other->size);
}

int broker_copies_on(struct reef_broker *broker, uint32_t node,
		     struct broker_given_up **out, size_t *found)
{
	const struct reef_state_extent *extents;
	struct broker_given_up *list;
	size_t count, i, n = 0;

	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++)
		n += extents[i].node == node && extents[i].twin;
	list = malloc((n + 1) * sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (i = n = 0; i < count; i++) {
		if (extents[i].node != node || !extents[i].twin)
			continue;
		list[n].copy = extents[i];
		list[n++].other =
			*reef_state_extent(broker->state, extents[i].twin);
	}
	*out = list;
	*found = n;
	return 0;
}

/* --- one space --- */

/* An extent that is FAILING, as it was when the pass began. */
struct item {
	struct reef_state_extent was;
	bool is_closed, is_open;
};

/* A pass over a space: fibers take its items in turn. */
struct pass {
	struct reef_broker *broker;
	struct item *items;
	size_t count, next;
	void (*act)(struct reef_broker *broker, struct item *item);
};

static int run_fiber(void *arg)
{
	struct pass *pass = arg;

	while (pass->next < pass->count)
		pass->act(pass->broker, &pass->items[pass->next++]);
	return 0;
}

static void run_pass(struct pass *pass,
		     void (*act)(struct reef_broker *broker, struct item *item))
{
	struct reef_fiber *fibers[FIBERS_MAX];
	uint32_t count = 0, i;

	pass->act = act;
	pass->next = 0;
	while (count < FIBERS_MAX && count + 1 < pass->count &&
	       reef_fiber_spawn(pass->broker->sched, run_fiber, pass,
				&fibers[count]) == 0)
		count++;
	run_fiber(pass);
	for (i = 0; i < count; i++)
		reef_fiber_join(fibers[i], NULL);
}

/* True if the state still has the item as the pass began it. */
static bool is_still_failing(struct reef_broker *broker,
			     const struct item *item)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, item->was.number);

	return extent && extent->state == item->was.state &&
	       extent->node == item->was.node &&
	       extent->copy == item->was.copy &&
	       extent->epoch == item->was.epoch;
}

/* (2) */
static void close_item(struct reef_broker *broker, struct item *item)
{
	struct reef_body body = {.ask.extent_close.extent = item->was.label};

	if (REEF_MUTATED(BROKER_NO_REKEY)) {
		item->is_closed = true;
		return;
	}
	broker_extent_set_closed(broker, item->was.number);
	item->is_closed =
		broker_node_call(broker, item->was.node, REEF_POOL_EXTENT_CLOSE,
				 &body, NULL) == 0;
}

/* (4); that it is LIVE is not durable yet. */
static void open_item(struct reef_broker *broker, struct item *item)
{
	struct reef_body body = {
		.ask.extent_reopen = {.extent = item->was.label,
				      .epoch = item->was.epoch},
	};
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_OPEN,
		.id = item->was.number,
	};
	struct reef_answer answer = {0};

	if (!item->is_closed || !is_still_failing(broker, item) ||
	    broker_node_call(broker, item->was.node, REEF_POOL_EXTENT_REOPEN,
			     &body, &answer))
		return;
	if (is_still_failing(broker, item) &&
	    (REEF_MUTATED(BROKER_FORGET_FAILING) ||
	     broker_commit(broker, &record, NULL, NULL) == 0))
		item->is_open =
			broker_extent_set_keys(broker, item->was.number,
					       &answer.body.reply.extent) == 0;
	reef_answer_free(&answer);
}

static bool is_failing(const struct reef_state_extent *extent)
{
	return extent->state == REEF_EXTENT_FAILING;
}

/* List what is FAILING in a space on nodes that are there. */
static int list_failing(struct reef_broker *broker, uint32_t space,
			struct pass *pass)
{
	const struct reef_state_extent *extents;
	size_t count, i;

	extents = reef_state_extents(broker->state, &count);
	pass->items = calloc(count + 1, sizeof(*pass->items));
	if (!pass->items)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		if (extents[i].space == space && is_failing(&extents[i]) &&
		    broker_node_is_ready(
			    broker_node_find(broker, extents[i].node)))
			pass->items[pass->count++].was = extents[i];
	return 0;
}

static void tell_failover(struct reef_broker *broker,
			  const struct broker_care *care,
			  const struct pass *pass)
{
	uint32_t open = 0;
	size_t i;

	for (i = 0; i < pass->count; i++)
		open += pass->items[i].is_open;
	if (!open)
		return;
	broker_event(
		broker,
		"space %u: %u extent%s on with the copy that is left, "
		"%llu ms after the other was given up",
		care->space, open, open == 1 ? " goes" : "s go",
		(unsigned long long)((reef_now_ns() - care->since_ns) / MS));
	broker_notice_space(broker, care->space);
	broker_recovery_retry(broker, care->space);
}

/* Take what is FAILING in a space as far as that is possible now.  -EAGAIN:
 * something is left. */
static int fail_over(struct reef_broker *broker, struct broker_care *care)
{
	struct pass pass = {.broker = broker};
	struct reef_state_summary summary;
	bool is_left = false;
	size_t i;
	int rc = list_failing(broker, care->space, &pass);

	care->is_passing = rc == 0 && pass.count;
	reef_state_summary(broker->state, &summary);
	if (rc == 0 && pass.count)
		run_pass(&pass, close_item);
	if (rc == 0 && pass.count && !REEF_MUTATED(BROKER_EARLY_OPEN))
		rc = broker_epoch_wait(broker, summary.pool_epoch, care->space);
	if (rc == 0 && pass.count) {
		run_pass(&pass, open_item);
		rc = broker_wait_durable(broker, broker->applied);
	}
	if (rc == 0)
		tell_failover(broker, care, &pass);
	for (i = 0; i < pass.count; i++)
		is_left |= !pass.items[i].is_open;
	free(pass.items);
	care->is_passing = false;
	return rc ? rc : pass.count && !is_left ? 0 : -EAGAIN;
}

/* --- who looks after which space (6) --- */

static struct broker_care *find_care(const struct reef_broker *broker,
				     uint32_t space)
{
	struct broker_care *care = broker->cares;

	while (care && care->space != space)
		care = care->next;
	return care;
}

bool broker_is_failing_over(const struct reef_broker *broker,
			    const struct broker_session *session)
{
	const struct broker_care *care = broker->cares;

	while (care && !(care->is_passing &&
			 broker_session_may_have_open(session, care->space)))
		care = care->next;
	return care;
}

static bool has_failing(const struct reef_broker *broker, uint32_t space)
{
	const struct reef_state_extent *extents;
	size_t count, i;

	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++)
		if (extents[i].space == space && is_failing(&extents[i]))
			return true;
	return false;
}

/* Take the next step for a space. 0: look again.  -ENOENT: there is nothing to
 * do.  -EAGAIN: not now. */
static int take_step(struct reef_broker *broker, struct broker_care *care)
{
	if (!reef_state_space(broker->state, care->space))
		return -ENOENT;
	care->is_failing = has_failing(broker, care->space);
	if (care->is_failing)
		return fail_over(broker, care);
	return broker_recopy_next(broker, care);
}

static void run_care(struct reef_broker *broker, uint32_t space)
{
	struct broker_care *care = find_care(broker, space), **at;
	uint64_t now_ns;
	int rc = 0;

	while (rc == 0 && !broker->health && !broker->stopping) {
		now_ns = reef_now_ns();
		if (care->due_ns > now_ns) {
			rc = broker_sleep(broker, care->due_ns - now_ns);
			continue;
		}
		rc = take_step(broker, care);
		if (rc == 0)
			care->pause_ns = 0;
		if (rc == 0 || rc == -ENOENT || rc == -ECANCELED ||
		    rc == -REEF_EHOSTDEAD)
			continue;
		care->pause_ns =
			care->pause_ns ? 2 * care->pause_ns : PAUSE_MIN_NS;
		if (care->pause_ns > PAUSE_MAX_NS)
			care->pause_ns = PAUSE_MAX_NS;
		care->due_ns = reef_now_ns() + care->pause_ns;
		rc = 0;
	}
	for (at = &broker->cares; *at != care; at = &(*at)->next)
		;
	*at = care->next;
	free(care);
}

void broker_care_for(struct reef_broker *broker, uint32_t space)
{
	struct broker_care *care = find_care(broker, space);

	if (broker->stopping || broker->health)
		return;
	if (care) {
		if (!care->is_failing)
			care->since_ns = reef_now_ns();
		care->due_ns = care->pause_ns = 0;
		broker_wake(broker);
		return;
	}
	care = calloc(1, sizeof(*care));
	if (!care)
		return; /* the next change tries again */
	care->space = space;
	care->since_ns = reef_now_ns();
	care->next = broker->cares;
	broker->cares = care;
	if (broker_spawn(broker, run_care, space)) {
		broker->cares = care->next;
		free(care);
	}
}

void broker_copies_resume(struct reef_broker *broker)
{
	const struct reef_state_extent *extents;
	uint32_t last = 0;
	size_t count, i;

	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++) {
		if (extents[i].space == last || extents[i].twin ||
		    reef_extent_is_lost(extents[i].state) ||
		    reef_state_space(broker->state, extents[i].space)->copies <
			    2)
			continue;
		last = extents[i].space;
		broker_care_for(broker, last);
	}
}
