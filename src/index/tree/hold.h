/* hold.h - keys of a tree that a transaction has: index/entry/hold.h.
 *
 * Thread: as tree.h. */
#ifndef REEF_INDEX_TREE_HOLD_H
#define REEF_INDEX_TREE_HOLD_H

#include "index/entry/hold.h"
#include "index/tree/tree.h"

extern const struct hold_index tree_holds;

#endif
