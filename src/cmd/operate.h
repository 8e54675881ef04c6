/* operate.h - what operators' commands share: finding the broker, verbs, and
 * saying what went wrong.
 *
 * Thread: main. */
#ifndef REEF_CMD_OPERATE_H
#define REEF_CMD_OPERATE_H

#include "cmd/cmd.h"
#include "cmd/print/table.h"
#include "pool/keys.h"
#include "pool/operator.h"

/* A verb of a command: `reef space drop NAME`. */
struct verb {
	const char *name, *arguments, *summary;
	uint32_t least, most; /* arguments after the verb */
	int (*run)(struct reef_operator *op, const char *const *arguments,
		   uint32_t count);
};

/* Find the verb, open the operator's link, run it; the exit status. argv[0] is
 * the command's name; about: its help's first lines. The table ends with {0}.
 */
int operate(int argc, char **argv, const char *about, const struct verb *verbs);

/* The same with flags of the command's own. */
int operate_with_flags(int argc, char **argv, const char *about,
		       const struct verb *verbs,
		       const struct reef_config_flag *flags);

/* The settings of the verb that runs. */
const struct reef_settings *operate_settings(void);

/* Open the link that the settings of command `name` tell. -1: go on; otherwise
 * the exit status. */
int operate_connect(const char *name, const struct reef_settings *settings,
		    struct reef_operator **out);

/* The same, without a word. timeout_ns: of each call; 0: as ever. 0, or what
 * went wrong. */
int operate_connect_quietly(const struct reef_settings *settings,
			    uint64_t timeout_ns, struct reef_operator **out);

struct reef_credential;
/* The same, with a credential that is not the settings'. */
int operate_connect_as(const struct reef_settings *settings,
		       const struct reef_credential *credential,
		       struct reef_operator **out);

struct reef;
/* Open the pool that the settings of command `name` tell, as a client. program:
 * what lists of sessions show; NULL: "reef". -1: go on; otherwise the exit
 * status, and an error was printed. */
int operate_open(const char *name, const struct reef_settings *settings,
		 const char *program, struct reef **out);
/* The same, without a word. 0, or what went wrong. */
int operate_open_quietly(const struct reef_settings *settings,
			 const char *program, struct reef **out);

/* Unless this is called again within some seconds, say that command `name`
 * waits for the pool; NULL: it does not any more. */
void operate_tell_waiting(const char *name);

/* Print "reef NAME: ..." and return 1, which a verb returns for "an error was
 * printed". */
__attribute__((format(printf, 2, 3))) int operate_say(const char *name,
						      const char *format, ...);
/* Print "reef NAME: WHAT: why" and return 1. */
int operate_failed(const char *name, const char *what, int rc);

/* Print that the user who asks is at a limit, and at which; what is said after
 * -EDQUOT. 1, or 0: at none that is known, and nothing was printed. */
int operate_limit_said(const char *name, struct reef_operator *op);

/* What enum reef_limit calls them. */
extern const char *const operate_limits[];

/* Save a secret's text to a new file, or print it where `file` is NULL; the
 * text is wiped. 0, or 1: it could not be saved, and that was printed. */
int operate_give_secret(const char *name, char text[REEF_KEY_TEXT_SIZE],
			const char *file);

/* Parse a size that is not 0. 0, or the exit status of a wrong word: an error
 * was printed. */
int operate_size(const char *name, const char *text, uint64_t *out);

/* Find a node, space, session or user by name or number. 0: found.  1: there is
 * none, and that was printed.  Negative: what went wrong. */
int operate_find(struct reef_operator *op, enum reef_row_kind kind,
		 const char *name, uint32_t *out);

/* The same without a word; -ENOENT: there is none. */
int operate_look_up(struct reef_operator *op, enum reef_row_kind kind,
		    const char *name, uint32_t *out);

/* Whether a name of a space is Reef's own, as that of the tree of all files is:
 * commands neither list nor change what has it. */
bool operate_is_own_name(const char *name);
/* Say that a command does not change what has such a name; returns 2. */
int operate_refuse_own_name(const char *command, const char *name);

/* A table for rows, to be printed and destroyed: '<' or '>' in front of each
 * title, '|' between them. */
struct reef_table *operate_table(const char *columns);

/* Print a table of all rows of a kind; add_row gets it as its context. */
int operate_list(struct reef_operator *op, enum reef_row_kind kind,
		 const char *columns,
		 int (*add_row)(void *table, const struct reef_row *row));

/* Words for states and kinds. */
const char *operate_node_state(const struct reef_row_node *row);
/* As people are shown it: "silent" if the broker has no link to it, and has not
 * said yet that it is gone. */
const char *operate_node_text(const struct reef_row_node *row);
/* True if the broker has a link to a node. */
bool operate_is_linked(const struct reef_row_node *row);
const char *operate_session_state(uint8_t state);

/* The same for people: "away" is a session that is alive as far as the broker
 * knows, but has no link to it. Its process may come back, or be dead: who came
 * over tcp and was killed together with the broker is away until its lease runs
 * out. */
const char *operate_session_text(const struct reef_row_session *row);

#endif
