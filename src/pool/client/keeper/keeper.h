/* keeper.h - a client, and its keeper: the thread (in simulation: the fibers)
 * that has the session and all links.
 *
 *   keeper.c   the broker's link: join, come back; every call
 *   renew.c    the lease, and R8's epochs (renew.h)
 *   view.c     spaces, extents and nodes, as the broker told (view.h)
 *   touch.c    links to nodes, attached extents (touch.h)
 *   job.c      what handles ask of it (job.h)
 *   grace.c    when a link or a remote may go (grace.h)
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

#include "base/log.h"
#include "base/random.h"
#include "base/sched.h"
#include "fabric/provider.h"
#include "pool/client/client.h"
#include "pool/keys.h"
#include "pool/rpc.h"

#include <pthread.h>

#define CLIENT_MILLISECOND UINT64_C(1000000)
#define CLIENT_SECOND UINT64_C(1000000000)
#define CLIENT_PATIENCE_NS (30 * CLIENT_SECOND)

struct client_extent;
struct client_job;
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
/* Until somebody wakes, or timeout; the caller looks again.  -REEF_EHOSTDEAD:
 * and nothing else. */
int client_wait(struct client_waiters *waiters, uint64_t timeout_ns);
void client_wake(struct client_waiters *waiters);

/* --- the client --- */

struct reef_client {
	struct reef_client_options options;
	struct reef_credential credential;
	char *broker, *name, *inbox_host;
	_Atomic uint32_t refs;
	uint32_t forks;
	struct reef_random random; /* [k] */

	pthread_mutex_t lock;
	pthread_t thread;
	bool threaded;
	struct reef_sched *sched;
	struct reef_fiber *fiber; /* the keeper's, in simulation */

	_Atomic int joined;	  /* 1: not yet; else what came of it */
	_Atomic int over;	  /* 0, -REEF_EFENCED, or why it ended */
	bool over_told;		  /* [k] to its fibers */
	_Atomic bool present;	  /* the broker's link is up */
	_Atomic uint64_t version; /* of the view; see handle.c */
	_Atomic uint32_t phase;	  /* see grace.c */
	_Atomic uint32_t beats;	  /* of renew.c: another one, time has passed */
	_Atomic uint64_t reclaim_epoch, safe_epoch;
	/* Hurry until safe_epoch is that; told: the keeper looks at it. */
	_Atomic uint64_t hurry_epoch;
	_Atomic bool hurry_told;
	_Atomic uint32_t reclaimers; /* handles that wait for safe_epoch */
	_Atomic uint64_t heaps_made, inboxes_made;
	_Atomic uint64_t ttl_ns; /* of the session, as the broker said last */

	/* locked */
	struct reef_queue *wake; /* the keeper's; NULL: it has none */
	_Atomic bool stopping;
	struct client_job *jobs, **jobs_tail;
	struct reef *handles;
	/* This machine, as it stands in addresses of each fabric; "": nobody
	 * knows yet. */
	char hosts[REEF_MESH_MAX][REEF_HOST_MAX + 1];
	struct client_space *spaces;
	struct client_extent **extents; /* hashed by number */
	uint32_t extents_count, extents_room;

	/* [k] */
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_peer *peer; /* the broker; NULL: none yet */
	struct reef_remote *table, *renewal;
	uint32_t session, provisional, counter, sequence, place;
	struct reef_key session_key;
	uint64_t extent_size, pool, broker_epoch, notice;
	uint64_t granted_epoch;	     /* of the broker that knows our spaces */
	uint64_t skip_from, skip_to; /* epochs; see take_epochs */
	uint64_t hurry_ns, ask_ns;   /* how often to renew; renew.c */
	bool hurry_seen, renew_now;
	bool calling; /* a mutating request is under way */
	bool refreshing;
	uint64_t numbers;  /* given to links and remotes */
	uint64_t collects; /* rounds; recover.c */
	uint32_t lookers;  /* fibers that hold on to spaces or extents */
	struct client_node *nodes;
	struct client_retired *retired, **retired_tail;
	uint32_t fibers;
	struct client_waiters changed; /* link, view, fibers: anything */
	struct reef *inner;	       /* the keeper's own handle */
};

/* Start a fiber of the keeper; counted. */
int client_spawn(struct reef_client *client, int (*fn)(void *arg), void *arg);
void client_fiber_end(struct reef_client *client);

static inline uint64_t client_patience_ns(const struct reef_client *client)
{
	return client->options.patience_ns ? client->options.patience_ns
					   : CLIENT_PATIENCE_NS;
}

/* 0, or why every call fails now. Thread: any. */
static inline int client_over(const struct reef_client *client)
{
	return atomic_load_explicit(&client->over, memory_order_acquire);
}

/* Say that the session has ended, for good. Thread: any. */
void client_session_end(struct reef_client *client, int why);

/* --- the broker's link --- */

int client_join(struct reef_client *client);
int client_link_main(void *arg);
/* Give the broker's link up; or only if it is down. */
void client_link_drop(struct reef_client *client);
void client_link_check(struct reef_client *client);
void client_leave_pool(struct reef_client *client);
/* Ask the broker, again until it answers or patience_ns have passed (0: only if
 * it is there now). */
int client_call(struct reef_client *client, uint16_t kind, bool mutating,
		const struct reef_body *body, struct reef_answer *answer,
		uint64_t patience_ns);
/* Put a token's text into a request.  -EACCES: it is none. Thread: any. */
int client_fill_token(const char *text, struct reef_ask_space_open *ask);
int client_session_check_job(struct reef_client *client,
			     struct client_job *job);
void client_note_received(void *context, const struct reef_request *note);
void client_peer_closed(void *context, struct reef_peer *peer, int reason);

/* --- hosts.c --- */

/* This machine's hosts, as a fresh link to one of these addresses tells. */
void client_hosts_learn(struct reef_client *client,
			const struct reef_link *link, const char *addresses);

#endif
