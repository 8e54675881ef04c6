/* memory.c - spaces, and the extents that join them to nodes.
 *
 * What is counted: an extent counts for its space until it is FORGOTTEN, for
 * its node while it is LIVE or MOVING, and for the target of its move as well.
 */
#include "pool/broker/state/internal.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void reef_state_count_on_node(struct reef_state *state, uint32_t id,
			      uint64_t size)
{
	struct reef_state_node *node = reef_state_node_of(state, id);

	node->used += size;
	node->extents++;
}

void reef_state_uncount_on_node(struct reef_state *state, uint32_t id,
				uint64_t size)
{
	struct reef_state_node *node = reef_state_node_of(state, id);

	reef_assert(node->used >= size && node->extents > 0);
	node->used -= size;
	node->extents--;
}

void reef_state_uncount_in_space(struct reef_state *state,
				 const struct reef_state_extent *extent)
{
	struct reef_state_space *space =
		reef_state_space_of(state, extent->space);

	if (extent->state == REEF_EXTENT_FORGOTTEN)
		return;
	reef_assert(space->used >= extent->size && space->extents > 0);
	space->used -= extent->size;
	space->extents--;
	reef_state_uncount(state, space->user, REEF_LIMIT_EXTENTS, 1);
	reef_state_uncount(state, space->user, REEF_LIMIT_BYTES, extent->size);
}

void reef_state_count_in_space(struct reef_state *state,
			       struct reef_state_space *space, uint64_t size)
{
	space->used += size;
	space->extents++;
	reef_state_count(state, space->user, REEF_LIMIT_EXTENTS, 1);
	reef_state_count(state, space->user, REEF_LIMIT_BYTES, size);
}

int reef_state_check_placement(const struct reef_state *state, uint32_t id,
			       uint64_t size)
{
	const struct reef_state_node *node = reef_state_node_of(state, id);

	if (!node)
		return -ENOENT;
	if (node->state != REEF_NODE_OK)
		return -EBUSY;
	return size <= node->capacity - node->used ? 0 : -ENOSPC;
}

void reef_state_release_extent(struct reef_state *state,
			       struct reef_state_extent *extent)
{
	if (extent->node)
		reef_state_uncount_on_node(state, extent->node, extent->size);
	if (extent->target)
		reef_state_uncount_on_node(state, extent->target, extent->size);
	extent->node = extent->target = 0;
}

void reef_state_lose_extent(struct reef_state *state,
			    struct reef_state_extent *extent)
{
	reef_state_release_extent(state, extent);
	extent->state = REEF_EXTENT_LOST;
	reef_assert(extent->epoch < UINT32_MAX);
	extent->epoch++;
}

/* --- spaces --- */

static int check_space_owner(const struct reef_state *state,
			     const struct reef_record *record)
{
	const struct reef_state_session *session =
		reef_state_session(state, record->session);

	if (record->user && !reef_state_user_of(state, record->user))
		return -ENOENT;
	if (record->kind == REEF_SPACE_SHARED)
		return record->session ? -EINVAL : 0;
	if (!session)
		return -ENOENT;
	return session->state == REEF_SESSION_ALIVE ? 0 : -EBUSY;
}

static int check_space_name(struct reef_state *state,
			    const struct reef_record *record)
{
	int rc;

	/* Only a scratch space, which ends with its session, needs no name. */
	if (record->name.size == 0 && record->kind == REEF_SPACE_SCRATCH)
		return 0;
	rc = reef_state_check_text(state, record->name,
				   REEF_SETTING_NAME_SIZE_MAX);
	if (rc)
		return rc;
	if (reef_state_find_space(state, record->name))
		return -EEXIST;
	return reef_names_reserve(&state->space_names, record->name.size);
}

int reef_state_check_space_add(struct reef_state *state,
			       const struct reef_record *record)
{
	int rc;

	if (record->id != state->next_space)
		return -ESTALE;
	if (record->id == UINT32_MAX)
		return -ENOSPC;
	if (record->kind < REEF_SPACE_SHARED ||
	    record->kind > REEF_SPACE_SCRATCH ||
	    record->keeping < REEF_KEEPING_KEPT ||
	    record->keeping > REEF_KEEPING_REVOCABLE || record->size == 0)
		return -EINVAL;
	rc = check_space_owner(state, record);
	if (rc == 0)
		rc = reef_state_check_user(state, record->user,
					   REEF_LIMIT_SPACES, 1);
	if (rc == 0)
		rc = reef_state_check_share(state, state->space_count,
					    REEF_SETTING_SPACES_MAX,
					    record->user);
	if (rc == 0)
		rc = check_space_name(state, record);
	if (rc == 0)
		rc = reef_state_room((void **)&state->spaces,
				     &state->space_room, state->space_count + 1,
				     sizeof(*state->spaces));
	return rc;
}

void reef_state_apply_space_add(struct reef_state *state,
				const struct reef_record *record)
{
	const char *name = "";

	if (record->name.size)
		name = reef_names_insert(&state->space_names, 0, record->name,
					 record->id, 0)
			       ->text;
	state->spaces[state->space_count++] = (struct reef_state_space){
		.id = record->id,
		.kind = record->kind,
		.keeping = record->keeping,
		.copies = 1,
		.user = record->user,
		.session = record->session,
		.quota = record->size,
		.name = name,
	};
	state->next_space++;
	reef_state_count(state, record->user, REEF_LIMIT_SPACES, 1);
}

static int check_space_rename(struct reef_state *state,
			      const struct reef_record *record)
{
	struct reef_state_space *space = reef_state_space_of(state, record->id);

	if (!space)
		return -ENOENT;
	if (space->kind != REEF_SPACE_SCRATCH)
		return -EBUSY;
	return record->name.size ? check_space_name(state, record) : -EINVAL;
}

static void apply_space_rename(struct reef_state *state,
			       const struct reef_record *record)
{
	struct reef_state_space *space = reef_state_space_of(state, record->id);

	space->name = reef_names_insert(&state->space_names, 0, record->name,
					record->id, 0)
			      ->text;
	space->kind = REEF_SPACE_SHARED;
	space->session = 0;
}

static int check_space_quota(struct reef_state *state,
			     const struct reef_record *record)
{
	struct reef_state_space *space = reef_state_space_of(state, record->id);

	if (!space)
		return -ENOENT;
	if (record->size == 0)
		return -EINVAL;
	return record->size >= space->used ? 0 : -EDQUOT;
}

static void apply_space_quota(struct reef_state *state,
			      const struct reef_record *record)
{
	reef_state_space_of(state, record->id)->quota = record->size;
}

static int check_space_era(struct reef_state *state,
			   const struct reef_record *record)
{
	struct reef_state_space *space = reef_state_space_of(state, record->id);

	if (!space)
		return -ENOENT;
	if (space->era == UINT32_MAX)
		return -ENOSPC;
	return record->era == space->era + 1 ? 0 : -ESTALE;
}

static void apply_space_era(struct reef_state *state,
			    const struct reef_record *record)
{
	reef_state_space_of(state, record->id)->era = record->era;
}

static int check_space_forget(struct reef_state *state,
			      const struct reef_record *record)
{
	return reef_state_space_of(state, record->id) ? 0 : -ENOENT;
}

static void apply_space_forget(struct reef_state *state,
			       const struct reef_record *record)
{
	struct reef_state_space *space = reef_state_space_of(state, record->id);
	struct reef_state_extent *extent;
	uint32_t i;

	for (i = 0; i < space->ordinals; i++) {
		extent = reef_state_extent_of(state, space->by_ordinal[i]);
		if (!extent || extent->state != REEF_EXTENT_LOST)
			continue;
		reef_state_uncount_in_space(state, extent);
		extent->state = REEF_EXTENT_FORGOTTEN;
	}
}

void reef_state_drop_space(struct reef_state *state,
			   struct reef_state_space *space)
{
	struct reef_text name = reef_text_of(space->name);
	struct reef_name *bound;
	size_t from, to = 0;

	reef_state_uncount(state, space->user, REEF_LIMIT_SPACES, 1);
	reef_state_uncount(state, space->user, REEF_LIMIT_NAMES, space->names);
	reef_state_uncount(state, space->user, REEF_LIMIT_EXTENTS,
			   space->extents);
	reef_state_uncount(state, space->user, REEF_LIMIT_BYTES, space->used);
	for (from = 0; from < state->extent_count; from++) {
		if (state->extents[from].space == space->id) {
			reef_state_release_extent(state, &state->extents[from]);
			state->twin_count -= state->extents[from].is_twin;
		} else {
			state->extents[to++] = state->extents[from];
		}
	}
	state->extent_count = to;
	for (from = 0, to = 0; from < state->use_count; from++)
		if (state->uses[from].space != space->id)
			state->uses[to++] = state->uses[from];
	state->use_count = to;
	while (space->names-- > 0) {
		bound = reef_names_next(&state->names, space->id,
					reef_text_of(""), true);
		reef_assert(bound && bound->space == space->id);
		reef_names_remove(&state->names, bound);
	}
	if (name.size)
		reef_names_remove(
			&state->space_names,
			reef_names_find(&state->space_names, 0, name));
	free(space->by_ordinal);
	reef_state_take_out(state->spaces, &state->space_count,
			    (size_t)(space - state->spaces), sizeof(*space));
}

static int check_space_remove(struct reef_state *state,
			      const struct reef_record *record)
{
	return reef_state_space_of(state, record->id) ? 0 : -ENOENT;
}

static void apply_space_remove(struct reef_state *state,
			       const struct reef_record *record)
{
	reef_state_drop_space(state, reef_state_space_of(state, record->id));
}

/* How many ordinals the extent has that begins at this one; 0: none begins
 * there. */
static uint32_t ordinals_at(const struct reef_state *state,
			    const struct reef_state_space *space,
			    uint32_t ordinal)
{
	uint32_t number = space->by_ordinal[ordinal];

	return number ? reef_extent_ordinals(
				reef_state_extent(state, number)->size)
		      : 0;
}

/* The first of `need` ordinals in a row that are free, from one on at which an
 * extent begins or may; REEF_ORDINALS_MAX: there are none. */
static uint32_t find_gap(const struct reef_state *state,
			 const struct reef_state_space *space, uint32_t from,
			 uint32_t need)
{
	uint32_t begin = from, i = from, taken;

	while (i < space->ordinals && i - begin < need) {
		taken = ordinals_at(state, space, i);
		i += taken ? taken : 1;
		if (taken)
			begin = i;
	}
	return i - begin < need ? REEF_ORDINALS_MAX : begin;
}

/* The end of the ordinals of the extent that was added last. */
static uint32_t youngest_end(const struct reef_state *state,
			     const struct reef_state_space *space)
{
	uint32_t youngest = 0, end = 0;

	for (uint32_t i = 0; i < space->ordinals; i++)
		if (space->by_ordinal[i] > youngest) {
			youngest = space->by_ordinal[i];
			end = i + ordinals_at(state, space, i);
		}
	return end;
}

int reef_state_pick_ordinal(const struct reef_state *state, uint32_t id,
			    uint64_t size, uint32_t *ordinal)
{
	const struct reef_state_space *space = reef_state_space_of(state, id);
	uint32_t need = reef_extent_ordinals(size), gap;

	if (!space)
		return -ENOENT;
	if (space->ordinals + need <= REEF_ORDINALS_MAX) {
		*ordinal = space->ordinals;
		return 0;
	}
	gap = find_gap(state, space, youngest_end(state, space), need);
	if (gap == REEF_ORDINALS_MAX)
		gap = find_gap(state, space, 0, need);
	if (gap == REEF_ORDINALS_MAX)
		return -ENOSPC;
	*ordinal = gap;
	return 0;
}

/* --- extents --- */

static int reserve_ordinal(struct reef_state_space *space, uint32_t ordinal)
{
	size_t room;
	int rc;

	/* reef_state_check_new has found it. */
	reef_assert(space);
	room = space->ordinals_room;
	rc = reef_state_room((void **)&space->by_ordinal, &room,
			     (size_t)ordinal + 1, sizeof(*space->by_ordinal));
	space->ordinals_room = (uint32_t)room;
	return rc;
}

int reef_state_check_room(const struct reef_state *state,
			  const struct reef_state_space *space, uint64_t size)
{
	int rc = size > space->quota - space->used ? -EDQUOT : 0;

	if (rc == 0)
		rc = reef_state_check_user(state, space->user,
					   REEF_LIMIT_EXTENTS, 1);
	return rc ? rc
		  : reef_state_check_user(state, space->user, REEF_LIMIT_BYTES,
					  size);
}

/* True if all ordinals that an extent would have are free. */
static bool are_ordinals_free(const struct reef_state *state,
			      const struct reef_state_space *space,
			      uint32_t ordinal, uint64_t size)
{
	uint32_t end = ordinal + reef_extent_ordinals(size), taken, i = 0;

	for (; i < space->ordinals && i < end; i += taken ? taken : 1) {
		taken = ordinals_at(state, space, i);
		if (taken && i + taken > ordinal)
			return false;
	}
	return true;
}

int reef_state_check_new(struct reef_state *state,
			 const struct reef_record *record)
{
	const struct reef_state_space *space =
		reef_state_space_of(state, record->space);
	int rc;

	if (record->id == UINT32_MAX)
		return -ENOSPC;
	if (record->size == 0 || record->size > REEF_EXTENT_SIZE_MAX ||
	    record->size % REEF_EXTENT_ALIGN)
		return -EINVAL;
	if (!space)
		return -ENOENT;
	rc = reef_state_check_room(state, space, record->size);
	if (rc == 0)
		rc = reef_state_check_placement(state, record->node,
						record->size);
	if (rc == 0)
		rc = reef_state_check_share(state, state->extent_count,
					    REEF_SETTING_EXTENTS_MAX,
					    space->user);
	if (rc == 0)
		rc = reef_state_room(
			(void **)&state->extents, &state->extent_room,
			state->extent_count + 1, sizeof(*state->extents));
	return rc;
}

/* What a new extent and one that is restored have to keep. */
static int check_new_extent(struct reef_state *state,
			    const struct reef_record *record)
{
	struct reef_state_space *space =
		reef_state_space_of(state, record->space);
	int rc;

	if (space && (record->ordinal >= REEF_ORDINALS_MAX ||
		      record->ordinal + reef_extent_ordinals(record->size) >
			      REEF_ORDINALS_MAX))
		return -EINVAL;
	if (space && record->ordinal < space->ordinals &&
	    space->by_ordinal[record->ordinal])
		return -EEXIST;
	rc = reef_state_check_new(state, record);
	if (rc == 0)
		rc = reserve_ordinal(
			space, record->ordinal +
				       reef_extent_ordinals(record->size) - 1);
	return rc;
}

static int check_extent_add(struct reef_state *state,
			    const struct reef_record *record)
{
	const struct reef_state_space *space =
		reef_state_space_of(state, record->space);

	if (record->id != state->next_extent)
		return -ESTALE;
	/* Ordinals leave no gaps, so that the table is no larger than its use.
	 */
	if (space && record->ordinal > space->ordinals)
		return -EINVAL;
	return check_new_extent(state, record);
}

/* An extent of an image has its ordinal, and leaves the gaps that were there.
 */
static int check_extent_restore(struct reef_state *state,
				const struct reef_record *record)
{
	const struct reef_state_space *space =
		reef_state_space_of(state, record->space);
	int rc;

	if (record->id == 0 || record->era == 0 || record->era == UINT32_MAX)
		return -EINVAL;
	if (reef_state_extent_of(state, record->id))
		return -EEXIST;
	rc = check_new_extent(state, record);
	if (rc)
		return rc;
	return are_ordinals_free(state, space, record->ordinal, record->size)
		       ? 0
		       : -EEXIST;
}

void reef_state_insert_extent(struct reef_state *state,
			      const struct reef_state_extent *extent)
{
	struct reef_state_extent *at = state->extents + state->extent_count;

	while (at > state->extents && at[-1].number > extent->number) {
		*at = at[-1];
		at--;
	}
	*at = *extent;
	state->extent_count++;
	if (state->next_extent <= extent->number)
		state->next_extent = extent->number + 1;
	reef_state_count_in_space(
		state, reef_state_space_of(state, extent->space), extent->size);
	reef_state_count_on_node(state, extent->node, extent->size);
}

static void apply_extent_restore(struct reef_state *state,
				 const struct reef_record *record)
{
	struct reef_state_space *space =
		reef_state_space_of(state, record->space);
	const struct reef_state_extent extent = {
		.number = record->id,
		.space = record->space,
		.ordinal = record->ordinal,
		.node = record->node,
		.epoch = record->era,
		.state = REEF_EXTENT_LIVE,
		.made = record->type == REEF_RECORD_EXTENT_ADD,
		.size = record->size,
		.copy = state->next_copy++,
		.label = record->id,
	};

	reef_state_insert_extent(state, &extent);
	/* Only the first of an extent's ordinals names the extent. */
	while (space->ordinals <
	       record->ordinal + reef_extent_ordinals(record->size))
		space->by_ordinal[space->ordinals++] = 0;
	space->by_ordinal[record->ordinal] = record->id;
}

static int check_extent_place(struct reef_state *state,
			      const struct reef_record *record)
{
	return record->value == state->next_copy
		       ? check_extent_add(state, record)
		       : -ESTALE;
}

static void apply_extent_add(struct reef_state *state,
			     const struct reef_record *record)
{
	struct reef_record first = *record;

	first.era = 1;
	apply_extent_restore(state, &first);
}

/* Check that there is such an extent, in that state (0: in any). */
static int check_extent_state(const struct reef_state *state, uint32_t number,
			      uint8_t in)
{
	struct reef_state_extent *extent = reef_state_extent_of(state, number);

	if (!extent)
		return -ENOENT;
	return in == 0 || extent->state == in ? 0 : -EBUSY;
}

static int check_next_epoch(const struct reef_state *state,
			    const struct reef_record *record)
{
	uint32_t epoch = reef_state_extent_of(state, record->id)->epoch;

	return epoch < UINT32_MAX && record->era == epoch + 1 ? 0 : -ESTALE;
}

static int check_extent_made(struct reef_state *state,
			     const struct reef_record *record)
{
	int rc = check_extent_state(state, record->id, REEF_EXTENT_LIVE);

	if (rc)
		return rc;
	return reef_state_extent_of(state, record->id)->made ? -EEXIST : 0;
}

static void apply_extent_made(struct reef_state *state,
			      const struct reef_record *record)
{
	reef_state_extent_of(state, record->id)->made = true;
}

static int check_extent_move(struct reef_state *state,
			     const struct reef_record *record)
{
	int rc = check_extent_state(state, record->id, REEF_EXTENT_LIVE);
	struct reef_state_extent *extent;

	if (rc)
		return rc;
	extent = reef_state_extent_of(state, record->id);
	if (extent->node == record->node)
		return -EINVAL;
	if (!extent->made)
		return -EBUSY;
	if (!reef_state_may_lie_on(state, extent, record->node))
		return -EINVAL;
	/* The last epoch is kept for a loss, which nothing can refuse. */
	if (extent->epoch >= UINT32_MAX - 1)
		return -ENOSPC;
	return reef_state_check_placement(state, record->node, extent->size);
}

static void apply_extent_move(struct reef_state *state,
			      const struct reef_record *record)
{
	struct reef_state_extent *extent =
		reef_state_extent_of(state, record->id);

	extent->state = REEF_EXTENT_MOVING;
	extent->target = record->node;
	reef_state_count_on_node(state, record->node, extent->size);
}

static int check_extent_moved(struct reef_state *state,
			      const struct reef_record *record)
{
	int rc = check_extent_state(state, record->id, REEF_EXTENT_MOVING);

	return rc ? rc : check_next_epoch(state, record);
}

static void apply_extent_moved(struct reef_state *state,
			       const struct reef_record *record)
{
	struct reef_state_extent *extent =
		reef_state_extent_of(state, record->id);

	reef_state_uncount_on_node(state, extent->node, extent->size);
	extent->node = extent->target;
	extent->target = 0;
	extent->epoch = record->era;
	extent->state = REEF_EXTENT_LIVE;
}

static int check_extent_stay(struct reef_state *state,
			     const struct reef_record *record)
{
	return check_extent_state(state, record->id, REEF_EXTENT_MOVING);
}

static void apply_extent_stay(struct reef_state *state,
			      const struct reef_record *record)
{
	struct reef_state_extent *extent =
		reef_state_extent_of(state, record->id);

	reef_state_uncount_on_node(state, extent->target, extent->size);
	extent->target = 0;
	extent->state = REEF_EXTENT_LIVE;
}

static int check_extent_lost(struct reef_state *state,
			     const struct reef_record *record)
{
	const struct reef_state_extent *extent =
		reef_state_extent_of(state, record->id);
	int rc = check_extent_state(state, record->id, 0);

	/* A twin that nobody names has nothing to lose: it is removed. */
	if (rc == 0 && (reef_extent_is_lost(extent->state) ||
			(extent->is_twin && !extent->twin)))
		rc = -EBUSY;
	return rc ? rc : check_next_epoch(state, record);
}

static void apply_extent_lost(struct reef_state *state,
			      const struct reef_record *record)
{
	reef_state_fail_copy(state, reef_state_extent_of(state, record->id));
	reef_state_sweep_removed(state);
}

static int check_extent_remove(struct reef_state *state,
			       const struct reef_record *record)
{
	const struct reef_state_extent *extent =
		reef_state_extent_of(state, record->id);

	if (!extent)
		return -ENOENT;
	return extent->is_twin && extent->twin ? -EBUSY : 0;
}

/* An extent goes with its twin. */
static void apply_extent_remove(struct reef_state *state,
				const struct reef_record *record)
{
	struct reef_state_extent *extent =
		reef_state_extent_of(state, record->id);
	struct reef_state_extent *twin =
		reef_state_extent_of(state, extent->twin);

	if (!extent->is_twin)
		reef_state_space_of(state, extent->space)
			->by_ordinal[extent->ordinal] = 0;
	for (; extent; extent = twin, twin = NULL) {
		reef_state_release_extent(state, extent);
		reef_state_uncount_in_space(state, extent);
		extent->state = REEF_EXTENT_REMOVED;
	}
	reef_state_sweep_removed(state);
}

const struct reef_rule reef_rules_memory[REEF_RECORD_TYPES] = {
	[REEF_RECORD_SPACE_ADD] = {reef_state_check_space_add,
				   reef_state_apply_space_add},
	[REEF_RECORD_SPACE_QUOTA] = {check_space_quota, apply_space_quota},
	[REEF_RECORD_SPACE_ERA] = {check_space_era, apply_space_era},
	[REEF_RECORD_SPACE_REMOVE] = {check_space_remove, apply_space_remove},
	[REEF_RECORD_SPACE_FORGET] = {check_space_forget, apply_space_forget},
	[REEF_RECORD_SPACE_NAME] = {check_space_rename, apply_space_rename},
	[REEF_RECORD_EXTENT_ADD] = {check_extent_add, apply_extent_add},
	[REEF_RECORD_EXTENT_PLACE] = {check_extent_place, apply_extent_add},
	[REEF_RECORD_EXTENT_MADE] = {check_extent_made, apply_extent_made},
	[REEF_RECORD_EXTENT_RESTORE] = {check_extent_restore,
					apply_extent_restore},
	[REEF_RECORD_EXTENT_MOVE] = {check_extent_move, apply_extent_move},
	[REEF_RECORD_EXTENT_MOVED] = {check_extent_moved, apply_extent_moved},
	[REEF_RECORD_EXTENT_STAY] = {check_extent_stay, apply_extent_stay},
	[REEF_RECORD_EXTENT_LOST] = {check_extent_lost, apply_extent_lost},
	[REEF_RECORD_EXTENT_REMOVE] = {check_extent_remove,
				       apply_extent_remove},
};
