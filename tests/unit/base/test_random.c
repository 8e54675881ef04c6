/* test_random.c - the same numbers for ever, and even ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/random.h"

/* The numbers are part of the contract: a seed in a bug report must mean the
 * same next year. The state after seed 0 is splitmix64's well-known start. */
static void random_seed_gives_the_known_numbers(void **state)
{
	struct reef_random random;

	reef_random_init(&random, 0);
	assert_true(random.state[0] == 0xe220a8397b1dcdaf);
	assert_true(random.state[1] == 0x6e789e6aa1b965f4);
	assert_true(random.state[2] == 0x06c45d188009454f);
	assert_true(random.state[3] == 0xf88bb8a8724c81ec);
	assert_true(reef_random_next(&random) == 0x99ec5f36cb75f2b4);
	assert_true(reef_random_next(&random) == 0xbf6e1f784956452a);
}

static void random_same_seed_same_numbers(void **state)
{
	struct reef_random a, b, c;
	int differ = 0;

	reef_random_init(&a, 42);
	reef_random_init(&b, 42);
	reef_random_init(&c, 43);
	for (int i = 0; i < 1000; i++) {
		uint64_t number = reef_random_next(&a);

		assert_true(number == reef_random_next(&b));
		differ += number != reef_random_next(&c);
	}
	assert_int_equal(differ, 1000);
}

static void random_split_is_independent_of_later_numbers(void **state)
{
	struct reef_random parent, again, child, same, other;

	reef_random_init(&parent, 7);
	reef_random_init(&again, 7);
	child = reef_random_split(&parent, 1);
	same = reef_random_split(&again, 1);
	for (int i = 0; i < 10; i++)
		reef_random_next(&parent);
	for (int i = 0; i < 100; i++)
		assert_true(reef_random_next(&child) ==
			    reef_random_next(&same));
	reef_random_init(&parent, 7);
	other = reef_random_split(&parent, 2);
	reef_random_init(&again, 7);
	child = reef_random_split(&again, 1);
	assert_true(reef_random_next(&child) != reef_random_next(&other));
	/* The parent moved by one number, whatever the label. */
	assert_memory_equal(&parent, &again, sizeof(parent));
}

static void random_below_is_even_and_in_range(void **state)
{
	uint32_t counts[7] = {0};
	struct reef_random random;

	reef_random_init(&random, 3);
	for (int i = 0; i < 700000; i++) {
		uint64_t number = reef_random_below(&random, 7);

		assert_true(number < 7);
		counts[number]++;
	}
	/* 100,000 each; the standard deviation is about 293. */
	for (int i = 0; i < 7; i++)
		assert_in_range(counts[i], 98500, 101500);
	assert_int_equal(reef_random_below(&random, 1), 0);
}

static void random_below_large_bound_has_no_bias(void **state)
{
	uint64_t bound = UINT64_C(3) << 62;
	struct reef_random random;
	int threes = 0;

	reef_random_init(&random, 4);
	for (int i = 0; i < 100000; i++)
		threes += reef_random_below(&random, bound) % 3 == 0;
	/* Four numbers for three places: unless one is rejected, every third
	 * place comes up twice as often as its neighbours. */
	assert_in_range(threes, 32300, 34300);
}

static void random_between_reaches_both_ends(void **state)
{
	struct reef_random random;
	bool low = false, high = false;

	reef_random_init(&random, 5);
	for (int i = 0; i < 1000; i++) {
		uint64_t number = reef_random_between(&random, 10, 13);

		assert_in_range(number, 10, 13);
		low |= number == 10;
		high |= number == 13;
	}
	assert_true(low && high);
	assert_int_equal(reef_random_between(&random, 9, 9), 9);
	reef_random_between(&random, 0, UINT64_MAX);
}

static void random_chance_and_unit_keep_their_odds(void **state)
{
	struct reef_random random;
	double sum = 0;
	int hits = 0;

	reef_random_init(&random, 6);
	for (int i = 0; i < 100000; i++) {
		double unit = reef_random_unit(&random);

		assert_true(unit >= 0 && unit < 1);
		sum += unit;
		hits += reef_random_chance(&random, 1, 4);
		assert_false(reef_random_chance(&random, 0, 9));
		assert_true(reef_random_chance(&random, 9, 9));
	}
	assert_in_range(hits, 24000, 26000);
	assert_in_range((uint64_t)sum, 49000, 51000);
}

static void random_fill_is_the_numbers_in_little_endian(void **state)
{
	struct reef_random random, again;
	uint8_t bytes[21], guard[21];
	uint64_t number;

	memset(bytes, 0xaa, sizeof(bytes));
	reef_random_init(&random, 8);
	reef_random_init(&again, 8);
	reef_random_fill(&random, bytes, 20);
	assert_int_equal(bytes[20], 0xaa);
	number = reef_random_next(&again);
	for (int i = 0; i < 8; i++)
		guard[i] = (uint8_t)(number >> 8 * i);
	assert_memory_equal(bytes, guard, 8);
}

static void random_secret_fills_with_something(void **state)
{
	uint8_t a[600] = {0}, b[600] = {0};

	assert_int_equal(reef_random_secret(a, sizeof(a)), 0);
	assert_int_equal(reef_random_secret(b, sizeof(b)), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	assert_memory_not_equal(a + 560, b + 560, 40);
	assert_int_equal(reef_random_secret(a, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_seed_gives_the_known_numbers),
		cmocka_unit_test(random_same_seed_same_numbers),
		cmocka_unit_test(random_split_is_independent_of_later_numbers),
		cmocka_unit_test(random_below_is_even_and_in_range),
		cmocka_unit_test(random_below_large_bound_has_no_bias),
		cmocka_unit_test(random_between_reaches_both_ends),
		cmocka_unit_test(random_chance_and_unit_keep_their_odds),
		cmocka_unit_test(random_fill_is_the_numbers_in_little_endian),
		cmocka_unit_test(random_secret_fills_with_something),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
