/* atomic.h - several keys at once: what a command, or EXEC, reads and changes
 * within a unit happens at one moment, or not at all (reef/txn.h).
 *
 * (1) A body works through access.h as always. It may run several times, and
 *     has no effect but that, and answers that it takes back itself.
 * (2) What goes wrong with the transaction ends the body: access.h returns it
 *     without an answer. It is answered when all is over.
 * (3) Within EXEC a body is a part of EXEC's unit.
 * (4) While a unit is open its thread keeps session and maps. A body that has
 *     lost once does not pause any more, so that it gets to its end.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_COMMANDS_ATOMIC_H
#define REEF_GATEWAY_REDIS_COMMANDS_ATOMIC_H

#include "gateway/redis/commands/table.h"

#include <errno.h>
#include <reef/txn.h>

/* What a body returns that has answered an error: nothing happens then. */
#define REDIS_ANSWERED (-EPROTO)

struct redis_unit {
	struct reef_txn *txn;
	int rc;			   /* why the transaction failed; 0 */
	uint32_t attempt;	   /* from 1 on */
	struct reef_map_value now; /* what a decide is shown */
};

typedef int redis_body(struct redis_thread *thread, struct redis_client *client,
		       void *context);

/* Run a body until what it did is committed. 0: it is.  REDIS_ANSWERED: as the
 * body said, or what went wrong was answered.  -EPIPE: the client is gone. */
int redis_atomically(struct redis_thread *thread, struct redis_client *client,
		     redis_body *body, void *context, bool only_reads);
/* The same, but what goes wrong is returned, and not answered. */
int redis_atomically_try(struct redis_thread *thread,
			 struct redis_client *client, redis_body *body,
			 void *context, bool only_reads);
/* Answer why redis_atomically_try failed. */
void redis_reply_unit_failure(struct redis_thread *thread,
			      struct redis_client *client, int rc);

/* --- for access.c: within client->unit --- */

/* Note what a call on the transaction returned, and return it. True of
 * redis_unit_failed: the unit is over, and nothing is to be answered. */
int redis_unit_note(struct redis_client *client, int rc);
static inline bool redis_unit_failed(const struct redis_client *client)
{
	return client->unit && client->unit->rc;
}
/* Read a key.  -ENOENT: it is not there. */
int redis_unit_read(struct redis_client *client, struct reef_map *map,
		    const struct redis_bytes *key, struct reef_map_value *out);
/* Change a key, as reef_map_apply does. */
int redis_unit_change(struct redis_client *client, struct reef_map *map,
		      struct reef_map_change *change);

#endif
