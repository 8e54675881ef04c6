/* grace.h - when something may go that others use without a lock.
 *
 * Readers are many and must be quick; a taker, who takes something away, is
 * rare and can wait. One protocol serves both kinds of readers below:
 *
 *   reader                                taker
 *     enter: announce that it is inside     close what readers look at
 *     (A) ----------------------            (B), then note who is inside
 *     is it open? use it                    wait until all noted have left
 *     leave                                 (acquire): nobody uses it
 *
 * (1) Either the taker notes the reader, or the reader's look comes after the
 *     store that closed. That needs a full barrier at (A) and at (B). As there
 *     are so many more readers, (A) is a barrier for the compiler only, and (B)
 *     is membarrier(2), which makes every running thread of the process execute
 *     one. Where the kernel has none, reef_grace_is_strong, and (A) is an
 *     atomic exchange.
 * (2) leave is a release; its partner is the acquire load by which the taker
 *     finds that the reader has left. So what was done inside is done before
 *     anything is taken away.
 * (3) A turn is a reader that is inside once at a time and only for a moment:
 *     one thread's queue. It grows by one at enter and at leave, so odd is
 *     inside. It may be refused: at turns that have no bit of its mask, when
 *     its owner has something else to do first, and always if the mask is 0.
 * (4) Graces are of turns, and numbered. One is under way at a time; those
 *     asked for meanwhile are one together, which begins after it.
 * (5) Turns are known per process, because a fence inside one process waits for
 *     those of another fabric. In a forked child there are none any more, and
 *     the masks of those that were are 0: the child did not get what they use.
 * (6) A crowd is a reader that is inside many times at once, perhaps for long:
 *     the fibers of a handle. It counts them in two phases. Newcomers join the
 *     current phase, so that the other one runs empty; but who read the phase
 *     long ago may still join the other. Hence a taker waits for the other one,
 *     changes the phase, and waits for the one that was current.
 *
 * Thread: a reader's functions, its owner; the others, any. */
#ifndef REEF_BASE_GRACE_H
#define REEF_BASE_GRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The kernel has no membarrier(2), or a tool does not understand it. */
extern bool reef_grace_is_strong;

/* Before everything else here; again is fine. */
void reef_grace_init(void);

/* (B). */
void reef_grace_barrier(void);

/* (A): the store comes before the loads that follow. */
static inline void reef_announce(_Atomic uint64_t *place, uint64_t value)
{
	if (__builtin_expect(reef_grace_is_strong, 0)) {
		atomic_exchange(place, value);
		return;
	}
	atomic_store_explicit(place, value, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

/* The same, for who knows that it is not strong. */
static inline void reef_announce_quick(_Atomic uint64_t *place, uint64_t value)
{
	atomic_store_explicit(place, value, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

/* --- turns: (3) --- */

struct reef_turn {
	_Atomic uint64_t turn; /* written by its owner */
	uint64_t mask;
	/* Locked by grace.c: */
	uint64_t awaited; /* the turn that a grace waits for; 0: none */
	struct reef_turn *next;
};

/* From now on graces wait for it, until it is removed. The first turn is 2. */
void reef_turn_add(struct reef_turn *turn, uint64_t mask);
void reef_turn_remove(struct reef_turn *turn);

/* Enter whatever the mask says. Returns the turn that it was. */
static inline uint64_t reef_turn_enter(struct reef_turn *turn)
{
	uint64_t now = atomic_load_explicit(&turn->turn, memory_order_relaxed);

	reef_announce(&turn->turn, now + 1);
	return now;
}

/* Enter, unless the mask says no; not where it is strong. */
static inline bool reef_turn_enter_quick(struct reef_turn *turn)
{
	uint64_t now = atomic_load_explicit(&turn->turn, memory_order_relaxed);

	if (__builtin_expect(!(now & turn->mask), 0))
		return false;
	reef_announce_quick(&turn->turn, now + 1);
	return true;
}

/* (2). */
static inline void reef_turn_leave(struct reef_turn *turn)
{
	atomic_store_explicit(
		&turn->turn,
		atomic_load_explicit(&turn->turn, memory_order_relaxed) + 1,
		memory_order_release);
}

/* Begin a grace, after whatever was stored to close. Never 0. */
uint64_t reef_grace_begin(void);
/* True if all turns have left that may not have seen that. */
bool reef_grace_is_over(uint64_t grace);

/* --- crowds: (6) --- */

struct reef_crowd {
	_Atomic uint64_t counts[2]; /* by phase; written by its owner */
};

/* Join the current phase; returns it, for leave. */
static inline uint32_t reef_crowd_enter(struct reef_crowd *crowd,
					const _Atomic uint32_t *current)
{
	uint32_t phase =
		atomic_load_explicit(current, memory_order_relaxed) & 1;
	_Atomic uint64_t *count = &crowd->counts[phase];

	reef_announce(count,
		      atomic_load_explicit(count, memory_order_relaxed) + 1);
	return phase;
}

/* (2). */
static inline void reef_crowd_leave(struct reef_crowd *crowd, uint32_t phase)
{
	_Atomic uint64_t *count = &crowd->counts[phase];

	atomic_store_explicit(
		count, atomic_load_explicit(count, memory_order_relaxed) - 1,
		memory_order_release);
}

/* For takers, after a barrier. Acquire: (2). */
static inline bool reef_crowd_has_left(const struct reef_crowd *crowd,
				       uint32_t phase)
{
	return !atomic_load_explicit(&crowd->counts[phase],
				     memory_order_acquire);
}

#endif
