/* register.c - a node comes, tells what it has, and says that it lives.
 *
 * The rules are those of nodes.c. A node is who its key says, whatever it
 * tells; an operator adds it first, and may remove it again. What a node may
 * tell, and what follows:
 *
 *   it has / the state has        follows
 *   that copy here, open          its keys are taken over
 *   that copy here, closed        left to move.c: reopened, or moved on
 *   that copy moving here         left to move.c, which begins again
 *   that copy here, FAILING       its keys are kept, and told to nobody:
 *                                 failover.c closes it, and opens it again
 *   another copy, given before    dropped, in the background: it was given up
 *   a copy that was not given yet REGISTER's answer: -REEF_EOLDER
 *   (nothing) / here, not made    created at READY: nobody was ever told of it
 *   (nothing) / here, made        LOST, never made anew: it had contents
 *
 * A copy's id is given once in the life of a pool. So memory that another pool
 * gave, or this one after the journal that we have was copied, is not mistaken
 * for what was given up: who has it is refused, and nothing is deleted. */
#include "pool/broker/lending.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>

/* Session rows in an answer beyond this are told by FENCE instead. */
#define ROW_ROOM 64
#define DROPS_MAX 4096u /* of what a node told, at a time */

static struct broker_node *node_of_link(const struct reef_request *request)
{
	struct broker_member *member = broker_member_of(request->peer);

	return member ? member->node : NULL;
}

/* A link may be up although its node is gone, and silent for long. */
static bool node_is_there(const struct reef_broker *broker,
			  const struct broker_node *node)
{
	return node && node->peer && node->peer->link &&
	       reef_now_ns() - node->heard_ns < broker_node_ttl(broker);
}

/* --- ADD --- */

static int add_node(struct reef_broker *broker, struct reef_text name,
		    const struct reef_request *origin, uint32_t *id)
{
	struct reef_record record = {
		.type = REEF_RECORD_NODE_ADD,
		.name = name,
	};
	struct reef_state_summary summary;
	int rc;

	reef_state_summary(broker->state, &summary);
	record.id = summary.next_node;
	rc = broker_commit(broker, &record, origin, NULL);
	if (rc)
		return rc;
	broker_event(broker, "node %u (%.*s) was added", record.id,
		     (int)name.size, name.bytes);
	*id = record.id;
	return 0;
}

BROKER_REQUEST(broker_node_add_request)
{
	struct reef_key key;
	uint64_t known;
	uint32_t id = 0;
	int rc = broker_find_repeated(broker, request, REEF_RECORD_NODE_ADD,
				      &known);

	if (rc > 0)
		id = (uint32_t)known;
	else if (rc == 0)
		rc = add_node(broker, request->body.ask.node_add.name, request,
			      &id);
	if (rc < 0)
		return rc;
	if (!reef_state_node(broker->state, id))
		return -ENOENT;
	rc = reef_key_derive_node(broker->key, id, &key);
	if (rc)
		return rc;
	answer->reply.node_add.node = id;
	memcpy(answer->reply.node_add.secret, key.bytes, sizeof(key.bytes));
	reef_key_wipe(&key);
	return 0;
}

int reef_broker_node_key(struct reef_broker *broker, const char *name,
			 struct reef_node_key *out)
{
	struct reef_text text = reef_text_of(name);
	uint32_t id = reef_state_find_node(broker->state, text);
	int rc = id ? 0 : add_node(broker, text, NULL, &id);

	if (rc == 0)
		rc = broker_wait_journal(broker, broker->applied);
	if (rc == 0)
		rc = reef_key_derive_node(broker->key, id, &out->key);
	if (rc)
		return rc;
	out->node = id;
	return 0;
}

/* --- REGISTER --- */

/* True if that life goes on as the witness that the one before was (confirm.c,
 * 9). */
static bool is_same_witness(const struct reef_state_node *node,
			    const struct reef_ask_node_register *ask)
{
	return node->keeps && node->state != REEF_NODE_DRAINED &&
	       ((ask->remembers == 1 && ask->confirmed_start) ||
		REEF_MUTATED(BROKER_FORGETFUL));
}

/* Note a new life. One that keeps more than it wants to lend now has that much
 * room, and gets nothing new. */
static int note_life(struct reef_broker *broker, uint32_t id,
		     const struct reef_ask_node_register *ask)
{
	const struct reef_state_node *node = reef_state_node(broker->state, id);
	struct reef_record record = {
		.type = REEF_RECORD_NODE_RETURN,
		.id = id,
		.incarnation = ask->incarnation,
		.size = ask->capacity,
		.addresses = ask->addresses,
	};

	if (!reef_node_is_gone(node->state))
		return broker_node_renew(broker, &record);
	if (record.size < node->used)
		record.size = node->used;
	return broker_commit(broker, &record, NULL, NULL);
}

/* Note whether what the node lends outlasts this life. */
static int note_keep(struct reef_broker *broker, uint32_t id,
		     const struct reef_ask_node_register *ask)
{
	struct reef_record record = {
		.type = REEF_RECORD_NODE_KEEP,
		.id = id,
		.value = ask->keeps,
	};

	return broker_commit(broker, &record, NULL, NULL);
}

static bool is_same_text(struct reef_text a, const char *b)
{
	return a.size == strlen(b) && memcmp(a.bytes, b, a.size) == 0;
}

/* Take one step towards a state that has this life of the node. 0: it has it,
 * as *id. 1: call again. */
static int admit_one_step(struct reef_broker *broker,
			  const struct reef_request *request, uint32_t *id)
{
	const struct reef_ask_node_register *ask =
		&request->body.ask.node_register;
	const struct broker_member *member = broker_member_of(request->peer);
	uint32_t number = member ? member->number : 0;
	const struct reef_state_node *node =
		reef_state_node(broker->state, number);
	struct broker_node *live = broker_node_find(broker, number);
	int rc;

	if (node_is_there(broker, live) &&
	    live->incarnation != ask->incarnation &&
	    live->peer != request->peer)
		return -EEXIST; /* nodes.c (3) */
	if (!node) {
		return member ? -REEF_EAUTH : -REEF_ENOLINK;
	} else if (reef_node_is_gone(node->state)) {
		if (node->incarnation == ask->incarnation)
			return broker->chosen ? -ESTALE : -REEF_EINDOUBT;
		rc = note_life(broker, number, ask);
	} else if (node->incarnation != ask->incarnation &&
		   is_same_witness(node, ask)) {
		rc = note_life(broker, number, ask);
	} else if (node->incarnation != ask->incarnation) {
		rc = broker_node_end_life(broker, number,
					  "it began a new life");
	} else if (node->keeps != (ask->keeps == 1)) {
		rc = ask->keeps > 1 ? -EINVAL : note_keep(broker, number, ask);
	} else {
		*id = number;
		return is_same_text(ask->addresses, node->addresses) ? 0
								     : -EINVAL;
	}
	return rc ? rc : 1;
}

/* Make the link this node's; what it told over another one is void. */
static int bind_link(struct reef_broker *broker,
		     const struct reef_request *request, uint32_t id)
{
	const struct reef_state_node *state =
		reef_state_node(broker->state, id);
	struct broker_node *node = broker_node_find(broker, id);
	struct broker_node *before = node_of_link(request);
	uint32_t i;

	/* Journaling took time: the link may be gone; the node was removed; or
	 * it was silent for so long that this life is over (nodes.c, 3). */
	if (!broker_member_of(request->peer))
		return -REEF_ENOLINK;
	if (!state)
		return -REEF_EAUTH;
	if (reef_node_is_gone(state->state) ||
	    state->incarnation != request->body.ask.node_register.incarnation)
		return broker->chosen ? -ESTALE : -REEF_EINDOUBT;
	if (!node)
		node = broker_node_add(broker, state);
	if (!node)
		return -ENOMEM;
	if (before)
		broker_node_unlink(before);
	broker_node_unlink(node);
	reef_peer_ref(request->peer);
	node->peer = request->peer;
	broker_member_of(request->peer)->node = node;
	node->ready = false;
	node->domain = request->body.ask.node_register.domain;
	node->nic = request->body.ask.node_register.nic != 0;
	node->heard_ns = reef_now_ns();
	node->fences_told = 0;
	for (i = 0; i < broker->extents_count; i++)
		if (broker->extents[i].node == id)
			broker->extents[i].told = false;
	broker_drops_forget(node);
	broker_confirm_ask(broker);
	return 0;
}

/* The session of a slot whose fence a node must know: the one there, if it has
 * ended or is ending, else the one before it. 0: none. */
static uint32_t fenced_session(const struct reef_state_session *session)
{
	if (session->id == 0)
		return 0;
	if (session->state != REEF_SESSION_ALIVE)
		return session->id;
	/* Before 1 there was none, or the last one: then all nodes that it was
	 * told of have confirmed its fence, or begun a new life. */
	return (uint16_t)session->id > 1 ? session->id - 1 : 0;
}

static void encode_fences(struct reef_broker *broker,
			  const struct reef_request *request,
			  struct broker_node *node,
			  struct reef_cursor_out *room)
{
	const struct reef_state_session *sessions;
	size_t max = broker_rows_max(broker, request);
	struct reef_row row = {.row = REEF_ROW_SESSION};
	size_t count, i;

	sessions = reef_state_sessions(broker->state, &count);
	for (i = 0; i < count && room->size + ROW_ROOM <= max; i++) {
		row.session.id = fenced_session(&sessions[i]);
		row.session.state = sessions[i].state;
		if (row.session.id)
			reef_row_encode(&row, room);
	}
	node->fences_told = (uint32_t)i;
}

/* Wait for a moment until a life that the state does not have may be noted. */
static int await_admission(struct reef_broker *broker, uint32_t number,
			   const struct reef_ask_node_register *ask)
{
	const struct reef_state_node *node =
		reef_state_node(broker->state, number);
	const uint64_t asked_ns = reef_now_ns();

	if (!node || (!reef_node_is_gone(node->state) &&
		      node->incarnation == ask->incarnation))
		return 0;
	/* nodes.c (12) */
	while (!reef_node_is_gone(node->state) &&
	       !broker_may_give_up(broker, number, asked_ns)) {
		if (broker_sleep(broker, broker_pulse_period(broker) / 4))
			return -ECANCELED;
		node = reef_state_node(broker->state, number);
		if (!node)
			return 0;
	}
	return broker_council_await(broker, number);
}

BROKER_REQUEST(broker_node_register)
{
	const struct reef_ask_node_register *ask =
		&request->body.ask.node_register;
	uint32_t number = broker_member_of(request->peer)->number, id;
	struct reef_state_summary summary;
	const struct reef_state_node *node;
	int rc = 0;

	reef_state_summary(broker->state, &summary);
	if (ask->pool && ask->pool != summary.pool &&
	    !REEF_MUTATED(BROKER_FOREIGN_DROP))
		rc = -REEF_EFOREIGN;
	if (rc == 0)
		rc = broker_confirm_register(broker, number, ask);
	if (rc == 0)
		rc = await_admission(broker, number, ask);
	if (rc == 0 && !broker_council_has_room(broker))
		rc = -EBUSY;
	if (rc)
		return rc;
	/* Nothing from here on waits to be confirmed: nodes that come are who
	 * confirms. */
	do {
		rc = admit_one_step(broker, request, &id);
	} while (rc > 0);
	if (rc == 0)
		rc = broker_wait_journal(broker, broker->applied);
	if (rc == 0)
		rc = bind_link(broker, request, id);
	if (rc)
		return rc;
	answer->reply.node_register.node = id;
	answer->reply.node_register.ttl_ns = broker_node_ttl(broker);
	answer->reply.node_register.broker_epoch = broker->epoch;
	answer->reply.node_register.pool = summary.pool;
	answer->reply.node_register.period_ns = broker_pulse_period(broker);
	node = reef_state_node(broker->state, id);
	broker_node_row(broker, NULL, node, room);
	encode_fences(broker, request, broker_node_find(broker, id), room);
	broker_rows_finish(answer, room);
	broker_event(broker, "node %u (%s) registered", id, node->name);
	return 0;
}

/* --- EXTENTS --- */

/* True if the pool that we know has not given a copy that id yet. */
static bool is_given_later(const struct reef_broker *broker, uint64_t copy)
{
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	return copy >= summary.next_copy && !REEF_MUTATED(BROKER_FOREIGN_DROP);
}

static int take_extent(struct reef_broker *broker, uint32_t node,
		       const struct reef_row_extent *row)
{
	const struct reef_state_extent *extent =
		reef_state_labelled(broker->state, row->number);
	uint32_t number = extent ? extent->number : 0;
	struct reef_extent_keys keys;
	struct broker_extent *told;
	int rc;

	if (is_given_later(broker, row->copy)) {
		broker_event(broker,
			     "node %u has memory of later than this journal: "
			     "that is an old copy",
			     node);
		return -REEF_EOLDER;
	}
	if (extent && extent->target == node && extent->copy == row->copy &&
	    row->epoch == extent->epoch + 1)
		return 0;
	if (REEF_MUTATED(BROKER_OLD_COPY) && !extent) {
		number = row->number;
		extent = reef_state_extent(broker->state, number);
	} else if (!extent || extent->node != node ||
		   extent->copy != row->copy || extent->epoch < row->epoch) {
		extent = NULL;
	}
	if (!extent) {
		/* A node can say that it has anything. What is more than that
		 * is dropped when it has come the next time. */
		if (broker_node_find(broker, node)->drops_count < DROPS_MAX)
			broker_drop_later(broker, node, row->number, row->size);
		return 0;
	}
	rc = broker_extent_note_made(broker, number);
	if (rc)
		return rc;
	memcpy(keys.keys, row->keys, sizeof(keys.keys));
	memcpy(keys.read_keys, row->read_keys, sizeof(keys.read_keys));
	rc = broker_extent_set_keys(broker, number, &keys);
	if (rc)
		return rc;
	told = broker_extent_find(broker, number);
	told->told = true;
	if (row->state != REEF_EXTENT_LIVE)
		broker_extent_set_closed(broker, number);
	return 0;
}

BROKER_REQUEST(broker_node_extents)
{
	struct reef_cursor_in in = {
		.bytes = request->body.rows,
		.left = request->body.rows_size,
	};
	struct broker_node *node = node_of_link(request);
	struct reef_row row;
	int rc;

	if (!node || node->ready)
		return -ESTALE;
	node->heard_ns = reef_now_ns();
	while ((rc = reef_row_decode(&in, &row)) > 0) {
		if (row.row != REEF_ROW_EXTENT)
			return -EINVAL;
		rc = take_extent(broker, node->id, &row.extent);
		if (rc)
			return rc;
	}
	return rc;
}

/* --- READY --- */

/* The node that asks, heard just now. NULL: the link is not its link any more.
 */
static struct broker_node *node_if_linked(struct reef_broker *broker,
					  const struct reef_request *request)
{
	struct broker_node *node = node_of_link(request);

	if (!node || node->peer != request->peer || !node->peer->link)
		return NULL;
	node->heard_ns = reef_now_ns();
	return node;
}

/* Remove an extent that could not be made, and was never handed out. */
static int remove_unmade_extent(struct reef_broker *broker, uint32_t number)
{
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_REMOVE,
		.id = number,
	};
	uint32_t space = reef_state_extent(broker->state, number)->space;
	int rc = broker_commit_wait(broker, &record, NULL);

	broker_extent_forget(broker, number);
	broker_notice_space(broker, space);
	return rc;
}

/* Bring what a node has and what the state says of one extent together. */
static int reconcile_extent(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct broker_extent *told = broker_extent_find(broker, number);
	int rc;

	/* One that is closed is not opened here: how long that takes is up to
	 * who held it, and nobody's node waits for another's holders. */
	if (told && told->told)
		return 0;
	if (extent->made && !REEF_MUTATED(BROKER_ZEROS))
		return broker_extent_lose(broker, number,
					  "its node has it no more");
	/* A twin that no extent names yet is filled by who wants it, and not
	 * made here: all zeros, it would be taken for a copy. */
	if (extent->is_twin && !extent->twin &&
	    !REEF_MUTATED(BROKER_TWIN_ZEROS))
		return 0;
	rc = broker_extent_create(broker, number);
	if (rc == -ENOSPC || rc == -ENOMEM)
		rc = remove_unmade_extent(broker, number);
	return rc;
}

/* Copy the numbers of a node's extents; the caller frees them. */
static int copy_extent_numbers(struct reef_broker *broker, uint32_t node,
			       uint32_t **out, size_t *found)
{
	const struct reef_state_extent *extents;
	size_t count, i, n = 0;
	uint32_t *numbers;

	extents = reef_state_extents(broker->state, &count);
	numbers = malloc((count ? count : 1) * sizeof(*numbers));
	if (!numbers)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		if (extents[i].node == node)
			numbers[n++] = extents[i].number;
	*out = numbers;
	*found = n;
	return 0;
}

static int reconcile_extents(struct reef_broker *broker,
			     const struct reef_request *request, uint32_t id)
{
	const struct reef_state_extent *extent;
	uint32_t *numbers = NULL;
	size_t count = 0, i;
	int rc = copy_extent_numbers(broker, id, &numbers, &count);

	for (i = 0; rc == 0 && i < count; i++) {
		extent = reef_state_extent(broker->state, numbers[i]);
		if (!extent || extent->node != id)
			continue;
		rc = reconcile_extent(broker, numbers[i]);
		if (rc == 0 && !node_if_linked(broker, request))
			rc = -REEF_ENOLINK;
	}
	free(numbers);
	return rc;
}

/* Fence the sessions that had no room in the answer to REGISTER. */
static int send_other_fences(struct reef_broker *broker,
			     const struct reef_request *request, uint32_t id)
{
	const struct reef_state_session *sessions;
	uint32_t ended[BROKER_FENCES_MAX], n;
	struct broker_node *node;
	size_t count;
	int rc;

	while ((node = node_if_linked(broker, request))) {
		sessions = reef_state_sessions(broker->state, &count);
		if (node->fences_told >= count)
			return 0;
		for (n = 0; n < BROKER_FENCES_MAX && node->fences_told < count;
		     node->fences_told++) {
			ended[n] = fenced_session(&sessions[node->fences_told]);
			n += ended[n] != 0;
		}
		rc = broker_node_fence(broker, id, ended, n);
		if (rc)
			return rc;
	}
	return -REEF_ENOLINK;
}

/* No tenant delays this: what it waits for is the journal, nodes that confirm,
 * memory that is made, and fences, which end who holds (on shm by SIGKILL). */
BROKER_REQUEST(broker_node_ready)
{
	struct broker_node *node = node_if_linked(broker, request);
	uint32_t id;
	int rc;

	if (!node)
		return -ESTALE;
	id = node->id;
	/* The death of its former life is confirmed and published first. */
	rc = broker_publish_pool_epoch(broker);
	if (rc == 0)
		rc = send_other_fences(broker, request, id);
	if (rc == 0)
		rc = reconcile_extents(broker, request, id);
	if (rc)
		return rc;
	node = node_if_linked(broker, request);
	if (!node)
		return -REEF_ENOLINK;
	node->ready = true;
	broker->returns++; /* it has room, perhaps */
	broker_event(broker, "node %u is ready", id);
	if (node->changed)
		broker_notice_node(broker, id);
	node->changed = false;
	broker_moves_resume(broker);
	broker_copies_resume(broker);
	broker_recovery_node_came(broker, id);
	broker_wake(broker);
	return 0;
}

/* --- PULSE --- */

BROKER_REQUEST(broker_node_pulse)
{
	uint64_t incarnation = request->body.ask.node_pulse.incarnation;
	struct broker_node *node = node_of_link(request);

	if (!node || node->incarnation != incarnation)
		return -ESTALE;
	node->heard_ns = reef_now_ns();
	node->machine_free = request->body.ask.node_pulse.machine_free;
	node->links = request->body.ask.node_pulse.links;
	node->wanted = request->body.ask.node_pulse.wanted;
	answer->reply.node_pulse.unsure = !broker_is_sure(broker);
	answer->reply.node_pulse.period_ns = broker_pulse_period(broker);
	/* It has pulsed as it was told before, which may be seldom. */
	node->pulses_often = node->is_told_often;
	node->is_told_often = answer->reply.node_pulse.period_ns <
			      broker_node_ttl(broker) / 4;
	if (node->wanted && node->ready)
		broker_reclaim(broker, node->id, node->wanted);
	return 0;
}

/* --- REMOVE --- */

static bool is_away(const struct reef_broker *broker, uint32_t id)
{
	const struct reef_state_node *node = reef_state_node(broker->state, id);

	return node && node->state == REEF_NODE_AWAY;
}

BROKER_REQUEST(broker_node_remove)
{
	struct reef_record record = {
		.type = REEF_RECORD_NODE_REMOVE,
		.id = request->body.ask.node_remove.node,
	};
	/* Without a number it is nobody's mutation: so an operator, who gets
	 * no session from a broker that is not sure, can remove a node. */
	const struct reef_request *origin =
		request->header.sequence ? request : NULL;
	struct broker_node *node;
	uint64_t result;
	int rc = 0;

	if (origin)
		rc = broker_find_repeated(broker, request, record.type,
					  &result);
	if (rc)
		return rc < 0 ? rc : 0;
	/* What it lends is in use, or its memory is. */
	node = broker_node_find(broker, record.id);
	if (node_is_there(broker, node) || !broker_council_has_room(broker))
		return -EBUSY;
	/* Nobody is declared dead by a broker that is not sure, but by its
	 * operator. */
	if ((!broker_is_sure(broker) && node) || is_away(broker, record.id))
		rc = broker_node_bury(broker, record.id, "it is removed");
	if (rc == 0)
		rc = broker_commit(broker, &record, origin, NULL);
	if (rc)
		return rc;
	broker_witness_forget(broker, record.id);
	broker_node_forget(broker, record.id);
	broker_event(broker, "node %u was removed", record.id);
	return 0;
}
