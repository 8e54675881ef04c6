/* settle.h - links that were lost while something was under way on them, until
 * nothing of it can happen any more. How: settle.c.
 *
 * Thread: the keeper's, unless it says otherwise; a job is its handle's until
 * it is started. */
#ifndef REEF_POOL_CLIENT_KEEPER_SETTLE_H
#define REEF_POOL_CLIENT_KEEPER_SETTLE_H

#include "pool/client/keeper/job.h"

struct client_node;

#define CLIENT_LOST_MAX 16 /* links in a job */

/* A link that was lost with a WRITE, CAS or FAA under way. */
struct client_lost_link {
	uint32_t node, number;
	/* The result: what was under way has happened, or never will. */
	bool is_settled;
};

/* Settle links, as long as there is patience. 0: all are settled.  -ETIMEDOUT:
 * not all; the keeper goes on with them.  Else: why the session has ended, or
 * the keeper. */
struct client_settle_job {
	struct client_job job;
	uint32_t count;
	struct client_lost_link links[CLIENT_LOST_MAX];
};
extern const struct client_job_ops client_settle_ops;

/* The oldest epoch at which a link that is not settled was lost; UINT64_MAX:
 * all are settled. */
uint64_t client_unsettled_epoch(const struct reef_client *client);
/* Links to the node numbered up to that are settled. */
void client_settled(struct reef_client *client, struct client_node *node,
		    uint32_t number);
/* Have the last link to a node settled, though nobody has told of anything that
 * was under way on it. */
void client_link_settle(struct reef_client *client, struct client_node *node);
/* A fiber of the keeper: goes on with links until they are settled. */
int client_settle_main(void *arg);

#endif
