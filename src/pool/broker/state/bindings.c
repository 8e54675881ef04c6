/* bindings.c - names that clients bind in a space. */
#include "pool/broker/state/internal.h"

#include <errno.h>
#include <string.h>

/* Check the limit of whom the space belongs to. In a space of the owner, whom
 * none binds, a user who is let in takes no more names than in one of their
 * own. */
static int check_share(const struct reef_state *state,
		       const struct reef_state_space *space,
		       const struct reef_record *record)
{
	const struct reef_state_session *origin =
		reef_state_session(state, record->origin);
	uint32_t user = space->user;
	int rc = reef_state_check_user(state, user, REEF_LIMIT_NAMES, 1);

	if (rc == 0 && user == 0 && origin) {
		user = origin->user;
		if (!state->replaying &&
		    space->names >=
			    reef_state_limit(state, user, REEF_LIMIT_NAMES))
			rc = -EDQUOT;
	}
	return rc ? rc
		  : reef_state_check_share(state, state->names.total,
					   REEF_SETTING_NAMES_MAX, user);
}

static int check_bind(struct reef_state *state,
		      const struct reef_record *record)
{
	const struct reef_state_space *space =
		reef_state_space_of(state, record->space);
	int rc;

	if (!space)
		return -ENOENT;
	rc = reef_state_check_text(state, record->name,
				   REEF_SETTING_NAME_SIZE_MAX);
	if (rc == 0 &&
	    reef_names_find(&state->names, record->space, record->name))
		rc = -EEXIST;
	if (rc == 0)
		rc = check_share(state, space, record);
	if (rc == 0)
		rc = reef_names_reserve(&state->names, record->name.size);
	return rc;
}

static void apply_bind(struct reef_state *state,
		       const struct reef_record *record)
{
	struct reef_state_space *space =
		reef_state_space_of(state, record->space);

	reef_names_insert(&state->names, record->space, record->name,
			  record->value, ++state->generation);
	space->names++;
	reef_state_count(state, space->user, REEF_LIMIT_NAMES, 1);
}

static int check_bound(const struct reef_state *state,
		       const struct reef_record *record)
{
	const struct reef_name *name =
		reef_names_find(&state->names, record->space, record->name);

	if (!name)
		return -ENOENT;
	return record->generation == name->generation ? 0 : -ESTALE;
}

static int check_replace(struct reef_state *state,
			 const struct reef_record *record)
{
	return check_bound(state, record);
}

static void apply_replace(struct reef_state *state,
			  const struct reef_record *record)
{
	struct reef_name *name =
		reef_names_find(&state->names, record->space, record->name);

	name->value = record->value;
	name->generation = ++state->generation;
}

static int check_unbind(struct reef_state *state,
			const struct reef_record *record)
{
	int rc = check_bound(state, record);

	return rc == -ESTALE && record->generation == 0 ? 0 : rc;
}

static void apply_unbind(struct reef_state *state,
			 const struct reef_record *record)
{
	struct reef_state_space *space =
		reef_state_space_of(state, record->space);

	reef_names_remove(
		&state->names,
		reef_names_find(&state->names, record->space, record->name));
	space->names--;
	reef_state_uncount(state, space->user, REEF_LIMIT_NAMES, 1);
}

const struct reef_name *reef_state_name(const struct reef_state *state,
					uint32_t space, struct reef_text name)
{
	return reef_names_find(&state->names, space, name);
}

/* True if text comes before every text that begins with prefix. */
static bool comes_before(struct reef_text text, struct reef_text prefix)
{
	size_t shorter = text.size < prefix.size ? text.size : prefix.size;
	int order = shorter ? memcmp(text.bytes, prefix.bytes, shorter) : 0;

	return order < 0 || (order == 0 && text.size < prefix.size);
}

const struct reef_name *reef_state_name_next(const struct reef_state *state,
					     uint32_t space,
					     struct reef_text prefix,
					     const struct reef_text *after)
{
	bool inclusive = !after || comes_before(*after, prefix);
	const struct reef_name *name = reef_names_next(
		&state->names, space, inclusive ? prefix : *after, inclusive);

	if (!name || name->space != space || name->size < prefix.size ||
	    (prefix.size && memcmp(name->text, prefix.bytes, prefix.size) != 0))
		return NULL;
	return name;
}

const struct reef_rule reef_rules_names[REEF_RECORD_TYPES] = {
	[REEF_RECORD_NAME_BIND] = {check_bind, apply_bind},
	[REEF_RECORD_NAME_REPLACE] = {check_replace, apply_replace},
	[REEF_RECORD_NAME_UNBIND] = {check_unbind, apply_unbind},
};
