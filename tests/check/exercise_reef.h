/* exercise_reef.h - the face of an exercise that calls the library.
 *
 * What is in the first folder is called by file.h, the others by folder.h.
 * Files stay open from call to call, so that what a handle remembers of them
 * may be out of date.
 *
 * Thread: owner of the handle. */
#ifndef REEF_TESTS_EXERCISE_REEF_H
#define REEF_TESTS_EXERCISE_REEF_H

#include "check/exercise.h"

#include <reef/folder.h>

struct exercise_reef {
	struct reef_space *space;
	struct reef_files *files; /* NULL: not open */
	const char *prefix;	  /* of the names; NULL: none */
	uint32_t chunk;		  /* of new files */
	struct {
		uint64_t id;
		struct reef_file *file; /* NULL: not open */
	} open[EXERCISE_NAMES];
};

extern const struct exercise_face exercise_reef_face;

/* Close what is open, before the space is. */
void exercise_reef_close(struct exercise_reef *reef);

#endif
