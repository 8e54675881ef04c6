/* figures.c - see figures.h. */
#include "kv/figures.h"

#include "kv/internal.h"

void map_removed(const struct reef_map *map, uint64_t *expired,
		 uint64_t *evicted)
{
	*expired = map->expired;
	*evicted = map->evicted;
}

uint64_t map_entry_size(size_t key_size, size_t value_size)
{
	return entry_footprint(key_size, value_size);
}
