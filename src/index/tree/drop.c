/* drop.c - the end of a tree.
 *
 *   DROPPING in the root word: nothing grows any more -> from the leaves up,
 *   each level from its first head: the node frozen, its block not its id any
 *   more, h0 DROPPED with the head to the right -> the root's alive 0 -> heads
 *   freed
 *
 * Each node is done in a reef_enter of its own, in which the tree was seen
 * alive. What one leaves undone the next finds as it is. Whoever zeroes `alive`
 * frees the heads: nobody needs the words in them any more.
 *
 * A node that is lost or damaged is passed over: its parent knows what comes
 * next. What only it could name is left to recovery. */
#include "index/tree/internal.h"

#include "base/mutant.h"

#include <stdlib.h>

#define RETRIES 1000u
#define STALE 4u

/* Finds out that a chain of heads, which anybody may have scribbled, leads in a
 * circle: each is compared with one that was met before, which is another after
 * twice as many. Zero it first. */
struct circle {
	uint64_t mark;
	uint32_t steps, most;
};

static bool is_circle(struct circle *circle, uint64_t head)
{
	if (circle->mark == head)
		return true;
	if (circle->steps++ >= circle->most) {
		circle->mark = head;
		circle->most = 2 * circle->most + 1;
		circle->steps = 0;
	}
	return false;
}

/* True if an error says that a node is lost, or damaged. */
static bool is_unreadable(int rc)
{
	return rc == -REEF_ELOST || index_is_nonsense(rc);
}

/* See to it that the root does not grow. 1: the tree is dropped already. */
static int begin_drop(struct tree *tree, uint64_t *top)
{
	uint64_t words[2], before;
	int rc;

	for (uint32_t i = 0; i < RETRIES; i++) {
		rc = reef_read(tree->reef, tree_alive_at(tree), words,
			       sizeof(words));
		if (rc || words[0] != tree->id)
			return rc ? rc : 1;
		*top = words[1];
		if (words[1] & TREE_DROPPING)
			return 0;
		rc = index_cas(tree->reef, tree_top_at(tree), words[1],
			       words[1] | TREE_DROPPING, &before);
		if (rc < 0 && rc != -REEF_EINDOUBT)
			return rc;
	}
	return -EBUSY;
}

/* The first head of each level. */
static int find_heads(struct tree *tree, uint64_t top,
		      uint64_t heads[TREE_HEIGHT_MAX + 1])
{
	uint32_t level = tree_top_height(top);
	struct tree_head head;
	int rc;

	if (level > TREE_HEIGHT_MAX)
		return -REEF_ECORRUPT;
	rc = reef_long_address(tree->space, top & TREE_SHORT_MASK,
			       &heads[level]);
	while (!rc) {
		rc = reef_read(tree->reef, heads[level], &head, sizeof(head));
		if (!rc &&
		    head.about != tree_about_make(level, tree->home.number))
			rc = -REEF_ECORRUPT;
		if (rc || !level)
			break;
		heads[--level] = head.below;
	}
	return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
}

/* Free the entries of a node that is DROPPED. Where they cannot be read, those
 * that lie outside are left to recovery. */
static void free_entries(struct tree *tree, const struct tree_image *image)
{
	struct tree_entries entries = {0};
	struct tree_merged merged = {0};
	uint64_t at;
	uint32_t i;
	int rc = tree_entries_read(tree, image->slots, 0, &entries);

	if (!rc)
		rc = tree_merge(image, image->slots, &entries, UINT32_MAX,
				&merged);
	for (i = 0; i < merged.count && !rc; i++)
		if (merged.records[i].outside &&
		    !reef_long_address(
			    tree->space,
			    tree_slot_block(merged.records[i].outside), &at))
			entry_free(&tree->home, at);
	for (i = 0; i < TREE_SLOTS; i++)
		if (tree_slot_has_entry(image->slots[i]) &&
		    !reef_long_address(tree->space,
				       tree_slot_block(image->slots[i]), &at))
			entry_free(&tree->home, at);
	tree_merged_free(&merged);
	tree_entries_free(&entries);
}

static int set_dropped(struct tree *tree, struct tree_image *image)
{
	struct index_batch *batch = calloc(1, sizeof(*batch));
	uint64_t before;
	int rc = batch ? 0 : -ENOMEM;

	if (!rc) {
		batch->reef = tree->reef;
		rc = tree_freeze(tree, image);
	}
	if (!rc)
		rc = tree_zero(image, batch);
	if (!rc)
		rc = index_batch_flush(batch);
	free(batch);
	if (rc)
		return rc;
	rc = index_cas(tree->reef, image->head, image->word,
		       image->right | TREE_DROPPED, &before);
	if (rc == 1) {
		free_entries(tree, image);
		entry_free_later(&tree->home, image->at);
		return 0;
	}
	return rc && rc != -REEF_EINDOUBT ? rc : -EAGAIN;
}

/* The head to the right, as a word or block names it; 0: none. */
static int find_right(struct tree *tree, uint64_t word, uint64_t *right)
{
	*right = 0;
	word &= TREE_SHORT_MASK;
	return word ? reef_long_address(tree->space, word, right) : 0;
}

/* READ the node of a head. 1: it is DROPPED; *right is the one beside it. */
static int pass_dropped(struct tree *tree, uint64_t head, uint64_t *right,
			struct tree_image *image)
{
	const struct tree_child child = {.head = head};
	uint64_t word;
	int rc = reef_read(tree->reef, head, &word, 8);

	if (!rc && !(word & TREE_DROPPED)) {
		rc = tree_image_read(tree, &child, true, image);
		if (rc != -REEF_EDROPPED)
			return rc;
		rc = reef_read(tree->reef, head, &word, 8);
	}
	if (!rc)
		rc = find_right(tree, word, right);
	return rc ? rc : 1;
}

/* The head to the right of one, which may be DROPPED; 0: none. */
static int read_right(struct tree *tree, uint64_t head, uint64_t *right)
{
	struct tree_image image;
	int rc = pass_dropped(tree, head, right, &image);

	if (rc)
		return rc == 1 ? 0 : rc;
	rc = find_right(tree, image.right, right);
	tree_image_free(&image);
	return rc;
}

/* Drop a node; inside reef_enter. *right: the head beside it, or 0. 1: the
 * whole tree is dropped.  -EAGAIN: once more. */
static int drop_node(struct tree *tree, uint64_t head, uint64_t *right)
{
	struct tree_child child = {.head = head};
	struct tree_image image;
	uint64_t alive, word;
	int rc = reef_read(tree->reef, tree_alive_at(tree), &alive, 8);

	if (rc || alive != tree->id)
		return rc ? rc : 1;
	rc = reef_read(tree->reef, head, &word, 8);
	if (rc)
		return rc;
	if (word & TREE_DROPPED)
		return read_right(tree, head, right);
	child.hint = word;
	rc = tree_image_read(tree, &child, true, &image);
	if (rc)
		return rc == -REEF_EDROPPED ? -EAGAIN : rc;
	rc = set_dropped(tree, &image);
	tree_image_free(&image);
	return rc ? rc : -EAGAIN;
}

int tree_drop_head(struct tree *tree, uint64_t head)
{
	uint64_t right;
	int rc = -EAGAIN;

	for (uint32_t i = 0; rc == -EAGAIN && i < RETRIES; i++)
		rc = drop_node(tree, head, &right);
	if (rc == -EAGAIN)
		return -EBUSY;
	return rc == 1 || rc == -ESTALE ? 0 : rc;
}

int tree_read_undropped(struct tree *tree, struct tree_image *image)
{
	uint64_t heads[TREE_HEIGHT_MAX + 1] = {0}, words[2] = {0}, head, right;
	struct circle circle = {0};
	int rc = reef_read(tree->reef, tree_alive_at(tree), words,
			   sizeof(words));

	if (rc || words[0] != tree->id)
		return rc ? rc : -REEF_EDROPPED;
	if (!tree->dropped)
		rc = find_heads(tree, words[1], heads);
	head = tree->dropped ? tree->dropped : heads[0];
	for (; !rc && head; head = right) {
		if (is_circle(&circle, head))
			return -REEF_ECORRUPT;
		rc = pass_dropped(tree, head, &right, image);
		if (!rc)
			return 0;
		if (rc == 1) {
			tree->dropped = head;
			rc = 0;
		}
	}
	return !rc || rc == -ESTALE || is_unreadable(rc) ? -REEF_EDROPPED : rc;
}

/* As tree_is_linked.  -ESTALE: what was on the way has joined another. */
static int is_linked(struct tree *tree, uint32_t level, uint64_t address)
{
	uint64_t heads[TREE_HEIGHT_MAX + 1] = {0}, words[2] = {0};
	struct circle circle = {0};
	uint64_t head, right = 0;
	int rc = reef_read(tree->reef, tree_alive_at(tree), words,
			   sizeof(words));

	if (rc || words[0] != tree->id)
		return rc;
	if (level > tree_top_height(words[1]) || level > TREE_HEIGHT_MAX)
		return 0;
	rc = find_heads(tree, words[1], heads);
	for (head = heads[level]; !rc && head; head = right) {
		if (head == address)
			return 1;
		if (is_circle(&circle, head))
			return -REEF_ECORRUPT;
		rc = read_right(tree, head, &right);
	}
	return rc;
}

int tree_is_linked(struct tree *tree, uint32_t level, uint64_t address)
{
	int rc = -ESTALE;

	for (uint32_t i = 0; rc == -ESTALE && i < RETRIES; i++)
		rc = is_linked(tree, level, address);
	return rc == -ESTALE ? -EBUSY : rc;
}

/* Find the head that comes after one in its level, by the parents of that, from
 * the first on. 0: none is known. */
static uint64_t find_after(struct tree *tree, uint64_t first, uint64_t head)
{
	struct tree_child child = {.head = first};
	struct circle circle = {0};
	struct tree_node *node;
	bool is_met = false;
	uint64_t next = 0;

	while (child.head && !next && !is_circle(&circle, child.head)) {
		if (tree_node_get(tree, &child, &node))
			break;
		for (uint32_t j = 0; j < node->count && !next; j++) {
			if (is_met)
				next = node->children[j].head;
			is_met = is_met || node->children[j].head == head;
		}
		child.head = node->right;
		tree_node_unref(node);
	}
	return next;
}

/* Drop the nodes of a level from its first on; parents: the first of the level
 * above; 0: there is none. */
static int drop_level(struct tree *tree, uint64_t head, uint64_t parents)
{
	struct circle circle = {0};
	uint32_t retries = 0;
	int rc = 0;

	while (head && !rc) {
		reef_enter(tree->reef);
		rc = drop_node(tree, head, &head);
		/* Another may have dropped all of it; then the next look tells.
		 */
		if (rc == -ESTALE)
			rc = retries < STALE ? -EAGAIN : -REEF_ECORRUPT;
		if (is_unreadable(rc)) {
			head = find_after(tree, parents, head);
			rc = 0;
		}
		reef_leave(tree->reef);
		if (!rc)
			retries = 0;
		if (!rc && is_circle(&circle, head))
			break;
		if (rc == -EAGAIN)
			rc = retries++ < RETRIES ? index_pause(retries)
						 : -EBUSY;
	}
	return rc;
}

/* Nobody but us has these heads any more, but for readers. */
static void free_heads(struct tree *tree, uint64_t head)
{
	struct circle circle = {0};
	uint64_t word, next;

	while (head && !is_circle(&circle, head)) {
		if (reef_read(tree->reef, head, &word, 8) ||
		    !(word & TREE_DROPPED))
			return;
		next = 0;
		if (word & TREE_SHORT_MASK &&
		    reef_long_address(tree->space, word & TREE_SHORT_MASK,
				      &next))
			return;
		if (REEF_MUTATED(TREE_HEAD_REUSED))
			reef_free(tree->space, head, 0);
		else
			entry_free_later(&tree->home, head);
		head = next;
	}
}

int tree_drop(struct tree *tree)
{
	uint64_t heads[TREE_HEIGHT_MAX + 1] = {0}, top, before;
	uint32_t level;
	int rc;

	tree_reserve_free(tree);
	reef_enter(tree->reef);
	rc = begin_drop(tree, &top);
	if (!rc)
		rc = find_heads(tree, top, heads);
	reef_leave(tree->reef);
	for (level = 0; !rc && level <= tree_top_height(top); level++)
		rc = drop_level(tree, heads[level],
				level < tree_top_height(top) ? heads[level + 1]
							     : 0);
	if (rc)
		return rc == 1 ? 0 : rc;
	rc = index_cas(tree->reef, tree_alive_at(tree), tree->id, 0, &before);
	if (rc == 1)
		for (level = 0; level <= tree_top_height(top); level++)
			free_heads(tree, heads[level]);
	return rc < 0 && rc != -REEF_EINDOUBT ? rc : 0;
}
