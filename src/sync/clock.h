/* clock.h - what tests may do to a clock beyond sync.h.
 *
 * Thread: owner of the handle. */
#ifndef REEF_SYNC_CLOCK_H
#define REEF_SYNC_CLOCK_H

#include <reef/sync.h>

/* Deliberate violations, to find out whether the tests can fail. */
enum sync_clock_mutant {
	SYNC_CLOCK_MUTANT_NONE,
	SYNC_CLOCK_MUTANT_NO_CEILING, /* never compares with it */
	SYNC_CLOCK_MUTANT_RAISE_LATE, /* gives a time, raises it afterwards */
	SYNC_CLOCK_MUTANT_OLD_WORD,   /* a new one starts where it saw the lost
				       * one stand, not at the ceiling */
	SYNC_CLOCK_MUTANT_NO_ERA,  /* any ceiling will do, whoever raised it */
	SYNC_CLOCK_MUTANT_NO_WAIT, /* a new one starts while others may still
				    * draw from the lost one */
	SYNC_CLOCK_MUTANTS
};

void sync_clock_set_mutant(struct reef_clock *clock,
			   enum sync_clock_mutant mutant);

#endif
