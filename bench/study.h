/* study.h - the four questions about a NIC that decide how a system over remote
 * memory must be built, each as a set of loads (shape.h).
 *
 * Thread: any; they are constant. */
#ifndef REEF_BENCH_STUDY_H
#define REEF_BENCH_STUDY_H

#include "bench/shape.h"

#define STUDY_LINES_MAX 4
#define STUDY_POINTS_MAX 16

struct study {
	const char *name;	/* one word, for a file */
	const char *title;	/* the answer, in a sentence */
	const char *subtitle;	/* how it was asked */
	const char *point_name; /* what is varied */
	bool points_are_bytes;
	bool logarithmic;			     /* better seen so */
	const char *lines[STUDY_LINES_MAX + 1];	     /* to NULL */
	uint64_t points[STUDY_POINTS_MAX + 1];	     /* to 0 */
	uint64_t quick_points[STUDY_POINTS_MAX + 1]; /* to 0 */
	void (*load)(uint32_t line, uint64_t point, struct shape_load *load);
};

extern const struct study *const study_all[]; /* to NULL */

/* The one with that name, or NULL. */
const struct study *study_find(const char *name);

/* Run one point of one line. As shape_run. */
int study_run(const struct study *study, uint32_t line, uint64_t point,
	      uint64_t seed, struct shape_result *out);

#endif
