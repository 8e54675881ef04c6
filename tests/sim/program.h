/* program.h - what sets the programs here apart: scenarios and mutants.
 *
 *   pool   pool.c, workload.c: spaces, blocks, names
 *   locks  locks.c, lock_work.c: locks, and what they protect
 *   leads  leads.c, lead_work.c: elections, and what leaders write
 *   tables tables.c, table_work.c: hash tables, and what became of their keys
 *   txns   txns.c, txn_work.c: transactions over maps, among plain calls
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

/* What memory with two copies has to survive, whatever lies in it. A node is
 * given up within a run, and its copies are made anew. The argument: for how
 * long. */
#define COPIED(ms) \
	.ttl_ns = 16 * MILLISECOND, .node_ttl_ns = 12 * MILLISECOND, \
	.silence_ns = 8 * MILLISECOND, .duration_ns = (ms) * MILLISECOND, \
	.clients = 3, .chaos_every_ns = 6 * MILLISECOND, \
	.patience_ns = 2 * SECOND, .step_ns = 1, .hasty = true, \
	.capacity = 16ull << 20, .copies = 2, .nodes = 3
#define SCENARIOS_OF_COPIES \
	{"node", "a node dies, stands still or is cut off, at every operation", \
	 {COPIED(60), .strike = STRIKE_NODE, .seeds_max = 100}}, \
	{"nodes", "nodes die, stand still, are cut off, and come back", \
	 {COPIED(120), .chaos = CHAOS_NODES, .seeds_max = 20}}, \
	{"returns", "the same, and they come back with their memory", \
	 {COPIED(120), .chaos = CHAOS_NODES, .keeps = true, .seeds_max = 20}}, \
	{"nodes-all", "the same, with everything else", \
	 {COPIED(120), .chaos = CHAOS_NODES | CHAOS_ALL, .seeds_max = 20}}, \
	{"together", "several nodes at once, and they come back with their memory", \
	 {COPIED(120), .chaos = CHAOS_NODES, .keeps = true, .several = true, \
	  .seeds_max = 20}}, \
	{"together-all", "the same, while broker and clients die again and again", \
	 {COPIED(120), .chaos = CHAOS_NODES | CHAOS_BROKER_KILL | \
	  CHAOS_BROKER_POWER | CHAOS_CLIENTS, .keeps = true, .several = true, \
	  .seeds_max = 20}}
/* clang-format on */

/* Of locks and leads. */
extern const struct scenario sync_scenarios[];
extern const size_t sync_scenarios_count;

#endif
