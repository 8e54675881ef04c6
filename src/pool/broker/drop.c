/* drop.c - memory that the state does not have any more goes at its node too.
 *
 * (1) The state comes first: a drop is asked for after the record that took the
 *     extent from that node is durable. So a drop that is never done costs
 *     memory and nothing else; when the node registers anew, it is asked for
 *     again (register.c).
 * (2) While a drop is under way, the extent is not moved back to that node, so
 *     that an old DROP never meets a new copy.
 * (3) One fiber per node works through its drops in turn. One that a holder
 *     keeps from ending (-ETIMEDOUT, which the node says soon) is tried again
 *     after a pause of its own, which grows: the others wait for none of
 *     that. Without a link nothing is tried: when there is one again, the node
 *     tells what it has (1). */
#include "pool/broker/lending.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

#define PAUSE_MIN_NS UINT64_C(1000000)
#define PAUSE_MAX_NS UINT64_C(1000000000)

struct broker_drop {
	uint32_t extent;
	uint64_t size;
	uint64_t due_ns, pause_ns;
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

/* The drop that is due first. There is one. */
static struct broker_drop *find_next_drop(const struct broker_node *node)
{
	struct broker_drop *next = &node->drops[0];
	uint32_t i;

	for (i = 1; i < node->drops_count; i++)
		if (node->drops[i].due_ns < next->due_ns)
			next = &node->drops[i];
	return next;
}

/* Ask the node for that drop, and note what came of it. */
static void run_drop(struct reef_broker *broker, uint32_t id, uint32_t extent)
{
	struct reef_body body = {.ask.extent_drop.extent = extent};
	struct broker_drop *drop;
	struct broker_node *node;
	int rc;

	rc = broker_node_call_early(broker, id, REEF_POOL_EXTENT_DROP, &body,
				    NULL);
	node = broker_node_find(broker, id);
	drop = find_drop(node, extent);
	if (!drop)
		return;
	if (rc && rc != -ENOENT) { /* (3) */
		drop->pause_ns =
			drop->pause_ns ? 2 * drop->pause_ns : PAUSE_MIN_NS;
		if (drop->pause_ns > PAUSE_MAX_NS)
			drop->pause_ns = PAUSE_MAX_NS;
		drop->due_ns = reef_now_ns() + drop->pause_ns;
		return;
	}
	remove_drop(node, drop);
	broker_memory_came(broker);
	broker_wake(broker);
}

static void run_drops(struct reef_broker *broker, uint32_t id)
{
	const struct broker_drop *drop;
	struct broker_node *node;
	uint64_t now_ns;
	int rc = 0;

	while (rc == 0 && !broker->health &&
	       (node = broker_node_find(broker, id)) && node->drops_count &&
	       node->peer && node->peer->link) {
		drop = find_next_drop(node);
		now_ns = reef_now_ns();
		if (drop->due_ns > now_ns)
			rc = broker_sleep(broker, drop->due_ns - now_ns);
		else
			run_drop(broker, id, drop->extent);
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
	if (append_drop(node,
			(struct broker_drop){.extent = extent, .size = size})) {
		/* By (1) that costs memory and nothing else. */
		reef_log(REEF_LOG_WARNING, "broker",
			 "extent %u stays on node %u until it registers anew",
			 extent, id);
		return;
	}
	broker_wake(broker); /* its fiber may sleep until another is due */
	if (!node->dropping)
		node->dropping = broker_spawn(broker, run_drops, id) == 0;
}
