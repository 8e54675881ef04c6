/* reclaim.c - borrowed memory goes back to its owner.
 *
 * A node that runs short (its pulse says so), or an operator, wants bytes back:
 * revocable extents of that node are given up.
 *
 * (1) Only extents of revocable spaces; kept ones are never touched.
 * (2) Whoever uses them is told first, and has revoke_notice_ns from then on.
 *     Then they are LOST, durable, told, and only then dropped at the node.
 * (3) What is on its way out counts: a node that asks again while that takes
 *     its time gets no more than it wants.
 *
 * The youngest go first: what was there longest is likely to be missed most. */
#include "pool/broker/lending.h"

#include <errno.h>

static bool is_revocable(const struct reef_broker *broker,
			 const struct reef_state_extent *extent)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, extent->space);

	return space->keeping == REEF_KEEPING_REVOCABLE &&
	       extent->state == REEF_EXTENT_LIVE;
}

/* Bytes of a node are on their way back no more: they are back, count among its
 * drops, or stay. */
static void count_reclaimed(struct reef_broker *broker, uint32_t id,
			    uint64_t size)
{
	struct broker_node *node = broker_node_find(broker, id);

	/* The node may have died meanwhile, and counts anew. */
	if (node)
		node->reclaiming -=
			size < node->reclaiming ? size : node->reclaiming;
}

/* Rule (2), in a fiber for each extent. */
static void revoke_extent(struct reef_broker *broker, uint32_t number)
{
	uint64_t wait_ns = reef_state_setting(broker->state,
					      REEF_SETTING_REVOKE_NOTICE_NS);
	uint64_t until_ns = reef_now_ns() + wait_ns, now_ns;
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);
	struct broker_extent *told;
	struct reef_state_extent was;

	if (!extent)
		return;
	was = *extent;
	while ((now_ns = reef_now_ns()) < until_ns)
		if (broker_sleep(broker, until_ns - now_ns))
			return;
	told = broker_extent_find(broker, number);
	if (told)
		told->revoking = false;
	extent = reef_state_extent(broker->state, number);
	/* An extent that began to move meanwhile leaves its node that way. */
	if (extent && extent->node == was.node &&
	    extent->state == REEF_EXTENT_LIVE)
		broker_extent_lose(broker, number, "taken back by its node");
	count_reclaimed(broker, was.node, was.size);
}

uint64_t broker_reclaim(struct reef_broker *broker, uint32_t node,
			uint64_t bytes)
{
	const struct reef_state_extent *extents;
	struct broker_node *live = broker_node_find(broker, node);
	uint64_t found = live->reclaiming + live->drops_size;
	struct broker_extent *told;
	size_t i;

	extents = reef_state_extents(broker->state, &i);
	while (i-- > 0 && found < bytes) {
		if (extents[i].node != node ||
		    !is_revocable(broker, &extents[i]))
			continue;
		told = broker_extent_find(broker, extents[i].number);
		if (!told || told->revoking ||
		    broker_spawn(broker, revoke_extent, extents[i].number))
			continue;
		told->revoking = true;
		live->reclaiming += extents[i].size;
		found += extents[i].size;
		broker_event(broker,
			     "extent %u of space %u goes back to node "
			     "%u",
			     extents[i].number, extents[i].space, node);
		broker_notice_space(broker, extents[i].space);
	}
	return found;
}

BROKER_REQUEST(broker_node_reclaim)
{
	struct broker_node *node =
		broker_node_find(broker, request->body.ask.node_reclaim.node);

	if (!node)
		return -ENOENT;
	answer->reply.node_reclaim.bytes = broker_reclaim(
		broker, node->id, request->body.ask.node_reclaim.bytes);
	return 0;
}
