/* child.h - a server in a process of its own that belongs to this one.
 *
 *	start --> running --(ended by itself)--> pause, growing --> running
 *	   |         |
 *	 failed    stop: SIGTERM; SIGKILL if it does not end --> gone
 *
 * (1) The child is this same program with other words. It says that it is ready
 *     by a line on the descriptor that --ready-fd names; one that ends before
 *     its first such line is not started again, unless it is optional or ended
 *     with CHILD_LATER: what it needs is out of reach, and may come back.
 * (2) It does not outlive us: should we be killed, the kernel kills it.
 * (3) It is in a process group of its own: what a terminal sends reaches it
 *     through us, so that it ends before what it needs.
 *
 * Thread: the scheduler's; start and stop inside a fiber. */
#ifndef REEF_CMD_SERVE_CHILD_H
#define REEF_CMD_SERVE_CHILD_H

#include <reef/fiber.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#define CHILD_WORDS_MAX 64
#define CHILD_LINE_SIZE 1024
#define CHILD_LATER 75 /* an exit status; EX_TEMPFAIL of sysexits.h */

struct child {
	/* The caller's, before start: */
	const char *command; /* of the command that messages name: "up" */
	const char *name;    /* "the Redis door" */
	const char *words[CHILD_WORDS_MAX]; /* without --ready-fd; NULL ends */
	int pass_fd;	  /* a descriptor that it gets, too; 0: none */
	sigset_t signals; /* to be blocked in it, as they were in us */
	/* We do without it for as long as it takes: nobody waits until it is
	 * ready. */
	bool is_optional;

	/* Out: the line that the child wrote when it was ready. */
	char line[CHILD_LINE_SIZE];

	pid_t pid; /* 0: it does not run */
	int status, ready_fd;
	bool is_ready, is_late, is_stopping, is_over;
	struct reef_fiber *fiber, *waiter;
};

/* Start the child and wait until it is ready, unless it is optional. 0: it is,
 * or is_late, which was said.  -ECHILD: it ended, and has said why. */
int child_start(struct child *child, struct reef_sched *sched);
/* Stop the child and wait for its end; harmless if it was never started. */
void child_stop(struct child *child);
/* Tell the child's fiber that a SIGCHLD came. */
void child_signal(struct child *child);

/* --- in the child --- */

/* Block the signals that end a server, before any thread starts, so that all
 * threads have them blocked, and ignore SIGPIPE. */
void child_block_signals(sigset_t *set);
/* Write a line to the descriptor that --ready-fd names, for whoever started us.
 * False: it could not be written. */
bool child_tell_ready(const char *ready_fd, const char *line);

#endif
