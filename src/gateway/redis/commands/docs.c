/* docs.c - COMMAND: what commands there are, and how they are called. */
#include "gateway/redis/commands/docs.h"

#include "gateway/redis/commands/help.h"
#include "gateway/redis/commands/table.h"
#include "gateway/redis/protocol/glob.h"

#include <stdlib.h>
#include <string.h>

#define NAME_SIZE 64

/* With its parent's: "object|freq". */
static const char *full_name(const struct redis_command *command,
			     char name[NAME_SIZE])
{
	char *end = name;

	if (command->parent) {
		end = stpncpy(end, command->parent->name, NAME_SIZE / 2 - 1);
		*end++ = '|';
	}
	*stpncpy(end, command->name, NAME_SIZE / 2 - 1) = 0;
	return name;
}

/* NULL: it is none of Redis's, and not told of. */
static const struct redis_docs *docs_of(const struct redis_command *command)
{
	const struct redis_docs *docs = redis_docs;
	char name[NAME_SIZE];

	full_name(command, name);
	while (docs->name && strcmp(docs->name, name))
		docs++;
	return docs->name ? docs : NULL;
}

/* By its full name; NULL. */
static const struct redis_command *find(const struct redis_bytes *name)
{
	const char *bar = memchr(name->bytes, '|', name->size);
	size_t size = bar ? (size_t)(bar - name->bytes) : name->size;
	const struct redis_command *command =
		redis_command_find(name->bytes, size);

	if (command && bar)
		command = redis_subcommand_find(command, bar + 1,
						name->size - size - 1);
	return command && docs_of(command) ? command : NULL;
}

/* --- lists of words --- */

static uint32_t count_words(const char *words)
{
	uint32_t count = 0;

	for (; words && *words; words += strspn(words, " ")) {
		words += strcspn(words, " ");
		count++;
	}
	return count;
}

/* The next word, its size in *size; NULL: that was all. */
static const char *next_word(const char **at, size_t *size)
{
	const char *word = *at ? *at + strspn(*at, " ") : "";

	*size = strcspn(word, " ");
	*at = word + *size;
	return *size ? word : NULL;
}

static bool has_word(const char *words, const char *word)
{
	const char *found;
	size_t size;

	while ((found = next_word(&words, &size)))
		if (size == strlen(word) && !memcmp(found, word, size))
			return true;
	return false;
}

static void reply_text(struct redis_reply *reply, const char *text, size_t size)
{
	redis_reply_bulk(reply, text, size);
}

static void reply_status(struct redis_reply *reply, const char *text,
			 size_t size)
{
	char copy[NAME_SIZE] = {0};

	memcpy(copy, text, size < NAME_SIZE ? size : NAME_SIZE - 1);
	redis_reply_status(reply, copy);
}

/* --- flags and categories --- */

static const struct {
	uint32_t flag;
	const char *name;
} flag_names[] = {
	{REDIS_WRITE, "write"},
	{REDIS_READONLY, "readonly"},
	{REDIS_DENYOOM, "denyoom"},
	{REDIS_ADMIN, "admin"},
	{REDIS_NOSCRIPT, "noscript"},
	{REDIS_LOADING, "loading"},
	{REDIS_STALE, "stale"},
	{REDIS_SKIP_MONITOR, "skip_monitor"},
	{REDIS_SKIP_SLOWLOG, "skip_slowlog"},
	{REDIS_FAST, "fast"},
	{REDIS_NO_AUTH, "no_auth"},
	{REDIS_MAY_REPLICATE, "may_replicate"},
	{REDIS_NO_MANDATORY_KEYS, "no_mandatory_keys"},
	{REDIS_NO_ASYNC_LOADING, "no_async_loading"},
	{REDIS_NO_MULTI, "no_multi"},
	{REDIS_MOVABLE_KEYS, "movablekeys"},
	{REDIS_ALLOW_BUSY, "allow_busy"},
};
#define FLAG_NAMES (sizeof(flag_names) / sizeof(flag_names[0]))

static void reply_flags(struct redis_reply *reply, uint32_t flags)
{
	struct redis_mark mark = redis_reply_mark(reply);
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < FLAG_NAMES; i++)
		if (flags & flag_names[i].flag) {
			redis_reply_status(reply, flag_names[i].name);
			count++;
		}
	redis_reply_wrap(reply, mark, '~', count);
}

/* In Redis's order; 0: only where docs.h says so. */
static const struct {
	const char *name;
	uint32_t flag;
	bool is_without; /* of those without the flag */
} category_names[] = {
	{"keyspace", 0, false},	       {"read", REDIS_READONLY, false},
	{"write", REDIS_WRITE, false}, {"string", 0, false},
	{"admin", REDIS_ADMIN, false}, {"fast", REDIS_FAST, false},
	{"slow", REDIS_FAST, true},    {"dangerous", REDIS_ADMIN, false},
	{"connection", 0, false},      {"transaction", 0, false},
};
#define CATEGORY_NAMES (sizeof(category_names) / sizeof(category_names[0]))

static bool is_in_category(const struct redis_command *command,
			   const struct redis_docs *docs, size_t category)
{
	uint32_t flag = category_names[category].flag;

	if (has_word(docs->categories, category_names[category].name))
		return true;
	return flag && ((command->flags & flag) != 0) !=
			       category_names[category].is_without;
}

static void reply_categories(struct redis_reply *reply,
			     const struct redis_command *command,
			     const struct redis_docs *docs)
{
	struct redis_mark mark = redis_reply_mark(reply);
	char name[NAME_SIZE] = "@";
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < CATEGORY_NAMES; i++) {
		if (!is_in_category(command, docs, i))
			continue;
		strcpy(name + 1, category_names[i].name);
		redis_reply_status(reply, name);
		count++;
	}
	redis_reply_wrap(reply, mark, '~', count);
}

/* --- keys --- */

struct key_spec {
	const char *flags; /* words, of flags_size bytes */
	size_t flags_size;
	int index, last, step;
};

/* The next of docs->keys; false: that was all. */
static bool next_keys(const char **at, struct key_spec *spec)
{
	const char *numbers;
	char *end;

	if (!*at || !**at)
		return false;
	spec->flags = *at;
	numbers = spec->flags + strcspn(spec->flags, "0123456789");
	spec->flags_size = (size_t)(numbers - spec->flags) - 1;
	spec->index = (int)strtol(numbers, &end, 10);
	spec->last = (int)strtol(end + 1, &end, 10);
	spec->step = (int)strtol(end + 1, &end, 10);
	*at = end + strspn(end, "; ");
	return true;
}

/* without: a flag that is not told. */
static void reply_key_flags(struct redis_reply *reply,
			    const struct key_spec *spec)
{
	struct redis_mark mark = redis_reply_mark(reply);
	const char *at = spec->flags, *word;
	uint64_t count = 0;
	size_t size;

	while ((word = next_word(&at, &size)) &&
	       word < spec->flags + spec->flags_size) {
		reply_status(reply, word, size);
		count++;
	}
	redis_reply_wrap(reply, mark, '~', count);
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

static void reply_key_spec(struct redis_reply *reply,
			   const struct key_spec *spec, const char *note)
{
	redis_reply_map(reply, note ? 4 : 3);
	if (note)
		reply_named(reply, "notes", note);
	redis_reply_text(reply, "flags");
	reply_key_flags(reply, spec);
	redis_reply_text(reply, "begin_search");
	redis_reply_map(reply, 2);
	reply_named(reply, "type", "index");
	redis_reply_text(reply, "spec");
	redis_reply_map(reply, 1);
	reply_number(reply, "index", spec->index);
	redis_reply_text(reply, "find_keys");
	redis_reply_map(reply, 2);
	reply_named(reply, "type", "range");
	redis_reply_text(reply, "spec");
	redis_reply_map(reply, 3);
	reply_number(reply, "lastkey", spec->last);
	reply_number(reply, "keystep", spec->step);
	reply_number(reply, "limit", 0);
}

/* --- COMMAND, COMMAND INFO --- */

static void reply_info(struct redis_reply *reply,
		       const struct redis_command *command)
{
	const struct redis_docs *docs = docs_of(command);
	const struct redis_command *sub = command->subcommands;
	const char *at = docs->tips, *word;
	struct redis_mark mark;
	struct key_spec spec;
	char name[NAME_SIZE];
	uint64_t count = 0;
	size_t size;

	redis_reply_array(reply, 10);
	redis_reply_text(reply, full_name(command, name));
	redis_reply_integer(reply, command->arity);
	reply_flags(reply, command->flags);
	redis_reply_integer(reply, command->first_key);
	redis_reply_integer(reply, command->last_key);
	redis_reply_integer(reply, command->key_step);
	reply_categories(reply, command, docs);
	redis_reply_set(reply, count_words(docs->tips));
	while ((word = next_word(&at, &size)))
		reply_text(reply, word, size);
	mark = redis_reply_mark(reply);
	for (at = docs->keys; next_keys(&at, &spec); count++)
		reply_key_spec(reply, &spec, docs->keys_note);
	redis_reply_wrap(reply, mark, '~', count);
	mark = redis_reply_mark(reply);
	for (count = 0; sub && sub->name; sub++)
		if (docs_of(sub)) {
			reply_info(reply, sub);
			count++;
		}
	redis_reply_wrap(reply, mark, command->subcommands ? '*' : '~', count);
}

/* Of all commands, not their subcommands. */
static void reply_all(struct redis_reply *reply, char kind,
		      void (*each)(struct redis_reply *reply,
				   const struct redis_command *command))
{
	struct redis_mark mark = redis_reply_mark(reply);
	const struct redis_command *command;
	uint64_t count = 0;
	uint32_t i;

	for (i = 0; i < redis_command_count(); i++) {
		command = redis_command_by_index(i);
		if (!docs_of(command))
			continue;
		each(reply, command);
		count++;
	}
	redis_reply_wrap(reply, mark, kind, count);
}

static void run_command(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	(void)thread;
	(void)request;
	reply_all(&client->reply, '*', reply_info);
}

static void run_info(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	const struct redis_command *command;
	uint32_t i;

	(void)thread;
	if (request->argc == 2) {
		reply_all(&client->reply, '*', reply_info);
		return;
	}
	redis_reply_array(&client->reply, request->argc - 2);
	for (i = 2; i < request->argc; i++) {
		command = find(&request->argv[i]);
		if (command)
			reply_info(&client->reply, command);
		else
			redis_reply_null(&client->reply);
	}
}

static void run_count(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	int64_t count = 0;
	uint32_t i;

	(void)thread;
	(void)request;
	for (i = 0; i < redis_command_count(); i++)
		count += docs_of(redis_command_by_index(i)) != NULL;
	redis_reply_integer(&client->reply, count);
}

/* --- COMMAND DOCS --- */

static uint64_t reply_subcommand_docs(struct redis_reply *reply,
				      const struct redis_command *command);

/* A pair: its name, and a map of what there is to tell. */
static void reply_docs(struct redis_reply *reply,
		       const struct redis_command *command)
{
	const struct redis_docs *docs = docs_of(command);
	char name[NAME_SIZE];
	struct redis_mark mark;
	uint64_t count = 4;

	redis_reply_text(reply, full_name(command, name));
	mark = redis_reply_mark(reply);
	reply_named(reply, "summary", docs->summary);
	reply_named(reply, "since", docs->since);
	reply_named(reply, "group", docs->group);
	reply_named(reply, "complexity",
		    docs->complexity ? docs->complexity : "O(1)");
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
		redis_reply_arguments(reply, docs->arguments,
				      strlen(docs->arguments));
		count++;
	}
	count += reply_subcommand_docs(reply, command);
	redis_reply_wrap(reply, mark, '%', count);
}

static uint64_t reply_subcommand_docs(struct redis_reply *reply,
				      const struct redis_command *command)
{
	const struct redis_command *sub = command->subcommands;
	struct redis_mark mark;
	uint64_t count = 0;

	if (!sub)
		return 0;
	redis_reply_text(reply, "subcommands");
	mark = redis_reply_mark(reply);
	for (; sub->name; sub++)
		if (docs_of(sub)) {
			reply_docs(reply, sub);
			count++;
		}
	redis_reply_wrap(reply, mark, '%', count);
	return 1;
}

static void run_docs(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct redis_mark mark = redis_reply_mark(&client->reply);
	const struct redis_command *command;
	uint64_t count = 0;
	uint32_t i;

	(void)thread;
	if (request->argc == 2) {
		reply_all(&client->reply, '%', reply_docs);
		return;
	}
	for (i = 2; i < request->argc; i++) {
		command = find(&request->argv[i]);
		if (!command)
			continue;
		reply_docs(&client->reply, command);
		count++;
	}
	redis_reply_wrap(&client->reply, mark, '%', count);
}

/* --- COMMAND LIST --- */

enum filter { ALL, MODULE, CATEGORY, PATTERN };

static bool passes(const struct redis_command *command, enum filter filter,
		   const struct redis_bytes *value)
{
	const struct redis_docs *docs = docs_of(command);
	size_t i;

	if (filter == PATTERN)
		return redis_glob(value->bytes, value->size, docs->name,
				  strlen(docs->name), true);
	for (i = 0; filter == CATEGORY && i < CATEGORY_NAMES; i++)
		if (redis_bytes_is(value, category_names[i].name))
			return is_in_category(command, docs, i);
	return filter == ALL;
}

static void run_list(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct redis_mark mark = redis_reply_mark(&client->reply);
	const struct redis_bytes *argv = request->argv;
	const struct redis_command *command;
	enum filter filter = ALL;
	uint64_t count = 0;
	uint32_t i;

	(void)thread;
	if (request->argc == 5 && redis_bytes_is(&argv[2], "filterby")) {
		if (redis_bytes_is(&argv[3], "module"))
			filter = MODULE;
		else if (redis_bytes_is(&argv[3], "aclcat"))
			filter = CATEGORY;
		else if (redis_bytes_is(&argv[3], "pattern"))
			filter = PATTERN;
	}
	if (request->argc > 2 && filter == ALL) {
		redis_reply_syntax(client);
		return;
	}
	for (i = 0; i < redis_command_count_all(); i++) {
		command = redis_command_by_index(i);
		if (!docs_of(command) || !passes(command, filter, &argv[4]))
			continue;
		redis_reply_text(&client->reply, docs_of(command)->name);
		count++;
	}
	redis_reply_wrap(&client->reply, mark, '*', count);
}

/* --- COMMAND GETKEYS, GETKEYSANDFLAGS --- */

/* Whether SET reads depends on its options. */
static void mend_set(const struct redis_request *request, struct key_spec *spec)
{
	uint32_t i;

	spec->flags = "OW update 1";
	for (i = 3; i < request->argc; i++)
		if (redis_bytes_is(&request->argv[i], "get"))
			spec->flags = "RW access update 1";
	spec->flags_size = strlen(spec->flags) - 2;
}

/* Returns how many keys there are. */
static uint64_t reply_keys(struct redis_reply *reply,
			   const struct redis_command *command,
			   const struct redis_request *request, bool with_flags)
{
	const char *at = docs_of(command)->keys;
	struct key_spec spec;
	uint64_t count = 0;
	int i, last;

	while (next_keys(&at, &spec)) {
		if (!strcmp(command->name, "set"))
			mend_set(request, &spec);
		last = spec.last < 0 ? (int)request->argc + spec.last
				     : spec.index + spec.last;
		for (i = spec.index; i <= last && i < (int)request->argc;
		     i += spec.step, count++) {
			if (with_flags)
				redis_reply_array(reply, 2);
			redis_reply_bulk(reply, request->argv[i].bytes,
					 request->argv[i].size);
			if (with_flags)
				reply_key_flags(reply, &spec);
		}
	}
	return count;
}

static void get_keys(struct redis_client *client,
		     const struct redis_request *request, bool with_flags)
{
	const struct redis_request inner = {.argc = request->argc - 2,
					    .argv = request->argv + 2};
	struct redis_mark mark = redis_reply_mark(&client->reply);
	const struct redis_command *command = find(&inner.argv[0]);

	if (command && command->subcommands)
		command = redis_subcommand_find(command, inner.argv[1].bytes,
						inner.argv[1].size);
	if (!command || !docs_of(command))
		redis_reply_error(&client->reply,
				  "ERR Invalid command specified");
	else if (!docs_of(command)->keys)
		redis_reply_error(&client->reply,
				  "ERR The command has no key arguments");
	else if (command->arity < 0 ? inner.argc < (uint32_t)-command->arity
				    : inner.argc != (uint32_t)command->arity)
		redis_reply_error(&client->reply,
				  "ERR Invalid number of arguments specified "
				  "for command");
	else
		redis_reply_wrap(&client->reply, mark, '*',
				 reply_keys(&client->reply, command, &inner,
					    with_flags));
}

static void run_getkeys(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	(void)thread;
	get_keys(client, request, false);
}

static void run_getkeysandflags(struct redis_thread *thread,
				struct redis_client *client,
				const struct redis_request *request)
{
	(void)thread;
	get_keys(client, request, true);
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
	REDIS_COMMAND("getkeysandflags", -4, FLAGS, 0, 0, 0,
		      run_getkeysandflags),
	REDIS_COMMAND("help", 2, FLAGS, 0, 0, 0, run_help),
	REDIS_COMMAND("info", -2, FLAGS, 0, 0, 0, run_info),
	REDIS_COMMAND("list", -2, FLAGS, 0, 0, 0, run_list),
	{0},
};

struct redis_command redis_docs_commands[] = {
	{.name = "command",
	 .arity = -1,
	 .flags = FLAGS,
	 .run = run_command,
	 .subcommands = subcommands},
	{0},
};
