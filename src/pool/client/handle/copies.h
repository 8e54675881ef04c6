/* copies.h - accesses to memory that has two copies: which are done where, and
 * in which order. The words of both are the same but for what is under way.
 *
 *   pin the epoch
 *   W    every WRITE, to both copies; all confirmed
 *   C1   every CAS, at the arbiter
 *   C2   at the primary, in the list's order: the CAS of each winner; for each
 *        loser a CAS to what the arbiter has, and a READ; and every READ
 *   leave when C2 is settled
 *
 * (1) The primary's word is the word: READ asks it alone. It goes from one
 * value to the next only after the arbiter did, and the arbiter lets one value
 *     follow each. So what a READ returned is on both copies.
 * (2) `compare` comes from the primary, or from a CAS of one's own that is
 * done, never from a guess. So the arbiter is ahead by at most one value, and
 * who loses there and finds the primary at `compare` knows what follows: it
 *     helps. Nobody waits for the dead, and nothing is logged.
 * (3) A helper that is late compares with a value that does not come back: R9,
 *     and the epoch is pinned throughout.
 * (4) What a CAS publishes is on both copies before the arbiter decides: else a
 *     helper would publish at the primary what that does not have yet.
 * (5) A CAS in doubt is settled, and then looked for at the arbiter. The
 * primary may have the old value although it has won. Whoever acts on having
 * won puts something of its own into the operand.
 *
 * Which memory has copies, and where they are, is not known here yet: the
 * caller says so. What is done when a copy is lost is not done here.
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_COPIES_H
#define REEF_POOL_CLIENT_HANDLE_COPIES_H

#include <reef/reef.h>

#define CLIENT_COPIES_MAX 64 /* accesses in a list */

struct client_copies {
	struct reef *reef;
	/* Where the arbiter has what the primary has at that address. */
	uint64_t (*arbiter_of)(void *context, uint64_t address);
	void *context;
};

/* As reef_execute, for addresses of the primary.  -E2BIG: the list is too long;
 * nothing happened.  -REEF_EINDOUBT also: a CAS has won, and the primary could
 * not be reached. */
int client_copies_execute(const struct client_copies *copies,
			  struct reef_access *accesses, uint32_t count);

#endif
