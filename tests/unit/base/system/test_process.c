/* test_process.c - processes are known again, and their end is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/system/process.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t start_child(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	assert_true(pid > 0);
	return pid;
}

static void process_alive_has_not_ended(void **state)
{
	struct reef_process self, again;

	assert_int_equal(reef_process_find((uint32_t)getpid(), &self), 0);
	assert_int_equal(reef_process_find((uint32_t)getpid(), &again), 0);
	assert_memory_equal(&self, &again, sizeof(self));
	assert_false(reef_process_has_ended(&self));
}

static void process_killed_has_ended(void **state)
{
	struct reef_process child;
	pid_t pid = start_child();

	assert_int_equal(reef_process_find((uint32_t)pid, &child), 0);
	assert_false(reef_process_has_ended(&child));
	assert_int_equal(kill(pid, SIGKILL), 0);
	/* It has ended before it is waited for, and after that. */
	assert_int_equal(waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT), 0);
	assert_true(reef_process_has_ended(&child));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(reef_process_has_ended(&child));
	assert_int_equal(reef_process_find((uint32_t)pid, &child), -ESRCH);
}

static void process_number_given_anew_is_another(void **state)
{
	struct reef_process self;

	assert_int_equal(reef_process_find((uint32_t)getpid(), &self), 0);
	self.started--;
	assert_true(reef_process_has_ended(&self));
}

static void process_of_another_place_counts_as_living(void **state)
{
	struct reef_process child;
	pid_t pid = start_child();

	assert_int_equal(reef_process_find((uint32_t)pid, &child), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(reef_process_has_ended(&child));
	child.place++;
	assert_false(reef_process_has_ended(&child));
	child = (struct reef_process){0};
	assert_false(reef_process_has_ended(&child));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(process_alive_has_not_ended),
		cmocka_unit_test(process_killed_has_ended),
		cmocka_unit_test(process_number_given_anew_is_another),
		cmocka_unit_test(process_of_another_place_counts_as_living),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
