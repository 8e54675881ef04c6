/* view.h - nodes, spaces, sessions and events of a pool, as tables or as JSON:
 * what `reef status`, `reef top` and HTTP show.
 *
 * (1) A table and the JSON of a section come from one list of rows: what is in
 *     the table is in the JSON, too.
 *
 * Thread: the operator's owner. */
#ifndef REEF_CMD_VIEW_H
#define REEF_CMD_VIEW_H

#include "cmd/print/table.h"
#include "pool/operator.h"

struct reef_json;

enum view_section { VIEW_NODES, VIEW_SPACES, VIEW_SESSIONS, VIEW_SECTIONS };

/* A section as it was at one moment. */
struct view {
	struct reef_table *table;
	struct reef_json *json; /* inside view.c */
	/* Of sessions: bytes that wait, and who holds them back for longest. */
	uint64_t waiting, holds_ns;
	uint32_t holder, holders;
};

/* "nodes", "spaces", "sessions". */
const char *view_title(enum view_section section);

/* Ask for a section, as a table. Caller finis *out. As reef_operator_list. */
int view_fill(struct reef_operator *op, enum view_section section,
	      struct view *out);
void view_fini(struct view *view); /* harmless if it is all 0 */
/* Print who keeps memory that was freed from being used again, if somebody
 * does: an empty line, and a line. */
void view_say_holder(const struct view *view, FILE *out);

/* How many copies a space's memory has, and how many it is to have. */
#define VIEW_COPIES_SIZE 48
const char *view_copies(const struct reef_row_space *row,
			char text[VIEW_COPIES_SIZE]);

/* Write a section as a member of an object: an array of its rows. As
 * reef_operator_list. */
int view_write_section(struct reef_operator *op, enum view_section section,
		       struct reef_json *json);
/* The same of what there is no table of: extents, events. As
 * reef_operator_call. */
int view_write_extents(struct reef_operator *op, struct reef_json *json);
int view_write_events(struct reef_operator *op, struct reef_json *json);
/* Write the pool, all sections and events as one object. As
 * reef_operator_call. */
int view_write_pool(struct reef_operator *op, struct reef_json *json);
/* The same, after the answer to REEF_POOL_STATUS, which stays the caller's. */
int view_write_answer(struct reef_operator *op,
		      const struct reef_answer *answer, struct reef_json *json);

/* What fabrics and kinds of operations are called, and the counters of all
 * sessions as an answer to REEF_POOL_STATUS has them. */
extern const char *const view_fabrics[REEF_COUNTED_FABRICS];
extern const char *const view_kinds[REEF_COUNTED_KINDS];
void view_counters(const struct reef_reply_status *status,
		   struct reef_counters *out);

/* Of the answer to REEF_POOL_STATUS: the pool in a line or two, and its newest
 * events, the newest last. */
void view_print_pool(struct reef_operator *op,
		     const struct reef_reply_status *status, FILE *out);
int view_print_events(const struct reef_answer *answer, uint32_t most,
		      FILE *out);

#endif
