/* test_cache.c - the NIC cache of the cost model. */
#include "fabric/hook/cache.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void cache_what_fits_is_hit(void **state)
{
	struct reef_cache *cache;

	(void)state;
	assert_int_equal(reef_cache_create(1000, 10, &cache), 0);
	for (uint64_t tag = 0; tag < 100; tag++)
		assert_false(reef_cache_touch(cache, tag, 10));
	for (int round = 0; round < 3; round++)
		for (uint64_t tag = 0; tag < 100; tag++)
			assert_true(reef_cache_touch(cache, tag, 10));
	assert_int_equal(reef_cache_used(cache), 1000);
	reef_cache_destroy(cache);
}

static void cache_least_recently_used_goes_first(void **state)
{
	struct reef_cache *cache;

	(void)state;
	assert_int_equal(reef_cache_create(40, 10, &cache), 0);
	for (uint64_t tag = 1; tag <= 4; tag++)
		assert_false(reef_cache_touch(cache, tag, 10));
	assert_true(reef_cache_touch(cache, 1, 10));
	assert_false(reef_cache_touch(cache, 5, 10)); /* 2 goes */
	assert_true(reef_cache_touch(cache, 1, 10));
	assert_true(reef_cache_touch(cache, 3, 10));
	assert_true(reef_cache_touch(cache, 4, 10));
	assert_true(reef_cache_touch(cache, 5, 10));
	assert_false(reef_cache_touch(cache, 2, 10));
	reef_cache_destroy(cache);
}

/* One more than fits, in a circle: the worst case of LRU. */
static void cache_circle_over_the_capacity_always_misses(void **state)
{
	struct reef_cache *cache;

	(void)state;
	assert_int_equal(reef_cache_create(1000, 10, &cache), 0);
	for (int round = 0; round < 10; round++)
		for (uint64_t tag = 0; tag < 101; tag++)
			assert_false(reef_cache_touch(cache, tag << 40, 10));
	reef_cache_destroy(cache);
}

static void cache_large_entry_takes_the_room_of_many(void **state)
{
	struct reef_cache *cache;

	(void)state;
	assert_int_equal(reef_cache_create(100, 10, &cache), 0);
	for (uint64_t tag = 0; tag < 10; tag++)
		reef_cache_touch(cache, tag, 10);
	assert_false(reef_cache_touch(cache, 100, 55));
	assert_int_equal(reef_cache_used(cache), 95);
	for (uint64_t tag = 6; tag < 10; tag++)
		assert_true(reef_cache_touch(cache, tag, 10));
	assert_false(reef_cache_touch(cache, 200, 101)); /* never kept */
	assert_false(reef_cache_touch(cache, 200, 101));
	assert_int_equal(reef_cache_used(cache), 95);
	assert_false(reef_cache_touch(cache, 300, 1)); /* counts as entry_min */
	assert_true(reef_cache_used(cache) <= 100);
	reef_cache_destroy(cache);
}

static void cache_impossible_size_is_refused(void **state)
{
	struct reef_cache *cache;

	(void)state;
	assert_int_equal(reef_cache_create(0, 10, &cache), -EINVAL);
	assert_int_equal(reef_cache_create(10, 0, &cache), -EINVAL);
	assert_int_equal(reef_cache_create(1ull << 40, 1, &cache), -EINVAL);
	reef_cache_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cache_what_fits_is_hit),
		cmocka_unit_test(cache_least_recently_used_goes_first),
		cmocka_unit_test(cache_circle_over_the_capacity_always_misses),
		cmocka_unit_test(cache_large_entry_takes_the_room_of_many),
		cmocka_unit_test(cache_impossible_size_is_refused),
	};

	return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
