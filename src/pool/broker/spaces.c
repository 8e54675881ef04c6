/* spaces.c - what memory belongs to, and who may reach it.
 *
 * (1) A space's owner, and the pool's owner (user 0), may do everything; others
 *     what the token allows that they opened it with. A token that is forged,
 *     of another space, or of an earlier era is -EACCES, like none. Keys are
 *     compared in constant time (keys.h).
 * (2) A scratch space is its session's alone, and ends with it.
 * (3) Revoking raises the era, durable: tokens of before open nothing any more,
 *     and what they had opened is closed here at once: no more extents, keys or
 *     names. Then every extent of the space gets new keys at its node
 *     (rekey.c), so that what holders of void tokens had attached ends too;
 *     only then is the revocation answered.
 * (4) A space that is dropped is gone from the state first, durable; then those
 *     who use it are told, then its nodes drop its memory.
 * (5) Memory that is LOST counts against the quota until its space's managers
 *     have it forgotten. Its extents stay known, so that an address in one is
 *     -REEF_ELOST for everybody, before and after.
 * (6) Rows come in pages that fit a message: after MORE, ask again from the
 *     ordinal after the last. The version tells whether the pages are of one
 *     moment. Each page has the rows of the nodes that its extents need. Who
 *     asks with a version is told what changed since (changes.c), if that
 *     fits one answer; else all pages, which say WHOLE.
 * (7) Whoever asks what changed is told which nodes are gone, of those that it
 *     was told of, whether or not its extents are still there: what has a copy
 *     goes on elsewhere, and a session that has something under way there must
 *     not wait until it notices the silence by itself. Nothing else tells a
 *     node that is gone from one that has no memory of a session any more. */
#include "pool/broker/lending.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>

/* --- who may --- */

int broker_check_rights(struct reef_broker *broker,
			const struct reef_request *request, uint32_t id,
			uint8_t rights)
{
	const struct broker_session *session = broker_session_of(request);
	const struct reef_state_space *space =
		reef_state_space(broker->state, id);

	if (!session)
		return -REEF_EFENCED;
	if (!space)
		return -ENOENT;
	if (space->kind == REEF_SPACE_SCRATCH &&
	    space->session != session->id && session->user != 0)
		return -EACCES;
	return (broker_session_rights(broker, session, id) & rights) == rights
		       ? 0
		       : -EACCES;
}

/* Find what the token in a request allows.  -EACCES: it is not valid here. */
static int check_token(const struct reef_broker *broker,
		       const struct reef_state_space *space,
		       const struct reef_ask_space_open *ask, uint8_t *rights)
{
	struct reef_token token = {
		.space = ask->space,
		.era = ask->era,
		.rights = ask->rights,
	};
	int rc;

	if (ask->rights == 0)
		return -EACCES;
	memcpy(token.key.bytes, ask->secret, sizeof(token.key.bytes));
	rc = reef_token_verify(&token, broker->key);
	reef_key_wipe(&token.key);
	if (rc == -ENOMEM)
		return rc;
	if (rc || token.space != space->id || token.era != space->era)
		return -EACCES;
	*rights = token.rights;
	return 0;
}

static int find_open_rights(struct reef_broker *broker,
			    const struct reef_request *request, uint32_t id,
			    uint8_t *rights)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, id);

	*rights = REEF_RIGHT_ALL;
	if (broker_check_rights(broker, request, id, REEF_RIGHT_ALL) == 0)
		return 0;
	if (space->kind == REEF_SPACE_SCRATCH)
		return -EACCES;
	return check_token(broker, space, &request->body.ask.space_open,
			   rights);
}

/* --- rows --- */

#define SEEN_MAX 64

/* Rows of a space on their way into an answer. */
struct rows {
	struct reef_broker *broker;
	struct broker_session *session;
	uint32_t seen[SEEN_MAX]; /* nodes that have a row, by number */
	size_t from, max;	 /* where rows of extents begin, and may end */
	struct reef_cursor_out *room;
};

static struct rows rows_of(struct reef_broker *broker,
			   const struct reef_request *request,
			   struct reef_cursor_out *room)
{
	return (struct rows){
		.broker = broker,
		.session = broker_session_of(request),
		.max = broker_rows_max(broker, request),
		.room = room,
	};
}

/* Encode rows of the nodes that are gone, of those that the session was told
 * of: (7). They may have half of an answer. */
static void encode_gone(struct rows *rows)
{
	const struct reef_state_node *nodes;
	size_t count, i;

	nodes = reef_state_nodes(rows->broker->state, &count);
	for (i = 0; i < count && rows->room->size < rows->max / 2; i++)
		if (reef_node_is_gone(nodes[i].state) &&
		    broker_session_was_told(rows->session, nodes[i].id) &&
		    !REEF_MUTATED(BROKER_GONE_UNTOLD))
			broker_node_row(rows->broker, rows->session, &nodes[i],
					rows->room);
	rows->from = rows->room->size;
}

/* Encode an extent's row, and that of its node if it is not there yet; of one
 * that has a twin, the twin's before. */
static void encode_extent(struct rows *rows,
			  const struct reef_state_extent *extent)
{
	struct reef_broker *broker = rows->broker;
	uint32_t at = extent->node % SEEN_MAX;

	if (extent->twin && !extent->is_twin)
		encode_extent(rows,
			      reef_state_extent(broker->state, extent->twin));
	/* A node that is told twice does no harm. */
	if (extent->node && rows->seen[at] != extent->node)
		broker_node_row(broker, rows->session,
				reef_state_node(broker->state, extent->node),
				rows->room);
	rows->seen[at] = extent->node;
	broker_extent_row(broker, rows->session, extent, rows->room);
}

/* Encode rows of a space's extents from an ordinal on. True: there are more. */
static bool encode_extents(struct rows *rows,
			   const struct reef_state_space *space, uint32_t from)
{
	uint32_t i;

	for (i = from; i < space->ordinals && rows->room->size < rows->max; i++)
		if (space->by_ordinal[i])
			encode_extent(rows,
				      reef_state_extent(rows->broker->state,
							space->by_ordinal[i]));
	while (i < space->ordinals && space->by_ordinal[i] == 0)
		i++;
	return i < space->ordinals;
}

/* Encode what changed in a space since a version. False: it is not known, or
 * takes more than one answer. */
static bool encode_changes(struct rows *rows, uint32_t space, uint64_t version)
{
	uint32_t numbers[BROKER_TOLD_MAX], count, i;
	const struct reef_state_extent *extent;
	struct reef_row removed = {
		.row = REEF_ROW_EXTENT,
		.extent = {.space = space,
			   .ordinal = REEF_ORDINALS_MAX,
			   .state = REEF_EXTENT_REMOVED},
	};

	if (broker_changes_since(rows->broker, space, version, numbers, &count))
		return false;
	for (i = 0; i < count && rows->room->size < rows->max; i++) {
		extent = reef_state_extent(rows->broker->state, numbers[i]);
		removed.extent.number = numbers[i];
		/* A twin that nobody names is nobody's. */
		if (extent && extent->is_twin && !extent->twin)
			continue;
		if (extent)
			encode_extent(rows, extent);
		else if (!REEF_MUTATED(BROKER_REMOVAL_UNTOLD))
			reef_row_encode(&removed, rows->room);
	}
	if (i < count) {
		rows->room->size = rows->from;
		memset(rows->seen, 0, sizeof(rows->seen));
	}
	return i == count;
}

BROKER_REQUEST(broker_space_extents)
{
	struct reef_reply_space_extents *reply = &answer->reply.space_extents;
	uint32_t id = request->body.ask.space_extents.space;
	uint32_t from = request->body.ask.space_extents.ordinal;
	uint64_t version = request->body.ask.space_extents.version;
	int rc = broker_check_rights(broker, request, id, 0);
	struct rows rows;

	if (rc == 0 &&
	    !broker_session_rights(broker, broker_session_of(request), id))
		rc = -EACCES;
	if (rc)
		return rc;
	if (from == UINT32_MAX)
		from = 0;
	rows = rows_of(broker, request, room);
	reply->version = broker_space_version(broker, id);
	if (from == 0)
		encode_gone(&rows);
	if (from == 0 && version == reply->version) {
		reply->flags = REEF_POOL_UNCHANGED;
		broker_rows_finish(answer, room);
		return 0;
	}
	if (from || !encode_changes(&rows, id, version)) {
		reply->flags = REEF_POOL_WHOLE;
		if (encode_extents(&rows, reef_state_space(broker->state, id),
				   from))
			reply->flags |= REEF_POOL_MORE;
	}
	broker_rows_finish(answer, room);
	return 0;
}

/* --- open and close --- */

/* True for names that programs of ours take without being told which: who comes
 * first must not have them, and read what others put there. */
static bool is_reserved(const struct reef_broker *broker, struct reef_text name)
{
	const char *more = broker->options.reserved;
	size_t size;

	if (reef_text_is(name, "redis") || reef_text_is(name, "sync"))
		return true;
	for (; more && *(more += strspn(more, " ")); more += size) {
		size = strcspn(more, " ");
		if (size == name.size && memcmp(more, name.bytes, size) == 0)
			return true;
	}
	return false;
}

/* Nodes that memory may come to. */
static uint64_t count_nodes(const struct reef_broker *broker)
{
	const struct reef_state_node *nodes;
	uint64_t found = 0;
	size_t count, i;

	nodes = reef_state_nodes(broker->state, &count);
	for (i = 0; i < count; i++)
		found += nodes[i].state == REEF_NODE_OK;
	return found;
}

static int create_space(struct reef_broker *broker,
			const struct reef_request *request, uint32_t *id)
{
	const struct broker_session *session = broker_session_of(request);
	const struct reef_ask_space_open *ask = &request->body.ask.space_open;
	struct reef_state_summary summary;
	struct reef_record record = {
		.type = REEF_RECORD_SPACE_MAKE,
		.kind = ask->kind,
		.keeping = ask->keeping,
		.value = ask->copies ? ask->copies : 1,
		.state = ask->flags & REEF_POOL_STRICT ? 1 : 0,
		.size = ask->quota ? ask->quota : UINT64_MAX,
		.user = session->user,
		.name = ask->name,
	};

	if (session->user && is_reserved(broker, ask->name))
		return -EPERM;
	if (!record.kind)
		record.kind =
			ask->name.size ? REEF_SPACE_SHARED : REEF_SPACE_SCRATCH;
	if (!record.keeping)
		record.keeping = REEF_KEEPING_KEPT;
	if (record.kind == REEF_SPACE_SCRATCH)
		record.session = session->id;
	if (record.value <= REEF_COPIES_MAX && record.state &&
	    count_nodes(broker) < record.value)
		return -ENOSPC;
	reef_state_summary(broker->state, &summary);
	record.id = *id = summary.next_space;
	return broker_commit_wait(broker, &record, request);
}

/* Find the space that is asked for, or make it. */
static int find_or_create_space(struct reef_broker *broker,
				const struct reef_request *request,
				uint32_t *id)
{
	const struct reef_ask_space_open *ask = &request->body.ask.space_open;
	uint64_t made;
	int rc = broker_find_repeated(broker, request, REEF_RECORD_SPACE_ADD,
				      &made);

	if (rc < 0)
		return rc;
	if (rc > 0) {
		*id = (uint32_t)made;
		return reef_state_space(broker->state, *id) ? 0 : -ENOENT;
	}
	if (ask->name.size >
	    reef_state_setting(broker->state, REEF_SETTING_NAME_SIZE_MAX))
		return -ENAMETOOLONG;
	/* Sessions that had it open before this start open it by number. */
	if (ask->name.size == 0 && ask->space) {
		*id = ask->space;
		return reef_state_space(broker->state, *id) ? 0 : -ENOENT;
	}
	if (ask->name.size == 0)
		return create_space(broker, request, id);
	*id = reef_state_find_space(broker->state, ask->name);
	if (*id)
		return ask->flags & REEF_POOL_EXCLUSIVE ? -EEXIST : 0;
	return ask->flags & REEF_POOL_CREATE ? create_space(broker, request, id)
					     : -ENOENT;
}

BROKER_REQUEST(broker_space_open)
{
	struct reef_reply_space_open *reply = &answer->reply.space_open;
	const struct reef_state_space *space;
	struct broker_session *session;
	struct rows rows;
	uint8_t rights;
	uint32_t id;
	int rc = find_or_create_space(broker, request, &id);

	if (rc)
		return rc;
	session = broker_session_of(request);
	space = reef_state_space(broker->state, id);
	if (!session || !space)
		return session ? -ENOENT : -REEF_EFENCED;
	rc = find_open_rights(broker, request, id, &rights);
	if (rc == 0)
		rc = broker_grant(broker, session, id, rights);
	if (rc)
		return rc;
	broker_helper_came(broker, id);
	space = reef_state_space(broker->state, id);
	if (!space)
		return -ENOENT;
	reply->space = id;
	reply->rights = rights;
	reply->kind = space->kind;
	reply->keeping = space->keeping;
	reply->user = space->user;
	reply->copies = space->copies;
	reply->extent_size =
		reef_state_setting(broker->state, REEF_SETTING_EXTENT_SIZE);
	reply->version = broker_space_version(broker, id);
	rows = rows_of(broker, request, room);
	if (encode_extents(&rows, space, 0))
		reply->flags = REEF_POOL_MORE;
	broker_rows_finish(answer, room);
	return 0;
}

BROKER_REQUEST(broker_space_close)
{
	uint32_t id = request->body.ask.space_close.space;
	struct broker_session *session = broker_session_of(request);
	const struct reef_state_space *space =
		reef_state_space(broker->state, id);
	struct reef_record record = {
		.type = REEF_RECORD_USE_END,
		.space = id,
	};
	int rc = 0;

	if (!session)
		return -REEF_EFENCED;
	record.session = session->id;
	broker_ungrant(session, id);
	if (broker->awaited) /* perhaps for that */
		broker_wake(broker);
	/* In a space without memory the session has left nothing behind. */
	if (space && space->extents == 0)
		rc = broker_commit(broker, &record, NULL, NULL);
	return rc == -ENOENT ? 0 : rc;
}

/* --- drop --- */

/* Copy a space's extents; the caller frees them. */
static int copy_extents_of(const struct reef_broker *broker, uint32_t id,
			   struct reef_state_extent **out, uint32_t *found)
{
	const struct reef_state_extent *all;
	struct reef_state_extent *extents;
	uint32_t n = 0;
	size_t count, i;

	all = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++)
		n += all[i].space == id;
	extents = malloc(((size_t)n + 1) * sizeof(*extents));
	if (!extents)
		return -ENOMEM;
	for (i = n = 0; i < count; i++)
		if (all[i].space == id)
			extents[n++] = all[i];
	*out = extents;
	*found = n;
	return 0;
}

int broker_space_remove(struct reef_broker *broker, uint32_t id,
			const struct reef_request *request)
{
	struct reef_record record = {
		.type = REEF_RECORD_SPACE_REMOVE,
		.id = id,
	};
	struct reef_state_extent *extents;
	uint64_t sequence;
	uint32_t count, i;
	int rc;

	if (!reef_state_space(broker->state, id))
		return -ENOENT;
	rc = copy_extents_of(broker, id, &extents, &count);
	if (rc)
		return rc;
	rc = broker_commit(broker, &record, request, &sequence);
	if (rc == 0) {
		broker_extents_compact(broker);
		rc = broker_wait_durable(broker, sequence);
	}
	if (rc == 0)
		broker_notice_space(broker, id);
	for (i = 0; rc == 0 && i < count; i++)
		broker_drop_extent(broker, &extents[i]);
	free(extents);
	return rc;
}

/* --- what its owners decide --- */

/* As broker_find_repeated; a request that is new is checked for the right to
 * manage the space. */
static int check_manager(struct reef_broker *broker,
			 const struct reef_request *request, uint32_t space,
			 uint16_t type, uint64_t *result)
{
	int rc = broker_find_repeated(broker, request, type, result);

	return rc ? rc
		  : broker_check_rights(broker, request, space,
					REEF_RIGHT_MANAGE);
}

BROKER_REQUEST(broker_space_drop)
{
	uint32_t space = request->body.ask.space_drop.space;
	uint64_t result;
	int rc = check_manager(broker, request, space, REEF_RECORD_SPACE_REMOVE,
			       &result);

	if (rc)
		return rc < 0 ? rc : 0;
	return broker_space_remove(broker, space, request);
}

/* Journal what changes how much of a space counts, or may. */
static int change_room(struct reef_broker *broker,
		       const struct reef_request *request,
		       struct reef_record *record)
{
	uint64_t result;
	int rc = check_manager(broker, request, record->id, record->type,
			       &result);

	if (rc)
		return rc < 0 ? rc : 0;
	rc = broker_commit_wait(broker, record, request);
	broker_memory_came(broker);
	return rc;
}

BROKER_REQUEST(broker_space_quota)
{
	uint64_t quota = request->body.ask.space_quota.quota;
	struct reef_record record = {
		.type = REEF_RECORD_SPACE_QUOTA,
		.id = request->body.ask.space_quota.space,
		.size = quota ? quota : UINT64_MAX,
	};

	return change_room(broker, request, &record);
}

BROKER_REQUEST(broker_space_forget)
{
	struct reef_record record = {
		.type = REEF_RECORD_SPACE_FORGET,
		.id = request->body.ask.space_forget.space,
	};

	return change_room(broker, request, &record);
}

BROKER_REQUEST(broker_space_revoke)
{
	struct reef_record record = {
		.type = REEF_RECORD_SPACE_ERA,
		.id = request->body.ask.space_revoke.space,
	};
	uint64_t result = 0;
	int rc =
		check_manager(broker, request, record.id, record.type, &result);

	if (rc < 0)
		return rc;
	if (rc > 0) {
		answer->reply.space_revoke.era = (uint32_t)result;
		return broker_space_rekey(broker, request, record.id,
					  (uint32_t)result);
	}
	record.era = reef_state_space(broker->state, record.id)->era + 1;
	rc = broker_commit(broker, &record, request, NULL);
	if (rc)
		return rc;
	/* Sessions that are out from now on get the notice, too, and learn so
	 * when they ask. */
	broker_notice_space(broker, record.id);
	broker_ungrant_all(broker, record.id);
	broker_event(broker, "space %u: era %u, earlier tokens are void",
		     record.id, record.era);
	answer->reply.space_revoke.era = record.era;
	rc = broker_wait_durable(broker, broker->applied);
	return rc ? rc
		  : broker_space_rekey(broker, request, record.id, record.era);
}

BROKER_REQUEST(broker_space_token)
{
	uint32_t id = request->body.ask.space_token.space, era;
	uint8_t rights = request->body.ask.space_token.rights;
	struct reef_key key;
	int rc;

	/* Nobody gives away more than they have. */
	rc = broker_check_rights(broker, request, id,
				 REEF_RIGHT_MANAGE | rights);
	if (rc)
		return rc;
	era = reef_state_space(broker->state, id)->era;
	rc = reef_key_derive_space(broker->key, id, rights, era, &key);
	if (rc)
		return rc;
	answer->reply.space_token.space = id;
	answer->reply.space_token.era = era;
	answer->reply.space_token.rights = rights;
	memcpy(answer->reply.space_token.secret, key.bytes, sizeof(key.bytes));
	reef_key_wipe(&key);
	return 0;
}
