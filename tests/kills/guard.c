/* guard.c - locks, leases and elections behind one face. */
#include "guard.h"

#include <stdio.h>

static bool is_lock(enum guard_kind kind)
{
	return kind <= GUARD_RW;
}

int guard_open(struct guard *guard, enum guard_kind kind, uint32_t places,
	       struct reef_space *space)
{
	const struct reef_lock_options options = {
		.kind = (enum reef_lock_kind)kind,
		.waiters_max = places,
		.readers_max = places,
	};

	*guard = (struct guard){.kind = kind};
	if (is_lock(kind))
		return reef_lock_open(space, guard_names[kind], &options,
				      &guard->lock);
	if (kind == GUARD_LEASE)
		return reef_lease_open(space, guard_names[kind], NULL,
				       &guard->lease);
	if (kind == GUARD_ELECTION)
		return reef_election_open(space, guard_names[kind], 0,
					  "somebody", &guard->election);
	return 0;
}

void guard_close(struct guard *guard)
{
	reef_lock_close(guard->lock);
	reef_lease_close(guard->lease);
	reef_election_close(guard->election);
	*guard = (struct guard){.kind = guard->kind};
}

int guard_drop(enum guard_kind kind, struct reef_space *space)
{
	if (is_lock(kind))
		return reef_lock_drop(space, guard_names[kind]);
	if (kind == GUARD_LEASE)
		return reef_lease_drop(space, guard_names[kind]);
	if (kind == GUARD_ELECTION)
		return reef_election_drop(space, guard_names[kind]);
	if (kind == GUARD_BARRIER)
		return reef_barrier_drop(space, guard_names[kind]);
	return 0;
}

bool guard_has_readers(enum guard_kind kind)
{
	return kind == GUARD_SHIFT || kind == GUARD_RW;
}

bool guard_tells(enum guard_kind kind)
{
	return is_lock(kind) || kind == GUARD_BARRIER;
}

int guard_take(struct guard *guard, bool reads, uint64_t timeout_ns)
{
	int rc = 0;

	if (guard->lock)
		return reef_lock_take(guard->lock,
				      reads ? REEF_LOCK_SHARED
					    : REEF_LOCK_EXCLUSIVE,
				      timeout_ns);
	if (guard->lease)
		rc = reef_lease_take(guard->lease, timeout_ns, NULL);
	if (guard->election)
		rc = reef_election_win(guard->election, timeout_ns, NULL);
	return rc ? rc : REEF_LOCK_INHERITED;
}

int guard_give(struct guard *guard)
{
	if (guard->lock)
		return reef_lock_give(guard->lock);
	if (guard->lease)
		return reef_lease_give(guard->lease);
	if (guard->election)
		return reef_election_resign(guard->election);
	return 0;
}

static int lock_is_free(struct reef_lock *lock, char *text)
{
	struct reef_lock_info info;
	int rc = reef_lock_look(lock, &info);

	if (rc)
		return rc;
	snprintf(text, TEXT_SIZE, "%08x has it, %u read, %u wait, %s",
		 info.session, info.readers, info.waiters,
		 info.inherited ? "inherited" : "repaired");
	return !info.session && !info.readers && !info.waiters &&
	       !info.inherited;
}

int guard_is_free(struct guard *guard, char text[TEXT_SIZE])
{
	struct reef_lease_info info = {0};
	int rc = 0;

	if (guard->lock)
		return lock_is_free(guard->lock, text);
	if (guard->lease)
		rc = reef_lease_look(guard->lease, &info);
	if (guard->election)
		rc = reef_election_look(guard->election, &info);
	snprintf(text, TEXT_SIZE, "%08x has it", info.session);
	return rc ? rc : !info.session;
}
