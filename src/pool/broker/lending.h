/* lending.h - what nodes.c, spaces.c, extents.c, drop.c and move.c share,
 * beyond internal.h.
 *
 * Thread: owner. */
#ifndef REEF_POOL_BROKER_LENDING_H
#define REEF_POOL_BROKER_LENDING_H

#include "pool/broker/internal.h"

/* --- nodes.c --- */

/* Sleep as broker_sleep, a little longer each time, for what is tried until it
 * is done; *pause_ns begins with 0. */
int broker_sleep_longer(struct reef_broker *broker, uint64_t *pause_ns);
/* True for a node that has told what it has, and whose link is up. */
bool broker_node_is_ready(const struct broker_node *node);
/* As broker_node_call, also for a node that is still telling what it has. */
int broker_node_call_early(struct reef_broker *broker, uint32_t node,
			   uint16_t kind, const struct reef_body *body,
			   struct reef_answer *answer);
/* Call a node, before it is confirmed who speaks for the pool. */
int broker_node_call_unconfirmed(struct reef_broker *broker, uint32_t node,
				 uint16_t kind, const struct reef_body *body);
/* Fence sessions at one node, all at once, each tried once. */
#define BROKER_FENCES_MAX 32
int broker_node_fence(struct reef_broker *broker, uint32_t node,
		      const uint32_t *sessions, uint32_t count);
/* Add a node that the state has; it is away, and counts as just heard. NULL: no
 * memory. */
struct broker_node *broker_node_add(struct reef_broker *broker,
				    const struct reef_state_node *from);
/* Take the node's link from it. */
void broker_node_unlink(struct broker_node *node);
/* Forget a node that is DEAD or removed, and all that it told. */
void broker_node_forget(struct reef_broker *broker, uint32_t id);
uint64_t broker_node_ttl(const struct reef_broker *broker);
/* How often nodes are to pulse. */
uint64_t broker_pulse_period(const struct reef_broker *broker);
/* Make a node DEAD in the state, and notice the spaces that it lent to; never
 * waits. */
int broker_node_bury(struct reef_broker *broker, uint32_t id, const char *why);
/* The same for a life that is over: the node is AWAY if it keeps its memory,
 * else DEAD. */
int broker_node_end_life(struct reef_broker *broker, uint32_t id,
			 const char *why);
/* The same for a node that keeps its memory, by the record of its next life: no
 * state is without it. */
int broker_node_renew(struct reef_broker *broker, struct reef_record *life);
/* End a node's life, and publish that. */
int broker_node_declare_gone(struct reef_broker *broker, uint32_t id,
			     const char *why);
/* Notice every space that has an extent on this node, or moving to it. */
void broker_notice_node(struct reef_broker *broker, uint32_t node);

/* --- place.c --- */

/* Nodes that are not to be chosen (again). */
#define BROKER_AVOID_MAX 16
struct broker_avoid {
	uint32_t count, nodes[BROKER_AVOID_MAX];
};
void broker_avoid_add(struct broker_avoid *avoid, uint32_t node);

/* What a node is to be chosen for. */
struct broker_place {
	uint64_t size;
	uint32_t label;	 /* not where that is still to be dropped; 0: new */
	uint32_t beside; /* the node of its other copy; 0: it has none */
	const struct broker_avoid *avoid; /* may be NULL */
};
/* Choose a node: place.c. 0: none. *soon (may be NULL): one that has no room
 * now will have some. */
uint32_t broker_choose_node(struct reef_broker *broker,
			    const struct broker_place *place, bool *soon);

/* --- extents.c --- */

/* How far a request for an extent is. Begins with zeroes. */
struct broker_adding {
	uint64_t size;
	uint64_t until_ns; /* it waits for room, at most until then; 0: not */
	uint32_t fallen;   /* links */
	bool is_strict;	   /* two nodes or none */
	struct broker_avoid avoid;
};
/* Try to serve an EXTENT_ADD.  REEF_LATER: there may be room soon, try again.
 */
int broker_extent_try_add(struct reef_broker *broker,
			  const struct reef_request *request,
			  struct broker_adding *adding,
			  struct reef_body *answer,
			  struct reef_cursor_out *room);
/* False: there is no room for it, but will be. */
bool broker_may_have_room(struct reef_broker *broker,
			  const struct broker_adding *adding);
/* Make an entry for every extent, at start, so that telling keys of them
 * inserts none. */
int broker_extents_open(struct reef_broker *broker);
/* Forget entries of extents that the state has no more. */
void broker_extents_compact(struct reef_broker *broker);
/* Forget all entries of one node. */
void broker_extents_forget_node(struct reef_broker *broker, uint32_t node);
/* Put in an entry for which one was just forgotten. */
void broker_extent_put(struct reef_broker *broker,
		       const struct broker_extent *entry);
/* Have its node create an extent that the state has, and keep its keys. */
int broker_extent_create(struct reef_broker *broker, uint32_t number);
/* Journal that an extent's node has it, unless that is known; never waits. */
int broker_extent_note_made(struct reef_broker *broker, uint32_t number);
/* Remove an extent, with its twin, from the state, durably; then have its nodes
 * drop it. request as in broker_commit. */
int broker_extent_discard(struct reef_broker *broker, uint32_t number,
			  const struct reef_request *request);
/* Have its nodes drop what an extent was, which the state has no more. */
void broker_drop_extent(struct reef_broker *broker,
			const struct reef_state_extent *was);
/* Journal that an extent is lost, or one of its copies, notice its space, and
 * drop it at its node. */
int broker_extent_lose(struct reef_broker *broker, uint32_t number,
		       const char *why);

/* --- twins.c --- */

/* Journal memory for the second copy of an extent, on a node that suits.
 * -ENOSPC: there is none.  -EDQUOT. */
int broker_twin_place(struct reef_broker *broker, uint32_t number,
		      struct broker_avoid *avoid, uint32_t *twin);
/* Make a twin for an extent that is not made, if its space has copies.
 * -ENOSPC: no node has room; the extent has one copy. */
int broker_twin_add(struct reef_broker *broker, uint32_t number);
/* Remove the twins that nobody names, at start; never waits. */
void broker_twins_sweep(struct reef_broker *broker);

/* --- failover.c, recopy.c --- */

/* A space whose copies a fiber looks after. */
struct broker_care {
	uint32_t space;
	uint32_t last;	   /* extent that could not be copied */
	bool is_told;	   /* why that is so */
	bool is_failing;   /* when it was looked at last */
	bool is_passing;   /* what is FAILING is being opened just now */
	uint64_t since_ns; /* when this began */
	uint64_t due_ns, pause_ns;
	struct broker_care *next;
};
/* Have a space looked after: what is FAILING in it, and what has fewer copies
 * than are wanted. Never waits. */
void broker_care_for(struct reef_broker *broker, uint32_t space);
/* True while something fails over that the session may wait for, and whose
 * nodes are there: so that ends. */
bool broker_is_failing_over(const struct reef_broker *broker,
			    const struct broker_session *session);
/* Make the next second copy of a space. 0: look again.  -ENOENT: it lacks none.
 * Else: not now. */
int broker_recopy_next(struct reef_broker *broker, struct broker_care *care);

/* A copy and its other, as both were before one was given up. */
struct broker_given_up {
	struct reef_state_extent copy, other;
};
/* List the copies on a node, with their others; the caller frees them. */
int broker_copies_on(struct reef_broker *broker, uint32_t node,
		     struct broker_given_up **out, size_t *found);
/* Bring what is known of a pair in line with the state, in which that copy was
 * given up just now. Never waits. */
void broker_copy_given_up(struct reef_broker *broker,
			  const struct broker_given_up *what);

/* --- reclaim.c --- */

/* Take revocable extents of a node back, so that together with those under way
 * that many bytes come free; returns how many will. */
uint64_t broker_reclaim(struct reef_broker *broker, uint32_t node,
			uint64_t bytes);

/* --- drop.c --- */

/* Have a node drop what it knows by that label and the state does not have
 * there, however long that takes; given up when the node is dead or tells anew
 * what it has. */
void broker_drop_later(struct reef_broker *broker, uint32_t node,
		       uint32_t label, uint64_t size);
bool broker_drop_pending(const struct broker_node *node, uint32_t label);
/* Forget a node's drops: it tells anew what it has. */
void broker_drops_forget(struct broker_node *node);

/* --- move.c --- */

/* Have one node make what `copy` says of what another has closed: `of`, or
 * (NULL) what is to have the epoch after its own. keys: those by which that may
 * be read; then those of the copy. */
int broker_extent_pull(struct reef_broker *broker, uint32_t source,
		       uint32_t target,
		       const struct reef_ask_extent_create *copy,
		       const struct reef_state_extent *of,
		       struct reef_extent_keys *keys);
/* Let clients in again at a closed extent that is LIVE, under new keys, as
 * after a move that was called off; tried once.  Errors as
 * broker_node_call_early. */
int broker_extent_reopen_once(struct reef_broker *broker, uint32_t number);
bool broker_extent_is_moving(struct reef_broker *broker, uint32_t number);

/* --- rekey.c --- */

/* Give every extent of a space new keys, and then answer the request, which is
 * a SPACE_REVOKE to that era: REEF_LATER.  Else: what to answer with. 0: there
 * is nothing to do.  -EBUSY: too many wait for that already.  -ENOMEM.
 * request NULL: nobody is answered; 0: it will be done. */
int broker_space_rekey(struct reef_broker *broker,
		       const struct reef_request *request, uint32_t space,
		       uint32_t era);
/* True while keys that a broker_space_rekey without a request found may be
 * good. */
bool broker_space_is_rekeying(const struct reef_broker *broker, uint32_t space);

/* --- spaces.c --- */

/* Check that whoever asks has these rights there.  -ENOENT: no such space.
 * -EACCES. */
int broker_check_rights(struct reef_broker *broker,
			const struct reef_request *request, uint32_t space,
			uint8_t rights);

/* --- status.c --- */

/* Make what is in `room` the answer's rows. */
void broker_rows_finish(struct reef_body *answer,
			const struct reef_cursor_out *room);
/* Encode a row. The keys of an extent are for that session, which is alive, and
 * are noted as told (nodes.c (8)); NULL: they are left out. */
void broker_extent_row(struct reef_broker *broker,
		       struct broker_session *session,
		       const struct reef_state_extent *extent,
		       struct reef_cursor_out *room);
/* Encode the rows of an extent, of its twin and of their nodes; its own is the
 * last, so that who reads them in order knows the twin by then. */
void broker_extent_rows(struct reef_broker *broker,
			struct broker_session *session,
			const struct reef_state_extent *extent,
			struct reef_cursor_out *room);
void broker_node_row(struct reef_broker *broker,
		     const struct broker_session *session,
		     const struct reef_state_node *node,
		     struct reef_cursor_out *room);

#endif
