/* test_paths.c - where things are, by what the environment says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/system/paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int find_fn(char *const *environment, char **out);

static void path_is(find_fn *find, char *const *environment,
		    const char *expected)
{
	char *path = NULL;

	assert_int_equal(find(environment, &path), 0);
	assert_string_equal(path, expected);
	free(path);
}

static void paths_xdg_variables_come_first(void **state)
{
	char *environment[] = {"HOME=/h", "XDG_CONFIG_HOME=/c",
			       "XDG_STATE_HOME=/s", "XDG_RUNTIME_DIR=/r", NULL};

	path_is(reef_path_config, environment, "/c/reef/reef.conf");
	path_is(reef_path_data, environment, "/s/reef");
	path_is(reef_path_runtime, environment, "/r/reef");
}

static void paths_without_xdg_are_under_home(void **state)
{
	char *environment[] = {"HOME=/h", NULL};
	char expected[64];

	snprintf(expected, sizeof(expected), "/tmp/reef-%lu",
		 (unsigned long)geteuid());
	path_is(reef_path_config, environment, "/h/.config/reef/reef.conf");
	path_is(reef_path_data, environment, "/h/.local/state/reef");
	path_is(reef_path_runtime, environment, expected);
}

static void paths_relative_and_empty_variables_count_for_nothing(void **state)
{
	char *environment[] = {"HOME=/h",
			       "XDG_CONFIG_HOME=", "XDG_STATE_HOME=here",
			       "XDG_RUNTIME_DIR=./x", NULL};
	char *path;

	path_is(reef_path_config, environment, "/h/.config/reef/reef.conf");
	path_is(reef_path_data, environment, "/h/.local/state/reef");
	assert_int_equal(reef_path_runtime(environment, &path), 0);
	assert_memory_equal(path, "/tmp/reef-", 10);
	free(path);
}

static void paths_tilde_is_home(void **state)
{
	char *environment[] = {"HOME=/h", NULL};
	static const char *const pairs[][2] = {
		{"~", "/h"},	      {"~/a b", "/h/a b"}, {"/a/~", "/a/~"},
		{"~ada/x", "~ada/x"}, {"x", "x"},
	};
	char *path;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		assert_int_equal(
			reef_path_expand(environment, pairs[i][0], &path), 0);
		assert_string_equal(path, pairs[i][1]);
		free(path);
	}
}

static void paths_without_home_ask_the_list_of_users(void **state)
{
	char *environment[] = {NULL};
	char *path = NULL;
	int rc = reef_path_data(environment, &path);

	/* Whoever runs the tests may have no entry there. */
	assert_true(rc == 0 ? path[0] == '/' : rc == -ENOENT);
	free(path);
}

static void paths_variable_is_found_whole(void **state)
{
	char *environment[] = {"AB=1", "A=2", "A=3", "EMPTY=", NULL};

	assert_string_equal(reef_environment_get(environment, "A"), "2");
	assert_string_equal(reef_environment_get(environment, "AB"), "1");
	assert_string_equal(reef_environment_get(environment, "EMPTY"), "");
	assert_null(reef_environment_get(environment, "B"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_xdg_variables_come_first),
		cmocka_unit_test(paths_without_xdg_are_under_home),
		cmocka_unit_test(
			paths_relative_and_empty_variables_count_for_nothing),
		cmocka_unit_test(paths_tilde_is_home),
		cmocka_unit_test(paths_without_home_ask_the_list_of_users),
		cmocka_unit_test(paths_variable_is_found_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
