/* spare.c - see spare.h. */
#include "gateway/redis/spare.h"

#include <errno.h>
#include <stdlib.h>

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

/* The smallest that is large enough, and not wastefully so. */
static int find(const struct redis_spare *spare, size_t size)
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

void *redis_spare_take(struct redis_spare *spare, size_t size, size_t *room)
{
	void *bytes;
	int found;

	*room = size;
	if (!spare || size < WORTH_KEEPING)
		return malloc(size);
	found = find(spare, size);
	if (found < 0)
		return malloc(size);
	bytes = spare->buffers[found].bytes;
	*room = spare->buffers[found].size;
	spare->kept -= *room;
	spare->buffers[found] = spare->buffers[--spare->count];
	return bytes;
}

void redis_spare_give(struct redis_spare *spare, void *bytes, size_t room)
{
	if (!bytes || !spare || room < WORTH_KEEPING ||
	    spare->count == REDIS_SPARES || room > spare->kept_max ||
	    spare->kept > spare->kept_max - room) {
		free(bytes);
		return;
	}
	spare->buffers[spare->count].bytes = bytes;
	spare->buffers[spare->count].size = room;
	spare->count++;
	spare->kept += room;
}
