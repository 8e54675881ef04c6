/* Blocks in plain memory: a shadow of what is allocated, against the heap. */
#include "base/random.h"
#include "fixture/heap_recover.h"
#include "fixture/heap_world.h"
#include "fixture/seeds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 40
#define SEEDS_SOAK 4000
#define BLOCKS_MAX 4096u

struct block {
	uint64_t address, size, mark;
};

struct shadow {
	struct heap_world world;
	struct reef_heap *heap;
	struct reef_random random;
	struct block blocks[BLOCKS_MAX];
	uint32_t count;
};

/* So that a failure can be replayed. */
static uint64_t last_seed;

static int tell_seed(void **state)
{
	print_message("last seed %llu\n", (unsigned long long)last_seed);
	return 0;
}

static void shadow_init(struct shadow *shadow, uint64_t seed,
			uint64_t extent_size, uint64_t size_max)
{
	heap_world_init(&shadow->world, extent_size, size_max);
	reef_random_init(&shadow->random, seed);
	shadow->heap = heap_world_heap(&shadow->world, 1, seed);
	shadow->count = 0;
}

static void shadow_fini(struct shadow *shadow)
{
	reef_heap_destroy(shadow->heap);
	heap_world_fini(&shadow->world);
}

/* Log-uniform from 1 to 2^bits. */
static uint64_t some_size(struct reef_random *random, uint32_t bits)
{
	uint64_t top = UINT64_C(1) << reef_random_below(random, bits + 1);

	return reef_random_between(random, (top + 1) / 2, top);
}

/* Its number at both ends: whoever overlaps it changes one, or is seen to. */
static void mark_write(struct shadow *shadow, const struct block *block)
{
	uint8_t *at =
		heap_world_at(&shadow->world, block->address, block->size);

	assert_non_null(at);
	if (block->size < 16)
		return;
	memcpy(at, &block->mark, 8);
	memcpy(at + block->size - 8, &block->mark, 8);
}

static void mark_check(struct shadow *shadow, const struct block *block)
{
	uint8_t *at =
		heap_world_at(&shadow->world, block->address, block->size);

	if (block->size < 16)
		return;
	assert_memory_equal(at, &block->mark, 8);
	assert_memory_equal(at + block->size - 8, &block->mark, 8);
}

static void no_overlap(const struct shadow *shadow, const struct block *new)
{
	for (uint32_t i = 0; i < shadow->count; i++) {
		const struct block *old = &shadow->blocks[i];

		assert_true(new->address + new->size + 8 <= old->address ||
			    old->address + old->size + 8 <= new->address);
	}
}

static int shadow_alloc(struct shadow *shadow, uint64_t size)
{
	struct block block = {.size = size,
			      .mark = reef_random_next(&shadow->random)};
	uint64_t room;
	int rc;

	rc = reef_heap_alloc(shadow->heap, REEF_BLOCK_RAW, size,
			     &block.address);
	if (rc)
		return rc;
	assert_int_equal(block.address % 8, 0);
	assert_int_equal(
		reef_heap_block_size(shadow->heap, block.address, &room), 0);
	assert_true(room >= size);
	no_overlap(shadow, &block);
	mark_write(shadow, &block);
	assert_true(shadow->count < BLOCKS_MAX);
	shadow->blocks[shadow->count++] = block;
	return 0;
}

static void shadow_free(struct shadow *shadow, uint32_t index, uint32_t flags)
{
	struct block block = shadow->blocks[index];

	mark_check(shadow, &block);
	shadow->blocks[index] = shadow->blocks[--shadow->count];
	assert_int_equal(reef_heap_free(shadow->heap, block.address, flags), 0);
	assert_int_equal(reef_heap_free(shadow->heap, block.address, 0),
			 -EALREADY);
}

static void free_all(struct shadow *shadow)
{
	while (shadow->count)
		shadow_free(shadow,
			    (uint32_t)reef_random_below(&shadow->random,
							shadow->count),
			    0);
}

/* Every chunk's word is FREE again. */
static void all_released(struct shadow *shadow)
{
	struct reef_heap_stats stats;

	assert_int_equal(reef_heap_collect(shadow->heap, true), 0);
	reef_heap_stats(shadow->heap, &stats);
	assert_int_equal(stats.chunks, 0);
	assert_int_equal(stats.units_used, 0);
	assert_int_equal(stats.bytes_live, 0);
	for (uint32_t i = 0; i < shadow->world.count; i++) {
		uint64_t chunks = shadow->world.extents[i].size / MIB, word;

		for (uint64_t c = 0; c < chunks; c++) {
			memcpy(&word,
			       shadow->world.extents[i].base + 64 + 16 * c, 8);
			assert_int_equal(word >> 32, 0);
			assert_int_equal(word & 0xffff, 0);
		}
	}
}

static void random_run(uint64_t seed)
{
	struct shadow *shadow = calloc(1, sizeof(*shadow));
	uint32_t live, bits;

	last_seed = seed;
	shadow_init(shadow, seed, 16 * MIB, 128 * MIB);
	live = (uint32_t)reef_random_between(&shadow->random, 2, 400);
	bits = (uint32_t)reef_random_between(&shadow->random, 3, 21);
	for (uint32_t i = 0; i < 3000; i++) {
		bool grow =
			shadow->count == 0 ||
			reef_random_chance(&shadow->random,
					   shadow->count < live ? 6 : 4, 10);

		if (grow) {
			int rc = shadow_alloc(shadow,
					      some_size(&shadow->random, bits));

			assert_true(rc == 0 || rc == -ENOSPC);
			if (rc && shadow->count)
				shadow_free(shadow, 0, 0);
		} else {
			shadow_free(shadow,
				    (uint32_t)reef_random_below(&shadow->random,
								shadow->count),
				    reef_random_chance(&shadow->random, 1, 8)
					    ? REEF_FREE_LATER
					    : 0);
		}
		if (reef_random_chance(&shadow->random, 1, 50))
			shadow->world.safe = ++shadow->world.reclaim;
		if (reef_random_chance(&shadow->random, 1, 100))
			assert_int_equal(reef_heap_collect(shadow->heap, false),
					 0);
		if (reef_random_chance(&shadow->random, 1, 100))
			assert_int_equal(reef_heap_flush(shadow->heap), 0);
	}
	free_all(shadow);
	shadow->world.safe = ++shadow->world.reclaim;
	all_released(shadow);
	shadow_fini(shadow);
	free(shadow);
}

static void heap_random_run_all_come_back(void **state)
{
	for (uint64_t seed = seeds_first();
	     seeds_has(seed, seeds_of(SEEDS, SEEDS_SOAK)); seed++)
		random_run(seed);
}

static void heap_block_larger_than_chunk_found(void **state)
{
	static const uint64_t sizes[] = {MIB,	    MIB + 1,   2 * MIB - 8,
					 5 * MIB,   63 * MIB,  64 * MIB,
					 100 * MIB, 200 * MIB, 17 * MIB};
	struct shadow *shadow = calloc(1, sizeof(*shadow));

	shadow_init(shadow, 1, 64 * MIB, 1024 * MIB);
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_int_equal(shadow_alloc(shadow, sizes[i]), 0);
	free_all(shadow);
	all_released(shadow);
	/* What was two extents' worth is still there for the next. */
	for (uint32_t i = 0; i < 100; i++) {
		assert_int_equal(shadow_alloc(shadow, 40 * MIB), 0);
		free_all(shadow);
	}
	assert_true(shadow->world.used <= 700 * MIB);
	shadow_fini(shadow);
	free(shadow);
}

static void heap_full_nothing_half_allocated(void **state)
{
	struct shadow *shadow = calloc(1, sizeof(*shadow));
	static const uint64_t sizes[] = {100, 5000, 60000, 300 * KIB, 3 * MIB};
	struct reef_heap_stats stats;

	shadow_init(shadow, 1, 8 * MIB, 16 * MIB);
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t count, again;

		while (shadow_alloc(shadow, sizes[i]) == 0 &&
		       shadow->count < BLOCKS_MAX - 1)
			continue;
		count = shadow->count;
		reef_heap_stats(shadow->heap, &stats);
		assert_true(stats.chunks <= 16);
		assert_int_equal(shadow_alloc(shadow, 20 * MIB), -ENOSPC);
		/* One goes, one comes. */
		shadow_free(shadow, count / 2, 0);
		assert_int_equal(shadow_alloc(shadow, sizes[i]), 0);
		free_all(shadow);
		for (again = 0; again < count; again++)
			assert_int_equal(shadow_alloc(shadow, sizes[i]), 0);
		free_all(shadow);
	}
	all_released(shadow);
	shadow_fini(shadow);
	free(shadow);
}

static void heap_bad_address_refused(void **state)
{
	struct shadow *shadow = calloc(1, sizeof(*shadow));
	uint64_t a, size;

	shadow_init(shadow, 1, 8 * MIB, 16 * MIB);
	assert_int_equal(reef_heap_alloc(shadow->heap, 1, 0, &a), -EINVAL);
	assert_int_equal(reef_heap_alloc(shadow->heap, 1, UINT64_MAX, &a),
			 -EINVAL);
	assert_int_equal(reef_heap_alloc(shadow->heap, 1, UINT32_MAX, &a),
			 -EINVAL);
	assert_int_equal(reef_heap_alloc(shadow->heap, 1, 100, &a), 0);
	assert_int_equal(reef_heap_free(shadow->heap, a + 8, 0), -EINVAL);
	assert_int_equal(reef_heap_free(shadow->heap, a - 8, 0), -EINVAL);
	assert_int_equal(reef_heap_free(shadow->heap, a + 32, 0), -EINVAL);
	assert_int_equal(reef_heap_free(shadow->heap, 0, 0), -EINVAL);
	assert_int_equal(reef_heap_free(shadow->heap, 8, 0), -EINVAL);
	assert_int_equal(reef_heap_free(shadow->heap, UINT64_MAX, 0), -EINVAL);
	assert_int_equal(reef_heap_free(shadow->heap, a ^ (9ull << 40), 0),
			 -EINVAL);
	assert_int_equal(reef_heap_keep(shadow->heap, a + 8), -EINVAL);
	assert_int_equal(reef_heap_block_size(shadow->heap, a + 64, &size),
			 -EINVAL);
	assert_int_equal(reef_heap_free(shadow->heap, a, 0), 0);
	assert_int_equal(reef_heap_free(shadow->heap, a, 0), -EALREADY);
	assert_int_equal(reef_heap_keep(shadow->heap, a), -EINVAL);
	shadow_fini(shadow);
	free(shadow);
}

static void heap_stats_add_up(void **state)
{
	struct shadow *shadow = calloc(1, sizeof(*shadow));
	struct reef_heap_stats stats;
	uint64_t live = 0, limbo = 0, bytes = 0, a[100], large;

	shadow_init(shadow, 1, 8 * MIB, 16 * MIB);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(
			reef_heap_alloc(shadow->heap, 1, 1 + i * 50, &a[i]), 0);
	assert_int_equal(reef_heap_alloc(shadow->heap, 1, MIB, &large), 0);
	assert_int_equal(reef_heap_flush(shadow->heap), 0);
	for (uint32_t i = 0; i < 30; i++)
		assert_int_equal(reef_heap_free(shadow->heap, a[i],
						i % 3 ? 0 : REEF_FREE_LATER),
				 0);
	reef_heap_stats(shadow->heap, &stats);
	for (uint32_t i = 0; i < stats.classes; i++) {
		live += stats.by_class[i].live;
		limbo += stats.by_class[i].limbo;
		bytes += stats.by_class[i].live * stats.by_class[i].block_size;
		assert_true(stats.by_class[i].blocks >= stats.by_class[i].live);
	}
	assert_int_equal(live, 70);
	assert_int_equal(limbo, 10);
	assert_int_equal(stats.bytes_live, bytes + 17 * 64 * KIB);
	assert_true(stats.bytes_limbo > 0);
	assert_true(stats.units_used * 64 * KIB <= stats.chunks * MIB);
	shadow_fini(shadow);
	free(shadow);
}

/* Sessions that end well, one after the other, each with all the memory there
 * is: no epoch moves, and yet the next has room. Session 1 kept two blocks, one
 * of them another's. */
static void heap_session_ends_well_room_is_there(void **state)
{
	static const uint8_t bytes[64];
	struct heap_world world;
	struct reef_heap *heap, *other;
	uint64_t address, kept, keeps, size;
	uint32_t count, first = 0;

	heap_world_init(&world, 4 << 20, 8 << 20);
	heap = heap_world_heap(&world, 1, 1);
	assert_int_equal(reef_heap_alloc(heap, REEF_BLOCK_RAW, 64, &kept), 0);
	assert_int_equal(heap_world_write(&world, heap, kept, bytes, 64), 0);
	assert_int_equal(reef_heap_keep(heap, kept), 0);
	assert_int_equal(reef_heap_alloc(heap, REEF_BLOCK_RAW, 64, &keeps), 0);
	assert_int_equal(heap_world_write(&world, heap, keeps, bytes, 64), 0);
	other = heap_world_heap(&world, 400, 7);
	assert_int_equal(reef_heap_keep(other, keeps), 0);
	reef_heap_destroy(other);
	for (uint32_t session = 1; session < 20; session++) {
		if (!heap)
			heap = heap_world_heap(&world, session, session);
		count = 0;
		size = session % 2 ? 5000 : 300000;
		while (!reef_heap_alloc(heap, REEF_BLOCK_RAW, size, &address)) {
			assert_int_equal(heap_world_write(&world, heap, address,
							  bytes, 64),
					 0);
			count++;
		}
		if (session == 1)
			first = count;
		assert_true(session % 2 == 0 || count + 256 >= first);
		assert_true(count > 10);
		assert_int_equal(reef_heap_abandon(heap), 0);
		assert_int_equal(reef_heap_collect(heap, true), 0);
		reef_heap_destroy(heap);
		heap = NULL;
		world.fenced[session] = true;
	}
	heap = heap_world_heap(&world, 30, 30);
	assert_int_equal(reef_heap_block_size(heap, kept, &size), 0);
	assert_int_equal(reef_heap_block_size(heap, keeps, &size), 0);
	reef_heap_destroy(heap);
	heap_world_fini(&world);
}

/* All units there are, one block each. */
static uint32_t take_units(struct reef_heap *heap)
{
	uint64_t address;
	uint32_t count = 0;

	while (!reef_heap_alloc(heap, REEF_BLOCK_RAW, 64 * KIB - 8, &address))
		count++;
	return count;
}

/* A slab without a block is kept for the next of its class, but not from who
 * finds no room. */
static void heap_full_but_for_empty_slab_room_is_there(void **state)
{
	struct heap_world world;
	struct reef_heap *heap;
	uint64_t small[2];

	heap_world_init(&world, 2 * MIB, 4 * MIB);
	heap = heap_world_heap(&world, 1, 1);
	assert_int_equal(reef_heap_alloc(heap, REEF_BLOCK_RAW, 64, &small[0]),
			 0);
	assert_int_equal(reef_heap_alloc(heap, REEF_BLOCK_RAW, 400, &small[1]),
			 0);
	assert_int_equal(reef_heap_free(heap, small[0], 0), 0);
	assert_int_equal(reef_heap_free(heap, small[1], 0), 0);
	assert_int_equal(take_units(heap), 2 * 31);
	reef_heap_destroy(heap);
	heap_world_fini(&world);
}

/* An extent is lost, and the heap has not heard of it: what it reads behind
 * that is not done. Yet a recovery that says 0 has seen all there is. */
static void heap_recover_beside_lost_extent_nothing_missed(void **state)
{
	struct heap_world world;
	struct reef_heap *heap, *dead;

	heap_world_init(&world, 2 * MIB, 8 * MIB);
	dead = heap_world_heap(&world, 1, 1);
	heap = heap_world_heap(&world, 2, 2);
	/* They are there, and nobody's. */
	assert_int_equal(take_units(dead), 4 * 31);
	assert_int_equal(reef_heap_abandon(dead), 0);
	assert_int_equal(reef_heap_collect(dead, true), 0);
	assert_int_equal(reef_heap_collect(heap, false), 0);
	assert_int_equal(take_units(dead), 4 * 31);
	assert_int_equal(reef_heap_flush(dead), 0);
	for (uint32_t lost = 3; lost > 1; lost--)
		world.extents[lost].lost = true;
	world.fenced[1] = true;
	assert_int_equal(heap_recover_one(heap, 1, NULL, NULL), 0);
	world.safe = world.reclaim + 1;
	assert_int_equal(take_units(heap), 2 * 31);
	reef_heap_destroy(dead);
	reef_heap_destroy(heap);
	heap_world_fini(&world);
}

/* Batches with a CAS that are lost on their way, or their answers are. */
static uint32_t lose_batches;

static int execute_in_doubt(void *context, struct reef_access *accesses,
			    uint32_t count)
{
	bool claims = false;

	for (uint32_t i = 0; i < count; i++)
		claims |= accesses[i].kind == REEF_CAS;
	if (!claims || !lose_batches)
		return heap_world_execute(context, accesses, count);
	if (lose_batches-- % 2)
		assert_int_equal(heap_world_execute(context, accesses, count),
				 0);
	for (uint32_t i = 0; i < count; i++)
		accesses[i].status = -REEF_EINDOUBT;
	return -REEF_EINDOUBT;
}

/* How many units there are for a heap whose first claims are in doubt. */
static uint32_t take_units_in_doubt(uint16_t number)
{
	struct reef_heap_ops ops = heap_world_ops;
	struct heap_world world;
	struct reef_heap_options options = {.ops = &ops,
					    .context = &world,
					    .session = 1,
					    .number = number,
					    .seed = 1};
	struct reef_heap *heap;
	uint32_t count;

	ops.execute = execute_in_doubt;
	heap_world_init(&world, 4 * MIB, 8 * MIB);
	assert_int_equal(reef_heap_create(&options, &heap), 0);
	lose_batches = 5;
	count = take_units(heap);
	assert_int_equal(lose_batches, 0);
	reef_heap_destroy(heap);
	heap_world_fini(&world);
	return count;
}

static void heap_claim_in_doubt_word_tells(void **state)
{
	uint64_t doubts = reef_heap_doubts();

	assert_int_equal(take_units_in_doubt(7), 2 * 63);
	assert_int_equal(reef_heap_doubts(), doubts);
	/* Without a number it might be another heap's: three were. */
	assert_true(take_units_in_doubt(0) < 2 * 63);
	assert_int_equal(reef_heap_doubts(), doubts + 3);
}

static bool always_inside(void *context)
{
	(void)context;
	return true;
}

static void take_blocks(struct reef_heap *heap, uint64_t size, uint64_t *blocks,
			uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(
			reef_heap_alloc(heap, REEF_BLOCK_RAW, size, &blocks[i]),
			0);
	assert_int_equal(reef_heap_flush(heap), 0);
}

/* The next batch with a CAS happens, and its answer is lost; then nothing
 * happens any more. */
static bool is_away;

static int execute_until_away(void *context, struct reef_access *accesses,
			      uint32_t count)
{
	int rc = is_away ? -REEF_ENOLINK
			 : execute_in_doubt(context, accesses, count);

	is_away |= rc == -REEF_EINDOUBT;
	for (uint32_t i = 0; i < count && is_away; i++)
		accesses[i].status = rc;
	return rc;
}

/* A free that is in doubt, of a block that is then out of reach, may have
 * happened: who took it for undone would free the block's next life. */
static void heap_free_in_doubt_and_away_stays_in_doubt(void **state)
{
	struct reef_heap_ops ops = heap_world_ops;
	struct heap_world world;
	struct reef_heap_options options = {
		.ops = &ops, .context = &world, .session = 2, .seed = 2};
	struct reef_heap *heap, *other;
	uint64_t block;

	ops.execute = execute_until_away;
	heap_world_init(&world, 4 * MIB, 8 * MIB);
	heap = heap_world_heap(&world, 1, 1);
	assert_int_equal(reef_heap_create(&options, &other), 0);
	take_blocks(heap, 400, &block, 1);
	lose_batches = 1;
	assert_int_equal(reef_heap_free(other, block, 0), -REEF_EINDOUBT);
	assert_true(is_away);
	is_away = false;
	assert_int_equal(reef_heap_free(other, block, 0), -EALREADY);
	reef_heap_destroy(other);
	reef_heap_destroy(heap);
	heap_world_fini(&world);
}

/* An adoption is in doubt, and then the memory is out of reach: whether it
 * happened or not, the same heap goes on with it, and nothing is missing. Large
 * blocks tie chunks together. */
static void adopt_in_doubt(bool happens, bool abandoned, uint64_t block_size)
{
	struct reef_heap_ops ops = heap_world_ops;
	struct heap_world world;
	struct reef_heap_options options = {.ops = &ops,
					    .context = &world,
					    .session = 2,
					    .number = 7,
					    .seed = 2};
	struct reef_heap *heap, *dead;
	uint64_t block;

	ops.execute = execute_until_away;
	heap_world_init(&world, 4 * MIB, 4 * MIB);
	dead = heap_world_heap(&world, 1, 1);
	assert_int_equal(reef_heap_create(&options, &heap), 0);
	take_blocks(dead, block_size, &block, 1);
	assert_int_equal(reef_heap_keep(dead, block), 0);
	if (abandoned)
		assert_int_equal(reef_heap_relinquish(dead), 0);
	else
		world.fenced[1] = true;
	lose_batches = happens ? 1 : 2;
	if (abandoned)
		assert_int_equal(reef_heap_adopt(heap, 8), -REEF_ENOLINK);
	else
		assert_int_equal(heap_recover_one(heap, 1, NULL, NULL),
				 -EAGAIN);
	assert_true(is_away && reef_heap_is_judging(heap, !abandoned));
	is_away = false;
	lose_batches = 0;
	/* What may still happen is waited for, or done anew. */
	if (abandoned)
		assert_true(reef_heap_adopt(heap, 8) >= 0);
	else
		assert_int_equal(reef_heap_recover(heap, NULL, 0, NULL, NULL),
				 0);
	assert_int_equal(reef_heap_is_judging(heap, 0), !happens && !abandoned);
	world.safe = world.reclaim + 1;
	assert_int_equal(reef_heap_recover(heap, NULL, 0, NULL, NULL), 0);
	assert_false(reef_heap_is_judging(heap, 0));
	if (!abandoned)
		assert_int_equal(heap_recover_one(heap, 1, NULL, NULL), 0);
	assert_int_equal(reef_heap_free(heap, block, 0), 0);
	assert_int_equal(take_units(heap), 63);
	reef_heap_destroy(dead);
	reef_heap_destroy(heap);
	heap_world_fini(&world);
}

static void heap_adoption_in_doubt_word_tells(void **state)
{
	for (uint32_t i = 0; i < 8; i++)
		adopt_in_doubt(i % 2, i / 2 % 2, i / 4 ? 3 * MIB / 2 : 400);
}

/* Another's blocks, and their frees are in doubt, whether they happened or not:
 * then they are done again, and the owner has them back. Half of them are in
 * another life than the others, so that headers are guessed wrong. */
static void heap_free_in_doubt_done_once(void **state)
{
	static const uint64_t sizes[] = {64 * KIB - 8, 400};
	struct reef_heap_ops ops = heap_world_ops;
	struct heap_world world;
	struct reef_heap_options options = {
		.ops = &ops, .context = &world, .session = 2, .seed = 2};
	struct reef_heap *heap, *other;
	uint64_t blocks[100], block;

	ops.execute = execute_in_doubt;
	ops.is_inside = always_inside;
	heap_world_init(&world, 4 * MIB, 8 * MIB);
	world.safe = world.reclaim + 1;
	heap = heap_world_heap(&world, 1, 1);
	assert_int_equal(reef_heap_create(&options, &other), 0);
	for (uint32_t size = 0; size < 2; size++) {
		take_blocks(heap, sizes[size], blocks, 100);
		for (uint32_t i = 50; i < 100; i++)
			assert_int_equal(reef_heap_free(heap, blocks[i], 0), 0);
		take_blocks(heap, sizes[size], blocks + 50, 50);
		for (uint32_t i = 0; i < 100; i++) {
			block = blocks[i % 2 ? 50 + i / 2 : i / 2];
			lose_batches = i % 5;
			assert_int_equal(
				reef_heap_free(other, block, REEF_FREE_LATER),
				0);
			lose_batches = 0;
			assert_int_equal(
				reef_heap_free(other, block, REEF_FREE_LATER),
				-EALREADY);
		}
		assert_int_equal(reef_heap_collect(heap, true), 0);
	}
	assert_int_equal(take_units(heap), 2 * 63);
	reef_heap_destroy(heap);
	reef_heap_destroy(other);
	heap_world_fini(&world);
}

/* --- claims and releases in doubt --- */

static struct {
	int (*execute)(void *context, struct reef_access *accesses,
		       uint32_t count);
	uint32_t cas;	/* of a chunk that are done, and in doubt */
	uint32_t away;	/* calls in which the node is out of reach after that */
	bool is_undone; /* they are not done */
} doubtful;

static int doubtful_execute(void *context, struct reef_access *accesses,
			    uint32_t count)
{
	int rc;

	if (!doubtful.cas && doubtful.away) {
		doubtful.away--;
		return -REEF_ENOLINK;
	}
	for (uint32_t i = 0; i < count && doubtful.cas; i++) {
		if (accesses[i].kind != REEF_CAS)
			continue;
		doubtful.cas--;
		rc = doubtful.is_undone
			     ? 0
			     : heap_world_execute(context, accesses, i + 1);
		for (uint32_t j = i; j < count; j++)
			accesses[j].status =
				j == i ? -REEF_EINDOUBT : -REEF_ENOTDONE;
		return rc ? rc : -REEF_EINDOUBT;
	}
	return heap_world_execute(context, accesses, count);
}

/* Take all units there are; returns how many. */
static uint32_t fill_units(struct reef_heap *heap, uint64_t *blocks)
{
	uint32_t count = 0;

	while (!reef_heap_alloc(heap, REEF_BLOCK_RAW, 65528, &blocks[count]))
		count++;
	return count;
}

static void check_doubt(bool in_release, bool is_undone)
{
	struct reef_heap_ops ops = heap_world_ops;
	struct heap_world world;
	struct reef_heap_options options = {
		.ops = &ops, .context = &world, .session = 1, .number = 3};
	struct reef_heap *heap;
	uint64_t blocks[64], more[64], word;
	uint32_t count = 0;

	ops.execute = doubtful_execute;
	heap_world_init(&world, 2 * MIB, 2 * MIB);
	assert_int_equal(reef_heap_create(&options, &heap), 0);
	if (in_release) {
		assert_int_equal(fill_units(heap, blocks), 31);
		for (uint32_t i = 0; i < 31; i++)
			assert_int_equal(reef_heap_free(heap, blocks[i], 0), 0);
	}
	doubtful.is_undone = is_undone;
	doubtful.cas = 1;
	doubtful.away = 1;
	if (in_release)
		reef_heap_collect(heap, true);
	else
		count = fill_units(heap, blocks);
	doubtful.cas = doubtful.away = 0;
	/* It may still happen in this epoch, and cannot after that. */
	world.reclaim++;
	world.safe = world.reclaim;
	assert_int_equal(count + fill_units(heap, more), 31);
	for (uint32_t i = 0; i < 31; i++)
		assert_int_equal(
			reef_heap_free(heap,
				       i < count ? blocks[i] : more[i - count],
				       0),
			0);
	assert_int_equal(reef_heap_collect(heap, true), 0);
	for (uint32_t i = 0; i < 2; i++) {
		memcpy(&word,
		       heap_world_at(
			       &world,
			       ((uint64_t)EXTENT_BASE << 32) + 64 + 16 * i, 8),
		       8);
		assert_int_equal(word & UINT64_C(0xffffffff0000ffff), 0);
	}
	reef_heap_destroy(heap);
	heap_world_fini(&world);
}

static void heap_chunk_in_doubt_is_settled(void **state)
{
	for (uint32_t i = 0; i < 4; i++)
		check_doubt(i & 1, i & 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heap_free_in_doubt_done_once),
		cmocka_unit_test(heap_free_in_doubt_and_away_stays_in_doubt),
		cmocka_unit_test(heap_claim_in_doubt_word_tells),
		cmocka_unit_test(heap_adoption_in_doubt_word_tells),
		cmocka_unit_test(heap_full_but_for_empty_slab_room_is_there),
		cmocka_unit_test(
			heap_recover_beside_lost_extent_nothing_missed),
		cmocka_unit_test(heap_session_ends_well_room_is_there),
		cmocka_unit_test_teardown(heap_random_run_all_come_back,
					  tell_seed),
		cmocka_unit_test(heap_block_larger_than_chunk_found),
		cmocka_unit_test(heap_full_nothing_half_allocated),
		cmocka_unit_test(heap_bad_address_refused),
		cmocka_unit_test(heap_stats_add_up),
		cmocka_unit_test(heap_chunk_in_doubt_is_settled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
