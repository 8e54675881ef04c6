/* keep_image.h - a node's memory in files, between a clean stop and the next
 * start: a keep (keep.h).
 *
 * (1) `save` writes one image of all extents, then the clean mark with that
 *     image's number. Both are durable when it returns; an error leaves no
 *     mark.
 * (2) `take` believes an image only if it is marked. `lend` takes the mark
 *     away, durably: what the node lends from then on is newer than the image,
 *     so the image must not come back. The file itself goes when the next one
 *     is about to be written: on some disks that takes longer than to read it,
 *     and the node is wanted now.
 * (3) What is damaged stays as it is, with its mark: -REEF_ECORRUPT, and the
 *     node does not start before somebody has decided what is to become of it.
 * (4) An image without a mark never comes back. It is of one node alone, and
 *     words on it would name what is gone, or another's, on the next.
 * (5) Nothing goes by the machine or its boot: a folder that was brought
 *     elsewhere is as good.
 * (6) A folder is one process's at a time.
 *
 * Thread: owner, as keep.h says. */
#ifndef REEF_POOL_NODE_KEEP_IMAGE_H
#define REEF_POOL_NODE_KEEP_IMAGE_H

#include "pool/node/keep.h"

#define REEF_KEEP_IMAGE_MARK "clean" /* the file that is the mark */

struct reef_store;

struct reef_keep_image_options {
	/* Called after each MiB. May be NULL; what it returns is ignored. */
	int (*progress)(void *context, uint64_t done, uint64_t all);
	void *context;
};

/* What was found by take, or written by save. */
struct reef_keep_image_report {
	bool done;  /* an image was taken, or saved */
	bool saved; /* it was saved */
	int failed; /* it was to be saved, and this is why it was not; or 0 */
	uint32_t extents; /* that it has, or would have had */
	uint64_t bytes;
	uint64_t unix_ns; /* when it was made */
	uint64_t took_ns;
};

/* A keep of a folder, which the store is and which outlives it. Caller owns
 * *out.  -ENOMEM; else as getrandom(2). */
int reef_keep_image_create(struct reef_store *store,
			   const struct reef_keep_image_options *options,
			   struct reef_keep **out);
void reef_keep_image_destroy(struct reef_keep *keep); /* NULL is fine */

/* What the last take or save of it did. */
const struct reef_keep_image_report *
reef_keep_image_report(const struct reef_keep *keep);

#endif
