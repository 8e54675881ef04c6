/* workload.c - the cases by name. */
#include "workload.h"

#define OWN CLOCK_THREAD_CPUTIME_ID
#define WALL CLOCK_MONOTONIC

/* Chunks: long enough that the clock costs nothing, short enough that a round
 * of some milliseconds holds many. */
static const struct workload workloads[] = {
	{"shm-read-64", WORKLOAD_CHAIN, WORKLOAD_SPIN, 64, 512, OWN},
	{"shm-read-64-batch32", WORKLOAD_BATCH, WORKLOAD_SPIN, 64, 1024, OWN},
	{"shm-write-64", WORKLOAD_WRITE, WORKLOAD_SPIN, 64, 512, OWN},
	{"shm-cas", WORKLOAD_CAS, WORKLOAD_SPIN, 8, 512, OWN},
	{"shm-faa", WORKLOAD_FAA, WORKLOAD_SPIN, 8, 512, OWN},
	{"shm-write-64-free", WORKLOAD_WRITE_FREE, WORKLOAD_SPIN, 64, 512, OWN},
	{"shm-cas-free", WORKLOAD_CAS_FREE, WORKLOAD_SPIN, 8, 512, OWN},
	{"shm-faa-free", WORKLOAD_FAA_FREE, WORKLOAD_SPIN, 8, 512, OWN},
	{"shm-cas-hot", WORKLOAD_CAS_HOT, WORKLOAD_SPIN, 8, 1024, OWN},
	{"shm-faa-hot", WORKLOAD_FAA_HOT, WORKLOAD_SPIN, 8, 1024, OWN},
	{"shm-read-8k", WORKLOAD_READ, WORKLOAD_SPIN, 8192, 64, OWN},
	{"shm-read-64-spin", WORKLOAD_READ, WORKLOAD_SPIN, 64, 512, OWN},
	{"shm-read-64-sleep", WORKLOAD_READ, WORKLOAD_SLEEP, 64, 512, WALL},
	{"shm-read-64-fibers16", WORKLOAD_READ, WORKLOAD_FIBERS, 64, 512, OWN},
	{"tcp-read-64", WORKLOAD_READ, WORKLOAD_SPIN, 64, 8, WALL},
	{"tcp-read-64-batch32", WORKLOAD_BATCH, WORKLOAD_SPIN, 64, 64, WALL},
	{"tcp-read-8k", WORKLOAD_READ, WORKLOAD_SPIN, 8192, 8, WALL},
	{"tcp-read-64-spin", WORKLOAD_READ, WORKLOAD_SPIN, 64, 8, WALL},
	{"tcp-read-64-sleep", WORKLOAD_READ, WORKLOAD_SLEEP, 64, 8, WALL},
	{"tcp-read-64-tls", WORKLOAD_READ, WORKLOAD_SPIN, 64, 8, WALL},
	{"tcp-read-8k-tls", WORKLOAD_READ, WORKLOAD_SPIN, 8192, 8, WALL},
	{"tcp-read-64-fibers16", WORKLOAD_READ, WORKLOAD_FIBERS, 64, 8, WALL},
};

const struct workload *workload_find(const char *name)
{
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++)
		if (strcmp(workloads[i].name, name) == 0)
			return &workloads[i];
	return NULL;
}
