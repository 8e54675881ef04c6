/* view.h - spaces, extents and nodes, as the broker told of them.
 *
 * (1) What a handle may have in its cache changes together with the client's
 *     `version`, under its lock.
 * (2) An extent that is LOST stays so.
 *
 * Thread: the keeper's; a field marked [l] is changed by the keeper under the
 * client's lock and read by anyone under it. */
#ifndef REEF_POOL_CLIENT_KEEPER_VIEW_H
#define REEF_POOL_CLIENT_KEEPER_VIEW_H

#include "pool/client/heap/heap.h"
#include "pool/client/keeper/keeper.h"

struct client_node { /* [k] */
	uint32_t id;
	uint8_t state;
	uint64_t incarnation, domain;
	char *addresses;
	struct reef_peer *peer; /* NULL: no link */
	struct reef_link *link; /* its, also when it is down */
	uint64_t number;	/* of the link; never used again */
	uint32_t door;
	bool connecting;
	struct client_node *next;
};

struct client_heap {
	struct reef_heap *heap;
	uint32_t lost_seen; /* of the space's */
	uint32_t idle;	    /* times that it was collected since it was used */
	uint64_t collected; /* in which round last; recover.c */
	struct client_heap *next;
};

struct client_space {
	uint32_t id;
	_Atomic uint8_t rights; /* [l] what the session may */
	uint8_t keeping;
	bool scratch;
	char *name, *token; /* "" if none */
	uint32_t refs;	    /* [l] open in handles; by anyone */
	_Atomic bool gone;  /* [l] dropped, or taken away */
	uint64_t version;   /* [k] */
	bool refreshing;    /* [k] */
	uint64_t refreshes; /* [k] that were begun */
	uint64_t refreshed; /* [k] which of them was the last that went well */
	int refresh_status; /* [k] of the last */
	uint32_t extents;   /* [l] how many are in the view */
	/* [l] extents that were lost, in the order of that */
	uint32_t *lost, lost_count, lost_room;
	struct client_heap *heaps; /* [l] of closed handles */
	uint64_t page;		   /* [l] 0: not made */
	bool page_making;	   /* [l] */
	struct client_space *next;
};

struct client_extent { /* [l] */
	uint32_t extent, ordinal, epoch, node;
	uint8_t state;
	bool listed; /* [k] by the refresh under way */
	uint64_t size;
	uint64_t keys[REEF_DOORS_MAX];
	struct client_space *space;
	struct reef_link *link; /* both or neither */
	struct reef_remote *remote;
	uint64_t number, link_number; /* of these; never used again */
	bool attaching;		      /* [k] */
};

/* Thread: any, locked. */
struct client_extent *client_extent_find(struct reef_client *client,
					 uint32_t number);
struct client_node *client_node_find(struct reef_client *client, uint32_t id);
/* Take in rows about a space. *last (may be NULL): the last extent told of. */
int client_view_apply_rows(struct reef_client *client,
			   struct client_space *space,
			   const struct reef_body *body,
			   struct client_extent **last);
/* Ask for what changed in a space; patience as client_call. */
int client_view_refresh(struct reef_client *client, struct client_space *space,
			uint64_t patience_ns);
int client_view_refresh_all(struct reef_client *client, uint64_t patience_ns);
void client_view_refresh_soon(
	struct reef_client *client); /* in the background */
/* Handles are to look again. Thread: any, locked. */
void client_view_bump(struct reef_client *client);
int client_space_open_job(struct reef_client *client, struct client_job *job);
int client_space_drop_job(struct reef_client *client, struct client_job *job);
int client_space_close_job(struct reef_client *client, struct client_job *job);
int client_grow_job(struct reef_client *client, struct client_job *job);
void client_view_free(struct reef_client *client);

#endif
