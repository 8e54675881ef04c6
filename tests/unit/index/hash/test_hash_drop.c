/* Dropping a hash table in the simulator: (6) of table.h. */
#include "fixture/plain_table.h"
#include "index/hash/place.h"

#define DROPPED_KEYS 3000u

/* One drops while the others work, and find nothing afterwards. */
static int drop_it(struct member *member)
{
	struct hash_table *table, *again;
	struct reef_space *space;
	uint64_t i, root, value;

	TRY(table_begin(member, 2, &space, &table));
	for (i = 0; i < DROPPED_KEYS; i++)
		TRY(table_put(table, i, i));
	member->pool->note[0] = 1;
	TRY(hash_drop(table));
	member->pool->note[0] = 2;
	for (i = 0; i < DROPPED_KEYS; i += 7) {
		WANT_RC(table_get(table, i, &value), -REEF_EDROPPED);
		WANT_RC(table_put(table, i, i), -REEF_EDROPPED);
	}
	TRY(hash_drop(table));
	TRY(reef_name_lookup(space, "table", &root, NULL));
	WANT_RC(hash_open(space, root, 1, &again), -REEF_EDROPPED);
	hash_close(table);
	return 0;
}

static int use_until_dropped(struct member *member)
{
	struct hash_table *table;
	struct reef_space *space;
	uint64_t i = 0, value;
	bool was_over;
	int rc = 0;

	TRY(table_begin(member, 2, &space, &table));
	while (!rc || rc == -ENOENT) {
		was_over = member->pool->note[0] == 2;
		i = (i + 37) % DROPPED_KEYS;
		rc = i % 3 ? table_get(table, i, &value)
			   : table_put(table, i, i);
		WANT(!was_over || rc == -REEF_EDROPPED);
		if (!rc && i % 3)
			WANT(value == i);
	}
	WANT_RC(rc, -REEF_EDROPPED);
	WANT(member->pool->note[0]);
	if (member->number == 3)
		TRY(hash_drop(table));
	hash_close(table);
	return 0;
}

static void hash_dropped_table_is_gone_for_all(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, drop_it);
		pool_add(&pool, use_until_dropped);
		pool_add(&pool, use_until_dropped);
		pool_finish(&pool);
	}
}

#define DEEP_DEPTH (HASH_INNER_LEVELS - 1)
#define DEEP_KEYS 56u /* more than a subtable of two groups has room for */

/* Keys of one leaf that is as deep as it can be without an outer level. */
static void choose_deep_keys(const struct hash_table *table, uint64_t *keys)
{
	uint64_t key = 0;

	for (uint32_t count = 0; count < DEEP_KEYS; key++)
		if (!hash_suffix(hash_of_key(table, &key, 8), DEEP_DEPTH))
			keys[count++] = key;
}

static int split_deep(struct hash_table *table)
{
	int rc = 0;

	reef_enter(table->reef);
	for (uint32_t depth = 0; depth < DEEP_DEPTH && !rc; depth++)
		rc = hash_split(table, 0, depth);
	reef_leave(table->reef);
	return rc;
}

/* What a dropper has done that dies before it comes to the first leaf. */
static int begin_drop(struct hash_table *table)
{
	uint64_t before;

	for (uint32_t depth = HASH_INNER_LEVELS; depth <= HASH_DEPTH_MAX;
	     depth++)
		TRY(reef_cas(table->reef, hash_level_at(table, depth), 0,
			     HASH_DROPPED, &before));
	return 0;
}

/* A change that needs a level which there will never be says that its key is
 * gone: so it must be, for everybody. */
static int change_without_level(struct member *member)
{
	struct hash_table *table, *other;
	uint64_t keys[DEEP_KEYS], value;
	struct reef_space *space;
	uint32_t i;
	int rc = 0;

	TRY(table_begin(member, 2, &space, &table));
	TRY(hash_open(space, table->root, 64, &other));
	choose_deep_keys(table, keys);
	TRY(split_deep(table));
	TRY(table_put(table, keys[0], 5));
	TRY(table_get(other, keys[0], &value));
	TRY(begin_drop(table));
	TRY(table_get(other, keys[0], &value));
	for (i = 1; i < DEEP_KEYS && !rc; i++)
		rc = table_put(table, keys[i], i);
	WANT_RC(rc, -REEF_EDROPPED);
	WANT_RC(table_get(other, keys[0], &value), -REEF_EDROPPED);
	WANT_RC(table_put(other, keys[1], 6), -REEF_EDROPPED);
	/* Other leaves are as they were, until somebody goes on. */
	for (value = 0; !(hash_of_key(table, &value, 8) & 1); value++)
		;
	TRY(table_put(other, value, 7));
	TRY(hash_drop(other));
	WANT_RC(table_get(table, value, &value), -REEF_EDROPPED);
	hash_close(other);
	hash_close(table);
	return 0;
}

static void hash_change_that_cannot_split_drops_its_leaf(void **state)
{
	struct pool pool = {0};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, change_without_level);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hash_dropped_table_is_gone_for_all),
		cmocka_unit_test(hash_change_that_cannot_split_drops_its_leaf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
