/* name_list.c - chunks of sorted pointers, in a sorted array of chunks.
 *
 * A full chunk is cut in two; an empty one goes. They are not joined again: a
 * sparse one costs memory, never time. */
#include "pool/broker/state/name_list.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 128

struct reef_name_chunk {
	uint32_t count;
	struct reef_name *items[CHUNK];
};

struct place {
	size_t chunk;
	uint32_t item;
};

static int compare_name(const struct reef_name *name, uint32_t space,
			struct reef_text text)
{
	size_t shorter = name->size < text.size ? name->size : text.size;
	int order;

	if (name->space != space)
		return name->space < space ? -1 : 1;
	order = shorter ? memcmp(name->text, text.bytes, shorter) : 0;
	if (order)
		return order;
	return (name->size > text.size) - (name->size < text.size);
}

/* Find where a name is or would be inserted: in the last chunk that begins at
 * or before it. */
static struct place locate_name(const struct reef_names *names, uint32_t space,
				struct reef_text text)
{
	size_t low = 0, high = names->count, middle;
	struct reef_name_chunk *chunk;
	struct place place = {0, 0};

	while (low < high) {
		middle = low + (high - low) / 2;
		if (compare_name(names->chunks[middle]->items[0], space,
				 text) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (names->count == 0)
		return place;
	place.chunk = low ? low - 1 : 0;
	chunk = names->chunks[place.chunk];
	low = 0;
	high = chunk->count;
	while (low < high) {
		middle = low + (high - low) / 2;
		if (compare_name(chunk->items[middle], space, text) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	place.item = (uint32_t)low;
	return place;
}

/* The name at a place; past the end of a chunk: the first of the next. */
static struct reef_name *name_at(const struct reef_names *names,
				 struct place place)
{
	if (place.chunk >= names->count)
		return NULL;
	if (place.item < names->chunks[place.chunk]->count)
		return names->chunks[place.chunk]->items[place.item];
	if (place.chunk + 1 >= names->count)
		return NULL;
	return names->chunks[place.chunk + 1]->items[0];
}

void reef_names_fini(struct reef_names *names)
{
	size_t i;
	uint32_t j;

	for (i = 0; i < names->count; i++) {
		for (j = 0; j < names->chunks[i]->count; j++)
			free(names->chunks[i]->items[j]);
		free(names->chunks[i]);
	}
	free(names->chunks);
	free(names->spare);
	free(names->spare_name);
	*names = (struct reef_names){0};
}

int reef_names_reserve(struct reef_names *names, size_t size)
{
	struct reef_name_chunk **chunks;
	struct reef_name *name;
	size_t room;

	if (!names->spare)
		names->spare = malloc(sizeof(*names->spare));
	if (!names->spare)
		return -ENOMEM;
	if (names->count == names->room) {
		room = names->room ? names->room * 2 : 16;
		chunks = realloc(names->chunks, room * sizeof(*chunks));
		if (!chunks)
			return -ENOMEM;
		names->chunks = chunks;
		names->room = room;
	}
	if (!names->spare_name || names->spare_size < size) {
		name = realloc(names->spare_name, sizeof(*name) + size + 1);
		if (!name)
			return -ENOMEM;
		names->spare_name = name;
		names->spare_size = size;
	}
	return 0;
}

/* Insert the spare chunk at `index`, and move half of `before` into it. */
static void add_chunk(struct reef_names *names, size_t index,
		      struct reef_name_chunk *before)
{
	struct reef_name_chunk *chunk = names->spare;

	reef_assert(chunk && names->count < names->room);
	names->spare = NULL;
	chunk->count = 0;
	if (before) {
		chunk->count = CHUNK / 2;
		before->count = CHUNK - CHUNK / 2;
		memcpy(chunk->items, before->items + before->count,
		       chunk->count * sizeof(chunk->items[0]));
	}
	memmove(names->chunks + index + 1, names->chunks + index,
		(names->count - index) * sizeof(names->chunks[0]));
	names->chunks[index] = chunk;
	names->count++;
}

struct reef_name *reef_names_insert(struct reef_names *names, uint32_t space,
				    struct reef_text text, uint64_t value,
				    uint64_t generation)
{
	struct place place = locate_name(names, space, text);
	struct reef_name *name = names->spare_name;
	struct reef_name_chunk *chunk;

	reef_assert(name && names->spare_size >= text.size);
	names->spare_name = NULL;
	*name = (struct reef_name){.space = space,
				   .size = text.size,
				   .value = value,
				   .generation = generation};
	if (text.size)
		memcpy(name->text, text.bytes, text.size);
	name->text[text.size] = 0;
	if (names->count == 0) {
		add_chunk(names, 0, NULL);
	} else if (names->chunks[place.chunk]->count == CHUNK) {
		add_chunk(names, place.chunk + 1, names->chunks[place.chunk]);
		place = locate_name(names, space, text);
	}
	chunk = names->chunks[place.chunk];
	memmove(chunk->items + place.item + 1, chunk->items + place.item,
		(chunk->count - place.item) * sizeof(chunk->items[0]));
	chunk->items[place.item] = name;
	chunk->count++;
	names->total++;
	return name;
}

struct reef_name *reef_names_next(const struct reef_names *names,
				  uint32_t space, struct reef_text text,
				  bool inclusive)
{
	struct place place = locate_name(names, space, text);
	struct reef_name *name = name_at(names, place);

	if (!name || inclusive || compare_name(name, space, text) != 0)
		return name;
	/* The equal name is at this very place: were it the first of the next
	 * chunk, locate_name would have gone there. */
	place.item++;
	return name_at(names, place);
}

struct reef_name *reef_names_find(const struct reef_names *names,
				  uint32_t space, struct reef_text text)
{
	struct reef_name *name = reef_names_next(names, space, text, true);

	return name && compare_name(name, space, text) == 0 ? name : NULL;
}

void reef_names_remove(struct reef_names *names, struct reef_name *name)
{
	struct reef_text text = {name->text, name->size};
	struct place place = locate_name(names, name->space, text);
	struct reef_name_chunk *chunk;

	reef_assert(name_at(names, place) == name);
	chunk = names->chunks[place.chunk];
	chunk->count--;
	memmove(chunk->items + place.item, chunk->items + place.item + 1,
		(chunk->count - place.item) * sizeof(chunk->items[0]));
	names->total--;
	free(name);
	if (chunk->count > 0)
		return;
	names->count--;
	memmove(names->chunks + place.chunk, names->chunks + place.chunk + 1,
		(names->count - place.chunk) * sizeof(names->chunks[0]));
	if (names->spare)
		free(chunk);
	else
		names->spare = chunk;
}
