/* sim.h - a whole cluster in one thread, virtual time, seeded faults.
 *
 * (1) The same seed and options give the same trace hash, on every machine.
 * (2) It does every bad thing that F1 to F10 allow, and nothing they forbid
 *     (unless a mutant is switched on).
 * (3) Code under it is the same code that runs on the other fabrics; everything
 *     runs in fibers of the simulation's scheduler.
 *
 * What it does to operations: spreads the words of a READ or WRITE over time
 * (F2); lets WRITE, CAS, FAA, SEND overtake earlier READ, CAS, FAA (F3c);
 * after a lost connection delivers what was under way late, or never, until the
 * next link of that session is accepted (F5); splits an atomic into a read and
 * a later write, as other domains and plain WRITEs see it (F6); loses unflushed
 * durable memory with its host's power (F9). To hosts: drift, delay, drop of
 * connections, partitions, pauses, kills.
 *
 * Thread: owner. */
#ifndef REEF_FABRIC_SIM_SIM_H
#define REEF_FABRIC_SIM_SIM_H

#include "base/fiber/sched.h"
#include "base/random.h"
#include "fabric/fabric.h"

struct reef_sim;
struct reef_sim_host;
struct reef_store;

/* Zero means the default; *_ppm are chances in a million. */
struct reef_sim_options {
	uint64_t seed;
	uint64_t delay_min_ns, delay_max_ns; /* one way; 500 to 20,000 */
	uint32_t slow_ppm;	/* of ops that take 100 times that; 2,000 */
	uint32_t lose_link_ppm; /* per batch; default 0 */
	uint32_t drift_max_ppm; /* of hosts' clocks; 200 */
	bool calm; /* no delay, tearing or reordering: for the cost model */
	uint32_t fibers_max, stack_size; /* of the scheduler */
};

/* Caller owns *out.  -EINVAL: delay_min_ns above delay_max_ns.  -ENOMEM. */
int reef_sim_create(const struct reef_sim_options *options,
		    struct reef_sim **out);
/* Kills what still runs, and closes the fabrics and queues that hosts left
 * open. NULL is fine. */
void reef_sim_destroy(struct reef_sim *sim);

struct reef_sched *reef_sim_sched(struct reef_sim *sim);
struct reef_random *reef_sim_random(struct reef_sim *sim); /* for the test */

/* A hash over everything that took effect, in order, with its time. */
uint64_t reef_sim_trace_hash(const struct reef_sim *sim);
uint64_t reef_sim_events(const struct reef_sim *sim);

/* A word of exposed memory that operations change. */
struct reef_sim_change {
	uint64_t region;      /* a number that no other region has */
	const uint8_t *bytes; /* all of it, after the change */
	uint64_t size;
	uint64_t offset;	/* of the word */
	uint64_t before, after; /* equal: a CAS that did not match */
	uint64_t compare;	/* of a CAS */
	uint8_t kind;		/* REEF_WRITE, REEF_CAS, REEF_FAA */
};
/* Have changes of words told: of each word from when somebody tries an atomic
 * on it, as long as its memory is exposed; and each CAS. Before the run. */
void reef_sim_watch(struct reef_sim *sim,
		    void (*changed)(void *context,
				    const struct reef_sim_change *change),
		    void *context);

/* Run until every fiber has ended.  -EDEADLK: all parked, nothing will come.
 * -ETIMEDOUT: limit_ns of virtual time passed. After either everything is
 * killed, and all fibers have ended. */
int reef_sim_run(struct reef_sim *sim, uint64_t limit_ns);

/* Add a host. `main` runs in its first fiber. The host lives as long as the
 * simulation; out may be NULL. Addresses on it are "sim:NAME/PORT".
 * -EINVAL: a name that is empty, too long (64), taken, or has a '/'. */
int reef_sim_host_add(struct reef_sim *sim, const char *name,
		      int (*main)(struct reef_sim_host *host, void *arg),
		      void *arg, struct reef_sim_host **out);
const char *reef_sim_host_name(const struct reef_sim_host *host);
struct reef_random *reef_sim_host_random(struct reef_sim_host *host);
/* A host's files; calls on them take time, and fail once the host is dead. */
struct reef_store *reef_sim_host_store(struct reef_sim_host *host);
/* The bare disk below, for tests: it survives kills, and reef_store_fail_after
 * works on it. */
struct reef_store *reef_sim_host_disk(struct reef_sim_host *host);
/* What a host's main returned, once it has; -EAGAIN before. */
int reef_sim_host_result(const struct reef_sim_host *host, int *result);

/* A host stops between two events of its own; what it sent is on its way, its
 * memory out of reach. Every call of its fibers returns -REEF_EHOSTDEAD from
 * then on, and whatever they do without a call must have no effect: they are to
 * free what they have and return. */
void reef_sim_host_kill(struct reef_sim_host *host);
/* The same with loss of power: unflushed durable memory and unsynced files are
 * lost too. */
void reef_sim_host_power_off(struct reef_sim_host *host);
/* Start a killed host again, with main and arg as a new incarnation. Its store
 * is what survived. What is left of the older one may still be unwinding, so
 * the two must not share what they opened.  -EBUSY: it is not dead. */
int reef_sim_host_restart(struct reef_sim_host *host,
			  int (*main)(struct reef_sim_host *host, void *arg),
			  void *arg);
/* Pause a host, as by SIGSTOP: its fibers stand still and its messages wait,
 * but its memory is served and nobody takes it for dead. */
void reef_sim_host_pause(struct reef_sim_host *host);
void reef_sim_host_resume(struct reef_sim_host *host);
/* Cut, or mend, the network between two hosts. What is under way waits; links
 * are noticed as lost when the cut has lasted for silence_ns. */
void reef_sim_partition(struct reef_sim_host *a, struct reef_sim_host *b,
			bool cut);
/* Lose the connection under a link, now; both sides notice soon. */
void reef_sim_lose_link(struct reef_link *link);

#endif
