/* logs.c - what logs go through, and the mutants that must be found: see
 * log_work.c. */
#include "program.h"

#include <assert.h>

/* Leases are as short as the network allows, so that several end in each run,
 * and memory that was freed is soon reused. */
#define BRIEF_OF(every_ms, mib)                                                \
	.ttl_ns = 16 * MILLISECOND, .node_ttl_ns = 32 * MILLISECOND,           \
	.silence_ns = 8 * MILLISECOND, .duration_ns = 44 * MILLISECOND,        \
	.clients = 3, .chaos_every_ns = (every_ms)*MILLISECOND,                \
	.patience_ns = 2 * SECOND, .step_ns = 1, .hasty = true,                \
	.capacity = UINT64_C(mib) << 20
#define BRIEF BRIEF_OF(6, 16)

static const struct scenario scenarios[] = {
	{"calm", "nothing goes wrong", {BRIEF}},
	SCENARIOS_OF_TROUBLE(BRIEF),
	SCENARIOS_OF_COPIES,
	{"losses",
	 "nodes die, with segments, tails and whole logs",
	 {BRIEF, .chaos = CHAOS_NODE_KILL, .nodes = 4}},
	{"ruin",
	 "nodes die, and clients with them, again and again",
	 {BRIEF_OF(3, 16),
	  .chaos = CHAOS_NODE_KILL | CHAOS_CLIENT_KILL | CHAOS_CLIENT_PAUSE,
	  .nodes = 4}},
	{"full",
	 "there is hardly any room, and clients die",
	 {BRIEF_OF(6, 4), .chaos = CHAOS_CLIENTS}},
	{"away",
	 "clients give up on nodes that they do not reach, and go on",
	 {BRIEF, .chaos = CHAOS_CUT | CHAOS_LINKS, .gives_up_ns = MILLISECOND}},
};
static const size_t scenarios_count = sizeof(scenarios) / sizeof(scenarios[0]);

/* The others are found by tests/unit/log. */
#define FOUND_ELSEWHERE 6
static const struct mutant mutants[] = {
	{REEF_MUTANT_LOG_WORD_FIRST, "calm"},
	{REEF_MUTANT_LOG_TAIL_TRUSTED, "calm"},
	{REEF_MUTANT_LOG_FILL_WRITE, "calm"},
	{REEF_MUTANT_LOG_ROW_EARLY, "calm"},
	{REEF_MUTANT_LOG_GENERATION_IGNORED, "calm"},
	{REEF_MUTANT_LOG_THREE_OPEN, "network"},
	{REEF_MUTANT_LOG_TAIL_UNSEALED, "calm"},
	{REEF_MUTANT_LOG_GUESS, "calm"},
	{REEF_MUTANT_LOG_HOLE_SKIPPED, "calm"},
	{REEF_MUTANT_LOG_TRIM_NOW, "losses"},
	{REEF_MUTANT_LOG_SHARD_EARLY, "calm"},
	{REEF_MUTANT_LOG_COUNT_FIRST, "calm"},
	{REEF_MUTANT_LOG_SHARD_OTHER_BYTES, "network"},
	{REEF_MUTANT_LOG_CUT_BACK, "calm"},
	{REEF_MUTANT_LOG_CUT_CELL, "calm"},
	{REEF_MUTANT_LOG_SHARD_UNJOINED, "calm"},
	{REEF_MUTANT_LOG_CUT_TWICE, "losses"},
};

static_assert(sizeof(mutants) / sizeof(mutants[0]) + FOUND_ELSEWHERE ==
		      REEF_MUTANTS_OF_LOG(REEF_MUTANT_ONE),
	      "each has to be found");

const struct program program = {
	.name = "logs",
	.scenarios = scenarios,
	.scenarios_count = &scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
