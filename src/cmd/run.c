/* run.c - see run.h. */
#include "cmd/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <reef/fiber.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PRINTED_MAX 131072u
#define CANNOT_RUN 126

/* Become the program, in the forked child: nothing here may allocate or
 * lock. */
static void exec_words(const char *const *words, int fd, pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || dup2(fd, STDOUT_FILENO) < 0 ||
	    dup2(fd, STDERR_FILENO) < 0)
		_exit(CANNOT_RUN);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv("/proc/self/exe", (char *const *)words);
	_exit(CANNOT_RUN);
}

/* Read what comes until the end of it, or of the time. */
static int read_all(int fd, uint64_t until_ns, FILE *to)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	char bytes[4096];
	uint64_t now_ns;
	size_t left = PRINTED_MAX;
	ssize_t got;

	for (;;) {
		now_ns = reef_now_ns();
		if (now_ns >= until_ns)
			return -ETIMEDOUT;
		if (poll(&wait, 1, (int)((until_ns - now_ns) / 1000000) + 1) <=
		    0)
			continue;
		got = read(fd, bytes, sizeof(bytes));
		if (got <= 0)
			return 0;
		if ((size_t)got > left)
			return -EMSGSIZE;
		fwrite(bytes, 1, (size_t)got, to);
		left -= (size_t)got;
	}
}

int run_and_read(const char *const *words, uint64_t timeout_ns, char **out,
		 size_t *size)
{
	const uint64_t until_ns = reef_now_ns() + timeout_ns;
	const pid_t parent = getpid();
	FILE *to = open_memstream(out, size);
	int fds[2], status = 0, rc = 0;
	pid_t pid;

	if (!to)
		return -ENOMEM;
	if (pipe2(fds, O_CLOEXEC)) {
		rc = -errno;
		fclose(to);
		return rc;
	}
	pid = fork();
	if (pid == 0)
		exec_words(words, fds[1], parent);
	rc = pid < 0 ? -errno : 0;
	close(fds[1]);
	if (!rc) {
		rc = read_all(fds[0], until_ns, to);
		/* It has closed its end, or is of no use any more. */
		if (rc)
			kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	close(fds[0]);
	fclose(to);
	if (rc)
		return rc;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
