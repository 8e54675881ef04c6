/* image.h - a node's block as it was read, taken apart; and put together.
 *
 * (1) Nothing outside the bytes that were read is looked at, whatever they say.
 *
 * Thread: any. */
#ifndef REEF_INDEX_TREE_IMAGE_H
#define REEF_INDEX_TREE_IMAGE_H

#include "base/likely.h"
#include "index/tree/layout.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* A record, or what is to become one. */
struct tree_record {
	const uint8_t *key;
	const uint8_t *value; /* NULL: it lies outside */
	uint32_t key_size, value_size;
	uint64_t version, stamp;
	uint64_t outside; /* block and hint of its entry; 0: it has none */
	uint32_t mark_at; /* where its mark is in the block */
	bool mark;
};

struct tree_image {
	uint8_t *bytes; /* malloc's */
	uint32_t size;
	uint64_t at;   /* address of the block */
	uint64_t word; /* h0 that named it */
	uint64_t head; /* address */
	/* It has not its id: it is the node, because the one on its left says
	 * so, in this call. */
	bool is_proved;
	/* taken from the bytes */
	uint64_t id, right;
	uint64_t slots[TREE_SLOTS];
	uint32_t level, intervals_count, records_count;
	const uint8_t *low, *high; /* high: NULL: there is none */
	uint32_t low_size, high_size, prefix_size;
	uint32_t *intervals; /* where each begins; one more: where they end */
	uint32_t *firsts;    /* its first record; one more: how many */
	struct tree_record *records;
	uint8_t *keys;
};

/* Take image->bytes apart.  -EBADMSG: they are no block of that tree.
 * -ENOMEM. */
int tree_image_parse(struct tree_image *image, uint32_t number);
void tree_image_free(struct tree_image *image);
/* True if records, which are in order, are between the fences of a node. */
bool tree_image_has_room(const struct tree_image *image,
			 const struct tree_record *records, uint32_t count);
/* The index of a key's record, or -1. */
int tree_image_find(const struct tree_image *image, const void *key,
		    uint32_t key_size);

/* Go through the records of an interval of `size` bytes. */
struct tree_walk {
	const uint8_t *at, *end, *marks;
	uint32_t left, index, shared; /* shared: with the key before it */
	uint32_t rest_size, value_size;
	const uint8_t *rest, *value;
	uint64_t version, stamp, outside;
};
/* False: it is not the one of that id, not alive, or not whole. */
bool tree_interval_begin(struct tree_walk *walk, const void *bytes,
			 uint32_t size, uint64_t id);
/* The same of one in place, of which nothing is known yet: only that it has
 * room for its head. */
bool tree_interval_walk(struct tree_walk *walk, const void *bytes,
			uint32_t size);
/* tree_interval_next of a record that is not plain. */
int tree_interval_odd(struct tree_walk *walk);
/* 1: another record.  0: there is none.  -EBADMSG. Each byte that decides
 * something is read once, as others may change what lies in the pool. */
static inline int tree_interval_next(struct tree_walk *walk)
{
	const volatile uint8_t *head = walk->at;
	const size_t room = (size_t)(walk->end - walk->at);
	const uint32_t most = TREE_RECORD_HEAD + 8;
	uint32_t bits;

	if (!walk->left)
		return 0;
	if (unlikely(room < most))
		return -EBADMSG;
	bits = head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16;
	walk->left--;
	walk->index++;
	if (unlikely((bits & 3) != TREE_PLAIN))
		return tree_interval_odd(walk);
	walk->shared = bits >> 2 & 63;
	walk->rest_size = bits >> 8 & 63;
	walk->value_size = bits >> 14;
	walk->stamp = walk->outside = 0;
	if (unlikely(room < most + walk->rest_size + walk->value_size))
		return -EBADMSG;
	memcpy(&walk->version, walk->at + TREE_RECORD_HEAD, 8);
	walk->rest = walk->at + most;
	walk->value = walk->rest + walk->rest_size;
	walk->at = walk->value + walk->value_size;
	return 1;
}

/* A block to be. */
struct tree_shape {
	uint64_t id, head, right;
	uint32_t number, level;
	const uint8_t *low, *high; /* high: NULL: none */
	uint32_t low_size, high_size;
};
/* Put a block together; *bytes is the caller's to free, and *size a multiple of
 * 64 less 8. -ENOMEM.  -EFBIG. */
int tree_block_build(const struct tree_shape *shape,
		     const struct tree_record *records, uint32_t count,
		     uint8_t **bytes, uint32_t *size);
/* About how many bytes a record takes behind that one (NULL: none). */
uint32_t tree_record_cost(const struct tree_record *record,
			  const struct tree_record *before);

/* How many bytes two keys have in common; and which comes first. */
static inline uint32_t tree_common(const uint8_t *a, uint32_t a_size,
				   const uint8_t *b, uint32_t b_size)
{
	uint32_t most = a_size < b_size ? a_size : b_size, i = 0;
	uint64_t left, right;

	for (; i + 8 <= most; i += 8) {
		memcpy(&left, a + i, 8);
		memcpy(&right, b + i, 8);
		if (left != right)
			return i + (uint32_t)__builtin_ctzll(
					   le64toh(left ^ right)) /
					   8;
	}
	while (i < most && a[i] == b[i])
		i++;
	return i;
}
int tree_compare(const void *a, uint32_t a_size, const void *b,
		 uint32_t b_size);

static inline bool tree_is_same(const uint8_t *a, const uint8_t *b, size_t size)
{
	uint64_t left[2], right[2];

	if (unlikely(size < 8 || size > 16))
		return !memcmp(a, b, size);
	memcpy(&left[0], a, 8);
	memcpy(&right[0], b, 8);
	memcpy(&left[1], a + size - 8, 8);
	memcpy(&right[1], b + size - 8, 8);
	return !((left[0] ^ right[0]) | (left[1] ^ right[1]));
}

/* True if the record that a walk is at has the key; *matched: how many bytes of
 * it the record before had, at first those of the node's prefix. */
static inline bool tree_walk_is_at(const struct tree_walk *walk,
				   uint32_t prefix_size, const uint8_t *key,
				   uint32_t key_size, uint32_t *matched)
{
	uint32_t kept = prefix_size + walk->shared;

	/* A record that goes apart from the key earlier than the next one goes
	 * apart from the record leaves that one no chance. */
	if (kept > *matched || kept > key_size)
		return false;
	if (kept + walk->rest_size == key_size &&
	    tree_is_same(walk->rest, key + kept, walk->rest_size))
		return true;
	*matched = kept + tree_common(walk->rest, walk->rest_size, key + kept,
				      key_size - kept);
	return false;
}

#endif
