/* count.h - what a layer costs: operations, bytes, round trips.
 *
 * (1) Counted is what the layer below accepted; what it refused is counted as
 *     `refused` and nothing else.
 * (2) A batch is one round trip, and one more for each REEF_ORDERED operation
 *     that really has to wait (F3c): a WRITE, CAS, FAA or SEND with a READ, CAS
 *     or FAA before it in the batch since the last wait.
 * (3) A memory-node operation is a READ, WRITE, CAS, FAA or FLUSH; a SEND is
 *     for the peer's processor.
 * (4) A control round trip is a connect or an attach.
 * (5) Several fabrics may count into one struct.
 *
 * Thread: any. */
#ifndef REEF_FABRIC_HOOK_COUNT_H
#define REEF_FABRIC_HOOK_COUNT_H

#include "fabric/fabric.h"

#define REEF_COUNT_FIELDS(X)                                                   \
	X(reads)                                                               \
	X(writes)                                                              \
	X(cas)                                                                 \
	X(faa)                                                                 \
	X(flushes)                                                             \
	X(sends)                                                               \
	X(bytes_in)                                                            \
	X(bytes_out)                                                           \
	X(batches)                                                             \
	X(round_trips)                                                         \
	X(memory_operations)                                                   \
	X(control_round_trips)                                                 \
	X(refused)

/* What was counted, at one moment or between two. bytes_in: READ, and 8 for
 * what a CAS or FAA brings back; bytes_out: WRITE, SEND, and 8 for an FAA's
 * operand, 16 for a CAS's two. */
struct reef_counts {
#define X(name) uint64_t name;
	REEF_COUNT_FIELDS(X)
#undef X
};

/* The counters themselves; zero to start. */
struct reef_count {
#define X(name) _Atomic uint64_t name;
	REEF_COUNT_FIELDS(X)
#undef X
};

/* Count what passes through a fabric, from here on; before its first queue.
 * The counters stay the caller's and must outlive it.  -ENOMEM. */
int reef_count_push(struct reef_fabric *fabric, struct reef_count *count);

/* Each number by itself is exact; together they are of one moment only while
 * nobody posts. */
struct reef_counts reef_count_read(const struct reef_count *count);
struct reef_counts reef_counts_between(const struct reef_counts *before,
				       const struct reef_counts *after);

/* How many ops from the first go out together: up to the next that has to
 * wait (2). At least 1. */
uint32_t reef_segment_count(const struct reef_op *ops, uint32_t count);
/* The number of such segments. */
uint32_t reef_round_trips(const struct reef_op *ops, uint32_t count);

#endif
