/* parse.c - see parse.h.
 *
 * (1) [start, end) of the buffer belongs to the request under way and to what
 *     follows it; argv points in there or into a big buffer. When the buffer
 *     moves, argv moves along (move_to).
 * (2) While a big bulk fills, nothing is behind `at`: what comes belongs to it.
 */
#include "gateway/redis/protocol/parse.h"

#include "base/log.h"
#include "gateway/redis/protocol/number.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BULK_MAX (UINT64_C(512) << 20)
#define QUERY_MAX (UINT64_C(1) << 30)
#define READ_MIN 16384u /* a read should have room for so many */
#define ARGV_KEPT 64u
#define BEGUN 16384u /* of a big bulk: then it is not only announced */

struct redis_big {
	char *bytes;
	size_t size, room;
};

void redis_parser_init(struct redis_parser *parser, struct redis_spare *spare,
		       const struct redis_limits *limits)
{
	*parser = (struct redis_parser){
		.spare = spare, .bulk = -1, .is_complete = true};
	if (limits)
		parser->limits = *limits;
	if (!parser->limits.bulk_max)
		parser->limits.bulk_max = BULK_MAX;
	if (!parser->limits.query_max)
		parser->limits.query_max = QUERY_MAX;
}

static void drop_stage(struct redis_parser *parser)
{
	if (parser->stage)
		parser->staging->end(parser->stage);
	parser->stage = NULL;
}

static void drop_bigs(struct redis_parser *parser)
{
	drop_stage(parser);
	while (parser->big_count) {
		const struct redis_big *big =
			&parser->bigs[--parser->big_count];

		redis_spare_give(parser->spare, big->bytes, big->room);
	}
	parser->big_bytes = parser->filled = 0;
	parser->is_filling = false;
}

static void drop_buffer(struct redis_parser *parser)
{
	if (parser->is_lent)
		parser->spare->is_in_lent = false;
	else
		redis_spare_give(parser->spare, parser->buffer, parser->room);
	parser->buffer = NULL;
	parser->is_lent = false;
	parser->start = parser->at = parser->end = parser->room = 0;
}

void redis_parser_fini(struct redis_parser *parser)
{
	drop_bigs(parser);
	drop_buffer(parser);
	free(parser->bigs);
	free(parser->argv);
	*parser = (struct redis_parser){0};
}

size_t redis_parser_waiting(const struct redis_parser *parser)
{
	return parser->end - parser->start + parser->filled;
}

/* --- the buffer --- */

/* Move the bytes that wait to the front of another buffer, and point argv
 * there. */
static void move_buffer(struct redis_parser *parser, char *to, size_t room)
{
	const uintptr_t from = (uintptr_t)parser->buffer;
	const size_t size = parser->end - parser->start;
	uint32_t i;

	for (i = 0; !parser->is_complete && i < parser->argc; i++) {
		uintptr_t at = (uintptr_t)parser->argv[i].bytes;

		if (at >= from && at < from + parser->room)
			parser->argv[i].bytes =
				to + (at - from - parser->start);
	}
	if (size)
		memmove(to, parser->buffer + parser->start, size);
	parser->at -= parser->start;
	parser->start = 0;
	parser->end = size;
	parser->buffer = to;
	parser->room = room;
}

/* Give the parser a buffer of its own, with `wanted` bytes of room behind those
 * that wait. */
static int make_room(struct redis_parser *parser, size_t wanted)
{
	const size_t waiting = parser->end - parser->start;
	const bool was_lent = parser->is_lent;
	char *old = parser->buffer, *to;
	size_t room, old_room = parser->room;

	if (!was_lent && parser->room - parser->end >= wanted)
		return 0;
	/* Bytes move within the buffer only if they are fewer than those that
	 * were read already. */
	if (!was_lent && waiting <= parser->start &&
	    parser->room - waiting >= wanted) {
		move_buffer(parser, parser->buffer, parser->room);
		return 0;
	}
	wanted += waiting;
	if (wanted < 2 * waiting)
		wanted = 2 * waiting;
	to = redis_spare_take(parser->spare, wanted, &room);
	if (!to)
		return -ENOMEM;
	move_buffer(parser, to, room);
	parser->is_lent = false;
	if (was_lent)
		parser->spare->is_in_lent = false;
	else
		redis_spare_give(parser->spare, old, old_room);
	return 0;
}

static bool borrow_buffer(struct redis_parser *parser)
{
	struct redis_spare *spare = parser->spare;

	if (!spare || spare->is_in_lent || parser->start != parser->end)
		return false;
	drop_buffer(parser);
	spare->is_in_lent = parser->is_lent = true;
	parser->buffer = spare->in;
	parser->room = REDIS_LENT_SIZE;
	return true;
}

/* True if the argument that comes next is the staged one. */
static bool is_staging(const struct redis_parser *parser)
{
	return parser->stage && parser->stage_index == parser->argc;
}

int redis_parser_room(struct redis_parser *parser, void **to, size_t *size)
{
	int rc = 0;

	reef_assert(!parser->is_failed);
	if (parser->is_filling && is_staging(parser)) {
		*to = NULL;
		*size = (size_t)parser->bulk + 2 - parser->filled;
		return 0;
	}
	if (parser->is_filling) {
		const struct redis_big *big =
			&parser->bigs[parser->big_count - 1];

		*to = big->bytes + parser->filled;
		*size = big->size - parser->filled;
		return 0;
	}
	if (parser->end - parser->start + redis_parser_memory(parser) -
		    (parser->is_lent ? 0 : parser->room) >
	    parser->limits.query_max)
		return -EFBIG;
	if (!borrow_buffer(parser))
		rc = make_room(parser, READ_MIN);
	if (rc)
		return rc;
	*to = parser->buffer + parser->end;
	*size = parser->room - parser->end;
	return 0;
}

void redis_parser_fed(struct redis_parser *parser, size_t size)
{
	if (parser->is_filling) {
		parser->filled += size;
		reef_assert(parser->filled <= (size_t)parser->bulk + 2);
		return;
	}
	parser->end += size;
	reef_assert(parser->end <= parser->room);
}

int redis_parser_feed(struct redis_parser *parser, const void *bytes,
		      size_t size)
{
	const char *from = bytes;
	size_t part;
	void *to;
	int rc;

	while (size) {
		rc = redis_parser_room(parser, &to, &part);
		if (rc)
			return rc;
		if (!part) /* a big bulk is whole, and next has to see it */
			return (int)(from - (const char *)bytes);
		reef_assert(to); /* who stages a value reads it itself */
		part = part < size ? part : size;
		memcpy(to, from, part);
		redis_parser_fed(parser, part);
		from += part;
		size -= part;
	}
	return (int)(from - (const char *)bytes);
}

int redis_parser_settle(struct redis_parser *parser)
{
	if (parser->is_complete) {
		drop_bigs(parser);
		parser->argc = 0;
		parser->start = parser->at;
		if (parser->argv_room > ARGV_KEPT) {
			free(parser->argv);
			parser->argv = NULL;
			parser->argv_room = 0;
		}
	}
	if (parser->start == parser->end) {
		drop_buffer(parser);
		return 0;
	}
	return parser->is_lent ? make_room(parser, READ_MIN) : 0;
}

/* --- one request --- */

static int fail_parsing(struct redis_parser *parser, const char *text)
{
	snprintf(parser->error, sizeof(parser->error), "Protocol error: %s",
		 text);
	parser->is_failed = true;
	return -EPROTO;
}

/* Read the number of a line "*12\r\n", behind its first character. 1: read.  0:
 * the line is not whole yet.  Negative: failed. */
static int take_number(struct redis_parser *parser, const char *too_big,
		       const char *invalid, int64_t *out)
{
	const char *from = parser->buffer + parser->at;
	const size_t size = parser->end - parser->at;
	const char *cr = memchr(from, '\r', size);
	size_t used;

	if (!cr)
		return size > REDIS_INLINE_MAX ? fail_parsing(parser, too_big)
					       : 0;
	used = (size_t)(cr - from);
	if (size < used + 2)
		return 0;
	if (!redis_integer_parse(from + 1, used - 1, out))
		return fail_parsing(parser, invalid);
	parser->at += used + 2;
	return 1;
}

static int add_argument(struct redis_parser *parser, const char *bytes,
			size_t size)
{
	struct redis_bytes *argv = parser->argv;
	uint32_t room = parser->argv_room;

	if (parser->argc == room) {
		room = room ? 2 * room : 8;
		argv = realloc(argv, room * sizeof(*argv));
		if (!argv)
			return -ENOMEM;
		parser->argv = argv;
		parser->argv_room = room;
	}
	argv[parser->argc].bytes = bytes;
	argv[parser->argc].size = size;
	parser->argc++;
	return 0;
}

/* Add an empty buffer for a bulk. */
static int add_big(struct redis_parser *parser, size_t size)
{
	struct redis_big *bigs = parser->bigs;
	uint32_t room = parser->big_room;

	if (parser->big_count == room) {
		room = room ? 2 * room : 1;
		bigs = realloc(bigs, room * sizeof(*bigs));
		if (!bigs)
			return -ENOMEM;
		parser->bigs = bigs;
		parser->big_room = room;
	}
	bigs += parser->big_count;
	bigs->size = size;
	bigs->bytes = redis_spare_take(parser->spare, size, &bigs->room);
	if (!bigs->bytes)
		return -ENOMEM;
	parser->big_count++;
	parser->big_bytes += bigs->room;
	return 0;
}

/* The bulk to come is big and not here yet: receive it where it will stay. */
static int begin_big(struct redis_parser *parser)
{
	const size_t size = (size_t)parser->bulk + 2;
	const size_t here = parser->end - parser->at;
	const char *bytes = parser->buffer + parser->at;
	int rc;

	if (parser->staging && !parser->stage) {
		parser->stage = parser->staging->begin(parser->context, parser,
						       size, bytes, here);
		parser->stage_index = parser->argc;
	}
	if (!is_staging(parser)) {
		rc = add_big(parser, size);
		if (rc)
			return rc;
		memcpy(parser->bigs[parser->big_count - 1].bytes, bytes, here);
	}
	parser->filled = here;
	parser->is_filling = true;
	parser->end = parser->at;
	return 0;
}

/* End the bulk that is received into a buffer of its own. 1: it is an argument
 * now.  0: more bytes are needed. */
static int end_big(struct redis_parser *parser)
{
	const char *bytes = NULL;
	int rc;

	if (parser->filled < (size_t)parser->bulk + 2)
		return 0;
	if (!is_staging(parser))
		bytes = parser->bigs[parser->big_count - 1].bytes;
	rc = add_argument(parser, bytes, (size_t)parser->bulk);
	if (rc)
		return rc;
	parser->is_filling = false;
	parser->filled = 0;
	return 1;
}

int redis_parser_unstage(struct redis_parser *parser)
{
	const bool is_filling = is_staging(parser);
	const size_t size = is_filling ? (size_t)parser->bulk
				       : parser->argv[parser->stage_index].size;
	char *bytes;
	size_t room = 0;
	int rc = add_big(parser, size + 2);

	if (rc)
		return rc;
	bytes = parser->bigs[parser->big_count - 1].bytes;
	rc = parser->staging->read(parser->stage, bytes);
	if (rc) {
		redis_parser_take_big(parser, bytes, &room);
		redis_spare_give(parser->spare, bytes, room);
		return rc;
	}
	drop_stage(parser);
	if (!is_filling)
		parser->argv[parser->stage_index].bytes = bytes;
	return 0;
}

static int take_size(struct redis_parser *parser)
{
	static const char invalid[] = "invalid bulk length";
	char text[32];
	int rc;

	if (parser->at == parser->end)
		return 0;
	if (parser->buffer[parser->at] != '$') {
		if (!memchr(parser->buffer + parser->at, '\r',
			    parser->end - parser->at))
			return parser->end - parser->at > REDIS_INLINE_MAX
				       ? fail_parsing(
						 parser,
						 "too big bulk count string")
				       : 0;
		snprintf(text, sizeof(text), "expected '$', got '%c'",
			 parser->buffer[parser->at]);
		return fail_parsing(parser, text);
	}
	rc = take_number(parser, "too big bulk count string", invalid,
			 &parser->bulk);
	if (rc <= 0)
		return rc;
	if (parser->bulk < 0 ||
	    (uint64_t)parser->bulk > parser->limits.bulk_max)
		return fail_parsing(parser, invalid);
	if (parser->is_stranger && parser->bulk > REDIS_STRANGER_BULK_MAX)
		return fail_parsing(parser, "unauthenticated bulk length");
	return 1;
}

/* Read the next bulk of an array. 1: it is an argument now.  0: more bytes are
 * needed. */
static int take_bulk(struct redis_parser *parser)
{
	int rc;

	if (parser->is_filling)
		return end_big(parser);
	if (parser->bulk < 0) {
		rc = take_size(parser);
		if (rc <= 0)
			return rc;
	}
	if (parser->end - parser->at < (size_t)parser->bulk + 2) {
		if (parser->bulk <= REDIS_BIG_MIN ||
		    parser->end - parser->at < BEGUN)
			return 0;
		rc = begin_big(parser);
		return rc ? rc : end_big(parser);
	}
	rc = add_argument(parser, parser->buffer + parser->at,
			  (size_t)parser->bulk);
	if (rc)
		return rc;
	parser->at += (size_t)parser->bulk + 2;
	return 1;
}

static int take_array(struct redis_parser *parser)
{
	int rc;

	while (parser->argc_left) {
		rc = take_bulk(parser);
		if (rc <= 0)
			return rc;
		parser->bulk = -1;
		parser->argc_left--;
	}
	return 1;
}

/* Read how many bulks an array has. 1: they come next. */
static int begin_array(struct redis_parser *parser)
{
	static const char invalid[] = "invalid multibulk length";
	int64_t count;
	int rc = take_number(parser, "too big mbulk count string", invalid,
			     &count);

	if (rc <= 0)
		return rc;
	if (count > REDIS_ARGC_MAX)
		return fail_parsing(parser, invalid);
	if (parser->is_stranger && count > REDIS_STRANGER_ARGC_MAX)
		return fail_parsing(parser, "unauthenticated multibulk length");
	parser->argc_left = count > 0 ? (uint32_t)count : 0;
	parser->is_array = true;
	return 1;
}

/* --- a line of words --- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that an escape between double quotes means; moves *at behind it. */
static char take_escape(const char **at, const char *end)
{
	static const char from[] = "nrtba", to[] = "\n\r\t\b\a";
	const char *found;
	const char *c = *at;

	if (c[0] == 'x' && end - c > 2 && hex_digit(c[1]) >= 0 &&
	    hex_digit(c[2]) >= 0) {
		*at += 3;
		return (char)(hex_digit(c[1]) * 16 + hex_digit(c[2]));
	}
	*at += 1;
	found = c[0] ? strchr(from, c[0]) : NULL;
	return found ? to[found - from] : c[0];
}

/* Copy what stands between quotes to *to, and move *at behind the closing one.
 * False: it is not closed, or no blank follows. */
static bool take_quoted(const char **at, const char *end, char **to)
{
	const char quote = *(*at)++;

	while (*at < end && **at != quote) {
		const char *c = *at;

		if (*c == '\\' && c + 1 < end &&
		    (quote == '"' || c[1] == '\'')) {
			*at = c + 1;
			if (quote == '"')
				*(*to)++ = take_escape(at, end);
			else
				*(*to)++ = *(*at)++;
			continue;
		}
		*(*to)++ = *c;
		*at = c + 1;
	}
	if (*at == end)
		return false;
	*at += 1;
	return *at == end || isspace((unsigned char)**at);
}

/* True of the blanks that end a word; others may only stand between words. */
static bool ends_word(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Split a line into words, which are written over it: they are never longer
 * than the line. */
static int split_line(struct redis_parser *parser, char *line, size_t size)
{
	const char *at = line, *end = line + strnlen(line, size);
	char *to = line, *word;
	int rc = 0;

	while (!rc) {
		while (at < end && isspace((unsigned char)*at))
			at++;
		if (at == end)
			return 1;
		word = to;
		while (at < end && !ends_word(*at)) {
			if (*at != '"' && *at != '\'') {
				*to++ = *at++;
				continue;
			}
			if (!take_quoted(&at, end, &to))
				return fail_parsing(parser,
						    "unbalanced quotes in "
						    "request");
			break;
		}
		rc = add_argument(parser, word, (size_t)(to - word));
	}
	return rc;
}

static int take_line(struct redis_parser *parser)
{
	char *line = parser->buffer + parser->at;
	const size_t waiting = parser->end - parser->at;
	/* Behind a 0 Redis finds no end of the line, and waits for one. */
	char *newline = memchr(line, '\n', strnlen(line, waiting));
	size_t size;

	if (!newline)
		return waiting > REDIS_INLINE_MAX
			       ? fail_parsing(parser, "too big inline request")
			       : 0;
	size = (size_t)(newline - line);
	parser->at += size + 1;
	if (size && line[size - 1] == '\r')
		size--;
	return split_line(parser, line, size);
}

/* --- together --- */

void redis_parser_again(struct redis_parser *parser)
{
	reef_assert(parser->is_complete && parser->argc);
	parser->is_complete = false;
	parser->is_again = true;
}

void *redis_parser_take_big(struct redis_parser *parser, const char *bytes,
			    size_t *room)
{
	uint32_t i;

	for (i = 0; i < parser->big_count; i++) {
		struct redis_big big = parser->bigs[i];

		if (big.bytes != bytes)
			continue;
		*room = big.room;
		parser->big_bytes -= big.room;
		parser->bigs[i] = parser->bigs[--parser->big_count];
		return big.bytes;
	}
	return NULL;
}

static int take_request(struct redis_parser *parser)
{
	int rc;

	if (parser->is_complete) {
		drop_bigs(parser);
		parser->argc = 0;
		parser->is_array = false;
		parser->start = parser->at;
		if (parser->at == parser->end)
			return 0;
		parser->is_complete = false;
	}
	if (!parser->is_array) {
		if (parser->buffer[parser->at] != '*')
			return take_line(parser);
		rc = begin_array(parser);
		if (rc <= 0)
			return rc;
	}
	return take_array(parser);
}

int redis_parser_next(struct redis_parser *parser, struct redis_request *out)
{
	int rc;

	if (parser->is_failed)
		return -EPROTO;
	/* Empty lines and empty arrays are skipped, as Redis does. */
	do {
		rc = parser->is_again ? 1 : take_request(parser);
		parser->is_again = false;
		if (rc < 0)
			parser->is_failed = true;
		if (rc <= 0)
			return rc;
		parser->is_complete = true;
	} while (!parser->argc);
	*out = (struct redis_request){
		.argc = parser->argc,
		.argv = parser->argv,
		.is_big = parser->big_count > 0 || parser->stage,
		.staged = parser->stage,
	};
	return 1;
}
