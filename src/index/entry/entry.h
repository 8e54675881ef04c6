/* entry.h - entries: how keys and values lie in the pool, whichever index has
 * them. Made, written, read, checked and freed here; where one is, its index
 * knows.
 *
 * (1) layout.h has the rules of an entry's words.
 * (2) An entry that was named since the caller entered (reef_enter) is whole,
 *     and its memory stays what it is until the caller leaves: entries are
 *     freed with REEF_FREE_LATER.
 * (3) Every entry of a structure has a version of its own.
 *
 * Thread: owner of the handle. */
#ifndef REEF_INDEX_ENTRY_ENTRY_H
#define REEF_INDEX_ENTRY_ENTRY_H

#include "base/quick.h"
#include "index/entry/layout.h"
#include "pool/client/client.h"

#include <stddef.h>
#include <string.h>

/* --- what an index is told, and tells --- */

/* A block for an entry whose value is written there before it is put: by
 * whoever took it, at entry_staged_value, with the key's size known. It is put
 * once: then is_taken, and the index's. */
struct entry_staged {
	uint64_t at;
	uint32_t key_size, value_size;
	uint32_t crc;  /* of the value, when all of it is there */
	bool is_shown; /* others may have seen it */
	bool is_taken;
};

struct entry { /* points into a reading's room, or is the caller's */
	const void *key, *value;
	uint32_t key_size, value_size;
	uint64_t version, stamp;
	uint16_t touched; /* notes that may be lost */
	/* Of one to put: its value is there already; value is NULL. */
	struct entry_staged *staged;
};

enum entry_verdict { ENTRY_KEEP, ENTRY_PUT, ENTRY_DELETE };

struct entry_change {
	const void *key;
	uint32_t key_size;
	/* What is to become of the key. now: NULL if it is not there; good only
	 * during the call. For ENTRY_PUT fill in value, value_size, stamp and
	 * touched of *put; the bytes stay the caller's, until the next call.
	 * Called again when another was quicker. Negative: an error, returned
	 * as it is. */
	int (*decide)(void *context, const struct entry *now,
		      struct entry *put);
	void *context;
	/* Optional: what decide will put if it puts at all; written ahead, to
	 * save a round trip. */
	const struct entry *ahead;
	/* decide does not look at now->value, which may be NULL: so a large one
	 * is not read. */
	bool blind;
	/* A key that a transaction has is left alone: decide is not called. */
	bool gently;
	uint64_t version; /* out: after ENTRY_PUT, of the new entry */
	int status;	  /* out: of one of many */
};

/* Take a block of that kind for a value of more than 64 KiB, with `spare` more
 * bytes behind it; and give it back, unless it was taken.  -EINVAL: too large,
 * or small. Else as alloc. */
int entry_staged_take(struct reef_space *space, uint8_t kind, uint32_t key_size,
		      uint32_t value_size, uint32_t spare,
		      struct entry_staged *out);
void entry_staged_give(struct reef_space *space, struct entry_staged *staged);
uint64_t entry_staged_value(const struct entry_staged *staged);

/* How many bytes of the pool an entry takes: its block and its slot. */
uint64_t entry_footprint(size_t key_size, size_t value_size);

/* --- of an index --- */

#define ENTRY_SPARE 512u
#define ENTRY_SPARES 4u

/* What all entries of a structure have in common, for one handle. Zero it, and
 * set what is before the spares. */
struct entry_home {
	struct reef_space *space;
	struct reef *reef;
	uint32_t number; /* of the structure */
	uint8_t kind;	 /* of their blocks */
	uint8_t spares_count;
	/* Bytes of ENTRY_SPARE for short entries, to save malloc. */
	void *spares[ENTRY_SPARES];
	uint64_t versions; /* the last; 0: none yet */
	uint64_t version_base;
};
/* Free what it keeps. */
void entry_home_fini(struct entry_home *home);

/* Take bytes for an entry, and give them back with the size that was asked for.
 */
void *entry_spare_take(struct entry_home *home, size_t size);
void entry_spare_give(struct entry_home *home, void *bytes, size_t size);

/* --- entries that are about to be put --- */

/* The longest that is written as a whole, for instance along with a lookup. */
#define ENTRY_ALONG 65536u

struct entry_fresh {
	struct entry_head *bytes; /* as it is, or will be, written; before it
				   * is room for the header of its block */
	size_t size;
	/* Of one longer than ENTRY_ALONG: where its value is, the caller's;
	 * bytes has what is before it. */
	const void *value;
	struct entry_staged *staged; /* its value is written, and so its block
				      * is another's until it is put */
	uint64_t at;		     /* its block; 0: none */
	uint64_t block;		     /* that as a short address */
	uint32_t hint;
	bool written;
	bool has_header; /* entry_fresh_begin took that */
	bool is_named;	 /* perhaps a word has it that should not, so its block
			  * is not freed; is_live tells, when we end */
};

/* Take a block and put an entry together; it is not written yet.  -EINVAL: too
 * large.  -EBUSY: its staged value was put before.  Else as alloc. */
int entry_fresh_make(struct entry_home *home, const void *key,
		     uint32_t key_size, const struct entry *put,
		     struct entry_fresh *fresh);
/* The WRITE of a fresh entry, for a batch: only of one of at most ENTRY_ALONG
 * bytes. */
struct reef_access entry_fresh_access(const struct entry_fresh *fresh);
/* The same, with the header of its block, if that waits to be written: so both
 * are one operation. Nothing else in the batch may change anything. Afterwards
 * it is told what became of it. */
struct reef_access entry_fresh_begin(struct entry_home *home,
				     struct entry_fresh *fresh);
void entry_fresh_end(struct entry_home *home, struct entry_fresh *fresh,
		     int rc);
/* WRITE a fresh entry, if that was not done.  -EAGAIN: it is in doubt, do it
 * again. */
int entry_fresh_write(struct entry_home *home, struct entry_fresh *fresh);
/* Forget a fresh entry; its block is freed if `block`, and no word may name it.
 */
void entry_fresh_drop(struct entry_home *home, struct entry_fresh *fresh,
		      bool block);
/* The same of one that no word has named, and none will: its block may be used
 * again at once. */
void entry_fresh_discard(struct entry_home *home, struct entry_fresh *fresh);

/* Free an entry that no word names (any more). */
void entry_free(struct entry_home *home, uint64_t at);
/* Free memory of the index that others may still read, or change. */
void entry_free_later(struct entry_home *home, uint64_t at);

/* --- reading --- */

/* Where bytes that were read are. Zero is none; from malloc. */
struct entry_room {
	void *bytes;
	size_t size;
};
int entry_room_grow(struct entry_room *room, size_t size);

/* Find the number by which entries name the root at that address.
 * -REEF_ECORRUPT: they name it by its unit, and none begins there: a copy of a
 * root is none.  -EFAULT. */
int entry_find_number(struct reef_space *space, uint64_t root,
		      uint32_t *number);
static inline int entry_room_need(struct entry_room *room, size_t size)
{
	return size <= room->size ? 0 : entry_room_grow(room, size);
}
void entry_room_free(struct entry_room *room);

/* So many bytes of an entry hold any head, and most keys. */
#define ENTRY_HEAD_PART 184u
/* READs of an entry that is not whole, while its slot does not change: nobody
 * but a scribbler makes that so. */
#define ENTRY_UNSOUND_MAX 16u

/* How much of an entry to READ at once: what its hint says, but not past the
 * end of its extent. The block there may be smaller than the hint. */
uint32_t entry_read_size(const struct reef *reef, uint32_t hint, uint64_t at);
/* READ the rest of an entry whose first `got` bytes are in the room; returns as
 * entry_read. A value of more than `value_most` bytes is not read, behind a key
 * of key_size. */
int entry_complete(const struct entry_home *home, struct entry_room *room,
		   uint32_t key_size, uint32_t value_most, uint64_t at,
		   size_t got);
/* READ the entry at a short address. 1: whole and sound.  0: neither.
 * Negative: error. */
int entry_read(const struct entry_home *home, struct entry_room *room,
	       uint32_t key_size, uint32_t value_most, uint64_t block,
	       uint32_t hint, uint64_t *at);

/* --- its bytes --- */

static inline size_t entry_size(const struct entry_head *head)
{
	return ENTRY_HEAD + (size_t)entry_key_size(head) +
	       entry_value_size(head);
}

static inline uint32_t entry_crc(const struct entry_head *head, size_t size)
{
	return reef_crc32c_quick(head->number_high, &head->version,
				 size - offsetof(struct entry_head, version));
}

/* False: these bytes are no entry's. Else *size is how long all of it is. */
static inline bool entry_peek(const void *bytes, size_t *size)
{
	const struct entry_head *head = bytes;

	if (entry_key_size(head) > ENTRY_KEY_MAX ||
	    entry_value_size(head) > ENTRY_VALUE_MAX)
		return false;
	*size = entry_size(head);
	return true;
}

/* True if the head says that it is an entry of this structure. */
static inline bool entry_is_ours(const struct entry_home *home,
				 const struct entry_head *head)
{
	return entry_number(head) == home->number && head->version;
}

/* True if these `size` bytes are a whole entry of this structure. */
static inline bool entry_is_sound(const struct entry_home *home,
				  const void *bytes, size_t size)
{
	const struct entry_head *head = bytes;
	size_t real;

	return entry_peek(bytes, &real) && real <= size &&
	       entry_is_ours(home, head) && head->crc == entry_crc(head, real);
}

/* A whole entry, as others are told of it; it points into the bytes. */
static inline struct entry entry_view(const void *bytes)
{
	const struct entry_head *head = bytes;
	const char *key = (const char *)(head + 1);

	return (struct entry){
		.key = key,
		.key_size = entry_key_size(head),
		.value = key + entry_key_size(head),
		.value_size = entry_value_size(head),
		.version = head->version,
		.stamp = head->stamp,
		.touched = head->touched,
	};
}

/* True if an entry, whose key has that size, has that key. */
static inline bool entry_has_key(const struct entry_head *head, const void *key,
				 uint32_t key_size)
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

static inline bool entry_is_of(const void *bytes, const void *key,
			       uint32_t key_size)
{
	const struct entry_head *head = bytes;

	return entry_key_size(head) == key_size &&
	       entry_has_key(head, key, key_size);
}

#endif
