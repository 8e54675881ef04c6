/* insert.c - the first slot of a key: (1) of table.h.
 *
 *   empty --CAS--> provisional --looked, alone: CAS--> confirmed
 *                       |--another of the key is confirmed, or is provisional
 *                       |  at a lower place: withdrawn by ourselves
 *                       |--taken away by one at a lower place
 *                       \--frozen: the split drops it
 *
 * Whoever is at the lower place goes on; it takes the other's slot away before
 * it confirms. If that fails, the other has confirmed (or changed its mind),
 * and we withdraw. */
#include "index/hash/internal.h"

#include <errno.h>
#include <string.h>

#define LOOKS 64   /* at places that change while we look */
#define SUSPECT 3u /* attempts after which we ask whether it lives */

struct insertion {
	struct hash_table *table;
	struct hash_reading *reading; /* of the key; its slots are re-read */
	struct hash_reading other;    /* room for others' entries */
	uint64_t at, word;	      /* our slot */
};

static uint64_t slot_of(const struct hash_reading *reading, uint32_t i)
{
	return reading->slots[i / HASH_PLACE_SLOTS][i % HASH_PLACE_SLOTS];
}

static uint32_t count_empty(const struct hash_reading *reading, uint32_t place)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < HASH_PLACE_SLOTS; i++)
		count += !hash_slot_block(reading->slots[place][i]);
	return count;
}

/* The emptier place; there the main bucket first, as the overflow is shared.
 * False: both are full. */
static bool choose(const struct hash_reading *reading, uint32_t *out)
{
	uint32_t place = count_empty(reading, 1) > count_empty(reading, 0);
	bool second = (reading->place[place] - HASH_SUBTABLE_HEADER) %
		      HASH_GROUP_SIZE;
	uint32_t i, at;

	for (i = 0; i < HASH_PLACE_SLOTS; i++) {
		at = place * HASH_PLACE_SLOTS +
		     (second ? HASH_PLACE_SLOTS - 1 - i : i);
		if (!hash_slot_block(slot_of(reading, at))) {
			*out = at;
			return true;
		}
	}
	return false;
}

/* CAS into the slot and READ both places after it (F3b): one round trip.
 * 1: taken. */
static int take(struct insertion *insertion, uint64_t before)
{
	struct hash_reading *reading = insertion->reading;
	struct reef_access accesses[3] = {
		{
			.kind = REEF_CAS,
			.address = insertion->at,
			.compare = before,
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
		return accesses[0].result == before;
	if (rc != -REEF_EINDOUBT)
		return rc;
	/* Only we write that word. Gone already: taken away, so withdrawn. */
	rc = reef_read(insertion->table->reef, insertion->at, &now, 8);
	if (rc)
		return rc;
	if (now != insertion->word)
		return 0;
	return reef_execute(insertion->table->reef, accesses + 1, 2) ?: 1;
}

static int look_again(struct insertion *insertion)
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

/* Whatever became of it meanwhile, it is not ours any more. */
static int withdraw(struct insertion *insertion)
{
	uint64_t before;
	int rc = hash_cas(insertion->table, insertion->at, insertion->word,
			  hash_slot_after(insertion->word, 0), &before);

	return rc < 0 && rc != -REEF_EINDOUBT ? rc : -EAGAIN;
}

/* Is the owner of the entry that a provisional slot names dead? */
static bool is_dead(struct insertion *insertion, uint64_t slot)
{
	enum reef_session_view view;
	uint64_t at, header;

	if (reef_long_address(insertion->table->space, hash_slot_block(slot),
			      &at) ||
	    reef_read(insertion->table->reef, at - 8, &header, 8))
		return false;
	return !reef_session_look(insertion->table->reef,
				  (uint32_t)(header >> 32), &view) &&
	       view == REEF_VIEW_ENDED;
}

/* 1: it is out of the way.  0: it is not. */
static int take_away(struct insertion *insertion, uint64_t at, uint64_t slot)
{
	uint64_t before;
	int rc = hash_cas(insertion->table, at, slot, hash_slot_after(slot, 0),
			  &before);

	return rc == -REEF_EINDOUBT ? 0 : rc;
}

/* Another slot with our fingerprint. 1: it is in nobody's way.  -EAGAIN: it is
 * the key's, and we have withdrawn.  0: it changed, look again. */
static int judge(struct insertion *insertion, uint64_t at, uint64_t slot)
{
	struct hash_reading *reading = insertion->reading;
	const struct hash_entry_head *head;
	uint64_t entry_at;
	int rc;

	if (slot & HASH_FROZEN)
		/* A split is under way: it will drop our slot. */
		return withdraw(insertion);
	rc = hash_read_entry(insertion->table, &insertion->other, slot,
			     &entry_at);
	if (rc < 0)
		return rc;
	if (!rc) {
		/* Its entry is gone, so its slot should have changed; or its
		 * owner died, and recovery was here first. */
		if (slot & HASH_PROVISIONAL && is_dead(insertion, slot))
			return take_away(insertion, at, slot);
		return 0;
	}
	head = insertion->other.room;
	if (hash_key_size(head) != reading->key_size ||
	    memcmp(head + 1, reading->key, reading->key_size) != 0)
		return 1;
	if (!(slot & HASH_PROVISIONAL))
		return withdraw(insertion);
	if (at > insertion->at ||
	    (reading->attempts++ >= SUSPECT && is_dead(insertion, slot))) {
		rc = take_away(insertion, at, slot);
		if (rc)
			return rc;
	}
	return withdraw(insertion);
}

/* Is ours the only slot of the key? 1: yes.  0: look again.  -EAGAIN: no, and
 * we have withdrawn. */
static int look_around(struct insertion *insertion)
{
	const struct hash_reading *reading = insertion->reading;
	uint64_t slot, at;
	int rc;

	for (uint32_t i = 0; i < 2 * HASH_PLACE_SLOTS; i++) {
		slot = slot_of(reading, i);
		at = hash_slot_address(reading, i);
		if (at == insertion->at || !hash_slot_block(slot) ||
		    hash_slot_print(slot) != reading->print)
			continue;
		rc = judge(insertion, at, slot);
		if (rc != 1)
			return rc;
	}
	return 1;
}

static int confirm(struct insertion *insertion)
{
	uint64_t before;
	int rc = hash_cas(
		insertion->table, insertion->at, insertion->word,
		hash_slot_after(insertion->word,
				insertion->word & (HASH_PROVISIONAL - 1)),
		&before);

	if (rc < 0)
		return rc;
	return rc ? 0 : -EAGAIN;
}

static int settle(struct insertion *insertion)
{
	int rc, looks;

	if (hash_mutant == HASH_MUTANT_NO_REREAD)
		return confirm(insertion);
	for (looks = 0; looks < LOOKS; looks++) {
		rc = look_around(insertion);
		if (rc == 1)
			return confirm(insertion);
		if (!rc)
			rc = look_again(insertion);
		if (rc)
			return rc;
	}
	return withdraw(insertion);
}

int hash_insert(struct hash_table *table, struct hash_reading *reading,
		uint64_t content, uint64_t *slot_at, uint64_t *slot)
{
	struct insertion insertion = {.table = table, .reading = reading};
	uint32_t at;
	uint64_t before;
	int rc;

	if (!choose(reading, &at) || slot_of(reading, at) & HASH_FROZEN) {
		rc = hash_split(table, reading->hash, reading->depth);
		return rc ? rc : -EAGAIN;
	}
	before = slot_of(reading, at);
	insertion.at = hash_slot_address(reading, at);
	insertion.word = hash_slot_after(before, content | HASH_PROVISIONAL);
	rc = take(&insertion, before);
	if (rc == 1)
		rc = settle(&insertion);
	else if (!rc)
		rc = -EAGAIN;
	*slot_at = insertion.at;
	*slot = insertion.word;
	hash_reading_free(&insertion.other);
	return rc;
}
