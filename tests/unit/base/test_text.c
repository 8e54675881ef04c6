/* test_text.c - which texts can be shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"

#include <string.h>

static void texts_that_can_be_shown_are_plain(void **state)
{
	static const char *const plain[] = {
		"",
		"pool-1",
		"gr\xc3\xbc\xc3\x9f",
		"\xc2\xa0", /* the first after the control characters */
		"\xe2\x80\xa6",
		"\xf0\x9f\xaa\xb8",
	};

	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		assert_true(reef_text_is_plain(plain[i], strlen(plain[i])));
}

static void texts_that_a_terminal_acts_upon_are_not(void **state)
{
	static const char *const odd[] = {
		"a\nb",
		"\x1b[2J",
		"\x7f",
		"\xc2\x9b[",	/* U+009B, begins a sequence as ESC [ does */
		"\xc2\x80",	/* the first of those */
		"\xc2\x9f",	/* and the last */
		"\x9b",		/* the same in eight bits; no UTF-8 */
		"\xe2\x80\xae", /* writes from right to left */
		"\xe2\x81\xa6",
		"\xe2\x80\xa8",	    /* a line ends */
		"\xc0\xaf",	    /* a longer form than needed */
		"\xed\xa0\x80",	    /* half of a pair */
		"\xf4\x90\x80\x80", /* beyond the last */
		"a\xc3",	    /* cut short */
	};
	char text[8];

	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		size_t size = strlen(odd[i]);

		assert_false(reef_text_is_plain(odd[i], size));
		memcpy(text, odd[i], size);
		reef_text_make_plain(text, size);
		assert_true(reef_text_is_plain(text, size));
	}
	assert_false(reef_text_is_plain("a\0b", 3));
}

static void texts_made_plain_keep_what_was(void **state)
{
	char text[] = "a\xc2\x9b"
		      "b\xc3\xbc\x1b";

	reef_text_make_plain(text, sizeof(text) - 1);
	assert_string_equal(text, "a??b\xc3\xbc?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_that_can_be_shown_are_plain),
		cmocka_unit_test(texts_that_a_terminal_acts_upon_are_not),
		cmocka_unit_test(texts_made_plain_keep_what_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
