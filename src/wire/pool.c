/* pool.c - which fields each message and row has, and checked decoding. */
#include "wire/pool.h"

#include "base/log.h"
#include "wire/fields.h"

#include <reef/error.h>

#define STATUS_MIN (-65535)

#define FIELDS_MAX 12

/* The fields of a body, up to one with count 0, and whether rows follow. */
struct list {
	struct reef_field fields[FIELDS_MAX + 1];
	bool rows;
};

/* --- what is asked --- */

#define NUMBER(member) REEF_FIELD_NUMBER(struct reef_body, ask.member)
#define ARRAY(member) REEF_FIELD_ARRAY(struct reef_body, ask.member)
#define TEXT(member) REEF_FIELD_TEXT(struct reef_body, ask.member)
#define LIST(kind, ...) [REEF_POOL_##kind] = {.fields = {__VA_ARGS__}}

static const struct list asks[REEF_POOL_KINDS] = {
	LIST(SESSION_OPEN, TEXT(session_open.program), NUMBER(session_open.pid),
	     NUMBER(session_open.flags)),
	LIST(SESSION_RESUME, NUMBER(session_resume.session),
	     ARRAY(session_resume.secret), TEXT(session_resume.program),
	     NUMBER(session_resume.pid)),
	LIST(SPACE_OPEN, TEXT(space_open.name), NUMBER(space_open.flags),
	     NUMBER(space_open.kind), NUMBER(space_open.keeping),
	     NUMBER(space_open.quota), NUMBER(space_open.copies),
	     NUMBER(space_open.space), NUMBER(space_open.rights),
	     NUMBER(space_open.era), ARRAY(space_open.secret)),
	LIST(SPACE_CLOSE, NUMBER(space_close.space)),
	LIST(SPACE_EXTENTS, NUMBER(space_extents.space),
	     NUMBER(space_extents.version), NUMBER(space_extents.ordinal)),
	LIST(SPACE_DROP, NUMBER(space_drop.space)),
	LIST(SPACE_QUOTA, NUMBER(space_quota.space), NUMBER(space_quota.quota)),
	LIST(SPACE_REVOKE, NUMBER(space_revoke.space)),
	LIST(SPACE_FORGET, NUMBER(space_forget.space)),
	LIST(SPACE_TOKEN, NUMBER(space_token.space),
	     NUMBER(space_token.rights)),
	LIST(SPACE_SAVE, NUMBER(space_save.space), NUMBER(space_save.step),
	     NUMBER(space_save.number), NUMBER(space_save.after)),
	LIST(SPACE_RESTORE, NUMBER(space_restore.space),
	     NUMBER(space_restore.step), NUMBER(space_restore.extent),
	     NUMBER(space_restore.ordinal), NUMBER(space_restore.epoch),
	     NUMBER(space_restore.session), NUMBER(space_restore.size),
	     NUMBER(space_restore.generation), TEXT(space_restore.name)),
	LIST(EXTENT_ADD, NUMBER(extent_add.space), NUMBER(extent_add.size),
	     NUMBER(extent_add.since)),
	LIST(EXTENT_REMOVE, NUMBER(extent_remove.space),
	     NUMBER(extent_remove.extent)),
	LIST(NAME_BIND, NUMBER(name_bind.space), TEXT(name_bind.name),
	     NUMBER(name_bind.value)),
	LIST(NAME_REPLACE, NUMBER(name_replace.space), TEXT(name_replace.name),
	     NUMBER(name_replace.value), NUMBER(name_replace.generation)),
	LIST(NAME_UNBIND, NUMBER(name_unbind.space), TEXT(name_unbind.name),
	     NUMBER(name_unbind.generation)),
	LIST(NAME_LOOKUP, NUMBER(name_lookup.space), TEXT(name_lookup.name)),
	LIST(NAME_LIST, NUMBER(name_list.space), TEXT(name_list.prefix),
	     TEXT(name_list.after)),
	LIST(LIST, NUMBER(list.row), NUMBER(list.after)),
	LIST(USER_ADD, TEXT(user_add.name)),
	LIST(USER_REMOVE, NUMBER(user_remove.user), NUMBER(user_remove.flags)),
	LIST(USER_ROTATE, NUMBER(user_rotate.user),
	     NUMBER(user_rotate.after_ns)),
	LIST(USER_LIMIT, NUMBER(user_limit.user), NUMBER(user_limit.limit),
	     NUMBER(user_limit.value)),
	LIST(NODE_ADD, TEXT(node_add.name)),
	LIST(NODE_DRAIN, NUMBER(node_drain.node), NUMBER(node_drain.flags)),
	LIST(NODE_RECLAIM, NUMBER(node_reclaim.node),
	     NUMBER(node_reclaim.bytes)),
	LIST(NODE_REMOVE, NUMBER(node_remove.node)),
	LIST(SESSION_END, NUMBER(session_end.session)),
	LIST(SETTING, TEXT(setting.name), NUMBER(setting.value),
	     NUMBER(setting.flags)),
	LIST(NODE_REGISTER, NUMBER(node_register.incarnation),
	     NUMBER(node_register.domain), NUMBER(node_register.capacity),
	     TEXT(node_register.addresses),
	     NUMBER(node_register.followed_epoch),
	     NUMBER(node_register.followed_start),
	     NUMBER(node_register.confirmed_epoch),
	     NUMBER(node_register.confirmed_start),
	     NUMBER(node_register.confirmed), NUMBER(node_register.pool),
	     NUMBER(node_register.keeps), NUMBER(node_register.nic),
	     NUMBER(node_register.remembers)),
	[REEF_POOL_NODE_EXTENTS] = {.rows = true},
	LIST(NODE_PULSE, NUMBER(node_pulse.incarnation),
	     NUMBER(node_pulse.lent), NUMBER(node_pulse.machine_free),
	     NUMBER(node_pulse.links), NUMBER(node_pulse.wanted)),
	LIST(EXTENT_CREATE, NUMBER(extent_create.extent),
	     NUMBER(extent_create.space), NUMBER(extent_create.epoch),
	     NUMBER(extent_create.size), NUMBER(extent_create.copy)),
	LIST(EXTENT_DROP, NUMBER(extent_drop.extent)),
	LIST(EXTENT_CLOSE, NUMBER(extent_close.extent),
	     NUMBER(extent_close.flags)),
	LIST(EXTENT_REOPEN, NUMBER(extent_reopen.extent),
	     NUMBER(extent_reopen.epoch)),
	LIST(EXTENT_PULL, NUMBER(extent_pull.copy.extent),
	     NUMBER(extent_pull.copy.space), NUMBER(extent_pull.copy.epoch),
	     NUMBER(extent_pull.copy.size), NUMBER(extent_pull.copy.copy),
	     NUMBER(extent_pull.source), NUMBER(extent_pull.source_epoch),
	     NUMBER(extent_pull.domain), TEXT(extent_pull.addresses),
	     ARRAY(extent_pull.keys), ARRAY(extent_pull.secret)),
	LIST(FENCE, NUMBER(fence.session)),
	[REEF_POOL_SETTLE] = {.rows = true},
	LIST(END, NUMBER(end.session), NUMBER(end.number)),
	LIST(RECOVER, NUMBER(recover.space), ARRAY(recover.sessions)),
	LIST(CONFIRM, NUMBER(confirm.start), NUMBER(confirm.sequence)),
};
#undef NUMBER
#undef ARRAY

/* --- what is replied --- */

#define NUMBER(member) REEF_FIELD_NUMBER(struct reef_body, reply.member)
#define ARRAY(member) REEF_FIELD_ARRAY(struct reef_body, reply.member)
#define WITH_ROWS(kind, ...)                                                   \
	[REEF_POOL_##kind] = {.rows = true, .fields = {__VA_ARGS__}}
#define SESSION(kind)                                                          \
	LIST(kind, NUMBER(session.session), ARRAY(session.secret),             \
	     NUMBER(session.ttl_ns), NUMBER(session.renewal_key),              \
	     NUMBER(session.table_key), NUMBER(session.pool),                  \
	     NUMBER(session.pool_epoch), NUMBER(session.extent_size))

static const struct list replies[REEF_POOL_KINDS] = {
	SESSION(SESSION_OPEN),
	SESSION(SESSION_RESUME),
	WITH_ROWS(SPACE_OPEN, NUMBER(space_open.space),
		  NUMBER(space_open.rights), NUMBER(space_open.extent_size),
		  NUMBER(space_open.keeping), NUMBER(space_open.kind),
		  NUMBER(space_open.version), NUMBER(space_open.flags),
		  NUMBER(space_open.user), NUMBER(space_open.copies)),
	WITH_ROWS(SPACE_EXTENTS, NUMBER(space_extents.version),
		  NUMBER(space_extents.flags)),
	LIST(SPACE_REVOKE, NUMBER(space_revoke.era)),
	LIST(SPACE_TOKEN, NUMBER(space_token.space), NUMBER(space_token.era),
	     NUMBER(space_token.rights), ARRAY(space_token.secret)),
	[REEF_POOL_EXTENT_ADD] = {.rows = true},
	WITH_ROWS(SPACE_SAVE, NUMBER(space_save.number),
		  NUMBER(space_save.state), NUMBER(space_save.pool),
		  NUMBER(space_save.broker_epoch), NUMBER(space_save.kind),
		  NUMBER(space_save.keeping), NUMBER(space_save.quota),
		  NUMBER(space_save.flags)),
	[REEF_POOL_SPACE_RESTORE] = {.rows = true},
	LIST(NAME_BIND, NUMBER(name_bind.generation)),
	LIST(NAME_REPLACE, NUMBER(name_bind.generation)),
	LIST(NAME_LOOKUP, NUMBER(name_lookup.value),
	     NUMBER(name_lookup.generation)),
	WITH_ROWS(NAME_LIST, NUMBER(name_list.flags)),
	WITH_ROWS(STATUS, NUMBER(status.pool), NUMBER(status.pool_epoch),
		  NUMBER(status.broker_epoch), NUMBER(status.uptime_ns),
		  NUMBER(status.events), NUMBER(status.stuck),
		  ARRAY(status.counters), ARRAY(status.broker)),
	WITH_ROWS(LIST, NUMBER(list.flags)),
	LIST(USER_ADD, NUMBER(user_add.user), NUMBER(user_add.era),
	     ARRAY(user_add.secret)),
	LIST(USER_ROTATE, NUMBER(user_add.user), NUMBER(user_add.era),
	     ARRAY(user_add.secret)),
	LIST(USER_REMOVE, NUMBER(user_remove.sessions),
	     NUMBER(user_remove.spaces)),
	LIST(NODE_ADD, NUMBER(node_add.node), ARRAY(node_add.secret)),
	LIST(NODE_RECLAIM, NUMBER(node_reclaim.bytes)),
	LIST(SETTING, NUMBER(setting.value)),
	WITH_ROWS(NODE_REGISTER, NUMBER(node_register.node),
		  NUMBER(node_register.ttl_ns),
		  NUMBER(node_register.broker_epoch),
		  NUMBER(node_register.pool), NUMBER(node_register.period_ns)),
	LIST(NODE_PULSE, NUMBER(node_pulse.unsure),
	     NUMBER(node_pulse.period_ns)),
	LIST(EXTENT_CREATE, ARRAY(extent.keys), ARRAY(extent.read_keys)),
	LIST(EXTENT_CLOSE, ARRAY(extent.keys)),
	LIST(EXTENT_REOPEN, ARRAY(extent.keys), ARRAY(extent.read_keys)),
	LIST(EXTENT_PULL, ARRAY(extent.keys), ARRAY(extent.read_keys)),
	LIST(RECOVER, ARRAY(recover.errors)),
	LIST(TIME, NUMBER(time.unix_ns)),
	[REEF_POOL_SETTLE] = {.rows = true},
};
#undef NUMBER
#undef ARRAY
#undef TEXT
#undef LIST
#undef WITH_ROWS
#undef SESSION

static const struct list nothing;

/* A failed answer has no body. */
static const struct list *list_of(const struct reef_pool_header *header)
{
	if (header->type == REEF_POOL_ANSWER && header->status)
		return &nothing; /* of whatever kind */
	reef_assert(header->kind > 0 && header->kind < REEF_POOL_KINDS);
	return header->type == REEF_POOL_ANSWER ? &replies[header->kind]
						: &asks[header->kind];
}

const struct reef_field *reef_pool_fields(const struct reef_pool_header *header)
{
	return list_of(header)->fields;
}

bool reef_pool_has_rows(const struct reef_pool_header *header)
{
	return list_of(header)->rows;
}

struct reef_text *reef_ask_text(uint16_t kind, union reef_ask *ask,
				uint32_t index)
{
	const struct reef_field *field;

	static_assert(offsetof(struct reef_body, ask) == 0, "offsets");
	reef_assert(kind > 0 && kind < REEF_POOL_KINDS);
	for (field = asks[kind].fields; field->count; field++)
		if (field->width == 0 && index-- == 0)
			return (void *)((char *)ask + field->offset);
	return NULL;
}

/* --- messages --- */

static void encode_header(const struct reef_pool_header *header,
			  struct reef_cursor_out *out)
{
	reef_cursor_put(out, 1, header->version);
	reef_cursor_put(out, 1, header->type);
	reef_cursor_put(out, 2, header->kind);
	reef_cursor_put(out, 4, header->id);
	reef_cursor_put(out, 4, (uint32_t)header->status);
	reef_cursor_put(out, 4, header->sequence);
	reef_cursor_put(out, 8, header->epoch);
}

void reef_pool_encode(const struct reef_pool_header *header,
		      const struct reef_body *body, struct reef_cursor_out *out)
{
	static const struct reef_body empty;
	const struct reef_field *field = reef_pool_fields(header);

	if (!body)
		body = &empty;
	encode_header(header, out);
	for (; field->count; field++)
		reef_field_encode(field, body, out);
	if (reef_pool_has_rows(header))
		reef_cursor_bytes(out, body->rows, body->rows_size);
}

static void decode_header(struct reef_cursor_in *in,
			  struct reef_pool_header *header)
{
	header->version = (uint8_t)reef_cursor_get(in, 1);
	header->type = (uint8_t)reef_cursor_get(in, 1);
	header->kind = (uint16_t)reef_cursor_get(in, 2);
	header->id = (uint32_t)reef_cursor_get(in, 4);
	header->status = (int32_t)(uint32_t)reef_cursor_get(in, 4);
	header->sequence = (uint32_t)reef_cursor_get(in, 4);
	header->epoch = reef_cursor_get(in, 8);
}

static int check_header(const struct reef_pool_header *header)
{
	bool is_note = header->type == REEF_POOL_NOTE;

	if (header->version != REEF_POOL_VERSION)
		return -REEF_EVERSION;
	if (header->type == 0 || header->type >= REEF_POOL_TYPES)
		return -REEF_EPROTO;
	if (header->kind == 0 || header->kind >= REEF_POOL_KINDS)
		return -REEF_EVERSION;
	if (is_note != reef_pool_is_note(header->kind) ||
	    is_note != (header->id == 0))
		return -REEF_EPROTO;
	if (header->type != REEF_POOL_REQUEST && header->sequence)
		return -REEF_EPROTO;
	if (header->status > 0 || header->status < STATUS_MIN ||
	    (header->type != REEF_POOL_ANSWER && header->status))
		return -REEF_EPROTO;
	return 0;
}

/* Leave the rest of the message to the body, once every row of it decodes. */
static int decode_rows(struct reef_cursor_in *in, struct reef_body *body)
{
	struct reef_cursor_in rows = *in;
	struct reef_row row;
	int rc;

	body->rows_size = in->left;
	body->rows = reef_cursor_take(in, in->left);
	if (!body->rows)
		return -REEF_EPROTO;
	while ((rc = reef_row_decode(&rows, &row)) > 0)
		;
	return rc;
}

int reef_pool_decode(const void *bytes, size_t size,
		     struct reef_pool_header *header, struct reef_body *body)
{
	struct reef_cursor_in in = {.bytes = bytes, .left = size};
	struct reef_pool_header head;
	struct reef_body fields = {0};
	const struct reef_field *field;
	int rc;

	decode_header(&in, &head);
	if (in.failed)
		return -REEF_EPROTO;
	rc = check_header(&head);
	if (rc)
		return rc;
	for (field = reef_pool_fields(&head); field->count; field++)
		reef_field_decode(field, &fields, &in);
	if (reef_pool_has_rows(&head))
		rc = decode_rows(&in, &fields);
	if (rc)
		return rc;
	if (in.failed || in.left)
		return -REEF_EPROTO;
	*header = head;
	*body = fields;
	return 0;
}

bool reef_pool_is_foreign(const void *bytes, size_t size,
			  struct reef_pool_header *header)
{
	struct reef_cursor_in in = {.bytes = bytes, .left = size};
	struct reef_pool_header head;

	decode_header(&in, &head);
	if (in.failed || check_header(&head) != -REEF_EVERSION ||
	    head.type != REEF_POOL_REQUEST || !head.id)
		return false;
	*header = head;
	return true;
}
