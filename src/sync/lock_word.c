/* lock_word.c - a lock's accesses, and how one waits for it. See lock.h. */
#include "sync/lock.h"

#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)
/* A pause up to this long is spent running. */
#define RELAX_NS (4 * MICROSECOND)
/* A participant without an inbox cannot be woken, and looks this often. */
#define DEAF_NS MILLISECOND
#define PAUSE_FIRST_NS (2 * MICROSECOND)
/* A participant reads H LOCK_LOOKS times before it parks, or fewer times if
 * that was in vain lately. Each READ takes the cache line away from the
 * holder's processor, which slows the holder down: so READs lie further and
 * further apart. After LOOKS_QUICK of them it lets others run in between: where
 * there are more processes than processors the holder may be among them. */
#define LOOKS_MIN 24u
#define LOOKS_QUICK 12u
#define LOOK_FIRST_NS UINT64_C(100)
#define LOOK_MOST_NS (LOOK_FIRST_NS << 7)

/* --- access ---
 *
 * By reef_execute and reef_cas, which refuse everything once the session has
 * ended, even where it is not fenced yet: so a lock of an ended session gives
 * nothing, and the next owner is told. And they write headers of fresh blocks
 * first, so that whoever is let in by this finds them. */

void lock_change_read(struct lock_change *change, uint64_t address, void *to,
		      uint32_t length)
{
	uint32_t i = change->reads_count++;

	reef_assert(i < LOCK_READS);
	change->reads[i].address = address;
	change->reads[i].to = to;
	change->reads[i].length = length;
}

static uint32_t add_reads(const struct lock_change *change,
			  struct reef_access *accesses, uint32_t count)
{
	for (uint32_t i = 0; i < LOCK_READS && i < change->reads_count; i++)
		accesses[count++] = (struct reef_access){
			.kind = REEF_READ,
			.address = change->reads[i].address,
			.local = change->reads[i].to,
			.length = change->reads[i].length,
		};
	return count;
}

/* Find out what became of a CAS that was in doubt and is settled, and do its
 * READs.  -EAGAIN: it never happened, the word is as it was before. */
static int settle_change(struct reef_lock *lock, struct lock_change *change)
{
	struct reef_access accesses[1 + LOCK_READS];
	uint32_t count = 1;
	uint64_t now;
	int rc;

	accesses[0] = (struct reef_access){
		.kind = REEF_READ,
		.address = change->address,
		.local = &now,
		.length = 8,
	};
	count = add_reads(change, accesses, count);
	rc = reef_execute(lock->reef, accesses, count);
	if (rc)
		return rc;
	if (now == change->compare && change->compare != change->value)
		return -EAGAIN;
	change->before = now == change->value ? change->compare : now;
	return 0;
}

int lock_change(struct reef_lock *lock, struct lock_change *change)
{
	struct reef_access accesses[2 + LOCK_READS], *cas;
	uint32_t count;
	int rc;

	do {
		count = 0;
		if (change->write)
			accesses[count++] = (struct reef_access){
				.kind = REEF_WRITE,
				.address = change->write_address,
				.local = (void *)change->write,
				.length = change->write_length,
			};
		cas = &accesses[count++];
		*cas = (struct reef_access){
			.kind = REEF_CAS,
			.address = change->address,
			.compare = change->compare,
			.operand = change->value,
		};
		count = add_reads(change, accesses, count);
		rc = reef_execute(lock->reef, accesses, count);
		if (!rc)
			change->before = cas->result;
		else if (rc == -REEF_EINDOUBT)
			rc = settle_change(lock, change);
	} while (rc == -EAGAIN);
	lock->failed |= rc != 0;
	return rc;
}

int lock_cas(struct reef_lock *lock, uint64_t address, uint64_t compare,
	     uint64_t value, uint64_t *before)
{
	struct lock_change change = {
		.address = address,
		.compare = compare,
		.value = value,
	};
	int rc;

	do {
		rc = reef_cas(lock->reef, address, compare, value,
			      &change.before);
		if (rc == -REEF_EINDOUBT)
			rc = settle_change(lock, &change);
	} while (rc == -EAGAIN);
	lock->failed |= rc != 0;
	if (!rc)
		*before = change.before;
	return rc;
}

int lock_read_head(struct reef_lock *lock, struct lock_head *head)
{
	return reef_read(lock->reef, lock->head, head, sizeof(*head));
}

/* --- messages --- */

static void note_message(struct reef_watch *watch, const struct reef_wake *wake)
{
	struct reef_lock *lock = watch->user;

	if (!lock_is_mine(lock, wake->word))
		return;
	lock->woken = true;
	lock->granted |= wake->words[0] != 0;
}

void lock_listen(struct reef_lock *lock)
{
	uint64_t inbox;

	if (lock->watching)
		return;
	/* A participant without an inbox looks by itself, and more often. */
	if (!reef_inbox_open(lock->object.space, &inbox))
		lock->inbox = inbox;
	lock->watch.object = lock->object.block;
	lock->watch.message = note_message;
	lock->watch.user = lock;
	reef_inbox_watch(lock->reef, &lock->watch);
	lock->watching = true;
}

void lock_wake(struct reef_lock *lock, uint64_t inbox, uint64_t who,
	       bool granted)
{
	struct reef_wake wake = {
		.object = lock->object.block,
		.word = who & LOCK_WHO,
		.words = {granted},
	};

	/* A message that cannot be sent counts as lost: its receiver looks by
	 * itself. */
	if (inbox)
		reef_inbox_send(lock->object.space, inbox, &wake);
}

void lock_wake_place(struct reef_lock *lock, uint64_t ticket, uint64_t word)
{
	uint64_t inbox;

	if (word & PLACE_PARKED &&
	    !reef_read(lock->reef, lock_place_inbox(lock, ticket), &inbox, 8))
		lock_wake(lock, inbox, word, false);
}

/* --- waiting --- */

void lock_wait_init(struct reef_lock *lock, struct lock_wait *wait,
		    uint64_t timeout_ns)
{
	uint64_t now_ns = timeout_ns == REEF_FOREVER ? 0 : reef_now_ns();

	wait->deadline_ns = UINT64_MAX - now_ns < timeout_ns
				    ? UINT64_MAX
				    : now_ns + timeout_ns;
	wait->period_ns = lock->ttl_ns / 64;
	wait->pause_ns = PAUSE_FIRST_NS;
	wait->can_wait = timeout_ns != 0;
}

static bool is_cancelled(const void *what)
{
	const struct reef_lock *lock = what;

	/* Acquire: the partner is reef_lock_cancel. */
	return atomic_load_explicit(&((struct reef_lock *)lock)->cancelled,
				    memory_order_acquire);
}

static bool is_woken(const void *what)
{
	const struct reef_lock *lock = what;

	return lock->woken || is_cancelled(lock);
}

/* Wait until `ready`, for most_ns at most.  -EAGAIN: most_ns are over.
 * -ETIMEDOUT: the deadline.  -ECANCELED. */
static int wait_at_most(struct reef_lock *lock, const struct lock_wait *wait,
			bool (*ready)(const void *what), uint64_t most_ns)
{
	uint64_t left_ns = REEF_FOREVER, now_ns;
	int rc;

	if (wait->deadline_ns != UINT64_MAX) {
		now_ns = reef_now_ns();
		left_ns = now_ns < wait->deadline_ns
				  ? wait->deadline_ns - now_ns
				  : 0;
	}
	rc = reef_inbox_wait(lock->reef, ready, lock,
			     left_ns < most_ns ? left_ns : most_ns);
	if (is_cancelled(lock)) {
		atomic_store(&lock->cancelled, false);
		return -ECANCELED;
	}
	if (rc != -ETIMEDOUT)
		return rc;
	return left_ns <= most_ns ? -ETIMEDOUT : -EAGAIN;
}

int lock_wait(struct reef_lock *lock, struct lock_wait *wait)
{
	uint64_t most_ns = wait->period_ns;
	int rc;

	if (!lock->inbox && most_ns > DEAF_NS)
		most_ns = DEAF_NS;
	lock->parked = true;
	rc = wait_at_most(lock, wait, is_woken, most_ns);
	lock->parked = false;
	if (rc == -EAGAIN && wait->period_ns < lock->ttl_ns / 4)
		wait->period_ns *= 2;
	else if (!rc)
		wait->period_ns = lock->ttl_ns / 64;
	return rc;
}

static void spin_for(uint64_t duration_ns)
{
	uint64_t until_ns = reef_now_ns() + duration_ns;

	while (reef_now_ns() < until_ns)
		__builtin_ia32_pause();
}

bool lock_spin(struct reef_lock *lock, struct lock_wait *wait, uint64_t h)
{
	uint64_t start_ns, distance_ns = LOOK_MOST_NS;

	if (!wait->can_wait || wait->looks >= lock->looks_max ||
	    !reef_is_near(lock->reef, lock->head))
		return false;
	/* In a strict queue a client cannot pass those that wait. */
	if (lock->kind != REEF_LOCK_SHIFT && !lock->queued && h & LOCK_WAITERS)
		return false;
	if (++wait->looks == lock->looks_max) {
		lock->looks_max /= 2;
		if (lock->looks_max < LOOKS_MIN)
			lock->looks_max = LOOKS_MIN;
		return false;
	}
	start_ns = reef_now_ns();
	if (wait->looks < LOOKS_MIN)
		distance_ns = LOOK_FIRST_NS << (wait->looks / 3);
	/* The holder may need this processor. */
	if (wait->looks >= LOOKS_QUICK)
		sched_yield();
	while (reef_now_ns() - start_ns < distance_ns)
		__builtin_ia32_pause();
	return true;
}

void lock_spin_paid(struct reef_lock *lock, const struct lock_wait *wait)
{
	if (wait->looks && lock->looks_max < LOCK_LOOKS)
		lock->looks_max *= 2;
}

int lock_pause(struct reef_lock *lock, struct lock_wait *wait, uint64_t most_ns)
{
	uint64_t pause_ns = wait->pause_ns;
	int rc;

	if (wait->pause_ns < most_ns)
		wait->pause_ns *= 2;
	/* Clients that came at once must not come back at once. */
	pause_ns += reef_random_below(&lock->random, pause_ns + 1);
	if (pause_ns < RELAX_NS && !reef_fiber_self() &&
	    wait->deadline_ns == UINT64_MAX && !is_cancelled(lock)) {
		spin_for(pause_ns);
		return 0;
	}
	rc = wait_at_most(lock, wait, is_cancelled, pause_ns);
	return rc == -EAGAIN ? 0 : rc;
}

/* --- whether a holder is dead --- */

bool lock_has_ended(struct reef_lock *lock, uint32_t session)
{
	enum reef_session_view view;

	if (session == lock->me >> 32)
		return false;
	if (reef_session_check(lock->reef, session, &view))
		return false;
	return view == REEF_VIEW_ENDED || (view == REEF_VIEW_EXPIRED &&
					   REEF_MUTATED(LOCK_BREAK_AT_EXPIRED));
}

bool lock_is_session_check_due(const struct reef_lock *lock, uint64_t period_ns)
{
	return reef_now_ns() - lock->looked_ns >= period_ns;
}

bool lock_can_break(struct reef_lock *lock, uint64_t h, uint64_t *flags)
{
	uint64_t word, next = lock_next(h);

	if (lock_is_free(h) || lock_is_dropped(h))
		return false;
	lock->looked_ns = reef_now_ns();
	*flags = h & (LOCK_WAITERS | LOCK_READERS | LOCK_WAS_INHERITED);
	if (lock_has_ended(lock, (uint32_t)(h >> 32))) {
		if (!REEF_MUTATED(LOCK_FORGET_INHERITED))
			*flags |= LOCK_WAS_INHERITED;
		return true;
	}
	if (!lock_is_granted(h) ||
	    reef_read(lock->reef, lock_place_address(lock, next - 1), &word, 8))
		return false;
	return word == lock_place_word(h, next - 1, PLACE_LEFT);
}
