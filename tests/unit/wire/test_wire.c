/* Every layout round-trips, and no byte of it can be wrong unnoticed. */
#include "fabric/fabric.h"
#include "wire/batch.h"
#include "wire/bytes.h"
#include "wire/control.h"
#include "wire/hello.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* src/wire may not include the fabric, so it has its own names for these. */
static_assert(REEF_READ == 1 && REEF_WRITE == 2 && REEF_CAS == 3 &&
		      REEF_FAA == 4 && REEF_FLUSH == 5 && REEF_SEND == 6 &&
		      REEF_OP_KINDS == 7 && REEF_ORDERED == 1,
	      "wire values");

static void wire_header_round_trip_same(void **state)
{
	struct reef_frame_header in = {.length = 0x01020304,
				       .type = REEF_FRAME_BATCH,
				       .flags = REEF_FRAME_CARRIES_FD,
				       .tag = 0x1122334455667788},
				 out;
	static const uint8_t wire[] = {4,    3,	   2,	 1,    REEF_FRAME_BATCH,
				       1,    0,	   0,	 0x88, 0x77,
				       0x66, 0x55, 0x44, 0x33, 0x22,
				       0x11};
	uint8_t bytes[REEF_FRAME_HEADER_SIZE];

	reef_frame_header_encode(&in, bytes);
	assert_memory_equal(bytes, wire, sizeof(wire));
	assert_int_equal(reef_frame_header_decode(bytes, &out), 0);
	assert_memory_equal(&in, &out, sizeof(in));
}

static void wire_header_bad_byte_refused(void **state)
{
	struct reef_frame_header in = {.type = REEF_FRAME_PING}, out;
	uint8_t bytes[REEF_FRAME_HEADER_SIZE];
	static const struct {
		int at;
		uint8_t value;
	} bad[] = {{4, 0},   {4, REEF_FRAME_TYPES},
		   {4, 255}, {5, 2},
		   {5, 128}, {6, 1},
		   {7, 1}};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		reef_frame_header_encode(&in, bytes);
		bytes[bad[i].at] = bad[i].value;
		assert_int_equal(reef_frame_header_decode(bytes, &out),
				 -REEF_EPROTO);
	}
}

static struct reef_wire_hello a_hello(void)
{
	struct reef_wire_hello hello = {
		.magic = REEF_WIRE_MAGIC,
		.version_min = 1,
		.version_max = 3,
		.session = 0x00070001,
		.number = 0x89abcdef,
		.domain = 0x1234567890,
		.limits = {.ops_max = 1, .length_max = 2, .message_max = 3},
		.fabric = "tcp",
		.identity = "alice",
	};

	memset(hello.nonce, 0xa5, sizeof(hello.nonce));
	return hello;
}

static void wire_hello_round_trip_same(void **state)
{
	struct reef_wire_hello in = a_hello(), out;
	uint8_t bytes[REEF_WIRE_HELLO_SIZE];

	reef_wire_hello_encode(&in, bytes);
	assert_int_equal(reef_wire_hello_decode(bytes, sizeof(bytes), &out), 0);
	assert_memory_equal(&in, &out, sizeof(in));
}

static void wire_hello_bad_field_refused(void **state)
{
	static const struct {
		size_t at, size;
		uint64_t value;
	} bad[] = {
		{0, 4, 0x46454553}, /* magic */
		{4, 2, 0},	    /* version_min */
		{4, 2, 4},	    /* above version_max */
		{8, 4, 0},	    /* session */
		{24, 4, 0},	    /* ops_max */
		{28, 4, 0},	    /* length_max */
		{32, 4, 0},	    /* message_max */
		{36, 4, 1},	    /* reserved */
		{72, 1, 0},	    /* fabric: empty, then text */
		{79, 1, 'x'},	    /* fabric: after its end */
		{80, 1, 0},	    /* identity: empty, then text */
		{81, 1, '\n'},	    /* identity: control character */
		{81, 1, 0x7f},	    {143, 1, 'x'}, /* identity: after its end */
	};
	struct reef_wire_hello in = a_hello(), out;
	uint8_t bytes[REEF_WIRE_HELLO_SIZE + 1] = {0};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		reef_wire_hello_encode(&in, bytes);
		for (size_t j = 0; j < bad[i].size; j++)
			bytes[bad[i].at + j] =
				(uint8_t)(bad[i].value >> (8 * j));
		assert_int_equal(reef_wire_hello_decode(
					 bytes, REEF_WIRE_HELLO_SIZE, &out),
				 -REEF_EPROTO);
	}
	reef_wire_hello_encode(&in, bytes);
	assert_int_equal(
		reef_wire_hello_decode(bytes, REEF_WIRE_HELLO_SIZE - 1, &out),
		-REEF_EPROTO);
	assert_int_equal(
		reef_wire_hello_decode(bytes, REEF_WIRE_HELLO_SIZE + 1, &out),
		-REEF_EPROTO);
	memset(bytes + 80, 'a', 64);
	assert_int_equal(
		reef_wire_hello_decode(bytes, REEF_WIRE_HELLO_SIZE, &out),
		-REEF_EPROTO);
}

static void wire_identity_length_bounded(void **state)
{
	char text[REEF_IDENTITY_MAX + 2];

	memset(text, 'x', sizeof(text));
	text[REEF_IDENTITY_MAX] = '\0';
	assert_true(reef_wire_identity_fits(text));
	text[REEF_IDENTITY_MAX] = 'x';
	text[REEF_IDENTITY_MAX + 1] = '\0';
	assert_false(reef_wire_identity_fits(text));
	assert_false(reef_wire_identity_fits(""));
	assert_false(reef_wire_identity_fits("a\tb"));
}

static void wire_challenge_round_trip_checked(void **state)
{
	struct reef_wire_challenge in = {.version = 7}, out;
	uint8_t bytes[REEF_WIRE_CHALLENGE_SIZE];

	memset(in.nonce, 1, sizeof(in.nonce));
	memset(in.proof, 2, sizeof(in.proof));
	reef_wire_challenge_encode(&in, bytes);
	assert_int_equal(reef_wire_challenge_decode(bytes, sizeof(bytes), &out),
			 0);
	assert_memory_equal(&in, &out, sizeof(in));
	assert_int_equal(
		reef_wire_challenge_decode(bytes, sizeof(bytes) - 1, &out),
		-REEF_EPROTO);
	for (int at = 2; at < 8; at++) {
		bytes[at] = 1;
		assert_int_equal(
			reef_wire_challenge_decode(bytes, sizeof(bytes), &out),
			-REEF_EPROTO);
		bytes[at] = 0;
	}
	bytes[0] = 0;
	assert_int_equal(reef_wire_challenge_decode(bytes, sizeof(bytes), &out),
			 -REEF_EPROTO);
}

static void wire_welcome_round_trip_checked(void **state)
{
	struct reef_wire_welcome in = {.domain = 9, .limits = {1, 2, 3, 0}},
				 out;
	uint8_t bytes[REEF_WIRE_WELCOME_SIZE];

	reef_wire_welcome_encode(&in, bytes);
	assert_int_equal(reef_wire_welcome_decode(bytes, sizeof(bytes), &out),
			 0);
	assert_memory_equal(&in, &out, sizeof(in));
	assert_int_equal(
		reef_wire_welcome_decode(bytes, sizeof(bytes) - 1, &out),
		-REEF_EPROTO);
	bytes[20] = 1;
	assert_int_equal(reef_wire_welcome_decode(bytes, sizeof(bytes), &out),
			 -REEF_EPROTO);
}

static void wire_psk_round_trip_checked(void **state)
{
	struct reef_wire_psk in = {.session = 7, .identity = "someone"}, out;
	uint8_t bytes[REEF_WIRE_PSK_SIZE], bad[REEF_WIRE_PSK_SIZE];

	reef_wire_psk_encode(&in, bytes);
	assert_int_equal(reef_wire_psk_decode(bytes, sizeof(bytes), &out), 0);
	assert_int_equal(out.session, 7);
	assert_string_equal(out.identity, "someone");
	assert_int_equal(reef_wire_psk_decode(bytes, sizeof(bytes) - 1, &out),
			 -REEF_EPROTO);
	/* The magic, a session 0, a control character, no end, no beginning. */
	for (size_t at = 0; at < 5; at++) {
		memcpy(bad, bytes, sizeof(bad));
		if (at == 0)
			bad[0] ^= 1;
		if (at == 1)
			bad[4] = 0;
		if (at == 2)
			bad[9] = 1;
		if (at == 3)
			memset(bad + 8, 'x', 64);
		if (at == 4)
			bad[8] = 0;
		assert_int_equal(reef_wire_psk_decode(bad, sizeof(bad), &out),
				 -REEF_EPROTO);
	}
}

static void wire_key_zero_refused(void **state)
{
	uint8_t bytes[REEF_WIRE_KEY_SIZE];
	uint64_t key;

	reef_wire_key_encode(0x8000000000000001, bytes);
	assert_int_equal(reef_wire_key_decode(bytes, 8, &key), 0);
	assert_true(key == 0x8000000000000001);
	assert_int_equal(reef_wire_key_decode(bytes, 7, &key), -REEF_EPROTO);
	reef_wire_key_encode(0, bytes);
	assert_int_equal(reef_wire_key_decode(bytes, 8, &key), -REEF_EPROTO);
}

static int attached(struct reef_wire_attached in,
		    struct reef_wire_attached *out)
{
	uint8_t bytes[REEF_WIRE_ATTACHED_SIZE];

	reef_wire_attached_encode(&in, bytes);
	return reef_wire_attached_decode(bytes, sizeof(bytes), out);
}

static void wire_attached_fields_checked(void **state)
{
	struct reef_wire_attached good = {.key = 5,
					  .flags = REEF_WIRE_DURABLE,
					  .size = 4096,
					  .domain = 77,
					  .address = 0x7f0000001000,
					  .rkey = 0x8001},
				  bad, out;

	assert_int_equal(attached(good, &out), 0);
	assert_memory_equal(&good, &out, sizeof(good));
	good.flags = REEF_WIRE_READ_ONLY;
	assert_int_equal(attached(good, &out), 0);
	assert_int_equal(out.flags, REEF_WIRE_READ_ONLY);
	bad = good;
	bad.key = 0;
	assert_int_equal(attached(bad, &out), -REEF_EPROTO);
	bad = good;
	bad.size = 0;
	assert_int_equal(attached(bad, &out), -REEF_EPROTO);
	bad = good;
	bad.domain = 0;
	assert_int_equal(attached(bad, &out), -REEF_EPROTO);
	bad = good;
	bad.flags = 4;
	assert_int_equal(attached(bad, &out), -REEF_EPROTO);
	bad = (struct reef_wire_attached){.key = 5, .status = -REEF_EKEY};
	assert_int_equal(attached(bad, &out), 0);
	assert_int_equal(out.status, -REEF_EKEY);
	bad.size = 1;
	assert_int_equal(attached(bad, &out), -REEF_EPROTO);
	bad = (struct reef_wire_attached){.key = 5, .status = 1};
	assert_int_equal(attached(bad, &out), -REEF_EPROTO);
	bad.status = -4999;
	assert_int_equal(attached(bad, &out), -REEF_EPROTO);
	bad.status = -EAGAIN;
	assert_int_equal(attached(bad, &out), -REEF_EPROTO);
}

static void wire_bye_codes_checked(void **state)
{
	uint8_t bytes[REEF_WIRE_BYE_SIZE];
	int reason = 0;

	reef_wire_bye_encode(-REEF_EFENCED, bytes);
	assert_int_equal(reef_wire_bye_decode(bytes, 8, &reason), 0);
	assert_int_equal(reason, -REEF_EFENCED);
	bytes[7] = 1;
	assert_int_equal(reef_wire_bye_decode(bytes, 8, &reason), -REEF_EPROTO);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(reef_wire_bye_decode(bytes, 8, &reason), -REEF_EPROTO);
	memset(bytes, 0xff, 4);
	assert_int_equal(reef_wire_bye_decode(bytes, 8, &reason), -REEF_EPROTO);
	reef_put32(bytes, 0x80000000);
	assert_int_equal(reef_wire_bye_decode(bytes, 8, &reason), -REEF_EPROTO);
	assert_int_equal(reason, -REEF_EFENCED);
}

/* --- batches --- */

static const struct reef_wire_batch_limits limits = {
	.ops_max = 4,
	.length_max = 1000,
	.message_max = 100,
};

static int decode_ops(const struct reef_wire_op *ops, uint32_t count,
		      uint32_t length,
		      const struct reef_wire_batch_limits *bounds)
{
	uint8_t bytes[256];
	struct reef_wire_op out[8];
	uint32_t found, head;
	int rc;

	reef_wire_batch_encode(count, bytes);
	for (uint32_t i = 0; i < count; i++) {
		reef_wire_op_encode(&ops[i], bytes + 8 + 24 * i);
		reef_put16(bytes + 8 + 24 * i + 2, ops[i].reserved);
	}
	rc = reef_wire_batch_head(bytes, sizeof(bytes), length, bounds, &found,
				  &head);
	if (rc)
		return rc;
	assert_int_equal(found, count);
	assert_int_equal(head, 8 + 24 * count);
	rc = reef_wire_ops_decode(bytes, found, length, bounds, out);
	if (rc == 0)
		assert_memory_equal(ops, out, count * sizeof(*ops));
	return rc;
}

static void wire_batch_every_kind_decoded(void **state)
{
	struct reef_wire_op ops[] = {
		{.kind = REEF_READ, .length = 1000, .key = 1, .offset = 3},
		{.kind = REEF_WRITE, .flags = 1, .length = 10, .key = 1},
		{.kind = REEF_CAS, .length = 8, .key = 1, .offset = 8},
		{.kind = REEF_FAA, .length = 8, .key = 1, .offset = 16},
	};
	struct reef_wire_op more[] = {
		{.kind = REEF_FLUSH, .length = 1000, .key = 1},
		{.kind = REEF_SEND, .length = 100},
	};

	assert_int_equal(decode_ops(ops, 4, 8 + 96 + 10 + 16 + 8, &limits), 0);
	assert_int_equal(decode_ops(more, 2, 8 + 48 + 100, &limits), 0);
}

static void wire_batch_bad_op_refused(void **state)
{
	static const struct reef_wire_op bad[] = {
		{.kind = 0, .key = 1},
		{.kind = REEF_OP_KINDS, .key = 1},
		{.kind = REEF_READ, .flags = 2, .key = 1},
		{.kind = REEF_READ, .reserved = 1, .key = 1},
		{.kind = REEF_READ, .length = 1001, .key = 1},
		{.kind = REEF_READ, .length = 1},
		{.kind = REEF_FLUSH, .length = 1001, .key = 1},
		{.kind = REEF_CAS, .length = 4, .key = 1},
		{.kind = REEF_FAA, .length = 8, .key = 1, .offset = 4},
		{.kind = REEF_SEND, .length = 101},
		{.kind = REEF_SEND, .key = 1},
		{.kind = REEF_SEND, .offset = 1},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(decode_ops(&bad[i], 1,
					    32 + reef_wire_op_sends(&bad[i]),
					    &limits),
				 -REEF_EPROTO);
}

static void wire_batch_wrong_length_refused(void **state)
{
	struct reef_wire_op op = {.kind = REEF_WRITE, .length = 10, .key = 1};
	struct reef_wire_op many[5] = {op, op, op, op, op};

	assert_int_equal(decode_ops(&op, 1, 41, &limits), -REEF_EPROTO);
	assert_int_equal(decode_ops(&op, 1, 43, &limits), -REEF_EPROTO);
	assert_int_equal(decode_ops(&op, 1, 31, &limits), -REEF_EPROTO);
	assert_int_equal(decode_ops(&op, 1, 0, &limits), -REEF_EPROTO);
	assert_int_equal(decode_ops(&op, 1, UINT32_MAX, &limits), -REEF_EPROTO);
	assert_int_equal(decode_ops(many, 5, 8 + 5 * 34, &limits),
			 -REEF_EPROTO);
	assert_int_equal(decode_ops(many, 0, 42, &limits), -REEF_EPROTO);
	assert_int_equal(decode_ops(many, 2, 8 + 24 + 20, &limits),
			 -REEF_EPROTO);
}

static void wire_batch_head_incomplete_waits(void **state)
{
	uint8_t bytes[32] = {1};
	uint32_t count, head;

	assert_int_equal(
		reef_wire_batch_head(bytes, 7, 32, &limits, &count, &head),
		-EAGAIN);
	assert_int_equal(
		reef_wire_batch_head(bytes, 31, 32, &limits, &count, &head),
		-EAGAIN);
	assert_int_equal(
		reef_wire_batch_head(bytes, 32, 32, &limits, &count, &head), 0);
	bytes[4] = 1;
	assert_int_equal(
		reef_wire_batch_head(bytes, 8, 32, &limits, &count, &head),
		-REEF_EPROTO);
}

static int done(uint32_t done_count, int32_t status, uint32_t count)
{
	struct reef_wire_done in = {done_count, status}, out;
	uint8_t bytes[REEF_WIRE_DONE_SIZE];
	int rc;

	reef_wire_done_encode(&in, bytes);
	rc = reef_wire_done_decode(bytes, count, &out);
	if (rc == 0)
		assert_memory_equal(&in, &out, sizeof(in));
	return rc;
}

static void wire_done_that_cannot_be_refused(void **state)
{
	assert_int_equal(done(3, 0, 3), 0);
	assert_int_equal(done(2, -REEF_EKEY, 3), 0);
	assert_int_equal(done(2, 0, 3), -REEF_EPROTO);
	assert_int_equal(done(4, 0, 3), -REEF_EPROTO);
	assert_int_equal(done(3, -EIO, 3), -REEF_EPROTO);
	assert_int_equal(done(0, 1, 3), -REEF_EPROTO);
	assert_int_equal(done(0, INT32_MIN, 3), -REEF_EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wire_header_round_trip_same),
		cmocka_unit_test(wire_header_bad_byte_refused),
		cmocka_unit_test(wire_hello_round_trip_same),
		cmocka_unit_test(wire_hello_bad_field_refused),
		cmocka_unit_test(wire_identity_length_bounded),
		cmocka_unit_test(wire_challenge_round_trip_checked),
		cmocka_unit_test(wire_welcome_round_trip_checked),
		cmocka_unit_test(wire_psk_round_trip_checked),
		cmocka_unit_test(wire_key_zero_refused),
		cmocka_unit_test(wire_attached_fields_checked),
		cmocka_unit_test(wire_bye_codes_checked),
		cmocka_unit_test(wire_batch_every_kind_decoded),
		cmocka_unit_test(wire_batch_bad_op_refused),
		cmocka_unit_test(wire_batch_wrong_length_refused),
		cmocka_unit_test(wire_batch_head_incomplete_waits),
		cmocka_unit_test(wire_done_that_cannot_be_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
