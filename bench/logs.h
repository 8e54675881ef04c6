/* logs.h - appends to a shared log, asked of the cost model in simulation.
 *
 *   one log   the real code in a whole pool (sim_pool.h): FAA on one word, then
 *             {WRITE cell; CAS word}
 *   server    the same with numbers from a server: a model of one that answers
 *             a request in 500 ns, one at a time, half a round trip away
 *   cuts      the real code with order by cuts: {WRITE cell; WRITE count}, and
 *             an append waits for its cut
 *   early     the same, and it does not wait
 *   a log each  the real code, a log with one writer for every client: no word
 *             that all want, and no order among them
 *
 * (1) The same load gives the same figures, everywhere.
 * (2) Only what happens after the first quarter is measured.
 * (3) Clients are fibers on up to 16 hosts, each with a NIC; their processors
 *     take no time.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_LOGS_H
#define REEF_BENCH_LOGS_H

#include <stdint.h>

#define LOGS_POINTS_MAX 12

enum logs_line {
	LOGS_ONE,
	LOGS_SERVER,
	LOGS_CUTS,
	LOGS_EARLY,
	LOGS_EACH,
	LOGS_LINES
};

struct logs_result {
	double appends_per_s;
	double p99_ns;
};

extern const char *const logs_lines[LOGS_LINES + 1];	  /* to NULL */
extern const uint64_t logs_points[], logs_quick_points[]; /* to 0 */

/* Run one line with so many clients. 0, or what the pool failed with. */
int logs_line_run(enum logs_line line, uint32_t clients, uint64_t seed,
		  struct logs_result *out);

#endif
