/* test_embedded.c - reef_open with real threads and processes: pools inside
 * this process over shm, and a local one over tcp. */
#include "base/fiber/sched.h"
#include "fixture/local_pool.h"
#include "fixture/try.h"
#include "pool/client/client.h"
#include "wire/pool.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <reef/fiber.h>
#include <reef/map.h>
#include <reef/reef.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif

#define POOL "embedded:32M"
#define THREADS 4

static const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};

/* --- one thread --- */

static void embedded_handles_share_a_session(void **state)
{
	struct reef_space *space, *same;
	struct reef *first, *second;
	uint64_t address, value = 7;

	assert_int_equal(reef_open(POOL, NULL, &first), 0);
	assert_int_equal(reef_open(POOL, NULL, &second), 0);
	assert_int_equal(reef_session(first), reef_session(second));
	assert_int_equal(reef_health(first), 0);
	assert_int_equal(reef_space_open(first, "s", &create, &space), 0);
	assert_int_equal(reef_space_open(second, "s", NULL, &same), 0);
	assert_int_equal(reef_alloc(space, 8, &address), 0);
	assert_int_equal(reef_write(first, address, &value, 8), 0);
	value = 0;
	assert_int_equal(reef_read(second, address, &value, 8), 0);
	assert_int_equal(value, 7);
	assert_int_equal(reef_free(same, address, 0), 0);
	assert_int_equal(reef_free(same, address, 0), -EALREADY);
	reef_close(first);
	assert_int_equal(reef_read(second, address, &value, 8), 0);
	reef_close(second);
	/* The next one is another pool. */
	assert_int_equal(reef_open(POOL, NULL, &first), 0);
	assert_int_equal(reef_space_open(first, "s", NULL, &space), -ENOENT);
	reef_close(first);
}

static void embedded_full_says_so_and_frees_make_room(void **state)
{
	static uint64_t blocks[4096];
	struct reef_space *space;
	uint32_t count = 0, again = 0, i;
	uint64_t address;
	struct reef *reef;
	int rc;

	assert_int_equal(reef_open(POOL, NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	while (!(rc = reef_alloc(space, 65536, &blocks[count])))
		assert_true(++count < 4096);
	assert_int_equal(rc, -ENOSPC);
	assert_true(count > 300); /* of 512 */
	for (i = 0; i < count; i++)
		assert_int_equal(reef_free(space, blocks[i], 0), 0);
	while (!(rc = reef_alloc(space, 65536, &address)))
		assert_true(++again < 4096);
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(again, count);
	assert_int_equal(reef_alloc(space, 0, &address), -EINVAL);
	assert_true(reef_alloc(space, UINT64_C(5) << 30, &address) < 0);
	reef_close(reef);
}

static void embedded_tasks_and_their_descriptor(void **state)
{
	struct reef_access access = {.kind = REEF_FAA, .operand = 1};
	struct reef_task task = {.accesses = &access, .count = 1};
	struct reef_space *space;
	struct pollfd pollfd;
	struct reef *reef;
	uint64_t zero = 0;
	int rc;

	assert_int_equal(reef_open(POOL, NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	assert_int_equal(reef_alloc(space, 8, &access.address), 0);
	assert_int_equal(reef_write(reef, access.address, &zero, 8), 0);
	pollfd = (struct pollfd){.fd = reef_fd(reef), .events = POLLIN};
	assert_true(pollfd.fd >= 0);
	rc = reef_task_submit(reef, &task);
	assert_true(rc == 0 || rc == 1);
	while (!task.done) {
		if (reef_arm(reef) == 0 && reef_progress(reef) == 0)
			poll(&pollfd, 1, 10000);
		assert_true(reef_progress(reef) >= 0);
	}
	assert_int_equal(task.status, 0);
	assert_int_equal(access.result, 0);
	reef_close(reef);
}

static int look_from_a_fiber(void *arg)
{
	struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct reef_space *space;
	uint64_t address, before;
	struct reef *reef;

	assert_int_equal(reef_open(POOL, NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", &options, &space), 0);
	assert_int_equal(reef_alloc(space, 8, &address), 0);
	assert_int_equal(reef_faa(reef, address, 0, &before), 0);
	*(bool *)arg = reef_is_near(reef, address);
	reef_close(reef);
	return 0;
}

static void embedded_words_are_changed_and_near(void **state)
{
	struct reef_space *space;
	struct reef_sched *sched;
	uint64_t address, before = 77, zero = 0;
	struct reef *reef;
	bool near = true;

	assert_int_equal(reef_open(POOL, NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	assert_int_equal(reef_alloc(space, 8, &address), 0);
	assert_int_equal(reef_write(reef, address, &zero, 8), 0);
	for (uint64_t i = 0; i < 20000; i++) { /* so that enter refuses, too */
		assert_int_equal(reef_cas(reef, address, 2 * i, 2 * i + 1,
					  i & 1 ? &before : NULL),
				 0);
		if (i & 1)
			assert_int_equal(before, 2 * i);
		assert_int_equal(reef_faa(reef, address, 1, &before), 0);
		assert_int_equal(before, 2 * i + 1);
	}
	/* No match: what it holds, and no change. */
	assert_int_equal(reef_cas(reef, address, 1, 2, &before), 0);
	assert_int_equal(before, 40000);
	/* Refused: nothing changes, nothing is told. */
	assert_int_equal(reef_cas(reef, address + 4, 0, 1, &before), -EINVAL);
	assert_int_equal(reef_faa(reef, UINT64_C(99) << 32, 1, &before),
			 -EFAULT);
	assert_int_equal(before, 40000);
#ifndef THREAD_SANITIZER /* there everything goes the long way */
	assert_true(reef_is_near(reef, address));
#endif
	assert_false(reef_is_near(reef, UINT64_C(99) << 32));
	reef_close(reef);
	assert_int_equal(reef_sched_create(NULL, &sched), 0);
	assert_int_equal(
		reef_fiber_spawn(sched, look_from_a_fiber, &near, NULL), 0);
	assert_int_equal(reef_sched_run(sched), 0);
	reef_sched_destroy(sched);
	assert_false(near);
}

static void embedded_bad_targets_are_refused(void **state)
{
	struct reef *reef = NULL;

	assert_int_equal(reef_open("", NULL, &reef), -EINVAL);
	assert_int_equal(reef_open("nowhere", NULL, &reef), -EINVAL);
	assert_int_equal(reef_open("embedded:", NULL, &reef), -EINVAL);
	assert_int_equal(reef_open("embedded:many", NULL, &reef), -EINVAL);
	assert_int_equal(reef_open("embedded:1", NULL, &reef), -EINVAL);
	assert_int_equal(reef_open("reef://", NULL, &reef), -EINVAL);
	setenv("REEF_RUN", scratch_path("nothing"), 1);
	assert_int_equal(reef_open("local", NULL, &reef), -ENOENT);
	assert_int_equal(reef_open(NULL, NULL, &reef), -ENOENT);
	unsetenv("REEF_RUN");
	assert_null(reef);
	reef_close(NULL);
}

/* --- fork --- */

static int in_child(struct reef *reef, struct reef_space *space,
		    struct reef_map *map, uint64_t address)
{
	struct reef_map_value found = {0};
	uint64_t value;

	if (reef_read(reef, address, &value, 8) != -REEF_EFORKED ||
	    reef_write(reef, address, &value, 8) != -REEF_EFORKED ||
	    reef_faa(reef, address, 1, NULL) != -REEF_EFORKED)
		return 1;
	if (reef_alloc(space, 8, &address) != -REEF_EFORKED ||
	    reef_free(space, address, 0) != -REEF_EFORKED ||
	    reef_name_bind(space, "x", 1, NULL) != -REEF_EFORKED)
		return 2;
	if (reef_health(reef) != -REEF_EFORKED ||
	    reef_progress(reef) != -REEF_EFORKED ||
	    reef_fd(reef) != -REEF_EFORKED)
		return 3;
	if (reef_map_get(map, "k", 1, &found) != -REEF_EFORKED ||
	    reef_map_put(map, "k", 1, "w", 1, 0, NULL) != -REEF_EFORKED)
		return 5;
	reef_map_value_free(&found);
	reef_map_close(map);
	reef_space_close(space);
	reef_close(reef);
#ifndef THREAD_SANITIZER /* it knows no threads of a forked child */
	/* A pool of its own is another matter. */
	if (reef_open(POOL, NULL, &reef) ||
	    reef_space_open(reef, "s", &create, &space) ||
	    reef_alloc(space, 8, &address) ||
	    reef_faa(reef, address, 1, &value))
		return 4;
	reef_close(reef);
#endif
	return 0;
}

static void embedded_forked_child_keeps_its_hands_off(void **state)
{
	struct reef_map_value found = {0};
	uint64_t address, value = 5;
	struct reef_space *space;
	struct reef_map *map;
	struct reef *reef;
	int status, i;
	pid_t child;

	assert_int_equal(reef_open(POOL, NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	assert_int_equal(reef_alloc(space, 8, &address), 0);
	assert_int_equal(reef_write(reef, address, &value, 8), 0);
	assert_int_equal(reef_map_open(space, "m", NULL, &map), 0);
	assert_int_equal(reef_map_put(map, "k", 1, "v", 1, 0, NULL), 0);
	for (i = 0; i < 3; i++) {
		/* Twice: the second get is one in place. */
		assert_int_equal(reef_map_get(map, "k", 1, &found), 0);
		assert_int_equal(reef_map_get(map, "k", 1, &found), 0);
		child = fork();
		if (child == 0)
			_exit(in_child(reef, space, map, address));
		assert_true(child > 0);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		assert_int_equal(reef_faa(reef, address, 1, &value), 0);
		assert_int_equal(value, 5 + (uint64_t)i);
	}
	reef_map_value_free(&found);
	reef_map_close(map);
	reef_close(reef);
}

/* --- threads and fibers --- */

struct crowd {
	const char *target;
	struct reef_options options;
	int rounds;
	int revocations; /* meanwhile: every extent gets new keys */
	_Atomic int failed, left;
};

/* Opens, counts up a shared word, allocates and frees, closes. */
static int one_of_many(struct crowd *crowd)
{
	uint64_t word, block, back, i;
	struct reef_space *space;
	struct reef *reef;
	int rc;

	TRY(reef_open(crowd->target, &crowd->options, &reef));
	TRY(reef_space_open(reef, "s", &create, &space));
	while ((rc = reef_name_lookup(space, "word", &word, NULL)) == -ENOENT)
		sched_yield();
	TRY(rc);
	for (i = 0; i < (uint64_t)crowd->rounds; i++) {
		TRY(reef_faa(reef, word, 1, NULL));
		TRY(reef_alloc(space, 16 + i % 4096, &block));
		TRY(reef_write(reef, block, &i, 8));
		TRY(reef_read(reef, block, &back, 8));
		if (back != i)
			return -EXDEV;
		TRY(reef_free(space, block, 0));
	}
	reef_close(reef);
	return 0;
}

static void *crowd_main(void *arg)
{
	struct crowd *crowd = arg;
	int rc = one_of_many(crowd);

	if (rc)
		crowd->failed = rc;
	crowd->left--;
	return NULL;
}

/* Tokens of a space become void, and all keys of its memory. */
static int revoke_space(struct reef *reef, struct reef_space *space)
{
	struct reef_body body = {
		.ask.space_revoke.space = reef_space_id(space),
	};

	return reef_client_ask(reef, REEF_POOL_SPACE_REVOKE, true, &body, NULL);
}

static void run_crowd(struct crowd *crowd)
{
	pthread_t threads[THREADS];
	uint64_t word, value = 0;
	struct reef_space *space;
	struct reef *reef;
	int i;

	assert_int_equal(reef_open(crowd->target, &crowd->options, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, crowd_main, crowd),
			0);
	assert_int_equal(reef_alloc(space, 8, &word), 0);
	assert_int_equal(reef_write(reef, word, &value, 8), 0);
	assert_int_equal(reef_name_bind(space, "word", word, NULL), 0);
	for (i = 0; i < crowd->revocations && crowd->left; i++)
		assert_int_equal(revoke_space(reef, space), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(crowd->failed, 0);
	assert_int_equal(reef_read(reef, word, &value, 8), 0);
	assert_int_equal(value, (uint64_t)THREADS * (uint64_t)crowd->rounds);
	reef_close(reef);
}

static void embedded_threads_have_handles_of_their_own(void **state)
{
	struct crowd crowd = {.target = POOL, .rounds = 2000};

	run_crowd(&crowd);
}

/* All open at once, and none was there before. */
static void embedded_threads_open_together(void **state)
{
	pthread_t threads[THREADS];
	struct crowd crowd = {.target = POOL};
	struct reef *reef;
	int round, i;

	for (round = 0; round < 5; round++) {
		for (i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&threads[i], NULL,
							crowd_main, &crowd),
					 0);
		assert_int_equal(reef_open(POOL, NULL, &reef), 0);
		{
			struct reef_space *space;

			assert_int_equal(
				reef_space_open(reef, "s", &create, &space), 0);
			assert_int_equal(reef_name_bind(space, "word", 1, NULL),
					 0);
		}
		for (i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		reef_close(reef);
		assert_int_equal(crowd.failed, 0);
	}
}

struct fibers {
	struct reef *reef;
	uint64_t word;
	int failed;
};

static int fiber_main(void *arg)
{
	struct fibers *fibers = arg;
	int i;

	for (i = 0; i < 100; i++) {
		if (reef_faa(fibers->reef, fibers->word, 1, NULL))
			fibers->failed++;
		reef_fiber_yield();
	}
	return 0;
}

static int fibers_main(void *arg)
{
	struct fibers *fibers = arg;
	struct reef_fiber *all[20];
	struct reef_space *space;
	uint64_t value = 0;
	int i;

	TRY(reef_open(POOL, NULL, &fibers->reef));
	TRY(reef_space_open(fibers->reef, "s", &create, &space));
	TRY(reef_alloc(space, 8, &fibers->word));
	TRY(reef_write(fibers->reef, fibers->word, &value, 8));
	for (i = 0; i < 20; i++)
		TRY(reef_fiber_spawn(reef_fiber_sched(), fiber_main, fibers,
				     &all[i]));
	for (i = 0; i < 20; i++)
		reef_fiber_join(all[i], NULL);
	TRY(reef_read(fibers->reef, fibers->word, &value, 8));
	if (value != 2000)
		fibers->failed++;
	reef_close(fibers->reef);
	return 0;
}

static void embedded_fibers_share_a_handle(void **state)
{
	struct fibers fibers = {0};
	struct reef_fiber *fiber;
	struct reef_sched *sched;
	int rc;

	assert_int_equal(reef_sched_create(NULL, &sched), 0);
	assert_int_equal(reef_fiber_spawn(sched, fibers_main, &fibers, &fiber),
			 0);
	assert_int_equal(reef_sched_run(sched), 0);
	assert_int_equal(reef_fiber_join(fiber, &rc), 0);
	reef_sched_destroy(sched);
	assert_int_equal(rc, 0);
	assert_int_equal(fibers.failed, 0);
}

/* --- a pool beside: what `reef up` is --- */

static void local_pool_is_found_by_its_user(void **state)
{
	struct crowd crowd = {.target = "local", .rounds = 200};
	struct server server;

	server_start(&server);
	run_crowd(&crowd);
	server_stop(&server);
}

static void local_pool_over_tcp_serves_threads(void **state)
{
	struct crowd crowd = {
		.target = "local",
		.options = {.fabrics = "tcp"},
		.rounds = 100,
	};
	struct server server;

	server_start(&server);
	run_crowd(&crowd);
	server_stop(&server);
}

/* What the keeper takes from under the threads is found again, and none of them
 * uses what is gone. */
static void local_pool_changes_keys_under_load(void **state)
{
	struct crowd shm = {
		.target = "local",
		.rounds = 20000,
		.revocations = 30,
	};
	struct crowd tcp = {
		.target = "local",
		.options = {.fabrics = "tcp"},
		.rounds = 300,
		.revocations = 30,
	};
	struct server server;

	server_start(&server);
	run_crowd(&shm);
	server_stop(&server);
	server_start(&server);
	run_crowd(&tcp);
	server_stop(&server);
}

static void embedded_blocks_are_told_by_class(void **state)
{
	struct reef_block_stats before, after;
	struct reef_space *space;
	struct reef *reef;
	uint64_t address, live = 0;

	assert_int_equal(reef_open("embedded:16M", NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, NULL, NULL, &space), 0);
	assert_int_equal(reef_block_stats(space, &before), 0);
	assert_int_equal(before.bytes_live, 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(reef_alloc(space, 1000, &address), 0);
	assert_int_equal(reef_write(reef, address, "x", 1), 0);
	assert_int_equal(reef_free(space, address, REEF_FREE_LATER), 0);
	assert_int_equal(reef_block_stats(space, &after), 0);
	assert_true(after.bytes_taken >= 1 << 20);
	assert_true(after.bytes_live >= 9 * 1000);
	assert_true(after.bytes_waiting >= 1000);
	assert_true(after.classes > 0 && after.classes <= REEF_CLASSES_MAX);
	for (uint32_t i = 0; i < after.classes; i++) {
		live += after.by_class[i].live;
		if (after.by_class[i].live) {
			assert_in_range(after.by_class[i].size, 1008, 1280);
			assert_int_equal(after.by_class[i].waiting, 1);
		}
	}
	assert_int_equal(live, 9);
	reef_close(reef);
}

/* --- memory that waits, and what is far --- */

/* Each value takes the place of the one before, which others may still see: in
 * all, many times what there is. */
static void embedded_updates_go_on_in_little_memory(void **state)
{
	static const uint64_t sizes[] = {1 << 20, 4 << 20, 100, 20 << 10};
	uint64_t before, address, value = 1;
	struct reef_block_stats stats;
	struct reef_space *space;
	struct reef *reef;

	assert_int_equal(reef_open(POOL, NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	for (int i = 0; i < 4; i++) {
		uint64_t count = (128u << 20) / sizes[i];

		assert_int_equal(reef_alloc(space, sizes[i], &before), 0);
		assert_int_equal(reef_write(reef, before, &value, 8), 0);
		while (count--) {
			assert_int_equal(reef_alloc(space, sizes[i], &address),
					 0);
			assert_int_equal(reef_write(reef, address, &value, 8),
					 0);
			assert_int_equal(
				reef_free(space, before, REEF_FREE_LATER), 0);
			before = address;
		}
		assert_int_equal(reef_free(space, before, 0), 0);
	}
	while (!reef_reclaim(space, 10000000000))
		;
	assert_int_equal(reef_block_stats(space, &stats), 0);
	assert_int_equal(stats.bytes_waiting, 0);
	assert_int_equal(stats.bytes_live, 0);
	reef_close(reef);
}

static void embedded_blocks_far_inside_have_short_addresses(void **state)
{
	uint64_t address, name, again, far = 0;
	struct reef_space *space, *other;
	struct reef *reef, *beside;

	assert_int_equal(reef_open("embedded:160M", NULL, &reef), 0);
	assert_int_equal(reef_open("embedded:160M", NULL, &beside), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	assert_int_equal(reef_space_open(beside, "s", &create, &other), 0);
	/* Its extent is just large enough, and then full of small ones. */
	assert_int_equal(reef_alloc(space, 130 << 20, &address), 0);
	assert_int_equal(reef_free(space, address, 0), 0);
	for (int i = 0; i < 2000; i++) {
		assert_int_equal(reef_alloc(space, 65000, &address), 0);
		assert_int_equal(reef_short_address(space, address, &name), 0);
		assert_true(name < UINT64_C(1) << 38);
		assert_int_equal(reef_long_address(space, name, &again), 0);
		assert_int_equal(again, address);
		assert_int_equal(reef_long_address(other, name, &again), 0);
		assert_int_equal(again, address);
		far += (uint32_t)address > 128 << 20;
	}
	assert_true(far > 0);
	reef_close(beside);
	reef_close(reef);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(embedded_blocks_are_told_by_class),
		cmocka_unit_test(embedded_handles_share_a_session),
		cmocka_unit_test(embedded_full_says_so_and_frees_make_room),
		cmocka_unit_test(embedded_updates_go_on_in_little_memory),
		cmocka_unit_test(
			embedded_blocks_far_inside_have_short_addresses),
		cmocka_unit_test(embedded_tasks_and_their_descriptor),
		cmocka_unit_test(embedded_words_are_changed_and_near),
		cmocka_unit_test_setup_teardown(
			embedded_bad_targets_are_refused, scratch_make,
			scratch_remove),
		cmocka_unit_test(embedded_forked_child_keeps_its_hands_off),
		cmocka_unit_test(embedded_threads_have_handles_of_their_own),
		cmocka_unit_test(embedded_threads_open_together),
		cmocka_unit_test(embedded_fibers_share_a_handle),
		cmocka_unit_test_setup_teardown(local_pool_is_found_by_its_user,
						scratch_make, scratch_remove),
		cmocka_unit_test_setup_teardown(
			local_pool_over_tcp_serves_threads, scratch_make,
			scratch_remove),
		cmocka_unit_test_setup_teardown(
			local_pool_changes_keys_under_load, scratch_make,
			scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
