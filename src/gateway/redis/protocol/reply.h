/* reply.h - what a client of Redis is answered, until it is sent.
 *
 * (1) Small things are written one behind the other into a flat buffer, lent by
 *     the thread while the client is at work; a large bulk is not copied, but
 *     kept as a piece that is sent from where it is.
 * (2) In the words of RESP2 or RESP3, as `protocol` says.
 * (3) Nothing here fails: without memory, or beyond `limit` bytes, the answer
 *     is_broken, and its client is to be closed.
 *
 * Thread: owner. */
#ifndef REEF_GATEWAY_REDIS_PROTOCOL_REPLY_H
#define REEF_GATEWAY_REDIS_PROTOCOL_REPLY_H

#include "gateway/redis/protocol/spare.h"

#include <sys/uio.h>

#define REDIS_ERROR_NAME_MAX 32
#define REDIS_PIECE_MIN 16384u /* bulks from here on are not copied */

struct redis_piece;

struct redis_reply {
	struct redis_spare *spare; /* may be NULL */
	uint64_t limit;		   /* 0: none */
	uint8_t protocol;	   /* 2, 3 */
	bool is_lent, is_broken;
	char *flat;
	size_t used, room;
	size_t flat_from; /* offset of what is in no piece yet */
	/* The answer is the pieces in order, then the rest of flat. */
	struct redis_piece *pieces;
	uint32_t piece_count, piece_room;
	uint64_t size;	   /* of everything */
	uint64_t big_size; /* of the pieces outside of flat */
	/* Changes when bytes are sent or move: marks before that are void. */
	uint64_t generation;
	/* What was sent already. */
	uint64_t sent;
	uint32_t sent_pieces;
	size_t sent_of_piece;
	/* Errors that were answered so far, and the first word of the last. */
	uint64_t errors;
	char error_name[REDIS_ERROR_NAME_MAX];
};

void redis_reply_init(struct redis_reply *reply, struct redis_spare *spare);
void redis_reply_fini(struct redis_reply *reply);

/* --- to answer --- */

/* "+OK". Text without line breaks, as with the errors: those become blanks. */
void redis_reply_status(struct redis_reply *reply, const char *text);
/* "-ERR syntax error": text begins with the word in capitals. */
void redis_reply_error(struct redis_reply *reply, const char *text);
__attribute__((format(printf, 2, 3))) void
redis_reply_errorf(struct redis_reply *reply, const char *format, ...);
void redis_reply_integer(struct redis_reply *reply, int64_t value);
void redis_reply_bulk(struct redis_reply *reply, const void *bytes,
		      size_t size);
void redis_reply_text(struct redis_reply *reply, const char *text); /* bulk */
__attribute__((format(printf, 2, 3))) void
redis_reply_textf(struct redis_reply *reply, const char *format, ...);
/* A number as a bulk, "$1\r\n7\r\n". */
void redis_reply_bulk_integer(struct redis_reply *reply, int64_t value);
/* A bulk that lies in `room`, a buffer of malloc's of room_size bytes, which is
 * the reply's from now on. */
void redis_reply_bulk_owned(struct redis_reply *reply, const void *bytes,
			    size_t size, void *room, size_t room_size);
void redis_reply_null(struct redis_reply *reply);
void redis_reply_null_array(struct redis_reply *reply);
/* Their elements follow; of a map `count` pairs. */
void redis_reply_array(struct redis_reply *reply, uint64_t count);
void redis_reply_map(struct redis_reply *reply, uint64_t count);
void redis_reply_set(struct redis_reply *reply, uint64_t count);
/* kind: three letters, "txt". */
void redis_reply_verbatim(struct redis_reply *reply, const void *bytes,
			  size_t size, const char *kind);
/* Bytes of the protocol as they are. */
void redis_reply_raw(struct redis_reply *reply, const void *bytes, size_t size);
/* The same, of a buffer of malloc's of room_size bytes, which is the reply's
 * from now on; NULL is fine. */
void redis_reply_raw_owned(struct redis_reply *reply, void *room, size_t size,
			   size_t room_size);

/* --- what is not known yet --- */

/* How far the answer has come, to go back there; good as long as nothing is
 * sent. */
struct redis_mark {
	uint64_t generation;
	size_t used, flat_from;
	uint32_t pieces;
	uint64_t errors;
};
struct redis_mark redis_reply_mark(const struct redis_reply *reply);
/* True if nothing of what was answered since has been sent. */
bool redis_reply_has_mark(const struct redis_reply *reply,
			  struct redis_mark mark);
/* Forget what was answered since. */
void redis_reply_rewind(struct redis_reply *reply, struct redis_mark mark);
/* What was answered since is the elements of an array, a set or a map ('*',
 * '~', '%'; a map's count is of pairs). */
void redis_reply_wrap(struct redis_reply *reply, struct redis_mark mark,
		      char kind, uint64_t count);

/* --- to send --- */

/* How many bytes wait to be sent. */
static inline uint64_t redis_reply_waiting(const struct redis_reply *reply)
{
	return reply->size - reply->sent;
}
/* How much memory the reply has. */
size_t redis_reply_memory(const struct redis_reply *reply);
/* Point at the first bytes that wait, with at most `count` vectors; returns how
 * many. */
uint32_t redis_reply_vectors(const struct redis_reply *reply,
			     struct iovec *vectors, uint32_t count);
/* Tell the reply how many bytes were sent. */
void redis_reply_sent(struct redis_reply *reply, size_t size);
/* From now on a mark is good, over settle too, until something is sent. */
void redis_reply_hold(struct redis_reply *reply);
/* Forget everything, and break it: its client is to be closed. */
void redis_reply_break(struct redis_reply *reply);
/* End a turn: give back the lent buffer; what waits moves to one of its own. */
void redis_reply_settle(struct redis_reply *reply);

#endif
