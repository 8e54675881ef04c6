/* touch.h - links to nodes, and extents attached over them, made when somebody
 * needs them.
 *
 * Thread: the keeper's. */
#ifndef REEF_POOL_CLIENT_KEEPER_TOUCH_H
#define REEF_POOL_CLIENT_KEEPER_TOUCH_H

struct client_job;
struct client_node;
struct reef_client;

/* job: extent; if one was refused there: link, remote, why. */
int client_touch_job(struct reef_client *client, struct client_job *job);
/* A node's link is down, or to an earlier start of it: it goes. */
void client_node_unlink(struct reef_client *client, struct client_node *node);

#endif
