/* table.h - the table of commands, made of the tables of each file, and what
 * commands share.
 *
 * (1) A table ends with {0}. A command with subcommands has them in a table of
 *     its own, and no `run`. Tables are not changed once init has filled in
 *     what it finds.
 *
 * Thread: tables: any; the rest as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_COMMANDS_TABLE_H
#define REEF_GATEWAY_REDIS_COMMANDS_TABLE_H

#include "gateway/redis/commands/command.h"
#include "gateway/redis/server/thread.h"

/* As `COMMAND INFO` has them, and in its order (reply_flags in docs.c). */
enum redis_command_flags {
	REDIS_WRITE = 1 << 0,
	REDIS_READONLY = 1 << 1,
	REDIS_DENYOOM = 1 << 2,
	REDIS_ADMIN = 1 << 3,
	REDIS_NOSCRIPT = 1 << 4,
	REDIS_LOADING = 1 << 5,
	REDIS_STALE = 1 << 6,
	REDIS_SKIP_MONITOR = 1 << 7,
	REDIS_SKIP_SLOWLOG = 1 << 8,
	REDIS_FAST = 1 << 9,
	REDIS_NO_AUTH = 1 << 10, /* allowed before AUTH */
	REDIS_MAY_REPLICATE = 1 << 11,
	REDIS_NO_MANDATORY_KEYS = 1 << 12,
	REDIS_NO_ASYNC_LOADING = 1 << 13,
	REDIS_NO_MULTI = 1 << 14, /* refused in a transaction */
	REDIS_MOVABLE_KEYS = 1 << 15,
	REDIS_ALLOW_BUSY = 1 << 16,
	/* Ours: it is about whole databases, which no transaction holds: EXEC
	 * commits what stands before it. */
	REDIS_WHOLE = 1 << 28,
	/* Ours: it may take long, and calls redis_pause. */
	REDIS_LONG = 1 << 29,
	/* Ours: it is run at once within a transaction, too. */
	REDIS_UNQUEUED = 1 << 30,
};

struct redis_command {
	const char *name; /* lower case; of a subcommand its own */
	int arity;	  /* with the name; negative: at least */
	uint32_t flags;
	int first_key, last_key, key_step; /* last -1: the last argument */
	void (*run)(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request);
	/* Optional: several of this command, each with many_argc arguments and
	 * its own answer, e.g. the GETs of a pipeline. A client's own are in
	 * order, one behind the other. If they are of several clients, those
	 * use the same database, and none of them said NO-TOUCH. Never within a
	 * transaction, or while something is watched. It may leave some
	 * (is_left). */
	void (*run_many)(struct redis_thread *thread, struct redis_call *calls,
			 uint32_t count);
	uint32_t many_argc; /* at most REDIS_MANY_ARGC_MAX */
	struct redis_command *subcommands;
	/* Set by redis_commands_init: the place in the statistics (each
	 * subcommand has its own), and whose subcommand it is. */
	uint32_t index;
	const struct redis_command *parent;
};

/* One of a table: name, arity, flags, its keys, run. */
#define REDIS_COMMAND(name_, arity_, flags_, first_, last_, step_, run_)       \
	{                                                                      \
		.name = (name_), .arity = (arity_), .flags = (flags_),         \
		.first_key = (first_), .last_key = (last_),                    \
		.key_step = (step_), .run = (run_)                             \
	}

/* The command of a request, if it exists and has as many arguments as it takes
 * (of a subcommand, that one). NULL: Redis's words for it were answered. */
const struct redis_command *redis_command_of(
	struct redis_client *client, const struct redis_request *request);
/* True if the command takes that many arguments, its name among them. */
bool redis_has_arity(const struct redis_command *command, uint32_t argc);
/* Run a command that was looked up and allowed before: EXEC's. Counts it. */
void redis_run(struct redis_thread *thread, struct redis_client *client,
	       const struct redis_command *command,
	       const struct redis_request *request);

/* Find a command by its name. NULL: there is none. */
const struct redis_command *redis_command_find(const char *name, size_t size);
/* How many commands there are with all subcommands, and each by its `index`.
 */
uint32_t redis_command_count(void);
const struct redis_command *redis_command_by_index(uint32_t index);
const struct redis_command *redis_subcommand_find(
	const struct redis_command *command, const char *name, size_t size);

/* --- for commands --- */

/* Parse an argument as a number. False: it is none, and that was answered ("ERR
 * value is not an integer or out of range"). */
bool redis_take_integer(struct redis_client *client,
			const struct redis_bytes *bytes, int64_t *out);
/* How many bytes to print by "%.*s": up to a NUL, as Redis does, and at most
 * `most`. */
int redis_shown(const struct redis_bytes *bytes, size_t most);
/* Answer "ERR syntax error". */
void redis_reply_syntax(struct redis_client *client);
/* Answer "ERR wrong number of arguments for 'x' command", of a subcommand
 * 'x|y'. */
void redis_reply_arity(struct redis_client *client,
		       const struct redis_command *command);

/* The tables; each is in the file of that name, and in the list in command.c.
 */
extern struct redis_command redis_client_commands[];
extern struct redis_command redis_config_commands[];
extern struct redis_command redis_connection_commands[];
extern struct redis_command redis_docs_commands[];
extern struct redis_command redis_edit_commands[];
extern struct redis_command redis_info_commands[];
extern struct redis_command redis_key_commands[];
extern struct redis_command redis_keyspace_commands[];
extern struct redis_command redis_object_commands[];
extern struct redis_command redis_save_commands[];
extern struct redis_command redis_scan_commands[];
extern struct redis_command redis_server_commands[];
extern struct redis_command redis_string_commands[];
extern struct redis_command redis_string_many_commands[];
extern struct redis_command redis_transaction_commands[];

/* --- transactions.c --- */

/* Within MULTI: keep the request for EXEC, and answer QUEUED. */
void redis_transaction_queue(struct redis_client *client,
			     const struct redis_command *command,
			     const struct redis_request *request);
/* A request within MULTI was refused: EXEC will not run. */
void redis_transaction_spoil(struct redis_client *client);

#endif
