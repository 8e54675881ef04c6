/* search.c - from the root to a node.
 *
 * Down by what is remembered of inner nodes, which are hints, and right at high
 * fences until the key fits: (5) and (6) of layout.h. A hint that leads nowhere
 * is passed over for the one before it, and the first of a node for what is on
 * the left of that node. What is on the right of a node is true, if the node is
 * what it was: so where that leads nowhere the node is read anew first. */
#include "index/tree/internal.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 1000000u
#define ATTEMPTS_MAX 1000u

void tree_separator_add(struct tree_separator **list, uint32_t level,
			const void *key, uint32_t key_size,
			const struct tree_child *child, uint64_t bad)
{
	struct tree_separator *separator;

	for (separator = *list; separator; separator = separator->next)
		if (separator->child.head == child->head &&
		    separator->bad == bad)
			return;
	separator = malloc(sizeof(*separator) + key_size);
	if (!separator)
		return;
	*separator = (struct tree_separator){
		.next = *list,
		.child = *child,
		.bad = bad,
		.level = level,
		.key_size = key_size,
	};
	memcpy(separator->key, key, key_size);
	*list = separator;
}

int tree_top_read(struct tree *tree)
{
	tree->top_head = tree->top_hint = 0;
	return reef_read(tree->reef, tree_top_at(tree), &tree->top, 8);
}

/* True if the key is behind the node. before: the keys right below it are. */
static bool is_behind(const struct tree_node *node, const void *key,
		      uint32_t key_size, bool before)
{
	int order;

	if (!node->high || REEF_MUTATED(TREE_FENCE_IGNORED))
		return false;
	if (!key)
		return true;
	order = tree_compare(key, key_size, node->high, node->high_size);
	return before ? order > 0 : order >= 0;
}

/* True if an error says that a hint leads to no node, or to one that cannot be
 * read. */
static bool is_nowhere(int rc)
{
	return rc == -ESTALE || rc == -REEF_ELOST || index_is_nonsense(rc);
}

/* True if the key, or what is right below it, is not before the node. */
static bool begins_before(const struct tree_node *node, const void *key,
			  uint32_t key_size, bool before)
{
	int order;

	if (!key || REEF_MUTATED(TREE_JOIN_LOW))
		return true;
	order = tree_compare(node->low, node->low_size, key, key_size);
	return before ? order < 0 || !node->low_size : order <= 0;
}

/* Get the node on the right of one. -ESTALE, or another error that says so: it
 * is not there. */
static int get_right(struct tree *tree, const struct tree_node *node,
		     struct tree_node **out)
{
	struct tree_child child = {.head = node->right};
	struct tree_node *right;
	int rc = 0;

	for (uint32_t i = 0; i < 2; i++) {
		rc = tree_node_get(tree, &child, &right);
		if (rc)
			return rc;
		if (right->level == node->level &&
		    !tree_compare(right->low, right->low_size, node->high,
				  node->high_size)) {
			*out = right;
			return 0;
		}
		/* What is remembered there may be of another life. */
		tree_node_forget(tree, right);
		tree_node_unref(right);
	}
	return -ESTALE;
}

/* READ a node anew; *node is replaced. 1: it is as it was.  -EAGAIN: it is
 * gone.
 */
static int refresh(struct tree *tree, struct tree_node **node)
{
	struct tree_image image;
	struct tree_node *now;
	int rc = tree_node_read(tree, *node, &image);

	if (rc == -ESTALE) {
		tree_node_forget(tree, *node);
		return -EAGAIN;
	}
	if (rc)
		return rc;
	rc = tree_node_remember(tree, &image, &now);
	tree_image_free(&image);
	if (rc)
		return rc;
	rc = now->id == (*node)->id;
	tree_node_unref(*node);
	*node = now;
	return rc;
}

/* Get the node on the right of one that was just read and names it: so it is
 * one even if it is JOINING. */
static int prove_right(struct tree *tree, const struct tree_node *node,
		       struct tree_node **out)
{
	const struct tree_child child = {.head = node->right};
	struct tree_image image;
	int rc = tree_image_read(tree, &child, true, &image);

	if (rc)
		return rc;
	if (image.level != node->level ||
	    tree_compare(image.low, image.low_size, node->high,
			 node->high_size))
		rc = -ESTALE;
	if (!rc)
		rc = tree_node_remember(tree, &image, out);
	tree_image_free(&image);
	return rc;
}

/* Go right until the key fits; *node is replaced.  -EAGAIN: search again. */
static int go_right(struct tree *tree, const void *key, uint32_t key_size,
		    bool before, struct tree_separator **missing,
		    struct tree_node **node, bool *moved)
{
	const uint32_t level = (*node)->level;
	struct tree_node *right;
	struct tree_child child;
	int rc, why;

	for (uint32_t steps = 0; is_behind(*node, key, key_size, before);
	     steps++) {
		if (steps == STEPS_MAX)
			return -REEF_ECORRUPT;
		why = get_right(tree, *node, &right);
		if (is_nowhere(why) || why == -REEF_EDROPPED) {
			rc = refresh(tree, node);
			/* (5) Its head may be another's by now. */
			if (!rc &&
			    ((*node)->level != level ||
			     !begins_before(*node, key, key_size, before)))
				rc = -EAGAIN;
			if (!rc)
				continue;
			if (rc == 1)
				rc = why = prove_right(tree, *node, &right);
			if (rc)
				return rc == -ESTALE ? -REEF_ECORRUPT : rc;
		}
		if (why)
			return why;
		child = (struct tree_child){right->head, right->word};
		if (missing)
			tree_separator_add(missing, right->level + 1,
					   right->low, right->low_size, &child,
					   0);
		tree_node_unref(*node);
		*node = right;
		*moved = true;
	}
	return 0;
}

/* Get a child that a hint names. 1: it will do.  0: the hint is none; *why: how
 * that was found. */
static int get_child(struct tree *tree, const struct tree_child *child,
		     uint32_t level, struct tree_ahead *ahead,
		     struct tree_image *fresh, struct tree_node **out, int *why)
{
	struct tree_node *node;
	int rc;

	*why = -REEF_ECORRUPT;
	for (uint32_t i = 0; i < 2; i++) {
		rc = tree_node_get_fresh(tree, child, ahead, fresh, &node);
		if (is_nowhere(rc)) {
			*why = rc == -ESTALE ? -REEF_ECORRUPT : rc;
			return 0;
		}
		if (rc)
			return rc;
		if (node->level == level &&
		    begins_before(node, ahead->key, ahead->key_size,
				  ahead->before)) {
			*out = node;
			return 1;
		}
		/* What is remembered there may be of another life. */
		tree_node_forget(tree, node);
		tree_node_unref(node);
	}
	return 0;
}

/* Go down from an inner node; *child is where one can go right to the key. */
static int go_down(struct tree *tree, const struct tree_node *node,
		   struct tree_ahead *ahead, struct tree_separator **missing,
		   struct tree_image *fresh, struct tree_node **child)
{
	int first = tree_node_part(node, ahead->key, ahead->key_size,
				   ahead->before),
	    part, rc = 0;
	int why = -REEF_ECORRUPT;
	struct tree_child now;

	for (part = first; part >= 0 && !rc; part -= !rc)
		rc = get_child(tree, &node->children[part], node->level - 1,
			       ahead, fresh, child, &why);
	if (!rc && !node->low_size)
		return why;
	if (!rc)
		rc = tree_search(tree, node->low, node->low_size,
				 node->level - 1, true, NULL, child);
	if (rc < 0)
		return rc;
	now = (struct tree_child){(*child)->head, (*child)->word};
	for (; missing && first > part && why == -REEF_ECORRUPT; first--)
		tree_separator_add(missing, node->level, node->parts[first].key,
				   node->parts[first].key_size, &now,
				   node->children[first].head);
	return 0;
}

/* Get the first node of a level. -REEF_ECORRUPT: (R10) it is not: below that no
 * search would end. */
static int get_first(struct tree *tree, const struct tree_child *child,
		     uint32_t level, struct tree_ahead *ahead,
		     struct tree_node **out)
{
	struct tree_node *node;
	int rc;

	for (uint32_t i = 0; i < 2; i++) {
		rc = tree_node_get_fresh(tree, child, ahead, NULL, &node);
		if (rc)
			return rc == -ESTALE ? -REEF_ECORRUPT : rc;
		if (!node->low_size && node->level == level) {
			*out = node;
			return 0;
		}
		/* What is remembered there may be of another life. */
		tree_node_forget(tree, node);
		tree_node_unref(node);
	}
	return -REEF_ECORRUPT;
}

static int find_top(struct tree *tree, struct tree_ahead *ahead,
		    struct tree_node **node)
{
	struct tree_child child = {0};
	int rc = tree_prove(tree);
	const uint64_t top = tree->top; /* another fiber may see it change */

	if (!rc)
		rc = reef_long_address(tree->space, top & TREE_SHORT_MASK,
				       &child.head);
	if (rc)
		return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
	child.hint = tree->top_hint;
	rc = get_first(tree, &child, tree_top_height(top), ahead, node);
	tree->top_head = rc || tree->top != top ? 0 : child.head;
	return rc;
}

static int search_once(struct tree *tree, const void *key, uint32_t key_size,
		       uint32_t level, bool before,
		       struct tree_separator **missing,
		       struct tree_image *fresh, struct tree_node **out)
{
	struct tree_ahead ahead = {
		.key = key,
		.key_size = key_size,
		.before = before,
		.level = level,
	};
	struct tree_node *node = NULL, *parent = NULL, *child;
	bool moved;
	int rc = find_top(tree, &ahead, &node);

	while (!rc) {
		moved = false;
		rc = go_right(tree, key, key_size, before, missing, &node,
			      &moved);
		/* A parent that was remembered from another epoch may know
		 * better by now. */
		if (moved && parent && parent->epoch != reef_epoch(tree->reef))
			tree_node_forget(tree, parent);
		tree_node_unref(parent);
		parent = NULL;
		if (rc || node->level == level)
			break;
		rc = node->level < level ? -ENOENT
					 : go_down(tree, node, &ahead, missing,
						   fresh, &child);
		if (rc)
			break;
		parent = node;
		node = child;
	}
	tree_ahead_drop(&ahead);
	if (rc)
		tree_node_unref(node);
	else
		*out = node;
	return rc;
}

/* Find the leaf of a key where one on the way to it is dropped. That does not
 * say that the key's is: it may have been cut off that one, or be JOINING. But
 * leaves are dropped from the first on, so it is unless it can be reached from
 * the first that is not. */
static int search_undropped(struct tree *tree, const void *key,
			    uint32_t key_size, bool before,
			    struct tree_separator **missing,
			    struct tree_node **out)
{
	struct tree_node *node = NULL;
	struct tree_image image;
	uint64_t head, word;
	bool moved;
	int rc = tree_read_undropped(tree, &image), why;

	if (rc)
		return rc;
	head = image.head;
	rc = tree_node_remember(tree, &image, &node);
	tree_image_free(&image);
	if (rc)
		return rc;
	if (!begins_before(node, key, key_size, before)) {
		tree_node_unref(node);
		return -REEF_EDROPPED;
	}
	why = go_right(tree, key, key_size, before, missing, &node, &moved);
	if (!why) {
		*out = node;
		return 0;
	}
	tree_node_unref(node);
	if (why != -REEF_EDROPPED)
		return why;
	/* The first was dropped meanwhile, as well; or it was passed over. */
	rc = reef_read(tree->reef, head, &word, 8);
	return rc ? rc : word & TREE_DROPPED ? -EAGAIN : why;
}

int tree_search(struct tree *tree, const void *key, uint32_t key_size,
		uint32_t level, bool before, struct tree_separator **missing,
		struct tree_node **out)
{
	return tree_search_fresh(tree, key, key_size, level, before, missing,
				 NULL, out);
}

int tree_search_fresh(struct tree *tree, const void *key, uint32_t key_size,
		      uint32_t level, bool before,
		      struct tree_separator **missing, struct tree_image *fresh,
		      struct tree_node **out)
{
	int rc = -EAGAIN;

	/* Each further attempt follows a node that is gone. */
	for (uint32_t i = 0; rc == -EAGAIN && i < ATTEMPTS_MAX; i++) {
		rc = i ? index_pause(i) : 0;
		if (!rc)
			rc = search_once(tree, key, key_size, level, before,
					 missing, fresh, out);
		if (rc == -REEF_EDROPPED && !level)
			rc = search_undropped(tree, key, key_size, before,
					      missing, out);
	}
	return rc == -EAGAIN ? -EBUSY : rc;
}
