/* test_map_doubt.c - what a change of a map says when its session ends while it
 * is under way: "fenced" only if it did not happen, and that it is fenced, not
 * that the pool is full, if it waited for memory. */
#include "fixture/pool_world.h"

#include <errno.h>
#include <reef/map.h>
#include <stdlib.h>
#include <string.h>

#define ENDS 30 /* sessions that end under the first member */

static struct {
	bool is_adding, is_over;
	uint32_t fenced, in_doubt;
} seen;

static int open_map(struct member *member, struct reef_map **map)
{
	struct reef_space *space;
	int rc;

	do {
		rc = member_space(member, &space);
		if (!rc)
			rc = reef_map_open(space, "counters", NULL, map);
	} while (rc == -REEF_EINDOUBT);
	return rc;
}

/* A new session, and the end of the one before it is known everywhere. */
static int open_anew(struct member *member, struct reef_map **map)
{
	int rc;

	do {
		reef_map_close(*map);
		*map = NULL;
		member_leave(member);
		TRY(member_join(member));
		TRY(reef_sleep(2 * SECOND));
		rc = open_map(member, map);
	} while (rc == -REEF_EFENCED);
	return rc;
}

static int read_counter(struct member *member, struct reef_map **map,
			const char *key, int64_t *out)
{
	struct reef_map_value value = {0};
	int rc;

	while ((rc = reef_map_get(*map, key, strlen(key), &value)) ==
	       -REEF_EFENCED)
		TRY(open_anew(member, map));
	if (!rc)
		*out = strtoll(value.bytes, NULL, 10);
	else if (rc == -ENOENT)
		*out = 0;
	reef_map_value_free(&value);
	return rc == -ENOENT ? 0 : rc;
}

static int adds(struct member *member)
{
	int64_t sum, now, count[8] = {0};
	struct reef_map *map = NULL;
	char key[] = "counter0";
	uint32_t i;
	int rc;

	TRY(open_map(member, &map));
	for (i = 0; seen.fenced + seen.in_doubt < ENDS; i++) {
		seen.is_adding = true;
		key[7] = (char)('0' + i % 8);
		rc = reef_map_add(map, key, strlen(key), 1, &sum);
		if (!rc) {
			count[i % 8]++;
			WANT(sum == count[i % 8]);
			continue;
		}
		seen.is_adding = false;
		WANT(rc == -REEF_EFENCED || rc == -REEF_EINDOUBT);
		TRY(read_counter(member, &map, key, &now));
		if (rc == -REEF_EFENCED)
			WANT(now == count[i % 8]);
		else
			WANT(now == count[i % 8] || now == count[i % 8] + 1);
		count[i % 8] = now;
		*(rc == -REEF_EFENCED ? &seen.fenced : &seen.in_doubt) += 1;
	}
	reef_map_close(map);
	seen.is_over = true;
	return 0;
}

static void cut_off(struct pool *pool, bool cut)
{
	struct reef_sim_host *host = pool->members[0].host;
	uint32_t i;

	reef_sim_partition(host, pool->host, cut);
	for (i = 0; i < NODES; i++)
		reef_sim_partition(host, pool->lenders[i].host, cut);
}

/* Cuts the first member off, somewhere in an add, for longer than its lease:
 * what it asked for may have been done, and its answer is lost. */
static int ends_sessions(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_random *random = reef_sim_random(pool->sim);

	while (!seen.is_over) {
		TRY(reef_sleep(MILLISECOND));
		if (!seen.is_adding)
			continue;
		TRY(reef_sleep(reef_random_below(random, MILLISECOND)));
		cut_off(pool, true);
		TRY(reef_sleep(20 * pool->ttl_ns));
		cut_off(pool, false);
		TRY(reef_sleep(SECOND));
	}
	return 0;
}

static void map_add_that_says_fenced_did_not_happen(void **state)
{
	uint32_t fenced = 0, in_doubt = 0;
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.node_ttl_ns = 60 * SECOND};

		memset(&seen, 0, sizeof(seen));
		pool_start(&pool, seed);
		pool_add(&pool, adds);
		pool_add(&pool, ends_sessions);
		pool_finish(&pool);
		fenced += seen.fenced;
		in_doubt += seen.in_doubt;
	}
	/* Else it has shown nothing. */
	assert_true(fenced > 0 && in_doubt > 0);
}

/* --- while it waits for memory --- */

#define SIZE 60000u

/* note[0]: 1: the map is there; 2: the pool is full; 3: who has it all is dead.
 */
static int await_note(const struct member *member, uint64_t value)
{
	while (member->pool->note[0] != value)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static int fills(struct member *member)
{
	struct reef_space *space;
	uint64_t block;
	int rc;

	TRY(member_space(member, &space));
	TRY(await_note(member, 1));
	while (!(rc = reef_alloc(space, SIZE, &block)))
		;
	WANT(rc == -ENOSPC);
	member->pool->note[0] = 2;
	return reef_sleep(REEF_FOREVER);
}

static int waits(struct member *member)
{
	static const char value[SIZE];
	struct reef_map *map = NULL;
	uint64_t key = 0;
	int rc;

	TRY(open_map(member, &map));
	member->pool->note[0] = 1;
	TRY(await_note(member, 3));
	do {
		key++;
		rc = reef_map_put(map, &key, 8, value, SIZE, 0, NULL);
	} while (!rc);
	WANT(rc == -REEF_EFENCED || rc == -REEF_EINDOUBT);
	reef_map_close(map);
	return 0;
}

/* The first member stands still for longer than its lease, somewhere in the
 * wait for what the dead one had. */
static int stops_it(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_random *random = reef_sim_random(pool->sim);
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(await_note(member, 2));
	reef_sim_host_kill(pool->members[1].host);
	pool->note[0] = 3;
	TRY(reef_sleep(reef_random_below(random, pool->ttl_ns)));
	reef_sim_host_pause(pool->members[0].host);
	TRY(reef_sleep(4 * pool->ttl_ns));
	reef_sim_host_resume(pool->members[0].host);
	return 0;
}

static void map_put_that_waits_and_is_fenced_says_so(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.extent_size = 2 * MIB,
				    .capacity = 8 * MIB};

		pool_start(&pool, seed);
		pool_add(&pool, waits);
		pool_add(&pool, fills);
		pool_add(&pool, stops_it);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_add_that_says_fenced_did_not_happen),
		cmocka_unit_test(map_put_that_waits_and_is_fenced_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
