/* test_txn_odd.c - transactions over trees and maps where something is odd:
 * ranges that change while they are scanned, pools that are full, fibers that
 * meet in one, entries that are judged while they are held, memory that was
 * reused, tags that come round, prints that collide. */
#include "fixture/pool_world.h"

#include "index/tree/internal.h"
#include "kv/seed.h"
#include "pool/client/handle/recover.h"
#include "txn/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_MASK ((UINT64_C(1) << 38) - 1)
#define EPOCHS (20 * TTL) /* several */

struct scene {
	struct reef_space *space;
	struct reef_tree *tree;
	struct reef_map *map; /* NULL: of the tree */
};

static int open_scene(struct member *member, struct scene *scene)
{
	TRY(member_space(member, &scene->space));
	TRY(reef_tree_open(scene->space, "t", NULL, &scene->tree));
	return reef_map_open(scene->space, "m", NULL, &scene->map);
}

static void close_scene(struct scene *scene)
{
	reef_tree_close(scene->tree);
	reef_map_close(scene->map);
}

static int put(struct reef_tree *tree, const char *key, const char *value)
{
	return reef_tree_put(tree, key, strlen(key), value, strlen(value), 0,
			     NULL);
}

/* 1: it has that value.  0: it is not there. */
static int has(struct reef_tree *tree, const char *key, const char *value)
{
	struct reef_map_value found = {0};
	int rc = reef_tree_get(tree, key, strlen(key), &found);

	if (!rc)
		rc = found.size == strlen(value) &&
				     !memcmp(found.bytes, value, found.size)
			     ? 1
			     : -EXDEV;
	reef_map_value_free(&found);
	return rc == -ENOENT ? 0 : rc;
}

static int run(uint64_t seed, int (*script)(struct member *member))
{
	struct pool pool = {.extent_size = 16 * MIB};
	int rc;

	tree_seed = 7; /* so that no prints collide by chance */
	pool_start(&pool, seed);
	pool_add(&pool, script);
	rc = pool_end(&pool);
	tree_seed = 0;
	return rc;
}

/* --- scans --- */

static int count_one(void *context, const struct reef_map_entry *entry)
{
	uint32_t *count = context;

	(void)entry;
	++*count;
	return 0;
}

static int stop(void *context, const struct reef_map_entry *entry)
{
	(void)context;
	(void)entry;
	return -ENOENT; /* the caller's own: no error of the scan */
}

static const struct reef_txn_options reader = {.flags = REEF_TXN_READ_ONLY};

/* A reader scans; what is done then is in the way of its commit, or not. */
static int scan_and(struct scene *scene, const struct reef_range *range,
		    uint32_t keys, struct reef_txn **txn)
{
	uint32_t count = 0;

	TRY(reef_txn_begin(scene->space, &reader, txn));
	TRY(reef_txn_scan(*txn, scene->tree, range, count_one, &count));
	WANT(count == keys);
	return 0;
}

static int scans(struct member *member)
{
	const struct reef_range range = {"b", "f", 1, 1, 0, 0};
	const struct reef_range back = {"f", "b", 1, 1, REEF_RANGE_BACKWARD, 2};
	const struct reef_range odd = {.flags = 1u << 20};
	const struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct reef_space *elsewhere;
	struct reef_tree *far;
	struct reef_txn *txn, *writer;
	struct scene scene;
	uint32_t count = 0;

	TRY(open_scene(member, &scene));
	TRY(put(scene.tree, "a", "1"));
	TRY(put(scene.tree, "c", "1"));
	TRY(put(scene.tree, "d", "1"));
	TRY(scan_and(&scene, &range, 2, &txn));
	WANT_RC(reef_txn_scan(txn, scene.tree, &back, stop, NULL), -ENOENT);
	WANT_RC(reef_txn_scan(txn, scene.tree, &odd, stop, NULL), -EINVAL);
	TRY(reef_txn_commit(txn));
	WANT_RC(reef_txn_scan(txn, scene.tree, NULL, stop, NULL), -EINVAL);
	reef_txn_close(txn);
	/* A key that has come and gone, a change, a key that goes. */
	for (int i = 0; i < 3; i++) {
		TRY(scan_and(&scene, &range, 2, &txn));
		TRY(i ? 0 : put(scene.tree, "e", "1"));
		TRY(i ? 0 : reef_tree_delete(scene.tree, "e", 1, 0));
		TRY(i == 1 ? put(scene.tree, "d", "2") : 0);
		TRY(i == 2 ? reef_tree_delete(scene.tree, "d", 1, 0) : 0);
		WANT_RC(reef_txn_commit(txn), -ECANCELED);
		reef_txn_close(txn);
	}
	/* A transaction inserts while it is scanned: before, and after. */
	TRY(reef_txn_begin(scene.space, NULL, &writer));
	TRY(reef_txn_tree_insert(writer, scene.tree, "e", 1, "2", 1, 0));
	TRY(scan_and(&scene, &range, 1, &txn));
	TRY(reef_txn_commit(txn)); /* it was not there */
	reef_txn_close(txn);
	TRY(scan_and(&scene, &range, 1, &txn));
	TRY(reef_txn_commit(writer));
	reef_txn_close(writer);
	WANT_RC(reef_txn_commit(txn), -ECANCELED);
	reef_txn_close(txn);
	/* One that is given up, or puts nothing, is in nobody's way. */
	TRY(scan_and(&scene, &range, 2, &txn));
	TRY(reef_txn_begin(scene.space, NULL, &writer));
	TRY(reef_txn_tree_put(writer, scene.tree, "c", 1, "9", 1, 0));
	WANT_RC(reef_txn_tree_delete(writer, scene.tree, "c", 1), 0);
	reef_txn_abort(writer);
	reef_txn_close(writer);
	TRY(reef_txn_commit(txn));
	reef_txn_close(txn);
	/* Not of others. */
	TRY(reef_txn_begin(scene.space, NULL, &txn));
	WANT_RC(reef_txn_scan(txn, scene.tree, NULL, count_one, &count),
		-EINVAL);
	reef_txn_close(txn);
	TRY(reef_space_open(member->reef, "elsewhere", &make, &elsewhere));
	TRY(reef_tree_open(elsewhere, "t", NULL, &far));
	TRY(reef_txn_begin(scene.space, &reader, &txn));
	WANT_RC(reef_txn_scan(txn, far, NULL, count_one, &count), -EXDEV);
	WANT_RC(reef_txn_tree_put(txn, scene.tree, "x", 1, "y", 1, 0), -EINVAL);
	reef_txn_close(txn);
	reef_tree_close(far);
	close_scene(&scene);
	return 0;
}

static void txn_scan_is_of_one_moment(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= POOL_SEEDS; seed++)
		assert_int_equal(run(seed, scans), 0);
}

/* A reader that has lost so often that it holds what it reads from now on. */
struct loser {
	struct scene scene;
	uint32_t attempts, keys;
	bool changes;
};

static int lose(struct reef_txn *txn, void *context)
{
	struct loser *loser = context;

	loser->keys = 0;
	if (loser->attempts++ < 9)
		return -ECANCELED;
	if (loser->changes)
		return reef_txn_tree_put(txn, loser->scene.tree, "a", 1, "2", 1,
					 0);
	return reef_txn_scan(txn, loser->scene.tree, NULL, count_one,
			     &loser->keys);
}

static int lose_and_scan(struct member *member)
{
	struct loser loser = {0};

	TRY(open_scene(member, &loser.scene));
	TRY(put(loser.scene.tree, "a", "1"));
	TRY(reef_txn_run(loser.scene.space, lose, &loser, &reader));
	WANT(loser.keys == 1);
	loser.changes = true;
	loser.attempts = 0;
	WANT_RC(reef_txn_run(loser.scene.space, lose, &loser, &reader),
		-EINVAL);
	close_scene(&loser.scene);
	return 0;
}

static void txn_run_of_who_reads_never_changes(void **state)
{
	(void)state;
	assert_int_equal(run(1, lose_and_scan), 0);
}

/* --- full --- */

#define BLOCKS_MAX 100000u

static int take_rest(struct reef_space *space, uint64_t *blocks)
{
	static const uint32_t sizes[] = {65528, 4088, 504, 248, 120, 56};
	uint32_t count = 0;

	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		while (count < BLOCKS_MAX &&
		       !reef_alloc(space, sizes[i], &blocks[count]))
			count++;
	return 0;
}

static int full(struct member *member)
{
	uint64_t *blocks = calloc(BLOCKS_MAX, sizeof(*blocks));
	struct reef_map_value value = {0};
	struct reef_txn *txn;
	struct scene scene;
	char large[300] = {0};

	WANT(blocks);
	TRY(open_scene(member, &scene));
	TRY(put(scene.tree, "a", "1"));
	TRY(put(scene.tree, "b", "1"));
	TRY(reef_txn_begin(scene.space, NULL, &txn));
	TRY(reef_txn_tree_take(txn, scene.tree, "a", 1, &value));
	TRY(take_rest(scene.space, blocks));
	TRY(reef_txn_tree_put(txn, scene.tree, "a", 1, large, 300, 0));
	TRY(reef_txn_tree_put(txn, scene.tree, "b", 1, large, 300, 0));
	WANT_RC(reef_txn_commit(txn), -ENOSPC);
	/* Nothing has changed, and nothing is held. */
	WANT_RC(has(scene.tree, "a", "1"), 1);
	WANT_RC(has(scene.tree, "b", "1"), 1);
	TRY(reef_tree_delete(scene.tree, "a", 1, 0));
	WANT_RC(reef_txn_check(txn), -ECANCELED);
	reef_txn_close(txn);
	/* A key that is not there needs a block already to be looked for. */
	TRY(reef_txn_begin(scene.space, NULL, &txn));
	WANT_RC(reef_txn_tree_get(txn, scene.tree, "z", 1, &value), -ENOSPC);
	reef_txn_close(txn);
	reef_map_value_free(&value);
	free(blocks);
	close_scene(&scene);
	return 0;
}

static void run_full(int (*script)(struct member *member))
{
	struct pool pool = {.capacity = 32 * MIB, .extent_size = 16 * MIB};

	pool_start(&pool, 3);
	pool_add(&pool, script);
	assert_int_equal(pool_end(&pool), 0);
}

static void txn_in_a_full_pool_changes_nothing(void **state)
{
	(void)state;
	run_full(full);
}

/* Who only deletes needs no more room than was kept for it. */
static int delete_when_full(struct member *member)
{
	uint64_t *blocks = calloc(BLOCKS_MAX, sizeof(*blocks));
	struct reef_txn *txn;
	struct scene scene;
	char key[2];

	WANT(blocks);
	TRY(open_scene(member, &scene));
	for (char i = 'a'; i < 'i'; i++) {
		key[0] = i;
		TRY(reef_tree_put(scene.tree, key, 1, "1", 1, 0, NULL));
		TRY(reef_map_put(scene.map, key, 1, "1", 1, 0, NULL));
	}
	TRY(take_rest(scene.space, blocks));
	for (char i = 'a'; i < 'i'; i += 2) {
		TRY(reef_txn_begin(scene.space, NULL, &txn));
		for (char j = i; j < i + 2; j++) {
			TRY(reef_txn_delete(txn, scene.map, &j, 1));
			TRY(reef_txn_tree_delete(txn, scene.tree, &j, 1));
		}
		TRY(reef_txn_commit(txn));
		reef_txn_close(txn);
		key[0] = i;
		key[1] = 0;
		WANT_RC(has(scene.tree, key, ""), 0);
		WANT_RC(reef_map_delete(scene.map, key, 1, 0), -ENOENT);
	}
	free(blocks);
	close_scene(&scene);
	return 0;
}

static void txn_in_a_full_pool_deletes(void **state)
{
	(void)state;
	run_full(delete_when_full);
}

/* Six maps have a block to spare each. */
#define SPARING 6u

static int delete_many_when_full(struct member *member)
{
	uint64_t *blocks = calloc(BLOCKS_MAX, sizeof(*blocks));
	struct reef_map *maps[SPARING];
	struct reef_space *space;
	struct reef_txn *txn;
	char name[3] = "m0";

	WANT(blocks);
	TRY(member_space(member, &space));
	for (uint32_t i = 0; i < SPARING; i++, name[1]++)
		TRY(reef_map_open(space, name, NULL, &maps[i]));
	for (uint32_t i = 0; i < SPARING * INTENT_FIRST_LINES; i++)
		TRY(reef_map_put(maps[i % SPARING], &i, 4, "1", 1, 0, NULL));
	TRY(take_rest(space, blocks));
	TRY(reef_txn_begin(space, NULL, &txn));
	for (uint32_t i = 0; i < SPARING * INTENT_FIRST_LINES; i++)
		TRY(reef_txn_delete(txn, maps[i % SPARING], &i, 4));
	TRY(reef_txn_commit(txn));
	reef_txn_close(txn);
	for (uint32_t i = 0; i < SPARING * INTENT_FIRST_LINES; i++)
		WANT_RC(reef_map_delete(maps[i % SPARING], &i, 4, 0), -ENOENT);
	for (uint32_t i = 0; i < SPARING; i++)
		reef_map_close(maps[i]);
	free(blocks);
	return 0;
}

static void txn_in_a_full_pool_deletes_many(void **state)
{
	(void)state;
	run_full(delete_many_when_full);
}

/* The last one that was taken, of the smallest. */
static uint64_t last_block(const uint64_t *blocks)
{
	uint32_t i = 0;

	while (i + 1 < BLOCKS_MAX && blocks[i + 1])
		i++;
	return blocks[i];
}

/* Two keys that are in no leaf, and room for one of them. What was taken for it
 * is another's soon, and is not given back a second time. */
static int miss_two_when_full(struct member *member)
{
	uint64_t *blocks = calloc(BLOCKS_MAX, sizeof(*blocks)), at, again;
	struct reef_txn_item items[2] = {
		{.key = "x", .key_size = 1},
		{.key = "x", .key_size = 1},
	};
	struct reef_tree *tree;
	struct reef_txn *txn;
	struct scene scene;

	WANT(blocks);
	TRY(open_scene(member, &scene));
	TRY(reef_tree_open(scene.space, "t2", NULL, &tree));
	TRY(put(scene.tree, "a", "1"));
	TRY(put(tree, "a", "1"));
	TRY(take_rest(scene.space, blocks));
	TRY(reef_free(scene.space, last_block(blocks), 0));
	items[0].tree = scene.tree;
	items[1].tree = tree;
	TRY(reef_txn_begin(scene.space, NULL, &txn));
	WANT_RC(reef_txn_take_many(txn, items, 2), -ENOSPC);
	TRY(reef_alloc(scene.space, 56, &at));
	reef_txn_close(txn);
	WANT_RC(reef_alloc(scene.space, 56, &again), -ENOSPC);
	free(blocks);
	reef_tree_close(tree);
	close_scene(&scene);
	return 0;
}

static void txn_in_a_full_pool_gives_back_what_is_its(void **state)
{
	(void)state;
	run_full(miss_two_when_full);
}

/* There is room for a few values; what was put before comes back later. */
static int replace_when_tight(struct member *member)
{
	uint64_t *blocks = calloc(BLOCKS_MAX, sizeof(*blocks));
	struct reef_map_value value = {0};
	struct reef_txn *txn;
	struct scene scene;
	char large[3000] = {0};
	uint32_t lost = 0;
	int rc;

	WANT(blocks);
	TRY(open_scene(member, &scene));
	TRY(reef_map_put(scene.map, "a", 1, large, sizeof(large), 0, NULL));
	TRY(reef_map_put(scene.map, "b", 1, large, sizeof(large), 0, NULL));
	TRY(take_rest(scene.space, blocks));
	for (uint32_t i = 0; i < 2; i++)
		TRY(reef_free(scene.space, blocks[i], 0));
	for (uint32_t i = 0; i < 100; i++)
		TRY(reef_map_put(scene.map, "a", 1, large, sizeof(large), 0,
				 NULL));
	for (uint32_t i = 0; i < 100; i++) {
		TRY(reef_txn_begin(scene.space, NULL, &txn));
		TRY(reef_txn_put(txn, scene.map, "a", 1, large, sizeof(large),
				 0));
		TRY(reef_txn_put(txn, scene.map, "b", 1, large, sizeof(large),
				 0));
		TRY(reef_txn_commit(txn));
		reef_txn_close(txn);
	}
	/* A key that is not there costs a block, for a while. Now and then the
	 * print of another is in the way. */
	for (uint32_t i = 0; i < 400; i++) {
		TRY(reef_txn_begin(scene.space, NULL, &txn));
		rc = reef_txn_tree_get(txn, scene.tree, &i, 4, &value);
		if (rc != -ECANCELED) {
			WANT_RC(rc, -ENOENT);
			rc = reef_txn_get(txn, scene.map, &i, 4, &value);
			WANT_RC(rc, -ENOENT);
		}
		lost += rc == -ECANCELED;
		reef_txn_close(txn);
	}
	WANT(lost < 10);
	reef_map_value_free(&value);
	free(blocks);
	close_scene(&scene);
	return 0;
}

static void txn_in_a_tight_pool_replaces(void **state)
{
	(void)state;
	run_full(replace_when_tight);
}

/* --- fibers --- */

struct shared {
	struct scene scene;
	struct reef_txn *txn;
};

static int take_first(void *context)
{
	struct shared *shared = context;
	struct reef_map_value value = {0};
	int rc = reef_txn_tree_take(shared->txn, shared->scene.tree, "a", 1,
				    &value);

	reef_map_value_free(&value);
	return rc;
}

static int two_fibers(struct member *member)
{
	struct reef_map_value value = {0};
	struct reef_fiber *fiber;
	struct shared shared;
	int rc;

	TRY(open_scene(member, &shared.scene));
	TRY(put(shared.scene.tree, "a", "1"));
	TRY(reef_txn_begin(shared.scene.space, NULL, &shared.txn));
	TRY(reef_fiber_spawn(reef_fiber_sched(), take_first, &shared, &fiber));
	TRY(reef_sleep(1)); /* it waits for the network now */
	WANT_RC(reef_txn_tree_get(shared.txn, shared.scene.tree, "a", 1,
				  &value),
		-EBUSY);
	WANT_RC(reef_txn_commit(shared.txn), -EBUSY);
	reef_txn_abort(shared.txn);
	TRY(reef_fiber_join(fiber, &rc));
	TRY(rc);
	TRY(reef_txn_commit(shared.txn));
	reef_txn_close(shared.txn);
	reef_map_value_free(&value);
	close_scene(&shared.scene);
	return 0;
}

static void txn_of_two_fibers_is_busy(void **state)
{
	(void)state;
	assert_int_equal(run(1, two_fibers), 0);
}

/* --- what recovery thinks of entries that are held --- */

static int is_live(const struct scene *scene, uint8_t kind, uint64_t content)
{
	uint64_t at;

	TRY(reef_long_address(scene->space, content & SHORT_MASK, &at));
	return client_kind_is_live(scene->space, kind, at);
}

/* The line says what the key becomes; nobody has decided it. */
static int say_next(struct reef_txn *txn, struct item *item)
{
	const struct entry entry = {.value = "new", .value_size = 3};
	struct entry_fresh *fresh = &item->hold->fresh;

	reef_enter(txn->reef);
	TRY(item->hold->index->put(item->hold, &entry));
	TRY(entry_fresh_write(txn_home(item), fresh));
	TRY(reef_write(txn->reef,
		       txn_line_at(txn, item) +
			       offsetof(struct intent_line, next),
		       &item->hold->next, 8));
	reef_leave(txn->reef);
	return 0;
}

static int judged(struct scene *scene, struct reef_map *map, uint8_t kind)
{
	struct reef_map_value value = {0};
	uint64_t before, next;
	struct reef_txn *txn;

	TRY(reef_map_put(map, "a", 1, "old", 3, 0, NULL));
	TRY(reef_txn_begin(scene->space, NULL, &txn));
	TRY(reef_txn_take(txn, map, "a", 1, &value));
	before = txn->items[0]->hold->before;
	WANT_RC(is_live(scene, kind, before), 1);
	TRY(say_next(txn, txn->items[0]));
	next = txn->items[0]->hold->next;
	WANT_RC(is_live(scene, kind, before), 1);
	WANT_RC(is_live(scene, kind, next), 1);
	TRY(reef_cas(txn->reef, txn_status_at(txn), INTENT_PENDING,
		     INTENT_COMMITTED, NULL));
	WANT_RC(is_live(scene, kind, before), 0);
	WANT_RC(is_live(scene, kind, next), 1);
	reef_txn_close(txn);
	reef_map_value_free(&value);
	return 0;
}

static int judged_in_trees(struct member *member)
{
	struct scene scene;

	TRY(open_scene(member, &scene));
	TRY(judged(&scene, map_hold_of_tree(scene.tree),
		   REEF_BLOCK_TREE_ENTRY));
	close_scene(&scene);
	return 0;
}

static int judged_in_maps(struct member *member)
{
	struct scene scene;

	TRY(open_scene(member, &scene));
	TRY(judged(&scene, scene.map, REEF_BLOCK_HASH_ENTRY));
	close_scene(&scene);
	return 0;
}

static void txn_entries_are_live_while_they_are_held(void **state)
{
	(void)state;
	assert_int_equal(run(1, judged_in_trees), 0);
	assert_int_equal(run(1, judged_in_maps), 0);
}

/* --- memory that is another's by now --- */

/* A coordinator stands still; its key's slot is let go by others, and gets
 * another place. What is where it was is none of its business. */
static int stale(struct member *member)
{
	struct reef_map_value value = {0};
	struct reef_txn *txn;
	struct scene scene;
	struct hold *hold;
	uint64_t word = 0;
	char key[16];

	TRY(open_scene(member, &scene));
	TRY(put(scene.tree, "a", "1"));
	TRY(reef_txn_begin(scene.space, NULL, &txn));
	TRY(reef_txn_tree_take(txn, scene.tree, "a", 1, &value));
	hold = txn->items[0]->hold;
	for (uint32_t i = 0; i < 50; i++) {
		snprintf(key, sizeof(key), "key %u", i);
		TRY(put(scene.tree, key, key));
	}
	TRY(reef_read(member->reef, hold->slot_at, &word, 8));
	WANT(word & TREE_FROZEN && !(word & TREE_INTENT));
	TRY(reef_sleep(EPOCHS));
	TRY(reef_write(member->reef, hold->slot_at, &hold->word, 8));
	reef_txn_abort(txn);
	TRY(reef_read(member->reef, hold->slot_at, &word, 8));
	WANT(word == hold->word);
	reef_txn_close(txn);
	WANT_RC(has(scene.tree, "a", "1"), 1);
	reef_map_value_free(&value);
	close_scene(&scene);
	return 0;
}

static void txn_leaves_alone_what_is_where_its_slot_was(void **state)
{
	(void)state;
	assert_int_equal(run(1, stale), 0);
}

/* The entry that it was to replace is gone, and its memory another's. */
static int late(struct member *member)
{
	const uint64_t pattern = UINT64_C(0x5555aaaa5555aaaa);
	struct reef_map_value value = {0};
	struct reef_txn *txn;
	struct scene scene;
	uint64_t at, word = 0;

	TRY(open_scene(member, &scene));
	TRY(reef_map_put(scene.map, "a", 1, "1", 1, 0, NULL));
	TRY(reef_txn_begin(scene.space, NULL, &txn));
	TRY(reef_txn_take(txn, scene.map, "a", 1, &value));
	TRY(reef_long_address(scene.space,
			      txn->items[0]->hold->before & SHORT_MASK, &at));
	TRY(reef_map_put(scene.map, "a", 1, "2", 1, 0, NULL));
	TRY(reef_sleep(EPOCHS));
	TRY(reef_write(member->reef, at, &pattern, 8));
	TRY(reef_txn_put(txn, scene.map, "a", 1, "3", 1, 0));
	WANT_RC(reef_txn_commit(txn), -ECANCELED);
	TRY(reef_read(member->reef, at, &word, 8));
	WANT(word == pattern);
	reef_txn_close(txn);
	reef_map_value_free(&value);
	close_scene(&scene);
	return 0;
}

static void txn_that_is_late_writes_to_no_others_memory(void **state)
{
	(void)state;
	assert_int_equal(run(1, late), 0);
}

/* A take is in doubt: it may yet happen, so its block is not used again. */
static int doubted(struct member *member)
{
	struct reef_map_value value = {0};
	struct reef_txn *txn;
	struct scene scene;
	uint64_t at;

	TRY(open_scene(member, &scene));
	TRY(put(scene.tree, "a", "1"));
	TRY(reef_txn_begin(scene.space, NULL, &txn));
	TRY(reef_txn_tree_take(txn, scene.tree, "a", 1, &value));
	at = txn_status_at(txn);
	txn->in_doubt = true;
	reef_txn_abort(txn);
	reef_txn_close(txn);
	for (uint32_t i = 0; i < 40; i++) {
		TRY(reef_sleep(TTL));
		TRY(reef_txn_begin(scene.space, NULL, &txn));
		TRY(reef_txn_tree_take(txn, scene.tree, "a", 1, &value));
		WANT(txn_status_at(txn) != at);
		reef_txn_close(txn);
	}
	reef_map_value_free(&value);
	close_scene(&scene);
	return 0;
}

static void txn_block_stays_while_a_take_is_in_doubt(void **state)
{
	(void)state;
	assert_int_equal(run(1, doubted), 0);
}

/* A key that is not there is looked for, and what was made for that stays the
 * slot's. */
static int ghosts(struct member *member)
{
	struct reef_map_value value = {0};
	struct reef_txn *txn;
	struct scene scene;

	TRY(open_scene(member, &scene));
	TRY(put(scene.tree, "a", "1"));
	TRY(reef_txn_begin(scene.space, NULL, &txn));
	WANT_RC(reef_txn_tree_get(txn, scene.tree, "b", 1, &value), -ENOENT);
	reef_txn_close(txn);
	TRY(reef_sleep(EPOCHS));
	for (uint32_t i = 0; i < 3000; i++) /* what is free is used again */
		TRY(reef_map_put(scene.map, &i, 4, "x", 1, 0, NULL));
	WANT_RC(has(scene.tree, "b", ""), 0);
	TRY(put(scene.tree, "b", "2"));
	WANT_RC(has(scene.tree, "b", "2"), 1);
	close_scene(&scene);
	reef_map_value_free(&value);
	return 0;
}

static void txn_ghost_of_a_tree_stays_its_slots(void **state)
{
	(void)state;
	assert_int_equal(run(1, ghosts), 0);
}

/* --- patience --- */

/* Whoever has all patience in the world does not lose it by what others have
 * lost; it waits for as long as anybody may. */
static void txn_of_much_patience_waits(void **state)
{
	static const uint64_t much[] = {UINT64_C(1) << 40, UINT64_C(1) << 54,
					UINT64_C(1) << 63, UINT64_MAX};
	struct intent intent = {0};

	(void)state;
	for (uint32_t i = 0; i < sizeof(much) / sizeof(much[0]); i++)
		for (uint16_t attempts = 0; attempts < 70; attempts++) {
			struct intent_wait wait = {.patience_ns = much[i]};

			intent.line.attempts = attempts;
			assert_false(intent_is_due(&wait, 1, &intent));
		}
}

/* --- words and prints --- */

/* A key is held and let go so often that its tag comes round. */
static int comes_round(struct member *member)
{
	struct reef_map_value value = {0};
	struct reef_txn *txn;
	struct scene scene;
	char key[16];

	TRY(open_scene(member, &scene));
	for (uint32_t i = 0; i < 50; i++) { /* so that it is in a record */
		snprintf(key, sizeof(key), "key %u", i);
		TRY(put(scene.tree, key, key));
	}
	for (uint32_t i = 0; i < 700; i++) {
		TRY(reef_txn_begin(scene.space, NULL, &txn));
		TRY(reef_txn_tree_take(txn, scene.tree, "key 1", 5, &value));
		if (i % 2)
			reef_txn_abort(txn);
		else
			TRY(reef_txn_commit(txn));
		reef_txn_close(txn);
	}
	WANT_RC(has(scene.tree, "key 1", "key 1"), 1);
	reef_map_value_free(&value);
	close_scene(&scene);
	return 0;
}

static void txn_word_of_a_tree_does_not_return(void **state)
{
	(void)state;
	assert_int_equal(run(1, comes_round), 0);
}

/* Two keys with one print, of which one is there. */
static int collide(struct member *member)
{
	struct reef_map_value value = {0};
	struct reef_txn *txn;
	struct scene scene;
	char key[16], other[16];
	uint32_t i = 1;
	int rc;

	TRY(open_scene(member, &scene));
	snprintf(key, sizeof(key), "key 0");
	do
		snprintf(other, sizeof(other), "key %u", i++);
	while (tree_print(reef_hash_quick(key, strlen(key), tree_seed)) !=
	       tree_print(reef_hash_quick(other, strlen(other), tree_seed)));
	TRY(put(scene.tree, key, "1"));
	for (uint32_t attempt = 0; attempt < 3; attempt++) {
		TRY(reef_txn_begin(scene.space, NULL, &txn));
		rc = reef_txn_tree_get(txn, scene.tree, other, strlen(other),
				       &value);
		reef_txn_close(txn);
		/* It may lose once, by the wrong slot. */
		WANT(rc == -ENOENT || (rc == -ECANCELED && !attempt));
	}
	TRY(reef_txn_begin(scene.space, &reader, &txn));
	WANT_RC(reef_txn_tree_get(txn, scene.tree, other, strlen(other),
				  &value),
		-ENOENT);
	reef_txn_close(txn);
	WANT_RC(has(scene.tree, key, "1"), 1);
	reef_map_value_free(&value);
	close_scene(&scene);
	return 0;
}

static void txn_keys_of_one_print_are_told_apart(void **state)
{
	(void)state;
	assert_int_equal(run(1, collide), 0);
}

/* Runs that fail leave what they had open. */
#if !SANITIZED
static void txn_odd_mutants_are_found(void **state)
{
	static const struct {
		enum reef_mutant mutant;
		int (*script)(struct member *member);
	} all[] = {
		{REEF_MUTANT_TXN_NO_PHANTOM, scans},
		{REEF_MUTANT_TXN_IS_LIVE_PENDING, judged_in_trees},
		{REEF_MUTANT_TXN_IS_LIVE_PENDING, judged_in_maps},
		{REEF_MUTANT_TXN_RESOLVE_STALE, stale},
		{REEF_MUTANT_TXN_LATE_LIVE, late},
		{REEF_MUTANT_TXN_REUSE_DOUBT, doubted},
		{REEF_MUTANT_TXN_TAG_ROUND, comes_round},
		{REEF_MUTANT_TXN_GHOST_FREED, ghosts},
		{REEF_MUTANT_TXN_GUESS_BLIND, collide},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		reef_mutate(all[i].mutant);
		if (!run(1, all[i].script))
			fail_msg("mutant %zu was not found", i);
	}
	reef_mutate(REEF_MUTANT_NONE);
}
#endif

/* --- room that is used again --- */

#define VALUES 20 /* more than a transaction has room for in itself */

/* Put values that fit into the transaction, and that do not, in turn. */
static int put_in_turn(struct reef_txn *txn, struct reef_map *map, char letter)
{
	char value[TXN_SHORT + 2];

	memset(value, letter, sizeof(value));
	for (char key = 0; key < VALUES; key++)
		for (size_t turn = 0; turn < 4; turn++)
			TRY(reef_txn_put(txn, map, &key, 1, value,
					 turn % 2 ? TXN_SHORT + 1
						  : TXN_SHORT - (size_t)key,
					 0));
	/* The last one is short again for every other key. */
	for (char key = 0; key < VALUES; key += 2)
		TRY(reef_txn_put(txn, map, &key, 1, value, TXN_SHORT, 0));
	return 0;
}

static int values_script(struct member *member)
{
	struct reef_map_value found = {0};
	struct scene scene;
	struct reef_txn *txn;

	TRY(open_scene(member, &scene));
	/* The second one has what the first one left. */
	for (char letter = 'a'; letter <= 'b'; letter++) {
		TRY(reef_txn_begin(scene.space, NULL, &txn));
		TRY(put_in_turn(txn, scene.map, letter));
		TRY(reef_txn_commit(txn));
		reef_txn_close(txn);
		for (char key = 0; key < VALUES; key++) {
			const char *bytes;
			size_t size = key % 2 ? TXN_SHORT + 1 : TXN_SHORT;

			TRY(reef_map_get(scene.map, &key, 1, &found));
			bytes = found.bytes;
			WANT(found.size == size && bytes[0] == letter &&
			     bytes[size - 1] == letter);
		}
	}
	reef_map_value_free(&found);
	close_scene(&scene);
	return 0;
}

static void txn_values_short_and_long_are_put_in_turn(void **state)
{
	(void)state;
	assert_int_equal(run(5, values_script), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(txn_scan_is_of_one_moment),
		cmocka_unit_test(txn_run_of_who_reads_never_changes),
		cmocka_unit_test(txn_in_a_full_pool_changes_nothing),
		cmocka_unit_test(txn_in_a_full_pool_deletes),
		cmocka_unit_test(txn_in_a_full_pool_deletes_many),
		cmocka_unit_test(txn_in_a_full_pool_gives_back_what_is_its),
		cmocka_unit_test(txn_in_a_tight_pool_replaces),
		cmocka_unit_test(txn_of_two_fibers_is_busy),
		cmocka_unit_test(txn_entries_are_live_while_they_are_held),
		cmocka_unit_test(txn_leaves_alone_what_is_where_its_slot_was),
		cmocka_unit_test(txn_that_is_late_writes_to_no_others_memory),
		cmocka_unit_test(txn_block_stays_while_a_take_is_in_doubt),
		cmocka_unit_test(txn_ghost_of_a_tree_stays_its_slots),
		cmocka_unit_test(txn_of_much_patience_waits),
		cmocka_unit_test(txn_word_of_a_tree_does_not_return),
		cmocka_unit_test(txn_keys_of_one_print_are_told_apart),
		cmocka_unit_test(txn_values_short_and_long_are_put_in_turn),
#if !SANITIZED
		cmocka_unit_test(txn_odd_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
