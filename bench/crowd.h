/* crowd.h - several processes of one competitor that work against each other.
 *
 * A driver's client forks its *members* when it opens, and they do everything
 * that is measured; the client tells them when.
 *
 *   client                                 each member
 *     "CASE"                          -->    ready (outside the measurement)
 *                                     <--  done
 *     "go"                            -->    loop, in phase WARM,
 *     (after a tenth of the time)            then COUNT,
 *     (after the time)                       until STOP
 *                                     <--  what it counted
 *     (closes the socket)             -->    leave, exit
 *
 * (1) Between rounds members sleep in the kernel.
 * (2) A member ends when its client does, at any moment.
 * (3) Member i goes to processor i, modulo the number of them.
 * (4) Time is the clock on the wall, between COUNT and STOP as the client set
 *     them.
 * (5) Nothing here uses Reef, so that a peer's program does not link it.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_CROWD_H
#define REEF_BENCH_CROWD_H

#include "driver.h"

#include <stdalign.h>

#define CROWD_MAX 8

enum crowd_phase { CROWD_WARM, CROWD_COUNT, CROWD_STOP };

/* What all members and their client see. */
struct crowd_shared {
	alignas(64) _Atomic uint32_t phase;
	/* Member 0 ends what all do together, at this round of it. */
	alignas(64) _Atomic uint64_t last;
	/* What is changed under a lock, without any other care. */
	alignas(64) uint64_t guarded;
	alignas(64) char own[1024]; /* the driver's, zeroed */
};

struct crowd_member {
	struct crowd_shared *shared;
	uint32_t index;
	void *context;	   /* the driver's; NULL at first */
	uint64_t counted;  /* by the last loop, in phase COUNT */
	uint64_t finished; /* by the last loop, in all */
	char error[120];   /* why it failed, if ready or loop did */
};

struct crowd_ops {
	/* Called in the member before a round of a case.  -ENOSYS: it has no
	 * such case. */
	int (*ready)(struct crowd_member *member, const char *name);
	/* Work until phase STOP; sets counted and finished. */
	int (*loop)(struct crowd_member *member, const char *name);
	/* Called when the member ends. Optional. */
	void (*leave)(struct crowd_member *member);
};

struct crowd;

/* Fork the members. Caller owns *out.  -errno. */
int crowd_open(struct driver_pair *pair, uint32_t count,
	       const struct crowd_ops *ops, struct crowd **out);
void crowd_close(struct crowd *crowd); /* NULL is fine */
struct crowd_shared *crowd_shared(struct crowd *crowd);

struct crowd_result {
	double seconds;
	uint64_t first;	  /* counted by member 0 */
	uint64_t counted; /* by all */
	uint64_t finished;
};

/* One round of the first `count` members; once more, and longer, if none of
 * them came to count, as on a busy machine.  What a member returned;
 * pair->error says more.  -EPIPE: one is gone. */
int crowd_run(struct crowd *crowd, const char *name, uint32_t count,
	      double seconds, struct crowd_result *out);

#endif
