/* entry.h - keys and entries: what every lookup does with them, inlined.
 *
 * Thread: any. */
#ifndef REEF_INDEX_HASH_ENTRY_H
#define REEF_INDEX_HASH_ENTRY_H

#include "base/quick.h"
#include "index/hash/internal.h"

/* --- where a key is --- */

static inline uint64_t hash_mix(uint64_t hash)
{
	hash ^= hash >> 32;
	hash *= UINT64_C(0xd6e8feb86659fd93);
	hash ^= hash >> 32;
	hash *= UINT64_C(0xd6e8feb86659fd93);
	return hash ^ hash >> 32;
}

static inline uint64_t hash_of_key(const struct hash_table *table,
				   const void *key, uint32_t size)
{
	return reef_hash_quick(key, size, table->seed);
}

/* The fingerprint comes from a second mix: the low bits of the hash choose the
 * subtable and its high half the places, so they would say nothing new. */
static inline uint32_t hash_print(uint64_t hash)
{
	return (uint32_t)hash_mix(hash) & ((1u << HASH_PRINT_BITS) - 1);
}

/* A number below `count` of 32 random bits. */
static inline uint32_t hash_below(uint64_t bits, uint32_t count)
{
	return (uint32_t)(((bits & UINT32_MAX) * count) >> 32);
}

/* The two places of a hash in a subtable, as offsets from its address; returns
 * its fingerprint. */
static inline uint32_t hash_places(const struct hash_table *table,
				   uint64_t hash, uint64_t place[2])
{
	uint64_t second = hash_mix(hash);
	uint32_t group[2];

	group[0] = hash_below(hash >> 32, table->groups);
	group[1] = group[0] + 1 + hash_below(second >> 16, table->groups - 1);
	if (group[1] >= table->groups)
		group[1] -= table->groups;
	place[0] = HASH_SUBTABLE_HEADER + (uint64_t)group[0] * HASH_GROUP_SIZE +
		   (second >> 48 & 1) * 8 * HASH_BUCKET_SLOTS;
	place[1] = HASH_SUBTABLE_HEADER + (uint64_t)group[1] * HASH_GROUP_SIZE +
		   (second >> 49 & 1) * 8 * HASH_BUCKET_SLOTS;
	return (uint32_t)second & ((1u << HASH_PRINT_BITS) - 1);
}

/* --- bytes --- */

static inline uint32_t hash_entry_crc(const struct hash_entry_head *head,
				      size_t size)
{
	return reef_crc32c_quick(
		head->root_high, &head->version,
		size - offsetof(struct hash_entry_head, version));
}

/* False: these bytes are no entry's. Else *size is how long all of it is. */
static inline bool hash_entry_peek(const void *bytes, size_t *size)
{
	const struct hash_entry_head *head = bytes;

	if (hash_key_size(head) > HASH_KEY_MAX ||
	    hash_value_size(head) > HASH_VALUE_MAX)
		return false;
	*size = hash_entry_size(head);
	return true;
}

/* True if the head says that it is an entry of this table. */
static inline bool hash_entry_is_ours(const struct hash_table *table,
				      const struct hash_entry_head *head)
{
	return hash_entry_root(head) == table->root_number && head->version;
}

/* True if these `size` bytes are a whole entry of this table. */
static inline bool hash_entry_is_sound(const struct hash_table *table,
				       const void *bytes, size_t size)
{
	const struct hash_entry_head *head = bytes;
	size_t real;

	return hash_entry_peek(bytes, &real) && real <= size &&
	       hash_entry_is_ours(table, head) &&
	       head->crc == hash_entry_crc(head, real);
}

/* A whole entry, as others are told of it; it points into the bytes. */
static inline struct hash_entry hash_entry_view(const void *bytes)
{
	const struct hash_entry_head *head = bytes;
	const char *key = (const char *)(head + 1);

	return (struct hash_entry){
		.key = key,
		.key_size = hash_key_size(head),
		.value = key + hash_key_size(head),
		.value_size = hash_value_size(head),
		.version = head->version,
		.stamp = head->stamp,
		.touched = head->touched,
	};
}

/* True if an entry, whose key has that size, has that key. */
static inline bool hash_entry_has_key(const struct hash_entry_head *head,
				      const void *key, uint32_t key_size)
{
	const char *own = (const char *)(head + 1), *other = key;
	uint64_t a[2], b[2];

	/* Most keys are compared by two words, which may overlap. */
	if (key_size < 8 || key_size > 16)
		return !memcmp(own, other, key_size);
	memcpy(&a[0], own, 8);
	memcpy(&b[0], other, 8);
	memcpy(&a[1], own + key_size - 8, 8);
	memcpy(&b[1], other + key_size - 8, 8);
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]));
}

static inline bool hash_entry_is_of(const void *bytes, const void *key,
				    uint32_t key_size)
{
	const struct hash_entry_head *head = bytes;

	return hash_key_size(head) == key_size &&
	       hash_entry_has_key(head, key, key_size);
}

#endif
