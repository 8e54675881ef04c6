/* change.c - put, update, delete: one function, told by `decide`; of leaves,
 * and of inner nodes, whose keys are separators.
 *
 *   look --has a slot--> CAS that slot
 *        |--has a record--> {mark it; CAS the next slot}
 *        \--has neither--> CAS the next slot
 *   another was quicker: look again; no slot left, or frozen: reshape.c */
#include "index/tree/internal.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

#define ATTEMPTS_MAX 100000u
#define LATE_NS 2000000u /* of a mutant */

static uint64_t slot_at(const struct tree_spot *spot, int slot)
{
	return spot->node->at + TREE_SLOTS_AT + 8 * (uint64_t)slot;
}

/* The first slot that is not used, or TREE_SLOTS. */
static int next_slot(const struct tree_spot *spot)
{
	int i = 0;

	while (i < (int)TREE_SLOTS && tree_slot_is_used(spot->slots[i]))
		i++;
	if (REEF_MUTATED(TREE_SKIP_SLOT) && i < (int)TREE_SLOTS - 1 &&
	    spot->hash & 1)
		i++;
	return i;
}

/* --- a slot that is not used yet --- */

/* True if a word that is in the slot now is of our key. */
static int is_of_key(struct tree *tree, const struct tree_spot *spot,
		     uint64_t slot)
{
	struct entry_room room = {0};
	struct intent intent;
	uint64_t at;
	int rc;

	/* Its key is that of the word before. */
	if (slot & TREE_INTENT) {
		rc = intent_read(tree->space, tree->home.number,
				 tree_slot_block(slot), &intent);
		if (rc)
			return rc;
		slot = intent.line.old & ~TREE_INTENT;
	}
	if (!tree_slot_has_entry(slot))
		return spot->record == (int)tree_slot_block(slot);
	rc = tree_entry_read(tree, slot, 0, &room, &at);
	if (rc == 1)
		rc = entry_is_of(room.bytes, spot->key, spot->key_size);
	entry_room_free(&room);
	return rc;
}

/* The word that a transaction has found in a slot, if one has it; else the word
 * itself. */
static uint64_t word_before(struct tree *tree, uint64_t slot)
{
	struct intent intent;

	if (!(slot & TREE_INTENT) ||
	    intent_read(tree->space, tree->home.number, tree_slot_block(slot),
			&intent))
		return slot;
	return intent.line.old;
}

/* Find out about a CAS in doubt from 0 to `word`, which is only ours if it
 * names an entry. As take_slot. A slot's key never changes, so another's key in
 * it says that it never happened. */
static int settle_take(struct tree *tree, const struct tree_spot *spot,
		       uint64_t at, uint64_t word)
{
	uint64_t now;
	int rc = index_read_in_doubt(tree->reef, at, &now);

	if (rc)
		return rc;
	now = word_before(tree, now & ~TREE_FROZEN);
	if (!now)
		return 0;
	if (now == word && tree_slot_has_entry(word))
		return 1;
	rc = is_of_key(tree, spot, now);
	return rc ? -REEF_EINDOUBT : 0;
}

/* Take the next slot for a key that has none, and mark its record, if it has
 * one.  1: taken.  0: not. */
static int take_slot(struct tree *tree, const struct tree_spot *spot,
		     uint64_t content)
{
	static const uint8_t one = 1;
	int next = next_slot(spot);
	uint64_t at = slot_at(spot, next), word = tree_slot_after(0, content);
	bool marks = spot->record >= 0 && !REEF_MUTATED(TREE_NO_MARK);
	bool late = marks && REEF_MUTATED(TREE_LATE_MARK);
	struct reef_access accesses[2] = {
		{
			.kind = REEF_WRITE,
			.address = spot->node->at + spot->mark_at,
			.local = (void *)(uintptr_t)&one,
			.length = 1,
		},
		{
			.kind = REEF_CAS,
			.address = at,
			.operand = word,
		},
	};
	int rc;

	/* Both are in one block: in this order (F3a). */
	if (marks && !late)
		rc = reef_execute(tree->reef, accesses, 2);
	else
		rc = reef_execute(tree->reef, accesses + 1, 1);
	if (late && !rc && !reef_sleep(LATE_NS))
		reef_execute(tree->reef, accesses, 1);
	if (!rc)
		return !accesses[1].result;
	return rc == -REEF_EINDOUBT ? settle_take(tree, spot, at, word) : rc;
}

/* --- the key's own slot --- */

static int settle_swap(struct tree *tree, const struct tree_spot *spot,
		       uint64_t word)
{
	uint64_t old = spot->slots[spot->slot], now;
	int rc = index_read_in_doubt(tree->reef, slot_at(spot, spot->slot),
				     &now);

	if (rc)
		return rc;
	now = word_before(tree, now & ~TREE_FROZEN);
	if (now == old)
		return 0;
	if (now == word && tree_slot_has_entry(word) &&
	    !tree_slot_is_dead(word))
		return 1;
	/* If it was our CAS that took the old entry out, nobody else frees it;
	 * if it was not, a second free changes nothing, as both clients are
	 * inside reef_enter. */
	if (spot->entry_at && tree_slot_block(now) != tree_slot_block(old))
		entry_free(&tree->home, spot->entry_at);
	return -REEF_EINDOUBT;
}

/* 1: changed.  0: another was quicker. */
static int swap_slot(struct tree *tree, const struct tree_spot *spot,
		     uint64_t content)
{
	uint64_t old = spot->slots[spot->slot], before;
	uint64_t word = tree_slot_after(old, content | (old & TREE_IN_BASE));
	int rc = reef_cas(tree->reef, slot_at(spot, spot->slot), old, word,
			  &before);

	if (rc == -REEF_EINDOUBT)
		rc = settle_swap(tree, spot, word);
	else if (!rc)
		rc = before == old;
	/* A dead slot keeps its entry. */
	if (rc == 1 && spot->entry_at &&
	    tree_slot_block(word) != tree_slot_block(old))
		entry_free(&tree->home, spot->entry_at);
	return rc;
}

/* --- what was decided --- */

/* True if the key cannot be changed in this block any more. */
static bool needs_reshape(const struct tree_spot *spot)
{
	int slot = spot->slot >= 0 ? spot->slot : next_slot(spot);

	if (spot->slot >= 0 && REEF_MUTATED(TREE_THAW))
		return false;
	return slot == (int)TREE_SLOTS || spot->slots[slot] & TREE_FROZEN;
}

/* Set the key's slot. -EAGAIN: another was quicker. */
static int set_slot(struct tree *tree, const struct tree_spot *spot,
		    uint64_t content)
{
	uint64_t outside;
	int rc;

	if (spot->slot >= 0) {
		rc = swap_slot(tree, spot, content);
		return rc == 1 ? 0 : rc ? rc : -EAGAIN;
	}
	if (spot->record >= 0)
		content |= TREE_IN_BASE;
	rc = take_slot(tree, spot, content);
	/* (7): the record's own entry is nobody's any more. */
	if (rc == 1 && spot->outside && !REEF_MUTATED(TREE_LARGE_LIVE) &&
	    !reef_long_address(tree->space, tree_slot_block(spot->outside),
			       &outside))
		entry_free(&tree->home, outside);
	return rc == 1 ? 0 : rc ? rc : -EAGAIN;
}

static int delete_key(struct tree *tree, const struct tree_spot *spot)
{
	uint64_t block = (uint64_t)spot->record;

	if (spot->slot >= 0)
		block = tree_slot_block(spot->slots[spot->slot]);
	if (spot->slot >= 0 && REEF_MUTATED(TREE_REVIVE_EMPTY))
		block = TREE_INDEX_END - 1;
	return set_slot(
		tree, spot,
		tree_slot_make(block, TREE_DEAD, tree_print(spot->hash)));
}

static int put_entry(struct tree *tree, struct entry_change *change,
		     const struct tree_spot *spot, struct entry_fresh *fresh)
{
	int rc = entry_fresh_write(&tree->home, fresh);

	if (rc)
		return rc;
	rc = set_slot(tree, spot,
		      tree_slot_make(fresh->block, fresh->hint,
				     tree_print(spot->hash)));
	if (!rc)
		change->version = fresh->bytes->version;
	/* After a doubt a slot may name the entry, so its block stays: recovery
	 * asks is_live when our session has ended. */
	if (!rc || rc == -REEF_EINDOUBT || rc == -ETIMEDOUT)
		entry_fresh_drop(&tree->home, fresh, false);
	return rc;
}

/* Make the entry to put, unless the one that was written ahead will do. */
static int prepare_entry(struct tree *tree, struct entry_change *change,
			 const struct entry *put, struct entry_fresh *fresh)
{
	if (fresh->at && change->ahead)
		return 0;
	entry_fresh_drop(&tree->home, fresh, true);
	return entry_fresh_make(&tree->home, change->key, change->key_size, put,
				fresh);
}

/* A separator that is the first of its node stays there. */
static void note_first(struct tree_separator *separator,
		       const struct tree_spot *spot)
{
	separator->is_first =
		!tree_compare(spot->key, spot->key_size, spot->node->low,
			      spot->node->low_size);
}

/* How many keys the node of a spot has when this one is deleted. */
static uint64_t count_left(const struct tree_spot *spot)
{
	const struct tree_node *node = spot->node;

	return tree_count_keys(tree_node_spans(node)[node->count].first,
			       spot->slots) -
	       1;
}

/* Delete a key; and if few are left in its leaf, see whether they fit into
 * another. */
static int delete_and_join(struct tree *tree, struct tree_spot *spot)
{
	uint64_t left = count_left(spot);
	int rc = delete_key(tree, spot);

	if (!rc && !spot->level && (left <= 2 || left == 4))
		tree_join(tree, spot->node, &spot->missing);
	return rc;
}

/* Make room for a slot, when those whose transactions would lose for it have
 * been waited for. */
static int make_room(struct tree *tree, struct tree_spot *spot, bool deletes,
		     bool gently, struct intent_wait *wait)
{
	int rc = tree_intents_wait(tree, spot->node->at, spot->slots, NULL, 0,
				   wait);

	if (rc == -EINPROGRESS && gently)
		return 0;
	if (!rc)
		rc = tree_reshape(tree, spot->node, deletes, &spot->missing);
	return rc ? rc : -EAGAIN;
}

static int apply_once(struct tree *tree, struct entry_change *change,
		      struct tree_spot *spot, struct entry_fresh *fresh,
		      struct intent_wait *wait, bool *is_decided)
{
	struct entry put = {0};
	int rc = tree_look(tree, spot, fresh), verdict;

	if (rc)
		return rc;
	if (spot->is_held)
		return change->gently
			       ? 0
			       : tree_intent_pass(tree,
						  slot_at(spot, spot->slot),
						  spot->slots[spot->slot],
						  &spot->intent, wait);
	if (spot->level)
		note_first(change->context, spot);
	verdict = change->decide(change->context,
				 spot->is_there ? &spot->entry : NULL, &put);
	*is_decided = verdict < 0;
	if (verdict < 0 || verdict == ENTRY_KEEP)
		return verdict;
	if (verdict == ENTRY_DELETE && !spot->is_there)
		return 0;
	if (needs_reshape(spot))
		return make_room(tree, spot, verdict == ENTRY_DELETE,
				 change->gently, wait);
	if (verdict == ENTRY_DELETE)
		return delete_and_join(tree, spot);
	rc = prepare_entry(tree, change, &put, fresh);
	return rc ? rc : put_entry(tree, change, spot, fresh);
}

/* --- separators --- */

/* True if what is there leads to the node that is gone. */
static bool is_bad(const struct tree_separator *separator,
		   const struct entry *now)
{
	struct tree_child child;

	if (!now || !now->value || now->value_size != sizeof(child))
		return false;
	memcpy(&child, now->value, sizeof(child));
	return child.head == separator->bad;
}

static int decide_separator(void *context, const struct entry *now,
			    struct entry *put)
{
	const struct tree_separator *separator = context;

	if (separator->bad && !is_bad(separator, now))
		return ENTRY_KEEP;
	if (separator->bad && !separator->is_first)
		return ENTRY_DELETE;
	if (now && !separator->bad)
		return ENTRY_KEEP;
	put->value = &separator->child;
	put->value_size = sizeof(separator->child);
	/* So that recovery knows where to look for it. */
	put->touched = (uint16_t)separator->level;
	return ENTRY_PUT;
}

/* Apply at a level; *missing gets more separators. */
static int apply_at(struct tree *tree, struct entry_change *change,
		    uint32_t level, struct tree_separator **missing,
		    struct intent_wait *wait, bool *is_decided)
{
	struct tree_spot spot = {
		.key = change->key,
		.key_size = change->key_size,
		.level = level,
		.to_change = true,
		.blind = change->blind,
	};
	struct entry_fresh fresh = {0};
	uint32_t attempt = 0;
	int rc = 0;

	spot.missing = *missing;
	*missing = NULL;
	if (change->ahead)
		rc = prepare_entry(tree, change, change->ahead, &fresh);
	while (!rc) {
		rc = apply_once(tree, change, &spot, &fresh, wait, is_decided);
		if (rc != -EAGAIN || *is_decided)
			break;
		rc = ++attempt < ATTEMPTS_MAX ? index_pause(attempt) : -EBUSY;
	}
	entry_fresh_drop(&tree->home, &fresh, true);
	*missing = spot.missing;
	spot.missing = NULL;
	tree_spot_fini(&spot);
	return rc;
}

static int put_separator(struct tree *tree, struct tree_separator *separator,
			 struct tree_separator **list)
{
	struct entry_change change = {
		.key = separator->key,
		.key_size = separator->key_size,
		.decide = decide_separator,
		.context = separator,
	};
	struct intent_wait wait = {0};
	bool is_decided = false;
	int rc = apply_at(tree, &change, separator->level, list, &wait,
			  &is_decided);

	if (rc != -ENOENT || separator->bad)
		return rc;
	return tree_grow(tree, separator);
}

void tree_mend(struct tree *tree, struct tree_separator **list)
{
	struct tree_separator *separator;
	uint32_t attempt;
	int rc;

	while (*list) {
		separator = *list;
		*list = separator->next;
		for (attempt = 0; attempt < TREE_HEIGHT_MAX; attempt++) {
			rc = put_separator(tree, separator, list);
			if (rc != -EAGAIN)
				break;
		}
		/* Whatever went wrong: whoever goes right tries again. */
		free(separator);
	}
}

/* --- all of it --- */

/* Have blocks in hand for deletes when there is no room; where that fails it is
 * tried once an epoch. */
static void keep_reserve(struct tree *tree)
{
	uint64_t epoch = reef_epoch(tree->reef), at;

	while (tree->reserve_count < TREE_RESERVE &&
	       tree->reserve_epoch != epoch + 1) {
		if (reef_alloc_kind(tree->space, REEF_BLOCK_TREE_BLOCK,
				    tree_reserve_size(tree), &at))
			tree->reserve_epoch = epoch + 1;
		else
			tree_reserve_give(tree, at);
	}
}

int tree_apply(struct tree *tree, struct entry_change *change)
{
	struct tree_separator *missing = NULL;
	struct reef_patience patience = {0};
	struct intent_wait wait = {0};
	bool is_decided = false;
	int rc, waited;

	if (change->key_size > TREE_KEY_MAX)
		return -EINVAL;
	for (;;) {
		reef_enter(tree->reef);
		rc = apply_at(tree, change, 0, &missing, &wait, &is_decided);
		tree_mend(tree, &missing);
		if (!rc)
			keep_reserve(tree);
		reef_leave(tree->reef);
		if (rc == -EINPROGRESS && !is_decided) {
			rc = intent_pause(&wait);
			if (rc)
				return rc;
			continue;
		}
		if ((rc != -ENOSPC && rc != -EDQUOT) || is_decided)
			return rc;
		/* What was freed may only be waiting to be reused. This waits
		 * for it outside reef_enter, which would keep it waiting. */
		waited = reef_await_memory(tree->space, &patience);
		if (waited)
			return waited == -ENOSPC ? rc : waited;
	}
}
