/* test_redis_parse.c - what a client of Redis asks. */
#include "gateway/redis/protocol/parse.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct redis_spare spare;

static int begin(void **state)
{
	(void)state;
	return redis_spare_init(&spare, 64 << 20);
}

static int end(void **state)
{
	(void)state;
	redis_spare_fini(&spare);
	return 0;
}

/* Feed a text in parts of `part` bytes; each request becomes a line "a|b\n" of
 * out. Returns what parsing ended with: 0, or an error. */
static int parse(const char *text, size_t size, size_t part, bool is_stranger,
		 char *out, char *error)
{
	struct redis_parser parser;
	struct redis_request request;
	size_t at = 0, now;
	int rc = 0, fed;
	uint32_t i;

	out[0] = error[0] = '\0';
	redis_parser_init(&parser, &spare, NULL);
	parser.is_stranger = is_stranger;
	while (at < size && rc >= 0) {
		now = size - at < part ? size - at : part;
		fed = redis_parser_feed(&parser, text + at, now);
		assert_true(fed >= 0);
		at += (size_t)fed;
		while ((rc = redis_parser_next(&parser, &request)) > 0) {
			for (i = 0; i < request.argc; i++) {
				strncat(out, request.argv[i].bytes,
					request.argv[i].size);
				strcat(out, i + 1 < request.argc ? "|" : "\n");
			}
		}
		if (rc == 0)
			assert_int_equal(redis_parser_settle(&parser), 0);
	}
	strcpy(error, parser.error);
	redis_parser_fini(&parser);
	assert_false(spare.is_in_lent);
	return rc;
}

/* Check that a text gives the same requests, whatever parts it comes in. */
static void check_parts(const char *text, size_t size, const char *wanted,
			const char *wanted_error)
{
	static const size_t parts[] = {1, 2, 3, 7, 100000};
	char out[1024], error[REDIS_PARSE_ERROR_SIZE];
	size_t i;
	int rc;

	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		rc = parse(text, size, parts[i], false, out, error);
		assert_string_equal(out, wanted);
		assert_string_equal(error, wanted_error);
		assert_int_equal(rc, wanted_error[0] ? -EPROTO : 0);
	}
}
#define CHECK(text, wanted, error)                                             \
	check_parts(text, sizeof(text) - 1, wanted, error)

static void redis_parse_arrays_come_out_whole(void **state)
{
	(void)state;
	CHECK("*1\r\n$4\r\nPING\r\n", "PING\n", "");
	CHECK("*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n",
	      "GET|a\r\n\nPING\n", "");
	CHECK("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "ECHO|\n", "");
	/* Empty arrays and lines are no requests; and which two bytes end a
	 * bulk is not checked. */
	CHECK("*0\r\n*-1\r\n\r\n*1\r\n$4\r\nPINGxxPING\r\n", "PING\nPING\n",
	      "");
}

static void redis_parse_lines_have_quotes(void **state)
{
	(void)state;
	CHECK("PING\r\n", "PING\n", "");
	CHECK("  set  a\tb \n\r\n\nGET a\r\n", "set|a|b\nGET|a\n", "");
	CHECK("ECHO \"a b\\x41\\n\\q\\\"\"\r\n", "ECHO|a bA\nq\"\n", "");
	CHECK("ECHO 'it\\'s \\n' ''\r\n", "ECHO|it's \\n|\n", "");
	CHECK("ECHO a\"b c\"\r\n", "ECHO|ab c\n", "");
	CHECK("ECHO \"a\r\n", "",
	      "Protocol error: unbalanced quotes in request");
	CHECK("ECHO 'a\r\n", "",
	      "Protocol error: unbalanced quotes in request");
	CHECK("ECHO \"a\"b\r\n", "",
	      "Protocol error: unbalanced quotes in request");
	CHECK("ECHO \"a\\\r\n", "",
	      "Protocol error: unbalanced quotes in request");
}

static void redis_parse_nonsense_is_refused_as_redis_does(void **state)
{
	(void)state;
	CHECK("*x\r\n", "", "Protocol error: invalid multibulk length");
	CHECK("*01\r\n", "", "Protocol error: invalid multibulk length");
	CHECK("*2147483648\r\n", "",
	      "Protocol error: invalid multibulk length");
	CHECK("*1\r\nx4\r\n", "", "Protocol error: expected '$', got 'x'");
	CHECK("*1\r\n$-1\r\n", "", "Protocol error: invalid bulk length");
	CHECK("*1\r\n$ 4\r\n", "", "Protocol error: invalid bulk length");
	CHECK("*1\r\n$536870913\r\n", "",
	      "Protocol error: invalid bulk length");
	CHECK("PING\r\n*1\r\n$+4\r\n", "PING\n",
	      "Protocol error: invalid bulk length");
}

static void redis_parse_long_lines_are_refused(void **state)
{
	static char text[REDIS_INLINE_MAX + 64];
	char out[64], error[REDIS_PARSE_ERROR_SIZE];

	(void)state;
	memset(text, 'a', sizeof(text));
	assert_int_equal(parse(text, sizeof(text), 5000, false, out, error),
			 -EPROTO);
	assert_string_equal(error, "Protocol error: too big inline request");
	text[0] = '*';
	assert_int_equal(parse(text, sizeof(text), 5000, false, out, error),
			 -EPROTO);
	assert_string_equal(error,
			    "Protocol error: too big mbulk count string");
	/* The request goes on behind these bytes. */
	memcpy(text, "*1\r\n$", 5); /* NOLINT(bugprone-not-null*) */
	assert_int_equal(parse(text, sizeof(text), 5000, false, out, error),
			 -EPROTO);
	assert_string_equal(error, "Protocol error: too big bulk count string");
}

static void redis_parse_strangers_get_less(void **state)
{
	static const char many[] = "*11\r\n", big[] = "*2\r\n$4\r\nAUTH\r\n"
						      "$16385\r\n";
	char out[64], error[REDIS_PARSE_ERROR_SIZE];

	(void)state;
	assert_int_equal(parse(many, sizeof(many) - 1, 99, true, out, error),
			 -EPROTO);
	assert_string_equal(error,
			    "Protocol error: unauthenticated multibulk length");
	assert_int_equal(parse(big, sizeof(big) - 1, 99, true, out, error),
			 -EPROTO);
	assert_string_equal(error,
			    "Protocol error: unauthenticated bulk length");
}

/* A SET with a big value, and a PING right behind it. */
static void redis_parse_big_bulk_is_received_in_place(void **state)
{
	static const size_t size = 300000;
	const char head[] = "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$300000\r\n";
	const char tail[] = "\r\n$2\r\nNX\r\n*1\r\n$4\r\nPING\r\n";
	char *value = malloc(size);
	struct redis_parser parser;
	struct redis_request request;
	size_t room, fed = 0, i;
	void *to, *big;

	(void)state;
	for (i = 0; i < size; i++)
		value[i] = (char)(i * 7);
	redis_parser_init(&parser, &spare, NULL);
	assert_int_equal(redis_parser_feed(&parser, head, sizeof(head) - 1),
			 sizeof(head) - 1);
	assert_int_equal(redis_parser_next(&parser, &request), 0);
	assert_int_equal(redis_parser_settle(&parser), 0);
	/* A bulk that is only announced takes no memory. */
	assert_true(redis_parser_memory(&parser) < 65536);
	fed = 16384;
	assert_int_equal(redis_parser_feed(&parser, value, fed), fed);
	assert_int_equal(redis_parser_next(&parser, &request), 0);
	assert_int_equal(redis_parser_settle(&parser), 0);
	while (fed < size + 2) {
		assert_int_equal(redis_parser_room(&parser, &to, &room), 0);
		/* There is room for the bulk alone, not for what follows it. */
		assert_int_equal(room, size + 2 - fed);
		room = room < 70000 ? room : 70000;
		for (i = 0; i < room; i++)
			((char *)to)[i] = fed + i < size ? value[fed + i]
							 : tail[fed + i - size];
		redis_parser_fed(&parser, room);
		fed += room;
		assert_int_equal(redis_parser_next(&parser, &request), 0);
		assert_int_equal(redis_parser_settle(&parser), 0);
	}
	assert_int_equal(redis_parser_feed(&parser, tail + 2, sizeof(tail) - 3),
			 sizeof(tail) - 3);
	assert_int_equal(redis_parser_next(&parser, &request), 1);
	assert_int_equal(request.argc, 4);
	assert_true(request.is_big);
	assert_memory_equal(request.argv[0].bytes, "SET", 3);
	assert_memory_equal(request.argv[1].bytes, "k", 1);
	assert_int_equal(request.argv[2].size, size);
	assert_memory_equal(request.argv[2].bytes, value, size);
	assert_memory_equal(request.argv[3].bytes, "NX", 2);
	/* The buffer of the big argument can be taken over, that of a small one
	 * cannot. */
	assert_null(
		redis_parser_take_big(&parser, request.argv[1].bytes, &room));
	big = redis_parser_take_big(&parser, request.argv[2].bytes, &room);
	assert_ptr_equal(big, request.argv[2].bytes);
	assert_int_equal(redis_parser_next(&parser, &request), 1);
	assert_memory_equal(request.argv[0].bytes, "PING", 4);
	assert_memory_equal(big, value, size);
	redis_spare_give(&spare, big, room);
	assert_int_equal(redis_parser_next(&parser, &request), 0);
	assert_int_equal(redis_parser_settle(&parser), 0);
	assert_int_equal(redis_parser_waiting(&parser), 0);
	assert_true(redis_parser_memory(&parser) < 1024);
	redis_parser_fini(&parser);
	free(value);
}

/* --- staged bulks --- */

struct redis_stage {
	char bytes[300002];
	size_t used;
	int read_rc;
	uint32_t ended;
};

static struct redis_stage *begin_stage(void *context,
				       const struct redis_parser *parser,
				       size_t size, const char *bytes,
				       size_t here)
{
	struct redis_stage *stage = context;

	if (parser->argc != 2)
		return NULL;
	assert_int_equal(size, sizeof(stage->bytes));
	memcpy(stage->bytes, bytes, here);
	stage->used = here;
	return stage;
}

static int read_stage(struct redis_stage *stage, void *to)
{
	memcpy(to, stage->bytes, stage->used);
	return stage->read_rc;
}

static void end_stage(struct redis_stage *stage)
{
	stage->ended++;
}

static const struct redis_staging staging = {begin_stage, read_stage,
					     end_stage};

/* Receive "SET k <value> NX" up to byte `until`. */
static void receive_stage(struct redis_parser *parser,
			  struct redis_stage *stage, const char *text,
			  size_t until)
{
	struct redis_request request;
	size_t size;
	void *to;

	do {
		assert_int_equal(redis_parser_room(parser, &to, &size), 0);
		size = size < until ? size : until;
		if (!to) {
			to = stage->bytes + stage->used;
			stage->used += size;
		}
		memcpy(to, text, size);
		redis_parser_fed(parser, size);
		text += size;
		until -= size;
		if (until)
			assert_int_equal(redis_parser_next(parser, &request),
					 0);
	} while (until);
}

/* Stage a value, and move it to a buffer when `at` bytes have come; 0:
 * never. */
static void try_stage(size_t at)
{
	static const char head[] = "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$300000\r\n";
	static const char tail[] = "\r\n$2\r\nNX\r\n";
	const size_t size = sizeof(head) - 1 + 300000 + sizeof(tail) - 1;
	char *text = malloc(size);
	struct redis_stage *stage = calloc(1, sizeof(*stage));
	struct redis_parser parser;
	struct redis_request request;
	size_t i;

	for (i = 0; i < size; i++)
		text[i] = (char)(i * 7);
	memcpy(text, head, sizeof(head) - 1);
	memcpy(text + size - sizeof(tail) + 1, tail, sizeof(tail) - 1);
	redis_parser_init(&parser, &spare, NULL);
	parser.staging = &staging;
	parser.context = stage;
	receive_stage(&parser, stage, text, at ? at : size);
	if (at) {
		redis_parser_next(&parser, &request);
		assert_ptr_equal(parser.stage, stage);
		stage->read_rc = -5;
		assert_int_equal(redis_parser_unstage(&parser), -5);
		assert_ptr_equal(parser.stage, stage);
		stage->read_rc = 0;
		assert_int_equal(redis_parser_unstage(&parser), 0);
		assert_int_equal(stage->ended, 1);
	}
	if (at && at < size) {
		receive_stage(&parser, stage, text + at, size - at);
		assert_int_equal(redis_parser_next(&parser, &request), 1);
	} else if (!at) {
		assert_int_equal(redis_parser_next(&parser, &request), 1);
	}
	assert_true(request.is_big);
	assert_int_equal(request.argv[2].size, 300000);
	if (at) {
		assert_memory_equal(request.argv[2].bytes,
				    text + sizeof(head) - 1, 300000);
	} else {
		assert_ptr_equal(request.staged, stage);
		assert_null(request.argv[2].bytes);
		assert_memory_equal(stage->bytes, text + sizeof(head) - 1,
				    300002);
	}
	assert_memory_equal(request.argv[3].bytes, "NX", 2);
	assert_int_equal(redis_parser_next(&parser, &request), 0);
	redis_parser_fini(&parser);
	assert_int_equal(stage->ended, 1);
	free(stage);
	free(text);
}

static void redis_parse_big_bulk_is_staged(void **state)
{
	(void)state;
	try_stage(0);
}

static void redis_parse_staged_bulk_goes_on_in_a_buffer(void **state)
{
	(void)state;
	try_stage(100000);
	try_stage(300029);
	try_stage(300039);
}

/* A request that was given back comes again, although its buffer moved. */
static void redis_parse_again_gives_the_same(void **state)
{
	static const char text[] = "*2\r\n$3\r\nGET\r\n$1\r\na\r\nECHO 'b'\r\n"
				   "PING\r\n";
	struct redis_parser parser;
	struct redis_request request;
	int i;

	(void)state;
	redis_parser_init(&parser, &spare, NULL);
	redis_parser_feed(&parser, text, sizeof(text) - 1);
	for (i = 0; i < 3; i++) {
		assert_int_equal(redis_parser_next(&parser, &request), 1);
		assert_int_equal(request.argc, 2);
		assert_memory_equal(request.argv[1].bytes, "a", 1);
		redis_parser_again(&parser);
		assert_int_equal(redis_parser_settle(&parser), 0);
	}
	assert_int_equal(redis_parser_next(&parser, &request), 1);
	assert_int_equal(redis_parser_next(&parser, &request), 1);
	redis_parser_again(&parser);
	assert_int_equal(redis_parser_settle(&parser), 0);
	assert_int_equal(redis_parser_next(&parser, &request), 1);
	assert_int_equal(request.argv[1].size, 1);
	assert_memory_equal(request.argv[1].bytes, "b", 1);
	assert_int_equal(redis_parser_next(&parser, &request), 1);
	assert_memory_equal(request.argv[0].bytes, "PING", 4);
	assert_int_equal(redis_parser_next(&parser, &request), 0);
	redis_parser_fini(&parser);
}

static void redis_parse_query_over_its_limit_is_refused(void **state)
{
	const struct redis_limits limits = {.query_max = 100000};
	char text[] = "$9\r\nargument-\r\n";
	struct redis_parser parser;
	struct redis_request request;
	int i, rc;

	(void)state;
	redis_parser_init(&parser, &spare, &limits);
	redis_parser_feed(&parser, "*100000\r\n", 9);
	for (i = 0; i < 100000; i++) {
		rc = redis_parser_feed(&parser, text, sizeof(text) - 1);
		if (rc < 0)
			break;
		assert_int_equal(redis_parser_next(&parser, &request), 0);
		assert_int_equal(redis_parser_settle(&parser), 0);
	}
	assert_int_equal(rc, -EFBIG);
	assert_true(redis_parser_memory(&parser) < 400000);
	redis_parser_fini(&parser);
}

/* An announced size costs nothing until its bytes come. */
static void redis_parse_many_arguments_take_memory_as_they_come(void **state)
{
	struct redis_parser parser;
	struct redis_request request;

	(void)state;
	redis_parser_init(&parser, &spare, NULL);
	redis_parser_feed(&parser, "*2147483647\r\n", 13);
	assert_int_equal(redis_parser_next(&parser, &request), 0);
	assert_int_equal(redis_parser_settle(&parser), 0);
	assert_true(redis_parser_memory(&parser) < 65536);
	redis_parser_fini(&parser);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(redis_parse_arrays_come_out_whole),
		cmocka_unit_test(redis_parse_lines_have_quotes),
		cmocka_unit_test(redis_parse_nonsense_is_refused_as_redis_does),
		cmocka_unit_test(redis_parse_long_lines_are_refused),
		cmocka_unit_test(redis_parse_strangers_get_less),
		cmocka_unit_test(redis_parse_big_bulk_is_received_in_place),
		cmocka_unit_test(redis_parse_big_bulk_is_staged),
		cmocka_unit_test(redis_parse_staged_bulk_goes_on_in_a_buffer),
		cmocka_unit_test(redis_parse_again_gives_the_same),
		cmocka_unit_test(redis_parse_query_over_its_limit_is_refused),
		cmocka_unit_test(
			redis_parse_many_arguments_take_memory_as_they_come),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
