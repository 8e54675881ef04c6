/* transactions.h - what others must know of a transaction under way.
 *
 * Thread: as redis_thread. */
#ifndef REEF_GATEWAY_REDIS_COMMANDS_TRANSACTIONS_H
#define REEF_GATEWAY_REDIS_COMMANDS_TRANSACTIONS_H

#include "gateway/redis/server/client.h"

/* Note that the client has seen a key with that version (0: it is not there).
 * If it watches the key and the version is another by now, EXEC will not run: a
 * key that came and went again since WATCH looks to EXEC as if nothing had
 * been, so whoever acted on it must not succeed. */
#define REDIS_VERSION_CHANGED UINT64_MAX /* by the client itself */
void redis_transaction_saw(struct redis_client *client, uint32_t db,
			   const struct redis_bytes *key, uint64_t version);
/* How many commands wait for EXEC, and their bytes; -1: there is no
 * transaction. */
int64_t redis_transaction_size(const struct redis_client *client,
			       uint64_t *bytes);

#endif
