/* recovery.c - from FENCED to RECOVERED: what dead sessions left is put in
 * order.
 *
 *   a fiber per session                     a fiber per space
 *   (broker_session_recover)                (recover_space)
 *     drops its scratch spaces                lists FENCED users of the space
 *     waits until it uses no space            asks a helper: RECOVER
 *     any more                 <-- USE_END -- of those that are done
 *
 * (1) What a session used is in the state (REEF_RECORD_USE), because the next
 *     start must know it, too, and asking about every space of the pool would
 *     leave sessions waiting for spaces that nobody opens.
 * (2) A *helper* is a live session that has the space open to write, or a
 *     janitor, of the pool's owner, which opens any. Janitors are asked before
 *     all others: they do not die with what they do for themselves. A helper is
 *     asked about up to REEF_RECOVER_MAX sessions at once, as it reads the
 *     words of all chunks for one as for many. USE_END is journaled when it
 *     says that nothing of a session is left: no chunk names the session, and
 *     each of its blocks was judged.
 * (3) A helper that does not answer, or says no, is followed by the next. One
 *     that answers, but could not do it for some, is asked again TRIES times
 *     before the next one is: it may have blocks that are not judged yet, and
 *     only it can tell. Two may be at it at once. When the next one finds
 *     nothing, what is not judged yet is in chunks that name the first, which
 *     goes on with it, or is itself recovered.
 * (4) Between two rounds in which nothing could be done is a pause, which
 *     grows, up to half a lease. Whoever opens the space ends it
 *     (broker_helper_came).
 * (5) One space never waits for another.
 * (6) What failed STUCK_AFTER times with an error that does not pass is STUCK:
 *     that is journaled and told, the session goes on to RECOVERED, and its
 *     slot is free. It is tried once more whenever a node comes back that has
 *     memory of the space, and whenever memory of the space is LOST: what only
 *     that could name is not live. An attempt that fails with an error that may
 *     pass is repeated. */
#include "pool/broker/internal.h"

#include "base/mutant.h"

#include <errno.h>
#include <reef/error.h>

#define TRIES 3u
#define STUCK_AFTER 3u
#define ASK_NS_MIN UINT64_C(1000000000)

/* A space in which there is something to recover; a fiber works on it. */
struct broker_recovery {
	uint32_t space;
	uint32_t changes; /* times that a helper came */
	uint32_t tries;	  /* of the present helper */
	uint64_t past;	  /* up to where helpers had their turn */
	uint32_t last;	  /* session of the last list */
	/* Sessions that failed with an error that does not pass (6). */
	struct failure {
		uint32_t session, count;
	} * failures;
	uint32_t failures_count;
	/* Sessions whose STUCK recovery is to be tried once more (6). */
	uint32_t *retries, retries_count;
	struct broker_recovery *next;
};

/* --- helpers --- */

static bool can_help(const struct reef_broker *broker,
		     const struct broker_session *session, uint32_t space)
{
	uint32_t i;

	if (session->ending || !session->peer ||
	    broker_session_is_saving(broker, session->id))
		return false;
	if (session->janitor)
		return !REEF_MUTATED(BROKER_NO_JANITOR);
	for (i = 0; i < session->grants_count; i++)
		if (session->grants[i].space == space)
			return session->grants[i].rights & REEF_RIGHT_WRITE;
	return false;
}

/* Where a helper stands in the row. */
static uint64_t turn_of(const struct broker_session *session)
{
	return (uint64_t)!session->janitor << 32 | session->id;
}

/* Helpers are taken in the order of their turns, so that a list which changes
 * meanwhile does no harm. */
static struct broker_session *
find_helper(struct reef_broker *broker, const struct broker_recovery *recovery)
{
	struct broker_session *session = broker->sessions, *best = NULL;

	for (; session; session = session->next)
		if (turn_of(session) > recovery->past &&
		    (!best || turn_of(session) < turn_of(best)) &&
		    can_help(broker, session, recovery->space))
			best = session;
	return best;
}

static int ask_helper(const struct broker_session *helper,
		      const struct reef_body *ask, struct reef_answer *answer)
{
	struct reef_peer *peer = helper->peer;
	uint64_t timeout_ns = 2 * helper->ttl_ns;
	int rc;

	if (timeout_ns < ASK_NS_MIN)
		timeout_ns = ASK_NS_MIN;
	reef_peer_ref(peer);
	rc = reef_rpc_call(peer, REEF_POOL_RECOVER, 0, ask, answer, timeout_ns);
	reef_peer_unref(peer);
	return rc;
}

/* --- one space --- */

static bool is_fenced(const struct reef_broker *broker, uint32_t id)
{
	const struct reef_state_session *session =
		reef_state_session(broker->state, id);

	return session && session->state == REEF_SESSION_FENCED;
}

static bool is_retried(const struct broker_recovery *recovery, uint32_t session)
{
	for (uint32_t i = 0; i < recovery->retries_count; i++)
		if (recovery->retries[i] == session)
			return true;
	return false;
}

static void add_retry(struct broker_recovery *recovery, uint32_t session)
{
	uint32_t count = recovery->retries_count, *retries;

	if (is_retried(recovery, session))
		return;
	retries = realloc(recovery->retries, (count + 1) * sizeof(*retries));
	if (!retries)
		return; /* the next node that comes back is another chance */
	retries[count] = session;
	recovery->retries = retries;
	recovery->retries_count++;
}

static void end_retry(struct broker_recovery *recovery, uint32_t session)
{
	for (uint32_t i = 0; i < recovery->retries_count; i++)
		if (recovery->retries[i] == session) {
			recovery->retries[i] =
				recovery->retries[--recovery->retries_count];
			return;
		}
}

/* List FENCED sessions that used the space, beginning after those of the last
 * list, so that all have their turn. Returns how many. */
static uint32_t list_dead(const struct reef_broker *broker,
			  struct broker_recovery *recovery,
			  uint32_t sessions[REEF_RECOVER_MAX])
{
	const struct reef_state_use *use;
	uint32_t last = recovery->last, found = 0;
	size_t i, count;

	use = reef_state_uses(broker->state, &count);
	for (int round = 0; round < 2; round++)
		for (i = 0; i < count && found < REEF_RECOVER_MAX; i++) {
			if (use[i].space != recovery->space ||
			    (use[i].session > last) == (round == 1))
				continue;
			if (use[i].stuck ? !is_retried(recovery, use[i].session)
					 : !is_fenced(broker, use[i].session))
				continue;
			sessions[found++] = use[i].session;
			recovery->last = use[i].session;
		}
	return found;
}

/* Count a failure that does not pass. True: it was one too many (6). */
static bool is_stuck(struct broker_recovery *recovery, uint32_t session)
{
	struct failure *failure = recovery->failures;
	uint32_t i, count = recovery->failures_count;

	for (i = 0; i < count && failure[i].session != session; i++)
		;
	if (i == count) {
		failure = realloc(failure, (count + 1) * sizeof(*failure));
		if (!failure)
			return false; /* it is counted the next time */
		failure[i] = (struct failure){.session = session};
		recovery->failures = failure;
		recovery->failures_count++;
	}
	return ++failure[i].count >= STUCK_AFTER;
}

/* A helper could not recover a session. 1: that is STUCK now.  0: it is asked
 * for again, or was STUCK already.  Else: what kept us from journaling it. */
static int note_failed(struct reef_broker *broker,
		       struct broker_recovery *recovery, uint32_t session,
		       uint32_t helper, int error)
{
	struct reef_record record = {
		.type = REEF_RECORD_USE_STUCK,
		.session = session,
		.space = recovery->space,
	};
	int rc;

	broker_event(broker,
		     "session %08x did not recover %08x in space %u: %s",
		     helper, session, recovery->space, reef_error_name(error));
	if (reef_recovery_may_pass(error))
		return 0;
	end_retry(recovery, session);
	if (!is_stuck(recovery, session))
		return 0;
	rc = broker_commit(broker, &record, NULL, NULL);
	if (rc)
		return rc == -ENOENT || rc == -EEXIST ? 0 : rc;
	broker_event(broker, "what session %08x left in space %u is stuck",
		     session, recovery->space);
	return 1;
}

/* Journal what a helper has done. Returns how many that was, or an error. */
static int note_done(struct reef_broker *broker,
		     struct broker_recovery *recovery,
		     const struct reef_ask_recover *ask,
		     const struct reef_reply_recover *reply, uint32_t helper)
{
	struct reef_record record = {
		.type = REEF_RECORD_USE_END,
		.space = ask->space,
	};
	int rc, done = 0;

	for (uint32_t i = 0; i < REEF_RECOVER_MAX && ask->sessions[i]; i++) {
		if (reply->errors[i]) {
			rc = note_failed(broker, recovery, ask->sessions[i],
					 helper, -(int)reply->errors[i]);
			if (rc < 0)
				return rc;
			done += rc;
			continue;
		}
		record.session = ask->sessions[i];
		rc = broker_commit(broker, &record, NULL, NULL);
		/* The space may have been dropped meanwhile. */
		if (rc && rc != -ENOENT)
			return rc;
		end_retry(recovery, ask->sessions[i]);
		done++;
	}
	if (done)
		broker_wake(broker);
	return done;
}

/* Ask helpers, one after the other, until one has answered (3). Returns of how
 * many sessions nothing is left now, or an error. */
static int recover_some(struct reef_broker *broker,
			struct broker_recovery *recovery,
			const struct reef_body *ask)
{
	struct reef_answer answer = {0};
	struct broker_session *helper;
	uint64_t turn;
	uint32_t id;
	int rc;

	while ((helper = find_helper(broker, recovery))) {
		turn = turn_of(helper);
		id = helper->id;
		rc = ask_helper(helper, ask, &answer);
		if (rc == -REEF_EHOSTDEAD)
			return rc;
		if (broker->stopping) {
			reef_answer_free(&answer);
			return -ECANCELED;
		}
		if (rc == 0) {
			rc = note_done(broker, recovery, &ask->ask.recover,
				       &answer.body.reply.recover, id);
			reef_answer_free(&answer);
			recovery->tries = rc ? 0 : recovery->tries + 1;
			if (recovery->tries >= TRIES)
				recovery->past = turn;
			return rc;
		}
		broker_event(broker,
			     "session %08x recovers nothing in space %u: %s",
			     id, recovery->space, reef_error_name(rc));
		recovery->past = turn;
		recovery->tries = 0;
	}
	recovery->past = recovery->tries = 0; /* all over again */
	return 0;
}

/* Wait until time has passed, or a helper came since `changes` was that. */
static int await_helper(struct reef_broker *broker,
			struct broker_recovery *recovery, uint32_t changes,
			uint64_t pause_ns)
{
	uint64_t until_ns = reef_now_ns() + pause_ns, now_ns = reef_now_ns();
	int rc = 0;

	while (rc == 0 && recovery->changes == changes && now_ns < until_ns) {
		rc = broker_sleep(broker, until_ns - now_ns);
		now_ns = reef_now_ns();
	}
	if (recovery->changes != changes)
		recovery->past = recovery->tries = 0;
	return rc;
}

static struct broker_recovery *find_recovery(struct reef_broker *broker,
					     uint32_t space)
{
	struct broker_recovery *recovery = broker->recoveries;

	while (recovery && recovery->space != space)
		recovery = recovery->next;
	return recovery;
}

static void recover_space(struct reef_broker *broker, uint32_t space)
{
	struct broker_recovery *recovery = find_recovery(broker, space), **at;
	uint64_t ttl_ns =
		reef_state_setting(broker->state, REEF_SETTING_LEASE_TTL_NS);
	uint64_t pause_ns = ttl_ns / 16;
	uint32_t changes;
	int rc = 0;

	while (rc == 0 && !broker->health) {
		struct reef_body ask = {.ask.recover.space = space};

		if (!list_dead(broker, recovery, ask.ask.recover.sessions))
			break;
		changes = recovery->changes;
		rc = recover_some(broker, recovery, &ask);
		if (rc > 0) {
			pause_ns = ttl_ns / 16;
			rc = 0;
		} else if (rc == 0) {
			rc = await_helper(broker, recovery, changes, pause_ns);
			if (pause_ns < ttl_ns / 4)
				pause_ns *= 2;
		}
	}
	for (at = &broker->recoveries; *at != recovery; at = &(*at)->next)
		;
	*at = recovery->next;
	free(recovery->failures);
	free(recovery->retries);
	free(recovery);
}

/* Have a fiber work on a space. */
static int begin_recovery(struct reef_broker *broker, uint32_t space)
{
	struct broker_recovery *recovery;
	int rc;

	if (find_recovery(broker, space))
		return 0;
	recovery = calloc(1, sizeof(*recovery));
	if (!recovery)
		return -ENOMEM;
	recovery->space = space;
	recovery->next = broker->recoveries;
	broker->recoveries = recovery;
	rc = broker_spawn(broker, recover_space, space);
	if (rc) {
		broker->recoveries = recovery->next;
		free(recovery);
	}
	return rc;
}

void broker_helper_came(struct reef_broker *broker, uint32_t space)
{
	struct broker_recovery *recovery = broker->recoveries;
	bool any = false;

	for (; recovery; recovery = recovery->next) {
		if (space && recovery->space != space)
			continue;
		recovery->changes++;
		any = true;
	}
	if (any)
		broker_wake(broker);
}

static bool has_extent_on(const struct reef_broker *broker, uint32_t space,
			  uint32_t node)
{
	const struct reef_state_extent *extent;
	size_t i, count;

	extent = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++)
		if (extent[i].space == space && extent[i].node == node)
			return true;
	return false;
}

void broker_recovery_retry(struct reef_broker *broker, uint32_t space)
{
	const struct reef_state_use *use;
	struct broker_recovery *recovery;
	size_t i, count;

	use = reef_state_uses(broker->state, &count);
	for (i = 0; i < count; i++) {
		if (!use[i].stuck || use[i].space != space)
			continue;
		(void)begin_recovery(broker, space);
		recovery = find_recovery(broker, space);
		if (recovery)
			add_retry(recovery, use[i].session);
	}
	broker_helper_came(broker, space);
}

void broker_recovery_node_came(struct reef_broker *broker, uint32_t node)
{
	const struct reef_state_space *spaces;
	size_t i, count;

	spaces = reef_state_spaces(broker->state, &count);
	for (i = 0; i < count; i++)
		if (has_extent_on(broker, spaces[i].id, node))
			broker_recovery_retry(broker, spaces[i].id);
}

BROKER_REQUEST(broker_janitor)
{
	struct broker_session *session = broker_session_of(request);

	if (!session)
		return -REEF_EFENCED;
	session->janitor = true;
	broker_helper_came(broker, 0);
	return 0;
}

/* --- one session --- */

/* Remove a session's scratch spaces, and their extents at the nodes. */
static int drop_scratch_spaces(struct reef_broker *broker, uint32_t id)
{
	const struct reef_state_space *spaces;
	size_t i, count;
	int rc;

	spaces = reef_state_spaces(broker->state, &count);
	for (i = 0; i < count; i++) {
		if (spaces[i].session != id)
			continue;
		rc = broker_space_remove(broker, spaces[i].id, NULL);
		if (rc && rc != -ENOENT)
			return rc;
		/* Removing waited, so the list may be another: begin anew. */
		spaces = reef_state_spaces(broker->state, &count);
		i = (size_t)-1;
	}
	return 0;
}

/* Have fibers work on all spaces that the session used. 0: there are none. */
static int begin_recoveries(struct reef_broker *broker, uint32_t id)
{
	const struct reef_state_use *use;
	size_t i, count;
	int rc, found = 0;

	use = reef_state_uses(broker->state, &count);
	for (i = 0; i < count; i++) {
		if (use[i].session != id || use[i].stuck)
			continue;
		rc = begin_recovery(broker, use[i].space);
		if (rc)
			return rc;
		found++;
	}
	return found;
}

int broker_session_recover(struct reef_broker *broker, uint32_t session)
{
	uint64_t pause_ns =
		reef_state_setting(broker->state, REEF_SETTING_LEASE_TTL_NS) /
		2;
	int rc;

	/* Scratch spaces go first: recovering the others may take long. */
	rc = drop_scratch_spaces(broker, session);
	while (rc == 0) {
		/* A broker that serves no more recovers nothing: the fibers of
		 * spaces would end at once, and wake us, for ever. */
		if (broker->health)
			return broker->health;
		rc = begin_recoveries(broker, session);
		if (rc <= 0)
			return rc;
		/* USE_END wakes us; that a space was dropped does not. */
		rc = broker_sleep(broker, pause_ns);
	}
	return rc;
}
