/* fuzz_redis.c - what clients of Redis ask (gateway/redis/parse.h).
 *
 * Input: a byte of options, how many bytes come at a time, and the rest is what
 * a client says. However it is cut into pieces, it is the same requests, and
 * the same end. */
#include "fuzz.h"

#include "gateway/redis/protocol/parse.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { STRANGER = 1, TAKES_BIGS = 2, SETTLES = 4 };

/* What was heard, as one number; equal for equal requests. */
struct heard {
	uint64_t sum;
	uint64_t requests;
	int end;
	char error[REDIS_PARSE_ERROR_SIZE];
};

static void add_to_sum(struct heard *heard, const void *bytes, size_t size)
{
	const uint8_t *from = bytes;

	for (size_t i = 0; i < size; i++)
		heard->sum = (heard->sum ^ from[i]) * 0x100000001b3;
}

static void note_request(struct redis_parser *parser, struct heard *heard,
			 const struct redis_request *request, uint8_t options)
{
	void *own;
	size_t room;

	FUZZ_CHECK(request->argc > 0);
	heard->requests++;
	add_to_sum(heard, &request->argc, sizeof(request->argc));
	for (uint32_t i = 0; i < request->argc; i++) {
		const struct redis_bytes *one = &request->argv[i];

		FUZZ_CHECK(!(options & STRANGER) ||
			   one->size <= REDIS_INLINE_MAX);
		add_to_sum(heard, &one->size, sizeof(one->size));
		add_to_sum(heard, one->bytes, one->size);
		if (!(options & TAKES_BIGS) || !request->is_big)
			continue;
		own = redis_parser_take_big(parser, one->bytes, &room);
		FUZZ_CHECK(!own || room >= one->size);
		free(own);
	}
}

/* Note all requests that are whole. */
static int note_requests(struct redis_parser *parser, struct heard *heard,
			 uint8_t options)
{
	struct redis_request request;
	int rc;

	while ((rc = redis_parser_next(parser, &request)) == 1)
		note_request(parser, heard, &request, options);
	return rc;
}

static struct heard parse_in_pieces(struct fuzz_input input, size_t piece,
				    uint8_t options)
{
	const struct redis_limits limits = {.bulk_max = 1 << 20,
					    .query_max = 1 << 24};
	struct heard heard = {.sum = 1};
	struct redis_parser parser;
	size_t size;
	int took;

	redis_parser_init(&parser, NULL, &limits);
	parser.is_stranger = options & STRANGER;
	while (!heard.end && input.size) {
		size = input.size < piece ? input.size : piece;
		took = redis_parser_feed(&parser, input.bytes, size);
		FUZZ_CHECK(took > 0 && (size_t)took <= size);
		input.bytes += took;
		input.size -= (size_t)took;
		heard.end = note_requests(&parser, &heard, options);
		if (!heard.end && (options & SETTLES))
			FUZZ_CHECK(redis_parser_settle(&parser) == 0);
		/* What was announced costs nothing before it comes, but for
		 * one bulk. */
		FUZZ_CHECK(redis_parser_memory(&parser) <= 1 << 22);
	}
	FUZZ_CHECK(heard.end == 0 || heard.end == -EPROTO);
	if (heard.end) {
		memcpy(heard.error, parser.error, sizeof(heard.error));
		FUZZ_CHECK(parser.is_failed && *heard.error);
		FUZZ_CHECK(note_requests(&parser, &heard, options) == -EPROTO);
	}
	redis_parser_fini(&parser);
	return heard;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_input input = {bytes, size};
	uint8_t options = fuzz_take(&input);
	size_t piece = (size_t)fuzz_take(&input) + 1;
	struct heard whole, pieces;

	whole = parse_in_pieces(input, SIZE_MAX, options);
	pieces = parse_in_pieces(input, piece, options);
	/* A line that is too long is one only while its end is not there. */
	if (input.size >= REDIS_INLINE_MAX)
		return 0;
	FUZZ_CHECK(whole.sum == pieces.sum);
	FUZZ_CHECK(whole.requests == pieces.requests);
	FUZZ_CHECK(whole.end == pieces.end);
	FUZZ_CHECK(strcmp(whole.error, pieces.error) == 0);
	return 0;
}
