/* locks.c - the mutants of locks: see lock_work.h, sync_scenarios.c. */
#include "program.h"

#include "sync/lock.h"

static const struct mutant mutants[] = {
	{REEF_MUTANT_LOCK_UNLOCK_BY_WRITE, "calm"},
	{REEF_MUTANT_LOCK_BREAK_AT_EXPIRED, "clients"},
	{REEF_MUTANT_LOCK_STALE_TICKET, "clients"},
	{REEF_MUTANT_LOCK_WAKE_BEFORE_WORD, "calm"},
	{REEF_MUTANT_LOCK_READER_LATE, "calm"},
	{REEF_MUTANT_LOCK_NO_REREAD, "calm"},
	{REEF_MUTANT_LOCK_SKIP_UNNAMED, "calm"},
	{REEF_MUTANT_LOCK_FORGET_INHERITED, "clients"},
	{REEF_MUTANT_LOCK_IGNORE_LEFT, "calm"},
	{REEF_MUTANT_LOCK_FREE_AND_WAKE, "calm"},
};
static_assert(sizeof(mutants) / sizeof(mutants[0]) ==
		      REEF_MUTANTS_OF_LOCK(REEF_MUTANT_ONE),
	      "each has to be found");

const struct program program = {
	.name = "locks",
	.scenarios = sync_scenarios,
	.scenarios_count = &sync_scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
