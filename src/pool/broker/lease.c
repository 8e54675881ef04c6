/* lease.c - how sessions end, and when memory may be used again.
 *
 *    judge_sessions, broker_session_end     fence_session: nodes confirmed
 *   ALIVE ------------------------------> EXPIRED ----------------> FENCED
 *                                                                     |
 *    (slot free) <---- RECOVERED <------------------------------------+
 *                  recovery.c: nobody's work is left in a space it used
 *
 * (1) A session is judged by samples of its renewal word: EXPIRED after four in
 *     a row that are like the one before, none of them more than two periods
 *     (of a quarter of its ttl) after the one before; a longer gap is our own
 *     absence, and counting begins again. A sample is taken after pending input
 *     was handled, for a renewal may wait there.
 * (2) The first sample in a start only begins the counting, so that everybody
 *     counts as just renewed.
 * (3) A session whose control link is on shm and up ends with its process, and
 *     is not judged by (1), unless the setting lease_kills says so, or others
 *     have no room: who is silent holds memory back, if not yet, then from the
 *     next epoch on. Then its process is killed, as that is what a fence is
 *     there.
 * (4) Every step is journaled, then published; the fiber that takes them can
 *     end anywhere (stop, crash), and the next begins at the step that is due.
 * (5) What is left between FENCED and RECOVERED is recovery.c's.
 *
 * R8, reuse of memory that others change in place:
 *
 * (6) reclaim_epoch rises by one when every session has announced the present
 *     one; safe_epoch is the least that any session announced. Sessions count
 *     until FENCED is published; one that has announced nothing in this start
 *     counts as 0, a new one as having announced the epoch that it came in.
 * (7) reclaim_epoch is 64 bits and never used twice: RECLAIM_STEP of them at a
 *     time are reserved in the journal, and a start begins where the last
 *     reservation ended. Sessions announce its lower 32 bits. Nobody is 2^31
 *     behind: an epoch lasts until everyone has announced it, and each start
 *     skips at most RECLAIM_STEP.
 * (8) So whoever reads reclaim_epoch as e knows that it is e or e + 1 until
 *     they announce more: who frees with what they read last counts with
 *     e + 1.
 * (9) Hurry. A session that waits for freed memory says so in its renewal word,
 *     and sends a note, so that we look. Then hurry_ns of the table tells
 *     everyone to renew that often instead of every quarter of a lease, and we
 *     look as often, until nobody has said so for HURRY_ROUNDS looks; each
 *     session gets a note when it begins. So an epoch lasts one or two of
 *     hurry_ns. Notes may be lost: the words are looked at anyway, later. How
 *     often words are written and looked at changes nothing in (6) to (8),
 *     which hold whenever that is, nor in (1), where samples are a quarter of a
 *     lease apart however often we look. A word that does not change wishes
 *     for nothing: who has stopped must not make everyone hurry for ever.
 * (10) Who holds everybody's memory back is ended, like who is silent: a
 *     session that was behind, with one and the same epoch, for as many whole
 *     periods as (1) counts samples, while others had no room. They had none
 *     if, at each of those samples, a new word of somebody who says so was
 *     found within the last two periods. Who is behind as well does not count,
 *     as that is their own doing. Our own absence begins the counting anew, as
 *     in (1), and so do our start and a resume, but not one soon after another:
 *     who may have had no link may be behind, who resumes all the time is not
 *     to gain by it. Who waits for a node that died
 *     is not to blame, and goes on when that is DEAD: so a death begins the
 *     counting anew, and the session is ended when every node was heard once
 *     more after all that, for then each was alive all the while. Who waits
 *     for a failover, which others hold up, is not to blame either: while one
 *     is under way in a space that the session has open, nothing counts. Of a
 *     user whose sessions ended like that lately fewer periods are enough, and
 *     new sessions have to wait (users.c, 5).
 *
 * Other brokers:
 *
 * (11) A broker that is not sure (confirm.c, 6) judges no session, and counts
 *      everybody as just renewed when it is sure again. safe_epoch rises when
 *      witnesses have confirmed, after the words were read, that no other
 *      broker was chosen: its sessions would be unknown here.
 *
 * Acknowledged views (acknowledge.c):
 *
 * (12) Who is awaited, and has not acknowledged what it is awaited for within
 *      its ttl, is ended, on shm too: counted in samples, as in (1). To
 *      acknowledge less is no progress: who is many epochs behind, and lets go
 *      of one in each ttl, would have everybody wait. It may have
 *      something under way at a node that has gone silent, so only time counts
 *      in which each node that it was told of was heard, or missed for less
 *      than two pulses, and those two come on top. A node that is missed, or
 *      dies, begins the counting anew; but not more often than there are nodes,
 *      or one that comes and goes all the time would have everybody wait for
 *      who stands still.
 * (13) safe_epoch counts on fences that nodes which are gone did not confirm.
 *      So it is published together with a pool epoch in which they are: one
 *      that was published after the sessions were looked at. */
#include "pool/broker/lending.h"

#include "base/mutant.h"

#include <errno.h>
#include <reef/error.h>
#include <stdatomic.h>
#include <string.h>

#define SAMPLES 4
#define RECLAIM_STEP 65536
#define HURRY_NS UINT64_C(2000000)
/* Times the number of sessions: in all, 50,000 renewals a second. */
#define HURRY_SESSION_NS UINT64_C(20000)
#define HURRY_ROUNDS 32u
/* After so many looks at an epoch that stays, looks become half as frequent. */
#define HURRY_STALLED 256u

static uint8_t session_state(const struct reef_broker *broker, uint32_t id)
{
	const struct reef_state_session *session =
		reef_state_session(broker->state, id);

	return session ? session->state : REEF_SESSION_RECOVERED;
}

/* --- from EXPIRED to the end --- */

/* Journal the next state of a session, then publish it. */
static int advance_session(struct reef_broker *broker, uint32_t id,
			   uint8_t state)
{
	struct reef_record record = {
		.type = REEF_RECORD_SESSION_STATE,
		.session = id,
		.state = state,
	};
	int rc = broker_commit(broker, &record, NULL, NULL);

	return rc ? rc : broker_publish_session(broker, id);
}

static int fence_session(struct reef_broker *broker, uint32_t id)
{
	struct broker_session *session;
	int rc;

	rc = broker_publish_session(broker, id);
	if (rc == 0 && !REEF_MUTATED(BROKER_EARLY_FENCED))
		rc = broker_nodes_fence(broker, id);
	if (rc == 0)
		rc = advance_session(broker, id, REEF_SESSION_FENCED);
	if (rc)
		return rc;
	session = broker_session_find(broker, id);
	session->fenced = true;
	broker->counts[REEF_BROKER_FENCES]++;
	broker_wake(broker); /* somebody may wait for that in acknowledge.c */
	broker_notice_session(broker, session);
	if (!session->closed)
		broker_event(broker, "session %08x is fenced", id);
	return 0;
}

static int settle_session(struct reef_broker *broker, uint32_t id)
{
	bool closed = broker_session_find(broker, id)->closed;
	int rc = broker_session_recover(broker, id);

	if (rc == 0)
		rc = advance_session(broker, id, REEF_SESSION_RECOVERED);
	if (rc == 0 && !closed)
		broker_event(broker, "session %08x is recovered", id);
	return rc;
}

/* Free a session, once its renewal words are withdrawn: a client that stands
 * still may hold on to them. */
static void release_session(struct reef_broker *broker,
			    struct broker_session *session)
{
	struct broker_renewal *renewal;
	uint32_t i;
	int rc = 0;

	broker_count_session(broker, session, 0);
	broker_session_unlink(broker, session);
	for (i = 0; i < REEF_MESH_MAX; i++) {
		renewal = &session->renewals[i];
		while (renewal->region && !broker->stopping && rc == 0) {
			rc = reef_withdraw(reef_port_queue(broker->port, i),
					   renewal->region, session->ttl_ns);
			if (rc == 0)
				renewal->region = NULL;
			else if (rc == -ETIMEDOUT)
				rc = broker_sleep(broker, session->ttl_ns);
		}
	}
	broker_session_free(broker, session);
}

static void finish_session(struct reef_broker *broker, uint32_t id)
{
	struct broker_session *session;
	int rc = 0;

	if (session_state(broker, id) == REEF_SESSION_EXPIRED)
		rc = fence_session(broker, id);
	if (rc == 0 && session_state(broker, id) == REEF_SESSION_FENCED)
		rc = settle_session(broker, id);
	session = broker_session_find(broker, id);
	if (rc == 0)
		release_session(broker, session);
	else
		session->attended = false; /* the sampler spawns another */
}

/* Spawn a fiber for each session that ends and has none. */
static void spawn_finishers(struct reef_broker *broker)
{
	struct broker_session *session = broker->sessions;

	for (; session; session = session->next)
		if (session->ending && !session->attended)
			session->attended = broker_spawn(broker, finish_session,
							 session->id) == 0;
}

int broker_session_end(struct reef_broker *broker,
		       struct broker_session *session, const char *why)
{
	struct reef_record record = {
		.type = REEF_RECORD_SESSION_STATE,
		.session = session->id,
		.state = REEF_SESSION_EXPIRED,
	};
	int rc;

	if (session->ending)
		return 0;
	rc = broker_commit(broker, &record, NULL, NULL);
	if (rc)
		return rc;
	session->ending = true;
	broker->counts[REEF_BROKER_ENDED] += !session->closed;
	broker_event(broker, "session %08x ends: %s", session->id, why);
	spawn_finishers(broker);
	return 0;
}

/* --- samples --- */

/* Read a word of a session's renewal on a fabric. */
static uint64_t read_word(const struct broker_renewal *renewal, size_t offset)
{
	/* The session's WRITE stores it; no other data depends on it. */
	return renewal->memory
		       ? atomic_load_explicit(
				 (_Atomic uint64_t *)((char *)renewal->memory
							      ->base +
						      offset),
				 memory_order_relaxed)
		       : 0;
}

/* The sum of a session's words on all fabrics, which any renewal changes. */
static uint64_t sum_renewals(const struct broker_session *session)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < REEF_MESH_MAX; i++)
		sum += read_word(&session->renewals[i],
				 offsetof(struct reef_renewal, word));
	return sum;
}

/* Take in the epoch that the session's word announces: (6), (7). */
static void note_announced_epoch(const struct reef_broker *broker,
				 struct broker_session *session, uint64_t word,
				 uint64_t now_ns)
{
	uint32_t behind = (uint32_t)broker->reclaim_epoch - (uint32_t)word;
	uint64_t before = session->oldest;

	/* A word that is ahead of the epoch announces nothing. */
	if (word != 0 && behind < UINT32_MAX / 2 &&
	    behind <= broker->reclaim_epoch)
		session->oldest = broker->reclaim_epoch - behind;
	if (session->oldest == broker->reclaim_epoch)
		session->behind_ns = 0;
	else if (!session->behind_ns || session->oldest != before)
		session->behind_ns = now_ns;
}

/* Take in what a session says of its memory. */
static void note_renewal(struct reef_broker *broker,
			 struct broker_session *session, uint64_t now_ns)
{
	const struct broker_renewal *renewal =
		&session->renewals[session->fabric];
	uint64_t word = read_word(renewal, offsetof(struct reef_renewal, word));
	uint64_t waiting =
		read_word(renewal, offsetof(struct reef_renewal, waiting));
	bool changed = word != session->looked;

	note_announced_epoch(broker, session, word, now_ns);
	broker_note_acknowledged(
		broker, session,
		read_word(renewal,
			  offsetof(struct reef_renewal, acknowledged)));
	if (changed)
		broker_count_session(broker, session, now_ns);
	/* A wish counts only in a word that has changed (9), (10). */
	session->looked = word;
	session->hurries = changed && word & REEF_RENEWAL_HURRY;
	session->waiting = waiting & REEF_RENEWAL_BYTES;
	session->gives = waiting & REEF_RENEWAL_GIVES;
	if (changed && waiting & REEF_RENEWAL_LACKS && !session->behind_ns &&
	    !session->ending)
		broker->lacked_ns = now_ns;
}

/* True if somebody had no room lately, by the session's periods: (10). */
static bool is_room_missed(const struct reef_broker *broker,
			   const struct broker_session *session)
{
	return REEF_MUTATED(BROKER_PIN_UNMISSED) ||
	       (broker->lacked_ns &&
		session->sampled_ns - broker->lacked_ns <= session->ttl_ns / 2);
}

/* True for a session that (3) exempts from its lease. */
static bool is_exempt(const struct reef_broker *broker,
		      const struct broker_session *session)
{
	struct reef_fabric *fabric =
		reef_mesh_fabric(broker->options.mesh, session->fabric);

	return session->peer && strcmp(reef_fabric_kind(fabric), "shm") == 0 &&
	       !reef_state_setting(broker->state, REEF_SETTING_LEASE_KILLS) &&
	       !is_room_missed(broker, session);
}

/* Judge a sample of a session's words by (1). counts: by its distance from the
 * one before, at last_ns. True: the lease is over. */
static bool is_lease_over(const struct reef_broker *broker,
			  struct broker_session *session, uint64_t last_ns,
			  bool counts)
{
	uint32_t needed = REEF_MUTATED(BROKER_ONE_SAMPLE) ? 1 : SAMPLES;
	uint64_t word = sum_renewals(session);
	bool renewed = word != session->sampled_word;

	if (renewed && last_ns)
		session->renewed_ns = session->sampled_ns;
	session->sampled_word = word;
	if (renewed || !counts || is_exempt(broker, session))
		session->unchanged = 0;
	else
		session->unchanged++;
	return session->unchanged >= needed;
}

/* True if every node that is not DEAD has a link, and was heard after that. */
static bool are_nodes_heard_since(const struct reef_broker *broker,
				  uint64_t since_ns)
{
	const struct broker_node *node;

	for (node = broker->nodes; node; node = node->next)
		if (!node->peer || node->heard_ns <= since_ns)
			return false;
	return true;
}

/* The same by (10). True: others have waited for it long enough. */
static bool is_pinning_too_long(const struct reef_broker *broker,
				struct broker_session *session,
				uint64_t last_ns, bool counts)
{
	bool is_behind = session->behind_ns && session->behind_ns <= last_ns;
	uint32_t pins = broker_user_pins(broker, session->user);
	uint32_t needed = pins > 2 ? 1 : SAMPLES >> pins;
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	/* A node died: who waited for it is about to go on. */
	if (session->pool_epoch != summary.pool_epoch ||
	    (broker_is_failing_over(broker, session) &&
	     !REEF_MUTATED(BROKER_BLAME_FAILOVER)))
		is_behind = false;
	session->pool_epoch = summary.pool_epoch;
	if (counts && is_behind && is_room_missed(broker, session))
		session->pinning++;
	else
		session->pinning = 0;
	if (session->pinning < needed) {
		session->pinned_ns = 0;
		return false;
	}
	if (!session->pinned_ns)
		session->pinned_ns = session->sampled_ns;
	return are_nodes_heard_since(broker, session->pinned_ns);
}

/* For how long a node may be silent and still count as there: (12). */
static uint64_t pulses_ns(const struct reef_broker *broker)
{
	return 2 * broker_pulse_period(broker);
}

/* True if a node that the session was told of is silent, or one has died since
 * its last sample. */
static bool may_wait_for_node(const struct reef_broker *broker,
			      struct broker_session *session)
{
	const struct broker_node *node;
	struct reef_state_summary summary;
	bool has_died;

	if (REEF_MUTATED(BROKER_BLAME_SILENCE))
		return false;
	reef_state_summary(broker->state, &summary);
	has_died = session->awaited_epoch != summary.pool_epoch;
	session->awaited_epoch = summary.pool_epoch;
	for (node = broker->nodes; node; node = node->next)
		if (broker_session_was_told(session, node->id) &&
		    (!node->peer ||
		     node->heard_ns + pulses_ns(broker) <= session->sampled_ns))
			return true;
	return has_died;
}

/* The same by (12). True: it has had a whole ttl. */
static bool is_overdue(const struct reef_broker *broker,
		       struct broker_session *session, bool counts)
{
	uint64_t owed = broker_awaited_of(broker, session);
	bool was_waiting = session->is_waiting;
	bool is_done = !owed || (session->owed &&
				 session->acknowledged >= session->owed);
	size_t nodes;

	session->is_waiting = may_wait_for_node(broker, session);
	if (is_done)
		session->excuses = session->overdue = 0;
	else if (counts)
		session->overdue++;
	else
		session->overdue = 0;
	if (is_done || !session->owed)
		session->owed = owed && REEF_MUTATED(BROKER_ACK_IN_BITS)
					? session->acknowledged + 1
					: owed;
	session->excuses += session->is_waiting && !was_waiting;
	(void)reef_state_nodes(broker->state, &nodes);
	if (session->is_waiting &&
	    (session->excuses <= nodes || REEF_MUTATED(BROKER_EXCUSES)))
		session->overdue = 0;
	if (!session->overdue)
		session->awaited_ns = session->sampled_ns;
	return session->overdue > SAMPLES &&
	       session->sampled_ns - session->awaited_ns >=
		       session->ttl_ns + pulses_ns(broker);
}

/* Take a sample of a session's words, if one is due, and judge it. */
static void judge_session(struct reef_broker *broker,
			  struct broker_session *session, uint64_t now_ns)
{
	uint64_t last_ns = session->sampled_ns, period_ns = session->ttl_ns / 4;
	uint64_t gap_ns = now_ns - last_ns;
	bool counts = last_ns && gap_ns <= 2 * period_ns;

	if (last_ns && gap_ns < period_ns && !REEF_MUTATED(BROKER_HASTY_LEASE))
		return;
	session->sampled_ns = now_ns;
	if (is_lease_over(broker, session, last_ns, counts)) {
		(void)broker_session_end(broker, session, "lease expired");
		if (session->behind_ns && is_room_missed(broker, session))
			broker_user_strike(broker, session->user,
					   session->ttl_ns, false);
	} else if (is_pinning_too_long(broker, session, last_ns, counts)) {
		(void)broker_session_end(broker, session,
					 "it held memory back that others "
					 "waited for");
		broker_user_strike(broker, session->user, session->ttl_ns,
				   true);
	} else if (is_overdue(broker, session, counts)) {
		(void)broker_session_end(broker, session,
					 "it did not let go of what changed");
	}
}

static void judge_sessions(struct reef_broker *broker)
{
	struct broker_session *session;
	uint64_t now_ns = reef_now_ns();
	bool sure = broker_is_sure(broker);

	for (session = broker->sessions; session; session = session->next)
		note_renewal(broker, session, now_ns);
	for (session = broker->sessions; session; session = session->next) {
		if (!sure) /* (11) */
			session->sampled_ns = 0;
		else if (!session->ending)
			judge_session(broker, session, now_ns);
	}
}

/* --- R8 --- */

static int reserve_epochs(struct reef_broker *broker, uint64_t from)
{
	struct reef_record record = {
		.type = REEF_RECORD_RECLAIM,
		.value = from + RECLAIM_STEP,
	};

	return broker_commit(broker, &record, NULL, NULL);
}

int broker_epochs_begin(struct reef_broker *broker)
{
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	broker->reclaim_epoch = summary.reclaim ? summary.reclaim : 1;
	return reserve_epochs(broker, broker->reclaim_epoch);
}

static uint64_t least_announced(const struct reef_broker *broker)
{
	const struct broker_session *session = broker->sessions;
	uint64_t least = broker->reclaim_epoch;

	if (REEF_MUTATED(BROKER_EARLY_SAFE))
		return least;
	for (; session; session = session->next)
		if (!session->fenced && session->oldest < least)
			least = session->oldest;
	return least;
}

/* Send a note to every session with a link; the others read the table. */
static void send_hurry_notes(struct reef_broker *broker)
{
	struct broker_session *session = broker->sessions;

	for (; session; session = session->next)
		if (session->peer)
			(void)reef_rpc_note(session->peer, REEF_POOL_HURRY,
					    NULL);
}

/* Set hurry_ns by what the words say (9). Where somebody keeps the epoch from
 * moving, looks become rarer: frequent ones gain nothing. */
static void update_hurry(struct reef_broker *broker, bool moved)
{
	const struct broker_session *session = broker->sessions;
	uint64_t count = 0, hurry_ns;
	uint32_t slower;

	if (broker->hurry_rounds)
		broker->hurry_rounds--;
	for (; session; session = session->next) {
		count++;
		if (session->hurries && !session->ending)
			broker->hurry_rounds = HURRY_ROUNDS;
	}
	broker->hurry_stalled = moved ? 0 : broker->hurry_stalled + 1;
	slower = broker->hurry_stalled / HURRY_STALLED;
	hurry_ns = count * HURRY_SESSION_NS;
	hurry_ns = hurry_ns > HURRY_NS ? hurry_ns : HURRY_NS;
	broker->hurry_ns = broker->hurry_rounds
				   ? hurry_ns << (slower < 5 ? slower : 5)
				   : 0;
	if (!broker->hurry_ns)
		broker->hurry_stalled = 0;
}

static void advance_reclaim_epoch(struct reef_broker *broker)
{
	uint64_t least = least_announced(broker), before;
	bool was_calm = !broker->hurry_ns;
	struct reef_state_summary summary;

	/* (11), (13) */
	if (least > broker->safe_epoch && broker_confirm_now(broker) == 0 &&
	    broker_publish_pool_epoch(broker) == 0) {
		broker->safe_epoch = least;
		broker->safe_view = broker_published_pool_epoch(broker);
	}
	reef_state_summary(broker->state, &summary);
	before = broker->reclaim_epoch;
	if (least == broker->reclaim_epoch && broker->sessions &&
	    (least + 1 < summary.reclaim ||
	     (reserve_epochs(broker, least + 1) == 0 &&
	      broker_wait_durable(broker, broker->applied) == 0)))
		broker->reclaim_epoch = least + 1;
	update_hurry(broker, broker->reclaim_epoch != before);
	broker_publish_reclaim(broker);
	if (broker->hurry_ns && was_calm)
		send_hurry_notes(broker);
}

void broker_hurry_asked_for(struct reef_broker *broker)
{
	if (broker->hurry_asked)
		return;
	broker->hurry_asked = true;
	broker_wake(broker);
}

/* --- the sampler --- */

/* A quarter of the shortest lease. */
static uint64_t sample_period_ns(const struct reef_broker *broker)
{
	const struct broker_session *session = broker->sessions;
	uint64_t ttl_ns =
		reef_state_setting(broker->state, REEF_SETTING_LEASE_TTL_NS);

	for (; session; session = session->next)
		if (session->ttl_ns < ttl_ns)
			ttl_ns = session->ttl_ns;
	return ttl_ns / 4;
}

/* How long to pause between two looks at the words. */
static uint64_t next_pause_ns(const struct reef_broker *broker)
{
	uint64_t period_ns = sample_period_ns(broker),
		 hurry_ns = broker->hurry_ns;

	if (!hurry_ns && broker->hurry_asked)
		hurry_ns = HURRY_NS / 2;
	return hurry_ns && hurry_ns < period_ns ? hurry_ns : period_ns;
}

/* Handle pending input, within a bound: somebody may go on sending for ever. */
static void handle_input(struct reef_broker *broker)
{
	int i;

	for (i = 0; i < 64 && reef_port_poll(broker->port) > 0; i++)
		reef_fiber_yield();
	reef_fiber_yield();
}

static void sampler_main(struct reef_broker *broker, uint32_t ignored)
{
	uint64_t last_ns = reef_now_ns(), passed_ns, period_ns;
	int rc = 0;

	while (rc == 0 && !broker->health) {
		period_ns = next_pause_ns(broker);
		passed_ns = reef_now_ns() - last_ns;
		if (passed_ns < period_ns) {
			rc = broker_sleep(broker, period_ns - passed_ns);
			continue;
		}
		last_ns = reef_now_ns();
		broker->hurry_asked = false;
		handle_input(broker);
		judge_sessions(broker);
		spawn_finishers(broker);
		advance_reclaim_epoch(broker);
	}
}

int broker_lease_start(struct reef_broker *broker)
{
	spawn_finishers(broker);
	return broker_spawn(broker, sampler_main, 0);
}
