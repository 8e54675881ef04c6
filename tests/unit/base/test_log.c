/* test_log.c - what reaches a sink, and how an assertion ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

struct seen {
	int count;
	enum reef_log_level level;
	char area[32], text[2048];
};

static void remember(void *context, enum reef_log_level level, const char *area,
		     const char *text)
{
	struct seen *seen = context;

	seen->count++;
	seen->level = level;
	snprintf(seen->area, sizeof(seen->area), "%s", area);
	snprintf(seen->text, sizeof(seen->text), "%s", text);
}

/* What this process writes to its stdout and stderr, in a child: bytes. */
static ssize_t written_by(void (*write_something)(void))
{
	int pipe_fds[2], status;
	char text[64];
	ssize_t size;
	pid_t child;

	fflush(NULL); /* or the child would write what is ours */
	assert_int_equal(pipe(pipe_fds), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(pipe_fds[1], STDOUT_FILENO);
		dup2(pipe_fds[1], STDERR_FILENO);
		write_something();
		fflush(NULL);
		_exit(0);
	}
	close(pipe_fds[1]);
	size = read(pipe_fds[0], text, sizeof(text));
	close(pipe_fds[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	return size;
}

static void log_an_error(void)
{
	reef_log(REEF_LOG_ERROR, "test", "%d", 1);
}

/* Neither does the sink get it that was there before, nor anybody else. */
static void log_no_sink_drops(void **state)
{
	struct seen seen = {0};

	reef_log_set(remember, &seen, REEF_LOG_DEBUG);
	reef_log_set(NULL, NULL, REEF_LOG_DEBUG);
	log_an_error();
	assert_int_equal(seen.count, 0);
	assert_int_equal(written_by(log_an_error), 0);
	/* It would be noticed. */
	reef_log_set(reef_log_to_stream, stderr, REEF_LOG_DEBUG);
	assert_true(written_by(log_an_error) > 0);
	reef_log_set(NULL, NULL, REEF_LOG_DEBUG);
}

static void log_sink_receives_formatted_text(void **state)
{
	struct seen seen = {0};

	reef_log_set(remember, &seen, REEF_LOG_DEBUG);
	reef_log(REEF_LOG_WARNING, "test", "%s is %d", "six", 6);
	reef_log_set(NULL, NULL, REEF_LOG_DEBUG);
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.level, REEF_LOG_WARNING);
	assert_string_equal(seen.area, "test");
	assert_string_equal(seen.text, "six is 6");
}

static void log_below_lowest_is_dropped(void **state)
{
	struct seen seen = {0};

	reef_log_set(remember, &seen, REEF_LOG_WARNING);
	reef_log(REEF_LOG_DEBUG, "test", "a");
	reef_log(REEF_LOG_INFO, "test", "b");
	reef_log(REEF_LOG_WARNING, "test", "c");
	reef_log(REEF_LOG_ERROR, "test", "d");
	reef_log_set(NULL, NULL, REEF_LOG_DEBUG);
	assert_int_equal(seen.count, 2);
}

static void log_long_text_is_cut_and_says_so(void **state)
{
	struct seen seen = {0};
	char text[3000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	reef_log_set(remember, &seen, REEF_LOG_DEBUG);
	reef_log(REEF_LOG_INFO, "test", "%s", text);
	reef_log_set(NULL, NULL, REEF_LOG_DEBUG);
	assert_int_equal(strlen(seen.text), 1023);
	assert_string_equal(seen.text + 1019, "x...");
}

static void log_to_stream_writes_a_line(void **state)
{
	char *text = NULL;
	size_t size = 0;
	FILE *stream = open_memstream(&text, &size);
	char level[16], area[16], rest[16];
	unsigned long long seconds;
	unsigned int microseconds;

	assert_non_null(stream);
	reef_log_set(reef_log_to_stream, stream, REEF_LOG_DEBUG);
	reef_log(REEF_LOG_ERROR, "test", "words");
	reef_log_set(NULL, NULL, REEF_LOG_DEBUG);
	fclose(stream);
	assert_int_equal(sscanf(text, "%llu.%6u %15s %15s %15s\n", &seconds,
				&microseconds, level, area, rest),
			 5);
	assert_string_equal(level, "error");
	assert_string_equal(area, "test:");
	assert_string_equal(rest, "words");
	assert_int_equal(text[size - 1], '\n');
	free(text);
}

static void log_assert_false_aborts_and_says_where(void **state)
{
	char text[512];
	int pipe_fds[2], status;
	ssize_t size;
	pid_t child;

	assert_int_equal(pipe(pipe_fds), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		signal(SIGABRT, SIG_DFL);
		dup2(pipe_fds[1], STDERR_FILENO);
		reef_assert(1 + 1 == 2);
		reef_assert(1 + 1 == 3);
		_exit(0);
	}
	close(pipe_fds[1]);
	size = read(pipe_fds[0], text, sizeof(text) - 1);
	close(pipe_fds[0]);
	assert_true(size > 0);
	text[size] = '\0';
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_non_null(strstr(text, "test_log.c"));
	assert_non_null(strstr(text, "1 + 1 == 3"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_no_sink_drops),
		cmocka_unit_test(log_sink_receives_formatted_text),
		cmocka_unit_test(log_below_lowest_is_dropped),
		cmocka_unit_test(log_long_text_is_cut_and_says_so),
		cmocka_unit_test(log_to_stream_writes_a_line),
		cmocka_unit_test(log_assert_false_aborts_and_says_where),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
