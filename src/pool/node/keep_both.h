/* keep_both.h - a keep (keep.h) made of two: a holder (holder.h), which has the
 * memory itself while the node runs, and an image (keep_image.h), to which it
 * is saved at a clean stop. Either may be missing.
 *
 * (1) What the holder has is taken; if it has no memory, the image, if it is
 *     clean; else nothing.
 * (2) What comes from the image is with the holder before the image is spent,
 *     and both happen only when the node lends it (keep.h, 8); what comes from
 *     the holder spends the image. So a process that ends
 *     in between loses nothing, and no older memory comes back later.
 * (3) A clean image is never older than what the holder has (2). If it has
 *     more, the process ended while (2) was under way, and the image is taken.
 *     If it has not all of it, nothing is: -EEXIST. Somebody ran the node
 *     without its holder meanwhile.
 * (4) At a clean stop the image is saved first. Only if that succeeded the
 *     holder gives up what it has; else the memory stays with it for as long as
 *     it waits.
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
	/* The image is not taken nor saved, but spent (2). */
	bool spend_only;
};

/* Make one of both, which outlive it. Caller owns *out.  -ENOMEM. */
int reef_keep_both_create(const struct reef_keep_both_options *options,
			  struct reef_keep **out);
void reef_keep_both_destroy(struct reef_keep *keep); /* NULL is fine */

const struct reef_keep_both_report *
reef_keep_both_report(const struct reef_keep *keep);

#endif
