/* get.c - look a key up. */
#include "index/tree/internal.h"

#include <stdlib.h>

void tree_reading_free(struct tree_reading *reading)
{
	entry_room_free(&reading->room);
}

/* The value is in one of the spot's rooms, which becomes the reading's. */
static void take_room(struct tree_spot *spot, struct tree_reading *reading)
{
	struct entry_room *from = &spot->room, old = reading->room;
	const char *value = spot->entry.value, *bytes = spot->bytes.bytes;

	if (bytes && value && value >= bytes &&
	    value <= bytes + spot->bytes.size)
		from = &spot->bytes;
	reading->room = *from;
	*from = old;
	reading->entry = spot->entry;
}

static struct tree_spot begin_spot(struct tree_reading *reading)
{
	struct tree_spot spot = {
		.key = reading->key,
		.key_size = reading->key_size,
		.blind = reading->blind,
		.bytes = reading->room,
	};

	reading->room = (struct entry_room){0};
	return spot;
}

/* End a reading whose spot is known, with that error or none. */
static int end_spot(struct tree_spot *spot, struct tree_reading *reading,
		    int rc)
{
	if (!rc && spot->is_there)
		take_room(spot, reading);
	else if (!rc)
		rc = -ENOENT;
	/* The room that was given is kept for the next call. */
	if (!reading->room.bytes) {
		reading->room = spot->bytes;
		spot->bytes = (struct entry_room){0};
	}
	tree_spot_fini(spot);
	reading->status = rc;
	return rc;
}

int tree_get(struct tree *tree, struct tree_reading *reading)
{
	struct tree_spot spot;
	int rc;

	reading->status = -EINVAL;
	if (reading->key_size > TREE_KEY_MAX)
		return -EINVAL;
	rc = tree_get_near(tree, reading->key, reading->key_size,
			   reading->blind, &reading->room, &reading->entry);
	if (rc != -EAGAIN)
		return reading->status = rc;
	spot = begin_spot(reading);
	reef_enter(tree->reef);
	rc = tree_look(tree, &spot, NULL);
	reef_leave(tree->reef);
	return end_spot(&spot, reading, rc);
}

/* Look up at most TREE_LOOKED keys, none of which is too long. */
static int get_together(struct tree *tree, struct tree_reading *readings,
			uint32_t count)
{
	struct tree_spot *spots = calloc(count, sizeof(*spots));
	int told[TREE_LOOKED];
	uint32_t i;

	if (!spots)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		spots[i] = begin_spot(&readings[i]);
	reef_enter(tree->reef);
	tree_look_together(tree, spots, count, told);
	for (i = 0; i < count; i++)
		if (!told[i])
			told[i] = tree_look(tree, &spots[i], NULL);
	reef_leave(tree->reef);
	for (i = 0; i < count; i++)
		end_spot(&spots[i], &readings[i], told[i] == 1 ? 0 : told[i]);
	free(spots);
	return 0;
}

int tree_get_many(struct tree *tree, struct tree_reading *readings,
		  uint32_t count)
{
	uint32_t some;
	int rc = 0;

	for (; count && !rc; count -= some, readings += some) {
		for (some = 0; some < count && some < TREE_LOOKED; some++)
			if (readings[some].key_size > TREE_KEY_MAX)
				break;
		if (some) {
			rc = get_together(tree, readings, some);
			continue;
		}
		readings->status = -EINVAL;
		some = 1;
	}
	return rc;
}
