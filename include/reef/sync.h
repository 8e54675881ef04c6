/* sync.h - locks, barriers, sequencers, clocks, leases and elections.
 *
 * Each of these is a named object in a space, which any client of the space can
 * open. An open one is *a participant*: it belongs to the handle that opened
 * the space, and is used by one thread or fiber at a time. Fibers that want to
 * compete with each other open it once each.
 *
 * (1) A participant may die, stop, or be cut off between any two operations:
 *     what it held passes on once its session is fenced (so none of its writes
 *     can follow), and not before.
 * (2) Whoever waits parks, and is woken by a message from another participant;
 *     the memory node is not asked over and over. Messages only make it quick:
 *     when one is lost, the waiter looks for itself after a while.
 * (3) What is opened need not exist: it is made, unless REEF_SYNC_EXISTING says
 *     otherwise. Limits are fixed when it is made; whoever opens it later has
 *     them, whatever the options say.
 * (4) Dropping an object does not free its memory while the space lives, so
 *     that nobody who still has it open can harm what comes after: it is 384
 *     bytes and what its limits ask for.
 *
 * Errors of every call: those of access (reef.h); -REEF_ELOST: the object's
 * node died; drop it, and make it anew (a clock does so by itself).  Of every
 * open: -ENOENT: it does not exist, with REEF_SYNC_EXISTING.  -EEXIST: the name
 * is something else's.  -EINVAL: a bad name or limit.  -EACCES: only reading is
 * granted.  -ENOSPC.  A timeout of 0 does not wait at all; REEF_FOREVER
 * (fiber.h) waits for ever.
 *
 * Thread: owner of the handle, unless it says otherwise. */
#ifndef REEF_SYNC_H
#define REEF_SYNC_H

#include <reef/fiber.h>
#include <reef/reef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REEF_SYNC_EXISTING 1u /* open flags: do not make it */

/* --- locks --- */

enum reef_lock_kind {
	/* One atomic when nobody contends; a queue when somebody does. A
	 * running client may pass those that wait, `passes` times at most while
	 * the same one is the first of them: with fewer processors than waiters
	 * a strict queue makes everybody wait for whoever is not running. */
	REEF_LOCK_SHIFT,
	/* CAS with a growing pause. Right where nobody contends. */
	REEF_LOCK_SPIN,
	/* Writers only, in the order in which they came. (Who comes in the
	 * moment when it is given to nobody may pass one that comes then, too;
	 * and who finds out that the holder died has it next.) */
	REEF_LOCK_MCS,
	/* Readers or one writer; writers in their order. Readers that wait are
	 * let in after `writers_phase` writers (or one more, that was on its
	 * way in when they came), and readers that come while a writer waits,
	 * wait: so neither starves. SHIFT has readers, too. */
	REEF_LOCK_RW,
	REEF_LOCK_KINDS
};

/* Zero means the default. */
struct reef_lock_options {
	uint32_t flags;
	enum reef_lock_kind kind;
	/* Fixed when it is made: */
	uint32_t waiters_max;	/* places in the queue; 64, at most 4,096;
				 * further ones wait with a growing pause */
	uint32_t readers_max;	/* at once; 64, at most 4,096. SHIFT, RW */
	uint32_t passes;	/* SHIFT; 8, at most 14 */
	uint32_t writers_phase; /* SHIFT, RW; 4, at most 15 */
	/* This participant's: */
	uint32_t attempts_max; /* SPIN: of one take; 0: until its timeout */
};

struct reef_lock;

/* Open a lock. *out is the caller's, and must be closed before its space.
 * -ENOSPC also: this process has it open 1,023 times. */
REEF_API int reef_lock_open(struct reef_space *space, const char *name,
			    const struct reef_lock_options *options,
			    struct reef_lock **out);
/* Gives it, if it is held. NULL is fine. */
REEF_API void reef_lock_close(struct reef_lock *lock);
/* Its holder goes on undisturbed; everybody else gets -ENOENT from then on.
 * -ENOENT.  -EEXIST: the name is not a lock's. */
REEF_API int reef_lock_drop(struct reef_space *space, const char *name);

enum reef_lock_mode {
	REEF_LOCK_EXCLUSIVE,
	REEF_LOCK_SHARED, /* with other readers */
};

/* It is held, and the one who held it before died: what the lock protects may
 * be half done. To be repaired before it is given. */
#define REEF_LOCK_INHERITED 1

/* Take it. 0, or REEF_LOCK_INHERITED: held (a reader inherits, too, if nobody
 * has repaired since: then it should read with care, or leave and come back to
 * write).  -EBUSY: it is held, and timeout_ns is 0; or attempts_max is used up.
 * -ETIMEDOUT.  -ECANCELED: reef_lock_cancel.  -EDEADLK: this participant holds
 * it.  -EOPNOTSUPP: SHARED, of a kind without readers.  -ENOENT: dropped.
 * After any error it is not held and this participant does not wait. */
REEF_API int reef_lock_take(struct reef_lock *lock, enum reef_lock_mode mode,
			    uint64_t timeout_ns);
/* Give it. -EPERM: this participant does not hold it; nothing changes. After
 * -REEF_EFENCED or -REEF_ELOST it is not held either. */
REEF_API int reef_lock_give(struct reef_lock *lock);
/* Let a take that waits return -ECANCELED; with none under way, the next one
 * that would wait. Thread: any that knows it is not being closed. */
REEF_API void reef_lock_cancel(struct reef_lock *lock);

struct reef_lock_info {
	enum reef_lock_kind kind;
	uint32_t waiters_max, readers_max, passes, writers_phase;
	uint32_t session; /* of the writer; 0: none */
	uint32_t readers; /* that hold it */
	uint32_t waiters; /* in the queue, readers among them */
	bool inherited;	  /* nobody has repaired yet */
};
/* As it is at some moment; a few READs. */
REEF_API int reef_lock_look(struct reef_lock *lock, struct reef_lock_info *out);

/* --- barriers --- */

struct reef_barrier_options {
	uint32_t flags;
	uint32_t members_max; /* fixed when made; 64, at most 4,096 */
};

struct reef_barrier;

/* Open a barrier and join it, from the next round that has not begun. So make
 * sure that all who are to meet in the first round have joined before anybody
 * waits: `members` is how many there have to be before the first round can
 * begin (0: as many as there are).  -ENOSPC also: members_max have joined.
 * -ETIMEDOUT: never; it does not wait. */
REEF_API int reef_barrier_open(struct reef_space *space, const char *name,
			       const struct reef_barrier_options *options,
			       uint32_t members, struct reef_barrier **out);
/* Leave, if that was not done, and close. It does not wait: if a round has
 * begun, the others see by themselves after a while that it came. NULL is fine.
 */
REEF_API void reef_barrier_close(struct reef_barrier *barrier);
/* Take no part from the next round on; if one has begun, takes part in it
 * first.  Errors as wait. */
REEF_API int reef_barrier_leave(struct reef_barrier *barrier,
				uint64_t timeout_ns);
REEF_API int reef_barrier_drop(struct reef_space *space, const char *name);

/* Wait until every member has come. -REEF_EMEMBER: one of them died, and
 * *dead (may be NULL) is its session; it is not a member any more, and each of
 * the others is told once, by a call of its own for each death. Some may have
 * passed this round already: they are told in the next.  -ETIMEDOUT.  After
 * both this member has come all the same: call again to go on waiting for the
 * same round.  -EPERM: it has left.  -EOVERFLOW: after 2^40 rounds. */
REEF_API int reef_barrier_wait(struct reef_barrier *barrier,
			       uint64_t timeout_ns, uint32_t *dead);
/* How many members it has, as far as this one knows; and how many rounds of it
 * are over: who joined late has the same number as everybody else. */
REEF_API uint32_t reef_barrier_members(const struct reef_barrier *barrier);
REEF_API uint64_t reef_barrier_round(const struct reef_barrier *barrier);

/* --- sequencers --- */

struct reef_sequencer;

REEF_API int reef_sequencer_open(struct reef_space *space, const char *name,
				 uint32_t flags, struct reef_sequencer **out);
REEF_API void reef_sequencer_close(struct reef_sequencer *sequencer);
REEF_API int reef_sequencer_drop(struct reef_space *space, const char *name);
/* Take `count` (not 0) numbers in a row; the first is *first, from 1 on. No two
 * calls get the same, and a call that begins after another has returned gets
 * higher ones. One FAA. Numbers can be skipped: when a connection was lost.
 * -EINVAL: count is 0 or over 2^48.  -EOVERFLOW: 2^63 were taken.  -ENOENT: it
 * was dropped. */
REEF_API int reef_sequencer_next(struct reef_sequencer *sequencer,
				 uint64_t count, uint64_t *first);

/* --- clocks --- */

struct reef_clock;

/* A clock tells nanoseconds since 1970, roughly, and exactly never goes back: a
 * call that begins after another has returned, anywhere, gets a later time;
 * also after its node died, and after a restart of the broker.
 *
 * It follows the broker's clock. What a client's machine takes for the time of
 * day plays no part, so a client whose clock is set wrong cannot drag it: a
 * client asks the broker every few seconds and counts on from there. The time
 * can be given out only below a ceiling that is journaled at the broker, about
 * ten seconds ahead of the broker's time: further it moves only if more than
 * one time per nanosecond is drawn, or if its node dies, since a new one starts
 * at the ceiling; then it goes slowly until the time has caught up.
 *
 * It needs the broker every five seconds: while that is away for longer, calls
 * wait as reef.h, (5), says. After its node died it stands for six seconds, to
 * be sure that nobody draws from the dead one any more. A name has at most 247
 * bytes, because NAME~ceiling is the clock's, too. A dropped one is forgotten:
 * one that is made anew may begin earlier.  -ENOENT, of all calls: dropped. */
REEF_API int reef_clock_open(struct reef_space *space, const char *name,
			     uint32_t flags, struct reef_clock **out);
REEF_API void reef_clock_close(struct reef_clock *clock);
REEF_API int reef_clock_drop(struct reef_space *space, const char *name);
/* `count` (not 0) different times in a row, the first is *first. One FAA; or,
 * when the clock lags behind by a millisecond, a CAS that does for it, unless
 * another client is quicker; and now and then a call to the broker. */
REEF_API int reef_clock_next(struct reef_clock *clock, uint32_t count,
			     uint64_t *first);
/* What it stands at, without a change: one READ. Later than any time that was
 * given out before the call, earlier than any that is given out after it. It
 * stands still while nobody draws. */
REEF_API int reef_clock_read(struct reef_clock *clock, uint64_t *now);

/* --- leases --- */

struct reef_lease_options {
	uint32_t flags;
	/* How long it lasts without being renewed; 0: as long as its holder's
	 * session. Fixed when it is made. */
	uint64_t duration_ns;
};

struct reef_lease;

REEF_API int reef_lease_open(struct reef_space *space, const char *name,
			     const struct reef_lease_options *options,
			     struct reef_lease **out);
/* Gives it, if it is held. NULL is fine. */
REEF_API void reef_lease_close(struct reef_lease *lease);
/* Whoever has it open gets -ENOENT from then on.  -EBUSY: it is held by a
 * session that has not ended (it would not learn that another can have a new
 * lease of that name).  -ENOENT.  -EEXIST: the name is not a lease's. */
REEF_API int reef_lease_drop(struct reef_space *space, const char *name);

/* Take it, when it was given, when its holder's session is fenced, or when it
 * has lapsed: not renewed for duration_ns by our clock. *token (may be NULL)
 * is higher than that of every holder before: what a holder changes elsewhere
 * should carry it, and what carries a lower one be refused there. A holder
 * whose lease has lapsed, but whose session lives, is not kept from writing.
 * -EBUSY: it is held, and timeout_ns is 0.  -ETIMEDOUT.  -EDEADLK: we hold it.
 * -ECANCELED: reef_lease_cancel. */
REEF_API int reef_lease_take(struct reef_lease *lease, uint64_t timeout_ns,
			     uint64_t *token);
/* One WRITE, and a READ with it. -EPERM: it is not ours (any more).
 * -ETIMEDOUT: it has lapsed, or had when the WRITE was done; perhaps nobody
 * noticed, but it is to be taken anew.  After other errors it is ours until it
 * lapses. */
REEF_API int reef_lease_renew(struct reef_lease *lease);
/* How long it is ours still, by our clock, counted from before the renewal; 0:
 * it is not. UINT64_MAX: as long as the session. No operation. */
REEF_API uint64_t reef_lease_left(const struct reef_lease *lease);
REEF_API int reef_lease_give(struct reef_lease *lease);	   /* -EPERM */
REEF_API void reef_lease_cancel(struct reef_lease *lease); /* Thread: any */

struct reef_lease_info {
	uint32_t session;  /* of the holder; 0: nobody's */
	uint64_t token;	   /* of it, or of the last one */
	uint64_t renewals; /* changes when it is renewed */
	char holder[64];   /* the name that it gave itself, see below */
};
/* Watch: READs in one round trip; a holder that has just taken it may be told
 * without its name. */
REEF_API int reef_lease_look(struct reef_lease *lease,
			     struct reef_lease_info *out);

/* --- elections --- */

struct reef_election;

/* candidate: what others are to see of the leader, e.g. its address; at most 63
 * bytes; NULL: "". */
REEF_API int reef_election_open(struct reef_space *space, const char *name,
				uint32_t flags, const char *candidate,
				struct reef_election **out);
/* Resigns, if we lead. NULL is fine. */
REEF_API void reef_election_close(struct reef_election *election);
/* As lease_drop. */
REEF_API int reef_election_drop(struct reef_space *space, const char *name);
/* Stand, until elected. There is never a second leader whose writes can still
 * reach memory of the pool: a dead one's session is fenced before the next is
 * elected, at most two TTLs of a session after its death. *term (may be NULL)
 * grows with every leader.  Errors as lease_take. */
REEF_API int reef_election_win(struct reef_election *election,
			       uint64_t timeout_ns, uint64_t *term);
/* 0: we lead.  -EPERM: not elected, or not any more.  No operation. */
REEF_API int reef_election_check(const struct reef_election *election);
REEF_API int reef_election_resign(struct reef_election *election);
REEF_API void reef_election_cancel(struct reef_election *election); /* any */
/* Who leads; as lease_look. A leader whose session has ended is nobody. */
REEF_API int reef_election_look(struct reef_election *election,
				struct reef_lease_info *out);
/* Wait until somebody else than in *last leads, or nobody does; then as look.
 * -ETIMEDOUT.  -ECANCELED. */
REEF_API int reef_election_watch(struct reef_election *election,
				 const struct reef_lease_info *last,
				 uint64_t timeout_ns,
				 struct reef_lease_info *out);

#ifdef __cplusplus
}
#endif
#endif
