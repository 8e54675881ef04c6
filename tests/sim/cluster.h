/* cluster.h - a whole pool in the simulator: a broker, nodes, clients, and the
 * faults that befall them, all from one seed.
 *
 *   cluster.c   hosts and their mains
 *   chaos.c     what goes wrong, and when
 *   strike.c    what goes wrong at a client's k-th operation
 *   orders.c    what an operator asks of the broker
 *   audit.c     is all memory back?
 *   keep.c      memory that outlasts a node's lives
 *   main.c      seeds, scenarios, mutants
 *   program.h   what clients do and check: there are several such programs
 *
 * What is true (who owns which block, which replies were given) is in plain
 * memory here: it is all one process, and simulated time moves only when every
 * fiber waits.
 *
 * Thread: owner. */
#ifndef TESTS_SIM_CLUSTER_H
#define TESTS_SIM_CLUSTER_H

#include "fabric/sim/sim.h"
#include "fixture/units.h"
#include "pool/broker/broker.h"
#include "pool/client/client.h"
#include "pool/client/heap/heap.h"
#include "pool/keys.h"
#include "pool/mesh.h"
#include "pool/node/keep.h"
#include "pool/node/node.h"

#include <errno.h>
#include <reef/reef.h>
#include <stdbool.h>
#include <stdint.h>

#define NODES_MAX 8
#define BROKERS_MAX 4 /* what is left of killed ones included */
#define CLIENTS_MAX 16
#define BLOCKS_MAX 4096
#define SESSIONS_MAX 1024
#define KEPT_MAX 256 /* extents of a node */

/* What may go wrong. */
enum chaos {
	CHAOS_BROKER_KILL = 1 << 0,  /* killed, and started again */
	CHAOS_BROKER_POWER = 1 << 1, /* the same with loss of power */
	CHAOS_BROKER_WRITE = 1 << 2, /* at a call to its disk */
	CHAOS_CLIENT_PAUSE = 1 << 3, /* past its lease, and resumed */
	CHAOS_CLIENT_KILL = 1 << 4,
	CHAOS_CUT = 1 << 5,	     /* partitions, short and long */
	CHAOS_LINKS = 1 << 6,	     /* connections are lost */
	CHAOS_NODE_KILL = 1 << 7,    /* for good, or it comes back empty */
	CHAOS_NODE_PAUSE = 1 << 8,   /* past its own lease */
	CHAOS_FENCE = 1 << 9,	     /* a client is away from the broker, and so
				      * are the nodes when its lease ends */
	CHAOS_DRAIN = 1 << 10,	     /* an operator's orders, from here on */
	CHAOS_END = 1 << 11,	     /* a session */
	CHAOS_RECLAIM = 1 << 12,     /* of memory of the revocable space */
	CHAOS_TAKEOVER = 1 << 13,    /* another broker takes over from one that
				      * stands still, and comes back */
	CHAOS_CUT_CLIENTS = 1 << 14, /* partitions between two of them */
	CHAOS_NODE_CUT = 1 << 15,    /* from the broker, and perhaps clients,
				      * past its lease; with copies only */
	CHAOS_KINDS = 16,
};

/* What befalls one client, at its k-th operation: with `strikes` 100 the seeds
 * 1 to 100 are one and the same run up to that point, k = 1 to 100; and so on.
 */
enum strike {
	STRIKE_NONE,
	STRIKE_KILL, /* before it is posted, or right after */
	STRIKE_STOP, /* for longer than its lease, and resumed */
	STRIKE_CUT,  /* from a node, the broker or another client */
	STRIKE_LOSE, /* the connection that it is on its way on */
	STRIKE_NODE, /* a node: killed, stopped or cut off; with copies */
};
#define CHAOS_BROKER                                                           \
	(CHAOS_BROKER_KILL | CHAOS_BROKER_POWER | CHAOS_BROKER_WRITE)
#define CHAOS_CLIENTS                                                          \
	(CHAOS_CLIENT_KILL | CHAOS_CLIENT_PAUSE | CHAOS_FENCE | CHAOS_END)
#define CHAOS_NODES (CHAOS_NODE_KILL | CHAOS_NODE_PAUSE | CHAOS_NODE_CUT)
#define CHAOS_NETWORK (CHAOS_CUT | CHAOS_CUT_CLIENTS | CHAOS_LINKS)
/* What a structure has to survive whose memory stays. */
#define CHAOS_ALL                                                              \
	(CHAOS_BROKER_KILL | CHAOS_BROKER_POWER | CHAOS_CLIENTS |              \
	 CHAOS_NETWORK | CHAOS_DRAIN)

/* Zero means the default. */
struct cluster_options {
	uint64_t seed;
	uint32_t chaos;		 /* enum chaos */
	uint64_t chaos_every_ns; /* on average; 40 ms */
	uint32_t nodes, clients; /* 2, 4 */
	uint32_t copies;	 /* of the memory of the program's space; 1 */
	uint64_t capacity;	 /* of a node; 32 MiB; for each copy */
	uint64_t extent_size;	 /* 2 MiB */
	uint64_t ttl_ns;	 /* 100 ms */
	uint64_t node_ttl_ns;	 /* 200 ms */
	uint64_t duration_ns;	 /* of the workload; 700 ms */
	uint64_t patience_ns;	 /* the longest step; 3 s */
	uint64_t gives_up_ns;	 /* a client's patience; its own default */
	uint64_t step_ns;	 /* between two steps, at most; 2 ms */
	uint64_t seeds_max;	 /* to run; any number */
	bool keeps;	     /* nodes do: they come back with their memory */
	bool several;	     /* nodes are harmed at once, although there are
			      * copies; they keep their memory */
	bool revocable;	     /* the space of the blocks is */
	bool scarce;	     /* memory is */
	bool hasty;	     /* leases end even where a broker is slow to
			      * come back */
	bool trace;	     /* tell what happens on stderr */
	uint64_t silence_ns; /* of the fabric; 50 ms */
	enum strike strike;
	uint32_t strikes; /* 100 */
};

/* A block as its user knows it. */
struct block {
	uint64_t address, size;
	uint64_t serial;  /* its pattern */
	uint32_t session; /* whose it is */
	bool kept;
};

/* A client's place: what outlives the lives of its host. */
struct seat {
	struct cluster *cluster;
	uint32_t index;
	struct reef_sim_host *host;
	uint32_t sessions; /* it had so far */
	/* Something befell this session that may cost its lease. */
	bool disturbed;
	uint32_t session;      /* the last */
	struct client *client; /* this life; NULL: none */
	uint32_t troubles;     /* that are under way */
	uint64_t troubled_ns;  /* when the last one ended */
	uint32_t waits;	       /* cuts from nodes that are under way */
	bool has_waited;       /* this session met one */
	bool is_over;	       /* its main has returned for good */
	bool counting;	       /* its operations, for strike.c */
	uint64_t posts;
	uint32_t died; /* the session that a kill ended last, and when */
	uint64_t died_ns;
	/* (c) of workload.c */
	uint64_t name_tried, name_done;
};

#define HAND_MAX 32 /* blocks that a client has at once */

/* One life of a client. What is left of an older one may still be unwinding
 * when the next begins. */
struct client {
	struct seat *seat;
	struct cluster *cluster;
	struct reef_random random;
	struct reef_client *client;
	struct reef *reef;
	struct reef_space *space; /* of the blocks; revocable if asked for */
	struct reef_space *home;  /* of board, mail and names */
	uint32_t index, session;
	bool leaving;
	/* Why its session may have ended: something befell it; it was cut off
	 * from a node. */
	bool excused, has_waited;
	void *work;	     /* the workload's */
	uint64_t stepped_ns; /* when its last step began; 0: none is */
	struct block blocks[HAND_MAX];
	uint32_t blocks_count;
};

struct recurrence;
/* What is kept of a node. */
struct sim_keep {
	struct reef_keep keep;
	struct reef_keep_head head;
	struct reef_kept_extent extents[KEPT_MAX];
	uint32_t count, takes;
};
void sim_keep_init(struct sim_keep *keep);
void sim_keep_fini(struct sim_keep *keep);

struct cluster {
	struct cluster_options options;
	struct reef_sim *sim;
	struct reef_random random; /* chaos's */
	struct reef_key key;
	struct reef_credential owner;
	struct reef_sim_host *broker; /* that serves */
	struct reef_sim_host *other;  /* for another, or that was */
	struct reef_sim_host *fate, *nodes[NODES_MAX];
	struct reef_broker *brokers[BROKERS_MAX]; /* that are up */
	uint64_t table[SESSIONS_MAX];		  /* the last one's, by slot */
	struct reef_group *fates;		  /* where troubles run */
	struct recurrence *recurrence;		  /* of R9 */
	void *work;				  /* the workload's */
	uint64_t strike_at;			  /* which operation */
	uint32_t struck;			  /* which client */
	bool has_struck;
	struct reef_node *running[NODES_MAX];	 /* NULL: down */
	struct reef_node_status seen[NODES_MAX]; /* by cluster_watch */
	bool node_is_down[NODES_MAX];
	uint64_t harmed_until_ns; /* chaos.c, with copies */
	struct sim_keep keeps[NODES_MAX];
	bool broker_is_down;
	uint64_t epoch; /* of the last broker */
	struct seat seats[CLIENTS_MAX];
	uint32_t troubles; /* that are under way */
	/* The operator: a client of fate's host, made with the first order. */
	struct reef_mesh *mesh;
	struct reef_client *operator;
	struct reef *orders;
	bool ordering, draining, fencing;
	uint64_t ends_ns;  /* of the workload, sched's clock */
	bool is_over;	   /* the audit is done: servers may stop */
	uint32_t finished; /* clients */
	/* What happened, so that errors can be judged. */
	bool nodes_died, reclaimed, drained, taken_over;
	uint64_t steps, deaths, fenced, broker_kills, pauses, cuts, drains;
	uint64_t harmed; /* nodes */
	/* workload.c: what is live */
	struct block live[BLOCKS_MAX];
	uint32_t live_count;
	struct block exchange[64]; /* kept, for another to free */
	uint32_t exchange_count;
	uint64_t leaks; /* blocks of which nobody knows whether they are free */
	uint64_t serials;
	uint64_t board; /* address; 0: not made yet */
	/* Sessions that somebody saw ENDED, and their words on the board. */
	struct ended {
		uint32_t session, client;
		uint64_t word;
		bool is_gone; /* the word has another owner by now */
	} ended[SESSIONS_MAX];
	uint32_t ended_count;
	uint64_t sum_tried, sum_done;
	uint64_t hash;	   /* of the simulation's trace */
	char failure[512]; /* the first violation; "": none */
};

/* Run one cluster to its end. 0: all is well.  -1: see failure. The rest of
 * *cluster tells what happened. */
int cluster_run(const struct cluster_options *options, struct cluster *cluster);

/* Note a violation; only the first counts. */
__attribute__((format(printf, 2, 3))) void cluster_fail(struct cluster *cluster,
							const char *format,
							...);
__attribute__((format(printf, 2, 3))) void
cluster_trace(struct cluster *cluster, const char *format, ...);

/* cluster.c, for chaos.c and orders.c */
/* Where brokers are, all of them. */
const char *cluster_places(const struct cluster *cluster);
int cluster_mesh(const struct cluster *cluster, struct reef_sim_host *host,
		 struct reef_mesh **out);
/* True if all nodes are up, and all memory has two copies, in use. */
bool cluster_is_whole(const struct cluster *cluster);
int cluster_broker_main(struct reef_sim_host *host, void *arg);
int cluster_node_main(struct reef_sim_host *host, void *arg);
int cluster_client_main(struct reef_sim_host *host, void *arg);
/* Watches over nodes and clients, once in a while. */
int cluster_watch(struct reef_sim_host *host, void *arg);

/* What the broker has published of a session, at this very moment, without an
 * operation; or the last one had, if there is none.  0: ALIVE.  1: EXPIRED.  2:
 * FENCED or later. */
int cluster_session(const struct cluster *cluster, uint32_t session);
/* Wait until there is a broker. 0, -REEF_EHOSTDEAD. */
int cluster_await_broker(const struct cluster *cluster);

/* chaos.c: the fate of all others; returns when the workload's time is up and
 * everything is mended. */
int chaos_main(struct reef_sim_host *host, void *arg);
/* For strike.c */
void chaos_strike_kill(struct seat *seat);
void chaos_strike_stop(struct seat *seat);
void chaos_strike_cut(struct seat *seat);
void chaos_strike_node(struct cluster *cluster);

/* strike.c: which operation of whom, from the seed, which becomes that of the
 * run up to there; and the hook that waits for it (mesh.h, opened). */
void strike_choose(struct cluster *cluster);
int strike_opened(void *seat, struct reef_fabric *fabric);

/* orders.c: what an operator asks of the broker. In a fiber of fate's host;
 * they wait for a broker that is away. 0, or the error. */
int orders_drain(struct cluster *cluster, uint32_t index, bool stop);
int orders_end(struct cluster *cluster, uint32_t session);
int orders_reclaim(struct cluster *cluster, uint32_t index, uint64_t size);
void orders_close(struct cluster *cluster);

/* workload.c, lock_work.c */
/* Before anything else.  -ENOMEM. */
int workload_setup(struct cluster *cluster);
void workload_teardown(struct cluster *cluster);
/* Now and then: does anything hang? */
void workload_watch(struct cluster *cluster, uint64_t now_ns);
/* A session begins: open the space and what is shared. 0, or the error. */
int workload_begin(struct client *client);
/* One random step. 0: go on.  -REEF_EFENCED: the session has ended.
 * -REEF_EHOSTDEAD: the host has. */
int workload_step(struct client *client);
/* Beside it, each with a handle of its own, until leaving: count on the board,
 * and stamp mail. They ask the broker for nothing, so they go on while that is
 * away. */
int workload_count(struct client *client, struct reef *reef);
int workload_stamp(struct client *client, struct reef *reef);
/* The session ends (well: it is about to close), or the host has ended: what it
 * had is nobody's. */
void workload_forget(struct client *client, bool well);
/* After everyone has closed: is everything back? */
int workload_audit(struct client *auditor);

/* audit.c: take all memory there is, a unit each time; but for what the other
 * space has, and `pinned` units. In client->space. */
int audit_memory(struct client *client, uint64_t pinned);
/* Links are lost during the audit, too: then nobody knows, once more. */
int audit_settle(struct client *client, int rc);

#endif
