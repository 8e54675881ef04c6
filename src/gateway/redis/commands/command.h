/* command.h - the commands, as the server sees them.
 *
 * Server and commands need each other: the server runs what clients ask, and a
 * command works on its client and thread (server/client.h, thread.h). This
 * header is the boundary: the server includes nothing else of the commands, and
 * knows redis_command by name only. What commands share with each other is in
 * table.h.
 *
 * (1) dispatch looks a request's command up, checks its arity and whether the
 *     client may, queues it in a transaction, or runs it. A command answers
 *     exactly once.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_COMMANDS_COMMAND_H
#define REEF_GATEWAY_REDIS_COMMANDS_COMMAND_H

#include "gateway/redis/protocol/parse.h"

struct redis_client;
struct redis_command;
struct redis_thread;

/* A request, and who is owed the answer. */
struct redis_call {
	struct redis_client *client;
	struct redis_request request;
	/* Set by run_many: it was not done, since so much waits to be sent to
	 * the client. All behind it of the same client are left, too. */
	bool is_left;
};

/* Make the table ready; once, before any thread. */
void redis_commands_init(void);

/* Run what a client asked, or answer why not. */
void redis_dispatch(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request);
/* The command of a request that may be run by run_many now; NULL: it must be
 * dispatched by itself. */
const struct redis_command *redis_dispatch_many(
	const struct redis_client *client, const struct redis_request *request);
/* True if the request is to be dispatched as a task (server/task.h). */
bool redis_dispatch_is_long(const struct redis_client *client,
			    const struct redis_request *request);
/* Run requests for which redis_dispatch_many returned this command, at most
 * REDIS_MANY_MAX, as table.h allows for run_many. Some may be left. */
void redis_run_many(struct redis_thread *thread,
		    const struct redis_command *command,
		    struct redis_call *calls, uint32_t count);

/* The name of a command, in lower case; of a subcommand its own. */
const char *redis_command_name(const struct redis_command *command);

/* Leave MULTI, and forget what was watched: DISCARD, RESET, the end of the
 * client. */
void redis_transaction_reset(struct redis_client *client);
/* How many bytes of memory transaction and watched keys have. */
uint64_t redis_transaction_memory(const struct redis_client *client);

#endif
