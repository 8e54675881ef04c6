/* barrier.h - the parts of a barrier, to each other.
 *
 *   barrier.c         the interface; rounds: steps, messages, waiting
 *   barrier_view.c    who takes part in a round; looking; the dead
 *   barrier_change.c  members come, leave and are struck off
 *   barrier_near.c    messages of steps through memory, on one machine
 *
 * The protocol stands in barrier.c.
 *
 * Thread: owner of the handle. */
#ifndef REEF_SYNC_BARRIER_H
#define REEF_SYNC_BARRIER_H

#include "base/spin.h"
#include "object/object.h"
#include "pool/client/inbox/inbox.h"
#include "sync/word.h"

#include <reef/sync.h>

#define BARRIER_MEMBERS_MAX 4096u
#define BARRIER_STEPS_MAX 12u /* log2 of it */
#define BARRIER_FORMAT 1u

/* --- in memory --- */

/* C, the first word: version 23 | pending 1 | round 40 (rounds begun). */
#define BARRIER_DROPPED UINT64_MAX
#define BARRIER_PENDING (UINT64_C(1) << 40)
#define BARRIER_ROUND_MAX (BARRIER_PENDING - 1)
#define BARRIER_VERSIONS (UINT64_C(1) << 23)

static inline uint64_t barrier_round_of(uint64_t c)
{
	return c & BARRIER_ROUND_MAX;
}

static inline uint64_t barrier_version_of(uint64_t c)
{
	return c >> 41;
}

/* X, the second: version 48 | kind 3 | place 12 | busy 1. */
enum barrier_change_kind {
	BARRIER_JOIN = 1,
	BARRIER_LEAVE,
	BARRIER_STRIKE, /* it is dead */
};

enum barrier_state { /* of a place: flags of its word */
		     BARRIER_FREE,
		     BARRIER_JOINING,
		     BARRIER_MEMBER,
		     BARRIER_LEFT,
		     BARRIER_DEAD,
};

struct barrier_place {
	uint64_t word;	 /* session, member, tenure, state; by CAS */
	uint64_t inbox;	 /* 0: none; its owner's WRITE, before it joins */
	uint64_t joined; /* C, pending, when it joined; by CAS */
	uint64_t gone;	 /* C, pending, when it left or was struck off; CAS */
	uint64_t mark;	 /* how far it got, see barrier.c; its owner's WRITE */
};

struct barrier_body {
	uint64_t c, x;
	uint64_t reserved[6];
	struct barrier_place places[];
};
static_assert(sizeof(struct barrier_body) == 64, "layout");
static_assert(sizeof(struct barrier_place) == 40, "layout");

/* After the places, one for each; as many steps as they can have. */
struct barrier_near {
	uint64_t awake;	    /* 1: it looks before it sleeps */
	uint64_t came[][2]; /* by step, and round modulo 2 */
};

/* mark: round 62 | finished 1 (its owner writes no more) | passed 1. */
#define BARRIER_MARK_PASSED 1u
#define BARRIER_MARK_FINISHED 2u

/* --- in the process --- */

struct barrier_partner { /* who gets our message of a step */
	uint64_t inbox, word;
	uint32_t place;
};

struct barrier_group {	      /* who takes part in a round */
	uint64_t from, until; /* rounds that it is true of; 0, 0: none */
	uint64_t tag;	      /* tells it from every other group */
	uint32_t count, steps;
	uint32_t beginner; /* place */
	bool is_old;	   /* the beginner took part in the round before */
	bool has_us;
	struct barrier_partner partners[BARRIER_STEPS_MAX];
	uint16_t before[BARRIER_STEPS_MAX]; /* places whose messages we get */
};

struct barrier_message {
	uint64_t round, tag;
};

/* A sender is at most two rounds ahead of what is next for us. */
#define BARRIER_WINDOW 4u

struct reef_barrier {
	struct object object;
	struct reef *reef;
	struct reef_watch watch;
	uint64_t inbox; /* 0: none */
	uint64_t word;	/* ours, state 0 */
	uint32_t place, places_max, needed;
	uint16_t member;
	bool joined;
	uint64_t first, last; /* our rounds; last UINT64_MAX: not left */
	uint64_t passed;      /* the round that is behind us */
	bool came;	      /* to the next */
	bool look;	      /* something is new: look before going on */
	bool slow;	      /* waited long: leave a mark, suspect others */
	bool regrouped;	      /* in this round */
	bool finished;
	bool is_near;	/* in this round */
	bool is_awake;	/* as our place says */
	bool was_awake; /* ever: not all messages were sent */
	struct reef_spin spin;
	uint64_t marked; /* what stands in our place */
	uint64_t ahead;	 /* a round that somebody told us it passed */
	uint64_t odd;	 /* the last tag that made us look */
	struct barrier_message hint;	/* that others know of another group */
	uint32_t step;			/* of the round; below group.steps */
	bool sent;			/* its message */
	uint64_t look_at_ns, period_ns; /* 0: not parked in this round yet */
	uint64_t told;			/* version up to which deaths are */
	uint32_t suspect;		/* place to begin with */
	uint64_t sends;			/* messages of steps; for tests */
	uint64_t c, x;			/* as last looked at */
	struct barrier_place *places;
	uint16_t *order; /* places of the group, by rank */
	struct barrier_group group;
	struct barrier_message got[BARRIER_WINDOW][BARRIER_STEPS_MAX][2];
};

uint64_t barrier_sends(const struct reef_barrier *barrier);

static inline enum barrier_state barrier_state_of(uint64_t word)
{
	return (enum barrier_state)(word & 0xff);
}

static inline uint64_t barrier_tenure_of(uint64_t word)
{
	return word & ~UINT64_C(0xff);
}

static inline uint64_t barrier_place_address(const struct reef_barrier *barrier,
					     uint32_t place)
{
	return barrier->object.body + sizeof(struct barrier_body) +
	       (uint64_t)place * sizeof(struct barrier_place);
}

static inline uint32_t barrier_steps_of(uint32_t count)
{
	return count > 1 ? 32 - (uint32_t)__builtin_clz(count - 1) : 0;
}

/* Of a near part: whole cache lines. */
static inline uint64_t barrier_near_size(uint32_t places_max)
{
	return (sizeof(struct barrier_near) +
		barrier_steps_of(places_max) * UINT64_C(16) + 63) /
	       64 * 64;
}

static inline uint64_t barrier_near_address(const struct reef_barrier *barrier,
					    uint32_t place)
{
	return barrier_place_address(barrier, barrier->places_max) +
	       place * barrier_near_size(barrier->places_max);
}

/* --- barrier_near.c --- */

/* Find out, before a round, whether the barrier is near. */
void barrier_near_begin(struct reef_barrier *barrier);
/* Send this step through memory.  1: done.  0: it takes a message, too. */
int barrier_near_send(struct reef_barrier *barrier);
/* Look for this step's message in memory before we sleep.  1: it has come.  0:
 * sleep; can_wait: it may look for a while. */
int barrier_near_wait(struct reef_barrier *barrier, bool can_wait);

/* --- barrier_view.c --- */

/* READ all words, as of one version; a change that is under way is finished
 * first.  -ENOENT: dropped.  -REEF_EFENCED: our place is not ours.  -EBUSY:
 * others changed something at every attempt. */
int barrier_read_view(struct reef_barrier *barrier);
/* Make the group of a round from the last view. */
void barrier_group_make(struct reef_barrier *barrier, uint64_t round);
/* True if the last view shows that everybody has come to our round. */
bool barrier_is_complete(const struct reef_barrier *barrier);
/* True if, by the last view, our round may begin. */
bool barrier_may_begin(const struct reef_barrier *barrier);
/* True if the beginner came and did not begin our round, and we may. */
bool barrier_is_kept_up(const struct reef_barrier *barrier);
/* Strike off a member that our round waits for and that is dead.  1: one was;
 * take a new view. */
int barrier_strike_dead(struct reef_barrier *barrier);
/* True if there is a death that our caller was not told of; *session: whose. */
bool barrier_next_dead(struct reef_barrier *barrier, uint32_t *session);
/* How many changes ago C was as in that stamp. */
uint64_t barrier_age(const struct reef_barrier *barrier, uint64_t c);

/* --- barrier_change.c --- */

/* Finish the change that x, as read, tells of. */
int barrier_finish_change(struct reef_barrier *barrier, uint64_t x);
static inline bool barrier_is_busy(uint64_t x)
{
	return x & 1;
}
/* Change the state of a place that is, or was, of that word's tenure.  -ESTALE:
 * it is another's by now. */
int barrier_change(struct reef_barrier *barrier, uint32_t place, uint64_t word,
		   enum barrier_change_kind kind);
/* Take a place and join.  -ENOSPC: there is none. */
int barrier_join(struct reef_barrier *barrier);
/* 1: the session has ended, for certain.  0: it has not, or nobody knows. */
int barrier_is_ended(struct reef_barrier *barrier, uint32_t session);

#endif
