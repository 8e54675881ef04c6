/* state.c - a state's making, the way of a record, and the queries. */
#include "pool/broker/state/state.h"

#include "base/log.h"
#include "base/text.h"
#include "pool/broker/state/internal.h"

#include <errno.h>
#include <reef/error.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	uint64_t value, least, most;
} settings[REEF_SETTING_COUNT] = {
#define X(upper, lower, value, least, most) {#lower, value, least, most},
	REEF_SETTINGS(X)
#undef X
};

int reef_state_create(struct reef_state **out)
{
	struct reef_state *state = calloc(1, sizeof(*state));
	int i;

	if (!state)
		return -ENOMEM;
	state->next_user = state->next_node = 1;
	state->next_space = state->next_extent = 1;
	state->next_copy = 1;
	for (i = 0; i < REEF_SETTING_COUNT; i++)
		state->settings[i] = settings[i].value;
	*out = state;
	return 0;
}

void reef_state_destroy(struct reef_state *state)
{
	size_t i;

	if (!state)
		return;
	for (i = 0; i < state->node_count; i++)
		free(state->nodes[i].addresses);
	for (i = 0; i < state->space_count; i++)
		free(state->spaces[i].by_ordinal);
	free(state->users);
	free(state->nodes);
	free(state->spaces);
	free(state->extents);
	free(state->sessions);
	free(state->uses);
	reef_names_fini(&state->names);
	reef_names_fini(&state->user_names);
	reef_names_fini(&state->node_names);
	reef_names_fini(&state->space_names);
	free(state->labels);
	free(state->spare_addresses);
	free(state);
}

/* --- the way of a record --- */

static const struct reef_rule *rule_for(uint16_t type)
{
	if (type >= REEF_RECORD_TYPES)
		return NULL;
	if (reef_rules_members[type].check)
		return &reef_rules_members[type];
	if (reef_rules_memory[type].check)
		return &reef_rules_memory[type];
	if (reef_rules_nodes[type].check)
		return &reef_rules_nodes[type];
	if (reef_rules_copies[type].check)
		return &reef_rules_copies[type];
	if (reef_rules_users[type].check)
		return &reef_rules_users[type];
	return reef_rules_names[type].check ? &reef_rules_names[type] : NULL;
}

/* A request counts once, and only while its session is alive. */
static int check_origin(const struct reef_state *state,
			const struct reef_record *record)
{
	const struct reef_state_session *origin;

	if (record->origin == 0)
		return record->request ? -EINVAL : 0;
	origin = reef_state_session(state, record->origin);
	if (!origin)
		return -ENOENT;
	if (origin->state != REEF_SESSION_ALIVE)
		return -EBUSY;
	if (record->request == 0)
		return -EINVAL;
	if (record->request == origin->request)
		return -EALREADY;
	return reef_request_is_later(record->request, origin->request)
		       ? 0
		       : -ESTALE;
}

static uint64_t result_of(const struct reef_state *state,
			  const struct reef_record *record)
{
	switch (record->type) {
	case REEF_RECORD_SPACE_ADD:
	case REEF_RECORD_SPACE_MAKE:
	case REEF_RECORD_EXTENT_ADD:
	case REEF_RECORD_EXTENT_PLACE:
	case REEF_RECORD_EXTENT_RESTORE:
	case REEF_RECORD_USER_ADD:
	case REEF_RECORD_NODE_ADD:
		return record->id;
	case REEF_RECORD_NAME_BIND:
	case REEF_RECORD_NAME_REPLACE:
		return state->generation;
	case REEF_RECORD_SPACE_ERA:
	case REEF_RECORD_USER_ERA:
		return record->era;
	case REEF_RECORD_SETTING:
		return record->value;
	default:
		return 0;
	}
}

/* The type that a record counts as for whoever repeats its request. */
static uint16_t repeated_type(uint16_t type)
{
	switch (type) {
	case REEF_RECORD_EXTENT_PLACE:
		return REEF_RECORD_EXTENT_ADD;
	case REEF_RECORD_SPACE_MAKE:
		return REEF_RECORD_SPACE_ADD;
	default:
		return type;
	}
}

static void note_origin(struct reef_state *state,
			const struct reef_record *record)
{
	struct reef_state_session *origin;

	if (record->origin == 0)
		return;
	origin = &state->sessions[reef_session_slot(record->origin)];
	origin->request = record->request;
	origin->request_type = repeated_type(record->type);
	origin->result = result_of(state, record);
}

int reef_state_check(struct reef_state *state, const struct reef_record *record)
{
	const struct reef_rule *rule = rule_for(record->type);
	int rc;

	if (!rule)
		return -EINVAL;
	/* The record that makes the pool comes before all others. */
	if (!state->pool && record->type != REEF_RECORD_POOL)
		return -ENOENT;
	rc = check_origin(state, record);
	return rc ? rc : rule->check(state, record);
}

int reef_state_apply(struct reef_state *state, const struct reef_record *record)
{
	int rc = reef_state_check(state, record);

	if (rc)
		return rc;
	rule_for(record->type)->apply(state, record);
	note_origin(state, record);
	return 0;
}

int reef_state_replay(struct reef_state *state, uint16_t type,
		      const void *bytes, size_t size)
{
	struct reef_record record;
	int rc;

	rc = reef_record_decode(type, bytes, size, &record);
	if (rc)
		return rc;
	state->replaying = true;
	rc = reef_state_apply(state, &record);
	state->replaying = false;
	if (rc == 0 || rc == -ENOMEM)
		return rc;
	reef_log(REEF_LOG_ERROR, "state", "a record of type %u: %s", type,
		 reef_error_text(rc));
	return -REEF_ECORRUPT;
}

/* --- what the rules share --- */

int reef_state_room(void **items, size_t *room, size_t need, size_t item_size)
{
	size_t more = *room ? *room : 16;
	void *grown;

	if (need <= *room)
		return 0;
	while (more < need)
		more *= 2;
	grown = realloc(*items, more * item_size);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	*room = more;
	return 0;
}

void reef_state_take_out(void *items, size_t *count, size_t index,
			 size_t item_size)
{
	char *at = (char *)items + index * item_size;

	(*count)--;
	memmove(at, at + item_size, (*count - index) * item_size);
}

int reef_state_check_text(const struct reef_state *state, struct reef_text text,
			  enum reef_setting limit)
{
	if (text.size == 0)
		return -EINVAL;
	/* Texts end up in logs and on terminals. What a journal has was let in
	 * when it was written. */
	if (!state->replaying && !reef_text_is_plain(text.bytes, text.size))
		return -EINVAL;
	if (!state->replaying && text.size > state->settings[limit])
		return -ENOSPC;
	return 0;
}

int reef_state_check_limit(const struct reef_state *state, uint64_t count,
			   enum reef_setting limit)
{
	if (!state->replaying && count >= state->settings[limit])
		return -ENOSPC;
	return 0;
}

int reef_state_check_share(const struct reef_state *state, uint64_t count,
			   enum reef_setting limit, uint32_t user)
{
	uint64_t part = user ? state->settings[limit] / REEF_OWNER_PART : 0;

	return reef_state_check_limit(state, count + part, limit);
}

/* Find an item in a sorted array of structs whose first member is their number.
 * NULL: there is none. */
static void *find_by_number(const void *items, size_t count, size_t item_size,
			    uint32_t number)
{
	size_t low = 0, high = count, middle;
	uint32_t own;

	while (low < high) {
		middle = low + (high - low) / 2;
		memcpy(&own, (const char *)items + middle * item_size, 4);
		if (own == number)
			return (char *)items + middle * item_size;
		if (own < number)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

struct reef_state_user *reef_state_user_of(const struct reef_state *state,
					   uint32_t id)
{
	return find_by_number(state->users, state->user_count,
			      sizeof(*state->users), id);
}

struct reef_state_node *reef_state_node_of(const struct reef_state *state,
					   uint32_t id)
{
	return find_by_number(state->nodes, state->node_count,
			      sizeof(*state->nodes), id);
}

struct reef_state_space *reef_state_space_of(const struct reef_state *state,
					     uint32_t id)
{
	return find_by_number(state->spaces, state->space_count,
			      sizeof(*state->spaces), id);
}

struct reef_state_extent *reef_state_extent_of(const struct reef_state *state,
					       uint32_t number)
{
	return find_by_number(state->extents, state->extent_count,
			      sizeof(*state->extents), number);
}

/* --- queries --- */

void reef_state_summary(const struct reef_state *state,
			struct reef_state_summary *out)
{
	*out = (struct reef_state_summary){
		.pool = state->pool,
		.pool_epoch = state->pool_epoch,
		.broker_epoch = state->broker_epoch,
		.base_epoch = state->base_epoch,
		.base = state->base,
		.reclaim = state->reclaim,
		.next_user = state->next_user,
		.next_node = state->next_node,
		.next_space = state->next_space,
		.next_extent = state->next_extent,
		.next_copy = state->next_copy,
		.twins = state->twin_count,
		.generation = state->generation,
		.names = state->names.total,
		.owner_era = state->owner_era,
	};
}

uint64_t reef_state_setting(const struct reef_state *state,
			    enum reef_setting setting)
{
	reef_assert(setting < REEF_SETTING_COUNT);
	return state->settings[setting];
}

const char *reef_setting_name(enum reef_setting setting)
{
	reef_assert(setting < REEF_SETTING_COUNT);
	return settings[setting].name;
}

int reef_setting_find(const char *name, enum reef_setting *out)
{
	int i;

	for (i = 0; i < REEF_SETTING_COUNT; i++) {
		if (strcmp(settings[i].name, name) == 0) {
			*out = (enum reef_setting)i;
			return 0;
		}
	}
	return -ENOENT;
}

bool reef_setting_allows(uint32_t setting, uint64_t value)
{
	/* Extents have whole pages, so none of another size could be made. */
	if (setting == REEF_SETTING_EXTENT_SIZE && value % REEF_EXTENT_ALIGN)
		return false;
	return setting < REEF_SETTING_COUNT &&
	       value >= settings[setting].least &&
	       value <= settings[setting].most;
}

const struct reef_state_user *reef_state_users(const struct reef_state *state,
					       size_t *count)
{
	*count = state->user_count;
	return state->users;
}

const struct reef_state_node *reef_state_nodes(const struct reef_state *state,
					       size_t *count)
{
	*count = state->node_count;
	return state->nodes;
}

const struct reef_state_space *reef_state_spaces(const struct reef_state *state,
						 size_t *count)
{
	*count = state->space_count;
	return state->spaces;
}

const struct reef_state_extent *
reef_state_extents(const struct reef_state *state, size_t *count)
{
	*count = state->extent_count;
	return state->extents;
}

const struct reef_state_session *
reef_state_sessions(const struct reef_state *state, size_t *count)
{
	*count = state->session_count;
	return state->sessions;
}

const struct reef_state_use *reef_state_uses(const struct reef_state *state,
					     size_t *count)
{
	*count = state->use_count;
	return state->uses;
}

const struct reef_state_user *reef_state_user(const struct reef_state *state,
					      uint32_t id)
{
	return reef_state_user_of(state, id);
}

const struct reef_state_node *reef_state_node(const struct reef_state *state,
					      uint32_t id)
{
	return reef_state_node_of(state, id);
}

const struct reef_state_space *reef_state_space(const struct reef_state *state,
						uint32_t id)
{
	return reef_state_space_of(state, id);
}

const struct reef_state_extent *
reef_state_extent(const struct reef_state *state, uint32_t number)
{
	return reef_state_extent_of(state, number);
}

const struct reef_state_session *
reef_state_session(const struct reef_state *state, uint32_t id)
{
	uint16_t slot = reef_session_slot(id);

	if (id == 0 || slot >= state->session_count ||
	    state->sessions[slot].id != id)
		return NULL;
	return &state->sessions[slot];
}

static uint32_t find_named(const struct reef_names *names,
			   struct reef_text name)
{
	const struct reef_name *found = reef_names_find(names, 0, name);

	return found ? (uint32_t)found->value : 0;
}

uint32_t reef_state_find_user(const struct reef_state *state,
			      struct reef_text name)
{
	return find_named(&state->user_names, name);
}

uint32_t reef_state_find_node(const struct reef_state *state,
			      struct reef_text name)
{
	return find_named(&state->node_names, name);
}

uint32_t reef_state_find_space(const struct reef_state *state,
			       struct reef_text name)
{
	return find_named(&state->space_names, name);
}
