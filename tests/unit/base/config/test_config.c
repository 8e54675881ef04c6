/* test_config.c - which source counts, and what each refuses. */
#include "fixture/scratch.h"

#include "base/config/config.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME, PLACE, FRIENDS, ROOM, PAUSE, TRIES, LOUD, COLOUR, SECRET, COUNT };

static const char *const colours[] = {"red", "green", "blue", NULL};

static const char *no_bob(const char *text)
{
	return strcmp(text, "bob") == 0 ? "is not a friend" : NULL;
}

static const struct reef_config_setting settings[COUNT] = {
	[NAME] = {.name = "name",
		  .variable = "REEF_NAME",
		  .type = REEF_CONFIG_TEXT,
		  .uses = 1,
		  .help = "a name"},
	[PLACE] = {.name = "place",
		   .variable = "REEF_PLACE",
		   .type = REEF_CONFIG_PATH,
		   .initial = "/somewhere",
		   .uses = 1,
		   .help = "a place"},
	[FRIENDS] = {.name = "friends",
		     .variable = "REEF_FRIENDS",
		     .type = REEF_CONFIG_LIST,
		     .initial = "ada, alan",
		     .check = no_bob,
		     .uses = 1,
		     .help = "some friends"},
	[ROOM] = {.name = "room",
		  .variable = "REEF_ROOM",
		  .type = REEF_CONFIG_SIZE,
		  .initial = "1G",
		  .least = 1024,
		  .most = UINT64_C(1) << 40,
		  .uses = 1,
		  .help = "how much"},
	[PAUSE] = {.name = "long-pause",
		   .variable = "REEF_LONG_PAUSE",
		   .type = REEF_CONFIG_DURATION,
		   .initial = "10s",
		   .least = 1000000,
		   .uses = 1,
		   .help = "how long"},
	[TRIES] = {.name = "tries",
		   .variable = "REEF_TRIES",
		   .type = REEF_CONFIG_NUMBER,
		   .initial = "3",
		   .least = 1,
		   .most = 9,
		   .uses = 1,
		   .help = "how often"},
	[LOUD] = {.name = "loud",
		  .variable = "REEF_LOUD",
		  .type = REEF_CONFIG_SWITCH,
		  .initial = "no",
		  .uses = 1,
		  .help = "or not"},
	[COLOUR] = {.name = "colour",
		    .variable = "REEF_COLOUR",
		    .type = REEF_CONFIG_CHOICE,
		    .initial = "green",
		    .choices = colours,
		    .uses = 1,
		    .help = "which"},
	[SECRET] = {.name = "other",
		    .variable = "REEF_OTHER",
		    .type = REEF_CONFIG_TEXT,
		    .uses = 2,
		    .help = "another command's"},
};

static struct reef_config *make(void)
{
	struct reef_config *config;

	assert_int_equal(reef_config_create(settings, COUNT, &config), 0);
	return config;
}

static int read_text(struct reef_config *config, const char *text)
{
	return reef_config_read(config, "f.conf", text, strlen(text));
}

/* A file with this text is refused with exactly this error. */
static void refused(const char *text, const char *error)
{
	struct reef_config *config = make();

	assert_int_equal(read_text(config, text), -EINVAL);
	assert_string_equal(reef_config_error(config), error);
	reef_config_destroy(config);
}

/* Load with these arguments, this environment, and none of the machine's
 * files. */
static int load(struct reef_config *config, char **argv, char *const *env,
		const struct reef_config_flag *flags)
{
	static char *const empty[] = {NULL};
	struct reef_config_input input = {
		.uses = 1,
		.argv = argv,
		.flags = flags,
		.environment = env ? env : empty,
		.system_file = "/nonexistent/reef.conf",
	};

	while (argv[input.argc])
		input.argc++;
	return reef_config_load(config, &input);
}

#define ARGUMENTS(...) ((char *[]){"test", __VA_ARGS__, NULL})
#define ENVIRONMENT(...) ((char *[]){__VA_ARGS__, "HOME=/nonexistent", NULL})

static void refused_flags(char **argv, const char *error)
{
	struct reef_config *config = make();

	assert_int_equal(load(config, argv, ENVIRONMENT("A=b"), NULL), -EINVAL);
	assert_string_equal(reef_config_error(config), error);
	reef_config_destroy(config);
}

/* --- values --- */

static void config_without_anything_has_defaults(void **state)
{
	struct reef_config *config = make();

	assert_null(reef_config_text(config, NAME));
	assert_string_equal(reef_config_text(config, PLACE), "/somewhere");
	assert_int_equal(reef_config_count(config, FRIENDS), 2);
	assert_string_equal(reef_config_item(config, FRIENDS, 1), "alan");
	assert_int_equal(reef_config_number(config, ROOM), 1 << 30);
	assert_int_equal(reef_config_number(config, PAUSE), 10000000000);
	assert_int_equal(reef_config_number(config, TRIES), 3);
	assert_int_equal(reef_config_number(config, LOUD), 0);
	assert_int_equal(reef_config_number(config, COLOUR), 1);
	assert_int_equal(reef_config_source(config, ROOM), REEF_CONFIG_DEFAULT);
	reef_config_destroy(config);
}

static void config_file_of_every_type_is_read(void **state)
{
	static const char text[] = "# a comment\n"
				   "\n"
				   "name=ada\n"
				   "  place =  /a b/#c  # a comment\r\n"
				   "friends = x,y  z ,, w\n"
				   "room = 512M\n"
				   "long-pause\t=\t200ms\n"
				   "tries = 9\n"
				   "   # another\n"
				   "loud = on\n"
				   "colour = blue";
	struct reef_config *config = make();

	assert_int_equal(read_text(config, text), 0);
	assert_string_equal(reef_config_text(config, NAME), "ada");
	assert_string_equal(reef_config_text(config, PLACE), "/a b/#c");
	assert_int_equal(reef_config_count(config, FRIENDS), 4);
	assert_string_equal(reef_config_item(config, FRIENDS, 2), "z");
	assert_string_equal(reef_config_item(config, FRIENDS, 3), "w");
	assert_string_equal(reef_config_text(config, FRIENDS), "x y z w");
	assert_int_equal(reef_config_number(config, ROOM), 512 << 20);
	assert_int_equal(reef_config_number(config, PAUSE), 200000000);
	assert_int_equal(reef_config_number(config, TRIES), 9);
	assert_int_equal(reef_config_number(config, LOUD), 1);
	assert_int_equal(reef_config_number(config, COLOUR), 2);
	assert_int_equal(reef_config_source(config, ROOM), REEF_CONFIG_FILE);
	reef_config_destroy(config);
}

static void config_switch_has_several_words(void **state)
{
	static const char *const yes[] = {"yes", "on", "true", "1"};
	static const char *const no[] = {"no", "off", "false", "0"};
	struct reef_config *config = make();

	for (int i = 0; i < 4; i++) {
		assert_int_equal(reef_config_set(config, LOUD, yes[i],
						 REEF_CONFIG_FLAG, "x"),
				 0);
		assert_int_equal(reef_config_number(config, LOUD), 1);
		assert_int_equal(reef_config_set(config, LOUD, no[i],
						 REEF_CONFIG_FLAG, "x"),
				 0);
		assert_int_equal(reef_config_number(config, LOUD), 0);
	}
	reef_config_destroy(config);
}

/* --- a file that is wrong --- */

static void config_unknown_key_is_refused_with_a_suggestion(void **state)
{
	refused("\nroon = 1G\n",
		"f.conf:2: there is no setting \"roon\"; did you mean "
		"\"room\"?");
	refused("long-puase = 1s",
		"f.conf:1: there is no setting \"long-puase\"; did you mean "
		"\"long-pause\"?");
	refused("friend = a",
		"f.conf:1: there is no setting \"friend\"; did you mean "
		"\"friends\"?");
	refused("zebra = 1", "f.conf:1: there is no setting \"zebra\"");
	refused("Room = 1G",
		"f.conf:1: there is no setting \"Room\"; did you mean "
		"\"room\"?");
}

static void config_key_given_twice_is_refused(void **state)
{
	refused("room = 1G\n#\nroom = 2G\n",
		"f.conf:3: room is there twice, first in line 1");
}

static void config_bad_values_are_refused(void **state)
{
	refused("room = 8X", "f.conf:1: room: \"8X\" is not a size, like 512M "
			     "or 8G");
	refused("room = 1", "f.conf:1: room: 1 is not between 1K and 1T");
	refused("room = 99999999P",
		"f.conf:1: room: 99999999P is not between 1K and 1T");
	refused("long-pause = 10",
		"f.conf:1: long-pause: \"10\" is not a duration, like 200ms or "
		"10s");
	refused("long-pause = 1ns", "f.conf:1: long-pause: 1ns is too little");
	refused("long-pause = 99999999999d",
		"f.conf:1: long-pause: 99999999999d is too much");
	refused("tries = -1", "f.conf:1: tries: \"-1\" is not a number");
	refused("tries = 10", "f.conf:1: tries: 10 is not between 1 and 9");
	refused("tries = 99999999999999999999",
		"f.conf:1: tries: 99999999999999999999 is not between 1 and "
		"9");
	refused("loud = maybe", "f.conf:1: loud: \"maybe\" is neither yes nor "
				"no");
	refused("colour = Red",
		"f.conf:1: colour: \"Red\" is none of red, green, blue");
	refused("friends = ada bob",
		"f.conf:1: friends: \"bob\" is not a friend");
	refused("place = here",
		"f.conf:1: place: \"here\" does not begin with / or ~/");
	refused("friends = ,", "f.conf:1: friends has no value");
	refused("friends = ada@a,#bob@b",
		"f.conf:1: friends: \"#bob@b\" begins with #");
	refused("name =", "f.conf:1: name has no value");
	refused("name = # nobody", "f.conf:1: name has no value");
	refused("name =# nobody", "f.conf:1: name has no value");
	refused("name = a\tb", "f.conf:1: name has control characters in it");
}

static void config_lines_of_another_form_are_refused(void **state)
{
	struct reef_config *config = make();

	refused("room", "f.conf:1: not of the form key = value");
	refused("= 3", "f.conf:1: not of the form key = value");
	refused("[section]\n", "f.conf:1: not of the form key = value");
	assert_int_equal(reef_config_read(config, "f", "a\0b", 3), -EINVAL);
	assert_string_equal(reef_config_error(config),
			    "f:1: not text: it has a zero in it");
	reef_config_destroy(config);
}

static void config_refused_value_leaves_the_old_one(void **state)
{
	struct reef_config *config = make();

	assert_int_equal(read_text(config, "tries = 5\nroom = 8X\n"), -EINVAL);
	assert_int_equal(reef_config_number(config, TRIES), 5);
	assert_int_equal(reef_config_number(config, ROOM), 1 << 30);
	reef_config_destroy(config);
}

/* --- precedence --- */

static void config_flag_goes_before_environment_before_file(void **state)
{
	static const char text[] = "tries = 4\nroom = 4G\ncolour = red\n";
	struct reef_config *config = make();
	char flag[SCRATCH_PATH_MAX + 16];

	scratch_write("x.conf", text, strlen(text), 0644);
	snprintf(flag, sizeof(flag), "--config=%s", scratch_path("x.conf"));
	assert_int_equal(load(config, ARGUMENTS(flag, "--tries", "6"),
			      ENVIRONMENT("REEF_TRIES=5", "REEF_ROOM=5G"),
			      NULL),
			 0);
	assert_int_equal(reef_config_number(config, TRIES), 6);
	assert_int_equal(reef_config_source(config, TRIES), REEF_CONFIG_FLAG);
	assert_int_equal(reef_config_number(config, ROOM), UINT64_C(5) << 30);
	assert_int_equal(reef_config_source(config, ROOM),
			 REEF_CONFIG_ENVIRONMENT);
	assert_int_equal(reef_config_number(config, COLOUR), 0);
	assert_int_equal(reef_config_source(config, COLOUR), REEF_CONFIG_FILE);
	assert_string_equal(reef_config_file(config), scratch_path("x.conf"));
	/* A default that comes later is still the weakest. */
	assert_int_equal(reef_config_set(config, COLOUR, "blue",
					 REEF_CONFIG_DEFAULT, NULL),
			 0);
	assert_int_equal(reef_config_number(config, COLOUR), 0);
	reef_config_destroy(config);
}

static void config_hidden_value_is_checked_too(void **state)
{
	struct reef_config *config = make();

	assert_int_equal(load(config, ARGUMENTS("--tries=6"),
			      ENVIRONMENT("REEF_TRIES=many"), NULL),
			 -EINVAL);
	assert_string_equal(reef_config_error(config),
			    "REEF_TRIES: tries: \"many\" is not a number");
	reef_config_destroy(config);
}

static void config_first_file_that_is_there_is_read(void **state)
{
	char own[SCRATCH_PATH_MAX + 16], variable[SCRATCH_PATH_MAX + 16];
	struct reef_config_input input = {.environment = NULL};
	char *environment[] = {own, NULL, NULL};
	struct reef_config *config;

	snprintf(own, sizeof(own), "XDG_CONFIG_HOME=%s", scratch);
	snprintf(variable, sizeof(variable), "REEF_CONFIG=%s",
		 scratch_path("named"));
	input.environment = environment;
	input.system_file = scratch_path("system");
	config = make();
	assert_int_equal(reef_config_load(config, &input), 0);
	assert_null(reef_config_file(config));
	reef_config_destroy(config);

	scratch_write("system", "tries = 2", 9, 0644);
	config = make();
	assert_int_equal(reef_config_load(config, &input), 0);
	assert_int_equal(reef_config_number(config, TRIES), 2);
	reef_config_destroy(config);

	scratch_write("reef/reef.conf", "room = 2G", 9, 0644);
	config = make();
	assert_int_equal(reef_config_load(config, &input), 0);
	assert_int_equal(reef_config_number(config, ROOM), UINT64_C(2) << 30);
	assert_int_equal(reef_config_number(config, TRIES), 3);
	reef_config_destroy(config);

	environment[1] = variable;
	config = make();
	assert_int_equal(reef_config_load(config, &input), -ENOENT);
	assert_non_null(strstr(reef_config_error(config), "named"));
	reef_config_destroy(config);
	scratch_write("named", "tries = 7", 9, 0644);
	config = make();
	assert_int_equal(reef_config_load(config, &input), 0);
	assert_int_equal(reef_config_number(config, TRIES), 7);
	reef_config_destroy(config);
}

static void config_file_that_is_not_readable_says_so(void **state)
{
	struct reef_config *config = make();

	assert_int_equal(
		load(config, ARGUMENTS("--config", "/nonexistent"), NULL, NULL),
		-ENOENT);
	assert_string_equal(reef_config_error(config),
			    "/nonexistent: No such file or directory");
	reef_config_destroy(config);
	config = make();
	assert_int_equal(
		load(config, ARGUMENTS("--config", scratch), NULL, NULL),
		-EISDIR);
	reef_config_destroy(config);
}

/* --- the environment --- */

struct seen {
	int count;
	char text[256];
};

static void remember(void *context, enum reef_log_level level, const char *area,
		     const char *text)
{
	struct seen *seen = context;

	seen->count++;
	snprintf(seen->text, sizeof(seen->text), "%s", text);
}

static void config_variable_almost_right_gets_a_warning(void **state)
{
	struct reef_config *config = make();
	struct seen seen = {0};

	reef_log_set(remember, &seen, REEF_LOG_WARNING);
	assert_int_equal(load(config, ARGUMENTS("x"),
			      ENVIRONMENT("REEF_ROON=2G", "REEF_SOAK=1",
					  "REEF_ROOM=3G", "ROOM=1"),
			      NULL),
			 0);
	reef_log_set(NULL, NULL, REEF_LOG_WARNING);
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.text, "REEF_ROON is not a setting; did you "
				       "mean REEF_ROOM?");
	assert_int_equal(reef_config_number(config, ROOM), UINT64_C(3) << 30);
	reef_config_destroy(config);
}

/* --- flags --- */

static void config_flags_take_both_forms_and_leave_the_rest(void **state)
{
	struct reef_config *config = make();
	const char *file = NULL;
	bool json = false;
	const struct reef_config_flag flags[] = {
		{.name = "json", .help = "for programs", .given = &json},
		{.name = "output", .value_name = "FILE", .value = &file},
		{0},
	};
	char **argv =
		ARGUMENTS("one", "--room", "2G", "two", "--json", "--tries=4",
			  "--output=x", "-", "--loud", "--", "--room", "3");

	assert_int_equal(load(config, argv, NULL, flags), 0);
	assert_int_equal(reef_config_number(config, ROOM), UINT64_C(2) << 30);
	assert_int_equal(reef_config_number(config, TRIES), 4);
	assert_int_equal(reef_config_number(config, LOUD), 1);
	assert_true(json);
	assert_string_equal(file, "x");
	assert_int_equal(reef_config_rest_count(config), 5);
	assert_string_equal(reef_config_rest(config, 0), "one");
	assert_string_equal(reef_config_rest(config, 1), "two");
	assert_string_equal(reef_config_rest(config, 2), "-");
	assert_string_equal(reef_config_rest(config, 3), "--room");
	assert_null(reef_config_rest(config, 5));
	reef_config_destroy(config);
}

static void config_flag_twice_last_counts_and_lists_grow(void **state)
{
	struct reef_config *config = make();

	assert_int_equal(load(config,
			      ARGUMENTS("--tries=4", "--tries=5", "--friends",
					"a,b", "--friends=c"),
			      ENVIRONMENT("REEF_FRIENDS=d"), NULL),
			 0);
	assert_int_equal(reef_config_number(config, TRIES), 5);
	assert_int_equal(reef_config_count(config, FRIENDS), 3);
	assert_string_equal(reef_config_item(config, FRIENDS, 2), "c");
	reef_config_destroy(config);
}

static void config_wrong_flags_are_refused(void **state)
{
	refused_flags(ARGUMENTS("--roon=1"),
		      "there is no flag --roon; did you mean --room?");
	refused_flags(ARGUMENTS("--zebra"), "there is no flag --zebra");
	refused_flags(ARGUMENTS("-r"), "there is no flag -r");
	/* Another command's. */
	refused_flags(ARGUMENTS("--other=1"), "there is no flag --other");
	refused_flags(ARGUMENTS("--room"), "--room needs a value");
	refused_flags(ARGUMENTS("--config"), "--config needs a value");
	refused_flags(ARGUMENTS("--help=me"), "--help takes no value");
	refused_flags(ARGUMENTS("--room="), "--room: room has no value");
	refused_flags(ARGUMENTS("--room=x"),
		      "--room: room: \"x\" is not a size, like 512M or 8G");
	refused_flags(ARGUMENTS("--loud=x"),
		      "--loud: loud: \"x\" is neither yes nor no");
}

static void config_own_flags_are_checked_and_suggested(void **state)
{
	struct reef_config *config = make();
	bool json = false;
	const struct reef_config_flag flags[] = {
		{.name = "json", .help = "for programs", .given = &json},
		{0},
	};

	assert_int_equal(load(config, ARGUMENTS("--jsno"), NULL, flags),
			 -EINVAL);
	assert_string_equal(reef_config_error(config),
			    "there is no flag --jsno; did you mean --json?");
	reef_config_destroy(config);
	config = make();
	assert_int_equal(load(config, ARGUMENTS("--json=1"), NULL, flags),
			 -EINVAL);
	assert_string_equal(reef_config_error(config), "--json takes no value");
	assert_false(json);
	reef_config_destroy(config);
}

static void config_help_is_answered_whatever_else_is_wrong(void **state)
{
	struct reef_config *config = make();

	assert_int_equal(load(config, ARGUMENTS("-h"),
			      ENVIRONMENT("REEF_TRIES=many"), NULL),
			 0);
	assert_true(reef_config_wants_help(config));
	assert_false(reef_config_wants_check(config));
	reef_config_destroy(config);
}

static void config_tilde_is_the_home_of_the_environment(void **state)
{
	struct reef_config *config = make();

	assert_int_equal(load(config, ARGUMENTS("--place", "~/x"),
			      ENVIRONMENT("A=b"), NULL),
			 0);
	assert_string_equal(reef_config_text(config, PLACE), "/nonexistent/x");
	reef_config_destroy(config);
}

/* --- what is printed --- */

static char *printed(const struct reef_config *config,
		     const struct reef_config_input *help)
{
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);

	assert_non_null(stream);
	if (help)
		reef_config_each_flag(config, help, reef_config_help_flag,
				      stream);
	else
		reef_config_print(config, stream);
	fclose(stream);
	return text;
}

static void config_print_is_a_file_with_sources(void **state)
{
	struct reef_config *config = make(), *again = make();
	char *text;

	assert_int_equal(load(config, ARGUMENTS("--check-config", "--room=2G"),
			      ENVIRONMENT("REEF_LONG_PAUSE=3s"), NULL),
			 0);
	assert_true(reef_config_wants_check(config));
	assert_int_equal(read_text(config, "colour = red\n"), 0);
	text = printed(config, NULL);
	assert_string_equal(text, "# no file was read\n"
				  "# name is not set\n"
				  "place = /somewhere  # default\n"
				  "friends = ada alan  # default\n"
				  "room = 2G  # --room\n"
				  "long-pause = 3s  # REEF_LONG_PAUSE\n"
				  "tries = 3  # default\n"
				  "loud = no  # default\n"
				  "colour = red  # f.conf:1\n"
				  "# other is not set\n");
	assert_int_equal(read_text(again, text), 0);
	assert_int_equal(reef_config_number(again, ROOM), UINT64_C(2) << 30);
	assert_int_equal(reef_config_number(again, COLOUR), 0);
	free(text);
	reef_config_destroy(config);
	reef_config_destroy(again);
}

static void config_help_lists_the_flags_of_a_command(void **state)
{
	const struct reef_config_flag flags[] = {
		{.name = "json", .help = "for programs"},
		{.name = "output", .value_name = "FILE", .help = "where to"},
		{0},
	};
	struct reef_config_input input = {.uses = 1, .flags = flags};
	struct reef_config *config = make();
	char *text = printed(config, &input);

	assert_memory_equal(text, "  --json  ", 10);
	assert_non_null(strstr(text, "  --output FILE  "));
	assert_non_null(strstr(text, "  --room SIZE                 how much; "
				     "1G\n"));
	assert_non_null(strstr(text, "  --colour red|green|blue     which; "));
	assert_non_null(strstr(text, "  --name TEXT                 a name\n"));
	assert_null(strstr(text, "--other"));
	free(text);
	reef_config_destroy(config);
}

#define FILE_TEST(name)                                                        \
	cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(config_without_anything_has_defaults),
		cmocka_unit_test(config_file_of_every_type_is_read),
		cmocka_unit_test(config_switch_has_several_words),
		cmocka_unit_test(
			config_unknown_key_is_refused_with_a_suggestion),
		cmocka_unit_test(config_key_given_twice_is_refused),
		cmocka_unit_test(config_bad_values_are_refused),
		cmocka_unit_test(config_lines_of_another_form_are_refused),
		cmocka_unit_test(config_refused_value_leaves_the_old_one),
		FILE_TEST(config_flag_goes_before_environment_before_file),
		cmocka_unit_test(config_hidden_value_is_checked_too),
		FILE_TEST(config_first_file_that_is_there_is_read),
		FILE_TEST(config_file_that_is_not_readable_says_so),
		cmocka_unit_test(config_variable_almost_right_gets_a_warning),
		cmocka_unit_test(
			config_flags_take_both_forms_and_leave_the_rest),
		cmocka_unit_test(config_flag_twice_last_counts_and_lists_grow),
		cmocka_unit_test(config_wrong_flags_are_refused),
		cmocka_unit_test(config_own_flags_are_checked_and_suggested),
		cmocka_unit_test(
			config_help_is_answered_whatever_else_is_wrong),
		cmocka_unit_test(config_tilde_is_the_home_of_the_environment),
		cmocka_unit_test(config_print_is_a_file_with_sources),
		cmocka_unit_test(config_help_lists_the_flags_of_a_command),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
