/* test_heap_garbage.c - another session has written nonsense over words, units
 * and headers. Whatever is done then may fail, but ends, and stays within
 * memory. */
#include "base/random.h"
#include "fixture/heap_recover.h"
#include "fixture/heap_world.h"
#include "fixture/seeds.h"
#include "pool/client/heap/layout.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS 300
#define SEEDS_SOAK 30000
#define BLOCKS 200u
#define BATCHES_MAX 256u /* of one call: it ends */

enum { A = 1, B, C, SESSIONS };

struct garbage {
	struct heap_world world;
	struct reef_random random;
	struct reef_heap *heaps[SESSIONS];
	uint64_t blocks[BLOCKS];
	uint32_t count;
};

static uint64_t last_seed;

static int tell_seed(void **state)
{
	print_message("last seed %llu\n", (unsigned long long)last_seed);
	return 0;
}

static uint64_t below(struct garbage *garbage, uint64_t bound)
{
	return reef_random_below(&garbage->random, bound);
}

/* Nonsense that looks like something, more often than not. */
static uint64_t some_word(struct garbage *garbage)
{
	uint32_t session = (uint32_t)below(garbage, 5);

	switch (below(garbage, 7)) {
	case 0:
		return reef_random_next(&garbage->random);
	case 1:
		return heap_chunk_word(session, (uint16_t)below(garbage, 65536),
				       (uint16_t)below(garbage, 3),
				       (uint8_t)below(garbage, 3));
	case 2:
		return heap_descriptor((uint8_t)below(garbage, 6),
				       (uint8_t)below(garbage, 110),
				       (uint32_t)below(garbage, 300));
	case 3:
		return heap_descriptor(
			HEAP_UNIT_LARGE, 0,
			(uint32_t)reef_random_next(&garbage->random));
	case 4:
		return heap_header(session, (uint16_t)below(garbage, 65536),
				   (uint8_t)below(garbage, 6),
				   (uint8_t)below(garbage, 5));
	case 5:
		return 0;
	default:
		return UINT64_MAX;
	}
}

static void spoil(struct garbage *garbage)
{
	uint32_t i = (uint32_t)below(garbage, garbage->world.count);
	uint64_t size = garbage->world.extents[i].size, at;
	struct heap_shape shape = heap_shape_of(size);
	uint64_t word = some_word(garbage);

	switch (below(garbage, 4)) {
	case 0:
		at = HEAP_TABLE_AT + 8 * below(garbage, shape.chunks * 2);
		break;
	case 1:
		at = shape.units_at + 8 * below(garbage, shape.units);
		break;
	case 2:
		at = (uint32_t)garbage->blocks[below(garbage, garbage->count)] -
		     HEAP_HEADER;
		break;
	default:
		at = 8 * below(garbage, size / 8);
	}
	memcpy(garbage->world.extents[i].base + at, &word, 8);
}

static void do_alloc(struct garbage *garbage, uint32_t session)
{
	uint64_t size = 1 + below(garbage, UINT64_C(1) << below(garbage, 22));
	uint64_t address;

	if (reef_heap_alloc(garbage->heaps[session], REEF_BLOCK_RAW, size,
			    &address))
		return;
	assert_non_null(heap_world_at(&garbage->world, address, size));
	if (garbage->count < BLOCKS)
		garbage->blocks[garbage->count++] = address;
	else
		garbage->blocks[below(garbage, BLOCKS)] = address;
}

/* Anything, at any address. */
static void do_something(struct garbage *garbage, uint32_t session)
{
	struct reef_heap *heap = garbage->heaps[session];
	uint64_t address = garbage->blocks[below(garbage, garbage->count)];
	uint64_t size, batches = garbage->world.batches;

	if (below(garbage, 8) == 0)
		address += 8 * below(garbage, 64);
	if (below(garbage, 16) == 0)
		address = reef_random_next(&garbage->random);
	switch (below(garbage, 10)) {
	case 0 ... 2:
		do_alloc(garbage, session);
		break;
	case 3 ... 5:
		reef_heap_free(heap, address,
			       below(garbage, 2) ? REEF_FREE_LATER : 0);
		break;
	case 6:
		reef_heap_keep(heap, address);
		break;
	case 7:
		reef_heap_block_size(heap, address, &size);
		break;
	case 8:
		reef_heap_flush(heap);
		garbage->world.safe = ++garbage->world.reclaim;
		break;
	default:
		reef_heap_collect(heap, below(garbage, 2));
	}
	assert_true(garbage->world.batches - batches <= BATCHES_MAX);
}

static int see_page(void *context, uint32_t session, uint64_t address,
		    uint64_t size)
{
	return 0;
}

static void one_garbage(uint64_t seed)
{
	struct garbage *garbage = calloc(1, sizeof(*garbage));

	last_seed = seed;
	reef_random_init(&garbage->random, seed);
	heap_world_init(&garbage->world, 8 * MIB, 32 * MIB);
	for (uint32_t s = A; s < SESSIONS; s++)
		garbage->heaps[s] =
			heap_world_heap(&garbage->world, s, seed * 10 + s);
	for (uint32_t i = 0; i < 60; i++)
		do_alloc(garbage, A + i % 3);
	for (uint32_t i = 0; i < 100; i++)
		do_something(garbage, A + (uint32_t)below(garbage, 3));
	for (uint32_t round = 0; round < 4; round++) {
		uint32_t spots = (uint32_t)below(garbage, 30);

		while (spots--)
			spoil(garbage);
		for (uint32_t i = 0; i < 50; i++)
			do_something(garbage, B + (uint32_t)below(garbage, 2));
		garbage->world.fenced[A] = true;
		garbage->world.fenced[SESSIONS] = true;
		for (uint32_t i = 0; i < 3; i++)
			heap_recover_one(garbage->heaps[B + i % 2],
					 i < 2 ? A : SESSIONS, see_page, NULL);
	}
	for (uint32_t s = A; s < SESSIONS; s++)
		reef_heap_destroy(garbage->heaps[s]);
	heap_world_fini(&garbage->world);
	free(garbage);
}

static void heap_garbage_anywhere_survived(void **state)
{
	uint64_t seeds = seeds_of(SEEDS, SEEDS_SOAK);

	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds); seed++)
		one_garbage(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(heap_garbage_anywhere_survived,
					  tell_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
