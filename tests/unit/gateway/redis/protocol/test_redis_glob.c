/* test_redis_glob.c - the patterns of KEYS; each expectation is what
 * redis-server 7.0.15 says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/redis/protocol/glob.h"

#include <string.h>

static bool glob(const char *pattern, const char *text)
{
	return redis_glob(pattern, strlen(pattern), text, strlen(text), false);
}

static void redis_glob_plain_bytes_match_themselves(void **state)
{
	assert_true(glob("abc", "abc"));
	assert_false(glob("abc", "abcd"));
	assert_false(glob("abcd", "abc"));
	assert_false(glob("abc", "ABC"));
	assert_true(redis_glob("a\0b", 3, "a\0b", 3, false));
	assert_false(redis_glob("a\0b", 3, "a\0c", 3, false));
	(void)state;
}

static void redis_glob_stars_match_any_bytes(void **state)
{
	assert_true(glob("*", "abc"));
	assert_true(glob("a*", "a"));
	assert_true(glob("a**", "a"));
	assert_true(glob("a*c", "abbbc"));
	assert_true(glob("*a*b*c*", "xxaxxbxxcxx"));
	assert_false(glob("*a*b*c", "xxaxxbxxcxx"));
	assert_true(glob("*ab", "aaab"));
	assert_true(glob("*aab", "aaaaab"));
	(void)state;
}

static void redis_glob_question_needs_one_byte(void **state)
{
	assert_true(glob("h?llo", "hello"));
	assert_false(glob("h?llo", "hllo"));
	assert_true(glob("*?", "a"));
	assert_true(glob("?", "\xff"));
	(void)state;
}

static void redis_glob_sets_have_ranges_and_negation(void **state)
{
	assert_true(glob("h[ae]llo", "hallo"));
	assert_false(glob("h[ae]llo", "hillo"));
	assert_true(glob("h[^e]llo", "hallo"));
	assert_false(glob("h[^e]llo", "hello"));
	assert_true(glob("h[a-c]llo", "hbllo"));
	assert_true(glob("h[c-a]llo", "hbllo"));
	assert_true(glob("[\\]]", "]"));
	assert_true(glob("[\\-x]", "-"));
	/* As in Redis, the bounds of a range are signed bytes. */
	assert_false(glob("[\x01-\xff]", "\x7f"));
	assert_true(glob("[\x80-\xff]", "\xc0"));
	(void)state;
}

static void redis_glob_odd_sets_are_redis(void **state)
{
	assert_true(glob("a[bc", "ab"));
	assert_true(glob("a[bc", "ac"));
	assert_false(glob("a[bc", "ad"));
	assert_false(glob("a[", "ab"));
	assert_true(glob("a[^", "ab"));
	assert_false(glob("[]", "a"));
	assert_true(glob("[^]", "a"));
	assert_true(glob("[a-]", "^"));
	assert_false(glob("[a-]", "-"));
	assert_true(glob("a\\", "a\\"));
	assert_true(glob("\\*", "*"));
	assert_false(glob("\\*", "a"));
	(void)state;
}

static void redis_glob_empty_text_needs_empty_pattern(void **state)
{
	assert_true(glob("", ""));
	assert_false(glob("*", ""));
	assert_false(glob("", "a"));
	assert_true(redis_glob_is_all("*", 1));
	assert_false(redis_glob_is_all("**", 2));
	(void)state;
}

static void redis_glob_either_case_folds_letters(void **state)
{
	assert_true(redis_glob("MAX*", 4, "maxmemory", 9, true));
	assert_true(redis_glob("[A-C]x", 6, "bX", 2, true));
	assert_false(redis_glob("[A-C]x", 6, "dX", 2, true));
	(void)state;
}

/* A pattern of many stars: it would take for ever if every star were tried
 * again. */
static void redis_glob_many_stars_end_soon(void **state)
{
	char pattern[2001], text[5000];
	size_t i;

	for (i = 0; i < 2000; i++)
		pattern[i] = i % 2 ? '*' : 'a';
	pattern[2000] = 'b';
	memset(text, 'a', sizeof(text));
	assert_false(redis_glob(pattern, sizeof(pattern), text, sizeof(text),
				false));
	(void)state;
}

static bool count_call(void *context)
{
	return ++*(uint32_t *)context < 5;
}

static void redis_glob_pace_is_called_and_ends_it(void **state)
{
	static char pattern[2002], text[20000];
	uint32_t calls = 0;

	memset(pattern, 'a', sizeof(pattern));
	pattern[0] = '*';
	pattern[sizeof(pattern) - 1] = 'b';
	memset(text, 'a', sizeof(text));
	assert_false(redis_glob_at_pace(pattern, sizeof(pattern), text,
					sizeof(text), count_call, &calls));
	assert_int_equal(calls, 5);
	calls = 0;
	assert_true(redis_glob_at_pace("*a", 2, text, sizeof(text), count_call,
				       &calls));
	/* One set that is long has as many steps. */
	memset(pattern, 'b', sizeof(pattern));
	pattern[0] = '[';
	pattern[sizeof(pattern) - 1] = ']';
	calls = 0;
	assert_false(redis_glob_at_pace(pattern, sizeof(pattern), text, 1,
					count_call, &calls));
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(redis_glob_plain_bytes_match_themselves),
		cmocka_unit_test(redis_glob_stars_match_any_bytes),
		cmocka_unit_test(redis_glob_question_needs_one_byte),
		cmocka_unit_test(redis_glob_sets_have_ranges_and_negation),
		cmocka_unit_test(redis_glob_odd_sets_are_redis),
		cmocka_unit_test(redis_glob_empty_text_needs_empty_pattern),
		cmocka_unit_test(redis_glob_either_case_folds_letters),
		cmocka_unit_test(redis_glob_many_stars_end_soon),
		cmocka_unit_test(redis_glob_pace_is_called_and_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
