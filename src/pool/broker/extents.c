/* extents.c - which node an extent comes to, and how it is made and removed.
 *
 * (1) An extent is durable before its node is asked to create it, and whoever
 *     asked for it is answered when the node has confirmed. A node that is away
 *     or refuses: the extent is removed, journaled too, and another node asked;
 *     none left: -ENOSPC, and nothing stays.
 *     That the node has it is durable, too, before anybody is told of it: what
 *     is not `made` was never handed out, and may be made anew (register.c).
 * (2) Placement: place.c.
 * (3) Memory that is being dropped is not room yet. Where it would be, or a
 *     node is away that has room, a request waits for at most node_ttl before
 *     it is told that the pool is full: neither a drop nor a restart makes one.
 *     It waits in no handler (room.c): how long a drop takes is up to whoever
 *     held that memory. What else a request waits for here is the journal, and
 *     nodes that make memory or are away, which no tenant delays.
 *     Nor is a pool full to which no node has come yet: that is -EAGAIN, and
 *     a client asks again while it has patience. Where all nodes are DEAD each
 *     was waited for, and there is no room: -ENOSPC.
 * (4) A repetition gets the extent of the first try. Only if a node refused
 *     that one, and the broker restarted meanwhile, can a repetition leave a
 *     second one in the space, where the space's users find it.
 * (5) A crowd that finds a space full gets one extent, not one each: who asks
 *     says which extents it does not know yet, and is given the latest of
 *     those, also while that is being made. It asks again if that is full,
 *     too.
 * (6) Whoever has an extent removed owns every chunk of it (heap/shrink.c), and
 *     is ALIVE when the record is applied: once a session is FENCED, its
 *     removal has happened or never will. */
#include "pool/broker/lending.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

#define FALLEN_MAX 4			/* links, while one extent is added */
#define EXTENT_STEP (UINT64_C(1) << 20) /* of sizes below the usual one */

/* --- what nodes told --- */

static uint32_t index_of(const struct reef_broker *broker, uint32_t number)
{
	uint32_t low = 0, high = broker->extents_count, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (broker->extents[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct broker_extent *broker_extent_find(struct reef_broker *broker,
					 uint32_t number)
{
	uint32_t i = index_of(broker, number);

	if (i < broker->extents_count && broker->extents[i].number == number)
		return &broker->extents[i];
	return NULL;
}

static struct broker_extent *insert_extent(struct reef_broker *broker,
					   uint32_t number)
{
	uint32_t i = index_of(broker, number), room = broker->extents_room;
	struct broker_extent *grown;

	if (broker->extents_count == room) {
		room = room ? 2 * room : 64;
		grown = realloc(broker->extents, room * sizeof(*grown));
		if (!grown)
			return NULL;
		broker->extents = grown;
		broker->extents_room = room;
	}
	grown = &broker->extents[i];
	memmove(grown + 1, grown, (broker->extents_count - i) * sizeof(*grown));
	broker->extents_count++;
	*grown = (struct broker_extent){.number = number};
	return grown;
}

void broker_extent_put(struct reef_broker *broker,
		       const struct broker_extent *entry)
{
	struct broker_extent *told = insert_extent(broker, entry->number);

	reef_assert(told); /* there was room */
	*told = *entry;
}

int broker_extents_open(struct reef_broker *broker)
{
	const struct reef_state_extent *extents;
	struct broker_extent *told;
	size_t count, i;

	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++) {
		told = insert_extent(broker, extents[i].number);
		if (!told)
			return -ENOMEM;
		told->node = extents[i].node;
	}
	return 0;
}

int broker_extent_set_keys(struct reef_broker *broker, uint32_t number,
			   const struct reef_extent_keys *keys)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct broker_node *node = broker_node_find(broker, extent->node);
	struct broker_extent *told = broker_extent_find(broker, number);

	if (!told)
		told = insert_extent(broker, number);
	if (!told)
		return -ENOMEM;
	if (!told->present || told->closed ||
	    memcmp(&told->keys, keys, sizeof(told->keys))) {
		broker_extent_changed(broker, extent->space, number);
		if (node)
			node->changed = true;
	}
	told->node = extent->node;
	told->told = told->present = true;
	told->closed = false;
	told->keys = *keys;
	return 0;
}

void broker_extent_set_closed(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct broker_extent *told = broker_extent_find(broker, number);

	if (!extent || !told || told->closed)
		return;
	told->closed = true;
	broker_extent_changed(broker, extent->space, number);
}

void broker_extent_forget(struct reef_broker *broker, uint32_t number)
{
	struct broker_extent *told = broker_extent_find(broker, number);
	struct broker_extent *end;

	if (!told)
		return;
	end = broker->extents + broker->extents_count;
	memmove(told, told + 1, (size_t)(end - told - 1) * sizeof(*told));
	broker->extents_count--;
}

void broker_extents_forget_node(struct reef_broker *broker, uint32_t node)
{
	uint32_t from, to = 0;

	for (from = 0; from < broker->extents_count; from++)
		if (broker->extents[from].node != node)
			broker->extents[to++] = broker->extents[from];
	broker->extents_count = to;
}

void broker_extents_compact(struct reef_broker *broker)
{
	const struct reef_state_extent *extents;
	uint32_t from, to = 0;
	size_t count, i = 0;

	extents = reef_state_extents(broker->state, &count);
	for (from = 0; from < broker->extents_count; from++) {
		while (i < count &&
		       extents[i].number < broker->extents[from].number)
			i++;
		if (i < count &&
		    extents[i].number == broker->extents[from].number)
			broker->extents[to++] = broker->extents[from];
	}
	broker->extents_count = to;
}

/* --- placement --- */

/* True if a node has come at any time. */
static bool has_nodes(const struct reef_broker *broker)
{
	const struct reef_state_node *nodes;
	size_t count, i;

	nodes = reef_state_nodes(broker->state, &count);
	for (i = 0; i < count && !nodes[i].incarnation; i++)
		;
	return i < count;
}

/* Choose a node for an extent; if it must have a second copy at once, one that
 * has another node beside it. 0: none. */
static uint32_t choose_nodes(struct reef_broker *broker,
			     const struct broker_adding *adding, bool *soon)
{
	struct broker_place place = {.size = adding->size,
				     .avoid = &adding->avoid};
	uint32_t node = broker_choose_node(broker, &place, soon);

	place.beside = node;
	if (node && adding->is_strict &&
	    !broker_choose_node(broker, &place, soon))
		return 0;
	return node;
}

bool broker_may_have_room(struct reef_broker *broker,
			  const struct broker_adding *adding)
{
	bool soon;

	return choose_nodes(broker, adding, &soon) || !soon;
}

/* Choose a node as broker_choose_node does.  REEF_LATER: one may have room
 * soon, and is waited for as (3) says. */
static int choose_node_or_wait(struct reef_broker *broker,
			       struct broker_adding *adding, uint32_t *node)
{
	uint64_t now_ns = reef_now_ns();
	bool soon;

	*node = choose_nodes(broker, adding, &soon);
	if (*node) {
		adding->until_ns = 0;
		return 0;
	}
	if (!adding->until_ns)
		adding->until_ns = now_ns + broker_node_ttl(broker);
	if (soon && now_ns < adding->until_ns)
		return REEF_LATER;
	return has_nodes(broker) ? -ENOSPC : -EAGAIN;
}

/* --- making --- */

int broker_extent_note_made(struct reef_broker *broker, uint32_t number)
{
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_MADE,
		.id = number,
	};

	if (reef_state_extent(broker->state, number)->made)
		return 0;
	return broker_commit(broker, &record, NULL, NULL);
}

int broker_extent_create(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct reef_body body = {0};
	struct reef_ask_extent_create *ask = &body.ask.extent_create;
	struct reef_answer answer = {0};
	uint32_t node;
	int rc;

	if (!extent)
		return -ENOENT;
	node = extent->node;
	ask->extent = extent->label;
	ask->space = extent->space;
	ask->epoch = extent->epoch;
	ask->size = extent->size;
	ask->copy = extent->copy;
	rc = broker_node_call_early(broker, node, REEF_POOL_EXTENT_CREATE,
				    &body, &answer);
	if (rc)
		return rc;
	extent = reef_state_extent(broker->state, number);
	if (extent && extent->node == node && extent->copy == ask->copy &&
	    extent->epoch == ask->epoch) {
		rc = broker_extent_note_made(broker, number);
		if (rc == 0)
			rc = broker_extent_set_keys(broker, number,
						    &answer.body.reply.extent);
	} else {
		broker_drop_later(broker, node, ask->extent, ask->size);
	}
	reef_answer_free(&answer);
	broker_wake(broker);
	return rc;
}

void broker_drop_extent(struct reef_broker *broker,
			const struct reef_state_extent *was)
{
	if (was->node)
		broker_drop_later(broker, was->node, was->label, was->size);
	if (was->target)
		broker_drop_later(broker, was->target, was->label, was->size);
}

int broker_extent_discard(struct reef_broker *broker, uint32_t number,
			  const struct reef_request *request)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_REMOVE,
		.id = number,
	};
	struct reef_state_extent was, twin = {0};
	int rc;

	if (!extent)
		return -ENOENT;
	was = *extent;
	if (was.twin)
		twin = *reef_state_extent(broker->state, was.twin);
	rc = broker_commit(broker, &record, request, NULL);
	if (rc)
		return rc;
	broker_extent_forget(broker, number);
	if (twin.number)
		broker_extent_forget(broker, twin.number);
	rc = broker_wait_durable(broker, broker->applied);
	if (rc)
		return rc;
	broker_notice_space(broker, was.space);
	broker_recovery_retry(broker, was.space);
	broker_drop_extent(broker, &was);
	broker_drop_extent(broker, &twin);
	broker_memory_came(broker); /* to the quota */
	return 0;
}

static int journal_new_extent(struct reef_broker *broker, uint32_t space,
			      uint64_t size, uint32_t node,
			      const struct reef_request *request,
			      uint32_t *number)
{
	struct reef_state_summary summary;
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_PLACE,
		.space = space,
		.node = node,
		.size = size,
	};
	int rc;

	rc = reef_state_pick_ordinal(broker->state, space, size,
				     &record.ordinal);
	if (rc)
		return rc;
	reef_state_summary(broker->state, &summary);
	record.id = *number = summary.next_extent;
	record.value = summary.next_copy;
	return broker_commit_wait(broker, &record, request);
}

/* True if an extent's keys are known: whoever has the space open may have been
 * told of it. */
static bool is_made(struct reef_broker *broker, uint32_t number)
{
	const struct broker_extent *told = broker_extent_find(broker, number);

	return reef_state_extent(broker->state, number) && told &&
	       told->present;
}

/* Remove an extent that its node did not make; tried until it works. 1: the
 * node has made it after all, but its answer was lost, and it has told so since
 * then.  -ENOENT: it went with its space meanwhile. */
static int give_up_extent(struct reef_broker *broker, uint32_t number)
{
	uint64_t pause_ns = 0;
	int rc, slept;

	do {
		if (is_made(broker, number))
			return 1;
		rc = broker_extent_discard(broker, number, NULL);
		if (rc != -EAGAIN && rc != -ENOMEM)
			return rc;
		slept = broker_sleep_longer(broker, &pause_ns);
	} while (slept == 0);
	return slept;
}

/* Have an extent that lacks its second copy given one when there is room. */
static void look_after(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);

	if (!extent->twin &&
	    reef_state_space(broker->state, extent->space)->copies > 1)
		broker_care_for(broker, extent->space);
}

/* Add an extent at one node after the other, until one makes it. request: the
 * first record settles it; NULL: it is settled already. */
static int add_extent(struct reef_broker *broker, uint32_t space,
		      const struct reef_request *request,
		      struct broker_adding *adding, uint32_t *number)
{
	uint32_t node;
	bool asked;
	int rc, unmade;

	for (;;) {
		rc = choose_node_or_wait(broker, adding, &node);
		if (rc == 0)
			rc = journal_new_extent(broker, space, adding->size,
						node, request, number);
		if (rc)
			return rc;
		request = NULL;
		rc = broker_twin_add(broker, *number);
		if (rc == -EDQUOT || (rc && adding->is_strict)) {
			unmade = give_up_extent(broker, *number);
			return unmade ? (unmade > 0 ? 0 : unmade) : rc;
		}
		rc = broker_extent_create(broker, *number);
		if (rc == 0 && reef_state_extent(broker->state, *number)) {
			look_after(broker, *number);
			return 0;
		}
		if (rc == -ECANCELED || rc == -REEF_EHOSTDEAD)
			return rc;
		/* A link that fell before the node was asked says nothing about
		 * its room: it is waited for, a few times. */
		asked = rc != -REEF_ENOLINK || adding->fallen++ >= FALLEN_MAX;
		rc = give_up_extent(broker, *number);
		if (rc)
			return rc > 0 ? 0 : rc;
		if (asked)
			broker_avoid_add(&adding->avoid, node);
	}
}

/* Wait until an extent that a repeated request's first try added is there.
 * -ENOENT: it is gone, or was lost before anybody was told, or its node is
 * AWAY: nobody knows for how long. */
static int await_extent(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *extent;
	const struct broker_extent *told;
	int rc;

	while ((extent = reef_state_extent(broker->state, number)) &&
	       !reef_extent_is_lost(extent->state)) {
		told = broker_extent_find(broker, number);
		if (told && told->present)
			return 0;
		if (reef_node_is_gone(
			    reef_state_node(broker->state, extent->node)
				    ->state))
			return -ENOENT;
		rc = broker_sleep(broker, broker_node_ttl(broker));
		if (rc)
			return rc;
	}
	return -ENOENT;
}

static int check_size(struct reef_broker *broker, uint32_t space, uint64_t size)
{
	const struct reef_state_space *in =
		reef_state_space(broker->state, space);

	if (size > REEF_EXTENT_SIZE_MAX || size % REEF_EXTENT_ALIGN)
		return -EINVAL;
	return reef_state_check_room(broker->state, in, size * in->copies);
}

/* The size of an extent that was asked for without one. A space whose quota has
 * room for less gets a smaller one, down to REEF_EXTENT_SIZE_LEAST. */
static uint64_t choose_size(struct reef_broker *broker, uint32_t space)
{
	const struct reef_state_space *in =
		reef_state_space(broker->state, space);
	uint64_t usual =
		reef_state_setting(broker->state, REEF_SETTING_EXTENT_SIZE);
	uint64_t room =
		(in->quota - in->used) / in->copies / EXTENT_STEP * EXTENT_STEP;

	return room < usual && room >= REEF_EXTENT_SIZE_LEAST ? room : usual;
}

/* Find the latest extent of a space among those that the asker does not know,
 * and wait until it is there.  -ENOENT: none, or it is too small. */
static int find_newer_extent(struct reef_broker *broker, uint32_t id,
			     uint64_t size, uint32_t since, uint32_t *number)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, id);
	const struct reef_state_extent *extent = NULL;
	uint32_t i;

	if (!since)
		return -ENOENT;
	/* Later extents have higher ordinals, while there are any left. */
	for (i = space->ordinals; i > 0 && !extent; i--)
		extent = reef_state_extent(broker->state,
					   space->by_ordinal[i - 1]);
	if (!extent || extent->number < since || extent->size < size ||
	    extent->state != REEF_EXTENT_LIVE)
		return -ENOENT;
	*number = extent->number;
	return await_extent(broker, *number);
}

/* The extent of a request: that of its first try, or a new one.  -EALREADY:
 * another try of it came first, while this one waited for room. */
static int find_or_add_extent(struct reef_broker *broker,
			      const struct reef_request *request,
			      struct broker_adding *adding, uint32_t *number)
{
	uint32_t space = request->body.ask.extent_add.space;
	const struct reef_request *settles = request;
	uint64_t size = request->body.ask.extent_add.size, result;
	int rc;

	rc = broker_find_repeated(broker, request, REEF_RECORD_EXTENT_ADD,
				  &result);
	if (rc < 0)
		return rc;
	if (rc > 0) {
		settles = NULL;
		*number = (uint32_t)result;
		rc = await_extent(broker, *number);
		if (rc != -ENOENT)
			return rc;
	}
	rc = broker_check_rights(broker, request, space, REEF_RIGHT_WRITE);
	if (rc)
		return rc;
	if (size == 0)
		size = choose_size(broker, space);
	rc = find_newer_extent(broker, space, size,
			       request->body.ask.extent_add.since, number);
	if (rc != -ENOENT)
		return rc;
	/* It may have waited, and the space be gone. */
	rc = broker_check_rights(broker, request, space, REEF_RIGHT_WRITE);
	if (rc == 0)
		rc = check_size(broker, space, size);
	adding->size = size;
	if (rc == 0)
		adding->is_strict =
			reef_state_space(broker->state, space)->strict &&
			reef_state_space(broker->state, space)->copies > 1;
	return rc ? rc : add_extent(broker, space, settles, adding, number);
}

int broker_extent_try_add(struct reef_broker *broker,
			  const struct reef_request *request,
			  struct broker_adding *adding,
			  struct reef_body *answer,
			  struct reef_cursor_out *room)
{
	const struct reef_state_extent *extent;
	uint32_t number;
	int rc = broker_check_rights(broker, request,
				     request->body.ask.extent_add.space,
				     REEF_RIGHT_WRITE);

	if (rc)
		return rc;
	if (broker_space_is_saving(broker, request->body.ask.extent_add.space))
		return -REEF_EINDOUBT; /* save.c (3) */
	rc = find_or_add_extent(broker, request, adding, &number);
	if (rc == -EALREADY)
		rc = find_or_add_extent(broker, request, adding, &number);
	if (rc == -ENOSPC || rc == -EDQUOT) {
		broker->shorts++;
		broker_publish_reclaim(broker);
	}
	if (rc)
		return rc;
	extent = reef_state_extent(broker->state, number);
	if (!extent)
		return -ENOENT;
	broker_notice_space(broker, extent->space);
	/* The session may have ended while its node made the extent. */
	broker_extent_rows(broker, broker_session_of(request), extent, room);
	broker_rows_finish(answer, room);
	return 0;
}

/* --- removing --- */

BROKER_REQUEST(broker_extent_remove)
{
	uint32_t number = request->body.ask.extent_remove.extent;
	uint32_t space = request->body.ask.extent_remove.space;
	const struct reef_state_extent *extent;
	uint64_t result;
	int rc;

	rc = broker_find_repeated(broker, request, REEF_RECORD_EXTENT_REMOVE,
				  &result);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = broker_check_rights(broker, request, space, REEF_RIGHT_WRITE);
	if (rc)
		return rc;
	extent = reef_state_extent(broker->state, number);
	if (!extent || extent->space != space || extent->is_twin)
		return -ENOENT;
	if (broker_space_is_saving(broker, space))
		return -REEF_EINDOUBT; /* save.c (3) */
	return broker_extent_discard(broker, number, request);
}

int broker_extent_lose(struct reef_broker *broker, uint32_t number,
		       const char *why)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_LOST,
		.id = number,
	};
	struct broker_given_up given_up;
	struct reef_state_extent was;
	int rc;

	if (!extent)
		return -ENOENT;
	if (extent->is_twin && !extent->twin)
		return broker_extent_discard(broker, number, NULL);
	was = *extent;
	given_up.copy = was;
	if (was.twin)
		given_up.other = *reef_state_extent(broker->state, was.twin);
	record.era = was.epoch + 1;
	rc = broker_commit(broker, &record, NULL, NULL);
	if (rc)
		return rc;
	if (was.twin) {
		broker_copy_given_up(broker, &given_up);
		broker_care_for(broker, was.space);
	} else {
		broker_extent_forget(broker, number);
	}
	if (!was.twin)
		broker->counts[REEF_BROKER_LOST]++;
	broker_event(broker, "%s %u of space %u is lost: %s",
		     was.twin ? "a copy of extent" : "extent",
		     was.is_twin ? was.twin : number, was.space, why);
	rc = broker_wait_durable(broker, broker->applied);
	if (rc)
		return rc;
	broker_notice_space(broker, was.space);
	broker_recovery_retry(broker, was.space);
	broker_drop_extent(broker, &was);
	broker_wake(broker);
	return 0;
}
