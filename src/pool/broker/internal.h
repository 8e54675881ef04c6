/* internal.h - the parts of a broker, to each other.
 *
 *   serve.c     start and stop; who may ask what; requests to their functions
 *   commit.c    check, append, apply, wait; repetitions; snapshots
 *   table.c     the table that clients READ: states, notices, epochs
 *   sessions.c  open, resume, close; renewal words; users
 *   lease.c     samples; ALIVE -> EXPIRED -> FENCED -> RECOVERED
 *   names.c     (state) and bind.c: requests about names
 *   nodes.c     register, pulse, death; fences; calls to nodes
 *   spaces.c    open, extents, drop, quota, token, revoke
 *   extents.c   placement, create, remove, revoke under pressure
 *   move.c      drain: extents from node to node
 *   status.c    lists, events
 *
 * What is durable is in `state` and changes through broker_commit only. What is
 * in the structs below is of this start: it can be lost, and is told anew by
 * nodes and clients when they come back.
 *
 * A fiber that waited (journal, call) looks everything up again: what it
 * pointed to may be gone.
 *
 * Thread: owner. */
#ifndef REEF_POOL_BROKER_INTERNAL_H
#define REEF_POOL_BROKER_INTERNAL_H

#include "base/random.h"
#include "fabric/memory.h"
#include "pool/broker/broker.h"
#include "pool/broker/journal.h"
#include "pool/broker/state.h"
#include "pool/keys.h"
#include "pool/rpc.h"

/* What a peer is; peer->user points to it. */
enum broker_member_kind { BROKER_UNKNOWN, BROKER_CLIENT, BROKER_NODE };

struct broker_member {
	enum broker_member_kind kind;
	struct reef_peer *peer;
	uint32_t user; /* clients: whose key was proven */
	struct broker_session *session;
	struct broker_node *node;
};

/* A session that is not RECOVERED. */
struct broker_session {
	uint32_t id, user;
	struct reef_peer *peer; /* its control link now; NULL: none */
	uint32_t pid;
	char name[64]; /* of its program */
	/* Its renewal word, exposed on the fabric of its link. */
	struct reef_memory *renewal;
	struct reef_region *region;
	/* lease.c */
	uint64_t sampled_word, sampled_ns, renewed_ns;
	uint32_t unchanged;
	bool ending; /* a fiber takes it from EXPIRED onwards */
	uint32_t notices;
	/* Spaces that it opened, with what its token allows. */
	struct broker_grant {
		uint32_t space;
		uint8_t rights;
	} * grants;
	uint32_t grants_count, grants_room;
	struct broker_session *next;
};

/* A node that is not DEAD. */
struct broker_node {
	uint32_t id;
	uint64_t incarnation, domain;
	struct reef_peer *peer; /* NULL: away, and not yet taken for dead */
	bool ready;		/* told all its extents in this start */
	uint64_t heard_ns;
	uint64_t machine_free, wanted; /* as it said last */
	uint32_t links;
	bool draining; /* a fiber works on it */
	struct broker_node *next;
};

/* What an extent's node told: its keys, by door. By extent number. */
struct broker_extent {
	uint32_t number;
	bool present;
	uint64_t keys[REEF_DOORS_MAX];
};

struct broker_event {
	uint64_t number, at_ns;
	char text[160];
};
#define BROKER_EVENTS 256

struct reef_broker {
	struct reef_broker_options options;
	struct reef_key key;
	struct reef_sched *sched;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_journal *journal;
	struct reef_state *state;
	struct reef_random random;
	uint64_t epoch, started_ns;
	int health;
	bool stopping;
	uint32_t fibers; /* of its own, to be waited for by stop */
	char addresses[512];
	/* table.c */
	struct reef_memory *table;
	struct reef_region *table_regions[REEF_MESH_MAX];
	/* volatile */
	struct broker_session *sessions;
	struct broker_node *nodes;
	struct broker_extent *extents; /* sorted by number */
	uint32_t extents_count, extents_room;
	uint64_t changes; /* stamps versions of spaces */
	struct broker_version {
		uint32_t space;
		uint64_t version;
	} * versions;
	uint32_t versions_count, versions_room;
	struct broker_event events[BROKER_EVENTS];
	uint64_t events_count;
};

/* --- commit.c --- */

/* Check, append, apply; *sequence (may be NULL) is what to wait for. request:
 * whose mutation it is, or NULL for the broker's own. Errors: state's, or the
 * journal's (then health is set). */
int broker_commit(struct reef_broker *broker, struct reef_record *record,
		  const struct reef_request *request, uint64_t *sequence);
int broker_wait_durable(struct reef_broker *broker, uint64_t sequence);
/* Both. */
int broker_commit_wait(struct reef_broker *broker, struct reef_record *record,
		       const struct reef_request *request);

/* --- table.c --- */

int broker_table_open(struct reef_broker *broker);
void broker_table_close(struct reef_broker *broker);
/* Publish what the state says of a session, or of the epochs. */
void broker_table_session(struct reef_broker *broker, uint32_t session);
void broker_table_epochs(struct reef_broker *broker, uint64_t reclaim,
			 uint64_t safe);
/* Let a session look: change its notice word, and send the note. */
void broker_notice(struct reef_broker *broker, struct broker_session *session);
/* A space changed: new version, and everybody who opened it looks. */
void broker_notice_space(struct reef_broker *broker, uint32_t space);
uint64_t broker_space_version(struct reef_broker *broker, uint32_t space);

/* --- sessions.c, lease.c --- */

struct broker_session *broker_session_find(struct reef_broker *broker,
					   uint32_t id);
/* The session that asks.  NULL: none, or it has ended. */
struct broker_session *broker_session_of(const struct reef_request *request);
/* What the session may do in a space: rights bits; the owner everything. */
uint8_t broker_rights(struct reef_broker *broker,
		      const struct broker_session *session, uint32_t space);
int broker_grant(struct broker_session *session, uint32_t space,
		 uint8_t rights);
/* Take it from ALIVE to its end, in a fiber of its own. */
void broker_session_end(struct reef_broker *broker,
			struct broker_session *session, const char *why);
/* lease.c: the sampler; runs until stop. Also moves the reclaim epoch. */
int broker_lease_start(struct reef_broker *broker);
/* A session opened a space: is there a dead one to recover in it? */
void broker_recover_look(struct reef_broker *broker, uint32_t space);

/* --- nodes.c --- */

struct broker_node *broker_node_find(struct reef_broker *broker, uint32_t id);
/* Call a node and wait; as reef_rpc_call. -REEF_ENOLINK: it is away. */
int broker_node_call(struct reef_broker *broker, uint32_t node, uint16_t kind,
		     const struct reef_body *body, struct reef_answer *answer);
/* Fence a session at every node; returns 0 once each confirmed or is DEAD.
 * Retries for ever, except when the broker stops: then -ECANCELED. */
int broker_nodes_fence(struct reef_broker *broker, uint32_t session);
/* The link of a node is gone, or a client's; from serve.c. */
void broker_node_left(struct reef_broker *broker, struct broker_node *node);
void broker_session_left(struct reef_broker *broker,
			 struct broker_session *session);
int broker_nodes_start(struct reef_broker *broker); /* judges their pulse */

/* --- extents.c, move.c --- */

struct broker_extent *broker_extent_find(struct reef_broker *broker,
					 uint32_t number);
int broker_extent_set(struct reef_broker *broker, uint32_t number,
		      const uint64_t keys[REEF_DOORS_MAX]);
void broker_extent_forget(struct reef_broker *broker, uint32_t number);
/* Go on with drains and moves that the journal holds. */
void broker_moves_look(struct reef_broker *broker);

/* --- status.c --- */

__attribute__((format(printf, 2, 3))) void
broker_event(struct reef_broker *broker, const char *format, ...);

/* --- requests: each kind its function, called by serve.c --- */

#define BROKER_REQUEST(name)                                                   \
	int name(struct reef_broker *broker,                                   \
		 const struct reef_request *request, struct reef_body *answer, \
		 struct reef_cursor_out *room)

BROKER_REQUEST(broker_session_open);
BROKER_REQUEST(broker_session_resume);
BROKER_REQUEST(broker_session_close);
BROKER_REQUEST(broker_session_end_request);
BROKER_REQUEST(broker_user_add);
BROKER_REQUEST(broker_user_remove);
BROKER_REQUEST(broker_setting);
BROKER_REQUEST(broker_name_bind);
BROKER_REQUEST(broker_name_replace);
BROKER_REQUEST(broker_name_unbind);
BROKER_REQUEST(broker_name_lookup);
BROKER_REQUEST(broker_name_list);

BROKER_REQUEST(broker_space_open);
BROKER_REQUEST(broker_space_close);
BROKER_REQUEST(broker_space_extents);
BROKER_REQUEST(broker_space_drop);
BROKER_REQUEST(broker_space_quota);
BROKER_REQUEST(broker_space_revoke);
BROKER_REQUEST(broker_space_token);
BROKER_REQUEST(broker_extent_add);
BROKER_REQUEST(broker_extent_remove);
BROKER_REQUEST(broker_node_register);
BROKER_REQUEST(broker_node_extents);
BROKER_REQUEST(broker_node_ready);
BROKER_REQUEST(broker_node_pulse);
BROKER_REQUEST(broker_node_drain);
BROKER_REQUEST(broker_node_reclaim);
BROKER_REQUEST(broker_node_remove);
BROKER_REQUEST(broker_status);
BROKER_REQUEST(broker_list);

#endif
