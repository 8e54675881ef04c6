/* json.c - texts as JSON has them. */
#include "cmd/json.h"

#include "base/text.h"

#include <string.h>

void reef_json_string(FILE *stream, const char *text)
{
	size_t left = strlen(text), size;

	fputc('"', stream);
	for (; left; text += size, left -= size) {
		size = reef_text_character(text, left);
		if (!size) {
			fputs("\\ufffd", stream);
			size = 1;
		} else if (size == 1 && (*text < 0x20 || *text == 0x7f)) {
			fprintf(stream, "\\u%04x", *text);
		} else if (*text == '"' || *text == '\\') {
			fprintf(stream, "\\%c", *text);
		} else if (size == 2 && !reef_text_is_plain(text, size)) {
			fprintf(stream, "\\u%04x",
				(text[0] & 0x1f) << 6 | (text[1] & 0x3f));
		} else {
			fwrite(text, 1, size, stream);
		}
	}
	fputc('"', stream);
}
