/* image.h - a node's block as it was read, taken apart; and put together.
 *
 * (1) Nothing outside the bytes that were read is looked at, whatever they say.
 *
 * Thread: any. */
#ifndef REEF_INDEX_TREE_IMAGE_H
#define REEF_INDEX_TREE_IMAGE_H

#include "index/tree/layout.h"

#include <stddef.h>

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
/* 1: another record.  0: there is none.  -EBADMSG. */
int tree_interval_next(struct tree_walk *walk);

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
uint32_t tree_common(const uint8_t *a, uint32_t a_size, const uint8_t *b,
		     uint32_t b_size);
int tree_compare(const void *a, uint32_t a_size, const void *b,
		 uint32_t b_size);

#endif
