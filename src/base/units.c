/* units.c - sizes and durations as people write them. */
#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FRACTION_MAX UINT64_C(1000000000) /* nine digits */

struct unit {
	const char *name;
	uint64_t scale;
};

/* The first of each scale is the one that is written. */
static const struct unit sizes[] = {
	{"", 1},
	{"B", 1},
	{"K", UINT64_C(1) << 10},
	{"KiB", UINT64_C(1) << 10},
	{"M", UINT64_C(1) << 20},
	{"MiB", UINT64_C(1) << 20},
	{"G", UINT64_C(1) << 30},
	{"GiB", UINT64_C(1) << 30},
	{"T", UINT64_C(1) << 40},
	{"TiB", UINT64_C(1) << 40},
	{"P", UINT64_C(1) << 50},
	{"PiB", UINT64_C(1) << 50},
	{NULL, 0},
};

static const struct unit durations[] = {
	{"ns", 1},
	{"us", 1000},
	{"ms", 1000000},
	{"s", 1000000000},
	{"min", 60 * UINT64_C(1000000000)},
	{"h", 3600 * UINT64_C(1000000000)},
	{"d", 86400 * UINT64_C(1000000000)},
	{NULL, 0},
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits, and perhaps a fraction of at most nine; returns what follows. */
static const char *take_number(const char *text, uint64_t *whole,
			       uint64_t *fraction, uint64_t *of, bool *over)
{
	if (!is_digit(*text))
		return NULL;
	for (*whole = 0, *over = false; is_digit(*text); text++)
		*over |= __builtin_mul_overflow(*whole, 10, whole) ||
			 __builtin_add_overflow(*whole, (uint64_t)(*text - '0'),
						whole);
	*fraction = 0;
	*of = 1;
	if (*text != '.')
		return text;
	if (!is_digit(*++text))
		return NULL;
	for (; is_digit(*text) && *of < FRACTION_MAX; text++, *of *= 10)
		*fraction = *fraction * 10 + (uint64_t)(*text - '0');
	return text;
}

static int scale(uint64_t whole, uint64_t fraction, uint64_t of, uint64_t unit,
		 uint64_t *out)
{
	/* Both factors are under 2^57 and 2^30: it takes 128 bits. */
	unsigned __int128 part = (unsigned __int128)fraction * unit / of;
	uint64_t value;

	if (__builtin_mul_overflow(whole, unit, &value) ||
	    __builtin_add_overflow(value, (uint64_t)part, &value))
		return -ERANGE;
	*out = value;
	return 0;
}

static const struct unit *find_unit(const struct unit *units, const char *name,
				    int (*compare)(const char *a,
						   const char *b))
{
	for (; units->name; units++)
		if (compare(units->name, name) == 0)
			return units;
	return NULL;
}

int reef_size_parse(const char *text, uint64_t *out)
{
	uint64_t whole, fraction, of;
	const struct unit *unit;
	bool over;

	text = take_number(text, &whole, &fraction, &of, &over);
	unit = text ? find_unit(sizes, text, strcasecmp) : NULL;
	if (!unit)
		return -EINVAL;
	return over ? -ERANGE : scale(whole, fraction, of, unit->scale, out);
}

int reef_duration_parse(const char *text, uint64_t *out)
{
	uint64_t whole, fraction, of;
	const struct unit *unit;
	bool over;

	if (strcmp(text, "0") == 0) {
		*out = 0;
		return 0;
	}
	text = take_number(text, &whole, &fraction, &of, &over);
	unit = text ? find_unit(durations, text, strcmp) : NULL;
	if (!unit)
		return -EINVAL;
	return over ? -ERANGE : scale(whole, fraction, of, unit->scale, out);
}

static char *format(uint64_t value, const struct unit *units,
		    char text[REEF_UNITS_TEXT_SIZE])
{
	const struct unit *best = units;

	for (; units->name && value != 0; units++)
		if (value % units->scale == 0 && units->scale > best->scale)
			best = units;
	snprintf(text, REEF_UNITS_TEXT_SIZE, "%" PRIu64 "%s",
		 value / best->scale, best->name);
	return text;
}

char *reef_size_format(uint64_t size, char text[REEF_UNITS_TEXT_SIZE])
{
	return format(size, sizes, text);
}

char *reef_duration_format(uint64_t duration_ns,
			   char text[REEF_UNITS_TEXT_SIZE])
{
	return format(duration_ns, durations, text);
}
