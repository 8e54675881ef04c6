/* strings.h - the GETs and SETs of a pipeline, or of several clients, in shared
 * batches.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_COMMANDS_STRINGS_H
#define REEF_GATEWAY_REDIS_COMMANDS_STRINGS_H

#include "gateway/redis/commands/table.h"

/* The run_many of GET (two arguments each) and SET (three); each request is
 * answered. */
void redis_run_gets(struct redis_thread *thread, struct redis_call *calls,
		    uint32_t count);
void redis_run_sets(struct redis_thread *thread, struct redis_call *calls,
		    uint32_t count);

#endif
