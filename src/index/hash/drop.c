/* drop.c - the end of a table: (6) of table.h.
 *
 *   levels that are not there   DROPPED, so that none will be; a change whose
 *                               leaf needs one for a split drops that leaf
 *   leaf, one after the other   slots frozen -> live of its entries 0
 *                               -> word DROPPED; who did that frees both
 *     its children, of a split  -> DROPPED; who did that frees them. A split
 *     that was under way        that is late changes nothing that counts
 *   root                        alive 0: its handles learn it in the next epoch
 *   levels                      DROPPED; who did that frees them
 *
 * Every step is a CAS that one of several droppers wins, and can be done again.
 * Each leaf is done inside an enter of its own, at the beginning of which the
 * table was alive: so neither levels nor leaves are reused meanwhile. If the
 * winner of a CAS dies before it freed what it unlinked, is_live tells. */
#include "index/hash/place.h"

#include <errno.h>
#include <stdlib.h>

#define RETRIES 1000u
#define TOGETHER 64u /* entries that are looked at in one batch */

struct drop {
	struct hash_table *table;
	uint64_t *image; /* slots of a leaf */
	uint32_t place;	 /* as a cursor of walk.c: suffix, reversed */
	uint32_t depth;	 /* all above are SPLIT */
	/* Heads of entries, and which slots name them. */
	uint32_t reads_count;
	uint32_t slots[TOGETHER];
	struct entry_head heads[TOGETHER];
	struct reef_access reads[TOGETHER];
};

/* CAS a word of the directory from `before` to DROPPED.  1: we did, and so
 * unlinked what it named.  0: another was quicker, or it is in doubt. */
static int set_dropped(struct hash_table *table, uint64_t at, uint64_t before)
{
	uint64_t now;
	int rc = index_cas(table->reef, at, before, HASH_DROPPED, &now);

	return rc == -REEF_EINDOUBT ? 0 : rc;
}

/* True if an error says that a slot names nothing that could be marked. */
static bool is_no_entry(int rc)
{
	return index_is_nonsense(rc) || rc == -REEF_ELOST;
}

/* READ the heads that are due, and take slots that name no entry of this table
 * out of the image. */
static int check_some(struct drop *drop)
{
	struct hash_table *table = drop->table;
	uint32_t count = drop->reads_count;
	bool one_by_one =
		count && reef_execute(table->reef, drop->reads, count);
	int rc = 0;

	drop->reads_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		/* What stood behind an error was not done. */
		if (one_by_one)
			rc = reef_execute(table->reef, &drop->reads[i], 1);
		if (rc && !is_no_entry(rc))
			return rc;
		if (rc || !entry_is_ours(&table->home, &drop->heads[i]))
			drop->image[drop->slots[i]] = 0;
	}
	return 0;
}

/* (R10) A slot may name anything: what is another's, or nobody's, is neither
 * marked nor freed. */
static int check_entries(struct drop *drop)
{
	struct hash_table *table = drop->table;
	uint32_t slots = table->groups * HASH_GROUP_SLOTS, i, next;
	uint64_t at;
	int rc = 0;

	drop->reads_count = 0;
	for (i = 0; i < slots && !rc; i++) {
		if (!hash_slot_is_occupied(drop->image[i]))
			continue;
		rc = reef_long_address(table->space,
				       hash_slot_block(drop->image[i]), &at);
		if (rc && !is_no_entry(rc))
			return rc;
		if (rc) {
			drop->image[i] = 0;
			rc = 0;
			continue;
		}
		next = drop->reads_count++;
		drop->slots[next] = i;
		drop->reads[next] = (struct reef_access){
			.kind = REEF_READ,
			.address = at,
			.local = &drop->heads[next],
			.length = sizeof(drop->heads[next]),
		};
		if (drop->reads_count == TOGETHER)
			rc = check_some(drop);
	}
	return rc ? rc : check_some(drop);
}

static int mark_entries(struct drop *drop)
{
	static const uint64_t zero;
	struct hash_table *table = drop->table;
	struct index_batch batch = {.reef = table->reef};
	uint32_t slots = table->groups * HASH_GROUP_SLOTS, i;
	uint64_t at;
	int rc = 0;

	for (i = 0; i < slots && !rc; i++) {
		if (!hash_slot_is_occupied(drop->image[i]))
			continue;
		rc = reef_long_address(table->space,
				       hash_slot_block(drop->image[i]), &at);
		if (!rc)
			rc = index_batch_add(&batch,
					     (struct reef_access){
						     .kind = REEF_WRITE,
						     .address = at,
						     .local = (void *)&zero,
						     .length = 8,
					     });
	}
	return rc ? rc : index_batch_flush(&batch);
}

static void free_entries(struct drop *drop)
{
	struct hash_table *table = drop->table;
	uint32_t slots = table->groups * HASH_GROUP_SLOTS, i;
	uint64_t at;

	for (i = 0; i < slots; i++)
		if (hash_slot_is_occupied(drop->image[i]) &&
		    !reef_long_address(table->space,
				       hash_slot_block(drop->image[i]), &at))
			entry_free(&table->home, at);
}

static int drop_leaf(struct drop *drop, uint32_t suffix, uint64_t at,
		     uint64_t word)
{
	uint64_t subtable = hash_word_address(word);
	int rc =
		hash_subtable_check(drop->table, subtable, drop->depth, suffix);

	if (!rc)
		rc = hash_freeze(drop->table, subtable, drop->image);
	if (!rc)
		rc = check_entries(drop);
	if (!rc)
		rc = mark_entries(drop);
	if (!rc)
		rc = set_dropped(drop->table, at, word);
	if (rc <= 0)
		return rc;
	free_entries(drop);
	entry_free_later(&drop->table->home, subtable);
	return 0;
}

/* Drop the children of a leaf that is DROPPED: a split had made them, and they
 * were never in use. */
static int drop_children(struct drop *drop, uint32_t suffix)
{
	struct hash_table *table = drop->table;
	uint64_t at, word;
	uint32_t which;
	int rc;

	for (which = 0; which < 2; which++) {
		rc = hash_word_at(table, drop->depth + 1,
				  suffix | which << drop->depth, &at);
		if (rc)
			return rc == -EAGAIN || rc == -REEF_EDROPPED ? 0 : rc;
		do {
			rc = reef_read(table->reef, at, &word, 8);
			if (rc || word == HASH_DROPPED)
				break;
			rc = set_dropped(table, at, word);
			if (rc == 1 && hash_word_address(word))
				entry_free_later(&table->home,
						 hash_word_address(word));
		} while (!rc);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Do the next word on the way to the leaf.  1: the leaf is done.  0: go on.
 * -EAGAIN: others changed it; once more. */
static int drop_next_word(struct drop *drop)
{
	uint32_t suffix = hash_suffix(hash_reverse(drop->place), drop->depth);
	uint64_t at, word;
	int rc = hash_word_at(drop->table, drop->depth, suffix, &at);

	/* Its parent is SPLIT, so there must be a level. */
	if (rc == -EAGAIN)
		rc = -REEF_ECORRUPT;
	if (!rc)
		rc = reef_read(drop->table->reef, at, &word, 8);
	if (rc)
		return rc;
	switch (hash_word_state(word)) {
	case HASH_SPLIT:
		drop->depth++;
		return 0;
	case HASH_LEAF:
		return drop_leaf(drop, suffix, at, word);
	case HASH_DROPPED:
		rc = drop_children(drop, suffix);
		return rc ? rc : 1;
	default:
		return -REEF_ECORRUPT; /* its parent is SPLIT */
	}
}

/* Check, inside reef_enter, that the table is still there: then its levels stay
 * what they are to the end of this enter.  -REEF_EDROPPED: another client has
 * finished the drop. */
static int check_alive(struct hash_table *table)
{
	uint64_t alive;
	int rc = reef_read(table->reef, hash_alive_at(table), &alive, 8);

	return rc ? rc : alive == table->id ? 0 : -REEF_EDROPPED;
}

static int drop_leaf_of_place(struct drop *drop)
{
	int rc;

	reef_enter(drop->table->reef);
	rc = check_alive(drop->table);
	while (!rc)
		rc = drop_next_word(drop);
	reef_leave(drop->table->reef);
	return rc;
}

static void next_place(struct drop *drop)
{
	uint32_t before = drop->place;

	drop->place += 1u << (HASH_DEPTH_MAX - drop->depth);
	/* Go up to where the way to the next place parts from this one. */
	while (drop->depth &&
	       (before ^ drop->place) >> (HASH_DEPTH_MAX - drop->depth))
		drop->depth--;
}

static int drop_leaves(struct drop *drop)
{
	uint32_t retries = 0;
	int rc;

	while (!(drop->place >> HASH_DEPTH_MAX)) {
		rc = drop_leaf_of_place(drop);
		if (rc == 1) {
			next_place(drop);
			retries = 0;
			continue;
		}
		if (rc == -EAGAIN)
			rc = retries++ < RETRIES ? index_pause(retries)
						 : -EBUSY;
		if (rc)
			return rc;
	}
	return 0;
}

/* Drop the levels that are not there, so that none will be made; or all. */
static int drop_levels(struct hash_table *table, bool all)
{
	uint64_t at, level;
	uint32_t depth;
	int rc;

	for (depth = HASH_INNER_LEVELS; depth <= HASH_DEPTH_MAX; depth++) {
		at = hash_level_at(table, depth);
		do {
			rc = reef_read(table->reef, at, &level, 8);
			if (rc || level == HASH_DROPPED || (level && !all))
				break;
			rc = set_dropped(table, at, level);
			if (rc == 1 && level)
				entry_free_later(&table->home, level);
		} while (!rc);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int drop_all(struct drop *drop)
{
	struct hash_table *table = drop->table;
	uint64_t before;
	int rc;

	reef_enter(table->reef);
	rc = check_alive(table);
	if (!rc)
		rc = drop_levels(table, false);
	reef_leave(table->reef);
	if (!rc)
		rc = drop_leaves(drop);
	if (rc)
		return rc;
	reef_enter(table->reef);
	rc = index_cas(table->reef, hash_alive_at(table), table->id, 0,
		       &before);
	/* Of several droppers the one whose CAS did this drops the levels;
	 * after a doubt recovery asks is_live. */
	if (rc == 1)
		rc = drop_levels(table, true);
	reef_leave(table->reef);
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

static void destroy_drop(struct drop *drop)
{
	if (drop)
		free(drop->image);
	free(drop);
}

static struct drop *create_drop(struct hash_table *table)
{
	struct drop *drop = calloc(1, sizeof(*drop));

	if (!drop)
		return NULL;
	drop->table = table;
	drop->image = malloc((size_t)8 * table->groups * HASH_GROUP_SLOTS);
	if (drop->image)
		return drop;
	destroy_drop(drop);
	return NULL;
}

int hash_leaf_drop(struct hash_table *table, uint64_t hash)
{
	struct drop *drop = create_drop(table);
	int rc = 0;

	if (!drop)
		return -ENOMEM;
	drop->place = hash_reverse(hash_suffix(hash, HASH_DEPTH_MAX));
	while (!rc)
		rc = drop_next_word(drop);
	destroy_drop(drop);
	return rc < 0 ? rc : 0;
}

int hash_drop(struct hash_table *table)
{
	struct drop *drop = create_drop(table);
	int rc = drop ? drop_all(drop) : -ENOMEM;

	destroy_drop(drop);
	if (index_is_nonsense(rc))
		return -REEF_ECORRUPT;
	return rc == -REEF_EDROPPED ? 0 : rc;
}
