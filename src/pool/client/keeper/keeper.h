/* keeper.h - a client, and its keeper: the thread (in simulation: the fibers)
 * that has the session and all links.
 *
 *   keeper.c   the broker's link: join, come back; every call
 *   renew.c    the lease, and R8's epochs (renew.h)
 *   acknowledge.c  pool epochs, and up to which one it has let go of what
 *              changed (acknowledge.h)
 *   view.c     spaces, extents and nodes, as the broker told (view.h)
 *   touch.c    links to nodes, attached extents (touch.h)
 *   settle.c   links that were lost with something under way (settle.h)
 *   job.c      what handles ask of it (job.h); space_job.c: about spaces
 *   grace.c    when a link or a remote may go (grace.h)
 *   member.c   what it sees of handles (member.h)
 *   hosts.c    where others reach this machine
 *
 * (1) A field marked [k] is the keeper's alone; [l] is changed by the keeper
 *     under `lock` and read by anyone under it.
 * (2) Fibers of the keeper wait in `changed` for whatever changes, and look
 *     again: nobody says what it was.
 *
 * Thread: the keeper's, unless it says otherwise. */
#ifndef REEF_POOL_CLIENT_KEEPER_KEEPER_H
#define REEF_POOL_CLIENT_KEEPER_KEEPER_H

#include "base/fiber/sched.h"
#include "base/log.h"
#include "base/random.h"
#include "base/ticks.h"
#include "fabric/provider.h"
#include "pool/client/client.h"
#include "pool/client/keeper/job.h"
#include "pool/keys.h"
#include "pool/rpc.h"

#include <pthread.h>

#define CLIENT_MILLISECOND UINT64_C(1000000)
#define CLIENT_SECOND UINT64_C(1000000000)
#define CLIENT_PATIENCE_NS (30 * CLIENT_SECOND)

struct client_extent;
struct client_member;
struct client_node;
struct client_retired;
struct client_space;

/* --- waiting in the keeper --- */

struct client_waiter {
	struct reef_fiber *fiber;
	struct client_waiter *next;
};
struct client_waiters {
	struct client_waiter *first;
};
/* Wait for client_wake, or the timeout; the caller checks again what it waited
 * for.  -REEF_EHOSTDEAD: this simulated host was killed; no other error. */
int client_wait(struct client_waiters *waiters, uint64_t timeout_ns);
void client_wake(struct client_waiters *waiters);

/* --- the client --- */

struct reef_client {
	struct reef_client_options options;
	struct reef_credential *credential; /* a secret */
	char *broker, *name, *inbox_host;
	_Atomic uint32_t refs;
	uint32_t forks; /* reef_fork_generation of the process it is of */
	struct reef_random random; /* [k] */

	pthread_mutex_t lock;
	pthread_t thread;
	bool threaded;
	struct reef_sched *sched;
	struct reef_fiber *fiber; /* the keeper's, in simulation */

	_Atomic int joined;	  /* 1: not yet; else the result of joining */
	_Atomic int over;	  /* 0, -REEF_EFENCED, or why it ended */
	bool over_told;		  /* [k] its fibers were woken to see it */
	_Atomic bool present;	  /* the broker's link is up */
	_Atomic uint64_t version; /* of the view; see handle.c */
	_Atomic uint32_t phase;	  /* see grace.c */
	_Atomic uint32_t beats;	  /* renew.c adds 1 every few seconds */
	_Atomic uint64_t reclaim_epoch, safe_epoch;
	/* Epochs are to pass quickly until safe_epoch is hurry_epoch;
	 * hurry_told: the keeper was woken for that. */
	_Atomic uint64_t hurry_epoch;
	_Atomic uint64_t lacks_epoch; /* as hurry_epoch, of who has no room */
	_Atomic bool hurry_told;
	_Atomic uint32_t reclaimers; /* handles in client_epoch_wait */
	/* As the table says: how often memory was short, and came back; what
	 * will come. */
	_Atomic uint32_t shorts, returns;
	_Atomic uint64_t coming;
	/* When the table was asked for what is known of it; stored last. */
	_Atomic uint64_t looked_ns;
	/* Before that tick (base/ticks.h) the lease runs; 0: ask the clock. */
	_Atomic uint64_t lease_tick;
	_Atomic uint32_t unsettled; /* nodes with a link that is: settle.c */
	_Atomic uint64_t heaps_made, inboxes_made;
	_Atomic bool janitor; /* it keeps no memory, and is asked to recover in
			       * spaces that it has not opened */
	_Atomic uint64_t ttl_ns; /* the lease, as the broker said last */

	/* Under `lock`: */
	struct reef_queue *wake; /* the keeper's; NULL: it has ended */
	_Atomic bool stopping;
	struct client_job *jobs, **jobs_tail;
	struct client_member *members; /* the handles; member.h */
	struct reef_counters counters; /* of handles that were closed */
	/* This machine's host in addresses of each fabric; "": not known. */
	char hosts[REEF_MESH_MAX][REEF_HOST_MAX + 1];
	struct client_space *spaces;
	struct client_extent **extents; /* hashed by number */
	uint32_t extents_count, extents_room;
	uint64_t removals;	/* extents that were removed, ever */
	uint32_t removed_count; /* of them in the view */

	/* [k] */
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_peer *peer; /* the link to the broker; NULL: none */
	struct reef_remote *table, *renewal;
	uint32_t session;     /* 0: none yet; not changed after joining */
	uint32_t provisional; /* the session that a link begins with */
	uint32_t counter;     /* of renewals */
	uint64_t counted_ns;  /* when counters were last told */
	struct reef_tick_speed tick_speed;
	uint32_t sequence;	/* of mutating requests */
	uint32_t place;		/* which of the broker's places is tried */
	uint64_t beat, beat_ns; /* of its table, and when it was new */
	struct reef_key *session_key; /* a secret */
	uint64_t broker_epoch, notice;
	uint64_t granted_epoch; /* broker_epoch when spaces were reopened */
	/* acknowledge.c: pool epochs. The latest that was seen; that all
	 * spaces' rows are of, at least; that is acknowledged, and that the
	 * broker was told of. */
	uint64_t pool_epoch, view_epoch, acknowledged, acknowledged_told;
	uint64_t skip_from, skip_to; /* epochs; see note_epochs */
	uint64_t hurry_ns, ask_ns;   /* pauses between renewals; renew.c */
	bool hurry_seen, renew_now;
	bool calling;	   /* a mutating request is under way */
	bool refreshing;   /* a refresh of all spaces is about to begin */
	uint64_t numbers;  /* given to remotes */
	uint64_t collects; /* rounds; recover.c */
	uint32_t users;	   /* fibers that use spaces and extents unlocked */
	uint32_t giving;   /* fibers that give memory back; renew.c, 5 */
	struct client_node *nodes;
	struct client_retired *retired, **retired_tail;
	uint64_t retired_count, closed_count; /* ever */
	uint32_t fibers;
	struct client_waiters changed; /* link, view, fibers: anything */
	struct reef *inner;	       /* the keeper's own handle */
};

/* Start a fiber of the keeper, which calls client_fiber_end at its end: the
 * keeper waits for all of them. */
int client_spawn(struct reef_client *client, int (*fn)(void *arg), void *arg);
void client_fiber_end(struct reef_client *client);

static inline uint64_t client_patience_ns(const struct reef_client *client)
{
	return client->options.patience_ns ? client->options.patience_ns
					   : CLIENT_PATIENCE_NS;
}

/* 0, or the error of every call, as the session has ended. Thread: any. */
static inline int client_over(const struct reef_client *client)
{
	return atomic_load_explicit(&client->over, memory_order_acquire);
}

/* The session has ended, for good: every call fails with `why` from now on.
 * Thread: any. */
void client_session_end(struct reef_client *client, int why);

/* --- the broker's link --- */

/* Open the session, at whichever of the broker's places answers. */
int client_join(struct reef_client *client);
/* A fiber of the keeper: makes the link anew whenever it is lost. */
int client_link_main(void *arg);
/* Close the link. */
void client_link_drop(struct reef_client *client);
/* Something did not get through: if the link is down, it is made anew. */
void client_link_check(struct reef_client *client);
/* The broker says that it does not speak for the pool: where there are others,
 * the next one is tried. */
void client_broker_leave(struct reef_client *client);
/* Close all links, and the session if the broker is there. */
void client_leave_pool(struct reef_client *client);
/* Ask the broker, again until it answers or patience_ns have passed (0: only if
 * it is there now). */
int client_call(struct reef_client *client, uint16_t kind, bool mutating,
		const struct reef_body *body, struct reef_answer *answer,
		uint64_t patience_ns);
/* Put a token's text into a request.  -EACCES: it is no token. Thread: any. */
int client_fill_token(const char *text, struct reef_ask_space_open *ask);
/* Of struct reef_rpc_options: a note came; a peer is closed. */
void client_note_received(void *context, const struct reef_request *note);
void client_peer_closed(void *context, struct reef_peer *peer, int reason);

/* Read what the table says of another session. */
struct client_check_job {
	struct client_job job;
	uint32_t session;
	enum reef_session_view view; /* the result */
};
extern const struct client_job_ops client_check_ops;

/* --- hosts.c --- */

/* Learn this machine's hosts from a fresh link to one of these addresses. */
void client_hosts_learn(struct reef_client *client,
			const struct reef_link *link, const char *addresses);

#endif
