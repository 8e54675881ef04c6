/* changes.c - what changed in a space since a version of it.
 *
 * (1) A space's version is the stamp of its last change. Each change takes the
 *     next stamp; those of a start are above those of every start before it,
 *     as the broker's epoch is in their upper half. So a version that another
 *     start gave is never taken for one of this.
 * (2) Whatever the row of an extent says (broker_extent_row) changes in one
 *     step with a stamp: what the state says when a record is applied, and what
 *     nodes told (keys, and whether it is closed) when that is noted.
 * (3) The last BROKER_CHANGES changes are kept. Who asks with a version that
 *     they reach back to is told of the extents that changed since, of removed
 *     ones by rows that say so; anybody else is told everything. */
#include "pool/broker/lending.h"

#include <errno.h>
#include <stdlib.h>

static struct broker_version *find_version(struct reef_broker *broker,
					   uint32_t space)
{
	uint32_t i;

	for (i = 0; i < broker->versions_count; i++)
		if (broker->versions[i].space == space)
			return &broker->versions[i];
	return NULL;
}

/* Spaces that did not change in this start have its first version, so most
 * need no entry. */
static void set_version(struct reef_broker *broker, uint32_t space)
{
	struct broker_version *version = find_version(broker, space);
	uint32_t room = broker->versions_room ? 2 * broker->versions_room : 16;
	struct broker_version *grown;

	if (!version && broker->versions_count == broker->versions_room) {
		grown = realloc(broker->versions, room * sizeof(*grown));
		if (!grown) {
			/* Without memory, every space counts as changed. */
			broker->versions_count = 0;
			broker->version_floor = broker->changes;
			return;
		}
		broker->versions = grown;
		broker->versions_room = room;
	}
	if (!version)
		version = &broker->versions[broker->versions_count++];
	*version = (struct broker_version){space, broker->changes};
}

void broker_changes_begin(struct reef_broker *broker)
{
	broker->changes = broker->epoch << 32;
	broker->first_version = broker->version_floor = ++broker->changes;
}

uint64_t broker_space_version(struct reef_broker *broker, uint32_t space)
{
	const struct broker_version *version = find_version(broker, space);

	return version ? version->version : broker->version_floor;
}

/* A space that is gone needs no version: its number never comes again. */
void broker_version_forget(struct reef_broker *broker, uint32_t space)
{
	struct broker_version *version = find_version(broker, space);

	if (version)
		*version = broker->versions[--broker->versions_count];
}

void broker_extent_changed(struct reef_broker *broker, uint32_t space,
			   uint32_t extent)
{
	broker->changes++;
	broker->log[broker->changes % BROKER_CHANGES] =
		(struct broker_change){space, extent};
	set_version(broker, space);
}

/* An extent or a copy of it goes, which is of interest for the other, too. */
static void note_end(struct reef_broker *broker,
		     const struct reef_state_extent *extent)
{
	broker_extent_changed(broker, extent->space, extent->number);
	if (extent->twin)
		broker_extent_changed(broker, extent->space, extent->twin);
}

/* The extents of a node that dies are LOST, those of one that is AWAY out of
 * reach, what has a copy elsewhere goes on there, and moves to it are off. */
static void note_death(struct reef_broker *broker, uint32_t node)
{
	const struct reef_state_extent *extents;
	size_t count, i;

	extents = reef_state_extents(broker->state, &count);
	for (i = 0; i < count; i++)
		if (extents[i].node == node || extents[i].target == node)
			note_end(broker, &extents[i]);
}

void broker_record_changes(struct reef_broker *broker,
			   const struct reef_record *record)
{
	const struct reef_state_extent *extent;

	switch (record->type) {
	case REEF_RECORD_EXTENT_ADD:
	case REEF_RECORD_EXTENT_PLACE:
	case REEF_RECORD_EXTENT_TWIN:
	case REEF_RECORD_EXTENT_RESTORE:
		broker_extent_changed(broker, record->space, record->id);
		break;
	case REEF_RECORD_EXTENT_MOVE:
	case REEF_RECORD_EXTENT_MOVED:
	case REEF_RECORD_EXTENT_STAY:
	case REEF_RECORD_EXTENT_OPEN:
		extent = reef_state_extent(broker->state, record->id);
		broker_extent_changed(broker, extent->space, record->id);
		break;
	case REEF_RECORD_EXTENT_PAIR:
		extent = reef_state_extent(broker->state, record->id);
		broker_extent_changed(broker, extent->space, record->id);
		broker_extent_changed(broker, extent->space,
				      (uint32_t)record->value);
		break;
	case REEF_RECORD_EXTENT_LOST:
	case REEF_RECORD_EXTENT_REMOVE:
		note_end(broker, reef_state_extent(broker->state, record->id));
		break;
	case REEF_RECORD_NODE_STATE:
		if (reef_node_is_gone(record->state))
			note_death(broker, record->id);
		break;
	case REEF_RECORD_NODE_RETURN: /* was it gone before? */
		if (!reef_node_is_gone(
			    reef_state_node(broker->state, record->id)->state))
			note_death(broker, record->id);
		break;
	default:
		break;
	}
}

int broker_changes_since(const struct reef_broker *broker, uint32_t space,
			 uint64_t version, uint32_t numbers[BROKER_TOLD_MAX],
			 uint32_t *count)
{
	const struct broker_change *change;
	uint32_t i, found = 0;

	if (version < broker->first_version || version > broker->changes ||
	    broker->changes - version > BROKER_CHANGES)
		return -ERANGE;
	while (version < broker->changes) {
		change = &broker->log[++version % BROKER_CHANGES];
		if (change->space != space)
			continue;
		for (i = 0; i < found && numbers[i] != change->extent;)
			i++;
		if (i == BROKER_TOLD_MAX)
			return -ERANGE;
		numbers[i] = change->extent;
		found += i == found;
	}
	*count = found;
	return 0;
}
