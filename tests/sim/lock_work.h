/* lock_work.h - locks in the simulator: who holds what, as it truly is.
 *
 *   lock_truth.c  who holds, who was passed by, who had to be told
 *   lock_work.c   what participants do inside and outside of the locks
 *   locks.c       scenarios and mutants
 *
 * (1) What truth says is held is a part of the time that it really is: from
 *     after a take has returned until before the give is called. So two that
 *     overlap are a violation, unless one of them is fenced: a stopped holder
 *     that goes on may believe that it holds.
 * (2) A writer that never gave, and is fenced, is a *debt*: whoever comes next
 *     must be told, until a writer who was told gives.
 *
 * Thread: owner. */
#ifndef TESTS_SIM_LOCK_WORK_H
#define TESTS_SIM_LOCK_WORK_H

#include "cluster.h"

#include <reef/sync.h>

#define LOCKS_MAX 2
#define HOLDS_MAX 64
#define WORDS 3

struct hold {
	uint32_t session;
	uint64_t serial; /* of the take */
	bool exclusive;
	bool inherited; /* it was told */
};

/* What a lock protects: `intent` and the first words in one block, the others
 * in another. All words are the same number, unless an update is half done:
 * then intent is the number that they become. */
struct record {
	uint64_t intent;
	uint64_t first[WORDS];
	uint64_t second[WORDS];
};

struct truth {
	uint64_t first, second; /* addresses of the record; 0: not made yet */
	struct hold holds[HOLDS_MAX];
	uint32_t holds_count;
	bool debt;
	uint64_t begun;	   /* updates */
	uint64_t finished; /* that somebody has seen to the end */
	uint64_t floor;	   /* the number that the last of them made */
};

/* A participant: a fiber, with all locks open. */
struct part {
	struct part *next;
	struct client *client;
	struct reef *reef;
	struct reef_space *space;
	struct reef_group *group;
	struct reef_random random;
	struct reef_lock *locks[LOCKS_MAX];
	uint32_t cancels[LOCKS_MAX]; /* asked for, that no take ended by */
	bool gave_up[LOCKS_MAX];     /* its last take, to write, that had a
				      * place: it may be granted late */
	uint64_t since_ns;	     /* its step began; 0: it has none */
	/* What it waits for, or has just been given. */
	uint64_t serial; /* of the take; 0: none */
	uint32_t index;
	bool exclusive;
	bool waits;	  /* the take has not returned */
	bool seen;	  /* parked, by a writer that came in */
	uint32_t passed;  /* by writers that came after it had parked */
	uint32_t writers; /* that came in since it was seen */
	/* Who had parked when its take began. */
	uint64_t before[HOLDS_MAX];
	uint32_t before_count;
};

/* Of one cluster; its `work`. */
struct locks {
	struct cluster *cluster;
	struct reef_lock_options options;
	uint32_t count;
	uint32_t parts_each; /* 1 to 3, of a client */
	uint64_t think_ns;   /* between two steps, at most */
	struct truth truths[LOCKS_MAX];
	struct part *parts;
	uint64_t serials;
};

struct locks *locks_of(const struct part *part);
const char *lock_kind_name(enum reef_lock_kind kind);

/* Is the participant alive, so that what it is due is due? */
bool truth_is_fair(const struct part *part);
/* Does it wait in line? */
bool part_is_parked(const struct part *part);
/* A take begins. */
void truth_begin(struct part *part, uint32_t index, bool exclusive);
/* It returned, and the lock is held; told: as inherited. *zombie: the session
 * had ended by then, so nothing is noted.  -REEF_EHOSTDEAD, -REEF_EFENCED: the
 * host has ended; or a violation was found. */
int truth_enter(struct part *part, bool told, bool *zombie);
/* It is about to be given. */
void truth_leave(struct part *part);
/* The record was read under the lock. before: truth when that began, for who
 * reads may be stopped, and fenced, before it comes here. told: it may be half
 * done. */
void truth_check(struct part *part, const struct record *record,
		 const struct truth *before, bool told);

#endif
