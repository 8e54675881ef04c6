/* program.h - what sets the programs here apart: scenarios and mutants.
 *
 *   pool   pool.c, workload.c: spaces, blocks, names
 *   locks  locks.c, lock_work.c: locks, and what they protect
 *   leads  leads.c, lead_work.c: elections, and what leaders write
 *   tables tables.c, table_work.c: hash tables, and what became of their keys
 *
 * Thread: owner. */
#ifndef TESTS_SIM_PROGRAM_H
#define TESTS_SIM_PROGRAM_H

#include "cluster.h"

#include "base/mutant.h"

struct scenario {
	const char *name, *text;
	struct cluster_options options;
};

/* Which mutants the seeds must find, and where to look for them. */
struct mutant {
	enum reef_mutant number;
	const char *scenario;
};

struct program {
	const char *name;
	const struct scenario *scenarios;
	const size_t *scenarios_count;
	const struct mutant *mutants;
	size_t mutants_count;
};
extern const struct program program;

/* Of locks and leads. */
extern const struct scenario sync_scenarios[];
extern const size_t sync_scenarios_count;

#endif
