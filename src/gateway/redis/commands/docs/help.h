/* help.h - the answers of HELP.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_COMMANDS_HELP_H
#define REEF_GATEWAY_REDIS_COMMANDS_HELP_H

#include "gateway/redis/commands/table.h"

/* The lines about the subcommands of the command that runs, ended by NULL;
 * what is the same for all commands comes by itself. */
void redis_reply_help(struct redis_client *client, const char *const *lines);

#endif
