/* pool.h - what brokers, nodes and clients say to each other.
 *
 * A message is a header and a body. A body is flat: those fields of struct
 * reef_body that its kind and direction have (pool.c has the lists), in their
 * order; the others are zero. Where a kind has rows, they come last, and end
 * with the message. Decoding checks that a body is exactly its fields.
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
 *
 * Thread: any. */
#ifndef REEF_WIRE_POOL_H
#define REEF_WIRE_POOL_H

#include "wire/cursor.h"
#include "wire/states.h"
#include "wire/table.h"

#include <assert.h>

#define REEF_POOL_VERSION 1

enum reef_pool_type {
	REEF_POOL_REQUEST = 1,
	REEF_POOL_ANSWER,
	REEF_POOL_NOTE,
	REEF_POOL_TYPES
};

/* [m]: mutating, numbered by `sequence`. */
enum reef_pool_kind {
	/* client to broker */
	REEF_POOL_SESSION_OPEN = 1, /* name: of the program; pid -> session,
				     * secret: its key, ttl_ns, value: key of
				     * its renewal word, version: key of the
				     * table, pool, epoch: pool epoch, size:
				     * extent size */
	REEF_POOL_SESSION_RESUME,   /* session, secret, name, pid -> as OPEN */
	REEF_POOL_SESSION_CLOSE,    /* - -> - */
	REEF_POOL_SPACE_OPEN,	 /* [m] name, flags, kind, keeping, size: quota,
				  * token: space, rights, era, secret (rights 0:
				  * none); no name: the space of that number,
				  * or a new one -> space, rights, size: extent
				  * size,
				  * keeping, kind, version, flags, rows */
	REEF_POOL_SPACE_CLOSE,	 /* space -> - */
	REEF_POOL_SPACE_EXTENTS, /* space, version, ordinal: from that one on
				  * -> version, flags, rows: nodes, extents */
	REEF_POOL_SPACE_DROP,	 /* [m] space -> - */
	REEF_POOL_SPACE_QUOTA,	 /* [m] space, size -> - */
	REEF_POOL_SPACE_REVOKE,	 /* [m] space -> era */
	REEF_POOL_SPACE_TOKEN, /* space, rights -> space, era, rights, secret */
	REEF_POOL_EXTENT_ADD,  /* [m] space, size (0: the usual) -> rows */
	REEF_POOL_EXTENT_REMOVE, /* [m] extent -> - */
	REEF_POOL_NAME_BIND,	 /* [m] space, name, value -> generation */
	REEF_POOL_NAME_REPLACE,	 /* [m] space, name, value, generation
				  * -> generation */
	REEF_POOL_NAME_UNBIND,	 /* [m] space, name, generation (0: any) */
	REEF_POOL_NAME_LOOKUP,	 /* space, name -> value, generation */
	REEF_POOL_NAME_LIST,	 /* space, name: prefix, after -> flags, rows */
	/* operators to broker */
	REEF_POOL_STATUS,	/* - -> pool, epoch, version: broker epoch,
				 * value: uptime ns, count, rows: events */
	REEF_POOL_LIST,		/* kind: a row's, node: after that number
				 * -> flags, rows */
	REEF_POOL_USER_ADD,	/* [m] name -> user, era, secret */
	REEF_POOL_USER_REMOVE,	/* [m] user -> - */
	REEF_POOL_NODE_DRAIN,	/* [m] node, flags: 0 start, 1 stop -> - */
	REEF_POOL_NODE_RECLAIM, /* node, size: bytes to take back -> size */
	REEF_POOL_NODE_REMOVE,	/* [m] node -> - */
	REEF_POOL_SESSION_END,	/* session: as if it had expired -> - */
	REEF_POOL_SETTING, /* [m] name, value -> value (flags 1: only look) */
	/* node to broker */
	REEF_POOL_NODE_REGISTER, /* name, incarnation, domain, size: capacity,
				  * addresses -> node, ttl_ns, version: broker
				  * epoch, rows: sessions fenced already */
	REEF_POOL_NODE_EXTENTS,	 /* rows: extents that it has; any number of
				  * these -> - */
	REEF_POOL_NODE_READY,	 /* all extents are told -> - */
	REEF_POOL_NODE_PULSE,	 /* incarnation, size: lent, value: free memory
				  * of its machine, count: links, generation:
				  * bytes it wants back -> - */
	/* broker to node */
	REEF_POOL_EXTENT_CREATE, /* extent, space, era: its epoch, size -> keys
				  */
	REEF_POOL_EXTENT_DROP,	 /* extent -> - */
	REEF_POOL_EXTENT_CLOSE,	 /* extent -> keys: to READ it by, for nodes */
	REEF_POOL_EXTENT_REOPEN, /* extent, era -> keys */
	REEF_POOL_EXTENT_PULL,	 /* extent, space, era, size, domain,
				  * addresses, keys: of the source -> keys */
	REEF_POOL_FENCE,	 /* session -> - */
	/* broker to client */
	REEF_POOL_NOTICE,  /* note: look at your notice word */
	REEF_POOL_RECOVER, /* session, space -> - */
	/* client to broker */
	REEF_POOL_TIME, /* - -> value: ns since 1970, by the broker's clock */
	/* both ways */
	REEF_POOL_HURRY, /* note: client: look at the renewal words now; broker:
			  * renew now, and as often as the table says */
	REEF_POOL_KINDS
};

static inline bool reef_pool_is_note(uint16_t kind)
{
	return kind == REEF_POOL_NOTICE || kind == REEF_POOL_HURRY;
}

#define REEF_DOORS_MAX 4

/* flags */
#define REEF_POOL_CREATE 1u    /* SPACE_OPEN: make it if absent */
#define REEF_POOL_EXCLUSIVE 2u /* SPACE_OPEN: -EEXIST if present */
#define REEF_POOL_MORE 1u      /* rows: ask again, after the last */
#define REEF_POOL_UNCHANGED 2u /* rows: none, the version is still that */

struct reef_pool_header {
	uint8_t version; /* REEF_POOL_VERSION */
	uint8_t type;
	uint16_t kind;
	uint32_t id;
	int32_t status;	   /* ANSWER: 0 or negative; else 0 */
	uint32_t sequence; /* (2) */
	uint64_t epoch;	   /* (1) */
};
static_assert(sizeof(struct reef_pool_header) == 24, "wire layout");
#define REEF_POOL_HEADER_SIZE 24

struct reef_body {
	uint8_t state, kind, keeping, rights;
	uint32_t session, user, space, extent, ordinal, node, era, pid;
	uint32_t flags, count;
	uint64_t value, size, generation, epoch, incarnation, domain;
	uint64_t version, ttl_ns, pool;
	uint64_t keys[REEF_DOORS_MAX];
	uint8_t secret[32];
	struct reef_text name, after, addresses;
	const uint8_t *rows;
	size_t rows_size;
};

/* Rows, each with its kind in front. */
enum reef_row_kind {
	REEF_ROW_EXTENT = 1,
	REEF_ROW_NODE,
	REEF_ROW_SESSION,
	REEF_ROW_SPACE,
	REEF_ROW_NAME,
	REEF_ROW_USER,
	REEF_ROW_EVENT,
	REEF_ROW_SETTING,
	REEF_ROW_KINDS
};

/* Flat too. EXTENT: extent, ordinal (the first of its), space, node, era (its
 * epoch), state, size, keys (all 0 while it is MOVING or LOST, and while its
 * node has not told them since a restart of the broker: whoever holds keys of
 * that epoch goes on with them; others than those held: the old ones are void,
 * also in one epoch). NODE: node, state, incarnation, domain, size (capacity),
 * used, count (extents), age_ns (since it was heard), value (free memory of its
 * machine), name, addresses. SESSION: session, user, state, pid, age_ns (since
 * it renewed), node (0, else the link is down), name, addresses (the fabric
 * really in use). SPACE: space, kind, keeping, era, session, user, count
 * (extents), size (quota), used, name. NAME: value, generation, name. USER:
 * user, era, count (sessions), name. EVENT: value (number), age_ns, name
 * (text). SETTING: value, name. */
struct reef_row {
	uint8_t row; /* enum reef_row_kind */
	uint8_t state, kind, keeping;
	uint32_t session, user, space, extent, ordinal, node, era, pid, count;
	uint64_t value, size, used, generation, incarnation, domain, age_ns;
	uint64_t keys[REEF_DOORS_MAX];
	struct reef_text name, addresses;
};

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

void reef_row_encode(const struct reef_row *row, struct reef_cursor_out *out);

/* The next row. 1: *row is filled in.  0: no more.  -REEF_EPROTO. */
int reef_row_decode(struct reef_cursor_in *in, struct reef_row *row);

const char *reef_pool_kind_name(uint16_t kind); /* for logs; never NULL */

#endif
