/* layout.h - the words of an entry, as they lie in the pool: a key and its
 * value, in a block of their own, for every index.
 *
 *   entry     a block: live, crc, touched, version, stamp, sizes, key, value.
 *             A word of the index names it (a slot).
 *
 * (1) An entry is written before a word names it, and does not change from then
 *     on, but for `live` and `touched`. Those are WRITTEN only; `touched` is
 *     two bytes of a word whose others never change, so it relies on a WRITE to
 *     touch no byte outside its range, as all fabrics have it.
 * (2) `live` is the version, and becomes 0, once, before the word that names
 *     the entry is changed to something else.
 * (3) An entry says of which structure it is, by 28 bits: its number.
 *
 * (R10) Whatever is read from shared memory is checked by whoever uses it: no
 *     entry is believed whose sizes, number or checksum are wrong.
 *
 * Thread: any. */
#ifndef REEF_INDEX_ENTRY_LAYOUT_H
#define REEF_INDEX_ENTRY_LAYOUT_H

#include <assert.h>
#include <stdint.h>

#define ENTRY_KEY_MAX 65536u
#define ENTRY_VALUE_MAX (UINT32_C(64) << 20)

struct entry_head {
	uint64_t live;	      /* == version: not superseded */
	uint32_t crc;	      /* of all that follows, and of number_high */
	uint16_t number_high; /* 8 bits of the structure's number */
	uint16_t touched;     /* the owner's; not covered by the crc */
	uint64_t version;
	uint64_t stamp; /* the owner's; a map's expiry */
	uint64_t sizes; /* of key 17 bits, of value 27, number's lower 20 */
};
#define ENTRY_HEAD 40
static_assert(sizeof(struct entry_head) == ENTRY_HEAD, "layout");

/* The stamp of a *ghost*: an entry whose key is not there, but whose slot a
 * transaction can take. It is past whatever a map's expiry is compared with. */
#define ENTRY_GHOST UINT64_C(1)

#define ENTRY_KEY_BITS ((1u << 17) - 1)
static inline uint32_t entry_key_size(const struct entry_head *head)
{
	return (uint32_t)head->sizes & ENTRY_KEY_BITS;
}

static inline uint32_t entry_sizes_value(uint64_t sizes)
{
	return (uint32_t)(sizes >> 17) & ((1u << 27) - 1);
}

static inline uint32_t entry_value_size(const struct entry_head *head)
{
	return entry_sizes_value(head->sizes);
}

static inline uint32_t entry_number(const struct entry_head *head)
{
	return (uint32_t)head->number_high << 20 |
	       (uint32_t)(head->sizes >> 44);
}

static inline uint64_t entry_sizes_make(uint32_t key, uint32_t value,
					uint32_t number)
{
	return key | (uint64_t)value << 17 | (uint64_t)number << 44;
}

/* A structure's root is a block of whole units, so that 28 bits name it:
 * ordinal 18, unit 10. Its number, and its short address from that. */
static inline uint32_t entry_number_of_root(uint64_t short_address)
{
	return (uint32_t)(short_address >> 10);
}

static inline uint64_t entry_root_of_number(uint32_t number)
{
	return (uint64_t)number << 10;
}

/* A hint says how much of an entry to READ: all of it up to 8 KiB, else what
 * holds any head and most keys. */
#define ENTRY_HINTS 16u
static inline uint32_t entry_hint_size(uint32_t hint)
{
	static const uint16_t sizes[ENTRY_HINTS] = {
		56,   120,  184,  248,	376,  504,  760,  1016,
		1528, 2040, 3064, 4088, 6136, 8184, 8184, 4088,
	};

	return sizes[hint];
}

static inline uint32_t entry_hint_of(uint64_t size)
{
	for (uint32_t hint = 0; hint < 14; hint++)
		if (size <= entry_hint_size(hint))
			return hint;
	return 15;
}

#endif
