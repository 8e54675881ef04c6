/* text.c - texts that can be shown. */
#include "base/text.h"

#include <stdint.h>

/* Decode the character that begins a text; how many bytes it has, or 0. */
static size_t decode(const char *text, size_t size, uint32_t *out)
{
	static const struct {
		uint8_t mask, lead;
		uint32_t least; /* anything lower has a shorter form */
	} forms[] = {{0x80, 0x00, 0},
		     {0xe0, 0xc0, 0x80},
		     {0xf0, 0xe0, 0x800},
		     {0xf8, 0xf0, 0x10000}};
	const uint8_t *bytes = (const uint8_t *)text;
	uint32_t value;

	for (size_t more = 0; more < 4 && more < size; more++) {
		if ((bytes[0] & forms[more].mask) != forms[more].lead)
			continue;
		value = bytes[0] & (uint8_t)~forms[more].mask;
		for (size_t i = 1; i <= more; i++) {
			if ((bytes[i] & 0xc0) != 0x80)
				return 0;
			value = value << 6 | (bytes[i] & 0x3f);
		}
		if (value < forms[more].least || value > 0x10ffff ||
		    (value >= 0xd800 && value < 0xe000))
			return 0;
		*out = value;
		return more + 1;
	}
	return 0;
}

size_t reef_text_character(const char *text, size_t size)
{
	uint32_t value;

	return decode(text, size, &value);
}

static bool is_acted_upon(uint32_t value)
{
	return value < 0x20 || (value >= 0x7f && value < 0xa0) ||
	       value == 0x061c || value == 0x200e || value == 0x200f ||
	       (value >= 0x2028 && value <= 0x202e) ||
	       (value >= 0x2066 && value <= 0x2069);
}

/* How many bytes of a text are plain, from its beginning. */
static size_t find_plain(const char *text, size_t size)
{
	size_t at = 0, more;
	uint32_t value;

	while (at < size) {
		more = decode(text + at, size - at, &value);
		if (!more || is_acted_upon(value))
			break;
		at += more;
	}
	return at;
}

bool reef_text_is_plain(const char *text, size_t size)
{
	return find_plain(text, size) == size;
}

void reef_text_make_plain(char *text, size_t size)
{
	size_t at = 0;

	while ((at += find_plain(text + at, size - at)) < size)
		text[at] = '?';
}
