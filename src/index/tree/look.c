/* look.c - a key in its node.
 *
 *   remembered: READ its interval --alive, record there, no mark--> found
 *      |  no record can be its   \--mark, or no record--+
 *      |                                                v
 *      +------------------------------> READ the slots: the id is there
 *      |                                   |--a slot is the key's: it tells
 *      |                                   \--none: the record tells
 *      v  alive or id is zero
 *   the node is READ anew, whole, with its head: block and slots tell, frozen
 *   or not
 *
 * Why one READ is enough, and torn ones do no harm: (4) of layout.h. */
#include "index/tree/internal.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

#define ATTEMPTS_MAX 100000u

void tree_spot_fini(struct tree_spot *spot)
{
	tree_node_unref(spot->node);
	spot->node = NULL;
	entry_room_free(&spot->room);
	entry_room_free(&spot->bytes);
	while (spot->missing) {
		struct tree_separator *next = spot->missing->next;

		free(spot->missing);
		spot->missing = next;
	}
}

/* --- entries --- */

static uint32_t hint_of(uint64_t slot)
{
	return tree_slot_is_dead(slot) ? TREE_DEAD_HINT : tree_slot_hint(slot);
}

/* Complete an entry of which `got` bytes are in the room; as tree_entry_read.
 */
static int complete_entry(struct tree *tree, uint64_t slot, uint32_t value_most,
			  struct entry_room *room, uint64_t at, uint32_t got)
{
	const struct entry_head *head = room->bytes;
	size_t size = ENTRY_HEAD + (size_t)entry_key_size(head);
	int rc;

	/* Of a dead one only the key is wanted; it was whole when it was put,
	 * and is not another's before we leave. */
	if (tree_slot_is_dead(slot)) {
		if (!entry_is_ours(&tree->home, head))
			return 0;
		rc = entry_room_need(room, size);
		if (!rc && size > got)
			rc = reef_read(tree->reef, at + got,
				       (char *)room->bytes + got, size - got);
		return rc ? rc : 1;
	}
	if (size > got)
		value_most = UINT32_MAX;
	return entry_complete(&tree->home, room, entry_key_size(head),
			      value_most, at, got);
}

int tree_entry_read(struct tree *tree, uint64_t slot, uint32_t value_most,
		    struct entry_room *room, uint64_t *at)
{
	int rc = reef_long_address(tree->space, tree_slot_block(slot), at);
	uint32_t size;

	if (rc)
		return rc;
	size = entry_read_size(tree->reef, hint_of(slot), *at);
	rc = entry_room_need(room, size);
	if (!rc)
		rc = reef_read(tree->reef, *at, room->bytes, size);
	return rc ? rc
		  : complete_entry(tree, slot, value_most, room, *at, size);
}

int tree_entry_end(struct tree *tree, uint64_t slot, uint32_t value_most,
		   struct entry_room *room, uint64_t *at)
{
	int rc = reef_long_address(tree->space, tree_slot_block(slot), at);

	return rc ? rc
		  : complete_entry(
			    tree, slot, value_most, room, *at,
			    entry_read_size(tree->reef, hint_of(slot), *at));
}

int tree_entries_begin(struct tree *tree, const uint64_t *slots,
		       struct tree_entries *entries,
		       struct reef_access *accesses, uint32_t *count)
{
	int rc = 0;

	for (uint32_t i = 0; i < TREE_SLOTS && !rc; i++) {
		entries->at[i] = 0;
		if (!tree_slot_has_entry(slots[i]))
			continue;
		rc = reef_long_address(tree->space, tree_slot_block(slots[i]),
				       &entries->at[i]);
		if (rc)
			break;
		entries->sizes[i] = entry_read_size(
			tree->reef, hint_of(slots[i]), entries->at[i]);
		rc = entry_room_need(&entries->rooms[i], entries->sizes[i]);
		accesses[(*count)++] = (struct reef_access){
			.kind = REEF_READ,
			.address = entries->at[i],
			.local = entries->rooms[i].bytes,
			.length = entries->sizes[i],
		};
	}
	return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
}

int tree_entries_end(struct tree *tree, const uint64_t *slots, uint32_t most,
		     struct tree_entries *entries)
{
	int rc = 0;

	for (uint32_t i = 0; i < TREE_SLOTS && !rc; i++) {
		if (!entries->at[i])
			continue;
		rc = complete_entry(tree, slots[i], most, &entries->rooms[i],
				    entries->at[i], entries->sizes[i]);
		rc = rc == 1 ? 0 : rc ? rc : -REEF_ECORRUPT;
	}
	return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
}

int tree_entries_read(struct tree *tree, const uint64_t *slots, uint32_t most,
		      struct tree_entries *entries)
{
	struct reef_access accesses[TREE_SLOTS];
	uint32_t count = 0;
	int rc = tree_entries_begin(tree, slots, entries, accesses, &count);

	if (!rc && count)
		rc = reef_execute(tree->reef, accesses, count);
	if (rc)
		return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
	return tree_entries_end(tree, slots, most, entries);
}

void tree_entries_free(struct tree_entries *entries)
{
	for (uint32_t i = 0; i < TREE_SLOTS; i++)
		entry_room_free(&entries->rooms[i]);
}

/* --- slots --- */

static uint32_t value_most(const struct tree_spot *spot)
{
	return spot->blind ? 0 : UINT32_MAX;
}

static void note_entry(struct tree_spot *spot, const struct entry_room *room)
{
	spot->entry = entry_view(room->bytes);
	if (spot->blind)
		spot->entry.value = NULL;
	spot->is_there = true;
}

/* Take the slot that alone has the key's print for the key's. False: there is
 * none, or it is not plain. */
static bool guess_slot(struct tree *tree, struct tree_spot *spot,
		       uint32_t print)
{
	int found = -1;

	for (int i = 0; i < (int)TREE_SLOTS; i++) {
		if (!tree_slot_is_used(spot->slots[i]) ||
		    tree_slot_print(spot->slots[i]) != print)
			continue;
		if (found >= 0 || spot->slots[i] & TREE_INTENT ||
		    !tree_slot_has_entry(spot->slots[i]) ||
		    (spot->record >= 0) != !!(spot->slots[i] & TREE_IN_BASE))
			return false;
		found = i;
	}
	if (found < 0 ||
	    reef_long_address(tree->space, tree_slot_block(spot->slots[found]),
			      &spot->entry_at))
		return false;
	spot->slot = found;
	return true;
}

/* Find the key's slot, and what it says. spot->record is known. */
static int look_in_slots(struct tree *tree, struct tree_spot *spot)
{
	uint32_t print = tree_print(spot->hash);
	int rc;

	spot->slot = -1;
	spot->entry_at = 0;
	spot->is_held = false;
	spot->is_guessed = spot->is_lazy && guess_slot(tree, spot, print);
	if (spot->is_guessed)
		return 0;
	for (int i = 0; i < (int)TREE_SLOTS; i++) {
		uint64_t slot = spot->slots[i], at;

		if (!tree_slot_is_used(slot) || tree_slot_print(slot) != print)
			continue;
		if (slot & TREE_INTENT) {
			rc = tree_look_held(tree, spot, i);
			if (rc)
				return rc == 1 ? 0 : rc;
			continue;
		}
		if (!tree_slot_has_entry(slot)) {
			if (spot->record != (int)tree_slot_block(slot))
				continue;
			spot->slot = i;
			spot->is_there &= !tree_slot_is_dead(slot);
			return 0;
		}
		rc = tree_entry_read(tree, slot, value_most(spot), &spot->room,
				     &at);
		if (rc <= 0)
			return rc && !index_is_nonsense(rc) ? rc
							    : -REEF_ECORRUPT;
		if (!entry_is_of(spot->room.bytes, spot->key, spot->key_size))
			continue;
		spot->slot = i;
		spot->entry_at = at;
		spot->is_there = false;
		if (!tree_slot_is_dead(slot))
			note_entry(spot, &spot->room);
		return 0;
	}
	return 0;
}

/* The record is the key's state: get its value from outside, if it is there. */
static int look_outside(struct tree *tree, struct tree_spot *spot)
{
	uint64_t at;
	int rc;

	if (!spot->outside)
		return 0;
	rc = tree_entry_read(tree, spot->outside, value_most(spot), &spot->room,
			     &at);
	if (rc <= 0)
		return rc && !index_is_nonsense(rc) ? rc : -REEF_ECORRUPT;
	if (!entry_is_of(spot->room.bytes, spot->key, spot->key_size))
		return -REEF_ECORRUPT;
	note_entry(spot, &spot->room);
	return 0;
}

/* --- by the node as it is now --- */

static void note_record(struct tree_spot *spot, const uint8_t *value,
			uint32_t value_size, uint64_t version, uint64_t stamp)
{
	spot->is_there = true;
	spot->entry = (struct entry){
		.key = spot->key,
		.key_size = spot->key_size,
		.value = value,
		.value_size = value_size,
		.version = version,
		.stamp = stamp,
	};
}

/* Tell by an image of the spot's node, which was read in this call. As
 * look_anew. */
static int look_in_image(struct tree *tree, struct tree_spot *spot,
			 const struct tree_image *image)
{
	const struct tree_node *node = spot->node;
	const struct tree_record *record;
	int rc;

	/* (5) Its head may be another's by now. */
	if (image->level != spot->level ||
	    (tree_compare(node->low, node->low_size, spot->key,
			  spot->key_size) > 0 &&
	     !REEF_MUTATED(TREE_JOIN_LOW)))
		return 0;
	if (node->high &&
	    tree_compare(spot->key, spot->key_size, node->high,
			 node->high_size) >= 0 &&
	    !REEF_MUTATED(TREE_FENCE_IGNORED))
		return 0;
	memcpy(spot->slots, image->slots, sizeof(spot->slots));
	spot->is_frozen = tree_slots_are_frozen(spot->slots);
	spot->record = tree_image_find(image, spot->key, spot->key_size);
	spot->outside = 0;
	spot->is_there = false;
	if (spot->record >= 0) {
		record = &image->records[spot->record];
		spot->mark_at = record->mark_at;
		spot->outside = record->outside;
		rc = entry_room_need(&spot->bytes, record->value_size + 1u);
		if (rc)
			return rc;
		if (record->value_size)
			memcpy(spot->bytes.bytes, record->value,
			       record->value_size);
		note_record(spot, spot->bytes.bytes, record->value_size,
			    record->version, record->stamp);
	}
	rc = look_in_slots(tree, spot);
	if (!rc && spot->slot < 0 && spot->is_there)
		rc = look_outside(tree, spot);
	return rc ? rc : 1;
}

/* READ the node anew, and tell by that. 1: told.  0: the key is not in it. */
static int look_anew(struct tree *tree, struct tree_spot *spot)
{
	struct tree_image image;
	struct tree_node *node;
	int rc = tree_node_read(tree, spot->node, &image);

	if (rc == -ESTALE)
		tree_node_forget(tree, spot->node);
	if (rc)
		return rc == -ESTALE ? 0 : rc;
	rc = tree_node_remember(tree, &image, &node);
	if (!rc) {
		tree_node_unref(spot->node);
		spot->node = node;
		rc = look_in_image(tree, spot, &image);
	}
	tree_image_free(&image);
	return rc;
}

/* --- by what is remembered --- */

/* The interval that may have the key's record, or -1. */
static int find_interval(const struct tree_spot *spot)
{
	const struct tree_node *node = spot->node;
	int part = tree_node_part(node, spot->key, spot->key_size, false);
	const struct tree_span *at;

	if (part < 0 || node->level)
		return part;
	at = &tree_node_spans(node)[part];
	return memchr(tree_node_prints(node) + at->first, tree_byte(spot->hash),
		      at[1].first - at->first)
		       ? part
		       : -1;
}

/* Look for the key's record in its interval, which was read. 1: it was alive.
 */
static int look_in_interval(struct tree_spot *spot, int part, bool *mark)
{
	const struct tree_node *node = spot->node;
	const struct tree_span *at = &tree_node_spans(node)[part];
	uint32_t matched = tree_common(node->low, node->prefix_size, spot->key,
				       spot->key_size);
	struct tree_walk walk;
	int rc;

	if (!tree_interval_begin(&walk, spot->bytes.bytes, tree_span_size(at),
				 node->id))
		return 0;
	while ((rc = tree_interval_next(&walk)) == 1) {
		if (!tree_walk_is_at(&walk, node->prefix_size, spot->key,
				     spot->key_size, &matched))
			continue;
		spot->record = (int)(at->first + walk.index);
		spot->mark_at = tree_span_at(at) + TREE_MARKS_AT + walk.index;
		spot->outside = walk.outside;
		*mark = walk.marks[walk.index];
		note_record(spot, walk.value, walk.value_size, walk.version,
			    walk.stamp);
		return 1;
	}
	return rc ? 0 : 1;
}

/* Begin to look by what is remembered of a leaf. False: nothing is. */
static bool begin_fast(struct tree_spot *spot)
{
	if (spot->node->level)
		return false;
	spot->part = find_interval(spot);
	spot->wants_slots = spot->to_change || spot->part < 0;
	spot->record = spot->slot = -1;
	spot->outside = 0;
	spot->is_there = false;
	return true;
}

/* Add the READs that tell. */
static int add_reads(struct tree_spot *spot, struct reef_access *accesses,
		     uint32_t *count)
{
	const struct tree_node *node = spot->node;
	const struct tree_span *part = NULL;
	int rc;

	if (spot->part >= 0) {
		part = &tree_node_spans(node)[spot->part];
		rc = entry_room_need(&spot->bytes, tree_span_size(part));
		if (rc)
			return rc;
		accesses[(*count)++] = (struct reef_access){
			.kind = REEF_READ,
			.address = node->at + tree_span_at(part),
			.local = spot->bytes.bytes,
			.length = tree_span_size(part),
		};
	}
	if (spot->wants_slots)
		accesses[(*count)++] = (struct reef_access){
			.kind = REEF_READ,
			.address = node->at,
			.local = spot->front,
			.length = TREE_FRONT,
		};
	return 0;
}

/* A mutant: what a call before this one saw of the block, as if it were of
 * today. */
struct tree_old {
	uint64_t at, front[TREE_FRONT / 8];
};

static void use_old_image(struct tree *tree, struct tree_spot *spot)
{
	if (!tree->old)
		tree->old = calloc(1, sizeof(*tree->old));
	if (!tree->old || !spot->to_change || spot->level)
		return;
	if (tree->old->at == spot->node->at &&
	    tree->old->front[0] == spot->node->id) {
		memcpy(spot->front, tree->old->front, sizeof(spot->front));
		tree->old->at = 0;
		return;
	}
	tree->old->at = spot->node->at;
	memcpy(tree->old->front, spot->front, sizeof(spot->front));
}

/* Tell by what was read. 1: told.  0: the node has to be read.  -EAGAIN: the
 * interval does not tell, the slots do: add_reads once more. */
static int end_fast(struct tree *tree, struct tree_spot *spot)
{
	bool mark = false;
	int rc;

	if (spot->part >= 0 && !look_in_interval(spot, spot->part, &mark))
		return REEF_MUTATED(TREE_TORN_ABSENT);
	if (!spot->wants_slots) {
		if (spot->record >= 0 && !mark)
			return (rc = look_outside(tree, spot)) ? rc : 1;
		spot->wants_slots = true;
		spot->part = -1;
		return -EAGAIN;
	}
	if (REEF_MUTATED(TREE_OLD_IMAGE))
		use_old_image(tree, spot);
	if (spot->front[0] != spot->node->id &&
	    !REEF_MUTATED(TREE_MISS_UNPROVED))
		return 0;
	memcpy(spot->slots, &spot->front[2], sizeof(spot->slots));
	spot->is_frozen = tree_slots_are_frozen(spot->slots);
	rc = look_in_slots(tree, spot);
	if (!rc && spot->slot < 0 && spot->is_there)
		rc = look_outside(tree, spot);
	return rc ? rc : 1;
}

/* True if the memory that is remembered may be gone, or another's. */
static bool is_elsewhere(int rc)
{
	return rc == -REEF_ELOST || rc == -EFAULT || rc == -REEF_EINDOUBT;
}

/* Leaves and what is remembered of them: one READ, or one batch. 1: told.  0:
 * the node has to be read. */
static int look_fast(struct tree *tree, struct tree_spot *spot,
		     struct entry_fresh *fresh)
{
	struct reef_access accesses[3];
	uint32_t count = 0;
	bool along = fresh && fresh->at && !fresh->written &&
		     fresh->size <= ENTRY_ALONG;
	int rc;

	if (!begin_fast(spot))
		return 0;
	if (along)
		accesses[count++] = entry_fresh_begin(&tree->home, fresh);
	do {
		rc = add_reads(spot, accesses, &count);
		if (!rc)
			rc = reef_execute(tree->reef, accesses, count);
		if (along)
			entry_fresh_end(&tree->home, fresh, rc);
		if (rc)
			return is_elsewhere(rc) ? 0 : rc;
		along = false;
		count = 0;
		rc = end_fast(tree, spot);
	} while (rc == -EAGAIN);
	return rc;
}

void tree_look_together(struct tree *tree, struct tree_spot *spots,
			uint32_t count, int *told)
{
	struct reef_access accesses[2 * TREE_LOOKED];
	uint32_t i, round, reads;
	int rc;

	reef_assert(count <= TREE_LOOKED);
	for (i = 0; i < count; i++) {
		struct tree_spot *spot = &spots[i];

		spot->hash = tree_hash(tree, spot->key, spot->key_size);
		rc = tree_search(tree, spot->key, spot->key_size, 0, false,
				 NULL, &spot->node);
		told[i] = rc ? rc : begin_fast(spot) ? -EAGAIN : 0;
	}
	/* Intervals, or slots where no record can be the key's; then the slots
	 * of those whose interval did not tell. */
	for (round = 0; round < 2; round++) {
		for (i = reads = 0; i < count; i++)
			if (told[i] == -EAGAIN) {
				rc = add_reads(&spots[i], accesses, &reads);
				told[i] = rc ? rc : told[i];
			}
		rc = reads ? reef_execute(tree->reef, accesses, reads) : 0;
		for (i = 0; i < count; i++)
			if (told[i] == -EAGAIN)
				told[i] = rc ? 0 : end_fast(tree, &spots[i]);
	}
}

/* Search for the spot's node, and look for the key in it. As look_anew. */
static int look_once(struct tree *tree, struct tree_spot *spot,
		     struct entry_fresh *fresh)
{
	struct tree_image image = {0};
	/* Who puts a separator in mends nothing on the way: it would never come
	 * to an end where one cannot be put. */
	int rc = tree_search_fresh(
		tree, spot->key, spot->key_size, spot->level, false,
		spot->to_change && !spot->level ? &spot->missing : NULL, &image,
		&spot->node);

	/* What was read on the way need not be read again. */
	if (!rc && image.bytes && image.head == spot->node->head &&
	    image.id == spot->node->id)
		rc = look_in_image(tree, spot, &image);
	else if (!rc)
		rc = look_fast(tree, spot, fresh);
	tree_image_free(&image);
	return rc;
}

int tree_look(struct tree *tree, struct tree_spot *spot,
	      struct entry_fresh *fresh)
{
	uint32_t attempt;
	int rc;

	spot->hash = tree_hash(tree, spot->key, spot->key_size);
	for (attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
		tree_node_unref(spot->node);
		spot->node = NULL;
		rc = tree_look_near(tree, spot) ? 1
						: look_once(tree, spot, fresh);
		if (!rc)
			rc = look_anew(tree, spot);
		if (rc)
			return rc == 1 ? 0 : rc;
		rc = index_pause(attempt);
		if (rc)
			return rc;
	}
	return -EBUSY;
}
