/* lease.h - a lease and those who take part in it; elections stand on it.
 *
 * The body of the object:
 *
 *     0  floor    of the terms: at most the present term, and less than
 *                 LEASE_TERMS / 2 below it; CAS only, never goes back
 *     8  holder   session 32 | member 10 | term 22 (its lower bits); session 0:
 *                 nobody, the term is the last one's; CAS only
 *    64  record   of the holder: token, text, renewals, checksum; WRITTEN by
 *                 whom the holder word names, never by CAS or FAA
 *   192  places   of those who wait or watch: word (CAS), inbox (WRITE)
 *
 *   lease.c       take, renew, give, look: the words
 *   lease_wait.c  places, messages, waiting
 *   election.c    a lease that lasts as long as its holder's session
 *
 * The rules are in lease.c.
 *
 * Thread: owner of the handle. */
#ifndef REEF_SYNC_LEASE_H
#define REEF_SYNC_LEASE_H

#include "object/object.h"
#include "pool/client/inbox/inbox.h"

#include <reef/sync.h>
#include <stdatomic.h>

#define LEASE_TERM_BITS 22
#define LEASE_TERMS (UINT64_C(1) << LEASE_TERM_BITS)
#define LEASE_DROPPED UINT32_MAX /* in place of a session: for good */
#define LEASE_TEXT 64
#define LEASE_PLACES 64 /* whoever finds none looks for itself */

struct lease_record {
	uint64_t renewals; /* never the same twice */
	uint64_t token;
	uint64_t word; /* the holder's */
	char text[LEASE_TEXT];
	uint64_t checksum; /* of all before it */
};

enum lease_place_kind {
	LEASE_WAITS = 1,   /* to take it */
	LEASE_WATCHES = 2, /* who has it */
};

struct lease_place {
	uint64_t word; /* owner: session, member; lease_wait.c, 3 */
	uint64_t inbox;
};

struct lease_body {
	uint64_t floor, holder, reserved[6];
	struct lease_record record;
	uint64_t spare[4];
	struct lease_place places[LEASE_PLACES];
};
static_assert(offsetof(struct lease_body, record) == 64, "layout");
static_assert(offsetof(struct lease_body, places) == 192, "layout");

/* One look at the words. */
struct lease_sight {
	uint64_t floor, holder;
	uint64_t term; /* all 64 bits */
	uint64_t posted_ns, done_ns;
	struct lease_record record;
	bool is_whole; /* the record is, and of this term */
};

struct reef_lease {
	struct object object;
	uint64_t duration_ns; /* 0: as long as the session */
	uint64_t self;	      /* session and member, as in the words */
	uint16_t member;
	char text[LEASE_TEXT];
	/* What we have: */
	uint64_t word; /* the holder word, if it may be ours; 0: it is not */
	bool is_held;  /* a take said so, and nothing since told otherwise */
	uint64_t since_ns;
	struct lease_record record;
	/* What we saw of others: when this first was so. */
	uint64_t seen_holder, seen_renewals, seen_ns;
	uint32_t ended; /* a session that we saw ENDED */
	/* While waiting: */
	struct reef_watch watch;
	uint64_t inbox; /* 0: none */
	uint32_t place; /* LEASE_PLACES: none */
	enum lease_place_kind place_kind;
	uint64_t place_word; /* as we put it there */
	bool is_hinted;
	uint64_t pause_ns, look_ns; /* when the holder's session is due */
	_Atomic bool is_canceled;
};

/* As reef_lease_open; kind: OBJECT_LEASE or OBJECT_ELECTION. text: at most
 * LEASE_TEXT - 1 bytes. */
int lease_open(struct reef_space *space, const char *name,
	       enum object_kind kind, const struct reef_lease_options *options,
	       const char *text, struct reef_lease **out);
/* As reef_lease_drop, of that kind. */
int lease_drop(struct reef_space *space, const char *name,
	       enum object_kind kind);

/* READ the words and the record, and note when this was first so.  -EBUSY: the
 * floor moved at every attempt. */
int lease_observe(struct reef_lease *lease, struct lease_sight *sight);
/* True if this participant's view says that the lease's node died. No
 * operation. */
bool lease_is_lost(const struct reef_lease *lease);
/* Try once to take it.  -EBUSY: it is another's. Asks for that one's session
 * when its time has come (look_ns). */
int lease_attempt(struct reef_lease *lease);
/* As reef_lease_look; a holder whose session has ended is nobody. *is_whole:
 * the holder has written who it is. */
int lease_read_living(struct reef_lease *lease, struct reef_lease_info *out,
		      bool *is_whole);

/* election.c, for tests. */
struct reef_election;
struct reef_lease *election_lease(struct reef_election *election);

static inline uint64_t lease_at(const struct reef_lease *lease, size_t offset)
{
	return lease->object.body + offset;
}
static inline uint32_t lease_session(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

/* --- lease_wait.c --- */

/* Take a place, so that whoever gives or takes the lease sends us a message. If
 * that cannot be done, we look for ourselves. */
void lease_enlist(struct reef_lease *lease, enum lease_place_kind kind);
/* Leave the place. pass_on: perhaps we were told that the lease is free, and
 * did not take it; if it is free, tell another. */
void lease_delist(struct reef_lease *lease, bool pass_on);
/* Plan when to ask for the holder's session again: after a growing pause; soon:
 * it is being fenced. */
void lease_plan(struct reef_lease *lease, bool soon);
/* Wait for a message, for when it is time to look again, or until deadline.
 * -ETIMEDOUT: the deadline.  -ECANCELED.  -REEF_EFENCED. */
int lease_wait(struct reef_lease *lease, uint64_t deadline_ns);
/* The deadline for lease_wait, of a timeout that begins now. */
uint64_t lease_deadline(uint64_t timeout_ns);
/* Send messages to those in places (as read after the word had changed): to all
 * who watch, and, if the lease is free, to one who waits. */
void lease_wake_others(struct reef_lease *lease, bool is_free,
		       const struct lease_place *places);

#endif
