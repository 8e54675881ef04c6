/* budget.h - the memory that all clients of a door have together: what they
 * have sent and is not done, what they are owed, what waits for EXEC, what they
 * watch.
 *
 * (1) A client is charged at the end of each turn. As long as all of them have
 *     more than memory_max, the thread whose clients have most closes the one
 *     of them that has most; those that said NO-EVICT come last.
 * (2) Within a turn a client takes no more than a thread has in hand for all
 *     (task.h, gather.h), and a value. So the door is over its budget by no
 *     more than a turn of each thread.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_SERVER_BUDGET_H
#define REEF_GATEWAY_REDIS_SERVER_BUDGET_H

#include "gateway/redis/server/thread.h"

/* Charge a client for what it has now; is_gone: it has nothing any more. True
 * if that is more than before. */
bool redis_budget_charge(struct redis_client *client, bool is_gone);
/* Close clients as rule (1) says: they are dead, and have no memory any more.
 * Not inside a task. */
void redis_budget_keep(struct redis_thread *thread);
/* How much all clients of the door have. */
uint64_t redis_budget_charged(const struct redis_door *door);

#endif
