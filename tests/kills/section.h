/* section.h - what a guard protects: words of the pool that are read, changed
 * and written, with nothing else to keep them right.
 *
 *   total   one more with every update
 *   copy    of total, written last
 *   intent  who changes it (seat + 1; 0: nobody), and what to
 *   counts  of each seat: how often it has
 *
 * (1) Two who update at once lose an update: then total is less than the
 *     counts' sum.
 * (2) An update that ended in the middle is found by its intent, and finished
 *     by whoever comes next; one that was not told, but finds it, has found a
 *     violation.
 *
 * Thread: owner of the handle. */
#ifndef REEF_TESTS_KILLS_SECTION_H
#define REEF_TESTS_KILLS_SECTION_H

#include "board.h"

#include <reef/reef.h>

/* Make the words of a section, all zero; they outlive the session. */
int section_create(struct reef_space *space, struct reef *reef,
		   uint64_t *address);

struct section {
	struct board *board;
	struct reef *reef;
	uint32_t seat;
	bool unsure;	 /* a fence came in the middle of our last update */
	uint64_t random; /* state; not 0 */
};

/* A judge that goes by what the pool says of sessions. */
struct board_judge section_judge(struct section *section);

uint64_t section_random(struct section *section, uint64_t below);

/* Finish what another left, if told; then update. Says where it is. 0; -EPROTO:
 * the test has failed; errors of access. */
int section_update(struct section *section, bool told);
/* Read as a reader: nothing may change meanwhile. */
int section_read(struct section *section, bool told);
int section_repair(struct section *section);

/* Check the total, and the count of every participant that is alive or ended
 * well. */
int section_check(struct section *section, uint64_t *total);

#endif
