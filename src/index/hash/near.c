/* near.c - the plain case of looking up, in place.
 *
 * Plain is: the key's subtable is known in this epoch, a slot there with its
 * fingerprint is neither provisional, nor intent, nor frozen, and names an
 * entry that is whole, live, short and the key's. That is nearly every key that
 * is there. Everything else is find.c's, from the beginning: so it alone says
 * what is not there, and what to do when something changes.
 *
 * Why it is right: the slot was read within the epoch in which its subtable is
 * known to be in use, and is not frozen, so it is true (3); then the entry was
 * live (2).
 *
 * In a space with two copies the primary is read so, too, and what was found
 * counts if the lease has run until then (client/handle/near.h (4)).
 *
 * Where time goes: with millions of keys each get misses twice, at its places
 * and at its entry, and the second miss waits for the first; with small pages
 * each of the two costs a walk of the page tables, too. What the processor can
 * do about it is to begin the next get while it waits, as far as its window
 * reaches: on a Zen 4, from an entry's miss to the next places' about 260
 * instructions, and then a get costs one miss, not two (measured: 440 ns, not
 * 690; with 100 more, nothing is gained). So what counts is to have few
 * instructions, no barrier, and no branch that cannot be foreseen. Hence:
 * hash_get_near (near.h), inlined in the map's get, which takes 440 of them
 * where the general way took 810, without a call, and fetches the places as
 * soon as the hash is known, by where the subtable was last, before it asks
 * whether it may; both places are compared whole, by vectors, and the mask says
 * which slot. Remembered places (memos) would save neither of the misses for
 * keys that are many, and are not looked at. Several keys go in three passes,
 * each prefetching for the next. */
#include "index/hash/near.h"

/* Find several keys in three passes; returns how many were not found so. */
static uint32_t find_in_passes(struct hash_table *table,
			       struct hash_reading *readings, uint32_t count,
			       uint64_t epoch)
{
	const uint8_t *at[HASH_TOGETHER];
	uint32_t i, missing = 0;

	for (i = 0; i < count; i++) {
		at[i] = hash_near_subtable(table, &readings[i], epoch);
		for (uint32_t j = 0; at[i] && j < 2; j++)
			reef_near_prefetch(at[i] + readings[i].place[j],
					   HASH_PLACE_SIZE, false);
	}
	for (i = 0; i < count; i++) {
		at[i] = hash_near_entry(table, &readings[i], at[i]);
		if (at[i])
			reef_near_prefetch(at[i],
					   entry_hint_size(hash_slot_hint(
						   readings[i].slot)),
					   false);
	}
	for (i = 0; i < count; i++)
		missing +=
			!hash_near_read_entry(table, &readings[i], at[i], true);
	return missing;
}

bool hash_near_is_stale(struct hash_table *table,
			const struct hash_reading *reading)
{
	const struct hash_leaf *leaf = hash_leaf_known(table, reading->hash);

	return client_is_near(table->reef) && leaf &&
	       leaf->epoch != reef_epoch(table->reef);
}

/* What was found does not count (client_near_counts): it is as if it had not
 * been looked for. */
static uint32_t refuse_all(struct hash_reading *readings, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!readings[i].status)
			readings[i].status = -EINPROGRESS;
	return count;
}

uint32_t hash_find_near(struct hash_table *table, struct hash_reading *readings,
			uint32_t count)
{
	uint64_t epoch = reef_epoch(table->reef);
	uint32_t missing;

	if (!client_near_enter(table->reef))
		return count;
	if (count == 1)
		missing = !hash_near_find(table, readings, epoch, true);
	else
		missing = find_in_passes(table, readings, count, epoch);
	client_near_leave(table->reef);
	if (unlikely(table->is_copied) && !client_near_counts(table->reef))
		return refuse_all(readings, count);
	return missing;
}
