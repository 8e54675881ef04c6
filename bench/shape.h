/* shape.h - how the fabric scales, asked of the cost model in simulation.
 *
 * One client host loads one or more servers through the cost hook over sim in
 * calm mode, in a closed loop: so many one-operation batches are always under
 * way. What comes out is operations per second of virtual time: it depends on
 * the model alone, not on the machine it runs on.
 *
 * (1) The same load gives the same figure, everywhere.
 * (2) Only what happens between warm and warm + ops operations is measured.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_SHAPE_H
#define REEF_BENCH_SHAPE_H

#include "fabric/hook/cost.h"

/* Zero means the default. */
struct shape_load {
	struct reef_cost_options cost;
	uint64_t seed;
	uint32_t servers;     /* 1 */
	uint32_t threads;     /* of the client; 1 */
	bool shared;	      /* all in one queue, instead of one each */
	uint32_t connections; /* in all, spread over threads; as many */
	uint32_t depth;	      /* under way per thread; 16 */
	uint8_t kind;	      /* of the operations, 8 bytes each; REEF_READ */
	bool hot;	      /* all on one word, instead of anywhere */
	uint64_t size;	      /* of each server's memory; 1 MiB */
	uint32_t warm, ops;   /* operations; 10,000 and 50,000 */
};

struct shape_result {
	double ops_per_s;
	double mean_ns; /* from post to completion */
	double misses;	/* of the caches, per operation, client and servers */
};

/* Run it. -EINVAL: fewer connections than threads, or over 65,535.
 * Else what the fabric failed with. */
int shape_run(const struct shape_load *load, struct shape_result *out);

#endif
