/* pieces.h - long calls of a map in pieces, for services that have others to
 * serve meanwhile, and not memory for everything at once.
 *
 * Thread: owner of the handle. */
#ifndef REEF_KV_PIECES_H
#define REEF_KV_PIECES_H

#include <reef/map.h>

/* Read many keys as reef_map_get_many does, but no value of more than `most`
 * bytes (not 0): of such an item value.bytes is NULL and value.size tells how
 * long it is. So the room of all of them is known before. */
int map_get_many_short(struct reef_map *map, struct reef_map_item *items,
		       uint32_t count, uint32_t most);

/* Delete every key of some groups from the cursor on, and move it behind them;
 * 0 begins, and is what it is in the end. All together are a reef_map_clear,
 * whose errors it has; after one the cursor stays. */
int map_clear_some(struct reef_map *map, uint64_t *cursor);

#endif
