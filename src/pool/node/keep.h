/* keep.h - what of a node outlives its process: its memory, and what it must
 * know of it.
 *
 * A *keep* has both while no process of the node runs: a holder (a process
 * beside it), an image (files), or what a simulation has. A node is given one
 * in its options; several are put together by who gives it. Without one its
 * memory goes with it.
 *
 * (1) `take` comes first, once in a process, before the node registers. What it
 *     gives is the node's from then on.
 * (2) An extent's memory is with the keep (`add`) before the broker hears of
 *     it, so before anything can be put there; and after its last change (fresh
 *     memory, another epoch) before the broker hears of that.
 *     It may be added again, with what changed.
 * (3) An extent is forgotten only after the broker has ordered its drop, or if
 *     the broker never heard of it. Nothing else takes memory from a keep: a
 *     node that is refused, or comes to another pool, forgets nothing.
 * (4) A process that memory can be mapped by is with the keep before it is
 *     passed a descriptor, and until it has let go of all of them, if the keep
 *     has any (holder.h): what is in files is mapped by nobody.
 * (5) `note` is called for every change of the head, before the node answers
 *     what made it change.
 * (6) `save` comes at a clean stop, when nobody can reach the memory any more:
 *     holders let go of it or were ended. After it the node destroys the memory
 *     that it gave with `add`: its pages go, unless the keep has them still. A
 *     process that just ends calls nothing, nor does one whose broker was
 *     refused.
 * (7) What is with a keep is marked so (memory.h, 7) until it is forgotten, or
 *     was saved elsewhere: so whoever destroys it before that takes no pages
 *     from who has them, too.
 * (8) What `take` gave is not given again once the node lends it: a keep that
 *     would give it again (an image) is told so by `lend`, before the node is
 *     READY, and before it opens anything. A node that is refused lends
 *     nothing, so all stays as it was, however its process ends.
 *
 * Thread: owner, which is the node's; calls may block for as long as a message
 * to a process of this machine takes, take and save as long as they need. */
#ifndef REEF_POOL_NODE_KEEP_H
#define REEF_POOL_NODE_KEEP_H

#include "fabric/memory.h"

#include <stdbool.h>
#include <stdint.h>

/* Whose memory it is, and whom the node believed last. */
struct reef_keep_head {
	uint64_t pool; /* its id; 0: the node has never been registered */
	uint32_t node; /* its number there */
	/* 1: nothing was forgotten since `confirmed`. An image does not have
	 * it: what was confirmed after it was taken, and before it was lent, is
	 * not in it, and it may be taken again. */
	uint32_t remembers;
	/* As in REEF_POOL_NODE_REGISTER: what it followed and confirmed. */
	uint64_t broker_epoch, followed_start;
	uint64_t confirmed_epoch, confirmed_start, confirmed;
	/* Of a holder: the image that has the same, once it is marked; 0: none
	 * (keep_both.h, 3). Keeps' own, nothing to the node. */
	uint64_t image;
};

/* One extent: a line of the manifest. */
struct reef_keep_line {
	uint32_t extent, space; /* numbers */
	uint32_t epoch;		/* the extent's */
	uint64_t size;		/* as asked for; the memory's is whole pages */
	uint64_t copy;		/* id, which the pool gives once */
};

/* All that is kept. */
struct reef_kept {
	struct reef_keep_head head;
	struct reef_kept_extent {
		struct reef_keep_line line;
		struct reef_memory *memory;
	} * extents; /* in the order of their numbers */
	uint32_t extents_count;
	/* Processes that may have some of it mapped. */
	struct reef_kept_client {
		uint32_t session;
		int pidfd;
	} * clients;
	uint32_t clients_count;
};

struct reef_keep {
	const struct reef_keep_ops *ops;
};

struct reef_keep_ops {
	/* Give what is kept; the caller owns it (reef_kept_fini). Nothing is
	 * kept: all of *out is 0. like: how the node makes memory; its size is
	 * the line's.  -EBUSY: another process of the node has it.
	 * -REEF_ECORRUPT: what is there cannot be trusted, and stays as it
	 * is. -ENOMEM. */
	int (*take)(struct reef_keep *keep,
		    const struct reef_memory_options *like,
		    struct reef_kept *out);
	/* Keep an extent, or in place of what was kept as that number. Error:
	 * it is not kept; the node does not have it either. */
	int (*add)(struct reef_keep *keep, const struct reef_keep_line *line,
		   struct reef_memory *memory);
	void (*forget)(struct reef_keep *keep, uint32_t extent);
	void (*note)(struct reef_keep *keep, const struct reef_keep_head *head);
	/* Optional (8). kept: what the node has. May be repeated.  Error: it
	 * must not be lent. */
	int (*lend)(struct reef_keep *keep, const struct reef_kept *kept);
	/* Optional: is what another keep has here, too? Nothing is changed.
	 * head: that one's.  0: nothing is here.  1: what is here is all that,
	 * of the same moment.  -EEXIST: something else is here.  Else as files'
	 * calls. */
	int (*has)(struct reef_keep *keep, const struct reef_keep_head *head);
	/* Beside `has`: the number of the image that was taken and is not lent
	 * yet, else of the one that `save` makes next; never 0. */
	uint64_t (*number)(struct reef_keep *keep);
	/* Optional (6).  0: it was saved, the memory itself is not needed.  1:
	 * the keep has the memory itself, which must stay as it is.  Error:
	 * nothing was saved, and nothing is kept. */
	int (*save)(struct reef_keep *keep, const struct reef_kept *kept);
	/* Optional: see whether all is still with it, and mend it if not.
	 * Called with every pulse. */
	void (*tend)(struct reef_keep *keep);
	/* Optional: give up everything, which another keep has saved. */
	void (*release)(struct reef_keep *keep);
};

/* Destroy the memory and close the descriptors that are still in it. */
void reef_kept_fini(struct reef_kept *kept);

#endif
