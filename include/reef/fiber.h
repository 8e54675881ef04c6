/* fiber.h - straight-line code, thousands of it in flight on one thread.
 *
 * A fiber is a function with a stack of its own. Where a thread would block, a
 * fiber parks and its scheduler runs another. Switching costs nanoseconds and
 * no system call.
 *
 * (1) A scheduler and its fibers belong to the thread that calls run.
 * (2) A fiber loses the processor only where it parks, sleeps, yields, joins or
 *     makes a blocking Reef call; never in between.
 * (3) An unpark is never lost: one that comes before the park makes that park
 *     return at once. Several of them count as one.
 * (4) Below every stack lie 64 KiB that nobody can touch: an overflow is a
 *     crash, never a silent overwrite. A function whose own variables take more
 *     than that must be compiled with -fstack-clash-protection.
 *
 * Thread: owner, except where a function says otherwise. */
#ifndef REEF_FIBER_H
#define REEF_FIBER_H

#include <reef/error.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reef_sched;
struct reef_fiber;

#define REEF_FOREVER UINT64_MAX

/* Zero means the default. */
struct reef_sched_options {
	uint32_t fibers_max; /* live at once; 32,768 */
	uint32_t stack_size; /* bytes per fiber, rounded up to pages; 64 KiB */
	uint64_t spin_ns;    /* idle time spent polling; 20,000 */
};

/* Make a scheduler for the calling thread; options may be NULL. Caller owns
 * *out.  -EINVAL: stack_size under 16 KiB or over 1 GiB.  -ENOMEM.  -EMFILE: no
 * descriptor left. */
REEF_API int reef_sched_create(const struct reef_sched_options *options,
			       struct reef_sched **out);

/* Free a scheduler. All its fibers must have ended; NULL is fine. */
REEF_API void reef_sched_destroy(struct reef_sched *sched);

/* Run fibers on the calling thread until none is left or stop is called.
 * -EBUSY: already running, or called inside a fiber.
 * -EDEADLK: every fiber is parked and nothing can ever wake one; they stay as
 * they are, and whoever unparks one may run again. */
REEF_API int reef_sched_run(struct reef_sched *sched);

/* Make run return as soon as the running fiber gives up the processor; fibers
 * stay as they are and a later run goes on with them. A stop that comes before
 * run makes that run return at once. Thread: any. */
REEF_API void reef_sched_stop(struct reef_sched *sched);

/* Start a fiber that runs fn(arg). out, if not NULL, receives a handle that the
 * caller must join; with out NULL the fiber is detached.
 * -ENOSPC: fibers_max are alive.  -ENOMEM: no memory for a stack. */
REEF_API int reef_fiber_spawn(struct reef_sched *sched, int (*fn)(void *arg),
			      void *arg, struct reef_fiber **out);

/* Wait until fiber has ended, free it, and return what its function returned in
 * *result (may be NULL). Inside a fiber it parks; outside, the fiber must have
 * ended already.  -EBUSY: outside a fiber and it has not ended. */
REEF_API int reef_fiber_join(struct reef_fiber *fiber, int *result);

/* The running fiber, or NULL outside of one. */
REEF_API struct reef_fiber *reef_fiber_self(void);

/* The scheduler of the running fiber, or NULL. */
REEF_API struct reef_sched *reef_fiber_sched(void);

/* Park the running fiber until unparked or until timeout_ns have passed.
 * 0: unparked.  -ETIMEDOUT.  -REEF_EHOSTDEAD: in simulation, see sched.h. */
REEF_API int reef_fiber_park(uint64_t timeout_ns);

/* Let a parked fiber run, or its next park return at once. It ends neither a
 * sleep nor a join; the park after those sees it. */
REEF_API void reef_fiber_unpark(struct reef_fiber *fiber);

/* Let every other runnable fiber run first. No-op outside a fiber. */
REEF_API void reef_fiber_yield(void);

/* Sleep: parks inside a fiber, blocks the thread outside of one.
 * -REEF_EHOSTDEAD: in simulation, see sched.h. */
REEF_API int reef_sleep(uint64_t duration_ns);

/* Nanoseconds on the clock of the running fiber (monotonic; virtual in
 * simulation), or of the thread outside a fiber. Only differences mean
 * anything. */
REEF_API uint64_t reef_now_ns(void);

#ifdef __cplusplus
}
#endif
#endif
