/* figures.h - figures of a map that cost no access to the pool, for services
 * that stand on maps.
 *
 * Thread: owner of the handle. */
#ifndef REEF_KV_FIGURES_H
#define REEF_KV_FIGURES_H

#include <reef/map.h>

/* How many keys this handle has removed since it opened the map: because they
 * had expired, and to make room. reef_map_stats has them, too, but counts every
 * key for it. */
void map_removed(const struct reef_map *map, uint64_t *expired,
		 uint64_t *evicted);

/* Bytes of the pool that an entry takes: its block and its slot. */
uint64_t map_entry_size(size_t key_size, size_t value_size);

#endif
