/* lock.h - the inside of a lock: its words, its invariants, its parts.
 *
 * One core serves all kinds. In the object's body: a *head* of 64 bytes, whose
 * first word H says who holds it exclusively and what a giver has to look at;
 * a *ring* of places, one for each writer that waits; and a *slot* for each
 * reader. A ticket is a number that the tail T gives out (FAA); ticket t waits
 * at place t modulo their number. Tickets are 64 bits long, words have the last
 * 14 of them.
 *
 *   H      session, member: the writer; 0: free; ~0: dropped, for good
 *          ticket: `next`, the first that is not finished
 *          flags: WAITERS, READERS, INHERITED, WOKEN, turns (or GRANTED)
 *   place  (nobody, t - N, DONE)   of the lap before: not named yet, a *hole*
 *          (X, t, WAITING)         X waits, and looks at H by itself
 *          (X, t, WAITING|PARKED)  X is to be woken; its inbox stands there
 *          (X, t, LEFT)            X gave up
 *          (nobody, t, DONE)       X took it by itself; or t was poisoned
 *   slot   0, (X, ACTIVE), (X, WAITING), (X, ADMITTED)
 *
 * What holds always:
 *  (1) Who may write what the lock protects: exclusively, whom H names,
 *      unless H is GRANTED and the place of ticket next - 1 is LEFT by it; and
 *      only after it has seen, after H named it, that no slot is ACTIVE or
 *      ADMITTED. Shared: whose slot is ADMITTED; or whose slot is ACTIVE and
 *      who saw, after it was, that H names nobody and has READERS.
 *  (2) H is taken from whom it names by itself; or when its session has ENDED
 *      (so that nothing of it can come after), and then gets INHERITED; or when
 *      it is GRANTED and that ticket LEFT. Always by CAS from what was seen.
 *      The last is safe against a late CAS: LEFT is for good, and H does not
 *      come back to (X, next, GRANTED) within 16,384 tickets.
 *  (3) INHERITED stays in H until one gives it who was told.
 *  (4) Every ticket before `next` is finished: granted, LEFT, DONE. `next` does
 *      not go back. A ticket is only taken when next is near, so a place is
 *      named anew only when its ticket before is finished, and never that of
 *      next - 1. Whoever passes a hole poisons it first, so that its owner
 *      learns of it and takes another ticket.
 *  (5) Whoever sleeps has made its place PARKED, or its slot WAITING, and seen
 *      H held, with WAITERS or READERS, after that. Whoever makes H free or
 *      another's, or clears such a flag, looks at places and slots after that,
 *      and wakes whom it finds and who may be concerned. So a wake-up is lost
 *      only with a message, or with its sender. WAITERS is cleared by a giver
 *      while H is still its own: so H becomes free while a writer sleeps only
 *      where one may be passed (SHIFT), or where the holder is dead; else the
 *      writer has H handed over, and nobody can be quicker.
 *  (6) WOKEN: a waiter was told that H is free, and has not taken it nor parked
 *      again since. It clears WOKEN when it does, or leaves. WOKEN without
 *      WAITERS: dropped while it is held.
 *  (7) A message is a hint to look, whoever sent it. What counts is read.
 *      Whoever waits also looks by itself, after a growing time.
 *  (8) Words of places and slots are changed by CAS only; inboxes, `phase` and
 *      the drainer by WRITE only: of one's own place and slot before they say
 *      PARKED or WAITING, and by who holds H. An inbox is read after its word.
 *
 * Exclusive, for one participant:
 *
 *   idle --CAS H free -> me-----------------------------> drains --> holds
 *    |  held                                                ^  (no READERS:
 *    v                                                      |   at once)
 *   queued (looks for a moment, where that costs nobody anything; then PARKED)
 *    |  ^  --H = (me, t + 1, GRANTED), by a giver-----------+
 *    |  ^  --H free: CAS to me, place DONE------------------+
 *    |  |  --its holder has ENDED, or LEFT: CAS to me-------+
 *    |  +--- message, or time to look
 *    v  timeout, cancel: place LEFT; H = (me, t + 1, GRANTED) meanwhile: CAS it
 *   idle                   to not GRANTED: holds after all
 *
 *   holds --nobody waits: CAS WAITERS away, look again; CAS H to free --> idle
 *         --SHIFT, turns left: CAS H to free, wake the first
 *         --else: CAS H to the first that waits, wake it; if it LEFT, on to
 *           the next
 *
 * Readers: lock_readers.c.
 *
 * In a space with two copies, words that others change and that come back to
 * what they were could have a holder of long ago brought back by a late helper
 * (R9). There a lock is H alone, of the kind SPIN: no ring, no slots. The
 * ticket in H is its *term* then, one more each time that it is taken. An epoch
 * ends before the first term of each quarter of them, so that none comes back
 * while somebody may compare with it.
 *
 * Thread: owner of the handle. */
#ifndef REEF_SYNC_LOCK_H
#define REEF_SYNC_LOCK_H

#include "base/random.h"
#include "object/object.h"
#include "pool/client/inbox/inbox.h"
#include "sync/word.h"

#include <reef/sync.h>
#include <stdatomic.h>
#include <stddef.h>

/* --- words --- */

#define LOCK_WAITERS 1u
#define LOCK_READERS 2u
#define LOCK_WAS_INHERITED 4u
#define LOCK_WOKEN 8u
#define LOCK_TURN 16u  /* turns count in these */
#define LOCK_TURNS 15u /* that many: GRANTED, and no turns */
#define LOCK_GRANTED (LOCK_TURNS * LOCK_TURN)
#define LOCK_PASSES_MAX (LOCK_TURNS - 1)
#define LOCK_DROPPED UINT32_MAX /* a session that never is */

#define PLACE_WAITING 1u
#define PLACE_DONE 2u
#define PLACE_LEFT 4u
#define PLACE_PARKED 8u /* with WAITING */

#define SLOT_ACTIVE 1u
#define SLOT_WAITING 2u
#define SLOT_ADMITTED 4u
#define SLOT_INHERITED 8u /* with ADMITTED: nobody has repaired yet */

#define LOCK_WHO (~UINT64_C(0) << 22) /* session and member, in a word */
#define LOCK_FORMAT 1
#define LOCK_LOOKS 64u
#define LOCK_WINDOW 8 /* places that are read at once */

struct lock_head { /* in memory, at the body's begin */
	uint64_t holder;
	uint64_t tail;
	uint64_t phase;	  /* writers that came while readers waited */
	uint64_t drainer; /* the writer that waits for readers to leave */
	uint64_t drainer_inbox;
	uint64_t reserved[3];
};
static_assert(sizeof(struct lock_head) == 64, "layout");

enum lock_held {
	LOCK_HELD_NOT,
	LOCK_HELD_EXCLUSIVE,
	LOCK_HELD_SHARED,
	LOCK_UNSETTLED, /* not held, but after an error words may name us */
};

struct reef_lock {
	/* What the quick path touches comes first. */
	struct reef *reef;
	uint64_t head; /* address of H */
	uint64_t me;   /* session and member, as in a word */
	uint64_t seen; /* H as it was when it was last known to be free */
	uint64_t word; /* H as we last knew it, while we hold it */
	enum lock_held held;
	bool queued;	 /* our place is named */
	bool failed;	 /* an access failed, so that words may name us */
	bool parked;	 /* we sleep, or are about to; for tests */
	bool woken;	 /* a message came since it was cleared */
	bool granted;	 /* mutant LOCK_STALE_TICKET */
	bool no_readers; /* no slot was in use when we took it */
	bool watching;
	enum reef_lock_kind kind;

	bool has_terms;	     /* its space has copies */
	uint64_t ticket;     /* if queued */
	uint64_t place_word; /* of it, as it is */
	uint32_t slot;	     /* where we read, or did last */
	uint64_t slot_word;

	uint64_t window[LOCK_WINDOW]; /* of places, while we hold H */
	uint64_t window_first;
	uint32_t window_count;
	/* SHIFT: who was first when we last let others pass; word 0: none. */
	uint64_t passed_word, passed_ticket;

	struct object object;
	uint64_t ring, ring_inboxes, slots, slot_inboxes; /* addresses */
	uint32_t places, places_max;
	uint32_t readers_max, passes, writers_phase, attempts_max;
	uint32_t looks_max; /* before we park, see lock_spin */
	uint16_t member;
	uint64_t inbox; /* 0: none */
	uint64_t looked_ns;
	uint64_t ttl_ns;
	struct reef_watch watch;
	struct reef_random random;
	uint64_t *slots_seen, *slots_first, *inboxes_seen; /* room for all */
	_Atomic bool cancelled;
};

static inline uint16_t lock_next(uint64_t h)
{
	return sync_word_unpack(h).ticket;
}

static inline uint32_t lock_turns(uint64_t h)
{
	return (h & LOCK_GRANTED) / LOCK_TURN;
}

static inline bool lock_is_granted(uint64_t h)
{
	return (h & LOCK_GRANTED) == LOCK_GRANTED;
}

static inline bool lock_is_free(uint64_t h)
{
	return !(h & LOCK_WHO);
}

static inline bool lock_is_dropped(uint64_t h)
{
	return h >> 32 == LOCK_DROPPED ||
	       (h & (LOCK_WOKEN | LOCK_WAITERS)) == LOCK_WOKEN;
}

static inline bool lock_is_mine(const struct reef_lock *lock, uint64_t h)
{
	return !((h ^ lock->me) & LOCK_WHO);
}

static inline uint64_t lock_with_next(uint64_t h, uint64_t ticket)
{
	const uint64_t mask = (uint64_t)(SYNC_TICKETS - 1) << 8;

	return (h & ~mask) | (ticket << 8 & mask);
}

/* How far `to` is after `from`; 0 if it is not (T and H are not read at once).
 * Both are modulo SYNC_TICKETS. */
static inline uint32_t lock_ahead(uint64_t from, uint64_t to)
{
	uint32_t distance = (uint32_t)(to - from) & (SYNC_TICKETS - 1);

	return distance < SYNC_TICKETS / 4 * 3 ? distance : 0;
}

/* How many tickets from next on may have named their places: those further away
 * wait for these to be finished. */
static inline uint32_t lock_in_line(const struct reef_lock *lock, uint64_t next,
				    uint64_t tail)
{
	uint32_t count = lock_ahead(next, tail);

	return count < lock->places - 1 ? count : lock->places - 1;
}

static inline uint64_t lock_place_word(uint64_t who, uint64_t ticket,
				       uint32_t flags)
{
	return (who & LOCK_WHO) | (ticket & (SYNC_TICKETS - 1)) << 8 | flags;
}

static inline uint64_t lock_place_address(const struct reef_lock *lock,
					  uint64_t ticket)
{
	return lock->ring + (ticket & (lock->places - 1)) * 8;
}

static inline uint64_t lock_place_inbox(const struct reef_lock *lock,
					uint64_t ticket)
{
	return lock->ring_inboxes + (ticket & (lock->places - 1)) * 8;
}

static inline uint64_t lock_slot_address(const struct reef_lock *lock,
					 uint32_t slot)
{
	return lock->slots + slot * UINT64_C(8);
}

/* --- lock_word.c: access, waiting, looking --- */

#define LOCK_READS 3

/* WRITE, CAS, READs, in that order, in one batch. */
struct lock_change {
	uint64_t write_address;
	const void *write; /* NULL: none */
	uint32_t write_length;
	uint64_t address, compare, value;
	uint64_t before; /* out: compare: it was set */
	uint32_t reads_count;
	struct {
		uint64_t address;
		void *to;
		uint32_t length;
	} reads[LOCK_READS];
};
/* Do a change. One in doubt is found out: then `before` is `compare` if the
 * word is `value` now, else what it is now. */
int lock_change(struct reef_lock *lock, struct lock_change *change);
/* Add a READ to a change. */
void lock_change_read(struct lock_change *change, uint64_t address, void *to,
		      uint32_t length);
/* CAS one word, as lock_change does. */
int lock_cas(struct reef_lock *lock, uint64_t address, uint64_t compare,
	     uint64_t value, uint64_t *before);
int lock_read_head(struct reef_lock *lock, struct lock_head *head);

/* Open our inbox, if there can be one, and watch it. */
void lock_listen(struct reef_lock *lock);
/* Send a participant the message that it is to look; inbox 0: it has none, and
 * looks by itself. */
void lock_wake(struct reef_lock *lock, uint64_t inbox, uint64_t who,
	       bool granted);
/* Wake the participant that waits with that ticket, if its place is PARKED. */
void lock_wake_place(struct reef_lock *lock, uint64_t ticket, uint64_t word);

/* How long, and for what, somebody waits. */
struct lock_wait {
	uint64_t deadline_ns; /* UINT64_MAX: none */
	uint64_t period_ns;   /* until it looks by itself */
	uint64_t pause_ns;    /* of the next pause */
	uint32_t looks;	      /* without parking */
	uint32_t attempts;    /* SPIN */
	bool can_wait;
	bool has_ticket; /* which has no place yet */
	bool announced;	 /* to readers */
	bool awake;	 /* since it was woken, or looked by itself */
};
void lock_wait_init(struct reef_lock *lock, struct lock_wait *wait,
		    uint64_t timeout_ns);
/* Sleep until a message comes.  -EAGAIN: none came, it is time to look.
 * -ETIMEDOUT, -ECANCELED. */
int lock_wait(struct reef_lock *lock, struct lock_wait *wait);
/* Pause for a while that grows up to most_ns.  -ETIMEDOUT, -ECANCELED. */
int lock_pause(struct reef_lock *lock, struct lock_wait *wait,
	       uint64_t most_ns);
/* Let a moment pass before H, which is held, is read again without parking.
 * False: that was done often enough; park. */
bool lock_spin(struct reef_lock *lock, struct lock_wait *wait, uint64_t h);
/* True if that session has ENDED, for certain; false while nobody knows. */
bool lock_has_ended(struct reef_lock *lock, uint32_t session);
/* The lock was had, perhaps because of lock_spin: allow more of it. */
void lock_spin_paid(struct reef_lock *lock, const struct lock_wait *wait);
/* True if the holder's session was not checked for period_ns. */
bool lock_is_session_check_due(const struct reef_lock *lock,
			       uint64_t period_ns);
/* True if H, as it was seen, may be taken from whom it names: (2). *flags:
 * those that it has to have then. */
bool lock_can_break(struct reef_lock *lock, uint64_t h, uint64_t *flags);

/* --- lock_queue.c --- */

/* Get in line. 0: queued; *h: H after that.  -EAGAIN: not queued, because H is
 * free, or the ring full; *h: H.  */
int lock_enter(struct reef_lock *lock, struct lock_wait *wait, uint64_t *h);
/* Leave the line.  1: H was granted to us meanwhile, and is held. */
int lock_leave(struct reef_lock *lock);
/* Make our place PARKED: we are woken from now on. *h: H after that. */
int lock_park_place(struct reef_lock *lock, uint64_t *h);
/* Make our place DONE: we hold H, and not by a grant. */
int lock_finish_place(struct reef_lock *lock);
/* READ H and the places from our own on. */
int lock_read_queue(struct reef_lock *lock, uint64_t *h);
/* How many places can be read at once from a ticket on: those that follow
 * without a wrap. */
uint32_t lock_window_length(const struct reef_lock *lock, uint64_t ticket);

struct lock_found {
	uint64_t next; /* the first that is not finished */
	bool someone;  /* waits: */
	uint64_t ticket;
	uint64_t word; /* of its place */
};
/* Find who waits first, from `next` of h on, as far as the tail. poison: holes
 * on the way are poisoned, so that next can go past them.  -ESTALE: h is old.
 */
int lock_find_waiter(struct reef_lock *lock, uint64_t h, bool poison,
		     struct lock_found *found);
/* Wake the first writer that waits, or all of them, to look at H; and, if H has
 * READERS and no writer was enough, the readers. */
int lock_wake_waiters(struct reef_lock *lock, bool all);
/* Make places of sessions that have ended LEFT. */
void lock_sweep(struct reef_lock *lock);

/* --- lock_take.c, lock_give.c --- */

/* Take the lock to write. h: H, as it was last seen.  As reef_lock_take. */
int lock_take_exclusive(struct reef_lock *lock, uint64_t timeout_ns,
			uint64_t h);
/* Make H, which names us, free or another's. inherited: it keeps INHERITED. */
int lock_give_exclusive(struct reef_lock *lock, bool inherited);
/* Clear WOKEN, which was meant for us, so that the next giver wakes somebody.
 * *h: H, before and after. */
int lock_clear_woken(struct reef_lock *lock, uint64_t *h);
/* After an error: take our name out of every word that may have it. */
int lock_settle(struct reef_lock *lock);

/* --- lock_readers.c --- */

/* As reef_lock_take and reef_lock_give, to read. */
int lock_take_shared(struct reef_lock *lock, uint64_t timeout_ns);
int lock_give_shared(struct reef_lock *lock);
/* H is ours and has READERS: wait until none is left. */
int lock_drain(struct reef_lock *lock, struct lock_wait *wait);
/* Wake the readers that wait, by these slots; NULL: they are read first. */
void lock_wake_readers(struct reef_lock *lock, const uint64_t *slots);

#endif
