/* sched.h - what the rest of Reef needs of the fiber scheduler beyond
 * <reef/fiber.h>: timers, pollers, groups, virtual time.
 *
 *          spawn                 park, sleep, join
 *   (new) -------> RUNNABLE <------------------------> PARKED
 *                     |  ^        unpark, timer
 *                     v  |
 *                   RUNNING ----> ENDED --(join, or detached)--> freed
 *
 * One round of run: fire the timers that are due, run every fiber that was
 * runnable when the round began, poll every poller once. Nothing runnable: real
 * time spins over the pollers for spin_ns, then arms each, polls each once more
 * and sleeps on their descriptors until the next timer. Virtual time never
 * sleeps: it jumps to the next timer, and where there is none and no poller
 * reports anything, run returns -EDEADLK.
 *
 * Virtual time moves only when every fiber waits. So a fiber that waits for
 * time to pass must park or sleep: one that yields in a loop, or reads the
 * clock in one, waits for ever.
 *
 * Thread: owner. */
#ifndef REEF_BASE_SCHED_H
#define REEF_BASE_SCHED_H

#include "base/clock.h"
#include "base/random.h"

#include <reef/fiber.h>
#include <stdbool.h>

/* --- creation with the interfaces of src/base --- */

struct reef_sched_setup {
	struct reef_sched_options options;
	/* Virtual time: starts at 0, jumps when nothing can run. */
	bool virtual_time;
	/* Not NULL: pick the next runnable fiber at random (simulation). */
	struct reef_random *shuffle;
};

int reef_sched_create_setup(const struct reef_sched_setup *setup,
			    struct reef_sched **out);

/* The time timers and fibers are scheduled by, before any clock's drift. */
uint64_t reef_sched_now_ns(struct reef_sched *sched);

/* The source of virtual time, for reef_local_clock.virtual_ns; NULL in real
 * time. */
const uint64_t *reef_sched_virtual_ns(struct reef_sched *sched);

/* Fibers alive, the running one included. */
uint32_t reef_sched_fibers(const struct reef_sched *sched);

/* --- words of a fiber's own --- */

#define REEF_FIBER_WORDS 2

/* The running fiber's word of that key; NULL: it has none. A word that is 0 is
 * nobody's. make: take one, which is 0 until the caller changes that; NULL: it
 * has REEF_FIBER_WORDS of other keys. Not outside a fiber. */
uint32_t *reef_fiber_word(uint32_t key, bool make);

/* --- timers: a callback on the scheduler's thread, outside any fiber --- */

struct reef_timer {
	void (*fire)(struct reef_timer *timer); /* must not park */
	uint64_t at_ns;				/* the scheduler's */
	uint64_t order;				/* ties fire in order of set */
	uint32_t heap_index;			/* 0: not set */
};

/* Fire at at_ns of the scheduler's time, once; sets it anew if it was set.
 * -ENOMEM: the heap could not grow. */
int reef_timer_set(struct reef_sched *sched, struct reef_timer *timer,
		   uint64_t at_ns);
void reef_timer_cancel(struct reef_sched *sched, struct reef_timer *timer);

/* --- pollers: sources of events outside the fibers --- */

struct reef_poller {
	/* Make progress, wake what is ready; returns how much happened (0:
	 * nothing). Never blocks. Required. */
	int (*poll)(struct reef_poller *poller);
	/* Promise that fd becomes readable on the next event. Over 0: something
	 * is there already, do not sleep. -errno: cannot promise, so sleep only
	 * briefly. Optional. */
	int (*arm)(struct reef_poller *poller);
	int fd; /* to sleep on; -1: none, so sleep only briefly */
	uint64_t sleep_max_ns; /* poll this often even asleep; 0: no need */
	struct reef_poller *next;
};

void reef_sched_poller_add(struct reef_sched *sched,
			   struct reef_poller *poller);
void reef_sched_poller_remove(struct reef_sched *sched,
			      struct reef_poller *poller);

/* True if another fiber can run than the one that does. Then pollers have their
 * turn later; as they have after every round. */
bool reef_sched_has_ready(const struct reef_sched *sched);

/* --- groups: the fibers of one simulated host --- */

/* A fiber belongs to the group of the fiber that spawned it; fibers spawned
 * from outside belong to the scheduler's own group. A paused group's fibers do
 * not run. In a dead group every park and sleep returns -REEF_EHOSTDEAD, at the
 * same virtual time but after others had their turn, so that its fibers unwind
 * and end; nothing they do may have an effect any more. Yield still yields, and
 * join still waits for the other's end (which may be using the joiner's stack):
 * that one unwinds too. A fiber that ignores -REEF_EHOSTDEAD would keep time
 * from moving: after a million such parks it fails an assertion. */
struct reef_group {
	const struct reef_local_clock *clock; /* what its fibers call time */
	void *owner;			      /* the simulated host */
	bool paused, dead;
	/* the scheduler's: */
	struct reef_sched *sched;
	struct reef_fiber *held; /* runnable, but paused; a ring, the last */
	struct reef_fiber *members;
};

void reef_group_init(struct reef_sched *sched, struct reef_group *group,
		     const struct reef_local_clock *clock, void *owner);
void reef_group_pause(struct reef_group *group);
void reef_group_resume(struct reef_group *group);
void reef_group_kill(struct reef_group *group); /* also resumes */

/* Spawn into a group. As reef_fiber_spawn. */
int reef_fiber_spawn_in(struct reef_group *group, int (*fn)(void *arg),
			void *arg, struct reef_fiber **out);

/* The running fiber's group; NULL outside a fiber. */
struct reef_group *reef_fiber_group(void);

/* The group of fibers spawned from outside. */
struct reef_group *reef_sched_group(struct reef_sched *sched);

/* For callbacks outside any fiber that act for a group: between enter and leave
 * reef_now_ns is on the group's clock. Not nested. */
void reef_group_enter(struct reef_group *group);
void reef_group_leave(struct reef_group *group);

/* reef_fiber_self, for paths so short that a call in them would show. */
extern _Thread_local struct reef_fiber *reef_self
	__attribute__((tls_model("initial-exec")));
static inline struct reef_fiber *reef_fiber_self_quick(void)
{
	return reef_self;
}

#endif
