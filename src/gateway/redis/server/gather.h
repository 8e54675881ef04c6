/* gather.h - the plain requests of several clients, done together.
 *
 * Where the pool's memory is far, a call of the map is a wait for round trips.
 * So a client whose turn it is, and who has sent nothing but plain requests (of
 * a command with run_many), waits with them for the others of the round. At its
 * end, or when there are many, all that wait are done in shared batches.
 *
 *	      its turn              run
 *	open ----------> gathered -------> its turn ends (answers are sent)
 *	                     |
 *	                     `-- is_dead meanwhile: nothing of it is done
 *
 * (1) A client waits with all that it has sent and is whole, or not at all:
 *     what waits is one run of one command, nothing is behind it, and no answer
 *     of it is to be sent. So its answers stay in order.
 * (2) The bytes of what waits were copied: its buffers are lent to the next.
 * (3) Nobody waits longer than the round: between rounds there are none.
 * (4) All that wait together were received before any of them is done, and are
 *     answered after that: so they may be done in any order.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_SERVER_GATHER_H
#define REEF_GATEWAY_REDIS_SERVER_GATHER_H

#include "gateway/redis/commands/command.h"
#include "gateway/redis/server/thread.h"

/* Bytes that may wait; of one client those, and so many requests: more are
 * worth a batch of their own, and copying them costs more than it gains where
 * the memory is near. */
#define REDIS_GATHER_SIZE (UINT64_C(256) << 10)
#define REDIS_GATHER_RUN_SIZE (UINT64_C(16) << 10)
#define REDIS_GATHER_RUN_MAX 8u

struct redis_gather {
	/* Those that wait, fewer than REDIS_MANY_MAX before each turn; behind
	 * them is room for a run that is being read. */
	struct redis_call calls[2 * REDIS_MANY_MAX];
	struct redis_bytes argv[2 * REDIS_MANY_MAX][REDIS_MANY_ARGC_MAX];
	uint32_t count;
	/* Of one client after the other: which command. */
	struct {
		struct redis_client *client;
		const struct redis_command *command;
		uint32_t first, count; /* in calls */
		bool is_done;
	} runs[REDIS_MANY_MAX];
	uint32_t run_count;
	size_t used;
	char bytes[REDIS_GATHER_SIZE];
};

/* -ENOMEM. */
int redis_gather_create(struct redis_gather **out);
void redis_gather_destroy(struct redis_gather *gather); /* NULL is fine */

/* Behind those that wait: the next of a run that is being read, `index` of it,
 * at most REDIS_MANY_MAX. */
void redis_gather_read(struct redis_gather *gather, struct redis_client *client,
		       const struct redis_request *request, uint32_t index);
/* That run: let it wait, which is_gathered says. False: it cannot. */
bool redis_gather_keep(struct redis_gather *gather,
		       const struct redis_command *command, uint32_t count);
/* That run: do it now. */
void redis_gather_run(struct redis_thread *thread,
		      const struct redis_command *command, uint32_t count);

/* Is it time to do what waits, before the next may come? */
static inline bool redis_gather_is_full(const struct redis_gather *gather)
{
	return gather->count >= REDIS_MANY_MAX ||
	       gather->used > REDIS_GATHER_SIZE - REDIS_GATHER_RUN_SIZE;
}
/* Do all that wait, and forget them. Returns how many clients that were; their
 * turns are to be ended. */
uint32_t redis_gather_run_all(struct redis_thread *thread,
			      struct redis_client *clients[REDIS_MANY_MAX]);

#endif
