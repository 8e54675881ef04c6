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
	uint32_t node, link_number;
	uint64_t number;
};
extern const struct client_job_ops client_touch_ops;

/* See to it that the node's link is up.  -EAGAIN: something has changed
 * meanwhile: check again.  Else: errors of reef_connect. */
int client_node_link(struct reef_client *client, struct client_node *node);
/* A node's link is down, or to an earlier start of it: it goes. */
void client_node_unlink(struct reef_client *client, struct client_node *node);
/* The same for a node that is gone: what is under way there ends at once, so
 * that the grace does not last until the fabric notices by itself. */
void client_node_sever(struct reef_client *client, struct client_node *node);

#endif
