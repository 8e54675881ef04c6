/* record.c - which fields a record has, and their bytes: origin and request,
 * then in the order of the list, as wire/fields.h says. */
#include "pool/broker/state/record.h"

#include "base/log.h"
#include "wire/fields.h"

#include <reef/error.h>

#define FIELDS_MAX 9

#define NUMBER(member) REEF_FIELD_NUMBER(struct reef_record, member)
#define TEXT(member) REEF_FIELD_TEXT(struct reef_record, member)

static const struct layout {
	uint8_t count;
	struct reef_field fields[FIELDS_MAX];
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
	[REEF_RECORD_SPACE_MAKE] = {9,
				    {NUMBER(id), NUMBER(kind), NUMBER(keeping),
				     NUMBER(size), NUMBER(session),
				     NUMBER(user), NUMBER(value), NUMBER(state),
				     TEXT(name)}},
	[REEF_RECORD_EXTENT_TWIN] = {5,
				     {NUMBER(id), NUMBER(space), NUMBER(node),
				      NUMBER(size), NUMBER(value)}},
	[REEF_RECORD_EXTENT_PAIR] = {3,
				     {NUMBER(id), NUMBER(value), NUMBER(era)}},
	[REEF_RECORD_EXTENT_OPEN] = {1, {NUMBER(id)}},
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
	[REEF_RECORD_USE_STUCK] = {2, {NUMBER(session), NUMBER(space)}},
	[REEF_RECORD_USER_LIMIT] = {3,
				    {NUMBER(id), NUMBER(kind), NUMBER(value)}},
	[REEF_RECORD_USER_EXPEL] = {1, {NUMBER(id)}},
	[REEF_RECORD_RECLAIM] = {1, {NUMBER(value)}},
	[REEF_RECORD_SPACE_FORGET] = {1, {NUMBER(id)}},
	[REEF_RECORD_EXTENT_PLACE] = {6,
				      {NUMBER(id), NUMBER(space),
				       NUMBER(ordinal), NUMBER(node),
				       NUMBER(size), NUMBER(value)}},
	[REEF_RECORD_EXTENT_MADE] = {1, {NUMBER(id)}},
	[REEF_RECORD_NODE_KEEP] = {2, {NUMBER(id), NUMBER(value)}},
	[REEF_RECORD_BASE] = {2, {NUMBER(value), NUMBER(generation)}},
	[REEF_RECORD_NUMBERS] = {3,
				 {NUMBER(id), NUMBER(generation),
				  NUMBER(ordinal)}},
	[REEF_RECORD_SPACE_NAME] = {2, {NUMBER(id), TEXT(name)}},
	[REEF_RECORD_EXTENT_RESTORE] = {6,
					{NUMBER(id), NUMBER(space),
					 NUMBER(ordinal), NUMBER(node),
					 NUMBER(size), NUMBER(era)}},
	[REEF_RECORD_SESSION_PAST] = {2, {NUMBER(session), NUMBER(space)}},
	[REEF_RECORD_SESSION_PROCESS] = {4,
					 {NUMBER(session), NUMBER(id),
					  NUMBER(generation), NUMBER(value)}},
};

size_t reef_record_size_max(const struct reef_record *record)
{
	return 8 + FIELDS_MAX * 8 + record->name.size + record->addresses.size;
}

size_t reef_record_encode(const struct reef_record *record, uint8_t *bytes)
{
	const struct layout *layout = &layouts[record->type];
	struct reef_cursor_out out = {
		.bytes = bytes,
		.room = reef_record_size_max(record), /* so it never grows */
	};

	reef_assert(record->type > 0 && record->type < REEF_RECORD_TYPES);
	reef_cursor_put(&out, 4, record->origin);
	reef_cursor_put(&out, 4, record->request);
	for (uint8_t i = 0; i < layout->count; i++)
		reef_field_encode(&layout->fields[i], record, &out);
	reef_assert(out.bytes == bytes);
	return out.size;
}

int reef_record_decode(uint16_t type, const void *bytes, size_t size,
		       struct reef_record *out)
{
	struct reef_cursor_in in = {.bytes = bytes, .left = size};
	struct reef_record record = {.type = type};
	const struct layout *layout;

	if (type == 0 || type >= REEF_RECORD_TYPES)
		return -REEF_EVERSION;
	layout = &layouts[type];
	record.origin = (uint32_t)reef_cursor_get(&in, 4);
	record.request = (uint32_t)reef_cursor_get(&in, 4);
	for (uint8_t i = 0; i < layout->count; i++)
		reef_field_decode(&layout->fields[i], &record, &in);
	if (in.failed || in.left > 0)
		return -REEF_ECORRUPT;
	*out = record;
	return 0;
}
