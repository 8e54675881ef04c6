/* pool.c - what a pool goes through: see workload.c. */
#include "program.h"

static const struct scenario scenarios[] = {
	{"calm", "nothing goes wrong", {0}},
	{"broker",
	 "the broker is killed all the time",
	 {.chaos = CHAOS_BROKER, .chaos_every_ns = 15 * MILLISECOND}},
	{"fence",
	 "leases end while nodes are slow to confirm it",
	 {.chaos = CHAOS_FENCE | CHAOS_CLIENT_PAUSE | CHAOS_END}},
	{"drain",
	 "nodes are drained under load",
	 {.chaos = CHAOS_DRAIN, .nodes = 3, .patience_ns = SECOND / 2}},
	{"drain-crash",
	 "nodes are drained, the broker dies, links are lost",
	 {.chaos = CHAOS_DRAIN | CHAOS_BROKER | CHAOS_LINKS, .nodes = 3}},
	{"stale-broker",
	 "another broker takes over, and the old one comes back",
	 {.chaos = CHAOS_TAKEOVER | CHAOS_CLIENT_PAUSE}},
	{"revoke",
	 "memory is taken back",
	 {.chaos = CHAOS_RECLAIM, .revocable = true}},
	{"fence-crash",
	 "clients stand still, and brokers die as they say so",
	 {.chaos = CHAOS_BROKER | CHAOS_CLIENT_PAUSE,
	  .chaos_every_ns = 10 * MILLISECOND}},
	{"clients",
	 "clients die and stand still",
	 {.chaos = CHAOS_CLIENT_PAUSE | CHAOS_CLIENT_KILL}},
	{"links", "connections are lost", {.chaos = CHAOS_LINKS | CHAOS_CUT}},
	{"nodes",
	 "nodes die, stand still, come back",
	 {.chaos = CHAOS_NODE_KILL | CHAOS_NODE_PAUSE, .nodes = 3}},
	{"returns",
	 "nodes die and stand still, and come back with their memory",
	 {.chaos = CHAOS_NODE_KILL | CHAOS_NODE_PAUSE,
	  .nodes = 3,
	  .keeps = true}},
	{"returns-all",
	 "the same, with everything else",
	 {.chaos = CHAOS_BROKER | CHAOS_CLIENTS | CHAOS_CUT | CHAOS_LINKS |
		   CHAOS_NODE_KILL | CHAOS_NODE_PAUSE,
	  .nodes = 3,
	  .keeps = true}},
	{"returns-stale",
	 "the same, while another broker takes over",
	 {.chaos = CHAOS_TAKEOVER | CHAOS_NODE_KILL | CHAOS_NODE_PAUSE |
		   CHAOS_CLIENT_PAUSE,
	  .nodes = 3,
	  .hasty = true,
	  .keeps = true}},
	{"full",
	 "there is not enough memory for all",
	 {.chaos = CHAOS_CLIENT_KILL,
	  .nodes = 1,
	  .capacity = 6ull << 20,
	  .scarce = true}},
	{"all",
	 "everything at once",
	 {.chaos = (CHAOS_TAKEOVER - 1),
	  .nodes = 3,
	  .revocable = true,
	  .chaos_every_ns = 25 * MILLISECOND}},
	{"all-but-nodes",
	 "everything but the loss of memory",
	 {.chaos = CHAOS_BROKER | CHAOS_CLIENT_PAUSE | CHAOS_CLIENT_KILL |
		   CHAOS_CUT | CHAOS_LINKS}},
};

/* Which mutants the seeds must find, and where to look for them. Those that a
 * whole pool hides are found beside their module: the broker's EARLY_PUBLISH in
 * broker_crash, HASTY_LEASE in lease and FENCE_FORGETS in broker_spaces, the
 * node's STALE_EPOCH in node_life, the client's YOUNG_PIN in client_recover,
 * SETTLE_ONE and PIN_DROPPED in client_settle, the heap's others in heap_sim.
 */
static const struct mutant mutants[] = {
	{REEF_MUTANT_BROKER_ONE_SAMPLE, "clients"},
	{REEF_MUTANT_BROKER_EARLY_FENCED, "fence"},
	{REEF_MUTANT_BROKER_FENCE_LAST, "fence"},
	{REEF_MUTANT_BROKER_EARLY_ANSWER, "broker"},
	{REEF_MUTANT_BROKER_OLD_EPOCH, "broker"},
	{REEF_MUTANT_BROKER_NO_GRACE, "broker"},
	{REEF_MUTANT_BROKER_EARLY_MOVE, "drain"},
	{REEF_MUTANT_BROKER_FORGET_REQUEST, "broker"},
	{REEF_MUTANT_BROKER_EARLY_SAFE, "calm"},
	{REEF_MUTANT_BROKER_UNCONFIRMED, "stale-broker"},
	{REEF_MUTANT_NODE_NO_FENCE, "fence"},
	{REEF_MUTANT_NODE_SAME_LIFE, "nodes"},
	{REEF_MUTANT_NODE_DIRTY, "drain"},
	{REEF_MUTANT_CLIENT_STALE_EXTENT, "drain"},
	{REEF_MUTANT_CLIENT_REPEAT, "links"},
	{REEF_MUTANT_CLIENT_NO_PIN, "calm"},
	{REEF_MUTANT_HEAP_EARLY_REUSE, "calm"},
};

static const size_t scenarios_count = sizeof(scenarios) / sizeof(scenarios[0]);

const struct program program = {
	.name = "pool",
	.scenarios = scenarios,
	.scenarios_count = &scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
