/* examine.h - can all of a tree be read, and is it in order?
 *
 * (1) It only reads. What others change meanwhile does no harm.
 * (2) What cannot be read is told as a range of keys: from the last that could
 *     be read before it, to where the next sound leaf begins; and by the
 *     address of a leaf in it.
 *
 * Thread: owner of the handle. */
#ifndef REEF_KV_EXAMINE_H
#define REEF_KV_EXAMINE_H

#include <reef/tree.h>

#define TREE_FAULTS_MAX 1000u

/* Keys behind `after`, and before `before`. Good only during the call. */
struct tree_fault {
	const void *after;  /* NULL: from the first on */
	const void *before; /* NULL: to the end */
	size_t after_size, before_size;
	uint64_t head; /* address of the last leaf in it; 0: not known */
	int error;     /* -REEF_ECORRUPT, -REEF_ELOST; -EBADMSG: not in order */
};

/* Read a tree from end to end; call `fault` for each part that is not sound. At
 * most TREE_FAULTS_MAX are looked for. *keys: those that were met. 0, however
 * many faults there are.  Errors of access. */
int tree_examine(struct reef_tree *tree,
		 void (*fault)(void *context, const struct tree_fault *fault),
		 void *context, uint64_t *keys);

#endif
