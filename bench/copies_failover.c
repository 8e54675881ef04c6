/* copies_failover.c - what a client sees of a node that dies.
 *
 * A round: one of two nodes is killed, while the client puts and gets keys over
 * tcp, as it would if the node were another machine. It goes on until the space
 * has one copy, and a while longer; the figure is the longest that one call
 * took. Then the node is started again, and the round ends when all memory has
 * two copies.
 *
 * Thread: owner. */
#include "cluster.h"
#include "copies_bench.h"

#include <reef/map.h>
#include <stdio.h>

#define MIB (UINT64_C(1) << 20)
#define SPACE "bench"
#define KEYS 1000u
#define TIMEOUT_S 20.0
#define PROBE_S 0.02 /* between two questions how many copies there are */
#define AFTER_S 0.2
#define LEARN_S 3.0

static struct {
	struct cluster cluster;
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *map;
	struct reef_map_value value;
	uint32_t rounds;
} ours;

static double now_s(void)
{
	return workload_seconds(CLOCK_MONOTONIC);
}

static int find_degraded(void *context, const struct reef_space_info *info)
{
	if (strcmp(info->name, SPACE) == 0)
		*(uint32_t *)context = info->degraded;
	return 0;
}

static int ask_degraded(uint32_t *degraded)
{
	*degraded = 0;
	return reef_space_list(ours.reef, find_degraded, degraded);
}

/* Put a key, and get it. *took: the longer of the two, in seconds. */
static int put_and_get(uint32_t key, double *took)
{
	uint64_t value = key + ours.rounds;
	double begin = now_s(), middle, end;
	int rc = reef_map_put(ours.map, &key, sizeof(key), &value,
			      sizeof(value), 0, NULL);

	middle = now_s();
	rc = rc ? rc : reef_map_get(ours.map, &key, sizeof(key), &ours.value);
	end = now_s();
	*took = middle - begin > end - middle ? middle - begin : end - middle;
	if (!rc && (ours.value.size != sizeof(value) ||
		    memcmp(ours.value.bytes, &value, sizeof(value)) != 0))
		rc = -EILSEQ;
	return rc;
}

/* Work until the failover is over. *longest: of a call, in seconds. */
static int work_through(double *longest)
{
	double begin = now_s(), probed = begin, until = begin + TIMEOUT_S, took;
	uint32_t degraded = 0, key = 0;
	int rc = 0;

	*longest = 0;
	while (!rc && now_s() < until) {
		rc = put_and_get(key++ % KEYS, &took);
		if (took > *longest)
			*longest = took;
		if (rc || degraded || now_s() - probed < PROBE_S)
			continue;
		rc = ask_degraded(&degraded);
		probed = now_s();
		if (degraded)
			until = probed + AFTER_S;
	}
	return rc ? rc : degraded ? 0 : -ETIMEDOUT;
}

static int wait_until_whole(void)
{
	const double until = now_s() + TIMEOUT_S;
	uint32_t degraded = 1;
	double took;
	int rc = 0;

	while (!rc && degraded && now_s() < until) {
		rc = put_and_get(0, &took);
		rc = rc ? rc : ask_degraded(&degraded);
	}
	return rc ? rc : degraded ? -ETIMEDOUT : 0;
}

static int failover_run(struct driver_pair *pair, const char *name,
			double seconds, double *rate)
{
	uint32_t node = ours.rounds++ % 2;
	double longest;
	int rc;

	(void)seconds;
	if (strcmp(name, COPIES_FAILOVER) != 0)
		return -ENOSYS;
	bench_cluster_node_kill(&ours.cluster, node);
	rc = work_through(&longest);
	rc = rc ? rc : bench_cluster_node_start(pair, &ours.cluster, node);
	rc = rc ? rc : wait_until_whole();
	if (rc)
		return driver_fail(pair, rc, "%s", reef_error_text(rc));
	*rate = longest * 1e3;
	return 0;
}

static void failover_close(struct driver_pair *pair)
{
	(void)pair;
	reef_map_value_free(&ours.value);
	reef_map_close(ours.map);
	reef_space_close(ours.space);
	reef_close(ours.reef);
	bench_cluster_end(&ours.cluster);
}

static int failover_open(struct driver_pair *pair)
{
	const struct cluster_options options = {
		.nodes = 2,
		.lend = 256 * MIB,
		.extent_size = 16 * MIB,
	};
	const struct reef_options far = {.fabrics = "tcp"};
	const struct reef_space_options make = {
		.flags = REEF_SPACE_CREATE | REEF_SPACE_STRICT,
		.copies = 2,
	};
	double took, until;
	int rc = bench_cluster_start(pair, &ours.cluster, &options);

	rc = rc ? rc : reef_open("local", &far, &ours.reef);
	rc = rc ? rc : reef_space_open(ours.reef, SPACE, &make, &ours.space);
	rc = rc ? rc : reef_map_open(ours.space, "map", NULL, &ours.map);
	/* Nodes learn at their next pulse that copies count on them; before
	 * that they are missed later. */
	until = now_s() + LEARN_S;
	for (uint32_t key = 0; !rc && (key < KEYS || now_s() < until); key++)
		rc = put_and_get(key % KEYS, &took);
	pair->target_rests = true;
	snprintf(pair->description, sizeof(pair->description),
		 "a client over tcp of two nodes, one of which is killed; a "
		 "silent node is missed after a second");
	if (!rc)
		return 0;
	failover_close(pair);
	return driver_fail(pair, rc, "%s", reef_error_text(rc));
}

const struct driver copies_failover_driver = {
	.name = "reef",
	.open = failover_open,
	.run = failover_run,
	.close = failover_close,
};
