/* leads.c - elections: see lead_work.c, sync_scenarios.c. */
#include "program.h"

static const struct mutant mutants[] = {
	{REEF_MUTANT_BROKER_EARLY_FENCED, "clients"},
	{REEF_MUTANT_NODE_NO_FENCE, "clients"},
};

const struct program program = {
	.name = "leads",
	.scenarios = sync_scenarios,
	.scenarios_count = &sync_scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
