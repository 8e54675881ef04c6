/* task.h - a command that may take long, on a stack of its own.
 *
 *	        begin             redis_pause: others first
 *	(none) -------> running ---------------------------> ready
 *	   ^             |  |  ^                               | resume
 *	   +-- the end --+  |  +-------------------------------+
 *	                    | redis_pause: too much is unsent     ^
 *	                    +------------------------> sending ---+ most is sent
 *	                    | redis_sleep                         |
 *	                    +------------------------> sleeping --+ its time has
 *	                                                            come
 *
 * (1) A client has one task at the most, and nothing else of it is read or run
 *     until its end. Whoever closes the client ends its task first: that is
 *     told by redis_pause, and has to return.
 * (2) A task that does not wait is ready: the thread serves what others have
 *     sent, then goes on with it for SLICE.
 * (3) The answer so far is sent while a task is paused, unless the client's
 *     is_held says that it may have to be taken back.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_SERVER_TASK_H
#define REEF_GATEWAY_REDIS_SERVER_TASK_H

#include "gateway/redis/server/thread.h"

/* So many bytes of answers may wait to be sent before a client has to wait; or
 * half of its limit, so that there is room for the next value. */
#define REDIS_UNSENT_MAX (UINT64_C(1) << 20)
static inline uint64_t redis_unsent_max(const struct redis_client *client)
{
	const uint64_t limit = client->reply.limit;

	return limit && limit / 2 < REDIS_UNSENT_MAX ? limit / 2
						     : REDIS_UNSENT_MAX;
}

enum redis_task_state {
	REDIS_TASK_RUNNING,
	REDIS_TASK_READY,
	REDIS_TASK_SENDING,
	REDIS_TASK_SLEEPING,
};

/* -ENOMEM. */
int redis_tasks_init(struct redis_thread *thread);
void redis_tasks_fini(struct redis_thread *thread); /* not init: fine */

/* Dispatch a request as a task, until its end or its first pause: then the
 * client has a task. */
void redis_task_begin(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request);
/* Go on with the client's task, until its end or its next pause. */
void redis_task_resume(struct redis_client *client);
/* End the task of a client that is dead; harmless if it has none. */
void redis_task_abandon(struct redis_client *client);
/* What the client's task waits for. */
enum redis_task_state redis_task_state(const struct redis_client *client);

/* When the first of the thread's sleepers wakes; UINT64_MAX: none sleeps. Those
 * whose time has come are made ready. */
uint64_t redis_tasks_wake(struct redis_thread *thread);

#endif
