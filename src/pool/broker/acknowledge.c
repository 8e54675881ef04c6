/* acknowledge.c - who has let go of what changed in the pool.
 *
 * Every change after which an old view could do harm (a node is gone, or is in
 * a new life) is a pool epoch. Each session tells in its renewal up to which
 * one it has let go: its view is of that epoch, and it has no link to a node
 * that was gone by then, nor anything mapped of one. Whoever is about to do
 * what an old view must not meet waits for all of them:
 *
 *   epoch is durable, published
 *      |  HURRY to those that are behind       client: READs the table, asks
 *      v                                       for what changed, drops links,
 *   every session: acknowledged >= epoch  <--- waits for its handles, renews
 *                  or FENCED                   with the epoch, and HURRY
 *      |
 *      v
 *   broker_epoch_wait returns
 *
 * (1) Whoever opens a session or a space after the epoch was applied is told
 *     what is true since then, and has nothing from before. A session from
 *     before this start may have any space open: its grants are not journaled.
 * (2) EXPIRED is not enough: until its fence is confirmed, a session that was
 *     ended goes on at the nodes.
 * (3) Who does not acknowledge within its ttl is ended (lease.c, 12). So
 *     nobody waits for ever, but for a node that does not confirm a fence and
 *     is not gone either, which lasts for node_ttl at most.
 * (4) What is acknowledged only rises. A word that is ahead of the state says
 *     nothing.
 * (5) Words are looked at by lease.c: soon after a HURRY, which tells that one
 *     has changed, and in any case every quarter of a lease. */
#include "pool/broker/internal.h"

#include "base/mutant.h"

/* What somebody waits for. */
struct broker_awaited {
	uint64_t epoch;
	uint32_t space; /* 0: any */
	struct broker_awaited *next;
};

/* True if the session may have that space open (1). */
bool broker_session_may_have_open(const struct broker_session *session,
				  uint32_t space)
{
	uint32_t i;

	if (!space || session->is_from_before)
		return true;
	for (i = 0; i < session->grants_count; i++)
		if (session->grants[i].space == space)
			return true;
	return false;
}

static bool is_behind(const struct broker_session *session,
		      const struct broker_awaited *awaited)
{
	bool has_ended = session->fenced;

	if (REEF_MUTATED(BROKER_ACK_MISSING))
		has_ended = session->ending;
	return !has_ended && session->acknowledged < awaited->epoch &&
	       broker_session_may_have_open(session, awaited->space);
}

uint64_t broker_awaited_of(const struct reef_broker *broker,
			   const struct broker_session *session)
{
	const struct broker_awaited *awaited = broker->awaited;
	uint64_t least = 0;

	for (; awaited; awaited = awaited->next)
		if (is_behind(session, awaited) &&
		    (!least || awaited->epoch < least))
			least = awaited->epoch;
	return least;
}

void broker_note_acknowledged(struct reef_broker *broker,
			      struct broker_session *session, uint64_t epoch)
{
	struct reef_state_summary summary;

	if (epoch <= session->acknowledged)
		return;
	reef_state_summary(broker->state, &summary);
	if (epoch > summary.pool_epoch) /* (4) */
		return;
	session->acknowledged = epoch;
	if (broker->awaited)
		broker_wake(broker);
}

/* How many sessions are behind; each gets a note, if asked for. */
static uint32_t count_behind(const struct reef_broker *broker,
			     const struct broker_awaited *awaited, bool note)
{
	const struct broker_session *session = broker->sessions;
	uint32_t count = 0;

	for (; session; session = session->next) {
		if (!is_behind(session, awaited))
			continue;
		count++;
		/* It may be lost: they renew by themselves, too. */
		if (note && session->peer)
			(void)reef_rpc_note(session->peer, REEF_POOL_HURRY,
					    NULL);
	}
	return count;
}

/* How long to sleep until those who are behind get another note. */
static uint64_t note_period_ns(const struct reef_broker *broker)
{
	return reef_state_setting(broker->state, REEF_SETTING_LEASE_TTL_NS) / 4;
}

static int wait_for_all(struct reef_broker *broker,
			const struct broker_awaited *awaited)
{
	uint64_t noted_ns = 0, now_ns, period_ns;
	int rc = 0;

	while (rc == 0) {
		period_ns = note_period_ns(broker);
		now_ns = reef_now_ns();
		if (!count_behind(broker, awaited,
				  !noted_ns || now_ns - noted_ns >= period_ns))
			return 0;
		if (!noted_ns || now_ns - noted_ns >= period_ns)
			noted_ns = now_ns;
		rc = broker_sleep(broker, noted_ns + period_ns - now_ns);
		if (rc == 0)
			rc = broker->health;
	}
	return rc;
}

int broker_epoch_wait(struct reef_broker *broker, uint64_t epoch,
		      uint32_t space)
{
	struct broker_awaited awaited = {epoch, space, broker->awaited}, **at;
	int rc;

	broker->awaited = &awaited;
	rc = broker_publish_pool_epoch(broker);
	if (rc == 0)
		rc = wait_for_all(broker, &awaited);
	for (at = &broker->awaited; *at != &awaited; at = &(*at)->next)
		;
	*at = awaited.next;
	return rc;
}
