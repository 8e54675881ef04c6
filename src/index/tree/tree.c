/* tree.c - make a tree, open it, close it. */
#include "base/checksum.h"
#include "base/random.h"
#include "index/tree/internal.h"

#include <stdlib.h>
#include <string.h>

#define INLINE_MAX 256u
#define INLINE_MOST 1023u
#define LEAF_BYTES 6144u
#define LEAF_LEAST 256u
#define LEAF_MOST 65536u
#define CACHE_MAX (UINT64_C(64) << 20)
/* With the block's header the root is one unit of the heap, so that 28 bits
 * name it. */
#define ROOT_SIZE (65536 - 8)

/* The kinds are registered in this file, which every program with trees has: a
 * linker leaves out a file of a library that nothing refers to. */
__attribute__((constructor)) static void register_kinds(void)
{
	tree_kinds_register();
}

static uint32_t root_crc(const struct tree_root *root)
{
	return reef_crc32c(0, root, offsetof(struct tree_root, crc));
}

static uint64_t scramble(uint64_t a, uint64_t b, uint64_t c)
{
	const uint64_t words[3] = {a, b, c};

	return reef_hash(words, sizeof(words), 0);
}

/* Write the first leaf, which is empty, and its head. */
static int write_first(struct reef_space *space, uint32_t number, uint64_t tree,
		       uint64_t *head, uint64_t *block, uint64_t *word)
{
	struct reef *reef = reef_space_handle(space);
	struct tree_shape shape = {.number = number};
	struct tree_head words = {
		.about = tree_about_make(0, number),
		.tree = tree,
	};
	uint64_t name;
	uint8_t *bytes;
	uint32_t size;
	int rc = reef_alloc_kind(space, REEF_BLOCK_TREE_HEAD, sizeof(words),
				 head);

	if (rc)
		return rc;
	shape.head = *head;
	shape.id = scramble(tree, *head, 0) | 1;
	shape.low = (const uint8_t *)"";
	rc = tree_block_build(&shape, NULL, 0, &bytes, &size);
	if (rc)
		goto err_head;
	rc = reef_alloc_kind(space, REEF_BLOCK_TREE_BLOCK, size, block);
	if (rc)
		goto err_bytes;
	rc = reef_short_address(space, *block, &name);
	*word = words.word = tree_word_make(0, name, size);
	if (!rc)
		rc = reef_write(reef, *block, bytes, size);
	if (!rc)
		rc = reef_write(reef, *head, &words, sizeof(words));
	free(bytes);
	if (rc)
		reef_free(space, *block, 0);
	if (rc)
		goto err_head;
	return 0;

err_bytes:
	free(bytes);
err_head:
	reef_free(space, *head, 0);
	return rc;
}

static int write_root(struct reef_space *space, struct tree_root *root,
		      uint64_t at)
{
	uint64_t number, head, block, name;
	int rc = reef_short_address(space, at, &number);

	if (rc)
		return rc;
	reef_assert(!(number & 1023));
	root->id =
		scramble(reef_now_ns(), at,
			 root->seed ^ reef_session(reef_space_handle(space))) |
		1;
	root->alive = root->id;
	root->crc = root_crc(root);
	rc = write_first(space, entry_number_of_root(number), root->id, &head,
			 &block, &root->hint);
	if (rc)
		return rc;
	rc = reef_short_address(space, head, &name);
	root->top = tree_top_make(0, name, 0);
	if (!rc)
		rc = reef_write(reef_space_handle(space), at, root,
				sizeof(*root));
	if (!rc && !root->owner)
		rc = reef_keep(space, at);
	if (rc) {
		reef_free(space, block, 0);
		reef_free(space, head, 0);
	}
	return rc;
}

int tree_create(struct reef_space *space, const struct tree_options *options,
		uint64_t owner, uint64_t *out)
{
	struct tree_root root = {
		.magic = TREE_ROOT_MAGIC,
		.owner = owner,
		.inline_max = INLINE_MAX,
		.leaf_bytes = LEAF_BYTES,
	};
	uint64_t at;
	int rc = 0;

	if (options && options->inline_max)
		root.inline_max = options->inline_max;
	if (options && options->leaf_bytes)
		root.leaf_bytes = options->leaf_bytes;
	root.seed = options ? options->seed : 0;
	if (root.inline_max > INLINE_MOST || root.leaf_bytes > LEAF_MOST ||
	    root.leaf_bytes < LEAF_LEAST)
		return -EINVAL;
	if (!root.seed)
		rc = reef_random_secret(&root.seed, sizeof(root.seed));
	if (!rc)
		rc = reef_alloc_kind(space, REEF_BLOCK_TREE_ROOT, ROOT_SIZE,
				     &at);
	if (rc)
		return rc;
	rc = write_root(space, &root, at);
	if (rc)
		reef_free(space, at, 0);
	else
		*out = at;
	return rc;
}

int tree_root_read(struct reef_space *space, uint64_t at,
		   struct tree_root *root)
{
	int rc = reef_read(reef_space_handle(space), at, root, sizeof(*root));

	if (index_is_nonsense(rc))
		return -REEF_ECORRUPT;
	if (!rc &&
	    (root->magic != TREE_ROOT_MAGIC || root->crc != root_crc(root) ||
	     root->inline_max > INLINE_MOST || root->leaf_bytes > LEAF_MOST ||
	     root->leaf_bytes < LEAF_LEAST))
		rc = -REEF_ECORRUPT;
	return rc;
}

int tree_open(struct reef_space *space, uint64_t at, uint64_t cache_bytes,
	      struct tree **out)
{
	struct reef *reef = reef_space_handle(space);
	struct tree_root root;
	struct tree *tree;
	uint32_t number = 0;
	uint64_t epoch;
	int rc;

	reef_enter(reef);
	epoch = reef_epoch(reef);
	rc = tree_root_read(space, at, &root);
	reef_leave(reef);
	if (!rc && root.alive != root.id)
		rc = -REEF_EDROPPED;
	if (!rc)
		rc = entry_find_number(space, at, &number);
	if (rc)
		return rc;
	tree = calloc(1, sizeof(*tree));
	if (!tree)
		return -ENOMEM;
	tree->space = space;
	tree->reef = reef;
	tree->is_copied = reef_space_copies(space) > 1;
	tree->epoch = epoch;
	tree->top = root.top;
	tree->top_hint = root.hint;
	tree->home = (struct entry_home){
		.space = space,
		.reef = tree->reef,
		.number = number,
		.kind = REEF_BLOCK_TREE_ENTRY,
	};
	tree->root = at;
	tree->id = root.id;
	tree->seed = root.seed;
	tree->owner = root.owner;
	tree->inline_max = root.inline_max;
	tree->leaf_bytes = root.leaf_bytes;
	tree->cache_max = cache_bytes ? cache_bytes : CACHE_MAX;
	*out = tree;
	return 0;
}

uint64_t tree_owner(const struct tree *tree)
{
	return tree->owner;
}

uint64_t tree_root(const struct tree *tree)
{
	return tree->root;
}

uint64_t tree_id(const struct tree *tree)
{
	return tree->id;
}

uint64_t tree_cache_max(const struct tree *tree)
{
	return tree->cache_max;
}

uint64_t tree_cache_used(const struct tree *tree)
{
	return tree->cache_used;
}

void tree_reserve_give(struct tree *tree, uint64_t at)
{
	if (tree->reserve_count < TREE_RESERVE)
		tree->reserve[tree->reserve_count++] = at;
	else
		reef_free(tree->space, at, 0);
}

void tree_reserve_free(struct tree *tree)
{
	while (tree->reserve_count)
		reef_free(tree->space, tree->reserve[--tree->reserve_count], 0);
}

void tree_close(struct tree *tree)
{
	if (!tree)
		return;
	for (uint32_t i = 0; i < tree->buckets_count; i++)
		while (tree->buckets[i])
			tree_node_forget(tree, tree->buckets[i]);
	free(tree->buckets);
	if (tree->copy)
		tree_copy_fini(tree->copy);
	free(tree->copy);
	free(tree->old);
	tree_slabs_fini(&tree->slabs);
	tree_reserve_free(tree);
	entry_home_fini(&tree->home);
	free(tree);
}

int tree_prove(struct tree *tree)
{
	uint64_t words[3];
	int rc;

	if (tree->epoch == reef_epoch(tree->reef) && tree->top)
		return 0;
	rc = reef_read(tree->reef, tree_alive_at(tree), words, sizeof(words));
	if (rc)
		return rc;
	if (words[0] != tree->id)
		return -REEF_EDROPPED;
	tree->epoch = reef_epoch(tree->reef);
	if (tree->top != words[1])
		tree->top_head = 0;
	tree->top = words[1];
	tree->top_hint = words[2];
	return 0;
}

uint64_t tree_next_id(struct tree *tree, uint64_t at)
{
	return scramble((uint64_t)reef_session(tree->reef) << 32 | tree->ids++,
			reef_now_ns(), at) |
	       1;
}
