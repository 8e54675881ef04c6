/* place.c - where a leaf is, as its parent has it. */
#include "index/tree/internal.h"

#include <string.h>

static int copy_end(struct tree_place *place, const void *end, uint32_t size)
{
	int rc = entry_room_need(&place->room, size + 1u);

	if (rc)
		return rc;
	if (size)
		memcpy(place->room.bytes, end, size);
	place->end = place->room.bytes;
	place->end_size = size;
	return 0;
}

/* The leaf is the root, and all there is. */
static int place_of_root(struct tree *tree, struct tree_place *place)
{
	int rc = reef_long_address(tree->space, tree->top & TREE_SHORT_MASK,
				   &place->head);

	return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
}

int tree_place_find(struct tree *tree, const void *key, uint32_t key_size,
		    struct tree_place *place)
{
	struct tree_node *parent;
	int rc, part;

	place->end = NULL;
	reef_enter(tree->reef);
	rc = tree_search(tree, key, key_size, 1, false, NULL, &parent);
	if (rc) {
		rc = rc == -ENOENT ? place_of_root(tree, place) : rc;
		goto out;
	}
	part = tree_node_part(parent, key, key_size, false);
	if (part < 0) {
		rc = -REEF_ECORRUPT;
	} else {
		place->head = parent->children[part].head;
		if ((uint32_t)part + 1 < parent->count)
			rc = copy_end(place, parent->parts[part + 1].key,
				      parent->parts[part + 1].key_size);
		else if (parent->high)
			rc = copy_end(place, parent->high, parent->high_size);
	}
	tree_node_unref(parent);
out:
	reef_leave(tree->reef);
	return rc;
}
