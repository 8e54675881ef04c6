/* internal.h - the parts of a node, to each other.
 *
 *   serve.c         start and stop; who may come in; requests to later.c
 *   later.c         requests that wait, and the fiber that answers them
 *   registration.c  the link to the broker; lives, which follow one another
 *   extent.c        the extents, and the jobs that change them
 *   lend.c          memory taken and given back, exposed and withdrawn
 *   pull.c          an extent's bytes from another node
 *   pressure.c      how much memory the machine has left
 *
 * A *life* is what has one incarnation: a port with its listeners and links, an
 * rpc, the extents. When it ends (registration.c), all of these go; what a
 * holder does not let go of stays in `leaving`, counted and never lent again.
 *
 * Thread: owner. */
#ifndef REEF_POOL_NODE_INTERNAL_H
#define REEF_POOL_NODE_INTERNAL_H

#include "base/fiber/sched.h"
#include "base/log.h"
#include "base/random.h"
#include "fabric/memory.h"
#include "pool/keys.h"
#include "pool/node/keep.h"
#include "pool/node/node.h"
#include "pool/rpc.h"

#include <errno.h>

/* A request waits this long, then the broker is told -ETIMEDOUT; what it began
 * goes on, and who asks again joins it. */
#define NODE_ANSWER_NS UINT64_C(2000000000)
/* At most so many requests wait, and of these so many for what holders may
 * delay: room is left for a CREATE and a FENCE. Further ones are told
 * -ETIMEDOUT at once. */
#define NODE_LATERS_MAX 1024
#define NODE_HELD_LATERS_MAX 768
/* How many requests of a broker are let in at once: all that can wait, and
 * some that find so many waiting. */
#define NODE_REQUESTS_MAX (NODE_LATERS_MAX + 256)
/* Who holds memory, or a link, is looked at after so long, then after twice
 * that, and so on. */
#define NODE_LOOK_MIN_NS UINT64_C(200000)
#define NODE_LOOK_MAX_NS UINT64_C(50000000)
#define NODE_ADDRESSES_MAX 800
#define NODE_NUMBERS 64 /* that are remembered */
#define NODE_NAME_MAX 255

/* --- waiting for something another fiber does --- */

struct node_gate {
	struct node_waiter {
		struct reef_fiber *fiber;
		struct node_waiter *next;
	} * waiters;
};

/* Wait until the gate opens. It may open without a reason for this waiter, who
 * checks for itself.  -ETIMEDOUT.  -REEF_EHOSTDEAD. */
int node_gate_wait(struct node_gate *gate, uint64_t timeout_ns);
/* Let every waiter check. */
void node_gate_open(struct node_gate *gate);

/* --- extents --- */

enum node_extent_state { NODE_MAKING, NODE_OPEN, NODE_CLOSED, NODE_GONE };

enum node_job_kind {
	NODE_IDLE,
	NODE_CREATE,
	NODE_PULL,
	NODE_CLOSE,
	NODE_REOPEN,
	NODE_DROP
};

struct node_job;

/* How a job ended. */
struct node_outcome {
	enum node_job_kind kind;
	int result;
};

struct node_extent {
	uint32_t number, space, epoch;
	uint64_t size; /* asked for */
	uint64_t copy; /* id */
	bool pulled;   /* in this life: it is what its source was */
	enum node_extent_state state;
	struct reef_memory *memory;
	bool exposed; /* all doors have their region */
	struct reef_region *regions[REEF_MESH_MAX]; /* by fabric */
	struct reef_extent_keys keys;
	/* The job that runs; there is one at a time. */
	enum node_job_kind job;
	uint64_t held_ns; /* its job waits for holders since then; 0: not */
	bool asked;	  /* since then somebody asked for it again */
	bool doomed;	  /* a drop was asked for: a pull need not go on */
	bool going;	  /* counted in node->going */
	struct node_outcome ended; /* of the last job */
	uint64_t jobs;		   /* that have ended */
	uint32_t refs;		   /* requests and jobs that use it */
	struct node_extent *next;  /* in `leaving` */
};

struct reef_node {
	struct reef_node_options options;
	struct reef_node_key *key; /* a secret */
	struct reef_sched *sched;
	struct reef_random random;
	char *broker;
	char name[NODE_NAME_MAX + 1];	    /* "": not told yet */
	char addresses[NODE_ADDRESSES_MAX]; /* real ones */
	/* Doors: addresses, in their order. */
	uint32_t doors;
	uint32_t door_fabric[REEF_DOORS_MAX];
	bool fabric_lends[REEF_MESH_MAX]; /* the fabric has a door */
	uint64_t domain;		  /* the memory's */

	/* What belongs to this life. */
	struct reef_port *port;
	struct reef_rpc *rpc;
	uint64_t incarnation;
	bool ending;		      /* jobs and requests give up */
	struct node_extent **extents; /* in the order of their numbers */
	uint32_t extents_count, extents_room;
	uint32_t links; /* accepted */

	/* kept.c: processes that an earlier one of this node let in. */
	struct reef_kept_client *ghosts;
	uint32_t ghosts_count;
	/* extent.c (6) */
	struct node_numbers {
		uint32_t last[NODE_NUMBERS], next;
	} dropped, undropped; /* of what was here, and was not */

	struct node_extent *leaving;
	uint64_t lent, huge;	   /* bytes; of `leaving` too */
	uint64_t going;		   /* bytes of lent that are being given back */
	struct reef_memory *spare; /* of mutant NODE_DIRTY */
	uint32_t jobs, errands;
	struct node_job *held; /* jobs that wait for holders: extent.c */
	/* later.c */
	struct node_later *laters;
	uint32_t laters_count;
	bool attended;	       /* there is a fiber for these, and for `held` */
	struct node_gate gate; /* jobs end, the link changes, life ends */

	/* registration.c */
	bool stopping;
	struct reef_fiber *fiber;
	struct reef_fiber *ready; /* sends READY; NULL: not yet begun */
	struct reef_peer *peer;	  /* to the broker; NULL: none */
	bool peer_lost, peer_stale, peer_closed;
	uint32_t provisional;	  /* session id */
	uint32_t attempts, lives; /* since it was READY */
	uint64_t pool;		  /* its id, as the broker told; 0: not yet */
	uint64_t broker_epoch, ttl_ns;
	uint64_t period_ns; /* of pulses, as the broker wants them */
	/* The start of a broker that it follows (broker/confirm.c, 2), and the
	 * last record that it confirmed. */
	uint64_t followed_start;
	uint64_t confirmed_epoch, confirmed_start, confirmed;
	bool remembers;		 /* nothing was forgotten since then */
	uint32_t id, registered; /* once READY; before */
	int link;		 /* as in the status */
	int logged;		 /* the `link` that the log says */
	bool refused; /* the last broker, for good (registration.c, 7) */
	bool short_of_memory;
};

/* --- serve.c --- */

/* Accept a broker's epoch and remember the highest.  -ESTALE: a later broker
 * was heard already. */
int node_accept_epoch(struct reef_node *node, uint64_t epoch);
/* Listen and serve with a new port and rpc: where options.listen says, or
 * where it did before. */
int node_serve(struct reef_node *node);
/* End this life: jobs, handlers, listeners and links. The port stays, for
 * withdrawing; its owner closes it. */
void node_serve_end(struct reef_node *node);
/* Fence a session on every fabric; begun at once, never waits.  -ETIMEDOUT: not
 * confirmed yet, ask again. */
int node_fence(struct reef_node *node, uint32_t session);
/* End a session's links up to that number (F10) likewise. */
int node_end_links(struct reef_node *node, uint32_t session, uint32_t number);
/* A session id for a link that is no session's. */
uint32_t node_provisional(struct reef_node *node);
/* The identity under which a node comes that copies an extent; epoch: what it
 * will have it under. */
void node_pull_identity(uint32_t extent, uint32_t epoch,
			char out[REEF_IDENTITY_MAX + 1]);

/* --- later.c --- */

/* Begin what a request asks for. 0, or the error to answer with; or REEF_LATER:
 * it is answered when that has ended, or its time is over. */
int node_request_begin(struct reef_node *node,
		       const struct reef_request *request,
		       struct reef_body *answer);
/* Make sure that a fiber looks at what waits: requests, and jobs in `held`.
 * -ENOMEM. */
int node_attend(struct reef_node *node);

/* --- registration.c --- */

/* The fiber that keeps the node registered, from start to stop. */
int node_registration_run(void *arg);
/* Close the link to the broker, if there is any; calls under way end. */
void node_peer_close(struct reef_node *node);

/* --- extent.c --- */

/* Look at a request about an extent, begin what it asks for, and never wait.
 * ended: how the job ended that it waited for; NULL: it waited for none.
 * REEF_LATER: look again when the present job of *awaited has ended.  Else:
 * what to answer, with the keys for those that are told some. */
int node_extent_look(struct reef_node *node, const struct reef_request *request,
		     const struct node_outcome *ended,
		     struct reef_extent_keys *keys,
		     struct node_extent **awaited);
static inline void node_extent_ref(struct node_extent *extent)
{
	extent->refs++;
}
void node_extent_unref(struct node_extent *extent);
/* Look at the holders that jobs wait for, as far as it is time; `give_up` ends
 * all of these jobs. Returns when to look again. */
uint64_t node_held_look(struct reef_node *node, uint64_t now_ns, bool give_up);
/* The extent with the lowest number above that one; NULL: none. */
struct node_extent *node_extent_after(const struct reef_node *node,
				      uint32_t number);
/* Insert an extent that was kept, with its memory, CLOSED.  -EEXIST, -ENOMEM.
 */
int node_extent_adopt(struct reef_node *node, const struct reef_keep_line *line,
		      struct reef_memory *memory);
/* Once life has ended and no job runs: close what is kept for the next one, and
 * make everything else `leaving`. */
void node_extents_end_life(struct reef_node *node);
/* Withdraw the keys of an earlier life. */
void node_extents_withdraw(struct reef_node *node);
/* Withdraw what is `leaving` through the present port; where holders do not let
 * go at once, a job waits for them. */
void node_withdraw_leaving(struct reef_node *node);
/* Free every extent after the port was closed. */
void node_extents_free(struct reef_node *node);

/* --- lend.c --- */

/* How this node makes memory. */
struct reef_memory_options node_memory_options(const struct reef_node *node,
					       uint64_t size);
/* Take memory for an extent, counting it first.  -ENOSPC: over the capacity. */
int node_memory_take(struct reef_node *node, struct node_extent *extent);
/* Give an extent's memory back; no region of it may be left. */
void node_memory_give(struct reef_node *node, struct node_extent *extent);
/* Put what is in an extent, which nobody can reach, into fresh memory.
 * -ENOMEM: it stays where it was. */
int node_memory_renew(struct reef_node *node, struct node_extent *extent);
/* Expose an extent on every door, or on none, under fresh keys. */
int node_expose(struct reef_node *node, struct node_extent *extent);
/* Take every key of an extent back; never waits.  -ETIMEDOUT: a holder is left,
 * ask again. Doors that were withdrawn stay so. */
int node_withdraw(struct reef_node *node, struct node_extent *extent);

/* --- kept.c --- */

/* True if what is lent outlasts this life. */
static inline bool node_keeps(const struct reef_node *node)
{
	return node->options.keep;
}
/* Take over what was kept, once, before the node registers: its extents are
 * CLOSED. */
int node_kept_take(struct reef_node *node);
/* Have the extent kept as it is now, before the broker hears of that. 0 if
 * nothing is kept. */
int node_kept_add(struct reef_node *node, const struct node_extent *extent);
/* The broker has ordered that the extent be dropped. */
void node_kept_forget(struct reef_node *node, struct node_extent *extent);
/* Keep whose memory it is, and whom the node follows. */
void node_kept_note(struct reef_node *node);
/* What is here is about to be lent: keep.h (8). May be repeated. */
int node_kept_lend(struct reef_node *node);
/* With every pulse: see that all is still kept. */
void node_kept_tend(struct reef_node *node);
/* End the processes of a session that an earlier life let in, and that have
 * memory mapped still.  0: there is none any more.  -ETIMEDOUT: not yet. */
int node_ghosts_end(struct reef_node *node, uint32_t session);
void node_ghosts_free(struct reef_node *node);
/* At a clean stop: save what is `leaving`, which nobody can reach. */
void node_kept_save(struct reef_node *node);

/* --- pull.c --- */

struct node_source {
	uint32_t extent, epoch; /* as the source knows it; epoch: + 1 */
	uint64_t domain;
	uint64_t keys[REEF_DOORS_MAX];
	struct reef_key proof; /* for that node */
	char addresses[];      /* terminated */
};

/* Fill the extent's memory from the source. */
int node_pull(struct reef_node *node, struct node_extent *extent,
	      const struct node_source *source);

/* --- pressure.c --- */

/* What the machine has left: MemAvailable, or less where a cgroup (version 2
 * or 1) that we are in has less. root: "", or where a test keeps such files.
 * UINT64_MAX: unknown. */
uint64_t node_available(const char *root);
/* How many bytes to ask back from the broker, given what is available now. */
uint64_t node_wanted(struct reef_node *node, uint64_t available);

#endif
