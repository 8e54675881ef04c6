/* lock_take.c - a writer takes it. What to do is decided by H as it was last
 * seen, over and over, until it is ours or time is up: the states are in
 * lock.h, and each of the functions here makes one transition. */
#include "sync/lock.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

#define SPIN_PAUSE_NS UINT64_C(1000000)

/* --- transitions; 0: H is ours.  -EAGAIN: decide again by *h --- */

/* CAS H, which is free or may be taken from whom it names, to `value`. */
static int take_from(struct reef_lock *lock, uint64_t *h, uint64_t value)
{
	uint64_t before;
	int rc = lock_cas(lock, lock->head, *h, value, &before);

	if (rc)
		return rc;
	if (before != *h) {
		*h = before;
		return -EAGAIN;
	}
	*h = lock->word = value;
	return lock_finish_place(lock);
}

/* In a space with copies: H, with the next term. The terms come in quarters,
 * and whoever takes the first of a quarter lets an epoch end before, while H is
 * at the last of the one before: so four end before a term comes back. A caller
 * that is inside an epoch itself cannot wait for that, and goes on. */
static uint64_t with_next_term(struct reef_lock *lock, uint64_t h)
{
	uint16_t term = (uint16_t)(lock_next(h) + 1) & (SYNC_TICKETS - 1);

	if (!lock->has_terms)
		return h;
	if (term % (SYNC_TICKETS / 4) == 0)
		(void)reef_epoch_end(lock->reef);
	return lock_with_next(h, term);
}

static int take_free(struct reef_lock *lock, uint64_t *h)
{
	uint64_t value = with_next_term(lock, *h) | lock->me;

	if (lock->queued) {
		value &= ~(uint64_t)LOCK_WOKEN;
		/* We were the first in line: for the next one, turns are
		 * counted from 0. */
		if (lock_next(*h) == (lock->ticket & (SYNC_TICKETS - 1)))
			value &= ~(uint64_t)LOCK_GRANTED;
	}
	return take_from(lock, h, value);
}

/* Take H, which names us already. */
static int take_own(struct reef_lock *lock, uint64_t *h)
{
	bool is_this = lock->queued && lock_next(*h) == ((lock->ticket + 1) &
							 (SYNC_TICKETS - 1));

	if (lock_is_granted(*h)) {
		/* A grant for a ticket that we left may be taken away by
		 * others, unless GRANTED is cleared. */
		if (!is_this)
			return take_from(lock, h, *h & ~(uint64_t)LOCK_GRANTED);
		lock->queued = false; /* next has gone past our place */
		lock->word = *h;
		return 0;
	}
	/* A CAS of ours that was in doubt did happen. */
	lock->word = *h;
	return lock_finish_place(lock);
}

/* Take H if its holder's session has ended, or its ticket was left.  -EBUSY:
 * the holder lives, as far as anybody knows. */
static int take_broken(struct reef_lock *lock, uint64_t *h)
{
	uint64_t flags;
	int rc;

	if (!lock_can_break(lock, *h, &flags))
		return -EBUSY;
	rc = take_from(lock, h,
		       with_next_term(lock, lock_with_next(lock->me | flags,
							   lock_next(*h))));
	if (!rc)
		lock_sweep(lock);
	return rc;
}

/* For a client that does not park: see now and then whether H can be taken from
 * its holder. */
static int break_if_due(struct reef_lock *lock, uint64_t *h)
{
	int rc = -EBUSY;

	if (!lock_is_mine(lock, *h) &&
	    lock_is_session_check_due(lock, lock->ttl_ns / 16))
		rc = take_broken(lock, h);
	return rc == -EBUSY ? -EAGAIN : rc;
}

/* --- waiting --- */

static int read_h(struct reef_lock *lock, uint64_t *h)
{
	return reef_read(lock->reef, lock->head, h, 8);
}

/* SPIN: pause for a growing while, and try again. */
static int back_off(struct reef_lock *lock, struct lock_wait *wait, uint64_t *h)
{
	int rc;

	if (lock->attempts_max && ++wait->attempts >= lock->attempts_max)
		return -EBUSY;
	rc = lock_pause(lock, wait, SPIN_PAUSE_NS);
	if (rc)
		return rc;
	rc = break_if_due(lock, h);
	if (rc != -EAGAIN)
		return rc;
	if (lock->has_terms) { /* H is never twice the same */
		rc = read_h(lock, h);
		return rc ? rc : -EAGAIN;
	}
	/* The CAS expects H to name nobody, so it fails while H is held. */
	*h = lock->seen & ~(uint64_t)LOCK_WHO;
	return take_free(lock, h);
}

/* Sleep in the queue until a message comes or it is time to look. */
static int park(struct reef_lock *lock, struct lock_wait *wait, uint64_t *h)
{
	uint64_t want = *h | LOCK_WAITERS, before;
	bool timed;
	int rc;

	if (!(lock->place_word & PLACE_PARKED)) {
		/* Whoever gives the lock may count on us already. */
		wait->awake = true;
		rc = lock_park_place(lock, h);
		return rc ? rc : -EAGAIN;
	}
	if (wait->awake)
		want &= ~(uint64_t)LOCK_WOKEN;
	if (want != *h) {
		rc = lock_cas(lock, lock->head, *h, want, &before);
		if (rc)
			return rc;
		if (before != *h) {
			*h = before;
			return -EAGAIN;
		}
	}
	wait->awake = false;
	rc = lock_wait(lock, wait);
	timed = rc == -EAGAIN;
	if (rc && !timed)
		return rc;
	wait->awake = true;
	wait->looks = 0;
	lock->woken = false; /* a message after the READ counts */
	rc = lock_read_queue(lock, h);
	if (rc)
		return rc;
	if (!timed || lock_is_mine(lock, *h))
		return -EAGAIN;
	rc = take_broken(lock, h);
	return rc == -EBUSY ? -EAGAIN : rc;
}

/* H names another: look again, back off, get in line or park. */
static int wait_for_holder(struct reef_lock *lock, struct lock_wait *wait,
			   uint64_t *h)
{
	int rc;

	if (!wait->can_wait) {
		if (!lock_is_session_check_due(lock, lock->ttl_ns / 16))
			return -EBUSY;
		return take_broken(lock, h);
	}
	if (!lock->attempts_max && lock_spin(lock, wait, *h)) {
		rc = lock->queued ? lock_read_queue(lock, h) : read_h(lock, h);
		return rc ? rc : -EAGAIN;
	}
	if (lock->kind == REEF_LOCK_SPIN)
		return back_off(lock, wait, h);
	if (!lock->queued) {
		rc = lock_enter(lock, wait, h);
		/* Perhaps the ring was full. */
		if (rc == -EAGAIN)
			return break_if_due(lock, h);
		wait->looks = 0;
		return rc ? rc : -EAGAIN;
	}
	return park(lock, wait, h);
}

static int decide_by_head(struct reef_lock *lock, struct lock_wait *wait,
			  uint64_t *h)
{
	if (REEF_MUTATED(LOCK_STALE_TICKET) && lock->queued && lock->granted) {
		lock->granted = false;
		lock->word = *h;
		lock->queued = false;
		return 0;
	}
	if (lock_is_mine(lock, *h))
		return take_own(lock, h);
	if (lock_is_dropped(*h))
		return -ENOENT;
	if (lock_is_free(*h))
		return take_free(lock, h);
	return wait_for_holder(lock, wait, h);
}

/* --- from the outside --- */

int lock_settle(struct reef_lock *lock)
{
	uint64_t h, place = 0, slot = 0;
	int rc = 0;

	if (!lock->queued && lock->places) {
		rc = reef_read(lock->reef,
			       lock_place_address(lock, lock->ticket), &place,
			       8);
		lock->queued =
			place & PLACE_WAITING && lock_is_mine(lock, place);
		lock->place_word = place;
	}
	if (!rc)
		rc = lock_leave(lock);
	if (rc < 0)
		return rc;
	rc = read_h(lock, &h);
	if (rc)
		return rc;
	if (lock_is_mine(lock, h)) {
		lock->word = h;
		rc = lock_give_exclusive(lock, true);
	}
	if (!rc && lock->readers_max)
		rc = reef_read(lock->reef, lock_slot_address(lock, lock->slot),
			       &slot, 8);
	if (!rc && slot && lock_is_mine(lock, slot)) {
		lock->slot_word = slot;
		rc = lock_give_shared(lock);
	}
	if (!rc)
		lock->held = LOCK_HELD_NOT;
	return rc;
}

/* Leave the queue because of the error `why`, and return it.  0: H was granted
 * to us meanwhile, and is held. */
static int leave_queue(struct reef_lock *lock, int why)
{
	int rc = lock_leave(lock);

	if (rc == 1)
		return 0;
	if (lock->failed)
		lock->held = LOCK_UNSETTLED;
	return why;
}

int lock_take_exclusive(struct reef_lock *lock, uint64_t timeout_ns, uint64_t h)
{
	struct lock_wait wait = {0};
	int rc, given;

	lock_wait_init(lock, &wait, timeout_ns);
	lock->window_count = 0;
	lock->granted = false;
	lock->failed = false;
	do
		rc = decide_by_head(lock, &wait, &h);
	while (rc == -EAGAIN);
	if (rc)
		rc = leave_queue(lock, rc);
	if (rc)
		return rc;
	if (lock->word & LOCK_READERS) {
		rc = lock_drain(lock, &wait);
		if (rc) {
			given = lock_give_exclusive(lock, true);
			if (given)
				lock->held = LOCK_UNSETTLED;
			return rc;
		}
	}
	lock_spin_paid(lock, &wait);
	lock->held = LOCK_HELD_EXCLUSIVE;
	return lock->word & LOCK_WAS_INHERITED ? REEF_LOCK_INHERITED : 0;
}
