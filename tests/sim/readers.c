/* readers.c - what readers of a log go through, and the mutants that must be
 * found: see reader_work.c. */
#include "program.h"

#include <assert.h>

/* As in logs.c. */
#define BRIEF                                                                  \
	.ttl_ns = 16 * MILLISECOND, .node_ttl_ns = 32 * MILLISECOND,           \
	.silence_ns = 8 * MILLISECOND, .duration_ns = 44 * MILLISECOND,        \
	.clients = 3, .chaos_every_ns = 6 * MILLISECOND,                       \
	.patience_ns = 2 * SECOND, .step_ns = 1, .hasty = true,                \
	.capacity = 16ull << 20

static const struct scenario scenarios[] = {
	{"calm", "nothing goes wrong", {BRIEF}},
	SCENARIOS_OF_TROUBLE(BRIEF),
	SCENARIOS_OF_COPIES,
};
static const size_t scenarios_count = sizeof(scenarios) / sizeof(scenarios[0]);

/* The others are found by tests/unit/log. */
#define FOUND_ELSEWHERE 3
#define OF_LOGS 3
static const struct mutant mutants[] = {
	{REEF_MUTANT_READER_CLAIM_LATE, "calm"},
	{REEF_MUTANT_READER_BASE_AHEAD, "clients"},
	{REEF_MUTANT_READER_TAKE_EXPIRED, "clients"},
	/* By cuts. */
	{REEF_MUTANT_LOG_SHARD_UNJOINED, "calm"},
	{REEF_MUTANT_LOG_CUT_CELL, "calm"},
	{REEF_MUTANT_LOG_SHARD_EARLY, "calm"},
};

static_assert(sizeof(mutants) / sizeof(mutants[0]) - OF_LOGS +
			      FOUND_ELSEWHERE ==
		      REEF_MUTANTS_OF_READER(REEF_MUTANT_ONE),
	      "each has to be found");

const struct program program = {
	.name = "readers",
	.scenarios = scenarios,
	.scenarios_count = &scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
