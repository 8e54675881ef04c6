/* place.c - which node memory comes to.
 *
 * (1) Two random nodes that are OK, ready and have room, and of them the one
 *     that is less full. A fresh empty one among n gets about 2/n of what
 *     comes, never all of it.
 * (2) Of two copies each is on a node of its own; on another machine, where
 *     there is one with room; and where atomics are done by the same kind of
 *     hardware (F6), because whoever changes both does the same to both. */
#include "pool/broker/lending.h"

void broker_avoid_add(struct broker_avoid *avoid, uint32_t node)
{
	if (avoid->count < BROKER_AVOID_MAX)
		avoid->nodes[avoid->count++] = node;
}

static bool is_avoided(const struct broker_avoid *avoid, uint32_t node)
{
	uint32_t i;

	for (i = 0; avoid && i < avoid->count; i++)
		if (avoid->nodes[i] == node)
			return true;
	/* Where so many nodes have failed, the next would, too. */
	return avoid && avoid->count == BROKER_AVOID_MAX;
}

/* What a node is sought for. */
struct wish {
	struct reef_broker *broker;
	const struct broker_place *place;
	bool apart; /* on another machine than the other copy */
	bool soon;  /* out: a node will have room, but has not yet */
};

/* (2) */
static bool suits_beside(const struct wish *wish,
			 const struct broker_node *node)
{
	const struct broker_node *other =
		broker_node_find(wish->broker, wish->place->beside);

	if (!wish->place->beside)
		return true;
	if (!node || !other || node == other || node->nic != other->nic)
		return false;
	return !wish->apart || node->domain != other->domain;
}

static bool node_suits(struct wish *wish, const struct reef_state_node *node)
{
	const struct broker_place *place = wish->place;
	uint64_t room = node->capacity - node->used;
	struct broker_node *live;

	if (node->state != REEF_NODE_OK || room < place->size ||
	    node->id == place->beside || is_avoided(place->avoid, node->id))
		return false;
	live = broker_node_find(wish->broker, node->id);
	if (broker_node_is_ready(live) && !suits_beside(wish, live))
		return false;
	if (broker_node_is_ready(live) &&
	    room - place->size >= live->drops_size &&
	    !(place->label && broker_drop_pending(live, place->label)))
		return true;
	wish->soon = true;
	return false;
}

static double fullness_of(const struct reef_state_node *node)
{
	return (double)node->used / (double)node->capacity;
}

/* The node of that index among those that suit. */
static const struct reef_state_node *pick_suiting_node(struct wish *wish,
						       uint64_t index)
{
	const struct reef_state_node *nodes;
	size_t count, i;

	nodes = reef_state_nodes(wish->broker->state, &count);
	for (i = 0; i < count; i++)
		if (node_suits(wish, &nodes[i]) && index-- == 0)
			return &nodes[i];
	return NULL;
}

/* Rule (1). 0: no node suits. */
static uint32_t choose_node(struct wish *wish)
{
	struct reef_random *random = &wish->broker->random;
	const struct reef_state_node *nodes, *one, *other;
	uint64_t fit = 0, first, second;
	size_t count, i;

	nodes = reef_state_nodes(wish->broker->state, &count);
	for (i = 0; i < count; i++)
		fit += node_suits(wish, &nodes[i]);
	if (fit == 0)
		return 0;
	first = reef_random_below(random, fit);
	one = pick_suiting_node(wish, first);
	if (fit == 1)
		return one->id;
	second = reef_random_below(random, fit - 1);
	second += second >= first;
	other = pick_suiting_node(wish, second);
	return fullness_of(other) < fullness_of(one) ? other->id : one->id;
}

uint32_t broker_choose_node(struct reef_broker *broker,
			    const struct broker_place *place, bool *soon)
{
	struct wish wish = {
		.broker = broker,
		.place = place,
		.apart = place->beside != 0,
	};
	uint32_t node = choose_node(&wish);

	if (!node && wish.apart) {
		wish.apart = false;
		node = choose_node(&wish);
	}
	if (soon)
		*soon = wish.soon;
	return node;
}
