/* keep.c - memory that outlasts the lives of a simulated node: what a holder is
 * on a real machine. What was kept last is what the next life is given; what is
 * left of a life that was killed may still be unwinding then, and only gives
 * its own shares back. */
#include "cluster.h"

#include <stdlib.h>
#include <string.h>

static struct sim_keep *keep_of(struct reef_keep *keep)
{
	return (struct sim_keep *)keep;
}

static int find(const struct sim_keep *keep, uint32_t extent)
{
	for (uint32_t i = 0; i < keep->count; i++)
		if (keep->extents[i].line.extent == extent)
			return (int)i;
	return -1;
}

static int sim_take(struct reef_keep *base,
		    const struct reef_memory_options *like,
		    struct reef_kept *out)
{
	struct sim_keep *keep = keep_of(base);

	(void)like;
	out->head = keep->head;
	out->extents = calloc(keep->count + 1, sizeof(*out->extents));
	if (!out->extents)
		return -ENOMEM;
	for (uint32_t i = 0; i < keep->count; i++) {
		out->extents[i] = keep->extents[i];
		reef_memory_ref(out->extents[i].memory);
	}
	out->extents_count = keep->count;
	keep->takes++;
	return 0;
}

static int sim_add(struct reef_keep *base, const struct reef_keep_line *line,
		   struct reef_memory *memory)
{
	struct sim_keep *keep = keep_of(base);
	struct reef_memory *before = NULL;
	int at = find(keep, line->extent);

	if (at < 0 && keep->count == KEPT_MAX)
		return -ENOSPC;
	if (at < 0)
		at = (int)keep->count++;
	else
		before = keep->extents[at].memory;
	keep->extents[at] =
		(struct reef_kept_extent){*line, reef_memory_ref(memory)};
	reef_memory_destroy(before);
	return 0;
}

static void sim_forget(struct reef_keep *base, uint32_t extent)
{
	struct sim_keep *keep = keep_of(base);
	int at = find(keep, extent);

	if (at < 0)
		return;
	reef_memory_destroy(keep->extents[at].memory);
	keep->extents[at] = keep->extents[--keep->count];
}

static void sim_note(struct reef_keep *base, const struct reef_keep_head *head)
{
	keep_of(base)->head = *head;
}

static const struct reef_keep_ops sim_keep_ops = {
	.take = sim_take,
	.add = sim_add,
	.forget = sim_forget,
	.note = sim_note,
};

void sim_keep_init(struct sim_keep *keep)
{
	*keep = (struct sim_keep){.keep.ops = &sim_keep_ops};
}

void sim_keep_fini(struct sim_keep *keep)
{
	while (keep->count)
		reef_memory_destroy(keep->extents[--keep->count].memory);
}
