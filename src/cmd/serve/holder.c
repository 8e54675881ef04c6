/* holder.c - `reef hold`, which `reef up` and `reef node` start beside
 * themselves to keep the memory that they lend across their death
 * (pool/node/holder.h); and how they do that. It is in no list: nobody else has
 * a use for it. */
#include "cmd/serve/holder.h"

#include "base/clock.h"
#include "cmd/cmd.h"
#include "pool/node/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <reef/error.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#define CANNOT_RUN 126
/* Room for any state as text, with its end. */
#define HOLDER_STATE_SIZE 160

/* Become the holder, in the forked child: nothing here may allocate or lock. It
 * outlives us, so it has nothing of ours: no terminal, no output. */
static void exec_holder(char *const *words, int listen_fd)
{
	sigset_t none;
	int null = open("/dev/null", O_RDWR);

	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
	    dup2(null, 2) < 0)
		_exit(CANNOT_RUN);
	fcntl(listen_fd, F_SETFD, 0);
	execv("/proc/self/exe", words);
	_exit(CANNOT_RUN);
}

/* It is nobody's child: whoever started it need not bury it. */
int holder_start(void *linger_ns, int listen_fd, const char *path,
		 const char *folder)
{
	char fd[16], linger[32], state[HOLDER_STATE_SIZE];
	char *words[] = {"reef", "hold",       state,	       fd,
			 linger, (char *)path, (char *)folder, NULL};
	int status = 0;
	pid_t pid;

	snprintf(state, sizeof(state), "%*s", HOLDER_STATE_SIZE - 1, "");
	snprintf(fd, sizeof(fd), "%d", listen_fd);
	snprintf(linger, sizeof(linger), "%llu",
		 (unsigned long long)*(uint64_t *)linger_ns);
	pid = fork();
	if (pid == 0) {
		pid = fork();
		if (pid == 0)
			exec_holder(words, listen_fd);
		_exit(pid < 0 ? errno : 0);
	}
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

/* --- in the holder --- */

struct holding {
	char *words; /* of the command line, HOLDER_STATE_SIZE */
	struct reef_holder_state state;
	uint64_t alone_since; /* seconds of the wall clock */
};

/* Write what is held into our command line, where `ps` and `reef doctor` read
 * it. */
static void show_state(void *context, const struct reef_holder_state *state)
{
	struct holding *holding = context;
	char text[HOLDER_STATE_SIZE];

	if (holding->state.has_node || !holding->alone_since)
		holding->alone_since = reef_wall_ns() / 1000000000;
	holding->state = *state;
	snprintf(text, sizeof(text), REEF_HOLDER_STATE_FORMAT, state->pool,
		 state->node, state->extents, state->bytes,
		 state->has_node ? 0 : holding->alone_since);
	snprintf(holding->words, HOLDER_STATE_SIZE, "%-*s",
		 HOLDER_STATE_SIZE - 1, text);
}

/* Say that nobody came, and what became of the memory: into the log of the
 * system, as we have no output. */
static void log_given_up(void *context, const struct reef_holder_end *end)
{
	const struct holding *holding = context;
	char ended[64] = "";
	bool saved = end->tried && end->rc == 0;

	if (end->ended)
		snprintf(ended, sizeof(ended),
			 ", after %u process%s had to be ended", end->ended,
			 end->ended == 1 ? "" : "es");
	openlog("reef", LOG_PID, LOG_DAEMON);
	syslog(LOG_WARNING,
	       "the holder of node %u of pool %016llx gives up, as the node "
	       "was not started again: %u extents, %llu bytes, are %s%s%s%s",
	       holding->state.node, (unsigned long long)holding->state.pool,
	       holding->state.extents, (unsigned long long)holding->state.bytes,
	       saved ? "saved for its next start" : "lost", ended,
	       end->tried && end->rc ? "; they cannot be saved: " : "",
	       end->tried && end->rc ? reef_error_text(end->rc) : "");
	closelog();
}

int cmd_hold(int argc, char **argv)
{
	struct holding holding = {.words = argc > 4 ? argv[1] : NULL};
	int rc;

	if (argc < 5 || argc > 6 || strlen(argv[1]) != HOLDER_STATE_SIZE - 1)
		return cmd_usage_error(argv[0], "it is started by others");
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	rc = reef_holder_run(&(struct reef_holder_run_options){
		.listen_fd = atoi(argv[2]),
		.linger_ns = strtoull(argv[3], NULL, 10),
		.folder = argc > 5 ? argv[5] : NULL,
		.gave_up = log_given_up,
		.changed = show_state,
		.context = &holding,
	});
	if (rc <= 0)
		unlink(argv[4]);
	return rc < 0 ? 1 : 0;
}
