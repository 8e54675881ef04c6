/* main.c - the program `reef`: finds the subcommand and runs it. */
#include "base/config/config.h"
#include "base/log.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct command cmd_all[] = {
	{"up", "run a pool on this machine: broker and node in one", cmd_up},
	{"status", "show nodes, spaces, sessions and events of a pool",
	 cmd_status},
	{"top", "the same in a terminal, refreshed and sorted", cmd_top},
	{"broker", "run the broker of a pool", cmd_broker},
	{"node", "run a node, or manage those of a pool", cmd_node},
	{"space", "list, create, drop and share spaces", cmd_space},
	{"name", "list, look up, bind and unbind names", cmd_name},
	{"map", "read and change hash maps", cmd_map},
	{"tree", "read and change ordered maps", cmd_tree},
	{"log", "append to logs, and read them", cmd_log},
	{"file", "copy files to and from a pool", cmd_file},
	{"mount", "show the files of a space as a directory", cmd_mount},
	{"pages", "run a program whose files are read through a pool",
	 cmd_pages},
	{"lock", "run a command while holding a lock", cmd_lock},
	{"elect", "run a command while leading an election", cmd_elect},
	{"redis", "serve clients of Redis from a pool", cmd_redis},
	{"session", "list sessions, end one", cmd_session},
	{"user", "list, add and remove users", cmd_user},
	{"doctor", "find out what this machine lacks, and what would help",
	 cmd_doctor},
	{"bench", "measure Reef beside the raw limit and beside peers",
	 cmd_bench},
	{"demo", "show what a database gains by memory of a pool", cmd_demo},
	{"sim", "show in simulation what a cluster would do", cmd_sim},
	{"completion", "print the completion of this program for a shell",
	 cmd_completion},
	{"version", "show the version and what this build has in it",
	 cmd_version},
	{0},
};
/* What the program starts itself; they are in no list. */
static const struct command hidden[] = {
	{"hold", "", cmd_hold},
	{"http", "", cmd_http},
	{"janitor", "", cmd_janitor},
	{"saver", "", cmd_saver},
	{0},
};

static void print_help(FILE *stream)
{
	const struct command *command;

	fprintf(stream, "usage: reef COMMAND [ARGUMENTS]\n\n"
			"Remote memory, safe and quick to use.\n\n");
	for (command = cmd_all; command->name; command++)
		fprintf(stream, "  %-10s %s\n", command->name,
			command->summary);
	fprintf(stream, "  %-10s %s\n\n", "help", "this text");
	fprintf(stream, "`reef COMMAND --help` tells more; so does reef(1).\n"
			"REEF_LOG=debug|info|warning|error shows what the "
			"library logs.\n");
}

int cmd_usage_error(const char *name, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "reef %s: ", name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\nTry `reef %s --help`.\n", name);
	return 2;
}

bool cmd_wants_help(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return true;
	return false;
}

static int set_log_level(void)
{
	static const char *const levels[] = {"debug", "info", "warning",
					     "error"};
	const char *wish = getenv("REEF_LOG");
	int level = REEF_LOG_WARNING;

	if (wish) {
		for (level = 0; level < 4; level++)
			if (!strcmp(wish, levels[level]))
				break;
		if (level == 4) {
			fprintf(stderr,
				"reef: REEF_LOG is \"%s\"; it may be debug, "
				"info, warning or error\n",
				wish);
			return 2;
		}
	}
	reef_log_set(reef_log_to_stream, stderr, (enum reef_log_level)level);
	return 0;
}

int cmd_make_directory(const char *name, const char *directory)
{
	if (!mkdir(directory, 0777) || errno == EEXIST)
		return 0;
	fprintf(stderr, "reef %s: %s: %s\n", name, directory, strerror(errno));
	return 1;
}

int cmd_flush(void)
{
	static bool is_said;

	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	if (!is_said)
		fprintf(stderr, "reef: cannot write: %s\n",
			errno ? strerror(errno) : "standard output failed");
	is_said = true;
	return 1;
}

/* Open standard descriptors that the caller closed: otherwise a socket or a
 * file of ours would get their number, and what is printed would go there. They
 * are opened the wrong way round, so that using them fails as it would have. */
static void fill_standard_fds(void)
{
	int fd;

	for (fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
			return;
}

/* Say that there is no such command, and which may be meant; returns 2. */
static int say_unknown(const char *word)
{
	const char *near = NULL;
	uint32_t nearest = UINT32_MAX, distance;
	const struct command *command;

	for (command = cmd_all; command->name; command++) {
		if (!reef_config_is_near(word, command->name))
			continue;
		distance = reef_config_distance(word, command->name);
		if (distance < nearest) {
			nearest = distance;
			near = command->name;
		}
	}
	fprintf(stderr,
		"reef: there is no command \"%.80s\"%s%s%s\n"
		"Try `reef help`.\n",
		word, near ? "; did you mean " : "", near ? near : "",
		near ? "?" : "");
	return 2;
}

/* Find a command, hidden ones too. NULL: there is none. */
static const struct command *find_command(const char *name)
{
	const struct command *command;

	for (command = cmd_all; command->name; command++)
		if (!strcmp(name, command->name))
			return command;
	for (command = hidden; command->name; command++)
		if (!strcmp(name, command->name))
			return command;
	return NULL;
}

static int run_command(int argc, char **argv)
{
	static char help[] = "--help";
	const struct command *command;
	int rc;

	if (argc < 2) {
		print_help(stderr);
		return 2;
	}
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], help) ||
	    !strcmp(argv[1], "-h")) {
		if (argc == 2 || !strcmp(argv[2], "help")) {
			print_help(stdout);
			return 0;
		}
		/* `reef help COMMAND` is `reef COMMAND --help`. */
		argv[1] = argv[2];
		argv[2] = help;
		argc = 3;
	}
	if (!strcmp(argv[1], "--version"))
		argv[1] = "version";
	rc = set_log_level();
	if (rc)
		return rc;
	command = find_command(argv[1]);
	return command ? command->run(argc - 1, argv + 1)
		       : say_unknown(argv[1]);
}

int main(int argc, char **argv)
{
	int rc;

	setlocale(LC_CTYPE, "");
	fill_standard_fds();
	rc = run_command(argc, argv);
	return rc ? rc : cmd_flush();
}
