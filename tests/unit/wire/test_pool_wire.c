/* test_pool_wire.c - messages of the pool: what is encoded comes back, and
 * nothing else is let in. */
#include "base/random.h"
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
	row->name = random_text(random);
	row->addresses = random_text(random);
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

static void random_header(struct reef_random *random,
			  struct reef_pool_header *header)
{
	*header = (struct reef_pool_header){
		.version = REEF_POOL_VERSION,
		.type = REEF_POOL_REQUEST,
		.kind = (uint16_t)reef_random_between(random, 1,
						      REEF_POOL_KINDS - 1),
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

/* A message of any kind, in *out; rows keeps what body->rows points to. */
static void random_message(struct reef_random *random,
			   struct reef_pool_header *header,
			   struct reef_body *body, struct reef_cursor_out *rows,
			   struct reef_cursor_out *out)
{
	random_header(random, header);
	reef_random_fill(random, body, sizeof(*body));
	body->name = random_text(random);
	body->after = random_text(random);
	body->addresses = random_text(random);
	rows->size = 0;
	random_rows(random, rows);
	body->rows = rows->bytes;
	body->rows_size = rows->size;
	out->size = 0;
	reef_pool_encode(header, body, out);
	assert_false(out->failed);
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
		random_message(&random, &header, &body, &rows, &out);
		copy = copy_of(out.bytes, out.size);
		assert_int_equal(reef_pool_decode(copy, out.size, &head, &back),
				 0);
		assert_memory_equal(&head, &header, sizeof(head));
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
		random_message(&random, &header, &body, &rows, &out);
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
		random_message(&random, &header, &body, &rows, &out);
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

/* Every field, by name: the lists are what pool.h says. */
static void pool_wire_fields_are_those_of_the_header(void **state)
{
	struct reef_pool_header header = {
		.version = REEF_POOL_VERSION,
		.type = REEF_POOL_REQUEST,
		.kind = REEF_POOL_SPACE_OPEN,
		.id = 7,
		.sequence = 9,
		.epoch = 11,
	};
	struct reef_body body = {
		.name = {"abc", 3},
		.flags = REEF_POOL_CREATE,
		.kind = 1,
		.keeping = 2,
		.size = 1 << 20,
		.space = 5,
		.rights = 3,
		.era = 4,
		.secret = {1, 2, 3},
		.pid = 99, /* not of this kind */
	};
	struct reef_cursor_out out = {0};
	struct reef_body back;

	reef_pool_encode(&header, &body, &out);
	assert_int_equal(out.size, REEF_POOL_HEADER_SIZE + 2 + 3 + 4 + 1 + 1 +
					   8 + 4 + 1 + 4 + 32);
	assert_int_equal(reef_pool_decode(out.bytes, out.size, &header, &back),
			 0);
	assert_int_equal(header.sequence, 9);
	assert_int_equal(back.name.size, 3);
	assert_memory_equal(back.name.bytes, "abc", 3);
	assert_int_equal(back.flags, REEF_POOL_CREATE);
	assert_int_equal(back.kind, 1);
	assert_int_equal(back.keeping, 2);
	assert_int_equal(back.size, 1 << 20);
	assert_int_equal(back.space, 5);
	assert_int_equal(back.rights, 3);
	assert_int_equal(back.era, 4);
	assert_memory_equal(back.secret, body.secret, sizeof(body.secret));
	assert_int_equal(back.pid, 0);
	free(out.bytes);
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
	struct reef_body body = {.session = 5}, back;
	struct reef_cursor_out out = {0};

	reef_pool_encode(&header, &body, &out);
	assert_int_equal(out.size, REEF_POOL_HEADER_SIZE);
	assert_int_equal(reef_pool_decode(out.bytes, out.size, &header, &back),
			 0);
	assert_int_equal(header.status, -REEF_EFENCED);
	assert_int_equal(back.session, 0);
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
			       .extent = 1,
			       .keys = {1, 2, 3, 4}},
			back;
	struct reef_cursor_out out = {0};
	struct reef_cursor_in in;

	reef_row_encode(&row, &out);
	row = (struct reef_row){.row = REEF_ROW_NAME,
				.value = 8,
				.generation = 2,
				.name = {"root", 4}};
	reef_row_encode(&row, &out);
	in = (struct reef_cursor_in){.bytes = out.bytes, .left = out.size};
	assert_int_equal(reef_row_decode(&in, &back), 1);
	assert_int_equal(back.row, REEF_ROW_EXTENT);
	assert_int_equal(back.keys[3], 4);
	assert_int_equal(reef_row_decode(&in, &back), 1);
	assert_int_equal(back.value, 8);
	assert_int_equal(back.generation, 2);
	assert_memory_equal(back.name.bytes, "root", 4);
	assert_int_equal(reef_row_decode(&in, &back), 0);
	free(out.bytes);
}

static void pool_wire_kinds_have_names(void **state)
{
	for (uint16_t kind = 1; kind < REEF_POOL_KINDS; kind++)
		assert_string_not_equal(reef_pool_kind_name(kind), "unknown");
	assert_string_equal(reef_pool_kind_name(0), "unknown");
	assert_string_equal(reef_pool_kind_name(REEF_POOL_KINDS), "unknown");
	assert_string_equal(reef_pool_kind_name(REEF_POOL_FENCE), "FENCE");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pool_wire_random_bodies_come_back),
		cmocka_unit_test(pool_wire_cut_short_is_refused),
		cmocka_unit_test(pool_wire_changed_byte_is_refused_or_kept),
		cmocka_unit_test(pool_wire_fields_are_those_of_the_header),
		cmocka_unit_test(pool_wire_failed_answer_has_no_body),
		cmocka_unit_test(pool_wire_bad_header_is_refused),
		cmocka_unit_test(pool_wire_rows_come_back_in_order),
		cmocka_unit_test(pool_wire_kinds_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
