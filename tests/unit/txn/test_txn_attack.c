/* test_txn_attack.c - what txn.h promises, tried by those who do not know how
 * it is done: write skew between a map and a tree, a coordinator that stops for
 * a minute, two that are in each other's way for ever, many that die with keys
 * in their hands. */
#include "fixture/pool_world.h"

#include "base/clock.h"
#include "base/mutant.h"
#include "fixture/seeds.h"
#include "kv/seed.h"

#include <reef/txn.h>
#include <stdio.h>
#include <string.h>

struct bank {
	struct reef_space *space;
	struct reef_map *map;
	struct reef_tree *tree;
	uint32_t from;
	int64_t sum;
};

static int open_bank(struct member *member, struct bank *bank)
{
	TRY(member_space(member, &bank->space));
	TRY(reef_map_open(bank->space, "m", NULL, &bank->map));
	return reef_tree_open(bank->space, "t", NULL, &bank->tree);
}

static void close_bank(struct bank *bank)
{
	reef_tree_close(bank->tree);
	reef_map_close(bank->map);
}

/* Until all members have come so far. */
static int meet(struct member *member, uint32_t which, uint32_t count)
{
	member->pool->note[which]++;
	while (member->pool->note[which] < count && !member->pool->over)
		TRY(reef_sleep(MICROSECOND));
	return 0;
}

static int number_of(int rc, struct reef_map_value *value, int64_t *number)
{
	*number = 0;
	if (!rc)
		memcpy(number, value->bytes, sizeof(*number));
	reef_map_value_free(value);
	return rc == -ENOENT ? 0 : rc;
}

static int read_both(struct bank *bank, struct reef_txn *txn, int64_t *a,
		     int64_t *b)
{
	struct reef_map_value value = {0};
	int rc = number_of(reef_txn_get(txn, bank->map, "a", 1, &value), &value,
			   a);

	value = (struct reef_map_value){0};
	*b = 0;
	if (!rc)
		rc = number_of(
			reef_txn_tree_get(txn, bank->tree, "b", 1, &value),
			&value, b);
	return rc;
}

/* --- write skew: a + b <= 1, and each of two sets its own --- */

static int set_one(struct reef_txn *txn, void *context)
{
	const int64_t one = 1;
	struct bank *bank = context;
	int64_t a, b;
	int rc = read_both(bank, txn, &a, &b);

	if (rc || a + b)
		return rc;
	return bank->from
		       ? reef_txn_put(txn, bank->map, "a", 1, &one, 8, 0)
		       : reef_txn_tree_put(txn, bank->tree, "b", 1, &one, 8, 0);
}

static int clear_both(struct reef_txn *txn, void *context)
{
	struct bank *bank = context;
	int rc = reef_txn_delete(txn, bank->map, "a", 1);

	if (!rc || rc == -ENOENT)
		rc = reef_txn_tree_delete(txn, bank->tree, "b", 1);
	return rc == -ENOENT ? 0 : rc;
}

static int sum_both(struct reef_txn *txn, void *context)
{
	struct bank *bank = context;
	int64_t a, b;
	int rc = read_both(bank, txn, &a, &b);

	bank->sum = a + b;
	return rc;
}

static int skew(struct member *member)
{
	const struct reef_txn_options reader = {.flags = REEF_TXN_READ_ONLY};
	struct bank bank = {.from = member->number % 2};

	TRY(open_bank(member, &bank));
	/* All of them at once, again and again. */
	for (uint32_t i = 0; i < 15; i++) {
		if (member->number == 1)
			TRY(reef_txn_run(bank.space, clear_both, &bank, NULL));
		TRY(meet(member, 0, 3 * (2 * i + 1)));
		TRY(reef_txn_run(bank.space, set_one, &bank, NULL));
		TRY(reef_txn_run(bank.space, sum_both, &bank, &reader));
		WANT(bank.sum == 1);
		TRY(meet(member, 0, 3 * (2 * i + 2)));
	}
	close_bank(&bank);
	return 0;
}

static int run_skew(uint64_t seed)
{
	struct pool pool = {0};

	pool_start(&pool, seed);
	for (uint32_t i = 0; i < 3; i++)
		pool_add(&pool, skew);
	return pool_end(&pool);
}

static void txn_has_no_write_skew(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 4 * POOL_SEEDS; seed++)
		assert_int_equal(run_skew(seed), 0);
}

/* Runs that fail leave what they had open. */
#if !SANITIZED
static void txn_skew_would_be_found(void **state)
{
	uint64_t seed = 1;

	(void)state;
	reef_mutate(REEF_MUTANT_TXN_READ_UNTAKEN);
	while (seed < 100 && !run_skew(seed))
		seed++;
	reef_mutate(REEF_MUTANT_NONE);
	assert_true(seed < 100);
}
#endif

/* --- one that stops for a minute with keys in its hands --- */

static int stops(struct member *member)
{
	const int64_t two = 2;
	struct reef_txn *txn;
	struct bank bank = {0};
	int64_t a, b;

	TRY(open_bank(member, &bank));
	TRY(reef_txn_begin(bank.space, NULL, &txn));
	TRY(read_both(&bank, txn, &a, &b));
	TRY(reef_txn_put(txn, bank.map, "a", 1, &two, 8, 0));
	TRY(reef_txn_tree_put(txn, bank.tree, "b", 1, &two, 8, 0));
	TRY(meet(member, 0, 2));
	TRY(reef_sleep(60 * SECOND));
	WANT_RC(reef_txn_commit(txn), -ECANCELED);
	reef_txn_close(txn);
	close_bank(&bank);
	return 0;
}

static int goes_on(struct member *member)
{
	const int64_t one = 1;
	struct reef_map_value value = {0};
	struct bank bank = {0};
	uint64_t from_ns;
	int64_t b;
	char key[16];

	TRY(open_bank(member, &bank));
	TRY(meet(member, 0, 2));
	from_ns = reef_now_ns();
	TRY(number_of(reef_tree_get(bank.tree, "b", 1, &value), &value, &b));
	WANT(!b && reef_now_ns() - from_ns < MILLISECOND);
	TRY(reef_tree_put(bank.tree, "b", 1, &one, 8, 0, NULL));
	TRY(reef_map_put(bank.map, "a", 1, &one, 8, 0, NULL));
	WANT(reef_now_ns() - from_ns < 10 * MILLISECOND);
	/* Meanwhile its leaf is another, many times. */
	for (uint32_t i = 0; i < 500; i++) {
		snprintf(key, sizeof(key), "key %u", i);
		TRY(reef_tree_put(bank.tree, key, strlen(key), key, 4, 0,
				  NULL));
	}
	TRY(reef_sleep(61 * SECOND));
	value = (struct reef_map_value){0};
	TRY(number_of(reef_tree_get(bank.tree, "b", 1, &value), &value, &b));
	WANT(b == 1);
	close_bank(&bank);
	return 0;
}

static void txn_that_stops_for_a_minute_has_lost(void **state)
{
	struct pool pool = {.ttl_ns = 200 * SECOND};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, stops);
	pool_add(&pool, goes_on);
	pool_finish(&pool);
}

/* --- in each other's way: each takes what the other has, in another order ---
 */

static int take_in_order(struct reef_txn *txn, void *context)
{
	struct bank *bank = context;
	struct reef_map_value value = {0};
	int64_t number;
	char key[4];
	int rc = 0;

	for (uint32_t i = 0; i < 4 && !rc; i++) {
		snprintf(key, sizeof(key), "k%u", bank->from ? i : 3 - i);
		rc = number_of(
			reef_txn_tree_take(txn, bank->tree, key, 2, &value),
			&value, &number);
		value = (struct reef_map_value){0};
		number++;
		if (!rc)
			rc = reef_txn_tree_put(txn, bank->tree, key, 2, &number,
					       8, 0);
		if (!rc)
			rc = reef_sleep(100 * MICROSECOND);
	}
	return rc;
}

static int entangled(struct member *member)
{
	struct reef_map_value value = {0};
	struct bank bank = {.from = member->number % 2};
	int64_t number;

	TRY(open_bank(member, &bank));
	/* Nobody loses at all of its attempts. */
	for (uint32_t i = 0; i < 10; i++)
		TRY(reef_txn_run(bank.space, take_in_order, &bank, NULL));
	TRY(meet(member, 1, 3));
	TRY(number_of(reef_tree_get(bank.tree, "k2", 2, &value), &value,
		      &number));
	WANT(number == 30);
	close_bank(&bank);
	return 0;
}

static void txn_in_each_others_way_all_commit(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= POOL_SEEDS; seed++) {
		struct pool pool = {.ttl_ns = 20 * SECOND};

		pool_start(&pool, seed);
		for (uint32_t i = 0; i < 3; i++)
			pool_add(&pool, entangled);
		pool_finish(&pool);
	}
}

/* --- they die, one after the other, with everything in their hands --- */

static int dies(struct member *member)
{
	struct reef_map_value value = {0};
	struct bank bank = {0};
	struct reef_txn *txn;
	char key[16];
	int rc = 0;

	TRY(open_bank(member, &bank));
	TRY(reef_txn_begin(bank.space, NULL, &txn));
	/* One that has lost to another dies as well. */
	for (uint32_t i = 0; i < 12 && (!rc || rc == -ENOENT); i++) {
		snprintf(key, sizeof(key), "key %u", i);
		rc = reef_txn_tree_take(txn, bank.tree, key, strlen(key),
					&value);
		if (!rc || rc == -ENOENT)
			rc = reef_txn_take(txn, bank.map, key, strlen(key),
					   &value);
	}
	WANT(!rc || rc == -ENOENT || rc == -ECANCELED);
	reef_map_value_free(&value);
	reef_sim_host_kill(member->host);
	/* The memory of a host that is dead is this process's. */
	reef_txn_close(txn);
	close_bank(&bank);
	return 0;
}

/* Has one key of two, and is gone; its session is alive for long. */
static int dies_with_one(struct member *member)
{
	struct reef_map_value value = {0};
	struct bank bank = {0};
	struct reef_txn *txn;

	TRY(open_bank(member, &bank));
	TRY(reef_map_put(bank.map, "a", 1, "x", 1, 0, NULL));
	TRY(reef_map_put(bank.map, "b", 1, "x", 1, 0, NULL));
	TRY(reef_txn_begin(bank.space, NULL, &txn));
	TRY(reef_txn_take(txn, bank.map, "b", 1, &value));
	reef_map_value_free(&value);
	member->pool->note[0]++;
	reef_sim_host_kill(member->host);
	reef_txn_close(txn);
	close_bank(&bank);
	return 0;
}

static int take_one_by_one(struct reef_txn *txn, void *context)
{
	struct reef_map_value value = {0};
	struct bank *bank = context;
	int rc = reef_txn_take(txn, bank->map, "a", 1, &value);

	if (!rc)
		rc = reef_txn_take(txn, bank->map, "b", 1, &value);
	reef_map_value_free(&value);
	if (!rc)
		rc = reef_txn_put(txn, bank->map, "a", 1, "y", 1, 0);
	return rc ? rc : reef_txn_put(txn, bank->map, "b", 1, "y", 1, 0);
}

/* Gives way to who is older, but not for longer than its patience in all. */
static int goes_past(struct member *member)
{
	struct bank bank = {0};
	uint64_t began_ns;

	TRY(open_bank(member, &bank));
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(5 * MILLISECOND));
	began_ns = reef_now_ns();
	TRY(reef_txn_run(bank.space, take_one_by_one, &bank, NULL));
	WANT(reef_now_ns() - began_ns < 20 * MILLISECOND);
	close_bank(&bank);
	return 0;
}

static void txn_that_gives_way_goes_past_the_dead(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= POOL_SEEDS; seed++) {
		struct pool pool = {.ttl_ns = 20 * SECOND};

		pool_start(&pool, seed);
		pool_add(&pool, dies_with_one);
		pool_add(&pool, goes_past);
		pool_finish(&pool);
	}
}

static int survives(struct member *member)
{
	struct bank bank = {0};
	uint64_t count;
	char key[16];

	TRY(open_bank(member, &bank));
	for (uint32_t round = 0; round < 40; round++) {
		for (uint32_t i = 0; i < 12; i++) {
			snprintf(key, sizeof(key), "key %u", i);
			TRY(reef_tree_put(bank.tree, key, strlen(key), "y", 1,
					  0, NULL));
		}
		TRY(reef_sleep(TTL / 4));
	}
	TRY(reef_tree_count(bank.tree, NULL, &count));
	WANT(count == 12);
	close_bank(&bank);
	return 0;
}

static void txn_of_many_dead_is_in_nobodys_way(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= POOL_SEEDS; seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		for (uint32_t i = 0; i < 6; i++)
			pool_add(&pool, dies);
		pool_add(&pool, survives);
		pool_finish(&pool);
	}
}

/* --- two that raise the same two numbers, over links that fall --- */

static int raise_both(struct reef_txn *txn, void *context)
{
	struct bank *bank = context;
	int64_t a, b;
	int rc = read_both(bank, txn, &a, &b);

	a++;
	b++;
	if (!rc)
		rc = reef_txn_put(txn, bank->map, "a", 1, &a, 8, 0);
	return rc ? rc : reef_txn_tree_put(txn, bank->tree, "b", 1, &b, 8, 0);
}

static int raise_often(struct member *member)
{
	const struct reef_txn_options reader = {.flags = REEF_TXN_READ_ONLY};
	struct bank bank = {.from = member->number % 2};
	struct reef_txn *txn;
	int64_t a, b;
	int rc;

	TRY(open_bank(member, &bank));
	for (uint32_t i = 0; i < 200; i++) {
		do
			rc = reef_txn_run(bank.space, raise_both, &bank, NULL);
		while (rc == -REEF_EINDOUBT || rc == -ECANCELED);
		WANT(!rc);
		do {
			TRY(reef_txn_begin(bank.space, &reader, &txn));
			rc = read_both(&bank, txn, &a, &b);
			if (!rc)
				rc = reef_txn_commit(txn);
			reef_txn_close(txn);
		} while (rc == -REEF_EINDOUBT || rc == -ECANCELED);
		WANT(!rc && a == b);
	}
	close_bank(&bank);
	return 0;
}

static void txn_raises_both_whatever_falls(void **state)
{
	(void)state;
	pool_run_lossy(60000, raise_often, raise_often);
#if !SANITIZED
	pool_find(REEF_MUTANT_TXN_HEAD_TWICE, 60000, raise_often, raise_often);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(txn_raises_both_whatever_falls),
		cmocka_unit_test(txn_has_no_write_skew),
#if !SANITIZED
		cmocka_unit_test(txn_skew_would_be_found),
#endif
		cmocka_unit_test(txn_that_stops_for_a_minute_has_lost),
		cmocka_unit_test(txn_in_each_others_way_all_commit),
		cmocka_unit_test(txn_of_many_dead_is_in_nobodys_way),
		cmocka_unit_test(txn_that_gives_way_goes_past_the_dead),
	};

	map_set_seed(7); /* so that a seed is a run */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
