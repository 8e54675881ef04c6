/* slab.c - memory for what a handle remembers of nodes, in huge pages.
 *
 * With millions of keys a get misses the cache at the leaf's node; in pages of
 * 4 KiB it misses the processor's translations, too, which took another tenth
 * of a get (half a million keys), and more with more of them. malloc has no
 * huge pages unless its user asks for them before main. So nodes lie in slabs
 * of 2 MiB, each of one size; an empty one serves any size.
 *
 * (1) The first nodes are malloc's, as a handle with few of them should not
 *     take 2 MiB; and so are long ones, and those for which there is no slab.
 * (2) Slabs take at most a quarter more than the handle may remember. */
#include "index/tree/internal.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SLAB (2u << 20)
#define STEP 128u /* bytes between sizes */
#define FIRST (1u << 20)
#define SPARE 1u /* empty slabs that are kept */

struct tree_slab {
	struct tree_slab *next, *before; /* in a list */
	struct tree_slabs *owner;
	void *free; /* pieces that were given back, by their first word */
	uint32_t size, used, fresh; /* bytes of a piece; pieces; the first that
				     * was never used, in bytes */
	bool is_listed;
};
static_assert(sizeof(struct tree_slab) <= STEP, "its head is a piece");

static void list_add(struct tree_slab **list, struct tree_slab *slab)
{
	slab->before = NULL;
	slab->next = *list;
	if (*list)
		(*list)->before = slab;
	*list = slab;
	slab->is_listed = true;
}

static void list_remove(struct tree_slab **list, struct tree_slab *slab)
{
	if (slab->before)
		slab->before->next = slab->next;
	else
		*list = slab->next;
	if (slab->next)
		slab->next->before = slab->before;
	slab->is_listed = false;
}

static bool is_full(const struct tree_slab *slab)
{
	return !slab->free && slab->fresh + slab->size > SLAB;
}

/* A slab with a piece of that size. NULL: there is none. */
static struct tree_slab *find_slab(struct tree_slabs *slabs, uint32_t which)
{
	struct tree_slab *slab = slabs->open[which];

	if (slab)
		return slab;
	slab = slabs->spare;
	if (slab) {
		list_remove(&slabs->spare, slab);
		slabs->spare_count--;
	} else {
		if (slabs->bytes + SLAB > slabs->most)
			return NULL;
		slab = aligned_alloc(SLAB, SLAB);
		if (!slab)
			return NULL;
		/* Without huge pages it works as well. */
		madvise(slab, SLAB, MADV_HUGEPAGE);
		slabs->bytes += SLAB;
	}
	*slab = (struct tree_slab){
		.owner = slabs,
		.size = (which + 1) * STEP,
		.fresh = STEP,
	};
	list_add(&slabs->open[which], slab);
	return slab;
}

static void *take_piece(struct tree_slabs *slabs, uint32_t which)
{
	struct tree_slab *slab = find_slab(slabs, which);
	void *piece;

	if (!slab)
		return NULL;
	piece = slab->free;
	if (piece) {
		memcpy(&slab->free, piece, sizeof(slab->free));
	} else {
		piece = (char *)slab + slab->fresh;
		slab->fresh += slab->size;
	}
	slab->used++;
	if (is_full(slab))
		list_remove(&slabs->open[which], slab);
	return piece;
}

struct tree_node *tree_slab_take(struct tree *tree, size_t size)
{
	struct tree_slabs *slabs = &tree->slabs;
	struct tree_node *node = NULL;
	uint32_t which = (uint32_t)((size + STEP - 1) / STEP - 1);
	bool is_piece = which < TREE_SLAB_SIZES && tree->cache_used >= FIRST;

	slabs->most = tree->cache_max + tree->cache_max / 4;
	if (is_piece)
		node = take_piece(slabs, which);
	is_piece = node;
	if (!node)
		node = malloc(size);
	if (node)
		node->is_piece = is_piece;
	return node;
}

void tree_slab_give(struct tree_node *node)
{
	struct tree_slab *slab =
		(void *)((uintptr_t)node & ~(uintptr_t)(SLAB - 1));
	struct tree_slab **open;

	if (!node->is_piece) {
		free(node);
		return;
	}
	open = &slab->owner->open[slab->size / STEP - 1];
	memcpy(node, &slab->free, sizeof(slab->free));
	slab->free = node;
	slab->used--;
	if (!slab->is_listed)
		list_add(open, slab);
	if (slab->used)
		return;
	list_remove(open, slab);
	if (slab->owner->spare_count < SPARE) {
		list_add(&slab->owner->spare, slab);
		slab->owner->spare_count++;
		return;
	}
	slab->owner->bytes -= SLAB;
	free(slab);
}

void tree_slabs_fini(struct tree_slabs *slabs)
{
	free(slabs->spare);
	*slabs = (struct tree_slabs){0};
}
