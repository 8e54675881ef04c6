/* test_key.c - keys are in the order of what they stand for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"

#include <reef/key.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 20000
#define STRING_MAX 12
#define KEY_MAX (REEF_KEY_BYTES_MAX(STRING_MAX) + 16)

struct key {
	uint8_t bytes[KEY_MAX];
	size_t size;
};

/* -1, 0 or 1: which of two keys comes first. */
static int order_of_keys(const struct key *a, const struct key *b)
{
	size_t size = a->size < b->size ? a->size : b->size;
	int order = memcmp(a->bytes, b->bytes, size);

	if (!order)
		order = (a->size > b->size) - (a->size < b->size);
	return (order > 0) - (order < 0);
}

/* Numbers of all magnitudes, and often such that differ by little. */
static uint64_t any_number(struct reef_random *random)
{
	uint64_t number =
		reef_random_next(random) >> reef_random_below(random, 64);

	if (reef_random_chance(random, 1, 2))
		number = ~number;
	if (reef_random_chance(random, 1, 4))
		number = (uint64_t)INT64_MIN + reef_random_below(random, 5) - 2;
	return number;
}

static double any_double(struct reef_random *random)
{
	static const double special[] = {
		0.0,	  -0.0,	     1.0,
		-1.0,	  5e-324,    -5e-324,
		INFINITY, -INFINITY, 1.7976931348623157e308,
		0.1,	  -0.1,	     4294967296.5,
	};
	uint64_t bits = reef_random_next(random);
	double value;

	if (reef_random_chance(random, 1, 3))
		return special[reef_random_below(
			random, sizeof(special) / sizeof(special[0]))];
	memcpy(&value, &bits, sizeof(value));
	return isnan(value) ? 2.5 : value;
}

/* Few different bytes, so that strings have beginnings in common. */
static size_t any_string(struct reef_random *random, uint8_t *string)
{
	static const uint8_t bytes[] = {0, 0, 1, 2, 0x61, 0xfe, 0xff};
	size_t size = reef_random_below(random, STRING_MAX + 1);

	for (size_t i = 0; i < size; i++)
		string[i] = bytes[reef_random_below(random, sizeof(bytes))];
	return size;
}

static int order_of_strings(const uint8_t *a, size_t a_size, const uint8_t *b,
			    size_t b_size)
{
	struct key left = {.size = a_size}, right = {.size = b_size};

	memcpy(left.bytes, a, a_size);
	memcpy(right.bytes, b, b_size);
	return order_of_keys(&left, &right);
}

static void key_of_numbers_is_in_their_order(void **state)
{
	struct reef_random random;
	struct key a, b;

	reef_random_init(&random, 1);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t x = any_number(&random), y = any_number(&random);
		int64_t p = (int64_t)x, q = (int64_t)y;
		double v = any_double(&random), w = any_double(&random);

		a.size = reef_key_u64(a.bytes, x);
		b.size = reef_key_u64(b.bytes, y);
		assert_int_equal(order_of_keys(&a, &b), (x > y) - (x < y));
		a.size = reef_key_i64(a.bytes, p);
		b.size = reef_key_i64(b.bytes, q);
		assert_int_equal(order_of_keys(&a, &b), (p > q) - (p < q));
		a.size = reef_key_double(a.bytes, v);
		b.size = reef_key_double(b.bytes, w);
		assert_int_equal(order_of_keys(&a, &b), (v > w) - (v < w));
	}
	(void)state;
}

static void key_of_numbers_reads_back(void **state)
{
	struct reef_random random;
	uint8_t key[8];

	reef_random_init(&random, 2);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t x = any_number(&random), x_back = ~x;
		int64_t p = (int64_t)x, p_back = ~p;
		double v = any_double(&random), v_back = v + 1;

		assert_int_equal(reef_key_u64(key, x), REEF_KEY_U64);
		assert_int_equal(reef_key_read_u64(key, 8, &x_back), 8);
		assert_true(x == x_back);
		assert_int_equal(reef_key_i64(key, p), REEF_KEY_I64);
		assert_int_equal(reef_key_read_i64(key, 8, &p_back), 8);
		assert_true(p == p_back);
		assert_int_equal(reef_key_double(key, v), REEF_KEY_DOUBLE);
		assert_int_equal(reef_key_read_double(key, 8, &v_back), 8);
		assert_true(v == v_back);
		assert_true(v != 0 || !signbit(v_back));
	}
	(void)state;
}

static void key_of_bytes_is_in_their_order(void **state)
{
	struct reef_random random;
	uint8_t x[STRING_MAX], y[STRING_MAX], back[STRING_MAX];
	struct key a, b;
	size_t x_size, y_size, size;

	reef_random_init(&random, 3);
	for (int i = 0; i < ROUNDS; i++) {
		x_size = any_string(&random, x);
		y_size = any_string(&random, y);
		a.size = reef_key_bytes(a.bytes, x, x_size);
		b.size = reef_key_bytes(b.bytes, y, y_size);
		assert_int_equal(reef_key_bytes(NULL, x, x_size), a.size);
		assert_true(a.size <= REEF_KEY_BYTES_MAX(x_size));
		assert_int_equal(order_of_keys(&a, &b),
				 order_of_strings(x, x_size, y, y_size));
		/* What follows in the buffer is none of its business. */
		assert_int_equal(reef_key_read_bytes(a.bytes, KEY_MAX, back,
						     sizeof(back), &size),
				 a.size);
		assert_int_equal(size, x_size);
		assert_memory_equal(back, x, size);
	}
	(void)state;
}

struct tuple {
	uint8_t first[STRING_MAX], second[STRING_MAX];
	size_t first_size, second_size;
	int64_t number;
};

static void make_tuple(struct reef_random *random, struct tuple *tuple,
		       struct key *key)
{
	tuple->first_size = any_string(random, tuple->first);
	/* Few strings and numbers, so that the last part decides, too. */
	if (tuple->first_size > 2)
		tuple->first_size = 2;
	tuple->number = (int64_t)reef_random_below(random, 3) - 1;
	tuple->second_size = any_string(random, tuple->second);
	if (tuple->second_size > 2)
		tuple->second_size = 2;
	key->size = reef_key_bytes(key->bytes, tuple->first, tuple->first_size);
	key->size += reef_key_i64(key->bytes + key->size, tuple->number);
	key->size += reef_key_bytes(key->bytes + key->size, tuple->second,
				    tuple->second_size);
}

static int order_of_tuples(const struct tuple *a, const struct tuple *b)
{
	int order = order_of_strings(a->first, a->first_size, b->first,
				     b->first_size);

	if (!order)
		order = (a->number > b->number) - (a->number < b->number);
	if (!order)
		order = order_of_strings(a->second, a->second_size, b->second,
					 b->second_size);
	return order;
}

static void key_of_tuples_is_in_their_order(void **state)
{
	struct reef_random random;
	struct tuple x, y;
	struct key a, b;

	reef_random_init(&random, 4);
	for (int i = 0; i < ROUNDS; i++) {
		make_tuple(&random, &x, &a);
		make_tuple(&random, &y, &b);
		assert_int_equal(order_of_keys(&a, &b),
				 order_of_tuples(&x, &y));
	}
	(void)state;
}

/* Bytes that end in a zero, before a part that begins with ff or 01: where an
 * end of one byte would be taken for a zero, or the other way round. */
static void key_of_bytes_ends_whatever_follows(void **state)
{
	uint8_t key[32], back[8];
	uint64_t number;
	size_t length, size;

	size = reef_key_bytes(key, "a", 1);
	size += reef_key_u64(key + size, UINT64_MAX);
	assert_int_equal(reef_key_read_bytes(key, size, back, 8, &length), 3);
	assert_int_equal(length, 1);
	assert_int_equal(reef_key_read_u64(key + 3, size - 3, &number), 8);
	assert_true(number == UINT64_MAX);
	size = reef_key_bytes(key, "a\0", 2);
	size += reef_key_u64(key + size, UINT64_C(1) << 56);
	assert_int_equal(reef_key_read_bytes(key, size, back, 8, &length), 5);
	assert_int_equal(length, 2);
	(void)state;
}

static void key_not_a_number_is_one_key_after_infinity(void **state)
{
	struct key a, b;
	double back = 0;

	a.size = reef_key_double(a.bytes, (double)NAN);
	b.size = reef_key_double(b.bytes, -(double)NAN);
	assert_int_equal(order_of_keys(&a, &b), 0);
	b.size = reef_key_double(b.bytes, (double)INFINITY);
	assert_int_equal(order_of_keys(&a, &b), 1);
	assert_int_equal(reef_key_read_double(a.bytes, 8, &back), 8);
	assert_true(isnan(back));
	(void)state;
}

/* Whatever bytes there are: what is read is what would be written. */
static void key_that_nobody_wrote_is_refused(void **state)
{
	struct reef_random random;
	uint8_t key[STRING_MAX], back[STRING_MAX], again[KEY_MAX];
	size_t size, length;
	double number;
	ssize_t used;

	reef_random_init(&random, 5);
	for (int i = 0; i < ROUNDS; i++) {
		size = any_string(&random, key);
		used = reef_key_read_bytes(key, size, back, sizeof(back),
					   &length);
		assert_true(used == -EINVAL || used >= 2);
		if (used >= 0) {
			assert_true((size_t)used <= size);
			assert_int_equal(reef_key_bytes(again, back, length),
					 used);
			assert_memory_equal(key, again, used);
		}
		used = reef_key_read_double(key, size, &number);
		assert_true(used == -EINVAL || used == 8);
		if (used == 8) {
			reef_key_double(again, number);
			assert_memory_equal(key, again, 8);
		}
	}
	(void)state;
}

static void key_that_is_too_short_is_refused(void **state)
{
	uint8_t key[8] = {0x61, 0, 0xff, 0x62, 0, 1, 0, 0}, back[8];
	uint64_t number = 7;
	size_t length = 9;

	for (size_t size = 0; size < 6; size++)
		assert_int_equal(
			reef_key_read_bytes(key, size, back, 8, &length),
			-EINVAL);
	assert_int_equal(reef_key_read_bytes(key, 6, back, 2, &length),
			 -ERANGE);
	assert_int_equal(length, 9);
	assert_int_equal(reef_key_read_bytes(key, 6, NULL, 0, &length), 6);
	assert_int_equal(length, 3);
	assert_int_equal(reef_key_read_u64(key, 7, &number), -EINVAL);
	assert_int_equal(number, 7);
	/* A zero that is neither of the string nor its end. */
	assert_int_equal(reef_key_read_bytes("\0\2\0\1", 4, back, 8, &length),
			 -EINVAL);
	(void)state;
}

static void key_of_nothing_is_a_key(void **state)
{
	uint8_t key[2];
	size_t length = 1;

	assert_int_equal(reef_key_bytes(key, NULL, 0), 2);
	assert_int_equal(reef_key_read_bytes(key, 2, NULL, 0, &length), 2);
	assert_int_equal(length, 0);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(key_of_numbers_is_in_their_order),
		cmocka_unit_test(key_of_numbers_reads_back),
		cmocka_unit_test(key_of_bytes_is_in_their_order),
		cmocka_unit_test(key_of_tuples_is_in_their_order),
		cmocka_unit_test(key_of_bytes_ends_whatever_follows),
		cmocka_unit_test(key_not_a_number_is_one_key_after_infinity),
		cmocka_unit_test(key_that_nobody_wrote_is_refused),
		cmocka_unit_test(key_that_is_too_short_is_refused),
		cmocka_unit_test(key_of_nothing_is_a_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
