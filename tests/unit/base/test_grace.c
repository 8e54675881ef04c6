/* test_grace.c - what is taken away is not used by anybody any more. */
#include "base/grace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define OFTEN (32u - 2)

static int begin(void **state)
{
	(void)state;
	reef_grace_init();
	return 0;
}

static void grace_with_nobody_inside_is_over_at_once(void **state)
{
	struct reef_turn turn;
	uint64_t first, second;

	(void)state;
	assert_true(reef_grace_is_over(reef_grace_begin()));
	reef_turn_add(&turn, OFTEN);
	first = reef_grace_begin();
	second = reef_grace_begin();
	assert_true(first && second > first);
	assert_true(reef_grace_is_over(first) && reef_grace_is_over(second));
	reef_turn_remove(&turn);
}

static void grace_waits_for_those_inside_and_not_for_later_ones(void **state)
{
	struct reef_turn turns[2];
	uint64_t grace;

	(void)state;
	reef_turn_add(&turns[0], OFTEN);
	reef_turn_add(&turns[1], OFTEN);
	reef_turn_enter(&turns[0]);
	grace = reef_grace_begin();
	reef_turn_enter(&turns[1]);
	assert_false(reef_grace_is_over(grace));
	reef_turn_leave(&turns[0]);
	/* Inside again, but it saw what was closed. */
	reef_turn_enter(&turns[0]);
	assert_true(reef_grace_is_over(grace));
	reef_turn_leave(&turns[0]);
	reef_turn_leave(&turns[1]);
	reef_turn_remove(&turns[0]);
	reef_turn_remove(&turns[1]);
}

static void grace_asked_for_under_another_begins_after_it(void **state)
{
	struct reef_turn turns[2];
	uint64_t first, second;

	(void)state;
	reef_turn_add(&turns[0], OFTEN);
	reef_turn_add(&turns[1], OFTEN);
	reef_turn_enter(&turns[0]);
	first = reef_grace_begin();
	reef_turn_enter(&turns[1]);
	second = reef_grace_begin();
	reef_turn_leave(&turns[0]);
	assert_true(reef_grace_is_over(first));
	assert_false(reef_grace_is_over(second));
	reef_turn_leave(&turns[1]);
	assert_true(reef_grace_is_over(second));
	reef_turn_remove(&turns[0]);
	/* One that is gone is not waited for. */
	reef_turn_enter(&turns[1]);
	first = reef_grace_begin();
	assert_false(reef_grace_is_over(first));
	reef_turn_remove(&turns[1]);
	assert_true(reef_grace_is_over(first));
}

static void grace_turn_is_refused_by_its_mask(void **state)
{
	struct reef_turn turn;
	uint32_t entered = 0;

	(void)state;
	reef_turn_add(&turn, OFTEN);
	while (reef_turn_enter_quick(&turn)) {
		reef_turn_leave(&turn);
		entered++;
	}
	assert_int_equal(entered, 15); /* from 2 to 32 */
	reef_turn_enter(&turn);
	reef_turn_leave(&turn);
	assert_true(reef_turn_enter_quick(&turn));
	reef_turn_leave(&turn);
	turn.mask = 0;
	assert_false(reef_turn_enter_quick(&turn));
	reef_turn_remove(&turn);
}

static void grace_forked_child_enters_nothing_of_its_parent(void **state)
{
	struct reef_turn turn, own;
	uint64_t grace;
	pid_t child;
	int status;

	(void)state;
	reef_turn_add(&turn, OFTEN);
	reef_turn_enter(&turn);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		/* Whoever was inside then is not here. */
		grace = reef_grace_begin();
		if (!reef_grace_is_over(grace))
			_exit(1);
		if (reef_turn_enter_quick(&turn))
			_exit(2);
		reef_turn_add(&own, OFTEN);
		if (!reef_turn_enter_quick(&own))
			_exit(3);
		_exit(reef_grace_is_over(reef_grace_begin()) ? 4 : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	reef_turn_leave(&turn);
	assert_true(reef_turn_enter_quick(&turn));
	reef_turn_leave(&turn);
	reef_turn_remove(&turn);
}

static void grace_crowd_has_left_when_both_phases_are_empty(void **state)
{
	struct reef_crowd crowd = {0};
	_Atomic uint32_t phase = 0;
	uint32_t early, late;

	(void)state;
	early = reef_crowd_enter(&crowd, &phase);
	assert_true(reef_crowd_has_left(&crowd, 1));
	atomic_store(&phase, 1);
	late = reef_crowd_enter(&crowd, &phase);
	assert_int_equal(early, 0);
	assert_int_equal(late, 1);
	assert_false(reef_crowd_has_left(&crowd, 0));
	reef_crowd_leave(&crowd, early);
	assert_true(reef_crowd_has_left(&crowd, 0));
	assert_false(reef_crowd_has_left(&crowd, 1));
	reef_crowd_leave(&crowd, late);
	assert_true(reef_crowd_has_left(&crowd, 1));
}

/* --- threads --- */

#define READERS 3
#define ROUNDS 300
#define GOOD UINT64_C(0x600d)

struct scene {
	_Atomic bool stop;
	_Atomic(_Atomic uint64_t *) open; /* NULL: closed */
	_Atomic uint32_t bad;
	_Atomic uint32_t reads; /* of an open word */
};

static void *read_what_is_open(void *arg)
{
	struct scene *scene = arg;
	_Atomic uint64_t *word;
	struct reef_turn turn;

	reef_turn_add(&turn, OFTEN);
	while (!atomic_load_explicit(&scene->stop, memory_order_relaxed)) {
		reef_turn_enter(&turn);
		word = atomic_load_explicit(&scene->open, memory_order_acquire);
		for (uint32_t i = 0; word && i < 16; i++)
			if (atomic_load_explicit(word, memory_order_relaxed) !=
			    GOOD)
				atomic_fetch_add(&scene->bad, 1);
		reef_turn_leave(&turn);
		if (word)
			atomic_fetch_add(&scene->reads, 1);
	}
	reef_turn_remove(&turn);
	return NULL;
}

static void grace_readers_never_see_what_was_taken_away(void **state)
{
	pthread_t readers[READERS];
	_Atomic uint64_t words[2];
	struct scene scene = {0};
	uint32_t reads;
	uint64_t grace;

	(void)state;
	for (uint32_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&readers[i], NULL,
						read_what_is_open, &scene),
				 0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		atomic_store(&words[i & 1], GOOD);
		reads = atomic_load(&scene.reads);
		atomic_store_explicit(&scene.open, &words[i & 1],
				      memory_order_release);
		/* On a busy machine readers may not run for a while. */
		while (atomic_load(&scene.reads) == reads)
			sched_yield();
		atomic_store(&scene.open, NULL);
		grace = reef_grace_begin();
		while (!reef_grace_is_over(grace))
			sched_yield();
		atomic_store(&words[i & 1], 0);
	}
	atomic_store(&scene.stop, true);
	for (uint32_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_join(readers[i], NULL), 0);
	assert_int_equal(atomic_load(&scene.bad), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(grace_with_nobody_inside_is_over_at_once),
		cmocka_unit_test(
			grace_waits_for_those_inside_and_not_for_later_ones),
		cmocka_unit_test(grace_asked_for_under_another_begins_after_it),
		cmocka_unit_test(grace_turn_is_refused_by_its_mask),
		cmocka_unit_test(
			grace_forked_child_enters_nothing_of_its_parent),
		cmocka_unit_test(
			grace_crowd_has_left_when_both_phases_are_empty),
		cmocka_unit_test(grace_readers_never_see_what_was_taken_away),
	};

	return cmocka_run_group_tests(tests, begin, NULL);
}
