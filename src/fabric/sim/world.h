/* world.h - what the files of the simulator share.
 *
 *   sim.c         the world: hosts, time, faults, the trace
 *   provider.c    the fabric's ops: posting, polling, opening and closing
 *   connection.c  connections: mail, loss, and who notices when
 *   hello.c       who gets in
 *   key.c         regions, attach and withdraw, what power leaves
 *   fence.c       fences, and the end of links by number
 *   flight.c      a batch on its way
 *   plan.c        when its parts take effect
 *   effect.c      what they do
 *   disk.c        a host's files, which its death cuts off
 *
 * What happens to a host's processor (mail, completions, calls to the user)
 * happens in sim_poll of one of its queues, called by the queue's kick, and so
 * never while the host is paused. What its network card does (effects) happens
 * in timers, and goes on.
 *
 * Nothing here may depend on an address: lists are walked in the order in which
 * things were made.
 *
 * Thread: owner of the simulation. */
#ifndef REEF_FABRIC_SIM_WORLD_H
#define REEF_FABRIC_SIM_WORLD_H

#include "fabric/numbers.h"
#include "fabric/provider.h"
#include "fabric/sim/sim.h"

#define REGION_BUCKETS 64
#define HOLD_BUCKETS 256
#define HOST_NAME_MAX_SIZE 64
#define PIECES_MAX 4
#define PIPE_MAX 256 /* messages that wait at a card for its processor */

struct flight;
struct conn;

/* --- the world (sim.c) --- */

/* One incarnation of a host: what a kill ends. */
struct life {
	struct reef_group group;
	struct reef_local_clock clock;
	struct reef_sim_host *host;
	struct life *older;
	struct sim_fabric *fabrics;
	struct reef_store *store; /* what its fibers see (disk.c) */
	int (*main)(struct reef_sim_host *host, void *arg);
	void *arg;
	int result;
	bool ended;
};

struct reef_sim_host {
	struct reef_sim *sim;
	struct reef_sim_host *next;
	uint32_t index;
	char name[HOST_NAME_MAX_SIZE];
	struct life *life; /* the latest */
	struct reef_random random;
	struct reef_store *disk; /* outlives lives; made when first asked for */
	int32_t drift_ppm;
	uint16_t port_next; /* for port 0 */
};

/* The network between two hosts is cut. */
struct cut {
	struct cut *next;
	struct reef_sim_host *a, *b;
};

/* A word between the two halves of an atomic (F6). */
struct hold {
	struct hold *next;
	const struct reef_memory *memory;
	uint64_t offset;
	uint64_t until_ns;
};

struct reef_sim {
	struct reef_sim_options options; /* defaults filled in */
	struct reef_sched *sched;
	struct reef_random shuffle; /* the scheduler's */
	struct reef_random test;    /* the test's */
	struct reef_random net;	    /* delays, order, losses */
	struct reef_random lives;   /* hosts: clocks, disks */
	uint64_t hash, events;
	struct reef_sim_host *hosts, **hosts_tail;
	uint32_t hosts_count;
	struct cut *cuts;
	struct conn *conns, **conns_tail;
	struct hold *holds[HOLD_BUCKETS];
	void (*changed)(void *context, const struct reef_sim_change *change);
	void *changed_context;
	struct reef_poller watch; /* over the limit of a run */
	uint64_t limit_ns;
	bool timed_out;
};

enum trace_kind {
	TRACE_READ = REEF_READ,
	TRACE_WRITE = REEF_WRITE,
	TRACE_CAS = REEF_CAS,
	TRACE_FAA = REEF_FAA,
	TRACE_FLUSH = REEF_FLUSH,
	TRACE_SEND = REEF_SEND,
	TRACE_ATOMIC_LANDS,
	TRACE_DONE,
	TRACE_HOST,
	TRACE_CONNECT,
	TRACE_LOST,
	TRACE_NOTICED,
	TRACE_ATTACH,
	TRACE_WITHDRAW,
	TRACE_FENCE,
	TRACE_CUT,
	TRACE_END_LINKS,
};

static inline uint64_t sim_mixed(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

static inline void sim_mix(struct reef_sim *sim, uint64_t value)
{
	sim->hash = sim_mixed(sim->hash, value);
}

/* Note in the trace that something happened, now. */
void sim_trace(struct reef_sim *sim, enum trace_kind kind,
	       const struct reef_sim_host *host, uint64_t a, uint64_t b);

static inline uint64_t sim_now(struct reef_sim *sim)
{
	return reef_sched_now_ns(sim->sched);
}

void sim_timer(struct reef_sim *sim, struct reef_timer *timer, uint64_t at_ns);
uint64_t sim_delay(struct reef_sim *sim); /* one way */
bool sim_is_cut(const struct reef_sim *sim, const struct reef_sim_host *a,
		const struct reef_sim_host *b);
struct reef_sim_host *sim_find_host(struct reef_sim *sim, const char *name,
				    size_t length);

/* A disk as one life sees it (disk.c). */
int sim_disk_open(struct life *life, struct reef_store **out);
void sim_disk_cut_off(struct reef_store *base);

/* --- objects of the fabric --- */

/* Of a session; or, with a number, of its links up to that (F10). */
struct fence {
	struct reef_timer timer; /* until confirmed */
	struct fence *next;
	struct sim_fabric *fabric;
	uint32_t session, number;
	bool confirmed;
};

struct sim_fabric {
	struct reef_fabric base;
	struct reef_sim *sim;
	struct life *life;
	struct sim_fabric *next; /* of the life */
	struct sim_queue *queues;
	struct sim_listener *listeners;
	struct sim_link *links; /* connected and accepted */
	uint32_t accepted_count;
	struct sim_region *regions[REGION_BUCKETS];
	struct fence *fences;
	struct reef_numbers numbers;
};

struct sim_queue {
	struct reef_queue base;
	struct sim_fabric *fabric;
	struct sim_queue *next;
	struct reef_timer kick;
	bool kick_held; /* by a pause */
	uint32_t happened;
	uint64_t retry_ns; /* inbox full: how long until the next look */
	struct mail *mail, **mail_tail;
	struct sim_link *readable; /* messages wait at the card */
};

struct sim_listener {
	struct reef_listener base;
	struct sim_listener *next;
	uint16_t port;
};

/* What a connector shows at the other end. */
struct hello {
	uint32_t session, number;
	uint16_t port;
	uint8_t key[REEF_KEY_SIZE];
	char identity[REEF_IDENTITY_MAX + 1];
};

struct sim_link {
	struct reef_link base;
	struct sim_fabric *fabric;
	struct sim_link *next; /* of the fabric */
	struct conn *conn;
	struct sim_remote *remotes;
	struct sim_link *readable_next;
	bool readable;
	uint32_t depth; /* batches under way */
};

struct sim_remote {
	struct reef_remote base;
	struct sim_remote *next;   /* of the link */
	struct sim_region *region; /* calm: while attached and the link is up */
	uint64_t id;
	uint32_t under_way;
	bool release; /* withdrawn: acknowledge when nothing is under way */
};

/* What a region's node knows of whoever attached it. */
struct grant {
	struct grant *next; /* of the connection */
	struct sim_region *region;
	uint64_t id; /* the remote's */
};

struct sim_region {
	struct reef_region base;
	struct sim_region *next; /* of the bucket */
	struct sim_fabric *fabric;
	uint8_t *kept; /* mutant SIM_F8_WITHDRAWN: stands in for it */
	uint32_t grants;
	bool withdrawing;
	uint64_t overdue_ns; /* when holders have had time enough to let go */
	uint64_t *cased;     /* a bit for each word that had an atomic, for
			      * reef_sim_watch; NULL: none */
};

/* --- connections (connection.c) --- */

enum mail_kind {
	MAIL_CONNECT,  /* 0 to 1: let me in */
	MAIL_WELCOME,  /* 1 to 0 */
	MAIL_REFUSE,   /* 1 to 0 */
	MAIL_ATTACH,   /* 0 to 1 */
	MAIL_ATTACHED, /* 1 to 0 */
	MAIL_WITHDRAW, /* 1 to 0: stop using this key */
	MAIL_RELEASE,  /* 0 to 1: stopped */
	MAIL_LOST,     /* to oneself: the connection is lost */
};

struct mail {
	struct reef_timer timer; /* under way */
	struct mail *next;	 /* in a queue */
	struct mail *sibling;	 /* of the connection, unless embedded */
	struct conn *conn;
	uint8_t kind;
	uint8_t to;    /* side */
	bool embedded; /* in its side */
	bool pending;  /* embedded: under way, or in a queue */
	bool stalled;  /* by a cut */
	bool queued;
	int code;
	uint64_t key, id, size;
	struct sim_region *region;
	bool durable, read_only;
};

/* A message at the receiver's card. */
struct parcel {
	struct parcel *next;
	uint32_t length;
	uint8_t bytes[];
};

struct side {
	struct reef_sim_host *host;
	struct sim_fabric *fabric; /* NULL: closed */
	struct sim_link *link;	   /* NULL: not yet, or no more */
	struct mail lost;	   /* its notice */
	uint64_t mail_last_ns;	   /* mail stays in order */
	struct parcel *pipe, **pipe_tail;
	uint32_t pipe_count;
};

enum conn_state { CONN_OPENING, CONN_UP, CONN_LOST };

struct conn {
	struct reef_sim *sim;
	struct conn *next, **at; /* of the world */
	enum conn_state state;
	uint32_t refs; /* links, flights and mail */
	struct hello hello;
	struct life *late_for; /* LOST: who may still get the CONNECT */
	uint64_t remotes_made;
	struct side sides[2]; /* 0: who connected; 1: who accepted */
	struct flight *flights, **flights_tail;
	struct mail *mails;	/* in the order of sending */
	struct grant *grants;	/* at side 1 */
	struct reef_timer doom; /* lost by chance */
};

#define NEVER UINT64_MAX

static inline bool fabric_is_dead(const struct sim_fabric *fabric)
{
	return fabric->life->group.dead;
}

static inline bool side_is_alive(const struct side *side)
{
	return side->fabric && !fabric_is_dead(side->fabric);
}

int sim_conn_create(struct reef_sim *sim, struct conn **out);
struct conn *sim_conn_ref(struct conn *conn);
void sim_conn_unref(struct conn *conn);

/* Lose the connection. notice0_ns, notice1_ns: when each side is to notice,
 * from now, unless it is to notice earlier already; NEVER: it is dealt with
 * otherwise. */
void sim_conn_lose(struct conn *conn, uint64_t notice0_ns, uint64_t notice1_ns,
		   int reason);
/* Its user wants to notice the loss now, whether it has happened or not. */
void sim_conn_sever(struct sim_link *link);
uint64_t sim_soon(struct reef_sim *sim);
uint64_t sim_silence(struct conn *conn, int side);
/* How late something of a lost connection comes to a side, at most some
 * silences. */
uint64_t sim_lateness(struct conn *conn, int side);

/* Let a side notice that its connection is lost, at the latest then. */
void sim_side_notice(struct conn *conn, int side, uint64_t after_ns,
		     int reason);
/* Take a link from its connection, which is lost with that; its batches under
 * way are in doubt. */
void sim_link_detach(struct sim_link *link);

/* The network was cut or mended under a connection. */
void sim_conn_cut(struct conn *conn, bool cut);

/* Act on the mail that came for a queue. */
void sim_mail_send(struct conn *conn, int to, const struct mail *mail);
int sim_mail_read(struct sim_queue *queue);
void sim_mail_drop_queue(struct sim_queue *queue);
/* At the end of the world: what would have come late never comes. */
void sim_mail_drop_late(struct reef_sim *sim);

/* A message is at the card: it will be read when its queue is polled. */
void sim_pipe_filled(struct sim_link *link);
/* Put what waits at the card into the inbox, as far as it takes it. */
int sim_pipe_drain(struct sim_link *link);

/* Throw away what waits at a side's card. */
void sim_pipe_drop(struct conn *conn, int side);

/* Tell a side that its link is gone, in its queue's poll. The caller holds a
 * reference. */
void sim_side_end(struct conn *conn, int side, int reason);

/* --- who gets in (hello.c) --- */

struct sim_listener *sim_find_listener(struct reef_sim_host *host,
				       uint16_t port);
void sim_refuse(struct conn *conn, int code);
void sim_hello_asked(struct conn *conn); /* at side 1 */
/* True if a CONNECT may come after its connection is lost. */
bool sim_hello_may_be_late(const struct conn *conn);
void sim_hello_answered(struct conn *conn, const struct mail *mail);

int sim_listen(struct reef_layer *layer, struct reef_queue *queue,
	       const char *address, const struct reef_listen_options *options,
	       struct reef_listener **out);
void sim_unlisten(struct reef_layer *layer, struct reef_listener *base);
int sim_connect(struct reef_layer *layer, struct reef_queue *queue,
		const char *address, const struct reef_connect_options *options,
		struct reef_link **out);
void sim_disconnect(struct reef_layer *layer, struct reef_link *link);
void sim_sever(struct reef_layer *layer, struct reef_link *link);

/* --- keys (key.c) --- */

struct sim_region *sim_region_find(struct sim_fabric *fabric, uint64_t key);
void sim_region_free(struct sim_region *region);
void sim_region_flush(struct sim_region *region, uint64_t offset,
		      uint64_t length);
/* The power fails: each unflushed word stays or is lost. */
void sim_fabric_power_off(struct sim_fabric *fabric);

void sim_attach_asked(struct conn *conn, const struct mail *mail);
void sim_attach_answered(struct conn *conn, const struct mail *mail);
void sim_withdraw_asked(struct conn *conn, const struct mail *mail);
void sim_remote_idle(struct sim_remote *remote);
void sim_grant_drop(struct conn *conn, uint64_t id);
void sim_grants_drop(struct conn *conn);

int sim_expose(struct reef_layer *layer, struct reef_memory *memory,
	       struct reef_region **out);
int sim_withdraw(struct reef_layer *layer, struct reef_queue *queue,
		 struct reef_region *base);
int sim_attach(struct reef_layer *layer, struct reef_queue *queue,
	       struct reef_link *base, uint64_t key, struct reef_remote **out);
void sim_detach(struct reef_layer *layer, struct reef_queue *queue,
		struct reef_remote *base);

/* --- fences (fence.c) --- */

bool sim_is_fenced(const struct sim_fabric *fabric, uint32_t session);
int sim_fence(struct reef_layer *layer, struct reef_queue *queue,
	      uint32_t session);
int sim_end_links(struct reef_layer *layer, struct reef_queue *queue,
		  uint32_t session, uint32_t number);

/* --- queues and fabrics (provider.c) --- */

/* Let the queue be polled now, or as soon as its host runs. */
void sim_kick(struct sim_queue *queue);
void sim_kick_at(struct sim_queue *queue, uint64_t at_ns);
/* The same for all queues of a fabric: one may wait for what happened. */
void sim_fabric_happened(struct sim_fabric *fabric);
/* Cut a fabric off from the world: its host dies, or it is closed. */
void sim_fabric_cut_off(struct sim_fabric *fabric, int reason);
void sim_fabric_free(struct sim_fabric *fabric);
void sim_link_free(struct sim_link *link);

/* --- batches (flight.c, effect.c) --- */

/* Send a checked batch on its way.  -ENOMEM. */
int sim_flight_start(struct sim_link *link, struct reef_batch *batch);
struct flight *sim_flight_next(const struct flight *flight);
/* The connection of a flight is lost: what is left happens late, or never. */
void sim_flight_stray(struct flight *flight);
/* Let nothing more of a flight happen. */
void sim_flight_cancel(struct flight *flight);
/* Let a stalled flight go on: the network was mended. */
void sim_flight_resume(struct flight *flight);
/* End the batches of one connection that `from` posted, with status, or, where
 * lost operations are claimed done, with 0. */
void sim_flights_end(struct conn *conn, int from, int status);
/* Forget every batch posted in this queue. */
void sim_flights_forget(struct conn *conn, const struct reef_queue *queue);
void sim_flights_cancel(struct conn *conn, int from);
/* Do all of a calm batch, now. Returns what reef_post is to return. */
int sim_batch_calm(struct sim_link *link, struct reef_batch *batch);

#endif
