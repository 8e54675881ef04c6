/* trees_run.h - what ours and the models of trees.h share: hosts whose clients
 * work point after point, and what is measured of it.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_TREES_RUN_H
#define REEF_BENCH_TREES_RUN_H

#include "base/histogram.h"
#include "base/random.h"
#include "bench/trees.h"
#include "fabric/hook/count.h"

/* One number of clients. */
struct trees_meter {
	uint64_t warm, ops, done;
	uint64_t start_ns; /* of all hosts */
	uint64_t begin_ns; /* of what is measured */
	struct reef_counts before;
	struct reef_histogram waits;
	uint32_t began, ended; /* hosts */
};

struct trees_field {
	struct trees_load load;
	struct trees_result *results;
	struct trees_meter *meters;
	uint32_t points;
	uint64_t inserted; /* keys, beyond load.keys */
	/* Of where it runs: */
	uint64_t (*now_ns)(const struct trees_field *field);
	struct reef_counts (*counts)(const struct trees_field *field);
	void *place;
};

/* A host with clients. */
struct trees_host {
	struct trees_field *field;
	uint32_t number;
	/* Do one operation. 0, or an error that ends the run. */
	int (*step)(struct trees_host *host, struct reef_random *random);
	/* Bytes that it remembers, of all keys. */
	double (*cache)(struct trees_host *host);
	void *index;
};

/* Do all points, in the main fiber of a host. */
int trees_host_run(struct trees_host *host);

/* The models' part of trees_run; load is complete. */
int tree_models_run(struct trees_field *field);

#endif
