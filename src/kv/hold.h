/* hold.h - what a map does for transactions (src/txn): its table, its limits,
 * its clock and its size, for keys that a transaction holds.
 *
 * Thread: as map.h. */
#ifndef REEF_KV_HOLD_H
#define REEF_KV_HOLD_H

#include "index/entry/hold.h"

#include <reef/map.h>
#include <reef/tree.h>

/* Scan a range of a tree, as reef_tree_scan does, and note in *moment what is
 * to be looked at again (index/tree/tree.h). *expired: keys were met that have
 * expired; they are gone then, and so the moment is over. Not inside
 * reef_enter. */
struct tree_moment;
int map_hold_scan(struct reef_tree *tree, const struct reef_range *range,
		  int (*each)(void *context,
			      const struct reef_map_entry *entry),
		  void *context, struct tree_moment **moment, bool *expired);

/* A tree as the map that it is. */
struct reef_map *map_hold_of_tree(struct reef_tree *tree);
/* What has a map's keys, and how they are held there. */
void *map_hold_structure(struct reef_map *map);
const struct hold_index *map_hold_index(const struct reef_map *map);
struct reef_space *map_hold_space(const struct reef_map *map);

/* -EINVAL: a key or a value of that size is over the map's limits. */
int map_hold_check(const struct reef_map *map, size_t key_size,
		   size_t value_size);
/* The pool's time, in milliseconds: may ask the broker, so not inside
 * reef_enter. */
int map_hold_now(struct reef_map *map, uint64_t *ms);
/* 1: an entry that was found is there.  0: it has expired, or is a ghost. Else:
 * an error of the clock. Not inside reef_enter. */
int map_hold_is_there(struct reef_map *map, const struct entry *entry);
/* Delete a key of that version, which has expired, as reading it would; or a
 * ghost, unless another transaction has it. Not inside reef_enter. */
int map_hold_remove(struct reef_map *map, const void *key, size_t key_size,
		    uint64_t version, bool gently);
/* Make sure that a key that is not there has a slot: a ghost. *version: the
 * ghost's, if one was made, else 0. Not of trees, which need none. Not inside
 * reef_enter.  Errors as put. */
int map_hold_ghost(struct reef_map *map, const void *key, size_t key_size,
		   uint64_t *version);
/* Make room for a value before it is put.  -ENOSPC: it does not fit. Not inside
 * reef_enter. */
int map_hold_make_room(struct reef_map *map, size_t key_size,
		       size_t value_size);
/* True if the map has a size that it may have, and evicts nothing. */
bool map_hold_is_limited(const struct reef_map *map);
/* -ENOSPC: the map, which evicts nothing, would be larger than it may be with
 * `more` bytes. */
int map_hold_fits(const struct reef_map *map, int64_t more);
/* What an entry counts for. */
int64_t map_hold_bytes(size_t key_size, size_t value_size);
/* `touched` of what is put in the place of `before` (NULL: of nothing). */
uint16_t map_hold_touched(struct reef_map *map, const struct entry *before);
/* What was found, as map.h tells it; into the value's room.  -ENOMEM. */
int map_hold_tell(struct reef_map *map, const struct entry *entry,
		  struct reef_map_value *out);
/* A key has been changed, by so many bytes; expires: what was put does. */
void map_hold_changed(struct reef_map *map, int64_t bytes, bool expires);
/* Take the block of INTENT_FIRST bytes that the map keeps for the status of a
 * transaction that finds no room, so that who only deletes can go on. 0: there
 * is none. */
uint64_t map_hold_take_spare(struct reef_map *map);
/* What every call that changes keys does by the way. Not inside reef_enter. */
void map_hold_care(struct reef_map *map);

#endif
