/* cmd.h - the subcommands of the program `reef`, one file each.
 *
 * (1) A subcommand parses its arguments and calls the library; no logic here.
 * (2) Results go to stdout, everything else to stderr. Exit status: 0, 1 when
 *     the work failed, 2 when the arguments were wrong.
 *
 * Thread: main. */
#ifndef REEF_CMD_CMD_H
#define REEF_CMD_CMD_H

#include "pool/settings.h"

#include <stdbool.h>

struct command {
	const char *name;
	const char *summary;		   /* one line, for `reef help` */
	int (*run)(int argc, char **argv); /* argv[0] is the name */
};

/* All of them, in the order of `reef help`; {0} ends them. */
extern const struct command cmd_all[];

/* Each in src/cmd/<name>.c, listed in main.c. `--help` is theirs to answer. */
int cmd_bench(int argc, char **argv);
int cmd_broker(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_elect(int argc, char **argv);
int cmd_file(int argc, char **argv);
int cmd_hold(int argc, char **argv);
int cmd_http(int argc, char **argv);
int cmd_janitor(int argc, char **argv);
int cmd_lock(int argc, char **argv);
int cmd_log(int argc, char **argv);
int cmd_map(int argc, char **argv);
int cmd_mount(int argc, char **argv);
int cmd_pages(int argc, char **argv);
int cmd_name(int argc, char **argv);
int cmd_node(int argc, char **argv);
int cmd_redis(int argc, char **argv);
int cmd_saver(int argc, char **argv);
int cmd_session(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_space(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_tree(int argc, char **argv);
int cmd_up(int argc, char **argv);
int cmd_user(int argc, char **argv);
int cmd_version(int argc, char **argv);

/* Say "reef NAME: TEXT" and where to find help; returns 2. */
__attribute__((format(printf, 2, 3))) int cmd_usage_error(const char *name,
							  const char *format,
							  ...);

/* Write what was printed; 0, or 1 when that failed, which is said once. main
 * does it for everyone. */
int cmd_flush(void);

/* Make a directory, unless it is there. 0, or 1: "reef NAME: ..." was said. */
int cmd_make_directory(const char *name, const char *directory);

/* True if --help or -h is among the arguments. */
bool cmd_wants_help(int argc, char **argv);

/* Load the settings of a command, whose argv[0] is its name, and let the log go
 * by them. `usage` is what its help says before the flags. Returns -1: go on,
 * and fini the settings later. Otherwise the exit status: help was given
 * (--help), the settings shown (--check-config), or what is wrong was said. */
int cmd_settings(const struct reef_config_input *input, const char *usage,
		 struct reef_settings *out);

/* --- help --- */

/* Somebody who, instead of reading what --help prints, is told every word that
 * may stand first behind the command (verbs and such), and every flag. Texts
 * are borrowed until the call returns. */
struct cmd_listener {
	void (*word)(void *context, const char *name, const char *help);
	void (*flag)(void *context, const struct reef_config_flag *flag);
	void *context;
};

/* Run a command's --help for the listener; nothing is printed. Its status. */
int cmd_listen(const struct command *command,
	       const struct cmd_listener *listener);
/* True while somebody listens. */
bool cmd_is_listened(void);
/* Tell the listener a word; nobody listens: nothing. */
void cmd_tell_word(const char *name, const char *help);
/* Print a part of a help; to a listener it is nothing. */
__attribute__((format(printf, 1, 2))) void cmd_help_text(const char *format,
							 ...);
/* Print, or tell, the flags of a command that has no settings, and --help. The
 * table ends with {0}; NULL: it has none. */
void cmd_help_flags(const struct reef_config_flag *flags);
/* The same of one with settings, behind its usage. */
void cmd_help_settings(const struct reef_config *config,
		       const struct reef_config_input *input,
		       const char *usage);
/* Take the next flag of such a command from argv by getopt, whose optarg is its
 * value: its place in the table, -1: there are no more, or CMD_NO_FLAG: it is
 * none of them, which getopt said. At most 15 flags. */
int cmd_next_flag(int argc, char **argv, const struct reef_config_flag *flags);
#define CMD_NO_FLAG (-2)

#endif
