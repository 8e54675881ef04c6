/* hold.h - keys of a table that a transaction has: index/entry/hold.h.
 *
 * Thread: as table.h. */
#ifndef REEF_INDEX_HASH_HOLD_H
#define REEF_INDEX_HASH_HOLD_H

#include "index/entry/hold.h"
#include "index/hash/table.h"

extern const struct hold_index hash_holds;

/* Free those that a table keeps for its next transactions. */
struct hash_hold;
void hash_holds_free(struct hash_hold *holds);

#endif
