/* nodes.c - the nodes: added, gone, back again.
 *
 * A node that is DEAD has lost its extents. One that is AWAY has them still:
 * they count for it, wait until it returns, and are lost when it is declared
 * DEAD after all. What was moving to it stays where it was, either way. What
 * has a copy elsewhere goes on there, either way (copies.c). A node that keeps
 * its memory may be AWAY and back in one record: then there is no state in
 * which it is gone. */
#include "pool/broker/state/internal.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Copy the addresses to where apply finds them. */
static int reserve_addresses(struct reef_state *state, struct reef_text text)
{
	int rc = reef_state_room((void **)&state->spare_addresses,
				 &state->spare_addresses_size,
				 (size_t)text.size + 1, 1);

	if (rc)
		return rc;
	if (text.size)
		memcpy(state->spare_addresses, text.bytes, text.size);
	state->spare_addresses[text.size] = 0;
	return 0;
}

static char *take_addresses(struct reef_state *state)
{
	char *addresses = state->spare_addresses;

	state->spare_addresses = NULL;
	state->spare_addresses_size = 0;
	return addresses;
}

static int check_node_values(const struct reef_state *state,
			     const struct reef_record *record)
{
	if (record->size == 0 || record->incarnation == 0)
		return -EINVAL;
	return reef_state_check_text(state, record->addresses,
				     REEF_SETTING_ADDRESSES_SIZE_MAX);
}

/* A node that has not come yet has neither memory nor addresses. */
static int check_first_values(const struct reef_state *state,
			      const struct reef_record *record)
{
	if (record->incarnation)
		return check_node_values(state, record);
	return record->size == 0 && record->addresses.size == 0 ? 0 : -EINVAL;
}

static int check_node_add(struct reef_state *state,
			  const struct reef_record *record)
{
	int rc;

	if (record->id != state->next_node)
		return -ESTALE;
	if (record->id == UINT32_MAX)
		return -ENOSPC;
	rc = check_first_values(state, record);
	if (rc == 0)
		rc = reef_state_check_text(state, record->name,
					   REEF_SETTING_NAME_SIZE_MAX);
	if (rc == 0)
		rc = reef_state_check_limit(state, state->node_count,
					    REEF_SETTING_NODES_MAX);
	if (rc == 0 && reef_state_find_node(state, record->name))
		rc = -EEXIST;
	if (rc == 0)
		rc = reef_state_room((void **)&state->nodes, &state->node_room,
				     state->node_count + 1,
				     sizeof(*state->nodes));
	if (rc == 0)
		rc = reef_names_reserve(&state->node_names, record->name.size);
	if (rc == 0)
		rc = reserve_addresses(state, record->addresses);
	return rc;
}

static void apply_node_add(struct reef_state *state,
			   const struct reef_record *record)
{
	struct reef_name *name = reef_names_insert(&state->node_names, 0,
						   record->name, record->id, 0);

	state->nodes[state->node_count++] = (struct reef_state_node){
		.id = record->id,
		.state = record->incarnation ? REEF_NODE_OK : REEF_NODE_DEAD,
		.incarnation = record->incarnation,
		.capacity = record->size,
		.name = name->text,
		.addresses = take_addresses(state),
	};
	state->next_node++;
}

static int check_node_keep(struct reef_state *state,
			   const struct reef_record *record)
{
	struct reef_state_node *node = reef_state_node_of(state, record->id);

	if (record->value > 1)
		return -EINVAL;
	if (!node)
		return -ENOENT;
	if (reef_node_is_gone(node->state))
		return -EBUSY;
	return node->keeps == (record->value == 1) ? -EEXIST : 0;
}

static void apply_node_keep(struct reef_state *state,
			    const struct reef_record *record)
{
	reef_state_node_of(state, record->id)->keeps = record->value == 1;
}

static bool node_may_become(const struct reef_state_node *node, uint8_t next)
{
	switch (next) {
	case REEF_NODE_OK:
		return node->state == REEF_NODE_DRAINING ||
		       node->state == REEF_NODE_DRAINED || node->drains;
	case REEF_NODE_DRAINING:
		return node->state == REEF_NODE_OK ||
		       (node->state == REEF_NODE_AWAY && !node->drains);
	case REEF_NODE_DRAINED:
		return node->state == REEF_NODE_DRAINING && !node->extents;
	case REEF_NODE_AWAY:
		return node->keeps && (node->state == REEF_NODE_OK ||
				       node->state == REEF_NODE_DRAINING);
	default:
		return node->state != REEF_NODE_DEAD;
	}
}

static int check_node_state(struct reef_state *state,
			    const struct reef_record *record)
{
	struct reef_state_node *node = reef_state_node_of(state, record->id);
	uint64_t epoch = state->pool_epoch;

	if (record->state < REEF_NODE_OK || record->state > REEF_NODE_AWAY)
		return -EINVAL;
	if (!node)
		return -ENOENT;
	if (!node_may_become(node, record->state))
		return -EBUSY;
	if (reef_node_is_gone(record->state))
		epoch++;
	return record->value == epoch ? 0 : -ESTALE;
}

static void apply_node_state(struct reef_state *state,
			     const struct reef_record *record)
{
	struct reef_state_node *node = reef_state_node_of(state, record->id);
	struct reef_state_extent *extent = state->extents;
	bool lost = record->state == REEF_NODE_DEAD;
	size_t i;

	/* Whether it drains is for when it is back. */
	if (node->state == REEF_NODE_AWAY &&
	    !reef_node_is_gone(record->state)) {
		node->drains = record->state == REEF_NODE_DRAINING;
		return;
	}
	node->drains = record->state == REEF_NODE_AWAY &&
		       node->state == REEF_NODE_DRAINING;
	node->state = record->state;
	state->pool_epoch = record->value;
	if (!reef_node_is_gone(record->state))
		return;
	for (i = 0; i < state->extent_count; i++, extent++) {
		if (extent->node == record->id &&
		    (lost || extent->twin || extent->is_twin)) {
			reef_state_fail_copy(state, extent);
		} else if (extent->target == record->id) {
			reef_state_uncount_on_node(state, extent->target,
						   extent->size);
			extent->target = 0;
			extent->state = REEF_EXTENT_LIVE;
		}
	}
	reef_state_sweep_removed(state);
	reef_assert(!lost || (node->used == 0 && node->extents == 0));
}

static int check_node_return(struct reef_state *state,
			     const struct reef_record *record)
{
	struct reef_state_node *node = reef_state_node_of(state, record->id);
	bool gone = node && reef_node_is_gone(node->state);
	int rc;

	if (!node)
		return -ENOENT;
	/* What its earlier life lent is gone, and a record must say so first;
	 * or waits, which this one may say. */
	if (!gone && !node_may_become(node, REEF_NODE_AWAY))
		return -EBUSY;
	/* Incarnations are random numbers, so only equality tells anything. */
	if (record->incarnation == node->incarnation)
		return -ESTALE;
	if (gone && record->size < node->used)
		return -ENOSPC;
	rc = check_node_values(state, record);
	return rc ? rc : reserve_addresses(state, record->addresses);
}

static void apply_node_return(struct reef_state *state,
			      const struct reef_record *record)
{
	struct reef_state_node *node = reef_state_node_of(state, record->id);

	const struct reef_record away = {
		.type = REEF_RECORD_NODE_STATE,
		.id = record->id,
		.state = REEF_NODE_AWAY,
		.value = state->pool_epoch + 1,
	};

	if (!reef_node_is_gone(node->state))
		apply_node_state(state, &away);
	free(node->addresses);
	node->addresses = take_addresses(state);
	node->incarnation = record->incarnation;
	/* One that keeps more than it wants to lend has that much room. */
	node->capacity = record->size > node->used ? record->size : node->used;
	node->state = node->drains ? REEF_NODE_DRAINING : REEF_NODE_OK;
	node->drains = false;
}

static int check_node_remove(struct reef_state *state,
			     const struct reef_record *record)
{
	struct reef_state_node *node = reef_state_node_of(state, record->id);

	if (!node)
		return -ENOENT;
	return node->state == REEF_NODE_DEAD || node->state == REEF_NODE_DRAINED
		       ? 0
		       : -EBUSY;
}

static void apply_node_remove(struct reef_state *state,
			      const struct reef_record *record)
{
	struct reef_state_node *node = reef_state_node_of(state, record->id);
	struct reef_text name = reef_text_of(node->name);

	free(node->addresses);
	reef_names_remove(&state->node_names,
			  reef_names_find(&state->node_names, 0, name));
	reef_state_take_out(state->nodes, &state->node_count,
			    (size_t)(node - state->nodes), sizeof(*node));
}

const struct reef_rule reef_rules_nodes[REEF_RECORD_TYPES] = {
	[REEF_RECORD_NODE_ADD] = {check_node_add, apply_node_add},
	[REEF_RECORD_NODE_RETURN] = {check_node_return, apply_node_return},
	[REEF_RECORD_NODE_KEEP] = {check_node_keep, apply_node_keep},
	[REEF_RECORD_NODE_STATE] = {check_node_state, apply_node_state},
	[REEF_RECORD_NODE_REMOVE] = {check_node_remove, apply_node_remove},
};
