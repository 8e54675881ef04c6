/* sim_pool.h - a whole pool on the cost model: a broker, nodes and clients,
 * each a simulated host with a NIC of its own (fabric/hook/cost.h), all of the
 * real code. What comes out depends on the model and on the code alone, not on
 * the machine it runs on.
 *
 * (1) The same options give the same run, everywhere.
 * (2) A run ends with the first call of sim_pool_end; then all hosts are
 *     killed, and every call of their fibers fails.
 * (3) Counted is what the clients' fabrics did.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_SIM_POOL_H
#define REEF_BENCH_SIM_POOL_H

#include "base/random.h"
#include "fabric/hook/cost.h"
#include "fabric/hook/count.h"

#include <reef/reef.h>

struct sim_pool;

/* A client, on a host of its own. */
struct sim_pool_client {
	struct sim_pool *pool;
	uint32_t number;
	struct reef_random random;
	struct reef *reef;
	struct reef_space *space; /* the same for all */
	void *context;		  /* of the options */
};

/* Zero means the default. */
struct sim_pool_options {
	struct reef_cost_options cost;
	uint64_t seed;
	uint32_t clients; /* 1, at most 4,096 */
	uint32_t nodes;	  /* 1, at most 2 */
	uint8_t copies;	  /* of the space's memory; 1 */
	/* What a client does, once it has joined. What it returns, unless the
	 * run has ended, ends the run. */
	int (*run)(struct sim_pool_client *client);
	/* Called each millisecond. Optional. */
	void (*watch)(struct sim_pool *pool, void *context);
	void *context;
};

/* Run it. 0, or what sim_pool_end or a host ended it with.  -ENOMEM. */
int sim_pool_run(const struct sim_pool_options *options);

/* End the run; of several errors the first counts. True: it was the first. */
bool sim_pool_end(struct sim_pool *pool, int error);

uint64_t sim_pool_now_ns(const struct sim_pool *pool);
struct reef_counts sim_pool_counts(const struct sim_pool *pool);

/* Wait until `all` have called this with the same counter, which is 0 at first.
 */
int sim_pool_meet(uint32_t *arrived, uint32_t all);

#endif
