/* recover.c - what a dead session left: is a block still part of a table?
 *
 *   root      if its owner's word names it
 *   level     if its root does
 *   subtable  if its word in the directory names it
 *   entry     if a slot of its key names it. A provisional one is taken away:
 *             its insert did not happen, and never will. A ghost is taken
 *             away as well; what a transaction is to put lives until that is
 *             aborted.
 *
 * What only lost memory could name is not live: nobody can find it any more. An
 * entry may have its slot beside that of a lost one, where a lookup fails: then
 * the slots themselves tell.
 *
 * (R10) What a block says of itself may be nonsense: a block that names no
 * table is part of none. One of a table whose directory or slots are nonsense
 * stays, as nobody can tell: an error would hold its session's end up. */
#include "index/hash/internal.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

/* True if what was read as an address is none. */
static bool is_no_address(int rc)
{
	return rc == -EFAULT || rc == -EINVAL || rc == -ERANGE;
}

/* True if what would name a block is gone for good, or never was there. */
static bool is_gone(int rc)
{
	return rc == -REEF_ELOST || is_no_address(rc);
}

/* 1: the word of the root's owner names it; the lower bits are the owner's. */
static int is_owned(struct reef_space *space, uint64_t root,
		    const struct hash_root_head *head)
{
	uint64_t word;
	int rc;

	if (!head->owner)
		return 0;
	rc = reef_read(reef_space_handle(space), head->owner, &word, 8);
	if (rc)
		return is_gone(rc) ? 0 : rc;
	return (word & ~UINT64_C(7)) == root;
}

/* A root that nobody owns was kept, or never became part of anything; then
 * nothing of it lives. */
static int root_is_live(struct reef *reef, struct reef_space *space,
			uint64_t address)
{
	struct hash_root_head head;
	int rc = hash_root_read(space, address, &head);

	(void)reef;
	if (rc)
		return rc == -REEF_ECORRUPT || is_gone(rc) ? 0 : rc;
	return is_owned(space, address, &head);
}

/* Open the table of a root for a moment.  -ENOENT: there is none any more. */
static int open_root(struct reef_space *space, uint64_t root,
		     struct hash_table **out)
{
	struct hash_root_head head;
	int rc = hash_root_read(space, root, &head);

	if (!rc && head.owner) {
		rc = is_owned(space, root, &head);
		rc = rc < 0 ? rc : rc ? 0 : -ENOENT;
	}
	if (!rc)
		rc = hash_open(space, root, 1, out);
	return rc == -REEF_ECORRUPT || rc == -REEF_EDROPPED || is_gone(rc)
		       ? -ENOENT
		       : rc;
}

static int level_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct hash_level head;
	struct hash_table *table;
	uint64_t word = 0;
	int rc = reef_read(reef, address, &head, sizeof(head));

	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (head.magic != HASH_LEVEL_MAGIC || head.depth > HASH_DEPTH_MAX)
		return 0;
	rc = open_root(space, head.root, &table);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = reef_read(reef, hash_level_at(table, (uint32_t)head.depth), &word,
		       8);
	hash_close(table);
	if (rc)
		return is_gone(rc) ? 0 : rc;
	return word == address;
}

static int subtable_is_live(struct reef *reef, struct reef_space *space,
			    uint64_t address)
{
	struct hash_subtable head;
	struct hash_table *table;
	uint64_t at, word = 0;
	int rc = reef_read(reef, address, &head, sizeof(head));

	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (head.magic != HASH_SUBTABLE_MAGIC || head.depth > HASH_DEPTH_MAX)
		return 0;
	rc = open_root(space, head.root, &table);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = hash_word_at(table, head.depth,
			  hash_suffix(head.suffix, head.depth), &at);
	if (!rc)
		rc = reef_read(reef, at, &word, 8);
	hash_close(table);
	if (rc == -REEF_ECORRUPT)
		return 1;
	if (rc)
		return rc == -EAGAIN || rc == -REEF_EDROPPED || is_gone(rc)
			       ? 0
			       : rc;
	return hash_word_state(word) != HASH_SPLIT &&
	       hash_word_address(word) == address;
}

/* Take away provisional slots that name the block. */
static int clear_provisional(struct hash_table *table,
			     const struct hash_reading *reading, uint64_t block)
{
	uint64_t slot, before;
	uint32_t i, j;
	int rc;

	for (i = 0; i < 2; i++)
		for (j = 0; j < HASH_PLACE_SLOTS; j++) {
			slot = reading->slots[i][j];
			if (hash_slot_block(slot) != block ||
			    hash_slot_is_empty(slot) ||
			    (slot & (HASH_PROVISIONAL | HASH_FROZEN)) !=
				    HASH_PROVISIONAL)
				continue;
			rc = index_cas(table->reef,
				       reading->leaf + reading->place[i] +
					       8 * (uint64_t)j,
				       slot, hash_emptied(slot), &before);
			if (rc < 0 && rc != -REEF_EINDOUBT)
				return rc;
		}
	return 0;
}

/* True if a slot that was read names the block as a value. */
static bool is_in_slots(const struct hash_reading *reading, uint64_t block)
{
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t j = 0; j < HASH_PLACE_SLOTS; j++)
			if (hash_slot_block(reading->slots[i][j]) == block &&
			    !(reading->slots[i][j] & HASH_PROVISIONAL))
				return true;
	return false;
}

/* 1: a transaction that is PENDING is to put the block. One whose session has
 * ended is aborted: that will not be. */
static int is_to_be_put(struct hash_table *table, struct hash_reading *reading,
			uint64_t block)
{
	enum reef_session_view view;
	struct intent *intent = &reading->intent;
	int rc;

	if (!reading->is_held || intent->status != INTENT_PENDING ||
	    hash_slot_block(intent->line.next) != block)
		return 0;
	rc = reef_session_check(table->reef, intent->line.session, &view);
	if (rc || view != REEF_VIEW_ENDED)
		return rc ? rc : 1;
	rc = intent_abort(table->space, intent);
	return rc ? rc : intent->status == INTENT_COMMITTED;
}

/* Take a ghost away.  1: it is left, as a transaction or a split has its slot.
 */
static int is_ghost_left(struct hash_table *table,
			 const struct hash_reading *reading)
{
	uint64_t before;
	int rc;

	if (reading->is_held || reading->slot & HASH_FROZEN)
		return 1;
	rc = index_cas(table->reef, reading->slot_at, reading->slot,
		       hash_emptied(reading->slot), &before);
	if (rc < 0 && rc != -REEF_EINDOUBT)
		return rc;
	return rc != 1;
}

/* 1: the entry is the value of its key. */
static int is_current_value(struct hash_table *table,
			    struct hash_reading *entry, uint64_t address,
			    uint64_t block)
{
	const struct entry_head *head = entry->room.bytes;
	struct hash_reading reading = {
		.key = head + 1,
		.key_size = entry_key_size(head),
	};
	int rc = hash_find(table, &reading, 1);

	if (!rc)
		rc = reading.status;
	if (!rc && reading.entry_at != address)
		rc = is_to_be_put(table, &reading, block);
	else if (!rc && reading.entry.stamp == ENTRY_GHOST)
		rc = is_ghost_left(table, &reading);
	else if (!rc)
		rc = !REEF_MUTATED(TXN_IS_LIVE_PENDING) || !reading.is_held;
	else if (rc == -ENOENT)
		rc = 0;
	else if (is_in_slots(&reading, block))
		rc = 1;
	else if (rc == -REEF_ELOST)
		rc = 0;
	if (!rc)
		rc = clear_provisional(table, &reading, block);
	hash_reading_free(&reading);
	if (rc == -REEF_ECORRUPT || is_no_address(rc))
		return 1;
	return rc == -REEF_EDROPPED || rc == -REEF_ELOST ? 0 : rc;
}

static int entry_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct hash_reading entry = {0};
	struct entry_head head;
	struct hash_table *table;
	uint64_t root, block, at;
	int rc = reef_read(reef, address, &head, sizeof(head));

	if (!rc)
		rc = reef_short_address(space, address, &block);
	if (rc)
		return rc == -ERANGE || is_gone(rc) ? 0 : rc;
	rc = reef_long_address(space, entry_root_of_number(entry_number(&head)),
			       &root);
	if (!rc)
		rc = open_root(space, root, &table);
	if (rc)
		return rc == -ENOENT || is_gone(rc) ? 0 : rc;
	reef_enter(reef);
	/* Its hint is not known: READ the smallest size, then the rest. */
	rc = hash_read_entry(table, &entry, hash_slot_make(block, 0, 0), &at);
	if (rc == 1)
		rc = is_current_value(table, &entry, address, block);
	reef_leave(reef);
	hash_reading_free(&entry);
	hash_close(table);
	return is_gone(rc) ? 0 : rc;
}

static const struct reef_kind_ops subtables = {
	.name = "hash subtable",
	.is_live = subtable_is_live,
};
static const struct reef_kind_ops entries = {
	.name = "hash entry",
	.is_quick = true,
	.is_live = entry_is_live,
};
static const struct reef_kind_ops roots = {
	.name = "hash root",
	.is_live = root_is_live,
};
static const struct reef_kind_ops levels = {
	.name = "hash level",
	.is_live = level_is_live,
};

void hash_kinds_register(void)
{
	reef_kind_register(REEF_BLOCK_HASH_ROOT, &roots);
	reef_kind_register(REEF_BLOCK_HASH_LEVEL, &levels);
	reef_kind_register(REEF_BLOCK_HASH_SUBTABLE, &subtables);
	reef_kind_register(REEF_BLOCK_HASH_ENTRY, &entries);
}
