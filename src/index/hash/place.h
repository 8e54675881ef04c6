/* place.h - where a key is: what every lookup does first, inlined.
 *
 * Thread: any. */
#ifndef REEF_INDEX_HASH_PLACE_H
#define REEF_INDEX_HASH_PLACE_H

#include "base/quick.h"
#include "index/hash/internal.h"

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

/* A number below `count` of 32 random bits. */
static inline uint32_t hash_below(uint64_t bits, uint32_t count)
{
	return (uint32_t)(((bits & UINT32_MAX) * count) >> 32);
}

/* The two places of a hash in a subtable, as offsets from its address; returns
 * its fingerprint. That comes from a second mix: the low bits of the hash
 * choose the subtable and its high half the places, so they would say nothing
 * new. */
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

/* Set the hash, fingerprint and places of a reading's key. */
static inline void hash_place(const struct hash_table *table,
			      struct hash_reading *reading)
{
	reading->hash = hash_of_key(table, reading->key, reading->key_size);
	reading->print = hash_places(table, reading->hash, reading->place);
}

#endif
