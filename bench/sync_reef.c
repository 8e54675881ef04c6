/* sync_reef.c - the cases over Reef, as a program would: the public interface,
 * on a pool in another process (what `reef up` runs), every member a process
 * with a session of its own.
 *
 *   client (of the driver): forks
 *     target: a broker and a node, until the client is gone
 *     members: open a handle, and what a case needs, when first told
 *
 * Thread: owner. */
#include "sync_bench.h"
#include "sync_work.h"

#include "bench/units.h"
#include "pool.h"

#include <reef/sync.h>
#include <stdlib.h>

#define CAPACITY (64 * MIB)
#define EXTENT (16 * MIB)
#define PATIENCE_NS (10 * SECOND) /* nobody dies here */
#define SPACE "bench"

struct ours { /* the client's, and each member's copy */
	const char *fabric;
	struct crowd *crowd;
};

/* This is static because members are forked from what has it. */
static struct ours ours;

/* What a member has opened. */
struct hand {
	struct reef *reef;
	struct reef_space *space;
	struct reef_lock *locks[SYNC_WORK_OBJECTS];
	struct reef_barrier *barriers[CROWD_MAX + 1]; /* by members */
	struct reef_sequencer *sequencer;
	struct reef_clock *clock;
	/* What this round uses: */
	struct reef_lock *lock;
	enum reef_lock_mode mode;
	struct reef_barrier *barrier;
};

/* --- operations --- */

workload_inline int ours_take(struct crowd_member *member)
{
	struct hand *hand = member->context;

	return reef_lock_take(hand->lock, REEF_LOCK_EXCLUSIVE, PATIENCE_NS);
}

workload_inline int ours_read(struct crowd_member *member)
{
	struct hand *hand = member->context;

	return reef_lock_take(hand->lock, REEF_LOCK_SHARED, PATIENCE_NS);
}

workload_inline int ours_give(struct crowd_member *member)
{
	struct hand *hand = member->context;

	return reef_lock_give(hand->lock);
}

workload_inline int ours_meet(struct crowd_member *member)
{
	struct hand *hand = member->context;

	return reef_barrier_wait(hand->barrier, PATIENCE_NS, NULL);
}

workload_inline int ours_number(struct crowd_member *member, uint64_t *number)
{
	struct hand *hand = member->context;

	return reef_sequencer_next(hand->sequencer, 1, number);
}

workload_inline int ours_time(struct crowd_member *member, uint64_t *number)
{
	struct hand *hand = member->context;

	return reef_clock_next(hand->clock, 1, number);
}

static const struct sync_ops ours_ops = {
	.take = ours_take,
	.give = ours_give,
	.meet = ours_meet,
	.number = ours_number,
};

static const struct sync_ops ours_read_ops = {
	.take = ours_read,
	.give = ours_give,
};

static const struct sync_ops ours_clock_ops = {.number = ours_time};

/* --- members --- */

static int hand_open(struct hand **out)
{
	struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct reef_options reef_options = {.fabrics = ours.fabric};
	struct hand *hand = calloc(1, sizeof(*hand));
	int rc;

	if (!hand)
		return -ENOMEM;
	rc = reef_open("local", &reef_options, &hand->reef);
	if (rc) {
		free(hand);
		return rc;
	}
	*out = hand;
	return reef_space_open(hand->reef, SPACE, &options, &hand->space);
}

static int open_lock(struct hand *hand, enum sync_work_object object)
{
	static const struct {
		const char *name;
		enum reef_lock_kind kind;
	} locks[SYNC_WORK_OBJECTS] = {
		[SYNC_WORK_SHIFT] = {"shift", REEF_LOCK_SHIFT},
		[SYNC_WORK_SPIN] = {"spin", REEF_LOCK_SPIN},
		[SYNC_WORK_MCS] = {"mcs", REEF_LOCK_MCS},
		[SYNC_WORK_READ] = {"read", REEF_LOCK_SHIFT},
	};
	struct reef_lock_options options = {.kind = locks[object].kind};
	int rc = 0;

	if (!hand->locks[object])
		rc = reef_lock_open(hand->space, locks[object].name, &options,
				    &hand->locks[object]);
	hand->lock = hand->locks[object];
	return rc;
}

static int open_barrier(struct hand *hand, uint32_t members)
{
	char name[32];
	int rc = 0;

	snprintf(name, sizeof(name), "barrier-%u", members);
	if (!hand->barriers[members])
		rc = reef_barrier_open(hand->space, name, NULL, members,
				       &hand->barriers[members]);
	hand->barrier = hand->barriers[members];
	return rc;
}

static int open_object(struct hand *hand, const struct sync_work *work)
{
	switch (work->object) {
	case SYNC_WORK_BARRIER:
		return open_barrier(hand, work->members);
	case SYNC_WORK_SEQUENCER:
		return hand->sequencer
			       ? 0
			       : reef_sequencer_open(hand->space, "numbers", 0,
						     &hand->sequencer);
	case SYNC_WORK_CLOCK:
		return hand->clock ? 0
				   : reef_clock_open(hand->space, "clock", 0,
						     &hand->clock);
	default:
		return open_lock(hand, work->object);
	}
}

static int explain_error(struct crowd_member *member, int rc)
{
	if (rc)
		snprintf(member->error, sizeof(member->error), "%.100s",
			 reef_error_text(rc));
	return rc;
}

static int ours_ready(struct crowd_member *member, const char *name)
{
	const struct sync_work *work = sync_work_find(name);
	struct hand *hand = member->context;
	int rc = 0;

	if (!work)
		return -ENOSYS;
	if (!hand) {
		rc = hand_open(&hand);
		member->context = hand;
	}
	return explain_error(member, rc ? rc : open_object(hand, work));
}

static int ours_loop(struct crowd_member *member, const char *name)
{
	switch (sync_work_find(name)->object) {
	case SYNC_WORK_READ:
		return explain_error(member,
				     sync_loop(&ours_read_ops, member, name));
	case SYNC_WORK_CLOCK:
		return explain_error(member,
				     sync_loop(&ours_clock_ops, member, name));
	default:
		return explain_error(member,
				     sync_loop(&ours_ops, member, name));
	}
}

static void ours_leave(struct crowd_member *member)
{
	struct hand *hand = member->context;

	if (!hand)
		return;
	for (uint32_t i = 0; i < SYNC_WORK_OBJECTS; i++)
		reef_lock_close(hand->locks[i]);
	for (uint32_t i = 0; i <= CROWD_MAX; i++)
		reef_barrier_close(hand->barriers[i]);
	reef_sequencer_close(hand->sequencer);
	reef_clock_close(hand->clock);
	reef_space_close(hand->space);
	reef_close(hand->reef);
	free(hand);
}

static const struct crowd_ops ours_crowd = {
	.ready = ours_ready,
	.loop = ours_loop,
	.leave = ours_leave,
};

/* --- the driver --- */

static int sync_reef_open(struct driver_pair *pair)
{
	int rc;

	ours.fabric = pair->options.fabric;
	rc = bench_pool_start(pair, ours.fabric, CAPACITY, EXTENT, false);
	rc = rc ? rc : crowd_open(pair, CROWD_MAX, &ours_crowd, &ours.crowd);
	if (rc)
		return rc;
	pair->target_rests = true;
	snprintf(pair->description, sizeof(pair->description),
		 "the public interface over %s, on a pool in another process",
		 ours.fabric);
	return 0;
}

static int sync_reef_run(struct driver_pair *pair, const char *name,
			 double seconds, double *rate)
{
	return sync_run(pair, ours.crowd, name, seconds, rate);
}

static void sync_reef_close(struct driver_pair *pair)
{
	crowd_close(ours.crowd);
}

const struct driver sync_reef_driver = {
	.name = "reef",
	.open = sync_reef_open,
	.run = sync_reef_run,
	.close = sync_reef_close,
};
