/* json.c - JSON, as every command prints it. */
#include "cmd/print/json.h"

#include "base/log.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

static void write_quoted(FILE *stream, const char *text, size_t left)
{
	size_t size;

	fputc('"', stream);
	for (; left; text += size, left -= size) {
		size = reef_text_character(text, left);
		if (!size) {
			fputs("\\ufffd", stream);
			size = 1;
		} else if (size == 1 &&
			   ((uint8_t)*text < 0x20 || *text == 0x7f)) {
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

static bool is_utf8(const char *text, size_t left)
{
	size_t size;

	for (; left; text += size, left -= size) {
		size = reef_text_character(text, left);
		if (!size)
			return false;
	}
	return true;
}

/* As RFC 4648 has it, with = at the end. */
static void write_base64(FILE *stream, const uint8_t *bytes, size_t size)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "abcdefghijklmnopqrstuvwxyz0123456789+/";
	uint32_t three;

	fputc('"', stream);
	for (size_t at = 0; at < size; at += 3) {
		three = (uint32_t)bytes[at] << 16;
		if (at + 1 < size)
			three |= (uint32_t)bytes[at + 1] << 8;
		if (at + 2 < size)
			three |= bytes[at + 2];
		fputc(digits[three >> 18], stream);
		fputc(digits[three >> 12 & 63], stream);
		fputc(at + 1 < size ? digits[three >> 6 & 63] : '=', stream);
		fputc(at + 2 < size ? digits[three & 63] : '=', stream);
	}
	fputc('"', stream);
}

/* Write what stands before a value: a comma, a key. */
static void open_value(struct reef_json *json, const char *key)
{
	uint32_t last = json->depth - 1;

	if (!json->depth) {
		reef_assert(!key);
		return;
	}
	reef_assert(!key == (json->kinds[last] == REEF_JSON_ARRAY));
	if (json->filled[last])
		fputc(',', json->stream);
	json->filled[last] = true;
	if (!key)
		return;
	write_quoted(json->stream, key, strlen(key));
	fputc(':', json->stream);
}

/* Write what stands behind a value. */
static void close_value(struct reef_json *json)
{
	if (!json->depth)
		fputc('\n', json->stream);
}

void reef_json_begin(struct reef_json *json, const char *key,
		     enum reef_json_kind kind)
{
	reef_assert(json->depth < REEF_JSON_DEPTH_MAX);
	open_value(json, key);
	fputc(kind == REEF_JSON_OBJECT ? '{' : '[', json->stream);
	json->kinds[json->depth] = kind;
	json->filled[json->depth++] = false;
}

void reef_json_end(struct reef_json *json)
{
	reef_assert(json->depth);
	json->depth--;
	fputc(json->kinds[json->depth] == REEF_JSON_OBJECT ? '}' : ']',
	      json->stream);
	close_value(json);
}

void reef_json_text(struct reef_json *json, const char *key,
		    struct reef_text text)
{
	open_value(json, key);
	write_quoted(json->stream, text.bytes, text.size);
	close_value(json);
}

void reef_json_bytes(struct reef_json *json, const char *key, const void *bytes,
		     size_t size)
{
	char other[32];

	if (is_utf8(bytes, size)) {
		open_value(json, key);
		write_quoted(json->stream, bytes, size);
		close_value(json);
		return;
	}
	snprintf(other, sizeof(other), "%s_base64", key);
	open_value(json, other);
	write_base64(json->stream, bytes, size);
	close_value(json);
}

void reef_json_string(struct reef_json *json, const char *key, const char *text)
{
	open_value(json, key);
	write_quoted(json->stream, text, strlen(text));
	close_value(json);
}

/* Write a value that needs no quotes. */
static void write_word(struct reef_json *json, const char *key,
		       const char *word)
{
	open_value(json, key);
	fputs(word, json->stream);
	close_value(json);
}

void reef_json_number(struct reef_json *json, const char *key, uint64_t value)
{
	char word[24];

	snprintf(word, sizeof(word), "%llu", (unsigned long long)value);
	write_word(json, key, word);
}

void reef_json_double(struct reef_json *json, const char *key, double value)
{
	char word[330];

	if (!isfinite(value))
		return write_word(json, key, "null");
	snprintf(word, sizeof(word), fabs(value) >= 1e6 ? "%.0f" : "%.6g",
		 value);
	write_word(json, key, word);
}

void reef_json_bool(struct reef_json *json, const char *key, bool value)
{
	write_word(json, key, value ? "true" : "false");
}

void reef_json_null(struct reef_json *json, const char *key)
{
	write_word(json, key, "null");
}
