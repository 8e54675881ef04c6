/* recover.c - what a dead session left: is a block still part of a tree?
 *
 *   root   if its owner's word names it
 *   head   if the tree is alive, and a search for its low fence at its level
 *          ends there. One whose maker died before it was reachable is not, and
 *          nobody else can make it so. While the tree is being dropped, heads
 *          that are DROPPED lead to those beside them, so they stay
 *   block  if its head names it, and is live
 *   entry  if the slot or the record of its key names it, dead or not
 *
 * What only lost memory could name is not live: nobody can find it any more.
 *
 * (R10) What a block says of itself may be nonsense: a block that names no tree
 * is part of none. One of a tree whose nodes are nonsense stays, as nobody can
 * tell. */
#include "index/tree/internal.h"

#include "base/mutant.h"

/* True if what would name a block is gone for good, or never was there. */
static bool is_gone(int rc)
{
	return rc == -REEF_ELOST || rc == -EFAULT || rc == -EINVAL ||
	       rc == -ERANGE;
}

/* 1: the word of the root's owner names it; the lower bits are the owner's. */
static int is_owned(struct reef_space *space, uint64_t at,
		    const struct tree_root *root)
{
	uint64_t word;
	int rc;

	if (!root->owner)
		return 0;
	rc = reef_read(reef_space_handle(space), root->owner, &word, 8);
	if (rc)
		return is_gone(rc) ? 0 : rc;
	return (word & ~UINT64_C(7)) == at;
}

static int root_is_live(struct reef *reef, struct reef_space *space,
			uint64_t address)
{
	struct tree_root root;
	int rc = tree_root_read(space, address, &root);

	(void)reef;
	if (rc)
		return rc == -REEF_ECORRUPT || is_gone(rc) ? 0 : rc;
	return is_owned(space, address, &root);
}

/* Open the tree of that number for a moment.  -ENOENT: there is none any more.
 */
static int open_number(struct reef_space *space, uint32_t number,
		       struct tree **out)
{
	struct tree_root root;
	uint64_t at;
	int rc = reef_long_address(space, entry_root_of_number(number), &at);

	if (!rc)
		rc = tree_root_read(space, at, &root);
	if (!rc && root.owner) {
		rc = is_owned(space, at, &root);
		rc = rc < 0 ? rc : rc ? 0 : -ENOENT;
	}
	if (!rc)
		rc = tree_open(space, at, 0, out);
	return rc == -REEF_ECORRUPT || rc == -REEF_EDROPPED || is_gone(rc)
		       ? -ENOENT
		       : rc;
}

/* 1: the head is part of the tree; inside reef_enter. */
static int is_reachable(struct tree *tree, uint64_t address)
{
	struct tree_child child = {.head = address};
	struct tree_image image;
	struct tree_node *node;
	int rc = tree_image_read(tree, &child, true, &image);

	if (rc == -REEF_EDROPPED)
		return 1;
	if (rc)
		return rc == -REEF_ECORRUPT || rc == -ESTALE || is_gone(rc)
			       ? 0
			       : rc;
	rc = tree_search(tree, image.low, image.low_size, image.level, false,
			 NULL, &node);
	if (!rc) {
		rc = node->head == address;
		tree_node_unref(node);
	} else if (rc == -ENOENT) {
		rc = 0;
	} else if (rc == -REEF_EDROPPED) {
		/* Its neighbours are dropped already: is it the next? */
		rc = tree_is_linked(tree, image.level, address);
	} else if (rc == -REEF_ECORRUPT) {
		rc = 1;
	}
	tree_image_free(&image);
	return rc;
}

static int head_is_live(struct reef *reef, struct reef_space *space,
			uint64_t address)
{
	struct tree_head head;
	struct tree *tree;
	int rc = reef_read(reef, address, &head, sizeof(head));

	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (head.about >> 48 != TREE_HEAD_MAGIC)
		return 0;
	rc = open_number(space, (uint32_t)head.about, &tree);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	reef_enter(reef);
	rc = is_reachable(tree, address);
	reef_leave(reef);
	tree_close(tree);
	return rc;
}

static int block_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct tree_block block;
	struct tree_head head;
	uint64_t name;
	int rc = reef_read(reef, address, &block, sizeof(block));

	if (!rc)
		rc = reef_short_address(space, address, &name);
	if (!rc)
		rc = reef_read(reef, block.head, &head, sizeof(head));
	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (head.about >> 48 != TREE_HEAD_MAGIC ||
	    (uint32_t)head.about != block.number || head.word & TREE_DROPPED ||
	    (head.word & TREE_SHORT_MASK) != name)
		return 0;
	return head_is_live(reef, space, block.head);
}

/* 1: the slot that a transaction has names the block: as it was unless that is
 * COMMITTED, as it will be unless it is ABORTED. One whose session has ended
 * comes to nothing. */
static int is_held_named(struct tree *tree, struct intent *intent,
			 uint64_t block)
{
	enum reef_session_view view;
	int rc = 0;

	if (REEF_MUTATED(TXN_IS_LIVE_PENDING))
		return 0;
	if (tree_slot_block(tree_intent_content(intent)) == block)
		return 1;
	if (intent->status != INTENT_PENDING ||
	    tree_slot_block(intent->line.next) != block)
		return 0;
	rc = reef_session_check(tree->reef, intent->line.session, &view);
	if (rc || view != REEF_VIEW_ENDED)
		return rc ? rc : 1;
	rc = intent_abort(tree->space, intent);
	return rc ? rc : intent->status == INTENT_COMMITTED;
}

/* 1: the key's slot or record names the block; inside reef_enter. */
static int is_named(struct tree *tree, uint64_t block)
{
	struct entry_room room = {0};
	const struct entry_head *head;
	struct tree_spot spot = {.to_change = true, .blind = true};
	uint64_t at;
	int rc;

	/* Its hint is not known: READ the smallest size, then the rest. */
	rc = tree_entry_read(tree, tree_slot_make(block, 0, 0), 0, &room, &at);
	if (rc == 1) {
		head = room.bytes;
		spot.key = head + 1;
		spot.key_size = entry_key_size(head);
		spot.level = head->touched;
		rc = tree_look(tree, &spot, NULL);
		if (!rc && spot.is_held)
			rc = is_held_named(tree, &spot.intent, block);
		else if (!rc && spot.slot >= 0)
			rc = tree_slot_block(spot.slots[spot.slot]) == block;
		else if (!rc)
			rc = spot.outside &&
			     tree_slot_block(spot.outside) == block;
		else if (rc == -REEF_ECORRUPT)
			rc = 1;
		else if (rc == -ENOENT || rc == -REEF_EDROPPED)
			rc = 0;
	}
	tree_spot_fini(&spot);
	entry_room_free(&room);
	return rc;
}

static int entry_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct entry_head head;
	struct tree *tree;
	uint64_t block;
	int rc = reef_read(reef, address, &head, sizeof(head));

	if (!rc)
		rc = reef_short_address(space, address, &block);
	if (rc)
		return is_gone(rc) ? 0 : rc;
	rc = open_number(space, entry_number(&head), &tree);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	reef_enter(reef);
	rc = is_named(tree, block);
	reef_leave(reef);
	tree_close(tree);
	return is_gone(rc) ? 0 : rc;
}

/* Let go what names a line of a transaction whose status is decided. */
static int resolve_line(struct reef_space *space, const struct intent *intent,
			uint64_t block)
{
	struct tree *tree;
	int rc = open_number(space, intent->line.number, &tree);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	reef_enter(reef_space_handle(space));
	rc = tree_intent_resolve_line(tree, intent, block);
	reef_leave(reef_space_handle(space));
	tree_close(tree);
	return rc;
}

static const struct reef_kind_ops roots = {
	.name = "tree root",
	.is_live = root_is_live,
};
static const struct reef_kind_ops heads = {
	.name = "tree head",
	.is_live = head_is_live,
};
static const struct reef_kind_ops blocks = {
	.name = "tree block",
	.is_live = block_is_live,
};
static const struct reef_kind_ops entries = {
	.name = "tree entry",
	.is_quick = true,
	.is_live = entry_is_live,
};

void tree_kinds_register(void)
{
	reef_kind_register(REEF_BLOCK_TREE_ROOT, &roots);
	reef_kind_register(REEF_BLOCK_TREE_HEAD, &heads);
	reef_kind_register(REEF_BLOCK_TREE_BLOCK, &blocks);
	reef_kind_register(REEF_BLOCK_TREE_ENTRY, &entries);
	intent_resolver_register(INTENT_TREE, resolve_line);
}
