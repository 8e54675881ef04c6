/* election.c - a leader is whoever has a lease that lasts as long as its
 * session.
 *
 *   stands --win--> leads --resign, close--> (nobody) --> another leads
 *                     |
 *                     +--its session: EXPIRED --> FENCED --> another leads
 *
 * (1) A term begins by one CAS of the lease's word, and ends by one of the
 *     leader itself, or by another's after the leader's session was fenced at
 *     every node: then nothing that it wrote can follow. So while a leader's
 *     writes reach memory, nobody else leads; and one that stood still finds
 *     out at its next call, which is refused (-REEF_EFENCED).
 * (2) A leader that dies is EXPIRED after at most five quarters of a TTL, and
 *     fenced as soon as the nodes have answered; candidates look every quarter
 *     of a TTL, and more often once it is EXPIRED. So the next one leads within
 *     two TTLs, if the nodes can be reached. */
#include "sync/lease.h"

#include <errno.h>
#include <stdlib.h>

struct reef_election {
	struct reef_lease *lease;
};

int reef_election_open(struct reef_space *space, const char *name,
		       uint32_t flags, const char *candidate,
		       struct reef_election **out)
{
	const struct reef_lease_options options = {.flags = flags};
	struct reef_election *election = calloc(1, sizeof(*election));
	int rc;

	if (!election)
		return -ENOMEM;
	rc = lease_open(space, name, OBJECT_ELECTION, &options,
			candidate ? candidate : "", &election->lease);
	if (rc) {
		free(election);
		return rc;
	}
	*out = election;
	return 0;
}

void reef_election_close(struct reef_election *election)
{
	if (!election)
		return;
	reef_lease_close(election->lease);
	free(election);
}

int reef_election_drop(struct reef_space *space, const char *name)
{
	return lease_drop(space, name, OBJECT_ELECTION);
}

int reef_election_win(struct reef_election *election, uint64_t timeout_ns,
		      uint64_t *term)
{
	return reef_lease_take(election->lease, timeout_ns, term);
}

int reef_election_check(const struct reef_election *election)
{
	const struct reef_lease *lease = election->lease;

	if (reef_lease_left(lease))
		return 0;
	return lease->is_held && lease_is_lost(lease) ? -REEF_ELOST : -EPERM;
}

int reef_election_resign(struct reef_election *election)
{
	return reef_lease_give(election->lease);
}

void reef_election_cancel(struct reef_election *election)
{
	reef_lease_cancel(election->lease);
}

int reef_election_look(struct reef_election *election,
		       struct reef_lease_info *out)
{
	bool is_whole;

	return lease_read_living(election->lease, out, &is_whole);
}

int reef_election_watch(struct reef_election *election,
			const struct reef_lease_info *last, uint64_t timeout_ns,
			struct reef_lease_info *out)
{
	uint64_t deadline_ns = lease_deadline(timeout_ns);
	struct reef_lease *lease = election->lease;
	struct reef_lease_info info;
	bool is_whole;
	int rc;

	lease->look_ns = 0;
	lease->pause_ns = 0;
	lease_enlist(lease, LEASE_WATCHES);
	do {
		rc = lease_read_living(lease, &info, &is_whole);
		/* One that has not said who it is does not lead yet; it tells
		 * us when it does. */
		if (!rc && is_whole &&
		    (info.session != last->session ||
		     info.token != last->token))
			break;
		if (!rc)
			rc = lease_wait(lease, deadline_ns);
	} while (!rc);
	lease_delist(lease, false);
	if (!rc)
		*out = info;
	return rc;
}

struct reef_lease *election_lease(struct reef_election *election)
{
	return election->lease;
}
