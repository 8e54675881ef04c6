/* docs.h - what COMMAND tells about commands, beside command.h.
 *
 * (1) categories: those that do not follow from a command's flags.
 * (2) keys: "FLAG ... INDEX,LAST,STEP; ..." as in "RW access 1,0,1": where each
 *     group of keys begins, its last one counted from there (negative: from the
 *     end of the request), every how many arguments there is one, and what the
 *     command does with them.
 * (3) arguments: a list, separated by blanks, of
 *	NAME<TYPE>=KEYS/TOKEN@SINCE!DEPRECATED?*+{ARGUMENTS}
 *     where only NAME must be there. No TYPE: a word, which is TOKEN. =KEYS:
 *     which of `keys`. ?: optional, *: several, +: each with its TOKEN.
 *
 * Thread: the tables: any; a reply: its owner. */
#ifndef REEF_GATEWAY_REDIS_COMMANDS_DOCS_H
#define REEF_GATEWAY_REDIS_COMMANDS_DOCS_H

#include "gateway/redis/protocol/reply.h"

/* NULL: there is nothing to tell; complexity: O(1). */
struct redis_docs {
	const char *name; /* with its parent's: "object|freq" */
	const char *summary, *since, *group, *complexity;
	const char *categories, *arguments, *keys, *keys_note, *tips;
	const char *deprecated, *replaced_by;
};

/* Ends with a name of NULL; a command's subcommands follow it. */
extern const struct redis_docs redis_docs[];

/* Answer a list of arguments in that notation, `size` bytes long. */
void redis_reply_arguments(struct redis_reply *reply, const char *at,
			   size_t size);

#endif
