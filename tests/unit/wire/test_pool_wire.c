/* test_pool_wire.c - messages of the pool: what is encoded comes back, and
 * nothing else is let in. */
#include "base/random.h"
#include "fixture/fill_fields.h"
#include "wire/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <reef/error.h>

static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

static struct reef_text random_text(struct reef_random *random)
{
	uint16_t size = (uint16_t)reef_random_below(random, sizeof(letters));

	return (struct reef_text){letters, size};
}

static void random_row(struct reef_random *random, struct reef_row *row)
{
	reef_random_fill(random, row, sizeof(*row));
	row->row = (uint8_t)reef_random_between(random, 1, REEF_ROW_KINDS - 1);
	fill_fields(reef_row_fields(row->row), row, random, reef_random_next,
		    random_text);
}

static void random_rows(struct reef_random *random, struct reef_cursor_out *out)
{
	uint64_t count = reef_random_below(random, 4);
	struct reef_row row;

	while (count--) {
		random_row(random, &row);
		reef_row_encode(&row, out);
	}
}

static void random_header(struct reef_random *random, uint16_t kind,
			  struct reef_pool_header *header)
{
	*header = (struct reef_pool_header){
		.version = REEF_POOL_VERSION,
		.type = REEF_POOL_REQUEST,
		.kind = kind,
		.id = (uint32_t)reef_random_between(random, 1, UINT32_MAX),
		.epoch = reef_random_next(random),
	};
	if (reef_pool_is_note(header->kind)) {
		header->type = REEF_POOL_NOTE;
		header->id = 0;
	} else if (reef_random_chance(random, 1, 2)) {
		header->type = REEF_POOL_ANSWER;
		if (reef_random_chance(random, 1, 4))
			header->status =
				-(int)reef_random_between(random, 1, 6000);
	} else {
		header->sequence = (uint32_t)reef_random_next(random);
	}
}

/* A message of that kind, in *out; rows keeps what body->rows points to. */
static void random_message(struct reef_random *random, uint16_t kind,
			   struct reef_pool_header *header,
			   struct reef_body *body, struct reef_cursor_out *rows,
			   struct reef_cursor_out *out)
{
	random_header(random, kind, header);
	reef_random_fill(random, body, sizeof(*body));
	fill_fields(reef_pool_fields(header), body, random, reef_random_next,
		    random_text);
	rows->size = 0;
	random_rows(random, rows);
	body->rows = rows->bytes;
	body->rows_size = rows->size;
	out->size = 0;
	reef_pool_encode(header, body, out);
	assert_false(out->failed);
}

static uint16_t kind_of(int i)
{
	return (uint16_t)(1 + i % (REEF_POOL_KINDS - 1));
}

static bool is_same_text(const struct reef_text *a, const struct reef_text *b)
{
	return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

/* Do all those fields of two objects hold the same? */
static bool are_same(const struct reef_field *field, const void *a,
		     const void *b)
{
	const char *at_a, *at_b;

	for (; field->count; field++) {
		at_a = (const char *)a + field->offset;
		at_b = (const char *)b + field->offset;
		if (field->width == 0
			    ? !is_same_text((const void *)at_a,
					    (const void *)at_b)
			    : memcmp(at_a, at_b,
				     (size_t)field->width * field->count) != 0)
			return false;
	}
	return true;
}

/* Either it is refused, or it is encoded to the same bytes. */
static bool decodes(const uint8_t *bytes, size_t size)
{
	struct reef_pool_header header;
	struct reef_cursor_out again = {0};
	struct reef_body body;
	int rc = reef_pool_decode(bytes, size, &header, &body);

	if (rc) {
		assert_true(rc == -REEF_EPROTO || rc == -REEF_EVERSION);
		return false;
	}
	reef_pool_encode(&header, &body, &again);
	assert_int_equal(again.size, size);
	assert_memory_equal(again.bytes, bytes, size);
	free(again.bytes);
	return true;
}

/* A copy on the heap, where a sanitizer sees a step over its end. */
static uint8_t *copy_of(const uint8_t *bytes, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, size);
	return copy;
}

static void pool_wire_random_bodies_come_back(void **state)
{
	struct reef_cursor_out rows = {0}, out = {0};
	struct reef_pool_header header, head;
	struct reef_body body, back;
	struct reef_random random;
	uint8_t *copy;

	reef_random_init(&random, 1);
	for (int i = 0; i < 5000; i++) {
		random_message(&random, kind_of(i), &header, &body, &rows,
			       &out);
		copy = copy_of(out.bytes, out.size);
		assert_int_equal(reef_pool_decode(copy, out.size, &head, &back),
				 0);
		assert_memory_equal(&head, &header, sizeof(head));
		assert_true(are_same(reef_pool_fields(&header), &body, &back));
		assert_int_equal(back.rows_size, reef_pool_has_rows(&header)
							 ? body.rows_size
							 : 0);
		assert_true(decodes(copy, out.size));
		free(copy);
	}
	free(rows.bytes);
	free(out.bytes);
}

static void pool_wire_cut_short_is_refused(void **state)
{
	struct reef_cursor_out rows = {0}, out = {0};
	struct reef_pool_header header;
	struct reef_body body;
	struct reef_random random;
	uint8_t *copy;

	reef_random_init(&random, 2);
	for (int i = 0; i < 300; i++) {
		random_message(&random, kind_of(i), &header, &body, &rows,
			       &out);
		for (size_t size = 0; size < out.size; size++) {
			copy = copy_of(out.bytes, size);
			/* Rows end with the message, so whole ones may go. */
			if (decodes(copy, size))
				assert_true(rows.size > 0);
			free(copy);
		}
		reef_cursor_put(&out, 1, 0);
		assert_false(decodes(out.bytes, out.size));
	}
	free(rows.bytes);
	free(out.bytes);
}

static void pool_wire_changed_byte_is_refused_or_kept(void **state)
{
	static const uint8_t flips[] = {1, 0x80, 0xff, 0x55};
	struct reef_cursor_out rows = {0}, out = {0};
	struct reef_pool_header header;
	struct reef_body body;
	struct reef_random random;
	uint8_t *copy;

	reef_random_init(&random, 3);
	for (int i = 0; i < 300; i++) {
		random_message(&random, kind_of(i), &header, &body, &rows,
			       &out);
		copy = copy_of(out.bytes, out.size);
		for (size_t at = 0; at < out.size; at++) {
			for (size_t flip = 0; flip < sizeof(flips); flip++) {
				copy[at] = out.bytes[at] ^ flips[flip];
				decodes(copy, out.size);
			}
			copy[at] = out.bytes[at];
		}
		free(copy);
	}
	free(rows.bytes);
	free(out.bytes);
}

/* --- every field, by name --- */

/* The value of each field is its place in the message, counted from 1: a
 * number has it, a text that many letters, a secret that as its first byte,
 * keys that and the three after it. */
#define TEXT(place)                                                            \
	{                                                                      \
		letters, place                                                 \
	}
#define SECRET(place)                                                          \
	{                                                                      \
		place                                                          \
	}
#define KEYS(place)                                                            \
	{                                                                      \
		place, place + 1, place + 2, place + 3                         \
	}
#define ASK(kind, fields, ...)                                                 \
	{                                                                      \
		REEF_POOL_##kind, REEF_POOL_REQUEST, fields,                   \
		{                                                              \
			.ask = { __VA_ARGS__ }                                 \
		}                                                              \
	}
#define REPLY(kind, fields, ...)                                               \
	{                                                                      \
		REEF_POOL_##kind, REEF_POOL_ANSWER, fields,                    \
		{                                                              \
			.reply = { __VA_ARGS__ }                               \
		}                                                              \
	}
#define SESSION                                                                \
	.session = {.session = 1,                                              \
		    .secret = SECRET(2),                                       \
		    .ttl_ns = 3,                                               \
		    .renewal_key = 4,                                          \
		    .table_key = 5,                                            \
		    .pool = 6,                                                 \
		    .pool_epoch = 7,                                           \
		    .extent_size = 8}

static const struct golden {
	uint16_t kind;
	uint8_t type;
	/* '1', '4', '8': a number of that size; 't': a text; 's': a secret;
	 * 'k': keys; 'r': numbers of a RECOVER. */
	const char *fields;
	struct reef_body body;
} goldens[] = {
	ASK(SESSION_OPEN, "t44",
	    .session_open = {.program = TEXT(1), .pid = 2, .flags = 3}),
	ASK(SESSION_RESUME, "4st4",
	    .session_resume = {.session = 1,
			       .secret = SECRET(2),
			       .program = TEXT(3),
			       .pid = 4}),
	ASK(SPACE_OPEN, "t41184414s",
	    .space_open = {.name = TEXT(1),
			   .flags = 2,
			   .kind = 3,
			   .keeping = 4,
			   .quota = 5,
			   .copies = 6,
			   .space = 7,
			   .rights = 8,
			   .era = 9,
			   .secret = SECRET(10)}),
	ASK(SPACE_CLOSE, "4", .space_close = {.space = 1}),
	ASK(SPACE_EXTENTS, "484",
	    .space_extents = {.space = 1, .version = 2, .ordinal = 3}),
	ASK(SPACE_DROP, "4", .space_drop = {.space = 1}),
	ASK(SPACE_QUOTA, "48", .space_quota = {.space = 1, .quota = 2}),
	ASK(SPACE_REVOKE, "4", .space_revoke = {.space = 1}),
	ASK(SPACE_FORGET, "4", .space_forget = {.space = 1}),
	ASK(SPACE_TOKEN, "41", .space_token = {.space = 1, .rights = 2}),
	ASK(SPACE_SAVE, "4184",
	    .space_save = {.space = 1, .step = 2, .number = 3, .after = 4}),
	ASK(SPACE_RESTORE, "41444488t",
	    .space_restore = {.space = 1,
			      .step = 2,
			      .extent = 3,
			      .ordinal = 4,
			      .epoch = 5,
			      .session = 6,
			      .size = 7,
			      .generation = 8,
			      .name = TEXT(9)}),
	ASK(EXTENT_ADD, "484",
	    .extent_add = {.space = 1, .size = 2, .since = 3}),
	ASK(EXTENT_REMOVE, "44", .extent_remove = {.space = 1, .extent = 2}),
	ASK(NAME_BIND, "4t8",
	    .name_bind = {.space = 1, .name = TEXT(2), .value = 3}),
	ASK(NAME_REPLACE, "4t88",
	    .name_replace =
		    {.space = 1, .name = TEXT(2), .value = 3, .generation = 4}),
	ASK(NAME_UNBIND, "4t8",
	    .name_unbind = {.space = 1, .name = TEXT(2), .generation = 3}),
	ASK(NAME_LOOKUP, "4t", .name_lookup = {.space = 1, .name = TEXT(2)}),
	ASK(NAME_LIST, "4tt",
	    .name_list = {.space = 1, .prefix = TEXT(2), .after = TEXT(3)}),
	ASK(LIST, "14", .list = {.row = 1, .after = 2}),
	ASK(USER_ADD, "t", .user_add = {.name = TEXT(1)}),
	ASK(USER_REMOVE, "44", .user_remove = {.user = 1, .flags = 2}),
	ASK(USER_ROTATE, "48", .user_rotate = {.user = 1, .after_ns = 2}),
	ASK(USER_LIMIT, "418",
	    .user_limit = {.user = 1, .limit = 2, .value = 3}),
	ASK(NODE_ADD, "t", .node_add = {.name = TEXT(1)}),
	ASK(NODE_DRAIN, "44", .node_drain = {.node = 1, .flags = 2}),
	ASK(NODE_RECLAIM, "48", .node_reclaim = {.node = 1, .bytes = 2}),
	ASK(NODE_REMOVE, "4", .node_remove = {.node = 1}),
	ASK(SESSION_END, "4", .session_end = {.session = 1}),
	ASK(SETTING, "t84",
	    .setting = {.name = TEXT(1), .value = 2, .flags = 3}),
	ASK(NODE_REGISTER, "888t888888444",
	    .node_register = {.incarnation = 1,
			      .domain = 2,
			      .capacity = 3,
			      .addresses = TEXT(4),
			      .followed_epoch = 5,
			      .followed_start = 6,
			      .confirmed_epoch = 7,
			      .confirmed_start = 8,
			      .confirmed = 9,
			      .pool = 10,
			      .keeps = 11,
			      .nic = 12,
			      .remembers = 13}),
	ASK(NODE_PULSE, "88848",
	    .node_pulse = {.incarnation = 1,
			   .lent = 2,
			   .machine_free = 3,
			   .links = 4,
			   .wanted = 5}),
	ASK(EXTENT_CREATE, "44488",
	    .extent_create = {.extent = 1,
			      .space = 2,
			      .epoch = 3,
			      .size = 4,
			      .copy = 5}),
	ASK(EXTENT_DROP, "4", .extent_drop = {.extent = 1}),
	ASK(EXTENT_CLOSE, "44", .extent_close = {.extent = 1, .flags = 2}),
	ASK(EXTENT_REOPEN, "44", .extent_reopen = {.extent = 1, .epoch = 2}),
	ASK(EXTENT_PULL, "44488448tks",
	    .extent_pull = {.copy = {.extent = 1,
				     .space = 2,
				     .epoch = 3,
				     .size = 4,
				     .copy = 5},
			    .source = 6,
			    .source_epoch = 7,
			    .domain = 8,
			    .addresses = TEXT(9),
			    .keys = KEYS(10),
			    .secret = SECRET(11)}),
	ASK(FENCE, "4", .fence = {.session = 1}),
	ASK(RECOVER, "4r", .recover = {.space = 1, .sessions = {2}}),
	ASK(END, "44", .end = {.session = 1, .number = 2}),
	ASK(CONFIRM, "88", .confirm = {.start = 1, .sequence = 2}),

	REPLY(SESSION_OPEN, "4s888888", SESSION),
	REPLY(SESSION_RESUME, "4s888888", SESSION),
	REPLY(SPACE_OPEN, "418118444",
	      .space_open = {.space = 1,
			     .rights = 2,
			     .extent_size = 3,
			     .keeping = 4,
			     .kind = 5,
			     .version = 6,
			     .flags = 7,
			     .user = 8,
			     .copies = 9}),
	REPLY(SPACE_EXTENTS, "84", .space_extents = {.version = 1, .flags = 2}),
	REPLY(SPACE_REVOKE, "4", .space_revoke = {.era = 1}),
	REPLY(SPACE_TOKEN, "441s",
	      .space_token =
		      {.space = 1, .era = 2, .rights = 3, .secret = SECRET(4)}),
	REPLY(SPACE_SAVE, "81881184",
	      .space_save = {.number = 1,
			     .state = 2,
			     .pool = 3,
			     .broker_epoch = 4,
			     .kind = 5,
			     .keeping = 6,
			     .quota = 7,
			     .flags = 8}),
	REPLY(NAME_BIND, "8", .name_bind = {.generation = 1}),
	REPLY(NAME_REPLACE, "8", .name_bind = {.generation = 1}),
	REPLY(NAME_LOOKUP, "88", .name_lookup = {.value = 1, .generation = 2}),
	REPLY(NAME_LIST, "4", .name_list = {.flags = 1}),
	REPLY(RECOVER, "r", .recover = {.errors = {1}}),
	REPLY(STATUS, "888844cb",
	      .status = {.pool = 1,
			 .pool_epoch = 2,
			 .broker_epoch = 3,
			 .uptime_ns = 4,
			 .events = 5,
			 .stuck = 6,
			 .counters = {7},
			 .broker = {8}}),
	REPLY(LIST, "4", .list = {.flags = 1}),
	REPLY(USER_ADD, "44s",
	      .user_add = {.user = 1, .era = 2, .secret = SECRET(3)}),
	REPLY(USER_ROTATE, "44s",
	      .user_add = {.user = 1, .era = 2, .secret = SECRET(3)}),
	REPLY(USER_REMOVE, "44", .user_remove = {.sessions = 1, .spaces = 2}),
	REPLY(NODE_ADD, "4s", .node_add = {.node = 1, .secret = SECRET(2)}),
	REPLY(NODE_RECLAIM, "8", .node_reclaim = {.bytes = 1}),
	REPLY(SETTING, "8", .setting = {.value = 1}),
	REPLY(NODE_REGISTER, "48888",
	      .node_register = {.node = 1,
				.ttl_ns = 2,
				.broker_epoch = 3,
				.pool = 4,
				.period_ns = 5}),
	REPLY(NODE_PULSE, "48", .node_pulse = {.unsure = 1, .period_ns = 2}),
	REPLY(EXTENT_CREATE, "kk",
	      .extent = {.keys = KEYS(1), .read_keys = KEYS(2)}),
	REPLY(EXTENT_CLOSE, "k", .extent = {.keys = KEYS(1)}),
	REPLY(EXTENT_REOPEN, "kk",
	      .extent = {.keys = KEYS(1), .read_keys = KEYS(2)}),
	REPLY(EXTENT_PULL, "kk",
	      .extent = {.keys = KEYS(1), .read_keys = KEYS(2)}),
	REPLY(TIME, "8", .time = {.unix_ns = 1}),
};
#define GOLDENS (sizeof(goldens) / sizeof(goldens[0]))

/* The bytes of a body whose fields have their places as values. */
static void encode_places(const char *fields, struct reef_cursor_out *out)
{
	static const uint8_t zeros[REEF_SECRET_SIZE - 1];

	for (uint64_t place = 1; *fields; fields++, place++) {
		switch (*fields) {
		case 't':
			reef_cursor_put(out, 2, place);
			reef_cursor_bytes(out, letters, place);
			break;
		case 's':
			reef_cursor_put(out, 1, place);
			reef_cursor_bytes(out, zeros, sizeof(zeros));
			break;
		case 'k':
			for (uint64_t i = 0; i < REEF_DOORS_MAX; i++)
				reef_cursor_put(out, 8, place + i);
			break;
		case 'r':
			for (uint64_t i = 0; i < REEF_RECOVER_MAX; i++)
				reef_cursor_put(out, 4, i ? 0 : place);
			break;
		case 'c':
			for (uint64_t i = 0; i < REEF_COUNTERS; i++)
				reef_cursor_put(out, 8, i ? 0 : place);
			break;
		case 'b':
			for (uint64_t i = 0; i < REEF_BROKER_COUNTERS; i++)
				reef_cursor_put(out, 8, i ? 0 : place);
			break;
		default:
			reef_cursor_put(out, (unsigned)(*fields - '0'), place);
		}
	}
}

static void pool_wire_bodies_are_the_fields_of_their_kind(void **state)
{
	struct reef_cursor_out out = {0}, places = {0};
	struct reef_pool_header header, head;
	struct reef_body back;
	const uint8_t *body;

	for (const struct golden *g = goldens; g < goldens + GOLDENS; g++) {
		header = (struct reef_pool_header){
			.version = REEF_POOL_VERSION,
			.type = g->type,
			.kind = g->kind,
			.id = 7,
		};
		out.size = places.size = 0;
		reef_pool_encode(&header, &g->body, &out);
		encode_places(g->fields, &places);
		body = out.bytes + REEF_POOL_HEADER_SIZE;
		assert_int_equal(out.size, REEF_POOL_HEADER_SIZE + places.size);
		assert_memory_equal(body, places.bytes, places.size);
		assert_int_equal(
			reef_pool_decode(out.bytes, out.size, &head, &back), 0);
		assert_true(
			are_same(reef_pool_fields(&header), &g->body, &back));
	}
	free(out.bytes);
	free(places.bytes);
}

/* Whatever has fields is in the list above. */
static void pool_wire_every_kind_with_fields_is_known(void **state)
{
	struct reef_pool_header header;
	bool known;

	for (unsigned kind = 1; kind < REEF_POOL_KINDS; kind++) {
		for (unsigned type = REEF_POOL_REQUEST;
		     type <= REEF_POOL_ANSWER; type++) {
			header = (struct reef_pool_header){.type = type,
							   .kind = kind};
			known = false;
			for (size_t i = 0; i < GOLDENS; i++)
				known |= goldens[i].kind == kind &&
					 goldens[i].type == type;
			assert_int_equal(known,
					 reef_pool_fields(&header)->count != 0);
		}
	}
}

static void pool_wire_texts_are_found_in_their_order(void **state)
{
	union reef_ask ask = {
		.name_list = {.prefix = TEXT(2), .after = TEXT(3)}};

	assert_ptr_equal(reef_ask_text(REEF_POOL_NAME_LIST, &ask, 0),
			 &ask.name_list.prefix);
	assert_ptr_equal(reef_ask_text(REEF_POOL_NAME_LIST, &ask, 1),
			 &ask.name_list.after);
	assert_null(reef_ask_text(REEF_POOL_NAME_LIST, &ask, 2));
	assert_null(reef_ask_text(REEF_POOL_STATUS, &ask, 0));
}

static void pool_wire_failed_answer_has_no_body(void **state)
{
	struct reef_pool_header header = {
		.version = REEF_POOL_VERSION,
		.type = REEF_POOL_ANSWER,
		.kind = REEF_POOL_SESSION_OPEN,
		.id = 7,
		.status = -REEF_EFENCED,
	};
	struct reef_body body = {.reply.session.session = 5}, back;
	struct reef_cursor_out out = {0};

	reef_pool_encode(&header, &body, &out);
	assert_int_equal(out.size, REEF_POOL_HEADER_SIZE);
	assert_int_equal(reef_pool_decode(out.bytes, out.size, &header, &back),
			 0);
	assert_int_equal(header.status, -REEF_EFENCED);
	assert_int_equal(back.reply.session.session, 0);
	free(out.bytes);
}

static int decode_header_of(const struct reef_pool_header *header)
{
	struct reef_pool_header head;
	struct reef_cursor_out out = {0};
	struct reef_body body;
	int rc;

	reef_pool_encode(header, NULL, &out);
	rc = reef_pool_decode(out.bytes, out.size, &head, &body);
	free(out.bytes);
	return rc;
}

#define HEADER(...)                                                            \
	(&(struct reef_pool_header){.version = REEF_POOL_VERSION, __VA_ARGS__})

static void pool_wire_bad_header_is_refused(void **state)
{
	struct reef_pool_header header;
	struct reef_cursor_out out = {0};
	struct reef_body body;

	assert_int_equal(
		decode_header_of(HEADER(.type = REEF_POOL_REQUEST,
					.kind = REEF_POOL_STATUS, .id = 1)),
		0);
	assert_int_equal(decode_header_of(HEADER(.type = REEF_POOL_REQUEST,
						 .kind = REEF_POOL_STATUS)),
			 -REEF_EPROTO); /* no id */
	assert_int_equal(decode_header_of(HEADER(.type = REEF_POOL_NOTE,
						 .kind = REEF_POOL_STATUS)),
			 -REEF_EPROTO); /* not a note */
	assert_int_equal(decode_header_of(HEADER(.type = REEF_POOL_REQUEST,
						 .kind = REEF_POOL_STATUS,
						 .id = 1, .status = -5)),
			 -REEF_EPROTO);
	assert_int_equal(decode_header_of(HEADER(.type = REEF_POOL_ANSWER,
						 .kind = REEF_POOL_SPACE_DROP,
						 .id = 1, .status = 5)),
			 -REEF_EPROTO);
	assert_int_equal(decode_header_of(HEADER(.type = REEF_POOL_ANSWER,
						 .kind = REEF_POOL_SPACE_DROP,
						 .id = 1, .sequence = 5)),
			 -REEF_EPROTO);
	assert_int_equal(
		decode_header_of(HEADER(.type = REEF_POOL_TYPES,
					.kind = REEF_POOL_STATUS, .id = 1)),
		-REEF_EPROTO);
	reef_pool_encode(HEADER(.type = REEF_POOL_REQUEST,
				.kind = REEF_POOL_STATUS, .id = 1),
			 NULL, &out);
	out.bytes[0]++;
	assert_int_equal(reef_pool_decode(out.bytes, out.size, &header, &body),
			 -REEF_EVERSION);
	out.bytes[0]--;
	reef_put16(out.bytes + 2, REEF_POOL_KINDS);
	assert_int_equal(reef_pool_decode(out.bytes, out.size, &header, &body),
			 -REEF_EVERSION);
	free(out.bytes);
}

static void pool_wire_rows_come_back_in_order(void **state)
{
	struct reef_row row = {.row = REEF_ROW_EXTENT,
			       .extent = {.number = 1, .keys = {1, 2, 3, 4}}},
			back;
	struct reef_cursor_out out = {0};
	struct reef_cursor_in in;

	reef_row_encode(&row, &out);
	row = (struct reef_row){.row = REEF_ROW_NAME,
				.name = {8, 2, {"root", 4}}};
	reef_row_encode(&row, &out);
	in = (struct reef_cursor_in){.bytes = out.bytes, .left = out.size};
	assert_int_equal(reef_row_decode(&in, &back), 1);
	assert_int_equal(back.row, REEF_ROW_EXTENT);
	assert_int_equal(back.extent.keys[3], 4);
	assert_int_equal(reef_row_decode(&in, &back), 1);
	assert_int_equal(back.name.value, 8);
	assert_int_equal(back.name.generation, 2);
	assert_memory_equal(back.name.name.bytes, "root", 4);
	assert_int_equal(reef_row_decode(&in, &back), 0);
	free(out.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pool_wire_random_bodies_come_back),
		cmocka_unit_test(pool_wire_cut_short_is_refused),
		cmocka_unit_test(pool_wire_changed_byte_is_refused_or_kept),
		cmocka_unit_test(pool_wire_bodies_are_the_fields_of_their_kind),
		cmocka_unit_test(pool_wire_every_kind_with_fields_is_known),
		cmocka_unit_test(pool_wire_texts_are_found_in_their_order),
		cmocka_unit_test(pool_wire_failed_answer_has_no_body),
		cmocka_unit_test(pool_wire_bad_header_is_refused),
		cmocka_unit_test(pool_wire_rows_come_back_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
