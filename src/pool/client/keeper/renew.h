/* renew.h - the lease, and R8's epochs as the keeper saw them last.
 *
 * Thread: any, unless it says otherwise. */
#ifndef REEF_POOL_CLIENT_KEEPER_RENEW_H
#define REEF_POOL_CLIENT_KEEPER_RENEW_H

#include <stdint.h>

struct client_member;
struct reef_client;

/* Let epochs pass quickly until safe_epoch is at least `epoch`. */
void client_hurry(struct reef_client *client, uint64_t epoch);
/* Let them, and wait until safe_epoch is past `epoch`.  -ETIMEDOUT.  Else: why
 * the session has ended. */
int client_epoch_wait(struct reef_client *client, struct client_member *member,
		      uint64_t epoch, uint64_t timeout_ns);

/* The oldest epoch that a handle has pinned (handle.c (3)) or that a lost link
 * holds on to (settle.c), else the newest: what may be announced. Thread: the
 * keeper's. */
uint64_t client_oldest_epoch(struct reef_client *client);
/* A fiber of the keeper: renews the lease until the session is over. */
int client_renew_main(void *arg);

#endif
