/* test_txn.c - transactions, in simulation: what each call answers, who is in
 * whose way, what is held afterwards, and what it costs; over maps, and over
 * trees. */
#include "fixture/pool_world.h"
#include "kv/seed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "txn/internal.h"

#include <reef/txn.h>

/* The map is a tree: the calls on keys are the same. */
static bool over_trees;

static struct reef_tree *tree_of(struct reef_map *map)
{
	return (struct reef_tree *)map;
}

static int open_again(struct reef_space *space, struct reef_map **map)
{
	struct reef_tree *tree;

	if (!over_trees)
		return reef_map_open(space, "m", NULL, map);
	TRY(reef_tree_open(space, "m", NULL, &tree));
	*map = map_hold_of_tree(tree);
	return 0;
}

static int open_map(struct member *member, struct reef_space **space,
		    struct reef_map **map)
{
	TRY(member_space(member, space));
	return open_again(*space, map);
}

static int get(struct reef_map *map, const void *key, size_t size,
	       struct reef_map_value *value)
{
	return over_trees ? reef_tree_get(tree_of(map), key, size, value)
			  : reef_map_get(map, key, size, value);
}

static int count_keys(struct reef_map *map, uint64_t *count)
{
	return over_trees ? reef_tree_count(tree_of(map), NULL, count)
			  : reef_map_count(map, count);
}

static int clear(struct reef_map *map)
{
	return over_trees ? reef_tree_delete_range(tree_of(map), NULL, NULL)
			  : reef_map_clear(map);
}

static int put(struct reef_map *map, const char *key, const char *value)
{
	return reef_map_put(map, key, strlen(key), value, strlen(value), 0,
			    NULL);
}

static int compare(int rc, struct reef_map_value *found, const char *value)
{
	if (!rc)
		rc = found->size == strlen(value) &&
				     !memcmp(found->bytes, value, found->size)
			     ? 1
			     : -EXDEV;
	reef_map_value_free(found);
	return rc == -ENOENT ? 0 : rc;
}

/* 1: it has that value.  0: it is not there. */
static int has(struct reef_map *map, const char *key, const char *value)
{
	struct reef_map_value found = {0};
	int rc = get(map, key, strlen(key), &found);

	return compare(rc, &found, value);
}

static int txn_has(struct reef_txn *txn, struct reef_map *map, const char *key,
		   const char *value)
{
	struct reef_map_value found = {0};
	int rc = reef_txn_get(txn, map, key, strlen(key), &found);

	return compare(rc, &found, value);
}

static int txn_put(struct reef_txn *txn, struct reef_map *map, const char *key,
		   const char *value)
{
	return reef_txn_put(txn, map, key, strlen(key), value, strlen(value),
			    0);
}

static void run(uint64_t seed, int (*work)(struct member *member))
{
	struct pool pool = {0};

	pool_start(&pool, seed);
	pool_add(&pool, work);
	pool_finish(&pool);
}

/* --- every call --- */

static int plain_calls(struct member *member)
{
	struct reef_space *space;
	struct reef_map *map, *other;
	struct reef_txn *txn;
	uint64_t count;

	TRY(open_map(member, &space, &map));
	TRY(reef_map_open(space, "n", NULL, &other));
	TRY(put(map, "a", "1"));
	TRY(put(map, "b", "2"));
	TRY(reef_txn_begin(space, NULL, &txn));
	WANT_RC(txn_has(txn, map, "a", "1"), 1);
	WANT_RC(txn_has(txn, map, "z", ""), 0);
	TRY(txn_put(txn, map, "a", "10"));
	WANT_RC(txn_has(txn, map, "a", "10"), 1);
	TRY(reef_txn_delete(txn, map, "b", 1));
	WANT_RC(txn_has(txn, map, "b", ""), 0);
	WANT_RC(reef_txn_delete(txn, map, "b", 1), -ENOENT);
	WANT_RC(reef_txn_delete(txn, map, "y", 1), -ENOENT);
	WANT_RC(reef_txn_insert(txn, map, "a", 1, "x", 1, 0), -EEXIST);
	TRY(reef_txn_insert(txn, other, "c", 1, "3", 1, 0));
	TRY(txn_put(txn, other, "d", "4"));
	TRY(reef_txn_check(txn));
	/* Nothing has happened yet, for anybody. */
	WANT_RC(has(map, "a", "1"), 1);
	WANT_RC(has(map, "b", "2"), 1);
	WANT_RC(has(other, "c", ""), 0);
	TRY(reef_txn_commit(txn));
	WANT_RC(reef_txn_commit(txn), -EINVAL);
	WANT_RC(txn_has(txn, map, "a", ""), -EINVAL);
	reef_txn_close(txn);
	WANT_RC(has(map, "a", "10"), 1);
	WANT_RC(has(map, "b", ""), 0);
	WANT_RC(has(other, "c", "3"), 1);
	WANT_RC(has(other, "d", "4"), 1);
	/* Keys that were only looked for left nothing behind. */
	TRY(count_keys(map, &count));
	WANT(count == 1);
	TRY(put(map, "a", "11"));
	WANT_RC(has(map, "a", "11"), 1);
	TRY(reef_map_insert(map, "z", 1, "26", 2, 0, NULL));
	reef_map_close(other);
	reef_map_close(map);
	return 0;
}

static void txn_calls_answer_as_they_say(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= POOL_SEEDS; seed++)
		run(seed, plain_calls);
}

static int abort_calls(struct member *member)
{
	struct reef_space *space;
	struct reef_map *map;
	struct reef_txn *txn;
	uint64_t count;

	TRY(open_map(member, &space, &map));
	TRY(put(map, "a", "1"));
	TRY(reef_txn_begin(space, NULL, &txn));
	WANT_RC(txn_has(txn, map, "a", "1"), 1);
	WANT_RC(txn_has(txn, map, "z", ""), 0);
	TRY(txn_put(txn, map, "a", "2"));
	reef_txn_abort(txn);
	WANT_RC(txn_put(txn, map, "a", "2"), -EINVAL);
	reef_txn_close(txn);
	reef_txn_close(NULL);
	WANT_RC(has(map, "a", "1"), 1);
	WANT_RC(has(map, "z", ""), 0);
	TRY(count_keys(map, &count));
	WANT(count == 1);
	TRY(put(map, "a", "3"));
	reef_map_close(map);
	return 0;
}

static void txn_aborted_changes_nothing(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= POOL_SEEDS; seed++)
		run(seed, abort_calls);
}

/* A plain put is in the way: the transaction has lost, and says so. */
static int plain_wins(struct member *member)
{
	struct reef_space *space;
	struct reef_map *map;
	struct reef_txn *txn;

	TRY(open_map(member, &space, &map));
	TRY(put(map, "a", "1"));
	TRY(put(map, "b", "1"));
	TRY(reef_txn_begin(space, NULL, &txn));
	WANT_RC(txn_has(txn, map, "a", "1"), 1);
	WANT_RC(txn_has(txn, map, "b", "1"), 1);
	TRY(txn_put(txn, map, "b", "2"));
	TRY(put(map, "a", "3"));
	WANT_RC(reef_txn_commit(txn), -ECANCELED);
	WANT_RC(reef_txn_check(txn), -ECANCELED);
	reef_txn_close(txn);
	WANT_RC(has(map, "a", "3"), 1);
	WANT_RC(has(map, "b", "1"), 1);
	/* Many plain calls meet what it left, too. */
	TRY(reef_map_delete(map, "b", 1, 0));
	TRY(put(map, "b", "4"));
	TRY(reef_txn_begin(space, NULL, &txn));
	WANT_RC(txn_has(txn, map, "b", "4"), 1);
	TRY(clear(map));
	WANT_RC(reef_txn_check(txn), -ECANCELED);
	reef_txn_close(txn);
	WANT_RC(has(map, "b", ""), 0);
	reef_map_close(map);
	return 0;
}

static void txn_in_the_way_of_a_put_loses(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= POOL_SEEDS; seed++)
		run(seed, plain_wins);
}

/* --- READ_ONLY --- */

static int read_only(struct member *member)
{
	const struct reef_txn_options options = {.flags = REEF_TXN_READ_ONLY};
	struct reef_space *space;
	struct reef_map *map;
	struct reef_txn *txn, *writer;

	TRY(open_map(member, &space, &map));
	TRY(put(map, "a", "1"));
	TRY(put(map, "b", "1"));
	TRY(reef_txn_begin(space, &options, &txn));
	WANT_RC(txn_put(txn, map, "a", "2"), -EINVAL);
	WANT_RC(txn_has(txn, map, "a", "1"), 1);
	WANT_RC(txn_has(txn, map, "z", ""), 0);
	WANT_RC(txn_has(txn, map, "b", "1"), 1);
	TRY(reef_txn_commit(txn));
	reef_txn_close(txn);
	/* A change of a key that was read, and one of a key that was not there.
	 */
	for (int i = 0; i < 2; i++) {
		TRY(reef_txn_begin(space, &options, &txn));
		WANT_RC(txn_has(txn, map, "a", i ? "2" : "1"), 1);
		WANT_RC(txn_has(txn, map, "z", ""), 0);
		TRY(i ? put(map, "z", "26") : put(map, "a", "2"));
		if (i)
			TRY(reef_map_delete(map, "z", 1, 0));
		WANT_RC(reef_txn_commit(txn), -ECANCELED);
		reef_txn_close(txn);
	}
	/* Under a pending transaction, which is committed or not. */
	for (int i = 0; i < 2; i++) {
		TRY(reef_txn_begin(space, NULL, &writer));
		TRY(txn_put(writer, map, "b", "2"));
		WANT_RC(txn_has(writer, map, "a", "2"), 1);
		TRY(reef_txn_begin(space, &options, &txn));
		WANT_RC(txn_has(txn, map, "a", "2"), 1);
		WANT_RC(txn_has(txn, map, "b", i ? "2" : "1"), 1);
		if (!i)
			TRY(reef_txn_commit(writer));
		WANT_RC(reef_txn_commit(txn), i ? 0 : -ECANCELED);
		reef_txn_close(txn);
		reef_txn_close(writer);
	}
	reef_map_close(map);
	return 0;
}

static void txn_read_only_sees_one_moment(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= POOL_SEEDS; seed++)
		run(seed, read_only);
}

/* --- bad input --- */

struct said {
	int rc;
	uint32_t times;
};

static int say(struct reef_txn *txn, void *context)
{
	struct said *said = context;

	(void)txn;
	said->times++;
	return said->rc;
}

/* Whatever a body says ends it, but for what says that it has lost. */
static int bodies_say(struct reef_space *space)
{
	static const int all[] = {-EAGAIN, -EBUSY, -EINVAL, -EPIPE, 1, 7};
	struct said said;

	for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		said = (struct said){.rc = all[i]};
		WANT_RC(reef_txn_run(space, say, &said, NULL), all[i]);
		WANT(said.times == 1);
	}
	said = (struct said){.rc = -ECANCELED};
	WANT_RC(reef_txn_run(space, say, &said, NULL), -ECANCELED);
	WANT(said.times == 64);
	return 0;
}

static int bad_input(struct member *member)
{
	const struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	const struct reef_txn_options unknown = {.flags = 64};
	const struct reef_map_options small = {.key_max = 8, .value_max = 8};
	struct reef_txn_item neither = {.key = "a", .key_size = 1};
	struct reef_space *space, *elsewhere;
	struct reef_map *map, *far, *narrow;
	struct reef_txn *txn;
	char key[16], *large = calloc(1, 60u << 20);
	uint32_t i;
	int rc;

	WANT(large);
	TRY(open_map(member, &space, &map));
	TRY(reef_space_open(member->reef, "elsewhere", &make, &elsewhere));
	TRY(reef_map_open(elsewhere, "m", NULL, &far));
	TRY(reef_map_open(space, "narrow", &small, &narrow));
	WANT_RC(reef_txn_begin(space, &unknown, &txn), -EINVAL);
	TRY(put(map, "a", "1"));
	TRY(reef_txn_begin(space, NULL, &txn));
	WANT_RC(txn_has(txn, map, "a", "1"), 1);
	WANT_RC(txn_put(txn, far, "a", "2"), -EXDEV);
	WANT_RC(txn_has(txn, far, "a", "2"), -EXDEV);
	WANT_RC(txn_put(txn, narrow, "123456789", "2"), -EINVAL);
	WANT_RC(txn_put(txn, narrow, "1", "123456789"), -EINVAL);
	WANT_RC(reef_txn_take_many(txn, &neither, 1), -EINVAL);
	TRY(bodies_say(space));
	/* None of these did any harm. */
	TRY(reef_txn_check(txn));
	for (i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "large %u", i);
		TRY(reef_txn_put(txn, map, key, strlen(key), large, 60u << 20,
				 0));
	}
	WANT_RC(reef_txn_put(txn, map, "more", 4, large, 60u << 20, 0), -E2BIG);
	WANT_RC(reef_txn_check(txn), -ECANCELED);
	TRY(put(map, "a", "2"));
	reef_txn_close(txn);
	TRY(reef_txn_begin(space, NULL, &txn));
	for (i = 0, rc = 0; i < 70000 && !rc; i++) {
		snprintf(key, sizeof(key), "%u", i);
		rc = txn_put(txn, map, key, "x");
	}
	WANT_RC(rc, -E2BIG);
	WANT(i == 65537);
	reef_txn_close(txn);
	WANT_RC(has(map, "a", "2"), 1);
	free(large);
	reef_map_close(narrow);
	reef_map_close(far);
	reef_map_close(map);
	return 0;
}

static void txn_bad_input_is_refused(void **state)
{
	(void)state;
	run(1, bad_input);
}

/* Many keys: further blocks, and splits of subtables in which it holds keys. */
static int add_many(struct reef_txn *txn, void *context)
{
	char key[16];
	int rc = 0;

	for (uint32_t i = 0; i < 700 && !rc; i++) {
		snprintf(key, sizeof(key), "key %u", i);
		rc = txn_put(txn, context, key, key);
	}
	return rc;
}

static int take_one_by_one(struct reef_txn *txn, void *context)
{
	char key[16];
	int rc = 0;

	for (uint32_t i = 0; i < 700 && rc >= 0; i++) {
		snprintf(key, sizeof(key), "key %u", i);
		rc = txn_has(txn, context, key, key);
		if (!rc)
			rc = -EXDEV;
		if (rc == 1 && i % 3 == 0)
			rc = reef_txn_delete(txn, context, key, strlen(key));
	}
	return rc < 0 ? rc : 0;
}

static int many_keys(struct member *member)
{
	struct reef_space *space;
	struct reef_map *map;
	uint64_t count;

	TRY(open_map(member, &space, &map));
	TRY(reef_txn_run(space, add_many, map, NULL));
	TRY(count_keys(map, &count));
	WANT(count == 700);
	TRY(reef_txn_run(space, take_one_by_one, map, NULL));
	TRY(count_keys(map, &count));
	WANT(count == 466);
	reef_map_close(map);
	return 0;
}

static void txn_of_many_keys_splits_and_commits(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 2; seed++)
		run(seed, many_keys);
}

/* --- expiry and limits --- */

static int expiring(struct member *member)
{
	struct reef_space *space;
	struct reef_map *map;
	struct reef_txn *txn;
	uint64_t now_ms, count;

	TRY(open_map(member, &space, &map));
	TRY(reef_map_now(map, &now_ms));
	TRY(reef_map_put(map, "a", 1, "1", 1, now_ms + 20, NULL));
	TRY(reef_txn_begin(space, NULL, &txn));
	WANT_RC(txn_has(txn, map, "a", "1"), 1);
	TRY(reef_txn_put(txn, map, "b", 1, "2", 1, now_ms + 40));
	TRY(reef_txn_put(txn, map, "c", 1, "3", 1, now_ms - 1));
	TRY(reef_txn_commit(txn));
	reef_txn_close(txn);
	WANT_RC(has(map, "b", "2"), 1);
	WANT_RC(has(map, "c", ""), 0);
	TRY(reef_sleep(30 * MILLISECOND));
	/* A key that has expired is not there, and can be inserted. */
	TRY(reef_txn_begin(space, NULL, &txn));
	TRY(reef_txn_insert(txn, map, "a", 1, "4", 1, 0));
	TRY(reef_txn_commit(txn));
	reef_txn_close(txn);
	WANT_RC(has(map, "a", "4"), 1);
	TRY(reef_sleep(30 * MILLISECOND));
	/* What was only looked at is gone after the commit. */
	TRY(reef_txn_begin(space, NULL, &txn));
	WANT_RC(txn_has(txn, map, "b", ""), 0);
	TRY(reef_txn_commit(txn));
	reef_txn_close(txn);
	TRY(count_keys(map, &count));
	WANT(count == 1);
	reef_map_close(map);
	return 0;
}

static void txn_meets_keys_that_expire(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= POOL_SEEDS; seed++)
		run(seed, expiring);
}

static int limited(struct member *member)
{
	const struct reef_map_options options = {.size_max = 1024};
	struct reef_space *space;
	struct reef_map *map, *other;
	struct reef_txn *txn;
	char value[600] = {0};
	uint64_t count;

	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "limited", &options, &map));
	TRY(reef_map_open(space, "other", NULL, &other));
	TRY(reef_map_put(map, "a", 1, value, sizeof(value), 0, NULL));
	TRY(reef_txn_begin(space, NULL, &txn));
	TRY(reef_txn_put(txn, map, "b", 1, value, sizeof(value), 0));
	WANT_RC(reef_txn_commit(txn), -ENOSPC);
	reef_txn_close(txn);
	TRY(count_keys(map, &count));
	WANT(count == 1);
	/* What goes makes room for what comes. */
	TRY(reef_txn_begin(space, NULL, &txn));
	TRY(reef_txn_delete(txn, map, "a", 1));
	TRY(reef_txn_put(txn, map, "b", 1, value, sizeof(value), 0));
	TRY(reef_txn_commit(txn));
	reef_txn_close(txn);
	TRY(count_keys(map, &count));
	WANT(count == 1);
	/* Also if another map's key is in between. */
	TRY(reef_txn_begin(space, NULL, &txn));
	TRY(reef_txn_delete(txn, map, "b", 1));
	TRY(reef_txn_put(txn, other, "c", 1, value, sizeof(value), 0));
	TRY(reef_txn_put(txn, map, "c", 1, value, sizeof(value), 0));
	TRY(reef_txn_commit(txn));
	reef_txn_close(txn);
	reef_map_close(other);
	reef_map_close(map);
	return 0;
}

static void txn_keeps_the_limits_of_maps(void **state)
{
	(void)state;
	run(1, limited);
}

/* --- entries that are not live, and ghosts --- */

/* Warm gets of a key: 1 round trip, unless its entry is not live. */
static int is_slow(struct member *member, struct reef_map *map, const char *key)
{
	struct reef_map_value value = {0};
	struct reef_counts before, cost;
	uint64_t best = UINT64_MAX;

	for (uint32_t i = 0; i < 5; i++) {
		before = reef_count_read(&member->count);
		TRY(reef_map_get(map, key, strlen(key), &value));
		cost = reef_count_read(&member->count);
		cost = reef_counts_between(&before, &cost);
		if (cost.round_trips < best)
			best = cost.round_trips;
	}
	reef_map_value_free(&value);
	return best > 1;
}

/* An abort after `live` was zeroed: as if another had decided it then. */
static int aborts_late(struct member *member)
{
	static const uint64_t zero;
	struct reef_space *space;
	struct reef_map *map, *other;
	struct reef_txn *txn;
	struct item *item;

	TRY(open_map(member, &space, &map));
	TRY(put(map, "a", "1"));
	TRY(reef_map_open(space, "m", NULL, &other));
	WANT_RC(has(other, "a", "1"), 1); /* its place is remembered here */
	TRY(reef_txn_begin(space, NULL, &txn));
	WANT_RC(txn_has(txn, map, "a", "1"), 1);
	item = txn->items[0];
	item->hold->index->remove(item->hold);
	reef_enter(member->reef);
	TRY(reef_write(member->reef,
		       txn_line_at(txn, item) +
			       offsetof(struct intent_line, next),
		       &item->hold->next, 8));
	if (member->pool->note[0])
		TRY(reef_write(member->reef,
			       item->hold->index->dies(item->hold), &zero, 8));
	reef_leave(member->reef);
	reef_txn_abort(txn);
	reef_txn_close(txn);
	WANT_RC(is_slow(member, map, "a"), 0);
	/* Nobody remembers the entry that was copied for longer than it is
	 * there. */
	TRY(put(map, "a", "2"));
	WANT_RC(has(other, "a", "2"), 1);
	reef_map_close(other);
	reef_map_close(map);
	return 0;
}

static int run_late(bool is_zeroed)
{
	struct pool pool = {.extent_size = 16 * MIB, .note = {is_zeroed}};

	pool_start(&pool, 3);
	pool_add(&pool, aborts_late);
	return pool_end(&pool);
}

static void txn_aborted_late_leaves_entries_live(void **state)
{
	(void)state;
	assert_int_equal(run_late(true), 0);
	assert_int_equal(run_late(false), 0);
}

static int read_of_a_ghost(struct member *member)
{
	struct reef_space *space;
	struct reef_map *map;
	struct reef_txn *txn;

	TRY(open_map(member, &space, &map));
	TRY(reef_txn_begin(space, NULL, &txn));
	TRY(reef_txn_insert(txn, map, "a", 1, "1", 1, 0));
	for (uint32_t i = 0; i < 20; i++)
		WANT_RC(has(map, "a", ""), 0);
	TRY(reef_txn_commit(txn));
	reef_txn_close(txn);
	WANT_RC(has(map, "a", "1"), 1);
	reef_map_close(map);
	return 0;
}

static int run_ghost(void)
{
	struct pool pool = {0};

	pool_start(&pool, 5);
	pool_add(&pool, read_of_a_ghost);
	return pool_end(&pool);
}

static void txn_ghost_is_read_past(void **state)
{
	(void)state;
	assert_int_equal(run_ghost(), 0);
}

/* A writer commits after a READ_ONLY one has read its key, and stands still
 * before it lets the key go: so the slot is what it was. */
static int commits_between(struct member *member)
{
	const struct reef_txn_options options = {.flags = REEF_TXN_READ_ONLY};
	struct reef_space *space;
	struct reef_map *map, *other;
	struct reef_txn *txn, *writer;
	struct item *item;

	TRY(open_map(member, &space, &map));
	TRY(put(map, "a", "1"));
	TRY(open_again(space, &other));
	TRY(reef_txn_begin(space, NULL, &writer));
	WANT_RC(txn_has(writer, map, "a", "1"), 1);
	TRY(reef_txn_begin(space, &options, &txn));
	WANT_RC(txn_has(txn, other, "a", "1"), 1);
	item = writer->items[0];
	item->hold->index->remove(item->hold);
	TRY(reef_write(member->reef,
		       txn_line_at(writer, item) +
			       offsetof(struct intent_line, next),
		       &item->hold->next, 8));
	TRY(reef_cas(member->reef, txn_status_at(writer), INTENT_PENDING,
		     INTENT_COMMITTED, NULL));
	WANT_RC(reef_txn_commit(txn), -ECANCELED);
	reef_txn_close(txn);
	WANT_RC(has(other, "a", ""), 0);
	reef_txn_close(writer);
	WANT_RC(has(other, "a", ""), 0);
	reef_map_close(other);
	reef_map_close(map);
	return 0;
}

static int run_between(void)
{
	struct pool pool = {0};

	pool_start(&pool, 9);
	pool_add(&pool, commits_between);
	return pool_end(&pool);
}

static void txn_read_only_looks_at_the_status_again(void **state)
{
	(void)state;
	assert_int_equal(run_between(), 0);
}

/* Runs that fail leave what they had open. */
#if !SANITIZED
static void txn_mutants_of_calls_are_found(void **state)
{
	(void)state;
	reef_mutate(REEF_MUTANT_TXN_ABORT_BARE);
	assert_int_not_equal(run_late(true), 0);
	reef_mutate(REEF_MUTANT_TXN_COPY_LIVE);
	assert_int_not_equal(run_late(false), 0);
	reef_mutate(REEF_MUTANT_TXN_GHOST_REMOVED);
	assert_int_not_equal(run_ghost(), 0);
	reef_mutate(REEF_MUTANT_TXN_PENDING_OLD);
	assert_int_not_equal(run_between(), 0);
	reef_mutate(REEF_MUTANT_NONE);
}
#endif

/* --- costs --- */

struct costs {
	struct reef_space *space;
	struct reef_map *map;
	uint32_t keys, first;
};

static int64_t number_of(const struct reef_map_value *value)
{
	int64_t number = 0;

	memcpy(&number, value->bytes, value->size < 8 ? value->size : 8);
	return number;
}

static int change_keys(struct reef_txn *txn, void *context)
{
	struct costs *costs = context;
	struct reef_txn_item items[8] = {0};
	uint64_t keys[8];
	int64_t number;
	uint32_t i;
	int rc;

	for (i = 0; i < costs->keys; i++) {
		keys[i] = costs->first + i;
		items[i].map = costs->map;
		items[i].key = &keys[i];
		items[i].key_size = 8;
	}
	rc = reef_txn_take_many(txn, items, costs->keys);
	for (i = 0; i < costs->keys && !rc; i++) {
		number = number_of(&items[i].value) + 1;
		rc = reef_txn_put(txn, costs->map, &keys[i], 8, &number, 8, 0);
	}
	for (i = 0; i < costs->keys; i++)
		reef_map_value_free(&items[i].value);
	return rc;
}

static int read_keys(struct reef_txn *txn, void *context)
{
	struct costs *costs = context;
	struct reef_map_value value = {0};
	uint64_t key;
	int rc = 0;

	for (uint32_t i = 0; i < costs->keys && !rc; i++) {
		key = costs->first + i;
		rc = reef_txn_get(txn, costs->map, &key, 8, &value);
	}
	reef_map_value_free(&value);
	return rc;
}

static int read_many(struct reef_txn *txn, void *context)
{
	struct costs *costs = context;
	struct reef_txn_item items[8] = {0};
	uint64_t keys[8];
	int rc;

	for (uint32_t i = 0; i < costs->keys; i++) {
		keys[i] = costs->first + i;
		items[i].map = costs->map;
		items[i].key = &keys[i];
		items[i].key_size = 8;
	}
	rc = reef_txn_take_many(txn, items, costs->keys);
	for (uint32_t i = 0; i < costs->keys; i++)
		reef_map_value_free(&items[i].value);
	return rc;
}

static int put_keys(struct reef_txn *txn, void *context)
{
	struct costs *costs = context;
	uint64_t key;
	int rc = 0;

	for (uint32_t i = 0; i < costs->keys && !rc; i++) {
		key = costs->first + i;
		rc = reef_txn_put(txn, costs->map, &key, 8, &key, 8, 0);
	}
	return rc;
}

/* What the cheapest of some costs. */
static struct reef_counts cheapest(struct member *member, struct costs *costs,
				   const char *what,
				   int (*body)(struct reef_txn *, void *),
				   const struct reef_txn_options *options)
{
	struct reef_counts best = {.round_trips = UINT64_MAX}, before, cost;

	for (uint32_t i = 0; i < 9; i++) {
		before = reef_count_read(&member->count);
		if (reef_txn_run(costs->space, body, costs, options))
			return best;
		cost = reef_count_read(&member->count);
		cost = reef_counts_between(&before, &cost);
		if (cost.round_trips < best.round_trips)
			best = cost;
	}
	print_message("%-24s %llu round trips, %llu atomics\n", what,
		      (unsigned long long)best.round_trips,
		      (unsigned long long)(best.cas + best.faa));
	return best;
}

/* Of a tree: the slots are read first, in one round trip; so a change has one
 * more than that of a map whose places are remembered, and as many as that of
 * one whose places are not. */
static int tree_budgets(struct member *member)
{
	const struct reef_txn_options reader = {.flags = REEF_TXN_READ_ONLY};
	struct costs costs = {.keys = 4};
	struct reef_counts cost, before;
	struct reef_map_value value = {0};
	struct reef_map *other;
	struct reef_txn *txn;
	uint64_t key, puts;

	TRY(open_map(member, &costs.space, &costs.map));
	for (key = 0; key < 64; key++)
		TRY(reef_map_put(costs.map, &key, 8, &key, 8, 0, NULL));
	cost = cheapest(member, &costs, "tree: change 4, warm", change_keys,
			NULL);
	WANT(cost.round_trips <= 4); /* of which one is to let go */
	WANT(cost.cas + cost.faa == 2 * 4 + 1);
	before = reef_count_read(&member->count);
	key = 3;
	TRY(reef_map_put(costs.map, &key, 8, &key, 8, 0, NULL));
	cost = reef_count_read(&member->count);
	puts = reef_counts_between(&before, &cost).round_trips;
	cost = cheapest(member, &costs, "tree: put 4, warm", put_keys, NULL);
	print_message("tree: put %llu round trips\n", (unsigned long long)puts);
	WANT(cost.round_trips <= puts + 2); /* one more, and to let go */
	cost = cheapest(member, &costs, "tree: read 4, warm", read_many,
			&reader);
	WANT(cost.round_trips <= 3 && !cost.cas);
	costs.keys = 1;
	costs.first = 50;
	cost = cheapest(member, &costs, "tree: read 1, warm", read_keys,
			&reader);
	WANT(cost.round_trips <= 3 && !cost.cas);
	/* Gets that meet an intent: of a key with a slot, and in a record. */
	TRY(open_again(costs.space, &other));
	for (key = 0; key < 60; key += 5) {
		TRY(get(other, &key, 8, &value));
		TRY(reef_txn_begin(costs.space, NULL, &txn));
		TRY(reef_txn_take(txn, costs.map, &key, 8, &value));
		before = reef_count_read(&member->count);
		TRY(get(other, &key, 8, &value));
		cost = reef_count_read(&member->count);
		cost = reef_counts_between(&before, &cost);
		reef_txn_close(txn);
		WANT(cost.round_trips <= 4);
	}
	reef_map_value_free(&value);
	reef_map_close(costs.map);
	reef_map_close(other);
	return 0;
}

static int budgets(struct member *member)
{
	const struct reef_txn_options reader = {.flags = REEF_TXN_READ_ONLY};
	const struct reef_map_options forgetful = {.remember = 1};
	struct costs costs = {.keys = 4};
	struct reef_counts cost, before;
	struct reef_map_value value = {0};
	struct reef_map *cold;
	struct reef_txn *txn;
	uint64_t key;

	TRY(open_map(member, &costs.space, &costs.map));
	for (key = 0; key < 64; key++)
		TRY(reef_map_put(costs.map, &key, 8, &key, 8, 0, NULL));
	/* Read, change, commit and let go of n keys: 3, and twice n atomics of
	 * which n are to let go. */
	cost = cheapest(member, &costs, "change 4, warm", change_keys, NULL);
	WANT(cost.round_trips == 3);
	WANT(cost.cas + cost.faa == 2 * 4 + 1);
	cost = cheapest(member, &costs, "put 4, warm", put_keys, NULL);
	WANT(cost.round_trips <= 3);
	TRY(reef_map_open(costs.space, "m", &forgetful, &cold));
	reef_map_close(costs.map);
	costs.map = cold;
	cost = cheapest(member, &costs, "put 4, cold", put_keys, NULL);
	WANT(cost.round_trips <= 5); /* a put: 3, and 1; and to let go */
	costs.map = NULL;
	TRY(reef_map_open(costs.space, "m", NULL, &costs.map));
	cost = cheapest(member, &costs, "read 4, warm", read_many, &reader);
	WANT(cost.round_trips == 2 && !cost.cas);
	costs.keys = 1;
	cost = cheapest(member, &costs, "read 1, warm", read_keys, &reader);
	WANT(cost.round_trips == 2 && !cost.cas);
	/* A get that meets an intent. */
	key = 40;
	TRY(reef_txn_begin(costs.space, NULL, &txn));
	TRY(reef_txn_take(txn, costs.map, &key, 8, &value));
	TRY(reef_map_get(cold, "\0\0\0\0\0\0\0\0", 8, &value));
	before = reef_count_read(&member->count);
	TRY(reef_map_get(cold, &key, 8, &value));
	cost = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &cost);
	print_message("get that meets an intent %llu round trips\n",
		      (unsigned long long)cost.round_trips);
	WANT(cost.round_trips <= 4);
	reef_txn_close(txn);
	reef_map_value_free(&value);
	reef_map_close(costs.map);
	reef_map_close(cold);
	return 0;
}

static void txn_keeps_its_budgets(void **state)
{
	struct pool pool = {.extent_size = 16 * MIB};

	(void)state;
	pool_start(&pool, 7);
	pool_add(&pool, over_trees ? tree_budgets : budgets);
	pool_finish(&pool);
}

static int with_trees(void **state)
{
	(void)state;
	over_trees = true;
	return 0;
}

static int with_maps(void **state)
{
	(void)state;
	over_trees = false;
	return 0;
}

#define OVER_TREES(test)                                                       \
	{                                                                      \
		"tree_" #test, test, with_trees, with_maps, NULL               \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(txn_calls_answer_as_they_say),
		cmocka_unit_test(txn_aborted_changes_nothing),
		cmocka_unit_test(txn_in_the_way_of_a_put_loses),
		cmocka_unit_test(txn_read_only_sees_one_moment),
		cmocka_unit_test(txn_bad_input_is_refused),
		cmocka_unit_test(txn_of_many_keys_splits_and_commits),
		cmocka_unit_test(txn_meets_keys_that_expire),
		cmocka_unit_test(txn_keeps_the_limits_of_maps),
		cmocka_unit_test(txn_aborted_late_leaves_entries_live),
		cmocka_unit_test(txn_ghost_is_read_past),
		cmocka_unit_test(txn_read_only_looks_at_the_status_again),
#if !SANITIZED
		cmocka_unit_test(txn_mutants_of_calls_are_found),
#endif
		cmocka_unit_test(txn_keeps_its_budgets),
		OVER_TREES(txn_calls_answer_as_they_say),
		OVER_TREES(txn_aborted_changes_nothing),
		OVER_TREES(txn_in_the_way_of_a_put_loses),
		OVER_TREES(txn_read_only_sees_one_moment),
		OVER_TREES(txn_bad_input_is_refused),
		OVER_TREES(txn_of_many_keys_splits_and_commits),
		OVER_TREES(txn_meets_keys_that_expire),
		OVER_TREES(txn_ghost_is_read_past),
		OVER_TREES(txn_read_only_looks_at_the_status_again),
		OVER_TREES(txn_keeps_its_budgets),
	};

	tree_seed = 7; /* so that no prints collide by chance */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
