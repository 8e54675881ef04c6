/* split.c - a full subtable becomes two: (3) of table.h.
 *
 *   keys looked at -> children PENDING -> all slots of the parent frozen ->
 *   those that changed meanwhile looked at -> each copied to its child, the
 *   other child's slot empty -> children LEAF -> parent SPLIT, freed
 *
 * Every step is a CAS from the one value it expects, and what it writes follows
 * from what is frozen alone. So any number of clients may do it at once, die in
 * the middle, or be late: a child that is in use has no slot that is 0. */
#include "index/hash/place.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FREEZE_ROUNDS 1000u /* then whoever asked pauses and asks again */
#define TOGETHER 64u	    /* entries that are looked at in one batch */

struct split {
	struct hash_table *table;
	uint64_t hash;
	uint32_t depth, slots;
	uint64_t parent, parent_at; /* subtable; its word in the directory */
	uint64_t child[2], child_at[2];
	bool ready[2];	 /* the child is in use already */
	uint64_t *image; /* the parent's slots */
	uint64_t *seen;	 /* those whose keys were looked at */
	uint8_t *side;	 /* which child each goes to */
	/* Entries that are read at the moment, and whose slots these are. */
	struct reef_access reads[TOGETHER];
	uint64_t heads[TOGETHER][ENTRY_HEAD_PART / 8];
	uint32_t read_slots[TOGETHER], reads_count;
	struct hash_reading whole; /* room for one whose key is long */
};

static uint64_t slot_at(uint64_t subtable, uint32_t i)
{
	return subtable + HASH_SUBTABLE_HEADER + 8 * (uint64_t)i;
}

static int add_cas(struct index_batch *batch, uint64_t at, uint64_t compare,
		   uint64_t value)
{
	return index_batch_add(batch, (struct reef_access){
					      .kind = REEF_CAS,
					      .address = at,
					      .compare = compare,
					      .operand = value,
				      });
}

/* --- children --- */

static int make_child(struct split *split, uint32_t which, uint64_t *out)
{
	struct hash_table *table = split->table;
	struct hash_subtable *child = calloc(1, hash_subtable_size(table));
	int rc;

	if (!child)
		return -ENOMEM;
	*child = (struct hash_subtable){
		.magic = HASH_SUBTABLE_MAGIC,
		.root = table->root,
		.depth = split->depth + 1,
		.suffix = hash_suffix(split->hash, split->depth) |
			  which << split->depth,
	};
	rc = reef_alloc_kind(table->space, REEF_BLOCK_HASH_SUBTABLE,
			     hash_subtable_size(table), out);
	if (!rc) {
		rc = reef_write(table->reef, *out, child,
				hash_subtable_size(table));
		if (rc)
			reef_free(table->space, *out, 0);
	}
	free(child);
	return rc;
}

static int find_or_make_child(struct split *split, uint32_t which)
{
	struct hash_table *table = split->table;
	uint32_t suffix =
		hash_suffix(split->hash, split->depth) | which << split->depth;
	uint64_t word, made, made_word;
	int rc;

	rc = hash_word_at(table, split->depth + 1, suffix,
			  &split->child_at[which]);
	if (!rc)
		rc = reef_read(table->reef, split->child_at[which], &word, 8);
	if (rc)
		return rc;
	if (!word) {
		rc = make_child(split, which, &made);
		if (rc)
			return rc;
		made_word =
			made | (REEF_MUTATED(HASH_NO_INTENT) ? HASH_LEAF
							     : HASH_PENDING);
		rc = index_cas(table->reef, split->child_at[which], 0,
			       made_word, &word);
		if (rc == 1)
			word = made | HASH_PENDING;
		else if (!rc)
			reef_free(table->space, made, 0);
		if (rc < 0)
			return rc == -REEF_EINDOUBT ? -EAGAIN : rc;
	}
	if (hash_word_state(word) == HASH_DROPPED)
		return -REEF_EDROPPED;
	split->child[which] = hash_word_address(word);
	split->ready[which] = hash_word_state(word) != HASH_PENDING;
	if (split->ready[which])
		return hash_word_state(word) == HASH_LEAF ||
				       hash_word_state(word) == HASH_SPLIT
			       ? 0
			       : -REEF_ECORRUPT;
	return hash_subtable_check(table, split->child[which], split->depth + 1,
				   suffix);
}

/* --- the parent --- */

/* Decide the transaction that has a slot, and freeze the slot as that says, in
 * one CAS: so nobody takes it again in between, and no intent is carried into a
 * child. */
static int freeze_intent(struct hash_table *table, uint64_t at, uint64_t slot)
{
	struct intent intent;
	int rc = hash_intent_read(table, slot, &intent);

	if (!rc && intent.status == INTENT_PENDING &&
	    !REEF_MUTATED(TXN_DROP_INTENT))
		rc = intent_abort(table->space, &intent);
	if (!rc)
		rc = hash_intent_resolve(table, at, slot, &intent, HASH_FROZEN);
	return rc < 0 ? rc : 0;
}

int hash_freeze(struct hash_table *table, uint64_t subtable, uint64_t *image)
{
	struct index_batch batch = {.reef = table->reef};
	uint32_t slots = table->groups * HASH_GROUP_SLOTS, round, i;
	bool all;
	int rc;

	for (round = 0; round < FREEZE_ROUNDS; round++) {
		rc = reef_read(table->reef, slot_at(subtable, 0), image,
			       8 * (size_t)slots);
		if (rc)
			return rc;
		all = true;
		for (i = 0; i < slots && !rc; i++) {
			if (image[i] & HASH_FROZEN)
				continue;
			all = false;
			if (image[i] & HASH_INTENT &&
			    !REEF_MUTATED(TXN_CARRY_UNMARKED))
				rc = freeze_intent(table, slot_at(subtable, i),
						   image[i]);
			else
				rc = add_cas(&batch, slot_at(subtable, i),
					     image[i], image[i] | HASH_FROZEN);
		}
		if (!rc)
			rc = index_batch_flush(&batch);
		batch.count = 0;
		if (rc && rc != -EAGAIN)
			return rc;
		if (all || REEF_MUTATED(HASH_NO_FREEZE))
			return 0;
	}
	return -EAGAIN;
}

/* Find out which child one entry goes to. An entry that a slot has named since
 * we entered is whole and does not change: its head and key are enough, without
 * a checksum. */
static int classify_one(struct split *split, uint32_t which)
{
	struct hash_table *table = split->table;
	uint32_t slot = split->read_slots[which];
	const struct entry_head *head = (const void *)split->heads[which];
	uint64_t at;
	size_t size;
	int rc;

	if (!entry_peek(head, &size) || !entry_is_ours(&table->home, head))
		return -REEF_ECORRUPT;
	if (ENTRY_HEAD + (size_t)entry_key_size(head) >
	    split->reads[which].length) {
		rc = hash_read_entry(table, &split->whole, split->image[slot],
				     &at);
		if (rc <= 0)
			return rc ? rc : -REEF_ECORRUPT;
		head = split->whole.room.bytes;
	}
	split->side[slot] =
		hash_of_key(table, head + 1, entry_key_size(head)) >>
			split->depth &
		1;
	return 0;
}

static int classify_some(struct split *split)
{
	uint32_t count = split->reads_count;
	int rc = count ? reef_execute(split->table->reef, split->reads, count)
		       : 0;

	split->reads_count = 0;
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = classify_one(split, i);
	return rc;
}

/* Find out which child each key goes to, for those that are new since the last
 * time. */
static int classify_new(struct split *split)
{
	uint32_t size, next;
	uint64_t at;
	int rc = 0;

	for (uint32_t i = 0; i < split->slots && !rc; i++) {
		if (!hash_slot_is_occupied(split->image[i]) ||
		    !((split->image[i] ^ split->seen[i]) & ~HASH_FROZEN))
			continue;
		rc = reef_long_address(split->table->space,
				       hash_slot_block(split->image[i]), &at);
		if (rc)
			break;
		size = hash_entry_read_size(split->table, split->image[i], at);
		next = split->reads_count++;
		split->read_slots[next] = i;
		split->reads[next] = (struct reef_access){
			.kind = REEF_READ,
			.address = at,
			.local = split->heads[next],
			.length =
				size < ENTRY_HEAD_PART ? size : ENTRY_HEAD_PART,
		};
		if (split->reads_count == TOGETHER)
			rc = classify_some(split);
	}
	if (!rc)
		rc = classify_some(split);
	memcpy(split->seen, split->image, 8 * (size_t)split->slots);
	return rc;
}

/* Ask of each transaction that has a slot how it stands. */
static int check_intents(struct split *split)
{
	struct intent intent;
	int rc = 0;

	for (uint32_t i = 0; i < split->slots && !rc; i++)
		if (split->image[i] & HASH_INTENT)
			rc = hash_intent_read(split->table, split->image[i],
					      &intent);
	return rc;
}

/* Classify the keys before anything is frozen, so that others wait as short as
 * can be. If an entry, or a transaction that has a slot, is lost with its node,
 * so that nobody can tell where it belongs, all stays as it is, and keys that
 * are there can be changed. */
static int classify_first(struct split *split)
{
	int rc = reef_read(split->table->reef, slot_at(split->parent, 0),
			   split->image, 8 * (size_t)split->slots);

	if (!rc)
		rc = check_intents(split);
	return rc ? rc : classify_new(split);
}

static int copy_to_child(struct split *split, uint32_t which)
{
	struct index_batch batch = {.reef = split->table->reef};
	uint64_t word;
	int rc = 0;

	for (uint32_t i = 0; i < split->slots && !rc; i++) {
		word = HASH_TAG_ONE;
		if (hash_slot_is_occupied(split->image[i]) &&
		    split->side[i] == which)
			word = split->image[i] & ~HASH_FROZEN;
		rc = add_cas(&batch, slot_at(split->child[which], i), 0, word);
	}
	return rc ? rc : index_batch_flush(&batch);
}

/* --- all of it --- */

static int publish_children(struct split *split)
{
	struct hash_table *table = split->table;
	uint64_t before;
	int rc;

	for (uint32_t which = 0; which < 2; which++) {
		rc = index_cas(table->reef, split->child_at[which],
			       split->child[which] | HASH_PENDING,
			       split->child[which] | HASH_LEAF, &before);
		if (rc < 0)
			return rc == -REEF_EINDOUBT ? -EAGAIN : rc;
	}
	rc = index_cas(table->reef, split->parent_at, split->parent | HASH_LEAF,
		       HASH_SPLIT, &before);
	if (rc == 1)
		entry_free_later(&table->home, split->parent);
	return rc < 0 ? rc : 0;
}

/* Make the level of the children. Who drops the table has seen to it first of
 * all that there will be no more levels, and may be far from this leaf, or
 * dead: its keys can still be read. So the leaf is dropped before that is said
 * of the key (6). */
static int make_level(struct split *split)
{
	int rc = hash_level_make(split->table, split->depth + 1);

	if (rc != -REEF_EDROPPED)
		return rc;
	rc = hash_leaf_drop(split->table, split->hash);
	return rc ? rc : -REEF_EDROPPED;
}

static int run_split(struct split *split)
{
	uint32_t which;
	int rc = hash_subtable_check(split->table, split->parent, split->depth,
				     hash_suffix(split->hash, split->depth));

	if (!rc)
		rc = classify_first(split);
	if (!rc)
		rc = make_level(split);
	for (which = 0; which < 2 && !rc; which++)
		rc = find_or_make_child(split, which);
	if (!rc)
		rc = hash_freeze(split->table, split->parent, split->image);
	if (!rc)
		rc = classify_new(split);
	for (which = 0; which < 2 && !rc; which++)
		if (!split->ready[which])
			rc = copy_to_child(split, which);
	return rc ? rc : publish_children(split);
}

int hash_split(struct hash_table *table, uint64_t hash, uint32_t depth)
{
	struct split *split;
	uint64_t word;
	int rc;

	if (depth >= HASH_DEPTH_MAX)
		return -ENOSPC;
	split = calloc(1, sizeof(*split));
	if (!split)
		return -ENOMEM;
	split->table = table;
	split->hash = hash;
	split->depth = depth;
	split->slots = table->groups * HASH_GROUP_SLOTS;
	split->image = malloc(split->slots * sizeof(*split->image));
	split->seen = calloc(split->slots, sizeof(*split->seen));
	split->side = calloc(split->slots, 1);
	rc = split->image && split->seen && split->side ? 0 : -ENOMEM;
	if (!rc)
		rc = hash_word_at(table, depth, hash_suffix(hash, depth),
				  &split->parent_at);
	if (!rc)
		rc = reef_read(table->reef, split->parent_at, &word, 8);
	if (!rc && hash_word_state(word) == HASH_LEAF) {
		split->parent = hash_word_address(word);
		rc = run_split(split);
	}
	if (!rc)
		rc = hash_leaf_discover(table, hash);
	hash_reading_free(&split->whole);
	free(split->image);
	free(split->seen);
	free(split->side);
	free(split);
	/* After -EAGAIN whoever asked for the split finds its key anew. */
	return rc == -EAGAIN ? 0 : rc;
}
