/* test_map_threads.c - one map, real threads: some on shared memory, some over
 * tcp, and fibers that share a handle. */
#include "fixture/local_pool.h"
#include "fixture/try.h"

#include <errno.h>
#include <reef/fiber.h>
#include <reef/map.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 3u
#define FIBERS 8u
#define ROUNDS 120u
#define KEYS 40u

struct guest {
	const char *fabrics;
	uint32_t index, ended;
	pthread_t thread;
	struct reef_map *map;
	int rc;
};

/* A value is one byte, over and over; its length differs. */
static int put_value(struct reef_map *map, uint32_t key, uint32_t round)
{
	uint32_t size = round % 16 ? round * 37 % 3000 : round * 2500;
	char *bytes = malloc(size + 1);
	int rc;

	if (!bytes)
		return -ENOMEM;
	memset(bytes, 'a' + (int)(round % 26), size);
	rc = reef_map_put(map, &key, 4, bytes, size, 0, NULL);
	free(bytes);
	return rc;
}

static int is_whole(const struct reef_map_value *value)
{
	const char *bytes = value->bytes;

	for (size_t i = 1; i < value->size; i++)
		if (bytes[i] != bytes[0])
			return -EXDEV;
	return 0;
}

static int get_value(struct reef_map *map, uint32_t key)
{
	struct reef_map_value value = {0};
	int rc = reef_map_get(map, &key, 4, &value);

	if (!rc)
		rc = is_whole(&value);
	reef_map_value_free(&value);
	return rc == -ENOENT ? 0 : rc;
}

static int get_values(struct reef_map *map)
{
	struct reef_map_item items[KEYS] = {0};
	uint32_t keys[KEYS], i;
	int rc;

	for (i = 0; i < KEYS; i++) {
		keys[i] = i;
		items[i].key = &keys[i];
		items[i].key_size = 4;
	}
	rc = reef_map_get_many(map, items, KEYS);
	for (i = 0; i < KEYS; i++) {
		if (!rc && items[i].status != -ENOENT)
			rc = items[i].status ? items[i].status
					     : is_whole(&items[i].value);
		reef_map_value_free(&items[i].value);
	}
	return rc;
}

static int work(struct guest *guest)
{
	struct reef_map *map = guest->map;
	uint32_t i, key;
	int rc;

	for (i = 0; i < ROUNDS; i++) {
		key = (i * 7 + guest->index * 11) % KEYS;
		TRY(reef_map_add(map, "sum", 3, 1, NULL));
		TRY(put_value(map, key, i));
		TRY(get_value(map, (key + 5) % KEYS));
		if (i % 10 == 0)
			TRY(get_values(map));
		if (i % 4 == 0) {
			key = (key + 3) % KEYS;
			rc = reef_map_delete(map, &key, 4, 0);
			TRY(rc == -ENOENT ? 0 : rc);
		}
	}
	return 0;
}

static int fiber_main(void *arg)
{
	return work(arg);
}

/* In a fiber: others share what it has open. */
static int with_fibers(void *arg)
{
	struct guest *guest = arg;
	struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	struct reef_options options = {.fabrics = guest->fabrics};
	struct reef_fiber *fibers[FIBERS];
	struct reef_space *space;
	struct reef *reef = NULL;
	uint32_t i, count = guest->index ? FIBERS : 1;
	int rc, result;

	TRY(reef_open("local", &options, &reef));
	rc = reef_space_open(reef, "s", &create, &space);
	if (!rc)
		rc = reef_map_open(space, "m", NULL, &guest->map);
	for (i = 0; !rc && i < count; i++)
		rc = reef_fiber_spawn(reef_fiber_sched(), fiber_main, guest,
				      &fibers[i]);
	for (count = i, i = 0; i < count; i++) {
		reef_fiber_join(fibers[i], &result);
		rc = rc ? rc : result;
	}
	guest->ended = count;
	reef_map_close(guest->map);
	reef_close(reef);
	return rc;
}

static void *guest_main(void *arg)
{
	struct guest *guest = arg;
	struct reef_sched *sched;
	struct reef_fiber *fiber;

	guest->rc = reef_sched_create(NULL, &sched);
	if (guest->rc)
		return NULL;
	guest->rc = reef_fiber_spawn(sched, with_fibers, guest, &fiber);
	if (!guest->rc) {
		guest->rc = reef_sched_run(sched);
		reef_fiber_join(fiber, &guest->rc);
	}
	reef_sched_destroy(sched);
	return NULL;
}

static void check_sum(uint32_t wanted)
{
	struct reef_map_value value = {0};
	struct reef_space *space;
	struct reef_map *map;
	struct reef *reef;
	char text[16];

	assert_int_equal(reef_open("local", NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", NULL, &space), 0);
	assert_int_equal(reef_map_open(space, "m", NULL, &map), 0);
	assert_int_equal(reef_map_get(map, "sum", 3, &value), 0);
	snprintf(text, sizeof(text), "%u", wanted);
	assert_int_equal(value.size, strlen(text));
	assert_memory_equal(value.bytes, text, value.size);
	reef_map_value_free(&value);
	reef_map_close(map);
	assert_int_equal(reef_map_drop(space, "m"), 0);
	reef_close(reef);
}

static void map_threads_and_fibers_agree(void **state)
{
	static const char *const fabrics[THREADS] = {"shm", "tcp", NULL};
	struct guest guests[THREADS] = {0};
	struct server server;
	uint32_t i, sum = 0;

	(void)state;
	server_start(&server);
	for (i = 0; i < THREADS; i++) {
		guests[i].fabrics = fabrics[i];
		guests[i].index = i;
		assert_int_equal(pthread_create(&guests[i].thread, NULL,
						guest_main, &guests[i]),
				 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(guests[i].thread, NULL);
		sum += guests[i].ended * ROUNDS;
	}
	for (i = 0; i < THREADS; i++)
		assert_int_equal(guests[i].rc, 0);
	check_sum(sum);
	server_stop(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(map_threads_and_fibers_agree,
						scratch_make, scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
