/* killer.h - starts workers, kills them, and sees that the others go on.
 *
 * Thread: one call per process. */
#ifndef REEF_TESTS_KILLS_KILLER_H
#define REEF_TESTS_KILLS_KILLER_H

#include "base/mutant.h"
#include "board.h"

#define WORKERS_MAX 32

struct killer_options {
	enum guard_kind kind;
	uint32_t kills;
	uint32_t stops; /* past the lease, and on again */
	uint32_t workers;
	uint32_t fabrics_count;
	const char *fabrics[8]; /* of one worker after the other; none: all */
	uint64_t limit_ns;	/* nobody waits for longer */
	uint64_t ttl_ns;
	uint64_t seed;
	enum reef_mutant mutant;
	uint32_t places; /* of a lock; 0: the default */
	/* Those who stand still are fenced: over shm, only if leases kill. */
	bool stop_fences;
};

/* Returns the exit status, having printed what happened. */
int killer_run(const struct killer_options *options);

#endif
