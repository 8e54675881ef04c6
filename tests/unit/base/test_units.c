/* test_units.c - sizes and durations, and what is neither. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/units.h"

#include <errno.h>

static const uint64_t second = 1000000000;

static void size_is(const char *text, uint64_t size)
{
	uint64_t value = 1;

	assert_int_equal(reef_size_parse(text, &value), 0);
	assert_true(value == size);
}

static void duration_is(const char *text, uint64_t duration_ns)
{
	uint64_t value = 1;

	assert_int_equal(reef_duration_parse(text, &value), 0);
	assert_true(value == duration_ns);
}

static void units_sizes_mean_powers_of_1024(void **state)
{
	size_is("0", 0);
	size_is("4096", 4096);
	size_is("12B", 12);
	size_is("64KiB", 65536);
	size_is("64k", 65536);
	size_is("512M", UINT64_C(512) << 20);
	size_is("8G", UINT64_C(8) << 30);
	size_is("8gib", UINT64_C(8) << 30);
	size_is("1.5G", UINT64_C(3) << 29);
	size_is("0.25K", 256);
	size_is("1T", UINT64_C(1) << 40);
	size_is("3P", UINT64_C(3) << 50);
	size_is("18446744073709551615", UINT64_MAX);
	/* Below a byte it is dropped. */
	size_is("0.1K", 102);
	size_is("0.999999999P", 1125899905716724);
}

static void units_durations_are_in_nanoseconds(void **state)
{
	duration_is("0", 0);
	duration_is("0s", 0);
	duration_is("7ns", 7);
	duration_is("20us", 20000);
	duration_is("200ms", 200000000);
	duration_is("10s", 10 * second);
	duration_is("1.5s", 1500000000);
	duration_is("2min", 120 * second);
	duration_is("1h", 3600 * second);
	duration_is("1d", 86400 * second);
}

static void units_other_texts_are_refused(void **state)
{
	static const char *const sizes[] = {
		"",    "G",   "-1",  "+1",    " 1",	      "1 ",   "8GB",
		"8KB", "8X",  "1.G", ".5G",   "1..5",	      "1,5G", "0x10",
		"1e3", "8Gi", "NaN", "8GiBx", "1.0000000001G"};
	static const char *const durations[] = {
		"", "10", "s", "-1s", "10 s", "10S", "10m", "1.s", "00", "5x"};
	uint64_t value = 42;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_int_equal(reef_size_parse(sizes[i], &value), -EINVAL);
	for (size_t i = 0; i < sizeof(durations) / sizeof(durations[0]); i++)
		assert_int_equal(reef_duration_parse(durations[i], &value),
				 -EINVAL);
	assert_int_equal(value, 42);
}

static void units_too_much_is_out_of_range(void **state)
{
	uint64_t value = 42;

	assert_int_equal(reef_size_parse("18446744073709551616", &value),
			 -ERANGE);
	assert_int_equal(reef_size_parse("16384P", &value), -ERANGE);
	assert_int_equal(reef_size_parse("99999999999999999999999G", &value),
			 -ERANGE);
	assert_int_equal(reef_duration_parse("300000d", &value), -ERANGE);
	assert_int_equal(value, 42);
}

static void units_formatted_text_parses_back(void **state)
{
	char text[REEF_UNITS_TEXT_SIZE];
	struct reef_random random;
	uint64_t value, back;

	reef_random_init(&random, 1);
	for (int i = 0; i < 10000; i++) {
		value = reef_random_next(&random) >>
			reef_random_below(&random, 64);
		value <<= reef_random_below(&random, 20);
		reef_size_format(value, text);
		assert_int_equal(reef_size_parse(text, &back), 0);
		assert_true(back == value);
		reef_duration_format(value, text);
		assert_int_equal(reef_duration_parse(text, &back), 0);
		assert_true(back == value);
	}
	assert_string_equal(reef_size_format(0, text), "0");
	assert_string_equal(reef_size_format(1 << 26, text), "64M");
	assert_string_equal(reef_size_format(1000, text), "1000");
	assert_string_equal(reef_duration_format(0, text), "0ns");
	assert_string_equal(reef_duration_format(1500000000, text), "1500ms");
	assert_string_equal(reef_duration_format(60 * second, text), "1min");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(units_sizes_mean_powers_of_1024),
		cmocka_unit_test(units_durations_are_in_nanoseconds),
		cmocka_unit_test(units_other_texts_are_refused),
		cmocka_unit_test(units_too_much_is_out_of_range),
		cmocka_unit_test(units_formatted_text_parses_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
