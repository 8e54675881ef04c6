/* test_heap_crash.c - a session dies between two accesses, whoever recovers it
 * may die too, and every block comes back, none twice. */
#include "base/random.h"
#include "fixture/heap_recover.h"
#include "fixture/heap_world.h"
#include "fixture/seeds.h"
#include "pool/client/heap/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 150
#define SEEDS_SOAK 40000
#define BLOCKS_MAX 2048u

enum { A = 1, B, C, SESSIONS };

struct block {
	uint64_t address, size, mark;
	uint32_t owner;
	bool kept, maybe; /* maybe: its owner died while it freed or kept it */
	bool told;	  /* another kept it: its owner may not know (6) */
	uint8_t kind;
};

struct crash {
	struct heap_world world;
	struct reef_random random;
	struct reef_heap *heaps[SESSIONS];
	struct block blocks[BLOCKS_MAX];
	uint32_t count;
	uint32_t pages; /* seen by recovery */
};

static uint64_t last_seed;

static int tell_seed(void **state)
{
	print_message("last seed %llu\n", (unsigned long long)last_seed);
	return 0;
}

static uint64_t below(struct crash *crash, uint64_t bound)
{
	return reef_random_below(&crash->random, bound);
}

static uint64_t some_size(struct crash *crash)
{
	static const uint64_t most[] = {40,	  600,	     9000,
					64 * KIB, 400 * KIB, 3 * MIB};

	return 16 + below(crash, most[below(crash, 6)]);
}

static void no_overlap(const struct crash *crash, uint64_t address,
		       uint64_t size)
{
	for (uint32_t i = 0; i < crash->count; i++) {
		const struct block *old = &crash->blocks[i];

		assert_true(address + size + 8 <= old->address ||
			    old->address + old->size + 8 <= address);
	}
}

static void mark_check(struct crash *crash, const struct block *block)
{
	uint8_t *at = heap_world_at(&crash->world, block->address, block->size);

	assert_non_null(at);
	assert_memory_equal(at, &block->mark, 8);
	assert_memory_equal(at + block->size - 8, &block->mark, 8);
}

static void forget(struct crash *crash, uint32_t index)
{
	crash->blocks[index] = crash->blocks[--crash->count];
}

static void do_alloc(struct crash *crash, uint32_t session, uint8_t kind)
{
	struct block block = {.size = some_size(crash),
			      .mark = reef_random_next(&crash->random),
			      .owner = session,
			      .kind = kind};
	uint8_t *bytes;
	int rc;

	if (crash->count == BLOCKS_MAX)
		return;
	rc = reef_heap_alloc(crash->heaps[session], kind, block.size,
			     &block.address);
	if (rc == -ENOSPC || rc == -REEF_EHOSTDEAD)
		return;
	assert_int_equal(rc, 0);
	no_overlap(crash, block.address, block.size);
	bytes = malloc(block.size);
	memset(bytes, 0xa5, block.size); /* no header looks like that */
	memcpy(bytes, &block.mark, 8);
	memcpy(bytes + block.size - 8, &block.mark, 8);
	rc = heap_world_write(&crash->world, crash->heaps[session],
			      block.address, bytes, (uint32_t)block.size);
	free(bytes);
	if (rc == -REEF_EHOSTDEAD)
		return; /* nobody has heard of it */
	assert_int_equal(rc, 0);
	crash->blocks[crash->count++] = block;
}

static void do_free(struct crash *crash, uint32_t session, uint32_t index)
{
	struct block *block = &crash->blocks[index];
	uint32_t flags = below(crash, 4) ? 0 : REEF_FREE_LATER;
	int rc;

	if (!block->maybe)
		mark_check(crash, block);
	rc = reef_heap_free(crash->heaps[session], block->address, flags);
	if (rc == -REEF_EHOSTDEAD) {
		block->maybe = true;
		return;
	}
	assert_true(rc == 0 || (block->maybe && rc == -EALREADY));
	forget(crash, index);
}

static void do_keep(struct crash *crash, uint32_t session, uint32_t index)
{
	struct block *block = &crash->blocks[index];
	int rc = reef_heap_keep(crash->heaps[session], block->address);

	if (rc == -REEF_EHOSTDEAD)
		block->maybe = true;
	else if (rc == 0) {
		block->kept = true;
		block->told = session != block->owner;
	} else
		assert_true(block->kept || block->maybe);
}

/* Does this session do something else than the owner would? */
static void do_something(struct crash *crash, uint32_t session)
{
	uint32_t index =
		crash->count ? (uint32_t)below(crash, crash->count) : 0;

	switch (crash->count < 3 ? 0 : below(crash, 12)) {
	case 0 ... 4:
		do_alloc(crash, session, REEF_BLOCK_RAW);
		break;
	case 5 ... 8:
		if (!crash->blocks[index].maybe &&
		    !(crash->blocks[index].told &&
		      crash->blocks[index].owner == session))
			do_free(crash, session, index);
		break;
	case 9:
		if (!crash->blocks[index].maybe)
			do_keep(crash, session, index);
		break;
	case 10:
		if (below(crash, 8) == 0)
			reef_heap_collect(crash->heaps[session],
					  below(crash, 2));
		break;
	default:
		if (below(crash, 3) == 0)
			crash->world.safe = ++crash->world.reclaim;
	}
}

/* The end of a session, whatever it was doing. Its blocks go with it. */
static void do_die(struct crash *crash, uint32_t session)
{
	reef_heap_destroy(crash->heaps[session]);
	crash->heaps[session] = NULL;
	crash->world.dead = false;
	crash->world.die_after = 0;
	crash->world.fenced[session] = true;
	for (uint32_t i = crash->count; i-- > 0;)
		if (crash->blocks[i].owner == session &&
		    !crash->blocks[i].kept && !crash->blocks[i].maybe)
			forget(crash, i);
}

static int see_page(void *context, uint32_t session, uint64_t address,
		    uint64_t size)
{
	struct crash *crash = context;

	crash->pages++;
	return below(crash, 4) ? 0 : -EINTR;
}

static int recover(struct crash *crash, uint32_t session, uint32_t dead)
{
	int rc = 0;

	for (uint32_t i = 0; i < 100; i++) {
		rc = heap_recover_one(crash->heaps[session], dead, see_page,
				      crash);
		if (rc != -EINTR)
			break;
	}
	return rc;
}

static void nobody_named(const struct crash *crash, uint32_t session)
{
	for (uint32_t i = 0; i < crash->world.count; i++)
		for (uint64_t c = 0; c < crash->world.extents[i].size / MIB;
		     c++) {
			uint64_t word;

			memcpy(&word,
			       crash->world.extents[i].base + 64 + 16 * c, 8);
			assert_true(session ? word >> 32 != session
					    : word >> 32 == 0 &&
						      (uint16_t)word == 0);
		}
}

static void live_on(struct crash *crash, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t session = A + (uint32_t)below(crash, 3);

		if (crash->heaps[session])
			do_something(crash, session);
		if (crash->world.dead)
			return;
	}
}

/* All blocks go; then all memory is nobody's. */
static void end(struct crash *crash)
{
	while (crash->count)
		do_free(crash, crash->heaps[B] && below(crash, 2) ? B : C,
			(uint32_t)below(crash, crash->count));
	for (uint32_t round = 0; round < 2; round++) {
		crash->world.safe = ++crash->world.reclaim;
		for (uint32_t s = B; s <= C; s++)
			if (crash->heaps[s])
				assert_int_equal(reef_heap_collect(
							 crash->heaps[s], true),
						 0);
	}
	nobody_named(crash, 0);
}

static void one_crash(uint64_t seed)
{
	struct crash *crash = calloc(1, sizeof(*crash));
	uint64_t page = 0;
	bool b_dies;
	int rc;

	last_seed = seed;
	reef_random_init(&crash->random, seed);
	heap_world_init(&crash->world, 16 * MIB, 48 * MIB);
	for (uint32_t s = A; s < SESSIONS; s++)
		crash->heaps[s] =
			heap_world_heap(&crash->world, s, seed * 10 + s);
	if (below(crash, 2)) {
		assert_int_equal(reef_heap_alloc(crash->heaps[A],
						 REEF_BLOCK_PAGE, 4000, &page),
				 0);
		assert_int_equal(reef_heap_flush(crash->heaps[A]), 0);
	}
	live_on(crash, (uint32_t)below(crash, 400));
	crash->world.die_after = 1 + below(crash, 200);
	for (uint32_t i = 0; i < 400 && !crash->world.dead; i++)
		do_something(crash, A);
	do_die(crash, A);

	b_dies = below(crash, 2);
	if (b_dies)
		crash->world.die_after = 1 + below(crash, 120);
	rc = recover(crash, B, A);
	assert_true(rc == 0 || (b_dies && rc == -REEF_EHOSTDEAD));
	if (rc == 0) {
		nobody_named(crash, A);
		assert_true(crash->pages >= (page != 0));
	}
	if (b_dies) {
		for (uint32_t i = 0; i < 50 && !crash->world.dead; i++)
			do_something(crash, B);
		do_die(crash, B);
		/* In either order; what hangs together goes with its first. */
		rc = recover(crash, C, A);
		assert_true(rc == 0 || rc == -EBUSY);
		assert_int_equal(recover(crash, C, B), 0);
		assert_int_equal(recover(crash, C, A), 0);
		nobody_named(crash, A);
		nobody_named(crash, B);
		assert_true(crash->pages >= (page != 0));
	}
	for (uint32_t i = 0; i < crash->count; i++)
		if (!crash->blocks[i].maybe)
			mark_check(crash, &crash->blocks[i]);
	/* Those whose keeping or freeing was cut short are there or not. */
	for (uint32_t i = crash->count; i-- > 0;)
		if (crash->blocks[i].maybe) {
			rc = reef_heap_free(crash->heaps[C],
					    crash->blocks[i].address, 0);
			assert_true(rc == 0 || rc == -EALREADY ||
				    rc == -EINVAL);
			forget(crash, i);
		}
	live_on(crash, (uint32_t)below(crash, 200));
	end(crash);
	for (uint32_t s = A; s < SESSIONS; s++)
		reef_heap_destroy(crash->heaps[s]);
	heap_world_fini(&crash->world);
	free(crash);
}

static void heap_crash_anywhere_all_come_back(void **state)
{
	uint64_t seeds = seeds_of(SEEDS, SEEDS_SOAK);

	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds); seed++)
		one_crash(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(heap_crash_anywhere_all_come_back,
					  tell_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
