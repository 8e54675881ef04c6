/* lock.c - locks from the outside: opening, the quick paths, dropping, looking.
 * What happens inside is told in lock.h. */
#include "sync/lock.h"

#include "base/log.h"
#include "base/mutant.h"
#include "pool/client/handle/near.h"
#include "sync/member.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_KIND 0 /* of the object's */
#define LIMIT_WAITERS 1
#define LIMIT_READERS 2
#define LIMIT_PASSES 3
#define LIMIT_PHASE 4

#define DEFAULT_WAITERS 64
#define DEFAULT_READERS 64
#define DEFAULT_PASSES 8
#define DEFAULT_PHASE 4
#define PLACES_MAX 4096
#define PHASE_MAX 15

/* --- shape --- */

static bool has_readers(uint32_t kind)
{
	return kind == REEF_LOCK_SHIFT || kind == REEF_LOCK_RW;
}

/* The number of places of the ring: a power of two, with room for clients that
 * took a ticket at the same moment and so went over waiters_max. */
static uint32_t count_places(uint32_t kind, uint32_t waiters_max)
{
	uint32_t places = 4;

	if (kind == REEF_LOCK_SPIN)
		return 0;
	while (places < waiters_max + 2)
		places *= 2;
	return places;
}

static uint32_t count_slots(uint32_t kind, uint32_t readers_max)
{
	return has_readers(kind) ? readers_max : 0;
}

static uint64_t body_size(const uint32_t *limits)
{
	uint32_t kind = limits[LIMIT_KIND];

	return sizeof(struct lock_head) +
	       count_places(kind, limits[LIMIT_WAITERS]) * UINT64_C(16) +
	       count_slots(kind, limits[LIMIT_READERS]) * UINT64_C(16);
}

static int fill_limits(const struct reef_lock_options *options,
		       uint32_t *limits)
{
	uint32_t waiters = options->waiters_max, readers = options->readers_max;
	uint32_t passes = options->passes, phase = options->writers_phase;

	if ((uint32_t)options->kind >= REEF_LOCK_KINDS ||
	    waiters > PLACES_MAX || readers > PLACES_MAX ||
	    passes > LOCK_PASSES_MAX || phase > PHASE_MAX)
		return -EINVAL;
	limits[LIMIT_KIND] = options->kind;
	limits[LIMIT_WAITERS] = waiters ? waiters : DEFAULT_WAITERS;
	limits[LIMIT_READERS] = readers ? readers : DEFAULT_READERS;
	limits[LIMIT_PASSES] = passes ? passes : DEFAULT_PASSES;
	limits[LIMIT_PHASE] = phase ? phase : DEFAULT_PHASE;
	return 0;
}

/* The first bytes of a new body, in which every place is of the lap before. The
 * caller frees them. */
static void *first_bytes(const uint32_t *limits, uint32_t *size)
{
	uint32_t places =
		count_places(limits[LIMIT_KIND], limits[LIMIT_WAITERS]);
	uint64_t ticket;
	uint64_t *ring;
	uint8_t *bytes;

	*size = (uint32_t)sizeof(struct lock_head) + places * 8;
	bytes = calloc(1, *size);
	if (!bytes)
		return NULL;
	ring = (uint64_t *)(bytes + sizeof(struct lock_head));
	for (ticket = 0; ticket < places; ticket++)
		ring[ticket] = lock_place_word(0, ticket - places, PLACE_DONE);
	return bytes;
}

/* --- opening and closing --- */

/* What a kind of lock is in a space with two copies: lock.h. */
static int limit_to_terms(uint32_t *limits)
{
	if (limits[LIMIT_KIND] != REEF_LOCK_SHIFT &&
	    limits[LIMIT_KIND] != REEF_LOCK_SPIN)
		return -EOPNOTSUPP;
	limits[LIMIT_KIND] = REEF_LOCK_SPIN;
	return 0;
}

static int open_object(struct reef_lock *lock, struct reef_space *space,
		       const char *name,
		       const struct reef_lock_options *options)
{
	struct object_shape shape = {.kind = OBJECT_LOCK,
				     .format = LOCK_FORMAT};
	void *bytes;
	int rc;

	rc = fill_limits(options, shape.limits);
	if (!rc && reef_space_copies(space) > 1)
		rc = limit_to_terms(shape.limits);
	if (rc)
		return rc;
	shape.body_size = body_size(shape.limits);
	bytes = first_bytes(shape.limits, &shape.start_size);
	if (!bytes)
		return -ENOMEM;
	shape.start = bytes;
	rc = object_open(space, name, &shape, options->flags, &lock->object);
	free(bytes);
	return rc;
}

/* Fill in what the object's header says.  -REEF_ECORRUPT: its limits are none
 * that we would write. */
static int fill_lock(struct reef_lock *lock)
{
	const struct object *object = &lock->object;
	const uint32_t *limits = object->limits;
	uint32_t kind = limits[LIMIT_KIND];

	if (kind >= REEF_LOCK_KINDS || limits[LIMIT_WAITERS] > PLACES_MAX ||
	    limits[LIMIT_READERS] > PLACES_MAX ||
	    limits[LIMIT_PASSES] > LOCK_PASSES_MAX ||
	    object->body_size != body_size(limits))
		return -REEF_ECORRUPT;
	lock->has_terms = reef_space_copies(object->space) > 1;
	if (lock->has_terms && kind != REEF_LOCK_SPIN)
		return -EOPNOTSUPP; /* it was restored from another space's
				       image */
	lock->reef = object->reef;
	lock->head = object->body;
	lock->kind = (enum reef_lock_kind)kind;
	lock->places_max = limits[LIMIT_WAITERS];
	lock->places = count_places(kind, limits[LIMIT_WAITERS]);
	lock->readers_max = count_slots(kind, limits[LIMIT_READERS]);
	lock->passes = limits[LIMIT_PASSES];
	lock->writers_phase = limits[LIMIT_PHASE];
	lock->ring = lock->head + sizeof(struct lock_head);
	lock->ring_inboxes = lock->ring + lock->places * UINT64_C(8);
	lock->slots = lock->ring_inboxes + lock->places * UINT64_C(8);
	lock->slot_inboxes = lock->slots + lock->readers_max * UINT64_C(8);
	lock->ttl_ns = reef_session_ttl(lock->reef);
	return 0;
}

/* Allocate room for what is read of the slots; freed with slots_seen. */
static int make_room(struct reef_lock *lock)
{
	if (!lock->readers_max)
		return 0;
	lock->slots_seen = calloc(lock->readers_max, 24);
	if (!lock->slots_seen)
		return -ENOMEM;
	lock->slots_first = lock->slots_seen + lock->readers_max;
	lock->inboxes_seen = lock->slots_first + lock->readers_max;
	return 0;
}

static int open_participant(struct reef_lock *lock)
{
	uint32_t session = reef_session(lock->reef);
	uint64_t seed;
	int rc;

	rc = make_room(lock);
	if (rc)
		return rc;
	rc = sync_member_take(session, lock->object.block, &lock->member);
	if (rc)
		return rc;
	lock->me = sync_word_pack((struct sync_word){
		.session = session,
		.member = lock->member,
	});
	/* The seed need not be secret, only unlike the others'. */
	seed = (lock->me ^ lock->object.block) * UINT64_C(0x9e3779b97f4a7c15);
	reef_random_init(&lock->random, seed);
	if (lock->readers_max)
		lock->slot = (uint32_t)reef_random_below(&lock->random,
							 lock->readers_max);
	return 0;
}

int reef_lock_open(struct reef_space *space, const char *name,
		   const struct reef_lock_options *options,
		   struct reef_lock **out)
{
	static const struct reef_lock_options none;
	struct reef_lock *lock;
	int rc;

	if (!options)
		options = &none;
	lock = calloc(1, sizeof(*lock));
	if (!lock)
		return -ENOMEM;
	lock->attempts_max = options->attempts_max;
	lock->looks_max = LOCK_LOOKS;
	rc = open_object(lock, space, name, options);
	if (!rc)
		rc = fill_lock(lock);
	if (!rc)
		rc = open_participant(lock);
	if (rc) {
		free(lock->slots_seen);
		free(lock);
		return rc;
	}
	*out = lock;
	return 0;
}

void reef_lock_close(struct reef_lock *lock)
{
	if (!lock)
		return;
	reef_lock_give(lock);
	if (lock->held == LOCK_UNSETTLED)
		lock_settle(lock);
	if (lock->watching)
		reef_inbox_unwatch(lock->reef, &lock->watch);
	sync_member_give((uint32_t)(lock->me >> 32), lock->object.block,
			 lock->member);
	free(lock->slots_seen);
	free(lock);
}

/* --- taking and giving --- */

/* Take a lock that one atomic could not take. Not inline, so that the quick
 * path pays nothing for it. before: H, as the quick path saw it. */
__attribute__((noinline)) static int take_slowly(struct reef_lock *lock,
						 enum reef_lock_mode mode,
						 uint64_t timeout_ns,
						 uint64_t before)
{
	int rc;

	if (lock->held == LOCK_UNSETTLED) {
		rc = lock_settle(lock);
		if (rc)
			return rc;
	}
	if (lock->held != LOCK_HELD_NOT)
		return -EDEADLK;
	if (mode == REEF_LOCK_SHARED)
		return lock->readers_max ? lock_take_shared(lock, timeout_ns)
					 : -EOPNOTSUPP;
	if (mode != REEF_LOCK_EXCLUSIVE)
		return -EINVAL;
	return lock_take_exclusive(lock, timeout_ns, before);
}

int reef_lock_take(struct reef_lock *lock, enum reef_lock_mode mode,
		   uint64_t timeout_ns)
{
	uint64_t seen = lock->seen, before = seen;

	if (unlikely((uint32_t)lock->held | (uint32_t)mode) ||
	    unlikely(seen & (LOCK_READERS | LOCK_WAS_INHERITED)))
		return take_slowly(lock, mode, timeout_ns, seen);
	/* A lock that nobody holds and that has no flags takes one atomic. */
	if (unlikely(!client_near_cas(lock->reef, lock->head, seen,
				      seen | lock->me, &before) ||
		     before != seen))
		return take_slowly(lock, mode, timeout_ns, before);
	lock->word = seen | lock->me;
	lock->held = LOCK_HELD_EXCLUSIVE;
	return 0;
}

__attribute__((noinline)) static int give_slowly(struct reef_lock *lock,
						 uint64_t now)
{
	int rc;

	if (lock->held == LOCK_HELD_SHARED) {
		rc = lock_give_shared(lock);
	} else if (lock->held == LOCK_HELD_EXCLUSIVE) {
		lock->word = now;
		rc = lock_give_exclusive(lock, false);
	} else {
		return -EPERM;
	}
	lock->held = LOCK_HELD_NOT;
	/* After an error that says that nothing happened, words name us still.
	 */
	if (rc && rc != -REEF_EFENCED && rc != -REEF_ELOST)
		lock->held = LOCK_UNSETTLED;
	return rc;
}

int reef_lock_give(struct reef_lock *lock)
{
	uint64_t word = lock->word, before = word, value;

	if (unlikely(lock->held != LOCK_HELD_EXCLUSIVE) ||
	    unlikely(word & (LOCK_WAITERS | LOCK_READERS | LOCK_WOKEN)) ||
	    REEF_MUTATED(LOCK_UNLOCK_BY_WRITE))
		return give_slowly(lock, word);
	/* A lock for which nobody waits takes one atomic to give. */
	value = word & ((uint64_t)(SYNC_TICKETS - 1) << 8);
	if (unlikely(!client_near_cas(lock->reef, lock->head, word, value,
				      &before) ||
		     before != word))
		return give_slowly(lock, before);
	lock->seen = value;
	lock->held = LOCK_HELD_NOT;
	return 0;
}

void reef_lock_cancel(struct reef_lock *lock)
{
	/* Release: the partner is is_cancelled. */
	atomic_store_explicit(&lock->cancelled, true, memory_order_release);
	reef_inbox_poke(lock->reef);
}

/* --- dropping --- */

static int mark_dropped(struct reef_lock *lock)
{
	uint64_t h, value, before;
	int rc = reef_read(lock->reef, lock->head, &h, 8);

	while (!rc && !lock_is_dropped(h)) {
		if (lock_is_free(h))
			value = (uint64_t)LOCK_DROPPED << 32;
		else /* its holder makes it DROPPED when it gives it */
			value = (h & ~(uint64_t)LOCK_WAITERS) | LOCK_WOKEN;
		rc = lock_cas(lock, lock->head, h, value, &before);
		if (!rc && before == h)
			return 0;
		h = before;
	}
	return rc;
}

/* Wake every writer in the ring and every reader that waits, so that each finds
 * out that the lock was dropped. */
static int wake_everyone(struct reef_lock *lock)
{
	uint64_t window[LOCK_WINDOW], cursor;
	uint32_t count, i;
	int rc;

	for (cursor = 0; cursor < lock->places; cursor += count) {
		count = lock_window_length(lock, cursor);
		rc = reef_read(lock->reef, lock_place_address(lock, cursor),
			       window, count * UINT64_C(8));
		if (rc)
			return rc;
		for (i = 0; i < count; i++)
			if (window[i] & PLACE_WAITING)
				lock_wake_place(lock, cursor + i, window[i]);
	}
	if (lock->readers_max)
		lock_wake_readers(lock, NULL);
	return 0;
}

int reef_lock_drop(struct reef_space *space, const char *name)
{
	struct reef_lock lock = {0};
	int rc;

	rc = object_drop(space, name, OBJECT_LOCK, &lock.object);
	/* A lost lock has no words to mark. */
	if (rc || !lock.object.block)
		return rc;
	rc = fill_lock(&lock);
	if (rc)
		return rc;
	rc = make_room(&lock);
	if (rc)
		return rc;
	rc = mark_dropped(&lock);
	if (!rc)
		rc = wake_everyone(&lock);
	free(lock.slots_seen);
	return rc;
}

/* --- looking --- */

static int count_waiters(struct reef_lock *lock, struct reef_lock_info *info,
			 const struct lock_head *head)
{
	uint64_t window[LOCK_WINDOW];
	uint64_t cursor = lock_next(head->holder);
	uint32_t left = lock_in_line(lock, cursor, head->tail), count, i;
	int rc;

	/* Without WAITERS those in the ring are dead, or about to read H. */
	if (lock_is_dropped(head->holder) || !(head->holder & LOCK_WAITERS))
		return 0;
	while (left) {
		count = lock_window_length(lock, cursor);
		count = count < left ? count : left;
		rc = reef_read(lock->reef, lock_place_address(lock, cursor),
			       window, count * UINT64_C(8));
		if (rc)
			return rc;
		for (i = 0; i < count; i++)
			info->waiters += window[i] & PLACE_WAITING;
		cursor += count;
		left -= count;
	}
	return 0;
}

int reef_lock_look(struct reef_lock *lock, struct reef_lock_info *out)
{
	struct reef_lock_info info = {
		.kind = lock->kind,
		.waiters_max = lock->places_max,
		.readers_max = lock->readers_max,
		.passes = lock->passes,
		.writers_phase = lock->writers_phase,
	};
	struct lock_head head;
	uint32_t i;
	int rc;

	rc = lock_read_head(lock, &head);
	if (rc)
		return rc;
	if (head.holder >> 32 == LOCK_DROPPED)
		return -ENOENT;
	info.session = (uint32_t)(head.holder >> 32);
	info.inherited = head.holder & LOCK_WAS_INHERITED;
	rc = count_waiters(lock, &info, &head);
	if (!rc && lock->readers_max)
		rc = reef_read(lock->reef, lock->slots, lock->slots_seen,
			       lock->readers_max * UINT64_C(8));
	if (rc)
		return rc;
	/* Without READERS those in slots are dead, or about to read H. */
	for (i = 0; head.holder & LOCK_READERS && i < lock->readers_max; i++) {
		info.waiters += !!(lock->slots_seen[i] & SLOT_WAITING);
		info.readers +=
			!!(lock->slots_seen[i] & (SLOT_ACTIVE | SLOT_ADMITTED));
	}
	*out = info;
	return 0;
}
