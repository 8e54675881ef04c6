/* copies.c - extents that have two copies.
 *
 *   primary   LIVE --EXTENT_PAIR--> LIVE, with a twin
 *             LIVE, MOVING, with a twin --a copy is given up--> FAILING
 *             FAILING --EXTENT_OPEN--> LIVE
 *   twin      (none) --EXTENT_TWIN--> LIVE, named by nobody
 *             --EXTENT_PAIR--> LIVE, named
 *             any --a copy is given up--> (removed)
 *
 * Whichever copy is given up, it is the primary that stays, because addresses
 * have its number: with its own memory, or with its twin's.
 *
 * A primary that is not made was never told of: if it loses its twin, nobody
 * has to know. */
#include "pool/broker/state/internal.h"

#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <reef/error.h>
#include <stdlib.h>

/* --- spaces --- */

static int check_space_make(struct reef_state *state,
			    const struct reef_record *record)
{
	if (record->value < 1 || record->value > REEF_COPIES_MAX ||
	    record->state > 1 ||
	    (record->value > 1 && record->keeping == REEF_KEEPING_REVOCABLE))
		return -EINVAL;
	return reef_state_check_space_add(state, record);
}

static void apply_space_make(struct reef_state *state,
			     const struct reef_record *record)
{
	struct reef_state_space *space;

	reef_state_apply_space_add(state, record);
	space = reef_state_space_of(state, record->id);
	space->copies = (uint8_t)record->value;
	space->strict = record->state == 1;
}

/* --- labels --- */

static int compare_labels(const void *a, const void *b)
{
	uint32_t x = ((const struct reef_state_label *)a)->label;
	uint32_t y = ((const struct reef_state_label *)b)->label;

	return (x > y) - (x < y);
}

static void sort_labels(struct reef_state *state)
{
	if (state->label_count > 1)
		qsort(state->labels, state->label_count, sizeof(*state->labels),
		      compare_labels);
}

/* The extent that an entry names, if it counts; else NULL. */
static const struct reef_state_extent *labelled_by(
	const struct reef_state *state, const struct reef_state_label *entry)
{
	const struct reef_state_extent *extent =
		reef_state_extent_of(state, entry->number);

	return extent && extent->label == entry->label ? extent : NULL;
}

/* Room for a label of each twin, and of one more; what does not count goes
 * first. */
static int reserve_labels(struct reef_state *state)
{
	size_t from, to = 0, more = state->twin_count + 1;

	if (state->label_count + more <= state->label_room)
		return 0;
	for (from = 0; from < state->label_count; from++)
		if (labelled_by(state, &state->labels[from]))
			state->labels[to++] = state->labels[from];
	state->label_count = to;
	return reef_state_room((void **)&state->labels, &state->label_room,
			       to + more, sizeof(*state->labels));
}

const struct reef_state_extent *
reef_state_labelled(const struct reef_state *state, uint32_t label)
{
	const struct reef_state_label key = {.label = label};
	const struct reef_state_label *entry = NULL;
	const struct reef_state_extent *extent =
		reef_state_extent_of(state, label);

	/* Most extents have their own number for a label. */
	if (extent && extent->label == label)
		return extent;
	if (state->label_count)
		entry = bsearch(&key, state->labels, state->label_count,
				sizeof(key), compare_labels);
	return entry ? labelled_by(state, entry) : NULL;
}

/* --- pairs --- */

static int check_extent_twin(struct reef_state *state,
			     const struct reef_record *record)
{
	const struct reef_state_space *space =
		reef_state_space_of(state, record->space);
	int rc;

	if (record->id != state->next_extent ||
	    record->value != state->next_copy)
		return -ESTALE;
	if (space && space->copies < 2)
		return -EINVAL;
	rc = reef_state_check_new(state, record);
	return rc ? rc : reserve_labels(state);
}

static void apply_extent_twin(struct reef_state *state,
			      const struct reef_record *record)
{
	const struct reef_state_extent extent = {
		.number = record->id,
		.space = record->space,
		.ordinal = REEF_ORDINALS_MAX,
		.node = record->node,
		.epoch = 1,
		.state = REEF_EXTENT_LIVE,
		.size = record->size,
		.copy = state->next_copy++,
		.label = record->id,
		.is_twin = true,
	};

	reef_state_insert_extent(state, &extent);
	state->twin_count++;
}

bool reef_state_may_lie_on(const struct reef_state *state,
			   const struct reef_state_extent *extent,
			   uint32_t node)
{
	const struct reef_state_extent *other =
		reef_state_extent_of(state, extent->twin);

	return !other || (other->node != node && other->target != node);
}

static bool is_on_node_that_is_gone(const struct reef_state *state,
				    const struct reef_state_extent *extent)
{
	return reef_node_is_gone(
		reef_state_node_of(state, extent->node)->state);
}

static int check_extent_pair(struct reef_state *state,
			     const struct reef_record *record)
{
	const struct reef_state_extent *extent =
		reef_state_extent_of(state, record->id);
	const struct reef_state_extent *twin;

	if (!extent || record->value > UINT32_MAX)
		return -ENOENT;
	twin = reef_state_extent_of(state, (uint32_t)record->value);
	if (!twin)
		return -ENOENT;
	if (extent->is_twin || !twin->is_twin || extent->space != twin->space ||
	    extent->size != twin->size)
		return -EINVAL;
	if (extent->twin || twin->twin || !twin->made ||
	    extent->state != REEF_EXTENT_LIVE ||
	    twin->state != REEF_EXTENT_LIVE || extent->node == twin->node ||
	    is_on_node_that_is_gone(state, extent) ||
	    is_on_node_that_is_gone(state, twin))
		return -EBUSY;
	if (extent->epoch >= UINT32_MAX - 2)
		return -ENOSPC;
	return record->era == extent->epoch + extent->made ? 0 : -ESTALE;
}

static void apply_extent_pair(struct reef_state *state,
			      const struct reef_record *record)
{
	struct reef_state_extent *extent =
		reef_state_extent_of(state, record->id);

	extent->twin = (uint32_t)record->value;
	extent->epoch = record->era;
	reef_state_extent_of(state, extent->twin)->twin = record->id;
}

/* --- failover --- */

static void call_off_move(struct reef_state *state,
			  struct reef_state_extent *extent)
{
	if (extent->target)
		reef_state_uncount_on_node(state, extent->target, extent->size);
	extent->target = 0;
}

/* The primary goes on with the memory of its twin. */
static void take_over(struct reef_state *state,
		      struct reef_state_extent *primary,
		      struct reef_state_extent *twin)
{
	reef_state_release_extent(state, primary);
	primary->node = twin->node;
	primary->copy = twin->copy;
	primary->label = twin->label;
	primary->made = true;
	reef_assert(state->label_count < state->label_room);
	state->labels[state->label_count++] =
		(struct reef_state_label){primary->label, primary->number};
	twin->node = 0; /* it counts for the primary now */
}

static void fail_pair(struct reef_state *state,
		      struct reef_state_extent *primary,
		      struct reef_state_extent *twin, bool is_primary_gone)
{
	bool was_made = primary->made;
	uint32_t epoch = primary->epoch;

	call_off_move(state, twin);
	if (is_primary_gone && twin->epoch > epoch)
		epoch = twin->epoch;
	if (is_primary_gone)
		take_over(state, primary, twin);
	else
		call_off_move(state, primary);
	reef_state_release_extent(state, twin);
	reef_state_uncount_in_space(state, twin);
	twin->state = REEF_EXTENT_REMOVED;
	primary->twin = 0;
	primary->state = REEF_EXTENT_LIVE;
	if (!is_primary_gone && !was_made)
		return;
	if (!REEF_MUTATED(BROKER_FORGET_FAILING))
		primary->state = REEF_EXTENT_FAILING;
	/* The last epoch is kept for a loss. */
	primary->epoch = epoch < UINT32_MAX - 1 ? epoch + 1 : epoch;
}

void reef_state_fail_copy(struct reef_state *state,
			  struct reef_state_extent *extent)
{
	struct reef_state_extent *other =
		reef_state_extent_of(state, extent->twin);

	if (extent->state == REEF_EXTENT_REMOVED)
		return;
	if (other && extent->is_twin) {
		fail_pair(state, other, extent, false);
	} else if (other) {
		fail_pair(state, extent, other, true);
	} else if (extent->is_twin) {
		reef_state_release_extent(state, extent);
		reef_state_uncount_in_space(state, extent);
		extent->state = REEF_EXTENT_REMOVED;
	} else {
		reef_state_lose_extent(state, extent);
	}
}

void reef_state_sweep_removed(struct reef_state *state)
{
	size_t from, to = 0;

	for (from = 0; from < state->extent_count; from++) {
		if (state->extents[from].state != REEF_EXTENT_REMOVED)
			state->extents[to++] = state->extents[from];
		else
			state->twin_count -= state->extents[from].is_twin;
	}
	state->extent_count = to;
	sort_labels(state);
}

static int check_extent_open(struct reef_state *state,
			     const struct reef_record *record)
{
	const struct reef_state_extent *extent =
		reef_state_extent_of(state, record->id);

	if (!extent)
		return -ENOENT;
	return extent->state == REEF_EXTENT_FAILING ? 0 : -EBUSY;
}

static void apply_extent_open(struct reef_state *state,
			      const struct reef_record *record)
{
	reef_state_extent_of(state, record->id)->state = REEF_EXTENT_LIVE;
}

/* --- what was decoded --- */

static bool is_pair_valid(const struct reef_state *state,
			  const struct reef_state_extent *extent)
{
	const struct reef_state_extent *other =
		reef_state_extent_of(state, extent->twin);
	bool is_used = extent->state == REEF_EXTENT_LIVE ||
		       extent->state == REEF_EXTENT_MOVING;

	if (!extent->twin)
		return true;
	return other && other->twin == extent->number &&
	       other->is_twin != extent->is_twin &&
	       other->space == extent->space && other->size == extent->size &&
	       is_used && (!extent->is_twin || extent->made) &&
	       reef_state_may_lie_on(state, extent, extent->node) &&
	       (!extent->target ||
		reef_state_may_lie_on(state, extent, extent->target)) &&
	       !is_on_node_that_is_gone(state, extent);
}

/* True if no other extent has that one's label. */
static bool is_label_valid(const struct reef_state *state, size_t index)
{
	const struct reef_state_label *entry = &state->labels[index];
	const struct reef_state_extent *other =
		reef_state_extent_of(state, entry->label);

	return !(other && other->label == entry->label) &&
	       (index == 0 || entry[-1].label != entry->label);
}

int reef_state_check_copies(struct reef_state *state)
{
	const struct reef_state_extent *extent = state->extents;
	size_t i;
	int rc;

	for (i = 0; i < state->extent_count; i++, extent++) {
		if (!is_pair_valid(state, extent))
			return -REEF_ECORRUPT;
		state->twin_count += extent->is_twin;
		if (extent->label == extent->number)
			continue;
		rc = reserve_labels(state);
		if (rc)
			return rc;
		state->labels[state->label_count++] = (struct reef_state_label){
			extent->label, extent->number};
	}
	sort_labels(state);
	for (i = 0; i < state->label_count; i++)
		if (!is_label_valid(state, i))
			return -REEF_ECORRUPT;
	return reserve_labels(state);
}

const struct reef_rule reef_rules_copies[REEF_RECORD_TYPES] = {
	[REEF_RECORD_SPACE_MAKE] = {check_space_make, apply_space_make},
	[REEF_RECORD_EXTENT_TWIN] = {check_extent_twin, apply_extent_twin},
	[REEF_RECORD_EXTENT_PAIR] = {check_extent_pair, apply_extent_pair},
	[REEF_RECORD_EXTENT_OPEN] = {check_extent_open, apply_extent_open},
};
