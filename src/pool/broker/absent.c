/* absent.c - stands in for the parts that have not come yet: who adds one takes
 * its function out of here. */
#include "pool/broker/internal.h"

#include <errno.h>

#define ABSENT(name)                                                           \
	BROKER_REQUEST(name)                                                   \
	{                                                                      \
		return -ENOSYS;                                                \
	}

ABSENT(broker_space_open)
ABSENT(broker_space_close)
ABSENT(broker_space_extents)
ABSENT(broker_space_drop)
ABSENT(broker_space_quota)
ABSENT(broker_space_revoke)
ABSENT(broker_space_token)
ABSENT(broker_extent_add)
ABSENT(broker_extent_remove)
ABSENT(broker_node_register)
ABSENT(broker_node_extents)
ABSENT(broker_node_ready)
ABSENT(broker_node_pulse)
ABSENT(broker_node_drain)
ABSENT(broker_node_reclaim)
ABSENT(broker_node_remove)
ABSENT(broker_status)
ABSENT(broker_list)

int broker_nodes_fence(struct reef_broker *broker, uint32_t session)
{
	return 0;
}

void broker_node_left(struct reef_broker *broker, struct broker_node *node)
{
	node->peer = NULL;
}

int broker_nodes_start(struct reef_broker *broker)
{
	return 0;
}

void broker_nodes_close(struct reef_broker *broker)
{
}

int broker_space_remove(struct reef_broker *broker, uint32_t space,
			const struct reef_request *request)
{
	struct reef_record record = {
		.type = REEF_RECORD_SPACE_REMOVE,
		.id = space,
	};

	return broker_commit_wait(broker, &record, request);
}

void broker_moves_look(struct reef_broker *broker)
{
}

void broker_event(struct reef_broker *broker, const char *format, ...)
{
}
