/* grace.h - when a link or a remote that handles may be using can go. How it is
 * done: grace.c.
 *
 * Thread: the keeper's, unless it says otherwise. */
#ifndef REEF_POOL_CLIENT_KEEPER_GRACE_H
#define REEF_POOL_CLIENT_KEEPER_GRACE_H

struct reef_client;
struct reef_peer;
struct reef_remote;

/* A peer or a remote that is taken out of the view, and to be closed. */
struct client_retired {
	struct reef_peer *peer;	    /* or: */
	struct reef_remote *remote; /* of a link that is retired later */
	struct client_retired *next;
};

/* Close a peer, or detach a remote, when no handle can be using it. */
void client_retire_peer(struct reef_client *client, struct reef_peer *peer);
void client_retire_remote(struct reef_client *client,
			  struct reef_remote *remote);
/* Wait until whatever is retired now is closed.  -REEF_EHOSTDEAD.
 * -ECANCELED: the client stops, or its session has ended. */
int client_grace_wait(struct reef_client *client);
/* The fiber that does so; arg is the client. */
int client_grace_main(void *arg);
/* At the end of the client: close all that is retired, without a grace. */
void client_retired_close_all(struct reef_client *client);

#endif
