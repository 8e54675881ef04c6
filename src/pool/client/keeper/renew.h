/* renew.h - the lease, and R8's epochs as the keeper saw them last.
 *
 * Thread: any, unless it says otherwise. */
#ifndef REEF_POOL_CLIENT_KEEPER_RENEW_H
#define REEF_POOL_CLIENT_KEEPER_RENEW_H

#include "pool/client/keeper/job.h"

/* Let epochs pass quickly until safe_epoch is at least `epoch`. */
void client_hurry(struct reef_client *client, uint64_t epoch);
/* Let them, and wait until safe_epoch is past `epoch`.  -ETIMEDOUT.  Else: why
 * the session has ended. */
int client_epoch_wait(struct reef_client *client, struct client_member *member,
		      uint64_t epoch, uint64_t timeout_ns);

/* True if the lease runs, by this machine's clock, counted from before its last
 * renewal that is done, with an eighth to spare: nobody has given up on this
 * session, and nothing was given to others without its knowledge. */
bool client_lease_runs(const struct reef_client *client);
/* Renew the lease until it does so; a struct client_job and nothing else.
 * -REEF_ENOLINK: the broker was away for too long. */
extern const struct client_job_ops client_lease_ops;

/* The oldest epoch that a handle has pinned (handle.c (3)) or that a lost link
 * holds on to (settle.c), else the newest: what may be announced. Thread: the
 * keeper's. */
uint64_t client_oldest_epoch(struct reef_client *client);
/* A fiber of the keeper: renews the lease until the session is over. */
int client_renew_main(void *arg);
/* Tell the broker what was counted since the last renewal, before the session
 * is closed. */
void client_tell_counters(struct reef_client *client);

#endif
