/* classes.c - which sizes blocks have.
 *
 * 32, 64, then multiples of 64 in eight steps per doubling, up to 256 KiB; what
 * is larger is a run of units. Beside the powers of two from 1 to 64 KiB there
 * is one with 64 bytes more: people ask for 4,096 bytes, and the header would
 * push that into a class an eighth larger.
 *
 * A slab has as many units as it takes to leave little over at its end, and no
 * more, because its units come back only together. */
#include "pool/client/heap/heap.h"
#include "pool/client/heap/layout.h"

#include <string.h>

#define LARGEST (256u << 10)
#define PADDED_MIN (1u << 10)
#define PADDED_MAX (64u << 10)

static void slab_choose(struct heap_class *class)
{
	uint64_t best = UINT64_MAX;

	for (uint32_t units = 1; units <= HEAP_SLAB_UNITS_MAX; units++) {
		uint64_t bytes = units * REEF_UNIT_SIZE;
		uint64_t left = bytes % class->block_size;

		/* Per unit, to compare slabs of different sizes. */
		if (bytes < class->block_size || left / units >= best)
			continue;
		best = left / units;
		class->units = units;
		if (left * 64 <= bytes)
			return;
	}
}

static void class_add(struct heap_classes *classes, uint32_t size)
{
	struct heap_class *class = &classes->all[classes->count++];

	*class = (struct heap_class){.block_size = size};
	slab_choose(class);
	class->blocks = (uint32_t)(class->units * REEF_UNIT_SIZE / size);
	class->inverse = (UINT64_C(1) << 40) / size + 1;
	classes->largest = size;
}

void heap_classes_init(struct heap_classes *classes)
{
	uint32_t step = 64;

	memset(classes, 0, sizeof(*classes));
	class_add(classes, 32);
	for (uint32_t size = 64; size <= LARGEST; size += step) {
		class_add(classes, size);
		if ((size & (size - 1)) != 0)
			continue;
		if (size >= 8 * 64)
			step = size / 8;
		if (size >= PADDED_MIN && size <= PADDED_MAX)
			class_add(classes, size + 64);
	}
	for (uint32_t i = 0, class = 0; i <= 1024; i++) {
		while (classes->all[class].block_size < i * 64)
			class ++;
		classes->small[i] = (uint8_t) class;
	}
}

uint32_t heap_class_of_big(const struct heap_classes *classes, uint64_t size)
{
	uint32_t class = classes->small[1024];

	if (size > classes->largest)
		return HEAP_CLASS_LARGE;
	while (classes->all[class].block_size < size)
		class ++;
	return class;
}

uint64_t reef_heap_footprint(uint64_t size)
{
	const uint64_t unit = UINT64_C(1) << HEAP_UNIT_SHIFT;
	struct heap_classes classes;
	uint32_t class;

	size += HEAP_HEADER;
	heap_classes_init(&classes);
	class = heap_class_of(&classes, size);
	if (class != HEAP_CLASS_LARGE)
		return classes.all[class].block_size;
	return ((size - 1) | (unit - 1)) + 1;
}
