/* name_list.h - texts in order, each with a value: a sorted list in chunks.
 *
 * (1) Sorted by space, then by the text's bytes; no pair twice.
 * (2) Finding, inserting and removing look at O(log n) entries and move at most
 *     one chunk of pointers, whoever chose the texts.
 * (3) An entry stays where it is until it is removed.
 * (4) Insert cannot fail: reserve has taken the memory for one.
 *
 * Thread: owner. */
#ifndef REEF_POOL_BROKER_STATE_NAME_LIST_H
#define REEF_POOL_BROKER_STATE_NAME_LIST_H

#include "pool/broker/state/record.h"

#include <stdbool.h>

struct reef_name {
	uint32_t space;
	uint16_t size;
	uint64_t value, generation;
	char text[]; /* terminated */
};

struct reef_name_chunk;

/* A list that is all zero is empty. */
struct reef_names {
	struct reef_name_chunk **chunks;
	size_t count, room; /* of chunks */
	uint64_t total;	    /* of entries */
	struct reef_name_chunk *spare;
	struct reef_name *spare_name;
	size_t spare_size;
};

void reef_names_fini(struct reef_names *names);

/* Take memory for one insert of a text of that size.  -ENOMEM. */
int reef_names_reserve(struct reef_names *names, size_t size);

/* Insert a text that is not there yet, after reserve. */
struct reef_name *reef_names_insert(struct reef_names *names, uint32_t space,
				    struct reef_text text, uint64_t value,
				    uint64_t generation);

/* Find a text. NULL: it is not there. */
struct reef_name *reef_names_find(const struct reef_names *names,
				  uint32_t space, struct reef_text text);

/* The first entry after (space, text), or at it if `inclusive`; it may be of
 * another space. NULL: none. */
struct reef_name *reef_names_next(const struct reef_names *names,
				  uint32_t space, struct reef_text text,
				  bool inclusive);

/* Remove and free an entry of the list. */
void reef_names_remove(struct reef_names *names, struct reef_name *name);

#endif
