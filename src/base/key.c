/* key.c - keys whose bytes are in the order of what they stand for.
 *
 *   u64     big-endian
 *   i64     the same, with the sign bit turned, so that negative ones are below
 *   double  its bits as a u64: with the sign bit set, if it was not; with all
 *           bits turned, if it was, as larger bits are then smaller numbers
 *   bytes   each zero as 00 ff; then 00 01, the end. 01 is below ff, so a
 *           string comes before those that go on with a zero, and 00 is below
 *           every other byte: so it comes before those that go on otherwise.
 *           An end of one byte would not do: what follows it may begin with ff,
 *           and be taken for a zero of the string. */
#include <reef/key.h>

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define SIGN (UINT64_C(1) << 63)
#define ZERO 0xff /* after 00: the string has a zero there */
#define END 0x01  /* after 00: the string ends */

/* --- numbers --- */

size_t reef_key_u64(void *to, uint64_t value)
{
	uint64_t bytes = htobe64(value);

	if (to)
		memcpy(to, &bytes, sizeof(bytes));
	return REEF_KEY_U64;
}

ssize_t reef_key_read_u64(const void *key, size_t size, uint64_t *out)
{
	uint64_t bytes;

	if (size < REEF_KEY_U64)
		return -EINVAL;
	memcpy(&bytes, key, sizeof(bytes));
	*out = be64toh(bytes);
	return REEF_KEY_U64;
}

size_t reef_key_i64(void *to, int64_t value)
{
	return reef_key_u64(to, (uint64_t)value ^ SIGN);
}

ssize_t reef_key_read_i64(const void *key, size_t size, int64_t *out)
{
	uint64_t bits;
	ssize_t used = reef_key_read_u64(key, size, &bits);

	if (used > 0)
		*out = (int64_t)(bits ^ SIGN);
	return used;
}

/* A double as a number in its order. */
static uint64_t order_of(double value)
{
	uint64_t bits;

	/* One NaN and one zero stand for all. */
	if (isnan(value))
		value = (double)NAN;
	else if (value == 0)
		value = 0;
	memcpy(&bits, &value, sizeof(bits));
	if (isnan(value))
		bits &= ~SIGN;
	return bits & SIGN ? ~bits : bits | SIGN;
}

size_t reef_key_double(void *to, double value)
{
	return reef_key_u64(to, order_of(value));
}

ssize_t reef_key_read_double(const void *key, size_t size, double *out)
{
	uint64_t order, bits;
	double value;
	ssize_t used = reef_key_read_u64(key, size, &order);

	if (used < 0)
		return used;
	bits = order & SIGN ? order ^ SIGN : ~order;
	memcpy(&value, &bits, sizeof(value));
	if (order_of(value) != order)
		return -EINVAL;
	*out = value;
	return used;
}

/* --- bytes --- */

size_t reef_key_bytes(void *to, const void *bytes, size_t size)
{
	const uint8_t *from = bytes;
	uint8_t *key = to;
	size_t used = 0;

	for (size_t i = 0; i < size; i++) {
		if (key)
			key[used] = from[i];
		used++;
		if (from[i])
			continue;
		if (key)
			key[used] = ZERO;
		used++;
	}
	if (key) {
		key[used] = 0;
		key[used + 1] = END;
	}
	return used + 2;
}

ssize_t reef_key_read_bytes(const void *key, size_t size, void *to, size_t room,
			    size_t *length)
{
	const uint8_t *from = key;
	uint8_t *bytes = to;
	size_t used = 0, count = 0;
	bool is_zero;

	for (;;) {
		if (used == size)
			return -EINVAL;
		is_zero = !from[used];
		if (is_zero && used + 1 == size)
			return -EINVAL;
		if (is_zero && from[used + 1] == END)
			break;
		if (is_zero && from[used + 1] != ZERO)
			return -EINVAL;
		if (bytes && count == room)
			return -ERANGE;
		if (bytes)
			bytes[count] = from[used];
		count++;
		used += is_zero ? 2 : 1;
	}
	*length = count;
	return (ssize_t)used + 2;
}
