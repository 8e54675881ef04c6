/* What verbs says on the wire round-trips, and nothing wrong in it goes
 * unnoticed. */
#include "wire/queue_pair.h"

#include <reef/error.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct reef_wire_queue_pair good = {
	.number = 0x123456,
	.packet = 0x654321,
	.gid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8},
	.lid = 0x0a0b,
	.mtu = 5,
	.ethernet = 1,
	.initiates = 16,
	.serves = 32,
	.receives = 17,
	.fragment = 4096,
};

static int decode(const struct reef_wire_queue_pair *pair, size_t size)
{
	uint8_t bytes[REEF_WIRE_QUEUE_PAIR_SIZE + 1] = {0};
	struct reef_wire_queue_pair out;

	reef_wire_queue_pair_encode(pair, bytes);
	return reef_wire_queue_pair_decode(bytes, size, &out);
}

static void queue_pair_round_trip_same(void **state)
{
	static const uint8_t wire[REEF_WIRE_QUEUE_PAIR_SIZE] = {
		0x56, 0x34, 0x12, 0, 0x21, 0x43, 0x65, 0,    0xfe, 0x80,
		0,    0,    0,	  0, 0,	   0,	 1,    2,    3,	   4,
		5,    6,    7,	  8, 0x0b, 0x0a, 5,    1,    16,   0,
		32,   0,    17,	  0, 0,	   0,	 0,    0x10, 0,	   0};
	uint8_t bytes[REEF_WIRE_QUEUE_PAIR_SIZE];
	struct reef_wire_queue_pair out;

	reef_wire_queue_pair_encode(&good, bytes);
	assert_memory_equal(bytes, wire, sizeof(wire));
	assert_int_equal(
		reef_wire_queue_pair_decode(bytes, sizeof(bytes), &out), 0);
	assert_memory_equal(&out, &good, sizeof(out));
}

static void queue_pair_wrong_size_refused(void **state)
{
	size_t size;

	for (size = 0; size <= REEF_WIRE_QUEUE_PAIR_SIZE + 1; size++)
		assert_int_equal(
			decode(&good, size),
			size == REEF_WIRE_QUEUE_PAIR_SIZE ? 0 : -REEF_EPROTO);
}

#define WITH(field, value)                                                     \
	({                                                                     \
		struct reef_wire_queue_pair changed = good;                    \
		changed.field = (value);                                       \
		decode(&changed, REEF_WIRE_QUEUE_PAIR_SIZE);                   \
	})

static void queue_pair_wrong_field_refused(void **state)
{
	assert_int_equal(WITH(number, 0), -REEF_EPROTO);
	assert_int_equal(WITH(number, 0x1000000), -REEF_EPROTO);
	assert_int_equal(WITH(packet, 0), 0);
	assert_int_equal(WITH(packet, 0x1000000), -REEF_EPROTO);
	assert_int_equal(WITH(mtu, 0), -REEF_EPROTO);
	assert_int_equal(WITH(mtu, 6), -REEF_EPROTO);
	assert_int_equal(WITH(ethernet, 2), -REEF_EPROTO);
	assert_int_equal(WITH(initiates, 0), -REEF_EPROTO);
	assert_int_equal(WITH(serves, 0), -REEF_EPROTO);
	assert_int_equal(WITH(receives, 0), -REEF_EPROTO);
	assert_int_equal(WITH(fragment, 0), -REEF_EPROTO);
}

static void queue_pair_without_address_refused(void **state)
{
	struct reef_wire_queue_pair pair = good;

	memset(pair.gid, 0, sizeof(pair.gid));
	assert_int_equal(decode(&pair, REEF_WIRE_QUEUE_PAIR_SIZE),
			 -REEF_EPROTO);
	pair.ethernet = 0; /* InfiniBand goes by lid */
	assert_int_equal(decode(&pair, REEF_WIRE_QUEUE_PAIR_SIZE), 0);
	pair.lid = 0;
	assert_int_equal(decode(&pair, REEF_WIRE_QUEUE_PAIR_SIZE),
			 -REEF_EPROTO);
}

static void credit_round_trip_same(void **state)
{
	uint8_t bytes[REEF_WIRE_CREDIT_SIZE];
	uint32_t count = 0;
	size_t i;

	reef_wire_credit_encode(0x01020304, bytes);
	assert_int_equal(reef_wire_credit_decode(bytes, sizeof(bytes), &count),
			 0);
	assert_int_equal(count, 0x01020304);
	assert_int_equal(
		reef_wire_credit_decode(bytes, sizeof(bytes) - 1, &count),
		-REEF_EPROTO);
	for (i = 4; i < sizeof(bytes); i++) {
		bytes[i] = 1;
		assert_int_equal(
			reef_wire_credit_decode(bytes, sizeof(bytes), &count),
			-REEF_EPROTO);
		bytes[i] = 0;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queue_pair_round_trip_same),
		cmocka_unit_test(queue_pair_wrong_size_refused),
		cmocka_unit_test(queue_pair_wrong_field_refused),
		cmocka_unit_test(queue_pair_without_address_refused),
		cmocka_unit_test(credit_round_trip_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
