/* reply.c - see reply.h.
 *
 *	pieces:  flat [0, a) | big | flat [a, b) | big | ...    then flat [b,
 *used)
 *
 * A piece of flat is kept as an offset, since flat moves when it grows. */
#include "gateway/redis/protocol/reply.h"

#include "base/log.h"
#include "gateway/redis/protocol/number.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLAT_MIN 512u

struct redis_piece {
	const char *bytes; /* NULL: of flat */
	size_t offset;	   /* in flat */
	size_t size;
	void *room;
	size_t room_size;
};

void redis_reply_init(struct redis_reply *reply, struct redis_spare *spare)
{
	*reply = (struct redis_reply){.spare = spare, .protocol = 2};
}

static void drop_pieces(struct redis_reply *reply, uint32_t from)
{
	while (reply->piece_count > from) {
		const struct redis_piece *piece =
			&reply->pieces[--reply->piece_count];

		if (!piece->bytes)
			continue;
		reply->big_size -= piece->size;
		reply->size -= piece->size;
		redis_spare_give(reply->spare, piece->room, piece->room_size);
	}
}

static void drop_flat(struct redis_reply *reply)
{
	if (reply->is_lent)
		reply->spare->is_out_lent = false;
	else
		redis_spare_give(reply->spare, reply->flat, reply->room);
	reply->flat = NULL;
	reply->is_lent = false;
	reply->room = 0;
}

/* Forget the whole answer, whether it was sent or never will be. */
static void clear_reply(struct redis_reply *reply)
{
	drop_pieces(reply, 0);
	reply->used = reply->flat_from = 0;
	reply->size = reply->sent = 0;
	reply->sent_pieces = 0;
	reply->sent_of_piece = 0;
}

void redis_reply_fini(struct redis_reply *reply)
{
	clear_reply(reply);
	drop_flat(reply);
	free(reply->pieces);
	*reply = (struct redis_reply){0};
}

size_t redis_reply_memory(const struct redis_reply *reply)
{
	return (reply->is_lent ? 0 : reply->room) + reply->big_size +
	       reply->piece_room * sizeof(*reply->pieces);
}

/* --- room --- */

static void break_reply(struct redis_reply *reply)
{
	reply->is_broken = true;
	clear_reply(reply);
}

static bool borrow_flat(struct redis_reply *reply)
{
	struct redis_spare *spare = reply->spare;

	if (reply->flat || !spare || spare->is_out_lent)
		return false;
	spare->is_out_lent = reply->is_lent = true;
	reply->flat = spare->out;
	reply->room = REDIS_LENT_SIZE;
	return true;
}

/* Move what is in flat to a buffer of its own of at least that size. False: no
 * memory; the reply is broken. */
static bool move_flat(struct redis_reply *reply, size_t size)
{
	size_t room;
	char *to = redis_spare_take(reply->spare, size, &room);

	if (!to) {
		break_reply(reply);
		return false;
	}
	if (reply->used)
		memcpy(to, reply->flat, reply->used);
	drop_flat(reply);
	reply->flat = to;
	reply->room = room;
	return true;
}

static bool grow_flat(struct redis_reply *reply, size_t size)
{
	size_t room = 2 * reply->room;

	if (borrow_flat(reply) && size <= reply->room)
		return true;
	if (room < reply->used + size)
		room = reply->used + size;
	return move_flat(reply, room < FLAT_MIN ? FLAT_MIN : room);
}

/* Reserve the next `size` bytes of flat, for the caller to write. NULL: the
 * reply is broken. */
static char *reserve_bytes(struct redis_reply *reply, size_t size)
{
	char *at;

	if (__builtin_expect(reply->is_broken, 0))
		return NULL;
	if (reply->limit && redis_reply_waiting(reply) + size > reply->limit) {
		break_reply(reply);
		return NULL;
	}
	if (size > reply->room - reply->used && !grow_flat(reply, size))
		return NULL;
	at = reply->flat + reply->used;
	reply->used += size;
	reply->size += size;
	return at;
}

static struct redis_piece *add_piece(struct redis_reply *reply)
{
	struct redis_piece *pieces = reply->pieces;
	uint32_t room = reply->piece_room;

	if (reply->piece_count == room) {
		room = room ? 2 * room : 4;
		pieces = realloc(pieces, room * sizeof(*pieces));
		if (!pieces) {
			break_reply(reply);
			return NULL;
		}
		reply->pieces = pieces;
		reply->piece_room = room;
	}
	pieces += reply->piece_count++;
	*pieces = (struct redis_piece){0};
	return pieces;
}

/* Make a piece of what is in flat behind the last piece. */
static bool close_flat(struct redis_reply *reply)
{
	struct redis_piece *piece;

	if (reply->flat_from == reply->used)
		return true;
	piece = add_piece(reply);
	if (!piece)
		return false;
	piece->offset = reply->flat_from;
	piece->size = reply->used - reply->flat_from;
	reply->flat_from = reply->used;
	return true;
}

/* --- the words of the protocol --- */

void redis_reply_raw(struct redis_reply *reply, const void *bytes, size_t size)
{
	char *to = reserve_bytes(reply, size);

	if (to && size)
		memcpy(to, bytes, size);
}

/* Write a line of a kind and a number, as "*2\r\n"; returns its length. */
static size_t write_number(char line[REDIS_INTEGER_SIZE + 3], char kind,
			   int64_t value)
{
	size_t size;

	line[0] = kind;
	size = 1 + redis_integer_format(value, line + 1);
	line[size++] = '\r';
	line[size++] = '\n';
	return size;
}

static void put_number(struct redis_reply *reply, char kind, int64_t value)
{
	char line[REDIS_INTEGER_SIZE + 3];
	size_t size = write_number(line, kind, value);

	redis_reply_raw(reply, line, size);
}

/* Answer a line of a kind and a text, as "+OK\r\n". Line breaks in the text
 * become blanks, as they would end the line. */
static void put_line(struct redis_reply *reply, char kind, const char *text,
		     size_t size)
{
	char *to = reserve_bytes(reply, size + 3);

	if (!to)
		return;
	*to++ = kind;
	for (; size; size--, text++)
		*to++ = *text == '\r' || *text == '\n' ? ' ' : *text;
	*to++ = '\r';
	*to = '\n';
}

void redis_reply_status(struct redis_reply *reply, const char *text)
{
	put_line(reply, '+', text, strlen(text));
}

static void put_error(struct redis_reply *reply, const char *text, size_t size)
{
	size_t word = strcspn(text, " ");

	if (word >= sizeof(reply->error_name))
		word = sizeof(reply->error_name) - 1;
	memcpy(reply->error_name, text, word);
	reply->error_name[word] = '\0';
	reply->errors++;
	put_line(reply, '-', text, size);
}

void redis_reply_error(struct redis_reply *reply, const char *text)
{
	put_error(reply, text, strlen(text));
}

#define TEXT_SIZE 1024 /* what is longer is cut */

static size_t write_text(char text[TEXT_SIZE], const char *format,
			 va_list arguments)
{
	int size = vsnprintf(text, TEXT_SIZE, format, arguments);

	if (size < 0)
		size = 0;
	if (size >= TEXT_SIZE)
		size = TEXT_SIZE - 1;
	text[size] = '\0';
	return (size_t)size;
}

void redis_reply_errorf(struct redis_reply *reply, const char *format, ...)
{
	char text[TEXT_SIZE];
	va_list arguments;
	size_t size;

	va_start(arguments, format);
	size = write_text(text, format, arguments);
	va_end(arguments);
	put_error(reply, text, size);
}

void redis_reply_integer(struct redis_reply *reply, int64_t value)
{
	put_number(reply, ':', value);
}

void redis_reply_bulk(struct redis_reply *reply, const void *bytes, size_t size)
{
	char line[REDIS_INTEGER_SIZE + 3];
	size_t count = write_number(line, '$', (int64_t)size);
	char *to = reserve_bytes(reply, count + size + 2);

	if (!to)
		return;
	memcpy(to, line, count);
	to += count;
	if (size)
		memcpy(to, bytes, size);
	to[size] = '\r';
	to[size + 1] = '\n';
}

void redis_reply_text(struct redis_reply *reply, const char *text)
{
	redis_reply_bulk(reply, text, strlen(text));
}

void redis_reply_textf(struct redis_reply *reply, const char *format, ...)
{
	char text[TEXT_SIZE];
	va_list arguments;
	size_t size;

	va_start(arguments, format);
	size = write_text(text, format, arguments);
	va_end(arguments);
	redis_reply_bulk(reply, text, size);
}

void redis_reply_bulk_integer(struct redis_reply *reply, int64_t value)
{
	char line[REDIS_INTEGER_SIZE + 3];
	size_t size = write_number(line, ' ', value);

	redis_reply_bulk(reply, line + 1, size - 3);
}

/* Add a buffer as a piece. False: it is not worth one, or the reply is
 * broken. */
static bool add_owned(struct redis_reply *reply, const void *bytes, size_t size,
		      void *room, size_t room_size)
{
	struct redis_piece *piece = NULL;

	if (!reply->is_broken && close_flat(reply))
		piece = add_piece(reply);
	if (!piece) {
		redis_spare_give(reply->spare, room, room_size);
		return false;
	}
	*piece = (struct redis_piece){
		.bytes = bytes,
		.size = size,
		.room = room,
		.room_size = room_size,
	};
	reply->size += size;
	reply->big_size += size;
	return true;
}

/* True if that many bytes are to be copied: they are few, or too many, which
 * breaks the reply. */
static bool is_copied(const struct redis_reply *reply, size_t size)
{
	return size < REDIS_PIECE_MIN || reply->is_broken ||
	       (reply->limit &&
		redis_reply_waiting(reply) + size > reply->limit);
}

void redis_reply_bulk_owned(struct redis_reply *reply, const void *bytes,
			    size_t size, void *room, size_t room_size)
{
	if (is_copied(reply, size)) {
		redis_reply_bulk(reply, bytes, size);
		redis_spare_give(reply->spare, room, room_size);
		return;
	}
	put_number(reply, '$', (int64_t)size);
	if (add_owned(reply, bytes, size, room, room_size))
		redis_reply_raw(reply, "\r\n", 2);
}

void redis_reply_raw_owned(struct redis_reply *reply, void *room, size_t size,
			   size_t room_size)
{
	if (!is_copied(reply, size)) {
		add_owned(reply, room, size, room, room_size);
		return;
	}
	redis_reply_raw(reply, room, size);
	redis_spare_give(reply->spare, room, room_size);
}

void redis_reply_null(struct redis_reply *reply)
{
	if (reply->protocol > 2)
		redis_reply_raw(reply, "_\r\n", 3);
	else
		redis_reply_raw(reply, "$-1\r\n", 5);
}

void redis_reply_null_array(struct redis_reply *reply)
{
	if (reply->protocol > 2)
		redis_reply_raw(reply, "_\r\n", 3);
	else
		redis_reply_raw(reply, "*-1\r\n", 5);
}

void redis_reply_array(struct redis_reply *reply, uint64_t count)
{
	put_number(reply, '*', (int64_t)count);
}

void redis_reply_map(struct redis_reply *reply, uint64_t count)
{
	if (reply->protocol > 2)
		put_number(reply, '%', (int64_t)count);
	else
		put_number(reply, '*', (int64_t)(2 * count));
}

void redis_reply_set(struct redis_reply *reply, uint64_t count)
{
	put_number(reply, reply->protocol > 2 ? '~' : '*', (int64_t)count);
}

void redis_reply_verbatim(struct redis_reply *reply, const void *bytes,
			  size_t size, const char *kind)
{
	if (reply->protocol == 2) {
		redis_reply_bulk(reply, bytes, size);
		return;
	}
	put_number(reply, '=', (int64_t)size + 4);
	redis_reply_raw(reply, kind, 3);
	redis_reply_raw(reply, ":", 1);
	redis_reply_raw(reply, bytes, size);
	redis_reply_raw(reply, "\r\n", 2);
}

/* --- what is not known yet --- */

struct redis_mark redis_reply_mark(const struct redis_reply *reply)
{
	return (struct redis_mark){
		.generation = reply->generation,
		.used = reply->used,
		.flat_from = reply->flat_from,
		.pieces = reply->piece_count,
		.errors = reply->errors,
	};
}

bool redis_reply_has_mark(const struct redis_reply *reply,
			  struct redis_mark mark)
{
	return reply->generation == mark.generation;
}

void redis_reply_rewind(struct redis_reply *reply, struct redis_mark mark)
{
	if (reply->is_broken)
		return;
	reef_assert(redis_reply_has_mark(reply, mark));
	drop_pieces(reply, mark.pieces);
	reply->size -= reply->used - mark.used;
	reply->used = mark.used;
	reply->flat_from = mark.flat_from;
	reply->errors = mark.errors;
}

void redis_reply_wrap(struct redis_reply *reply, struct redis_mark mark,
		      char kind, uint64_t count)
{
	const size_t behind = reply->used - mark.used;
	char line[REDIS_INTEGER_SIZE + 3];
	size_t size;
	uint32_t i;

	if (reply->protocol == 2 && kind == '%')
		count *= 2;
	if (reply->protocol == 2)
		kind = '*';
	size = write_number(line, kind, (int64_t)count);
	if (!reserve_bytes(reply, size))
		return;
	memmove(reply->flat + mark.used + size, reply->flat + mark.used,
		behind);
	memcpy(reply->flat + mark.used, line, size);
	/* The first piece of flat since the mark has the new line in it,
	 * too. */
	for (i = mark.pieces; i < reply->piece_count; i++) {
		struct redis_piece *piece = &reply->pieces[i];

		if (piece->bytes)
			continue;
		if (piece->offset == mark.flat_from)
			piece->size += size;
		else
			piece->offset += size;
	}
	if (reply->piece_count > mark.pieces)
		reply->flat_from += size;
}

/* --- to send --- */

static struct iovec vector_of(const struct redis_reply *reply,
			      const struct redis_piece *piece, size_t skip)
{
	const char *bytes =
		piece->bytes ? piece->bytes : reply->flat + piece->offset;

	return (struct iovec){
		.iov_base = (void *)(uintptr_t)(bytes + skip),
		.iov_len = piece->size - skip,
	};
}

uint32_t redis_reply_vectors(const struct redis_reply *reply,
			     struct iovec *vectors, uint32_t count)
{
	const struct redis_piece rest = {
		.offset = reply->flat_from,
		.size = reply->used - reply->flat_from,
	};
	size_t skip = reply->sent_of_piece;
	uint32_t i, used = 0;

	for (i = reply->sent_pieces; i < reply->piece_count && used < count;
	     i++, skip = 0)
		vectors[used++] = vector_of(reply, &reply->pieces[i], skip);
	if (used < count && rest.size > skip && i == reply->piece_count)
		vectors[used++] = vector_of(reply, &rest, skip);
	return used;
}

/* When all pieces were sent, sent_of_piece counts bytes of flat behind them. */
void redis_reply_sent(struct redis_reply *reply, size_t size)
{
	reply->sent += size;
	reply->generation++;
	reef_assert(reply->sent <= reply->size);
	if (reply->sent == reply->size) {
		clear_reply(reply);
		return;
	}
	while (size && reply->sent_pieces < reply->piece_count) {
		struct redis_piece *piece = &reply->pieces[reply->sent_pieces];
		size_t left = piece->size - reply->sent_of_piece;

		if (size < left)
			break;
		size -= left;
		reply->sent_pieces++;
		reply->sent_of_piece = 0;
	}
	reply->sent_of_piece += size;
}

/* Free the pieces that were sent as a whole. */
static void forget_pieces(struct redis_reply *reply)
{
	uint32_t i;

	for (i = 0; i < reply->sent_pieces; i++) {
		const struct redis_piece *piece = &reply->pieces[i];

		if (!piece->bytes)
			continue;
		reply->big_size -= piece->size;
		redis_spare_give(reply->spare, piece->room, piece->room_size);
	}
	reply->generation++;
	reply->piece_count -= reply->sent_pieces;
	memmove(reply->pieces, reply->pieces + reply->sent_pieces,
		reply->piece_count * sizeof(*reply->pieces));
	reply->sent_pieces = 0;
}

/* The offset in flat from which on it is still needed. */
static size_t flat_begin(struct redis_reply *reply)
{
	uint32_t i;

	/* Of the piece that was sent in part, only the rest counts from now on.
	 */
	if (!reply->piece_count) {
		reply->generation += reply->sent_of_piece != 0;
		reply->flat_from += reply->sent_of_piece;
		reply->sent_of_piece = 0;
	} else if (!reply->pieces[0].bytes) {
		reply->generation += reply->sent_of_piece != 0;
		reply->pieces[0].offset += reply->sent_of_piece;
		reply->pieces[0].size -= reply->sent_of_piece;
		reply->sent_of_piece = 0;
	}
	for (i = 0; i < reply->piece_count; i++)
		if (!reply->pieces[i].bytes)
			return reply->pieces[i].offset;
	return reply->flat_from;
}

/* Forget what was sent while there is more to send: a client that reads slowly
 * may never have read everything. Bytes move only when at least half of them
 * were sent. */
static void forget_sent(struct redis_reply *reply)
{
	const uint64_t waiting = redis_reply_waiting(reply);
	size_t cut;
	uint32_t i;

	if (reply->sent_pieces)
		forget_pieces(reply);
	cut = flat_begin(reply);
	reply->size = waiting + reply->sent_of_piece;
	reply->sent = reply->sent_of_piece;
	if (cut < reply->used - cut && !reply->is_lent)
		return;
	reply->generation += cut != 0;
	memmove(reply->flat, reply->flat + cut, reply->used - cut);
	reply->used -= cut;
	reply->flat_from -= cut;
	for (i = 0; i < reply->piece_count; i++)
		if (!reply->pieces[i].bytes)
			reply->pieces[i].offset -= cut;
}

void redis_reply_hold(struct redis_reply *reply)
{
	if (redis_reply_waiting(reply) && reply->sent)
		forget_sent(reply);
}

void redis_reply_break(struct redis_reply *reply)
{
	break_reply(reply);
	drop_flat(reply);
}

void redis_reply_settle(struct redis_reply *reply)
{
	if (reply->is_broken || !redis_reply_waiting(reply)) {
		drop_flat(reply);
		return;
	}
	if (reply->sent)
		forget_sent(reply);
	if (reply->is_lent)
		move_flat(reply, reply->used + FLAT_MIN);
}
