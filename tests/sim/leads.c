/* leads.c - elections: see lead_work.c, sync_scenarios.c. */
#include "program.h"

static const struct mutant mutants[] = {
	{"broker-early-fenced", "clients",
	 .broker = REEF_BROKER_MUTANT_EARLY_FENCED},
	{"node-no-fence", "clients", .node = REEF_NODE_MUTANT_NO_FENCE},
};

const struct program program = {
	.name = "leads",
	.scenarios = sync_scenarios,
	.scenarios_count = &sync_scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
