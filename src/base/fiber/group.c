/* group.c - the fibers of a simulated host: pause, resume, kill. */
#include "base/fiber/runtime.h"

void reef_group_init(struct reef_sched *sched, struct reef_group *group,
		     const struct reef_local_clock *clock, void *owner)
{
	*group = (struct reef_group){
		.clock = clock ? clock : &sched->clock,
		.owner = owner,
		.sched = sched,
	};
}

/* Move the group's fibers of a list to held. Returns where the list ends. */
static struct reef_fiber **move_to_held(struct reef_group *group,
					struct reef_fiber **link)
{
	struct reef_fiber *fiber;

	while ((fiber = *link)) {
		if (fiber->group != group) {
			link = &fiber->next;
			continue;
		}
		*link = fiber->next;
		reef_fiber_ready(fiber);
	}
	return link;
}

/* Take the group's fibers out of the run queues, so that picking the next
 * fiber need not look at groups. */
void reef_group_pause(struct reef_group *group)
{
	struct reef_sched *sched = group->sched;
	uint32_t count = sched->round_count;
	struct reef_fiber *fiber;

	if (group->paused || group->dead)
		return;
	group->paused = true;
	move_to_held(group, &sched->head);
	sched->next_tail = move_to_held(group, &sched->next_head);
	sched->round_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		fiber = sched->round[i];
		if (fiber->group == group)
			reef_fiber_ready(fiber);
		else
			sched->round[sched->round_count++] = fiber;
	}
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

struct reef_group *reef_sched_group(struct reef_sched *sched)
{
	return &sched->group;
}

void reef_group_enter(struct reef_group *group)
{
	group->sched->acting = group;
}

void reef_group_leave(struct reef_group *group)
{
	group->sched->acting = NULL;
}
