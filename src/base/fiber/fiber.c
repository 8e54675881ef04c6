/* Fibers: their life, and the switch from one to the next.
 *
 *                spawn                     wake
 *   (new) ---------------> READY <--------------------- PARKED
 *                          |  ^ |                       SLEEPING
 *                     fn   |  | | park, sleep, join     JOINING
 *                  returns |  | '---------------------->
 *                          v  '- yield
 *                        ENDED ---(detached, or join)---> freed
 *
 * (1) A fiber that gives up the processor picks its successor and switches to
 *     it directly; the thread's own context (`main`) runs only when the round
 *     is over, on stop, and when a fiber ends.
 * (2) An ended fiber switches to `main`, which gives back the stack: nobody can
 *     free the stack he stands on.
 * (3) While a fiber is joined nothing else wakes the joiner, a kill of its
 *     group included: what it joins may use the joiner's stack. The joined
 *     fiber of a dead group ends because its own parks fail. */
#include "base/fiber/runtime.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* A fiber of a dead group that parks this often ignores -REEF_EHOSTDEAD. */
#define DEAD_PARKS_MAX 1000000

_Thread_local struct reef_fiber *reef_self
	__attribute__((tls_model("initial-exec")));
_Thread_local struct reef_sched *reef_running
	__attribute__((tls_model("initial-exec")));

/* --- the run queue --- */

static inline void enqueue(struct reef_sched *sched, struct reef_fiber *fiber)
{
	fiber->next = NULL;
	*sched->next_tail = fiber;
	sched->next_tail = &fiber->next;
}

/* Put a fiber of a paused group into its held list, a ring whose pointer is at
 * the last fiber. */
static void hold_fiber(struct reef_fiber *fiber)
{
	struct reef_group *group = fiber->group;

	if (group->held) {
		fiber->next = group->held->next;
		group->held->next = fiber;
	} else {
		fiber->next = fiber;
	}
	group->held = fiber;
}

void reef_fiber_ready(struct reef_fiber *fiber)
{
	struct reef_sched *sched = fiber->sched;

	if (__builtin_expect(fiber->group->paused, 0)) {
		hold_fiber(fiber);
		return;
	}
	/* Half of those that are woken may overtake what was ready before. Not
	 * all: two fibers that wake each other for ever would keep those that
	 * yield from ever having a turn. */
	if (sched->shuffle && reef_random_chance(sched->shuffle, 1, 2))
		sched->round[sched->round_count++] = fiber;
	else
		enqueue(sched, fiber);
}

static struct reef_fiber *pick_shuffled(struct reef_sched *sched)
{
	struct reef_fiber *fiber;
	uint64_t index;

	if (sched->round_count == 0)
		return NULL;
	index = reef_random_below(sched->shuffle, sched->round_count);
	fiber = sched->round[index];
	sched->round[index] = sched->round[--sched->round_count];
	return fiber;
}

/* Begin the next round if nothing waits for the end of this one, as without
 * timers and pollers: it saves a detour over the thread's own context. */
static inline bool round_goes_on(struct reef_sched *sched)
{
	if (sched->timers.count > 0 || sched->pollers || !sched->next_head)
		return false;
	sched->head = sched->next_head;
	sched->next_head = NULL;
	sched->next_tail = &sched->next_head;
	return true;
}

/* Take the next fiber of this round.  NULL: the round is over, or stop was
 * asked for. */
static inline struct reef_fiber *pick_next(struct reef_sched *sched)
{
	struct reef_fiber *fiber;

	/* Acquire: pairs with the release in reef_sched_stop. */
	if (__builtin_expect(
		    atomic_load_explicit(&sched->stop, memory_order_acquire),
		    0))
		return NULL;
	if (__builtin_expect(sched->shuffle != NULL, 0))
		return pick_shuffled(sched);
	if (!sched->head && !round_goes_on(sched))
		return NULL;
	fiber = sched->head;
	sched->head = fiber->next;
	return fiber;
}

/* Begin a round. Fibers that a stopped round has left go first. */
static void round_begin(struct reef_sched *sched)
{
	struct reef_fiber *fiber;

	if (sched->shuffle) {
		for (fiber = sched->next_head; fiber; fiber = fiber->next)
			sched->round[sched->round_count++] = fiber;
	} else {
		if (sched->head)
			return;
		sched->head = sched->next_head;
	}
	sched->next_head = NULL;
	sched->next_tail = &sched->next_head;
}

/* --- switching --- */

/* Switch from the running fiber, which is queued already or waits for
 * something, to the next. */
static __attribute__((noinline)) void switch_away(struct reef_fiber *self)
{
	struct reef_sched *sched = self->sched;
	struct reef_fiber *next = pick_next(sched);

	if (next == self)
		return;
	reef_self = next;
	reef_context_switch(&self->context,
			    next ? &next->context : &sched->main, false);
}

static void free_ended(struct reef_sched *sched)
{
	struct reef_fiber *fiber = sched->ended;

	sched->ended = NULL;
	reef_context_forget(&fiber->context);
	reef_stack_give(&sched->stacks, fiber->stack);
	fiber->stack = NULL;
	if (fiber->detached)
		free(fiber);
}

void reef_fibers_run(struct reef_sched *sched)
{
	struct reef_fiber *fiber;

	round_begin(sched);
	while ((fiber = pick_next(sched))) {
		reef_self = fiber;
		reef_context_switch(&sched->main, &fiber->context, false);
		if (sched->ended)
			free_ended(sched);
	}
}

void reef_fiber_yield(void)
{
	struct reef_fiber *self = reef_self;

	if (!self)
		return;
	if (__builtin_expect(self->group->paused, 0))
		hold_fiber(self);
	else
		enqueue(self->sched, self);
	switch_away(self);
}

/* --- birth and end --- */

static void member_add(struct reef_fiber *fiber)
{
	struct reef_group *group = fiber->group;

	fiber->member_next = group->members;
	fiber->member_link = &group->members;
	if (group->members)
		group->members->member_link = &fiber->member_next;
	group->members = fiber;
}

static void member_remove(struct reef_fiber *fiber)
{
	*fiber->member_link = fiber->member_next;
	if (fiber->member_next)
		fiber->member_next->member_link = fiber->member_link;
}

static void fiber_main(void *arg)
{
	struct reef_fiber *self = arg;
	struct reef_sched *sched = self->sched;

	reef_context_entered(&self->context);
	self->result = self->fn(self->arg);
	reef_assert(reef_self == self);
	self->state = FIBER_ENDED;
	member_remove(self);
	sched->alive--;
	if (self->joiner)
		reef_fiber_wake(self->joiner, 0);
	sched->ended = self;
	reef_self = NULL;
	reef_context_switch(&self->context, &sched->main, true);
	__builtin_unreachable();
}

/* Make room for one more fiber in all that the scheduler keeps per fiber. */
static int reserve_for_fiber(struct reef_sched *sched)
{
	struct reef_fiber **round;
	uint32_t count = sched->alive + 1;

	if (sched->shuffle && count > sched->round_capacity) {
		round = realloc(sched->round,
				2 * count * sizeof(struct reef_fiber *));
		if (!round)
			return -ENOMEM;
		sched->round = round;
		sched->round_capacity = 2 * count;
	}
	return reef_timers_reserve(sched, count);
}

int reef_fiber_spawn_in(struct reef_group *group, int (*fn)(void *arg),
			void *arg, struct reef_fiber **out)
{
	struct reef_sched *sched = group->sched;
	struct reef_fiber *fiber;

	if (sched->alive >= sched->fibers_max)
		return -ENOSPC;
	if (reserve_for_fiber(sched) != 0)
		return -ENOMEM;
	fiber = aligned_alloc(_Alignof(struct reef_fiber), sizeof(*fiber));
	if (!fiber)
		return -ENOMEM;
	*fiber = (struct reef_fiber){
		.sched = sched,
		.group = group,
		.state = FIBER_READY,
		.detached = !out,
		.fn = fn,
		.arg = arg,
		.timer = {.fire = reef_fiber_timer_fire},
		.stack = reef_stack_take(&sched->stacks),
	};
	if (!fiber->stack)
		goto err_fiber;
	reef_context_make(&fiber->context, fiber->stack->base,
			  fiber->stack->size, fiber_main, fiber);
	sched->alive++;
	member_add(fiber);
	reef_fiber_ready(fiber);
	if (out)
		*out = fiber;
	return 0;

err_fiber:
	free(fiber);
	return -ENOMEM;
}

int reef_fiber_spawn(struct reef_sched *sched, int (*fn)(void *arg), void *arg,
		     struct reef_fiber **out)
{
	struct reef_fiber *self = reef_self;

	return reef_fiber_spawn_in(self && self->sched == sched ? self->group
								: &sched->group,
				   fn, arg, out);
}

int reef_fiber_join(struct reef_fiber *fiber, int *result)
{
	struct reef_fiber *self = reef_self;

	if (fiber->state != FIBER_ENDED) {
		if (!self || self->sched != fiber->sched)
			return -EBUSY;
		reef_assert(fiber != self);
		reef_assert(!fiber->joiner && !fiber->detached);
		fiber->joiner = self;
		self->state = FIBER_JOINING;
		switch_away(self);
	}
	if (result)
		*result = fiber->result;
	free(fiber);
	return 0;
}

uint32_t *reef_fiber_word(uint32_t key, bool make)
{
	struct reef_fiber *self = reef_self;

	for (int i = 0; i < REEF_FIBER_WORDS; i++)
		if (self->words[i].value && self->words[i].key == key)
			return &self->words[i].value;
	for (int i = 0; make && i < REEF_FIBER_WORDS; i++)
		if (!self->words[i].value) {
			self->words[i].key = key;
			return &self->words[i].value;
		}
	return NULL;
}

/* --- waiting --- */

struct reef_fiber *reef_fiber_self(void)
{
	return reef_self;
}

struct reef_sched *reef_fiber_sched(void)
{
	return reef_self ? reef_self->sched : NULL;
}

void reef_fiber_wake(struct reef_fiber *fiber, int wake)
{
	if (fiber->has_timer) {
		fiber->has_timer = false;
		reef_timer_cancel(fiber->sched, &fiber->timer);
	}
	fiber->state = FIBER_READY;
	fiber->wake = wake;
	reef_fiber_ready(fiber);
}

void reef_fiber_timer_fire(struct reef_timer *timer)
{
	struct reef_fiber *fiber =
		(void *)((char *)timer - offsetof(struct reef_fiber, timer));

	reef_fiber_wake(fiber, fiber->state == FIBER_PARKED ? -ETIMEDOUT : 0);
}

/* Park in a dead group: let others go first, so that a fiber which waits for
 * its neighbours' end in a loop of parks sees it. A fiber that never gives up
 * would keep virtual time from ever moving; so that fails loudly. */
static int park_dead(struct reef_fiber *self)
{
	reef_assert(self->dead_parks++ < DEAD_PARKS_MAX);
	self->token = false;
	reef_fiber_yield();
	return -REEF_EHOSTDEAD;
}

static int wait_in(struct reef_fiber *self, enum fiber_state state,
		   uint64_t timeout_ns)
{
	uint64_t now_ns, wait_ns;

	if (__builtin_expect(self->group->dead, 0))
		return park_dead(self);
	if (timeout_ns != REEF_FOREVER) {
		wait_ns = reef_local_clock_wait_ns(self->group->clock,
						   timeout_ns);
		now_ns = reef_sched_now_ns(self->sched);
		/* A time that does not fit is never. */
		if (wait_ns < REEF_FOREVER - now_ns)
			reef_timer_set_own(self, now_ns + wait_ns);
	}
	self->state = state;
	switch_away(self);
	if (__builtin_expect(self->group->dead, 0))
		return -REEF_EHOSTDEAD;
	return self->wake;
}

int reef_fiber_park(uint64_t timeout_ns)
{
	struct reef_fiber *self = reef_self;

	reef_assert(self);
	if (self->token && !self->group->dead) {
		self->token = false;
		return 0;
	}
	return wait_in(self, FIBER_PARKED, timeout_ns);
}

void reef_fiber_unpark(struct reef_fiber *fiber)
{
	if (fiber->state == FIBER_PARKED)
		reef_fiber_wake(fiber, 0);
	else
		fiber->token = true;
}

int reef_sleep(uint64_t duration_ns)
{
	struct reef_fiber *self = reef_self;
	struct timespec left = {
		.tv_sec = (time_t)(duration_ns / 1000000000),
		.tv_nsec = (long)(duration_ns % 1000000000),
	};

	if (self)
		return wait_in(self, FIBER_SLEEPING, duration_ns);
	/* A timer's or poller's callback must not block. */
	reef_assert(!reef_running);
	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
	return 0;
}

static const struct reef_local_clock *clock_here(void)
{
	if (reef_self)
		return reef_self->group->clock;
	if (reef_running && reef_running->acting)
		return reef_running->acting->clock;
	if (reef_running)
		return reef_running->group.clock;
	return &reef_local_clock_real;
}

uint64_t reef_now_ns(void)
{
	return reef_local_clock_now_ns(clock_here());
}

uint64_t reef_now_coarse_ns(void)
{
	return reef_local_clock_coarse_ns(clock_here());
}

uint64_t reef_wall_ns(void)
{
	return reef_local_clock_wall_ns(clock_here());
}
