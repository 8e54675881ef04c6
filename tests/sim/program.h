/* program.h - what sets the programs here apart: scenarios and mutants.
 *
 *   pool   pool.c, workload.c: spaces, blocks, names
 *   locks  locks.c, lock_work.c: locks, and what they protect
 *   leads  leads.c, lead_work.c: elections, and what leaders write
 *   tables tables.c, table_work.c: hash tables, and what became of their keys
 *   logs   logs.c, log_work.c: logs, and in which order what was appended
 *          stands
 *   readers readers.c, reader_work.c: readers of a log, and who was given what
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

/* The troubles that locks, leads, tables and logs all go through. The arguments
 * are the options that they have in common. */
/* clang-format off */
#define SCENARIOS_OF_TROUBLE(...) \
	{"crash", "a client dies, at every operation in turn", \
	 {__VA_ARGS__, .strike = STRIKE_KILL}}, \
	{"stop", "a client stands still past its lease, at every operation", \
	 {__VA_ARGS__, .strike = STRIKE_STOP}}, \
	{"doubt", "a link is lost, at every operation in turn", \
	 {__VA_ARGS__, .strike = STRIKE_LOSE}}, \
	{"clients", "clients die, stand still, are ended", \
	 {__VA_ARGS__, .chaos = CHAOS_CLIENTS}}, \
	{"network", "partitions of all kinds; links are lost", \
	 {__VA_ARGS__, .chaos = CHAOS_NETWORK}}, \
	{"drain", "extents move, and clients die", \
	 {__VA_ARGS__, .chaos = CHAOS_DRAIN | CHAOS_CLIENT_KILL, .nodes = 3}}, \
	{"all", "all of it at once", \
	 {__VA_ARGS__, .chaos = CHAOS_ALL, .nodes = 3}}
/* clang-format on */

/* Of locks and leads. */
extern const struct scenario sync_scenarios[];
extern const size_t sync_scenarios_count;

#endif
