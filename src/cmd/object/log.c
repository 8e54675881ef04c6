/* log.c - `reef log`: the logs of a space, from the shell. */
#include "cmd/object/objects.h"
#include "cmd/print/json.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <reef/fiber.h>
#include <reef/log_reader.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
	"usage: reef log list SPACE [--json]\n"
	"       reef log create SPACE LOG [--keep COUNT] [--keep-size SIZE]\n"
	"                     [--sharded | --early]\n"
	"       reef log append SPACE LOG [TEXT]\n"
	"       reef log read SPACE LOG [FROM [COUNT]] [--json]\n"
	"       reef log tail SPACE LOG [-f] [-n COUNT] [--reader NAME |\n"
	"                     --group NAME] [--json]\n"
	"       reef log readers SPACE LOG [--json]\n"
	"       reef log forget SPACE LOG READER\n"
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
	"`tail -f` goes on with what comes, until the log is sealed. With "
	"--reader it\n"
	"goes on where that reader was, whoever it was; of a --group each "
	"prints what no\n"
	"other does, and what one that died had not printed. `readers` lists "
	"them,\n"
	"`forget` drops one. A log that is made --sharded is appended to "
	"without atomics,\n"
	"and ordered by cuts; --early: and an append does not wait for its "
	"cut.\n";

#define READ_MOST 64u
#define LAST 10u /* entries that `tail` prints */

struct wish {
	struct objects_wish asked; /* words: VERB SPACE LOG ... */
	const char *keep, *keep_size, *last, *reader, *group;
	bool follow, sharded, early;
};

static const struct wish *wish_of(const struct objects_wish *asked)
{
	return (const struct wish *)asked;
}

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

/* Say why nothing was appended, where this command knows it better. */
static int explain_append(struct reef_log *log, size_t size, int rc)
{
	struct reef_log_stats stats;
	char text[16];

	if (rc == -EMSGSIZE && !reef_log_stats(log, &stats))
		return operate_say(
			"log",
			"an entry of %zu bytes is longer than this "
			"log takes: %s",
			size, reef_table_bytes(stats.options.entry_max, text));
	if (rc == -ESHUTDOWN)
		return operate_say("log", "the log is sealed");
	if (rc == -EPERM)
		return operate_say("log", "the log has a writer of its own");
	return rc;
}

static int append_text(struct reef_log *log, const char *text, size_t size)
{
	return explain_append(log, size,
			      reef_log_append(log, text, size, NULL));
}

/* Of lines that came one by one: say where it ended. */
static void tell_appended(uint64_t lines)
{
	if (lines)
		(void)operate_say("log", "%llu line%s appended, then:",
				  (unsigned long long)lines,
				  lines == 1 ? " was" : "s were");
}

static int append_lines(struct reef_log *log)
{
	uint64_t lines = 0;
	char *line = NULL;
	size_t room = 0;
	ssize_t size;
	int rc = 0, error;

	while (!rc && (size = getline(&line, &room, stdin)) >= 0) {
		if (size && line[size - 1] == '\n')
			size--;
		operate_tell_waiting("log");
		rc = reef_log_append(log, line, (size_t)size, NULL);
		operate_tell_waiting(NULL);
		lines += !rc;
	}
	error = !rc && !feof(stdin) ? errno : 0;
	if (rc || error)
		tell_appended(lines);
	if (error)
		rc = operate_say("log", "cannot read the lines: %s",
				 strerror(error));
	else
		rc = explain_append(log, (size_t)size, rc);
	free(line);
	return rc;
}

static int append_entries(void *log, const struct objects_wish *asked)
{
	const char *text = asked->words[3];

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

static int read_entries(void *log, const struct objects_wish *asked)
{
	struct printing printing = {.json = asked->json};
	uint64_t at, most = UINT64_MAX;
	int rc = reef_log_first(log, &at);

	if (!rc && asked->words[3])
		rc = parse_number(asked->words[3], &at);
	if (!rc && asked->words[4])
		rc = parse_number(asked->words[4], &most);
	if (!rc)
		rc = read_up_to(log, &at, UINT64_MAX, most, &printing.count,
				print_entry, &printing);
	return rc == -ERANGE ? operate_say("log", "position %llu was trimmed",
					   (unsigned long long)at)
			     : rc;
}

/* --- following --- */

/* Wait until nobody reads what this process prints, then end as a write there
 * would have ended it. */
static void *watch_output(void *unused)
{
	struct pollfd output = {.fd = STDOUT_FILENO};

	(void)unused;
	if (poll(&output, 1, -1) > 0 && output.revents & POLLERR)
		kill(getpid(), SIGPIPE);
	return NULL;
}

/* Who follows a log may have nothing to write for hours: `tail -f | head` is
 * to end with head. A process that cannot watch goes on without. */
static void end_with_output(void)
{
	sigset_t all, before;
	pthread_t watcher;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (!pthread_create(&watcher, NULL, watch_output, NULL))
		pthread_detach(watcher);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
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

/* --- readers with a name --- */

/* Print up to `most` entries that nobody has acknowledged, and acknowledge what
 * is written: who dies in between leaves it to the next. */
static int print_unread(struct reef_reader *reader, bool follow, uint64_t most,
			struct printing *printing)
{
	uint64_t part;
	int rc = 0;

	while (!rc && printing->count < most) {
		part = most - printing->count;
		rc = reef_reader_next(
			reader, part < READ_MOST ? (uint32_t)part : READ_MOST,
			follow ? REEF_FOREVER : 0, print_entry, printing);
		if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT) {
			(void)operate_say("log", "some entries: %s",
					  reef_error_text(rc));
			rc = 0;
		}
		if (!rc && cmd_flush())
			return 1;
		if (!rc)
			rc = reef_reader_done_all(reader);
	}
	return rc == -ETIMEDOUT || rc == -ESHUTDOWN ? 0 : rc;
}

static int tail_as_reader(struct reef_log *log, const struct wish *wish)
{
	const char *name = wish->group ? wish->group : wish->reader;
	struct reef_reader_options options = {
		.flags = wish->group ? REEF_READER_GROUP : 0,
	};
	struct printing printing = {.json = wish->asked.json};
	struct reef_reader_stats stats;
	struct reef_reader *reader;
	uint64_t most = UINT64_MAX;
	int rc = 0;

	if (wish->reader && wish->group)
		return cmd_usage_error("log",
				       "--reader and --group exclude each "
				       "other");
	if (wish->last)
		rc = parse_number(wish->last, &most);
	if (rc)
		return rc;
	rc = reef_reader_open(log, name, &options, &reader);
	if (rc == -EBUSY && !reef_reader_stats(log, name, &stats))
		return operate_say("log", "session %08x has the reader %.80s",
				   stats.session, name);
	if (rc == -EEXIST)
		return operate_say("log", "%.80s is %s group", name,
				   wish->group ? "no" : "a");
	if (rc == -EINVAL)
		return operate_say("log", "\"%.80s\" is not a name", name);
	if (rc)
		return rc;
	rc = print_unread(reader, wish->follow, most, &printing);
	reef_reader_close(reader);
	return rc;
}

struct listing {
	struct reef_log *log;
	struct reef_table *table; /* NULL: JSON */
};

static int list_reader(void *context, const char *name)
{
	const struct listing *listing = context;
	struct reef_reader_stats stats;
	struct reef_json json = {.stream = stdout};
	bool is_group;
	int rc = reef_reader_stats(listing->log, name, &stats);

	/* It was dropped meanwhile, or its node died. */
	if (rc)
		return rc == -ENOENT || rc == -REEF_ELOST ? 0 : rc;
	is_group = stats.options.flags & REEF_READER_GROUP;
	if (listing->table) {
		reef_table_cell(listing->table, "%s", name);
		reef_table_cell(listing->table, is_group ? "group" : "one");
		reef_table_cell(listing->table, "%llu",
				(unsigned long long)stats.next);
		reef_table_cell(listing->table, "%llu",
				(unsigned long long)stats.behind);
		reef_table_cell(listing->table, "%u", stats.taken);
		if (stats.holders > 1)
			reef_table_cell(listing->table, "%u sessions",
					stats.holders);
		else if (stats.holders)
			reef_table_cell(listing->table, "%08x", stats.session);
		else
			reef_table_cell(listing->table, "-");
		reef_table_end_row(listing->table);
		return 0;
	}
	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "reader", name);
	reef_json_bool(&json, "group", is_group);
	reef_json_number(&json, "next", stats.next);
	reef_json_number(&json, "behind", stats.behind);
	reef_json_number(&json, "taken", stats.taken);
	reef_json_number(&json, "holders", stats.holders);
	reef_json_end(&json);
	return 0;
}

static int list_readers(void *log, const struct objects_wish *asked)
{
	struct listing listing = {.log = log};
	int rc;

	if (!asked->json)
		listing.table = operate_table(
			"<reader|<kind|>next|>behind|>taken|<held by");
	rc = reef_reader_list(log, list_reader, &listing);
	if (!rc && listing.table)
		rc = reef_table_print(listing.table, stdout);
	reef_table_destroy(listing.table);
	return rc;
}

static int forget_reader(void *log, const struct objects_wish *asked)
{
	int rc = reef_reader_drop(log, asked->words[3]);

	return rc == -ENOENT
		       ? operate_say("log", "there is no reader \"%.80s\"",
				     asked->words[3])
		       : rc;
}

static int print_tail(void *log, const struct objects_wish *asked)
{
	struct printing printing = {.json = asked->json};
	uint64_t tail, from = 0, last = LAST;
	int rc;

	if (wish_of(asked)->follow)
		end_with_output();
	if (wish_of(asked)->reader || wish_of(asked)->group)
		return tail_as_reader(log, wish_of(asked));
	rc = reef_log_tail(log, &tail);
	if (!rc && wish_of(asked)->last)
		rc = parse_number(wish_of(asked)->last, &last);
	if (!rc)
		rc = find_last(log, last, tail, &from, &printing.skip);
	if (!rc)
		rc = read_up_to(log, &from, tail, UINT64_MAX, &printing.count,
				print_entry, &printing);
	if (!rc && wish_of(asked)->follow)
		rc = follow(log, from, &printing);
	return rc;
}

/* --- whole logs --- */

static int trim_log(void *log, const struct objects_wish *asked)
{
	uint64_t position;
	int rc = parse_number(asked->words[3], &position);

	if (!rc)
		rc = reef_log_trim(log, position);
	return rc == -ERANGE
		       ? operate_say("log", "position %s is beyond the tail",
				     asked->words[3])
		       : rc;
}

static int seal_log(void *log, const struct objects_wish *asked)
{
	(void)asked;
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
	reef_json_bool(&json, "sharded",
		       stats->options.flags & REEF_LOG_SHARDED);
	reef_json_bool(&json, "early", stats->options.flags & REEF_LOG_EARLY);
	reef_json_number(&json, "entry_max", stats->options.entry_max);
	reef_json_number(&json, "cell", stats->options.cell);
	reef_json_number(&json, "segment", stats->options.segment);
	reef_json_number(&json, "segments_max", stats->options.segments);
	reef_json_number(&json, "keep_entries", stats->options.keep_entries);
	reef_json_number(&json, "keep_bytes", stats->options.keep_bytes);
	reef_json_end(&json);
}

static int print_stats(void *log, const struct objects_wish *asked)
{
	struct reef_log_stats found;
	char text[16];
	int rc = reef_log_stats(log, &found);

	if (rc)
		return rc;
	if (asked->json) {
		print_json(asked->words[2], &found);
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
	printf("order         %s\n",
	       found.options.flags & REEF_LOG_EARLY	? "by cuts, early"
	       : found.options.flags & REEF_LOG_SHARDED ? "by cuts"
							: "by numbers");
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

static int list_log(void *log, const char *name, struct reef_table *table)
{
	struct reef_log_stats found;
	int rc = reef_log_stats(log, &found);

	if (rc)
		return rc;
	if (!table) {
		print_json(name, &found);
		return 0;
	}
	reef_table_cell(table, "%s", name);
	reef_table_cell(table, "%llu", (unsigned long long)found.first);
	reef_table_cell(table, "%llu", (unsigned long long)found.tail);
	reef_table_cell(table, "%u", found.segments);
	reef_table_cell(table, "%s", found.sealed ? "sealed" : "open");
	reef_table_end_row(table);
	return 0;
}

/* --- the kind --- */

/* Take the options of a log from the flags. 0, or 2: an error was printed. */
static int take_options(const struct wish *wish, struct reef_log_options *out)
{
	int rc = 0;

	*out = (struct reef_log_options){0};
	if (wish->sharded || wish->early)
		out->flags |= REEF_LOG_SHARDED;
	if (wish->early)
		out->flags |= REEF_LOG_EARLY;
	if (wish->keep)
		rc = parse_number(wish->keep, &out->keep_entries);
	if (!rc && wish->keep_size)
		rc = operate_size("log", wish->keep_size, &out->keep_bytes);
	return rc;
}

/* The log was made by opening it. If it was there already, it must have the
 * options that were asked for. */
static int check_options(void *log, const struct objects_wish *asked)
{
	const uint32_t order = REEF_LOG_SHARDED | REEF_LOG_EARLY;
	const struct wish *wish = wish_of(asked);
	struct reef_log_options wanted;
	struct reef_log_stats found;
	int rc = take_options(wish, &wanted);

	if (!rc)
		rc = reef_log_stats(log, &found);
	if (rc)
		return rc;
	if ((!wanted.flags || wanted.flags == (found.options.flags & order)) &&
	    (!wish->keep ||
	     wanted.keep_entries == found.options.keep_entries) &&
	    (!wish->keep_size || wanted.keep_bytes == found.options.keep_bytes))
		return 0;
	return operate_say("log",
			   "%.80s is there already, with other options: see "
			   "`reef log stats`",
			   asked->words[2]);
}

static int open_log(struct reef_space *space, const struct objects_wish *asked,
		    const char *name, bool makes, void **out)
{
	struct reef_log_options options;
	struct reef_log *log;
	int rc = take_options(wish_of(asked), &options);

	if (rc)
		return rc;
	options.flags |= makes ? 0 : REEF_LOG_EXISTING;
	rc = reef_log_open(space, name, &options, &log);
	if (!rc)
		*out = log;
	return rc;
}

static void close_log(void *log)
{
	reef_log_close(log);
}

static int explain_error(const struct objects_wish *asked, int rc)
{
	return rc == -ENOENT ? operate_say("log", "%.80s was dropped",
					   asked->words[2])
			     : rc;
}

static const struct objects_verb verbs[] = {
	{"list", "SPACE", 2, 2, "json", OBJECTS_READS, NULL},
	{"create", "SPACE LOG", 3, 3, "keep keep-size sharded early",
	 OBJECTS_MAKES, check_options},
	{"append", "SPACE LOG [TEXT]", 3, 4, NULL, OBJECTS_MAKES,
	 append_entries},
	{"read", "SPACE LOG [FROM [COUNT]]", 3, 5, "json", OBJECTS_READS,
	 read_entries},
	{"tail", "SPACE LOG", 3, 3, "json last follow reader group",
	 OBJECTS_READS, print_tail},
	{"readers", "SPACE LOG", 3, 3, "json", OBJECTS_READS, list_readers},
	{"forget", "SPACE LOG READER", 4, 4, NULL, OBJECTS_CHANGES,
	 forget_reader},
	{"trim", "SPACE LOG POSITION", 4, 4, NULL, OBJECTS_CHANGES, trim_log},
	{"seal", "SPACE LOG", 3, 3, NULL, OBJECTS_CHANGES, seal_log},
	{"stats", "SPACE LOG", 3, 3, "json", OBJECTS_READS, print_stats},
	{"drop", "SPACE LOG", 3, 3, NULL, OBJECTS_CHANGES, NULL},
	{0},
};

static const struct objects_kind logs = {
	.name = "log",
	.usage = usage,
	.verbs = verbs,
	.columns = "<log|>first|>tail|>segments|<state",
	.open = open_log,
	.close = close_log,
	.drop = reef_log_drop,
	.list = list_log,
	.explain = explain_error,
};

/* What tail(1) calls them: -f, -n COUNT and -nCOUNT. */
static void lengthen_flags(int argc, char **argv)
{
	static char follow_flag[] = "--follow", last_flag[] = "--last";
	static char last_count[32];

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strcmp(argv[i], "-f")) {
			argv[i] = follow_flag;
		} else if (!strcmp(argv[i], "-n")) {
			argv[i] = last_flag;
		} else if (!strncmp(argv[i], "-n", 2)) {
			snprintf(last_count, sizeof(last_count), "--last=%s",
				 argv[i] + 2);
			argv[i] = last_count;
		}
}

int cmd_log(int argc, char **argv)
{
	struct wish wish = {0};
	const struct reef_config_flag flags[] = {
		{"follow", NULL, "tail: go on with what comes; or -f",
		 &wish.follow, NULL},
		{"last", "COUNT", "tail: so many entries; or -n; 10", NULL,
		 &wish.last},
		{"reader", "NAME", "tail: go on where that reader was", NULL,
		 &wish.reader},
		{"group", "NAME", "tail: share the work with a group", NULL,
		 &wish.group},
		{"keep", "COUNT", "create: trim what is more; never", NULL,
		 &wish.keep},
		{"keep-size", "SIZE", "create: trim what is more; never", NULL,
		 &wish.keep_size},
		{"sharded", NULL, "create: with order by cuts", &wish.sharded,
		 NULL},
		{"early", NULL, "create: sharded, and appends do not wait",
		 &wish.early, NULL},
		{"json", NULL, "print a line of JSON for each",
		 &wish.asked.json, NULL},
		{0},
	};

	lengthen_flags(argc, argv);
	return objects_main(&logs, argc, argv, flags, &wish.asked);
}
