/* locks.c - the mutants of locks: see lock_work.h, sync_scenarios.c. */
#include "program.h"

#include "sync/lock.h"

static const struct mutant mutants[] = {
	{"unlock-by-write", "calm", .lock = LOCK_MUTANT_UNLOCK_BY_WRITE},
	{"break-at-expired", "clients", .lock = LOCK_MUTANT_BREAK_AT_EXPIRED},
	{"stale-ticket", "clients", .lock = LOCK_MUTANT_STALE_TICKET},
	{"wake-before-word", "calm", .lock = LOCK_MUTANT_WAKE_BEFORE_WORD},
	{"reader-late", "calm", .lock = LOCK_MUTANT_READER_LATE},
	{"no-reread", "calm", .lock = LOCK_MUTANT_NO_REREAD},
	{"skip-unnamed", "calm", .lock = LOCK_MUTANT_SKIP_UNNAMED},
	{"forget-inherited", "clients", .lock = LOCK_MUTANT_FORGET_INHERITED},
	{"ignore-left", "calm", .lock = LOCK_MUTANT_IGNORE_LEFT},
};
static_assert(sizeof(mutants) / sizeof(mutants[0]) == LOCK_MUTANTS - 1,
	      "each has to be found");

const struct program program = {
	.name = "locks",
	.scenarios = sync_scenarios,
	.scenarios_count = &sync_scenarios_count,
	.mutants = mutants,
	.mutants_count = sizeof(mutants) / sizeof(mutants[0]),
};
