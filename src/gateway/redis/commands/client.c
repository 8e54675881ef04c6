/* client.c - the command CLIENT: who is connected, and who shall not be.
 *
 * Clients of other threads are looked at with their thread's lock held
 * (redis_door_each); one that is to go is marked, and closed by its own thread.
 */
#include "gateway/redis/commands/connection.h"
#include "gateway/redis/commands/docs/help.h"
#include "gateway/redis/commands/transactions.h"
#include "gateway/redis/protocol/number.h"
#include "gateway/redis/server/door.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define SECOND UINT64_C(1000000000)

static void client_id(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	(void)thread;
	(void)request;
	redis_reply_integer(&client->reply, (int64_t)client->id);
}

/* --- what a client says of itself --- */

static void client_getname(struct redis_thread *thread,
			   struct redis_client *client,
			   const struct redis_request *request)
{
	(void)thread;
	(void)request;
	if (client->name)
		redis_reply_text(&client->reply, client->name);
	else
		redis_reply_null(&client->reply);
}

static void set_text(struct redis_client *client, char **text,
		     const struct redis_bytes *bytes)
{
	if (redis_text_set(text, bytes))
		redis_reply_status(&client->reply, "OK");
	else
		redis_reply_error(&client->reply, "OOM out of memory");
}

static void client_setname(struct redis_thread *thread,
			   struct redis_client *client,
			   const struct redis_request *request)
{
	const char *fault = redis_name_fault(&request->argv[2]);

	(void)thread;
	if (fault)
		redis_reply_error(&client->reply, fault);
	else
		set_text(client, &client->name, &request->argv[2]);
}

/* CLIENT SETINFO is of Redis 7.2: newer clients tell their library's name by
 * it. */
static void client_setinfo(struct redis_thread *thread,
			   struct redis_client *client,
			   const struct redis_request *request)
{
	const struct redis_bytes *option = &request->argv[2];
	char **text = NULL;

	(void)thread;
	if (redis_bytes_is(option, "lib-name"))
		text = &client->library;
	else if (redis_bytes_is(option, "lib-ver"))
		text = &client->library_version;
	if (!text)
		redis_reply_errorf(&client->reply,
				   "ERR Unrecognized option '%.*s'",
				   redis_shown(option, 128), option->bytes);
	else if (redis_name_fault(&request->argv[3]))
		redis_reply_errorf(&client->reply,
				   "ERR %.*s cannot contain spaces, newlines "
				   "or special characters.",
				   redis_shown(option, 128), option->bytes);
	else
		set_text(client, text, &request->argv[3]);
}

static void set_switch(struct redis_client *client,
		       const struct redis_bytes *word, bool *on)
{
	if (redis_bytes_is(word, "on"))
		*on = true;
	else if (redis_bytes_is(word, "off"))
		*on = false;
	else {
		redis_reply_syntax(client);
		return;
	}
	redis_reply_status(&client->reply, "OK");
}

static void client_no_evict(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct redis_request *request)
{
	(void)thread;
	set_switch(client, &request->argv[2], &client->no_evict);
}

static void client_no_touch(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct redis_request *request)
{
	(void)thread;
	set_switch(client, &request->argv[2], &client->no_touch);
}

/* --- lines about clients --- */

struct line {
	uint64_t id;
	size_t offset, size;
};

/* Lines about clients, in one text. */
struct listing {
	uint64_t now_ns;
	/* Only these, sorted; NULL: all. */
	const int64_t *ids;
	size_t id_count;
	char *text;
	size_t used, room;
	struct line *lines;
	size_t count, lines_room;
	bool is_broken; /* no memory, or too long */
};

/* A text about all clients is no longer than that. */
#define LISTING_MAX ((size_t)64 << 20)

static void listing_free(struct listing *listing)
{
	free(listing->text);
	free(listing->lines);
}

__attribute__((format(printf, 2, 3))) static void
add_text(struct listing *listing, const char *format, ...)
{
	va_list arguments;
	size_t size;
	char *text;

	va_start(arguments, format);
	size = (size_t)vsnprintf(NULL, 0, format, arguments) + 1;
	va_end(arguments);
	if (listing->is_broken || listing->used > LISTING_MAX) {
		listing->is_broken = true;
		return;
	}
	if (listing->room - listing->used < size) {
		listing->room = 2 * listing->room + size + 512;
		text = realloc(listing->text, listing->room);
		if (!text) {
			listing->room = listing->used;
			listing->is_broken = true;
			return;
		}
		listing->text = text;
	}
	va_start(arguments, format);
	vsnprintf(listing->text + listing->used, size, format, arguments);
	va_end(arguments);
	listing->used += size - 1;
}

static void fill_flags(const struct redis_client *client, char flags[8])
{
	size_t count = 0;

	if (client->transaction)
		flags[count++] = 'x';
	if (client->close_after)
		flags[count++] = 'c';
	if (client->is_dead)
		flags[count++] = 'A';
	if (client->is_unix)
		flags[count++] = 'U';
	if (client->no_evict)
		flags[count++] = 'e';
	if (client->no_touch)
		flags[count++] = 'T';
	if (!count)
		flags[count++] = 'N';
	flags[count] = '\0';
}

static void add_memory(struct listing *listing,
		       const struct redis_client *client)
{
	const struct redis_parser *parser = &client->parser;
	const size_t query = redis_parser_memory(parser);
	const size_t output = redis_reply_memory(&client->reply);
	const size_t waiting = redis_parser_waiting(parser);
	uint64_t queued, arguments = 0;
	int64_t count = redis_transaction_size(client, &queued);
	uint32_t i;

	for (i = 0; i < parser->argc; i++)
		arguments += parser->argv[i].size;
	add_text(listing,
		 " multi=%lld qbuf=%zu qbuf-free=%zu argv-mem=%llu "
		 "multi-mem=%llu rbs=%zu rbp=%zu obl=%llu oll=%u omem=%zu "
		 "tot-mem=%zu",
		 (long long)count, waiting,
		 parser->room > parser->end ? parser->room - parser->end : 0,
		 (unsigned long long)arguments, (unsigned long long)queued,
		 client->reply.room, client->reply.room,
		 (unsigned long long)redis_reply_waiting(&client->reply),
		 client->reply.piece_count, output,
		 sizeof(*client) + query + output + (size_t)queued);
}

static void add_client(struct listing *listing,
		       const struct redis_client *client)
{
	const struct redis_command *command = client->command;
	char flags[8];

	fill_flags(client, flags);
	add_text(listing,
		 "id=%llu addr=%s laddr=%s fd=%d name=%s age=%llu idle=%llu "
		 "flags=%s db=%u sub=0 psub=0 ssub=0",
		 (unsigned long long)client->id, client->address,
		 client->local_address, client->fd,
		 client->name ? client->name : "",
		 (unsigned long long)((listing->now_ns - client->created_ns) /
				      SECOND),
		 (unsigned long long)((listing->now_ns - client->used_ns) /
				      SECOND),
		 flags, client->db);
	add_memory(listing, client);
	add_text(listing,
		 " events=%s%s cmd=%s%s%s user=default redir=-1 "
		 "resp=%u",
		 client->events & EPOLLIN ? "r" : "",
		 client->events & EPOLLOUT ? "w" : "",
		 command && command->parent ? command->parent->name : "",
		 command && command->parent ? "|" : "",
		 command ? command->name : "NULL", client->reply.protocol);
	/* These two are newer than the rest, and so only told where a client
	 * has set them. */
	if (client->library || client->library_version)
		add_text(listing, " lib-name=%s lib-ver=%s",
			 client->library ? client->library : "",
			 client->library_version ? client->library_version
						 : "");
	add_text(listing, "\n");
}

static int compare_ids(const void *a, const void *b)
{
	const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return left < right ? -1 : left > right;
}

static bool is_asked_for(const struct listing *listing, uint64_t id)
{
	const int64_t key = (int64_t)id;

	return !listing->ids || bsearch(&key, listing->ids, listing->id_count,
					sizeof(key), compare_ids);
}

static int list_thread(void *context, struct redis_thread *thread)
{
	const struct redis_client *client = thread->clients;
	struct listing *listing = context;
	struct line *lines;
	size_t from;

	for (; client && !listing->is_broken; client = client->next) {
		if (!is_asked_for(listing, client->id))
			continue;
		if (listing->count == listing->lines_room) {
			listing->lines_room = 2 * listing->lines_room + 16;
			lines = reallocarray(listing->lines,
					     listing->lines_room,
					     sizeof(*lines));
			if (!lines) {
				listing->is_broken = true;
				break;
			}
			listing->lines = lines;
		}
		from = listing->used;
		add_client(listing, client);
		listing->lines[listing->count++] =
			(struct line){client->id, from, listing->used - from};
	}
	return listing->is_broken;
}

static int compare_lines(const void *a, const void *b)
{
	const struct line *left = a, *right = b;

	return left->id < right->id ? -1 : left->id > right->id;
}

static void sort_lines(struct listing *listing)
{
	if (listing->count)
		qsort(listing->lines, listing->count, sizeof(*listing->lines),
		      compare_lines);
}

/* Answer a text that add_text has made. */
static void reply_text(struct redis_client *client,
		       const struct listing *listing)
{
	if (listing->is_broken && listing->used > LISTING_MAX)
		redis_reply_error(&client->reply,
				  "ERR the list of clients is too long");
	else if (listing->is_broken)
		redis_reply_error(&client->reply, "OOM out of memory");
	else
		redis_reply_verbatim(&client->reply, listing->text,
				     listing->used, "txt");
}

static void copy_line(struct listing *to, const struct listing *from,
		      const struct line *line)
{
	add_text(to, "%.*s", (int)line->size, from->text + line->offset);
}

/* Answer the lines, those of the oldest clients first. */
static void reply_listing(struct redis_client *client, struct listing *listing)
{
	struct listing sorted = {.is_broken = listing->is_broken,
				 .used = listing->is_broken ? listing->used
							    : 0};
	size_t i;

	sort_lines(listing);
	for (i = 0; i < listing->count; i++)
		copy_line(&sorted, listing, &listing->lines[i]);
	reply_text(client, &sorted);
	listing_free(&sorted);
}

static void client_info(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	struct listing listing = {.now_ns = thread->now_ns};

	(void)request;
	add_client(&listing, client);
	reply_text(client, &listing);
	listing_free(&listing);
}

/* Parse a type of clients; all that are here are normal ones. False: there is
 * no such type, and that was answered. */
static bool parse_type(struct redis_client *client,
		       const struct redis_bytes *word, bool *is_normal)
{
	static const char *const others[] = {"slave", "replica", "pubsub",
					     "master"};
	size_t i;

	*is_normal = redis_bytes_is(word, "normal");
	for (i = 0; !*is_normal && i < 4; i++)
		if (redis_bytes_is(word, others[i]))
			return true;
	if (!*is_normal)
		redis_reply_errorf(&client->reply,
				   "ERR Unknown client type '%.*s'",
				   redis_shown(word, 128), word->bytes);
	return *is_normal;
}

/* Answer the lines in the order of the ids, an id that was asked for twice
 * twice. */
static void reply_listing_of(struct redis_client *client,
			     const struct redis_request *request,
			     struct listing *listing)
{
	struct listing asked = {.is_broken = listing->is_broken};
	const struct line *line;
	struct line wanted = {0};
	int64_t id;
	uint32_t i;

	sort_lines(listing);
	for (i = 3; i < request->argc && listing->count; i++) {
		redis_integer_parse(request->argv[i].bytes,
				    request->argv[i].size, &id);
		wanted.id = (uint64_t)id;
		line = bsearch(&wanted, listing->lines, listing->count,
			       sizeof(wanted), compare_lines);
		if (line)
			copy_line(&asked, listing, line);
	}
	reply_text(client, &asked);
	listing_free(&asked);
}

static void list_ids(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request,
		     struct listing *listing)
{
	const uint32_t count = request->argc - 3;
	int64_t *ids = malloc(count * sizeof(*ids));
	uint32_t i;

	if (!ids) {
		redis_reply_error(&client->reply, "OOM out of memory");
		return;
	}
	for (i = 0; i < count; i++)
		if (!redis_integer_parse(request->argv[3 + i].bytes,
					 request->argv[3 + i].size, &ids[i])) {
			redis_reply_error(&client->reply,
					  "ERR Invalid client ID");
			free(ids);
			return;
		}
	qsort(ids, count, sizeof(*ids), compare_ids);
	listing->ids = ids;
	listing->id_count = count;
	redis_door_each(thread->door, thread, list_thread, listing);
	reply_listing_of(client, request, listing);
	free(ids);
}

static void client_list(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	struct listing listing = {.now_ns = thread->now_ns};
	bool is_normal = true;

	if (request->argc > 3 && redis_bytes_is(&request->argv[2], "id")) {
		list_ids(thread, client, request, &listing);
	} else if (request->argc != 2 &&
		   !(request->argc == 4 &&
		     redis_bytes_is(&request->argv[2], "type"))) {
		redis_reply_syntax(client);
	} else if (request->argc == 2 ||
		   parse_type(client, &request->argv[3], &is_normal)) {
		if (is_normal)
			redis_door_each(thread->door, thread, list_thread,
					&listing);
		reply_listing(client, &listing);
	}
	listing_free(&listing);
}

/* --- CLIENT KILL --- */

struct killing {
	struct redis_client *self;
	uint64_t id; /* 0: any */
	const struct redis_bytes *address, *local_address;
	bool is_nobody; /* a type that no client is of */
	bool skips_self;
	int64_t killed;
};

static bool is_same_text(const struct redis_bytes *bytes, const char *text)
{
	return strlen(text) == bytes->size &&
	       !memcmp(text, bytes->bytes, bytes->size);
}

static bool is_to_be_killed(const struct killing *killing,
			    const struct redis_client *client)
{
	if (killing->is_nobody || client->is_dead ||
	    (killing->skips_self && client == killing->self))
		return false;
	if (killing->id && client->id != killing->id)
		return false;
	if (killing->address &&
	    !is_same_text(killing->address, client->address))
		return false;
	return !killing->local_address ||
	       is_same_text(killing->local_address, client->local_address);
}

static int kill_in_thread(void *context, struct redis_thread *thread)
{
	struct redis_client *client = thread->clients;
	struct killing *killing = context;

	for (; client; client = client->next) {
		if (!is_to_be_killed(killing, client))
			continue;
		killing->killed++;
		/* A client that kills itself gets its answer first. */
		if (client == killing->self)
			client->close_after = true;
		else
			redis_door_kill(client);
	}
	return 0;
}

static bool parse_kill_id(struct redis_client *client,
			  const struct redis_bytes *value, uint64_t *out)
{
	int64_t id;

	if (!redis_integer_parse(value->bytes, value->size, &id) || id < 1) {
		redis_reply_error(&client->reply,
				  "ERR client-id should be greater than 0");
		return false;
	}
	*out = (uint64_t)id;
	return true;
}

/* Parse one option and its value. False: an error was answered. */
static bool parse_kill_option(struct redis_client *client,
			      const struct redis_bytes *option,
			      const struct redis_bytes *value,
			      struct killing *out)
{
	bool is_normal;

	if (redis_bytes_is(option, "id"))
		return parse_kill_id(client, value, &out->id);
	if (redis_bytes_is(option, "type")) {
		if (!parse_type(client, value, &is_normal))
			return false;
		out->is_nobody |= !is_normal;
	} else if (redis_bytes_is(option, "addr")) {
		out->address = value;
	} else if (redis_bytes_is(option, "laddr")) {
		out->local_address = value;
	} else if (redis_bytes_is(option, "user")) {
		if (!is_same_text(value, "default")) {
			redis_reply_errorf(
				&client->reply, "ERR No such user '%.*s'",
				redis_shown(value, 128), value->bytes);
			return false;
		}
	} else if (redis_bytes_is(option, "skipme") &&
		   (redis_bytes_is(value, "yes") ||
		    redis_bytes_is(value, "no"))) {
		out->skips_self = redis_bytes_is(value, "yes");
	} else {
		redis_reply_syntax(client);
		return false;
	}
	return true;
}

static void client_kill(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	struct killing killing = {.self = client, .skips_self = true};
	uint32_t i;

	if (request->argc == 3) {
		killing.address = &request->argv[2];
		killing.skips_self = false;
	}
	for (i = 2; request->argc > 3 && i < request->argc; i += 2) {
		if (i + 1 == request->argc) {
			redis_reply_syntax(client);
			return;
		}
		if (!parse_kill_option(client, &request->argv[i],
				       &request->argv[i + 1], &killing))
			return;
	}
	redis_door_each(thread->door, thread, kill_in_thread, &killing);
	if (request->argc > 3)
		redis_reply_integer(&client->reply, killing.killed);
	else if (killing.killed)
		redis_reply_status(&client->reply, "OK");
	else
		redis_reply_error(&client->reply, "ERR No such client");
}

static void client_help(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	static const char *const lines[] = {
		"GETNAME",
		"    What this connection is called.",
		"ID",
		"    The number of this connection.",
		"INFO",
		"    What is known of this connection.",
		"KILL <ip:port>",
		"    Close the connection from there.",
		"KILL <option> <value> [<option> <value> [...]]",
		"    Close connections. Options:",
		"    * ADDR (<ip:port>|<unixsocket>:0)",
		"      Those from there.",
		"    * LADDR (<ip:port>|<unixsocket>:0)",
		"      Those to there.",
		"    * ID <id>",
		"      The one of that number.",
		"    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
		"      Those of that type; all are normal here.",
		"    * USER <username>",
		"      Those of that user; all are `default` here.",
		"    * SKIPME (YES|NO)",
		"      Not this connection (default: yes).",
		"LIST [TYPE <type>|ID <id> [<id> ...]]",
		"    What is known of all connections, or of some.",
		"NO-EVICT (ON|OFF)",
		"    Close it last, if all have too much memory.",
		"NO-TOUCH (ON|OFF)",
		"    Commands of this connection do not count as use of keys.",
		"SETINFO (LIB-NAME|LIB-VER) <value>",
		"    Which library the client is.",
		"SETNAME <name>",
		"    What this connection shall be called.",
		NULL,
	};

	(void)thread;
	(void)request;
	redis_reply_help(client, lines);
}

#define ANYBODYS (REDIS_NOSCRIPT | REDIS_LOADING | REDIS_STALE)
#define OPERATORS (ANYBODYS | REDIS_ADMIN)

static struct redis_command subcommands[] = {
	REDIS_COMMAND("getname", 2, ANYBODYS, 0, 0, 0, client_getname),
	REDIS_COMMAND("help", 2, REDIS_LOADING | REDIS_STALE, 0, 0, 0,
		      client_help),
	REDIS_COMMAND("id", 2, ANYBODYS, 0, 0, 0, client_id),
	REDIS_COMMAND("info", 2, ANYBODYS, 0, 0, 0, client_info),
	REDIS_COMMAND("kill", -3, OPERATORS, 0, 0, 0, client_kill),
	REDIS_COMMAND("list", -2, OPERATORS, 0, 0, 0, client_list),
	REDIS_COMMAND("no-evict", 3, OPERATORS, 0, 0, 0, client_no_evict),
	REDIS_COMMAND("no-touch", 3, ANYBODYS, 0, 0, 0, client_no_touch),
	REDIS_COMMAND("setinfo", 4, ANYBODYS, 0, 0, 0, client_setinfo),
	REDIS_COMMAND("setname", 3, ANYBODYS, 0, 0, 0, client_setname),
	{0},
};

struct redis_command redis_client_commands[] = {
	{.name = "client", .arity = -2, .subcommands = subcommands},
	{0},
};
