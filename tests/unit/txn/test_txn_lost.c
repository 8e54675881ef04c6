/* test_txn_lost.c - a transaction whose status is on a node that is lost, with
 * one copy of the memory: whoever meets one of its keys is told at once, and
 * does not wait; and when its coordinator has let go they are as before. */
#include "fixture/pool_world.h"

#include "kv/internal.h"
#include "kv/seed.h"

#include <errno.h>
#include <reef/txn.h>
#include <stdio.h>
#include <string.h>

#define KEYS 2u /* of a holder, half of them of the tree */
#define HOLDERS 4u
#define SOON (SECOND)
#define MORE 1600u /* keys, by which subtables and leaves become too small */

enum { READY, LOST, LET_GO, SPARED };

struct bank {
	struct reef_space *space;
	struct reef_map *map;
	struct reef_tree *tree;
};

static bool holders_die;       /* instead of going on */
static uint32_t statuses_lost; /* of transactions whose keys were not */
static uint32_t keys_refused;  /* of maps, because of such a transaction */

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

static uint32_t name_of(char name[16], uint32_t holder, uint32_t i)
{
	return (uint32_t)snprintf(name, 16, "%u-%u", holder, i);
}

static int put_key(struct bank *bank, uint32_t holder, uint32_t i)
{
	char key[16];
	uint32_t size = name_of(key, holder, i);

	return i % 2 ? reef_tree_put(bank->tree, key, size, key, size, 0, NULL)
		     : reef_map_put(bank->map, key, size, key, size, 0, NULL);
}

static int get_key(struct bank *bank, uint32_t holder, uint32_t i)
{
	struct reef_map_value value = {0};
	char key[16];
	uint32_t size = name_of(key, holder, i);
	int rc = i % 2 ? reef_tree_get(bank->tree, key, size, &value)
		       : reef_map_get(bank->map, key, size, &value);

	if (!rc && (value.size != size || memcmp(value.bytes, key, size)))
		rc = -EXDEV;
	reef_map_value_free(&value);
	return rc;
}

static int await_note(struct member *member, uint32_t which, uint64_t count)
{
	while (member->pool->note[which] < count && !member->pool->over)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

/* Takes keys, and would put what they are; the node is lost meanwhile. */
static int hold_keys(struct member *member, struct bank *bank,
		     struct reef_txn *txn)
{
	uint32_t holder = member->number;
	struct reef_map_value value = {0};
	char key[16];
	uint32_t size;

	for (uint32_t i = 0; i < KEYS; i++) {
		size = name_of(key, holder, i);
		TRY(i % 2 ? reef_txn_tree_take(txn, bank->tree, key, size,
					       &value)
			  : reef_txn_take(txn, bank->map, key, size, &value));
		TRY(i % 2 ? reef_txn_tree_put(txn, bank->tree, key, size, key,
					      size, 0)
			  : reef_txn_put(txn, bank->map, key, size, key, size,
					 0));
	}
	reef_map_value_free(&value);
	member->pool->note[READY]++;
	return await_note(member, LOST, 1);
}

static int holder(struct member *member)
{
	const struct reef_txn_options options = {.patience_ns = 60 * SECOND};
	struct bank bank = {0};
	struct reef_txn *txn;
	int rc;

	TRY(await_note(member, READY, 1));
	TRY(open_bank(member, &bank));
	TRY(reef_txn_begin(bank.space, &options, &txn));
	TRY(hold_keys(member, &bank, txn));
	if (holders_die)
		reef_sim_host_kill(member->host);
	rc = reef_txn_commit(txn);
	if (holders_die)
		rc = -REEF_ELOST;
	WANT(rc == 0 || rc == -REEF_ELOST || rc == -ECANCELED ||
	     rc == -REEF_EINDOUBT);
	member->pool->note[SPARED] += rc != 0;
	reef_txn_close(txn);
	member->pool->note[LET_GO]++;
	close_bank(&bank);
	return 0;
}

/* 1: all keys of all holders are there.  0: memory of some is lost. */
static int look_at_keys(struct bank *bank, bool puts)
{
	uint64_t began_ns;
	int rc, all = 1;

	for (uint32_t of = 2; of < 2 + HOLDERS; of++)
		for (uint32_t i = 0; i < KEYS; i++) {
			began_ns = reef_now_ns();
			rc = puts ? put_key(bank, of, i) : get_key(bank, of, i);
			WANT(rc == 0 || rc == -REEF_ELOST);
			WANT(reef_now_ns() - began_ns < SOON);
			all &= !rc;
		}
	return all;
}

/* Put new keys beside those whose transactions are lost. Where one of them is
 * in the way of more room a new key is refused; but whatever is there can be
 * read, and in a map changed, as before. */
static int put_more(struct bank *bank)
{
	bool is_there[MORE] = {0};
	int rc;

	for (uint32_t i = 0; i < MORE; i++) {
		rc = put_key(bank, 9, i);
		WANT(rc == 0 || rc == -REEF_ELOST);
		is_there[i] = !rc;
		keys_refused += i % 2 == 0 && rc;
	}
	for (uint32_t i = 0; i < MORE; i++)
		if (is_there[i]) {
			TRY(get_key(bank, 9, i));
			TRY(i % 2 ? 0 : put_key(bank, 9, i));
		}
	return 0;
}

/* The keys are the first member's, in memory of its own. */
static int owner(struct member *member)
{
	struct pool *pool = member->pool;
	struct bank bank = {0};
	int is_whole;

	TRY(open_bank(member, &bank));
	for (uint32_t of = 1; of < 2 + HOLDERS; of++)
		for (uint32_t i = 0; i < KEYS; i++)
			TRY(put_key(&bank, of, i));
	pool->note[READY]++;
	TRY(await_note(member, READY, 1 + HOLDERS));
	reef_sim_host_kill(pool->lenders[pool->seed % NODES].host);
	TRY(reef_sleep(3 * SECOND));
	/* Nobody has these: they tell whether the maps' node is left. */
	is_whole = !get_key(&bank, 1, 0) && !get_key(&bank, 1, 1);
	WANT(look_at_keys(&bank, false) >= 0);
	WANT(look_at_keys(&bank, true) >= 0);
	pool->note[LOST]++;
	TRY(await_note(member, LET_GO, HOLDERS));
	/* Of who dies with its memory nobody knows what its keys were. */
	if (is_whole && holders_die) {
		TRY(reef_sleep(5 * SECOND));
		WANT(look_at_keys(&bank, false) >= 0);
		statuses_lost += !look_at_keys(&bank, true);
		WANT(!put_key(&bank, 1, 0) && !put_key(&bank, 1, 1));
		TRY(put_more(&bank));
		TRY(reef_map_drop(bank.space, "m"));
		TRY(reef_tree_drop(bank.space, "t"));
	} else if (is_whole) {
		WANT(look_at_keys(&bank, false) == 1);
		WANT(look_at_keys(&bank, true) == 1);
		WANT(look_at_keys(&bank, false) == 1);
		statuses_lost += (uint32_t)pool->note[SPARED];
	}
	close_bank(&bank);
	return 0;
}

static void lose_statuses(bool die)
{
	uint64_t seed;

	holders_die = die;
	statuses_lost = keys_refused = 0;
	for (seed = seeds_first(); seeds_has(seed, 2 * POOL_SEEDS); seed++) {
		struct pool pool = {.extent_size = 1 * MIB};

		pool_start(&pool, seed);
		pool_add(&pool, owner);
		for (uint32_t i = 0; i < HOLDERS; i++)
			pool_add(&pool, holder);
		pool_finish(&pool);
	}
	print_message("%u statuses were lost, %u keys refused\n", statuses_lost,
		      keys_refused);
	assert_true(statuses_lost > 0);
}

static void txn_whose_status_is_lost_lets_its_keys_go(void **state)
{
	(void)state;
	lose_statuses(false);
}

static void txn_that_dies_with_its_status_is_in_nobodys_way(void **state)
{
	(void)state;
	lose_statuses(true);
	assert_true(keys_refused > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			txn_that_dies_with_its_status_is_in_nobodys_way),
		cmocka_unit_test(txn_whose_status_is_lost_lets_its_keys_go),
	};

	/* So that a seed means the same again. */
	map_set_seed(7);
	map_tables.groups = 32;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
