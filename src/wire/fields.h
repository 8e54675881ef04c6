/* fields.h - a flat struct as bytes, by a list of its fields.
 *
 * In the order of the list: integers little-endian, arrays of them one after
 * the other, a text as 16 bits of length and its bytes.
 *
 * Thread: any. */
#ifndef REEF_WIRE_FIELDS_H
#define REEF_WIRE_FIELDS_H

#include "wire/cursor.h"

struct reef_field {
	uint16_t offset;
	uint8_t width; /* 1, 4 or 8; 0: a text */
	uint8_t count; /* of an array; else 1 */
};

#define REEF_FIELD_NUMBER(type, member)                                        \
	{                                                                      \
		offsetof(type, member), sizeof(((type *)0)->member), 1         \
	}
#define REEF_FIELD_ARRAY(type, member)                                         \
	{                                                                      \
		offsetof(type, member), sizeof(((type *)0)->member[0]),        \
			sizeof(((type *)0)->member) /                          \
				sizeof(((type *)0)->member[0])                 \
	}
#define REEF_FIELD_TEXT(type, member)                                          \
	{                                                                      \
		offsetof(type, member), 0, 1                                   \
	}

/* Append the field; sticks in out->failed. */
void reef_field_encode(const struct reef_field *field, const void *object,
		       struct reef_cursor_out *out);

/* Fill in the field; sticks in in->failed. A text points into the input. */
void reef_field_decode(const struct reef_field *field, void *object,
		       struct reef_cursor_in *in);

#endif
