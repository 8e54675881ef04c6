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
 *     may have the old value although it has won. What is found there, if it is
 *     not `compare`, is helped to the primary, and the CAS stays in doubt: our
 *     operand may be another's, who deleted the same, or added the same. So who
 *     then READs the word and finds something of its own there knows.
 * (6) All parts of a phase are posted in one view, the one that their places
 *     were taken from; a part that was refused is not repeated elsewhere before
 *     the places were looked up anew. Memory gets other keys whenever its
 *     copies change, so what a copy accepts is of the row that it was meant
 *     for.
 * (7) If the row of a word has changed since the arbiter decided, whoever
 *     arbitrates now is asked again. `compare` there, which becomes our
 *     operand: won. Anything else: won, if this is the memory where we had won,
 *     by its copy's id; else in doubt, as in (5).
 * (8) While the keeper is asked where a copy is, which takes as long as a
 *     failover, the epoch is let go, if nothing of the list has begun: then
 *     nothing was compared yet. Who is inside reef_enter holds on to its own
 *     all the same, as it may have read what is reused after that.
 *
 * Where both copies are in place, copies_near.c does the same there.
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_COPIES_H
#define REEF_POOL_CLIENT_HANDLE_COPIES_H

#include <reef/reef.h>

struct client_copies;

/* Do accesses in place (copies_near.c), in turn, where all copies that they
 * need are; READs that do not count are repeated by call.c. *rc: as
 * reef_execute. header: as below. False: not in place, and nothing happened. */
bool client_copies_near(struct reef *reef, struct reef_access *accesses,
			uint32_t count, const uint64_t *header, int *rc);

/* Fetch both copies of what is about to be written, if they are in place;
 * entered (near.h). */
void client_copies_hint(struct reef *reef, uint64_t address, uint64_t length);

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
