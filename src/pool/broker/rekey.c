/* rekey.c - after a revocation: those who hold keys of a space hold nothing.
 *
 * (1) Every extent of the space is withdrawn from everybody at its node, and
 *     exposed anew under new keys, which only those learn who may still open
 *     the space. Data stays at its node, but where a process may have kept
 *     what it had mapped, in other memory (node/extent.c, 5); the extent's
 *     epoch stays, too.
 * (2) The revocation is answered when that is done. If the broker dies before,
 *     its repetition does it (again).
 * (3) What is on the move, or closed by somebody else, is waited for. If it has
 *     moved it has other memory and other keys; else it is done then.
 * (4) A holder that does not let go is waited for until it does, or is fenced.
 */
#include "pool/broker/lending.h"

#include <errno.h>
#include <stdlib.h>

/* True if the extent is on that node. */
static bool is_on_node(struct reef_broker *broker, uint32_t number,
		       uint32_t node)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);

	return extent && extent->node == node;
}

/* Withdraw an extent and expose it anew. It stays marked as rekeying meanwhile,
 * so that nobody else opens it. */
static int rekey_open_extent(struct reef_broker *broker, uint32_t number,
			     uint32_t node)
{
	struct reef_body body = {
		.ask.extent_close = {.extent = number,
				     .flags = REEF_POOL_FRESH},
	};
	struct broker_extent *told;
	uint64_t pause_ns = 0;
	bool done = false;
	int rc = 0;

	while (rc == 0 && !done && is_on_node(broker, number, node)) {
		told = broker_extent_find(broker, number);
		if (told)
			told->rekeying = true;
		broker_extent_set_closed(broker, number);
		rc = broker_node_call(broker, node, REEF_POOL_EXTENT_CLOSE,
				      &body, NULL);
		done = rc == 0;
		if (rc == 0)
			rc = broker_extent_reopen(broker, number);
		else if (rc != -ECANCELED && rc != -REEF_EHOSTDEAD)
			rc = broker_sleep_longer(broker, &pause_ns);
	}
	told = broker_extent_find(broker, number);
	if (told)
		told->rekeying = false;
	return rc;
}

static int rekey_extent(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *extent;
	struct broker_extent *told;
	struct broker_node *node;
	uint32_t epoch = 0;
	bool away;
	int rc;

	for (;;) {
		extent = reef_state_extent(broker->state, number);
		told = broker_extent_find(broker, number);
		if (!extent || reef_extent_is_lost(extent->state))
			return 0;
		if (!epoch)
			epoch = extent->epoch;
		away = extent->state == REEF_EXTENT_MOVING ||
		       (told && told->closed);
		if (!away && extent->epoch != epoch)
			return 0; /* it has moved */
		if (!away && told && !broker_extent_is_moving(broker, number)) {
			node = broker_node_find(broker, extent->node);
			if (broker_node_is_ready(node))
				return rekey_open_extent(broker, number,
							 node->id);
		}
		rc = broker_sleep(broker, broker_node_ttl(broker) / 4);
		if (rc)
			return rc;
	}
}

int broker_space_rekey(struct reef_broker *broker, uint32_t id)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, id);
	uint32_t *numbers, count, i;
	int rc = 0;

	if (!space || space->ordinals == 0)
		return 0;
	count = space->ordinals;
	numbers = malloc(count * sizeof(*numbers));
	if (!numbers)
		return -ENOMEM;
	memcpy(numbers, space->by_ordinal, count * sizeof(*numbers));
	for (i = 0; rc == 0 && i < count; i++)
		if (numbers[i])
			rc = rekey_extent(broker, numbers[i]);
	free(numbers);
	return rc;
}
