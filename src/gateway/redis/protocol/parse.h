/* parse.h - what a client of Redis asks: bytes in, requests out. No I/O.
 *
 *	            room, fed                 next: 1
 *	  (empty) ------------> (bytes) ----------------> a request
 *	     ^                   |   ^ \                      |
 *	     +---- settle -------+   |  `-- next: 0 (more) ---+
 *	                             +------------------------+
 *	  next: -EPROTO, -EFBIG, -ENOMEM: for good; the client is to be closed.
 *
 * (1) A request is an array of bulks ("*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n") or a
 *     line of words, with quotes. What is malformed or over a limit is
 *     -EPROTO, with Redis's own words for it in `error`.
 * (2) The bytes of a request lie in the buffer they were received in, and a
 *     bulk of more than 32 KiB that was not there whole in one of its own, into
 *     which the rest was received: nothing is copied.
 *     Or it is staged: received by the owner, somewhere else (redis_staging).
 * (3) argv holds until the next call of next, its bytes until the next call of
 *     room or settle; those in a buffer of their own (`is_big`) only as argv.
 * (4) Memory grows with what was received, not with what was announced (a
 *     single bulk's buffer aside, of which 16 KiB have come, and whose pages
 *     are touched as they fill).
 *
 * Thread: owner. */
#ifndef REEF_GATEWAY_REDIS_PROTOCOL_PARSE_H
#define REEF_GATEWAY_REDIS_PROTOCOL_PARSE_H

#include "gateway/redis/protocol/spare.h"

#include <string.h>

#define REDIS_INLINE_MAX 65536u
#define REDIS_BIG_MIN 32768u
#define REDIS_ARGC_MAX 2147483647
/* Limits of a request from a client that has not authenticated yet. */
#define REDIS_STRANGER_ARGC_MAX 10
#define REDIS_STRANGER_BULK_MAX 16384
#define REDIS_PARSE_ERROR_SIZE 64

/* Some bytes; not ended by 0. */
struct redis_bytes {
	const char *bytes;
	size_t size;
};

/* True if the first `size` letters of `word` (lower case) are those bytes, in
 * either case. */
static inline bool redis_is_word(const char *word, const char *bytes,
				 size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
		if (word[i] != (bytes[i] >= 'A' && bytes[i] <= 'Z'
					? (char)(bytes[i] | 0x20)
					: bytes[i]))
			return false;
	return true;
}
/* True if the bytes are this word (given in lower case), in either case. */
static inline bool redis_bytes_is(const struct redis_bytes *bytes,
				  const char *word)
{
	return strlen(word) == bytes->size &&
	       redis_is_word(word, bytes->bytes, bytes->size);
}

struct redis_parser;
struct redis_request {
	uint32_t argc; /* 1 or more */
	const struct redis_bytes *argv;
	bool is_big; /* some are in buffers of their own, or staged */
	/* The stage of the one argument whose bytes are NULL; NULL: there is
	 * none. */
	struct redis_stage *staged;
};

/* What the parser asks of its owner, to have a bulk somewhere else than in a
 * buffer of malloc's. One of a request at most. */
struct redis_stage;
struct redis_staging {
	/* A bulk of `size` bytes, its end of a line too, comes behind the
	 * arguments that parser has; the first of it are here. NULL: it is to
	 * be in a buffer. */
	struct redis_stage *(*begin)(void *context,
				     const struct redis_parser *parser,
				     size_t size, const char *bytes,
				     size_t here);
	/* Copy what has come of it.  -errno. */
	int (*read)(struct redis_stage *stage, void *to);
	void (*end)(struct redis_stage *stage);
};

/* Zero means the default. */
struct redis_limits {
	uint64_t bulk_max;  /* 512 MiB */
	uint64_t query_max; /* of all that is buffered; 1 GiB */
};

struct redis_parser {
	struct redis_spare *spare; /* may be NULL */
	struct redis_limits limits;
	bool is_stranger; /* the smaller limits hold; the owner's to change */
	bool is_failed;
	char error[REDIS_PARSE_ERROR_SIZE]; /* "Protocol error: ..." */

	char *buffer;
	bool is_lent;
	/* start: of the request under way; at: what comes next; end: of what
	 * was received. */
	size_t start, at, end, room;

	/* The request under way. */
	bool is_array, is_complete;
	bool is_again; /* it is complete, and to be given once more */
	uint32_t argc, argc_left, argv_room;
	int64_t bulk; /* the size of the one to come; -1: not known yet */
	struct redis_bytes *argv;

	const struct redis_staging *staging; /* the owner's to set; or NULL */
	void *context;			     /* of its calls */
	struct redis_stage *stage;
	uint32_t stage_index; /* which argument is staged */

	struct redis_big *bigs;
	uint32_t big_count, big_room;
	size_t big_bytes; /* of all bigs */
	size_t filled; /* bytes that the last big, or the stage, has so far */
	bool is_filling;
};

void redis_parser_init(struct redis_parser *parser, struct redis_spare *spare,
		       const struct redis_limits *limits);
void redis_parser_fini(struct redis_parser *parser);

/* Where to receive the next bytes, and how many may be. *to NULL: into
 * parser->stage.
 * -EFBIG: more than query_max are there already.  -ENOMEM. */
int redis_parser_room(struct redis_parser *parser, void **to, size_t *size);
/* Tell the parser how many bytes were received there. */
void redis_parser_fed(struct redis_parser *parser, size_t size);

/* The next request. 1: there it is.  0: more bytes are needed.  -EPROTO.
 * -ENOMEM. */
int redis_parser_next(struct redis_parser *parser, struct redis_request *out);

/* Let next give the same request again, whenever that will be. */
void redis_parser_again(struct redis_parser *parser);

/* An argument of the request that next gave, if it has a buffer of its own:
 * that is the caller's now, to redis_spare_give or free; *room: its size. NULL:
 * it has none. */
void *redis_parser_take_big(struct redis_parser *parser, const char *bytes,
			    size_t *room);

/* Have what is staged in a buffer after all, be it whole or not.  -ENOMEM, and
 * errors of reading it: it is as it was. */
int redis_parser_unstage(struct redis_parser *parser);

/* End a turn: give back the lent buffer and those that are empty; what waits
 * moves to a buffer of its own.  -ENOMEM. */
int redis_parser_settle(struct redis_parser *parser);

/* How many bytes wait to be parsed, and how much memory the parser has. */
size_t redis_parser_waiting(const struct redis_parser *parser);
static inline size_t redis_parser_memory(const struct redis_parser *parser)
{
	return (parser->is_lent ? 0 : parser->room) + parser->big_bytes +
	       parser->argv_room * sizeof(*parser->argv);
}

/* Feed bytes that are somewhere else already: room, a copy and fed in one; for
 * tests. */
int redis_parser_feed(struct redis_parser *parser, const void *bytes,
		      size_t size);

#endif
