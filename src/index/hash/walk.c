/* walk.c - all entries of a table, one after the other, while others change it.
 *
 * The order is: group 0 of every subtable, then group 1, and so on; subtables
 * by their suffix, its last bit first. A key stays in its group for as long as
 * it is there, also when its subtable is split, and a split makes of one suffix
 * two that follow each other. So a cursor (group, reversed suffix) means the
 * same before and after: whatever was there throughout is met, and met once
 * unless its subtable is split in that very moment. */
#include "index/hash/place.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RETRIES 1000u
#define PIECE_SLOTS 8192u /* read at once to be counted */

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

/* Check that slots that were read are still the table's. all: their words,
 * or'ed together.  -EAGAIN: the subtable was split. */
static int check_slots(struct hash_table *table, uint64_t hash,
		       const struct hash_leaf *leaf, uint64_t all)
{
	int rc;

	if (!(all & HASH_FROZEN))
		return 0;
	rc = hash_leaf_is_current(table, hash, leaf->depth, leaf->subtable);
	if (rc)
		return rc < 0 ? rc : 0;
	rc = hash_leaf_discover(table, hash);
	return rc ? rc : -EAGAIN;
}

/* READ a group of slots.  -EAGAIN: the subtable was split. */
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
	return rc ? rc : check_slots(table, hash, leaf, all);
}

/* READ the entry that counts while a transaction has the slot; as read_slot. */
static int read_held(struct hash_table *table, struct hash_reading *reading,
		     uint64_t slot)
{
	struct intent intent;
	uint64_t entry_at;
	int rc = hash_intent_read(table, slot, &intent);

	if (rc || hash_slot_is_empty(hash_intent_content(&intent)))
		return rc;
	rc = hash_read_entry(table, reading, hash_intent_content(&intent),
			     &entry_at);
	return rc ? rc : -REEF_ECORRUPT;
}

/* READ the entry that a slot names now into the reading's room.  1: it is
 * there. 0: the slot is empty.  -EAGAIN: the subtable was split; the group is
 * read anew.
 */
static int read_slot(struct hash_table *table, struct hash_reading *reading,
		     uint64_t at, uint64_t slot)
{
	const struct entry_head *head;
	uint64_t now, entry_at;
	uint32_t i, unsound = 0;
	bool is_sound;
	int rc;

	for (i = 0; i < RETRIES; i++) {
		if (!hash_slot_block(slot) || slot & HASH_PROVISIONAL)
			return 0;
		if (slot & HASH_INTENT)
			return read_held(table, reading, slot);
		rc = hash_read_entry(table, reading, slot, &entry_at);
		if (rc < 0)
			return rc;
		head = reading->room.bytes;
		if (rc && head->live == head->version)
			return 1;
		is_sound = rc;
		rc = reef_read(table->reef, at, &now, 8);
		if (rc)
			return rc;
		if (is_sound && now == slot)
			return 1;
		if (now != slot)
			unsound = 0;
		else if (++unsound > ENTRY_UNSOUND_MAX)
			return -REEF_ECORRUPT;
		if (now & HASH_FROZEN && now != slot)
			return -EAGAIN;
		slot = now;
		rc = index_pause(i);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

/* --- a group --- */

struct walk {
	struct hash_table *table;
	uint32_t flags;
	int (*each)(void *context, const struct entry *entry);
	void *context;
	int said;      /* by `each`, which ends the walk if it is not 0 */
	uint32_t told; /* slots whose entries were given already */
	struct hash_leaf leaf;
	uint64_t slots_at, slots[HASH_GROUP_SLOTS];
	struct {
		struct hash_reading reading;
		uint64_t at;
		uint32_t got; /* bytes; 0: none */
	} entries[HASH_GROUP_SLOTS];
};

static int call_each(const struct walk *walk,
		     const struct hash_reading *reading)
{
	struct entry entry = entry_view(reading->room.bytes);

	if (walk->flags & HASH_WALK_HEADS)
		entry.value = NULL;
	return walk->each(walk->context, &entry);
}

/* True if HASH_WALK_REST passes an entry over because of that error. */
static bool is_passed_over(const struct walk *walk, int rc)
{
	return walk->flags & HASH_WALK_REST &&
	       (rc == -REEF_ELOST || index_is_nonsense(rc));
}

/* READ the entries one by one, without those that cannot be read. */
static int fetch_one_by_one(struct walk *walk, struct reef_access *accesses,
			    const uint32_t *slots, uint32_t count)
{
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = reef_execute(walk->table->reef, &accesses[i], 1);
		if (!is_passed_over(walk, rc))
			continue;
		walk->entries[slots[i]].got = 0;
		rc = 0;
	}
	return rc;
}

/* READ the entries of a group, as far as their hints go, in one batch. */
static int fetch_entries(struct walk *walk)
{
	struct reef_access accesses[HASH_GROUP_SLOTS];
	uint32_t i, size, count = 0, slots[HASH_GROUP_SLOTS];
	int rc;

	for (i = 0; i < HASH_GROUP_SLOTS; i++) {
		walk->entries[i].got = 0;
		if (walk->told >> i & 1 ||
		    !hash_slot_is_occupied(walk->slots[i]))
			continue;
		rc = reef_long_address(walk->table->space,
				       hash_slot_block(walk->slots[i]),
				       &walk->entries[i].at);
		if (is_passed_over(walk, rc))
			continue;
		if (rc)
			return rc;
		size = hash_entry_read_size(walk->table, walk->slots[i],
					    walk->entries[i].at);
		if (walk->flags & HASH_WALK_HEADS && size > ENTRY_HEAD_PART)
			size = ENTRY_HEAD_PART;
		rc = entry_room_need(&walk->entries[i].reading.room, size);
		if (rc)
			return rc;
		walk->entries[i].got = size;
		slots[count] = i;
		accesses[count++] = (struct reef_access){
			.kind = REEF_READ,
			.address = walk->entries[i].at,
			.local = walk->entries[i].reading.room.bytes,
			.length = size,
		};
	}
	rc = count ? reef_execute(walk->table->reef, accesses, count) : 0;
	return is_passed_over(walk, rc)
		       ? fetch_one_by_one(walk, accesses, slots, count)
		       : rc;
}

/* READ an entry as far as its key: one that a slot named since we entered is
 * whole, so its checksum is not needed.  1: it is there. */
static int complete_key(struct walk *walk, uint32_t i)
{
	struct hash_reading *reading = &walk->entries[i].reading;
	uint32_t got = walk->entries[i].got;
	size_t size;
	int rc;

	if (!entry_peek(reading->room.bytes, &size))
		return 0;
	size = ENTRY_HEAD + (size_t)entry_key_size(reading->room.bytes);
	if (size <= got)
		return 1;
	rc = entry_room_need(&reading->room, size);
	if (!rc)
		rc = reef_read(walk->table->reef, walk->entries[i].at + got,
			       (char *)reading->room.bytes + got, size - got);
	return rc ? rc : 1;
}

/* Complete the entry of one slot. *found: it is in the reading. */
static int complete_slot(struct walk *walk, uint32_t i, bool *found)
{
	struct hash_reading *reading = &walk->entries[i].reading;
	const struct entry_head *head;
	int rc = 0;

	*found = false;
	if (walk->slots[i] & HASH_INTENT) {
		rc = read_held(walk->table, reading, walk->slots[i]);
		*found = rc == 1;
		return rc < 0 ? rc : 0;
	}
	if (!walk->entries[i].got)
		return 0;
	if (walk->flags & HASH_WALK_HEADS)
		rc = complete_key(walk, i);
	else
		rc = hash_entry_complete(walk->table, reading,
					 walk->entries[i].at,
					 walk->entries[i].got);
	if (rc < 0)
		return rc;
	head = reading->room.bytes;
	*found = rc && head->live == head->version;
	if (*found)
		return 0;
	/* The entry is being changed, or is not live for good. */
	rc = read_slot(walk->table, reading, walk->slots_at + 8 * (uint64_t)i,
		       walk->slots[i]);
	*found = rc == 1;
	return rc < 0 ? rc : 0;
}

/* Call `each` for the entries of one group of one subtable. */
static int walk_group(struct walk *walk, uint64_t hash, uint32_t group)
{
	bool found;
	uint32_t i;
	int rc = read_group(walk->table, hash, group, &walk->leaf, walk->slots);

	if (rc)
		return rc;
	walk->slots_at = walk->leaf.subtable + HASH_SUBTABLE_HEADER +
			 (uint64_t)group * HASH_GROUP_SIZE;
	rc = fetch_entries(walk);
	for (i = 0; i < HASH_GROUP_SLOTS && !rc; i++) {
		if (walk->told >> i & 1)
			continue;
		rc = complete_slot(walk, i, &found);
		if (is_passed_over(walk, rc)) {
			rc = 0;
			found = false;
		}
		if (rc)
			break;
		/* Set before the call, as `each` may end the walk. */
		walk->told |= 1u << i;
		if (found)
			walk->said = call_each(walk, &walk->entries[i].reading);
		rc = walk->said;
	}
	return rc;
}

/* --- all of them --- */

/* Walk `steps` groups. If a subtable is split in the middle of a group, its
 * slots are in both children, at the same positions: the walk goes on with the
 * first child, and the second gets its turn from its first slot on, so some of
 * its entries come twice. */
static int walk_groups(struct walk *walk, struct hash_cursor *cursor,
		       uint32_t steps)
{
	uint32_t retries = 0;
	int rc;

	while (steps && cursor->group < walk->table->groups) {
		rc = walk_group(walk, hash_reverse(cursor->suffix),
				cursor->group);
		if (walk->said)
			return walk->said;
		if (rc == -EAGAIN) {
			rc = retries++ < RETRIES ? index_pause(retries)
						 : -EBUSY;
			if (!rc)
				continue;
		}
		if (rc)
			return rc;
		walk->told = retries = 0;
		steps--;
		cursor->suffix += 1u << (HASH_DEPTH_MAX - walk->leaf.depth);
		if (cursor->suffix >> HASH_DEPTH_MAX) {
			cursor->suffix = 0;
			cursor->group++;
		}
	}
	if (cursor->group >= walk->table->groups)
		*cursor = (struct hash_cursor){0};
	return 0;
}

int hash_walk(struct hash_table *table, struct hash_cursor *cursor,
	      uint32_t steps, uint32_t flags,
	      int (*each)(void *context, const struct entry *entry),
	      void *context)
{
	struct walk *walk = calloc(1, sizeof(*walk));
	int rc;

	reef_assert(steps);
	if (!walk)
		return -ENOMEM;
	walk->table = table;
	walk->flags = flags;
	walk->each = each;
	walk->context = context;
	reef_enter(table->reef);
	rc = walk_groups(walk, cursor, steps);
	reef_leave(table->reef);
	for (uint32_t i = 0; i < HASH_GROUP_SLOTS; i++)
		hash_reading_free(&walk->entries[i].reading);
	free(walk);
	return rc;
}

/* --- counting --- */

/* READ some slots of a subtable and count the keys. -EAGAIN: it was split. */
static int count_piece(struct hash_table *table, uint64_t hash,
		       const struct hash_leaf *leaf, uint64_t *slots,
		       uint32_t from, uint32_t count, uint64_t *keys)
{
	uint64_t all = 0;
	uint32_t i;
	int rc = reef_read(table->reef,
			   leaf->subtable + HASH_SUBTABLE_HEADER +
				   8 * (uint64_t)from,
			   slots, 8 * (size_t)count);

	for (i = 0; i < count && !rc; i++) {
		all |= slots[i];
		*keys += hash_slot_block(slots[i]) &&
			 !(slots[i] & HASH_PROVISIONAL);
	}
	return rc ? rc : check_slots(table, hash, leaf, all);
}

static int count_leaf(struct hash_table *table, uint64_t hash, uint64_t *slots,
		      struct hash_leaf *leaf, uint64_t *keys)
{
	uint32_t all = table->groups * HASH_GROUP_SLOTS, at, part;
	int rc = find_leaf(table, hash, leaf);

	*keys = 0;
	for (at = 0; at < all && !rc; at += part) {
		part = all - at < PIECE_SLOTS ? all - at : PIECE_SLOTS;
		rc = count_piece(table, hash, leaf, slots, at, part, keys);
	}
	return rc;
}

/* Bytes of the directory; there are levels down to the deepest. */
static uint64_t directory_size(uint32_t depth)
{
	uint64_t size = sizeof(struct hash_root);

	for (; depth >= HASH_INNER_LEVELS; depth--)
		size += HASH_LEVEL_HEADER + (UINT64_C(8) << depth);
	return size;
}

int hash_count(struct hash_table *table, struct hash_count *out)
{
	struct hash_count count = {0};
	struct hash_leaf leaf;
	uint64_t *slots = malloc(PIECE_SLOTS * sizeof(*slots)), keys;
	uint32_t suffix = 0, retries = 0;
	int rc = slots ? 0 : -ENOMEM;

	while (!rc && !(suffix >> HASH_DEPTH_MAX)) {
		reef_enter(table->reef);
		rc = count_leaf(table, hash_reverse(suffix), slots, &leaf,
				&keys);
		reef_leave(table->reef);
		if (rc == -EAGAIN) {
			rc = retries++ < RETRIES ? index_pause(retries)
						 : -EBUSY;
			continue;
		}
		if (rc)
			break;
		retries = 0;
		count.keys += keys;
		count.subtables++;
		if (leaf.depth > count.depth)
			count.depth = leaf.depth;
		suffix += 1u << (HASH_DEPTH_MAX - leaf.depth);
	}
	free(slots);
	if (rc)
		return rc;
	count.slots =
		count.subtables * (uint64_t)table->groups * HASH_GROUP_SLOTS;
	count.bytes = directory_size(count.depth) +
		      count.subtables * hash_subtable_size(table);
	*out = count;
	return 0;
}
