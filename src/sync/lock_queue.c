/* lock_queue.c - the ring in which writers wait: lock.h (4), (5).
 *
 *   hole --name (its owner)---------------> WAITING --granted: next goes past
 *     |                                       |  |
 *     +--poison (who grants past it)--> DONE  |  +--takes it by itself--> DONE
 *                                             +--lock_leave--> LEFT
 *   and WAITING of an ended session --lock_sweep--> LEFT
 *
 * A ticket is taken when T is less than places_max ahead of next, and there are
 * more places than that; those who look at the same moment can go over it, and
 * wait until next has come near before they touch the place. */
#include "sync/lock.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

#define ATTEMPTS 16 /* to name a place, by what was last seen there */
#define FULL_PAUSE_NS UINT64_C(500000)
#define HOLES_MAX 16

static bool is_of_ticket(uint64_t word, uint64_t ticket)
{
	return sync_word_unpack(word).ticket == (ticket & (SYNC_TICKETS - 1));
}

uint32_t lock_window_length(const struct reef_lock *lock, uint64_t ticket)
{
	uint64_t left = lock->places - (ticket & (lock->places - 1));

	return left < LOCK_WINDOW ? (uint32_t)left : LOCK_WINDOW;
}

static int read_window(struct reef_lock *lock, uint64_t ticket,
		       uint64_t *window, uint32_t count)
{
	return reef_read(lock->reef, lock_place_address(lock, ticket), window,
			 count * UINT64_C(8));
}

/* --- getting in --- */

/* Set a flag in H, so that whoever gives it looks at the ring.  -EAGAIN: H has
 * changed; *h is what it is now. */
static int set_flag(struct reef_lock *lock, uint64_t *h, uint64_t flag)
{
	uint64_t before;
	int rc;

	if (lock_is_free(*h) || lock_is_mine(lock, *h) || lock_is_dropped(*h) ||
	    *h & flag)
		return 0;
	rc = lock_cas(lock, lock->head, *h, *h | flag, &before);
	if (rc)
		return rc;
	if (before != *h) {
		*h = before;
		return -EAGAIN;
	}
	*h |= flag;
	return 0;
}

/* Take a ticket, if `next` is near. *h: H, perhaps a little old.  -EAGAIN: H is
 * free or dropped; or the ring was full, and a while has passed. */
static int take_ticket(struct reef_lock *lock, struct lock_wait *wait,
		       uint64_t *h)
{
	struct lock_head head;
	int rc = lock_read_head(lock, &head);

	if (rc)
		return rc;
	*h = head.holder;
	if (lock_is_free(*h) || lock_is_mine(lock, *h) || lock_is_dropped(*h))
		return -EAGAIN;
	if (lock_ahead(lock_next(*h), head.tail) >= lock->places_max) {
		/* The giver tidies the ring up, if all in it are gone. */
		rc = set_flag(lock, h, LOCK_WAITERS);
		if (!rc)
			rc = lock_pause(lock, wait, FULL_PAUSE_NS);
		return rc ? rc : -EAGAIN;
	}
	/* A number that an FAA in doubt may have taken is a hole for good. */
	do
		rc = reef_faa(lock->reef, lock->head + 8, 1, &lock->ticket);
	while (rc == -REEF_EINDOUBT);
	return rc;
}

static bool is_near(const struct reef_lock *lock, uint64_t next,
		    uint64_t ticket)
{
	return ((ticket - next) & (SYNC_TICKETS - 1)) < lock->places - 1;
}

/* Put our name at the place of our ticket. -ESTALE: it was poisoned.  -EAGAIN:
 * next is not near enough yet. */
static int name_place(struct reef_lock *lock, uint64_t *h)
{
	uint64_t ticket = lock->ticket, old = ticket - lock->places;
	struct lock_head head;
	struct lock_change change = {
		.address = lock_place_address(lock, ticket),
		.compare = lock_place_word(0, old, PLACE_DONE),
		.value = lock_place_word(lock->me, ticket, PLACE_WAITING),
	};
	int rc, attempt;

	if (lock_ahead(lock_next(*h), ticket) >= lock->places - 1)
		return -EAGAIN;
	lock_change_read(&change, lock->head, &head, sizeof(head));
	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		rc = lock_change(lock, &change);
		if (rc)
			return rc;
		*h = head.holder;
		if (change.before == change.compare) {
			lock->place_word = change.value;
			lock->queued = true;
			return 0;
		}
		/* The ticket before is finished, but its place is not marked:
		 * it was granted, left, or is dead. Or we were away for so long
		 * that tickets begin to repeat. */
		if (!is_of_ticket(change.before, old) ||
		    !is_near(lock, lock_next(*h), ticket))
			return -ESTALE;
		change.compare = change.before;
	}
	return -ESTALE;
}

int lock_enter(struct reef_lock *lock, struct lock_wait *wait, uint64_t *h)
{
	int rc;

	if (!wait->has_ticket) {
		rc = take_ticket(lock, wait, h);
		if (rc)
			return rc;
		wait->has_ticket = true;
	}
	rc = name_place(lock, h);
	if (rc == -EAGAIN) {
		rc = lock_pause(lock, wait, FULL_PAUSE_NS);
		if (!rc)
			rc = reef_read(lock->reef, lock->head, h, 8);
		return rc ? rc : -EAGAIN;
	}
	wait->has_ticket = false;
	return rc == -ESTALE ? -EAGAIN : rc;
}

/* --- waiting --- */

int lock_park_place(struct reef_lock *lock, uint64_t *h)
{
	struct lock_head head;
	struct lock_change change = {
		.address = lock_place_address(lock, lock->ticket),
		.compare = lock->place_word,
		.value = lock->place_word | PLACE_PARKED,
	};
	int rc;

	lock_listen(lock);
	change.write_address = lock_place_inbox(lock, lock->ticket);
	change.write = &lock->inbox;
	change.write_length = 8;
	lock_change_read(&change, lock->head, &head, sizeof(head));
	rc = lock_change(lock, &change);
	if (rc)
		return rc;
	if (change.before != change.compare)
		/* Our place was swept away: our session has ended. */
		return -REEF_EFENCED;
	lock->place_word = change.value;
	*h = head.holder;
	return 0;
}

int lock_read_queue(struct reef_lock *lock, uint64_t *h)
{
	uint32_t count = lock_window_length(lock, lock->ticket);
	struct lock_head head;
	struct reef_access accesses[2] = {
		{.kind = REEF_READ,
		 .address = lock->head,
		 .local = &head,
		 .length = sizeof(head)},
		{.kind = REEF_READ,
		 .address = lock_place_address(lock, lock->ticket),
		 .local = lock->window,
		 .length = count * 8},
	};
	int rc = reef_execute(lock->reef, accesses, 2);

	if (rc)
		return rc;
	lock->window_first = lock->ticket;
	lock->window_count = count;
	*h = head.holder;
	return 0;
}

/* --- getting out --- */

int lock_finish_place(struct reef_lock *lock)
{
	uint64_t ticket = lock->ticket, before;

	if (!lock->queued)
		return 0;
	lock->queued = false;
	lock->window_count = 0;
	return lock_cas(lock, lock_place_address(lock, ticket),
			lock->place_word,
			lock_place_word(0, ticket, PLACE_DONE), &before);
}

/* Wake another waiter in our place: a giver may count on us to take H. */
static int pass_wakeup_on(struct reef_lock *lock, uint64_t h)
{
	int rc = lock_clear_woken(lock, &h);

	if (!rc && lock_is_free(h))
		rc = lock_wake_waiters(lock, false);
	return rc;
}

int lock_leave(struct reef_lock *lock)
{
	struct lock_head head;
	uint64_t ticket = lock->ticket, before;
	struct lock_change change = {
		.address = lock_place_address(lock, ticket),
		.compare = lock->place_word,
		.value = lock_place_word(lock->me, ticket, PLACE_LEFT),
	};
	int rc;

	if (!lock->queued)
		return 0;
	lock_change_read(&change, lock->head, &head, sizeof(head));
	rc = lock_change(lock, &change);
	if (rc)
		return rc;
	lock->queued = false;
	lock->window_count = 0;
	while (lock_is_mine(lock, head.holder)) {
		/* Whoever granted it may be taking it back: the CAS tells. */
		uint64_t mine = head.holder & ~(uint64_t)LOCK_GRANTED;

		if (mine == head.holder) {
			lock->word = mine;
			return 1;
		}
		rc = lock_cas(lock, lock->head, head.holder, mine, &before);
		if (rc)
			return rc;
		head.holder = before == head.holder ? mine : before;
	}
	return pass_wakeup_on(lock, head.holder);
}

/* --- who is next --- */

struct search {
	struct reef_lock *lock;
	struct lock_found *found;
	uint64_t h; /* as it was when the search began */
	uint64_t cursor;
	uint32_t holes;
	struct {
		uint64_t ticket, word;
	} hole[HOLES_MAX];
};

/* Poison one hole.  1: its owner has named it meanwhile, and waits. */
static int poison_hole(struct search *search, uint64_t ticket, uint64_t word)
{
	struct reef_lock *lock = search->lock;
	uint64_t before;
	int rc;

	for (;;) {
		rc = lock_cas(lock, lock_place_address(lock, ticket), word,
			      lock_place_word(0, ticket, PLACE_DONE), &before);
		if (rc || before == word)
			return rc;
		word = before;
		if (is_of_ticket(word, ticket))
			break;
		if (!is_of_ticket(word, ticket - lock->places))
			return -ESTALE;
		/* The ticket before was marked only now: try again. */
	}
	/* Another giver may have poisoned it: then whom we found stays found.
	 */
	if (!(word & PLACE_WAITING))
		return 0;
	search->found->word = word;
	return 1;
}

/* Poison the holes met so far. If an owner has come to one meanwhile, it is the
 * first that waits. */
static int poison_holes(struct search *search)
{
	uint32_t i;
	int rc;

	for (i = 0; i < search->holes; i++) {
		rc = poison_hole(search, search->hole[i].ticket,
				 search->hole[i].word);
		if (rc < 0)
			return rc;
		if (!rc)
			continue;
		search->found->ticket = search->hole[i].ticket;
		search->found->someone = true;
		break;
	}
	search->holes = 0;
	return 0;
}

/* Find out about a place that is neither of the ticket at the cursor nor of the
 * lap before. 0: it was scribbled over, and is as good as a hole.  -ESTALE: H
 * has gone on, and the place is of a lap to come: (4). */
static int check_strange_place(const struct search *search)
{
	const uint64_t same = LOCK_WHO | (uint64_t)(SYNC_TICKETS - 1) << 8;
	struct reef_lock *lock = search->lock;
	uint64_t now;
	int rc = reef_read(lock->reef, lock->head, &now, 8);

	if (!rc && (now ^ search->h) & same)
		rc = -ESTALE;
	return rc;
}

/* Judge the place at the cursor.  1: it is of the first that waits. */
static int judge_place(struct search *search, uint64_t word, bool poison)
{
	const struct reef_lock *lock = search->lock;
	const uint64_t ticket = search->cursor;
	int rc;

	if (!is_of_ticket(word, ticket)) {
		if (!is_of_ticket(word, ticket - lock->places)) {
			rc = check_strange_place(search);
			if (rc)
				return rc;
		}
		if (search->holes == HOLES_MAX) {
			if (!poison)
				return 0;
			rc = poison_holes(search);
			if (rc || search->found->someone)
				return rc ? rc : 1;
		}
		search->hole[search->holes].ticket = ticket;
		search->hole[search->holes++].word = word;
		return 0;
	}
	/* Our own place counts as finished, since we hold H. */
	if (!(word & PLACE_WAITING) || lock_is_mine(lock, word)) {
		if (!search->holes)
			search->found->next = ticket + 1;
		return 0;
	}
	search->found->someone = true;
	search->found->ticket = ticket;
	search->found->word = word;
	return 1;
}

static int end_search(struct search *search, bool poison)
{
	struct lock_found *found = search->found;
	int rc = 0;

	if (poison && found->someone && search->holes &&
	    !REEF_MUTATED(LOCK_SKIP_UNNAMED))
		rc = poison_holes(search);
	if (!rc && poison && found->someone)
		found->next = found->ticket;
	return rc;
}

int lock_find_waiter(struct reef_lock *lock, uint64_t h, bool poison,
		     struct lock_found *found)
{
	uint64_t window[LOCK_WINDOW];
	struct search search = {.lock = lock, .found = found, .h = h};
	struct lock_head head;
	uint32_t left, count, i;
	int rc;

	rc = lock_read_head(lock, &head);
	if (rc)
		return rc;
	*found = (struct lock_found){.next = lock_next(h)};
	search.cursor = lock_next(h);
	left = lock_in_line(lock, search.cursor, head.tail);
	/* Holes of dead clients must not fill the ring. */
	if (left > lock->places_max / 2)
		poison = true;
	while (left) {
		count = lock_window_length(lock, search.cursor);
		count = count < left ? count : left;
		rc = read_window(lock, search.cursor, window, count);
		if (rc)
			return rc;
		for (i = 0; i < count; i++, search.cursor++) {
			rc = judge_place(&search, window[i], poison);
			if (rc < 0)
				return rc;
			if (rc)
				return end_search(&search, poison);
		}
		left -= count;
	}
	if (poison && search.holes)
		rc = poison_holes(&search);
	return rc;
}

/* --- waking, tidying --- */

int lock_wake_waiters(struct reef_lock *lock, bool all)
{
	uint64_t window[LOCK_WINDOW];
	struct lock_head head;
	uint32_t left, count, i;
	uint64_t cursor;
	int rc;

	rc = lock_read_head(lock, &head);
	if (rc)
		return rc;
	cursor = lock_next(head.holder);
	left = lock_in_line(lock, cursor, head.tail);
	while (left) {
		count = lock_window_length(lock, cursor);
		count = count < left ? count : left;
		rc = read_window(lock, cursor, window, count);
		if (rc)
			return rc;
		for (i = 0; i < count; i++) {
			if (!(window[i] & PLACE_WAITING) ||
			    lock_is_mine(lock, window[i]))
				continue;
			lock_wake_place(lock, cursor + i, window[i]);
			if (!all)
				return 0;
		}
		cursor += count;
		left -= count;
	}
	if (head.holder & LOCK_READERS)
		lock_wake_readers(lock, NULL);
	return 0;
}

static void sweep_place(struct reef_lock *lock, uint64_t ticket, uint64_t word,
			uint32_t *ended)
{
	uint32_t session = (uint32_t)(word >> 32);
	uint64_t before;

	if (!(word & PLACE_WAITING))
		return;
	if (session != *ended && !lock_has_ended(lock, session))
		return;
	*ended = session;
	lock_cas(lock, lock_place_address(lock, ticket), word,
		 lock_place_word(word, ticket, PLACE_LEFT), &before);
}

void lock_sweep(struct reef_lock *lock)
{
	uint64_t window[LOCK_WINDOW];
	struct lock_head head;
	uint32_t left, count, i, ended = 0;
	uint64_t cursor;

	if (lock_read_head(lock, &head))
		return;
	cursor = lock_next(head.holder);
	left = lock_in_line(lock, cursor, head.tail);
	while (left) {
		count = lock_window_length(lock, cursor);
		count = count < left ? count : left;
		if (read_window(lock, cursor, window, count))
			return;
		for (i = 0; i < count; i++)
			sweep_place(lock, cursor + i, window[i], &ended);
		cursor += count;
		left -= count;
	}
}
