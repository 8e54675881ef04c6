/* test_timer.c - timers fire in order, whatever is set and cancelled. */
#include "fixture/runtime.h"

#include <errno.h>
#include <string.h>

static struct {
	int fired[3000];
	uint64_t at_ns[3000];
	int count;
} timeline;

struct numbered {
	struct reef_timer timer;
	struct reef_sched *sched;
	int number;
};

static void note_fire(struct reef_timer *timer)
{
	struct numbered *numbered = (void *)timer;

	assert_null(reef_fiber_self());
	/* Inside run the time is the scheduler's, fiber or not. */
	assert_true(reef_now_ns() == reef_sched_now_ns(numbered->sched));
	timeline.at_ns[timeline.count] = reef_now_ns();
	timeline.fired[timeline.count++] = numbered->number;
}

static int sleep_long(void *arg)
{
	return reef_sleep(1000000);
}

static void timer_many_fire_in_order_of_time_then_set(void **state)
{
	static struct numbered timers[3000];
	struct reef_sched *sched = sched_make(true, NULL);
	struct reef_random random;
	int left = 0;

	reef_random_init(&random, 11);
	memset(&timeline, 0, sizeof(timeline));
	memset(timers, 0, sizeof(timers));
	for (int i = 0; i < 3000; i++) {
		timers[i] = (struct numbered){
			.timer.fire = note_fire, .sched = sched, .number = i};
		assert_int_equal(
			reef_timer_set(sched, &timers[i].timer,
				       reef_random_below(&random, 500)),
			0);
	}
	/* Cancel some, set others anew. */
	for (int i = 0; i < 3000; i++) {
		if (reef_random_chance(&random, 1, 3))
			reef_timer_cancel(sched, &timers[i].timer);
		else if (reef_random_chance(&random, 1, 3))
			reef_timer_set(sched, &timers[i].timer,
				       reef_random_below(&random, 500));
		left += timers[i].timer.heap_index != 0;
	}
	spawn(sched, sleep_long, NULL);
	run(sched);
	assert_int_equal(timeline.count, left);
	for (int i = 0; i < left; i++) {
		struct reef_timer *timer = &timers[timeline.fired[i]].timer;

		assert_int_equal(timer->heap_index, 0);
		assert_true(timer->at_ns == timeline.at_ns[i]);
		if (i == 0)
			continue;
		assert_true(timeline.at_ns[i] >= timeline.at_ns[i - 1]);
		if (timeline.at_ns[i] == timeline.at_ns[i - 1])
			assert_true(timer->order >
				    timers[timeline.fired[i - 1]].timer.order);
	}
	reef_sched_destroy(sched);
}

static void set_again_at_once(struct reef_timer *timer)
{
	struct numbered *numbered = (void *)timer;

	if (++numbered->number < 100)
		reef_timer_set(numbered->sched, timer, 0);
}

static int yield_until_five(void *arg)
{
	struct numbered *numbered = arg;

	while (numbered->number < 5)
		reef_fiber_yield();
	return numbered->number;
}

static void timer_set_to_now_in_its_callback_lets_fibers_run(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct numbered numbered = {.timer.fire = set_again_at_once,
				    .sched = sched};
	struct reef_fiber *fiber;
	int result;

	assert_int_equal(reef_timer_set(sched, &numbered.timer, 0), 0);
	assert_int_equal(
		reef_fiber_spawn(sched, yield_until_five, &numbered, &fiber),
		0);
	run(sched);
	reef_fiber_join(fiber, &result);
	assert_int_equal(result, 5);
	reef_timer_cancel(sched, &numbered.timer);
	reef_timer_cancel(sched, &numbered.timer);
	reef_sched_destroy(sched);
}

struct napper {
	uint64_t ns;
	int *order;
	int *count;
};

static int nap_and_note(void *arg)
{
	struct napper *napper = arg;

	reef_sleep(napper->ns);
	napper->order[(*napper->count)++] = (int)napper->ns;
	return 0;
}

static void timer_sleepers_wake_in_order(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct napper nappers[100];
	int order[100] = {0}, count = 0;

	for (int i = 0; i < 100; i++) {
		nappers[i] = (struct napper){(uint64_t)(i * 37 % 100), order,
					     &count};
		spawn(sched, nap_and_note, &nappers[i]);
	}
	run(sched);
	for (int i = 0; i < 100; i++)
		assert_int_equal(order[i], i);
	reef_sched_destroy(sched);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timer_many_fire_in_order_of_time_then_set),
		cmocka_unit_test(
			timer_set_to_now_in_its_callback_lets_fibers_run),
		cmocka_unit_test(timer_sleepers_wake_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
