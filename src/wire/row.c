/* row.c - which fields each kind of row has, and checked decoding. */
#include "wire/row.h"

#include "base/log.h"
#include "wire/fields.h"

#include <assert.h>
#include <reef/error.h>

#define FIELDS_MAX 14

#define NUMBER(member) REEF_FIELD_NUMBER(struct reef_row, member)
#define ARRAY(member) REEF_FIELD_ARRAY(struct reef_row, member)
#define TEXT(member) REEF_FIELD_TEXT(struct reef_row, member)

static_assert(sizeof(struct reef_row) == offsetof(struct reef_row, node) +
						 sizeof(struct reef_row_node),
	      "the first member is the largest");

/* The fields of each kind, up to one with count 0. */
static const struct reef_field fields[REEF_ROW_KINDS][FIELDS_MAX + 1] = {
	[REEF_ROW_EXTENT] = {NUMBER(extent.number), NUMBER(extent.ordinal),
			     NUMBER(extent.space), NUMBER(extent.node),
			     NUMBER(extent.epoch), NUMBER(extent.state),
			     NUMBER(extent.size), NUMBER(extent.copy),
			     NUMBER(extent.twin), NUMBER(extent.is_twin),
			     ARRAY(extent.keys), ARRAY(extent.read_keys)},
	[REEF_ROW_NODE] = {NUMBER(node.number), NUMBER(node.state),
			   NUMBER(node.incarnation), NUMBER(node.pool_epoch),
			   NUMBER(node.domain), NUMBER(node.capacity),
			   NUMBER(node.used), NUMBER(node.extents),
			   NUMBER(node.silent_ns), NUMBER(node.is_away),
			   NUMBER(node.machine_free), ARRAY(node.secret),
			   TEXT(node.name), TEXT(node.addresses)},
	[REEF_ROW_SESSION] = {NUMBER(session.id), NUMBER(session.user),
			      NUMBER(session.state), NUMBER(session.pid),
			      NUMBER(session.silent_ns),
			      NUMBER(session.is_away), NUMBER(session.waiting),
			      NUMBER(session.holds_ns), ARRAY(session.counts),
			      TEXT(session.program), TEXT(session.fabric)},
	[REEF_ROW_SPACE] = {NUMBER(space.number), NUMBER(space.kind),
			    NUMBER(space.keeping), NUMBER(space.era),
			    NUMBER(space.session), NUMBER(space.user),
			    NUMBER(space.extents), NUMBER(space.quota),
			    NUMBER(space.used), NUMBER(space.lost),
			    NUMBER(space.copies), NUMBER(space.degraded),
			    TEXT(space.name)},
	[REEF_ROW_NAME] = {NUMBER(name.value), NUMBER(name.generation),
			   TEXT(name.name)},
	[REEF_ROW_USER] = {NUMBER(user.number), NUMBER(user.era),
			   ARRAY(user.uses), ARRAY(user.limits),
			   NUMBER(user.own), TEXT(user.name)},
	[REEF_ROW_EVENT] = {NUMBER(event.number), NUMBER(event.age_ns),
			    TEXT(event.text)},
	[REEF_ROW_SETTING] = {NUMBER(setting.value), TEXT(setting.name)},
	[REEF_ROW_LINK] = {NUMBER(link.node), NUMBER(link.number),
			   NUMBER(link.incarnation), NUMBER(link.fate)},
};
#undef NUMBER
#undef ARRAY
#undef TEXT

const struct reef_field *reef_row_fields(uint8_t row)
{
	reef_assert(row > 0 && row < REEF_ROW_KINDS);
	return fields[row];
}

void reef_row_encode(const struct reef_row *row, struct reef_cursor_out *out)
{
	const struct reef_field *field = reef_row_fields(row->row);

	reef_cursor_put(out, 1, row->row);
	for (; field->count; field++)
		reef_field_encode(field, row, out);
}

int reef_row_decode(struct reef_cursor_in *in, struct reef_row *out)
{
	const struct reef_field *field;
	struct reef_row row = {0};

	if (in->failed)
		return -REEF_EPROTO;
	if (!in->left)
		return 0;
	row.row = (uint8_t)reef_cursor_get(in, 1);
	if (row.row == 0 || row.row >= REEF_ROW_KINDS) {
		in->failed = true;
		return -REEF_EPROTO;
	}
	for (field = fields[row.row]; field->count; field++)
		reef_field_decode(field, &row, in);
	if (in->failed)
		return -REEF_EPROTO;
	*out = row;
	return 1;
}
