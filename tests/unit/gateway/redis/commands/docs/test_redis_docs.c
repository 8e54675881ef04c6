/* test_redis_docs.c - the table of commands and what is told of them agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/redis/commands/docs/docs.h"
#include "gateway/redis/commands/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int begin(void **state)
{
	(void)state;
	redis_commands_init();
	return 0;
}

static const struct redis_docs *docs_of(const struct redis_command *command)
{
	const struct redis_docs *docs = redis_docs;
	char name[80];

	snprintf(name, sizeof(name), "%s%s%s",
		 command->parent ? command->parent->name : "",
		 command->parent ? "|" : "", command->name);
	while (docs->name && strcmp(docs->name, name))
		docs++;
	return docs->name ? docs : NULL;
}

/* "host:" and "post" are no commands, but what browsers send. */
static bool is_told(const struct redis_command *command)
{
	return strcmp(command->name, "host:") && strcmp(command->name, "post");
}

static void redis_docs_commands_have_all_that_is_told(void **state)
{
	const struct redis_docs *docs;
	uint32_t i, count = 0;

	for (i = 0; i < redis_command_count(); i++) {
		const struct redis_command *command = redis_command_by_index(i);

		docs = docs_of(command);
		assert_int_equal(docs != NULL, is_told(command));
		if (!docs)
			continue;
		count++;
		assert_non_null(docs->summary);
		assert_non_null(docs->since);
		assert_non_null(docs->group);
		assert_true(command->run || command->subcommands);
	}
	/* No row is about a command that does not exist. */
	for (docs = redis_docs; docs->name; docs++)
		count--;
	assert_int_equal(count, 0);
	(void)state;
}

/* Of a command with keys it is told what it does with them; where they are two
 * different things, they are the first two arguments. */
static void redis_docs_keys_are_those_of_the_table(void **state)
{
	uint32_t i;

	for (i = 0; i < redis_command_count(); i++) {
		const struct redis_command *command = redis_command_by_index(i);
		const struct redis_docs *docs = docs_of(command);

		if (!docs)
			continue;
		assert_int_equal(docs->keys != NULL, command->first_key != 0);
		if (!docs->keys || !strchr(docs->keys, ';'))
			continue;
		assert_int_equal(command->first_key, 1);
		assert_int_equal(command->last_key, 2);
		assert_int_equal(command->key_step, 1);
	}
	(void)state;
}

/* Assert what a list of arguments is answered as, with `|` for the ends of
 * lines. */
static void arguments_are(const char *notation, const char *expected)
{
	struct redis_reply reply;
	struct iovec vector;
	char *text;
	size_t i, size = 0;

	redis_reply_init(&reply, NULL);
	reply.protocol = 3;
	assert_string_equal(redis_reply_arguments(&reply, notation), "");
	assert_int_equal(redis_reply_vectors(&reply, &vector, 1), 1);
	text = calloc(1, vector.iov_len + 1);
	assert_non_null(text);
	for (i = 0; i < vector.iov_len; i++) {
		char c = ((const char *)vector.iov_base)[i];

		if (c != '\r')
			text[size++] = c;
		if (c == '\n')
			text[size - 1] = '|';
	}
	assert_string_equal(text, expected);
	free(text);
	redis_reply_fini(&reply);
}

static void redis_docs_arguments_become_maps(void **state)
{
	arguments_are("key=0", "*1|%3|$4|name|$3|key|$4|type|$3|key|"
			       "$14|key_spec_index|:0|");
	arguments_are("a#/A@1.2.3!4.5.6?*",
		      "*1|%6|$4|name|$1|a|$4|type|$7|integer|$5|token|$1|A|"
		      "$5|since|$5|1.2.3|$16|deprecated_since|$5|4.5.6|"
		      "$5|flags|~2|+optional|+multiple|");
	arguments_are("X y<oneof>{A B}",
		      "*2|%3|$4|name|$1|x|$4|type|$10|pure-token|$5|token|$1|X|"
		      "%3|$4|name|$1|y|$4|type|$5|oneof|$9|arguments|*2|"
		      "%3|$4|name|$1|a|$4|type|$10|pure-token|$5|token|$1|A|"
		      "%3|$4|name|$1|b|$4|type|$10|pure-token|$5|token|$1|B|");
	arguments_are("ip:port/ADDR yes/no<string>",
		      "*2|%3|$4|name|$7|ip:port|$4|type|$6|string|"
		      "$5|token|$4|ADDR|"
		      "%2|$4|name|$6|yes/no|$4|type|$6|string|");
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(redis_docs_commands_have_all_that_is_told),
		cmocka_unit_test(redis_docs_keys_are_those_of_the_table),
		cmocka_unit_test(redis_docs_arguments_become_maps),
	};

	return cmocka_run_group_tests(tests, begin, NULL);
}
