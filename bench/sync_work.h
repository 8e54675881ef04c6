/* sync_work.h - what locks and barriers do, word for word the same for all.
 *
 *   locks      take, change what the lock guards, give, again and again. The
 *              figure is how often a second, by all members together.
 *   reading    the same, shared with other readers; nothing is changed
 *   barrier    all meet, again and again; the figure is rounds a second
 *   numbers    one after the other
 *
 * (1) Nothing lies between giving and the next take: the hardest there is.
 * (2) After a round the guarded word must be what was counted: a lock that lets
 *     two in is found (-EILSEQ).
 *
 * Loops are inlined with each competitor's own operations, which are a constant
 * table.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_SYNC_WORK_H
#define REEF_BENCH_SYNC_WORK_H

#include "crowd.h"

#include <stdio.h>

#define SYNC_WORK_SECONDS_MAX 10

enum sync_work_object {
	SYNC_WORK_SHIFT, /* the default lock */
	SYNC_WORK_SPIN,
	SYNC_WORK_MCS,
	SYNC_WORK_READ, /* the default lock, shared */
	SYNC_WORK_BARRIER,
	SYNC_WORK_SEQUENCER,
	SYNC_WORK_CLOCK,
	SYNC_WORK_OBJECTS
};

struct sync_work {
	const char *name;
	enum sync_work_object object;
	uint32_t members;
};

static const struct sync_work sync_works[] = {
	{"lock-alone", SYNC_WORK_SHIFT, 1},
	{"lock-2", SYNC_WORK_SHIFT, 2},
	{"lock-8", SYNC_WORK_SHIFT, 8},
	{"barrier-4", SYNC_WORK_BARRIER, 4},
	{"barrier-2", SYNC_WORK_BARRIER, 2},
	{"read-alone", SYNC_WORK_READ, 1},
	{"read-2", SYNC_WORK_READ, 2},
	{"spin-alone", SYNC_WORK_SPIN, 1},
	{"spin-2", SYNC_WORK_SPIN, 2},
	{"spin-8", SYNC_WORK_SPIN, 8},
	{"mcs-alone", SYNC_WORK_MCS, 1},
	{"mcs-2", SYNC_WORK_MCS, 2},
	{"mcs-8", SYNC_WORK_MCS, 8},
	{"sequencer", SYNC_WORK_SEQUENCER, 1},
	{"clock", SYNC_WORK_CLOCK, 1},
	{"lock-alone-tcp", SYNC_WORK_SHIFT, 1},
	{"lock-2-tcp", SYNC_WORK_SHIFT, 2},
	{"barrier-4-tcp", SYNC_WORK_BARRIER, 4},
	{"sequencer-tcp", SYNC_WORK_SEQUENCER, 1},
};

static inline const struct sync_work *sync_work_find(const char *name)
{
	for (size_t i = 0; i < sizeof(sync_works) / sizeof(sync_works[0]); i++)
		if (strcmp(sync_works[i].name, name) == 0)
			return &sync_works[i];
	return NULL;
}

/* What a competitor can do, on what its ready has opened. 0, or -errno. */
struct sync_ops {
	int (*take)(struct crowd_member *member);
	int (*give)(struct crowd_member *member);
	int (*meet)(struct crowd_member *member);
	int (*number)(struct crowd_member *member, uint64_t *number);
};

workload_inline uint32_t sync_phase(const struct crowd_member *member)
{
	return atomic_load_explicit(&member->shared->phase,
				    memory_order_relaxed);
}

/* The ops of a kind have what its loop calls, which the checker does not see.
 * NOLINTBEGIN(clang-analyzer-core.CallAndMessage) */
workload_inline int sync_loop_lock(const struct sync_ops *ops,
				   struct crowd_member *member, bool changes)
{
	volatile uint64_t *guarded = &member->shared->guarded;
	uint64_t counted = 0, finished = 0;
	uint32_t phase;
	int rc = 0;

	while (!rc && (phase = sync_phase(member)) != CROWD_STOP) {
		rc = ops->take(member);
		if (rc)
			break;
		if (changes)
			*guarded = *guarded + 1;
		rc = ops->give(member);
		counted += phase == CROWD_COUNT;
		finished += changes;
	}
	member->counted = counted;
	member->finished = finished;
	return rc;
}

/* Nobody may leave while another still comes: so member 0, before it comes to a
 * round, says which is the last. Whoever passes that round sees it, because
 * nobody passes before member 0 has come; who sees it earlier goes on. */
workload_inline int sync_loop_meet(const struct sync_ops *ops,
				   struct crowd_member *member)
{
	_Atomic uint64_t *last = &member->shared->last;
	uint64_t counted = 0;
	int rc = 0;

	for (uint64_t round = 0; !rc; round++) {
		uint32_t phase = sync_phase(member);

		if (member->index == 0 && phase == CROWD_STOP)
			atomic_store_explicit(last, round,
					      memory_order_release);
		rc = ops->meet(member);
		counted += phase == CROWD_COUNT;
		/* Acquire; the partner is member 0's store. */
		if (atomic_load_explicit(last, memory_order_acquire) == round)
			break;
	}
	member->counted = counted;
	return rc;
}

workload_inline int sync_loop_number(const struct sync_ops *ops,
				     struct crowd_member *member)
{
	uint64_t counted = 0, number = 0, before = 0;
	uint32_t phase;
	int rc = 0;

	while (!rc && (phase = sync_phase(member)) != CROWD_STOP) {
		rc = ops->number(member, &number);
		if (!rc && number <= before)
			rc = -EILSEQ;
		before = number;
		counted += phase == CROWD_COUNT;
	}
	member->counted = counted;
	return rc;
}

/* The loop of a crowd's member. */
workload_inline int sync_loop(const struct sync_ops *ops,
			      struct crowd_member *member, const char *name)
{
	const struct sync_work *work = sync_work_find(name);

	if (!work)
		return -ENOSYS;
	switch (work->object) {
	case SYNC_WORK_BARRIER:
		return sync_loop_meet(ops, member);
	case SYNC_WORK_SEQUENCER:
	case SYNC_WORK_CLOCK:
		return sync_loop_number(ops, member);
	case SYNC_WORK_READ:
		return sync_loop_lock(ops, member, false);
	default:
		return sync_loop_lock(ops, member, true);
	}
}

/* The run of a driver. */
static inline int sync_run(struct driver_pair *pair, struct crowd *crowd,
			   const char *name, double seconds, double *rate)
{
	const struct sync_work *work = sync_work_find(name);
	struct crowd_result result;
	uint64_t done;
	int rc;

	if (!work)
		return -ENOSYS;
	/* On a busy machine the member whose turn it is may not run for a whole
	 * round: then a longer one is run. */
	do {
		rc = crowd_run(crowd, name, work->members, seconds, &result);
		seconds *= 2;
		done = work->object == SYNC_WORK_BARRIER ? result.first
							 : result.counted;
	} while (!rc && !done && seconds < SYNC_WORK_SECONDS_MAX);
	if (rc)
		return rc;
	if (result.finished != crowd_shared(crowd)->guarded)
		return driver_fail(
			pair, -EILSEQ, "two were inside at once: %llu of %llu",
			(unsigned long long)crowd_shared(crowd)->guarded,
			(unsigned long long)result.finished);
	*rate = (double)done / result.seconds;
	return 0;
}

/* NOLINTEND(clang-analyzer-core.CallAndMessage) */

#endif
