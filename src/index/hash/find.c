/* find.c - looking keys up, many at once in shared batches.
 *
 *   MEMO --READ the entry: still the key's, and live--> found
 *     |  else
 *     v
 *   PLACES --READ both places--> ENTRY --READ an entry--> found
 *     ^   \--no slot has its fingerprint--> not there  |--another key's: the
 *     |                                                |  next slot
 *     +---- the directory, the slot or the entry changed meanwhile
 *
 * Where a slot is an intent, its line and status tell which entry counts.
 *
 * (R4) "Not there" is said only when both places were read whole, in a subtable
 * that was in use at that moment, and no slot there was the key's. */
#include "index/hash/place.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RESTARTS_MAX 100000u

enum { MEMO, PLACES, ENTRY, FOUND };

/* One batch of accesses for several readings. */
struct round {
	struct reef_access *accesses;
	uint32_t count;
	struct entry_fresh *along; /* entries that are written first */
	uint32_t along_count;
	uint64_t words[HASH_TOGETHER]; /* of the directory */
	bool has_word[HASH_TOGETHER];
	uint64_t alive; /* of the root; read if any has a word */
	bool has_alive;
};

void hash_reading_free(struct hash_reading *reading)
{
	entry_room_free(&reading->room);
}

/* --- which slot is next --- */

/* Go on to the next slot that may be the key's. slot_at counts slots here; it
 * is an address when the key was found. */
static bool next_candidate(struct hash_reading *reading)
{
	uint64_t slot, at = reading->slot_at;

	for (; at < (uint64_t)2 * HASH_PLACE_SLOTS; at++) {
		slot = reading->slots[at / HASH_PLACE_SLOTS]
				     [at % HASH_PLACE_SLOTS];
		if (hash_slot_block(slot) && !(slot & HASH_PROVISIONAL) &&
		    hash_slot_print(slot) == reading->print) {
			reading->slot_at = at;
			reading->slot = slot;
			return true;
		}
	}
	return false;
}

static int restart_reading(struct hash_reading *reading)
{
	reading->phase = PLACES;
	if (++reading->attempts > RESTARTS_MAX)
		return -EBUSY;
	return index_pause(reading->attempts);
}

/* --- what is remembered --- */

void hash_remember(struct hash_table *table, const struct hash_reading *reading,
		   uint64_t slot_at, uint64_t slot, uint64_t entry_at,
		   uint64_t version)
{
	struct hash_memo *memo = hash_memo_of(table, reading->hash);

	if (!slot_at && memo->hash != reading->hash)
		return;
	*memo = (struct hash_memo){
		.hash = reading->hash,
		.version = slot_at ? version : 0,
		.entry_at = entry_at,
		.slot_at = slot_at,
		.slot = slot,
		.epoch = reef_epoch(table->reef),
		.depth = reading->depth,
	};
}

/* True if a place is remembered that is good for this reading. To change a key,
 * its slot must be the one it was: (4); and an entry that is not read whole has
 * no checksum to tell that its block was reused. */
static bool has_memo(struct hash_table *table, struct hash_reading *reading)
{
	const struct hash_memo *memo = hash_memo_of(table, reading->hash);

	if (!memo->version || memo->hash != reading->hash)
		return false;
	if (!reading->to_change && !reading->blind)
		return true;
	return memo->epoch == reef_epoch(table->reef) &&
	       !(memo->slot & HASH_FROZEN);
}

/* --- places --- */

static int find_leaf(struct hash_table *table, struct hash_reading *reading,
		     struct hash_leaf **leaf)
{
	int rc;

	while (!(*leaf = hash_leaf_known(table, reading->hash))) {
		rc = hash_leaf_discover(table, reading->hash);
		if (rc == -EAGAIN)
			rc = restart_reading(reading);
		if (rc)
			return rc;
	}
	return 0;
}

static void add_read(struct round *round, uint64_t address, void *to,
		     uint32_t length)
{
	round->accesses[round->count++] = (struct reef_access){
		.kind = REEF_READ,
		.address = address,
		.local = to,
		.length = length,
	};
}

static int begin_places(struct hash_table *table, struct hash_reading *reading,
			struct round *round, uint32_t index)
{
	struct hash_leaf *leaf;
	uint64_t at;
	int rc = find_leaf(table, reading, &leaf);

	if (rc)
		return rc;
	reading->leaf = leaf->subtable;
	reading->depth = leaf->depth;
	round->has_word[index] = leaf->epoch != reef_epoch(table->reef);
	if (round->has_word[index]) {
		/* (4): the subtable's memory may be another's by now. */
		rc = hash_word_at(table, leaf->depth,
				  hash_suffix(reading->hash, leaf->depth), &at);
		if (rc)
			return rc;
		add_read(round, at, &round->words[index], 8);
		if (!round->has_alive)
			add_read(round, hash_alive_at(table), &round->alive, 8);
		round->has_alive = true;
	}
	add_read(round, reading->leaf + reading->place[0], reading->slots[0],
		 HASH_PLACE_SIZE);
	add_read(round, reading->leaf + reading->place[1], reading->slots[1],
		 HASH_PLACE_SIZE);
	return 0;
}

static bool any_frozen(const struct hash_reading *reading)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < HASH_PLACE_SLOTS; i++)
		all |= reading->slots[0][i] | reading->slots[1][i];
	return all & HASH_FROZEN;
}

/* 1: the subtable that was read is still in use.  0: it is not. */
static int is_leaf_still(struct hash_table *table,
			 const struct hash_reading *reading)
{
	return hash_leaf_is_current(table, reading->hash, reading->depth,
				    reading->leaf);
}

static int follow_changed_leaf(struct hash_table *table,
			       struct hash_reading *reading)
{
	int rc = hash_leaf_discover(table, reading->hash);

	if (rc && rc != -EAGAIN)
		return rc;
	return restart_reading(reading);
}

static int end_places(struct hash_table *table, struct hash_reading *reading,
		      const struct round *round, uint32_t index)
{
	struct hash_leaf *leaf;
	int rc;

	if (round->has_word[index]) {
		if (round->alive != table->id)
			return -REEF_EDROPPED;
		if (round->words[index] != (reading->leaf | HASH_LEAF))
			return follow_changed_leaf(table, reading);
		leaf = hash_leaf_known(table, reading->hash);
		/* Another fiber may have found a newer leaf. */
		if (leaf->subtable == reading->leaf)
			leaf->epoch = reef_epoch(table->reef);
	}
	if (any_frozen(reading) && !REEF_MUTATED(HASH_NO_FREEZE)) {
		rc = is_leaf_still(table, reading);
		if (rc < 0)
			return rc;
		if (!rc)
			return follow_changed_leaf(table, reading);
	}
	reading->slot_at = 0;
	if (!next_candidate(reading))
		return -ENOENT;
	reading->phase = ENTRY;
	return 0;
}

/* --- entries --- */

static int begin_memo(struct hash_table *table, struct hash_reading *reading,
		      struct round *round)
{
	const struct hash_memo *memo = hash_memo_of(table, reading->hash);
	uint32_t size = hash_entry_read_size(table, memo->slot, memo->entry_at);
	int rc = entry_room_need(&reading->room, size);

	/* Copied, because another fiber may remember another key there while
	 * this one waits. */
	reading->entry_at = memo->entry_at;
	reading->version = memo->version;
	reading->slot_at = memo->slot_at;
	reading->slot = memo->slot;
	reading->depth = memo->depth;
	if (!rc)
		add_read(round, reading->entry_at, reading->room.bytes, size);
	return rc;
}

/* Find out what names the entry of a slot. One that the key's transaction has
 * deleted is read for its key: then it is the one before. */
static int find_content(struct hash_table *table, struct hash_reading *reading)
{
	int rc;

	reading->content = reading->slot;
	reading->is_held = reading->slot & HASH_INTENT;
	if (!reading->is_held)
		return 0;
	rc = hash_intent_read(table, reading->slot, &reading->intent);
	if (rc)
		return rc;
	reading->content = hash_intent_content(&reading->intent);
	if (hash_slot_is_empty(reading->content))
		reading->content = reading->intent.line.old & HASH_CONTENT;
	return 0;
}

static int begin_entry(struct hash_table *table, struct hash_reading *reading,
		       struct round *round)
{
	uint32_t size;
	int rc = find_content(table, reading);

	if (!rc)
		rc = reef_long_address(table->space,
				       hash_slot_block(reading->content),
				       &reading->entry_at);
	if (rc)
		return rc;
	size = hash_entry_read_size(table, reading->content, reading->entry_at);
	rc = entry_room_need(&reading->room, size);
	if (!rc)
		add_read(round, reading->entry_at, reading->room.bytes, size);
	return rc;
}

static inline bool is_key(const struct hash_reading *reading)
{
	return entry_is_of(reading->room.bytes, reading->key,
			   reading->key_size);
}

static void note_found(struct hash_reading *reading)
{
	reading->entry = entry_view(reading->room.bytes);
	reading->phase = FOUND;
	reading->status = 0;
}

/* Note that the key was found through its slot, and remember that. */
static void note_found_in_slot(struct hash_table *table,
			       struct hash_reading *reading)
{
	note_found(reading);
	reading->slot_at = hash_slot_address(reading, reading->slot_at);
	hash_remember(table, reading, reading->slot_at, reading->slot,
		      reading->entry_at, reading->entry.version);
}

static int end_memo(struct hash_table *table, struct hash_reading *reading)
{
	const struct entry_head *head;
	int rc;

	rc = hash_entry_complete(
		table, reading, reading->entry_at,
		hash_entry_read_size(table, reading->slot, reading->entry_at));
	if (rc < 0)
		return rc;
	head = reading->room.bytes;
	if (rc && head->live == head->version &&
	    head->version == reading->version && is_key(reading))
		note_found(reading);
	else
		reading->phase = PLACES;
	return 0;
}

static int go_to_next_candidate(struct hash_reading *reading)
{
	reading->slot_at++;
	return next_candidate(reading) ? 0 : -ENOENT;
}

/* End with the entry that the status of an intent told, whatever its `live` is.
 * (R10) It was named since we entered, so it is whole. */
static int end_held(struct hash_reading *reading, bool is_sound)
{
	if (!is_sound)
		return -REEF_ECORRUPT;
	if (!is_key(reading))
		return go_to_next_candidate(reading);
	note_found(reading);
	reading->slot_at = hash_slot_address(reading, reading->slot_at);
	if (reading->to_change)
		return -EALREADY;
	return hash_slot_is_empty(hash_intent_content(&reading->intent))
		       ? -ENOENT
		       : 0;
}

static int end_entry(struct hash_table *table, struct hash_reading *reading)
{
	const struct entry_head *head;
	uint64_t now;
	bool live, sound;
	int rc;

	rc = hash_entry_complete(table, reading, reading->entry_at,
				 hash_entry_read_size(table, reading->content,
						      reading->entry_at));
	if (rc < 0)
		return rc;
	if (reading->is_held)
		return end_held(reading, rc);
	head = reading->room.bytes;
	live = rc && head->live == head->version;
	if (live && is_key(reading)) {
		note_found_in_slot(table, reading);
		return 0;
	}
	if (live)
		return go_to_next_candidate(reading);
	if (REEF_MUTATED(HASH_TORN_ABSENT))
		return -ENOENT;
	/* (2): the slot was changed since the places were read, or the entry is
	 * not live for good. */
	sound = rc;
	rc = reef_read(table->reef,
		       hash_slot_address(reading, reading->slot_at), &now, 8);
	if (rc)
		return rc;
	if (!sound) {
		if (now == reading->slot &&
		    reading->attempts > ENTRY_UNSOUND_MAX)
			return -REEF_ECORRUPT;
		return restart_reading(reading);
	}
	if ((now & ~HASH_FROZEN) != (reading->slot & ~HASH_FROZEN))
		return restart_reading(reading);
	if (now & HASH_FROZEN) {
		rc = is_leaf_still(table, reading);
		if (rc < 0)
			return rc;
		if (!rc)
			return follow_changed_leaf(table, reading);
	}
	if (!is_key(reading))
		return go_to_next_candidate(reading);
	note_found_in_slot(table, reading);
	return 0;
}

/* --- all of them --- */

/* After an error: memory that was remembered may be gone, so readings that went
 * by it go by their places. False: none did. */
static bool forget_memos(struct hash_reading *readings, uint32_t count,
			 const bool *began, bool *done)
{
	bool any = false;

	for (uint32_t i = 0; i < count; i++)
		if (began[i] && readings[i].phase == MEMO) {
			readings[i].phase = PLACES;
			any = true;
		}
	*done = !any;
	return any;
}

/* True if the memory of some key of a batch is lost, or is none. */
static bool is_of_one_key(int rc)
{
	return rc == -REEF_ELOST || rc == -EFAULT;
}

/* After such an error: a subtable that was remembered from another epoch may be
 * gone with its memory, so the directory is asked. False: none was. */
static bool follow_leaves(struct hash_table *table,
			  struct hash_reading *readings, uint32_t count,
			  const bool *began, const struct round *round,
			  bool *done)
{
	bool any = false;

	for (uint32_t i = 0; i < count; i++) {
		struct hash_reading *reading = &readings[i];
		int rc;

		if (!began[i] || reading->phase != PLACES ||
		    !round->has_word[i])
			continue;
		rc = follow_changed_leaf(table, reading);
		if (rc)
			reading->status = rc;
		any = true;
	}
	*done = !any;
	return any;
}

static bool goes_along(const struct entry_fresh *fresh)
{
	return fresh->at && !fresh->written && fresh->size <= ENTRY_ALONG;
}

/* Do one batch for all readings that are not done. An error hits all of them.
 */
static int run_round(struct hash_table *table, struct hash_reading *readings,
		     uint32_t count, struct round *round, bool *done)
{
	struct hash_reading *reading;
	bool began[HASH_TOGETHER] = {false};
	uint32_t i;
	int rc;

	round->count = 0;
	round->has_alive = false;
	*done = true;
	for (i = 0; i < round->along_count; i++)
		if (goes_along(&round->along[i]))
			round->accesses[round->count++] =
				entry_fresh_access(&round->along[i]);
	for (i = 0; i < count; i++) {
		reading = &readings[i];
		if (reading->status != -EINPROGRESS)
			continue;
		if (reading->phase == MEMO)
			rc = begin_memo(table, reading, round);
		else if (reading->phase == PLACES)
			rc = begin_places(table, reading, round, i);
		else
			rc = begin_entry(table, reading, round);
		if (rc)
			reading->status = rc;
		else
			began[i] = true;
	}
	if (!round->count)
		return 0;
	rc = reef_execute(table->reef, round->accesses, round->count);
	if (rc == -REEF_EINDOUBT && round->along_count) {
		*done = false;
		return 0; /* nobody knows of that entry: write it again */
	}
	if (rc && forget_memos(readings, count, began, done))
		return 0;
	if (is_of_one_key(rc) &&
	    follow_leaves(table, readings, count, began, round, done))
		return 0;
	if (rc)
		return rc;
	for (i = 0; i < round->along_count; i++)
		if (goes_along(&round->along[i]))
			round->along[i].written = true;
	round->along_count = 0;
	for (i = 0; i < count; i++) {
		reading = &readings[i];
		if (!began[i])
			continue;
		if (reading->phase == MEMO)
			rc = end_memo(table, reading);
		else if (reading->phase == PLACES)
			rc = end_places(table, reading, round, i);
		else
			rc = end_entry(table, reading);
		if (rc)
			reading->status = rc;
		*done = *done && reading->status != -EINPROGRESS;
	}
	return 0;
}

static inline void begin_reading(struct hash_reading *reading)
{
	reading->is_held = false;
	reading->status =
		reading->key_size > ENTRY_KEY_MAX ? -EINVAL : -EINPROGRESS;
}

static void begin_readings(struct hash_table *table,
			   struct hash_reading *readings, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		hash_place(table, &readings[i]);
		begin_reading(&readings[i]);
	}
}

/* Look up what was not found in place. */
static __attribute__((noinline)) int find_rest(struct hash_table *table,
					       struct hash_reading *readings,
					       uint32_t count,
					       struct entry_fresh *along)
{
	struct reef_access accesses[4 * HASH_TOGETHER + 1];
	struct round round = {
		.accesses = accesses,
		.along = along,
		.along_count = along ? count : 0,
	};
	struct hash_reading *reading;
	bool done = false;
	int rc = 0;

	for (uint32_t i = 0; i < count; i++) {
		reading = &readings[i];
		/* Going by the places makes the next lookups near again. */
		reading->phase =
			has_memo(table, reading) &&
					!hash_near_is_stale(table, reading)
				? MEMO
				: PLACES;
		reading->attempts = 0;
	}
	while (!rc && !done)
		rc = run_round(table, readings, count, &round, &done);
	return rc;
}

/* Look up each key by itself, after a batch failed because of some memory: so
 * only keys that are there have an error. Nothing is written along. */
static int find_each(struct hash_table *table, struct hash_reading *readings,
		     uint32_t count)
{
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		if (readings[i].status != -EINPROGRESS)
			continue;
		rc = find_rest(table, &readings[i], 1, NULL);
		if (rc && !is_of_one_key(rc))
			return rc;
		if (rc)
			readings[i].status = rc;
	}
	return 0;
}

static int find_together(struct hash_table *table,
			 struct hash_reading *readings, uint32_t count,
			 struct entry_fresh *along)
{
	int rc = find_rest(table, readings, count, along);

	return is_of_one_key(rc) && count > 1
		       ? find_each(table, readings, count)
		       : rc;
}

int hash_find(struct hash_table *table, struct hash_reading *readings,
	      uint32_t count)
{
	uint32_t some;
	int rc = 0;

	for (; count && !rc; count -= some, readings += some) {
		some = count < HASH_TOGETHER ? count : HASH_TOGETHER;
		begin_readings(table, readings, some);
		if (hash_find_near(table, readings, some))
			rc = find_together(table, readings, some, NULL);
	}
	return rc;
}

int hash_find_placed(struct hash_table *table, struct hash_reading *reading)
{
	begin_reading(reading);
	if (!hash_find_near(table, reading, 1))
		return 0;
	return find_rest(table, reading, 1, NULL);
}

int hash_find_along(struct hash_table *table, struct hash_reading *readings,
		    struct entry_fresh *fresh, uint32_t count)
{
	reef_assert(count <= HASH_TOGETHER);
	begin_readings(table, readings, count);
	if (!hash_find_near(table, readings, count))
		return 0;
	return find_together(table, readings, count, fresh);
}

int hash_touch(struct hash_table *table, const struct hash_reading *reading,
	       uint16_t touched)
{
	struct reef_access access;
	int rc;

	if (reading->status)
		return -EINVAL;
	access = hash_touch_access(reading, &touched);
	rc = reef_execute(table->reef, &access, 1);
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

struct reef_access hash_touch_access(const struct hash_reading *reading,
				     const uint16_t *touched)
{
	return (struct reef_access){
		.kind = REEF_WRITE,
		.address = reading->entry_at +
			   offsetof(struct entry_head, touched),
		.local = (void *)(uintptr_t)touched,
		.length = sizeof(*touched),
	};
}

int hash_get(struct hash_table *table, struct hash_reading *readings,
	     uint32_t count)
{
	int rc;

	reef_enter(table->reef);
	rc = hash_find(table, readings, count);
	reef_leave(table->reef);
	return rc;
}
