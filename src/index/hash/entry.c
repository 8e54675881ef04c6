/* entry.c - entries: what a slot names. */
#include "base/checksum.h"
#include "base/sched.h"
#include "index/hash/internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t hash)
{
	hash ^= hash >> 32;
	hash *= UINT64_C(0xd6e8feb86659fd93);
	hash ^= hash >> 32;
	hash *= UINT64_C(0xd6e8feb86659fd93);
	return hash ^ hash >> 32;
}

uint64_t hash_of_key(const struct hash_table *table, const void *key,
		     uint32_t size)
{
	return reef_hash(key, size, table->seed);
}

/* The low bits choose the subtable, the high half and a second mix the places;
 * fingerprints are to say something new. */
uint32_t hash_print(uint64_t hash)
{
	return (uint32_t)mix(hash) & ((1u << HASH_PRINT_BITS) - 1);
}

void hash_places(const struct hash_table *table, uint64_t hash,
		 uint64_t place[2])
{
	uint64_t second = mix(hash) >> 16;
	uint32_t group[2], side[2], i;

	group[0] = (uint32_t)((hash >> 33) % table->groups);
	side[0] = hash >> 32 & 1;
	group[1] = (uint32_t)((second >> 1) % (table->groups - 1));
	group[1] = (group[0] + 1 + group[1]) % table->groups;
	side[1] = second & 1;
	for (i = 0; i < 2; i++)
		place[i] = HASH_SUBTABLE_HEADER +
			   (uint64_t)group[i] * HASH_GROUP_SIZE +
			   side[i] * 8 * HASH_BUCKET_SLOTS;
}

/* --- bytes --- */

static uint32_t crc_of(const void *bytes, size_t size)
{
	const struct hash_entry_head *head = bytes;
	uint32_t crc;

	crc = reef_crc32c(0, &head->version,
			  offsetof(struct hash_entry_head, crc) -
				  offsetof(struct hash_entry_head, version));
	crc = reef_crc32c(crc, &head->root, sizeof(head->root));
	return reef_crc32c(crc, head + 1, size - HASH_ENTRY_HEAD);
}

bool hash_entry_peek(const void *bytes, size_t *size)
{
	const struct hash_entry_head *head = bytes;

	if (head->key_size > HASH_KEY_MAX || head->value_size > HASH_VALUE_MAX)
		return false;
	*size = hash_entry_size(head);
	return true;
}

bool hash_entry_is_sound(const struct hash_table *table, const void *bytes,
			 size_t size)
{
	const struct hash_entry_head *head = bytes;
	size_t real;

	return hash_entry_peek(bytes, &real) && real <= size &&
	       head->root == table->root_number && head->version &&
	       head->crc == crc_of(bytes, real);
}

/* 24 bits of whose, 40 of how many: a handle's own are in order. */
static uint64_t next_version(struct hash_table *table, uint64_t block)
{
	uint64_t session = reef_session(table->reef);

	if (!table->version_base)
		table->version_base =
			mix(mix(session << 32 ^ reef_now_ns()) ^ block) << 40;
	return table->version_base |
	       (++table->versions & ((UINT64_C(1) << 40) - 1));
}

int hash_entry_make(struct hash_table *table, uint64_t hash, const void *key,
		    uint32_t key_size, const struct hash_entry *put,
		    uint64_t *at, uint64_t *slot, uint64_t *version)
{
	struct hash_entry_head *head;
	uint64_t block;
	size_t size;
	int rc;

	if (key_size > HASH_KEY_MAX || put->value_size > HASH_VALUE_MAX)
		return -EINVAL;
	size = HASH_ENTRY_HEAD + (size_t)key_size + put->value_size;
	head = malloc(size);
	if (!head)
		return -ENOMEM;
	*head = (struct hash_entry_head){
		.stamp = put->stamp,
		.key_size = key_size,
		.value_size = put->value_size,
		.root = table->root_number,
	};
	if (key_size)
		memcpy(head + 1, key, key_size);
	if (put->value_size)
		memcpy((char *)(head + 1) + key_size, put->value,
		       put->value_size);
	/* 56 at least: smaller blocks have no short address. */
	rc = reef_alloc_kind(table->space, HASH_KIND_ENTRY,
			     size < 56 ? 56 : size, at);
	if (!rc) {
		rc = reef_short_address(table->space, *at, &block);
		head->version = next_version(table, *at);
		head->crc = crc_of(head, size);
		if (!rc)
			rc = reef_write(table->reef, *at, head, size);
		if (rc)
			reef_free(table->space, *at, 0);
	}
	if (!rc) {
		*slot = hash_slot_make(block, hash_hint_of(size),
				       hash_print(hash));
		*version = head->version;
	}
	free(head);
	return rc;
}

void hash_entry_free(struct hash_table *table, uint64_t at)
{
	/* Best effort: what cannot be freed now ends with its session. */
	reef_free(table->space, at,
		  hash_mutant == HASH_MUTANT_EARLY_REUSE ? 0 : REEF_FREE_LATER);
}
