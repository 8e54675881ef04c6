/* spare.c - see spare.h. */
#include "gateway/redis/protocol/spare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORTH_KEEPING 16384u /* less is malloc's own business */

int redis_spare_init(struct redis_spare *spare, size_t kept_max)
{
	*spare = (struct redis_spare){.kept_max = kept_max};
	spare->in = malloc(REDIS_LENT_SIZE);
	spare->out = malloc(REDIS_LENT_SIZE);
	if (spare->in && spare->out)
		return 0;
	redis_spare_fini(spare);
	return -ENOMEM;
}

void redis_spare_fini(struct redis_spare *spare)
{
	while (spare->count)
		free(spare->buffers[--spare->count].bytes);
	free(spare->in);
	free(spare->out);
	*spare = (struct redis_spare){0};
}

/* The index of the smallest buffer that is large enough and not more than twice
 * that; -1: none. */
static int find_fitting(const struct redis_spare *spare, size_t size)
{
	int best = -1;
	uint32_t i;

	for (i = 0; i < spare->count; i++)
		if (spare->buffers[i].size >= size &&
		    spare->buffers[i].size / 2 <= size &&
		    (best < 0 ||
		     spare->buffers[i].size < spare->buffers[best].size))
			best = (int)i;
	return best;
}

static void *remove_buffer(struct redis_spare *spare, uint32_t index,
			   size_t *room)
{
	void *bytes = spare->buffers[index].bytes;

	*room = spare->buffers[index].size;
	spare->kept -= *room;
	spare->count--;
	memmove(&spare->buffers[index], &spare->buffers[index + 1],
		(spare->count - index) * sizeof(spare->buffers[0]));
	return bytes;
}

void *redis_spare_reuse(struct redis_spare *spare, size_t size, size_t *room)
{
	int found = find_fitting(spare, size);

	return found < 0 ? NULL : remove_buffer(spare, (uint32_t)found, room);
}

void *redis_spare_take(struct redis_spare *spare, size_t size, size_t *room)
{
	void *bytes = NULL;

	if (spare && size >= WORTH_KEEPING)
		bytes = redis_spare_reuse(spare, size, room);
	if (bytes)
		return bytes;
	*room = size;
	return malloc(size);
}

/* The oldest buffers make way for a new one: nobody has asked for their
 * size. */
void redis_spare_give(struct redis_spare *spare, void *bytes, size_t room)
{
	size_t old;

	if (!bytes || !spare || room < WORTH_KEEPING ||
	    room > spare->kept_max) {
		if (spare)
			spare->freed += room;
		free(bytes);
		return;
	}
	while (spare->count == REDIS_SPARES ||
	       spare->kept > spare->kept_max - room) {
		free(remove_buffer(spare, 0, &old));
		spare->freed += old;
	}
	spare->buffers[spare->count].bytes = bytes;
	spare->buffers[spare->count].size = room;
	spare->count++;
	spare->kept += room;
}
