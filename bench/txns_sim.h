/* txns_sim.h - transactions in remote memory, asked of the cost model in
 * simulation: ours beside models of others.
 *
 * A transaction reads three keys of a map and changes two of them. Ours is the
 * real code in a whole pool (sim_pool.h). The others are models: coordinators
 * that do the operations that their papers describe, in the same pool's memory,
 * with locks and versions that really conflict, and with everybody's places
 * known; what a server does takes its processors' time (txns_sim.c).
 *
 * (1) The same load gives nearly the same figures, everywhere: keys of sessions
 *     and versions are drawn anew.
 * (2) Only what happens after the first quarter is measured.
 * (3) Coordinators are fibers on up to 16 hosts, each with a NIC; their
 *     processors take no time. One node has all keys, one copy of each.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_TXNS_SIM_H
#define REEF_BENCH_TXNS_SIM_H

#include <stdbool.h>
#include <stdint.h>

enum txns_line {
	TXNS_REEF,
	TXNS_FARM,
	TXNS_FASST,
	TXNS_DRTM,
	TXNS_FORD,
	TXNS_LINES,
};

struct txns_result {
	double txns_per_s;
	double p50_ns, p99_ns;
	/* Of a transaction that was committed, on average: */
	double round_trips, operations, aborts;
};

struct txns_study {
	const char *name, *title, *subtitle;
	bool is_hot; /* 90 of 100 keys are among 1 of 100 */
};

#define TXNS_POINTS_MAX 16
extern const char *const txns_lines[TXNS_LINES + 1];	  /* to NULL */
extern const uint64_t txns_points[], txns_quick_points[]; /* to 0 */
extern const struct txns_study txns_studies[];		  /* to name NULL */
/* What the papers say of themselves, on their own hardware. */
extern const char txns_papers[];

/* Run one line with so many coordinators. 0, or what the pool failed with. */
int txns_line_run(enum txns_line line, bool is_hot, uint32_t coordinators,
		  uint64_t seed, struct txns_result *out);

#endif
