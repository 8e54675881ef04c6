/* R10, by somebody who knows the layout: words that are sound by themselves,
 * with right checksums, and lead elsewhere. Every call returns, nobody is given
 * keys in a wrong order or for ever, and no memory but the tree's is written
 * to. */
#include "fixture/plain_tree.h"

#include "base/checksum.h"
#include "base/random.h"
#include "fixture/seeds.h"
#include "index/tree/internal.h"

#include <stdlib.h>

#define KEYS 400u
#define MET_MAX (4 * KEYS)
#define NODES_MAX 512u

static const struct tree_options small = {
	.leaf_bytes = 256, .inline_max = 16, .seed = 7};

struct known { /* a node */
	uint64_t head, at, word;
	uint32_t level;
};

struct scene {
	struct member *member;
	struct reef_space *space;
	struct tree *tree;
	struct reef_random random;
	struct known nodes[NODES_MAX];
	uint32_t count, leaves; /* leaves are the first */
	uint64_t canary;	/* a block of another's */
};

static int find_nodes(struct scene *scene)
{
	struct tree *tree = scene->tree;
	struct tree_node *node, *next;
	int rc = 0;

	reef_enter(tree->reef);
	for (uint32_t level = 0; !rc; level++) {
		rc = tree_search(tree, "", 0, level, false, NULL, &node);
		while (!rc && node) {
			struct tree_child child = {.head = node->right};

			if (scene->count < NODES_MAX)
				scene->nodes[scene->count++] =
					(struct known){node->head, node->at,
						       node->word, level};
			next = NULL;
			if (child.head)
				rc = tree_node_get(tree, &child, &next);
			tree_node_unref(node);
			node = next;
		}
		if (!level)
			scene->leaves = scene->count;
	}
	reef_leave(tree->reef);
	return rc == -ENOENT ? 0 : rc;
}

static const struct known *any_node(struct scene *scene, bool is_leaf)
{
	uint32_t first = is_leaf ? 0 : scene->leaves;
	uint32_t end = is_leaf ? scene->leaves : scene->count;

	return &scene->nodes[first +
			     reef_random_below(&scene->random, end - first)];
}

static int write_word(struct scene *scene, uint64_t at, uint64_t word)
{
	return reef_write(scene->member->reef, at, &word, 8);
}

/* --- what is done to it --- */

/* The root names a node that is not the first of its level. */
static int move_root(struct scene *scene)
{
	const struct known *node =
		any_node(scene, reef_random_below(&scene->random, 2));
	uint64_t name, top;

	TRY(reef_short_address(scene->space, node->head, &name));
	TRY(reef_read(scene->member->reef, tree_top_at(scene->tree), &top, 8));
	return write_word(scene, tree_top_at(scene->tree),
			  tree_top_make(top, name,
					reef_random_below(&scene->random, 2)
						? node->level
						: tree_top_height(top)));
}

/* A slot names an entry of another leaf, or a block of somebody else. */
static int move_slot(struct scene *scene)
{
	const struct known *from = any_node(scene, true);
	const struct known *to = any_node(scene, true);
	uint64_t slots[TREE_SLOTS], slot = 0, short_canary;
	uint32_t i;

	TRY(reef_read(scene->member->reef, from->at + TREE_SLOTS_AT, slots,
		      sizeof(slots)));
	for (i = 0; i < TREE_SLOTS; i++)
		if (tree_slot_has_entry(slots[i]) &&
		    !tree_slot_is_dead(slots[i]))
			slot = slots[i];
	if (!slot || !reef_random_below(&scene->random, 4)) {
		TRY(reef_short_address(scene->space, scene->canary,
				       &short_canary));
		slot = tree_slot_after(0, tree_slot_make(short_canary, 3, 5));
	}
	TRY(reef_read(scene->member->reef, to->at + TREE_SLOTS_AT, slots,
		      sizeof(slots)));
	for (i = 0; i < TREE_SLOTS - 1 && slots[i];)
		i++;
	return write_word(scene, to->at + TREE_SLOTS_AT + 8 * (uint64_t)i,
			  slot);
}

/* A head names the block of another node, or a canary. */
static int move_head(struct scene *scene)
{
	bool is_leaf = reef_random_below(&scene->random, 2);
	const struct known *node = any_node(scene, is_leaf);
	uint64_t word = any_node(scene, true)->word, name;

	if (!reef_random_below(&scene->random, 3)) {
		TRY(reef_short_address(scene->space, scene->canary, &name));
		word = tree_word_make(0, name, 64 * 4 - 8);
	}
	return write_word(scene, node->head, word);
}

static uint32_t about_crc(const uint8_t *bytes)
{
	const struct tree_block *block = (const void *)bytes;
	uint32_t crc = reef_crc32c(0, &block->shape, sizeof(block->shape));
	uint32_t end = (uint32_t)(block->shape >> 32);

	crc = reef_crc32c(crc, &block->right,
			  offsetof(struct tree_block, crc) -
				  offsetof(struct tree_block, right));
	return reef_crc32c(crc, &block->low_size,
			   end - offsetof(struct tree_block, low_size));
}

/* A node ends before it begins, and leads to any other; its checksum is right.
 */
static int turn_node(struct scene *scene)
{
	bool is_leaf = reef_random_below(&scene->random, 4);
	const struct known *node = any_node(scene, is_leaf);
	uint32_t size = tree_word_size(node->word);
	uint8_t *bytes = malloc(size);
	struct tree_block *block = (void *)bytes;

	WANT(bytes);
	TRY(reef_read(scene->member->reef, node->at, bytes, size));
	TRY(reef_short_address(scene->space, any_node(scene, is_leaf)->head,
			       &block->right));
	if (reef_random_below(&scene->random, 2))
		block->high_size = 0;
	block->crc = about_crc(bytes);
	TRY(reef_write(scene->member->reef, node->at, bytes, size));
	free(bytes);
	return 0;
}

static int (*const wounds[])(struct scene *scene) = {move_root, move_slot,
						     move_head, turn_node};

/* --- what is done with it --- */

struct met {
	uint8_t last[8];
	uint32_t count;
	bool backward, is_wrong;
};

static int meet(void *context, const struct entry *entry)
{
	struct met *met = context;
	uint8_t key[8] = {0};
	int order;

	memcpy(key, entry->key, entry->key_size < 8 ? entry->key_size : 8);
	order = memcmp(met->last, key, 8);
	if (met->count && (met->backward ? order <= 0 : order >= 0))
		met->is_wrong = true;
	memcpy(met->last, key, 8);
	return ++met->count > MET_MAX ? -ELOOP : 0;
}

static int read_all(struct tree *tree)
{
	struct tree_range range = {0};
	struct tree_count count;
	uint64_t key, value, cursor = 0;
	struct met met;
	int rc;

	for (key = 0; key < 2 * KEYS; key += 7)
		(void)plain_tree_get(tree, key, &value);
	for (uint32_t i = 0; i < 2; i++) {
		met = (struct met){.backward = i};
		range.flags = i ? TREE_RANGE_BACKWARD : 0;
		rc = tree_scan(tree, &range, meet, &met);
		WANT(rc != -ELOOP && !met.is_wrong);
	}
	(void)tree_count(tree, &count);
	met = (struct met){0};
	(void)tree_walk(tree, &cursor, 1000, meet, &met);
	return 0;
}

static int hurt(struct member *member)
{
	struct scene *scene = calloc(1, sizeof(*scene));
	uint64_t i, seed = member->pool->seed, words[63];
	struct tree *other;

	WANT(scene);
	scene->member = member;
	reef_random_init(&scene->random, seed);
	TRY(plain_tree_begin(member, &small, &scene->space, &scene->tree));
	TRY(reef_alloc(scene->space, sizeof(words), &scene->canary));
	memset(words, 0, sizeof(words));
	TRY(reef_write(member->reef, scene->canary, words, sizeof(words)));
	for (i = 0; i < KEYS; i++)
		TRY(plain_tree_put(scene->tree, 2 * (i * 37 % KEYS), i));
	TRY(find_nodes(scene));
	WANT(scene->count > scene->leaves + 1);
	TRY(wounds[seed % (sizeof(wounds) / sizeof(wounds[0]))](scene));
	TRY(read_all(scene->tree));
	if (!tree_open(scene->space, tree_root(scene->tree), 0, &other)) {
		TRY(read_all(other));
		for (i = 0; i < 2 * KEYS; i += 3)
			(void)plain_tree_put(other, i, i);
		for (i = 0; i < 2 * KEYS; i++)
			(void)plain_tree_delete(other, i);
		(void)tree_drop(other);
		tree_close(other);
	}
	(void)tree_drop(scene->tree);
	tree_close(scene->tree);
	TRY(reef_read(member->reef, scene->canary, words, sizeof(words)));
	for (i = 0; i < 63; i++)
		WANT(!words[i]);
	free(scene);
	return 0;
}

static void tree_hostile_words_lead_nowhere(void **state)
{
	(void)state;
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(80, 2000));
	     seed++) {
		struct pool pool = {.calm = true, .ttl_ns = 100 * SECOND};

		pool_start(&pool, seed);
		pool_add(&pool, hurt);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_hostile_words_lead_nowhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
