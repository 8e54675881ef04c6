/* window.h - the operations of one window of a call (call.c): how accesses
 * become operations, one batch a link, and what came of them becomes their
 * status. For call.c and window.c alone.
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_WINDOW_H
#define REEF_POOL_CLIENT_HANDLE_WINDOW_H

#include "pool/client/handle/call.h"
#include "pool/client/handle/handle.h"
#include "pool/client/keeper/settle.h"
#include "pool/client/keeper/touch.h"

#define OPS 256	  /* in a window */
#define OPS_FEW 8 /* of a call for few accesses, so that thousands fit */
#define PARTS CLIENT_LOST_MAX /* links in a window */
#define PENDING 1	      /* status of an access that is to be done */

enum call_state { BUILD, POSTED, ROOM, DOUBT, ASKED, COPIES, ENDED };

struct client_copies;

/* What one operation does of an access. */
struct piece {
	uint32_t access; /* its index in the call */
	uint8_t part;
	bool header;	 /* it writes a block's header, not the access */
	uint64_t number; /* of its remote */
};

/* The operations of a window that go over one link, as one batch. */
struct part {
	struct client_call *call;
	struct reef_queue *queue;
	uint32_t first; /* its first operation in call->ops */
	uint32_t node, link_number;
	uint8_t fabric; /* enum reef_counted_fabric */
	bool posted;
	bool is_lost;	 /* its link, with a WRITE, CAS or FAA under way */
	int why;	 /* why the extent must be touched; 0: it need not be */
	uint32_t why_op; /* the operation that failed with it */
	struct reef_batch batch;
};

/* The header of a block that goes in front of the access that is its first
 * data. */
struct header {
	uint64_t word;
	struct reef_heap *heap;
};

struct client_call {
	struct reef *reef;
	struct reef_access *accesses;
	uint32_t count;
	enum call_state state;
	int status;
	uint32_t phase;	   /* of client_enter */
	uint32_t from, to; /* the accesses of the window */
	uint64_t inner;	   /* bytes of `from` done in earlier windows */
	uint64_t inner_to; /* bytes of `to` that this window ends with */
	uint32_t window_max, piece_max;
	bool serial;	    /* call.c (2) */
	bool failed;	    /* accesses after this window are not done */
	uint32_t under_way; /* parts that were posted and have not ended */
	uint32_t ops_count, parts_count;
	struct client_job *job; /* the keeper's: client_touch_job, or: */
	bool is_settling;	/* client_settle_job, with all lost links */
	bool is_confirming;	/* client_lease_job: call.c (6) */
	bool is_part;		/* client_call_begin_parts, of: */
	uint64_t version;
	int touched;		      /* status of client_call_begin_touch */
	bool has_read_copied;	      /* call.c (6) */
	struct client_copies *copies; /* call.c (5) */
	struct reef_task *task;
	uint64_t begun_ns;
	struct client_call *next;
	bool has_header;
	/* The members from here on stay when the storage is used again. */
	uint32_t room, parts_max;
	struct header header;
	struct part *parts;
	struct piece *pieces;
	uint16_t *piece_of;    /* index of the piece of each of `ops` */
	struct reef_op *built; /* in the order of the pieces */
	struct reef_op *ops;   /* in the order of the parts */
};

static inline uint32_t call_extent_of(const struct reef_access *access)
{
	return (uint32_t)(access->address >> 32);
}

static inline struct reef_access *call_access_of(struct client_call *call,
						 uint32_t op)
{
	return &call->accesses[call->pieces[call->piece_of[op]].access];
}

/* --- building: between client_enter and client_leave --- */

/* Find the extent of an access.  -EAGAIN: the keeper has to be asked.  -EXDEV:
 * it changes memory that has copies.  -ESTALE: the view is not the one that the
 * parts are of.  -EFAULT, -EACCES: the access may not be done. */
int call_resolve_access(struct client_call *call,
			const struct reef_access *access,
			struct client_entry **entry);
/* Find or make the part for the extent's link. -1: the window has no room for
 * another part. */
int call_part_of(struct client_call *call, const struct client_entry *entry);
/* Add operations for what is left of an access. False: the window is full. */
bool call_add_access(struct client_call *call, uint32_t index,
		     const struct client_entry *entry, int part);
/* Put the operations of each part beside each other, in their order. */
void call_arrange_ops(struct client_call *call);
void call_post_part(struct client_call *call, struct part *part);

/* --- collecting --- */

/* Set the status of the accesses of a part that has ended; what is to be done
 * again stays PENDING. part->is_lost and part->why say what the keeper has to
 * be asked. */
void call_collect_part(struct client_call *call, struct part *part);

#endif
