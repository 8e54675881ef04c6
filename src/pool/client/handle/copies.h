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
 * A list without CAS is done in W, with its READs. An FAA is a CAS whose value
 * to compare with is READ in W, and which is repeated until it wins; one that
 * is REEF_BLIND is added at both copies, in W. What follows an access that is
 * REEF_ORDERED is a list of its own.
 *
 * (1) The primary's word is the word: READ asks it alone. It goes from one
 *     value to the next only after the arbiter did, and the arbiter lets one
 *     value follow each. So what a READ returned is on both copies.
 * (2) `compare` comes from the primary, or from a CAS of one's own that is
 *     done, never from a guess. So the arbiter is ahead by at most one value,
 *     and who loses there and finds the primary at `compare` knows what
 *     follows: it helps. Nobody waits for the dead, and nothing is logged.
 * (3) A helper that is late compares with a value that does not come back: R9,
 *     and the epoch is pinned throughout.
 * (4) What a CAS publishes is on both copies before the arbiter decides: else a
 *     helper would publish at the primary what that does not have yet.
 * (5) A CAS in doubt is settled, and then repeated at the arbiter. The primary
 *     may have the old value although it has won. Whoever acts on having won
 *     puts something of its own into the operand. An FAA cannot: it stays in
 *     doubt, if its sum is found there.
 * (6) All parts of a phase are posted in one view, the one that their places
 *     were taken from; a part that was refused is not repeated elsewhere before
 *     the places were looked up anew. Memory gets other keys whenever its
 *     copies change, so what a copy accepts is of the row that it was meant
 *     for.
 * (7) If the row of a word has changed since the arbiter decided, whoever
 *     arbitrates now is asked again. Our operand there, or `compare`, which
 *     then becomes it: won. Anything else: others have followed, if this is the
 *     copy where we had won; else it is in doubt.
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_COPIES_H
#define REEF_POOL_CLIENT_HANDLE_COPIES_H

#include <reef/reef.h>

struct client_copies;

/* Begin the accesses of a list that are `pending` (their status). header: the
 * word that goes in front of the first one, or NULL. What is not done in the
 * end is still `pending`. NULL: no memory. */
struct client_copies *client_copies_begin(struct reef *reef,
					  struct reef_access *accesses,
					  uint32_t count, int pending,
					  const uint64_t *header);
/* As those of a call. */
bool client_copies_step(struct client_copies *copies);
int client_copies_wait(struct client_copies *copies);
bool client_copies_is_ready(const struct client_copies *copies);
/* Give its storage back, after it has ended. */
void client_copies_end(struct client_copies *copies);
void client_copies_free(struct client_copies *copies); /* and those after it */

#endif
