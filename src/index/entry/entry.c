/* entry.c - entries: what a slot names. */
#include "index/entry/entry.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/mutant.h"
#include "pool/client/handle/near.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_COUNTS ((UINT64_C(1) << 40) - 1) /* bits that count */
#define PIECE (1u << 20) /* of a large entry that is read */
#define PIECES 64u

/* A version has 24 bits of the handle and 40 that count: a handle's own are in
 * order. Counts begin anywhere, so that handles whose 24 bits are the same by
 * chance (a few thousand are enough for that) do not count to the same. */
static void begin_versions(struct entry_home *home, uint64_t block)
{
	const uint64_t unique[3] = {reef_session(home->reef), reef_now_ns(),
				    block};

	home->versions = reef_hash(unique, sizeof(unique), 0) | 1;
	home->version_base = home->versions & ~VERSION_COUNTS;
}

static uint64_t next_version(struct entry_home *home, uint64_t block)
{
	if (!home->versions)
		begin_versions(home, block);
	home->versions++;
	/* 0 is no version. */
	if (!((home->versions & VERSION_COUNTS) | home->version_base))
		home->versions++;
	return home->version_base | (home->versions & VERSION_COUNTS);
}

void *entry_spare_take(struct entry_home *home, size_t size)
{
	if (size > ENTRY_SPARE)
		return malloc(size);
	return home->spares_count ? home->spares[--home->spares_count]
				  : malloc(ENTRY_SPARE);
}

void entry_spare_give(struct entry_home *home, void *bytes, size_t size)
{
	if (bytes && size <= ENTRY_SPARE && home->spares_count < ENTRY_SPARES)
		home->spares[home->spares_count++] = bytes;
	else
		free(bytes);
}

void entry_home_fini(struct entry_home *home)
{
	while (home->spares_count)
		free(home->spares[--home->spares_count]);
}

/* --- fresh entries --- */

/* True if the value is not among the entry's bytes. */
static bool is_apart(const struct entry_fresh *fresh)
{
	return fresh->value || fresh->staged;
}

/* Put the entry's bytes together, but for a long value, which is written from
 * where it is, or is written already. */
static int fill_bytes(struct entry_home *home, const void *key,
		      uint32_t key_size, const struct entry *put,
		      struct entry_fresh *fresh)
{
	size_t part = ENTRY_HEAD + (size_t)key_size;
	const struct entry_staged *staged = put->staged;
	struct entry_head *head;
	uint64_t *room;

	reef_assert(put->value || put->staged || !put->value_size);
	fresh->size = part + put->value_size;
	fresh->value = fresh->size > ENTRY_ALONG ? put->value : NULL;
	if (!is_apart(fresh))
		part = fresh->size;
	room = is_apart(fresh) ? malloc(part + 8)
			       : entry_spare_take(home, part + 8);
	if (!room)
		return -ENOMEM;
	fresh->bytes = head = (void *)(room + 1);
	*head = (struct entry_head){
		.version = next_version(home, fresh->at),
		.stamp = put->stamp,
		.touched = put->touched,
		.sizes = entry_sizes_make(key_size, put->value_size,
					  home->number),
		.number_high = (uint16_t)(home->number >> 20),
	};
	if (key_size)
		memcpy(head + 1, key, key_size);
	if (put->value_size && !is_apart(fresh))
		memcpy((char *)(head + 1) + key_size, put->value,
		       put->value_size);
	head->live = head->version;
	head->crc = entry_crc(head, part);
	if (fresh->value)
		head->crc = reef_crc32c(head->crc, put->value, put->value_size);
	if (staged)
		head->crc = reef_crc32c_join(head->crc, staged->crc,
					     put->value_size);
	return 0;
}

static int take_block(struct entry_home *home, uint32_t key_size,
		      const struct entry *put, struct entry_fresh *fresh)
{
	size_t size = ENTRY_HEAD + (size_t)key_size + put->value_size;
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
	rc = reef_alloc_kind(home->space, home->kind, size < 56 ? 56 : size,
			     &fresh->at);
	if (rc)
		fresh->at = 0;
	return rc;
}

int entry_fresh_make(struct entry_home *home, const void *key,
		     uint32_t key_size, const struct entry *put,
		     struct entry_fresh *fresh)
{
	uint64_t block;
	size_t size;
	int rc;

	if (key_size > ENTRY_KEY_MAX || put->value_size > ENTRY_VALUE_MAX)
		return -EINVAL;
	size = ENTRY_HEAD + (size_t)key_size + put->value_size;
	rc = take_block(home, key_size, put, fresh);
	if (rc)
		return rc;
	/* The block comes into the cache while its key is looked up. */
	client_near_hint(home->reef, fresh->at - 8, size + 8);
	rc = reef_short_address(home->space, fresh->at, &block);
	rc = rc ? rc : fill_bytes(home, key, key_size, put, fresh);
	if (rc) {
		entry_fresh_drop(home, fresh, true);
		return rc;
	}
	fresh->written = false;
	fresh->block = block;
	fresh->hint = entry_hint_of(size);
	return 0;
}

struct reef_access entry_fresh_access(const struct entry_fresh *fresh)
{
	return (struct reef_access){
		.kind = REEF_WRITE,
		.address = fresh->at,
		.local = fresh->bytes,
		.length = (uint32_t)fresh->size,
	};
}

struct reef_access entry_fresh_begin(struct entry_home *home,
				     struct entry_fresh *fresh)
{
	struct reef_access access = entry_fresh_access(fresh);
	uint64_t *header = (uint64_t *)(void *)fresh->bytes - 1;

	fresh->has_header = reef_header_take(home->space, fresh->at, header);
	if (fresh->has_header) {
		access.address -= 8;
		access.length += 8;
		access.local = header;
	}
	return access;
}

void entry_fresh_end(struct entry_home *home, struct entry_fresh *fresh, int rc)
{
	/* Nobody else knows of the block, so it may be written again. */
	if (rc && fresh->has_header)
		reef_header_give(home->space, fresh->at);
	fresh->has_header = false;
	fresh->written = !rc;
}

static int write_apart(struct entry_home *home, const struct entry_fresh *fresh)
{
	size_t part = fresh->size - entry_value_size(fresh->bytes);
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

	return reef_execute(home->reef, accesses, fresh->staged ? 1 : 2);
}

int entry_fresh_write(struct entry_home *home, struct entry_fresh *fresh)
{
	int rc = 0;

	if (fresh->staged)
		fresh->staged->is_shown = true;
	if (!fresh->written && is_apart(fresh))
		rc = write_apart(home, fresh);
	else if (!fresh->written)
		rc = reef_write(home->reef, fresh->at, fresh->bytes,
				fresh->size);
	/* Nobody else knows of the block, so a WRITE in doubt is repeated. */
	if (rc == -REEF_EINDOUBT)
		return -EAGAIN;
	fresh->written = !rc;
	return rc;
}

void entry_fresh_drop(struct entry_home *home, struct entry_fresh *fresh,
		      bool block)
{
	bool is_free = block && !fresh->is_named;

	if (fresh->staged)
		fresh->staged->is_taken = !is_free;
	else if (fresh->at && is_free)
		entry_free(home, fresh->at);
	if (fresh->bytes)
		entry_spare_give(home, (uint64_t *)(void *)fresh->bytes - 1,
				 is_apart(fresh) ? ENTRY_SPARE + 1
						 : fresh->size + 8);
	*fresh = (struct entry_fresh){0};
}

void entry_fresh_discard(struct entry_home *home, struct entry_fresh *fresh)
{
	if (fresh->at && !fresh->staged && !fresh->is_named)
		reef_free(home->space, fresh->at, 0);
	entry_fresh_drop(home, fresh, fresh->staged);
}

void entry_free(struct entry_home *home, uint64_t at)
{
	if (REEF_MUTATED(HASH_NO_TAG))
		reef_free(home->space, at, 0);
	else
		entry_free_later(home, at);
}

void entry_free_later(struct entry_home *home, uint64_t at)
{
	/* A block that cannot be freed now ends with its session. */
	reef_free(home->space, at,
		  REEF_MUTATED(HASH_EARLY_REUSE) ||
				  REEF_MUTATED(TREE_EARLY_REUSE)
			  ? 0
			  : REEF_FREE_LATER);
}

/* --- values that are there before their entry --- */

int entry_staged_take(struct reef_space *space, uint8_t kind, uint32_t key_size,
		      uint32_t value_size, uint32_t spare,
		      struct entry_staged *out)
{
	uint64_t at;
	int rc;

	/* Shorter values are written along with a lookup. */
	if (key_size > ENTRY_KEY_MAX || value_size > ENTRY_VALUE_MAX ||
	    value_size <= ENTRY_ALONG)
		return -EINVAL;
	rc = reef_alloc_kind(
		space, kind,
		ENTRY_HEAD + (uint64_t)key_size + value_size + spare, &at);
	if (!rc) {
		rc = reef_block_stage(space, at, true);
		if (rc)
			reef_free(space, at, 0);
	}
	if (!rc)
		*out = (struct entry_staged){
			.at = at,
			.key_size = key_size,
			.value_size = value_size,
		};
	return rc;
}

void entry_staged_give(struct reef_space *space, struct entry_staged *staged)
{
	if (staged->at)
		reef_block_stage(space, staged->at, false);
	if (staged->at && !staged->is_taken)
		reef_free(space, staged->at,
			  staged->is_shown ? REEF_FREE_LATER : 0);
	staged->at = 0;
}

uint64_t entry_staged_value(const struct entry_staged *staged)
{
	return staged->at + ENTRY_HEAD + staged->key_size;
}

uint64_t entry_footprint(size_t key_size, size_t value_size)
{
	return sizeof(uint64_t) +
	       reef_block_footprint(ENTRY_HEAD + key_size + value_size);
}

int entry_find_number(struct reef_space *space, uint64_t root, uint32_t *number)
{
	uint64_t unit;
	int rc = reef_short_address(space, root, &unit);

	if (rc == -ERANGE || (!rc && unit & 1023))
		return -REEF_ECORRUPT;
	if (!rc)
		*number = entry_number_of_root(unit);
	return rc;
}

/* --- reading --- */

int entry_room_grow(struct entry_room *room, size_t size)
{
	void *bytes = realloc(room->bytes, size);

	if (!bytes)
		return -ENOMEM;
	room->bytes = bytes;
	room->size = size;
	return 0;
}

void entry_room_free(struct entry_room *room)
{
	free(room->bytes);
	*room = (struct entry_room){0};
}

uint32_t entry_read_size(const struct reef *reef, uint32_t hint, uint64_t at)
{
	uint32_t most = entry_hint_size(hint);
	uint32_t size = reef_clip_length(reef, at, most);

	/* Where not even a head fits there is no entry, and the READ says so.
	 */
	return size < ENTRY_HEAD ? most : size;
}

/* READ what the hint did not cover, in pieces side by side. */
static int read_rest(const struct entry_home *home, struct entry_room *room,
		     uint64_t at, size_t from, size_t size)
{
	struct reef_access accesses[PIECES];
	uint32_t count;
	int rc = entry_room_need(room, size);

	while (!rc && from < size) {
		for (count = 0; count < PIECES && from < size; count++) {
			size_t part = size - from < PIECE ? size - from : PIECE;

			accesses[count] = (struct reef_access){
				.kind = REEF_READ,
				.address = at + from,
				.local = (char *)room->bytes + from,
				.length = (uint32_t)part,
			};
			from += part;
		}
		rc = reef_execute(home->reef, accesses, count);
	}
	return rc;
}

int entry_complete(const struct entry_home *home, struct entry_room *room,
		   uint32_t key_size, uint32_t value_most, uint64_t at,
		   size_t got)
{
	size_t size;
	int rc;

	if (!entry_peek(room->bytes, &size))
		return 0;
	/* An entry that a slot names does not change: what is not wanted need
	 * not be read, nor its checksum be known. */
	if (size > got && ENTRY_HEAD + (size_t)key_size <= got &&
	    size - ENTRY_HEAD - key_size > value_most)
		return entry_is_ours(home, room->bytes);
	if (size > got) {
		rc = read_rest(home, room, at, got, size);
		/* The sizes may have been torn, so this may be no address. */
		if (rc == -EFAULT || rc == -EINVAL)
			return 0;
		if (rc)
			return rc;
	}
	return entry_is_sound(home, room->bytes, size);
}

int entry_read(const struct entry_home *home, struct entry_room *room,
	       uint32_t key_size, uint32_t value_most, uint64_t block,
	       uint32_t hint, uint64_t *at)
{
	int rc = reef_long_address(home->space, block, at);
	uint32_t size;

	if (rc)
		return rc;
	size = entry_read_size(home->reef, hint, *at);
	rc = entry_room_need(room, size);
	if (!rc)
		rc = reef_read(home->reef, *at, room->bytes, size);
	return rc ? rc
		  : entry_complete(home, room, key_size, value_most, *at, size);
}
