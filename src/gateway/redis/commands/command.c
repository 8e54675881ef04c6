/* command.c - the table of commands, and the way of a request to its own. */
#include "gateway/redis/commands/command.h"

#include "base/log.h"
#include "gateway/redis/commands/table.h"
#include "gateway/redis/protocol/number.h"
#include "gateway/redis/server/door.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static struct redis_command *const tables[] = {
	redis_client_commands,	    redis_config_commands,
	redis_connection_commands,  redis_docs_commands,
	redis_edit_commands,	    redis_info_commands,
	redis_key_commands,	    redis_keyspace_commands,
	redis_object_commands,	    redis_save_commands,
	redis_scan_commands,	    redis_server_commands,
	redis_string_commands,	    redis_string_many_commands,
	redis_transaction_commands,
};
#define TABLES (sizeof(tables) / sizeof(tables[0]))

/* --- looking up --- */

#define SLOTS 1024u /* a power of two, a few times the commands */
#define NAME_MAX_SIZE 24

static struct slot {
	const struct redis_command *command;
	size_t size;
} slots[SLOTS];
/* The commands, and behind them their subcommands. */
static const struct redis_command *list[REDIS_COMMANDS_MAX];
static uint32_t list_count;

/* The slot where a name is searched first, made of its size and three letters:
 * enough to tell the commands that are used most apart. */
static uint32_t hash_name(const char *name, size_t size)
{
	uint32_t hash = (uint32_t)size;

	hash = hash * 31 + (uint32_t)(name[0] | 0x20);
	hash = hash * 31 + (uint32_t)(name[size / 2] | 0x20);
	hash = hash * 31 + (uint32_t)(name[size - 1] | 0x20);
	return hash % SLOTS;
}

/* The slot of the command of that name, or the empty one where it would be. */
static struct slot *slot_of(const char *name, size_t size)
{
	struct slot *slot = &slots[hash_name(name, size)];

	while (slot->command &&
	       (slot->size != size ||
		!redis_is_word(slot->command->name, name, size)))
		slot = slot == &slots[SLOTS - 1] ? slots : slot + 1;
	return slot;
}

static void add_to_list(struct redis_command *command)
{
	reef_assert(list_count < REDIS_COMMANDS_MAX);
	command->index = list_count;
	list[list_count++] = command;
}

static void add_subcommands(struct redis_command *command)
{
	struct redis_command *sub = command->subcommands;

	for (; sub && sub->name; sub++) {
		sub->parent = command;
		add_to_list(sub);
	}
}

void redis_commands_init(void)
{
	struct redis_command *command;
	struct slot *slot;
	size_t i, size;

	memset(slots, 0, sizeof(slots));
	list_count = 0;
	for (i = 0; i < TABLES; i++)
		for (command = tables[i]; command->name; command++) {
			size = strlen(command->name);
			slot = slot_of(command->name, size);
			reef_assert(!slot->command && size < NAME_MAX_SIZE);
			*slot = (struct slot){command, size};
			add_to_list(command);
		}
	for (i = 0; i < TABLES; i++)
		for (command = tables[i]; command->name; command++)
			add_subcommands(command);
}

const char *redis_command_name(const struct redis_command *command)
{
	return command->name;
}

uint32_t redis_command_count(void)
{
	return list_count;
}

const struct redis_command *redis_command_by_index(uint32_t index)
{
	reef_assert(index < list_count);
	return list[index];
}

const struct redis_command *redis_command_find(const char *name, size_t size)
{
	return size && size < NAME_MAX_SIZE ? slot_of(name, size)->command
					    : NULL;
}

const struct redis_command *redis_subcommand_find(
	const struct redis_command *command, const char *name, size_t size)
{
	const struct redis_command *sub = command->subcommands;

	for (; sub && sub->name; sub++)
		if (strlen(sub->name) == size &&
		    redis_is_word(sub->name, name, size))
			return sub;
	return NULL;
}

/* --- what is said --- */

void redis_reply_syntax(struct redis_client *client)
{
	redis_reply_error(&client->reply, "ERR syntax error");
}

bool redis_take_integer(struct redis_client *client,
			const struct redis_bytes *bytes, int64_t *out)
{
	if (redis_integer_parse(bytes->bytes, bytes->size, out))
		return true;
	redis_reply_error(&client->reply,
			  "ERR value is not an integer or out of range");
	return false;
}

void redis_reply_arity(struct redis_client *client,
		       const struct redis_command *command)
{
	/* An EXEC with wrong arguments ends its transaction, too. */
	if (!strcmp(command->name, "exec")) {
		redis_transaction_reset(client);
		redis_reply_error(&client->reply,
				  "EXECABORT Transaction discarded because of: "
				  "wrong number of arguments for 'exec' "
				  "command");
		return;
	}
	redis_reply_errorf(&client->reply,
			   "ERR wrong number of arguments for '%s%s%s' command",
			   command->parent ? command->parent->name : "",
			   command->parent ? "|" : "", command->name);
}

int redis_shown(const struct redis_bytes *bytes, size_t most)
{
	return (int)strnlen(bytes->bytes,
			    bytes->size < most ? bytes->size : most);
}

#define SHOWN_MAX 128u

static void reply_unknown(struct redis_client *client,
			  const struct redis_request *request)
{
	char arguments[SHOWN_MAX + 8];
	size_t used = 0;
	uint32_t i;

	arguments[0] = '\0';
	for (i = 1; i < request->argc && used < SHOWN_MAX; i++)
		used += (size_t)snprintf(
			arguments + used, sizeof(arguments) - used, "'%.*s' ",
			redis_shown(&request->argv[i], SHOWN_MAX - used),
			request->argv[i].bytes);
	redis_reply_errorf(&client->reply,
			   "ERR unknown command '%.*s', with args beginning "
			   "with: %s",
			   redis_shown(&request->argv[0], SHOWN_MAX),
			   request->argv[0].bytes, arguments);
}

static void reply_unknown_subcommand(struct redis_client *client,
				     const struct redis_command *command,
				     const struct redis_request *request)
{
	char name[NAME_MAX_SIZE];
	size_t i;

	for (i = 0; command->name[i]; i++)
		name[i] = (char)toupper((unsigned char)command->name[i]);
	name[i] = '\0';
	redis_reply_errorf(&client->reply,
			   "ERR unknown subcommand '%.*s'. Try %s HELP.",
			   redis_shown(&request->argv[1], SHOWN_MAX),
			   request->argv[1].bytes, name);
}

bool redis_has_arity(const struct redis_command *command, uint32_t argc)
{
	return command->arity < 0 ? argc >= (uint32_t)-command->arity
				  : argc == (uint32_t)command->arity;
}

const struct redis_command *redis_command_of(
	struct redis_client *client, const struct redis_request *request)
{
	const struct redis_command *sub,
		*command = redis_command_find(request->argv[0].bytes,
					      request->argv[0].size);

	if (!command) {
		reply_unknown(client, request);
		return NULL;
	}
	if (command->subcommands && request->argc > 1) {
		sub = redis_subcommand_find(command, request->argv[1].bytes,
					    request->argv[1].size);
		if (!sub) {
			reply_unknown_subcommand(client, command, request);
			return NULL;
		}
		command = sub;
	}
	if (redis_has_arity(command, request->argc))
		return command;
	redis_reply_arity(client, command);
	return NULL;
}

/* --- counting --- */

static void count_error(struct redis_thread *thread, const char *name)
{
	struct redis_error_count *count = thread->error_counts;
	uint32_t i;

	for (i = 0; i < thread->error_names; i++, count++)
		if (!strcmp(count->name, name))
			break;
	if (i == REDIS_ERROR_NAMES_MAX)
		return;
	if (i == thread->error_names) {
		thread->error_names++;
		snprintf(count->name, sizeof(count->name), "%s", name);
	}
	count->count++;
}

/* Count the errors that were answered since the client had `before`. True if
 * there were any. */
static bool count_errors(struct redis_thread *thread,
			 const struct redis_client *client, uint64_t before)
{
	if (client->reply.errors == before)
		return false;
	thread->stats.errors += client->reply.errors - before;
	count_error(thread, client->reply.error_name);
	return true;
}

void redis_run(struct redis_thread *thread, struct redis_client *client,
	       const struct redis_command *command,
	       const struct redis_request *request)
{
	const uint64_t errors = client->reply.errors;

	client->command = command;
	thread->stats.commands++;
	thread->stats.calls[command->index]++;
	command->run(thread, client, request);
	if (count_errors(thread, client, errors))
		thread->stats.calls_failed[command->index]++;
}

/* --- the way of a request --- */

/* Let a client in whom nobody asks for a password any more. */
static bool let_in(struct redis_client *client)
{
	struct redis_door_info info;

	redis_door_info(client->thread->door, &info);
	client->is_authenticated = !info.has_password;
	client->parser.is_stranger = info.has_password;
	return client->is_authenticated;
}

/* The command of a request, if the client may run it. NULL: an error was
 * answered. */
static const struct redis_command *
admit_request(struct redis_client *client, const struct redis_request *request)
{
	const struct redis_command *command = redis_command_of(client, request);

	if (!command)
		return NULL;
	if (!client->is_authenticated && !(command->flags & REDIS_NO_AUTH) &&
	    !let_in(client)) {
		redis_reply_error(&client->reply,
				  "NOAUTH Authentication required.");
		client->command = command;
		return NULL;
	}
	if (client->transaction && command->flags & REDIS_NO_MULTI) {
		redis_reply_error(&client->reply, "ERR Command not allowed "
						  "inside a transaction");
		client->command = command;
		return NULL;
	}
	return command;
}

void redis_dispatch(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request)
{
	const uint64_t errors = client->reply.errors;
	const struct redis_command *command = admit_request(client, request);

	client->requests++;
	if (!command) {
		count_errors(thread, client, errors);
		if (client->transaction)
			redis_transaction_spoil(client);
	} else if (client->transaction && !(command->flags & REDIS_UNQUEUED)) {
		client->command = command;
		redis_transaction_queue(client, command, request);
	} else {
		redis_run(thread, client, command, request);
	}
}

const struct redis_command *redis_dispatch_many(
	const struct redis_client *client, const struct redis_request *request)
{
	const struct redis_command *command;

	if (client->transaction || client->watches ||
	    !client->is_authenticated || request->is_big)
		return NULL;
	command = redis_command_find(request->argv[0].bytes,
				     request->argv[0].size);
	return command && command->run_many &&
			       command->many_argc == request->argc
		       ? command
		       : NULL;
}

/* With a single key no command takes long. */
bool redis_dispatch_is_long(const struct redis_client *client,
			    const struct redis_request *request)
{
	const struct redis_command *command;

	command = redis_command_find(request->argv[0].bytes,
				     request->argv[0].size);
	return command && command->flags & REDIS_LONG &&
	       !(command->first_key && request->argc == 2) &&
	       (!client->transaction || command->flags & REDIS_UNQUEUED);
}

/* Count requests that were run together, without those that were left. */
static void count_many(struct redis_thread *thread,
		       const struct redis_command *command,
		       const struct redis_call *calls, uint32_t count)
{
	uint32_t i, done = 0;

	for (i = 0; i < count; i++) {
		if (calls[i].is_left)
			continue;
		calls[i].client->requests++;
		done++;
	}
	thread->stats.batches++;
	thread->stats.batched += done;
	thread->stats.commands += done;
	thread->stats.calls[command->index] += done;
}

void redis_run_many(struct redis_thread *thread,
		    const struct redis_command *command,
		    struct redis_call *calls, uint32_t count)
{
	uint64_t errors[REDIS_MANY_MAX];
	uint32_t i;

	reef_assert(count && count <= REDIS_MANY_MAX);
	for (i = 0; i < count; i++) {
		errors[i] = calls[i].client->reply.errors;
		calls[i].client->command = command;
		calls[i].is_left = false;
	}
	if (count == 1) {
		calls->client->requests++;
		redis_run(thread, calls->client, command, &calls->request);
		return;
	}
	command->run_many(thread, calls, count);
	count_many(thread, command, calls, count);
	for (i = 0; i < count; i++) {
		const struct redis_client *client = calls[i].client;

		if (i && client == calls[i - 1].client)
			continue;
		if (count_errors(thread, client, errors[i]))
			thread->stats.calls_failed[command->index] +=
				client->reply.errors - errors[i];
	}
}
