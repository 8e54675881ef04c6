/* cluster.c - starts `reef broker` and `reef node`, and ends them. */
#include "cluster.h"

#include <reef/error.h>
#include <reef/reef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TRIES 1000
#define PAUSE_NS 20000000
#define COPIES 2

static void pause_a_while(void)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};

	nanosleep(&pause, NULL);
}

/* The nodes' processor: the client has the first. */
static struct process_options options_of(const struct cluster *cluster)
{
	return (struct process_options){
		.directory = cluster->directory,
		.is_pinned = true,
		.processor = 1,
	};
}

static int start_broker(struct driver_pair *pair, struct cluster *cluster)
{
	const struct process_options options = options_of(cluster);
	char size[24];
	const char *arguments[] = {
		cluster->program, "broker",   "--run",
		cluster->run,	  "--listen", "tcp:127.0.0.1:0",
		"--extent-size",  size,	      NULL};

	snprintf(size, sizeof(size), "%llu",
		 (unsigned long long)cluster->options.extent_size);
	return process_start(pair, &options, arguments, &cluster->broker);
}

/* Have the broker know a node, once there is a broker. */
static int add_node(struct driver_pair *pair, struct cluster *cluster,
		    uint32_t index)
{
	const struct process_options options = options_of(cluster);
	char name[16], key[80];
	const char *arguments[] = {
		cluster->program, "node",	"add", name, key,
		"--run",	  cluster->run, NULL};
	int rc = -EPROTO;

	snprintf(name, sizeof(name), "node%u", index);
	snprintf(key, sizeof(key), "%s/%s", cluster->directory, name);
	for (uint32_t i = 0; rc == -EPROTO && i < TRIES; i++) {
		if (i)
			pause_a_while();
		rc = process_run(pair, &options, arguments);
	}
	return rc ? driver_fail(pair, rc, "`reef node add` fails") : 0;
}

int bench_cluster_node_start(struct driver_pair *pair, struct cluster *cluster,
			     uint32_t index)
{
	const struct process_options options = options_of(cluster);
	char key[80], run[80], broker[112], size[24];
	const char *arguments[] = {cluster->program,
				   "node",
				   "--node-key",
				   key,
				   "--run",
				   run,
				   "--broker",
				   broker,
				   "--node-listen",
				   "tcp:127.0.0.1:0",
				   "--lend",
				   size,
				   "--keep",
				   "none",
				   NULL};

	snprintf(key, sizeof(key), "%s/node%u", cluster->directory, index);
	snprintf(run, sizeof(run), "%s/run%u", cluster->directory, index);
	snprintf(broker, sizeof(broker), "shm:%s/broker.sock", cluster->run);
	snprintf(size, sizeof(size), "%llu",
		 (unsigned long long)cluster->options.lend);
	return process_start(pair, &options, arguments, &cluster->nodes[index]);
}

/* Wait until copies have room: a space without a name asks for them, and is
 * refused before that. */
static int wait_for_nodes(struct driver_pair *pair)
{
	const struct reef_space_options options = {
		.flags = REEF_SPACE_STRICT,
		.copies = COPIES,
	};
	struct reef_space *space;
	struct reef *reef;
	int rc = reef_open("local", NULL, &reef);

	if (rc)
		return driver_fail(pair, rc, "the pool: %s",
				   reef_error_text(rc));
	rc = -ENOSPC;
	for (uint32_t i = 0; rc == -ENOSPC && i < TRIES; i++) {
		if (i)
			pause_a_while();
		rc = reef_space_open(reef, NULL, &options, &space);
	}
	if (!rc)
		reef_space_close(space);
	reef_close(reef);
	return rc ? driver_fail(pair, rc, "the nodes: %s", reef_error_text(rc))
		  : 0;
}

int bench_cluster_start(struct driver_pair *pair, struct cluster *cluster,
			const struct cluster_options *options)
{
	int rc;

	*cluster = (struct cluster){.options = *options};
	rc = process_directory(pair, cluster->directory);
	rc = rc ? rc : process_self(pair, cluster->program);
	if (rc)
		return rc;
	driver_pin(0);
	snprintf(cluster->run, sizeof(cluster->run), "%s/run",
		 cluster->directory);
	setenv("REEF_RUN", cluster->run, 1);
	rc = start_broker(pair, cluster);
	for (uint32_t i = 0; !rc && i < options->nodes; i++) {
		rc = add_node(pair, cluster, i);
		rc = rc ? rc : bench_cluster_node_start(pair, cluster, i);
	}
	return rc ? rc : wait_for_nodes(pair);
}

void bench_cluster_node_kill(struct cluster *cluster, uint32_t index)
{
	process_end(&cluster->nodes[index], SIGKILL);
}

void bench_cluster_end(struct cluster *cluster)
{
	/* Nothing is kept, so nothing has to be stopped well; who stops a
	 * broker without nodes waits for what its janitor has under way there.
	 */
	process_end(&cluster->broker, SIGKILL);
	for (uint32_t i = 0; i < CLUSTER_NODES_MAX; i++)
		process_end(&cluster->nodes[i], SIGKILL);
	process_directory_remove(cluster->directory);
}
