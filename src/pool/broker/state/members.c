/* members.c - the pool itself, its settings and sessions. */
#include "pool/broker/state/internal.h"

#include <errno.h>
#include <string.h>

#define SLOTS_MAX 0x8000u /* the others are for links of nobody's session */

/* --- the pool --- */

static int check_pool(struct reef_state *state,
		      const struct reef_record *record)
{
	if (record->value == 0)
		return -EINVAL;
	return state->pool ? -EEXIST : 0;
}

static void apply_pool(struct reef_state *state,
		       const struct reef_record *record)
{
	state->pool = record->value;
	state->pool_epoch = 1;
}

static int check_broker(struct reef_state *state,
			const struct reef_record *record)
{
	return record->value == state->broker_epoch + 1 ? 0 : -ESTALE;
}

static void apply_broker(struct reef_state *state,
			 const struct reef_record *record)
{
	state->broker_epoch = record->value;
}

static int check_base(struct reef_state *state,
		      const struct reef_record *record)
{
	return record->value >= state->base_epoch &&
			       record->value <= state->broker_epoch
		       ? 0
		       : -ESTALE;
}

static void apply_base(struct reef_state *state,
		       const struct reef_record *record)
{
	state->base_epoch = record->value;
	state->base = record->generation;
}

static int check_setting(struct reef_state *state,
			 const struct reef_record *record)
{
	return reef_setting_allows(record->id, record->value) ? 0 : -EINVAL;
}

static void apply_setting(struct reef_state *state,
			  const struct reef_record *record)
{
	state->settings[record->id] = record->value;
}

static int check_reclaim(struct reef_state *state,
			 const struct reef_record *record)
{
	return record->value > state->reclaim ? 0 : -ESTALE;
}

static void apply_reclaim(struct reef_state *state,
			  const struct reef_record *record)
{
	state->reclaim = record->value;
}

/* --- which spaces sessions use --- */

/* The index at which that use is, or would be inserted. Uses are ordered by id,
 * which begins with the slot; an id comes again only when its uses are gone. */
static size_t find_use(const struct reef_state *state, uint32_t session,
		       uint32_t space)
{
	uint64_t wanted = session * (UINT64_C(1) << 32) + space;
	size_t low = 0, high = state->use_count, middle;

	while (low < high) {
		const struct reef_state_use *use;

		middle = low + (high - low) / 2;
		use = &state->uses[middle];
		if (((uint64_t)use->session << 32 | use->space) < wanted)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_use_at(const struct reef_state *state, size_t index,
		      uint32_t session, uint32_t space)
{
	return index < state->use_count &&
	       state->uses[index].session == session &&
	       state->uses[index].space == space;
}

/* True if the session uses a space; stuck: or did, and that is STUCK. */
static bool uses_any(const struct reef_state *state, uint32_t session,
		     bool stuck)
{
	const struct reef_state_use *use = state->uses;
	size_t i = find_use(state, session, 0);

	for (; i < state->use_count && use[i].session == session; i++)
		if (stuck || !use[i].stuck)
			return true;
	return false;
}

/* --- sessions --- */

static uint16_t next_generation(const struct reef_state *state, uint16_t slot)
{
	uint16_t last = 0;

	if (slot < state->session_count)
		last = (uint16_t)state->sessions[slot].id;
	return last == UINT16_MAX ? 1 : (uint16_t)(last + 1);
}

static bool is_slot_free(const struct reef_state *state, uint16_t slot)
{
	return slot >= state->session_count || state->sessions[slot].id == 0 ||
	       state->sessions[slot].state == REEF_SESSION_RECOVERED;
}

static int check_session_open(struct reef_state *state,
			      const struct reef_record *record)
{
	uint32_t reserved = record->user ? 0 : REEF_OWNER_SLOTS; /* (9) */
	uint16_t slot = reef_session_slot(record->session);
	int rc;

	if (record->user && !reef_state_user_of(state, record->user))
		return -ENOENT;
	rc = reef_state_check_limit(state,
				    slot < reserved ? 0 : slot - reserved,
				    REEF_SETTING_SESSIONS_MAX);
	if (rc == 0)
		rc = reef_state_check_user(state, record->user,
					   REEF_LIMIT_SESSIONS, 1);
	if (rc)
		return rc;
	if (!is_slot_free(state, slot))
		return -EBUSY;
	if ((uint16_t)record->session != next_generation(state, slot))
		return -ESTALE;
	if (uses_any(state, record->session, true))
		return -EBUSY;
	return reef_state_room((void **)&state->sessions, &state->session_room,
			       (size_t)slot + 1, sizeof(*state->sessions));
}

static void apply_session_open(struct reef_state *state,
			       const struct reef_record *record)
{
	uint16_t slot = reef_session_slot(record->session);

	while (state->session_count <= slot)
		state->sessions[state->session_count++] =
			(struct reef_state_session){0};
	state->sessions[slot] =
		(struct reef_state_session){.id = record->session,
					    .user = record->user,
					    .state = REEF_SESSION_ALIVE};
	state->next_slot = (uint16_t)(slot + 1);
	reef_state_count(state, record->user, REEF_LIMIT_SESSIONS, 1);
}

/* --- uses --- */

static int check_use(struct reef_state *state, const struct reef_record *record)
{
	const struct reef_state_session *session =
		reef_state_session(state, record->session);
	const struct reef_state_space *space =
		reef_state_space_of(state, record->space);
	size_t index = find_use(state, record->session, record->space);

	if (!session || !space)
		return -ENOENT;
	if (session->state != REEF_SESSION_ALIVE)
		return -EBUSY;
	/* A scratch space of its own ends with it, and needs no recovery. */
	if (space->session == record->session)
		return -EINVAL;
	if (is_use_at(state, index, record->session, record->space))
		return -EEXIST;
	return reef_state_room((void **)&state->uses, &state->use_room,
			       state->use_count + 1, sizeof(*state->uses));
}

static void apply_use(struct reef_state *state,
		      const struct reef_record *record)
{
	size_t index = find_use(state, record->session, record->space);
	struct reef_state_use *use = &state->uses[index];

	memmove(use + 1, use, (state->use_count - index) * sizeof(*use));
	*use = (struct reef_state_use){record->session, record->space, false};
	state->use_count++;
}

static int check_use_end(struct reef_state *state,
			 const struct reef_record *record)
{
	size_t index = find_use(state, record->session, record->space);

	return is_use_at(state, index, record->session, record->space)
		       ? 0
		       : -ENOENT;
}

static void apply_use_end(struct reef_state *state,
			  const struct reef_record *record)
{
	reef_state_take_out(state->uses, &state->use_count,
			    find_use(state, record->session, record->space),
			    sizeof(*state->uses));
}

static int check_use_stuck(struct reef_state *state,
			   const struct reef_record *record)
{
	const struct reef_state_session *session =
		reef_state_session(state, record->session);
	size_t index = find_use(state, record->session, record->space);

	if (!is_use_at(state, index, record->session, record->space))
		return -ENOENT;
	if (state->uses[index].stuck)
		return -EEXIST;
	return session && session->state == REEF_SESSION_FENCED ? 0 : -EBUSY;
}

static void apply_use_stuck(struct reef_state *state,
			    const struct reef_record *record)
{
	state->uses[find_use(state, record->session, record->space)].stuck =
		true;
}

static int check_session_state(struct reef_state *state,
			       const struct reef_record *record)
{
	const struct reef_state_session *session =
		reef_state_session(state, record->session);

	if (!session)
		return -ENOENT;
	if (record->state > REEF_SESSION_RECOVERED)
		return -EINVAL;
	/* A session takes one step at a time, and never one back. */
	if (record->state != session->state + 1)
		return -EBUSY;
	return record->state == REEF_SESSION_RECOVERED &&
			       uses_any(state, record->session, false)
		       ? -EBUSY
		       : 0;
}

static void apply_session_state(struct reef_state *state,
				const struct reef_record *record)
{
	struct reef_state_session *session =
		&state->sessions[reef_session_slot(record->session)];
	size_t i;

	session->state = record->state;
	if (record->state != REEF_SESSION_RECOVERED)
		return;
	reef_state_uncount(state, session->user, REEF_LIMIT_SESSIONS, 1);
	/* Backwards, because dropping a space moves those behind it. */
	for (i = state->space_count; i-- > 0;)
		if (state->spaces[i].session == record->session)
			reef_state_drop_space(state, &state->spaces[i]);
}

static int check_session_process(struct reef_state *state,
				 const struct reef_record *record)
{
	const struct reef_state_session *session =
		reef_state_session(state, record->session);

	if (!session)
		return -ENOENT;
	if (session->state != REEF_SESSION_ALIVE)
		return -EBUSY;
	return record->id || !(record->generation | record->value) ? 0
								   : -EINVAL;
}

static void apply_session_process(struct reef_state *state,
				  const struct reef_record *record)
{
	state->sessions[reef_session_slot(record->session)].process =
		(struct reef_process){
			.pid = record->id,
			.started = record->generation,
			.place = record->value,
		};
}

/* True if a session can be opened in a slot; *id is what it would have. */
static bool is_slot_fit(const struct reef_state *state, uint16_t slot,
			uint32_t *id)
{
	*id = reef_session_id(slot, next_generation(state, slot));
	return is_slot_free(state, slot) && !uses_any(state, *id, true);
}

int reef_state_pick_session(const struct reef_state *state, uint32_t reserved,
			    uint32_t *id)
{
	uint64_t max = state->settings[REEF_SETTING_SESSIONS_MAX], i;
	uint32_t picked;

	for (i = 0; i < max; i++) {
		if (is_slot_fit(state, (uint16_t)((state->next_slot + i) % max),
				&picked)) {
			*id = picked;
			return 0;
		}
	}
	for (i = max; i < max + reserved && i < SLOTS_MAX; i++) {
		if (is_slot_fit(state, (uint16_t)i, &picked)) {
			*id = picked;
			return 0;
		}
	}
	return -ENOSPC;
}

/* --- what images bring along --- */

static int check_numbers(struct reef_state *state,
			 const struct reef_record *record)
{
	return record->id < UINT32_MAX && record->ordinal <= UINT16_MAX
		       ? 0
		       : -EINVAL;
}

static void apply_numbers(struct reef_state *state,
			  const struct reef_record *record)
{
	if (state->next_extent < record->id)
		state->next_extent = record->id;
	if (state->generation < record->generation)
		state->generation = record->generation;
	if (state->next_slot < record->ordinal)
		state->next_slot = (uint16_t)record->ordinal;
}

/* True if clients would take a session of that id for one that is still to
 * come, or that lives. */
static bool is_slot_behind(const struct reef_state *state, uint32_t session)
{
	uint16_t slot = reef_session_slot(session);
	uint16_t last = 0;

	if (slot < state->session_count)
		last = (uint16_t)state->sessions[slot].id;
	return !last || (int16_t)(last - (uint16_t)session) < 0;
}

/* A session that used the space in another life of it has to have ended, for
 * whoever looks at its slot. */
static int check_session_past(struct reef_state *state,
			      const struct reef_record *record)
{
	const struct reef_state_session *same =
		reef_state_session(state, record->session);
	const struct reef_state_space *space =
		reef_state_space_of(state, record->space);
	uint16_t slot = reef_session_slot(record->session);
	size_t index = find_use(state, record->session, record->space);
	int rc;

	if (!space)
		return -ENOENT;
	if (!(uint16_t)record->session || slot >= SLOTS_MAX ||
	    space->session == record->session)
		return -EINVAL;
	if (same && same->state < REEF_SESSION_FENCED)
		return -EBUSY;
	if (!is_slot_free(state, slot) &&
	    is_slot_behind(state, record->session))
		return -EBUSY;
	if (is_use_at(state, index, record->session, record->space))
		return -EEXIST;
	rc = reef_state_room((void **)&state->sessions, &state->session_room,
			     (size_t)slot + 1, sizeof(*state->sessions));
	return rc ? rc
		  : reef_state_room((void **)&state->uses, &state->use_room,
				    state->use_count + 1, sizeof(*state->uses));
}

static void apply_session_past(struct reef_state *state,
			       const struct reef_record *record)
{
	uint16_t slot = reef_session_slot(record->session);

	while (state->session_count <= slot)
		state->sessions[state->session_count++] =
			(struct reef_state_session){0};
	if (is_slot_behind(state, record->session))
		state->sessions[slot] = (struct reef_state_session){
			.id = record->session,
			.state = REEF_SESSION_RECOVERED,
		};
	apply_use(state, record);
	apply_use_stuck(state, record);
}

const struct reef_rule reef_rules_members[REEF_RECORD_TYPES] = {
	[REEF_RECORD_POOL] = {check_pool, apply_pool},
	[REEF_RECORD_BROKER] = {check_broker, apply_broker},
	[REEF_RECORD_BASE] = {check_base, apply_base},
	[REEF_RECORD_SETTING] = {check_setting, apply_setting},
	[REEF_RECORD_SESSION_OPEN] = {check_session_open, apply_session_open},
	[REEF_RECORD_SESSION_STATE] = {check_session_state,
				       apply_session_state},
	[REEF_RECORD_SESSION_PROCESS] = {check_session_process,
					 apply_session_process},
	[REEF_RECORD_USE] = {check_use, apply_use},
	[REEF_RECORD_USE_END] = {check_use_end, apply_use_end},
	[REEF_RECORD_USE_STUCK] = {check_use_stuck, apply_use_stuck},
	[REEF_RECORD_RECLAIM] = {check_reclaim, apply_reclaim},
	[REEF_RECORD_NUMBERS] = {check_numbers, apply_numbers},
	[REEF_RECORD_SESSION_PAST] = {check_session_past, apply_session_past},
};
