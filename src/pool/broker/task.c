/* task.c - the broker's own fibers.
 *
 * They sleep in one list, whatever they wait for: a wake lets all of them look
 * again. There are few, and what they wait for is rare. */
#include "base/log.h"
#include "pool/broker/internal.h"

#include <errno.h>

struct broker_task {
	struct reef_broker *broker;
	void (*run)(struct reef_broker *broker, uint32_t number);
	uint32_t number;
};

static int task_main(void *arg)
{
	struct broker_task *task = arg;
	struct reef_broker *broker = task->broker;

	task->run(broker, task->number);
	free(task);
	broker->tasks--;
	broker_wake(broker);
	return 0;
}

int broker_spawn(struct reef_broker *broker,
		 void (*run)(struct reef_broker *broker, uint32_t number),
		 uint32_t number)
{
	struct broker_task *task = malloc(sizeof(*task));
	int rc;

	if (!task)
		return -ENOMEM;
	*task = (struct broker_task){broker, run, number};
	broker->tasks++;
	/* In the broker's group, even when a callback outside any fiber spawns.
	 */
	rc = reef_fiber_spawn_in(broker->group, task_main, task, NULL);
	if (rc) {
		broker->tasks--;
		free(task);
	}
	return rc;
}

/* Park until time has passed, or broker_wake wakes everybody in the list. */
static int park_in_list(struct reef_broker *broker, uint64_t duration_ns)
{
	struct broker_sleeper self = {.fiber = reef_fiber_self()}, **at;
	int rc;

	self.next = broker->sleepers;
	broker->sleepers = &self;
	rc = reef_fiber_park(duration_ns);
	for (at = &broker->sleepers; *at != &self; at = &(*at)->next)
		;
	*at = self.next;
	return rc;
}

int broker_sleep(struct reef_broker *broker, uint64_t duration_ns)
{
	int rc;

	if (broker->stopping)
		return -ECANCELED;
	rc = park_in_list(broker, duration_ns);
	if (rc == -REEF_EHOSTDEAD)
		return rc;
	return broker->stopping ? -ECANCELED : 0;
}

void broker_wake(struct reef_broker *broker)
{
	struct broker_sleeper *sleeper = broker->sleepers;

	for (; sleeper; sleeper = sleeper->next)
		reef_fiber_unpark(sleeper->fiber);
}

void broker_tasks_end(struct reef_broker *broker)
{
	reef_assert(broker->stopping);
	broker_wake(broker);
	/* On a killed host parking ends at once, and the others unwind. */
	while (broker->tasks > 0)
		(void)park_in_list(broker, REEF_FOREVER);
}
