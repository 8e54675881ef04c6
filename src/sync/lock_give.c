/* lock_give.c - a writer gives it: lock.h (2), (5), (6).
 *
 * Everything here is a CAS of H from what was last seen of it. It fails when
 * somebody has set a flag meanwhile; then what is to be done is decided anew.
 * After a hand-over the place is read once more, in the same batch: if its
 * owner has LEFT, H goes on from there, and only for as long as it still says
 * so, because the owner, or anybody who looks, may have been quicker. */
#include "sync/lock.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

#define ATTEMPTS 64
#define SLOW_NS UINT64_C(200000) /* a mutant's */

struct giving {
	struct reef_lock *lock;
	uint64_t h;    /* H, as it was last seen */
	uint64_t keep; /* INHERITED, if H is to keep it */
	bool cleared;  /* we took WAITERS out of H, so it says nothing */
};

/* The flags of H that stay when it is handed on. */
static uint64_t kept_flags(const struct giving *giving)
{
	return giving->h & (LOCK_READERS | giving->keep);
}

/* True if H is as we left it, but for a flag. Else there is nothing left to
 * give: after a lost link that also means that our CAS happened. */
static bool is_still_ours(const struct giving *giving, uint64_t now)
{
	const uint64_t same = LOCK_WHO | (uint64_t)(SYNC_TICKETS - 1) << 8;

	if ((now ^ giving->h) & same)
		return false;
	return lock_is_mine(giving->lock, now) || lock_is_granted(now);
}

/* CAS H from giving->h.  -EAGAIN: a flag of H has changed, decide again.  1: H
 * is not ours to change any more. */
static int change_head(struct giving *giving, struct lock_change *with)
{
	struct reef_lock *lock = giving->lock;
	int rc;

	with->address = lock->head;
	with->compare = giving->h;
	if (REEF_MUTATED(LOCK_UNLOCK_BY_WRITE)) {
		rc = reef_write(lock->reef, lock->head, &with->value, 8);
		if (rc)
			return rc;
		with->compare = with->value;
	}
	rc = lock_change(lock, with);
	if (rc)
		return rc;
	if (with->before == with->compare) {
		if (lock_is_free(with->value))
			lock->seen = with->value;
		return 0;
	}
	if (!is_still_ours(giving, with->before))
		return 1;
	giving->h = with->before;
	return -EAGAIN;
}

/* --- to whom --- */

/* Find the first that waits among the places that were read when we took H.
 * False: they do not tell. */
static bool find_in_window(const struct giving *giving,
			   struct lock_found *found)
{
	const struct reef_lock *lock = giving->lock;
	uint64_t ticket, next = lock_next(giving->h);
	uint32_t i;

	for (i = 0; i < lock->window_count; i++) {
		uint64_t word = lock->window[i];

		ticket = lock->window_first + i;
		if (sync_ticket_distance((uint16_t)next, (uint16_t)ticket) < 0)
			continue;
		if (sync_word_unpack(word).ticket !=
		    (ticket & (SYNC_TICKETS - 1)))
			return false;
		if (!(word & PLACE_WAITING) || lock_is_mine(lock, word))
			continue;
		*found = (struct lock_found){
			.next = ticket,
			.someone = true,
			.ticket = ticket,
			.word = word,
		};
		return true;
	}
	return false;
}

/* Find the waiter that we passed the last time, if it is still the first as far
 * as H tells; free_and_wake() looks whether it still waits. H must not be
 * handed over to it: it may have taken H by itself since, and H would name one
 * that neither waits nor has LEFT. If H is WOKEN, the first is awake already,
 * and nobody has to be found. */
static bool find_passed(const struct giving *giving, struct lock_found *found)
{
	const struct reef_lock *lock = giving->lock;
	uint64_t next = lock_next(giving->h);
	bool is_same = lock->passed_word &&
		       next == (lock->passed_ticket & (SYNC_TICKETS - 1));

	*found = (struct lock_found){
		.next = next,
		.someone = true,
		.ticket = is_same ? lock->passed_ticket : next,
		.word = is_same ? lock->passed_word : 0,
	};
	return is_same || giving->h & LOCK_WOKEN;
}

/* A place as it is read after H has changed: its word, then its inbox. */
struct after {
	uint64_t word, inbox;
};

static void read_place_after(struct lock_change *with,
			     const struct reef_lock *lock, uint64_t ticket,
			     struct after *after)
{
	lock_change_read(with, lock_place_address(lock, ticket), &after->word,
			 8);
	lock_change_read(with, lock_place_inbox(lock, ticket), &after->inbox,
			 8);
}

static bool is_waiting(const struct lock_found *found, uint64_t word)
{
	return !((word ^ found->word) & ~(uint64_t)PLACE_PARKED);
}

static void wake_if_parked(struct reef_lock *lock, const struct after *after,
			   bool granted)
{
	/* A waiter that is not PARKED has yet to read H. */
	if (after->word & PLACE_PARKED)
		lock_wake(lock, after->inbox, after->word, granted);
}

/* Mutant: wake before H has changed. */
static void wake_early(struct reef_lock *lock, const struct lock_found *found)
{
	uint64_t inbox;

	if (!reef_read(lock->reef, lock_place_inbox(lock, found->ticket),
		       &inbox, 8))
		lock_wake(lock, inbox, found->word, true);
}

/* Make H free and wake the first that waits, which may be passed by any client
 * that runs. */
static int free_and_wake(struct giving *giving, const struct lock_found *found)
{
	struct reef_lock *lock = giving->lock;
	uint32_t turns = lock_is_granted(giving->h) ? 0 : lock_turns(giving->h);
	struct lock_change with = {0};
	bool was_woken = giving->h & LOCK_WOKEN;
	struct after after;
	int rc;

	with.value =
		lock_with_next(kept_flags(giving) | LOCK_WAITERS | LOCK_WOKEN |
				       (turns + 1) * LOCK_TURN,
			       found->next);
	read_place_after(&with, lock, found->ticket, &after);
	if (REEF_MUTATED(LOCK_WAKE_BEFORE_WORD) && !was_woken)
		wake_early(lock, found);
	rc = change_head(giving, &with);
	if (rc || was_woken || REEF_MUTATED(LOCK_WAKE_BEFORE_WORD))
		return rc;
	lock->passed_word = 0;
	if (is_waiting(found, after.word)) {
		lock->passed_word = found->word;
		lock->passed_ticket = found->ticket;
		wake_if_parked(lock, &after, false);
		return 0;
	}
	/* The first has left, without having seen WOKEN: wake another. */
	rc = lock_clear_woken(lock, &with.value);
	return rc ? rc : lock_wake_waiters(lock, false);
}

/* Make H the first waiter's.  -EAGAIN also: that one has left. */
static int hand_over(struct giving *giving, const struct lock_found *found)
{
	struct reef_lock *lock = giving->lock;
	struct lock_change with = {0};
	struct after after;
	int rc;

	with.value =
		lock_with_next((found->word & LOCK_WHO) | kept_flags(giving) |
				       LOCK_WAITERS | LOCK_GRANTED,
			       found->ticket + 1);
	read_place_after(&with, lock, found->ticket, &after);
	if (REEF_MUTATED(LOCK_WAKE_BEFORE_WORD))
		wake_early(lock, found);
	rc = change_head(giving, &with);
	if (rc || REEF_MUTATED(LOCK_WAKE_BEFORE_WORD))
		return rc;
	if (after.word ==
		    lock_place_word(found->word, found->ticket, PLACE_LEFT) &&
	    !REEF_MUTATED(LOCK_IGNORE_LEFT)) {
		giving->h = with.value;
		return -EAGAIN;
	}
	/* Else it waits; or, if a link was lost here, it has had H and is gone.
	 */
	if (is_waiting(found, after.word))
		wake_if_parked(lock, &after, true);
	return 0;
}

/* Set READERS again if a reader waits: it may have come just when READERS was
 * cleared. It is woken, too; but if that message is lost, or the reader is
 * slow, the next writers have to count it. */
static int remind_of_readers(struct reef_lock *lock, uint64_t h)
{
	uint64_t before, waiting = 0;
	uint32_t i;
	int rc, attempt;

	for (i = 0; i < lock->readers_max; i++)
		waiting |= lock->slots_seen[i] & SLOT_WAITING;
	if (!waiting)
		return 0;
	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		if (h & LOCK_READERS || lock_is_dropped(h))
			return 0;
		rc = lock_cas(lock, lock->head, h, h | LOCK_READERS, &before);
		if (rc || before == h)
			return rc;
		h = before;
	}
	return 0;
}

/* Make H free. It has no WAITERS, so no writer sleeps: one that was about to
 * would have set it, and the CAS had failed. */
static int make_free(struct giving *giving, uint64_t next)
{
	struct reef_lock *lock = giving->lock;
	struct lock_change with = {
		.value = lock_with_next(kept_flags(giving), next),
	};
	bool readers = giving->h & LOCK_READERS;
	int rc;

	if (readers && lock->no_readers)
		with.value &= ~(uint64_t)LOCK_READERS;
	if (readers)
		lock_change_read(&with, lock->slots, lock->slots_seen,
				 lock->readers_max * 8);
	rc = change_head(giving, &with);
	if (rc || !readers || REEF_MUTATED(LOCK_NO_REREAD))
		return rc;
	lock_wake_readers(lock, lock->slots_seen);
	return remind_of_readers(lock, with.value);
}

static int make_dropped(struct giving *giving)
{
	struct lock_change with = {
		.value = (uint64_t)LOCK_DROPPED << 32,
	};
	int rc = change_head(giving, &with);

	if (!rc && giving->h & LOCK_READERS)
		lock_wake_readers(giving->lock, NULL);
	return rc;
}

/* Read H again, after it was granted to one who left: others may have seen
 * that, too, and taken it. */
static int reread_head(struct giving *giving)
{
	uint64_t now;
	int rc = reef_read(giving->lock->reef, giving->lock->head, &now, 8);

	if (rc)
		return rc;
	if (!is_still_ours(giving, now))
		return 1;
	giving->h = now;
	return -EAGAIN;
}

/* Find who is to have H, from `next` of it on. 0: *found says who, if anybody.
 * -EAGAIN, 1: as reread_head. */
static int find_waiter(struct giving *giving, bool can_pass,
		       struct lock_found *found)
{
	int rc = lock_find_waiter(giving->lock, giving->h, !can_pass, found);

	return rc == -ESTALE ? reread_head(giving) : rc;
}

/* Nobody was seen to wait: take WAITERS out of H, which stays ours, and look
 * again after that. Whoever came since and sleeps is found now; whoever comes
 * later sets WAITERS again. So H never becomes free while a writer sleeps. */
static int clear_waiters(struct giving *giving, bool can_pass,
			 struct lock_found *found)
{
	struct reef_lock *lock = giving->lock;
	struct lock_change with = {
		.value = giving->h & ~(uint64_t)(LOCK_WAITERS | LOCK_WOKEN),
	};
	struct lock_head head;
	int rc;

	lock_change_read(&with, lock->head, &head, sizeof(head));
	rc = change_head(giving, &with);
	if (rc)
		return rc;
	giving->h = with.value;
	giving->cleared = true;
	if (!lock_ahead(found->next, head.tail) || REEF_MUTATED(LOCK_NO_REREAD))
		return 0;
	return find_waiter(giving, can_pass, found);
}

/* Give H as giving->h says: make it DROPPED, free, or another's. */
static int give_once(struct giving *giving)
{
	struct reef_lock *lock = giving->lock;
	uint64_t h = giving->h;
	struct lock_found found;
	bool can_pass;
	int rc = 0;

	if (lock_is_dropped(h))
		return make_dropped(giving);
	/* Whoever waits has set WAITERS, unless we took that away since. */
	if (!(h & LOCK_WAITERS) && !giving->cleared)
		return make_free(giving, lock_next(h));
	can_pass = lock->kind == REEF_LOCK_SHIFT &&
		   (lock_is_granted(h) || lock_turns(h) < lock->passes);
	if (!find_in_window(giving, &found) &&
	    !(can_pass && find_passed(giving, &found))) {
		/* Where the window shows nobody there probably is nobody, and
		 * one look, after WAITERS is cleared, is enough. */
		found = (struct lock_found){.next = lock_next(h)};
		if (!lock->window_count)
			rc = find_waiter(giving, can_pass, &found);
	}
	if (!rc && !found.someone && h & LOCK_WAITERS &&
	    !REEF_MUTATED(LOCK_FREE_AND_WAKE))
		rc = clear_waiters(giving, can_pass, &found);
	if (rc)
		return rc;
	if (!found.someone)
		return make_free(giving, found.next);
	return can_pass ? free_and_wake(giving, &found)
			: hand_over(giving, &found);
}

int lock_give_exclusive(struct reef_lock *lock, bool inherited)
{
	struct giving giving = {
		.lock = lock,
		.h = lock->word,
		.keep = inherited ? LOCK_WAS_INHERITED : 0,
		/* A give that failed may have done so. */
		.cleared = inherited,
	};
	int rc;

	do {
		rc = give_once(&giving);
		lock->window_count = 0; /* those in it may have left */
	} while (rc == -EAGAIN);
	lock->no_readers = false;
	/* H is another's, and WAITERS may be missing there: who sleeps sets it
	 * anew. */
	if (REEF_MUTATED(LOCK_FREE_AND_WAKE))
		reef_sleep(SLOW_NS);
	if ((rc == 1 && giving.cleared) || REEF_MUTATED(LOCK_FREE_AND_WAKE))
		rc = lock_wake_waiters(lock, true);
	return rc < 0 ? rc : 0;
}

int lock_clear_woken(struct reef_lock *lock, uint64_t *h)
{
	uint64_t before;
	int rc, attempt;

	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		if (!(*h & LOCK_WOKEN) || lock_is_dropped(*h))
			return 0;
		rc = lock_cas(lock, lock->head, *h, *h & ~(uint64_t)LOCK_WOKEN,
			      &before);
		if (rc)
			return rc;
		if (before == *h) {
			*h &= ~(uint64_t)LOCK_WOKEN;
			return 0;
		}
		*h = before;
	}
	return 0;
}
