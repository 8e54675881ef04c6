/* pool.c - which fields each message and row has, and checked decoding. */
#include "wire/pool.h"

#include "base/log.h"
#include "wire/fields.h"

#include <reef/error.h>

#define STATUS_MIN (-65535)

/* --- the fields of bodies --- */

enum body_field {
	END,
	STATE,
	KIND,
	KEEPING,
	RIGHTS,
	SESSION,
	USER,
	SPACE,
	EXTENT,
	ORDINAL,
	NODE,
	ERA,
	PID,
	FLAGS,
	COUNT,
	VALUE,
	SIZE,
	GENERATION,
	EPOCH,
	INCARNATION,
	DOMAIN,
	VERSION,
	TTL,
	POOL,
	KEYS,
	SECRET,
	NAME,
	AFTER,
	ADDRESSES,
	ROWS, /* the rest of the message */
};

#define NUMBER(member) REEF_FIELD_NUMBER(struct reef_body, member)
#define ARRAY(member) REEF_FIELD_ARRAY(struct reef_body, member)
#define TEXT(member) REEF_FIELD_TEXT(struct reef_body, member)

static const struct reef_field body_fields[ROWS] = {
	[STATE] = NUMBER(state),
	[KIND] = NUMBER(kind),
	[KEEPING] = NUMBER(keeping),
	[RIGHTS] = NUMBER(rights),
	[SESSION] = NUMBER(session),
	[USER] = NUMBER(user),
	[SPACE] = NUMBER(space),
	[EXTENT] = NUMBER(extent),
	[ORDINAL] = NUMBER(ordinal),
	[NODE] = NUMBER(node),
	[ERA] = NUMBER(era),
	[PID] = NUMBER(pid),
	[FLAGS] = NUMBER(flags),
	[COUNT] = NUMBER(count),
	[VALUE] = NUMBER(value),
	[SIZE] = NUMBER(size),
	[GENERATION] = NUMBER(generation),
	[EPOCH] = NUMBER(epoch),
	[INCARNATION] = NUMBER(incarnation),
	[DOMAIN] = NUMBER(domain),
	[VERSION] = NUMBER(version),
	[TTL] = NUMBER(ttl_ns),
	[POOL] = NUMBER(pool),
	[KEYS] = ARRAY(keys),
	[SECRET] = ARRAY(secret),
	[NAME] = TEXT(name),
	[AFTER] = TEXT(after),
	[ADDRESSES] = TEXT(addresses),
};
#undef NUMBER
#undef ARRAY
#undef TEXT

#define FIELDS_MAX 11

#define LIST(...)                                                              \
	{                                                                      \
		__VA_ARGS__, END                                               \
	}
#define NONE LIST(END)
#define KIND_OF(kind, request, answer)                                         \
	[REEF_POOL_##kind] = {#kind, request, answer}
#define SESSION_LIST                                                           \
	LIST(SESSION, SECRET, TTL, VALUE, VERSION, POOL, EPOCH, SIZE)

static const struct layout {
	const char *name;
	uint8_t request[FIELDS_MAX + 1], answer[FIELDS_MAX + 1]; /* up to END */
} layouts[REEF_POOL_KINDS] = {
	KIND_OF(SESSION_OPEN, LIST(NAME, PID), SESSION_LIST),
	KIND_OF(SESSION_RESUME, LIST(SESSION, SECRET, NAME, PID), SESSION_LIST),
	KIND_OF(SESSION_CLOSE, NONE, NONE),
	KIND_OF(SPACE_OPEN,
		LIST(NAME, FLAGS, KIND, KEEPING, SIZE, SPACE, RIGHTS, ERA,
		     SECRET),
		LIST(SPACE, RIGHTS, SIZE, KEEPING, KIND, VERSION, FLAGS, ROWS)),
	KIND_OF(SPACE_CLOSE, LIST(SPACE), NONE),
	KIND_OF(SPACE_EXTENTS, LIST(SPACE, VERSION, ORDINAL),
		LIST(VERSION, FLAGS, ROWS)),
	KIND_OF(SPACE_DROP, LIST(SPACE), NONE),
	KIND_OF(SPACE_QUOTA, LIST(SPACE, SIZE), NONE),
	KIND_OF(SPACE_REVOKE, LIST(SPACE), LIST(ERA)),
	KIND_OF(SPACE_TOKEN, LIST(SPACE, RIGHTS),
		LIST(SPACE, ERA, RIGHTS, SECRET)),
	KIND_OF(EXTENT_ADD, LIST(SPACE, SIZE), LIST(ROWS)),
	KIND_OF(EXTENT_REMOVE, LIST(EXTENT), NONE),
	KIND_OF(NAME_BIND, LIST(SPACE, NAME, VALUE), LIST(GENERATION)),
	KIND_OF(NAME_REPLACE, LIST(SPACE, NAME, VALUE, GENERATION),
		LIST(GENERATION)),
	KIND_OF(NAME_UNBIND, LIST(SPACE, NAME, GENERATION), NONE),
	KIND_OF(NAME_LOOKUP, LIST(SPACE, NAME), LIST(VALUE, GENERATION)),
	KIND_OF(NAME_LIST, LIST(SPACE, NAME, AFTER), LIST(FLAGS, ROWS)),
	KIND_OF(STATUS, NONE, LIST(POOL, EPOCH, VERSION, VALUE, COUNT, ROWS)),
	KIND_OF(LIST, LIST(KIND, NODE), LIST(FLAGS, ROWS)),
	KIND_OF(USER_ADD, LIST(NAME), LIST(USER, ERA, SECRET)),
	KIND_OF(USER_REMOVE, LIST(USER), NONE),
	KIND_OF(NODE_DRAIN, LIST(NODE, FLAGS), NONE),
	KIND_OF(NODE_RECLAIM, LIST(NODE, SIZE), LIST(SIZE)),
	KIND_OF(NODE_REMOVE, LIST(NODE), NONE),
	KIND_OF(SESSION_END, LIST(SESSION), NONE),
	KIND_OF(SETTING, LIST(NAME, VALUE, FLAGS), LIST(VALUE)),
	KIND_OF(NODE_REGISTER, LIST(NAME, INCARNATION, DOMAIN, SIZE, ADDRESSES),
		LIST(NODE, TTL, VERSION, ROWS)),
	KIND_OF(NODE_EXTENTS, LIST(ROWS), NONE),
	KIND_OF(NODE_READY, NONE, NONE),
	KIND_OF(NODE_PULSE, LIST(INCARNATION, SIZE, VALUE, COUNT, GENERATION),
		NONE),
	KIND_OF(EXTENT_CREATE, LIST(EXTENT, SPACE, ERA, SIZE), LIST(KEYS)),
	KIND_OF(EXTENT_DROP, LIST(EXTENT), NONE),
	KIND_OF(EXTENT_CLOSE, LIST(EXTENT), LIST(KEYS)),
	KIND_OF(EXTENT_REOPEN, LIST(EXTENT, ERA), LIST(KEYS)),
	KIND_OF(EXTENT_PULL,
		LIST(EXTENT, SPACE, ERA, SIZE, DOMAIN, ADDRESSES, KEYS),
		LIST(KEYS)),
	KIND_OF(FENCE, LIST(SESSION), NONE),
	KIND_OF(NOTICE, NONE, NONE),
	KIND_OF(RECOVER, LIST(SESSION, SPACE), NONE),
	KIND_OF(TIME, NONE, LIST(VALUE)),
	KIND_OF(HURRY, NONE, NONE),
};
#undef KIND_OF
#undef SESSION_LIST
#undef NONE
#undef LIST

static const uint8_t nothing[] = {END};

/* A failed answer has no body. */
static const uint8_t *body_list(const struct reef_pool_header *header)
{
	const struct layout *layout = &layouts[header->kind];

	if (header->type != REEF_POOL_ANSWER)
		return layout->request;
	return header->status ? nothing : layout->answer;
}

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
	const uint8_t *field;

	reef_assert(header->kind > 0 && header->kind < REEF_POOL_KINDS);
	if (!body)
		body = &empty;
	encode_header(header, out);
	for (field = body_list(header); *field != END; field++) {
		if (*field == ROWS)
			reef_cursor_bytes(out, body->rows, body->rows_size);
		else
			reef_field_encode(&body_fields[*field], body, out);
	}
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

static int take_rows(struct reef_cursor_in *in, struct reef_body *body)
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
	const uint8_t *field;
	int rc;

	decode_header(&in, &head);
	if (in.failed)
		return -REEF_EPROTO;
	rc = check_header(&head);
	if (rc)
		return rc;
	for (field = body_list(&head); *field != END; field++) {
		if (*field != ROWS) {
			reef_field_decode(&body_fields[*field], &fields, &in);
			continue;
		}
		rc = take_rows(&in, &fields);
		if (rc)
			return rc;
	}
	if (in.failed || in.left)
		return -REEF_EPROTO;
	*header = head;
	*body = fields;
	return 0;
}

const char *reef_pool_kind_name(uint16_t kind)
{
	if (kind == 0 || kind >= REEF_POOL_KINDS)
		return "unknown";
	return layouts[kind].name;
}

/* --- rows --- */

#define NUMBER(member) REEF_FIELD_NUMBER(struct reef_row, member)
#define ARRAY(member) REEF_FIELD_ARRAY(struct reef_row, member)
#define TEXT(member) REEF_FIELD_TEXT(struct reef_row, member)

static const struct row_layout {
	uint8_t count;
	struct reef_field fields[FIELDS_MAX];
} rows[REEF_ROW_KINDS] = {
	[REEF_ROW_EXTENT] = {8,
			     {NUMBER(extent), NUMBER(ordinal), NUMBER(space),
			      NUMBER(node), NUMBER(era), NUMBER(state),
			      NUMBER(size), ARRAY(keys)}},
	[REEF_ROW_NODE] = {11,
			   {NUMBER(node), NUMBER(state), NUMBER(incarnation),
			    NUMBER(domain), NUMBER(size), NUMBER(used),
			    NUMBER(count), NUMBER(age_ns), NUMBER(value),
			    TEXT(name), TEXT(addresses)}},
	[REEF_ROW_SESSION] = {8,
			      {NUMBER(session), NUMBER(user), NUMBER(state),
			       NUMBER(pid), NUMBER(age_ns), NUMBER(node),
			       TEXT(name), TEXT(addresses)}},
	[REEF_ROW_SPACE] = {10,
			    {NUMBER(space), NUMBER(kind), NUMBER(keeping),
			     NUMBER(era), NUMBER(session), NUMBER(user),
			     NUMBER(count), NUMBER(size), NUMBER(used),
			     TEXT(name)}},
	[REEF_ROW_NAME] = {3, {NUMBER(value), NUMBER(generation), TEXT(name)}},
	[REEF_ROW_USER] = {4,
			   {NUMBER(user), NUMBER(era), NUMBER(count),
			    TEXT(name)}},
	[REEF_ROW_EVENT] = {3, {NUMBER(value), NUMBER(age_ns), TEXT(name)}},
	[REEF_ROW_SETTING] = {2, {NUMBER(value), TEXT(name)}},
};
#undef NUMBER
#undef ARRAY
#undef TEXT

void reef_row_encode(const struct reef_row *row, struct reef_cursor_out *out)
{
	const struct row_layout *layout = &rows[row->row];

	reef_assert(row->row > 0 && row->row < REEF_ROW_KINDS);
	reef_cursor_put(out, 1, row->row);
	for (uint8_t i = 0; i < layout->count; i++)
		reef_field_encode(&layout->fields[i], row, out);
}

int reef_row_decode(struct reef_cursor_in *in, struct reef_row *out)
{
	const struct row_layout *layout;
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
	layout = &rows[row.row];
	for (uint8_t i = 0; i < layout->count; i++)
		reef_field_decode(&layout->fields[i], &row, in);
	if (in->failed)
		return -REEF_EPROTO;
	*out = row;
	return 1;
}
