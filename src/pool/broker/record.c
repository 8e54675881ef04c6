/* record.c - which fields a record has, and their bytes: origin and request,
 * then in the order of the list, integers little-endian, a text as 16 bits of
 * length and its bytes. */
#include "pool/broker/record.h"

#include "base/log.h"
#include "wire/cursor.h"

#include <reef/error.h>

#define FIELDS_MAX 7

struct field {
	uint16_t offset;
	uint8_t width; /* 0: a text */
};

#define NUMBER(field)                                                          \
	{                                                                      \
		offsetof(struct reef_record, field),                           \
			sizeof(((struct reef_record *)0)->field)               \
	}
#define TEXT(field)                                                            \
	{                                                                      \
		offsetof(struct reef_record, field), 0                         \
	}

static const struct layout {
	uint8_t count;
	struct field fields[FIELDS_MAX];
} layouts[REEF_RECORD_TYPES] = {
	[REEF_RECORD_POOL] = {1, {NUMBER(value)}},
	[REEF_RECORD_BROKER] = {1, {NUMBER(value)}},
	[REEF_RECORD_SETTING] = {2, {NUMBER(id), NUMBER(value)}},
	[REEF_RECORD_USER_ADD] = {2, {NUMBER(id), TEXT(name)}},
	[REEF_RECORD_USER_ERA] = {2, {NUMBER(id), NUMBER(era)}},
	[REEF_RECORD_USER_REMOVE] = {1, {NUMBER(id)}},
	[REEF_RECORD_NODE_ADD] = {5,
				  {NUMBER(id), NUMBER(incarnation),
				   NUMBER(size), TEXT(name), TEXT(addresses)}},
	[REEF_RECORD_NODE_RETURN] = {4,
				     {NUMBER(id), NUMBER(incarnation),
				      NUMBER(size), TEXT(addresses)}},
	[REEF_RECORD_NODE_STATE] = {3,
				    {NUMBER(id), NUMBER(state), NUMBER(value)}},
	[REEF_RECORD_NODE_REMOVE] = {1, {NUMBER(id)}},
	[REEF_RECORD_SPACE_ADD] = {7,
				   {NUMBER(id), NUMBER(kind), NUMBER(keeping),
				    NUMBER(size), NUMBER(session), NUMBER(user),
				    TEXT(name)}},
	[REEF_RECORD_SPACE_QUOTA] = {2, {NUMBER(id), NUMBER(size)}},
	[REEF_RECORD_SPACE_ERA] = {2, {NUMBER(id), NUMBER(era)}},
	[REEF_RECORD_SPACE_REMOVE] = {1, {NUMBER(id)}},
	[REEF_RECORD_EXTENT_ADD] = {5,
				    {NUMBER(id), NUMBER(space), NUMBER(ordinal),
				     NUMBER(node), NUMBER(size)}},
	[REEF_RECORD_EXTENT_MOVE] = {2, {NUMBER(id), NUMBER(node)}},
	[REEF_RECORD_EXTENT_MOVED] = {2, {NUMBER(id), NUMBER(era)}},
	[REEF_RECORD_EXTENT_STAY] = {1, {NUMBER(id)}},
	[REEF_RECORD_EXTENT_LOST] = {2, {NUMBER(id), NUMBER(era)}},
	[REEF_RECORD_EXTENT_REMOVE] = {1, {NUMBER(id)}},
	[REEF_RECORD_SESSION_OPEN] = {2, {NUMBER(session), NUMBER(user)}},
	[REEF_RECORD_SESSION_STATE] = {2, {NUMBER(session), NUMBER(state)}},
	[REEF_RECORD_NAME_BIND] = {3,
				   {NUMBER(space), NUMBER(value), TEXT(name)}},
	[REEF_RECORD_NAME_REPLACE] = {4,
				      {NUMBER(space), NUMBER(generation),
				       NUMBER(value), TEXT(name)}},
	[REEF_RECORD_NAME_UNBIND] = {3,
				     {NUMBER(space), NUMBER(generation),
				      TEXT(name)}},
	[REEF_RECORD_USE] = {2, {NUMBER(session), NUMBER(space)}},
	[REEF_RECORD_USE_END] = {2, {NUMBER(session), NUMBER(space)}},
	[REEF_RECORD_RECLAIM] = {1, {NUMBER(value)}},
};

size_t reef_record_size_max(const struct reef_record *record)
{
	return 8 + FIELDS_MAX * 8 + record->name.size + record->addresses.size;
}

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

size_t reef_record_encode(const struct reef_record *record, uint8_t *bytes)
{
	const struct layout *layout = &layouts[record->type];
	const struct field *field = layout->fields;
	const struct reef_text *text;
	uint8_t *at = bytes, whole[8];

	reef_assert(record->type > 0 && record->type < REEF_RECORD_TYPES);
	reef_put32(at, record->origin);
	reef_put32(at + 4, record->request);
	at += 8;
	for (; field < layout->fields + layout->count; field++) {
		const char *from = (const char *)record + field->offset;

		if (field->width) {
			reef_put64(whole, get_number(from, field->width));
			memcpy(at, whole, field->width);
			at += field->width;
			continue;
		}
		text = (const struct reef_text *)(const void *)from;
		reef_put16(at, text->size);
		if (text->size > 0)
			memcpy(at + 2, text->bytes, text->size);
		at += 2 + text->size;
	}
	return (size_t)(at - bytes);
}

int reef_record_decode(uint16_t type, const void *bytes, size_t size,
		       struct reef_record *out)
{
	struct reef_cursor_in in = {.bytes = bytes, .left = size};
	struct reef_record record = {.type = type};
	const struct layout *layout;
	const struct field *field;

	if (type == 0 || type >= REEF_RECORD_TYPES)
		return -REEF_EVERSION;
	layout = &layouts[type];
	field = layout->fields;
	record.origin = (uint32_t)reef_cursor_get(&in, 4);
	record.request = (uint32_t)reef_cursor_get(&in, 4);
	for (; field < layout->fields + layout->count; field++) {
		void *to = (char *)&record + field->offset;
		struct reef_text *text = to;

		if (field->width) {
			set_number(to, field->width,
				   reef_cursor_get(&in, field->width));
			continue;
		}
		text->size = (uint16_t)reef_cursor_get(&in, 2);
		text->bytes = (const char *)reef_cursor_take(&in, text->size);
	}
	if (in.failed || in.left > 0)
		return -REEF_ECORRUPT;
	*out = record;
	return 0;
}
