/* test_map_lost.c - a map of which a node had a part, and the sessions that
 * changed it: each is recovered all the same, and what is left of the map is
 * not touched by that. */
#include "fixture/pool_world.h"
#include "kv/internal.h"

#include <errno.h>
#include <string.h>

#define KEYS 160u
#define SIZE 16384u
#define WRITERS 2u

static void fill_value(char *value, uint32_t key, uint32_t life)
{
	memset(value, (int)(key * 7 + life), SIZE);
	memcpy(value, &key, sizeof(key));
}

static int write_keys(struct member *member, struct reef_map *map)
{
	uint32_t first = (member->number - 1) * KEYS, key;
	static char value[SIZE];

	for (key = first; key < first + KEYS; key++) {
		fill_value(value, key, 0);
		TRY(reef_map_put(map, &key, 4, value, SIZE, 0, NULL));
	}
	member->pool->note[member->number] = reef_session(member->reef);
	member->pool->note[0] = member->number;
	return reef_sleep(REEF_FOREVER);
}

/* Writers have keys of their own. They die when told so, one by one. */
static int writer(struct member *member)
{
	struct reef_space *space;
	struct reef_map *map;
	int rc;

	while (member->pool->note[0] != member->number - 1)
		TRY(reef_sleep(MILLISECOND));
	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "m", NULL, &map));
	rc = write_keys(member, map);
	reef_map_close(map);
	return rc;
}

/* How many keys are there; none has another value than it was given. */
static int count_keys(struct reef_map *map, uint32_t *count)
{
	static char wanted[SIZE];
	struct reef_map_value value = {0};
	uint32_t key;
	int rc;

	*count = 0;
	for (key = 0; key < WRITERS * KEYS; key++) {
		rc = reef_map_get(map, &key, 4, &value);
		WANT(rc == 0 || rc == -REEF_ELOST);
		if (rc)
			continue;
		fill_value(wanted, key, 0);
		WANT(value.size == SIZE && !memcmp(value.bytes, wanted, SIZE));
		++*count;
	}
	reef_map_value_free(&value);
	return 0;
}

static int kill_and_await(struct member *member, uint32_t number)
{
	struct pool *pool = member->pool;
	uint64_t until_ns = reef_now_ns() + 30 * SECOND;
	bool has = true;

	reef_sim_host_kill(pool->members[number - 1].host);
	while (has) {
		TRY(reef_sleep(10 * MILLISECOND));
		TRY(member_has_session(member, (uint32_t)pool->note[number],
				       &has));
		WANT(reef_now_ns() < until_ns);
	}
	return 0;
}

/* Fills another map with what recovery freed. */
static int fill_other(struct reef_space *space)
{
	static char value[SIZE];
	struct reef_map *map;
	uint32_t key;
	int rc = 0;

	TRY(reef_map_open(space, "other", NULL, &map));
	for (key = 0; key < 3 * KEYS && !rc; key++) {
		fill_value(value, key, 1);
		rc = reef_map_put(map, &key, 4, value, SIZE, 0, NULL);
	}
	reef_map_close(map);
	return rc == -ENOSPC ? 0 : rc;
}

static int watcher(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	struct reef_map *map;
	uint32_t number, before = 0, after = 0;
	int opened;

	TRY(member_space(member, &space));
	while (pool->note[0] != WRITERS)
		TRY(reef_sleep(MILLISECOND));
	reef_sim_host_kill(pool->lenders[pool->seed % NODES].host);
	TRY(reef_sleep(3 * SECOND));
	opened = reef_map_open(space, "m", NULL, &map);
	WANT(opened == 0 || opened == -REEF_ELOST);
	if (!opened)
		TRY(count_keys(map, &before));
	for (number = 1; number <= WRITERS; number++)
		TRY(kill_and_await(member, number));
	/* What was freed may be used again after some epochs. */
	TRY(reef_sleep(5 * SECOND));
	TRY(fill_other(space));
	if (opened)
		return 0;
	TRY(count_keys(map, &after));
	print_message("%u of %u keys are left\n", after, WRITERS * KEYS);
	WANT(before == after && after < WRITERS * KEYS);
	reef_map_close(map);
	return 0;
}

static void map_that_is_partly_lost_holds_up_no_recovery(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		for (uint32_t i = 0; i < WRITERS; i++)
			pool_add(&pool, writer);
		pool_add(&pool, watcher);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_that_is_partly_lost_holds_up_no_recovery),
	};

	/* So that a seed means the same again. */
	map_tables.seed = 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
