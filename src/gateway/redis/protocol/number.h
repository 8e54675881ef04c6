/* number.h - numbers as Redis reads and writes them.
 *
 * (1) A whole number is read only in the form in which it would be written:
 *     no blanks, no plus, no leading zeros, no -0.
 * (2) A fraction is a long double, read as strtold does, written with at most
 *     17 digits behind the point and no trailing zeros, never with an exponent.
 *
 * Thread: any. */
#ifndef REEF_GATEWAY_REDIS_PROTOCOL_NUMBER_H
#define REEF_GATEWAY_REDIS_PROTOCOL_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool redis_integer_parse(const char *text, size_t size, int64_t *out);

#define REDIS_INTEGER_SIZE 24
/* Write a whole number; returns its length, behind which there is a NUL. */
size_t redis_integer_format(int64_t value, char text[REDIS_INTEGER_SIZE]);

/* Infinity is a number here, NaN is not. */
bool redis_fraction_parse(const char *text, size_t size, long double *out);

#define REDIS_FRACTION_SIZE 5120
size_t redis_fraction_format(long double value, char text[REDIS_FRACTION_SIZE]);

#endif
