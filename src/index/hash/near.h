/* near.h - the plain case of looking up, in place (near.c), inlined: for
 * near.c, and for the map's own get, which is little else.
 *
 * Thread: as table.h. */
#ifndef REEF_INDEX_HASH_NEAR_H
#define REEF_INDEX_HASH_NEAR_H

#include "index/hash/place.h"
#include "pool/client/handle/near.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The bits of a slot that decide whether it is a key's in the plain case. */
#define HASH_NEAR_MEANING                                                      \
	(hash_slot_make(0, 0, (1u << HASH_PRINT_BITS) - 1) |                   \
	 HASH_PROVISIONAL | HASH_INTENT | HASH_FROZEN)

/* In bytes: the longest value that memcpy copies quickest; the longest entry
 * that is copied in place, while whoever takes its memory away waits; the
 * longest key that every hint covers. */
#define HASH_NEAR_SHORT 1024u
#define HASH_NEAR_LONGEST (8u << 20)
#define HASH_NEAR_LONGEST_KEY 2048u

/* The bits of an entry's sizes that its key and its table determine. */
#define HASH_SIZES_FIXED entry_sizes_make(ENTRY_KEY_BITS, 0, UINT32_MAX)

/* --- which slot --- */

/* A bit for each slot of a place that has this fingerprint and is confirmed;
 * some that are frozen or empty may be among them. */
#ifdef __SSE2__

/* Only the upper halves of the words are compared. The loads keep words whole:
 * copy.h. */
static inline uint32_t hash_near_match_slots(const uint8_t *place,
					     uint64_t want)
{
	const volatile __m128i *words = (const void *)place;
	const __m128i mask =
		_mm_set1_epi32((int)((HASH_NEAR_MEANING & ~HASH_FROZEN) >> 32));
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

static inline uint32_t hash_near_match_slots(const uint8_t *place,
					     uint64_t want)
{
	const _Atomic uint64_t *words = (const void *)place;
	uint32_t bits = 0;

	for (uint32_t i = 0; i < HASH_PLACE_SLOTS; i++) {
		uint64_t word =
			atomic_load_explicit(&words[i], memory_order_relaxed);

		bits |= (uint32_t)((word & HASH_NEAR_MEANING & ~HASH_FROZEN) ==
				   want)
			<< i;
	}
	return bits;
}

#endif

/* Find the key's slot, in the plain case (near.c). False: it is not plain. */
static inline bool hash_near_find_slot(struct hash_reading *reading,
				       const uint8_t *subtable)
{
	uint64_t want = hash_slot_make(0, 0, reading->print), slot;
	uint32_t bits =
		hash_near_match_slots(subtable + reading->place[0], want) |
		hash_near_match_slots(subtable + reading->place[1], want)
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
	if (unlikely((slot & HASH_NEAR_MEANING) != want ||
		     !hash_slot_block(slot)))
		return false;
	reading->slot = slot;
	reading->slot_at = i;
	return true;
}

/* --- the three passes --- */

/* Prefetch the key's places where its subtable was last, before it is known
 * whether it still is there; if it is not, that does no harm. */
static inline void hash_near_prefetch_places(const struct hash_table *table,
					     const struct hash_reading *reading)
{
	uintptr_t at =
		table->leaves[hash_suffix(reading->hash, table->depth)].at;

	for (uint32_t i = 0; i < 2; i++) {
		const uint8_t *place =
			(const uint8_t *)(at + reading->place[i]);

		__builtin_prefetch(place);
		__builtin_prefetch(place + HASH_PLACE_SIZE / 2);
	}
}

/* The first pass: the key's subtable. NULL: it is not known in this epoch, or
 * not in place. */
static inline __attribute__((always_inline)) const uint8_t *hash_near_subtable(
	struct hash_table *table, struct hash_reading *reading, uint64_t epoch)
{
	struct hash_leaf *leaf = hash_leaf_known(table, reading->hash);
	const uint8_t *at;

	if (unlikely(!leaf || leaf->epoch != epoch))
		return NULL;
	reading->leaf = leaf->subtable;
	reading->depth = leaf->depth;
	at = client_near_see(table->reef, leaf->subtable,
			     hash_subtable_size(table));
	if (unlikely(leaf->at != (uintptr_t)at))
		leaf->at = (uintptr_t)at;
	return at;
}

/* The second pass: the entry that the key's slot names. NULL: not plain. */
static inline __attribute__((always_inline)) const uint8_t *
hash_near_entry(struct hash_table *table, struct hash_reading *reading,
		const uint8_t *subtable)
{
	if (unlikely(!subtable || !hash_near_find_slot(reading, subtable) ||
		     !client_near_long(table->space,
				       hash_slot_block(reading->slot),
				       &reading->entry_at)))
		return NULL;
	/* The block of an entry that is to be changed is freed, most likely. */
	if (reading->to_change)
		client_free_hint(table->space, reading->entry_at);
	return client_near_see(table->reef, reading->entry_at,
			       entry_hint_size(hash_slot_hint(reading->slot)));
}

/* As memcpy, but without a call for the most usual sizes: 32 to 64 bytes are
 * four pieces that may overlap. */
static inline void hash_near_copy(void *to, const void *from, size_t size)
{
	uint64_t pieces[4][2];

	if (unlikely(size - 32 > 32)) {
		memcpy(to, from, size);
		return;
	}
	memcpy(pieces[0], from, 16);
	memcpy(pieces[1], (const char *)from + 16, 16);
	memcpy(pieces[2], (const char *)from + size - 32, 16);
	memcpy(pieces[3], (const char *)from + size - 16, 16);
	memcpy(to, pieces[0], 16);
	memcpy((char *)to + 16, pieces[1], 16);
	memcpy((char *)to + size - 32, pieces[2], 16);
	memcpy((char *)to + size - 16, pieces[3], 16);
}

/* Copy the value into the reading's room. grows: a room that is too small is
 * made larger; else the value is refused. */
static inline bool hash_near_copy_value(struct hash_reading *reading,
					bool grows)
{
	const void *value = reading->entry.value;

	reading->entry.value = NULL;
	if (hash_reading_skips(reading, reading->entry.value_size))
		return true;
	/* One byte more, so that there is a room even for an empty value. */
	if (grows ? unlikely(entry_room_need(&reading->room,
					     reading->entry.value_size + 1u))
		  : unlikely(reading->room.size <= reading->entry.value_size))
		return false;
	if (likely(reading->entry.value_size <= HASH_NEAR_SHORT))
		hash_near_copy(reading->room.bytes, value,
			       reading->entry.value_size);
	else
		reef_near_read(value, reading->room.bytes,
			       reading->entry.value_size);
	reading->entry.value = reading->room.bytes;
	return true;
}

/* True if that many bytes of the entry may be read in place. Most entries are
 * not longer than the slot's hint, and those bytes were checked before. */
static inline bool hash_near_covers(const struct hash_table *table,
				    const struct hash_reading *reading,
				    size_t size)
{
	if (likely(size <= entry_hint_size(hash_slot_hint(reading->slot))))
		return true;
	if (size > HASH_NEAR_LONGEST ||
	    reading->key_size > HASH_NEAR_LONGEST_KEY)
		return false;
	if (reading->blind)
		size = ENTRY_HEAD + (size_t)reading->key_size;
	return client_near_see(table->reef, reading->entry_at, size);
}

/* The third pass: read the entry. False: it is not plain.
 *
 * An entry that a slot names does not change, but for its live and touched, and
 * its memory is not another's while we are entered: so it is read where it is,
 * and needs no checksum, as it was whole when it was published. Even if
 * somebody writes into it in spite of that, nobody reads outside of it: its
 * sizes are read once. */
static inline __attribute__((always_inline)) bool hash_near_read_entry(
	const struct hash_table *table, struct hash_reading *reading,
	const uint8_t *entry, bool grows)
{
	const struct entry_head *head = (const void *)entry;
	uint64_t live, sizes, want;
	size_t size;

	if (unlikely(!entry))
		return false;
	live = atomic_load_explicit((const _Atomic uint64_t *)&head->live,
				    memory_order_acquire);
	/* The size of the key and the table are compared as one word. A key
	 * size of more than 17 bits is refused by hash_near_covers. */
	want = entry_sizes_make(reading->key_size, 0, table->home.number);
	sizes = atomic_load_explicit((const _Atomic uint64_t *)&head->sizes,
				     memory_order_relaxed);
	size = ENTRY_HEAD + (size_t)reading->key_size +
	       entry_sizes_value(sizes);
	if (unlikely(!live || live != head->version ||
		     (sizes ^ want) & HASH_SIZES_FIXED ||
		     head->number_high != table->home.number >> 20 ||
		     !hash_near_covers(table, reading, size) ||
		     !entry_has_key(head, reading->key, reading->key_size)))
		return false;
	reading->entry = (struct entry){
		.key = reading->key,
		.key_size = reading->key_size,
		.value = (const char *)(head + 1) + reading->key_size,
		.value_size = (uint32_t)size - ENTRY_HEAD - reading->key_size,
		.version = live,
		.stamp = head->stamp,
		.touched = head->touched,
	};
	if (!hash_near_copy_value(reading, grows))
		return false;
	reading->slot_at =
		hash_slot_address(reading, (uint32_t)reading->slot_at);
	reading->status = 0;
	return true;
}

static inline __attribute__((always_inline)) bool
hash_near_find(struct hash_table *table, struct hash_reading *reading,
	       uint64_t epoch, bool grows)
{
	const uint8_t *at = hash_near_subtable(table, reading, epoch);

	at = hash_near_entry(table, reading, at);
	return hash_near_read_entry(table, reading, at, grows);
}

/* hash_touch in place. No barrier after it: nobody waits for such a note, and
 * it is there before we leave, so while the block is still the entry's. False:
 * it has to be done otherwise. */
static inline bool hash_near_touch(struct hash_table *table,
				   const struct hash_reading *reading,
				   uint16_t touched)
{
	uint8_t *at = client_near_at(
		table->reef,
		reading->entry_at + offsetof(struct entry_head, touched),
		sizeof(touched), true);

	if (at)
		atomic_store_explicit((_Atomic uint16_t *)at, touched,
				      memory_order_relaxed);
	return at;
}

/* Get one key in place, if nothing has to be waited for and the room, which
 * stays the caller's, is longer than the value; not inside reef_enter. use:
 * true if this use has to be noted, and as what. Of *out the value is the room.
 * is_copied: table->is_copied, known to the caller. False: hash_get tells.
 *
 * All members of the reading are in registers here, as nobody is given its
 * address. */
static inline __attribute__((always_inline)) bool hash_get_near(
	struct hash_table *table, const void *key, uint32_t key_size,
	void *room, size_t room_size,
	bool (*use)(const void *context, uint16_t touched, uint16_t *next),
	const void *context, bool is_copied, struct entry *out)
{
	struct hash_reading reading;
	struct client_near near;
	uint16_t next;
	bool found;

	hash_reading_begin(&reading, key, key_size, room, room_size);
	reading.hash = hash_of_key(table, key, key_size);
	reading.print = hash_places(table, reading.hash, reading.place);
	hash_near_prefetch_places(table, &reading);
	if (!client_near_begin(table->reef, &near))
		return false;
	found = hash_near_find(table, &reading, near.epoch, false);
	if (found && unlikely(use(context, reading.entry.touched, &next)) &&
	    !hash_near_touch(table, &reading, next))
		/* Both copies have to be told, by who may. */
		found = !is_copied ||
			!client_may_change(table->reef, reading.entry_at);
	client_near_end(table->reef, &near);
	if (is_copied && found)
		found = client_near_counts(table->reef);
	if (found)
		*out = reading.entry;
	return found;
}

#endif
