/* txn_trees.c - what transactions over trees and maps go through, and the
 * mutants that must be found there, too: see txn_work.c. */
#include "txn_work.h"

const bool txn_work_trees = true;

static const struct scenario scenarios[] = {
	TXN_SCENARIOS,
	{"apart", "memory on three nodes", {TXN_BRIEF, .nodes = 3}},
	SCENARIOS_OF_COPIES,
};
static const size_t scenarios_count = sizeof(scenarios) / sizeof(scenarios[0]);

static const struct mutant mutants[] = {
	{REEF_MUTANT_TXN_COMMIT_FIRST, "calm"},
	{REEF_MUTANT_TXN_READ_UNTAKEN, "calm"},
	{REEF_MUTANT_TXN_NO_SECOND_READ, "calm"},
	{REEF_MUTANT_TXN_VALIDATE_EARLY, "calm"},
	{REEF_MUTANT_TXN_ABORT_OTHERS, "calm"},
	{REEF_MUTANT_TXN_RESOLVE_OLD, "calm"},
	{REEF_MUTANT_TXN_REUSE_EARLY, "calm"},
	{REEF_MUTANT_TXN_CARRY_UNMARKED, "calm"},
	{REEF_MUTANT_TXN_DROP_INTENT, "calm"},
	{REEF_MUTANT_TXN_NO_PHANTOM, "calm"},
	{REEF_MUTANT_TXN_ENTRY_EARLY, "apart"},
};

const struct program program = {
	.name = "txn_trees",
	.scenarios = scenarios,
	.scenarios_count = &scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
