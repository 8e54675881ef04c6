/* bind.c - names in a space: bind if absent, replace if unchanged, look up,
 * unbind, list. Who may not write there binds nothing, who may not read it sees
 * nothing, and is told the same as if there were no such space. */
#include "pool/broker/internal.h"

#include <errno.h>
#include <reef/error.h>

static int need(struct reef_broker *broker, const struct reef_request *request,
		uint8_t rights)
{
	const struct broker_session *session = broker_session_of(request);

	return (broker_rights(broker, session, request->body.space) & rights) ==
			       rights
		       ? 0
		       : -EACCES;
}

/* The generation that a record leaves behind, or that it left. */
static int change(struct reef_broker *broker,
		  const struct reef_request *request, uint16_t type,
		  uint64_t *generation)
{
	struct reef_record record = {
		.type = type,
		.space = request->body.space,
		.value = request->body.value,
		.generation = request->body.generation,
		.name = request->body.name,
	};
	const struct reef_name *name;
	int rc;

	/* A repetition is answered even if the space has gone since. */
	rc = broker_repeated(broker, request, type, generation);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = need(broker, request, REEF_RIGHT_WRITE);
	if (rc == 0 &&
	    record.name.size > reef_state_setting(broker->state,
						  REEF_SETTING_NAME_SIZE_MAX))
		rc = -ENAMETOOLONG;
	if (rc == 0)
		rc = broker_commit(broker, &record, request, NULL);
	if (rc)
		return rc;
	name = reef_state_name(broker->state, record.space, record.name);
	*generation = name ? name->generation : 0;
	return 0;
}

BROKER_REQUEST(broker_name_bind)
{
	return change(broker, request, REEF_RECORD_NAME_BIND,
		      &answer->generation);
}

BROKER_REQUEST(broker_name_replace)
{
	return change(broker, request, REEF_RECORD_NAME_REPLACE,
		      &answer->generation);
}

BROKER_REQUEST(broker_name_unbind)
{
	uint64_t ignored;

	return change(broker, request, REEF_RECORD_NAME_UNBIND, &ignored);
}

BROKER_REQUEST(broker_name_lookup)
{
	const struct reef_name *name;
	int rc = need(broker, request, REEF_RIGHT_READ);

	if (rc)
		return rc;
	name = reef_state_name(broker->state, request->body.space,
			       request->body.name);
	if (!name)
		return -ENOENT;
	answer->value = name->value;
	answer->generation = name->generation;
	return 0;
}

BROKER_REQUEST(broker_name_list)
{
	const struct reef_body *body = &request->body;
	struct reef_text after = body->after;
	size_t rows_max = broker_rows_max(broker, request);
	const struct reef_name *name;
	struct reef_row row;
	int rc = need(broker, request, REEF_RIGHT_READ);

	if (rc)
		return rc;
	name = reef_state_name_next(broker->state, body->space, body->name,
				    after.size ? &after : NULL);
	while (name && room->size < rows_max) {
		after = (struct reef_text){name->text, name->size};
		row = (struct reef_row){
			.row = REEF_ROW_NAME,
			.value = name->value,
			.generation = name->generation,
			.name = after,
		};
		reef_row_encode(&row, room);
		name = reef_state_name_next(broker->state, body->space,
					    body->name, &after);
	}
	answer->flags = name ? REEF_POOL_MORE : 0;
	return 0;
}
