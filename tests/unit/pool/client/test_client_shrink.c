/* test_client_shrink.c - spaces that were filled and emptied give their memory
 * back, whoever used it, and nothing that lives goes with it. */
#include "base/mutant.h"
#include "fixture/pool_world.h"
#include "kv/internal.h"
#include "pool/client/keeper/view.h"

#include <errno.h>
#include <reef/map.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENT (2 * MIB)
#define FULL (64 * MIB)
#define PATIENCE (60 * SECOND) /* of simulated time */

static void prepare(struct pool *pool, uint64_t seed)
{
	pool->extent_size = EXTENT;
	pool->capacity = FULL;
	pool_start(pool, seed);
}

static void run(int (*first)(struct member *member),
		int (*second)(struct member *member))
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(2, 100));
	     seed++) {
		struct pool pool = {0};

		prepare(&pool, seed);
		pool_add(&pool, first);
		if (second)
			pool_add(&pool, second);
		pool_finish(&pool);
	}
}

/* --- how large the space is --- */

static int add_used(void *context, const struct reef_space_info *info)
{
	*(uint64_t *)context += info->used;
	return 0;
}

static int used_bytes(struct member *member, uint64_t *used)
{
	*used = 0;
	return reef_space_list(member->reef, add_used, used);
}

/* Go on for a while as a program does that has little to do. */
static int idle(struct reef_space *space, uint64_t time_ns)
{
	uint64_t until_ns = reef_now_ns() + time_ns, block;

	while (reef_now_ns() < until_ns) {
		TRY(reef_sleep(100 * MILLISECOND));
		TRY(reef_alloc(space, 64, &block));
		TRY(reef_free(space, block, REEF_FREE_LATER));
	}
	return 0;
}

/* Wait until the space is no larger than that. */
static int await_used(struct member *member, struct reef_space *space,
		      uint64_t most)
{
	uint64_t until_ns = reef_now_ns() + PATIENCE, used;

	do {
		TRY(idle(space, 100 * MILLISECOND));
		TRY(used_bytes(member, &used));
		if (reef_now_ns() >= until_ns)
			printf("%llu MiB are left\n",
			       (unsigned long long)(used / MIB));
		WANT(reef_now_ns() < until_ns);
	} while (used > most);
	return 0;
}

/* --- raw blocks --- */

#define RAW_SIZE 30000u
#define RAW_COUNT (FULL * 9 / 10 / 32768)

static int fills_and_empties(struct member *member)
{
	uint64_t *blocks = calloc(RAW_COUNT, sizeof(*blocks)), used;
	struct reef_space *space;

	TRY(member_space(member, &space));
	for (uint32_t i = 0; i < RAW_COUNT; i++)
		TRY(reef_alloc(space, RAW_SIZE, &blocks[i]));
	TRY(used_bytes(member, &used));
	WANT(used >= FULL * 9 / 10);
	/* Every third, then the others: so that each slab empties late. */
	for (uint32_t pass = 0; pass < 3; pass++)
		for (uint32_t i = pass; i < RAW_COUNT; i += 3)
			TRY(reef_free(space, blocks[i], 0));
	free(blocks);
	return await_used(member, space, used / 10);
}

static void client_raw_blocks_freed_shrink_the_space(void **state)
{
	run(fills_and_empties, NULL);
}

/* --- maps --- */

#define VALUE_SIZE 3000u
#define KEYS (FULL * 8 / 10 / 3072)

static int puts_and_deletes(struct member *member)
{
	struct reef_map_options options = {0};
	char key[16], value[VALUE_SIZE];
	struct reef_space *space;
	struct reef_map *map;
	uint64_t used;

	memset(value, 7, sizeof(value));
	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "map", &options, &map));
	for (uint32_t i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "key %u", i);
		TRY(reef_map_put(map, key, strlen(key), value, sizeof(value), 0,
				 NULL));
	}
	TRY(used_bytes(member, &used));
	WANT(used >= FULL * 7 / 10);
	for (uint32_t i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "key %u", i);
		TRY(reef_map_delete(map, key, strlen(key), 0));
	}
	TRY(await_used(member, space, used / 10));
	reef_map_close(map);
	return 0;
}

static void client_map_emptied_shrinks_the_space(void **state)
{
	run(puts_and_deletes, NULL);
}

/* --- who remembers memory that is gone --- */

#define SMALL_KEYS 30000u

/* note[0]: how far the two are. The reader remembers subtables and where keys
 * are; then these are split, and the table is emptied, and dropped. */
static int look_up(struct reef_map *map, uint32_t i,
		   struct reef_map_value *value)
{
	char key[16];

	snprintf(key, sizeof(key), "key %u", i);
	return reef_map_get(map, key, strlen(key), value);
}

static int remembers(struct member *member)
{
	struct reef_map_value value = {0};
	uint64_t *step = &member->pool->note[0];
	struct reef_space *space;
	struct reef_map *map;
	int rc;

	while (*step < 1)
		TRY(reef_sleep(MILLISECOND));
	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "map", NULL, &map));
	for (uint32_t i = 0; i < SMALL_KEYS / 3; i++)
		TRY(look_up(map, i, &value));
	*step = 2;
	while (*step < 3)
		TRY(reef_sleep(MILLISECOND));
	for (uint32_t i = 0; i < SMALL_KEYS / 3; i++) {
		rc = look_up(map, i, &value);
		WANT(rc == -ENOENT);
	}
	TRY(reef_map_get(map, "last", 4, &value));
	*step = 4;
	while (*step < 5)
		TRY(reef_sleep(MILLISECOND));
	rc = reef_map_get(map, "last", 4, &value);
	WANT(rc == -REEF_EDROPPED);
	reef_map_value_free(&value);
	reef_map_close(map);
	return 0;
}

static int change_keys(struct reef_map *map, uint32_t from, uint32_t to,
		       bool put)
{
	static const char value[400];
	char key[16];
	size_t size;

	for (uint32_t i = from; i < to; i++) {
		size = (size_t)snprintf(key, sizeof(key), "key %u", i);
		if (put)
			TRY(reef_map_put(map, key, size, value, sizeof(value),
					 0, NULL));
		else
			TRY(reef_map_delete(map, key, size, 0));
	}
	return 0;
}

static int changes_all(struct member *member)
{
	uint64_t *step = &member->pool->note[0], used, blocks[100];
	struct reef_space *space;
	struct reef_map *map;

	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "map", NULL, &map));
	/* What is made from here on is not in the first extents. */
	for (uint32_t i = 0; i < 100; i++)
		TRY(reef_alloc(space, RAW_SIZE, &blocks[i]));
	TRY(change_keys(map, 0, SMALL_KEYS / 3, true));
	*step = 1;
	while (*step < 2)
		TRY(reef_sleep(MILLISECOND));
	for (uint32_t i = 0; i < 100; i++)
		TRY(reef_free(space, blocks[i], 0));
	TRY(change_keys(map, SMALL_KEYS / 3, SMALL_KEYS, true));
	TRY(used_bytes(member, &used));
	TRY(change_keys(map, 0, SMALL_KEYS, false));
	TRY(reef_map_put(map, "last", 4, "x", 1, 0, NULL));
	TRY(await_used(member, space, used / 2));
	*step = 3;
	while (*step < 4)
		TRY(reef_sleep(MILLISECOND));
	reef_map_close(map);
	TRY(reef_map_drop(space, "map"));
	/* What `idle` freed waits in one extent, and is allocated in another.
	 */
	TRY(await_used(member, space, 2 * EXTENT));
	*step = 5;
	return 0;
}

static void client_memory_given_back_is_no_lost_key(void **state)
{
	map_tables.groups = 32; /* so that there are many subtables */
	run(changes_all, remembers);
	map_tables.groups = 0;
}

/* --- what nobody uses --- */

#define KEPT_COUNT (FULL / 2 / 32768)

/* One pool at a time. */
static uint64_t kept[KEPT_COUNT];

/* note[0]: 1: blocks are kept; 2: their owner is recovered; 3: they are freed.
 * note[1]: the session of who kept them.  note[2]: the first janitor is dead.
 */
static int await_note(const struct member *member, uint64_t value)
{
	while (member->pool->note[0] != value)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

/* The second begins when the first was killed. */
static int janitor(struct member *member)
{
	while (member->number > 1 && !member->pool->note[2])
		if (member_others_ended(member))
			return 0;
	return reef_janitor_run(member->reef, member_others_ended, member);
}

static int keeps_and_dies(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	for (uint32_t i = 0; i < KEPT_COUNT; i++) {
		TRY(reef_alloc(space, RAW_SIZE, &kept[i]));
		TRY(reef_write(member->reef, kept[i], &i, sizeof(i)));
		TRY(reef_keep(space, kept[i]));
	}
	member->pool->note[1] = reef_session(member->reef);
	member->pool->note[0] = 1;
	reef_sim_host_kill(member->host);
	return -REEF_EHOSTDEAD;
}

/* Frees what the dead one kept, which is in chunks that are nobody's, and is
 * gone. */
static int frees_kept(struct member *member)
{
	struct reef_space *space;

	TRY(await_note(member, 2));
	TRY(member_space(member, &space));
	for (uint32_t i = 0; i < KEPT_COUNT; i++)
		TRY(reef_free(space, kept[i], i % 2 ? REEF_FREE_LATER : 0));
	reef_space_close(space);
	member->pool->note[0] = 3;
	return 0;
}

/* It has no space open, and lacks nothing. */
static int sees_all_come_back(struct member *member)
{
	uint64_t until_ns, used;
	bool has = true;

	TRY(await_note(member, 1));
	while (has)
		TRY(member_has_session(member, (uint32_t)member->pool->note[1],
				       &has));
	TRY(used_bytes(member, &used));
	WANT(used >= FULL / 2);
	if (member->pool->members[1].script == janitor) {
		reef_sim_host_kill(member->pool->members[0].host);
		member->pool->note[2] = 1;
	}
	member->pool->note[0] = 2;
	TRY(await_note(member, 3));
	until_ns = reef_now_ns() + PATIENCE;
	while (used > EXTENT) {
		TRY(reef_sleep(MILLISECOND));
		TRY(used_bytes(member, &used));
		WANT(reef_now_ns() < until_ns);
	}
	return 0;
}

static void run_unused(uint32_t janitors)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(2, 100));
	     seed++) {
		struct pool pool = {0};

		prepare(&pool, seed);
		for (uint32_t i = 0; i < janitors; i++)
			pool_add(&pool, janitor);
		pool_add(&pool, keeps_and_dies);
		pool_add(&pool, frees_kept);
		pool_add(&pool, sees_all_come_back);
		pool_finish(&pool);
	}
}

static void client_space_that_nobody_uses_shrinks(void **state)
{
	run_unused(1);
}

static void client_space_that_nobody_uses_shrinks_by_the_next(void **state)
{
	run_unused(2);
}

/* --- how much a client remembers --- */

#define ROUNDS 40u
#define ROUND_EXTENTS 8u

/* Fills and empties the space again and again, so that extents come and go, and
 * a view has no more than it needs. */
static int forgets_extents(struct member *member)
{
	uint64_t blocks[ROUND_EXTENTS];
	struct reef_space *space;
	uint32_t i, most = 0;

	TRY(member_space(member, &space));
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (i = 0; i < ROUND_EXTENTS; i++)
			TRY(reef_alloc(space, EXTENT / 4 * 3, &blocks[i]));
		for (i = 0; i < ROUND_EXTENTS; i++)
			TRY(reef_free(space, blocks[i], 0));
		TRY(await_used(member, space, 2 * EXTENT));
		if (member->client->extents_count > most)
			most = member->client->extents_count;
	}
	WANT(member->client->removals >= ROUNDS * (ROUND_EXTENTS - 2));
	WANT(most <= 3 * CLIENT_REMOVED_KEPT);
	return 0;
}

static void client_view_forgets_what_was_given_back(void **state)
{
	run(forgets_extents, NULL);
}

/* --- what lives stays --- */

#define CHURN_BLOCKS 800u
#define CHURN_ROUNDS 12u

/* Fill and empty, again and again, and look at what is there in between. */
static int churns(struct member *member)
{
	uint64_t *blocks = calloc(CHURN_BLOCKS, sizeof(*blocks)), value;
	struct reef_space *space;

	TRY(member_space(member, &space));
	for (uint32_t round = 0; round < CHURN_ROUNDS; round++) {
		for (uint32_t i = 0; i < CHURN_BLOCKS; i++) {
			if (blocks[i])
				continue;
			TRY(reef_alloc(space, RAW_SIZE, &blocks[i]));
			value = blocks[i] ^ member->number;
			TRY(reef_write(member->reef, blocks[i], &value, 8));
		}
		for (uint32_t i = 0; i < CHURN_BLOCKS; i++) {
			TRY(reef_read(member->reef, blocks[i], &value, 8));
			WANT(value == (blocks[i] ^ member->number));
			if (i / 40 % 5 == round % 5)
				continue;
			TRY(reef_free(space, blocks[i], 0));
			blocks[i] = 0;
		}
		/* So long that extents may go, and so long that they do not. */
		TRY(idle(space, round % 3 ? 6 * SECOND : 200 * MILLISECOND));
	}
	free(blocks);
	return 0;
}

static void client_shrinking_takes_nothing_that_lives(void **state)
{
	run(churns, churns);
}

#if !SANITIZED
static void client_shrinking_blindly_is_found(void **state)
{
	uint64_t seed = 1;
	int rc = 0;

	for (; seed <= 20 && !rc; seed++) {
		struct pool pool = {0};

		prepare(&pool, seed);
		reef_mutate(REEF_MUTANT_HEAP_SHRINK_BLIND);
		pool_add(&pool, churns);
		pool_add(&pool, churns);
		rc = pool_end(&pool);
		reef_mutate(REEF_MUTANT_NONE);
	}
	assert_int_not_equal(rc, 0);
}
#endif

/* --- fibers that share a handle, where there is no room --- */

#define SHARERS 3
#define HEAPS 3
#define SHARED_BLOCK (48u << 10)
#define SHARED_MAX 64
#define SHARED_ROUNDS 300

struct sharer {
	struct reef *reef;
	struct reef_space *space;
	struct reef_fiber *fiber;
	uint32_t number;
};

/* Take what there is, inside, where nobody waits for more; and free it. */
static int fill_and_empty(void *arg)
{
	struct sharer *sharer = arg;
	struct reef *reef = sharer->reef;
	uint64_t blocks[SHARED_MAX];
	uint32_t count, round;
	int rc = 0;

	for (round = 0; round < SHARED_ROUNDS; round++) {
		for (count = 0; count < SHARED_MAX; count++) {
			reef_enter(reef);
			rc = reef_alloc(sharer->space, SHARED_BLOCK,
					&blocks[count]);
			if (!rc)
				rc = reef_write(reef, blocks[count], &round, 4);
			reef_leave(reef);
			if (rc)
				break;
		}
		WANT(!rc || rc == -ENOSPC);
		TRY(reef_sleep((1 + sharer->number) * 100 * MICROSECOND));
		while (count--)
			TRY(reef_free(sharer->space, blocks[count], 0));
		TRY(reef_sleep(MILLISECOND));
	}
	return 0;
}

/* Heaps that no handle has, with a block in each, so that they stay. */
static int leave_heaps(struct member *member)
{
	struct reef_space *spaces[HEAPS];
	struct reef *reefs[HEAPS];
	uint64_t block;

	for (uint32_t i = 0; i < HEAPS; i++) {
		TRY(reef_client_handle(member->client, &reefs[i]));
		TRY(reef_space_open(reefs[i], "shared", NULL, &spaces[i]));
		TRY(reef_alloc(spaces[i], 4000, &block));
	}
	for (uint32_t i = 0; i < HEAPS; i++) {
		reef_space_close(spaces[i]);
		reef_close(reefs[i]);
	}
	return 0;
}

static int shares_a_handle(struct member *member)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct sharer sharers[SHARERS];
	struct reef_space *space;
	int rc = 0, one;

	TRY(reef_space_open(member->reef, "shared", &options, &space));
	TRY(leave_heaps(member));
	for (uint32_t i = 0; i < SHARERS; i++) {
		sharers[i] = (struct sharer){
			.reef = member->reef, .space = space, .number = i};
		TRY(reef_fiber_spawn(reef_fiber_sched(), fill_and_empty,
				     &sharers[i], &sharers[i].fiber));
	}
	for (uint32_t i = 0; i < SHARERS; i++) {
		reef_fiber_join(sharers[i].fiber, &one);
		rc = rc ? rc : one;
	}
	reef_space_close(space);
	return rc;
}

/* None of them finds itself in a heap that another has taken meanwhile. */
static void client_fibers_share_a_handle_without_room(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(3, 100));
	     seed++) {
		struct pool pool = {
			.extent_size = EXTENT,
			.capacity = EXTENT,
		};

		pool_start(&pool, seed);
		pool_add(&pool, shares_a_handle);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_raw_blocks_freed_shrink_the_space),
		cmocka_unit_test(client_map_emptied_shrinks_the_space),
		cmocka_unit_test(client_memory_given_back_is_no_lost_key),
		cmocka_unit_test(client_space_that_nobody_uses_shrinks),
		cmocka_unit_test(
			client_space_that_nobody_uses_shrinks_by_the_next),
		cmocka_unit_test(client_view_forgets_what_was_given_back),
		cmocka_unit_test(client_shrinking_takes_nothing_that_lives),
		cmocka_unit_test(client_fibers_share_a_handle_without_room),
#if !SANITIZED
		cmocka_unit_test(client_shrinking_blindly_is_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
