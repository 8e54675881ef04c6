/* nodes.c - who lends memory: registration, pulse, death; fences; calls.
 *
 * (1) A node that the state does not hold for DEAD or AWAY is in broker->nodes,
 *     with a link or without. Whoever was not heard for node_ttl is AWAY if it
 *     keeps its memory, else DEAD: judged by
 *     the broker's own clock, after pending input was handled, and everybody
 *     counts as just heard after a start, and after the broker itself stood
 *     still. Whatever comes by a node's link was heard, also a pulse that there
 *     is no handler for.
 * (2) DEAD and AWAY are durable, then published, then told.
 * (3) One key, one node: while a node's link is up, and it was heard within
 *     node_ttl, another incarnation with its key is refused (-EEXIST). Another
 *     incarnation comes only after the old one is DEAD or AWAY; an incarnation
 *     that was taken for either never comes back (-ESTALE). Before the next one
 *     is READY it has ended every link of the one before, and carried out every
 *     fence (4), and nobody has a key of its memory yet. So AWAY counts as
 *     confirmed for fences and SETTLE, as DEAD does: who knows of it (pool
 *     epoch) has no link there, and whatever a fenced session still does there
 *     has happened when anybody can look.
 * (4) Before a node is READY it has heard of every session that has ended or is
 *     ending, in the answer to REGISTER or by a FENCE. Whoever expires later
 *     is fenced at every node that is not DEAD, READY or not, and that it was
 *     told of (8).
 * (5) When a node is READY it has what the state has there, and no more but
 *     what is being dropped: what nobody was ever told of is created anew; any
 *     other extent is LOST if it is missing (register.c). Only a twin that no
 *     extent names yet may be missing: twins.c and recopy.c make it.
 * (6) A broker that a node calls stale serves no longer.
 * (7) A node is asked for nothing that is not durable and confirmed, but to
 *     CONFIRM.
 * (8) A fence goes to the nodes that the session was told keys of. At others it
 *     can do nothing, now or later, though some would let it connect: what it
 *     does at a node it does by keys (F8), and requests over its link are
 *     refused. Keys leave us only in rows for a session that is ALIVE, and the
 *     node is noted before they do (broker_extent_row); its fence begins after
 *     it is EXPIRED. What was told is not forgotten while the session lasts,
 *     whether the extent moves, goes or its space is closed. A session from
 *     before this start may have been told of every node that there was then.
 *     Keys that another session passed on are no reason for a fence: that one
 *     could do itself whatever it lets others do.
 * (9) Generations of a slot are serial numbers to a node: what it remembers of
 *     a slot must be less than half their range old. So one fence in
 *     FENCE_ALL_EVERY of a slot goes to all nodes. A process that stood still
 *     while its slot was given away 32,768 times is not known any more.
 * (10) A node that has one of two copies is missed sooner than by its ttl:
 *     after COPIES_TTL_NS, because nothing is lost by that. It is asked to
 *     pulse as often as that needs, and judged so from then on. But one that
 *     keeps nothing, and has the only copy of something, has its whole ttl;
 *     and so has one as long as a node with the other copy of something is
 *     silent, too, for two pulses: if one of them is gone and the other only
 *     slow, to give up the slow one would be to lose both.
 * (11) Who has asked a node something that is gone since waits no longer: that
 *     node may be silent, and its link last until the fabric notices. So a
 *     session that ends meanwhile is fenced as soon as the node is gone.
 * (12) A node that keeps its memory is given up, or begins a new life, only
 * when each node that keeps nothing and has the other copy of something was
 *     heard after that was due: else both are gone, perhaps, and what is kept
 *     would be given up for what is not. The other one is gone itself when its
 *     ttl is over; if the broker needs it, that is waited for twice as long.
 *
 *   (unknown)  --ADD: journaled-->  DEAD
 *   registered  --EXTENTS*, READY--> ready
 *   ready, registered  --link lost-->  away
 *   away  --REGISTER, same life-->  registered
 *   any  --no pulse for node_ttl, or REGISTER of another life-->  AWAY if it
 *     keeps its memory, else DEAD
 *   AWAY --node remove-->  DEAD, its extents LOST
 *   DEAD, AWAY --REGISTER of another life: journaled-->  registered */
#include "pool/broker/lending.h"

#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define RETRY_MIN_NS (1 * MS)
#define RETRY_MAX_NS (100 * MS)
#define PULL_BYTES_PER_S UINT64_C(10000000) /* a slower pull is stuck */
#define FENCE_ALL_EVERY 8192u
#define COPIES_TTL_NS (1000 * MS)
#define YIELDS 4 /* turns of fibers until a message is a heard pulse */

struct broker_node *broker_node_find(struct reef_broker *broker, uint32_t id)
{
	struct broker_node *node = broker->nodes;

	while (node && node->id != id)
		node = node->next;
	return node;
}

bool broker_node_is_ready(const struct broker_node *node)
{
	return node && node->ready && node->peer && node->peer->link;
}

uint64_t broker_node_ttl(const struct reef_broker *broker)
{
	return reef_state_setting(broker->state, REEF_SETTING_NODE_TTL_NS);
}

int broker_sleep_longer(struct reef_broker *broker, uint64_t *pause_ns)
{
	*pause_ns = *pause_ns ? *pause_ns * 2 : RETRY_MIN_NS;
	if (*pause_ns > RETRY_MAX_NS)
		*pause_ns = RETRY_MAX_NS;
	return broker_sleep(broker, *pause_ns);
}

/* --- calls --- */

static uint64_t call_timeout_ns(const struct reef_broker *broker, uint16_t kind,
				const struct reef_body *body)
{
	uint64_t timeout_ns = broker_node_ttl(broker);

	if (kind == REEF_POOL_EXTENT_PULL)
		timeout_ns += body->ask.extent_pull.copy.size /
			      PULL_BYTES_PER_S * 1000 * MS;
	return timeout_ns;
}

static bool is_linked(const struct broker_node *node)
{
	return node && node->peer && node->peer->link;
}

static int call_peer(struct reef_broker *broker, struct broker_node *node,
		     uint16_t kind, const struct reef_body *body,
		     struct reef_answer *answer)
{
	struct reef_peer *peer;
	int rc;

	if (broker->stopping || broker->health)
		return -ECANCELED;
	if (!is_linked(node))
		return -REEF_ENOLINK;
	peer = node->peer;
	reef_peer_ref(peer);
	rc = reef_rpc_call(peer, kind, 0, body, answer,
			   call_timeout_ns(broker, kind, body));
	reef_peer_unref(peer);
	if (rc == -ESTALE) /* (6) */
		broker_fail(broker, -ESTALE);
	return rc;
}

int broker_node_call(struct reef_broker *broker, uint32_t node, uint16_t kind,
		     const struct reef_body *body, struct reef_answer *answer)
{
	if (!broker_node_is_ready(broker_node_find(broker, node)))
		return broker->stopping || broker->health ? -ECANCELED
							  : -REEF_ENOLINK;
	return broker_node_call_early(broker, node, kind, body, answer);
}

int broker_node_call_early(struct reef_broker *broker, uint32_t node,
			   uint16_t kind, const struct reef_body *body,
			   struct reef_answer *answer)
{
	int rc;

	if (!is_linked(broker_node_find(broker, node)))
		return broker->stopping || broker->health ? -ECANCELED
							  : -REEF_ENOLINK;
	rc = broker_wait_durable(broker, broker->applied); /* (7) */
	if (rc)
		return rc == -REEF_EHOSTDEAD ? rc : -ECANCELED;
	return call_peer(broker, broker_node_find(broker, node), kind, body,
			 answer);
}

int broker_node_call_unconfirmed(struct reef_broker *broker, uint32_t node,
				 uint16_t kind, const struct reef_body *body)
{
	return call_peer(broker, broker_node_find(broker, node), kind, body,
			 NULL);
}

/* --- who was told of which nodes (8) --- */

/* Where that node is, or would be, among those that the session was told of. */
static uint32_t find_told(const struct broker_session *session, uint32_t node)
{
	uint32_t low = 0, high = session->told_count, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (session->told[middle] < node)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool broker_session_was_told(const struct broker_session *session,
			     uint32_t node)
{
	uint32_t at = find_told(session, node);

	return node < session->told_below ||
	       (at < session->told_count && session->told[at] == node);
}

void broker_session_note_told(struct broker_session *session, uint32_t node)
{
	uint32_t room = session->told_room ? 2 * session->told_room : 8, *grown;
	uint32_t at = find_told(session, node);

	if (broker_session_was_told(session, node))
		return;
	if (REEF_MUTATED(BROKER_FENCE_LAST))
		session->told_count = at = 0;
	if (session->told_count == session->told_room) {
		grown = realloc(session->told, room * sizeof(*grown));
		if (!grown) {
			/* Without memory, it counts as told of all. */
			session->told_below = UINT32_MAX;
			return;
		}
		session->told = grown;
		session->told_room = room;
	}
	memmove(&session->told[at + 1], &session->told[at],
		(session->told_count - at) * sizeof(*session->told));
	session->told[at] = node;
	session->told_count++;
}

/* --- fences --- */

struct fence {
	struct reef_broker *broker;
	uint32_t node, session;
	uint64_t incarnation;
	struct reef_fiber *fiber;
};

/* Fence a session at one node until that has confirmed, or the life of the node
 * that was meant is over. */
static int fence_until_confirmed(void *arg)
{
	struct fence *fence = arg;
	struct reef_broker *broker = fence->broker;
	struct reef_body body = {.ask.fence.session = fence->session};
	const struct reef_state_node *node;
	uint64_t pause_ns = 0;
	int rc;

	for (;;) {
		node = reef_state_node(broker->state, fence->node);
		if (!node || reef_node_is_gone(node->state) ||
		    node->incarnation != fence->incarnation)
			return 0;
		rc = broker_node_call_early(broker, fence->node,
					    REEF_POOL_FENCE, &body, NULL);
		if (rc == 0 || rc == -ECANCELED || rc == -REEF_EHOSTDEAD)
			return rc;
		broker->counts[REEF_BROKER_FENCE_FAILS]++;
		rc = broker_sleep_longer(broker, &pause_ns);
		if (rc)
			return rc;
	}
}

int broker_nodes_fence(struct reef_broker *broker, uint32_t session)
{
	const struct broker_session *ended =
		broker_session_find(broker, session);
	bool is_for_all = (uint16_t)session % FENCE_ALL_EVERY == 0;
	const struct reef_state_node *nodes;
	struct fence *fences;
	size_t count, left = 0, i;
	int rc = 0, one;

	nodes = reef_state_nodes(broker->state, &count);
	fences = calloc(count ? count : 1, sizeof(*fences));
	if (!fences)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		if (reef_node_is_gone(nodes[i].state) ||
		    !(broker_session_was_told(ended, nodes[i].id) ||
		      is_for_all))
			continue;
		fences[left++] = (struct fence){
			.broker = broker,
			.node = nodes[i].id,
			.session = session,
			.incarnation = nodes[i].incarnation,
		};
	}
	/* Nodes for which there is no fiber are fenced in this one. */
	for (i = 0; i < left; i++)
		if (reef_fiber_spawn(broker->sched, fence_until_confirmed,
				     &fences[i], &fences[i].fiber))
			fences[i].fiber = NULL;
	for (i = 0; i < left; i++) {
		if (fences[i].fiber)
			reef_fiber_join(fences[i].fiber, &one);
		else
			one = fence_until_confirmed(&fences[i]);
		rc = rc ? rc : one;
	}
	free(fences);
	return rc;
}

static int send_fence(void *arg)
{
	struct fence *fence = arg;
	struct reef_body body = {.ask.fence.session = fence->session};

	return broker_node_call_early(fence->broker, fence->node,
				      REEF_POOL_FENCE, &body, NULL);
}

int broker_node_fence(struct reef_broker *broker, uint32_t node,
		      const uint32_t *sessions, uint32_t count)
{
	struct fence fences[BROKER_FENCES_MAX] = {0};
	int rc = 0, one;
	uint32_t i;

	reef_assert(count <= BROKER_FENCES_MAX);
	for (i = 0; i < count; i++) {
		fences[i] = (struct fence){
			.broker = broker,
			.node = node,
			.session = sessions[i],
		};
		if (reef_fiber_spawn(broker->sched, send_fence, &fences[i],
				     &fences[i].fiber))
			fences[i].fiber = NULL;
	}
	for (i = 0; i < count; i++) {
		if (fences[i].fiber)
			reef_fiber_join(fences[i].fiber, &one);
		else
			one = send_fence(&fences[i]);
		rc = rc ? rc : one;
	}
	return rc;
}

/* --- the nodes that are not DEAD or AWAY --- */

struct broker_node *broker_node_add(struct reef_broker *broker,
				    const struct reef_state_node *from)
{
	struct broker_node *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->id = from->id;
	node->incarnation = from->incarnation;
	node->heard_ns = reef_now_ns();
	node->next = broker->nodes;
	broker->nodes = node;
	return node;
}

void broker_node_unlink(struct broker_node *node)
{
	struct broker_member *member;

	if (!node->peer)
		return;
	member = broker_member_of(node->peer);
	if (member && member->node == node)
		member->node = NULL;
	reef_peer_unref(node->peer);
	node->peer = NULL;
	node->ready = false;
}

static void destroy_node(struct reef_broker *broker, struct broker_node *node)
{
	struct broker_node **at = &broker->nodes;

	if (node->peer && !REEF_MUTATED(BROKER_CALLS_KEPT)) /* (11) */
		reef_peer_abandon(node->peer);
	broker_node_unlink(node);
	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	free(node->drops);
	free(node);
}

void broker_node_link_lost(struct reef_broker *broker, struct broker_node *node)
{
	broker_node_unlink(node);
	if (!broker->stopping)
		broker_event(broker, "node %u: its link is lost", node->id);
}

void broker_node_forget(struct reef_broker *broker, uint32_t id)
{
	struct broker_node *node = broker_node_find(broker, id);

	if (node)
		destroy_node(broker, node);
	broker_extents_forget_node(broker, id);
}

void broker_nodes_close(struct reef_broker *broker)
{
	while (broker->nodes)
		destroy_node(broker, broker->nodes);
	free(broker->extents);
}

/* --- death --- */

static int compare_spaces(const void *a, const void *b)
{
	uint32_t x = ((const struct reef_state_extent *)a)->space;
	uint32_t y = ((const struct reef_state_extent *)b)->space;

	return (x > y) - (x < y);
}

/* Copy the extents on a node or moving to it, in the order of their spaces; the
 * caller frees them. */
static int copy_extents_of(const struct reef_broker *broker, uint32_t node,
			   struct reef_state_extent **out, size_t *found)
{
	const struct reef_state_extent *extents;
	struct reef_state_extent *copies;
	size_t count, i, n = 0;

	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++)
		n += extents[i].node == node || extents[i].target == node;
	copies = malloc((n + 1) * sizeof(*copies));
	if (!copies)
		return -ENOMEM;
	for (i = n = 0; i < count; i++)
		if (extents[i].node == node || extents[i].target == node)
			copies[n++] = extents[i];
	qsort(copies, n, sizeof(*copies), compare_spaces);
	*out = copies;
	*found = n;
	return 0;
}

/* Do that with each space that one of the extents is of. */
static void each_space(struct reef_broker *broker,
		       const struct reef_state_extent *extents, size_t count,
		       void (*act)(struct reef_broker *broker, uint32_t space))
{
	size_t i;

	for (i = 0; i < count; i++)
		if (i == 0 || extents[i].space != extents[i - 1].space)
			act(broker, extents[i].space);
}

void broker_notice_node(struct reef_broker *broker, uint32_t node)
{
	struct reef_state_extent *extents;
	size_t count;

	if (copy_extents_of(broker, node, &extents, &count))
		return;
	each_space(broker, extents, count, broker_notice_space);
	free(extents);
}

/* Drop the copies that were being made from a node that is DEAD. */
static void drop_copies(struct reef_broker *broker, uint32_t id,
			const struct reef_state_extent *extents, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (extents[i].node == id && extents[i].target)
			broker_drop_later(broker, extents[i].target,
					  extents[i].label, extents[i].size);
}

/* End a node's life by that record. lost: what it lent is gone. */
static int end_life_by(struct reef_broker *broker, struct reef_record *record,
		       bool lost, const char *why)
{
	const uint32_t id = record->id;
	struct reef_state_extent *extents;
	struct broker_given_up *copies;
	size_t count, copies_count, i;
	int rc = copy_extents_of(broker, id, &extents, &count);

	if (rc)
		return rc;
	rc = broker_copies_on(broker, id, &copies, &copies_count);
	if (rc) {
		free(extents);
		return rc;
	}
	rc = broker_commit(broker, record, NULL, NULL);
	if (rc == 0) {
		/* From here on a session may become FENCED without this node:
		 * who then asks about a space is told that it changed. The
		 * answer waits until this is durable. */
		each_space(broker, extents, count, broker_notice_space);
		for (i = 0; i < copies_count; i++)
			broker_copy_given_up(broker, &copies[i]);
		broker_node_forget(broker, id);
		broker_event(broker, "node %u is %s: %s", id,
			     lost ? "dead" : "away", why);
	}
	if (rc == 0 && lost) {
		drop_copies(broker, id, extents, count);
		each_space(broker, extents, count, broker_recovery_retry);
	}
	for (i = 0; rc == 0 && i < copies_count; i++)
		broker_care_for(broker, copies[i].copy.space);
	free(extents);
	free(copies);
	broker_wake(broker);
	return rc;
}

/* It is DEAD or AWAY from now on. */
static int end_life(struct reef_broker *broker, uint32_t id, uint8_t next,
		    const char *why)
{
	struct reef_record record = {
		.type = REEF_RECORD_NODE_STATE,
		.id = id,
		.state = next,
	};
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	record.value = summary.pool_epoch + 1;
	return end_life_by(broker, &record, next == REEF_NODE_DEAD, why);
}

int broker_node_bury(struct reef_broker *broker, uint32_t id, const char *why)
{
	return end_life(broker, id, REEF_NODE_DEAD, why);
}

int broker_node_end_life(struct reef_broker *broker, uint32_t id,
			 const char *why)
{
	const struct reef_state_node *node = reef_state_node(broker->state, id);
	bool waits = node->keeps && node->state != REEF_NODE_DRAINED;

	return end_life(broker, id, waits ? REEF_NODE_AWAY : REEF_NODE_DEAD,
			why);
}

int broker_node_renew(struct reef_broker *broker, struct reef_record *life)
{
	return end_life_by(broker, life, false, "it began a new life");
}

int broker_node_declare_gone(struct reef_broker *broker, uint32_t id,
			     const char *why)
{
	int rc = broker_node_end_life(broker, id, why);

	return rc ? rc : broker_publish_pool_epoch(broker);
}

/* Note which nodes have said anything since the last time. */
static void note_heard_nodes(struct reef_broker *broker, uint64_t now_ns)
{
	struct broker_node *node;

	for (node = broker->nodes; node; node = node->next) {
		if (!node->peer || node->messages == node->peer->messages)
			continue;
		node->messages = node->peer->messages;
		node->heard_ns = now_ns;
	}
}

/* The ttl of nodes that have one of two copies. */
static uint64_t copies_ttl(const struct reef_broker *broker)
{
	uint64_t ttl_ns = broker_node_ttl(broker);

	return ttl_ns < COPIES_TTL_NS ? ttl_ns : COPIES_TTL_NS;
}

static bool has_twins(const struct reef_broker *broker)
{
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	return summary.twins != 0;
}

/* True if a space is to have copies. Whether it has them does not matter: nodes
 * that learnt only with the first of them to pulse often would not be missed
 * soon for another two pulses of before. */
static bool wants_copies(const struct reef_broker *broker)
{
	const struct reef_state_space *spaces;
	size_t count, i;

	spaces = reef_state_spaces(broker->state, &count);
	for (i = 0; i < count; i++)
		if (spaces[i].copies > 1)
			return true;
	return false;
}

uint64_t broker_pulse_period(const struct reef_broker *broker)
{
	return (wants_copies(broker) ? copies_ttl(broker)
				     : broker_node_ttl(broker)) /
	       4;
}

/* True if a node was not heard lately: perhaps it is gone. */
static bool is_doubtful(const struct reef_broker *broker,
			const struct broker_node *node, uint64_t now_ns)
{
	return !node || (node->heard_ns + copies_ttl(broker) / 2 <= now_ns &&
			 !REEF_MUTATED(BROKER_HASTY_MISS));
}

/* The node that has the other copy of an extent. */
static struct broker_node *find_other_node(
	struct reef_broker *broker, const struct reef_state_extent *extent)
{
	const struct reef_state_extent *other =
		reef_state_extent(broker->state, extent->twin);

	return other ? broker_node_find(broker, other->node) : NULL;
}

/* Note which nodes (10) is about. */
static void note_copies(struct reef_broker *broker, uint64_t now_ns)
{
	const struct reef_state_extent *extents;
	const struct reef_state_node *state;
	struct broker_node *node;
	size_t count, i;

	for (node = broker->nodes; node; node = node->next)
		node->fails_soon = false;
	if (!has_twins(broker))
		return;
	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++) {
		node = extents[i].twin
			       ? broker_node_find(broker, extents[i].node)
			       : NULL;
		if (node)
			node->fails_soon = true;
	}
	for (i = 0; i < count; i++) {
		node = broker_node_find(broker, extents[i].node);
		state = reef_state_node(broker->state, extents[i].node);
		if (!node || !state)
			continue;
		if (extents[i].twin
			    ? is_doubtful(broker,
					  find_other_node(broker, &extents[i]),
					  now_ns)
			    : !state->keeps)
			node->fails_soon = false;
	}
}

/* For how long a node may be silent. */
static uint64_t silence_of(const struct reef_broker *broker,
			   const struct broker_node *node)
{
	return node->fails_soon && node->pulses_often ? copies_ttl(broker)
						      : broker_node_ttl(broker);
}

bool broker_may_give_up(struct reef_broker *broker, uint32_t id,
			uint64_t due_ns)
{
	const struct reef_state_node *state =
		reef_state_node(broker->state, id);
	const uint64_t patience_ns = 2 * broker_node_ttl(broker);
	const struct reef_state_extent *extents;
	const struct broker_node *other;
	size_t count, i;

	if (!state || !state->keeps || REEF_MUTATED(BROKER_KEPT_FIRST))
		return true;
	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++) {
		other = extents[i].node == id && extents[i].twin
				? find_other_node(broker, &extents[i])
				: NULL;
		state = other ? reef_state_node(broker->state, other->id)
			      : NULL;
		if (state && !state->keeps && other->heard_ns <= due_ns &&
		    reef_now_ns() < other->heard_ns + patience_ns)
			return false;
	}
	return true;
}

/* The first node that was not heard for its ttl, in which the broker was sure;
 * 0: none. */
static uint32_t find_silent_node(struct reef_broker *broker, uint64_t now_ns)
{
	struct broker_node *node;
	uint64_t due_ns;

	for (node = broker->nodes; node; node = node->next) {
		due_ns = node->heard_ns + silence_of(broker, node);
		if (broker->sure &&
		    broker->sure_ns + silence_of(broker, node) <= now_ns &&
		    due_ns <= now_ns && !broker_is_needed(broker, node->id) &&
		    broker_may_give_up(broker, node->id, due_ns))
			return node->id;
	}
	return 0;
}

static void bury_silent_nodes(struct reef_broker *broker, uint32_t number)
{
	uint64_t period_ns;
	uint64_t last_ns = reef_now_ns(), now_ns;
	struct broker_node *node;
	uint32_t id;
	int i;

	while (!broker->stopping) {
		now_ns = reef_now_ns();
		period_ns = broker_pulse_period(broker);
		if (now_ns < last_ns + period_ns) {
			if (broker_sleep(broker, last_ns + period_ns - now_ns))
				return;
			continue;
		}
		/* (1): the broker itself stood still, and heard no pulse. */
		if (now_ns - last_ns > 2 * period_ns)
			for (node = broker->nodes; node; node = node->next)
				node->heard_ns = now_ns;
		last_ns = now_ns;
		reef_port_poll(broker->port);
		for (i = 0; i < YIELDS; i++)
			reef_fiber_yield();
		note_heard_nodes(broker, now_ns);
		note_copies(broker, now_ns);
		while (!broker->stopping &&
		       (id = find_silent_node(broker, now_ns)) != 0)
			if (broker_confirm_now(broker) ||
			    find_silent_node(broker, now_ns) != id ||
			    broker_node_declare_gone(broker, id, "no pulse"))
				break;
	}
}

int broker_nodes_start(struct reef_broker *broker)
{
	const struct reef_state_node *nodes;
	size_t count, i;
	int rc;

	broker_twins_sweep(broker);
	nodes = reef_state_nodes(broker->state, &count);
	for (i = 0; i < count; i++)
		if (!reef_node_is_gone(nodes[i].state) &&
		    !broker_node_add(broker, &nodes[i]))
			return -ENOMEM;
	rc = broker_extents_open(broker);
	return rc ? rc : broker_spawn(broker, bury_silent_nodes, 0);
}
