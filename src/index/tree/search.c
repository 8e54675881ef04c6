/* search.c - from the root to a node.
 *
 * Down by what is remembered of inner nodes, which may be coarse, and right at
 * high fences until the key fits: (5) and (6) of layout.h. */
#include "index/tree/internal.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 1000000u

void tree_separator_add(struct tree_separator **list, uint32_t level,
			const void *key, uint32_t key_size, uint64_t head,
			uint64_t hint)
{
	struct tree_separator *separator;

	for (separator = *list; separator; separator = separator->next)
		if (separator->child.head == head)
			return;
	separator = malloc(sizeof(*separator) + key_size);
	if (!separator)
		return;
	*separator = (struct tree_separator){
		.next = *list,
		.child = {.head = head, .hint = hint},
		.level = level,
		.key_size = key_size,
	};
	memcpy(separator->key, key, key_size);
	*list = separator;
}

int tree_top_read(struct tree *tree)
{
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

/* Go right until the key fits; *node is replaced. */
static int go_right(struct tree *tree, const void *key, uint32_t key_size,
		    bool before, struct tree_separator **missing,
		    struct tree_node **node, bool *moved)
{
	struct tree_node *right;
	struct tree_child child = {0};
	uint32_t steps = 0;
	int rc;

	while (is_behind(*node, key, key_size, before)) {
		child.head = (*node)->right;
		rc = steps++ < STEPS_MAX ? tree_node_get(tree, &child, &right)
					 : -REEF_ECORRUPT;
		if (!rc && (right->level != (*node)->level ||
			    tree_compare(right->low, right->low_size,
					 (*node)->high, (*node)->high_size))) {
			tree_node_unref(right);
			rc = -REEF_ECORRUPT;
		}
		if (rc)
			return rc;
		if (missing)
			tree_separator_add(missing, right->level + 1,
					   right->low, right->low_size,
					   right->head, right->word);
		tree_node_unref(*node);
		*node = right;
		*moved = true;
	}
	return 0;
}

static int find_top(struct tree *tree, struct tree_node **node)
{
	struct tree_child child = {0};
	int rc = tree_prove(tree);

	if (!rc)
		rc = reef_long_address(tree->space, tree->top & TREE_SHORT_MASK,
				       &child.head);
	if (rc)
		return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
	return tree_node_get(tree, &child, node);
}

int tree_search(struct tree *tree, const void *key, uint32_t key_size,
		uint32_t level, bool before, struct tree_separator **missing,
		struct tree_node **out)
{
	struct tree_node *node = NULL, *parent = NULL, *child;
	bool moved;
	int rc = find_top(tree, &node), part;

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
		rc = node->level < level ? -ENOENT : 0;
		part = tree_node_part(node, key, key_size, before);
		if (!rc && part < 0)
			rc = -REEF_ECORRUPT;
		if (!rc)
			rc = tree_node_get(tree, &node->parts[part].child,
					   &child);
		if (rc)
			break;
		if (child->level + 1 != node->level) {
			tree_node_unref(child);
			rc = -REEF_ECORRUPT;
			break;
		}
		parent = node;
		node = child;
	}
	if (rc)
		tree_node_unref(node);
	else
		*out = node;
	return rc;
}
