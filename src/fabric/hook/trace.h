/* trace.h - the recent operations of a fabric, with times and statuses.
 *
 * (1) A ring of records, one per operation; the oldest give way. Nothing on the
 *     way allocates, locks or makes a system call (but for the clock's).
 * (2) What is under way stands in the ring too, so a dump of something that
 *     hangs shows what it hangs on.
 * (3) Local bytes are never recorded: only where they went and how many.
 * (4) A record that is overtaken while it is written is left out, never torn.
 *
 * A line: number of the record and of the operation in its batch, when it was
 * posted (reef_now_ns, in us), how long it took, whose session, what it was,
 * how it ended.
 *
 *   #41.0   1523.207 us  +2.113 us  s00010001  CAS key 7 +0x40 1 -> 2 was 1  0
 *
 * Thread: any. */
#ifndef REEF_FABRIC_HOOK_TRACE_H
#define REEF_FABRIC_HOOK_TRACE_H

#include "fabric/fabric.h"

struct reef_trace;

#define REEF_TRACE_LINE_MAX 256

/* Zero means the default. */
struct reef_trace_options {
	uint32_t records_max; /* rounded up to a power of two; 4,096 */
	uint32_t batches_max; /* under way whose end is seen; 1,024 */
	/* Optional: called with each line when its operation has ended, on the
	 * thread it ended on. For looking on; it makes things slow. */
	void (*sink)(void *context, const char *line);
	void *context;
};

/* Record what passes through a fabric; before its first queue is opened.
 * options may be NULL. *out is valid until the fabric is closed.  -ENOMEM.
 * -EINVAL: over 2^24 records or batches. */
int reef_trace_push(struct reef_fabric *fabric,
		    const struct reef_trace_options *options,
		    struct reef_trace **out);

/* Hand the lines of the last `count` records (0: all there are) to emit, the
 * oldest first; returns how many there were. */
uint32_t reef_trace_dump(const struct reef_trace *trace, uint32_t count,
			 void (*emit)(void *context, const char *line),
			 void *context);

/* Records made since the push. */
uint64_t reef_trace_count(const struct reef_trace *trace);

#endif
