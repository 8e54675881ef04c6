/* cluster.h - a pool of several nodes, each of them a process: what copies of
 * memory need, and what a node that dies is.
 *
 * (1) The processes share one processor, the client has another: what is done
 *     for one copy or two is compared, not who gets a processor.
 * (2) Nothing of it is kept, and nothing is left behind.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_CLUSTER_H
#define REEF_BENCH_CLUSTER_H

#include "process.h"

#define CLUSTER_NODES_MAX 4

struct cluster_options {
	uint32_t nodes;
	uint64_t lend; /* bytes, by each */
	uint64_t extent_size;
};

struct cluster {
	struct cluster_options options;
	char directory[64], run[80], program[PATH_MAX];
	pid_t broker, nodes[CLUSTER_NODES_MAX];
};

/* Start broker and nodes, and wait until all of them serve. Then
 * reef_open("local") finds the pool. On error, too, end it.
 * -errno; pair->error says why. */
int bench_cluster_start(struct driver_pair *pair, struct cluster *cluster,
			const struct cluster_options *options);
/* Kill a node as a crash does; start it again, without waiting for it. */
void bench_cluster_node_kill(struct cluster *cluster, uint32_t index);
int bench_cluster_node_start(struct driver_pair *pair, struct cluster *cluster,
			     uint32_t index);
void bench_cluster_end(struct cluster *cluster);

#endif
