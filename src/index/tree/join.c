/* join.c - leaves with few keys become one: (8) of layout.h.
 *
 *   few keys are left in R, and they and those of L, on its left, fit into one
 *   -> memory is taken -> R frozen -> JOINING in R's h0 -> L frozen -> both
 *   folded into a block of L, id and alive of both zero -> h0 of L changed: R
 *   is gone, and L ends where R ended -> R's separator removed
 *
 * Whoever finds R frozen and JOINING does the rest, and one of them wins, by
 * the CAS on L's head. L may be reshaped, split or joined to another meanwhile:
 * it is looked for anew each time. A separator that was not removed is a hint
 * that leads nowhere (5). */
#include "index/tree/internal.h"

#include "base/mutant.h"

#include <string.h>

#define ATTEMPTS_MAX 1000u
#define FEW 4u	 /* keys that a leaf may have to join another */
#define MOST 48u /* keys of both */

/* READ the node on the left of one that begins at `low`: the one with the keys
 * right below it.  -REEF_EDROPPED. */
static int read_left(struct tree *tree, const struct tree_image *image,
		     struct tree_image *left)
{
	struct tree_node *node;
	int rc;

	for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
		rc = tree_search(tree, image->low, image->low_size,
				 image->level, true, NULL, &node);
		if (rc)
			return rc;
		rc = tree_node_read(tree, node, left);
		if (rc == -ESTALE)
			tree_node_forget(tree, node);
		tree_node_unref(node);
		if (rc && rc != -ESTALE)
			return rc;
		if (!rc && left->level == image->level &&
		    tree_compare(left->low, left->low_size, image->low,
				 image->low_size) < 0 &&
		    (!left->high ||
		     tree_compare(left->high, left->high_size, image->low,
				  image->low_size) >= 0))
			return 0;
		/* It was split since it was last seen, or is gone. */
		if (!rc) {
			rc = tree_node_remember(tree, left, NULL);
			tree_image_free(left);
			if (rc)
				return rc;
		}
		rc = index_pause(attempt);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

/* True if `left` is the node right before that of an image. */
static bool is_beside(struct tree *tree, const struct tree_image *left,
		      const struct tree_image *image)
{
	uint64_t right;

	return left->high && left->right &&
	       !tree_compare(left->high, left->high_size, image->low,
			     image->low_size) &&
	       !reef_long_address(tree->space, left->right, &right) &&
	       right == image->head;
}

/* Forget a node that has joined another, and its separator. */
static void note_joined(struct tree *tree, const struct tree_image *image,
			const struct tree_image *left,
			struct tree_separator **missing)
{
	const struct tree_child child = {left->head, left->word};

	tree_node_drop(tree, image->head);
	if (missing)
		tree_separator_add(missing, image->level + 1, image->low,
				   image->low_size, &child, image->head);
}

/* Join a node that is JOINING, and the one on its left, which is not. */
static int join_both(struct tree *tree, const struct tree_image *left,
		     const struct tree_image *image,
		     struct tree_separator **missing)
{
	int rc = 0;

	if (is_beside(tree, left, image) || REEF_MUTATED(TREE_JOIN_TWICE))
		rc = tree_reshape_both(tree, left, image, missing);
	if (!rc)
		note_joined(tree, image, left, missing);
	return rc;
}

int tree_join_finish(struct tree *tree, const struct tree_image *image,
		     struct tree_separator **missing)
{
	struct tree_image left, further = {0};
	int rc;

	/* If the one on the left is JOINING, too, it goes first. */
	for (uint32_t i = 0; i < ATTEMPTS_MAX; i++) {
		rc = read_left(tree, image, &left);
		if (rc)
			break;
		if (!(left.word & TREE_JOINING) ||
		    !is_beside(tree, &left, image)) {
			rc = join_both(tree, &left, image, missing);
			tree_image_free(&left);
			break;
		}
		tree_image_free(&further);
		further = left;
		image = &further;
	}
	/* It cannot join any more. If it is one still, it is dropped, too; what
	 * was asked for is looked for again. */
	if (rc == -REEF_EDROPPED)
		rc = tree_is_linked(tree, image->level, image->head);
	if (rc == 1)
		rc = tree_drop_head(tree, image->head);
	tree_image_free(&further);
	return rc == -EAGAIN ? 0 : rc;
}

/* --- to begin with --- */

static uint64_t keys_of(const struct tree_image *image)
{
	uint64_t shape;

	memcpy(&shape, image->bytes + 8, 8);
	return tree_count_keys(shape, image->slots);
}

/* About how many bytes its keys take: as much each as those in its records. */
static uint64_t bytes_of(const struct tree *tree,
			 const struct tree_image *image)
{
	uint32_t bytes =
		image->intervals[image->intervals_count] - image->intervals[0];

	if (!image->records_count)
		return keys_of(image) * tree->leaf_bytes / MOST;
	return keys_of(image) * bytes / image->records_count;
}

/* True if the parent has a separator for a node, which is not its first: so the
 * node on its left has the same parent, and is found by it. */
static bool has_neighbour(struct tree *tree, const struct tree_image *image)
{
	struct tree_node *parent;
	bool is_found;
	int part;

	if (tree_search(tree, image->low, image->low_size, 1, false, NULL,
			&parent))
		return false;
	part = tree_node_part(parent, image->low, image->low_size, false);
	is_found = part > 0 &&
		   !tree_compare(parent->parts[part].key,
				 parent->parts[part].key_size, image->low,
				 image->low_size) &&
		   parent->children[part].head == image->head;
	tree_node_unref(parent);
	return is_found;
}

/* True if two leaves will do as one. */
static bool fit(const struct tree *tree, const struct tree_image *left,
		const struct tree_image *right)
{
	return keys_of(left) + keys_of(right) <= MOST &&
	       bytes_of(tree, left) + bytes_of(tree, right) <=
		       tree->leaf_bytes * 3 / 4;
}

void tree_join(struct tree *tree, const struct tree_node *node,
	       struct tree_separator **missing)
{
	struct tree_image image, left;

	if (node->level || !node->low_size ||
	    tree_node_read(tree, node, &image))
		return;
	if (image.level || !image.low_size || keys_of(&image) > FEW ||
	    !has_neighbour(tree, &image))
		goto out;
	if (image.word & TREE_JOINING) {
		tree_join_finish(tree, &image, missing);
		goto out;
	}
	if (read_left(tree, &image, &left))
		goto out;
	/* Transactions would lose for it. */
	if (is_beside(tree, &left, &image) && !(left.word & TREE_JOINING) &&
	    !tree_has_intents(left.slots) && !tree_has_intents(image.slots) &&
	    fit(tree, &left, &image))
		join_both(tree, &left, &image, missing);
	tree_image_free(&left);
out:
	tree_image_free(&image);
}
