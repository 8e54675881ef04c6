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
 * (5) When an object's node dies, whoever held the object holds nothing any
 *     more. A session that hears from the broker knows so a quarter of its TTL
 *     after the broker does, at most: from then on reef_election_check and
 *     reef_lease_left say it, and reef_lock_look says -REEF_ELOST. To drop a
 *     lost lock, lease or election takes six seconds, or two TTLs where that is
 *     longer: by then every session knows, or is fenced, because it did not
 *     hear from the broker. So when another holds the one that is made anew,
 *     whoever held the lost one is told so when it asks, or can change nothing
 *     in the pool. The holder of a lock that does not ask is not told before it
 *     gives the lock: it can change what the lock protects on other nodes until
 *     then, also beside the holder of a new lock.
 *
 * (6) In a space with two copies objects outlast one node's death. A lock there
 *     is one word with terms: REEF_LOCK_SHIFT and REEF_LOCK_SPIN both are SPIN,
 *     in no order and without readers; REEF_LOCK_MCS and REEF_LOCK_RW are
 *     refused (-EOPNOTSUPP), as others change the words of their queues.
 *     Barriers, leases and elections are as ever. To draw from a sequencer or a
 *     clock takes three round trips, and more where others draw.
 *
 * A timeout of 0 does not wait at all; REEF_FOREVER (fiber.h) waits for ever.
 *
 * Errors that every call may return, besides those of access (reef.h):
 *   -EBUSY          others changed the object at each of very many attempts of
 *                   this call; nothing happened; call again
 *   -ENOENT         the object was dropped; close it
 *   -ENOMEM         this process has no memory
 *   -REEF_ELOST     the object's node died; drop it, and make it anew (a clock
 *                   does so by itself)
 * Errors of every open:
 *   -EACCES         only reading is granted
 *   -EEXIST         the name is something else's
 *   -EINVAL         no name, a limit that is too high, or an unknown flag
 *   -EOPNOTSUPP     a kind of lock that spaces with copies do not have: (6)
 *   -ENAMETOOLONG   the name has more than 255 bytes
 *   -ENOENT         it does not exist, with REEF_SYNC_EXISTING
 *   -ENOSPC, -EDQUOT  no room to make it. -ENOSPC also: this process has that
 *                   lock, barrier, lease or election open 1,023 times
 *   -REEF_ECORRUPT  it is damaged
 *   -REEF_EVERSION  it was made by a version with another layout
 * Errors of every drop: -ENOENT: there is none.  -EEXIST: the name is another
 * kind's.  -EACCES, -EINVAL, -ENAMETOOLONG, -REEF_ECORRUPT and -REEF_EVERSION
 * as of open. An object whose node died can be dropped: (5).
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
	/* Writers only, in the order in which they came. (One that gave up just
	 * when it was granted has it if it comes back at once; and who finds
	 * out that the holder died, or gave up before, has it next.) */
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

/* Open a lock, or make it; options may be NULL. *out is the caller's, and must
 * be closed before its space. */
REEF_API int reef_lock_open(struct reef_space *space, const char *name,
			    const struct reef_lock_options *options,
			    struct reef_lock **out);
/* Close a lock; gives it, if it is held. NULL is fine. */
REEF_API void reef_lock_close(struct reef_lock *lock);
/* Drop a lock: its holder goes on undisturbed; everybody else gets -ENOENT from
 * then on. */
REEF_API int reef_lock_drop(struct reef_space *space, const char *name);

enum reef_lock_mode {
	REEF_LOCK_EXCLUSIVE,
	REEF_LOCK_SHARED, /* with other readers */
};

/* It is held, and the one who held it before died: what the lock protects may
 * be half done. To be repaired before it is given. */
#define REEF_LOCK_INHERITED 1

/* Take a lock. 0, or REEF_LOCK_INHERITED: it is held (a reader inherits, too,
 * if nobody has repaired since: then it should read with care, or leave and
 * come back to write).
 * -EBUSY: another holds it, and timeout_ns is 0; or attempts_max is used up.
 * -ETIMEDOUT: timeout_ns is over.  -ECANCELED: reef_lock_cancel was called.
 * -EDEADLK: this participant holds it.  -EOPNOTSUPP: SHARED, of a kind without
 * readers.  -EINVAL: an unknown mode.  -ENOENT: it was dropped.
 * After any error it is not held and this participant does not wait. */
REEF_API int reef_lock_take(struct reef_lock *lock, enum reef_lock_mode mode,
			    uint64_t timeout_ns);
/* Give a lock. -EPERM: this participant does not hold it; nothing changes.
 * After any other error it is not held either, but others may still find it
 * held, until this participant's next take, or its close, has settled that, or
 * its session has ended. */
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
/* Tell how a lock is at some moment; a few READs. */
REEF_API int reef_lock_look(struct reef_lock *lock, struct reef_lock_info *out);

/* --- barriers --- */

struct reef_barrier_options {
	uint32_t flags;
	uint32_t members_max; /* fixed when made; 64, at most 4,096 */
};

struct reef_barrier;

/* Open a barrier, or make it, and join it, from the next round that has not
 * begun; options may be NULL. So make sure that all who are to meet in the
 * first round have joined before anybody waits: `members` is how many there
 * have to be before the first round can begin (0: as many as there are). It
 * does not wait for anybody. *out is the caller's, and must be closed before
 * its space. -EINVAL also: members is more than members_max.  -ENOSPC also:
 * members_max have joined. */
REEF_API int reef_barrier_open(struct reef_space *space, const char *name,
			       const struct reef_barrier_options *options,
			       uint32_t members, struct reef_barrier **out);
/* Close a barrier; leaves it, if that was not done. It does not wait: if a
 * round has begun, the others see by themselves after a while that it came.
 * NULL is fine. */
REEF_API void reef_barrier_close(struct reef_barrier *barrier);
/* Take no part in a barrier from the next round on; if one has begun, takes
 * part in it first.  Errors as reef_barrier_wait, but 0 if it has left already.
 */
REEF_API int reef_barrier_leave(struct reef_barrier *barrier,
				uint64_t timeout_ns);
/* Drop a barrier; its members get -ENOENT from then on. */
REEF_API int reef_barrier_drop(struct reef_space *space, const char *name);

/* Wait until every member has come.
 * -REEF_EMEMBER: one of them died, and *dead (may be NULL) is its session; it
 * is not a member any more, and each of the others is told once, by a call of
 * its own for each death. Some may have passed this round already: they are
 * told in the next.  -ETIMEDOUT: timeout_ns is over.  After both this member
 * has come all the same: call again to go on waiting for the same round.
 * -EPERM: this member has left.  -EOVERFLOW: after 2^40 rounds.  -ENOENT: it
 * was dropped.  -REEF_EFENCED also: the others have struck this member off. */
REEF_API int reef_barrier_wait(struct reef_barrier *barrier,
			       uint64_t timeout_ns, uint32_t *dead);
/* How many members a barrier has, as far as this one knows. No operation. */
REEF_API uint32_t reef_barrier_members(const struct reef_barrier *barrier);
/* How many rounds of a barrier are over: a member that joined late has the same
 * number as everybody else. No operation. */
REEF_API uint64_t reef_barrier_round(const struct reef_barrier *barrier);

/* --- sequencers --- */

struct reef_sequencer;

/* Open a sequencer, or make it; flags: REEF_SYNC_EXISTING. *out is the
 * caller's, and must be closed before its space. */
REEF_API int reef_sequencer_open(struct reef_space *space, const char *name,
				 uint32_t flags, struct reef_sequencer **out);
/* Close a sequencer. NULL is fine. */
REEF_API void reef_sequencer_close(struct reef_sequencer *sequencer);
/* Drop a sequencer; whoever has it open gets -ENOENT from then on.  -EBUSY:
 * others draw from it without a pause; call again. */
REEF_API int reef_sequencer_drop(struct reef_space *space, const char *name);
/* Take `count` (not 0) numbers in a row; the first is *first, from 1 on. No two
 * calls get the same, and a call that begins after another has returned gets
 * higher ones. One FAA. Numbers can be skipped: when a connection was lost.
 * -EINVAL: count is 0 or over 2^48.  -EOVERFLOW: 2^63 were taken.  -ENOENT: it
 * was dropped.  -REEF_EINDOUBT: the connection was lost at each of 64 attempts;
 * numbers were skipped, none is the caller's. */
REEF_API int reef_sequencer_next(struct reef_sequencer *sequencer,
				 uint64_t count, uint64_t *first);

/* --- clocks --- */

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
 * bytes, because NAME~ceiling is the clock's, too. */
struct reef_clock;

/* Open a clock, or make it; flags: REEF_SYNC_EXISTING. *out is the caller's,
 * and must be closed before its space.  -EEXIST also, of all calls:
 * NAME~ceiling is something else's.  -ENAMETOOLONG: the name has more than 247
 * bytes. */
REEF_API int reef_clock_open(struct reef_space *space, const char *name,
			     uint32_t flags, struct reef_clock **out);
/* Close a clock. NULL is fine. */
REEF_API void reef_clock_close(struct reef_clock *clock);
/* Drop a clock; whoever has it open gets -ENOENT from then on. It is forgotten:
 * one that is made anew may begin earlier.  -EBUSY: others draw from it without
 * a pause; call again. */
REEF_API int reef_clock_drop(struct reef_space *space, const char *name);
/* Draw `count` (not 0) different times in a row, of which the first is *first.
 * One FAA; or, when the clock lags behind by a millisecond, a CAS that does for
 * it, unless another client is quicker; and now and then a call to the broker.
 * -EINVAL: count is 0.  -ENOENT: it was dropped.  -REEF_EINDOUBT: the
 * connection was lost at each of 64 attempts; no time is the caller's.
 * -EOVERFLOW: the clock has run out, in the year 2262. */
REEF_API int reef_clock_next(struct reef_clock *clock, uint32_t count,
			     uint64_t *first);
/* Tell what a clock stands at, without a change: one READ. *now is later than
 * any time that was given out before the call, earlier than any that is given
 * out after it. It stands still while nobody draws.  -ENOENT: it was dropped.
 */
REEF_API int reef_clock_read(struct reef_clock *clock, uint64_t *now);

/* --- leases --- */

struct reef_lease_options {
	uint32_t flags;
	/* How long it lasts without being renewed; 0: as long as its holder's
	 * session. Fixed when it is made. */
	uint64_t duration_ns;
};

struct reef_lease;

/* Open a lease, or make it; options may be NULL. *out is the caller's, and must
 * be closed before its space.  -EINVAL also: duration_ns is over 2^60. */
REEF_API int reef_lease_open(struct reef_space *space, const char *name,
			     const struct reef_lease_options *options,
			     struct reef_lease **out);
/* Close a lease; gives it, if it is held. NULL is fine. */
REEF_API void reef_lease_close(struct reef_lease *lease);
/* Drop a lease; whoever has it open gets -ENOENT from then on.  -EBUSY: it is
 * held by a session that has not ended (it would not learn that another can
 * have a new lease of that name). */
REEF_API int reef_lease_drop(struct reef_space *space, const char *name);

/* Take a lease, when it was given, when its holder's session is fenced, or when
 * it has lapsed: not renewed for duration_ns by the caller's clock. *token (may
 * be NULL) is higher than that of every holder before, also of a lease of that
 * name that was dropped or lost (unless it had been taken 2^32 times): what a
 * holder changes elsewhere should carry it, and what carries a lower one be
 * refused there. A holder whose lease has lapsed, but whose session lives, is
 * not kept from writing.
 * -EBUSY: another holds it, and timeout_ns is 0.  -ETIMEDOUT: timeout_ns is
 * over.  -EDEADLK: this participant holds it.  -ECANCELED: reef_lease_cancel
 * was called.  -ENOENT: it was dropped. */
REEF_API int reef_lease_take(struct reef_lease *lease, uint64_t timeout_ns,
			     uint64_t *token);
/* Renew a lease that this participant holds: one WRITE, and a READ with it.
 * -EPERM: it does not hold it (any more).  -ETIMEDOUT: it has lapsed, or had
 * when the WRITE was done; perhaps nobody noticed, but it is to be taken anew.
 * -ENOENT: it was dropped.  After -REEF_EFENCED and -REEF_ELOST it is not held;
 * after other errors it is held until it lapses. */
REEF_API int reef_lease_renew(struct reef_lease *lease);
/* How many nanoseconds this participant still holds a lease, by its own clock,
 * counted from before the last renewal; 0: it does not hold it, or the lease is
 * lost. UINT64_MAX: as long as its session lasts. No operation. */
REEF_API uint64_t reef_lease_left(const struct reef_lease *lease);
/* Give a lease. -EPERM: this participant does not hold it. After any other
 * error it is not held either, but others may still find it held, until this
 * participant's next take, or its close, has settled that, it lapses, or its
 * session has ended. */
REEF_API int reef_lease_give(struct reef_lease *lease);
/* Let a take that waits return -ECANCELED; with none under way, the next one
 * that would wait. Thread: any that knows it is not being closed. */
REEF_API void reef_lease_cancel(struct reef_lease *lease);

struct reef_lease_info {
	uint32_t session;  /* of the holder; 0: nobody's */
	uint64_t token;	   /* of it, or of the last one; 0: there was none */
	uint64_t renewals; /* changes when it is renewed */
	char holder[64];   /* the name that it gave itself, see below */
};
/* Tell who holds a lease: READs in one round trip; a holder that has just taken
 * it may be told without its name. */
REEF_API int reef_lease_look(struct reef_lease *lease,
			     struct reef_lease_info *out);

/* --- elections --- */

struct reef_election;

/* Open an election, or make it; flags: REEF_SYNC_EXISTING. candidate: what
 * others are to see of the leader, e.g. its address; at most 63 bytes; NULL:
 * "". *out is the caller's, and must be closed before its space.  -EINVAL also:
 * candidate is longer. */
REEF_API int reef_election_open(struct reef_space *space, const char *name,
				uint32_t flags, const char *candidate,
				struct reef_election **out);
/* Close an election; resigns, if the caller leads. NULL is fine. */
REEF_API void reef_election_close(struct reef_election *election);
/* Drop an election; errors as reef_lease_drop: one that is led is -EBUSY. */
REEF_API int reef_election_drop(struct reef_space *space, const char *name);
/* Stand for election, until elected. There is never a second leader whose
 * writes can still reach memory of the pool: a dead one's session is fenced
 * before the next is elected, at most two TTLs of a session after its death.
 * *term (may be NULL) grows with every leader.  Errors as reef_lease_take. */
REEF_API int reef_election_win(struct reef_election *election,
			       uint64_t timeout_ns, uint64_t *term);
/* Tell whether the caller leads. 0: it does.  -EPERM: it was not elected, or
 * does not lead any more.  -REEF_ELOST: it led, and the election's node died.
 * No operation. */
REEF_API int reef_election_check(const struct reef_election *election);
/* Stop leading; errors as reef_lease_give. */
REEF_API int reef_election_resign(struct reef_election *election);
/* Let a win or watch that waits return -ECANCELED, as reef_lease_cancel does.
 * Thread: any that knows it is not being closed. */
REEF_API void reef_election_cancel(struct reef_election *election);
/* Tell who leads, as reef_lease_look does. A leader whose session has ended is
 * nobody. */
REEF_API int reef_election_look(struct reef_election *election,
				struct reef_lease_info *out);
/* Wait until somebody else than in *last leads, or nobody does; then *out is as
 * reef_election_look tells it.  -ETIMEDOUT: timeout_ns is over.  -ECANCELED:
 * reef_election_cancel was called.  -ENOENT: it was dropped. */
REEF_API int reef_election_watch(struct reef_election *election,
				 const struct reef_lease_info *last,
				 uint64_t timeout_ns,
				 struct reef_lease_info *out);

#ifdef __cplusplus
}
#endif
#endif
