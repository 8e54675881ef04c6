/* hold_save.h - what a holder does with the memory when it gives up.
 *
 * (1) Whoever may still have the memory mapped is ended first: it must not
 *     change while it is copied, nor can it be let go of later.
 * (2) It is saved as its node's clean image (keep_image.h). That is right, and
 *     never mixes moments: since the node ended nobody could reach the memory
 *     but those of (1), its extents waited (AWAY), and whatever others did
 *     meanwhile they would also have done had the node come back to the memory
 *     itself. It is as if the node had been stopped.
 * (3) A clean image that is there stays. If it is of this memory
 *     (keep_both.h, 3), nothing more is to be saved. If not, somebody ran the
 *     node without its holder, or brought an old folder back, and who is right
 *     is not for us to say.
 *
 * Thread: the holder's. */
#ifndef REEF_POOL_NODE_HOLD_SAVE_H
#define REEF_POOL_NODE_HOLD_SAVE_H

#include "pool/node/keep.h"

struct held_extent {
	struct reef_keep_line line;
	int fd;
};

/* End those processes that have some of the extents mapped; *ended: how many.
 * -ETIMEDOUT: one of them does not end. */
int hold_end_mappers(const int *pidfds, uint32_t pidfds_count,
		     const struct held_extent *extents, uint32_t count,
		     uint32_t *ended);

/* Save the extents into the folder.  -EEXIST: (3).  -EBUSY: a node has the
 * folder.  -ENOMEM; else as files' calls. */
int hold_save(const char *folder, const struct reef_keep_head *head,
	      const struct held_extent *extents, uint32_t count);

#endif
