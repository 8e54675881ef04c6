/* handle.h - a handle: what a thread has of a client. How its cache and R8's
 * cohorts work: handle.c.
 *
 *   access.c   reading, writing, tasks
 *   call.c     a list of accesses, from one state to the next (call.h);
 *              window.c: its operations
 *   copies.c   changes of memory that has two copies (copies.h)
 *              copies_near.c: where both are in place
 *   near.h     extents' memory in place
 *   space.c    spaces of a handle (space.h); short.c: short addresses
 *   block.c    blocks in them
 *   name.c     names
 *   recover.c  dead sessions, kinds, the session's page (recover.h)
 *
 * (1) What is in the cache of the current version of the view is not closed
 *     while the handle is inside (client_enter; keeper/grace.c), or in place
 *     (near.h).
 *
 * Thread: owner of the handle, unless it says otherwise. */
#ifndef REEF_POOL_CLIENT_HANDLE_HANDLE_H
#define REEF_POOL_CLIENT_HANDLE_HANDLE_H

#include "base/grace.h"
#include "base/likely.h"
#include "pool/client/keeper/grace.h"
#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/member.h"

#define CLIENT_CACHE 256 /* extents that a handle finds without a lock */

struct client_call;
struct client_copies;
struct inbox_links;
struct inbox_place;
struct open_pool;
struct reef_wake;
struct reef_watch;

struct client_entry {
	uint32_t extent; /* 0: empty */
	uint32_t node, link_number;
	uint8_t rights;	       /* 0 where there are copies: */
	uint8_t copied_rights; /* so nobody changes one of them alone */
	uint32_t twin; /* the extent that arbitrates; 0: there are no copies */
	uint32_t copy; /* as the extent's */
	uint64_t size;
	uint64_t number;
	struct reef_queue *queue;
	struct reef_link *link;
	/* The extent that may be read or written in place, so that one compare
	 * tells whether an access may. None: a number that belongs elsewhere in
	 * the cache, and so is never compared with (0 could be). */
	uint32_t near_read, near_write;
	uint32_t near_seen; /* as near_read, of a primary too: near.h (4) */
	struct reef_remote *remote;
};

/* What a handle asks of its inbox when it is closed. */
struct client_inbox_ops {
	void (*close)(struct reef *reef); /* while everything works */
	void (*free)(struct reef *reef);  /* after the port is closed */
};

/* A handle's inbox, and its links to others': the room inbox. */
struct client_inbox {
	const struct client_inbox_ops *ops; /* NULL: never used */
	bool is_listening;
	struct reef_random random;
	struct inbox_place *places; /* its own, in several spaces */
	char *addresses;	    /* where it listens */
	struct reef_watch *watches, *cursor;
	struct inbox_links *links; /* NULL: none yet */
	/* What it sent to itself: a ring. */
	struct reef_wake *local;
	uint32_t local_first, local_count;
};

/* Objects that a service above keeps with a handle for their next use. */
struct client_spares {
	void *first;
	uint32_t count;
	uint64_t used;		   /* the service's: counts them */
	void (*free)(void *first); /* NULL: there are none */
};

struct reef {
	struct reef_client *client;
	struct open_pool *pool; /* of reef_open; NULL: the client's owner's */
	uint64_t seen; /* version of the view that the cache is of; 0: none */
	struct reef_queue *near; /* the queue with memory in place, or NULL */
	bool pending;		 /* headers may wait in a heap */
	bool has_copies; /* some memory that it came upon has two copies */
	struct client_member member; /* as the keeper sees it */
	uint32_t forks;
	struct reef_sched *sched;
	struct reef_port *port;
	struct reef_space *spaces;
	struct client_call *calls_free[2]; /* for few accesses, for many */
	struct client_copies *copies_free[2];
	struct client_call *tasks;
	uint32_t tasks_count;
	int epoll_fd; /* -1: none yet */
	/* R8: who is inside reef_enter, in cohorts, whose pins are the
	 * member's; see handle.c. */
	uint32_t number; /* names the handle in words of fibers; unique */
	uint32_t own;	 /* the word of a caller outside fibers */
	uint32_t young;	 /* the cohort that is joined now */
	uint32_t entered[CLIENT_COHORTS];
	struct client_inbox inbox;
	struct client_spares txns;
	struct client_entry cache[CLIENT_CACHE];
	/* Where the twins of entries in the cache are in place; NULL: not. */
	struct reef_remote *twins[CLIENT_CACHE];
};

/* Nothing that the view names is closed between client_enter and client_leave.
 * Returns the phase, for client_leave. */
static inline uint32_t client_enter(struct reef *reef)
{
	return reef_crowd_enter(&reef->member.calls, &reef->client->phase);
}

static inline void client_leave(struct reef *reef, uint32_t phase)
{
	reef_crowd_leave(&reef->member.calls, phase);
}

/* As reef_enter and reef_leave, for something of the handle's own that is not
 * the calling fiber's. Returns the cohort, for client_unpin. */
uint32_t client_pin(struct reef *reef);
void client_unpin(struct reef *reef, uint32_t cohort);
/* True if the caller may be inside reef_enter: it is, or somebody is in the
 * third cohort, whose members nobody knows (handle.c). */
bool client_may_be_inside(const struct reef *reef);
/* True if the caller is inside reef_enter, for certain. */
bool client_is_inside(const struct reef *reef);

static inline bool client_is_forked(const struct reef *reef)
{
	return unlikely(reef->forks != reef_fork_generation());
}

/* True if the cache is of the view as it is now; never once the session is
 * over. Inside, or in place. */
static inline bool client_is_current(const struct reef *reef)
{
	return atomic_load_explicit(&reef->client->version,
				    memory_order_relaxed) == reef->seen;
}

int client_handle_open(struct reef_client *client, struct reef_sched *sched,
		       struct reef **out);
/* Close and free a handle; the reference to the client stays. */
void client_handle_close(struct reef *reef);
/* 0: the handle may be used by the caller, and its session has not ended. Else:
 * the error to return. */
int client_handle_check(struct reef *reef);
/* Take the new view: empty the cache, and let heaps forget lost extents. */
void client_handle_refresh(struct reef *reef);
/* Find an extent's entry in the cache, or make it from the view. Inside.
 * -EAGAIN: the keeper has to attach the extent first. */
int client_entry_find(struct reef *reef, uint32_t extent,
		      struct client_entry **out);

#endif
