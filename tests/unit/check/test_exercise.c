/* The exerciser of files on a directory of the kernel's, by processes that die
 * at any instant: its model must be whole for whoever comes next. */
#include "check/exercise_posix.h"
#include "fixture/scratch.h"
#include "fixture/seeds.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Where the model was not whole, two or three of these showed it. */
#define DEATHS 100u
#define LIFE_MAX_US 4000

static struct exercise *exercise;

/* One life: it goes on until its time is over, or something was wrong. */
static _Noreturn void live(int life_us)
{
	const struct itimerval life = {.it_value = {.tv_usec = life_us}};
	struct exercise_posix context = {.directory = scratch};
	int rc;

	setitimer(ITIMER_REAL, &life, NULL); /* SIGALRM ends it */
	rc = exercise_settle(exercise, &exercise_posix_face, &context);
	while (!rc)
		rc = exercise_step(exercise, &exercise_posix_face, &context);
	_exit(1);
}

static void exercise_outlives_deaths_at_any_instant(void **state)
{
	struct exercise_posix context = {.directory = scratch};
	pid_t child;
	int status;

	exercise_init(exercise, seeds_first(), &exercise_posix_face);
	srandom((unsigned)seeds_first());
	for (uint32_t i = 0; i < DEATHS; i++) {
		int life_us = 1 + (int)(random() % LIFE_MAX_US);

		child = fork();
		assert_true(child >= 0);
		if (!child)
			live(life_us);
		assert_int_equal(waitpid(child, &status, 0), child);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM)
			fail_msg("after %u deaths: %s", i, exercise->error);
	}
	assert_int_equal(
		exercise_settle(exercise, &exercise_posix_face, &context), 0);
	if (exercise_check(exercise, &exercise_posix_face, &context))
		fail_msg("%s", exercise->error);
	exercise_posix_close(&context);
	assert_true(exercise->doubts);
	print_message("%llu calls, %llu settled\n",
		      (unsigned long long)exercise->number,
		      (unsigned long long)exercise->doubts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			exercise_outlives_deaths_at_any_instant, scratch_make,
			scratch_remove),
	};
	int rc;

	exercise = mmap(NULL, sizeof(*exercise), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (exercise == MAP_FAILED)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	munmap(exercise, sizeof(*exercise));
	return rc;
}
