/* walk.c - all leaves, one after the other, by a cursor that is a number.
 *
 * A cursor is a place between 0 and 2^64, as a part of all of it: at each inner
 * node it says which of its children comes next, and what is left of it goes
 * for the node below. So it stays good whatever the tree becomes, and needs no
 * key; while the tree does not change its shape, every leaf has its turn. */
#include "index/tree/internal.h"

#include <stdlib.h>
#include <string.h>

struct leaf {		     /* where one is */
	uint8_t *low, *high; /* malloc's; high NULL: none */
	uint32_t low_size, high_size;
	uint64_t next; /* cursor behind it; 0: it is the last */
};

static uint8_t *copy_bytes(const uint8_t *bytes, uint32_t size)
{
	uint8_t *copy = malloc(size + 1u);

	if (copy && size)
		memcpy(copy, bytes, size);
	return copy;
}

/* The cursor behind a span, of which 0 is all; 0: there is none. */
static uint64_t behind(uint64_t cursor, uint64_t span)
{
	return span && cursor + span > cursor ? cursor + span : 0;
}

static int note_leaf(const struct tree_node *node, uint64_t cursor,
		     uint64_t span, struct leaf *leaf)
{
	leaf->low_size = node->low_size;
	leaf->high_size = node->high_size;
	leaf->low = copy_bytes(node->low, node->low_size);
	leaf->high =
		node->high ? copy_bytes(node->high, node->high_size) : NULL;
	leaf->next = behind(cursor, span);
	return leaf->low && (leaf->high || !node->high) ? 0 : -ENOMEM;
}

/* Find the leaf of a cursor; inside reef_enter. */
static int find_leaf(struct tree *tree, uint64_t cursor, struct leaf *leaf)
{
	struct tree_node *node, *child;
	uint64_t rest = cursor, span = 0; /* 0: all */
	int rc = tree_prove(tree);

	if (!rc)
		rc = tree_search(tree, "", 0, tree_top_height(tree->top), false,
				 NULL, &node);
	if (rc)
		return rc;
	while (node->level) {
		unsigned __int128 wide = (unsigned __int128)rest * node->count;

		/* Rounded up, so that the next cursor is not in this child. */
		span = span ? (span - 1) / node->count + 1
			    : UINT64_MAX / node->count + 1;
		rest = (uint64_t)wide;
		rc = tree_node_get(tree, &node->children[wide >> 64], &child);
		if (!rc && child->level + 1 != node->level) {
			tree_node_unref(child);
			rc = -REEF_ECORRUPT;
		}
		/* The child has joined the one on its left. What is remembered
		 * here is old, and read anew the next time. */
		if (rc == -ESTALE)
			tree_node_forget(tree, node);
		tree_node_unref(node);
		if (rc) {
			leaf->next = behind(cursor, span);
			return rc;
		}
		node = child;
	}
	rc = note_leaf(node, cursor, span, leaf);
	tree_node_unref(node);
	return rc;
}

int tree_walk(struct tree *tree, uint64_t *cursor, uint32_t steps,
	      int (*each)(void *context, const struct entry *entry),
	      void *context)
{
	int rc = 0;

	for (uint32_t i = 0; i < steps && !rc; i++) {
		struct tree_range range = {.flags = TREE_RANGE_KEYS};
		struct leaf leaf = {0};

		reef_enter(tree->reef);
		rc = find_leaf(tree, *cursor, &leaf);
		reef_leave(tree->reef);
		range.from = leaf.low;
		range.from_size = leaf.low_size;
		range.to = leaf.high;
		range.to_size = leaf.high_size;
		if (!rc)
			rc = tree_scan(tree, &range, each, context);
		if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT || rc == -ESTALE)
			rc = 0;
		if (!rc)
			*cursor = leaf.next;
		free(leaf.low);
		free(leaf.high);
		if (!*cursor)
			break;
	}
	return rc;
}
