/* exercise_posix.h - the face of an exercise that calls the kernel: files in a
 * directory.
 *
 * Files stay open from call to call.
 *
 * Thread: one at a time. */
#ifndef REEF_TESTS_EXERCISE_POSIX_H
#define REEF_TESTS_EXERCISE_POSIX_H

#include "check/exercise.h"

struct exercise_posix {
	const char *directory;
	struct {
		uint64_t id;
		int fd; /* 0: not open */
	} open[EXERCISE_NAMES];
};

extern const struct exercise_face exercise_posix_face;

void exercise_posix_close(struct exercise_posix *posix);

#endif
