/* locks.h - locks under contention, asked of the cost model in simulation.
 *
 * A whole pool (sim_pool.h). Every client takes a lock, writes 64 bytes of what
 * it protects (a reader reads them), and gives it, without a pause.
 *
 * (1) The same load gives the same figures, everywhere.
 * (2) Only what happens between warm and warm + takes takes is measured, of all
 *     clients together, and for limit_ns of virtual time at most.
 * (3) Every client has opened the locks that it will use before that.
 * (4) Not modelled: the clients' own processors, which take no time; waking up
 *     costs what its message does.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_LOCKS_H
#define REEF_BENCH_LOCKS_H

#include "fabric/hook/cost.h"

#include <reef/sync.h>

/* Zero means the default. */
struct locks_load {
	struct reef_cost_options cost;
	uint64_t seed;
	enum reef_lock_kind kind;
	bool bare;	  /* a word and CAS instead, over and over */
	uint32_t clients; /* 1, at most 4,096 */
	uint32_t locks;	  /* 1 */
	double skew;	  /* Zipf's, of the choice among them; 0: none */
	uint32_t readers_percent; /* of the takes */
	uint64_t pause_ns;    /* from a give to the next take, on average; 0 */
	uint32_t warm, takes; /* 4 and 16 per client, and 500 and 2,000 */
	uint64_t limit_ns;    /* 200 ms */
};

struct locks_result {
	double takes_per_s;
	double mean_ns, p50_ns, p99_ns; /* until it was taken; or so far */
	double atomics;			/* at the node, per take */
	double messages;		/* between clients, per take */
	uint64_t takes;			/* that were measured */
};

/* Run it. -EINVAL: too many clients.  Else what the pool failed with. */
int locks_run(const struct locks_load *load, struct locks_result *out);

/* --- what `reef sim locks` shows --- */

#define LOCKS_LINES_MAX 5
#define LOCKS_POINTS_MAX 16

struct locks_study {
	const char *name;			/* one word, for a file */
	const char *rate_title, *wait_title;	/* the answers */
	const char *subtitle;			/* how it was asked */
	const char *lines[LOCKS_LINES_MAX + 1]; /* to NULL */
	uint64_t points[LOCKS_POINTS_MAX + 1];	/* clients; to 0 */
	uint64_t quick_points[LOCKS_POINTS_MAX + 1];
	uint32_t locks;
	double skew;
};

extern const struct locks_study *const locks_studies[]; /* to NULL */

/* Run one point of one line. As locks_run. */
int locks_study_run(const struct locks_study *study, uint32_t line,
		    uint64_t point, uint64_t seed, struct locks_result *out);

#endif
