/* guard.h - whatever lets one in at a time (and readers together): locks of all
 * kinds, a lease, an election. One face, so that one test serves them all.
 *
 * Thread: owner of the handle. */
#ifndef REEF_TESTS_KILLS_GUARD_H
#define REEF_TESTS_KILLS_GUARD_H

#include "board.h"

#include <reef/sync.h>

struct guard {
	enum guard_kind kind;
	struct reef_lock *lock;
	struct reef_lease *lease;
	struct reef_election *election;
};

/* places: of a lock, for waiters and for readers; 0: the default. */
int guard_open(struct guard *guard, enum guard_kind kind, uint32_t places,
	       struct reef_space *space);
void guard_close(struct guard *guard);
int guard_drop(enum guard_kind kind, struct reef_space *space);

bool guard_has_readers(enum guard_kind kind);
/* True if this kind tells its next holder that the last one died. */
bool guard_tells(enum guard_kind kind);

/* As reef_lock_take; kinds that do not tell always say REEF_LOCK_INHERITED. */
int guard_take(struct guard *guard, bool reads, uint64_t timeout_ns);
int guard_give(struct guard *guard);

/* 1: nobody has the guard, waits for it, or left something half done.  0:
 * somebody does.  -errno. *text: what there is. */
int guard_is_free(struct guard *guard, char text[TEXT_SIZE]);

#endif
