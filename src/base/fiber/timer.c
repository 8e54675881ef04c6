/* A binary heap ordered by (at_ns, order). The key stands in the heap's array,
 * so sifting does not follow pointers. heap_index 0 means "not set", which is
 * why the array begins at 1. */
#include "base/fiber/runtime.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

static bool before(const struct timer_entry *a, const struct timer_entry *b)
{
	if (a->at_ns != b->at_ns)
		return a->at_ns < b->at_ns;
	return a->order < b->order;
}

static void place(struct timers *timers, uint32_t index,
		  struct timer_entry entry)
{
	timers->heap[index] = entry;
	entry.timer->heap_index = index;
}

static void sift_up(struct timers *timers, uint32_t index,
		    struct timer_entry entry)
{
	while (index > 1 && before(&entry, &timers->heap[index / 2])) {
		place(timers, index, timers->heap[index / 2]);
		index /= 2;
	}
	place(timers, index, entry);
}

static void sift_down(struct timers *timers, uint32_t index,
		      struct timer_entry entry)
{
	uint32_t child;

	while ((child = index * 2) <= timers->count) {
		if (child < timers->count &&
		    before(&timers->heap[child + 1], &timers->heap[child]))
			child++;
		if (!before(&timers->heap[child], &entry))
			break;
		place(timers, index, timers->heap[child]);
		index = child;
	}
	place(timers, index, entry);
}

static bool is_foreign(const struct reef_timer *timer)
{
	return timer->fire != reef_fiber_timer_fire;
}

static int reserve(struct timers *timers, uint32_t count)
{
	struct timer_entry *heap;
	uint32_t capacity;

	if (count <= timers->capacity)
		return 0;
	capacity = count < 32 ? 64 : count * 2;
	heap = realloc(timers->heap, (capacity + 1) * sizeof(*heap));
	if (!heap)
		return -ENOMEM;
	timers->heap = heap;
	timers->capacity = capacity;
	return 0;
}

int reef_timers_reserve(struct reef_sched *sched, uint32_t fibers)
{
	return reserve(&sched->timers, sched->timers.foreign + fibers);
}

static void insert(struct reef_sched *sched, struct reef_timer *timer,
		   uint64_t at_ns)
{
	struct timers *timers = &sched->timers;

	reef_assert(timers->count < timers->capacity);
	timer->at_ns = at_ns;
	timer->order = timers->order++;
	if (is_foreign(timer))
		timers->foreign++;
	timers->count++;
	sift_up(timers, timers->count,
		(struct timer_entry){
			.at_ns = at_ns, .order = timer->order, .timer = timer});
}

int reef_timer_set(struct reef_sched *sched, struct reef_timer *timer,
		   uint64_t at_ns)
{
	int error;

	reef_timer_cancel(sched, timer);
	error = reserve(&sched->timers,
			sched->timers.foreign + 1 + sched->alive);
	if (error)
		return error;
	insert(sched, timer, at_ns);
	return 0;
}

void reef_timer_set_own(struct reef_fiber *fiber, uint64_t at_ns)
{
	fiber->has_timer = true;
	insert(fiber->sched, &fiber->timer, at_ns);
}

void reef_timer_cancel(struct reef_sched *sched, struct reef_timer *timer)
{
	struct timers *timers = &sched->timers;
	uint32_t index = timer->heap_index;
	struct timer_entry last;

	if (index == 0)
		return;
	reef_assert(timers->heap[index].timer == timer);
	timer->heap_index = 0;
	if (is_foreign(timer))
		timers->foreign--;
	last = timers->heap[timers->count--];
	if (last.timer == timer)
		return;
	if (index > 1 && before(&last, &timers->heap[index / 2]))
		sift_up(timers, index, last);
	else
		sift_down(timers, index, last);
}

void reef_timers_fire(struct reef_sched *sched, uint64_t now_ns)
{
	struct timers *timers = &sched->timers;
	uint64_t order = timers->order;
	struct reef_timer *timer;

	/* What a callback sets, due or not, waits for the next round: a timer
	 * that sets itself to "now" must not hold up everything else. */
	while (timers->count > 0 && timers->heap[1].at_ns <= now_ns &&
	       timers->heap[1].order < order) {
		timer = timers->heap[1].timer;
		reef_timer_cancel(sched, timer);
		timer->fire(timer);
	}
}
