/* get.c - look a key up. */
#include "index/tree/internal.h"

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

int tree_get(struct tree *tree, struct tree_reading *reading)
{
	struct tree_spot spot = {
		.key = reading->key,
		.key_size = reading->key_size,
		.blind = reading->blind,
		.bytes = reading->room,
	};
	int rc;

	reading->status = -EINVAL;
	if (reading->key_size > TREE_KEY_MAX)
		return -EINVAL;
	reading->room = (struct entry_room){0};
	reef_enter(tree->reef);
	rc = tree_look(tree, &spot, NULL);
	reef_leave(tree->reef);
	if (!rc && spot.is_there)
		take_room(&spot, reading);
	else if (!rc)
		rc = -ENOENT;
	/* The room that was given is kept for the next call. */
	if (!reading->room.bytes) {
		reading->room = spot.bytes;
		spot.bytes = (struct entry_room){0};
	}
	tree_spot_fini(&spot);
	reading->status = rc;
	return rc;
}
