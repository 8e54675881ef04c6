/* sequencer.c - numbers that nobody else gets.
 *
 * The word (counter.h) is the next number. One FAA takes as many as are asked
 * for; the memory's order of FAAs is the order of the numbers, so a call that
 * begins after another has returned gets higher ones (F4). An FAA in doubt is
 * not asked about: whatever it took is skipped. */
#include "sync/counter.h"

#include <errno.h>
#include <stdlib.h>

#define FORMAT 1

struct reef_sequencer {
	struct object object;
	int over; /* what every call returns from now on; 0: none does */
};

static const uint64_t first_number = 1;

static const struct object_shape shape = {
	.kind = OBJECT_SEQUENCER,
	.format = FORMAT,
	.body_size = 8,
	.start = &first_number,
	.start_size = 8,
};

int reef_sequencer_open(struct reef_space *space, const char *name,
			uint32_t flags, struct reef_sequencer **out)
{
	struct reef_sequencer *sequencer = calloc(1, sizeof(*sequencer));
	uint64_t word;
	int rc;

	if (!sequencer)
		return -ENOMEM;
	rc = sync_counter_open(space, name, &shape, flags, &sequencer->object,
			       &word);
	if (rc) {
		free(sequencer);
		return rc;
	}
	*out = sequencer;
	return 0;
}

void reef_sequencer_close(struct reef_sequencer *sequencer)
{
	free(sequencer);
}

int reef_sequencer_drop(struct reef_space *space, const char *name)
{
	return sync_counter_drop(space, name, &shape, NULL);
}

int reef_sequencer_next(struct reef_sequencer *sequencer, uint64_t count,
			uint64_t *first)
{
	int rc;

	if (!count || count > SYNC_COUNTER_STEP)
		return -EINVAL;
	if (sequencer->over)
		return sequencer->over;
	rc = sync_counter_draw(&sequencer->object, count, first);
	if (rc == -EOVERFLOW || rc == -ENOENT)
		sequencer->over = rc;
	return rc;
}
