/* docs.h - what COMMAND tells about commands beside table.h: facts about
 * Redis's interface, which clients and proxies go by, with our own words for
 * people.
 *
 * (1) arguments: a list, separated by blanks, of
 *	NAME<TYPE>/TOKEN@SINCE!DEPRECATED?*{ARGUMENTS}
 *     where only NAME must be there. ?: optional, *: several. Instead of
 *     <TYPE>: # an integer, =N a key of group N (2). Without it: a NAME in
 *     capitals is a word to be said as it is, others are strings.
 * (2) keys: what the command does with its keys, as in "RW access update". A
 *     command whose keys are two different things has two groups, "RW access
 *     delete; OW update". Where the keys are is in the table of commands.
 * (3) tips: words; > stands for "request_policy:", < for "response_policy:", ~
 *     for "nondeterministic_output".
 *
 * Thread: the table: any; a reply: its owner. */
#ifndef REEF_GATEWAY_REDIS_COMMANDS_DOCS_H
#define REEF_GATEWAY_REDIS_COMMANDS_DOCS_H

#include "gateway/redis/protocol/reply.h"

/* NULL: there is nothing to tell. */
struct redis_docs {
	const char *name; /* with its parent's: "object|freq" */
	const char *since, *group, *summary, *arguments, *keys, *tips;
	const char *also; /* categories that group and flags do not tell */
	const char *keys_note, *deprecated, *replaced_by;
};

/* Ends with a name of NULL. */
extern const struct redis_docs redis_docs[];

/* Answer a list of arguments in that notation, to its end or a `}`, where it
 * returns. */
const char *redis_reply_arguments(struct redis_reply *reply, const char *at);

#endif
