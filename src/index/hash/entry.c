/* entry.c - entries: what a slot names. */
#include "index/hash/entry.h"
#include "base/sched.h"
#include "pool/client/near.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* 24 bits of whose, 40 of how many: a handle's own are in order. */
static uint64_t next_version(struct hash_table *table, uint64_t block)
{
	uint64_t session = reef_session(table->reef);

	if (!table->version_base)
		table->version_base =
			hash_mix(hash_mix(session << 32 ^ reef_now_ns()) ^
				 block)
			<< 40;
	return table->version_base |
	       (++table->versions & ((UINT64_C(1) << 40) - 1));
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

int hash_fresh_make(struct hash_table *table, uint64_t hash, const void *key,
		    uint32_t key_size, const struct hash_entry *put,
		    struct hash_fresh *fresh)
{
	struct hash_entry_head *head;
	uint64_t block;
	size_t size;
	int rc;

	if (key_size > HASH_KEY_MAX || put->value_size > HASH_VALUE_MAX)
		return -EINVAL;
	size = HASH_ENTRY_HEAD + (size_t)key_size + put->value_size;
	/* 56 at least: smaller blocks have no short address. */
	rc = reef_alloc_kind(table->space, HASH_KIND_ENTRY,
			     size < 56 ? 56 : size, &fresh->at);
	if (rc) {
		fresh->at = 0;
		return rc;
	}
	/* It comes into the cache while its key is looked up. */
	client_near_hint(table->reef, fresh->at - 8, size + 8);
	rc = reef_short_address(table->space, fresh->at, &block);
	head = rc ? NULL : hash_spare_take(table, size);
	if (!head) {
		hash_fresh_drop(table, fresh, true);
		return rc ? rc : -ENOMEM;
	}
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
	if (put->value_size)
		memcpy((char *)(head + 1) + key_size, put->value,
		       put->value_size);
	head->live = head->version;
	head->crc = hash_entry_crc(head, size);
	fresh->bytes = head;
	fresh->size = size;
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

int hash_fresh_write(struct hash_table *table, struct hash_fresh *fresh)
{
	int rc = 0;

	if (!fresh->written)
		rc = reef_write(table->reef, fresh->at, fresh->bytes,
				fresh->size);
	/* Nobody else knows of it: it can be done again. */
	if (rc == -REEF_EINDOUBT)
		return -EAGAIN;
	fresh->written = !rc;
	return rc;
}

void hash_fresh_drop(struct hash_table *table, struct hash_fresh *fresh,
		     bool block)
{
	if (block && fresh->at && !fresh->is_named)
		hash_entry_free(table, fresh->at);
	hash_spare_give(table, fresh->bytes, fresh->size);
	*fresh = (struct hash_fresh){0};
}

void hash_entry_free(struct hash_table *table, uint64_t at)
{
	if (hash_mutant == HASH_MUTANT_NO_TAG)
		reef_free(table->space, at, 0);
	else
		hash_free_later(table, at);
}

void hash_free_later(struct hash_table *table, uint64_t at)
{
	/* Best effort: what cannot be freed now ends with its session. */
	reef_free(table->space, at,
		  hash_mutant == HASH_MUTANT_EARLY_REUSE ? 0 : REEF_FREE_LATER);
}
