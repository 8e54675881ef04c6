/* lending.h - what nodes.c, spaces.c, extents.c, drop.c and move.c share, beyond
 * internal.h.
 *
 * Thread: owner. */
#ifndef REEF_POOL_BROKER_LENDING_H
#define REEF_POOL_BROKER_LENDING_H

#include "pool/broker/internal.h"

static inline struct reef_text broker_text(const char *text)
{
	return (struct reef_text){text, (uint16_t)strlen(text)};
}

/* --- nodes.c --- */

/* Sleep a little longer each time, for what is tried until it is done; *pause
 * begins with 0. As broker_sleep. */
int broker_back_off(struct reef_broker *broker, uint64_t *pause_ns);
/* It has told what it has, and its link is up. */
bool broker_node_is_ready(const struct broker_node *node);
/* As broker_node_call, also while the node is telling what it has. */
int broker_node_call_early(struct reef_broker *broker, uint32_t node,
			   uint16_t kind, const struct reef_body *body,
			   struct reef_answer *answer);
/* Fence sessions at one node, all at once, each tried once. */
#define BROKER_FENCES_MAX 32
int broker_node_fence(struct reef_broker *broker, uint32_t node,
		      const uint32_t *sessions, uint32_t count);
/* Add one that the state has; it is away, and counts as just heard. NULL: no
 * memory. */
struct broker_node *broker_node_add(struct reef_broker *broker,
				    const struct reef_state_node *from);
/* Its link is not its link any more. */
void broker_node_unlink(struct broker_node *node);
/* It is not among those that are not DEAD, with all that it told. */
void broker_node_gone(struct reef_broker *broker, uint32_t id);
uint64_t broker_node_ttl(const struct reef_broker *broker);
/* It is DEAD: journaled, published, told. */
int broker_node_bury(struct reef_broker *broker, uint32_t id, const char *why);
/* Notice to every space that has an extent on (or moving to) this node. */
void broker_notice_node(struct reef_broker *broker, uint32_t node);

/* --- extents.c --- */

/* Nodes that are not to be asked (again). */
#define BROKER_AVOID_MAX 16
struct broker_avoid {
	uint32_t count, nodes[BROKER_AVOID_MAX];
};
void broker_avoid(struct broker_avoid *avoid, uint32_t node);

/* The node to be given `size` bytes: of two random ones that have room the one
 * that is less full. extent (0: a new one): where an old copy of it is still to
 * be dropped is not asked either. 0: none. */
uint32_t broker_place(struct reef_broker *broker, uint64_t size,
		      uint32_t extent, const struct broker_avoid *avoid);
/* What nodes told, in the order of the numbers: at start nothing, with room for
 * all that there is, so that telling need not move it about. */
int broker_extents_open(struct reef_broker *broker);
/* Forget what the state has no more. */
void broker_extents_compact(struct reef_broker *broker);
/* Forget that of one node. */
void broker_extents_forget(struct reef_broker *broker, uint32_t node);
/* Ask the node for what the state says it has, and keep its keys. */
int broker_extent_create(struct reef_broker *broker, uint32_t number);
/* Journal that it is lost, tell, and drop it at its node. */
int broker_extent_lose(struct reef_broker *broker, uint32_t number,
		       const char *why);

/* --- reclaim.c --- */

/* Take revocable extents of a node back, so that with what is under way that
 * many bytes come free; returns how many will. */
uint64_t broker_reclaim(struct reef_broker *broker, uint32_t node,
			uint64_t bytes);

/* --- drop.c --- */

/* Have a node drop an extent that the state does not have there, however long
 * that takes; given up when the node is dead or tells anew what it has. */
void broker_drop_later(struct reef_broker *broker, uint32_t node,
		       uint32_t extent, uint64_t size);
bool broker_drop_pending(const struct broker_node *node, uint32_t extent);
/* It tells anew what it has. */
void broker_drop_forget(struct broker_node *node);

/* --- move.c --- */

/* After a move that is off: let clients in again where it is, under new keys.
 * Tries until that is done, or it is not to be.  -ECANCELED, -REEF_EHOSTDEAD.
 */
int broker_extent_reopen(struct reef_broker *broker, uint32_t number);
bool broker_is_being_moved(struct reef_broker *broker, uint32_t number);
/* The same, tried once.  Errors as broker_node_call_early. */
int broker_extent_reopen_once(struct reef_broker *broker, uint32_t number);

/* --- rekey.c --- */

/* New keys for all that is in a space; waits until every old one is void. */
int broker_space_rekey(struct reef_broker *broker, uint32_t space);

/* --- spaces.c --- */

/* May whoever asks do that there?  -ENOENT: no such space.  -EACCES. */
int broker_may(struct reef_broker *broker, const struct reef_request *request,
	       uint32_t space, uint8_t rights);

/* --- status.c --- */

/* What is in `room` are the answer's rows. */
void broker_rows_end(struct reef_body *answer,
		     const struct reef_cursor_out *room);
void broker_extent_row(struct reef_broker *broker,
		       const struct reef_state_extent *extent,
		       struct reef_cursor_out *room);
void broker_node_row(struct reef_broker *broker,
		     const struct reef_state_node *node,
		     struct reef_cursor_out *room);

#endif
