/* recopy.c - second copies again, one extent after the other, while their space
 * is used.
 *
 * (1) The extent is closed before it is copied, so that nobody changes it, and
 *     opened only when the pair is durable, or is off: whoever is let in by the
 *     new keys has the twin that goes with them.
 * (2) A copy is a new one, with an id that no other has had.
 * (3) If the broker dies before the pair is durable, the next start removes the
 *     twin (twins.c), and the extent, which is closed and LIVE, is opened again
 *     (move.c).
 * (4) An extent that somebody else has closed, or moves, is left alone for now,
 *     and so is a space that is being saved.
 * (5) Where no node has room, the extent has one copy, and is looked at again
 *     later. An event tells once.
 *
 *   LIVE, one copy --broker_twin_place: a twin, not made--> --close_extent-->
 *     closed --PULL--> --EXTENT_MADE, EXTENT_PAIR--> two copies, closed
 *     --REOPEN--> open */
#include "pool/broker/lending.h"

#include "base/mutant.h"

#include <errno.h>

#define LOOK_NS UINT64_C(1000000000) /* again for a node that has room */
#define CLOSES_MAX 6u /* tries to close one, before others have their turn */

/* True for an extent that lacks a copy, and that nobody else has in hand. */
static bool is_free(struct reef_broker *broker,
		    const struct reef_state_extent *extent)
{
	const struct broker_extent *told =
		broker_extent_find(broker, extent->number);

	return extent->state == REEF_EXTENT_LIVE && !extent->twin &&
	       !extent->is_twin && extent->made && told && told->present &&
	       !told->closed && !told->rekeying && !told->revoking &&
	       !broker_extent_is_moving(broker, extent->number) &&
	       broker_node_is_ready(broker_node_find(broker, extent->node));
}

/* The first extent of a space that can be copied now, after that one. 0: none.
 * *degraded: there is one that cannot. */
static uint32_t find_next(struct reef_broker *broker, uint32_t space,
			  uint32_t after, bool *degraded)
{
	const struct reef_state_extent *extents;
	size_t count, i;

	*degraded = false;
	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++) {
		if (extents[i].space != space || extents[i].twin ||
		    extents[i].is_twin || reef_extent_is_lost(extents[i].state))
			continue;
		*degraded = true;
		if (extents[i].number > after && is_free(broker, &extents[i]))
			return extents[i].number;
	}
	return 0;
}

/* True if the extent is the one that the copy was begun of, and closed since
 * then. */
static bool is_still_closed(struct reef_broker *broker,
			    const struct reef_state_extent *was, uint64_t mark)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, was->number);
	const struct broker_extent *told =
		broker_extent_find(broker, was->number);

	return extent && extent->state == REEF_EXTENT_LIVE && !extent->twin &&
	       extent->node == was->node && extent->copy == was->copy && told &&
	       told->rekeying == mark &&
	       (told->closed || REEF_MUTATED(BROKER_COPY_OPEN));
}

/* (1); keys: by which nodes read it. */
static int close_extent(struct reef_broker *broker,
			const struct reef_state_extent *was, uint64_t mark,
			struct reef_extent_keys *keys)
{
	struct reef_body body = {.ask.extent_close.extent = was->label};
	struct broker_extent *told = broker_extent_find(broker, was->number);
	struct reef_answer answer = {0};
	uint64_t pause_ns = 0;
	uint32_t tries;
	int rc = -EAGAIN;

	told->rekeying = mark;
	if (REEF_MUTATED(BROKER_COPY_OPEN)) {
		*keys = told->keys;
		return 0;
	}
	broker_extent_set_closed(broker, was->number);
	broker_notice_space(broker, was->space);
	for (tries = 0; tries < CLOSES_MAX; tries++) {
		rc = broker_node_call(broker, was->node, REEF_POOL_EXTENT_CLOSE,
				      &body, &answer);
		if (rc != -ETIMEDOUT || broker_sleep_longer(broker, &pause_ns))
			break;
	}
	if (rc)
		return rc;
	*keys = answer.body.reply.extent;
	reef_answer_free(&answer);
	return is_still_closed(broker, was, mark) ? 0 : -EAGAIN;
}

/* Copy a closed extent to its twin's node. */
static int fill_twin(struct reef_broker *broker,
		     const struct reef_state_extent *was, uint32_t number,
		     struct reef_extent_keys *keys)
{
	const struct reef_state_extent *twin =
		reef_state_extent(broker->state, number);
	struct reef_ask_extent_create ask;
	uint32_t node;
	int rc;

	if (!twin)
		return -EAGAIN;
	node = twin->node;
	ask = (struct reef_ask_extent_create){
		.extent = twin->label,
		.space = twin->space,
		.epoch = twin->epoch,
		.size = twin->size,
		.copy = twin->copy,
	};
	rc = broker_extent_pull(broker, was->node, node, &ask, was, keys);
	twin = reef_state_extent(broker->state, number);
	if (rc || !twin || twin->node != node)
		return rc ? rc : -EAGAIN;
	rc = broker_extent_note_made(broker, number);
	return rc ? rc : broker_extent_set_keys(broker, number, keys);
}

static int pair_up(struct reef_broker *broker,
		   const struct reef_state_extent *was, uint64_t mark,
		   uint32_t twin)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, was->number);
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_PAIR,
		.id = was->number,
		.value = twin,
	};

	if (!is_still_closed(broker, was, mark) ||
	    !reef_state_extent(broker->state, twin))
		return -EAGAIN;
	record.era = extent->epoch + 1;
	return broker_commit_wait(broker, &record, NULL);
}

/* Let clients in again, if nobody else has done anything to it since. */
static void open_extent(struct reef_broker *broker,
			const struct reef_state_extent *was, uint64_t mark)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, was->number);
	struct broker_extent *told = broker_extent_find(broker, was->number);

	if (extent && told && told->rekeying == mark && told->closed &&
	    extent->state == REEF_EXTENT_LIVE && extent->copy == was->copy)
		(void)broker_extent_reopen_once(broker, was->number);
	told = broker_extent_find(broker, was->number);
	if (told && told->rekeying == mark)
		told->rekeying = 0;
	/* What its node could not open at once is opened by move.c. */
	broker_moves_resume(broker);
}

/* Give an extent a second copy. */
static int recopy(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *extent;
	struct reef_extent_keys keys;
	uint64_t mark = broker_close_number(broker);
	struct reef_state_extent was;
	uint32_t twin, node = 0;
	int rc = broker_twin_place(broker, number, NULL, &twin);

	if (rc)
		return rc;
	extent = reef_state_extent(broker->state, number);
	if (!extent || !is_free(broker, extent)) {
		(void)broker_extent_discard(broker, twin, NULL);
		return -EAGAIN;
	}
	was = *extent;
	rc = close_extent(broker, &was, mark, &keys);
	if (rc == 0)
		rc = fill_twin(broker, &was, twin, &keys);
	if (rc == 0)
		rc = pair_up(broker, &was, mark, twin);
	if (rc == 0)
		node = reef_state_extent(broker->state, twin)
			       ? reef_state_extent(broker->state, twin)->node
			       : 0;
	else if (rc != -ECANCELED && rc != -REEF_EHOSTDEAD)
		(void)broker_extent_discard(broker, twin, NULL);
	open_extent(broker, &was, mark);
	if (rc == 0)
		broker_event(broker,
			     "extent %u of space %u has a second copy again, "
			     "on node %u",
			     number, was.space, node);
	return rc;
}

int broker_recopy_next(struct reef_broker *broker, struct broker_care *care)
{
	uint32_t number;
	bool degraded;
	int rc;

	if (broker_space_is_saving(broker, care->space))
		return -EAGAIN;
	number = find_next(broker, care->space, care->last, &degraded);
	if (!number && care->last) { /* the others once more, in their turn */
		care->last = 0;
		return -EAGAIN;
	}
	if (!number)
		return degraded ? -EAGAIN : -ENOENT;
	rc = recopy(broker, number);
	if (rc == 0)
		care->is_told = false;
	if (rc && rc != -ECANCELED && rc != -REEF_EHOSTDEAD && !care->is_told) {
		broker_event(broker, "space %u has one copy of extent %u: %s",
			     care->space, number,
			     rc == -ENOSPC ? "no other node has room"
					   : reef_error_text(rc));
		care->is_told = true;
	}
	care->last = rc ? number : care->last;
	if (rc == -ENOSPC || rc == -EDQUOT) {
		care->last = 0;
		care->due_ns = reef_now_ns() + LOOK_NS;
		return 0;
	}
	return rc;
}
