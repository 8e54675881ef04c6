/* driver.h - a competitor: a process that waits, runs a round when told, and
 * says how quick it was.
 *
 * Reef, the raw loops and the peers (programs of their own, in peers/) are all
 * driven alike. A competitor is a pair of processes, client and target, each on
 * a processor of its own where there are two.
 *
 *   harness                                client
 *     (fork, or fork and exec)        -->  open
 *                     <--  "ready SHARED DESCRIPTION" or "error WHY"
 *     "CASE SECONDS"                  -->  run one round
 *                     <--  "rate NUMBER DISK FAULTS WAITED" or "error WHY"
 *     (closes the pipe)               -->  close, exit
 *
 * (1) Between rounds client and target both sleep in the kernel: nobody's
 *     polling disturbs another's measurement.
 * (2) A target ends when its client does, even in the middle of polling.
 * (3) Nothing here uses Reef, so that a peer's program does not link it.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_DRIVER_H
#define REEF_BENCH_DRIVER_H

#include "workload.h"

#include <stdatomic.h>
#include <sys/types.h>

struct driver_options {
	const char *fabric; /* "shm" or "tcp"; others ignore it */
	/* FILE:OFFSET, to use as the memory, as told by an earlier competitor
	 * after "ready"; NULL: make one. */
	const char *shared;
	uint64_t size; /* bytes of memory */
	bool huge;     /* ask for huge pages */
};

struct driver_control;

/* What a round took beside its time, where the driver knows. */
struct driver_cost {
	double disk_bytes; /* read from disks */
	double faults;	   /* major ones: pages that came from a disk */
	double waited;	   /* share of the time without work for a processor */
};

/* The two processes, as one of them sees it. */
struct driver_pair {
	struct driver_options options;
	int channel; /* to the other side */
	pid_t target;
	struct driver_control *control; /* shared by both */
	void *context;			/* the driver's own */
	bool target_rests; /* set by open: no round needs the target's help */
	struct driver_cost cost; /* set by run; 0 before each round */
	char shared[64];	 /* to tell the harness; may be empty */
	char description[160];	 /* what is really in use */
	char error[160];	 /* why it failed, if it did */
};

struct driver {
	const char *name;
	/* Set up, target included; fills context and description. */
	int (*open)(struct driver_pair *pair);
	/* One round of a case. -ENOSYS: does not have it. */
	int (*run)(struct driver_pair *pair, const char *name, double seconds,
		   double *rate);
	/* Tidy up; the target was told to end after this. Optional. */
	void (*close)(struct driver_pair *pair);
};

/* One process of Reef's, for cases whose figure is how many times its rate two
 * have: it is always 1, and shows what is required. */
extern const struct driver driver_one;

/* Serve the harness until it closes `in`. Returns an exit status. */
int driver_serve(const struct driver *driver,
		 const struct driver_options *options, int in, int out);

/* A peer's main: "peer CASE SECONDS..." for people, one round per SECONDS;
 * "peer --serve FABRIC ..." for the harness. */
int driver_main(const struct driver *driver, int argc, char **argv);

/* --- for drivers --- */

/* Fork the target, which runs target(pair) and exits with what it returns. Each
 * side goes to its processor.  -errno. */
int driver_fork(struct driver_pair *pair,
		int (*target)(struct driver_pair *pair));

/* Whole messages of known size between the two.  -EPIPE: the other is gone. */
int driver_send(struct driver_pair *pair, const void *bytes, size_t size);
int driver_receive(struct driver_pair *pair, void *bytes, size_t size);

/* Client: let the target work in that mode, and let it rest again. The serve
 * loop does so around each round; open calls them for its own needs. */
int driver_target_go(struct driver_pair *pair, enum workload_mode mode);
int driver_target_rest(struct driver_pair *pair);

/* Target: call progress over and over while it is to work; returns when the
 * client is gone. In SLEEP mode progress may block for up to 10 ms. */
void driver_target_loop(struct driver_pair *pair,
			void (*progress)(struct driver_pair *pair,
					 enum workload_mode mode));

/* For a further thread or process of the client: it goes to the index-th
 * processor, modulo the number of them. The client is on 0, the target on 1. */
void driver_pin(uint32_t index);
/* Let a process run on any processor again. */
void driver_unpin(void);

/* Set pair->error once (what failed first is why) and return code. */
__attribute__((format(printf, 3, 4))) int driver_fail(struct driver_pair *pair,
						      int code,
						      const char *format, ...);

/* Map the memory: options.shared, or a new memfd filled as workload.h says.
 * NULL: pair->error says why. Never unmapped: it ends with the process. */
void *driver_memory(struct driver_pair *pair);
void driver_fill(void *base, uint64_t size);

/* How much of what this process has mapped is in huge pages: percent. */
uint32_t driver_huge_percent(void);

/* A state to begin with, and its local buffer, of WORKLOAD_LENGTH_MAX.
 * -ENOMEM. */
int driver_state(struct workload_state *state, uint64_t size);
void driver_state_free(struct workload_state *state);

#endif
