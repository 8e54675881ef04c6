/* twins.c - second copies of extents: where they come from.
 *
 * (1) Who may use an extent sees both of its copies, or neither: a twin is made
 *     before its primary is, and the record that names it (EXTENT_PAIR) is
 *     applied before anybody is told of the primary. Fresh memory is all zeros
 *     on both sides.
 * (2) Where no other node has room the extent has one copy, unless its space is
 *     strict: then there is none, and -ENOSPC. What is over a quota is never
 *     made with less instead: -EDQUOT.
 * (3) A twin that no extent names is of nobody: if the broker dies before the
 *     pair is durable, the next start removes it. */
#include "pool/broker/lending.h"

#include <errno.h>

#define TRIES_MAX 4u /* nodes that refuse */

/* Journal memory for a second copy on that node. */
static int journal_twin(struct reef_broker *broker,
			const struct reef_state_extent *primary, uint32_t node,
			uint32_t *number)
{
	struct reef_state_summary summary;
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_TWIN,
		.space = primary->space,
		.node = node,
		.size = primary->size,
	};

	reef_state_summary(broker->state, &summary);
	record.id = *number = summary.next_extent;
	record.value = summary.next_copy;
	return broker_commit_wait(broker, &record, NULL);
}

int broker_twin_place(struct reef_broker *broker, uint32_t number,
		      struct broker_avoid *avoid, uint32_t *twin)
{
	const struct reef_state_extent *primary =
		reef_state_extent(broker->state, number);
	struct broker_place place = {.avoid = avoid};
	uint32_t node;

	if (!primary)
		return -ENOENT;
	place.size = primary->size;
	place.beside = primary->node;
	node = broker_choose_node(broker, &place, NULL);
	return node ? journal_twin(broker, primary, node, twin) : -ENOSPC;
}

/* Name a twin that is made, all zeros, as the arbiter of an extent that is
 * not. */
static int pair_fresh(struct reef_broker *broker, uint32_t number,
		      uint32_t twin)
{
	const struct reef_state_extent *primary =
		reef_state_extent(broker->state, number);
	struct reef_record record = {
		.type = REEF_RECORD_EXTENT_PAIR,
		.id = number,
		.value = twin,
	};

	/* Its node may have come back meanwhile, and made it. */
	if (!primary || primary->made)
		return -EBUSY;
	record.era = primary->epoch;
	return broker_commit_wait(broker, &record, NULL);
}

int broker_twin_add(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *primary =
		reef_state_extent(broker->state, number);
	struct broker_avoid avoid = {0};
	uint32_t twin, tries;
	int rc = 0;

	if (!primary)
		return -ENOENT;
	if (reef_state_space(broker->state, primary->space)->copies < 2)
		return 0;
	for (tries = 0; tries < TRIES_MAX; tries++) {
		rc = broker_twin_place(broker, number, &avoid, &twin);
		if (rc)
			return rc;
		rc = broker_extent_create(broker, twin);
		if (rc == 0)
			rc = pair_fresh(broker, number, twin);
		if (rc == 0 || rc == -ECANCELED || rc == -REEF_EHOSTDEAD)
			return rc;
		if (reef_state_extent(broker->state, twin))
			broker_avoid_add(
				&avoid,
				reef_state_extent(broker->state, twin)->node);
		(void)broker_extent_discard(broker, twin, NULL);
	}
	return rc;
}

void broker_twins_sweep(struct reef_broker *broker)
{
	const struct reef_state_extent *extents;
	struct reef_record record = {.type = REEF_RECORD_EXTENT_REMOVE};
	size_t count, i = 0;

	extents = reef_state_extents(broker->state, &count);
	while (i < count) {
		if (!extents[i].is_twin || extents[i].twin) {
			i++;
			continue;
		}
		record.id = extents[i].number;
		if (broker_commit(broker, &record, NULL, NULL))
			return; /* it costs memory, and nothing else */
		extents = reef_state_extents(broker->state, &count);
	}
}
