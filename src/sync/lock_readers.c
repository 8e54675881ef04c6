/* lock_readers.c - readers in their slots, and the writer that waits for them:
 * lock.h (1), (5), (8).
 *
 *   0 --CAS, and READ H after it--> ACTIVE --H free, READERS: reads--> 0
 *                                     |  ^
 *                        H names one: v  | H is free
 *                                   WAITING --by a writer--> ADMITTED: reads
 *                                     |                           |
 *                                     +--> 0 (gives up)           +--> 0
 *   and of an ended session: to 0 by a writer that waits for it
 *
 * Whoever takes a slot, or makes it WAITING, reads H after that, in the same
 * batch; whoever makes H its own reads the slots after that. So one of the two
 * sees the other (F3b). READERS tells a writer that it has to look at them; it
 * stays until one gives H who saw none in use.
 *
 * Nobody starves. A writer in H keeps out readers that come later. A writer
 * that comes and finds readers waiting counts (`phase`), and the one that
 * counts to writers_phase admits those who were there before it, also those
 * that only step back before it, and waits for them to leave. If it gives up
 * meanwhile, the next one does that. The last one, for whom nobody queues,
 * wakes them when it has made H free.
 *
 * A writer that has to wait writes its name and inbox into the head before it
 * looks at the slots again; a reader that leaves, or goes from ACTIVE to
 * WAITING, reads the head after that, and wakes it. */
#include "sync/lock.h"

#include "base/mutant.h"
#include "pool/client/handle/near.h"

#include <errno.h>
#include <string.h>

#define SLOT_PAUSE_NS UINT64_C(500000)
#define ADMIT_MAX 16 /* in a batch */

/* --- a reader --- */

static uint64_t slot_of(const struct reef_lock *lock, uint32_t flags)
{
	return lock->me | flags;
}

/* CAS our slot, and READ the head after it. */
static int change_slot(struct reef_lock *lock, uint64_t from, uint64_t to,
		       struct lock_head *head, uint64_t *before)
{
	struct lock_change change = {
		.address = lock_slot_address(lock, lock->slot),
		.compare = from,
		.value = to,
	};
	int rc;

	if (to & SLOT_WAITING) {
		change.write_address =
			lock->slot_inboxes + lock->slot * UINT64_C(8);
		change.write = &lock->inbox;
		change.write_length = 8;
	}
	lock_change_read(&change, lock->head, head, sizeof(*head));
	rc = lock_change(lock, &change);
	if (!rc)
		*before = change.before;
	if (!rc && change.before == from)
		lock->slot_word = to;
	return rc;
}

/* Wake the writer that waits for readers to leave, if it is still in H. */
static void wake_drainer(struct reef_lock *lock, const struct lock_head *head)
{
	if (!lock_is_free(head->holder) &&
	    !((head->holder ^ head->drainer) & LOCK_WHO))
		lock_wake(lock, head->drainer_inbox, head->drainer, false);
}

static int read_slots(struct reef_lock *lock)
{
	return reef_read(lock->reef, lock->slots, lock->slots_seen,
			 lock->readers_max * UINT64_C(8));
}

/* Free the slots, as they were read, whose sessions have ended. */
static void clear_dead(struct reef_lock *lock)
{
	uint32_t i, session, ended = 0, alive = 0;
	uint64_t word, before;

	lock->looked_ns = reef_now_ns();
	for (i = 0; i < lock->readers_max; i++) {
		word = lock->slots_seen[i];
		session = (uint32_t)(word >> 32);
		if (!word || session == alive)
			continue;
		if (session != ended && !lock_has_ended(lock, session)) {
			alive = session;
			continue;
		}
		ended = session;
		if (lock_cas(lock, lock_slot_address(lock, i), word, 0,
			     &before))
			return;
		lock->slots_seen[i] = 0;
	}
}

/* Choose a slot that looks free.  -EAGAIN: none was, and a while has passed. */
static int choose_slot(struct reef_lock *lock, struct lock_wait *wait)
{
	uint32_t start, i;
	int rc = read_slots(lock);

	if (rc)
		return rc;
	start = (uint32_t)reef_random_below(&lock->random, lock->readers_max);
	for (i = 0; i < lock->readers_max; i++) {
		lock->slot = (start + i) % lock->readers_max;
		if (!lock->slots_seen[lock->slot])
			return 0;
	}
	if (!wait->can_wait)
		return -EBUSY;
	if (lock_is_session_check_due(lock, lock->ttl_ns / 16))
		clear_dead(lock);
	rc = lock_pause(lock, wait, SLOT_PAUSE_NS);
	return rc ? rc : -EAGAIN;
}

/* Make our slot ACTIVE, or, if it is another's, choose another for the next
 * attempt (-EAGAIN). */
static int enter_slot(struct reef_lock *lock, struct lock_wait *wait,
		      struct lock_head *head)
{
	uint64_t before;
	int rc;

	if (REEF_MUTATED(LOCK_READER_LATE)) {
		struct lock_head late;

		rc = lock_read_head(lock, head);
		if (!rc)
			rc = change_slot(lock, 0, slot_of(lock, SLOT_ACTIVE),
					 &late, &before);
	} else {
		rc = change_slot(lock, 0, slot_of(lock, SLOT_ACTIVE), head,
				 &before);
	}
	if (rc || !before)
		return rc;
	/* The quick path has made it ACTIVE already. */
	if (lock_is_mine(lock, before)) {
		lock->slot_word = before;
		return 0;
	}
	rc = choose_slot(lock, wait);
	return rc ? rc : -EAGAIN;
}

/* --- transitions; 0: we read.  -EAGAIN: decide again by *head --- */

/* Give H, which names us because a ticket that we left was granted. */
static int give_stale_grant(struct reef_lock *lock, struct lock_head *head)
{
	int rc;

	lock->word = head->holder;
	rc = lock_give_exclusive(lock, true);
	if (!rc)
		rc = lock_read_head(lock, head);
	return rc ? rc : -EAGAIN;
}

/* Read: H is free and our slot ACTIVE, so only READERS has to be set in H. */
static int begin_reading(struct reef_lock *lock, struct lock_head *head)
{
	uint64_t h = head->holder, before;
	int rc;

	if (h & LOCK_READERS)
		return 0;
	rc = lock_cas(lock, lock->head, h, h | LOCK_READERS, &before);
	if (rc)
		return rc;
	if (before != h) {
		head->holder = before;
		return -EAGAIN;
	}
	head->holder |= LOCK_READERS;
	return 0;
}

/* Take note of our slot as it is now.  0: a writer has ADMITTED us, perhaps
 * while a link was lost.  -REEF_EFENCED: it was cleared, as our session has
 * ended. */
static int note_own_slot(struct reef_lock *lock, uint64_t slot)
{
	if (!lock_is_mine(lock, slot))
		return -REEF_EFENCED;
	lock->slot_word = slot;
	return slot & SLOT_ADMITTED ? 0 : -EAGAIN;
}

/* Go from WAITING back to ACTIVE, because H is free; or find us ADMITTED. */
static int reactivate_slot(struct reef_lock *lock, struct lock_head *head)
{
	uint64_t before, from = lock->slot_word;
	int rc;

	rc = change_slot(lock, from, slot_of(lock, SLOT_ACTIVE), head, &before);
	if (rc)
		return rc;
	return before == from ? -EAGAIN : note_own_slot(lock, before);
}

/* Go from ACTIVE to WAITING, because H names a writer. */
static int step_back(struct reef_lock *lock, struct lock_head *head)
{
	uint64_t before, from = lock->slot_word;
	int rc;

	lock_listen(lock);
	lock->woken = false;
	rc = change_slot(lock, from, slot_of(lock, SLOT_WAITING), head,
			 &before);
	if (rc)
		return rc;
	if (before != from)
		return note_own_slot(lock, before);
	wake_drainer(lock, head);
	return -EAGAIN;
}

static int reread_slot(struct reef_lock *lock, struct lock_head *head)
{
	uint64_t slot;
	struct reef_access accesses[2] = {
		{.kind = REEF_READ,
		 .address = lock_slot_address(lock, lock->slot),
		 .local = &slot,
		 .length = 8},
		{.kind = REEF_READ,
		 .address = lock->head,
		 .local = head,
		 .length = sizeof(*head)},
	};
	int rc;

	lock->woken = false;
	rc = reef_execute(lock->reef, accesses, 2);
	if (rc)
		return rc;
	return note_own_slot(lock, slot);
}

/* Make H free, if its writer's session has ended, or its ticket was left. */
static int break_writer(struct reef_lock *lock, struct lock_head *head)
{
	uint64_t h = head->holder, flags, before;
	int rc;

	if (!lock_can_break(lock, h, &flags))
		return -EAGAIN;
	rc = lock_cas(lock, lock->head, h, lock_with_next(flags, lock_next(h)),
		      &before);
	if (!rc && before == h)
		rc = lock_wake_waiters(lock, false);
	if (!rc)
		rc = lock_read_head(lock, head);
	return rc ? rc : -EAGAIN;
}

/* Sleep, WAITING, until a message comes or it is time to look. */
static int park(struct reef_lock *lock, struct lock_wait *wait,
		struct lock_head *head)
{
	uint64_t h = head->holder, before;
	bool timed;
	int rc;

	if (lock_spin(lock, wait, h))
		return reread_slot(lock, head);
	if (!(h & LOCK_READERS)) {
		rc = lock_cas(lock, lock->head, h, h | LOCK_READERS, &before);
		if (rc)
			return rc;
		head->holder = before == h ? h | LOCK_READERS : before;
		if (before != h)
			return -EAGAIN;
	}
	rc = lock_wait(lock, wait);
	timed = rc == -EAGAIN;
	if (rc && !timed)
		return rc;
	wait->looks = 0;
	rc = reread_slot(lock, head);
	if (rc != -EAGAIN || !timed)
		return rc;
	return break_writer(lock, head);
}

static int decide_by_head(struct reef_lock *lock, struct lock_wait *wait,
			  struct lock_head *head)
{
	bool active = lock->slot_word & SLOT_ACTIVE;

	if (lock_is_dropped(head->holder))
		return -ENOENT;
	if (lock_is_mine(lock, head->holder))
		return give_stale_grant(lock, head);
	if (lock_is_free(head->holder))
		return active ? begin_reading(lock, head)
			      : reactivate_slot(lock, head);
	if (!wait->can_wait)
		return -EBUSY;
	return active ? step_back(lock, head) : park(lock, wait, head);
}

/* Free our slot.  1: it is ADMITTED by now and `admitted` says to keep it then.
 */
static int leave_slot(struct reef_lock *lock, bool admitted)
{
	uint64_t from = lock->slot_word, before;
	struct lock_head head;
	int rc;

	while (from) {
		rc = change_slot(lock, from, 0, &head, &before);
		if (rc)
			return rc;
		if (before == from || !lock_is_mine(lock, before)) {
			wake_drainer(lock, &head);
			break;
		}
		lock->slot_word = from = before;
		if (admitted && from & SLOT_ADMITTED)
			return 1;
	}
	lock->slot_word = 0;
	return 0;
}

int lock_give_shared(struct reef_lock *lock)
{
	struct lock_head head;
	uint64_t h, before;
	int rc;

	/* Where an operation ends as it is posted, CAS and READ need no batch
	 * to be in order. */
	if (!client_near_cas(lock->reef, lock_slot_address(lock, lock->slot),
			     lock->slot_word, 0, &before) ||
	    before != lock->slot_word)
		return leave_slot(lock, false);
	lock->slot_word = 0;
	rc = reef_read(lock->reef, lock->head, &h, 8);
	if (rc || lock_is_free(h))
		return rc;
	rc = lock_read_head(lock, &head);
	if (!rc)
		wake_drainer(lock, &head);
	return rc;
}

/* Take a lock to read by one CAS, if it is free and has READERS. False: it is
 * not taken; enter_slot() goes on with the slot as it is. */
static bool take_quickly(struct reef_lock *lock)
{
	uint64_t word = slot_of(lock, SLOT_ACTIVE), before, h;

	if (REEF_MUTATED(LOCK_READER_LATE) ||
	    !client_near_cas(lock->reef, lock_slot_address(lock, lock->slot), 0,
			     word, &before) ||
	    before || reef_read(lock->reef, lock->head, &h, 8))
		return false;
	lock->slot_word = word;
	return lock_is_free(h) && !lock_is_dropped(h) &&
	       (h & (LOCK_READERS | LOCK_WAS_INHERITED)) == LOCK_READERS;
}

/* Free our slot because of the error `why`, and return it.  0: we were ADMITTED
 * meanwhile, and read. */
static int free_slot(struct reef_lock *lock, int why)
{
	int rc = leave_slot(lock, true);

	if (rc == 1)
		return 0;
	if (lock->failed)
		lock->held = LOCK_UNSETTLED;
	return why;
}

int lock_take_shared(struct reef_lock *lock, uint64_t timeout_ns)
{
	struct lock_wait wait = {0};
	struct lock_head head;
	uint64_t inherited;
	int rc;

	lock->slot_word = 0;
	if (take_quickly(lock)) {
		lock->held = LOCK_HELD_SHARED;
		return 0;
	}
	lock_wait_init(lock, &wait, timeout_ns);
	lock->failed = false;
	do
		rc = enter_slot(lock, &wait, &head);
	while (rc == -EAGAIN);
	if (!rc) {
		do
			rc = decide_by_head(lock, &wait, &head);
		while (rc == -EAGAIN);
	}
	if (rc)
		rc = free_slot(lock, rc);
	if (rc)
		return rc;
	lock_spin_paid(lock, &wait);
	lock->held = LOCK_HELD_SHARED;
	inherited = lock->slot_word & SLOT_ADMITTED
			    ? lock->slot_word & SLOT_INHERITED
			    : head.holder & LOCK_WAS_INHERITED;
	return inherited ? REEF_LOCK_INHERITED : 0;
}

/* --- a writer --- */

static bool is_same(uint64_t word, uint64_t first)
{
	return word && first && !((word ^ first) & LOCK_WHO);
}

void lock_wake_readers(struct reef_lock *lock, const uint64_t *slots)
{
	uint32_t i, first = lock->readers_max;

	if (!slots) {
		if (!lock->readers_max || read_slots(lock))
			return;
		slots = lock->slots_seen;
	}
	reef_assert(slots);
	for (i = lock->readers_max; i-- > 0;)
		if (slots[i] & (SLOT_WAITING | SLOT_ADMITTED))
			first = i;
	if (first == lock->readers_max ||
	    reef_read(lock->reef, lock->slot_inboxes, lock->inboxes_seen,
		      lock->readers_max * UINT64_C(8)))
		return;
	for (i = first; i < lock->readers_max; i++)
		if (slots[i] & (SLOT_WAITING | SLOT_ADMITTED) &&
		    !lock_is_mine(lock, slots[i]))
			lock_wake(lock, lock->inboxes_seen[i], slots[i], false);
}

/* True if a CAS has admitted a reader. One that was not WAITING just then was
 * woken, and lost against us: it steps back, and keeps its turn. */
static bool is_admitted(const struct reef_access *cas)
{
	return !cas->status && cas->result == cas->compare;
}

/* Admit the readers that came before us and wait, as the slots that were read
 * say, each once: one that comes back after that has come after us. A CAS in
 * doubt is settled by reading the slots again. */
static int admit_waiting(struct reef_lock *lock)
{
	struct reef_access accesses[ADMIT_MAX];
	uint64_t with = SLOT_ADMITTED;
	uint32_t slots[ADMIT_MAX], i, j, count = 0;
	int rc = 0;

	if (lock->word & LOCK_WAS_INHERITED)
		with |= SLOT_INHERITED;
	for (i = 0; i < lock->readers_max; i++) {
		uint64_t word = lock->slots_seen[i];

		if (word & SLOT_WAITING &&
		    is_same(word, lock->slots_first[i])) {
			slots[count] = i;
			accesses[count++] = (struct reef_access){
				.kind = REEF_CAS,
				.address = lock_slot_address(lock, i),
				.compare = word,
				.operand = (word & LOCK_WHO) | with,
			};
		}
		if (!count || (count < ADMIT_MAX && i + 1 < lock->readers_max))
			continue;
		rc = reef_execute(lock->reef, accesses, count);
		if (rc && rc != -REEF_EINDOUBT)
			return rc;
		for (j = 0; j < count; j++)
			if (is_admitted(&accesses[j]))
				lock->slots_first[slots[j]] = 0;
		count = 0;
	}
	rc = read_slots(lock);
	if (!rc)
		lock_wake_readers(lock, lock->slots_seen);
	return rc;
}

/* True if a reader that came before us waits. */
static bool is_one_waiting(const struct reef_lock *lock)
{
	uint32_t i;

	for (i = 0; i < lock->readers_max; i++)
		if (lock->slots_seen[i] & SLOT_WAITING &&
		    is_same(lock->slots_seen[i], lock->slots_first[i]))
			return true;
	return false;
}

static int write_phase(struct reef_lock *lock, uint64_t phase)
{
	return reef_write(lock->reef,
			  lock->head + offsetof(struct lock_head, phase),
			  &phase, 8);
}

/* Count a writer that came while readers wait.  1: now it is the readers' turn.
 */
static int count_phase(struct reef_lock *lock, const struct lock_head *head)
{
	uint64_t phase = head->phase + 1;
	bool turn = phase >= lock->writers_phase;
	int rc = write_phase(lock, turn ? 0 : phase);

	/* A count in doubt lets readers wait for one writer more. */
	if (rc && rc != -REEF_EINDOUBT)
		return rc;
	return turn;
}

/* It was the readers' turn, and we give up before all of them had it: the next
 * writer lets them in. */
static void give_turn_back(struct reef_lock *lock)
{
	write_phase(lock, lock->writers_phase);
}

static uint64_t slots_flags(const struct reef_lock *lock)
{
	uint64_t all = 0;
	uint32_t i;

	for (i = 0; i < lock->readers_max; i++)
		all |= lock->slots_seen[i];
	return all & (SLOT_ACTIVE | SLOT_WAITING | SLOT_ADMITTED);
}

/* Write our name and inbox into the head, then READ the slots again: a reader
 * that leaves after that wakes us. */
static int announce_drainer(struct reef_lock *lock)
{
	const uint64_t drainer[2] = {lock->me, lock->inbox};
	struct reef_access accesses[2] = {
		{.kind = REEF_WRITE,
		 .address = lock->head + offsetof(struct lock_head, drainer),
		 .local = (void *)drainer,
		 .length = sizeof(drainer)},
		{.kind = REEF_READ,
		 .address = lock->slots,
		 .local = lock->slots_seen,
		 .length = lock->readers_max * 8},
	};
	int rc;

	do
		rc = reef_execute(lock->reef, accesses, 2);
	while (rc == -REEF_EINDOUBT);
	return rc;
}

/* Wait until a reader may have left, and READ the slots again. */
static int wait_for_readers(struct reef_lock *lock, struct lock_wait *wait)
{
	bool timed;
	int rc = 0;

	if (!wait->can_wait)
		return -EBUSY;
	if (!wait->announced) {
		wait->announced = true;
		lock_listen(lock);
		lock->woken = false;
		return announce_drainer(lock);
	}
	if (!lock_spin(lock, wait, 0))
		rc = lock_wait(lock, wait);
	timed = rc == -EAGAIN;
	if (rc && !timed)
		return rc;
	lock->woken = false;
	rc = read_slots(lock);
	if (!rc && timed)
		clear_dead(lock);
	return rc;
}

/* Wait until no slot is ACTIVE or ADMITTED. A reader that is ACTIVE at the
 * beginning may step back before us: it has waited as long as the others. */
static int drain_slots(struct reef_lock *lock, struct lock_wait *wait,
		       const struct lock_head *head)
{
	bool counted = false;
	int turn = 0, rc = 0;

	memcpy(lock->slots_first, lock->slots_seen, lock->readers_max * 8);
	while (!rc) {
		if (!counted && is_one_waiting(lock)) {
			turn = count_phase(lock, head);
			if (turn < 0)
				return turn;
			counted = true;
		}
		if (turn && is_one_waiting(lock)) {
			rc = admit_waiting(lock);
			continue;
		}
		if (!(slots_flags(lock) & (SLOT_ACTIVE | SLOT_ADMITTED)))
			break;
		rc = wait_for_readers(lock, wait);
	}
	if (rc && turn)
		give_turn_back(lock);
	lock->no_readers = !slots_flags(lock);
	return rc;
}

int lock_drain(struct reef_lock *lock, struct lock_wait *wait)
{
	struct lock_head head;
	struct reef_access accesses[2] = {
		{.kind = REEF_READ,
		 .address = lock->head,
		 .local = &head,
		 .length = sizeof(head)},
		{.kind = REEF_READ,
		 .address = lock->slots,
		 .local = lock->slots_seen,
		 .length = lock->readers_max * 8},
	};
	int rc;

	lock->no_readers = false;
	wait->looks = 0;
	rc = reef_execute(lock->reef, accesses, 2);
	return rc ? rc : drain_slots(lock, wait, &head);
}
