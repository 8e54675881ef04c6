/* completion.c - `reef completion`: what a shell needs to complete the words
 * and options of this program.
 *
 * It is made from what --help prints: each command is run with --help, and a
 * listener (cmd.h) is told what it would have printed. So no list of options is
 * kept for shells, and none can be out of date. */
#include "cmd/cmd.h"

#include <stdio.h>
#include <string.h>

/* The largest command, doctor, has about 60 flags. */
#define ITEMS_MAX 128
#define HELP_SIZE 160

struct item {
	char name[40], value[96], help[HELP_SIZE]; /* value "": none */
};

/* What a command takes. */
struct taken {
	const char *command;
	struct item words[ITEMS_MAX], flags[ITEMS_MAX];
	uint32_t words_count, flags_count;
	bool is_full;
};

/* --- listening --- */

static void add_item(struct taken *taken, struct item *items, uint32_t *count,
		     const char *name, const char *value, const char *help)
{
	for (uint32_t i = 0; i < *count; i++)
		if (!strcmp(items[i].name, name))
			return;
	if (*count == ITEMS_MAX) {
		taken->is_full = true;
		return;
	}
	snprintf(items[*count].name, sizeof(items[0].name), "%s", name);
	snprintf(items[*count].value, sizeof(items[0].value), "%s",
		 value ? value : "");
	snprintf(items[*count].help, sizeof(items[0].help), "%s", help);
	++*count;
}

static void hear_word(void *context, const char *name, const char *help)
{
	struct taken *taken = context;

	add_item(taken, taken->words, &taken->words_count, name, NULL, help);
}

static void hear_flag(void *context, const struct reef_config_flag *flag)
{
	struct taken *taken = context;

	add_item(taken, taken->flags, &taken->flags_count, flag->name,
		 flag->value_name, flag->help);
}

/* Write what each command takes, one after the other. */
static int each_command(void (*write)(const struct taken *taken))
{
	static struct taken taken;
	const struct cmd_listener listener = {
		.word = hear_word,
		.flag = hear_flag,
		.context = &taken,
	};

	for (const struct command *command = cmd_all; command->name;
	     command++) {
		taken = (struct taken){.command = command->name};
		if (cmd_listen(command, &listener) || taken.is_full) {
			fprintf(stderr, "reef completion: %s is not known\n",
				command->name);
			return 1;
		}
		write(&taken);
	}
	return 0;
}

static bool is_path(const struct item *flag)
{
	return !strcmp(flag->value, "FILE") || !strcmp(flag->value, "DIR") ||
	       !strcmp(flag->value, "PATH");
}

static bool is_choice(const struct item *flag)
{
	return strchr(flag->value, '|') != NULL;
}

/* Print the words of "one|two" with blanks between them. */
static void print_choices(const struct item *flag)
{
	for (const char *at = flag->value; *at; at++)
		putchar(*at == '|' ? ' ' : *at);
}

/* Print a text, with a backslash before each of these characters; a single
 * quote, which ends a shell's string, is printed as `quote`. */
static void print_escaped(const char *text, const char *special,
			  const char *quote)
{
	for (; *text; text++) {
		if (*text == '\'') {
			fputs(quote, stdout);
			continue;
		}
		if (strchr(special, *text))
			putchar('\\');
		putchar(*text);
	}
}

/* --- bash --- */

enum which { ALL, VALUED, PATHS };

static void bash_flags(const struct taken *taken, const char *name,
		       enum which which)
{
	const struct item *flag = taken->flags;
	const char *blank = "";

	printf("\t\t%s='", name);
	for (uint32_t i = 0; i < taken->flags_count; i++, flag++) {
		if ((which == VALUED && !flag->value[0]) ||
		    (which == PATHS && !is_path(flag)))
			continue;
		printf("%s--%s", blank, flag->name);
		blank = " ";
	}
	printf("'\n");
}

static void bash_command(const struct taken *taken)
{
	const struct item *flag = taken->flags;

	printf("\t%s)\n\t\twords='", taken->command);
	for (uint32_t i = 0; i < taken->words_count; i++)
		printf("%s%s", i ? " " : "", taken->words[i].name);
	printf("'\n");
	bash_flags(taken, "flags", ALL);
	bash_flags(taken, "valued", VALUED);
	bash_flags(taken, "paths", PATHS);
	printf("\t\tcase $previous in\n");
	for (uint32_t i = 0; i < taken->flags_count; i++, flag++) {
		if (!is_choice(flag))
			continue;
		printf("\t\t--%s) choices='", flag->name);
		print_choices(flag);
		printf("' ;;\n");
	}
	printf("\t\tesac\n\t\t;;\n");
}

static int print_bash(void)
{
	int rc;

	puts("# Completion of reef(1) for bash, by `reef completion bash`.\n"
	     "_reef_offer() {\n"
	     "\tmapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$current\")\n"
	     "}\n\n"
	     "_reef() {\n"
	     "\tlocal current=${COMP_WORDS[COMP_CWORD]}\n"
	     "\tlocal previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
	     "\tlocal words='' flags='' valued='' paths='' choices=''\n"
	     "\tlocal at has_word=no\n\n"
	     "\tCOMPREPLY=()\n"
	     "\tif ((COMP_CWORD == 1)); then");
	printf("\t\t_reef_offer '");
	for (const struct command *command = cmd_all; command->name; command++)
		printf("%s ", command->name);
	puts("help'\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\t# --flag=value comes as three words.\n"
	     "\tif [[ $current == = ]]; then\n"
	     "\t\tcurrent=''\n"
	     "\telif [[ $previous == = ]]; then\n"
	     "\t\tprevious=${COMP_WORDS[COMP_CWORD - 2]}\n"
	     "\tfi\n"
	     "\tcase ${COMP_WORDS[1]} in");
	rc = each_command(bash_command);
	puts("\tesac\n"
	     "\t# Behind a -- stands somebody else's command.\n"
	     "\tfor ((at = 2; at < COMP_CWORD; at++)); do\n"
	     "\t\tcase ${COMP_WORDS[at]} in\n"
	     "\t\t--) return ;;\n"
	     "\t\t-*)\n"
	     "\t\t\tif [[ ${COMP_WORDS[at + 1]} == = ]]; then\n"
	     "\t\t\t\t((at += 2))\n"
	     "\t\t\telif [[ \" $valued \" == *\" ${COMP_WORDS[at]} \"* ]]; "
	     "then\n"
	     "\t\t\t\t((at++))\n"
	     "\t\t\tfi\n"
	     "\t\t\t;;\n"
	     "\t\t*) has_word=yes ;;\n"
	     "\t\tesac\n"
	     "\tdone\n"
	     "\t# What is not answered here, bash completes as a file.\n"
	     "\tif [[ -n $choices ]]; then\n"
	     "\t\t_reef_offer \"$choices\"\n"
	     "\telif [[ \" $paths \" == *\" $previous \"* ]]; then\n"
	     "\t\treturn\n"
	     "\telif [[ \" $valued \" == *\" $previous \"* ]]; then\n"
	     "\t\tcompopt +o default\n"
	     "\telif [[ $current == -* ]]; then\n"
	     "\t\t_reef_offer \"$flags\"\n"
	     "\telif [[ $has_word == no && -n $words ]]; then\n"
	     "\t\tcompopt +o default\n"
	     "\t\t_reef_offer \"$words\"\n"
	     "\tfi\n"
	     "}\n\n"
	     "complete -o default -F _reef reef");
	return rc;
}

/* --- zsh --- */

#define ZSH_QUOTE "'\\''"

static void zsh_flag(const struct item *flag)
{
	printf(" \\\n\t\t\t'--%s%s[", flag->name, flag->value[0] ? "=" : "");
	print_escaped(flag->help, "[]:\\", ZSH_QUOTE);
	putchar(']');
	if (flag->value[0]) {
		putchar(':');
		print_escaped(flag->value, ":\\", ZSH_QUOTE);
		putchar(':');
		if (is_choice(flag)) {
			putchar('(');
			print_choices(flag);
			putchar(')');
		} else {
			printf("%s", is_path(flag) ? "_files" : " ");
		}
	}
	putchar('\'');
}

static void zsh_command(const struct taken *taken)
{
	printf("\t%s)\n\t\twords_here=(", taken->command);
	for (uint32_t i = 0; i < taken->words_count; i++) {
		printf("\n\t\t\t'%s:", taken->words[i].name);
		print_escaped(taken->words[i].help, ":\\", ZSH_QUOTE);
		putchar('\'');
	}
	printf(")\n\t\t_arguments");
	for (uint32_t i = 0; i < taken->flags_count; i++)
		zsh_flag(&taken->flags[i]);
	printf("%s \\\n\t\t\t'*:file:_files'\n\t\t;;\n",
	       taken->words_count ? " \\\n\t\t\t'1:: :_reef_words'" : "");
}

static int print_zsh(void)
{
	int rc;

	puts("#compdef reef\n"
	     "# Completion of reef(1) for zsh, by `reef completion zsh`.\n"
	     "_reef_words() { _describe word words_here }\n\n"
	     "_reef() {\n"
	     "\tlocal -a words_here\n"
	     "\tif ((CURRENT == 2)); then\n"
	     "\t\twords_here=(");
	for (const struct command *command = cmd_all; command->name;
	     command++) {
		printf("\t\t\t'%s:", command->name);
		print_escaped(command->summary, ":\\", ZSH_QUOTE);
		puts("'");
	}
	puts("\t\t\t'help:show all commands')\n"
	     "\t\t_reef_words\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\t# From here on the command is the first of the words.\n"
	     "\tshift words\n"
	     "\t((CURRENT--))\n"
	     "\tcase $words[1] in");
	rc = each_command(zsh_command);
	puts("\tesac\n"
	     "}\n\n"
	     "# It may be a function that compinit loads, or a file to read.\n"
	     "if [[ $funcstack[1] == _reef ]]; then\n"
	     "\t_reef \"$@\"\n"
	     "else\n"
	     "\tcompdef _reef reef\n"
	     "fi");
	return rc;
}

/* --- fish --- */

#define FISH_QUOTE "\\'"

static void fish_command(const struct taken *taken)
{
	const struct item *item = taken->words;

	for (uint32_t i = 0; i < taken->words_count; i++, item++) {
		printf("complete -c reef -f -n '__reef_words 2 %s' -a %s -d '",
		       taken->command, item->name);
		print_escaped(item->help, "\\", FISH_QUOTE);
		puts("'");
	}
	item = taken->flags;
	for (uint32_t i = 0; i < taken->flags_count; i++, item++) {
		printf("complete -c reef -n '__reef_in %s' -l %s",
		       taken->command, item->name);
		if (is_choice(item)) {
			printf(" -x -a '");
			print_choices(item);
			putchar('\'');
		} else if (item->value[0]) {
			printf(" %s", is_path(item) ? "-r -F" : "-x");
		}
		printf(" -d '");
		print_escaped(item->help, "\\", FISH_QUOTE);
		puts("'");
	}
}

static int print_fish(void)
{
	puts("# Completion of reef(1) for fish, by `reef completion fish`.\n"
	     "# Whether the command line is of this command.\n"
	     "function __reef_in\n"
	     "    set -l words (commandline -opc)\n"
	     "    test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
	     "end\n"
	     "# Whether there are so many words before this one; of a command."
	     "\nfunction __reef_words\n"
	     "    test (count (commandline -opc)) -eq $argv[1]; or return 1\n"
	     "    test (count $argv) -eq 1; or __reef_in $argv[2]\n"
	     "end");
	for (const struct command *command = cmd_all; command->name;
	     command++) {
		printf("complete -c reef -f -n '__reef_words 1' -a %s -d '",
		       command->name);
		print_escaped(command->summary, "\\", FISH_QUOTE);
		puts("'");
	}
	puts("complete -c reef -f -n '__reef_words 1' -a help "
	     "-d 'show all commands'");
	return each_command(fish_command);
}

static const struct shell {
	const char *name, *summary;
	int (*print)(void);
} shells[] = {
	{"bash", "to be read by bash", print_bash},
	{"zsh", "for a folder of zsh's fpath, as _reef", print_zsh},
	{"fish", "to be read by fish", print_fish},
	{0},
};

static void print_help(void)
{
	cmd_help_text(
		"usage: reef completion bash|zsh|fish\n\n"
		"Print what a shell needs to complete commands and options of "
		"reef. An installed\nReef has it in place already. Otherwise, "
		"for this shell only:\n\n"
		"  eval \"$(reef completion bash)\"\n"
		"  eval \"$(reef completion zsh)\"      after compinit\n"
		"  reef completion fish | source\n\n");
	for (const struct shell *shell = shells; shell->name; shell++)
		cmd_tell_word(shell->name, shell->summary);
	cmd_help_flags(NULL);
}

int cmd_completion(int argc, char **argv)
{
	if (cmd_wants_help(argc, argv)) {
		print_help();
		return 0;
	}
	if (argc != 2)
		return cmd_usage_error("completion",
				       "say for which shell: bash, zsh or "
				       "fish");
	for (const struct shell *shell = shells; shell->name; shell++)
		if (!strcmp(argv[1], shell->name))
			return shell->print();
	return cmd_usage_error("completion",
			       "there is none for \"%.40s\"; there is for "
			       "bash, zsh and fish",
			       argv[1]);
}
