/* names.c - names in a space: bind if absent, replace if unchanged, look up,
 * unbind, list. Who may not write there binds nothing, who may not read it sees
 * nothing, and is told the same as if there were no such space. */
#include "pool/broker/internal.h"

#include <errno.h>
#include <reef/error.h>

static int check_rights(struct reef_broker *broker,
			const struct reef_request *request, uint32_t space,
			uint8_t rights)
{
	const struct broker_session *session = broker_session_of(request);

	return (broker_session_rights(broker, session, space) & rights) ==
			       rights
		       ? 0
		       : -EACCES;
}

/* Commit a change of a name. *generation: what the name has after it, also if
 * this repeats an earlier request. */
static int commit_change(struct reef_broker *broker,
			 const struct reef_request *request,
			 struct reef_record *record, uint64_t *generation)
{
	const struct reef_name *name;
	int rc;

	/* A repetition is answered even if the space has gone since. */
	rc = broker_find_repeated(broker, request, record->type, generation);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = check_rights(broker, request, record->space, REEF_RIGHT_WRITE);
	if (rc == 0 && broker_space_is_saving(broker, record->space))
		return -REEF_EINDOUBT; /* save.c (3) */
	if (rc == 0 &&
	    record->name.size > reef_state_setting(broker->state,
						   REEF_SETTING_NAME_SIZE_MAX))
		rc = -ENAMETOOLONG;
	if (rc == 0)
		rc = broker_commit(broker, record, request, NULL);
	if (rc)
		return rc;
	name = reef_state_name(broker->state, record->space, record->name);
	*generation = name ? name->generation : 0;
	return 0;
}

BROKER_REQUEST(broker_name_bind)
{
	struct reef_record record = {
		.type = REEF_RECORD_NAME_BIND,
		.space = request->body.ask.name_bind.space,
		.value = request->body.ask.name_bind.value,
		.name = request->body.ask.name_bind.name,
	};

	return commit_change(broker, request, &record,
			     &answer->reply.name_bind.generation);
}

BROKER_REQUEST(broker_name_replace)
{
	struct reef_record record = {
		.type = REEF_RECORD_NAME_REPLACE,
		.space = request->body.ask.name_replace.space,
		.value = request->body.ask.name_replace.value,
		.generation = request->body.ask.name_replace.generation,
		.name = request->body.ask.name_replace.name,
	};

	return commit_change(broker, request, &record,
			     &answer->reply.name_bind.generation);
}

BROKER_REQUEST(broker_name_unbind)
{
	struct reef_record record = {
		.type = REEF_RECORD_NAME_UNBIND,
		.space = request->body.ask.name_unbind.space,
		.generation = request->body.ask.name_unbind.generation,
		.name = request->body.ask.name_unbind.name,
	};
	uint64_t ignored;

	return commit_change(broker, request, &record, &ignored);
}

BROKER_REQUEST(broker_name_lookup)
{
	uint32_t space = request->body.ask.name_lookup.space;
	const struct reef_name *name;
	int rc = check_rights(broker, request, space, REEF_RIGHT_READ);

	if (rc)
		return rc;
	name = reef_state_name(broker->state, space,
			       request->body.ask.name_lookup.name);
	if (!name)
		return -ENOENT;
	answer->reply.name_lookup.value = name->value;
	answer->reply.name_lookup.generation = name->generation;
	return 0;
}

BROKER_REQUEST(broker_name_list)
{
	uint32_t space = request->body.ask.name_list.space;
	struct reef_text prefix = request->body.ask.name_list.prefix;
	struct reef_text after = request->body.ask.name_list.after;
	size_t rows_max = broker_rows_max(broker, request);
	const struct reef_name *name;
	struct reef_row row;
	int rc = check_rights(broker, request, space, REEF_RIGHT_READ);

	if (rc)
		return rc;
	name = reef_state_name_next(broker->state, space, prefix,
				    after.size ? &after : NULL);
	while (name && room->size < rows_max) {
		after = (struct reef_text){name->text, name->size};
		row = (struct reef_row){
			.row = REEF_ROW_NAME,
			.name = {name->value, name->generation, after},
		};
		reef_row_encode(&row, room);
		name = reef_state_name_next(broker->state, space, prefix,
					    &after);
	}
	answer->reply.name_list.flags = name ? REEF_POOL_MORE : 0;
	return 0;
}
