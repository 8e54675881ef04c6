/* tables.c - what hash tables go through, and the mutants that must be found:
 * see table_work.c. */
#include "program.h"

#include "index/hash/table.h"

#include <assert.h>

/* Leases are as short as the network allows, so that several end in each run,
 * and memory that was freed is soon reused. */
#define BRIEF                                                                  \
	.ttl_ns = 16 * MILLISECOND, .node_ttl_ns = 32 * MILLISECOND,           \
	.silence_ns = 8 * MILLISECOND, .duration_ns = 36 * MILLISECOND,        \
	.clients = 3, .chaos_every_ns = 6 * MILLISECOND,                       \
	.patience_ns = 2 * SECOND, .step_ns = 1, .hasty = true,                \
	.capacity = 16ull << 20

static const struct scenario scenarios[] = {
	{"calm", "nothing goes wrong", {BRIEF}},
	SCENARIOS_OF_TROUBLE(BRIEF),
	SCENARIOS_OF_COPIES,
	{"away",
	 "clients give up on nodes that they do not reach, and go on",
	 {BRIEF, .chaos = CHAOS_CUT | CHAOS_LINKS, .gives_up_ns = MILLISECOND}},
};
static const size_t scenarios_count = sizeof(scenarios) / sizeof(scenarios[0]);

static const struct mutant mutants[] = {
	{REEF_MUTANT_HASH_NO_REREAD, "calm"},
	{REEF_MUTANT_HASH_NO_TAG, "calm"},
	{REEF_MUTANT_HASH_TORN_ABSENT, "calm"},
	{REEF_MUTANT_HASH_NO_FREEZE, "calm"},
	{REEF_MUTANT_HASH_NO_INTENT, "clients"},
	{REEF_MUTANT_HASH_EARLY_REUSE, "calm"},
	{REEF_MUTANT_HASH_LATE_MARK, "calm"},
	{REEF_MUTANT_HASH_RECUR, "calm"},
};
static_assert(sizeof(mutants) / sizeof(mutants[0]) ==
		      REEF_MUTANTS_OF_HASH(REEF_MUTANT_ONE),
	      "each has to be found");

const struct program program = {
	.name = "tables",
	.scenarios = scenarios,
	.scenarios_count = &scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
