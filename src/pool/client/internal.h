/* internal.h - the parts of a client, to each other.
 *
 *   client.c    create, the keeper's thread, jobs
 *   keeper.c    the broker's link: join, come back; every call
 *   renew.c     the lease, and R8's epochs
 *   view.c      spaces, extents and nodes, as the broker told
 *   touch.c     links to nodes, attached extents
 *   grace.c     when a link or a remote may go
 *   handle.c    handles, their cache, R8
 *   call.c      a list of accesses, from one state to the next
 *   access.c    reading, writing, tasks
 *   space.c     spaces and blocks of a handle
 *   name.c      names
 *   inbox.c     messages between handles; inbox/send.c, inbox/block.c
 *   short.c     short addresses
 *   recover.c   dead sessions, kinds, the session's page
 *   open.c      targets; one client per pool and user; embedded.c
 *
 * Thread: [k] is the keeper's alone; [l] is changed by the keeper under `lock`
 * and read by anyone under it; [h] is its handle's. */
#ifndef REEF_POOL_CLIENT_INTERNAL_H
#define REEF_POOL_CLIENT_INTERNAL_H

#include "base/log.h"
#include "base/random.h"
#include "base/sched.h"
#include "fabric/provider.h"
#include "pool/client/client.h"
#include "pool/client/heap/heap.h"
#include "pool/keys.h"
#include "pool/rpc.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define CLIENT_MILLISECOND UINT64_C(1000000)
#define CLIENT_SECOND UINT64_C(1000000000)
#define CLIENT_PATIENCE_NS (30 * CLIENT_SECOND)

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

/* --- the view --- */

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

/* --- jobs: what a handle asks of the keeper --- */

struct client_job {
	int (*run)(struct reef_client *client, struct client_job *job); /* [k]
									 */
	struct reef *reef; /* who waits; NULL: nobody */
	_Atomic bool done;
	int status;
	_Atomic uint32_t refs; /* who waits, and the keeper */
	/* what for, and what came of it */
	uint16_t kind;
	bool mutating;
	/* touch: what the memory said, and what was used there */
	int why;
	uint32_t node;
	uint64_t number, link_number;
	uint32_t extent, flags;
	uint64_t size;
	struct client_space *space;
	struct reef_body body;
	struct reef_answer answer;
	char *texts[2];
	struct client_job *next;
};

/* --- the client --- */

struct client_retired {
	struct reef_peer *peer;	    /* or: */
	struct reef_remote *remote; /* of a link that is retired later */
	struct client_retired *next;
};

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
void client_destroy(struct reef_client *client);

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

/* --- renew.c. Thread: any --- */

/* Let epochs pass quickly until safe_epoch is at least that. */
void client_hurry(struct reef_client *client, uint64_t epoch);
/* Do so, and wait until safe_epoch is past that.  -ETIMEDOUT; or why the
 * session is over. */
int client_epoch_wait(struct reef *reef, uint64_t epoch, uint64_t timeout_ns);

/* --- jobs (client.c). Thread: any --- */

struct client_job *client_job_create(int (*run)(struct reef_client *client,
						struct client_job *job));
/* Give it to the keeper. */
void client_job_start(struct reef_client *client, struct reef *reef,
		      struct client_job *job);
void client_job_unref(struct client_job *job); /* NULL is fine */
/* One that was never started. */
void client_job_destroy(struct client_job *job);
/* Start, wait, and return its status; the caller still unrefs it. */
int client_job_run(struct reef *reef, struct client_job *job);

/* --- keeper.c [k] --- */

int client_join(struct reef_client *client);
int client_renew_main(void *arg);
/* Give the broker's link up; or only if it is down. */
void client_link_drop(struct reef_client *client);
void client_link_look(struct reef_client *client);
int client_link_main(void *arg);
void client_leave_pool(struct reef_client *client);
/* Say that the session has ended, for good. Thread: any. */
void client_end(struct reef_client *client, int why);
/* Ask the broker, again until it answers or patience_ns have passed (0: only if
 * it is there now). */
int client_call(struct reef_client *client, uint16_t kind, bool mutating,
		const struct reef_body *body, struct reef_answer *answer,
		uint64_t patience_ns);
int client_look_job(struct reef_client *client, struct client_job *job);
void client_note(void *context, const struct reef_request *note);
void client_peer_closed(void *context, struct reef_peer *peer, int reason);

/* --- view.c [k] --- */

struct client_extent *client_extent_find(struct reef_client *client,
					 uint32_t number); /* locked */
struct client_node *client_node_find(struct reef_client *client, uint32_t id);
/* Take in rows about a space. *last (may be NULL): the last extent told of. */
int client_view_rows(struct reef_client *client, struct client_space *space,
		     const struct reef_body *body, struct client_extent **last);
/* Ask for what changed in a space; patience as client_call. */
int client_view_refresh(struct reef_client *client, struct client_space *space,
			uint64_t patience_ns);
int client_view_refresh_all(struct reef_client *client, uint64_t patience_ns);
void client_view_notice(struct reef_client *client); /* in the background */
/* Handles are to look again. Locked. */
void client_view_bump(struct reef_client *client);
int client_space_open_job(struct reef_client *client, struct client_job *job);
int client_space_drop_job(struct reef_client *client, struct client_job *job);
int client_space_close_job(struct reef_client *client, struct client_job *job);
int client_grow_job(struct reef_client *client, struct client_job *job);
void client_view_free(struct reef_client *client);

/* --- touch.c [k] --- */

/* job: extent; if one was refused there: link, remote, why. */
int client_touch_job(struct reef_client *client, struct client_job *job);
/* A node's link is of no use any more. */
void client_node_unlink(struct reef_client *client, struct client_node *node);

/* --- grace.c --- */

void client_grace_init(void);
extern bool client_strong;
/* [k] To be closed or detached when nobody can be using it. */
void client_retire_peer(struct reef_client *client, struct reef_peer *peer);
void client_retire_remote(struct reef_client *client,
			  struct reef_remote *remote);
int client_grace_main(void *arg); /* [k] */
/* [k] Every thread of the process executes a full barrier, where handles do
 * without (client_strong: they do not). */
void client_grace_barrier(void);
void client_bury(struct reef_client *client); /* [k] all, at the end */

/* --- handles --- */

#define CLIENT_COHORTS 3
#define CLIENT_CACHE 256 /* extents that a handle finds without a lock */

struct client_entry {
	uint32_t extent; /* 0: empty */
	uint32_t node;
	uint8_t rights;
	uint8_t near_rights; /* what may be done in place */
	bool is_inline;	     /* an operation ends where it is posted */
	bool has_words;	     /* and word.h may be used */
	uint64_t size;
	uint64_t number, link_number;
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_remote *remote;
};

struct client_call;
struct open_pool;

/* A handle's inbox, and its links to others' (inbox.c, inbox/send.c). */
struct client_inbox {
	bool is_prepared, is_listening;
	struct reef_random random;
	struct inbox_place *places; /* its own, in several spaces */
	char *addresses;	    /* where it listens */
	struct reef_watch *watches, *cursor;
	struct inbox_links *links; /* NULL: none yet */
	/* What it sent to itself: a ring. */
	struct reef_wake *local;
	uint32_t local_first, local_count;
};

struct reef {
	struct reef_client *client;
	struct open_pool *pool; /* of reef_open; NULL: the client's owner's */
	uint64_t seen;		/* version of the view that the cache is of */
	_Atomic uint32_t inside[2]; /* see grace.c */
	bool pending;		    /* perhaps headers wait in a heap */
	uint32_t forks;
	struct reef_sched *sched;
	struct reef_port *port;
	struct reef_queue *queue; /* where it waits for jobs */
	struct reef_queue *near;  /* that has memory in place; NULL: none */
	struct reef_queue *quick; /* the same, if near.h needs no barriers */
	struct reef_space *spaces;
	struct client_call *calls_free[2], *tasks; /* for few, for many */
	uint32_t tasks_count;
	int epoll_fd; /* -1: none yet */
	/* R8: who is inside reef_enter, in cohorts; see handle.c. */
	uint32_t number; /* in words of fibers; never used again */
	uint32_t own;	 /* the word of who is in no fiber */
	uint32_t young;	 /* whom those who enter join */
	uint32_t entered[CLIENT_COHORTS];
	_Atomic uint64_t pins[CLIENT_COHORTS]; /* UINT64_MAX: nobody */
	struct client_inbox inbox;
	struct reef *next; /* client->handles */
	struct client_entry cache[CLIENT_CACHE];
};

#define CLIENT_SHORTS 64 /* extents whose ordinal is at hand */
/* Of a short address: where the block's header is, in units of 64 bytes. */
#define CLIENT_SHORT_BITS 20
#define CLIENT_BLOCK_HEADER 8u

/* base: the address where its ordinal begins. */
static inline uint64_t client_short_join(uint64_t base, uint64_t short_address)
{
	uint64_t offset = (short_address & ((1u << CLIENT_SHORT_BITS) - 1))
			  << 6;

	return (base | offset) + CLIENT_BLOCK_HEADER;
}

struct client_short {
	uint32_t extent, ordinal;
};

struct reef_space {
	struct reef *reef;
	struct client_space *space;
	struct client_heap *heap; /* NULL: none yet */
	uint64_t ready; /* version of the view by which it may be changed */
	struct client_short shorts[CLIENT_SHORTS];
	uint64_t *bases; /* by ordinal, where it begins; 0: not known */
	uint32_t bases_count;
	struct reef_space *next;
};

/* Between these nothing that the view names is closed. Returns the phase. */
static inline uint32_t client_enter(struct reef *reef)
{
	uint32_t phase = atomic_load_explicit(&reef->client->phase,
					      memory_order_relaxed) &
			 1;
	uint32_t count = atomic_load_explicit(&reef->inside[phase],
					      memory_order_relaxed);

	if (unlikely(client_strong)) {
		atomic_exchange(&reef->inside[phase], count + 1);
	} else {
		atomic_store_explicit(&reef->inside[phase], count + 1,
				      memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
	}
	return phase;
}

/* Release: the partner is have_left in grace.c. */
static inline void client_leave(struct reef *reef, uint32_t phase)
{
	atomic_store_explicit(&reef->inside[phase],
			      atomic_load_explicit(&reef->inside[phase],
						   memory_order_relaxed) -
				      1,
			      memory_order_release);
}

/* May whoever calls be inside reef_enter? */
bool client_is_entered(const struct reef *reef);
/* Is it, for certain? */
bool client_is_inside(const struct reef *reef);

static inline bool client_is_forked(const struct reef *reef)
{
	return unlikely(reef->forks != reef_fork_generation());
}

/* Does the handle know the view as it is now? Inside. */
static inline bool client_is_current(const struct reef *reef)
{
	return atomic_load_explicit(&reef->client->version,
				    memory_order_relaxed) == reef->seen;
}

int client_handle_open(struct reef_client *client, struct reef_sched *sched,
		       struct reef **out);
void client_handle_close(struct reef *reef); /* without the reference */
/* Is this handle fit to be used here and now? 0, or what to return. */
int client_handle_check(struct reef *reef);
/* Take the new view: drop what the cache has, and what heaps have lost. */
void client_handle_look(struct reef *reef);
/* Find an extent, inside. -EAGAIN: the keeper has to be asked. */
int client_handle_find(struct reef *reef, uint32_t extent,
		       struct client_entry **out);

/* --- access.c, call.c --- */

/* As reef_execute; headers that wait are not looked at. */
int client_execute(struct reef *reef, struct reef_access *accesses,
		   uint32_t count);

/* -EINVAL: malformed. */
int client_access_check(const struct reef_access *access);
struct client_call *client_call_take(struct reef *reef, uint32_t count);
void client_call_give(struct reef *reef, struct client_call *call);
void client_call_free(struct client_call *calls);
void client_call_begin(struct client_call *call, struct reef *reef,
		       struct reef_access *accesses, uint32_t count);
/* Go on as far as it goes without waiting. True: it has ended. */
bool client_call_step(struct client_call *call);
/* Wait until step can do something. */
int client_call_wait(struct client_call *call);
int client_call_status(const struct client_call *call);
struct client_call **client_call_next(struct client_call *call);
struct reef_task **client_call_task(struct client_call *call);
/* What is still to be done is not: the first with rc. */
void client_call_fail(struct client_call *call, int rc);
/* Would step do something? */
bool client_call_is_ready(const struct client_call *call);
/* Headers of fresh blocks: put those that fit in front, write the others. */
int client_call_headers(struct client_call *call);

/* --- space.c, recover.c --- */

/* Put a token's text into a request.  -EACCES: it is none. */
int client_fill_token(const char *text, struct reef_body *body);
int client_heap_get(struct reef_space *space);
void client_heap_put(struct reef_space *space, bool all);
int client_collect_main(void *arg); /* [k] */
int client_space_attach(struct reef *reef, struct client_space *space,
			struct reef_space **out);
int client_recover(struct reef_client *client,
		   const struct reef_request *request);
/* [k] The session ends, and nobody uses its heaps any more. */
void client_abandon(struct reef_client *client);
int client_kind_is_live(struct reef_space *space, uint8_t kind,
			uint64_t address);

/* --- inbox.c --- */

/* [k] This machine's hosts, as a fresh link to one of these addresses tells. */
void client_hosts_learn(struct reef_client *client,
			const struct reef_link *link, const char *addresses);
/* While everything works, and after the port is closed. */
void client_inbox_close(struct reef *reef);
void client_inbox_free(struct reef *reef);

/* --- open.c, embedded.c --- */

/* A handle of reef_open is closed. */
void client_pool_release(struct open_pool *pool);

struct embedded;
/* A broker and a node in a thread of their own, lending `size` bytes. broker:
 * room for its address. Caller owns *out.  -EINVAL: too small. */
int embedded_start(uint64_t size, char *broker, size_t broker_max,
		   struct reef_credential *owner, struct embedded **out);
void embedded_stop(struct embedded *embedded); /* NULL is fine */

#endif
