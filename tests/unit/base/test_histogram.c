/* test_histogram.c - quantiles against the sorted values themselves. */
#include "base/histogram.h"
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#define VALUES 5000

static struct reef_histogram histogram;

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

static void expect_close(uint64_t found, uint64_t exact)
{
	uint64_t off = found > exact ? found - exact : exact - found;

	assert_true(off <= exact / 64);
}

static void histogram_quantile_off_by_a_64th_at_most(void **state)
{
	static uint64_t values[VALUES];
	struct reef_random random;
	uint32_t i;

	reef_random_init(&random, 1);
	reef_histogram_init(&histogram);
	for (i = 0; i < VALUES; i++) {
		/* Every magnitude from 1 bit to 63. */
		values[i] = reef_random_next(&random) >>
			    reef_random_between(&random, 1, 63);
		reef_histogram_record(&histogram, values[i]);
	}
	qsort(values, VALUES, sizeof(values[0]), compare);
	for (i = 1; i <= VALUES; i++)
		expect_close(
			reef_histogram_quantile(&histogram, (i - 0.5) / VALUES),
			values[i - 1]);
	assert_true(reef_histogram_quantile(&histogram, 1) ==
		    values[VALUES - 1]);
	assert_true(histogram.min == values[0]);
}

static void histogram_borders_of_buckets_stay_within_bound(void **state)
{
	uint64_t value;
	int bit, add;

	for (bit = 0; bit < 63; bit++) {
		for (add = -1; add <= 1; add++) {
			value = (1ull << bit) + (uint64_t)add;
			reef_histogram_init(&histogram);
			reef_histogram_record(&histogram, value);
			reef_histogram_record(&histogram, INT64_MAX);
			expect_close(reef_histogram_quantile(&histogram, 0.5),
				     value);
		}
	}
}

static void histogram_small_values_are_exact(void **state)
{
	uint64_t value;

	reef_histogram_init(&histogram);
	for (value = 0; value < 128; value++)
		reef_histogram_record(&histogram, value);
	for (value = 0; value < 128; value++)
		assert_true(reef_histogram_quantile(
				    &histogram, (value + 1) / 128.0) == value);
	assert_true(reef_histogram_quantile(&histogram, 0) == 0);
	assert_true(reef_histogram_mean(&histogram) == 63.5);
}

static void histogram_empty_answers_zero(void **state)
{
	reef_histogram_init(&histogram);
	assert_true(reef_histogram_quantile(&histogram, 0.99) == 0);
	assert_true(reef_histogram_mean(&histogram) == 0);
}

static void histogram_sum_past_its_range_stays_at_the_top(void **state)
{
	int i;

	reef_histogram_init(&histogram);
	for (i = 0; i < 4; i++)
		reef_histogram_record(&histogram, INT64_MAX);
	assert_true(histogram.sum == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(histogram_quantile_off_by_a_64th_at_most),
		cmocka_unit_test(
			histogram_borders_of_buckets_stay_within_bound),
		cmocka_unit_test(histogram_small_values_are_exact),
		cmocka_unit_test(histogram_empty_answers_zero),
		cmocka_unit_test(histogram_sum_past_its_range_stays_at_the_top),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
