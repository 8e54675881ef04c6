/* test_json.c - whatever is written is JSON, any text a string of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cmd/print/json.h"

#include <math.h>
#include <stdlib.h>

/* What a writer writes, to be compared. */
struct written {
	struct reef_json json;
	char *bytes;
	size_t size;
};

static struct written *begin_writing(struct written *written)
{
	*written = (struct written){0};
	written->json.stream = open_memstream(&written->bytes, &written->size);
	assert_non_null(written->json.stream);
	return written;
}

static void compare_written(struct written *written, const char *expected)
{
	fclose(written->json.stream);
	assert_string_equal(written->bytes, expected);
	free(written->bytes);
}

/* Compare a text, alone on its line, with what JSON has for it. */
static void json_is(const char *text, const char *expected)
{
	struct written written;
	char line[100];

	begin_writing(&written);
	reef_json_string(&written.json, NULL, text);
	snprintf(line, sizeof(line), "%s\n", expected);
	compare_written(&written, line);
}

static void json_members_have_commas_between_them(void **state)
{
	struct written written;
	struct reef_json *json = &begin_writing(&written)->json;
	const struct reef_text text = {"two words", 3};

	reef_json_begin(json, NULL, REEF_JSON_OBJECT);
	reef_json_text(json, "text", text);
	reef_json_number(json, "most", UINT64_MAX);
	reef_json_begin(json, "none", REEF_JSON_ARRAY);
	reef_json_end(json);
	reef_json_begin(json, "some", REEF_JSON_ARRAY);
	reef_json_bool(json, NULL, true);
	reef_json_null(json, NULL);
	reef_json_begin(json, NULL, REEF_JSON_OBJECT);
	reef_json_end(json);
	reef_json_begin(json, NULL, REEF_JSON_OBJECT);
	reef_json_bool(json, "last", false);
	reef_json_end(json);
	reef_json_end(json);
	reef_json_end(json);
	compare_written(&written,
			"{\"text\":\"two\",\"most\":18446744073709551615,"
			"\"none\":[],\"some\":[true,null,{},"
			"{\"last\":false}]}\n");
}

static void json_figures_are_numbers_or_null(void **state)
{
	struct written written;
	struct reef_json *json = &begin_writing(&written)->json;

	reef_json_double(json, NULL, 0.125);
	reef_json_double(json, NULL, 1234567.8);
	reef_json_double(json, NULL, NAN);
	reef_json_double(json, NULL, -INFINITY);
	compare_written(&written, "0.125\n1234568\nnull\nnull\n");
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

/* Compare the member that bytes are with what JSON has for it. */
static void bytes_are(const char *bytes, size_t size, const char *expected)
{
	struct written written;
	struct reef_json *json = &begin_writing(&written)->json;
	char line[100];

	reef_json_begin(json, NULL, REEF_JSON_OBJECT);
	reef_json_bytes(json, "key", bytes, size);
	reef_json_end(json);
	snprintf(line, sizeof(line), "{%s}\n", expected);
	compare_written(&written, line);
}

static void json_bytes_are_a_text_or_base64(void **state)
{
	bytes_are(NULL, 0, "\"key\":\"\"");
	bytes_are("a\0\xc3\xa4", 4, "\"key\":\"a\\u0000ä\"");
	/* What a text has for what is lost is a character as any other. */
	bytes_are("\xef\xbf\xbd", 3, "\"key\":\"\xef\xbf\xbd\"");
	bytes_are("\xff", 1, "\"key_base64\":\"/w==\"");
	bytes_are("x\xff", 2, "\"key_base64\":\"eP8=\"");
	bytes_are("x\xfe\0", 3, "\"key_base64\":\"eP4A\"");
	bytes_are("\xfb\xf0"
		  "ab",
		  4, "\"key_base64\":\"+/BhYg==\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_members_have_commas_between_them),
		cmocka_unit_test(json_figures_are_numbers_or_null),
		cmocka_unit_test(json_plain_text_stands_in_quotes),
		cmocka_unit_test(json_utf8_stays_as_it_is),
		cmocka_unit_test(json_other_bytes_are_replaced),
		cmocka_unit_test(json_bytes_are_a_text_or_base64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
