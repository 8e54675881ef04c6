/* drop.c - memory that the state does not have any more goes at its node too.
 *
 * (1) The state comes first: a drop is asked for after the record that took the
 *     extent from that node is durable. So a drop that is never done costs
 *     memory and nothing else; when the node registers anew, it is asked for
 *     again (register.c).
 * (2) While a drop is under way, the extent is not moved back to that node, so
 *     that an old DROP never meets a new copy.
 * (3) One fiber per node works through its drops in turn. One that a holder
 *     keeps from ending (-ETIMEDOUT) is tried again behind the others. */
#include "pool/broker/lending.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

struct broker_drop {
	uint32_t extent;
	uint64_t size;
};

static struct broker_drop *find_drop(const struct broker_node *node,
				     uint32_t extent)
{
	uint32_t i;

	for (i = 0; node && i < node->drops_count; i++)
		if (node->drops[i].extent == extent)
			return &node->drops[i];
	return NULL;
}

static void remove_drop(struct broker_node *node, struct broker_drop *drop)
{
	struct broker_drop *last = &node->drops[--node->drops_count];

	node->drops_size -= drop->size;
	memmove(drop, drop + 1, (size_t)(last - drop) * sizeof(*drop));
}

static int append_drop(struct broker_node *node, struct broker_drop drop)
{
	uint32_t room = node->drops_room ? 2 * node->drops_room : 16;
	struct broker_drop *grown;

	if (node->drops_count == node->drops_room) {
		grown = realloc(node->drops, room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		node->drops = grown;
		node->drops_room = room;
	}
	node->drops[node->drops_count++] = drop;
	node->drops_size += drop.size;
	return 0;
}

bool broker_drop_pending(const struct broker_node *node, uint32_t extent)
{
	return find_drop(node, extent) != NULL;
}

void broker_drops_forget(struct broker_node *node)
{
	node->drops_count = 0;
	node->drops_size = 0;
}

/* Ask the node for the first drop of its list. */
static int run_first_drop(struct reef_broker *broker, struct broker_node *node)
{
	struct broker_drop drop = node->drops[0], *now;
	struct reef_body body = {.ask.extent_drop.extent = drop.extent};
	uint32_t id = node->id;
	int rc;

	rc = broker_node_call_early(broker, id, REEF_POOL_EXTENT_DROP, &body,
				    NULL);
	node = broker_node_find(broker, id);
	now = find_drop(node, drop.extent);
	if (!now)
		return rc;
	remove_drop(node, now);
	if (rc && rc != -ENOENT)
		return append_drop(node, drop) ? 0 : rc; /* (3) */
	broker_memory_came(broker);
	broker_wake(broker);
	return 0;
}

static void run_drops(struct reef_broker *broker, uint32_t id)
{
	struct broker_node *node;
	uint64_t pause_ns = 0;
	int rc = 0;

	while (rc == 0 && !broker->health &&
	       (node = broker_node_find(broker, id)) && node->drops_count) {
		if (run_first_drop(broker, node) == 0)
			pause_ns = 0;
		else
			rc = broker_sleep_longer(broker, &pause_ns);
	}
	node = broker_node_find(broker, id);
	if (node)
		node->dropping = false;
}

void broker_drop_later(struct reef_broker *broker, uint32_t id, uint32_t extent,
		       uint64_t size)
{
	struct broker_node *node = broker_node_find(broker, id);

	if (!node || find_drop(node, extent))
		return;
	if (append_drop(node, (struct broker_drop){extent, size})) {
		/* By (1) that costs memory and nothing else. */
		reef_log(REEF_LOG_WARNING, "broker",
			 "extent %u stays on node %u until it registers anew",
			 extent, id);
		return;
	}
	if (!node->dropping)
		node->dropping = broker_spawn(broker, run_drops, id) == 0;
}
