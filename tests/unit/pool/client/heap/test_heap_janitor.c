/* test_heap_janitor.c - a recoverer that keeps nothing: what it has judged it
 * gives away, FREE or ABANDONED, wherever it dies; and whoever lacks room
 * adopts it. */
#include "fixture/heap_recover.h"
#include "fixture/heap_world.h"
#include "pool/client/heap/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEAD = 1, JANITOR, NEXT, USER };

#define KEPT 12u
#define STRIKES_MAX 4000u

struct scene {
	struct heap_world world;
	uint64_t kept[KEPT]; /* blocks that outlive their session */
	uint32_t count;
};

static uint64_t word_at(const struct scene *scene, uint32_t extent,
			uint64_t chunk)
{
	uint64_t word;

	memcpy(&word, scene->world.extents[extent].base + 64 + 16 * chunk, 8);
	return word;
}

/* How many chunks are FREE, ABANDONED and somebody's. */
static void count_chunks(const struct scene *scene, uint32_t *free,
			 uint32_t *abandoned, uint32_t *owned)
{
	uint64_t word;

	*free = *abandoned = *owned = 0;
	for (uint32_t i = 0; i < scene->world.count; i++)
		for (uint64_t c = 0; c < scene->world.extents[i].size / MIB;
		     c++) {
			word = word_at(scene, i, c);
			*free += heap_chunk_is_free(word);
			*abandoned += heap_chunk_is_abandoned(word);
			*owned += !heap_chunk_is_free(word) &&
				  !heap_chunk_is_abandoned(word);
		}
}

static uint64_t take(struct scene *scene, struct reef_heap *heap, uint64_t size)
{
	uint64_t address, mark = size;

	assert_int_equal(reef_heap_alloc(heap, REEF_BLOCK_RAW, size, &address),
			 0);
	assert_int_equal(
		heap_world_write(&scene->world, heap, address, &mark, 8), 0);
	return address;
}

/* A session that dies, with blocks of all sizes; some are kept, and some of
 * those reach from one chunk into the next. */
static void leave_blocks(struct scene *scene)
{
	static const uint64_t sizes[] = {
		24, 400, 9000, 70 * KIB, 300 * KIB, 900 * KIB, 2500 * KIB};
	struct reef_heap *heap = heap_world_heap(&scene->world, DEAD, 5);
	uint64_t address;

	scene->count = 0;
	for (uint32_t i = 0; i < 42; i++) {
		address = take(scene, heap, sizes[i % 7]);
		if (i % 4 == 0 && scene->count < KEPT) {
			assert_int_equal(reef_heap_keep(heap, address), 0);
			scene->kept[scene->count++] = address;
		} else if (i % 4 == 1) {
			assert_int_equal(reef_heap_free(heap, address, 0), 0);
		}
	}
	reef_heap_destroy(heap);
	scene->world.fenced[DEAD] = true;
}

static void pass_epoch(struct scene *scene)
{
	scene->world.reclaim += 2;
	scene->world.safe = scene->world.reclaim;
}

/* What a janitor does when it is asked, and when limbo is over. */
static int clean(struct scene *scene, uint32_t janitor, uint32_t first,
		 uint32_t second)
{
	struct reef_heap_recovery list[] = {{.session = first},
					    {.session = second}};
	struct reef_heap *heap = heap_world_heap(&scene->world, janitor, 7);
	int rc = reef_heap_recover(heap, list, second ? 2 : 1, NULL, NULL);

	for (int i = 0; i < 2 && !rc; i++) {
		rc = reef_heap_collect(heap, true);
		if (!rc)
			rc = reef_heap_relinquish(heap);
		pass_epoch(scene);
	}
	reef_heap_destroy(heap);
	return rc;
}

/* The blocks that were kept are there; when they are freed, all is. */
static void check_and_free(struct scene *scene)
{
	struct reef_heap *heap = heap_world_heap(&scene->world, USER, 9);
	uint32_t free, abandoned, owned;

	for (uint32_t i = 0; i < scene->count; i++)
		assert_int_equal(reef_heap_free(heap, scene->kept[i], 0), 0);
	assert_true(reef_heap_adopt(heap, UINT32_MAX) >= 0);
	for (int i = 0; i < 2; i++) {
		pass_epoch(scene);
		assert_int_equal(reef_heap_collect(heap, true), 0);
	}
	count_chunks(scene, &free, &abandoned, &owned);
	assert_int_equal(abandoned + owned, 0);
	reef_heap_destroy(heap);
}

static void heap_janitor_keeps_nothing(void **state)
{
	struct scene scene = {0};
	uint32_t free, abandoned, owned;

	heap_world_init(&scene.world, 16 * MIB, 64 * MIB);
	leave_blocks(&scene);
	assert_int_equal(clean(&scene, JANITOR, DEAD, 0), 0);
	count_chunks(&scene, &free, &abandoned, &owned);
	assert_int_equal(owned, 0);
	assert_true(free > 0 && abandoned > 0);
	check_and_free(&scene);
	heap_world_fini(&scene.world);
}

/* What others free in chunks that are nobody's comes back, though nobody lacks
 * room; chunks in which nothing was freed are left alone. */
static void heap_janitor_tidies_where_others_freed(void **state)
{
	struct scene scene = {0};
	uint32_t free, abandoned, owned, before;
	struct reef_heap *heap, *user;

	heap_world_init(&scene.world, 16 * MIB, 64 * MIB);
	leave_blocks(&scene);
	assert_int_equal(clean(&scene, JANITOR, DEAD, 0), 0);
	count_chunks(&scene, &free, &before, &owned);
	heap = heap_world_heap(&scene.world, NEXT, 7);
	assert_int_equal(reef_heap_tidy(heap, UINT32_MAX), 0);
	count_chunks(&scene, &free, &abandoned, &owned);
	assert_int_equal(abandoned, before);
	user = heap_world_heap(&scene.world, USER, 9);
	for (uint32_t i = 0; i < scene.count; i++)
		assert_int_equal(reef_heap_free(user, scene.kept[i], 0), 0);
	assert_int_equal(reef_heap_flush(user), 0);
	assert_true(reef_heap_tidy(heap, UINT32_MAX) > 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(reef_heap_collect(heap, true), 0);
		assert_int_equal(reef_heap_relinquish(heap), 0);
		pass_epoch(&scene);
	}
	count_chunks(&scene, &free, &abandoned, &owned);
	assert_int_equal(abandoned + owned, 0);
	reef_heap_destroy(user);
	reef_heap_destroy(heap);
	heap_world_fini(&scene.world);
}

/* Struck at every access in turn; the next janitor does the rest. */
static void heap_janitor_dies_anywhere(void **state)
{
	uint32_t free, abandoned, owned, strike;

	for (strike = 1; strike < STRIKES_MAX; strike++) {
		struct scene scene = {0};
		bool was_struck;
		int rc;

		heap_world_init(&scene.world, 16 * MIB, 64 * MIB);
		leave_blocks(&scene);
		scene.world.die_after = strike;
		rc = clean(&scene, JANITOR, DEAD, 0);
		was_struck = scene.world.dead;
		assert_int_equal(rc, was_struck ? -REEF_EHOSTDEAD : 0);
		scene.world.dead = false;
		scene.world.die_after = 0;
		scene.world.fenced[JANITOR] = true;
		rc = clean(&scene, NEXT, DEAD, JANITOR);
		if (rc == -EBUSY) /* what hangs together goes with its first */
			rc = clean(&scene, NEXT + 10, DEAD, JANITOR);
		assert_int_equal(rc, 0);
		count_chunks(&scene, &free, &abandoned, &owned);
		assert_int_equal(owned, 0);
		check_and_free(&scene);
		heap_world_fini(&scene.world);
		if (!was_struck)
			break;
	}
	print_message("struck at %u accesses\n", strike - 1);
	assert_in_range(strike, 50, STRIKES_MAX - 1);
}

/* The space is full, and what has room is nobody's: it is adopted. Blocks that
 * others freed for later since wait for their epoch. */
static void heap_abandoned_is_adopted_before_the_space_grows(void **state)
{
	struct scene scene = {0};
	struct reef_heap *heap, *other;
	uint32_t free, abandoned, owned;
	uint64_t address, grows;

	heap_world_init(&scene.world, 16 * MIB, 64 * MIB);
	leave_blocks(&scene);
	assert_int_equal(clean(&scene, JANITOR, DEAD, 0), 0);
	other = heap_world_heap(&scene.world, NEXT, 3);
	assert_int_equal(reef_heap_free(other, scene.kept[0], REEF_FREE_LATER),
			 0);
	heap = heap_world_heap(&scene.world, USER, 4);
	grows = scene.world.grows;
	do {
		address = take(&scene, heap, 24);
		assert_int_not_equal(address, scene.kept[0]);
		count_chunks(&scene, &free, &abandoned, &owned);
	} while (abandoned && scene.world.grows == grows && owned < 60 &&
		 !reef_heap_alloc(heap, REEF_BLOCK_RAW, 30 * KIB, &address));
	assert_int_equal(abandoned, 0);
	assert_int_equal(scene.world.grows, grows);
	reef_heap_destroy(heap);
	reef_heap_destroy(other);
	heap_world_fini(&scene.world);
}

/* A node is out of reach: what is elsewhere is recovered all the same, and the
 * session is not done. */
static int is_away(void *context, struct reef_access *accesses, uint32_t count)
{
	struct scene *scene = context;
	uint32_t last = scene->world.count - 1 + EXTENT_BASE;

	for (uint32_t i = 0; i < count; i++)
		if (accesses[i].address >> 32 == last) {
			accesses[i].status = -ETIMEDOUT;
			return -ETIMEDOUT;
		}
	return heap_world_execute(&scene->world, accesses, count);
}

static void heap_node_out_of_reach_holds_up_nothing_else(void **state)
{
	struct scene scene = {0};
	struct reef_heap_ops ops = heap_world_ops;
	struct reef_heap_options options = {
		.ops = &ops, .context = &scene, .session = JANITOR, .seed = 1};
	struct reef_heap *heap;
	uint32_t named = 0, elsewhere = 0;

	heap_world_init(&scene.world, 16 * MIB, 64 * MIB);
	leave_blocks(&scene);
	assert_true(scene.world.count > 1);
	ops.execute = is_away;
	assert_int_equal(reef_heap_create(&options, &heap), 0);
	assert_int_equal(heap_recover_one(heap, DEAD, NULL, NULL), -ETIMEDOUT);
	for (uint32_t i = 0; i < scene.world.count; i++)
		for (uint64_t c = 0; c < scene.world.extents[i].size / MIB;
		     c++) {
			bool is_dead = heap_chunk_is_owned(
				word_at(&scene, i, c), DEAD);

			if (i + 1 == scene.world.count)
				named += is_dead;
			else
				elsewhere += is_dead;
		}
	assert_true(named > 0);
	assert_int_equal(elsewhere, 0);
	ops.execute = heap_world_execute;
	reef_heap_move(heap, &ops, &scene.world);
	assert_int_equal(heap_recover_one(heap, DEAD, NULL, NULL), 0);
	reef_heap_destroy(heap);
	heap_world_fini(&scene.world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heap_janitor_keeps_nothing),
		cmocka_unit_test(heap_janitor_tidies_where_others_freed),
		cmocka_unit_test(heap_janitor_dies_anywhere),
		cmocka_unit_test(
			heap_abandoned_is_adopted_before_the_space_grows),
		cmocka_unit_test(heap_node_out_of_reach_holds_up_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
