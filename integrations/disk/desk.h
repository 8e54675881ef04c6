/* desk.h - what a process has of the pool and of the table: handles, one for
 * each call that is under way. Inside integrations/disk only.
 *
 * (1) A pool that fails is left, by all handles, and asked for again two
 *     seconds later.
 * (2) A forked child has nothing of its parent's but the table.
 * (3) A thread that has a handle is not cancelled before it has given it back.
 * (4) A call that interrupts another of its thread (a signal's handler), or
 *     that the library makes itself, is told by desk_is_inside, and takes no
 *     handle.
 *
 * Thread: any. */
#ifndef REEF_DISK_DESK_H
#define REEF_DISK_DESK_H

#include "integrations/disk/through.h"

struct desk {
	struct reef *reef;
	struct reef_space *space;
	struct reef_pages *pages;
	uint8_t *room;	/* for one page */
	uint32_t epoch; /* in which it was opened: (1) */
	int failed;	/* while it was used; 0: it did not */
	int cancel;	/* as the thread had it: (3) */
	struct desk *next;
};

void desk_init(const struct through_options *options);
/* Leave the pool, and the table. */
void desk_end(void);

/* The table; NULL: there is none, so that nothing is cached. */
struct table *desk_table(void);
/* True if nobody else has the table. */
bool desk_is_last(void);
/* Then: it is left behind small. */
void desk_fold_table(void);

/* True if this process was in the pool. */
bool desk_has_joined(void);

bool desk_is_inside(void);
uint64_t desk_now_ms(void);
/* Take a handle; NULL: the pool is not there, or all are in use and stay so. */
struct desk *desk_take(void);
void desk_give(struct desk *desk);
/* An error of the pool. Passing ones do not matter. */
void desk_fail(struct desk *desk, int rc);

#endif
