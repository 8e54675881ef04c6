/* near.c - the plain case of looking up, in place.
 *
 * Plain is: the key's subtable is known in this epoch, a slot there with its
 * fingerprint is neither provisional nor frozen, and names an entry that is
 * whole, live, short and the key's. That is nearly every key that is there.
 * Everything else is find.c's, from the beginning: so it alone says what is not
 * there, and what to do when something changes.
 *
 * Why it is right: the slot was read within the epoch in which its subtable is
 * known to be in use, and is not frozen, so it is true (3); then the entry was
 * live (2).
 *
 * Where time goes: with millions of keys each get misses twice, at its places
 * and at its entry, and the second miss waits for the first; with small pages
 * each of the two costs a walk of the page tables, too. What the processor can
 * do about it is to begin the next get while it waits, as far as its window of
 * some 300 instructions reaches. So what counts is to have few instructions, no
 * barrier, and no branch that cannot be foreseen: both places are compared
 * whole, by vectors, and the mask says which slot. Remembered places (memos)
 * would save neither of the misses for keys that are many, and are not looked
 * at. Several keys go in three passes, each prefetching for the next. */
#include "pool/client/near.h"
#include "index/hash/entry.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define MEANING                                                                \
	(hash_slot_make(0, 0, (1u << HASH_PRINT_BITS) - 1) |                   \
	 HASH_PROVISIONAL | HASH_FROZEN)

/* Bytes: what memcpy is quickest for; an entry that is not too long to be
 * copied in place, while whoever takes its memory away waits; a key that any
 * hint covers. */
#define SHORT 1024u
#define LONGEST (8u << 20)
#define LONGEST_KEY 2048u

/* --- which slot --- */

/* A bit for each slot of a place that has this fingerprint and is confirmed;
 * some that are frozen or empty may be among them. */
#ifdef __SSE2__

/* By the upper halves of the words. The loads keep words whole: copy.h. */
static inline uint32_t compare(const uint8_t *place, uint64_t want)
{
	const volatile __m128i *words = (const void *)place;
	const __m128i mask =
		_mm_set1_epi32((int)((MEANING & ~HASH_FROZEN) >> 32));
	const __m128i print = _mm_set1_epi32((int)(want >> 32));
	__m128i half[4];

	for (int i = 0; i < 4; i++) {
		__m128 low = _mm_castsi128_ps(words[2 * i]);
		__m128 high = _mm_castsi128_ps(words[2 * i + 1]);
		__m128i upper = _mm_castps_si128(
			_mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)));

		half[i] = _mm_cmpeq_epi32(_mm_and_si128(upper, mask), print);
	}
	return (uint32_t)_mm_movemask_epi8(
		_mm_packs_epi16(_mm_packs_epi32(half[0], half[1]),
				_mm_packs_epi32(half[2], half[3])));
}

#else

static inline uint32_t compare(const uint8_t *place, uint64_t want)
{
	const _Atomic uint64_t *words = (const void *)place;
	uint32_t bits = 0;

	for (uint32_t i = 0; i < HASH_PLACE_SLOTS; i++) {
		uint64_t word =
			atomic_load_explicit(&words[i], memory_order_relaxed);

		bits |= (uint32_t)((word & MEANING & ~HASH_FROZEN) == want)
			<< i;
	}
	return bits;
}

#endif

/* The key's slot, if it is plain to see. */
static inline bool choose(struct hash_reading *reading, const uint8_t *subtable)
{
	uint64_t want = hash_slot_make(0, 0, reading->print), slot;
	uint32_t bits = compare(subtable + reading->place[0], want) |
			compare(subtable + reading->place[1], want)
				<< HASH_PLACE_SLOTS;
	const _Atomic uint64_t *at;
	uint32_t i;

	if (unlikely(!bits))
		return false;
	i = (uint32_t)__builtin_ctz(bits);
	at = (const void *)(subtable + hash_slot_address(reading, i) -
			    reading->leaf);
	/* Acquire: with the CAS that put it there, the entry's bytes. */
	slot = atomic_load_explicit(at, memory_order_acquire);
	if (unlikely((slot & MEANING) != want || !hash_slot_block(slot)))
		return false;
	reading->slot = slot;
	reading->slot_at = i;
	return true;
}

/* --- the three passes --- */

static inline const uint8_t *near_subtable(struct hash_table *table,
					   struct hash_reading *reading)
{
	const struct hash_leaf *leaf = hash_leaf_known(table, reading->hash);

	if (unlikely(!leaf || leaf->epoch != reef_epoch(table->reef)))
		return NULL;
	reading->leaf = leaf->subtable;
	reading->depth = leaf->depth;
	return client_near_at(table->reef, leaf->subtable,
			      hash_subtable_size(table), false);
}

static inline const uint8_t *near_entry(struct hash_table *table,
					struct hash_reading *reading,
					const uint8_t *subtable)
{
	if (unlikely(!subtable || !choose(reading, subtable) ||
		     !client_near_long(table->space,
				       hash_slot_block(reading->slot),
				       &reading->entry_at)))
		return NULL;
	/* It will be freed, most likely. */
	if (reading->to_change)
		client_free_hint(table->space, reading->entry_at);
	return client_near_at(table->reef, reading->entry_at,
			      hash_hint_size(hash_slot_hint(reading->slot)),
			      false);
}

/* The value, into the room. */
static inline bool take_value(struct hash_reading *reading)
{
	const void *value = reading->entry.value;

	reading->entry.value = NULL;
	if (reading->blind)
		return true;
	/* One byte at least, so that there is a room. */
	if (unlikely(
		    hash_reading_room(reading, reading->entry.value_size + 1u)))
		return false;
	if (likely(reading->entry.value_size <= SHORT))
		memcpy(reading->room, value, reading->entry.value_size);
	else
		reef_copy_from_shared(reading->room, value,
				      reading->entry.value_size);
	reading->entry.value = reading->room;
	return true;
}

/* Is all of it there, if more is wanted than its hint says? */
static inline bool has_all(const struct hash_table *table,
			   const struct hash_reading *reading, size_t size)
{
	if (likely(size <= hash_hint_size(hash_slot_hint(reading->slot))))
		return true;
	return size <= LONGEST && reading->key_size <= LONGEST_KEY &&
	       (reading->blind ||
		client_near_at(table->reef, reading->entry_at, size, false));
}

/* An entry that a slot names does not change, but for its live and touched, and
 * its memory is not another's while we are entered: so it is looked at where it
 * is, and what was whole when it was published needs no checksum. */
static inline bool near_take(const struct hash_table *table,
			     struct hash_reading *reading, const uint8_t *entry)
{
	const struct hash_entry_head *head = (const void *)entry;
	uint64_t live;
	size_t size;

	if (unlikely(!entry))
		return false;
	live = atomic_load_explicit((const _Atomic uint64_t *)&head->live,
				    memory_order_acquire);
	if (unlikely(live != head->version || !hash_entry_peek(head, &size) ||
		     !has_all(table, reading, size) ||
		     !hash_entry_is_ours(table, head) ||
		     !hash_entry_is_of(head, reading->key, reading->key_size)))
		return false;
	reading->entry = hash_entry_view(head);
	reading->entry.key = reading->key;
	if (!take_value(reading))
		return false;
	reading->slot_at =
		hash_slot_address(reading, (uint32_t)reading->slot_at);
	reading->status = 0;
	return true;
}

static inline bool find_one(struct hash_table *table,
			    struct hash_reading *reading)
{
	const uint8_t *at = near_subtable(table, reading);

	at = near_entry(table, reading, at);
	return near_take(table, reading, at);
}

static uint32_t find_many(struct hash_table *table,
			  struct hash_reading *readings, uint32_t count)
{
	const uint8_t *at[HASH_TOGETHER];
	uint32_t i, missing = 0;

	for (i = 0; i < count; i++) {
		at[i] = near_subtable(table, &readings[i]);
		for (uint32_t j = 0; at[i] && j < 2; j++)
			reef_near_prefetch(at[i] + readings[i].place[j],
					   HASH_PLACE_SIZE, false);
	}
	for (i = 0; i < count; i++) {
		at[i] = near_entry(table, &readings[i], at[i]);
		if (at[i])
			reef_near_prefetch(at[i],
					   hash_hint_size(hash_slot_hint(
						   readings[i].slot)),
					   false);
	}
	for (i = 0; i < count; i++)
		missing += !near_take(table, &readings[i], at[i]);
	return missing;
}

bool hash_near_is_stale(struct hash_table *table,
			const struct hash_reading *reading)
{
	const struct hash_leaf *leaf = hash_leaf_known(table, reading->hash);

	return table->reef->near && leaf &&
	       leaf->epoch != reef_epoch(table->reef);
}

uint32_t hash_find_near(struct hash_table *table, struct hash_reading *readings,
			uint32_t count)
{
	uint32_t phase, missing;

	if (!client_near_enter(table->reef, &phase))
		return count;
	if (count == 1)
		missing = !find_one(table, readings);
	else
		missing = find_many(table, readings, count);
	client_near_leave(table->reef, phase);
	return missing;
}
