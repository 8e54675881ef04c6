/* connection.h - what HELLO and CLIENT share.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_COMMANDS_CONNECTION_H
#define REEF_GATEWAY_REDIS_COMMANDS_CONNECTION_H

#include "gateway/redis/commands/table.h"

/* Bytes of a name, or of another text that a client says of itself: they are in
 * every CLIENT LIST. */
#define REDIS_NAME_MAX 256u

/* What is wrong with a client's name, as an error to answer; NULL: nothing. */
const char *redis_name_fault(const struct redis_bytes *name);

/* Set one of a client's texts; empty: none. False: no memory. */
bool redis_text_set(char **text, const struct redis_bytes *bytes);

#endif
