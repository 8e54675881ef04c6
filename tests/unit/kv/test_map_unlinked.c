/* test_map_unlinked.c - a client of a map dies at any of its operations, so
 * also between the CAS that unlinks an entry and the free: the entry is its
 * owner's, who lives, and its memory comes back (client/heap/unlinked.c). */
#include "fixture/pool_world.h"
#include "pool/client/keeper/keeper.h"

#include <errno.h>
#include <reef/map.h>
#include <string.h>

#define EXTENT (2 * MIB)
#define CAPACITY (16 * MIB) /* of each of the two nodes */
#define ENTRY (65536u - 64) /* with the block's header a unit of the heap */
#define VALUE (ENTRY - 48)  /* without its head and key */
#define KEYS 6u
#define FILL_MAX 1000u
#define WAITS 20u /* seconds in which all is back */

/* One pool at a time. */
static struct {
	uint64_t strike_at, strikes; /* at which batch of the second member */
	bool strike_before;
	bool is_ready, is_counting, is_struck, is_over;
	uint32_t session;
} now;

static char value_bytes[VALUE];

static void strike_second(struct member *member, bool is_posted)
{
	if (member->number != 2 || !now.is_counting || now.is_struck)
		return;
	now.strikes += !is_posted;
	if (now.strikes != now.strike_at || now.strike_before == is_posted)
		return;
	now.is_struck = true;
	reef_sim_host_kill(member->host);
}

static int open_map(struct member *member, struct reef_space **space,
		    struct reef_map **map)
{
	TRY(member_space(member, space));
	return reef_map_open(*space, "map", NULL, map);
}

static int put_value(struct reef_map *map, uint64_t key)
{
	return reef_map_put(map, &key, sizeof(key), value_bytes, VALUE, 0,
			    NULL);
}

/* Unlink entries of the other in every way there is. */
static int unlink_entries(struct reef_map *map)
{
	uint64_t key = 0;

	TRY(reef_map_delete(map, &key, sizeof(key), 0));
	TRY(put_value(map, 1));
	key = 2;
	TRY(reef_map_update(map, &key, sizeof(key), value_bytes, VALUE - 8, 0,
			    NULL));
	key = 3;
	return reef_map_delete(map, &key, sizeof(key), 0);
}

static int unlinks_and_dies(struct member *member)
{
	struct reef_space *space;
	struct reef_map *map;
	int rc;

	while (!now.is_ready)
		TRY(reef_sleep(MILLISECOND));
	TRY(open_map(member, &space, &map));
	now.session = reef_session(member->reef);
	now.is_counting = true;
	rc = unlink_entries(map);
	now.is_counting = false;
	now.is_over = !rc;
	reef_map_close(map);
	return rc;
}

/* Take all the memory there is, write into it, and give it back. */
static int count_room(struct reef_space *space, uint64_t *room)
{
	uint64_t blocks[FILL_MAX], mark = UINT64_MAX;
	uint32_t count = 0;
	int rc;

	while (!(rc = reef_alloc(space, ENTRY, &blocks[count]))) {
		TRY(reef_write(reef_space_handle(space), blocks[count], &mark,
			       sizeof(mark)));
		WANT(++count < FILL_MAX);
	}
	WANT_RC(rc, -ENOSPC);
	*room = count;
	while (count)
		TRY(reef_free(space, blocks[--count], 0));
	return 0;
}

/* Each takes as much as one of those blocks. */
static int count_entries(struct reef_map *map, uint64_t *entries)
{
	struct reef_map_value value = {0};
	uint64_t key;
	int rc;

	*entries = 0;
	for (key = 0; key < KEYS; key++) {
		rc = reef_map_get(map, &key, sizeof(key), &value);
		if (rc == -ENOENT)
			continue;
		TRY(rc);
		++*entries;
	}
	reef_map_value_free(&value);
	return 0;
}

/* A handle that makes no call would keep from others what it does not need. */
static int go_on(struct reef_space *space)
{
	uint64_t block;

	TRY(reef_sleep(20 * MILLISECOND));
	TRY(reef_alloc(space, 64, &block));
	return reef_free(space, block, REEF_FREE_LATER);
}

static int owns_entries(struct member *member)
{
	uint64_t room, before, entries, still;
	struct reef_space *space;
	struct reef_map *map;
	bool is_there = true;

	TRY(open_map(member, &space, &map));
	for (uint64_t key = 0; key < KEYS; key++)
		TRY(put_value(map, key));
	TRY(count_room(space, &before));
	now.is_ready = true;
	while (!now.is_struck && !now.is_over)
		TRY(go_on(space));
	while (is_there) {
		TRY(go_on(space));
		TRY(member_has_session(member, now.session, &is_there));
	}
	TRY(count_entries(map, &entries));
	for (uint32_t i = 0;; i++) {
		TRY(count_room(space, &room));
		if (room + entries >= before + KEYS)
			break;
		WANT(i < WAITS);
		TRY(reef_sleep(SECOND));
	}
	TRY(count_entries(map, &still));
	WANT(still == entries);
	reef_map_close(map);
	return 0;
}

static void map_memory_comes_back_wherever_a_client_died(void **state)
{
	uint32_t strikes = 0;

	for (uint64_t at = 1; at == 1 || now.is_struck; at++)
		for (uint32_t before = 0; before < 2; before++) {
			struct pool pool = {.extent_size = EXTENT,
					    .capacity = CAPACITY,
					    .posts = strike_second};

			memset(&now, 0, sizeof(now));
			now.strike_at = at;
			now.strike_before = before;
			pool_start(&pool, at);
			pool_add(&pool, owns_entries);
			pool_add(&pool, unlinks_and_dies);
			pool_finish(&pool);
			strikes += now.is_struck;
		}
	print_message("%u deaths\n", strikes);
	assert_true(strikes > 30);
}

/* --- R9 --- */

#define TURNS 1100u /* a slot's tag comes round in 1,024 */

/* Put and delete a key more often than a slot has tags, in one epoch. */
static int turns_a_slot(struct member *member)
{
	uint64_t epoch = atomic_load(&member->client->reclaim_epoch);
	struct reef_space *space;
	struct reef_map *map;

	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "m", NULL, &map));
	for (uint32_t i = 0; i < TURNS; i++) {
		TRY(reef_map_put(map, "key", 3, "value", 5, 0, NULL));
		TRY(reef_map_delete(map, "key", 3, 0));
	}
	WANT(atomic_load(&member->client->reclaim_epoch) <= epoch + 1);
	reef_map_close(map);
	return 0;
}

static void map_slot_whose_tag_comes_round_does_not_return(void **state)
{
	struct pool pool = {.ttl_ns = 60 * SECOND, .node_ttl_ns = 60 * SECOND};

	(void)state;
	pool_start(&pool, 1);
	pool_add(&pool, turns_a_slot);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_memory_comes_back_wherever_a_client_died),
		cmocka_unit_test(
			map_slot_whose_tag_comes_round_does_not_return),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
