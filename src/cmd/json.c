/* json.c - texts as JSON has them. */
#include "cmd/json.h"

#include <stddef.h>
#include <stdint.h>

/* How many bytes the UTF-8 character at `text` has; 0: it is not valid. */
static size_t character_size(const unsigned char *text)
{
	static const struct {
		uint8_t mask, lead;
		uint32_t least; /* anything lower has a shorter form */
	} forms[] = {{0x80, 0x00, 0},
		     {0xe0, 0xc0, 0x80},
		     {0xf0, 0xe0, 0x800},
		     {0xf8, 0xf0, 0x10000}};
	uint32_t value;

	for (size_t more = 0; more < 4; more++) {
		if ((*text & forms[more].mask) != forms[more].lead)
			continue;
		value = *text & (uint8_t)~forms[more].mask;
		for (size_t i = 1; i <= more; i++) {
			if ((text[i] & 0xc0) != 0x80)
				return 0;
			value = value << 6 | (text[i] & 0x3f);
		}
		if (value < forms[more].least || value > 0x10ffff ||
		    (value >= 0xd800 && value < 0xe000))
			return 0;
		return more + 1;
	}
	return 0;
}

void reef_json_string(FILE *stream, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t size;

	fputc('"', stream);
	for (; *at; at += size ? size : 1) {
		size = character_size(at);
		if (!size)
			fputs("\\ufffd", stream);
		else if (*at < 0x20 || *at == 0x7f)
			fprintf(stream, "\\u%04x", *at);
		else if (*at == '"' || *at == '\\')
			fprintf(stream, "\\%c", *at);
		else
			fwrite(at, 1, size, stream);
	}
	fputc('"', stream);
}
