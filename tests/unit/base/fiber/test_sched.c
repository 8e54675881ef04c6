/* test_sched.c - run, stop, time and the shuffled order. */
#include "fixture/runtime.h"
#include "fixture/seeds.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* --- creation and run --- */

static void sched_bad_options_einval(void **state)
{
	struct reef_sched_options options = {.stack_size = (16 << 10) - 1};
	struct reef_sched *sched = (void *)1;

	assert_int_equal(reef_sched_create(&options, &sched), -EINVAL);
	options.stack_size = (1u << 30) + 1;
	assert_int_equal(reef_sched_create(&options, &sched), -EINVAL);
	assert_ptr_equal(sched, (void *)1);
	options.stack_size = 16 << 10;
	assert_int_equal(reef_sched_create(&options, &sched), 0);
	reef_sched_destroy(sched);
	reef_sched_destroy(NULL);
}

static void sched_create_without_descriptors_emfile(void **state)
{
	struct reef_sched *sched = (void *)1;
	struct rlimit before, none;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(reef_sched_create(NULL, &sched), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_ptr_equal(sched, (void *)1);
}

static void sched_empty_run_returns(void **state)
{
	struct reef_sched *sched;

	assert_int_equal(reef_sched_create(NULL, &sched), 0);
	run(sched);
	run(sched);
	reef_sched_destroy(sched);
}

static int run_inside(void *arg)
{
	struct reef_sched *other = sched_make(true, NULL);

	((int *)arg)[0] = reef_sched_run(reef_fiber_sched());
	((int *)arg)[1] = reef_sched_run(other);
	reef_sched_destroy(other);
	return 0;
}

static void sched_run_inside_a_fiber_ebusy(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	int errors[2] = {0};

	spawn(sched, run_inside, errors);
	run(sched);
	assert_int_equal(errors[0], -EBUSY);
	assert_int_equal(errors[1], -EBUSY);
	reef_sched_destroy(sched);
}

static void sched_nothing_can_wake_edeadlk(void **state)
{
	for (int virtual_time = 0; virtual_time <= 1; virtual_time++) {
		struct reef_sched *sched = sched_make(virtual_time, NULL);
		struct reef_fiber *fiber;
		int wake = 1;

		assert_int_equal(
			reef_fiber_spawn(sched, park_forever, &wake, &fiber),
			0);
		assert_int_equal(reef_sched_run(sched), -EDEADLK);
		assert_int_equal(reef_sched_run(sched), -EDEADLK);
		reef_fiber_unpark(fiber);
		run(sched);
		assert_int_equal(wake, 0);
		assert_int_equal(reef_fiber_join(fiber, NULL), 0);
		reef_sched_destroy(sched);
	}
}

/* --- time --- */

static int sleep_hours(void *arg)
{
	uint64_t hour_ns = UINT64_C(3600) * 1000000000;
	uint64_t before = reef_now_ns();

	assert_int_equal(reef_sleep(1000 * hour_ns), 0);
	*(uint64_t *)arg = reef_now_ns() - before;
	return 0;
}

static void sched_virtual_time_jumps(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	uint64_t slept = 0;

	assert_ptr_equal(reef_sched_virtual_ns(sched),
			 reef_sched_virtual_ns(sched));
	assert_int_equal(*reef_sched_virtual_ns(sched), 0);
	spawn(sched, sleep_hours, &slept);
	run(sched);
	assert_true(slept == UINT64_C(3600000) * 1000000000);
	assert_true(*reef_sched_virtual_ns(sched) == slept);
	reef_sched_destroy(sched);
}

static int sleep_a_little(void *arg)
{
	uint64_t before = reef_now_ns();

	assert_int_equal(reef_sleep(*(uint64_t *)arg), 0);
	assert_true(reef_now_ns() - before >= *(uint64_t *)arg);
	return 0;
}

static void sched_real_time_sleeps_at_least_that_long(void **state)
{
	struct reef_sched *sched = sched_make(false, NULL);
	uint64_t short_ns = 1000, long_ns = 2000000, before;

	assert_null(reef_sched_virtual_ns(sched));
	spawn(sched, sleep_a_little, &short_ns);
	spawn(sched, sleep_a_little, &long_ns);
	run(sched);
	reef_sched_destroy(sched);
	before = reef_now_ns();
	assert_int_equal(reef_sleep(1000), 0);
	assert_true(reef_now_ns() - before >= 1000);
}

static int park_past_the_end_of_time(void *arg)
{
	assert_int_equal(reef_sleep(1000), 0);
	*(int *)arg = reef_fiber_park(REEF_FOREVER - 500);
	return 0;
}

static void sched_timeout_past_the_end_of_time_is_never(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct reef_fiber *fiber;
	int wake = 1;

	assert_int_equal(reef_fiber_spawn(sched, park_past_the_end_of_time,
					  &wake, &fiber),
			 0);
	assert_int_equal(reef_sched_run(sched), -EDEADLK);
	assert_int_equal(wake, 1);
	reef_fiber_unpark(fiber);
	run(sched);
	reef_fiber_join(fiber, NULL);
	reef_sched_destroy(sched);
}

/* --- stop --- */

struct stopper {
	struct reef_sched *sched;
	sem_t *asleep;
	_Atomic int stopped;
};

static void *stop_thread(void *arg)
{
	struct stopper *stopper = arg;

	if (stopper->asleep)
		while (sem_wait(stopper->asleep) != 0)
			;
	atomic_store(&stopper->stopped, 1);
	reef_sched_stop(stopper->sched);
	return NULL;
}

static int yield_forever(void *arg)
{
	_Atomic int *end = arg;

	while (!atomic_load(end))
		reef_fiber_yield();
	return 0;
}

static void sched_stop_from_another_thread_ends_a_busy_run(void **state)
{
	for (int virtual_time = 0; virtual_time <= 1; virtual_time++) {
		struct reef_sched *sched = sched_make(virtual_time, NULL);
		struct stopper stopper = {.sched = sched};
		_Atomic int end = 0;
		pthread_t thread;

		spawn(sched, yield_forever, &end);
		spawn(sched, yield_forever, &end);
		assert_int_equal(
			pthread_create(&thread, NULL, stop_thread, &stopper),
			0);
		run(sched);
		assert_int_equal(atomic_load(&stopper.stopped), 1);
		assert_int_equal(reef_sched_fibers(sched), 2);
		pthread_join(thread, NULL);
		/* A later run goes on. */
		atomic_store(&end, 1);
		run(sched);
		assert_int_equal(reef_sched_fibers(sched), 0);
		reef_sched_destroy(sched);
	}
}

struct sleepy {
	struct reef_poller poller;
	sem_t asleep;
	int polls, arms;
};

static int poll_nothing(struct reef_poller *poller)
{
	((struct sleepy *)poller)->polls++;
	return 0;
}

/* Called just before the scheduler sleeps. */
static int arm_and_tell(struct reef_poller *poller)
{
	struct sleepy *sleepy = (void *)poller;

	if (sleepy->arms++ == 0)
		sem_post(&sleepy->asleep);
	return 0;
}

static void sched_stop_from_another_thread_wakes_a_sleeping_run(void **state)
{
	struct reef_sched *sched = sched_make(false, NULL);
	struct sleepy sleepy = {.poller = {.poll = poll_nothing,
					   .arm = arm_and_tell,
					   .fd = eventfd(0, EFD_NONBLOCK)}};
	struct stopper stopper = {.sched = sched, .asleep = &sleepy.asleep};
	struct reef_fiber *fiber;
	pthread_t thread;
	int wake = 1;

	sem_init(&sleepy.asleep, 0, 0);
	reef_sched_poller_add(sched, &sleepy.poller);
	assert_int_equal(reef_fiber_spawn(sched, park_forever, &wake, &fiber),
			 0);
	assert_int_equal(pthread_create(&thread, NULL, stop_thread, &stopper),
			 0);
	run(sched);
	pthread_join(thread, NULL);
	assert_int_equal(wake, 1);
	reef_fiber_unpark(fiber);
	run(sched);
	assert_int_equal(wake, 0);
	reef_fiber_join(fiber, NULL);
	reef_sched_poller_remove(sched, &sleepy.poller);
	close(sleepy.poller.fd);
	sem_destroy(&sleepy.asleep);
	reef_sched_destroy(sched);
}

static int stop_then_count(void *arg)
{
	reef_sched_stop(reef_fiber_sched());
	(*(int *)arg)++;
	reef_fiber_yield();
	(*(int *)arg)++;
	return 0;
}

static void sched_stop_in_a_fiber_takes_effect_at_its_yield(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	int count = 0, other = 0;

	spawn(sched, stop_then_count, &count);
	spawn(sched, count_up, &other);
	run(sched);
	assert_int_equal(count, 1);
	assert_int_equal(other, 0);
	run(sched);
	assert_int_equal(count, 2);
	assert_int_equal(other, 1);
	reef_sched_destroy(sched);
}

static void sched_stop_before_run_ends_that_run_only(void **state)
{
	struct reef_sched *sched = sched_make(false, NULL);
	int count = 0;

	spawn(sched, count_up, &count);
	reef_sched_stop(sched);
	run(sched);
	assert_int_equal(count, 0);
	run(sched);
	assert_int_equal(count, 1);
	reef_sched_destroy(sched);
}

/* --- shuffle --- */

#define PLAYERS 6
#define MOVES 400

struct game {
	struct reef_fiber *players[PLAYERS];
	uint8_t moves[MOVES];
	int count;
};

static int play(void *arg)
{
	struct game *game = arg;
	int self = 0;

	while (game->players[self] != reef_fiber_self())
		self++;
	while (game->count < MOVES) {
		game->moves[game->count++] = (uint8_t)self;
		switch (game->count % 3) {
		case 0:
			reef_fiber_yield();
			break;
		case 1:
			reef_fiber_unpark(game->players[(self + 1) % PLAYERS]);
			reef_fiber_park(3);
			break;
		default:
			reef_sleep((uint64_t)game->count % 4);
		}
	}
	return 0;
}

static void game_play(struct game *game, uint64_t seed, bool shuffle)
{
	struct reef_random random;
	struct reef_sched *sched;

	reef_random_init(&random, seed);
	sched = sched_make(true, shuffle ? &random : NULL);
	memset(game, 0, sizeof(*game));
	for (int i = 0; i < PLAYERS; i++)
		assert_int_equal(
			reef_fiber_spawn(sched, play, game, &game->players[i]),
			0);
	run(sched);
	for (int i = 0; i < PLAYERS; i++)
		reef_fiber_join(game->players[i], NULL);
	reef_sched_destroy(sched);
}

static void sched_shuffle_same_seed_same_order(void **state)
{
	struct game first, second, plain;
	int different = 0;

	game_play(&plain, 0, false);
	for (uint64_t seed = seeds_first(); seeds_has(seed, 50); seed++) {
		game_play(&first, seed, true);
		game_play(&second, seed, true);
		assert_memory_equal(first.moves, second.moves, MOVES);
		different += memcmp(first.moves, plain.moves, MOVES) != 0;
	}
	assert_int_equal(different, 50);
}

struct pinger {
	struct reef_fiber *other;
	_Atomic int *end;
};

static int ping_until_end(void *arg)
{
	struct pinger *pinger = arg;

	while (!atomic_load(pinger->end)) {
		reef_fiber_unpark(pinger->other);
		reef_fiber_park(REEF_FOREVER);
	}
	reef_fiber_unpark(pinger->other);
	return 0;
}

static int yield_and_end(void *arg)
{
	for (int i = 0; i < 100; i++)
		reef_fiber_yield();
	atomic_store((_Atomic int *)arg, 1);
	return 0;
}

static void sched_shuffle_starves_nobody(void **state)
{
	struct reef_random random;
	struct reef_sched *sched;
	_Atomic int end = 0;
	struct pinger pingers[2] = {{.end = &end}, {.end = &end}};
	struct reef_fiber *fibers[2];

	reef_random_init(&random, 99);
	sched = sched_make(true, &random);
	for (int i = 0; i < 2; i++)
		assert_int_equal(reef_fiber_spawn(sched, ping_until_end,
						  &pingers[i], &fibers[i]),
				 0);
	pingers[0].other = fibers[1];
	pingers[1].other = fibers[0];
	spawn(sched, yield_and_end, &end);
	run(sched);
	for (int i = 0; i < 2; i++)
		reef_fiber_join(fibers[i], NULL);
	reef_sched_destroy(sched);
}

/* --- one scheduler per thread --- */

static void *run_own(void *arg)
{
	struct reef_sched *sched = sched_make(false, NULL);
	int count = 0;

	for (int i = 0; i < 1000; i++)
		spawn(sched, i % 2 ? tick : count_up, &count);
	run(sched);
	reef_sched_destroy(sched);
	*(int *)arg = count;
	return NULL;
}

static void sched_per_thread_are_independent(void **state)
{
	pthread_t threads[3];
	int counts[3] = {0};

	for (int i = 0; i < 3; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, run_own, &counts[i]),
			0);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(counts[i], 500);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sched_bad_options_einval),
		cmocka_unit_test(sched_create_without_descriptors_emfile),
		cmocka_unit_test(sched_empty_run_returns),
		cmocka_unit_test(sched_run_inside_a_fiber_ebusy),
		cmocka_unit_test(sched_nothing_can_wake_edeadlk),
		cmocka_unit_test(sched_virtual_time_jumps),
		cmocka_unit_test(sched_real_time_sleeps_at_least_that_long),
		cmocka_unit_test(sched_timeout_past_the_end_of_time_is_never),
		cmocka_unit_test(
			sched_stop_from_another_thread_ends_a_busy_run),
		cmocka_unit_test(
			sched_stop_from_another_thread_wakes_a_sleeping_run),
		cmocka_unit_test(
			sched_stop_in_a_fiber_takes_effect_at_its_yield),
		cmocka_unit_test(sched_stop_before_run_ends_that_run_only),
		cmocka_unit_test(sched_shuffle_same_seed_same_order),
		cmocka_unit_test(sched_shuffle_starves_nobody),
		cmocka_unit_test(sched_per_thread_are_independent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
