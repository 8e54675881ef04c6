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
 * (5) What run_many has left, because too much waits to be sent to the client,
 *     is copied and put off until that was sent (client->later). Before it is
 *     done nothing else of that client is.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_SERVER_GATHER_H
#define REEF_GATEWAY_REDIS_SERVER_GATHER_H

#include "gateway/redis/commands/command.h"
#include "gateway/redis/server/thread.h"

/* How many bytes may wait in all, and how many bytes and requests of one
 * client. A run with more is worth a batch of its own, and copying it costs
 * more than it gains where the memory is near. */
#define REDIS_GATHER_SIZE (UINT64_C(256) << 10)
#define REDIS_GATHER_RUN_SIZE (UINT64_C(16) << 10)
#define REDIS_GATHER_RUN_MAX 8u

struct redis_gather {
	/* The requests that wait, fewer than REDIS_MANY_MAX before each turn;
	 * behind them is room for a run that is being read. */
	struct redis_call calls[2 * REDIS_MANY_MAX];
	struct redis_bytes argv[2 * REDIS_MANY_MAX][REDIS_MANY_ARGC_MAX];
	uint32_t count;
	/* The runs of the clients that wait: each is some requests of one
	 * command. */
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

/* Note request `index` (below REDIS_MANY_MAX) of the run that is being read,
 * behind those that wait. */
void redis_gather_read(struct redis_gather *gather, struct redis_client *client,
		       const struct redis_request *request, uint32_t index);
/* Let the run that was read wait; its client is_gathered then. False: it is too
 * large to wait. */
bool redis_gather_keep(struct redis_gather *gather,
		       const struct redis_command *command, uint32_t count);
/* Do the run that was read at once. What is left of it is put off (rule 5). */
void redis_gather_run(struct redis_thread *thread,
		      const struct redis_command *command, uint32_t count);

/* True if what waits must be done before another run may be read. */
static inline bool redis_gather_is_full(const struct redis_gather *gather)
{
	return gather->count >= REDIS_MANY_MAX ||
	       gather->used > REDIS_GATHER_SIZE - REDIS_GATHER_RUN_SIZE;
}
/* Do all runs that wait, and forget them, but for what is left (rule 5).
 * Returns how many clients they were of; their turns are to be ended by the
 * caller. */
uint32_t redis_gather_run_all(struct redis_thread *thread,
			      struct redis_client *clients[REDIS_MANY_MAX]);

/* Do what was put off of a client (rule 5); some of it may be left again. */
void redis_later_run(struct redis_client *client);
void redis_later_free(struct redis_client *client); /* none: fine */
/* Bytes of memory that it takes. */
size_t redis_later_memory(const struct redis_client *client);

#endif
