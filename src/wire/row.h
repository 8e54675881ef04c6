/* row.h - lists in messages: rows, each with its kind in front.
 *
 * Thread: any. */
#ifndef REEF_WIRE_ROW_H
#define REEF_WIRE_ROW_H

#include "wire/body.h"
#include "wire/states.h"

struct reef_field;

enum reef_row_kind {
	REEF_ROW_EXTENT = 1,
	REEF_ROW_NODE,
	REEF_ROW_SESSION,
	REEF_ROW_SPACE,
	REEF_ROW_NAME,
	REEF_ROW_USER,
	REEF_ROW_EVENT,
	REEF_ROW_SETTING,
	REEF_ROW_LINK,
	REEF_ROW_KINDS
};

struct reef_row_extent {
	uint32_t number;
	uint32_t ordinal; /* the first of its */
	uint32_t space;
	uint32_t node;
	uint32_t epoch;
	uint8_t state;
	uint64_t size;
	uint64_t copy; /* its id, which the pool gives once */
	/* Where the space has copies. twin: the number of the extent that is
	 * this one's arbiter, 0: it has no second copy now; it changes only
	 * together with the keys. In the row of a twin: its primary. is_twin:
	 * nothing is allocated there, and the ordinal is none. The arbiter of
	 * an address is the same offset in the twin. */
	uint32_t twin;
	uint8_t is_twin;
	/* All 0 in lists, while it is MOVING or LOST, and while its node has
	 * not told them since a restart of the broker: whoever holds keys of
	 * that epoch goes on with them. Others than those held: the old ones
	 * are void, also in one epoch. */
	uint64_t keys[REEF_DOORS_MAX];
	/* From a node: its read keys. A client is told in `keys` those that
	 * its rights give it, and here nothing. */
	uint64_t read_keys[REEF_DOORS_MAX];
};

struct reef_row_node {
	uint32_t number;
	uint8_t state;
	uint64_t incarnation; /* 0: it has not come yet, and is DEAD */
	uint64_t pool_epoch;  /* in which this was so */
	uint64_t domain;
	uint64_t capacity, used; /* bytes */
	uint32_t extents;
	uint64_t silent_ns;    /* since it was heard */
	uint8_t is_away;       /* it has no link to the broker */
	uint64_t machine_free; /* bytes of its machine */
	/* What the session that is told proves to it; 0 in lists. */
	uint8_t secret[REEF_SECRET_SIZE];
	struct reef_text name, addresses;
};

/* What a list tells of a session's counters. */
enum reef_told {
	REEF_TOLD_OPERATIONS, /* with keys that were looked up in place */
	REEF_TOLD_BYTES,
	REEF_TOLD_RETRIES,
	REEF_TOLD_DOUBTS,
	REEF_TOLD_HITS,
	REEF_TOLD_MISSES,
	REEF_TOLD_P99_NS, /* a bound; 0: it has done nothing */
	REEF_TOLD_COUNT
};

struct reef_row_session {
	uint32_t id;
	uint32_t user;
	uint8_t state;
	uint32_t pid;
	uint64_t silent_ns; /* since it renewed */
	uint32_t is_away;   /* not 0: its link is down */
	/* R8: bytes that it says it has freed and cannot use again yet; and for
	 * how long it has held back everybody's, 0: it does not. */
	uint64_t waiting, holds_ns;
	/* What it says that it has done: enum reef_told. */
	uint64_t counts[REEF_TOLD_COUNT];
	struct reef_text program;
	struct reef_text fabric; /* really in use */
};

struct reef_row_space {
	uint32_t number;
	uint8_t kind, keeping;
	uint32_t era;
	uint32_t session; /* whose it is, if scratch */
	uint32_t user;
	uint32_t extents;
	/* Bytes; quota 0: none. lost: of extents that are LOST, which count
	 * against the quota like those that are used. */
	uint64_t quota, used, lost;
	/* Copies of its memory that are wanted; and the extents that have fewer
	 * at the moment. */
	uint32_t copies, degraded;
	struct reef_text name;
};

struct reef_row_name {
	uint64_t value, generation;
	struct reef_text name;
};

struct reef_row_user {
	uint32_t number;
	uint32_t era;
	/* By enum reef_limit. limits: REEF_NO_LIMIT: none; a bit of `own`: it
	 * is the user's, and not the setting. */
	uint64_t uses[REEF_LIMIT_COUNT], limits[REEF_LIMIT_COUNT];
	uint32_t own;
	struct reef_text name;
};

struct reef_row_event {
	uint64_t number;
	uint64_t age_ns;
	struct reef_text text;
};

struct reef_row_setting {
	uint64_t value;
	struct reef_text name;
};

/* What became of a link that was lost. */
enum reef_link_fate {
	REEF_LINK_IN_DOUBT, /* also in a question */
	REEF_LINK_ENDED,    /* its node has confirmed that it ended */
	REEF_LINK_LOST,	    /* that life of its node is over */
};

/* A link of the session that asks to a node, as its hello said. */
struct reef_row_link {
	uint32_t node;
	uint32_t number;      /* all links up to that number are meant */
	uint64_t incarnation; /* the node's, when the link was made */
	uint8_t fate;	      /* enum reef_link_fate */
};
#define REEF_SETTLE_MAX 64 /* links in one SETTLE */

struct reef_row {
	uint8_t row; /* enum reef_row_kind: which member counts */
	union {
		struct reef_row_node node; /* the largest: {0} clears all */
		struct reef_row_user user;
		struct reef_row_extent extent;
		struct reef_row_session session;
		struct reef_row_space space;
		struct reef_row_name name;
		struct reef_row_event event;
		struct reef_row_setting setting;
		struct reef_row_link link;
	};
};

void reef_row_encode(const struct reef_row *row, struct reef_cursor_out *out);

/* The fields of a kind of row, in the order in which they travel; after the
 * last comes one whose count is 0. Offsets are those in struct reef_row. */
const struct reef_field *reef_row_fields(uint8_t row);

/* The next row. 1: *row is filled in.  0: no more.  -REEF_EPROTO. */
int reef_row_decode(struct reef_cursor_in *in, struct reef_row *row);

#endif
