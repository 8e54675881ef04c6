/* intent.c - slots that transactions have: (9) of layout.h.
 *
 *   a key's slot, or the next one --CAS by a transaction--> intent
 *        ^                                     | status decided
 *        +-------CAS by anybody: what was before, or what is new, as it says
 *
 * `live` of entries is not used in a tree, so what is aborted needs no copy. A
 * tag that comes round would let a word return: such a slot is frozen as it is
 * let go, and the block is the next who changes the key's to reshape. */
#include "index/tree/internal.h"

#include "base/mutant.h"

#include <string.h>

#define LATE_NS 50000u /* of a mutant */

#define TAG_LAST (UINT64_MAX - TREE_TAG_ONE + 1)

/* --- reading --- */

/* (R10) True if a line's words are what a slot of that print may be. */
static bool is_sound(const struct intent_line *line, uint64_t slot)
{
	uint64_t next = line->next;

	if (line->index != INTENT_TREE ||
	    line->old & (TREE_INTENT | TREE_FROZEN) || !line->old ||
	    line->slot >= TREE_SLOTS ||
	    tree_slot_print(line->old) != tree_slot_print(slot))
		return false;
	return !next || (!(next & ~TREE_CONTENT) &&
			 tree_slot_print(next) == tree_slot_print(slot));
}

uint64_t tree_intent_content(const struct intent *intent)
{
	return intent->status == INTENT_COMMITTED
		       ? intent->line.next
		       : intent->line.old & TREE_CONTENT;
}

static int read_lines(struct tree *tree, const uint64_t *slots, uint32_t count,
		      struct intent *intents)
{
	uint64_t blocks[TREE_SLOTS] = {0};
	uint32_t i;
	int rc;

	static_assert(TREE_SLOTS <= INTENT_TOGETHER, "in one batch");
	for (i = 0; i < count; i++)
		blocks[i] = tree_slot_block(slots[i]);
	rc = intent_read_lines(tree->space, tree->home.number, blocks, intents,
			       count);
	for (i = 0; i < count && !rc; i++)
		if (!is_sound(&intents[i].line, slots[i]))
			rc = -REEF_ECORRUPT;
	return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
}

/* READ lines and statuses of slots that are intents. */
static int read_intents(struct tree *tree, const uint64_t *slots,
			uint32_t count, struct intent *intents)
{
	int rc = read_lines(tree, slots, count, intents);

	if (!rc)
		rc = intent_read_statuses(tree->reef, intents, count, NULL, 0);
	for (uint32_t i = 0; i < count && !rc; i++)
		if (!is_sound(&intents[i].line, slots[i]))
			rc = -REEF_ECORRUPT;
	return rc;
}

int tree_settle(struct tree *tree, uint64_t *slots, struct intent *intents)
{
	struct intent read[TREE_SLOTS];
	uint64_t held[TREE_SLOTS];
	uint32_t which[TREE_SLOTS], count = 0, i;
	int rc;

	if (!tree_has_intents(slots))
		return 0;
	for (i = 0; i < TREE_SLOTS; i++)
		if (slots[i] & TREE_INTENT) {
			held[count] = slots[i];
			which[count++] = i;
		}
	rc = read_intents(tree, held, count, read);
	for (i = 0; i < count && !rc; i++) {
		slots[which[i]] = tree_intent_content(&read[i]);
		if (intents)
			intents[which[i]] = read[i];
	}
	return rc;
}

/* --- one key --- */

/* The READ of an entry that a word names, if it does. */
static int add_entry(struct tree *tree, uint64_t content,
		     struct entry_room *room, struct reef_access *accesses,
		     uint32_t *count)
{
	uint32_t size;
	uint64_t at;
	int rc;

	if (!tree_slot_has_entry(content))
		return 0;
	rc = reef_long_address(tree->space, tree_slot_block(content), &at);
	if (rc)
		return rc;
	size = entry_read_size(tree->reef,
			       tree_slot_is_dead(content)
				       ? TREE_DEAD_HINT
				       : tree_slot_hint(content),
			       at);
	rc = entry_room_need(room, size);
	accesses[(*count)++] = (struct reef_access){
		.kind = REEF_READ,
		.address = at,
		.local = room->bytes,
		.length = size,
	};
	return rc;
}

/* Note what counts: `content`; room: of its entry, as it was read. */
static int note_content(struct tree *tree, struct tree_spot *spot,
			uint64_t content, struct entry_room *room, bool is_read)
{
	struct entry_room old;
	int rc;

	/* Unless it is as in the record, which was noted. */
	if (tree_slot_is_dead(content) || tree_slot_has_entry(content))
		spot->is_there = false;
	if (!tree_slot_has_entry(content))
		return 0;
	rc = is_read ? tree_entry_end(tree, content,
				      spot->blind ? 0 : UINT32_MAX, room,
				      &spot->entry_at)
		     : tree_entry_read(tree, content,
				       spot->blind ? 0 : UINT32_MAX, room,
				       &spot->entry_at);
	if (rc <= 0)
		return rc && !index_is_nonsense(rc) ? rc : -REEF_ECORRUPT;
	if (!entry_is_of(room->bytes, spot->key, spot->key_size))
		return -REEF_ECORRUPT;
	old = spot->room;
	spot->room = *room;
	*room = old;
	if (tree_slot_is_dead(content))
		return 0;
	spot->entry = entry_view(spot->room.bytes);
	if (spot->blind)
		spot->entry.value = NULL;
	spot->is_there = true;
	return 0;
}

/* 1: the slot is the key's, as the word before the intent tells. room: of the
 * entry that it names, as it was read. */
static int is_of_key(struct tree *tree, const struct tree_spot *spot,
		     uint64_t old, struct entry_room *room)
{
	uint64_t at;
	int rc;

	if (!tree_slot_has_entry(old))
		return spot->record == (int)tree_slot_block(old);
	rc = tree_entry_end(tree, old, 0, room, &at);
	if (rc <= 0)
		return rc && !index_is_nonsense(rc) ? rc : -REEF_ECORRUPT;
	return entry_is_of(room->bytes, spot->key, spot->key_size);
}

/* True if an entry is in the extent of a status: then a READ behind that of the
 * status finds it written, if it is COMMITTED (F3b). */
static bool is_beside(const struct tree *tree, uint64_t content,
		      const struct intent_line *line)
{
	uint64_t at;

	return !reef_long_address(tree->space, tree_slot_block(content), &at) &&
	       (at >> 32 == line->main >> 32 || REEF_MUTATED(TXN_ENTRY_EARLY));
}

/* The status, and both entries that may count, are READ together. */
static int look_held(struct tree *tree, struct tree_spot *spot, uint64_t slot,
		     struct entry_room rooms[2])
{
	struct intent *intent = &spot->intent;
	struct reef_access extra[2];
	uint64_t content, next;
	uint32_t count = 0;
	int rc = read_lines(tree, &slot, 1, intent);

	if (!rc)
		rc = add_entry(tree, intent->line.old, &rooms[0], extra,
			       &count);
	next = intent->line.next;
	if (next && !is_beside(tree, next, &intent->line))
		next = 0;
	if (!rc && next && (next ^ intent->line.old) & TREE_SHORT_MASK)
		rc = add_entry(tree, next, &rooms[1], extra, &count);
	if (!rc && count && REEF_MUTATED(TXN_ENTRY_EARLY)) {
		rc = reef_execute(tree->reef, extra, count);
		count = 0;
		(void)reef_sleep(LATE_NS);
	}
	if (!rc)
		rc = intent_read_statuses(tree->reef, intent, 1, extra, count);
	if (!rc && !is_sound(&intent->line, slot))
		rc = -REEF_ECORRUPT;
	if (!rc)
		rc = is_of_key(tree, spot, intent->line.old, &rooms[0]);
	if (rc != 1)
		return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
	content = tree_intent_content(intent);
	if (tree_slot_block(content) == tree_slot_block(intent->line.old))
		rc = note_content(tree, spot, content, &rooms[0], true);
	else
		rc = note_content(tree, spot, content, &rooms[1],
				  content == next);
	return rc ? rc : 1;
}

int tree_look_held(struct tree *tree, struct tree_spot *spot, int i)
{
	struct entry_room rooms[2] = {0};
	int rc = look_held(tree, spot, spot->slots[i], rooms);

	entry_room_free(&rooms[0]);
	entry_room_free(&rooms[1]);
	if (rc == 1) {
		spot->slot = i;
		spot->is_held = true;
	}
	return rc;
}

/* --- deciding --- */

/* Free the entry that a slot named before its intent, if it names another. */
static void free_old(struct tree *tree, uint64_t content, uint64_t old)
{
	uint64_t at;

	if (tree_slot_has_entry(old) &&
	    tree_slot_block(old) != tree_slot_block(content) &&
	    !reef_long_address(tree->space, tree_slot_block(old), &at))
		entry_free(&tree->home, at);
}

int tree_intent_resolve(struct tree *tree, uint64_t at, uint64_t slot,
			const struct intent *intent, uint64_t flags)
{
	uint64_t content = tree_intent_content(intent), before;
	int rc;

	if (REEF_MUTATED(TXN_RESOLVE_OLD))
		content = intent->line.old & TREE_CONTENT;
	if (slot >= TAG_LAST && !REEF_MUTATED(TXN_TAG_ROUND))
		flags |= TREE_FROZEN;
	rc = index_cas(tree->reef, at, slot,
		       tree_slot_after(slot, content) | flags, &before);
	/* After a doubt no slot names the line any more, so the old entry of a
	 * commit is over, whoever resolved it; a second free changes nothing,
	 * as all are inside. */
	if (rc == 1 || rc == -REEF_EINDOUBT)
		free_old(tree, content, intent->line.old);
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

int tree_intent_pass(struct tree *tree, uint64_t at, uint64_t slot,
		     struct intent *intent, struct intent_wait *wait)
{
	int rc = 0;

	if (intent->status == INTENT_PENDING) {
		if (!intent_is_due(wait, slot, intent))
			return -EINPROGRESS;
		if (REEF_MUTATED(TXN_ABORT_OTHERS))
			intent->status = INTENT_ABORTED;
		else
			rc = intent_abort(tree->space, intent);
	}
	if (!rc)
		rc = tree_intent_resolve(tree, at, slot, intent, 0);
	return rc < 0 ? rc : -EAGAIN;
}

int tree_intents_wait(struct tree *tree, uint64_t block, const uint64_t *slots,
		      const uint64_t *own, uint32_t count,
		      struct intent_wait *wait)
{
	struct intent intents[TREE_SLOTS];
	uint64_t held[TREE_SLOTS];
	uint32_t held_count = 0, i, j;
	int rc;

	for (i = 0; i < TREE_SLOTS; i++) {
		for (j = 0; j < count && own[j] != slots[i]; j++)
			;
		if (slots[i] & TREE_INTENT && j == count)
			held[held_count++] = slots[i];
	}
	if (!held_count)
		return 0;
	rc = read_intents(tree, held, held_count, intents);
	/* They come and go; what counts is how long the block was waited for.
	 */
	for (i = 0; i < held_count && !rc; i++)
		if (intents[i].status == INTENT_PENDING &&
		    !intent_is_due(wait, block, &intents[i]))
			rc = -EINPROGRESS;
	return rc;
}

int tree_intent_freeze(struct tree *tree, uint64_t at, uint64_t slot)
{
	struct intent intent;
	int rc = read_intents(tree, &slot, 1, &intent);

	if (!rc && intent.status == INTENT_PENDING &&
	    !REEF_MUTATED(TXN_DROP_INTENT))
		rc = intent_abort(tree->space, &intent);
	if (!rc)
		rc = tree_intent_resolve(tree, at, slot, &intent, TREE_FROZEN);
	return rc < 0 ? rc : 0;
}

/* The block of a leaf whose slots may name a line. 0: it is no leaf of the tree
 * any more, or has none. */
static int find_block(struct tree *tree, uint64_t head_at, uint64_t *block)
{
	struct tree_head head;
	int rc = reef_read(tree->reef, head_at, &head, sizeof(head));

	*block = 0;
	if (rc)
		return rc;
	if (head.about != tree_about_make(0, tree->home.number) ||
	    head.tree != tree->id || head.word & TREE_DROPPED)
		return 0;
	return reef_long_address(tree->space, head.word & TREE_SHORT_MASK,
				 block);
}

int tree_intent_resolve_line(struct tree *tree, const struct intent *intent,
			     uint64_t block)
{
	uint64_t at, slot;
	int rc;

	if (intent->line.slot >= TREE_SLOTS)
		return -REEF_ECORRUPT;
	rc = find_block(tree, intent->line.hash, &at);
	if (rc || !at)
		return rc;
	at += TREE_SLOTS_AT + 8 * (uint64_t)intent->line.slot;
	rc = reef_read(tree->reef, at, &slot, 8);
	if (rc || !(slot & TREE_INTENT) || tree_slot_block(slot) != block ||
	    !is_sound(&intent->line, slot))
		return rc;
	rc = tree_intent_resolve(tree, at, slot, intent, 0);
	return rc < 0 ? rc : 0;
}
