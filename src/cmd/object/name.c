/* name.c - `reef name`: the names of a space. */
#include "cmd/operate.h"

#include <errno.h>
#include <reef/reef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: reef name list SPACE [PREFIX] [OPTIONS]\n"
	"       reef name look SPACE NAME\n"
	"       reef name bind SPACE NAME VALUE\n"
	"       reef name unbind SPACE NAME\n\n"
	"Names of a space: small durable pairs of a name and a number, mostly "
	"an\naddress. Prints value, generation and name.\n";

static int print_name(void *context, const char *name, uint64_t value,
		      uint64_t generation)
{
	printf("%016llx  %8llu  %s\n", (unsigned long long)value,
	       (unsigned long long)generation, name);
	return 0;
}

static int parse_number(const char *text, uint64_t *out)
{
	char *end;

	if (!text)
		return -EINVAL;
	errno = 0;
	*out = strtoull(text, &end, 0);
	return errno || end == text || *end ? -EINVAL : 0;
}

/* Do what the words after the flags say: VERB SPACE ... */
static int run_verb(struct reef_space *space, const char *const *words,
		    uint32_t count)
{
	uint64_t value, generation;
	int rc;

	if (!strcmp(words[0], "list"))
		return reef_name_list(space, count > 2 ? words[2] : "",
				      print_name, NULL);
	if (!strcmp(words[0], "look")) {
		rc = reef_name_lookup(space, words[2], &value, &generation);
		return rc ? rc : print_name(NULL, words[2], value, generation);
	}
	if (!strcmp(words[0], "unbind"))
		return reef_name_unbind(space, words[2], 0);
	if (parse_number(words[3], &value))
		return operate_say("name", "\"%.40s\" is not a number",
				   words[3]);
	return reef_name_bind(space, words[2], value, NULL);
}

static const struct name_verb {
	const char *name, *summary;
	uint32_t least, most; /* words, with the verb */
	bool changes;
} verbs[] = {
	{"list", "show the names of a space", 2, 3, false},
	{"look", "show one of them", 3, 3, false},
	{"bind", "give a name a value", 4, 4, true},
	{"unbind", "forget a name", 3, 3, true},
	{0},
};

/* The verb that the words say; NULL: none, or their number is wrong. */
static const struct name_verb *find_verb(const char *const *words,
					 uint32_t count)
{
	const struct name_verb *verb = verbs;

	while (count && verb->name && strcmp(verb->name, words[0]) != 0)
		verb++;
	return count && verb->name && count >= verb->least &&
			       count <= verb->most
		       ? verb
		       : NULL;
}

static int report_error(const char *const *words, int rc)
{
	if (rc >= 0)
		return rc;
	if (rc == -ENOENT)
		return operate_say("name", "there is no name \"%.80s\" in %s",
				   words[2], words[1]);
	return operate_failed("name", words[2] ? words[2] : words[1], rc);
}

static int open_and_run(const struct reef_settings *settings,
			const char *const *words, uint32_t count)
{
	struct reef_space *space;
	struct reef *reef;
	int rc;

	rc = operate_open("name", settings, NULL, &reef);
	if (rc >= 0)
		return rc;
	rc = reef_space_open(reef, words[1], NULL, &space);
	if (rc == -ENOENT)
		rc = operate_say("name", "there is no space \"%.80s\"",
				 words[1]);
	else if (rc)
		rc = operate_failed("name", words[1], rc);
	else
		rc = report_error(words, run_verb(space, words, count));
	reef_close(reef);
	return rc;
}

int cmd_name(int argc, char **argv)
{
	const struct reef_config_input input = {
		.argc = argc, .argv = argv, .uses = REEF_USE_CLIENT};
	const char *words[4] = {0};
	struct reef_settings settings;
	const struct name_verb *verb;
	uint32_t count;
	int rc;

	for (verb = verbs; verb->name; verb++)
		cmd_tell_word(verb->name, verb->summary);
	rc = cmd_settings(&input, usage, &settings);
	if (rc >= 0)
		return rc;
	count = reef_config_rest_count(settings.config);
	for (uint32_t i = 0; i < count && i < 4; i++)
		words[i] = reef_config_rest(settings.config, i);
	verb = find_verb(words, count);
	if (!verb) {
		rc = cmd_usage_error(
			argv[0],
			"an unknown verb, or a wrong number of arguments");
	} else if (verb->changes && operate_is_own_name(words[2])) {
		rc = operate_refuse_own_name(argv[0], words[2]);
	} else {
		rc = open_and_run(&settings, words, count);
	}
	reef_settings_fini(&settings);
	return rc;
}
