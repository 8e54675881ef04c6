/* test_error.c - the list of codes is sound, and each has a text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <limits.h>
#include <reef/error.h>
#include <string.h>

static const struct {
	const char *name;
	int number;
	const char *text;
} errors[] = {
#define X(code, value, description) {#code, value, description},
	REEF_ERRORS(X)
#undef X
};
static const size_t errors_count = sizeof(errors) / sizeof(errors[0]);

static void error_list_numbers_unique_and_above_errno(void **state)
{
	for (size_t i = 0; i < errors_count; i++) {
		assert_true(errors[i].number > 4095);
		for (size_t k = 0; k < i; k++) {
			assert_int_not_equal(errors[i].number,
					     errors[k].number);
			assert_string_not_equal(errors[i].name, errors[k].name);
			assert_string_not_equal(errors[i].text, errors[k].text);
		}
	}
}

static void error_own_code_has_name_and_text(void **state)
{
	for (size_t i = 0; i < errors_count; i++) {
		for (int sign = -1; sign <= 1; sign += 2) {
			int code = sign * errors[i].number;

			assert_string_equal(reef_error_name(code),
					    errors[i].name);
			assert_string_equal(reef_error_text(code),
					    errors[i].text);
		}
	}
}

static void error_errno_has_name_and_text(void **state)
{
	assert_string_equal(reef_error_name(-EINVAL), "EINVAL");
	assert_string_equal(reef_error_name(EINVAL), "EINVAL");
	assert_string_equal(reef_error_text(-ENOENT),
			    "No such file or directory");
	assert_string_equal(reef_error_name(-EDQUOT), "EDQUOT");
	assert_null(strstr(reef_error_text(-EDQUOT), "Disk"));
	assert_non_null(reef_error_text(0));
}

static void error_unknown_code_is_named_so(void **state)
{
	static const int codes[] = {4999, -4999, 999999, INT_MAX, INT_MIN};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		assert_string_equal(reef_error_name(codes[i]), "unknown");
		assert_non_null(reef_error_text(codes[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(error_list_numbers_unique_and_above_errno),
		cmocka_unit_test(error_own_code_has_name_and_text),
		cmocka_unit_test(error_errno_has_name_and_text),
		cmocka_unit_test(error_unknown_code_is_named_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
