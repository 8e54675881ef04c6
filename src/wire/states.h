/* states.h - the states and kinds that messages and tables name by a number.
 *
 *   node      OK <-> DRAINING -> DRAINED -> OK     any -> DEAD -> (return) OK
 *             (added) -> DEAD, until it comes
 *             OK, DRAINING -> AWAY -> (return) as before     AWAY -> DEAD
 *   extent    LIVE <-> MOVING     LIVE, MOVING -> LOST -> FORGOTTEN
 *             LIVE, MOVING -> FAILING -> LIVE     FAILING -> LOST
 *             any -> (removed)
 *   session   ALIVE -> EXPIRED -> FENCED -> RECOVERED -> (slot opened anew)
 *
 * The numbers travel, and are in journals: new ones go to the end.
 *
 * Thread: any. */
#ifndef REEF_WIRE_STATES_H
#define REEF_WIRE_STATES_H

#include <errno.h>
#include <reef/error.h>
#include <stdbool.h>
#include <stdint.h>

enum reef_node_state {
	REEF_NODE_OK = 1,
	REEF_NODE_DRAINING,
	REEF_NODE_DRAINED,
	REEF_NODE_DEAD,
	/* As DEAD, but it keeps its memory: its extents wait for it. */
	REEF_NODE_AWAY
};
/* True for a node that no client has a link to, once it has a view of the pool
 * epoch in which this is so. */
static inline bool reef_node_is_gone(uint8_t state)
{
	return state == REEF_NODE_DEAD || state == REEF_NODE_AWAY;
}
enum reef_space_kind { REEF_SPACE_SHARED = 1, REEF_SPACE_SCRATCH };
enum reef_space_keeping { REEF_KEEPING_KEPT = 1, REEF_KEEPING_REVOCABLE };
enum reef_extent_state {
	REEF_EXTENT_LIVE = 1,
	REEF_EXTENT_MOVING,
	REEF_EXTENT_LOST,
	/* As LOST, and not counted for its space. Only the broker tells the two
	 * apart: in messages it is LOST. */
	REEF_EXTENT_FORGOTTEN,
	REEF_EXTENT_REMOVED, /* in messages only: there is none any more */
	/* One of its two copies was given up. The other is not used before
	 * everybody knows. Clients are told MOVING. */
	REEF_EXTENT_FAILING
};
static inline bool reef_extent_is_lost(uint8_t state)
{
	return state == REEF_EXTENT_LOST || state == REEF_EXTENT_FORGOTTEN;
}
enum reef_session_state {
	REEF_SESSION_ALIVE = 1,
	REEF_SESSION_EXPIRED,
	REEF_SESSION_FENCED,
	REEF_SESSION_RECOVERED
};

/* What users have, each with a limit: X(NAME, name). Names and memory are those
 * in all of a user's spaces, whoever put them there. */
#define REEF_LIMITS(X)                                                         \
	X(SESSIONS, sessions)                                                  \
	X(LINKS, links)                                                        \
	X(SPACES, spaces)                                                      \
	X(EXTENTS, extents)                                                    \
	X(NAMES, names)                                                        \
	X(BYTES, bytes)

enum reef_limit {
#define X(upper, lower) REEF_LIMIT_##upper,
	REEF_LIMITS(X)
#undef X
		REEF_LIMIT_COUNT
};
#define REEF_NO_LIMIT UINT64_MAX

/* True if what recovery said about a session or a block may be otherwise later.
 * The end of the recoverer's own session or host does not pass, but says
 * nothing about them either. */
static inline bool reef_recovery_may_pass(int error)
{
	return error == -REEF_ENOLINK || error == -ETIMEDOUT ||
	       error == -REEF_EINDOUBT || error == -REEF_ENOTDONE ||
	       error == -EBUSY || error == -EAGAIN || error == -ENOMEM ||
	       error == -ECANCELED || error == -REEF_EFENCED ||
	       error == -REEF_EHOSTDEAD;
}

#define REEF_COPIES_MAX 2u /* of a space's memory */

/* The formats of addresses bound these. */
#define REEF_ORDINALS_MAX (1u << 18)
#define REEF_EXTENT_SIZE_MAX (UINT64_C(1) << 32)
/* Where a quota has room for less, there is no smaller extent: it would hold
 * hardly more than its own tables. */
#define REEF_EXTENT_SIZE_LEAST (UINT64_C(2) << 20)
#define REEF_EXTENT_ALIGN 4096

/* Extents of a space are numbered by ordinals, so that 18 bits, and 20 for an
 * offset of 64 bytes, name a block; a large extent takes several. */
#define REEF_ORDINAL_SIZE (UINT64_C(64) << 20)
static inline uint32_t reef_extent_ordinals(uint64_t size)
{
	return size > REEF_ORDINAL_SIZE
		       ? (uint32_t)((size + REEF_ORDINAL_SIZE - 1) /
				    REEF_ORDINAL_SIZE)
		       : 1;
}

/* A session's id is slot 16, generation 16; the generation is never 0. */
static inline uint32_t reef_session_id(uint16_t slot, uint16_t generation)
{
	return (uint32_t)slot << 16 | generation;
}
static inline uint16_t reef_session_slot(uint32_t id)
{
	return (uint16_t)(id >> 16);
}

#endif
