/* restore.c - a space as an image has it.
 *
 *   SPACE_OPEN: scratch --> NUMBERS --> EXTENT, each of them --> (the session
 *     that restores writes the bytes) --> SESSION, each of them --> names are
 *     bound --> NAME: shared
 *
 * (1) Until it has its name the space is a scratch space of the session that
 *     restores: nobody else sees it, and if that session dies, or changes its
 *     mind, it goes like any other. The record of NAME is the one moment in
 *     which it appears, whole.
 * (2) Extents keep their numbers and ordinals, because words in them hold
 *     addresses. A number that is in use is -EEXIST. Their epoch is higher than
 *     any that an extent of this pool has had: each rise was a record of the
 *     journal, whose sequence it is taken from. So whoever remembers the number
 *     from before sees that this is another one.
 * (3) Names get new generations, above those of the image, so that terms and
 *     eras go on from there.
 * (4) The sessions that used the space when it was saved hold chunks and locks
 *     in it. They have ended, and have to look so: who is alive, or may yet be
 *     given that id, is -EBUSY (state/members.c). What they left is STUCK at
 *     first, and recovered as soon as the space has its name. A janitor may
 *     be alive: it holds no locks, and what chunks it had are recovered when
 *     it ends, as it uses the space from now on.
 * (5) All this moves counters of the pool, so it is for the owner alone. */
#include "pool/broker/lending.h"

#include <errno.h>
#include <reef/error.h>

/* Commit a record of a request. 1: it repeats one that is done; *result is what
 * came of that. */
static int commit_once(struct reef_broker *broker,
		       const struct reef_request *request,
		       struct reef_record *record)
{
	uint64_t result;
	int rc = broker_find_repeated(broker, request, record->type, &result);

	return rc ? rc : broker_commit_wait(broker, record, request);
}

static int raise_numbers(struct reef_broker *broker,
			 const struct reef_request *request)
{
	struct reef_record record = {
		.type = REEF_RECORD_NUMBERS,
		.generation = request->body.ask.space_restore.generation,
	};

	/* A generation has 64 bits, of which some words keep only the lower
	 * ones: no image of ours is near the end. */
	if (record.generation >> 56)
		return -EINVAL;
	return commit_once(broker, request, &record);
}

/* Have the node make an extent that the state has, with its second copy; else
 * it goes again. */
static int make_extent(struct reef_broker *broker, uint32_t number)
{
	int rc = broker_twin_add(broker, number), undone;

	if (rc == 0 || rc == -ENOSPC)
		rc = broker_extent_create(broker, number);
	if (rc == 0)
		return reef_state_extent(broker->state, number) ? 0 : -ENOENT;
	if (!reef_state_extent(broker->state, number) || rc == -ECANCELED ||
	    rc == -REEF_EHOSTDEAD)
		return rc;
	undone = broker_extent_discard(broker, number, NULL);
	return undone ? undone : rc;
}

/* True if a node has still something to drop. */
static bool is_dropping(const struct reef_broker *broker)
{
	const struct broker_node *node = broker->nodes;

	while (node && !node->drops_count)
		node = node->next;
	return node != NULL;
}

static int restore_extent(struct reef_broker *broker,
			  const struct reef_request *request,
			  struct reef_cursor_out *room)
{
	const struct reef_ask_space_restore *ask =
		&request->body.ask.space_restore;
	uint64_t epoch = broker->applied + 1; /* (2) */
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_RESTORE,
		.id = ask->extent,
		.space = ask->space,
		.ordinal = ask->ordinal,
		.size = ask->size,
	};
	const struct broker_place place = {.size = ask->size,
					   .label = ask->extent};
	const struct reef_state_extent *extent;
	int rc;

	if (epoch <= ask->epoch)
		epoch = (uint64_t)ask->epoch + 1;
	if (epoch >= UINT32_MAX)
		return -EOVERFLOW;
	record.era = (uint32_t)epoch;
	record.node = broker_choose_node(broker, &place, NULL);
	/* What was dropped just before goes at its node, and then there is
	 * room: who asks is told to ask again. */
	if (!record.node)
		return is_dropping(broker) ? -REEF_EINDOUBT : -ENOSPC;
	rc = commit_once(broker, request, &record);
	/* The first try of a repeated request may not have come so far. */
	if (rc >= 0)
		rc = make_extent(broker, ask->extent);
	if (rc)
		return rc;
	extent = reef_state_extent(broker->state, ask->extent);
	if (!extent || extent->space != ask->space || !extent->node)
		return -ENOENT;
	broker_extent_rows(broker, broker_session_of(request), extent, room);
	return 0;
}

static int restore_session(struct reef_broker *broker,
			   const struct reef_request *request)
{
	struct reef_record record = {
		.type = REEF_RECORD_SESSION_PAST,
		.session = request->body.ask.space_restore.session,
		.space = request->body.ask.space_restore.space,
	};
	const struct broker_session *live =
		broker_session_find(broker, record.session);
	int rc;

	if (live && live->janitor && !live->ending)
		record.type = REEF_RECORD_USE;
	rc = commit_once(broker, request, &record);
	if (rc == 0 && reef_state_session(broker->state, record.session))
		rc = broker_publish_session(broker, record.session);
	return rc < 0 ? rc : 0;
}

static int name_space(struct reef_broker *broker,
		      const struct reef_request *request)
{
	struct reef_record record = {
		.type = REEF_RECORD_SPACE_NAME,
		.id = request->body.ask.space_restore.space,
		.name = request->body.ask.space_restore.name,
	};
	struct broker_session *session;
	int rc = commit_once(broker, request, &record);

	if (rc)
		return rc < 0 ? rc : 0;
	broker_event(broker, "space %u (%.*s) was restored", record.id,
		     (int)record.name.size, record.name.bytes);
	/* Who restored it uses it from now on like anybody else. */
	session = broker_session_of(request);
	if (session)
		rc = broker_grant(broker, session, record.id, REEF_RIGHT_ALL);
	broker_recovery_retry(broker, record.id);
	return rc;
}

BROKER_REQUEST(broker_space_restore)
{
	const struct reef_ask_space_restore *ask =
		&request->body.ask.space_restore;
	const struct broker_session *session = broker_session_of(request);
	const struct reef_state_space *space =
		reef_state_space(broker->state, ask->space);
	int rc;

	if (!session)
		return -REEF_EFENCED;
	if (!space)
		return -ENOENT;
	/* A repeated NAME finds the space shared already. */
	if (space->kind != REEF_SPACE_SCRATCH ? ask->step != REEF_RESTORE_NAME
					      : space->session != session->id)
		return -EBUSY;
	switch (ask->step) {
	case REEF_RESTORE_NUMBERS:
		rc = raise_numbers(broker, request);
		return rc < 0 ? rc : 0;
	case REEF_RESTORE_EXTENT:
		rc = restore_extent(broker, request, room);
		broker_rows_finish(answer, room);
		return rc;
	case REEF_RESTORE_SESSION:
		return restore_session(broker, request);
	case REEF_RESTORE_NAME:
		return name_space(broker, request);
	default:
		return -EINVAL;
	}
}
