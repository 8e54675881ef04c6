/* fields.c - the bytes of a field. */
#include "wire/fields.h"

static uint64_t get_number(const void *from, uint8_t width)
{
	uint32_t value32;
	uint64_t value64;

	if (width == 1)
		return *(const uint8_t *)from;
	memcpy(width == 4 ? (void *)&value32 : &value64, from, width);
	return width == 4 ? value32 : value64;
}

static void set_number(void *to, uint8_t width, uint64_t value)
{
	uint32_t value32 = (uint32_t)value;

	if (width == 1)
		*(uint8_t *)to = (uint8_t)value;
	else
		memcpy(to, width == 4 ? (void *)&value32 : &value, width);
}

void reef_field_encode(const struct reef_field *field, const void *object,
		       struct reef_cursor_out *out)
{
	const char *from = (const char *)object + field->offset;
	const struct reef_text *text = (const void *)from;

	if (!field->width) {
		reef_cursor_put(out, 2, text->size);
		reef_cursor_bytes(out, text->bytes, text->size);
		return;
	}
	for (uint8_t i = 0; i < field->count; i++, from += field->width)
		reef_cursor_put(out, field->width,
				get_number(from, field->width));
}

void reef_field_decode(const struct reef_field *field, void *object,
		       struct reef_cursor_in *in)
{
	char *to = (char *)object + field->offset;
	struct reef_text *text = (void *)to;

	if (!field->width) {
		text->size = (uint16_t)reef_cursor_get(in, 2);
		text->bytes = (const char *)reef_cursor_take(in, text->size);
		return;
	}
	for (uint8_t i = 0; i < field->count; i++, to += field->width)
		set_number(to, field->width, reef_cursor_get(in, field->width));
}
