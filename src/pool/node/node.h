/* node.h - lends this machine's memory.
 *
 * (1) Its processor serves control messages only (and tcp's target loop);
 *     one-sided traffic on shm and verbs costs it nothing.
 * (2) It never lends more than its capacity.
 * (3) It obeys only the highest broker epoch it has seen.
 * (4) FENCE is confirmed when every fabric it serves has confirmed it.
 * (5) An extent's memory is taken fresh and zero, and goes back to the kernel;
 *     it never passes from one extent to another. Keys are never reused. After
 *     a revocation what is in it goes into fresh memory, if a process could
 *     have kept the old one mapped; for that moment it is there twice.
 * (6) A key is withdrawn before memory goes: holders acknowledged, or were
 *     fenced, or have no link any more.
 * (7) A node that was taken for dead comes back as another incarnation: it
 *     ends every link, drops every extent, and registers with nothing. One that
 *     keeps its memory (keep.h) was AWAY, and registers with all of it, under
 *     keys that nobody has; so does its next process.
 * (8) CREATE, DROP, CLOSE, REOPEN, PULL and FENCE may be repeated: the second
 *     has the same outcome.
 * (9) All its addresses are of one atomic domain (F6), which is its memory's:
 *     shm and tcp, or verbs.
 * (10) It holds its own key and nothing else (keys.h, 6): its number and name
 *     are what the broker added it as.
 *
 *   extent   (none) --CREATE, PULL--> OPEN --CLOSE--> CLOSED --REOPEN--> OPEN
 *                                      OPEN, CLOSED --DROP--> (none)
 *
 * A library that runs in fibers of the scheduler it is given.
 *
 * Thread: owner, which is the scheduler's thread. */
#ifndef REEF_POOL_NODE_NODE_H
#define REEF_POOL_NODE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reef_keep;
struct reef_mesh;
struct reef_node;
struct reef_node_key;
struct reef_sched;

/* Zero means the default. */
struct reef_node_options {
	struct reef_mesh *mesh;	  /* the caller's; outlives the node. Nobody
				   * else listens on it: whoever is let in
				   * there reaches what a key opens */
	struct reef_sched *sched; /* NULL: the calling fiber's */
	const struct reef_node_key *key; /* its own; copied */
	const char *broker;	/* its addresses; several brokers: the list
				 * of all, tried in turn. Between them
				 * blanks or commas. */
	uint64_t broker_domain; /* 0: unknown */
	const char *listen;	/* addresses, blank-separated */
	uint64_t capacity;	/* bytes; required */
	bool huge_pages;	/* where there are any */
	bool simulated;		/* memory for sim */
	/* Pressure: when `available` says less than pressure_low, the node asks
	 * the broker to take revocable extents back until it would be
	 * pressure_high. 0: never. available NULL: the machine's own word
	 * (MemAvailable, and the limit of its cgroup). */
	uint64_t (*available)(void *context);
	void *context;
	uint64_t pressure_low, pressure_high;
	uint64_t seed; /* of its incarnations; 0: from the kernel */
	/* What its memory is with while it does not run; the caller's, outlives
	 * the node. NULL: nothing is kept. */
	struct reef_keep *keep;
};

/* Listen, then register with the broker, and again whenever the link is lost:
 * in the background, so it starts while the broker is away. In a fiber. Caller
 * owns *out.  -EINVAL: a capacity under one page.  -REEF_EDOMAIN: (9).
 * -REEF_EFOREIGN: what is kept is another node's.  Else: listen's, keep's. */
int reef_node_start(const struct reef_node_options *options,
		    struct reef_node **out);

/* End all links, give the memory back. In a fiber. NULL is fine. */
void reef_node_stop(struct reef_node *node);

const char *reef_node_addresses(const struct reef_node *node);
/* Its name, as the broker told it; "": it did not yet. */
const char *reef_node_name(const struct reef_node *node);

struct reef_node_status {
	uint32_t id; /* 0: not registered yet */
	int link;    /* 0: registered with a broker now; else why not */
	uint64_t incarnation, broker_epoch;
	uint64_t capacity, lent, huge; /* bytes */
	uint32_t extents, links;
};
void reef_node_status(const struct reef_node *node,
		      struct reef_node_status *out);
/* Wait until it is registered, or timeout. In a fiber.  -ETIMEDOUT.
 * -REEF_EFOREIGN, -REEF_EOLDER: it and its broker do not fit. */
int reef_node_wait(struct reef_node *node, uint64_t timeout_ns);

#endif
