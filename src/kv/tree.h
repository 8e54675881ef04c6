/* tree.h - a tree is a map with another index: what its parts share.
 *
 *   tree.c    open, close, drop; the calls on keys, which are the map's
 *   range.c   scan, first, count, delete_range
 *
 * Thread: as include/reef/tree.h. */
#ifndef REEF_KV_TREE_H
#define REEF_KV_TREE_H

#include "index/tree/hold.h"
#include "kv/internal.h"

#include <reef/tree.h>

struct reef_tree {
	struct reef_map map; /* its table is a struct tree */
};

#endif
