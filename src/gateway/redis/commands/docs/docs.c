/* docs.c - COMMAND: what commands there are, and how they are called. */
#include "gateway/redis/commands/docs/docs.h"

#include "gateway/redis/commands/docs/help.h"
#include "gateway/redis/commands/table.h"
#include "gateway/redis/protocol/glob.h"

#include <stdio.h>

#define TEXT_SIZE 64

typedef void reply_row(struct redis_reply *reply,
		       const struct redis_docs *docs);

/* Find a row by its full name, "object|freq"; NULL: there is none. */
static const struct redis_docs *find_docs(const struct redis_bytes *name)
{
	const struct redis_docs *docs = redis_docs;

	while (docs->name && !redis_bytes_is(name, docs->name))
		docs++;
	return docs->name ? docs : NULL;
}

static const struct redis_command *command_of(const struct redis_docs *docs)
{
	const size_t size = strcspn(docs->name, "|");
	const struct redis_command *command =
		redis_command_find(docs->name, size);
	const char *sub = docs->name + size + 1;

	return docs->name[size]
		       ? redis_subcommand_find(command, sub, strlen(sub))
		       : command;
}

/* True if a row is a subcommand of `parent`; NULL: if it is no subcommand. */
static bool is_child(const struct redis_docs *docs, const char *parent)
{
	const size_t size = strcspn(docs->name, "|");

	return parent ? docs->name[size] && strlen(parent) == size &&
				!memcmp(docs->name, parent, size)
		      : !docs->name[size];
}

/* Answer the subcommands of a command (NULL: all commands), a row each. */
static void reply_rows(struct redis_reply *reply, char kind, const char *parent,
		       reply_row *each)
{
	struct redis_mark mark = redis_reply_mark(reply);
	const struct redis_docs *docs;
	uint64_t count = 0;

	for (docs = redis_docs; docs->name; docs++)
		if (is_child(docs, parent)) {
			each(reply, docs);
			count++;
		}
	redis_reply_wrap(reply, mark, kind, count);
}

/* --- words, flags, categories --- */

/* The next word of those that end at NUL or `;`, as it is to be answered (tips
 * in docs.h); false: that was all. */
static bool next_word(const char **at, char text[TEXT_SIZE])
{
	const char *word = *at ? *at + strspn(*at, " ") : "", *prefix = "";
	const size_t size = strcspn(word, " ;");

	if (!size)
		return false;
	*at = word + size;
	if (*word == '>')
		prefix = "request_policy:";
	else if (*word == '<')
		prefix = "response_policy:";
	else if (*word == '~')
		prefix = "nondeterministic_output";
	snprintf(text, TEXT_SIZE, "%s%.*s", prefix, (int)(size - !!*prefix),
		 word + !!*prefix);
	return true;
}

static void reply_words(struct redis_reply *reply, const char *words,
			void (*each)(struct redis_reply *, const char *))
{
	struct redis_mark mark = redis_reply_mark(reply);
	char text[TEXT_SIZE];
	uint64_t count = 0;

	for (; next_word(&words, text); count++)
		each(reply, text);
	redis_reply_wrap(reply, mark, '~', count);
}

static void reply_flags(struct redis_reply *reply, uint32_t flags)
{
	/* In the order of enum redis_command_flags. */
	const char *names =
		"write readonly denyoom admin noscript loading stale "
		"skip_monitor skip_slowlog fast no_auth may_replicate "
		"no_mandatory_keys no_async_loading no_multi movablekeys "
		"allow_busy";
	struct redis_mark mark = redis_reply_mark(reply);
	char text[TEXT_SIZE];
	uint64_t count = 0;

	for (; next_word(&names, text); flags >>= 1)
		if (flags & 1) {
			redis_reply_status(reply, text);
			count++;
		}
	redis_reply_wrap(reply, mark, '~', count);
}

/* Categories in Redis's order, each with the flag or the group whose commands
 * are in it; slow is what is not fast. */
static const struct {
	const char *name; /* with the @ */
	uint32_t flag;
	const char *group;
} categories[] = {
	{"@keyspace", 0, "generic"},
	{"@read", REDIS_READONLY, NULL},
	{"@write", REDIS_WRITE, NULL},
	{"@string", 0, "string"},
	{"@admin", REDIS_ADMIN, NULL},
	{"@fast", REDIS_FAST, NULL},
	{"@slow", 0, NULL},
	{"@dangerous", REDIS_ADMIN, NULL},
	{"@connection", 0, "connection"},
	{"@transaction", 0, "transactions"},
};
#define CATEGORIES (sizeof(categories) / sizeof(categories[0]))

static bool is_in_category(const struct redis_docs *docs, size_t i)
{
	const struct redis_command *command = command_of(docs);
	const char *name = categories[i].name + 1, *also = docs->also;
	char text[TEXT_SIZE];

	while (next_word(&also, text))
		if (!strcmp(text, name))
			return true;
	if (!strcmp(name, "slow"))
		return !(command->flags & REDIS_FAST);
	if (categories[i].group)
		return command->run &&
		       !strcmp(docs->group, categories[i].group);
	return command->flags & categories[i].flag;
}

static void reply_categories(struct redis_reply *reply,
			     const struct redis_docs *docs)
{
	struct redis_mark mark = redis_reply_mark(reply);
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < CATEGORIES; i++)
		if (is_in_category(docs, i)) {
			redis_reply_status(reply, categories[i].name);
			count++;
		}
	redis_reply_wrap(reply, mark, '~', count);
}

/* --- keys --- */

/* A group of keys: what is done with them, and where they are. */
struct key_spec {
	const char *flags;     /* words, up to NUL or `;` */
	int index, last, step; /* last: from index on, negative: from the end */
};

/* The next group of a command; false: that was all. Zero *spec at first. */
static bool next_keys(const struct redis_docs *docs, struct key_spec *spec)
{
	const struct redis_command *command = command_of(docs);
	const char *next = spec->flags ? strchr(spec->flags, ';') : docs->keys;

	if (!next)
		return false;
	spec->index = spec->flags ? spec->index + 1 : command->first_key;
	spec->flags = next + (*next == ';');
	spec->step = command->key_step;
	/* Of several groups each is one key. */
	spec->last = strchr(docs->keys, ';') ? 0
		     : command->last_key < 0 ? command->last_key
					     : command->last_key - spec->index;
	return true;
}

static void reply_number(struct redis_reply *reply, const char *name, int value)
{
	redis_reply_text(reply, name);
	redis_reply_integer(reply, value);
}

static void reply_named(struct redis_reply *reply, const char *name,
			const char *text)
{
	redis_reply_text(reply, name);
	redis_reply_text(reply, text);
}

/* Begin how something is searched for: its type and `count` numbers. */
static void reply_search(struct redis_reply *reply, const char *name,
			 const char *type, uint64_t count)
{
	redis_reply_text(reply, name);
	redis_reply_map(reply, 2);
	reply_named(reply, "type", type);
	redis_reply_text(reply, "spec");
	redis_reply_map(reply, count);
}

static void reply_key_specs(struct redis_reply *reply,
			    const struct redis_docs *docs)
{
	struct redis_mark mark = redis_reply_mark(reply);
	struct key_spec spec = {0};
	uint64_t count = 0;

	for (; next_keys(docs, &spec); count++) {
		redis_reply_map(reply, docs->keys_note ? 4 : 3);
		if (docs->keys_note)
			reply_named(reply, "notes", docs->keys_note);
		redis_reply_text(reply, "flags");
		reply_words(reply, spec.flags, redis_reply_status);
		reply_search(reply, "begin_search", "index", 1);
		reply_number(reply, "index", spec.index);
		reply_search(reply, "find_keys", "range", 3);
		reply_number(reply, "lastkey", spec.last);
		reply_number(reply, "keystep", spec.step);
		reply_number(reply, "limit", 0);
	}
	redis_reply_wrap(reply, mark, '~', count);
}

/* --- COMMAND, COMMAND INFO, COMMAND COUNT, COMMAND DOCS --- */

static void reply_info(struct redis_reply *reply, const struct redis_docs *docs)
{
	const struct redis_command *command = command_of(docs);

	redis_reply_array(reply, 10);
	redis_reply_text(reply, docs->name);
	redis_reply_integer(reply, command->arity);
	reply_flags(reply, command->flags);
	redis_reply_integer(reply, command->first_key);
	redis_reply_integer(reply, command->last_key);
	redis_reply_integer(reply, command->key_step);
	reply_categories(reply, docs);
	reply_words(reply, docs->tips, redis_reply_text);
	reply_key_specs(reply, docs);
	reply_rows(reply, command->subcommands ? '*' : '~', docs->name,
		   reply_info);
}

static void run_info(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	const struct redis_docs *docs;
	uint32_t i;

	(void)thread;
	if (request->argc <= 2) {
		reply_rows(&client->reply, '*', NULL, reply_info);
		return;
	}
	redis_reply_array(&client->reply, request->argc - 2);
	for (i = 2; i < request->argc; i++) {
		docs = find_docs(&request->argv[i]);
		if (docs)
			reply_info(&client->reply, docs);
		else
			redis_reply_null(&client->reply);
	}
}

static void run_count(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	const struct redis_docs *docs;
	int64_t count = 0;

	(void)thread;
	(void)request;
	for (docs = redis_docs; docs->name; docs++)
		count += is_child(docs, NULL);
	redis_reply_integer(&client->reply, count);
}

/* A pair: its name, and a map of what there is to tell. */
static void reply_docs(struct redis_reply *reply, const struct redis_docs *docs)
{
	struct redis_mark mark;
	uint64_t count = 3;

	redis_reply_text(reply, docs->name);
	mark = redis_reply_mark(reply);
	reply_named(reply, "summary", docs->summary);
	reply_named(reply, "since", docs->since);
	reply_named(reply, "group", docs->group);
	if (docs->deprecated) {
		redis_reply_text(reply, "doc_flags");
		redis_reply_set(reply, 1);
		redis_reply_status(reply, "deprecated");
		reply_named(reply, "deprecated_since", docs->deprecated);
		reply_named(reply, "replaced_by", docs->replaced_by);
		count += 3;
	}
	if (docs->arguments) {
		redis_reply_text(reply, "arguments");
		redis_reply_arguments(reply, docs->arguments);
		count++;
	}
	if (command_of(docs)->subcommands) {
		redis_reply_text(reply, "subcommands");
		reply_rows(reply, '%', docs->name, reply_docs);
		count++;
	}
	redis_reply_wrap(reply, mark, '%', count);
}

static void run_docs(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct redis_mark mark = redis_reply_mark(&client->reply);
	const struct redis_docs *docs;
	uint64_t count = 0;
	uint32_t i;

	(void)thread;
	if (request->argc == 2) {
		reply_rows(&client->reply, '%', NULL, reply_docs);
		return;
	}
	for (i = 2; i < request->argc; i++) {
		docs = find_docs(&request->argv[i]);
		if (!docs)
			continue;
		reply_docs(&client->reply, docs);
		count++;
	}
	redis_reply_wrap(&client->reply, mark, '%', count);
}

/* --- COMMAND LIST --- */

/* True if a command passes the filter that was asked for; there are no
 * modules. */
static bool passes_filter(const struct redis_docs *docs,
			  const struct redis_request *request)
{
	const struct redis_bytes *filter = &request->argv[3];
	const struct redis_bytes *value = &request->argv[4];
	size_t i;

	if (request->argc == 2)
		return true;
	if (redis_bytes_is(filter, "pattern"))
		return redis_glob(value->bytes, value->size, docs->name,
				  strlen(docs->name), true);
	for (i = 0; redis_bytes_is(filter, "aclcat") && i < CATEGORIES; i++)
		if (redis_bytes_is(value, categories[i].name + 1))
			return is_in_category(docs, i);
	return false;
}

static void run_list(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct redis_mark mark = redis_reply_mark(&client->reply);
	const struct redis_bytes *argv = request->argv;
	const struct redis_docs *docs;
	uint64_t count = 0;

	(void)thread;
	if (request->argc != 2 &&
	    (request->argc != 5 || !redis_bytes_is(&argv[2], "filterby") ||
	     (!redis_bytes_is(&argv[3], "module") &&
	      !redis_bytes_is(&argv[3], "aclcat") &&
	      !redis_bytes_is(&argv[3], "pattern")))) {
		redis_reply_syntax(client);
		return;
	}
	for (docs = redis_docs; docs->name; docs++)
		if (passes_filter(docs, request)) {
			redis_reply_text(&client->reply, docs->name);
			count++;
		}
	redis_reply_wrap(&client->reply, mark, '*', count);
}

/* --- COMMAND GETKEYS, GETKEYSANDFLAGS --- */

/* What SET does with its key depends on its options. */
static const char *flags_of_set(const struct redis_request *request)
{
	uint32_t i;

	for (i = 3; i < request->argc; i++)
		if (redis_bytes_is(&request->argv[i], "get"))
			return "RW access update";
	return "OW update";
}

/* Answer the keys of a request; returns how many there are. */
static uint64_t reply_keys(struct redis_reply *reply,
			   const struct redis_docs *docs,
			   const struct redis_request *request, bool with_flags)
{
	struct key_spec spec = {0};
	uint64_t count = 0;
	int i, last;

	while (next_keys(docs, &spec)) {
		if (!strcmp(docs->name, "set"))
			spec.flags = flags_of_set(request);
		last = spec.last < 0 ? (int)request->argc + spec.last
				     : spec.index + spec.last;
		for (i = spec.index; i <= last && i < (int)request->argc;
		     i += spec.step, count++) {
			if (with_flags)
				redis_reply_array(reply, 2);
			redis_reply_bulk(reply, request->argv[i].bytes,
					 request->argv[i].size);
			if (with_flags)
				reply_words(reply, spec.flags,
					    redis_reply_status);
		}
	}
	return count;
}

/* The row of the command that a request would run; NULL: none. */
static const struct redis_docs *docs_of(const struct redis_request *request)
{
	const struct redis_docs *docs = find_docs(&request->argv[0]);
	struct redis_bytes name;
	char text[TEXT_SIZE];

	if (!docs || !command_of(docs)->subcommands)
		return docs;
	name.bytes = text;
	name.size = (size_t)snprintf(text, sizeof(text), "%s|%.*s", docs->name,
				     redis_shown(&request->argv[1], TEXT_SIZE),
				     request->argv[1].bytes);
	return name.size < sizeof(text) ? find_docs(&name) : NULL;
}

static void run_getkeys(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	const bool with_flags = request->argv[1].size > strlen("getkeys");
	const struct redis_request inner = {.argc = request->argc - 2,
					    .argv = request->argv + 2};
	struct redis_mark mark = redis_reply_mark(&client->reply);
	const struct redis_docs *docs = docs_of(&inner);

	(void)thread;
	if (!docs)
		redis_reply_error(&client->reply,
				  "ERR Invalid command specified");
	else if (!docs->keys)
		redis_reply_error(&client->reply,
				  "ERR The command has no key arguments");
	else if (!redis_has_arity(command_of(docs), inner.argc))
		redis_reply_error(&client->reply,
				  "ERR Invalid number of arguments specified "
				  "for command");
	else
		redis_reply_wrap(
			&client->reply, mark, '*',
			reply_keys(&client->reply, docs, &inner, with_flags));
}

static void run_help(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	static const char *const lines[] = {
		"(no subcommand)",
		"    Arity, flags and keys of all commands.",
		"COUNT",
		"    How many commands there are.",
		"DOCS [<command-name> ...]",
		"    What commands are for, and their arguments.",
		"GETKEYS <full-command>",
		"    The keys among the arguments of a command.",
		"GETKEYSANDFLAGS <full-command>",
		"    The same, and what the command does with each.",
		"INFO [<command-name> ...]",
		"    Arity, flags and keys of commands.",
		"LIST [FILTERBY MODULE|ACLCAT|PATTERN <value>]",
		"    The names of commands.",
		NULL,
	};

	(void)thread;
	(void)request;
	redis_reply_help(client, lines);
}

#define FLAGS (REDIS_LOADING | REDIS_STALE)

static struct redis_command subcommands[] = {
	REDIS_COMMAND("count", 2, FLAGS, 0, 0, 0, run_count),
	REDIS_COMMAND("docs", -2, FLAGS, 0, 0, 0, run_docs),
	REDIS_COMMAND("getkeys", -4, FLAGS, 0, 0, 0, run_getkeys),
	REDIS_COMMAND("getkeysandflags", -4, FLAGS, 0, 0, 0, run_getkeys),
	REDIS_COMMAND("help", 2, FLAGS, 0, 0, 0, run_help),
	REDIS_COMMAND("info", -2, FLAGS, 0, 0, 0, run_info),
	REDIS_COMMAND("list", -2, FLAGS, 0, 0, 0, run_list),
	{0},
};

struct redis_command redis_docs_commands[] = {
	{.name = "command",
	 .arity = -1,
	 .flags = FLAGS,
	 .run = run_info,
	 .subcommands = subcommands},
	{0},
};
