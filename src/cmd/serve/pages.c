/* pages.c - `reef pages`: run a program whose files are read through a pool. */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/operate.h"
#include "cmd/print/json.h"
#include "integrations/disk/through.h"

#include <errno.h>
#include <limits.h>
#include <reef/reef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANNOT_RUN 126
#define NOT_FOUND 127
#define LIBRARY "reef_pages.so"
#define LOOK_NS                                                                \
	UINT64_C(1000000000) /* for a pool, before the program begins          \
			      */

static const char usage[] =
	"usage: reef pages [OPTIONS] -- COMMAND [ARGUMENTS]\n"
	"       reef pages --show [--space NAME] [--cover NAME] [--page "
	"SIZE]\n\n"
	"Runs a program whose reads of files below a directory come from the\n"
	"pool, where their pages are kept; what it writes goes to the disk "
	"first.\n"
	"Losing the pool costs time, never data. The program is not changed: "
	"a\n"
	"library is loaded before its own (LD_PRELOAD), in its children, too.\n"
	"Each page that comes from the pool is compared with the disk, unless\n"
	"the program is one whose ways to write tests cover (postgres), or\n"
	"--trust is given.\n\n"
	"--show prints what the processes of this user did, as JSON.\n";

struct wish {
	const char *space, *cover, *directory, *size, *page;
	bool verify, trust, show;
};

/* --- showing --- */

static int show(const char *space, const char *cover, uint32_t page_size)
{
	struct reef_json json = {.stream = stdout};
	const struct table_counts *counts;
	const struct table *table;
	char name[100], path[160];
	int rc;

	through_table_name(space, cover, page_size, name);
	table_path(name, path);
	rc = table_look(name, &table);
	if (rc)
		return rc == -ENOENT
			       ? operate_say("pages", "nobody has used it here")
			       : operate_failed("pages", cover, rc);
	counts = &table->counts;
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{"files", atomic_load(&table->used)},
		{"hits", atomic_load(&counts->hits)},
		{"misses", atomic_load(&counts->misses)},
		{"fills", atomic_load(&counts->fills)},
		{"disk_reads", atomic_load(&counts->disk_reads)},
		{"told", atomic_load(&counts->told)},
		{"untold", atomic_load(&counts->untold)},
		{"validated", atomic_load(&counts->validated)},
		{"renewed", atomic_load(&counts->renewed)},
		{"foreign", atomic_load(&counts->foreign)},
		{"verified", atomic_load(&counts->verified)},
		{"differed", atomic_load(&counts->differed)},
		{"failures", atomic_load(&counts->failures)},
	};
	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "space", space);
	reef_json_string(&json, "cover", cover);
	reef_json_string(&json, "table", path);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		reef_json_number(&json, rows[i].name, rows[i].value);
	rc = (int)atomic_load(&counts->last_error);
	reef_json_string(&json, "why", rc ? reef_error_text(rc) : "");
	reef_json_end(&json);
	table_detach(table, -1);
	return 0;
}

/* --- running --- */

/* Where the library is: beside this program where it was built, else where it
 * is installed. */
static bool find_library(char out[PATH_MAX])
{
	char self[PATH_MAX];
	ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *end;

	if (size > 0) {
		self[size] = '\0';
		end = strrchr(self, '/');
		if (end)
			*end = '\0';
		if (snprintf(out, PATH_MAX, "%s/integrations/pages/" LIBRARY,
			     self) < PATH_MAX &&
		    !access(out, R_OK))
			return true;
	}
	snprintf(out, PATH_MAX, "%s/" LIBRARY, REEF_LIBDIR);
	return !access(out, R_OK);
}

/* Set a variable for the command; NULL: leave it alone. */
static int put(const char *name, const char *value)
{
	return value && setenv(name, value, 1) ? -errno : 0;
}

static int put_number(const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return value ? put(name, text) : 0;
}

/* Add the real path of a directory to a list of lines. 0, or the exit
 * status. */
static int add_directory(const char *directory, char *list, size_t room)
{
	char *path = realpath(directory, NULL);
	size_t used = strlen(list);
	int rc = path ? 0 : operate_failed("pages", directory, -errno);

	if (!rc && (strchr(path, '\n') || used + strlen(path) + 2 > room))
		rc = cmd_usage_error("pages",
				     "%s: too long a name, or too "
				     "many",
				     directory);
	if (!rc)
		sprintf(list + used, "%s%s", used ? "\n" : "", path);
	free(path);
	return rc;
}

/* Every --dir that was given: the table of flags has the last one alone. */
static int put_directories(int argc, char **argv, const char *last)
{
	char list[THROUGH_DIRECTORIES_MAX * 1024] = "";
	uint32_t count = 0;
	int rc = 0;

	for (int i = 1; last && !rc && i < argc && strcmp(argv[i], "--"); i++) {
		const char *directory = NULL;

		if (!strcmp(argv[i], "--dir") && i + 1 < argc)
			directory = argv[++i];
		else if (!strncmp(argv[i], "--dir=", 6))
			directory = argv[i] + 6;
		if (directory && ++count > THROUGH_DIRECTORIES_MAX)
			return cmd_usage_error("pages",
					       "at most %u directories",
					       THROUGH_DIRECTORIES_MAX);
		if (directory)
			rc = add_directory(directory, list, sizeof(list));
	}
	if (!last)
		rc = add_directory(".", list, sizeof(list));
	if (!rc && put("REEF_PAGES_DIRECTORIES", list))
		rc = operate_failed("pages", "environment", -errno);
	return rc;
}

static int put_library(void)
{
	const char *before = getenv("LD_PRELOAD");
	char path[PATH_MAX], *value;
	int rc;

	if (!find_library(path))
		return operate_say("pages", "%s is not there", path);
	/* Blanks and colons divide the list. */
	if (strpbrk(path, " :"))
		return operate_say("pages",
				   "%s: no library can be loaded from "
				   "there",
				   path);
	if (asprintf(&value, "%s%s%s", path, before ? ":" : "",
		     before ? before : "") < 0)
		return operate_failed("pages", "environment", -ENOMEM);
	rc = put("LD_PRELOAD", value);
	free(value);
	return rc ? operate_failed("pages", "environment", rc) : 0;
}

static int put_settings(const struct reef_settings *settings,
			const struct wish *wish, uint64_t size, uint64_t page)
{
	int rc = put("REEF_POOL", settings->pool);

	rc = rc ? rc : put("REEF_RUN", settings->run);
	rc = rc ? rc : put("REEF_CREDENTIAL", settings->credential);
	rc = rc ? rc : put("REEF_FABRICS", settings->fabrics);
	rc = rc ? rc : put("REEF_TLS", settings->tls);
	rc = rc ? rc : put("REEF_PAGES_SPACE", wish->space);
	rc = rc ? rc : put("REEF_PAGES_COVER", wish->cover);
	rc = rc ? rc : put_number("REEF_PAGES_SIZE", size);
	rc = rc ? rc : put_number("REEF_PAGES_PAGE", page);
	rc = rc ? rc
		: put("REEF_PAGES_MODE", wish->verify  ? "verify"
					 : wish->trust ? "trust"
						       : "auto");
	return rc ? operate_failed("pages", "environment", rc) : 0;
}

/* A program that may not use the space goes on from the disk, and nobody would
 * know why. A pool that is not there is looked for again. */
static void warn_of_space(const struct reef_settings *settings,
			  const char *space)
{
	const struct reef_options options = {
		.credential = settings->credential,
		.fabrics = settings->fabrics,
		.tls = settings->tls,
		.name = "reef pages",
		.timeout_ns = LOOK_NS,
	};
	struct reef_space *opened;
	struct reef *reef;
	int rc;

	if (reef_open(settings->pool, &options, &reef))
		return;
	rc = reef_space_open(reef, space, NULL, &opened);
	if (rc == -EACCES || rc == -EPERM)
		operate_say("pages",
			    "the space \"%.80s\" is another user's, so all is "
			    "read from the disk; see --space",
			    space);
	reef_close(reef);
}

static int run(const struct reef_settings *settings)
{
	uint32_t count = reef_config_rest_count(settings->config);
	char **words = calloc(count + 1, sizeof(*words));
	int rc;

	if (!words)
		return operate_failed("pages", "command", -ENOMEM);
	for (uint32_t i = 0; i < count; i++)
		words[i] = (char *)(uintptr_t)reef_config_rest(settings->config,
							       i);
	execvp(words[0], words);
	rc = errno == ENOENT ? NOT_FOUND : CANNOT_RUN;
	operate_failed("pages", words[0], -errno);
	free(words);
	return rc;
}

static int act(int argc, char **argv, struct wish *wish,
	       const struct reef_settings *settings)
{
	uint64_t size = 0, page = 8192;
	int rc = 0;

	if (wish->size)
		rc = operate_size("pages", wish->size, &size);
	if (!rc && wish->page)
		rc = operate_size("pages", wish->page, &page);
	if (rc)
		return rc;
	if (page & (page - 1) || page < 512 || page > 65536)
		return cmd_usage_error("pages", "a page is a power of two from "
						"512 to 64K");
	wish->space = wish->space ? wish->space : "cache";
	wish->cover = wish->cover ? wish->cover : "pages";
	if (wish->show)
		return show(wish->space, wish->cover, (uint32_t)page);
	if (!reef_config_rest_count(settings->config))
		return cmd_usage_error("pages", "a command is wanted");
	if (wish->verify && wish->trust)
		return cmd_usage_error("pages", "--verify or --trust, not "
						"both");
	rc = put_directories(argc, argv, wish->directory);
	rc = rc ? rc : put_settings(settings, wish, size, page);
	rc = rc ? rc : put_library();
	if (rc)
		return rc;
	warn_of_space(settings, wish->space);
	return run(settings);
}

int cmd_pages(int argc, char **argv)
{
	struct wish wish = {0};
	const struct reef_config_flag flags[] = {
		{"dir", "DIR", "whose files; may be repeated; the working one",
		 NULL, &wish.directory},
		{"space", "NAME",
		 "where pages are; made, revocable, if new; cache", NULL,
		 &wish.space},
		{"cover", "NAME", "what keeps them there; pages", NULL,
		 &wish.cover},
		{"size", "SIZE", "how much a new cover may take; 1G", NULL,
		 &wish.size},
		{"page", "SIZE", "bytes of a page; 8K", NULL, &wish.page},
		{"verify", NULL, "compare what the pool has with the disk",
		 &wish.verify, NULL},
		{"trust", NULL, "do not, whatever the program is", &wish.trust,
		 NULL},
		{"show", NULL, "print what was read and written so far",
		 &wish.show, NULL},
		{0},
	};
	const struct reef_config_input input = {.argc = argc,
						.argv = argv,
						.uses = REEF_USE_CLIENT,
						.flags = flags};
	struct reef_settings settings;
	int rc = cmd_settings(&input, usage, &settings);

	if (rc >= 0)
		return rc;
	rc = act(argc, argv, &wish, &settings);
	reef_settings_fini(&settings);
	return rc;
}
