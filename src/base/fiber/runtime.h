/* runtime.h - the insides that fiber.c, group.c, sched.c and timer.c share.
 *
 * (1) A fiber is in exactly one place: the run queue or the shuffled round
 *     (READY), its group's held list (READY, group paused), nowhere (running,
 *     PARKED, SLEEPING, JOINING, ENDED).
 * (2) A fiber's timer is set only while it is PARKED or SLEEPING.
 * (3) There is room in the timer heap for one timer of every living fiber, so
 *     parking never allocates.
 *
 * Thread: owner. */
#ifndef REEF_BASE_RUNTIME_H
#define REEF_BASE_RUNTIME_H

#include "base/fiber/context.h"
#include "base/fiber/sched.h"
#include "base/fiber/stack.h"

#include <stdatomic.h>

enum fiber_state {
	FIBER_READY,	/* running or waiting for its turn */
	FIBER_PARKED,	/* until unpark or its timer */
	FIBER_SLEEPING, /* until its timer */
	FIBER_JOINING,	/* until another fiber has ended */
	FIBER_ENDED,
};

struct reef_fiber {
	/* What park, unpark and the switch touch is the first cache line: with
	 * thousands of fibers each line is a miss. */
	_Alignas(64) struct reef_context context;
	struct reef_fiber *next; /* in the run queue or the held list */
	struct reef_sched *sched;
	struct reef_group *group;
	int wake; /* what the park returns */
	uint8_t state;
	bool token;	/* unparked before it parked */
	bool has_timer; /* its timer is set */
	bool detached;
	struct reef_fiber *joiner;
	struct {
		uint32_t key, value; /* 0: free */
	} words[REEF_FIBER_WORDS];

	struct reef_timer timer;
	int (*fn)(void *arg);
	void *arg;
	int result; /* what fn returned */
	uint32_t dead_parks;
	struct reef_fiber *member_next, **member_link;
	struct stack *stack;
};

struct timer_entry {
	uint64_t at_ns, order;
	struct reef_timer *timer;
};

struct timers {
	struct timer_entry *heap; /* [1] is the next one; [0] is unused */
	uint32_t count, capacity; /* not counting [0] */
	uint32_t foreign;	  /* set ones that are not a fiber's */
	uint64_t order;
};

struct reef_sched {
	/* What a switch touches comes first. */
	struct reef_fiber *head; /* left to run in this round */
	struct reef_fiber *next_head, **next_tail; /* ready for the next */
	_Atomic bool stop;
	struct reef_random *shuffle; /* not NULL: `round` instead of head */
	struct reef_context main;    /* of the thread in reef_sched_run */
	struct reef_fiber *ended;    /* its stack is to be given back */

	struct reef_fiber **round; /* shuffle: this round's, in any order */
	uint32_t round_count, round_capacity;

	struct timers timers;
	struct reef_poller *pollers, *poll_next;
	struct stacks stacks;
	struct reef_group group;       /* fibers spawned from outside */
	struct reef_local_clock clock; /* that group's */
	struct reef_group *acting;     /* in a callback; see reef_group_enter */
	uint64_t virtual_ns;
	uint64_t spin_ns, idle_since_ns;
	uint32_t alive, fibers_max;
	bool virtual_time, running, idle;
	int wake_fd; /* stop writes to it; -1 in virtual time */
	struct pollfd *pollfds;
	uint32_t pollfds_capacity;
};

/* The scheduler that this thread is running. The running fiber: sched.h. */
extern _Thread_local struct reef_sched *reef_running
	__attribute__((tls_model("initial-exec")));

/* --- timer.c --- */

/* Make room for the timers of `fibers` fibers and those set by others.
 * -ENOMEM. */
int reef_timers_reserve(struct reef_sched *sched, uint32_t fibers);
/* Fire what is due at now_ns, except what is set meanwhile. */
void reef_timers_fire(struct reef_sched *sched, uint64_t now_ns);
/* Set a fiber's own timer, for which room is reserved. */
void reef_timer_set_own(struct reef_fiber *fiber, uint64_t at_ns);
void reef_fiber_timer_fire(struct reef_timer *timer);

/* --- fiber.c --- */

/* Put a fiber that is nowhere into the run queue, or its group's held list. */
void reef_fiber_ready(struct reef_fiber *fiber);
/* Wake a fiber that is PARKED, SLEEPING or JOINING. */
void reef_fiber_wake(struct reef_fiber *fiber, int wake);
/* True if a fiber can run, in this round or the next. */
static inline bool reef_fibers_ready(const struct reef_sched *sched)
{
	return sched->head || sched->next_head || sched->round_count > 0;
}
/* Run fibers until this round has none left or stop is asked for. */
void reef_fibers_run(struct reef_sched *sched);

#endif
