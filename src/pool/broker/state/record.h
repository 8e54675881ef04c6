/* record.h - one change of the broker's state, as it is journaled.
 *
 * A record is flat: a type, and those fields that the type has (record.c has
 * the list); the others are zero. Texts are borrowed: by encode from its
 * caller, by decode from the bytes. Every type has origin and request: the
 * session that asked for it, and the number of its request (wire/pool.h, rule
 * 2); both 0: nobody did, it is the broker's own.
 *
 * Thread: any. */
#ifndef REEF_POOL_BROKER_STATE_RECORD_H
#define REEF_POOL_BROKER_STATE_RECORD_H

#include "wire/cursor.h"

/* The numbers are in journals: new ones go to the end. */
enum reef_record_type {
	REEF_RECORD_POOL = 1,	 /* value: the pool's id; the first of all */
	REEF_RECORD_BROKER,	 /* value: broker epoch, one more than it was */
	REEF_RECORD_SETTING,	 /* id: which; value */
	REEF_RECORD_USER_ADD,	 /* id, name */
	REEF_RECORD_USER_ERA,	 /* id, 0: the owner; era: one more */
	REEF_RECORD_USER_REMOVE, /* id */
	REEF_RECORD_NODE_ADD,	 /* id, incarnation, size, name, addresses;
				  * incarnation, size and addresses 0: it has
				  * not come yet */
	REEF_RECORD_NODE_RETURN, /* id, incarnation, size, addresses; of a node
				  * that is not gone: it was AWAY, too */
	REEF_RECORD_NODE_STATE,	 /* id, state; value: pool epoch after it */
	REEF_RECORD_NODE_REMOVE, /* id */
	REEF_RECORD_SPACE_ADD,	 /* id, kind, keeping, size: quota, session,
				  * user, name */
	REEF_RECORD_SPACE_QUOTA, /* id, size */
	REEF_RECORD_SPACE_ERA,	 /* id; era: one more than it was */
	REEF_RECORD_SPACE_REMOVE,  /* id; its extents and names go with it */
	REEF_RECORD_EXTENT_ADD,	   /* id, space, ordinal, node, size */
	REEF_RECORD_EXTENT_MOVE,   /* id; node: where to */
	REEF_RECORD_EXTENT_MOVED,  /* id; era: its epoch, one more */
	REEF_RECORD_EXTENT_STAY,   /* id; the move is off */
	REEF_RECORD_EXTENT_LOST,   /* id; era: its epoch, one more */
	REEF_RECORD_EXTENT_REMOVE, /* id */
	REEF_RECORD_SESSION_OPEN,  /* session, user */
	REEF_RECORD_SESSION_STATE, /* session; state: the next one */
	REEF_RECORD_NAME_BIND,	   /* space, value, name */
	REEF_RECORD_NAME_REPLACE,  /* space, generation, value, name */
	REEF_RECORD_NAME_UNBIND,   /* space, generation (0: any), name */
	REEF_RECORD_USE,	  /* session, space: it may have left work there
				   * when it ends */
	REEF_RECORD_USE_END,	  /* session, space: and that was recovered */
	REEF_RECORD_RECLAIM,	  /* value: R8, epochs below it may have been
				   * published; more than it was */
	REEF_RECORD_SPACE_FORGET, /* id; its LOST extents count no more */
	REEF_RECORD_SESSION_PROCESS, /* session; id: the process that its link
				      * comes from, generation: its start,
				      * value: its place
				      * (base/system/process.h); all 0: it is
				      * not known any more */
	REEF_RECORD_USE_STUCK,	  /* session, space: nobody can recover that */
	REEF_RECORD_USER_LIMIT,	  /* id; kind: enum reef_limit; value, 0: as the
				   * setting says */
	REEF_RECORD_USER_EXPEL,	  /* id; spaces and ending sessions become the
				   * owner's */
	REEF_RECORD_BASE,	  /* value: the last epoch that was chosen with
				   * this journal; generation: and the last
				   * sequence of that, 0: it goes on */
	REEF_RECORD_EXTENT_PLACE, /* as EXTENT_ADD, which has it made, too, and
				   * counts as that for whoever repeats a
				   * request; value: its copy's id */
	REEF_RECORD_EXTENT_MADE,  /* id; its node has it */
	/* Of images (broker/restore.c). */
	REEF_RECORD_NUMBERS,	/* the least that comes next: id: of extents;
				 * generation: of names; ordinal: of slots */
	REEF_RECORD_SPACE_NAME, /* id, name: a scratch space becomes shared */
	REEF_RECORD_EXTENT_RESTORE, /* id, space, ordinal, node, size; era: its
				     * epoch */
	REEF_RECORD_SESSION_PAST,   /* session, space: another life of the space
				     * was used by it; it is STUCK there */
	REEF_RECORD_NODE_KEEP,	    /* id; value 1: what it lends outlasts its
				     * lives; 0: it does not */
	/* Of copies (state/copies.c). */
	REEF_RECORD_SPACE_MAKE,	 /* as SPACE_ADD, and counts as that for whoever
				  * repeats a request; value: copies of its
				  * memory; state 1: never fewer when it grows */
	REEF_RECORD_EXTENT_TWIN, /* id, space, node, size; value: its copy's id:
				  * memory for a second copy */
	REEF_RECORD_EXTENT_PAIR, /* id; value: the twin that is its arbiter from
				  * now on; era: its epoch, one more if it is
				  * made */
	REEF_RECORD_EXTENT_OPEN, /* id; it is FAILING no more, but LIVE */
	REEF_RECORD_TYPES
};

struct reef_record {
	uint16_t type;
	uint8_t state, kind, keeping;
	uint32_t origin, request;
	uint32_t id, space, ordinal, node, session, user, era;
	uint64_t value, size, incarnation, generation;
	struct reef_text name, addresses;
};

/* An upper bound of what encode writes for this record. */
size_t reef_record_size_max(const struct reef_record *record);

/* Write the fields of the record's type; returns their size. `bytes` has room
 * for reef_record_size_max. The type itself goes into the journal's header. */
size_t reef_record_encode(const struct reef_record *record, uint8_t *bytes);

/* Texts in *out point into bytes.
 * -REEF_EVERSION: no such type, so a newer broker wrote it.
 * -REEF_ECORRUPT: not exactly the fields of that type. */
int reef_record_decode(uint16_t type, const void *bytes, size_t size,
		       struct reef_record *out);

#endif
