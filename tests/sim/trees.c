/* trees.c - what ordered trees go through, and the mutants that must be found:
 * see table_work.c. */
#include "program.h"

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
	{REEF_MUTANT_TREE_NO_MARK, "calm"},
	{REEF_MUTANT_TREE_LATE_MARK, "calm"},
	{REEF_MUTANT_TREE_LATE_ALIVE, "calm"},
	{REEF_MUTANT_TREE_SKIP_SLOT, "calm"},
	{REEF_MUTANT_TREE_FENCE_IGNORED, "calm"},
	{REEF_MUTANT_TREE_EARLY_REUSE, "calm"},
	{REEF_MUTANT_TREE_LOW_FIRST, "calm"},
	{REEF_MUTANT_TREE_ID_APART, "calm"},
	{REEF_MUTANT_TREE_MISS_UNPROVED, "calm"},
	{REEF_MUTANT_TREE_STALE_SOURCE, "calm"},
	{REEF_MUTANT_TREE_REVIVE_EMPTY, "calm"},
	{REEF_MUTANT_TREE_HEAD_REUSED, "calm"},
	{REEF_MUTANT_TREE_STAMP_LOST, "calm"},
	{REEF_MUTANT_TREE_THAW, "calm"},
	{REEF_MUTANT_TREE_TORN_ABSENT, "calm"},
	{REEF_MUTANT_TREE_JOIN_UNPROVED, "calm"},
	{REEF_MUTANT_TREE_JOIN_THAWED, "calm"},
	{REEF_MUTANT_TREE_JOIN_ALONE, "calm"},
	{REEF_MUTANT_TREE_JOIN_RIGHT, "calm"},
	{REEF_MUTANT_TREE_JOIN_TWICE, "calm"},
	{REEF_MUTANT_TREE_FETCH_UNPROVED, "calm"},
	{REEF_MUTANT_TREE_OLD_IMAGE, "calm"},
};
static_assert(sizeof(mutants) / sizeof(mutants[0]) ==
		      REEF_MUTANTS_OF_TREE(REEF_MUTANT_ONE),
	      "each has to be found");

const struct program program = {
	.name = "trees",
	.scenarios = scenarios,
	.scenarios_count = &scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
