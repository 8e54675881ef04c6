/* insert.c - the first slot of a key: (1) of table.h.
 *
 *   empty --CAS--> provisional --looked, alone: CAS--> confirmed
 *                       |--another of the key is confirmed, or is provisional
 *                       |  at a lower place: withdrawn by ourselves
 *                       |--taken away by one at a lower place
 *                       \--frozen: the split drops it
 *
 * Whoever is at the lower place goes on, or has lost a few times already; it
 * takes the other's slot away before it confirms. If that fails, the other has
 * confirmed (or changed its mind), and we withdraw. */
#include "index/hash/internal.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

#define LOOKS 64   /* READs of places that change meanwhile */
#define PATIENT 8u /* times that one at a lower place may keep us away */

static uint64_t slot_of(const struct hash_reading *reading, uint32_t i)
{
	return reading->slots[i / HASH_PLACE_SLOTS][i % HASH_PLACE_SLOTS];
}

static uint32_t count_empty(const struct hash_reading *reading, uint32_t place)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < HASH_PLACE_SLOTS; i++)
		count += hash_slot_is_empty(reading->slots[place][i]);
	return count;
}

static bool is_in(const uint64_t *list, uint32_t count, uint64_t word)
{
	for (uint32_t i = 0; i < count; i++)
		if (list[i] == word)
			return true;
	return false;
}

/* The slot is in the emptier place; there the main bucket comes first, as the
 * overflow is shared with other keys. */
bool hash_insertion_choose(struct hash_insertion *insertion, uint64_t content,
			   const uint64_t * not, uint32_t not_count)
{
	const struct hash_reading *reading = insertion->reading;
	uint32_t place = count_empty(reading, 1) > count_empty(reading, 0);
	bool second = (reading->place[place] - HASH_SUBTABLE_HEADER) %
		      HASH_GROUP_SIZE;
	uint64_t slot, address;
	uint32_t i, at;

	for (i = 0; i < HASH_PLACE_SLOTS; i++) {
		at = place * HASH_PLACE_SLOTS +
		     (second ? HASH_PLACE_SLOTS - 1 - i : i);
		slot = slot_of(reading, at);
		address = hash_slot_address(reading, at);
		if (!hash_slot_is_empty(slot) || is_in(not, not_count, address))
			continue;
		if (slot & HASH_FROZEN)
			return false;
		insertion->at = address;
		insertion->before = slot;
		insertion->word =
			hash_slot_after(slot, content | HASH_PROVISIONAL);
		return true;
	}
	return false;
}

/* CAS into the slot and READ both places after it (F3b): one round trip.
 * 1: taken. */
static int take_slot(struct hash_insertion *insertion)
{
	struct hash_reading *reading = insertion->reading;
	struct reef_access accesses[3] = {
		{
			.kind = REEF_CAS,
			.address = insertion->at,
			.compare = insertion->before,
			.operand = insertion->word,
		},
		{
			.kind = REEF_READ,
			.address = reading->leaf + reading->place[0],
			.local = reading->slots[0],
			.length = HASH_PLACE_SIZE,
		},
		{
			.kind = REEF_READ,
			.address = reading->leaf + reading->place[1],
			.local = reading->slots[1],
			.length = HASH_PLACE_SIZE,
		},
	};
	uint64_t now;
	int rc;

	rc = reef_execute(insertion->table->reef, accesses, 3);
	if (!rc)
		return accesses[0].result == insertion->before;
	if (rc != -REEF_EINDOUBT)
		return rc;
	/* Only we write that word. If it is gone, another has taken it away. */
	rc = reef_read(insertion->table->reef, insertion->at, &now, 8);
	if (rc)
		return rc;
	if (now != insertion->word)
		return 0;
	rc = reef_execute(insertion->table->reef, accesses + 1, 2);
	return rc ? rc : 1;
}

static int reread_places(struct hash_insertion *insertion)
{
	struct hash_reading *reading = insertion->reading;
	struct reef_access accesses[2];

	for (uint32_t i = 0; i < 2; i++)
		accesses[i] = (struct reef_access){
			.kind = REEF_READ,
			.address = reading->leaf + reading->place[i],
			.local = reading->slots[i],
			.length = HASH_PLACE_SIZE,
		};
	return reef_execute(insertion->table->reef, accesses, 2);
}

/* Take our provisional slot away.  -EAGAIN: it is not ours any more, whatever
 * became of it. */
static int withdraw_slot(struct hash_insertion *insertion)
{
	uint64_t before;
	int rc = index_cas(insertion->table->reef, insertion->at,
			   insertion->word, hash_emptied(insertion->word),
			   &before);

	return rc < 0 && rc != -REEF_EINDOUBT ? rc : -EAGAIN;
}

/* Take another's provisional slot away.  1: done.  0: it has changed, or it is
 * in doubt. */
static int take_rival_away(struct hash_insertion *insertion, uint64_t at,
			   uint64_t slot)
{
	uint64_t before;
	int rc = index_cas(insertion->table->reef, at, slot, hash_emptied(slot),
			   &before);

	return rc == -REEF_EINDOUBT ? 0 : rc;
}

/* READ the entry of another slot; a transaction's line tells which it is.  1:
 * whole.  0: it is not. */
static int read_rival(struct hash_insertion *insertion, uint64_t slot)
{
	struct intent intent;
	uint64_t entry_at;
	int rc;

	if (slot & HASH_INTENT) {
		rc = hash_intent_read(insertion->table, slot, &intent);
		if (rc)
			return rc;
		slot = intent.line.old & HASH_CONTENT;
	}
	return hash_read_entry(insertion->table, insertion->other, slot,
			       &entry_at);
}

/* Judge another slot with our fingerprint.  1: it is another key's.  -EAGAIN:
 * it is our key's, and we have withdrawn.  0: it changed, look again.
 * -REEF_ECORRUPT: what it names is no entry, however often it is read. */
static int judge_rival(struct hash_insertion *insertion, uint64_t at,
		       uint64_t slot)
{
	struct hash_reading *reading = insertion->reading;
	const struct entry_head *head;
	int rc;

	if (slot & HASH_FROZEN) {
		/* A split is under way, which drops provisional slots. Nobody
		 * may be at it any more. */
		rc = withdraw_slot(insertion);
		if (rc == -EAGAIN && reading->losses++ >= PATIENT)
			rc = hash_split(insertion->table, reading->hash,
					reading->depth);
		return rc ? rc : -EAGAIN;
	}
	rc = read_rival(insertion, slot);
	if (rc < 0)
		return rc;
	if (!rc) {
		/* The entry is gone, so the slot should have changed. */
		if (slot & HASH_PROVISIONAL && reading->losses++ >= PATIENT)
			return take_rival_away(insertion, at, slot);
		return insertion->unsound++ < ENTRY_UNSOUND_MAX
			       ? 0
			       : -REEF_ECORRUPT;
	}
	head = insertion->other->room.bytes;
	if (entry_key_size(head) != reading->key_size ||
	    memcmp(head + 1, reading->key, reading->key_size) != 0)
		return 1;
	if (!(slot & HASH_PROVISIONAL))
		return withdraw_slot(insertion);
	/* It is safe whichever of the two goes on, and the rule is only for
	 * progress. So after PATIENT losses nobody waits for a client that
	 * stands still or gave up. */
	if (at > insertion->at || reading->losses++ >= PATIENT) {
		rc = take_rival_away(insertion, at, slot);
		if (rc)
			return rc;
	}
	return withdraw_slot(insertion);
}

int hash_insertion_check_rivals(struct hash_insertion *insertion)
{
	const struct hash_reading *reading = insertion->reading;
	uint64_t slot, at;
	int rc;

	for (uint32_t i = 0; i < 2 * HASH_PLACE_SLOTS; i++) {
		slot = slot_of(reading, i);
		at = hash_slot_address(reading, i);
		if (at == insertion->at || hash_slot_is_empty(slot) ||
		    hash_slot_print(slot) != reading->print)
			continue;
		rc = judge_rival(insertion, at, slot);
		if (rc != 1)
			return rc;
	}
	return 1;
}

static int confirm_slot(struct hash_insertion *insertion)
{
	uint64_t before;
	int rc = index_cas(insertion->table->reef, insertion->at,
			   insertion->word, hash_insertion_confirmed(insertion),
			   &before);

	if (rc < 0)
		return rc;
	return rc ? 0 : -EAGAIN;
}

int hash_insertion_settle(struct hash_insertion *insertion)
{
	int rc, looks;

	if (REEF_MUTATED(HASH_NO_REREAD))
		return confirm_slot(insertion);
	for (looks = 0; looks < LOOKS; looks++) {
		rc = hash_insertion_check_rivals(insertion);
		if (rc == 1)
			return confirm_slot(insertion);
		if (!rc)
			rc = reread_places(insertion);
		if (rc)
			return rc;
	}
	return withdraw_slot(insertion);
}

int hash_insertion_retry(struct hash_insertion *insertion)
{
	int rc = reread_places(insertion);

	return rc ? rc : hash_insertion_settle(insertion);
}

void hash_insertion_end(struct hash_insertion *insertion,
			struct entry_fresh *fresh, int rc)
{
	if (!rc || rc == -EAGAIN)
		return;
	fresh->is_named =
		rc == -REEF_EINDOUBT || withdraw_slot(insertion) != -EAGAIN;
}

int hash_insert(struct hash_table *table, struct hash_reading *reading,
		struct entry_fresh *fresh, uint64_t *slot_at, uint64_t *slot)
{
	struct hash_reading other = {0};
	struct hash_insertion insertion = {
		.table = table,
		.reading = reading,
		.other = &other,
	};
	int rc;

	if (!hash_insertion_choose(
		    &insertion, hash_fresh_content(reading, fresh), NULL, 0)) {
		rc = hash_split(table, reading->hash, reading->depth);
		return rc ? rc : -EAGAIN;
	}
	rc = take_slot(&insertion);
	if (rc == 1)
		rc = hash_insertion_settle(&insertion);
	else if (!rc)
		rc = -EAGAIN;
	hash_insertion_end(&insertion, fresh, rc);
	*slot_at = insertion.at;
	*slot = hash_insertion_confirmed(&insertion);
	hash_reading_free(&other);
	return rc;
}
