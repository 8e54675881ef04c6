#include "base/runtime.h"

void reef_group_init(struct reef_sched *sched, struct reef_group *group,
		     const struct reef_clock *clock, void *owner)
{
	*group = (struct reef_group){
		.clock = clock ? clock : &sched->clock,
		.owner = owner,
		.sched = sched,
	};
}

/* Take the group's fibers out of the run queue and the round, so that picking
 * the next fiber need not look at groups. */
void reef_group_pause(struct reef_group *group)
{
	struct reef_sched *sched = group->sched;
	struct reef_fiber *fiber, *rest = sched->head;
	uint32_t count = sched->round_count;

	if (group->paused || group->dead)
		return;
	group->paused = true;
	sched->round_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		fiber = sched->round[i];
		if (fiber->group == group)
			reef_fiber_ready(fiber);
		else
			sched->round[sched->round_count++] = fiber;
	}
	sched->head = NULL;
	sched->tail = &sched->head;
	sched->queued = 0;
	while ((fiber = rest)) {
		rest = fiber->next;
		if (fiber->group == group) {
			reef_fiber_ready(fiber);
			continue;
		}
		fiber->next = NULL;
		*sched->tail = fiber;
		sched->tail = &fiber->next;
		sched->queued++;
	}
	reef_round_limit(sched);
}

void reef_group_resume(struct reef_group *group)
{
	struct reef_fiber *fiber, *rest = NULL;

	if (!group->paused)
		return;
	group->paused = false;
	if (group->held) {
		rest = group->held->next;
		group->held->next = NULL;
	}
	group->held = NULL;
	while ((fiber = rest)) {
		rest = fiber->next;
		reef_fiber_ready(fiber);
	}
}

void reef_group_kill(struct reef_group *group)
{
	struct reef_fiber *fiber;

	group->dead = true;
	for (fiber = group->members; fiber; fiber = fiber->member_next) {
		if (fiber->state == FIBER_PARKED ||
		    fiber->state == FIBER_SLEEPING)
			reef_fiber_wake(fiber, -REEF_EHOSTDEAD);
	}
	reef_group_resume(group);
}

struct reef_group *reef_fiber_group(void)
{
	return reef_self ? reef_self->group : NULL;
}
