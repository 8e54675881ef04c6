/* log.c - `reef log`: the logs of a space, from the shell. */
#include "cmd/hold.h"
#include "cmd/json.h"

#include <errno.h>
#include <reef/fiber.h>
#include <reef/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: reef log list SPACE [--json]\n"
	"       reef log create SPACE LOG [--keep COUNT] [--keep-size SIZE]\n"
	"       reef log append SPACE LOG [TEXT]\n"
	"       reef log read SPACE LOG [FROM [COUNT]] [--json]\n"
	"       reef log tail SPACE LOG [-f] [-n COUNT] [--json]\n"
	"       reef log trim SPACE LOG POSITION\n"
	"       reef log seal SPACE LOG\n"
	"       reef log stats SPACE LOG [--json]\n"
	"       reef log drop SPACE LOG\n\n"
	"Logs in the memory of the pool: one order for what many append. "
	"`append`\n"
	"makes the log if there is none, and appends the lines of standard "
	"input, as\n"
	"they come, if TEXT is left out. `read` and `tail` print entries, a "
	"line each;\n"
	"`tail -f` goes on with what comes, until the log is sealed.\n";

#define READ_MOST 64u
#define LAST 10u /* entries that `tail` prints */

struct wish {
	const char *words[5]; /* VERB SPACE LOG ... */
	uint32_t count;
	const char *keep, *keep_size, *last;
	bool json, follow;
};

/* Parse a number. 0, or 2: an error was printed. */
static int parse_number(const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-')
		return cmd_usage_error("log", "\"%.40s\" is not a number",
				       text);
	return 0;
}

/* --- appending --- */

static int append_text(struct reef_log *log, const char *text, size_t size)
{
	int rc = reef_log_append(log, text, size, NULL);

	if (rc == -EMSGSIZE)
		return operate_say("log",
				   "an entry of %zu bytes is longer "
				   "than this log takes",
				   size);
	if (rc == -ESHUTDOWN)
		return operate_say("log", "the log is sealed");
	if (rc == -EPERM)
		return operate_say("log", "the log has a writer of its own");
	return rc;
}

static int append_lines(struct reef_log *log)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t size;
	int rc = 0;

	while (!rc && (size = getline(&line, &room, stdin)) >= 0) {
		if (size && line[size - 1] == '\n')
			size--;
		operate_tell_waiting("log");
		rc = append_text(log, line, (size_t)size);
		operate_tell_waiting(NULL);
	}
	free(line);
	if (!rc && ferror(stdin))
		rc = operate_say("log", "cannot read the lines");
	return rc;
}

static int append_entries(struct reef_log *log, const struct wish *wish)
{
	const char *text = wish->words[3];

	return text ? append_text(log, text, strlen(text)) : append_lines(log);
}

/* --- reading --- */

struct printing {
	bool json;
	uint64_t skip; /* entries that are not printed */
	uint64_t count;
};

static int print_entry(void *context, uint64_t position, const void *bytes,
		       size_t size)
{
	struct printing *printing = context;
	struct reef_json json = {.stream = stdout};

	if (printing->count++ < printing->skip)
		return 0;
	if (!printing->json) {
		fwrite(bytes, 1, size, stdout);
		putchar('\n');
		return 0;
	}
	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_number(&json, "position", position);
	reef_json_bytes(&json, "text", bytes, size);
	reef_json_end(&json);
	return 0;
}

static int count_entry(void *context, uint64_t position, const void *bytes,
		       size_t size)
{
	uint64_t *count = context;

	(void)position;
	(void)bytes;
	(void)size;
	++*count;
	return 0;
}

/* Read on behind what cannot be read, which is said. */
static int pass_damage(int rc, uint64_t from, uint64_t next)
{
	if (rc != -REEF_ELOST && rc != -REEF_ECORRUPT)
		return rc;
	(void)operate_say("log", "positions %llu to %llu: %s",
			  (unsigned long long)from,
			  (unsigned long long)next - 1, reef_error_text(rc));
	return 0;
}

/* Give up to `most` entries from *at on, and at most up to position `end`, to
 * `each`. */
static int read_up_to(struct reef_log *log, uint64_t *at, uint64_t end,
		      uint64_t most, uint64_t *count,
		      int (*each)(void *, uint64_t, const void *, size_t),
		      void *context)
{
	uint64_t from, before = *count;
	uint64_t part;
	int rc = 0;

	while (!rc && *at < end && *count - before < most) {
		from = *at;
		part = most - (*count - before);
		rc = reef_log_read(log, from,
				   part < READ_MOST ? (uint32_t)part
						    : READ_MOST,
				   each, context, at);
		rc = pass_damage(rc, from, *at);
		if (*at == from)
			break;
	}
	return rc;
}

static int read_entries(struct reef_log *log, const struct wish *wish)
{
	struct printing printing = {.json = wish->json};
	uint64_t at, most = UINT64_MAX;
	int rc = reef_log_first(log, &at);

	if (!rc && wish->words[3])
		rc = parse_number(wish->words[3], &at);
	if (!rc && wish->words[4])
		rc = parse_number(wish->words[4], &most);
	if (!rc)
		rc = read_up_to(log, &at, UINT64_MAX, most, &printing.count,
				print_entry, &printing);
	return rc == -ERANGE ? operate_say("log", "position %s was trimmed",
					   wish->words[3])
			     : rc;
}

/* Print what comes, until the log is sealed. */
static int follow(struct reef_log *log, uint64_t at, struct printing *printing)
{
	int rc = 0;

	while (!rc) {
		if (cmd_flush())
			return 1;
		rc = reef_log_wait(log, at, REEF_FOREVER);
		if (!rc)
			rc = read_up_to(log, &at, UINT64_MAX, READ_MOST,
					&printing->count, print_entry,
					printing);
		/* Others trim faster than this one reads. */
		if (rc == -ERANGE)
			rc = reef_log_first(log, &at);
	}
	return rc == -ESHUTDOWN ? 0 : rc;
}

/* Find how far back the last `last` entries begin: twice as far each time, as
 * holes are no entries. *skip: how many of those that are read from there on
 * are too many. */
static int find_last(struct reef_log *log, uint64_t last, uint64_t tail,
		     uint64_t *from, uint64_t *skip)
{
	uint64_t first, back = last, count = 0, at;
	int rc = reef_log_first(log, &first);

	while (!rc) {
		*from = tail - first > back ? tail - back : first;
		at = *from;
		count = 0;
		rc = read_up_to(log, &at, tail, UINT64_MAX, &count, count_entry,
				&count);
		if (rc || count >= last || *from == first)
			break;
		back *= 2;
	}
	*skip = count > last ? count - last : 0;
	return rc;
}

static int print_tail(struct reef_log *log, const struct wish *wish)
{
	struct printing printing = {.json = wish->json};
	uint64_t tail, from = 0, last = LAST;
	int rc = reef_log_tail(log, &tail);

	if (!rc && wish->last)
		rc = parse_number(wish->last, &last);
	if (!rc)
		rc = find_last(log, last, tail, &from, &printing.skip);
	if (!rc)
		rc = read_up_to(log, &from, tail, UINT64_MAX, &printing.count,
				print_entry, &printing);
	if (!rc && wish->follow)
		rc = follow(log, from, &printing);
	return rc;
}

/* --- whole logs --- */

static int trim_log(struct reef_log *log, const struct wish *wish)
{
	uint64_t position;
	int rc = parse_number(wish->words[3], &position);

	if (!rc)
		rc = reef_log_trim(log, position);
	return rc == -ERANGE
		       ? operate_say("log", "position %s is beyond the tail",
				     wish->words[3])
		       : rc;
}

static int seal_log(struct reef_log *log, const struct wish *wish)
{
	(void)wish;
	return reef_log_seal(log);
}

static void print_json(const char *name, const struct reef_log_stats *stats)
{
	struct reef_json json = {.stream = stdout};

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "log", name);
	reef_json_number(&json, "first", stats->first);
	reef_json_number(&json, "tail", stats->tail);
	reef_json_number(&json, "segments", stats->segments);
	reef_json_number(&json, "generation", stats->generation);
	reef_json_bool(&json, "sealed", stats->sealed);
	reef_json_number(&json, "hole_ns", stats->hole_ns);
	reef_json_bool(&json, "single", stats->options.flags & REEF_LOG_SINGLE);
	reef_json_number(&json, "entry_max", stats->options.entry_max);
	reef_json_number(&json, "cell", stats->options.cell);
	reef_json_number(&json, "segment", stats->options.segment);
	reef_json_number(&json, "segments_max", stats->options.segments);
	reef_json_number(&json, "keep_entries", stats->options.keep_entries);
	reef_json_number(&json, "keep_bytes", stats->options.keep_bytes);
	reef_json_end(&json);
}

static int print_stats(struct reef_log *log, const struct wish *wish)
{
	struct reef_log_stats found;
	char text[16];
	int rc = reef_log_stats(log, &found);

	if (rc)
		return rc;
	if (wish->json) {
		print_json(wish->words[2], &found);
		return 0;
	}
	printf("first         %llu\n", (unsigned long long)found.first);
	printf("tail          %llu%s\n", (unsigned long long)found.tail,
	       found.sealed ? ", sealed" : "");
	printf("segments      %u of %u, of %u positions\n", found.segments,
	       found.options.segments, found.options.segment);
	printf("generation    %u\n", found.generation);
	printf("writers       %s\n",
	       found.options.flags & REEF_LOG_SINGLE ? "one" : "many");
	if (found.options.keep_entries)
		printf("keeps         %llu positions\n",
		       (unsigned long long)found.options.keep_entries);
	if (found.options.keep_bytes)
		printf("keeps         %s\n",
		       reef_table_bytes(found.options.keep_bytes, text));
	printf("longest entry %s\n",
	       reef_table_bytes(found.options.entry_max, text));
	return 0;
}

struct list {
	struct reef_space *space;
	struct reef_table *table; /* NULL: JSON */
};

/* List a name of the space if it is a log; names of other things, and logs that
 * are lost, are passed over. */
static int list_if_log(void *context, const char *name)
{
	const struct reef_log_options options = {.flags = REEF_LOG_EXISTING};
	struct list *list = context;
	struct reef_log_stats found;
	struct reef_log *log;
	int rc = reef_log_open(list->space, name, &options, &log);

	if (rc == -EEXIST || rc == -ENOENT || rc == -REEF_ELOST ||
	    rc == -REEF_EVERSION || rc == -EFAULT)
		return 0;
	if (rc)
		return rc;
	rc = reef_log_stats(log, &found);
	reef_log_close(log);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	if (!list->table) {
		print_json(name, &found);
		return 0;
	}
	reef_table_cell(list->table, "%s", name);
	reef_table_cell(list->table, "%llu", (unsigned long long)found.first);
	reef_table_cell(list->table, "%llu", (unsigned long long)found.tail);
	reef_table_cell(list->table, "%u", found.segments);
	reef_table_cell(list->table, "%s", found.sealed ? "sealed" : "open");
	reef_table_end_row(list->table);
	return 0;
}

static int list_logs(struct reef_space *space, const struct wish *wish)
{
	struct list view = {.space = space};
	int rc;

	if (!wish->json)
		view.table =
			operate_table("<log|>first|>tail|>segments|<state");
	rc = hold_each_name(space, list_if_log, &view);
	if (!rc && view.table)
		rc = reef_table_print(view.table, stdout);
	reef_table_destroy(view.table);
	return rc;
}

/* --- verbs --- */

enum option { KEEP = 1, KEEP_SIZE = 2, LAST_COUNT = 4, JSON = 8, FOLLOW = 16 };

static int do_nothing(struct reef_log *log, const struct wish *wish)
{
	(void)log;
	(void)wish;
	return 0;
}

static const struct verb_form {
	const char *name, *takes;
	uint32_t least, most; /* words, with the verb */
	uint32_t options;     /* that it takes */
	bool makes;	      /* make the log if there is none */
	int (*run)(struct reef_log *log, const struct wish *wish);
} verbs[] = {
	{"list", "SPACE", 2, 2, JSON, false, NULL},
	{"create", "SPACE LOG", 3, 3, KEEP | KEEP_SIZE, true, do_nothing},
	{"append", "SPACE LOG [TEXT]", 3, 4, 0, true, append_entries},
	{"read", "SPACE LOG [FROM [COUNT]]", 3, 5, JSON, false, read_entries},
	{"tail", "SPACE LOG", 3, 3, JSON | LAST_COUNT | FOLLOW, false,
	 print_tail},
	{"trim", "SPACE LOG POSITION", 4, 4, 0, false, trim_log},
	{"seal", "SPACE LOG", 3, 3, 0, false, seal_log},
	{"stats", "SPACE LOG", 3, 3, JSON, false, print_stats},
	{"drop", "SPACE LOG", 3, 3, 0, false, NULL},
	{0},
};

static const struct verb_form *verb_of(const struct wish *wish)
{
	const struct verb_form *verb = verbs;

	while (verb->name && strcmp(verb->name, wish->words[0]) != 0)
		verb++;
	return verb->name ? verb : NULL;
}

/* Check the words. -1: they are a verb and what it takes; otherwise the exit
 * status. */
static int check_words(const struct wish *wish)
{
	const struct verb_form *verb;
	uint32_t given = (wish->keep ? KEEP : 0) |
			 (wish->keep_size ? KEEP_SIZE : 0) |
			 (wish->last ? LAST_COUNT : 0) |
			 (wish->json ? JSON : 0) | (wish->follow ? FOLLOW : 0);

	if (!wish->count)
		return cmd_usage_error("log", "a verb is missing: list, "
					      "create, append, read, tail, "
					      "trim, seal, stats or drop");
	verb = verb_of(wish);
	if (!verb)
		return cmd_usage_error("log", "there is no `reef log %.40s`",
				       wish->words[0]);
	if (wish->count < verb->least || wish->count > verb->most)
		return cmd_usage_error("log", "%s takes %s", verb->name,
				       verb->takes);
	if (given & ~verb->options)
		return cmd_usage_error("log", "%s does not take that option",
				       verb->name);
	return -1;
}

static int report_error(const struct wish *wish, int rc)
{
	if (rc >= 0)
		return rc;
	if (rc == -EEXIST)
		return operate_say("log", "\"%.80s\" is not a log",
				   wish->words[2]);
	if (rc == -EINVAL && wish->words[2])
		return operate_say("log", "\"%.80s\" is not a name for a log",
				   wish->words[2]);
	if (rc == -REEF_ELOST && wish->words[2])
		return operate_say("log",
				   "%.80s: the node that lent its memory died, "
				   "or was started anew; `reef log drop` "
				   "forgets it",
				   wish->words[2]);
	return operate_failed(
		"log", wish->words[2] ? wish->words[2] : wish->words[1], rc);
}

static int run_verb(struct reef_space *space, const struct wish *wish)
{
	const struct verb_form *verb = verb_of(wish);
	struct reef_log_options options = {0};
	struct reef_log *log = NULL;
	int rc;

	if (!strcmp(verb->name, "list"))
		return report_error(wish, list_logs(space, wish));
	if (wish->keep && parse_number(wish->keep, &options.keep_entries))
		return 2;
	if (wish->keep_size &&
	    operate_size("log", wish->keep_size, &options.keep_bytes))
		return 1;
	if (!verb->makes)
		options.flags = REEF_LOG_EXISTING;
	if (verb->run)
		rc = reef_log_open(space, wish->words[2], &options, &log);
	else
		rc = reef_log_drop(space, wish->words[2]);
	operate_tell_waiting(NULL);
	if (rc == -ENOENT)
		return operate_say("log", "there is no log \"%.80s\" in %s",
				   wish->words[2], wish->words[1]);
	if (!rc && verb->run)
		rc = verb->run(log, wish);
	reef_log_close(log);
	if (rc == -ENOENT)
		return operate_say("log", "%.80s was dropped", wish->words[2]);
	return report_error(wish, rc);
}

static int open_and_run(const struct reef_settings *settings,
			const struct wish *wish)
{
	struct reef_space *space;
	struct reef *reef;
	int rc;

	operate_tell_waiting("log");
	rc = operate_open("log", settings, NULL, &reef);
	if (rc >= 0)
		return rc;
	rc = reef_space_open(reef, wish->words[1], NULL, &space);
	if (rc == -ENOENT)
		rc = operate_say("log", "there is no space \"%.80s\"",
				 wish->words[1]);
	else if (rc)
		rc = operate_failed("log", wish->words[1], rc);
	else
		rc = run_verb(space, wish);
	reef_close(reef);
	return rc;
}

/* What tail(1) calls them. */
static void lengthen_flags(int argc, char **argv)
{
	static char follow_flag[] = "--follow", last_flag[] = "--last";

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strcmp(argv[i], "-f"))
			argv[i] = follow_flag;
		else if (!strcmp(argv[i], "-n"))
			argv[i] = last_flag;
}

int cmd_log(int argc, char **argv)
{
	struct wish wish = {0};
	const struct reef_config_flag flags[] = {
		{"follow", NULL, "tail: go on with what comes; or -f",
		 &wish.follow, NULL},
		{"last", "COUNT", "tail: so many entries; or -n; 10", NULL,
		 &wish.last},
		{"keep", "COUNT", "create: trim what is more; never", NULL,
		 &wish.keep},
		{"keep-size", "SIZE", "create: trim what is more; never", NULL,
		 &wish.keep_size},
		{"json", NULL, "print a line of JSON for each", &wish.json,
		 NULL},
		{0},
	};
	const struct reef_config_input input = {.argc = argc,
						.argv = argv,
						.uses = REEF_USE_CLIENT,
						.flags = flags};
	struct reef_settings settings;
	int rc;

	for (const struct verb_form *verb = verbs; verb->name; verb++)
		cmd_tell_word(verb->name, verb->takes);
	lengthen_flags(argc, argv);
	rc = cmd_settings(&input, usage, &settings);
	if (rc >= 0)
		return rc;
	wish.count = reef_config_rest_count(settings.config);
	for (uint32_t i = 0; i < wish.count && i < 5; i++)
		wish.words[i] = reef_config_rest(settings.config, i);
	rc = check_words(&wish);
	if (rc < 0)
		rc = open_and_run(&settings, &wish);
	reef_settings_fini(&settings);
	return rc;
}
