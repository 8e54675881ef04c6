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
#include "pool/broker/memory.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

struct broker_drop {
	uint32_t node, extent;
	uint64_t size;
	struct broker_drop *next;
};

static struct broker_drop **find(struct reef_broker *broker, uint32_t node,
				 uint32_t extent)
{
	struct broker_drop **at = &broker->drops;

	while (*at &&
	       ((*at)->node != node || (extent && (*at)->extent != extent)))
		at = &(*at)->next;
	return at;
}

static void take_out(struct broker_drop **at)
{
	struct broker_drop *drop = *at;

	*at = drop->next;
	free(drop);
}

static void to_the_end(struct reef_broker *broker, struct broker_drop **at)
{
	struct broker_drop *drop = *at;

	*at = drop->next;
	drop->next = NULL;
	for (at = &broker->drops; *at;)
		at = &(*at)->next;
	*at = drop;
}

bool broker_drop_pending(const struct reef_broker *broker, uint32_t node,
			 uint32_t extent)
{
	return *find((struct reef_broker *)broker, node, extent) != NULL;
}

uint64_t broker_drop_bytes(const struct reef_broker *broker, uint32_t node)
{
	const struct broker_drop *drop;
	uint64_t bytes = 0;

	for (drop = broker->drops; drop; drop = drop->next)
		if (drop->node == node)
			bytes += drop->size;
	return bytes;
}

void broker_drop_forget(struct reef_broker *broker, uint32_t node)
{
	struct broker_drop **at;

	while (*(at = find(broker, node, 0)))
		take_out(at);
}

void broker_drops_close(struct reef_broker *broker)
{
	while (broker->drops)
		take_out(&broker->drops);
}

/* Ask for the first of this node's. */
static int drop_one(struct reef_broker *broker, uint32_t node, uint32_t extent)
{
	struct reef_body body = {.extent = extent};
	struct broker_drop **at;
	int rc;

	rc = broker_node_call_early(broker, node, REEF_POOL_EXTENT_DROP, &body,
				    NULL);
	at = find(broker, node, extent);
	if (!*at)
		return rc;
	if (rc == 0 || rc == -ENOENT) {
		take_out(at);
		broker_wake(broker);
		return 0;
	}
	to_the_end(broker, at);
	return rc;
}

static void drop_all(struct reef_broker *broker, uint32_t id)
{
	struct broker_drop **at;
	struct broker_node *node;
	uint64_t pause_ns = 0;
	int rc = 0;

	while (rc == 0 && !broker->health && *(at = find(broker, id, 0))) {
		if (drop_one(broker, id, (*at)->extent) == 0)
			pause_ns = 0;
		else
			rc = broker_back_off(broker, &pause_ns);
	}
	node = broker_node_find(broker, id);
	if (node)
		node->dropping = false;
}

void broker_drop_later(struct reef_broker *broker, uint32_t node,
		       uint32_t extent, uint64_t size)
{
	struct broker_node *live = broker_node_find(broker, node);
	struct broker_drop *drop;

	if (!live || broker_drop_pending(broker, node, extent))
		return;
	drop = malloc(sizeof(*drop));
	if (!drop) {
		/* (1) */
		reef_log(REEF_LOG_WARNING, "broker",
			 "extent %u stays on node %u until it registers anew",
			 extent, node);
		return;
	}
	*drop = (struct broker_drop){node, extent, size, broker->drops};
	broker->drops = drop;
	if (live->dropping)
		return;
	live->dropping = broker_spawn(broker, drop_all, node) == 0;
}
