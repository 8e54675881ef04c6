/* mutant.c - the switch, and the names for command lines. */
#include "base/mutant.h"

#include "base/log.h"

#include <string.h>

_Atomic unsigned reef_mutant_on;

#define NAME(name, text) #name,
#define TEXT(name, text) text,

static const char *const names[] = {"NONE", REEF_MUTANTS_ALL(NAME)};
static const char *const texts[] = {"Nothing.", REEF_MUTANTS_ALL(TEXT)};

void reef_mutate(enum reef_mutant mutant)
{
	reef_assert(mutant < REEF_MUTANT_COUNT);
	atomic_store_explicit(&reef_mutant_on, mutant, memory_order_relaxed);
}

enum reef_mutant reef_mutant_now(void)
{
	return (enum reef_mutant)atomic_load_explicit(&reef_mutant_on,
						      memory_order_relaxed);
}

const char *reef_mutant_name(enum reef_mutant mutant)
{
	reef_assert(mutant < REEF_MUTANT_COUNT);
	return names[mutant];
}

const char *reef_mutant_text(enum reef_mutant mutant)
{
	reef_assert(mutant < REEF_MUTANT_COUNT);
	return texts[mutant];
}

enum reef_mutant reef_mutant_named(const char *name)
{
	enum reef_mutant mutant = REEF_MUTANT_COUNT - 1;

	while (mutant != REEF_MUTANT_NONE && strcmp(name, names[mutant]))
		mutant--;
	return mutant;
}
