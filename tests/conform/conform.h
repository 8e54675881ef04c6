/* conform.h - one suite for every fabric: the rules F1 to F10, tried.
 *
 * A test is a function, the director, that starts participants: one node,
 * which lends memory and does what the board tells it, and clients. On shm, tcp
 * and verbs a participant is a process; on sim it is a host, and the director
 * is a fiber. The board is memory that all of them share beside the fabric:
 * orders, flags, the first failure.
 *
 * (1) A test passes on every run of a fabric that keeps the rules.
 * (2) Loops are bounded; a test that hangs is ended and fails.
 * (3) Every process that was started is gone when its test ends.
 *
 * Thread: a participant's own. */
#ifndef REEF_TESTS_CONFORM_H
#define REEF_TESTS_CONFORM_H

#include "base/random.h"
#include "fabric/fabric.h"
#include "fabric/hook/count.h"
#include "fabric/sim/sim.h"
#include "fixture/try.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PARTS_MAX 64
#define REGIONS_MAX 16
#define SLOTS_MAX 4096
/* The silence of a test that waits for one to be noticed. Both sides must get
 * the processor within it, also in an emulator or under a sanitizer on a busy
 * machine: at 200 ms a guest was sent away while it said its hello. */
#define SHORT_SILENCE_NS 2000000000ull

/* What the director or a client asks of the node. */
enum order {
	ORDER_NONE,
	ORDER_EXPOSE,	 /* size, EXPOSE_*, domain (0: right) -> key;
			  * read key, region in argument[2] and [3] */
	ORDER_WITHDRAW,	 /* region, timeout_ns -> sum of it at that moment */
	ORDER_FENCE,	 /* session, timeout_ns, region -> the same */
	ORDER_END_LINKS, /* session, number, region -> the same */
	ORDER_LOAD,	 /* region, offset -> value, by the node's CPU */
	ORDER_STORE,	 /* region, offset, value, by the node's CPU */
	ORDER_SUM,	 /* region -> sum of all its words */
	ORDER_MATCH,	 /* region, offset, value -> so many words in a row */
	ORDER_CLEAR,	 /* region: all 0 */
	ORDER_SEND,	 /* session, count: numbered messages to it */
};

enum { EXPOSE_DURABLE = 1, EXPOSE_READ_ONLY = 2 };

struct board {
	char failure[256]; /* the first */
	_Atomic int failed;
	char address[200];
	_Atomic int listening, quit, hold; /* hold: node takes no messages */
	/* One order at a time; whoever takes `busy` may give one. */
	_Atomic int busy, order, answered;
	uint64_t argument[4];
	uint64_t end_wait_ns; /* END_LINKS: how long; 0: 20 s */
	uint64_t value;
	int result;
	/* What the node saw. */
	_Atomic uint64_t opened, closed, received, out_of_order, unmet;
	char identity[REEF_IDENTITY_MAX + 1]; /* of who opened or closed last */
	_Atomic uint32_t number;	      /* of the link that opened last */
	uint64_t next_number[SLOTS_MAX];
	_Atomic uint64_t met;
	/* For the test's own use, zero at its start. */
	_Atomic uint64_t word[16];
	_Atomic uint64_t flag[PARTS_MAX];
	_Atomic int started[PARTS_MAX], ended[PARTS_MAX], outcome[PARTS_MAX];
};

struct host;
typedef int part_main(struct host *host, void *arg);

struct part {
	part_main *main;
	void *arg;
	struct world *world;
	int index;
	int pid;		    /* processes */
	struct reef_sim_host *host; /* sim */
};

struct world {
	const char *kind;
	struct reef_sim *sim; /* NULL: processes */
	uint64_t seed;
	enum reef_tls_use tls;
	bool hooks; /* with delays, refused posts, counts and a trace */
	struct reef_count count;
	struct reef_random random;
	uint32_t percent;     /* of the usual rounds, on real fabrics */
	const char *netns[2]; /* node's, clients'; NULL: this one */
	struct board *board;
	struct reef_fabric_options node_options, client_options;
	struct part parts[PARTS_MAX];
	int part_count;
	int node;		     /* its part */
	char directory[64];	     /* for files; empty in sim */
	struct reef_memory *durable; /* sim: outlives its host's power */
};

/* A participant, as its main sees itself. */
struct host {
	struct world *world;
	struct part *part;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_random random;
	struct reef_sim_host *sim_host;
};

struct conform_test {
	const char *name; /* rule_situation_result */
	int (*run)(struct world *world);
	enum {
		ON_SHM = 1,
		ON_TCP = 2,
		ON_VERBS = 4,
		ON_SIM = 8,
		PROCESSES = ON_SHM | ON_TCP | ON_VERBS,
		ANYWHERE = PROCESSES | ON_SIM,
	} where;
};
extern const struct conform_test conform_operations[], conform_order[],
	conform_sight[], conform_safety[], conform_rights[], conform_cut[],
	conform_both[], conform_links[], conform_keeper[],
	conform_ended[]; /* end with name NULL */

/* Also run with almost no spinning, so that every wait is a sleep. */
int f1_messages_arrive_once_and_in_order(struct world *world);

/* --- in the director --- */

int world_start(struct world *world, part_main *main, void *arg); /* index */
int world_join(struct world *world, int part); /* what main returned */
int world_start_node(struct world *world);     /* listening when it returns */
int world_end(struct world *world);	       /* node and all others */
void world_kill(struct world *world, int part);
void world_stop(struct world *world, int part); /* SIGSTOP */
void world_continue(struct world *world, int part);

/* A node and `count` clients that run `main`; arg: where each finds its own
 * number. All must return 0. */
int with_clients(struct world *world, int count, part_main *main);
/* Which client, from 0. */
int number_of(const struct host *host);

/* How many rounds: on sim, on real fabrics (scaled). */
uint32_t rounds(const struct world *world, uint32_t sim, uint32_t real);
/* The same where clients are to run at once: on shm, where an operation takes
 * nanoseconds, a hundred times as many. */
uint32_t fast_rounds(const struct world *world, uint32_t sim, uint32_t real);
bool is_kind(const struct world *world, const char *kind);

/* --- anywhere --- */

int fail_at(struct world *world, const char *file, int line, const char *text,
	    long long a, long long b);
#define CHECK(world, condition)                                                \
	do {                                                                   \
		if (!(condition))                                              \
			return fail_at(world, __FILE__, __LINE__, #condition,  \
				       0, 0);                                  \
	} while (0)
#define CHECK_EQ(world, a, b)                                                  \
	do {                                                                   \
		long long a_ = (long long)(a), b_ = (long long)(b);            \
		if (a_ != b_)                                                  \
			return fail_at(world, __FILE__, __LINE__,              \
				       #a " == " #b, a_, b_);                  \
	} while (0)

/* Give the node an order and wait; returns its result. */
int order(struct world *world, enum order order, uint64_t a, uint64_t b,
	  uint64_t c, uint64_t *value);
/* Have the node send numbered messages to this host's session, and take them in
 * meanwhile: a SEND may wait for its receiver. */
int order_sends(struct host *host, uint32_t session, uint64_t count);
/* Wait until so many clients have come, all meetings counted together: so that
 * they really run at once. */
int meet(struct host *host, uint64_t count);
/* On shm: clients each on a processor of their own. */
void spread(struct host *host);
/* Wait until *word >= value, half a minute at most. */
int await(struct world *world, _Atomic uint64_t *word, uint64_t value);
void nap(const struct world *world); /* a little: 2 us in sim, 50 outside */

int host_open(struct host *host, struct world *world, struct part *part);
void host_close(struct host *host);
part_main node_main;
/* What a listener needs. The node lets in every identity that begins with
 * "conform". */
#define ADDRESS_SIZE 96
void own_address(const struct host *host, char address[ADDRESS_SIZE]);
int conform_credential(void *context, const char *identity, uint32_t session,
		       uint8_t key[REEF_KEY_SIZE]);

/* --- in a client --- */

#define SESSION(slot) (((uint32_t)(slot) << 16) | 1u)
extern const uint8_t conform_key[REEF_KEY_SIZE];

int join_as(struct host *host, uint32_t session, struct reef_link **out);
int join_numbered(struct host *host, uint32_t session, uint32_t number,
		  struct reef_link **out);
int join_with(struct host *host, uint32_t session, const char *identity,
	      struct reef_link **out);
/* Have the node expose `size` bytes, and attach them. */
int borrow(struct host *host, struct reef_link *link, uint64_t size,
	   struct reef_remote **out, uint64_t *key, uint64_t *region);

/* Post, waiting out -EAGAIN; a batch that is done at once has `done` set. */
int post_under_way(struct host *host, struct reef_batch *batch);
/* Run a batch, by reef_run or by post and wait: which, chance decides, as a
 * fabric may have a way of its own for each. */
int run_batch(struct host *host, struct reef_batch *batch);
int one(struct host *host, struct reef_link *link, struct reef_op op);
int do_read(struct host *host, struct reef_remote *remote, uint64_t offset,
	    void *to, uint32_t length);
int do_write(struct host *host, struct reef_remote *remote, uint64_t offset,
	     const void *from, uint32_t length);
int do_cas(struct host *host, struct reef_remote *remote, uint64_t offset,
	   uint64_t compare, uint64_t value, uint64_t *before);
int do_faa(struct host *host, struct reef_remote *remote, uint64_t offset,
	   uint64_t add, uint64_t *before);
int do_send(struct host *host, struct reef_link *link, const void *bytes,
	    uint32_t length);
struct reef_link *link_of(const struct reef_remote *remote);

/* Clients 0 and 1: each writes its own word and then reads the other's. At
 * least one must see the other's write: processors reorder exactly this without
 * a full barrier (F4). */
enum crossing { IN_TWO, IN_ONE_BATCH, AFTER_A_BATCH };
int cross(struct host *host, struct reef_remote *remote, uint64_t count,
	  enum crossing how);
#define CROSSING(client) (128u + 64u * (uint64_t)(client))

/* Messages that the node understands. */
struct note {
	uint64_t kind;	 /* NOTE_* */
	uint64_t number; /* NUMBERED: from 0 up, per session */
	uint64_t region, offset, words, value; /* CHECK: each word >= value */
};
enum { NOTE_NUMBERED = 1, NOTE_CHECK, NOTE_ECHO };

#endif
