/* config.h - settings, from flags, the environment, a file, and defaults.
 *
 * A program has one table of settings. From it come the keys of the file, the
 * variables, the flags, the help and the checks.
 *
 * (1) A flag goes before the environment, that before the file, and that before
 *     the default, whatever is read first.
 * (2) Nothing is guessed. An unknown key or flag, a key twice in the file, a
 *     value that does not fit: each is refused with where it stands, also if
 *     something stronger would have hidden it.
 * (3) Secrets are not settings: a setting may be the path of a file with one.
 *
 * File: lines of `key = value`. What follows a '#' at the start of a line or
 * after a blank is a comment. Values stand as they are, without quotes; lists
 * have commas or blanks in between. A path begins with '/' or "~/".
 * Flags: `--key value` or `--key=value`; given twice the last counts, and lists
 * grow. "--" ends them.
 * Which file: --config FILE, or $REEF_CONFIG; else the first of those that
 * paths.h and `system_file` name that is there; never more than one.
 *
 * Thread: owner. */
#ifndef REEF_BASE_CONFIG_H
#define REEF_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum reef_config_type {
	REEF_CONFIG_TEXT,
	REEF_CONFIG_PATH,
	REEF_CONFIG_LIST,     /* texts */
	REEF_CONFIG_SIZE,     /* units.h */
	REEF_CONFIG_DURATION, /* units.h */
	REEF_CONFIG_NUMBER,
	REEF_CONFIG_SWITCH, /* yes, no; on, off; true, false; 1, 0 */
	REEF_CONFIG_CHOICE, /* one of a few words */
};

struct reef_config_setting {
	const char *name;     /* lower case and hyphens */
	const char *variable; /* in the environment */
	enum reef_config_type type;
	const char *value_name;	    /* in the help: "SIZE"; NULL: by type */
	const char *initial;	    /* the default, as text; NULL: none yet */
	uint64_t least, most;	    /* of numbers; most 0: no limit */
	const char *const *choices; /* CHOICE; NULL at the end */
	/* Optional: what is wrong with a text (LIST: with one of them), as in
	 * "is not an address"; NULL: nothing. */
	const char *(*check)(const char *text);
	/* Optional, of a LIST: what goes in front of a text that leaves it out,
	 * as "tcp:" of an address; "": nothing. */
	const char *(*prefix)(const char *text);
	uint32_t uses;	  /* bits: which commands have it as a flag */
	const char *help; /* half a line */
};

/* A flag of one command, which is no setting. A table ends with {0}.
 * value_name is words with '|' between them where it takes one of these; FILE,
 * DIR or PATH where it takes a path; NULL: it takes no value. Shells complete
 * it by that. */
struct reef_config_flag {
	const char *name;
	const char *value_name;
	const char *help;
	bool *given;	    /* set to true; may be NULL */
	const char **value; /* set to its value, which is argv's; may be NULL */
};

enum reef_config_source {
	REEF_CONFIG_DEFAULT,
	REEF_CONFIG_FILE,
	REEF_CONFIG_ENVIRONMENT,
	REEF_CONFIG_FLAG,
};

struct reef_config_input {
	int argc;      /* argv[0] is the command's name */
	char **argv;   /* outlives the configuration */
	uint32_t uses; /* settings to take as flags */
	const struct reef_config_flag *flags; /* the command's own; or NULL */
	char *const *environment;	      /* NULL: the process's */
	const char *system_file;	      /* NULL: /etc/reef/reef.conf */
};

struct reef_config;

/* The table outlives it. Caller owns *out.  -ENOMEM. */
int reef_config_create(const struct reef_config_setting *settings,
		       uint32_t count, struct reef_config **out);
void reef_config_destroy(struct reef_config *config); /* NULL is fine */

/* Read flags, environment and file, once. With --help among the flags nothing
 * else is read.
 * -EINVAL: something is wrong with them, see error.  -ENOMEM.  Or why the file
 * cannot be read; see error, too. */
int reef_config_load(struct reef_config *config,
		     const struct reef_config_input *input);

/* What was wrong, as one line for people: "reef.conf:3: there is no ..." */
const char *reef_config_error(const struct reef_config *config);

/* The steps of load, one by one. read: lines of a file with this name. */
int reef_config_read(struct reef_config *config, const char *name,
		     const char *text, size_t size);
int reef_config_set(struct reef_config *config, uint32_t setting,
		    const char *text, enum reef_config_source source,
		    const char *where);

/* Complain as if setting's value was wrong: where it came from, its name and
 * the text. Returns -EINVAL. */
__attribute__((format(printf, 3, 4))) int reef_config_refuse(
	struct reef_config *config, uint32_t setting, const char *format, ...);

/* --- what came out; texts are good until the next load, set or destroy --- */

/* SIZE: bytes; DURATION: ns; NUMBER; SWITCH: 0, 1; CHOICE: its index. 0 if it
 * has no value. */
uint64_t reef_config_number(const struct reef_config *config, uint32_t setting);
/* NULL: it has no value. PATH: with the home directory in place of '~'. LIST:
 * all of it, with a blank between them. */
const char *reef_config_text(const struct reef_config *config,
			     uint32_t setting);
uint32_t reef_config_count(const struct reef_config *config, uint32_t setting);
/* One item of a LIST. */
const char *reef_config_item(const struct reef_config *config, uint32_t setting,
			     uint32_t index);
/* The name of a setting in the table. */
const char *reef_config_name(const struct reef_config *config,
			     uint32_t setting);
enum reef_config_source reef_config_source(const struct reef_config *config,
					   uint32_t setting);

/* Which of the wishes were among the flags. */
bool reef_config_wants_help(const struct reef_config *config);
bool reef_config_wants_check(const struct reef_config *config);
/* What was left of argv: neither a flag nor its value. */
uint32_t reef_config_rest_count(const struct reef_config *config);
const char *reef_config_rest(const struct reef_config *config, uint32_t index);
/* The file that was read; NULL: none. */
const char *reef_config_file(const struct reef_config *config);

/* Every setting in force and where it came from, in the form of a file. */
void reef_config_print(const struct reef_config *config, FILE *stream);
/* Every flag that a command takes: its own, the settings with these uses, and
 * --config, --check-config and --help. A flag is borrowed until each returns.
 */
void reef_config_each_flag(const struct reef_config *config,
			   const struct reef_config_input *input,
			   void (*each)(void *context,
					const struct reef_config_flag *flag),
			   void *context);
/* One line of help; the context of each_flag is its stream. */
void reef_config_help_flag(void *stream, const struct reef_config_flag *flag);

/* --- names that were meant --- */

/* How many letters a slip of the fingers away one name is from another: letters
 * changed, missing, extra, or swapped with the next. */
uint32_t reef_config_distance(const char *a, const char *b);
/* True if a name of that distance may be what was meant. */
bool reef_config_is_near(const char *a, const char *b);

#endif
