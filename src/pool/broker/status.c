/* status.c - what there is, for operators: lists, status, events.
 *
 * (1) A list comes in pages, in the order of the numbers; MORE: ask again,
 *     after the last one's. What was there all the time is in it once.
 * (2) Whoever is not the pool's owner sees nodes, settings, the spaces they may
 *     open, and their own sessions and user.
 * (3) The last BROKER_EVENTS events of this start are kept.
 * (4) A session holds memory back if it is behind the reclaim epoch for longer
 *     than an honest one may be: half a lease, as an epoch is announced with
 *     the second renewal after it rose. How many bytes wait for that is what
 *     sessions say of themselves, and no more than nodes have lent. */
#include "pool/broker/lending.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define STATUS_EVENTS 64 /* the newest, in an answer to STATUS */

/* --- events --- */

void broker_event(struct reef_broker *broker, const char *format, ...)
{
	struct broker_event *event =
		&broker->events[broker->events_count % BROKER_EVENTS];
	va_list list;

	va_start(list, format);
	vsnprintf(event->text, sizeof(event->text), format, list);
	va_end(list);
	event->number = ++broker->events_count;
	event->at_ns = reef_now_ns();
	reef_log(REEF_LOG_INFO, "broker", "%s", event->text);
}

static void encode_event(const struct broker_event *event,
			 struct reef_cursor_out *room)
{
	struct reef_row row = {
		.row = REEF_ROW_EVENT,
		.event = {event->number, reef_now_ns() - event->at_ns,
			  reef_text_of(event->text)},
	};

	reef_row_encode(&row, room);
}

/* --- rows --- */

void broker_rows_finish(struct reef_body *answer,
			const struct reef_cursor_out *room)
{
	answer->rows = room->bytes;
	answer->rows_size = room->size;
}

/* Put the keys into a row that go with these rights: who may write needs those
 * by which everything can be done, who may read those by which that is all that
 * can be done, whatever its library does. Who may neither has none. */
static void put_keys(struct reef_row_extent *row,
		     const struct reef_extent_keys *keys, uint8_t rights)
{
	if (rights & REEF_RIGHT_WRITE)
		memcpy(row->keys, keys->keys, sizeof(row->keys));
	else if (rights & REEF_RIGHT_READ)
		memcpy(row->keys, keys->read_keys, sizeof(row->keys));
}

void broker_extent_row(struct reef_broker *broker,
		       struct broker_session *session,
		       const struct reef_state_extent *extent,
		       struct reef_cursor_out *room)
{
	struct broker_extent *told = broker_extent_find(broker, extent->number);
	struct reef_row row = {
		.row = REEF_ROW_EXTENT,
		.extent =
			{
				.number = extent->number,
				.ordinal = extent->ordinal,
				.space = extent->space,
				.node = extent->node,
				.epoch = extent->epoch,
				.state = extent->state,
				.size = extent->size,
				.copy = extent->copy,
				.twin = extent->twin,
				.is_twin = extent->is_twin,
			},
	};

	if (session && extent->state == REEF_EXTENT_FAILING)
		row.extent.state = REEF_EXTENT_MOVING;
	if (extent->state == REEF_EXTENT_FORGOTTEN)
		row.extent.state = REEF_EXTENT_LOST;
	/* An extent that is still closed after its move was called off, or its
	 * target died, is shown as MOVING until it is open again. */
	if (told && told->closed && extent->state == REEF_EXTENT_LIVE)
		row.extent.state = REEF_EXTENT_MOVING;
	/* Who saves the space reads it while it is closed to others. */
	if (session && told && told->closed && told->saver == session->id) {
		row.extent.state = REEF_EXTENT_LIVE;
		broker_session_note_told(session, extent->node);
		memcpy(row.extent.keys, told->save_keys,
		       sizeof(row.extent.keys));
	} else if (session && told && told->present &&
		   row.extent.state == REEF_EXTENT_LIVE) {
		broker_session_note_told(session, extent->node);
		broker_user_note_told(broker, session->user, extent->space);
		put_keys(&row.extent, &told->keys,
			 broker_session_rights(broker, session, extent->space));
	}
	reef_row_encode(&row, room);
}

void broker_extent_rows(struct reef_broker *broker,
			struct broker_session *session,
			const struct reef_state_extent *extent,
			struct reef_cursor_out *room)
{
	const struct reef_state_node *node =
		reef_state_node(broker->state, extent->node);

	if (extent->twin && !extent->is_twin)
		broker_extent_rows(
			broker, session,
			reef_state_extent(broker->state, extent->twin), room);
	if (node)
		broker_node_row(broker, session, node, room);
	broker_extent_row(broker, session, extent, room);
}

/* Without memory for it nothing is told, and the session cannot connect. */
static void fill_secret(const struct reef_broker *broker,
			const struct broker_session *session,
			struct reef_row_node *row)
{
	struct reef_key node, link;

	if (reef_key_derive_node(broker->key, row->number, &node))
		return;
	if (!reef_key_derive_link(&node, session->id, &link)) {
		memcpy(row->secret, link.bytes, sizeof(row->secret));
		reef_key_wipe(&link);
	}
	reef_key_wipe(&node);
}

void broker_node_row(struct reef_broker *broker,
		     const struct broker_session *session,
		     const struct reef_state_node *node,
		     struct reef_cursor_out *room)
{
	const struct broker_node *live = broker_node_find(broker, node->id);
	struct reef_state_summary summary;
	struct reef_row row = {
		.row = REEF_ROW_NODE,
		.node =
			{
				.number = node->id,
				.state = node->state,
				.incarnation = node->incarnation,
				.capacity = node->capacity,
				.used = node->used,
				.extents = node->extents,
				.name = reef_text_of(node->name),
				.addresses = reef_text_of(node->addresses),
			},
	};

	reef_state_summary(broker->state, &summary);
	row.node.pool_epoch = summary.pool_epoch;
	if (live) {
		row.node.domain = live->domain;
		row.node.silent_ns = reef_now_ns() - live->heard_ns;
		row.node.is_away = !live->peer;
		row.node.machine_free = live->machine_free;
	}
	if (session)
		fill_secret(broker, session, &row.node);
	reef_row_encode(&row, room);
}

/* Bytes that sessions say they have waiting: (4). */
static uint64_t clamp_waiting(const struct reef_broker *broker, uint64_t bytes)
{
	const struct reef_state_node *nodes;
	uint64_t lent = 0;
	size_t count, i;

	nodes = reef_state_nodes(broker->state, &count);
	for (i = 0; i < count; i++)
		lent += nodes[i].used;
	return bytes < lent ? bytes : lent;
}

/* For how long the session has held memory back: (4). */
static uint64_t holding_ns(const struct broker_session *session)
{
	uint64_t behind_ns;

	if (!session->behind_ns || session->fenced)
		return 0;
	behind_ns = reef_now_ns() - session->behind_ns;
	return behind_ns > session->ttl_ns / 2 ? behind_ns : 0;
}

/* What is told of a session's counters. */
static void fill_counts(const struct reef_counters *counters,
			uint64_t out[REEF_TOLD_COUNT])
{
	uint64_t lookups = 0, all = 0;

	for (uint32_t i = 0; i < REEF_COUNTED_FABRICS; i++) {
		lookups += counters->operations[i][REEF_COUNTED_LOOKUP];
		for (uint32_t j = 0; j < REEF_COUNTED_KINDS; j++)
			all += counters->operations[i][j];
	}
	out[REEF_TOLD_OPERATIONS] = all;
	out[REEF_TOLD_BYTES] = reef_counted_read(counters) +
			       counters->bytes[REEF_COUNTED_WRITE];
	out[REEF_TOLD_RETRIES] = counters->retries;
	out[REEF_TOLD_DOUBTS] = counters->in_doubt;
	out[REEF_TOLD_HITS] = counters->hits + lookups;
	out[REEF_TOLD_MISSES] = counters->misses;
	out[REEF_TOLD_P99_NS] = broker_counters_p99(counters);
}

static void encode_session(struct reef_broker *broker,
			   const struct reef_state_session *session,
			   struct reef_cursor_out *room)
{
	const struct broker_session *live =
		broker_session_find(broker, session->id);
	struct reef_row row = {
		.row = REEF_ROW_SESSION,
		.session =
			{
				.id = session->id,
				.user = session->user,
				.state = session->state,
				.is_away = true,
			},
	};

	if (live) {
		row.session.pid = live->pid;
		row.session.program = reef_text_of(live->name);
		row.session.silent_ns = reef_now_ns() - live->renewed_ns;
		row.session.is_away = !live->peer || !live->peer->link;
		row.session.waiting = clamp_waiting(broker, live->waiting);
		row.session.holds_ns = holding_ns(live);
		fill_counts(&live->counters, row.session.counts);
		if (!row.session.is_away)
			row.session.fabric = reef_text_of(
				reef_fabric_description(reef_mesh_fabric(
					broker->options.mesh, live->fabric)));
	}
	reef_row_encode(&row, room);
}

/* The bytes of a space's extents that are lost with their node. */
static uint64_t count_lost(const struct reef_state *state,
			   const struct reef_state_space *space)
{
	const struct reef_state_extent *extent;
	uint64_t lost = 0;

	for (uint32_t i = 0; i < space->ordinals; i++) {
		extent = reef_state_extent(state, space->by_ordinal[i]);
		if (extent && extent->state == REEF_EXTENT_LOST)
			lost += extent->size;
	}
	return lost;
}

void reef_broker_lost(struct reef_broker *broker,
		      void (*each)(void *context, const char *space,
				   uint64_t bytes),
		      void *context)
{
	const struct reef_state_space *spaces;
	size_t count, i;
	uint64_t lost;

	spaces = reef_state_spaces(broker->state, &count);
	for (i = 0; i < count; i++) {
		lost = count_lost(broker->state, &spaces[i]);
		if (lost && spaces[i].name[0])
			each(context, spaces[i].name, lost);
	}
}

/* A space's extents that have fewer copies than are wanted. */
static uint32_t count_degraded(const struct reef_state *state,
			       const struct reef_state_space *space)
{
	const struct reef_state_extent *extent;
	uint32_t degraded = 0;

	for (uint32_t i = 0; space->copies > 1 && i < space->ordinals; i++) {
		extent = reef_state_extent(state, space->by_ordinal[i]);
		degraded += extent && !extent->twin &&
			    !reef_extent_is_lost(extent->state);
	}
	return degraded;
}

static void encode_space(const struct reef_state *state,
			 const struct reef_state_space *space,
			 struct reef_cursor_out *room)
{
	uint64_t lost = count_lost(state, space);
	struct reef_row row = {
		.row = REEF_ROW_SPACE,
		.space =
			{
				.number = space->id,
				.kind = space->kind,
				.keeping = space->keeping,
				.era = space->era,
				.session = space->session,
				.user = space->user,
				.extents = space->extents,
				.quota = space->quota == UINT64_MAX
						 ? 0
						 : space->quota,
				.used = space->used - lost,
				.lost = lost,
				.copies = space->copies,
				.degraded = count_degraded(state, space),
				.name = reef_text_of(space->name),
			},
	};

	reef_row_encode(&row, room);
}

static void encode_user(const struct reef_broker *broker,
			const struct reef_state_user *user,
			struct reef_cursor_out *room)
{
	struct reef_row row = {
		.row = REEF_ROW_USER,
		.user = {.number = user->id,
			 .era = user->era,
			 .name = reef_text_of(user->name)},
	};
	uint32_t i;

	for (i = 0; i < REEF_LIMIT_COUNT; i++) {
		row.user.uses[i] = user->uses[i];
		row.user.limits[i] =
			reef_state_limit(broker->state, user->id, i);
		if (user->limits[i])
			row.user.own |= 1u << i;
	}
	row.user.uses[REEF_LIMIT_LINKS] = broker_user_links(broker, user->id);
	reef_row_encode(&row, room);
}

static void encode_setting(const struct reef_broker *broker,
			   enum reef_setting setting,
			   struct reef_cursor_out *room)
{
	struct reef_row row = {
		.row = REEF_ROW_SETTING,
		.setting = {reef_state_setting(broker->state, setting),
			    reef_text_of(reef_setting_name(setting))},
	};

	reef_row_encode(&row, room);
}

/* --- lists --- */

/* A list under way: who asks, what it comes after, and how much fits. */
struct list {
	struct reef_broker *broker;
	const struct broker_session *session;
	uint32_t user, after;
	size_t max;
	struct reef_cursor_out *room;
};

static bool is_full(const struct list *list)
{
	return list->room->size >= list->max;
}

/* True if whoever asks may see the space. */
static bool may_see_space(const struct list *list, uint32_t space)
{
	return list->user == 0 ||
	       (list->session &&
		broker_session_rights(list->broker, list->session, space));
}

/* Each of these encodes the rows of a kind that fit. True: there are more. */
static bool list_extents(const struct list *list)
{
	const struct reef_state_extent *extents;
	size_t count, i;

	extents = reef_state_extents(list->broker->state, &count);
	for (i = 0; i < count; i++) {
		if (extents[i].number <= list->after ||
		    !may_see_space(list, extents[i].space))
			continue;
		if (is_full(list))
			return true;
		broker_extent_row(list->broker, NULL, &extents[i], list->room);
	}
	return false;
}

static bool list_nodes(const struct list *list)
{
	const struct reef_state_node *nodes;
	size_t count, i;

	nodes = reef_state_nodes(list->broker->state, &count);
	for (i = 0; i < count; i++) {
		if (nodes[i].id <= list->after)
			continue;
		if (is_full(list))
			return true;
		broker_node_row(list->broker, NULL, &nodes[i], list->room);
	}
	return false;
}

static bool list_sessions(const struct list *list)
{
	const struct reef_state_session *sessions;
	size_t count, i;

	sessions = reef_state_sessions(list->broker->state, &count);
	i = list->after ? (size_t)reef_session_slot(list->after) + 1 : 0;
	for (; i < count; i++) {
		if (sessions[i].id == 0 ||
		    sessions[i].state == REEF_SESSION_RECOVERED ||
		    (list->user != 0 && sessions[i].user != list->user))
			continue;
		if (is_full(list))
			return true;
		encode_session(list->broker, &sessions[i], list->room);
	}
	return false;
}

static bool list_spaces(const struct list *list)
{
	const struct reef_state_space *spaces;
	size_t count, i;

	spaces = reef_state_spaces(list->broker->state, &count);
	for (i = 0; i < count; i++) {
		if (spaces[i].id <= list->after ||
		    !(may_see_space(list, spaces[i].id) ||
		      spaces[i].user == list->user))
			continue;
		if (is_full(list))
			return true;
		encode_space(list->broker->state, &spaces[i], list->room);
	}
	return false;
}

static bool list_users(const struct list *list)
{
	const struct reef_state_user *users;
	size_t count, i;

	users = reef_state_users(list->broker->state, &count);
	for (i = 0; i < count; i++) {
		if (users[i].id <= list->after ||
		    (list->user != 0 && users[i].id != list->user))
			continue;
		if (is_full(list))
			return true;
		encode_user(list->broker, &users[i], list->room);
	}
	return false;
}

/* Settings are numbered from 1 on, in the order of their enum. */
static bool list_settings(const struct list *list)
{
	uint32_t i;

	for (i = list->after; i < REEF_SETTING_COUNT; i++) {
		if (is_full(list))
			return true;
		encode_setting(list->broker, i, list->room);
	}
	return false;
}

static bool list_events(const struct list *list)
{
	const struct reef_broker *broker = list->broker;
	uint64_t i = list->after;

	if (list->user != 0)
		return false;
	if (broker->events_count > BROKER_EVENTS &&
	    i < broker->events_count - BROKER_EVENTS)
		i = broker->events_count - BROKER_EVENTS;
	for (; i < broker->events_count; i++) {
		if (is_full(list))
			return true;
		encode_event(&broker->events[i % BROKER_EVENTS], list->room);
	}
	return false;
}

static bool (*const lists[REEF_ROW_KINDS])(const struct list *list) = {
	[REEF_ROW_EXTENT] = list_extents,   [REEF_ROW_NODE] = list_nodes,
	[REEF_ROW_SESSION] = list_sessions, [REEF_ROW_SPACE] = list_spaces,
	[REEF_ROW_USER] = list_users,	    [REEF_ROW_SETTING] = list_settings,
	[REEF_ROW_EVENT] = list_events,
};

static struct list list_of(struct reef_broker *broker,
			   const struct reef_request *request,
			   struct reef_cursor_out *room)
{
	const struct broker_member *member = broker_member_of(request->peer);

	return (struct list){
		.broker = broker,
		.session = broker_session_of(request),
		.user = member ? member->user : UINT32_MAX,
		.max = broker_rows_max(broker, request),
		.room = room,
	};
}

BROKER_REQUEST(broker_list)
{
	struct list list = list_of(broker, request, room);
	uint8_t kind = request->body.ask.list.row;

	if (kind >= REEF_ROW_KINDS || !lists[kind])
		return -EINVAL;
	list.after = request->body.ask.list.after;
	if (lists[kind](&list))
		answer->reply.list.flags = REEF_POOL_MORE;
	broker_rows_finish(answer, room);
	return 0;
}

static uint32_t count_stuck(const struct reef_broker *broker)
{
	const struct reef_state_use *use;
	uint32_t stuck = 0;
	size_t i, count;

	use = reef_state_uses(broker->state, &count);
	for (i = 0; i < count; i++)
		stuck += use[i].stuck;
	return stuck;
}

BROKER_REQUEST(broker_status)
{
	struct list list = list_of(broker, request, room);
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	answer->reply.status.pool = summary.pool;
	answer->reply.status.pool_epoch = summary.pool_epoch;
	answer->reply.status.broker_epoch = broker->epoch;
	answer->reply.status.uptime_ns = reef_now_ns() - broker->started_ns;
	answer->reply.status.events = (uint32_t)broker->events_count;
	answer->reply.status.stuck = count_stuck(broker);
	if (list.user == 0) {
		memcpy(answer->reply.status.counters, &broker->counters,
		       sizeof(broker->counters));
		memcpy(answer->reply.status.broker, broker->counts,
		       sizeof(broker->counts));
		answer->reply.status.broker[REEF_BROKER_SHORTS] =
			broker->shorts;
	}
	list.after = broker->events_count > STATUS_EVENTS
			     ? (uint32_t)broker->events_count - STATUS_EVENTS
			     : 0;
	/* Events tell of everybody, so only the pool's owner sees them. */
	if (list.user == 0)
		list_events(&list);
	broker_rows_finish(answer, room);
	return 0;
}

BROKER_REQUEST(broker_time)
{
	answer->reply.time.unix_ns = reef_wall_ns();
	return 0;
}
