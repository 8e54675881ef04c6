/* touch.h - links to nodes, and extents attached over them, made when somebody
 * needs them.
 *
 * Thread: the keeper's; a job is its handle's until it is started. */
#ifndef REEF_POOL_CLIENT_KEEPER_TOUCH_H
#define REEF_POOL_CLIENT_KEEPER_TOUCH_H

#include "pool/client/keeper/job.h"

struct client_node;

/* Make an extent usable: attach it over a link to its node. */
struct client_touch_job {
	struct client_job job;
	uint32_t extent;
	/* If an access failed there: the error, 0: none; on which node; and the
	 * numbers of the remote and the link that it used. */
	int why;
	uint32_t node;
	uint64_t number, link_number;
	/* The result: what was in doubt there has happened, or never will. */
	bool is_settled;
};
extern const struct client_job_ops client_touch_ops;

/* A node's link is down, or to an earlier start of it: it goes. */
void client_node_unlink(struct reef_client *client, struct client_node *node);

#endif
