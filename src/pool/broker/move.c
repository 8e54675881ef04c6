/* move.c - extents leave a node that drains, while their users go on.
 *
 * (1) At every moment one copy counts. The target copies only after the source
 *     has withdrawn the extent from everybody, and clients are let in at one of
 *     the two only: at the target once MOVED is durable, at the source again
 *     (under new keys) only once STAY is durable, or the target DEAD.
 * (2) Every try begins with a DROP at the target, so that what an earlier one
 *     left there is never taken for a copy.
 * (3) Whoever takes over, at whatever point the broker died, begins the move
 *     again: all steps may be repeated.
 * (4) Nothing is given up for a drain: no room elsewhere, and the extent stays,
 *     the node stays DRAINING, an event says why, and it is tried again later.
 * (5) A target that fails costs the move, which is taken back and tried with
 *     another; a source that is away is waited for until it is back or DEAD,
 *     and then the extent is LOST.
 * (6) A drain that is stopped begins no more moves, and ends those under way.
 * (7) What a node has closed is opened again only when everybody who had it has
 *     acknowledged the pool epoch: what comes back with its node is closed.
 * (8) An extent that a holder keeps from being closed or opened (-ETIMEDOUT)
 *     is left alone for a while, which grows, and others have their turn: of
 *     those that are worked on at once there are few.
 *
 *   LIVE --begin_move: MOVE durable--> MOVING --copy_to_target: target DROP,
 *     source CLOSE, target PULL--> --settle_move: MOVED durable, epoch + 1-->
 *     LIVE at the target, source DROP
 *   MOVING --call_off_move: STAY durable--> LIVE, closed
 *     --reopen: REOPEN--> LIVE
 *
 * One fiber per draining node (run_drain) starts up to BROKER_MOVES_MAX others
 * (run_move). */
#include "pool/broker/lending.h"

#include "base/mutant.h"

#include <errno.h>

#define PAUSE_MIN_NS UINT64_C(10000000)
#define PAUSE_MAX_NS UINT64_C(1000000000)

/* A move under way, as the state had it when the try began. */
struct move {
	uint32_t number, label, space, source, target, epoch;
	uint64_t size, copy;
	bool targets_fault; /* the step that failed is the target's */
};

static struct broker_node *find_mover(struct reef_broker *broker,
				      uint32_t number, uint32_t *slot)
{
	struct broker_node *node;
	uint32_t i;

	for (node = broker->nodes; node; node = node->next) {
		for (i = 0; i < BROKER_MOVES_MAX; i++) {
			if (node->moving[i] == number) {
				*slot = i;
				return node;
			}
		}
	}
	return NULL;
}

bool broker_extent_is_moving(struct reef_broker *broker, uint32_t number)
{
	uint32_t slot;

	return find_mover(broker, number, &slot) != NULL;
}

/* True for an extent that is closed, and that neither rekey.c nor failover.c
 * will reopen. */
static bool is_left_closed(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct broker_extent *told = broker_extent_find(broker, number);

	return told && told->closed && !told->rekeying && extent &&
	       extent->state != REEF_EXTENT_FAILING;
}

/* --- one move --- */

/* Wait until everybody who has the space knows of every node that was gone, and
 * has let go of what they had there: the node may be in a new life, and a
 * mapping of its memory from the one before (7). */
static int await_let_go(struct reef_broker *broker, uint32_t space)
{
	struct reef_state_summary summary;

	if (REEF_MUTATED(BROKER_LIFE_EARLY))
		return 0;
	reef_state_summary(broker->state, &summary);
	return broker_epoch_wait(broker, summary.pool_epoch, space);
}

int broker_extent_reopen_once(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct reef_body body = {.ask.extent_reopen.extent = extent->label};
	struct reef_answer answer = {0};
	uint32_t node = extent->node, space = extent->space;
	int rc = await_let_go(broker, space);

	extent = reef_state_extent(broker->state, number);
	if (rc || !extent || extent->node != node)
		return rc ? rc : -EAGAIN;
	body.ask.extent_reopen.epoch = extent->epoch;
	rc = broker_node_call_early(broker, node, REEF_POOL_EXTENT_REOPEN,
				    &body, &answer);
	if (rc)
		return rc;
	extent = reef_state_extent(broker->state, number);
	if (extent && extent->node == node &&
	    extent->state == REEF_EXTENT_LIVE) {
		rc = broker_extent_set_keys(broker, number,
					    &answer.body.reply.extent);
		broker_notice_space(broker, space);
	}
	reef_answer_free(&answer);
	return rc;
}

/* LIVE -> MOVING.  -ENOSPC: no node has room. */
static int begin_move(struct reef_broker *broker, uint32_t number,
		      const struct broker_avoid *avoid)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_MOVE,
		.id = number,
	};
	struct broker_place place = {
		.size = extent->size,
		.label = extent->label,
		.avoid = avoid,
	};
	uint32_t space = extent->space;
	int rc;

	if (extent->twin)
		place.beside =
			reef_state_extent(broker->state, extent->twin)->node;
	record.node = broker_choose_node(broker, &place, NULL);
	if (!record.node)
		return -ENOSPC;
	rc = broker_commit_wait(broker, &record, NULL);
	if (rc == 0)
		broker_notice_space(broker, space);
	return rc;
}

/* True if the state still has the move as the try began it. */
static bool is_still_valid(struct reef_broker *broker, const struct move *move)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, move->number);

	return extent && extent->state == REEF_EXTENT_MOVING &&
	       extent->node == move->source && extent->target == move->target &&
	       extent->copy == move->copy;
}

static int close_source(struct reef_broker *broker, struct move *move,
			struct reef_extent_keys *keys)
{
	struct reef_body body = {.ask.extent_close.extent = move->label};
	struct reef_answer answer = {0};
	int rc;

	if (!broker_node_is_ready(broker_node_find(broker, move->source)))
		return -REEF_ENOLINK;
	broker_extent_set_closed(broker, move->number);
	rc = broker_node_call(broker, move->source, REEF_POOL_EXTENT_CLOSE,
			      &body, &answer);
	if (rc)
		return rc;
	*keys = answer.body.reply.extent;
	reef_answer_free(&answer);
	return 0;
}

/* Fill in what the target proves to the source: it lets nobody else copy. */
static int fill_pull_secret(const struct reef_broker *broker, uint32_t source,
			    struct reef_ask_extent_pull *ask)
{
	struct reef_key node, pull;
	int rc = reef_key_derive_node(broker->key, source, &node);

	if (rc)
		return rc;
	rc = reef_key_derive_pull(&node, ask->source, ask->source_epoch, &pull);
	reef_key_wipe(&node);
	if (rc)
		return rc;
	memcpy(ask->secret, pull.bytes, sizeof(ask->secret));
	reef_key_wipe(&pull);
	return 0;
}

int broker_extent_pull(struct reef_broker *broker, uint32_t source,
		       uint32_t target,
		       const struct reef_ask_extent_create *copy,
		       const struct reef_state_extent *of,
		       struct reef_extent_keys *keys)
{
	const struct reef_state_node *node =
		reef_state_node(broker->state, source);
	struct broker_node *live = broker_node_find(broker, source);
	struct reef_answer answer = {0};
	struct reef_body body = {
		.ask.extent_pull = {.copy = *copy,
				    .source = of ? of->label : copy->extent,
				    .source_epoch =
					    of ? of->epoch + 1 : copy->epoch},
	};
	struct reef_ask_extent_pull *ask = &body.ask.extent_pull;
	int rc;

	if (!node || !live)
		return -REEF_ENOLINK;
	ask->domain = live->domain;
	ask->addresses = reef_text_of(node->addresses);
	memcpy(ask->keys, keys->keys, sizeof(ask->keys));
	rc = fill_pull_secret(broker, source, ask);
	if (rc)
		return rc;
	rc = broker_node_call(broker, target, REEF_POOL_EXTENT_PULL, &body,
			      &answer);
	explicit_bzero(ask->secret, sizeof(ask->secret));
	if (rc)
		return rc;
	*keys = answer.body.reply.extent;
	reef_answer_free(&answer);
	return 0;
}

/* The mutant: what arbitrates is copied from the primary. */
static void cross_source(struct reef_broker *broker, uint32_t number,
			 uint32_t *source, struct reef_extent_keys *keys)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	const struct broker_extent *told;

	if (!extent || !extent->is_twin || !extent->twin)
		return;
	told = broker_extent_find(broker, extent->twin);
	if (!told)
		return;
	*source = told->node;
	*keys = told->keys;
}

static int pull_to_target(struct reef_broker *broker, struct move *move,
			  struct reef_extent_keys *keys)
{
	const struct reef_ask_extent_create copy = {
		.extent = move->label,
		.space = move->space,
		.epoch = move->epoch + 1,
		.size = move->size,
		.copy = move->copy,
	};
	uint32_t source = move->source;
	int rc;

	if (REEF_MUTATED(BROKER_CROSS_PULL))
		cross_source(broker, move->number, &source, keys);
	if (!broker_node_find(broker, source))
		return -REEF_ENOLINK;
	move->targets_fault = true;
	rc = broker_extent_pull(broker, source, move->target, &copy, NULL,
				keys);
	if (rc == 0)
		move->targets_fault = false;
	return rc;
}

/* Make the target's copy, by (1) and (2); keys are that copy's. */
static int copy_to_target(struct reef_broker *broker, struct move *move,
			  struct reef_extent_keys *keys)
{
	struct reef_body body = {.ask.extent_drop.extent = move->label};
	struct broker_extent *told;
	struct reef_extent_keys source;
	int rc;

	move->targets_fault = true;
	rc = broker_node_call(broker, move->target, REEF_POOL_EXTENT_DROP,
			      &body, NULL);
	if (rc && rc != -ENOENT)
		return rc;
	move->targets_fault = false;
	if (REEF_MUTATED(BROKER_EARLY_MOVE)) {
		told = broker_extent_find(broker, move->number);
		if (!told)
			return -REEF_ENOLINK;
		*keys = told->keys;
		rc = pull_to_target(broker, move, keys);
		return rc ? rc : close_source(broker, move, &source);
	}
	rc = close_source(broker, move, keys);
	if (rc == 0 && !is_still_valid(broker, move))
		return -EAGAIN;
	return rc ? rc : pull_to_target(broker, move, keys);
}

/* MOVING -> LIVE at the target. */
static int settle_move(struct reef_broker *broker, const struct move *move,
		       const struct reef_extent_keys *keys)
{
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_MOVED,
		.id = move->number,
		.era = move->epoch + 1,
	};
	uint64_t sequence;
	int rc;

	if (!is_still_valid(broker, move))
		return -EAGAIN;
	rc = broker_commit(broker, &record, NULL, &sequence);
	if (rc)
		return rc;
	rc = broker_extent_set_keys(broker, move->number, keys);
	if (rc)
		broker_extent_forget(broker, move->number);
	rc = broker_wait_durable(broker, sequence);
	if (rc)
		return rc;
	broker->counts[REEF_BROKER_MOVED]++;
	broker_notice_space(broker, move->space);
	broker_drop_later(broker, move->source, move->label, move->size);
	return 0;
}

/* MOVING -> LIVE at the source, closed still. */
static int call_off_move(struct reef_broker *broker, const struct move *move)
{
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_STAY,
		.id = move->number,
	};
	int rc;

	if (!is_still_valid(broker, move))
		return 0;
	rc = broker_commit_wait(broker, &record, NULL);
	if (rc == 0)
		broker_drop_later(broker, move->target, move->label,
				  move->size);
	return rc;
}

/* Try once to move an extent that is MOVING. 0: the state has changed, or may
 * have. */
static int try_move(struct reef_broker *broker, uint32_t number,
		    struct broker_avoid *avoid)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct move move = {
		.number = number,
		.label = extent->label,
		.space = extent->space,
		.source = extent->node,
		.target = extent->target,
		.epoch = extent->epoch,
		.size = extent->size,
		.copy = extent->copy,
	};
	struct reef_extent_keys keys;
	int rc;

	rc = copy_to_target(broker, &move, &keys);
	if (rc == 0)
		return settle_move(broker, &move, &keys);
	if (!move.targets_fault || rc == -ECANCELED || rc == -REEF_EHOSTDEAD)
		return rc;
	broker_event(broker, "extent %u cannot move to node %u: %s", number,
		     move.target, reef_error_text(rc));
	broker_avoid_add(avoid, move.target);
	return call_off_move(broker, &move);
}

/* True for an extent whose node drains, and which is not being revoked or
 * rekeyed. */
static bool is_to_leave(struct reef_broker *broker,
			const struct reef_state_extent *extent)
{
	const struct reef_state_node *node =
		reef_state_node(broker->state, extent->node);
	struct broker_extent *told = broker_extent_find(broker, extent->number);

	return extent->state == REEF_EXTENT_LIVE &&
	       node->state == REEF_NODE_DRAINING && told && told->present &&
	       !told->revoking && !told->rekeying;
}

/* Work on an extent until it has left `source`, or is to stay.  -ENOSPC: (4).
 * -ETIMEDOUT: (8). */
static int move_away(struct reef_broker *broker, uint32_t number,
		     uint32_t source)
{
	const struct reef_state_extent *extent;
	struct broker_avoid avoid = {0};
	uint64_t pause_ns = 0;
	int rc = 0;

	while (rc == 0) {
		extent = reef_state_extent(broker->state, number);
		if (!extent || extent->node != source)
			return 0;
		if (extent->state == REEF_EXTENT_MOVING)
			rc = try_move(broker, number, &avoid);
		else if (is_left_closed(broker, number) &&
			 extent->state == REEF_EXTENT_LIVE)
			rc = broker_extent_reopen_once(broker, number);
		else if (is_to_leave(broker, extent))
			rc = begin_move(broker, number, &avoid);
		else
			return 0;
		if (rc && rc != -ECANCELED && rc != -REEF_EHOSTDEAD &&
		    rc != -ENOSPC && rc != -ETIMEDOUT && !broker->health)
			rc = broker_sleep_longer(broker, &pause_ns);
	}
	return rc;
}

/* Leave an extent alone for a while (8), or not any more. */
static void set_retry(struct reef_broker *broker, uint32_t number, bool later)
{
	struct broker_extent *told = broker_extent_find(broker, number);

	if (!told)
		return;
	if (!later) {
		told->retry_ns = told->pause_ns = 0;
		return;
	}
	told->pause_ns = told->pause_ns ? 2 * told->pause_ns : PAUSE_MIN_NS;
	if (told->pause_ns > PAUSE_MAX_NS)
		told->pause_ns = PAUSE_MAX_NS;
	told->retry_ns = reef_now_ns() + told->pause_ns;
}

static void run_move(struct reef_broker *broker, uint32_t number)
{
	uint32_t slot = 0;
	struct broker_node *node = find_mover(broker, number, &slot);
	uint32_t source;
	int rc;

	if (!node)
		return;
	source = node->id;
	rc = move_away(broker, number, source);
	set_retry(broker, number, rc == -ETIMEDOUT);
	node = find_mover(broker, number, &slot);
	if (!node)
		return;
	node->moving[slot] = 0;
	if (rc != -ENOSPC)
		return;
	if (!node->stuck_until_ns)
		broker_event(broker,
			     "node %u cannot be drained: no node has room for "
			     "extent %u",
			     source, number);
	node->stuck_until_ns = reef_now_ns() + broker_node_ttl(broker) / 4;
}

/* --- a node that drains --- */

/* True for an extent that is worked on, or left alone for now. */
static bool is_taken(struct reef_broker *broker, uint32_t number,
		     uint64_t now_ns)
{
	const struct broker_extent *told = broker_extent_find(broker, number);

	return broker_extent_is_moving(broker, number) ||
	       (told && told->retry_ns > now_ns);
}

/* The extent of this node to work on next: first those that are MOVING or were
 * left closed. An extent that any fiber works on is left out, even if that one
 * works for the node that the extent came from. */
static uint32_t next_extent(struct reef_broker *broker,
			    const struct broker_node *node)
{
	const struct reef_state_extent *extents;
	uint64_t now_ns = reef_now_ns();
	bool stuck = node->stuck_until_ns > now_ns, first;
	uint32_t next = 0;
	size_t count, i;

	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++) {
		if (extents[i].node != node->id)
			continue;
		first = extents[i].state == REEF_EXTENT_MOVING ||
			is_left_closed(broker, extents[i].number);
		if (!first &&
		    (next || stuck || !is_to_leave(broker, &extents[i])))
			continue;
		if (is_taken(broker, extents[i].number, now_ns))
			continue;
		next = extents[i].number;
		if (first)
			break;
	}
	return next;
}

static bool start_next_move(struct reef_broker *broker,
			    struct broker_node *node)
{
	uint32_t number, i;

	for (i = 0; i < BROKER_MOVES_MAX && node->moving[i];)
		i++;
	if (i == BROKER_MOVES_MAX || !broker_node_is_ready(node))
		return false;
	number = next_extent(broker, node);
	if (!number)
		return false;
	node->moving[i] = number;
	if (broker_spawn(broker, run_move, number) == 0)
		return true;
	node->moving[i] = 0;
	return false;
}

static bool has_moves(const struct broker_node *node)
{
	uint32_t i;

	for (i = 0; i < BROKER_MOVES_MAX; i++)
		if (node->moving[i])
			return true;
	return false;
}

/* True if the node drains, or has moves or closed extents to finish. */
static bool needs_drain(struct reef_broker *broker, uint32_t id)
{
	const struct reef_state_node *node = reef_state_node(broker->state, id);
	const struct reef_state_extent *extents;
	size_t count, i;

	if (node->state == REEF_NODE_DRAINING)
		return true;
	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++)
		if (extents[i].node == id &&
		    (extents[i].state == REEF_EXTENT_MOVING ||
		     is_left_closed(broker, extents[i].number)))
			return true;
	return false;
}

static int set_drained(struct reef_broker *broker, uint32_t id)
{
	struct reef_state_summary summary;
	struct reef_record record = {
		.type = REEF_RECORD_NODE_STATE,
		.id = id,
		.state = REEF_NODE_DRAINED,
	};
	int rc;

	reef_state_summary(broker->state, &summary);
	record.value = summary.pool_epoch;
	rc = broker_commit_wait(broker, &record, NULL);
	if (rc == 0)
		broker_event(broker, "node %u is drained", id);
	return rc;
}

static void run_drain(struct reef_broker *broker, uint32_t id)
{
	const struct reef_state_node *node;
	struct broker_node *live;
	int rc = 0;

	while (rc == 0 && !broker->health) {
		live = broker_node_find(broker, id);
		node = reef_state_node(broker->state, id);
		if (!live || !node)
			return;
		if (start_next_move(broker, live))
			continue;
		if (!has_moves(live)) {
			if (!needs_drain(broker, id))
				break;
			if (node->state == REEF_NODE_DRAINING &&
			    node->extents == 0) {
				rc = set_drained(broker, id);
				continue;
			}
		}
		rc = broker_sleep(broker, broker_node_ttl(broker) / 4);
	}
	live = broker_node_find(broker, id);
	if (live) {
		live->draining = false;
		live->stuck_until_ns = 0;
	}
}

static void ensure_drain_fiber(struct reef_broker *broker,
			       struct broker_node *node)
{
	if (node && !node->draining)
		node->draining = broker_spawn(broker, run_drain, node->id) == 0;
}

void broker_moves_resume(struct reef_broker *broker)
{
	const struct reef_state_extent *extents;
	const struct reef_state_node *nodes;
	size_t count, i;

	nodes = reef_state_nodes(broker->state, &count);
	for (i = 0; i < count; i++)
		if (nodes[i].state == REEF_NODE_DRAINING)
			ensure_drain_fiber(
				broker, broker_node_find(broker, nodes[i].id));
	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++)
		if (extents[i].state == REEF_EXTENT_MOVING)
			ensure_drain_fiber(
				broker,
				broker_node_find(broker, extents[i].node));
	for (i = 0; i < broker->extents_count; i++)
		if (broker->extents[i].closed && !broker->extents[i].rekeying)
			ensure_drain_fiber(
				broker,
				broker_node_find(broker,
						 broker->extents[i].node));
	broker_wake(broker);
}

BROKER_REQUEST(broker_node_drain)
{
	uint32_t id = request->body.ask.node_drain.node;
	const struct reef_state_node *node = reef_state_node(broker->state, id);
	bool stop = request->body.ask.node_drain.flags & REEF_POOL_DRAIN_STOP;
	struct reef_state_summary summary;
	struct reef_record record = {
		.type = REEF_RECORD_NODE_STATE,
		.id = id,
		.state = stop ? REEF_NODE_OK : REEF_NODE_DRAINING,
	};
	uint64_t result;
	int rc;

	rc = broker_find_repeated(broker, request, record.type, &result);
	if (rc)
		return rc < 0 ? rc : 0;
	if (!node)
		return -ENOENT;
	if (node->state == record.state ||
	    (node->state == REEF_NODE_AWAY && node->drains == !stop) ||
	    (!stop && node->state == REEF_NODE_DRAINED))
		return 0;
	reef_state_summary(broker->state, &summary);
	record.value = summary.pool_epoch;
	rc = broker_commit_wait(broker, &record, request);
	if (rc)
		return rc;
	broker_event(broker,
		     stop ? "node %u is not drained any more"
			  : "node %u drains",
		     record.id);
	if (stop)
		broker_memory_came(broker);
	broker_moves_resume(broker);
	return 0;
}
