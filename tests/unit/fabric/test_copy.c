/* test_copy.c - copies that keep words whole. */
#include "fabric/copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 32
#define SMALL_MAX 300

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 131 + (i >> 8) * 17 + 1);
}

static void check_one(uint8_t *to_area, uint8_t *from_area, size_t area,
		      size_t to_offset, size_t from_offset, size_t size,
		      bool to_shared)
{
	uint8_t *to = to_area + GUARD + to_offset;
	uint8_t *from = from_area + GUARD + from_offset;
	size_t i;

	memset(to_area, 0xa5, area);
	for (i = 0; i < area; i++)
		from_area[i] = byte_at(i);
	if (to_shared)
		reef_copy_to_shared(to, from, size);
	else
		reef_copy_from_shared(to, from, size);
	assert_memory_equal(to, from, size);
	for (i = 0; i < GUARD + to_offset; i++)
		assert_int_equal(to_area[i], 0xa5);
	for (i = GUARD + to_offset + size; i < area; i++)
		assert_int_equal(to_area[i], 0xa5);
}

static void check_sizes(const size_t *sizes, size_t count, size_t step)
{
	size_t area = 2 * GUARD + 16 + sizes[count - 1], i, a, b;
	uint8_t *to = aligned_alloc(64, (area + 63) & ~63ull);
	uint8_t *from = aligned_alloc(64, (area + 63) & ~63ull);

	assert_non_null(to);
	assert_non_null(from);
	for (i = 0; i < count; i++)
		for (a = 0; a < 16; a += step)
			for (b = 0; b < 16; b += step) {
				check_one(to, from, area, a, b, sizes[i], true);
				check_one(to, from, area, a, b, sizes[i],
					  false);
			}
	free(to);
	free(from);
}

static void copy_small_equals_memcpy(void **state)
{
	size_t sizes[SMALL_MAX], i;

	(void)state;
	for (i = 0; i < SMALL_MAX; i++)
		sizes[i] = i;
	check_sizes(sizes, SMALL_MAX, 1);
}

static void copy_large_equals_memcpy(void **state)
{
	static const size_t sizes[] = {511,  512,  1024, 1031,	4088,
				       4096, 4100, 8192, 16391, 65536};

	(void)state;
	check_sizes(sizes, sizeof(sizes) / sizeof(sizes[0]), 3);
}

/* Where it runs in one stream, and past the caches. */
static void copy_long_equals_memcpy(void **state)
{
	static const size_t sizes[] = {131072, 131073, 131199, 262147};

	(void)state;
	check_sizes(sizes, sizeof(sizes) / sizeof(sizes[0]), 7);
}

/* One thread changes every word from all zeros to all ones and back; the other
 * must never see, or cause, a word that is neither. */
#define RACE_SIZE 147456
#define RACE_BYTES (8u << 20)

struct race {
	_Alignas(64) uint8_t shared[RACE_SIZE + 64];
	_Atomic bool stop;
	_Atomic uint64_t written; /* rounds */
	size_t offset, size, private_offset;
};

static void *race_writer(void *arg)
{
	_Alignas(64) static uint8_t zeros[RACE_SIZE + 64], ones[RACE_SIZE + 64];
	struct race *race = arg;

	memset(ones, 0xff, sizeof(ones));
	while (!atomic_load_explicit(&race->stop, memory_order_relaxed)) {
		reef_copy_to_shared(race->shared + race->offset,
				    zeros + race->private_offset, race->size);
		reef_copy_to_shared(race->shared + race->offset,
				    ones + race->private_offset, race->size);
		atomic_fetch_add_explicit(&race->written, 1,
					  memory_order_relaxed);
	}
	return NULL;
}

static void run_race(size_t offset, size_t private_offset, size_t size)
{
	_Alignas(64) static uint8_t seen[RACE_SIZE + 64];
	static struct race race;
	size_t first = (offset + 7) & ~7ull, last = (offset + size) & ~7ull, at;
	pthread_t thread;
	size_t rounds = RACE_BYTES / size, round;
	bool whole = true;
	uint64_t word;

	memset(race.shared, 0, sizeof(race.shared));
	atomic_store(&race.written, 0);
	race.offset = offset;
	race.private_offset = private_offset;
	race.size = size;
	atomic_store(&race.stop, false);
	assert_int_equal(pthread_create(&thread, NULL, race_writer, &race), 0);
	/* Both sides must have had their rounds, however the machine shares out
	 * its processors. */
	for (round = 0; round < rounds || atomic_load(&race.written) < rounds;
	     round++) {
		reef_copy_from_shared(seen + private_offset,
				      race.shared + offset, size);
		for (at = first; at < last; at += 8) {
			memcpy(&word, seen + private_offset + (at - offset), 8);
			if (word != 0 && word != UINT64_MAX)
				break;
		}
		if (at < last) {
			whole = false;
			break;
		}
	}
	atomic_store(&race.stop, true);
	pthread_join(thread, NULL);
	assert_true(whole);
}

static void copy_race_keeps_words_whole(void **state)
{
	static const size_t sizes[] = {8,    24,   64,	 120,	256,
				       1000, 4096, 8192, 131072};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		run_race(0, 0, sizes[i]);
		run_race(8, 0, sizes[i]);
		run_race(0, 3, sizes[i]);
		run_race(5, 1, sizes[i] + 8);
		run_race(56, 24, sizes[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy_small_equals_memcpy),
		cmocka_unit_test(copy_large_equals_memcpy),
		cmocka_unit_test(copy_long_equals_memcpy),
		cmocka_unit_test(copy_race_keeps_words_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
