/* copies_sim.h - gets and puts of a map whose memory has one copy or two, asked
 * of the cost model in simulation: the real code in a whole pool with two nodes
 * (sim_pool.h).
 *
 * (1) The same load gives the same figures, everywhere.
 * (2) Only what happens after the first quarter is measured.
 * (3) Clients are fibers on up to 16 hosts, each with a NIC; their processors
 *     take no time.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_COPIES_SIM_H
#define REEF_BENCH_COPIES_SIM_H

#include <stdint.h>

enum copies_line {
	COPIES_GET_ONE,
	COPIES_GET_TWO,
	COPIES_PUT_ONE,
	COPIES_PUT_TWO,
	COPIES_LINES,
};

struct copies_result {
	double calls_per_s;
	double p99_ns;
	double round_trips; /* batches of a call, on average */
};

extern const char *const copies_lines[COPIES_LINES + 1];      /* to NULL */
extern const uint64_t copies_points[], copies_quick_points[]; /* to 0 */

/* Run one line with so many clients. 0, or what the pool failed with. */
int copies_line_run(enum copies_line line, uint32_t clients, uint64_t seed,
		    struct copies_result *out);

#endif
