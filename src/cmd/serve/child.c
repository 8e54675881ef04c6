/* child.c - see child.h. */
#include "cmd/serve/child.h"

#include "cmd/operate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define PAUSE_LEAST (100 * MS)
#define PAUSE_MOST (10 * SECOND)
#define LONG_LIFE                                                              \
	(60 * SECOND) /* a child that ran so long is restarted after the least \
			 pause */
#define STOP_PATIENCE (8 * SECOND)
#define CANNOT_RUN 126

/* Become the program, in the forked child: nothing here may allocate or
 * lock. */
static void exec_child(const struct child *child, const char **words,
		       int ready_fd, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CANNOT_RUN);
	setpgid(0, 0);
	fcntl(ready_fd, F_SETFD, 0);
	if (child->pass_fd)
		fcntl(child->pass_fd, F_SETFD, 0);
	sigprocmask(SIG_SETMASK, &child->signals, NULL);
	execv("/proc/self/exe", (char *const *)words);
	_exit(CANNOT_RUN);
}

static int spawn(struct child *child)
{
	const char *words[CHILD_WORDS_MAX + 3];
	pid_t parent = getpid();
	char number[16];
	int pipe_fds[2];
	size_t count = 0;

	if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	snprintf(number, sizeof(number), "%d", pipe_fds[1]);
	for (; child->words[count]; count++)
		words[count] = child->words[count];
	words[count++] = "--ready-fd";
	words[count++] = number;
	words[count] = NULL;
	child->line[0] = '\0';
	child->pid = fork();
	if (child->pid == 0)
		exec_child(child, words, pipe_fds[1], parent);
	close(pipe_fds[1]);
	child->ready_fd = pipe_fds[0];
	if (child->pid > 0)
		return 0;
	child->pid = 0;
	close(pipe_fds[0]);
	return -errno;
}

static bool has_ended(struct child *child)
{
	if (child->pid && waitpid(child->pid, &child->status, WNOHANG) != 0)
		child->pid = 0;
	return !child->pid;
}

/* Wait until the child has written its line, or ended. */
static void wait_ready(struct child *child)
{
	size_t used = 0;
	ssize_t got;

	while (!has_ended(child)) {
		got = read(child->ready_fd, child->line + used,
			   sizeof(child->line) - 1 - used);
		if (got == 0)
			break;
		used += got > 0 ? (size_t)got : 0;
		child->line[used] = '\0';
		if (strchr(child->line, '\n')) {
			child->line[strcspn(child->line, "\n")] = '\0';
			child->is_ready = true;
			break;
		}
		reef_fiber_park(5 * MS);
	}
	close(child->ready_fd);
}

static void report_end(const struct child *child)
{
	if (child->is_late)
		operate_say(child->command, "%s is tried again until it opens",
			    child->name);
	else if (WIFSIGNALED(child->status))
		operate_say(child->command,
			    "%s was killed by signal %d; it is started again",
			    child->name, WTERMSIG(child->status));
	else
		operate_say(child->command,
			    "%s ended with status %d; it is started again",
			    child->name, WEXITSTATUS(child->status));
}

static bool has_to_wait(const struct child *child)
{
	return WIFEXITED(child->status) &&
	       WEXITSTATUS(child->status) == CHILD_LATER;
}

static void wake_waiter(struct child *child)
{
	if (child->waiter)
		reef_fiber_unpark(child->waiter);
}

/* Start the child and wait until it ends. */
static int run_once(struct child *child)
{
	int rc = spawn(child);

	if (rc)
		return operate_failed(child->command, child->name, rc);
	wait_ready(child);
	if (child->is_late && child->is_ready)
		operate_say(child->command, "%s is open: %s", child->name,
			    child->line);
	child->is_late = false;
	wake_waiter(child);
	while (!has_ended(child))
		reef_fiber_park(SECOND);
	return 0;
}

static int supervise(void *arg)
{
	struct child *child = arg;
	uint64_t pause_ns = PAUSE_LEAST, begun_ns;
	bool was_late;

	while (!child->is_stopping) {
		begun_ns = reef_now_ns();
		was_late = child->is_late;
		run_once(child);
		child->is_late = !child->is_ready && has_to_wait(child);
		if (child->is_stopping ||
		    (!child->is_ready && !child->is_late &&
		     !child->is_optional))
			break;
		if (!was_late || !child->is_late)
			report_end(child);
		wake_waiter(child);
		if (reef_now_ns() - begun_ns > LONG_LIFE)
			pause_ns = PAUSE_LEAST;
		reef_fiber_park(pause_ns);
		pause_ns =
			2 * pause_ns > PAUSE_MOST ? PAUSE_MOST : 2 * pause_ns;
	}
	child->is_over = true;
	wake_waiter(child);
	return 0;
}

int child_start(struct child *child, struct reef_sched *sched)
{
	int rc;

	child->waiter = reef_fiber_self();
	rc = reef_fiber_spawn(sched, supervise, child, &child->fiber);
	if (rc)
		return rc;
	while (!child->is_ready && !child->is_late && !child->is_over &&
	       !child->is_optional)
		reef_fiber_park(REEF_FOREVER);
	child->waiter = NULL;
	return child->is_over && !child->is_ready ? -ECHILD : 0;
}

void child_stop(struct child *child)
{
	const uint64_t until_ns = reef_now_ns() + STOP_PATIENCE;

	if (!child->fiber)
		return;
	child->is_stopping = true;
	child->waiter = reef_fiber_self();
	if (child->pid)
		kill(child->pid, SIGTERM);
	reef_fiber_unpark(child->fiber);
	while (!child->is_over) {
		if (child->pid && reef_now_ns() >= until_ns)
			kill(child->pid, SIGKILL);
		reef_fiber_park(SECOND);
	}
	reef_fiber_join(child->fiber, NULL);
	child->fiber = NULL;
}

void child_signal(struct child *child)
{
	if (child->fiber)
		reef_fiber_unpark(child->fiber);
}

/* --- in the child --- */

void child_block_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	sigprocmask(SIG_BLOCK, set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

bool child_tell_ready(const char *ready_fd, const char *line)
{
	int fd = atoi(ready_fd);
	bool is_told = dprintf(fd, "%s\n", line) > 0;

	close(fd);
	return is_told;
}
