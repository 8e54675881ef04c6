/* help.c - what a command's --help shows, to people or to a listener. */
#include "cmd/cmd.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>

#define FLAGS_MAX 16

static const struct cmd_listener *heard_by;

int cmd_listen(const struct command *command,
	       const struct cmd_listener *listener)
{
	char name[32], help[] = "--help";
	char *argv[] = {name, help, NULL};
	int rc;

	snprintf(name, sizeof(name), "%s", command->name);
	heard_by = listener;
	rc = command->run(2, argv);
	heard_by = NULL;
	return rc;
}

bool cmd_is_listened(void)
{
	return heard_by != NULL;
}

void cmd_tell_word(const char *name, const char *help)
{
	if (heard_by)
		heard_by->word(heard_by->context, name, help);
}

void cmd_help_text(const char *format, ...)
{
	va_list arguments;

	if (heard_by)
		return;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
}

static void show_flag(void *context, const struct reef_config_flag *flag)
{
	if (heard_by)
		heard_by->flag(heard_by->context, flag);
	else
		reef_config_help_flag(stdout, flag);
}

void cmd_help_flags(const struct reef_config_flag *flags)
{
	for (; flags && flags->name; flags++)
		show_flag(NULL, flags);
	show_flag(NULL, &(const struct reef_config_flag){.name = "help",
							 .help = "this text"});
}

void cmd_help_settings(const struct reef_config *config,
		       const struct reef_config_input *input, const char *usage)
{
	cmd_help_text("%s\nOptions; what stands behind a semicolon is the "
		      "default:\n",
		      usage);
	reef_config_each_flag(config, input, show_flag, NULL);
}

int cmd_next_flag(int argc, char **argv, const struct reef_config_flag *flags)
{
	struct option known[FLAGS_MAX] = {0};
	int place = 0, found;

	for (int i = 0; i < FLAGS_MAX - 1 && flags[i].name; i++)
		known[i] = (struct option){
			.name = flags[i].name,
			.has_arg = flags[i].value_name ? required_argument
						       : no_argument,
		};
	found = getopt_long(argc, argv, "", known, &place);
	if (found < 0)
		return -1;
	return found ? CMD_NO_FLAG : place;
}
