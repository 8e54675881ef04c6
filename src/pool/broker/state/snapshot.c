/* snapshot.c - the whole state as bytes, and back.
 *
 *   magic 32, version 32, pool 64, pool epoch 64, broker epoch 64, reclaim 64,
 *   next user, node, space, extent 32 each, next slot 32, generation 64, the
 *   owner's era 32, base epoch 64, base 64, next copy 64,
 *   settings (count 32, then 64 each), then users, nodes, sessions, spaces,
 *   extents, uses, names, each with its count (32; names 64) before it.
 *
 * What follows from other parts is not written but counted anew: used bytes,
 * numbers of extents, sessions and names, tables of ordinals. Reading trusts
 * nothing: every rule of state.h is checked, for a state that breaks one would
 * fail an assertion later. Order: what is referred to comes first. */
#include "pool/broker/state/internal.h"

#include "wire/cursor.h"

#include <errno.h>
#include <reef/error.h>

#define MAGIC 0x74736672 /* "rfst" */
#define VERSION 8
/* Without the processes of sessions, then without what is STUCK, then without
 * limits of users, the owner's era, and which sessions are outdated, then
 * without the base, then without copies and which extents are made: those are,
 * and get the first ids, then without what nodes keep, and drain when they are
 * back, then without second copies. */
#define VERSION_1 1
#define VERSION_2 2
#define VERSION_3 3
#define VERSION_4 4
#define VERSION_5 5
#define VERSION_6 6
#define VERSION_7 7

/* --- writing --- */

static void put_text(struct reef_cursor_out *out, const char *text)
{
	size_t size = strlen(text);

	reef_cursor_put(out, 2, size);
	reef_cursor_bytes(out, text, size);
}

static void put_users(struct reef_cursor_out *out,
		      const struct reef_state *state)
{
	const struct reef_state_user *user = state->users;
	size_t i, limit;

	reef_cursor_put(out, 4, state->user_count);
	for (i = 0; i < state->user_count; i++, user++) {
		reef_cursor_put(out, 4, user->id);
		reef_cursor_put(out, 4, user->era);
		put_text(out, user->name);
		reef_cursor_put(out, 1, REEF_LIMIT_COUNT);
		for (limit = 0; limit < REEF_LIMIT_COUNT; limit++)
			reef_cursor_put(out, 8, user->limits[limit]);
	}
}

static void put_nodes(struct reef_cursor_out *out,
		      const struct reef_state *state)
{
	const struct reef_state_node *node = state->nodes;
	size_t i;

	reef_cursor_put(out, 4, state->node_count);
	for (i = 0; i < state->node_count; i++, node++) {
		reef_cursor_put(out, 4, node->id);
		reef_cursor_put(out, 1, node->state);
		reef_cursor_put(out, 8, node->incarnation);
		reef_cursor_put(out, 8, node->capacity);
		put_text(out, node->name);
		put_text(out, node->addresses);
		reef_cursor_put(out, 1, node->keeps);
		reef_cursor_put(out, 1, node->drains);
	}
}

static void put_sessions(struct reef_cursor_out *out,
			 const struct reef_state *state)
{
	const struct reef_state_session *session = state->sessions;
	size_t i;

	reef_cursor_put(out, 4, state->session_count);
	for (i = 0; i < state->session_count; i++, session++) {
		reef_cursor_put(out, 4, session->id);
		reef_cursor_put(out, 4, session->user);
		reef_cursor_put(out, 1, session->state);
		reef_cursor_put(out, 4, session->request);
		reef_cursor_put(out, 2, session->request_type);
		reef_cursor_put(out, 8, session->result);
		reef_cursor_put(out, 4, session->process.pid);
		reef_cursor_put(out, 8, session->process.started);
		reef_cursor_put(out, 8, session->process.place);
		reef_cursor_put(out, 1, session->outdated);
	}
}

static void put_spaces(struct reef_cursor_out *out,
		       const struct reef_state *state)
{
	const struct reef_state_space *space = state->spaces;
	size_t i;

	reef_cursor_put(out, 4, state->space_count);
	for (i = 0; i < state->space_count; i++, space++) {
		reef_cursor_put(out, 4, space->id);
		reef_cursor_put(out, 1, space->kind);
		reef_cursor_put(out, 1, space->keeping);
		reef_cursor_put(out, 4, space->era);
		reef_cursor_put(out, 4, space->user);
		reef_cursor_put(out, 4, space->session);
		reef_cursor_put(out, 8, space->quota);
		reef_cursor_put(out, 4, space->ordinals);
		put_text(out, space->name);
		reef_cursor_put(out, 1, space->copies);
		reef_cursor_put(out, 1, space->strict);
	}
}

static void put_extents(struct reef_cursor_out *out,
			const struct reef_state *state)
{
	const struct reef_state_extent *extent = state->extents;
	size_t i;

	reef_cursor_put(out, 4, state->extent_count);
	for (i = 0; i < state->extent_count; i++, extent++) {
		reef_cursor_put(out, 4, extent->number);
		reef_cursor_put(out, 4, extent->space);
		reef_cursor_put(out, 4, extent->ordinal);
		reef_cursor_put(out, 4, extent->node);
		reef_cursor_put(out, 4, extent->target);
		reef_cursor_put(out, 4, extent->epoch);
		reef_cursor_put(out, 1, extent->state);
		reef_cursor_put(out, 8, extent->size);
		reef_cursor_put(out, 1, extent->made);
		reef_cursor_put(out, 8, extent->copy);
		reef_cursor_put(out, 4, extent->label);
		reef_cursor_put(out, 4, extent->twin);
		reef_cursor_put(out, 1, extent->is_twin);
	}
}

static void put_uses(struct reef_cursor_out *out,
		     const struct reef_state *state)
{
	const struct reef_state_use *use = state->uses;
	size_t i;

	reef_cursor_put(out, 4, state->use_count);
	for (i = 0; i < state->use_count; i++, use++) {
		reef_cursor_put(out, 4, use->session);
		reef_cursor_put(out, 4, use->space);
		reef_cursor_put(out, 1, use->stuck);
	}
}

static void put_names(struct reef_cursor_out *out,
		      const struct reef_state *state)
{
	struct reef_text after = {"", 0};
	const struct reef_name *name;

	reef_cursor_put(out, 8, state->names.total);
	for (name = reef_names_next(&state->names, 0, after, true); name;
	     name = reef_names_next(&state->names, name->space, after, false)) {
		reef_cursor_put(out, 4, name->space);
		reef_cursor_put(out, 8, name->value);
		reef_cursor_put(out, 8, name->generation);
		put_text(out, name->text);
		after = (struct reef_text){name->text, name->size};
	}
}

static void put_head(struct reef_cursor_out *out,
		     const struct reef_state *state)
{
	int i;

	reef_cursor_put(out, 4, MAGIC);
	reef_cursor_put(out, 4, VERSION);
	reef_cursor_put(out, 8, state->pool);
	reef_cursor_put(out, 8, state->pool_epoch);
	reef_cursor_put(out, 8, state->broker_epoch);
	reef_cursor_put(out, 8, state->reclaim);
	reef_cursor_put(out, 4, state->next_user);
	reef_cursor_put(out, 4, state->next_node);
	reef_cursor_put(out, 4, state->next_space);
	reef_cursor_put(out, 4, state->next_extent);
	reef_cursor_put(out, 4, state->next_slot);
	reef_cursor_put(out, 8, state->generation);
	reef_cursor_put(out, 4, state->owner_era);
	reef_cursor_put(out, 8, state->base_epoch);
	reef_cursor_put(out, 8, state->base);
	reef_cursor_put(out, 8, state->next_copy);
	reef_cursor_put(out, 4, REEF_SETTING_COUNT);
	for (i = 0; i < REEF_SETTING_COUNT; i++)
		reef_cursor_put(out, 8, state->settings[i]);
}

int reef_state_encode(const struct reef_state *state, uint8_t **bytes,
		      size_t *size)
{
	struct reef_cursor_out out = {0};

	put_head(&out, state);
	put_users(&out, state);
	put_nodes(&out, state);
	put_sessions(&out, state);
	put_spaces(&out, state);
	put_extents(&out, state);
	put_uses(&out, state);
	put_names(&out, state);
	if (out.failed) {
		free(out.bytes);
		return -ENOMEM;
	}
	*bytes = out.bytes;
	*size = out.size;
	return 0;
}

/* --- reading ---
 *
 * Where a rule of some record checks just what is needed, reading makes that
 * record and applies it, after setting the next number to the one that comes.
 */

struct head {
	uint32_t version;
	uint32_t next_user, next_node, next_space, next_extent, next_slot;
	uint64_t pool_epoch, broker_epoch, generation, next_copy;
};

static struct reef_text get_text(struct reef_cursor_in *in)
{
	uint16_t size = (uint16_t)reef_cursor_get(in, 2);
	const char *bytes = (const char *)reef_cursor_take(in, size);

	return (struct reef_text){bytes ? bytes : "", bytes ? size : 0};
}

/* Apply a record made of what was read; any error but -ENOMEM is damage. */
static int apply_decoded(struct reef_state *state, struct reef_cursor_in *in,
			 const struct reef_record *record)
{
	int rc = in->failed ? -REEF_ECORRUPT : reef_state_apply(state, record);

	return rc && rc != -ENOMEM ? -REEF_ECORRUPT : rc;
}

/* Check that a number comes after those before it, and before `end`; it is the
 * next one that its record may have. */
static int take_number(uint32_t *next, uint32_t id, uint32_t end)
{
	if (id < *next || id >= end)
		return -REEF_ECORRUPT;
	*next = id;
	return 0;
}

/* Limits that whoever wrote this did not know are as the settings say. */
static int get_limits(struct reef_cursor_in *in,
		      uint64_t limits[REEF_LIMIT_COUNT])
{
	uint64_t count = reef_cursor_get(in, 1), i;

	if (count > REEF_LIMIT_COUNT)
		return -REEF_EVERSION;
	for (i = 0; i < count; i++)
		limits[i] = reef_cursor_get(in, 8);
	return 0;
}

static int get_users(struct reef_cursor_in *in, struct reef_state *state,
		     const struct head *head)
{
	uint64_t count = reef_cursor_get(in, 4);
	struct reef_record record = {.type = REEF_RECORD_USER_ADD};
	struct reef_state_user *user;
	uint32_t era;
	int rc = 0;

	for (; count > 0 && rc == 0; count--) {
		record.id = (uint32_t)reef_cursor_get(in, 4);
		era = (uint32_t)reef_cursor_get(in, 4);
		record.name = get_text(in);
		rc = take_number(&state->next_user, record.id, head->next_user);
		if (rc == 0)
			rc = apply_decoded(state, in, &record);
		if (rc)
			break;
		user = reef_state_user_of(state, record.id);
		user->era = era;
		if (head->version > VERSION_3)
			rc = get_limits(in, user->limits);
	}
	return rc;
}

/* True if a node may be in that state, with what it keeps. */
static bool is_node_valid(const struct reef_record *record, uint8_t node_state,
			  uint64_t keeps, uint64_t drains)
{
	if (node_state < REEF_NODE_OK || node_state > REEF_NODE_AWAY ||
	    keeps > 1 || drains > 1)
		return false;
	if (!record->incarnation && (node_state != REEF_NODE_DEAD || keeps))
		return false;
	return node_state == REEF_NODE_AWAY ? keeps : !drains;
}

static int get_nodes(struct reef_cursor_in *in, struct reef_state *state,
		     const struct head *head)
{
	uint64_t count = reef_cursor_get(in, 4), keeps = 0, drains = 0;
	struct reef_record record = {.type = REEF_RECORD_NODE_ADD};
	struct reef_state_node *node;
	uint8_t node_state;
	int rc = 0;

	for (; count > 0 && rc == 0; count--) {
		record.id = (uint32_t)reef_cursor_get(in, 4);
		node_state = (uint8_t)reef_cursor_get(in, 1);
		record.incarnation = reef_cursor_get(in, 8);
		record.size = reef_cursor_get(in, 8);
		record.name = get_text(in);
		record.addresses = get_text(in);
		if (head->version > VERSION_6) {
			keeps = reef_cursor_get(in, 1);
			drains = reef_cursor_get(in, 1);
		}
		rc = take_number(&state->next_node, record.id, head->next_node);
		if (rc == 0 &&
		    !is_node_valid(&record, node_state, keeps, drains))
			rc = -REEF_ECORRUPT;
		if (rc == 0)
			rc = apply_decoded(state, in, &record);
		if (rc)
			break;
		node = reef_state_node_of(state, record.id);
		node->state = node_state;
		node->keeps = keeps == 1;
		node->drains = drains == 1;
	}
	return rc;
}

static bool is_session_valid(const struct reef_state *state, uint64_t slot,
			     const struct reef_state_session *session)
{
	if (session->request_type >= REEF_RECORD_TYPES ||
	    (session->request == 0) != (session->request_type == 0) ||
	    (session->request == 0 && session->result) ||
	    (session->process.pid == 0 &&
	     (session->process.started || session->process.place)))
		return false;
	if (session->id == 0)
		return session->user == 0 && session->state == 0 &&
		       session->request == 0 && session->process.pid == 0 &&
		       !session->outdated;
	return reef_session_slot(session->id) == slot &&
	       (uint16_t)session->id != 0 &&
	       session->state >= REEF_SESSION_ALIVE &&
	       session->state <= REEF_SESSION_RECOVERED &&
	       (session->user == 0 || reef_state_user_of(state, session->user));
}

static void get_process(struct reef_cursor_in *in, uint32_t version,
			struct reef_process *process)
{
	*process = (struct reef_process){0};
	if (version == VERSION_1)
		return;
	process->pid = (uint32_t)reef_cursor_get(in, 4);
	process->started = reef_cursor_get(in, 8);
	process->place = reef_cursor_get(in, 8);
}

static int get_sessions(struct reef_cursor_in *in, struct reef_state *state,
			uint32_t version)
{
	uint64_t count = reef_cursor_get(in, 4), slot;
	struct reef_state_session session;
	uint64_t outdated = 0;
	int rc;

	if (count > UINT16_MAX + 1)
		return -REEF_ECORRUPT;
	for (slot = 0; slot < count; slot++) {
		session.id = (uint32_t)reef_cursor_get(in, 4);
		session.user = (uint32_t)reef_cursor_get(in, 4);
		session.state = (uint8_t)reef_cursor_get(in, 1);
		session.request = (uint32_t)reef_cursor_get(in, 4);
		session.request_type = (uint16_t)reef_cursor_get(in, 2);
		session.result = reef_cursor_get(in, 8);
		get_process(in, version, &session.process);
		if (version > VERSION_3)
			outdated = reef_cursor_get(in, 1);
		session.outdated = outdated == 1;
		if (in->failed || outdated > 1 ||
		    !is_session_valid(state, slot, &session))
			return -REEF_ECORRUPT;
		rc = reef_state_room((void **)&state->sessions,
				     &state->session_room, slot + 1,
				     sizeof(session));
		if (rc)
			return rc;
		state->sessions[state->session_count++] = session;
		if (session.id && session.state != REEF_SESSION_RECOVERED)
			reef_state_count(state, session.user,
					 REEF_LIMIT_SESSIONS, 1);
	}
	/* The table ends with the highest slot that was used. */
	return count && session.id == 0 ? -REEF_ECORRUPT : 0;
}

/* Make the table of ordinals as long as it was; extents fill it. */
static int set_ordinals(struct reef_state_space *space, uint64_t ordinals)
{
	if (ordinals > REEF_ORDINALS_MAX)
		return -REEF_ECORRUPT;
	if (ordinals == 0)
		return 0;
	space->by_ordinal = calloc(ordinals, sizeof(*space->by_ordinal));
	if (!space->by_ordinal)
		return -ENOMEM;
	space->ordinals = space->ordinals_room = (uint32_t)ordinals;
	return 0;
}

/* A scratch space lives until its session is recovered, so it may belong to one
 * that is not alive; what the rule of a new one asks is asked of those here. */
static int get_space(struct reef_cursor_in *in, struct reef_state *state,
		     const struct head *head)
{
	struct reef_record record = {.type = REEF_RECORD_SPACE_MAKE,
				     .value = 1};
	struct reef_state_session *session = NULL;
	uint64_t ordinals;
	uint8_t before = 0;
	uint32_t era;
	int rc;

	record.id = (uint32_t)reef_cursor_get(in, 4);
	record.kind = (uint8_t)reef_cursor_get(in, 1);
	record.keeping = (uint8_t)reef_cursor_get(in, 1);
	era = (uint32_t)reef_cursor_get(in, 4);
	record.user = (uint32_t)reef_cursor_get(in, 4);
	record.session = (uint32_t)reef_cursor_get(in, 4);
	record.size = reef_cursor_get(in, 8);
	ordinals = reef_cursor_get(in, 4);
	record.name = get_text(in);
	if (head->version > VERSION_7) {
		record.value = reef_cursor_get(in, 1);
		record.state = (uint8_t)reef_cursor_get(in, 1);
	}
	rc = take_number(&state->next_space, record.id, head->next_space);
	if (rc)
		return rc;
	if (reef_state_session(state, record.session))
		session = &state->sessions[reef_session_slot(record.session)];
	if (session && session->state != REEF_SESSION_RECOVERED) {
		before = session->state;
		session->state = REEF_SESSION_ALIVE;
	}
	rc = apply_decoded(state, in, &record);
	if (before)
		session->state = before;
	if (rc)
		return rc;
	reef_state_space_of(state, record.id)->era = era;
	return set_ordinals(reef_state_space_of(state, record.id), ordinals);
}

static int get_spaces(struct reef_cursor_in *in, struct reef_state *state,
		      const struct head *head)
{
	uint64_t count = reef_cursor_get(in, 4);
	int rc = 0;

	for (; count > 0 && rc == 0; count--)
		rc = get_space(in, state, head);
	return rc;
}

/* Count an extent on a node. False: no such node may hold that much. */
static bool count_on_node(struct reef_state *state, uint32_t id, uint64_t size)
{
	struct reef_state_node *node = reef_state_node_of(state, id);

	if (!node || node->state == REEF_NODE_DEAD ||
	    node->state == REEF_NODE_DRAINED ||
	    size > node->capacity - node->used)
		return false;
	node->used += size;
	node->extents++;
	return true;
}

/* True if the ordinal of an extent can be its own: a twin has none, and is of a
 * space with copies. */
static bool is_ordinal_valid(const struct reef_state_space *space,
			     const struct reef_state_extent *extent)
{
	if (extent->is_twin)
		return extent->ordinal == REEF_ORDINALS_MAX &&
		       space->copies > 1 &&
		       (extent->state == REEF_EXTENT_LIVE ||
			extent->state == REEF_EXTENT_MOVING);
	return extent->ordinal < space->ordinals &&
	       !space->by_ordinal[extent->ordinal];
}

/* Check an extent, and count it at its space and nodes. */
static bool count_valid_extent(struct reef_state *state,
			       const struct reef_state_extent *extent)
{
	struct reef_state_space *space =
		reef_state_space_of(state, extent->space);
	bool placed = !reef_extent_is_lost(extent->state);
	bool counted = extent->state != REEF_EXTENT_FORGOTTEN;
	bool moving = extent->state == REEF_EXTENT_MOVING;

	if (!space || !is_ordinal_valid(space, extent) || extent->epoch == 0 ||
	    (placed && extent->epoch >= UINT32_MAX - moving) ||
	    extent->size == 0 || extent->size > REEF_EXTENT_SIZE_MAX ||
	    extent->size % REEF_EXTENT_ALIGN ||
	    (counted && extent->size > space->quota - space->used) ||
	    extent->state < REEF_EXTENT_LIVE ||
	    extent->state > REEF_EXTENT_FAILING ||
	    extent->state == REEF_EXTENT_REMOVED)
		return false;
	if (placed ? !count_on_node(state, extent->node, extent->size)
		   : extent->node != 0)
		return false;
	if (moving ? extent->target == extent->node ||
			     !count_on_node(state, extent->target, extent->size)
		   : extent->target != 0)
		return false;
	if (!extent->is_twin)
		space->by_ordinal[extent->ordinal] = extent->number;
	if (counted)
		reef_state_count_in_space(state, space, extent->size);
	return true;
}

/* Read which copy an extent has. False: that cannot be. */
static bool get_copy(struct reef_cursor_in *in, struct reef_state *state,
		     const struct head *head, struct reef_state_extent *extent)
{
	uint64_t made, is_twin = 0;

	extent->made = true;
	extent->label = extent->number;
	extent->twin = 0;
	extent->is_twin = false;
	if (head->version <= VERSION_5) {
		extent->copy = state->next_copy++;
		return true;
	}
	made = reef_cursor_get(in, 1);
	extent->made = made == 1;
	extent->copy = reef_cursor_get(in, 8);
	if (head->version > VERSION_7) {
		extent->label = (uint32_t)reef_cursor_get(in, 4);
		extent->twin = (uint32_t)reef_cursor_get(in, 4);
		is_twin = reef_cursor_get(in, 1);
		extent->is_twin = is_twin == 1;
	}
	/* What moves, or was lost after that, was made. */
	return made <= 1 && is_twin <= 1 && extent->label &&
	       extent->label < head->next_extent && extent->copy &&
	       extent->copy < head->next_copy &&
	       (extent->made || extent->state != REEF_EXTENT_MOVING);
}

static int get_extents(struct reef_cursor_in *in, struct reef_state *state,
		       const struct head *head)
{
	uint64_t count = reef_cursor_get(in, 4);
	struct reef_state_extent extent;
	int rc;

	for (; count > 0; count--) {
		extent.number = (uint32_t)reef_cursor_get(in, 4);
		extent.space = (uint32_t)reef_cursor_get(in, 4);
		extent.ordinal = (uint32_t)reef_cursor_get(in, 4);
		extent.node = (uint32_t)reef_cursor_get(in, 4);
		extent.target = (uint32_t)reef_cursor_get(in, 4);
		extent.epoch = (uint32_t)reef_cursor_get(in, 4);
		extent.state = (uint8_t)reef_cursor_get(in, 1);
		extent.size = reef_cursor_get(in, 8);
		if (!get_copy(in, state, head, &extent))
			return -REEF_ECORRUPT;
		rc = take_number(&state->next_extent, extent.number,
				 head->next_extent);
		if (rc || in->failed || !count_valid_extent(state, &extent))
			return -REEF_ECORRUPT;
		rc = reef_state_room((void **)&state->extents,
				     &state->extent_room,
				     state->extent_count + 1, sizeof(extent));
		if (rc)
			return rc;
		state->extents[state->extent_count++] = extent;
		state->next_extent++;
	}
	return reef_state_check_copies(state);
}

/* The sessions of uses have not RECOVERED, but may have gone on from ALIVE;
 * those of STUCK ones are FENCED or later, and their slots may be another's. */
static bool is_use_valid(const struct reef_state *state,
			 const struct reef_state_use *use)
{
	const struct reef_state_session *session =
		reef_state_session(state, use->session);
	const struct reef_state_space *space =
		reef_state_space_of(state, use->space);
	const struct reef_state_use *last = state->uses;

	if (!use->session || !space || space->session == use->session)
		return false;
	if (use->stuck ? session && session->state < REEF_SESSION_FENCED
		       : !session || session->state == REEF_SESSION_RECOVERED)
		return false;
	if (state->use_count == 0)
		return true;
	last += state->use_count - 1;
	return last->session < use->session ||
	       (last->session == use->session && last->space < use->space);
}

static int get_uses(struct reef_cursor_in *in, struct reef_state *state,
		    uint32_t version)
{
	uint64_t count = reef_cursor_get(in, 4), stuck;
	struct reef_state_use use;
	int rc;

	for (; count > 0; count--) {
		use.session = (uint32_t)reef_cursor_get(in, 4);
		use.space = (uint32_t)reef_cursor_get(in, 4);
		stuck = version > VERSION_2 ? reef_cursor_get(in, 1) : 0;
		use.stuck = stuck == 1;
		if (in->failed || stuck > 1 || !is_use_valid(state, &use))
			return -REEF_ECORRUPT;
		rc = reef_state_room((void **)&state->uses, &state->use_room,
				     state->use_count + 1, sizeof(use));
		if (rc)
			return rc;
		state->uses[state->use_count++] = use;
	}
	return 0;
}

static int get_names(struct reef_cursor_in *in, struct reef_state *state,
		     uint64_t last)
{
	struct reef_record record = {.type = REEF_RECORD_NAME_BIND};
	uint64_t count = reef_cursor_get(in, 8), generation;
	int rc = 0;

	for (; count > 0 && rc == 0; count--) {
		record.space = (uint32_t)reef_cursor_get(in, 4);
		record.value = reef_cursor_get(in, 8);
		generation = reef_cursor_get(in, 8);
		record.name = get_text(in);
		/* Names come in order, so none may follow the place of this. */
		if (generation == 0 || generation > last ||
		    reef_names_next(&state->names, record.space, record.name,
				    true))
			return -REEF_ECORRUPT;
		rc = apply_decoded(state, in, &record);
		if (rc == 0)
			reef_names_find(&state->names, record.space,
					record.name)
				->generation = generation;
	}
	return rc;
}

static int get_head(struct reef_cursor_in *in, struct reef_state *state,
		    struct head *head)
{
	uint64_t count, i;

	if (reef_cursor_get(in, 4) != MAGIC)
		return -REEF_ECORRUPT;
	head->version = (uint32_t)reef_cursor_get(in, 4);
	if (head->version < VERSION_1 || head->version > VERSION)
		return in->failed ? -REEF_ECORRUPT : -REEF_EVERSION;
	state->pool = reef_cursor_get(in, 8);
	head->pool_epoch = reef_cursor_get(in, 8);
	head->broker_epoch = reef_cursor_get(in, 8);
	state->reclaim = reef_cursor_get(in, 8);
	head->next_user = (uint32_t)reef_cursor_get(in, 4);
	head->next_node = (uint32_t)reef_cursor_get(in, 4);
	head->next_space = (uint32_t)reef_cursor_get(in, 4);
	head->next_extent = (uint32_t)reef_cursor_get(in, 4);
	head->next_slot = (uint32_t)reef_cursor_get(in, 4);
	head->generation = reef_cursor_get(in, 8);
	if (head->version > VERSION_3)
		state->owner_era = (uint32_t)reef_cursor_get(in, 4);
	if (head->version > VERSION_4) {
		state->base_epoch = reef_cursor_get(in, 8);
		state->base = reef_cursor_get(in, 8);
	}
	if (head->version > VERSION_5)
		head->next_copy = reef_cursor_get(in, 8);
	count = reef_cursor_get(in, 4);
	if (in->failed || head->next_slot > UINT16_MAX)
		return -REEF_ECORRUPT;
	/* More settings than we know: a newer broker wrote it. Fewer: an older
	 * one did, and those that it did not know have their defaults. */
	if (count > REEF_SETTING_COUNT)
		return -REEF_EVERSION;
	for (i = 0; i < count; i++) {
		state->settings[i] = reef_cursor_get(in, 8);
		if (!reef_setting_allows((uint32_t)i, state->settings[i]))
			return -REEF_ECORRUPT;
	}
	return 0;
}

static int get_all(struct reef_cursor_in *in, struct reef_state *state)
{
	struct head head = {0};
	int rc;

	rc = get_head(in, state, &head);
	if (rc == 0)
		rc = get_users(in, state, &head);
	if (rc == 0)
		rc = get_nodes(in, state, &head);
	if (rc == 0)
		rc = get_sessions(in, state, head.version);
	if (rc == 0)
		rc = get_spaces(in, state, &head);
	if (rc == 0)
		rc = get_extents(in, state, &head);
	if (rc == 0)
		rc = get_uses(in, state, head.version);
	if (rc == 0)
		rc = get_names(in, state, head.generation);
	if (rc)
		return rc;
	/* A state without a pool has nothing else either. */
	if (!state->pool && (state->session_count > 0 || head.pool_epoch ||
			     head.broker_epoch || head.generation ||
			     state->reclaim || state->owner_era || state->base))
		return -REEF_ECORRUPT;
	if (state->base_epoch > head.broker_epoch)
		return -REEF_ECORRUPT;
	if (in->failed || in->left > 0 || head.next_user < state->next_user ||
	    head.next_node < state->next_node ||
	    head.next_space < state->next_space ||
	    head.next_extent < state->next_extent ||
	    (head.version > VERSION_5 && head.next_copy == 0))
		return -REEF_ECORRUPT;
	state->next_user = head.next_user;
	state->next_node = head.next_node;
	state->next_space = head.next_space;
	state->next_extent = head.next_extent;
	if (head.version > VERSION_5)
		state->next_copy = head.next_copy;
	state->next_slot = head.next_slot;
	state->generation = head.generation;
	state->pool_epoch = head.pool_epoch;
	state->broker_epoch = head.broker_epoch;
	return 0;
}

int reef_state_decode(const void *bytes, size_t size, struct reef_state **out)
{
	struct reef_cursor_in in = {.bytes = bytes, .left = size};
	struct reef_state *state;
	int rc;

	rc = reef_state_create(&state);
	if (rc)
		return rc;
	state->replaying = true;
	rc = get_all(&in, state);
	state->replaying = false;
	if (rc) {
		reef_state_destroy(state);
		return rc;
	}
	*out = state;
	return 0;
}
