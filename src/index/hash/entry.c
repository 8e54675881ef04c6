/* entry.c - entries: what a slot names. */
#include "index/hash/entry.h"
#include "base/log.h"
#include "base/mutant.h"
#include "pool/client/handle/near.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_BITS 40 /* that count */

/* A version has 24 bits of the handle and 40 that count: a handle's own are in
 * order. Counts begin anywhere, so that handles whose 24 bits are the same by
 * chance (a few thousand are enough for that) do not count to the same. */
static uint64_t next_version(struct hash_table *table, uint64_t block)
{
	const uint64_t counts = (UINT64_C(1) << VERSION_BITS) - 1;
	uint64_t session = reef_session(table->reef);

	if (!table->versions) {
		table->versions =
			hash_mix(hash_mix(session << 32 ^ reef_now_ns()) ^
				 block) |
			1;
		table->version_base = table->versions & ~counts;
	}
	table->versions++;
	/* 0 is no version. */
	if (!((table->versions & counts) | table->version_base))
		table->versions++;
	return table->version_base | (table->versions & counts);
}

void *hash_spare_take(struct hash_table *table, size_t size)
{
	if (size > HASH_SPARE)
		return malloc(size);
	return table->spares_count ? table->spares[--table->spares_count]
				   : malloc(HASH_SPARE);
}

void hash_spare_give(struct hash_table *table, void *bytes, size_t size)
{
	if (bytes && size <= HASH_SPARE && table->spares_count < HASH_SPARES)
		table->spares[table->spares_count++] = bytes;
	else
		free(bytes);
}

/* True if the value is not among the entry's bytes. */
static bool is_apart(const struct hash_fresh *fresh)
{
	return fresh->value || fresh->staged;
}

/* Put the entry's bytes together, but for a long value, which is written from
 * where it is, or is written already. */
static int fill_bytes(struct hash_table *table, const void *key,
		      uint32_t key_size, const struct hash_entry *put,
		      struct hash_fresh *fresh)
{
	size_t part = HASH_ENTRY_HEAD + (size_t)key_size;
	const struct hash_staged *staged = put->staged;
	struct hash_entry_head *head;

	reef_assert(put->value || put->staged || !put->value_size);
	fresh->size = part + put->value_size;
	fresh->value = fresh->size > HASH_ALONG ? put->value : NULL;
	if (!is_apart(fresh))
		part = fresh->size;
	head = is_apart(fresh) ? malloc(part) : hash_spare_take(table, part);
	if (!head)
		return -ENOMEM;
	fresh->bytes = head;
	*head = (struct hash_entry_head){
		.version = next_version(table, fresh->at),
		.stamp = put->stamp,
		.touched = put->touched,
		.sizes = hash_sizes_make(key_size, put->value_size,
					 table->root_number),
		.root_high = (uint16_t)(table->root_number >> 20),
	};
	if (key_size)
		memcpy(head + 1, key, key_size);
	if (put->value_size && !is_apart(fresh))
		memcpy((char *)(head + 1) + key_size, put->value,
		       put->value_size);
	head->live = head->version;
	head->crc = hash_entry_crc(head, part);
	if (fresh->value)
		head->crc = reef_crc32c(head->crc, put->value, put->value_size);
	if (staged)
		head->crc = reef_crc32c_join(head->crc, staged->crc,
					     put->value_size);
	return 0;
}

static int take_block(struct hash_table *table, uint32_t key_size,
		      const struct hash_entry *put, struct hash_fresh *fresh)
{
	size_t size = HASH_ENTRY_HEAD + (size_t)key_size + put->value_size;
	int rc;

	if (put->staged) {
		reef_assert(put->staged->key_size == key_size &&
			    put->staged->value_size == put->value_size);
		/* A slot may still name it since the last attempt. */
		if (put->staged->is_taken)
			return -EBUSY;
		fresh->staged = put->staged;
		fresh->at = put->staged->at;
		return 0;
	}
	/* 56 at least: smaller blocks have no short address. */
	rc = reef_alloc_kind(table->space, REEF_BLOCK_HASH_ENTRY,
			     size < 56 ? 56 : size, &fresh->at);
	if (rc)
		fresh->at = 0;
	return rc;
}

int hash_fresh_make(struct hash_table *table, uint64_t hash, const void *key,
		    uint32_t key_size, const struct hash_entry *put,
		    struct hash_fresh *fresh)
{
	uint64_t block;
	size_t size;
	int rc;

	if (key_size > HASH_KEY_MAX || put->value_size > HASH_VALUE_MAX)
		return -EINVAL;
	size = HASH_ENTRY_HEAD + (size_t)key_size + put->value_size;
	rc = take_block(table, key_size, put, fresh);
	if (rc)
		return rc;
	/* The block comes into the cache while its key is looked up. */
	client_near_hint(table->reef, fresh->at - 8, size + 8);
	rc = reef_short_address(table->space, fresh->at, &block);
	rc = rc ? rc : fill_bytes(table, key, key_size, put, fresh);
	if (rc) {
		hash_fresh_drop(table, fresh, true);
		return rc;
	}
	fresh->written = false;
	fresh->content =
		hash_slot_make(block, hash_hint_of(size), hash_print(hash));
	return 0;
}

struct reef_access hash_fresh_access(const struct hash_fresh *fresh)
{
	return (struct reef_access){
		.kind = REEF_WRITE,
		.address = fresh->at,
		.local = fresh->bytes,
		.length = (uint32_t)fresh->size,
	};
}

static int write_apart(struct hash_table *table, const struct hash_fresh *fresh)
{
	size_t part = fresh->size - hash_value_size(fresh->bytes);
	struct reef_access accesses[2] = {
		{
			.kind = REEF_WRITE,
			.address = fresh->at,
			.local = fresh->bytes,
			.length = (uint32_t)part,
		},
		{
			.kind = REEF_WRITE,
			.address = fresh->at + part,
			.local = (void *)fresh->value,
			.length = (uint32_t)(fresh->size - part),
		},
	};

	return reef_execute(table->reef, accesses, fresh->staged ? 1 : 2);
}

int hash_fresh_write(struct hash_table *table, struct hash_fresh *fresh)
{
	int rc = 0;

	if (fresh->staged)
		fresh->staged->is_shown = true;
	if (!fresh->written && is_apart(fresh))
		rc = write_apart(table, fresh);
	else if (!fresh->written)
		rc = reef_write(table->reef, fresh->at, fresh->bytes,
				fresh->size);
	/* Nobody else knows of the block, so a WRITE in doubt is repeated. */
	if (rc == -REEF_EINDOUBT)
		return -EAGAIN;
	fresh->written = !rc;
	return rc;
}

void hash_fresh_drop(struct hash_table *table, struct hash_fresh *fresh,
		     bool block)
{
	bool is_free = block && !fresh->is_named;

	if (fresh->staged)
		fresh->staged->is_taken = !is_free;
	else if (fresh->at && is_free)
		hash_entry_free(table, fresh->at);
	hash_spare_give(table, fresh->bytes,
			is_apart(fresh) ? HASH_SPARE + 1 : fresh->size);
	*fresh = (struct hash_fresh){0};
}

void hash_entry_free(struct hash_table *table, uint64_t at)
{
	if (REEF_MUTATED(HASH_NO_TAG))
		reef_free(table->space, at, 0);
	else
		hash_free_later(table, at);
}

void hash_free_later(struct hash_table *table, uint64_t at)
{
	/* A block that cannot be freed now ends with its session. */
	reef_free(table->space, at,
		  REEF_MUTATED(HASH_EARLY_REUSE) ? 0 : REEF_FREE_LATER);
}

/* --- values that are there before their entry --- */

int hash_staged_take(struct reef_space *space, uint32_t key_size,
		     uint32_t value_size, uint32_t spare,
		     struct hash_staged *out)
{
	uint64_t at;
	int rc;

	/* Shorter values are written along with a lookup. */
	if (key_size > HASH_KEY_MAX || value_size > HASH_VALUE_MAX ||
	    value_size <= HASH_ALONG)
		return -EINVAL;
	rc = reef_alloc_kind(
		space, REEF_BLOCK_HASH_ENTRY,
		HASH_ENTRY_HEAD + (uint64_t)key_size + value_size + spare, &at);
	if (!rc) {
		rc = reef_block_stage(space, at, true);
		if (rc)
			reef_free(space, at, 0);
	}
	if (!rc)
		*out = (struct hash_staged){
			.at = at,
			.key_size = key_size,
			.value_size = value_size,
		};
	return rc;
}

void hash_staged_give(struct reef_space *space, struct hash_staged *staged)
{
	if (staged->at)
		reef_block_stage(space, staged->at, false);
	if (staged->at && !staged->is_taken)
		reef_free(space, staged->at,
			  staged->is_shown ? REEF_FREE_LATER : 0);
	staged->at = 0;
}

uint64_t hash_staged_value(const struct hash_staged *staged)
{
	return staged->at + HASH_ENTRY_HEAD + staged->key_size;
}

uint64_t hash_entry_footprint(size_t key_size, size_t value_size)
{
	return sizeof(uint64_t) +
	       reef_block_footprint(HASH_ENTRY_HEAD + key_size + value_size);
}
