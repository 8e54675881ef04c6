/* users.c - users, what they may have, and what they have. User 0 is the pool's
 * owner, who needs no entry. */
#include "pool/broker/state/internal.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* --- limits --- */

static_assert(REEF_SETTING_USER_BYTES - REEF_SETTING_USER_SESSIONS ==
		      REEF_LIMIT_BYTES,
	      "settings of limits have their order");

uint64_t reef_state_limit(const struct reef_state *state, uint32_t id,
			  enum reef_limit limit)
{
	const struct reef_state_user *user = reef_state_user_of(state, id);

	reef_assert(limit < REEF_LIMIT_COUNT);
	if (!user)
		return REEF_NO_LIMIT;
	return user->limits[limit]
		       ? user->limits[limit]
		       : state->settings[REEF_SETTING_USER_SESSIONS + limit];
}

int reef_state_check_user(const struct reef_state *state, uint32_t id,
			  enum reef_limit limit, uint64_t more)
{
	const struct reef_state_user *user = reef_state_user_of(state, id);
	uint64_t max = reef_state_limit(state, id, limit);

	if (!user || state->replaying)
		return 0;
	return more > max || user->uses[limit] > max - more ? -EDQUOT : 0;
}

void reef_state_count(struct reef_state *state, uint32_t id,
		      enum reef_limit limit, uint64_t more)
{
	struct reef_state_user *user = reef_state_user_of(state, id);

	if (user)
		user->uses[limit] += more;
}

void reef_state_uncount(struct reef_state *state, uint32_t id,
			enum reef_limit limit, uint64_t less)
{
	struct reef_state_user *user = reef_state_user_of(state, id);

	reef_assert(!user || user->uses[limit] >= less);
	if (user)
		user->uses[limit] -= less;
}

static int check_user_limit(struct reef_state *state,
			    const struct reef_record *record)
{
	if (record->kind >= REEF_LIMIT_COUNT)
		return -EINVAL;
	return reef_state_user_of(state, record->id) ? 0 : -ENOENT;
}

static void apply_user_limit(struct reef_state *state,
			     const struct reef_record *record)
{
	reef_state_user_of(state, record->id)->limits[record->kind] =
		record->value;
}

/* --- coming and going --- */

static int check_user_add(struct reef_state *state,
			  const struct reef_record *record)
{
	int rc;

	if (record->id != state->next_user)
		return -ESTALE;
	if (record->id == UINT32_MAX)
		return -ENOSPC;
	rc = reef_state_check_text(state, record->name,
				   REEF_SETTING_NAME_SIZE_MAX);
	if (rc == 0)
		rc = reef_state_check_limit(state, state->user_count,
					    REEF_SETTING_USERS_MAX);
	if (rc == 0 && reef_state_find_user(state, record->name))
		rc = -EEXIST;
	if (rc == 0)
		rc = reef_state_room((void **)&state->users, &state->user_room,
				     state->user_count + 1,
				     sizeof(*state->users));
	if (rc == 0)
		rc = reef_names_reserve(&state->user_names, record->name.size);
	return rc;
}

static void apply_user_add(struct reef_state *state,
			   const struct reef_record *record)
{
	struct reef_name *name = reef_names_insert(&state->user_names, 0,
						   record->name, record->id, 0);

	state->users[state->user_count++] =
		(struct reef_state_user){.id = record->id, .name = name->text};
	state->next_user++;
}

/* The era of a user's credential, or of the owner's. NULL: no such user. */
static uint32_t *era_of(struct reef_state *state, uint32_t id)
{
	struct reef_state_user *user = reef_state_user_of(state, id);

	if (id == 0)
		return &state->owner_era;
	return user ? &user->era : NULL;
}

static int check_user_era(struct reef_state *state,
			  const struct reef_record *record)
{
	const uint32_t *era = era_of(state, record->id);

	if (!era)
		return -ENOENT;
	if (*era == UINT32_MAX)
		return -ENOSPC;
	return record->era == *era + 1 ? 0 : -ESTALE;
}

static void apply_user_era(struct reef_state *state,
			   const struct reef_record *record)
{
	size_t i;

	*era_of(state, record->id) = record->era;
	for (i = 0; i < state->session_count; i++)
		if (state->sessions[i].id &&
		    state->sessions[i].user == record->id &&
		    state->sessions[i].state != REEF_SESSION_RECOVERED)
			state->sessions[i].outdated = true;
}

static int check_user_remove(struct reef_state *state,
			     const struct reef_record *record)
{
	struct reef_state_user *user = reef_state_user_of(state, record->id);
	size_t i;

	if (!user)
		return -ENOENT;
	for (i = 0; i < state->space_count; i++)
		if (state->spaces[i].user == record->id)
			return -EBUSY;
	return user->uses[REEF_LIMIT_SESSIONS] ? -EBUSY : 0;
}

static void apply_user_remove(struct reef_state *state,
			      const struct reef_record *record)
{
	struct reef_state_user *user = reef_state_user_of(state, record->id);
	struct reef_text text = reef_text_of(user->name);
	size_t i;

	/* Sessions that ended may still name the user as theirs. */
	for (i = 0; i < state->session_count; i++)
		if (state->sessions[i].user == record->id)
			state->sessions[i].user = 0;
	reef_names_remove(&state->user_names,
			  reef_names_find(&state->user_names, 0, text));
	reef_state_take_out(state->users, &state->user_count,
			    (size_t)(user - state->users), sizeof(*user));
}

/* A user who is expelled has no session that is ALIVE. Those that end go on to
 * their end as the owner's. */
static int check_user_expel(struct reef_state *state,
			    const struct reef_record *record)
{
	size_t i;

	if (!reef_state_user_of(state, record->id))
		return -ENOENT;
	for (i = 0; i < state->session_count; i++)
		if (state->sessions[i].user == record->id &&
		    state->sessions[i].state == REEF_SESSION_ALIVE)
			return -EBUSY;
	return 0;
}

static void apply_user_expel(struct reef_state *state,
			     const struct reef_record *record)
{
	size_t i;

	for (i = 0; i < state->space_count; i++)
		if (state->spaces[i].user == record->id)
			state->spaces[i].user = 0;
	apply_user_remove(state, record);
}

const struct reef_rule reef_rules_users[REEF_RECORD_TYPES] = {
	[REEF_RECORD_USER_ADD] = {check_user_add, apply_user_add},
	[REEF_RECORD_USER_ERA] = {check_user_era, apply_user_era},
	[REEF_RECORD_USER_REMOVE] = {check_user_remove, apply_user_remove},
	[REEF_RECORD_USER_LIMIT] = {check_user_limit, apply_user_limit},
	[REEF_RECORD_USER_EXPEL] = {check_user_expel, apply_user_expel},
};
