/* test_json.c - any text becomes a string of JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cmd/json.h"

#include <stdlib.h>

static void json_is(const char *text, const char *expected)
{
	char *written = NULL;
	size_t size;
	FILE *stream = open_memstream(&written, &size);

	assert_non_null(stream);
	reef_json_string(stream, text);
	fclose(stream);
	assert_string_equal(written, expected);
	free(written);
}

static void json_plain_text_stands_in_quotes(void **state)
{
	json_is("", "\"\"");
	json_is("a b/c", "\"a b/c\"");
	json_is("\"\\", "\"\\\"\\\\\"");
	json_is("a\nb\x01\x7f", "\"a\\u000ab\\u0001\\u007f\"");
}

static void json_utf8_stays_as_it_is(void **state)
{
	json_is("µs 世界 🐠", "\"µs 世界 🐠\"");
}

static void json_other_bytes_are_replaced(void **state)
{
	json_is("a\xff"
		"b",
		"\"a\\ufffdb\"");
	json_is("\xc2", "\"\\ufffd\"");
	json_is("\xe4\xb8", "\"\\ufffd\\ufffd\"");
	/* A longer form than needed, half of a pair, and past the end. */
	json_is("\xc0\xaf", "\"\\ufffd\\ufffd\"");
	json_is("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"");
	json_is("\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_plain_text_stands_in_quotes),
		cmocka_unit_test(json_utf8_stays_as_it_is),
		cmocka_unit_test(json_other_bytes_are_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
