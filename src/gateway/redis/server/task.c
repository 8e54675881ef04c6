/* task.c - see task.h. */
#include "gateway/redis/server/task.h"

#include "base/clock.h"
#include "base/fiber/context.h"
#include "base/fiber/stack.h"
#include "base/log.h"
#include "gateway/redis/commands/command.h"
#include "gateway/redis/server/ready.h"

#include <errno.h>
#include <reef/fiber.h>
#include <stdlib.h>

#define STACK_SIZE ((size_t)256 << 10)
#define SLICE UINT64_C(500000) /* ns that a task runs before others do */

struct redis_task {
	struct redis_client *client;
	struct redis_request request;
	struct reef_context context;
	struct stack *stack;
	enum redis_task_state state;
	uint64_t slice_ns;		 /* when it began to run */
	uint64_t until_ns;		 /* sleeping */
	struct redis_task *next, **link; /* of the sleepers */
};

struct redis_tasks {
	struct reef_context main; /* the thread's own stack */
	bool is_adopted;
	struct stacks stacks;
	struct redis_task *running, *sleepers;
};

int redis_tasks_init(struct redis_thread *thread)
{
	thread->tasks = calloc(1, sizeof(*thread->tasks));
	if (!thread->tasks)
		return -ENOMEM;
	reef_stacks_init(&thread->tasks->stacks, STACK_SIZE);
	return 0;
}

void redis_tasks_fini(struct redis_thread *thread)
{
	if (!thread->tasks)
		return;
	reef_stacks_fini(&thread->tasks->stacks);
	free(thread->tasks);
	thread->tasks = NULL;
}

/* --- a task's life --- */

static void run_task(void *arg)
{
	struct redis_task *task = arg;
	struct redis_thread *thread = task->client->thread;

	reef_context_entered(&task->context);
	redis_dispatch(thread, task->client, &task->request);
	task->client->task = NULL;
	reef_context_switch(&task->context, &thread->tasks->main, true);
}

/* Switch to a task, and free it if it has ended. */
static void enter_task(struct redis_task *task)
{
	struct redis_client *client = task->client;
	struct redis_tasks *tasks = client->thread->tasks;

	reef_assert(!tasks->running);
	tasks->running = task;
	task->state = REDIS_TASK_RUNNING;
	task->slice_ns = reef_now_ns();
	if (!tasks->is_adopted)
		reef_context_adopt(&tasks->main);
	tasks->is_adopted = true;
	reef_context_switch(&tasks->main, &task->context, false);
	tasks->running = NULL;
	if (client->task) {
		/* Its arguments stay, wherever the buffers go. */
		redis_parser_again(&client->parser);
		return;
	}
	reef_context_forget(&task->context);
	reef_stack_give(&tasks->stacks, task->stack);
	free(task);
}

void redis_task_begin(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	struct redis_tasks *tasks = thread->tasks;
	struct redis_task *task = calloc(1, sizeof(*task));

	if (task)
		task->stack = reef_stack_take(&tasks->stacks);
	if (!task || !task->stack) {
		free(task);
		redis_dispatch(thread, client, request);
		return;
	}
	task->client = client;
	task->request = *request;
	reef_context_make(&task->context, task->stack->base, task->stack->size,
			  run_task, task);
	client->task = task;
	enter_task(task);
}

static void forget_sleeper(struct redis_task *task)
{
	if (!task->link)
		return;
	*task->link = task->next;
	if (task->next)
		task->next->link = task->link;
	task->link = NULL;
}

void redis_task_resume(struct redis_client *client)
{
	struct redis_task *task = client->task;

	forget_sleeper(task);
	redis_parser_next(&client->parser, &task->request);
	enter_task(task);
}

void redis_task_abandon(struct redis_client *client)
{
	reef_assert(client->is_dead);
	if (client->task)
		redis_task_resume(client);
	reef_assert(!client->task);
}

enum redis_task_state redis_task_state(const struct redis_client *client)
{
	return client->task->state;
}

uint64_t redis_tasks_wake(struct redis_thread *thread)
{
	struct redis_task *task = thread->tasks->sleepers, *next;
	uint64_t first_ns = UINT64_MAX;

	for (; task; task = next) {
		next = task->next;
		if (task->until_ns <= thread->now_ns) {
			forget_sleeper(task);
			task->state = REDIS_TASK_READY;
			redis_ready_add(task->client);
		} else if (task->until_ns < first_ns) {
			first_ns = task->until_ns;
		}
	}
	return first_ns;
}

/* --- for commands --- */

static bool is_gone(const struct redis_client *client)
{
	return client->is_dead || client->reply.is_broken;
}

static bool leave_task(struct redis_task *task, enum redis_task_state state)
{
	struct redis_client *client = task->client;

	client->thread->stats.pauses++;
	task->state = state;
	if (state == REDIS_TASK_READY)
		redis_ready_add(client);
	reef_context_switch(&task->context, &client->thread->tasks->main,
			    false);
	return !is_gone(client);
}

bool redis_pause(struct redis_thread *thread, struct redis_client *client)
{
	struct redis_task *task = thread->tasks->running;

	if (!task || is_gone(client) || client->is_hasty)
		return !is_gone(client);
	if (!client->is_held &&
	    redis_reply_waiting(&client->reply) > redis_unsent_max(client))
		return leave_task(task, REDIS_TASK_SENDING);
	if (reef_now_ns() - task->slice_ns < SLICE)
		return true;
	return leave_task(task, REDIS_TASK_READY);
}

bool redis_sleep(struct redis_thread *thread, struct redis_client *client,
		 uint64_t until_ns)
{
	struct redis_tasks *tasks = thread->tasks;
	struct redis_task *task = tasks->running;

	if (!task || is_gone(client))
		return !is_gone(client);
	task->until_ns = until_ns;
	task->next = tasks->sleepers;
	task->link = &tasks->sleepers;
	if (task->next)
		task->next->link = &task->next;
	tasks->sleepers = task;
	return leave_task(task, REDIS_TASK_SLEEPING);
}
