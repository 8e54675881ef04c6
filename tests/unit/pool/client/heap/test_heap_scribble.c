/* test_heap_scribble.c - R10: the heap's own words, one of them scribbled over.
 *
 * Three sessions share a space. One word of it (of an extent's header, a
 * chunk's word or counter, a unit's descriptor, a block's header) gets a bad
 * value. Then all work on; one dies and is recovered, and then the one that
 * recovered it. Errors are fine. Nothing may crash or leave memory, every call
 * ends, and so does every recovery: a word must not keep a session FENCED for
 * ever. */
#include "base/random.h"
#include "fixture/heap_recover.h"
#include "fixture/heap_world.h"
#include "fixture/seeds.h"
#include "pool/client/heap/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 40u /* of a session */
#define WORDS_MAX 2048u
#define BATCHES_MAX 512u /* of one call: it ends */
#define RECOVERIES_MAX 4u
#define TRIALS 400

enum { A = 1, B, C, SESSIONS };

enum bad {
	BAD_ZERO,
	BAD_ONES,
	BAD_RANDOM,
	BAD_MORE,	/* by one */
	BAD_LESS,	/* by one */
	BAD_GENERATION, /* of a chunk or block, more by one */
	BAD_UNITS,	/* of a run, or the session: more by one */
	BAD_MANY_UNITS, /* of a run; a session that never was */
	BAD_OWNER,	/* another session's, that lives */
	BAD_LARGE,	/* the head of a run that crosses chunks */
	BAD_BORROWED,	/* another word of the heap's */
	BAD_BIT,
	BADS,
};

struct scene {
	struct heap_world world;
	struct reef_random random;
	struct reef_heap *heaps[SESSIONS];
	uint64_t blocks[SESSIONS][BLOCKS];
	uint64_t words[WORDS_MAX]; /* addresses */
	uint32_t words_count;
};

static uint64_t below(struct scene *scene, uint64_t bound)
{
	return reef_random_below(&scene->random, bound);
}

static uint64_t *word_at(struct scene *scene, uint64_t address)
{
	uint8_t *at = heap_world_at(&scene->world, address, 8);

	assert_non_null(at);
	return (uint64_t *)(void *)at;
}

/* --- the space --- */

static uint64_t size_of(uint32_t i)
{
	static const uint64_t sizes[] = {
		24, 64, 64, 100, 500, 700, 4000, 20000, 70000, 300 << 10,
	};

	/* One that crosses the border of a chunk. */
	if (i == 7)
		return 5 * MIB / 2;
	return sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
}

static void fill(struct scene *scene, uint32_t session)
{
	static const uint8_t bytes[64];
	uint8_t kind;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint64_t *address = &scene->blocks[session][i];

		kind = i % 8 == 3 ? REEF_BLOCK_HASH_ENTRY : REEF_BLOCK_RAW;
		if (i == 4)
			kind = REEF_BLOCK_PAGE;
		if (reef_heap_alloc(scene->heaps[session], kind, size_of(i),
				    address)) {
			*address = 0;
			continue;
		}
		assert_int_equal(heap_world_write(&scene->world,
						  scene->heaps[session],
						  *address, bytes, 16),
				 0);
		if (i % 8 == 5)
			reef_heap_keep(scene->heaps[session], *address);
	}
}

/* Each frees some of the next one's, so that counters count. */
static void free_some(struct scene *scene)
{
	for (uint32_t s = A; s < SESSIONS; s++)
		for (uint32_t i = 0; i < BLOCKS; i += 6)
			reef_heap_free(scene->heaps[s],
				       scene->blocks[s % C + 1][i],
				       i % 4 ? REEF_FREE_LATER : 0);
}

static void note_word(struct scene *scene, uint64_t address)
{
	assert_true(scene->words_count < WORDS_MAX);
	scene->words[scene->words_count++] = address;
}

static void note_words(struct scene *scene)
{
	for (uint32_t e = 0; e < scene->world.count; e++) {
		struct heap_shape shape =
			heap_shape_of(scene->world.extents[e].size);
		uint64_t end = shape.units_at + 8 * (uint64_t)shape.units;

		for (uint64_t at = 0; at < end; at += 8)
			note_word(scene, heap_address(e + EXTENT_BASE, at));
	}
	for (uint32_t s = A; s < SESSIONS; s++)
		for (uint32_t i = 0; i < BLOCKS; i++)
			if (scene->blocks[s][i])
				note_word(scene,
					  scene->blocks[s][i] - HEAP_HEADER);
}

static void open_scene(struct scene *scene, uint64_t seed)
{
	memset(scene, 0, sizeof(*scene));
	reef_random_init(&scene->random, seed);
	heap_world_init(&scene->world, 8 * MIB, 24 * MIB);
	for (uint32_t s = A; s < SESSIONS; s++)
		scene->heaps[s] = heap_world_heap(&scene->world, s, s);
	for (uint32_t s = A; s < SESSIONS; s++)
		fill(scene, s);
	free_some(scene);
	note_words(scene);
}

static void close_scene(struct scene *scene)
{
	for (uint32_t s = A; s < SESSIONS; s++)
		reef_heap_destroy(scene->heaps[s]);
	heap_world_fini(&scene->world);
}

/* --- the word --- */

static uint64_t bad_value(struct scene *scene, enum bad bad, uint64_t was)
{
	switch (bad) {
	case BAD_ZERO:
		return 0;
	case BAD_ONES:
		return UINT64_MAX;
	case BAD_RANDOM:
		return reef_random_next(&scene->random);
	case BAD_MORE:
		return was + 1;
	case BAD_LESS:
		return was - 1;
	case BAD_GENERATION:
		return was + (UINT64_C(1) << 16);
	case BAD_UNITS:
		return was + (UINT64_C(1) << 32);
	case BAD_MANY_UNITS:
		return was | UINT64_C(0x7fffffff) << 32;
	case BAD_OWNER:
		return (was & UINT32_MAX) | (A + below(scene, 3)) << 32;
	case BAD_LARGE:
		return heap_descriptor(HEAP_UNIT_LARGE, 0,
				       1 + (uint32_t)below(scene, 60));
	case BAD_BORROWED:
		return *word_at(scene,
				scene->words[below(scene, scene->words_count)]);
	default:
		return was ^ UINT64_C(1) << below(scene, 64);
	}
}

/* --- what is done --- */

/* An operation that does not end is seen by what it does. */
static void check_ended(struct scene *scene, uint64_t batches)
{
	assert_true(scene->world.batches - batches <= BATCHES_MAX);
}

static void do_one(struct scene *scene, struct reef_heap *heap, uint32_t s,
		   uint32_t i)
{
	uint64_t address = scene->blocks[s][i], size, given = 0, epoch;
	uint64_t batches = scene->world.batches;

	switch (below(scene, 8)) {
	case 0:
		reef_heap_block_size(heap, address, &size);
		break;
	case 1:
		reef_heap_keep(heap, address);
		break;
	case 2:
		reef_heap_collect(heap, below(scene, 2));
		break;
	case 3:
		scene->world.safe = ++scene->world.reclaim;
		reef_heap_reclaim(heap, &given, &epoch);
		break;
	case 4:
		reef_heap_flush(heap);
		break;
	case 5:
		reef_heap_free(heap, address, REEF_FREE_LATER);
		break;
	default:
		reef_heap_free(heap, address, 0);
	}
	check_ended(scene, batches);
}

/* Allocate, write, and do anything with anybody's blocks. */
static void work(struct scene *scene, uint32_t session)
{
	static const uint8_t bytes[16];
	struct reef_heap *heap = scene->heaps[session];
	uint64_t address, batches, size;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		batches = scene->world.batches;
		size = size_of(i);
		if (!reef_heap_alloc(heap, REEF_BLOCK_RAW, size, &address)) {
			assert_non_null(
				heap_world_at(&scene->world, address, size));
			heap_world_write(&scene->world, heap, address, bytes,
					 16);
		}
		check_ended(scene, batches);
		do_one(scene, heap, A + (uint32_t)below(scene, 3), i);
	}
	batches = scene->world.batches;
	reef_heap_collect(heap, true);
	check_ended(scene, batches);
}

static int see_page(void *context, uint32_t session, uint64_t address,
		    uint64_t size)
{
	struct scene *scene = context;

	assert_non_null(heap_world_at(&scene->world, address, size));
	return 0;
}

static void recover(struct scene *scene, uint32_t by, uint32_t session)
{
	uint64_t batches;
	int rc = -EBUSY;

	scene->world.fenced[session] = true;
	for (uint32_t i = 0;
	     i < RECOVERIES_MAX && (rc == -EBUSY || rc == -EAGAIN); i++) {
		batches = scene->world.batches;
		rc = heap_recover_one(scene->heaps[by], session, see_page,
				      scene);
		check_ended(scene, batches);
	}
	if (rc && rc != -REEF_ECORRUPT)
		print_message("recovery of %u by %u: %s\n", session, by,
			      reef_error_name(rc));
	assert_true(rc == 0 || rc == -REEF_ECORRUPT);
}

static void use_all(struct scene *scene)
{
	work(scene, B);
	work(scene, A);
	recover(scene, B, A);
	if (below(scene, 2)) {
		/* As who recovers and needs no memory; others may adopt it. */
		reef_heap_relinquish(scene->heaps[B]);
		reef_heap_adopt(scene->heaps[C], 3);
	}
	work(scene, B);
	work(scene, C);
	recover(scene, C, B);
	work(scene, C);
	reef_heap_abandon(scene->heaps[C]);
	reef_heap_collect(scene->heaps[C], true);
}

/* n counts words and values, or chooses them. */
static void try_one(struct scene *scene, bool all, uint64_t n)
{
	enum bad bad = (enum bad)(n % BADS);
	uint64_t at, was, value;

	open_scene(scene, n + 1);
	at = scene->words[all ? n / BADS % scene->words_count
			      : below(scene, scene->words_count)];
	was = *word_at(scene, at);
	value = bad_value(scene, bad, was);
	if (getenv("REEF_SEED"))
		print_message("%llu: %llx was %llx is %llx\n",
			      (unsigned long long)n, (unsigned long long)at,
			      (unsigned long long)was,
			      (unsigned long long)value);
	*word_at(scene, at) = value;
	use_all(scene);
	close_scene(scene);
}

static uint64_t last;

static int tell_last(void **state)
{
	(void)state;
	print_message("last: REEF_SEED=%llu\n", (unsigned long long)last);
	return 0;
}

static void heap_scribbled_words_are_errors(void **state)
{
	static struct scene scene;
	bool all = seeds_of(0, 1);
	uint64_t count = seeds_of(TRIALS, 1);

	(void)state;
	if (all) {
		open_scene(&scene, 1);
		count = (uint64_t)scene.words_count * BADS;
		close_scene(&scene);
	}
	for (last = seeds_first(); seeds_has(last, count); last++)
		try_one(&scene, all, last);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(heap_scribbled_words_are_errors,
					  tell_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
