/* test_group.c - hosts that are paused, resumed and killed. */
#include "fixture/runtime.h"
#include "fixture/seeds.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void spawn_in(struct reef_group *group, int (*fn)(void *arg), void *arg,
		     struct reef_fiber **out)
{
	assert_int_equal(reef_fiber_spawn_in(group, fn, arg, out), 0);
}

struct stop_timer {
	struct reef_timer timer;
	struct reef_sched *sched;
};

static void stop_fire(struct reef_timer *timer)
{
	reef_sched_stop(((struct stop_timer *)timer)->sched);
}

static void run_until(struct reef_sched *sched, uint64_t at_ns)
{
	struct stop_timer stop = {.timer.fire = stop_fire, .sched = sched};

	assert_int_equal(reef_timer_set(sched, &stop.timer, at_ns), 0);
	run(sched);
	assert_int_equal(stop.timer.heap_index, 0);
}

#define HOST_FIBERS 3

struct host {
	struct reef_group group;
	struct reef_local_clock clock;
	int steps, dead;
};

static void host_init(struct host *host, struct reef_sched *sched)
{
	*host = (struct host){.steps = 0};
	reef_group_init(sched, &host->group, NULL, host);
}

static int step_forever(void *arg)
{
	struct host *host = arg;
	int error;

	assert_ptr_equal(reef_fiber_group(), &host->group);
	assert_ptr_equal(reef_fiber_group()->owner, host);
	while ((error = reef_sleep(10)) == 0)
		host->steps++;
	host->dead += error == -REEF_EHOSTDEAD;
	/* And at once from now on. */
	assert_int_equal(reef_fiber_park(REEF_FOREVER), -REEF_EHOSTDEAD);
	assert_int_equal(reef_sleep(REEF_FOREVER), -REEF_EHOSTDEAD);
	reef_fiber_unpark(reef_fiber_self());
	assert_int_equal(reef_fiber_park(1), -REEF_EHOSTDEAD);
	return 0;
}

static void hosts_start(struct reef_sched *sched, struct host hosts[2])
{
	for (int i = 0; i < 2; i++) {
		host_init(&hosts[i], sched);
		for (int k = 0; k < HOST_FIBERS; k++)
			spawn_in(&hosts[i].group, step_forever, &hosts[i],
				 NULL);
	}
}

static void hosts_end(struct reef_sched *sched, struct host hosts[2])
{
	for (int i = 0; i < 2; i++)
		reef_group_kill(&hosts[i].group);
	run(sched);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(hosts[i].dead, HOST_FIBERS);
		assert_null(hosts[i].group.members);
	}
	reef_sched_destroy(sched);
}

static void group_paused_stands_still_and_resumes(void **state)
{
	struct reef_random random;

	reef_random_init(&random, 5);
	for (int shuffled = 0; shuffled <= 1; shuffled++) {
		struct reef_sched *sched =
			sched_make(true, shuffled ? &random : NULL);
		struct host hosts[2];

		hosts_start(sched, hosts);
		/* Before its fibers ever ran. */
		reef_group_pause(&hosts[1].group);
		run_until(sched, 1005);
		assert_int_equal(hosts[0].steps, 100 * HOST_FIBERS);
		assert_int_equal(hosts[1].steps, 0);
		reef_group_resume(&hosts[1].group);
		reef_group_resume(&hosts[1].group);
		run_until(sched, 2010);
		assert_int_equal(hosts[1].steps, 100 * HOST_FIBERS);
		/* While they sleep: their timers fire and they are held. */
		reef_group_pause(&hosts[1].group);
		reef_group_pause(&hosts[1].group);
		run_until(sched, 3001);
		assert_int_equal(hosts[1].steps, 100 * HOST_FIBERS);
		reef_group_resume(&hosts[1].group);
		run_until(sched, 3002);
		assert_int_equal(hosts[1].steps, 101 * HOST_FIBERS);
		hosts_end(sched, hosts);
	}
}

static void group_killed_fibers_unwind_and_others_go_on(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct host hosts[2];

	hosts_start(sched, hosts);
	run_until(sched, 105);
	reef_group_kill(&hosts[0].group);
	run_until(sched, 106);
	assert_int_equal(hosts[0].dead, HOST_FIBERS);
	assert_int_equal(hosts[0].steps, 10 * HOST_FIBERS);
	assert_null(hosts[0].group.members);
	assert_int_equal(reef_sched_fibers(sched), HOST_FIBERS);
	run_until(sched, 1005);
	assert_int_equal(hosts[1].steps, 100 * HOST_FIBERS);
	hosts_end(sched, hosts);
}

static void group_killed_while_paused_unwinds(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct host hosts[2];

	hosts_start(sched, hosts);
	run_until(sched, 5);
	reef_group_pause(&hosts[0].group);
	run_until(sched, 100);
	reef_group_kill(&hosts[0].group);
	run_until(sched, 101);
	/* Held with their sleep over: still it is the kill that they see. */
	assert_int_equal(hosts[0].steps, 0);
	assert_int_equal(hosts[0].dead, HOST_FIBERS);
	hosts_end(sched, hosts);
}

static int kill_own_group(void *arg)
{
	reef_group_kill(reef_fiber_group());
	return reef_fiber_park(REEF_FOREVER);
}

static int join_children(void *arg)
{
	struct reef_fiber *child;
	int on_my_stack = 1;

	assert_int_equal(reef_fiber_spawn(reef_fiber_sched(), park_forever,
					  &on_my_stack, &child),
			 0);
	assert_int_equal(reef_fiber_join(child, NULL), 0);
	*(int *)arg = on_my_stack;
	return 0;
}

/* The child writes to its parent's stack as it unwinds. */
static void group_killed_join_still_waits_for_the_end(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct host host;
	struct reef_fiber *killer;
	int wake = 1, result = 0;

	host_init(&host, sched);
	spawn_in(&host.group, join_children, &wake, NULL);
	run_until(sched, 10);
	spawn_in(&host.group, kill_own_group, NULL, &killer);
	run(sched);
	assert_int_equal(wake, -REEF_EHOSTDEAD);
	reef_fiber_join(killer, &result);
	assert_int_equal(result, -REEF_EHOSTDEAD);
	reef_sched_destroy(sched);
}

static int pause_own_group(void *arg)
{
	reef_group_pause(reef_fiber_group());
	reef_fiber_yield();
	(*(int *)arg)++;
	return 0;
}

static void group_paused_by_its_own_fiber_stops_at_the_yield(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct host host;
	int count = 0;

	host_init(&host, sched);
	spawn_in(&host.group, pause_own_group, &count, NULL);
	spawn_in(&host.group, count_up, &count, NULL);
	assert_int_equal(reef_sched_run(sched), -EDEADLK);
	assert_int_equal(count, 0);
	reef_group_resume(&host.group);
	run(sched);
	assert_int_equal(count, 2);
	reef_sched_destroy(sched);
}

static int note_group(void *arg)
{
	*(struct reef_group **)arg = reef_fiber_group();
	return 0;
}

static int spawn_note_group(void *arg)
{
	return reef_fiber_spawn(reef_fiber_sched(), note_group, arg, NULL);
}

static void group_is_inherited_by_spawned_fibers(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct reef_group *inside = NULL, *outside = NULL;
	struct host host;

	host_init(&host, sched);
	spawn_in(&host.group, spawn_note_group, &inside, NULL);
	spawn(sched, spawn_note_group, &outside);
	run(sched);
	assert_ptr_equal(inside, &host.group);
	assert_non_null(outside);
	assert_ptr_not_equal(outside, &host.group);
	reef_sched_destroy(sched);
}

static int sleep_on_drifting_clock(void *arg)
{
	uint64_t *times = arg;
	uint64_t before = reef_now_ns();

	assert_int_equal(reef_sleep(1000000), 0);
	times[0] = reef_now_ns() - before;
	times[1] = reef_sched_now_ns(reef_fiber_sched());
	return 0;
}

static void group_clock_drifts_and_sleeps_follow_it(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct reef_local_clock fast = {.virtual_ns =
						reef_sched_virtual_ns(sched),
					.offset_ns = 77,
					.drift_ppm = 1000};
	struct reef_group group;
	uint64_t times[2];

	reef_group_init(sched, &group, &fast, NULL);
	spawn_in(&group, sleep_on_drifting_clock, times, NULL);
	run(sched);
	assert_int_equal(times[0], 1000000);
	assert_int_equal(times[1], 999001); /* 1e6 / 1.001, rounded up */
	reef_sched_destroy(sched);
}

static int ignore_death(void *arg)
{
	while (reef_fiber_park(REEF_FOREVER) != 0)
		;
	return 0;
}

static void group_killed_fiber_that_never_gives_up_is_found(void **state)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		struct reef_sched *sched = sched_make(true, NULL);
		struct host host;

		signal(SIGABRT, SIG_DFL);
		close(STDERR_FILENO);
		host_init(&host, sched);
		spawn_in(&host.group, ignore_death, NULL, NULL);
		reef_group_kill(&host.group);
		reef_sched_run(sched);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* --- everything at once --- */

#define SOUP_HOSTS 4
#define SOUP_FIBERS 6
#define SOUP_STEPS 40

struct soup {
	struct reef_sched *sched;
	struct reef_random random;
	struct reef_group hosts[SOUP_HOSTS];
	struct reef_fiber *fibers[SOUP_HOSTS * SOUP_FIBERS];
	uint64_t hash;
	int started, ended;
};

static uint64_t soup_below(struct soup *soup, uint64_t bound)
{
	uint64_t number = reef_random_below(&soup->random, bound);

	soup->hash = (soup->hash ^ number) * 0x100000001b3;
	return number;
}

static int soup_child(void *arg)
{
	struct soup *soup = arg;

	reef_sleep(soup_below(soup, 30));
	soup->ended++;
	return 0;
}

static void soup_step(struct soup *soup)
{
	struct reef_fiber *child;

	switch (soup_below(soup, 6)) {
	case 0:
		reef_fiber_yield();
		break;
	case 1:
		reef_sleep(soup_below(soup, 50));
		break;
	case 2:
	case 3:
		reef_fiber_park(soup_below(soup, 100));
		break;
	case 4:
		reef_fiber_unpark(soup->fibers[soup_below(
			soup, SOUP_HOSTS * SOUP_FIBERS)]);
		break;
	default:
		soup->started++;
		assert_int_equal(
			reef_fiber_spawn(soup->sched, soup_child, soup, &child),
			0);
		assert_int_equal(reef_fiber_join(child, NULL), 0);
	}
}

static int soup_fiber(void *arg)
{
	struct soup *soup = arg;

	for (int i = 0; i < SOUP_STEPS && !reef_fiber_group()->dead; i++)
		soup_step(soup);
	soup->ended++;
	return 0;
}

static int soup_stir(void *arg)
{
	struct soup *soup = arg;
	struct reef_group *host;

	for (int i = 0; i < 40; i++) {
		reef_sleep(soup_below(soup, 60));
		host = &soup->hosts[soup_below(soup, SOUP_HOSTS)];
		if (soup_below(soup, 20) == 0)
			reef_group_kill(host);
		else if (soup_below(soup, 2))
			reef_group_pause(host);
		else
			reef_group_resume(host);
	}
	for (int i = 0; i < SOUP_HOSTS; i++)
		reef_group_resume(&soup->hosts[i]);
	return 0;
}

static uint64_t soup_cook(uint64_t seed)
{
	struct soup soup = {.hash = seed};
	struct reef_random order;
	int count = SOUP_HOSTS * SOUP_FIBERS;

	reef_random_init(&soup.random, seed);
	order = reef_random_split(&soup.random, 1);
	soup.sched = sched_make(true, seed % 4 ? &order : NULL);
	for (int i = 0; i < SOUP_HOSTS; i++)
		reef_group_init(soup.sched, &soup.hosts[i], NULL, NULL);
	for (int i = 0; i < count; i++)
		spawn_in(&soup.hosts[i % SOUP_HOSTS], soup_fiber, &soup,
			 &soup.fibers[i]);
	soup.started = count;
	spawn(soup.sched, soup_stir, &soup);
	run(soup.sched);
	assert_int_equal(soup.started, soup.ended);
	for (int i = 0; i < count; i++)
		assert_int_equal(reef_fiber_join(soup.fibers[i], NULL), 0);
	for (int i = 0; i < SOUP_HOSTS; i++) {
		assert_null(soup.hosts[i].members);
		assert_null(soup.hosts[i].held);
	}
	reef_sched_destroy(soup.sched);
	return soup.hash;
}

static void group_soup_of_everything_ends_the_same_way_twice(void **state)
{
	uint64_t last = 0, hash;

	for (uint64_t seed = seeds_first(); seeds_has(seed, 200); seed++) {
		hash = soup_cook(seed);
		assert_true(hash == soup_cook(seed));
		assert_true(hash != last);
		last = hash;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(group_paused_stands_still_and_resumes),
		cmocka_unit_test(group_killed_fibers_unwind_and_others_go_on),
		cmocka_unit_test(group_killed_while_paused_unwinds),
		cmocka_unit_test(group_killed_join_still_waits_for_the_end),
		cmocka_unit_test(
			group_paused_by_its_own_fiber_stops_at_the_yield),
		cmocka_unit_test(group_is_inherited_by_spawned_fibers),
		cmocka_unit_test(group_clock_drifts_and_sleeps_follow_it),
		cmocka_unit_test(
			group_killed_fiber_that_never_gives_up_is_found),
		cmocka_unit_test(
			group_soup_of_everything_ends_the_same_way_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
