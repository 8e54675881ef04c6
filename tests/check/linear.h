/* linear.h - is a recorded history linearizable?
 *
 * A history is a list of operations with the moments at which each was called
 * and returned. It is linearizable if every operation can be given one moment
 * between its call and its return, so that all results are what a sequential
 * object (the *model*) would have answered in that order.
 *
 * (1) Operations of different keys are independent objects, and are checked one
 *     key after the other.
 * (2) An operation that never returned, or whose outcome its caller does not
 *     know, has returned_at LINEAR_NEVER: it may have happened at any moment
 *     after its call, or not at all.
 * (3) The search is Wing and Gong's, with Lowe's memory of what was tried: a
 *     set of operations that are done, and the state they led to, is entered
 *     once. It is exponential in how many operations of one key overlap, so it
 *     has a limit, and says when it was reached instead of guessing.
 *
 * Thread: owner. */
#ifndef REEF_TESTS_CHECK_LINEAR_H
#define REEF_TESTS_CHECK_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINEAR_NEVER UINT64_MAX
#define LINEAR_STATE 4 /* words */

struct linear_op {
	uint64_t key;
	uint32_t client; /* for people */
	uint32_t kind;	 /* the model's */
	uint64_t arguments[3];
	uint64_t results[3]; /* nothing, if it never returned */
	uint64_t called_at, returned_at;
};

struct linear_model {
	/* Would an object in this state answer so? Then true, and *next is the
	 * state after it. An operation that never returned answers anything. */
	bool (*step)(const uint64_t state[LINEAR_STATE],
		     const struct linear_op *op, uint64_t next[LINEAR_STATE]);
	uint64_t start[LINEAR_STATE];
};

enum linear_verdict {
	LINEAR_YES,
	LINEAR_NO,
	LINEAR_UNKNOWN, /* the limit was reached */
};

struct linear_result {
	enum linear_verdict verdict;
	uint64_t key;	/* NO, UNKNOWN: where */
	uint64_t steps; /* that were tried, in all */
	size_t longest; /* NO: how many of the key's operations fitted */
	size_t op;	/* NO: one that never did, in the given list */
};

/* Check a history, in any order; it is not changed. steps_max: for each key; 0:
 * ten million.  -EINVAL: an operation that returned before it was called.
 * -ENOMEM. */
int linear_check(const struct linear_model *model, const struct linear_op *ops,
		 size_t count, uint64_t steps_max,
		 struct linear_result *result);

#endif
