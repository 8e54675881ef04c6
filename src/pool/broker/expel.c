/* expel.c - users who are shut out: removed by force, or whose credential has
 * leaked. Who they were knows nothing any more that opens memory.
 *
 * (1) A fence ends what a session does, not what it knows. On tcp, and over
 *     verbs without windows, a key of memory is good for whoever a node lets
 *     in, so one who is shut out could have another user go on with it. So all
 *     keys are changed (rekey.c) that the user may have been told.
 * (2) Those are the keys of their own spaces, of spaces of others that one of
 *     their sessions was told keys of in this start of the broker, and of those
 *     that a session used which has not RECOVERED. What was told of others'
 *     spaces before this start, to sessions that are gone, is not known:
 *     `reef space revoke` is for that.
 * (3) Tokens stay: they are of no use without a credential, and others share
 *     spaces by them. Who opens a space by one is seen, and can be shut out;
 *     who uses a key is not.
 * (4) A removal goes in steps that can be repeated, and a broker that dies
 *     between them leaves a user who cannot come in, and can be removed again:
 *       the credential is void --> sessions end --> keys are changed, fences
 *       confirmed, for as long as WAIT_NS --> USER_EXPEL
 *     What a holder keeps longer is changed when that lets go; an event says
 *     so.
 * (5) What they had kept becomes the owner's, in that last record. It is not
 *     dropped: others may share it by tokens, and what is dropped does not come
 *     back. */
#include "pool/broker/lending.h"

#include <errno.h>
#include <stdlib.h>

/* How long a removal waits for nodes; less than an operator does. */
#define WAIT_NS UINT64_C(3000000000)
#define PAUSE_NS UINT64_C(10000000)

/* A space of somebody else that a user was told keys of. */
struct broker_telling {
	uint32_t user, space;
	struct broker_telling *next;
};

/* --- what a user may know (2) --- */

void broker_user_note_told(struct reef_broker *broker, uint32_t user,
			   uint32_t id)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, id);
	struct broker_telling **at = &broker->tellings, *telling;

	if (!space || space->user == user)
		return;
	/* What is gone is forgotten on the way. What was asked for last is
	 * asked for again soonest, and is at the front. */
	while ((telling = *at)) {
		if (telling->user == user && telling->space == id)
			break;
		if (reef_state_space(broker->state, telling->space)) {
			at = &telling->next;
			continue;
		}
		*at = telling->next;
		free(telling);
	}
	if (telling) {
		*at = telling->next;
	} else {
		telling = malloc(sizeof(*telling));
		if (!telling) {
			broker->tellings_lost = true;
			return;
		}
		*telling = (struct broker_telling){.user = user, .space = id};
	}
	telling->next = broker->tellings;
	broker->tellings = telling;
}

void broker_tellings_close(struct reef_broker *broker)
{
	struct broker_telling *telling;

	while ((telling = broker->tellings)) {
		broker->tellings = telling->next;
		free(telling);
	}
}

/* True if a session of that user, which has not RECOVERED, used the space. */
static bool has_used(const struct reef_broker *broker, uint32_t user,
		     uint32_t space)
{
	const struct reef_state_session *session;
	const struct reef_state_use *uses;
	size_t count, i;

	uses = reef_state_uses(broker->state, &count);
	for (i = 0; i < count; i++) {
		session = reef_state_session(broker->state, uses[i].session);
		if (uses[i].space == space && session && session->user == user)
			return true;
	}
	return false;
}

static bool may_know(const struct reef_broker *broker, uint32_t user,
		     const struct reef_state_space *space)
{
	const struct broker_telling *telling = broker->tellings;

	if (space->user == user || broker->tellings_lost)
		return true;
	while (telling &&
	       (telling->user != user || telling->space != space->id))
		telling = telling->next;
	return telling || has_used(broker, user, space->id);
}

void broker_user_rekey(struct reef_broker *broker, uint32_t user)
{
	const struct reef_state_space *spaces;
	uint32_t failed = 0;
	size_t count, i;

	spaces = reef_state_spaces(broker->state, &count);
	for (i = 0; i < count; i++)
		if (may_know(broker, user, &spaces[i]))
			failed += broker_space_rekey(broker, NULL, spaces[i].id,
						     0) != 0;
	if (failed)
		broker_event(broker,
			     "user %u may know keys of %u spaces: revoke them",
			     user, failed);
}

/* Spaces whose keys the user may know still. */
static uint32_t count_known(const struct reef_broker *broker, uint32_t user)
{
	const struct reef_state_space *spaces;
	uint32_t known = 0;
	size_t count, i;

	spaces = reef_state_spaces(broker->state, &count);
	for (i = 0; i < count; i++)
		known += broker_space_is_rekeying(broker, spaces[i].id) &&
			 may_know(broker, user, &spaces[i]);
	return known;
}

/* --- removal (4) --- */

static int end_all_sessions(struct reef_broker *broker, uint32_t id)
{
	struct broker_session *session = broker->sessions;
	int rc = 0;

	for (; rc == 0 && session; session = session->next)
		if (session->user == id)
			rc = broker_session_end(broker, session,
						"its user was removed");
	return rc;
}

/* Make the sessions of a user the owner's, as the record does. */
static void give_sessions_to_owner(struct reef_broker *broker, uint32_t id)
{
	struct broker_session *session = broker->sessions;

	for (; session; session = session->next)
		if (session->user == id) {
			session->user = 0;
			session->expelled = id;
		}
}

/* Sessions that are or were a user's, and that a node may still let in. */
static uint32_t count_unfenced(const struct reef_broker *broker, uint32_t id)
{
	const struct broker_session *session = broker->sessions;
	uint32_t count = 0;

	for (; session; session = session->next)
		count += (session->expelled == id || session->user == id) &&
			 !session->fenced;
	return count;
}

static uint32_t count_shared_spaces(const struct reef_broker *broker,
				    uint32_t id)
{
	const struct reef_state_space *spaces;
	uint32_t shared = 0;
	size_t count, i;

	spaces = reef_state_spaces(broker->state, &count);
	for (i = 0; i < count; i++)
		shared += spaces[i].user == id &&
			  spaces[i].kind == REEF_SPACE_SHARED;
	return shared;
}

/* Shut a user out, and wait until nobody gets at memory as they did, within a
 * bound. */
static int shut_out(struct reef_broker *broker, uint32_t id)
{
	uint64_t until_ns = reef_now_ns() + WAIT_NS;
	uint32_t era;
	int rc = broker_user_void(broker, id, NULL, &era);

	if (rc == 0)
		rc = end_all_sessions(broker, id);
	if (rc == 0)
		rc = broker_wait_durable(broker, broker->applied);
	if (rc)
		return rc;
	broker_user_rekey(broker, id);
	while (rc == 0 && reef_now_ns() < until_ns &&
	       (count_unfenced(broker, id) || count_known(broker, id)))
		rc = broker_sleep(broker, PAUSE_NS);
	return rc;
}

/* Journal that the user is gone. */
static int commit_removal(struct reef_broker *broker,
			  const struct reef_request *request, uint32_t id)
{
	struct reef_record record = {.type = REEF_RECORD_USER_EXPEL, .id = id};
	uint32_t known = count_known(broker, id);
	int rc;

	/* Somebody may have made a new credential meanwhile. */
	rc = end_all_sessions(broker, id);
	if (rc == 0)
		rc = broker_commit(broker, &record, request, NULL);
	if (rc)
		return rc;
	give_sessions_to_owner(broker, id);
	broker_event(broker, "user %u was removed by force", id);
	if (known)
		broker_event(broker,
			     "%u spaces still have keys that user %u knew: a "
			     "holder does not let go",
			     known, id);
	return 0;
}

int broker_user_expel(struct reef_broker *broker,
		      const struct reef_request *request,
		      struct reef_body *answer)
{
	uint32_t id = request->body.ask.user_remove.user, spaces = 0;
	uint64_t ignored;
	int rc;

	rc = broker_find_repeated(broker, request, REEF_RECORD_USER_EXPEL,
				  &ignored);
	if (rc == 0) {
		if (!reef_state_user(broker->state, id))
			return -ENOENT;
		rc = shut_out(broker, id);
		spaces = count_shared_spaces(broker, id);
		if (rc == 0)
			rc = commit_removal(broker, request, id);
		/* It came twice, and the other was quicker. */
		if (rc == -EALREADY)
			rc = 0;
	}
	if (rc < 0)
		return rc;
	answer->reply.user_remove.spaces = spaces;
	answer->reply.user_remove.sessions = count_unfenced(broker, id);
	return 0;
}
