/* walk.c - all entries of a table, one after the other, while others change it.
 *
 * The order is: group 0 of every subtable, then group 1, and so on; subtables
 * by their suffix, its last bit first. A key stays in its group for as long as
 * it is there, also when its subtable is split, and a split makes of one suffix
 * two that follow each other. So a cursor (group, reversed suffix) means the
 * same before and after: whatever was there throughout is met, and met once
 * unless its subtable is split in that very moment. */
#include "index/hash/internal.h"

#include <errno.h>
#include <string.h>

#define RETRIES 1000u

static uint32_t reverse(uint32_t bits)
{
	uint32_t result = 0;

	for (uint32_t i = 0; i < HASH_DEPTH_MAX; i++)
		result |= (bits >> i & 1) << (HASH_DEPTH_MAX - 1 - i);
	return result;
}

static int find_leaf(struct hash_table *table, uint64_t hash,
		     struct hash_leaf *out)
{
	const struct hash_leaf *leaf = hash_leaf_known(table, hash);
	int rc;

	if (!leaf || leaf->epoch != reef_epoch(table->reef)) {
		rc = hash_leaf_discover(table, hash);
		if (rc)
			return rc;
		leaf = hash_leaf_known(table, hash);
	}
	*out = *leaf;
	return 0;
}

/* READ a group. -EAGAIN: the subtable was split. */
static int read_group(struct hash_table *table, uint64_t hash, uint32_t group,
		      struct hash_leaf *leaf, uint64_t slots[HASH_GROUP_SLOTS])
{
	uint64_t all = 0;
	int rc = find_leaf(table, hash, leaf);

	if (!rc)
		rc = reef_read(table->reef,
			       leaf->subtable + HASH_SUBTABLE_HEADER +
				       (uint64_t)group * HASH_GROUP_SIZE,
			       slots, HASH_GROUP_SIZE);
	for (uint32_t i = 0; i < HASH_GROUP_SLOTS && !rc; i++)
		all |= slots[i];
	if (rc || !(all & HASH_FROZEN))
		return rc;
	rc = hash_leaf_is_current(table, hash, leaf->depth, leaf->subtable);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = hash_leaf_discover(table, hash);
	return rc ? rc : -EAGAIN;
}

/* What is in a slot now. 1: reading->entry.  0: nothing.  -EAGAIN: it was
 * split; then the group is read anew. */
static int read_slot(struct hash_table *table, struct hash_reading *reading,
		     uint64_t at, uint64_t slot)
{
	const struct hash_entry_head *head;
	uint64_t now, entry_at;
	uint32_t i;
	int rc;

	for (i = 0; i < RETRIES; i++) {
		if (!hash_slot_block(slot) || slot & HASH_PROVISIONAL)
			return 0;
		rc = hash_read_entry(table, reading, slot, &entry_at);
		if (rc < 0)
			return rc;
		head = reading->room;
		if (rc && head->live == head->version)
			return 1;
		if (reef_read(table->reef, at, &now, 8))
			return -EAGAIN;
		if (rc && now == slot)
			return 1;
		if (now & HASH_FROZEN)
			return -EAGAIN;
		slot = now;
		rc = hash_pause(table, i);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

static int tell(const struct hash_reading *reading,
		int (*each)(void *context, const struct hash_entry *entry),
		void *context)
{
	const struct hash_entry entry = hash_entry_view(reading->room);

	return each(context, &entry);
}

/* One group of one subtable. *told: slots whose entries were given already. */
static int walk_group(struct hash_table *table, struct hash_reading *reading,
		      uint64_t hash, uint32_t group, uint32_t *told,
		      uint32_t *depth,
		      int (*each)(void *context,
				  const struct hash_entry *entry),
		      void *context)
{
	uint64_t slots[HASH_GROUP_SLOTS], at;
	struct hash_leaf leaf;
	uint32_t i;
	int rc = read_group(table, hash, group, &leaf, slots);

	if (rc)
		return rc;
	*depth = leaf.depth;
	for (i = 0; i < HASH_GROUP_SLOTS; i++) {
		if (*told >> i & 1)
			continue;
		at = leaf.subtable + HASH_SUBTABLE_HEADER +
		     (uint64_t)group * HASH_GROUP_SIZE + 8 * (uint64_t)i;
		rc = read_slot(table, reading, at, slots[i]);
		if (rc < 0)
			return rc;
		/* Before it is told: the callee may end the walk. */
		*told |= 1u << i;
		rc = rc ? tell(reading, each, context) : 0;
		if (rc)
			return rc;
	}
	return 0;
}

/* Split in the middle of a group: its slots are in both children, at the same
 * positions. The first child is gone on with, the second gets its turn from its
 * first slot on, so some of its entries come twice. */
int hash_walk(struct hash_table *table, struct hash_cursor *cursor,
	      uint32_t steps,
	      int (*each)(void *context, const struct hash_entry *entry),
	      void *context)
{
	struct hash_reading reading = {0};
	uint32_t depth = 0, told = 0, retries = 0;
	int rc = 0;

	reef_enter(table->reef);
	while (steps && cursor->group < table->groups) {
		rc = walk_group(table, &reading, reverse(cursor->suffix),
				cursor->group, &told, &depth, each, context);
		if (rc == -EAGAIN && retries++ < RETRIES) {
			rc = hash_pause(table, retries);
			if (rc)
				break;
			continue;
		}
		if (rc)
			break;
		told = retries = 0;
		steps--;
		cursor->suffix += 1u << (HASH_DEPTH_MAX - depth);
		if (cursor->suffix >> HASH_DEPTH_MAX) {
			cursor->suffix = 0;
			cursor->group++;
		}
	}
	reef_leave(table->reef);
	hash_reading_free(&reading);
	if (rc)
		return rc;
	return cursor->group >= table->groups;
}
