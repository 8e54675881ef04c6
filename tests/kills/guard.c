/* guard.c - locks, leases and elections behind one face. */
#include "guard.h"

#include <errno.h>

static bool is_lock(enum guard_kind kind)
{
	return kind <= GUARD_RW;
}

int guard_open(struct guard *guard, enum guard_kind kind,
	       struct reef_space *space)
{
	const struct reef_lock_options options = {
		.kind = (enum reef_lock_kind)kind};

	*guard = (struct guard){.kind = kind};
	if (is_lock(kind))
		return reef_lock_open(space, GUARD_NAME, &options,
				      &guard->lock);
	return 0;
}

void guard_close(struct guard *guard)
{
	reef_lock_close(guard->lock);
	*guard = (struct guard){.kind = guard->kind};
}

int guard_drop(enum guard_kind kind, struct reef_space *space)
{
	if (is_lock(kind))
		return reef_lock_drop(space, GUARD_NAME);
	return 0;
}

bool guard_has_readers(enum guard_kind kind)
{
	return kind == GUARD_SHIFT || kind == GUARD_RW;
}

bool guard_tells(enum guard_kind kind)
{
	return is_lock(kind);
}

int guard_take(struct guard *guard, bool reads, uint64_t timeout_ns)
{
	if (guard->lock)
		return reef_lock_take(guard->lock,
				      reads ? REEF_LOCK_SHARED
					    : REEF_LOCK_EXCLUSIVE,
				      timeout_ns);
	return REEF_LOCK_INHERITED;
}

int guard_give(struct guard *guard)
{
	if (guard->lock)
		return reef_lock_give(guard->lock);
	return 0;
}

int guard_check_free(struct guard *guard, struct board *board)
{
	struct reef_lock_info info;
	int rc = guard->lock ? reef_lock_look(guard->lock, &info) : 0;

	if (rc || !guard->lock)
		return rc;
	if (!info.session && !info.readers && !info.waiters && !info.inherited)
		return 0;
	return board_fail(board, "in the end %08x has it, %u read, %u wait, %s",
			  info.session, info.readers, info.waiters,
			  info.inherited ? "inherited" : "repaired");
}
