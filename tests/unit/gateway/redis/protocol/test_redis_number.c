/* test_redis_number.c - numbers as text, as redis-server 7.0.15 has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/redis/protocol/number.h"

#include <string.h>

static void integer_is(const char *text, int64_t value)
{
	char written[REDIS_INTEGER_SIZE];
	int64_t read;

	assert_true(redis_integer_parse(text, strlen(text), &read));
	assert_true(read == value);
	assert_int_equal(redis_integer_format(value, written), strlen(text));
	assert_string_equal(written, text);
}

static void redis_number_integers_are_read_as_written(void **state)
{
	integer_is("0", 0);
	integer_is("1", 1);
	integer_is("-1", -1);
	integer_is("10", 10);
	integer_is("9223372036854775807", INT64_MAX);
	integer_is("-9223372036854775808", INT64_MIN);
	(void)state;
}

static void redis_number_other_integers_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"-",
		"+1",
		" 1",
		"1 ",
		"01",
		"-0",
		"00",
		"-01",
		"1.0",
		"0x1",
		"9223372036854775808",
		"-9223372036854775809",
		"18446744073709551616",
		"99999999999999999999999",
		"a",
		"1a",
	};
	int64_t read = 7;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(
			redis_integer_parse(bad[i], strlen(bad[i]), &read));
	assert_false(redis_integer_parse("1\0", 2, &read));
	assert_int_equal(read, 7);
	(void)state;
}

static void sum_is(const char *a, const char *b, const char *sum)
{
	char written[REDIS_FRACTION_SIZE];
	long double x, y;

	assert_true(redis_fraction_parse(a, strlen(a), &x));
	assert_true(redis_fraction_parse(b, strlen(b), &y));
	assert_int_equal(redis_fraction_format(x + y, written), strlen(sum));
	assert_string_equal(written, sum);
}

static void redis_number_fractions_are_written_short(void **state)
{
	sum_is("0", "0", "0");
	sum_is("-0", "0", "0");
	sum_is("1", "0.1", "1.1");
	sum_is("0.1", "0.2", "0.3");
	sum_is("3.0e3", "200", "3200");
	sum_is("6e-18", "0", "0.00000000000000001");
	sum_is("5e-18", "0", "0");
	sum_is("-1e-20", "0", "0");
	sum_is("1e20", "1", "100000000000000000000");
	sum_is("0x10", "0", "16");
	sum_is("-1.5", "0", "-1.5");
	sum_is("100", "0", "100");
	(void)state;
}

static void redis_number_other_fractions_are_refused(void **state)
{
	static const char *const bad[] = {
		"",	  " 1",	     "1 ", "nan", "a",	 "1.5x",
		"1e9999", "1e-9999", "-",  ".",	  "1,5", "1e",
	};
	char lengthy[REDIS_FRACTION_SIZE];
	long double read = 7;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(
			redis_fraction_parse(bad[i], strlen(bad[i]), &read));
	assert_false(redis_fraction_parse("1\0", 2, &read));
	memset(lengthy, '1', sizeof(lengthy));
	assert_false(redis_fraction_parse(lengthy, sizeof(lengthy), &read));
	assert_true(read == 7);
	assert_true(redis_fraction_parse("inf", 3, &read));
	assert_true(redis_fraction_parse(".5", 2, &read));
	assert_true(redis_fraction_parse("5.", 2, &read));
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(redis_number_integers_are_read_as_written),
		cmocka_unit_test(redis_number_other_integers_are_refused),
		cmocka_unit_test(redis_number_fractions_are_written_short),
		cmocka_unit_test(redis_number_other_fractions_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
