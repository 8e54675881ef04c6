/* stage.h - large values of SET, received straight into the pool (kv/stage.h).
 *
 * (1) Only plain cases: a SET outside of a transaction, of a value of 128 KiB
 *     or more, in a database that this thread has open, where memory is mapped.
 *     Everything else is received into a buffer, and so is what turns out to be
 *     another case by the options behind the value (redis_parser_unstage).
 * (2) Who only announces costs the pool little: a thread has 64 MiB at most on
 *     stage, and none of it for much longer than a second. Who takes longer
 *     goes on in a buffer.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_SERVER_STAGE_H
#define REEF_GATEWAY_REDIS_SERVER_STAGE_H

#include "gateway/redis/server/thread.h"

/* The staging of a client's parser; its context is the redis_client. */
extern const struct redis_staging redis_staging;

/* Receive into the client's stage; returns as recv does. */
ssize_t redis_stage_receive(struct redis_client *client);
/* Put the staged value of a SET into a map, under the request's key. Errors as
 * reef_map_put; none is answered here. */
int redis_stage_put(const struct redis_request *request, struct reef_map *map,
		    uint64_t expires_ms);
/* Move values that have been on stage for too long (all: every value) to
 * buffers; a client for which that fails is dead. */
void redis_stage_clear(struct redis_thread *thread, bool all);

#endif
