/* mutate.c - makes and changes inputs of messages (messages.h) for libFuzzer,
 * so that what is tried is not stopped at the first check: requests that
 * decode, with values that are at the edge of something, keys that are right,
 * numbers of what is there.
 *
 * One step: the messages are taken apart, one of them is added, changed,
 * doubled, moved or dropped, or the bytes are left to libFuzzer's own ways. */
#include "messages.h"

#include "base/random.h"
#include "fixture/fill_fields.h"
#include "pool/keys.h"

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t size_max);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t size_max,
			       unsigned seed);

#define WHO_MAX 8

static const uint64_t edges[] = {
	0,
	1,
	2,
	3,
	4,
	7,
	8,
	63,
	64,
	255,
	256,
	4095,
	4096,
	4097,
	65535,
	65536,
	0x10001,
	0x20001,
	0x10002,
	1 << 20,
	4 << 20,
	64 << 20,
	1 << 30,
	0x7fffffff,
	0x80000001,
	0xfffe0001,
	0xffff0001,
	0xffffffff,
	0x100000000,
	0xfffff000,
	UINT64_C(1) << 38,
	UINT64_C(1) << 47,
	INT64_MAX,
	UINT64_MAX - 4095,
	UINT64_MAX,
};

static const char *const words[] = {
	"",
	"n",
	"s",
	"t",
	"user",
	"a name",
	"\xff\xfe",
	"names_max",
	"lease_ttl_ns",
	"node_ttl_ns",
	"extent_size",
	"revoke_notice_ns",
	"lease_kills",
	"sim:others/1",
	"sim:node/1",
	"sim:nowhere/1",
	"sim:broker/1 sim:node/1",
	"tcp:127.0.0.1:1",
	"a b c d e f",
};

static uint64_t wild_number(struct reef_random *random)
{
	uint64_t kind = reef_random_below(random, 16);

	if (kind < 7) /* what is there has small numbers */
		return reef_random_below(random, 5);
	if (kind < 14)
		return edges[reef_random_below(random,
					       sizeof(edges) / sizeof(*edges))];
	return reef_random_next(random) >> reef_random_below(random, 64);
}

static struct reef_text wild_text(struct reef_random *random)
{
	static char room[70000];
	uint64_t count = sizeof(words) / sizeof(*words);
	uint64_t which = reef_random_below(random, count + 2);
	const char *word;

	if (which < count) {
		word = words[which];
		return (struct reef_text){word, (uint16_t)strlen(word)};
	}
	memset(room, 'x', sizeof(room));
	return (struct reef_text){
		room, (uint16_t)reef_random_below(random,
						  which == count ? 300 : 3000)};
}

/* The right key of what the body names, more often than not. */
static void fill_secret(struct reef_random *random,
			const struct reef_pool_header *header,
			union reef_ask *ask)
{
	struct reef_key pool, key;

	memset(pool.bytes, FUZZ_KEY_BYTE, sizeof(pool.bytes));
	if (header->type != REEF_POOL_REQUEST ||
	    reef_random_chance(random, 1, 4))
		return;
	if (header->kind == REEF_POOL_SESSION_RESUME &&
	    reef_key_derive_session(&pool, ask->session_resume.session, &key) ==
		    0)
		memcpy(ask->session_resume.secret, key.bytes,
		       sizeof(key.bytes));
	if (header->kind == REEF_POOL_SPACE_OPEN &&
	    reef_key_derive_space(&pool, ask->space_open.space,
				  ask->space_open.rights, ask->space_open.era,
				  &key) == 0)
		memcpy(ask->space_open.secret, key.bytes, sizeof(key.bytes));
}

static void fill_rows(struct reef_random *random, struct reef_cursor_out *rows)
{
	uint64_t count = reef_random_below(random, 4);
	struct reef_row row;

	for (uint64_t i = 0; i < count; i++) {
		row = (struct reef_row){
			.row = (uint8_t)reef_random_between(random, 1,
							    REEF_ROW_KINDS - 1),
		};
		if (reef_random_chance(random, 1, 2))
			row.row = REEF_ROW_EXTENT;
		fill_fields(reef_row_fields(row.row), &row, random, wild_number,
			    wild_text);
		reef_row_encode(&row, rows);
	}
}

/* Append a message that decodes. kind 0: any. */
static void append_message(struct reef_random *random, uint16_t kind,
			   struct reef_cursor_out *out)
{
	struct reef_cursor_out message = {0}, rows = {0};
	struct reef_pool_header header = {
		.version = REEF_POOL_VERSION,
		.type = REEF_POOL_REQUEST,
		.kind = kind ? kind
			     : (uint16_t)reef_random_between(
				       random, 1, REEF_POOL_KINDS - 1),
		.id = (uint32_t)reef_random_between(random, 1, 1000),
		.epoch = reef_random_chance(random, 1, 8) ? wild_number(random)
							  : 1,
	};
	uint8_t who = (uint8_t)reef_random_below(random, WHO_MAX);
	struct reef_body body = {0};

	if (reef_pool_is_note(header.kind)) {
		header.type = REEF_POOL_NOTE;
		header.id = 0;
	} else if (reef_random_chance(random, 1, 16)) {
		header.type = REEF_POOL_ANSWER;
		header.id = (uint32_t)wild_number(random);
		header.id += header.id == 0;
	}
	if (header.type == REEF_POOL_REQUEST) {
		who |= reef_random_chance(random, 3, 4) ? FUZZ_NUMBERED : 0;
		header.sequence = (uint32_t)wild_number(random);
	}
	fill_fields(reef_pool_fields(&header), &body, random, wild_number,
		    wild_text);
	fill_secret(random, &header, &body.ask);
	fill_rows(random, &rows);
	body.rows = rows.bytes;
	body.rows_size = rows.size;
	reef_pool_encode(&header, &body, &message);
	if (message.size <= UINT16_MAX) {
		reef_cursor_put(out, 1, who);
		reef_cursor_put(out, 2, message.size);
		reef_cursor_bytes(out, message.bytes, message.size);
	}
	free(message.bytes);
	free(rows.bytes);
}

static void append_copy(const struct fuzz_message *message,
			struct reef_cursor_out *out)
{
	reef_cursor_put(out, 1,
			message->who |
				(message->is_numbered ? FUZZ_NUMBERED : 0));
	reef_cursor_put(out, 2, message->length);
	reef_cursor_bytes(out, message->bytes, message->length);
}

/* The kind of a message, if it decodes; else 0. */
static uint16_t kind_of(const struct fuzz_message *message)
{
	struct reef_pool_header header;
	struct reef_body body;

	return reef_pool_decode(message->bytes, message->length, &header,
				&body) == 0
		       ? header.kind
		       : 0;
}

enum change { ADD, ANEW, DOUBLE, DROP, MOVE, OTHER_WHO, PASS, CHANGES };

static void change_message(struct reef_random *random, enum change what,
			   const struct fuzz_message *message,
			   struct reef_cursor_out *out)
{
	struct fuzz_message other = *message;

	switch (what) {
	case ADD:
		append_message(random, 0, out);
		append_copy(message, out);
		break;
	case ANEW: /* the same kind with other values */
		append_message(random, kind_of(message), out);
		break;
	case DOUBLE:
		append_copy(message, out);
		append_copy(message, out);
		break;
	case OTHER_WHO:
		other.who = (uint8_t)reef_random_below(random, WHO_MAX);
		append_copy(&other, out);
		break;
	case PASS: /* time, for whom it is that */
		append_copy(message, out);
		other.who = 4;
		other.is_numbered = false;
		append_copy(&other, out);
		break;
	default: /* DROP; and MOVE, which comes back later */
		break;
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t size_max,
			       unsigned seed)
{
	struct fuzz_message messages[FUZZ_MESSAGES_MAX];
	struct fuzz_input input = {bytes, size};
	struct reef_cursor_out out = {0};
	struct reef_random random;
	uint32_t count = 0, i, chosen;
	enum change what;

	reef_random_init(&random, seed);
	if (reef_random_chance(&random, 1, 4))
		return LLVMFuzzerMutate(bytes, size, size_max);
	while (count < FUZZ_MESSAGES_MAX &&
	       fuzz_next_message(&input, &messages[count]))
		count++;
	what = (enum change)reef_random_below(&random, CHANGES);
	if (what != ADD && count == 0)
		what = ADD;
	if (reef_random_chance(&random, 1, 3))
		what = ADD;
	chosen = (uint32_t)reef_random_below(&random, count + 1);
	for (i = 0; i < count; i++) {
		if (i == chosen)
			change_message(&random, what, &messages[i], &out);
		else
			append_copy(&messages[i], &out);
	}
	if (what == MOVE && chosen < count)
		append_copy(&messages[chosen], &out);
	else if (chosen == count)
		append_message(&random, 0, &out);
	if (!out.failed && out.size <= size_max && out.size > 0) {
		memcpy(bytes, out.bytes, out.size);
		size = out.size;
	} else {
		size = LLVMFuzzerMutate(bytes, size, size_max);
	}
	free(out.bytes);
	return size;
}
