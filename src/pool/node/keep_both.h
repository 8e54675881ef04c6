/* keep_both.h - a keep (keep.h) made of two: a holder (holder.h), which has the
 * memory itself while the node runs, and an image (keep_image.h), to which it
 * is saved at a clean stop. Either may be missing.
 *
 * (1) What the holder has is taken, unless an image is clean; else the image,
 *     if (3) allows.
 * (2) What comes from the image is with the holder before the image is spent,
 *     and both happen only when the node lends it (keep.h, 8). So a process
 *     that ends in between loses nothing, and no older memory comes back later.
 * (3) A holder is told the number of the image that its memory comes from, or
 *     goes to, before it does, and that there is none once the image is spent.
 *     So if a clean image has that number, the process ended while (2) or (4)
 *     was under way, and the image has all. If it has another, nothing is
 *     taken: -EEXIST. Somebody ran the node without its holder meanwhile, or
 *     brought a folder of before back.
 * (4) At a clean stop the image is saved first. Only if that succeeded the
 *     holder gives up what it has; else the memory stays with it for as long as
 *     it waits.
 * (5) What an earlier process left is taken whatever is wanted of this one;
 *     that is about its clean stop.
 *
 * Thread: owner, as keep.h says. */
#ifndef REEF_POOL_NODE_KEEP_BOTH_H
#define REEF_POOL_NODE_KEEP_BOTH_H

#include "pool/node/keep.h"

/* What take found. */
struct reef_keep_both_report {
	bool from_holder, from_image;
	uint32_t extents;
	uint64_t bytes, took_ns;
};

struct reef_keep_both_options {
	struct reef_keep *holder,
		*image; /* the caller's; NULL: there is none */
	/* What has the memory after a clean stop; neither: nothing. */
	bool saves, holds;
};

/* Make one of both, which outlive it. Caller owns *out.  -ENOMEM. */
int reef_keep_both_create(const struct reef_keep_both_options *options,
			  struct reef_keep **out);
void reef_keep_both_destroy(struct reef_keep *keep); /* NULL is fine */

const struct reef_keep_both_report *
reef_keep_both_report(const struct reef_keep *keep);

#endif
