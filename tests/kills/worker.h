/* worker.h - the processes that are killed.
 *
 * Thread: one call per process. */
#ifndef REEF_TESTS_KILLS_WORKER_H
#define REEF_TESTS_KILLS_WORKER_H

#include "board.h"

#define PARTICIPANTS_MAX 4

/* Be participants `first` to first + count - 1 of the board until it says stop;
 * returns the exit status. A session that was fenced is followed by another. */
int worker_run(struct board *board, uint32_t first, uint32_t count);

/* One participant of a barrier (barrier.c), as worker.c has one of a guard: 0,
 * or -errno. */
struct section;
struct reef_space;
int barrier_participate(struct section *section, struct reef_space *space);

#endif
