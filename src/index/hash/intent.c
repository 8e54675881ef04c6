/* intent.c - slots that transactions have: (7) of table.h.
 *
 *   a key's slot --CAS by a transaction--> intent, its line names the old word
 *        ^                                     | status decided
 *        +-------CAS by anybody: the old word, or the new one, as it says
 *
 * An abort may leave an entry whose `live` is 0 already: a copy takes its
 * place, if there is room for one. A copy also takes the place of an entry
 * whose slot comes back so often that its tag comes round: then the word would
 * return (layout.h, 3). */
#include "index/hash/place.h"

#include "base/mutant.h"

#include <errno.h>

/* (R10) True if a line's words are what a slot of that fingerprint may be. */
static bool is_sound(const struct intent_line *line, uint64_t slot)
{
	uint64_t next = line->next;

	if (line->index != INTENT_HASH || !hash_slot_is_occupied(line->old) ||
	    line->old & HASH_FROZEN ||
	    hash_slot_print(line->old) != hash_slot_print(slot))
		return false;
	return !next || (hash_slot_block(next) && !(next & ~HASH_CONTENT));
}

int hash_intent_read(struct hash_table *table, uint64_t slot,
		     struct intent *intent)
{
	int rc = intent_read(table->space, table->home.number,
			     hash_slot_block(slot), intent);

	if (!rc && !is_sound(&intent->line, slot))
		rc = -REEF_ECORRUPT;
	return rc;
}

/* Write a copy of the entry that `content` names, with its version, to a block
 * of its own. *copy: what names it. Any error: there is none. */
static int copy_entry(struct hash_table *table, uint64_t content,
		      struct entry_fresh *fresh)
{
	static const uint64_t zero;
	struct hash_reading reading = {0};
	struct entry_head *head;
	size_t size;
	uint64_t at;
	int rc = hash_read_entry(table, &reading, content, &at);

	if (rc != 1 || !entry_peek(reading.room.bytes, &size) ||
	    size > ENTRY_ALONG)
		rc = rc < 0 ? rc : -ENOENT;
	else
		rc = reef_alloc_kind(table->space, table->home.kind,
				     size < 56 ? 56 : size, &fresh->at);
	if (rc) {
		hash_reading_free(&reading);
		return rc;
	}
	head = reading.room.bytes;
	head->live = head->version;
	fresh->hint = entry_hint_of(size);
	rc = reef_short_address(table->space, fresh->at, &fresh->block);
	if (!rc)
		rc = reef_write(table->reef, fresh->at, head, size);
	/* The entry that goes is not live before its slot changes, be it to one
	 * with the same value: else who remembers it would read it for ever. */
	if (!rc && !REEF_MUTATED(TXN_COPY_LIVE))
		rc = reef_write(table->reef, at, &zero, 8);
	if (rc)
		reef_free(table->space, fresh->at, 0);
	hash_reading_free(&reading);
	return rc;
}

/* True if a slot is to get another block, though its key has the same value. */
static bool wants_copy(uint64_t slot, const struct intent *intent)
{
	const struct intent_line *line = &intent->line;

	if (hash_intent_content(intent) != (line->old & HASH_CONTENT))
		return false;
	if (slot >= UINT64_MAX - HASH_TAG_ONE + 1)
		return true;
	return intent->status == INTENT_ABORTED && line->next &&
	       line->next != (line->old & HASH_CONTENT) &&
	       !REEF_MUTATED(TXN_ABORT_BARE);
}

/* Free the entry that a slot named before its intent. */
static void free_old(struct hash_table *table, const struct intent *intent)
{
	uint64_t at;

	if (!reef_long_address(table->space, hash_slot_block(intent->line.old),
			       &at))
		entry_free(&table->home, at);
}

int hash_intent_resolve(struct hash_table *table, uint64_t at, uint64_t slot,
			const struct intent *intent, uint64_t flags)
{
	uint64_t content = hash_intent_content(intent), before;
	struct entry_fresh copy = {0};
	bool is_copy =
		wants_copy(slot, intent) && !copy_entry(table, content, &copy);
	int rc;

	if (REEF_MUTATED(TXN_RESOLVE_OLD))
		content = intent->line.old & HASH_CONTENT;
	if (is_copy)
		content = hash_slot_make(copy.block, copy.hint,
					 hash_slot_print(slot));
	rc = index_cas(table->reef, at, slot,
		       hash_tagged(slot, content) | flags, &before);
	if (is_copy && !rc)
		reef_free(table->space, copy.at, 0);
	/* After a doubt no slot names the line any more. Of a commit the old
	 * entry is over then, whoever resolved it, and a second free changes
	 * nothing, as all are inside. Of an abort it may be what the slot names
	 * again, because another had no room for a copy: recovery judges it. */
	if ((rc == 1 || (rc == -REEF_EINDOUBT && !is_copy)) &&
	    content != (intent->line.old & HASH_CONTENT))
		free_old(table, intent);
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

int hash_intent_pass(struct hash_table *table, uint64_t at, uint64_t slot,
		     struct intent *intent, struct intent_wait *wait)
{
	int rc = 0;

	if (intent->status == INTENT_PENDING) {
		if (!intent_is_due(wait, slot, intent))
			return -EINPROGRESS;
		if (REEF_MUTATED(TXN_ABORT_OTHERS))
			intent->status = INTENT_ABORTED;
		else
			rc = intent_abort(table->space, intent);
	}
	if (!rc)
		rc = hash_intent_resolve(table, at, slot, intent, 0);
	return rc < 0 ? rc : -EAGAIN;
}

/* --- recovery --- */

int hash_intent_resolve_line(struct hash_table *table,
			     const struct intent *intent, uint64_t block)
{
	struct hash_reading reading = {.hash = intent->line.hash};
	uint64_t slot;
	int rc = hash_leaf_discover(table, reading.hash);

	if (rc)
		return rc;
	hash_places(table, reading.hash, reading.place);
	reading.leaf = hash_leaf_known(table, reading.hash)->subtable;
	for (uint32_t i = 0; i < 2 && !rc; i++)
		rc = reef_read(table->reef, reading.leaf + reading.place[i],
			       reading.slots[i], HASH_PLACE_SIZE);
	for (uint32_t i = 0; i < 2 * HASH_PLACE_SLOTS && rc >= 0; i++) {
		slot = reading.slots[i / HASH_PLACE_SLOTS]
				    [i % HASH_PLACE_SLOTS];
		if (slot & HASH_INTENT && hash_slot_block(slot) == block &&
		    is_sound(&intent->line, slot))
			rc = hash_intent_resolve(table,
						 hash_slot_address(&reading, i),
						 slot, intent, 0);
	}
	return rc < 0 ? rc : 0;
}

static int resolve_line(struct reef_space *space, const struct intent *intent,
			uint64_t block)
{
	struct hash_table *table;
	uint64_t root;
	int rc = reef_long_address(
		space, entry_root_of_number(intent->line.number), &root);

	if (rc)
		return rc;
	reef_enter(reef_space_handle(space));
	rc = hash_open(space, root, 1, &table);
	if (!rc) {
		do
			rc = hash_intent_resolve_line(table, intent, block);
		while (rc == -EAGAIN);
		hash_close(table);
	}
	reef_leave(reef_space_handle(space));
	return rc == -REEF_EDROPPED ? 0 : rc;
}

void hash_intents_register(void)
{
	intent_resolver_register(INTENT_HASH, resolve_line);
}
