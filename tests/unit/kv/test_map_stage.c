/* test_map_stage.c - values that are in the pool before they are put, as those
 * see them who read the same map over tcp. */
#include "fixture/local_pool.h"
#include "kv/stage.h"

#include <errno.h>
#include <reef/map.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 300000u

struct user {
	struct reef *reef;
	struct reef_map *map;
};

static struct server server;
static struct user near, far;
/* Nothing is under the thread sanitizer, and without membarrier(2). */
static bool is_near;

static void join(struct user *user, const char *fabrics)
{
	struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	struct reef_options options = {.fabrics = fabrics};
	struct reef_space *space;

	assert_int_equal(reef_open("local", &options, &user->reef), 0);
	assert_int_equal(reef_space_open(user->reef, "s", &create, &space), 0);
	assert_int_equal(reef_map_open(space, "m", NULL, &user->map), 0);
}

static int begin(void **state)
{
	struct map_stage *stage;
	int rc;

	scratch_make(state);
	server_start(&server);
	join(&near, "shm");
	join(&far, "tcp");
	rc = map_stage_begin(near.map, 3, SIZE, 2, &stage);
	is_near = rc != -EOPNOTSUPP;
	if (!rc)
		map_stage_end(stage);
	return 0;
}

static int end(void **state)
{
	reef_map_close(near.map);
	reef_map_close(far.map);
	reef_close(near.reef);
	reef_close(far.reef);
	server_stop(&server);
	return scratch_remove(state);
}

/* The bytes of a value, from the first on; in pieces of `part`. */
struct flow {
	uint32_t seed;
	size_t at, part;
};

static ssize_t flow_on(void *context, void *to, size_t size)
{
	struct flow *flow = context;

	size = size < flow->part ? size : flow->part;
	for (size_t i = 0; i < size; i++)
		((uint8_t *)to)[i] =
			(uint8_t)((flow->at + i) * (flow->seed + 7));
	flow->at += size;
	return (ssize_t)size;
}

static struct map_stage *stage_whole(uint32_t seed, size_t key_size,
				     size_t part)
{
	struct flow flow = {.seed = seed, .part = part};
	struct map_stage *stage;

	assert_int_equal(map_stage_begin(near.map, key_size, SIZE, 2, &stage),
			 0);
	while (!map_stage_is_whole(stage))
		assert_true(map_stage_take(stage, flow_on, &flow) > 0);
	assert_int_equal(flow.at, SIZE + 2);
	return stage;
}

static void expect(const struct user *user, const char *key, uint32_t seed)
{
	struct reef_map_value value = {0};
	struct flow flow = {.seed = seed, .part = SIZE};
	uint8_t *wanted = malloc(SIZE);

	flow_on(&flow, wanted, SIZE);
	assert_int_equal(reef_map_get(user->map, key, strlen(key), &value), 0);
	assert_int_equal(value.size, SIZE);
	assert_memory_equal(value.bytes, wanted, SIZE);
	reef_map_value_free(&value);
	free(wanted);
}

/* Who reads over tcp checks its checksum. */
static void map_stage_put_is_read_by_others(void **state)
{
	static const char *const keys[] = {"new", "new", "another key"};
	static const size_t parts[] = {SIZE + 2, 1448, 65536};
	struct map_stage *stage;

	if (!is_near)
		return;
	for (uint32_t i = 0; i < 3; i++) {
		stage = stage_whole(i, strlen(keys[i]), parts[i]);
		assert_int_equal(map_stage_put(stage, near.map, keys[i], 0), 0);
		map_stage_end(stage);
		expect(&far, keys[i], i);
		expect(&near, keys[i], i);
	}
	expect(&far, "new", 1);
	assert_int_equal(reef_map_delete(far.map, "new", 3, 0), 0);
	assert_int_equal(reef_map_delete(far.map, "another key", 11, 0), 0);
}

/* Far more than the pool has, so what ended must be back. */
static void map_stage_ended_gives_its_memory_back(void **state)
{
	struct flow flow = {.part = 20000};
	struct map_stage *stage;

	if (!is_near)
		return;
	for (uint32_t i = 0; i < 300; i++) {
		assert_int_equal(
			map_stage_begin(near.map, 3, 1u << 20, 2, &stage), 0);
		assert_true(map_stage_take(stage, flow_on, &flow) > 0);
		map_stage_end(stage);
	}
}

static void map_stage_half_can_be_read(void **state)
{
	struct flow flow = {.seed = 5, .part = 1000}, again = flow;
	struct map_stage *stage;
	uint8_t got[3000], wanted[3000];

	if (!is_near)
		return;
	assert_int_equal(map_stage_begin(near.map, 3, SIZE, 2, &stage), 0);
	while (flow.at < sizeof(got))
		map_stage_take(stage, flow_on, &flow);
	assert_int_equal(map_stage_read(stage, got), 0);
	map_stage_end(stage);
	again.part = sizeof(wanted);
	flow_on(&again, wanted, sizeof(wanted));
	assert_memory_equal(got, wanted, sizeof(got));
}

static void map_stage_what_is_not_for_it_is_refused(void **state)
{
	struct map_stage *stage;

	(void)state;
	assert_int_equal(map_stage_begin(far.map, 3, SIZE, 2, &stage),
			 -EOPNOTSUPP);
	if (!is_near)
		return;
	assert_int_equal(map_stage_begin(near.map, 3, 1000, 2, &stage),
			 -EINVAL);
	assert_int_equal(map_stage_begin(near.map, 65537, SIZE, 2, &stage),
			 -EINVAL);
	assert_int_equal(
		map_stage_begin(near.map, 3, (64u << 20) + 1, 2, &stage),
		-EINVAL);
	/* There is not so much. */
	assert_int_equal(map_stage_begin(near.map, 3, 60u << 20, 2, &stage),
			 -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_stage_put_is_read_by_others),
		cmocka_unit_test(map_stage_ended_gives_its_memory_back),
		cmocka_unit_test(map_stage_half_can_be_read),
		cmocka_unit_test(map_stage_what_is_not_for_it_is_refused),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
