/* figures.c - see figures.h. */
#include "kv/figures.h"

#include "index/hash/layout.h"
#include "kv/internal.h"
#include "pool/client/heap/layout.h"

void map_removed(const struct reef_map *map, uint64_t *expired,
		 uint64_t *evicted)
{
	*expired = map->expired;
	*evicted = map->evicted;
}

uint64_t map_entry_size(size_t key_size, size_t value_size)
{
	static const uint64_t unit = UINT64_C(1) << HEAP_UNIT_SHIFT;
	uint64_t size = HEAP_HEADER + HASH_ENTRY_HEAD + key_size + value_size;
	struct heap_classes classes;
	uint32_t class;

	heap_classes_init(&classes);
	class = heap_class_of(&classes, size);
	if (class != HEAP_CLASS_LARGE)
		size = classes.all[class].block_size;
	else
		size = ((size - 1) | (unit - 1)) + 1;
	return sizeof(uint64_t) + size;
}
