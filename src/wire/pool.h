/* pool.h - what brokers, nodes and clients say to each other.
 *
 * A message is a header and a body. What a body says depends on its kind and
 * direction (body.h); it travels as the flat list of those fields (pool.c has
 * the lists). Where a kind has rows (row.h), they come last, and end with the
 * message. Decoding checks that a body is exactly its fields.
 *
 *   caller                            callee
 *     REQUEST kind, id, body    -->
 *            <--  ANSWER kind, id, status, body (empty unless status is 0)
 *     NOTE kind, id 0           -->   (no answer)
 *
 * (1) epoch: the broker epoch, in everything a broker says; 0 from others. A
 *     node or client that has seen a higher one refuses the message.
 * (2) sequence: 0, or the number of a mutating request of its session, one
 *     more than the last. A request with the last number is a repetition: it
 *     gets the last answer, and changes nothing.
 * (3) Whoever changes what a body or a row has raises REEF_POOL_VERSION. The
 *     header is the same in every version: a request of another one, or of a
 *     kind that is not known, is answered with -REEF_EVERSION, in the version
 *     of who asked. So that one learns why.
 *
 * Thread: any. */
#ifndef REEF_WIRE_POOL_H
#define REEF_WIRE_POOL_H

#include "wire/body.h"
#include "wire/cursor.h"
#include "wire/row.h"
#include "wire/states.h"
#include "wire/table.h"

#include <assert.h>

struct reef_field;

#define REEF_POOL_VERSION 6

enum reef_pool_type {
	REEF_POOL_REQUEST = 1,
	REEF_POOL_ANSWER,
	REEF_POOL_NOTE,
	REEF_POOL_TYPES
};

/* [m]: mutating, numbered by `sequence`. The numbers travel: new ones go to the
 * end. */
enum reef_pool_kind {
	/* client to broker */
	REEF_POOL_SESSION_OPEN = 1,
	REEF_POOL_SESSION_RESUME,
	REEF_POOL_SESSION_CLOSE,
	REEF_POOL_SPACE_OPEN, /* [m] */
	REEF_POOL_SPACE_CLOSE,
	REEF_POOL_SPACE_EXTENTS, /* page by page */
	REEF_POOL_SPACE_DROP,	 /* [m] */
	REEF_POOL_SPACE_QUOTA,	 /* [m] */
	REEF_POOL_SPACE_REVOKE,	 /* [m] its tokens */
	REEF_POOL_SPACE_TOKEN,	 /* makes one */
	REEF_POOL_EXTENT_ADD,	 /* [m] */
	REEF_POOL_EXTENT_REMOVE, /* [m] */
	REEF_POOL_NAME_BIND,	 /* [m] */
	REEF_POOL_NAME_REPLACE,	 /* [m] */
	REEF_POOL_NAME_UNBIND,	 /* [m] */
	REEF_POOL_NAME_LOOKUP,
	REEF_POOL_NAME_LIST, /* page by page */
	/* operators to broker */
	REEF_POOL_STATUS,
	REEF_POOL_LIST,		/* page by page */
	REEF_POOL_USER_ADD,	/* [m] */
	REEF_POOL_USER_REMOVE,	/* [m] */
	REEF_POOL_NODE_DRAIN,	/* [m] */
	REEF_POOL_NODE_RECLAIM, /* revocable extents of it */
	REEF_POOL_NODE_REMOVE,	/* [m] */
	REEF_POOL_SESSION_END,	/* as if it had expired */
	REEF_POOL_SETTING,	/* [m], unless it only reads */
	/* node to broker */
	REEF_POOL_NODE_REGISTER,
	REEF_POOL_NODE_EXTENTS, /* those that it has, in any number of these */
	REEF_POOL_NODE_READY,	/* all its extents are told */
	REEF_POOL_NODE_PULSE,	/* it lives */
	/* broker to node */
	REEF_POOL_EXTENT_CREATE,
	REEF_POOL_EXTENT_DROP,
	REEF_POOL_EXTENT_CLOSE, /* to clients; nodes may READ it */
	REEF_POOL_EXTENT_REOPEN,
	REEF_POOL_EXTENT_PULL, /* from the node that has closed it */
	REEF_POOL_FENCE,       /* nothing of that session happens any more */
	/* broker to client */
	REEF_POOL_NOTICE,  /* note: look at your notice word */
	REEF_POOL_RECOVER, /* dead sessions' work in a space */
	/* client to broker */
	REEF_POOL_TIME,
	/* both ways */
	REEF_POOL_HURRY, /* note: client: look at the renewal words now; broker:
			  * renew now, and as often as the table says */
	/* client to broker */
	REEF_POOL_SPACE_FORGET, /* [m] its extents that are LOST */
	REEF_POOL_SETTLE, /* links that it lost, to be ended at their nodes */
	/* broker to node */
	REEF_POOL_END,	   /* nothing of these links happens any more */
	REEF_POOL_JANITOR, /* client to broker: ask me to RECOVER, anywhere */
	REEF_POOL_CONFIRM, /* that it follows this broker, which has this */
	/* operators to broker */
	REEF_POOL_USER_ROTATE, /* [m] a new credential, the old one is void */
	REEF_POOL_USER_LIMIT,  /* [m] */
	REEF_POOL_NODE_ADD,    /* [m] */
	/* client to broker */
	REEF_POOL_SPACE_SAVE,	 /* an image of a space: broker/save.c */
	REEF_POOL_SPACE_RESTORE, /* [m] broker/restore.c */
	REEF_POOL_KINDS
};

static inline bool reef_pool_is_note(uint16_t kind)
{
	return kind == REEF_POOL_NOTICE || kind == REEF_POOL_HURRY;
}

struct reef_pool_header {
	uint8_t version; /* REEF_POOL_VERSION; but (3) */
	uint8_t type;
	uint16_t kind;
	uint32_t id;
	int32_t status;	   /* ANSWER: 0 or negative; else 0 */
	uint32_t sequence; /* (2) */
	uint64_t epoch;	   /* (1) */
};
static_assert(sizeof(struct reef_pool_header) == 24, "wire layout");
#define REEF_POOL_HEADER_SIZE 24

/* Append header and body; sticks in out->failed. rows are copied as they are.
 * body NULL: all zero. */
void reef_pool_encode(const struct reef_pool_header *header,
		      const struct reef_body *body,
		      struct reef_cursor_out *out);

/* Texts and rows point into bytes. -REEF_EVERSION: another version, or a kind
 * that is not known.  -REEF_EPROTO: anything else that is not as said above;
 * also rows that do not decode. */
int reef_pool_decode(const void *bytes, size_t size,
		     struct reef_pool_header *header, struct reef_body *body);

/* True if it is a request that reef_pool_decode refused with -REEF_EVERSION:
 * *header is what it says of itself. */
bool reef_pool_is_foreign(const void *bytes, size_t size,
			  struct reef_pool_header *header);

/* The fields of a body, in the order in which they travel; after the last comes
 * one whose count is 0. Offsets are those in struct reef_body. */
const struct reef_field *
reef_pool_fields(const struct reef_pool_header *header);

/* True if rows come after the fields. */
bool reef_pool_has_rows(const struct reef_pool_header *header);

/* The text of that index, 0 being the first, in what a kind asks. NULL: it has
 * no more. */
struct reef_text *reef_ask_text(uint16_t kind, union reef_ask *ask,
				uint32_t index);

#endif
