/* change.c - put, update, delete: one function, told by `decide`.
 *
 *   find --there--> update: {live of the old entry = 0; CAS slot}
 *        \-absent-> insert.c
 *   another was quicker, or the subtable is being split: find again
 *   a transaction has the slot: wait for it, or abort it (intent.c) */
#include "index/hash/place.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

#define ATTEMPTS_MAX 100000u
/* With one block: each may leave two words behind in a slot, which must not
 * return (layout.h, 3). */
#define BLOCK_ATTEMPTS 128u
#define STAGED_ATTEMPTS (BLOCK_ATTEMPTS + BLOCK_ATTEMPTS / 2)
static_assert(2 * STAGED_ATTEMPTS < UINT64_MAX / HASH_TAG_ONE, "tags");

uint64_t hash_tagged(uint64_t before, uint64_t content)
{
	uint64_t slot = hash_slot_after(before, content);

	if (REEF_MUTATED(HASH_NO_TAG))
		slot = (slot & (HASH_TAG_ONE - 1)) |
		       (before & ~(HASH_TAG_ONE - 1));
	return slot;
}

uint64_t hash_emptied(uint64_t before)
{
	if (REEF_MUTATED(HASH_RECUR))
		return HASH_TAG_ONE;
	return hash_tagged(before, hash_slot_dead(before));
}

/* Only we write a slot's word with our block, so a READ tells whether a CAS
 * that put it there happened. A slot that is empty may have been emptied by
 * another.
 */
int hash_swap_settle(struct hash_table *table,
		     const struct hash_reading *reading, uint64_t slot,
		     uint64_t *before)
{
	int rc = index_read_in_doubt(table->reef, reading->slot_at, before);

	if (rc)
		return rc;
	if (*before == reading->slot)
		return 0; /* the CAS never happened: try again */
	if (*before == slot && !hash_slot_is_empty(slot))
		return 1;
	/* No slot names the old entry any more. If it was our CAS that did
	 * that, nobody else frees it; if it was not, a second free changes
	 * nothing, as both clients are inside reef_enter. */
	if (hash_slot_is_empty(*before) ||
	    hash_slot_block(*before) != hash_slot_block(reading->slot))
		entry_free(&table->home, reading->entry_at);
	return -REEF_EINDOUBT;
}

/* Zero `live` of the old entry, then CAS its slot; as index_cas. */
static int swap_entry(struct hash_table *table,
		      const struct hash_reading *reading, uint64_t slot,
		      uint64_t *before)
{
	uint64_t zero = 0;
	struct reef_access accesses[2] = {
		{
			.kind = REEF_WRITE,
			.address = reading->entry_at,
			.local = &zero,
			.length = 8,
		},
		{
			.kind = REEF_CAS,
			.address = reading->slot_at,
			.compare = reading->slot,
			.operand = slot,
		},
	};
	bool together = reading->entry_at >> 32 == reading->slot_at >> 32;
	int rc;

	if (REEF_MUTATED(HASH_LATE_MARK))
		return index_cas(table->reef, reading->slot_at, reading->slot,
				 slot, before);
	/* In one extent, so on one node: in this order (F3a). */
	rc = reef_execute(table->reef, accesses, together ? 2 : 1);
	if (!rc && !together)
		rc = reef_execute(table->reef, accesses + 1, 1);
	if (!rc) {
		*before = accesses[1].result;
		return *before == reading->slot;
	}
	if (rc != -REEF_EINDOUBT)
		return rc;
	return hash_swap_settle(table, reading, slot, before);
}

/* Change the slot of a key that is there to *slot, and free the old entry.
 * -EAGAIN: another was quicker, or its subtable was
 * split. */
static int update_slot(struct hash_table *table,
		       const struct hash_reading *reading, uint64_t slot)
{
	uint64_t before;
	int rc;

	if (reading->slot & HASH_FROZEN) {
		rc = hash_split(table, reading->hash, reading->depth);
		return rc ? rc : -EAGAIN;
	}
	rc = swap_entry(table, reading, slot, &before);
	/* Whatever the slot is now, it is not what was remembered. */
	hash_remember(table, reading, 0, 0, 0, 0);
	if (rc <= 0)
		return rc ? rc : -EAGAIN;
	entry_free(&table->home, reading->entry_at);
	return 0;
}

/* Make the entry to put, unless the one that was written ahead will do. */
static int prepare_entry(struct hash_table *table, struct entry_change *change,
			 const struct entry *put, struct entry_fresh *fresh)
{
	if (fresh->at && change->ahead)
		return 0;
	entry_fresh_drop(&table->home, fresh, true);
	return entry_fresh_make(&table->home, change->key, change->key_size,
				put, fresh);
}

/* Go on with another block, if one was made ahead. A value that is staged has
 * but one. */
static int change_block(struct hash_table *table, struct entry_change *change,
			struct entry_fresh *fresh, uint32_t attempt)
{
	if (fresh->staged)
		return attempt < STAGED_ATTEMPTS ? 0 : -EBUSY;
	entry_fresh_drop(&table->home, fresh, true);
	return change->ahead
		       ? prepare_entry(table, change, change->ahead, fresh)
		       : 0;
}

static int put_entry(struct hash_table *table, struct entry_change *change,
		     struct hash_reading *reading, struct entry_fresh *fresh)
{
	uint64_t slot_at = reading->slot_at, slot;
	int rc = entry_fresh_write(&table->home, fresh);

	if (rc)
		return rc;
	if (!reading->status) {
		slot = hash_tagged(reading->slot,
				   hash_fresh_content(reading, fresh));
		rc = update_slot(table, reading, slot);
	} else {
		rc = hash_insert(table, reading, fresh, &slot_at, &slot);
	}
	if (!rc) {
		change->version = fresh->bytes->version;
		hash_remember(table, reading, slot_at, slot, fresh->at,
			      change->version);
	}
	/* After a doubt a slot may name the entry, so its block stays: recovery
	 * asks is_live when our session has ended. */
	if (!rc || rc == -REEF_EINDOUBT || rc == -ETIMEDOUT)
		entry_fresh_drop(&table->home, fresh, false);
	return rc;
}

/* Find the key, let decide() decide, and do that. *is_decided: the error that
 * is returned is decide's.  -EINPROGRESS: as hash_intent_pass. */
static int apply_once(struct hash_table *table, struct entry_change *change,
		      struct hash_reading *reading, struct entry_fresh *fresh,
		      struct intent_wait *wait, bool *is_decided)
{
	struct entry put = {0};
	int rc, verdict;

	rc = hash_find_along(table, reading, fresh, 1);
	if (!rc && reading->status == -EALREADY)
		return change->gently
			       ? 0
			       : hash_intent_pass(table, reading->slot_at,
						  reading->slot,
						  &reading->intent, wait);
	if (!rc && reading->status != -ENOENT)
		rc = reading->status;
	if (rc)
		return rc;
	verdict =
		change->decide(change->context,
			       reading->status ? NULL : &reading->entry, &put);
	*is_decided = verdict < 0;
	if (verdict < 0 || verdict == ENTRY_KEEP)
		return verdict;
	if (verdict == ENTRY_DELETE)
		return reading->status
			       ? 0
			       : update_slot(table, reading,
					     hash_emptied(reading->slot));
	rc = prepare_entry(table, change, &put, fresh);
	return rc ? rc : put_entry(table, change, reading, fresh);
}

static int apply_inside(struct hash_table *table, struct entry_change *change,
			struct intent_wait *wait, bool *is_decided)
{
	struct hash_reading reading;
	struct entry_fresh fresh = {0};
	uint32_t attempt = 0;
	void *room;
	int rc = 0;

	room = entry_spare_take(&table->home, ENTRY_SPARE);
	if (!room)
		return -ENOMEM;
	hash_reading_begin(&reading, change->key, change->key_size, room,
			   ENTRY_SPARE);
	reading.to_change = true;
	reading.blind = change->blind;
	reef_enter(table->reef);
	if (change->ahead)
		rc = prepare_entry(table, change, change->ahead, &fresh);
	while (!rc) {
		rc = apply_once(table, change, &reading, &fresh, wait,
				is_decided);
		if (rc != -EAGAIN || *is_decided)
			break;
		rc = ++attempt < ATTEMPTS_MAX ? index_pause(attempt) : -EBUSY;
		if (!rc && attempt % BLOCK_ATTEMPTS == 0)
			rc = change_block(table, change, &fresh, attempt);
	}
	entry_fresh_drop(&table->home, &fresh, true);
	reef_leave(table->reef);
	entry_spare_give(&table->home, reading.room.bytes, reading.room.size);
	return rc;
}

int hash_apply(struct hash_table *table, struct entry_change *change)
{
	struct reef_patience patience = {0};
	struct intent_wait wait = {0};
	bool is_decided = false;
	int rc, waited;

	if (change->key_size > ENTRY_KEY_MAX)
		return -EINVAL;
	for (;;) {
		rc = apply_inside(table, change, &wait, &is_decided);
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
		waited = reef_await_memory(table->space, &patience);
		if (waited)
			return waited == -ENOSPC ? rc : waited;
	}
}
