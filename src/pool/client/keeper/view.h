/* view.h - spaces, extents and nodes, as the broker told of them.
 *
 * (1) What a handle may have in its cache changes together with the client's
 *     `version`, under its lock.
 * (2) An extent that is LOST stays so. One that was given back is remembered
 *     for a while only, or a view would grow with everything that ever was:
 *     until CLIENT_REMOVED_KEPT others were, so that a row which comes late
 *     does not bring it back. Should one do so all the same, its node refuses
 *     accesses, and then all rows are asked for (touch.c).
 * (3) What is known of a node is never replaced by what was before. Its lives
 *     have no order of their own; but each ends with a new pool epoch, and the
 *     next one begins after that. So a row of an older pool epoch is late, and
 *     so is one of another life that is gone in this one.
 *
 * Thread: the keeper's; a field marked [l] is changed by the keeper under the
 * client's lock and read by anyone under it. */
#ifndef REEF_POOL_CLIENT_KEEPER_VIEW_H
#define REEF_POOL_CLIENT_KEEPER_VIEW_H

#include "pool/client/heap/heap.h"
#include "pool/client/keeper/keeper.h"

#define CLIENT_REMOVED_KEPT 64u

struct client_node { /* [k] */
	uint32_t id;
	uint64_t incarnation, domain;
	bool is_gone;	       /* no link is made to it: acknowledge.c */
	uint64_t pool_epoch;   /* of the row that this is from */
	struct reef_key proof; /* of this session, for it */
	char *addresses;
	struct reef_peer *peer; /* NULL: no link */
	struct reef_link *link; /* of peer, also when it is down */
	uint32_t number;	/* of the link; each has a higher one */
	uint32_t hellos;	/* the last number that a hello had */
	uint32_t door;		/* which of its addresses was reached */
	bool connecting;
	/* settle.c: links that were lost */
	uint32_t doubt, settled;
	uint64_t doubt_epoch, doubt_ns;
	bool relinking;
	struct client_node *next;
};

/* A heap of this session in a space: a handle's, or in the space's list. */
struct client_heap {
	struct reef_heap *heap;
	uint32_t lost_seen; /* how many of the space's lost it has forgotten */
	uint32_t idle;	    /* times that it was collected since its last use */
	uint64_t collected; /* the last round that had it; recover.c */
	struct client_heap *next;
};

struct client_space {
	uint32_t id;
	_Atomic uint8_t rights; /* [l] of the session */
	uint8_t copies;		/* of its memory that are wanted: 1 or 2 */
	bool scratch;
	uint32_t user;	    /* whose it was when it was opened */
	char *name, *token; /* "" if none */
	uint32_t refs;	    /* how often handles have it open; locked */
	_Atomic bool gone;  /* [l] dropped, or taken away */
	/* [k] of the space, as the broker counts, told to these rights */
	uint64_t version;
	uint8_t version_rights;
	bool refreshing;    /* [k] */
	bool recovering;    /* [k] handle/recover.c */
	uint64_t refreshes; /* [k] refreshes that were begun */
	uint64_t refreshed; /* [k] the number of the last that went well */
	int refresh_status; /* [k] of the last refresh */
	/* [l] numbers of lost extents, in the order in which they were lost */
	uint32_t *lost, lost_count, lost_room;
	struct client_heap *heaps;  /* [l] those that no handle has */
	struct client_heap *tender; /* [k] the keeper's own; tend.c */
	bool is_used;		    /* [l] a handle has had a heap there */
	/* Addresses of blocks that are prepared for long; under the lock. */
	uint64_t *staged;
	uint32_t staged_count, staged_room;
	uint64_t page;	  /* [l] the session's page; 0: none yet */
	bool page_making; /* [l] a handle is making it */
	/* Bytes in the limbo of its heaps, of all handles; any thread. */
	_Atomic uint64_t waiting;
	struct client_space *next;
};

struct client_extent { /* [l] */
	uint32_t extent, ordinal, epoch, node;
	/* The extent that arbitrates (copies.h); 0: it does. That changes only
	 * with keys and epoch, so who is let in by the keys has the twin that
	 * goes with them. */
	uint32_t twin;
	/* Which memory it is, of all that the pool has had: the lower bits of
	 * its id. A failover changes it, a move does not. */
	uint32_t copy;
	bool is_twin; /* it arbitrates: nobody allocates there */
	uint8_t state;
	bool listed;  /* [k] the refresh under way has told of it */
	bool removed; /* LOST, because its space gave it back: nothing was there
		       */
	uint64_t removal; /* how many had been by then, with it */
	uint64_t size;
	uint64_t keys[REEF_DOORS_MAX];
	struct client_space *space;
	struct reef_link *link; /* NULL: not attached; then so is remote */
	struct reef_remote *remote;
	uint64_t number;      /* of the remote; each has another */
	uint32_t link_number; /* the link's, among those to its node */
	bool attaching;	      /* [k] */
};

/* NULL: the view has no such extent. Thread: any, locked. */
struct client_extent *client_extent_find(struct reef_client *client,
					 uint32_t number);
struct client_node *client_node_find(struct reef_client *client, uint32_t id);
/* Take in rows about a space. *last (may be NULL): the last extent in them. */
int client_view_apply_rows(struct reef_client *client,
			   struct client_space *space,
			   const struct reef_body *body,
			   struct client_extent **last);
/* Ask the broker what changed in a space; patience as client_call. */
int client_view_refresh(struct reef_client *client, struct client_space *space,
			uint64_t patience_ns);
int client_view_refresh_all(struct reef_client *client, uint64_t patience_ns);
void client_view_refresh_soon(
	struct reef_client *client); /* in the background */
/* The view has changed: handles are to drop what they know of it. Thread: any,
 * locked. */
void client_view_bump(struct reef_client *client);
/* An extent of a space was given back: accesses there are -EFAULT. */
void client_view_remove_extent(struct reef_client *client, uint32_t number);
/* A space was dropped, or the session may not have it any more: its extents are
 * LOST. */
void client_view_lose_space(struct reef_client *client,
			    struct client_space *space);
/* Free a space's extents. Locked.  -ENOMEM: it has them still. */
int client_view_forget_extents(struct reef_client *client,
			       const struct client_space *space);
/* Free a space that is in no list, with its heaps. */
void client_space_free(struct client_space *space);
void client_view_free(struct reef_client *client);

#endif
