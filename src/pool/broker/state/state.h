/* state.h - the broker's whole memory, as a deterministic state machine.
 *
 * (1) A record is the only way it changes, while serving and at replay alike:
 *     the same records in the same order give the same state and bytes.
 * (2) A record is checked before it is applied: it applies whole or changes
 *     nothing. While serving: check, append to the journal, apply; after a
 *     check nothing can keep that record from being applied.
 * (3) Numbers of extents, nodes, spaces, users and copies are never given
 *     twice, nor is a name's generation. A session's id comes again after
 *     65,535 others of its slot. But extents that are restored have the numbers
 *     that they had, if nobody else has, in an epoch that is higher than all
 *     before; and what comes next is raised above them.
 * (4) Extents are on nodes that are not DEAD; where an extent's node dies it is
 *     LOST, and the pool epoch rises in the same record. It rises, too, when a
 *     node becomes AWAY, and when it is so and back in one; the extents of
 *     that one stay.
 * (5) A node never lends more than its capacity, a space never holds more than
 *     its quota.
 * (6) Of each session the last request that changed something is kept, with
 *     what came of it, so that a repetition can be told the same.
 * (7) A session is not RECOVERED while it uses a space: while it may have left
 *     work there that nobody has looked after yet. What is STUCK, because that
 *     failed, does not count, and outlives the session; its id is not given
 *     again before that is gone, too.
 * (8) Limits are settings, and hold for what is new: lowering one takes nothing
 *     away. They are not asked again at replay, so that a new default does not
 *     refuse an old journal.
 *
 * (9) A user never gets more than their limits; the pool's owner, user 0, has
 *     none. Of nodes' and sessions' slots and whatever else is limited for all,
 *     a part is the owner's alone: whatever users take, the owner is let in.
 * (10) A session is `outdated` once the era of its user's credential has risen.
 * (11) An extent is not `made` until its node has said that it has it, and that
 *     is durable; nobody is told of it before. So one that is not made, and
 *     that its node does not have, never held anything.
 * (12) In a space with two copies an extent, the *primary*, may have a *twin*:
 *     an extent of the same size, with a number, a copy and a node of its own,
 *     and without an ordinal. The two name each other, are on different nodes,
 *     and neither node is gone. Where a node goes, in the same record, its
 *     copies are given up: the primary goes on with the memory of the other,
 *     its twin is no more, and it is FAILING. So a state never has a copy that
 *     lacks what the other was acknowledged. A twin that nobody names is not
 *     used yet.
 * (13) Nodes know memory by its *label*, which stays with a copy: the number
 *     that its extent had when it was made. A primary that goes on with its
 *     twin's memory has that one's label.
 *
 * Which state follows which: wire/states.h.
 *
 * Pointers that queries return are good until the next check or apply.
 *
 * Thread: owner. */
#ifndef REEF_POOL_BROKER_STATE_STATE_H
#define REEF_POOL_BROKER_STATE_STATE_H

#include "base/system/process.h"
#include "pool/broker/state/name_list.h"
#include "pool/broker/state/record.h"
#include "wire/states.h"

/* X(NAME, name, default, least, most). The order is in journals. */
#define REEF_SETTINGS(X)                                                       \
	X(NODES_MAX, nodes_max, 1024, 1, UINT32_MAX)                           \
	X(SPACES_MAX, spaces_max, 65536, 1, UINT32_MAX)                        \
	X(EXTENTS_MAX, extents_max, 1048576, 1, UINT32_MAX)                    \
	X(SESSIONS_MAX, sessions_max, 4096, 1, 32768)                          \
	X(USERS_MAX, users_max, 65536, 1, UINT32_MAX)                          \
	X(NAMES_MAX, names_max, 1048576, 1, UINT32_MAX)                        \
	X(NAME_SIZE_MAX, name_size_max, 255, 1, 16384)                         \
	X(ADDRESSES_SIZE_MAX, addresses_size_max, 1024, 1, 16384)              \
	X(EXTENT_SIZE, extent_size, 67108864, 4096, UINT64_C(4294967296))      \
	X(LEASE_TTL_NS, lease_ttl_ns, UINT64_C(10000000000), 1000000,          \
	  UINT64_C(86400000000000))                                            \
	X(NODE_TTL_NS, node_ttl_ns, UINT64_C(10000000000), 1000000,            \
	  UINT64_C(86400000000000))                                            \
	X(REVOKE_NOTICE_NS, revoke_notice_ns, UINT64_C(1000000000), 0,         \
	  UINT64_C(86400000000000))                                            \
	X(LEASE_KILLS, lease_kills, 0, 0, 1)                                   \
	/* Of each user who has no limit of their own, as enum reef_limit. */  \
	X(USER_SESSIONS, user_sessions, 1024, 1, REEF_NO_LIMIT)                \
	X(USER_LINKS, user_links, 1280, 1, REEF_NO_LIMIT)                      \
	X(USER_SPACES, user_spaces, 1024, 1, REEF_NO_LIMIT)                    \
	X(USER_EXTENTS, user_extents, 65536, 1, REEF_NO_LIMIT)                 \
	X(USER_NAMES, user_names, 65536, 1, REEF_NO_LIMIT)                     \
	X(USER_BYTES, user_bytes, REEF_NO_LIMIT, 1, REEF_NO_LIMIT)

enum reef_setting {
#define X(upper, lower, value, least, most) REEF_SETTING_##upper,
	REEF_SETTINGS(X)
#undef X
		REEF_SETTING_COUNT
};

/* Slots beyond sessions_max that sessions of the owner may take; and those of
 * them that are left to the pool's own: its janitor, doors and operators. */
#define REEF_OWNER_SLOTS 64u
#define REEF_SERVANT_SLOTS 16u
/* The part that users leave to the owner of what is limited for all. */
#define REEF_OWNER_PART 16u

struct reef_state_user {
	uint32_t id, era;
	/* By enum reef_limit. Sessions: not RECOVERED; links: not counted here,
	 * they are of a broker's start. */
	uint64_t uses[REEF_LIMIT_COUNT];
	uint64_t limits[REEF_LIMIT_COUNT]; /* 0: as the setting says */
	const char *name;
};

struct reef_state_node {
	uint32_t id;
	uint8_t state;
	uint32_t extents;     /* on it or moving to it */
	uint64_t incarnation; /* 0: it has not come yet, and is DEAD */
	uint64_t capacity;
	uint64_t used; /* bytes of those extents */
	bool keeps;    /* its memory outlasts its lives */
	bool drains;   /* it is AWAY, and was DRAINING */
	const char *name;
	char *addresses;
};

struct reef_state_space {
	uint32_t id;
	uint8_t kind, keeping;
	uint8_t copies; /* wanted, of its memory: 1 or 2 */
	bool strict;	/* it grows by nothing that has fewer */
	uint32_t era, user;
	uint32_t session; /* whose it is, if scratch */
	uint32_t extents; /* without those that are FORGOTTEN */
	uint32_t names;
	uint64_t quota, used;	/* bytes; LOST extents count, FORGOTTEN not */
	uint32_t ordinals;	/* entries below */
	uint32_t ordinals_room; /* allocated */
	uint32_t *by_ordinal;	/* extent numbers; 0: free, or not its first */
	const char *name;	/* "": none */
};

struct reef_state_extent {
	uint32_t number, space, ordinal;
	uint32_t node;	 /* 0: LOST or FORGOTTEN */
	uint32_t target; /* where it moves to; 0: it does not */
	uint32_t epoch;	 /* rises as it moves and is lost */
	uint8_t state;
	bool made; /* (11) */
	uint64_t size;
	uint64_t copy;	/* id; a move keeps it */
	uint32_t label; /* (13) */
	/* (12): a primary's twin, or a twin's primary; 0: none. */
	uint32_t twin;
	bool is_twin; /* and its ordinal is REEF_ORDINALS_MAX */
};

struct reef_state_session {
	uint32_t id; /* 0: the slot was never used */
	uint32_t user;
	uint8_t state;
	bool outdated; /* (10) */
	/* The last request that made a record that names it, that record's
	 * type, and what came of it: the id (SPACE_ADD, EXTENT_ADD, USER_ADD,
	 * NODE_ADD), generation (NAME_BIND, NAME_REPLACE), era (SPACE_ERA,
	 * USER_ERA) or value (SETTING), else 0. */
	uint32_t request;
	uint16_t request_type;
	uint64_t result;
	/* Whose control link it was last, where that is known; pid 0: it is
	 * not. A later start of the broker asks whether it still lives. */
	struct reef_process process;
};

/* A session that may have left work in a space when it ends. */
struct reef_state_use {
	uint32_t session, space;
	bool stuck; /* and nobody can recover it */
};

/* Requests of a session are numbered one after the other, and begin again after
 * 2^32, without 0. */
static inline bool reef_request_is_later(uint32_t number, uint32_t than)
{
	return (int32_t)(number - than) > 0;
}

struct reef_state;

/* An empty state: no pool yet. Caller owns *out.  -ENOMEM. */
int reef_state_create(struct reef_state **out);
void reef_state_destroy(struct reef_state *state); /* NULL is fine */

/* Check whether this record would apply. Takes the memory that it needs,
 * changes nothing else. -EINVAL: a value that makes no sense, here or ever.
 * -ENOENT: no such thing. -EEXIST: there is one.  -ESTALE: an epoch, era,
 * generation or number is not the one that comes next.  -EALREADY: that request
 * was done. -EBUSY: in a state, or a use, that forbids it. -EDQUOT: over the
 * quota of a space, or a user's limit.  -ENOSPC: over a limit for all, or a
 * capacity.  -ENOMEM. */
int reef_state_check(struct reef_state *state,
		     const struct reef_record *record);

/* Apply it. Errors as check; none if check of this very record has just
 * returned 0. */
int reef_state_apply(struct reef_state *state,
		     const struct reef_record *record);

/* Apply what a journal holds.  -REEF_ECORRUPT: it is malformed, or does not
 * apply.  -REEF_EVERSION: no such type.  -ENOMEM. */
int reef_state_replay(struct reef_state *state, uint16_t type,
		      const void *bytes, size_t size);

/* --- snapshots (snapshot.c) --- */

/* The whole state as bytes; the same state gives the same ones. The caller
 * frees *bytes.  -ENOMEM. */
int reef_state_encode(const struct reef_state *state, uint8_t **bytes,
		      size_t *size);

/* Everything is checked.  -REEF_ECORRUPT, -REEF_EVERSION, -ENOMEM. */
int reef_state_decode(const void *bytes, size_t size, struct reef_state **out);

/* --- queries --- */

struct reef_state_summary {
	uint64_t pool; /* 0: no pool yet */
	uint64_t pool_epoch, broker_epoch;
	/* As in REEF_RECORD_BASE; both 0: an older broker wrote all of it. */
	uint64_t base_epoch, base;
	uint64_t reclaim; /* R8: epochs below it may have been published */
	/* What the next record of that kind must say. */
	uint32_t next_user, next_node, next_space, next_extent;
	uint64_t next_copy;
	uint64_t twins;	     /* extents that are one */
	uint64_t names;	     /* bound, in all spaces */
	uint64_t generation; /* the last that a name was given */
	uint32_t owner_era;
};

void reef_state_summary(const struct reef_state *state,
			struct reef_state_summary *out);

uint64_t reef_state_setting(const struct reef_state *state,
			    enum reef_setting setting);
const char *reef_setting_name(enum reef_setting setting);
/* Find a setting by its name.  -ENOENT: there is none. */
int reef_setting_find(const char *name, enum reef_setting *out);

/* All of a kind in the order of their numbers (sessions: of their slots). */
const struct reef_state_user *reef_state_users(const struct reef_state *state,
					       size_t *count);
const struct reef_state_node *reef_state_nodes(const struct reef_state *state,
					       size_t *count);
const struct reef_state_space *reef_state_spaces(const struct reef_state *state,
						 size_t *count);
const struct reef_state_extent *
reef_state_extents(const struct reef_state *state, size_t *count);
const struct reef_state_session *
reef_state_sessions(const struct reef_state *state, size_t *count);

/* In the order of their slots, then of the spaces. */
const struct reef_state_use *reef_state_uses(const struct reef_state *state,
					     size_t *count);

/* One, or NULL. A session also if it has ended, until its slot is used anew. */
const struct reef_state_user *reef_state_user(const struct reef_state *state,
					      uint32_t id);
const struct reef_state_node *reef_state_node(const struct reef_state *state,
					      uint32_t id);
const struct reef_state_space *reef_state_space(const struct reef_state *state,
						uint32_t id);
const struct reef_state_extent *
reef_state_extent(const struct reef_state *state, uint32_t number);
const struct reef_state_session *
reef_state_session(const struct reef_state *state, uint32_t id);

/* The extent that has the memory of that label, or moves it, at that node or
 * anywhere (0). NULL: none. */
const struct reef_state_extent *
reef_state_labelled(const struct reef_state *state, uint32_t label);

/* The number of the user, node or space of that name; 0: none has it. */
uint32_t reef_state_find_user(const struct reef_state *state,
			      struct reef_text name);
uint32_t reef_state_find_node(const struct reef_state *state,
			      struct reef_text name);
uint32_t reef_state_find_space(const struct reef_state *state,
			       struct reef_text name);

/* The id of the next session to open; slots are taken in turn, so that an id
 * comes again as late as can be. reserved: how many of the owner's slots it may
 * take, if there is no other.  -ENOSPC: every slot is in use. */
int reef_state_pick_session(const struct reef_state *state, uint32_t reserved,
			    uint32_t *id);

/* How much a user may have; REEF_NO_LIMIT: as much as there is, as the owner,
 * user 0, always. */
uint64_t reef_state_limit(const struct reef_state *state, uint32_t user,
			  enum reef_limit limit);
/* Check that one more extent of that size is within the quota of a space, and
 * the limits of whose it is.  -EDQUOT. */
int reef_state_check_room(const struct reef_state *state,
			  const struct reef_state_space *space, uint64_t size);
/* Check that so much more is within a user's limit.  -EDQUOT. */
int reef_state_check_user(const struct reef_state *state, uint32_t user,
			  enum reef_limit limit, uint64_t more);

/* The ordinal for a space's next extent, of that size: one never used while
 * there is any; then they go round, so that one whose extent was removed comes
 * again as late as can be.  -ENOENT: no such space.  -ENOSPC: all are taken. */
int reef_state_pick_ordinal(const struct reef_state *state, uint32_t space,
			    uint64_t size, uint32_t *ordinal);

/* What is bound to a name in a space. NULL: nothing. */
const struct reef_name *reef_state_name(const struct reef_state *state,
					uint32_t space, struct reef_text name);

/* The first name of a space that begins with prefix and comes after `after`
 * (NULL: the first). NULL: no more. */
const struct reef_name *reef_state_name_next(const struct reef_state *state,
					     uint32_t space,
					     struct reef_text prefix,
					     const struct reef_text *after);

#endif
