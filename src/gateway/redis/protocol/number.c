/* number.c - numbers as text. */
#include "gateway/redis/protocol/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define DIGITS_MAX 19 /* of a whole number */

bool redis_integer_parse(const char *text, size_t size, int64_t *out)
{
	bool is_negative = size > 0 && text[0] == '-';
	uint64_t value = 0;
	size_t i = is_negative ? 1 : 0;

	if (size == 1 && text[0] == '0') {
		*out = 0;
		return true;
	}
	if (i == size || size - i > DIGITS_MAX || text[i] == '0')
		return false;
	for (; i < size; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(text[i] - '0');
	}
	if (value > (uint64_t)INT64_MAX + is_negative)
		return false;
	*out = is_negative ? (int64_t)(0 - value) : (int64_t)value;
	return true;
}

size_t redis_integer_format(int64_t value, char text[REDIS_INTEGER_SIZE])
{
	uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
	char digits[DIGITS_MAX + 1];
	size_t count = 0, size = 0;

	do {
		digits[count++] = (char)('0' + left % 10);
		left /= 10;
	} while (left > 0);
	if (value < 0)
		text[size++] = '-';
	while (count > 0)
		text[size++] = digits[--count];
	text[size] = 0;
	return size;
}

bool redis_fraction_parse(const char *text, size_t size, long double *out)
{
	char copy[REDIS_FRACTION_SIZE], *end;
	long double value;

	if (size == 0 || size >= sizeof(copy))
		return false;
	memcpy(copy, text, size);
	copy[size] = 0;
	if (isspace((unsigned char)copy[0]))
		return false;
	errno = 0;
	value = strtold(copy, &end);
	if (end != copy + size || isnan(value))
		return false;
	/* A number that is too large or too small for its type is refused; one
	 * that is only less exact is not. */
	if (errno == ERANGE && (isinf(value) || value == 0))
		return false;
	*out = value;
	return true;
}

size_t redis_fraction_format(long double value, char text[REDIS_FRACTION_SIZE])
{
	int printed = snprintf(text, REDIS_FRACTION_SIZE, "%.17Lf", value);
	size_t size;

	reef_assert(printed > 0 && printed < REDIS_FRACTION_SIZE);
	size = (size_t)printed;
	if (memchr(text, '.', size)) {
		while (text[size - 1] == '0')
			size--;
		if (text[size - 1] == '.')
			size--;
	}
	if (size == 2 && text[0] == '-' && text[1] == '0') {
		text[0] = '0';
		size = 1;
	}
	text[size] = 0;
	return size;
}
