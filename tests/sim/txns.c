/* txns.c - what transactions go through, and the mutants that must be found:
 * see txn_work.c. */
#include "txn_work.h"

#include <assert.h>

const bool txn_work_trees = false;

static const struct scenario scenarios[] = {TXN_SCENARIOS};
static const size_t scenarios_count = sizeof(scenarios) / sizeof(scenarios[0]);

static const struct mutant mutants[] = {
	{REEF_MUTANT_TXN_COMMIT_FIRST, "calm"},
	{REEF_MUTANT_TXN_NO_LIVE, "calm"},
	{REEF_MUTANT_TXN_READ_UNTAKEN, "calm"},
	{REEF_MUTANT_TXN_NO_SECOND_READ, "calm"},
	{REEF_MUTANT_TXN_VALIDATE_EARLY, "calm"},
	{REEF_MUTANT_TXN_ABORT_OTHERS, "calm"},
	{REEF_MUTANT_TXN_RESOLVE_OLD, "calm"},
	{REEF_MUTANT_TXN_REUSE_EARLY, "calm"},
	{REEF_MUTANT_TXN_CARRY_UNMARKED, "calm"},
	{REEF_MUTANT_TXN_DROP_INTENT, "calm"},
	{REEF_MUTANT_TXN_STATUS_KEPT, "calm"},
};
/* TXN_PENDING_OLD and TXN_LATE_LIVE are found by unit tests; the others by
 * txn_trees. */
static_assert(sizeof(mutants) / sizeof(mutants[0]) + 5 ==
		      REEF_MUTANTS_OF_TXN(REEF_MUTANT_ONE),
	      "each has to be found");

const struct program program = {
	.name = "txns",
	.scenarios = scenarios,
	.scenarios_count = &scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
